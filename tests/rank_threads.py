"""Run the plans of several ranks on files. Each rank is a thread with its own executor and its own files, and links
connect neighbours."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from execution import Cells, FileRun
from outcrop import _core
from outcrop.language.stencil import Stencil
from outcrop.plan.actions import HIGH, LOW
from outcrop.plan.ranks import RankPlans, neighbour_of
from outcrop.run.engine import Engine, Sample


def make_links(every: RankPlans) -> list[list[_core.Link | None]]:
    """Return the links of all ranks, for the sides LOW and HIGH. None means that a side has no neighbour."""
    links: list[list[_core.Link | None]] = [[None, None] for _ in range(every.ranks)]
    for rank in range(every.ranks):
        above = neighbour_of(every.problem, every.cut, rank, HIGH)
        if above is None:
            continue
        own, other = socket.socketpair()
        with own, other:
            links[rank][HIGH] = _core.Link(own.fileno(), f"rank {above}")
            links[above][LOW] = _core.Link(other.fileno(), f"rank {rank}")
    return links


class RankThreads:
    """All ranks of `every`, with their files in folders below `folder`. `state` has the arrays of the whole grid."""

    def __init__(
        self, folder: Path, stencil: Stencil, every: RankPlans, state: Mapping[str, Cells],
        signals: Mapping[str, Sequence[float]] | None = None,
    ) -> None:  # fmt: skip
        self.every, self.signals = every, signals
        self.runs = []
        for rank, plan in enumerate(every.plans):
            (folder / str(rank)).mkdir()
            part = {name: array[:, every.cut[rank] : every.cut[rank + 1]] for name, array in state.items()}
            self.runs.append(FileRun(folder / str(rank), stencil, plan, part))

    def run(
        self, threads: int, backend: str = "auto", during: Callable[[int, Engine], None] | None = None
    ) -> list[Sample | BaseException]:
        """Run all passes, and return the counters of each rank, or its error. Call `during` with each rank and its
        engine when a pass of the rank has ended."""
        links = make_links(self.every)
        engines = [
            run.engine(threads, backend, self.signals, links=(low, high))
            for run, (low, high) in zip(self.runs, links, strict=True)
        ]

        def work(rank: int) -> Sample | BaseException:
            try:
                for _ in self.every.plans[rank].passes:
                    self.runs[rank].run_pass(engines[rank])
                    if during:
                        during(rank, engines[rank])
                return engines[rank].sample()
            except BaseException as error:
                return error

        with ThreadPoolExecutor(len(engines)) as pool:
            results = list(pool.map(work, range(len(engines))))
        for engine in engines:
            engine.close()
        return results

    def arrays(self) -> dict[str, Cells]:
        """Return the arrays of the state of the whole grid. Assert that all checksums and seals are right."""
        parts = [run.arrays() for run in self.runs]
        return {name: np.concatenate([part[name] for part in parts], axis=1) for name in parts[0]}
