"""`outcrop info`: describe a run."""

from __future__ import annotations

import json as json_format
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from outcrop.axes import x_first
from outcrop.cli import options
from outcrop.errors import InputError
from outcrop.units import counted, format_bytes

if TYPE_CHECKING:
    from outcrop.run.disk.manifest import Manifest
    from outcrop.run.user_values import Coordinates

STANDARD_OUTPUT = Path("-")
MAX_SEGMENTS = 1_000_000
"""The maximum number of segments of a history for which repeated steps are counted. With this number of segments, the
count takes a few seconds. A damaged manifest can contain any number of steps."""


def info(
    where: Annotated[
        Path, Argument(metavar="WHERE", help="directory or device of a run, or the directory with all its parts")
    ],
    json: Annotated[
        Path | None,
        Option("--json", metavar="[FILE]", help="write the facts as JSON to this file [default: standard output]"),
    ] = None,
) -> None:
    """Describe the run in WHERE: grid, stencil, parameters, fields, step."""
    if json != STANDARD_OUTPUT:
        options.check_output(json, "--json")
    found = facts(where)
    if json is None:
        print("\n".join([str(where), *(f"  {name:<9}{text}" for name, text in as_text(found))]))
    elif json == STANDARD_OUTPUT:
        print(json_format.dumps(found, indent=2))
    else:
        options.write_json(json, "--json", found)


def facts(where: Path) -> dict[str, Any]:
    """Return the facts about the run in `where` as plain data. docs/reference/report.md describes the keys. Raises
    InputError if `where` holds no run."""
    from outcrop.language.boundary import as_boundary, boundary_text
    from outcrop.run.disk.state import State
    from outcrop.run.places import storage_at
    from outcrop.run.ranks.whole import AllParts, find_parts, holds_parts

    storages = [storage_at(one) for one in (find_parts([where]) if holds_parts(where) else [where])]
    storage, manifests = storages[0], [one.read() for one in storages]
    run = manifests[0]
    if len(storages) > 1:
        run = AllParts([State(one, manifest) for one, manifest in zip(storages, manifests, strict=True)]).whole
    status, command = _status(run, manifests, any(one.in_use() for one in storages), storage.path)
    return {
        "where": str(where),
        "stencil": run.stencil.get("name", "?"),
        "equation": _equation(run),
        "parameters": dict(run.parameters),
        "boundary": boundary_text(as_boundary(run.boundary), len(run.shape), run.axis_names),
        "axes": list(run.axis_names),
        "shape": list(run.own_shape),
        "padding": list(run.padding),
        "dtype": run.dtype,
        "fields": [
            {"name": one.name, "is_static": one.is_static, "has_values": one.name in run.filled,
             "is_computed": one.name in run.computed}
            for one in run.arrays
        ],
        "status": status,
        "step": run.step,
        "target_step": run.target_step,
        "generation": run.generation,
        "resume_command": command,
        "disk_bytes": sum(len(one.copies) * one.layout.array_bytes for one in manifests),
        "arrays_on_disk": len(run.copies),
        "shards_per_array": run.layout.shards,
        "memory_bytes": run.settings.memory_bytes,
        "threads": run.settings.threads,
        "scheme": run.settings.scheme,
        "io": run.settings.io,
        "bind": run.settings.bind,
        "sizes": run.settings.given.to_dict(),
        "in_place": run.in_place,
        "part": _part(run),
        "parts": _parts(where, manifests) if len(manifests) > 1 else None,
        "coordinates": _coordinates(run.own_coordinates),
        "signals": _signals(run),
        "reads_states": _states(run),
        **_acquisition(run, State(storage, run)),
        "records": run.records,
        "directories": list(run.directories),
        "pace": asdict(run.pace) if run.pace else None,
    }


def _status(run: Manifest, manifests: list[Manifest], is_in_use: bool, place: Path) -> tuple[str, str | None]:
    """Return the status of the run, and the command that continues the run. For every status other than "unfinished",
    the command is None."""
    from outcrop.run.disk.manifest import IN_FLIGHT, NEW, resume_command
    from outcrop.run.pace import has_ended

    if any(one.phase == NEW for one in manifests):
        return "no values yet", None
    if is_in_use:
        is_preparing = run.step < run.target_step and all(one.pace is None or has_ended(one.pace) for one in manifests)
        return "preparing" if is_preparing else "running", None
    if run.phase == IN_FLIGHT:
        return "lost", None
    if run.step < run.target_step:
        return "unfinished", resume_command(manifests[0], place)
    return "finished", None


def _equation(run: Manifest) -> str:
    """Return the equation as text, with "; " between the updates. Return "" if the run has no text of the equation.
    Also return "" if Outcrop cannot have written this text."""
    from outcrop.language.schema import MAX_TEXT, require_text

    text = run.stencil.get("equation")
    try:
        require_text(text, "the equation", MAX_TEXT)
    except InputError:
        return ""
    return str(text)


def _part(run: Manifest) -> dict[str, Any] | None:
    if run.part is None:
        return None
    return {
        "rank": run.part.rank,
        "ranks": run.part.ranks,
        "rows": list(run.part.rows),
        "all_rows": run.part.cut[-1],
        "planes": list(run.part.own_planes) if run.part.own_planes else None,
        "all_planes": run.part.planes[-1] if run.part.planes else None,
    }


def _parts(where: Path, manifests: list[Manifest]) -> dict[str, Any]:
    """Return facts about the parts of a run of several ranks. `manifests` contains the manifest of each part."""
    from outcrop.plan.problem import chunk_rows
    from outcrop.run.ranks.shared import group_of

    rows, planes = [one.shape[1] for one in manifests], [one.shape[0] for one in manifests]
    is_divided = bool(manifests[0].part is not None and manifests[0].part.planes)
    why_not = ""
    if is_divided:
        why_not = "the planes of the grid are divided"
    elif not chunk_rows(rows):
        why_not = "they have different numbers of rows"
    return {
        "count": len(manifests),
        "rows": rows,
        "planes": planes if is_divided else None,
        "steps": [one.step for one in manifests],
        "is_zarr_group": not why_not and group_of(where, manifests[0]) is not None,
        "why_no_zarr_group": why_not,
    }


def _coordinates(cells: Coordinates | None) -> dict[str, Any] | None:
    if cells is None:
        return None
    return {"spacing": list(cells.spacing), "origin": list(cells.origin), "units": cells.units}


def _signals(run: Manifest) -> dict[str, int]:
    from outcrop.run.user_values import decode_signals

    return {name: len(values) for name, values in decode_signals(run.signals).items()} if run.signals else {}


def _states(run: Manifest) -> dict[str, Any] | None:
    if (states := run.states) is None:
        return None
    return {
        "run": states.run,
        "every": states.every,
        "computes_again": states.stencil is not None,
        "next_step": states.steps - run.step,
    }


def _acquisition(run: Manifest, state: Any) -> dict[str, Any]:
    from outcrop.run.acquisition.history import repeated_steps

    taps, own = run.taps, run.part.traces if run.part else {}
    fields = {one.name: one.field for one in taps.samplings}
    kept, sums = taps.history, taps.norms
    repeated: int | None = 0
    if kept and kept.slots:
        repeated = repeated_steps(state) if run.step <= MAX_SEGMENTS * kept.every else None
    snapshots = [
        {
            "name": one.name,
            "fields": list(one.fields),
            "shape": list(one.shape),
            "coarsen": list(one.coarsen) if one.coarsen else None,
            "every": one.every,
            "is_history": one.is_history,
            "count": one.count(run.step),
            "on_disk": len(one.numbers(run.step)),
            "limit": one.slots or None,
        }
        for one in taps.snapshots
    ]
    return {
        "sources": [{"field": one.field, "points": one.points, "steps": one.steps} for one in taps.sources],
        "traces": [
            {"name": name, "field": fields[name], "points": points, "points_in_this_part": own.get(name)}
            for name, points in taps.traces.items()
        ],
        "snapshots": snapshots,
        "norms": {"fields": list(sums.fields), "every": sums.every, "count": sums.count(run.step)} if sums else None,
        "repeated_steps": repeated,
    }


def as_text(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the facts about a run as rows of a name and a text."""
    chosen = ", ".join(f"{name} = {value:g}" for name, value in found["parameters"].items())
    size, axes = _by_axis(found["shape"], found), ", ".join(x_first(found["axes"], found["axes"]))
    arrays, shards = found["arrays_on_disk"], found["shards_per_array"]
    updates = found["equation"].split("; ") if found["equation"] else []
    rows = [
        ("stencil", f"{found['stencil']}{f' with {chosen}' if chosen else ''}, boundary {found['boundary']}"),
        *(("" if number else "equation", update) for number, update in enumerate(updates)),
        ("grid", f"{size} cells ({axes}), {found['dtype']}{_rim_text(found)}"),
        ("fields", ", ".join(map(_field_text, found["fields"]))),
        ("state", f"{_status_text(found)} (generation {found['generation']})"),
        (
            "disk",
            f"{format_bytes(found['disk_bytes'])}, {arrays} array{'s' * (arrays > 1)}, "
            f"{shards} shard{'s' * (shards > 1)} each",
        ),
        ("memory", f"{format_bytes(found['memory_bytes'])}, {counted(found['threads'], 'thread')}"),
    ]
    if found["pace"] and (bad := found["pace"]["not_finite"]):
        texts = [f"{name} has NaN or infinity, found after step {step}" for name, step in bad.items()]
        rows.append(("values", ", ".join(texts)))
    if part := found["part"]:
        text = f"rank {part['rank']} of {part['ranks']}, rows {part['rows'][0]} to {part['rows'][1] - 1} of "
        text += str(part["all_rows"])
        if part["planes"]:
            text += f", planes {part['planes'][0]} to {part['planes'][1] - 1} of {part['all_planes']}"
        rows.append(("part", text))
    if found["parts"]:
        rows += _parts_text(found["where"], found["parts"])
    if cells := found["coordinates"]:
        rows.append(("cells", _cells_text(cells, found)))
    if found["sizes"]:
        rows.append(("given", ", ".join(f"{name} = {size}" for name, size in found["sizes"].items())))
    if found["signals"]:
        rows.append(("signals", ", ".join(f"{name} ({count} steps)" for name, count in found["signals"].items())))
    if states := found["reads_states"]:
        every = f"every {states['every']} steps of " if states["every"] > 1 else ""
        again = ", and computes the states in between again" if states["computes_again"] else ""
        place = f"the states of {every}{states['run']}{again}"
        rows.append(("reads", f"{place}; goes back from its step {states['next_step']}"))
    rows += _acquisition_text(found)
    for kept in found["snapshots"]:
        if kept["is_history"] and kept["limit"]:
            count = found["repeated_steps"]
            again = f"; an adjoint run repeats {count} steps of this run" if count else ""
            rows.append(("limit", f"{kept['limit']} states at once{again}"))
    if found["records"]:
        rows.append(("records", found["records"]))
    if len(found["directories"]) > 1:
        rows.append(("over", ", ".join(found["directories"])))
    return rows


def _status_text(found: dict[str, Any]) -> str:
    step, of = f"step {found['step']}", f"step {found['step']} of {found['target_step']}"
    return {
        "no values yet": "no values yet",
        "preparing": f"{of}, being prepared now",
        "running": f"{of}, being run now",
        "lost": f"lost: a pass in place was interrupted after {step}",
        "unfinished": f"{of}, unfinished: {found['resume_command']}",
        "finished": f"{step}, finished",
    }[found["status"]]


def _parts_text(where: str, parts: dict[str, Any]) -> list[tuple[str, str]]:
    counts = [(parts["rows"], "rows"), *([(parts["planes"], "planes")] if parts["planes"] else [])]
    size = " and ".join(
        f"{min(each)} {what}" if min(each) == max(each) else f"{min(each)} to {max(each)} {what}"
        for each, what in counts
    )
    rows = [("parts", f"{parts['count']} of {size}")]
    if len(steps := sorted(set(parts["steps"]))) > 1:
        ranks = [[str(rank) for rank, one in enumerate(parts["steps"]) if one == step] for step in steps]
        texts = [f"ranks {', '.join(some)} at step {step}" for step, some in zip(steps, ranks, strict=True)]
        rows.append(("steps", f"{'; '.join(texts)}: a commit was interrupted, the run goes back to step {steps[0]}"))
    if parts["why_no_zarr_group"]:
        rows.append(("zarr", f"no group of all parts, because {parts['why_no_zarr_group']}"))
    elif parts["is_zarr_group"]:
        rows.append(("zarr", f"{where} is a group of all parts"))
    return rows


def _rim_text(found: dict[str, Any]) -> str:
    """Arrays can have additional cells around the user's grid. Return a text about the additional cells, or "" if there
    are none."""
    if not any(found["padding"]):
        return ""
    return f", stored with {_by_axis(found['padding'], found)} cells around it"


def _by_axis(values: Sequence[float], found: dict[str, Any]) -> str:
    """Return the values in one text, such as "64 x 32 x 16". `values` has a number for each axis, in the order of the
    stored arrays."""
    return " x ".join(f"{one}" if isinstance(one, int) else f"{one:g}" for one in x_first(values, found["axes"]))


def _acquisition_text(found: dict[str, Any]) -> list[tuple[str, str]]:
    rows, step = [], found["step"]
    if sources := found["sources"]:
        texts = [f"{one['field']} ({_points(one['points'])}, {one['steps']} steps)" for one in sources]
        rows.append(("sources", f"in {', '.join(texts)}"))
    if traces := found["traces"]:
        texts = []
        for one in traces:
            own = one["points_in_this_part"]
            here = "" if own is None else f", {own} in this part"
            texts.append(f"{one['name']} of {one['field']} ({_points(one['points'])}{here})")
        rows.append(("traces", f"{', '.join(texts)}, {step} steps"))
    for kept in found["snapshots"]:
        size = _by_axis(kept["shape"], found)
        title = f"snapshots {kept['name']}" if kept["name"] else "snapshots"
        title = "the history" if kept["is_history"] else title
        cells = f"means of {_by_axis(kept['coarsen'], found)} cells" if kept["coarsen"] else "cells"
        what = f"{title} of {', '.join(kept['fields'])}, {size} {cells} every {kept['every']} steps"
        count, exist = kept["count"], kept["on_disk"]
        # a history with a limit keeps only some states, and an adjoint run frees the states that it has used
        so_far = f"{exist} of {count} on the disk" if kept["limit"] else f"{count} so far"
        rows.append(("keeps", f"{what}, {so_far}"))
    if sums := found["norms"]:
        rows.append(("norms", f"{', '.join(sums['fields'])}, every {sums['every']} steps, {sums['count']} so far"))
    return rows


def _points(count: int) -> str:
    return f"{count} point{'s' * (count != 1)}"


def _cells_text(cells: dict[str, Any], found: dict[str, Any]) -> str:
    apart, first = (_by_axis(cells[name], found) for name in ("spacing", "origin"))
    return f"{apart} {cells['units']}".rstrip() + f" apart, the first at {first}"


def _field_text(one: dict[str, Any]) -> str:
    notes = ["computed once"] if one["is_computed"] else ["only read"] if one["is_static"] else []
    notes += [] if one["has_values"] else ["no values yet"]
    return f"{one['name']} ({', '.join(notes)})" if notes else str(one["name"])
