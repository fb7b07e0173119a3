"""Check sources and receivers: points between cells, and the order of the operations in each step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle import advance_fields, record_fields
from outcrop.errors import InputError
from outcrop.language.sparse import Injection, Sampling, SourceFactor, linear
from outcrop.language.stencil import Field, Parameter, Stencil
from strategies import examples

U = Field("u")
DOUBLE = Stencil("double", {U: 2 * U[0, 0, 0]})


def one_cell(*cells: tuple[int, int, int]) -> np.ndarray:
    """Return the array of cells for points that lie exactly on cells."""
    return np.array([[cell] for cell in cells])


@settings(max_examples=examples(50))
@given(
    shape=st.tuples(*[st.integers(1, 9)] * 3),
    axes=st.sampled_from([1, 2, 3]),
    seed=st.integers(0, 1000),
)
def test_linear_interpolation_is_exact_for_linear_functions(shape: tuple[int, ...], axes: int, seed: int) -> None:
    """Checks the interpolation of a linear function, which must be exact. The test also covers points at both ends of
    the grid, and grids of one cell. The weights of a point are not negative, and their sum is 1."""
    rng = np.random.default_rng(seed)
    extents, spacing, origin = shape[:axes], rng.uniform(0.5, 2, axes), rng.uniform(-5, 5, axes)
    ends = rng.choice([0.0, 0.3, 0.77, 1.0], size=(4, axes)) * (np.array(extents) - 1)
    points = origin + spacing * ends
    cells, weights = linear("points", points, extents, spacing, origin)
    assert cells.shape == (4, 2**axes, 3)
    assert weights.sum(axis=1) == pytest.approx(1)
    assert (weights >= 0).all()
    which = {1: [2], 2: [0, 2], 3: [0, 1, 2]}[axes]
    assert (cells >= 0).all()
    assert (cells[..., which] < extents).all()
    slopes = rng.uniform(-1, 1, axes)
    values = (origin + spacing * cells[..., which]) @ slopes
    np.testing.assert_allclose((weights * values).sum(axis=1), points @ slopes, atol=1e-11)


@pytest.mark.parametrize("bad", [[0.0, -0.1, 0.0], [0.0, 0.0, 40.1], [np.nan, 0.0, 0.0], [31.0, 0.0, 0.0]])
def test_points_outside_are_named_with_the_grid(bad: list[float]) -> None:
    """Checks that a point outside the grid gives a one-line error."""
    with pytest.raises(
        InputError, match=r"rec: point 1 at \(.*\) lies outside the grid, from \(0, 0, 0\) to \(30, 10, 40\)"
    ):
        linear("rec", np.array([[0.0, 0.0, 0.0], bad]), (4, 2, 5), (10, 10, 10), (0, 0, 0))


def test_coordinates_rounded_to_float32_are_still_inside() -> None:
    """Checks that a point on the first or the last cell is inside the grid, even if its coordinate is rounded."""
    last = np.float32(0.1) * np.float32(999)
    cells, weights = linear("rec", np.array([[last], [-1e-7]]), (1000,), (0.1,), (0.0,))
    assert (cells[0, :, 2] <= 999).all()
    assert weights[0] @ cells[0, :, 2] == pytest.approx(999)
    assert weights[1].tolist() == [1, 0]


def test_sources_are_added_one_after_the_other_and_rounded_once() -> None:
    """Checks the bits of sources. The values of sources are added after all stages of a step, one point after another.
    The values of a point are added to one corner after another. Each product is computed in float64, and each sum in
    the dtype of the field."""
    cells = np.array([[(0, 0, 1), (0, 0, 2)], [(0, 0, 1), (0, 0, 0)]])
    weights = np.array([[0.1, 0.7], [1e-8, 0.3]])
    values = np.array([[1.0, 3.0], [5.0, 7.0]])
    u = np.ones((1, 1, 4), np.float32)
    want = u[0, 0].copy()
    for step in range(2):
        want *= np.float32(2)
        for point, corner, x in ((0, 0, 1), (0, 1, 2), (1, 0, 1), (1, 1, 0)):
            want[x] += np.float32(weights[point, corner] * values[step, point])
    got = advance_fields(DOUBLE, {"u": u}, {}, 2, injections=[Injection("u", cells, weights, values)])["u"]
    assert got[0, 0].tobytes() == want.tobytes()
    later = advance_fields(DOUBLE, {"u": u}, {}, 1, first_step=1, injections=[Injection("u", cells, weights, values)])
    assert later["u"][0, 0, 2] == np.float32(2) + np.float32(0.7 * 5.0)


def test_receivers_see_the_field_before_or_after_a_step() -> None:
    """Checks that each receiver reads at the right time, before or after a step. Samplings with the same name are added
    in float64."""
    here, values = one_cell((0, 0, 1)), np.array([[10.0], [20.0]])
    samplings = [
        Sampling("before", "u", here, np.ones((1, 1)), before=True),
        Sampling("after", "u", here, np.ones((1, 1))),
        Sampling("mean", "u", np.array([[(0, 0, 0), (0, 0, 1)]]), np.array([[0.5, 0.5]])),
        Sampling("mean", "u", here, np.full((1, 1), -0.5), before=True),
    ]
    source = Injection("u", here, np.ones((1, 1)), values)
    u = np.array([[[1.0, 2.0, 3.0]]], np.float32)
    done = record_fields(DOUBLE, {"u": u}, {}, 2, injections=[source], samplings=samplings)
    assert done.traces["before"].tolist() == [[2.0], [14.0]]
    assert done.traces["after"].tolist() == [[14.0], [48.0]]
    assert done.traces["mean"].tolist() == [[(2 + 14) / 2 - 1], [(4 + 48) / 2 - 7]]
    assert done.state["u"].tolist() == [[[4.0, 48.0, 12.0]]]


def test_a_scale_asks_only_for_the_cells_it_needs() -> None:
    """Checks the factor of a source, such as dt**2/m. It is computed in float64 at each corner of a point. Only the
    necessary cells are read."""
    dt, m = Parameter("dt", 0.5), Field("m")
    program = Stencil("factor", {U: dt**2 / (m[0, 0, 0] + m[0, 0, 1])}).stages[0].program
    cells = np.array([[(0, 0, 0), (0, 0, 1)]])
    scale = SourceFactor(program, ("u", "m"), (0.5,))
    injection = Injection("u", cells, np.array([[0.25, 0.75]]), np.array([[1.0]]), scale)
    asked = []

    def read(field: str, where: np.ndarray) -> np.ndarray:
        asked.append((field, where.tolist()))
        return np.array([[1.0, 2.0, 4.0]], np.float32)[0][where[..., 2]]

    resolved = injection.resolved(read)
    assert resolved.scale is None
    assert resolved.weights.tolist() == [[0.25 * 0.25 / 3, 0.75 * 0.25 / 6]]
    assert asked == [("m", [[[0, 0, 0], [0, 0, 1]]]), ("m", [[[0, 0, 1], [0, 0, 2]]])]
    assert resolved.resolved(read) is resolved


def test_arrays_that_do_not_fit_together_are_refused() -> None:
    """Checks that cells, weights and values whose shapes do not match are refused with a one-line error."""
    cells, weights = one_cell((0, 0, 0), (0, 0, 1)), np.ones((2, 1))
    with pytest.raises(InputError, match=r"sources in 'u': values have shape \(3,\); they need \(steps, points\)"):
        Injection("u", cells, weights, np.ones(3))
    with pytest.raises(InputError, match=r"and there are 2 points"):
        Injection("u", cells, weights, np.ones((3, 1)))
    with pytest.raises(InputError, match=r"receivers 'rec': cells of shape \(2, 1, 3\) and weights of shape \(2,\)"):
        Sampling("rec", "u", cells, np.ones(2))
    with pytest.raises(InputError, match=r"rec: coordinates have shape \(2, 2\); they need \(points, 3\)"):
        linear("rec", np.ones((2, 2)), (4, 4, 4), (1, 1, 1), (0, 0, 0))
