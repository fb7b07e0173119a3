"""Check updates of boxes. Cells outside all boxes keep their values. The ends of a box have the meaning of slices in
NumPy. If boxes overlap, the last box determines the value."""

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
    """Checks boxes with any ends. Boxes can overlap, and can have fewer slices than the grid has axes. A box without
    cells is refused."""
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


@settings(max_examples=examples(20), deadline=None)
@given(
    coefficients=st.lists(st.sampled_from([0.5, 1.0, 2.0, 3.0]), min_size=1, max_size=5),
    ends=st.lists(st.tuples(ENDS, ENDS), min_size=10, max_size=10),
)
def test_the_stable_limit_is_the_limit_of_the_worst_cell(
    coefficients: list[float], ends: list[tuple[int | None, int | None]]
) -> None:
    """Checks the stable limit of diffusion with its own coefficient in each box. The limit of diffusion with
    coefficient c on two axes is 1 / (4 c). So the cell with the largest coefficient gives the expected limit."""
    dt, shape = oc.Parameter("dt", 0.1), SHAPE[1:]
    spread = U[0, 1] + U[0, -1] + U[1, 0] + U[-1, 0] - 4 * U[0, 0]
    updates: dict[Any, Any] = {U: U[0, 0] + dt * spread}
    worst = np.ones(shape)
    for number, coefficient in enumerate(coefficients):
        box = tuple(slice(*one) for one in ends[2 * number : 2 * number + 2])
        if worst[box].size:
            worst[box] = coefficient
            updates[U.box[box]] = U[0, 0] + coefficient * dt * spread
    limit = oc.stencils.stable_limit(oc.Stencil("boxes", updates), {}, shape=shape)
    assert limit == pytest.approx(1 / (4 * worst.max()), rel=1e-4)


def test_many_boxes_have_a_stable_limit() -> None:
    """Checks five boxes on three axes. A sixth box is completely inside another box. The limit does not depend on the
    sixth box."""
    dt = oc.Parameter("dt", 0.1)
    near = U[0, 0, 1] + U[0, 0, -1] + U[0, 1, 0] + U[0, -1, 0] + U[1, 0, 0] + U[-1, 0, 0] - 6 * U[0, 0, 0]
    hidden = {U.box[3:5, 3:5, 3:5]: U[0, 0, 0] + 9 * dt * near}
    boxes = {U.box[8 * i : 8 * i + 6, i : 20 - i, i:-3]: U[0, 0, 0] + (1 + i / 4) * dt * near for i in range(5)}
    stencil = oc.Stencil("boxes", {U: U[0, 0, 0] + dt * near, **hidden, **boxes})
    assert oc.stencils.stable_limit(stencil, {}, shape=(50, 40, 30)) == pytest.approx(1 / 12, rel=1e-4)
    assert oc.stencils.stable_limit(stencil, {}, shape=(35, 40, 30)) == pytest.approx(1 / 12, rel=1e-4)


def test_boxes_without_cells_are_refused(tmp_path: Path) -> None:
    """Checks the message about a box without cells. A simulation and `stable_limit` must name the box, the axis and the
    size of the axis."""
    dt = oc.Parameter("dt", 0.1)
    stencil = oc.Stencil("room", {U: U[0, 0], U.box[2:, 20:30]: dt * U[0, 0]})
    for shape, message in (((40, 20), "20 cells along x"), ((2, 40), "2 cells along y")):
        with pytest.raises(InputError, match=rf"^room: the box u\[2:, 20:30\] contains no cell .* has {message}; "):
            oc.Simulation(stencil, shape, directory=tmp_path / "run.oc")
        with pytest.raises(InputError, match=message):
            oc.stencils.stable_limit(stencil, {}, shape=shape)
    assert oc.Simulation(stencil, (3, 21), directory=tmp_path / "run.oc").stencil == stencil
    assert oc.Stencil.from_json(stencil.to_json()) == stencil and not list(tmp_path.iterdir())


def test_boxes_in_the_rim_are_refused(tmp_path: Path) -> None:
    """Checks the message about a box whose cells all lie in the fixed rim. Such a box would have no effect."""
    spread = U[0, 2] + U[0, -2] + U[1, 0] + U[-1, 0] - 4 * U[0, 0]
    for box, axes in ((U.box[:1, :], "y"), (U.box[:, 18:], "x"), (U.box[3:5, -2:], "x"), (U.box[:, :2], "x")):
        stencil = oc.Stencil("room", {U: U[0, 0] + 0.1 * spread, box: 5})
        with pytest.raises(InputError, match=r"^room: all cells of the box u\[.*\] lie in the fixed rim, which keeps"):
            oc.Simulation(stencil, (10, 20), directory=tmp_path / "run.oc")
        for boundary in ("mirror", {axes: "periodic"}):
            oc.Simulation(stencil, (10, 20), directory=tmp_path / "run.oc", boundary=boundary)
    wide = oc.Stencil("room", {U: U[0, 0] + 0.1 * spread, U.box[:2, :3]: 5, U.box[-2:, -3:]: 7})
    sim = oc.Simulation(wide, (10, 20), directory=tmp_path / "run.oc", memory="1MiB")
    sim.run(1, progress="none")
    assert np.argwhere(sim["u"][:]).tolist() == [[1, 2], [8, 17]]


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
    assert oc.Stencil("box", {U.box[1:, :-2]: U[0, 0] + 1}).equation == "u[1:, :-2]' = u[0, 0] + 1"
