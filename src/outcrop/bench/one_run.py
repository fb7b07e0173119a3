"""Advance an existing run in a process of its own, so that its peak memory and its memory limit are its own.

    python -m outcrop.bench.one_run DIRECTORY STEPS BUDGET_BYTES

prints the report as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from outcrop.errors import StorageError


def advance(directory: Path, steps: int, budget_bytes: int, limit_bytes: int | None) -> dict[str, Any]:
    """Advance the run in `directory` by `steps` steps within `budget_bytes`; its report and `cgroup_limit_bytes`.

    `limit_bytes` limits all memory of the process, page cache included, where this process may ask the kernel for that;
    `cgroup_limit_bytes` is None where it may not. Raises StorageError with the child's last line when it fails.
    """
    command = [sys.executable, "-m", "outcrop.bench.one_run", str(directory), str(steps), str(budget_bytes)]
    with _memory_group(limit_bytes) as group:
        if group is not None:  # joins before the interpreter starts, so that all its memory counts
            command = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(group / "cgroup.procs"), *command]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise StorageError(f"a measured run of {steps} steps failed: {lines[-1]}")
    report: dict[str, Any] = json.loads(done.stdout)
    report["cgroup_limit_bytes"] = limit_bytes if group is not None else None
    return report


@contextmanager
def _memory_group(limit_bytes: int | None) -> Iterator[Path | None]:
    """A control group below this process's own with that memory limit, or None where none can be made."""
    group = None if limit_bytes is None else _make_group(limit_bytes)
    try:
        yield group
    finally:
        if group is not None:
            _remove_group(group)


def _remove_group(group: Path) -> None:
    for _ in range(50):  # the kernel may take a moment to forget a process that has ended
        try:
            group.rmdir()
            return
        except OSError:
            time.sleep(0.1)


def _make_group(limit_bytes: int) -> Path | None:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, own = line.split(":", 2)
        if controllers == "":
            root, limit_name = Path("/sys/fs/cgroup"), "memory.max"
        elif controllers == "memory":
            root, limit_name = Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"
        else:
            continue
        group = root / own.lstrip("/") / f"outcrop-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / limit_name).write_text(str(limit_bytes))
        except OSError:  # the controller is not delegated: the files are not there
            group.rmdir()
            continue
        return group
    return None


def main() -> None:
    """Run as a program; see the top of the file."""
    from outcrop.run.simulation import open as open_simulation

    directory, steps, budget_bytes = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    simulation = open_simulation(directory, memory=budget_bytes)
    print(json.dumps(simulation.run(steps, progress="none").to_json()))


if __name__ == "__main__":
    main()
