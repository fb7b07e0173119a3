"""Check that the documents show the pictures that scripts/screens.py makes, and that each picture has a text."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
SCREENS = runpy.run_path(str(ROOT / "scripts" / "screens.py"))
OUTPUTS = runpy.run_path(str(ROOT / "scripts" / "outputs.py"))
MAX_BYTES = 1_000_000
"""The maximum size of all pictures together."""


def shown() -> list[tuple[Path, str, str]]:
    """Return the page, the text and the file of each picture in the documents."""
    found = []
    for page in OUTPUTS["pages"]():
        text = re.sub(r"<!--.*?-->", "", page.read_text(), flags=re.S)
        found += [(page, alt, name) for alt, name in re.findall(r"!\[(.*?)\]\(([^)\s]+)\)", text, flags=re.S)]
    return found


def test_the_script_makes_the_pictures_of_the_documents() -> None:
    """Checks that the table of the script and the documents name the same files. The folder docs/ must have no other
    pictures."""
    files = {(page.parent / name).resolve() for page, _, name in shown()}
    assert files == {DOCS / name for name in SCREENS["PICTURES"]}
    there = {path for path in DOCS.rglob("*.*") if path.suffix in (".png", ".gif", ".svg", ".jpg")}
    assert files == {path for path in there if "_build" not in path.parts}


def test_each_picture_has_a_text_that_says_what_it_shows() -> None:
    for page, alt, name in shown():
        assert len(alt.split()) >= 5, f"{page.name}: {name} needs a text for readers who do not see the picture"


def test_the_pictures_are_small() -> None:
    assert sum((DOCS / name).stat().st_size for name in SCREENS["PICTURES"]) < MAX_BYTES


def test_a_picture_is_made_by_its_command(tmp_path: Path) -> None:
    """Checks two pictures that need no browser: they are PNG files with at most 256 colours, and not empty."""
    from PIL import Image

    for name in ("plan.png", "ladder.png"):
        SCREENS["PICTURES"][name](tmp_path / name)
        with Image.open(tmp_path / name) as image:
            assert image.format == "PNG" and image.mode == "P" and min(image.size) > 500
            assert len(image.getcolors()) > 10


def test_names_and_missing_programs_are_named(tmp_path: Path) -> None:
    """Checks that an unknown name is refused, and that one line reports a missing browser."""
    script = [sys.executable, str(ROOT / "scripts" / "screens.py")]
    wrong = subprocess.run([*script, "none.png"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "there is no picture none.png; there are: " in wrong.stderr
    environment = {"PATH": str(tmp_path), "PYTHONPATH": ":".join(filter(None, sys.path))}
    lacking = subprocess.run([*script, "watch.png"], capture_output=True, text=True, env=environment)
    assert lacking.returncode == 0 and lacking.stderr.count("\n") == 1
    assert "watch.png: left out; to make them: apt-get install chromium" in lacking.stderr
