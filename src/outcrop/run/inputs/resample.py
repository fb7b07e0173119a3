"""Values of one grid on another: `resample` by linear interpolation, `extrude` by repetition; plane by plane.

Along each axis the samples of the result lie at equal steps over those of the input. Each is a + w (b - a) of the
samples a and b on either side; axis by axis this is the trilinear interpolant. Positions are fractions of whole
numbers, so where both grids have a sample, w is 0 and the value is the input's own, bit for bit. Values never leave the
range of the samples they lie between.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import islice
from typing import TypeAlias

from outcrop.axes import NAMES, PLACES, Shape, axes_text, grid_shape
from outcrop.errors import InputError, shown
from outcrop.run.given import as_number, as_whole_number
from outcrop.run.inputs.arrange import LETTERS, arrange
from outcrop.run.inputs.interpolate import AxisMap, Interpolator, axis_map
from outcrop.run.inputs.lift import lift
from outcrop.run.inputs.samples import open_as_stored, open_values
from outcrop.run.inputs.source import CACHE_BYTES, Array, Source, require_solid

Lengths: TypeAlias = float | Sequence[float]

OUTSIDE = ("refuse", "nearest")

SAMPLES_MOST = 1 << 27
"""Along an axis of the result, each of whose samples has its place in the input listed."""


def resample(
    values: object,
    shape: Sequence[int],
    *,
    axes: str = "",
    spacing: Lengths | None = None,
    new_spacing: Lengths | None = None,
    origin: Lengths = 0.0,
    outside: str = "refuse",
    cache_bytes: int = CACHE_BYTES,
) -> Source:
    """`values` on a grid of `shape`, interpolated linearly when its planes are asked for; to be assigned to a field.

    `values` is an array of one to three axes, a zarr, dask or xarray object, a file as `--init` names it, or what
    `resample` or `extrude` returned. `axes` are the letters of its axes, slowest first: "xz" for an array of shape
    (nx, nz). An axis of the grid that it does not have, or along which it has one sample, is filled with copies; on a
    grid of three axes a section without letters is (z, x), a profile (x).

    Without spacings the first and the last samples of both grids lie on each other. With them, sample i along an axis
    lies at i * `spacing` in the input, and at `origin` + i * `new_spacing` in the result, all in one unit of length: a
    number, or one for each axis of `shape` in its order. What lies outside the input is refused, or gets the
    "nearest" value.

    Nothing is filtered: to go to a coarser grid, smooth first what it cannot show. Up to `cache_bytes` of what is not
    stored plane by plane are kept in memory, and two planes of the input.
    Raises InputError for what cannot be opened, wrong letters, and samples outside.
    """
    target = require_shape_of_grid(shape)
    cache_bytes = as_whole_number(cache_bytes, "cache_bytes", least=0)
    source = lift(open_values(values, axes, cache_bytes), len(target))
    if not isinstance(outside, str) or outside not in OUTSIDE:
        raise InputError(f"outside {shown(outside)} is unknown; there are {', '.join(OUTSIDE)}")
    if spacing is None and new_spacing is None:
        if isinstance(origin, Iterable) or origin != 0.0:
            raise InputError(f"origin {shown(origin)} needs spacing and new_spacing")
        maps = [_between_ends(source, place, target) for place in range(3)]
    elif spacing is None or new_spacing is None:
        raise InputError("resample needs both spacing and new_spacing, or neither")
    else:
        old, new = (
            _lengths(name, given, len(target)) for name, given in (("spacing", spacing), ("new_spacing", new_spacing))
        )
        start = _lengths("origin", origin, len(target), signed=True)
        maps = [
            _at_distance(source, at, target, start[at] / old[at], new[at] / old[at], outside == "nearest")
            for at in range(3)
        ]
    interpolator = Interpolator(source, (maps[0], maps[1], maps[2]))

    def planes(z0: int, z1: int) -> Array:
        if len(target) == 1:
            return interpolator.planes(0, 1)[0, 0, z0:z1]
        return interpolator.planes(z0, z1).reshape(z1 - z0, *target[1:])

    return Source(f"{source.name}, resampled", target, planes)


def extrude(section: object, axis: str, count: int, *, axes: str = "", cache_bytes: int = CACHE_BYTES) -> Source:
    """A section (two axes), the same at `count` places along `axis`: "z", "y" or "x".

    `axes` are the letters of the section's own axes, slowest first, by default the other two in the order z, y, x:
    `extrude(model, "y", 512, axes="xz")` for a model of shape (nx, nz) gives the shape (nz, 512, nx).
    Takes what `resample` takes. Raises InputError for other letters, and for what is no section.
    """
    if not isinstance(axis, str) or axis not in tuple(LETTERS):
        raise InputError(f"axis {shown(axis)} is unknown; a section is extruded along z, y or x")
    others = LETTERS.replace(axis, "")
    if not isinstance(axes, str) or (axes and set(axes) != set(others)):
        names = f"the axes {others[0]} and {others[1]}"
        raise InputError(f"axes {shown(axes)}: a section extruded along {axis} has {names}")
    source = open_as_stored(section, as_whole_number(cache_bytes, "cache_bytes", least=0))
    if len(source.shape) == 2:
        own = source.axes if set(source.axes) == set(others) else ""
        flat = arrange(source, axes or own or others, cache_bytes)
    else:
        flat = arrange(source, source.axes, cache_bytes)
        if len(flat.shape) == 1 or axes or flat.shape[LETTERS.index(axis)] != 1:
            raise InputError(f"{source.name} has shape {source.shape}; only a section, of two axes, can be extruded")
    sizes = dict(zip(flat.axes or LETTERS, flat.shape, strict=True))
    sizes[axis] = count
    return replace(resample(flat, [sizes[letter] for letter in LETTERS]), name=f"{source.name}, extruded along {axis}")


def require_shape_of_grid(shape: Sequence[int]) -> Shape:
    """The shape itself; InputError unless it is one to three whole numbers of at least 1."""
    if not isinstance(shape, Iterable) or isinstance(shape, str):
        raise InputError(f"shape {shown(shape)} must be one to three whole numbers, such as (nz, ny, nx)")
    sizes = tuple(as_whole_number(size, f"shape {shown(shape)}: size", SAMPLES_MOST) for size in islice(shape, 4))
    return require_solid("the grid", sizes)


def _between_ends(source: Source, place: int, target: Shape) -> AxisMap:
    """First sample on first, last on last, along one of the three axes inside."""
    size, count = source.shape[place], grid_shape(target)[place]
    if size > 1 and count == 1:
        raise InputError(
            f"{source.name} has {size} samples along {_letter(place, target)}, the grid one; "
            "take a slice, or give spacings"
        )
    return axis_map(size, count, Fraction(0), Fraction(size - 1, max(1, count - 1)))


def _at_distance(source: Source, place: int, target: Shape, origin: Fraction, step: Fraction, extend: bool) -> AxisMap:
    """Sample i at origin + i * step samples of the input, along one of the three axes inside."""
    size, count = source.shape[place], grid_shape(target)[place]
    last = origin + (count - 1) * step
    if size > 1 and not extend and (origin < 0 or last > size - 1):
        raise InputError(
            f"{source.name} has samples 0 to {size - 1} along {_letter(place, target)}, the grid goes from "
            f"{float(origin):g} to {float(last):g} of them; outside='nearest' repeats the values at the rim"
        )
    return axis_map(size, count, origin, step)


def _letter(place: int, target: Shape) -> str:
    """What the grid itself calls one of the three axes inside."""
    ndim = len(target)
    return NAMES[ndim][PLACES[ndim].index(place)]


def _lengths(name: str, given: Lengths, ndim: int, signed: bool = False) -> list[Fraction]:
    """A length for each of the three axes inside, exactly as it was written in decimal; 1 where there is none."""
    several = list(islice(given, 4)) if isinstance(given, Iterable) else [given] * ndim
    # The decimal number, not its binary neighbour, so that 10 * 0.1 is a sample of a grid with spacing 1.
    exact = [Fraction(repr(as_number(length, f"{name} {shown(given)}:"))) for length in several]
    if len(exact) != ndim:
        raise InputError(f"{name} {shown(given)} has {len(exact)} numbers; the grid has {axes_text(ndim)}")
    if not signed and min(exact) <= 0:
        raise InputError(f"{name} {shown(given)} must be positive")
    inside = [Fraction(1)] * 3
    for place, length in zip(PLACES[ndim], exact, strict=True):
        inside[place] = length
    return inside
