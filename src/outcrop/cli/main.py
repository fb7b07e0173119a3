"""`outcrop`: runs a command, and turns every error into one line and an exit code.

A command ends with one of three exit codes. The exit code 0 means that the command has succeeded. The exit code 2 means
that the command was refused or has failed; one line on standard error gives the reason. The exit code 130 means that
the user has interrupted the command. The reader of standard output can close the pipe, as in `outcrop info run.oc |
head -1`. After that, most commands end by the signal SIGPIPE, like other programs. But the commands `run` and `resume`
continue without output (`RunOutput`).
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

from outcrop.cli import INTERRUPTED, discard_output
from outcrop.errors import InputError, InterruptedRun, OutcropError, as_command

FAILED = 2
BROKEN_PIPE = 128 + signal.SIGPIPE

MAX_WORD = 300
"""The maximum number of characters of a word in a message. Longer words, such as numbers of 5000 digits, are
shortened."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command in `arguments` and exit. The default of `arguments` are the arguments of this process."""
    signal.signal(signal.SIGTERM, _interrupt)
    _open_standard_files()
    code = call(list(sys.argv[1:] if arguments is None else arguments))
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = BROKEN_PIPE
    except OSError as error:
        if code == 0:  # after an error, the command has already printed its error message
            code = _print_error(f"standard output: {error.strerror}", FAILED)
        # The buffer of standard output still holds the text that could not be written. Without `discard_output`, Python
        # would try to write this text again at exit, and would fail again.
        discard_output()
    try:
        sys.stderr.flush()
    except OSError:
        discard_output(sys.stderr)
    if code == BROKEN_PIPE:
        _end_by_sigpipe()
    sys.exit(code)


def call(arguments: list[str]) -> int:
    with as_command():
        return _call(arguments)


def _call(arguments: list[str]) -> int:
    try:
        _check_words(arguments)
        # a Ctrl-C during this import is also handled
        from outcrop.cli.app import UsageProblem, help_command, invoke, usage_text

        try:
            return invoke(arguments)
        except UsageProblem as error:
            message = usage_text(error, arguments)
            see = " See" if message.endswith("?") else "; see"
            return _print_error(f"{message}{see} {help_command(error)}", FAILED)
    except InterruptedRun as error:
        return _print_error(str(error), INTERRUPTED, error.is_told_elsewhere)
    except KeyboardInterrupt:
        return _print_error("interrupted", INTERRUPTED)
    except BrokenPipeError:
        return BROKEN_PIPE
    except (OutcropError, OSError) as error:
        return _print_error(str(error), FAILED, isinstance(error, OutcropError) and error.is_told_elsewhere)
    except MemoryError:
        return _print_error("the machine has no memory left for this; give a smaller --memory", FAILED)


def _check_words(arguments: Sequence[str]) -> None:
    """Raise InputError if a word of the command line is empty or is not UTF-8. Typer treats an empty word as the
    current directory. The manifest of a run cannot store a word that is not UTF-8."""
    for number, word in enumerate(arguments):
        if not word or re.fullmatch(r"--[a-z][a-z-]*=", word):
            option = word.rstrip("=") or next(iter(arguments[number - 1 : number]), "")
            which = f"the argument of {option}" if option else "an argument"
            raise InputError(f"{which} is empty; leave it out, or give it a value")
        try:
            word.encode()
        except UnicodeEncodeError:
            raise InputError(f"argument {word!r} is not UTF-8; rename the file") from None


def _open_standard_files() -> None:
    """If the caller has closed a standard file (`>&-`), open /dev/null in its place. If the standard file stayed
    closed, the next file that this process opens would get the number of the standard file. Messages would then go into
    that next file. The function also sets the error handler of standard output. Then characters that cannot be encoded
    are escaped."""
    null = os.open(os.devnull, os.O_RDWR)
    while null <= 2:  # the system call `dup` returns the lowest free number
        null = os.dup(null)
    os.close(null)
    for name, handle in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(handle, "w", closefd=False))
    with contextlib.suppress(AttributeError, OSError):  # a pipe without a reader cannot be reconfigured
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _end_by_sigpipe() -> None:
    """End this process by SIGPIPE. With SIGPIPE, the system ends other programs when their pipe is closed. Python
    ignores SIGPIPE, so the default effect of this signal is restored first."""
    discard_output()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPIPE})
    os.kill(os.getpid(), signal.SIGPIPE)


def _print_error(text: str, code: int, is_told_elsewhere: bool = False) -> int:
    if is_told_elsewhere:
        return code
    line = " ".join(_printable(word) for word in text.split())
    with contextlib.suppress(OSError):  # standard error may be closed
        print(f"outcrop: {line}", file=sys.stderr, flush=True)
    return code


def _printable(word: str) -> str:
    """Escape the control characters of a word, and omit the middle of a very long word."""
    plain = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in word)
    return plain if len(plain) <= MAX_WORD else f"{plain[: MAX_WORD // 2]} ... {plain[-20:]}"


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Treat SIGTERM like Ctrl-C, even if this process ignores Ctrl-C. Batch systems send SIGTERM to stop a job."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
