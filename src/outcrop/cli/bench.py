"""`outcrop bench`: measure what this machine reaches."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from outcrop.cli import options
from outcrop.errors import InputError

BENCHMARKS = ("core", "table2", "tuner")
"""Each is a module of `outcrop.bench` with a function `bench(directory, small) -> dict` that prints as it goes."""


def bench(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="core: in and out of core; table2: a paper's; tuner: against a sweep"),
    ],
    directory: Annotated[Path, typer.Option("-d", "--directory", metavar="WHERE", help="for its files")] = Path("."),
    json: options.Json = None,
    small: Annotated[bool, typer.Option("--small", help="a rehearsal of seconds; its figures mean nothing")] = False,
) -> None:
    """Run a benchmark, print its figures, and write them as JSON."""
    import json as json_format

    if name not in BENCHMARKS:
        raise InputError(f"benchmark {name!r} is unknown; there is {', '.join(BENCHMARKS)}")
    options.check_output(json, "--json")
    if not directory.is_dir():
        raise InputError(f"-d {directory} is not a directory")
    figures = import_module(f"outcrop.bench.{name}").bench(directory, small)
    if json is not None:
        json.write_text(json_format.dumps(figures, indent=2) + "\n")
