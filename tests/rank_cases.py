"""Make problems and plans of several ranks for tests, and check whether the proof accepts the plans."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import strategies as st

from cell_run import run_pass
from damage import damage, same_verdict
from outcrop.errors import InputError
from outcrop.plan.actions import Action
from outcrop.plan.contents import IllegalPlan
from outcrop.plan.plan import Sizes
from outcrop.plan.problem import AcquisitionDemand, FieldPlan, Operand, StagePlan
from outcrop.plan.ranks import RankPlans, cut_planes, cut_problem, part_of, plan_ranks, validate_ranks
from outcrop.plan.schemes import EVERY_SCHEME, SCHEMES
from outcrop.plan.validate import validate_pass
from strategies import MACHINE, assumed_rate, make_problem

UPDATED, KEPT, READ, LATER = (
    FieldPlan(),
    FieldPlan(is_double=False, flips=False),
    FieldPlan(is_static=True, is_double=False, flips=False),
    FieldPlan(has_previous=True),
)
HERE = partial(Operand, beside=False)
KINDS: list[tuple[tuple[FieldPlan, ...], tuple[StagePlan, ...]]] = [
    ((UPDATED,), (StagePlan((Operand(0),), (0,)),)),
    ((UPDATED, READ), (StagePlan((Operand(0), HERE(1)), (0,)),)),
    ((LATER, READ, READ), (StagePlan((Operand(0), HERE(0, 1), Operand(1), HERE(2)), (0,)),)),
    (
        (KEPT, KEPT, KEPT),
        (StagePlan((HERE(0), HERE(1), Operand(2)), (0, 1)), StagePlan((HERE(2), Operand(0), Operand(1)), (2,))),
    ),
]
"""The fields and stages of four problems: with one field, with a static field, of second order in time, and with two
stages."""
MIXED: list[tuple[tuple[FieldPlan, ...], tuple[StagePlan, ...]]] = [
    ((UPDATED, KEPT), (StagePlan((Operand(0), HERE(1)), (0, 1)),)),
    (
        (LATER, UPDATED, READ),
        (StagePlan((Operand(0), Operand(2)), (0,)), StagePlan((Operand(0), Operand(0, 1), Operand(1)), (1,))),
    ),
]
"""The fields and stages of two problems. The first problem has one stage that updates fields with one copy and fields
with two copies. The second problem has two stages and previous values."""


@st.composite
def rank_plans(
    draw: st.DrawFn,
    kinds: Sequence[tuple[tuple[FieldPlan, ...], tuple[StagePlan, ...]]] = KINDS,
    max_ranks: int = 6,
    least_cells: int = 0,
) -> RankPlans:
    """Generate random plans of several ranks on small grids, with all boundaries. `kinds` has fields and stages. If
    `least_cells` is not 0, the grid has at least this number of cells inside the rim along x and z. A third of the
    grids are divided along z. Some of these grids are not divided along y."""
    radii = draw(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 1)))
    ranks, steps = draw(st.integers(2, max_ranks)), draw(st.integers(1, 5))
    parts_z = draw(st.sampled_from([1, 1, 1, 1, 2, 3]))
    ranks = draw(st.integers(1, 3)) if parts_z > 1 else ranks
    some, updates = draw(st.sampled_from(kinds))
    least = max(1, radii[1] * len(updates))
    ny = ranks * draw(st.integers(least, draw(st.sampled_from([9, 24])))) + draw(st.integers(0, ranks - 1))
    nz, nx = (draw(st.integers(max(1, least_cells), 14)) + 2 * radii[place] * (least_cells > 0) for place in (0, 2))
    pair = st.just(("periodic", "periodic")) | st.tuples(*[st.sampled_from(["fixed", "mirror"])] * 2)
    nz += (parts_z > 1) * parts_z * max(1, radii[0] * (len(updates) + 1))
    problem = replace(
        make_problem((nz, ny, nx), radii, steps),
        fields=some, updates=updates, sides=draw(st.tuples(pair, pair, pair)),
    )  # fmt: skip
    # groups of cells that no cut divides make the parts unequal
    groups = ((0, nz, draw(st.integers(1, 4))),) if parts_z > 1 else ()
    with contextlib.suppress(InputError):
        cut_planes(grouped := replace(problem, acquisition=AcquisitionDemand(groups_z=groups)), parts_z)
        problem = grouped
    cut, planes = cut_problem(problem, ranks), cut_planes(problem, parts_z)
    most = min(problem.levels, part_of(problem, cut, 0, planes).max_levels) // problem.stages
    sizes = Sizes(problem.stages * draw(st.integers(1, most)), draw(st.integers(1, nz + 3)), diamond=2)
    scheme = SCHEMES[draw(st.sampled_from(["wavefront", "naive"]))]
    if scheme.name == "wavefront":
        sizes = replace(sizes, block_y=draw(block_rows(radii[1], ny // ranks)))
    return plan_ranks(problem, cut, scheme, sizes, MACHINE, assumed_rate, planes)


@st.composite
def split_plans(
    draw: st.DrawFn,
    kinds: Sequence[tuple[tuple[FieldPlan, ...], tuple[StagePlan, ...]]] = (*KINDS, *MIXED),
    max_ranks: int = 8,
    least_cells: int = 0,
    least_radius: int = 0,
) -> RankPlans:
    """Generate random plans of several ranks with split tiling on small grids, with all boundaries."""
    radii = draw(st.tuples(st.integers(0, 2), st.integers(least_radius, 2), st.integers(0, 1)))
    ranks, steps = draw(st.integers(2, max_ranks)), draw(st.integers(1, 5))
    some, updates = draw(st.sampled_from(kinds))
    least = max(1, 2 * radii[1] * len(updates) * draw(st.integers(1, min(2, steps))))
    max_rows = max(least, 9) + draw(st.sampled_from([0, 24]))
    ny = ranks * draw(st.integers(least, max_rows)) + draw(st.integers(0, ranks - 1))
    nz, nx = (draw(st.integers(max(1, least_cells), 20)) + 2 * radii[place] * (least_cells > 0) for place in (0, 2))
    pair = st.just(("periodic", "periodic")) | st.tuples(*[st.sampled_from(["fixed", "mirror"])] * 2)
    problem = replace(
        make_problem((nz, ny, nx), radii, steps),
        fields=some, updates=updates, sides=draw(st.tuples(pair, pair, pair)),
    )  # fmt: skip
    cut, scheme = cut_problem(problem, ranks), EVERY_SCHEME["split"]
    most = min(problem.levels, scheme.max_levels(part_of(problem, cut, 0))) // problem.stages
    sizes = Sizes(problem.stages * draw(st.integers(1, most)), draw(st.integers(1, nz + 3)), diamond=2)
    sizes = replace(sizes, block_y=draw(block_rows(radii[1], ny // ranks)))
    return plan_ranks(problem, cut, scheme, sizes, MACHINE, assumed_rate)


def block_rows(radius: int, rows: int) -> st.SearchStrategy[int]:
    """Generate the number of rows of a block, for ranks with `rows` rows. In half of the cases, the number is 0, which
    means that all rows are one block."""
    smallest = max(1, radius)
    return st.just(0) | st.integers(smallest, max(smallest, rows // 2))


def changed(every: RankPlans, rank: int, number: int, actions: Sequence[Action]) -> RankPlans:
    """Return a copy of the plans in which pass `number` of a rank has other actions."""
    plan = every.plans[rank]
    passes = list(plan.passes)
    passes[number] = replace(passes[number], actions=tuple(actions))
    plans = list(every.plans)
    plans[rank] = replace(plan, passes=tuple(passes))
    return replace(every, plans=tuple(plans))


def rejected(every: RankPlans, rank: int, number: int, actions: Sequence[Action]) -> None:
    """Check that the proof rejects the plans if pass `number` of a rank has the actions `actions`."""
    with pytest.raises(IllegalPlan):
        validate_ranks(changed(every, rank, number, actions))


def same_verdicts_of_one_rank(every: RankPlans, seed: int) -> None:
    """Check that the proof and the symbolic run accept the same passes of a rank, for legal and for damaged passes."""
    rng = random.Random(seed)
    plan = rng.choice(every.plans)
    one = rng.choice(plan.passes)
    for damaged in (one, *(damage(rng, one) for _ in range(6))):
        same_verdict(damaged, lambda pass_: validate_pass(plan.problem, pass_, plan.window),
                     lambda pass_: run_pass(plan.problem, pass_, plan.window))  # fmt: skip
