"""Prove a plan legal without touching data.

A symbolic run: every slot of the two rings is represented by which plane it holds, at which level, and whether
the rim is there. Actions take effect at once and in order, which is stricter than the executor (a transfer that
is still under way counts as done), so what passes here cannot race there: transfers of one slot wait for each
other, and nothing else touches it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatchmethod

from outcrop.plan.actions import Action, Commit, Copy, Read, Update, Write
from outcrop.plan.model import window_bytes
from outcrop.plan.plan import Pass, Plan
from outcrop.plan.problem import Problem


class IllegalPlan(AssertionError):
    """A plan that would compute something else than it should: a bug in a scheme, never the user's fault."""


@dataclass(frozen=True)
class Content:
    """Plane `plane` at `level`; level -1 means that only the rim is valid."""

    plane: int
    level: int


def validate(plan: Plan, budget_bytes: int | None = None) -> None:
    """Raise IllegalPlan unless every pass of `plan` is legal, the passes add up to the steps, and memory stays
    in budget."""
    if sum(one.levels for one in plan.passes) != plan.problem.steps:
        raise IllegalPlan(f"passes advance {sum(p.levels for p in plan.passes)} steps, not {plan.problem.steps}")
    needed = window_bytes(plan.problem, plan.ring_planes)
    if budget_bytes is not None and max(needed, plan.memory_bytes) > budget_bytes:
        raise IllegalPlan(f"window of {needed} bytes exceeds the budget of {budget_bytes} bytes")
    if plan.memory_bytes < needed:
        raise IllegalPlan(f"plan claims {plan.memory_bytes} bytes, its rings take {needed}")
    for one in dict.fromkeys(plan.passes):
        validate_pass(plan.problem, one, plan.ring_planes)


def validate_pass(problem: Problem, one: Pass, ring_planes: tuple[int, int]) -> None:
    """Raise IllegalPlan unless `one` reads every plane once, brings it to the last level and writes it once."""
    run = _SymbolicRun(problem, one.levels, ring_planes)
    for index, action in enumerate(one.actions):
        try:
            run.perform(action)
        except IllegalPlan as error:
            raise IllegalPlan(f"action {index}, {action}: {error}") from None
    run.finish()


class _SymbolicRun:
    """The window of one pass, by content."""

    def __init__(self, problem: Problem, levels: int, ring_planes: tuple[int, int]) -> None:
        self.problem, self.levels = problem, levels
        self.rings: list[dict[int, Content]] = [{}, {}]
        self.ring_planes = ring_planes
        self.read: set[int] = set()
        self.written: set[int] = set()
        self.committed = False

    @singledispatchmethod
    def perform(self, action: Action) -> None:
        raise IllegalPlan("unknown action")

    @perform.register
    def _read(self, action: Read) -> None:
        for z in self._planes(action.z0, action.z1):
            self._require(z not in self.read, f"plane {z} is read twice")
            self._require(not self.problem.in_place or z not in self.written, f"plane {z} is already overwritten")
            self.read.add(z)
            self._put(0, Content(z, 0))

    @perform.register
    def _copy(self, action: Copy) -> None:
        for z in self._planes(action.z0, action.z1):
            self._require(self._get(0, z) == Content(z, 0), f"level 0 of plane {z} is not in the even ring")
            old = self._get(1, z)
            self._require(old is None or old.plane != z, f"plane {z} is copied twice")
            self._put(1, Content(z, -1))

    @perform.register
    def _update(self, action: Update) -> None:
        self._require(1 <= action.levels <= self.levels, f"a pass of {self.levels} levels")
        self._require(action.zeta0 < action.zeta1, "an empty range")
        problem = self.problem
        for zeta in range(action.zeta0, action.zeta1):
            for level in range(1, action.levels + 1):
                z = zeta - problem.skew * (level - 1)
                if problem.first_plane <= z < problem.end_plane:
                    self._update_plane(z, level)

    def _update_plane(self, z: int, level: int) -> None:
        radius = self.problem.radius_z
        for source in range(z - radius, z + radius + 1):
            content = self._get(level - 1, source)
            here = content is not None and content.plane == source
            good = here and content is not None and (content.level == level - 1 or self._is_rim(source))
            self._require(
                good, f"level {level} of plane {z} needs level {level - 1} of plane {source}, found {content}"
            )
        target = self._get(level, z)
        expected = Content(z, level - 2)  # level 1 goes over the copied rim, which counts as level -1
        self._require(target == expected, f"level {level} of plane {z} would overwrite {target}, not {expected}")
        self._put(level, Content(z, level))

    @perform.register
    def _write(self, action: Write) -> None:
        self._require(action.level == self.levels, f"a pass of {self.levels} levels")
        for z in self._planes(action.z0, action.z1):
            content = self._get(action.level, z)
            here = content is not None and content.plane == z
            good = here and content is not None and (content.level == self.levels or self._is_rim(z))
            self._require(good, f"level {self.levels} of plane {z} is not there, found {content}")
            self._require(z not in self.written, f"plane {z} is written twice")
            self._require(not self.problem.in_place or z in self.read, f"plane {z} is not read yet")
            self.written.add(z)

    @perform.register
    def _commit(self, action: Commit) -> None:
        self._require(not self.committed, "a second commit")
        self._require(len(self.written) == self.problem.planes, "a commit before every plane is written")
        self.committed = True

    def finish(self) -> None:
        """What must hold at the end of a pass."""
        self._require(self.committed, "no commit")
        self._require(len(self.read) == self.problem.planes, "not every plane was read")

    def _planes(self, z0: int, z1: int) -> range:
        self._require(0 <= z0 < z1 <= self.problem.planes, f"planes outside 0 .. {self.problem.planes - 1}")
        return range(z0, z1)

    def _is_rim(self, z: int) -> bool:
        return not self.problem.first_plane <= z < self.problem.end_plane

    def _get(self, level: int, z: int) -> Content | None:
        return self.rings[level & 1].get(z % self.ring_planes[level & 1])

    def _put(self, level: int, content: Content) -> None:
        self.rings[level & 1][content.plane % self.ring_planes[level & 1]] = content

    @staticmethod
    def _require(condition: bool, message: str) -> None:
        if not condition:
            raise IllegalPlan(message)
