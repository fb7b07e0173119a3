"""Check that wrong input and user errors do no harm. These tests try a sample of the thousands of cases of `make
hostile`.

OUTCROP_HOSTILE sets the number of cases. Each case takes about 0.15 s of a core.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from outcrop import _core

from .jail import confine
from .seal import resealed

ROOT = Path(__file__).parent.parent.parent
CASES = int(os.environ.get("OUTCROP_HOSTILE", "72"))


def can_be_confined() -> bool:
    """Return True if the jail works on this machine. A child process tries the jail, because a process cannot leave the
    jail."""
    child = os.fork()
    if child == 0:
        os._exit(0 if confine(Path("/tmp")) else 1)
    return os.waitpid(child, 0)[1] == 0


def test_nothing_but_one_line_comes_of_nonsense(tmp_path: Path) -> None:
    """Check that input never causes a traceback, a crash or an endless process, and that commands change only permitted
    files.
    """
    if os.geteuid() == 0 and not can_be_confined():
        pytest.skip("hostile cases run as root only where Landlock keeps them in")
    command = [sys.executable, "-m", "tests.hostile", "--number", str(CASES), "--folder", str(tmp_path / "all")]
    command += ["--workers", "1"]  # each worker makes its own world, and other tests run at the same time
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    print(done.stdout[-20_000:], done.stderr[-4000:])
    assert done.returncode == 0, "see above; each case is repeated by its command"


def test_files_are_sealed_as_records_are() -> None:
    """Check that `resealed` writes the checksum that Outcrop expects. With a wrong checksum, the other tests would have
    no effect, because each changed file would be refused.
    """
    sealed = resealed({"b": 1, "a": [2], "crc32c": 0})
    assert sealed == {"b": 1, "a": [2], "crc32c": _core.crc32c(b'{"a": [2], "b": 1}')}
    assert resealed({"b": 1}) == {"b": 1}, "what has no checksum gets none"
