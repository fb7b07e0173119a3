"""Files that Python has opened, handed to C++ by their descriptor, so that no name is looked up a second time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from outcrop.errors import StorageError


def path_of(handle: int) -> str:
    """A path by which this process opens again what `handle` is open on, whatever has become of its name."""
    return f"/proc/self/fd/{handle}"


@contextmanager
def named(opened: str, path: Path) -> Iterator[None]:
    """Let StorageErrors name `path` instead of `opened`, which means something only to this process."""
    try:
        yield
    except StorageError as error:
        raise type(error)(str(error).replace(opened, str(path))) from None


@contextmanager
def storage_errors(path: Path, what: str) -> Iterator[None]:
    """Raise StorageError for OSError: the path cannot be `what`, such as "opened"."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{error.filename or path} cannot be {what}: {error.strerror}") from None
