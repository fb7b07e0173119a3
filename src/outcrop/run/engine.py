"""Joins plan, kernel, storage and executor: the way from a problem to passes that run.

prepare()  ──► Prepared: problem, kernel, machine (measured), plan                nothing allocated yet
Engine()   ──► plan proved legal and translated, window in memory, files open     everything allocated
run_pass() ──► one generation to the next                                         nothing allocated
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from outcrop import _core
from outcrop.language.boundary import Boundary
from outcrop.language.compile import Kernel, compile_kernel
from outcrop.language.program import Apply, Stage
from outcrop.language.stencil import Stencil
from outcrop.plan.given_sizes import FREE, GivenSizes
from outcrop.plan.machine import Machine
from outcrop.plan.plan import Plan
from outcrop.plan.planner import Planned, choose, find_scheme, smallest_budget_bytes
from outcrop.plan.problem import FieldPlan, Operand, Problem, StagePlan
from outcrop.run.acquisition.pass_acquisition import NO_ACQUISITION, Acquisition, AcquisitionResults, PassAcquisition
from outcrop.run.disk.layout import PlaneLayout
from outcrop.run.disk.planes import ShardFile
from outcrop.run.disk.storage import ScratchMaker, no_scratch
from outcrop.tiers import discover, measure
from outcrop.tiers.discover import ThreadLayout, lay_out
from outcrop.tiers.update_rate import UpdateRateMeter

ArrayFiles: TypeAlias = Sequence["Path | ShardFile"]
"""The shards of an array, in the order of their planes."""
Signal: TypeAlias = "Sequence[float] | NDArray[np.float64]"
"""A value for every step, counted from the first one of a simulation."""

WORTH_MEASURING_UPDATES = 5_000_000_000
"""A run with fewer cell updates of a heat equation's work takes less time than measuring would save."""
TOO_SHORT = "the run is too short to be worth measuring"
HEAT_OPERATIONS = 8
"""Additions and multiplications of an update of the simplest heat equation in three dimensions."""


def field_plans(stencil: Stencil) -> tuple[FieldPlan, ...]:
    """The fields of a stencil as planning sees them, in its order."""
    return tuple(
        FieldPlan(storage.is_static, storage.is_double, storage.history == 2, bool(copy), field.name)
        for field, storage, copy in zip(stencil.fields, stencil.storage, stencil.newest_copies(1), strict=True)
    )


def stage_plans(stencil: Stencil) -> tuple[StagePlan, ...]:
    """Its stages: what each reads and writes. The newest value of a target is read, too: cells of a rim keep it."""
    return tuple(_stage_plan(stage) for stage in stencil.stages)


def _stage_plan(stage: Stage) -> StagePlan:
    neighbours: dict[tuple[int, int], bool] = {(field, 0): False for field in stage.targets}
    for load in stage.program.loads:
        key = load.field, load.age
        neighbours[key] = neighbours.get(key, False) or load.offset != (0, 0, 0)
    return StagePlan(tuple(Operand(field, age, far) for (field, age), far in neighbours.items()), stage.targets)


class Scalars:
    """Parameters and signals of a stencil, rounded to `dtype`, in the order in which kernels read them.

    `parameters` are those that differ from their defaults; `signals` have a value for every step."""

    def __init__(
        self, stencil: Stencil, parameters: Mapping[str, float], signals: Mapping[str, Signal], dtype: str
    ) -> None:
        self._parameters = np.array(stencil.scalars(parameters), dtype)
        self._signals = [np.asarray(signals.get(name, ()), dtype) for name in stencil.signals]
        self._dtype, self._count = np.dtype(dtype), len(self._parameters) + len(self._signals)

    @property
    def bytes_per_step(self) -> int:
        """Bytes from the scalars of one step to those of the next; 0 if all steps have the same."""
        return self._count * self._dtype.itemsize if self._signals else 0

    def of_steps(self, first: int, count: int) -> bytes:
        """The scalars of `count` steps from step `first` on, or of any step if there are no signals. A signal is 0 in
        steps beyond its end, for measurements."""
        rows = np.zeros((max(1, count) if self._signals else 1, self._count), self._dtype)
        rows[:, : len(self._parameters)] = self._parameters
        for column, signal in enumerate(self._signals, len(self._parameters)):
            values = signal[first : first + len(rows)]
            rows[: len(values), column] = values
        return rows.tobytes()


def pack_scalars(stencil: Stencil, values: Mapping[str, float], dtype: str) -> bytes:
    """Parameter values in the stencil's order, rounded to `dtype`, as the kernel reads them; signals are 0."""
    return Scalars(stencil, values, {}, dtype).of_steps(0, 0)


def ring_specs(plan: Plan) -> list[tuple[int, int, bool]]:
    """For each ring of the window its planes, the bytes of a slot, and whether it always holds all planes."""
    return [(ring.planes, ring.slot_bytes, ring.resident) for ring in plan.window.rings(plan.problem)]


def translated(plan: Plan) -> list[_core.Pass]:
    """The passes of a plan as the executor runs them. A pass that is repeated is translated once."""
    different = {id(one): one for one in plan.passes}
    known = {key: _core.Pass(one.actions, one.levels) for key, one in different.items()}
    return [known[id(one)] for one in plan.passes]


@dataclass(frozen=True)
class Prepared(Planned):
    """Everything decided before the first byte moves: a plan for this machine, and what runs it."""

    kernel: Kernel
    scalars: Scalars
    layout: ThreadLayout
    bind: str

    @property
    def thread_layout(self) -> str:
        """The number of threads that update, and of their NUMA nodes, in words."""
        return str(self.layout)

    @property
    def numa_nodes(self) -> int:
        """The number of NUMA nodes of these threads."""
        return self.layout.nodes


@dataclass(frozen=True)
class Seeds:
    """The seeds of the seals of a pass, by run, array and pass of a plane (core/outcrop/storage/checksums.hpp).

    One for each array of the state as the pass reads it, one for each as it writes it, and one for each array that is
    only read, in the order of the arrays of the `Engine`; each is below 2**32. None: 0 for all."""

    sources: tuple[int, ...] = ()
    targets: tuple[int, ...] = ()
    statics: tuple[int, ...] = ()


NO_SEEDS = Seeds()


@dataclass(frozen=True)
class Sample:
    """Counters of a run so far; seconds are wall-clock seconds of the thread that interprets the plan.

    A cell counts once for each step, however many stages that has."""

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


def work_per_update(stencil: Stencil) -> float:
    """The time to update a cell relative to a heat equation, by the number of operations; the mean of the stages."""
    programs = [stage.program for stage in stencil.stages]
    operations = sum(
        isinstance(operation, Apply) and not uniform
        for program in programs
        for operation, uniform in zip(program.operations, program.uniform, strict=True)
    )
    return max(1.0, operations / len(programs) / HEAT_OPERATIONS)


def prepare(
    stencil: Stencil,
    parameters: Mapping[str, float],
    problem: Problem,
    directories: Sequence[Path],
    budget_bytes: int,
    threads: int,
    scheme: str = "auto",
    io: str = "auto",
    may_write: bool = True,
    bind: str = "none",
    given: GivenSizes = FREE,
    signals: Mapping[str, Signal] | None = None,
) -> Prepared:
    """Compile, measure and plan. `may_write` allows a scratch file of up to 1 GiB for a few seconds in `directories`;
    `signals` have a value for every step, counted from the first one of the simulation.

    Raises BudgetError with the smallest budget that works, InputError for an unknown scheme, sizes that cannot be, or a
    missing compiler.
    """
    if scheme != "auto":
        find_scheme(scheme)
    layout = lay_out(threads, bind)
    kernel = compile_kernel(stencil, problem.dtype, boundary=Boundary(*problem.sides))  # type: ignore[arg-type]
    scalars = Scalars(stencil, parameters, signals or {}, problem.dtype)
    fits = budget_bytes >= smallest_budget_bytes(problem, scheme, given)
    work = work_per_update(stencil)
    worth = fits and problem.cells * problem.levels * work >= WORTH_MEASURING_UPDATES
    machine = Machine(
        threads=threads,
        memory_bytes=discover.memory_bytes(),
        cache_bytes=discover.caches().second_bytes,
        last_cache_bytes=discover.caches().last_bytes * layout.nodes,
        checksum_bytes_per_second=_core.measure_checksum_rate(threads, 1 << 20, min(budget_bytes, 64 << 20)),
        device=measure.device(directories, io, may_write and worth, problem),
    )
    rate = UpdateRateMeter(problem, kernel.calls, scalars.of_steps(0, 0), threads, budget_bytes, worth, bind, work)
    choice = choose(problem, machine, budget_bytes, scheme, rate, given)
    assumed = {}
    if not rate.is_measured:
        assumed["updates"] = "the memory is too small to measure in" if worth else TOO_SHORT
    if machine.device.origin == measure.ASSUMED.origin:
        assumed["storage"] = measure.why_assumed(directories, may_write, problem) if worth else TOO_SHORT
    return Prepared(
        problem, machine, budget_bytes, given, choice.plan, choice.considered,
        updates_origin="assumed" if "updates" in assumed else "measured", assumed=assumed,
        kernel=kernel, scalars=scalars, layout=layout, bind=bind,
    )  # fmt: skip


class Engine:
    """A window in memory, the open files of a run, and the plan as the executor runs it.

    The files are those of each array of the state in both turns (`arrays_b` is empty for a run in place), and of the
    fields that nothing updates. `checksum`: write and compare checksums and seals. `lock`: keep the window from being
    swapped out. Raises IllegalPlan before anything is opened, if the plan cannot be proved legal, and InputError if the
    window cannot be locked."""

    def __init__(
        self,
        prepared: Prepared,
        arrays_a: Sequence[ArrayFiles],
        arrays_b: Sequence[ArrayFiles],
        statics: Sequence[ArrayFiles],
        layout: PlaneLayout,
        io: str = "auto",
        checksum: bool = True,
        scratch: ScratchMaker = no_scratch,
        lock: bool = False,
    ) -> None:
        prepared.require_legal()
        plan = prepared.plan
        self._plan, self._passes, self._scalars = plan, translated(plan), prepared.scalars
        self._planes_per_file = layout.shard_planes
        every = [file for array in (*arrays_a, *arrays_b, *statics) for file in array]
        files = [str(file) if isinstance(file, Path) else file for file in every]
        first = list(range(0, len(files), layout.shards))
        state, both = len(arrays_a), len(arrays_a) + len(arrays_b)
        self._turns = (first[:state], first[state:both] or first[:state])
        self._statics, self._scratch_file = first[both:], len(files)
        with scratch(plan.scratch_bytes) as more:
            self._store = _core.Store([*files, *more], backend=io, direct=True, writable=True, scratch=len(more))
        self._executor = _core.make_executor(
            prepared.problem,
            plan.sizes,
            rings=ring_specs(plan),
            fields=plan.problem.fields,
            calls=prepared.kernel.calls,
            scalars_bytes=prepared.scalars.bytes_per_step,
            max_levels=max(one.levels for one in plan.passes),
            threads=prepared.machine.threads,
            checksum=checksum,
            store=self._store,
            lock=lock,
            bind=prepared.bind,
        )
        assert self._executor.memory_bytes == plan.window.bytes, "the model must predict what the window takes"

    @property
    def io(self) -> str:
        """Name of the storage backend in use."""
        return self._store.name

    @property
    def store(self) -> _core.Store:
        """The open files: those of the first turn, then those of the second. Do not use it during a pass."""
        return self._store

    @property
    def direct(self) -> bool:
        """Whether transfers bypass the page cache."""
        return self._store.direct

    @property
    def memory_bytes(self) -> int:
        """Bytes of the window."""
        return self._executor.memory_bytes

    def run_pass(
        self,
        index: int,
        source: int,
        first_step: int = 0,
        acquisition: Acquisition = NO_ACQUISITION,
        seeds: Seeds = NO_SEEDS,
    ) -> AcquisitionResults:
        """Run pass `index` of the plan from the arrays of turn `source` (0 or 1) to the others and flush these to their
        devices. `first_step` is its first step, counted from the beginning of the simulation. `acquisition` has the
        point sources, receivers, sums and snapshots of the run; snapshots of these steps are on their devices when this
        returns. Planes read must have the seals of `seeds`, planes written get them.

        Blocks without holding the interpreter. Raises StorageError, CorruptionError or InterruptedRun, and, before
        anything is changed, InputError for sources that lie in the rim.
        """
        steps = self._plan.passes[index].levels // self._plan.problem.stages
        wanted = PassAcquisition.of(acquisition, self._plan, first_step, steps)
        sums, snapshot_sums = self._executor.run(
            self._passes[index],
            self._turns[source],
            self._turns[1 - source],
            self._statics,
            self._scratch_file,
            self._planes_per_file,
            self._plan.fringe_rows,
            self._scalars.of_steps(first_step, steps),
            wanted,
            seeds,
        )
        return wanted.results(sums, snapshot_sums)

    def sample(self) -> Sample:
        """Counters so far; from any thread."""
        counters: dict[str, Any] = self._executor.counters()
        counters["cells_updated"] //= self._plan.problem.stages  # the core counts levels
        return Sample(**counters)

    def cancel(self) -> None:
        """Make a running `run_pass` raise InterruptedRun soon; from any thread."""
        self._executor.cancel()

    def close(self) -> None:
        """Release the memory and close the files."""
        del self._executor
        self._store.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
