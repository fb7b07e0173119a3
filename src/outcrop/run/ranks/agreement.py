"""All ranks agree on one generation: how they commit a pass, and how they recover.

Each rank has two copies of its part on disk. A pass reads generation g from one copy, and writes g + 1 over g - 1 in
the other copy. A rank must not write over g - 1 before all ranks have committed g. Until all ranks have committed g, it
is possible that all ranks must begin again with g - 1. But a rank that has committed g can already begin the next pass:
it can read g, exchange rows and update. So the ranks agree while they compute the next pass, and only the first write
of this pass waits:

    rank 0   pass ► 1 flush ► 2 rename: {g, g-1} ─┬─► next pass: read, update ......... ► 4 write over g-1
                                                  └► 3 ─┐                        ┌─► g ─┘
    rank 1   pass ────► 1 flush ► 2 rename: {g, g-1} ─┬─┼► next pass: read, update ...... ► 4 write over g-1
                                                      └►┼ 3 minimum of all: g ───┼─► g ─┘
    rank 2   pass ──────► 1 flush ► 2 rename: {g, g-1} ─┼─┬► next pass: read, update .... ► 4 write over g-1
                                                        └─┘                      └─► g ─┘

    1   The data of generation g are durable (Engine.run_pass).
    2   The manifest names g. Its entry `before` names g - 1, so a rank can go back (State.commit).
    3   All ranks exchange their durable generations. A separate thread does this (`Agreement.begin`). If the ranks
        share a directory, rank 0 then changes the links of its Zarr group, while the other ranks wait (shared.py).
    4   The first write of the next pass waits until step 3 is complete (`Agreement.wait`). After the last pass, the run
        waits for step 3 before it ends.

If a rank is killed, all ranks end. At the next start, all ranks call `agree`:

    killed                               generations on disk            at the next start
    in the pass, in step 1               all g - 1                      all repeat the pass
    around step 2 of some ranks          some g, some g - 1             the ranks at g go back to g - 1
    after step 2 of all ranks            all g                          all continue from g

If a rank is killed around step 2 of some ranks, other ranks with generation g can already be in the next pass. These
ranks with generation g have not written over g - 1. No rank can commit g + 1, because step 3 never completes after a
rank was killed. So the generations of two ranks differ by at most one. An assignment of new values to fields is
committed in the same way as a pass. But after the assignment, all ranks wait until step 3 is complete.

Arrays that have no values are written in place, outside of this protocol: zeros for new fields, computed fields, and
fields that are only read. If a rank is killed while an array is written in place, the array has values on some ranks
only. At the next start, `agree` removes the values of such an array from all ranks, and the array is written again."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from outcrop.errors import StorageError
from outcrop.run.disk.state import State
from outcrop.run.ranks.group import RankGroup


def agree(group: RankGroup, state: State) -> None:
    """Compare the committed generations of all ranks. If the generations differ, all ranks go back to the lowest
    committed generation. After that, compare the arrays that have values on each rank. If an array has values on some
    ranks only, all ranks mark it as an array without values. The calling process must hold the lock of its part. Raises
    StorageError on all ranks if a rank cannot go back, or if a part has lost values. Raises CommunicationError if a
    rank is gone."""
    generations = group.allgather(state.manifest.generation)
    least = min(generations)
    if least < max(generations):
        _go_back(group, state, generations)
    _agree_on_arrays(group, state)
    if state.on_agreement is not None:
        state.on_agreement()


class Agreement:
    """The agreement of all ranks on the generations of a run. After each commit, a separate thread agrees with the
    other ranks, while this rank computes the next pass. All ranks must compute the same passes.

    `step` is the last step on which all ranks have agreed."""

    def __init__(self, group: RankGroup, state: State) -> None:
        self.step = state.manifest.step
        self._group, self._state = group, state
        self._thread = ThreadPoolExecutor(1, "outcrop-agreement")
        self._pending: Future[None] | None = None

    def start(self) -> None:
        """Agree before the first pass, as `agree` does."""
        agree(self._group, self._state)
        self.step = self._state.manifest.step

    def begin(self) -> None:
        """Begin to agree on the generation that this rank has just committed. The caller must call `wait` before it
        overwrites the previous generation, and before it commits again."""
        self._pending = self._thread.submit(self._agree)

    def wait(self) -> None:
        """Wait until all ranks have committed the generation for which `begin` was called. Raises CommunicationError or
        InterruptedRun if the group ends earlier, and StorageError if rank 0 cannot change the links of a shared
        directory."""
        if self._pending is not None:
            self._pending.result()
            self._pending = None

    def close(self) -> None:
        """End the thread. If a rank has failed before all ranks have agreed, the group must have ended before this
        call. If the group has not ended, the thread may never end."""
        self._thread.shutdown()

    @property
    def failure(self) -> BaseException | None:
        """The error that `wait` raises for the last agreement. The value is None if there is no error. Read this
        property after `close`."""
        return self._pending.exception() if self._pending is not None else None

    def _agree(self) -> None:
        generations = self._group.allgather(self._state.manifest.generation)
        assert min(generations) == max(generations), f"ranks have committed different passes: {generations}"
        if self._state.on_agreement is not None:
            self._state.on_agreement()
        self.step = self._state.manifest.step


def _go_back(group: RankGroup, state: State, generations: list[int]) -> None:
    least = min(generations)
    with group.together():
        if state.manifest.generation > least + 1:
            behind = generations.index(least)
            raise StorageError(
                f"{state.path} has generation {state.manifest.generation}, but the part of rank {behind} has {least}: "
                "these parts do not belong to one state; put back the directory that was exchanged"
            )
        if state.manifest.generation > least:
            state.go_back()


def _agree_on_arrays(group: RankGroup, state: State) -> None:
    manifest = state.manifest
    every = group.allgather([*manifest.filled])
    divided = set().union(*every).difference(set(manifest.filled).intersection(*every))
    with group.together():
        # computed fields are computed again, and other arrays are written in place only before the first step
        if manifest.step and (lost := sorted(divided - manifest.computed.keys())):
            behind = next(rank for rank, names in enumerate(every) if lost[0] not in names)
            raise StorageError(
                f"{state.path} is at step {manifest.step}, but the part of rank {behind} has no values of {lost[0]}: "
                "these parts do not belong to one state; put back the directory that was exchanged"
            )
        if not divided.isdisjoint(manifest.filled):
            state.lose(divided)
