"""Check that each example of the README and the manual runs and prints the output that the page shows."""

import os
import re
import runpy
import shlex
import subprocess
import sys
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import outcrop as oc
from outcrop.run.report import Report

ROOT = Path(__file__).parent.parent
OUTPUTS = runpy.run_path(str(ROOT / "scripts" / "outputs.py"))
PAGES = OUTPUTS["pages"]()
EXAMPLES = [example for page in PAGES for example in OUTPUTS["examples"](page)]
NAMES = (
    "run|plan|resume|watch|info|verify|plot|view|export|gather|stencils|tiers|bench|completion|agg simulate|"
    "agg merge|agg bench"
)
COMMANDS = rf"\boutcrop ({NAMES})\b([^`\n]*)"


def shown(page: Path) -> str:
    """Return the text of a page without HTML comments, which readers do not see."""
    return re.sub(r"<!--.*?-->", "", page.read_text(), flags=re.S)


def python_blocks(page: Path) -> list[str]:
    """Return the text of each ```python block of a page, in order."""
    return re.findall(r"^```python\n(.*?)^```", shown(page), flags=re.M | re.S)


@pytest.mark.parametrize("page", [page for page in PAGES if python_blocks(page)], ids=lambda page: page.name)
def test_examples_run_in_order(page: Path, tmp_path: Path) -> None:
    """Checks that all blocks of a page run as one program in an empty directory, without an error."""
    blocks = python_blocks(page)
    for package in ("zarr", "devito", "jax", "torch"):  # zarr and jax need Python 3.11; the other packages are optional
        if not find_spec(package):
            blocks = [block for block in blocks if f"import {package}" not in block]
    program = "\n".join(blocks)
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("example", EXAMPLES, ids=[f"{one.page.name}-{one.command}" for one in EXAMPLES])
def test_examples_show_what_is_printed(example: Any) -> None:
    """Checks that the lines below each command are the output of this command. Figures that depend on the machine may
    differ.
    """
    assert OUTPUTS["differences"](example) == []


def test_the_shot_of_a_file_of_options_runs(tmp_path: Path) -> None:
    """Checks that the complete TOML file of a shot runs with the files that the page writes, and that the pictures show
    the direct wave and the reflection."""
    page = ROOT / "docs" / "how-to" / "sources.md"
    section = shown(page).partition("## Run a shot from a file of options")[2].partition("\n## ")[0]
    (program,) = re.findall(r"^```python\n(.*?)^```", section, flags=re.M | re.S)
    (options,) = re.findall(r"^```toml\n(.*?)^```", section, flags=re.M | re.S)
    (tmp_path / "shot.toml").write_text(options)
    commands = [line[2:].replace("outcrop", "-m outcrop", 1) for line in section.splitlines() if line.startswith("$ ")]
    assert len(commands) == 3
    for words in (["-c", "import numpy as np, outcrop as oc\n" + program], *map(shlex.split, commands)):
        done = subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
    record = abs(oc.open(tmp_path / "shot2d.oc").traces["line"])
    assert record.shape == (800, 88)
    near = record[:, 24]  # the receiver at the source; the reflection arrives 0.54 s after the direct wave
    assert near[:200].max() > 20 and near[250:500].max() < 0.02 and near[550:].max() > 0.1
    assert {"record.png", "wave.png"} <= {path.name for path in tmp_path.iterdir()}


def test_the_script_that_starts_or_continues_a_run_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks three starts of the script: the first ends early, the second computes the rest, the third nothing."""
    section = shown(ROOT / "docs" / "how-to" / "run-from-python.md").partition("## Start a run, or continue it")[2]
    program = re.findall(r"^```python\n(.*?)^```", section, flags=re.M | re.S)[0]
    assert "steps = 60" in program
    monkeypatch.chdir(tmp_path)
    found = []
    for text in (program.replace("steps = 60", "steps = 25"), program, program):
        exec(text, {"oc": oc})
        manifest = Path("long.oc/manifest.json").read_bytes()
        found.append((oc.open("long.oc").step, manifest))
    assert [step for step, _ in found] == [25, 60, 60] and found[1] == found[2]


def test_an_example_that_shows_something_else_is_found(tmp_path: Path) -> None:
    """Checks that the comparison of outputs detects a wrong figure and an additional line, and ignores paths and
    figures that depend on the machine.
    """
    right = next(one for one in EXAMPLES if one.page.name == "errors.md")
    assert OUTPUTS["differences"](right._replace(shown=[right.shown[0].replace("1620", "1621")]))
    assert OUTPUTS["differences"](right._replace(shown=[*right.shown, "another line"]))
    assert OUTPUTS["form"]("dram  28.6 GB/s 158 ns at /home/me") == "dram # # at /"


def test_commands_and_options_named_exist() -> None:
    """Checks that each `outcrop COMMAND` and each option in README and manual exists."""
    helps: dict[str, str] = {}
    for page in PAGES:
        for command, rest in re.findall(COMMANDS, shown(page)):
            if command not in helps:
                done = subprocess.run(
                    [sys.executable, "-m", "outcrop.cli.main", *command.split(), "--help"],
                    capture_output=True,
                    text=True,
                    env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"},
                )
                assert done.returncode == 0, f"{page.name}: outcrop {command} --help: {done.stderr}"
                helps[command] = done.stdout
            for option in re.findall(r"(?<=\s)(--?[a-z][a-z-]*)", rest.split("#")[0]):
                assert option in helps[command], f"{page.name}: outcrop {command} has no {option}"


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in ("README.md", "index.md")], ids=str)
def test_pages_say_whom_they_are_for(page: Path) -> None:
    """Checks that the first line after the title names the readers of the page."""
    title, reader = page.read_text().split("\n\n")[:2]
    assert title.startswith("# ") and reader.startswith("This page is for ")


def anchors(page: Path) -> set[str]:
    """Return the names of the headings of a page, in the form that links use."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    headings = re.findall(r"^#+ (.*)$", text, flags=re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    """Checks that the target of each relative link in the README, the manual and ARCHITECTURE.md exists."""
    for link in re.findall(r"\]\((?!\w+:)([^)\s]+)\)", shown(page)):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {link}"
        assert not anchor or anchor in anchors(target), f"{page.name} links to {link}: there is no such heading"


def test_the_glossary_is_short_and_has_each_word_once() -> None:
    """Checks that the glossary has at most 65 words, and each word only once."""
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", (ROOT / "docs" / "glossary.md").read_text(), flags=re.M)
    words = [word for row in rows if row != "word" for word in row.split(", ")]
    assert 40 < len(words) <= 65 and len(words) == len(set(words))


def test_every_figure_of_a_report_is_explained() -> None:
    """Checks that the page about reports contains each key of the JSON."""
    page = (ROOT / "docs" / "reference" / "report.md").read_text()
    assert not [field.name for field in fields(Report) if f"`{field.name}`" not in page]


def test_the_page_of_options_is_what_the_options_say() -> None:
    """Checks that the page of options equals the page that `scripts/options_page.py` writes."""
    script = runpy.run_path(str(ROOT / "scripts" / "options_page.py"))
    assert script["PAGE"].read_text() == script["page"](), "run scripts/options_page.py"


def test_the_map_names_only_files_that_exist() -> None:
    """Checks that each path in ARCHITECTURE.md exists in the repository, the package or the core."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    roots = (ROOT, ROOT / "src" / "outcrop", ROOT / "core" / "outcrop")
    paths = [path for path in re.findall(r"`([\w./-]+)`", text) if "/" in path]
    assert len(paths) > 20
    assert not [path for path in paths if not any((root / path).exists() for root in roots)]
