"""Check that unusual values in Python give an InputError of one line, and that no file is made.

Outcrop must read only regular files, detect damaged files, and check sizes before loops and allocations.
"""

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy

import outcrop as oc
from outcrop.errors import InputError
from outcrop.run.inputs.formats import FORMATS, open_file
from saves import (
    VOLUME,
    collect,
    save_fortran,
    save_fortran_gz,
    save_netcdf,
    save_npy,
    save_npz,
    save_segy,
    save_xz,
    save_zarr,
)

# HUGE is larger than any double. LONG has more digits than Python prints. NAME is longer than file systems allow.
HUGE = 10**400
LONG = 10**5000
NAME = "x" * 300


class NoText:
    """An object whose conversion to text raises an exception."""

    def __repr__(self) -> str:
        raise RuntimeError


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder, so that `refused` can see new files."""
    monkeypatch.chdir(tmp_path)


def refused(call: Callable[[], object]) -> str:
    """Run `call`, which must raise an error of one line. Return this line. The call must not create any file."""
    before = sorted(os.listdir())
    with pytest.raises(InputError) as raised:
        call()
    assert sorted(os.listdir()) == before
    message = str(raised.value)
    assert message
    assert len(message.splitlines()) == 1
    assert len(message) < 2500
    return message


def simulation(**given: Any) -> oc.Simulation:
    """Return a small simulation with some arguments replaced."""
    usual: dict[str, Any] = {"stencil": "heat7", "shape": (6, 8, 10), "directory": "run.oc", "memory": "8MiB"}
    return oc.Simulation(**{"threads": 1, **usual, **given})


NO_FLAGS = ("no", "", 0, 1, None, [], 1.0)
NO_COUNTS = (0, -1, 2**63, HUGE, LONG, 1.5, "2", None, True, float("nan"), [1], NoText())
NO_NUMBERS = ("1", "nan", float("nan"), float("inf"), -float("inf"), HUGE, LONG, 1j, True, [1.0], NoText())
NO_LENGTHS = (0, -1.0, float("nan"), float("inf"), HUGE, True, "m", "123", (1, 2), (1, 1, 1, 1), (1, -1, 1))
NO_NAMES = (NAME, "", "a/b", "a\0b", "..", 5, None, b"line", [NAME])
NO_PATHS = ("", "a\0b", "\udcff", 5, b"a", [], Path("a\0b"))

WRONG: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("in_place", "force", "raw_device", "unstable", "check_finite"), NO_FLAGS),
    "threads": (*(one for one in NO_COUNTS if one is not None), 10**6),
    "steps": (*(one for one in NO_COUNTS if one is not None), 10**9),
    "init": ("no", "v=zeros", {"v": 1.0}, {None: 1.0}, ["zeros", "zeros"], np.zeros(3), 1j, float("nan"), NoText()),
    "shape": (*NO_COUNTS, (2**62, 2**62, 2), (2**32, 2**32, 2**32), (LONG, 1, 1), (2**40, 1, 1), range(10**12), "abc"),
    "memory": (0, -1, "0%", "-5%", "101%", "1e9%", "0", "9" * 400 + "GiB", "8EiB", True, 1.5, b"1", HUGE, LONG),
    "spacing": tuple(one for one in NO_LENGTHS if one is not None),
    "origin": (float("nan"), float("inf"), HUGE, "zero", (0, 0)),
    "units": (5, b"m", ["m"]),
    "dt": (*NO_NUMBERS,),
    "params": (*({"c0": one} for one in NO_NUMBERS), {None: 1.0}, {LONG: 1.0}, [1], "c0=1", np.zeros(3)),
    "sizes": (*({"bt": one} for one in NO_COUNTS), {"bt": 10**9}, {LONG: 1}, [1], np.zeros(3)),
    "signals": ({"x": [1.0]}, [1], "x", np.zeros(3), len),
    "directory": (*(one for one in NO_PATHS if one != 5), (), ["a", ""], [5]),
    "records": NO_PATHS,
    "dtype": (NoText(), "f4,f4", "(", NAME, 5, "float16", object),
    "stencil": ("heat" + "9" * 5000 + "x", NAME, 5, None, NoText()),
    **dict.fromkeys(("scheme", "io", "bind"), (5, None, [], {}, NAME, np.zeros(2), NoText())),
    "norms": (5, "u", "", *(oc.Norms(one) for one in NO_COUNTS), oc.Norms(1, initial=1), oc.Norms(1, [np.zeros(2)])),
    "snapshots": (
        5,
        *(oc.Snapshots(one) for one in (*NO_COUNTS, 10**30)),
        *(oc.Snapshots(1, name=one) for one in NO_NAMES if one),
        *(oc.Snapshots(1, fields=one) for one in (5, "v", ("u", "u"), range(10**12), [None], [np.zeros(3)])),
        *(oc.Snapshots(1, box=one) for one in (5, "zyx", [slice(None)] * 2, [slice(0, HUGE)] * 3, [slice("a")] * 3)),
        oc.Snapshots(1, initial="no"),
        oc.Snapshots(1, time_units=5),
    ),
    "receivers": (
        5,
        *(oc.Receivers(one, "u", [2, 3, 4]) for one in NO_NAMES),
        *(oc.Receivers("line", one, [2, 3, 4]) for one in (NAME, 5, None, np.zeros(3))),
        *(oc.Receivers("line", "u", one) for one in (5, "abc", [[1, 2]], [HUGE] * 3, [NoText()], [[1], [2, 3]])),
        oc.Receivers("line", "u", [2, 3, 4], before="no"),
    ),
    "sources": (
        5,
        "",
        *(oc.Source(one, [2, 3, 4], [1.0]) for one in (NAME, 5, None, np.zeros(3))),
        *(oc.Source("u", [2, 3, 4], one) for one in ("a", [HUGE], [float("nan")], [[1, 2]], NoText(), [1j], None)),
        *(oc.Source("u", [2, 3, 4], [1.0], one) for one in ("a", [1], sympy.nan, sympy.oo, sympy.I, True, NoText())),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_simulation_refuses_what_cannot_be(name: str) -> None:
    """Checks that wrong arguments are refused before anything is made. Very large arguments must be refused as quickly
    as other arguments."""
    for value in WRONG[name]:
        refused(lambda value=value: simulation(**{name: value}))  # type: ignore[misc]


def test_runs_and_values_are_refused_alike() -> None:
    """Checks that methods refuse endless steps, values that are not numbers, and fields without names."""
    sim = simulation()
    for steps in (*NO_COUNTS, 2**31, 10**8):
        refused(lambda steps=steps: sim.run(steps, "none"))  # type: ignore[misc]
        refused(lambda steps=steps: sim.plan(steps))  # type: ignore[misc]
    for values in (
        float("nan"),
        np.float32("inf"),
        HUGE,
        LONG,
        1j,
        "1e400",
        "random:" + "9" * 5000,
        "a\0b",
        "",
        [NoText()],
    ):
        refused(lambda values=values: sim.assign({"u": values}))  # type: ignore[misc]
    for no_mapping in (5, None, [1], "u"):
        refused(lambda given=no_mapping: sim.assign(given))  # type: ignore[misc]
    for path in NO_PATHS:
        refused(lambda path=path: oc.open(path))  # type: ignore[misc]


RESAMPLED: dict[str, tuple[Any, ...]] = {
    "shape": (10**20, (10**20, 2, 2), (2**31, 1, 1), (LONG,), "abc", None, (1, 2, 3, 4), range(10**12), (True, 2, 2)),
    "axes": (5, None, np.zeros(0), "xx", NAME),
    "spacing": NO_LENGTHS,
    "new_spacing": NO_LENGTHS,
    "origin": ("a", None, HUGE, float("nan")),
    "outside": (5, None, np.zeros(2), NAME),
    "cache_bytes": (-1, "8", None, 1.5, HUGE),
    "values": (5, None, "a\0b", NAME, len, NoText(), np.zeros([2] * 4), np.zeros(0), np.zeros(3, "c8"), [[1], [2, 3]]),
}  # fmt: skip


@pytest.mark.parametrize("name", RESAMPLED)
def test_resampling_refuses_what_cannot_be(name: str) -> None:
    """Checks that a size that is too large is refused before the places of all samples are computed."""
    usual: dict[str, Any] = {"values": np.zeros((3, 4, 5)), "shape": (6, 8, 10)}
    if name in ("spacing", "new_spacing", "origin"):
        usual |= {"spacing": 1.0, "new_spacing": 0.25}
    for value in RESAMPLED[name]:
        refused(lambda value=value: oc.resample(**{**usual, name: value}))  # type: ignore[misc]
    for count in (*NO_COUNTS, 2**31):
        refused(lambda count=count: oc.extrude(np.zeros((3, 4)), "y", count))  # type: ignore[misc]


ARRAYS: dict[str, tuple[Any, ...]] = {
    "shape": ((2**32, 2**32), (2**62, 2), HUGE, LONG, (LONG, 1), -1, True, 1.5, "12", None, [1] * 40, range(10**12)),
    "dtype": (object, "M8[s]", "f4,f4", "(", NAME, 5, NoText()),
    "path": NO_PATHS,
    "tier": (5, None, "", np.zeros(2), NAME),
    "access": (5, None, "no", np.zeros(2)),
    "working": (5, None, "no", np.zeros(2)),
    "persist": (0, -1, HUGE, LONG, True, "no", None, np.zeros(2)),
    "bytes_read_per_step": (-1, HUGE, float("nan"), float("inf"), True, "1", 1j),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_on_tiers_refuse_what_cannot_be(name: str) -> None:
    """Checks that each size has a limit, and that the product of all sizes has a limit. So the product cannot
    overflow."""
    usual: dict[str, Any] = {"shape": (4, 8), "tier": "dram"}
    for value in ARRAYS[name]:
        refused(lambda value=value: oc.array(**{**usual, name: value}))  # type: ignore[misc]


def test_sweeps_refuse_arrays_that_share_memory() -> None:
    """Checks that two arrays that share memory are refused. Otherwise, a step would read values that the same step has
    overwritten."""
    stencil, array = oc.stencils.heat(ndim=2), oc.array((20, 32), "float64", tier="dram")
    lower, upper = array.values[:18], array.values[2:]
    for pair in ((array, array), (array, array.values), (lower, upper)):
        assert "share memory" in refused(lambda pair=pair: oc.Sweep(stencil, {"u": pair}))  # type: ignore[misc]
    other = oc.array((20, 32), "float64", tier="dram")
    for arrays in (5, None, {"u": 5}, {"u": ([1.0], [1.0])}, {"u": (array, other), "v": array}):
        refused(lambda arrays=arrays: oc.Sweep(stencil, arrays))  # type: ignore[misc]
    for threads in (0, -1, HUGE, "2", True, 10**6):
        refused(lambda threads=threads: oc.Sweep(stencil, {"u": (array, other)}, threads=threads))  # type: ignore[misc]
    for parameters in (5, {"kappa": HUGE}, {"kappa": float("nan")}, {"none": 1.0}):
        refused(lambda given=parameters: oc.Sweep(stencil, {"u": (array, other)}, parameters=given))  # type: ignore[misc]
    with oc.Sweep(stencil, {"u": (array, other)}) as sweep:
        for field in (5, None, NAME, np.zeros(2)):
            refused(lambda field=field: sweep.newest(field))  # type: ignore[misc]


@pytest.mark.parametrize("suffix", [suffix for kind in FORMATS for suffix in kind.suffixes])
def test_what_is_no_regular_file_is_refused(suffix: str) -> None:
    """Checks that special files are refused immediately. A FIFO may have no writer, and /dev/zero has no end."""
    os.mkfifo(f"fifo{suffix}")
    Path(f"zero{suffix}").symlink_to("/dev/zero")
    Path(f"loop{suffix}").symlink_to(f"loop{suffix}")
    Path(f"empty{suffix}").write_bytes(b"")
    Path(f"text{suffix}").write_text("no array\n" * 100)
    Path(f"bytes{suffix}").write_bytes(random.Random(suffix).randbytes(1000))
    Path(f"folder{suffix}").mkdir()
    for name in ("fifo", "zero", "loop", "empty", "text", "bytes", "folder", NAME, "x" * 5000):
        refused(lambda name=name: open_file(f"{name}{suffix}", 1 << 20))  # type: ignore[misc]
        refused(lambda name=name: oc.resample(f"{name}{suffix}", (2, 2, 2)))  # type: ignore[misc]
    for text in (f"raw:fifo{suffix}:f4:1", f"raw:zero{suffix}:f4:1", "raw:x:f4:" + "9" * 5000, "raw:x:(:1"):
        refused(lambda text=text: open_file(text, 1 << 20))  # type: ignore[misc]


SAVES = (save_npy, save_fortran, save_npz, save_xz, save_fortran_gz, save_netcdf, save_segy, save_zarr)


@pytest.mark.parametrize("save", SAVES, ids=lambda save: save.__name__)
def test_damaged_files_are_values_or_refused(tmp_path: Path, save: Callable[[Path, np.ndarray], str]) -> None:
    """Checks files with flipped bits, replaced bytes and missing ends, mostly in headers. The only allowed exception is
    InputError.
    """
    text, refusals = save(tmp_path, VOLUME), 0
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    for seed in range(40):
        chance = random.Random(seed)
        path = chance.choice(files)
        whole = path.read_bytes()
        damaged = bytearray(whole)
        for _ in range(chance.choice((1, 3, 30))):
            place = chance.randrange(min(len(whole), chance.choice((16, 200, len(whole)))))
            damaged[place] = chance.choice((damaged[place] ^ 1 << chance.randrange(8), 0, 255, chance.randrange(256)))
        path.write_bytes(damaged[: chance.choice((len(damaged), len(damaged), chance.randrange(len(damaged))))])
        try:
            source = open_file(text, 1 << 20)
            if source.shape == VOLUME.shape:  # a run also reads values plane by plane
                collect(source)
        except InputError as error:
            assert len(str(error).splitlines()) == 1
            refusals += 1
        finally:
            path.write_bytes(whole)
    assert refusals
    assert collect(open_file(text, 1 << 20)).shape == VOLUME.shape
