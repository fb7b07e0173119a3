"""Run programs of several ranks in tests.

The launcher is $OUTCROP_MPIRUN if this variable is set, otherwise the mpiexec of the Python that runs the tests. `make
test` uses the MPI of the package `mpich`. `make test-mpi` runs the same tests with each MPI of scripts/mpi_builds.py.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SECONDS_MOST = 200


def launcher() -> list[str]:
    """Return the command that starts ranks. The caller appends the number of ranks. Skip the test if no launcher
    exists.
    """
    pytest.importorskip("mpi4py")
    given = os.environ.get("OUTCROP_MPIRUN")
    if given:
        return [*shlex.split(given), "-n"]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    found = shutil.which("mpiexec", path=path)
    if found is None:
        pytest.skip("there is no mpiexec")
    return [found, "-n"]


def compiler(name: str = "mpicc") -> str:
    """Return the compiler mpicc or mpifort of the launcher's MPI. Skip the test if this compiler does not exist."""
    path = os.pathsep.join([str(Path(launcher()[0]).parent), os.environ.get("PATH", "")])
    mpicc = os.environ.get("MPICC") or shutil.which("mpicc", path=path)
    if mpicc is None:
        pytest.skip("there is no mpicc")
    found = Path(mpicc).with_name(Path(mpicc).name.replace("mpicc", name))  # mpifort.mpich is next to mpicc.mpich
    if not found.exists():
        pytest.skip(f"there is no {found}")
    return str(found)


def succeed(*command: str, **environment: str) -> str:
    """Run a command that must not fail, and return the text that the command printed."""
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def build_with_mpi(*targets: str) -> Path:
    """Build some targets of aggregate/ with the MPI of the launcher. Return the folder that contains the built targets.

    `make test-core` uses the same folder. All MPI libraries share this folder, so that most files are compiled only
    once. Before the build, the paths of any other MPI are removed from the cache of CMake. The processes of a test
    session build one after another, because a program cannot start while the linker writes its file.
    """
    if shutil.which("cmake") is None:
        pytest.skip("there is no cmake")
    folder = ROOT / "build" / "tests"
    mpi = ["-U", "MPI_*", f"-DMPI_C_COMPILER={compiler()}"]
    options = ["-DOUTCROP_PYTHON=OFF", "-DOUTCROP_MPI=ON", "-DOUTCROP_TESTS=ON", *mpi]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        succeed("cmake", "-S", str(ROOT), "-B", str(folder), *options)
        succeed("cmake", "--build", str(folder), "--parallel", "2", "--target", *targets)
    return folder


def mpirun(
    ranks: int, *command: str, environment: dict[str, str] | None = None, seconds: float = SECONDS_MOST
) -> subprocess.CompletedProcess[str]:
    """Run a command on several ranks. `environment` adds variables to the environment."""
    return subprocess.run(
        [*launcher(), str(ranks), *command],
        capture_output=True,
        text=True,
        timeout=seconds,
        env={**os.environ, **(environment or {})},
    )


def run_ranks(
    ranks: int, program: str, *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a Python program, given as text, on several ranks."""
    return mpirun(ranks, sys.executable, "-c", program, *arguments, environment=environment)
