"""Check that each stencil of the library gives the same bits as the oracle with each scheme."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from execution import Cells, array_names, execute_fields, random_state
from oracle import advance_fields
from outcrop.axes import grid_shape
from outcrop.language.boundary import as_boundary, boundary_on_grid
from outcrop.language.library import STENCILS, find_stencil
from outcrop.language.stencil import Stencil
from outcrop.plan.planner import choose, smallest_budget_bytes
from outcrop.plan.schemes import SCHEMES
from outcrop.run.definition import as_problem
from outcrop.run.disk.layout import make_layout
from strategies import MACHINE, assumed_rate, examples

MORE = [
    "heat16_1d",
    "heat4_2d",
    "acoustic4_2d_sponge",
    "elastic2_2d",
    "maxwell_2d_te",
    "maxwell_lossy",
    "advection1_2d",
]
"""Stencils in addition to one stencil of each family: other orders, fewer axes, options."""

BOUNDARIES = ["fixed", "periodic", "x=mirror", "y=mirror:fixed,x=periodic"]


def shapes(stencil: Stencil) -> st.SearchStrategy[tuple[int, int, int]]:
    """Return small grids with the axes of the stencil. Some grids are thinner than the reach of the stencil."""
    along = {1: (st.integers(1, 90),), 2: (st.integers(1, 40), st.integers(1, 40))}
    own = along.get(stencil.ndim, (st.integers(1, 22), st.integers(1, 14), st.integers(1, 36)))
    return st.tuples(*own).map(grid_shape)


def safe_state(stencil: Stencil, shape: tuple[int, int, int], dtype: str, seed: int) -> dict[str, Cells]:
    """Return random values between 1/2 and 1. An update can divide by these values, so they must not be near 0."""
    state = random_state(stencil, shape, dtype, seed)
    return {name: (values + 1) / 2 for name, values in state.items()}


def one_axis(text: str, stencil: Stencil) -> str:
    """Return the parts of a boundary that belong to the axes of the stencil."""
    return text.rpartition(",")[2] if stencil.ndim == 1 else text


@pytest.mark.parametrize("name", [*STENCILS, *MORE])
@settings(max_examples=examples(3), deadline=None)
@given(data=st.data())
def test_every_scheme_gives_the_oracles_bits(name: str, data: st.DataObject) -> None:
    """Checks that all schemes that support the stencil give the same bytes, for a random small grid, boundary and
    budget.
    """
    stencil = find_stencil(name)
    shape = data.draw(shapes(stencil))
    dtype = data.draw(st.sampled_from(["float32", "float64"]))
    text = one_axis(data.draw(st.sampled_from(BOUNDARIES)), stencil)
    boundary = boundary_on_grid(as_boundary(text), stencil.ndim)
    problem = as_problem(stencil, make_layout(shape, dtype), data.draw(st.integers(1, 5)), boundary, in_place=False)
    state = safe_state(stencil, shape, dtype, data.draw(st.integers(0, 2**32 - 1)))
    right = advance_fields(stencil, state, {}, problem.steps, boundary)
    more = data.draw(st.floats(1, 3))
    for scheme in SCHEMES.values():
        if scheme.refusal(problem) is not None:
            continue
        budget = int(more * smallest_budget_bytes(problem, scheme.name))
        plan = choose(problem, MACHINE, budget, scheme.name, assumed_rate).plan
        assert plan.memory_bytes <= budget
        with tempfile.TemporaryDirectory() as folder:
            found, _ = execute_fields(Path(folder), stencil, plan, state, threads=2, backend="threads")
        for array in array_names(stencil)[0]:
            assert found[array].tobytes() == right[array].tobytes(), f"{scheme.name}: {array}"
