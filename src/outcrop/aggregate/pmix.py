"""What the launcher's PMIx server has told this process of where it is.

    MPI ──loads──► libpmix ◄──given at the start── server of the launcher (Open MPI's prte, Slurm, PALS)
                      ▲
                      └── ask(): PMIx_Get of what is there already; nobody is waited for

Only the library that MPI has loaded is asked, and only where MPI has made it ready: nothing is started anew.
Layouts are those of pmix_common.h, versions 3 to 5.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MAPS = Path("/proc/self/maps")
STRING, DATA_ARRAY, COORDINATES, GEOMETRY = 3, 39, 47, 53
LOGICAL_VIEW = 1
HOST, FABRIC_COORDINATES, OPTIONAL = b"pmix.hname", b"pmix.fab.coord", b"pmix.optional"
DIMS_MOST = 16
"""More than any fabric has: more are something else."""


class _Process(ctypes.Structure):
    _fields_ = (("namespace", ctypes.c_char * 256), ("rank", ctypes.c_uint32))


class _Value(ctypes.Structure):
    _fields_ = (("type", ctypes.c_uint16), ("data", ctypes.c_uint64 * 3))


class _Info(ctypes.Structure):
    _fields_ = (("key", ctypes.c_char * 512), ("flags", ctypes.c_uint32), ("value", _Value))


class _Array(ctypes.Structure):
    _fields_ = (("type", ctypes.c_uint16), ("size", ctypes.c_size_t), ("first", ctypes.c_void_p))


class _Coordinates(ctypes.Structure):
    _fields_ = (("view", ctypes.c_uint8), ("values", ctypes.POINTER(ctypes.c_uint32)), ("dims", ctypes.c_size_t))


class _Geometry(ctypes.Structure):
    _fields_ = (
        ("fabric", ctypes.c_size_t),
        ("identity", ctypes.c_void_p),
        ("device", ctypes.c_void_p),
        ("coordinates", ctypes.POINTER(_Coordinates)),
        ("count", ctypes.c_size_t),
    )


@dataclass(frozen=True)
class PmixAnswer:
    """The host's name as the server has it, coordinates in the fabric, and why there are none."""

    host: str = ""
    coordinates: tuple[int, ...] = ()
    refusal: str = ""


NO_PMIX = PmixAnswer(refusal="MPI has loaded none")


def ask_pmix(library: Path | None = None) -> PmixAnswer:
    """Of this process. `library` is the PMIx that MPI has loaded, unless another is given."""
    path = library or loaded_pmix()
    if path is None:
        return NO_PMIX
    try:
        pmix = ctypes.CDLL(str(path))
        is_ready = bool(pmix.PMIx_Initialized())
    except (OSError, AttributeError) as error:
        return PmixAnswer(refusal=f"{path} cannot be used: {error}")
    own = _Process()
    # Counted: MPI's own beginning and end stay as they are.
    if not is_ready or pmix.PMIx_Init(ctypes.byref(own), None, ctypes.c_size_t(0)) != 0:
        return PmixAnswer(refusal="MPI does not use it")
    try:
        host = _host(_get(pmix, own, HOST))
        coordinates = _coordinates(_get(pmix, own, FABRIC_COORDINATES))
    finally:
        pmix.PMIx_Finalize(None, ctypes.c_size_t(0))
    return PmixAnswer(host, coordinates, "" if coordinates else "its server gives no coordinates")


def loaded_pmix(maps: Path = MAPS) -> Path | None:
    """The library of PMIx in this process, by what the system says is mapped."""
    try:
        lines = maps.read_text().splitlines()
    except OSError:
        return None
    found = (Path(line.split(maxsplit=5)[5]) for line in lines if "/libpmix.so" in line)
    return next(found, None)


def _get(pmix: ctypes.CDLL, own: _Process, key: bytes) -> _Value | None:
    """What is known of a key without asking anybody. The memory is PMIx's, and small: it is left."""
    at_hand = _Info(OPTIONAL, 0, _Value(1))
    at_hand.value.data[0] = 1
    value = ctypes.POINTER(_Value)()
    outcome = pmix.PMIx_Get(
        ctypes.byref(own), key, ctypes.byref(at_hand), ctypes.c_size_t(1), ctypes.byref(value)
    )  # fmt: skip
    return value.contents if outcome == 0 and value else None


def _host(value: _Value | None) -> str:
    if value is None or value.type != STRING or not value.data[0]:
        return ""
    return ctypes.string_at(value.data[0]).decode(errors="replace")


def _coordinates(value: _Value | None) -> tuple[int, ...]:
    """The first, of the logical view where there is one."""
    found = list(_views(value))
    logical = [numbers for view, numbers in found if view == LOGICAL_VIEW]
    return (logical or [numbers for _, numbers in found] or [()])[0]


def _views(value: _Value | None) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Each view of each device. What is of a kind not known here is passed over."""
    if value is None or value.type != DATA_ARRAY or not value.data[0]:
        return
    array = _Array.from_address(value.data[0])
    if not array.first:
        return
    if array.type == COORDINATES:
        each = list((_Coordinates * array.size).from_address(array.first))
    elif array.type == GEOMETRY:
        geometries = (_Geometry * array.size).from_address(array.first)
        each = [one.coordinates[i] for one in geometries if one.coordinates for i in range(one.count)]
    else:
        return
    for one in each:
        if one.values and 0 < one.dims <= DIMS_MOST:
            yield one.view, tuple(one.values[i] for i in range(one.dims))
