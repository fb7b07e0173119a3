"""The few exceptions Outcrop raises. Each message names the value, the place and the remedy in one line."""

MESSAGE_MOST = 2000
"""Characters of a message. Only values that were given make it longer, such as whole arrays."""


class OutcropError(Exception):
    """Base of everything the world can do to a run; bugs raise `AssertionError` instead."""

    def __str__(self) -> str:
        text = " ".join(line.strip() for line in super().__str__().splitlines())
        return text if len(text) <= MESSAGE_MOST else f"{text[: MESSAGE_MOST // 2]} ... {text[-MESSAGE_MOST // 4 :]}"


class InputError(OutcropError):
    """What the user asked for cannot be done: the message says which value is wrong and what would be right."""


class BudgetError(InputError):
    """The memory budget is too small; the message gives the smallest one that works."""


class StorageError(OutcropError):
    """A read, write, flush or allocation on storage failed: path, offset, length and cause are in the message."""


class CorruptionError(StorageError):
    """Bytes read are not the bytes that were written: the message names file, offset and plane."""


class CommunicationError(OutcropError):
    """Another rank cannot be reached any more, or MPI failed; nothing that several ranks do together works after it."""


class InterruptedRun(OutcropError):
    """A run was stopped by the user; the last committed generation is intact and the message says how to resume."""


def shown(value: object, most: int = 120) -> str:
    """What a user gave, as a message shows it: `repr` on one line, cut in the middle where it is longer than `most`."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # numbers of more than 4300 digits, lists nested too deeply, classes of the user's own
        text = f"<{type(value).__name__}>"
    return text if len(text) <= most else f"{text[: most - 25]} ... {text[-20:]}"
