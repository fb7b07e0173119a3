"""`outcrop bench io`: measure the rates of a device for several access sizes, queue depths and interfaces. Another
benchmark of rates of this kind is IOR.

    `sizes`    Requests of 256 B to 16 MiB by each interface, on a file that is not in the page cache at first.
    `depths`   Requests of 4 KiB without the page cache, with 1 to 64 requests in flight.
    `cached`   Requests of 256 B to 16 MiB on a file in the page cache. One thread uses system calls, or loads and
               stores on a mapped file.
    `raw`      Requests on a file, and the same requests on the device of --raw-device. The device is written only
               with --write-device.
    `beyond`   Requests on a file that fits into memory, and then on the same file within the memory limit of a control
               group. The file is four times as large as this limit.

Each part of the benchmark measures sequential and random reads and writes.

Requests without the page cache transfer whole pages. The time of writes through the page cache includes the flush of
the written data, except in the part `cached`. All cases (`io_cases`) of a part are measured alternately, and `raw`
alternates between the file and the device. Each printed rate is the number of bytes that all repeats transferred,
divided by the total time of all repeats. The part `beyond` measures each case only once, for twice as long.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outcrop import _core
from outcrop.bench import io_cases
from outcrop.bench.figures import first_figures, new_folder, new_picture, save_picture, table_head, table_row
from outcrop.bench.io_cases import INTERFACES, PAGE_BYTES, PATTERNS, IoCase, IoRate, find_interface, pattern_of
from outcrop.errors import InputError
from outcrop.run.device import use as device_use
from outcrop.run.device.creation import hold_empty
from outcrop.run.device.device import write_all
from outcrop.tiers import discover
from outcrop.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PARTS = ("sizes", "depths", "cached", "raw", "beyond")
IN_FLIGHT_BYTES, MAX_DEPTH = 32 << 20, 64
"""The maximum number of bytes in flight, which is also the maximum in runs, and the maximum number of requests in
flight."""
RECORD_BYTES = 1 << 20
BEYOND_INTERFACES = ("buffered", "mmap", "load/store")
"""The interfaces that use the page cache. The part `beyond` compares these interfaces with the best interface that
bypasses the page cache."""
SPACE_FACTOR = 1.1
"""The free space that is needed, as a multiple of the size of the file."""


@dataclass(frozen=True)
class IoScale:
    """The scale of the benchmark: the sizes of files and requests, the memory limit of the part `beyond`, and the
    `seconds` of one measurement."""

    span_bytes: int
    cached_bytes: int
    limit_bytes: int
    seconds: float
    turns: int
    sizes: tuple[int, ...]
    depths: tuple[int, ...]


FULL = IoScale(1 << 30, 64 << 20, 256 << 20, 0.25, 2, tuple(256 * 4**k for k in range(9)), (1, 2, 4, 8, 16, 32, 64))
SMALL = IoScale(16 << 20, 4 << 20, 128 << 20, 0.01, 1, (256, 4096, 65536), (1, 8))


def bench(
    directory: Path,
    small: bool = False,
    png: Path | None = None,
    raw_device: Path | None = None,
    write_device: bool = False,
    only: str | None = None,
) -> dict[str, Any]:
    """Measure a file in `directory`, print the figures, and draw the figures in the file `png`. Returns the figures as
    plain data.

    `only` contains names of parts, separated by commas. The device `raw_device` is written only if `write_device` is
    true. A device that is written must not hold content of a known kind, such as a file system. Raises InputError if an
    option is wrong, before any file or device is changed.
    """
    scale, parts = SMALL if small else FULL, _parts(only, raw_device)
    if write_device and raw_device is None:
        raise InputError("--write-device needs --raw-device DEVICE")
    needed, free = int(SPACE_FACTOR * scale.span_bytes), discover.free_disk_bytes(directory)
    if free < needed:
        raise InputError(f"-d {directory} has {format_bytes(free)} free; {format_bytes(needed)} are needed")
    missing = io_cases.unavailable()
    with ExitStack() as stack:
        device = None
        if raw_device is not None:
            device = RawDevice(raw_device, stack.enter_context(open_raw_device(raw_device, write_device)), write_device)
        figures = stack.enter_context(first_figures("io", small, directory, has_plans=False))
        figures |= {"span_bytes": scale.span_bytes, "unavailable": missing}
        folder = stack.enter_context(new_folder(directory))
        available = [one.name for one in INTERFACES if one.name not in missing]
        benchmark = _Parts(folder / "file", scale, available, device)
        figures["direct"] = benchmark.make_file()
        print("\n".join(remarks(figures)))
        for part in parts:
            figures[part] = getattr(benchmark, part)()
            print("\n".join(table(part, figures[part])), flush=True)
    if png is not None:
        draw(figures, png)
    return figures


def _parts(only: str | None, raw_device: Path | None) -> list[str]:
    every = [part for part in PARTS if part != "raw" or raw_device]
    names = every if only is None else list(dict.fromkeys(name.strip() for name in only.split(",")))
    for name in names:
        if name not in PARTS:
            raise InputError(f"--only {name!r} is unknown; there are {', '.join(PARTS)}")
    if ("raw" in names) != (raw_device is not None):
        raise InputError("--only raw needs --raw-device DEVICE, and --raw-device needs the part raw")
    return names


@dataclass(frozen=True)
class RawDevice:
    """The device of --raw-device. `write` is true if the benchmark may write to the device."""

    path: Path
    size_bytes: int
    write: bool


class _Parts:
    """The parts of the benchmark. Each part has a method that returns a list of figures as plain data."""

    def __init__(self, path: Path, scale: IoScale, interfaces: list[str], device: RawDevice | None) -> None:
        self._path, self._scale, self._interfaces, self._device = path, scale, interfaces, device
        self._threads = discover.available_cores()
        self._direct = [name for name in interfaces if find_interface(name).is_direct]

    def make_file(self) -> bool:
        """Make the file of the benchmark and write all its blocks, because reads of unwritten blocks do not reach the
        device. Return True if transfers bypass the page cache."""
        _core.create_file(str(self._path), self._scale.span_bytes)
        self._fill(self._path, self._scale.span_bytes)
        store = _core.Store([str(self._path)], direct=True)
        direct = store.direct
        store.close()
        return direct

    def _fill(self, path: Path, span_bytes: int) -> None:
        self._case(self._direct[0], True, False, RECORD_BYTES, span_bytes).measure(path, float("inf"))

    def sizes(self) -> list[dict[str, Any]]:
        return self._measured(
            self._case(name, write, random, size)
            for size in self._scale.sizes
            for write, random in PATTERNS
            for name in self._interfaces
            if size >= PAGE_BYTES or not find_interface(name).is_direct
        )

    def depths(self) -> list[dict[str, Any]]:
        """Measure requests of one page with more and more requests in flight."""
        span = self._scale.span_bytes
        return self._measured(
            IoCase(name, write, random, PAGE_BYTES, depth, span)
            for depth in self._scale.depths
            for write, random in PATTERNS
            for name in self._direct
        )

    def cached(self) -> list[dict[str, Any]]:
        """Measure requests on a file in the page cache: requests by system calls, and by loads and stores."""
        return self._measured(
            IoCase(name, write, random, size, 1, self._scale.cached_bytes, warm=True, flush=False)
            for size in self._scale.sizes
            for write, random in PATTERNS
            for name in ("buffered", "load/store")
        )

    def raw(self) -> list[dict[str, Any]]:
        """Measure the same transfers on the file and on the device. If the device is smaller than the file, the
        transfers use only a part of the file."""
        device = self._device
        assert device is not None, "`bench` runs this part only with a device"
        span = min(self._scale.span_bytes, device.size_bytes // RECORD_BYTES * RECORD_BYTES)
        cases = [
            self._case(name, write, random, size, span)
            for size in self._scale.sizes
            for write, random in PATTERNS
            for name in (self._direct[0], "buffered")
            if PAGE_BYTES <= size <= span and (device.write or not write)
        ]
        if device.write:
            self._fill(device.path, span)
        on_file, on_device = self._alternated(cases, (self._path, device.path))
        return [{"of": "file", **one} for one in on_file] + [{"of": "device", **one} for one in on_device]

    def beyond(self) -> list[dict[str, Any]]:
        """Measure writes and reads. The data of the reads were already read once before the measurement. In the first
        measurement, memory has room for the whole file. In the second measurement, memory is limited to
        `limit_bytes`."""
        cases = [
            replace(self._case(name, write, random, PAGE_BYTES if random else RECORD_BYTES), warm=True)
            for name in (self._direct[0], *BEYOND_INTERFACES)
            for write, random in PATTERNS
        ]
        return [
            one
            for limit in (None, self._scale.limit_bytes)
            for one in io_cases.measure_limited(cases, self._path, 2 * self._scale.seconds, limit)
        ]

    def _case(self, name: str, write: bool, random: bool, size: int, span_bytes: int = 0) -> IoCase:
        span = span_bytes or self._scale.span_bytes
        in_flight = min(MAX_DEPTH, IN_FLIGHT_BYTES // size) if find_interface(name).backend else self._threads
        return IoCase(name, write, random, size, max(1, min(in_flight, span // size)), span)

    def _measured(self, cases: Iterable[IoCase]) -> list[dict[str, Any]]:
        """Measure the cases on the benchmark's file, and return their rates."""
        return self._alternated(cases, (self._path,))[0]

    def _alternated(self, cases: Iterable[IoCase], paths: Sequence[Path]) -> list[list[dict[str, Any]]]:
        """Measure the cases on each file or device of `paths`, and return the rates for each path. Each round measures
        each case once on each path."""
        rates: dict[tuple[IoCase, Path], list[IoRate]] = {one: [] for one in product(cases, paths)}
        for _ in range(self._scale.turns):
            for (case, path), measured in rates.items():
                measured.append(case.measure(path, self._scale.seconds))
        return [[io_cases.pooled(every).to_json() for (_, at), every in rates.items() if at == path] for path in paths]


# --- the raw device --------------------------------------------------------------------------------------------------

MIN_DEVICE_BYTES = 1 << 20
DEVICE_END_BYTES = 4 << 20
"""The number of bytes at each end of a device that are cleared after writes. Without this, a program could mistake
random bytes at the ends for a file system."""


@contextmanager
def open_raw_device(device: Path, write: bool) -> Iterator[int]:
    """Yield the size of a block device in bytes. If `write` is true, no other process can use the device inside the
    `with` block. If `write` is true, both ends of the device are cleared at the end of the block.

    Raises InputError if the path is not a block device, or if the device is too small or cannot be opened. Also raises
    InputError if `write` is true and the device is in use or holds content of a known kind.
    """
    if not device_use.is_block_device(device):
        raise InputError(f"--raw-device {device} is not a block device")
    handle = hold_empty(device) if write else device_use.open_device(device, os.O_RDONLY)
    try:
        if (size := device_use.size_of(handle)) < MIN_DEVICE_BYTES:
            raise InputError(
                f"--raw-device {device} has {format_bytes(size)}; {format_bytes(MIN_DEVICE_BYTES)} are needed"
            )
        try:
            yield size
        finally:
            if write:
                _clear_ends(device, size)
    finally:
        os.close(handle)


def _clear_ends(device: Path, size: int) -> None:
    handle = device_use.open_device(device, os.O_WRONLY)
    try:
        for begin in (0, max(0, size - DEVICE_END_BYTES)):
            write_all(handle, bytes(min(DEVICE_END_BYTES, size - begin)), begin)
        os.fsync(handle)
    finally:
        os.close(handle)


# --- tables ----------------------------------------------------------------------------------------------------------

Figures = list[dict[str, Any]]
TITLES = {
    "sizes": "nothing cached before; writes until they are on the device",
    "depths": "pages, past the page cache",
    "cached": "a file in the page cache, one thread",
    "raw": "a file and the device itself; writes until they are on it",
    "beyond": "a file with enough memory for it, and with too little memory",
}


def remarks(figures: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each interface that cannot be measured."""
    for name, reason in figures["unavailable"].items():
        yield f"{name} is not measured: {reason}"
    if not figures["direct"]:
        yield "The file system refuses O_DIRECT: all figures are through the page cache."


def table(part: str, figures: Figures) -> Iterator[str]:
    yield from ("", f"{part}: {TITLES[part]}, MB/s", "")
    if part == "depths":
        yield from _pivot(figures, "in flight", lambda one: f"{pattern_of(one)}, {one['depth']}")
    elif part == "beyond":
        yield from _pivot(figures, "access", lambda one: f"{_access(one)}, {memory_of(one)}")
    else:
        yield from _pivot(figures, "access", _access)


def memory_of(one: dict[str, Any]) -> str:
    """Return a text that says how much memory a measurement of the part `beyond` had."""
    if one["wanted_limit_bytes"] is None:
        return "memory for all"
    if one["limit_bytes"] is None:
        return "not limited: no control group can be made here"
    return f"within {format_bytes(one['limit_bytes'])}"


def _access(one: dict[str, Any]) -> str:
    return f"{pattern_of(one)}, {format_bytes(one['request_bytes'])}"


def _pivot(part: Figures, head: str, row_of: Callable[[dict[str, Any]], str]) -> Iterator[str]:
    """Yield the lines of a table with a column for each interface. Rows are sorted by access pattern."""

    def column_of(one: dict[str, Any]) -> str:
        return f"{one['interface']}, {one['of']}" if "of" in one else str(one["interface"])

    cells = {(row_of(one), column_of(one)): f"{one['bytes_per_second'] / 1e6:.4g}" for one in part}
    order = [one.name for one in INTERFACES]
    columns = dict.fromkeys(column_of(one) for one in sorted(part, key=lambda one: order.index(one["interface"])))
    rows = dict.fromkeys(row_of(one) for one in sorted(part, key=lambda one: (one["random"], one["write"])))
    yield from table_head([head, *columns])
    for row in rows:
        yield table_row([row, *(cells.get((row, column), "–") for column in columns)])


# --- picture ---------------------------------------------------------------------------------------------------------

COLUMNS = ("sequential read", "sequential write", "random read", "random write")
COLORS = {"io_uring": "#e07b39", "libaio": "#c9b458", "threads": "#4c8c6b", "buffered": "#7f9db9", "mmap": "#8e6c8a",
          "load/store": "#333333"}  # fmt: skip
XLABELS = {"sizes": "access", "depths": "in flight", "cached": "access", "raw": "access", "beyond": ""}


def draw(figures: dict[str, Any], output: Path) -> None:
    """Write the picture to `output` as PNG, with a row for each part and a column for each pattern."""
    parts = [part for part in TITLES if part in figures]
    picture = new_picture(16, 3.6 * len(parts))
    grid = picture.subplots(len(parts), len(COLUMNS), squeeze=False)
    for part, row in zip(parts, grid, strict=True):
        for pattern, axes in zip(COLUMNS, row, strict=True):
            chosen = [one for one in figures[part] if pattern_of(one) == pattern]
            if not chosen:
                axes.set_axis_off()
                continue
            if part == "beyond":
                _bars(axes, chosen)
            else:
                _lines(axes, chosen, "depth" if part == "depths" else "request_bytes")
            axes.set(title=f"{part}: {pattern}", ylabel="MB/s", xlabel=XLABELS[part])
    machine = figures["machine"]
    picture.suptitle(f"{machine['storage']}; {machine['processor']}, {machine['threads']} threads")
    save_picture(picture, output, dpi=100)


def _lines(axes: Axes, chosen: Figures, key: str) -> None:
    """Draw one line for each interface. In these lines, the lines of the raw device are dashed."""
    lines = {(one["interface"], one.get("of", "")) for one in chosen}
    for name, of in sorted(lines, key=lambda line: (list(COLORS).index(line[0]), line[1])):
        line = [one for one in chosen if (one["interface"], one.get("of", "")) == (name, of)]
        axes.plot(
            [one[key] for one in line],
            [one["bytes_per_second"] / 1e6 for one in line],
            marker="o",
            color=COLORS[name],
            linestyle="--" if of == "device" else "-",
            label=f"{name}, {of}" if of else name,
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    places = sorted({one[key] for one in chosen})
    axes.set_xticks(places, [format_bytes(one) if key == "request_bytes" else str(one) for one in places], rotation=45)
    axes.legend(frameon=False, fontsize=7)


def _bars(axes: Axes, chosen: Figures) -> None:
    """Draw two bars for each interface. The first bar shows the rate if memory has room for the whole file. The hatched
    bar shows the rate with less memory."""
    names = list(dict.fromkeys(one["interface"] for one in chosen))
    for one in chosen:
        is_limited = one["wanted_limit_bytes"] is not None
        place = names.index(one["interface"]) + (0.2 if is_limited else -0.2)
        axes.bar(place, one["bytes_per_second"] / 1e6, 0.4, color=COLORS[one["interface"]], edgecolor="white",
                 hatch="//" if is_limited else None, label=memory_of(one))  # fmt: skip
    axes.set_yscale("log")
    axes.margins(y=0.25)
    axes.set_xticks(range(len(names)), names)
    handles, labels = axes.get_legend_handles_labels()
    # a label can occur several times, but the legend shows it only once
    each = dict(zip(labels, handles, strict=True))
    axes.legend(each.values(), each.keys(), frameon=False, fontsize=7, loc="upper left")
