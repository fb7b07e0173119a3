"""Check the plans that the ranks of a run choose together: the same scheme, steps, slabs and blocks on all ranks, also
if the parts of the ranks have different numbers of rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import outcrop as oc
from outcrop.errors import BudgetError
from outcrop.plan.planner import smallest_budget_bytes
from outcrop.plan.rank_planner import PlannedRank, choose_together
from outcrop.plan.ranks import RankPlans, cut_planes, cut_problem, part_of, parts_of, validate_ranks
from outcrop.run.ranks.group import RankGroup
from rank_processes import ranks
from strategies import MACHINE, assumed_rate, make_problem


def prepared(
    group: RankGroup, where: Path, shape: tuple[int, int, int], steps: int, memory: str, scheme: str = "auto"
) -> tuple[str, int, int, int]:
    """Prepare a run of heat7 on all ranks. Return the scheme, the levels, the slab and the blocks of the plan."""
    sim = oc.Simulation(
        "heat7", shape=shape, directory=where, comm=group, threads=1, memory=memory, scheme=scheme
    )  # fmt: skip
    sim["u"] = 0.0
    plan = sim.prepare(steps).plan
    return plan.scheme, plan.sizes.levels, plan.sizes.slab, plan.sizes.block_y


@pytest.mark.parametrize(
    ("shape", "steps", "memory", "scheme"),
    [((300, 31, 96), 1, "1MiB", "auto"), ((300, 31, 96), 4, "1MiB", "naive")],
)
def test_ranks_with_unequal_rows_have_the_same_naive_plan(
    shape: tuple[int, int, int], steps: int, memory: str, scheme: str, tmp_path: Path
) -> None:
    """Checks runs of two ranks with 15 and 16 rows. The scheme must have the same slabs on both ranks, although thicker
    slabs fit the memory of the rank with fewer rows."""
    one, other = ranks(2, prepared, tmp_path, shape, steps, memory, scheme)
    assert one == other


def test_ranks_with_unequal_rows_have_the_same_groups_of_rows(tmp_path: Path) -> None:
    """Checks a run of two ranks with 63 and 64 rows. Only 64 rows have eight groups of rows for direct I/O. Both ranks
    must divide their rows into the same blocks of whole groups."""
    one, other = ranks(2, prepared, tmp_path, (100, 127, 384), 30, "800KiB", "wavefront")
    assert one == other and one[3] > 0


@pytest.mark.parametrize(("parts_z", "side"), [(1, "fixed"), (1, "periodic"), (3, "fixed")])
def test_ranks_with_equal_parts_share_one_problem(parts_z: int, side: str) -> None:
    """Checks the problems of all ranks. There are only a few different problems, although there are many ranks."""
    problem = make_problem((12, 500, 9), (1, 1, 1), 8)
    problem = replace(problem, sides=(problem.sides[0], (side, side), problem.sides[2]))
    cut, planes = cut_problem(problem, 400), cut_planes(problem, parts_z)
    parts = parts_of(problem, cut, planes)
    assert parts == [part_of(problem, cut, rank, planes) for rank in range(400 * parts_z)]
    assert len({id(part) for part in parts}) == len(set(parts)) <= 6 * parts_z


@pytest.mark.parametrize(
    ("shape", "radius", "budget"), [((40, 58, 300), 2, 300_000), ((9, 31, 768), 1, 400_000)]
)
def test_split_tiling_keeps_equal_parts_if_moved_parts_need_more_memory(
    shape: tuple[int, int, int], radius: int, budget: int
) -> None:
    """Checks that ranks with little memory keep equal parts. The memory is enough for these parts, but not for parts
    with equal work. The error for an even smaller memory must name the minimum for equal parts."""
    problem = make_problem(shape, (1, radius, 1), 8)
    cut = cut_problem(problem, 2)
    members = [PlannedRank(rank, MACHINE, budget, lambda _: assumed_rate) for rank in range(2)]
    best = choose_together(problem, cut, members, list, "split", may_move=True)[0]
    assert best.cut == cut
    validate_ranks(RankPlans(problem, cut, tuple(choice.plan for choice in best.plans)), budget)
    least = max(smallest_budget_bytes(one.part(problem, cut), "split") for one in members)
    with pytest.raises(BudgetError, match=rf"at least {-(-least // 1024)} KiB"):
        choose_together(
            problem, cut, [replace(one, budget_bytes=least - 1) for one in members], list, "split", may_move=True
        )
