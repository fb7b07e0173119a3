"""Which pages of a file are in memory, and having none of them there."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

import numpy as np

PAGE_BYTES = mmap.PAGESIZE


def drop(path: Path, length: int = 0) -> None:
    """Ask for the first `length` bytes of a file to leave the page cache; 0 for all. What is written is made durable
    first: only clean pages go."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
        os.posix_fadvise(handle, 0, length, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)


def cached_share(path: Path) -> float | None:
    """The part of a file's pages that is in the page cache; None where the system does not say."""
    with path.open("r+b") as file:  # only of files that one may write mincore tells the truth
        if os.fstat(file.fileno()).st_size == 0:
            return 0.0
        with mmap.mmap(file.fileno(), 0) as mapped:
            pages = np.zeros(-(-len(mapped) // PAGE_BYTES), np.uint8)
            place = np.frombuffer(mapped, np.uint8)
            answer = ctypes.CDLL(None, use_errno=True).mincore(
                ctypes.c_void_p(place.ctypes.data), ctypes.c_size_t(len(mapped)), ctypes.c_void_p(pages.ctypes.data)
            )
            del place
    return float(np.mean(pages & 1)) if answer == 0 else None
