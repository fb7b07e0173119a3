"""`outcrop bench ladder`: compare twelve programs, from plain sweeps over swapped memory to wavefronts with direct I/O.

The benchmark repeats Figures 4 and 8 to 10 of Midorikawa and Tan. Each program is one column of Figure 4. Figure 4 in
the paper has eleven columns, and we add one more column (ladder_columns.py). All columns solve the same 7-point problem
with two arrays, in core and out of core. Two columns are measured again with several amounts of memory.

    `in core`       The memory has twice the size of both arrays. So it has room for both arrays, and for a copy of both
                    arrays in a window or in the page cache.
    `out of core`   The memory is a share of the size of both arrays. The default is one half, as in the paper.

Each measurement is a separate process in a control group. The control group limits the memory of the process, including
the page cache. First, all columns are measured once. The short measurements are then repeated alternately until the
time for the benchmark is used up. The printed figures are medians.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median_low
from typing import TYPE_CHECKING, Any

from outcrop.bench import memory as process_memory
from outcrop.bench.figures import COLORS, describe_machine, new_picture, save_picture, table_head, table_row
from outcrop.bench.literature import ladder_columns as columns
from outcrop.bench.literature.ladder_columns import COLUMNS, COMPONENTS, Column, LadderScale, LimitedRun
from outcrop.bench.rates import OVERHEAD_BYTES
from outcrop.errors import StorageError
from outcrop.paths import made_directory
from outcrop.tiers import discover, measure
from outcrop.units import format_bytes, format_rate, format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHARE_COLUMNS = (11, 12)
"""The columns in Figure 10."""


def bench(
    directory: Path,
    small: bool = False,
    size: tuple[int, int, int] | None = None,
    memory: str | None = None,
    steps: int | None = None,
    png: Path | None = None,
    swap_file: bool = False,
) -> dict[str, Any]:
    """Measure all columns of the ladder, print the figures, and draw the figures in the file `png`. Returns the figures
    as plain data.

    `size` is (nx, ny, nz). `memory` is the budget out of core, in bytes or in per cent of both arrays. If `swap_file`
    is true, the benchmark makes a swap file in `directory`. Only root can make a swap file. Raises InputError if an
    option is wrong, or if the memory or the disk is too small.
    """
    scale = columns.scaled(columns.SMALL if small else columns.FULL, size, steps, directory, swap_file)
    budget_bytes = columns.budget_of(memory, scale)
    with made_directory(directory):
        if not small:
            measure.measure_afresh(directory)  # rates in the user's cache may be out of date
        figures: dict[str, Any] = {
            "benchmark": "ladder",
            "small": small,
            "machine": describe_machine(directory, discover.available_cores()),
            "shape": list(scale.shape),
            "steps": scale.steps,
            "both_arrays_bytes": scale.both_bytes,
            "memory_budget_bytes": budget_bytes,
        }
        with process_memory.swap_file(directory, scale.swap_bytes) if swap_file else nullcontext():
            ladder = _Ladder(directory, scale, budget_bytes)
            ladder.measure_all()
    figures.update(ladder.figures())
    print("\n".join(tables(figures)))
    if png is not None:
        draw(figures, png)
    return figures


@dataclass
class Bar:
    """A bar of the ladder: one column, in core or out of core. The program of the column computes `steps` steps with
    `budget_bytes` of memory.

    `runs` are the measurements of `steps` steps, or of fewer steps if `is_scaled` is true. If `runs` is empty,
    `problem` says why there is no measurement. If a repeat has failed, `problem` gives the reason. The last measurement
    took `wall_seconds`.
    """

    column: Column
    is_in_core: bool
    budget_bytes: int
    steps: int
    runs: list[LimitedRun] = field(default_factory=list)
    problem: str = ""
    wall_seconds: float = math.inf

    @property
    def typical(self) -> LimitedRun | None:
        """The run with the median duration. For an even number of runs, `typical` is the faster one of the two middle
        runs. If there are no runs, `typical` is None."""
        if not self.runs:
            return None
        middle = median_low(run.measured.seconds for run in self.runs)
        return next(run for run in self.runs if run.measured.seconds == middle)

    @property
    def factor(self) -> float:
        """The number of steps of the whole run divided by the number of measured steps."""
        return 1.0 if self.typical is None else self.steps / self.typical.measured.steps

    @property
    def is_scaled(self) -> bool:
        """True if the measured runs have fewer steps than the whole run."""
        return self.factor > 1

    @property
    def seconds(self) -> float | None:
        """The median of the time of all steps, in seconds. None if there are no runs."""
        return None if self.typical is None else self.typical.measured.seconds * self.factor

    @property
    def comparable(self) -> bool:
        """True if a control group limited the memory to the budget, or if the program itself needs no more than the
        budget."""
        one = self.typical
        return one is not None and (self.is_in_core or not self.column.needs_limit or one.limit_bytes is not None)

    @property
    def notes(self) -> list[str]:
        """Remarks that a reader needs to understand the figures of this bar."""
        one = self.typical
        if one is None:
            return [self.problem]
        notes = [self.problem] if self.problem else []
        if self.is_scaled:
            measured = f"{one.measured.steps} of {self.steps} steps measured"
            notes.append(f"{measured}, time scaled; bytes of {one.measured.steps} steps")
        if not self.comparable:
            notes.append("memory not limited here: not comparable")
        elif not self.is_in_core and self.column.through == "swap" and one.measured.swapped_out_bytes == 0:
            notes.append("nothing was swapped out")
        return notes

    def to_json(self, fastest_seconds: float) -> dict[str, Any]:
        """Return the bar as plain data. Times are relative to `fastest_seconds`."""
        seconds, one = self.seconds, self.typical
        components = {} if one is None else one.measured.seconds_components
        return {
            **asdict(self.column),
            "is_in_core": self.is_in_core,
            "memory_budget_bytes": self.budget_bytes,
            "seconds": seconds,
            "is_scaled": self.is_scaled,
            "relative_time": None if seconds is None else seconds / fastest_seconds,
            "cell_updates_per_second": None if one is None else one.measured.cells_updated / one.measured.seconds,
            **{f"seconds_{name}": components[name] * self.factor if components else None for name in COMPONENTS},
            "is_comparable": self.comparable,
            "notes": self.notes,
            "runs": [asdict(run) for run in self.runs],
        }


class _Ladder:
    """All bars of the ladder. If two figures of the paper show the same column with the same budget, both figures use
    the same bar."""

    def __init__(self, directory: Path, scale: LadderScale, budget_bytes: int) -> None:
        self._directory, self._scale = directory, scale
        self._bars: dict[tuple[int, bool, int], Bar] = {}
        self._in_core = [self._bar(column, True, scale.in_core_bytes) for column in COLUMNS]
        self._out_of_core = [self._bar(column, False, budget_bytes) for column in COLUMNS]
        self._over_shares = [
            self._bar(columns.find_column(number), False, int(share * scale.both_bytes))
            for share in scale.shares
            for number in SHARE_COLUMNS
        ]

    def _bar(self, column: Column, is_in_core: bool, budget_bytes: int) -> Bar:
        bar = Bar(column, is_in_core, budget_bytes, self._scale.steps)
        return self._bars.setdefault((column.number, is_in_core, budget_bytes), bar)

    def measure_all(self) -> None:
        """Measure all bars once. Then repeat the short measurements until the time for the benchmark is used up."""
        begin, scale = time.perf_counter(), self._scale
        for bar in self._bars.values():
            self._measure(bar)
        for _ in range(scale.max_repeats - 1):
            for bar in self._bars.values():
                is_short = bar.wall_seconds < scale.repeat_below_seconds
                if is_short and time.perf_counter() - begin + bar.wall_seconds < scale.seconds_in_all:
                    self._measure(bar)

    def _measure(self, bar: Bar) -> None:
        column, scale, before = bar.column, self._scale, len(bar.runs)
        if column.through == "swap" and not bar.is_in_core and process_memory.swap_free_bytes() < scale.both_bytes:
            bar.problem = "this machine has too little free swap; root may use --swap-file"
        else:
            is_slow = column.scheme == "naive" and not bar.is_in_core
            steps = min(scale.steps, columns.NAIVE_STEPS) if is_slow else scale.steps
            share = 1.0 if column.through == "aio" else columns.PAGED_SHARE
            window = scale.window_bytes if bar.is_in_core else int(bar.budget_bytes * share)
            job = columns.ColumnJob(column.number, scale.shape, steps, window)
            limit, may_swap, start = bar.budget_bytes + OVERHEAD_BYTES, column.through == "swap", time.perf_counter()
            try:
                bar.runs.append(columns.run_job(job, self._directory, limit, may_swap, scale.max_seconds))
                bar.wall_seconds = time.perf_counter() - start
            except StorageError as error:
                bar.problem = f"failed: {error}"
        print(f"  {line_of(bar, len(bar.runs) > before)}", flush=True)

    def figures(self) -> dict[str, Any]:
        """Return all bars as plain data. The times in this data are relative to the time of the fastest bar in core."""
        times = [bar.seconds for bar in self._in_core if bar.seconds is not None]
        if not times:
            problem = self._in_core[0].problem
            raise StorageError(f"no column could be measured in core; the first one {problem}")
        fastest = min(times)
        return {
            "fastest_in_core_seconds": fastest,
            "same_bits": same_bits(list(self._bars.values())),
            "in_core": [bar.to_json(fastest) for bar in self._in_core],
            "out_of_core": [bar.to_json(fastest) for bar in self._out_of_core],
            "over_shares": [bar.to_json(fastest) for bar in self._over_shares],
        }


def same_bits(bars: list[Bar]) -> bool:
    """Return True if all runs that computed all steps have the same final grid."""
    digests = {run.measured.digest for bar in bars for run in bar.runs if run.measured.steps == bar.steps}
    return len(digests) <= 1


# --- tables ----------------------------------------------------------------------------------------------------------

HEADS = {"update": "updates", "read_wait": "reads", "write_wait": "writes", "copy": "copies", "checksum": "checksums",
         "commit": "commits"}  # fmt: skip


def line_of(bar: Bar, is_measured: bool) -> str:
    """Return a line about the last measurement of a bar: its figures, or the reason for which it has failed."""
    where = "in core" if bar.is_in_core else f"in {format_bytes(bar.budget_bytes)}"
    head = f"{bar.column.number:>2} {bar.column.name:<10} {where:<12}"
    if not is_measured:
        return f"{head} {bar.problem}"
    last = bar.runs[-1].measured
    text = f"{head} {format_seconds(last.seconds)} for {last.steps} steps, "
    text += f"{format_rate(last.cells_updated / last.seconds)}cell/s"
    return "; ".join([text, *(note for note in bar.notes if "scaled" not in note)])


def tables(figures: dict[str, Any]) -> Iterator[str]:
    both = figures["both_arrays_bytes"]
    share = f"{format_bytes(figures['memory_budget_bytes'])} ({100 * figures['memory_budget_bytes'] / both:.3g} %)"
    nz, ny, nx = figures["shape"]
    yield ""
    yield f"heat7 {nx} x {ny} x {nz} float32, {figures['steps']} steps; both arrays {format_bytes(both)}; out of core "
    yield f"in {share}. Times are against the fastest column in core, {figures['fastest_in_core_seconds']:.3g} s."
    yield ""
    yield from _times_table(figures)
    for key, title in (("in_core", "in core"), ("out_of_core", "out of core")):
        yield ""
        yield from _components_table(figures[key], title)
    yield ""
    yield from _shares_table(figures)
    yield ""
    yield "All columns give the same bits." if figures["same_bits"] else "THE COLUMNS DO NOT GIVE THE SAME BITS."


def _times_table(figures: dict[str, Any]) -> Iterator[str]:
    """Yield the table of Figure 4."""
    heads = "in core | out of core | grows | moved, GiB (predicted) | swapped, GiB | bx by bz, bt | notes"
    yield f"| # | column | layers | {heads} |"
    yield "|--:|---|--:|--:|--:|--:|--:|--:|---|---|"
    for inside, outside in zip(figures["in_core"], figures["out_of_core"], strict=True):
        times = [f"{row['relative_time']:.2f}" if row["seconds"] else "–" for row in (inside, outside)]
        growth = f"{outside['seconds'] / inside['seconds']:.2f}" if inside["seconds"] and outside["seconds"] else "–"
        notes = [f"in core: {note}" for note in inside["notes"]] + outside["notes"]
        cells = [str(inside["number"]), inside["name"], str(inside["layers"]), *times, growth, *_moved(outside)]
        yield table_row([*cells, "; ".join(notes)])


def _moved(row: dict[str, Any]) -> list[str]:
    """Return three texts: the bytes moved between memory and flash, the swapped bytes, and the sizes of blocks and
    passes. The texts describe one run of the bar, because all runs of a bar move the same number of bytes."""
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


def _components_table(rows: list[dict[str, Any]], title: str) -> Iterator[str]:
    """Yield the table of Figures 8 and 9: the components of the times."""
    yield from table_head([f"seconds {title}", "all", *(HEADS[name] for name in COMPONENTS)])
    for row in rows:
        if row["seconds"] is not None:
            parts = [f"{row[f'seconds_{name}']:.2f}" for name in COMPONENTS]
            yield table_row([f"{row['number']} {row['name']}", f"{row['seconds']:.2f}", *parts])


def _shares_table(figures: dict[str, Any]) -> Iterator[str]:
    """Yield the table of Figure 10: the speed relative to the fastest column in core, for each share of memory."""
    rows = figures["over_shares"]
    budgets = sorted({row["memory_budget_bytes"] for row in rows}, reverse=True)
    shares = [f"{100 * one / figures['both_arrays_bytes']:.3g} %" for one in budgets]
    yield from table_head(["memory against both arrays", *shares])
    for name in dict.fromkeys(row["name"] for row in rows):
        of = {row["memory_budget_bytes"]: row for row in rows if row["name"] == name}
        speeds = [f"{1 / of[one]['relative_time']:.2f}" if of[one]["seconds"] else "–" for one in budgets]
        yield table_row([f"{name}, speed", *speeds])


# --- picture ---------------------------------------------------------------------------------------------------------

IN_CORE, OUT_OF_CORE = "#a6c8e4", "#2f6ea5"
PART_COLORS = tuple(COLORS[name.partition("_")[0]] for name in COMPONENTS)
"""One colour for each component in COMPONENTS."""
LINES = ("--", "-")
"""The styles of the lines for the columns in SHARE_COLUMNS."""
BAR = 0.38
"""The width of a bar. Each column has two bars."""


def draw(figures: dict[str, Any], output: Path) -> None:
    """Write the picture to `output` as PNG: all times, their components, and the speed for each share of memory."""
    picture = new_picture(11, 13)
    times, components, speed = picture.subplots(3, 1, height_ratios=(3, 3, 2))
    _draw_times(times, figures)
    _draw_components(components, figures)
    _draw_speed(speed, figures)
    names = [f"{row['number']}\n{row['name']}" for row in figures["in_core"]]
    for axes in (times, components):
        axes.set_xticks(range(len(names)), names, fontsize=8)
    nz, ny, nx = figures["shape"]
    both, budget = figures["both_arrays_bytes"], figures["memory_budget_bytes"]
    picture.suptitle(
        f"heat7 {nx} x {ny} x {nz} float32, {figures['steps']} steps; both arrays {format_bytes(both)}, "
        f"out of core in {format_bytes(budget)}"
    )
    save_picture(picture, output)


def _draw_times(axes: Axes, figures: dict[str, Any]) -> None:
    """Draw Figure 4: the times of each column in core and out of core, relative to the fastest column in core. A bar is
    hatched if its time is calculated from fewer steps."""
    for offset, key, color in ((-BAR / 2, "in_core", IN_CORE), (BAR / 2, "out_of_core", OUT_OF_CORE)):
        for place, row in enumerate(figures[key]):
            if row["seconds"] is None:
                axes.annotate("not\nmeasured", (place + offset, 1), ha="center", va="bottom", fontsize=6, rotation=90)
                continue
            hatch = "//" if row["is_scaled"] else "xx" if not row["is_comparable"] else None
            bars = axes.bar(place + offset, row["relative_time"], BAR, color=color, hatch=hatch, edgecolor="white")
            axes.bar_label(bars, [f"{row['relative_time']:.2f}"], fontsize=6)
    axes.set_yscale("log")
    axes.margins(y=0.15)
    from matplotlib.patches import Patch

    handles = [Patch(color=IN_CORE, label="in core"), Patch(color=OUT_OF_CORE, label="out of core")]
    axes.legend(handles=handles, frameon=False)
    axes.set(ylabel="time against the fastest in core", title="time of each column; // scaled, xx memory not limited")


def _draw_components(axes: Axes, figures: dict[str, Any]) -> None:
    """Draw Figures 8 and 9: the bars of Figure 4, divided into the components of the time."""
    for offset, key in ((-BAR / 2, "in_core"), (BAR / 2, "out_of_core")):
        for place, row in enumerate(figures[key]):
            below = 0.0
            for name, color in zip(COMPONENTS, PART_COLORS, strict=True):
                share = (row[f"seconds_{name}"] or 0.0) / row["seconds"] if row["seconds"] else 0.0
                axes.bar(place + offset, share, BAR, below, color=color, edgecolor="white", linewidth=0.3)
                below += share
    from matplotlib.patches import Patch

    handles = [Patch(color=color, label=HEADS[name]) for name, color in zip(COMPONENTS, PART_COLORS, strict=True)]
    axes.legend(handles=handles, ncols=len(handles), loc="upper center", bbox_to_anchor=(0.5, -0.08), frameon=False)
    title = "parts of the time, in core (left) and out of core (right); with one layer, waits are part of updates"
    axes.set(ylabel="share of the time", ylim=(0, 1.02), title=title)


def _draw_speed(axes: Axes, figures: dict[str, Any]) -> None:
    """Draw Figure 10: the speed relative to the fastest column in core, for each share of memory."""
    rows = [row for row in figures["over_shares"] if row["seconds"]]
    for name, style in zip(dict.fromkeys(row["name"] for row in rows), LINES, strict=False):
        of = [row for row in rows if row["name"] == name]
        shares = [100 * row["memory_budget_bytes"] / figures["both_arrays_bytes"] for row in of]
        speeds = [1 / row["relative_time"] for row in of]
        axes.plot(shares, speeds, marker="o", label=name, color=OUT_OF_CORE, linestyle=style)
    axes.set_xscale("log", base=2)
    axes.invert_xaxis()
    shares = sorted({100 * row["memory_budget_bytes"] / figures["both_arrays_bytes"] for row in rows})
    axes.set_xticks(shares, [f"{share:.3g} %" for share in shares])
    axes.set(xlabel="memory against both arrays", ylabel="speed against the fastest in core", ylim=(0, None),
             title="speed out of core")  # fmt: skip
    axes.legend(frameon=False)
