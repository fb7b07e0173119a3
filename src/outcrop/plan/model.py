"""What a plan costs: bytes exactly, memory exactly, seconds by the time line of its passes."""

from __future__ import annotations

from dataclasses import dataclass

from outcrop.plan.actions import Read, Update, Write
from outcrop.plan.machine import Machine, UpdateRate
from outcrop.plan.plan import Pass, Prediction, Sizes
from outcrop.plan.problem import Problem
from outcrop.plan.timeline import timeline
from outcrop.plan.volume import arrays_moved, cell_updates, transfer_bytes
from outcrop.plan.window import Window

THIN_SLAB_COST = 0.15
"""What a plane costs that a tile touches without finishing it, as a share of one that it updates fully."""
NARROW_BLOCK_COST = 0.3
"""The same for the rows of tiles that the edges of a block in y cut."""

SLAB_SECONDS = 3e-4
"""To begin and end the update of a slab: threads wait for each other, and for planes that wait for others' slots."""
MEMORY_BYTES_PER_SECOND = 1e10
"""At which processors get what a device has put into memory. Update rates are measured without a device, in a window
that may fit the last cache and then never leaves it."""
REQUEST_SECONDS = 1e-5
"""Of a core's time that the system takes for the transfer of a plane, or a part of one; updates wait meanwhile."""
TOGETHER_BYTES = 1 << 20
"""Shorter planes of an array go together, so many bytes at a time."""


def edge_factor(problem: Problem, sizes: Sizes) -> float:
    """How much longer an update takes in slabs and blocks of these sizes than without edges.

    A tile of 2 D levels touches 2 r D planes beyond its slab, and the edges of a block cut about as many rows of tiles.
    """
    tile = 2 * problem.skew_z * min(sizes.diamond, sizes.levels)
    rows = sizes.block_y or problem.shape[1]
    cut = NARROW_BLOCK_COST * tile / rows if rows < problem.shape[1] else 0.0
    return (1 + THIN_SLAB_COST * tile / max(1, sizes.slab)) * (1 + cut)


def predict(
    problem: Problem,
    passes: tuple[Pass, ...],
    sizes: Sizes,
    window: Window,
    machine: Machine,
    rate: UpdateRate,
    taps_bytes: int = 0,
) -> Prediction:
    """Bytes, memory and seconds of a whole plan, with `taps_bytes` beside the window."""
    cell_rate = rate(sizes)
    distinct = {id(one): one for one in passes}  # most passes of a plan are one and the same
    costs = {key: _pass_cost(problem, one, machine, cell_rate) for key, one in distinct.items()}
    every = [costs[id(one)] for one in passes]
    read, written = sum(cost.bytes_read for cost in every), sum(cost.bytes_written for cost in every)
    return Prediction(
        seconds=sum(cost.seconds for cost in every),
        bytes_read=read,
        bytes_written=written,
        memory_bytes=window.bytes + taps_bytes,
        seconds_update=sum(cost.seconds_update for cost in every),
        seconds_read=read / machine.device.read_bytes_per_second,
        seconds_write=written / machine.device.write_bytes_per_second,
        seconds_commit=len(passes) * machine.device.seconds_flush,
    )


@dataclass(frozen=True)
class _PassCost:
    bytes_read: int
    bytes_written: int
    seconds: float
    seconds_update: float


def _pass_cost(problem: Problem, one: Pass, machine: Machine, cell_rate: float) -> _PassCost:
    read = sum(transfer_bytes(problem, action) for action in one.actions if isinstance(action, Read))
    written = sum(transfer_bytes(problem, action) for action in one.actions if isinstance(action, Write))
    spans = timeline(problem, one, machine, cell_rate, aside_seconds(problem, one, machine))
    seconds = max((span.end for span in spans), default=0.0)
    updates = sum(cell_updates(problem, action) for action in one.actions if isinstance(action, Update))
    return _PassCost(read, written, seconds, updates / cell_rate)


def aside_seconds(problem: Problem, one: Pass, machine: Machine) -> float:
    """What a pass takes of the processors' time beside its updates: checksums, the system's work for requests, cache
    misses, and the beginnings and ends of updates."""
    moves = [action for action in one.actions if isinstance(action, Read | Write)]
    moved = sum(transfer_bytes(problem, move) for move in moves)
    missed = moved * min(1.0, machine.last_cache_bytes / one.window.bytes) / MEMORY_BYTES_PER_SECOND
    requests = sum(_requests(problem, move) for move in moves) * REQUEST_SECONDS / machine.threads
    checksums = moved / machine.checksum_bytes_per_second
    return missed + checksums + requests + SLAB_SECONDS * sum(isinstance(action, Update) for action in one.actions)


def _requests(problem: Problem, move: Read | Write) -> int:
    """Requests that the system gets: whole planes that lie behind each other go together (transfers.cpp)."""
    are_behind = move.cut == problem.whole_plane and move.array != "faces" and not problem.periodic[0]
    together = max(1, TOGETHER_BYTES // problem.record_bytes) if are_behind else 1
    return -(-(move.z1 - move.z0) // together) * arrays_moved(problem, move)
