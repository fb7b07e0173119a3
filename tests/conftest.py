"""Fixtures for all tests: restore the rounding mode after each test, let image files act as block devices, and keep
the figures that are drawn. profiles.py has further settings."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

import profiles  # noqa: F401
from images import take_images_for_devices
from outcrop import _core

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@pytest.fixture(autouse=True)
def standard_rounding() -> Iterator[None]:
    """Restore the rounding mode after each test.

    An operator of Devito changes the floating-point mode of its thread. In the changed mode, NumPy also treats
    subnormal numbers as zeros in this thread. The changed mode must not affect other tests."""
    yield
    _core.restore_rounding()


@pytest.fixture
def images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let files whose names end in .img act as block devices."""
    take_images_for_devices(monkeypatch.setattr)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Keep the figures (objects of matplotlib) of all pictures that a test writes."""
    from matplotlib.figure import Figure

    figures: list[Figure] = []
    save = Figure.savefig

    def keep(figure: Figure, *arguments: Any, **given: Any) -> None:
        figures.append(figure)
        save(figure, *arguments, **given)

    monkeypatch.setattr(Figure, "savefig", keep)
    return figures


# These tests read the result of a run with the package zarr. The package zarr needs Python 3.11, so older versions of
# Python skip these tests. A run itself does not need the package zarr.
READ_WITH_ZARR = ["arrays", "array_commits", "initial", "memory", "weather", "zarr"]
collect_ignore = [] if find_spec("zarr") else [f"test_{name}.py" for name in READ_WITH_ZARR]
