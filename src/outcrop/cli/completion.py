"""`outcrop completion`: print the program of a shell that completes the commands, options and stencils of Outcrop."""

from __future__ import annotations

from typing import Annotated

from typer import Argument
from typer.completion import get_completion_script  # type: ignore[attr-defined]

from outcrop.cli import options
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
