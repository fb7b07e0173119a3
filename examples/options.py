"""The options of all examples."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from outcrop.errors import InputError, OutcropError
from outcrop.paths import make_directory, require_directory


@dataclass(frozen=True)
class Options:
    """`size` cells along the longest axis, `steps` time steps, `memory` for the window; runs and pictures lie in
    `directory`."""

    size: int
    steps: int
    memory: str
    directory: Path


def parse(about: str | None, argv: Sequence[str] | None, *, name: str, size: int, steps: int, memory: str) -> Options:
    """The options of an example called `name`, with its own defaults; makes its directory."""
    parser = argparse.ArgumentParser(
        prog=f"{name}.py", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--size", type=_at_least(16), default=size, metavar="N", help=f"cells along the longest axis [{size}]"
    )
    parser.add_argument("--steps", type=_at_least(1), default=steps, metavar="N", help=f"time steps [{steps}]")
    parser.add_argument("--memory", default=memory, help=f"hard cap for the window [{memory}]")
    parser.add_argument("-d", "--directory", type=folder, default=Path(name), help=f"for run and picture [{name}]")
    given = parser.parse_args(argv)
    make_directory(given.directory)
    return Options(given.size, given.steps, given.memory, given.directory)


def call(main: Callable[[], None]) -> None:
    """Run an example as a program. Errors end in one line, as on the command line."""
    try:
        main()
    except OutcropError as error:
        sys.exit(f"{Path(sys.argv[0]).name}: {error}")


def folder(text: str) -> Path:
    """A directory for files that exists or can be made."""
    try:
        require_directory(Path(text))
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return Path(text)


def _at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} must be a whole number of at least {least}")
        return int(text)

    return number
