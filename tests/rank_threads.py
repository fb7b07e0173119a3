"""Run the plans of several ranks on files. Each rank is a thread with its own executor and its own files. Links connect
the ranks."""

from __future__ import annotations

import select
import socket
import threading
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np

from execution import Cells, FileRun
from outcrop import _core
from outcrop.language.stencil import Stencil
from outcrop.plan.actions import ABOVE, FACES, HIGH, SIDES, Write
from outcrop.plan.cost import transfer_bytes
from outcrop.plan.exchanges import RECEIVE, SEND, steps_of
from outcrop.plan.ranks import RankPlans
from outcrop.run.engine import Engine, Sample


def make_links(every: RankPlans) -> list[list[_core.Link | None]]:
    """Return the links of all ranks, for all SIDES. None means that a side has no neighbour."""
    links: list[list[_core.Link | None]] = [[None] * len(SIDES) for _ in range(every.ranks)]
    for rank in range(every.ranks):
        for side in (HIGH, ABOVE):
            if (above := every.neighbours(rank)[side]) is None:
                continue
            own, other = socket.socketpair()
            with own, other:
                links[rank][side] = _core.Link(own.fileno(), f"rank {above}")
                links[above][side ^ 1] = _core.Link(other.fileno(), f"rank {rank}")
    return links


class StrictRelay:
    """A relay between two ranks without other neighbours, which run one pass. The relay delivers messages as late as
    possible. The proof (plan/exchanges.py) gives the messages for which a rank must wait before each send. Before the
    send, the relay delivers only these messages to the rank. If an executor waits for another message, the relay closes
    the connections after GIVE_UP_SECONDS, so that both ranks fail."""

    GIVE_UP_SECONDS = 60
    SUM_BYTES = 4

    def __init__(self, every: RankPlans) -> None:
        assert every.ranks == 2 and all(len(plan.passes) == 1 for plan in every.plans)
        # the side of each rank at which the other rank is
        self._sides = [next(side for side in SIDES if every.neighbours(rank)[side] is not None) for rank in range(2)]
        steps = [steps_of(plan.problem, plan.passes[0]) for plan in every.plans]
        self._ends = [self._message_ends(every, rank) for rank in range(2)]
        # for each send of each rank: how many planes the rank has begun to send before this send, and for how many
        # received planes it has waited before this send
        self._begins, self._waits = [], []
        for side, own in zip(self._sides, steps, strict=True):
            begins, waits, waited = [], [], 0
            for _, is_begin, direction, count in own:
                if is_begin and direction == SEND + side:
                    begins.append(count)
                    waits.append(waited)
                elif not is_begin and direction == RECEIVE + side:
                    waited = max(waited, count)
            self._begins.append([0, *begins])
            self._waits.append([*waits, waited])
        pairs = [socket.socketpair() for _ in range(2)]
        self._inner = [pair[1] for pair in pairs]
        self.links = [[None] * len(SIDES) for _ in range(2)]
        for rank, (outer, _) in enumerate(pairs):
            with outer:
                self.links[rank][self._sides[rank]] = _core.Link(outer.fileno(), f"rank {1 - rank}")
        threading.Thread(target=self._relay, daemon=True).start()

    def _message_ends(self, every: RankPlans, rank: int) -> list[int]:
        """Return a number for each send of a rank: all bytes that the rank has sent at the end of this send. The number
        includes the checksums of groups of rows."""
        plan, lengths = every.plans[rank], []
        for action in plan.passes[0].actions:
            if isinstance(action, Write) and action.array in FACES:
                size = transfer_bytes(plan.problem, action)
                rows_bytes = (action.area.y1 - action.area.y0) * plan.problem.pitch_bytes
                lengths.append(size + size // rows_bytes * self.SUM_BYTES)
        return list(accumulate(lengths))

    def _allowed_bytes(self, rank: int, seen_bytes: int) -> int:
        """Return how many bytes the relay may deliver to `rank` after `rank` has sent `seen_bytes` bytes."""
        # a send counts when the relay has its first byte
        seen = bisect_right([0, *self._ends[rank][:-1]], seen_bytes - 1) if seen_bytes else 0
        planes, other = self._waits[rank][seen], 1 - rank
        sends = [end for (before, _), end in zip(pairwise(self._begins[other]), self._ends[other], strict=True)
                 if before < planes]  # fmt: skip
        return sends[-1] if sends else 0

    def _relay(self) -> None:
        held, given = [bytearray(), bytearray()], [0, 0]  # bytes from each rank, and the number of delivered bytes
        while any(given[rank] < self._ends[rank][-1] for rank in range(2)):
            readable, _, _ = select.select(self._inner, [], [], self.GIVE_UP_SECONDS)
            if not readable:
                break
            for rank in range(2):
                if self._inner[rank] in readable:
                    data = self._inner[rank].recv(1 << 20)
                    if not data:
                        return
                    held[rank] += data
            for rank in range(2):
                end = min(len(held[rank]), self._allowed_bytes(1 - rank, len(held[1 - rank])))
                if end > given[rank]:
                    self._inner[1 - rank].sendall(held[rank][given[rank] : end])
                    given[rank] = end
        for one in self._inner:
            one.close()


class RankThreads:
    """Ranks that run the plans in `every`. The files of the ranks are below `folder`. `state` has the initial arrays of
    the whole grid."""

    def __init__(
        self, folder: Path, stencil: Stencil, every: RankPlans, state: Mapping[str, Cells],
        signals: Mapping[str, Sequence[float]] | None = None,
    ) -> None:  # fmt: skip
        self.every, self.signals = every, signals
        self.runs = []
        for rank, plan in enumerate(every.plans):
            (folder / str(rank)).mkdir()
            cells = every.cells(rank)
            part = {name: array[cells] for name, array in state.items()}
            whole = (cells[0].start or 0, cells[1].start, *every.problem.shape)
            self.runs.append(FileRun(folder / str(rank), stencil, plan, part, whole))

    def run(
        self, threads: int, backend: str = "auto", during: Callable[[int, Engine], None] | None = None,
        links: list[list[_core.Link | None]] | None = None,
    ) -> list[Sample | BaseException]:  # fmt: skip
        """Run all passes. Return the counters or the error of each rank. After each pass of a rank, call `during` with
        the rank and its engine. The ranks use `links` if this argument is given, otherwise direct links."""
        links = links or make_links(self.every)
        engines = [
            run.engine(threads, backend, self.signals, links=tuple(one))
            for run, one in zip(self.runs, links, strict=True)
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
        found = {name: np.empty(self.every.problem.shape, array.dtype) for name, array in parts[0].items()}
        for rank, part in enumerate(parts):
            for name, array in part.items():
                found[name][self.every.cells(rank)] = array
        return found
