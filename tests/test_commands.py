"""Check commands that only show information (`info --json`, `stencils`, `completion`), their help, and the texts of
errors."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import outcrop as oc
from outcrop.cli.info import as_text, facts
from outcrop.cli.main import call
from outcrop.cli.options import complete_stencil, name_output
from outcrop.cli.stencils import ABOUT, unit_of
from outcrop.durable import sealed
from outcrop.errors import InputError, as_command, by_caller, shown
from outcrop.language.library import find_stencil, stable_limit
from outcrop.language.library.table import FAMILIES, family_names, family_of_name, split_name


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a run with traces, norms, snapshots and coordinates. No test changes this run."""
    where = tmp_path_factory.mktemp("facts") / "run.oc"
    sim = oc.Simulation(
        "acoustic2", (12, 10, 8), directory=where, memory="1MiB", spacing=10.0, units="m", threads=1,
        sources=[oc.Source("u", [50.0, 50.0, 40.0], np.ones(20))], norms=oc.Norms(2),
        receivers=[oc.Receivers("line", "u", [[60.0, 50.0, 40.0]])], snapshots=oc.Snapshots(3), sizes={"bt": 2},
    )  # fmt: skip
    sim["v"] = 1000.0
    sim.run(6, progress="none")
    return where


def test_info_has_the_same_facts_as_text_and_as_json(where: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that the text shows the same facts as the JSON, and that JSON goes to a file or to standard output."""
    found = facts(where)
    assert call(["info", str(where)]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head == str(where) and lines == [f"  {name:<9}{text}" for name, text in as_text(found)]
    for words in (["info", str(where), "--json"], ["info", "--json", str(where)]):
        assert call(words) == 0
        assert json.loads(capsys.readouterr().out) == found
    file = where.with_name("facts.json")
    for words in (["info", str(where), "--json", str(file)], ["info", "--json", str(file), str(where)]):
        assert call(words) == 0
        assert capsys.readouterr().out == "" and json.loads(file.read_text()) == found
        file.unlink()
    assert (found["status"], found["step"], found["shape"]) == ("finished", 6, [12, 10, 8])
    assert [one["name"] for one in found["fields"] if one["is_static"]] == ["v"]
    assert found["traces"] == [{"name": "line", "field": "u", "points": 1, "points_in_this_part": None}]
    assert found["snapshots"][0]["count"] == 3 and found["norms"]["count"] == 4
    assert found["coordinates"] == {"spacing": [10.0] * 3, "origin": [0.0] * 3, "units": "m"}
    assert found["pace"]["last_step"] == 6 and found["sizes"] == {"bt": 2}


def test_info_shows_the_whole_equation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that `outcrop info` has a line for each update of the stencil, and cuts none of them. A text that no
    program can have made, such as one with control characters, is not shown."""
    place, u, v = tmp_path / "run.oc", oc.Field("u"), oc.Field("v")
    changes = [{u: sum(u[0, k] for k in range(30)) / 30}, {v: u.previous[1, 0] / 2}]
    oc.Simulation(oc.Stencil("own", changes), (40, 80), directory=place, memory="1MiB", init={"u": 1, "v": 2}).run(2)
    found = facts(place)
    first, second = found["equation"].split("; ")
    assert first.startswith("u' = ") and "u[0, 29]" in first and second == "v' = u.previous[1, 0]/2"
    rows = as_text(found)
    assert rows[1:3] == [("equation", first), ("", second)] and rows[3][0] == "grid"
    path = place / "manifest.json"
    content = json.loads(path.read_text())
    del content["crc32c"]
    for wrong in ("u' = \x1b[2Ju", "u' = \u202eu", "u" * 70_000, 5, None, ["u"]):
        path.write_bytes(sealed({**content, "stencil": {**content["stencil"], "equation": wrong}}))
        for words in (["info", str(place)], ["info", str(place), "--json"]):
            assert call(words) == 0
            assert len(capsys.readouterr().out) < 10_000
        assert facts(place)["equation"] == "" and "equation" not in dict(as_text(facts(place)))


def test_a_file_of_json_that_cannot_be_written_is_refused(where: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["info", str(where), "--json", str(where.parent)]) == 2
    assert "is a directory" in capsys.readouterr().err
    assert call(["info", "--json"]) == 2
    assert "see outcrop info --help" in capsys.readouterr().err
    assert name_output(["info", "a", "--json", "--help"]) == ["info", "a", "--json", "-", "--help"]


def test_the_list_names_every_family(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["stencils"]) == 0
    text = capsys.readouterr().out
    for family in FAMILIES:
        assert re.search(rf"^{family}\b|^{family}\[", text, flags=re.M) and ABOUT[family].title in text


@pytest.mark.parametrize("family", [one for one in FAMILIES if one != "d3q19"])  # d3q19 has the texts of d2q9
def test_each_field_and_parameter_of_a_family_has_a_unit(family: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that the description of a family names all fields and parameters of its default stencil, which must have
    units. Each name of a stencil must lead back to its family.
    """
    stencil = FAMILIES[family].make()
    assert call(["stencils", family]) == 0
    text = capsys.readouterr().out
    for one in (*stencil.fields, *stencil.parameters):
        assert isinstance(unit_of(ABOUT[family], one.name), str) and re.search(rf"\b{one.name}\b", text)
    for part in (stencil.name, stencil.equation, ABOUT[family].limit, ABOUT[family].source):
        assert part in text
    for name in family_names(family):
        assert split_name(name) is not None and family_of_name(name) == family


@pytest.mark.parametrize("name", ["maxwell_lossy", "maxwell_2d_te", "elastic2_2d", "acoustic4_1d_sponge", "advection2"])
def test_options_of_stencils_are_described(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["stencils", name]) == 0
    text = capsys.readouterr().out
    stencil = find_stencil(name)
    assert all(re.search(rf"\b{one.name}\b", text) for one in (*stencil.fields, *stencil.parameters))


def test_the_largest_stable_step_is_computed(capsys: pytest.CaptureFixture[str]) -> None:
    limit = stable_limit(find_stencil("acoustic8"), {"h": 5.0}, [{"v": 3000.0}])
    assert call(["stencils", "acoustic8", "--param", "v=3000", "--param", "h=5"]) == 0
    assert f"dt <= {limit:.5g} with these values; dt = 0.001 is unstable" in capsys.readouterr().out
    assert call(["stencils", "acoustic8"]) == 0
    assert "give --param v=VALUE for the limit of dt" in capsys.readouterr().out
    for words, text in (
        (["acoustic9"], "unknown; did you mean acoustic"),
        (["heat2", "--param", "v=1"], "no such parameter or static field"),
        (["--param", "v=1"], "name it"), (["heat2", "--param", "h=x"], "not a number"),
    ):  # fmt: skip
        assert call(["stencils", *words]) == 2
        assert text in capsys.readouterr().err


def complete(*words: str, shell: str = "bash") -> list[str]:
    """Return the completions that a shell gets for the last word of a command line."""
    environment = {**os.environ, "_OUTCROP_COMPLETE": f"complete_{shell}", "COMP_WORDS": " ".join(words),
                   "COMP_CWORD": str(len(words) - 1), "_TYPER_COMPLETE_ARGS": " ".join(words)}  # fmt: skip
    command = [sys.executable, "-m", "outcrop.cli.main"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()


def test_a_shell_completes_commands_stencils_and_values() -> None:
    assert "maxwell_2d_te" in "\n".join(complete("outcrop", "run", "maxwell", shell="zsh"))
    assert complete("outcrop", "run", "heat7", "-n", "9", "9", "9", "--param", "c") == ["c0=0.4", "c1=0.1"]
    assert complete("outcrop", "plan", "heat7", "--scheme", "wave") == ["wavefront"]


def test_names_of_stencils_are_completed_in_two_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert complete_stencil("") == list(FAMILIES)
    assert complete_stencil("acou") == family_names("acoustic")
    assert complete_stencil("x") == []


@pytest.mark.parametrize(("shell", "text"), [("bash", "complete "), ("zsh", "compdef "), ("fish", "complete ")])
def test_completion_prints_a_program(shell: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["completion", shell]) == 0
    program = capsys.readouterr().out
    assert text in program and "_OUTCROP_COMPLETE" in program and "outcrop" in program
    assert call(["completion", "csh"]) == 2
    assert "there are bash, zsh, fish" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--help"], ["agg", "--help"]])
def test_help_is_never_cut(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that the help is not cut off in a narrow terminal."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERMINAL_WIDTH", "60")
    assert call(words) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "..." not in text.replace("[ARGS]...", "")
    if words == ["--help"]:
        assert "predict its cost." in text and "how long stored data lasts." in text


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["run", "heat7", "--fast"], "outcrop run --help"), (["info"], "outcrop info --help"),
        (["agg", "simulate"], "outcrop agg simulate --help"), (["agg", "none"], "outcrop agg --help"),
        (["rn"], "outcrop --help"), (["--fast"], "outcrop --help"),
    ],
)  # fmt: skip
def test_errors_name_the_help_of_their_command(
    words: list[str], command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(words) == 2
    assert capsys.readouterr().err.endswith((f"; see {command}\n", f"? See {command}\n"))


def test_errors_name_options_in_the_words_of_the_caller(where: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks the errors for the same mistakes on the command line and in Python. The error of a command names options
    of the command line, and the error in Python names arguments.
    """
    size = ["-n", "8", "10", "12", "-t", "2", "--memory", "1MiB"]
    model = {"memory": "1MiB", "shape": (12, 10, 8), "steps": 2}
    new = where.with_name("new.oc")
    mistakes = [
        (["run", "heat2", *size, "-d", str(where)],
         lambda: oc.Simulation("heat2", directory=where, **model), "--force", "force=True"),
        (["run", "heat2", *size, "-d", str(new), "--init", "nothing"],
         lambda: oc.Simulation("heat2", directory=new, init="nothing", **model),
         "--init 'nothing'", "^u: init 'nothing'"),
        (["run", "acoustic8", *size, "-d", str(new)],
         lambda: oc.Simulation("acoustic8", directory=new, **model).run(2),
         "--init v=NUMBER or v=FILE", r"assign sim\['v'\]"),
        (["run", "heat2", *size, "-d", str(new), "--param", "dt=9"],
         lambda: oc.Simulation("heat2", directory=new, params={"dt": 9}, **model), "--unstable", "unstable=True"),
        (["run", "heat2", "-t", "2", "-d", str(new)],
         lambda: oc.Simulation("heat2", directory=new, steps=2), "-n NX NY NZ", r"shape=\(nz, ny, nx\)"),
        (["run", "acoustic8", *size, "-d", str(new), "--init", "2000"],
         lambda: oc.Simulation("acoustic8", directory=new, init="2000", **model),
         "--init NAME=2000", r"init=\{NAME: '2000'\}"),
    ]  # fmt: skip
    for words, mistake, of_command, of_python in mistakes:
        assert call(words) == 2
        message = capsys.readouterr().err
        with pytest.raises(InputError) as error:
            mistake()
        assert re.search(of_command, message) and not re.search(of_python, message), message
        assert re.search(of_python, str(error.value)) and not re.search(of_command, str(error.value)), error.value
    assert not new.exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("problem.dt = true", "parameter 'dt' = true must be a finite number"),
        ("problem.params = 3", "params 3 must be values by name, such as { dt = ... }"),
        ("problem.dt = 0.1\nproblem.params = { dt = 0.2 }", "dt = 0.1 and params.dt = 0.2 are the same"),
        ("problem.spacing = 5.0", "give --param h=5, too"),
        ("problem.spacing = { x = [true] }", "spacing { x = [true] }: { x = [true] } must be a finite number"),
        ("problem.stencil = 3", "stencil 3 is not the name of a built-in stencil"),
        ("problem.init = 3", "give values by name, such as { u = ... }"),
        ("problem.init.v = [[1.0]]", "the grid (6, 5, 8) has three axes"),
        ("problem.init.v = [[[1.0]]]", "save it as FILE.npy, and write FILE.npy@resample"),
        ('problem.unstable = "no"', "unstable 'no' must be true or false"),
        ("resources.ranks = [1, 0]", "parts along y and z, such as 4x2\n"),
        ("output.snapshots = { every = 2, box = [[0, 4]] }", "box [[0, 4]] must be [begin, end] for each axis: z,"),
        ("output.snapshots = { every = 2, box = [[0, 9], [0, 1], [0, 1]] }", "box [0, 9] along z is not a range"),
        ("output.snapshots = [{ every = 2 }, { every = 3 }]", "without a name; give another `name`"),
    ],
)
def test_errors_in_files_of_options_are_not_in_words_of_python(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that messages show values and examples as a TOML file contains them."""
    usual = {"stencil": '"acoustic4"', "shape": "[6, 5, 8]", "steps": "2", "init.v": "1.0"}
    lines = [f"problem.{key} = {value}" for key, value in usual.items() if f"problem.{key[:4]}" not in text]
    lines += [text, f'output.directory = "{tmp_path / "run.oc"}"', 'resources.memory = "1MiB"']
    file = tmp_path / "wrong.toml"
    file.write_text("\n".join(lines))
    assert call(["run", str(file)]) == 2
    error = capsys.readouterr().err
    assert message in error and not re.search(r"True|False|slice\(|\boc\.|=\{|\w=\.\.\.|\{'", error)
    assert not (tmp_path / "run.oc").exists()


def test_a_program_that_calls_commands_keeps_its_own_words() -> None:
    with as_command():
        assert by_caller("--force", "force=True") == "--force"
        assert shown({"h": [True, slice(0, 4)]}) == "{ h = [true, [0, 4]] }"
    assert by_caller("--force", "force=True") == "force=True"
    assert shown({"h": [True]}) == "{'h': [True]}"


def test_all_missing_options_are_named_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks the message for a run without size, steps and directory, and the message for a misspelt command."""
    assert call(["run", "heat2_2d"]) == 2
    error = capsys.readouterr().err
    assert all(option in error for option in ("-n NX NY is missing", "; -t STEPS is missing", "; -d WHERE is missing"))
    assert error.count("\n") == 1
    assert call(["run", "heat2_2d", "-n", "8", "8", "-t", "1"]) == 2
    assert capsys.readouterr().err.startswith("outcrop: -d WHERE is missing")


def test_a_run_of_zeros_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that `outcrop run` prints a note if the run starts with zeros and has no sources. For the picture of such
    a run, `outcrop plot` must say that all values are 0."""
    words = ["run", "acoustic2_2d", "-n", "12", "10", "-t", "2", "--memory", "1MiB", "-d", str(tmp_path / "run.oc")]
    assert call([*words, "--init", "v=1500"]) == 0
    assert "note: all updated fields start with zeros" in capsys.readouterr().out
    assert call(["plot", str(tmp_path / "run.oc"), "-o", str(tmp_path / "a.png")]) == 0
    assert "all values are 0" in capsys.readouterr().out
    assert call([*words, "--init", "v=1500", "--init", "u=gaussian", "--force"]) == 0
    assert "start with zeros" not in capsys.readouterr().out
