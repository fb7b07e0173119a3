"""What starts ranks of the MPI that mpi4py uses: its own mpirun, not one of another MPI that happens to be there, too.

mpi4py ──► its library ──► mpirun beside the library, beside this Python, on the path ──► the first of the same family
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from outcrop.aggregate.mpi_library import MPICH, OPEN_MPI, loaded_library
from outcrop.errors import InputError

PROGRAMS = ("mpirun", "mpiexec", "mpirun.openmpi", "mpirun.mpich")
OPEN_MPI_FLAGS = ("--oversubscribe", "--bind-to", "none")
"""More ranks than cores; without binding, or all would be bound to the first ones."""


@dataclass(frozen=True)
class Launcher:
    """The program, and the name of its MPI: Open MPI or MPICH, or a relative of that."""

    program: Path
    family: str

    def command(self, ranks: int, *options: str) -> list[str]:
        """What starts so many ranks of the command that follows."""
        flags = [*OPEN_MPI_FLAGS, *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
        return [str(self.program), *(flags if self.family == OPEN_MPI else []), *options, "-n", str(ranks)]

    def mpi_io(self) -> list[str]:
        """Names of the implementations of MPI-IO among which Open MPI can choose when it starts (`--mca io NAME`); none
        where there is no choice."""
        if self.family != OPEN_MPI:
            return []
        lister = self.program.with_name("ompi_info")
        if not lister.is_file():
            return []
        said = subprocess.run([lister, "--parsable"], capture_output=True, text=True).stdout
        return sorted(set(re.findall(r"^mca:io:(\w+):", said, flags=re.M)))


def find_launcher() -> Launcher:
    """That of mpi4py's MPI. Raises InputError where mpi4py or the launcher is missing."""
    try:
        import mpi4py

        mpi4py.rc.initialize = False  # this process only asks
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise InputError(f"several ranks need mpi4py and its MPI: pip install 'outcrop[mpi]' ({error})") from None
    library = loaded_library(MPI)
    wanted = OPEN_MPI if "Open MPI" in library.text else MPICH
    prefix = library.path.parent.parent / "bin"
    path = os.pathsep.join([str(prefix), sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
    others = []
    for name in PROGRAMS:
        program = shutil.which(name, path=path)
        if program and (family := _family(program)) == wanted:
            return Launcher(Path(program), family)
        if program:
            others.append(program)
    there = f"; {', '.join(others)} start others" if others else ""
    raise InputError(f"no mpirun found for {library.is_} ({library.path}){there}: install it, or start ranks yourself")


def _family(program: str) -> str:
    """By what it says of itself."""
    done = subprocess.run([program, "--version"], capture_output=True, text=True)
    text = done.stdout + done.stderr
    if re.search(r"open-?mpi|open mpi|openrte|prrte", text, flags=re.I):
        return OPEN_MPI
    return MPICH if re.search(r"hydra|mpich|intel", text, flags=re.I) else ""
