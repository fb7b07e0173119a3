"""This module has the commands of `outcrop`, and the function that runs them with Typer. The command `completion` is
also in this file."""

from __future__ import annotations

import re
import sys
from typing import Annotated

import typer
from typer import Argument
from typer.completion import get_completion_script  # type: ignore[attr-defined]
from typer.main import get_command

from outcrop import __version__
from outcrop.cli import (
    INTERRUPTED,
    agg,
    bench,
    export,
    info,
    options,
    plan,
    plot,
    run,
    stencils,
    tiers,
    verify,
    view,
    watch,
)
from outcrop.errors import InputError, shown

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_OUTCROP_COMPLETE"
"""The variable with which the program of the shell asks Outcrop for completions."""


def completion(
    shell: Annotated[
        str, Argument(metavar="SHELL", help="bash, zsh or fish", autocompletion=options.complete_words(*SHELLS))
    ],
) -> None:
    """Print a program for your shell that completes commands, options and stencils. Nothing is changed.

    Write the program to a file that your shell reads: `outcrop completion bash >> ~/.bashrc`, or `outcrop completion
    fish > ~/.config/fish/completions/outcrop.fish`. `outcrop --install-completion` does this for you.
    """
    if shell not in SHELLS:
        raise InputError(f"shell {shown(shell)} is unknown; there are {', '.join(SHELLS)}")
    print(get_completion_script(prog_name="outcrop", complete_var=VARIABLE, shell=shell))


COMMANDS = (
    run.run, plan.plan, run.resume, watch.watch, info.info, verify.verify, plot.plot, view.view, export.export,
    run.gather, stencils.stencils, tiers.tiers, bench.bench, completion,
)  # fmt: skip

# Newer versions of Typer contain a copy of click, and older versions use the installed click. In all versions of Typer,
# the base class of errors about arguments has the name ClickException.
UsageProblem: type[Exception] = next(one for one in typer.BadParameter.__mro__ if one.__name__ == "ClickException")

app = typer.Typer(
    cls=options.CommandGroup,
    help="Stencil simulations on grids larger than memory, at nearly the speed of runs in memory.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"outcrop {__version__}")
        raise typer.Exit


@app.callback()
def _outcrop(
    version: Annotated[
        bool, typer.Option("--version", help="print the version and exit", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


for command in COMMANDS:
    app.command()(command)
app.add_typer(agg.agg, name="agg")


def invoke(arguments: list[str]) -> int:
    """Run the command in `arguments` and return its exit code.

    Raises UsageProblem if the arguments are wrong. Also raises all exceptions that the command raises.
    """
    output, errors = sys.stdout, sys.stderr
    words = options.join_sizes(arguments) if arguments[:1] in (["run"], ["plan"]) else arguments
    words = options.name_output(words) if words[:1] == ["info"] else words
    try:
        result = get_command(app).main(words or ["--help"], prog_name="outcrop", standalone_mode=False)
    except typer.Exit as end:
        result = end.exit_code
    except SystemExit as end:  # if a pipe is closed, Typer replaces standard output and raises SystemExit
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        sys.stdout, sys.stderr = output, errors
        raise end.__context__ from None
    except typer.Abort:  # for Ctrl-C, older versions of Typer raise Abort, and newer versions return INTERRUPTED
        result = INTERRUPTED
    if result == INTERRUPTED:
        raise KeyboardInterrupt
    return result if isinstance(result, int) else 0


def usage_text(error: Exception, arguments: list[str]) -> str:
    """Return the message of the UsageProblem `error` without a full stop at its end. If the text of a number is wrong,
    the message names this text. Some versions of Typer do not name the wrong value, so this function adds the value to
    the message."""
    if getattr(error, "option_name", "") == "--set" and arguments[:1] == ["plan"]:
        return "--set: a sweep is planned one run at a time; give one value, such as --param kappa=0.5"
    text = str(error.format_message()).rstrip(".")  # type: ignore[attr-defined]
    found = re.search("valid (integer|number|float)", text)
    names = getattr(getattr(error, "param", None), "opts", [])
    if found is None or not names:
        return text
    right = "a whole number" if found[1] == "integer" else "a number"
    given = [(name, value) for word, value in zip(arguments, [*arguments[1:], ""], strict=True)
             for name in names if word == name]  # fmt: skip
    given += [(name, word[len(name) :].lstrip("=")) for word in arguments for name in names
              if word.startswith(name) and word != name]  # fmt: skip
    written = [f"{name} {value}" for name, value in given] or [names[0]]
    return f"{written[-1]}: write {right}"


def help_command(error: Exception) -> str:
    """Return the command that shows the help for a UsageProblem, such as "outcrop run --help"."""
    context = getattr(error, "ctx", None)  # an error about a file that cannot be opened has no context
    return f"{context.command_path if context is not None else 'outcrop'} --help"
