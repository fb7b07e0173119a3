"""Initial values: where they come from, plane by plane, whatever the size of the grid.

A `Source` gives planes z0 <= z < z1 on request; it is asked in ascending order, a few planes at a time, and gives the
same values however the planes are grouped.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from outcrop.errors import InputError

Array: TypeAlias = np.ndarray[Any, Any]
Shape: TypeAlias = tuple[int, int, int]

CACHED_BYTES = 64 << 20
"""Decoded planes of a chunked array that may be kept, so that a chunk is not decoded again for each plane."""


@dataclass(frozen=True)
class Source:
    """`planes(z0, z1)` returns an array of shape (z1 - z0, ny, nx) of any real dtype."""

    name: str
    shape: Shape
    planes: Callable[[int, int], Array]


def parse_source(text: str, shape: Shape | None) -> Source:
    """The source that `--init` names: zeros, gaussian, random[:SEED], FILE.npy or FILE.zarr.

    `shape` (nz, ny, nx) may be None for files. Raises InputError for unknown names, for files that are missing, foreign
    or of another shape.
    """
    name, _, rest = text.partition(":")
    if name in ("zeros", "gaussian", "random") and not (rest and name != "random"):
        if shape is None:
            raise InputError(f"--init {text} needs the size of the grid: give -n NX NY NZ")
        if name == "random":
            if rest and not rest.isdecimal():
                raise InputError(f"--init {text}: the seed must be a whole number of at least 0, as in random:42")
            return random_source(shape, int(rest or 0))
        return zeros_source(shape) if name == "zeros" else gaussian_source(shape)
    path = Path(text)
    if not path.exists():
        where = "no such file" if path.suffix in (".npy", ".zarr") or "/" in text else "neither a file nor a known name"
        raise InputError(f"--init {text}: {where}; there are zeros, gaussian, random:SEED, FILE.npy and FILE.zarr")
    source = zarr_source(path) if path.is_dir() else npy_source(path)
    return require_shape(source, shape)


def make_source(values: object, shape: Shape) -> Source:
    """The source for what a user assigns: a number, an array, a Zarr array, a callable (z0, z1) -> planes, a Source.

    Raises InputError for other things and for the wrong shape.
    """
    if isinstance(values, Source):
        return require_shape(values, shape)
    if isinstance(values, (str, os.PathLike)):
        return parse_source(os.fspath(values), shape)
    if callable(values) and not hasattr(values, "shape"):
        return Source("a function", shape, values)
    if np.isscalar(values) or (isinstance(values, np.ndarray) and values.ndim == 0):
        value = np.asarray(values)
        _require_real("the value", value.dtype)
        return Source("a constant", shape, lambda z0, z1: np.broadcast_to(value, (z1 - z0, *shape[1:])))
    if hasattr(values, "chunks") and hasattr(values, "shape"):
        return require_shape(_chunked_source("the array", values), shape)
    array = values if isinstance(values, np.ndarray) else np.asarray(values)
    _require_real("the array", array.dtype)
    return require_shape(_array_source("the array", array), shape)


def require_shape(source: Source, shape: Shape | None) -> Source:
    """The source itself; InputError unless it has `shape` (None: any)."""
    if shape is not None and tuple(source.shape) != tuple(shape):
        raise InputError(
            f"{source.name} has shape {tuple(source.shape)}, the grid is {tuple(shape)} (nz, ny, nx), "
            f"that is -n {' '.join(map(str, reversed(shape)))}"
        )
    return source


def checked_planes(source: Source, dtype: str, check_finite: bool) -> Callable[[int, int], Array]:
    """`source.planes` converted to `dtype`. Raises InputError for wrong shapes and, if asked, for values not finite."""

    def planes(z0: int, z1: int) -> Array:
        block = np.asarray(source.planes(z0, z1))
        expected = (z1 - z0, *source.shape[1:])
        if block.shape != expected:
            raise InputError(f"{source.name} gave shape {block.shape} for planes {z0} to {z1 - 1}, not {expected}")
        _require_real(source.name, block.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            block = block.astype(dtype, copy=False)
        if check_finite and not np.isfinite(block).all():
            z, y, x = np.argwhere(~np.isfinite(block))[0]
            raise InputError(f"{source.name} holds {block[z, y, x]} at z={z0 + z}, y={y}, x={x} (--check-finite)")
        return block

    return planes


def scan_finite(source: Source, dtype: str) -> None:
    """Go through all of `source` once; InputError at the first value that is not finite in `dtype`."""
    planes = checked_planes(source, dtype, check_finite=True)
    group = max(1, (4 << 20) // max(1, source.shape[1] * source.shape[2] * 8))
    for z0 in range(0, source.shape[0], group):
        planes(z0, min(z0 + group, source.shape[0]))


def zeros_source(shape: Shape) -> Source:
    """Zero everywhere."""
    return Source("zeros", shape, lambda z0, z1: np.zeros((z1 - z0, *shape[1:]), np.float32))


def gaussian_source(shape: Shape) -> Source:
    """A bump of height 1 in the middle, an eighth of the grid wide (standard deviation) along each axis."""
    bells = [np.exp(-(((np.arange(n) - (n - 1) / 2) / (n / 8)) ** 2) / 2) for n in shape]

    def planes(z0: int, z1: int) -> Array:
        return np.asarray(bells[0][z0:z1, None, None] * (bells[1][:, None] * bells[2]))

    return Source("gaussian", shape, planes)


def random_source(shape: Shape, seed: int) -> Source:
    """Uniform in [0, 1); each plane has its own generator, so values depend on the seed and the place only."""

    def planes(z0: int, z1: int) -> Array:
        return np.stack([np.random.default_rng([seed, z]).random(shape[1:], np.float32) for z in range(z0, z1)])

    return Source(f"random:{seed}", shape, planes)


def npy_source(path: Path) -> Source:
    """A three-dimensional .npy file of a real dtype, read in pieces and not left in the page cache."""
    try:
        with open(path, "rb") as file:
            version = np.lib.format.read_magic(file)
            read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
            shape, fortran, dtype = read_header[version](file)
            start = file.tell()
        size = path.stat().st_size
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError):
        raise InputError(f"{path} is not a .npy file; --init reads .npy and .zarr") from None
    _require_real(str(path), dtype)
    solid = _solid(str(path), shape)
    if size < start + dtype.itemsize * int(np.prod(shape)):
        raise InputError(f"{path} is cut short: {size} bytes for shape {shape} of {dtype}")
    if fortran:
        return _array_source(str(path), np.load(path, mmap_mode="r"))
    plane_cells = solid[1] * solid[2]

    def planes(z0: int, z1: int) -> Array:
        offset, count = start + z0 * plane_cells * dtype.itemsize, (z1 - z0) * plane_cells
        with open(path, "rb") as file:
            file.seek(offset)
            block = np.fromfile(file, dtype, count)
            os.posix_fadvise(file.fileno(), offset, count * dtype.itemsize, os.POSIX_FADV_DONTNEED)
        if block.size != count:
            raise InputError(f"{path} became shorter while it was read")
        return block.reshape(z1 - z0, *solid[1:])

    return Source(str(path), solid, planes)


def zarr_source(path: Path) -> Source:
    """A Zarr array, or a group of one array, or a run directory (its current state)."""
    try:
        import zarr
    except ImportError:
        raise InputError(f"{path}: reading Zarr needs zarr (Python 3.11 or later): pip install zarr") from None
    try:
        node = zarr.open(str(path), mode="r")
        if isinstance(node, zarr.Group):
            arrays = {name: array for name, array in node.arrays()}
            if len(arrays) != 1:
                names = ", ".join(sorted(arrays)) or "none"
                raise InputError(f"{path} is a Zarr group; name one of its arrays as {path}/NAME (there are: {names})")
            node = next(iter(arrays.values()))
    except InputError:
        raise
    except Exception as error:  # zarr raises many kinds for what is not Zarr
        raise InputError(f"{path} cannot be opened as Zarr: {' '.join(str(error).split())}") from None
    return _chunked_source(str(path), node)


def _chunked_source(name: str, array: Any) -> Source:
    """Planes of a chunked array; the chunks of one z are decoded together and kept while they are asked for."""
    _require_real(name, np.dtype(array.dtype))
    shape = _solid(name, array.shape)
    chunks = getattr(array, "chunks", None)
    depth = int(chunks[0]) if chunks and not isinstance(chunks[0], tuple) else 1
    plane_bytes = max(1, shape[1] * shape[2] * np.dtype(array.dtype).itemsize)
    depth = max(1, min(depth, CACHED_BYTES // plane_bytes))
    cached: dict[int, Array] = {}

    def planes(z0: int, z1: int) -> Array:
        parts = []
        for first in range(z0 // depth * depth, z1, depth):
            if first not in cached:
                cached.clear()
                try:
                    cached[first] = np.asarray(array[first : first + depth])
                except (ValueError, OSError) as error:
                    cause = " ".join(str(error).split())
                    raise InputError(f"{name} cannot be read at plane {first}: {cause}") from error
            parts.append(cached[first][max(z0 - first, 0) : z1 - first])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    return Source(name, shape, planes)


def _array_source(name: str, array: Array) -> Source:
    return Source(name, _solid(name, array.shape), lambda z0, z1: array[z0:z1])


def _solid(name: str, shape: tuple[int, ...]) -> Shape:
    if len(shape) != 3 or min(shape) < 1:
        raise InputError(f"{name} has shape {tuple(shape)}; three axes (nz, ny, nx) of at least 1 are needed")
    return (int(shape[0]), int(shape[1]), int(shape[2]))


def _require_real(name: str, dtype: np.dtype[Any]) -> None:
    if dtype.kind not in "buif":
        raise InputError(f"{name} has dtype {dtype}; only real numbers can be initial values")
