"""Check adjoint runs that compute the states of their forward run again, and the plans of such runs."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import outcrop as oc
from adjoint_cases import BOUNDARIES, STENCILS, all_names, compare_with_oracle, seeds_of
from cell_run import run_pass
from execution import storage_with
from outcrop.cli.main import call
from outcrop.durable import sealed
from outcrop.errors import CorruptionError, InputError
from outcrop.language.stencil import Stencil
from outcrop.plan.actions import Read
from outcrop.plan.history import listed, steps_of_pass
from outcrop.plan.plan import Pass, Sizes
from outcrop.plan.planner import choose, smallest_budget_bytes
from outcrop.plan.problem import FieldPlan, Operand, Problem, StagePlan
from outcrop.plan.schemes import SCHEMES
from outcrop.plan.tuner import build
from outcrop.plan.validate import IllegalPlan, validate, validate_pass
from outcrop.run.progress import Progress, Standing
from recomputed import STEPS, as_arrays, run_forward, signal
from strategies import MACHINE, assumed_rate, examples, make_problem

EVERY = 3
RUNS = [
    (name, text)
    for place, name in enumerate(STENCILS)
    for text in (BOUNDARIES if place % 4 == 1 else [BOUNDARIES[(place + 1) % 4]])
]
IN_BLOCKS = [("acoustic2", "fixed"), ("elastic2", "y=mirror:fixed,x=periodic"), ("maxwell_lossy", "mirror"),
             ("gray_scott", "fixed"), ("heat2", "z=periodic"), ("d3q19", "mirror")]  # fmt: skip


@pytest.mark.parametrize(("name", "text"), RUNS)
def test_gradients_are_those_of_the_oracle(name: str, text: str, tmp_path: Path) -> None:
    """Checks that the gradients with respect to all inputs and initial values equal the gradients of the oracle, in
    float64. Some stencils update a field twice in a step, or need previous values of step 0. The first pass is shorter
    than the other passes."""
    check_gradients(STENCILS[name], text, tmp_path)


@pytest.mark.parametrize(("name", "text"), IN_BLOCKS)
def test_gradients_of_blocks_are_those_of_the_oracle(name: str, text: str, tmp_path: Path) -> None:
    """Checks that these gradients also equal the gradients of the oracle if y is divided into blocks."""
    check_gradients(STENCILS[name], text, tmp_path, rows=40, by=6)


def check_gradients(stencil: Stencil, text: str, folder: Path, rows: int = 0, by: int = 0) -> None:
    history = oc.History(EVERY, recompute=True)
    sim, seeds = run_forward(stencil, folder, text, history, rows), seeds_of(stencil, text, rows=rows)
    names, residuals = [*all_names(stencil), *seeds], {key: one.reshape(sim.shape) for key, one in seeds.items()}
    run = sim.adjoint(residuals, wrt=names)
    if by:
        in_blocks = oc.open(run.simulation.directory, sizes={"by": by})
        assert in_blocks.plan(STEPS).plan.blocks_per_pass > 2
        report = in_blocks.run(STEPS, progress="none")
        run = sim.adjoint(residuals, wrt=names, resume=True)
    else:
        report = run.run(progress="none")
    assert (report.bytes_read, report.bytes_written) == (report.predicted.bytes_read, report.predicted.bytes_written)
    assert report.steps == STEPS
    signals = [signal(place) for place, _ in enumerate(stencil.signals)]
    compare_with_oracle(run.gradients, stencil, text, STEPS, signals, rows)


def test_all_ways_give_the_same_bits(tmp_path: Path) -> None:
    """Checks that kept states and recomputed states give the same gradients in float32. Plans have several sizes, and
    the sources depend on a static field."""
    shape, rng = (26, 15, 17), np.random.default_rng(4)
    points = rng.uniform(5.0, 11.0, (3, 3))
    taps: dict[str, Any] = dict(
        sources=[oc.Source("u", points * [1.5, 1, 1], rng.standard_normal((STEPS, 3)), scale=0.1)],
        receivers=[oc.Receivers("line", "u", points + 1)],
    )
    wrt, residuals, right = ["v", "dt", "u", "source"], {"line": rng.standard_normal((STEPS, 3))}, {}
    for number, history in enumerate([oc.History("all"), *(oc.History(k, recompute=True) for k in (2, 3, 4, 9))]):
        folder = tmp_path / str(number)
        sim = oc.Simulation(
            oc.stencils.acoustic(order=4), shape, "float32", folder / "run.oc", memory="64MiB", boundary="fixed", **taps
        )
        sim["u"], sim["v"] = "gaussian", np.random.default_rng(5).uniform(0.2, 0.3, shape).astype("f4")
        sim.run(STEPS, progress="none", history=history)
        run = sim.adjoint(residuals, wrt)
        if number % 2:
            oc.open(run.simulation.directory, sizes={"slab": number}, threads=1).run(STEPS, progress="none")
            run = sim.adjoint(residuals, wrt, resume=True)
        else:
            run.run(progress="none")
        found = run.gradients
        found = {**as_arrays({one: found[one] for one in wrt[:3]}), "source": found["source"][0]}
        right = right or found
        assert np.abs(right["v"]).max() > 0 and np.abs(right["source"]).max() > 0
        for name, value in right.items():
            assert np.array_equal(found[name], value), (history, name)


def test_fields_that_only_the_forward_steps_read(tmp_path: Path) -> None:
    """Checks an adjoint run whose repeated forward steps read static fields that the adjoint itself does not read. The
    gradient equals the gradient from kept states."""
    u, theta, w, dt = oc.Field("u"), oc.Field("theta"), oc.Field("w"), oc.Parameter("dt", 0.1)
    heat = oc.Stencil("heat", {u: u[0, 0] + dt * theta[0, 0] * (u[0, 1] - 2 * u[0, 0] + u[0, -1]) + dt * w[0, 0]})
    found = []
    for number, history in enumerate(["all", oc.History(2, recompute=True)]):
        sim = oc.Simulation(
            heat, (20, 24), directory=tmp_path / str(number) / "run.oc", memory="2MiB",
            receivers=[oc.Receivers("line", "u", [[5.0, 5.0]])], init={"u": "random", "theta": 0.3, "w": 0.2},
        )  # fmt: skip
        sim.run(5, progress="none", history=history)
        adjoint = sim.adjoint({"line": sim.traces["line"]}, "theta")
        assert adjoint.run(progress="none").warning == ""
        found.append(adjoint.gradients["theta"][:])
    assert found[0].any() and np.array_equal(*found)


@pytest.mark.parametrize("others", [[], ["dt", "u", "source"]])
def test_blocks_do_not_change_the_bits(others: list[str], tmp_path: Path) -> None:
    """Checks that blocks in y do not change the bits in float32. Sources and receivers lie near the edges of blocks.
    Planes of the next block are read before a block ends, unless slabs have the maximum thickness. All values of u
    share two rings if only the gradient with respect to v is computed."""
    shape, rng = (48, 48, 17), np.random.default_rng(7)
    points = rng.uniform(3.0, 13.0, (12, 3)) * [3, 0, 1] + [0, 1, 0] * np.linspace(3, 44, 12)[:, np.newaxis]
    taps: dict[str, Any] = dict(
        sources=[oc.Source("u", points, rng.standard_normal((STEPS, 12)), scale=0.1)],
        receivers=[oc.Receivers("line", "u", points + 0.5)],
    )
    wrt, residuals, right = ["v", *others], {"line": rng.standard_normal((STEPS, 12))}, {}
    sim = oc.Simulation(
        oc.stencils.acoustic(order=2), shape, "float32", tmp_path / "run.oc", memory="64MiB", threads=2, **taps
    )
    sim["u"], sim["v"] = "gaussian", rng.uniform(0.2, 0.3, shape).astype("f4")
    sim.run(STEPS, progress="none", history=oc.History(3, recompute=True))
    for number, sizes in enumerate([{}, {"by": 4, "slab": 1}, {"by": 7, "slab": 3}, {"by": 10, "slab": 48}]):
        sim.adjoint(residuals, wrt, tmp_path / f"{number}.oc")
        planned = oc.open(tmp_path / f"{number}.oc", sizes=sizes, threads=2)
        assert (planned.plan(STEPS).plan.blocks_per_pass > 1) == bool(sizes)
        report = planned.run(STEPS, progress="none")
        assert report.bytes_read == report.predicted.bytes_read
        assert report.bytes_written == report.predicted.bytes_written
        found = sim.adjoint(residuals, wrt, tmp_path / f"{number}.oc", resume=True).gradients
        found = as_arrays({name: one[0] if name == "source" else one for name, one in found.items()})
        right = right or found
        assert all(np.any(one) for one in right.values())
        for name, value in right.items():
            assert np.array_equal(found[name], value), (sizes, name)


@pytest.mark.parametrize(
    ("name", "wrt", "are_shared"), [("gray_scott", ["u", "feed"], False), ("acoustic2", ["v"], True)]
)
def test_damaged_rows_between_blocks_are_found(name: str, wrt: list[str], are_shared: bool, tmp_path: Path) -> None:
    """Checks that a pass in blocks detects damage in the fringes of the fields that the pass computes again. The error
    gives the offset of the damage. The adjoint of acoustic2 does not read u, so all values of u share two rings, even
    the values from the history."""
    stencil, offsets = STENCILS[name], []
    sim = run_forward(stencil, tmp_path, "fixed", oc.History(STEPS, recompute=True), 40)
    for number in range(540, 860, 12):
        run = sim.adjoint(seeds_of(stencil, "fixed", rows=40), wrt, force=True)
        in_blocks = oc.open(run.simulation.directory, sizes={"by": 6, "slab": 2})
        plan = in_blocks.plan(STEPS).plan
        try:
            with storage_with({"flip_at": number}):
                in_blocks.run(STEPS, progress="none")
        except CorruptionError as error:
            offsets += [int(found) for found in re.findall(r"rows between blocks .* at offset (\d+)", str(error))]
    problem, kept = plan.problem, plan.recomputed_rows
    rows = plan.scratch_bytes // problem.pitch_bytes // problem.planes
    computed = zip(problem.computed, kept, strict=True)
    count = sum(one for number, one in computed if problem.fields[number].is_history == are_shared)
    places = [one // problem.pitch_bytes % rows - (rows - sum(kept)) for one in offsets]
    assert any(0 <= one < count for one in places), places


def test_interruptions_do_not_change_a_gradient(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that an adjoint run can stop at a state of the history and continue later, in Python and on the command
    line. It cannot stop at other steps."""
    stencil = STENCILS["gray_scott"]
    sim = run_forward(stencil, tmp_path, "fixed", oc.History(EVERY, recompute=True))
    seeds = seeds_of(stencil, "fixed")
    whole = sim.adjoint(seeds, ["u", "feed"], tmp_path / "whole.oc")
    whole.run(progress="none")
    part = sim.adjoint(seeds, ["u", "feed"], tmp_path / "part.oc")
    for planned in (part.simulation.plan(STEPS), part.simulation.prepare(STEPS)):
        assert planned.problem.steps == 2 * EVERY  # the first pass has its own plan
        planned.require_legal()
    with pytest.raises(InputError, match=r"part\.oc ends at step 7 and is at step 0"):
        part.simulation.run(STEPS + EVERY, progress="none")
    with pytest.raises(InputError, match=r"steps 2: .* can stop at a state only; give 1 step$"):
        part.simulation.run(2, progress="none")
    part.simulation.run(1, progress="none")
    again = sim.adjoint(seeds, ["u", "feed"], tmp_path / "part.oc", resume=True)
    again.simulation.run(EVERY, progress="none")
    assert call(["info", str(tmp_path / "part.oc")]) == 0
    assert ", and computes the states in between again; goes back from its step 3" in capsys.readouterr().out
    assert call(["resume", str(tmp_path / "part.oc")]) == 0
    found = sim.adjoint(seeds, ["u", "feed"], tmp_path / "part.oc", resume=True).gradients
    for name, value in as_arrays(whole.gradients).items():
        assert np.array_equal(as_arrays(found)[name], value), name


def test_the_command_resumes_a_run_before_its_first_pass(tmp_path: Path) -> None:
    """Checks that `outcrop resume` runs both parts of an adjoint run: the shorter first pass, and the other passes."""
    stencil = STENCILS["gray_scott"]
    sim = run_forward(stencil, tmp_path, "fixed", oc.History(EVERY, recompute=True))
    seeds = seeds_of(stencil, "fixed")
    whole = sim.adjoint(seeds, "feed")
    whole.run(progress="none")
    sim.adjoint(seeds, "feed", tmp_path / "part.oc")
    assert call(["resume", str(tmp_path / "part.oc"), "--quiet"]) == 0
    found = sim.adjoint(seeds, "feed", tmp_path / "part.oc", resume=True)
    assert found.gradients["feed"] == whole.gradients["feed"] != 0


class Shown(Progress):
    """A progress display that stores all fractions and texts. At the end, it also stores the text of a complete run."""

    texts: ClassVar[list[tuple[float, str]]] = []

    def show(self, standing: Standing) -> None:
        self.texts.append((self._fraction(standing), self._texts(standing)[0]))

    def __exit__(self, *error: object) -> None:
        self.show(Standing(0, 0, self._cells_in_all, 0, 0))


def test_the_progress_is_that_of_all_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that the progress of an adjoint run with a shorter first pass counts all passes and steps from the
    beginning."""
    monkeypatch.setattr("outcrop.run.passes.make_progress", lambda kind, *run: Shown(*run))
    stencil = STENCILS["gray_scott"]
    sim = run_forward(stencil, tmp_path, "fixed", oc.History(EVERY, recompute=True))
    run = sim.adjoint(seeds_of(stencil, "fixed"), "feed")
    Shown.texts.clear()
    run.run(progress="none")
    fractions = [fraction for fraction, _ in Shown.texts]
    assert fractions == sorted(fractions) and fractions[0] <= 1 / STEPS + 1e-9 and fractions[-1] == 1
    assert Shown.texts[0][1].startswith(f"pass 1/3 step 0/{STEPS}, ")
    assert Shown.texts[-1][1].startswith(f"pass 2/3 step 1/{STEPS}, ")  # the second part begins with pass 2


def test_a_run_shorter_than_the_interval_needs_no_more_memory(tmp_path: Path) -> None:
    """Checks that a pass has no more steps than the run."""
    stencil, found = STENCILS["acoustic2"], []
    for every in (STEPS, 10**9):
        history = oc.History(every, recompute=True)
        sim = run_forward(stencil, tmp_path / str(every), "fixed", history)
        with pytest.raises(oc.errors.BudgetError, match="at least") as caught:
            sim.adjoint(seeds_of(stencil, "fixed"), "v", memory="1KiB")
        found.append(str(caught.value))
    assert found[0] == found[1]


def test_too_little_memory_names_the_history_that_fits(tmp_path: Path) -> None:
    """Checks the interval that the error suggests. This is the largest interval with which the adjoint run fits into
    the memory. If no interval fits, the error suggests a history of all states."""
    stencil, wide = STENCILS["acoustic2"], (40, 9, 9)
    seeds, memory = {"u": np.ones(wide)}, {}
    for every in range(1, 6):
        history = oc.History(every, recompute=every > 1)
        sim = oc.Simulation(stencil, wide, "float64", tmp_path / f"{every}.oc", memory="64MiB", init={"v": "0.3"})
        sim.run(STEPS, progress="none", history=history)
        with pytest.raises(oc.errors.BudgetError, match=r"KiB are needed; give a larger memory=$") as caught:
            sim.adjoint(seeds, "v", memory="1KiB")
        memory[every] = int(str(caught.value).rpartition(" KiB")[0].rpartition(" ")[2])
    for every in range(1, 5):
        named = f"oc.History({every}, recompute=True)" if every > 1 else "oc.History('all')"
        with pytest.raises(oc.errors.BudgetError) as caught:
            sim.adjoint(seeds, "v", memory=f"{memory[every]}KiB")
        assert str(caught.value).endswith(f"; give a larger memory=, or run forward again with history={named}")
    sim.adjoint(seeds, "v", memory=f"{memory[5]}KiB")


def test_damage_and_loss_are_found(tmp_path: Path) -> None:
    """Checks that a damaged state of the history is not used, and that a forward run with another stencil is
    refused."""
    stencil = STENCILS["acoustic2"]
    sim = run_forward(stencil, tmp_path, "fixed", oc.History(EVERY, recompute=True))
    run = sim.adjoint(seeds_of(stencil, "fixed"), "v")
    files = (one for one in (tmp_path / "run.oc").rglob("*") if one.is_file())
    state = next(one for one in files if "history/u.previous/c/1" in str(one))
    kept = state.read_bytes()
    state.write_bytes(kept[:999] + bytes([kept[999] ^ 1]) + kept[1000:])
    with pytest.raises(CorruptionError, match="checksum mismatch"):
        run.run(progress="none")
    assert run.remaining_steps == 2 * EVERY  # the pass from the last state to state 2 is committed
    state.write_bytes(kept)
    run = sim.adjoint(seeds_of(stencil, "fixed"), "v", resume=True)
    run.run(progress="none")
    sim.history.free()
    shutil.rmtree(run.simulation.directory)
    with pytest.raises(InputError, match="does not keep"):
        sim.adjoint(seeds_of(stencil, "fixed"), "v")


@pytest.mark.parametrize(
    ("place", "member", "value"),
    [("field", "later", 1024), ("field", "state", 0), ("field", "state", 2), ("entry", "stencil", None),
     ("entry", "stencil", oc.stencils.acoustic(order=8).to_json())],
)  # fmt: skip
def test_manifests_with_wrong_states_are_refused(place: str, member: str, value: Any, tmp_path: Path) -> None:
    """Checks that a run cannot be opened if its manifest describes states that no pass can have."""
    sim = run_forward(STENCILS["acoustic2"], tmp_path, "fixed", oc.History(EVERY, recompute=True))
    where = sim.adjoint(seeds_of(STENCILS["acoustic2"], "fixed"), "v").simulation.directory
    content = json.loads((where / "manifest.json").read_text())
    (content["states"]["fields"][0] if place == "field" else content["states"])[member] = value
    if member == "state":
        content["states"]["fields"][0]["later"] = 1 - value  # after the last update, or before the first update
    (where / "manifest.json").write_bytes(sealed({one: content[one] for one in content if one != "crc32c"}))
    with pytest.raises(InputError):
        oc.open(where)


# --- plans ------------------------------------------------------------------------------------------------------------

WAVE, STATIC = FieldPlan(has_previous=True, name="u"), FieldPlan(is_static=True, is_double=False, flips=False, name="m")
HERE = FieldPlan(is_double=False, flips=False, name="w")
ONE_STAGE = (StagePlan((Operand(0), Operand(0, 1, False), Operand(1)), (0,)),)
TWO_STAGES = (StagePlan((Operand(1, 0, False), Operand(0), Operand(2)), (1,)),
              StagePlan((Operand(0, 0, False), Operand(1)), (0,)))  # fmt: skip
SUM = FieldPlan(is_double=False, flips=False, name="d")
WITH_SUM = (StagePlan((Operand(0), Operand(0, 1, False), Operand(1)), (0, 2)),)
TWICE = (StagePlan((Operand(0), Operand(1)), (0,)), StagePlan((Operand(0), Operand(1)), (0,)))
FORWARD = {
    "waves": ((WAVE, STATIC), ONE_STAGE),
    "fields": ((replace(HERE, name="u"), HERE, replace(STATIC, name="k")), TWO_STAGES),
    "twice": ((FieldPlan(name="u", flips=False), STATIC), TWICE),
    "sum": ((WAVE, STATIC, SUM), WITH_SUM),  # the adjoint does not read u, so the values of u share two rings
}


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Generate random problems of adjoint runs that compute states again."""
    radii = draw(st.tuples(*[st.integers(1, 2)] * 3))
    shape = draw(st.tuples(st.integers(5, 20), st.sampled_from([5, 9, 24, 40]), st.integers(5, 8)))
    pair = st.sampled_from([("fixed", "fixed"), ("periodic", "periodic"), ("fixed", "mirror")])
    steps = draw(st.integers(1, 4))
    problem = replace(make_problem(shape, radii, steps), sides=draw(st.tuples(pair, pair, pair)))
    name = draw(st.sampled_from(list(FORWARD)))
    fields, updates = FORWARD[name]
    forward = replace(problem, fields=fields, updates=updates)
    versions = {"waves": [(1, 0), (1, -1), (0, 0)], "fields": [(1, 0), (0, 0)], "twice": [(1, 0), (1, 1), (0, 0)],
                "sum": [(1, 1)]}[name]  # fmt: skip
    history = "d" if name == "sum" else "u"
    read = [
        replace(STATIC, name=f"u_at{place}", history=history, state=state, later=later)
        for place, (state, later) in enumerate(draw(st.lists(st.sampled_from(versions), min_size=1, unique=True)))
    ]
    adjoint = FieldPlan(name="a"), replace(HERE, name="g"), STATIC
    far = draw(st.booleans())
    reads = (Operand(0), Operand(1, 0, False), Operand(2), *(Operand(3 + one, 0, far) for one in range(len(read))))
    back = draw(st.sampled_from([(StagePlan(reads, (0, 1)),), (StagePlan(reads[1:], (1,)), StagePlan(reads, (0,)))]))
    return replace(problem, fields=(*adjoint, *read), updates=back, every=steps, forward=forward)


@settings(max_examples=examples(40), deadline=None)
@given(problems(), st.integers(1, 5), st.integers(0, 8), st.booleans(), st.randoms(use_true_random=False))
def test_plans_are_legal(problem: Problem, slab: int, by: int, keeps: bool, random: Any) -> None:
    """Checks that all plans are legal, with whole planes and with blocks in y. Both proofs must refuse the same damaged
    passes."""
    problem = listed(problem, problem.steps)
    block_y = 0 if problem.periodic[1] else by
    sizes = Sizes(len(problem.updates), slab, diamond=2, block_y=block_y, keeps_statics=keeps)
    plan = build(problem, SCHEMES["wavefront"], sizes, MACHINE, assumed_rate)
    validate(plan)
    one = plan.passes[0]
    run_pass(problem, one, plan.window)
    check_rows_of_histories(problem, one)
    for place in random.sample(range(len(one.actions)), min(6, len(one.actions))):
        damaged = replace(one, actions=one.actions[:place] + one.actions[place + 1 :])
        verdicts = []
        for prove in (validate_pass, run_pass):
            try:
                prove(problem, damaged, plan.window)
                verdicts.append(True)
            except IllegalPlan:
                verdicts.append(False)
        assert verdicts[0] == verdicts[1], one.actions[place]


def check_rows_of_histories(problem: Problem, one: Pass) -> None:
    """Check the reads of states into rings that levels of the pass also change. All blocks together must read each row
    of such a state exactly once, because the checksum of a state is computed from all rows that are read."""
    histories = [number for number, field in enumerate(problem.fields) if field.is_history]
    times = np.zeros((len(histories), *problem.shape[:2]), int)
    for action in one.actions:
        if isinstance(action, Read) and action.array == "history":
            times[action.level, action.z0 : action.z1, action.area.y0 : action.area.y1] += 1
    assert all(np.all(times[place] == 1) for place, number in enumerate(histories) if number in problem.computed)


def waves(steps: int, shape: tuple[int, int, int] = (2000, 40, 40)) -> Problem:
    """Return the problem of an adjoint run whose passes have `steps` steps."""
    fields, updates = FORWARD["waves"]
    problem = make_problem(shape, (2, 2, 2), steps)
    before = FieldPlan(is_static=True, is_double=False, flips=False, name="u_at", history="u", state=1)
    back = (StagePlan((Operand(0), Operand(1, 0, False), Operand(2), Operand(3)), (0, 1)),)
    return replace(
        problem, fields=(FieldPlan(name="a"), replace(HERE, name="g"), STATIC, before), updates=back, every=steps,
        forward=replace(problem, fields=fields, updates=updates),
    )  # fmt: skip


def test_a_pass_with_too_many_levels_is_refused() -> None:
    assert steps_of_pass(waves(4096), 1) == 4096
    with pytest.raises(InputError, match=r"every 4097 steps, .* at most 4096 steps again; .*History\(4096, recompute"):
        steps_of_pass(waves(4097), 1)


def test_values_that_the_adjoint_does_not_read_share_two_rings() -> None:
    """Checks passes whose adjoint reads only sums of u. The values of u must need two rings, even in a long pass."""
    fields, updates = FORWARD["sum"]
    for steps in (2, 5, 16):
        problem = waves(steps)
        assert problem.forward is not None
        read = replace(problem.fields[3], history="d", later=1)
        forward = replace(problem.forward, fields=fields, updates=updates)
        one = listed(replace(problem, fields=(*problem.fields[:3], read), forward=forward), steps)
        assert [field.history for field in one.fields if field.history] == ["u", "u"] + ["d"] * steps


def test_the_rings_grow_with_the_square_of_the_steps() -> None:
    """Checks the number of planes in the rings of all states. A pass of k steps needs approximately r k^2 planes."""
    for steps in (4, 16, 64):
        one = listed(waves(64), steps)
        window = SCHEMES["wavefront"].window(one, len(one.updates), Sizes(len(one.updates), 1, diamond=2))
        assert 2 * steps**2 <= sum(window.history_planes) <= 2 * (steps + 4) ** 2


def test_blocks_save_memory() -> None:
    """Checks that the smallest window of a wide grid has blocks, and needs at most a third of the memory for whole
    planes."""
    one = listed(waves(6, (200, 320, 64)), 6)
    whole = SCHEMES["wavefront"].window(one, len(one.updates), Sizes(len(one.updates), 1, diamond=2)).bytes
    assert smallest_budget_bytes(one) < whole / 3
    chosen = choose(one, MACHINE, whole // 3, "auto", assumed_rate).plan
    validate(chosen, whole // 3)
    assert chosen.blocks_per_pass > 1 and chosen.scratch_bytes > 0
