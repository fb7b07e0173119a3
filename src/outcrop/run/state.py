"""The state of a run on disk, and the protocol that keeps it whole.

    run.oc/
      manifest.json      the truth: step, generation, which array is current
      zarr.json          the directory is a Zarr group ...
      u -> .u.0          ... of one array: a link to the current one
      .u.0/  .u.1/       zarr.json and the shards c/S/0/0 (links into further directories where there are several)

A pass is a transaction. It reads the current array, generation g, and writes generation g+1 into the other one:

    engine:  read .u.0 ──► update ──► write .u.1 ──► fdatasync .u.1      killed here: still generation g
    commit:  manifest.json.tmp ──► fsync ──► rename ──► fsync folder     the rename is the moment of truth
             u -> .u.1                                                   killed before this: mended when opened

In place there is one array, so the manifest is marked "in flight" before the first write; a run that dies after that
has lost its state; opening it says so. Whoever changes a run holds a lock on the folder meanwhile; readers need none.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from outcrop.errors import InputError, StorageError
from outcrop.run.directory import array_folder
from outcrop.run.layout import PlaneLayout
from outcrop.run.manifest import IN_FLIGHT, MANIFEST, NEW, READY, Manifest, read_manifest
from outcrop.run.zarr_format import shard_name


class State:
    """A run directory. `manifest` is what was committed last, as far as this process knows."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path, self.manifest = path, manifest
        self._lock_depth = 0

    @property
    def layout(self) -> PlaneLayout:
        """Where the planes of each array lie."""
        return self.manifest.layout

    @property
    def has_values(self) -> bool:
        """Whether initial values were committed."""
        return self.manifest.phase != NEW

    def files(self, array: int) -> list[str]:
        """Paths of the shards of array 0 or 1, in the order of their planes."""
        folder = self.path / array_folder(self.manifest.field_name, 0 if self.manifest.in_place else array)
        return [str(folder / shard_name(shard)) for shard in range(self.layout.shards)]

    def current_files(self) -> list[str]:
        """Paths of the shards that hold the committed generation."""
        self.require_whole()
        return self.files(self.manifest.current)

    def target_files(self) -> list[str]:
        """Paths of the shards that the next generation is written to."""
        return self.files(1 - self.manifest.current)

    def require_whole(self) -> None:
        """Raise StorageError when an interrupted in-place pass has left nothing valid, InputError while one goes on."""
        if self.manifest.phase == IN_FLIGHT:
            if self._lock_depth == 0:
                os.close(lock_folder(self.path))  # refused while another process is in the middle of a pass
            raise StorageError(
                f"{self.path}: the state was lost when a pass in place was interrupted after step "
                f"{self.manifest.step}; start the run again with --force"
            )

    def begin_writing(self) -> None:
        """To be called before the first write of a pass."""
        if self.manifest.in_place and self.has_values:
            self._store(replace(self.manifest, phase=IN_FLIGHT))

    def commit(self, step: int) -> None:
        """The target files, already flushed, become the next generation, `step` steps from the initial values."""
        manifest = self.manifest
        generation = manifest.generation + (manifest.phase != NEW)
        current = 0 if manifest.in_place else 1 - manifest.current
        target_step = max(step, manifest.target_step)
        self._store(
            replace(
                manifest, phase=READY, step=step, target_step=target_step, generation=generation, current=current
            )
        )
        try:
            self._link_current()
        except OSError as error:
            raise StorageError(f"cannot link {self.path / self.manifest.field_name}: {error.strerror}") from error

    def change(self, **values: object) -> None:
        """Store other settings or another target step."""
        self._store(replace(self.manifest, **values))  # type: ignore[arg-type]

    def refresh(self) -> None:
        """Read again what another process may have committed."""
        self.manifest = read_manifest(self.path)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run for changing it. Raises InputError when another process does."""
        if self._lock_depth == 0:
            self._lock = lock_folder(self.path)
        self._lock_depth += 1
        try:
            if self._lock_depth == 1:
                self.refresh()
                if self.has_values:
                    self._link_current()
            yield
        finally:
            self._lock_depth -= 1
            if self._lock_depth == 0:
                os.close(self._lock)

    def _store(self, manifest: Manifest) -> None:
        try:
            replace_file(self.path / MANIFEST, manifest.to_text())
        except OSError as error:
            raise StorageError(f"cannot commit to {self.path / MANIFEST}: {error.strerror}") from error
        self.manifest = manifest

    def _link_current(self) -> None:
        """Point the field's name at the current array."""
        link = self.path / self.manifest.field_name
        folder = array_folder(self.manifest.field_name, self.manifest.current)
        if link.is_symlink() and os.readlink(link) == folder:
            return
        beside = self.path / f".{self.manifest.field_name}.link"
        beside.unlink(missing_ok=True)
        beside.symlink_to(folder)
        beside.replace(link)


def open_state(path: Path) -> State:
    """The run in `path`. Raises InputError when there is none, StorageError when files are missing or cut short."""
    state = State(path, read_manifest(path))
    if state.has_values:
        with contextlib.suppress(InputError, OSError), state.locked():
            pass  # mends the link; a running process or a read-only filesystem needs and allows no mending
    for array in range(state.manifest.arrays):
        for shard, file in enumerate(state.files(array)):
            expected = state.layout.shard_bytes(shard)
            try:
                found = os.stat(file).st_size
            except OSError as error:
                raise StorageError(f"{file} cannot be used: {error.strerror}") from None
            if found != expected:
                raise StorageError(f"{file} has {found} bytes, {expected} belong there")
    return state


def is_in_use(path: Path) -> bool:
    """Whether some process is changing the run in `path` right now."""
    try:
        os.close(lock_folder(path))
    except InputError:
        return True
    return False


def replace_file(path: Path, text: str) -> None:
    """Write beside, flush, rename, flush the folder: a reader sees the old or the new text, also after a power cut."""
    beside = path.with_name(path.name + ".tmp")
    with open(beside, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def lock_folder(path: Path) -> int:
    """Descriptor that holds the run until it is closed. Raises InputError when another process has it."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise InputError(f"{path} is in use by another process; wait for it or stop it") from None
    return handle
