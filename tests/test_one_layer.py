"""Check runs with both arrays in one window. The plans are legal, and the runs give the same bits as the oracle, in
plain memory and in a mapped file."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle import advance
from outcrop import _core
from outcrop.bench.literature import one_layer
from outcrop.bench.literature.one_layer import ArrayMemory, OneLayerRun
from outcrop.errors import InputError
from outcrop.language.compile import compile_kernel
from outcrop.language.stencil import Stencil
from outcrop.plan.actions import Update
from outcrop.plan.plan import Pass, Plan, Sizes
from outcrop.plan.problem import Problem
from outcrop.plan.validate import IllegalPlan, validate_one_layer
from outcrop.run.engine import pack_scalars
from rehearsal import rehearse_one_layer
from strategies import MACHINE, PLAIN, USERS, assumed_rate, examples, make_problem, problems, sizes_for

# Only stencils whose field has two copies can run in one layer. Each level reads one copy and writes the other copy.
FOR_ALL = sorted((name, make) for name, make in {**PLAIN, **USERS}.items() if make().storage[0].is_double)


@st.composite
def plans(draw: st.DrawFn, problem: Problem | None = None) -> Plan:
    """Generate a random plan with any sizes, with or without padding. The plan is for the given problem. Without
    `problem`, the plan is for a random problem."""
    problem = one_layer.in_memory(problem or draw(problems()), draw(st.booleans()))
    return one_layer.make_plan(problem, draw(sizes_for(problem)), MACHINE, assumed_rate)


@st.composite
def runs(draw: st.DrawFn) -> tuple[Stencil, Plan]:
    """Generate a random stencil on a small grid of irregular shape, with any plan."""
    stencil = draw(st.sampled_from(FOR_ALL))[1]()
    shape = draw(st.tuples(st.integers(1, 30), st.integers(1, 24), st.integers(1, 90)))
    dtype = draw(st.sampled_from(["float32", "float64"]))
    problem = make_problem(shape, stencil.radii, draw(st.integers(1, 12)), dtype)
    return stencil, draw(plans(replace(problem, stencil=stencil.name)))


@given(plans())
def test_every_plan_is_legal(plan: Plan) -> None:
    """Checks that all plans are legal: each update finds the previous level."""
    assert sum(one.levels for one in plan.passes) == plan.problem.steps
    for one in dict.fromkeys(plan.passes):
        validate_one_layer(plan.problem, one, plan.window)


@given(plans(make_problem((19, 17, 20), (1, 2, 1), 6)), st.integers(0, 999))
def test_a_dropped_update_is_rejected(plan: Plan, number: int) -> None:
    """Checks that the validator rejects a plan if an update is missing."""
    one = plan.passes[0]
    index = number % len(one.actions)
    rest = one.actions[:index] + one.actions[index + 1 :]
    with pytest.raises(IllegalPlan):
        validate_one_layer(plan.problem, replace(one, actions=rest), plan.window)


@settings(max_examples=examples(60), deadline=None)
@given(runs(), st.integers(0, 999), st.integers(0, 2**32 - 1))
def test_a_late_update_is_rejected_or_harmless(run: tuple[Stencil, Plan], number: int, seed: int) -> None:
    """Moves an update to the end of each pass. The validator must reject the passes, or their result must be right."""
    stencil, plan = run

    def late(one: Pass) -> Pass:
        index = number % max(1, len(one.actions))
        return replace(one, actions=(*one.actions[:index], *one.actions[index + 1 :], *one.actions[index : index + 1]))

    moved = replace(plan, passes=tuple(map(late, plan.passes)))
    try:
        for one in dict.fromkeys(moved.passes):
            validate_one_layer(plan.problem, one, plan.window)
    except IllegalPlan:
        return
    initial = np.random.default_rng(seed).random(plan.problem.shape).astype(plan.problem.dtype)
    rehearsed = rehearse_one_layer(moved, stencil, {}, initial)
    assert np.array_equal(rehearsed, advance(stencil, initial, {}, plan.problem.steps))


def test_an_update_that_later_updates_need_must_not_be_late() -> None:
    """Checks that the validator rejects a plan whose first update is moved to the end."""
    problem = one_layer.in_memory(make_problem((19, 17, 20), (1, 2, 1), 6), False)
    plan = one_layer.make_plan(problem, Sizes(3, 4, 0), MACHINE, assumed_rate)
    one = plan.passes[0]
    validate_one_layer(problem, one, plan.window)
    with pytest.raises(IllegalPlan):
        validate_one_layer(problem, replace(one, actions=(*one.actions[1:], one.actions[0])), plan.window)


@settings(max_examples=examples(60), deadline=None)
@given(runs(), st.integers(0, 2**32 - 1))
def test_rehearsal_gives_the_oracles_bits(run: tuple[Stencil, Plan], seed: int) -> None:
    """Checks that the actions of a plan are right. NumPy performs these actions, and the result must equal the result
    of plain steps."""
    stencil, plan = run
    initial = np.random.default_rng(seed).random(plan.problem.shape).astype(plan.problem.dtype)
    rehearsed = rehearse_one_layer(plan, stencil, {}, initial)
    assert np.array_equal(rehearsed, advance(stencil, initial, {}, plan.problem.steps))


@settings(max_examples=examples(75), deadline=None)
@given(runs(), st.booleans(), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_runs_give_the_oracles_bits(run: tuple[Stencil, Plan], in_a_file: bool, threads: int, seed: int) -> None:
    """Checks that runs in one layer give the same bits as the oracle, with or without padding, in plain memory or in a
    file.

    If a mapped file is the memory of the window, this file contains the result at the end."""
    stencil, plan = run
    problem = plan.problem
    initial = np.random.default_rng(seed).random(problem.shape).astype(problem.dtype)
    right = advance(stencil, initial, {}, problem.steps)
    kernel = compile_kernel(stencil, problem.dtype).calls
    with tempfile.TemporaryDirectory() as folder:
        path, size = Path(folder) / "arrays", plan.window.bytes
        memory = ArrayMemory.mapped(path, size) if in_a_file else ArrayMemory.plain(size)
        runner = OneLayerRun(plan, kernel, pack_scalars(stencil, {}, problem.dtype), threads, memory)
        runner.fill(lambda z0, z1: initial[z0:z1], 3)
        for index in range(len(plan.passes)):
            runner.run_pass(index)
        assert np.array_equal(runner.current, right)
        updates = [action for one in plan.passes for action in one.actions if isinstance(action, Update)]
        assert (runner.counters()["cells_updated"] > 0) == bool(updates)
        if in_a_file:
            stored = ArrayMemory(np.fromfile(path, np.uint8))
            again = OneLayerRun(plan, kernel, pack_scalars(stencil, {}, problem.dtype), 1, stored)
            assert any(np.array_equal(again.array(which), right) for which in (0, 1))


def test_padding_keeps_rows_and_planes_apart() -> None:
    """Checks the padding in column 6 of the ladder. The distance between rows is an odd number of cache lines. The
    distance between planes is an odd number of pages and a few cache lines.

    Without padding, no bytes are between rows or between planes."""
    for nx in (1, 16, 512, 1024, 1000):
        problem = make_problem((4, 64, nx), (1, 1, 1), 2)
        plain, padded = (one_layer.in_memory(problem, flag) for flag in (False, True))
        assert plain.record_bytes == plain.plane_bytes == 64 * plain.pitch_bytes == 64 * problem.pitch_bytes
        assert padded.pitch_bytes // 64 % 2 == 1 and padded.record_bytes >= padded.plane_bytes
        assert padded.record_bytes // 4096 % 2 == 1 and padded.record_bytes // 64 % 2 == 1


def test_too_little_memory_is_refused() -> None:
    """Checks that an array smaller than the window is refused. A run would overwrite the memory after the array."""
    problem = one_layer.in_memory(make_problem((9, 9, 9), (1, 1, 1), 2), False)
    plan = one_layer.make_plan(problem, Sizes(2, 9, 2), MACHINE, assumed_rate)
    with pytest.raises(InputError, match="less than the window takes"):
        OneLayerRun(plan, (), b"", 1, ArrayMemory(_core.aligned_array(plan.window.bytes - 1)))
