"""The exceptions that Outcrop raises. Each message names the value, the place and the remedy in one line."""

from collections.abc import Iterator
from contextlib import contextmanager

MAX_MESSAGE = 2000
"""The maximum number of characters of a message. Longer messages are cut. Only messages with large values of a user,
such as a whole array, are longer."""


_is_command = False


class OutcropError(Exception):
    """The base class of all errors that are not bugs of Outcrop. Bugs raise `AssertionError`.

    If several ranks raise the same error, `is_told_elsewhere` is False on one rank and True on all other ranks. The
    commands print the message only on the rank with False."""

    is_told_elsewhere = False

    def __str__(self) -> str:
        text = " ".join(line.strip() for line in super().__str__().splitlines())
        return text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE // 2]} ... {text[-MAX_MESSAGE // 4 :]}"


class InputError(OutcropError):
    """The request cannot be fulfilled. The message of an InputError says which value is wrong and which values are
    right."""


class WrongTypeError(InputError, TypeError):
    """A Python program uses a wrong kind of object or argument, such as an unknown keyword. A WrongTypeError is also a
    TypeError, because Python, SymPy and NumPy expect a TypeError for a wrong kind of object."""


class BudgetError(InputError):
    """The memory budget is too small. The message of a BudgetError gives the smallest budget that works."""


class StorageError(OutcropError):
    """A read, write, flush or allocation on storage failed. The message of a StorageError has the path, the offset, the
    length and the cause."""


class CorruptionError(StorageError):
    """The bytes that were read differ from the bytes that were written. The message of a CorruptionError names the
    file, the offset and the plane."""


class CommunicationError(OutcropError):
    """Another rank cannot be reached any more, or MPI failed. Later collective calls fail, too."""


class InterruptedRun(OutcropError):
    """The user stopped a run. The last committed generation is intact, and the message says how to resume the run."""


@contextmanager
def os_errors_as(kind: type[OutcropError], what: str, names_file: bool = False) -> Iterator[None]:
    """If the body of the `with` raises an OSError, raise an error of type `kind` instead. The message of the new error
    is `what`, followed by the reason that the system gives. If `names_file` is true, this message ends with the name of
    the file."""
    try:
        yield
    except OSError as error:
        raise kind(f"{what}: {error.strerror}{f' ({error.filename})' if names_file else ''}") from error


def without_mpi(error: Exception) -> InputError:
    """Return the error for a program that needs several ranks, but cannot use MPI. `error` is the exception that `from
    mpi4py import MPI` has raised. The message of this error names the package to install."""
    if isinstance(error, ModuleNotFoundError) and error.name == "mpi4py":
        return InputError("several ranks need mpi4py, which is not installed: pip install 'outcrop[mpi]'")
    first = str(error).splitlines()[0] if str(error) else type(error).__name__
    return InputError(
        f"mpi4py cannot load an MPI library ({first}): install the MPI whose mpirun you use, or run: pip install mpich"
    )


def shown(value: object, max_length: int = 120) -> str:
    """Return a user's value on one line, for messages. In a Python program, the text is the `repr` of the value. In a
    command, the text is TOML. If this text is longer than `max_length`, its middle is omitted.
    """
    try:
        text = " ".join((_in_toml(value) if _is_command else repr(value)).split())
    except Exception:  # `repr` fails for numbers of more than 4300 digits, deeply nested lists, and some user classes
        text = f"<{type(value).__name__}>"
    return text if len(text) <= max_length else f"{text[: max_length - 25]} ... {text[-20:]}"


def _in_toml(value: object) -> str:
    """Return the text of a value in a TOML file. In TOML, a slice is a pair [begin, end]."""
    match value:
        case bool():
            return str(value).lower()
        case slice():
            return f"[{_in_toml(value.start)}, {_in_toml(value.stop)}]"
        case list():
            return f"[{', '.join(map(_in_toml, value))}]"
        case dict():
            return f"{{ {', '.join(f'{key} = {_in_toml(one)}' for key, one in value.items())} }}" if value else "{}"
    return repr(value)


def by_caller(command: str, python: str) -> str:
    """Return `command` for a user of the command line, and `python` for a Python program. Messages that name an option
    use `by_caller`, for example by_caller("--force", "force=True"). If an option has no flag, `command` is its key in a
    TOML file, for example by_caller("problem.spacing", "spacing=")."""
    return command if _is_command else python


@contextmanager
def as_command() -> Iterator[None]:
    """While the body of the `with` runs, messages are for a user of the command line."""
    global _is_command
    before, _is_command = _is_command, True
    try:
        yield
    finally:
        _is_command = before
