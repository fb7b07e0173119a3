"""Check plans of several ranks: each plan is legal together with the plans of the other ranks, and each damaged plan is
rejected."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cell_run import run_pass
from damage import damage, same_verdict, shrink
from outcrop.errors import InputError
from outcrop.plan.actions import FACES, Action, Block, Commit, Copy, Read, Update, Write
from outcrop.plan.contents import IllegalPlan
from outcrop.plan.plan import Sizes
from outcrop.plan.problem import Problem
from outcrop.plan.ranks import RankPlans, cut_problem, cut_rows, plan_ranks, rows_of, validate_ranks
from outcrop.plan.schemes import SCHEMES
from outcrop.plan.validate import validate, validate_pass
from rank_cases import KINDS, rank_plans
from strategies import MACHINE, assumed_rate, examples, make_problem


@settings(max_examples=examples(100), deadline=None)
@given(rank_plans())
def test_plans_of_all_ranks_are_legal_together(every: RankPlans) -> None:
    """Checks plans of random problems with all kinds of boundaries, for 2 to 6 ranks."""
    validate_ranks(every)


@settings(max_examples=examples(60), deadline=None)
@given(rank_plans(max_ranks=3), st.integers(0, 2**32 - 1))
def test_verdicts_of_one_rank_are_those_of_the_run_cell_by_cell(every: RankPlans, seed: int) -> None:
    """Checks that the proof and the symbolic run accept the same passes of a rank, for legal and for damaged passes."""
    rng = random.Random(seed)
    plan = rng.choice(every.plans)
    one = rng.choice(plan.passes)
    for damaged in (one, *(damage(rng, one) for _ in range(6))):
        same_verdict(damaged, lambda pass_: validate_pass(plan.problem, pass_, plan.window),
                     lambda pass_: run_pass(plan.problem, pass_, plan.window))  # fmt: skip


def rejected(every: RankPlans, rank: int, number: int, actions: Sequence[Action]) -> None:
    """Check that the proof rejects the plans if one pass of one rank has other actions."""
    plan = every.plans[rank]
    passes = list(plan.passes)
    passes[number] = replace(passes[number], actions=tuple(actions))
    plans = list(every.plans)
    plans[rank] = replace(plan, passes=tuple(passes))
    with pytest.raises(IllegalPlan):
        validate_ranks(replace(every, plans=tuple(plans)))


@settings(max_examples=examples(60), deadline=None)
@given(rank_plans(kinds=KINDS[:1], least_cells=1), st.data())
def test_a_dropped_or_shrunk_action_is_rejected(every: RankPlans, data: st.DataObject) -> None:
    """Checks that the proof of all ranks rejects plans if one rank leaves out an action, or if an action has one plane
    or one row less."""
    rank, number, actions = chosen_pass(every, data)
    index = data.draw(st.integers(every.problem.radius_y == 0, len(actions) - 1))  # without halos, no Block is needed
    rejected(every, rank, number, [*actions[:index], *actions[index + 1 :]])
    if not isinstance(actions[index], Block | Commit):
        smaller = shrink(actions[index], data.draw(st.booleans()), data.draw(st.booleans()))
        rejected(every, rank, number, [*actions[:index], smaller, *actions[index + 1 :]])


@settings(max_examples=examples(60), deadline=None)
@given(rank_plans(least_cells=1), st.data())
def test_damaged_exchanges_are_rejected(every: RankPlans, data: st.DataObject) -> None:
    """Checks plans of all kinds of fields. The proof rejects them if a rank leaves out an exchange or exchanges less.
    It also rejects a send before the read of its rows, and a receive after the update that reads the rows."""
    rank, number, actions = chosen_pass(every, data)
    faces = [index for index, one in enumerate(actions) if isinstance(one, Read | Write) and one.array in FACES]
    if not faces:
        return
    index = data.draw(st.sampled_from(faces))
    action, rest = actions[index], [*actions[:index], *actions[index + 1 :]]
    rejected(every, rank, number, rest)
    smaller = shrink(action, data.draw(st.booleans()), data.draw(st.booleans()))
    rejected(every, rank, number, [*rest[:index], smaller, *rest[index:]])
    if isinstance(action, Write):
        rejected(every, rank, number, [rest[0], action, *rest[1:]])
    used = [at for at, one in enumerate(rest) if uses(every.plans[rank].problem, action, one)]
    if isinstance(action, Read) and action.array == "faces" and used:  # updates may read fewer static rows
        rejected(every, rank, number, [*rest[: used[0] + 1], action, *rest[used[0] + 1 :]])


def chosen_pass(every: RankPlans, data: st.DataObject) -> tuple[int, int, list[Action]]:
    """Choose a pass of a rank that updates some of its own rows. Return the rank, the number of the pass, and its
    actions."""
    updating = [rank for rank, one in enumerate(every.plans) if one.problem.own_rows[0] < one.problem.own_rows[1]]
    assume(updating)
    rank = data.draw(st.sampled_from(updating))
    number = data.draw(st.integers(0, len(every.plans[rank].passes) - 1))
    return rank, number, list(every.plans[rank].passes[number].actions)


def uses(problem: Problem, face: Read | Write, action: Action) -> bool:
    """Return True if `action` updates a plane of the received rows at level 1."""
    first, end = max(face.z0, problem.first_plane), min(face.z1, problem.end_plane)
    return isinstance(action, Update) and max(action.zeta0, first) < min(action.zeta1, end)


def test_messages_in_another_order_are_rejected() -> None:
    """Checks that the proof rejects plans of two ranks if one rank sends the same rows in another order. The plan of
    this rank alone is legal."""
    problem = replace(make_problem((12, 16, 9), (1, 1, 1), 2), fields=KINDS[1][0], updates=KINDS[1][1])
    every = plan_ranks(problem, cut_problem(problem, 2), SCHEMES["wavefront"], Sizes(2, 3, 2), MACHINE, assumed_rate)
    validate_ranks(every)
    actions = every.plans[0].passes[0].actions
    sends = [index for index, one in enumerate(actions) if isinstance(one, Write) and one.array in FACES]
    (first, second), rest = sends[:2], list(actions)
    action = rest.pop(first)
    rest.insert(second, action)
    damaged = replace(every.plans[0], passes=(replace(every.plans[0].passes[0], actions=tuple(rest)),))
    validate(damaged)
    with pytest.raises(IllegalPlan, match=r"rank 0 sends .*static_faces.* rank 1 receives .*faces"):
        validate_ranks(replace(every, plans=(damaged, every.plans[1])))


def test_ranks_that_wait_for_each_other_are_rejected() -> None:
    """Checks plans in which each rank sends some planes only after an action that waits for the same planes of the
    other rank. The plan of each rank alone is legal, and the order of the messages is right."""
    problem = make_problem((30, 16, 9), (1, 1, 1), 2)
    every = plan_ranks(problem, cut_problem(problem, 2), SCHEMES["wavefront"], Sizes(2, 3, 2), MACHINE, assumed_rate)
    plans = []
    for plan in every.plans:
        actions = plan.passes[0].actions
        sends = [one for one in actions if isinstance(one, Write) and one.array == "faces"]
        waiting = next(at for at, one in enumerate(actions) if isinstance(one, Copy) and one.z1 > sends[1].z0)
        late = [one for one in sends[1:] if actions.index(one) < waiting]
        before = [one for one in actions[:waiting] if one not in late]
        changed = (*before, actions[waiting], *late, *actions[waiting + 1 :])
        plans.append(replace(plan, passes=(replace(plan.passes[0], actions=changed),)))
        validate(plans[-1])
    with pytest.raises(IllegalPlan, match=r"rank \d waits in action \d+ without end, until rank \d sends plane"):
        validate_ranks(replace(every, plans=tuple(plans)))


def test_too_few_rows_name_the_largest_number_of_ranks() -> None:
    """Checks that the error names the largest number of ranks for which the rows are enough."""
    problem = make_problem((9, 50, 9), (1, 3, 1), 4)
    with pytest.raises(InputError, match=r"at least 3 rows of y, .* give some ranks only 2; use at most 16"):
        cut_problem(problem, 17)
    assert min(rows_of(cut_problem(problem, 16))) == 3
    with pytest.raises(InputError, match="use at most 4"):
        cut_problem(problem, 5, steps=9)  # a pass has at most the 4 steps of the run
    assert min(rows_of(cut_problem(problem, 4, steps=4))) == 12


@given(st.integers(1, 5000), st.integers(1, 64), st.sampled_from([1, 4, 16, 64]), st.integers(1, 40))
def test_cuts_are_even(ny: int, ranks: int, group: int, least: int) -> None:
    """Checks that all rows are divided, that parts are almost equal, and that large parts begin at groups of rows."""
    if ny // ranks < least and ranks > 1:
        with pytest.raises(InputError):
            cut_rows(ny, ranks, group, least)
        return
    cut = cut_rows(ny, ranks, group, least)
    rows = rows_of(cut)
    assert cut[0] == 0 and cut[-1] == ny and len(rows) == ranks
    assert min(rows) >= (least if ranks > 1 else 1) or ny < ranks
    is_grouped = all(first % group == 0 for first in cut[:-1])
    assert max(rows) - min(rows) <= (2 * group if is_grouped else 1)


def test_large_plans_of_many_ranks_are_proved() -> None:
    """Checks that plans of 64 ranks for a large grid can be proved. Most ranks share the same plan."""
    problem = make_problem((2048, 64 * 512, 4096), (1, 1, 1), 128)
    sizes = Sizes(levels=64, slab=32, diamond=8)
    every = plan_ranks(problem, cut_problem(problem, 64), SCHEMES["wavefront"], sizes, MACHINE, assumed_rate)
    assert len({id(plan) for plan in every.plans}) == 3
    validate_ranks(every)
