"""A case: what is run in which world, and what may come of it."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

DONE, REFUSED = 0, 2


@dataclass
class Case:
    """`words` of a command line, or a Python function. `text` says in one line what it is.

    `may_change` are paths from the world's folder; of a case that `reads` they may not change either, but for
    `outputs`. `must_fail` says why nothing but a refusal is right, if that is so; `refusals` are exceptions of Python's
    that a call may raise besides Outcrop's.
    """

    text: str
    words: list[str] | None = None
    call: Callable[[], Any] | None = None
    reads: bool = False
    may_change: tuple[str, ...] = ("case/run.oc", "case/run2.oc")
    outputs: tuple[str, ...] = ()
    must_fail: str = ""
    stdout: str = "file"
    seconds: float = 20.0
    environment: dict[str, str] = field(default_factory=dict)
    refusals: tuple[type[Exception], ...] = ()

    def act(self) -> int:
        """Run it in this process; the exit code."""
        os.environ.update(self.environment)
        if self.words is not None:
            from outcrop.cli.main import main

            main(self.words)
        assert self.call is not None
        return as_command(self.call, self.refusals)

    def become(self) -> int:
        """Replace this process by a real one."""
        assert self.words is not None
        os.environ.update(self.environment)
        program = "from outcrop.cli.main import main; main()"
        os.execv(sys.executable, [sys.executable, "-c", program, *self.words])


def as_command(call: Callable[[], Any], refusals: tuple[type[Exception], ...]) -> int:
    """The exit code of a function that raises what public calls may raise, with the message where commands have it."""
    from outcrop.errors import OutcropError

    warnings.simplefilter("ignore", RuntimeWarning)
    try:
        call()
    except (OutcropError, *refusals) as error:
        print(f"outcrop: {error}", file=sys.stderr)
        return REFUSED
    return DONE
