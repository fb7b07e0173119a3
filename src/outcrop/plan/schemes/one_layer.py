"""Both arrays in memory, or mapped into it, and updated where they lie: no reads, no writes, no copies. For comparison.

The window is the arrays: its even ring has a slot for every plane and is the array of level 0, its odd ring is the
other array. Whatever moves between memory and a disk is moved by the kernel of the system, page by page, which temporal
blocking helps as it helps a program that moves planes itself: blocks that lean back with the level (AL-NR, cut
as those of `skewed`), or none at all (sweeps over all planes, one step after the other).

    array of even levels   | plane 0 | plane 1 | ...            level 0, 2, ...
    array of odd levels    | plane 0 | plane 1 | ...            level 1, 3, ...; its rim is that of the other one

Nothing has to be carried between blocks: what a block leaves unfinished lies in the two arrays. A pass of an odd
number of levels ends in the other array, so the arrays change places after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from outcrop.plan.actions import Action
from outcrop.plan.geometry import Bound, Region, round_up
from outcrop.plan.machine import Machine, UpdateRate
from outcrop.plan.model import predict
from outcrop.plan.plan import Pass, Plan, Sizes
from outcrop.plan.problem import DIRECT_BYTES, VECTOR_BYTES, Problem
from outcrop.plan.schemes import blocked, skewed
from outcrop.plan.window import Window, make_window

NAME = "one-layer"
PLANE_LINES = 5
"""Cache lines by which padded planes miss a multiple of a page; odd, so that neighbours share no sets of a cache."""


def in_memory(problem: Problem, padded: bool) -> Problem:
    """`problem` with the layout of arrays in memory: planes without a checksum, one right behind the other.

    `padded`: rows an odd number of cache lines apart, and planes an odd number of pages and some lines, so that neither
    neighbouring rows nor planes compete for the same sets of a cache or a translation buffer.
    """
    _, ny, nx = problem.shape
    pitch = round_up(nx * problem.item_bytes, VECTOR_BYTES)
    if padded and pitch // VECTOR_BYTES % 2 == 0:
        pitch += VECTOR_BYTES
    plane = ny * pitch
    record = plane
    if padded:
        pages = round_up(plane, DIRECT_BYTES) // DIRECT_BYTES
        record = (pages + 1 - pages % 2) * DIRECT_BYTES + PLANE_LINES * VECTOR_BYTES
    return replace(problem, pitch_bytes=pitch, plane_bytes=plane, record_bytes=record)


def window(problem: Problem) -> Window:
    """Both arrays of a problem that `in_memory` made."""
    return make_window(problem, (problem.planes,) * 3, problem.record_bytes)


def make_pass(problem: Problem, levels: int, sizes: Sizes) -> Pass:
    """One pass over all blocks: updates, and nothing else."""
    cut = skewed.cuts(problem, levels, sizes)
    actions: list[Action] = []
    for z, x, y in product(cut.z.blocks, cut.x.blocks, cut.y.blocks):
        (y_low, y_high), (x_low, x_high) = y.bounds(), x.bounds()
        if x.is_last:  # padding is never looked at, so it need not be carried along
            x_high = Bound(round_up(problem.shape[2], problem.vector_cells))
        actions += _updates(problem, levels, sizes.slab, z.own(), Region(y_low=y_low, y_high=y_high, x_low=x_low,
                                                                         x_high=x_high))  # fmt: skip
    return Pass(levels, sizes.slab, window(problem), tuple(actions))


def _updates(problem: Problem, levels: int, slab: int, own_z: tuple[int, int], region: Region) -> Iterator[Action]:
    """Blocks in z are ranges of zeta, slab by slab."""
    first = max(problem.first_plane, own_z[0])
    end = min(problem.end_plane + problem.skew_z * (levels - 1), own_z[1])
    for zeta0 in range(first, end, slab) if problem.first_plane < problem.end_plane else ():
        yield from blocked.updates(problem, zeta0, min(end, zeta0 + slab), levels, region)


def make_plan(problem: Problem, sizes: Sizes, machine: Machine, rate: UpdateRate) -> Plan:
    """All passes of a problem that `in_memory` made, of `sizes.levels` levels each; the last may have fewer.

    What the system moves is not predicted: bytes are 0, and seconds those of the updates.
    """
    full, rest = divmod(problem.steps, sizes.levels)
    passes = [make_pass(problem, sizes.levels, sizes)] * full if full else []
    if rest:
        passes.append(make_pass(problem, rest, sizes))
    held = window(problem)
    return Plan(problem, NAME, sizes, tuple(passes), held, predict(problem, tuple(passes), sizes, held, machine, rate))
