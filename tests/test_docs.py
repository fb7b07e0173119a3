"""Protects the reader who copies from the README and the manual: every Python example there runs as it stands."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS = r"\boutcrop (run|plan|resume|info|verify|plot|tiers|bench|agg simulate|agg merge|agg bench)\b([^`\n]*)"


def python_blocks(page: Path) -> list[str]:
    """The text of every ```python block of a page, in order."""
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.M | re.S)


@pytest.mark.parametrize("page", [page for page in PAGES if python_blocks(page)], ids=lambda page: page.name)
def test_examples_run_in_order(page: Path, tmp_path: Path) -> None:
    """All blocks of a page, run as one program in an empty directory, end without an error."""
    blocks = python_blocks(page)
    if not find_spec("zarr"):  # needs Python 3.11
        blocks = [block for block in blocks if "import zarr" not in block]
    if not find_spec("devito"):  # an extra
        blocks = [block for block in blocks if "import devito" not in block]
    program = "\n".join(blocks)
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_commands_and_options_named_exist() -> None:
    """Every `outcrop COMMAND` and option that README and manual name is one that the command line knows."""
    helps: dict[str, str] = {}
    for page in PAGES:
        for command, rest in re.findall(COMMANDS, page.read_text()):
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
