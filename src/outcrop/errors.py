"""The few exceptions Outcrop raises. Each message names the value, the place and the remedy in one line."""

MAX_MESSAGE = 2000
"""Maximum number of characters of a message. Only values of the user can make it longer, such as whole arrays."""


class OutcropError(Exception):
    """The base of all errors that are not bugs; bugs raise `AssertionError`."""

    def __str__(self) -> str:
        text = " ".join(line.strip() for line in super().__str__().splitlines())
        return text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE // 2]} ... {text[-MAX_MESSAGE // 4 :]}"


class InputError(OutcropError):
    """The request cannot be fulfilled. The message says which value is wrong and what would be right."""


class BudgetError(InputError):
    """The memory budget is too small. The message gives the smallest one that works."""


class StorageError(OutcropError):
    """A read, write, flush or allocation on storage failed. The message has path, offset, length and cause."""


class CorruptionError(StorageError):
    """The bytes read are not the bytes that were written. The message names file, offset and plane."""


class CommunicationError(OutcropError):
    """Another rank cannot be reached any more, or MPI failed. Collective calls fail after it."""


class InterruptedRun(OutcropError):
    """The user stopped a run. The last committed generation is intact, and the message says how to resume."""


def shown(value: object, max_length: int = 120) -> str:
    """A value of the user for a message: `repr` on one line, cut in the middle if it is longer than `max_length`."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # numbers of more than 4300 digits, lists nested too deeply, classes of the user's own
        text = f"<{type(value).__name__}>"
    return text if len(text) <= max_length else f"{text[: max_length - 25]} ... {text[-20:]}"
