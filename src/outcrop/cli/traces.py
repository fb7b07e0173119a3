"""Draw the traces of receivers, for `outcrop plot --traces`. A few receivers are drawn as lines over time. Many
receivers are drawn as an image (a seismogram): receivers are along the horizontal axis, and time goes downwards.

Traces can be larger than memory. A large trace is reduced while it is read, like a large slice: only every second,
third, ... step and receiver is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outcrop.cli.picture import MAX_PIXELS, Panel, Picture, Range, Scale, set_upright, with_margin
from outcrop.cli.subject import Axis, Index, Subject, SubjectFrame
from outcrop.errors import InputError, shown
from outcrop.paths import is_there
from outcrop.units import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from outcrop.run.acquisition.views import Traces

MAX_LINES = 8
"""The maximum number of receivers that are drawn as lines."""
MAX_LINE_STEPS = 8 * MAX_PIXELS
"""The maximum number of steps of a line. A line shows more steps than an image, because the peaks of a line are
narrow."""
RATIO = 1.2
"""The width of a seismogram divided by its height. The axes of a seismogram have different units, so its cells are not
squares."""
PORTION_BYTES = 4 << 20
"""The maximum size of the rows that are read together, if a row is not larger."""


@dataclass(frozen=True)
class _ReadTrace:
    """A function that reads the values that an index (steps, receivers) selects. Both parts of the index are slices
    with a step, from the first to the last step or receiver."""

    traces: Traces
    name: str
    steps: int
    points: int

    def __call__(self, index: Index) -> NDArray[Any]:
        import numpy as np

        rows, points = index
        assert isinstance(rows, slice)
        chosen = range(self.steps)[rows]
        # rows between the chosen rows are read, too, if this is faster than one call for each row
        together = max(1, PORTION_BYTES // (8 * self.points) // chosen.step)
        parts = []
        for place in range(0, len(chosen), together):
            some = chosen[place : place + together]
            values = self.traces.rows(self.name, some[0], some[-1] + 1)
            parts.append(np.array(values[:: chosen.step, points]))
        return np.concatenate(parts)


def open_traces(where: Path, name: str) -> Subject:
    """Return the traces with the name `name`. The axes of the subject are time and the receivers. Raises InputError if
    `where` is not a run, if the name is unknown, or if the run has no step yet. Raises CorruptionError if the trace is
    damaged."""
    from outcrop.run.places import may_hold_run
    from outcrop.run.ranks.whole import holds_parts
    from outcrop.run.results.contents import OpenedRun, steps_and_times
    from outcrop.run.results.records import traces_group

    if is_there(where) and not may_hold_run(where) and not holds_parts(where):
        raise InputError(f"--traces {name}: {where} is not a run, and has no traces; leave it out")
    run = OpenedRun(where)
    manifest = run.manifest
    if name not in manifest.taps.traces:
        there = ", ".join(manifest.taps.traces) or "none"
        raise InputError(f"--traces {shown(name)}: there are no traces with this name; there are: {there}")
    if not manifest.step:
        raise InputError(f"--traces {name}: there is no step yet; run some steps")
    found = next(one for one in traces_group(run).variables if one.name == name)
    traces, points = run.simulation.traces, manifest.taps.traces[name]
    traces.require_intact(name)
    import numpy as np

    first = 1 if manifest.first_time is None else 0  # the step of the first row
    steps = np.array([first, first + 1], np.int64)
    coordinates = {one.name: one for one in steps_and_times(manifest, "step", steps)}
    values = coordinates.get("time", coordinates["step"]).values
    units = coordinates["time"].attributes.get("units", "s") if "time" in coordinates else ""
    time = Axis("time" if "time" in coordinates else "step", manifest.step, float(values[0]),
                float(values[1] - values[0]), str(units))  # fmt: skip
    title = f"{manifest.stencil['name']}, trace {name}, {counted(manifest.step, 'step')}"
    read = _ReadTrace(traces, name, manifest.step, points)
    axes = (time, Axis("receiver", points))
    return Subject(str(found.attributes["field"]), axes, "float64", [SubjectFrame(title, manifest.step, read)])


def draw_traces(
    subject: Subject, limits: tuple[float, float] | None, colors: str
) -> tuple[Figure, str, Range]:
    """Return a figure of traces, its title, and the range of the drawn values."""
    (frame,), (time, receivers) = subject.frames, subject.axes
    is_image = receivers.cells > MAX_LINES
    steps = slice(None, None, -(-time.cells // (MAX_PIXELS if is_image else MAX_LINE_STEPS)))
    index = steps, slice(None, None, -(-receivers.cells // MAX_PIXELS))
    values, found = frame.read(index), Range()
    found.include(values)
    scale = Scale.of(found, limits, colors)
    if not is_image:
        places = [time.origin + step * time.spacing for step in range(time.cells)[steps]]
        return _lines(subject, frame.title, places, values, scale), frame.title, found
    picture = Picture(subject, [Panel(index, subject.axes, "", RATIO)], scale, down=time.name)
    return picture.figure, picture.show(frame.title, [values]), found


def _lines(subject: Subject, title: str, places: Sequence[float], values: NDArray[Any], scale: Scale) -> Figure:
    """Return a figure with a line for each receiver."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 4.5), layout="constrained")
    plot = figure.subplots()
    for number in range(values.shape[1]):
        plot.plot(places, values[:, number], lw=1, label=f"receiver {number}")
    plot.set(xlabel=subject.axes[0].label, ylim=with_margin(scale.low, scale.high), title=title)
    plot.set_ylabel(subject.label)
    set_upright(plot.yaxis.label)
    if values.shape[1] > 1:
        figure.legend(loc="outside right upper", fontsize="small")
    return figure
