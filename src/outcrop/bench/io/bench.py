"""`outcrop bench io`: what a device does at each access size, queue depth and interface, after IOR and Figure 7 of the
out-of-core papers.

    sizes     256 B to 16 MiB, sequential and random, reads and writes, by every interface; nothing cached before
    depths    4 KiB, sequential and random, 1 to 64 in flight, past the page cache
    cached    256 B to 16 MiB of what the page cache holds: one thread by calls, or by loads and stores
    raw       files against the device that --raw-device names; with --write-device it is written, too
    beyond    a file that fits the memory, and one four times as large as the memory that a control group leaves

Past the page cache requests are whole pages. Writes through it count until they are on the device, but for `cached`.
Everything is measured in turns; a figure is of all of them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from outcrop import _core
from outcrop.bench.core import describe_machine
from outcrop.bench.io.case import INTERFACES, PAGE_BYTES, Case, Rate, find_interface, patterns, pooled, unavailable
from outcrop.bench.io.raw_device import in_use
from outcrop.bench.io.run import measure_limited
from outcrop.bench.io.table import remarks, table
from outcrop.errors import InputError
from outcrop.paths import made_directory
from outcrop.tiers import discover
from outcrop.units import format_bytes

PARTS = ("sizes", "depths", "cached", "raw", "beyond")
IN_FLIGHT_BYTES, DEPTH_MOST = 32 << 20, 64
"""Large requests are as many as runs have in flight, small ones as many as a device takes gladly."""
RECORD_BYTES = 1 << 20
BEYOND_INTERFACES = ("buffered", "mmap", "load/store")
"""After the best of those past the page cache."""
SPACE_FACTOR = 1.1
"""Of the free space, what the file takes beside its bytes."""


@dataclass(frozen=True)
class Scale:
    """`span_bytes` of the file; `limit_bytes` of memory for what is beyond it; seconds of one measurement; turns."""

    span_bytes: int
    cached_bytes: int
    limit_bytes: int
    seconds: float
    turns: int
    sizes: tuple[int, ...]
    depths: tuple[int, ...]


FULL = Scale(1 << 30, 64 << 20, 256 << 20, 0.25, 2, tuple(256 * 4**k for k in range(9)), (1, 2, 4, 8, 16, 32, 64))
SMALL = Scale(16 << 20, 4 << 20, 128 << 20, 0.01, 1, (256, 4096, 65536), (1, 8))


def bench(
    directory: Path,
    small: bool = False,
    png: Path | None = None,
    raw_device: Path | None = None,
    write_device: bool = False,
    only: str | None = None,
) -> dict[str, Any]:
    """Measure a file in `directory`, print, and draw to `png`; the figures as plain data.

    `only` names parts, with commas; `raw_device` is only read, unless `write_device`: then it must hold nothing. Raises
    InputError for what cannot be, before anything is made or changed.
    """
    scale, parts = SMALL if small else FULL, _parts(only, raw_device)
    if write_device and raw_device is None:
        raise InputError("--write-device needs --raw-device DEVICE")
    _require_room(directory, scale)
    missing = unavailable()
    figures: dict[str, Any] = {
        "benchmark": "io",
        "small": small,
        "machine": describe_machine(directory, discover.available_cores()),
        "span_bytes": scale.span_bytes,
        "unavailable": missing,
    }
    with ExitStack() as stack:
        device = None
        if raw_device is not None:
            device = _Device(raw_device, stack.enter_context(in_use(raw_device, write_device)), write_device)
        stack.enter_context(made_directory(directory))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="outcrop-bench-", dir=directory))
        works = [one.name for one in INTERFACES if one.name not in missing]
        parts_of = _Bench(Path(folder) / "file", scale, works, device)
        figures["direct"] = parts_of.make_file()
        print("\n".join(remarks(figures)))
        for part in parts:
            figures[part] = getattr(parts_of, part)()
            print("\n".join(table(part, figures[part])), flush=True)
    if png is not None:
        from outcrop.bench.io.picture import draw

        draw(figures, png)
    return figures


def _parts(only: str | None, raw_device: Path | None) -> list[str]:
    every = [part for part in PARTS if part != "raw" or raw_device]
    names = every if only is None else list(dict.fromkeys(only.split(",")))
    for name in names:
        if name not in PARTS:
            raise InputError(f"--only {name!r} is unknown; there are {', '.join(PARTS)}")
    if ("raw" in names) != (raw_device is not None):
        raise InputError("--only raw and --raw-device DEVICE go together")
    return names


def _require_room(directory: Path, scale: Scale) -> None:
    needed, free = int(SPACE_FACTOR * scale.span_bytes), discover.free_disk_bytes(directory)
    if free < needed:
        raise InputError(f"-d {directory} has {format_bytes(free)} free; {format_bytes(needed)} are needed")


@dataclass(frozen=True)
class _Device:
    """The raw one; `write`: it may be written."""

    path: Path
    size_bytes: int
    write: bool


class _Bench:
    """The parts, each a list of figures as plain data."""

    def __init__(self, path: Path, scale: Scale, interfaces: list[str], device: _Device | None) -> None:
        self._path, self._scale, self._interfaces, self._device = path, scale, interfaces, device
        self._threads = discover.available_cores()
        self._direct = [name for name in interfaces if find_interface(name).is_direct]

    def make_file(self) -> bool:
        """Allocate and write it, since blocks that were never written are read without the device; whether transfers go
        past the page cache."""
        _core.create_file(str(self._path), self._scale.span_bytes)
        self._fill(self._path, self._scale.span_bytes)
        store = _core.Store([str(self._path)], direct=True)
        direct = store.direct
        store.close()
        return direct

    def _fill(self, path: Path, span_bytes: int) -> None:
        self._case(self._direct[0], True, False, RECORD_BYTES, span_bytes).measure(path, float("inf"))

    def sizes(self) -> list[dict[str, Any]]:
        """Every interface at every access size."""
        return self._measured(
            self._case(name, write, random, size)
            for size in self._scale.sizes
            for write, random in patterns()
            for name in self._interfaces
            if size >= PAGE_BYTES or not find_interface(name).is_direct
        )

    def depths(self) -> list[dict[str, Any]]:
        """Pages, more and more in flight."""
        span = self._scale.span_bytes
        return self._measured(
            Case(name, write, random, PAGE_BYTES, depth, span)
            for depth in self._scale.depths
            for write, random in patterns()
            for name in self._direct
        )

    def cached(self) -> list[dict[str, Any]]:
        """Without the device: what a call costs, against loads and stores."""
        return self._measured(
            Case(name, write, random, size, 1, self._scale.cached_bytes, warm=True, flush=False)
            for size in self._scale.sizes
            for write, random in patterns()
            for name in ("buffered", "load/store")
        )

    def raw(self) -> list[dict[str, Any]]:
        """The same transfers of the file and of the device itself, as much as both have."""
        device = self._device
        assert device is not None, "this part is not asked for without one"
        span = min(self._scale.span_bytes, device.size_bytes // RECORD_BYTES * RECORD_BYTES)
        cases = [
            self._case(name, write, random, size, span)
            for size in self._scale.sizes
            for write, random in patterns()
            for name in (self._direct[0], "buffered")
            if PAGE_BYTES <= size <= span and (device.write or not write)
        ]
        if device.write:
            self._fill(device.path, span)
        on_file, on_device = self._turns(cases, self._path), self._turns(cases, device.path)
        return [{"of": "file", **one} for one in on_file] + [{"of": "device", **one} for one in on_device]

    def beyond(self) -> list[dict[str, Any]]:
        """What had been read before, and writes, with memory for all of the file and for a quarter."""
        cases = [
            replace(self._case(name, write, random, PAGE_BYTES if random else RECORD_BYTES), warm=True)
            for name in (self._direct[0], *BEYOND_INTERFACES)
            for write, random in patterns()
        ]
        return [
            one
            for limit in (None, self._scale.limit_bytes)
            for one in measure_limited(cases, self._path, 2 * self._scale.seconds, limit)
        ]

    def _case(self, name: str, write: bool, random: bool, size: int, span_bytes: int = 0) -> Case:
        span = span_bytes or self._scale.span_bytes
        in_flight = min(DEPTH_MOST, IN_FLIGHT_BYTES // size) if find_interface(name).backend else self._threads
        return Case(name, write, random, size, max(1, min(in_flight, span // size)), span)

    def _measured(self, cases: Iterator[Case]) -> list[dict[str, Any]]:
        return self._turns(list(cases), self._path)

    def _turns(self, cases: list[Case], path: Path) -> list[dict[str, Any]]:
        """All cases, then all again; the rate of each is that of all its turns together."""
        rates: dict[Case, list[Rate]] = {case: [] for case in cases}
        for _ in range(self._scale.turns):
            for case in cases:
                rates[case].append(case.measure(path, self._scale.seconds))
        return [pooled(every).to_json() for every in rates.values()]
