"""Collect data about the node of each rank. The module `distances` finds the distances between nodes from these data.

    every rank: facts_here() ──► gathered from all ranks ──► surroundings_of(...) ──► distances.find_distances

PMIx: when a process starts, the launcher passes the coordinates of the node to the process. Therefore no call below
waits for the PMIx server. Outcrop uses a PMIx library only if MPI has loaded and initialised it. The structures below
have the same layouts as in pmix_common.h, versions 3 to 5.

    MPI ──loads──► libpmix ◄──at the start── server of the launcher (Open MPI's prte, Slurm, PALS)
                      ▲
                      └── ask_pmix(): PMIx_Get of values that this process already has

Ping-pong: the first ranks of all nodes measure the time of a small message. The measurement has several rounds. In each
round of the measurement, several pairs of nodes measure at the same time. Each pair of nodes measures in exactly one
round:

    round 0    0 ◄─► 3    1 ◄─► 2
    round 1    0 ◄─► 1    2 ◄─► 3
    round 2    0 ◄─► 2    1 ◄─► 3
"""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from outcrop.aggregate.distances import NO_PMIX, Facts, PmixAnswer, Surroundings
from outcrop.aggregate.placement import Floats

CRAY_NAMES = ("etc/cray/xname", "proc/cray_xt/cname")
VARIABLES = ("SLURM_JOB_ID", "SLURM_TOPOLOGY_ADDR", "SLURM_TOPOLOGY_ADDR_PATTERN")
COMMAND_SECONDS = 10

MAPS = Path("/proc/self/maps")
STRING, DATA_ARRAY, COORDINATES, GEOMETRY = 3, 39, 47, 53
LOGICAL_VIEW = 1
HOST, FABRIC_COORDINATES, OPTIONAL = b"pmix.hname", b"pmix.fab.coord", b"pmix.optional"
MAX_DIMS = 16
"""The maximum number of dimensions of a fabric. A view with more dimensions is skipped."""

MESSAGES = 10
"""The number of round trips of a message. Only the fastest round trip is used."""


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


def ask_pmix(library: Path | None = None) -> PmixAnswer:
    """Return the answer of the PMIx library at the path `library`. If no path is given, the function uses the library
    that MPI has loaded."""
    path = library or loaded_pmix()
    if path is None:
        return NO_PMIX
    try:
        pmix = ctypes.CDLL(str(path))
        is_ready = bool(pmix.PMIx_Initialized())
    except (OSError, AttributeError) as error:
        return PmixAnswer(refusal=f"{path} cannot be used: {error}")
    own = _Process()
    # PMIx counts the calls of PMIx_Init. PMIx ends only after the same number of calls of PMIx_Finalize. Therefore MPI
    # can still use PMIx after the call of PMIx_Finalize below.
    if not is_ready or pmix.PMIx_Init(ctypes.byref(own), None, ctypes.c_size_t(0)) != 0:
        return PmixAnswer(refusal="MPI does not use PMIx")
    try:
        host = _host(_get(pmix, own, HOST))
        coordinates = _coordinates(_get(pmix, own, FABRIC_COORDINATES))
    finally:
        pmix.PMIx_Finalize(None, ctypes.c_size_t(0))
    return PmixAnswer(host, coordinates, "" if coordinates else "the PMIx server gives no coordinates")


def loaded_pmix(maps: Path = MAPS) -> Path | None:
    """Return the path of the PMIx library that this process has loaded. Return None if it has loaded none."""
    try:
        lines = maps.read_text().splitlines()
    except OSError:
        return None
    found = (Path(line.split(maxsplit=5)[5]) for line in lines if "/libpmix.so" in line)
    return next(found, None)


def _get(pmix: ctypes.CDLL, own: _Process, key: bytes) -> _Value | None:
    """Return the value of a key. Return None if this process does not have the value yet. PMIx allocates a small amount
    of memory for the value. This memory is not freed.
    """
    only_local = _Info(OPTIONAL, 0, _Value(1))
    only_local.value.data[0] = 1
    value, info = ctypes.POINTER(_Value)(), ctypes.byref(only_local)
    outcome = pmix.PMIx_Get(ctypes.byref(own), key, info, ctypes.c_size_t(1), ctypes.byref(value))
    return value.contents if outcome == 0 and value else None


def _host(value: _Value | None) -> str:
    if value is None or value.type != STRING or not value.data[0]:
        return ""
    return ctypes.string_at(value.data[0]).decode(errors="replace")


def _coordinates(value: _Value | None) -> tuple[int, ...]:
    """Return the coordinates of the first logical view. If no view is logical, return the coordinates of the first
    view."""
    found = list(_views(value))
    logical = [numbers for view, numbers in found if view == LOGICAL_VIEW]
    return (logical or [numbers for _, numbers in found] or [()])[0]


def _views(value: _Value | None) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the kind and the coordinates for each view of each device. Values of unknown types are skipped."""
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
        if one.values and 0 < one.dims <= MAX_DIMS:
            yield one.view, tuple(one.values[i] for i in range(one.dims))


def facts_here(environment: Mapping[str, str] = os.environ, root: Path = Path("/")) -> Facts:
    known = {name: environment[name] for name in VARIABLES if name in environment}
    return Facts(socket.gethostname(), known, _cray_name(root), ask_pmix())


def surroundings_of(
    facts: Sequence[Facts], node_of_rank: Sequence[int], ping_pong: Callable[[], Floats] | None = None
) -> Surroundings:
    """Return the surroundings of ranks. `facts` has the data of all ranks, in the order of ranks. The data of a node
    are the data of its first rank.
    """
    first: dict[int, Facts] = {}
    for node, one in zip(node_of_rank, facts, strict=True):
        first.setdefault(node, one)
    return Surroundings([first[node] for node in range(len(first))], run_command, ping_pong)


def run_command(command: Sequence[str]) -> str | None:
    """Return the output of a command. Return None if the command is missing, fails, or takes too long."""
    if not shutil.which(command[0]):
        return None
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _cray_name(root: Path) -> str:
    for name in CRAY_NAMES:
        with suppress(OSError):
            return (root / name).read_text().strip()
    return ""


def measure_ping_pong(communicator: Any, leaders: Sequence[int]) -> Floats:
    """Return a table with a row and a column for each node. A value in the table is the time, in seconds, of a message
    between the node of the row and the node of the column. `leaders` are the first ranks of the nodes, ascending. All
    ranks of the mpi4py communicator must call this function. The messages of the measurement use a duplicate of the
    communicator.
    """
    over = communicator.Dup()
    try:
        rank, row = over.Get_rank(), np.zeros(len(leaders))
        if rank in leaders:
            own = leaders.index(rank)
            for partner in partners(own, len(leaders)):
                if partner is None:
                    continue
                seconds = _there_and_back(over, leaders[partner], is_first=own < partner) / 2
                row[partner] = seconds if own < partner else 0
        rows = over.allgather(row)
    finally:
        over.Free()
    table = np.stack([rows[leader] for leader in leaders])
    both_ways: Floats = table + table.T
    return both_ways


def partners(own: int, nodes: int) -> Iterator[int | None]:
    """Yield the partner of the node `own` in each round, or None if this node has no partner in the round. The basic
    rule is: two nodes are partners if the sum of their numbers is the number of the round, modulo the number of rounds.
    With this rule alone, one node in each round would be its own partner. If the number of nodes is even, the rule does
    not apply to the last node. The last node is the partner of the node that would be its own partner. If the number of
    nodes is odd, the node that would be its own partner has no partner.
    """
    rounds = nodes - 1 + nodes % 2
    for number in range(rounds):
        if own == rounds:
            partner = number * (rounds + 1) // 2 % rounds
        else:
            partner = (number - own) % rounds
            partner = rounds if partner == own else partner
        yield partner if partner < nodes else None


def _there_and_back(over: Any, other: int, *, is_first: bool) -> float:
    message, fastest = bytearray(8), float("inf")
    for _ in range(MESSAGES):
        begin = time.perf_counter()
        if is_first:
            over.Send(message, other)
            over.Recv(message, other)
        else:
            over.Recv(message, other)
            over.Send(message, other)
        fastest = min(fastest, time.perf_counter() - begin)
    return fastest
