"""The rows of the short texts that describe runs and their records, in a terminal and in notebooks.

The rows contain only values that are already in memory. No function of this module reads a file, so the texts also work
for a removed run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from outcrop.axes import x_first
from outcrop.display import joined
from outcrop.language.boundary import as_boundary, boundary_text
from outcrop.run.disk.entries import SnapshotsEntry
from outcrop.run.disk.manifest import NEW, Description, Manifest
from outcrop.units import counted, format_bytes

Row = tuple[str, str]


def size_of(description: Description) -> str:
    """Return the size of the whole grid as text. The size along x comes first."""
    own = description.own_shape if description.part is None else description.whole_shape
    names = description.axis_names
    size, axes = " x ".join(map(str, x_first(own, names))), ", ".join(x_first(names, names))
    return f"{size} cells ({axes}), {description.dtype}"


def run_rows(description: Description, manifest: Manifest | None, directory: Path) -> Iterator[Row]:
    """Yield rows about a run. `manifest` is its last known commit, or None for a run that is not on disk yet."""
    chosen = joined([f"{name} = {value:g}" for name, value in description.parameters.items()])
    names = description.axis_names
    boundary = boundary_text(as_boundary(description.boundary), len(description.shape), names)
    yield "stencil", f"{description.stencil.get('name', '?')}{f' with {chosen}' if chosen else ''}, boundary {boundary}"
    yield "grid", size_of(description)
    filled = manifest.filled if manifest is not None else {}
    without = [one.name for one in description.arrays if one.name not in filled]
    yield "arrays", joined([one.name for one in description.arrays])
    if without:
        yield "not written yet", joined(without)
    if manifest is None or manifest.phase == NEW:
        yield "state", "not on disk yet"
    else:
        rest = manifest.target_step - manifest.step
        more = f", {counted(rest, 'step')} left" if rest else ""
        yield "state", f"step {manifest.step}, generation {manifest.generation}{more}"
    yield "directory", str(directory)
    settings = description.settings
    yield "memory", f"{format_bytes(settings.memory_bytes)}, {counted(settings.threads, 'thread')}"
    if where := description.own_coordinates:
        yield "spacing", f"{', '.join(f'{one:g}' for one in x_first(where.spacing, names))} {where.units}".rstrip()
    if description.part is not None:
        yield "part", f"rank {description.part.rank} of {description.part.ranks}"
    taps = description.taps
    if taps.traces:
        yield "traces", joined([f"{name} ({counted(points, 'point')})" for name, points in taps.traces.items()])
    step = manifest.step if manifest is not None else 0
    yield from (snapshot_row(one, step, names) for one in taps.snapshots)
    if taps.norms:
        yield "norms", f"{joined(taps.norms.fields)}, every {counted(taps.norms.every, 'step')}"


def snapshot_row(entry: SnapshotsEntry, step: int, names: Sequence[str]) -> Row:
    """Return a row about snapshots or a history after `step` steps. `names` are the names of the axes."""
    box = " x ".join(map(str, x_first(entry.shape, names)))
    count = counted(len(entry.numbers(step)), "time")
    fields = joined([entry.prefix + name for name in entry.fields])
    name = "history" if entry.is_history else "snapshots"
    return name, f"{fields}: {count}, every {counted(entry.every, 'step')}, {box} cells"
