"""Check the proof of plans, which uses ranges of cells. The symbolic run is a second proof, cell by cell. Both proofs
must have the same result, for legal and for damaged plans.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import outcrop as oc
from cell_run import run_one_layer, run_pass
from damage import damage, same_verdict
from outcrop.bench.literature import one_layer
from outcrop.cli.main import call
from outcrop.plan.actions import Action, Update
from outcrop.plan.memory import Window
from outcrop.plan.plan import Pass, Plan, Sizes
from outcrop.plan.problem import FieldPlan, Operand, Problem, StagePlan
from outcrop.plan.schemes import SCHEMES
from outcrop.plan.tuner import TunedPlan, build, without_statics
from outcrop.plan.validate import IllegalPlan, validate, validate_one_layer, validate_pass
from outcrop.run import joint_plan
from strategies import MACHINE, assumed_rate, examples, make_problem, problems, schemes_for, sizes_for

UPDATED, KEPT, READ, LATER = (
    FieldPlan(),
    FieldPlan(is_double=False, flips=False),
    FieldPlan(is_static=True, is_double=False, flips=False),
    FieldPlan(has_previous=True),
)
HERE = partial(Operand, beside=False)
KINDS: dict[str, tuple[tuple[FieldPlan, ...], tuple[StagePlan, ...]]] = {
    "one field and a model at its cell": (
        (UPDATED, READ),
        (StagePlan((Operand(0), HERE(1)), (0,)),),
    ),
    "second order in time": (
        (LATER, READ, READ),
        (StagePlan((Operand(0), HERE(0, 1), HERE(1), HERE(2)), (0,)),),
    ),
    "two stages, each updated where it lies": (
        (KEPT, KEPT, KEPT),
        (StagePlan((HERE(0), HERE(1), Operand(2)), (0, 1)), StagePlan((HERE(2), Operand(0), Operand(1)), (2,))),
    ),
    "two fields of two copies and one of one": (
        (UPDATED, UPDATED, KEPT),
        (StagePlan((Operand(0), Operand(1), HERE(2)), (0, 1, 2)),),
    ),
    "a later stage that reads what an earlier one has replaced": (
        (UPDATED, KEPT, READ),
        (StagePlan((Operand(0), Operand(2), HERE(1)), (0,)), StagePlan((HERE(1), Operand(0), Operand(0, 1)), (1,))),
    ),
}
FIXED = (("fixed", "fixed"),) * 3


@st.composite
def short_plans(draw: st.DrawFn) -> Plan:
    """Generate random plans with any sizes on small grids of unusual shapes."""
    problem = draw(problems(max_radius=2, max_extent=14, max_steps=8))
    return build(problem, draw(schemes_for(problem)), draw(sizes_for(problem)), MACHINE, assumed_rate)


@st.composite
def long_plans(draw: st.DrawFn) -> Plan:
    """Generate random plans of one or several fields, for many planes in thin slabs. Most slabs repeat the actions of
    earlier slabs."""
    radii = draw(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 1)))
    shape = draw(st.tuples(st.integers(20, 45), st.sampled_from([1, 3, 9, 12]), st.integers(1, 6)))
    problem = make_problem(shape, radii, draw(st.integers(1, 5)), in_place=draw(st.booleans()))
    if draw(st.booleans()):
        some, updates = draw(st.sampled_from(list(KINDS.values())))
        problem = replace(problem, fields=some, updates=updates)
    pair = st.just(("periodic", "periodic")) | st.tuples(*[st.sampled_from(["fixed", "mirror"])] * 2)
    problem = replace(problem, sides=draw(st.just(FIXED) | st.tuples(pair, pair, pair)))
    scheme = draw(schemes_for(problem))
    sizes = Sizes(
        levels=problem.stages * draw(st.integers(1, problem.steps)),
        slab=draw(st.integers(1, 5)),
        diamond=2,
        block_y=0 if problem.periodic[1] else draw(st.integers(0, shape[1])),
        block_z=draw(st.sampled_from([0, 0, 25])),
        keeps_statics=scheme.keeps_statics and draw(st.booleans()),
    )
    return build(problem, scheme, sizes, MACHINE, assumed_rate)


@settings(max_examples=examples(75), deadline=None)
@given(short_plans(), st.integers(0, 2**32 - 1))
def test_verdicts_are_those_of_the_run_cell_by_cell(plan: Plan, seed: int) -> None:
    """Checks that the proof and the symbolic run accept the same plans."""
    compare(plan, seed, turns=6)


@settings(max_examples=examples(30), deadline=None)
@given(long_plans(), st.integers(0, 2**32 - 1))
def test_verdicts_on_what_repeats_are_those_of_the_run_cell_by_cell(plan: Plan, seed: int) -> None:
    """Checks plans in which most slabs repeat. The proof skips repetitions, but must also find damage in a skipped
    repetition."""
    compare(plan, seed, turns=5)


@settings(max_examples=examples(40), deadline=None)
@given(problems(max_radius=2, max_extent=14), st.data())
def test_verdicts_on_arrays_in_memory_are_those_of_the_run_cell_by_cell(plain: Problem, data: st.DataObject) -> None:
    """Checks that the proof and the symbolic run agree on passes that consist of updates only."""
    problem = one_layer.in_memory(plain, data.draw(st.booleans()))
    plan = one_layer.make_plan(problem, data.draw(sizes_for(problem)), MACHINE, assumed_rate)
    rng = random.Random(data.draw(st.integers(0, 2**32 - 1)))
    one = plan.passes[0]
    for damaged in (one, *(damage(rng, one) for _ in range(4 if one.actions else 0))):
        same_verdict(damaged, lambda pass_: validate_one_layer(problem, pass_, plan.window),
                     lambda pass_: run_one_layer(problem, pass_, plan.window))  # fmt: skip


@pytest.mark.parametrize("block_z", [0, 1, 6])
def test_each_update_of_arrays_in_memory_is_needed(block_z: int) -> None:
    """Checks passes of one level in which one update is missing. The proof must reject them, although it skips
    repetitions."""
    problem = one_layer.in_memory(make_problem((19, 17, 20), (1, 2, 1), 6), False)
    sizes = Sizes(levels=1, slab=1, diamond=0, block_y=1, block_z=block_z)
    plan = one_layer.make_plan(problem, sizes, MACHINE, assumed_rate)
    for one in without_one_action(plan.passes[0]):
        with pytest.raises(IllegalPlan):
            validate_one_layer(problem, one, plan.window)


@pytest.mark.parametrize("name", SCHEMES)
def test_verdicts_without_any_one_action_are_those_of_the_run_cell_by_cell(name: str) -> None:
    """Removes one action at a time from a plan with many repetitions. If the proof accepts a pass without an action,
    the symbolic run must accept this pass, too."""
    problem = make_problem((34, 9, 5), (1, 1, 0), 2)
    plan = build(problem, SCHEMES[name], Sizes(levels=1, slab=1, diamond=2, block_y=4), MACHINE, assumed_rate)
    for one in without_one_action(plan.passes[0]):
        try:
            validate_pass(problem, one, plan.window)
        except IllegalPlan:
            continue
        run_pass(problem, one, plan.window)


def without_one_action(one: Pass) -> list[Pass]:
    return [replace(one, actions=one.actions[:i] + one.actions[i + 1 :]) for i in range(len(one.actions))]


def compare(plan: Plan, seed: int, turns: int) -> None:
    """Compare the proof with the symbolic run for three forms of a pass: unchanged, with less memory, and damaged."""
    rng, one = random.Random(seed), random.Random(seed).choice(plan.passes)
    first, second, static = (max(1, planes - rng.randint(0, 2)) for planes in plan.window.ring_planes)
    smaller = replace(plan.window, ring_planes=(first, second, static))
    if plan.passes[0] is not one and plan.sizes.keeps_statics:
        one = plan.passes[0]  # later passes use the static fields that the first pass has read
    for window, damaged in (
        (plan.window, one),
        (smaller, one),
        *((plan.window, damage(rng, one)) for _ in range(turns)),
    ):
        same_verdict(damaged, partial(_proved, plan.problem, window), partial(_run, plan.problem, window))


def _proved(problem: Problem, window: Window, one: Pass) -> None:
    validate_pass(problem, one, window)


def _run(problem: Problem, window: Window, one: Pass) -> None:
    run_pass(problem, one, window)


def test_later_passes_find_what_is_only_read_in_memory() -> None:
    """Checks plans that keep static fields in memory. A pass that does not read these fields is legal only if an
    earlier pass has read them. A damaged pass after a legal pass is refused.
    """
    some, updates = KINDS["second order in time"]
    problem = replace(make_problem((40, 9, 5), (1, 1, 1), 6), fields=some, updates=updates)
    sizes = Sizes(levels=2, slab=3, diamond=2, keeps_statics=True)
    plan = build(problem, SCHEMES["wavefront"], sizes, MACHINE, assumed_rate)
    first, later = plan.passes[:2]
    assert later == without_statics(first)
    validate(plan)
    run_pass(problem, later, plan.window, has_statics=True)
    with pytest.raises(IllegalPlan, match="is not in ring"):
        validate_pass(problem, later, plan.window)
    with pytest.raises(IllegalPlan, match="reads static fields again"):
        validate(replace(plan, passes=(first, first, first)))
    for damaged in without_one_action(later):
        verdicts = []
        for prove in (partial(validate, replace(plan, passes=(first, later, damaged))),
                      partial(validate_pass, problem, damaged, plan.window, has_statics=True)):  # fmt: skip
            try:
                prove()
                verdicts.append(True)
            except IllegalPlan:
                verdicts.append(False)
        assert verdicts[0] == verdicts[1]


def large_plan() -> Plan:
    """Return a plan for a grid of 4096 x 2048 x 2048 cells in 2 GiB, with sizes that the tuner could choose."""
    problem = make_problem((2048, 2048, 4096), (1, 1, 1), 128)
    sizes = Sizes(levels=64, slab=71, diamond=8, block_y=248)
    plan = build(problem, SCHEMES["wavefront"], sizes, MACHINE, assumed_rate)
    assert plan.memory_bytes < 2 << 30
    return plan


def test_large_plans_are_proved() -> None:
    """Checks that a large plan can be proved. The time of the proof does not depend on the number of cells. The
    symbolic run would take hours."""
    validate(large_plan(), budget_bytes=2 << 30)


@pytest.mark.parametrize("place", [0.1, 0.5, 0.9])
def test_one_action_in_the_middle_of_a_large_plan_is_missed(place: float) -> None:
    """Checks that the proof of a large plan finds a missing action at any place in the plan."""
    plan = large_plan()
    one = plan.passes[0]
    first = int(place * len(one.actions))
    for index in range(first, first + 4):
        damaged = replace(one, actions=one.actions[:index] + one.actions[index + 1 :])
        with pytest.raises(IllegalPlan, match="action"):
            validate_pass(plan.problem, damaged, plan.window)


def test_thousands_of_levels_in_memory_are_proved_as_few_are() -> None:
    """Checks a plan with 10 000 levels whose last level is missing. The proof must find this, although it skips most
    levels as repetitions."""
    problem = make_problem((16, 16, 16), (1, 1, 1), 10_000)
    plan = build(problem, SCHEMES["wavefront"], Sizes(10_000, 20_000, 2), MACHINE, assumed_rate)
    one = plan.passes[0]
    validate(plan)
    shorter = tuple(replace(a, levels=a.levels - 1) if isinstance(a, Update) else a for a in one.actions)
    with pytest.raises(IllegalPlan, match="not"):
        validate_pass(problem, replace(one, actions=shorter), plan.window)


DAMAGES: dict[str, Callable[[tuple[Action, ...], int], tuple[Action, ...]]] = {
    "dropped": lambda actions, index: actions[:index] + actions[index + 1 :],
    "moved": lambda actions, index: (*actions[:index], *actions[index + 1 :], actions[index]),
    "shrunk": lambda actions, index: (
        *actions[:index], replace(actions[index], zeta1=actions[index].zeta1 - 1), *actions[index + 1 :],
    ),
}  # fmt: skip


SMALL = {"sizes": {"slab": 3}, "memory": "8MiB"}


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """Make a run of three steps and return its directory."""
    place = tmp_path / "begun.oc"
    oc.Simulation("heat7", (60, 12, 12), directory=place, **SMALL).run(3)
    return place


@pytest.fixture(params=sorted(DAMAGES))
def faulty_planner(begun: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the planner by a planner that damages each new plan in the middle of its first pass. The run `begun` was
    made before, with an undamaged plan."""
    right = joint_plan.choose

    def choose(*arguments: object, **more: object) -> TunedPlan:
        choice = right(*arguments, **more)  # type: ignore[arg-type]
        one = choice.plan.passes[0]
        updates = [index for index, action in enumerate(one.actions) if isinstance(action, Update)]
        damaged = replace(one, actions=DAMAGES[request.param](one.actions, updates[len(updates) // 2]))
        return replace(choice, plan=replace(choice.plan, passes=(damaged, *choice.plan.passes[1:])))

    monkeypatch.setattr(joint_plan, "choose", choose)


def content(place: Path) -> dict[str, bytes]:
    """Return the bytes of all files below a directory."""
    return {
        str(path): path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file() and not path.is_symlink()
    }


@pytest.mark.usefixtures("faulty_planner")
def test_a_run_refuses_an_illegal_plan_before_it_writes(tmp_path: Path) -> None:
    """Checks that a run with an illegal plan writes nothing, from Python and from the command line."""
    place = tmp_path / "run.oc"
    with pytest.raises(AssertionError, match=r"pass 0, action \d+, .*please report it"):
        oc.Simulation("heat7", (60, 12, 12), directory=place, **SMALL).run(9)
    with pytest.raises(AssertionError, match="please report it"):
        call(["run", "heat7", "-n", "12", "12", "60", "-t", "9", "-d", str(place), "--slab", "3", "--quiet"])
    with pytest.raises(AssertionError, match="please report it"):
        call(["plan", "heat7", "-n", "12", "12", "60", "-t", "9", "-d", str(place), "--slab", "3", "--check"])
    assert [path.name for path in tmp_path.iterdir()] == ["begun.oc"]


@pytest.mark.usefixtures("faulty_planner")
def test_a_run_that_goes_on_refuses_an_illegal_plan(begun: Path) -> None:
    """Checks that an existing run is not changed if a new plan is illegal."""
    before = content(begun)
    with pytest.raises(AssertionError, match="please report it"):
        call(["resume", str(begun), "-t", "9", "--quiet"])
    with pytest.raises(AssertionError, match="please report it"):
        oc.open(begun).run(9)
    assert content(begun) == before


def test_plan_says_that_it_was_proved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks that `plan --check` prints the seconds of the proof in one line, and writes them to the JSON. A plan
    without `--check` has no such seconds."""
    monkeypatch.chdir(tmp_path)
    words = ["plan", "heat7", "-n", "12", "12", "60", "-t", "9", "-d", "run.oc", "--json", "plan.json"]
    assert call([*words, "--check"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "proved" in line)
    assert "every pass is legal" in line and line.endswith(" s")
    assert '"seconds_proving"' in Path("plan.json").read_text()
    assert call(words) == 0
    assert "proved" not in capsys.readouterr().out
    assert '"seconds_proving"' not in Path("plan.json").read_text()
