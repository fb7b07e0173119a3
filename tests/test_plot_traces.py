"""Check the pictures of traces (`outcrop plot --traces`) and the option --down."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import outcrop as oc
import shots
from outcrop.cli import traces
from outcrop.cli.main import call
from outcrop.run.acquisition.views import Traces

STEPS = 20


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Make an unfinished shot with 9 receivers in a line, and one more receiver."""
    where = tmp_path_factory.mktemp("traces") / "run.oc"
    shots.make(where).run(STEPS)
    yield where


def plot(run: Path, file: Path, *words: str) -> int:
    return call(["plot", str(run), "-o", str(file), *words])


@pytest.mark.parametrize("ending", [".png", ".svg"])
def test_many_receivers_are_an_image(
    ending: str, run: Path, tmp_path: Path, drawn: list[Figure], capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that the image has the values of the traces, with the receivers across and the time downwards, and that
    zero has the middle colour."""
    assert plot(run, tmp_path / f"a{ending}", "--traces", "line") == 0
    assert f"acoustic4, trace line, {STEPS} steps, values" in capsys.readouterr().out
    axes, bar = drawn[0].axes
    (image,) = axes.get_images()
    np.testing.assert_array_equal(image.get_array(), oc.open(run).traces["line"])
    first, last = axes.get_ylim()
    assert (first, last) == pytest.approx(((STEPS + 0.5) * shots.DT, 0.5 * shots.DT)), "time goes downwards"
    assert image.get_extent()[2] < image.get_extent()[3] and image.origin == "lower"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("receiver", "time (s)")
    assert image.norm(np.zeros(1)) == pytest.approx(0.5)
    assert bar.get_ylabel() == "u" and bar.yaxis.label.get_rotation() == 0, "a rotated u looks like another sign"


def test_few_receivers_are_lines(run: Path, tmp_path: Path, drawn: list[Figure]) -> None:
    """Checks the line of a single receiver and its limits."""
    assert plot(run, tmp_path / "a.pdf", "--traces", "before", "--limits", "-2,3") == 0
    (axes,) = drawn[0].axes
    (line,) = axes.get_lines()
    np.testing.assert_array_equal(line.get_ydata(), oc.open(run).traces["before"][:, 0])
    assert list(np.asarray(line.get_xdata())) == pytest.approx([shots.DT * step for step in range(1, STEPS + 1)])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("time (s)", "u") and axes.get_ylim() == (-2.25, 3.25)


def test_without_dt_the_axis_has_steps(tmp_path: Path, drawn: list[Figure]) -> None:
    sim = oc.Simulation("heat7", (8, 8, 8), directory=tmp_path / "run.oc", memory="1MiB",
                        receivers=[oc.Receivers("one", "u", (3, 3, 3))])  # fmt: skip
    sim["u"] = 1.0
    assert plot(tmp_path / "run.oc", tmp_path / "a.png", "--traces", "one") == 2, "there is no step yet"
    sim.run(4)
    assert plot(tmp_path / "run.oc", tmp_path / "a.png", "--traces", "one") == 0
    assert drawn[0].axes[0].get_xlabel() == "step"


def test_a_large_trace_is_read_in_portions(
    run: Path, tmp_path: Path, drawn: list[Figure], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks a trace with more values than the picture has pixels. The trace is reduced, and few rows at a time are in
    memory."""
    read: list[int] = []
    rows = Traces.rows

    def counted(self: Any, name: str, first: int, end: int) -> Any:
        read.append(end - first)
        return rows(self, name, first, end)

    monkeypatch.setattr("outcrop.run.acquisition.views.Traces.rows", counted)
    monkeypatch.setattr(traces, "MAX_PIXELS", 5)
    monkeypatch.setattr(traces, "PORTION_BYTES", 8 * 9 * 8)
    assert plot(run, tmp_path / "a.png", "--traces", "line") == 0
    (image,) = drawn[0].axes[0].get_images()
    np.testing.assert_array_equal(image.get_array(), oc.open(run).traces["line"][::4, ::2])
    assert max(read) <= 8


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--traces", "lime"], "--traces 'lime': there are no traces with this name; there are: line, before"),
        (["--traces", "line", "--slice", "z=3"], "--traces line is not about --slice"),
        (["--traces", "line", "--step", "0"], "--traces line is not about --step"),
        (["--slice", "z=3", "--down", "z"], "--down 'z': this axis is not vertical in the picture; vertical is y"),
    ],
)
def test_wrong_options_are_refused(
    words: list[str], message: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plot(run, tmp_path / "a.png", *words) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and not (tmp_path / "a.png").exists()


def test_an_axis_can_point_down(run: Path, tmp_path: Path, drawn: list[Figure]) -> None:
    """Checks that --down turns only the panels whose vertical axis is the given axis, and changes no value."""
    words = ["--slice", "y=9", "--slice", "z=3"]
    assert plot(run, tmp_path / "a.png", *words) == 0 and plot(run, tmp_path / "b.png", *words, "--down", "z") == 0
    plain, turned = ([axes for axes in figure.axes if axes.get_images()] for figure in drawn)
    assert turned[0].get_ylim() == plain[0].get_ylim()[::-1] and turned[1].get_ylim() == plain[1].get_ylim()
    for one, other in zip(plain, turned, strict=True):
        np.testing.assert_array_equal(one.get_images()[0].get_array(), other.get_images()[0].get_array())
    movie = ["--snapshots", "u", "--gif", str(tmp_path / "a.gif"), "--down", "z"]
    assert call(["plot", str(run), *movie]) == 0
