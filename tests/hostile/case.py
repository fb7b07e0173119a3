"""Define a case: the command or call to run, and the results that are allowed."""

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
    """A case runs the command line `words` or the Python function `call`. `text` describes the case in one line.

    `may_change` and `outputs` are paths relative to the world's folder. If `reads` is true, only `outputs` may change.
    `must_fail` is the reason why the case must be refused, or "" if the case may succeed. A call may raise the
    exceptions of Outcrop, and the exceptions in `refusals`.
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
        """Run the case in this process, and return the exit code."""
        os.environ.update(self.environment)
        if self.words is not None:
            from outcrop.cli.main import main

            main(self.words)
        assert self.call is not None
        return as_command(self.call, self.refusals)

    def become(self) -> int:
        """Replace this process by a process that runs the command line."""
        assert self.words is not None
        os.environ.update(self.environment)
        program = "from outcrop.cli.main import main; main()"
        os.execv(sys.executable, [sys.executable, "-c", program, *self.words])


def as_command(call: Callable[[], Any], refusals: tuple[type[Exception], ...]) -> int:
    """Call the function. If it raises an allowed exception, print the exception in one line, as a command does. Return
    the exit code that a command has after such an exception."""
    from outcrop.errors import OutcropError

    warnings.simplefilter("ignore", RuntimeWarning)
    try:
        call()
    except (OutcropError, *refusals) as error:
        print(f"outcrop: {error}", file=sys.stderr)
        return REFUSED
    return DONE
