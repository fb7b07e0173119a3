"""`outcrop bench table2`: Table II of Midorikawa and Tan by our Blk-Tune, and what each scheme would move there.

Nothing is run: the machine is crest10 as its file declares it, and the problems have up to 2 TiB. Every scheme gets
the memory of Blk-Tune's largest block. `by formula` is the scheme's volume (plan/schemes), `of our plan` what the
actions of a whole plan of these sizes add up to, `estimate` what was reckoned before there were plans: for AL-NR with
every block as large as the largest, so it is up to 12 % more.

    AL-NR        aio, aio3y, aio5y: skewed-full, -3y, -5y with the sizes of Blk-Tune
    wavefront    k blocks in y, the most levels for which 2 r nx by planes fit, less a tenth for slabs on their way:
                 k = 1, and the k that moves least
    overlapped   the sizes of its candidates that move least
    floor        the grid read once and written once
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from outcrop.language.boundary import FIXED
from outcrop.language.library import heat7
from outcrop.plan.blk_tune import BlkTune, blk_tune
from outcrop.plan.declared import DeclaredMachine
from outcrop.plan.plan import Sizes
from outcrop.plan.problem import Problem
from outcrop.plan.schemes import SCHEMES
from outcrop.plan.schemes.wavefront import thickest_slab
from outcrop.plan.tuner import build
from outcrop.run.arguments import as_problem
from outcrop.run.disk.layout import make_layout
from outcrop.tiers.declarations import load_machine

STEPS = 1000
WAVEFRONT_SHARE = 0.9
BLOCKS_MOST = 12
GIB = 1 << 30


@dataclass(frozen=True)
class Published:
    """A row of Table II; `shape` is (nz, ny, nx), `blocks` are along x, y and z."""

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
    """What one scheme moves in all passes, read and written together, in GiB; `estimate_gib` is 0 where there is none,
    `passes` and `sizes` are those of the plan (None: there is none)."""

    name: str
    formula_gib: float
    plan_gib: float
    estimate_gib: int
    passes: int
    sizes: Sizes | None


def bench(directory: Path, small: bool) -> dict[str, Any]:
    """Print both tables; `small` does the first problem only. `directory` is not touched."""
    machine = load_machine("crest10")
    rows = [(one, table2_problem(one)) for one in TABLE[: 1 if small else None]]
    found = [(one, problem, blk_tune(problem, machine.usable_bytes)) for one, problem in rows]
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
    """A problem of Table II."""
    return as_problem(heat7(), make_layout(one.shape, "float64"), STEPS, FIXED, in_place=False)


def traffic(problem: Problem, tuned: BlkTune, one: Published, machine: DeclaredMachine) -> Iterator[Traffic]:
    """What each scheme moves, in the order of the table."""
    block = Sizes(tuned.bt, 2 * tuned.bt, diamond=0, block_y=tuned.by, block_z=tuned.bz)
    chosen = [
        ("aio", "skewed-full", block),
        ("aio3y", "skewed-3y", block),
        ("aio5y", "skewed-5y", block),
        ("wavefront k=1", "wavefront", wavefront_sizes(problem, 1, tuned.block_bytes)),
        ("wavefront best k", "wavefront", best_wavefront(problem, tuned.block_bytes)),
        ("overlapped", "overlapped", least_moving(problem, "overlapped", tuned.block_bytes)),
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
    """Bytes that all passes move by the scheme's volume."""
    volume = SCHEMES[scheme].volume(problem, sizes)
    return -(-problem.steps // sizes.levels) * (volume.bytes_read + volume.bytes_written)


def wavefront_sizes(problem: Problem, blocks: int, memory_bytes: int) -> Sizes:
    """The fewest passes of a wavefront in `blocks` blocks of y within `memory_bytes`."""
    _, ny, nx = problem.shape
    cells = int(WAVEFRONT_SHARE * memory_bytes) // problem.item_bytes
    most = min(problem.steps, blocks * cells // (2 * problem.skew_z * nx * ny))
    levels = -(-problem.steps // -(-problem.steps // most))
    rows = 0 if blocks == 1 else -(-(ny - 2 * problem.radius_y) // blocks)
    sizes = Sizes(levels, 1, diamond=0, block_y=rows)
    return replace(sizes, slab=max(1, thickest_slab(problem, levels, sizes, memory_bytes)))


def best_wavefront(problem: Problem, memory_bytes: int) -> Sizes:
    """That of so many blocks that the least is moved."""
    every = [wavefront_sizes(problem, blocks, memory_bytes) for blocks in range(1, BLOCKS_MOST + 1)]
    return min(every, key=lambda sizes: formula_bytes(problem, "wavefront", sizes))


def least_moving(problem: Problem, scheme: str, memory_bytes: int) -> Sizes:
    """The candidate of a scheme that moves the least."""
    every = SCHEMES[scheme].candidates(problem, memory_bytes)
    return min(every, key=lambda sizes: formula_bytes(problem, scheme, sizes))


def block_table(rows: Sequence[tuple[Published, BlkTune]]) -> str:
    """Ours above the paper's, for each problem."""
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
    """GiB moved by each scheme."""
    line = "  {:<17}{:>7}{:>13}{:>13}{:>10}"
    head = line.format("GiB moved", "passes", "by formula", "of our plan", "estimate")
    rows = [
        line.format(each.name, each.passes, f"{each.formula_gib:.0f}", f"{each.plan_gib:.0f}", each.estimate_gib or "-")
        for each in moved
    ]
    return "\n".join([f"{one.name}, {STEPS} steps", head, *rows])
