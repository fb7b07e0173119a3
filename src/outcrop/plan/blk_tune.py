"""Blk-Tune: the block sizes that Midorikawa and Tan's out-of-core stencils (AL-NR, aio5y) take, by their hardware.

They choose (bx, by, bz, bt) so that the least bytes move between flash and memory, under a limit on memory. Their
search is not at hand; these rules are theirs, or follow from their Table II (7-point, fp64, 1000 steps, 128 GiB):

    passes      p trips over the grid, bt = ceil(steps / p)
    blocks      bx = nx: rows stay whole where anything fits then. ky blocks in y: by = ceil((ny + 2r) / ky). kz blocks
                in z, which have to cover nz + r bt planes since they lean back: bz = ceil((nz + r bt) / kz), rounded up
                to 96 planes
    memory      both arrays of the largest block: 2 X Y (Z + 2r) cells; along each axis a block needs its own cells and
                r bt more below, but the first block has nothing below it, so of two blocks none needs more
    moved       p (2 + 4 r bt/bz + 4 r bt/bx) words for each cell; in y the fringe stays in memory, and an axis that is
                not cut costs nothing
    fringe      a cut axis has blocks at least twice as wide as their fringe, 2 r bt

Assumed, because Table II is all there is to judge by: the rounding to 96 (what sockets and threads share evenly; the
blocks are as many without it), the factor 2 of the last rule (anything from 1.8 to 2.04 gives the table), and the share
of memory (91 to 97 % give it; crest10.toml declares 120 of 128 GiB usable). Of equal choices the one with the fewest
blocks is taken. The example on their poster, on a machine that is not named, comes out otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from outcrop.errors import BudgetError
from outcrop.plan.geometry import round_down, round_up
from outcrop.plan.problem import Problem
from outcrop.units import format_bytes

PLANES_MULTIPLE = 96
FRINGES_PER_BLOCK = 2


@dataclass(frozen=True)
class BlkTune:
    """Sizes of a block in cells, steps `bt` and number of `passes`; `blocks` of a pass along x, y and z.

    `block_bytes` are those of both arrays of the largest block, `words` those moved for each cell of the grid by all
    passes together.
    """

    bx: int
    by: int
    bz: int
    bt: int
    passes: int
    blocks: tuple[int, int, int]
    block_bytes: int
    words: float

    @property
    def blocks_in_all(self) -> int:
        """Blocks of all passes."""
        x, y, z = self.blocks
        return self.passes * x * y * z


def blk_tune(problem: Problem, memory_bytes: int) -> BlkTune:
    """The sizes that move the least, with the largest block within `memory_bytes`.

    Raises BudgetError when not even single steps in the smallest blocks fit.
    """
    for count_x in range(1, _most_blocks(problem, 2, 1) + 1):
        if best := _best_with(problem, memory_bytes, count_x):
            return best
    raise BudgetError(f"memory {format_bytes(memory_bytes)} is too small for any block of Blk-Tune; give more")


def _best_with(problem: Problem, memory_bytes: int, count_x: int) -> BlkTune | None:
    """The best with so many blocks in x; None where nothing fits."""
    best: BlkTune | None = None
    for bt in _steps_of_passes(problem.steps):
        if best is not None and 2 * -(-problem.steps // bt) > best.words:
            break
        if count_x <= _most_blocks(problem, 2, bt):
            found = _best_of(problem, memory_bytes, bt, count_x)
            if found is not None and (best is None or _rank(found) < _rank(best)):
                best = found
    return best


def _rank(one: BlkTune) -> tuple[float, int]:
    return one.words, one.blocks_in_all


def _steps_of_passes(steps: int) -> Iterator[int]:
    """ceil(steps / p) for p = 1, 2, ...: from many steps to few, each once."""
    last = 0
    for passes in range(1, steps + 1):
        if (bt := -(-steps // passes)) != last:
            yield bt
        last = bt


def _best_of(problem: Problem, memory_bytes: int, bt: int, count_x: int) -> BlkTune | None:
    """With the fewest blocks in z, which is what costs, and then the fewest in y; None where nothing fits."""
    most = _most_blocks(problem, 1, bt)
    finest = _with_blocks(problem, memory_bytes, bt, count_x, most)
    if finest is None:
        return None
    every = (_with_blocks(problem, memory_bytes, bt, count_x, count) for count in range(1, most + 1))
    return next(one for one in every if one is not None and one.words <= finest.words)


def _with_blocks(problem: Problem, memory_bytes: int, bt: int, count_x: int, count_y: int) -> BlkTune | None:
    """The largest bz that fits with so many blocks in x and y; None where none does."""
    nz, ny, nx = problem.shape
    bx, by = _share(nx, problem.radii[2], count_x), _share(ny, problem.radius_y, count_y)
    columns = _needed(nx, bx, count_x, problem.radii[2] * bt)
    rows = _needed(ny, by, count_y, problem.radius_y * bt)
    plane_bytes = 2 * columns * rows * problem.item_bytes
    halo, fringe = 2 * problem.radius_z, problem.radius_z * bt
    bz = _largest_bz(nz, fringe, memory_bytes // plane_bytes - halo)
    if bz is None:
        return None
    count_z = 1 if bz == nz else -(-(nz + fringe) // bz)
    return BlkTune(
        bx,
        by,
        bz,
        bt,
        passes=-(-problem.steps // bt),
        blocks=(count_x, count_y, count_z),
        block_bytes=plane_bytes * (_needed(nz, bz, count_z, fringe) + halo),
        words=_words(problem, bt, bx if count_x > 1 else 0, bz if count_z > 1 else 0),
    )


def _largest_bz(nz: int, fringe: int, planes_most: int) -> int | None:
    """Planes of a block, of which with its fringe at most `planes_most` are in memory: one block, two, or more."""
    if nz <= planes_most:
        return nz
    half = round_up(-(-(nz + fringe) // 2), PLANES_MULTIPLE)
    if half <= planes_most and half >= FRINGES_PER_BLOCK * fringe:
        return half
    most = round_down(planes_most - fringe, PLANES_MULTIPLE)
    if most < max(PLANES_MULTIPLE, FRINGES_PER_BLOCK * fringe):
        return None
    count = -(-(nz + fringe) // most)
    return max(
        round_up(-(-(nz + fringe) // count), PLANES_MULTIPLE),
        round_up(FRINGES_PER_BLOCK * fringe, PLANES_MULTIPLE),
    )


def _share(extent: int, radius: int, count: int) -> int:
    """Cells of each of `count` blocks of an axis."""
    return extent if count == 1 else -(-(extent + 2 * radius) // count)


def _needed(extent: int, size: int, count: int, fringe: int) -> int:
    """Cells that the largest of `count` blocks needs along an axis."""
    return min(extent, size + (fringe if count > 2 else 0))


def _most_blocks(problem: Problem, axis: int, bt: int) -> int:
    """How often an axis may be cut so that blocks stay twice as wide as their fringe."""
    extent, radius = problem.shape[axis], problem.radii[axis]
    return max(1, (extent + 2 * radius) // max(1, FRINGES_PER_BLOCK * radius * bt))


def _words(problem: Problem, bt: int, bx: int, bz: int) -> float:
    """Words moved for each cell of the grid; 0 for an axis that is not cut."""
    beside_z = 4 * problem.radius_z * bt / bz if bz else 0.0
    beside_x = 4 * problem.radii[2] * bt / bx if bx else 0.0
    return -(-problem.steps // bt) * (2 + beside_z + beside_x)
