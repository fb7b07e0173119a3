"""Check that planning makes few objects and few plans, also for large grids. The tests count objects and plans, so they
do not depend on the speed of the machine."""

from __future__ import annotations

import tracemalloc
from dataclasses import astuple, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcrop.plan.actions import FACES, Copy, Read, Write
from outcrop.plan.cost import predict, works_of
from outcrop.plan.given_sizes import GivenSizes
from outcrop.plan.memory import min_acquisition_memory
from outcrop.plan.plan import Sizes
from outcrop.plan.planner import choose, smallest_budget_bytes
from outcrop.plan.problem import AcquisitionDemand, Problem, SnapshotDemand
from outcrop.plan.ranks import cut_problem, part_of
from outcrop.plan.schemes import EVERY_SCHEME
from outcrop.plan.tuner import build
from outcrop.plan.validate import validate
from rank_cases import KINDS
from strategies import MACHINE, assumed_rate, make_problem


@pytest.mark.parametrize("name", ["wavefront", "split"])
@pytest.mark.parametrize("kind", [2, 3])
def test_the_rows_of_transfers_are_computed_once_for_all_planes(name: str, kind: int) -> None:
    """Checks that a pass over more planes has more transfers, but not more rectangles."""
    transfers, areas = [], []
    for planes in (40, 80):
        fields, updates = KINDS[kind]
        problem = replace(make_problem((planes, 400, 16), (1, 1, 1), 8), fields=fields, updates=updates)
        if name == "split":
            problem = part_of(problem, cut_problem(problem, 2), 0)
        one = EVERY_SCHEME[name].make_pass(problem, 4, Sizes(4, 2, diamond=0, block_y=48))
        moved = [one for one in one.actions if isinstance(one, Read | Write | Copy)]
        moved = [one for one in moved if isinstance(one, Copy) or one.array not in FACES]
        transfers.append(len(moved))
        areas.append(len({id(one.area) for one in moved}))
    assert transfers[1] > 1.5 * transfers[0]
    assert areas[1] == areas[0]


def test_few_plans_are_made_if_their_passes_have_many_slabs() -> None:
    """Checks that the tuner makes the plans of only two candidates if each plan has many slabs."""

    def plans_made(problem: Problem) -> int:
        considered = choose(problem, MACHINE, 10 << 20, "wavefront", assumed_rate).considered
        return len({(one.sizes.levels, one.sizes.slab, one.sizes.block_y) for one in considered})

    short = make_problem((400, 256, 256), (1, 1, 1), 20)
    assert plans_made(short) >= 8
    assert plans_made(replace(short, shape=(60_000, 256, 256))) == 2


def test_a_run_of_many_passes_needs_little_memory_for_planning() -> None:
    """Checks that the memory for planning is small compared with the promised 150 MiB, also for many passes."""
    problem = make_problem((24, 24, 24), (1, 1, 1), 200_000)
    tracemalloc.start()
    plan = choose(problem, MACHINE, smallest_budget_bytes(problem), "auto", assumed_rate, GivenSizes(bt=1)).plan
    validate(plan)
    str(plan)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(plan.passes) == 200_000
    assert peak < 15 << 20


@given(st.integers(1, 300), st.integers(1, 12), st.booleans(), st.integers(0, 60))
def test_the_cost_of_equal_passes_is_the_sum_of_their_costs(steps: int, bt: int, keeps: bool, every: int) -> None:
    """Checks the cost of a plan against the cost that is predicted pass by pass, with and without snapshots."""
    fields, updates = KINDS[1]
    problem = replace(make_problem((24, 24, 24), (1, 1, 1), steps), fields=fields, updates=updates)
    if every:
        box = SnapshotDemand(every, fields=1, planes=24, rows=24, row_bytes=96)
        problem = replace(problem, acquisition=AcquisitionDemand((box,)))
    acquisition = min_acquisition_memory(problem.acquisition, bt)
    sizes = Sizes(min(bt, steps), 4, 2, keeps_statics=keeps)
    plan = build(problem, EVERY_SCHEME["wavefront"], sizes, MACHINE, assumed_rate, acquisition)
    assert sum(one.levels for one in plan.passes) == steps
    works = works_of(problem, plan.passes)
    one_by_one = predict(problem, works, sizes, plan.window, MACHINE, assumed_rate, plan.acquisition)
    for found, expected in zip(astuple(plan.predicted), astuple(one_by_one), strict=True):
        assert found == pytest.approx(expected, rel=1e-9)
