"""`Setup`: the checked options of a run, in one form for new runs and for runs on disk. This module creates no files.

`set_up` makes the `Setup` of a new run, and `reopen` makes the `Setup` of a run on disk:

RunOptions ──────────────────────────► set_up ──┐
                                                ├──► Setup ──► Simulation
a run on disk, and options to change ► reopen ──┘

`plan_elsewhere` plans a run for a declared machine. `plan_elsewhere` compiles nothing, and does not measure or inspect
this machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outcrop import _core
from outcrop.axes import Shape, grid_shape
from outcrop.errors import BudgetError, InputError, by_caller, shown
from outcrop.language.boundary import as_boundary
from outcrop.language.program import Program
from outcrop.language.static_terms import Terms, with_computed
from outcrop.language.stencil import Stencil
from outcrop.paths import as_path, as_place
from outcrop.plan.given_sizes import NAMES, GivenSizes
from outcrop.plan.history import listed, steps_of_pass
from outcrop.plan.machine import DeclaredMachine, Machine, UpdateRate
from outcrop.plan.planner import Planned, choose, find_scheme, require_budget, smallest_budget_bytes
from outcrop.plan.problem import AcquisitionDemand, Problem
from outcrop.plan.ranks import part_of
from outcrop.plan.schemes import RANK_SCHEMES
from outcrop.run.acquisition.definitions import NOTHING_DEFINED, AcquisitionDefinitions
from outcrop.run.acquisition.parts import own_traces
from outcrop.run.acquisition.pass_acquisition import demand_of, undivided_groups
from outcrop.run.definition import (
    Definition,
    are_equations,
    as_parameters,
    as_problem,
    as_stencil,
    definition_of,
    problem_of,
    stencil_of,
    with_computed_rows,
)
from outcrop.run.disk.entries import PartEntry, StatesEntry, arrays_of
from outcrop.run.disk.layout import PlaneLayout, make_layout, stripe_planes
from outcrop.run.disk.manifest import Description, Manifest, Settings, require_readable
from outcrop.run.disk.state import State
from outcrop.run.inputs.initial import cache_within, constant_ranges, named_source, shape_of_files, values_by_name
from outcrop.run.inputs.input_array import InputArray
from outcrop.run.joint_plan import choose_cuts
from outcrop.run.options import RunOptions
from outcrop.run.places import check_state, open_state
from outcrop.run.ranks.agreement import agree
from outcrop.run.ranks.group import RankGroup, together
from outcrop.run.ranks.launch import as_ranks, join
from outcrop.run.ranks.part import (
    as_part,
    common_identity,
    is_unfinished_start,
    part_directory,
    refuse_alone,
    refuse_options,
    require_equal,
    require_part,
    version,
)
from outcrop.run.ranks.whole import AllParts
from outcrop.run.stable import refuse_unstable, refuse_unstable_change, refuse_unstable_plan
from outcrop.run.user_values import as_flag, as_whole_number, changed_signals, decode_signals, require_mapping
from outcrop.tiers import discover
from outcrop.tiers.discover import BINDS, lay_out
from outcrop.tiers.update_rate import work_per_update
from outcrop.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    from outcrop.language.devito import Lowered

DEFAULT_MEMORY = "1GiB"

FOR_TESTS = "memory"
"""The storage backend in memory, which has no files. Runs cannot use the backend in memory."""

MAX_STEPS = 10_000_000
"""The maximum number of steps of one call of `run`. The number is limited, because a plan lists all passes. Another
call can continue the run."""

MAX_THREADS = 4096


@dataclass(frozen=True, eq=False)
class Setup:
    """The checked options of a run. If the run exists on disk, `state` is its state on disk.

    `initial` contains the values that are written to arrays when the run begins. `steps` is None if the options give no
    number of steps. `acquisition` and `lowered` are needed only until the run is on disk.

    If several ranks compute the run, `group` contains these ranks, and `description` describes the part of this rank.
    If one process only reads all parts of a run, `parts` contains the parts, and `description` describes the whole run.
    `changes` contains the changes of settings with which a run on disk was opened. If the rows of the run move to this
    process, `changes` are applied again."""

    stencil: Stencil
    description: Description
    directories: tuple[Path, ...]
    steps: int | None = None
    initial: Mapping[str, InputArray] = field(default_factory=dict)
    check_finite: bool = False
    acquisition: AcquisitionDefinitions = NOTHING_DEFINED
    lowered: Lowered | None = None
    force: bool = False
    raw_device: bool = False
    state: State | None = None
    group: RankGroup | None = None
    parts: AllParts | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def terms(self) -> Terms:
        """The static terms that the run computes once."""
        return {name: Program.from_json(one) for name, one in self.description.computed.items()}

    @cached_property
    def kernel_stencil(self) -> Stencil:
        """The stencil of the kernel, which reads computed fields. The steps of `kernel_stencil` and `stencil` give the
        same bits."""
        return with_computed(self.stencil, self.terms)

    def whole_problem(self, steps: int, first_step: int = 0) -> Problem:
        """Return the `Problem` of the whole grid for `steps` steps after step `first_step`. The memory of the
        acquisition is not included."""
        one = self.description
        problem = as_problem(
            self.kernel_stencil, one.whole_layout, steps, as_boundary(one.boundary), one.in_place, one.states,
            first_step,
        )  # fmt: skip
        problem = with_computed_rows(problem, self.stencil, self.terms)
        return replace(problem, acquisition=AcquisitionDemand(first_step=first_step, ends=one.taps.intervals))

    def problem(self, steps: int, first_step: int = 0) -> Problem:
        """Return the `Problem` of `steps` steps after step `first_step`. If several ranks compute the run, the result
        is the problem of the part of this rank."""
        one, problem = self.description, self.whole_problem(steps, first_step)
        if one.part is not None:
            problem = part_of(problem, one.part.cut, one.part.rank, one.part.planes)
        demand = demand_of(one.own_taps, one.dtype, one.states, first_step)
        return replace(problem, acquisition=replace(demand, ends=one.taps.intervals))


def set_up(options: RunOptions) -> Setup:
    """Check all options of a new run and return them as a `Setup`. Under a launcher such as mpirun, all ranks must call
    this function together. Raises InputError for wrong options, and BudgetError with the smallest budget that works."""
    group = join(options.ranks, options.comm)
    with together(group):
        return _set_up(options, group)


def _set_up(options: RunOptions, group: RankGroup | None) -> Setup:
    for name in ("in_place", "force", "raw_device", "unstable", "check_finite"):
        as_flag(getattr(options, name), name)
    steps = None if options.steps is None else as_steps(options.steps)
    if not are_equations(options.stencil):
        options = replace(options, stencil=as_stencil(options.stencil))
    if group is not None:
        refuse_options(vars(options))
        options = replace(options, directory=part_directory(options.directory, group, is_new=True))
        sharing = group.ranks_on_same_cores
        if options.threads is None:
            options = replace(options, threads=max(1, discover.available_cores() // sharing))
        if options.bind == "auto" and sharing > 1:
            options = replace(options, bind="none")  # the ranks of a node must not bind their threads to the same cores
    settings = settings_of(options)
    sources = Initial(options, settings.memory_bytes)
    definition = definition_of(options, sources.shape)
    initial = sources.by_name(definition.stencil, definition.own_shape)
    options = replace(options, steps=steps)
    try:
        return set_up_definition(definition, options, settings, initial, group)
    except BudgetError:
        if options.functions != "auto" or not definition.computed or group is not None:
            raise
    return set_up_definition(replace(definition, computed={}), options, settings, initial)


def set_up_definition(
    definition: Definition, options: RunOptions, settings: Settings, initial: Mapping[str, InputArray],
    group: RankGroup | None = None,
) -> Setup:  # fmt: skip
    """Return the `Setup` of a new run that computes `definition`. From `options`, only the options about directories,
    steps and checks are used. Raises the errors of `set_up`."""
    directories = as_directories(options.directory)
    description = _describe(definition, options, settings, directories)
    if group is not None:
        description = _part_for(group, definition, description, options)
        options = replace(options, force=options.force or is_unfinished_start(group, directories[0]))
    require_readable(description)
    for array in description.arrays if description.coordinates else ():
        if array.name in description.axis_names:
            raise InputError(f"field {array.name!r} has the name of an axis; leave out spacing, origin and units")
    for kept in description.taps.snapshots:
        if kept.name in description.axis_names:
            raise InputError(f"snapshots: name {kept.name!r} is the name of an axis; choose another")
    setup = Setup(
        definition.stencil, description, tuple(directories), options.steps, initial, bool(options.check_finite),
        definition.acquisition, definition.lowered, bool(options.force), bool(options.raw_device), group=group,
    )  # fmt: skip
    require_plan(setup)
    refuse_unstable(setup.stencil, description, {})
    check_state(directories, description, setup.force, setup.raw_device)
    return setup


def _part_for(
    group: RankGroup, definition: Definition, whole: Description, options: RunOptions
) -> Description:
    """Return the description of the part of this rank. Raises InputError on all ranks when the ranks have different
    options, or when the grid has too few rows. Also raises InputError for options that runs of several ranks do not
    support yet."""
    if whole.rim or (definition.lowered and (whole.taps or whole.states)):
        raise InputError("runs of several ranks cannot have a halo, padding or sources yet; run one process")
    settings = whole.settings
    require_equal(
        group,
        {"the version of Outcrop": version(), "stencil": whole.stencil, "functions": whole.computed,
         "shape": list(whole.shape), "dtype": whole.dtype,
         "boundary": whole.boundary, "params": whole.parameters, "signals": whole.signals,
         "steps": options.steps, "ranks": as_ranks(options.ranks).along_z,
         "scheme": settings.scheme, "sizes": settings.sizes, "unstable": whole.unstable,
         "force": bool(options.force), "init": sorted(values_by_name(options.init, definition.stencil))
         if definition.lowered is None else [],
         "sources and receivers": [whole.taps.traces, *definition.acquisition.checksums],
         "snapshots and norms": [str(whole.taps.snapshots), str(whole.taps.norms)],
         "coordinates": [whole.coordinates.spacing, whole.coordinates.origin] if whole.coordinates else None},
    )  # fmt: skip
    problem = problem_of(definition, options.steps or MAX_STEPS)
    problem = replace(problem, acquisition=undivided_groups(whole.taps))
    directories = [Path(name) for name in whole.directories]
    cut, planes = choose_cuts(
        group, problem, settings, directories, work_per_update(definition.kernel_stencil), bool(options.steps),
        as_ranks(options.ranks).along_z,
    )  # fmt: skip
    part = PartEntry(common_identity(group), group.rank, cut, planes=planes)
    return as_part(whole, replace(part, traces=own_traces(definition.acquisition.samplings, part)))


def set_up_beside(
    definition: Definition, directory: object, steps: int, settings: Settings, unstable: bool = True,
    force: bool = False,
) -> Setup:  # fmt: skip
    """Return the `Setup` of a new run that Outcrop itself makes for another run, such as an adjoint run or a temporary
    copy."""
    options = RunOptions(None, directory=str(directory), steps=steps, unstable=unstable, force=force)
    return set_up_definition(definition, options, settings, {})


def reopen(
    path: object, changes: Mapping[str, Any], ranks: object = "auto", comm: Any = None, reads_only: bool = False
) -> Setup:
    """Return the `Setup` of the run at `path`, which is a directory or a block device. `changes` maps names of
    `RunOptions` to new values of settings. If the new value of a setting is None, the setting does not change. Raises
    InputError when `path` holds no run, and StorageError when files of the run are missing.

    `ranks` and `comm` have the same meaning as in `RunOptions`. If several ranks compute the run, each rank opens its
    part. All ranks go back to the last generation that all ranks have committed. If this process runs alone and
    `reads_only` is False, raises InputError for a part."""
    group = None if reads_only else join(ranks, comm)
    with together(group):
        return _reopen(path, changes, group, reads_only)


def _reopen(path: object, changes: Mapping[str, Any], group: RankGroup | None, reads_only: bool) -> Setup:
    place = as_path(path if group is None else part_directory(path, group), "path")
    state = open_state(place)
    if group is not None:
        require_part(group, state.manifest, place)
        with state.locked():
            agree(group, state)
    elif not reads_only:
        refuse_alone(state.manifest, place)
    stencil = stencil_of(state.manifest, place)
    signals = state.manifest.signals
    if changes.get("signals") is not None:
        signals = changed_signals(stencil, signals, changes["signals"], state.manifest.step)
    parameters = _changed_parameters(state, stencil, changes.get("params"), group)
    settings = changed_settings(state.manifest, stencil, changes)
    description = replace(state.manifest, settings=settings, signals=signals, parameters=parameters)
    others = [Path(name) for name in description.directories[1:]]
    setup = Setup(stencil, description, (place, *others), state=state, group=group)
    if group is not None:
        require_equal(group, {"the version of Outcrop": version(), "scheme": settings.scheme,
                              "sizes": settings.sizes, "signals": signals})  # fmt: skip
    if not (reads_only and state.manifest.part):
        require_plan(setup)
    return setup


def _changed_parameters(
    state: State, stencil: Stencil, params: object, group: RankGroup | None
) -> dict[str, float]:
    """Return the parameters of an existing run after the changes `params`. Raises InputError if the run keeps values
    that belong to the old parameters, so that its parameters cannot change."""
    manifest = state.manifest
    if params is None:
        return manifest.parameters
    require_mapping(params, "params", "dt")
    parameters = as_parameters(stencil, {**manifest.parameters, **params})  # type: ignore[dict-item]
    changed = [name for name, value in parameters.items() if value != manifest.parameters[name]]
    taps = manifest.taps
    why = ""
    if group is not None or manifest.part is not None:
        why = "of several ranks; continue it with one process"
    elif manifest.states or manifest.max_step:
        why = "that computes an adjoint"
    elif taps.history:
        why = "that keeps its history, because the adjoint of its steps would use other parameters"
    elif any(one.scale for one in taps.sources):
        why = "with sources that have a scale, because the scale was computed with the old parameters"
    elif "dt" in changed and (taps or manifest.signals):
        why = "with sources, receivers, snapshots, norms or signals, because their times are multiples of dt"
    elif fixed := [name for name in changed if name in manifest.fixed_parameters]:
        changed, why = fixed, f"in which {manifest.fixed_parameters[fixed[0]]} was computed with the old value"
    if changed and why:
        raise InputError(
            f"params: {changed[0]} cannot change in a run {why}; start another run from its state: oc.Simulation(...) "
            f"with the new params, init={str(state.path)!r} and another directory, or force=True and the same one"
        )
    if changed:
        refuse_unstable_change(stencil, state, parameters, may_read=False)
    return parameters


def changed_settings(manifest: Manifest, stencil: Stencil, changes: Mapping[str, Any]) -> Settings:
    """Return the settings of an existing run after `changes`. `changes` has the same form as in `reopen`. Raises
    InputError for wrong values."""
    given = {name: value for name, value in changes.items() if value is not None}
    options = replace(options_of(manifest, stencil), **given)
    if options.scheme != manifest.settings.scheme and "sizes" not in given:
        options = replace(options, sizes=None)
    return settings_of(options)


def options_of(manifest: Manifest, stencil: Stencil) -> RunOptions:
    """Return the options of an existing run, except sources and receivers, whose values are in files."""
    settings, where = manifest.settings, manifest.coordinates
    return RunOptions(
        stencil, manifest.own_shape, manifest.dtype, manifest.directories, settings.memory_bytes, settings.threads,
        settings.scheme, settings.io, as_boundary(manifest.boundary), manifest.parameters, manifest.in_place,
        bind=settings.bind, sizes=settings.sizes, signals=decode_signals(manifest.signals),
        spacing=where.spacing if where else None, origin=where.origin if where else None,
        units=where.units if where else None, unstable=manifest.unstable, records=manifest.records,
        steps=manifest.target_step or None,
    )  # fmt: skip


def as_steps(value: object) -> int:
    """Return `value` as the number of steps of a run. Raises InputError unless 1 <= `value` <= MAX_STEPS."""
    steps = as_whole_number(value, "steps")
    if steps > MAX_STEPS:
        raise InputError(f"steps {shown(steps)}: at most {MAX_STEPS} at a time; go on with "
                         + by_caller("outcrop resume -t", "another call of run"))
    return steps


def missing_steps(step: int) -> InputError:
    """Return the error for a run at step `step` if neither a call nor an option gives a number of steps."""
    if step:
        how = by_caller("give -t STEPS", "say how many more steps, as in sim.run(100)")
        return InputError(f"the run is finished at step {step}; {how}")
    return InputError(f"steps are missing: {by_caller('give -t STEPS', 'say how many, as in sim.run(100)')}")


def as_directories(directory: object) -> list[Path]:
    """Return a list with the paths of one or several directories."""
    several = directory if isinstance(directory, Sequence) and not isinstance(directory, str) else [directory]
    if not several:
        raise InputError("a run needs a directory")
    return [as_place(place, "directory") for place in several]


def as_sizes(sizes: Mapping[str, int] | None) -> GivenSizes:
    """Return the given sizes. The planner later checks that the scheme has sizes with the given names."""
    given = {} if sizes is None else sizes
    require_mapping(given, "sizes", "bt")
    for name in given:
        if name not in NAMES:
            raise InputError(f"size {shown(name)} is unknown; there are {', '.join(NAMES)}")
    return GivenSizes(**{name: as_whole_number(size, name) for name, size in given.items()})


def as_threads(threads: object) -> int:
    return as_whole_number(threads, "threads", MAX_THREADS)


def parse_memory(memory: str | int, whole_bytes: int) -> int:
    """Return a budget in bytes. `memory` is a size, or a percentage of `whole_bytes`."""
    try:
        return parse_bytes(memory, whole_bytes)
    except InputError as error:
        raise InputError(f"memory: {error}") from None


def settings_of(options: RunOptions) -> Settings:
    """Return the settings in the options, with defaults. Raises InputError for a scheme, storage backend or binding of
    threads that does not exist, or that does not work on this machine."""
    threads = discover.available_cores() if options.threads is None else as_threads(options.threads)
    scheme, io, bind = options.scheme, options.io, options.bind
    for name, word in (("scheme", scheme), ("io", io), ("bind", bind)):
        if not isinstance(word, str):
            raise InputError(f"{name} {shown(word)} must be text, such as 'auto'")
    if scheme != "auto":
        find_scheme(scheme)
    reasons = {name: reason for name, reason in _core.probe().items() if name != FOR_TESTS}
    if io != "auto" and io not in reasons:
        raise InputError(f"io {io!r} is unknown; there are auto, {', '.join(reasons)}")
    if io != "auto" and reasons[io]:
        raise InputError(f"io {io} does not work here: {reasons[io]}; auto uses an interface that works")
    if bind not in BINDS:
        raise InputError(f"bind {bind!r} is unknown; there are {', '.join(BINDS)}")
    lay_out(threads, bind)
    whole, memory = discover.memory_bytes(), options.memory
    budget_bytes = min(parse_bytes(DEFAULT_MEMORY), whole) if memory is None else parse_memory(memory, whole)
    return Settings(budget_bytes, threads, scheme, io, bind, as_sizes(options.sizes).to_dict())


def _describe(
    definition: Definition, options: RunOptions, settings: Settings, directories: Sequence[Path]
) -> Description:
    layout = make_layout(grid_shape(definition.shape), definition.dtype)
    records = options.records
    return Description(
        stencil=definition.stencil.to_json(),
        parameters=definition.parameters,
        arrays=arrays_of(definition.stencil, definition.states, definition.kernel_stencil),
        shape=definition.shape,
        dtype=layout.dtype,
        boundary=str(definition.boundary),
        directories=tuple(str(path.absolute()) for path in directories),
        shard_planes=stripe_planes(layout.shape, layout.dtype, len(directories)),
        in_place=bool(options.in_place),  # converted, because the option may be a bool of NumPy
        settings=settings,
        signals=definition.signals,
        coordinates=definition.coordinates,
        taps=definition.acquisition.entries,
        rim=definition.padding if any(definition.padding) else (),
        unstable=bool(options.unstable),
        states=definition.states,
        axes=definition.axes,
        computed={name: term.to_json() for name, term in definition.computed.items()},
        fixed_parameters=dict(definition.lowered.fixed_parameters) if definition.lowered else {},
        fixed_fields=definition.lowered.fixed_fields if definition.lowered else {},
        first_time=definition.lowered.first_time if definition.lowered else None,
        is_backward=definition.lowered is not None and definition.lowered.direction == -1,
        records=str(as_place(records, "records").absolute()) if records is not None else None,
    )


def require_plan(setup: Setup) -> None:
    """Raise InputError if the scheme of the run is impossible, and BudgetError if the budget is too small. The message
    of a BudgetError names the smallest budget that works. This message also says if the budget is sufficient without
    computed fields, or with another history of an adjoint run."""
    settings, states = setup.description.settings, setup.description.states
    problem, scheme = _smallest_problem(setup, states), settings.scheme
    try:
        require_budget(problem, settings.memory_bytes, scheme, settings.given)
    except BudgetError as error:
        if setup.terms:
            smaller = _smallest_problem(replace(setup, description=replace(setup.description, computed={})), states)
            if smallest_budget_bytes(smaller, scheme, settings.given) <= settings.memory_bytes:
                option = by_caller("--functions steps", "functions='steps'")
                raise BudgetError(f"{error}; the budget is sufficient for a new run with {option}") from None
        if states is None:
            raise
        again = f", or run forward again with history={found}" if (found := _fitting_history(setup, states)) else ""
        raise BudgetError(f"{error}; give a larger {by_caller('--memory', 'memory=')}{again}") from None


def _smallest_problem(setup: Setup, states: StatesEntry | None) -> Problem:
    """Return the `Problem` of a pass with as few steps as possible, in a run that reads `states`."""
    setup = replace(setup, description=replace(setup.description, states=states))
    steps = setup.description.settings.given.bt or 1
    if states and states.stencil is not None:
        steps = min(states.every, states.steps)
    problem = setup.problem(steps)
    return listed(problem, steps_of_pass(problem, steps)) if problem.histories else problem


def _fitting_history(setup: Setup, states: StatesEntry) -> str:
    """Return a text that describes a history with which the budget is sufficient for an adjoint run. The described
    history has the smallest sufficient number of states. Return "" if no history is sufficient."""
    settings = setup.description.settings
    if states.stencil is None or settings.given:
        return ""

    def fits(every: int) -> bool:
        one = replace(states, every=every) if every > 1 else replace(states, every=1, stencil=None, source_cells=0)
        return smallest_budget_bytes(_smallest_problem(setup, one), settings.scheme) <= settings.memory_bytes

    fitting, beyond = 1, min(states.every, states.steps)
    while beyond - fitting > 1:  # large numbers are tried last, because it takes long to list the updates of many steps
        middle = min(2 * fitting, (fitting + beyond) // 2)
        fitting, beyond = (middle, beyond) if fits(middle) else (fitting, middle)
    if fitting > 1:
        return f"oc.History({fitting}, recompute=True)"
    return "oc.History('all')" if not any(one.later for one in states.fields) and fits(1) else ""


@dataclass(frozen=True)
class Elsewhere:
    """The checked options and the problem of a run that is planned for the machine `declared`."""

    declared: DeclaredMachine
    definition: Definition
    problem: Problem
    layout: PlaneLayout
    threads: int
    budget_bytes: int
    scheme: str
    given: GivenSizes

    @property
    def machine(self) -> Machine:
        return self.declared.machine(self.threads)

    def update_rate(self, problem: Problem) -> UpdateRate:
        return self.declared.update_rate(problem, self.threads)


def plan_elsewhere(declared: DeclaredMachine, options: RunOptions) -> Planned:
    """Return the plan of a run with these options on a declared machine, with its predicted cost. Raises the errors of
    `set_up_elsewhere`, and BudgetError with the smallest budget that works."""
    one = set_up_elsewhere(declared, options)
    problem = replace(one.problem, acquisition=demand_of(one.definition.acquisition.entries, one.definition.dtype))
    rate, machine = one.update_rate(problem), one.machine
    choice = choose(problem, machine, one.budget_bytes, one.scheme, rate, one.given)
    return Planned(
        problem, machine, one.budget_bytes, one.given, choice.plan, choice.considered, declared.device.origin, {},
    )  # fmt: skip


def set_up_elsewhere(declared: DeclaredMachine, options: RunOptions) -> Elsewhere:
    """Check the options of a run on a declared machine. Raises InputError for wrong options.

    Options about directories, storage and the binding of threads have no effect. A percentage in `memory` refers to the
    declared memory. By default, `memory` is the declared usable memory. If no usable memory is declared, the default is
    that of all runs, but at most the declared memory. By default, `threads` is the maximum, the number of cores."""
    as_flag(options.in_place, "in_place")
    threads = declared.cores if options.threads is None else as_threads(options.threads)
    if threads > declared.cores:
        raise InputError(f"threads {threads}: machine {declared.name} has {declared.cores} cores; give at most as many")
    if options.memory is None:
        budget_bytes = declared.usable_bytes or min(parse_bytes(DEFAULT_MEMORY), declared.memory_bytes)
    else:
        budget_bytes = parse_memory(options.memory, declared.memory_bytes)
        if budget_bytes > declared.memory_bytes:
            most = format_bytes(declared.memory_bytes)
            raise InputError(f"memory {options.memory} is more than machine {declared.name} has; give at most {most}")
    initial = Initial(options, budget_bytes)
    what = definition_of(options, initial.shape)
    ranges = constant_ranges(initial.by_name(what.stencil, what.shape))
    if not as_flag(options.unstable, "unstable"):
        refuse_unstable_plan(what.stencil, what.parameters, what.shape, ranges)
    sizes = as_sizes(options.sizes)
    if options.functions == "auto" and what.computed:
        demand = demand_of(what.acquisition.entries, what.dtype)
        problem = replace(problem_of(what, 1, bool(options.in_place)), acquisition=demand)
        scheme = "auto" if options.scheme in RANK_SCHEMES else options.scheme
        if smallest_budget_bytes(problem, scheme, sizes) > budget_bytes:
            what = replace(what, computed={})
    layout = make_layout(grid_shape(what.shape), what.dtype)
    problem = problem_of(what, as_steps(options.steps), bool(options.in_place))
    declared.update_rate(problem, threads)
    return Elsewhere(declared, what, problem, layout, threads, budget_bytes, options.scheme, sizes)


class Initial:
    """The initial values in the option `init`. If the options give no shape, `shape` is the shape of the first file
    among the initial values. If no initial value is a file, `shape` is the shape of the first array. Raises InputError
    for unknown fields, and for files that cannot be read."""

    def __init__(self, options: RunOptions, memory_bytes: int) -> None:
        self.shape: Shape | None = None
        self._given: Mapping[str, object] = {}
        self._cache_bytes = cache_within(memory_bytes)
        if options.init is not None and are_equations(options.stencil):
            raise InputError("init cannot be given beside Devito's equations, whose functions hold the initial values")
        if not are_equations(options.stencil):
            stencil = as_stencil(options.stencil)
            self._given = values_by_name(options.init, stencil)
            if options.shape is None and self._given:
                self.shape = shape_of_files(self._given, stencil)

    def by_name(self, stencil: Stencil, shape: Shape) -> dict[str, InputArray]:
        """Return the initial values for a grid of `shape`. Raises InputError for values that do not fit the grid."""
        each = self._cache_bytes // max(1, len(self._given))
        return {name: named_source(name, values, shape, each) for name, values in self._given.items()}
