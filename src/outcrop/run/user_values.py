"""Functions that check values from users and convert each kind of value to one form. The kinds are numbers, flags,
names, coordinates and signals."""

from __future__ import annotations

import base64
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from outcrop.axes import NAMES, GridShape
from outcrop.errors import InputError, by_caller, shown
from outcrop.language.schema import MAX_EXACT
from outcrop.run.disk.entries import Shown
from outcrop.units import ADDRESSABLE_BYTES

if TYPE_CHECKING:
    from outcrop.language.stencil import Stencil

MAX_NAME_BYTES = 64
"""The maximum length of a name, which becomes a part of a file name. File systems allow 255 bytes for a file name."""

_NO_NUMBERS = (str, bytes, bytearray, bool, np.bool_, np.ndarray)
_STORED = np.dtype("<f8")


def as_whole_number(value: object, name: str, maximum: int = ADDRESSABLE_BYTES - 1, minimum: int = 1) -> int:
    """Return the value as an int. Raises InputError if the value is not a whole number of Python or NumPy."""
    try:
        count = operator.index(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        count = None
    if count is None or isinstance(value, (bool, np.bool_)):
        raise InputError(f"{name} {shown(value)} must be a whole number")
    if count < minimum:
        raise InputError(f"{name} {shown(count)} must be at least {minimum}")
    if count > maximum:
        raise InputError(f"{name} {shown(count)} must be at most {maximum}")
    return count


def as_number(value: object, name: str) -> float:
    """Return the value as a finite float. Raises InputError if the value is not a number, such as text or True."""
    try:
        number = math.nan if isinstance(value, _NO_NUMBERS) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{name} {shown(value)} must be a finite number")
    return number


def as_flag(value: object, name: str) -> bool:
    """Return the value as True or False. Raises InputError if the value is not a flag, such as "no" or 0.0."""
    if not isinstance(value, (bool, np.bool_)):
        raise InputError(f"{name} {shown(value)} must be {by_caller('true or false', 'True or False')}")
    return bool(value)


def require_unmasked(
    values: object, name: str, remedy: str = "fill them, as in values.filled(0.0)"
) -> None:  # fmt: skip
    """Raise InputError if `values` is an array of NumPy with masked values. A conversion to another array would ignore
    the mask, and would return the numbers behind the mask."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise InputError(f"{name}: masked values are not numbers; {remedy}")


def as_real_array(values: object, name: str, kinds: str = "uif") -> NDArray[Any] | None:
    """Return the values as an array, or None if `values` does not contain real numbers. `kinds` are the accepted kinds
    of dtypes. Raises InputError for masked values, with a message that begins with `name`."""
    require_unmasked(values, name)
    try:
        found = np.asarray(values)
    except Exception:  # NumPy raises many types of errors for user classes, and for nested lists of unequal lengths
        return None
    return found if found.dtype.kind in kinds else None


def require_mapping(given: object, what: str, example: str) -> None:
    """Raise InputError if `given` is not a mapping from names to values."""
    if not isinstance(given, Mapping):
        values = by_caller(f"{{ {example} = ... }}", f"{{{example!r}: ...}}")
        raise InputError(f"{what} {shown(given)} must be values by name, such as {values}")


def require_short_name(what: str, name: str) -> None:
    """Raise InputError for a name that is too long for a file name."""
    if len(name.encode()) > MAX_NAME_BYTES:
        raise InputError(f"{what} {shown(name)}: the name is too long; give at most {MAX_NAME_BYTES} bytes")


@dataclass(frozen=True)
class Coordinates:
    """The coordinates of cells. Along each axis, cell k is at `origin + k * spacing`. The axes are in the same order as
    in the shape of the grid."""

    spacing: tuple[float, ...]
    origin: tuple[float, ...]
    units: Shown = ""

    def along(self, axis: int, cells: int) -> NDArray[np.float64]:
        """Return the coordinates of the first `cells` cells along an axis."""
        places: NDArray[np.float64] = self.origin[axis] + np.arange(cells, dtype=np.float64) * self.spacing[axis]
        return places


def as_coordinates(spacing: object, origin: object, units: object, ndim: int) -> Coordinates | None:
    """Return the coordinates that a user has given. If `spacing`, `origin` and `units` are all None, return None.
    `spacing` and `origin` are one number for all axes, or a sequence with one number for each axis. Raises InputError
    for wrong values."""
    if spacing is None and origin is None and units is None:
        return None
    if units is not None and not isinstance(units, str):
        raise InputError(f"units {shown(units)} must be text, such as 'm'")
    steps = _numbers("spacing", 1.0 if spacing is None else spacing, ndim)
    if min(steps) <= 0:
        raise InputError(f"spacing {shown(spacing)} must be positive")
    return Coordinates(steps, _numbers("origin", 0.0 if origin is None else origin, ndim), units or "")


def _numbers(what: str, given: Any, ndim: int) -> tuple[float, ...]:
    are_several = isinstance(given, (Sequence, np.ndarray)) and not isinstance(given, (str, bytes))
    several = islice(given, 4) if are_several else [given] * ndim
    numbers = tuple(as_number(one, f"{what} {shown(given)}:") for one in several)
    if len(numbers) != ndim:
        raise InputError(f"{what} {shown(given)} must be a finite number, or {ndim} numbers: {', '.join(NAMES[ndim])}")
    return numbers


def encode_signals(stencil: Stencil, signals: Mapping[str, Any]) -> dict[str, str]:
    """Return the signals of `stencil` as texts for the manifest: little-endian doubles in base64. If the value of a
    signal is the number of the step, the signal needs no text.

    `signals` contains a sequence of finite numbers for each signal, with one number for each step. Raises InputError
    for missing names, for unknown names, and for wrong values."""
    require_mapping(signals, "signals", "src")
    there = ", ".join(stencil.given_signals) or "none"
    for name in signals:
        if name not in stencil.given_signals:
            raise InputError(f"stencil {stencil.name!r} has no signal {shown(name)}; there are: {there}")
    for name in stencil.given_signals:
        if name not in signals:
            given = by_caller(f"problem.signals.{name} in a TOML file", f"signals={{{name!r}: values}}")
            raise InputError(f"signal {name!r} of {stencil.name} has no values; give {given}")
    return {name: base64.b64encode(_doubles(name, signals[name]).tobytes()).decode() for name in stencil.given_signals}


def changed_signals(
    stencil: Stencil, texts: Mapping[str, str], changes: Mapping[str, Any], step: int
) -> dict[str, str]:
    """A run at step `step` gets new values for the signals in `changes`. Return all signals of the run as texts for the
    manifest. Values that steps have already used do not change, because adjoint runs need these values. Raises the
    errors of `encode_signals`."""
    require_mapping(changes, "signals", "src")
    before = decode_signals(texts)
    after = decode_signals(encode_signals(stencil, {**before, **changes}))
    for name, values in after.items():
        if len(values) >= step:  # signals that are too short are refused later
            values[:step] = before[name][:step]
    return encode_signals(stencil, after)


def decode_signals(texts: Mapping[str, str]) -> dict[str, NDArray[np.float64]]:
    """Convert the texts that `encode_signals` has returned back to the values of signals. The returned values have the
    same bits as the values from which the texts were made. Raises InputError when a text is damaged."""
    try:
        stored = {name: np.frombuffer(base64.b64decode(text, validate=True), _STORED) for name, text in texts.items()}
    except ValueError:
        raise InputError("the signals of this run are damaged; give them again") from None
    return {name: _doubles(name, values) for name, values in stored.items()}


def require_exact_positions(stencil: Stencil, dtype: str, shape: GridShape) -> None:
    """Raise InputError if the stencil reads positions of cells, and a number of a cell cannot be represented exactly in
    `dtype`."""
    cells = max((shape[axis] for axis in stencil.positions), default=0)
    if dtype == "float32" and cells > MAX_EXACT:
        raise InputError(
            f"{stencil.name} reads positions, and an axis has {cells} cells; float32 has exact positions of up to "
            f"{MAX_EXACT} cells: use dtype float64"
        )


def require_steps(
    stencil: Stencil, dtype: str, values: Mapping[str, NDArray[np.float64]], steps: int,
    time_line: tuple[int, int] = (0, 1),
) -> None:  # fmt: skip
    """Raise InputError if a signal has no value for one of the steps 0 to `steps` - 1. Also raise InputError if the
    stencil reads the number of the step, and such a number cannot be represented exactly in `dtype`. `time_line` is
    `Description.time_line`."""
    first, way = time_line
    numbers = max(steps, first + (steps if way > 0 else 1))
    if stencil.step_signal and dtype == "float32" and numbers > MAX_EXACT:
        raise InputError(
            f"{stencil.name} reads the number of the step; float32 has exact numbers of up to {MAX_EXACT} steps, "
            f"not of {numbers}: use dtype float64"
        )
    for name, one in values.items():
        if len(one) < steps:
            raise InputError(
                f"signal {name!r} has {len(one)} values, {steps} steps from the beginning of the run need {steps}; "
                "give a longer one"
            )


def _doubles(name: str, values: Any) -> NDArray[np.float64]:
    found = as_real_array(values, f"signal {name!r}", "buif")
    if found is None or found.ndim != 1:
        raise InputError(f"signal {name!r} must be one sequence of real numbers, one for each step")
    with np.errstate(over="ignore"):
        doubles = found.astype(_STORED)
    if len(wrong := np.flatnonzero(~np.isfinite(doubles))):
        raise InputError(f"signal {name!r} is {doubles[wrong[0]]} in step {wrong[0]}; its values must be finite")
    return doubles
