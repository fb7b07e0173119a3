"""Protects runs of several arrays: one commit for all, values that are there or not, and nothing lost on the way."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import xarray
import zarr

import outcrop as oc
from outcrop.errors import InputError, StorageError
from outcrop.language.symbols import Signal
from outcrop.run.disk.arrays import ArrayEntry, arrays_of
from outcrop.run.disk.creation import created_state
from outcrop.run.disk.directory import array_folders
from outcrop.run.disk.manifest import MANIFEST, read_manifest
from outcrop.run.disk.planes import Planes
from outcrop.run.disk.state import State, open_state
from outcrop.run.disk.values import complete
from outcrop.run.disk.verify import find_damage
from outcrop.run.signal_values import decode_signals
from test_state import everything_below, make_manifest

SHAPE = (6, 5, 4)
STATE = ["u", "u.previous", "v"]
COMMIT_EVENTS = 3 + 2 * len(STATE)
"""Flush, rename, flush the folder; then a new link for each array, and its rename."""


def waves() -> oc.Stencil:
    """u needs its previous values, v is updated too, m is only read, w is a signal."""
    u, v, m, w = oc.Field("u"), oc.Field("v"), oc.Field("m"), Signal("w")
    bend = u[0, 0, 1] - 2 * u[0, 0, 0] + u[0, 0, -1]
    here = u[0, 0, 0]
    return oc.Stencil("waves", [{u: 2 * here - u.previous[0, 0, 0] + m[0, 0, 0] * bend}, {v: v[0, 0, 0] + w * here}])


def values(seed: int, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return np.random.default_rng(seed).random(shape, dtype="float32")


def make_simulation(where: Path | list[Path], **options: object) -> oc.Simulation:
    given = {"memory": "1MiB", "threads": 1, "signals": {"w": np.ones(50)}, **options}
    return oc.Simulation(waves(), SHAPE, directory=where, **given)  # type: ignore[arg-type]


def make_run(where: Path | list[Path], **options: object) -> tuple[oc.Simulation, dict[str, np.ndarray]]:
    """A run with values of all arrays, and these."""
    simulation = make_simulation(where, **options)
    start = {name: values(seed) for seed, name in enumerate([*STATE, "m"])}
    simulation.assign(start)
    return simulation, start


def contents(where: Path) -> dict[str, np.ndarray]:
    """All arrays of a run, opened anew."""
    simulation = oc.open(where)
    return {entry.name: simulation[entry.name][...] for entry in open_state(where).manifest.arrays}


def same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> bool:
    return found.keys() == expected.keys() and all(np.array_equal(found[name], expected[name]) for name in found)


def write_target(state: State, number: float) -> None:
    """What a pass leaves before its commit: all arrays of the state, in the other turn."""
    for files in state.target_files():
        with Planes(files, state.layout, writable=True) as planes:
            planes.fill(lambda z0, z1: np.full((z1 - z0, *state.layout.shape[1:]), number))
            planes.flush()


def state_of(simulation: oc.Simulation) -> State:
    assert simulation._state is not None
    return simulation._state


def take_steps(simulation: oc.Simulation, steps: int) -> None:
    """A pass, as far as the disk is concerned: every array of the state becomes the number of its step."""
    state = state_of(simulation)
    with state.locked():
        state.begin_writing()
        write_target(state, state.manifest.step + steps)
        state.commit(state.manifest.step + steps)


def test_the_order_of_arrays_is_state_with_previous_values_then_what_is_only_read() -> None:
    """The engine counts on it, and the files of older runs lie in it."""
    assert arrays_of(waves()) == tuple(ArrayEntry(name, name == "m") for name in (*STATE, "m"))


@pytest.mark.parametrize("in_place", [False, True])
def test_every_array_is_assigned_read_and_shown_by_zarr_and_xarray(tmp_path: Path, in_place: bool) -> None:
    where = tmp_path / "run.oc"
    simulation, start = make_run(where, in_place=in_place)
    assert {name: simulation[name].shape for name in start} == dict.fromkeys(start, SHAPE)
    assert same(contents(where), start)
    group = zarr.open_group(str(where), mode="r")
    assert sorted(group.array_keys()) == sorted(start)
    assert same({name: group[name][...] for name in start}, start)
    dataset = xarray.open_zarr(str(where), chunks=None)
    assert same({str(name): dataset[name].values for name in dataset}, start)
    assert len(list(where.glob(".*.[01]"))) == (3 if in_place else 6) and not list(where.glob(".m*"))


def test_files_are_listed_array_by_array(tmp_path: Path) -> None:
    """What the engine is given: turns for the state, one copy of what is only read."""
    state = state_of(make_run([tmp_path / "a", tmp_path / "b"])[0])
    shards = state.layout.shards
    assert shards > 1 and [len(files) for files in state.files(0)] == [shards] * 3
    assert state.current_files() == state.files(0) and state.target_files() == state.files(1)
    assert [Path(str(files[0])).parts[-5] for files in state.files(1)] == [f".{name}.1" for name in STATE]
    assert state.static_files() == [state.files_of("m", 0)] == [state.files_of("m", 1)]
    assert state.current_files_of("v") == state.files(0)[2]
    with pytest.raises(InputError, match=r"no field 'q'; there are: u, u.previous, v, m"):
        state.files_of("q", 0)


def test_arrays_may_come_in_any_order_and_cost_no_generation(tmp_path: Path) -> None:
    """First values go where nothing was: no array is copied, no other one changes."""
    where = tmp_path / "run.oc"
    simulation = make_simulation(where)
    start = {name: values(seed) for seed, name in enumerate(["m", "v", "u.previous", "u"])}
    for count, (name, one) in enumerate(start.items(), start=1):
        simulation[name] = one
        state = open_state(where)
        assert len(state.manifest.filled) == count and (state.manifest.generation, state.manifest.current) == (0, 0)
        assert (where / name).exists()
    assert same(contents(where), start)
    assert os.readlink(where / "u.previous") == ".u.previous.0"


def test_arrays_without_values_say_so_and_look_like_zeros_to_zarr(tmp_path: Path) -> None:
    """What was never written has no checksums: nobody may take it for damage, or for values."""
    where = tmp_path / "run.oc"
    simulation = make_simulation(where)
    simulation["u"] = values(1)
    for name in ("v", "m", "u.previous"):
        with pytest.raises(InputError, match=rf"no values of {name} yet; assign sim\['{name}'\]"):
            simulation[name][0]
    assert not zarr.open_group(str(where), mode="r")["v"][...].any()
    assert find_damage(where) == ([], 7, 0)


@pytest.mark.parametrize("in_place", [False, True])
def test_fields_that_nobody_assigned_start_from_zeros_and_at_rest(tmp_path: Path, in_place: bool) -> None:
    """Previous values follow their field's last assignment, not its first one."""
    where = tmp_path / "run.oc"
    simulation = make_simulation(where, in_place=in_place)
    simulation["m"] = 3
    simulation["u"] = 1
    simulation["u"] = values(2)
    complete(state_of(simulation))
    expected = {"u": values(2), "u.previous": values(2), "v": np.zeros(SHAPE), "m": np.full(SHAPE, 3)}
    assert same(contents(where), expected)
    simulation["u"] = 5
    assert np.array_equal(simulation["u.previous"][...], values(2)), "they have values of their own now"


@pytest.mark.parametrize("in_place", [False, True])
def test_a_new_array_after_steps_leaves_the_others_as_they_are(tmp_path: Path, in_place: bool) -> None:
    where = tmp_path / "run.oc"
    simulation, start = make_run(where, in_place=in_place)
    take_steps(simulation, 4)
    before = open_state(where).manifest
    simulation["v"] = values(9)
    after = open_state(where).manifest
    assert (after.step, after.generation) == (4, before.generation + 1)
    fours = np.full(SHAPE, 4.0)
    assert same(contents(where), {"u": fours, "u.previous": fours, "v": values(9), "m": start["m"]})


def test_new_values_that_fail_leave_every_array_as_it_was(tmp_path: Path) -> None:
    where = tmp_path / "run.oc"
    simulation, start = make_run(where)

    def breaks(z0: int, z1: int) -> np.ndarray:
        raise RuntimeError("the user's own")

    for wrong in ({"v": breaks}, {"u": 1, "v": breaks}, {"u": 1, "v": np.ones((2, 2, 2))}, {"u": 1, "q": 1}):
        with pytest.raises((RuntimeError, InputError)):
            simulation.assign(wrong)
        assert same(contents(where), start)


def test_first_values_of_several_arrays_are_all_or_nothing(tmp_path: Path) -> None:
    simulation = make_simulation(tmp_path / "run.oc")
    with pytest.raises(InputError):
        simulation.assign({"u": 1, "m": lambda z0, z1: np.ones((1, 1))})
    assert not list(tmp_path.iterdir())


def test_what_is_only_read_can_change_until_the_first_step(tmp_path: Path) -> None:
    """Later it would mean that the steps before it were done by another equation."""
    where = tmp_path / "run.oc"
    simulation, start = make_run(where)
    simulation["m"] = 7
    assert (simulation["m"][...] == 7).all() and np.array_equal(simulation["u"][...], start["u"])
    take_steps(simulation, 1)
    with pytest.raises(InputError, match=r"m is only read, and 1 steps have used it"):
        simulation["m"] = 8
    assert (oc.open(where)["m"][...] == 7).all()


def test_values_of_what_is_only_read_that_fail_are_missing_and_not_half_there(tmp_path: Path) -> None:
    where = tmp_path / "run.oc"
    simulation, start = make_run([where, tmp_path / "beside"])  # so that planes come in several groups
    with pytest.raises(ZeroDivisionError):
        simulation["m"] = lambda z0, z1: np.ones((z1 - z0, 5, 4)) if z0 < 3 else 1 / 0
    again = oc.open(where)
    with pytest.raises(InputError, match=r"waves reads m, which has no values; .*--init m=FILE"):
        again.run(steps=1, progress="none")
    assert np.array_equal(again["u"][...], start["u"])
    again["m"] = 2
    again.require_fields()


def test_a_run_without_the_fields_it_reads_is_refused_and_makes_nothing(tmp_path: Path) -> None:
    simulation = make_simulation(tmp_path / "run.oc")
    with pytest.raises(InputError, match=r"assign sim\['m'\] = \.\.\., or .* --init m=FILE"):
        simulation.run(steps=1, progress="none")
    assert not list(tmp_path.iterdir())


def test_a_state_that_was_lost_in_place_needs_all_of_it_anew(tmp_path: Path) -> None:
    """One field of a lost state must not make the rest look whole; what is only read was never at risk."""
    where = tmp_path / "run.oc"
    simulation, start = make_run(where, in_place=True)
    state_of(simulation).begin_writing()
    lost = oc.open(where)
    for values_of in ({"u": 1}, {"u": 1, "u.previous": 1}, {"v": 1}):
        with pytest.raises(StorageError, match="state was lost"):
            lost.assign(values_of)
    assert np.array_equal(lost["m"][...], start["m"])
    lost.assign({"u": 1, "v": 2})
    complete(state_of(lost))
    ones = np.ones(SHAPE)
    assert same(contents(where), {"u": ones, "u.previous": ones, "v": 2 * ones, "m": start["m"]})


@pytest.mark.parametrize("event", range(COMMIT_EVENTS + 1))
def test_a_commit_that_is_cut_off_anywhere_is_of_all_arrays_or_of_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, event: int
) -> None:
    """Each flush, rename and link of a commit may be the last thing that happened."""
    where = tmp_path / "run.oc"
    simulation, start = make_run(where)
    state, left = state_of(simulation), iter(range(100))
    write_target(state, 8.0)
    after = {name: np.full(SHAPE, 8.0) for name in STATE} | {"m": start["m"]}

    class CutOff(BaseException):
        pass

    def cutting(action):  # type: ignore[no-untyped-def]
        def call(*arguments: object) -> object:
            if next(left) == event:
                raise CutOff
            return action(*arguments)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", cutting(os.fsync))
        patch.setattr(Path, "replace", cutting(Path.replace))
        patch.setattr(Path, "symlink_to", cutting(Path.symlink_to))
        with pytest.raises(CutOff) if event < COMMIT_EVENTS else nullcontext():
            state.commit(8)
    committed = open_state(where).manifest.step == 8
    assert committed == (event >= 2), "the rename of the manifest is the moment of truth"
    assert same(contents(where), after if committed else start)
    links = {os.readlink(where / name)[-1] for name in STATE}
    assert links == {"1" if committed else "0"}
    group = zarr.open_group(str(where), mode="r")
    assert same({name: group[name][...] for name in start}, after if committed else start)


WORK = """
import sys
from pathlib import Path
import numpy as np
from outcrop.run.disk.planes import Planes
from outcrop.run.disk.state import open_state
state = open_state(Path(sys.argv[1]))
print(flush=True)
with state.locked():
    while True:
        step = state.manifest.step + 1
        for files in state.target_files():
            with Planes(files, state.layout, writable=True) as planes:
                planes.fill(lambda z0, z1: np.full((z1 - z0, 5, 4), step))
                planes.flush()
        state.commit(step)
"""
"""Passes, as far as the disk is concerned, for ever."""


def test_killed_at_any_moment_all_arrays_are_at_the_same_step(tmp_path: Path) -> None:
    """SIGKILL between any two arrays' writes: each commit is of the whole state."""
    where, chance = tmp_path / "run.oc", random.Random(3)
    _, start = make_run(where)
    step = 0
    for _ in range(6):
        with subprocess.Popen([sys.executable, "-c", WORK, str(where)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(chance.uniform(0.05, 0.15))
            process.send_signal(signal.SIGKILL)
        reached = oc.open(where).step
        assert reached > step
        step = reached
        assert same(contents(where), {name: np.full(SHAPE, step) for name in STATE} | {"m": start["m"]})


def test_verify_tests_every_array_and_names_the_damaged_one(tmp_path: Path) -> None:
    where = tmp_path / "run.oc"
    simulation, _ = make_run(where)
    assert find_damage(where) == ([], 4 * 7, 0)
    for name in ("m", "u.previous"):
        with open(str(state_of(simulation).current_files_of(name)[0]), "r+b") as file:
            file.seek(2 * state_of(simulation).layout.record_bytes + 7)
            file.write(b"\xff")
    damage, checked, _ = find_damage(where)
    assert checked == 28 and [line.split(" is damaged")[0] for line in damage] == ["u.previous: plane 2", "m: plane 2"]


def test_space_is_counted_for_all_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused before the first byte, or not at all: twice the state, once what is only read."""
    arrays = arrays_of(waves())
    for in_place, copies in ((False, 7), (True, 4)):
        where = tmp_path / f"{in_place}.oc"
        manifest = replace(make_manifest(where, in_place=in_place), arrays=arrays)
        needed = copies * manifest.layout.array_bytes + (1 << 20)
        for free in (needed - 1, needed):
            room = SimpleNamespace(f_bavail=free, f_frsize=1)
            with monkeypatch.context() as patch:
                patch.setattr(os, "statvfs", lambda path, room=room: room)
                if free < needed:
                    with pytest.raises(InputError, match="no space"), created_state([where], manifest):
                        pass
                    assert not where.exists()
                else:
                    with created_state([where], manifest) as state:
                        assert len(state.manifest.copies) == copies
                        state.commit(0)


def test_a_run_over_directories_goes_completely_when_it_is_replaced(tmp_path: Path) -> None:
    """Also what is only read, whose folder has no name of its own kind; and what the user has put beside it stays."""
    places = [tmp_path / "a", tmp_path / "b"]
    make_run(places)
    (places[0] / "plots").mkdir()
    (places[0] / "plots" / "mine.png").write_text("precious")
    u = oc.Field("u")
    small = oc.Stencil("small", {u: u[0, 0, 0] / 2})
    oc.Simulation(small, SHAPE, directory=places[0], memory="1MiB", force=True)["u"] = 1
    assert sorted(os.listdir(places[0])) == [".u.0", ".u.1", "manifest.json", "plots", "u", "zarr.json"]
    assert not any(places[1].iterdir())


def test_a_name_that_the_user_s_own_folder_has_is_not_taken(tmp_path: Path) -> None:
    """A field that is only read lies in a folder of its name, which --force must not overwrite."""
    u, plots = oc.Field("u"), oc.Field("plots")
    where = tmp_path / "run.oc"
    oc.Simulation(oc.Stencil("small", {u: u[0, 0, 0] / 2}), SHAPE, directory=where, memory="1MiB")["u"] = 1
    (where / "plots").mkdir()
    (where / "plots" / "mine.png").write_text("precious")
    before = everything_below(where)
    reads = oc.Stencil("reads", {u: u[0, 0, 0] * plots[0, 0, 0]})
    with pytest.raises(InputError, match=r"holds something else \(plots\)"):
        oc.Simulation(reads, SHAPE, directory=where, memory="1MiB", force=True)
    assert everything_below(where) == before


def test_a_share_that_names_folders_elsewhere_is_no_share(tmp_path: Path) -> None:
    """Only folders in the directory itself are ever deleted, whatever a file there says."""
    places = [tmp_path / "a", tmp_path / "b"]
    state = state_of(make_run(places)[0])
    member = places[1] / "outcrop-member.json"
    said = json.loads(member.read_text())
    assert said["folders"] == array_folders(state.manifest)
    member.write_text(json.dumps({**said, "folders": ["../a"]}))
    make_simulation(places[0], force=True)["u"] = 1
    assert (places[1] / ".u.0").exists() and (places[0] / "u").exists()


def test_an_older_run_is_refused_in_one_line(tmp_path: Path) -> None:
    where = tmp_path / "run.oc"
    make_run(where)
    data = json.loads((where / MANIFEST).read_text())
    (where / MANIFEST).write_text(json.dumps({**data, "format": 1}))
    with pytest.raises(InputError, match="format 1, this version reads format 2; use the version that wrote it"):
        oc.open(where)


def test_signals_come_back_bit_for_bit(tmp_path: Path) -> None:
    """Decimal digits in a file would be another wavelet."""
    where, wavelet = tmp_path / "run.oc", np.random.default_rng(1).standard_normal(200) * 1e-30
    make_simulation(where, signals={"w": wavelet.tolist()}).assign({"u": 1})
    assert decode_signals(read_manifest(where).signals)["w"].tobytes() == wavelet.tobytes()
    longer = oc.open(where, signals={"w": np.arange(300)})
    assert decode_signals(longer._manifest.signals)["w"].tolist() == list(range(300))


@pytest.mark.parametrize(
    ("signals", "words"),
    [
        (None, r"signal 'w' of waves has no values; give signals=\{'w': values\}"),
        ({"w": [1.0], "q": [1.0]}, "no signal 'q'; there are: w"),
        ({"w": [1.0, float("nan")]}, "'w' is nan in step 1"),
        ({"w": [[1.0], [2.0]]}, "one sequence"),
        ({"w": [[1.0], [2.0, 3.0]]}, "one sequence"),
        ({"w": 1.0}, "one sequence"),
        ({"w": ["a"]}, "one sequence"),
        ({"w": [1j]}, "one sequence"),
    ],
)
def test_signals_that_cannot_be_are_refused(tmp_path: Path, signals: dict[str, object] | None, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make_simulation(tmp_path / "run.oc", signals=signals)
    assert not list(tmp_path.iterdir())


def test_signals_that_are_too_short_are_refused_before_anything_changes(tmp_path: Path) -> None:
    """Counted from the first step of the run, not of the call."""
    where = tmp_path / "run.oc"
    simulation, _ = make_run(where, signals={"w": np.ones(10)})
    take_steps(simulation, 4)
    before = everything_below(where)
    for use in (simulation.run, simulation.plan):
        with pytest.raises(InputError, match=r"'w' has 10 values, 11 steps from the beginning of the run need 11"):
            use(7)
    assert everything_below(where) == before
