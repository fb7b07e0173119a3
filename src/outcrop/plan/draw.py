"""A plan as shapes, for `outcrop plan --draw`: numbers only, no picture library.

slabs      z against level: what each Update covers, leaning back by the skew per level
tiles      y against level: how a slab is cut for the cache
time line  seconds against what is going on: the model of plan/model.py, step by step
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from outcrop.plan.actions import Read, Update, Write
from outcrop.plan.machine import Machine
from outcrop.plan.model import updates_below
from outcrop.plan.plan import Pass, Plan, Sizes
from outcrop.plan.problem import Problem


@dataclass(frozen=True)
class Patch:
    """The outline of a set of (cell, level): `corners` go around it; a level t reaches from t - 1/2 to t + 1/2.

    Patches of equal `wave` do not wait for each other.
    """

    corners: tuple[tuple[float, float], ...]
    wave: int


@dataclass(frozen=True)
class Span:
    """Something that goes on from `start` to `end` (seconds): "read", "update", "write" or "flush"."""

    what: str
    start: float
    end: float


def slab_patches(problem: Problem, one: Pass) -> tuple[Patch, ...]:
    """What each Update of a pass covers, in (z, level); every slab is a wave of its own."""
    patches: list[Patch] = []
    for action in one.actions:
        if isinstance(action, Update):

            def planes(level: int, slab: Update = action) -> tuple[int, int]:
                back = problem.skew * (level - 1)
                return max(problem.first_plane, slab.zeta0 - back), min(problem.end_plane, slab.zeta1 - back)

            patches += _outline(range(1, action.levels + 1), planes, wave=len(patches))
    return tuple(patches)


def tile_patches(problem: Problem, sizes: Sizes, levels: int) -> tuple[Patch, ...]:
    """The tiles of a slab in (y, level); see core/outcrop/exec/tiles.hpp, which cuts them."""
    first, end = problem.radius_y, problem.shape[1] - problem.radius_y
    patches: list[Patch] = []
    if sizes.diamond == 0:
        for level in range(1, levels + 1):
            for low in range(0, problem.shape[1], sizes.sweep_rows):

                def block(_: int, low: int = low) -> tuple[int, int]:
                    return max(first, low), min(end, low + sizes.sweep_rows)

                patches += _outline(range(level, level + 1), block, wave=level)
        return tuple(patches)
    half = problem.skew * sizes.diamond
    for wave in range((levels - 1) // sizes.diamond + 2):
        middle = wave * sizes.diamond
        span = range(max(1, middle - sizes.diamond + 1), min(levels, middle + sizes.diamond - 1) + 1)
        for y in range(half * (wave % 2), end + half, 2 * half):

            def rows_at(level: int, y: int = y, middle: int = middle) -> tuple[int, int]:
                reach = half - problem.skew * abs(level - middle)
                return max(first, y - reach), min(end, y + reach)

            patches += _outline(span, rows_at, wave)
    return tuple(patches)


def time_line(plan: Plan, one: Pass, machine: Machine) -> tuple[Span, ...]:
    """What the model expects to go on during one pass of `plan`, checksums left out.

    While a slab is updated the next one is read and the last one written; both start with the update.
    """
    problem, device = plan.problem, machine.device
    cells_per_plane = problem.shape[1] * problem.shape[2]
    rate = _updates(plan) * cells_per_plane / plan.predicted.seconds_update if plan.predicted.seconds_update else 1.0
    spans: list[Span] = []
    now, read, written, started = 0.0, 0, 0, False
    for action in one.actions:
        match action:
            case Read(z0, z1):
                read += (z1 - z0) * problem.record_bytes
            case Write(z0, z1, _):
                written += (z1 - z0) * problem.record_bytes
            case Update():
                if not started:
                    first = min(problem.planes, action.zeta1 + problem.radius_z) * problem.record_bytes
                    spans.append(Span("read", now, now + first / device.read_bytes_per_second))
                    now, read, started = spans[-1].end, read - first, True
                spans.append(Span("update", now, now + _updates_of(problem, action) * cells_per_plane / rate))
                transfers = list(_transfers(machine, now, read, written))
                now = max(span.end for span in [spans[-1], *transfers])
                spans += transfers
                read = written = 0
            case _:
                pass
    last = list(_transfers(machine, now, read, written))
    now = max([now, *(span.end for span in last)])
    spans += [*last, Span("flush", now, now + device.seconds_flush)]
    return tuple(spans)


def _updates(plan: Plan) -> int:
    """Plane updates of all passes."""
    every = [action for one in plan.passes for action in one.actions if isinstance(action, Update)]
    return sum(_updates_of(plan.problem, action) for action in every)


def _updates_of(problem: Problem, action: Update) -> int:
    """Plane updates of one slab."""
    below = updates_below(problem, action.levels, action.zeta0)
    return updates_below(problem, action.levels, action.zeta1) - below


def _transfers(machine: Machine, start: float, read: int, written: int) -> Iterator[Span]:
    """Reading and writing from `start`: what both have in common at the mixed bandwidth, then the rest alone."""
    device, shared = machine.device, min(read, written)
    both = start + 2 * shared / device.mixed_bytes_per_second
    if read:
        yield Span("read", start, both + (read - shared) / device.read_bytes_per_second)
    if written:
        yield Span("write", start, both + (written - shared) / device.write_bytes_per_second)


def _outline(levels: range, bounds: Callable[[int], tuple[int, int]], wave: int) -> list[Patch]:
    """A patch of the levels at which `bounds` is not empty; these follow each other. None when there is none."""
    full = [(level, *bounds(level)) for level in levels]
    full = [(level, low, high) for level, low, high in full if low < high]
    right = [corner for level, _, high in full for corner in ((high, level - 0.5), (high, level + 0.5))]
    left = [corner for level, low, _ in reversed(full) for corner in ((low, level + 0.5), (low, level - 0.5))]
    return [Patch((*right, *left), wave)] if full else []
