"""Check plans: each plan of a scheme is legal, and each damaged plan is rejected."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from damage import shrink
from outcrop.errors import BudgetError, InputError
from outcrop.plan.actions import Action, Block, Commit, Copy, Read, Update, Write
from outcrop.plan.cost import updates_below
from outcrop.plan.machine import StorageRates, edge_factor
from outcrop.plan.memory import largest_within, whole_window
from outcrop.plan.placement import EQUALLY_FAST
from outcrop.plan.plan import Pass, Plan, Sizes
from outcrop.plan.planner import make_plan, smallest_budget_bytes
from outcrop.plan.problem import Problem
from outcrop.plan.schemes import SCHEMES
from outcrop.plan.tuner import build
from outcrop.plan.validate import IllegalPlan, validate, validate_pass
from outcrop.units import format_bytes_up, parse_bytes
from strategies import MACHINE, assumed_rate, examples, make_problem, problems, schemes_for, sizes_for


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    problem = draw(problems())
    scheme = draw(schemes_for(problem))
    return build(problem, scheme, draw(sizes_for(problem)), MACHINE, assumed_rate)


@given(plans())
def test_every_plan_of_every_scheme_is_legal(plan: Plan) -> None:
    """Checks that the plan of each scheme is legal for any sizes."""
    validate(plan, budget_bytes=plan.memory_bytes)


@given(problems(), st.integers(0, 400), st.sampled_from(["auto", *SCHEMES]))
def test_planner_keeps_the_budget(problem: Problem, extra_planes: int, scheme: str) -> None:
    """Checks that the chosen plan is legal and fits the budget, for any budget."""
    if scheme == "overlapped":
        problem = replace(problem, in_place=False)
    budget = smallest_budget_bytes(problem, scheme) + extra_planes * problem.record_bytes
    plan = make_plan(problem, MACHINE, budget, scheme, assumed_rate)
    validate(plan, budget_bytes=budget)


@given(problems())
def test_too_small_a_budget_names_one_that_works(problem: Problem) -> None:
    """Checks that a budget that is too small is refused, and that the budget in the message is sufficient."""
    smallest = smallest_budget_bytes(problem)
    with pytest.raises(BudgetError) as refusal:
        make_plan(problem, MACHINE, smallest - 1, "auto", assumed_rate)
    named = int(str(refusal.value).split(" KiB are needed")[0].split()[-1]) * 1024
    validate(make_plan(problem, MACHINE, named, "auto", assumed_rate), budget_bytes=named)


@given(st.integers(1, 1 << 62))
def test_sizes_that_are_rounded_up_are_short_and_enough(count: int) -> None:
    """Checks the text of a budget that is large enough: it has few digits, and means at least as many bytes."""
    text = format_bytes_up(count)
    number, unit = text.split()
    assert count <= parse_bytes(text) <= max(count + 1023, count * 1.002)
    assert len(number) <= {"KiB": 5, "MiB": 8, "GiB": 8, "TiB": 10}[unit]


def test_a_large_budget_that_is_needed_is_named_in_a_large_unit() -> None:
    problem = make_problem((10**5, 10**5, 10**5), (1, 1, 1), 10)
    with pytest.raises(BudgetError, match=r"at least [0-9.]{4,8} GiB are needed$") as refusal:
        make_plan(problem, MACHINE, 1 << 20, "auto", assumed_rate)
    named = parse_bytes(str(refusal.value).split("at least ")[1].removesuffix(" are needed"))
    assert smallest_budget_bytes(problem) <= named <= smallest_budget_bytes(problem) * 1.002


def test_memory_for_the_whole_grid_gives_one_slab() -> None:
    """Checks that a grid that fits into memory has the same kind of plan as a larger grid, but only one slab."""
    problem = make_problem((50, 40, 30), (1, 1, 1), 20)
    plan = make_plan(problem, MACHINE, whole_window(problem).bytes, "auto", assumed_rate)
    assert len(plan.passes) == 1
    assert sum(isinstance(action, Update) for action in plan.passes[0].actions) == 1


@pytest.mark.parametrize("bytes_per_second", [2e8, 2e9, 1e10])
@pytest.mark.parametrize("shape", [(512, 512, 512), (16384, 1, 8192)], ids=["three axes", "two axes"])
def test_memory_for_the_whole_grid_is_never_slower_than_less(
    shape: tuple[int, int, int], bytes_per_second: float
) -> None:
    """Checks that a plan with memory for the whole grid is never slower than a plan with less memory. If transfers are
    slow, even a grid that fits into memory is divided into slabs. Data are then transferred while other slabs are
    updated.
    """
    problem = make_problem(shape, (1, 1 if shape[1] > 1 else 0, 1), 128)
    machine = replace(MACHINE, device=StorageRates(*(bytes_per_second,) * 3, 0.001, "declared"))
    whole = whole_window(problem).bytes

    def rate(sizes: Sizes) -> float:
        return 1e10 / edge_factor(problem, sizes)

    plan = make_plan(problem, machine, whole, "auto", rate)
    assert sum(isinstance(action, Update) for action in plan.passes[0].actions) > 1
    validate(plan, budget_bytes=whole)
    for share in (0.25, 0.5, 0.9):
        less = make_plan(problem, machine, int(share * whole), "auto", rate)
        assert plan.predicted.seconds <= EQUALLY_FAST * less.predicted.seconds


@given(problems(), st.integers(0, 1000))
def test_memory_for_the_whole_grid_gives_few_candidates_of_whole_planes(problem: Problem, extra_planes: int) -> None:
    """Checks budgets that have room for the whole grid. The tuner must consider few candidates, and no window may be
    larger than the grid."""
    # records are so large that the tuner also tries slabs of one plane
    problem = replace(problem, record_bytes=problem.record_bytes + (16 << 20))
    whole = whole_window(problem)
    every = list(SCHEMES["wavefront"].candidates(problem, whole.bytes + extra_planes * problem.record_bytes))
    assert 1 <= len(every) <= 50
    assert {one.block_y for one in every} == {0}
    assert all(SCHEMES["wavefront"].window(problem, one.levels, one).bytes <= whole.bytes for one in every)


def test_unknown_scheme_is_named() -> None:
    """Checks that the error for a misspelt name of a scheme lists the known names."""
    with pytest.raises(InputError, match="wavefront"):
        make_plan(make_problem((9, 9, 9), (1, 1, 1), 2), MACHINE, 1 << 30, "wavfront", assumed_rate)


@st.composite
def streaming_plans(draw: st.DrawFn) -> Plan:
    """Generate random plans of whole planes. The grid has cells inside the rim in x, so every action of the plan is
    necessary."""
    problem = draw(problems().filter(lambda problem: problem.shape[2] > 2 * problem.radii[2]))
    sizes = replace(draw(sizes_for(problem)), block_y=0)
    return build(problem, SCHEMES[draw(st.sampled_from(["wavefront", "naive"]))], sizes, MACHINE, assumed_rate)


@st.composite
def roomy_plans(draw: st.DrawFn) -> Plan:
    """Generate random plans whose blocks are wider than their fringe. Every action of such a plan is necessary.

    The stencil has the same radius along all axes."""
    radius, levels = draw(st.integers(1, 2)), draw(st.integers(1, 5))
    least = radius * (levels + 2)
    block_z, block_y = draw(st.integers(least, least + 4)), draw(st.integers(least, least + 4))
    blocks_z, blocks_y = draw(st.integers(1, 3)), draw(st.integers(2, 3))
    extents = 2 * radius + blocks_z * block_z, 2 * radius + blocks_y * block_y
    problem = make_problem((*extents, 2 * radius + 3), (radius, radius, radius), levels)
    scheme = SCHEMES[draw(st.sampled_from(["wavefront", "skewed-5y", "overlapped"]))]
    sizes = Sizes(levels, draw(st.integers(1, 20)), 2, block_y=block_y, block_z=block_z)
    return build(problem, scheme, sizes, MACHINE, assumed_rate)


@given(streaming_plans() | roomy_plans(), st.data())
def test_a_dropped_action_is_rejected(plan: Plan, data: st.DataObject) -> None:
    """Checks that the validator rejects a plan without one of its actions."""
    one = data.draw(st.sampled_from(plan.passes))
    # The first Block is never removed: a plan without it begins with a frame of whole planes, and can be legal.
    index = data.draw(st.integers(isinstance(one.actions[0], Block), len(one.actions) - 1))
    rejected(plan, replace(one, actions=one.actions[:index] + one.actions[index + 1 :]))


@settings(max_examples=examples(40), deadline=None)
@given(st.sampled_from(sorted(SCHEMES)), st.integers(1, 6), st.integers(3, 30), st.integers(1, 3), st.integers(0, 2))
def test_blocks_of_rows_that_begin_within_a_page_are_legal(
    scheme: str, levels: int, block_y: int, slab: int, radius: int
) -> None:
    """Checks plans whose blocks begin inside a group of rows that fills whole pages. Transfers move whole groups. The
    checksums of the rim must be complete.
    """
    problem = make_problem((5, 40, 500), (1, radius, 1), 2 * levels)
    assert problem.row_group == 2
    sizes = Sizes(levels, slab, diamond=2, block_y=block_y)
    validate(build(problem, SCHEMES[scheme], sizes, MACHINE, assumed_rate))


@given(streaming_plans() | roomy_plans(), st.data())
def test_a_shrunk_action_is_rejected(plan: Plan, data: st.DataObject) -> None:
    """Removes one plane or one row from an action. The validator must reject the plan, because schemes transfer no
    unnecessary rows.
    """
    one = data.draw(st.sampled_from(plan.passes))
    ranged = [index for index, action in enumerate(one.actions) if not isinstance(action, Commit | Block)]
    index = data.draw(st.sampled_from(ranged))
    smaller = shrink(one.actions[index], data.draw(st.booleans()), data.draw(st.booleans()))
    rejected(plan, replace(one, actions=(*one.actions[:index], smaller, *one.actions[index + 1 :])))


@given(streaming_plans(), st.data())
def test_an_action_moved_across_one_it_depends_on_is_rejected(plan: Plan, data: st.DataObject) -> None:
    """Moves an action before another action whose result it needs. The validator must reject the plan."""
    one = data.draw(st.sampled_from(plan.passes))
    later = data.draw(st.integers(1, len(one.actions) - 1))
    needed = [i for i in range(later) if depends(plan.problem, one.actions[later], one.actions[i])]
    if not needed:
        return
    place = data.draw(st.integers(0, max(needed)))
    rest = one.actions[:later] + one.actions[later + 1 :]
    rejected(plan, replace(one, actions=(*rest[:place], one.actions[later], *rest[place:])))


@given(problems(), st.integers(1, 9), st.integers(-5, 60))
def test_updates_below_counts_what_a_loop_counts(problem: Problem, levels: int, zeta: int) -> None:
    """Checks the formula that counts updates in the cost model. A loop over all updates must give the same number."""
    counted = sum(
        problem.first_plane <= z - problem.skew_z * (level - 1) < problem.end_plane
        for level in range(1, levels + 1)
        for z in range(problem.first_plane, zeta)
    )
    assert updates_below(problem, levels, zeta) == counted


@settings(max_examples=examples(30))
@given(streaming_plans())
def test_predicted_bytes_are_those_of_the_actions(plan: Plan) -> None:
    """Checks that the predicted bytes equal the bytes that the actions read and write."""
    moved = plan.problem.planes * plan.problem.record_bytes * len(plan.passes)
    assert plan.predicted.bytes_read == plan.predicted.bytes_written == moved


def rejected(plan: Plan, damaged: Pass) -> None:
    with pytest.raises(IllegalPlan):
        validate_pass(plan.problem, damaged, plan.window)


def depends(problem: Problem, later: Action, earlier: Action) -> bool:
    """Return True if `later` uses the result of `earlier`. The validator does not use this function."""
    match later, earlier:
        case (Commit(), Write()):
            return True
        case (Copy(z0, z1), Read(a0, a1)):
            return max(z0, a0) < min(z1, a1)
        case (Update(zeta0, zeta1), Copy(z0, z1)):
            first, end = max(zeta0, problem.first_plane), min(zeta1, problem.end_plane)
            return max(first, z0) < min(end, z1)
        case (Update(_, zeta1), Update(zeta0, _)):
            return zeta0 < zeta1 and (later.levels > 1 or problem.radius_z > 0) and touches(problem, later, earlier)
        case (Write(z0, z1), Update(zeta0, zeta1)):
            shift = problem.skew_z * (earlier.levels - 1)
            first, end = max(z0, problem.first_plane), min(z1, problem.end_plane)
            return max(first, zeta0 - shift) < min(end, zeta1 - shift)
    return False


def touches(problem: Problem, later: Update, earlier: Update) -> bool:
    """Return True if `later` updates a plane at level 2 or higher, and `earlier` updates the same plane at the previous
    level."""
    for zeta in range(later.zeta0, later.zeta1):
        for level in range(2, later.levels + 1):
            z = zeta - problem.skew_z * (level - 1)
            needed = z + problem.skew_z * (level - 2)  # `earlier` updates the same plane at the level below
            if problem.first_plane <= z < problem.end_plane and earlier.zeta0 <= needed < earlier.zeta1:
                return True
    return False


@given(st.lists(st.integers(0, 9), min_size=1, max_size=300), st.integers(-2, 900))
def test_the_largest_number_within_a_budget_is_that_of_a_loop(steps: list[int], budget: int) -> None:
    """Checks the search for the largest size that fits a number of bytes. The bytes grow unevenly with the size."""
    sums = list(accumulate(steps))
    expected = max((size for size in range(1, len(sums) + 1) if sums[size - 1] <= budget), default=0)
    assert largest_within(lambda size: sums[size - 1], len(sums), budget) == expected
