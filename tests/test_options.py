"""Check the options of a run. An option has the same meaning as a keyword in Python, on the command line, in a file of
options, and in an existing run."""

import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outcrop as oc
from outcrop.cli.main import call
from outcrop.errors import InputError
from outcrop.plan.given_sizes import NAMES
from outcrop.run.options import GROUPS, SIZES, RunOptions, option_table
from outcrop.run.options_file import read_options, write_options

HEAT = """
[problem]
stencil = "heat7"
shape = [6, 8, 10]
steps = 3
params = { c0 = 0.4, c1 = 0.1 }
init = "random:3"
[resources]
memory = "16MiB"
[sizes]
bt = 2
[output]
directory = "run.oc"
"""


@pytest.fixture(autouse=True)
def own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def values(where: str = "run.oc") -> np.ndarray:
    return np.asarray(oc.open(where)["u"][:])


def run_by_keywords(where: str) -> np.ndarray:
    params = {"c0": 0.4, "c1": 0.1}
    sim = oc.Simulation("heat7", (6, 8, 10), params=params, init="random:3", memory="16MiB", directory=where, steps=3)
    sim.run()
    return values(where)


def test_a_file_is_the_same_run_as_words_and_keywords() -> None:
    """Checks that options in a file, on the command line and as keywords give the same bits. Options on the command
    line replace options in the file."""
    Path("heat.toml").write_text(HEAT)
    assert call(["run", "heat.toml", "--quiet"]) == 0
    words = ["-n", "10", "8", "6", "-t", "3", "--init", "random:3", "--param", "c0=0.4", "--param", "c1=0.1"]
    assert call(["run", "heat7", *words, "--memory", "16MiB", "-d", "words.oc", "--quiet"]) == 0
    np.testing.assert_array_equal(values(), values("words.oc"))
    np.testing.assert_array_equal(values(), run_by_keywords("keywords.oc"))
    assert call(["run", "heat.toml", "-t", "5", "-d", "longer.oc", "--bt", "5", "--slab", "2", "--quiet"]) == 0
    longer = json.loads(Path("longer.oc/manifest.json").read_bytes())
    assert (longer["step"], longer["settings"]["sizes"]) == (5, {"bt": 5, "slab": 2})
    assert call(["run", "heat.toml", "--param", "c0=0.1", "-d", "other.oc", "--quiet"]) == 0
    assert json.loads(Path("other.oc/manifest.json").read_bytes())["parameters"] == {"c0": 0.1, "c1": 0.1}


def test_a_time_step_on_the_command_line_replaces_the_one_in_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that --param dt and --set params.dt replace the option dt of a file. A file that gives both is refused."""
    text = '[problem]\nstencil = "heat2_2d"\nshape = [8, 8]\nsteps = 2\ndt = 0.1\n'
    Path("heat.toml").write_text(text)
    assert call(["run", "heat.toml", "--param", "dt=0.05", "-d", "run.oc", "--memory", "16MiB", "--quiet"]) == 0
    assert oc.open("run.oc").setup.description.parameters["dt"] == 0.05
    words = ["run", "heat.toml", "--set", "params.dt=0.02,0.04", "-d", "set.oc", "--memory", "16MiB", "--quiet"]
    assert call(words) == 0
    assert oc.open("set-dt=0.04.oc").setup.description.parameters["dt"] == 0.04
    Path("both.toml").write_text(text + "params = { dt = 0.2 }\n")
    assert call(["run", "both.toml", "--param", "dt=0.05", "-d", "both.oc", "--memory", "16MiB"]) == 2
    assert "are the same; give one of them" in capsys.readouterr().err


@pytest.mark.parametrize("params", ["5", '"c0=0.1"', '["c0=0.1"]'])
def test_parameters_of_a_file_must_have_names(params: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that wrong parameters in a file are refused with an error of one line, also if --param gives a further
    parameter."""
    Path("heat.toml").write_text(f'[problem]\nstencil = "heat2"\nshape = [6, 8, 10]\nsteps = 2\nparams = {params}\n')
    for words in ([], ["--param", "c1=0.1"]):
        assert call(["run", "heat.toml", "-d", "run.oc", *words]) == 2
        said = capsys.readouterr()
        assert said.out == "" and said.err.count("\n") == 1
        assert f"params {params} must be values by name, such as {{ dt = ... }}".replace('"', "'") in said.err


def test_what_was_saved_runs_again_and_is_never_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "heat7", "-n", "10", "8", "6", "-t", "3", "--init", "random:3", "-d", "first.oc", "--boundary"]
    assert call([*words, "x=periodic", "--memory", "16MiB", "--quiet", "--force", "--save", "saved.toml"]) == 0
    assert call(["run", "saved.toml", "-d", "second.oc", "--quiet"]) == 0
    np.testing.assert_array_equal(values("first.oc"), values("second.oc"))
    assert "force" not in Path("saved.toml").read_text(), "a file must not decide that a run is replaced"
    before = Path("saved.toml").read_bytes()
    assert call(["run", "saved.toml", "-d", "third.oc", "--quiet", "--save", "saved.toml"]) == 2
    assert "saved.toml is there already" in capsys.readouterr().err
    assert Path("saved.toml").read_bytes() == before
    assert not Path("third.oc").exists()


def test_points_and_values_come_from_files_too() -> None:
    """Checks that a file may define sources, receivers, snapshots and norms as Python does."""
    steps = 4
    np.save("wavelet.npy", np.linspace(1, 2, steps))
    Path("shot.toml").write_text("""
        [problem]
        stencil = "acoustic2"
        shape = [8, 9, 10]
        steps = 4
        init = { v = 1.0 }
        params = { dt = 0.1 }
        [[problem.sources]]
        field = "u"
        points = [4, 4, 4]
        values = "wavelet.npy"
        [[problem.receivers]]
        name = "line"
        field = "u"
        points = [[4, 4, 5], [4, 5, 4]]
        [output]
        directory = "file.oc"
        snapshots = { every = 2, box = [[0, 4], [0, 9], [0, 10]] }
        norms = { every = 2 }
    """)
    assert call(["run", "shot.toml", "--quiet"]) == 0
    sim = oc.Simulation(
        "acoustic2",
        (8, 9, 10),
        directory="keywords.oc",
        params={"dt": 0.1},
        sources=[oc.Source("u", [4, 4, 4], np.linspace(1, 2, steps))],
        receivers=[oc.Receivers("line", "u", [[4, 4, 5], [4, 5, 4]])],
        snapshots=oc.Snapshots(every=2, box=[slice(0, 4), slice(0, 9), slice(0, 10)]),
        norms=oc.Norms(every=2),
    )
    sim["v"] = 1.0
    sim.run(steps)
    told = oc.open("file.oc")
    assert np.any(sim.traces["line"])
    np.testing.assert_array_equal(told.traces["line"], sim.traces["line"])
    np.testing.assert_array_equal(told.snapshots["u"][:], sim.snapshots["u"][:])
    np.testing.assert_array_equal(told.norms["u"], sim.norms["u"])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[problem]", "[other]", r"\[other\] is unknown; there are \[problem\], \[resources\]"),
        ("[problem]", "[problems]", r"\[problems\] is unknown; did you mean problem\?"),
        ("steps = 3", "step = 3", r"problem\.step is unknown; did you mean steps\?"),
        ("steps = 3", "", "-t STEPS is missing"),
        ("steps = 3", "steps = 0", "steps 0 must be at least 1"),
        ("steps = 3", 'memory = "1GiB"', "problem.memory is unknown; there are stencil, shape"),
        ("bt = 2", "bt = 0", "bt 0 must be at least 1"),
        ("bt = 2", "sizes = { bt = 2 }", "sizes.sizes is unknown; there are"),
        ('stencil = "heat7"', "", "problem.stencil is missing"),
        ('directory = "run.oc"', "", "-d WHERE is missing"),
        ('directory = "run.oc"', 'directory = "run.oc"\nforce = true', "cannot be set in a file; give --force"),
        ('directory = "run.oc"', "snapshots = 3", "output.snapshots 3 must be a table"),
        ('directory = "run.oc"', "norms = { often = 3 }", "output.norms.often is unknown; there are every"),
        ('directory = "run.oc"', "norms = { }", "output.norms.every is missing"),
        ("[problem]", "[problem", "is not TOML"),
        ("shape = [6, 8, 10]", "shape = [6, 8]", "three axes"),
        ("shape = [6, 8, 10]", "", "random:3'? needs the size of the grid"),
        ('init = "random:3"', 'init = "missing.npy"', "no such file|cannot be read|No such file"),
        ('init = "random:3"', "signals = { w = 1 }", "has no signal"),
    ],
)
def test_what_a_file_cannot_say_is_one_line_and_makes_nothing(
    old: str, new: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that a wrong file of options is refused. The error names the file and the key, or the option that the user
    should use. No run is made."""
    assert old in HEAT
    Path("heat.toml").write_text(HEAT.replace(old, new))
    assert call(["run", "heat.toml"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert re.search(message, said), said
    assert not Path("run.oc").exists()


def test_options_without_a_file_form_are_refused_by_save(tmp_path: Path) -> None:
    options = RunOptions("heat7", (6, 8, 10), init={"u": np.zeros((6, 8, 10))})
    with pytest.raises(InputError, match="init cannot be written to a TOML file"):
        write_options(options, "arrays.toml")
    assert not Path("arrays.toml").exists()


def test_options_survive_their_file() -> None:
    """Checks that options do not change if they are written to a file and read again."""
    options = RunOptions(
        "acoustic2",
        [6, 8, 10],
        "float64",
        ["a.oc", "b.oc"],
        memory="2GiB",
        sizes={"bt": 4, "slab": 8},
        params={"dt": 0.1},
        sources=[oc.Source("u", [1, 2, 3], "w.npy", scale=2.0)],
        receivers=[oc.Receivers("r", "u", [[1, 2, 3]], before=True)],
        snapshots=[oc.Snapshots(every=2, name="a", box=[slice(0, 3)] * 3), oc.Snapshots(every=3, name="b", coarsen=2)],
        norms=oc.Norms(every=5, fields=["u"]),
        unstable=True,
        steps=10,
        init={"m": "model.npy@resample"},
    )
    write_options(options, "all.toml")
    told = RunOptions(**read_options("all.toml"))
    for name in option_table():
        ours, theirs = getattr(options, name), getattr(told, name)
        if isinstance(ours, (list, tuple)) and ours and hasattr(ours[0], "__dataclass_fields__"):
            assert [vars(one) for one in ours] == [vars(one) for one in theirs]
        else:
            assert ours == theirs, name


def test_each_option_is_told_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that the help text, the Python signature and the groups of options agree with the table of options."""
    table = option_table()
    assert set(SIZES) == set(NAMES)
    assert {one.group for one in table.values()} == set(GROUPS)
    assert list(inspect.signature(oc.Simulation).parameters) == list(table)
    assert call(["run", "--help"]) == 0
    said = capsys.readouterr().out
    for option in table.values():
        for flag in option.flags:
            assert flag in said
    for name in SIZES:
        assert f"--{name}" in said


def test_a_run_that_is_opened_goes_on_without_being_told_how_far() -> None:
    """Checks the number of steps that `run()` computes without an argument. This is the number in the options, or the
    number of remaining steps of an interrupted run. If both are unknown, the error asks for a number.
    """
    sim = oc.Simulation("heat7", (6, 8, 10), directory="run.oc", steps=3, init=1.0, memory="16MiB")
    assert sim.run().step == 3
    with pytest.raises(InputError, match=r"finished at step 3; say how many more steps, as in sim.run\(100\)"):
        sim.run()
    with pytest.raises(InputError, match="say how many"):
        oc.open("run.oc").run()
    assert sim.run(2).step == 5


def test_options_can_be_one_object() -> None:
    """Checks that `Simulation(options)` is equivalent to `Simulation(**options)`, and that the error for an unknown
    keyword names this keyword."""
    options = oc.RunOptions("heat7", (6, 8, 10), directory="run.oc", memory="16MiB")
    assert oc.Simulation(options).shape == (6, 8, 10)
    with pytest.raises(TypeError, match=r"Simulation\(\) got an unexpected keyword argument 'memmory'"):
        oc.Simulation("heat7", (6, 8, 10), memmory="16MiB")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda sim: oc.Simulation("heat7", (6, 8, 10), memmory="16MiB"), "'memmory'; did you mean memory?"),
        (lambda sim: oc.Simulation("heat7", stencil="heat7"), "multiple values for argument 'stencil'"),
        (lambda sim: sim.run(time_M=10), "write run(steps=...), the number of steps, which is time_M - time_m + 1"),
        (lambda sim: sim.run(10, dt=0.1), "give dt to oc.Simulation"),
        (lambda sim: sim.run(timesteps=10), "run() got an unexpected keyword argument 'timesteps'; did you mean st"),
        (lambda sim: sim.plan(budget=1), "plan() got an unexpected keyword argument 'budget'; there are steps"),
        (lambda sim: oc.open("run.oc", mem=1), "open() got an unexpected keyword argument 'mem'; did you mean memory?"),
    ],
)
def test_unknown_keywords_are_refused_in_one_line(call: Callable[[Any], object], message: str) -> None:
    """Checks that the error for an unknown keyword says what to write instead, and that no run is created."""
    sim = oc.Simulation("heat7", (6, 8, 10), directory="run.oc", memory="16MiB")
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        call(sim)
    assert isinstance(caught.value, TypeError) and not Path("run.oc").exists()


def test_values_of_init_yield_to_those_that_are_assigned() -> None:
    """Checks that a later assignment replaces the values of the option `init`, and that the grid gets its shape from
    the files in `init`.
    """
    np.save("start.npy", np.full((6, 8, 10), 2.0))
    sim = oc.Simulation("heat7", directory="run.oc", init="start.npy", memory="16MiB")
    assert sim.shape == (6, 8, 10)
    sim["u"] = 3.0
    sim.run(1)
    np.testing.assert_array_equal(values()[0], 3.0)
    with pytest.raises(InputError, match="holds nan"):
        np.save("wrong.npy", np.full((6, 8, 10), np.nan))
        oc.Simulation("heat7", directory="other.oc", init="wrong.npy", check_finite=True, steps=1).run()
    assert not Path("other.oc").exists()


def test_a_missing_file_of_values_names_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    """Checks the error for a source whose file of values is missing. It names the source, because a shot can have many
    sources."""
    source = '[[problem.sources]]\nfield = "u"\npoints = [4, 4, 4]\nvalues = "missing.npy"\n'
    shot = HEAT.replace("[resources]", f"{source}[resources]")
    Path("shot.toml").write_text(shot)
    assert call(["run", "shot.toml"]) == 2
    assert "source 0: values: missing.npy is not a file" in capsys.readouterr().err
