"""Memory that arrays have been given and nobody has written yet. The system takes a page when it is first touched, so
until then it counts as free, and the next array would be given the same once more."""

from __future__ import annotations

import ctypes
import mmap
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from outcrop.tiers.survey import MAIN_MEMORY
from outcrop.tiers.tier import Tier

_TAKEN: defaultdict[str, WeakValueDictionary[int, NDArray[np.uint8]]] = defaultdict(WeakValueDictionary)
"""By the tier it is of; all that anybody still shows."""


def remember(tier: Tier, content: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Memory of that tier that has just been taken: it begins with a page."""
    _TAKEN[_memory_of(tier)][id(content)] = content
    return content


def _memory_of(tier: Tier) -> str:
    """Files in memory take of the main one."""
    return "dram" if tier.kind in MAIN_MEMORY else tier.name


def without_promised(tiers: Sequence[Tier]) -> list[Tier]:
    """The same with less free memory: without what this process has been given already."""
    promised = {memory: sum(map(untouched_bytes, list(taken.values()))) for memory, taken in _TAKEN.items()}
    return [replace(tier, free_bytes=max(0, tier.free_bytes - promised.get(_memory_of(tier), 0))) for tier in tiers]


def untouched_bytes(content: NDArray[Any]) -> int:
    """Of memory that begins with a page; 0 where the system does not say."""
    pages = np.zeros(-(-content.nbytes // mmap.PAGESIZE), np.uint8)
    answer = ctypes.CDLL(None).mincore(
        ctypes.c_void_p(content.ctypes.data), ctypes.c_size_t(content.nbytes), ctypes.c_void_p(pages.ctypes.data)
    )
    return int(np.count_nonzero(pages & 1 == 0)) * mmap.PAGESIZE if answer == 0 else 0
