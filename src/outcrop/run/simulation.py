"""`Simulation`: a run of a stencil. A `Simulation` connects the state on disk, the initial values, the engine, the
progress and the report.

This list shows what each call does:

Simulation(...)    ──► everything checked (set_up), nothing created
sim["u"] = values  ──► directories and files created, values streamed in, generation 0 committed
sim["m"] = values  ──► values of a field that is only read
sim.run(steps)     ──► prepare ─► prove the plan ─► fields without values ─► Engine ─► per pass: run, commit ─► Report
sim["u"][z]        ──► planes of the committed generation, their checksums verified
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outcrop.axes import Shape
from outcrop.display import Described
from outcrop.errors import InputError, by_caller, shown
from outcrop.language.stencil import Stencil
from outcrop.run.acquisition.history import HistoryView, as_history, begin_history
from outcrop.run.acquisition.parts import Everyone
from outcrop.run.acquisition.views import NormRecords, SnapshotView, SnapshotViews, Traces
from outcrop.run.definition import initial_planes, require_unchanged
from outcrop.run.disk.entries import SnapshotsEntry, StatesEntry
from outcrop.run.disk.manifest import Description
from outcrop.run.disk.planes import PlaneSource
from outcrop.run.disk.state import State
from outcrop.run.disk.values import FieldView, assign, own_rows, padded, require_fields, require_given
from outcrop.run.engine import Prepared, prepare
from outcrop.run.first_values import begin_run, replace_old, require_room
from outcrop.run.inputs.initial import cache_within, checked_planes, named_source, scan_finite
from outcrop.run.inputs.input_array import InputArray
from outcrop.run.joint_plan import require_machine_memory
from outcrop.run.opening import needs_to_move, open_run, require_alone, take_parts
from outcrop.run.options import History, OnSnapshot, RunOptions, checks_keywords, takes_options
from outcrop.run.passes import execute
from outcrop.run.progress import KINDS, Whole, stage
from outcrop.run.ranks.agreement import agree
from outcrop.run.ranks.group import together
from outcrop.run.ranks.links import RankPeers
from outcrop.run.ranks.whole import GroupSnapshots, GroupView, PartsSnapshots, PartsView, WholeView
from outcrop.run.replay import parts_of, run_segments
from outcrop.run.report import Report
from outcrop.run.setup import Setup, as_steps, missing_steps, set_up
from outcrop.run.stable import Ranges, refuse_unstable, watched
from outcrop.run.summaries import run_rows
from outcrop.run.user_values import Coordinates, decode_signals, require_mapping, require_steps

if TYPE_CHECKING:
    from outcrop.run.adjoint import AdjointRun
    from outcrop.run.misfit import MisfitFunction


class Simulation(Described):
    """A run of a stencil on a grid. The run is kept in a directory or on a raw block device.

    The arguments are the options of `RunOptions` in the same order, or one `RunOptions` object. All arguments are
    checked when the object is made. `run` or the first assignment creates the directories. An updated field that is not
    assigned starts with the values of `init`, or with zeros. The previous values of such a field start with the same
    values as the field. Fields that are only read must get values from `init` or from an assignment. Sources,
    receivers, snapshots and norms are stored with the run, so `oc.open` does not need them again.

    Raises InputError for wrong options, and BudgetError with the smallest budget that works."""

    @takes_options(RunOptions, RunOptions, Setup)
    def __init__(self, options: RunOptions | Setup) -> None:
        setup = options if isinstance(options, Setup) else set_up(options)
        self._setup, self._state = setup, setup.state
        self._ranges: Ranges = dict(setup.state.manifest.ranges) if setup.state else {}
        self._prepared: list[Prepared] = []  # the last plans; an adjoint run may need two of them
        self._has_checked_values = not setup.check_finite
        self._why_no_history = ""
        # for each field that was computed from `.data` of Devito's functions, the names of these functions
        self._from_data: dict[str, set[str]] = {}

    def __repr__(self) -> str:
        return f"<Simulation of {self.stencil.name} on {self.shape} in {str(self.directory)!r} at step {self.step}>"

    def _title(self) -> str:
        return f"Simulation of {self.stencil.name}"

    def _rows(self) -> Iterator[tuple[str, str]]:
        return run_rows(self._description, self._state.manifest if self._state else None, self.directory)

    @property
    def setup(self) -> Setup:
        """The checked options of the run."""
        return self._setup

    @property
    def stencil(self) -> Stencil:
        """The stencil that each step computes."""
        return self._setup.stencil

    @property
    def _description(self) -> Description:
        return self._setup.description

    @property
    def shape(self) -> Shape:
        """The number of cells of the whole grid along each of the stencil's axes: (nz, ny, nx), (ny, nx) or (nx,)."""
        part, shape = self._description.part, self._description.own_shape
        return shape if part is None else self._description.whole_shape

    @property
    def rank(self) -> int:
        """The number of this rank, or 0 if one process computes the run."""
        return self._setup.group.rank if self._setup.group else 0

    @property
    def rows(self) -> tuple[int, int]:
        """The first row along y that this rank computes, and the row after its last row. If one process computes the
        run, the range has all rows."""
        return self._description.rows

    @property
    def planes(self) -> tuple[int, int]:
        """The first plane along z that this rank computes, and the plane after its last plane. Usually, the range has
        all planes."""
        return self._description.planes

    @property
    def coordinates(self) -> Coordinates | None:
        """The coordinates of cells, or None if the options gave no coordinates."""
        return self._description.own_coordinates

    @property
    def traces(self) -> Traces:
        """A mapping with the traces of all receivers. In the mapping, each key is the name of receivers. A trace is a
        float64 array of shape (committed steps, points). In a run of several ranks, each rank gets the values of all
        points, and all ranks must read the trace together."""
        return Traces(self.reader(), self._description, self._everyone, self._states_of_parts)

    @property
    def norms(self) -> NormRecords:
        """A mapping with the norms of fields. Each key is the name of a field. The norms of a field are an array with a
        row for each recorded step: step, sum, squares, min and max. Norms include the cells of the rim and the cells of
        all ranks. In a run of several ranks, all ranks must read the norms together."""
        return NormRecords(self.reader(), self._description, self._everyone, self._states_of_parts)

    @property
    def _states_of_parts(self) -> Callable[[], Sequence[State]] | None:
        """A function that returns all parts at the same step. None if this simulation does not read all parts."""
        if self._setup.parts is None:
            return None
        parts = self._setup.parts.reader()

        def read() -> Sequence[State]:
            parts.refresh()
            return parts.states

        return read

    @property
    def _everyone(self) -> Everyone | None:
        return RankPeers(self._setup.group).everyone if self._setup.group else None

    @property
    def snapshots(self) -> SnapshotViews:
        """A mapping with the snapshots of fields. Each key is the name of a field, such as "u" or "side/u". The
        snapshots of a field are indexed like an array with the axes (time, z, y, x). In a run of several ranks, each
        rank gets the whole box, and all ranks must index the snapshots together."""
        reader, group, parts = self.reader(), self._setup.group, self._setup.parts
        whole: Callable[[SnapshotsEntry, str], SnapshotView] | None = None
        if parts is not None:
            whole = partial(PartsSnapshots, parts.reader())
        elif group is not None and reader is not None:
            whole = partial(GroupSnapshots, group, reader)
        return SnapshotViews(reader, self._description, whole)

    @property
    def history(self) -> HistoryView:
        """The states that `run(history=...)` has kept. Raises InputError if this run keeps no history."""
        reader = self.reader()
        if reader is not None:
            reader.refresh()  # another object may have freed the history
        entry = reader.manifest.taps.history if reader else None
        if reader is None or entry is None:
            remedy = ("start a new run with" if self.step else "give") + " run(steps, history='all')"
            raise InputError(f"{self.directory} keeps no history{self._why_no_history}; {remedy}")
        return HistoryView(reader, entry)

    def reader(self) -> State | None:
        """Return a second `State` for reading, with its own file descriptors. Return None if there is no run yet."""
        return self._state.reader() if self._state else None

    def require_fields(self, given: Iterable[str] = ()) -> None:
        """Raise InputError when a static field has no values. `given` contains the names of fields that will get values
        before the first step. Also raise InputError when a run that was opened from disk has no values of its state.
        Only a new run may begin with zeros."""
        known = {*self._filled, *given}
        require_fields(self._description, known)
        known |= self.stencil.older_values.keys()
        missing = [entry.name for entry in self._description.state if entry.name not in known and not entry.is_previous]
        if self._setup.state is not None and not self._setup.state.has_values and missing:
            raise InputError(
                f"{self.directory} has no values of {' and '.join(missing)}: it was interrupted before they were "
                "written; "
                + by_caller("start it again with outcrop run", f"start it again, or assign sim[{missing[0]!r}] = ...")
            )

    @property
    def _filled(self) -> Collection[str]:
        return self._state.manifest.filled if self._state else ()

    @property
    def states(self) -> StatesEntry | None:
        """The states of the forward run that an adjoint run reads. None if this run reads no states."""
        return self._description.states

    @property
    def memory_bytes(self) -> int:
        """The memory budget of the run in bytes."""
        return self._description.settings.memory_bytes

    @property
    def directory(self) -> Path:
        """The run's own directory."""
        return self._setup.directories[0]

    @property
    def step(self) -> int:
        """The number of time steps from the initial values to the committed state."""
        return self._state.manifest.step if self._state else 0

    @property
    def remaining_steps(self) -> int:
        """The number of requested steps that are not committed yet."""
        return self._state.manifest.target_step - self._state.manifest.step if self._state else 0

    def __getitem__(self, name: str) -> FieldView | WholeView:
        """Return a view of a field, indexed like an array. "u.previous" means the previous values of "u". In a run of
        several ranks, the view has the whole grid, and all ranks must index the view together."""
        self._description.entry(name)
        reader, group, parts = self.reader(), self._setup.group, self._setup.parts
        if reader is None:
            raise InputError(f"{self.directory} holds no values yet{self._description.how_to_give(name)}")
        if parts is not None:
            return PartsView(parts.reader(), name)
        if group is not None:
            return GroupView(group, reader, name)
        return FieldView(reader, name)

    def __setitem__(self, name: str, values: object) -> None:
        """Write values to a field, plane by plane. `values` is an array, a zarr array, a function (z0, z1) -> planes,
        or a text that `--init` accepts. A wrong shape or type raises InputError before any file is created."""
        self.assign({name: values})

    def assign(self, values: Mapping[str, object]) -> None:
        """Write values to several fields, plane by plane. Missing directories are created first. If the first
        assignment fails, all new directories and files are removed. A field that is only read can be assigned again
        until the first step."""
        require_mapping(values, "values", "u")
        require_given(self._description, self.stencil, self._setup.terms, values, is_new=self._setup.state is None)
        cache_bytes = cache_within(self.memory_bytes) // max(1, len(values))
        names = self._description.axis_names
        sources = {name: named_source(name, one, self.shape, cache_bytes, names) for name, one in values.items()}
        if self._setup.check_finite:
            for source in sources.values():
                scan_finite(source, self._description.dtype, names)
        self._assign_sources(sources)

    def _assign_sources(self, sources: Mapping[str, InputArray]) -> None:
        dtype = self._description.dtype
        planes = {name: checked_planes(one, dtype, check_finite=False) for name, one in sources.items()}
        is_apart = all(one.is_apart for one in sources.values())
        self.assign_planes({name: padded(one, self._description) for name, one in planes.items()}, is_apart)

    def assign_planes(self, planes: Mapping[str, PlaneSource], is_apart: bool = True) -> None:
        """Assign values to several arrays, as `assign` does. `planes` maps the name of each array to a function that
        returns its planes on the engine's three axes, including the padding. `is_apart` is False if a value may come
        from a run that this run replaces."""
        if planes:
            self._take_parts()
            with together(self._setup.group):
                self._assign_planes(planes, is_apart)

    def _lacking(self, given: Iterable[str] = ()) -> set[str]:
        """Return the names of the arrays that must get values before the first step. Names in `given` are left out."""
        needed = {*(entry.name for entry in self._description.given), *self._setup.initial}
        return needed - {*self._filled, *given}

    def _assign_planes(self, planes: Mapping[str, PlaneSource], is_apart: bool) -> None:
        setup, description = self._setup, self._description
        require_unchanged(setup.lowered)
        io, static = description.settings.io, {entry.name for entry in description.given}
        ranges = {name: ends for name, ends in self._ranges.items() if name not in planes}

        def check() -> None:
            if not self.step:
                refuse_unstable(self.stencil, description, ranges)

        planes = {
            name: watched(name, one, description, ranges, check) if name in static else one
            for name, one in planes.items()
        }
        planes = {name: own_rows(one, description) for name, one in planes.items()}
        self._from_data = {name: one for name, one in self._from_data.items() if name not in planes}
        outdated = [name for name, one in self._from_data.items() if not one.isdisjoint(planes)]
        if self._state is not None and setup.group is not None:
            with self._state.locked():
                agree(setup.group, self._state)
                assign(self._state, planes, io, lambda: setup.group and setup.group.allgather(None), outdated)
                agree(setup.group, self._state)
        elif self._state is not None:
            assign(self._state, planes, io, outdated=outdated)
        else:
            require_machine_memory(self.memory_bytes)
            steps = self._prepared[-1].problem.steps if self._prepared else setup.steps or 0
            self._state = begin_run(setup, steps, planes, is_apart, not self._lacking(planes))
        if not self._lacking():
            replace_old(self._state, list(setup.directories))
        self._ranges = ranges
        if static & planes.keys():
            with self._state.locked():
                finite = {name: ends for name, ends in ranges.items() if all(map(math.isfinite, ends))}
                self._state.change(ranges=finite)

    @checks_keywords
    def plan(self, steps: int | None = None) -> Prepared:
        """Return the plan of `run(steps)` with its predicted cost. The method compiles the kernel and changes no
        directory. If the first pass of an adjoint run is shorter, the plan of the later passes is returned."""
        with together(self._setup.group):
            return self._prepare(self._parts(steps)[-1], may_write=False)

    def prepare(self, steps: int | None = None) -> Prepared:
        """Compile the kernel, measure the storage for long runs, and prove that the plan of `run(steps)` is legal.
        Return the plan, as `plan` does. Raises IllegalPlan, an AssertionError, if a bug in Outcrop has made an illegal
        plan."""
        parts = self._parts(steps)
        self._take_parts()
        with together(self._setup.group):
            return [self._prepare_part(one) for one in parts][-1]

    def _prepare_part(self, steps: int) -> Prepared:
        """Prepare a part of a run. Use an earlier plan again if its number of steps and its phase are the same. The
        phase says which steps of a pass read states."""
        phase = self._setup.problem(steps, self.step).phase
        for known in self._prepared:
            if (known.problem.steps, known.problem.phase) == (steps, phase):
                return known
        # The lock tells other processes that this process continues the run. Nothing is changed before the plan is
        # legal.
        with self._state.locked(check=False) if self._state else contextlib.nullcontext():
            prepared = self._prepare(steps, may_write=True)
            prepared.require_legal()
            require_room(self._setup, self._state, prepared.plan.scratch_bytes)
        self._prepared = [*self._prepared[-1:], prepared]
        return prepared

    def check_values(self) -> None:
        """If `check_finite` is set, read the option `init` once. Raises InputError for NaN and infinity."""
        with together(self._setup.group):
            self._check_values()

    def _check_values(self) -> None:
        if not self._has_checked_values:
            for source in self.initial_values.values():
                scan_finite(source, self._description.dtype)
        self._has_checked_values = True

    @property
    def initial_values(self) -> dict[str, InputArray]:
        """The initial values that the options give for arrays without values."""
        return {name: one for name, one in self._setup.initial.items() if name not in self._filled}

    def fill(self) -> None:
        """Write initial values to the arrays that have no values. If the options give no values for an array of the
        state, it gets zeros. Missing directories are created. Raises InputError when a static field has no values."""
        with together(self._setup.group):
            self._fill()

    def _fill(self) -> None:
        setup, first, older = self._setup, self.initial_values, self.stencil.older_values
        devito = initial_planes(setup.lowered, self._description, self._filled)
        self.require_fields({*first, *devito})
        self.check_values()
        if devito and setup.lowered:
            self.assign_planes(devito)
            computed = setup.lowered.computed
            self._from_data |= {name: {*computed[name].functions} for name in devito if name in computed}
        if first:
            self._assign_sources(first)
        if self._state is None or not self._state.has_values:
            self.assign({entry.field: "zeros" for entry in self._description.state if entry.field not in older})
        replace_old(self._state, list(setup.directories))
        if setup.lowered is not None:
            setup.lowered.read_values.note_fields(setup.lowered.functions_of(devito))

    def adjoint(
        self, residuals: Mapping[str, Any], wrt: str | Sequence[str], directory: str | os.PathLike[str] | None = None,
        memory: str | int | None = None, threads: int | None = None, force: bool = False, resume: bool = False,
    ) -> AdjointRun:  # fmt: skip
        """Return the adjoint of this run. The method `run` of the result goes back from the last committed step to the
        first step.

        `residuals` contains the derivatives of a misfit. `residuals` maps the name of receivers to the derivatives with
        respect to the traces of these receivers. The derivatives for receivers are an array of shape (steps, points).
        `residuals` may also map the name of snapshots, such as "side/u", to the derivatives with respect to
        `sim.snapshots["side/u"]`. For an updated field, give its name with the derivative with respect to its last
        values, in any form that `sim[name] = ...` accepts. `wrt` says which gradients are computed. In `wrt`, the name
        of an updated field means the gradient with respect to the initial values of the field. In `wrt`, a name such as
        "u.previous" means the gradient with respect to the initial previous values, and "source" means the values of
        all sources. In `wrt`, the name of a static field, a parameter or a signal means the gradient with respect to
        this input. Values in the fixed rim have no gradient.

        The adjoints of stencils that are not linear, and gradients with respect to static fields, parameters and
        signals, need the states of this run. If an adjoint run needs the states, this run must keep them until the
        adjoint run is complete: `run(history=oc.History("all"))`. If the run keeps every k-th state, gradients with
        respect to static fields and parameters are sums over every k-th step, multiplied by k.

        The adjoint run is kept in `directory`. The default is a directory beside the run: the adjoint of run.oc is in
        run-adjoint.oc. By default, `memory` and `threads` have the same values as in this run. If `force` is true,
        another run in `directory` is replaced. If `resume` is true, an adjoint run in `directory` with the same
        residuals is continued. If the adjoint run in `directory` is complete, it is only read. Raises InputError for
        wrong arguments, and if this run does not keep the states that the adjoint needs. If InputError is raised, no
        file has been created."""
        from outcrop.run.adjoint import adjoint_run

        self._require_alone("adjoint")
        return adjoint_run(self, residuals, wrt, directory, memory, threads, force, resume)

    def gradient(
        self, steps: int, misfit: MisfitFunction, wrt: str | Sequence[str],
        directory: str | os.PathLike[str] | None = None, memory: str | int | None = None, threads: int | None = None,
        progress: str = "auto", force: bool = False, resume: bool = False,
    ) -> tuple[float, dict[str, Any]]:  # fmt: skip
        """Return the value of a misfit after `steps` steps, and a mapping that has a gradient for each name in `wrt`.

        This method runs forward to step `steps`, evaluates the misfit, and runs the adjoint. If the run is already at
        step `steps`, the forward run is not repeated. `misfit` is an `oc.Misfit`, a sum of such misfits, or a function
        misfit(sim) that returns a value and residuals for `adjoint`. `progress` has the same meaning as in `run`, and
        the other arguments have the same meaning as in `adjoint`. The gradients have the form of
        `AdjointRun.gradients`. If the adjoint needs states and the run keeps no history, the method runs forward with
        `oc.History("auto", wrt=wrt)`. With the history "auto", the forward run and the adjoint run together have the
        shortest predicted time. At its end, the method frees a history that it has begun. A history that the run had
        before the call is not freed.

        The gradients are read from the directory of the adjoint run. Delete the directory of the adjoint run when you
        no longer need the gradients. After an interruption, call this method again with `resume=True` and the same
        misfit. Raises the errors of `run` and `adjoint`. Wrong arguments raise an error before the forward run."""
        from outcrop.run.misfit import gradient

        self._require_alone("gradient")
        return gradient(self, steps, misfit, wrt, directory, memory, threads, progress, force, resume)

    @checks_keywords
    def run(
        self, steps: int | None = None, progress: str = "auto", on_snapshot: OnSnapshot | None = None,
        history: History | str | int | None = None,
    ) -> Report:  # fmt: skip
        """Run `steps` steps, with a commit after every pass. If `steps` is not given, a new run takes the steps of its
        options, and an opened run takes its remaining steps.

        With `progress="auto"`, a bar is shown in a terminal or notebook. With `progress="lines"`, plain lines are shown
        if no bar can be drawn. With `progress="none"`, nothing is shown. `on_snapshot(step, fields)` is called for each
        snapshot, after the commit of its pass. `fields` maps the names of fields to memory maps of files. After the
        last step, traces are copied into `.data` of Devito's receivers. If `history` is given, the run keeps its states
        from step 0 on. Later calls of `run` continue the history. `history="all"` means `oc.History("all")`. "auto" and
        a number of steps are also possible. Raises InterruptedRun after Ctrl-C, and StorageError when storage fails.
        After an error, the last committed pass is intact."""
        if not isinstance(progress, str) or progress not in KINDS:
            raise InputError(f"progress {shown(progress)} is unknown; there are {', '.join(KINDS)}")
        if on_snapshot is not None and not callable(on_snapshot):
            raise InputError(f"on_snapshot {shown(on_snapshot)} must be a function (step, fields)")
        if on_snapshot is not None and all(one.is_history for one in self._description.taps.snapshots):
            raise InputError("on_snapshot would never be called: this run keeps no snapshots; give it snapshots=")
        if history is not None:
            self._require_alone("history")

        def run_part(steps: int, whole: Whole | None = None) -> Report:
            start, setup = time.perf_counter(), self._setup
            with contextlib.ExitStack() as stack:
                with stage("preparing the run", "none" if self.rank else progress), together(setup.group):
                    prepared = begin_part(steps)
                    assert self._state is not None
                    stack.enter_context(self._state.locked())
                return execute(self._setup, self._state, prepared, start, progress, on_snapshot, whole)

        def begin_part(steps: int) -> Prepared:
            setup = self._setup
            require_unchanged(setup.lowered)
            devito = initial_planes(setup.lowered, self._description, self._filled)
            self.require_fields({*self.initial_values, *devito})
            entry = None if history is None else self._plan_history(as_history(history), steps)
            try:
                prepared = self._prepare_part(steps)
            except BaseException:
                self._setup = setup  # a later call without `history` must not keep a history
                raise
            if entry is not None and self._state is not None:
                begin_history(self._state, entry)
            self.fill()
            return prepared

        states, parts = self.states, self._parts(steps)
        self._take_parts()
        if states is None or states.stencil is None:
            return run_part(parts[0])
        settings = self._description.settings
        return run_segments(self.directory, states, settings, self.step, parts, progress, run_part)

    def _take_parts(self) -> None:
        """If this process has opened the parts of several ranks for reading, make one run of one process from the
        parts."""
        if needs_to_move(self._setup):
            self._setup, self._prepared = take_parts(self._setup), []
            self._state = self._setup.state

    def _require_alone(self, name: str) -> None:
        """Raise InputError if several ranks compute this run, because such a run does not support `name` yet."""
        require_alone(self._setup, name)
        if self._setup.group is not None:
            raise InputError(f"{name}: runs of several ranks cannot do this yet; run one process")

    def _plan_history(self, given: History, steps: int) -> SnapshotsEntry | None:
        """Check a history, and add the history to the description of the run. Return the entry for the history. Return
        None if "auto" chooses no history. Raises InputError and BudgetError. After an error, nothing has changed."""
        from outcrop.run.ways import choose_history, with_history

        if self._state is not None:
            self._state.refresh()  # another object may have freed the history
        wanted, self._why_no_history = choose_history(self._setup, self._state, given, steps)
        if wanted is None:
            return None
        setup, entry = with_history(self._setup, self._state, wanted, steps)
        if setup is not self._setup:
            self._setup, self._prepared = setup, []
        return entry

    def _steps(self, steps: object) -> int:
        """Return the number of steps to run. Raises InputError if neither the caller nor the options give a number."""
        if steps is None:
            steps = self.remaining_steps or (self._setup.steps if not self.step else None)
            if steps is None:
                raise missing_steps(self.step)
        return as_steps(steps)

    def _parts(self, steps: object) -> list[int]:
        """`run(steps)` consists of one or several parts, each with its own plan. Return the number of steps of each
        part. Only an adjoint run that recomputes states can have several parts."""
        steps, description = self._steps(steps), self._description
        if 0 < description.max_step < self.step + steps:
            raise InputError(
                f"{self.directory} ends at step {description.max_step} and is at step {self.step}: an adjoint run goes "
                "back to the first step of its forward run"
            )
        states = description.states
        return parts_of(states, self.step, steps) if states and states.stencil is not None else [steps]

    def _prepare(self, steps: int, may_write: bool) -> Prepared:
        require_alone(self._setup, "plan")
        last, lowered = self.step + steps, self._setup.lowered
        one = self._description
        require_steps(self._setup.stencil, one.dtype, decode_signals(one.signals), last, one.time_line)
        if lowered is not None and lowered.max_steps is not None and last > lowered.max_steps:
            raise InputError(
                f"sources and receivers have room for {lowered.max_steps} steps, not for {last}; make their nt larger"
            )
        return prepare(self._setup, steps, self.step, may_write)


def require_simulation(given: object) -> None:
    """Raise InputError if `given` is not a `Simulation`."""
    if not isinstance(given, Simulation):
        raise InputError(f"{shown(given)} is not a simulation; give the result of oc.Simulation or oc.open")


@checks_keywords
def open(
    path: str | os.PathLike[str], memory: str | int | None = None, threads: int | None = None,
    scheme: str | None = None, io: str | None = None, bind: str | None = None, sizes: Mapping[str, int] | None = None,
    signals: Mapping[str, Any] | None = None, ranks: int | str | tuple[int, ...] = "auto", comm: Any = None,
    params: Mapping[str, float] | None = None,
) -> Simulation:  # fmt: skip
    """Open the run at `path`, which is a directory or a block device. The arguments after `path` replace settings of
    the run. If an argument is None, the setting does not change. `ranks` and `comm` have the same meaning as in
    `RunOptions`. Under mpirun, all ranks open the run together. If the run on disk is not divided among these ranks,
    its rows and planes are first moved to these ranks. Without mpirun, the directory of all parts of a run can be
    opened for reading. The first call of `run`, or the first assignment, then moves all rows and planes of the parts to
    this process.

    `sizes` replaces all sizes that were given before. If `scheme` changes and `sizes` is None, the sizes that the user
    gave earlier have no effect any more. `signals` replaces the signals of the same names. `params` replaces the
    parameters of the same names: the steps after the committed step are computed with the new values. Some runs cannot
    change their parameters, for example runs that keep a history. Raises InputError when `path` holds no run, and
    StorageError when files of the run are missing."""
    changes = dict(
        memory=memory, threads=threads, scheme=scheme, io=io, bind=bind, sizes=sizes, signals=signals, params=params
    )  # fmt: skip
    return Simulation(open_run(path, changes, ranks, comm))
