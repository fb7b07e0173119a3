"""Arrays in folders with commits, every way to open one, and how it is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import outcrop as oc
from outcrop.errors import OutcropError

SHAPE = (3, 1 << 17)  # one and a half tiles of a MiB


def made(path: Path, steps: int = 1, first: float = 1) -> Path:
    """An array all of whose values are `first` after the first step, and one more after each other."""
    with oc.array(SHAPE, "float32", persist="step", path=path) as array:
        for step in range(steps):
            array[...] = first + step
            array.step()
    return path


def refusal(call: Callable[[], Any], *kinds: type[OutcropError]) -> str:
    """The one line with which it is refused."""
    with pytest.raises(kinds or OutcropError) as raised:
        call().abandon()
    assert "\n" not in str(raised.value) and "/proc/self/fd" not in str(raised.value)
    return str(raised.value)


def ways(path: Path) -> list[Callable[[], Any]]:
    """All public ways to open an array there; the last of them would change it."""
    return [
        lambda: oc.open_array(path, access="read"),
        lambda: oc.place({"a": oc.ArraySpec(SHAPE, "float32", persist="step", path=path)}).make()["a"],
        lambda: oc.array(SHAPE, "float32", persist="step", path=path),
        lambda: oc.open_array(path, access="update"),
    ]
