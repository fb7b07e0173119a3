"""This module prepares and executes passes. The module connects the plan, the kernel, the storage and the executor.

The right column says when memory is allocated:

prepare()  ──► Prepared: problem, kernel, machine (measured), plan                nothing allocated yet
Engine()   ──► plan proved legal and translated, window in memory, files open     everything allocated
run_pass() ──► one generation to the next                                         nothing allocated
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from outcrop import _core
from outcrop.errors import InputError
from outcrop.language.boundary import Boundary
from outcrop.language.compile import Calls, Kernel, compile_kernel
from outcrop.language.linearised import without_updates
from outcrop.language.stencil import Stencil
from outcrop.paths import nearest_existing
from outcrop.plan.history import ForwardCall, fields_read, listed, listed_calls, steps_of_pass
from outcrop.plan.plan import Plan
from outcrop.plan.planner import Planned, best_steps, find_scheme, schemes_for, smallest_budget_bytes
from outcrop.plan.problem import Problem
from outcrop.plan.tuner import rate_in_thick_slabs
from outcrop.run.acquisition.history import StateFiles
from outcrop.run.acquisition.pass_acquisition import (
    NO_ACQUISITION,
    Acquisition,
    AcquisitionResults,
    LeadInjected,
    PassAcquisition,
    lead_injected,
)
from outcrop.run.acquisition.recorder import Recorder
from outcrop.run.disk.entries import StatesEntry
from outcrop.run.disk.layout import PlaneLayout
from outcrop.run.disk.planes import ShardFile
from outcrop.run.disk.state import State
from outcrop.run.disk.storage import ScratchMaker, no_scratch
from outcrop.run.joint_plan import choose_plan, machine_for, require_machine_memory
from outcrop.run.progress import part_of_stage
from outcrop.run.setup import Setup
from outcrop.run.user_values import decode_signals
from outcrop.tiers import measure
from outcrop.tiers.discover import ThreadLayout, lay_out
from outcrop.tiers.update_rate import RateOfPlan, UpdateRateMeter, work_per_update

ArrayFiles: TypeAlias = Sequence["Path | ShardFile"]
"""The shards of an array, in the order of their planes."""

Signal: TypeAlias = "Sequence[float] | NDArray[np.float64]"
"""A sequence with one value for each step. The first value is for the first step of the simulation."""

Links: TypeAlias = "tuple[_core.Link | None, ...]"
"""The links to the neighbours of a rank, in the order of SIDES (plan/actions.py). An entry is None if the rank has no
neighbour at that side. If the tuple is shorter than SIDES, the missing links count as None."""
NO_LINKS: Links = (None, None, None, None)

WORTH_MEASURING_UPDATES = 5_000_000_000
"""The minimum work of a run, in cell updates of a heat equation, for which update rates are measured. For less work,
the measurement would take more time than a better plan saves."""
MEASURING_DISK = "measuring the disk, which can take a minute; later runs use the same measurement"
TOO_SHORT = "the run is too short to be worth measuring"


LARGE_GRID = (0, 0, 1 << 24, 1 << 24, 1 << 24)
"""The place in the grid that measurements use. All planes and rows of a measurement are inside the grid of
LARGE_GRID."""


class Scalars:
    """The scalars of a stencil, rounded to `dtype`, in the order in which kernels read them. The parameters come first,
    and the signals come next. If the stencil reads positions of cells, the numbers in `whole` come last.

    `parameters` contains the values that differ from the defaults. `signals` contains a value of each signal for each
    step. `whole` contains the first plane and the first row of this process in the whole grid. `whole` also contains
    the numbers of planes, of rows and of cells in a row of the whole grid (`Description.place_in_grid`)."""

    def __init__(
        self, stencil: Stencil, parameters: Mapping[str, float], signals: Mapping[str, Signal], dtype: str,
        whole: tuple[int, ...] = LARGE_GRID,
    ) -> None:  # fmt: skip
        self._parameters = np.array(stencil.scalars(parameters), dtype)
        self._signals = [np.asarray(signals.get(name, ()), dtype) for name in stencil.signals]
        self._whole = np.array(whole if stencil.positions else (), dtype)
        self._step = stencil.signals.index(stencil.step_signal) if stencil.step_signal else None
        self._dtype = np.dtype(dtype)
        self._count = len(self._parameters) + len(self._signals) + len(self._whole)

    @property
    def bytes_per_step(self) -> int:
        """The number of bytes of scalars for each step, or 0 if all steps have the same scalars."""
        return self._count * self._dtype.itemsize if self._signals else 0

    def of_steps(self, first: int, count: int) -> bytes:
        """Return the scalars of `count` steps from step `first` on. Without signals, all steps have the same scalars,
        and the result contains these scalars only once. A signal is 0 after its last value. Measurements need these
        zeros after the end of a signal, because a measurement can have more steps than the simulation."""
        rows = np.zeros((max(1, count) if self._signals else 1, self._count), self._dtype)
        rows[:, : len(self._parameters)] = self._parameters
        rows[:, self._count - len(self._whole) :] = self._whole
        for column, signal in enumerate(self._signals, len(self._parameters)):
            values = signal[first : first + len(rows)]
            rows[: len(values), column] = values
        if self._step is not None:
            rows[:, len(self._parameters) + self._step] = np.arange(first, first + len(rows))
        return rows.tobytes()


def pack_scalars(stencil: Stencil, values: Mapping[str, float], dtype: str) -> bytes:
    """Return the bytes of the parameters `values`, in the form that the kernel reads. All signals are 0."""
    return Scalars(stencil, values, {}, dtype).of_steps(0, 0)


def ring_specs(plan: Plan) -> list[tuple[int, int, bool]]:
    """Return three values for each ring of the window: the number of its planes, the number of bytes of a slot, and
    True if the ring is resident. A resident ring holds all planes of the grid for the whole run."""
    return [(ring.planes, ring.slot_bytes, ring.resident) for ring in plan.window.rings(plan.problem)]


def translated(plan: Plan) -> list[_core.Pass]:
    """Return the passes of a plan in the form that the executor needs. Most passes of a plan are one and the same
    `Pass` object, so each different object is translated only once."""
    different = {id(one): one for one in plan.passes}
    known = {key: _core.Pass(one.actions, one.levels) for key, one in different.items()}
    return [known[id(one)] for one in plan.passes]


@dataclass(frozen=True)
class Prepared(Planned):
    """A plan for this machine, together with the kernel, the scalars and the layout of threads that the plan needs.
    `rate` is the update rate of the plan if it belongs to the user's cache. Before planning, the speeds of the disk in
    the cache were multiplied by `storage_factor` (tiers/measure.py). `storage_factor` is None if the speeds of the disk
    do not come from the cache."""

    kernel: Kernel
    scalars: Scalars
    layout: ThreadLayout
    bind: str
    rate: RateOfPlan | None = None
    storage_factor: float | None = None

    @property
    def thread_layout(self) -> str:
        """A text for users: how many threads update cells, and on how many NUMA nodes."""
        return str(self.layout)

    @property
    def numa_nodes(self) -> int:
        """The number of NUMA nodes whose cores run the updating threads."""
        return self.layout.nodes


@dataclass(frozen=True)
class Seeds:
    """The seeds for the seals of one pass (core/outcrop/storage/checksums.hpp). The order is the order of the
    `Engine`'s arrays.

    `sources` has the seeds of the copies that the pass reads. `targets` has the seeds of the copies that the pass
    writes. `statics` has the seeds of the arrays that are only read. Each seed is below 2**32. If `sources`, `targets`
    and `statics` are empty, all seeds are 0."""

    sources: tuple[int, ...] = ()
    targets: tuple[int, ...] = ()
    statics: tuple[int, ...] = ()


NO_SEEDS = Seeds()


@dataclass(frozen=True)
class Sample:
    """The current counters of a run. All times are wall-clock seconds of the thread that interprets the plan. In
    `cells_updated`, all stages of a step together are one update. If blocks or ranks overlap, the same update is
    computed several times, and counts each time."""

    cells_updated: int
    bytes_read: int
    bytes_written: int
    seconds_read_wait: float
    seconds_write_wait: float
    seconds_update: float
    seconds_copy: float
    seconds_checksum: float
    seconds_commit: float
    bytes_snapshots: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    seconds_face_wait: float = 0
    seconds_transfer: float = 0


def prepare(setup: Setup, steps: int, first_step: int, may_write: bool = True) -> Prepared:
    """Compile the kernel, measure the machine, and plan `steps` steps after step `first_step`.

    If `may_write` is true, the measurement may write scratch files of up to 1 GiB to the directories of the run. The
    scratch files of the measurement exist only for a few seconds. Raises BudgetError if the budget is too small. The
    message of BudgetError names the smallest budget that works. Raises InputError for an unknown scheme, impossible
    sizes, or a missing compiler."""
    problem, description = setup.problem(steps, first_step), setup.description
    settings, stencil, states = description.settings, setup.kernel_stencil, description.states
    budget_bytes, scheme, given = settings.memory_bytes, settings.scheme, settings.given
    if may_write:  # a plan alone can be for another machine
        require_machine_memory(budget_bytes)
    if scheme != "auto":
        find_scheme(scheme)
    sides = Boundary(*problem.kernel_sides)  # type: ignore[arg-type]
    with part_of_stage("compiling the kernel"):
        kernel = compile_kernel(stencil, problem.dtype, boundary=sides)
    signals = decode_signals(description.signals)
    scalars = Scalars(stencil, description.parameters, signals, problem.dtype, description.place_in_grid)
    fits = budget_bytes >= smallest_budget_bytes(problem, scheme, given)
    work = work_per_update(stencil)
    worth = fits and problem.cells * problem.levels * work >= WORTH_MEASURING_UPDATES
    is_disk_measured = may_write and worth and problem.grid_bytes >= measure.MIN_GRID_BYTES
    with part_of_stage(MEASURING_DISK if is_disk_measured else "planning"):
        machine = machine_for(settings, setup.directories, problem, budget_bytes, may_write and worth, setup.group)
    if problem.histories and settings.io == "mmap":
        raise InputError("io mmap cannot read the states of another run; choose another io")
    listing = CallLists(stencil, states, problem, kernel)
    metered = listing.of_meter()
    beside = f" with {setup.group.ranks_on_same_node} ranks" if setup.group else ""
    rate = UpdateRateMeter(
        *metered, scalars.of_steps(0, 0), settings.threads, budget_bytes, worth, settings.bind, work,
        listing.lead_scalars, kernel=f"{kernel.path.stem}{beside}", has_factor=setup.group is None,
    )  # fmt: skip
    if problem.histories:
        schemes = schemes_for(metered[0], scheme, given)
        thick = rate_in_thick_slabs(metered[0], schemes, machine, budget_bytes, rate)
        steps = best_steps(problem, machine, budget_bytes, scheme, given, thick)
        kernel, problem = replace(kernel, calls=listing.of_pass(steps)), listed(problem, steps)
    whole = setup.whole_problem(problem.steps, first_step) if setup.group else None
    with part_of_stage("measuring the speed of updates, and planning" if worth else "planning"):
        choice = choose_plan(problem, machine, settings, rate, setup.group, description.part, whole)
    rate.keep()
    assumed = {}
    if not rate.is_measured:
        assumed["updates"] = "the memory is too small to measure in" if worth else TOO_SHORT
    places = [nearest_existing(path) for path in setup.directories]
    disk = measure.factor_key(places, settings.io)
    if machine.device.origin == measure.ASSUMED.origin:
        assumed["storage"] = measure.why_assumed(places, may_write, problem) if worth else TOO_SHORT
    return Prepared(
        problem, machine, budget_bytes, given, choice.plan, choice.considered,
        updates_origin=rate.origin, assumed=assumed,
        kernel=kernel, scalars=scalars, layout=lay_out(settings.threads, settings.bind), bind=settings.bind,
        rate=rate.of_plan(choice.plan.sizes), axes=description.axis_names,
        storage_factor=measure.factor_of(disk) if disk and machine.device.origin == "cached" else None,
    )  # fmt: skip


STEPS_METERED = 4
"""If passes recompute steps of a forward run, update rates are measured with a pass that recomputes STEPS_METERED
steps. With fewer steps, more of the recomputed values would stay in the caches than in a run."""


class CallLists:
    """The kernel calls for the passes of a run. The run can be an adjoint run that reads states of its forward run.
    `problem` contains the updates of one step, and `kernel` is the compiled `stencil`."""

    def __init__(self, stencil: Stencil, states: StatesEntry | None, problem: Problem, kernel: Kernel) -> None:
        self._problem, self._calls = problem, kernel.calls
        self._forward = states.forward if states else None
        self._plain: Calls = ()
        self._again: Sequence[ForwardCall] = ()
        sides = Boundary(*problem.kernel_sides)  # type: ignore[arg-type]
        if states and states.every > 1 and (plain := without_updates(stencil, states.sums)):
            # `self._plain` has the calls for steps that read no states: those of an even step, and those of an odd
            # step. The calls in `self._plain` use the numbers that the fields have in `stencil`.
            numbers = [stencil.fields.index(one) for one in plain.fields]
            for address, *copies in compile_kernel(plain, problem.dtype, boundary=sides).calls:
                read, written = (tuple((numbers[field], copy) for field, copy in one) for one in copies)
                self._plain = (*self._plain, (address, read, written))
        if self._forward:
            calls = compile_kernel(self._forward, problem.dtype, boundary=sides).calls
            pairs = zip(calls, self._forward.stages, strict=False)  # the calls of an even step
            self._again = [ForwardCall(call[0], stage.operands, stage.targets) for call, stage in pairs]

    def of_pass(self, steps: int) -> Calls:
        """Return the calls of a pass of `steps` steps that read states."""
        return listed_calls(self._problem, self._calls, self._plain, steps, self._again)

    def of_meter(self) -> tuple[Problem, Calls]:
        """Update rates are measured with a special problem. Return the problem for measurements, and the calls of its
        levels. The problem for measurements has the same pattern of updates as a pass, but only few steps. A long pass
        would need too much memory for a measurement, because the pass has many states, and each state needs a ring."""
        problem = self._problem
        if not problem.histories:
            return problem, self._calls
        again = min(STEPS_METERED, steps_of_pass(problem, 1)) if self._forward else 0
        few = again or problem.every * (1 + problem.every % 2)
        return listed(problem, few), self.of_pass(few)

    @property
    def lead_scalars(self) -> bytes:
        """The scalars of the steps that passes compute again. Measurements of update rates use the scalars that this
        property returns."""
        return pack_scalars(self._forward, {}, self._problem.dtype) if self._forward else b""


class Lead:
    """Some steps of a forward run are computed again by the passes of its adjoint run (plan/history.py). An object of
    this class has the inputs of the steps that are computed again.

    The manifest of the adjoint run contains the stencil of the forward run, so the adjoint run can be planned without
    the forward run. When the passes run, the parameters, the signals and the sources are read from `state`, the
    committed state of the forward run. Raises the errors that occur when data of the forward run are read."""

    def __init__(self, state: State, states: StatesEntry, stencil: Stencil, io: str) -> None:
        manifest = state.manifest
        self._stencil, self._last_step = stencil, states.steps
        signals = decode_signals(manifest.signals)
        self._scalars = Scalars(stencil, manifest.parameters, signals, manifest.dtype, manifest.place_in_grid)
        self._recorder = Recorder(state, [one.name for one in stencil.fields], io)

    @property
    def scalars_bytes(self) -> int:
        """The number of bytes of scalars for each step, or 0 if all steps have the same scalars."""
        return self._scalars.bytes_per_step

    def of_pass(self, problem: Problem, first_step: int) -> tuple[bytes, tuple[LeadInjected, ...]]:
        """Return the scalars and the sources of the steps that a pass computes again. The pass begins with step
        `first_step` of the adjoint run."""
        steps = -(-problem.lead // problem.lead_stages)
        first = self._last_step - first_step - problem.listed_steps
        found = []
        for one in self._recorder.injections(first, steps):
            name = self._stencil.fields[one.field].name
            last = max(place for place, stage in enumerate(self._stencil.stages) if one.field in stage.targets)
            fields = [_written(problem, name, step * problem.lead_stages + last) for step in range(steps)]
            found.append(lead_injected(one, problem, steps, last, fields))
        return self._scalars.of_steps(first, steps), tuple(found)


def _written(problem: Problem, name: str, level: int) -> int:
    """The steps of the forward run that a pass computes again are called the lead. Each level of the lead writes values
    of the field `name` to a field of the problem. Return the number of the field of the problem to which `level`
    writes. If the lead ends before `level`, the result is 0 and is not used."""
    targets = problem.updates[level].targets if level < problem.lead else ()
    return next((number for number in targets if problem.fields[number].history == name), 0)


class Engine:
    """Executes the passes of a run. An `Engine` holds the window in memory, the open files, and the plan in the
    executor's form.

    `arrays_a` and `arrays_b` contain the files of the two copies of the state. `arrays_b` is empty for a run in place,
    which has only one copy. `statics` contains the files of fields that are only read. If `checksum` is true, checksums
    and seals of planes are written and verified. If `lock` is true, the window cannot be swapped out. `states` contains
    the files of the states that passes read. `lead` contains the inputs of the steps that passes compute again. `links`
    contains the links to the neighbours of a part. Raises IllegalPlan, before any file is opened, if the plan cannot be
    proved legal. Raises InputError if the window cannot be locked."""

    def __init__(
        self, prepared: Prepared, arrays_a: Sequence[ArrayFiles], arrays_b: Sequence[ArrayFiles],
        statics: Sequence[ArrayFiles], layout: PlaneLayout, io: str = "auto", checksum: bool = True,
        scratch: ScratchMaker = no_scratch, lock: bool = False, states: StateFiles | None = None,
        lead: Lead | None = None, links: Links = NO_LINKS,
    ) -> None:  # fmt: skip
        prepared.require_legal()
        plan = prepared.plan
        self._plan, self._passes, self._scalars = plan, translated(plan), prepared.scalars
        self._planes_per_file = layout.shard_planes
        every = [file for array in (*arrays_a, *arrays_b, *statics) for file in array]
        files = [str(file) if isinstance(file, Path) else file for file in every]
        first = list(range(0, len(files), layout.shards))
        state, both = len(arrays_a), len(arrays_a) + len(arrays_b)
        self._copies = (first[:state], first[state:both] or first[:state])
        self._statics, self._states, self._lead = first[both:], states, lead
        if states is not None:  # each pass replaces these files by the states that it reads
            self._first_state = len(files)
            files += files[:1] * plan.problem.histories
        self._scratch_file = len(files)
        with scratch(plan.scratch_bytes) as more:
            self._store = _core.Store([*files, *more], backend=io, direct=True, writable=True, scratch=len(more))
        self._executor = _core.make_executor(
            prepared.problem, plan.sizes, rings=ring_specs(plan), fields=plan.problem.fields,
            calls=prepared.kernel.calls, scalars_bytes=prepared.scalars.bytes_per_step,
            max_levels=max(one.levels for one in plan.passes), threads=prepared.machine.threads, checksum=checksum,
            store=self._store, lock=lock, bind=prepared.bind,
            lead_scalars_bytes=lead.scalars_bytes if lead else 0, links=links,
        )  # fmt: skip
        assert self._executor.memory_bytes == plan.window.bytes, "the model must predict what the window takes"

    @property
    def io(self) -> str:
        return self._store.name

    @property
    def store(self) -> _core.Store:
        """The store with the open files. Both copies of the state come first, and the static fields follow. Do not use
        this store during a pass."""
        return self._store

    @property
    def direct(self) -> bool:
        """True if transfers bypass the page cache."""
        return self._store.direct

    @property
    def memory_bytes(self) -> int:
        return self._executor.memory_bytes

    def run_pass(
        self, index: int, source: int, first_step: int = 0, acquisition: Acquisition = NO_ACQUISITION,
        seeds: Seeds = NO_SEEDS, before_write: Callable[[], None] | None = None,
    ) -> AcquisitionResults:  # fmt: skip
        """Run pass `index` of the plan. The pass reads copy `source` (0 or 1) and writes the other copy. At its end,
        the pass flushes the written copy and the snapshots to their devices. Other Python threads can run during a
        pass.

        `first_step` is counted from the beginning of the simulation. `acquisition` is for the whole run. `seeds` are
        for the planes that the pass reads and writes. `before_write` is called once, before the first write to the
        other copy. Raises StorageError, CorruptionError, InterruptedRun or an error of `before_write`. Raises
        InputError for sources in the rim. If sources are in the rim, no file has been changed."""
        problem = self._plan.problem
        steps, lead_scalars = problem.steps_of(self._plan.passes[index].levels), b""
        wanted = PassAcquisition.of(acquisition, self._plan, first_step, steps)
        if self._lead is not None:
            lead_scalars, injections = self._lead.of_pass(problem, first_step)
            wanted = replace(wanted, lead_injections=injections)
        history = self._open_states(first_step, self._plan.passes[index].levels)
        sums, snapshot_sums = self._executor.run(
            self._passes[index], self._copies[source], self._copies[1 - source], self._statics, self._scratch_file,
            self._planes_per_file, self._plan.fringe_rows, self._scalars.of_steps(first_step, steps), wanted, seeds,
            history, lead_scalars, self._plan.recomputed_rows, before_write,
        )  # fmt: skip
        return wanted.results(sums, snapshot_sums)

    def _open_states(self, first_step: int, levels: int) -> list[tuple[int, int]]:
        """Open the states that a pass reads. Return two numbers for each state: the number of its file, and the
        checksum of its values. The checksum is 0 for a state that the pass does not read."""
        if self._states is None:
            return []
        found, read = [], fields_read(self._plan.problem, levels)
        histories = [(number, one) for number, one in enumerate(self._plan.problem.fields) if one.is_history]
        for file, (number, one) in enumerate(histories, self._first_state):
            checksum = 0
            if number in read:
                name, checksum = self._states.of(one.history, one.state + first_step, one.later)
                self._store.replace(file, name)
            found.append((file, checksum))
        return found

    def sample(self) -> Sample:
        counters: dict[str, Any] = self._executor.counters()
        problem = self._plan.problem  # the core counts a cell once for each level
        counters["cells_updated"] = counters["cells_updated"] * problem.steps // max(1, problem.levels)
        return Sample(**counters)

    def not_finite(self) -> list[int]:
        """Return the numbers of the arrays of the state to which the last pass wrote NaN or infinity. The executor
        searches only a sample of the updated rows (PlaneSums in core/outcrop/exec/transfers.hpp)."""
        return self._executor.not_finite()

    def cancel(self) -> None:
        """Stop the current `run_pass`, which then raises InterruptedRun. Any thread may call this method."""
        self._executor.cancel()

    def close(self) -> None:
        del self._executor
        self._store.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
