"""`outcrop info`: describe a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument

from outcrop.units import format_bytes

if TYPE_CHECKING:
    from outcrop.run.disk.entries import ArrayEntry
    from outcrop.run.disk.manifest import Manifest
    from outcrop.run.user_values import Coordinates


def info(
    where: Annotated[
        Path, Argument(metavar="WHERE", help="directory or device of a run, or the directory with all its parts")
    ],
) -> None:
    """Describe the run in WHERE: grid, stencil, parameters, fields, step."""
    from outcrop.language.boundary import as_boundary, boundary_text
    from outcrop.run.acquisition.history import repeated_steps
    from outcrop.run.disk.manifest import IN_FLIGHT, NEW, resume_command
    from outcrop.run.disk.state import State
    from outcrop.run.places import storage_at
    from outcrop.run.ranks.whole import AllParts, find_parts, holds_parts
    from outcrop.run.user_values import decode_signals

    storages = [storage_at(one) for one in (find_parts([where]) if holds_parts(where) else [where])]
    storage, manifests = storages[0], [one.read() for one in storages]
    run = manifests[0]
    if len(storages) > 1:
        run = AllParts([State(one, manifest) for one, manifest in zip(storages, manifests, strict=True)]).whole
    if any(one.phase == NEW for one in manifests):
        state = "no values yet"
    elif any(one.in_use() for one in storages):
        state = f"step {run.step} of {run.target_step}, being run now"
    elif run.phase == IN_FLIGHT:
        state = f"lost: a pass in place was interrupted after step {run.step}"
    elif run.step < run.target_step:
        state = f"step {run.step} of {run.target_step}, unfinished: {resume_command(manifests[0], storage.path)}"
    else:
        state = f"step {run.step}, finished"
    chosen = ", ".join(f"{name} = {value:g}" for name, value in run.parameters.items())
    boundary = boundary_text(as_boundary(run.boundary), len(run.shape))
    size, axes = " x ".join(map(str, reversed(run.own_shape))), ", ".join(reversed(run.axis_names))
    rows = [
        ("stencil", f"{run.stencil.get('name', '?')}{f' with {chosen}' if chosen else ''}, boundary {boundary}"),
        ("grid", f"{size} cells ({axes}), {run.dtype}{_rim(run)}"),
        ("fields", ", ".join(_field(entry, run) for entry in run.arrays)),
        ("state", f"{state} (generation {run.generation})"),
        (
            "disk",
            f"{format_bytes(sum(len(one.copies) * one.layout.array_bytes for one in manifests))}, "
            f"{len(run.copies)} array{'s' * (len(run.copies) > 1)}, "
            f"{run.layout.shards} shard{'s' * (run.layout.shards > 1)} each",
        ),
        ("memory", f"{format_bytes(run.settings.memory_bytes)}, {run.settings.threads} threads"),
    ]
    if part := run.part:
        first, end = part.rows
        text = f"rank {part.rank} of {part.ranks}, rows {first} to {end - 1} of {part.cut[-1]}"
        if part.own_planes:
            low, high = part.own_planes
            text += f", planes {low} to {high - 1} of {part.planes[-1]}"
        rows.append(("part", text))
    rows += _parts(where, manifests) if len(manifests) > 1 else []
    if run.own_coordinates:
        rows.append(("cells", _cells(run.own_coordinates)))
    if run.settings.sizes:
        rows.append(("given", str(run.settings.given)))
    if run.signals:
        steps = ", ".join(f"{name} ({len(values)} steps)" for name, values in decode_signals(run.signals).items())
        rows.append(("signals", steps))
    if states := run.states:
        every = f"every {states.every} steps of " if states.every > 1 else ""
        again = ", and computes the states in between again" if states.stencil is not None else ""
        place = f"the states of {every}{states.run}{again}"
        rows.append(("reads", f"{place}; goes back from its step {states.steps - run.step}"))
    rows += _acquisition(run)
    if (kept := run.taps.history) and kept.slots:
        repeated = repeated_steps(State(storage, run))
        again = f"; an adjoint run repeats {repeated} steps of this run" if repeated else ""
        rows.append(("limit", f"{kept.slots} states at once{again}"))
    if run.records:
        rows.append(("records", run.records))
    if len(run.directories) > 1:
        rows.append(("over", ", ".join(run.directories)))
    print("\n".join([str(where), *(f"  {name:<9}{text}" for name, text in rows)]))


def _parts(where: Path, manifests: list[Manifest]) -> list[tuple[str, str]]:
    """Return rows about the parts of a run. `manifests` contains the manifest of each part."""
    from outcrop.plan.problem import chunk_rows
    from outcrop.run.ranks.shared import group_of

    counts, planes = [one.shape[1] for one in manifests], [one.shape[0] for one in manifests]
    divided = manifests[0].part is not None and manifests[0].part.planes
    size = " and ".join(
        f"{min(each)} {what}" if min(each) == max(each) else f"{min(each)} to {max(each)} {what}"
        for each, what in [(counts, "rows"), *([(planes, "planes")] if divided else [])]
    )
    rows = [("parts", f"{len(manifests)} of {size}")]
    if len(steps := sorted({one.step for one in manifests})) > 1:
        ranks = [[str(rank) for rank, one in enumerate(manifests) if one.step == step] for step in steps]
        texts = [f"ranks {', '.join(some)} at step {step}" for step, some in zip(steps, ranks, strict=True)]
        rows.append(("steps", f"{'; '.join(texts)}: a commit was interrupted, the run goes back to step {steps[0]}"))
    if divided:
        rows.append(("zarr", "no group of all parts, because the planes of the grid are divided"))
    elif not chunk_rows(counts):
        rows.append(("zarr", "no group of all parts, because they have different numbers of rows"))
    elif group_of(where, manifests[0]) is not None:
        rows.append(("zarr", f"{where} is a group of all parts"))
    return rows


def _rim(run: Manifest) -> str:
    """Return a text about the cells that the arrays have around the user's grid, or "" if the arrays have no such
    cells."""
    if not any(run.padding):
        return ""
    return f", stored with {' x '.join(map(str, reversed(run.padding)))} cells around it"


def _acquisition(run: Manifest) -> list[tuple[str, str]]:
    acquisition, rows = run.taps, []
    if acquisition.sources:
        texts = [f"{one.field} ({_points(one.points)}, {one.steps} steps)" for one in acquisition.sources]
        rows.append(("sources", f"in {', '.join(texts)}"))
    if acquisition.traces:
        fields = {one.name: one.field for one in acquisition.samplings}
        own = {name: f", {count} in this part" for name, count in run.part.traces.items()} if run.part else {}
        texts = [
            f"{name} of {fields[name]} ({_points(points)}{own.get(name, '')})"
            for name, points in acquisition.traces.items()
        ]
        rows.append(("traces", f"{', '.join(texts)}, {run.step} steps"))
    for kept in acquisition.snapshots:
        size = " x ".join(map(str, reversed(kept.shape)))
        title = f"snapshots {kept.name}" if kept.name else "snapshots"
        title = "the history" if kept.is_history else title
        what = f"{title} of {', '.join(kept.fields)}, {size} cells every {kept.every} steps"
        count, exist = kept.count(run.step), len(kept.numbers(run.step))
        # a history with a limit keeps only some states, and an adjoint run frees the states that it has used
        rows.append(("keeps", f"{what}, {exist} of {count} on the disk" if kept.slots else f"{what}, {count} so far"))
    if sums := acquisition.norms:
        rows.append(("norms", f"{', '.join(sums.fields)}, every {sums.every} steps, {sums.count(run.step)} so far"))
    return rows


def _points(count: int) -> str:
    return f"{count} point{'s' * (count != 1)}"


def _cells(coordinates: Coordinates) -> str:
    apart, first = (
        " x ".join(f"{number:g}" for number in reversed(numbers))
        for numbers in (coordinates.spacing, coordinates.origin)
    )
    return f"{apart} {coordinates.units}".rstrip() + f" apart, the first at {first}"


def _field(entry: ArrayEntry, run: Manifest) -> str:
    notes = ["only read"] if entry.is_static else []
    notes += [] if entry.name in run.filled else ["no values yet"]
    return f"{entry.name} ({', '.join(notes)})" if notes else entry.name
