"""This module defines `AcquisitionDefinitions`, the checked acquisition (sources, receivers, norms and snapshots) of a
run. The acquisition is made from the options of a new run, or read from the files of an existing run.

Names, points and values are checked against the grid. Points and values are stored without rounding, in files beside
the manifest (disk/acquisition_files.py). The cells around a point are called its corners. The corners of all points are
an int64 array of shape (points, corners, 3), and the weights of the corners are a float64 array of shape (points,
corners). The values of a source are a float64 array of shape (steps, points)."""

from __future__ import annotations

import ast
import contextlib
import math
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from outcrop import _core
from outcrop.axes import NAMES, PLACES, Shape, grid_shape
from outcrop.durable import Buffer, Directory
from outcrop.errors import CorruptionError, InputError, StorageError, by_caller, os_errors_as, shown
from outcrop.language.boundary import Boundary
from outcrop.language.field import Field
from outcrop.language.sparse import Injection, Sampling, SourceFactor, linear, spread
from outcrop.language.stencil import Stencil
from outcrop.run.disk.acquisition_files import Definitions, damage_of
from outcrop.run.disk.contents import ACQUISITION
from outcrop.run.disk.entries import (
    HISTORY,
    AcquisitionEntries,
    NormsEntry,
    SamplingEntry,
    SnapshotsEntry,
    SourceEntry,
    updated_fields,
)
from outcrop.run.disk.manifest import Manifest
from outcrop.run.options import Norms, Receivers, Snapshots, Source
from outcrop.run.user_values import Coordinates, as_flag, as_real_array, as_whole_number, require_short_name
from outcrop.units import counted

if TYPE_CHECKING:
    import sympy

_MAX_TEXT = 1000
"""The maximum number of characters of a factor that is given as text."""
_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip
_FUNCTIONS: dict[str, tuple[str, Sequence[int]]] = {
    **{name: (name, (1,)) for name in ("sqrt", "exp", "log", "sin", "cos", "tan", "tanh", "atan", "sign")},
    "atan2": ("atan2", (2,)), "abs": ("Abs", (1,)), "min": ("Min", range(1, 100)), "max": ("Max", range(1, 100)),
}  # fmt: skip
"""The functions of a factor that is given as text, with their names in SymPy and their possible numbers of
arguments."""


@dataclass(frozen=True, eq=False)
class AcquisitionDefinitions:
    """The checked acquisition of a run. The positions of cells refer to the arrays on disk, which include the
    padding."""

    injections: tuple[Injection, ...] = ()
    samplings: tuple[Sampling, ...] = ()
    snapshots: tuple[SnapshotsEntry, ...] = ()
    norms: NormsEntry | None = None

    @property
    def entries(self) -> AcquisitionEntries:
        sources = []
        for source in self.injections:
            scale = None if source.scale is None else source.scale.to_json()
            points, corners = source.weights.shape
            sources.append(SourceEntry(source.field, points, source.steps, scale, corners))
        samplings = [SamplingEntry(one.name, one.field, len(one.cells), one.before, one.cells.shape[1])
                     for one in self.samplings]  # fmt: skip
        return AcquisitionEntries(tuple(sources), tuple(samplings), self.snapshots, self.norms)

    @property
    def files(self) -> Definitions:
        """A dictionary that maps the name of each file with points and values to the arrays in this file."""
        points: dict[str, list[NDArray[Any]]] = {}
        for number, source in enumerate(self.injections):
            points[f"source-{number}"] = [source.cells, source.weights, source.values]
        for number, one in enumerate(self.samplings):
            points[f"receivers-{number}"] = [one.cells, one.weights]
        types = ("<i8", "<f8", "<f8")
        return {
            name: [np.ascontiguousarray(part, kind) for part, kind in zip(parts, types, strict=False)]
            for name, parts in points.items()
        }

    @property
    def checksums(self) -> list[int]:
        arrays = [array for parts in self.files.values() for array in parts]
        return [_core.crc32c(one.reshape(-1).view(np.uint8)) for one in arrays]


NOTHING_DEFINED = AcquisitionDefinitions()


@dataclass(frozen=True)
class Grid:
    """The user's grid. All points of sources and receivers must lie in the user's grid. The arrays on disk extend
    `padding` cells beyond the user's grid on each side. `coordinates` contains the coordinates of the cells of the
    arrays, including the padding. `axes` contains the names of Devito's dimensions, or is empty without Devito."""

    stencil: Stencil
    shape: Shape
    padding: tuple[int, ...]
    boundary: Boundary
    coordinates: Coordinates | None
    parameters: dict[str, float]
    dtype: str
    axes: tuple[str, ...] = ()

    @property
    def axis_names(self) -> tuple[str, ...]:
        return self.axes or NAMES[len(self.shape)]

    @property
    def reserved(self) -> tuple[str, ...]:
        """The names of the coordinates of snapshots, which fields and snapshots cannot have."""
        return ("time", "step", *self.axis_names)

    def corners(self, what: str, points: Any) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the cells around each point, and the weights of these cells. Raises InputError for points outside the
        grid."""
        ndim = len(self.shape)
        places = _numbers(points, f"{what}: points", f"must be numbers of shape (points, {ndim})")
        if places.ndim == 1 and len(places) == ndim:
            places = places[None]
        where = self.coordinates or Coordinates((1.0,) * ndim, tuple(-float(pad) for pad in self.padding))
        origin = [o + pad * h for o, pad, h in zip(where.origin, self.padding, where.spacing, strict=True)]
        cells, weights = linear(what, places, self.shape, where.spacing, origin)
        return cells + spread(np.array(self.padding, np.int64)), weights

    @property
    def arrays(self) -> Shape:
        return tuple(n + 2 * pad for n, pad in zip(self.shape, self.padding, strict=True))

    @property
    def updated(self) -> list[str]:
        return updated_fields(self.stencil)


def define(
    grid: Grid, sources: Sequence[Source] = (), receivers: Sequence[Receivers] = (),
    snapshots: Snapshots | Sequence[Snapshots] | None = None, norms: Norms | None = None,
    more: AcquisitionDefinitions | None = None,
) -> AcquisitionDefinitions:  # fmt: skip
    """Check the options of the acquisition, and return the acquisition that they define. The result also has the
    sources, receivers and snapshots of `more`. Raises InputError for invalid options."""
    injections = [*(more.injections if more else ()), *(_injection(grid, *one) for one in enumerate(_list(sources)))]
    samplings = list(more.samplings if more else ())
    for one in _list(receivers):
        samplings.append(_sampling(grid, one, {other.name for other in samplings}))
    for number, injection in enumerate(injections):
        _check_rim(grid, number, injection)
    kept = _all_snapshots(grid, [] if snapshots is None else _list(snapshots), more.snapshots if more else ())
    added_up = _norms(grid, norms) if norms is not None else None
    return AcquisitionDefinitions(tuple(injections), tuple(samplings), kept, added_up)


def _list(given: Any) -> list[Any]:
    return list(given) if isinstance(given, Sequence) and not isinstance(given, (str, bytes)) else [given]


def _injection(grid: Grid, number: int, source: Any) -> Injection:
    if not isinstance(source, Source):
        raise InputError(f"sources: {shown(source)} is not an oc.Source")
    what = f"source {number} in {shown(source.field)}"
    if not isinstance(source.field, str) or source.field not in grid.updated:
        raise InputError(f"{what}: sources need a field that is updated; there are: {', '.join(grid.updated)}")
    cells, weights = grid.corners(what, source.points)
    values = _numbers(source.values, f"{what}: values", "must be numbers of shape (steps,) or (steps, points)")
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2 or values.shape[1] != len(cells):
        raise InputError(f"{what}: values have shape {values.shape}; they need (steps, {len(cells)})")
    if not np.isfinite(values).all():
        step, point = np.argwhere(~np.isfinite(values))[0]
        raise InputError(f"{what}: the value of point {point} in step {step} is {values[step, point]}")
    scale = _scale(grid, what, source.scale)
    return Injection(source.field, cells, weights, np.ascontiguousarray(values), scale)


def _numbers(given: Any, name: str, refusal: str) -> NDArray[np.float64]:
    """Return `given` as an array of real numbers, or raise InputError with the texts `name` and `refusal`."""
    if (found := as_real_array(given, name)) is None:
        raise InputError(f"{name} {refusal}")
    return found.astype(np.float64, copy=False)


def _scale(grid: Grid, what: str, given: Any) -> SourceFactor | None:
    """Return the program that evaluates the scale of a source, or None if no scale is given. A scale may read only
    fields that no stage updates. A scale may read a field only in the cell to which the source adds a value. Raises
    InputError for other scales."""
    if given is None:
        return None
    import sympy

    from outcrop.language.lower import lower

    names = [one.name for one in grid.stencil.fields]
    static = [one for one in names if one not in grid.updated]
    parameters = [one.name for one in grid.stencil.parameters]
    if isinstance(given, str):
        try:
            given = _read_factor(given, parameters, static, grid.stencil.ndim)
        except InputError as error:
            raise InputError(f"{what}: scale {shown(given)}: {error}") from None
    try:
        expression = sympy.sympify(given, strict=True)
    except Exception:  # a SympifyError, or an error of any type from a user's class
        expression = None
    if not isinstance(expression, sympy.Expr) or isinstance(given, np.ndarray):
        raise InputError(f"{what}: scale {shown(given)} is neither a number nor an expression")
    if expression.has(sympy.nan, sympy.oo, sympy.zoo, sympy.I, -sympy.oo):
        raise InputError(f"{what}: scale {shown(given)} must be real and finite")
    for symbol in expression.free_symbols:
        if symbol.name not in parameters:
            raise InputError(f"{what}: scale has {symbol}; the stencil's parameters are: {', '.join(parameters)}")
    program = lower(what, [expression], names, parameters)
    for load in program.loads:
        if names[load.field] not in static or load.offset != (0, 0, 0):
            raise InputError(
                f"{what}: scale reads {names[load.field]} at {load.offset}; it may read fields that nothing updates, "
                f"at offset 0; there are: {', '.join(static) or 'none'}"
            )
    scalars = tuple(grid.parameters[name] for name in parameters)
    return SourceFactor(program, tuple(names), scalars, tuple(parameters))


def _read_factor(text: str, parameters: Sequence[str], fields: Sequence[str], ndim: int) -> sympy.Expr:
    """Return the expression in a text such as "dt**2 * v**2". The text may contain numbers, + - * / **, functions, and
    the names of `parameters` and `fields`. `v` means the value of the field v in the cell itself, as v[0, 0, 0] does.
    Raises InputError for other texts. The text is not executed, because it can come from a file."""
    import sympy

    def refused(node: ast.AST) -> InputError:
        part = ast.get_source_segment(text, node) or text
        there = ", ".join([*parameters, *fields]) or "none"
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitXor):
            return InputError(f"^ is not a power; write {shown(part.replace('^', '**'))}")
        return InputError(f"{shown(part)} is unknown; there are numbers, + - * / ** ( ), the names {there}, and the "
                          f"functions {', '.join(_FUNCTIONS)}")  # fmt: skip

    def rounded(one: sympy.Expr) -> sympy.Expr:
        if not one.is_number:
            return one
        try:
            number = float(one)
        except (TypeError, OverflowError):  # a complex number, or a number that is too large
            number = math.nan
        if not math.isfinite(number):
            raise InputError("the value of each part must be real and finite")
        return sympy.Float(number)

    def value(node: ast.AST) -> sympy.Expr:
        match node:
            case ast.Constant(int() | float() as number) if not isinstance(number, bool):
                return sympy.Integer(number) if isinstance(number, int) else sympy.Float(number)
            case ast.Name(name) if name in parameters:
                return sympy.Symbol(name, real=True)
            case ast.Name(name) if name in fields:
                return Field(name)[(0,) * ndim]
            case ast.Subscript(ast.Name(name), ast.Tuple() | ast.Constant() as offset) if name in fields:
                steps = offset.elts if isinstance(offset, ast.Tuple) else [offset]
                here = f"{name}[{', '.join('0' * ndim)}]"
                if len(steps) != ndim or not all(isinstance(one, ast.Constant) and one.value == 0 for one in steps):
                    part = ast.get_source_segment(text, node) or text
                    raise InputError(f"{shown(part)}: only offset 0 is possible, so write {name} or {here}")
                return Field(name)[(0,) * ndim]
            case ast.UnaryOp(ast.USub() | ast.UAdd() as sign, one):
                return -value(one) if isinstance(sign, ast.USub) else value(one)
            case ast.BinOp(a, sign, b) if type(sign) in _OPERATORS:
                return _OPERATORS[type(sign)](value(a), value(b))
            case ast.BinOp(a, ast.Pow(), b):
                base, exponent = value(a), value(b)
                if base.is_Number and exponent.is_Number:  # exact powers of numbers can have millions of digits
                    return sympy.Float(float(base) ** float(exponent))
                return sympy.Pow(base, exponent, evaluate=False)
            case ast.Call(ast.Name(name), arguments, []) if len(arguments) in _FUNCTIONS.get(name, ("", ()))[1]:
                # Numbers are rounded, because exact numbers, such as exp(exp(20.5)), can have billions of digits. SymPy
                # must not simplify min and max, because SymPy needs seconds to compare many arguments.
                options = {"evaluate": False} if name in ("min", "max") else {}
                given = [rounded(value(one)) for one in arguments]
                return rounded(getattr(sympy, _FUNCTIONS[name][0])(*given, **options))
        raise refused(node)

    try:
        if len(text) > _MAX_TEXT:
            raise InputError(f"at most {_MAX_TEXT} characters are possible")
        return value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, TypeError, ArithmeticError, RecursionError, MemoryError):
        raise InputError("this is not an expression, such as dt**2 * v**2") from None


def _sampling(grid: Grid, one: Any, taken: set[str]) -> Sampling:
    if not isinstance(one, Receivers):
        raise InputError(f"receivers: {shown(one)} is not an oc.Receivers")
    what = f"receivers {shown(one.name)}"
    if not isinstance(one.name, str) or not (one.name.isascii() and one.name.isidentifier()):
        raise InputError(f"{what}: a name is letters, digits and _, such as 'line'")
    require_short_name("receivers", one.name)
    if one.name in taken:
        raise InputError(f"{what} are given twice; give each its own name")
    names = [field.name for field in grid.stencil.fields]
    if not isinstance(one.field, str) or one.field not in names:
        raise InputError(f"{what}: there is no field {shown(one.field)}; there are: {', '.join(names)}")
    cells, weights = grid.corners(what, one.points)
    return Sampling(one.name, one.field, cells, weights, as_flag(one.before, f"{what}: before"))


def _check_rim(grid: Grid, number: int, source: Injection) -> None:
    """Raise InputError when a source adds a value other than 0 to a cell of the rim."""
    loud: NDArray[np.bool_] = (source.values != 0).any(axis=0)
    matters = (source.weights != 0) & loud[:, None]
    low, high = np.array(grid.boundary.rims(grid.stencil.radii)).T
    first, end = low, np.array(grid_shape(grid.arrays)) - high
    bad = ((source.cells < first) | (source.cells >= end)).any(axis=2) & matters
    if bad.any():
        point, corner = np.argwhere(bad)[0]
        ndim = len(grid.shape)
        places = zip(grid.axis_names, source.cells[point, corner][list(PLACES[ndim])], strict=True)
        cell = ", ".join(f"{axis}={place}" for axis, place in places)
        raise InputError(
            f"source {number} in {source.field!r}: point {point} needs cell {cell} of the fixed rim, which keeps its "
            f"values; move it inwards, {counted(int(low.max(initial=0)), 'cell')} from the boundary at least"
        )


def _all_snapshots(grid: Grid, given: Sequence[Any], more: Sequence[SnapshotsEntry]) -> tuple[SnapshotsEntry, ...]:
    """Return the entries of all snapshots, beginning with `more`. Raises InputError if two entries have the same name,
    or if the name of an entry is the name of a field or a coordinate."""
    found: dict[str, SnapshotsEntry] = {}
    for entry in (*more, *(_snapshots(grid, one) for one in given)):
        if entry.name in found:
            which = f"two have the name {entry.name!r}" if entry.name else "at most one can be without a name"
            raise InputError(f"snapshots: {which}; give " + by_caller("another `name`", "oc.Snapshots(..., name=...)"))
        found[entry.name] = entry
    taken = {*grid.updated, *grid.reserved}
    for name in found:
        if name in taken:
            raise InputError(f"snapshots: name {name!r} is the name of a field or a coordinate; choose another")
    return tuple(found.values())


def _snapshots(grid: Grid, given: Any) -> SnapshotsEntry:
    if not isinstance(given, Snapshots):
        raise InputError(f"snapshots: {shown(given)} is not an oc.Snapshots")
    if not isinstance(given.name, str) or (given.name and not (given.name.isascii() and given.name.isidentifier())):
        raise InputError(f"snapshots: name {shown(given.name)} must be letters, digits and _, such as 'side'")
    require_short_name("snapshots", given.name)
    if given.name == HISTORY:
        raise InputError(f"snapshots: name {HISTORY!r} is reserved for the history of a run; choose another")
    fields = _fields(grid, "snapshots", given.fields)
    for name in fields:
        if name in grid.reserved:
            raise InputError(f"snapshots: field {name!r} has the name of a coordinate; leave it out")
    if not isinstance(given.time_units, str):
        raise InputError(f"snapshots: time_units {shown(given.time_units)} must be text, such as 's'")
    initial = as_flag(given.initial, "snapshots: initial")
    every, box = as_whole_number(given.every, "snapshots: every"), _box(grid, given.box)
    coarsen = _group(grid, given.coarsen, box)
    return SnapshotsEntry(every, fields, box, given.time_units, initial, given.name, coarsen=coarsen)


def _group(grid: Grid, coarsen: Any, box: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Return the number of cells of a group along each axis, or () if each group has one cell. A group is not larger
    than the box."""
    ndim = len(grid.shape)
    is_several = isinstance(coarsen, (Sequence, np.ndarray)) and not isinstance(coarsen, (str, bytes))
    several = list(islice(coarsen, 4)) if is_several else [coarsen] * ndim
    if len(several) != ndim:
        axes = ", ".join(grid.axis_names)
        raise InputError(f"snapshots: coarsen {shown(coarsen)} must be a whole number, or one for each axis: {axes}")
    cells = [as_whole_number(one, f"snapshots: coarsen {shown(coarsen)}:") for one in several]
    group = tuple(min(one, end - begin) for one, (begin, end) in zip(cells, box, strict=True))
    return group if max(group) > 1 else ()


def _norms(grid: Grid, given: Any) -> NormsEntry:
    if not isinstance(given, Norms):
        raise InputError(f"norms: {shown(given)} is not an oc.Norms")
    every, fields = as_whole_number(given.every, "norms: every"), _fields(grid, "norms", given.fields)
    return NormsEntry(every, fields, as_flag(given.initial, "norms: initial"))


def _fields(grid: Grid, what: str, names: Any) -> tuple[str, ...]:
    if isinstance(names, Field) or not isinstance(names, Iterable):
        raise InputError(f"{what}: fields {shown(names)} must be names; there are: {', '.join(grid.updated)}")
    wanted: tuple[Any, ...] = (names,) if isinstance(names, str) else tuple(islice(names, len(grid.updated) + 1))
    for name in wanted:
        if not isinstance(name, str) or name not in grid.updated:
            raise InputError(f"{what}: {shown(name)} is not an updated field; there are: {', '.join(grid.updated)}")
    if len(set(wanted)) < len(wanted):
        raise InputError(f"{what}: fields {', '.join(wanted)} contain a name twice")
    return wanted or tuple(grid.updated)


def _box(grid: Grid, box: Any) -> tuple[tuple[int, int], ...]:
    """Return the half-open range (first, end) of the box along each axis, in cells of the arrays on disk."""
    given = box if isinstance(box, Sequence) else [box]
    slices = [slice(None)] * len(grid.shape) if box is None else list(islice(given, 4))
    if len(slices) != len(grid.shape) or not all(isinstance(one, slice) for one in slices):
        axes = ", ".join(grid.axis_names)
        pair = by_caller("[begin, end]", "a slice")
        raise InputError(f"snapshots: box {shown(box)} must be {pair} for each axis: {axes}")
    found = []
    for axis, one, n, pad in zip(grid.axis_names, slices, grid.shape, grid.padding, strict=True):
        try:
            begin, end, step = one.indices(n)
        except TypeError:
            raise InputError(f"snapshots: box {shown(one)} along {axis} must have whole numbers") from None
        beyond = any(place is not None and not -n <= place <= n for place in (one.start, one.stop))
        if step != 1 or begin >= end or beyond:
            step = by_caller("", " with step 1")
            raise InputError(f"snapshots: box {shown(one)} along {axis} is not a range within 0 to {n}{step}")
        found.append((begin + pad, end + pad))
    return tuple(found)


def read_definitions(directory: Directory, manifest: Manifest) -> AcquisitionDefinitions:
    """Return the acquisition that is stored in the files of a run. The files with the values of sources are mapped into
    memory. Raises StorageError when a file is missing, and CorruptionError when a cell lies outside the grid."""
    entries = manifest.taps
    injections, samplings = [], []
    for number, source in enumerate(entries.sources):
        cells, weights = _points(directory, manifest, f"source-{number}", source)
        scale = None if source.scale is None else SourceFactor.from_json(source.scale)
        injections.append(Injection(source.field, cells, weights, mapped_values(directory, manifest, number), scale))
    for number, one in enumerate(entries.samplings):
        cells, weights = _points(directory, manifest, f"receivers-{number}", one)
        samplings.append(Sampling(one.name, one.field, cells, weights, one.before))
    return AcquisitionDefinitions(tuple(injections), tuple(samplings), entries.snapshots, entries.norms)


def mapped_values(directory: Directory, manifest: Manifest, number: int) -> NDArray[np.float64]:
    """Return the values of source `number`, of shape (steps, points), as a memory map. Raises StorageError."""
    one, name = manifest.taps.sources[number], f"source-{number}"
    if one.steps == 0:
        return np.zeros((0, one.points))
    offset = manifest.taps.definitions[name] - 8 * one.steps * one.points
    with _opened(directory, manifest, name) as handle, os.fdopen(os.dup(handle), "rb") as file:
        return np.memmap(file, "<f8", "r", offset, (one.steps, one.points))


def definition_files(directory: Directory, manifest: Manifest) -> dict[str, NDArray[np.uint8]]:
    """Return a dictionary that maps the name of each file with points and values to a memory map of this file. Raises
    CorruptionError if a file has changed. Raises StorageError if a file cannot be read."""
    found: dict[str, NDArray[np.uint8]] = {}
    for name in manifest.taps.definitions:
        if damage := damage_of(directory, manifest, name):
            raise CorruptionError(f"{damage}; restore a copy")
        with _opened(directory, manifest, name) as handle, os.fdopen(os.dup(handle), "rb") as file:
            found[name] = np.memmap(file, np.uint8, "r")
    return found


def samplings_in(files: Mapping[str, NDArray[np.uint8]], manifest: Manifest) -> list[Sampling]:
    """Return the receivers that are stored in `files`, which is the result of `definition_files`. Raises
    CorruptionError when a cell lies outside the grid."""
    found = []
    for number, one in enumerate(manifest.taps.samplings):
        name = f"receivers-{number}"
        found.append(Sampling(one.name, one.field, *_points_in(files[name], manifest, Path(name), one), one.before))
    return found


def _points(
    directory: Directory, manifest: Manifest, name: str, entry: SourceEntry | SamplingEntry
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the cells of a source or receiver, of shape (points, corners, 3), and the weights, of shape (points,
    corners)."""
    with _opened(directory, manifest, name) as handle:
        data = directory.read_from(handle, 0, entry.points * entry.corners * 4 * 8)
    return _points_in(data, manifest, directory.path / ACQUISITION / name, entry)


def _points_in(
    data: Buffer, manifest: Manifest, path: Path, entry: SourceEntry | SamplingEntry
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the cells and weights in the content of the file `path`."""
    shape = (entry.points, entry.corners)
    count = entry.points * entry.corners
    cells = np.frombuffer(data, "<i8", count * 3).reshape(*shape, 3)
    weights = np.frombuffer(data, "<f8", count, count * 3 * 8).reshape(shape)
    if ((cells < 0) | (cells >= np.array(manifest.whole_layout.shape))).any() or not np.isfinite(weights).all():
        raise CorruptionError(f"{path} is damaged: it has points outside the grid")
    return cells, weights


@contextlib.contextmanager
def _opened(directory: Directory, manifest: Manifest, name: str) -> Iterator[int]:
    path, expected = directory.path / ACQUISITION / name, manifest.taps.definitions[name]
    with os_errors_as(StorageError, f"{path} cannot be used"), directory.opened(f"{ACQUISITION}/{name}") as handle:
        if (size := os.fstat(handle).st_size) != expected:
            raise CorruptionError(f"{path} has {size} bytes, not {expected}")
        yield handle
