"""Programs of several ranks, for tests: by the MPI of the Python that runs them, or by the launcher of $OUTCROP_MPIRUN.

`make test` has the MPI of the package `mpich`; `make test-mpi` runs the same tests under all of scripts/mpi_builds.py.
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
    """The command that starts ranks, up to their number. Skips the test where there is none."""
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
    """A compiler of the launcher's MPI: mpicc or mpifort. Skips the test where there is none."""
    path = os.pathsep.join([str(Path(launcher()[0]).parent), os.environ.get("PATH", "")])
    mpicc = os.environ.get("MPICC") or shutil.which("mpicc", path=path)
    if mpicc is None:
        pytest.skip("there is no mpicc")
    found = Path(mpicc).with_name(Path(mpicc).name.replace("mpicc", name))  # mpifort.mpich is beside mpicc.mpich
    if not found.exists():
        pytest.skip(f"there is no {found}")
    return str(found)


def succeed(*command: str, **environment: str) -> str:
    """Run a command that must not fail; what it printed."""
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def build_with_mpi(*targets: str) -> Path:
    """The folder in which CMake has built targets of aggregate/ with the launcher's MPI.

    It is the folder of `make test-core`, and one for all MPIs, so that most files are compiled once. CMake forgets what
    it has found of another MPI before.
    Processes of one test session build in turn: a program that is linked anew cannot be started meanwhile.
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
    """A command on several ranks, with variables added to the environment."""
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
    """A Python program, given as text, on several ranks."""
    return mpirun(ranks, sys.executable, "-c", program, *arguments, environment=environment)
