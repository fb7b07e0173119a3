"""Check plans of several ranks with split tiling. No cell is updated twice, the plans of all ranks together are legal,
and damaged plans are rejected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from damage import shrink
from outcrop.errors import InputError
from outcrop.plan.actions import FACES, Action, Block, Check, Commit, Read, Update, Write
from outcrop.plan.contents import IllegalPlan
from outcrop.plan.cost import cell_updates, transfer_bytes
from outcrop.plan.given_sizes import GivenSizes
from outcrop.plan.plan import Sizes
from outcrop.plan.planner import choose
from outcrop.plan.problem import Problem
from outcrop.plan.rank_planner import choose_ranks
from outcrop.plan.ranks import RankPlans, cut_problem, part_of, plan_ranks, validate_ranks
from outcrop.plan.schemes import EVERY_SCHEME, SCHEMES
from outcrop.plan.stairs import Stairs
from outcrop.plan.tuner import build
from outcrop.plan.validate import validate, validate_pass
from rank_cases import KINDS, rejected, same_verdicts_of_one_rank, split_plans
from strategies import MACHINE, assumed_rate, examples, make_problem

SPLIT = EVERY_SCHEME["split"]


def split(problem: Problem, ranks: int, sizes: Sizes) -> RankPlans:
    return plan_ranks(problem, cut_problem(problem, ranks), SPLIT, sizes, MACHINE, assumed_rate)


@settings(max_examples=examples(100), deadline=None)
@given(split_plans())
def test_plans_of_all_ranks_are_legal_together(every: RankPlans) -> None:
    """Checks plans of random problems with all kinds of boundaries, for 2 to 8 ranks."""
    validate_ranks(every)


@settings(max_examples=examples(60), deadline=None)
@given(split_plans(max_ranks=3), st.integers(0, 2**32 - 1))
def test_verdicts_of_one_rank_are_those_of_the_run_cell_by_cell(every: RankPlans, seed: int) -> None:
    """Checks that the proof and the symbolic run accept the same passes of a rank, for legal and for damaged passes."""
    same_verdicts_of_one_rank(every, seed)


def some_pass(every: RankPlans, data: st.DataObject) -> tuple[int, int, list[Action]]:
    """Choose a pass of a rank. Return the rank, the number of the pass, and its actions."""
    rank = data.draw(st.integers(0, every.ranks - 1))
    number = data.draw(st.integers(0, len(every.plans[rank].passes) - 1))
    return rank, number, list(every.plans[rank].passes[number].actions)


@settings(max_examples=examples(80), deadline=None)
@given(split_plans(kinds=KINDS[:1], least_cells=1, least_radius=1, max_ranks=4), st.data())
def test_a_dropped_or_shrunk_action_is_rejected(every: RankPlans, data: st.DataObject) -> None:
    """Removes an action of one rank, or a plane or row of the action. Checks that the proof of all ranks rejects the
    plans."""
    rank, number, actions = some_pass(every, data)
    assume(every.problem.has_updates)
    index = data.draw(st.integers(0, len(actions) - 1))
    if not isinstance(actions[index], Block):  # a rank whose upper side is a boundary has no larger frame
        rejected(every, rank, number, [*actions[:index], *actions[index + 1 :]])
    if not isinstance(actions[index], Block | Commit):
        smaller = shrink(actions[index], data.draw(st.booleans()), data.draw(st.booleans()))
        if isinstance(smaller, Update):  # if a rank has few rows, the last level of its trapezoid has no rows
            before, after = (updates_of(every.plans[rank].problem, [one]) for one in (actions[index], smaller))
            assume(after < before)
        rejected(every, rank, number, [*actions[:index], smaller, *actions[index + 1 :]])


@settings(max_examples=examples(80), deadline=None)
@given(split_plans(least_cells=1, least_radius=1, max_ranks=4), st.data())
def test_damaged_exchanges_are_rejected(every: RankPlans, data: st.DataObject) -> None:
    """Damages exchanges in plans with all kinds of fields. The proof must reject a plan if an exchange or a Check is
    missing, has fewer rows, or names another level."""
    rank, number, actions = some_pass(every, data)
    exchanges = [index for index, one in enumerate(actions) if is_exchange(one) or isinstance(one, Check)]
    assume(exchanges)
    index = data.draw(st.sampled_from(exchanges))
    action, rest = actions[index], [*actions[:index], *actions[index + 1 :]]
    rejected(every, rank, number, rest)
    smaller = shrink(action, data.draw(st.booleans()), data.draw(st.booleans()))
    rejected(every, rank, number, [*rest[:index], smaller, *rest[index:]])
    if isinstance(action, Read | Write):
        other = replace(action, level=action.level + data.draw(st.sampled_from([-1, 1])))
        rejected(every, rank, number, [*rest[:index], other, *rest[index:]])
    if isinstance(action, Write):
        rejected(every, rank, number, [rest[0], action, *rest[1:]])


def is_exchange(action: Action) -> bool:
    return isinstance(action, Read | Write) and action.array in FACES


@settings(max_examples=examples(60), deadline=None)
@given(split_plans(least_cells=1, least_radius=1, max_ranks=4), st.data())
def test_triangles_wait_for_their_rows(every: RankPlans, data: st.DataObject) -> None:
    """Checks that the proof rejects two kinds of passes. The first kind updates a triangle before it has received the
    stairs of its planes. The second kind writes planes before it has received their finished rows."""
    rank, number, actions = some_pass(every, data)
    plan = every.plans[rank]
    has_triangle = [isinstance(one, Update) and one.region.y_high.slope > 0 for one in actions]
    updates = [index for index, found in enumerate(has_triangle) if found]
    if updates:
        index = data.draw(st.sampled_from(updates))
        action, own = actions[index], [at for at in range(index) if received(actions[at])]
        with pytest.raises(IllegalPlan):
            validate_pass(plan.problem, replace(plan.passes[number], actions=(actions[0], action, *actions[1:])),
                          plan.window)  # fmt: skip
        late = [at for at in own if uses(plan.problem, actions[at], action)]
        assume(late)
        place = late[-1]
        moved = [*actions[:place], *actions[place + 1 : index + 1], actions[place], *actions[index + 1 :]]
        rejected(every, rank, number, moved)


def received(action: Action) -> bool:
    return isinstance(action, Read) and action.array == "stairs"


def uses(problem: Problem, stairs: Action, update: Action) -> bool:
    """Return True if `update` changes a plane of the stairs at the next level after the stairs."""
    assert isinstance(stairs, Read) and isinstance(update, Update)
    back = problem.skew_z * stairs.level
    first = max(update.zeta0 - back, problem.first_plane, stairs.z0)
    return first < min(update.zeta1 - back, problem.end_plane, stairs.z1)


@settings(max_examples=examples(60), deadline=None)
@given(split_plans())
def test_no_cell_is_updated_twice(every: RankPlans) -> None:
    """Checks that all ranks together update the same number of cells as one rank."""
    whole = build(every.problem, SCHEMES["wavefront"], every.plans[0].sizes, MACHINE, assumed_rate)
    own = sum(updates_of(plan.problem, plan.passes[0].actions) for plan in every.plans)
    assert own == updates_of(every.problem, whole.passes[0].actions)


def updates_of(problem: Problem, actions: Sequence[Action]) -> int:
    return sum(cell_updates(problem, one) for one in actions if isinstance(one, Update))


@settings(max_examples=examples(60), deadline=None)
@given(split_plans())
def test_predicted_bytes_are_those_of_the_messages(every: RankPlans) -> None:
    """Checks the predicted bytes of exchanges. They must equal the bytes of the rows of the stairs and of the
    triangles."""
    sent = [plan.predicted.bytes_sent for plan in every.plans]
    assert sum(sent) == sum(plan.predicted.bytes_received for plan in every.plans)
    for plan in every.plans:
        problem, (low, high), rows = plan.problem, plan.problem.neighbours, 0
        inside = problem.end_plane - problem.first_plane
        for one in plan.passes if problem.radius_y else ():
            stairs = Stairs(problem, one.levels)
            rim = problem.planes - inside
            rows += low * problem.state_arrays * (rim * stairs.rim_rows[1] + inside * stairs.rows(0)[1])
            rows += low * problem.statics * problem.planes * stairs.rim_rows[1] * reads_statics(one.actions)
            for level in range(1, one.levels):
                first, end = stairs.rows(level)
                rows += low * len(problem.updates[(level - 1) % problem.stages].targets) * inside * (end - first)
            rows += high * problem.state_arrays * inside * problem.radius_y * one.levels
        assert plan.predicted.bytes_sent == rows * problem.pitch_bytes
        moved = problem.planes * problem.record_bytes * problem.state_arrays * len(plan.passes)
        actions = [action for one in plan.passes for action in one.actions]
        fringes = [one for one in actions if isinstance(one, Write) and one.array == "fringes"]  # only between blocks
        moved += sum(transfer_bytes(problem, one) for one in fringes)
        assert plan.predicted.bytes_written == moved


def reads_statics(actions: Sequence[Action]) -> bool:
    return any(isinstance(one, Read) and one.array == "statics" for one in actions)


@pytest.mark.parametrize("levels", [4, 5])
@pytest.mark.parametrize("slab", [1, 3, 8])
@pytest.mark.parametrize("kind", range(len(KINDS)))
def test_rings_need_about_two_slabs_more_than_those_of_the_wavefront(levels: int, slab: int, kind: int) -> None:
    """Checks the sizes of the rings. With smaller rings, plans are not legal."""
    some, updates = KINDS[kind]
    problem = replace(make_problem((200, 60, 9), (1, 1, 1), levels), fields=some, updates=updates)
    part = part_of(problem, cut_problem(problem, 3), 1)
    sizes = Sizes(levels * len(updates), slab, diamond=2)
    plan = build(replace(part, max_halo=40), SPLIT, sizes, MACHINE, assumed_rate)
    usual = build(replace(part, max_halo=40), SCHEMES["wavefront"], sizes, MACHINE, assumed_rate)
    for mine, other in zip(plan.window.ring_planes, usual.window.ring_planes, strict=True):
        assert mine <= other + 2 * slab + 1
    if kind == 0:  # the rings of other problems have the maximum of several sizes
        first, *others = plan.window.ring_planes
        smaller = replace(plan.window, ring_planes=(first - 1, *others))
        with pytest.raises(IllegalPlan):
            validate_pass(plan.problem, plan.passes[0], smaller)


def test_sends_before_all_receives_block_a_ring_of_ranks() -> None:
    """Checks a ring of ranks in which each rank sends the stairs of all levels before it receives any stairs. If
    connections store no messages, these ranks wait for each other forever. So the proof must reject the plans."""
    fixed, periodic = ("fixed",) * 2, ("periodic",) * 2
    problem = replace(make_problem((20, 60, 9), (1, 1, 1), 4), sides=(fixed, periodic, fixed))
    every = split(problem, 3, Sizes(4, 3, 2))
    validate_ranks(every)
    plans = []
    for plan in every.plans:
        actions: list[Action] = []
        waiting: list[Action] = []
        for one in plan.passes[0].actions:
            if received(one) and one.level > 0:  # type: ignore[union-attr]
                waiting.append(one)
                continue
            if not (isinstance(one, Write) and one.array == "stairs"):
                actions += waiting
                waiting = []
            actions.append(one)
        plans.append(replace(plan, passes=(replace(plan.passes[0], actions=tuple(actions)),)))
        validate(plans[-1])
    with pytest.raises(IllegalPlan, match=r"rank \d waits in action \d+ without end, until rank \d receives plane"):
        validate_ranks(replace(every, plans=tuple(plans)))


def test_large_plans_of_many_ranks_are_proved() -> None:
    """Checks that plans of 64 ranks for a large grid can be proved. Most ranks share the same plan."""
    problem = make_problem((2048, 64 * 512, 4096), (1, 1, 1), 128)
    every = split(problem, 64, Sizes(levels=64, slab=32, diamond=8))
    assert len({id(plan) for plan in every.plans}) == 4  # ranks in the middle have two orders of blocks
    validate_ranks(every)


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(2, 4), st.integers(1, 4), st.integers(1, 3), st.sampled_from([0, 1, 2]), st.sampled_from([0, 1, -1]))
def test_ranking_formulas_are_close_to_the_plans(ranks: int, bt: int, radius: int, kind: int, rank: int) -> None:
    """Checks the formulas that the tuner uses to rank sizes of a rank."""
    some, updates = KINDS[kind]
    problem = replace(make_problem((200, 60 * ranks, 64), (1, radius, 1), 12), fields=some, updates=updates)
    part = part_of(problem, cut_problem(problem, ranks), rank % ranks)
    plan = build(replace(part, steps=bt), SPLIT, Sizes(bt, 8, 2), MACHINE, assumed_rate)
    found, predicted = SPLIT.volume(part, plan.sizes), plan.predicted
    most = max(predicted.bytes_sent, predicted.bytes_received)
    assert found.bytes_sent == pytest.approx(most, rel=0.05)
    assert found.bytes_read == pytest.approx(predicted.bytes_read, rel=0.02)
    assert found.bytes_written == pytest.approx(predicted.bytes_written, rel=0.02)
    assert found.cell_updates == pytest.approx(predicted.seconds_update * assumed_rate(plan.sizes), rel=0.1)


def test_ranks_that_cannot_share_updates_are_refused() -> None:
    """Checks the errors for one rank, for too few rows and for too many steps in a pass."""
    problem = make_problem((20, 40, 40), (1, 1, 1), 30)

    def refuse(message: str, one: Problem, **sizes: int) -> None:
        with pytest.raises(InputError, match=message):
            choose(one, MACHINE, 1 << 30, "split", assumed_rate, GivenSizes(**sizes))

    part = part_of(problem, cut_problem(problem, 4), 0)
    refuse("scheme split cannot run on one rank: .*; give scheme wavefront or auto", problem)
    refuse("bt 6: .* passes of 5 steps; give at most 5", part, bt=6)
    refuse("by 5: the 10 rows of a rank are too few for blocks of 5 rows; leave by out", part, by=5)
    large = make_problem((20, 160, 1024), (1, 1, 1), 30)
    wide = part_of(large, cut_problem(large, 4), 1)
    refuse(r"by 39: the 40 rows of a rank are too few for blocks of 39 rows; give at most \d\d, or leave", wide, by=39)
    refuse("by 20: the 40 rows of a rank are too few for blocks of 20 rows in passes of 15 steps", wide, bt=15, by=20)
    narrow = part_of(problem, cut_problem(problem, 40), 3)
    refuse("each rank needs 2 rows of y, but some ranks have only 1; use fewer ranks", narrow)
    with pytest.raises(InputError, match=r"ranks 21: each rank needs at least 2 rows .* use at most 20"):
        choose_ranks(problem, 21, MACHINE, 1 << 30, "split", lambda _: assumed_rate)
    # other schemes still allow more steps than split tiling
    assert choose(part, MACHINE, 1 << 30, "auto", assumed_rate, GivenSizes(bt=8)).plan.sizes.levels == 8


@pytest.mark.parametrize("share", [0.3, 1.0, 2.0])
def test_auto_chooses_the_faster_scheme(share: float) -> None:
    """Checks that `auto` considers deep halos and split tiling, and takes the faster plan. Split tiling is faster here:
    the parts have few rows, so deep halos of many steps need many additional updates."""
    problem = make_problem((256, 4 * 64, 256), (1, 1, 1), 64)
    part = part_of(problem, cut_problem(problem, 4), 1)
    budget = int(share * 2 * part.planes * part.record_bytes)
    found = {
        name: choose_ranks(problem, 4, MACHINE, budget, name, lambda _: assumed_rate)
        for name in ("auto", "wavefront", "split")
    }
    for one in found.values():
        validate_ranks(one.every, budget)
    assert {one.scheme for one in found["auto"].considered} >= {"wavefront", "split"}
    assert found["split"].twice == 0 < found["wavefront"].twice
    best = min(found["wavefront"].seconds, found["split"].seconds)
    assert found["auto"].seconds <= 1.02 * best
    assert found["split"].speed_up is not None  # the plan of one rank has another scheme
