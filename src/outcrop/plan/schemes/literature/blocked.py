"""Functions for all schemes that divide the grid into blocks along all axes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Generic, TypeAlias, TypeVar

from outcrop.plan.actions import Action, Copy, Read, Rectangle, Update, UpdateRegion, Write
from outcrop.plan.cost import cell_updates
from outcrop.plan.given_sizes import FREE, GivenSizes
from outcrop.plan.memory import Window, largest_within
from outcrop.plan.plan import Sizes
from outcrop.plan.problem import Problem
from outcrop.plan.schemes.wavefront import levels_worth_trying

Transfer = TypeVar("Transfer", Read, Write, Copy)


class InStep(Generic[Transfer]):
    """Divides the reads, copies or writes of a block into parts that have fewer planes. A scheme yields the parts
    between the updates."""

    def __init__(self, whole: Sequence[Transfer], first: int) -> None:
        self._whole: list[Transfer] = [one for one in whole if isinstance(one, Copy) or one.area.cells]
        self._done = first

    def up_to(self, z_end: int) -> Iterator[Transfer]:
        """Yield a part of each action: the planes below `z_end` that were not yielded before."""
        for one in self._whole if z_end > self._done else ():
            z0, z1 = max(one.z0, self._done), min(one.z1, z_end)
            if z0 < z1:
                yield replace(one, z0=z0, z1=z1)
        self._done = max(self._done, z_end)


def updates(problem: Problem, zeta0: int, zeta1: int, levels: int, region: UpdateRegion) -> Iterator[Update]:
    """Yield one Update, or nothing if this Update would change no cell."""
    action = Update(zeta0, zeta1, levels, region)
    if cell_updates(problem, action):
        yield action


def in_slabs(
    problem: Problem, levels: int, slab: int, zetas: tuple[int, int], region: UpdateRegion, planes: tuple[int, int],
    reads: Sequence[Read], rims: Sequence[Copy], writes: Sequence[Write],
) -> Iterator[Action]:  # fmt: skip
    """Yield the updates of a block slab by slab. Between the updates of two slabs, yield parts of the reads, copies and
    writes of the block. The planes of all yielded actions are within the range `planes`."""
    skew, (first, last) = problem.skew_z, planes
    incoming, copied, outgoing = InStep(reads, first), InStep(rims, first), InStep(writes, first)
    for zeta0 in range(*zetas, slab) if problem.has_updates else ():
        zeta1 = min(zetas[1], zeta0 + slab)
        yield from incoming.up_to(zeta1 + skew)
        yield from incoming.up_to(zeta1 + skew + slab)
        yield from copied.up_to(zeta1 + skew)
        yield from updates(problem, zeta0, zeta1, levels, region)
        yield from outgoing.up_to(min(last, zeta1 - skew * (levels - 1)))
    yield from incoming.up_to(last)
    yield from copied.up_to(last)
    yield from outgoing.up_to(last)


def static_reads(problem: Problem, z0: int, z1: int, frame: Rectangle) -> list[Read]:
    return [Read(z0, z1, frame, "statics")] if problem.statics else []


MAX_BLOCKS = 16
"""The largest number of blocks along y that the tuner tries."""
SIZES = ("bt", "bx", "by", "bz", "slab", "diamond")
WindowOf: TypeAlias = Callable[[Problem, int, Sizes], Window]


def candidates(window: WindowOf, problem: Problem, budget_bytes: int, given: GivenSizes = FREE) -> Iterable[Sizes]:
    """Yield at most two candidates for each number of levels that is worth trying. Among the sizes that fit the budget,
    the yielded candidates move the fewest bytes."""
    for levels in given.levels(problem, levels_worth_trying(problem)):
        fitting: list[tuple[float, Sizes]] = []
        for block_y in given.or_any("by", _shares(problem)):
            sizes = Sizes(levels, problem.planes, diamond=0, block_x=given.bx or 0, block_y=block_y)
            if block_z := _largest_block_z(problem, sizes, budget_bytes, window, given):
                sizes = replace(sizes, block_z=block_z)
                rho_z, rho_y = overlaps(problem, sizes)
                fitting.append(((1 + rho_z) * (1 + rho_y), sizes))
        fitting.sort(key=lambda pair: pair[0])
        for overlap, sizes in fitting[:2]:
            if overlap < MAX_OVERLAP or levels == problem.stages or given:
                yield replace(sizes, slab=given.slab or min(sizes.slab, max(MIN_SLAB, 2 * levels)))


MIN_SLAB = 64
"""The minimum number of planes that are updated together. A block needs several slabs, because its transfers are
started between the slabs."""
MAX_OVERLAP = 9.0
"""The tuner tries only blocks that access at most this number of cells, including the fringe, for each cell of the
block."""


def overlaps(problem: Problem, sizes: Sizes) -> tuple[float, float]:
    """Return two ratios, for z and for y: the width of the fringe divided by the width of the block. The ratios are r
    bt / bz and r bt / by. In these ratios, r is the radius, a pass has `bt` steps, and a block has `bz` planes and `by`
    rows. The ratio is 0 for an axis that is not divided."""
    beside_y = problem.radius_y * sizes.levels / sizes.block_y if 0 < sizes.block_y < problem.shape[1] else 0.0
    beside_z = problem.skew_z * sizes.levels / sizes.block_z if 0 < sizes.block_z < problem.planes else 0.0
    return beside_z, beside_y


def exposed(problem: Problem, sizes: Sizes) -> tuple[float, int, float]:
    """Return three estimates: the exposed bytes, the number of slabs, and the number of transfers. Exposed bytes are
    read before the first update of each block, or written after the last update of the block. Each block reads
    approximately one slab of planes before its first update, and writes approximately one slab after its last update.
    """
    rows, planes = sizes.block_y or problem.shape[1], sizes.block_z or problem.planes
    blocks = -(-problem.shape[1] // rows) * -(-problem.planes // planes)
    frame = min(problem.shape[1], rows + problem.radius_y * sizes.levels)
    slabs = blocks * -(-problem.shape[2] // (sizes.block_x or problem.shape[2])) * (-(-planes // sizes.slab) + 1)
    moved = 2 * blocks * min(planes, sizes.slab) * frame * problem.pitch_bytes * problem.state_arrays
    return moved, slabs, 4.0 * blocks * (planes + problem.skew_z * sizes.levels) * problem.state_arrays


def smallest_window(window: WindowOf, problem: Problem, given: GivenSizes = FREE) -> Window:
    """Return the smallest window for passes of one step, with blocks of one plane. The function tries several numbers
    of rows of a block. If `given` has a size, only this size is tried."""
    (levels,), shares = given.levels(problem, (problem.stages,)), given.or_any("by", _shares(problem))
    whole = Sizes(levels, 1, diamond=0, block_x=given.bx or 0, block_z=given.bz or 1)
    sizes = (replace(whole, block_y=block_y) for block_y in shares)
    return min((window(problem, levels, one) for one in sizes), key=lambda one: one.bytes)


def _shares(problem: Problem) -> Iterator[int]:
    """Yield the number of rows of a block for 2 equal blocks, for 3 equal blocks, and so on. The first number is 0,
    which means that y is not divided. A periodic y is never divided."""
    max_count = 1 if problem.periodic[1] else MAX_BLOCKS
    return (_share(problem.shape[1], count) for count in range(1, max_count + 1))


def _share(extent: int, count: int) -> int:
    """Return the size of a block if the axis is divided into `count` equal blocks. If `count` is 1, return 0."""
    return 0 if count == 1 else -(-extent // count)


def _largest_block_z(problem: Problem, sizes: Sizes, budget_bytes: int, window: WindowOf, given: GivenSizes) -> int:
    """Return the number of planes of a block. If the user has given a number of planes, return this number. If the user
    has not given a number of planes, return the largest size of equal blocks that fits the budget. Return 0 if no size
    fits."""

    def bytes_of(block_z: int) -> int:
        return window(problem, sizes.levels, replace(sizes, block_z=block_z)).bytes

    if given.bz:
        return given.bz if bytes_of(given.bz) <= budget_bytes else 0
    if not (largest := largest_within(bytes_of, problem.planes, budget_bytes)):
        return 0
    equal = _share(problem.planes, -(-problem.planes // largest)) or problem.planes
    # Equal blocks can need more memory than blocks of `largest` planes, because the last block can have more planes.
    return equal if bytes_of(equal) <= budget_bytes else largest
