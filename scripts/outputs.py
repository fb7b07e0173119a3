"""Update the outputs of commands in README.md and in the pages of docs/.

    python scripts/outputs.py          Rewrite the pages whose outputs have changed, and print the names of these pages.

An example is a line with a prompt in a fenced block, followed by its output:

    ```console                         ```pycon
    $ outcrop plan ...                 >>> print(plan.explain())
    output                             output (all Python blocks above it on the page run first)
    ```                                ```

A line `...` replaces omitted lines. The script does not run commands without output on the page, and commands of other
programs. If a command ends with `# on one machine`, its output has figures and names of one machine. The script does
not change an output of one machine. tests/test_docs.py compares all examples with the output of the commands. For an
output of one machine, tests/test_docs.py first calls `form`, which removes the parts that differ between machines.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from outcrop.tiers.survey import find_tiers

ROOT = Path(__file__).parent.parent
PROMPTS = {"console": "$ ", "pycon": ">>> "}
OMITTED = "..."
ONE_MACHINE = "# on one machine"
MARK = "output of the example"

KNOWN_FIGURES = """
from outcrop.tiers import survey
from outcrop.tiers.tier import Figures
from outcrop.user_cache import keep_figures

for tier in survey.find_tiers():
    memory, storage = (29e9, 30e9, 4e9, 8e9, 36e9, 2e-7, 2e-7, None), (3e9, 5e9, 2e8, 3e8, None, 6e-5, 6e-5, 3e-4)
    figures = Figures("measured", *(memory if tier.is_memory else storage))
    keep_figures(survey.CACHE, {survey._key(tier): figures})
"""
"""A program that caches figures for all tiers, so that the commands of the examples do not measure."""
STORAGE_SHOWN = "vda"
"""The name of the storage tier that the examples show."""

_UNIT = r"(?:[KMGT]?i?B/s|[KMGT]iB|[KMG]?cell/s|B|ns|us|ms|s|min|h|%)"
_FIGURE = re.compile(rf"(?<![\w/.-])\d[\d.]*(?: ?{_UNIT}(?![\w]))?")
_CACHED = re.compile(r"cached(, measured [^;]*)?")
_PATH = re.compile(r"(?<![\w.])/[\w./-]*")


class Example(NamedTuple):
    """A command, and the output that the page shows. The output starts at line `first` of the page. Lines are counted
    from 0."""

    page: Path
    first: int
    command: str
    shown: list[str]
    is_python: bool

    @property
    def of_one_machine(self) -> bool:
        """True if the output differs between machines."""
        return self.command.endswith(ONE_MACHINE)

    @property
    def name(self) -> str:
        """The place of the example in messages: the file of the page, and the line of the command, counted from 1."""
        return f"{self.page.name}:{self.first}"


def pages() -> list[Path]:
    docs = ROOT / "docs"
    return [ROOT / "README.md", *sorted(page for page in docs.rglob("*.md") if docs / "_build" not in page.parents)]


def blocks(page: Path) -> Iterator[tuple[str, int, list[str]]]:
    """Yield every fenced block of the page: its language, the number of its first line, and its lines."""
    language, first, inside = "", 0, False
    lines = page.read_text().splitlines()
    for number, line in enumerate(lines):
        if line.startswith("```"):
            if inside:
                yield language, first, lines[first:number]
            inside, language, first = not inside, line[3:].strip(), number + 1


def examples(page: Path) -> Iterator[Example]:
    for language, first, lines in blocks(page):
        prompt = PROMPTS.get(language)
        if prompt is None:
            continue
        starts = [number for number, line in enumerate(lines) if line.startswith(prompt)]
        for start, end in pairwise([*starts, len(lines)]):
            command, shown = lines[start][len(prompt) :], lines[start + 1 : end]
            if any(shown) and (language == "pycon" or command.startswith("outcrop ")):
                yield Example(page, first + start + 1, command, shown, language == "pycon")


def printed(example: Example) -> list[str]:
    """Run the command of an example in an empty folder with an empty cache, and return the lines of its output."""
    with tempfile.TemporaryDirectory(prefix="outcrop-docs-") as folder:
        environment = {**os.environ, "XDG_CACHE_HOME": f"{folder}/cache", "COLUMNS": "200", "NO_COLOR": "1"}
        environment.pop("OUTCROP_TIERS", None)
        place = Path(folder) / "here"
        place.mkdir()
        if example.of_one_machine:
            _run([sys.executable, "-c", KNOWN_FIGURES], place, environment)
        if example.is_python:
            before = [lines for language, first, lines in blocks(example.page)
                      if language == "python" and first < example.first]  # fmt: skip
            program = "\n".join([*(line for lines in before for line in lines), f"print({MARK!r})", example.command])
            text = _run([sys.executable, "-c", program], place, environment)
            return text[text.index(MARK) + 1 :]
        words = shlex.split(example.command, comments=True)
        if words[1] == "bench" and example.of_one_machine:
            words.append("--small")  # only the figures of this output differ between machines
        return _run([sys.executable, "-m", "outcrop.cli.main", *words[1:]], place, environment)


def _run(words: Sequence[str], place: Path, environment: dict[str, str]) -> list[str]:
    """Run a program, and return the lines of its standard output and standard error together."""
    done = subprocess.run(
        words, cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300
    )
    return [line.rstrip() for line in done.stdout.rstrip().splitlines()]


def shortened(lines: list[str], shown: list[str]) -> list[str]:
    """Return the lines of an output. If the example `shown` omits lines, leave out the same lines."""
    if OMITTED not in shown:
        return lines
    place = shown.index(OMITTED)
    tail = len(shown) - place - 1
    return [*lines[:place], OMITTED, *lines[len(lines) - tail :]]


def form(line: str) -> str:
    """Remove from a line the parts that differ between machines, and return the rest. Figures, paths and names of file
    systems become placeholders, columns are separated by one space, and "cached" becomes "measured". The age of
    measured figures is left out.
    """
    line = re.sub(rf"(?<![\w/])({'|'.join(map(re.escape, storage_names()))})(?![\w-])", "STORAGE", line)
    line = _PATH.sub("/", _FIGURE.sub("#", _CACHED.sub("measured", line)))
    return " ".join(line.split())


@lru_cache(maxsize=1)
def storage_names() -> tuple[str, ...]:
    """Return the names of the file systems on this machine and in the examples, with the longest name first."""
    here = {tier.name for tier in find_tiers() if not tier.is_memory}
    return tuple(sorted({STORAGE_SHOWN, *here}, key=len, reverse=True))


def differences(example: Example) -> list[str]:
    """Return the differences between an example and the output of its command, or an empty list if they are equal.

    If the output differs between machines, the comparison uses the lines that `form` returns. The first lines must
    agree. Each later line on the page must agree with a line of the output. But the comparison skips a line of the page
    if no line of the output begins with the same word. For example, the line of the page can begin with the name of a
    tier that this machine does not have.
    """
    lines = printed(example)
    if not example.of_one_machine:
        right = shortened(lines, example.shown)
        return [] if right == example.shown else [f"{example.name}: {example.command}", *right]
    forms = [form(line) for line in lines]
    begins = {one.partition(" ")[0] for one in forms}
    wrong = [line for line in example.shown[:1] if line != OMITTED and form(line) != "".join(forms[:1])]
    for line in example.shown[1:]:
        if line != OMITTED and form(line).partition(" ")[0] in begins and form(line) not in forms:
            wrong.append(line)
    return wrong and [f"{example.name}: {example.command}", *wrong, "is not in", *lines]


def main() -> None:
    for page in pages():
        lines = page.read_text().splitlines()
        for example in reversed(list(examples(page))):
            if not example.of_one_machine:
                right = shortened(printed(example), example.shown)
                lines[example.first : example.first + len(example.shown)] = right
        text = "\n".join(lines) + "\n"
        if text != page.read_text():
            page.write_text(text)
            print(page.relative_to(ROOT))


if __name__ == "__main__":
    main()
