"""What planning hands on: a plan, what it was chosen from, and for which machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from outcrop.plan.candidate import Candidate
from outcrop.plan.given_sizes import GivenSizes
from outcrop.plan.machine import Machine
from outcrop.plan.plan import Plan
from outcrop.plan.problem import Problem
from outcrop.plan.validate import IllegalPlan, validate


@dataclass(frozen=True)
class Planned:
    """A plan within `budget_bytes`, with the sizes `given`, for a machine, which may be another one than this.

    `considered` are the plan's own entry and the best of the others. `updates_origin` says where the rate of updates
    comes from: "measured", "assumed", or that it is declared, and for which machine; Device.origin says the same of the
    storage. `assumed` has the reason for each of both that is assumed: {"updates": ..., "storage": ...}.
    """

    problem: Problem
    machine: Machine
    budget_bytes: int
    given: GivenSizes
    plan: Plan
    considered: tuple[Candidate, ...]
    updates_origin: str
    assumed: Mapping[str, str]

    def require_legal(self) -> None:
        """Raise IllegalPlan, an AssertionError, unless the plan is proved legal; it is proved once.

        The message says which action is wrong.
        """
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

    @property
    def thread_layout(self) -> str:
        """The threads that update, in words."""
        return f"{self.machine.threads} threads"

    @property
    def numa_nodes(self) -> int:
        """NUMA nodes that these threads are on; a declared machine counts as one."""
        return 1
