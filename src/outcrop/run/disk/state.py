"""The state of a run on disk, and the protocol of commits.

    run.oc/
      manifest.json      step, generation, and which copy is current
      zarr.json          the directory is a Zarr group of all arrays
      u -> .u.0          an array of the state: a link to its current copy
      .u.0/  .u.1/       zarr.json and the shards c/S/0/0 (links, if the run has further directories)
      m/                 an array that is only read: one copy

The state has one array for each updated field. If steps need the previous values of a field, the state has a second
array for them. Each array has two copies, 0 and 1. A pass reads generation g from the current copies of all arrays, and
writes generation g+1 into the other copies:

    engine:  read .u.0 ──► update ──► write .u.1 ──► fdatasync .u.1      killed here: still generation g
    commit:  manifest.json.tmp ──► fsync ──► rename ──► fsync folder     one rename commits all arrays
             u -> .u.1                                                   killed before this: the next writer repairs it

On a block device, the arrays and the manifest are ranges of bytes of the device (`device.py`).

A run in place has only one copy of each array, so its manifest is marked "in flight" before the first write of a pass.
If the pass is killed after the mark "in flight" was written, the state is lost, and later attempts to use the state
raise an error. A process that changes a run holds the lock of the run. Readers do not need the lock and write nothing.

In `filled`, the manifest has a stamp for each array that has values. A stamp is a random number that identifies the
operation that stored the values. The seal of each plane on disk is a checksum of the plane's checksum, its place, the
stamp, the array and the run (`Manifest.seed`). Therefore the seal reveals not only flipped bits, but also writes that
were lost or went to a wrong place. An array without values can be written in place, because no values can be lost."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcrop.durable import Directory
from outcrop.errors import InputError, StorageError, by_caller
from outcrop.run.disk.entries import AcquisitionEntries, BeforeEntry, PaceEntry
from outcrop.run.disk.layout import PlaneLayout
from outcrop.run.disk.manifest import IN_FLIGHT, NEW, READY, Manifest, new_stamp
from outcrop.run.disk.planes import Planes, PlaneSource, ShardFile
from outcrop.run.disk.storage import RunStorage, release


class State:
    """The state of a run in its storage. `manifest` is the manifest of the last commit that this process has
    made or read."""

    def __init__(self, storage: RunStorage, manifest: Manifest) -> None:
        self.path, self.manifest = storage.path, manifest
        self._storage = storage
        self._lock_depth = 0
        self.stamp = new_stamp()
        """The stamp of the values that this process writes, either to the next generation or in place."""
        self.on_agreement: Callable[[], None] | None = None
        """A function that is called when all ranks have committed the same generation as this part
        (run/ranks/agreement.py). `on_agreement` is None if no function is needed."""

    def reader(self) -> State:
        """Return a second `State` object for reading, which another thread can use. The second `State` object has its
        own file descriptors."""
        return State(self._storage.reopened(), self.manifest)

    def move_to(self, storage: RunStorage, manifest: Manifest) -> None:
        """Continue to use the run after its files were moved to the place of `storage`."""
        self.path, self.manifest, self._storage = storage.path, manifest, storage

    @property
    def layout(self) -> PlaneLayout:
        return self.manifest.layout

    @property
    def records(self) -> Directory:
        """The directory with the files of acquisition. Raises StorageError."""
        return self._storage.records(self.manifest)

    @property
    def has_values(self) -> bool:
        """True if the initial values of at least one array have been committed."""
        return self.manifest.phase != NEW

    def files(self, copy: int) -> Sequence[Sequence[ShardFile]]:
        """Return the shards of copy 0 or 1 of each array of the state. In a run in place, copies 0 and 1 are the same
        shards."""
        return [self.files_of(entry.name, copy) for entry in self.manifest.state]

    def static_files(self) -> Sequence[Sequence[ShardFile]]:
        return [self.files_of(entry.name, 0) for entry in self.manifest.static]

    def files_of(self, name: str, copy: int) -> Sequence[ShardFile]:
        """Return the shards of a copy of the array `name`. Raises InputError when no array has the name `name`."""
        entry = self.manifest.entry(name)
        return self._storage.files(self.manifest, entry, 0 if entry.is_static or self.manifest.in_place else copy)

    def current_files_of(self, name: str) -> Sequence[ShardFile]:
        """Return the shards with the committed values of one array. Raises the errors of `require_whole`, and
        InputError when the array has no values yet."""
        if not self.manifest.entry(name).is_static:
            self.require_whole()
        if name not in self.manifest.filled:
            raise InputError(f"{self.path} holds no values of {name} yet{self.manifest.how_to_give(name)}")
        return self.files_of(name, self.manifest.current)

    def planes_of(self, name: str, io: str = "auto", direct: bool = True) -> Planes:
        """Open the committed values of one array for reading. If `direct` is False, transfers use the page cache.
        Raises the errors of `current_files_of`."""
        return Planes(self.current_files_of(name), self.layout, io=io, seed=self.manifest.seed(name), direct=direct)

    def source_of(self, name: str) -> PlaneSource:
        """Return a function that reads committed planes of one array."""

        def read(z0: int, z1: int) -> NDArray[Any]:
            with self.planes_of(name) as planes:
                return planes.read(z0, z1)

        return read

    def cells_of(self, name: str, cells: NDArray[np.int64], io: str = "auto") -> NDArray[np.float64]:
        """Return the committed values of one array at `cells`, which have the shape (..., 3)."""
        found = np.empty(cells.shape[:-1])
        with self.planes_of(name, io) as planes:
            for z in np.unique(cells[..., 0]):
                here = cells[..., 0] == z
                found[here] = planes.read(int(z), int(z) + 1)[0][cells[here, 1], cells[here, 2]]
        return found

    def target_planes(self, name: str, copy: int, io: str = "auto") -> Planes:
        """Open a copy of one array for writing. The seals of the written planes get the current stamp."""
        seed = self.manifest.seed(name, self.stamp)
        return Planes(self.files_of(name, copy), self.layout, writable=True, io=io, seed=seed)

    def seeds(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Return three tuples of seeds for the seals of the next pass. The first tuple is for the copies that the pass
        reads. The second tuple is for the copies that the pass writes. The third tuple is for static arrays."""
        manifest = self.manifest
        return (
            tuple(manifest.seed(entry.name) for entry in manifest.state),
            tuple(manifest.seed(entry.name, self.stamp) for entry in manifest.state),
            tuple(manifest.seed(entry.name) for entry in manifest.static),
        )

    def scratch(self, count: int) -> contextlib.AbstractContextManager[Sequence[ShardFile]]:
        """Return a context manager that yields files with `count` bytes of temporary space for a pass. Raises
        StorageError if there is no room."""
        return self._storage.scratch(self.manifest, count)

    def require_whole(self) -> None:
        """Raise StorageError when an interrupted pass in place has destroyed the state. Raise InputError when another
        process is still executing a pass in place."""
        if self.manifest.phase == IN_FLIGHT:
            if self._lock_depth == 0:
                release(self._storage.hold(shared=True))  # raises InputError if another process executes a pass
            raise StorageError(
                f"{self.path}: the state was lost when a pass in place was interrupted after step "
                f"{self.manifest.step}; start the run again with {by_caller('--force', 'force=True')}"
            )

    def begin_writing(self) -> None:
        """Prepare the first write of a pass with a new stamp. A run in place is marked "in flight"."""
        self.stamp = new_stamp()
        if self.manifest.in_place and self.has_values:
            self._store(replace(self.manifest, phase=IN_FLIGHT))

    def commit(
        self, step: int, written: Iterable[str] | None = None, lost: Iterable[str] = (),
        sums: Mapping[str, int] | None = None, pace: PaceEntry | None = None,
    ) -> None:  # fmt: skip
        """Commit the written copies as the next generation, after `step` steps. The caller must have flushed the
        written copies.

        `written` contains the names of the arrays that were written, by default the whole state. Arrays in `lost` have
        no values after the commit. Arrays that are neither in `written` nor in `lost` keep their values. `sums`
        contains the new checksums of records that have grown. If `pace` is given, it replaces the entry for the
        progress in the manifest. The manifest of a part also describes the previous generation, because `go_back` needs
        the description."""
        manifest = self.manifest
        keeps_before = manifest.part is not None and manifest.phase == READY
        names = [entry.name for entry in manifest.state] if written is None else written
        kept = {name: stamp for name, stamp in manifest.filled.items() if name not in set(lost)}
        self._store(
            replace(
                manifest,
                phase=READY,
                step=step,
                target_step=max(step, manifest.target_step),
                generation=manifest.generation + (manifest.phase != NEW),
                current=0 if manifest.in_place else 1 - manifest.current,
                filled=_in_order(manifest, kept | dict.fromkeys(names, self.stamp)),
                sums=manifest.sums if sums is None else dict(sums),
                before=BeforeEntry(manifest.step, manifest.filled, manifest.sums) if keeps_before else None,
                pace=manifest.pace if pace is None else pace,
            )
        )
        self._storage.tidy(self.manifest)

    def go_back(self) -> None:
        """Make the previous generation the valid generation again. Call this method only if no process has written to
        the copies on disk since the last commit. Raises StorageError when the manifest does not describe the previous
        generation."""
        before = manifest_before(self.manifest)
        if before is None:
            raise StorageError(f"{self.path} does not hold the generation before {self.manifest.generation} any more")
        self._store(before)
        self._storage.tidy(self.manifest)

    def begin_filling(self, names: Sequence[str]) -> None:
        """Prepare to write the arrays `names` in place. Until `end_filling` is called, the manifest says that the
        arrays `names` have no values."""
        self.stamp = new_stamp()
        self.lose(names)

    def lose(self, names: Collection[str]) -> None:
        """Commit that the arrays `names` have no values any more."""
        left = {name: stamp for name, stamp in self.manifest.filled.items() if name not in names}
        if left != self.manifest.filled:
            self.change(filled=left)

    def end_filling(self, names: Sequence[str]) -> None:
        """Commit the values of the arrays `names`. The caller must have flushed the values."""
        self.change(filled=_in_order(self.manifest, self.manifest.filled | dict.fromkeys(names, self.stamp)))
        self._storage.tidy(self.manifest)

    def change(self, **values: object) -> None:
        self._store(replace(self.manifest, **values))  # type: ignore[arg-type]

    def set_acquisition(self, taps: AcquisitionEntries, sums: Mapping[str, int]) -> None:
        """Commit new entries of acquisition and the checksums of their files. After the commit, update the derived
        files. The calling process must hold the lock of the run. Raises StorageError."""
        self.change(taps=taps, sums=dict(sums))
        if self.has_values:
            self._storage.tidy(self.manifest)

    def refresh(self) -> None:
        """Read the last commit, which another process may have made. Raises InputError if the storage holds another
        run."""
        manifest = self._storage.read()
        if manifest.identity != self.manifest.identity:
            raise InputError(f"{self.path} now holds another run; open it again")
        self.manifest = manifest

    @contextlib.contextmanager
    def locked(self, held: Sequence[int] | None = None, shared: bool = False, check: bool = True) -> Iterator[None]:
        """Lock the run while the body of the `with` statement runs. If `shared` is true, other processes can also read
        the run, and no process can change the run.

        If the caller already holds the lock, `held` contains the descriptors of the lock. The caller then closes these
        descriptors later. If `check` is False, files of the run may be missing or too short. Raises InputError when
        another process holds the lock."""
        if self._lock_depth == 0:
            self._held = self._storage.hold(shared) if held is None else []
        self._lock_depth += 1
        try:
            if self._lock_depth == 1:
                self.refresh()
                if held is None and not shared and not self.has_values:
                    self._storage.flush_names(self.manifest)
                if self.has_values and not shared and check:
                    self._storage.check(self.manifest)
                    self._storage.tidy(self.manifest)
            yield
        finally:
            self._lock_depth -= 1
            if self._lock_depth == 0:
                release(self._held)

    def check(self, spare: bool = False) -> None:
        """Raise StorageError when files of the run are missing or too short, or when the run's directory was moved. If
        `spare` is false, copies without committed values are not checked."""
        self._storage.check(self.manifest, spare)

    def lost_shards(self) -> dict[str, str]:
        """Return a message for each shard that is missing or has a wrong size. The keys of the result are the labels of
        the shards. Raises StorageError if the storage was moved."""
        return self._storage.lost_shards(self.manifest)

    def untidy(self) -> list[str]:
        return self._storage.untidy(self.manifest)

    def repair(self, sums: Mapping[str, int]) -> None:
        """Commit `sums` as the checksums of records. Also write each derived file again that has a wrong content."""
        if sums != self.manifest.sums:
            self.change(sums=dict(sums))
        self._storage.repair(self.manifest)

    def _store(self, manifest: Manifest) -> None:
        self._storage.store(manifest)
        self.manifest = manifest


def manifest_before(manifest: Manifest) -> Manifest | None:
    """Return the manifest of the previous generation. Return None if `manifest` does not describe the previous
    generation. The values of the previous generation are complete until a pass begins to overwrite them."""
    before = manifest.before
    if before is None:
        return None
    return replace(
        manifest,
        step=before.step,
        generation=manifest.generation - 1,
        current=1 - manifest.current,
        filled=before.filled,
        sums=before.sums,
        before=None,
    )


def _in_order(manifest: Manifest, filled: Mapping[str, int]) -> dict[str, int]:
    return {entry.name: filled[entry.name] for entry in manifest.arrays if entry.name in filled}
