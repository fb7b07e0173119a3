"""Check that scripts which measure leave the user's files as they are, and remove their own files at the end."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPTS = Path(__file__).parent.parent / "scripts"


def script(name: str) -> ModuleType:
    """Return a script as a module."""
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def called(name: str, *words: object) -> subprocess.CompletedProcess[str]:
    """Call a script with wrong arguments."""
    command = [sys.executable, SCRIPTS / f"{name}.py", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def content(directory: Path) -> dict[str, str]:
    return {str(path.relative_to(directory)): path.read_text() for path in directory.rglob("*") if path.is_file()}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with files of the user, whose names are the names that scripts used for their own files."""
    for name in ("run.oc/mine", "report.json", "static-functions.oc/mine"):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("a file of the user")
    return tmp_path / "data"


def test_runs_over_links_keep_the_files_of_the_user(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs `run` of shaped_links.py with a program in place of mpirun, which writes the report of a run."""
    links, before = script("shaped_links"), content(directory)
    figures = {"seconds": 2.0, "predicted": {"seconds": 1.0}, "seconds_face_wait": 0.0, "bytes_sent": 8}
    figures |= {"scheme": "split", "plan": {"steps_per_pass": 4, "blocks_per_pass": 1}}
    places = []

    def start(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        places.append(Path(command[command.index("-d") + 1]))
        places[-1].mkdir()
        Path(command[command.index("--json") + 1]).write_text(json.dumps(figures))
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(links.subprocess, "run", start)
    monkeypatch.setattr(links.os, "sched_getaffinity", lambda _: {0, 1})
    assert "predicted 1.000 s" in links.run(["a", "b"], [], 1e9, directory, [])
    assert content(directory) == before and not places[0].exists()
    assert sorted(path.name for path in directory.iterdir()) == ["report.json", "run.oc", "static-functions.oc"]


def test_delayed_commits_keep_the_files_of_the_user(directory: Path) -> None:
    pytest.importorskip("mpi4py")
    before = content(directory)
    code = (
        f"import runpy, sys; sys.argv[1:] = [{str(directory)!r}, '--turns', '1', '--delay', '0']\n"
        f"main = runpy.run_path({str(SCRIPTS / 'delayed_commits.py')!r})['main']\n"
        "main.__globals__.update(SHAPE=(12, 16, 32), STEPS=4, SIZES={'bt': 2, 'slab': 4}); main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.count(" s   waits ") == 3, done.stderr
    assert content(directory) == before
    assert len(list(directory.iterdir())) == 3


def test_functions_of_static_fields_keep_the_files_of_the_user(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    functions, before = script("static_functions"), content(directory)
    few = {"exp": functions.FUNCTIONS["exp"]}
    for name, value in {"SHAPE": (12, 16, 32), "STEPS": 2, "BUDGETS": ("1MiB",), "FUNCTIONS": few}.items():
        monkeypatch.setattr(functions, name, value)
    monkeypatch.setattr(sys, "argv", ["static_functions.py", str(directory), "1"])
    functions.main()
    assert "exp" in capsys.readouterr().out
    assert content(directory) == before
    assert len(list(directory.iterdir())) == 3


def test_a_case_of_devito_leaves_no_folder(tmp_path: Path) -> None:
    """Runs a tutorial that writes a file to the working directory."""
    pytest.importorskip("devito")
    (tmp_path / "examples").mkdir()
    cells = [{"cell_type": "code", "source": ["open('written', 'w').close(); print('done', __name__)"]}]
    (tmp_path / "examples" / "case.ipynb").write_text(json.dumps({"cells": cells}))
    (tmp_path / "temporary").mkdir()
    command = [sys.executable, SCRIPTS / "devito_table.py", tmp_path, "--case", "case"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={"TMPDIR": str(tmp_path / "temporary")}
    )
    assert done.returncode == 0 and "done case" in done.stderr, done.stderr
    assert not list((tmp_path / "temporary").iterdir())


@pytest.mark.parametrize(
    ("name", "words", "message"),
    [
        ("beside_others", (), "the following arguments are required"),
        ("beside_others", ("triad", "missing"), "missing is not a program; give the path of STREAM"),
        ("cost_of_acquisition", (), "the following arguments are required: directory"),
        ("ranks_beside_plan", (), "the following arguments are required"),
        ("ranks_beside_plan", ("pairs", "missing"), "missing is not a directory; make it first"),
        ("shaped_links", ("missing",), "missing is not a directory; make it first"),
        ("static_functions", ("new", "few"), "argument turns: invalid int value: 'few'"),
        ("thread_scaling", ("missing",), "missing is not a directory; make it first"),
        ("thread_scaling", (".", "--only", "heat3"), "--only 'heat3' is not measured; there are heat2, "),
    ],
)
def test_wrong_arguments_of_scripts_are_refused(
    name: str, words: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks that the last line names the fault, and that no file is made."""
    monkeypatch.chdir(tmp_path)
    done = called(name, *words)
    assert done.returncode == 2
    assert message in done.stderr.splitlines()[-1], done.stderr
    assert not list(tmp_path.iterdir())


def test_fio_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = called("beside_others", "io", tmp_path / "new")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("the program fio is missing; install it: apt install fio")
    assert not list(tmp_path.iterdir())


def test_help_of_a_script_measures_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("cost_of_acquisition", "static_functions"):
        done = called(name, "--help")
        assert done.returncode == 0 and "DIRECTORY" in done.stdout
    assert not list(tmp_path.iterdir())
