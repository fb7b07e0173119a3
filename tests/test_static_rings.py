"""Check that the rings of static fields have exactly the number of planes that updates need."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from execution import execute_fields, random_state
from oracle import advance_fields
from outcrop.language.boundary import FIXED, Boundary
from outcrop.language.stencil import Field, Stencil
from outcrop.plan.cost import timeline
from outcrop.plan.plan import Sizes
from outcrop.plan.problem import Problem
from outcrop.plan.schemes import SCHEMES
from outcrop.plan.tuner import build
from outcrop.plan.validate import IllegalPlan, validate, validate_pass
from outcrop.run.definition import as_problem
from outcrop.run.disk.layout import make_layout
from strategies import MACHINE, assumed_rate


def make_stencil(radius: int, beside: int, second_order: bool) -> Stencil:
    """Return a stencil with a field u and a static field m. An update reads u in cells that are `radius` planes and one
    row away. It reads m in a cell at a distance of `beside` planes.
    """
    u, m = Field("u"), Field("m")
    update = m[beside, 0, 0] * (u[radius, 1, 0] + u[-radius, -1, 0]) / 2
    return Stencil("static", {u: update - u.previous[0, 0, 0] / 2 if second_order else update})


def problem_of(stencil: Stencil, shape: tuple[int, int, int], boundary: Boundary = FIXED) -> Problem:
    return as_problem(stencil, make_layout(shape, "float32"), 6, boundary, in_place=False)


@pytest.mark.parametrize("second_order", [False, True])
@pytest.mark.parametrize("boundary", [FIXED, Boundary(z=("periodic", "periodic"))], ids=["fixed", "periodic"])
@pytest.mark.parametrize("levels", [1, 2, 3, 6])
@pytest.mark.parametrize(("radius", "beside"), [(1, 0), (1, 1), (2, 0), (2, 2)])
def test_rings_of_what_is_only_read_are_as_small_as_they_can_be(
    radius: int, beside: int, levels: int, boundary: Boundary, second_order: bool
) -> None:
    """Checks that a plan with rings of the planned sizes is legal. If a ring has one plane less, the plan must not be
    legal."""
    problem = problem_of(make_stencil(radius, beside, second_order), (60, 8, 8), boundary)
    plan = build(problem, SCHEMES["wavefront"], Sizes(levels, 3, 2), MACHINE, assumed_rate)
    validate(plan)
    first, second, static = plan.window.ring_planes
    assert static < problem.planes, "large enough a grid"
    with pytest.raises(IllegalPlan):
        validate_pass(problem, plan.passes[0], replace(plan.window, ring_planes=(first, second, static - 1)))


@pytest.mark.parametrize("block_y", [0, 16])
@pytest.mark.parametrize(("levels", "beside"), [(1, 0), (3, 0), (6, 0), (3, 2)])
def test_they_hold_what_updates_and_checksums_need(tmp_path: Path, levels: int, beside: int, block_y: int) -> None:
    """Checks that a run gives the same bits as the oracle, and right checksums. The grid has many planes, so that the
    run uses each slot several times."""
    stencil = make_stencil(2, beside, second_order=True)
    problem = problem_of(stencil, (90, 40, 20))
    sizes = Sizes(levels, 3, 2, block_y=block_y)
    plan = build(problem, SCHEMES["wavefront"], sizes, MACHINE, assumed_rate)
    validate(plan)
    assert max(plan.window.ring_planes) < problem.planes
    state = random_state(stencil, problem.shape, problem.dtype, seed=1)
    found, _ = execute_fields(tmp_path, stencil, plan, state, threads=2, backend="threads")
    right = advance_fields(stencil, state, {}, problem.steps)
    for name, array in found.items():
        np.testing.assert_array_equal(array, right[name], err_msg=name)


@pytest.mark.parametrize(("radius", "beside"), [(1, 0), (2, 0), (2, 2)])
def test_only_the_first_slab_waits_where_the_device_is_fast_enough(radius: int, beside: int) -> None:
    """Checks that the reads of the state come before the reads of the static fields. In this test, an update takes
    three times as long as the reads for one slab. So updates in the middle of a pass must not wait.
    tests/core/test_executor.cpp has the same check for the executor."""
    problem = problem_of(make_stencil(radius, beside, True), (120, 8, 8))
    plan = build(problem, SCHEMES["wavefront"], Sizes(6, 12, 2), MACHINE, assumed_rate)
    one, device = plan.passes[0], MACHINE.device
    slab_bytes = 12 * 3 * problem.record_bytes
    slab_cells = 12 * 6 * problem.shape[1] * problem.shape[2]
    rate = slab_cells / (3 * slab_bytes / (device.mixed_bytes_per_second / 2))
    spans = [span for span in timeline(problem, one, MACHINE, rate) if span.what == "update"]
    middle = spans[2 : -(radius * 6 // 12 + 2)]
    assert len(middle) > 3
    assert all(later.start == before.end for before, later in pairwise(middle))
