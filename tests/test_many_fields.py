"""Check runs with many fields. The runs have more fields than a set of the first-level cache has lines. The rings of
these fields begin at different offsets in a page, to avoid conflicts in the cache.
"""

from pathlib import Path

import numpy as np
import pytest

import outcrop
from oracle import advance_fields
from outcrop.bench.stencils import CASES
from outcrop.plan.memory import RINGS_IN_STEP
from outcrop.plan.planner import smallest_budget_bytes

STEPS = 5


@pytest.mark.parametrize("name", ["elastic4", "d3q19", "d2q9"])
@pytest.mark.parametrize("times_smallest", [1, 3])
def test_out_of_core_gives_the_oracles_bits(tmp_path: Path, name: str, times_smallest: int) -> None:
    """Checks that a run with shifted rings gives the bits of the oracle, in the smallest window and in a larger window.
    """
    (case,) = [one for one in CASES if one.name == name]
    shape = (40, 18, 70) if len(case.plane) == 2 else (60, 70)
    values = {field: planes(0, shape[0]) for field, planes in case.values(shape).items()}
    problem = outcrop.Simulation(name, shape=shape, directory=tmp_path / "none").plan(STEPS).problem
    assert problem.rings > RINGS_IN_STEP
    budget = times_smallest * smallest_budget_bytes(problem)
    simulation = outcrop.Simulation(name, shape=shape, directory=tmp_path / "run.oc", memory=budget)
    simulation.assign(values)
    simulation.run(STEPS, progress="none")
    spread = {field: cells if cells.ndim == 3 else cells[:, None] for field, cells in values.items()}
    for field, want in advance_fields(case.stencil, spread, {}, STEPS).items():
        assert np.array_equal(np.asarray(simulation[field][:]).reshape(want.shape), want), field
