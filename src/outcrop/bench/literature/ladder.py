"""`outcrop bench ladder`: the steps from plain sweeps over swapped memory to wavefronts over direct I/O, side by side.

After Figures 4 and 8 to 10 of Midorikawa and Tan: one 7-point problem, in core and with a part of its memory, by the
paper's eleven columns and ours (ladder_columns.py); then two of them over shares of memory.

    in core        memory for twice both arrays: a layer of arrays and a window, or page cache, that holds them again
    out of core    memory for a share of both arrays, the paper's half unless --memory says otherwise

Each measurement is a process of its own in a memory group, which also limits the page cache. All columns are measured
once. Then the short ones are repeated, in turns, while there is time. The figures are medians.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median_low
from typing import Any

from outcrop.bench.figures import describe_machine
from outcrop.bench.literature.ladder_columns import (
    COLUMNS,
    COMPONENTS,
    FULL,
    SMALL,
    STEPS_WHERE_HOPELESS,
    Column,
    ColumnJob,
    LadderScale,
    Limited,
    budget_of,
    find_column,
    run_job,
    scaled,
)
from outcrop.bench.literature.swap_file import swap_file, swap_free_bytes
from outcrop.bench.rates import OVERHEAD_BYTES
from outcrop.errors import StorageError
from outcrop.paths import made_directory
from outcrop.tiers import discover, measure
from outcrop.units import format_bytes, format_rate, format_seconds

SHARE_COLUMNS = (11, 12)
"""The columns of the figure of speed over shares of memory."""


def bench(
    directory: Path,
    small: bool = False,
    size: tuple[int, int, int] | None = None,
    memory: str | None = None,
    steps: int | None = None,
    png: Path | None = None,
    swap_file: bool = False,
) -> dict[str, Any]:
    """Measure, print, and draw to `png`; the figures as plain data.

    `size` is (nx, ny, nz), `memory` the budget out of core: bytes, or per cent of both arrays. `swap_file`: make swap
    space in `directory` meanwhile, as root. Raises InputError for what cannot be, among it too little memory or disk.
    """
    scale = scaled(SMALL if small else FULL, size, steps, directory, swap_file)
    budget_bytes = budget_of(memory, scale)
    with made_directory(directory):
        if not small:
            measure.measure_afresh(directory)  # what the device does now, not on the day when it was first used
        figures: dict[str, Any] = {
            "benchmark": "ladder",
            "small": small,
            "machine": describe_machine(directory, discover.available_cores()),
            "shape": list(scale.shape),
            "steps": scale.steps,
            "both_arrays_bytes": scale.both_bytes,
            "memory_budget_bytes": budget_bytes,
        }
        with _swap(directory, scale, swap_file):
            ladder = _Ladder(directory, scale, budget_bytes)
            ladder.measure_all()
    figures.update(ladder.figures())
    print("\n".join(tables(figures)))
    if png is not None:
        from outcrop.bench.literature.ladder_picture import draw

        draw(figures, png)
    return figures


def _swap(directory: Path, scale: LadderScale, wanted: bool) -> Any:
    return swap_file(directory, scale.swap_bytes) if wanted else nullcontext()


@dataclass(frozen=True)
class _Key:
    """A bar to be measured: a column with a budget."""

    column: Column
    is_in_core: bool
    budget_bytes: int


class _Ladder:
    """All bars, and their measurements."""

    def __init__(self, directory: Path, scale: LadderScale, budget_bytes: int) -> None:
        self._directory, self._scale = directory, scale
        whole, both = scale.in_core_bytes, scale.both_bytes
        self._in_core = [_Key(column, True, whole) for column in COLUMNS]
        self._out_of_core = [_Key(column, False, budget_bytes) for column in COLUMNS]
        self._over_shares = [
            _Key(find_column(number), False, int(share * both)) for share in scale.shares for number in SHARE_COLUMNS
        ]
        self._runs: dict[_Key, list[Limited]] = {}
        self._trouble: dict[_Key, str] = {}
        self._wall: dict[_Key, float] = {}

    def measure_all(self) -> None:
        """Measure all bars once, then repeat short ones while there is time."""
        begin = time.perf_counter()
        bars = list(dict.fromkeys([*self._in_core, *self._out_of_core, *self._over_shares]))
        for bar in bars:
            self._measure(bar)
        for _ in range(self._scale.max_repeats - 1):
            for bar in self._worth_repeating(bars):
                if time.perf_counter() - begin + self._wall[bar] < self._scale.seconds_in_all:
                    self._measure(bar)

    def _worth_repeating(self, bars: list[_Key]) -> Iterator[_Key]:
        return (bar for bar in bars if self._wall.get(bar, float("inf")) < self._scale.repeat_below_seconds)

    def _measure(self, bar: _Key) -> None:
        column, scale = bar.column, self._scale
        if column.through == "swap" and not bar.is_in_core and swap_free_bytes() < scale.both_bytes:
            self._trouble[bar] = "no swap here for that much; root may use --swap-file"
        else:
            steps = min(scale.steps, STEPS_WHERE_HOPELESS if column.hopeless and not bar.is_in_core else scale.steps)
            window = scale.window_bytes if bar.is_in_core else int(bar.budget_bytes * column.window_share)
            job = ColumnJob(column.number, scale.shape, steps, window)
            limit, start = bar.budget_bytes + OVERHEAD_BYTES, time.perf_counter()
            try:
                run = run_job(job, self._directory, limit, column.through == "swap", scale.max_seconds)
                self._runs.setdefault(bar, []).append(run)
                self._wall[bar] = time.perf_counter() - start
            except StorageError as error:
                self._trouble[bar] = f"failed: {error}"
        print(f"  {line_of(self._entry(bar))}", flush=True)

    def _entry(self, bar: _Key) -> Bar:
        runs, trouble = tuple(self._runs.get(bar, ())), self._trouble.get(bar, "")
        return Bar(bar.column, bar.is_in_core, bar.budget_bytes, self._scale.steps, runs, trouble)

    def figures(self) -> dict[str, Any]:
        """All bars as plain data, relative to the fastest one in core."""
        entries = {bar: self._entry(bar) for bar in (*self._in_core, *self._out_of_core, *self._over_shares)}
        times = [entries[bar].seconds for bar in self._in_core]
        fastest = min((seconds for seconds in times if seconds is not None), default=None)
        if fastest is None:
            raise StorageError(f"no column could be measured in core; the first one {self._trouble[self._in_core[0]]}")

        def group(bars: list[_Key]) -> list[dict[str, Any]]:
            return [entries[bar].to_json(fastest) for bar in bars]

        return {
            "fastest_in_core_seconds": fastest,
            "same_bits": same_bits(list(entries.values())),
            "in_core": group(self._in_core),
            "out_of_core": group(self._out_of_core),
            "over_shares": group(self._over_shares),
        }


@dataclass(frozen=True)
class Bar:
    """A bar of the ladder: a column in core or out of core, with its measurements and notes on them.

    The column had `budget_bytes` of memory for `steps` steps. Its `runs` have that many steps or, if `is_scaled`,
    fewer. `trouble` says why there are no runs; it is "" where there are some."""

    column: Column
    is_in_core: bool
    budget_bytes: int
    steps: int
    runs: tuple[Limited, ...]
    trouble: str = ""

    @property
    def typical(self) -> Limited | None:
        """The run of median duration; of an even number the faster one of both in the middle."""
        if not self.runs:
            return None
        middle = median_low(run.measured.seconds for run in self.runs)
        return next(run for run in self.runs if run.measured.seconds == middle)

    @property
    def is_scaled(self) -> bool:
        """Whether fewer steps were measured."""
        return self.typical is not None and self.typical.measured.steps < self.steps

    @property
    def seconds(self) -> float | None:
        """Median of all steps, None without runs."""
        one = self.typical
        return None if one is None else one.measured.seconds * self._scale(one)

    @property
    def seconds_components(self) -> dict[str, float]:
        """The components of the time of the typical run, for all steps; empty without runs."""
        one = self.typical
        return {} if one is None else {k: v * self._scale(one) for k, v in one.measured.seconds_components.items()}

    @property
    def comparable(self) -> bool:
        """Whether the budget was kept: by a memory group, or by a program that never takes more."""
        one = self.typical
        return one is not None and (self.is_in_core or not self.column.needs_limit or one.limit_bytes is not None)

    @property
    def notes(self) -> list[str]:
        """What a reader of the figures must know."""
        one = self.typical
        if one is None:
            return [self.trouble]
        notes = [f"{one.measured.steps} of {self.steps} steps measured, scaled"] if self.is_scaled else []
        if not self.comparable:
            notes.append("memory not limited here: not comparable")
        elif not self.is_in_core and self.column.through == "swap" and one.measured.swapped_out_bytes == 0:
            notes.append("nothing was swapped out")
        return notes

    def to_json(self, fastest_seconds: float) -> dict[str, Any]:
        """All of it as plain data; `fastest_seconds` is what times are relative to."""
        seconds, one = self.seconds, self.typical
        return {
            "number": self.column.number,
            "name": self.column.name,
            "scheme": self.column.scheme,
            "through": self.column.through,
            "layers": self.column.layers,
            "padded": self.column.padded,
            "is_in_core": self.is_in_core,
            "memory_budget_bytes": self.budget_bytes,
            "seconds": seconds,
            "is_scaled": self.is_scaled,
            "relative_time": None if seconds is None else seconds / fastest_seconds,
            "cell_updates_per_second": None if one is None else one.measured.cells_updated / one.measured.seconds,
            **{f"seconds_{name}": self.seconds_components.get(name) for name in COMPONENTS},
            "is_comparable": self.comparable,
            "notes": self.notes,
            "runs": [asdict(run) for run in self.runs],
        }

    def _scale(self, one: Limited) -> float:
        return self.steps / one.measured.steps


def same_bits(entries: list[Bar]) -> bool:
    """Whether all runs of as many steps ended with the same grid."""
    digests = {run.measured.digest for entry in entries for run in entry.runs if run.measured.steps == entry.steps}
    return len(digests) <= 1


HEADS = {"update": "updates", "read_wait": "reads", "write_wait": "writes", "copy": "copies", "checksum": "checksums",
         "commit": "commits"}  # fmt: skip


def line_of(entry: Bar) -> str:
    """The last run of a bar in one line."""
    where = "in core" if entry.is_in_core else f"in {format_bytes(entry.budget_bytes)}"
    head = f"{entry.column.number:>2} {entry.column.name:<10} {where:<12}"
    if not entry.runs:
        return f"{head} {entry.trouble}"
    last = entry.runs[-1].measured
    said = f"{head} {format_seconds(last.seconds)} for {last.steps} steps, "
    said += f"{format_rate(last.cells_updated / last.seconds)}cell/s"
    return "; ".join([said, *(note for note in entry.notes if "scaled" not in note)])


def tables(figures: dict[str, Any]) -> Iterator[str]:
    """All tables, line by line."""
    both = figures["both_arrays_bytes"]
    share = f"{format_bytes(figures['memory_budget_bytes'])} ({100 * figures['memory_budget_bytes'] / both:.3g} %)"
    nz, ny, nx = figures["shape"]
    yield ""
    yield f"heat7 {nx} x {ny} x {nz} float32, {figures['steps']} steps; both arrays {format_bytes(both)}; out of core "
    yield f"in {share}. Times are against the fastest column in core, {figures['fastest_in_core_seconds']:.3g} s."
    yield ""
    yield from _ladder(figures)
    for key, title in (("in_core", "in core"), ("out_of_core", "out of core")):
        yield ""
        yield from _components(figures[key], title)
    yield ""
    yield from _shares(figures)
    yield ""
    yield "All columns give the same bits." if figures["same_bits"] else "THE COLUMNS DO NOT GIVE THE SAME BITS."


def _ladder(figures: dict[str, Any]) -> Iterator[str]:
    """Figure 4."""
    heads = "in core | out of core | grows | moved, GiB (predicted) | swapped, GiB | bx by bz, bt | notes"
    yield f"| # | column | layers | {heads} |"
    yield "|--:|---|--:|--:|--:|--:|--:|--:|---|---|"
    for inside, outside in zip(figures["in_core"], figures["out_of_core"], strict=True):
        times = [_relative(inside), _relative(outside), _growth(inside, outside)]
        notes = [f"in core: {note}" for note in inside["notes"]] + outside["notes"]
        cells = [str(inside["number"]), inside["name"], str(inside["layers"]), *times, *_moved(outside)]
        yield f"| {' | '.join([*cells, '; '.join(notes)])} |"


def _relative(row: dict[str, Any]) -> str:
    return "–" if row["seconds"] is None else f"{row['relative_time']:.2f}"


def _growth(inside: dict[str, Any], outside: dict[str, Any]) -> str:
    if inside["seconds"] is None or outside["seconds"] is None:
        return "–"
    return f"{outside['seconds'] / inside['seconds']:.2f}"


def _moved(row: dict[str, Any]) -> list[str]:
    """Bytes between memory and flash, bytes swapped, and sizes, of the first run; all runs move the same."""
    if not row["runs"]:
        return ["–", "–", "–"]
    one = row["runs"][0]["measured"]
    gib = 1 << 30
    if row["layers"] == 2:
        moved = f"{(one['bytes_read'] + one['bytes_written']) / gib:.2f} "
        moved += f"({(one['predicted_bytes_read'] + one['predicted_bytes_written']) / gib:.2f})"
    else:
        moved = f"{(one['device_bytes_read'] + one['device_bytes_written']) / gib:.2f} (by the system)"
    swapped = (one["swapped_in_bytes"] + one["swapped_out_bytes"]) / gib
    block = " ".join(map(str, one["block"]))
    return [moved, f"{swapped:.2f}" if swapped >= 0.005 else "0", f"{block}, {one['levels']}"]


def _components(rows: list[dict[str, Any]], title: str) -> Iterator[str]:
    """Figures 8 and 9."""
    yield f"| seconds {title} | all | {' | '.join(HEADS[name] for name in COMPONENTS)} |"
    yield "|---|--:|" + "--:|" * len(COMPONENTS)
    for row in rows:
        if row["seconds"] is not None:
            parts = [f"{row[f'seconds_{name}']:.2f}" for name in COMPONENTS]
            yield f"| {row['number']} {row['name']} | {row['seconds']:.2f} | {' | '.join(parts)} |"


def _shares(figures: dict[str, Any]) -> Iterator[str]:
    """Figure 10: speed against the fastest in core, over memory."""
    rows = figures["over_shares"]
    budgets = sorted({row["memory_budget_bytes"] for row in rows}, reverse=True)
    names = list(dict.fromkeys(row["name"] for row in rows))
    shares = [f"{100 * one / figures['both_arrays_bytes']:.3g} %" for one in budgets]
    yield f"| memory against both arrays | {' | '.join(shares)} |"
    yield "|---|" + "--:|" * len(budgets)
    for name in names:
        of = {row["memory_budget_bytes"]: row for row in rows if row["name"] == name}
        speeds = [f"{1 / of[one]['relative_time']:.2f}" if of[one]["seconds"] else "–" for one in budgets]
        yield f"| {name}, speed | {' | '.join(speeds)} |"
