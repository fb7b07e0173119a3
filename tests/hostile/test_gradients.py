"""Check the command that kills programs that compute gradients. `make soak` runs it for 200 gradients."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from .gradients import hit
from .kills import child

ROOT = Path(__file__).parent.parent.parent


def test_killed_gradients_have_the_same_bits_and_others_are_found(tmp_path: Path) -> None:
    """Check that the command accepts a gradient of a killed program. It must find a changed bit in a second
    gradient."""
    command = [sys.executable, "-m", "tests.hostile.gradients", "--number", "2", "--any-part", "--way", "schedule"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run([*command, "--damage"], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "gradient of v has other bits" in done.stdout, done.stdout + done.stderr
    (compared,) = (line.split() for line in done.stdout.splitlines() if line.startswith("gradients compared"))
    assert compared[2:] == ["1", "1"]


def test_a_program_that_has_ended_is_not_killed(tmp_path: Path) -> None:
    ended = child(lambda: 0, tmp_path / "told")
    os.waitid(os.P_PID, ended, os.WEXITED | os.WNOWAIT)
    assert hit(ended, signal.SIGKILL, None, 0, 0.0) == (0, None)

    def sleep() -> int:
        time.sleep(60)
        return 0

    assert hit(child(sleep, tmp_path / "told"), signal.SIGKILL, None, 0, 0.1) == (-signal.SIGKILL, 0)
