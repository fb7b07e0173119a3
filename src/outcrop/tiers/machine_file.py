"""Files that declare a machine which is not here, for `outcrop plan --machine`: TOML, read into a DeclaredMachine.

    cores = 24
    [memory]                 size = "128GiB"  usable = "120GiB" (may be left out)  bandwidth = "100GB/s"
    [caches]                 second_level = "256KiB" (of one core)  last_level = "60MiB" (of all)
    [storage]                read = "3GB/s"  write = "2GB/s"  both = "3GB/s" (half and half, the sum)
                             flush_seconds = 0.01 (may be left out)
    [updates]                float32 = 6.0e9  float64 = 3.0e9 (cells per second of all cores; one may be left out)

Sizes are text as in --memory, or whole numbers of bytes; bandwidths text with "/s", or bytes per second.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outcrop.errors import InputError
from outcrop.plan.declared import DeclaredMachine
from outcrop.plan.machine import Device
from outcrop.units import format_bytes, parse_bytes

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SHIPPED = Path(__file__).parent.parent / "machines"
FLUSH_SECONDS = 0.01
DTYPES = ("float32", "float64")


def shipped_machines() -> list[str]:
    """Names of the machines that come with Outcrop."""
    return sorted((path.stem for path in SHIPPED.glob("*.toml")), key=lambda name: (len(name), name))


def load_machine(name: str) -> DeclaredMachine:
    """The machine that the file `name` declares, or the shipped one of that bare name.

    Raises InputError for a file that is not there, that is no TOML, or that declares what cannot be.
    """
    path = Path(name)
    if name in shipped_machines():
        path = SHIPPED / f"{name}.toml"
    elif path.name == name and path.suffix != ".toml" and not path.exists():
        known = ", ".join(shipped_machines())
        raise InputError(f"machine {name!r} is unknown; there are {known}, or give the path of a TOML file")
    if path.is_dir():
        raise InputError(f"machine {name} is a directory; name a TOML file in it")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"machine {name} is not text in UTF-8; it must be a TOML file") from None
    except OSError as error:
        raise InputError(f"machine {name} cannot be read: {error.strerror}; name a TOML file") from None
    return parse_machine(text, name)


def parse_machine(text: str, name: str) -> DeclaredMachine:
    """The machine that `text` declares; `name` is that of its file, for messages. Raises InputError."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{name} is not TOML: {error}") from None
    top = _Table(name, "", data)
    cores = top.count("cores")
    memory, caches, storage, updates = (top.table(key) for key in ("memory", "caches", "storage", "updates"))
    memory_bytes = memory.size("size")
    declared = DeclaredMachine(
        name=Path(name).stem,
        cores=cores,
        memory_bytes=memory_bytes,
        usable_bytes=memory.size("usable", at_most=memory_bytes) if memory.has("usable") else 0,
        memory_bytes_per_second=memory.bandwidth("bandwidth"),
        cache_bytes=caches.size("second_level", at_most=memory_bytes),
        last_cache_bytes=caches.size("last_level", at_most=memory_bytes),
        device=_device(storage, Path(name).stem),
        updates_per_second={dtype: updates.rate(dtype) for dtype in DTYPES if updates.has(dtype)},
    )
    if not declared.updates_per_second:
        raise InputError(f"{name}: updates is empty; write float32 = 5e9, float64 = 2.5e9, or both")
    if declared.last_cache_bytes < declared.cache_bytes:
        raise caches.wrong("last_level", f"at least the second_level of one core, {format_bytes(declared.cache_bytes)}")
    for table in (top, memory, caches, storage, updates):
        table.refuse_other_keys()
    return declared


def _device(storage: _Table, name: str) -> Device:
    read, write, both = (storage.bandwidth(key) for key in ("read", "write", "both"))
    if both > read + write:
        raise storage.wrong("both", "at most read and write together: it is the sum of both at once")
    flush = storage.seconds("flush_seconds") if storage.has("flush_seconds") else FLUSH_SECONDS
    return Device(read, write, both, flush, f"declared for {name}")


class _Table:
    """A table of the file: each value by its key, or an InputError that names file, key, value and what is right."""

    def __init__(self, file: str, place: str, values: Mapping[str, Any]) -> None:
        self._file, self._place, self._values = file, place, values
        self._known: list[str] = []

    def has(self, key: str) -> bool:
        """Whether a key that may be left out is there."""
        self._known.append(key)
        return key in self._values

    def table(self, key: str) -> _Table:
        """A table in this one."""
        if not isinstance(values := self._get(key, "a table"), dict):
            raise self.wrong(key, f"a table: write [{key}]")
        return _Table(self._file, f"{self._place}{key}.", values)

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
