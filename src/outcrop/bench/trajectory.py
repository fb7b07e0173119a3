"""`outcrop bench trajectory`: compare the pushes and pops of `oc.Trajectory` with the bandwidth of the tier.

Each round writes a file on the tier in direct transfers of 2 MiB, and then pushes and commits all states. After the
commit, the round reads the file in direct transfers, and pops all states. The newest three states are still in the
buffers of the trajectory, so their pops need no transfers: 3 of 32 states, and all states with `--small`. The speed of
states in memory is compared with the speed of copies by NumPy. The first round does not count, because a file system is
slower when it writes a block for the first time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from outcrop import _core
from outcrop.arrays.trajectory import Trajectory
from outcrop.bench.figures import first_figures, new_folder, table_head, table_row
from outcrop.tiers.measure import scratch_store
from outcrop.units import format_bytes

REQUEST_BYTES, DEPTH, MAX_SECONDS = 2 << 20, 16, 120.0


@dataclass(frozen=True)
class TrajectoryScale:
    """The scale of the benchmark: the shape (nz, ny, nx) of each of two float32 fields, the number of states, and the
    number of rounds."""

    shape: tuple[int, int, int]
    states: int
    rounds: int

    @property
    def total_bytes(self) -> int:
        """The number of bytes of all states together."""
        return self.states * 2 * 4 * int(np.prod(self.shape))


FULL = TrajectoryScale((64, 512, 256), 32, 5)
SMALL = TrajectoryScale((8, 256, 256), 3, 1)


def bench(directory: Path, small: bool = False) -> dict[str, Any]:
    """Measure the rates, print the figures, and return the figures as plain data. The files of the benchmark are in a
    new folder in `directory`. This folder is removed at the end. Raises InputError if the tier does not have enough
    room, and StorageError if a transfer fails."""
    scale = SMALL if small else FULL
    with first_figures("trajectory", small, directory, has_plans=False) as figures, new_folder(directory) as folder:
        print(f"{scale.states} states of {format_bytes(scale.total_bytes / scale.states)}, {scale.rounds} rounds")
        rounds = {"storage": _storage_rounds(folder, scale), "memory": _memory_rounds(folder, scale)}
    tiers = {}
    for line in table_head(["tier", "push MB/s", "tier", "share", "pop MB/s", "tier", "share"]):
        print(line)
    for tier, found in rounds.items():
        rates = {name: median(round_[name] for round_ in found) for name in found[0]}
        shares = {name: median(round_[name] / round_["tier_" + name] for round_ in found) for name in ("push", "pop")}
        tiers[tier] = {"rounds": found, "bytes_per_second": rates, "shares": shares}
        cells = [tier]
        for name in ("push", "pop"):
            cells += [f"{rates[name] / 1e6:.0f}", f"{rates['tier_' + name] / 1e6:.0f}", f"{shares[name]:.2f}"]
        print(table_row(cells))
    return {**figures, "shape": scale.shape, "states": scale.states, "tiers": tiers}


def _storage_rounds(folder: Path, scale: TrajectoryScale) -> list[dict[str, float]]:
    """Return the rates of each round in bytes per second: for pushes, for pops, and for direct transfers to and from
    the tier. Direct writes are measured just before the pushes, and direct reads just before the pops."""
    state = _state(scale)
    total = scale.total_bytes
    found = []
    shapes = dict.fromkeys(state, scale.shape)
    with (
        scratch_store(folder, total, "auto") as (store, _),
        Trajectory(folder / "storage", shapes, "float32", states=scale.states) as history,
    ):
        for _ in range(scale.rounds + 1):
            rates = {"tier_push": _raw(store, total, write=True)}
            rates["push"] = total / _timed(lambda: _push_all(history, state, scale.states, commit=True))
            rates["tier_pop"] = _raw(store, total, write=False)
            rates["pop"] = total / _timed(lambda: _pop_all(history))
            history.commit()
            found.append(rates)
    return found[1:]


def _memory_rounds(folder: Path, scale: TrajectoryScale) -> list[dict[str, float]]:
    """Return the rates of each round for a trajectory whose states are in memory. Instead of the rates of a tier, the
    result has the rates at which NumPy copies the states."""
    state = _state(scale)
    total = scale.total_bytes
    copies = [{name: np.zeros_like(values) for name, values in state.items()} for _ in range(scale.states)]
    target = {name: np.zeros_like(values) for name, values in state.items()}
    found = []

    def copy(pairs: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
        for to, values in pairs:
            for name in to:
                np.copyto(to[name], values[name])

    shapes = dict.fromkeys(state, scale.shape)
    with Trajectory(folder / "memory", shapes, "float32", states=scale.states, memory=total) as history:
        for _ in range(scale.rounds + 1):
            rates = {"tier_push": total / _timed(lambda: copy([(one, state) for one in copies]))}
            rates["push"] = total / _timed(lambda: _push_all(history, state, scale.states))
            rates["tier_pop"] = total / _timed(lambda: copy([(target, one) for one in reversed(copies)]))
            rates["pop"] = total / _timed(lambda: _pop_all(history, target))
            found.append(rates)
    return found[1:]


def _state(scale: TrajectoryScale) -> dict[str, Any]:
    noise = np.random.default_rng(1)
    return {name: noise.random(scale.shape, np.float32) for name in ("u", "p")}


def _push_all(history: Trajectory, state: dict[str, Any], states: int, commit: bool = False) -> None:
    for _ in range(states):
        history.push(state)
    if commit:
        history.commit()


def _pop_all(history: Trajectory, into: dict[str, Any] | None = None) -> None:
    while len(history):
        history.pop(into)


def _raw(store: _core.Store, total: int, write: bool) -> float:
    moved, _, seconds = _core.measure_transfers(
        store, write=write, random=False, flush=write, request_bytes=min(REQUEST_BYTES, total // DEPTH), depth=DEPTH,
        span_bytes=total, total_bytes=total, seconds_most=MAX_SECONDS,
    )  # fmt: skip
    return moved / seconds


def _timed(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin
