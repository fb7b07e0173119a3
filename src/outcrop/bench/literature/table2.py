"""`outcrop bench table2`: compute Table II of Midorikawa and Tan with our version of Blk-Tune. Also compute how many
bytes each scheme of the table moves.

The benchmark runs no simulation, because the problems have up to 2 TiB. The machine is crest10, which a machine file
declares. Each scheme gets as much memory as the largest block of Blk-Tune needs. The table has three columns of bytes:
`by formula` (the formula of plan/schemes for the volume), `of our plan` (the sum over all actions of a plan), and
`estimate` (an older estimate that uses no plan). For AL-NR, the column `estimate` assumes that all blocks are as large
as the largest block. So the values in this column are up to 12 % too large.

    `AL-NR`        The rows aio, aio3y and aio5y are the schemes skewed-full, skewed-3y and skewed-5y with the sizes of
                   Blk-Tune.
    `wavefront`    The scheme has k blocks in y: k = 1, or the k that moves the fewest bytes. A pass has the maximum
                   number of levels that fits into 90 % of the memory. The other 10 % are for slabs that are read or
                   written.
    `overlapped`   The candidate of the scheme that moves the fewest bytes.
    `floor`        The minimum: the grid is read once and written once.

Blk-Tune chooses block sizes for the out-of-core stencils of Midorikawa and Tan (AL-NR, aio5y). Blocks of the chosen
sizes fit into a given memory and move the fewest bytes between flash and memory. Midorikawa and Tan have not published
how they search for the sizes. They have published some of the following rules. The other rules follow from Table II of
their paper (7-point, fp64, 1000 steps, 128 GiB). In the rules, r is the radius of the stencil:

    `passes`   A run has p passes over the grid. Each pass has bt = ceil(steps / p) steps.
    `blocks`   Rows are whole (bx = nx) if any block with whole rows fits. The ky blocks in y have by = ceil((ny + 2r) /
               ky). The kz blocks in z are skewed, so together they cover nz + r bt planes: bz = ceil((nz + r bt) / kz),
               rounded up to 96 planes.
    `memory`   Both arrays of the largest block together have 2 X Y (Z + 2r) cells. X, Y and Z are the numbers of cells
               that a block needs along the axes: its own cells, and r bt more cells below them. The first block has no
               such additional cells. If there are two blocks, the second block never needs more cells than the first
               block.
    `moved`    For each cell, p (2 + 4 r bt/bz + 4 r bt/bx) words are moved. There is no term for y, because the fringe
               in y stays in memory. There is also no term for an axis with one block.
    `fringe`   Along an axis that is cut, a block is at least twice as wide as its fringe of r bt cells.

Some assumptions are our own and agree with Table II. Sizes of blocks are rounded to 96 planes, because sockets and
threads can share 96 planes evenly. Without this rounding, the numbers of blocks would be the same. In the rule
`fringe`, a block is at least 2 times as wide as its fringe. All factors from 1.8 to 2.04 would give the same table. The
machine file crest10.toml declares 120 of 128 GiB of memory as usable. Any usable part from 91 to 97 % would give the
same table. If several sizes move the same number of bytes, Blk-Tune uses the sizes with the fewest blocks. A poster of
Midorikawa and Tan shows an example with other sizes, but does not name the machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from outcrop.errors import BudgetError
from outcrop.language.boundary import FIXED
from outcrop.language.library import heat7
from outcrop.plan.actions import round_down, round_up
from outcrop.plan.machine import DeclaredMachine
from outcrop.plan.plan import Sizes
from outcrop.plan.problem import Problem
from outcrop.plan.schemes import SCHEMES
from outcrop.plan.schemes.wavefront import thickest_slab
from outcrop.plan.tuner import build
from outcrop.run.definition import as_problem
from outcrop.run.disk.layout import make_layout
from outcrop.tiers.declarations import load_machine
from outcrop.units import format_bytes

STEPS = 1000
WAVEFRONT_SHARE = 0.9
MAX_BLOCKS = 12
GIB = 1 << 30
PLANES_MULTIPLE = 96
FRINGES_PER_BLOCK = 2


@dataclass(frozen=True)
class Published:
    """A row of Table II. `shape` is (nz, ny, nx). `blocks` are the numbers of blocks along x, y and z."""

    name: str
    shape: tuple[int, int, int]
    bx: int
    by: int
    bz: int
    bt: int
    blocks: tuple[int, int, int]
    passes: int
    blocks_in_all: int
    largest_gib: float
    estimate_gib: dict[str, int]


TABLE = (
    Published(
        "512 GiB", (4096, 4096, 2048), 2048, 1025, 2304, 500, (1, 4, 2), 2, 16, 107.3,
        {"aio": 4176, "aio3y": 2807, "aio5y": 1654, "wavefront k=1": 1024, "wavefront best k": 762, "floor": 512},
    ),
    Published(
        "1 TiB", (4096, 4096, 4096), 4096, 683, 1536, 334, (1, 6, 3), 3, 54, 116.2,
        {"aio": 12536, "aio3y": 8419, "aio5y": 4961, "wavefront k=1": 3072, "wavefront best k": 2024, "floor": 1024},
    ),
    Published(
        "2 TiB", (8192, 4096, 4096), 4096, 683, 1440, 334, (1, 6, 6), 3, 108, 110.3,
        {"aio": 23785, "aio3y": 15974, "aio5y": 9491, "wavefront k=1": 6144, "wavefront best k": 4048, "floor": 2048},
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Traffic:
    """The traffic of one scheme in GiB: the sum of reads and writes over all passes. `passes` and `sizes` describe the
    plan of the scheme.

    The row `floor` has no sizes. `estimate_gib` is 0 if no estimate exists.
    """

    name: str
    formula_gib: float
    plan_gib: float
    estimate_gib: int
    passes: int
    sizes: Sizes | None


def bench(directory: Path, small: bool) -> dict[str, Any]:
    """Print the table of blocks and the table of traffic, and return their figures as plain data. If `small` is true,
    both tables show only the first problem."""
    machine = load_machine("crest10")
    problems = [(one, table2_problem(one)) for one in TABLE[: 1 if small else None]]
    found = [(one, problem, blk_tune(problem, machine.usable_bytes)) for one, problem in problems]
    print(block_table([(one, tuned) for one, _, tuned in found]))
    figures: dict[str, Any] = {"benchmark": "table2", "small": small, "problems": {}}
    for one, problem, tuned in found:
        moved = list(traffic(problem, tuned, one, machine))
        print(traffic_table(one, moved), flush=True)
        figures["problems"][one.name] = {
            "blk_tune": asdict(tuned),
            "published": asdict(one),
            "traffic": [asdict(each) for each in moved],
        }
    return figures


def table2_problem(one: Published) -> Problem:
    return as_problem(heat7(), make_layout(one.shape, "float64"), STEPS, FIXED, in_place=False)


def traffic(problem: Problem, tuned: BlkTune, one: Published, machine: DeclaredMachine) -> Iterator[Traffic]:
    """Yield the traffic of each scheme, in the order of the rows of the table."""
    memory, block = tuned.block_bytes, Sizes(tuned.bt, 2 * tuned.bt, diamond=0, block_y=tuned.by, block_z=tuned.bz)
    wavefronts = [wavefront_sizes(problem, blocks, memory) for blocks in range(1, MAX_BLOCKS + 1)]
    overlapped = SCHEMES["overlapped"].candidates(problem, memory)
    chosen = [
        ("aio", "skewed-full", block),
        ("aio3y", "skewed-3y", block),
        ("aio5y", "skewed-5y", block),
        ("wavefront k=1", "wavefront", wavefronts[0]),
        ("wavefront best k", "wavefront", min(wavefronts, key=lambda one: formula_bytes(problem, "wavefront", one))),
        ("overlapped", "overlapped", min(overlapped, key=lambda one: formula_bytes(problem, "overlapped", one))),
    ]
    rate = machine.update_rate(problem, machine.cores)
    for name, scheme, sizes in chosen:
        plan = build(problem, SCHEMES[scheme], sizes, machine.machine(machine.cores), rate)
        plan_bytes = plan.predicted.bytes_read + plan.predicted.bytes_written
        formula = formula_bytes(problem, scheme, sizes)
        estimate = one.estimate_gib.get(name, 0)
        yield Traffic(name, formula / GIB, plan_bytes / GIB, estimate, len(plan.passes), sizes)
    floor = 2 * problem.cells * problem.item_bytes / GIB
    yield Traffic("floor", floor, floor, one.estimate_gib["floor"], 1, None)


def formula_bytes(problem: Problem, scheme: str, sizes: Sizes) -> float:
    """Return the number of bytes that all passes of the scheme together move, by the scheme's formula for its
    volume."""
    volume = SCHEMES[scheme].volume(problem, sizes)
    return -(-problem.steps // sizes.levels) * (volume.bytes_read + volume.bytes_written)


def wavefront_sizes(problem: Problem, blocks: int, memory_bytes: int) -> Sizes:
    """Return the sizes of a wavefront with `blocks` blocks in y and with the minimum number of passes within
    `memory_bytes`."""
    _, ny, nx = problem.shape
    cells = int(WAVEFRONT_SHARE * memory_bytes) // problem.item_bytes
    max_levels = min(problem.steps, blocks * cells // (2 * problem.skew_z * nx * ny))
    levels = -(-problem.steps // -(-problem.steps // max_levels))
    rows = 0 if blocks == 1 else -(-(ny - 2 * problem.radius_y) // blocks)
    sizes = Sizes(levels, 1, diamond=0, block_y=rows)
    return replace(sizes, slab=max(1, thickest_slab(problem, levels, sizes, memory_bytes)))


def block_table(rows: Sequence[tuple[Published, BlkTune]]) -> str:
    """Return a table with two rows for each problem: our sizes, and the sizes of the paper."""
    line = "{:<8}  {:<6}  {:>16}  {:>4}  {:>8}  {:>6}  {:>6}  {:>9}"
    lines = [line.format("problem", "", "bx, by, bz", "bt", "x.y.z", "passes", "blocks", "largest")]
    for one, tuned in rows:
        both = (("ours", tuned, tuned.block_bytes / GIB), ("paper", one, one.largest_gib))
        for who, row, largest in both:
            cells = f"{row.bx}, {row.by}, {row.bz}"
            blocks = ".".join(map(str, row.blocks))
            lines.append(line.format(one.name if who == "ours" else "", who, cells, row.bt, blocks, row.passes,
                                     row.blocks_in_all, f"{largest:.1f} GiB"))  # fmt: skip
    return "\n".join(lines)


def traffic_table(one: Published, moved: Sequence[Traffic]) -> str:
    line = "  {:<17}{:>7}{:>13}{:>13}{:>10}"
    head = line.format("GiB moved", "passes", "by formula", "of our plan", "estimate")
    rows = [
        line.format(each.name, each.passes, f"{each.formula_gib:.0f}", f"{each.plan_gib:.0f}", each.estimate_gib or "-")
        for each in moved
    ]
    return "\n".join([f"{one.name}, {STEPS} steps", head, *rows])


@dataclass(frozen=True)
class BlkTune:
    """The sizes of a block in cells, and the number `bt` of steps of a pass. `passes` is the number of passes. `blocks`
    are the numbers of blocks along x, y and z in one pass.

    `block_bytes` is the memory for both arrays of the largest block. All passes together move `words` words for each
    cell of the grid.
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
        x, y, z = self.blocks
        return self.passes * x * y * z


def blk_tune(problem: Problem, memory_bytes: int) -> BlkTune:
    """Return the sizes of blocks that move the fewest bytes. The largest of these blocks must fit into `memory_bytes`.

    Raises BudgetError if even the smallest blocks for passes of one step do not fit.
    """
    for count_x in range(1, _max_blocks(problem, 2, 1) + 1):
        if best := _best_with(problem, memory_bytes, count_x):
            return best
    raise BudgetError(f"memory {format_bytes(memory_bytes)} is too small for any block of Blk-Tune; give more")


def _best_with(problem: Problem, memory_bytes: int, count_x: int) -> BlkTune | None:
    best: BlkTune | None = None
    for bt in dict.fromkeys(-(-problem.steps // passes) for passes in range(1, problem.steps + 1)):
        if best is not None and 2 * -(-problem.steps // bt) > best.words:
            break
        if count_x <= _max_blocks(problem, 2, bt):
            found = _best_of(problem, memory_bytes, bt, count_x)
            if found and (best is None or (found.words, found.blocks_in_all) < (best.words, best.blocks_in_all)):
                best = found
    return best


def _best_of(problem: Problem, memory_bytes: int, bt: int, count_x: int) -> BlkTune | None:
    """Return the sizes with the fewest blocks in z, because the number of blocks in z determines the cost. If several
    sizes have the fewest blocks in z, return the sizes with the fewest blocks in y."""
    max_blocks = _max_blocks(problem, 1, bt)
    finest = _with_blocks(problem, memory_bytes, bt, count_x, max_blocks)
    if finest is None:
        return None
    every = (_with_blocks(problem, memory_bytes, bt, count_x, count) for count in range(1, max_blocks + 1))
    return next(one for one in every if one is not None and one.words <= finest.words)


def _with_blocks(problem: Problem, memory_bytes: int, bt: int, count_x: int, count_y: int) -> BlkTune | None:
    """Return the sizes with the largest `bz` that fits. The numbers of blocks in x and y are given."""
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


def _largest_bz(nz: int, fringe: int, max_planes: int) -> int | None:
    """Cut the grid along z into the fewest blocks that fit, and return the number of planes of a block. A block and its
    fringe together have at most `max_planes` planes."""
    if nz <= max_planes:
        return nz
    half = round_up(-(-(nz + fringe) // 2), PLANES_MULTIPLE)
    if half <= max_planes and half >= FRINGES_PER_BLOCK * fringe:
        return half
    largest = round_down(max_planes - fringe, PLANES_MULTIPLE)
    if largest < max(PLANES_MULTIPLE, FRINGES_PER_BLOCK * fringe):
        return None
    count = -(-(nz + fringe) // largest)
    return max(
        round_up(-(-(nz + fringe) // count), PLANES_MULTIPLE), round_up(FRINGES_PER_BLOCK * fringe, PLANES_MULTIPLE)
    )


def _share(extent: int, radius: int, count: int) -> int:
    """Return the number of cells of each block, if an axis of `extent` cells is cut into `count` blocks."""
    return extent if count == 1 else -(-(extent + 2 * radius) // count)


def _needed(extent: int, size: int, count: int, fringe: int) -> int:
    """An axis is cut into `count` blocks. Return the number of cells that the largest of these blocks needs in memory
    along this axis."""
    return min(extent, size + (fringe if count > 2 else 0))


def _max_blocks(problem: Problem, axis: int, bt: int) -> int:
    """Return the maximum number of blocks along an axis. A block is at least twice as wide as its fringe."""
    extent, radius = problem.shape[axis], problem.radii[axis]
    return max(1, (extent + 2 * radius) // max(1, FRINGES_PER_BLOCK * radius * bt))


def _words(problem: Problem, bt: int, bx: int, bz: int) -> float:
    """Return the number of words that are moved for each cell of the grid. `bx` is 0 if the x axis is not cut, and `bz`
    is 0 if the z axis is not cut."""
    beside_z = 4 * problem.radius_z * bt / bz if bz else 0.0
    beside_x = 4 * problem.radii[2] * bt / bx if bx else 0.0
    return -(-problem.steps // bt) * (2 + beside_z + beside_x)
