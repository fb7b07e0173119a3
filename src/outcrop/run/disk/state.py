"""The state of a run on disk, and the protocol that keeps it whole.

    run.oc/
      manifest.json      the truth: step, generation, which array is current
      zarr.json          the directory is a Zarr group of all arrays
      u -> .u.0          an array of the state: a link to its current turn
      .u.0/  .u.1/       zarr.json and the shards c/S/0/0 (links into further directories where there are several)
      m/                 an array that is only read: the same, once

The state is one array for each field that is updated, and one for its previous values where steps need them. Each
exists twice, in turn 0 and turn 1. A pass is a transaction. It reads the current turn of all of them, generation g, and
writes generation g+1 into the other:

    engine:  read .u.0 ──► update ──► write .u.1 ──► fdatasync .u.1      killed here: still generation g
    commit:  manifest.json.tmp ──► fsync ──► rename ──► fsync folder     the rename is the moment of truth, for all
             u -> .u.1                                                   killed before this: mended by the next writer

On a block device the protocol is the same: arrays and manifest are ranges of it, see `device.py`.

In place there is one turn, so the manifest is marked "in flight" before the first write; a run that dies after that has
lost its state; opening it says so. A process that changes a run holds its lock. Readers need none and write nothing.

Arrays that have values are listed in the manifest (`filled`), each with a stamp: a random number of the writing that
gave it these values. The seal of each plane on disk is a checksum over the plane's, its place, the stamp, the array and
the run (`Manifest.seed`), so a plane that a lost or misplaced write has left is found as a flipped bit is. An array
that has no values may be written where it is, since there is nothing to lose.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from outcrop.durable import Directory
from outcrop.errors import InputError, StorageError
from outcrop.run.disk.layout import PlaneLayout
from outcrop.run.disk.manifest import IN_FLIGHT, NEW, READY, Manifest, new_stamp
from outcrop.run.disk.planes import Planes, ShardFile
from outcrop.run.disk.storage import RunStorage, release


class State:
    """A run in its storage. `manifest` is what was committed last, as far as this process knows."""

    def __init__(self, storage: RunStorage, manifest: Manifest) -> None:
        self.path, self.manifest = storage.path, manifest
        self._storage = storage
        self._lock_depth = 0
        self.stamp = new_stamp()
        """That of the writing under way: of the next generation, or of arrays that are filled where they are."""

    def reader(self) -> State:
        """The same run for those who only look: another thread may be in the middle of a pass."""
        return State(self._storage.reopened(), self.manifest)

    @property
    def layout(self) -> PlaneLayout:
        """Where the planes of each array lie."""
        return self.manifest.layout

    @property
    def records(self) -> Directory:
        """The directory of what acquisition keep: the run's own, or one beside block devices. Raises StorageError."""
        return self._storage.records(self.manifest)

    @property
    def has_values(self) -> bool:
        """Whether initial values of any array were committed."""
        return self.manifest.phase != NEW

    def files(self, turn: int) -> Sequence[Sequence[ShardFile]]:
        """For each array of the state its shards of turn 0 or 1, in the order of their planes; in place both are
        one."""
        return [self.files_of(entry.name, turn) for entry in self.manifest.state]

    def static_files(self) -> Sequence[Sequence[ShardFile]]:
        """For each array that is only read its shards."""
        return [self.files_of(entry.name, 0) for entry in self.manifest.static]

    def files_of(self, name: str, turn: int) -> Sequence[ShardFile]:
        """The shards of the array `name` in that turn. Raises InputError when there is no such array."""
        entry = self.manifest.entry(name)
        return self._storage.files(self.manifest, entry, 0 if entry.is_static or self.manifest.in_place else turn)

    def current_files_of(self, name: str) -> Sequence[ShardFile]:
        """The shards with the committed values of one array. Raises as `require_whole` does, and InputError when it
        has none yet."""
        if not self.manifest.entry(name).is_static:
            self.require_whole()
        if name not in self.manifest.filled:
            raise InputError(f"{self.path} holds no values of {name} yet; assign sim[{name!r}] first")
        return self.files_of(name, self.manifest.current)

    def planes_of(self, name: str, io: str = "auto") -> Planes:
        """The planes with the committed values of one array, for reading. Raises as `current_files_of` does."""
        return Planes(self.current_files_of(name), self.layout, io=io, seed=self.manifest.seed(name))

    def target_planes(self, name: str, turn: int, io: str = "auto") -> Planes:
        """The planes of one array in that turn, for the writing under way."""
        seed = self.manifest.seed(name, self.stamp)
        return Planes(self.files_of(name, turn), self.layout, writable=True, io=io, seed=seed)

    def seeds(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Where the seals of a pass begin: of what it reads, of what it writes, and of what never changes."""
        manifest = self.manifest
        return (
            tuple(manifest.seed(entry.name) for entry in manifest.state),
            tuple(manifest.seed(entry.name, self.stamp) for entry in manifest.state),
            tuple(manifest.seed(entry.name) for entry in manifest.static),
        )

    def scratch(self, count: int) -> contextlib.AbstractContextManager[Sequence[ShardFile]]:
        """Room for `count` bytes that need not outlive a pass. Raises StorageError when there is none."""
        return self._storage.scratch(self.manifest, count)

    def current_files(self) -> Sequence[Sequence[ShardFile]]:
        """For each array of the state the shards that hold the committed generation."""
        self.require_whole()
        return self.files(self.manifest.current)

    def target_files(self) -> Sequence[Sequence[ShardFile]]:
        """For each array of the state the shards that the next generation is written to."""
        return self.files(1 - self.manifest.current)

    def require_whole(self) -> None:
        """Raise StorageError when an interrupted in-place pass has left nothing valid, InputError while one goes on."""
        if self.manifest.phase == IN_FLIGHT:
            if self._lock_depth == 0:
                release(self._storage.hold(shared=True))  # refused while another process is in the middle of a pass
            raise StorageError(
                f"{self.path}: the state was lost when a pass in place was interrupted after step "
                f"{self.manifest.step}; start the run again with --force"
            )

    def begin_writing(self) -> None:
        """To be called before the first write of a pass."""
        self.stamp = new_stamp()
        if self.manifest.in_place and self.has_values:
            self._store(replace(self.manifest, phase=IN_FLIGHT))

    def commit(
        self,
        step: int,
        written: Iterable[str] | None = None,
        lost: Iterable[str] = (),
        sums: Mapping[str, int] | None = None,
    ) -> None:
        """The target files, already flushed, become the next generation, `step` steps from the initial values.

        `written` are the arrays that got values, the whole state unless given; others keep those they have, but for
        those that are `lost`. `sums` are the checksums of records, where these have grown.
        """
        manifest = self.manifest
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
            )
        )
        self._storage.tidy(self.manifest)

    def begin_filling(self, names: Sequence[str]) -> None:
        """To be called before the first write to arrays where they are: from here on they have no values."""
        self.stamp = new_stamp()
        left = {name: stamp for name, stamp in self.manifest.filled.items() if name not in names}
        if left != self.manifest.filled:
            self.change(filled=left)

    def end_filling(self, names: Sequence[str]) -> None:
        """The current files of these arrays have values, already flushed."""
        self.change(filled=_in_order(self.manifest, self.manifest.filled | dict.fromkeys(names, self.stamp)))
        self._storage.tidy(self.manifest)

    def change(self, **values: object) -> None:
        """Store other settings or another target step."""
        self._store(replace(self.manifest, **values))  # type: ignore[arg-type]

    def refresh(self) -> None:
        """Read again what another process may have committed. Raises InputError when it is another run by now."""
        manifest = self._storage.read()
        if manifest.identity != self.manifest.identity:
            raise InputError(f"{self.path} holds another run by now; open it again")
        self.manifest = manifest

    @contextlib.contextmanager
    def locked(
        self, held: Sequence[int] | None = None, shared: bool = False, check: bool = True
    ) -> Iterator[None]:
        """Hold the run for changing it, or with `shared` to keep others from that. Raises InputError when another
        process is in the way.

        `held` are the descriptors of a caller that holds it already, and that closes them. Without `check` files may be
        missing or cut short.
        """
        if self._lock_depth == 0:
            self._held = self._storage.hold(shared) if held is None else []
        self._lock_depth += 1
        try:
            if self._lock_depth == 1:
                self.refresh()
                if self.has_values and not shared and check:
                    self._storage.check(self.manifest)
                    self._storage.tidy(self.manifest)
            yield
        finally:
            self._lock_depth -= 1
            if self._lock_depth == 0:
                release(self._held)

    def check(self) -> None:
        """Raise StorageError when files of the run are missing or cut short, or when its directory has gone."""
        self._storage.check(self.manifest)

    def untidy(self) -> list[str]:
        """What of the files that follow from the manifest is not as it says, in words."""
        return self._storage.untidy(self.manifest)

    def repair(self, sums: Mapping[str, int]) -> None:
        """Write the files that follow from the manifest again, and take `sums` for the checksums of records."""
        if sums != self.manifest.sums:
            self.change(sums=dict(sums))
        self._storage.repair(self.manifest)

    def _store(self, manifest: Manifest) -> None:
        self._storage.store(manifest)
        self.manifest = manifest


def _in_order(manifest: Manifest, filled: Mapping[str, int]) -> dict[str, int]:
    return {entry.name: filled[entry.name] for entry in manifest.arrays if entry.name in filled}
