"""Settings of aggregation: arguments, MPI info hints, the environment. Their table is the core's placement/settings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from numbers import Real

from outcrop import _aggregate
from outcrop.errors import InputError, shown

Settings = _aggregate.Settings


def read_settings(
    arguments: Mapping[str, object] | None = None,
    hints: Mapping[str, str] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Settings:
    """The first that says something: arguments, hints, environment. Raises InputError for what cannot be.

    Arguments that are None or 0 say nothing.
    """
    given = {name: str(value) for name, value in (arguments or {}).items() if value}
    return _aggregate.settings(given, dict(hints or {}), environment_texts(environment))


def environment_texts(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Those of the environment that are settings, known or not."""
    return {name: value for name, value in environment.items() if name.startswith("OUTCROP_AGG_")}


def texts(arguments: Mapping[str, object]) -> dict[str, str]:
    """The arguments that say something, as the core reads them. Raises InputError for what is no number or text."""
    given = {}
    for name, value in arguments.items():
        if value is None:
            continue
        if not isinstance(value, str | Real | os.PathLike):
            raise InputError(f"{name} {shown(value)} must be a number or text")
        try:
            given[name] = os.fsdecode(value) if isinstance(value, os.PathLike) else str(value)
            given[name].encode()
        except ValueError:  # no UTF-8, or more digits than Python writes
            raise InputError(f"{name} {shown(value)} must be a number or text that can be written") from None
    return given
