"""`Device`: a run on raw block devices. Each device has a header of 4 MiB. The shards of all arrays follow, one array
after another.

The order of the arrays on a device is: the first copies of the state, the second copies of the state, the static
arrays. Successive shards are on successive devices. A shard has the same bytes as in a directory, and begins at a
multiple of 4096 bytes. The header of the first device identifies the run and has two slots for manifests. Commits write
the two slots alternately.

         0   superblock: magic, version, kind, identity of the run, CRC32C
     1 MiB   slot 0:     magic, identity, sequence number, length, CRC32C, text
     2 MiB   slot 1:     the same
     4 MiB   the shards

On the first device of a run, the text in a slot is the manifest. On the other devices of a run, the text in a slot
identifies the run. A slot is intact if its checksum and identity are right. If both slots are intact, the slot with the
higher sequence number is valid. A commit writes to the slot that is not valid. So a commit that is interrupted leaves
the earlier manifest intact. Nearly every program that formats a disk overwrites the first sector, which contains the
superblock. So Outcrop no longer finds a run after another program has formatted the disk. A run is replaced in one
step: a new superblock with another identity is written.
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
from outcrop.errors import InputError, StorageError, os_errors_as
from outcrop.run.device import use as device_use
from outcrop.run.disk.acquisition_files import check_sizes
from outcrop.run.disk.contents import outdated, show_snapshots, snapshot_files
from outcrop.run.disk.entries import ArrayEntry
from outcrop.run.disk.layout import RECORD_BYTES, round_up
from outcrop.run.disk.manifest import Description, Manifest, parse_manifest, read_member
from outcrop.run.disk.planes import DeviceRange
from outcrop.run.disk.storage import RunStorage, release

HEADER_BYTES = 4 << 20
"""The offset of the first shard."""

SLOT_OFFSETS = (1 << 20, 2 << 20)
SLOT_BYTES = 1 << 20
BLOCK_BYTES = 4096
"""The largest size of a sector on common devices. The size of each write to the header is a multiple of BLOCK_BYTES."""

RUN, SHARE = "run", "member"
"""The kinds of devices: RUN for the first device of a run, which holds the manifest, and SHARE for further devices."""

VERSION = 1
_MAGIC = b"OUTCROP DEVICE\0\0"
_SUPERBLOCK = struct.Struct("<16sI8s32s")
_SLOT = struct.Struct("<16s32sQI")
_CHECKSUM = struct.Struct("<I")


@dataclass(frozen=True)
class Header:
    """The header of a device. A header contains its kind, the identity of the run (32 hexadecimal digits), and a text.
    `sequence` is a number that increases each time the header is written."""

    kind: str
    identity: str
    text: str
    sequence: int = 0

    @property
    def slot_offset(self) -> int:
        return SLOT_OFFSETS[self.sequence % 2]


class Device(RunStorage):
    """A run on block devices, with the manifest in the header of the first device. To lock the run, a process opens the
    devices exclusively. Linux lets only one process at a time open a device exclusively."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._found: dict[tuple[str, int], Path] = {}
        self._records: Directory | None = None

    def read(self) -> Manifest:
        with opened(self.path, os.O_RDONLY) as handle:
            return self._manifest(self._header(handle))

    def store(self, manifest: Manifest) -> None:
        what = f"cannot commit to {self.path}"
        try:
            device_use.require_writable(self.path)
            with os_errors_as(StorageError, what), opened(self.path, os.O_RDWR) as handle:
                header = self._header(handle)
                if header.identity != manifest.identity:
                    raise StorageError(f"{what}: it now holds another run")
                write_slot(handle, replace(header, text=manifest.to_bytes().decode(), sequence=header.sequence + 1))
        except InputError as error:
            raise StorageError(f"{what}: {error}") from error

    def files(self, manifest: Manifest, entry: ArrayEntry, copy: int) -> Sequence[DeviceRange]:
        devices = [self.path, *self._others(manifest)]
        shares = [ranges_on(manifest, index, str(device)) for index, device in enumerate(devices)]
        shards = manifest.layout.shards
        return [shares[shard % len(devices)][entry.name, copy, shard] for shard in range(shards)]

    def check(self, manifest: Manifest, spare: bool = False) -> None:
        self.lost_shards(manifest)
        if manifest.records:
            check_sizes(self.records(manifest), manifest)

    def lost_shards(self, manifest: Manifest) -> dict[str, str]:
        for index, path in enumerate([self.path, *self._others(manifest)]):
            with opened(path, os.O_RDONLY) as handle:
                size = device_use.size_of(handle)
            if size < (needed := needed_bytes(manifest, index)):
                raise StorageError(f"{path} has {size} bytes, but needs {needed}")
        return {}

    def records(self, manifest: Manifest) -> Directory:
        """Return the folder of records. Raises StorageError if the MEMBER file of the folder does not name this run."""
        if self._records is None or not self._records.is_here():
            self._records = _records_of(manifest, self.path)
        return self._records

    def hold(self, shared: bool = False) -> list[int]:
        """Lock the devices exclusively, even if `shared` is True, and return their descriptors. Raises InputError if a
        device is in use, or if another program has written to the device."""
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
        """Yield a list with one range of `count` bytes, which lies after the shards of the first device. If `count` is
        0, yield an empty list. Raises StorageError if the device has no room for `count` bytes after the shards."""
        begin = needed_bytes(manifest, 0)
        with opened(self.path, os.O_RDONLY) as handle:
            size = device_use.size_of(handle)
        if count and begin + count > size:
            raise StorageError(
                f"{self.path} has {size} bytes, this plan needs {begin + count} bytes, {count} of them during a pass; "
                f"give a smaller bt: oc.open({str(self.path)!r}, sizes={{'bt': 4}}), or copy the run to a larger device"
            )
        yield [DeviceRange(str(self.path), begin, count)] if count else []

    def tidy(self, manifest: Manifest) -> None:
        if manifest.records:
            show_snapshots(self.records(manifest), manifest)

    def untidy(self, manifest: Manifest) -> list[str]:
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
        """Return all devices except the first. The devices are found by their headers, because the names of devices can
        change when a machine restarts."""
        paths = []
        for index, name in enumerate(manifest.directories[1:], start=1):
            share = (manifest.identity, index)
            if share not in self._found:
                self._found[share] = _find_share(share, Path(name))
            paths.append(self._found[share])
        return paths


def ranges_on(manifest: Description, index: int, device: str) -> dict[tuple[str, int, int], DeviceRange]:
    """Return a dictionary with the ranges of bytes of all shards on device number `index` of a run. The keys are
    (array, copy, shard)."""
    layout, begin, places = manifest.layout, HEADER_BYTES, {}
    for entry, copy in manifest.copies:
        for shard in range(index, layout.shards, len(manifest.directories)):
            places[entry.name, copy, shard] = DeviceRange(device, begin, layout.shard_bytes(shard))
            begin += round_up(layout.shard_bytes(shard), RECORD_BYTES)
    return places


def needed_bytes(manifest: Description, index: int) -> int:
    """Return the minimum size, in bytes, of device number `index` of the run."""
    ends = [one.begin + one.size for one in ranges_on(manifest, index, "").values()]
    return round_up(max(ends, default=HEADER_BYTES), RECORD_BYTES)


def member_text(manifest: Manifest, index: int) -> str:
    """Return the text for the header of device number `index`. `index` is at least 1. The header of the first device
    has the manifest."""
    return json.dumps({"run": manifest.directories[0], "identity": manifest.identity, "index": index}) + "\n"


def member_of(header: Header) -> dict[str, object]:
    """Return the values that `member_text` has stored in the header. Return {} for the header of a run's first device,
    because the text of that header is the manifest."""
    content = json.loads(header.text) if header.kind == SHARE else {}
    return content if isinstance(content, dict) else {}


def signature_on(path: Path, handle: int) -> str:
    """Return a text that names the kind of content on an open device, such as a file system. The function searches only
    for content that other programs recognise, and ignores Outcrop's own header. Return "" if the device has no content
    that other programs recognise. Raises InputError when the device cannot be read."""
    with os_errors_as(InputError, f"{path} cannot be read"):
        return device_use.find_signature(path, handle, device_use.size_of(handle))


def _records_of(manifest: Manifest, device: Path) -> Directory:
    """Open and return the folder of records of the run on `device`. Raises StorageError if the folder does not belong
    to the run on `device`."""
    assert manifest.records is not None
    what = f"{manifest.records}, records of the run on {device},"
    with os_errors_as(StorageError, f"{what} cannot be used"):
        directory = Directory.open(Path(manifest.records))
    member = read_member(directory)
    if member is None or member.identity != manifest.identity:
        raise StorageError(f"{what} are missing; restore them")
    return directory


@contextmanager
def opened(path: Path, flags: int) -> Iterator[int]:
    """Open a device until the `with` ends, and yield its descriptor. Raises InputError."""
    handle = device_use.open_device(path, flags)
    try:
        yield handle
    finally:
        os.close(handle)


def _find_share(share: tuple[str, int], name: Path) -> Path:
    """Return the path of the device whose header has the identity of the run and the index in `share`. The function
    first tests the device `name`, and then all other devices. Raises StorageError if no device has the identity and the
    index in `share`."""
    for path in (name, *device_use.all_devices()):
        with suppress(InputError), opened(path, os.O_RDONLY) as handle:
            header = header_of(path, handle)
            if header and (header.identity, member_of(header).get("index")) == share:
                return path
    raise StorageError(f"share {share[1]} of the run is missing: it was on {name}, and is on no block device now")


def header_of(path: Path, handle: int) -> Header | None:
    """Return the header of an open device, or None if the device has no run. Raises InputError when the header is
    damaged."""
    with os_errors_as(InputError, f"{path} cannot be read"):
        return read_header(handle, path)


def encode_superblock(kind: str, identity: str) -> bytes:
    body = _SUPERBLOCK.pack(_MAGIC, VERSION, kind.encode(), identity.encode())
    return _padded(body + _CHECKSUM.pack(_core.crc32c(body)))


def decode_superblock(block: bytes, path: object) -> tuple[str, str] | None:
    """Return (kind, identity) from the first block of a device, or None if the first block is not a superblock. Raises
    InputError when the superblock is damaged or of another version."""
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
    """Return the bytes of a slot that contains `header`. The result has whole blocks. Raises InputError when the text
    is too long for a slot."""
    text = header.text.encode()
    body = _SLOT.pack(_MAGIC, header.identity.encode(), header.sequence, len(text))
    slot = _padded(body + _CHECKSUM.pack(_core.crc32c(text, _core.crc32c(body))) + text)
    if len(slot) > SLOT_BYTES:
        raise InputError(f"the description of the run has {len(text)} bytes, a device has room for {SLOT_BYTES}")
    return slot


def decode_slot(slot: bytes, kind: str, identity: str) -> Header | None:
    """Return the header in a slot. Return None when the slot is empty, damaged, partly written, or of another run."""
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
    """Return the header of an open device, or None if the device has no run. Raises InputError when the header is
    damaged or of another version, and OSError when the device cannot be read."""
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
    """Write the header to the slot that its sequence number selects, and flush it. Raises OSError."""
    write_all(handle, encode_slot(header), header.slot_offset)
    os.fsync(handle)


def write_superblock(handle: int, header: Header) -> None:
    """Write and flush the superblock. From then on, the device belongs to the run. Raises OSError."""
    write_all(handle, encode_superblock(header.kind, header.identity), 0)
    os.fsync(handle)


def write_all(handle: int, content: bytes, offset: int) -> None:
    done = 0
    while done < len(content):
        done += os.pwrite(handle, content[done:], offset + done)


def _read_slot(handle: int, offset: int) -> bytes:
    first = os.pread(handle, BLOCK_BYTES, offset)
    _, _, _, length = _SLOT.unpack_from(first.ljust(BLOCK_BYTES, b"\0"))
    rest = min(_SLOT.size + _CHECKSUM.size + length, SLOT_BYTES) - len(first)
    return (first + os.pread(handle, rest, offset + len(first)) if rest > 0 else first).ljust(BLOCK_BYTES, b"\0")


def _padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % BLOCK_BYTES)
