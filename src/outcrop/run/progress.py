"""This module shows the progress of a run. The display is a bar in a terminal or notebook, or plain lines.

While a worker thread runs the passes, the thread that called `run` reads the engine's counters a few times a second.
The counters are atomic variables that the engine always updates. So the reads of the counters take no measurable time.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from outcrop.display import escaped
from outcrop.units import format_rate, format_seconds

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

INTERVAL_SECONDS = 0.15
"""The time between two reads of the engine's counters, in seconds."""

WIDE_COLUMNS = 125
"""A terminal with fewer than WIDE_COLUMNS columns shows the rates on a second line."""

LINE_SECONDS = 10.0
"""The time between two plain lines, in seconds."""

STAGE_SECONDS = 5.0
"""The minimum time of the work before the first pass for which a log has a line, in seconds."""

KINDS = ("auto", "lines", "none")
"""The kinds of display. "auto" shows a bar in a terminal or notebook, plain lines in a terminal that cannot draw a bar,
and nothing elsewhere. "lines" shows a bar in a terminal or notebook, and plain lines elsewhere. "none" shows
nothing."""


@dataclass(frozen=True)
class Standing:
    """The current figures of a run. All figures of the display begin at 0 when `run` is called. The figures do not
    include earlier calls of `run`. `note` is a text for the user, such as "u: NaN or infinity"."""

    passes_done: int
    steps_done: int
    cells_updated: int
    bytes_read: int
    bytes_written: int
    note: str = ""


@dataclass(frozen=True)
class Whole:
    """Describes a call of `run` that consists of several parts. `passes_before` is the number of passes in all parts
    before the current part."""

    first_step: int
    last_step: int
    passes: int
    passes_before: int


class Progress:
    """The base class of all displays of the progress of one run. A display is a context manager. The base class shows
    nothing."""

    def __init__(
        self, passes: int, first_step: int, last_step: int, cells_in_all: int, whole: Whole | None = None
    ) -> None:
        """The arguments have the same meaning as in `make_progress`."""
        whole = whole or Whole(first_step, last_step, passes, 0)
        steps = max(1, whole.last_step - whole.first_step)
        self._passes, self._passes_before = whole.passes, whole.passes_before
        self._first_step, self._last_step = first_step, whole.last_step
        self._begun, self._share = (first_step - whole.first_step) / steps, (last_step - first_step) / steps
        self._cells_in_all = max(1, cells_in_all)
        self._start = time.perf_counter()

    def show(self, standing: Standing) -> None:
        """Show the current counters."""

    def finish(self, standing: Standing) -> None:
        """Take the final values of the counters, after all passes have ended. A display that leaves a summary uses the
        final values of the counters."""

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def _fraction(self, standing: Standing) -> float:
        return self._begun + self._share * min(1.0, standing.cells_updated / self._cells_in_all)

    def _texts(self, standing: Standing) -> tuple[str, str]:
        """Return two texts. The first text says how far the run is, such as "pass 3/13 step 32/200, 65.0 s left". The
        second text has the rates, such as "5.12 Gcell/s, read 1.10 GB/s, write ..."."""
        seconds = max(1e-9, time.perf_counter() - self._start)
        fraction = self._fraction(standing)
        done = fraction - self._begun
        rest = seconds * (1 - fraction) / done if done > 0.01 else None
        left = "?" if rest is None else f"{rest:.0f} s" if rest < 60 else format_seconds(rest)
        place = (
            f"pass {min(self._passes_before + standing.passes_done + 1, self._passes)}/{self._passes} "
            f"step {self._first_step + standing.steps_done}/{self._last_step}, {left} left"
        )
        place += f", {standing.note}" if standing.note else ""
        rates = (
            f"{format_rate(standing.cells_updated / seconds)}cell/s, "
            f"read {format_rate(standing.bytes_read / seconds)}B/s, "
            f"write {format_rate(standing.bytes_written / seconds)}B/s"
        )
        return place, rates


class LineProgress(Progress):
    """Shows the progress in logs: prints a line every few seconds."""

    def __init__(self, *run: Any, stream: TextIO) -> None:
        super().__init__(*run)
        self._stream, self._shown = stream, self._start

    def show(self, standing: Standing) -> None:
        """Print a line if LINE_SECONDS have passed since the last line."""
        now = time.perf_counter()
        if now - self._shown >= LINE_SECONDS:
            self._shown = now
            print(f"{self._fraction(standing):6.1%}", *self._texts(standing), sep="  ", file=self._stream, flush=True)


class BarProgress(Progress):
    """Shows the progress as a bar in a terminal."""

    def __init__(self, *run: Any, bar: Bar) -> None:
        super().__init__(*run)
        self._bar = bar
        self._task = bar.add_task("", total=1.0)

    def show(self, standing: Standing) -> None:
        between = ", " if self._bar.console.width >= WIDE_COLUMNS else "\n"
        text = between.join(self._texts(standing))
        self._bar.update(self._task, completed=self._fraction(standing), description=text)
        self._bar.refresh()

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()


class NotebookProgress(Progress):
    """Shows the progress in the output of a notebook cell, as HTML. Needs no package beside IPython. After the run, a
    summary of one line remains in the notebook."""

    def __init__(self, *run: Any) -> None:
        super().__init__(*run)
        self._place: Any = None
        self._standing: Standing | None = None

    def show(self, standing: Standing) -> None:
        self._standing = standing
        fraction, texts = self._fraction(standing), self._texts(standing)
        bar = f"<progress max='1' value='{fraction:.3f}'></progress> {fraction:.0%}"
        self._write(f"{bar} {escaped(', '.join(texts))}", f"{fraction:.0%} {', '.join(texts)}")

    def finish(self, standing: Standing) -> None:
        self._standing = standing

    def __exit__(self, *error: object) -> None:
        if self._standing is None:
            return
        _, rates = self._texts(self._standing)
        seconds = format_seconds(time.perf_counter() - self._start)
        text = f"step {self._first_step + self._standing.steps_done}/{self._last_step} after {seconds}, {rates}"
        self._write(escaped(text), text)

    def _write(self, html: str, text: str) -> None:
        from IPython import display

        show: Any = display.display  # IPython has no type for this function
        content = {"text/html": f"<div>{html}</div>", "text/plain": text}
        if self._place is None:
            self._place = show(content, raw=True, display_id=True)
        else:
            self._place.update(content, raw=True)


class _Optional(Progress):
    """Forwards all calls to another display, until the other display fails. So a run continues after its terminal was
    closed."""

    def __init__(self, display: Progress) -> None:
        self._display: Progress | None = display

    def show(self, standing: Standing) -> None:
        self._attempt("show", standing)

    def finish(self, standing: Standing) -> None:
        self._attempt("finish", standing)

    def __enter__(self) -> Progress:
        self._attempt("__enter__")
        return self

    def __exit__(self, *error: object) -> None:
        self._attempt("__exit__", *error)

    def _attempt(self, method: str, *values: object) -> None:
        try:
            if self._display is not None:
                getattr(self._display, method)(*values)
        # Rich raises SystemExit if the pipe or file is closed, and IPython may be a part of another program
        except (OSError, ValueError, SystemExit, ImportError, AttributeError):
            self._display = None


def make_progress(
    kind: str, passes: int, first_step: int, last_step: int, cells_in_all: int, whole: Whole | None = None
) -> Progress:
    """Return the display for a run of `passes` passes. If `whole` is given, the `passes` passes are a part of `whole`,
    and the display shows the progress of `whole`. `kind` is one of KINDS."""
    assert kind in KINDS
    run = (passes, first_step, last_step, cells_in_all, whole)
    if kind != "none" and _in_notebook():
        return _Optional(NotebookProgress(*run))
    if kind != "none" and can_draw():
        return _Optional(BarProgress(*run, bar=_make_bar()))
    as_lines = kind == "lines" or (kind == "auto" and _is_terminal())
    return _Optional(LineProgress(*run, stream=sys.stderr)) if as_lines else Progress(*run)


class _Stages:
    """Shows texts that name the current work before the first pass. In a terminal, each text overwrites the previous
    text. In a log, a text becomes a line if the named work takes at least STAGE_SECONDS."""

    def __init__(self, as_lines: bool) -> None:
        self._as_lines, self._printed, self._is_shown = as_lines, set[str](), False
        self._timer: threading.Timer | None = None

    def begin(self, text: str) -> None:
        self.end()
        if not self._as_lines:
            self._write(f"{text} ...")
            self._is_shown = True
            return
        self._timer = threading.Timer(STAGE_SECONDS, self._print, [text])
        self._timer.name, self._timer.daemon = "outcrop-stage", True
        self._timer.start()

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_shown:
            self._write("\r\x1b[K")
            self._is_shown = False

    def _print(self, text: str) -> None:
        if text not in self._printed:
            self._printed.add(text)
            self._write(f"{text} ...\n")

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # the user may have closed the terminal
            print(text, end="", file=sys.stderr, flush=True)


_current: ContextVar[tuple[_Stages, str] | None] = ContextVar("outcrop stage", default=None)
"""The stage that this thread shows now, and its text."""


@contextmanager
def stage(text: str, kind: str) -> Iterator[None]:
    """Show `text` while the body of the `with` statement runs. `kind` is one of KINDS. In a terminal, the text is
    removed when the body ends. In a log, the text is shown only if the body takes at least STAGE_SECONDS."""
    as_lines = not can_draw() and (kind == "lines" or (kind == "auto" and _is_terminal()))
    if kind == "none" or not (as_lines or can_draw()):
        yield
        return
    shown = _Stages(as_lines)
    before = _current.set((shown, text))
    shown.begin(text)
    try:
        yield
    finally:
        _current.reset(before)
        shown.end()


@contextmanager
def part_of_stage(text: str) -> Iterator[None]:
    """While the body of the `with` statement runs, show `text` in place of the text of the current `stage`. Show
    nothing if there is no stage."""
    if (current := _current.get()) is None:
        yield
        return
    shown, whole = current
    shown.begin(text)
    try:
        yield
    finally:
        shown.begin(whole)


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def can_draw() -> bool:
    """Return True if standard error is a terminal that can overwrite a line."""
    return _is_terminal() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    if shell is None or not hasattr(shell, "get_ipython"):
        return False
    return any(one.__name__ == "ZMQInteractiveShell" for one in type(shell.get_ipython()).__mro__)


def _make_bar() -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn
    from rich.progress import Progress as Bar

    # Only the method `show` draws the bar. Rich starts no thread that draws the bar. At the end, Rich removes the bar,
    # because the report is printed next.
    return Bar(
        BarColumn(bar_width=10),
        TaskProgressColumn(),
        TextColumn("{task.description}"),
        console=Console(stderr=True),
        auto_refresh=False,
        transient=True,
    )
