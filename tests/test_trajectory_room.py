"""Check trajectories with too little space or memory, and trajectories of processes that were killed while they made or
removed files."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

import outcrop as oc
from outcrop import _core
from outcrop.bench import memory
from outcrop.errors import InputError, StorageError
from trajectory_states import SHAPES, made, same, state_of

SPAWN = get_context("forkserver")
SPAWN.set_forkserver_preload(["numpy", "outcrop.arrays.trajectory", "test_trajectory_room"])


@contextmanager
def no_larger_files(limit: int) -> Iterator[None]:
    """Refuse to make files of this process larger than `limit` bytes, as a full disk would."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def shown_states(path: Path) -> int:
    """Return the number of states in the metadata for readers of Zarr."""
    return int(json.loads((path / "u" / "zarr.json").read_text())["shape"][0])


def test_a_full_disk_hides_no_committed_states(tmp_path: Path) -> None:
    """Checks that a trajectory can be opened and committed if the files for readers of Zarr cannot be written. The next
    `open` writes these files."""
    committed = made(tmp_path)
    (committed / "u" / "zarr.json.tmp").mkdir()
    with oc.Trajectory.open(committed) as history:
        assert same(history.pop()[1], 2) and history.committed == 3
    (committed / "u" / "zarr.json.tmp").rmdir()
    limit = (committed / "trajectory.txt").stat().st_size
    assert limit < (committed / "u" / "zarr.json").stat().st_size
    with oc.Trajectory.open(committed) as history:
        history.pop()
        with no_larger_files(limit):
            history.commit()
        assert (len(history), history.committed, shown_states(committed)) == (2, 2, 3)
        assert history.push(state_of(7)) == 2
    with oc.Trajectory.open(committed) as history:
        assert len(history) == shown_states(committed) == 2 and same(history.pop()[1], 1)


SMALL_DISK = """
import os, sys
import numpy as np
import outcrop as oc
from outcrop.errors import InputError

path = sys.argv[1] + "/a"
room = os.statvfs(sys.argv[1])
states = room.f_bavail * room.f_frsize // 4096
try:
    oc.Trajectory(path, {"u": 1}, states=states)
except InputError as error:
    print(error)
    states = int(str(error).split(": ")[1].split()[0])
with oc.Trajectory(path, {"u": 1}, states=states) as history:
    try:
        with open(sys.argv[1] + "/others", "wb", buffering=0) as others:
            while others.write(bytes(4096)):
                pass
    except OSError:
        pass
    for k in range(states):
        history.push({"u": np.array([k], "float64")})
        if k % 10 == 0 or k == states - 1:
            history.commit()
with oc.Trajectory.open(path) as history:
    assert len(history) == states and all(history.pop()[1]["u"][0] == k for k in reversed(range(states)))
    history.commit()
    history.remove()
assert os.listdir(sys.argv[1]) == ["others"]
"""
"""Fill a disk with states and other files, and commit the states."""


def test_commits_have_room_on_a_full_disk(tmp_path: Path) -> None:
    """Checks a trajectory on a small disk with as many states as fit. Commits must succeed even if other files take all
    other free bytes."""
    mounted = ["unshare", "-rm", "sh", "-c", f'mount -t tmpfs -o size=2m none {tmp_path} && exec "$@"', "sh"]
    if os.sysconf("SC_PAGE_SIZE") != 4096:
        pytest.skip("files on a tmpfs take more than 4096 bytes here")
    if shutil.which("unshare") is None or subprocess.run([*mounted, "true"], check=False).returncode:
        pytest.skip("this process may not mount a file system")
    command = [*mounted, sys.executable, "-c", SMALL_DISK, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0 and "no room for" in ended.stdout, ended.stderr


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


KILLED = """
import resource, signal, sys
import outcrop as oc
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
oc.Trajectory(sys.argv[1], {"p": 7, "u": 1 << 20}, states=3, limit=12582912, overflow=[sys.argv[2]])
"""
"""Make a trajectory in a process that the system kills when the process makes a large file."""


def kill_while_removing(path: Path) -> None:
    """Remove a trajectory in a child process, and kill the child after the removal has begun."""
    child = SPAWN.Process(target=remove, args=(path,))
    child.start()
    while len(list((path / "u").glob("c.*"))) == STATES and child.is_alive():
        pass
    child.kill()
    child.join()


STATES = 100


def remove(path: Path) -> None:
    oc.Trajectory.open(path).remove()


def test_a_killed_creation_or_removal_does_not_block_the_directory(tmp_path: Path) -> None:
    """Checks the directories of a process that was killed while it made or removed a trajectory. `open` says what they
    hold, and the next constructor removes the files."""
    path, further = tmp_path / "a", tmp_path / "b"
    for overflow in ([further], []):
        ended = subprocess.run([sys.executable, "-c", KILLED, str(path), str(further)], check=False)
        assert ended.returncode == -signal.SIGXFSZ and os.listdir(path / "p")
        with pytest.raises(InputError, match=r"unfinished trajectory: a process was killed .*; make the .* again, or"):
            oc.Trajectory.open(path)
        if not overflow:
            with pytest.raises(InputError, match=rf"unfinished trajectory with files in {further}; give both"):
                oc.Trajectory(path, SHAPES, "float32", states=3)
            shutil.rmtree(further)
        with oc.Trajectory(path, SHAPES, "float32", states=STATES, overflow=overflow) as history:
            history.push(state_of(0))
            history.commit()
        kill_while_removing(path)
    with oc.Trajectory(path, SHAPES, "float32", states=3, overflow=[further]) as history:
        history.remove()
    assert os.listdir(tmp_path) == []


def test_files_of_others_are_not_removed_with_an_unfinished_trajectory(tmp_path: Path) -> None:
    """Checks that only files of the unfinished trajectory are removed. Other files are kept, and their directory is
    refused."""
    path = tmp_path / "a"
    subprocess.run([sys.executable, "-c", KILLED, str(path), str(tmp_path / "b")], check=False)
    (path / "u" / "mine").write_text("mine")
    mark = path / "unfinished.txt"
    text = mark.read_text()
    mark.write_text(text[:-3])
    with pytest.raises(InputError, match=r"not empty, and its unfinished.txt is damaged; remove its files, or"):
        oc.Trajectory(path, SHAPES, states=3, overflow=[tmp_path / "b"])
    mark.write_text(text)
    with pytest.raises(InputError, match="is not empty; remove its files, or give an empty directory"):
        oc.Trajectory(path, SHAPES, states=3, overflow=[tmp_path / "b"])
    assert (path / "u" / "mine").read_text() == "mine" and not (path / "p").exists()
    shutil.rmtree(path)
    path.mkdir()
    mark.write_text(text[:50])  # the process was killed before it had written this first file
    with oc.Trajectory(path, SHAPES, states=3), pytest.raises(InputError, match="holds a trajectory; open"):
        oc.Trajectory(path, SHAPES, states=3)
