"""`outcrop watch`: a live page about a run that another process computes."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from shutil import get_terminal_size
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from outcrop.axes import x_first
from outcrop.errors import InputError, OutcropError
from outcrop.units import counted, format_rate, format_seconds

if TYPE_CHECKING:
    from outcrop.run.watch import Glance, NormGlance, Pace, TraceGlance

MIN_SECONDS, MAX_SECONDS = 0.05, 3600.0
"""The limits of --interval."""

BARS, ASCII_BARS = "▁▂▃▄▅▆▇█", "_.-~=+*#"
"""Characters of increasing height, which draw a curve in one line of text."""

FULL, EMPTY, ASCII_FULL, ASCII_EMPTY = "█", "░", "#", "."
MAX_CURVE_COLUMNS, MIN_CURVE_COLUMNS, NAME_COLUMNS, TEXT_COLUMNS = 48, 12, 20, 88
"""The columns of a curve, of the name in the same line, and of the name with all figures. If the figures do not fit
into the line of the curve, they are below the curve."""
BAR_COLUMNS, BESIDE_BAR_COLUMNS = 40, 42
"""The columns of the bar, and of the other text in the same line. In a narrow terminal, the bar is shorter."""
TABLE_COLUMNS = 70
"""The minimum number of columns for a wide table. In a narrower terminal, the columns of the table are narrower."""
MIN_NAME_COLUMNS = 9
"""The minimum number of columns for the names of lines."""
WRAPPED, MIN_WRAPPED_COLUMNS = ("  status ", "  values ", "  ranks "), 20
"""The beginnings of lines of the live page that are wrapped in a narrow terminal, and the minimum width of such
lines."""
MAX_RANKS = 8
"""The maximum number of parts whose steps the page lists separately."""


def watch(
    where: Annotated[
        Path, Argument(metavar="WHERE", help="directory or device of a run, or the directory with all its parts")
    ],
    once: Annotated[bool, Option("--once", help="print one summary, and end")] = False,
    interval: Annotated[float, Option(metavar="SECONDS", help="the time between two looks at the run")] = 1.0,
    keep: Annotated[
        bool, Option("--keep", help="go on after the run has finished, for programs that continue it")
    ] = False,
    web: Annotated[bool, Option("--web", help="show the page in a browser, with slices of snapshots")] = False,
    port: Annotated[int, Option(metavar="N", help="port of the page on 127.0.0.1 [default: any free port]")] = 0,
) -> None:
    """Show the progress of a run that another process computes. The command only reads, and never disturbs the run.

    The page shows the committed steps, the time left, measured rates beside predicted rates, traces and norms. The run
    need not exist yet, except with --once. Without --web, the command ends when the run has finished. Ctrl-C ends the
    command, but not the run.
    """
    from outcrop.run.watch import Watcher, has_begun, not_started

    if not MIN_SECONDS <= interval <= MAX_SECONDS:
        raise InputError(f"--interval {interval:g}: give {MIN_SECONDS:g} to {MAX_SECONDS:.0f} seconds")
    if once and (web or keep):
        raise InputError(f"--once ends at once; leave out {'--web' if web else '--keep'}")
    if web and keep:
        raise InputError("--web goes on until Ctrl-C; leave out --keep")
    if port and not web:
        raise InputError("--port is for the page in a browser; give --web, too")
    if once and not has_begun(where):
        raise InputError(not_started(where, waits=False))
    watcher = Watcher(where)
    if once:
        print("\n".join(page(watcher.look(curve_columns(), sys.maxsize))))
    elif web:
        from outcrop.cli.watch_web import serve

        serve(watcher, interval, port)
    elif _can_draw():
        _show_page(lambda: watcher.look(curve_columns()), interval, keep)
    else:
        _print_lines(watcher.look, interval, keep)


def curve_columns() -> int:
    """Return the number of columns that a curve has in the terminal of this command."""
    beside = _columns() - TEXT_COLUMNS
    room = beside if beside >= MIN_CURVE_COLUMNS else _columns() - NAME_COLUMNS
    return min(MAX_CURVE_COLUMNS, max(MIN_CURVE_COLUMNS, room))


def _columns() -> int:
    return get_terminal_size((120, 24)).columns


def page(now: Glance, earlier: Glance | None = None) -> list[str]:
    """Return the lines of the page. `earlier` is a glance at an earlier commit of the same run, if there is one."""
    lines = [str(now.place) if now.run is None else f"{now.place}: {_subject(now)}"]
    rows = [("status", _status(now))]
    if now.run is not None and now.run.target_step:
        rows.append(("progress", f"{_bar(now.fraction)} {now.fraction:6.1%}{_left(now)}"))
    rows += [("values", text) for text in _not_finite(now)]
    lines += _rows(rows)
    if now.pace is not None:
        lines += ["", *_table(now.pace, _between(earlier, now))]
    lines += _rows(_ranks(now)) + _rows(_records(now))
    return lines


def line(now: Glance, earlier: Glance | None = None) -> str:
    """Return one line about the run, for a log."""
    texts = [time.strftime("%H:%M:%S", time.localtime(now.now)), _status(now, is_brief=True)]
    if now.run is not None and now.run.target_step:
        texts[1] += f", {now.fraction:.1%}{_left(now)}"
    pace = _between(earlier, now) or now.pace
    if pace is not None and pace.updates is not None:
        texts.append(f"{_per_second(pace.updates, 'cell')}, read {_per_second(pace.read, 'B')}, "
                     f"write {_per_second(pace.written, 'B')}")  # fmt: skip
    texts += _not_finite(now)
    texts += [f"{one.field}: {_last_norms(one)}" for one in now.norms if one.rows is not None and len(one.rows)]
    return "  ".join(texts)


def _not_finite(now: Glance) -> list[str]:
    found = now.pace.not_finite if now.pace else {}
    return [f"{name} has NaN or infinity, found after step {step}" for name, step in found.items()]


def _subject(now: Glance) -> str:
    assert now.run is not None
    size = " x ".join(map(str, x_first(now.run.own_shape, now.run.axis_names)))
    return f"{now.run.stencil.get('name', '?')} {size} {now.run.dtype}"


def _status(now: Glance, is_brief: bool = False) -> str:
    from outcrop.run.watch import FINISHED, RUNNING

    if now.run is None:
        return f"{now.status}: {now.note}"
    is_alone = now.status == FINISHED or not now.run.target_step
    step = f"step {now.run.step}" if is_alone else f"step {now.run.step} of {now.run.target_step}"
    text = f"{now.status}: {step}"
    if now.status == RUNNING and now.age is not None and now.pace is not None and not is_brief:
        what = "last commit" if now.pace.steps_done else "begun"
        text += f", {what} {format_age(now.age)} ago"
        if now.next_commit_seconds is not None and now.next_commit_seconds >= 1:
            text += f", next commit in about {format_age(now.next_commit_seconds)}"
    return f"{text}; {now.note}" if now.note else text


def format_age(seconds: float) -> str:
    """Return a duration as a short text, such as "4 s" or "2 min 05 s". Durations of less than a minute are rounded to
    seconds."""
    return f"{seconds:.0f} s" if seconds < 60 else format_seconds(seconds)


def _left(now: Glance) -> str:
    return "" if now.seconds_left is None else f", about {format_age(now.seconds_left)} left"


def _table(pace: Pace, latest: Pace | None) -> list[str]:
    """Return a table with the measured and the predicted figures of one call of `run`. `latest` has the figures since
    an earlier look."""
    heads = ["measured", "predicted"] + (["latest"] if latest else [])
    done, total = pace.seconds if pace.steps_done else 0.0, pace.step_seconds
    rows: list[tuple[str, list[str]]] = [
        (f"time of {counted(pace.steps_done, 'step')}", [format_seconds(done), format_seconds(pace.predicted_so_far)]),
    ] if pace.steps_done else []
    rows += [
        (
            f"time of all {pace.steps}",
            [
                f"{format_seconds(total * pace.steps)}" if total and pace.steps_done else "-",
                format_seconds(pace.predicted_seconds),
            ],
        ),
        ("updates", [_per_second(pace.updates, "cell"), _per_second(pace.predicted_updates, "cell")]),
        ("read", [_per_second(pace.read if pace.steps_done else None, "B"), _per_second(pace.predicted_read, "B")]),
        (
            "written",
            [_per_second(pace.written if pace.steps_done else None, "B"), _per_second(pace.predicted_written, "B")],
        ),
    ]
    if latest is not None:
        figures = [*[format_seconds(latest.seconds)] * bool(pace.steps_done), "", _per_second(latest.updates, "cell"),
                   _per_second(latest.read, "B"), _per_second(latest.written, "B")]  # fmt: skip
        rows = [(name, [*texts, more]) for (name, texts), more in zip(rows, figures, strict=True)]
    cells = [(f"since step {pace.first_step}" if pace.first_step else "", heads), *rows]
    first, others = (20, 16) if _columns() >= TABLE_COLUMNS else (19, 13)
    return [f"  {name:<{first}}" + "".join(f"{text:>{others}}" for text in texts).rstrip() for name, texts in cells]


def _between(earlier: Glance | None, now: Glance) -> Pace | None:
    """Return the figures of the commits between the looks `earlier` and `now`. If the looks are not at the same call of
    `run`, return None."""
    from dataclasses import replace

    if earlier is None or earlier.pace is None or now.pace is None or earlier.run is None or now.run is None:
        return None
    before, after = earlier.pace, now.pace
    steps, seconds = after.steps_done - before.steps_done, after.seconds - before.seconds
    is_same = earlier.run.identity == now.run.identity and before.steps == after.steps
    if not is_same or steps <= 0 or seconds <= 0 or not before.steps_done:
        return None

    def rate(first: float | None, last: float | None) -> float | None:
        if first is None or last is None:
            return None
        return max(0.0, (last * after.seconds - first * before.seconds) / seconds)

    return replace(after, steps_done=steps, seconds=seconds, read=rate(before.read, after.read),
                   written=rate(before.written, after.written))  # fmt: skip


def _ranks(now: Glance) -> list[tuple[str, str]]:
    if len(now.steps) < 2:
        return []
    lowest, highest = min(now.steps), max(now.steps)
    text = f"{len(now.steps)} parts, all at step {lowest}"
    if lowest < highest and len(now.steps) <= MAX_RANKS:
        text = ", ".join(f"rank {rank} at step {step}" for rank, step in enumerate(now.steps))
    elif lowest < highest:
        behind = [str(rank) for rank, step in enumerate(now.steps) if step == lowest]
        some = ", ".join(behind[:MAX_RANKS]) + (", ..." if len(behind) > MAX_RANKS else "")
        text = f"{len(now.steps)} parts, steps {lowest} to {highest}; last: {some}"
    return [("", ""), ("ranks", text)]


def _records(now: Glance) -> list[tuple[str, str]]:
    """Return a row for each trace and for the norms of each field."""
    every = [(f"trace {one.name}", *_trace(one, now.step)) for one in now.traces]
    every += [(f"norms {one.field}", *_norms(one)) for one in now.norms]
    room = _columns() - max([MIN_NAME_COLUMNS, *(len(name) for name, _, _ in every)]) - 3
    found = []
    for name, bars, text in every:
        if len(bars) + 2 + len(text) <= room or not bars:
            found.append((name, f"{bars}  {text}" if bars else text))
        else:
            found += [(name, bars), *(("", line) for line in _wrapped_figures(text, room))]
    if now.left_out:
        found.append(("", f"{now.left_out} more traces and norms"))
    return [("", ""), *found] if found else []


def _wrapped_figures(text: str, columns: int) -> list[str]:
    """Divide a text of figures with commas between them into lines of at most `columns` characters. A figure stays on
    one line with its name."""
    joined = text.replace(" ", "\xa0").replace(",\xa0", ", ")
    return [line.replace("\xa0", " ") for line in wrap(joined, max(columns, MIN_WRAPPED_COLUMNS))]


def _trace(one: TraceGlance, step: int) -> tuple[str, str]:
    """Return a curve and a text about a trace. If the trace has no curve, the curve is ""."""
    text = f"of {one.field} ({counted(one.points, 'point')})"
    if one.problem:
        return "", f"{text}: {one.problem}"
    if not one.rows:
        return "", f"{text}: no steps yet"
    largest = max((value for value in one.envelope if math.isfinite(value)), default=0.0)
    text += f", largest {largest:.4g}"
    if one.first_infinite is not None:
        text += f", NaN or infinite since step {one.first_infinite}"
    return curve(one.envelope), text + (f", read up to step {one.rows}" if one.rows < step else "")


def _norms(one: NormGlance) -> tuple[str, str]:
    """Return a curve and a text about norms. If the norms have no curve, the curve is ""."""
    if one.problem:
        return "", one.problem
    if one.rows is None or not len(one.rows):
        return "", "no steps yet"
    lengths = [math.sqrt(max(value, 0.0)) for value in one.rows["squares"].tolist()]
    columns = min(curve_columns(), len(lengths))
    picked = [lengths[(place + 1) * len(lengths) // columns - 1] for place in range(columns)]
    return curve(picked), _last_norms(one)


def _last_norms(one: NormGlance) -> str:
    assert one.rows is not None
    last = one.rows[-1]
    length = math.sqrt(max(last["squares"], 0.0))  # NaN stays NaN
    return (f"step {last['step']:.0f}: sum {last['sum']:.4g}, L2 {length:.4g}, min {last['min']:.4g}, "
            f"max {last['max']:.4g}")  # fmt: skip


def curve(values: Sequence[float]) -> str:
    """Return a curve with one character for each value. The values must not be negative. NaN and infinity become
    "!"."""
    bars = BARS if _has(BARS) else ASCII_BARS
    top = max((value for value in values if math.isfinite(value)), default=0.0)

    def bar(value: float) -> str:
        if not math.isfinite(value):
            return "!"
        return bars[min(len(bars) - 1, int(value / top * len(bars)))] if top > 0 else bars[0]

    return "".join(map(bar, values))


def _bar(fraction: float) -> str:
    full, empty = (FULL, EMPTY) if _has(FULL + EMPTY) else (ASCII_FULL, ASCII_EMPTY)
    columns = min(BAR_COLUMNS, max(MIN_CURVE_COLUMNS, _columns() - BESIDE_BAR_COLUMNS))
    done = min(columns, int(fraction * columns))
    return full * done + empty * (columns - done)


def _has(characters: str) -> bool:
    """Return True if standard output can show the characters in `characters`."""
    try:
        characters.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _per_second(rate: float | None, unit: str) -> str:
    return "-" if rate is None else f"{format_rate(rate)}{unit}/s"


def _rows(rows: Sequence[tuple[str, str]]) -> list[str]:
    width = max((len(name) for name, _ in rows), default=0)
    return [f"  {name:<{max(width, MIN_NAME_COLUMNS)}} {text}".rstrip() for name, text in rows]


def _can_draw() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM", "").lower() not in ("", "dumb", "unknown")


class Follower:
    """Looks at a run repeatedly. `now` is the newest glance, and `earlier` is the last glance before the newest commit.
    A run can be replaced or moved while it is watched. Therefore an error of a look does not end the command, except
    for the first look. `problem` has the text of such an error until a look succeeds."""

    def __init__(self, look: Callable[[], Glance]) -> None:
        self._look = look
        self.now: Glance = look()  # if the first look raises an error, the command ends
        self.earlier: Glance | None = None
        self.problem = ""

    def look(self) -> bool:
        """Look at the run. Return True if the run has a new commit or another status. Also return True if there is a
        new error, or if the last error is gone."""
        try:
            found, problem = self._look(), ""
        except OutcropError as error:
            is_new, self.problem = str(error) != self.problem, str(error)
            return is_new
        before, was_problem = self.now, self.problem
        has_committed = found.run is not None and before.run is not None and found.run.step != before.run.step
        if has_committed:
            self.earlier = before
        self.now, self.problem = found, problem
        return has_committed or found.status != before.status or bool(was_problem)


def _print_lines(look: Callable[[], Glance], interval: float, keep: bool) -> None:
    """Print a line for each commit, and for each change of the status."""
    follower = Follower(look)
    print(page(follower.now)[0], flush=True)
    print(line(follower.now), flush=True)
    while not _is_over(follower, keep):
        time.sleep(interval)
        if follower.look():
            text = follower.problem or line(follower.now, follower.earlier)
            print(text, flush=True)


def _show_page(look: Callable[[], Glance], interval: float, keep: bool) -> None:
    """Show the page in the terminal, and draw it again after each look."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    def drawn() -> Text:
        columns = get_terminal_size().columns
        lines = [text for one in page(follower.now, follower.earlier) for text in _wrapped(one, columns)]
        lines += ["", *wrap(f"  {follower.problem}", max(columns, MIN_WRAPPED_COLUMNS))] if follower.problem else []
        return Text("\n".join(lines), no_wrap=True, overflow="ellipsis")

    follower = Follower(look)
    # By default, `Live` replaces standard output by an object that has no encoding. With such an object, curves would
    # be drawn with ASCII characters.
    live_page = Live(
        drawn(), console=Console(), auto_refresh=False, vertical_overflow="crop", redirect_stdout=False
    )  # fmt: skip
    with live_page as live:
        while not _is_over(follower, keep):
            time.sleep(interval)
            follower.look()
            live.update(drawn(), refresh=True)


def _wrapped(text: str, columns: int) -> list[str]:
    """Divide a line of the page into lines of at most `columns` characters. Only rows with sentences or commands, such
    as the status, are divided. Divided curves and figures would be hard to read."""
    if len(text) <= columns or not text.startswith(WRAPPED):
        return [text]
    return wrap(text, max(columns, MIN_WRAPPED_COLUMNS), subsequent_indent=" " * 4, break_on_hyphens=False,
                break_long_words=True) or [text]  # fmt: skip


def _is_over(follower: Follower, keep: bool) -> bool:
    from outcrop.run.watch import FINISHED, LOST

    return follower.now.status in (FINISHED, LOST) and not keep and not follower.problem
