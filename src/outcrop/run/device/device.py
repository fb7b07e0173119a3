"""A run on raw block devices: after a header of 4 MiB each holds its shards, array by array.

First come the arrays of the state in turn 0, then those in turn 1, then what is only read. Shards alternate over the
devices and are the same bytes as the files of a directory; each begins at a multiple of 4096. The header says which run
it is, and has two copies of its manifest, written in turn.

         0   superblock: magic, version, kind, identity of the run, CRC32C
     1 MiB   slot 0:     magic, identity, sequence number, length, CRC32C, text
     2 MiB   slot 1:     the same
     4 MiB   the shards

The text is the manifest or, on a further device of a run, whose share it is. What counts is the slot with the higher
sequence number among those whose checksum and identity are right; a commit writes the other one. A torn commit leaves
the manifest before it. The superblock is one sector at the very beginning, where nearly everything that formats a disk
writes: what is left of an overwritten run is not taken for one. Another identity there replaces a run in one step.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from outcrop import _core
from outcrop.durable import Directory
from outcrop.errors import InputError, StorageError
from outcrop.run.device import use as device_use
from outcrop.run.disk.acquisition_files import check_sizes
from outcrop.run.disk.contents import outdated, show_snapshots, snapshot_files
from outcrop.run.disk.entries import ArrayEntry
from outcrop.run.disk.layout import RECORD_BYTES, round_up
from outcrop.run.disk.manifest import Description, Manifest, parse_manifest, read_member
from outcrop.run.disk.planes import DeviceRange
from outcrop.run.disk.storage import RunStorage, release

HEADER_BYTES = 4 << 20
"""Shards begin here."""

SLOT_OFFSETS = (1 << 20, 2 << 20)
SLOT_BYTES = 1 << 20
BLOCK_BYTES = 4096
"""What is written at once is a multiple of this, the largest usual sector."""

RUN, SHARE = "run", "member"
"""Kinds: the first device of a run, which has its manifest; a further one."""

VERSION = 1
_MAGIC = b"OUTCROP DEVICE\0\0"
_SUPERBLOCK = struct.Struct("<16sI8s32s")
_SLOT = struct.Struct("<16s32sQI")
_CHECKSUM = struct.Struct("<I")


@dataclass(frozen=True)
class Header:
    """What a device says: kind, the run's identity (32 hexadecimal digits), the text, and which writing it was."""

    kind: str
    identity: str
    text: str
    sequence: int = 0

    @property
    def slot_offset(self) -> int:
        """Where this writing lies: the slots take turns."""
        return SLOT_OFFSETS[self.sequence % 2]


class Device(RunStorage):
    """A run on block devices. The manifest is in the header; the kernel's exclusive opening is the lock."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._found: dict[tuple[str, int], Path] = {}
        self._records: Directory | None = None

    def read(self) -> Manifest:
        with opened(self.path, os.O_RDONLY) as handle:
            return self._manifest(self._header(handle))

    def store(self, manifest: Manifest) -> None:
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

    def files(self, manifest: Manifest, entry: ArrayEntry, turn: int) -> Sequence[DeviceRange]:
        """Ranges of the devices."""
        devices = [self.path, *self._others(manifest)]
        shares = [ranges_on(manifest, index, str(device)) for index, device in enumerate(devices)]
        shards = manifest.layout.shards
        return [shares[shard % len(devices)][entry.name, turn, shard] for shard in range(shards)]

    def check(self, manifest: Manifest) -> None:
        for index, path in enumerate([self.path, *self._others(manifest)]):
            with opened(path, os.O_RDONLY) as handle:
                size = device_use.size_of(handle)
            if size < (needed := needed_bytes(manifest, index)):
                raise StorageError(f"{path} has {size} bytes, {needed} belong there")
        if manifest.records:
            check_sizes(self.records(manifest), manifest)

    def records(self, manifest: Manifest) -> Directory:
        """The folder beside the devices, which says itself that it belongs to this run."""
        if self._records is None or not self._records.is_here():
            self._records = _records_of(manifest, self.path)
        return self._records

    def hold(self, shared: bool = False) -> list[int]:
        """Refused too when a device holds anything else since. A device is never shared."""
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

    def in_use(self) -> bool:
        try:
            os.close(device_use.claim(self.path))
        except InputError:
            return True
        return False

    @contextmanager
    def scratch(self, manifest: Manifest, count: int) -> Iterator[Sequence[DeviceRange]]:
        """What the first device has behind the shards."""
        begin = needed_bytes(manifest, 0)
        with opened(self.path, os.O_RDONLY) as handle:
            size = device_use.size_of(handle)
        if count and begin + count > size:
            raise StorageError(
                f"{self.path} has {size} bytes, this plan needs {begin + count}, {count} of them for rows between "
                f"blocks; give it more memory, or a larger device"
            )
        yield [DeviceRange(str(self.path), begin, count)] if count else []

    def tidy(self, manifest: Manifest) -> None:
        """Shows the snapshots up to the step."""
        if manifest.records:
            show_snapshots(self.records(manifest), manifest)

    def untidy(self, manifest: Manifest) -> list[str]:
        """Metadata of snapshots."""
        if not manifest.records:
            return []
        directory = self.records(manifest)
        wrong = outdated(directory, snapshot_files(manifest))
        return [f"{directory.path / name} is not what belongs there" for name in wrong]

    def repair(self, manifest: Manifest) -> None:
        self.tidy(manifest)

    def _header(self, handle: int) -> Header:
        header = header_of(self.path, handle)
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


def ranges_on(manifest: Description, index: int, device: str) -> dict[tuple[str, int, int], DeviceRange]:
    """Where device number `index` of a run holds its shards, by (array, turn, shard)."""
    layout, begin, places = manifest.layout, HEADER_BYTES, {}
    for entry, turn in manifest.copies:
        for shard in range(index, layout.shards, len(manifest.directories)):
            places[entry.name, turn, shard] = DeviceRange(device, begin, layout.shard_bytes(shard))
            begin += round_up(layout.shard_bytes(shard), RECORD_BYTES)
    return places


def needed_bytes(manifest: Description, index: int) -> int:
    """Bytes that device number `index` of the run must have."""
    ends = [one.begin + one.size for one in ranges_on(manifest, index, "").values()]
    return round_up(max(ends, default=HEADER_BYTES), RECORD_BYTES)


def member_text(manifest: Manifest, index: int) -> str:
    """What the header of further device number `index` says."""
    return json.dumps({"run": manifest.directories[0], "identity": manifest.identity, "index": index}) + "\n"


def member_of(header: Header) -> dict[str, object]:
    """What `member_text` put there; empty for the first device of a run."""
    content = json.loads(header.text) if header.kind == SHARE else {}
    return content if isinstance(content, dict) else {}


def signature_on(path: Path, handle: int) -> str:
    """What else than a run the open device holds; "" for nothing known. Raises InputError when it cannot be read."""
    try:
        return device_use.find_signature(path, handle, device_use.size_of(handle))
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
            header = header_of(path, handle)
            if header and (header.identity, member_of(header).get("index")) == share:
                return path
    raise StorageError(f"share {share[1]} of the run is missing: it was on {name}, and is on no block device now")


def header_of(path: Path, handle: int) -> Header | None:
    """What the open device says; None when it holds no run. Raises InputError when it cannot be read, too."""
    try:
        return read_header(handle, path)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None


def encode_superblock(kind: str, identity: str) -> bytes:
    """The first block of the device."""
    body = _SUPERBLOCK.pack(_MAGIC, VERSION, kind.encode(), identity.encode())
    return _padded(body + _CHECKSUM.pack(_core.crc32c(body)))


def decode_superblock(block: bytes, path: object) -> tuple[str, str] | None:
    """(kind, identity); None when the device holds no run. Raises InputError when damaged or of a newer version."""
    magic, version, kind, identity = _SUPERBLOCK.unpack_from(block)
    if magic != _MAGIC:
        return None
    (checksum,) = _CHECKSUM.unpack_from(block, _SUPERBLOCK.size)
    if checksum != _core.crc32c(block[: _SUPERBLOCK.size]):
        raise InputError(f"{path} holds an Outcrop run whose first block is damaged")
    if version != VERSION:
        raise InputError(
            f"{path} holds an Outcrop run with header version {version}, this version reads {VERSION}; "
            "use the version that wrote it"
        )
    return kind.rstrip(b"\0").decode(), identity.rstrip(b"\0").decode()


def encode_slot(header: Header) -> bytes:
    """The slot, in whole blocks. Raises InputError when the text is longer than a slot."""
    text = header.text.encode()
    body = _SLOT.pack(_MAGIC, header.identity.encode(), header.sequence, len(text))
    slot = _padded(body + _CHECKSUM.pack(_core.crc32c(text, _core.crc32c(body))) + text)
    if len(slot) > SLOT_BYTES:
        raise InputError(f"the description of the run has {len(text)} bytes, a device has room for {SLOT_BYTES}")
    return slot


def decode_slot(slot: bytes, kind: str, identity: str) -> Header | None:
    """The header in a slot; None when it is empty, torn, damaged or of another run."""
    magic, owner, sequence, length = _SLOT.unpack_from(slot)
    start = _SLOT.size + _CHECKSUM.size
    text = slot[start : start + length]
    if magic != _MAGIC or owner.rstrip(b"\0") != identity.encode() or len(text) != length:
        return None
    (checksum,) = _CHECKSUM.unpack_from(slot, _SLOT.size)
    if checksum != _core.crc32c(text, _core.crc32c(slot[: _SLOT.size])):
        return None
    return Header(kind, identity, text.decode(), sequence)


def read_header(handle: int, path: object) -> Header | None:
    """What the open device says; None when it holds no run. Raises InputError when damaged or newer, OSError."""
    block = os.pread(handle, BLOCK_BYTES, 0)
    found = decode_superblock(block, path) if len(block) == BLOCK_BYTES else None
    if found is None:
        return None
    slots = [decode_slot(_read_slot(handle, offset), *found) for offset in SLOT_OFFSETS]
    whole = [slot for slot in slots if slot is not None]
    if not whole:
        raise InputError(f"{path} holds an Outcrop run, but both copies of its manifest are damaged")
    return max(whole, key=lambda header: header.sequence)


def write_slot(handle: int, header: Header) -> None:
    """Write the slot whose turn it is and make it durable. Raises OSError."""
    write_all(handle, encode_slot(header), header.slot_offset)
    os.fsync(handle)


def write_superblock(handle: int, header: Header) -> None:
    """From here on the device is this run's, durably. Raises OSError."""
    write_all(handle, encode_superblock(header.kind, header.identity), 0)
    os.fsync(handle)


def write_all(handle: int, content: bytes, offset: int) -> None:
    """All of `content`, at `offset`. Raises OSError."""
    done = 0
    while done < len(content):
        done += os.pwrite(handle, content[done:], offset + done)


def _read_slot(handle: int, offset: int) -> bytes:
    """The slot, as far as its length says."""
    first = os.pread(handle, BLOCK_BYTES, offset)
    _, _, _, length = _SLOT.unpack_from(first.ljust(BLOCK_BYTES, b"\0"))
    rest = min(_SLOT.size + _CHECKSUM.size + length, SLOT_BYTES) - len(first)
    return (first + os.pread(handle, rest, offset + len(first)) if rest > 0 else first).ljust(BLOCK_BYTES, b"\0")


def _padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % BLOCK_BYTES)
