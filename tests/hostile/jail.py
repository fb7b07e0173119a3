"""Set limits for a process that runs hostile input: memory, file sizes, seconds, and the folders that it may change.

The tests compare a tree of files (world.py) before and after each case, so they find wrong changes. The jail is an
additional protection, which uses Landlock. It prevents a bug in Outcrop from damaging other files of the user. This
protection is most important if the user is root.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import struct
from pathlib import Path

ADDRESS_BYTES = 3 << 30
"""The limit of the address space. A planner maps more memory than it uses. PEAK_BYTES limits the memory in use."""

FILE_BYTES = 64 << 20
PEAK_BYTES = 1 << 30
"""The limit of the memory in use. All correct cases use less."""

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_WRITES = 0b111_1111_1111_0010  # all rights of ABI 3 of Landlock except execute, read_file and read_dir
_WRITE_FILE = 1 << 1
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/shm")
_NO_NEW_PRIVILEGES = 38


def confine(folder: Path) -> bool:
    """Prevent this process and its children from changing files outside `folder`, except devices such as /dev/null.
    Return False if the system does not support this protection, such as Linux before 6.2.
    """
    if platform.machine() not in ("x86_64", "aarch64"):
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1) < 3:
        return False
    handled = struct.pack("Q", _WRITES)
    rules = libc.syscall(_CREATE_RULESET, handled, ctypes.c_size_t(len(handled)), 0)
    if rules < 0:
        return False
    for place in (folder, *map(Path, _DEVICES)):
        if not place.exists():
            continue
        handle = os.open(place, os.O_PATH)
        allowed = _WRITES if place.is_dir() else _WRITE_FILE | 1 << 14
        done = libc.syscall(_ADD_RULE, rules, 1, struct.pack("=Qi", allowed, handle), 0)
        os.close(handle)
        if done != 0:
            return False
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    done = libc.syscall(_RESTRICT_SELF, rules, 0)
    os.close(rules)
    return bool(done == 0)


def limit(seconds: float) -> None:
    """Set the limits of memory, file sizes, time and open files for this process and the processes that it starts."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_BYTES, ADDRESS_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    processor_seconds = int(4 * seconds) + 5
    resource.setrlimit(resource.RLIMIT_CPU, (processor_seconds, processor_seconds + 5))
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))
