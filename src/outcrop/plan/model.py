"""What a plan costs: bytes exactly, memory exactly, seconds by a model of overlapping phases.

A pass is a row of slabs. While slab s is updated, slab s+1 is read and slab s-1 is written, so a slab takes the
longer of its update and its transfers; before the first there is nothing to hide its reading behind, after the
last its writing:

    read    |0|1|2|3|
    update    |0|1|2|3|          seconds = read 0 + sum of max(update s, transfers s) + write last + flush
    write       |0|1|2|3|
"""

from __future__ import annotations

from outcrop.plan.actions import Read, Update, Write
from outcrop.plan.machine import Machine, UpdateRate
from outcrop.plan.plan import Pass, Prediction, Sizes
from outcrop.plan.problem import Problem

GUARD_BYTES = 4096
"""Readable memory before, between and behind the rings (core/outcrop/exec/window.hpp)."""


def window_bytes(problem: Problem, ring_planes: tuple[int, int]) -> int:
    """Bytes of a window with these rings; the core allocates exactly this."""
    return sum(ring_planes) * problem.record_bytes + 3 * GUARD_BYTES


def slots_within(problem: Problem, budget_bytes: int) -> int:
    """How many planes in all the rings may have under a budget."""
    return max(0, budget_bytes - 3 * GUARD_BYTES) // problem.record_bytes


def updates_below(problem: Problem, levels: int, zeta: int) -> int:
    """Plane updates of a pass whose skewed coordinate is below `zeta`: the sum over levels of the planes passed."""
    planes = problem.end_plane - problem.first_plane
    # Level t has passed clamp(zeta - first - skew*(t-1), 0, planes) planes: a constant, then an arithmetic series.
    ahead, skew = zeta - problem.first_plane, problem.skew
    whole = max(0, min(levels, (ahead - planes) // skew + 1))
    partly = max(0, min(levels, -(-ahead // skew)))
    if partly <= whole:
        return whole * planes
    series = (partly * (partly - 1) - whole * (whole - 1)) // 2
    return whole * planes + (partly - whole) * ahead - skew * series


THIN_SLAB_COST = 0.15
"""What a plane costs that a tile touches without finishing it, as a share of one that it updates fully."""


def thin_slab_factor(problem: Problem, sizes: Sizes) -> float:
    """How much longer an update takes in slabs of this thickness than in infinitely thick ones: a tile of 2 D levels
    touches 2 r D planes beyond its slab."""
    diamond = min(sizes.diamond, sizes.levels)
    return 1 + THIN_SLAB_COST * 2 * problem.skew * diamond / max(1, sizes.slab)


def predict(
    problem: Problem,
    passes: tuple[Pass, ...],
    sizes: Sizes,
    ring_planes: tuple[int, int],
    machine: Machine,
    rate: UpdateRate,
) -> Prediction:
    """Bytes, memory and seconds of a whole plan."""
    cell_rate = rate(sizes)
    costs: dict[Pass, _PassCost] = {}
    for one in passes:
        if one not in costs:
            costs[one] = _pass_cost(problem, one, machine, cell_rate)
    every = [costs[one] for one in passes]
    return Prediction(
        seconds=sum(cost.seconds for cost in every),
        bytes_read=sum(cost.bytes_read for cost in every),
        bytes_written=sum(cost.bytes_written for cost in every),
        memory_bytes=window_bytes(problem, ring_planes),
        seconds_update=sum(cost.seconds_update for cost in every),
        seconds_read=sum(cost.bytes_read for cost in every) / machine.device.read_bytes_per_second,
        seconds_write=sum(cost.bytes_written for cost in every) / machine.device.write_bytes_per_second,
        seconds_commit=len(passes) * machine.device.seconds_flush,
    )


class _PassCost:
    """Running totals while the actions of one pass are gone through."""

    def __init__(self) -> None:
        self.seconds = self.seconds_update = 0.0
        self.bytes_read = self.bytes_written = 0


def _pass_cost(problem: Problem, one: Pass, machine: Machine, cell_rate: float) -> _PassCost:
    device, cost = machine.device, _PassCost()
    cells_per_plane = problem.shape[1] * problem.shape[2]
    read = written = 0  # bytes under way since the last update began
    started = False
    for action in one.actions:
        match action:
            case Read():
                read += (action.z1 - action.z0) * problem.record_bytes
                cost.bytes_read += (action.z1 - action.z0) * problem.record_bytes
            case Write():
                written += (action.z1 - action.z0) * problem.record_bytes
                cost.bytes_written += (action.z1 - action.z0) * problem.record_bytes
            case Update():
                if not started:  # two slabs are asked for together, the first one is waited for
                    needed = min(problem.planes, action.zeta1 + problem.radius_z) * problem.record_bytes
                    cost.seconds += needed / device.read_bytes_per_second
                    read -= needed
                    started = True
                updates = updates_below(problem, action.levels, action.zeta1)
                updates -= updates_below(problem, action.levels, action.zeta0)
                seconds = updates * cells_per_plane / cell_rate
                cost.seconds_update += seconds
                cost.seconds += max(seconds, _transfer_seconds(machine, read, written))
                read = written = 0
            case _:
                pass
    cost.seconds += _transfer_seconds(machine, read, written) + device.seconds_flush
    cost.seconds += (cost.bytes_read + cost.bytes_written) / machine.checksum_bytes_per_second
    return cost


def _transfer_seconds(machine: Machine, read: int, written: int) -> float:
    """Seconds for reading and writing at once: the shared part at the mixed bandwidth, the rest at its own."""
    shared = min(read, written)
    device = machine.device
    return (
        2 * shared / device.mixed_bytes_per_second
        + (read - shared) / device.read_bytes_per_second
        + (written - shared) / device.write_bytes_per_second
    )
