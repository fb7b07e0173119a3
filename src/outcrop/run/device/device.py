"""A run on raw block devices: after a header of 4 MiB each holds its shards, array by array.

First come the arrays of the state in turn 0, then those in turn 1, then what is only read. Shards alternate over the
devices and are the same bytes as the files of a directory; each begins at a multiple of 4096. The header of the first
device holds the manifest, the others say whose share they are.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from outcrop.durable import Directory
from outcrop.errors import InputError, StorageError
from outcrop.run.device import use as device_use
from outcrop.run.device.header import HEADER_BYTES, MEMBER, RUN, Header, read_header, write_slot
from outcrop.run.device.signatures import find_signature
from outcrop.run.disk.arrays import ArrayEntry
from outcrop.run.disk.derived import snapshot_files
from outcrop.run.disk.home import Home, release
from outcrop.run.disk.layout import RECORD_BYTES, round_up
from outcrop.run.disk.manifest import Description, Manifest, parse_manifest, read_member
from outcrop.run.disk.region import Region
from outcrop.run.disk.tap_files import check_sizes
from outcrop.run.taps.snapshot_files import are_current, outdated, show_snapshots


class Device(Home):
    """See Home. The manifest is in the header; the kernel's exclusive opening is the lock."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._found: dict[tuple[str, int], Path] = {}
        self._records: Directory | None = None

    def read(self) -> Manifest:
        """See Home."""
        with opened(self.path, os.O_RDONLY) as handle:
            return self._manifest(self._header(handle))

    def store(self, manifest: Manifest) -> None:
        """See Home."""
        try:
            device_use.require_writable(self.path)
            with opened(self.path, os.O_RDWR) as handle:
                header = self._header(handle)
                if header.identity != manifest.identity:
                    raise StorageError(f"cannot commit to {self.path}: it holds another run by now")
                write_slot(handle, replace(header, text=manifest.to_bytes().decode(), sequence=header.sequence + 1))
        except OSError as error:
            raise StorageError(f"cannot commit to {self.path}: {error.strerror}") from error
        except InputError as error:
            raise StorageError(f"cannot commit to {self.path}: {error}") from error

    def files(self, manifest: Manifest, entry: ArrayEntry, turn: int) -> Sequence[Region]:
        """See Home: regions of the devices."""
        devices = [self.path, *self._others(manifest)]
        shares = [regions(manifest, index, str(device)) for index, device in enumerate(devices)]
        shards = manifest.layout.shards
        return [shares[shard % len(devices)][entry.name, turn, shard] for shard in range(shards)]

    def check(self, manifest: Manifest) -> None:
        """See Home."""
        for index, path in enumerate([self.path, *self._others(manifest)]):
            with opened(path, os.O_RDONLY) as handle:
                size = device_use.size_of(handle)
            if size < (needed := needed_bytes(manifest, index)):
                raise StorageError(f"{path} has {size} bytes, {needed} belong there")
        if manifest.records:
            check_sizes(self.records(manifest), manifest)

    def records(self, manifest: Manifest) -> Directory:
        """See Home: the folder beside, which says itself that it belongs to this run."""
        if self._records is None or not self._records.is_here():
            self._records = _records_of(manifest, self.path)
        return self._records

    def hold(self, shared: bool = False) -> list[int]:
        """See Home. Refused too when someone has made anything else of a device since. Nobody shares a device."""
        handles: list[int] = []
        self._found.clear()
        try:
            handles.append(device_use.claim(self.path))
            manifest = self._manifest(self._header(handles[0]))
            others = self._others(manifest)
            for path in others:
                handles.append(device_use.claim(path))
            self.check(manifest)
            for path, handle in zip([self.path, *others], handles, strict=True):
                if found := signature_on(path, handle):
                    raise InputError(f"{path} holds {found} beside a run, which may be damaged; nothing was changed")
        except BaseException:
            release(handles)
            raise
        return handles

    def is_held(self) -> bool:
        """See Home."""
        try:
            os.close(device_use.claim(self.path))
        except InputError:
            return True
        return False

    @contextmanager
    def scratch(self, manifest: Manifest, count: int) -> Iterator[Sequence[Region]]:
        """See Home: what the first device has behind the shards."""
        begin = needed_bytes(manifest, 0)
        with opened(self.path, os.O_RDONLY) as handle:
            size = device_use.size_of(handle)
        if count and begin + count > size:
            raise StorageError(
                f"{self.path} has {size} bytes, this plan needs {begin + count}, {count} of them for rows between "
                f"blocks; give it more memory, or a larger device"
            )
        yield [Region(str(self.path), begin, count)] if count else []

    def tidy(self, manifest: Manifest) -> None:
        """See Home: shows the snapshots up to its step."""
        if manifest.records and not are_current(self.records(manifest), manifest):
            show_snapshots(self.records(manifest), manifest)

    def untidy(self, manifest: Manifest) -> list[str]:
        """See Home: metadata of snapshots."""
        if not manifest.records:
            return []
        directory = self.records(manifest)
        wrong = outdated(directory, snapshot_files(manifest))
        return [f"{directory.path / name} is not what belongs there" for name in wrong]

    def repair(self, manifest: Manifest) -> None:
        """See Home."""
        self.tidy(manifest)

    def _header(self, handle: int) -> Header:
        header = _read(handle, self.path)
        if header is None:
            raise InputError(f"{self.path} holds no Outcrop run (its header is missing)")
        return header

    def _manifest(self, header: Header) -> Manifest:
        if header.kind != RUN:
            run = member_of(header).get("run")
            raise InputError(f"{self.path} holds a share of a run; name its first device ({run} when it was made)")
        return parse_manifest(header.text.encode(), self.path)

    def _others(self, manifest: Manifest) -> list[Path]:
        """The further devices. They are known by their headers: names may change when a machine starts again."""
        paths = []
        for index, name in enumerate(manifest.directories[1:], start=1):
            share = (manifest.identity, index)
            if share not in self._found:
                self._found[share] = _find_share(share, Path(name))
            paths.append(self._found[share])
        return paths


def regions(manifest: Description, index: int, device: str) -> dict[tuple[str, int, int], Region]:
    """Where device number `index` of a run holds its shards, by (array, turn, shard)."""
    layout, begin, places = manifest.layout, HEADER_BYTES, {}
    for entry, turn in manifest.copies:
        for shard in range(index, layout.shards, len(manifest.directories)):
            places[entry.name, turn, shard] = Region(device, begin, layout.shard_bytes(shard))
            begin += round_up(layout.shard_bytes(shard), RECORD_BYTES)
    return places


def needed_bytes(manifest: Description, index: int) -> int:
    """Bytes that device number `index` of the run must have."""
    ends = [one.begin + one.size for one in regions(manifest, index, "").values()]
    return round_up(max(ends, default=HEADER_BYTES), RECORD_BYTES)


def member_text(manifest: Manifest, index: int) -> str:
    """What the header of further device number `index` says."""
    return json.dumps({"run": manifest.directories[0], "identity": manifest.identity, "index": index}) + "\n"


def member_of(header: Header) -> dict[str, object]:
    """What `member_text` put there; empty for the first device of a run."""
    content = json.loads(header.text) if header.kind == MEMBER else {}
    return content if isinstance(content, dict) else {}


def signature_on(path: Path, handle: int) -> str:
    """What else than a run the open device holds; "" for nothing known. Raises InputError when it cannot be read."""
    try:
        return find_signature(path, handle, device_use.size_of(handle))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None


def _records_of(manifest: Manifest, device: Path) -> Directory:
    """The folder of records of the run on `device`. Raises StorageError unless it says that it is that."""
    assert manifest.records is not None
    what = f"{manifest.records}, records of the run on {device},"
    try:
        directory = Directory.open(Path(manifest.records))
    except OSError as error:
        raise StorageError(f"{what} cannot be used: {error.strerror}") from None
    member = read_member(directory)
    if member is None or member.identity != manifest.identity:
        raise StorageError(f"{what} are missing; put them back")
    return directory


@contextmanager
def opened(path: Path, flags: int) -> Iterator[int]:
    """Descriptor of the device meanwhile. Raises InputError when it cannot be opened."""
    handle = device_use.open_device(path, flags)
    try:
        yield handle
    finally:
        os.close(handle)


def _find_share(share: tuple[str, int], name: Path) -> Path:
    """The device with this share (identity of the run, index): the one of that name, or else any other there is."""
    for path in (name, *device_use.all_devices()):
        with suppress(InputError), opened(path, os.O_RDONLY) as handle:
            header = _read(handle, path)
            if header and (header.identity, member_of(header).get("index")) == share:
                return path
    raise StorageError(f"share {share[1]} of the run is missing: it was on {name}, and is on no block device now")


def _read(handle: int, path: Path) -> Header | None:
    try:
        return read_header(handle, path)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
