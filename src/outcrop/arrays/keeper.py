"""What an array keeps of its values, and by which means: the interface, and memory that keeps nothing."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcrop import _core
from outcrop.arrays.opened import named, path_of, storage_errors
from outcrop.arrays.untouched import remember
from outcrop.durable import Directory
from outcrop.tiers.memory_tiers import bytes_on
from outcrop.tiers.tier import Tier

TRANSFERS = 16
"""Transfers at once, at least: a device's queue wants to be full."""


def transfer_threads() -> int:
    """Threads that flush or load an array."""
    return max(TRANSFERS, len(os.sched_getaffinity(0)))


class Keeper(ABC):
    """The bytes of an array and what becomes of them."""

    primitive: str
    """What makes values durable, "none" where nothing does."""
    is_sealed = False
    """Whether values are there for reading only."""

    @property
    @abstractmethod
    def bytes(self) -> NDArray[np.uint8]:
        """The bytes of the values, which users read and write."""

    @abstractmethod
    def flush(self, steps: int) -> int:
        """Keep the values, `steps` steps from the beginning, as well as can be; the bytes written, as far as is known.
        Raises StorageError."""

    @property
    def generation(self) -> int:
        """Number of the last commit; 0 where there is none."""
        return 0

    @property
    def steps(self) -> int:
        """Steps from the beginning to the last commit."""
        return 0

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Give up what was held. The bytes stay as long as anybody shows them."""

    def values(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """The bytes as an array."""
        count = math.prod(shape) * dtype.itemsize
        return self.bytes[:count].view(dtype).reshape(shape)


class Volatile(Keeper):
    """Memory, or a file without a name: gone with the process."""

    primitive = "none"

    def __init__(self, content: NDArray[np.uint8]) -> None:
        self._content = content

    @property
    def bytes(self) -> NDArray[np.uint8]:
        """See Keeper."""
        return self._content

    def flush(self, steps: int) -> int:
        """Nothing: nobody could find it later."""
        return 0


def take_memory(tier: Tier, nbytes: int) -> NDArray[np.uint8]:
    """Zeros on a tier that go with the process: memory of its NUMA nodes, or a mapped file without a name.

    DRAM comes from the node whose thread is the first to touch it, as any memory does. Raises InputError, StorageError.
    """
    if tier.directory is not None:
        with storage_errors(tier.directory, "used"), Directory.open(tier.directory) as folder:
            opened = path_of(folder.handle)
            with named(opened, tier.directory):
                return _core.MappedFile.scratch(opened, nbytes).bytes
    taken = _core.aligned_array(nbytes) if tier.kind == "dram" else bytes_on(tier, nbytes)
    return remember(tier, taken)
