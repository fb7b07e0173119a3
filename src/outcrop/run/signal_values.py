"""Signals of a run: their values checked, and kept in the manifest bit for bit."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from outcrop.errors import InputError, shown
from outcrop.run.given import require_mapping

if TYPE_CHECKING:
    from outcrop.language.stencil import Stencil

_STORED = np.dtype("<f8")


def encode_signals(stencil: Stencil, signals: Mapping[str, Any]) -> dict[str, str]:
    """The text of each signal of `stencil`: its doubles, little endian, in base64.

    `signals` has a sequence of finite numbers for each, one for every step from the first one of the run on. Raises
    InputError for names that are missing or unknown, and for values that cannot be.
    """
    require_mapping(signals, "signals", "src")
    there = ", ".join(stencil.signals) or "none"
    for name in signals:
        if name not in stencil.signals:
            raise InputError(f"stencil {stencil.name!r} has no signal {shown(name)}; there are: {there}")
    for name in stencil.signals:
        if name not in signals:
            raise InputError(f"signal {name!r} of {stencil.name} has no values; give signals={{{name!r}: values}}")
    return {name: base64.b64encode(_doubles(name, signals[name]).tobytes()).decode() for name in stencil.signals}


def decode_signals(texts: Mapping[str, str]) -> dict[str, NDArray[np.float64]]:
    """The values that `encode_signals` put into texts. Raises InputError when they are damaged."""
    try:
        stored = {name: np.frombuffer(base64.b64decode(text, validate=True), _STORED) for name, text in texts.items()}
    except ValueError:
        raise InputError("the signals of this run are damaged; give them again") from None
    return {name: _doubles(name, values) for name, values in stored.items()}


def require_steps(values: Mapping[str, NDArray[np.float64]], steps: int) -> None:
    """Raise InputError unless every signal has values for steps 0 to `steps` - 1."""
    for name, one in values.items():
        if len(one) < steps:
            raise InputError(
                f"signal {name!r} has {len(one)} values, {steps} steps from the beginning of the run need {steps}; "
                "give a longer one"
            )


def _doubles(name: str, values: Any) -> NDArray[np.float64]:
    try:
        found = np.asarray(values)
        real = found.dtype.kind in "buif"
    except Exception:  # lists of different lengths, and what users' own classes raise
        real = False
    if not real or found.ndim != 1:
        raise InputError(f"signal {name!r} must be one sequence of real numbers, one for each step")
    with np.errstate(over="ignore"):
        doubles = found.astype(_STORED)
    if len(wrong := np.flatnonzero(~np.isfinite(doubles))):
        raise InputError(f"signal {name!r} is {doubles[wrong[0]]} in step {wrong[0]}; its values must be finite")
    return doubles
