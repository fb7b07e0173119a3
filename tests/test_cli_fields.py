"""Check the command line with stencils of several fields, and on grids of one and two axes."""

import os
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

import outcrop as oc
from folders import everything_below
from initial_values import initial_values
from outcrop.cli.main import call
from outcrop.errors import InputError
from outcrop.language.library.table import FAMILIES, Family
from outcrop.language.symbols import Signal
from outcrop.run.inputs.initial import values_by_name


def waves() -> oc.Stencil:
    u, m = oc.Field("u"), oc.Field("m")
    return oc.Stencil("waves", {u: 2 * u[0, 0, 0] - u.previous[0, 0, 0] + m[0, 0, 0] * u[0, 0, 1]})


def flat() -> oc.Stencil:
    a, b = oc.Field("a"), oc.Field("b")
    return oc.Stencil("flat", {a: a[0, 0] + b[0, 1], b: b[0, 0] / 2})


def pushed() -> oc.Stencil:
    u = oc.Field("u")
    return oc.Stencil("pushed", {u: u[0] / 2 + Signal("w")})


@pytest.fixture(autouse=True)
def own_stencils(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a current directory with input files, and add stencils to the library."""
    monkeypatch.chdir(tmp_path)
    for maker in (waves, flat, pushed):
        monkeypatch.setitem(FAMILIES, maker.__name__, Family(maker))
    np.save("model.npy", np.ones((6, 5, 4)))
    np.save("small.npy", np.ones((5, 5, 4)))
    np.save("a=b.npy", np.ones((6, 5, 4)))


RUN = ["-t", "3", "-d", "run.oc", "--memory", "1MiB"]
SIZE = ["-n", "4", "5", "6"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "waves", *SIZE, *RUN], r"waves reads m, which has no values; .*--init m=NUMBER or m=FILE"),
        (["run", "waves", *SIZE, *RUN, "--init", "u=gaussian"], "waves reads m"),
        (
            ["run", "waves", *SIZE, *RUN, "--init", "model.npy"],
            "several fields; write --init NAME=model.npy.*u, u.prev",
        ),
        (["run", "waves", *SIZE, *RUN, "--init", "q=zeros"], "waves has no field 'q'; there are: u, u.previous, m"),
        (["run", "waves", *SIZE, *RUN, "--init", "m=zeros", "--init", "m=model.npy"], "m is given twice"),
        (["run", "waves", *SIZE, *RUN, "--init", "m=small.npy"], r"small.npy has shape \(5, 5, 4\).*\(6, 5, 4\)"),
        (["run", "waves", *RUN, "--init", "m=gaussian"], "gaussian needs the size of the grid: give -n NX NY NZ"),
        (["run", "flat", *SIZE, *RUN], r"-n 4 5 6: flat is for grids of two axes \(ny, nx\); write -n NX NY"),
        (["run", "flat", *RUN, "--init", "a=model.npy"], r"model.npy has shape \(6, 5, 4\); flat is for .*two axes"),
        (["run", "flat", *RUN], "give -n NX NY"),
        (["run", "flat", "-n", "4", "5", *RUN, "--boundary", "y=mirror,z=periodic"], "no z beside y"),
        (["run", "pushed", "-n", "9", *RUN], "signal 'w' of pushed has no values"),
    ],
)
def test_bad_input_is_one_line_and_makes_nothing(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = everything_below(tmp_path)
    assert call(words) == 2
    output = capsys.readouterr()
    assert output.out == "" and output.err.count("\n") == 1
    assert re.search(message, output.err), output.err
    assert everything_below(tmp_path) == before


def test_values_are_asked_for_by_name_and_need_none_for_one_field() -> None:
    assert values_by_name(["u=gaussian", "m=model.npy"], waves()) == {"u": "gaussian", "m": "model.npy"}
    assert values_by_name(["u.previous=random:3"], waves()) == {"u.previous": "random:3"}
    assert values_by_name(None, flat()) == {}
    assert values_by_name(["gaussian"], pushed()) == values_by_name(["u=gaussian"], pushed()) == {"u": "gaussian"}
    assert values_by_name(["a=b.npy"], pushed()) == {"u": "a=b.npy"}, "a file may have = in its name"
    with pytest.raises(InputError, match="no field 'a'"):
        values_by_name(["a=c.npy"], pushed())


def test_the_grid_has_the_size_of_any_file(tmp_path: Path) -> None:
    """Checks that the file of any field can define the size of the grid. An initial value that is only a number defines
    no size, and all cells get this number."""
    shape, sources = initial_values(["u=gaussian", "m=model.npy"], None, waves())
    assert shape == (6, 5, 4) and {name: source.shape for name, source in sources.items()} == dict.fromkeys("um", shape)
    assert initial_values(["a=zeros"], "9 7", flat())[0] == (7, 9)
    np.save("thin.npy", np.ones((1, 7, 9)))
    for text, words in [
        ("m=model.npy@resample", r"model.npy@resample' needs the size of the grid: give shape=\(nz, ny, nx\)"),
        ("a=model.npy@resample:zyx", r"give shape=\(ny, nx\)$"),
        ("a=thin.npy", r"shape \(1, 7, 9\); flat is for grids of two axes .*; give shape=\(ny, nx\), and write FILE@"),
    ]:
        with pytest.raises(InputError, match=words):
            initial_values([text], None, flat() if text.startswith("a") else waves())


def test_each_field_s_file_is_fitted_to_the_grid() -> None:
    """Checks that files with values of fields may have other sizes and fewer axes than the grid."""
    section = np.arange(20.0).reshape(4, 5)
    np.save("section.npy", section)
    shape, sources = initial_values(["u=model.npy", "m=section.npy@resample:xz"], "4 5 6", waves())
    assert shape == (6, 5, 4) and sources["m"].shape == shape
    assert np.array_equal(sources["m"].planes(0, 6)[[0, -1], 2], section.T[[0, -1]])
    shape, sources = initial_values(["a=section.npy", "b=section.npy@resample:yx"], None, flat())
    assert shape == (4, 5) and np.array_equal(sources["b"].planes(0, 4), section)


def test_info_verify_and_plot_know_all_fields(capsys: pytest.CaptureFixture[str]) -> None:
    simulation = oc.Simulation(
        "waves", (6, 5, 4), directory="run.oc", memory="1MiB", boundary="x=periodic", unstable=True
    )
    simulation["u"] = np.random.default_rng(1).random((6, 5, 4))
    assert call(["info", "run.oc"]) == 0
    said = capsys.readouterr().out
    assert "fields   u, u.previous (no values yet), m (only read, no values yet)" in said
    assert "boundary z=fixed,y=fixed,x=periodic" in said and "5 arrays" in said
    assert call(["plot", "run.oc", "-o", "x.png", "--field", "m"]) == 2
    assert "no values of m yet" in capsys.readouterr().err
    simulation["m"] = 1
    assert call(["verify", "run.oc"]) == 0
    assert "all 14 checksums" in capsys.readouterr().out
    sizes = set()
    for field in ([], ["--field", "m"]):
        assert call(["plot", "run.oc", "-o", "x.png", *field]) == 0
        assert "z = 3" in capsys.readouterr().out
        sizes.add(os.path.getsize("x.png"))
    assert len(sizes) == 2, "two fields give two pictures"
    for words, message in [
        (["run.oc", "--field", "q"], "no field 'q'; there are: u, u.previous, m"),
        (["model.npy", "--field", "u"], "--field u: model.npy is not a run"),
    ]:
        assert call(["plot", *words, "-o", "y.png"]) == 2
        assert re.search(message, capsys.readouterr().err)
    assert not Path("y.png").exists()


def test_coordinates_are_shown_and_drawn(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that `outcrop info` shows the coordinates of a run, and that the axes of pictures have the units of the
    coordinates."""
    simulation = oc.Simulation(
        "flat", (30, 20), directory="run.oc", memory="1MiB", spacing=(2.5, 5), origin=(0, 100), units="m"
    )
    simulation["a"] = 1
    assert call(["info", "run.oc"]) == 0
    assert "cells    5 x 2.5 m apart, the first at 100 x 0" in capsys.readouterr().out
    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure.axes[0]))
    assert call(["plot", "run.oc", "-o", "x.png"]) == 0
    assert (drawn[0].get_xlabel(), drawn[0].get_ylabel()) == ("x (m)", "y (m)")
    assert drawn[0].get_images()[0].get_extent() == [97.5, 197.5, -1.25, 73.75]


@pytest.mark.parametrize(("stencil", "shape"), [("flat", (30, 20)), ("pushed", (50,))])
def test_grids_of_fewer_axes_are_described_and_drawn_as_what_they_are(
    stencil: str, shape: tuple[int, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    signals = {"w": np.zeros(8)} if stencil == "pushed" else None
    simulation = oc.Simulation(stencil, shape, directory="run.oc", memory="1MiB", boundary="periodic", signals=signals)
    name = simulation.stencil.fields[0].name
    simulation[name] = "random:1"
    assert call(["info", "run.oc"]) == 0
    said = capsys.readouterr().out
    assert "boundary periodic" in said
    assert ("20 x 30 cells (x, y)" if stencil == "flat" else "50 cells (x)") in said
    assert ("signals  w (8 steps)" in said) == (signals is not None)
    assert call(["plot", "run.oc", "-o", "x.png"]) == 0
    assert Path("x.png").read_bytes().startswith(b"\x89PNG")
    assert call(["plot", "run.oc", "-o", "x.png", "--slice", "z=1"]) == 2
    assert "nothing to cut" in capsys.readouterr().err
