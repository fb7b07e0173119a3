"""This module finds out which program uses a block device, and whether the device holds content that other programs
recognise.

At any time, Linux grants O_EXCL on a device to only one user: a file system, a swap area, a volume manager or a
program. If a partition is in use, the whole disk counts as in use. If the whole disk is in use, each partition counts
as in use. A device is free if Outcrop can open it with O_EXCL. Most other checks only find out which program uses a
device, so that a message can name the program.

File systems, partition tables, swap and arrays of disks are recognised by their signatures. `blkid` knows nearly all
signatures. For machines without blkid, this module also has a list of the most common signatures.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

from outcrop.errors import InputError

SYS, PROC = Path("/sys"), Path("/proc")

FILE_SYSTEM, TABLE, GROUP = "a file system", "a partition table", "a member of an array or volume group"
ENCRYPTED, SWAP = "an encrypted volume", "swap space"

_KINDS = {"filesystem": FILE_SYSTEM, "raid": GROUP, "crypto": ENCRYPTED}
_SECONDS = 30

# Each entry of `_MAGICS` has the kind of content, the name of the format, the offset of the signature, and the bytes of
# the signature. A negative offset is counted from the end of the device.
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


def is_block_device(path: Path) -> bool:
    try:
        return stat.S_ISBLK(path.stat().st_mode)
    except OSError:
        return False


def size_of(handle: int) -> int:
    return os.lseek(handle, 0, os.SEEK_END)


def claim(path: Path) -> int:
    """Open a device exclusively and return the descriptor. Until the descriptor is closed, no other process can mount
    or claim the device. Raises InputError when the device is in use or cannot be opened."""
    number = _number(path)
    # O_EXCL does not detect a loop device that uses this device as its file, so `find_use` searches for such loop
    # devices.
    if number and not (SYS / "dev" / "block").is_dir():
        raise InputError(f"{path} may be in use: its users are not known while {SYS} is not mounted; mount it first")
    if number and (use := find_use(number)):
        raise InputError(f"{path} is in use: {use}; a device must be free")
    handle = open_device(path, os.O_RDONLY | os.O_EXCL)
    try:
        # O_EXCL does not prevent udev from reading the device, but a lock of `flock` does. If udev is reading the
        # device now, `flock` fails. For block devices, the failure of `flock` is ignored.
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        if not number:
            os.close(handle)
            raise InputError(f"{path} is in use by another process; wait for it or stop it") from None
    return handle


def open_device(path: Path, flags: int) -> int:
    """Open a device and return its descriptor. Raises InputError if the device cannot be opened."""
    try:
        return os.open(path, flags | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise InputError(f"{path} is in use by another process or by the system; wait for it or stop it") from None
        raise InputError(f"{path} cannot be opened: {error.strerror}") from None


def require_writable(path: Path) -> None:
    """Raise InputError when the device is read-only, or when this user must not write to it."""
    number = _number(path)
    if number and _read(SYS / "dev" / "block" / number / "ro") == "1":
        raise InputError(f"{path} is read-only; give a device that can be written")
    if not os.access(path, os.W_OK):
        raise InputError(f"{path} cannot be written: no permission")


def identity_of(path: Path) -> str:
    """Return a text that identifies a device. All paths of the device give the same text."""
    return _number(path) or str(path.resolve())


def all_devices() -> list[Path]:
    """Return the paths of the block devices of this machine, sorted by name."""
    return [Path("/dev") / name.replace("!", "/") for name in sorted(_names(SYS / "class" / "block"))]


def find_use(number: str) -> str:
    """Return a text that says how the device `number` ("major:minor") or one of its partitions is used. Return "" if
    the device and its partitions are not in use."""
    disk = SYS / "dev" / "block" / number
    for part in (disk, *sorted(_partitions(disk))):
        own = _read(part / "dev") or number
        who = "it is" if own == number else f"its partition {part.name} is"
        if holders := sorted(_names(part / "holders")):
            return f"{who} part of {', '.join(holders)}"
        if where := _mount_point(own):
            return f"{who} mounted at {where}"
        if own in _numbers_of_swap():
            return f"{who} swap space"
        if loop := _loop_on(own):
            return f"{who} behind {loop}"
    if behind := _read(disk / "loop" / "backing_file"):
        twin = [loop.name for loop in _loops() if _read(loop / "loop" / "backing_file") == behind]
        if len(twin) > 1:
            return f"{' and '.join(sorted(twin))} have the same file behind them, {behind}"
    return ""


def _partitions(disk: Path) -> Iterator[Path]:
    return (disk / name for name in _names(disk) if (disk / name / "partition").exists())


def _mount_point(number: str) -> str:
    """Return the path at which the device is mounted for this process. Return "" if the device is not mounted. For
    btrfs, the function compares names of devices, because mountinfo does not contain the number of the device."""
    for line in (_read(PROC / "self" / "mountinfo") or "").splitlines():
        before, _, after = line.partition(" - ")
        fields, source = before.split(), after.split()[1:2]
        if fields[2] == number or (source and source[0].startswith("/") and _number(Path(source[0])) == number):
            return fields[4].replace("\\040", " ")
    return ""


def _numbers_of_swap() -> set[str]:
    lines = (_read(PROC / "swaps") or "").splitlines()[1:]
    return {_number(Path(line.split()[0])) for line in lines} - {""}


def _loops() -> list[Path]:
    return [SYS / "block" / name for name in _names(SYS / "block") if name.startswith("loop")]


def _loop_on(number: str) -> str:
    """`number` identifies a device. Return the name of the loop device whose backing file is this device. Return "" if
    no loop device uses the device."""
    for loop in _loops():
        behind = _read(loop / "loop" / "backing_file")
        if behind and _number(Path(behind)) == number:
            return loop.name
    return ""


def _number(path: Path) -> str:
    """Return the text "major:minor" of a block device, or "" for other paths."""
    try:
        status = path.stat()
    except OSError:
        return ""
    if not stat.S_ISBLK(status.st_mode):
        return ""
    return f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def find_signature(path: Path, handle: int, size: int) -> str:
    """Return a text that names the content of a device of `size` bytes. Return "" if no content is recognised. Raises
    OSError."""
    return by_blkid(path) or by_magic(handle, size)


def by_blkid(path: Path) -> str:
    """Return a text about the content that blkid finds. Return "" if blkid finds nothing or is not installed."""
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
    facts = dict(line.partition("=")[::2] for line in export.splitlines())
    if name := facts.get("TYPE"):
        kind = SWAP if name.startswith("sw") else _KINDS.get(facts.get("USAGE", ""), "data")
        label = f", labelled {facts['LABEL']}" if facts.get("LABEL") else ""
        return f"{kind} ({name}{label}; says blkid)"
    return f"{TABLE} ({facts['PTTYPE']}; says blkid)" if facts.get("PTTYPE") else ""


def by_magic(handle: int, size: int) -> str:
    """Search a device for the most common signatures. Return a text about the content, or "" if no signature is found.
    Raises OSError."""
    for kind, name, offset, magic in (*_MAGICS, *_at_end(size)):
        place = offset if offset >= 0 else size + offset
        if place >= 0 and os.pread(handle, len(magic), place) == magic:
            return f"{kind} ({name})"
    labels = os.pread(handle, 128 << 10, 128 << 10)
    if any(labels[place : place + 8] == _ZFS_UBERBLOCK for place in range(0, len(labels), 1024)):
        return f"{GROUP} (zfs)"
    return ""


def _at_end(size: int) -> Iterator[tuple[str, str, int, bytes]]:
    """Yield the signatures of md 0.90 and 1.0, whose offsets depend on the size of the device."""
    for place in ((size & ~0xFFFF) - 0x10000, ((size >> 9) - 16 & ~7) << 9):
        if place >= 0:
            yield GROUP, "md", place, _MD_AT_END
