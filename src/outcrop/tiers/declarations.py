"""This module reads two kinds of TOML files. In a file of the first kind, users declare tiers of this machine. In a
file of the second kind, users declare another machine.

A table declares a tier. The name of a table in the file is the name of the tier. The option --tiers gives the path of
the file with tiers. Without the option --tiers, the variable $OUTCROP_TIERS gives the path. Without the option and the
variable, Outcrop reads ~/.config/outcrop/tiers.toml, if this file exists. An example:

    [scratch]
    directory = "/scratch/me"
    capacity = "200GiB"       A quota for all files in the directory. The default is the capacity of the file system.
    persistence = "job"       process, reboot, job or permanent. The default is the persistence of the file system.
    read = "2GB/s"            Other rates: write, random_read and random_write. Missing rates are measured.
    read_latency = 1e-4       In seconds. Other latencies: write_latency and flush_latency.

A file for `outcrop plan --machine` declares a machine:

    cores = 24
    [memory]                 size = "128GiB"  usable = "120GiB" (optional)  bandwidth = "100GB/s"
    [caches]                 second_level = "256KiB" (of one core)  last_level = "60MiB" (of all cores)
    [storage]                read = "3GB/s"  write = "2GB/s"  both = "3GB/s" (the sum of equal reads and writes)
                             flush_seconds = 0.01 (optional)
    [updates]                float32 = 6.0e9  float64 = 3.0e9 (cells per second of all cores; one of them is optional)
    [network]                bandwidth = "12.5GB/s" (in each direction)  latency = 1e-5 (in seconds, optional)

The table `network` is optional. Only plans for several ranks use the table `network`.

In these files, a size is a text that --memory accepts, such as "128GiB", or a whole number of bytes. In these files, a
bandwidth is a text that ends in "/s", or a number of bytes per second.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from outcrop.errors import InputError
from outcrop.plan.machine import ASSUMED_NETWORK, DeclaredMachine, NetworkRates, StorageRates
from outcrop.tiers.storage_tiers import is_folder, mount_of, mounted_tier
from outcrop.tiers.tier import MEMORY_KINDS, Persistence, Tier
from outcrop.units import format_bytes, parse_bytes

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MAX_TEXT_BYTES = 256 << 10
MAX_LINE = 1000
"""The maximum number of characters in a line. The length of lines is limited, because the time to parse a line grows
with the square of its length."""
MAX_COUNT = 10**6
MAX_SIZE = 1 << 60
MAX_PER_SECOND = 1e18
MAX_SECONDS = 86400
"""The limits of declared values. The limits are larger than the values of any machine, and small enough to prevent
overflow.
"""
MAX_SHOWN = 60

TIERS_VARIABLE = "OUTCROP_TIERS"
TAKEN_NAMES = ("auto", *MEMORY_KINDS)
"""Names that a declared tier cannot have, because Outcrop uses these names with another meaning."""
MAX_NAME = 64
TIER_NAME = re.compile(rf"[A-Za-z][A-Za-z0-9_.-]{{0,{MAX_NAME - 1}}}")
BANDWIDTHS = {key: f"{key}_bytes_per_second" for key in ("read", "write", "random_read", "random_write")}
LATENCIES = {f"{key}_latency": f"latency_seconds_{key}" for key in ("read", "write", "flush")}

SHIPPED = Path(__file__).parent.parent / "machines"
FLUSH_SECONDS = 0.01
DTYPES = ("float32", "float64")


def declared_tiers(named: Path | None = None) -> list[Tier]:
    """Return the tiers that the file `named` declares. If `named` is None, read the file from $OUTCROP_TIERS or the
    user's own file. Raises InputError if the file cannot be used."""
    path = named or _own_file()
    return [] if path is None else parse_tiers(read_text(path, f"tiers {path}"), str(path))


def parse_tiers(text: str, file: str) -> list[Tier]:
    """Return the tiers that the text of `file` declares. Raises InputError for an invalid value."""
    top = parse_table(text, file)
    return [_tier(top, name, file) for name in top.values]


def _own_file() -> Path | None:
    if os.environ.get(TIERS_VARIABLE):
        return Path(os.environ[TIERS_VARIABLE])
    named = os.environ.get("XDG_CONFIG_HOME", "")
    try:
        folder = Path(named) if os.path.isabs(named) else Path.home() / ".config"
    except RuntimeError:  # a user without a home directory has no file of tiers
        return None
    path = folder / "outcrop" / "tiers.toml"
    return path if os.path.lexists(path) else None


def _tier(top: Table, name: str, file: str) -> Tier:
    table = top.table(name)
    if not TIER_NAME.fullmatch(name):
        said = repr(name[:MAX_NAME])
        raise InputError(f"{file}: the name {said} must be a letter, then up to {MAX_NAME - 1} letters, digits, _ . -")
    if name in TAKEN_NAMES:
        raise InputError(f"{file}: the name {name!r} has another meaning; do not use {', '.join(TAKEN_NAMES)}")
    folder = _directory(table)
    quota = table.size("capacity") if table.has("capacity") else None
    persistence = _persistence(table)
    figures = {field: table.bandwidth(key) for key, field in BANDWIDTHS.items() if table.has(key)}
    figures |= {field: table.seconds(key) for key, field in LATENCIES.items() if table.has(key)}
    table.refuse_other_keys()
    tier = _mounted(name, folder)
    if persistence is not None and persistence > tier.persistence:
        raise table.wrong("persistence", f"at most {tier.persistence.name.lower()}: it is on {tier.source}")
    tier = replace(tier, is_declared=True, persistence=tier.persistence if persistence is None else persistence)
    if quota is not None:
        used = _bytes_in(folder)
        tier = replace(
            tier, capacity_bytes=min(quota, tier.capacity_bytes), free_bytes=max(0, min(quota - used, tier.free_bytes))
        )
    return replace(tier, origin="declared", **figures) if figures else tier  # type: ignore[arg-type]


def _directory(table: Table) -> Path:
    named = table.text("directory", 'a directory such as "/scratch/me"')
    if not named.isprintable():
        raise table.wrong("directory", "a path without control characters")
    folder = Path(os.path.expanduser(named))  # `expanduser` does not replace the ~ of an unknown user
    if not folder.is_absolute():
        raise table.wrong("directory", "an absolute path")
    return folder


def _mounted(name: str, folder: Path) -> Tier:
    """Return the tier of a declared directory. The values that the user has declared for the tier are not included yet.
    The directory can be missing on this machine, because several machines can share the file of declarations."""
    if is_folder(folder):
        tier = mounted_tier(mount_of(folder), [folder], name)
        if tier.directory == folder.resolve():
            return replace(tier, where=str(folder))
        return replace(tier, where=str(folder), free_bytes=0, note="this user may not write there")
    note = "the directory does not exist on this machine, or this user may not see it"
    return Tier(
        "not measured", name=name, kind="disk", where=str(folder), capacity_bytes=0, free_bytes=0,
        persistence=Persistence.PERMANENT, primitive="none", note=note,
    )  # fmt: skip


def _persistence(table: Table) -> Persistence | None:
    if not table.has("persistence"):
        return None
    words = [one.name.lower() for one in Persistence]
    right = f"one of {', '.join(words)}"
    word = table.text("persistence", right)
    if word not in words:
        raise table.wrong("persistence", right)
    return Persistence[word.upper()]


def _bytes_in(folder: Path) -> int:
    """Return the number of bytes of disk space that the files in a folder use."""
    count, left = 0, [os.fspath(folder)]
    while left:
        try:
            entries = list(os.scandir(left.pop()))
        except OSError:
            continue
        for entry in entries:
            with suppress(OSError):
                count += 512 * entry.stat(follow_symlinks=False).st_blocks
                if entry.is_dir(follow_symlinks=False):
                    left.append(entry.path)
    return count


def shipped_machines() -> list[str]:
    """Return the names of the machine files that are a part of Outcrop."""
    return sorted((path.stem for path in SHIPPED.glob("*.toml")), key=lambda name: (len(name), name))


def load_machine(name: str) -> DeclaredMachine:
    """Return the machine that the file `name` declares. `name` can also be one of `shipped_machines`.

    Raises InputError for a file that is missing, is not TOML, or has an invalid value.
    """
    path = Path(name)
    if name in shipped_machines():
        path = SHIPPED / f"{name}.toml"
    elif path.name == name and path.suffix != ".toml" and not os.path.lexists(path):
        known = ", ".join(shipped_machines())
        raise InputError(f"machine {name[:100]!r} is unknown; there are {known}, or give the path of a TOML file")
    if os.path.isdir(path):
        raise InputError(f"machine {name} is a directory; name a TOML file in it")
    return parse_machine(read_text(path, f"machine {name}"), name)


def parse_machine(text: str, name: str) -> DeclaredMachine:
    """Return the machine that the text of the file `name` declares. Raises InputError for an invalid value."""
    top = parse_table(text, name)
    cores = top.count("cores")
    memory, caches, storage, updates = (top.table(key) for key in ("memory", "caches", "storage", "updates"))
    network = top.table("network") if top.has("network") else None
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
        network=_network(network, Path(name).stem),
    )
    if not declared.updates_per_second:
        raise InputError(f"{name}: updates is empty; write float32 = 5e9, float64 = 2.5e9, or both")
    if declared.last_cache_bytes < declared.cache_bytes:
        raise caches.wrong("last_level", f"at least the second_level of one core, {format_bytes(declared.cache_bytes)}")
    for table in (top, memory, caches, storage, updates, *([network] if network else [])):
        table.refuse_other_keys()
    return declared


def _device(storage: Table, name: str) -> StorageRates:
    read, write, both = (storage.bandwidth(key) for key in ("read", "write", "both"))
    if both > read + write:
        raise storage.wrong("both", "at most the sum of read and write")
    flush = storage.seconds("flush_seconds") if storage.has("flush_seconds") else FLUSH_SECONDS
    return StorageRates(read, write, both, flush, f"declared for {name}")


def _network(network: Table | None, name: str) -> NetworkRates:
    if network is None:
        return ASSUMED_NETWORK
    latency = network.seconds("latency") if network.has("latency") else ASSUMED_NETWORK.seconds_latency
    return NetworkRates(network.bandwidth("bandwidth"), latency, f"declared for {name}")


def read_text(path: Path, what: str, max_bytes: int = MAX_TEXT_BYTES) -> str:
    """Return the text of a file. `what` names the file in error messages. Raises InputError if the file cannot be read.
    Also raises InputError if the file is not a regular file, because a read of a device or a FIFO can wait forever."""
    try:
        # The kind of the file is checked before the file is opened, because to open some devices has an effect on them.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise InputError(f"{what} is not a regular file; name a TOML file")
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise InputError(f"{what} cannot be read: {error.strerror}; name a TOML file") from None
    except ValueError:
        raise InputError(f"{what} cannot be read: its name has a NUL character; name a TOML file") from None
    if len(data) > max_bytes:
        raise InputError(f"{what} is larger than {format_bytes(max_bytes)}; name a TOML file of a few lines")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{what} is not text in UTF-8; it must be a TOML file") from None


def parse_table(text: str, name: str) -> Table:
    """`text` is the text of the file `name`. Return the outermost table of the text. Raises InputError if the text is
    not TOML."""
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > MAX_LINE:
            raise InputError(f"{name}: line {number} has {len(line)} characters; write at most {MAX_LINE}")
    try:
        return Table(name, "", tomllib.loads(text))
    except RecursionError:
        raise InputError(f"{name} is not TOML that Outcrop reads: its values are nested too deeply") from None
    except ValueError as error:  # Python raises a plain ValueError for whole numbers with too many digits
        raise InputError(f"{name} is not TOML: {error}") from None


class Table:
    """A table of a TOML file. The methods of `Table` check the values of the table. If a value is invalid, a method
    raises an InputError with the file, the key, the value and a valid form."""

    def __init__(self, file: str, place: str, values: Mapping[str, Any]) -> None:
        self._file, self._place, self.values = file, place, values
        self._known: list[str] = []

    def has(self, key: str) -> bool:
        self._known.append(key)
        return key in self.values

    def text(self, key: str, right: str) -> str:
        """Return the value of a key, which must be a text that is not empty. `right` describes a valid text in error
        messages."""
        if not isinstance(value := self._get(key, right), str) or not value:
            raise self.wrong(key, right)
        return value

    def table(self, key: str) -> Table:
        if not isinstance(values := self._get(key, "a table"), dict):
            raise self.wrong(key, f"a table: write [{key}]")
        return Table(self._file, f"{self._place}{shown_key(key)}.", values)

    def count(self, key: str) -> int:
        """Return the value of a key, which must be a whole number of at least 1."""
        right = "a whole number of at least 1"
        value = self._get(key, right)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self.wrong(key, right)
        if value > MAX_COUNT:
            raise self.wrong(key, f"at most {MAX_COUNT}")
        return value

    def size(self, key: str, at_most: int | None = None) -> int:
        """Return the value of a key as a number of bytes. If `at_most` is given, the value in the table may be a
        percentage of `at_most`."""
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
        if count > MAX_SIZE:
            raise self.wrong(key, f"at most {format_bytes(MAX_SIZE)}")
        return count

    def bandwidth(self, key: str) -> float:
        """Return the value of a key as a number of bytes per second."""
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
        """Return the value of a key, which must be a positive number per second."""
        right = "a positive number of cell updates per second, such as 5e9"
        return self._positive(key, self._get(key, right), right)

    def seconds(self, key: str) -> float:
        """Return the value of a key as a time in seconds. The time may be 0."""
        right = "a number of seconds of at least 0"
        value = self._get(key, right)
        if type(value) in (int, float) and value == 0:
            return 0.0
        return self._positive(key, value, right, 0.0, MAX_SECONDS)

    def refuse_other_keys(self) -> None:
        """Raise InputError if the table has an unknown key, that is, a key that no earlier call of a method has
        read."""
        for key in self.values:
            if key not in self._known:
                known = ", ".join(self._known)
                raise InputError(f"{self._file}: {self._place}{shown_key(key)} is unknown; there are {known}")

    def wrong(self, key: str, right: str) -> InputError:
        return InputError(f"{self._file}: {self._place}{shown_key(key)} = {_shown(self.values[key])} must be {right}")

    def _get(self, key: str, right: str) -> Any:
        self._known.append(key)
        if key not in self.values:
            raise InputError(f"{self._file}: {self._place}{key} is missing; it must be {right}")
        return self.values[key]

    def _positive(
        self, key: str, value: object, right: str, minimum: float = 1.0, maximum: float = MAX_PER_SECOND
    ) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
            raise self.wrong(key, right)
        if not minimum <= value <= maximum:
            raise self.wrong(key, f"{right}, from {minimum:g} to {maximum:g}")
        return float(value)


def shown_key(key: str) -> str:
    """Return a key in the form that error messages show. If TOML needs quotes around the key, the result has quotes."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]{1,60}", key) else _shown(key)


def _shown(value: object) -> str:
    """Return a value in the form that error messages show. The form is one short line."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # Python refuses to convert numbers with too many digits to text
        return "a value too large to be shown"
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
