"""`outcrop bench ladder`: the steps from plain sweeps over swapped memory to wavefronts over direct I/O, side by side.

After Figures 4 and 8 to 10 of Midorikawa and Tan: one 7-point problem, in core and with a part of its memory, by the
paper's eleven columns and ours (columns.py); then two of them over shares of memory.

    in core        memory for twice both arrays: a layer of arrays and a window, or page cache, that holds them again
    out of core    memory for a share of both arrays, the paper's half unless --memory says otherwise

Every measurement is a process of its own in a memory group that limits page cache, too. All columns are measured once;
then those that took little are repeated, in turns, while there is time. Medians count.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outcrop.bench.core import OVERHEAD_BYTES, describe_machine
from outcrop.bench.ladder.columns import COLUMNS, STEPS_WHERE_HOPELESS, Column, find_column
from outcrop.bench.ladder.entry import Entry, same_bits
from outcrop.bench.ladder.job import Job, Limited, run_job
from outcrop.bench.ladder.scale import FULL, SMALL, Scale, budget_of, scaled
from outcrop.bench.ladder.swap_file import swap_file, swap_free_bytes
from outcrop.bench.ladder.table import line_of, tables
from outcrop.errors import StorageError
from outcrop.paths import made_directory
from outcrop.tiers import discover, measure

SHARE_COLUMNS = (11, 12)
"""Those of the figure of speed over shares of memory."""


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
        from outcrop.bench.ladder.picture import draw

        draw(figures, png)
    return figures


def _swap(directory: Path, scale: Scale, wanted: bool) -> Any:
    return swap_file(directory, scale.swap_bytes) if wanted else nullcontext()


@dataclass(frozen=True)
class _Bar:
    """What is measured: a column with a budget."""

    column: Column
    is_in_core: bool
    budget_bytes: int


class _Ladder:
    """All bars, and what has been measured of them."""

    def __init__(self, directory: Path, scale: Scale, budget_bytes: int) -> None:
        self._directory, self._scale = directory, scale
        whole, both = scale.in_core_bytes, scale.both_bytes
        self._in_core = [_Bar(column, True, whole) for column in COLUMNS]
        self._out_of_core = [_Bar(column, False, budget_bytes) for column in COLUMNS]
        self._over_shares = [
            _Bar(find_column(number), False, int(share * both)) for share in scale.shares for number in SHARE_COLUMNS
        ]
        self._runs: dict[_Bar, list[Limited]] = {}
        self._trouble: dict[_Bar, str] = {}
        self._wall: dict[_Bar, float] = {}

    def measure_all(self) -> None:
        """Everything once, then again what is worth it."""
        begin = time.perf_counter()
        bars = list(dict.fromkeys([*self._in_core, *self._out_of_core, *self._over_shares]))
        for bar in bars:
            self._measure(bar)
        for _ in range(self._scale.repeats_most - 1):
            for bar in self._worth_repeating(bars):
                if time.perf_counter() - begin + self._wall[bar] < self._scale.seconds_in_all:
                    self._measure(bar)

    def _worth_repeating(self, bars: list[_Bar]) -> Iterator[_Bar]:
        return (bar for bar in bars if self._wall.get(bar, float("inf")) < self._scale.repeat_below_seconds)

    def _measure(self, bar: _Bar) -> None:
        column, scale = bar.column, self._scale
        if column.through == "swap" and not bar.is_in_core and swap_free_bytes() < scale.both_bytes:
            self._trouble[bar] = "no swap here for that much; root may use --swap-file"
        else:
            steps = min(scale.steps, STEPS_WHERE_HOPELESS if column.is_hopeless and not bar.is_in_core else scale.steps)
            window = scale.window_bytes if bar.is_in_core else int(bar.budget_bytes * column.window_share)
            job = Job(column.number, scale.shape, steps, window)
            limit, start = bar.budget_bytes + OVERHEAD_BYTES, time.perf_counter()
            try:
                run = run_job(job, self._directory, limit, column.through == "swap", scale.seconds_most)
                self._runs.setdefault(bar, []).append(run)
                self._wall[bar] = time.perf_counter() - start
            except StorageError as error:
                self._trouble[bar] = f"failed: {error}"
        print(f"  {line_of(self._entry(bar))}", flush=True)

    def _entry(self, bar: _Bar) -> Entry:
        runs, trouble = tuple(self._runs.get(bar, ())), self._trouble.get(bar, "")
        return Entry(bar.column, bar.is_in_core, bar.budget_bytes, self._scale.steps, runs, trouble)

    def figures(self) -> dict[str, Any]:
        """All bars as plain data, relative to the fastest one in core."""
        entries = {bar: self._entry(bar) for bar in (*self._in_core, *self._out_of_core, *self._over_shares)}
        times = [entries[bar].seconds for bar in self._in_core]
        fastest = min((seconds for seconds in times if seconds is not None), default=None)
        if fastest is None:
            raise StorageError(f"no column could be measured in core; the first one {self._trouble[self._in_core[0]]}")

        def group(bars: list[_Bar]) -> list[dict[str, Any]]:
            return [entries[bar].to_json(fastest) for bar in bars]

        return {
            "fastest_in_core_seconds": fastest,
            "same_bits": same_bits(list(entries.values())),
            "in_core": group(self._in_core),
            "out_of_core": group(self._out_of_core),
            "over_shares": group(self._over_shares),
        }
