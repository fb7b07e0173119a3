"""Check adjoint runs that read the states of their forward run. Such adjoint runs compute gradients with respect to
static fields, parameters and signals, or belong to stencils that are not linear."""

from __future__ import annotations

import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import outcrop as oc
from adjoint_cases import BOUNDARIES, STENCILS, all_names, compare_with_oracle, grid, seeds_of, values
from backwards import PLAIN, State, Steps, put, reverse
from cell_run import run_pass
from outcrop.axes import PLACES
from outcrop.cli.main import call
from outcrop.errors import CorruptionError, InputError, StorageError
from outcrop.language.adjoint import adjoint_of
from outcrop.language.boundary import FIXED
from outcrop.language.stencil import Stencil
from outcrop.plan.history import listed
from outcrop.plan.plan import Sizes
from outcrop.plan.problem import FieldPlan, Operand, Problem, StagePlan
from outcrop.plan.schemes import SCHEMES
from outcrop.plan.tuner import build
from outcrop.plan.validate import IllegalPlan, validate, validate_pass
from outcrop.run.places import open_state
from strategies import MACHINE, assumed_rate, examples, make_problem

STEPS = 5
NEED_MORE = {"acoustic4_2d_sponge", "older", "damped", "driven", "twice", "fourth"}
"""Stencils whose gradients need values that a history does not have: the previous values at step 0, or values in the
middle of a step."""
RUNS = [
    (name, text)
    for place, name in enumerate(STENCILS)
    for text in (BOUNDARIES if place % 4 == 0 else [BOUNDARIES[place % 4]])
]


def run_forward(
    stencil: Stencil, folder: Path, text: str = "fixed", dtype: str = "float64", history: int | str | None = "all",
    spare: int = 5,
) -> oc.Simulation:  # fmt: skip
    """Run a stencil on a tiny grid, from random values. The run keeps its states."""
    _, whole = grid(stencil, text, spare)
    shape = tuple(whole[place] for place in PLACES[stencil.ndim])
    rng = np.random.default_rng(2)
    signals = {name: rng.random(STEPS).tolist() for name in stencil.signals}
    sim = oc.Simulation(
        stencil, shape, dtype, folder / "run.oc", memory="64MiB", threads=2, unstable=True, signals=signals or None,
        boundary=text.rpartition(",")[2] if stencil.ndim == 1 else text,
    )  # fmt: skip
    sim.assign({name: one.reshape(shape) for name, one in values(stencil, whole, 1).items()})
    sim.run(STEPS, progress="none", history=None if history is None else oc.History(history))
    return sim


@pytest.mark.parametrize(("name", "text"), [one for one in RUNS if one[0] not in NEED_MORE])
def test_gradients_of_a_run_are_those_of_the_oracle(name: str, text: str, tmp_path: Path) -> None:
    """Checks that the gradients of a whole run equal the gradients of the oracle, in float64. They are gradients with
    respect to all static fields, parameters, signals and initial values. The oracle keeps all states in memory."""
    stencil = STENCILS[name]
    sim, seeds = run_forward(stencil, tmp_path, text), seeds_of(stencil, text)
    names = [*all_names(stencil), *seeds]
    run = sim.adjoint({key: one.reshape(sim.shape) for key, one in seeds.items()}, wrt=names)
    run.run(progress="none")
    rng = np.random.default_rng(2)
    signals = [rng.random(STEPS) for _ in stencil.signals]
    compare_with_oracle(run.gradients, stencil, text, STEPS, signals)


def test_every_plan_gives_the_same_bits(tmp_path: Path) -> None:
    """Checks that a gradient does not depend on the sizes of a plan, the number of threads and the interface to
    storage."""
    stencil = STENCILS["gray_scott"]
    sim = run_forward(stencil, tmp_path, dtype="float32", spare=29)
    seeds = {name: one.astype("float32") for name, one in seeds_of(stencil, "fixed", 29).items()}
    wrt = [*all_names(stencil), "u"]
    first = sim.adjoint(seeds, wrt, tmp_path / "first.oc")
    first.run(progress="none")
    right = {name: np.array(first.gradients[name][:] if name == "u" else first.gradients[name]) for name in wrt}
    ios: list[dict[str, Any]] = [{"io": "threads"}, {}, {}, {}, {}]
    sizes = [{"bt": 1, "slab": 1}, {"bt": 2, "by": 12}, {"bt": 3, "slab": 5}, {"bt": 5, "by": 12, "slab": 2}, {"bt": 4}]
    for number, (one, more) in enumerate(zip(sizes, ios, strict=True)):
        place = tmp_path / f"adjoint-{number}.oc"
        sim.adjoint(seeds, wrt, place)
        oc.open(place, sizes=one, threads=1 + number % 2, **more).run(STEPS, progress="none")
        found = sim.adjoint(seeds, wrt, place, resume=True).gradients
        for name, value in right.items():
            assert np.array_equal(found[name][:] if name == "u" else found[name], value), (one, name)


def test_interruptions_do_not_change_a_gradient(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that an adjoint run can stop after any step and continue later, in Python and on the command line."""
    stencil = STENCILS["acoustic2"]
    sim, seeds = run_forward(stencil, tmp_path), seeds_of(stencil, "fixed")
    whole = sim.adjoint(seeds, "v", tmp_path / "whole.oc")
    whole.run(progress="none")
    sim.adjoint(seeds, "v", tmp_path / "parts.oc")
    for steps in (1, 2):
        oc.open(tmp_path / "parts.oc").run(steps, progress="none")
    assert oc.open(tmp_path / "run.oc").adjoint(seeds, "v", tmp_path / "parts.oc", resume=True).remaining_steps == 2
    assert call(["info", str(tmp_path / "parts.oc")]) == 0
    shown = capsys.readouterr().out
    assert "step 3 of 5, unfinished: outcrop resume" in shown
    assert f"the states of {tmp_path / 'run.oc'}; goes back from its step 2" in shown
    assert call(["resume", str(tmp_path / "parts.oc"), "--quiet"]) == 0
    parts = oc.open(tmp_path / "run.oc").adjoint(seeds, "v", tmp_path / "parts.oc", resume=True)
    assert np.array_equal(parts.gradients["v"][:], whole.gradients["v"][:])


def test_a_damaged_state_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that an adjoint run stops at a damaged state, and that its last committed pass stays intact. `outcrop
    verify` also finds the damage."""
    stencil = STENCILS["acoustic2"]
    sim, seeds = run_forward(stencil, tmp_path), seeds_of(stencil, "fixed")
    (path,) = (tmp_path / "run.oc").glob("snapshots.zarr/history/u/c/2/0/0/0")
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    run = sim.adjoint(seeds, "v")
    place = str(run.simulation.directory)
    assert call(["verify", place]) == 0
    assert f" of the states of {tmp_path / 'run.oc'} that it will read" in capsys.readouterr().out
    path.write_bytes(data)
    assert call(["verify", place]) == 2
    found = capsys.readouterr()
    assert "history/u/c/2/0/0/0 is damaged: checksum mismatch" in found.out and ": 1 of " in found.err
    with pytest.raises(CorruptionError, match=r"history/u/c/2/0/0/0 is damaged: checksum mismatch; step \d of 5"):
        run.run(progress="none")
    path.unlink()
    with pytest.raises(StorageError, match="history/u/c/2/0/0/0"):
        run.run(progress="none")
    assert call(["verify", place]) == 2 and "cannot be read" in capsys.readouterr().out
    sim.history.free()
    assert call(["verify", place]) == 2 and "was freed, and the adjoint run needs its states" in capsys.readouterr().out


def test_states_that_are_not_kept_are_missed_at_once(tmp_path: Path) -> None:
    """Checks the messages if the forward run keeps no states, or lacks states that the gradient needs."""
    acoustic, seeds = STENCILS["acoustic2"], seeds_of(STENCILS["acoustic2"], "fixed")
    sim = run_forward(acoustic, tmp_path, history=None)
    with pytest.raises(InputError, match=r"gradient with respect to v needs u after each step.*does not keep; run it"):
        sim.adjoint(seeds, "v")
    assert [one.name for one in tmp_path.iterdir()] == ["run.oc"]
    sim.adjoint(seeds, "u")  # this adjoint needs no state
    with pytest.raises(InputError, match="adjoint of gray_scott, which is not linear, needs u, v after each step"):
        (tmp_path / "nonlinear").mkdir()
        sim = run_forward(STENCILS["gray_scott"], tmp_path / "nonlinear", history=None)
        sim.adjoint(seeds_of(STENCILS["gray_scott"], "fixed"), "u")


@pytest.mark.parametrize(
    ("name", "wrt", "message"),
    [
        ("gray_scott", "feed", "which is not linear, needs u, v after each step, but .* keeps every 3 steps; run it"),
        ("signals", "s", "respect to signal s needs u after each step, but .* keeps every 3 steps"),
        ("elastic2", ["lam", "b"], "with respect to lam needs .*, but .* keeps every 3 steps"),
        ("maxwell", "eps", "needs products of neighbours in each step, but .* keeps every 3 steps; run it with hist"),
    ],
)
def test_gradients_that_need_every_state_say_so(name: str, wrt: Any, message: str, tmp_path: Path) -> None:
    sim = run_forward(STENCILS[name], tmp_path, history=3)
    seeds = {key: one.reshape(sim.shape) for key, one in seeds_of(STENCILS[name], "fixed").items()}
    with pytest.raises(InputError, match=message):
        sim.adjoint(seeds, wrt)


@pytest.mark.parametrize(("every", "steps"), [(2, 7), (4, 7)])
@pytest.mark.parametrize(("name", "wrt"), [("acoustic2", ["v", "dt"]), ("heat7", ["c0"]), ("elastic2", ["lam"])])
def test_a_sampled_gradient_is_the_sum_over_the_kept_states(
    name: str, wrt: list[str], every: int, steps: int, tmp_path: Path
) -> None:
    """Checks gradients from every k-th state. Such a gradient is k times the sum over the steps whose states are kept.
    The gradient with respect to the initial values is exact. All plans and all interruptions give the same bits."""
    stencil, seeds = STENCILS[name], seeds_of(STENCILS[name], "fixed")
    _boundary, shape = grid(stencil, "fixed", 5)
    state = values(stencil, shape, 1)
    sim = oc.Simulation(stencil, shape, "float64", tmp_path / "run.oc", memory="64MiB", unstable=True)
    sim.assign(state)
    sim.run(steps, progress="none", history=oc.History(every))
    names, updated = [*wrt, next(iter(seeds))], next(iter(seeds))
    run = sim.adjoint(seeds, names)
    run.run(progress="none")
    found = {one: np.array(run.gradients[one][:] if one in state else run.gradients[one]) for one in names}
    expected = sampled_gradients(stencil, shape, state, wrt, steps, every, seeds)
    for one in wrt:
        assert np.abs(found[one] - expected[one]).max() <= 1e-12 * np.abs(expected[one]).max(), one
    whole = sim.adjoint(seeds, updated, tmp_path / "whole.oc")
    whole.run(progress="none")
    assert np.array_equal(whole.gradients[updated][:], found[updated])
    for number, sizes in enumerate([{"bt": 1, "slab": 1}, {"bt": 2 * every, "slab": 3}]):
        place = tmp_path / f"{number}.oc"
        sim.adjoint(seeds, names, place)
        oc.open(place, sizes=sizes).run(1 + number, progress="none")
        again = sim.adjoint(seeds, names, place, resume=True)
        again.run(progress="none")
        for one in names:
            assert np.array_equal(again.gradients[one][:] if one in state else again.gradients[one], found[one])


def sampled_gradients(
    stencil: Stencil, shape: tuple[int, ...], state: State, wrt: list[str], steps: int, every: int, seeds: State
) -> State:
    """Return `every` times the sum of the gradients of the steps that begin at a kept state. The gradient of one step
    is the difference of two gradients: of this and all later steps, and of the later steps alone. The oracle computes
    both gradients."""
    forward, derived = Steps(stencil, FIXED, PLAIN, put), adjoint_of(stencil, wrt)
    row = [one.default for one in stencil.parameters]
    total: State = dict.fromkeys(wrt, 0.0)
    now = dict(state)
    after = {version: version.updates for version in derived.history.values()}
    offset = 1 if 0 in after.values() else 0  # a step from t - 1 to t reads state t - 1, or state t
    for step in range(1, steps + 1):
        from_here = reverse(derived, forward, now, [row] * (steps - step + 1), seeds).gradients
        now |= forward.advance(now, row)
        later = dict.fromkeys(wrt, 0.0)
        if step < steps:
            later = reverse(derived, forward, now, [row] * (steps - step), seeds).gradients
        if (step - offset) % every == 0:
            total = {name: total[name] + every * (from_here[name] - later[name]) for name in wrt}
    return total


@pytest.mark.parametrize(
    ("name", "wrt", "message"),
    [
        ("damped", "k", r"contains u\(t - dt\) in each step, and for the first step a history without"),
        ("twice", "v", "needs u in the middle of a step, because several stages update it"),
    ],
)
def test_values_that_no_history_has_are_refused(name: str, wrt: str, message: str, tmp_path: Path) -> None:
    sim = run_forward(STENCILS[name], tmp_path)
    seeds = {key: one.reshape(sim.shape) for key, one in seeds_of(STENCILS[name], "fixed").items()}
    with pytest.raises(InputError, match=message):
        sim.adjoint(seeds, wrt)


def test_a_forward_run_that_has_changed_is_refused(tmp_path: Path) -> None:
    """Checks that an adjoint run never reads states of another run, and says which run is missing."""
    stencil = STENCILS["acoustic2"]
    sim, seeds = run_forward(stencil, tmp_path), seeds_of(stencil, "fixed")
    run = sim.adjoint(seeds, "v")
    sim.history.free()
    with pytest.raises(InputError, match=r"the history of .*run\.oc was freed"):
        run.run(progress="none")
    shutil.rmtree(tmp_path / "run.oc")
    with pytest.raises(InputError, match=r"run\.oc"):
        run.run(progress="none")
    run_forward(stencil, tmp_path)
    with pytest.raises(InputError, match="is no longer the run at step 5 to which this adjoint run belongs"):
        run.run(progress="none")


def test_a_run_that_moves_or_goes_on_keeps_its_adjoint(tmp_path: Path) -> None:
    """Checks that an unfinished adjoint run continues after its forward run has moved to another directory."""
    stencil = STENCILS["acoustic2"]
    (tmp_path / "here").mkdir()
    sim, seeds = run_forward(stencil, tmp_path / "here"), seeds_of(stencil, "fixed")
    whole = sim.adjoint(seeds, "v", tmp_path / "whole.oc")
    whole.run(progress="none")
    sim.adjoint(seeds, "v")
    oc.open(tmp_path / "here" / "run-adjoint.oc").run(2, progress="none")
    (tmp_path / "here").rename(tmp_path / "there")
    with pytest.raises(InputError, match=r"here/run\.oc"):
        oc.open(tmp_path / "there" / "run-adjoint.oc").run(progress="none")
    moved = oc.open(tmp_path / "there" / "run.oc").adjoint(seeds, "v", resume=True)
    assert moved.remaining_steps == 3
    oc.open(tmp_path / "there" / "run.oc").run(1, progress="none", history=oc.History("all"))  # states 0 to 5 stay
    moved.run(progress="none")
    assert np.array_equal(moved.gradients["v"][:], whole.gradients["v"][:])


def test_states_may_be_readable_only(tmp_path: Path) -> None:
    """Checks that a reverse pass changes no file of the forward run."""
    stencil = STENCILS["acoustic2"]
    sim, seeds = run_forward(stencil, tmp_path), seeds_of(stencil, "fixed")
    run = sim.adjoint(seeds, "v")
    files = [one for one in (tmp_path / "run.oc" / "snapshots.zarr").rglob("*") if one.is_file()]
    before = {one: (one.read_bytes(), one.stat().st_mtime_ns) for one in files}
    for one in files:
        one.chmod(0o444)
    run.run(progress="none")
    assert before == {one: (one.read_bytes(), one.stat().st_mtime_ns) for one in files}


def test_the_path_of_the_forward_run_must_be_absolute(tmp_path: Path) -> None:
    stencil = STENCILS["acoustic2"]
    sim, seeds = run_forward(stencil, tmp_path), seeds_of(stencil, "fixed")
    run = sim.adjoint(seeds, "v").simulation
    state = open_state(run.directory)
    assert state.manifest.states is not None
    state.change(states=replace(state.manifest.states, run="run.oc"))
    with pytest.raises(InputError, match=r"names the run with its states by .run\.oc., which is not absolute"):
        oc.open(run.directory).run(progress="none")


def test_an_adjoint_of_an_adjoint_that_reads_states_is_refused(tmp_path: Path) -> None:
    sim = run_forward(STENCILS["gray_scott"], tmp_path)
    run = sim.adjoint(seeds_of(STENCILS["gray_scott"], "fixed"), "u")
    run.run(progress="none")
    with pytest.raises(InputError, match="is an adjoint run that reads states of another run; it has no adjoint"):
        run.simulation.adjoint({"u_adj": "0.0"}, "u_adj")


def test_mapped_files_cannot_be_replaced(tmp_path: Path) -> None:
    stencil = STENCILS["acoustic2"]
    sim, seeds = run_forward(stencil, tmp_path), seeds_of(stencil, "fixed")
    sim.adjoint(seeds, "v")
    with pytest.raises(InputError, match="io mmap cannot read the states of another run; choose another io"):
        oc.open(tmp_path / "run-adjoint.oc", io="mmap").run(STEPS, progress="none")


# --- plans ------------------------------------------------------------------------------------------------------------

LATER = FieldPlan(has_previous=True)
SUM, READ = FieldPlan(is_double=False, flips=False), FieldPlan(is_static=True, is_double=False, flips=False)
BEFORE, AFTER = replace(READ, history="u", state=1), replace(READ, history="u", state=0)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Generate random problems that read states, with one or two stages and with different radii."""
    radii = draw(st.tuples(*[st.integers(1, 2)] * 3))
    shape = draw(st.tuples(st.integers(5, 22), st.sampled_from([5, 12]), st.integers(5, 8)))
    pair = st.sampled_from([("fixed", "fixed"), ("periodic", "periodic"), ("fixed", "mirror")])
    problem = make_problem(shape, radii, draw(st.integers(1, 5)))
    far = draw(st.booleans())
    gradient = Operand(3, 0, far), Operand(1, 0, False), Operand(0, 0, False)
    wave = Operand(0), Operand(0, 1, False), Operand(2), Operand(4, 0, False)
    updates = draw(
        st.sampled_from([(StagePlan((*gradient, *wave), (0, 1)),), (StagePlan(gradient, (1,)), StagePlan(wave, (0,)))])
    )
    fields = LATER, SUM, READ, BEFORE, AFTER
    problem = replace(problem, fields=fields, updates=updates, sides=draw(st.tuples(pair, pair, pair)))
    return listed(problem, draw(st.integers(1, problem.steps)))


@settings(max_examples=examples(40), deadline=None)
@given(problems(), st.integers(1, 5), st.sampled_from([0, 3, 6]), st.booleans())
def test_plans_with_states_are_legal(problem: Problem, slab: int, block_y: int, keeps: bool) -> None:
    """Checks that all plans are legal, and that they read each state of a pass once. Without one of its reads, a pass
    must be refused."""
    block_y = 0 if problem.periodic[1] else block_y
    sizes = Sizes(len(problem.updates), slab, diamond=2, block_y=block_y, keeps_statics=keeps)
    plan = build(problem, SCHEMES["wavefront"], sizes, MACHINE, assumed_rate)
    validate(plan)
    one = plan.passes[0]
    run_pass(problem, one, plan.window)
    reads = [place for place, action in enumerate(one.actions) if getattr(action, "array", "") == "history"]
    for place in reads[:: max(1, len(reads) // 4)]:
        damaged = replace(one, actions=one.actions[:place] + one.actions[place + 1 :])
        verdicts = []
        for prove in (validate_pass, run_pass):
            try:
                prove(problem, damaged, plan.window)
                verdicts.append(True)
            except IllegalPlan:
                verdicts.append(False)
        assert verdicts[0] == verdicts[1]


def test_a_state_takes_few_planes() -> None:
    """Checks that the ring of a state does not grow with the number of levels of a pass."""
    problem = replace(
        make_problem((200, 40, 40), (2, 2, 2), 16), fields=(LATER, SUM, READ, BEFORE),
        updates=(StagePlan((Operand(0), Operand(0, 1, False), Operand(2), Operand(3), Operand(1, 0, False)), (0, 1)),),
    )  # fmt: skip
    for steps, slab in product((1, 4, 16), (1, 8)):
        window = SCHEMES["wavefront"].window(listed(problem, steps), steps, Sizes(steps, slab, diamond=2))
        assert window.history_planes == (2 * slab + 4,) * steps
