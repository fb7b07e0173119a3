"""The options of commands: those of a run, made of `RunOptions`, and those that several commands share."""

from __future__ import annotations

import inspect
import json as json_format
import math
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Optional, TypeAlias, get_type_hints

import typer

from outcrop.cli import heap
from outcrop.cli.sizes import parse_size
from outcrop.errors import InputError
from outcrop.paths import make_directory, remove_made, require_output
from outcrop.run.options import SIZES, RunOptions, default_text, option_table

# Typer reads these at run time, so they are real objects, and Optional is spelled as Python 3.10 lets Typer see it.
Machine: TypeAlias = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--machine", metavar="FILE", help="plan for the machine a TOML file declares, or crest6 or crest10"),
]
Threads: TypeAlias = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(metavar="N", help="threads that update [default: all cores this process may use]", show_default=False),
]
Json: TypeAlias = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--json", metavar="FILE", help="write the report as JSON"),
]
Save: TypeAlias = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--save", metavar="FILE", help="write these options to a new TOML file, to be run again"),
]
Png: TypeAlias = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--png", metavar="FILE", help="draw the figures"),
]
BenchDirectory: TypeAlias = Annotated[
    Path, typer.Option("-d", "--directory", metavar="WHERE", help="for its files; made if missing")
]
Quiet: TypeAlias = Annotated[bool, typer.Option("--quiet", help="no progress and no report; only errors")]

STENCIL = "a TOML file with the options, or a stencil: "
_TYPES: dict[str, Any] = {
    "shape": str,
    "directory": list[Path],
    "threads": int,
    "params": list[str],
    "init": list[str],
    "steps": int,
}
"""How the command line reads an option; the others are text, or a flag where the default is False."""

_FIRST = ("stencil", "shape", "steps", "directory", "memory")
"""Options that nearly every run is given: help shows them before the others."""


def takes_run_options(*names: str, unless: str = "") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command the options of a run, all or those of `names`; as its first argument it gets those that were
    given, by name and as they were written. `unless` says in words what options are that were not given.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = get_type_hints(command, include_extras=True)
        (_, *mine) = inspect.signature(command).parameters.values()
        run = _run_parameters(names, unless)

        @wraps(command)
        def call(**given: Any) -> None:
            said = {one.name: given.pop(one.name) for one in run}
            command({name: value for name, value in said.items() if value is not None}, **given)

        ours = [one.replace(annotation=own[one.name], kind=inspect.Parameter.KEYWORD_ONLY) for one in mine]
        ours.sort(key=lambda one: one.default is not inspect.Parameter.empty)
        call.__signature__ = inspect.Signature([*run, *ours])  # type: ignore[attr-defined]
        call.__annotations__ = {one.name: one.annotation for one in [*run, *ours]}
        return call

    return decorate


def _run_parameters(names: Sequence[str], unless: str) -> list[inspect.Parameter]:
    found, table = [], option_table()
    for name in dict.fromkeys((*_FIRST, *table)):
        option = table[name]
        if names and name not in names:
            continue
        if name == "stencil":
            found.append(_parameter(name, str, typer.Argument(metavar="STENCIL", help=STENCIL + option.help), True))
        elif option.flags:
            kind = _TYPES.get(name, bool if RunOptions.__dataclass_fields__[name].default is False else str)
            default = unless or ("" if name == "directory" else default_text(name))  # the command asks for it
            text = f"{option.help} [default: {default}]" if default else option.help
            flags = typer.Option(*option.flags, metavar=option.metavar, help=text, show_default=False)
            found.append(_parameter(name, kind, flags))
    for name, text in SIZES.items() if not names else ():
        found.append(_parameter(name, int, typer.Option(f"--{name}", metavar="N", help=text)))
    return found


def _parameter(name: str, kind: Any, told: Any, is_needed: bool = False) -> inspect.Parameter:
    if not is_needed:
        kind = Optional[kind]  # noqa: UP045
    default = inspect.Parameter.empty if is_needed else None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, told])


def run_options(given: Mapping[str, Any], needs_directory: bool = True, or_else: str = "") -> RunOptions:
    """The options of a run that the command line gives, and for the others those of the TOML file it names.

    Raises InputError when they do not say how many steps there are, or where the run is to be; the message goes on with
    `or_else`.
    """
    from outcrop.run.definition import as_stencil
    from outcrop.run.options_file import SUFFIX, read_options
    from outcrop.run.setup import values_by_name

    heap.return_freed_memory()
    name = given["stencil"]
    options = read_options(name) if name.endswith(SUFFIX) else {"stencil": name}
    if "stencil" not in options:
        raise InputError(f'{name}: problem.stencil is missing; write stencil = "heat7", for example')
    stencil = options["stencil"] = as_stencil(options["stencil"])
    said = {key: value for key, value in given.items() if key != "stencil"}
    if sizes := {key: said.pop(key) for key in SIZES if key in said}:
        said["sizes"] = {**options.get("sizes", {}), **sizes}
    if "shape" in said:
        said["shape"] = parse_size(said["shape"], stencil)
    if "params" in said:
        said["params"] = {**options.get("params", {}), **parse_parameters(said["params"])}
    if "init" in said:
        said["init"] = {**values_by_name(options.get("init"), stencil), **values_by_name(said["init"], stencil)}
    options = {**options, **said}
    if options.get("steps") is None:
        raise InputError("-t STEPS is missing: say how many time steps")
    if needs_directory and "directory" not in options:
        raise InputError(f"-d WHERE is missing: name the run's directory{or_else}")
    return RunOptions(**options)


def parse_parameters(texts: Sequence[str]) -> dict[str, float]:
    """{"c0": 0.4} of ["c0=0.4"]. Raises InputError for anything that is not NAME=VALUE, and for a name given twice."""
    values: dict[str, float] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name.isidentifier():
            raise InputError(f"--param {text!r} is not understood; write NAME=VALUE, for example c0=0.4")
        if name in values:
            raise InputError(f"--param {name} is given twice")
        try:
            values[name] = float(value)
        except ValueError:
            raise InputError(f"--param {text!r}: {value!r} is not a number") from None
        if not math.isfinite(values[name]):
            raise InputError(f"--param {text!r}: {value!r} is no finite number")
    return values


def check_output(path: Path | None, option: str) -> None:
    """Raise InputError when a file that is to be written at the end cannot be; creates and changes nothing."""
    if path is not None:
        require_output(path, option)


def write_json(path: Path | None, option: str, data: object) -> None:
    """Write `data` for an option that names a file. Raises InputError when it cannot be written."""
    if path is not None:
        write_file(path, option, (json_format.dumps(data, indent=2) + "\n").encode())


def write_file(path: Path, name: str, content: bytes) -> None:
    """Write a file that the user has named, in a directory that is made where it is missing. Raises InputError when it
    cannot be written."""
    made = make_directory(path.absolute().parent)
    try:
        path.write_bytes(content)
    except OSError as error:
        remove_made(made)
        raise InputError(f"{name} {path} cannot be written: {error.strerror}") from None
