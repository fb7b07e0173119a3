"""Check the C interface of trajectories. C programs find the installed library by pkg-config or CMake.

A trajectory that a C program has made can be opened in Python.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import outcrop as oc
from cpp_builds import ROOT, build, succeed

PROGRAM = ROOT / "tests" / "trajectory_program.c"
WARNINGS = ("-std=c99", "-Wall", "-Wextra", "-Werror")
USING_CMAKE = """
cmake_minimum_required(VERSION 3.20)
project(user LANGUAGES C)
find_package(outcrop_trajectory 0.1 REQUIRED)
add_executable(program {source})
target_link_libraries(program outcrop::outcrop_trajectory)
"""


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build and install the library, and return the folder of the installation."""
    for tool in ("cc", "c++"):
        if shutil.which(tool) is None:
            pytest.skip(f"there is no {tool}")
    prefix = tmp_path_factory.mktemp("installed")
    build(("outcrop_trajectory_shared",), {"OUTCROP_TRAJECTORY": "ON"}, prefix)
    return prefix


def compiled(source: Path, prefix: Path, program: Path) -> str:
    """Compile a C program as C99 without warnings, with the options of pkg-config."""
    if shutil.which("pkg-config") is None:
        pytest.skip("there is no pkg-config")
    (package,) = prefix.rglob("outcrop_trajectory.pc")
    search = {"PKG_CONFIG_PATH": str(package.parent)}
    flags = succeed("pkg-config", "--cflags", "--libs", "outcrop_trajectory", **search).split()
    paths = [f"-Wl,-rpath,{flag[2:]}" for flag in flags if flag.startswith("-L")]
    succeed("cc", *WARNINGS, str(source), *flags, *paths, "-o", str(program))
    return str(program)


def test_a_c_program_uses_every_function(prefix: Path, tmp_path: Path) -> None:
    """Run the C program that checks the interface. The program must remove its files."""
    program, files = compiled(PROGRAM, prefix, tmp_path / "program"), tmp_path / "files"
    files.mkdir()
    succeed(program, str(files))
    assert os.listdir(files) == []


def test_a_c_program_finds_the_library_by_cmake(prefix: Path, tmp_path: Path) -> None:
    """Check that the CMake package provides the header and the library."""
    (tmp_path / "CMakeLists.txt").write_text(USING_CMAKE.format(source=PROGRAM))
    build, files = str(tmp_path / "build"), tmp_path / "files"
    files.mkdir()
    succeed("cmake", "-S", str(tmp_path), "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}")
    succeed("cmake", "--build", build)
    succeed(f"{build}/program", str(files))


def test_the_program_of_the_manual_works_and_python_reads_its_states(prefix: Path, tmp_path: Path) -> None:
    """Check that the program in the manual can be compiled and run. `oc.Trajectory` must open the trajectory that the
    program has stored."""
    page = (ROOT / "docs" / "how-to" / "trajectories.md").read_text()
    source = tmp_path / "program.c"
    source.write_text(page.partition("```c\n")[2].partition("```")[0])
    program = compiled(source, prefix, tmp_path / "program")
    done = subprocess.run([program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.endswith("state 0 begins with 0\n"), done.stdout + done.stderr
    with oc.Trajectory.open(tmp_path / "from-c") as history:
        assert history.shapes == {"u": (64, 64)} and len(history) == 10
        step, state = history.pop()
        assert step == 9 and (state["u"] == np.full((64, 64), 9.0)).all()


def test_the_library_exports_only_the_functions_of_the_header(prefix: Path) -> None:
    """Check that the installed library exports only the functions of its header, and no symbols of other libraries that
    it contains."""
    if shutil.which("nm") is None:
        pytest.skip("there is no nm")
    (library,) = {path.resolve() for path in prefix.rglob("liboutcrop_trajectory.so*")}
    names = [line.split()[-1] for line in succeed("nm", "-D", "--defined-only", str(library)).splitlines()]
    header = (prefix / "include" / "outcrop_trajectory.h").read_text()
    ours = [name for name in names if not name.startswith(("_Z", "__"))]
    assert len(ours) == 11 and all(f"{name}(" in header for name in ours), ours
