"""The first 4 MiB of a block device that holds a run: which run, and two copies of its manifest, written in turn.

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

import os
import struct
from dataclasses import dataclass

from outcrop import _core
from outcrop.errors import InputError

HEADER_BYTES = 4 << 20
"""Shards begin here."""

SLOT_OFFSETS = (1 << 20, 2 << 20)
SLOT_BYTES = 1 << 20
BLOCK_BYTES = 4096
"""What is written at once is a multiple of this, the largest usual sector."""

RUN, MEMBER = "run", "member"
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
    """Write the slot that is this sequence number's turn and make it durable. Raises OSError."""
    write_all(handle, encode_slot(header), SLOT_OFFSETS[header.sequence % 2])
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
