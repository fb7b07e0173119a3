"""This module has the parts that examples share: options, pictures, and errors."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from outcrop.errors import InputError, OutcropError
from outcrop.paths import make_directory, require_directory

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Value = TypeVar("Value")


def new_parser(about: str | None, name: str, memory: str) -> argparse.ArgumentParser:
    """Return a parser with the options that all examples have. `memory` is the default of `--memory`."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog=f"{name}.py", description=about, formatter_class=style)
    parser.add_argument("--memory", default=memory, help=f"hard cap for the window of each run [{memory}]")
    parser.add_argument("-d", "--directory", type=folder, default=Path(name), help=f"folder of all files [{name}]")
    return parser


def begin(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the options of an example, and make the directory for its files."""
    given = parser.parse_args(argv)
    import matplotlib  # imported here, because programs without pictures also use this module

    matplotlib.use("Agg")  # this backend draws without a display
    make_directory(given.directory)
    return given


def parse(
    about: str | None, argv: Sequence[str] | None, *, name: str, size: int, steps: int, memory: str
) -> argparse.Namespace:
    """Begin an example that has `--size` and `--steps`. `size`, `steps` and `memory` are the defaults."""
    parser = new_parser(about, name, memory)
    size_help = f"cells along the longest axis [{size}]"
    parser.add_argument("--size", type=at_least(16), default=size, metavar="N", help=size_help)
    parser.add_argument("--steps", type=at_least(1), default=steps, metavar="N", help=f"time steps [{steps}]")
    return begin(parser, argv)


def save(figure: Figure, path: Path, dpi: int = 110) -> None:
    """Write a figure of pyplot as PNG, and close the figure."""
    import matplotlib.pyplot as plt

    figure.savefig(path, dpi=dpi)
    plt.close(figure)


def call(main: Callable[[], None]) -> None:
    """Run an example as a program. If an example raises an error, the program ends with a message of one line, as the
    command `outcrop` does. If several ranks raise the same error, only one of these ranks prints the message."""
    try:
        main()
    except OutcropError as error:
        sys.exit(1 if error.is_told_elsewhere else f"{Path(sys.argv[0]).name}: {error}")


def folder(text: str) -> Path:
    """Return the path of a directory that exists or can be made, for `argparse`."""
    try:
        require_directory(Path(text))
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return Path(text)


def checked(convert: Callable[[str], Value], accepts: Callable[[Value], bool], words: str) -> Callable[[str], Value]:
    """Return a function that converts the text of an option. The returned function raises an error if the text cannot
    be converted, or if `accepts` is false for the value. `words` describes the allowed values in the message of this
    error, for example "a number from 0 to 1"."""

    def parse_value(text: str) -> Value:
        try:
            if accepts(value := convert(text)):
                return value
        except ValueError:
            pass
        raise argparse.ArgumentTypeError(f"{text!r} must be {words}")

    return parse_value


def at_least(least: int) -> Callable[[str], int]:
    """Return a function that converts the text of an option to a whole number and checks that the number is at least
    `least`."""
    return checked(int, lambda value: value >= least, f"a whole number of at least {least}")
