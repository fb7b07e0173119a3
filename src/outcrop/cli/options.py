"""The options of commands: the options of a run, made from `RunOptions`, and options that several commands share."""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import json as json_format
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from typer import Argument, Context, Option
from typer.core import TyperGroup

from outcrop.errors import InputError, shown
from outcrop.paths import make_directory, remove_made, require_output
from outcrop.run.options import SIZES, RunOptions, default_text, option_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from outcrop.axes import Shape
    from outcrop.language.stencil import Stencil

Machine = Annotated[
    str | None,
    Option(
        "--machine", metavar="FILE", help="plan for another machine: a TOML file that declares it, or crest6 or crest10"
    ),
]
Json = Annotated[Path | None, Option("--json", metavar="FILE", help="write the report as JSON to this file")]
Save = Annotated[
    Path | None, Option("--save", metavar="FILE", help="write these options to a new TOML file, for later runs")
]
Png = Annotated[Path | None, Option("--png", metavar="FILE", help="draw the figures in this PNG file")]
BenchDirectory = Annotated[
    Path, Option("-d", "--directory", metavar="WHERE", help="directory for the files of the benchmark; made if missing")
]
Quiet = Annotated[bool, Option("--quiet", help="print only errors and warnings: no progress and no report")]

PICTURES = (".png", ".svg", ".pdf")
"""The endings of the names of pictures."""

STENCIL = "a TOML file with the options, or "
_TYPES: dict[str, Any] = {
    "shape": str,
    "directory": list[Path],
    "threads": int,
    "params": list[str],
    "init": list[str],
    "steps": int,
}
"""The Python types of options on the command line. The type of an option that is not in this table depends on the
option's default. If the default is False, the option is a flag. For any other default, the option is a text."""

_FIRST = ("stencil", "shape", "steps", "directory", "memory")
"""The options that nearly every run needs. The help texts of commands show these options first."""

_LONG = 1 << 20
"""A width in characters that no sentence exceeds."""
_NUMBER = re.compile(r"[+-]?[0-9]+")
_MAX_DIGITS = 19
_MMAP_THRESHOLD, _THRESHOLD_BYTES = -3, 128 << 10
"""The number of the parameter M_MMAP_THRESHOLD in malloc.h, and the initial value of this parameter in bytes."""


def complete_stencil(incomplete: str) -> list[str]:
    """Return the names of built-in stencils that begin with `incomplete`, for the completion of a shell. If names of
    several families begin with `incomplete`, return only the names of the families."""
    from outcrop.language.library.table import FAMILIES, family_names

    families = [one for one in FAMILIES if one.startswith(incomplete)]
    if len(families) > 1 and not any(incomplete == one for one in families):
        return families
    return [name for family in FAMILIES for name in family_names(family) if name.startswith(incomplete)]


def _complete_stencil_or_file(incomplete: str) -> list[str]:
    """Return the names of stencils, TOML files and folders that begin with `incomplete`."""
    from outcrop.run.options_file import SUFFIX

    folder, _, start = incomplete.rpartition("/")
    files = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder or ("/" if incomplete.startswith("/") else ".")):
            if entry.name.startswith(start) and (start or not entry.name.startswith(".")):
                name = incomplete[: len(incomplete) - len(start)] + entry.name
                files += [f"{name}/"] if entry.is_dir() else [name] if name.endswith(SUFFIX) else []
    return complete_stencil(incomplete) + sorted(files)


def _complete_parameter(ctx: Context, incomplete: str) -> list[str]:
    """Return completions for the parameters of the stencil that the command line names: for each parameter its name,
    "=" and its default."""
    from outcrop.language.library import find_stencil
    from outcrop.language.library.table import split_name

    # an option without its value stops the parser, which then leaves the stencil in `args`
    names = [word for word in (ctx.params.get("stencil"), *ctx.args) if word and split_name(word)]
    with contextlib.suppress(InputError):
        parameters = find_stencil(names[0]).parameters if names else ()
        return [f"{one.name}={one.default:g}" for one in parameters if one.name.startswith(incomplete)]
    return []


def _complete_scheme(incomplete: str) -> list[str]:
    from outcrop.plan.schemes import EVERY_SCHEME

    return [name for name in ("auto", *EVERY_SCHEME) if name.startswith(incomplete)]


def complete_words(*words: str) -> Callable[[str], list[str]]:
    """Return a function that completes a word on the command line to one of `words`."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete


_COMPLETE: dict[str, Callable[..., list[str]]] = {
    "params": _complete_parameter,
    "scheme": _complete_scheme,
    "dtype": complete_words("float32", "float64"),
    "io": complete_words("auto", "io_uring", "libaio", "threads", "mmap"),
    "boundary": complete_words("fixed", "mirror", "periodic"),
    "bind": complete_words("auto", "cores", "none"),
    "init": complete_words("zeros", "gaussian", "random:"),
}
"""Functions that complete the values of options in a shell. Each function returns all values that begin with a given
text."""


class CommandGroup(TyperGroup):
    """A group of commands whose help shows the whole first sentence of each command. By default, Typer cuts this
    sentence at the width of the terminal."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, one.get_short_help_str(_LONG)) for name, one in commands if one is not None and not one.hidden]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


def takes_run_options(*names: str, unless: str = "") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds options of a run to a command: the options in `names`, or all options if `names` is
    empty. The decorated command gets a dictionary as its first argument: the values of these options on the command
    line. If `unless` is not "", the help shows `unless` as the default of each option except `ranks`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = get_type_hints(command, include_extras=True)
        (_, *others) = inspect.signature(command).parameters.values()
        others = [one.replace(annotation=own[one.name], kind=inspect.Parameter.KEYWORD_ONLY) for one in others]
        others.sort(key=lambda one: one.default is not inspect.Parameter.empty)
        run = _run_parameters(names, unless)

        @wraps(command)
        def call(**given: Any) -> None:
            values = {one.name: given.pop(one.name) for one in run}
            command({name: value for name, value in values.items() if value is not None}, **given)

        call.__signature__ = inspect.Signature([*run, *others])  # type: ignore[attr-defined]
        call.__annotations__ = {one.name: one.annotation for one in [*run, *others]}
        return call

    return decorate


def _run_parameters(names: Sequence[str], unless: str) -> list[inspect.Parameter]:
    found, table = [], option_table()
    for name in dict.fromkeys((*_FIRST, *table)):
        option = table[name]
        if names and name not in names:
            continue
        if name == "stencil":
            stencil = Annotated[
                str, Argument(metavar="STENCIL", help=STENCIL + option.help, autocompletion=_complete_stencil_or_file)
            ]
            found.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=stencil))
        elif option.flags:
            kind = _TYPES.get(name, bool if RunOptions.__dataclass_fields__[name].default is False else str)
            # the help shows no default for the directory, because `run` needs a directory
            default = "" if name == "directory" else default_text(name)
            if unless and name != "ranks":  # a run does not store the option `ranks`
                default = unless
            text = f"{option.help} [default: {default}]" if default else option.help
            complete = _COMPLETE.get(name)
            flags = Option(
                *option.flags, metavar=option.metavar, help=text, show_default=False, autocompletion=complete
            )
            found.append(_optional(name, kind, flags))
    for name, text in SIZES.items() if not names else ():
        found.append(_optional(name, int, Option(f"--{name}", metavar="N", help=text)))
    return found


def _optional(name: str, kind: Any, option: Any) -> inspect.Parameter:
    annotation = Annotated[kind | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def run_options(given: Mapping[str, Any], needs_directory: bool = True, or_else: str = "") -> RunOptions:
    """Return the options of a run. Options on the command line replace options in the TOML file that the command line
    names.

    Raises InputError if the number of steps or the directory is missing. The text `or_else` is appended to the message
    about a missing directory.
    """
    from outcrop.axes import option_text
    from outcrop.run.definition import as_stencil
    from outcrop.run.inputs.initial import values_by_name
    from outcrop.run.options_file import SUFFIX, read_options
    from outcrop.run.user_values import require_mapping

    return_freed_memory()
    name = given["stencil"]
    options = read_options(name) if name.endswith(SUFFIX) else {"stencil": name}
    if "stencil" not in options:
        raise InputError(f'{name}: problem.stencil is missing; write stencil = "heat7", for example')
    stencil = options["stencil"] = as_stencil(options["stencil"])
    words = {key: value for key, value in given.items() if key != "stencil"}
    if sizes := {key: words.pop(key) for key in SIZES if key in words}:
        words["sizes"] = {**options.get("sizes", {}), **sizes}
    if "shape" in words:
        words["shape"] = parse_size(words["shape"], stencil)
    if "params" in words:
        in_file, given_here = options.get("params", {}), parse_parameters(words["params"])
        require_mapping(in_file, f"{name}: problem.params", "dt")
        if "dt" in given_here and "dt" not in in_file:
            options.pop("dt", None)  # the file may give the same value as `dt`, and the command line replaces it
        words["params"] = {**in_file, **given_here}
    if "init" in words:
        words["init"] = {**values_by_name(options.get("init"), stencil), **values_by_name(words["init"], stencil)}
    options = {**options, **words}
    missing = []
    if options.get("steps") is None:
        missing.append("-t STEPS is missing: say how many time steps")
    if needs_directory and "directory" not in options:
        missing.append(f"-d WHERE is missing: name the run's directory{or_else}")
    if missing and "shape" not in options:
        missing.insert(0, f"{option_text(stencil.ndim)} is missing: give the size of the grid")
    if missing:
        raise InputError("; ".join(missing))
    return RunOptions(**options)


def return_freed_memory() -> None:
    """Make the C library return large freed blocks of memory to the system. By default, the C library can keep freed
    blocks for later use, and the size of the kept blocks can increase. Without `mallopt`, the process would then need
    more memory than the window."""
    with contextlib.suppress(OSError, AttributeError):  # a C library may have no function mallopt
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _THRESHOLD_BYTES)


def join_sizes(words: list[str]) -> list[str]:
    """Return the words of a command line. The one, two or three numbers after `-n` are joined into one word, such as
    "20 12 10".

    The words are joined because the stencil determines how many numbers follow `-n`, but an option of Typer takes a
    fixed number of words.
    """
    joined: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith("-n") and _NUMBER.fullmatch(word[2:]):
            rest.insert(0, word[2:])  # the form -n20, without a space
            word = "-n"
        joined.append(word)
        if word == "-n":
            count = next((at for at, one in enumerate(rest[:3]) if not _NUMBER.fullmatch(one)), len(rest[:3]))
            joined += [" ".join(rest[:count])] if count else []
            del rest[:count]
    return joined


def name_output(words: list[str]) -> list[str]:
    """Return the words of the command `outcrop info`, with a value for each `--json`. If no file follows `--json`, the
    value is "-", which means standard output."""
    joined: list[str] = []
    places = sum(not word.startswith("-") for word in words[1:])
    for number, word in enumerate(words):
        joined.append(word)
        has_file = number + 1 < len(words) and not words[number + 1].startswith("--") and places > 1
        if word == "--json" and not has_file:
            joined.append("-")
    return joined


def parse_size(text: str, stencil: Stencil) -> Shape:
    """Convert "20 12 10" to the shape (10, 12, 20). Raises InputError if the text is not a valid size of a grid for the
    stencil."""
    from outcrop.axes import axes_text, option_text
    from outcrop.language.library.table import name_with_axes

    words = text.split()
    if not all(map(_NUMBER.fullmatch, words)):
        raise InputError(f"-n {text}: sizes are whole numbers; write {option_text(stencil.ndim)}")
    if len(words) != stencil.ndim:
        other = name_with_axes(stencil, len(words))
        raise InputError(
            f"-n {text}: {stencil.name} is for grids of {axes_text(stencil.ndim)}; write {option_text(stencil.ndim)}"
            f"{f', or use {other}' if other else ''}"
        )
    if max(map(len, words)) > _MAX_DIGITS:
        raise InputError(f"-n {shown(text)}: the grid is too large for files")
    sizes = [int(word) for word in words]
    if min(sizes) < 1:
        raise InputError(f"-n {text}: all sizes must be at least 1")
    return tuple(reversed(sizes))


def parse_parameters(texts: Sequence[str]) -> dict[str, float]:
    """Convert texts of parameters such as ["c0=0.4"] to a dictionary such as {"c0": 0.4}. Raises InputError if a text
    does not have the form NAME=VALUE, or if a name occurs twice."""
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
            raise InputError(f"--param {text!r}: {value!r} is not a finite number")
    return values


def check_output(path: Path | None, option: str) -> None:
    """Check that the file of an option can be written later, and raise InputError if it cannot be written. The check
    changes no file."""
    if path is not None:
        require_output(path, option)


def check_picture(path: Path | None, option: str, endings: Sequence[str] = PICTURES) -> None:
    """Check the file of a picture with `check_output`. Also raise InputError if the ending of the file's name is not in
    `endings`. A name without an ending is allowed."""
    check_output(path, option)
    if path is not None and path.suffix and path.suffix.lower() not in endings:
        raise InputError(f"{option} {path}: the ending {path.suffix} is unknown; there are: {', '.join(endings)}")


def write_json(path: Path | None, option: str, data: object) -> None:
    """If the option is given, write `data` as JSON to the file of the option. Raises InputError as `write_file`
    does."""
    if path is not None:
        write_file(path, option, (json_format.dumps(data, indent=2) + "\n").encode())


def write_picture(path: Path, option: str, picture: Figure, dpi: int) -> None:
    """Write a picture to the file of an option. The ending of the file's name determines the format, and the default
    format is PNG. Raises InputError as `write_file` does."""
    drawn = BytesIO()
    picture.savefig(drawn, dpi=dpi, format=path.suffix.lower().removeprefix(".") or "png")
    write_file(path, option, drawn.getvalue())


def write_file(path: Path, name: str, content: bytes) -> None:
    """Write a file that the user has named, and make its directory if the directory is missing. Raises InputError if
    the file cannot be written."""
    made = make_directory(path.absolute().parent)
    try:
        path.write_bytes(content)
    except OSError as error:
        remove_made(made)
        raise InputError(f"{name} {path} cannot be written: {error.strerror}") from None
