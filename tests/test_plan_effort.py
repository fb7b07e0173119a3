"""Check that planning makes few objects and few plans, also for large grids. The tests count objects and plans, so they
do not depend on the speed of the machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outcrop.plan.actions import FACES, Copy, Read, Write
from outcrop.plan.plan import Sizes
from outcrop.plan.planner import choose
from outcrop.plan.problem import Problem
from outcrop.plan.ranks import cut_problem, part_of
from outcrop.plan.schemes import EVERY_SCHEME
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
