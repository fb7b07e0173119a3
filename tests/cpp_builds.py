"""Build C++ targets for tests, and install libraries.

All builds use the folder of `make test-core`, so that most files are compiled only once. The processes of a test
session build one after another, because a program cannot start while the linker writes its file.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "build" / "tests"


def succeed(*command: str, **environment: str) -> str:
    """Run a command that must not fail, and return the text that the command printed."""
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def build(targets: tuple[str, ...], options: tuple[str, ...], prefix: Path | None = None) -> Path:
    """Configure with the options, and build the targets. Return the folder that contains the built targets. If `prefix`
    is given, also install there the component with the name of the first target."""
    if shutil.which("cmake") is None:
        pytest.skip("there is no cmake")
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        succeed("cmake", "-S", str(ROOT), "-B", str(FOLDER), "-DOUTCROP_PYTHON=OFF", *options)
        succeed("cmake", "--build", str(FOLDER), "--parallel", "2", "--target", *targets)
        if prefix is not None:
            succeed("cmake", "--install", str(FOLDER), "--component", targets[0], "--prefix", str(prefix))
    return FOLDER
