"""A swap file during a benchmark, for root only. It is always switched off and removed.

create ──► mkswap ──► swapon ──► ... ──► swapoff ──► remove
                         └── Ctrl-C, errors ──┘
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from outcrop import _core
from outcrop.errors import InputError, StorageError

PROGRAMS = ("mkswap", "swapon", "swapoff")
SYSTEM_FOLDERS = "/usr/sbin:/sbin"
"""The folders of programs for root, which the search path may lack."""


def swap_free_bytes() -> int:
    """Free swap space of this machine."""
    rows = [line.split() for line in _table()]
    return sum(int(size) - int(used) for _, _, size, used, *_ in rows) * 1024


@contextmanager
def swap_file(folder: Path, size_bytes: int) -> Iterator[None]:
    """Use a new swap file of `size_bytes` in `folder` during the context.

    Raises InputError without root or if a program is missing, and StorageError if the disk is full or the file system
    cannot hold a swap file.
    """
    if os.geteuid() != 0:
        raise InputError("--swap-file needs root, to switch swap on; run it as root, or leave the option out")
    commands = {name: _find(name) for name in PROGRAMS}
    handle, name = tempfile.mkstemp(prefix=".outcrop-swap-", dir=folder)  # only the owner may read it
    os.close(handle)
    path = Path(name)
    try:
        _core.create_file(name, size_bytes)
        _call([commands["mkswap"], name], path)
        _call([commands["swapon"], name], path)
        yield
    finally:
        with _no_interrupts():
            if is_active(path):
                _call([commands["swapoff"], name], path)
            path.unlink(missing_ok=True)


def is_active(path: Path) -> bool:
    """True if the system uses the file for swap."""
    names = [line.split()[0] for line in _table()]
    return str(path.resolve()) in [name.encode().decode("unicode_escape") for name in names]


def _table() -> list[str]:
    try:
        return Path("/proc/swaps").read_text().splitlines()[1:]
    except OSError:
        return []


def _find(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path=SYSTEM_FOLDERS)
    if found is None:
        raise InputError(f"--swap-file needs the program {name}, which is not here; install util-linux")
    return found


def _call(command: list[str], path: Path) -> None:
    """Run a program in its own session, so that a Ctrl-C in the terminal does not reach it."""
    done = subprocess.run(command, capture_output=True, text=True, start_new_session=True)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise StorageError(f"swap file {path}: {reason}")


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Ignore signals: swapoff of gigabytes takes a while, and a second Ctrl-C would leave the file behind."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives signals
        return
    former = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
