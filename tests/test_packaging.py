"""Check what a user of the installed package needs: the marker of types, `python -m outcrop`, and the choice of wheels.

`make wheels` needs the network, and runs a program with each wheel. So these tests do not run `make wheels`, and only
check its decisions."""

import builtins
import dis
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import outcrop

SCRIPTS = Path(__file__).parent.parent / "scripts"


@pytest.fixture
def wheels(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the module `scripts/wheels.py`."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import wheels

    return wheels


@pytest.fixture
def wheel_checks(wheels: Any) -> Any:
    """Return the module `scripts/wheel_checks.py`."""
    import wheel_checks

    return wheel_checks


def interpreter(folder: Path, name: str, *words: str) -> str:
    """Write a program that stands for a Python interpreter, and return its path. The program prints the given answer to
    the probe of wheels.py."""
    program = folder / name
    program.write_text(f"#!/bin/sh\necho {' '.join(words)}\n")
    program.chmod(0o755)
    return str(program)


def test_type_checkers_find_the_marker() -> None:
    assert Path(outcrop.__file__).with_name("py.typed").is_file()


def test_the_package_is_a_command() -> None:
    """Checks that `python -m outcrop` does the same as `outcrop`, including its exit code."""
    done = subprocess.run([sys.executable, "-m", "outcrop", "info", "none.oc"], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("outcrop: ") and done.stderr.count("\n") == 1


def test_sources_without_extension_modules_say_so(tmp_path: Path) -> None:
    """Checks the message if PYTHONPATH names the sources of a clone. In these sources, nothing is compiled."""
    shutil.copytree(Path(outcrop.__file__).parent, tmp_path / "outcrop", ignore=shutil.ignore_patterns("*.so"))
    for line in ("from outcrop import _core", "import outcrop; outcrop.Simulation", "import outcrop.aggregate"):
        done = subprocess.run(  # -S: without the finder of an editable installation
            [sys.executable, "-S", "-c", line], capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])},
        )  # fmt: skip
        assert done.returncode == 1
        told = done.stderr.splitlines()[-1]
        assert told.startswith(f"ImportError: {tmp_path}/outcrop has no extension module _"), told
        assert "remove this folder from PYTHONPATH" in told


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_other_systems_are_refused_in_one_line(system: str) -> None:
    """Checks that pip and CMake refuse other systems before they compile. pip fails before it downloads packages."""
    ask = f"import sys; sys.platform = {system!r}; import scikit_build_core.build as b; "
    ask += "b.prepare_metadata_for_build_wheel('/none')"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, cwd=SCRIPTS.parent)
    assert done.returncode != 0
    assert (done.stdout + done.stderr).strip() == "Outcrop runs only on Linux (on Windows, in WSL 2)."


def test_cmake_refuses_other_systems(tmp_path: Path) -> None:
    command = ["cmake", "-S", SCRIPTS.parent, "-B", tmp_path, "-DCMAKE_SYSTEM_NAME=Windows"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0 and "Outcrop runs only on Linux (on Windows, in WSL 2), not on Windows." in done.stderr


def test_each_python_gets_one_wheel(wheels: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that CPython 3.10 and 3.11 get their own wheels, and that all later versions share one wheel. The shared
    wheel is built with the earliest of these versions. Other interpreters get no wheel."""
    given = [interpreter(tmp_path, f"p{minor}", "3", minor, "cpython", "True", "None") for minor in ("14", "12", "10")]
    found = wheels.find_pythons(given)
    assert [(python.name, python.command) for python in found] == [("cp310", given[2]), ("cp312", given[1])]
    assert "CPython 3.11," in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ("3", "9", "cpython", "True", "None"),
        ("3", "12", "pypy", "True", "None"),
        ("3", "12", "cpython", "False", "None"),  # without headers
        ("3", "14", "cpython", "True", "1"),  # free-threaded
        ("pyenv:",),
    ],
)
def test_a_given_interpreter_that_cannot_be_used_is_refused(wheels: Any, tmp_path: Path, words: list[str]) -> None:
    command = interpreter(tmp_path, "python", *words)
    with pytest.raises(wheels.Failure, match=f"{command} is not a CPython 3.10 or later with headers"):
        wheels.find_pythons([command])
    with pytest.raises(wheels.Failure, match="python-none is not"):
        wheels.find_pythons(["python-none"])


def test_the_check_of_a_wheel_fits_the_readme(wheel_checks: Any, tmp_path: Path) -> None:
    """Checks the program that tests a wheel. It must use only names that it or the program of the README assigns."""
    wheel_checks.write_check(tmp_path / "check")
    stored = set(dir(builtins))
    for name in ("readme.py", "check.py"):
        code = compile((tmp_path / "check" / name).read_text(), name, "exec")
        stored |= {one.argval for one in dis.get_instructions(code) if one.opname == "STORE_NAME"}
    assert {one.argval for one in dis.get_instructions(code) if one.opname == "LOAD_NAME"} <= stored


def test_lists_of_apt_name_the_sources(wheels: Any) -> None:
    """Checks the lists of apt in both formats. A changed list names source packages. Comments, keys and options must
    stay.
    """
    modern = "Types: deb\n# Types: deb\nURIs: x\nSigned-By: /k.gpg\n\nTypes: deb deb-src\nURIs: y\n"
    named = "Types: deb-src\n# Types: deb\nURIs: x\nSigned-By: /k.gpg\n\nTypes: deb-src\nURIs: y\n"
    assert wheels.with_sources(modern) == named
    older = "deb [arch=amd64] x debian main\n# deb y\ndeb-src x debian main\n"
    assert wheels.with_sources(older) == "deb-src [arch=amd64] x debian main\n# deb y\n"


def test_a_python_gets_the_wheel_that_pip_would_choose(
    wheel_checks: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks the wheel that is installed for each version of Python, and the message if it is missing."""
    names = [f"outcrop-0.1.0-{tag}-manylinux_2_28_{processor}.whl" for processor in ("aarch64", "x86_64")
             for tag in ("cp310-cp310", "cp311-cp311", "cp312-abi3")]  # fmt: skip
    for name in names:
        (tmp_path / name).touch()
    monkeypatch.setattr(wheel_checks, "OUTPUT", tmp_path)
    monkeypatch.setattr(wheel_checks.platform, "machine", lambda: "x86_64")
    assert [wheel_checks.wheel_for((3, minor)).name for minor in (10, 11, 12, 14)] == [*names[3:], names[5]]
    monkeypatch.setattr(wheel_checks.platform, "machine", lambda: "riscv64")
    with pytest.raises(wheel_checks.Failure, match=r"dist has no wheel for CPython 3\.12 on riscv64"):
        wheel_checks.wheel_for((3, 12))
