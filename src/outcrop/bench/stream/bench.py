"""`outcrop bench stream`: the memory bandwidth that codes get from DRAM, and from arrays that lie on a tier.

The distributed STREAM of A. Jackson (EPCC): the four loops of McCalpin on all ranks of all nodes at once, on arrays of
four times the last-level caches of a node, with what it costs to make results durable (stream_modes.py). Ranks of a
node begin each loop together; the first repeat of a turn does not count; results are checked.

    mpirun -n 4 outcrop bench stream -d SCRATCH        every rank has files of its own there
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from outcrop.bench.core import describe_machine
from outcrop.bench.ranks import Ranks, all_ranks
from outcrop.bench.stream.figures import RankFigures, of_mode
from outcrop.bench.stream.modes import MODES, Mode
from outcrop.bench.stream.picture import draw
from outcrop.bench.stream.rank import RankStream, Scale, threads_of_rank
from outcrop.bench.stream.table import head, remarks, table
from outcrop.bench.stream.tier import check_room, find_tier, why_not_flushed
from outcrop.paths import made_directory
from outcrop.tiers.discover import last_level_bytes

CACHES, PAGE_BYTES = 4, 4096
ROUNDS, REPEATS, SECONDS_MOST = 3, 4, 5.0
SMALL = Scale(array_bytes=1 << 20, rounds=2, repeats=1, seconds_most=0.2)


def bench(
    directory: Path,
    small: bool = False,
    png: Path | None = None,
    tier: str | None = None,
    threads: int | None = None,
) -> dict[str, Any]:
    """Measure and print; the figures as plain data, on the first rank: none on others.

    Files are made without a name on `tier`, or else in `directory`, and go with the process. `threads` are those of a
    rank. Raises InputError when there is no such tier or no room, StorageError when a file cannot be made or flushed.
    """
    with all_ranks() as ranks:
        place, used = find_tier(directory, tier), threads or threads_of_rank(ranks)
        scale = SMALL if small else full(ranks)
        check_room(place, 3 * scale.array_bytes * ranks.on_node)
        with nullcontext() if tier else _made_on_each_node(directory, ranks):
            rank = RankStream(place, scale, used, ranks)
            why_not = why_not_flushed(place)
            modes = [mode for mode in MODES if mode.flush == "none" or not why_not]
            left_out = [mode for mode in MODES if mode not in modes]
            figures: dict[str, Any] = {
                "benchmark": "stream",
                "small": small,
                "machine": describe_machine(directory, used),
                "tier": place.to_json(),
                "ranks": ranks.size,
                "nodes": list(dict.fromkeys(ranks.of_all(ranks.node))),
                "threads": used,
                "array_bytes": scale.array_bytes,
                "repeats": scale.rounds * scale.repeats,
                "primitive": place.primitive if why_not else rank.primitive,
                "flushed_at_once_bytes": rank.flushed_at_once_bytes,
                "not_measured": [{"mode": mode.name, "text": mode.text, "why": why_not} for mode in left_out],
            }
            if ranks.rank == 0:
                print("\n".join(head(figures)), flush=True)
            found = measure(rank, modes, scale.rounds, ranks)
            if ranks.rank != 0:
                return {}
    figures["modes"] = [of_mode(mode, found) for mode in modes]
    figures["results_are_right"] = all(mode["is_right"] for mode in figures["modes"])
    print("\n".join(["", *table(figures), *remarks(figures)]))
    if png is not None:
        draw(figures, png)
    return figures


@contextmanager
def _made_on_each_node(directory: Path, ranks: Ranks) -> Iterator[None]:
    """Have a directory inside: the first rank of a node makes it, and removes it when all ranks are done."""
    is_first = ranks.rank == ranks.of_node(ranks.rank)[0]
    with made_directory(directory) if is_first else nullcontext():
        ranks.wait_for_node()
        yield
        ranks.wait_for_all()


def full(ranks: Ranks) -> Scale:
    """Arrays that take four times the last-level caches on every node, whole pages of each rank."""
    share = -(-CACHES * last_level_bytes() // ranks.on_node)
    return Scale(-(-share // PAGE_BYTES) * PAGE_BYTES, ROUNDS, REPEATS, SECONDS_MOST)


def measure(rank: RankStream, modes: list[Mode], rounds: int, ranks: Ranks) -> list[RankFigures]:
    """All modes on all ranks: machines are noisy, so they take turns."""
    own = {mode.name: rank.measure(mode) for mode in modes}
    for _ in range(rounds - 1):
        own = {mode.name: own[mode.name] + rank.measure(mode) for mode in modes}
    return ranks.of_all(RankFigures(ranks.rank, ranks.node, own))
