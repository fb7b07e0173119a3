"""What all tests share: how long the random ones search, and Ctrl-C as in a terminal."""

import os
import signal
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
from hypothesis import settings

from images import take_images_for_devices
from outcrop import _core

# `make soak` searches elsewhere each time; otherwise two builds of the same code must give the same answer.
settings.register_profile("soak", deadline=None)
settings.register_profile("build", deadline=None, derandomize=True)
settings.load_profile("soak" if "OUTCROP_SOAK" in os.environ else "build")

# A shell that starts jobs in the background makes them ignore Ctrl-C, and children inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


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
