"""Check the texts and tables of objects, LaTeX of equations, progress in notebooks, and messages of the logger."""

import logging
import re
import shutil
import sys
import types
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

import outcrop as oc
from outcrop.display import MAX_CELL, MAX_ROWS, Described, as_html, as_text
from outcrop.language import mathematics
from outcrop.language.library.table import find_stencil
from outcrop.language.mathematics import equations
from outcrop.run.progress import Standing, make_progress
from outcrop.tiers.survey import memory_of_this_machine


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def parsed(text: str) -> _Tags:
    found = _Tags()
    found.feed(text)
    return found


@given(st.text(), st.lists(st.lists(st.text(), min_size=1, max_size=3), max_size=50))
def test_any_text_is_escaped_and_bounded(title: str, rows: list[list[str]]) -> None:
    """Checks that no text of a run becomes an HTML tag, and that the size of a table is bounded."""
    html = as_html(title, rows, below=title)
    assert set(parsed(html).tags) <= {"div", "b", "table", "tr", "th", "td", "p"}
    assert parsed(html).tags.count("tr") <= MAX_ROWS + 1
    text = as_text(title, rows)
    assert len(text.splitlines()) <= MAX_ROWS + 2 and all(len(line) < 4 * MAX_CELL for line in text.splitlines())
    assert "\x1b" not in text and "\x1b" not in html


def test_a_class_without_title_or_rows_cannot_make_objects() -> None:
    """Checks a class that does not define all parts of its text. The error must come when an object of this class is
    made, and not only when the object is printed.
    """

    class OnlyTitle(Described):
        def _title(self) -> str:
            return "title"

    class Whole(OnlyTitle):
        def _rows(self) -> list[tuple[str, str]]:
            return [("row", "text")]

    with pytest.raises(TypeError, match="_rows"):
        OnlyTitle()  # type: ignore[abstract]
    assert str(Whole()) == "title\n  row  text"


@pytest.fixture
def run(tmp_path: Path) -> oc.Simulation:
    sim = oc.Simulation(
        "acoustic4", (6, 7, 9), directory=tmp_path / "run.oc", memory="4MiB", snapshots=oc.Snapshots(2),
        norms=oc.Norms(2), receivers=[oc.Receivers("line", "u", [[20.0, 30.0, 40.0]])], spacing=10.0, units="<b>m</b>",
    )  # fmt: skip
    sim.assign({"u": "random:3", "v": 2000.0})
    return sim


def test_each_object_has_a_text_and_a_table_without_its_files(run: oc.Simulation) -> None:
    """Checks that each object still has a short text and a table after the files of the run were removed."""
    report, plan = run.run(4, progress="none"), run.plan(4)
    view, snapshots, history = run.snapshots["u"], run.snapshots, run.traces
    placement = oc.place({"psi": oc.ArraySpec((10, 20))}, tiers=memory_of_this_machine())
    shutil.rmtree(run.directory)
    cases: dict[str, Any] = {
        "step 4, generation 1": run, "dt = 0.001": run.stencil, "wavefront": plan, "cell/s with these sizes": plan,
        "1 pass": plan.plan, "measured": report, "capacity": memory_of_this_machine()[0], "psi": placement,
    }  # fmt: skip
    for word, one in cases.items():
        table = parsed(one._repr_html_())
        assert word in str(one)
        assert "table" in table.tags and len(one._repr_html_()) < 20_000
        assert len(str(one)) < 10_000 and "object at 0x" not in str(one)
    assert "&lt;b&gt;m&lt;/b&gt;" in run._repr_html_()
    assert repr(view) == "<snapshots of 'u' (3, 6, 7, 9) float32>" and repr(snapshots) == "<snapshots u>"
    assert "9 x 7 x 6" in snapshots._repr_html_() and "line" in history._repr_html_()
    assert "norms" in repr(run.norms) and "Norms up to step 4" in run.norms._repr_html_()


u, w, v = oc.Field("u"), oc.Field("sigma_x"), oc.Field("v")
kappa, dt = oc.Parameter("kappa", 0.5), oc.Parameter("dt", 1.0)
FORMULAS: list[tuple[Any, list[str]]] = [
    (
        {u: u[0] + kappa * dt * (u[1] - 2 * u[0] + u[-1])},
        [r"u^{n+1}_{x} = u^{n}_{x} + \mathrm{dt}\, \kappa\, \left(u^{n}_{x-1} - 2\, u^{n}_{x} + u^{n}_{x+1}\right)"],
    ),
    ({u: 2 * u[0] - u.previous[0] + v[2]}, [r"u^{n+1}_{x} = 2\, u^{n}_{x} - u^{n-1}_{x} + v_{x+2}"]),
    ({u: u[0] / (1 + v[0] ** 2)}, [r"u^{n+1}_{x} = \frac{u^{n}_{x}}{1 + {v_{x}}^{2}}"]),
    ({u: sympy.sqrt(abs(u[0])) * sympy.Max(u[1], 0.25)},
     [r"u^{n+1}_{x} = \sqrt{\left|u^{n}_{x}\right|}\, \max\left(\frac{1}{4},\, u^{n}_{x+1}\right)"]),
    ({u: sympy.exp(-u[0]) * sympy.atan2(u[0], u[1])},
     [r"u^{n+1}_{x} = \exp\left(-u^{n}_{x}\right)\, \operatorname{atan2}\left(u^{n}_{x}, u^{n}_{x+1}\right)"]),
    ({u: sympy.Piecewise((u[0] ** dt, sympy.Eq(u[1], 3)), (0, True))},
     [r"u^{n+1}_{x} = \begin{cases} {\left(u^{n}_{x}\right)}^{\mathrm{dt}} & \text{if } u^{n}_{x+1} = 3 \\ "
      r"0 & \text{otherwise} \end{cases}"]),
    (
        [{w: w[0, 0] - dt * u[0, 1]}, {u: u[0, 0] + w[1, 0]}],
        [r"{\sigma_{\mathrm{x}}}^{n+1}_{y,x} = {\sigma_{\mathrm{x}}}^{n}_{y,x} - \mathrm{dt}\, u^{n}_{y,x+1}",
         r"u^{n+1}_{y,x} = u^{n}_{y,x} + {\sigma_{\mathrm{x}}}^{n+1}_{y+1,x}"],
    ),
    (
        [{u: u[1]}, {u: u[0] * u.previous[0]}],
        [r"u^{n+1/2}_{x} = u^{n}_{x+1}", r"u^{n+1}_{x} = u^{n+1/2}_{x}\, u^{n}_{x}"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("updates", "formulas"), FORMULAS)
def test_the_equation_is_written_as_mathematics(updates: Any, formulas: list[str]) -> None:
    """Compares the formulas of small stencils: order, brackets, fractions, previous values, and several stages."""
    stencil = oc.Stencil("small", updates)
    assert stencil.latex == r"\begin{aligned} " + r" \\ ".join(one.replace(" = ", " &= ", 1) for one in formulas) + (
        r" \end{aligned}"
    )


@pytest.mark.parametrize("name", ["heat7", "heat8", "acoustic4_2d", "elastic2_2d", "maxwell", "gray_scott"])
def test_the_formulas_of_built_in_stencils_are_correct_latex(name: str) -> None:
    """Checks the syntax of the formulas with the parser of matplotlib. For example, two subscripts are an error."""
    from matplotlib.mathtext import MathTextParser

    stencil, parser = find_stencil(name), MathTextParser("path")
    found = equations(stencil)
    assert len(found) == sum(len(stage.targets) for stage in stencil.stages)
    for formula in found:
        parser.parse(f"${formula}$")


def test_long_formulas_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that long equations, and expressions that grow exponentially, give no formula."""
    value: Any = u[0] + 1
    for _ in range(6):
        value = sympy.sqrt(value + 1) * (value + 2)
    deep = oc.Stencil("deep", {u: value})
    assert len(deep.latex) > 1000
    monkeypatch.setattr(mathematics, "MAX_TERMS", 50)
    assert deep.latex == "" and "deep" in deep._repr_html_()
    assert find_stencil("heat7").latex and not find_stencil("heat16").latex


def notebook(monkeypatch: pytest.MonkeyPatch, kind: str) -> list[dict[str, str]]:
    """Let this process look like the kernel of a notebook. Return a list, to which each displayed object is added."""
    shown: list[dict[str, str]] = []

    class Place:
        def update(self, content: dict[str, str], raw: bool) -> None:
            shown.append(content)

    def display(content: dict[str, str], raw: bool, display_id: bool) -> Place:
        assert raw and display_id
        shown.append(content)
        return Place()

    base = type("ZMQInteractiveShell", (), {})
    package, module = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    package.get_ipython = type(kind, (base,), {})  # type: ignore[attr-defined]
    module.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return shown


@pytest.mark.parametrize("kind", ["ZMQInteractiveShell", "Shell"])
def test_a_notebook_shows_a_bar_and_keeps_a_summary(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Checks the progress bar in a notebook without ipywidgets. The notebook may be a local notebook or a hosted
    notebook.
    """
    shown = notebook(monkeypatch, kind)
    with make_progress("auto", 3, 10, 25, 1000) as progress:
        progress.show(Standing(1, 5, 500, 1 << 20, 1 << 20))
        assert "<progress max='1' value='0.500'>" in shown[-1]["text/html"] and "step 15/25" in shown[-1]["text/plain"]
        progress.show(Standing(3, 15, 1000, 1 << 20, 1 << 20))
    assert len(shown) == 3
    summary = r"<div>step 25/25 after [\d.]+ s, .*cell/s, read .*B/s, write .*B/s</div>"
    assert re.fullmatch(summary, shown[-1]["text/html"])
    with make_progress("none", 3, 10, 25, 1000) as progress:
        progress.show(Standing(1, 5, 500, 0, 0))
    assert len(shown) == 3


def test_a_run_in_a_notebook_ends_with_its_last_step(monkeypatch: pytest.MonkeyPatch, run: oc.Simulation) -> None:
    """Checks that a run in a notebook ends with a summary of its last step. A display that fails must not stop the run.
    """
    shown = notebook(monkeypatch, "ZMQInteractiveShell")
    run.run(4)
    assert shown[-1]["text/plain"].startswith("step 4/4 after")
    monkeypatch.setitem(sys.modules, "IPython.display", None)
    assert run.run(2).step == 6


def test_the_logger_reports_passes_commits_and_failures(
    run: oc.Simulation, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Checks the messages of a run, and that nothing is printed without a handler."""
    assert any(isinstance(one, logging.NullHandler) for one in logging.getLogger("outcrop").handlers)
    with caplog.at_level(logging.INFO, "outcrop"):
        run.run(4, progress="none")
    text = caplog.text
    assert "acoustic4 from step 0: 4 steps in 1 pass," in text
    assert re.search(r"pass 1 of 1, committed step 4 as generation 1 in [\d.]+ s", text)
    caplog.clear()
    next(Path(run.directory).glob(".u.1/c/0/0/0")).unlink()
    with caplog.at_level(logging.WARNING, "outcrop"), pytest.raises(oc.errors.StorageError):
        run.run(4, progress="none")
    assert capfd.readouterr().err == ""
