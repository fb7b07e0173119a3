"""Limit the memory of a process, page cache included, by a control group of version 1 or 2 where one may be made.

parent: make group ──► set limits ──► start child ───────────────────────► read peak ──► remove group
child:                                 join group ──► interpreter starts: all its memory counts
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from outcrop.errors import StorageError
from outcrop.units import format_bytes

REMOVALS_MOST, SECONDS_BETWEEN = 50, 0.1
"""The kernel may take a moment to forget a process that has ended."""


@dataclass(frozen=True)
class Version:
    """Names of one version's files: the limit, that of memory and swap together or of swap, and the most ever used."""

    limit: str
    swap_limit: str
    swap_counts_memory: bool
    peak: str


VERSIONS = {
    1: Version("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", True, "memory.max_usage_in_bytes"),
    2: Version("memory.max", "memory.swap.max", False, "memory.peak"),
}
"""By the number of the interface."""


@dataclass(frozen=True)
class Output:
    """What a child printed. `is_limited`: whether a group limited it; `peak_bytes` is the most that group held, page
    cache included, None where nothing counts it."""

    text: str
    is_limited: bool
    peak_bytes: int | None


def run_limited(
    arguments: Sequence[str], limit_bytes: int | None, may_swap: bool = False, seconds_most: float | None = None
) -> Output:
    """Run this interpreter with `arguments`, all its memory limited to `limit_bytes` where that is possible here.

    `may_swap`: whether what is beyond the limit may be swapped out; otherwise nothing is. Raises StorageError with the
    child's last line when it fails, when it is killed, and when it takes longer than `seconds_most`.
    """
    command = [sys.executable, *arguments]
    with _group(limit_bytes, may_swap) as group:
        if group is not None:
            command = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(group.path / "cgroup.procs"), *command]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=seconds_most)
        except subprocess.TimeoutExpired:
            raise StorageError(f"stopped after {seconds_most:.0f} s") from None
        peak = None if group is None else group.peak_bytes()
    if done.returncode < 0:
        beyond = f", maybe for lack of memory within {format_bytes(limit_bytes)}" if group and limit_bytes else ""
        raise StorageError(f"killed by signal {-done.returncode}{beyond}")
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise StorageError(lines[-1].removeprefix("outcrop.errors."))
    return Output(done.stdout, group is not None, peak)


@dataclass(frozen=True)
class Group:
    """A control group that exists, in the folder `path`."""

    path: Path
    version: Version

    def peak_bytes(self) -> int | None:
        """The most it ever held, where the kernel counts that."""
        try:
            return int((self.path / self.version.peak).read_text())
        except (OSError, ValueError):
            return None

    def limit(self, limit_bytes: int, may_swap: bool) -> None:
        """Raises OSError where the controller is not delegated, or this is no group at all: its files are not there."""
        with (self.path / self.version.limit).open("r+") as file:
            file.write(str(limit_bytes))
        swap_limit = self.path / self.version.swap_limit
        if not may_swap and swap_limit.exists():  # not there: the kernel does not count swap
            swap_limit.write_text(str(limit_bytes if self.version.swap_counts_memory else 0))

    def remove(self) -> None:
        """Once its processes have ended."""
        for _ in range(REMOVALS_MOST):
            try:
                self.path.rmdir()
                return
            except OSError:
                time.sleep(SECONDS_BETWEEN)


@contextmanager
def _group(limit_bytes: int | None, may_swap: bool) -> Iterator[Group | None]:
    """A control group below this process's own, or None where none can be made."""
    group = None if limit_bytes is None else _make_group(limit_bytes, may_swap)
    try:
        yield group
    finally:
        if group is not None:
            group.remove()


def _make_group(limit_bytes: int, may_swap: bool) -> Group | None:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, own = line.split(":", 2)
        if controllers == "":
            root, version = Path("/sys/fs/cgroup"), VERSIONS[2]
        elif controllers == "memory":
            root, version = Path("/sys/fs/cgroup/memory"), VERSIONS[1]
        else:
            continue
        group = Group(root / own.lstrip("/") / f"outcrop-{os.getpid()}", version)
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
