"""Check `oc.Trajectory`: states are returned in reverse order, commits survive kills, and wrong input is refused.

The tests compare a trajectory with a list of NumPy arrays. test_trajectory_room.py checks full disks, little memory and
interrupted creations. The tests in tests/core check trajectories with faulty transfers.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import outcrop as oc
from outcrop import _core
from outcrop.cli.main import call
from outcrop.errors import BudgetError, CorruptionError, InputError, StorageError
from trajectory_states import BLOCKS, SHAPES, made, same, state_of

KILLS = int(os.environ.get("OUTCROP_KILLS", "12"))
SPAWN = get_context("forkserver")
SPAWN.set_forkserver_preload(["numpy", "outcrop.arrays.trajectory", "test_trajectory"])

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(1, 6)),
        st.tuples(st.just("pop"), st.integers(1, 6)),
        st.tuples(st.sampled_from(["commit", "reopen", "read"]), st.just(1)),
    ),
    max_size=25,
)


@given(STEPS, st.integers(0, 8), st.integers(0, 8), st.integers(2, 4))
@settings(deadline=None)
def test_any_sequence_of_calls_does_what_lists_do(
    steps: list[tuple[str, int]], in_memory: int, in_first: int, buffers: int
) -> None:
    """Checks random sequences of calls, with states on all tiers. A trajectory must have the same states as a list, and
    refuse the same calls. The committed states must be found again after the trajectory is closed."""
    most = 8
    with TemporaryDirectory() as folder:
        where = Path(folder)
        kept = sum(-(-4 * int(np.prod(shape)) // 4096) * 4096 for shape in SHAPES.values())
        history = oc.Trajectory(
            where / "a", SHAPES, "float32", states=most, memory=in_memory * kept or None, limit=in_first * BLOCKS + 1,
            overflow={where / "b": most * BLOCKS}, buffers=buffers,
        )  # fmt: skip
        assert history.memory_states == in_memory and history.can_commit
        present: list[int] = []
        committed: list[int] = []
        number = 0
        for kind, times in steps:
            for _ in range(times):
                if kind == "push" and len(present) == most:
                    with pytest.raises(InputError, match="is full"):
                        history.push(state_of(number))
                elif kind == "push" and len(present) < len(committed):
                    with pytest.raises(InputError, match="commit before the push"):
                        history.push(state_of(number))
                elif kind == "push":
                    number += 1
                    assert history.push(state_of(number)) == len(present)
                    present.append(number)
                elif kind == "pop" and not present:
                    with pytest.raises(InputError, match="no states left"):
                        history.pop()
                elif kind == "pop":
                    step, state = history.pop()
                    assert step == len(present) - 1 and same(state, present.pop())
                elif kind == "commit":
                    history.commit()
                    committed = list(present)
                elif kind == "read":
                    assert all(same(history[k], one) for k, one in enumerate(present))
                else:
                    history.close()
                    history = oc.Trajectory.open(where / "a", buffers=buffers)
                    present = list(committed)
                assert (len(history), history.committed) == (len(present), len(committed))
        history.remove()
        assert os.listdir(folder) == []


def test_popped_arrays_and_pushed_arrays_belong_to_the_caller(tmp_path: Path) -> None:
    """Checks that a pushed array may be changed after the push. A popped array stays the same until the next pop, and
    after `close`. `into` gets a copy."""
    history = oc.Trajectory(tmp_path / "a", SHAPES, "float32", states=6, memory=2 * BLOCKS)
    mine = state_of(0)
    for number in range(6):
        for name, values in state_of(number).items():
            mine[name][...] = values
        history.push(mine)
    for values in mine.values():
        values[...] = -1
    into = {name: np.zeros((2, *shape), "float32")[1] for name, shape in SHAPES.items()}
    fixed = {name: one.copy() for name, one in into.items()}
    fixed["p"].flags.writeable = False
    with pytest.raises(InputError, match=r"field p: pop writes into an array of NumPy; .* into a read-only array"):
        history.pop(fixed)
    with oc.Trajectory(tmp_path / "other", {"u": 2}, states=1) as other:
        other.push({"u": np.ones(2)})
        with pytest.raises(InputError, match=r"field u: pop writes .*; it cannot write into \[0\.0, 0\.0\]"):
            other.pop({"u": [0.0, 0.0]})  # type: ignore[dict-item]
        assert len(other) == 1
    step, found = history.pop(into)
    assert step == 5 and all(found[name] is into[name] for name in into)
    for top in range(4, -1, -1):
        _, state = history.pop()
        for number in range(top, 6):
            history.push(state_of(10 + number))
        assert same(state, top) and same(found, 5)
        for number in range(5, top - 1, -1):
            assert same(history.pop()[1], 10 + number)
    history.push(state_of(1))
    _, last = history.pop()
    history.close()
    assert same(last, 1)
    with pytest.raises(InputError, match="is closed"):
        history.pop()


def test_xarray_shows_the_committed_states(tmp_path: Path) -> None:
    """Checks that readers of Zarr find the committed states in all directories, for fields with any number of axes."""
    zarr, xarray = pytest.importorskip("zarr"), pytest.importorskip("xarray")
    shapes = {"a": (), "b": (5,), "c": (3, 4), "d": (3, 4, 5), "e": (2, 3, 4, 5)}
    for dtype in ("float32", "float64", "complex64", "complex128", "int32", "int64"):
        path = tmp_path / dtype
        overflow = [tmp_path / f"{dtype}-more"]
        with oc.Trajectory(path, shapes, dtype, states=5, limit=2 * 5 * 4096, memory=1, overflow=overflow) as history:
            for number in range(5):
                history.push(state_of(number, shapes, dtype))
                history.commit()
            group = zarr.open_group(path, mode="r")
            for number in range(5):
                for name, values in state_of(number, shapes, dtype).items():
                    assert np.array_equal(group[name][number], values) and group[name].dtype == dtype
            assert dict(xarray.open_zarr(path).sizes)["time"] == 5
            history.pop()
            history.commit()
            assert xarray.open_zarr(path)["e"].shape == (4, 2, 3, 4, 5)
    with oc.Trajectory(tmp_path / "same", {"u": (2, 3, 4), "v": (2, 3, 4)}, states=2) as history:
        history.push({"u": np.ones((2, 3, 4)), "v": np.zeros((2, 3, 4))})
        history.commit()
        shown = xarray.open_zarr(tmp_path / "same")
        assert shown["u"].dims == ("time", "z", "y", "x") and float(shown["u"].sum()) == 24


def push_and_pop_for_ever(folder: Path, seed: int, told: Connection) -> None:
    """Push, pop and commit in an endless loop. Send the list of states to the parent before and after each commit."""
    chance = random.Random(seed)
    history = oc.Trajectory.open(folder / "a")
    present = [int(history[k]["p"][0]) for k in range(len(history))]
    number = chance.randrange(1 << 16)
    while True:
        goal = chance.randrange(20)
        while len(history) > goal:
            assert history.pop()[1]["p"][0] == present.pop()
        if len(history) < history.committed:
            told.send((False, list(present)))
            history.commit()
            told.send((True, list(present)))
        for _ in range(chance.randrange(6)):
            if len(history) < 20:
                number += 1
                history.push({"u": np.full((2, 70, 70), number, "int64"), "p": np.full((9,), number, "int64")})
                present.append(number)
        told.send((False, list(present)))
        history.commit()
        told.send((True, list(present)))


def test_killed_at_any_moment_the_last_commit_is_whole_and_in_order(tmp_path: Path) -> None:
    """Checks the states after each kill. The trajectory must have the states of the last commit that the child has
    reported, or of the next commit."""
    path, chance = tmp_path / "a", random.Random(int(os.environ.get("OUTCROP_SEED", "7")))
    shapes = {"u": (2, 70, 70), "p": (9,)}
    stored = 81920 + 4096
    oc.Trajectory(
        path, shapes, "int64", states=20, memory=5 * stored, limit=8 * stored, overflow=[tmp_path / "b"]
    ).close()
    known: list[list[int]] = [[]]
    for kill in range(KILLS):
        reading, told = SPAWN.Pipe(duplex=False)
        child = SPAWN.Process(target=push_and_pop_for_ever, args=(tmp_path, kill, told))
        child.start()
        told.close()
        messages = []
        if reading.poll(30):
            messages.append(reading.recv())
        time.sleep(chance.random() * 0.2)
        child.kill()
        child.join()
        try:
            while True:
                messages.append(reading.recv())
        except (EOFError, OSError):
            pass
        done = [number for number, (is_done, _) in enumerate(messages) if is_done]
        if done:
            known = [messages[done[-1]][1]]
            messages = messages[done[-1] + 1 :]
        known += [present for _, present in messages]
        with oc.Trajectory.open(path) as history:
            found = [history[k] for k in range(len(history))]
            assert all((one["u"] == one["p"][0]).all() for one in found)
            assert [int(one["p"][0]) for one in found] in known
            known = [[int(one["p"][0]) for one in found]]
            for number in reversed(known[0]):
                assert history.pop()[1]["p"][0] == number


@pytest.fixture
def committed(tmp_path: Path) -> Path:
    return made(tmp_path)


def test_damage_is_found_and_names_its_place(committed: Path) -> None:
    """Checks that damage is detected in the newest state: a changed byte, a short file, or a missing file."""
    file = committed.parent / "b" / "u" / "c.2.0.0.0"
    whole = file.read_bytes()
    file.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    with oc.Trajectory.open(committed) as history:
        for _ in range(2):
            with pytest.raises(CorruptionError, match=r"c\.2\.0\.0\.0 is damaged: .*field u, state 2"):
                history.pop()
        assert len(history) == 3 and same(history[0], 0)
    file.write_bytes(whole[:100])
    with oc.Trajectory.open(committed) as history, pytest.raises(StorageError, match="the file ends early"):
        history.pop()
    file.unlink()
    with oc.Trajectory.open(committed) as history, pytest.raises(StorageError, match="No such file"):
        history.pop()


def test_a_directory_from_a_stranger_leads_nowhere_else(committed: Path, tmp_path: Path) -> None:
    """Checks three directories that Outcrop must refuse: a directory with a link, with a further directory of another
    trajectory, or with a damaged manifest."""
    secret = tmp_path / "secret"
    secret.write_bytes((committed / "u" / "c.1.0.0.0").read_bytes())
    (committed / "u" / "c.1.0.0.0").unlink()
    (committed / "u" / "c.1.0.0.0").symlink_to(secret)
    with oc.Trajectory.open(committed) as history, pytest.raises(StorageError, match="links"):
        _ = history[1]
    member = tmp_path / "b" / "member.txt"
    text = member.read_text()
    member.write_text(text.replace("place 1", "place 2"))
    with pytest.raises(StorageError, match="it does not hold states of"):
        oc.Trajectory.open(committed)
    member.write_text(text)
    shutil.move(committed / "u", tmp_path / "elsewhere")
    (committed / "u").symlink_to(tmp_path / "elsewhere")
    before = (tmp_path / "elsewhere" / "zarr.json").read_bytes()
    with pytest.raises(StorageError, match="u"):
        oc.Trajectory.open(committed)
    assert (tmp_path / "elsewhere" / "zarr.json").read_bytes() == before
    manifest = committed / "trajectory.txt"
    manifest.write_text(manifest.read_text().replace("dtype float32", "dtype float64"))
    with pytest.raises(CorruptionError, match="checksum mismatch"):
        oc.Trajectory.open(committed)


def test_only_one_process_uses_a_trajectory(committed: Path) -> None:
    """Checks that a trajectory cannot be opened again before the object that has opened it is closed."""
    with oc.Trajectory.open(committed), pytest.raises(InputError, match="in use"):
        oc.Trajectory.open(committed)
    oc.Trajectory.open(committed).close()


def test_no_room_is_refused_with_the_number_that_fits(tmp_path: Path) -> None:
    """Checks that the error gives the number of states for which all tiers together have room. No file is made."""
    for tiers, fit in (({"limit": 2 * BLOCKS}, 2), ({"limit": 2 * BLOCKS, "memory": BLOCKS}, 3)):
        with pytest.raises(InputError, match=f"no room for 9 states .*{fit + 3} fit.*2 in .*3 in .*/b"):
            oc.Trajectory(tmp_path / "a", SHAPES, states=9, overflow={tmp_path / "b": 3 * BLOCKS}, **tiers)
    with pytest.raises(InputError, match=r"no room for 1000 states .*: 0 fit"):
        oc.Trajectory(tmp_path / "a", SHAPES, states=1000, limit=5)
    with pytest.raises(BudgetError, match="of memory are free"):
        oc.Trajectory(tmp_path / "a", {"u": (1 << 40,)}, states=3)
    assert os.listdir(tmp_path) == []


def test_states_in_memory_without_files_cannot_be_committed(tmp_path: Path) -> None:
    """Checks a trajectory whose files have no room for all states. `can_commit` is false, `commit` is refused, and
    states can still be popped."""
    with oc.Trajectory(tmp_path / "a", SHAPES, "float32", states=4, memory=2 * BLOCKS, limit=3 * BLOCKS) as history:
        assert not history.can_commit
        for number in range(4):
            history.push(state_of(number))
        with pytest.raises(InputError, match="have no room for all 4 states"):
            history.commit()
        for number in range(3, -1, -1):
            assert same(history.pop()[1], number)


BAD: list[tuple[Callable[[Path], object], str]] = [
    (lambda p: oc.Trajectory(p / "a", {}, states=3), "1 to 1024 fields"),
    (lambda p: oc.Trajectory(p / "a", [3], states=3), "fields must map names"),  # type: ignore[arg-type]
    (lambda p: oc.Trajectory(p / "a", {"a/b": 3}, states=3), "needs a name"),
    (lambda p: oc.Trajectory(p / "a", {3: 3}, states=3), "must be text"),  # type: ignore[dict-item]
    (lambda p: oc.Trajectory(p / "a", {"u": (0, 3)}, states=3), "sizes of at least 1"),
    (lambda p: oc.Trajectory(p / "a", {"u": (1.5,)}, states=3), "is not a shape"),  # type: ignore[dict-item]
    (lambda p: oc.Trajectory(p / "a", {"u": (1,) * 9}, states=3), "9 axes"),
    (lambda p: oc.Trajectory(p / "a", {"u": 3}, "float16", states=3), "float16 is not supported"),
    (lambda p: oc.Trajectory(p / "a", {"u": 3}, "text", states=3), "not known"),
    (lambda p: oc.Trajectory(p / "a", {"u": 3}, states=0), "states must be between"),
    (lambda p: oc.Trajectory(p / "a", {"u": 3}, states="x"), "states must be a number"),  # type: ignore[arg-type]
    (lambda p: oc.Trajectory(p / "a", {"u": 3}, states=3, buffers=1), "buffers must be between 2"),
    (lambda p: oc.Trajectory(p / "a", {"u": 3}, states=3, memory="many"), "not understood"),
    (lambda p: oc.Trajectory(p / "a", {"u": 3}, states=3, limit="many"), "limit: size 'many'"),
    (lambda p: oc.Trajectory(p / "a", {"u": 3}, states=3, overflow="b"), "overflow must be a list"),
    (lambda p: oc.Trajectory(p / "a", {"u": 3}, states=3, overflow=[p / "a"]), "is the same as"),
    (lambda p: oc.Trajectory(p / "a", {"u": 3}, states=3, overflow=[p / "a" / "b"]), "inside of"),
    (lambda p: oc.Trajectory(p / "a", {"u": 3}, states=3, io="memory"), "cannot be used here"),
    (lambda p: oc.Trajectory(p / "a", {"u": 3}, states=3, io="floppy"), "unknown I/O backend"),
    (lambda p: oc.Trajectory("", {"u": 3}, states=3), "is not a path"),
    (lambda p: oc.Trajectory("/proc/self/status/x", {"u": 3}, states=3), "cannot be"),
    (lambda p: oc.Trajectory.open(p / "a"), "holds no trajectory"),
    (lambda p: oc.Trajectory.open(p), "holds no trajectory"),
]


@pytest.mark.parametrize(("call", "text"), BAD)
def test_bad_input_is_refused_in_one_line_and_makes_nothing(
    call: Callable[[Path], object], text: str, tmp_path: Path
) -> None:
    """Checks the error message for each wrong argument. No file may remain."""
    with pytest.raises(InputError, match=text) as raised:
        call(tmp_path)
    assert "\n" not in str(raised.value) and os.listdir(tmp_path) == []


def test_bad_states_are_refused(tmp_path: Path) -> None:
    """Checks that states with missing fields, wrong shapes or wrong dtypes are refused. Numbers of states that do not
    exist must also be refused."""
    with oc.Trajectory(tmp_path / "a", SHAPES, "float32", states=3) as history:
        good = state_of(1)
        for bad in (None, {"u": good["u"]}, {**good, "w": good["p"]}, {**good, "p": good["p"][:3]},
                    {**good, "p": good["p"].astype("float64")}):  # fmt: skip
            with pytest.raises(InputError):
                history.push(bad)  # type: ignore[arg-type]
        history.push({**good, "u": np.asfortranarray(good["u"])})
        assert same(history[-1], 1)
        for number in (1, -2):
            with pytest.raises(IndexError):
                _ = history[number]
        assert [same(one, 1) for one in history] == [True]
        with pytest.raises(InputError):
            oc.Trajectory(tmp_path / "a", SHAPES, states=3)


@pytest.mark.parametrize("io", [name for name, reason in _core.probe().items() if not reason][:3])
def test_every_interface_keeps_the_states(io: str, tmp_path: Path) -> None:
    """Checks that each interface to storage returns large states correctly. Transfers of large states bypass the page
    cache."""
    shapes = {"u": (5, 300, 301), "p": (999, 7)}
    with oc.Trajectory(tmp_path / "a", shapes, "float32", states=6, io=io, buffers=2) as history:
        for number in range(6):
            history.push(state_of(number, shapes))
        for number in range(5, -1, -1):
            assert same(history.pop()[1], number, shapes)


def test_the_benchmark_measures_each_tier(tmp_path: Path) -> None:
    """Checks that the small benchmark has positive rates for storage and memory, and leaves no files."""
    target = tmp_path / "figures.json"
    assert call(["bench", "trajectory", "--small", "-d", str(tmp_path / "new"), "--json", str(target)]) == 0
    tiers = json.loads(target.read_text())["tiers"]
    assert set(tiers) == {"storage", "memory"}
    assert all(rate > 0 for tier in tiers.values() for rate in tier["bytes_per_second"].values())
    assert os.listdir(tmp_path) == ["figures.json"]
