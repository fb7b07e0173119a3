"""This module builds C++ targets for tests, and installs libraries.

All builds use the folder in which `make install` has built the extension. So most files are compiled only once. The
processes of a test session build one after another. A program cannot start while another process links it.
"""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXTENSION = ROOT / "build" / "py"
"""The folder of the extension. A build needs the same build tool as the previous build in this folder."""


def succeed(*command: str, **environment: str) -> str:
    """Run a command that must not fail, and return the text that the command printed."""
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def build(targets: tuple[str, ...], options: dict[str, str], prefix: Path | None = None) -> Path:
    """Build the targets with the given variables of CMake. Return the folder that contains the built targets. If
    `prefix` is given, also install a component at `prefix`. The name of the component is the name of the first target.

    CMake runs only if the cache of CMake does not have the given variables. If the cache has entries of another MPI
    implementation, they are removed first."""
    if shutil.which("cmake") is None:
        pytest.skip("there is no cmake")
    folder = EXTENSION
    known = variables(folder)
    if known.get("CMAKE_HOME_DIRECTORY") != str(ROOT) or not shutil.which(known.get("CMAKE_MAKE_PROGRAM", "")):
        folder, options = ROOT / "build" / "tests", {"OUTCROP_PYTHON": "OFF", **options}
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = variables(folder)
        new = [f"-D{name}={value}" for name, value in options.items() if known.get(name) != value]
        if new:
            forget = ("-U", "MPI_*") if any("MPI_C_COMPILER" in one for one in new) else ()
            succeed("cmake", "-S", str(ROOT), "-B", str(folder), *forget, *new)
        succeed("cmake", "--build", str(folder), "--parallel", "2", "--target", *targets)
        if prefix is not None:
            succeed("cmake", "--install", str(folder), "--component", targets[0], "--prefix", str(prefix))
    return folder


def variables(folder: Path) -> dict[str, str]:
    """Return a dictionary with the variables in the cache of CMake. Return {} if CMake has not run in this folder."""
    cache = folder / "CMakeCache.txt"
    return dict(re.findall(r"^(\w+):\w+=(.*)$", cache.read_text(), flags=re.M)) if cache.exists() else {}
