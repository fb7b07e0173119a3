"""Check starts from the state of another run, changes of the parameters of a run, and sweeps of several runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outcrop as oc
from folders import everything_below
from outcrop.cli.main import call
from outcrop.cli.options import run_options
from outcrop.cli.sweeps import chosen_options, variants
from outcrop.errors import CorruptionError, InputError
from outcrop.run.disk.verify import find_damage
from outcrop.run.places import open_state

SHAPE = (12, 10, 8)
PLAIN = {"memory": "1MiB", "threads": 1}


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def waves(where: str, steps: int = 5, **options: Any) -> oc.Simulation:
    """Run a wave with previous values and a velocity model."""
    rng = np.random.default_rng(4)
    sim = oc.Simulation("acoustic2", SHAPE, directory=where, **PLAIN, **options)
    sim.assign({"v": 1000 + 500 * rng.random(SHAPE), "u": rng.random(SHAPE)})
    sim.run(steps, progress="none")
    return sim


def test_a_start_from_another_run_continues_it() -> None:
    """Checks a run that starts from the state of another run. It must compute the bits that the other run would have
    computed."""
    waves("first.oc")
    waves("whole.oc", steps=9)
    before = everything_below(Path("first.oc"))
    second = oc.Simulation("acoustic2", directory="second.oc", init="first.oc", steps=4, **PLAIN)
    assert second.shape == SHAPE
    second.run(progress="none")
    assert everything_below(Path("first.oc")) == before
    for name in ("u", "u.previous", "v"):
        np.testing.assert_array_equal(second[name][...], oc.open("whole.oc")[name][...])
    words = ["run", "acoustic2", "-t", "4", "-d", "third.oc", "--memory", "1MiB", "--quiet"]
    assert call([*words, "--init", "first.oc"]) == 0
    np.testing.assert_array_equal(oc.open("third.oc")["u"][...], second["u"][...])


def test_single_arrays_of_another_run_can_be_taken() -> None:
    first = waves("first.oc")
    for number, init in enumerate(["first.oc/u", "first.oc:u"]):
        sim = oc.Simulation("acoustic2", SHAPE, directory=f"{number}.oc", init={"u": init, "v": 900}, **PLAIN)
        sim.fill()
        np.testing.assert_array_equal(sim["u"][...], first["u"][...])
        assert (sim["v"][...] == 900).all()
    both = oc.Simulation("acoustic2", SHAPE, directory="both.oc", init=["first.oc", "v=900"], **PLAIN)
    both.fill()
    assert (both["v"][...] == 900).all() and (both["u.previous"][...] == first["u.previous"][...]).all()
    heat = oc.Simulation("heat2", SHAPE, directory="heat.oc", **PLAIN)
    heat["u"] = first["u"]
    np.testing.assert_array_equal(heat["u"][...], first["u"][...])


@pytest.mark.parametrize(
    ("init", "message"),
    [
        ("first.oc/w", r"acoustic2 has no field 'w'; there are: u, u\.previous, v"),
        ("first.oc@resample", "first.oc has several arrays; name one of them: first.oc/u"),
        ("other.oc", "heat2 has none of its arrays: psi"),
        ("damaged.oc", "damaged"),
    ],
)
def test_what_cannot_be_taken_is_refused(init: str, message: str) -> None:
    waves("first.oc")
    other = oc.Simulation("stream_function", (6, 5), directory="other.oc", **PLAIN)
    other.run(2, progress="none")
    shutil.copytree("first.oc", "damaged.oc", symlinks=True)
    Path("damaged.oc/manifest.json").write_text("{}")
    with pytest.raises(InputError, match=message):
        oc.Simulation("heat2", SHAPE, directory="new.oc", init=init, **PLAIN)
    assert not Path("new.oc").exists()


def test_a_damaged_plane_of_the_other_run_ends_the_start() -> None:
    waves("first.oc")
    shard = Path("first.oc/u/c/0/0/0")
    content = bytearray(shard.read_bytes())
    content[4096 + 100] ^= 1
    shard.write_bytes(content)
    sim = oc.Simulation("acoustic2", SHAPE, directory="new.oc", init="first.oc", **PLAIN)
    with pytest.raises(CorruptionError):
        sim.fill()
    assert not Path("new.oc").exists()


def test_planes_of_different_steps_are_not_mixed() -> None:
    """Checks that a start fails if the other run takes steps while its values are read."""
    first = waves("first.oc")
    view, sim = oc.open("first.oc")["u"], oc.Simulation("heat2", SHAPE, directory="new.oc", **PLAIN)
    read = type(view).__getitem__

    class Running(type(view)):  # type: ignore[misc]
        def __getitem__(self, index: Any) -> Any:
            found = read(self, index)
            first.run(2, progress="none")
            return found

    view.__class__ = Running
    from outcrop.run.inputs.formats.run import from_view

    planes = from_view("first.oc/u", view).planes
    planes(0, 2)
    with pytest.raises(InputError, match="another process is running this run"):
        planes(2, 4)
    assert sim.step == 0


def test_parameters_of_a_run_can_change() -> None:
    """Checks that changed parameters apply to later steps and are stored. A new run that starts from the same state
    with these parameters must give the same bits.
    """
    heat = oc.Simulation("heat2", SHAPE, directory="run.oc", init="random:3", **PLAIN)
    heat.run(4, progress="none")
    later = oc.open("run.oc", params={"kappa": 0.25})
    assert open_state(Path("run.oc")).manifest.parameters["kappa"] == 1.0, "opening changes nothing"
    later.run(3, progress="none")
    assert open_state(Path("run.oc")).manifest.parameters == {"dt": 0.05, "h": 1.0, "kappa": 0.25}
    assert not find_damage(open_state(Path("run.oc"))).untidy
    first = oc.Simulation("heat2", SHAPE, directory="first.oc", init="random:3", **PLAIN)
    first.run(4, progress="none")
    second = oc.Simulation("heat2", directory="second.oc", init="first.oc", params={"kappa": 0.25}, **PLAIN)
    second.run(3, progress="none")
    np.testing.assert_array_equal(oc.open("run.oc")["u"][...], second["u"][...])
    oc.open("run.oc").run(1, progress="none")
    second.run(1, progress="none")
    np.testing.assert_array_equal(oc.open("run.oc")["u"][...], second["u"][...])


@pytest.mark.parametrize(
    ("options", "params", "message"),
    [
        ({}, {"c": 1.0}, "has no parameter|unknown"),
        ({}, {"dt": "x"}, "parameter 'dt'"),
        ({}, {"dt": 1.0}, "params: dt=1 is unstable"),
        ({}, 3, "params"),
        ({"norms": oc.Norms(2)}, {"dt": 1e-4}, "dt cannot change in a run with sources, receivers.*from its state"),
    ],
)
def test_changes_of_parameters_that_are_impossible_are_refused(
    options: dict[str, Any], params: Any, message: str
) -> None:
    waves("run.oc", **options)
    before = everything_below(Path("run.oc"))
    with pytest.raises(InputError, match=message):
        oc.open("run.oc", params=params)
    assert everything_below(Path("run.oc")) == before


def test_a_history_keeps_its_parameters() -> None:
    sim = oc.Simulation("acoustic2", SHAPE, directory="run.oc", init={"u": "random:1", "v": "1000"}, **PLAIN)
    sim.run(3, progress="none", history="all")
    with pytest.raises(InputError, match="h cannot change in a run that keeps its history"):
        oc.open("run.oc", params={"h": 20.0})


FILE = """
[problem]
stencil = "heat2"
shape = [8, 6, 10]
steps = 3
init = "random:2"
[resources]
memory = "1MiB"
threads = 1
[output]
directory = "out/run.oc"
"""


def test_a_sweep_runs_all_combinations(capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that a sweep makes one run for each combination of values, and lists the runs in its JSON and its table.
    Each run must have the same bits as a single run with the same values.
    """
    Path("heat.toml").write_text(FILE)
    words = ["run", "heat.toml", "--set", "params.kappa=0.5,1", "--set", "dtype=float32,float64"]
    assert call([*words, "--json", "sweep.json"]) == 0
    text = capsys.readouterr().out
    names = [f"run-kappa={kappa}-dtype={dtype}.oc" for kappa in ("0.5", "1") for dtype in ("float32", "float64")]
    assert sorted(path.name for path in Path("out").iterdir()) == sorted(names)
    runs = json.loads(Path("sweep.json").read_text())["runs"]
    assert [Path(one["directory"]).name for one in runs] == names
    assert runs[1]["set"] == {"params.kappa": "0.5", "dtype": "float64"} and runs[1]["report"]["dtype"] == "float64"
    assert "1 of 4: kappa = 0.5, dtype = float32, in out/run-kappa=0.5-dtype=float32.oc" in text
    assert len(text.splitlines()[-4:]) == 4 and all(name in text.splitlines()[-4 + k] for k, name in enumerate(names))
    one = oc.Simulation("heat2", (8, 6, 10), directory="one.oc", dtype="float64", params={"kappa": 0.5},
                        init="random:2", **PLAIN)  # fmt: skip
    one.run(3, progress="none")
    np.testing.assert_array_equal(oc.open(runs[1]["directory"])["u"][...], one["u"][...])
    assert call(words) == 2
    assert "holds a run of heat2 at step 3" in capsys.readouterr().err


def test_an_interrupted_sweep_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    """Checks --continue: finished runs are left out, interrupted runs are resumed, and the others begin."""
    Path("heat.toml").write_text(FILE)
    assert call(["run", "heat.toml", "--set", "params.kappa=0.5,0.25", "--quiet"]) == 0
    part = open_state(Path("out/run-kappa=0.25.oc"))
    part.change(target_step=5)
    before = everything_below(Path("out/run-kappa=0.5.oc"))
    words = ["run", "heat.toml", "--set", "params.kappa=0.5,0.25,1", "--continue"]
    assert call([*words, "--json", "sweep.json"]) == 0
    reports = [one["report"] for one in json.loads(Path("sweep.json").read_text())["runs"]]
    assert reports[0] is None and (reports[1]["steps"], reports[2]["steps"]) == (2, 3)
    assert everything_below(Path("out/run-kappa=0.5.oc")) == before
    assert "finished earlier" in capsys.readouterr().out
    shutil.rmtree("out/run-kappa=1.oc")
    shutil.copytree("out/run-kappa=0.5.oc", "out/run-kappa=1.oc", symlinks=True)
    assert call(words) == 2
    assert "holds another run: its parameters differ" in capsys.readouterr().err.replace("differs", "differ")


def test_a_sweep_says_which_runs_have_nan(capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that the table of a sweep names the fields and the steps after which NaN or infinity was found, also for
    runs that --continue leaves out. With --quiet, a line on standard error does it, also for single runs.
    """
    words = ["run", "gray_scott_2d", "-n", "128", "96", "-t", "200", "-d", "run.oc", "--memory", "1MiB", "--bt", "50",
             "--init", "u=1.0"]  # fmt: skip
    swept = [*words, "--set", "init.v=0.1,random:1"]
    text = "NaN or infinity in u, v, found after "
    assert call(swept) == 0
    fine, wild = capsys.readouterr().out.splitlines()[-2:]
    assert fine.endswith("cell/s") and wild.endswith(f"cell/s; {text}steps 1 to 50")
    assert call([*swept, "--continue"]) == 0
    fine, wild = capsys.readouterr().out.splitlines()[-2:]
    assert fine.endswith("finished earlier") and wild.endswith(f"finished earlier; {text}step 50")
    assert call([*swept, "--force", "--quiet"]) == 0
    assert capsys.readouterr() == ("", f"outcrop: note: init.v = random:1: {text}steps 1 to 50\n")
    assert call([*swept, "--continue", "--quiet"]) == 0
    assert capsys.readouterr() == ("", f"outcrop: note: init.v = random:1: {text}step 50\n")
    assert call([*words, "--init", "v=random:1", "--quiet"]) == 0
    assert capsys.readouterr() == ("", f"outcrop: note: run.oc: {text}steps 1 to 50\n")
    assert call(["resume", "run.oc", "-t", "9", "--quiet"]) == 0
    assert capsys.readouterr() == ("", f"outcrop: note: run.oc: {text}steps 201 to 209\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "params.kappa"], "write KEY=VALUE,VALUE"),
        (["--set", "params.kappa="], "write KEY=VALUE"),
        (["--set", "params.kappa=1,,2"], "an empty value"),
        (["--set", "params.kappa=1,1"], "the same value twice"),
        (["--set", "params.kappa=1", "--set", "params.kappa=2"], "is given twice"),
        (["--set", "kappa=1"], "cannot be set in a sweep; there are params.NAME"),
        (["--set", "directory=a,b"], "cannot be set in a sweep"),
        (["--set", "params.none=1"], "none"),
        (["--set", "params.kappa=0.5,x"], "not a number"),
        (["--set", "steps=3,x"], "not a whole number"),
        (["--set", "in_place=maybe"], "write true or false"),
        (["--set", "params.dt=0.01,9"], "outcrop: dt = 9: dt=9 is unstable"),
        (["--set", f"params.kappa={','.join(map(str, range(200)))}", "--set", f"bt={','.join(map(str, range(1, 99)))}"],
         "at most 10000"),
        (["--set", "params.kappa=1", "--save", "x.toml"], "leave out --set"),
        (["--continue"], "--continue is for sweeps"),
    ],
)  # fmt: skip
def test_a_wrong_sweep_is_refused_before_anything_runs(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("heat.toml").write_text(FILE)
    assert call(["run", "heat.toml", *words]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not Path("out").exists()


@pytest.mark.parametrize("words", [["--set", "params.kappa=1,2"], ["--set=params.kappa=1,2"]])
def test_a_plan_of_a_sweep_is_refused_with_what_to_write(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path("heat.toml").write_text(FILE)
    assert call(["plan", "heat.toml", *words]) == 2
    text = "a sweep is planned one run at a time; give one value, such as --param kappa=0.5; see outcrop plan --help"
    assert capsys.readouterr().err == f"outcrop: --set: {text}\n"
    assert call(["plan", "heat.toml", "--param", "kappa=0.5"]) == 0


def test_directories_of_a_sweep_are_different_and_valid() -> None:
    """Checks the names of the directories of a sweep. Values may have characters that the names must not have, a run
    may have several directories, and names may be too long."""
    given = {"stencil": "heat2", "shape": "8 6 10", "steps": 2, "directory": [Path("a/run.oc"), Path("b/run.oc")]}
    found = variants(given, ["boundary=x=periodic,z=mirror;x=periodic:periodic,z=mirror", "memory=1 MiB,2MiB"])
    places = [one.directory for one in chosen_options(found)]
    assert len({tuple(place) for place in places}) == 4
    assert places[0] == [f"{one}/run-boundary=x=periodic_z=mirror-memory=1_MiB.oc" for one in "ab"]
    same = chosen_options(variants(given, ["memory=1 MiB,1_MiB"]))
    assert [Path(one.directory[0]).name for one in same] == ["run-memory=1_MiB-1.oc", "run-memory=1_MiB-2.oc"]
    long = chosen_options(variants(given, [f"params.kappa={0.1:.130f},0.2"]))
    assert [Path(one.directory[0]).name for one in long] == ["run-0001.oc", "run-kappa=0.2.oc"]
    assert run_options(found[0].given).boundary == "x=periodic,z=mirror"


def test_a_sweep_with_an_unstable_run_begins_no_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that the stability of all runs is tested before the first run, also if the model comes from a file."""
    np.save("v.npy", np.linspace(1500, 3500, 16 * 16).reshape(16, 16))
    words = ["run", "acoustic8_2d", "-n", "16", "16", "-t", "2", "--init", "v=v.npy", "--memory", "16MiB", "--quiet"]
    assert call([*words, "-d", "run.oc", "--set", "params.dt=0.0008,0.005"]) == 2
    assert "outcrop: dt = 0.005: dt=0.005 is unstable" in capsys.readouterr().err
    assert not list(Path().glob("*.oc"))
