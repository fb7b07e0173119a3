"""A run in a directory: its manifest, its lock, its shards, and the links to the current arrays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager

from outcrop.durable import lock_folder, replace_file
from outcrop.errors import InputError, StorageError
from outcrop.run.disk.arrays import ArrayEntry
from outcrop.run.disk.directory import array_folder
from outcrop.run.disk.home import Home, release
from outcrop.run.disk.manifest import MANIFEST, Manifest, read_manifest
from outcrop.run.disk.region import ShardFile
from outcrop.run.disk.scratch import PREFIX, scratch_in
from outcrop.run.disk.zarr_format import shard_name
from outcrop.run.taps.snapshot_files import are_current, show_snapshots


class Folder(Home):
    """See Home. The manifest is a file, replaced by renaming; `u` links to the folder of the current turn of u,
    as soon as that has values; before, readers of Zarr see an array without chunks, that is of zeros."""

    def read(self) -> Manifest:
        """See Home."""
        return read_manifest(self.path)

    def store(self, manifest: Manifest) -> None:
        """See Home."""
        try:
            replace_file(self.path / MANIFEST, manifest.to_text())
        except OSError as error:
            raise StorageError(f"cannot commit to {self.path / MANIFEST}: {error.strerror}") from error

    def files(self, manifest: Manifest, entry: ArrayEntry, turn: int) -> list[str]:
        """See Home: paths."""
        folder = self.path / array_folder(entry, turn)
        return [str(folder / shard_name(shard, len(manifest.shape))) for shard in range(manifest.layout.shards)]

    def check(self, manifest: Manifest) -> None:
        """See Home."""
        for entry, turn in manifest.copies:
            for shard, file in enumerate(self.files(manifest, entry, turn)):
                expected = manifest.layout.shard_bytes(shard)
                try:
                    found = os.stat(file).st_size
                except OSError as error:
                    raise StorageError(f"{file} cannot be used: {error.strerror}") from None
                if found != expected:
                    raise StorageError(f"{file} has {found} bytes, {expected} belong there")

    def hold(self) -> list[int]:
        """See Home."""
        return [lock_folder(self.path)]

    def is_held(self) -> bool:
        """See Home."""
        try:
            release(self.hold())
        except InputError:
            return True
        return False

    def scratch(self, manifest: Manifest, count: int) -> AbstractContextManager[Sequence[ShardFile]]:
        """See Home: a file without a name."""
        for left in self.path.glob(PREFIX + "*"):  # of a process that was killed before it had opened it
            left.unlink(missing_ok=True)
        return scratch_in(self.path, count)

    def is_tidy(self, manifest: Manifest) -> bool:
        """Whether the name of every array of the state links to its current turn, and all snapshots are shown."""
        return all(self._is_linked(manifest, entry) for entry in manifest.state) and are_current(self.path, manifest)

    def tidy(self, manifest: Manifest) -> None:
        """Point the names of the state's arrays at their current turns, and show the snapshots up to its step."""
        if not are_current(self.path, manifest):
            show_snapshots(self.path, manifest)
        for entry in manifest.state:
            if not self._is_linked(manifest, entry):
                self._link(entry.name, array_folder(entry, manifest.current))

    def _is_linked(self, manifest: Manifest, entry: ArrayEntry) -> bool:
        link = self.path / entry.name
        if entry.name not in manifest.filled:
            return True  # nothing to show yet
        return link.is_symlink() and os.readlink(link) == array_folder(entry, manifest.current)

    def _link(self, name: str, target: str) -> None:
        beside = self.path / f".{name}.link"
        try:
            beside.unlink(missing_ok=True)
            beside.symlink_to(target)
            beside.replace(self.path / name)
        except OSError as error:
            raise StorageError(f"cannot link {self.path / name}: {error.strerror}") from error
