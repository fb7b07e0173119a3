"""Tables of a TOML file that people write: each value checked, and an error that names file, key, value and remedy."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outcrop.errors import InputError
from outcrop.units import format_bytes, parse_bytes

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TEXT_BYTES_MOST = 256 << 10
LINE_MOST = 1000
"""Characters of a line. The time to parse a line grows with its square: 32 KB of "a.a.a." take ten seconds."""
COUNT_MOST = 10**6
SIZE_MOST = 1 << 60
PER_SECOND_MOST = 1e18
SECONDS_MOST = 86400
"""Beyond what any machine has, and small enough to calculate with."""
SHOWN_MOST = 60


def read_text(path: Path, what: str, bytes_most: int = TEXT_BYTES_MOST) -> str:
    """The text of a file that `what` names in messages. Raises InputError, also for what is no regular file: reading
    a device or a FIFO may never end."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # before it is opened, which has effects on some devices
            raise InputError(f"{what} is no regular file; name a TOML file")
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            data = file.read(bytes_most + 1)
    except OSError as error:
        raise InputError(f"{what} cannot be read: {error.strerror}; name a TOML file") from None
    except ValueError:
        raise InputError(f"{what} cannot be read: its name has a NUL character; name a TOML file") from None
    if len(data) > bytes_most:
        raise InputError(f"{what} is larger than {format_bytes(bytes_most)}; name a TOML file of a few lines")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{what} is not text in UTF-8; it must be a TOML file") from None


def parse_table(text: str, name: str) -> Table:
    """The outermost table of a file of that name. Raises InputError for what is no TOML."""
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > LINE_MOST:
            raise InputError(f"{name}: line {number} has {len(line)} characters; write at most {LINE_MOST}")
    try:
        return Table(name, "", tomllib.loads(text))
    except RecursionError:
        raise InputError(f"{name} is not TOML as it is meant here: values lie deep in others") from None
    except ValueError as error:  # also whole numbers with more digits than Python reads
        raise InputError(f"{name} is not TOML: {error}") from None


class Table:
    """A table of the file: each value by its key, or an InputError that names file, key, value and what is right."""

    def __init__(self, file: str, place: str, values: Mapping[str, Any]) -> None:
        self._file, self._place, self._values = file, place, values
        self._known: list[str] = []

    def has(self, key: str) -> bool:
        """Whether a key that may be left out is there."""
        self._known.append(key)
        return key in self._values

    def names(self) -> list[str]:
        """All keys of the file, in its order."""
        return list(self._values)

    def text(self, key: str, right: str) -> str:
        """Some text, which must be what `right` says."""
        if not isinstance(value := self._get(key, right), str) or not value:
            raise self.wrong(key, right)
        return value

    def table(self, key: str) -> Table:
        """A table in this one."""
        if not isinstance(values := self._get(key, "a table"), dict):
            raise self.wrong(key, f"a table: write [{key}]")
        return Table(self._file, f"{self._place}{_key(key)}.", values)

    def count(self, key: str) -> int:
        """A whole number of at least 1."""
        right = "a whole number of at least 1"
        value = self._get(key, right)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self.wrong(key, right)
        if value > COUNT_MOST:
            raise self.wrong(key, f"at most {COUNT_MOST}")
        return value

    def size(self, key: str, at_most: int | None = None) -> int:
        """Bytes; of what is `at_most`, a percentage too."""
        right = 'a size such as "128GiB"'
        value = self._get(key, right)
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise self.wrong(key, right)
        try:
            count = parse_bytes(value, at_most)
        except (InputError, OverflowError):
            raise self.wrong(key, right) from None
        if at_most is not None and count > at_most:
            raise self.wrong(key, f"at most memory.size, {format_bytes(at_most)}")
        if count > SIZE_MOST:
            raise self.wrong(key, f"at most {format_bytes(SIZE_MOST)}")
        return count

    def bandwidth(self, key: str) -> float:
        """Bytes per second."""
        right = 'a bandwidth such as "2.4GB/s", or bytes per second'
        value = self._get(key, right)
        if not isinstance(value, str):
            return self._positive(key, value, right)
        amount, slash, unit = value.rpartition("/")
        if not slash or unit.strip() != "s":
            raise self.wrong(key, right)
        try:
            count = parse_bytes(amount)
        except (InputError, OverflowError):
            raise self.wrong(key, right) from None
        return self._positive(key, count, right)

    def rate(self, key: str) -> float:
        """Something per second."""
        right = "a positive number of cell updates per second, such as 5e9"
        return self._positive(key, self._get(key, right), right)

    def seconds(self, key: str) -> float:
        """A time, which may be 0."""
        right = "a number of seconds of at least 0"
        value = self._get(key, right)
        if type(value) in (int, float) and value == 0:
            return 0.0
        return self._positive(key, value, right, 0.0, SECONDS_MOST)

    def refuse_other_keys(self) -> None:
        """Raise InputError for a key that nothing has asked for."""
        for key in self._values:
            if key not in self._known:
                known = ", ".join(self._known)
                raise InputError(f"{self._file}: {self._place}{_key(key)} is unknown; there are {known}")

    def wrong(self, key: str, right: str) -> InputError:
        """What to raise for a value that cannot be."""
        return InputError(f"{self._file}: {self._place}{_key(key)} = {_shown(self._values[key])} must be {right}")

    def _get(self, key: str, right: str) -> Any:
        self._known.append(key)
        if key not in self._values:
            raise InputError(f"{self._file}: {self._place}{key} is missing; it must be {right}")
        return self._values[key]

    def _positive(
        self, key: str, value: object, right: str, least: float = 1.0, most: float = PER_SECOND_MOST
    ) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
            raise self.wrong(key, right)
        if not least <= value <= most:
            raise self.wrong(key, f"{right}, from {least:g} to {most:g}")
        return float(value)


def _key(key: str) -> str:
    """A key in a message: as it is written, quoted where it needs that."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]{1,60}", key) else _shown(key)


def _shown(value: object) -> str:
    """A value in a message, in one short line."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number with more digits than Python writes
        return "a value too large to be shown"
    return text if len(text) <= SHOWN_MOST else f"{text[:SHOWN_MOST]}..."
