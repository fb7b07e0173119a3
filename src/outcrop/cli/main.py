"""`outcrop`: runs a command, and turns every error into one line and an exit code.

Exit codes: 0 done, 2 refused or failed (one line on standard error says what and why), 130 interrupted.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

from outcrop.errors import InterruptedRun, OutcropError

FAILED = 2
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit; `arguments` are those of the process unless given."""
    signal.signal(signal.SIGTERM, _interrupt)
    code = call(list(sys.argv[1:] if arguments is None else arguments))
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def call(arguments: list[str]) -> int:
    """Run one command and return its exit code."""
    try:
        from outcrop.cli.app import UsageProblem, invoke  # in here, so that Ctrl-C while it loads is answered too

        try:
            return invoke(arguments)
        except UsageProblem as error:
            message = error.format_message()  # type: ignore[attr-defined]
            return _say(f"{message.rstrip('.')}; see outcrop --help", FAILED)
    except InterruptedRun as error:
        return _say(str(error), INTERRUPTED)
    except KeyboardInterrupt:
        return _say("interrupted", INTERRUPTED)
    except BrokenPipeError:
        return 0
    except (OutcropError, OSError) as error:
        return _say(str(error), FAILED)
    except MemoryError:
        return _say("the machine has no memory left for this; give a smaller --memory", FAILED)


def _say(text: str, code: int) -> int:
    print(f"outcrop: {' '.join(text.split())}", file=sys.stderr)
    return code


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Batch systems ask with SIGTERM: the same as Ctrl-C, also where that is ignored."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
