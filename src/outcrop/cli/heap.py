"""Keep the process small: what is freed goes back to the system, so that only the window counts while a run goes on."""

from __future__ import annotations

import contextlib
import ctypes

_MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD of malloc.h
_THRESHOLD_BYTES = 128 << 10


def return_freed_memory() -> None:
    """Let the C library map large blocks one by one, as it does at first, instead of keeping ever larger ones."""
    with contextlib.suppress(OSError, AttributeError):  # a C library without this knob
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _THRESHOLD_BYTES)
