"""`outcrop`: runs a command, and turns every error into one line and an exit code.

Exit codes: 0 done, 2 refused or failed (one line on standard error says what and why), 130 interrupted. When the
reader of standard output goes away, as in `outcrop info run.oc | head -1`, commands end by SIGPIPE like other programs;
`run` and `resume` go on without output (`output`).
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn, TextIO

from outcrop.errors import InputError, InterruptedRun, OutcropError

FAILED = 2
INTERRUPTED = 130
BROKEN_PIPE = 128 + signal.SIGPIPE

WORD_SHOWN_MOST = 300
"""Of a word in a message: users know the rest of the 5000 digits they have written."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit; `arguments` are those of the process unless given."""
    signal.signal(signal.SIGTERM, _interrupt)
    _open_standard_files()
    code = call(list(sys.argv[1:] if arguments is None else arguments))
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = BROKEN_PIPE
    except OSError as error:
        if code == 0:  # one line is enough for a command that has failed already
            code = _say(f"standard output: {error.strerror}", FAILED)
        discard_output()  # what could not be written is still in the buffer, and would fail again at the end
    try:
        sys.stderr.flush()
    except OSError:
        discard_output(sys.stderr)
    if code == BROKEN_PIPE:
        _end_by_sigpipe()
    sys.exit(code)


def call(arguments: list[str]) -> int:
    """Run one command and return its exit code."""
    try:
        _check_words(arguments)
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
        return BROKEN_PIPE
    except (OutcropError, OSError) as error:
        return _say(str(error), FAILED)
    except MemoryError:
        return _say("the machine has no memory left for this; give a smaller --memory", FAILED)


def discard_output(stream: TextIO | None = None) -> None:
    """Let what is still to be written to `stream`, standard output unless given, go nowhere."""
    null = os.open(os.devnull, os.O_WRONLY)
    with contextlib.suppress(OSError, ValueError):  # in tests it may be no file at all
        os.dup2(null, (stream or sys.stdout).fileno())
    os.close(null)


def _check_words(arguments: Sequence[str]) -> None:
    """Raise InputError for words that no option means anything by: Typer would take an empty path for the current
    directory, and bytes that are no text can be kept in no manifest."""
    for number, word in enumerate(arguments):
        if not word or re.fullmatch(r"--[a-z][a-z-]*=", word):
            option = word.rstrip("=") or next(iter(arguments[number - 1 : number]), "")
            raise InputError(f"an argument is empty{f': that of {option}' if option else ''}; leave it out, or name it")
        try:
            word.encode()
        except UnicodeEncodeError:
            raise InputError(f"argument {word!r} is not UTF-8; rename what it names") from None


def _open_standard_files() -> None:
    """Open what the caller has closed (`>&-`) as /dev/null, or the next file that is opened would take its number and
    get messages between its data; and write every character somehow, whatever the encoding of standard output."""
    null = os.open(os.devnull, os.O_RDWR)
    while null <= 2:  # the lowest number that is free
        null = os.dup(null)
    os.close(null)
    for name, handle in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(handle, "w", closefd=False))
    with contextlib.suppress(AttributeError, OSError):  # a pipe without a reader cannot be set up
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _end_by_sigpipe() -> None:
    """End as the system ends programs that do not handle SIGPIPE: Python ignores it."""
    discard_output()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPIPE})
    os.kill(os.getpid(), signal.SIGPIPE)


def _say(text: str, code: int) -> int:
    line = " ".join(_shortened(word) for word in text.split())
    with contextlib.suppress(OSError):  # nobody reads it
        print(f"outcrop: {line}", file=sys.stderr, flush=True)
    return code


def _shortened(word: str) -> str:
    """A word of a message, without what would change the terminal, and cut in the middle where it is very long."""
    plain = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in word)
    return plain if len(plain) <= WORD_SHOWN_MOST else f"{plain[: WORD_SHOWN_MOST // 2]} ... {plain[-20:]}"


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Batch systems ask with SIGTERM: the same as Ctrl-C, also where that is ignored."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
