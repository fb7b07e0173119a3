"""How a slab may be cut for the cache, and which cuts are worth measuring; core/outcrop/exec/tiles.hpp makes them.

Diamonds need rows beside each other: 2 r D for each, and one for each thread at least. Where there are fewer, as on
grids of two axes, whose rows are streamed as planes of one row, threads share the streaming axis: bands of 2 D levels
in chunks of the skewed coordinate zeta.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from outcrop.plan.geometry import round_down
from outcrop.plan.machine import Machine
from outcrop.plan.plan import Sizes
from outcrop.plan.problem import Problem
from outcrop.plan.schemes.scheme import Scheme

DIAMONDS = (2, 4, 6, 8, 12, 16, 24, 32)
TILINGS = 4
"""Diamonds that are measured for given levels and slab, where there are so many."""
SWEEP_ROWS = (4, 8, 16, 32, 64)
CHUNK_LEANS = 4
"""Planes of a chunk, in planes by which its band leans: at each end of a chunk the lean is fetched once more."""
SWEEP_LEAN = 16
"""The same of a plain sweep, so that chunks are worth a thread's while."""
CHUNKS_MOST = 20_000
"""Of all bands together: their list is memory outside the window."""


def tilings(problem: Problem, scheme: Scheme, sizes: Sizes, machine: Machine) -> Iterable[Sizes]:
    """The cache tilings worth measuring for given levels and slab, the likeliest first.

    A tile's working set is about 4 r^2 D^2 rows, or 2 r D planes of few rows; it should fit the second-level cache or,
    less well, a thread's share of the last one. Diamonds higher than the levels, or wider than a thread's share of the
    rows, leave threads idle, as do bands of which there are fewer than threads. Of many fields a set that is too large
    by this rule may still be the best, so there are at least TILINGS.
    """
    if scheme.name == "naive":
        block_rows = min(SWEEP_ROWS, key=lambda rows: abs(6 * rows * problem.pitch_bytes - machine.cache_bytes))
        rows = max(1, min(block_rows, problem.shape[1] // machine.threads))
        yield replace(with_tiles(problem, sizes, 0, machine.threads), sweep_rows=rows)
        return
    if scheme.diamond:  # given by the user
        yield with_tiles(problem, sizes, scheme.diamond, machine.threads)
        return
    share = max(machine.cache_bytes, machine.last_cache_bytes // (2 * machine.threads))
    useful = _useful_diamonds(problem, sizes.levels, machine.threads)
    rows = problem.shape[1]
    row_bytes = 2 * problem.rings * problem.skew_z * problem.pitch_bytes
    fitting = [one for one in useful if row_bytes * one * min(problem.skew_y * max(1, one), rows) <= share]
    larger = useful[len(fitting) :][: max(0, TILINGS - len(fitting))]
    for diamond in (*reversed(fitting[-TILINGS:]), *larger):
        yield with_tiles(problem, sizes, diamond, machine.threads)


def _useful_diamonds(problem: Problem, levels: int, threads: int) -> list[int]:
    """Half heights of tiles of which there are enough for all threads, where there are any."""
    if shares_planes(problem, threads):
        each = [one for one in (1, *DIAMONDS) if 2 * one * threads <= levels]
        return [one for one in each if problem.skew_z * one * threads <= problem.planes] or [0, 1][:levels]
    extent, skew = problem.shape[1], problem.skew_y
    is_serial = _has_few_rows(problem, threads)
    return [one for one in DIAMONDS if one <= levels and (is_serial or skew * one * threads <= extent)] or [DIAMONDS[0]]


def shares_planes(problem: Problem, threads: int) -> bool:
    """Whether threads share the streaming axis, because there are too few rows to share; a single plane cannot be."""
    return _has_few_rows(problem, threads) and problem.planes >= 2 * threads


def _has_few_rows(problem: Problem, threads: int) -> bool:
    return problem.skew_y * DIAMONDS[0] * threads > problem.shape[1]


def with_tiles(problem: Problem, sizes: Sizes, diamond: int, threads: int) -> Sizes:
    """`sizes` with tiles of 2 `diamond` levels, 0 for plain sweeps, that suit the rows of the grid."""
    if not shares_planes(problem, threads):
        return replace(sizes, diamond=diamond, chunk=0)
    lean = 2 * diamond * problem.skew_z or SWEEP_LEAN
    bands = -(-sizes.levels // max(1, 2 * diamond))
    wanted = max(CHUNK_LEANS * lean, sizes.slab * bands // CHUNKS_MOST)
    share = min(sizes.slab, problem.planes) // (2 * threads)
    chunk = round_down(min(wanted, share), sizes.planes_per_call)
    return replace(sizes, diamond=diamond, chunk=max(sizes.planes_per_call, chunk))
