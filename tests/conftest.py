"""Fixtures for all tests: restore the rounding mode after each test, and let image files act as block devices.
profiles.py has further settings."""

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

import profiles  # noqa: F401
from images import take_images_for_devices
from outcrop import _core


@pytest.fixture(autouse=True)
def standard_rounding() -> Iterator[None]:
    """Restore the rounding mode after each test.

    An operator of Devito changes the floating-point mode of its thread. Then NumPy also treats subnormal numbers as
    zeros in this thread, which must not affect other tests."""
    yield
    _core.restore_rounding()


@pytest.fixture
def images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let files named *.img act as block devices."""
    take_images_for_devices(monkeypatch.setattr)


# Older versions of Python skip these tests. The tests read the result of a run with the package zarr, which needs
# Python 3.11. A run itself does not need zarr.
READ_WITH_ZARR = ["arrays", "array_commits", "initial", "memory", "weather", "zarr"]
collect_ignore = [] if find_spec("zarr") else [f"test_{name}.py" for name in READ_WITH_ZARR]
