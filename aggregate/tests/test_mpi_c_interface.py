"""These tests compile C and Fortran programs. The programs find the installed library with pkg-config or CMake."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from cpp_builds import ROOT, succeed
from mpi_programs import build_with_mpi, compiler, mpirun

PROGRAMS = ROOT / "aggregate" / "tests" / "core" / "mpi"
WARNINGS = ("-std=c99", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Werror")
USING_CMAKE = """
cmake_minimum_required(VERSION 3.20)
project(user LANGUAGES C)
find_package(outcrop_aggregate 0.1 REQUIRED)
add_executable(c_program {source})
target_link_libraries(c_program outcrop::outcrop_aggregate)
"""


@pytest.fixture(scope="session")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the library. Return the folder of the installation."""
    prefix = tmp_path_factory.mktemp("installed")
    build_with_mpi("outcrop_aggregate_mpi", prefix=prefix)
    return prefix


def flags_of(prefix: Path) -> list[str]:
    """Return the compiler options that pkg-config prints for the library."""
    if shutil.which("pkg-config") is None:
        pytest.skip("there is no pkg-config")
    (package,) = prefix.rglob("outcrop_aggregate.pc")
    flags = succeed(
        "pkg-config", "--cflags", "--libs", "outcrop_aggregate", PKG_CONFIG_PATH=str(package.parent)
    ).split()
    return [*flags, *(f"-Wl,-rpath,{flag[2:]}" for flag in flags if flag.startswith("-L"))]


def run(program: Path, folder: Path, ranks: int) -> None:
    """Run a program that makes one file in an empty folder. The program itself checks its results, and prints
    errors."""
    folder.mkdir()
    done = mpirun(ranks, str(program), str(folder / "out.bin"), str(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    assert os.listdir(folder) == ["out.bin"], "nothing else stays behind"


def test_c_programs_find_the_library_by_pkg_config(prefix: Path, tmp_path: Path) -> None:
    """Compile the C program in C99 without warnings, and run the program. The comments in the program say what the
    program checks."""
    program = tmp_path / "c_program"
    succeed(compiler(), *WARNINGS, str(PROGRAMS / "c_program.c"), *flags_of(prefix), "-o", str(program))
    for ranks in (1, 4):
        run(program, tmp_path / f"of-{ranks}", ranks)


def program_of_the_manual(language: str, path: Path) -> str:
    """Copy the program in the language `language` from docs/how-to/mpi.md to the file `path`. Return the path as a
    text."""
    page = (ROOT / "docs" / "how-to" / "mpi.md").read_text()
    path.write_text(page.partition(f"```{language}\n")[2].partition("```")[0])
    return str(path)


def run_program_of_the_manual(program: Path, folder: Path) -> None:
    """Run the program of the manual on three ranks, and check the file that it writes. Each rank writes 8 rows in each
    of three steps. The values of the rows depend on the rank and the step.
    """
    folder.mkdir()
    done = mpirun(3, "sh", "-c", 'cd "$1" && exec "$2"', "sh", str(folder), str(program))
    assert done.returncode == 0, done.stdout + done.stderr
    found = np.fromfile(folder / "out.bin").reshape(3, 3, 8 * 1000)
    assert (found == 10.0 * np.arange(3)[:, None, None] + np.arange(3)[:, None]).all()


def test_the_c_program_of_the_manual_works(prefix: Path, tmp_path: Path) -> None:
    """Check that the C program of the manual can be compiled and run."""
    source, program = program_of_the_manual("c", tmp_path / "program.c"), tmp_path / "program"
    succeed(compiler(), *WARNINGS, source, *flags_of(prefix), "-o", str(program))
    run_program_of_the_manual(program, tmp_path / "files")


def test_the_fortran_program_of_the_manual_works(prefix: Path, tmp_path: Path) -> None:
    """Check that the Fortran program of the manual can be compiled and run."""
    source, program = program_of_the_manual("fortran", tmp_path / "program.f90"), tmp_path / "program"
    module = prefix / "include" / "outcrop_aggregate.f90"
    options = ["-std=f2008", "-Wall", "-Werror", f"-J{tmp_path}", str(module), source]
    succeed(compiler("mpifort"), *options, *flags_of(prefix), "-o", str(program))
    run_program_of_the_manual(program, tmp_path / "files")


def test_c_programs_find_the_library_by_cmake(prefix: Path, tmp_path: Path) -> None:
    """Check that the CMake package provides the headers, the library and the MPI of the library."""
    (tmp_path / "CMakeLists.txt").write_text(USING_CMAKE.format(source=PROGRAMS / "c_program.c"))
    build = str(tmp_path / "build")
    options = [f"-DCMAKE_PREFIX_PATH={prefix}", f"-DMPI_C_COMPILER={compiler()}"]
    succeed("cmake", "-S", str(tmp_path), "-B", build, *options)
    succeed("cmake", "--build", build)
    run(tmp_path / "build" / "c_program", tmp_path / "files", 2)


def read_when_free(program: str, environment: dict[str, str], *files: str) -> str:
    """Wait until the killed run has really ended. Then run the program that recovers and reads the file. Return the
    output of this program.
    """
    for _ in range(50):
        done = mpirun(3, program, "read", *files, "0", environment=environment)
        if "is in use by another process" not in done.stderr:
            break
        time.sleep(0.1)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_rank_that_is_killed_loses_no_step_that_was_staged(prefix: Path, tmp_path: Path) -> None:
    """Check a run in which kill -9 ends one rank. All ranks must end. The next run must find every step whose write had
    returned before the kill.
    """
    program = str(tmp_path / "staged_program")
    succeed(compiler(), *WARNINGS, str(PROGRAMS / "staged_program.c"), *flags_of(prefix), "-o", program)
    environment = {
        "OUTCROP_AGG_STAGE": str(tmp_path / "stage"),
        "OUTCROP_AGG_BUFFER": "64KiB",
        "OUTCROP_AGG_COUNT": "3",
    }
    counts = set()
    for microseconds in (1, 20_000, 77_777, 150_000):
        files = (str(tmp_path / "out.bin"), str(tmp_path / "noted"))
        killed = mpirun(3, program, "write", *files, str(microseconds), environment=environment)
        assert killed.returncode != 0, "a rank was killed"
        counts.add(read_when_free(program, environment, *files).splitlines()[0])
    assert len(counts) > 1, "the moments must differ"


def test_what_the_environment_of_one_rank_asks_for_in_vain_is_told_to_all(prefix: Path, tmp_path: Path) -> None:
    """With some launchers, only one rank may have an environment variable that sets an option. Check that all ranks get
    an error in this case, and that no rank waits forever.
    """
    program = str(tmp_path / "c_program")
    succeed(compiler(), *WARNINGS, str(PROGRAMS / "c_program.c"), *flags_of(prefix), "-o", program)
    only_one = 'if [ "${PMI_RANK:-$OMPI_COMM_WORLD_RANK}" = 1 ]; then export OUTCROP_AGG_TIER=nvme; fi; exec "$@"'
    done = mpirun(3, "sh", "-c", only_one, "sh", program, str(tmp_path / "out.bin"), str(tmp_path), seconds=60)
    assert done.returncode != 0
    assert "ranks 0 and 1 have different settings" in done.stdout + done.stderr
    assert "tier = nvme" in done.stdout + done.stderr


def test_fortran_programs_have_a_module(prefix: Path, tmp_path: Path) -> None:
    """Check that a Fortran program can use the module of the library. The Fortran module is compiled together with each
    program, so that any Fortran compiler can be used.
    """
    module = prefix / "include" / "outcrop_aggregate.f90"
    sources = [str(module), str(PROGRAMS / "fortran_program.f90")]
    program = tmp_path / "fortran_program"
    warnings = ["-std=f2008", "-Wall", "-Werror", f"-J{tmp_path}"]
    succeed(compiler("mpifort"), *warnings, *sources, *flags_of(prefix), "-o", str(program))
    for ranks in (1, 3):
        run(program, tmp_path / f"of-{ranks}", ranks)


PLACED = """
import sys
import numpy as np
from mpi4py import MPI
import outcrop.aggregate as agg
rank, size = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()
records, unit = int(sys.argv[2]), int(sys.argv[3])
mine, before, record = unit * (rank + 1), unit * (rank * (rank + 1) // 2), unit * (size * (size + 1) // 2)
plan = agg.declare(MPI.COMM_WORLD, [agg.strided(before, records, mine, record)])
values = np.full(records * mine, ord("a") + rank, np.uint8)
with agg.create(sys.argv[1], plan, durable=True) as file:
    file.write([values])
if rank == 0:
    print(plan.explain())
plan.close()
"""
MACHINE = """
[fast]
kind = "nvm"
directory = "{folder}"
capacity = "{room}"
read = "200GB/s"
write = "200GB/s"
[dram]
kind = "dram"
capacity = "1GiB"
read = "90GB/s"
write = "90GB/s"
[target]
read = "2GB/s"
write = "{target}"
[network]
cards = 3
"""


@pytest.fixture(scope="session")
def placed_program(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Compile the program of these tests, and return the path of the program."""
    program = str(tmp_path_factory.mktemp("programs") / "placed_program")
    succeed(compiler(), *WARNINGS, str(PROGRAMS / "placed_program.c"), *flags_of(prefix), "-o", program)
    return program


@pytest.mark.parametrize(
    ("ranks", "records", "unit", "room", "target", "settings"),
    [
        (2, 100, 3000, "1GiB", "1GB/s", {}),
        (3, 4000, 1000, "9MiB", "100GB/s", {"BUFFER": "1MiB"}),  # the tier has room for two of three aggregators
        (4, 1000, 2000, "1GiB", "1GB/s", {"COUNT": "2", "TIER": "dram", "HOSTS": "*:2"}),
        (4, 1000, 2000, "1GiB", "1GB/s", {"STAGE": "auto", "SECONDS_BETWEEN": "1", "PERSISTENCE": "job"}),
    ],
)
def test_c_and_python_place_alike(
    placed_program: str, tmp_path: Path, ranks: int, records: int, unit: int, room: str, target: str,
    settings: dict[str, str],
) -> None:  # fmt: skip
    """Check that programs in C and Python choose the same ranks and tiers from the same machine file. They must write
    the same file."""
    folder, machine = tmp_path / "fast", tmp_path / "machine"
    folder.mkdir()
    machine.write_text(MACHINE.format(folder=folder, room=room, target=target))
    environment = {f"OUTCROP_AGG_{name}": value for name, value in settings.items()}
    environment["OUTCROP_AGG_MACHINE"] = str(machine)
    said = []
    for name, program in (("c", [placed_program]), ("python", [sys.executable, "-c", PLACED])):
        arguments = [str(tmp_path / name), str(records), str(unit)]
        done = mpirun(ranks, *program, *arguments, environment=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        lines = done.stdout.splitlines()
        said.append([line for line in lines[1:] if not line.startswith(("measured", "target "))])
    assert said[0] == said[1]
    assert any(f"buffers of this node in {'dram' if settings.get('TIER') else 'fast'}: " in line for line in said[0])
    assert (tmp_path / "c").read_bytes() == (tmp_path / "python").read_bytes()


def test_c_without_a_machine_file_measures_memory(placed_program: str, tmp_path: Path) -> None:
    """Check a C program that has no machine file. explain() must say that the memory was measured, and that the figures
    of the target are assumed. If the user gives a machine file that does not exist, all ranks must get an error.
    """
    done = mpirun(2, placed_program, str(tmp_path / "file"), "100", "1000")
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", measured by a copy" in done.stdout and ", assumed for " in done.stdout
    for what in ("read", "write"):
        assert f"measured at rank 0, 1 {what}: " in done.stdout
    environment = {"OUTCROP_AGG_MACHINE": str(tmp_path / "none")}
    done = mpirun(2, placed_program, str(tmp_path / "file"), "100", "1000", environment=environment)
    assert done.returncode != 0 and "making a plan: rank 0: " in done.stderr and "none" in done.stderr


def test_only_the_interface_is_exported(prefix: Path) -> None:
    """Check that the library exports only the names of its interface. Other names of the library therefore cannot
    conflict with names in other libraries.
    """
    if shutil.which("nm") is None:
        pytest.skip("there is no nm")
    (library,) = prefix.rglob("liboutcrop_aggregate.so")
    lines = succeed("nm", "--dynamic", "--defined-only", str(library)).splitlines()
    names = [line.split()[-1] for line in lines if line.split()[-2] in "TDBR"]
    assert names and all(name.startswith("outcrop_agg_") for name in names)
