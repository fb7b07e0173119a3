"""The tables of `outcrop plan --explain`: the best candidates of the tuner, and why each lost; where what is only read
is, and why."""

from __future__ import annotations

from outcrop.plan.only_read import EQUALLY_FAST, explained, place_of
from outcrop.plan.placement import PlacementRow, table
from outcrop.plan.plan import Candidate
from outcrop.plan.planner import Planned
from outcrop.plan.schemes import SCHEMES
from outcrop.units import format_bytes, format_seconds

SHOWN = 10
HEAD = ("scheme", "passes", "steps", "slab", "blocks", "D", "read", "written", "memory", "only read in", "time", "")


def show(planned: Planned) -> None:
    """Print the chosen plan and the best of the others, and what was not to be chosen; then what is only read."""
    considered, problem = planned.considered, planned.problem
    rows = [HEAD, *(_row(one, considered[0], problem.stages) for one in considered[:SHOWN])]
    columns = [i for i in range(len(HEAD)) if problem.statics or HEAD[i] != "only read in"]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEAD))]
    for row in rows:
        cells = [row[i].ljust(widths[i]) if i in (0, len(HEAD) - 1) else row[i].rjust(widths[i]) for i in columns]
        print("  ".join(cells).rstrip())
    if planned.given:
        print(f"given, not chosen: {planned.given}")
    if found := only_read(planned):
        print("\n".join(["", *table("only read", found)]))


def only_read(planned: Planned) -> list[PlacementRow]:
    """Where the fields are that nothing updates."""
    considered = planned.considered
    may_stay = any(SCHEMES[one.scheme].keeps_statics for one in considered)
    return explained(planned.plan, considered, planned.machine, may_stay)


def _row(one: Candidate, chosen: Candidate, stages: int) -> tuple[str, ...]:
    sizes, guess = one.sizes, one.predicted
    blocks = "x".join(str(size) for size in (sizes.block_z, sizes.block_y, sizes.block_x) if size) or "-"
    numbers = one.passes, sizes.levels // stages, sizes.slab, blocks, sizes.diamond or "-"
    sums = (format_bytes(count) for count in (guess.bytes_read, guess.bytes_written, guess.memory_bytes))
    return (
        one.scheme, *map(str, numbers), *sums, place_of(sizes), format_seconds(guess.seconds), why_it_lost(one, chosen),
    )  # fmt: skip


def why_it_lost(one: Candidate, chosen: Candidate) -> str:
    """The largest reason for which a candidate was not taken; of two equally fast ones the smaller is."""
    if one is chosen:
        return "chosen"
    more = one.predicted.seconds - chosen.predicted.seconds
    if one.predicted.seconds <= EQUALLY_FAST * chosen.predicted.seconds:
        memory = one.predicted.memory_bytes - chosen.predicted.memory_bytes
        return f"as fast, but takes {format_bytes(memory)} more memory" if memory > 0 else "as fast"
    updates = one.predicted.seconds_update - chosen.predicted.seconds_update
    reasons = [
        (updates, f"updates take {format_seconds(updates)} more"),
        (more - updates, f"waits {format_seconds(more - updates)} more for the disk"),
    ]
    return max(reasons)[1]
