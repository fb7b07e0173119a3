"""Whether a block device holds something that others would recognise: a file system, a partition table, swap, an array.

`blkid` knows nearly all; what is most common is looked for here too, for machines that have no blkid.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

FILE_SYSTEM, TABLE, GROUP = "a file system", "a partition table", "a member of an array or volume group"
ENCRYPTED, SWAP = "an encrypted volume", "swap space"

_KINDS = {"filesystem": FILE_SYSTEM, "raid": GROUP, "crypto": ENCRYPTED}
_SECONDS = 30

# What, its name, where (from the end if negative), the bytes.
_MAGICS: tuple[tuple[str, str, int, bytes], ...] = (
    (FILE_SYSTEM, "ext2, ext3 or ext4", 0x438, b"\x53\xef"),
    (FILE_SYSTEM, "xfs", 0, b"XFSB"),
    (FILE_SYSTEM, "btrfs", 0x10040, b"_BHRfS_M"),
    (FILE_SYSTEM, "f2fs", 0x400, b"\x10\x20\xf5\xf2"),
    (FILE_SYSTEM, "bcachefs or bcache", 0x1018, b"\xc6\x85\x73\xf6"),
    (FILE_SYSTEM, "ntfs", 3, b"NTFS    "),
    (FILE_SYSTEM, "exfat", 3, b"EXFAT   "),
    (FILE_SYSTEM, "vfat", 0x52, b"FAT32   "),
    (FILE_SYSTEM, "vfat", 0x36, b"FAT1"),
    (FILE_SYSTEM, "iso9660", 0x8001, b"CD001"),
    (FILE_SYSTEM, "squashfs", 0, b"hsqs"),
    (FILE_SYSTEM, "erofs", 0x400, b"\xe2\xe1\xf5\xe0"),
    (FILE_SYSTEM, "jfs", 0x8000, b"JFS1"),
    (FILE_SYSTEM, "reiserfs", 0x10034, b"ReIsEr"),
    (FILE_SYSTEM, "nilfs2", 0x406, b"\x34\x34"),
    (FILE_SYSTEM, "apfs", 0x20, b"NXSB"),
    (FILE_SYSTEM, "hfsplus", 0x400, b"H+\0\4"),
    (FILE_SYSTEM, "ceph bluestore", 0, b"bluestore block device"),
    (ENCRYPTED, "LUKS", 0, b"LUKS\xba\xbe"),
    (GROUP, "md", 0, b"\xfc\x4e\x2b\xa9"),
    (GROUP, "md", 0x1000, b"\xfc\x4e\x2b\xa9"),
    *((GROUP, "LVM2", sector * 512, b"LABELONE") for sector in range(4)),
    *((SWAP, "swap", page - 10, b"SWAPSPACE2") for page in (4 << 10, 8 << 10, 16 << 10, 64 << 10)),
    *((SWAP, "hibernation", page - 10, b"S1SUSPEND") for page in (4 << 10, 64 << 10)),
    *((TABLE, "gpt", offset, b"EFI PART") for offset in (512, 4096, -512, -4096)),
    (TABLE, "dos, or a boot sector", 0x1FE, b"\x55\xaa"),
)
_MD_AT_END = b"\xfc\x4e\x2b\xa9"
_ZFS_UBERBLOCK = b"\x0c\xb1\xba\0\0\0\0\0"


def find_signature(path: Path, handle: int, size: int) -> str:
    """What the device of `size` bytes at `path`, open as `handle`, holds, by its magic numbers; "" when nothing known.

    Raises OSError when it cannot be read.
    """
    return by_blkid(path) or by_magic(handle, size)


def by_blkid(path: Path) -> str:
    """What blkid finds when it looks into the device; "" too when there is no blkid."""
    program = shutil.which("blkid", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None:
        return ""
    try:
        done = subprocess.run(
            [program, "-p", "-o", "export", str(path)], capture_output=True, text=True, errors="replace",
            timeout=_SECONDS, env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    if done.returncode == 8:
        return "several signatures that contradict each other (says blkid)"
    return _in_words(done.stdout) if done.returncode == 0 else ""


def _in_words(export: str) -> str:
    """What `blkid -o export` says, for people."""
    facts = dict(line.partition("=")[::2] for line in export.splitlines())
    if name := facts.get("TYPE"):
        kind = SWAP if name.startswith("sw") else _KINDS.get(facts.get("USAGE", ""), "data")
        label = f", labelled {facts['LABEL']}" if facts.get("LABEL") else ""
        return f"{kind} ({name}{label}; says blkid)"
    return f"{TABLE} ({facts['PTTYPE']}; says blkid)" if facts.get("PTTYPE") else ""


def by_magic(handle: int, size: int) -> str:
    """What the magic numbers of the most common kinds say; "" for nothing known. Raises OSError."""
    for kind, name, offset, magic in (*_MAGICS, *_at_end(size)):
        place = offset if offset >= 0 else size + offset
        if place >= 0 and os.pread(handle, len(magic), place) == magic:
            return f"{kind} ({name})"
    labels = os.pread(handle, 128 << 10, 128 << 10)
    if any(labels[place : place + 8] == _ZFS_UBERBLOCK for place in range(0, len(labels), 1024)):
        return f"{GROUP} (zfs)"
    return ""


def _at_end(size: int) -> Iterator[tuple[str, str, int, bytes]]:
    """The places of md's metadata 0.90 and 1.0, which depend on the size."""
    for place in ((size & ~0xFFFF) - 0x10000, ((size >> 9) - 16 & ~7) << 9):
        if place >= 0:
            yield GROUP, "md", place, _MD_AT_END
