"""The adjoint of a run can get the states of the run in several ways. This module lists the ways to get the states, and
chooses one way. The run is planned for this machine or for a declared machine.

    choose_here        options or a run, and measured rates ──┐
                                                              ├──► ways ──► plan/gradient.py ──► WayChoice
    choose_elsewhere   options, and the rates of a file    ───┘
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property

from outcrop.errors import BudgetError, InputError
from outcrop.language.boundary import Boundary, as_boundary
from outcrop.language.compile import compile_kernel
from outcrop.language.stencil import Stencil
from outcrop.plan.gradient import Limits, Way, WayChoice, choose_way, intervals
from outcrop.plan.machine import UpdateRate
from outcrop.plan.problem import Problem
from outcrop.run.acquisition.history import (
    as_entry,
    free_bytes,
    history_entry,
    limit_bytes,
    require_room,
    state_bytes,
    with_slots,
)
from outcrop.run.acquisition.pass_acquisition import demand_of
from outcrop.run.adjoint import SOURCES, derive, derive_adjoint, named_snapshots
from outcrop.run.definition import as_problem
from outcrop.run.device.use import is_block_device
from outcrop.run.disk.entries import (
    AcquisitionEntries,
    SamplingEntry,
    SnapshotsEntry,
    SourceEntry,
    StatesEntry,
    arrays_of,
    updated_fields,
)
from outcrop.run.disk.layout import PlaneLayout
from outcrop.run.disk.manifest import Description
from outcrop.run.disk.state import State
from outcrop.run.engine import (
    STEPS_METERED,
    WORTH_MEASURING_UPDATES,
    CallLists,
    pack_scalars,
)
from outcrop.run.forward import Derived, inputs_of
from outcrop.run.gradients import CORNERS
from outcrop.run.joint_plan import machine_for
from outcrop.run.options import History
from outcrop.run.setup import Elsewhere, Setup, require_plan
from outcrop.tiers.update_rate import UpdateRateMeter, work_per_update
from outcrop.units import format_bytes

RUNS = 3
"""The number of runs of a gradient that use a measured update rate. The runs are the forward run, the adjoint run, and
the run of the steps that are computed again."""


def default_wrt(stencil: Stencil, fixed: Collection[str] = ()) -> tuple[str, ...]:
    """Return the names of all static fields, parameters and signals. If the stencil has no static field, parameter or
    signal, return the names of all updated fields. The parameters and fields in `fixed` have no gradients."""
    return tuple(one for one in inputs_of(stencil) if one not in fixed) or tuple(updated_fields(stencil))


@dataclass(frozen=True)
class GradientTask:
    """Describes a gradient whose computation is planned. `problem` is the problem of the forward run without a history.
    `shape` is the shape of the arrays of the forward run. `compared` contains the names of the receivers and snapshots
    that can have residuals."""

    derived: Derived
    problem: Problem
    taps: AcquisitionEntries
    layout: PlaneLayout
    boundary: Boundary
    shape: tuple[int, ...]
    compared: Collection[str]

    def derived_for(self, recompute: bool) -> Derived:
        return self.hoisted if recompute else self.derived

    @cached_property
    def hoisted(self) -> Derived:
        return self.derived.hoisted()

    def states(self, recompute: bool) -> StatesEntry | None:
        """Return an entry for the states that the adjoint run reads, or None if the adjoint run reads no states. The
        returned entry does not contain the directory of the forward run."""
        derived, steps = self.derived_for(recompute), self.problem.steps
        if not derived.states:
            return None
        states = StatesEntry("/", "0", steps, derived.states)
        if not recompute:
            return states
        cells = sum(one.points * one.corners for one in self.taps.sources)
        return replace(states, every=min(STEPS_METERED, steps), stencil=derived.stencil.to_json(), source_cells=cells)

    def adjoint(self, recompute: bool) -> Problem:
        """Return the problem of the adjoint run, with the acquisition that the adjoint run has if all names in
        `compared` have residuals."""
        states, stencil = self.states(recompute), self.derived_for(recompute).adjoint.stencil
        problem = as_problem(stencil, self.layout, self.problem.steps, self.boundary, in_place=False, states=states)
        taps = adjoint_acquisition(self.taps, self.derived, self.compared, self.problem.steps)
        return replace(problem, acquisition=demand_of(taps, self.layout.dtype, states))

    @property
    def adjoint_bytes(self) -> int:
        """The number of bytes that the arrays of the adjoint run need on the disk."""
        arrays = arrays_of(self.hoisted.adjoint.stencil, self.states(recompute=True))
        return sum(1 if one.is_static else 2 for one in arrays) * self.layout.array_bytes

    def ways(self) -> list[Way]:
        """Return all ways in which the adjoint run can get the states. If the adjoint run reads no states, the only way
        is the way without a history."""
        derived, problem = self.derived, self.problem
        if not derived.states:
            return [Way(0, problem, self.adjoint(recompute=False))]
        again = self.adjoint(recompute=True)
        assert again.forward is not None
        found = [Way(0, problem, again, refusal=derived.needs(1)), self._way(1, again)]
        if not derived.missing:
            found[1] = self._way(1, self.adjoint(recompute=False))
        for every in intervals(problem.steps):
            forward = replace(again.forward, steps=min(every, problem.steps))
            found.append(self._way(every, replace(again, every=every, forward=forward)))
        return found

    def _way(self, every: int, adjoint: Problem) -> Way:
        dtype, taps = self.layout.dtype, self.taps
        state = [one for one in arrays_of(self.derived.stencil) if not one.is_static]
        entry = as_entry(every, every > 1, state, self.shape)
        taps = replace(taps, snapshots=(*(one for one in taps.snapshots if not one.is_history), entry))
        count = entry.count(self.problem.steps)
        forward = replace(self.problem, acquisition=demand_of(taps, dtype))
        missing = self.derived.missing if every == 1 else ""
        return Way(every, forward, adjoint, count, count * state_bytes(entry, dtype), missing)


class _Meters:
    """Measures the update rates of this machine for the forward run and the adjoint run of a gradient. Each kernel is
    measured with only one choice of tile sizes."""

    def __init__(self, task: GradientTask, setup: Setup, budgets: tuple[int, int], worth: bool) -> None:
        self._task, self._setup, self._budgets, self._worth = task, setup, budgets, worth
        self._known: dict[tuple[bool, bool, bool], UpdateRateMeter] = {}

    def __call__(self, problem: Problem) -> UpdateRate:
        task, is_recomputed = self._task, bool(problem.lead)
        is_forward = problem.stencil == task.problem.stencil
        key = is_forward, bool(problem.histories), is_recomputed
        if key not in self._known:
            derived = task.derived_for(is_recomputed)
            stencil = self._setup.kernel_stencil if is_forward else derived.adjoint.stencil
            states = None if is_forward else task.states(is_recomputed)
            unlisted = task.problem if is_forward else task.adjoint(is_recomputed)
            kernel = compile_kernel(stencil, problem.dtype, boundary=Boundary(*problem.sides))  # type: ignore[arg-type]
            lists, description = CallLists(stencil, states, unlisted, kernel), self._setup.description
            values = {one.name: description.parameters[one.name] for one in stencil.parameters}
            settings, budget_bytes = description.settings, self._budgets[0 if is_forward else 1]
            self._known[key] = UpdateRateMeter(
                *lists.of_meter(), pack_scalars(stencil, values, problem.dtype), settings.threads, budget_bytes,
                self._worth, settings.bind, work_per_update(stencil), lists.lead_scalars, only_one=True,
                kernel=kernel.path.stem,
            )  # fmt: skip
        return self._known[key]

    def keep(self) -> None:
        """Write the measured update rates to the user's cache."""
        for meter in self._known.values():
            meter.keep()


def adjoint_acquisition(
    taps: AcquisitionEntries, derived: Derived, compared: Collection[str], steps: int
) -> AcquisitionEntries:
    """Return the sources and receivers of the adjoint run of a run with the acquisition `taps` (run/adjoint.py). The
    sources add the residuals of the receivers and snapshots with names in `compared`. Each cell of a snapshot becomes a
    point, and the snapshot of the initial values becomes a source of its own. The receivers record the adjoint at the
    sources of the run."""
    sources = [SourceEntry(one.field, one.points, steps, corners=one.corners)
               for one in taps.samplings if one.name in compared]  # fmt: skip
    for name, (entry, field) in named_snapshots(taps).items():
        if name in compared:
            sources += [SourceEntry(field, math.prod(entry.shape), steps, corners=1)] * (1 + entry.initial)
    samplings = []
    for number, one in enumerate(taps.sources):
        if SOURCES in derived.names:
            samplings.append(SamplingEntry(f"source_{number}", one.field, one.points, True, one.corners))
        if number in derived.scaled:
            samplings.append(SamplingEntry(CORNERS.format(number), one.field, one.points * one.corners, True, 1))
    return AcquisitionEntries(tuple(sources), tuple(samplings))


def task_of(
    setup: Setup, steps: int, wrt: object = None, compared: Collection[str] | None = None
) -> GradientTask:  # fmt: skip
    """Return the `GradientTask` of a run: its gradient with respect to `wrt`, or with respect to all inputs if `wrt` is
    None. `compared` contains the names of the receivers and snapshots that can have residuals. If `compared` is None,
    all receivers can have residuals. Raises InputError if no adjoint run can compute the gradient."""
    one = setup.description
    names = default_wrt(setup.stencil, one.without_gradient) if wrt is None else wrt
    derived, boundary = derive(setup.stencil, one, names), as_boundary(one.boundary)
    names = one.taps.traces if compared is None else compared
    return GradientTask(derived, setup.problem(steps), one.taps, one.layout, boundary, one.shape, names)


def replay_bytes(description: Description) -> int:
    """Return the number of bytes that the arrays of a replay need on the disk. The replay has the arrays of the forward
    run with two copies of the state, but no computed fields (run/replay.py)."""
    return (2 * len(description.state) + len(description.given)) * description.layout.array_bytes


def choose_here(
    task: GradientTask, setup: Setup, limit: str | int | None = None, memory_bytes: int | None = None,
    is_plan: bool = False,
) -> WayChoice:  # fmt: skip
    """Choose the way in which an adjoint run gets states, for a run on this machine. The states may need at most
    `limit` bytes on the disk. The states must also fit into the remaining free space: the free space of the run's
    directory, minus the size of the arrays of both runs. `memory_bytes` is the budget of the adjoint run. If `is_plan`
    is true, the storage is not measured, and plans are also made for short runs. Raises InputError for a wrong
    limit."""
    one, settings = setup.description, setup.description.settings
    budgets = settings.memory_bytes, settings.memory_bytes if memory_bytes is None else memory_bytes
    given, most, less = limit_bytes(History("auto", limit)), None, None
    why, ways = "", task.ways()
    if len(ways) > 1:
        arrays = 0 if setup.state else len(one.copies) * one.layout.array_bytes // len(setup.directories)
        most = free_bytes(setup.directories[0], arrays + task.adjoint_bytes)
        why = f"{format_bytes(most)} are free in {setup.directories[0]} beside the arrays of both runs"
        less = max(0, most - replay_bytes(one))
        if given is not None and given < most:
            most, why = given, f"the limit is {format_bytes(given)}"
        less = min(less, most)
    work = work_per_update(setup.kernel_stencil)
    worth = RUNS * task.problem.cells * task.problem.levels * work >= WORTH_MEASURING_UPDATES
    machine = machine_for(settings, setup.directories, task.problem, min(budgets), not is_plan and worth)
    limits = Limits(*budgets, most, why, less, settings.scheme, settings.given)
    meters = _Meters(task, setup, budgets, worth)
    choice = choose_way(ways, machine, limits, meters, is_rough=not worth and not is_plan)
    meters.keep()
    return choice


def task_elsewhere(one: Elsewhere, wrt: object = None) -> GradientTask:
    """Return the `GradientTask` of a run on a declared machine. Raises InputError as `task_of` does."""
    what = one.definition
    taps = what.acquisition.entries
    names = default_wrt(what.stencil) if wrt is None else wrt
    derived = derive_adjoint(what.stencil, taps.sources, what.boundary, names)
    return GradientTask(derived, one.problem, taps, one.layout, what.boundary, what.shape, taps.traces)


def choose_elsewhere(
    task: GradientTask, one: Elsewhere, limit_bytes: int | None = None, is_rough: bool = False
) -> WayChoice:
    """Choose the way in which an adjoint run gets states, for a run on a declared machine. The states may need at most
    `limit_bytes` bytes on the disk. If `limit_bytes` is None, the size of the states is not limited."""
    why = f"the limit is {format_bytes(limit_bytes)}" if limit_bytes else ""
    limits = Limits(one.budget_bytes, one.budget_bytes, limit_bytes, why, limit_bytes, one.scheme, one.given)
    return choose_way(task.ways(), one.machine, limits, one.update_rate, is_rough)


def history_of(choice: WayChoice) -> History | None:
    """Return the history of the chosen way, or None for the way without a history. If no way is possible, and each way
    with a history lacks only memory, raise BudgetError. If no way is possible for other reasons, raise InputError."""
    if choice.chosen is None:
        kind = BudgetError if all(one.smallest_bytes for one in choice.ways[1:]) else InputError
        raise kind(choice.refusal)
    every = choice.chosen.way.every
    if every > 1:
        return History(every, choice.chosen.way.limit_bytes, recompute=True)
    return History("all") if every else None


def choose_history(setup: Setup, state: State | None, given: History, steps: int) -> tuple[History | None, str]:
    """Return the history that a run keeps. If the user has chosen "auto", the result is the history with which a
    gradient has the shortest predicted time. If a gradient needs no history, the result is None. If the run already
    keeps a history, it continues this history. Also return a text that says why no gradient needs a history. If
    gradients need a history, this text is "". Raises InputError and BudgetError."""
    if not isinstance(given.every, str) or given.every != "auto":
        return given, ""
    if given.recompute:
        raise InputError("history: 'auto' also chooses recompute; leave it out")
    if kept := state.manifest.taps.history if state else None:
        return History("all" if kept.every == 1 else kept.every, given.limit, recompute=kept.recompute), ""
    task = task_of(setup, steps, given.wrt)
    if not task.derived.states:
        names = ", ".join(task.derived.names)
        return None, f": history='auto' chose no history, because no gradient with respect to {names} needs one"
    if state and state.manifest.step:
        # a later check refuses this history, because the states of the first steps were not kept
        return History("all", given.limit), ""
    found = history_of(choose_here(task, setup, given.limit))
    return replace(found, limit=given.limit) if found else None, ""


def with_history(setup: Setup, state: State | None, history: History, steps: int) -> tuple[Setup, SnapshotsEntry]:
    """Check that a run can keep a history in its next `steps` steps. Return the setup of the run with the history, and
    the entry of the history. Raises InputError and BudgetError."""
    first, taps = (state.manifest.step, state.manifest.taps) if state else (0, setup.description.taps)
    description = replace(setup.description, taps=taps)
    directory, layout = setup.directories[0], description.layout
    if setup.raw_device or is_block_device(directory):
        raise InputError("a run on block devices cannot keep a history; keep the run in a directory")
    entry = history_entry(history, description, first)
    needed = 0 if state else len(description.copies) * layout.array_bytes // len(setup.directories)
    if taps.history is None:
        entry = with_slots(history, entry, description.dtype, first + steps)
    if entry.slots:  # the adjoint run makes a replay
        needed += replay_bytes(description)
    require_room(history, entry, description.dtype, directory, needed, first, first + steps)
    if taps.history is None:
        with_entry = replace(taps, snapshots=(*taps.snapshots, entry))
        setup = replace(setup, description=replace(setup.description, taps=with_entry))
        require_plan(setup)
    return setup, entry
