"""Run programs of several ranks in tests.

The launcher is $OUTCROP_MPIRUN if this variable is set, otherwise the mpiexec of the Python that runs the tests. `make
test` uses the MPI of the package `mpich`. `make test-mpi` runs the same tests with each MPI of scripts/mpi_builds.py.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from cpp_builds import build

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


@cache
def build_with_mpi(*targets: str, prefix: Path | None = None) -> Path:
    """Build some targets of aggregate/ with the MPI of the launcher. Each process builds them only once. Return the
    folder that contains the built targets. `build` describes `prefix`.

    All MPI libraries share this folder.
    """
    return build(targets, {"OUTCROP_MPI": "ON", "OUTCROP_TESTS": "ON", "MPI_C_COMPILER": compiler()}, prefix)


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
