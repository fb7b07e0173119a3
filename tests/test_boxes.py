"""Check updates of boxes: cells outside keep their values, ends are those of slices, and the last box decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import outcrop as oc
from outcrop.errors import InputError
from strategies import examples

U, V = oc.Field("u"), oc.Field("v")
SHAPE = (6, 7, 11)
ENDS = st.none() | st.integers(-13, 13)


@settings(max_examples=examples(20), deadline=None)
@given(
    boxes=st.lists(st.lists(st.tuples(ENDS, ENDS), min_size=1, max_size=3), min_size=1, max_size=3),
    has_whole=st.booleans(),
)
def test_boxes_are_slices_of_numpy(
    boxes: list[list[tuple[int | None, int | None]]], has_whole: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Checks boxes with any ends. Boxes may overlap, and have fewer slices than the grid has axes. A box without cells
    is refused."""
    targets = [U.box[tuple(slice(*ends) for ends in one)] for one in boxes]
    updates: dict[Any, Any] = {target: 10 + number for number, target in enumerate(targets)}
    updates |= {U: 5} if has_whole else {}
    stencil = oc.Stencil("boxes", updates, ndim=3)
    place = tmp_path_factory.mktemp("boxes") / "run.oc"
    if not all(np.zeros(SHAPE)[tuple(slice(*ends) for ends in one)].size for one in boxes):
        with pytest.raises(InputError, match=r"boxes: the box u\[.*\] contains no cell of the grid"):
            oc.Simulation(stencil, SHAPE, "float64", place, memory="16MiB")
        assert not place.exists()
        return
    sim = oc.Simulation(stencil, SHAPE, "float64", place, memory="16MiB")
    sim["u"] = 1.0
    sim.run(1, progress="none")
    expected = np.full(SHAPE, 5.0 if has_whole else 1.0)
    for target, value in updates.items():
        if target is not U:
            expected[tuple(slice(*ends) for ends in target.ranges)] = value
    assert np.array_equal(sim["u"][:], expected)


@pytest.mark.parametrize("boundary", ["fixed", "mirror", "periodic"])
def test_a_box_reads_the_cells_around_it(tmp_path: Path, boundary: str) -> None:
    """Checks an update of a box in a stencil that also has a field of second order in time. The cells outside the box
    keep their newest value."""
    spread = U[0, 1] - 2 * U[0, 0] + U[0, -1] + U[1, 0] - 2 * U[0, 0] + U[-1, 0]
    stencil = oc.Stencil("room", {U.box[2:-3, 4:]: 2 * U[0, 0] - U.previous[0, 0] + 0.25 * spread, V: V[0, 0] + 1})
    rng, shape = np.random.default_rng(2), (12, 15)
    old, new = rng.random(shape), rng.random(shape)
    sim = oc.Simulation(stencil, shape, "float64", tmp_path / "run.oc", memory="16MiB", boundary=boundary)
    sim.assign({"u": new, "u.previous": old})
    sim.run(4, progress="none")
    mode = {"fixed": "constant", "mirror": "symmetric", "periodic": "wrap"}[boundary]
    for _ in range(4):
        wide = np.pad(new, 1, mode=mode)  # type: ignore[call-overload]
        around = wide[1:-1, 2:] - 2 * new + wide[1:-1, :-2] + wide[2:, 1:-1] - 2 * new + wide[:-2, 1:-1]
        inside = np.zeros(shape, bool)
        inside[2:-3, 4:] = True
        if boundary == "fixed":
            inside[:, -1:] = inside[:1] = inside[-1:] = False
        old, new = new, np.where(inside, 2 * new - old + 0.25 * around, new)
    np.testing.assert_allclose(sim["u"][:], new, rtol=0, atol=1e-13)
    outside = np.ones(shape, bool)
    outside[2:-3, 4:] = False
    assert np.array_equal(sim["u"][:][outside], new[outside])


def test_boxes_without_cells_are_refused(tmp_path: Path) -> None:
    """Checks that the message names the box, the axis and its size, also for the stable limit."""
    dt = oc.Parameter("dt", 0.1)
    stencil = oc.Stencil("room", {U: U[0, 0], U.box[2:, 20:30]: dt * U[0, 0]})
    for shape, message in (((40, 20), "20 cells along x"), ((2, 40), "2 cells along y")):
        with pytest.raises(InputError, match=rf"^room: the box u\[2:, 20:30\] contains no cell .* has {message}; "):
            oc.Simulation(stencil, shape, directory=tmp_path / "run.oc")
        with pytest.raises(InputError, match=message):
            oc.stencils.stable_limit(stencil, {}, shape=shape)
    assert oc.Simulation(stencil, (3, 21), directory=tmp_path / "run.oc").stencil == stencil
    assert oc.Stencil.from_json(stencil.to_json()) == stencil and not list(tmp_path.iterdir())


def test_boxes_that_cannot_be_are_refused() -> None:
    with pytest.raises(InputError, match=r"u.box\[slice\(0, 9, 2\)\]: a box is one to three slices without a step"):
        U.box[0:9:2]
    for wrong in (3, (slice(1, 2), 4), (slice(1),) * 4):
        with pytest.raises(InputError, match=r"a box is one to three slices without a step"):
            U.box[wrong]  # type: ignore[index]
    for end in (1.5, "a", 1 << 60, oc.x):
        with pytest.raises(InputError, match=r"is not a number of cells"):
            U.box[:end]  # type: ignore[misc]
    with pytest.raises(InputError, match=r"u\[:, 1:, :-1\] has 3 ranges, but the grid has 2 axes"):
        oc.Stencil("flat", {U.box[:, 1:, :-1]: U[0, 0]})
    assert oc.Stencil("box", {U.box[1:, :-2]: U[0, 0] + 1}).equation == "u[1:, :-2]' = u(0, 0) + 1"
