"""`Simulation`: joins state on disk, initial values, engine, progress and report.

Simulation(...)    ──► everything checked, nothing made
sim["u"] = values  ──► directories and files made, values streamed in, generation 0 committed
sim["m"] = values  ──► values of a field that is only read
sim.run(steps)     ──► prepare ─► prove the plan ─► fields without values ─► Engine ─► per pass: run, commit ─► Report
sim["u"][z]        ──► planes of the committed generation, checksums tested
"""

from __future__ import annotations

import math
import os
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import DTypeLike

from outcrop.axes import Shape, grid_shape
from outcrop.errors import InputError, shown
from outcrop.language.boundary import as_boundary
from outcrop.language.stencil import Stencil
from outcrop.paths import as_path, as_place, nearest_existing
from outcrop.plan.planner import require_budget
from outcrop.plan.problem import Problem
from outcrop.run import arguments
from outcrop.run.coordinates import Coordinates, Numbers, require_other_names
from outcrop.run.definition import Wanted, definition_of
from outcrop.run.devito_data import initial_planes, put_traces, require_room, require_unchanged
from outcrop.run.disk.arrays import arrays_of
from outcrop.run.disk.creation import check_state, created_state
from outcrop.run.disk.field import FieldView
from outcrop.run.disk.layout import make_layout, stripe_planes
from outcrop.run.disk.manifest import Manifest, require_readable
from outcrop.run.disk.state import State, open_state
from outcrop.run.disk.values import PlaneSource, assign, complete, padded, require_fields
from outcrop.run.engine import Engine, Prepared, prepare
from outcrop.run.given import require_flags, require_mapping
from outcrop.run.inputs.initial import cache_within, checked_planes, make_source
from outcrop.run.passes import PassRunner
from outcrop.run.progress import KINDS, make_progress
from outcrop.run.report import Report, make_report
from outcrop.run.signal_values import decode_signals, encode_signals, require_steps
from outcrop.run.stable import Ranges, growing, refuse_unstable, refuse_unstable_run, watched
from outcrop.run.taps.acquisition import Norms, OnSnapshot, Receivers, Snapshots, Source
from outcrop.run.taps.definitions import NO_TAPS_DEFINED
from outcrop.run.taps.demand import demand_of
from outcrop.run.taps.recorder import Recorder
from outcrop.run.taps.records import NormRecords, Traces
from outcrop.run.taps.snapshot_files import require_space
from outcrop.run.taps.snapshot_view import SnapshotViews

if TYPE_CHECKING:
    from outcrop.language.devito import Lowered


class Simulation:
    """One stencil on one grid that lives in a directory, or on a raw block device.

    `stencil` is a Stencil or the name of a built-in one; `shape` is (nz, ny, nx), (ny, nx) or (nx,), by the stencil's
    axes. Or it is a list of Devito's equations, with `inject` and `interpolate`; these have a grid, parameters and
    signals of their own, and need `dt`. `dtype` is "float32" unless given. `directory` is one place, or several, over
    which planes are spread. `memory` is a hard cap for the window: "1GiB", "25%" of the machine, or bytes.
    `boundary` is one word for all sides, "fixed", "mirror" or "periodic", or sides by axis: "x=periodic,z=fixed:mirror"
    or {"x": "periodic", "z": ("fixed", "mirror")}; axes that are not named are fixed.
    `params` are values of the stencil's parameters other than its defaults, `signals` those of its signals: one finite
    number for each step from the first of the run on. `in_place` keeps one copy of the state instead of two,
    and loses the run when a pass is interrupted. `force` replaces a run that is already there.
    `raw_device` allows that `directory` names block devices, all of whose content is lost then; one that is in use is
    refused, and without `force` one that holds a file system, a partition table or a run.
    `bind` says whether threads and memory are bound to cores and NUMA nodes: "auto" does so on several nodes, "cores"
    always, "none" never.
    `sizes` are those of the plan that are not to be chosen, such as {"bt": 48, "by": 128}: `bt` steps a pass; `bx`,
    `by`, `bz` cells of a block; `slab` planes updated together; `diamond` levels, half a cache tile.
    `spacing`, `origin` (one number, or one for each axis) and `units` (text) become the coordinates of cells in the
    Zarr group. Points of sources and receivers are in them; the computation does not know them, so built-in stencils
    want h in `params`, too, where it is not their default. `dt` is the parameter of that name.
    `sources`, `receivers`, `snapshots` and `norms`, see acquisition.py, are kept with the run, so that
    `oc.open` goes on with them; those of a run on devices in the directory `records`. `unstable` allows parameters that
    let waves grow, which are refused otherwise.

    Everything is checked at once; directories are made when values are assigned, or by `run`. Fields that are updated
    start from zeros unless they are assigned, and their previous values from the same as they; those that are only
    read must be assigned.
    Raises InputError for what cannot be, BudgetError with the smallest budget that works.
    """

    def __init__(
        self,
        stencil: Any,
        shape: Shape | int | None = None,
        dtype: DTypeLike | None = None,
        directory: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = "run.oc",
        memory: str | int = "1GiB",
        threads: int | None = None,
        scheme: str = "auto",
        io: str = "auto",
        boundary: object = None,
        params: Mapping[str, float] | None = None,
        in_place: bool = False,
        force: bool = False,
        raw_device: bool = False,
        bind: str = "auto",
        sizes: Mapping[str, int] | None = None,
        signals: Mapping[str, Any] | None = None,
        spacing: Numbers = None,
        origin: Numbers = None,
        units: str | None = None,
        dt: float | None = None,
        sources: Sequence[Source] = (),
        receivers: Sequence[Receivers] = (),
        snapshots: Snapshots | Sequence[Snapshots] | None = None,
        norms: Norms | None = None,
        unstable: bool = False,
        records: str | os.PathLike[str] | None = None,
    ) -> None:
        require_flags(in_place=in_place, force=force, raw_device=raw_device, unstable=unstable)
        wanted = Wanted(sources, receivers, snapshots, norms)
        coordinates = (spacing, origin, units)
        definition = definition_of(stencil, shape, dtype, boundary, params, signals, dt, coordinates, wanted)
        directories = arguments.as_directories(directory)
        layout = make_layout(grid_shape(definition.shape), definition.dtype)
        manifest = Manifest(
            identity=uuid.uuid4().hex,
            stencil=definition.stencil.to_json(),
            parameters=definition.parameters,
            arrays=arrays_of(definition.stencil),
            shape=definition.shape,
            dtype=layout.dtype,
            boundary=str(definition.boundary),
            directories=tuple(str(path.absolute()) for path in directories),
            shard_planes=stripe_planes(layout.shape, layout.dtype, len(directories)),
            in_place=bool(in_place),  # of NumPy's kind, too
            settings=arguments.as_settings(memory, threads, scheme, io, bind, sizes),
            signals=definition.signals,
            coordinates=definition.coordinates,
            taps=definition.taps.entries,
            rim=definition.padding if any(definition.padding) else (),
            unstable=bool(unstable),
            records=str(as_place(records, "records").absolute()) if records is not None else None,
        )
        require_readable(manifest)
        require_other_names(manifest.coordinates, len(manifest.shape), [entry.name for entry in manifest.arrays])
        self._take(definition.stencil, manifest, directories)
        self._taps, self._lowered = definition.taps, definition.lowered
        self._force, self._raw_device = force, raw_device
        refuse_unstable(self.stencil, manifest, {})
        check_state(directories, manifest, force, raw_device)

    _lowered: Lowered | None

    def _take(self, stencil: Stencil, manifest: Manifest, directories: list[Path]) -> None:
        self.stencil = stencil
        self._manifest, self._directories = manifest, directories
        self._state: State | None = None
        self._taps = NO_TAPS_DEFINED
        self._lowered = None
        self._ranges: Ranges = dict(manifest.ranges)
        self._prepared: Prepared | None = None
        given = manifest.settings.given
        steps, scheme = (given.bt or 1, manifest.settings.scheme) if given else (1, "auto")
        require_budget(self._problem(steps), self.memory_bytes, scheme, given)

    def __repr__(self) -> str:
        return f"<Simulation of {self.stencil.name} on {self.shape} in {str(self.directory)!r} at step {self.step}>"

    @property
    def shape(self) -> Shape:
        """Cells along the stencil's axes: (nz, ny, nx), (ny, nx) or (nx,)."""
        return self._manifest.own_shape

    @property
    def coordinates(self) -> Coordinates | None:
        """Where cells are in space, if that was said."""
        return self._manifest.own_coordinates

    @property
    def traces(self) -> Traces:
        """What receivers have recorded, by name: float64, shape (steps so far, points)."""
        return Traces(self._reader(), self._manifest)

    @property
    def norms(self) -> NormRecords:
        """Sums of fields, by name: a row with step, sum, squares, min and max for each time, over all cells of the
        array, the rim included."""
        return NormRecords(self._reader(), self._manifest)

    @property
    def snapshots(self) -> SnapshotViews:
        """What snapshots have kept, by field, indexed like an array (time, z, y, x)."""
        return SnapshotViews(self._reader(), self._manifest)

    def _reader(self) -> State | None:
        """The run for those who only look: another thread may be in the middle of a pass."""
        return State(self._state.path, self._state.manifest) if self._state else None

    def require_fields(self, given: Iterable[str] = ()) -> None:
        """Raise InputError when a field that is only read has no values, neither now nor among those `given`."""
        require_fields(self._state.manifest if self._state else self._manifest, given)

    @property
    def memory_bytes(self) -> int:
        """The budget of the window."""
        return self._manifest.settings.memory_bytes

    @property
    def directory(self) -> Path:
        """The run's own directory."""
        return self._directories[0]

    @property
    def step(self) -> int:
        """Time steps from the initial values to the committed state."""
        return self._state.manifest.step if self._state else 0

    @property
    def remaining_steps(self) -> int:
        """Steps that were asked for and are not done yet."""
        return self._state.manifest.target_step - self._state.manifest.step if self._state else 0

    def __getitem__(self, name: str) -> FieldView:
        """The field `name` on disk, to be indexed like an array; "u.previous" are values before the newest ones."""
        self._manifest.entry(name)
        reader = self._reader()
        if reader is None:
            raise InputError(f"{self.directory} holds no values yet; assign sim[{name!r}] first")
        return FieldView(reader, name)

    def __setitem__(self, name: str, values: object) -> None:
        """Stream values in: an array, a zarr array, a function (z0, z1) -> planes, or what `--init` accepts as text.

        Raises InputError for a wrong shape or type before anything is made.
        """
        self._manifest.entry(name)
        self.assign({name: values})

    def assign(self, values: Mapping[str, object]) -> None:
        """Stream values of several fields in; where this makes the directories, all of them or none are made.

        Values of other fields stay as they are. A field that is only read can be assigned anew until the first step.
        """
        require_mapping(values, "values", "u")
        for name in values:
            self._manifest.entry(name)
        cache_bytes = cache_within(self.memory_bytes) // max(1, len(values))
        sources = {name: make_source(one, self.shape, cache_bytes) for name, one in values.items()}
        planes = {name: checked_planes(one, self._manifest.dtype, check_finite=False) for name, one in sources.items()}
        self._assign({name: padded(one, self._manifest) for name, one in planes.items()})

    def _assign(self, planes: Mapping[str, PlaneSource]) -> None:
        """The same for planes of whole arrays."""
        require_unchanged(self._lowered)
        io, static = self._manifest.settings.io, {entry.name for entry in self._manifest.static}
        ranges = {name: ends for name, ends in self._ranges.items() if name not in planes}

        def check() -> None:
            refuse_unstable(self.stencil, self._manifest, ranges)

        planes = {
            name: watched(name, one, self._manifest, ranges, check) if name in static else one
            for name, one in planes.items()
        }
        if self._state is not None:
            assign(self._state, planes, io)
        else:
            # Known from the start, so that a run killed right after its values were committed can be resumed.
            steps = self._prepared.problem.steps if self._prepared else 0
            manifest = replace(self._manifest, target_step=steps)
            with created_state(self._directories, manifest, self._force, self._raw_device, self._taps) as state:
                assign(state, planes, io)
            self._state, self._taps = state, NO_TAPS_DEFINED  # from here on they are on disk
        self._ranges = ranges
        if static & planes.keys():
            with self._state.locked():
                finite = {name: ends for name, ends in ranges.items() if all(map(math.isfinite, ends))}
                self._state.change(ranges=finite)

    def plan(self, steps: int) -> Prepared:
        """What `run(steps)` would do and what that should cost. Compiles the kernel; touches no directory."""
        return self._prepare(steps, may_write=False)

    def prepare(self, steps: int) -> Prepared:
        """Compile, measure the storage where that is worth it, plan `run(steps)`, and prove the plan legal.

        Raises IllegalPlan, an AssertionError, for a plan that is not: a fault of Outcrop, found before it is executed.
        """
        if self._prepared is None or self._prepared.problem.steps != steps:
            prepared = self._prepare(steps, may_write=True)
            prepared.require_legal()
            self._prepared = prepared
        return self._prepared

    def run(self, steps: int, progress: str = "auto", on_snapshot: OnSnapshot | None = None) -> Report:
        """Advance by `steps` steps, committing after every pass.

        `progress`: "auto" shows a bar in a terminal or notebook, "lines" plain lines elsewhere too, "none" nothing.
        `on_snapshot(step, fields)` is called for every snapshot once the pass that took it is committed; `fields` are
        arrays by name, mapped from their files. Traces of Devito's receivers are put into their `.data` at the end.
        Raises InterruptedRun after Ctrl-C and StorageError when storage fails; the last committed pass is intact then.
        """
        if not isinstance(progress, str) or progress not in KINDS:
            raise InputError(f"progress {shown(progress)} is unknown; there are {', '.join(KINDS)}")
        if on_snapshot is not None and not callable(on_snapshot):
            raise InputError(f"on_snapshot {shown(on_snapshot)} must be a function (step, fields)")
        if on_snapshot is not None and not self._manifest.taps.snapshots:
            raise InputError("on_snapshot would never be called: this run keeps no snapshots; give it snapshots=")
        require_unchanged(self._lowered)
        start = time.perf_counter()
        first_values = initial_planes(self._lowered, self._state.manifest if self._state else self._manifest)
        self.require_fields(first_values)
        prepared = self.prepare(steps)
        steps = prepared.problem.steps
        if first_values:
            self._assign(first_values)
        if self._state is None or not self._state.has_values:
            self.assign({entry.name: "zeros" for entry in self._manifest.state if not entry.is_previous})
        assert self._state is not None
        with self._state.locked():
            state, io = self._state, self._manifest.settings.io
            state.require_whole()
            require_fields(state.manifest)
            first_step = state.manifest.step
            require_steps(decode_signals(self._manifest.signals), first_step + steps)
            complete(state, io)
            refuse_unstable_run(self.stencil, state)
            if state.manifest.taps:
                require_space(state.records, state.manifest, first_step + steps)
            state.change(
                target_step=first_step + steps, settings=self._manifest.settings, signals=self._manifest.signals
            )
            names = [field.name for field in self.stencil.fields]
            recorder = Recorder(state, names, io)
            first, second = state.files(0), [] if state.manifest.in_place else state.files(1)
            with Engine(
                prepared, first, second, state.static_files(), state.layout, io, scratch=state.scratch
            ) as engine:
                runner = PassRunner(engine, state, prepared.plan, recorder, on_snapshot)
                seconds_setup = time.perf_counter() - start
                cells = _cells_updated(prepared.problem)
                try:
                    runner.run(
                        make_progress(progress, len(prepared.plan.passes), first_step, first_step + steps, cells)
                    )
                finally:
                    put_traces(self._lowered, self.traces, first_step)
                warning = (growing(self.stencil, state) or "") if state.manifest.unstable else ""
                return make_report(
                    self.stencil.name, state.manifest, self._manifest.settings, prepared, engine, runner,
                    seconds_setup, warning,
                )  # fmt: skip

    def _problem(self, steps: int) -> Problem:
        manifest = self._manifest
        boundary = as_boundary(manifest.boundary)
        problem = arguments.as_problem(self.stencil, manifest.layout, steps, boundary, manifest.in_place)
        return replace(problem, taps=demand_of(manifest.taps, manifest.dtype))

    def _prepare(self, steps: int, may_write: bool) -> Prepared:
        steps = arguments.as_steps(steps)
        settings, signals = self._manifest.settings, decode_signals(self._manifest.signals)
        require_steps(signals, self.step + steps)
        require_room(self._lowered, self.step + steps)
        return prepare(
            self.stencil,
            self._manifest.parameters,
            self._problem(steps),
            [nearest_existing(path) for path in self._directories],
            settings.memory_bytes,
            settings.threads,
            settings.scheme,
            settings.io,
            may_write,
            settings.bind,
            settings.given,
            signals=signals,
        )


def open(
    path: str | os.PathLike[str],
    memory: str | int | None = None,
    threads: int | None = None,
    scheme: str | None = None,
    io: str | None = None,
    bind: str | None = None,
    sizes: Mapping[str, int] | None = None,
    signals: Mapping[str, Any] | None = None,
) -> Simulation:
    """The run in directory, or on block device, `path`, with the settings it had unless others are given. `sizes`
    replace all that were given before; another scheme begins without any. `signals` replace those of the same names.

    Raises InputError when there is no run, StorageError when files of it are missing.
    """
    place = as_path(path, "path")
    state = open_state(place)
    manifest, old = state.manifest, state.manifest.settings
    settings = arguments.as_settings(
        old.memory_bytes if memory is None else memory,
        old.threads if threads is None else threads,
        old.scheme if scheme is None else scheme,
        old.io if io is None else io,
        old.bind if bind is None else bind,
        sizes if sizes is not None else old.sizes if scheme in (None, old.scheme) else {},
    )
    simulation = Simulation.__new__(Simulation)
    others = [Path(name) for name in manifest.directories[1:]]
    stencil = stencil_of(manifest, place)
    if signals is not None:
        require_mapping(signals, "signals", "src")
        texts = encode_signals(stencil, {**decode_signals(manifest.signals), **signals})
        manifest = replace(manifest, signals=texts)
    simulation._take(stencil, replace(manifest, settings=settings), [place, *others])
    simulation._force = simulation._raw_device = False
    simulation._state = state
    return simulation


def stencil_of(manifest: Manifest, path: Path) -> Stencil:
    """The stencil of a run. Raises InputError when the rest of its manifest is not that of a run of this stencil."""
    try:
        stencil = Stencil.from_json(manifest.stencil)
        sides = as_boundary(manifest.boundary)
        texts = {name: len(values) for name, values in decode_signals(manifest.signals).items()}
    except InputError as error:
        raise InputError(f"{path} is damaged or not written by Outcrop ({error})") from None
    wrong = {
        "arrays": arrays_of(stencil) != manifest.arrays,
        "shape": stencil.ndim != len(manifest.shape),
        "parameters": list(manifest.parameters) != [one.name for one in stencil.parameters],
        "signals": list(texts) != list(stencil.signals),
        "boundary": str(sides) != manifest.boundary,
    }
    if found := [name for name, is_wrong in wrong.items() if is_wrong]:
        raise InputError(f"{path} is damaged or not written by Outcrop ({found[0]}: not those of its stencil)")
    return stencil


def _cells_updated(problem: Problem) -> int:
    """Cells that a run updates: those of planes and rows that are no fixed rim, times steps."""
    planes, rows = problem.end_plane - problem.first_plane, problem.end_row - problem.first_row
    return planes * rows * problem.shape[2] * problem.steps
