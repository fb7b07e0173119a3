"""Functions for tests of arrays with commits: they make arrays in folders, list all ways to open an array, and catch
the errors of refused calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import outcrop as oc
from outcrop.errors import OutcropError

SHAPE = (3, 1 << 17)  # the array has 1.5 tiles of 1 MiB each


def made(path: Path, steps: int = 1, first: float = 1) -> Path:
    """Make an array and commit some steps. After the first step, all values of the array are `first`. Each step after
    the first step adds 1 to all values."""
    with oc.array(SHAPE, "float32", persist="step", path=path) as array:
        for step in range(steps):
            array[...] = first + step
            array.step()
    return path


def refusal(call: Callable[[], Any], *kinds: type[OutcropError]) -> str:
    """Run `call`. The call must raise an error whose type is one of `kinds` and whose message has one line. Return the
    message of the error."""
    with pytest.raises(kinds or OutcropError) as raised:
        call().abandon()
    assert "\n" not in str(raised.value) and "/proc/self/fd" not in str(raised.value)
    return str(raised.value)


def ways(path: Path) -> list[Callable[[], Any]]:
    """Return a list of functions: all public ways to open the array at `path`. Only the last function in the list opens
    the array for changes."""
    return [
        lambda: oc.open_array(path, access="read"),
        lambda: oc.place({"a": oc.ArraySpec(SHAPE, "float32", persist="step", path=path)}).make()["a"],
        lambda: oc.array(SHAPE, "float32", persist="step", path=path),
        lambda: oc.open_array(path, access="update"),
    ]
