"""Tables of a TOML file that people write: each value checked, and an error that names file, key, value and remedy."""

from __future__ import annotations

import math
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


def read_text(path: Path, what: str) -> str:
    """The text of a file that `what` names in messages. Raises InputError."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{what} is not text in UTF-8; it must be a TOML file") from None
    except OSError as error:
        raise InputError(f"{what} cannot be read: {error.strerror}; name a TOML file") from None


def parse_table(text: str, name: str) -> Table:
    """The outermost table of a file of that name. Raises InputError for what is no TOML."""
    try:
        return Table(name, "", tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
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
        return Table(self._file, f"{self._place}{key}.", values)

    def count(self, key: str) -> int:
        """A whole number of at least 1."""
        right = "a whole number of at least 1"
        value = self._get(key, right)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self.wrong(key, right)
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
        return count

    def bandwidth(self, key: str) -> float:
        """Bytes per second."""
        right = 'a bandwidth such as "2.4GB/s", or bytes per second'
        value = self._get(key, right)
        if not isinstance(value, str):
            return self._positive(key, value, right)
        amount, slash, unit = value.rpartition("/")
        try:
            if slash and unit.strip() == "s":
                return float(parse_bytes(amount))
        except (InputError, OverflowError):
            pass
        raise self.wrong(key, right)

    def rate(self, key: str) -> float:
        """Something per second."""
        right = "a positive number of cell updates per second, such as 5e9"
        return self._positive(key, self._get(key, right), right)

    def seconds(self, key: str) -> float:
        """A time, which may be 0."""
        right = "a number of seconds of at least 0"
        value = self._get(key, right)
        return 0.0 if type(value) in (int, float) and value == 0 else self._positive(key, value, right)

    def refuse_other_keys(self) -> None:
        """Raise InputError for a key that nothing has asked for."""
        for key in self._values:
            if key not in self._known:
                known = ", ".join(self._known)
                raise InputError(f"{self._file}: {self._place}{key} is unknown; there are {known}")

    def wrong(self, key: str, right: str) -> InputError:
        """What to raise for a value that cannot be."""
        return InputError(f"{self._file}: {self._place}{key} = {self._values[key]!r} must be {right}")

    def _get(self, key: str, right: str) -> Any:
        self._known.append(key)
        if key not in self._values:
            raise InputError(f"{self._file}: {self._place}{key} is missing; it must be {right}")
        return self._values[key]

    def _positive(self, key: str, value: object, right: str) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.wrong(key, right)
        if not 0 < value < math.inf or value > sys.float_info.max:
            raise self.wrong(key, right)
        return float(value)
