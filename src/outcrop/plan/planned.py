"""What planning hands on: a plan, what it was chosen from, and for which machine."""

from __future__ import annotations

from dataclasses import dataclass

from outcrop.plan.candidate import Candidate
from outcrop.plan.given_sizes import GivenSizes
from outcrop.plan.machine import Machine
from outcrop.plan.plan import Plan
from outcrop.plan.problem import Problem


@dataclass(frozen=True)
class Planned:
    """A plan within `budget_bytes`, with the sizes `given`, for a machine, which may be another one than this;
    `considered` are the plan's own entry and the best of the others."""

    problem: Problem
    machine: Machine
    budget_bytes: int
    given: GivenSizes
    plan: Plan
    considered: tuple[Candidate, ...]

    @property
    def thread_layout(self) -> str:
        """The threads that update, in words."""
        return f"{self.machine.threads} threads"

    @property
    def numa_nodes(self) -> int:
        """NUMA nodes that these threads are on; a declared machine counts as one."""
        return 1
