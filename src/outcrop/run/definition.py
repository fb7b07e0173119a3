"""This module defines `Definition`, the computation of a run. A definition is made from the options of the run. A
definition contains a stencil on a grid. The user gives a stencil or equations of Devito. Outcrop makes a stencil from
the equations."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as member
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from outcrop.axes import NAMES, ORDERS, PLACES, Shape, axes_text, grid_shape, option_text
from outcrop.errors import InputError, by_caller, shown
from outcrop.language.boundary import Boundary, as_boundary, boundary_on_grid
from outcrop.language.field import Field
from outcrop.language.library import find_stencil, is_built_in
from outcrop.language.library.table import name_with_axes
from outcrop.language.linearised import without_updates
from outcrop.language.program import Program, Stage
from outcrop.language.static_terms import Terms, fields_of, require_static, static_terms, term_text, with_computed
from outcrop.language.stencil import Stencil
from outcrop.paths import as_path
from outcrop.plan.problem import FieldPlan, Operand, Problem, StagePlan
from outcrop.run.acquisition.definitions import AcquisitionDefinitions, Grid, define
from outcrop.run.disk.entries import (
    MAX_STATE,
    SnapshotsEntry,
    StateField,
    StatesEntry,
    arrays_of,
    static_fields,
    updated_fields,
)
from outcrop.run.disk.layout import PlaneLayout, make_layout
from outcrop.run.disk.manifest import Description, Manifest
from outcrop.run.disk.planes import PlaneSource
from outcrop.run.options import RunOptions
from outcrop.run.user_values import (
    Coordinates,
    as_coordinates,
    as_number,
    as_whole_number,
    decode_signals,
    encode_signals,
    require_exact_positions,
    require_mapping,
    require_short_name,
)

if TYPE_CHECKING:
    from outcrop.language.devito import Lowered

MAX_PLANES = 1 << 27
"""The maximum number of planes of a grid. The number of planes is limited, because a plan lists actions for each slab.
A grid with MAX_PLANES planes takes at least 0.5 TB on disk."""

FUNCTIONS_WHEN = ("auto", "once", "steps")
"""The values of the option `functions`."""

MAX_VALUES_BYTES = 1 << 30
"""The maximum size of a .npy file with points or with values for each step, in bytes."""


@dataclass(frozen=True, eq=False)
class Definition:
    """All properties of a run that determine its result.

    `shape` is the shape of the arrays on disk, which extend `padding` cells beyond the user's grid at both ends of each
    axis. `boundary` contains the boundaries of the engine's three axes (z, y, x). `axes` contains the names of Devito's
    dimensions, or is empty without Devito. `signals` contains the texts that `encode_signals` returns. `computed`
    contains the static terms that the run computes once."""

    stencil: Stencil
    shape: Shape
    padding: tuple[int, ...]
    dtype: str
    boundary: Boundary
    parameters: dict[str, float]
    signals: dict[str, str]
    coordinates: Coordinates | None
    acquisition: AcquisitionDefinitions
    lowered: Lowered | None = None
    states: StatesEntry | None = None
    axes: tuple[str, ...] = ()
    computed: Terms = member(default_factory=dict)

    @property
    def own_shape(self) -> Shape:
        return tuple(n - 2 * pad for n, pad in zip(self.shape, self.padding, strict=True))

    @cached_property
    def kernel_stencil(self) -> Stencil:
        """The stencil of the kernel. The stencil of the kernel reads computed fields (language/static_terms.py)."""
        return with_computed(self.stencil, self.computed)


def definition_of(options: RunOptions, shape: Shape | None = None) -> Definition:
    """Return the definition of a run. `shape` is used when the options have no shape. Raises InputError for wrong
    options and for options that contradict each other."""
    if not isinstance(options.functions, str) or options.functions not in FUNCTIONS_WHEN:
        raise InputError(f"functions {shown(options.functions)} is unknown; there are {', '.join(FUNCTIONS_WHEN)}")
    if not are_equations(options.stencil):
        if options.saved is not None:
            raise InputError("saved= is only for Devito's equations that read saved functions")
        return _with_computed(_of_stencil(options, shape), options)
    for name in ("shape", "params", "signals", "spacing", "origin"):
        if (value := getattr(options, name)) is not None:
            raise InputError(f"{name}={value!r} cannot be given beside Devito's equations, which define it")
    return _with_computed(_of_equations(options), options)


def _with_computed(definition: Definition, options: RunOptions) -> Definition:
    """Return a copy of `definition` with `computed`: the static terms that the run computes once, before its first
    step."""
    if options.functions == "steps":
        return definition
    kept = [one.field for one in definition.acquisition.samplings]
    changing = [one.name for one in definition.states.fields] if definition.states else []
    terms = static_terms(definition.stencil, options.functions == "once", [*kept, *changing], changing)
    return replace(definition, computed=terms)


def are_equations(given: object) -> bool:
    """Return True for an equation of Devito or a list of such equations, and False for a stencil or its name."""
    return not isinstance(given, (str, Stencil)) and (
        isinstance(given, (list, tuple)) or type(given).__module__.partition(".")[0] == "devito"
    )


def as_stencil(stencil: object) -> Stencil:
    """If `stencil` is the name of a built-in stencil, return the stencil with this name. If `stencil` is a Stencil,
    return it unchanged. Raises InputError if `stencil` is neither a name nor a Stencil."""
    if isinstance(stencil, str):
        return find_stencil(stencil)
    if not isinstance(stencil, Stencil):
        kinds = by_caller("not", "neither a Stencil nor")
        raise InputError(f"stencil {shown(stencil)} is {kinds} the name of a built-in stencil")
    for field in stencil.fields:
        require_short_name("field", field.name)
    return stencil


def as_shape(shape: object, stencil: Stencil) -> Shape:
    """Return `shape` as a tuple. Raises InputError unless `shape` has one valid size for each axis of the stencil."""
    sizes = list(islice(shape, 4)) if isinstance(shape, Iterable) and not isinstance(shape, Field) else [shape]
    if len(sizes) != stencil.ndim:
        other = name_with_axes(stencil, len(sizes))
        hint = f"; {other} is for {axes_text(len(sizes))}" if other else ""
        raise InputError(f"shape {shown(shape)}: {stencil.name} is for grids of {axes_text(stencil.ndim)}{hint}")
    cells = tuple(as_whole_number(size, f"shape {shown(shape)}: size") for size in sizes)
    if len(cells) > 1 and cells[0] > MAX_PLANES:
        raise InputError(f"shape {shown(cells)}: the first axis has more than {MAX_PLANES} cells; reorder the axes")
    return cells


def as_dtype_name(dtype: DTypeLike) -> str:
    """Return the name of a dtype. If `dtype` is not a dtype of NumPy, return its text. `make_layout` later raises an
    error for the text of a wrong dtype."""
    try:
        return np.dtype("float32" if dtype is None else dtype).name
    except Exception:  # for values that are not dtypes, NumPy raises many types of errors
        return shown(dtype)


def as_grid_boundary(boundary: object, stencil: Stencil) -> Boundary:
    """Return the boundary on the engine's three axes (z, y, x). `boundary` is a Boundary, a text, or a mapping from the
    stencil's own axes. The default is `fixed`."""
    return boundary_on_grid(as_boundary("fixed" if boundary is None else boundary), stencil.ndim)


def as_parameters(stencil: Stencil, params: Mapping[str, float] | None, dt: float | None = None) -> dict[str, float]:
    """Return a dictionary with the value of each parameter of `stencil`. A parameter without a given value gets its
    default."""
    given = {} if params is None else params
    require_mapping(given, "params", "dt")
    if dt is not None:
        if "dt" in given:
            other = by_caller("params.dt = ", "params['dt']=")
            raise InputError(f"dt = {dt} and {other}{given['dt']} are the same; give one of them")
        given = {**given, "dt": dt}
    values = {}
    for name, value in given.items():
        if not isinstance(name, str):
            raise InputError(f"params: {shown(name)} is not the name of a parameter")
        values[name] = as_number(value, f"parameter {shown(name)} =")
    names = [parameter.name for parameter in stencil.parameters]
    return dict(zip(names, stencil.scalars(values), strict=True))


def definition_beside(manifest: Description, stencil: Stencil, acquisition: AcquisitionDefinitions) -> Definition:
    """Return the definition of the run on disk that `manifest` describes, but with the given stencil and
    acquisition."""
    return Definition(
        stencil, manifest.shape, manifest.padding, manifest.dtype, as_boundary(manifest.boundary), manifest.parameters,
        manifest.signals, manifest.coordinates, acquisition, axes=manifest.axes,
    )  # fmt: skip


def as_problem(
    stencil: Stencil, layout: PlaneLayout, steps: int, boundary: Boundary, in_place: bool,
    states: StatesEntry | None = None, first_step: int = 0,
) -> Problem:  # fmt: skip
    """Return the `Problem`, which contains all numbers that the planner needs. `first_step` is the step that the run
    has reached. `first_step` matters only if steps read `states`."""
    read = (
        {one.name: dict(history=one.field, state=one.state, later=one.later) for one in states.fields} if states else {}
    )
    fields = tuple(
        FieldPlan(
            storage.is_static, storage.is_double, storage.history == 2, bool(copy), field.name,
            **read.get(field.name, {}),  # type: ignore[arg-type]
        )
        for field, storage, copy in zip(stencil.fields, stencil.storage, stencil.newest_copies(1), strict=True)
    )  # fmt: skip
    problem = Problem(
        stencil=stencil.name,
        radii=stencil.radii,
        shape=layout.shape,
        dtype=layout.dtype,
        steps=steps,
        pitch_bytes=layout.pitch_bytes,
        plane_bytes=layout.plane_bytes,
        record_bytes=layout.record_bytes,
        sides=boundary.sides,
        in_place=in_place,
        fields=fields,
        updates=tuple(_stage_plan(stage) for stage in stencil.stages),
        ndim=stencil.ndim,
    )
    if states is None:
        return problem
    if (forward := states.forward) is not None:
        again = as_problem(forward, layout, states.every, boundary, in_place=False)
        return replace(problem, every=states.every, forward=_without_rims(again, forward))
    plain = without_updates(stencil, states.sums) if states.every > 1 else None
    numbers = [stencil.fields.index(one) for one in plain.fields] if plain else []
    updates = tuple(_renumbered(_stage_plan(stage), numbers) for stage in plain.stages) if plain else ()
    return replace(problem, plain_updates=updates, every=states.every, phase=states.phase(first_step))


def problem_of(definition: Definition, steps: int, in_place: bool = False) -> Problem:
    """Return the `Problem` of a new run of one process, without its acquisition."""
    layout = make_layout(grid_shape(definition.shape), definition.dtype)
    problem = as_problem(definition.kernel_stencil, layout, steps, definition.boundary, in_place, definition.states)
    return with_computed_rows(problem, definition.stencil, definition.computed)


def with_computed_rows(problem: Problem, stencil: Stencil, terms: Terms) -> Problem:
    """Return a copy of `problem` for a run that computes `terms` once. The copy also has a text for each computed
    field, and the number of static fields that only `terms` read."""
    if not terms:
        return problem
    read = {one.name for one in problem.fields}
    texts = tuple(f"{name} = {term_text(stencil, term)}" for name, term in terms.items())
    unread = sum(one.is_static and field.name not in read
                 for field, one in zip(stencil.fields, stencil.storage, strict=True))  # fmt: skip
    return replace(problem, computed_once=texts, unread_statics=unread)


def _without_rims(problem: Problem, stencil: Stencil) -> Problem:
    """Some fields are never loaded by a stage, such as hoisted values (language/hoist.py). Return a copy of `problem`
    that does not keep the older values of the fields that no stage loads. Usually, a stage copies the rim of a field
    from the older values of the same field. But if no stage loads a field, the values in the rim of the field have no
    effect. Therefore a pass need not keep the older values of a field that no stage loads. In place of the older values
    of such a field, the pass reads the older values of another field, the companion (plan/history.py). A field without
    a companion keeps its older values."""
    loaded = {load.field for stage in stencil.stages for load in stage.program.loads}
    alone = {
        field
        for stage in stencil.stages
        if not any(load.field in loaded and not stencil.storage[load.field].is_static for load in stage.program.loads)
        for field in stage.targets
    }
    updates = tuple(
        replace(stage, reads=tuple(one for one in stage.reads if one.field in loaded | alone))
        for stage in problem.updates
    )
    return replace(problem, updates=updates)


def _renumbered(stage: StagePlan, numbers: Sequence[int]) -> StagePlan:
    reads = tuple(replace(one, field=numbers[one.field]) for one in stage.reads)
    return StagePlan(reads, tuple(numbers[one] for one in stage.targets))


def _stage_plan(stage: Stage) -> StagePlan:
    """Return the fields that a stage reads and writes. A stage copies the rim of each field that it writes, so it also
    reads the newest values of these fields."""
    neighbours: dict[tuple[int, int], bool] = {(field, 0): False for field in stage.targets}
    for load in stage.program.loads:
        key = load.field, load.age
        neighbours[key] = neighbours.get(key, False) or load.offset != (0, 0, 0)
    return StagePlan(tuple(Operand(field, age, far) for (field, age), far in neighbours.items()), stage.targets)


def _of_stencil(options: RunOptions, shape: Shape | None) -> Definition:
    stencil = as_stencil(options.stencil)
    if options.shape is None and shape is None:
        size = by_caller(option_text(stencil.ndim), f"shape={ORDERS[stencil.ndim]}")
        raise InputError(f"{stencil.name} needs the shape of its grid: give {size}")
    own = as_shape(shape if options.shape is None else options.shape, stencil)
    grid = Grid(
        stencil, own, (0,) * stencil.ndim, as_grid_boundary(options.boundary, stencil),
        as_coordinates(options.spacing, options.origin, options.units, stencil.ndim),
        as_parameters(stencil, options.params, options.dt), as_dtype_name(options.dtype),
    )  # fmt: skip
    if is_built_in(stencil) and grid.parameters.get("dt") == 0:
        raise InputError("dt = 0 is not a time step; give another value")
    if options.spacing is not None and grid.coordinates is not None and is_built_in(stencil):
        _require_own_spacing(stencil, options.params or {}, grid.coordinates.spacing, options.units)
    require_exact_positions(stencil, grid.dtype, grid_shape(own))
    stencil.require_boxes(own, grid.boundary)
    signals = {} if options.signals is None else options.signals
    require_mapping(signals, "signals", "src")
    texts = encode_signals(stencil, {name: _values(name, one) for name, one in signals.items()})
    return Definition(
        stencil, own, grid.padding, grid.dtype, grid.boundary, grid.parameters, texts, grid.coordinates,
        _acquisition(grid, options),
    )  # fmt: skip


def _acquisition(grid: Grid, options: RunOptions, more: AcquisitionDefinitions | None = None) -> AcquisitionDefinitions:
    """Return the acquisition that the options describe, together with the sources and receivers in `more`. If the
    options name .npy files with points or values, the function reads these files."""

    def with_values(kind: str, several: Any) -> Any:
        if not isinstance(several, (list, tuple)):
            return several  # the function `define` refuses wrong values
        return [
            replace(one, **{name: _values(f"{kind} {number}: {name}", getattr(one, name)) for name in
                            ("points", "values") if isinstance(getattr(one, name, None), (str, Path))})
            if hasattr(one, "points") else one
            for number, one in enumerate(several)
        ]  # fmt: skip

    return define(
        grid, with_values("source", options.sources), with_values("receivers", options.receivers), options.snapshots,
        options.norms, more,
    )  # fmt: skip


def _values(name: str, given: Any) -> Any:
    """If `given` is a path, return the numbers in this .npy file. If `given` is not a path, return `given`. Raises
    InputError when the file cannot be read."""
    if not isinstance(given, (str, Path)):
        return given
    path = as_path(given, name)
    if not path.is_file():
        raise InputError(f"{name}: {path} is not a file; name a .npy file")
    if path.stat().st_size > MAX_VALUES_BYTES:
        raise InputError(f"{name}: {path} has more than {MAX_VALUES_BYTES} bytes")
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, SyntaxError) as error:
        raise InputError(f"{name}: {path} cannot be read as .npy ({' '.join(str(error).split())[:200]})") from None


def _require_own_spacing(
    stencil: Stencil, params: Mapping[str, float], spacing: Sequence[float], units: str | None
) -> None:
    """Raise InputError when a built-in stencil uses its default distance between cells, but `spacing` is different from
    this distance. If the user has given the distance as a parameter, it is not compared with `spacing`, because the
    user can choose other units."""
    defaults = {one.name: one.default for one in stencil.parameters}
    for axis, step in zip(NAMES[stencil.ndim], spacing, strict=True):
        name = "h" if "h" in defaults else f"d{axis}"
        if name not in params and defaults.get(name, step) != step:
            given = by_caller(f"--param {name}={step:g}", f"params={{{name!r}: {step:g}}}")
            if units:  # the units of the equation may be different
                given = by_caller(f"--param {name}=...", f"params={{{name!r}: ...}}")
            remedy = f", the distance of {step:g} {units} in the units of the other parameters" if units else ""
            raise InputError(
                f"spacing {step:g} along {axis} affects only the coordinates, and {stencil.name} computes with "
                f"{name} = {defaults[name]:g}; give {given}, too{remedy}"
            )


def _of_equations(options: RunOptions) -> Definition:
    from outcrop.language.devito import from_devito

    if options.dt is None:
        raise InputError("Devito's equations need the time step: give dt=...")
    lowered = from_devito(options.stencil, dt=options.dt, boundary=options.boundary)
    stencil = lowered.stencil
    if options.dtype is not None and as_dtype_name(options.dtype) != lowered.dtype:
        raise InputError(f"dtype {as_dtype_name(options.dtype)}: the equations' grid has {lowered.dtype}; leave it out")
    places = PLACES[stencil.ndim]
    shape, padding = (tuple(sizes[place] for place in places) for sizes in (lowered.shape, lowered.padding))
    spacing, origin = (tuple(lengths[place] for place in places) for lengths in (lowered.spacing, lowered.origin))
    axes = tuple(lowered.dimensions[place] for place in places)
    sides = lowered.boundary
    own = tuple(n - 2 * pad for n, pad in zip(shape, padding, strict=True))
    require_exact_positions(stencil, lowered.dtype, grid_shape(shape))
    coordinates = as_coordinates(spacing, origin, options.units, stencil.ndim)
    grid = Grid(stencil, own, padding, sides, coordinates, as_parameters(stencil, {}), lowered.dtype, axes)
    box = tuple((pad, pad + n) for pad, n in zip(padding, own, strict=True))
    kept = tuple(
        SnapshotsEntry(one.every, one.fields, box, initial=one.initial, name=one.name, offset=one.offset)
        for one in lowered.saved
    )
    acquisition = _acquisition(grid, options, AcquisitionDefinitions(lowered.injections, lowered.samplings, kept))
    texts = encode_signals(stencil, lowered.signals)
    return Definition(
        stencil, shape, padding, lowered.dtype, sides, grid.parameters, texts, grid.coordinates, acquisition, lowered,
        _saved_states(lowered, shape, options.saved), axes,
    )  # fmt: skip


def _saved_states(lowered: Lowered, shape: Shape, saved: Any) -> StatesEntry | None:
    """Return a description of the states that the equations read from another simulation. Return None if the equations
    read no saved functions. `saved` is the simulation, or a pair of the simulation and a mapping. In the mapping of
    `saved`, a key is the name of a function, and its value is the name of a field in the simulation. Raises InputError
    if the simulation does not keep the states that the equations read."""
    from outcrop.run.simulation import Simulation

    names = ", ".join(dict.fromkeys(one.function for one in lowered.reads))
    if not names:
        if saved is not None:
            raise InputError("saved= is given, but no equation reads a saved function that another run computes")
        return None
    remedy = f"give saved=, the simulation that has computed {names} with run(steps, history='all')"
    simulation, renamed = saved if isinstance(saved, tuple) and len(saved) == 2 else (saved, {})
    if not isinstance(simulation, Simulation):
        raise InputError(f"the equations read {names} of another run; {remedy}")
    require_mapping(renamed, "saved: the names of fields", "u0")
    if unknown := [one for one in renamed if one not in {read.function for read in lowered.reads}]:
        raise InputError(f"saved: the equations read no saved function {shown(unknown[0])}; there are: {names}")
    fields = {one.function: renamed.get(one.function, one.function) for one in lowered.reads}
    if lowered.direction == 1:
        raise InputError(f"the equations read {names} of another run; only equations for u.backward can do this")
    state = simulation.reader()
    history = state.manifest.taps.history if state else None
    if state is None or history is None or history.every != 1:
        raise InputError(f"{simulation.directory} does not keep all its states; {remedy}")
    manifest = state.manifest
    if (manifest.shape, manifest.dtype) != (shape, lowered.dtype):
        raise InputError(
            f"{simulation.directory} has arrays of {manifest.dtype} and shape {manifest.shape}, including the halo; "
            f"these equations need {lowered.dtype} and {shape}, so use the same grid and space_order"
        )
    if missing := [one for one in fields.values() if one not in history.fields]:
        raise InputError(
            f"the history of {simulation.directory} has no field {shown(missing[0])}; if the field has another name "
            "there, give saved=(simulation, {'u0': 'u'})"
        )
    own = simulation.setup.lowered
    first = own.first_time if own else int(any(entry.is_previous for entry in manifest.state))
    newest = {one.name: lowered.first_time + one.shift - first for one in lowered.reads}  # in step 0 of this run
    last = max(newest.values())
    if manifest.step < last:
        raise InputError(f"{simulation.directory} is at step {manifest.step}, but these equations need step {last}")
    if min(newest.values()) < 0:
        raise InputError(
            f"the first step of these equations reads {names} before step 0 of {simulation.directory}, and a history "
            f"has no values before step 0; the first step has Devito's index {lowered.first_time}, which follows from "
            "the number of rows of the sources and receivers, or from save= if there are none"
        )
    steps = min(manifest.step, last + 1)
    if steps - min(newest.values()) > MAX_STATE and last > 0:
        steps = last  # the newest of the three values that a step reads is then state 0
    if steps - min(newest.values()) > MAX_STATE:
        raise InputError(f"the equations read {names} at more than {MAX_STATE + 1} times in a step")
    reads = tuple(StateField(one.name, fields[one.function], steps - newest[one.name]) for one in lowered.reads)
    return StatesEntry(str(state.path.absolute()), manifest.identity, steps, reads)


def stencil_of(manifest: Manifest, path: Path) -> Stencil:
    """Return the stencil in the manifest of a run. Raises InputError when the manifest does not fit its own stencil."""
    try:
        stencil = Stencil.from_json(manifest.stencil)
        sides = as_boundary(manifest.boundary)
        texts = {name: len(values) for name, values in decode_signals(manifest.signals).items()}
    except InputError as error:
        raise InputError(f"{path} is damaged or not written by Outcrop ({error})") from None
    kernel = _kernel_stencil(stencil, manifest)
    wrong = {
        "computed": kernel is None,
        "arrays": arrays_of(stencil, manifest.states, kernel) != manifest.arrays,
        "states": not _are_read(stencil, manifest.states),
        "shape": stencil.ndim != len(manifest.shape),
        "parameters": list(manifest.parameters) != [one.name for one in stencil.parameters],
        "signals": list(texts) != list(stencil.given_signals),
        "boundary": str(sides) != manifest.boundary,
    }
    if found := [name for name, is_wrong in wrong.items() if is_wrong]:
        raise InputError(f"{path} is damaged or not written by Outcrop ({found[0]}: not those of its stencil)")
    return stencil


def _kernel_stencil(stencil: Stencil, manifest: Manifest) -> Stencil | None:
    """Return the stencil with the computed fields of a run. Return None if the manifest describes no computed fields
    that fit `stencil`."""
    try:
        terms = {name: Program.from_json(one) for name, one in manifest.computed.items()}
        require_static(stencil, terms)
        for name, one in manifest.computed_from.items():
            if list(one.stamps) != fields_of(stencil, terms[name]):
                raise ValueError(f"{name} was computed from other fields")
        changing = {one.name for one in manifest.states.fields} if manifest.states else set()
        if any(changing.intersection(fields_of(stencil, term)) for term in terms.values()):
            raise ValueError("a term reads values that are different in each step")
        return with_computed(stencil, terms)
    except (ValueError, InputError):
        return None


def _are_read(stencil: Stencil, states: StatesEntry | None) -> bool:
    """Return True if the fields in `states` are different static fields, and are the last fields of the stencil. If
    passes recompute steps of the forward run, the forward stencil must have the same radii and must update the fields
    in `states`."""
    forward = states.forward if states else None
    if states and forward is not None:
        if forward.radii != stencil.radii or {one.field for one in states.fields} - {*updated_fields(forward)}:
            return False
        if not all(_is_computed(forward, one) for one in states.fields):
            return False
    elif states and not _are_kept(stencil, states):
        return False
    names, static = [one.name for one in states.fields] if states else [], static_fields(stencil)
    count = len(names)
    return sorted(names) == sorted(static[len(static) - count :]) == sorted(set(names)) and (
        not count or [field.name for field in stencil.fields][-count:] == static[-count:]
    )


def _is_computed(forward: Stencil, one: StateField) -> bool:
    """If a pass recomputes steps of the forward run, the field `one` gets values from the recomputed steps. Return True
    if the pass has the values of `one` at each step."""
    number = [field.name for field in forward.fields].index(one.field)
    updates = sum(number in stage.targets for stage in forward.stages)
    oldest = -1 if forward.storage[number].history == 2 else 0
    return one.later <= one.state * updates and (1 - one.state) * updates + one.later >= oldest


def _are_kept(stencil: Stencil, states: StatesEntry) -> bool:
    """Return True if a history has the values of all fields in `states`. If a history has a state only for every k-th
    step, the updates of the other steps must read no state."""
    plain = without_updates(stencil, states.sums) if states.every > 1 else None
    if states.every > 1 and (plain is None or {one.name for one in plain.fields} & {one.name for one in states.fields}):
        return False
    return all(one.later == 0 for one in states.fields)


def initial_planes(lowered: Lowered | None, manifest: Description, filled: Collection[str]) -> dict[str, PlaneSource]:
    """Arrays without values get their initial values from `.data` of Devito's functions. Return a dictionary that maps
    the name of each such array to a function. The function returns planes of the array.

    If the user has assigned values to a field, `.data` of the field's function is not used, not even for the previous
    values of the field. A time function of Devito has one array for each point in time. Raises InputError when the
    arrays of a function have different halos."""

    if lowered is None:
        return {}
    assigned = {manifest.entry(name).field for name in filled}
    found = {}
    for name in lowered.state_names:
        # The values of a computed field come from `.data` of some functions. If the user has assigned values to a
        # function that a computed field reads, values from `.data` would contradict the assigned values.
        sources = lowered.computed[name].functions if name in lowered.computed else ()
        if assigned.isdisjoint({manifest.entry(name).field, *sources}):
            found[name] = lowered.planes(name)
    return {name: planes for name, planes in found.items() if planes is not None}


def require_unchanged(lowered: Lowered | None) -> None:
    """Raise InputError when Constants, sources or coordinates of Devito have changed since the simulation was made.
    Also raise InputError when `.data` of a Function that no equation updates has changed."""
    if lowered is not None and (name := lowered.read_values.changed()):
        raise InputError(f"{name} was changed after the Simulation was made; make the Simulation after the change")
    require_same_fields(lowered)


def require_same_fields(lowered: Lowered | None) -> None:
    """Raise InputError when the values of a Function that no equation updates have changed since the first step."""
    if lowered is not None and (name := lowered.read_values.changed_field()):
        raise InputError(
            f"{name}.data was changed after the first step, but a run keeps the values with which it began; make a new "
            "Simulation for the new values"
        )
