"""From a problem, a machine and a budget to a plan, or to a refusal that says what would work."""

from __future__ import annotations

from outcrop.errors import BudgetError, InputError
from outcrop.plan.machine import Machine, UpdateRate
from outcrop.plan.model import slots_within, window_bytes
from outcrop.plan.plan import Plan
from outcrop.plan.problem import Problem
from outcrop.plan.schemes import SCHEMES
from outcrop.plan.schemes.scheme import Scheme
from outcrop.plan.tuner import tune
from outcrop.units import format_bytes


def make_plan(problem: Problem, machine: Machine, budget_bytes: int, scheme: str, update_rate: UpdateRate) -> Plan:
    """The cheapest plan of `scheme` ("auto": of all schemes) within `budget_bytes`.

    Raises BudgetError with the smallest budget that works, InputError for an unknown scheme.
    """
    require_budget(problem, budget_bytes)
    chosen = find_scheme("wavefront" if scheme == "auto" else scheme)
    return tune(problem, chosen, machine, budget_bytes, update_rate)[0].plan


def require_budget(problem: Problem, budget_bytes: int) -> None:
    """Raise BudgetError, which names the smallest budget that works, when no plan fits `budget_bytes`."""
    smallest = smallest_budget_bytes(problem)
    if budget_bytes < smallest:
        raise BudgetError(
            f"memory {format_bytes(budget_bytes)} is too small for {problem.stencil} on planes of "
            f"{format_bytes(problem.plane_bytes)}: at least {_rounded_up_kib(smallest)} KiB are needed"
        )


def find_scheme(name: str) -> Scheme:
    """The scheme of that name, or InputError with the names there are."""
    if name not in SCHEMES:
        raise InputError(f"scheme {name!r} is unknown; there are auto, {', '.join(SCHEMES)}")
    return SCHEMES[name]


def smallest_budget_bytes(problem: Problem) -> int:
    """Bytes of the smallest window any plan can have: one level, slabs of one plane."""
    return window_bytes(problem, SCHEMES["wavefront"].ring_planes(problem, 1, 1))


def largest_useful_bytes(problem: Problem) -> int:
    """Bytes of the largest window any plan uses: the whole grid twice."""
    assert slots_within(problem, window_bytes(problem, (problem.planes, problem.planes))) == 2 * problem.planes
    return window_bytes(problem, (problem.planes, problem.planes))


def _rounded_up_kib(count: int) -> int:
    return -(-count // 1024)
