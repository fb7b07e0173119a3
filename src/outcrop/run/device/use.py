"""What the kernel says about a block device: what uses it, how large it is, whether it may be written.

The last word has O_EXCL: the kernel gives it to one at a time among file systems, swap, volume managers and programs
that ask for it, partitions and their disk included. Everything else here is to say who it is.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from outcrop.errors import InputError

SYS, PROC = Path("/sys"), Path("/proc")


def is_block_device(path: Path) -> bool:
    """Whether `path` is a block device, or a link to one."""
    try:
        return stat.S_ISBLK(path.stat().st_mode)
    except OSError:
        return False


def size_of(handle: int) -> int:
    """Bytes of an open device."""
    return os.lseek(handle, 0, os.SEEK_END)


def claim(path: Path) -> int:
    """Descriptor that keeps everything else from mounting or claiming the device until it is closed.

    Raises InputError when something uses it, or when it cannot be opened.
    """
    number = _number(path)
    if number and not (SYS / "dev" / "block").is_dir():  # loops hold the device behind them without the kernel minding
        raise InputError(f"{path} may be in use: nothing says who uses it while {SYS} is not mounted; mount it first")
    if number and (use := find_use(number)):
        raise InputError(f"{path} is in use: {use}; a device must be free")
    handle = open_device(path, os.O_RDONLY | os.O_EXCL)
    try:
        # Beside O_EXCL this keeps udev from looking into the device meanwhile, which it may be doing just now.
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        if not number:
            os.close(handle)
            raise InputError(f"{path} is in use by another process; wait for it or stop it") from None
    return handle


def open_device(path: Path, flags: int) -> int:
    """Descriptor of the device. Raises InputError."""
    try:
        return os.open(path, flags | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise InputError(f"{path} is in use by another process or by the system; wait for it or stop it") from None
        raise InputError(f"{path} cannot be opened: {error.strerror}") from None


def require_writable(path: Path) -> None:
    """Raise InputError when the device is read-only, or not for this user to write."""
    number = _number(path)
    if number and _read(SYS / "dev" / "block" / number / "ro") == "1":
        raise InputError(f"{path} is read-only; give a device that can be written")
    if not os.access(path, os.W_OK):
        raise InputError(f"{path} cannot be written: no permission")


def identity_of(path: Path) -> str:
    """The same text for all names of one device."""
    return _number(path) or str(path.resolve())


def all_devices() -> list[Path]:
    """The block devices of this machine, by name."""
    return [Path("/dev") / name.replace("!", "/") for name in sorted(_names(SYS / "class" / "block"))]


def find_use(number: str) -> str:
    """What uses the device with `number` ("major:minor") or a partition of it; "" when nothing is known."""
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
    """Where the device is mounted, as far as this process sees; by its number or, as btrfs shows it, by its name."""
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
    """The loop device whose backing file is this device."""
    for loop in _loops():
        behind = _read(loop / "loop" / "backing_file")
        if behind and _number(Path(behind)) == number:
            return loop.name
    return ""


def _number(path: Path) -> str:
    """ "major:minor" of a block device; "" for everything else."""
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
