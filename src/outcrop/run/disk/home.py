"""What a run needs of the place that keeps it; a folder and a block device are such places.

read, store     the manifest, replaced as a whole or not at all
files           where the shards of each array are
records         where taps keep what they see
hold            keep other processes from changing the run
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from outcrop.durable import Directory
from outcrop.run.disk.arrays import ArrayEntry
from outcrop.run.disk.manifest import Manifest
from outcrop.run.disk.region import ShardFile


class Home(ABC):
    """The place at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def read(self) -> Manifest:
        """The manifest that was committed last. Raises InputError when there is none."""

    @abstractmethod
    def store(self, manifest: Manifest) -> None:
        """Commit a manifest: after a crash at any moment the old or the new one is read. Raises StorageError."""

    @abstractmethod
    def files(self, manifest: Manifest, entry: ArrayEntry, turn: int) -> Sequence[ShardFile]:
        """The shards of an array of `manifest.copies`, in the order of their planes."""

    @abstractmethod
    def records(self, manifest: Manifest) -> Directory:
        """The directory of what taps keep. Raises StorageError when it is not there."""

    @abstractmethod
    def check(self, manifest: Manifest) -> None:
        """Raise StorageError unless all shards and records are there, in their full sizes, where the home was
        opened."""

    @abstractmethod
    def hold(self, shared: bool = False) -> list[int]:
        """Descriptors that keep other processes away until they are closed, except those that share it. Raises
        InputError when another process is in the way."""

    @abstractmethod
    def is_held(self) -> bool:
        """Whether some process holds the run right now."""

    @abstractmethod
    def scratch(self, manifest: Manifest, count: int) -> AbstractContextManager[Sequence[ShardFile]]:
        """Room for `count` bytes that need not last: see scratch.py. Raises StorageError when there is none."""

    @abstractmethod
    def tidy(self, manifest: Manifest) -> None:
        """Make links and metadata say what the manifest does: a crash after a commit may have left them as they were
        before. Raises StorageError."""

    @abstractmethod
    def untidy(self, manifest: Manifest) -> list[str]:
        """Which of the files that follow from the manifest are not as it says, in words."""

    @abstractmethod
    def repair(self, manifest: Manifest) -> None:
        """Write all files that follow from the manifest again. Raises StorageError."""


def release(handles: Sequence[int]) -> None:
    """Close what `hold` returned."""
    for handle in handles:
        os.close(handle)
