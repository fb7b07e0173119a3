"""Check that every plan gives the same bits as the oracle, for stencils with several fields, stages, previous values,
signals and boundaries.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from execution import BACKENDS, array_names, execute_fields, random_state
from field_runs import STENCILS, field_runs, heat, wavelet
from oracle import advance_fields
from outcrop.language.boundary import Boundary
from outcrop.language.compile import available_isas
from outcrop.language.stencil import Stencil
from outcrop.plan.plan import Plan
from outcrop.plan.schemes import SCHEMES
from outcrop.plan.validate import IllegalPlan, validate
from outcrop.run.definition import as_problem
from outcrop.run.disk.layout import make_layout
from rehearsal import rehearse_fields
from strategies import examples


@settings(max_examples=examples(60), deadline=None)
@given(field_runs(), st.integers(0, 2**32 - 1))
def test_plans_of_several_fields_are_legal_and_mean_the_oracles_steps(
    run: tuple[Stencil, Boundary, Plan], seed: int
) -> None:
    """Checks plans for several fields, stages and boundaries. Each plan must be legal, and its execution by NumPy must
    give the right values.
    """
    stencil, boundary, plan = run
    problem = plan.problem
    validate(plan)
    state = random_state(stencil, problem.shape, problem.dtype, seed)
    signals = wavelet(stencil, problem.steps)
    right = advance_fields(stencil, state, {}, problem.steps, boundary, signals)
    found = rehearse_fields(plan, stencil, {}, state, signals)
    for name in array_names(stencil)[0]:
        np.testing.assert_array_equal(found[name], right[name], err_msg=name)


@settings(max_examples=examples(60), deadline=None)
@given(
    field_runs(),
    st.integers(1, 4),
    st.sampled_from(BACKENDS),
    st.sampled_from(available_isas()),
    st.integers(0, 2**32 - 1),
)
def test_executor_gives_the_oracles_bits_of_several_fields(
    run: tuple[Stencil, Boundary, Plan], threads: int, backend: str, isa: str, seed: int
) -> None:
    """Checks runs of several fields: the bits do not depend on the plan, the boundary, the threads or the storage."""
    stencil, boundary, plan = run
    problem = plan.problem
    state = random_state(stencil, problem.shape, problem.dtype, seed)
    signals = wavelet(stencil, problem.steps)
    with tempfile.TemporaryDirectory() as folder:
        result, moved = execute_fields(Path(folder), stencil, plan, state, threads, backend, signals=signals, isa=isa)
    right = advance_fields(stencil, state, {}, problem.steps, boundary, signals)
    for name, array in result.items():
        np.testing.assert_array_equal(array, right[name], err_msg=name)
    assert moved == (plan.predicted.bytes_read, plan.predicted.bytes_written)


@settings(max_examples=examples(60), deadline=None)
@given(field_runs({**STENCILS, "heat": heat}), st.integers(0, 2**32 - 1), st.data())
def test_rings_one_plane_smaller_are_rejected_or_mean_the_same(
    run: tuple[Stencil, Boundary, Plan], seed: int, data: st.DataObject
) -> None:
    """Checks plans in which a ring has one plane less than planned. The validator may accept such a plan, because some
    passes leave a slot unused. The result of an accepted plan must equal the oracle's result."""
    stencil, boundary, plan = run
    problem, planes = plan.problem, list(plan.window.ring_planes)
    several = [ring for ring, copies in enumerate(plan.window.copies) if copies and planes[ring] > 1]
    assume(several)
    planes[data.draw(st.sampled_from(several))] -= 1
    small = replace(plan, window=replace(plan.window, ring_planes=(planes[0], planes[1], planes[2])))
    small = replace(small, predicted=replace(plan.predicted, memory_bytes=small.memory_bytes))
    try:
        validate(small)
    except IllegalPlan:
        event("rejected")
        return
    event("accepted")
    state = random_state(stencil, problem.shape, problem.dtype, seed)
    signals = wavelet(stencil, problem.steps)
    right = advance_fields(stencil, state, {}, problem.steps, boundary, signals)
    found = rehearse_fields(small, stencil, {}, state, signals)
    for name in array_names(stencil)[0]:
        np.testing.assert_array_equal(found[name], right[name], err_msg=name)


@pytest.mark.parametrize("name", sorted(STENCILS))
def test_a_scheme_that_keeps_unfinished_levels_refuses_several_fields(name: str) -> None:
    """Checks that skewed schemes refuse several fields, because they support only one field with one stage."""
    stencil = STENCILS[name]([(0, 0, 1), (1, 0, 0)])
    problem = as_problem(stencil, make_layout((9, 9, 9), "float32"), 2, Boundary(), in_place=False)
    refusal = SCHEMES["skewed-5y"].refusal(problem)
    assert refusal is not None and "only one field" in refusal
