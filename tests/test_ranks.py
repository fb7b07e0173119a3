"""Check plans of several ranks: each plan is legal together with the plans of the other ranks, and each damaged plan is
rejected."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from matplotlib.path import Path

from damage import shrink
from outcrop.errors import BudgetError, InputError
from outcrop.plan.actions import FACES, HIGH, LOW, Action, Block, Commit, Copy, Read, Update, Write
from outcrop.plan.contents import IllegalPlan
from outcrop.plan.cost import works_of
from outcrop.plan.description import tile_patches
from outcrop.plan.given_sizes import GivenSizes
from outcrop.plan.machine import NetworkRates
from outcrop.plan.memory import slot_bytes, whole_window
from outcrop.plan.plan import Sizes
from outcrop.plan.planner import choose, smallest_budget_bytes
from outcrop.plan.problem import AcquisitionDemand, Problem, chunk_rows
from outcrop.plan.rank_planner import JointChoice, PlannedRank, choose_ranks, choose_together
from outcrop.plan.ranks import (
    RankPlans,
    balanced_cut,
    cut_planes,
    cut_problem,
    cut_rows,
    part_of,
    plan_ranks,
    rows_of,
    validate_ranks,
)
from outcrop.plan.schemes import EVERY_SCHEME, SCHEMES
from outcrop.plan.schemes.wavefront import levels_worth_trying
from outcrop.plan.tuner import build
from outcrop.plan.validate import validate, validate_pass
from rank_cases import KINDS, rank_plans, rejected, same_verdicts_of_one_rank
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
    same_verdicts_of_one_rank(every, seed)


@settings(max_examples=examples(60), deadline=None)
@given(rank_plans(kinds=KINDS[:1], least_cells=1), st.data())
def test_a_dropped_or_shrunk_action_is_rejected(every: RankPlans, data: st.DataObject) -> None:
    """Removes an action of one rank, or removes one plane or one row from the action. Checks that the proof of all
    ranks rejects the plans."""
    rank, number, actions = chosen_pass(every, data)
    problem = every.plans[rank].problem  # if the rank has no halos, the pass is legal without a Block
    has_halo = max(*problem.halo(1), *problem.halo_z(1)) > 0
    index = data.draw(st.integers(not has_halo, len(actions) - 1))
    rejected(every, rank, number, [*actions[:index], *actions[index + 1 :]])
    if not isinstance(actions[index], Block | Commit):
        smaller = shrink(actions[index], data.draw(st.booleans()), data.draw(st.booleans()))
        rejected(every, rank, number, [*actions[:index], smaller, *actions[index + 1 :]])


@settings(max_examples=examples(60), deadline=None)
@given(rank_plans(least_cells=1), st.data())
def test_damaged_exchanges_are_rejected(every: RankPlans, data: st.DataObject) -> None:
    """Damages exchanges in plans with all kinds of fields. The proof must reject the plans if an exchange is missing or
    has fewer rows. It must also reject a send of rows before they are read, and a receive of rows after the update that
    needs them."""
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
    """Choose a pass of a rank that updates some of its own cells. Return the rank, the number of the pass, and its
    actions."""
    problems = [one.problem for one in every.plans]
    updating = [rank for rank, one in enumerate(problems)
                if one.own_rows[0] < one.own_rows[1] and one.own_planes[0] < one.own_planes[1]]  # fmt: skip
    assume(updating)
    rank = data.draw(st.sampled_from(updating))
    number = data.draw(st.integers(0, len(every.plans[rank].passes) - 1))
    return rank, number, list(every.plans[rank].passes[number].actions)


def uses(problem: Problem, face: Read | Write, action: Action) -> bool:
    """Return True if `action` updates a plane of the received rows at level 1."""
    first, end = max(face.z0, problem.first_plane), min(face.z1, problem.end_plane)
    return isinstance(action, Update) and max(action.zeta0, first) < min(action.zeta1, end)


@given(st.integers(1, 300), st.integers(1, 3), st.integers(1, 2), st.integers(1, 400))
def test_passes_worth_trying_need_no_more_rows_than_a_neighbour_has(
    steps: int, radius: int, stages: int, rows: int
) -> None:
    """Checks the numbers of levels that the tuner tries for a rank. Each number is a whole number of steps. The first
    number gives the smallest possible number of passes."""
    rows = max(rows, radius * stages)
    updates = (KINDS[3][1][0], KINDS[3][1][1])[:stages]
    problem = replace(make_problem((5, 2 * rows, 9), (1, radius, 1), steps), fields=KINDS[3][0], updates=updates)
    part = part_of(problem, cut_problem(problem, 2), 0)
    tried = [levels // stages for levels in levels_worth_trying(part)]
    most = min(steps, rows // (radius * stages))
    assert max(tried) == tried[0] <= most and min(tried) == 1
    assert -(-steps // tried[0]) == -(-steps // most)
    assert whole_window(part).slot_bytes == slot_bytes(part, part.frame(most * stages))


def test_ranks_with_other_passes_are_rejected() -> None:
    """Checks that the proof rejects ranks with different numbers of levels, and plans for other parts."""
    problem = make_problem((12, 16, 9), (1, 1, 1), 6)
    cut = cut_problem(problem, 2)
    every, other = (
        plan_ranks(problem, cut, SCHEMES["wavefront"], Sizes(levels, 3, 2), MACHINE, assumed_rate) for levels in (4, 3)
    )
    reordered = replace(every.plans[1], passes=every.plans[1].passes[::-1])
    for plan in (
        other.plans[1],
        reordered,
        replace(every.plans[1], passes=(*every.plans[1].passes, every.plans[1].passes[0])),
    ):
        with pytest.raises(IllegalPlan, match="levels"):
            validate_ranks(replace(every, plans=(every.plans[0], plan)))
    with pytest.raises(IllegalPlan, match=r"is not for rows 8 \.\. 15"):
        validate_ranks(replace(every, plans=(every.plans[0], every.plans[0])))
    with pytest.raises(IllegalPlan, match="1 plans for 2 ranks"):
        validate_ranks(replace(every, plans=every.plans[:1]))


def test_messages_in_another_order_are_rejected() -> None:
    """Checks that the proof rejects the plans of two ranks if one rank sends the same rows in a different order. Each
    plan alone is legal."""
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


@pytest.mark.parametrize("array", ["faces", "static_faces"])
def test_ranks_that_wait_for_each_other_are_rejected(array: str) -> None:
    """Checks plans that deadlock: each rank waits for planes of the other rank before it sends its own planes. Each
    plan alone is legal, and the order of the messages is right."""
    problem = replace(make_problem((30, 16, 9), (1, 1, 1), 2), fields=KINDS[2][0], updates=KINDS[2][1])
    every = plan_ranks(problem, cut_problem(problem, 2), SCHEMES["wavefront"], Sizes(2, 3, 2), MACHINE, assumed_rate)
    plans = []
    for plan in every.plans:
        actions = plan.passes[0].actions
        kind = Copy if array == "faces" else Update
        waiting = [at for at, one in enumerate(actions) if isinstance(one, kind)][1]
        end = last_plane(actions[waiting])
        sends = [one for one in actions[:waiting] if isinstance(one, Write) and one.array == array]
        second = next(one for one in reversed(sends) if one.z0 < end)
        late = [
            one for one in actions[actions.index(second) : waiting] if isinstance(one, Write) and one.array in FACES
        ]
        before = [one for one in actions[:waiting] if one not in late]
        changed = (*before, actions[waiting], *late, *actions[waiting + 1 :])
        plans.append(replace(plan, passes=(replace(plan.passes[0], actions=changed),)))
        validate(plans[-1])
    with pytest.raises(IllegalPlan, match=r"rank \d waits in action \d+ without end, until rank \d sends plane"):
        validate_ranks(replace(every, plans=tuple(plans)))


@settings(max_examples=examples(40), deadline=None)
@given(rank_plans(least_cells=1), st.data())
def test_rows_that_have_changed_are_not_sent(every: RankPlans, data: st.DataObject) -> None:
    """Checks that the proof of a rank rejects a pass that sends rows after updates have overwritten them."""
    rank, number, actions = chosen_pass(every, data)
    plan = every.plans[rank]
    sends = [one for one in actions if isinstance(one, Write) and one.array == "faces" and one.level in (LOW, HIGH)]
    is_overwritten = plan.passes[number].levels > 1 or not plan.problem.fields[0].is_double
    if not sends or not is_overwritten:
        return
    first, end = plan.problem.first_plane, plan.problem.end_plane
    late = data.draw(st.sampled_from([one for one in sends if max(one.z0, first) < min(one.z1, end)] or sends[:1]))
    assume(max(late.z0, first) < min(late.z1, end))
    actions.remove(late)
    rejected(every, rank, number, [*actions[:-1], late, actions[-1]])
    with pytest.raises(IllegalPlan, match=r"as they were read|not in ring"):
        validate_pass(plan.problem, replace(plan.passes[number], actions=(*actions[:-1], late, actions[-1])),
                      plan.window)  # fmt: skip


def test_a_frame_has_rows_of_neighbours_only() -> None:
    """Checks that the frame of the first rank may not begin below the grid, because this rank has no lower neighbour.
    Direct I/O needs a frame whose row 0 begins at a multiple of 4096 bytes."""
    problem = make_problem((12, 2 * 40, 512), (1, 1, 1), 3, "float32")
    every = plan_ranks(problem, cut_problem(problem, 2), SCHEMES["wavefront"], Sizes(3, 3, 2), MACHINE, assumed_rate)
    low, high = (plan.passes[0].actions for plan in every.plans)
    begins = [one for one in (low[0], high[0]) if isinstance(one, Block)]
    assert [(one.frame.y0, one.frame.y1) for one in begins] == [(0, 43), (-4, 40)]
    assert problem.row_group == 2 and begins[1].frame.y0 * problem.pitch_bytes % 4096 == 0
    beyond = replace(begins[0], frame=replace(begins[0].frame, y0=-1, y1=42))
    rejected(every, 0, 0, [beyond, *low[1:]])
    with pytest.raises(IllegalPlan, match="a frame beyond the plane"):
        validate_pass(every.plans[0].problem, replace(every.plans[0].passes[0], actions=(beyond, *low[1:])),
                      every.plans[0].window)  # fmt: skip


@given(rank_plans())
def test_predicted_bytes_are_those_of_the_messages(every: RankPlans) -> None:
    """Compares the predicted bytes of exchanges with a formula. All ranks together receive all bytes that they send."""
    for plan in every.plans:
        problem = plan.problem
        rows = sum(problem.radius_y * one.levels for one in plan.passes) * sum(problem.neighbours)
        statics = [[one for one in each.actions if isinstance(one, Read) and one.array == "statics"]
                   for each in plan.passes]  # fmt: skip
        # each block reads all planes, and only one block exchanges rows with a neighbour
        blocks = [len({one for one in each.actions if isinstance(one, Block)}) for each in plan.passes]
        planes = [sum(one.z1 - one.z0 for one in reads) // count for reads, count in zip(statics, blocks, strict=True)]
        expected = rows * problem.pitch_bytes * problem.planes * problem.state_arrays
        sides = problem.radius_y * sum(problem.neighbours) * problem.pitch_bytes * problem.statics
        expected += sum(count * one.levels * sides for count, one in zip(planes, plan.passes, strict=True))
        if not problem.is_part_z:
            assert plan.predicted.bytes_sent == plan.predicted.bytes_received == expected
        moved = problem.planes * problem.record_bytes * problem.state_arrays * len(plan.passes)
        assert plan.predicted.bytes_written == moved or (max(blocks) > 1 and plan.predicted.bytes_written > moved)
    assert sum(plan.predicted.bytes_sent for plan in every.plans) == sum(
        plan.predicted.bytes_received for plan in every.plans
    )


def test_a_slow_network_makes_the_plan_slower() -> None:
    """Checks the predicted time of a rank. A fast network hides the exchanges behind the updates. With a very slow
    network, the transfers determine the time, and the tuner exchanges fewer rows in each pass."""
    problem = make_problem((512, 2 * 256, 512), (1, 1, 1), 64)
    part = part_of(problem, cut_problem(problem, 2), 0)
    scheme, sizes = SCHEMES["wavefront"], Sizes(16, 32, 4)
    predicted = []
    for rate in (1e15, 1e10, 1e6):
        machine = replace(MACHINE, network=NetworkRates(rate, 1e-5, "declared"))
        predicted.append(build(part, scheme, sizes, machine, assumed_rate).predicted)
    machine = replace(MACHINE, network=NetworkRates(1e15, 0.04, "declared"))
    late = build(part, scheme, sizes, machine, assumed_rate)
    fast, usual, slow = predicted
    # each pass waits for its first messages; most of the other messages arrive during updates
    assert 0.03 < (late.predicted.seconds - fast.seconds) / len(late.passes) < 0.12
    assert fast.seconds <= usual.seconds <= 1.01 * fast.seconds
    assert slow.bytes_sent / 1e6 <= slow.seconds <= slow.bytes_sent / 1e6 + fast.seconds
    assert fast.seconds_update > assumed_rate(sizes) ** -1 * part.cells * part.levels


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(2, 4), st.integers(1, 4), st.integers(1, 3), st.sampled_from([0, 1, 2]))
def test_ranking_formulas_of_parts_are_close_to_the_plans(ranks: int, bt: int, radius: int, kind: int) -> None:
    """Checks the formulas that the tuner uses to rank sizes of a rank."""
    some, updates = KINDS[kind]
    problem = replace(make_problem((200, 40 * ranks, 64), (1, radius, 1), 12), fields=some, updates=updates)
    part = part_of(problem, cut_problem(problem, ranks), ranks // 2)
    plan = build(replace(part, steps=bt), SCHEMES["wavefront"], Sizes(bt, 8, 2), MACHINE, assumed_rate)
    volume = SCHEMES["wavefront"].volume(part, plan.sizes)
    assert volume.bytes_sent == pytest.approx(plan.predicted.bytes_sent, rel=0.02)
    assert volume.bytes_read == pytest.approx(plan.predicted.bytes_read, rel=0.02)
    cells = plan.predicted.seconds_update * assumed_rate(plan.sizes)
    rim = problem.planes / (problem.planes - 2)
    assert volume.cell_updates == pytest.approx(cells * rim, rel=0.01 if all(part.neighbours) else 0.1)


@pytest.mark.parametrize("scheme", ["wavefront", "naive"])
@pytest.mark.parametrize("share", [0.3, 1.0, 2.0])
def test_all_ranks_have_the_sizes_of_the_slowest(scheme: str, share: float) -> None:
    """Checks plans that all ranks choose together. The plans must be legal together and fit the budget of each rank,
    even if a part fits in memory. With more ranks, the predicted time must not be longer."""
    problem = make_problem((64, 161, 200), (1, 1, 1), 40)
    part = part_of(problem, cut_problem(problem, 4), 1)
    whole = whole_window(part)
    assert whole.slot_bytes == slot_bytes(part, part.frame(40)) and whole.ring_planes == (64, 64, 64)
    budget = int(share * whole.bytes)
    found = choose_ranks(problem, 4, MACHINE, budget, scheme, lambda _: assumed_rate)
    validate_ranks(found.every, budget)
    assert {(plan.scheme, plan.sizes) for plan in found.every.plans} == {(found.plan.scheme, found.plan.sizes)}
    assert found.seconds == max(plan.predicted.seconds for plan in found.every.plans)
    assert found.halo == found.plan.passes[0].levels <= 40 and not found.plan.sizes.keeps_statics
    inner = found.every.plans[1].problem
    assert found.link_bytes == found.halo * inner.pitch_bytes * inner.planes
    two = choose_ranks(problem, 2, MACHINE, budget, scheme, lambda _: assumed_rate)
    assert found.plan.predicted.seconds_update < two.plan.predicted.seconds_update


def test_updates_of_halos_are_counted() -> None:
    """Checks the fraction of updates that are computed twice. For a rank of B rows with two neighbours, the fraction is
    r(L-1)/B."""
    problem = make_problem((300, 3 * 100, 64), (0, 2, 0), 5)
    found = choose_ranks(problem, 3, MACHINE, 1 << 30, "wavefront", lambda _: assumed_rate, GivenSizes(bt=5))
    assert found.slowest == 1
    assert found.twice == pytest.approx(2 * (5 - 1) / 100)
    single = choose_ranks(problem, 1, MACHINE, 1 << 30, "wavefront", lambda _: assumed_rate)
    assert single.twice == 0 and single.speed_up == 1 and single.halo == 0 == single.link_bytes


def test_impossible_sizes_of_ranks_are_refused() -> None:
    """Checks that impossible requests are refused: passes that need too many rows of a neighbour, blocks of rows on a
    ring of ranks, unsuitable schemes, and wrong numbers of ranks.
    """
    problem = make_problem((20, 40, 40), (1, 1, 1), 30)
    part = part_of(problem, cut_problem(problem, 4), 0)

    ring = replace(problem, sides=(problem.sides[0], ("periodic", "periodic"), problem.sides[2]))
    of_ring = part_of(ring, cut_problem(ring, 3), 0)

    def refuse(message: str, scheme: str = "auto", one: Problem = part, **sizes: int) -> None:
        with pytest.raises(InputError, match=message):
            choose(one, MACHINE, 1 << 30, scheme, assumed_rate, GivenSizes(**sizes))

    refuse("bt 11: .* passes of 10 steps; give at most 10", bt=11)
    refuse("by 5: the rows of a rank cannot be cut", one=of_ring, by=5)
    refuse("scheme overlapped cannot divide the grid among ranks", "overlapped")
    with pytest.raises(InputError, match="ranks 2: ranks divide y of a grid of three axes"):
        cut_problem(replace(problem, ndim=2), 2)
    with pytest.raises(InputError, match="ranks 0: give at least 1"):
        cut_problem(problem, 0)


@pytest.mark.parametrize("diamond", [0, 2, 5])
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_drawn_tiles_cover_what_a_rank_updates(rank: int, diamond: int) -> None:
    """Checks that the drawn tiles of a rank cover each updated row once at each level, and no other rows."""
    problem = make_problem((20, 60, 40), (1, 2, 1), 4)
    part = part_of(problem, cut_problem(problem, 3), rank)
    patches = [Path(patch.corners) for patch in tile_patches(part, Sizes(4, 8, diamond), 4)]
    every = np.arange(-40, 60)
    low, high = (8 if is_neighbour else 0 for is_neighbour in part.neighbours)
    for level in range(1, 5):
        first = -low + 2 * level if low else 2
        end = 20 + high - 2 * level if high else 18
        tiles = sum(path.contains_points([(y + 0.5, level) for y in every]).astype(int) for path in patches)
        np.testing.assert_array_equal(tiles, (first <= every) & (every < end))


def last_plane(action: Copy | Update) -> int:
    """Return the end of the range of planes that an action copies, or updates at level 1."""
    return action.z1 if isinstance(action, Copy) else action.zeta1


def test_too_few_rows_name_the_largest_number_of_ranks() -> None:
    """Checks that the error names the largest number of ranks for which each rank has enough rows."""
    problem = make_problem((9, 50, 9), (1, 3, 1), 4)
    with pytest.raises(InputError, match=r"at least 3 rows of y, .* give some ranks only 2; use at most 16"):
        cut_problem(problem, 17)
    assert min(rows_of(cut_problem(problem, 16))) == 3
    with pytest.raises(InputError, match="use at most 4"):
        cut_problem(problem, 5, steps=9)  # a pass has at most the 4 steps of the run
    assert min(rows_of(cut_problem(problem, 4, steps=4))) == 12


@given(st.data())
def test_cuts_divide_no_group_of_cells(data: st.DataObject) -> None:
    """Checks cuts of rows with groups of cells in two boxes. No place of a cut is inside a group, and all parts have
    enough rows. If there is no such cut, the error names the groups."""
    ny, ranks, unit = data.draw(st.integers(20, 900)), data.draw(st.integers(2, 9)), data.draw(st.sampled_from([1, 4]))
    box = st.tuples(st.integers(0, ny // 3), st.integers(ny // 2, ny), st.integers(2, 40))
    groups = ((0, ny, data.draw(st.integers(2, 40))), *data.draw(st.lists(box, max_size=1)))
    least, for_chunks = data.draw(st.integers(1, ny // ranks)), data.draw(st.booleans())
    free = [place for place in range(ny) if not any(
        first < place < end and (place - first) % cells for first, end, cells in groups)]  # fmt: skip
    lowest = 0  # the lowest possible place of each cut
    for _ in range(ranks - 1):
        lowest = next((place for place in free if place >= lowest + least), ny)
    if ny - lowest < least:
        with pytest.raises(InputError, match="inside a group of"):
            cut_rows(ny, ranks, unit, least, for_chunks, groups)
        return
    cut = cut_rows(ny, ranks, unit, least, for_chunks, groups)
    assert len(cut) == ranks + 1 and min(rows_of(cut)) >= least
    assert {*cut[:-1]} <= {*free}


def test_parts_of_groups_stay_equal_if_they_can() -> None:
    """Checks cuts that must not divide a group of cells. The parts of one Zarr array must still have equal numbers of
    rows. This is possible if a chunk can have a few more rows. Also checks that balanced cuts divide no group."""
    assert cut_rows(1000, 4, 1, 8, for_chunks=True, groups=((0, 1000, 16),)) == (0, 256, 512, 768, 1000)
    assert cut_rows(1000, 4, 1, 8, for_chunks=True, groups=((3, 1000, 16),)) == (0, 243, 499, 755, 1000)
    split, problem = EVERY_SCHEME["split"], make_problem((9, 400, 9), (1, 3, 1), 8)
    problem = replace(problem, acquisition=AcquisitionDemand(groups_y=((0, 400, 16),), groups_z=((0, 9, 4),)))
    cut = cut_problem(problem, 4)
    moved = balanced_cut(problem, cut, split, 8)
    assert all(place % 16 == 0 for place in (*cut[:-1], *moved[:-1])) and moved[1] < cut[1]
    assert cut_planes(problem, 2) == (0, 4, 9)
    assert cut_rows(15, 4, 1, 3, groups=((0, 15, 2),)) == (0, 4, 8, 12, 15)


@given(st.integers(1, 5000), st.integers(1, 64), st.sampled_from([1, 4, 16, 64]), st.integers(1, 40))
def test_cuts_for_chunks_are_as_even_as_possible(ny: int, ranks: int, group: int, least: int) -> None:
    """Checks cuts for chunks. All parts except the last must have the same number of rows. This number can be slightly
    larger than in an even cut. Such a cut must exist if each rank has enough rows."""
    if ny // ranks < least and ranks > 1:
        return
    cut = cut_rows(ny, ranks, group, least, for_chunks=True)
    rows, even = rows_of(cut), -(-ny // ranks)
    assert cut[0] == 0 and cut[-1] == ny and len(rows) == ranks
    if chunk := chunk_rows(rows):
        assert rows[:-1] == [chunk] * (ranks - 1) and 1 <= rows[-1] <= chunk <= even + even // 32
        assert rows[-1] >= max(min(least, ny), chunk - chunk // 2) or cut == cut_rows(ny, ranks, group, least)
    else:
        assert cut == cut_rows(ny, ranks, group, least)
    if ny - (ranks - 1) * even >= max(least, even - even // 2):
        assert chunk in (even, -(-even // group) * group)
    assert chunk_rows([5, 5, 5]) == chunk_rows([5, 5, 2]) == 5 and chunk_rows([7]) == 7
    assert not chunk_rows([4, 5, 5]) and not chunk_rows([5, 4, 5]) and not chunk_rows([5, 5, 6])


@given(st.integers(1, 5000), st.integers(1, 64), st.sampled_from([1, 4, 16, 64]), st.integers(1, 40))
def test_cuts_are_even(ny: int, ranks: int, group: int, least: int) -> None:
    """Checks that each row is in a part, that parts have almost the same number of rows, and that large parts begin at
    multiples of a group of rows."""
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
    assert len({id(plan) for plan in every.plans}) == 4  # ranks with two neighbours have two orders of blocks
    validate_ranks(every)


@pytest.mark.parametrize("place", [0.1, 0.5, 0.9])
def test_one_exchange_in_the_middle_of_a_large_plan_is_missed(place: float) -> None:
    """Removes one exchange at any place of a large plan. The proof must reject the plan, although it skips repeated
    passes."""
    problem = make_problem((2048, 3 * 512, 4096), (1, 1, 1), 64)
    sizes = Sizes(levels=64, slab=8, diamond=8)
    every = plan_ranks(problem, cut_problem(problem, 3), SCHEMES["wavefront"], sizes, MACHINE, assumed_rate)
    actions = list(every.plans[1].passes[0].actions)
    faces = [at for at, one in enumerate(actions) if isinstance(one, Read | Write) and one.array in FACES]
    first = int(place * len(faces)) // 4 * 4
    for at in faces[first : first + 4]:
        rejected(every, 1, 0, [*actions[:at], *actions[at + 1 :]])


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(1, 12), st.integers(2, 6), st.integers(1, 8), st.integers(1, 3), st.booleans(), st.integers(0, 2))
def test_a_balanced_cut_gives_ranks_equal_work(
    slab: int, ranks: int, steps: int, radius: int, has_stages: bool, doublings: int
) -> None:
    """Moves the cut of a run with split tiling, and compares the updates of all ranks. The numbers of updates may
    differ only because cuts are rounded to groups of rows. The plans must be legal together. The cut of other schemes
    must not move."""
    some, updates = KINDS[3 * has_stages]
    group = 1 << doublings
    nx = 1024 // group
    scheme, ny = EVERY_SCHEME["split"], 128 * group * ranks
    problem = replace(make_problem((12, ny, nx), (1, radius, 1), steps), fields=some, updates=updates)
    assert problem.row_group == group
    equal = cut_problem(problem, ranks, steps, scheme)
    levels = steps * problem.stages
    cut = balanced_cut(problem, equal, scheme, levels)
    rows = rows_of(cut)
    assert sum(rows) == ny and min(rows) >= 2 * radius * levels and rows[1:-1] == rows_of(equal)[1:-1]
    assert all(place % group == 0 for place in cut)
    every = plan_ranks(problem, cut, scheme, Sizes(levels, slab, 2), MACHINE, assumed_rate)
    validate_ranks(every)
    each = [sum(work.cells for _, work in works_of(plan.problem, plan.passes)) for plan in every.plans]
    row = levels * (problem.end_plane - problem.first_plane) * nx
    # the fixed rim of the grid takes `radius` rows of the first and the last rank
    if rows_of(equal)[0] - 2 * radius * levels >= radius * (levels + 1) // 2:
        assert max(each) - min(each) <= row * (radius + group / 2 + 1)
    assert balanced_cut(problem, equal, SCHEMES["wavefront"], levels) == equal
    ring = replace(problem, sides=(problem.sides[0], ("periodic", "periodic"), problem.sides[2]))
    assert balanced_cut(ring, equal, scheme, levels) == equal


def unequal_ranks(budget_bytes: int) -> list[PlannedRank]:
    """Return three ranks. Rank 1 has the slowest updates. Rank 2 has the slowest disk and half of the memory."""
    slow = replace(MACHINE, device=MACHINE.device.shared_by(8))
    return [
        PlannedRank(0, MACHINE, budget_bytes, lambda _: assumed_rate),
        PlannedRank(1, MACHINE, budget_bytes, lambda _: lambda sizes: assumed_rate(sizes) / 3),
        PlannedRank(2, slow, budget_bytes // 2, lambda _: assumed_rate),
    ]


@pytest.mark.parametrize("may_move", [False, True])
@pytest.mark.parametrize("scheme", ["wavefront", "split", "auto"])
def test_unequal_ranks_choose_the_sizes_that_are_best_for_the_slowest(scheme: str, may_move: bool) -> None:
    """Checks the common choice of ranks with different machines and different amounts of memory. The plans are legal
    and fit the memory of each rank. No other proposal is faster. The sizes that one rank would choose alone are not
    faster either."""
    problem = make_problem((48, 3 * 60, 200), (1, 1, 1), 40)
    cut = cut_problem(problem, 3)
    budget = whole_window(part_of(problem, cut, 1)).bytes // 2
    ranks = unequal_ranks(budget)
    best, *others = choose_together(problem, cut, ranks, list, scheme, may_move=may_move)
    assert all(best.seconds <= one.seconds for one in others)
    assert best.seconds == max(choice.plan.predicted.seconds for choice in best.plans)
    plans = tuple(choice.plan for choice in best.plans)
    assert {(plan.scheme, plan.sizes.levels, plan.sizes.slab) for plan in plans} == {
        (best.shared.scheme, best.shared.steps, best.shared.slab)
    }
    validate_ranks(RankPlans(problem, best.cut, plans), budget)
    assert plans[2].memory_bytes <= budget // 2
    assert (best.cut != cut) == (may_move and best.shared.scheme == "split")
    for rank, one in enumerate(ranks):
        part = one.part(problem, best.cut)
        own = choose(part, one.machine, budget // 2, best.shared.scheme, one.update_rate(part)).plan.sizes
        sizes = [replace(plan.sizes, levels=own.levels, slab=own.slab) for plan in plans]
        scheme_of_all = EVERY_SCHEME[best.shared.scheme]
        made = [
            build(other.part(problem, best.cut), scheme_of_all, sizes[place], other.machine, other.update_rate(part))
            for place, other in enumerate(ranks)
        ]
        assert best.seconds <= 1.02 * max(plan.predicted.seconds for plan in made), rank


def test_ranks_in_different_processes_choose_what_one_process_chooses() -> None:
    """Checks that three ranks in different processes make the same choice. They exchange only plain data, and each rank
    makes its own plan."""
    problem = make_problem((48, 3 * 60, 200), (1, 1, 1), 40)
    cut = cut_problem(problem, 3)
    ranks = unequal_ranks(whole_window(part_of(problem, cut, 1)).bytes // 2)
    together = choose_together(problem, cut, ranks, list, "auto", may_move=True)[0]
    values: list[Any] = [None] * 3
    barrier = threading.Barrier(3)

    def choice_of(rank: int) -> JointChoice:
        def gather(own: list[Any]) -> list[Any]:
            (values[rank],) = json.loads(json.dumps(own))
            barrier.wait(60)
            found = list(values)
            barrier.wait(60)
            return found

        return choose_together(problem, cut, [ranks[rank]], gather, "auto", may_move=True)[0]

    with ThreadPoolExecutor(3) as pool:
        for rank, one in enumerate(pool.map(choice_of, range(3))):
            assert (one.shared, one.cut, one.seconds) == (together.shared, together.cut, together.seconds)
            assert one.plans == (together.plans[rank],)


def test_ranks_without_a_common_plan_are_refused() -> None:
    """Checks two groups of ranks. In one group, a rank has too little memory for any plan. In the other group, one rank
    has memory only for thin slabs."""
    problem = make_problem((48, 3 * 60, 200), (1, 1, 1), 40)
    cut = cut_problem(problem, 3)
    large, small, other = unequal_ranks(1 << 30)
    with pytest.raises(BudgetError, match=r"at least \d+ KiB"):
        choose_together(problem, cut, [large, replace(small, budget_bytes=1000), other], list, "wavefront")
    least = smallest_budget_bytes(small.part(problem, cut), "wavefront")
    best = choose_together(problem, cut, [large, replace(small, budget_bytes=least), other], list, "wavefront")[0]
    assert (best.shared.steps, best.shared.slab) == (1, 1)
