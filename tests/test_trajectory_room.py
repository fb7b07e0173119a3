"""Check trajectories with too little space or memory, and trajectories of processes that were killed while they made or
removed files."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import outcrop as oc
from outcrop import _core
from outcrop.bench import memory
from outcrop.errors import StorageError


@contextmanager
def no_larger_files(limit: int) -> Iterator[None]:
    """Refuse to make files of this process larger than `limit` bytes, as a full disk would."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def write_trajectory(path: Path, cells: int, states: int, in_memory: int) -> None:
    """Write the files of a trajectory that has two committed states of zeros and was made on a larger machine."""
    (path / "u").mkdir(parents=True)
    for number in range(2):
        with open(path / "u" / f"c.{number}.0", "wb") as file:
            file.truncate(4 * cells)
    line = f"state {_core.crc32c(bytes(4 * cells)):08x}\n"
    text = f"outcrop trajectory 1\nidentity {'0' * 32}\ndtype float32\nfield u {cells}\n"
    text += f"states {states}\nmemory {in_memory}\nplace {states} .\n{line}{line}"
    (path / "trajectory.txt").write_text(f"{text}crc32c {_core.crc32c(text.encode()):08x}\n")


def test_a_machine_with_less_memory_opens_committed_states(tmp_path: Path) -> None:
    """Checks a trajectory whose states in memory need 32 TiB. A machine with less memory opens the committed states,
    and pushes states to their files."""
    cells = 1 << 23
    write_trajectory(tmp_path / "a", cells, states=1 << 20, in_memory=1 << 20)
    with oc.Trajectory.open(tmp_path / "a", buffers=2) as history:
        for number in (1, 0):
            step, state = history.pop()
            assert step == number and not state["u"].any()
        history.commit()
        assert history.push({"u": np.ones(cells, "float32")}) == 0
        history.commit()
    with oc.Trajectory.open(tmp_path / "a", buffers=2) as history:
        assert history.pop()[1]["u"].min() == 1


def test_memory_is_limited_by_the_control_group(tmp_path: Path) -> None:
    """Checks that `open` refuses buffers that do not fit into the memory limit of its control group. Without this
    check, the system would kill the process."""
    write_trajectory(tmp_path / "a", 1 << 24, states=2, in_memory=0)
    program = "import sys, outcrop as oc\nlen(oc.Trajectory.open(sys.argv[1], buffers=5))"
    try:
        output = memory.run_limited(["-c", program, str(tmp_path / "a")], 256 << 20)
    except StorageError as error:
        assert "the buffers need 335544320 bytes of memory" in str(error)
        return
    if not output.is_limited:
        pytest.skip("this process may not make a control group with a memory limit")
    pytest.fail("the buffers do not fit")


HOSTILE = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
import outcrop as oc
oc.Trajectory.open(sys.argv[1])
"""
"""Open a trajectory in a process with at most 2 GiB of memory."""


def test_a_short_manifest_with_many_planes_takes_no_memory(tmp_path: Path) -> None:
    """Checks a manifest that describes fields with the maximum number of planes. Their indices would have terabytes.
    The manifest must be refused before Outcrop takes memory for such an index."""
    fields = "".join(f"field f{i} {1 << 28} 1 1\n" for i in range(1000))
    text = f"outcrop trajectory 1\nidentity {'0' * 32}\ndtype int32\n{fields}states 1\nmemory 0\nplace 1 .\n"
    (tmp_path / "trajectory.txt").write_text(f"{text}crc32c {_core.crc32c(text.encode()):08x}\n")
    for i in range(1000):
        (tmp_path / f"f{i}").mkdir()
    ended = subprocess.run([sys.executable, "-c", HOSTILE, str(tmp_path)], capture_output=True, text=True, check=False)
    assert "InputError" in ended.stderr and "memory" in ended.stderr.splitlines()[-1]


def test_a_disk_that_refuses_a_file_leaves_nothing(tmp_path: Path) -> None:
    """Checks that new files and directories are removed if the system refuses to allocate a file."""
    with (
        no_larger_files(1 << 20),
        pytest.raises(StorageError, match=r"allocate failed: .*u/c\.0\.0.*: File too large"),
    ):
        oc.Trajectory(tmp_path / "new" / "a", {"p": 7, "u": 1 << 20}, states=3, overflow=[tmp_path / "b"])
    assert os.listdir(tmp_path) == []
