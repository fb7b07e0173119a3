"""Protects the memory of fields that are only read: no more planes than updates need, and never fewer."""

from dataclasses import replace

import pytest

from outcrop.language.boundary import Boundary
from outcrop.language.stencil import Field, Stencil
from outcrop.plan.plan import Sizes
from outcrop.plan.problem import Problem
from outcrop.plan.schemes import SCHEMES
from outcrop.plan.tuner import build
from outcrop.plan.validate import IllegalPlan, validate, validate_pass
from outcrop.run.arguments import as_problem
from outcrop.run.disk.layout import make_layout
from strategies import MACHINE, assumed_rate


def problem_of(radius: int, beside: int, periodic: bool, second_order: bool) -> Problem:
    """A field u that reaches `radius` far along z, and m, which is read `beside` planes away."""
    u, m = Field("u"), Field("m")
    update = m[beside, 0, 0] * (u[radius, 0, 0] + u[-radius, 0, 0])
    stencil = Stencil("static", {u: update - u.previous[0, 0, 0] if second_order else update})
    sides = Boundary(z=("periodic", "periodic")) if periodic else Boundary()
    return as_problem(stencil, make_layout((60, 8, 8), "float32"), 6, sides, in_place=False)


@pytest.mark.parametrize("second_order", [False, True])
@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("levels", [1, 2, 3, 6])
@pytest.mark.parametrize(("radius", "beside"), [(1, 0), (1, 1), (2, 0), (2, 2)])
def test_rings_of_what_is_only_read_are_as_small_as_they_can_be(
    radius: int, beside: int, levels: int, periodic: bool, second_order: bool
) -> None:
    """Plans are legal with these rings, and not with a plane less."""
    problem = problem_of(radius, beside, periodic, second_order)
    plan = build(problem, SCHEMES["wavefront"], Sizes(levels, 3, 2), MACHINE, assumed_rate)
    validate(plan)
    first, second, static = plan.window.ring_planes
    assert static < problem.planes, "large enough a grid"
    smaller = replace(plan.window, ring_planes=(first, second, static - 1))
    with pytest.raises(IllegalPlan):
        validate_pass(problem, plan.passes[0], smaller)
    assert static <= first
