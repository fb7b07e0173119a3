"""Check that the budget includes the memory for points and for snapshots that are not written yet."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import outcrop as oc
from outcrop.errors import BudgetError
from outcrop.plan.given_sizes import FREE, GivenSizes
from outcrop.plan.planner import choose, smallest_budget_bytes
from outcrop.plan.problem import AcquisitionDemand, Problem, SnapshotDemand
from outcrop.plan.validate import validate
from strategies import MACHINE, assumed_rate, examples, problems

BOXES = st.builds(
    SnapshotDemand,
    every=st.sampled_from([1, 3, 50]),
    fields=st.integers(1, 2),
    planes=st.integers(1, 300),
    rows=st.sampled_from([1, 7, 400]),
    row_bytes=st.sampled_from([4, 1000, 4096]),
    initial=st.booleans(),
)
DEMANDS = st.builds(
    AcquisitionDemand,
    snapshots=st.lists(BOXES, max_size=2).map(tuple),
    first_step=st.sampled_from([0, 5]),
    point_bytes=st.sampled_from([0, 5000]),
    step_bytes=st.sampled_from([0, 1, 3000, 100_000]),
)


@settings(max_examples=examples(60), deadline=None)
@given(problems(), DEMANDS, st.integers(0, 1 << 21), st.sampled_from([None, 1, 3]), st.sampled_from(["auto", "naive"]))
def test_plans_and_taps_fit_the_budget_together(
    plain: Problem, demand: AcquisitionDemand, more_bytes: int, bt: int | None, scheme: str
) -> None:
    """Checks that there is a legal plan for the minimum budget and for each larger budget. A smaller budget is refused,
    and the message gives the minimum.
    """
    problem = replace(plain, acquisition=demand)
    sizes = GivenSizes(bt=bt) if bt and scheme == "auto" else FREE
    smallest = smallest_budget_bytes(problem, scheme, sizes)
    for budget in (smallest, smallest + more_bytes):
        plan = choose(problem, MACHINE, budget, scheme, assumed_rate, sizes).plan
        validate(plan, budget_bytes=budget)
        steps = max(one.levels for one in plan.passes) // problem.stages
        assert plan.memory_bytes == plan.window.bytes + plan.acquisition.staging.bytes + demand.point_bytes + (
            demand.step_bytes * steps
        )
    with pytest.raises(BudgetError, match=f"at least {-(-smallest // 1024)} KiB"):
        choose(problem, MACHINE, smallest - 1, scheme, assumed_rate, sizes)


CHILD = """
import sys
import outcrop as oc
oc.open(sys.argv[1]).run(20, progress="none").save(sys.argv[2])
"""


def test_peak_memory_with_much_to_add_to_record_and_to_keep(tmp_path: Path) -> None:
    """Checks the peak memory of a run whose sources have 160 MB of values. A pass may hold only a few steps of these
    values.

    The run is a separate process, and the operating system measures its peak.
    """
    budget, shape = 16 << 20, (64, 64, 64)
    z, y, x = np.meshgrid(*[np.linspace(5.2, 58.7, n) for n in (16, 16, 16)], indexing="ij")
    points = np.stack([z.ravel(), y.ravel(), x.ravel()], axis=1)
    sim = oc.Simulation(
        oc.stencils.heat(), shape, directory=tmp_path / "run.oc", memory=budget,
        sources=[oc.Source("u", points, np.ones((5000, len(points))))],
        receivers=[oc.Receivers("all", "u", points[::4])],
        snapshots=oc.Snapshots(4),
    )  # fmt: skip
    sim["u"] = 0.0
    plan = sim.plan(20).plan
    assert plan.window.bytes < plan.memory_bytes <= budget
    subprocess.run([sys.executable, "-c", CHILD, tmp_path / "run.oc", tmp_path / "report.json"], check=True)
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["window_bytes"] + report["taps_bytes"] == report["predicted"]["memory_bytes"] <= budget
    assert budget < report["memory_peak_bytes"] <= budget + (150 << 20)
    total = oc.open(tmp_path / "run.oc")["u"][...].astype(np.float64).sum()
    assert total == pytest.approx(20 * len(points), rel=1e-3)


@pytest.mark.parametrize(
    ("parts", "text"),
    [("receivers", "points"), ("snapshots", "snapshots"), ("receivers snapshots", "snapshots and points")],
)
def test_a_too_small_budget_names_the_parts_of_this_run(parts: str, text: str, tmp_path: Path) -> None:
    """Checks that the message names snapshots or points only if the run has some."""
    points = np.random.default_rng(0).uniform(2, 12, (1000, 3))
    options: dict[str, Any] = {"receivers": [oc.Receivers("line", "u", points)], "snapshots": [oc.Snapshots(1)]}
    given_parts = {one: options[one] for one in parts.split()}
    with pytest.raises(BudgetError, match=rf" KiB of this for {text}$"):
        oc.Simulation("heat7", (16, 16, 16), directory=tmp_path / "a.oc", memory="30KiB", **given_parts)
