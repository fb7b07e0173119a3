"""`outcrop bench tuner`: compare the plan of the tuner with other plans. Also compare the predicted time of the tuner's
plan with its measured time.

For each of three grids and three budgets, the tuner makes the plan that a user would get. The other plans try many
combinations of levels, blocks, slabs and cache tiles. Each plan is run once, with all its passes. All plans use the
same files. The fastest plans are then measured alternately with the tuner's plan.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from outcrop.bench.figures import first_figures, new_folder
from outcrop.bench.rates import smooth_planes
from outcrop.plan.machine import Machine
from outcrop.plan.plan import Plan, Scheme, Sizes
from outcrop.plan.problem import Problem
from outcrop.plan.schemes import SCHEMES
from outcrop.plan.schemes.wavefront import thickest_slab
from outcrop.plan.tuner import MAX_SLABS, build
from outcrop.run.disk.state import State
from outcrop.run.engine import Engine, Prepared, Seeds
from outcrop.run.places import open_state
from outcrop.run.simulation import Simulation
from outcrop.run.simulation import open as open_simulation
from outcrop.units import format_bytes

WITHIN_OF_BEST = 1.05
MAX_PREDICTION_ERROR = 0.15
SECONDS_OF_TURNS = 30.0
"""The approximate time, in seconds, in which the fastest plans of a case are measured alternately."""


@dataclass(frozen=True)
class TunerScale:
    """The scale of the benchmark: the grids (nz, ny, nx), the number of steps, the budgets, and the sizes of the plans
    to try. The budgets are fractions of the size of both arrays."""

    shapes: tuple[tuple[int, int, int], ...]
    steps: int
    shares: tuple[float, ...]
    levels: tuple[int, ...]
    blocks: tuple[int, ...]
    diamonds: tuple[int, ...]
    finalists: int
    turns: int
    max_turns: int


FULL = TunerScale(
    ((512, 512, 512), (4096, 256, 256), (512, 512, 1024)), 48, (0.25, 0.0625, 0.0156), levels=(12, 24, 48),
    blocks=(1, 2, 3), diamonds=(8, 16), finalists=3, turns=3, max_turns=9,
)  # fmt: skip
SMALL = TunerScale(
    ((48, 32, 64),), 8, (0.25,), levels=(4, 8), blocks=(1, 2), diamonds=(2, 4), finalists=1, turns=1, max_turns=1
)


def bench(directory: Path, small: bool = False) -> dict[str, Any]:
    """Run the benchmark, print the figures, and return the figures as plain data. The files of the benchmark are made
    inside `directory` and removed at the end."""
    scale = SMALL if small else FULL
    with first_figures("tuner", small, directory) as figures:
        figures["cases"] = [case for shape in scale.shapes for case in _cases(directory, scale, shape)]
    within = sum(case["to_best"] <= WITHIN_OF_BEST for case in figures["cases"])
    predicted = sum(abs(case["predicted_to_measured"] - 1) <= MAX_PREDICTION_ERROR for case in figures["cases"])
    count = len(figures["cases"])
    print(f"within 5 % of the best: {within} of {count}; predicted within 15 %: {predicted} of {count}")
    return figures


def _cases(directory: Path, scale: TunerScale, shape: tuple[int, int, int]) -> Iterator[dict[str, Any]]:
    with new_folder(directory) as folder:
        where = folder / "run.oc"
        simulation = Simulation("heat7", shape=shape, dtype="float32", directory=where)
        simulation["u"] = lambda z0, z1: smooth_planes(z0, z1, shape)
        del simulation  # the directory is locked until `simulation` is deleted
        for share in scale.shares:
            budget_bytes = int(share * 2 * shape[0] * shape[1] * shape[2] * 4)
            yield _case(where, scale, share, budget_bytes)


def _case(where: Path, scale: TunerScale, share: float, budget_bytes: int) -> dict[str, Any]:
    """Measure the tuner's plan and the plans of the sweep within one budget. Print and return the result."""
    prepared = open_simulation(where, memory=budget_bytes).prepare(scale.steps)
    state = open_state(where)
    own = prepared.plan
    every = _sweep(prepared.problem, prepared.machine, scale, budget_bytes)
    sweep = [plan for plan in every if plan.sizes != own.sizes]
    once = sorted(((_seconds(prepared, state, plan), plan) for plan in sweep), key=lambda pair: pair[0])
    finalists = [own, *(plan for _, plan in once[: scale.finalists])]
    # Short runs are measured more often than long runs, because the times of short runs vary more.
    seconds_turn = once[0][0] * (scale.finalists + 1)
    turns = max(scale.turns, min(scale.max_turns, round(SECONDS_OF_TURNS / seconds_turn)))
    rounds = [[_seconds(prepared, state, plan) for plan in finalists] for _ in range(turns)]
    seconds = [median(column) for column in zip(*rounds, strict=True)]
    best = min(range(len(seconds)), key=seconds.__getitem__)
    case = {
        "shape": list(prepared.problem.shape),
        "steps": scale.steps,
        "share": share,
        "budget_bytes": budget_bytes,
        "plans_swept": len(sweep),
        "turns": turns,
        "chosen": {"scheme": own.scheme, **asdict(own.sizes), "seconds": seconds[0]},
        "best": {"scheme": finalists[best].scheme, **asdict(finalists[best].sizes), "seconds": seconds[best]},
        "predicted_seconds": own.predicted.seconds,
        "predicted_to_measured": own.predicted.seconds / seconds[0],
        "to_best": seconds[0] / seconds[best],
        "swept": [
            [plan.scheme, [plan.sizes.levels, plan.sizes.slab, plan.sizes.block_y, plan.sizes.diamond], seconds]
            for seconds, plan in once
        ],
    }
    print(_line(case), flush=True)
    return case


def _line(case: dict[str, Any]) -> str:
    nz, ny, nx = case["shape"]
    chosen, best = case["chosen"], case["best"]

    def name(one: dict[str, Any]) -> str:
        return f"L {one['levels']}, b {one['slab']}, by {one['block_y'] or ny}, D {one['diamond']}"

    return (
        f"{nx} x {ny} x {nz} in {format_bytes(case['budget_bytes'])}: chosen {chosen['scheme']} {name(chosen)}: "
        f"{chosen['seconds']:.2f} s (predicted {case['predicted_seconds']:.2f}), {case['to_best']:.3f} of the best of "
        f"{case['plans_swept']}: {best['scheme']} {name(best)}: {best['seconds']:.2f} s"
    )


def _sweep(problem: Problem, machine: Machine, scale: TunerScale, budget_bytes: int) -> Iterator[Plan]:
    """Yield the plans of the sweep: wavefronts and overlapped blocks with the sizes of `scale` that fit the budget."""
    seen: set[tuple[str, Sizes]] = set()
    for scheme, sizes in (*_wavefronts(problem, scale, budget_bytes), *_overlapped(problem, scale, budget_bytes)):
        for diamond in scale.diamonds:
            tiled = replace(sizes, diamond=diamond)
            if (scheme.name, tiled) not in seen and scheme.volume(problem, tiled).slabs <= MAX_SLABS:
                seen.add((scheme.name, tiled))
                yield build(problem, scheme, tiled, machine, lambda _: 1e10)


def _wavefronts(problem: Problem, scale: TunerScale, budget_bytes: int) -> Iterator[tuple[Scheme, Sizes]]:
    scheme = SCHEMES["wavefront"]
    for levels in scale.levels:
        for blocks in scale.blocks:
            # The first block in y gets no fringe from another block, so it has more rows than the other blocks. These
            # additional rows are subtracted here.
            rows = problem.shape[1] - problem.radius_y * min(levels, problem.steps)
            sizes = Sizes(min(levels, problem.steps), 1, 0, block_y=0 if blocks == 1 else max(1, -(-rows // blocks)))
            thickest = thickest_slab(problem, sizes.levels, sizes, budget_bytes)
            for slab in {thickest, thickest // 2} - {0}:
                yield scheme, replace(sizes, slab=slab)


def _overlapped(problem: Problem, scale: TunerScale, budget_bytes: int) -> Iterator[tuple[Scheme, Sizes]]:
    scheme = SCHEMES["overlapped"]
    for sizes in scheme.candidates(problem, budget_bytes):
        is_cheap = scheme.volume(problem, sizes).cell_updates < 2 * problem.cells * sizes.levels
        if is_cheap and sizes.levels in scale.levels:
            yield scheme, sizes


def _seconds(prepared: Prepared, state: State, plan: Plan) -> float:
    """Run all passes of `plan` without a commit, and return the wall-clock seconds. The passes alternate between the
    two copies on disk."""
    trial = replace(prepared, plan=plan)
    arrays = state.files(0), state.files(1), state.static_files()
    # Each pass writes the seals of the committed state. Therefore each pass accepts the planes that the previous pass
    # has written.
    sources, _, statics = state.seeds()
    with Engine(trial, *arrays, state.layout, scratch=state.scratch) as engine:
        start = time.perf_counter()
        for index in range(len(plan.passes)):
            engine.run_pass(index, index % 2, seeds=Seeds(sources, sources, statics))
        return time.perf_counter() - start
