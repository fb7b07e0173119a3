"""This module limits and measures the memory of a process. It also measures how much of a file is in the page cache,
and makes a swap file.

If this process may make a control group (version 1 or 2), the control group limits the memory of a child process. The
page cache that the child fills counts as memory of the child:

    parent: make group ──► set limits ──► start child ───────────────────────► read peak ──► remove group
    child:                                 join group ──► interpreter starts: all its memory counts

A swap file exists only during a benchmark, and only root can make it. At the end of the benchmark, the swap file is
always switched off and removed:

    create ──► mkswap ──► swapon ──► ... ──► swapoff ──► remove
                             └── Ctrl-C, errors ──┘
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from outcrop import _core
from outcrop.errors import InputError, StorageError
from outcrop.tiers import measure
from outcrop.units import format_bytes

MAX_REMOVALS, SECONDS_BETWEEN = 50, 0.1
"""The maximum number of attempts to remove a group, and the seconds between two attempts. A process can remain in its
group for a short time after it has ended."""


@dataclass(frozen=True)
class GroupFiles:
    """The names of three files of a control group. These files contain the memory limit, the swap limit, and the peak
    memory of the group. If `swap_counts_memory` is true, the swap limit applies to the sum of memory and swap."""

    limit: str
    swap_limit: str
    swap_counts_memory: bool
    peak: str


GROUP_FILES = {
    1: GroupFiles("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", True, "memory.max_usage_in_bytes"),
    2: GroupFiles("memory.max", "memory.swap.max", False, "memory.peak"),
}
"""The names of files for each version of the control group interface."""


@dataclass(frozen=True)
class Output:
    """The output of a child process. `is_limited` is true if a control group limited the memory of the child.
    `peak_bytes` is the peak memory of the group, including its page cache, or None if the kernel does not count this
    memory."""

    text: str
    is_limited: bool
    peak_bytes: int | None


def run_limited(
    arguments: Sequence[str],
    limit_bytes: int | None,
    may_swap: bool = False,
    max_seconds: float | None = None,
    variables: Mapping[str, str] | None = None,
) -> Output:
    """Run this Python interpreter with `arguments` in a child process. If this process may make a control group, all
    memory of the child is limited to `limit_bytes`.

    If `may_swap` is true, the system may swap out memory beyond the limit. `variables` are added to the environment of
    the child. Raises StorageError if the child fails, is killed, or takes longer than `max_seconds`. The message of the
    StorageError contains the last line that the child printed.
    """
    command = [sys.executable, *arguments]
    group = None if limit_bytes is None else _make_group(limit_bytes, may_swap)
    if group is not None:
        command = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(group.path / "cgroup.procs"), *command]
    environment = {**os.environ, **(variables or {})}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=max_seconds, env=environment)
        peak = None if group is None else group.peak_bytes()
    except subprocess.TimeoutExpired:
        raise StorageError(f"stopped after {max_seconds:.0f} s") from None
    finally:
        if group is not None:
            group.remove()
    if done.returncode < 0:
        may_lack = group is not None and done.returncode == -signal.SIGKILL  # the system kills with SIGKILL only
        beyond = f", maybe for lack of memory within {format_bytes(limit_bytes)}" if may_lack and limit_bytes else ""
        raise StorageError(f"killed by signal {-done.returncode}{beyond}")
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise StorageError(lines[-1].removeprefix("outcrop.errors."))
    return Output(done.stdout, group is not None, peak)


@dataclass(frozen=True)
class Group:
    """An existing control group. `path` is its folder."""

    path: Path
    files: GroupFiles

    def peak_bytes(self) -> int | None:
        """Return the peak memory of the group, or None if the kernel does not count this memory."""
        try:
            return int((self.path / self.files.peak).read_text())
        except (OSError, ValueError):
            return None

    def limit(self, limit_bytes: int, may_swap: bool) -> None:
        """Set the memory limit and the swap limit of the group. Raises OSError if this process may not use the memory
        controller."""
        with (self.path / self.files.limit).open("r+") as file:
            file.write(str(limit_bytes))
        swap_limit = self.path / self.files.swap_limit
        if not may_swap and swap_limit.exists():  # if the file does not exist, the kernel does not count swap
            swap_limit.write_text(str(limit_bytes if self.files.swap_counts_memory else 0))

    def remove(self) -> None:
        """Wait until the processes of the group have ended, and remove the group."""
        for _ in range(MAX_REMOVALS):
            try:
                self.path.rmdir()
                return
            except OSError:
                time.sleep(SECONDS_BETWEEN)


def _make_group(limit_bytes: int, may_swap: bool) -> Group | None:
    """Return a new control group inside the control group of this process. If the new group cannot be made, return
    None."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, own = line.split(":", 2)
        if controllers == "":
            root, files = Path("/sys/fs/cgroup"), GROUP_FILES[2]
        elif controllers == "memory":
            root, files = Path("/sys/fs/cgroup/memory"), GROUP_FILES[1]
        else:
            continue
        group = Group(root / own.lstrip("/") / f"outcrop-{os.getpid()}", files)
        try:
            group.path.mkdir()
        except OSError:
            continue
        try:
            group.limit(limit_bytes, may_swap)
        except OSError:
            group.remove()
            continue
        return group
    return None


PROC = Path("/proc/self")


class PeakMemory:
    """The peak memory of this process since this object was made. If n processes share a page, this page counts as 1/n
    of a page for each of these processes."""

    def __init__(self) -> None:
        try:
            (PROC / "clear_refs").write_text("5")  # resets the peak
            self._before: int | None = _peak_bytes()
        except OSError:
            self._before = None

    @property
    def bytes_more(self) -> int | None:
        """The peak memory minus the memory that was in use when this object was made, or None if the system does not
        report the peak."""
        return None if self._before is None else max(0, _peak_bytes() - self._before)


def _peak_bytes() -> int:
    status, rollup = (PROC / "status").read_text(), (PROC / "smaps_rollup").read_text()
    return _value(status, "VmHWM") - _value(status, "RssShmem") + _value(rollup, "Pss_Shmem")


def _value(text: str, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", text, flags=re.M)
    return int(found.group(1)) * 1024 if found else 0


def drop_from_page_cache(path: Path, length: int = 0) -> None:
    """Drop the first `length` bytes of a file from the page cache. If `length` is 0, drop the whole file from the page
    cache."""
    with path.open("rb") as file:
        measure.drop_from_page_cache(file.fileno(), length)


def cached_share(path: Path) -> float | None:
    """Return the share of a file's pages that are in the page cache, from 0 to 1. If the share is unknown, return
    None."""
    with path.open("r+b") as file:
        return measure.cached_share(file.fileno())


SWAP_PROGRAMS = ("mkswap", "swapon", "swapoff")
SYSTEM_FOLDERS = "/usr/sbin:/sbin"
"""The folders of programs for root. The search path of another user may not contain them."""


def swap_free_bytes() -> int:
    """Return the free swap space of this machine in bytes."""
    rows = [line.split() for line in _swap_table()]
    return sum(int(size) - int(used) for _, _, size, used, *_ in rows) * 1024


@contextmanager
def swap_file(folder: Path, size_bytes: int) -> Iterator[None]:
    """Make a swap file of `size_bytes` in `folder`, and let the system use the swap file inside the `with` block.

    Raises InputError if the user is not root or if a program such as mkswap is missing. Raises StorageError if the disk
    is full or the file system cannot hold a swap file.
    """
    if os.geteuid() != 0:
        raise InputError("--swap-file needs root, to switch swap on; run it as root, or leave the option out")
    commands = {name: _find_program(name) for name in SWAP_PROGRAMS}
    handle, name = tempfile.mkstemp(prefix=".outcrop-swap-", dir=folder)  # only the owner may read this file
    os.close(handle)
    path = Path(name)
    try:
        _core.create_file(name, size_bytes)
        _call([commands["mkswap"], name], path)
        _call([commands["swapon"], name], path)
        yield
    finally:
        with _no_interrupts():
            if is_swap_active(path):
                _call([commands["swapoff"], name], path)
            path.unlink(missing_ok=True)


def is_swap_active(path: Path) -> bool:
    """Return True if the system uses the file `path` for swap."""
    names = [line.split()[0] for line in _swap_table()]
    return str(path.resolve()) in [name.encode().decode("unicode_escape") for name in names]


def _swap_table() -> list[str]:
    try:
        return Path("/proc/swaps").read_text().splitlines()[1:]
    except OSError:
        return []


def _find_program(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path=SYSTEM_FOLDERS)
    if found is None:
        raise InputError(f"--swap-file needs the program {name}, which is not here; install util-linux")
    return found


def _call(command: list[str], path: Path) -> None:
    """Run a program that a Ctrl-C in the terminal does not stop, because the program has its own session."""
    done = subprocess.run(command, capture_output=True, text=True, start_new_session=True)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise StorageError(f"swap file {path}: {reason}")


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Ignore signals during the context. Without this, a second Ctrl-C could interrupt `swapoff`, and the swap file
    would remain."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are not ignored, because only the main thread may set their handlers
        return
    former = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
