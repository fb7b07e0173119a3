"""What all tests share, beside profiles.py: rounding, and files that pass for block devices."""

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

import profiles  # noqa: F401
from images import take_images_for_devices
from outcrop import _core


@pytest.fixture(autouse=True)
def standard_rounding() -> Iterator[None]:
    """Devito's operators leave their thread, NumPy included, taking subnormal numbers for zeros; no other test may see
    that."""
    yield
    _core.restore_rounding()


@pytest.fixture
def images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files called *.img pass for block devices."""
    take_images_for_devices(monkeypatch.setattr)


# The package zarr needs Python 3.11. Runs do not need it, but these tests read their results with it.
READ_WITH_ZARR = ["arrays", "array_commits", "initial", "memory", "weather", "zarr"]
collect_ignore = [] if find_spec("zarr") else [f"test_{name}.py" for name in READ_WITH_ZARR]
