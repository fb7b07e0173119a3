"""Measure how long ranks wait for the slow commits of one rank.

    mpirun -n 4 .venv/bin/python scripts/delayed_commits.py DIRECTORY [--delay 0.05] [--turns 3]

The highest rank sleeps before each commit. The script runs heat7 in three ways, one after the other:

    no delay       without the sleep
    overlapped     as Outcrop does: ranks agree on a generation while they compute the next pass
    in turn        ranks begin a pass only when all ranks have committed the pass before

The runs are in a new folder in DIRECTORY. The script removes this folder at the end. The script prints the median of
the seconds of the run. It also prints the median of the seconds that each rank waited for the commits of the other
ranks.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mpi4py import MPI

import outcrop as oc
from outcrop.run.disk.state import State
from outcrop.run.ranks.agreement import Agreement

SHAPE, STEPS, SIZES = (96, 512, 256), 96, {"bt": 4, "slab": 32}
WAYS = ("no delay", "overlapped", "in turn")
commit, begin, wait = State.commit, Agreement.begin, Agreement.wait


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--delay", type=float, default=0.05, help="the seconds of each sleep")
    parser.add_argument("--turns", type=int, default=3, help="the number of runs in each way")
    given = parser.parse_args()
    if not given.directory.is_dir():
        parser.error(f"{given.directory} is not a directory; name a directory of all ranks")
    comm = MPI.COMM_WORLD
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    with new_folder(given.directory) as folder:
        for _ in range(given.turns):
            for way in WAYS:
                delay = given.delay if way != "no delay" and comm.rank == comm.size - 1 else 0.0
                found[way].append(run(folder / "run.oc", way == "in turn", delay))
    for way, runs in found.items():
        seconds, waited = (statistics.median(one) for one in zip(*runs, strict=True))
        every = comm.gather(waited)
        if every is not None:
            print(f"{way:12}{seconds:8.2f} s   waits {'  '.join(f'{one:.2f}' for one in every)} s")


@contextmanager
def new_folder(directory: Path) -> Iterator[Path]:
    """Make a new folder in `directory`, the same folder for all ranks. At the end, all ranks wait for each other, and
    the folder is removed."""
    comm = MPI.COMM_WORLD
    folder = tempfile.TemporaryDirectory(prefix="outcrop-commits-", dir=directory) if comm.rank == 0 else None
    yield Path(comm.bcast(folder.name if folder else ""))
    comm.barrier()
    if folder:
        folder.cleanup()


def run(where: Path, is_in_turn: bool, delay: float) -> tuple[float, float]:
    """Run heat7. Return the seconds of the run, and the seconds that this rank waited for the commits of other
    ranks."""
    waited = 0.0

    def delayed(self: State, *values: Any, **named: Any) -> None:
        time.sleep(delay)
        commit(self, *values, **named)

    def timed(self: Agreement) -> None:
        nonlocal waited
        before = time.perf_counter()
        wait(self)
        waited += time.perf_counter() - before

    def in_turn(self: Agreement) -> None:
        begin(self)
        self.wait()

    sim = oc.Simulation("heat7", SHAPE, directory=where, memory="32MiB", threads=1, sizes=SIZES, force=True)
    sim["u"] = "gaussian"
    State.commit, Agreement.wait = delayed, timed  # type: ignore[method-assign]
    Agreement.begin = in_turn if is_in_turn else begin  # type: ignore[method-assign]
    try:
        return sim.run(STEPS, progress="none").seconds, waited
    finally:
        State.commit, Agreement.begin, Agreement.wait = commit, begin, wait  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
