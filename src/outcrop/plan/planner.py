"""Make a plan for a problem, a machine and a budget. If the budget is too small, an error names the smallest sufficient
budget."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from outcrop.display import Described
from outcrop.errors import BudgetError, InputError
from outcrop.plan.actions import round_up
from outcrop.plan.description import planned_rows, title
from outcrop.plan.given_sizes import FREE, GivenSizes, with_sizes
from outcrop.plan.history import STEPS, listed, steps_of_pass
from outcrop.plan.machine import Machine, UpdateRate
from outcrop.plan.memory import acquisition_memory, min_acquisition_memory, whole_window
from outcrop.plan.plan import Candidate, Plan, Scheme
from outcrop.plan.problem import Problem
from outcrop.plan.schemes import ALIASES, EVERY_SCHEME
from outcrop.plan.tuner import TunedPlan, estimate, tune
from outcrop.plan.validate import IllegalPlan, validate
from outcrop.units import counted, format_bytes, format_bytes_up


@dataclass(frozen=True)
class Planned(Described):
    """The result of planning: a plan that stays within `budget_bytes` and has the sizes `given`. The plan is for this
    machine or for another machine.

    `considered` contains the candidate of the plan itself and the best of the other candidates. `updates_origin` says
    where the update rate comes from: "measured", "cached" (an earlier run has measured the rate), "assumed", or a text
    that names the machine whose file declares the rate. `StorageRates.origin` says where the rates of the storage come
    from. `assumed` contains the reason for each assumed rate: {"updates": ..., "storage": ...}.
    `axes` contains the names of the axes if these differ from the names in Outcrop.
    """

    problem: Problem
    machine: Machine
    budget_bytes: int
    given: GivenSizes
    plan: Plan
    considered: tuple[Candidate, ...]
    updates_origin: str
    assumed: Mapping[str, str]
    axes: tuple[str, ...] = field(default=(), kw_only=True)

    def require_legal(self) -> None:
        """Prove that the plan is legal. Later calls do not repeat the proof. If the plan is not legal, the method
        raises IllegalPlan, a kind of AssertionError. The message names the wrong action."""
        _ = self._is_proved

    @cached_property
    def _is_proved(self) -> bool:
        try:
            validate(self.plan, self.budget_bytes)
        except IllegalPlan as error:
            raise IllegalPlan(
                f"the {self.plan.scheme} plan is not legal: {error}. This is a fault of Outcrop, and nothing has been "
                f"written; please report it with the arguments of the run and with {self.plan.sizes}"
            ) from None
        return True

    def _title(self) -> str:
        return title(self.problem, self.axes)

    def _rows(self) -> list[tuple[str, str]]:
        return planned_rows(self)

    @property
    def thread_layout(self) -> str:
        """A text that says how many threads update cells."""
        return counted(self.machine.threads, "thread")

    @property
    def numa_nodes(self) -> int:
        """The number of NUMA nodes on which threads update cells. For a declared machine, the number is 1."""
        return 1


def make_plan(problem: Problem, machine: Machine, budget_bytes: int, scheme: str, update_rate: UpdateRate) -> Plan:
    return choose(problem, machine, budget_bytes, scheme, update_rate).plan


def choose(
    problem: Problem,
    machine: Machine,
    budget_bytes: int,
    scheme: str | Scheme,
    update_rate: UpdateRate,
    given: GivenSizes = FREE,
) -> TunedPlan:
    """Choose the plan with the lowest cost within `budget_bytes`. The plan has the sizes `given`. `scheme` is a scheme
    or its name. If `scheme` is "auto", any scheme is possible. Return the plan and all candidates.

    Raises BudgetError if the budget is too small. The message names the smallest sufficient budget. Raises InputError
    for an unknown scheme or impossible sizes.
    """
    schemes = schemes_for(problem, scheme, given)
    require_budget(problem, budget_bytes, scheme, given)
    spare_bytes = budget_bytes - smallest_budget_bytes(problem, scheme, given)
    acquisition = acquisition_memory(problem.acquisition, _min_steps(problem, given), problem.steps, spare_bytes)
    window_bytes = budget_bytes - acquisition.bytes(acquisition.max_steps)
    if scheme == "auto" and not given and window_bytes >= largest_useful_bytes(problem):
        # Memory holds the whole grid, so schemes whose only purpose is to save memory are left out.
        schemes = [one for one in schemes if one is schemes[0] or one.shared_levels is not None]
    choice = tune(problem, schemes, machine, window_bytes, update_rate, acquisition)
    assert choice is not None, "a plan exists for the smallest budget"
    return choice


def best_steps(
    problem: Problem,
    machine: Machine,
    budget_bytes: int,
    scheme: str,
    given: GivenSizes,
    cells_per_second: float,
) -> int:
    """Return the number of steps of a pass for a problem that reads a history. The number of steps must be known before
    the plan is made, because each step of a pass reads another state and therefore has its own updates. The function
    compares costs that formulas predict."""

    def seconds(steps: int) -> float:
        one = listed(problem, steps)
        if budget_bytes < smallest_budget_bytes(one, scheme, given):
            return float("inf")
        window_bytes = budget_bytes - min_acquisition_memory(problem.acquisition, steps).bytes(steps)
        return estimate(one, schemes_for(one, scheme, given), machine, window_bytes, cells_per_second)

    if problem.forward is not None:
        return steps_of_pass(problem, 1)
    every, last = problem.every, round_up(problem.steps, problem.every)
    tried = [round_up(given.bt, every)] if given.bt else [every * steps for steps in STEPS]
    return min([steps for steps in tried if steps <= last] or [last], key=seconds)


def schemes_for(problem: Problem, scheme: str | Scheme, given: GivenSizes = FREE) -> list[Scheme]:
    """Return a list with the scheme `scheme`, restricted to the sizes `given`. For "auto", return all schemes that can
    run the problem and that check all data from disk.

    Raises InputError for an unknown name, and for a scheme that cannot run the problem or does not have the sizes
    `given`.
    """
    if scheme == "auto":
        every = [one for one in EVERY_SCHEME.values() if one.checks_all and one.refusal(problem) is None]
        return with_sizes(every, problem, given)
    chosen = find_scheme(scheme)
    if (refusal := chosen.refusal(problem)) is not None:
        raise InputError(f"scheme {chosen.name} cannot {refusal}")
    return with_sizes([chosen], problem, given)


def require_budget(
    problem: Problem, budget_bytes: int, scheme: str | Scheme = "auto", given: GivenSizes = FREE
) -> None:
    """Raise BudgetError if no plan fits `budget_bytes`. The message names the smallest sufficient budget. Raises
    InputError if a rank has too few rows for blocks of `given.by` rows."""
    smallest = smallest_budget_bytes(problem, scheme, given)
    if budget_bytes < smallest:
        sizes = f" with {given}" if given else ""
        beside = _min_acquisition_bytes(problem, given)
        demand = problem.acquisition
        has = ("snapshots", demand.snapshots), ("points", demand.point_bytes or demand.step_bytes)
        share = f", {format_bytes_up(beside)} of this for {' and '.join(name for name, one in has if one)}"
        share = share if beside else ""
        planes = "rows" if problem.ndim == 2 else "planes"
        raise BudgetError(
            f"memory {format_bytes(budget_bytes)} is too small for {problem.stencil} on {planes} of "
            f"{format_bytes(problem.plane_bytes)}{sizes}: at least {format_bytes_up(smallest)} are needed{share}"
        )
    if problem.is_part and given.by:
        _require_blocks(problem, budget_bytes, scheme, given, given.by)


def _require_blocks(
    problem: Problem, budget_bytes: int, scheme: str | Scheme, given: GivenSizes, block_y: int
) -> None:
    """Raise InputError if no scheme can divide the rows of a rank into blocks of `block_y` rows. The message names the
    largest possible number of rows."""

    def is_too_large(rows: int) -> bool:
        schemes = schemes_for(problem, scheme, replace(given, by=rows))
        return not any(True for one in schemes for _ in one.candidates(problem, budget_bytes))

    if is_too_large(block_y):
        smaller = range(round_up(max(1, problem.radius_y), problem.row_group), block_y, problem.row_group)
        number = bisect_left(smaller, True, key=is_too_large)
        passes = f" in passes of {given.bt} steps" if given.bt else ""
        remedies = [f"give at most {smaller[number - 1]}"] if number else []
        remedies += ["give fewer steps (bt)"] if given.bt and given.bt > 1 else []
        raise InputError(
            f"by {block_y}: the {problem.max_halo} rows of a rank are too few for blocks of {block_y} rows{passes}; "
            + "".join(f"{one}, " for one in remedies) + ("or " if remedies else "") + "leave by out"
        )


def find_scheme(name: str | Scheme) -> Scheme:
    """Return the scheme with this name. If `name` is a scheme, return it. Raises InputError for an unknown name. The
    message lists the known names."""
    if isinstance(name, Scheme):
        return name
    if ALIASES.get(name, name) not in EVERY_SCHEME:
        raise InputError(f"scheme {name!r} is unknown; there are auto, {', '.join(EVERY_SCHEME)}")
    return EVERY_SCHEME[ALIASES.get(name, name)]


def smallest_budget_bytes(problem: Problem, scheme: str | Scheme = "auto", given: GivenSizes = FREE) -> int:
    """Return the smallest budget for `scheme` with the sizes `given`: the bytes of the smallest window plus the minimum
    memory for acquisition."""
    window_bytes = min(one.smallest(problem).bytes for one in schemes_for(problem, scheme, given))
    return window_bytes + _min_acquisition_bytes(problem, given)


def _min_acquisition_bytes(problem: Problem, given: GivenSizes) -> int:
    steps = _min_steps(problem, given)
    return min_acquisition_memory(problem.acquisition, steps).bytes(steps)


def _min_steps(problem: Problem, given: GivenSizes) -> int:
    if problem.lead:
        return problem.listed_steps
    return max(1, min(given.bt or 1, problem.steps))


def largest_useful_bytes(problem: Problem) -> int:
    """Return the bytes of the largest window that any plan uses. The largest window holds the whole grid, with all
    copies of all fields."""
    return whole_window(problem).bytes
