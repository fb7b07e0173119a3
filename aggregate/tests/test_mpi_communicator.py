"""These tests check that Python ranks get a transport over mpi4py's MPI, or an error with one line."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from mpi_programs import run_ranks
from outcrop.aggregate.mpi_library import MPICH, OPEN_MPI, MpiVersion, version_of

pytest.importorskip("mpi4py")

EVERY_RANK = """
from contextlib import closing
from mpi4py import MPI
from outcrop.aggregate.ranks import Ranks

world = MPI.COMM_WORLD
with closing(Ranks(world)) as ranks:
    assert (ranks.rank, ranks.size) == (world.Get_rank(), world.Get_size())
    assert ranks.node == 0 and ranks.host and ranks.library and ranks.address
    said = world.gather(f"{ranks.rank} {ranks.library}")
part = world.Split(world.Get_rank() % 2)
with closing(Ranks(part)) as ranks:
    assert ranks.size == part.Get_size() and ranks.node == 0
if world.Get_rank() == 0:
    print(*said, sep=chr(10))
"""

ONE_LINE = """
from mpi4py import MPI
from outcrop.aggregate.ranks import Ranks
from outcrop.errors import InputError

{before}
try:
    Ranks({communicator})
except InputError as error:
    assert chr(10) not in str(error)
    MPI.COMM_WORLD.Barrier()
    if MPI.COMM_WORLD.Get_rank() == 0:
        print("refused:", error)
"""


def times_of(cache: Path) -> dict[str, int]:
    """Return the names and the modification times of the files in a cache of transports."""
    return {path.name: path.stat().st_mtime_ns for path in (cache / "outcrop" / "transports").iterdir()}


@dataclass(frozen=True)
class FirstRun:
    """The first run of the tests, which began with an empty cache. `times` has the times of the files in the cache
    after the run, and `text` is the output of the run.
    """

    cache: Path
    times: dict[str, int]
    text: str


@pytest.fixture(scope="module")
def first_run(tmp_path_factory: pytest.TempPathFactory) -> FirstRun:
    """Run three ranks. The cache is empty. The ranks compile the transport, which takes about 10 s."""
    cache = tmp_path_factory.mktemp("cache")
    done = run_ranks(3, EVERY_RANK, environment={"XDG_CACHE_HOME": str(cache)})
    assert done.returncode == 0, done.stderr
    return FirstRun(cache, times_of(cache), done.stdout)


def test_every_rank_gets_a_transport_over_its_mpi(first_run: FirstRun) -> None:
    """Check that each rank has the right rank number, node and MPI library. After the first run, the cache must contain
    only the compiled transport. The next run must use this compiled transport.
    """
    lines = first_run.text.strip().splitlines()
    assert [line.split()[0] for line in lines] == ["0", "1", "2"]
    assert len({line.split(maxsplit=1)[1] for line in lines}) == 1
    assert [Path(name).suffix for name in first_run.times] == [".so"]
    before = times_of(first_run.cache)
    again = run_ranks(1, EVERY_RANK, environment={"XDG_CACHE_HOME": str(first_run.cache)})
    assert again.returncode == 0, again.stderr
    assert times_of(first_run.cache) == before and before.items() >= first_run.times.items()


def refused(
    ranks: int = 1, communicator: str = "MPI.COMM_WORLD", before: str = "", environment: dict[str, str] | None = None
) -> str:
    """Return the error line that the ranks print when a communicator is refused."""
    done = run_ranks(ranks, ONE_LINE.format(communicator=communicator, before=before), environment=environment)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("refused: ")]
    assert len(lines) == 1, done.stdout + done.stderr
    return lines[0]


@pytest.mark.parametrize("communicator", ["MPI.COMM_NULL", "object()", "MPI.COMM_WORLD.Get_group()"])
def test_what_is_no_communicator_is_refused(communicator: str) -> None:
    """Check that an object that is not an intracommunicator is refused. The error has one line, and MPI must not crash.
    """
    assert "intracommunicator" in refused(communicator=communicator)


def test_missing_compilers_are_told_on_all_ranks(tmp_path: Path) -> None:
    """Check the error if there is no C++ compiler. All ranks must get an error. Its line must say what to install."""
    before = (
        "import importlib.util, shutil\n"
        "import outcrop.aggregate.ranks\n"
        "shutil.which = lambda *some, **others: None\n"
        "importlib.util.find_spec = lambda name: None\n"
    )
    line = refused(2, before=before, environment={"XDG_CACHE_HOME": str(tmp_path), "CXX": ""})
    assert "no C++ compiler" in line and "install" in line


def fake_mpicc(folder: Path, header: str) -> str:
    """Write a compiler wrapper that gives an mpi.h with the text `header`. Return the path of the wrapper."""
    (folder / "include").mkdir()
    (folder / "include" / "mpi.h").write_text(header)
    wrapper = folder / "mpicc"
    wrapper.write_text(f"#!/bin/sh\necho cc -I{folder / 'include'} -lmpi\n")
    wrapper.chmod(0o755)
    return str(wrapper)


ONLY_THIS_WRAPPER = """
import outcrop.aggregate.mpi_library as mpi_library
mpi_library.WRAPPERS = ()
mpi_library.Path.is_file = lambda path, whole=mpi_library.Path.is_file: path.name != "mpi.h" and whole(path)
"""
OTHERS = {
    OPEN_MPI: '#define MPICH_VERSION "4.0.2"\n',
    MPICH: (
        "#define OPEN_MPI 1\n#define OMPI_MAJOR_VERSION 4\n"
        "#define OMPI_MINOR_VERSION 1\n#define OMPI_RELEASE_VERSION 4\n"
    ),
}


def runs_here() -> str:
    """Return the name of the MPI that mpi4py uses."""
    script = "import mpi4py; mpi4py.rc.initialize = False\nfrom mpi4py import MPI; print(MPI.Get_library_version())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return version_of(done.stdout).name


def test_headers_of_another_mpi_are_refused(tmp_path: Path) -> None:
    """Check that headers of another MPI are refused. A transport that was compiled with headers of another MPI would
    crash. The error must name both MPIs, and the compiler wrapper that gave the headers.
    """
    own = runs_here()
    wrapper = fake_mpicc(tmp_path, OTHERS[own])
    environment = {"MPICC": wrapper, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    line = refused(before=ONLY_THIS_WRAPPER, environment=environment)
    other = "MPICH 4.0.2" if own == OPEN_MPI else "Open MPI 4.1.4"
    assert f"{own} " in line and f"mpi.h is of {other} ({wrapper})" in line and "MPICC" in line


def test_headers_that_fit_are_found_behind_those_that_do_not(first_run: FirstRun, tmp_path: Path) -> None:
    """Check that the right headers are found in another place if MPICC names an unsuitable compiler wrapper. If the
    cache contains a transport that was compiled with these headers, this transport must be used.
    """
    wrapper = fake_mpicc(tmp_path, OTHERS[runs_here()])
    environment = {"MPICC": wrapper, "XDG_CACHE_HOME": str(first_run.cache)}
    done = run_ranks(1, EVERY_RANK, environment=environment)
    assert done.returncode == 0, done.stderr


def test_missing_headers_are_told(tmp_path: Path) -> None:
    """Check the error if there are no headers of MPI. The error must name the MPI whose headers are missing, and must
    say what to do.
    """
    line = refused(before=ONLY_THIS_WRAPPER, environment={"MPICC": "", "XDG_CACHE_HOME": str(tmp_path)})
    assert "no mpi.h found for" in line and "MPICC" in line


def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """Check the error if the folder of the cache cannot be made. The error must name the folder, and the variable with
    which the user can choose another folder.
    """
    (tmp_path / "file").touch()
    line = refused(environment={"XDG_CACHE_HOME": str(tmp_path / "file")})
    assert str(tmp_path / "file") in line and "XDG_CACHE_HOME" in line


def test_without_mpi4py_the_line_says_what_to_install() -> None:
    """Check that the error for a missing mpi4py says what to install."""
    script = (
        "import sys; sys.modules['mpi4py'] = None\n"
        "from outcrop.aggregate.ranks import Ranks\n"
        "from outcrop.errors import InputError\n"
        "try:\n    Ranks(object())\n"
        "except InputError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=dict(os.environ))
    assert "pip install 'outcrop[mpi]'" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4", MpiVersion(OPEN_MPI, (4, 1, 4))),
        ("MPICH Version:\t4.0.2\nMPICH Release date:\tThu", MpiVersion(MPICH, (4, 0, 2))),
        ("Intel(R) MPI Library 2021.9 for Linux* OS", MpiVersion(MPICH)),
        ("MPI VERSION    : CRAY MPICH version 8.1.12.15", MpiVersion(MPICH)),
    ],
)
def test_libraries_are_known_by_what_they_say(text: str, version: MpiVersion) -> None:
    """Check that the name and version of an MPI library are recognised, even for a library that is derived from
    MPICH."""
    assert version_of(text) == version


def test_versions_fit_within_a_binary_interface() -> None:
    """Check that fits() returns true for two versions of MPI only if they have the same binary interface."""
    four = MpiVersion(OPEN_MPI, (4, 1, 4))
    assert four.fits(MpiVersion(OPEN_MPI, (4, 1, 6))) and four.fits(MpiVersion(OPEN_MPI))
    assert not four.fits(MpiVersion(OPEN_MPI, (5, 0, 1))) and not four.fits(MpiVersion(MPICH, (4, 1, 4)))
