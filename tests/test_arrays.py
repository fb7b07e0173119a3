"""Check the values of several arrays. Values may be assigned in any order, and a failed assignment changes no array."""

import os
from pathlib import Path

import numpy as np
import pytest
import xarray
import zarr

import outcrop as oc
from outcrop.errors import InputError, StorageError
from outcrop.run.disk.entries import ArrayEntry, arrays_of
from outcrop.run.disk.values import complete
from outcrop.run.disk.verify import Findings, find_damage
from outcrop.run.places import open_state
from several_arrays import SHAPE, STATE, after, contents, make_run, make_simulation, same, state_of, values, waves


def test_the_order_of_arrays_is_state_with_previous_values_then_what_is_only_read() -> None:
    """Checks the order of the arrays of a run. The arrays of the state come first, including previous values. The
    read-only fields come last.

    The engine and the files of older runs depend on this order.
    """
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
    """Checks that the engine gets the files of two copies of each array of the state, and of one copy of each other
    array.
    """
    state = state_of(make_run([tmp_path / "a", tmp_path / "b"])[0])
    shards = state.layout.shards
    assert shards > 1 and [len(files) for files in state.files(0)] == [shards] * 3
    assert state.manifest.current == 0 and state.files(0) != state.files(1)
    assert [Path(str(files[0])).parts[-5] for files in state.files(1)] == [f".{name}.1" for name in STATE]
    assert state.static_files() == [state.files_of("m", 0)] == [state.files_of("m", 1)]
    assert state.current_files_of("v") == state.files(0)[2]
    with pytest.raises(InputError, match=r"no field 'q'; there are: u, u.previous, v, m"):
        state.files_of("q", 0)


def test_arrays_may_come_in_any_order_and_cost_no_generation(tmp_path: Path) -> None:
    """Checks that the first values of the arrays may be assigned in any order. No array is copied, and the generation
    is still 0."""
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
    """Checks the error for an array without values. `verify` must not report its missing checksums as damage."""
    where = tmp_path / "run.oc"
    simulation = make_simulation(where)
    simulation["u"] = values(1)
    for name in ("v", "m", "u.previous"):
        with pytest.raises(InputError, match=rf"no values of {name} yet; assign sim\['{name}'\]"):
            simulation[name][0]
    assert not zarr.open_group(str(where), mode="r")["v"][...].any()
    assert find_damage(open_state(where)) == Findings([], [], 7, 0)


@pytest.mark.parametrize("in_place", [False, True])
def test_fields_that_nobody_assigned_start_from_zeros_and_at_rest(tmp_path: Path, in_place: bool) -> None:
    """Checks that unassigned fields start from zeros. Previous values equal the last values that were assigned to the
    field.
    """
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
    simulation.run(4, progress="none")
    before = open_state(where).manifest
    after_four = after(start, 4)
    assert same(contents(where), after_four)
    simulation["v"] = values(9)
    now = open_state(where).manifest
    assert (now.step, now.generation) == (4, before.generation + 1)
    assert same(contents(where), after_four | {"v": values(9)})


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
    """Checks that values of a read-only field cannot be assigned after the first step. The first step has used the old
    values."""
    where = tmp_path / "run.oc"
    simulation, start = make_run(where)
    simulation["m"] = 7
    assert (simulation["m"][...] == 7).all() and np.array_equal(simulation["u"][...], start["u"])
    simulation.run(1, progress="none")
    with pytest.raises(InputError, match=r"m is only read, and 1 steps have used it"):
        simulation["m"] = 8
    assert (oc.open(where)["m"][...] == 7).all()


def test_values_of_what_is_only_read_that_fail_are_missing_and_not_half_there(tmp_path: Path) -> None:
    where = tmp_path / "run.oc"
    simulation, start = make_run([where, tmp_path / "beside"])  # two shards: planes are assigned in two groups
    with pytest.raises(ZeroDivisionError):
        simulation["m"] = lambda z0, z1: np.ones((z1 - z0, 5, 4)) if z0 < 3 else 1 / 0
    again = oc.open(where)
    with pytest.raises(InputError, match=r"waves reads m, which has no values; assign sim\['m'\]"):
        again.run(steps=1, progress="none")
    assert np.array_equal(again["u"][...], start["u"])
    again["m"] = 2
    again.require_fields()


def test_a_run_without_the_fields_it_reads_is_refused_and_makes_nothing(tmp_path: Path) -> None:
    simulation = make_simulation(tmp_path / "run.oc")
    with pytest.raises(InputError, match=r"assign sim\['m'\] = \.\.\.$"):
        simulation.run(steps=1, progress="none")
    assert not list(tmp_path.iterdir())


def test_a_state_that_was_lost_in_place_needs_all_of_it_anew(tmp_path: Path) -> None:
    """Checks a run whose state is lost. The run accepts only an assignment to all fields of the state. Read-only fields
    are still valid.
    """
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
