"""Initial values as `InputArray`s, from texts of `--init` and from values that users assign.

In this module, a plane of a grid with two axes is one row.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path

import numpy as np

from outcrop.axes import (
    FIRST_AXIS,
    NAMES,
    ORDERS,
    PLACES,
    Shape,
    axes_text,
    grid_shape,
    option_text,
    order_text,
    size_text,
)
from outcrop.errors import InputError, by_caller, shown
from outcrop.language.stencil import Stencil
from outcrop.paths import as_path, is_there
from outcrop.run.disk.entries import arrays_of
from outcrop.run.disk.layout import PlaneLayout
from outcrop.run.disk.manifest import MANIFEST
from outcrop.run.disk.planes import PlaneSource
from outcrop.run.disk.values import PlanesView
from outcrop.run.inputs.formats import FORMS, NETCDF, open_values
from outcrop.run.inputs.formats.run import arrays_at
from outcrop.run.inputs.input_array import CACHE_BYTES, Array, InputArray, can_lift, plane_groups, require_real
from outcrop.run.inputs.resample import resample
from outcrop.run.user_values import require_unmasked

NAMED = ("zeros", "gaussian", "random")
"""The names of initial values that need no file."""

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_SEED = re.compile("[0-9]{1,20}")
_RESAMPLE = re.compile(r"(?P<file>.+)@resample(?::(?P<axes>[A-Za-z]+))?")


def is_named(text: str) -> bool:
    """Return True if a text of `--init` is a number or a name in NAMED."""
    name, _, rest = text.partition(":")
    return _NUMBER.fullmatch(text) is not None or (name in NAMED and not (rest and name != "random"))


def needs_shape(text: str) -> bool:
    """Return True if the initial values of a text depend on the shape of the grid. A text that depends on the shape is
    a number, a name in NAMED, or the name of a file that is interpolated."""
    return is_named(text) or _RESAMPLE.fullmatch(text) is not None


def parse_source(
    text: str, shape: Shape | None, cache_bytes: int = CACHE_BYTES, names: Sequence[str] = ()
) -> InputArray:
    """Return the input array for a text of `--init`: zeros, gaussian, random[:SEED], a number, FILE, or
    FILE@resample[:AXES].

    FILE@resample interpolates linearly onto `shape`. With `@resample`, the first sample of the file lies in the first
    cell of the grid, and the last sample lies in the last cell, along each axis. AXES are the letters of the file's
    axes, slowest first: xz for a section of shape (nx, nz). If a file is not stored plane by plane, the whole file is
    read approximately (file size / `cache_bytes`) times. `shape` may be None for a file without @resample. `names` are
    the names of the axes, for messages. Raises InputError for unknown names, and for files that are missing or have
    another format or shape."""
    if shape is None and needs_shape(text):
        size = by_caller(option_text(3), f"shape={ORDERS[3]}")
        raise InputError(f"{_given(text)} needs the size of the grid: give {size}")
    if shape is not None and is_named(text):
        name, _, rest = text.partition(":")
        if name == "random":
            if rest and not _SEED.fullmatch(rest):
                raise InputError(f"{_option()} {shown(text)}: the seed must be a whole number, as in random:42")
            return _random(shape, int(rest or 0))
        if _NUMBER.fullmatch(text):
            return _constant(shape, float(text))
        return _zeros(shape) if name == "zeros" else _gaussian(shape)
    match = _RESAMPLE.fullmatch(text)
    # A run or a Zarr array is a folder. A text raw:FILE can name a file of a run. A NetCDF file can be a view of a run
    # (outcrop export --hdf5).
    file = match["file"] if match else text
    is_apart = os.path.isfile(file) and not file.endswith(NETCDF.suffixes)
    if not set("./@") & set(text) and not is_there(text):
        raise InputError(
            f"{_option()} {shown(text)}: neither a file nor a known name; there are zeros, gaussian, random:SEED, a "
            f"number, {FORMS}"
        )
    if match is None or shape is None:
        return replace(require_shape(open_values(text, "", cache_bytes), shape, names=names), is_apart=is_apart)
    resampled = resample(match["file"], shape, axes=match["axes"] or "", cache_bytes=cache_bytes)
    return replace(resampled, is_apart=is_apart)


def make_source(
    values: object, shape: Shape, cache_bytes: int = CACHE_BYTES, names: Sequence[str] = ()
) -> InputArray:
    """Return the input array for a value that a user assigns: a number, an array, an InputArray, or an object of zarr,
    dask or xarray. The value may also be a callable (z0, z1) -> planes, or a text that `--init` accepts. Raises
    InputError for other values and for a wrong shape. `names` are the names of the axes, for messages."""
    if isinstance(values, (str, os.PathLike)):
        return parse_source(str(as_path(values, "values")), shape, cache_bytes, names)
    if callable(values) and not hasattr(values, "shape"):
        _require_two_arguments(values, shape, names)
        return InputArray("a function", shape, values)
    if np.isscalar(values) or (isinstance(values, np.ndarray) and values.ndim == 0):
        return _constant(shape, values)
    return require_shape(open_values(values, "", cache_bytes), shape, is_option=False, names=names)


def named_source(
    name: str, values: object, shape: Shape, cache_bytes: int = CACHE_BYTES, names: Sequence[str] = ()
) -> InputArray:
    """Return the result of `make_source` for the values of the field `name`. If `make_source` raises an error, the
    message begins with the name of the field."""
    try:
        source = make_source(values, shape, cache_bytes, names)
    except InputError as error:
        raise type(error)(f"{name}: {error}") from error
    return replace(source, name=f"{name}: {source.name}")


def _require_two_arguments(function: Callable[..., object], shape: Shape, names: Sequence[str]) -> None:
    """Raise InputError if a function of values cannot be called as function(z0, z1)."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions in C have no signature
        return
    try:
        signature.bind(0, 1)
    except TypeError:
        axis = (names or NAMES[len(shape)])[0]
        what = "all cells" if len(shape) == 1 else f"the {FIRST_AXIS[len(shape)]} {axis}0 to {axis}1 - 1"
        raise InputError(
            f"the function has the arguments {signature}; it must be function({axis}0, {axis}1), and return {what}"
        ) from None


def cache_within(memory_bytes: int) -> int:
    """Return the size of the cache of planes, in bytes. The cache of planes is used before the window is allocated. The
    size of the cache is half of the budget, but at least CACHE_BYTES."""
    return max(CACHE_BYTES, memory_bytes // 2)


def require_shape(
    array: InputArray, shape: Shape | None, is_option: bool = True, names: Sequence[str] = ()
) -> InputArray:
    """Return `array`. Raises InputError if `shape` is not None and the array has another shape. If `is_option` is true,
    the values come from `--init`. If `is_option` is true, the message of the error names options of the commands."""
    if shape is None or array.shape == tuple(shape):
        return array
    if len(array.shape) == len(shape):
        also = by_caller(f", that is {size_text(shape)}", "") if is_option else ""
        grid = f"is {tuple(shape)} {order_text(len(shape), names)}{also}"
    else:
        grid = f"{tuple(shape)} has {axes_text(len(shape), names)}"
    written = "write FILE@resample" if is_option else by_caller("save it as FILE.npy, and write FILE.npy@resample", "")
    ways = [one for one in (written, by_caller("", "use oc.resample")) if one]
    remedy = f"to interpolate {', or '.join(ways)}" if can_lift(array, len(shape)) else "take a slice"
    if array.shape == tuple(shape)[::-1]:
        remedy = "its axes are in the reverse order, so transpose it"
    raise InputError(f"{array.name} has shape {array.shape}, the grid {grid}; {remedy}")


def checked_planes(
    array: InputArray, dtype: str, check_finite: bool, names: Sequence[str] = (), reason: str = ""
) -> Callable[[int, int], Array]:
    """Return a function (z0, z1) that returns planes of `array`, converted to `dtype`, on the engine's three axes. The
    function raises InputError for wrong shapes. If `check_finite` is true, the function also raises InputError for NaN
    and infinity. `names` are the names of the axes, for messages. The message about NaN ends with `reason`."""
    _, ny, nx = grid_shape(array.shape)

    def planes(z0: int, z1: int) -> Array:
        first, end = (0, nx) if len(array.shape) == 1 else (z0, z1)
        given = array.planes(first, end)
        require_unmasked(given, array.name)
        block = np.asarray(given)
        expected = (end - first, *array.shape[1:])
        if block.shape != expected:
            which = f"{FIRST_AXIS[len(array.shape)]} {first} to {end - 1}"
            raise InputError(f"{array.name} gave shape {block.shape} for {which}, not {expected}")
        block = block.reshape(z1 - z0, ny, nx)
        require_real(array.name, block.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            block = block.astype(dtype, copy=False)
        if check_finite and not np.isfinite(block).all():
            z, y, x = np.argwhere(~np.isfinite(block))[0]
            cell, ndim = (z0 + z, y, x), len(array.shape)
            own = zip(names or NAMES[ndim], PLACES[ndim], strict=True)
            where = ", ".join(f"{name}={cell[place]}" for name, place in own)
            raise InputError(f"{array.name} holds {block[z, y, x]} at {where}{reason}")
        return block

    return planes


def scan_finite(array: InputArray, dtype: str, names: Sequence[str] = ()) -> None:
    """Read the whole array once. Convert each value to `dtype`, and raise InputError for the first value that is not
    finite. `names` are the names of the axes, for messages."""
    option = by_caller("--check-finite", "check_finite=True")
    planes = checked_planes(array, dtype, check_finite=True, names=names, reason=f" ({option})")
    for z0, z1 in plane_groups(grid_shape(array.shape), itemsize=8):
        planes(z0, z1)


def read_all(sources: Iterable[PlaneSource], layout: PlaneLayout) -> None:
    """Read all planes of each source in ascending order, and do not use the values. Raises the errors of the
    sources."""
    for give in sources:
        for z0, z1 in plane_groups(layout.shape, np.dtype(layout.dtype).itemsize):
            give(z0, z1)


def _zeros(shape: Shape) -> InputArray:
    return InputArray("zeros", shape, lambda z0, z1: np.zeros((z1 - z0, *shape[1:]), np.float32), constant=0.0,
                      is_apart=True)  # fmt: skip


def _constant(shape: Shape, value: object) -> InputArray:
    require_unmasked(value, "the value")
    number = np.asarray(value)
    require_real("the value", number.dtype)
    if not np.isfinite(number):
        raise InputError(f"the value {shown(value)} must be a finite number")

    def planes(z0: int, z1: int) -> Array:
        return np.broadcast_to(number, (z1 - z0, *shape[1:]))

    return InputArray("a constant", shape, planes, constant=float(number), is_apart=True)


def constant_ranges(initial: Mapping[str, InputArray]) -> dict[str, tuple[float, float]]:
    """For each array with the same initial value in all cells, return its minimum and its maximum. Minimum and maximum
    are equal to this value."""
    return {name: (one.constant, one.constant) for name, one in initial.items() if one.constant is not None}


def _gaussian(shape: Shape) -> InputArray:
    """Return a Gaussian of height 1 in the middle of the grid. Along an axis of `size` cells, the standard deviation of
    the Gaussian is `size` / 8."""
    bells = [np.exp(-(((np.arange(n) - (n - 1) / 2) / (n / 8)) ** 2) / 2) for n in shape]

    def planes(z0: int, z1: int) -> Array:
        across = reduce(np.multiply.outer, bells[1:]) if bells[1:] else 1.0
        return np.asarray(np.multiply.outer(bells[0][z0:z1], across))

    return InputArray("gaussian", shape, planes, is_apart=True)


def _random(shape: Shape, seed: int) -> InputArray:
    """Return random values that are uniformly distributed in [0, 1). Each plane has its own generator of random
    numbers. So the value of a cell depends only on the seed and on the place of the cell."""

    def planes(z0: int, z1: int) -> Array:
        if len(shape) == 1:
            return np.random.default_rng([seed, 0]).random(shape[0], np.float32)[z0:z1]
        return np.stack([np.random.default_rng([seed, z]).random(shape[1:], np.float32) for z in range(z0, z1)])

    return InputArray(f"random:{seed}", shape, planes, is_apart=True)


class InputView(PlanesView):
    """A view of initial values that belong to no run, such as the values in a file. The view is indexed like an
    array."""

    def __init__(self, array: InputArray) -> None:
        self._array, self.shape = array, array.shape
        self.dtype = np.asarray(array.planes(0, 1)).dtype

    def _read(self, wanted: range) -> Iterator[Array]:
        if self.ndim == 1:  # one call reads all cells, because each call may read the whole file
            yield np.asarray(self._array.planes(0, self.shape[0]))[np.arange(wanted.start, wanted.stop, wanted.step)]
            return
        for z in wanted:
            yield np.asarray(self._array.planes(z, z + 1))


def values_by_name(init: object, stencil: Stencil) -> dict[str, object]:
    """Return a dictionary that maps names of arrays to their initial values. `init` is a mapping from names to values,
    a single value, or one or several texts "NAME=VALUE". If the stencil has only one field, NAME can be omitted from
    NAME=VALUE. Raises InputError for fields that are unknown or given twice."""
    names = [entry.name for entry in arrays_of(stencil)]
    if init is None:
        return {}
    if isinstance(init, Mapping):
        pairs = list(init.items())
    elif isinstance(init, str) or (isinstance(init, (list, tuple)) and all(isinstance(one, str) for one in init)):
        texts = [init] if isinstance(init, str) else list(init)
        runs = [text for text in texts if _is_run(text)]
        of_runs = {name: value for text in runs for name, value in _of_run(text, names, stencil).items()}
        pairs = [_named(text, names, stencil) for text in texts if text not in runs]
        pairs = [*((name, value) for name, value in of_runs.items() if name not in dict(pairs)), *pairs]
    elif len(stencil.fields) == 1:
        pairs = [(names[0], init)]
    else:
        example = by_caller(f"{{ {names[0]} = ... }}", f"{{{names[0]!r}: ...}}")
        raise InputError(f"init: {stencil.name} has several fields; give values by name, such as {example}")
    found: dict[str, object] = {}
    for name, value in pairs:
        if name not in names:
            there = ", ".join(names)
            raise InputError(f"init {name}={shown(value)}: {stencil.name} has no field {name!r}; there are: {there}")
        if name in found:
            raise InputError(f"init: {name} is given twice")
        found[name] = value
    return found


def _is_run(text: str) -> bool:
    """Return True if a text of `--init` is the directory of another run."""
    return os.path.isfile(os.path.join(text, MANIFEST))


def _of_run(text: str, names: Sequence[str], stencil: Stencil) -> dict[str, str]:
    """Return the initial values from another run as a dictionary. The keys of the dictionary are the names of the
    arrays that both runs have. The values of the dictionary are the paths of the arrays in the other run."""
    there = arrays_at(Path(text))
    if common := [one for one in names if one in there]:
        return {one: f"{text}/{one}" for one in common}
    raise InputError(f"{_given(text)}: {stencil.name} has none of its arrays: {', '.join(there) or 'it has no values'}")


def _named(text: str, names: Sequence[str], stencil: Stencil) -> tuple[str, str]:
    """Split a text of `--init`: ("u", "gaussian") for "u=gaussian", or for "gaussian" if u is the only field."""
    name, equals, value = text.partition("=")
    name = name.strip()
    if equals and (name in names or not is_there(text)):
        return name, value
    if len(stencil.fields) > 1:
        raise InputError(
            f"{_given(text)}: {stencil.name} has several fields; write "
            + by_caller(f"--init NAME={text}, NAME being", f"init={{NAME: {text!r}}}, NAME being")
            + f" one of {', '.join(names)}"
        )
    return names[0], text


def _given(text: object) -> str:
    """Return a text for messages: the option or the argument with which the caller has given an initial value."""
    return by_caller(f"--init {text}", f"init {shown(text)}")


def _option() -> str:
    return by_caller("--init", "init")


def _shape_option(stencil: Stencil) -> str:
    return by_caller(option_text(stencil.ndim), f"shape={ORDERS[stencil.ndim]}")


def shape_of_files(given: Mapping[str, object], stencil: Stencil) -> Shape:
    """Return the shape of the first file among the initial values. If no initial value is a file, return the shape of
    the first array."""
    files = [text for text in given.values() if isinstance(text, str) and not needs_shape(text)]
    shapes = [tuple(one.shape) for one in given.values() if hasattr(one, "shape") and len(one.shape)]
    if not files and shapes:
        return shapes[0]
    if not files:
        text = next(iter(given.values()))
        raise InputError(f"{_given(text)} needs the size of the grid: give {_shape_option(stencil)}")
    source = parse_source(files[0], None)
    if len(source.shape) != stencil.ndim:
        message = f"{source.name} has shape {source.shape}; {stencil.name} is for grids of {axes_text(stencil.ndim)}"
        if can_lift(source, stencil.ndim):
            message += f"; give {_shape_option(stencil)}, and write FILE@resample to fit it to that grid"
        raise InputError(message)
    return source.shape
