"""Check that plans of published schemes move the number of bytes in the published formulas."""

from __future__ import annotations

import pytest

from outcrop.plan.plan import Plan, Sizes
from outcrop.plan.problem import Problem
from outcrop.plan.schemes import SCHEMES
from outcrop.plan.tuner import build
from strategies import MACHINE, assumed_rate, make_problem

LEVELS, BLOCK_Y, BLOCK_Z = 64, 256, 320
LARGE = make_problem((2560, 2048, 1024), (1, 1, 1), LEVELS)


def large_plan(scheme: str, problem: Problem = LARGE) -> Plan:
    """Return a plan of one pass over 8 x 8 blocks."""
    sizes = Sizes(LEVELS, 64, 8, block_y=BLOCK_Y, block_z=BLOCK_Z)
    return build(problem, SCHEMES[scheme], sizes, MACHINE, assumed_rate)


def words(plan: Plan) -> float:
    """Return the number of words that a plan moves per cell and step."""
    moved = plan.predicted.bytes_read + plan.predicted.bytes_written
    return moved / plan.problem.item_bytes / (plan.problem.cells * plan.problem.steps)


def overlap(block: int, extent: int) -> float:
    """Return the relative overlap r bt / b of the blocks. The first block is left out, because it has no neighbour
    below it."""
    blocks = -(-(extent - 2) // block)
    return LEVELS / block * (blocks - 1) / blocks


@pytest.mark.parametrize("scheme", ["skewed-full", "skewed-3y", "skewed-5y", "overlapped", "wavefront"])
def test_plans_move_what_the_formulas_say(scheme: str) -> None:
    """Checks that the traffic on a large problem equals the formula within 3 %."""
    nz, ny, _ = LARGE.shape
    y, z = overlap(BLOCK_Y, ny), overlap(BLOCK_Z, nz)
    formula = {
        "skewed-full": 4 * (1 + y) * (1 + z) / LEVELS,
        "skewed-3y": 4 * (1 + z) / LEVELS,
        "skewed-5y": 2 / LEVELS + 4 * z / LEVELS,
        "overlapped": ((1 + 2 * y) * (1 + 2 * z) + 1) / LEVELS,
        "wavefront": 2 / LEVELS + 4 * y / LEVELS,
    }[scheme]
    assert words(large_plan(scheme)) == pytest.approx(formula, rel=0.03)


def test_each_variant_moves_less_than_the_one_before() -> None:
    """Checks that the variant `5y` moves fewer bytes than `3y`, and that `3y` moves fewer bytes than `full`."""
    assert words(large_plan("skewed-5y")) < words(large_plan("skewed-3y")) < words(large_plan("skewed-full"))


@pytest.mark.parametrize("scheme", sorted(SCHEMES))
def test_ranking_formulas_are_close_to_the_plans(scheme: str) -> None:
    """Checks the formulas that the tuner uses to rank sizes. The results of the formulas differ by at most 10 % from
    the bytes and updates of the plan."""
    plan = large_plan(scheme)
    volume = SCHEMES[scheme].volume(LARGE, plan.sizes)
    assert volume.bytes_read == pytest.approx(plan.predicted.bytes_read, rel=0.1)
    assert volume.bytes_written == pytest.approx(plan.predicted.bytes_written, rel=0.1)
    cells = plan.predicted.seconds_update * assumed_rate(plan.sizes)
    assert volume.cell_updates == pytest.approx(cells, rel=0.1)
