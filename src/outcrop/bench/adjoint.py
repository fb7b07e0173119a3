"""`outcrop bench adjoint`: compare adjoint runs with their forward runs.

Each repeat has a forward run and an adjoint run with the same grid, steps and memory. The forward run and the adjoint
run stream the grid from the disk. The first repeat does not count, because the kernels are compiled during the first
repeat.

If a stencil updates only one field, each repeat also computes gradients with respect to an input. The gradients are
computed with three different histories: every fourth state, all states, and the exact history that the planner chooses.
The forward run writes the states of a history, and the adjoint run reads these states. For each history, the table has
a ratio: the time of the forward run and the adjoint run with this history, divided by the time of the two runs without
states. An adjoint run without states computes no gradient with respect to an input, so it has fewer updates than an
adjoint run with states. The column "sums" shows the ratio for an adjoint run that computes all updates of the gradient,
but reads the same state in each step. Such a run needs no history. If the disk or the memory has no room for a
gradient, the benchmark leaves this gradient out. A note gives the reason.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from outcrop.bench.core import share_of
from outcrop.bench.figures import first_figures, new_folder, require_updates, table_head, table_row
from outcrop.errors import InputError
from outcrop.language.adjoint import adjoint_of
from outcrop.language.library import find_stencil
from outcrop.language.stencil import Stencil
from outcrop.run.options import History, RunOptions
from outcrop.run.report import Report
from outcrop.run.simulation import Simulation

WAYS: dict[str, int | str] = {"every": 4, "all": "all", "auto": "auto"}
"""The histories with which gradients are computed. In the figures, the name of a history is "gradient_" followed by its
key."""
DEFAULT = ("heat2", "acoustic8", "acoustic8_sponge", "elastic4", "maxwell")


@dataclass(frozen=True)
class AdjointScale:
    """The scale of the benchmark: the shape of the grid, the number of steps of each run, the number of repeats, and
    the memory budget. `share` is the budget divided by the size of two copies of the state. A stencil with fewer than
    three axes uses only the first axes of the shape."""

    shape: tuple[int, int, int]
    steps: int
    repeats: int
    share: float = 0.0625


FULL = AdjointScale((384, 384, 384), 32, 5)
SMALL = AdjointScale((24, 24, 24), 3, 1)


def bench(
    directory: Path,
    small: bool = False,
    only: str | None = None,
    memory: str | None = None,
    steps: int | None = None,
    size: tuple[int, int, int] | None = None,
    turns: int | None = None,
) -> dict[str, Any]:
    """Measure the rates of the runs, print the figures, and return the figures as plain data. `only` has names of
    stencils, separated by commas, and `memory` is a share such as "25%". `size` is (nx, ny, nz). `turns` is the number
    of repeats.

    The runs of the benchmark are in a new folder inside `directory`. This folder is removed at the end. Raises
    InputError for a stencil whose adjoint needs states of the forward run.
    """
    scale = SMALL if small else FULL
    share = scale.share if memory is None else share_of(memory)
    shape = size[::-1] if size else scale.shape
    scale = AdjointScale(shape, steps or scale.steps, turns or scale.repeats, share)
    stencils = [find_stencil(name.strip()) for name in (only.split(",") if only else DEFAULT)]
    for stencil in stencils:
        require_updates(stencil, scale.shape[: stencil.ndim])
        if adjoint_of(stencil).history:
            raise InputError(f"bench adjoint: {stencil.name} is not linear, so its adjoint needs states; leave it out")
    with first_figures("adjoint", small, directory) as figures:
        head = ["stencil", "forward Gcell/s", "adjoint Gcell/s", "adjoint / forward", "updates alone"]
        for line in table_head([*head, "sums", "gradient, every 4th", "gradient, all", "gradient, auto"]):
            print(line)
        figures |= {"shape": list(scale.shape), "steps": scale.steps, "share": scale.share, "stencils": {}}
        for stencil in stencils:
            with new_folder(directory) as folder:
                found = _compare(stencil, scale, folder)
            figures["stencils"][stencil.name] = found
            rates = (f"{median(found[way]) / 1e9:.2f}" for way in ("forward", "adjoint"))
            names = "ratio", "ratio_updates", "sums", *(f"gradient_{way}" for way in WAYS)
            ratios = (f"{found[name]:.2f}" if name in found else "" for name in names)
            print(table_row([stencil.name, *rates, *ratios]), flush=True)
            for note in found["notes"]:
                print(f"note: {stencil.name}, {note}", flush=True)
        return figures


def _compare(stencil: Stencil, scale: AdjointScale, folder: Path) -> dict[str, Any]:
    """Return a dictionary with the rates of all repeats in cells per second, and with the medians of the ratios."""
    shape = scale.shape[: stencil.ndim]
    pairs = list(zip(stencil.fields, stencil.storage, strict=True))
    values = sum(0 if one.is_static else one.history for _, one in pairs)
    budget_bytes = int(scale.share * 2 * values * 4 * np.prod(shape, dtype=np.int64))
    options = RunOptions(stencil, shape, "float32", str(folder / "run.oc"), max(budget_bytes, 4 << 20), unstable=True)

    def halves(z0: int, z1: int) -> np.ndarray[Any, Any]:
        return np.full((z1 - z0, *shape[1:]), 0.5, np.float32)

    name = next(field.name for field, storage in pairs if not storage.is_static)
    static = [field.name for field, storage in pairs if storage.is_static]
    wrt = [*static, *(one.name for one in stencil.parameters)][:1]
    has_gradients = bool(wrt) and sum(not storage.is_static for _, storage in pairs) == 1
    gradients: dict[str, list[float]] = {f"gradient_{way}": [] for way in WAYS if has_gradients}
    notes = list[str]()
    sums: list[float] = []

    def both(history: History | None, by: Sequence[str]) -> tuple[Report, Report]:
        # When the planner chooses a history, the disk space of the previous adjoint run must be free. So this run is
        # removed.
        shutil.rmtree(folder / "adjoint.oc", ignore_errors=True)
        run = Simulation(replace(options, force=True))
        run.assign(dict.fromkeys(static, halves))
        run.assign({name: "gaussian"})
        there = run.run(scale.steps, progress="none", history=history)
        back = run.adjoint({name: "gaussian"}, by, folder / "adjoint.oc", force=True).run(progress="none")
        return there, back

    def without_history() -> Report:
        made = adjoint_of(stencil, wrt).stencil
        run = Simulation(replace(options, stencil=made, directory=str(folder / "adjoint.oc"), force=True))
        fields = zip(made.fields, made.storage, strict=True)
        run.assign({one.name: halves for one, storage in fields if storage.is_static})
        return run.run(scale.steps, progress="none")

    pairs_of_runs: list[tuple[Report, Report]] = []
    for _ in range(scale.repeats + 1):
        there, back = both(None, [name])
        pairs_of_runs.append((there, back))
        if has_gradients:
            sums.append((there.seconds + without_history().seconds) / (there.seconds + back.seconds))
        for way, ratios_of_way in list(gradients.items()):
            try:
                seconds = sum(one.seconds for one in both(History(WAYS[way.removeprefix("gradient_")]), wrt))
            except InputError as error:  # the disk or the memory has no room for this gradient
                del gradients[way]
                notes.append(f"{way}: {error}")
                continue
            ratios_of_way.append(seconds / (there.seconds + back.seconds))
    figures: dict[str, Any] = {"notes": notes}
    for suffix, rate_of in (("", lambda one: one.cell_updates_per_second), ("_updates", _update_rate)):
        forward, adjoint = ([rate_of(one) for one in runs[1:]] for runs in zip(*pairs_of_runs, strict=True))
        figures |= {f"forward{suffix}": forward, f"adjoint{suffix}": adjoint}
        figures[f"ratio{suffix}"] = median(a / f for a, f in zip(adjoint, forward, strict=True))
    figures |= {"sums": median(sums[1:])} if sums else {}
    return figures | {way: median(every[1:]) for way, every in gradients.items()}


def _update_rate(report: Report) -> float:
    return report.cells_updated / report.seconds_update
