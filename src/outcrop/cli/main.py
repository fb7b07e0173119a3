"""`outcrop`: finds the command, and turns every error into one line and an exit code.

Exit codes: 0 done, 2 refused or failed (one line on standard error says what and why), 130 interrupted.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

import typer
from typer.main import get_command

from outcrop.cli import bench, info, plan, plot, resume, run, verify
from outcrop.errors import InterruptedRun, OutcropError

FAILED = 2
INTERRUPTED = 130

COMMANDS = (run.run, plan.plan, resume.resume, info.info, verify.verify, plot.plot, bench.bench)

# Typer carries its own copy of click since 0.2x, and uses the installed one before: both name their base class so.
_UsageProblem: type[Exception] = next(one for one in typer.BadParameter.__mro__ if one.__name__ == "ClickException")

app = typer.Typer(
    help="Stencil simulations on grids larger than memory, at the speed of memory.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in COMMANDS:
    app.command()(command)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit; `arguments` are those of the process unless given."""
    signal.signal(signal.SIGTERM, _interrupt)  # batch systems ask this way; the same as Ctrl-C
    code = call(list(sys.argv[1:] if arguments is None else arguments))
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def call(arguments: list[str]) -> int:
    """Run one command and return its exit code."""
    try:
        result = get_command(app).main(arguments or ["--help"], prog_name="outcrop", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except InterruptedRun as error:
        return _say(str(error), INTERRUPTED)
    except (KeyboardInterrupt, typer.Abort):
        return _say("interrupted", INTERRUPTED)
    except OutcropError as error:
        return _say(str(error), FAILED)
    except typer.Exit as end:
        return end.exit_code
    except _UsageProblem as error:
        message = error.format_message()  # type: ignore[attr-defined]
        return _say(f"{message.rstrip('.')}; see outcrop --help", FAILED)
    except BrokenPipeError:
        return 0
    except MemoryError:
        return _say("the machine has no memory left for this; give a smaller --memory", FAILED)
    except OSError as error:
        return _say(str(error), FAILED)


def _say(text: str, code: int) -> int:
    print(f"outcrop: {' '.join(text.split())}", file=sys.stderr)
    return code


def _interrupt(signal_number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
