"""From a problem, a machine and a budget to a plan, or to a refusal that says what would work."""

from __future__ import annotations

from outcrop.errors import BudgetError, InputError
from outcrop.plan.given_sizes import FREE, GivenSizes
from outcrop.plan.machine import Machine, UpdateRate
from outcrop.plan.plan import Plan
from outcrop.plan.problem import Problem
from outcrop.plan.schemes import ALIASES, SCHEMES
from outcrop.plan.schemes.kept_to import kept_to
from outcrop.plan.schemes.scheme import Scheme
from outcrop.plan.tap_memory import least_tap_memory, tap_memory
from outcrop.plan.tuner import Choice, tune
from outcrop.plan.window import whole_window
from outcrop.units import format_bytes


def make_plan(problem: Problem, machine: Machine, budget_bytes: int, scheme: str, update_rate: UpdateRate) -> Plan:
    """The plan that `choose` takes."""
    return choose(problem, machine, budget_bytes, scheme, update_rate).plan


def choose(
    problem: Problem,
    machine: Machine,
    budget_bytes: int,
    scheme: str,
    update_rate: UpdateRate,
    given: GivenSizes = FREE,
) -> Choice:
    """The cheapest plan of `scheme` ("auto": of all schemes) within `budget_bytes` that keeps to the sizes `given`, and
    those it was chosen from.

    Raises BudgetError with the smallest budget that works, InputError for an unknown scheme and sizes that cannot be.
    """
    schemes = schemes_for(problem, scheme, given)
    require_budget(problem, budget_bytes, scheme, given)
    spare_bytes = budget_bytes - smallest_budget_bytes(problem, scheme, given)
    taps = tap_memory(problem.taps, _least_steps(problem, given), problem.steps, spare_bytes)
    window_bytes = budget_bytes - taps.bytes(taps.steps_most)
    if scheme == "auto" and not given and window_bytes >= largest_useful_bytes(problem):
        schemes = schemes[:1]  # the others only save memory
    choice = tune(problem, schemes, machine, window_bytes, update_rate, taps)
    assert choice is not None, "the smallest budget has a plan"
    return choice


def schemes_for(problem: Problem, scheme: str, given: GivenSizes = FREE) -> list[Scheme]:
    """The scheme of that name, or for "auto" all that can do the problem and check all they read; kept to the sizes
    `given`.

    Raises InputError for a name that is unknown, or a scheme that cannot do the problem or has not these sizes.
    """
    if scheme == "auto":
        every = [one for one in SCHEMES.values() if one.checks_all and one.refusal(problem) is None]
        return kept_to(every, problem, given)
    chosen = find_scheme(scheme)
    if (refusal := chosen.refusal(problem)) is not None:
        raise InputError(f"scheme {chosen.name} cannot {refusal}")
    return kept_to([chosen], problem, given)


def require_budget(problem: Problem, budget_bytes: int, scheme: str = "auto", given: GivenSizes = FREE) -> None:
    """Raise BudgetError, which names the smallest budget that works, when no plan fits `budget_bytes`."""
    smallest = smallest_budget_bytes(problem, scheme, given)
    if budget_bytes < smallest:
        sizes = f" with {given}" if given else ""
        steps = _least_steps(problem, given)
        taps_bytes = least_tap_memory(problem.taps, steps).bytes(steps)
        taps = f", {_rounded_up_kib(taps_bytes)} KiB of them for snapshots and points" if taps_bytes else ""
        raise BudgetError(
            f"memory {format_bytes(budget_bytes)} is too small for {problem.stencil} on planes of "
            f"{format_bytes(problem.plane_bytes)}{sizes}: at least {_rounded_up_kib(smallest)} KiB are needed{taps}"
        )


def find_scheme(name: str) -> Scheme:
    """The scheme of that name, or InputError with the names there are."""
    if ALIASES.get(name, name) not in SCHEMES:
        raise InputError(f"scheme {name!r} is unknown; there are auto, {', '.join([*SCHEMES, *ALIASES])}")
    return SCHEMES[ALIASES.get(name, name)]


def smallest_budget_bytes(problem: Problem, scheme: str = "auto", given: GivenSizes = FREE) -> int:
    """Bytes of the smallest window any plan of `scheme` with the sizes `given` can have, and of the least for taps."""
    window_bytes = min(one.smallest(problem).bytes for one in schemes_for(problem, scheme, given))
    steps = _least_steps(problem, given)
    return window_bytes + least_tap_memory(problem.taps, steps).bytes(steps)


def _least_steps(problem: Problem, given: GivenSizes) -> int:
    """The fewest steps that a pass may have."""
    return max(1, min(given.bt or 1, problem.steps))


def largest_useful_bytes(problem: Problem) -> int:
    """Bytes of the largest window any plan uses: the whole grid, every copy of every field."""
    return whole_window(problem).bytes


def _rounded_up_kib(count: int) -> int:
    return -(-count // 1024)
