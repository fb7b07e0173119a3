"""The generation on which all ranks agree: how a pass of several ranks is committed, and how ranks recover.

Each rank has two copies of its part on disk. A pass reads generation g from one copy, and writes g + 1 over g - 1 in
the other copy. A rank must not write over g - 1 before all ranks have g, because until then another rank may have to
begin again with g - 1. So a pass is committed in these steps:

    rank 0   pass ──► 1 flush ► 2 rename: {g, g-1} ───────────┐                       ┌──► next pass writes over g-1
    rank 1   pass ───────► 1 flush ► 2 rename: {g, g-1} ──────┼─► 3 minimum of all: g ┼──► next pass writes over g-1
    rank 2   pass ─► 1 flush ► 2 rename: {g, g-1} ────────────┘                       └──► next pass writes over g-1

    1   The data of generation g are durable (Engine.run_pass).
    2   The manifest names g, and with its entry `before` also g - 1: a rank can go back (State.commit).
    3   All ranks exchange their durable generations (`agree`). No rank goes on before all ranks have sent theirs.

If a rank is killed, all ranks end, and at the next start they call `agree` again:

    killed                               generations on disk            at the next start
    in the pass, in step 1               all g - 1                      all repeat the pass
    around step 2 of some ranks          some g, some g - 1             the ranks at g go back to g - 1
    after step 2 of all ranks            all g                          all go on with g

If the ranks share a directory, a step 4 follows, in which rank 0 changes the links of its Zarr group, and the others
wait for it (shared.py).

Generations of ranks never differ by more than one. An assignment of new values is committed in the same way.
"""

from __future__ import annotations

from outcrop.errors import StorageError
from outcrop.run.disk.state import State
from outcrop.run.ranks.group import RankGroup


def agree(group: RankGroup, state: State) -> None:
    """Wait until all ranks have committed their generation, and go back to the minimum over all ranks. This process
    must hold the lock of its part. Raises StorageError on all ranks if a rank cannot go back, and CommunicationError if
    a rank is gone."""
    generations = group.allgather(state.manifest.generation)
    least = min(generations)
    if least < max(generations):
        _go_back(group, state, generations)
    if state.on_agreement is not None:
        state.on_agreement()


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
