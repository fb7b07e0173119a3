"""Check that the executor gives the same bits as the oracle, for each plan, grid, tiling, number of threads, backend
and window size.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from execution import BACKENDS, execute_fields
from oracle import advance
from outcrop import _core
from outcrop.errors import CorruptionError, StorageError
from outcrop.language.boundary import FIXED
from outcrop.language.library import find_stencil
from outcrop.language.stencil import Stencil
from outcrop.plan.plan import Plan, Sizes
from outcrop.plan.problem import Problem
from outcrop.plan.schemes import SCHEMES
from outcrop.plan.tuner import build
from outcrop.plan.validate import validate
from outcrop.run.definition import as_problem
from outcrop.run.disk.layout import PlaneLayout, make_layout
from rehearsal import rehearse
from strategies import MACHINE, PLAIN, USERS, assumed_rate, examples, schemes_for, sizes_for

MACHINES = ["numa:2 core:4 pu:1", "numa:4 core:1 pu:2", "numa:3 core:2 pu:1", "pack:2 numa:4 core:1 pu:1"]
"""Machines with several NUMA nodes, in the notation of hwloc."""


@st.composite
def runs(draw: st.DrawFn) -> tuple[Stencil, Problem, Plan]:
    """Generate a random stencil of the library or of a user on a small grid of irregular shape, with any legal plan."""
    stencil = draw(st.sampled_from(sorted({**PLAIN, **USERS}.items())))[1]()
    few_rows = st.integers(1, 3)  # on a grid of two axes, a plane has one row
    shape = draw(st.tuples(st.integers(1, 30), few_rows | st.integers(1, 24), st.integers(1, 90)))
    layout = make_layout(shape, draw(st.sampled_from(["float32", "float64"])), draw(st.none() | st.integers(1, 5)))
    problem = as_problem(stencil, layout, draw(st.integers(1, 12)), FIXED, in_place=draw(st.booleans()))
    scheme = draw(schemes_for(problem))
    return stencil, problem, build(problem, scheme, draw(sizes_for(problem)), MACHINE, assumed_rate)


@settings(max_examples=examples(75), deadline=None)
@given(runs(), st.integers(1, 4), st.sampled_from(BACKENDS), st.integers(0, 2**32 - 1))
def test_executor_gives_the_oracles_bits(
    run: tuple[Stencil, Problem, Plan], threads: int, backend: str, seed: int
) -> None:
    """Checks that the bits do not depend on the plan, the threads or the storage."""
    stencil, problem, plan = run
    initial = np.random.default_rng(seed).random(problem.shape).astype(problem.dtype)
    with tempfile.TemporaryDirectory() as folder:
        result, moved = execute(Path(folder), stencil, plan, initial, threads, backend)
    assert np.array_equal(result, advance(stencil, initial, {}, problem.steps))
    assert moved == (plan.predicted.bytes_read, plan.predicted.bytes_written)


@pytest.mark.skipif(not _core.has_hwloc(), reason="built without hwloc")
@settings(max_examples=examples(60), deadline=None)
@given(runs(), st.integers(1, 8), st.sampled_from(MACHINES), st.integers(0, 2**32 - 1))
def test_several_nodes_give_the_oracles_bits(
    run: tuple[Stencil, Problem, Plan], threads: int, topology: str, seed: int
) -> None:
    """Checks that the bits are the same on several NUMA nodes, which have their own rows and tiles. The nodes are
    simulated.
    """
    stencil, problem, plan = run
    initial = np.random.default_rng(seed).random(problem.shape).astype(problem.dtype)
    with tempfile.TemporaryDirectory() as folder:
        result, moved = execute(Path(folder), stencil, plan, initial, threads, "threads", topology=topology)
    assert np.array_equal(result, advance(stencil, initial, {}, problem.steps))
    assert moved == (plan.predicted.bytes_read, plan.predicted.bytes_written)


@settings(max_examples=examples(60), deadline=None)
@given(runs(), st.integers(0, 2**32 - 1))
def test_rehearsal_gives_the_oracles_bits(run: tuple[Stencil, Problem, Plan], seed: int) -> None:
    """Checks that the actions of a plan are right. NumPy performs these actions, and the result must equal the result
    of plain steps."""
    stencil, problem, plan = run
    initial = np.random.default_rng(seed).random(problem.shape).astype(problem.dtype)
    assert np.array_equal(rehearse(plan, stencil, {}, initial), advance(stencil, initial, {}, problem.steps))


@st.composite
def linked_runs(draw: st.DrawFn) -> tuple[Stencil, Problem, Sizes]:
    """Generate a random wavefront plan in blocks. The grid has so many planes that the first planes of the next block
    are read before a block ends."""
    stencil = draw(st.sampled_from(sorted({**PLAIN, **USERS}.items())))[1]()
    skew = max(1, *stencil.radii)
    levels, slab = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    planes = 2 * slab + skew * (levels + 2) + draw(st.integers(0, 9))
    layout = make_layout((planes, draw(st.integers(4, 40)), draw(st.integers(1, 40))), "float32")
    problem = as_problem(stencil, layout, draw(st.integers(levels, 2 * levels)), FIXED, in_place=draw(st.booleans()))
    sizes = Sizes(levels, slab, diamond=draw(st.integers(0, 4)), block_y=draw(st.integers(1, layout.shape[1])))
    return stencil, problem, sizes


@settings(max_examples=examples(40), deadline=None)
@given(linked_runs(), st.integers(1, 4), st.sampled_from(BACKENDS), st.integers(0, 2**32 - 1))
def test_blocks_that_follow_each_other_give_the_oracles_bits(
    run: tuple[Stencil, Problem, Sizes], threads: int, backend: str, seed: int
) -> None:
    """Checks that the bits are correct if the first planes of a block are read while the previous block is still being
    computed."""
    stencil, problem, sizes = run
    plan = build(problem, SCHEMES["wavefront"], sizes, MACHINE, assumed_rate)
    validate(plan)
    initial = np.random.default_rng(seed).random(problem.shape).astype(problem.dtype)
    right = advance(stencil, initial, {}, problem.steps)
    assert np.array_equal(rehearse(plan, stencil, {}, initial), right)
    with tempfile.TemporaryDirectory() as folder:
        result, moved = execute(Path(folder), stencil, plan, initial, threads, backend)
    assert np.array_equal(result, right)
    assert moved == (plan.predicted.bytes_read, plan.predicted.bytes_written)


def test_a_flipped_bit_is_named(tmp_path: Path) -> None:
    """Checks that a changed byte on disk stops the run. The error names the file, the offset and the plane."""
    stencil, problem, plan = small_run()
    initial = np.ones(problem.shape, problem.dtype)

    def damage(files: list[Path], layout: PlaneLayout) -> None:
        shard, offset = layout.locate(5)
        with files[shard].open("r+b") as file:
            file.seek(offset + 100)
            file.write(b"\x01")

    with pytest.raises(CorruptionError, match=r"plane 5 is damaged: checksum mismatch in .*u-0\.0 at offset \d+"):
        execute(tmp_path, stencil, plan, initial, 2, "auto", damage)


def test_no_flipped_bit_goes_unnoticed_in_blocks(tmp_path: Path) -> None:
    """Checks that a run in blocks stops if a stored byte has a flipped bit, even in a temporary file. Only flipped bits
    in padding can stay undetected, because they do not change the result."""
    stencil, problem, _ = small_run()
    plan = build(problem, SCHEMES["wavefront"], Sizes(4, 3, 2, block_y=12), MACHINE, assumed_rate)
    assert plan.fringe_rows > 0
    initial = np.random.default_rng(4).random(problem.shape).astype(problem.dtype)
    right, said = advance(stencil, initial, {}, problem.steps), []
    for number in range(0, 400, 9):
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            result, _ = execute(folder, stencil, plan, initial, 2, "threads", faults={"flip_at": number})
            assert np.array_equal(result, right)
        except CorruptionError as error:
            said.append(str(error))
    assert any("rows between blocks of plane" in text for text in said), said


@pytest.mark.parametrize("faults", [{"error_at": 7, "seed": 1}, {"full_after_bytes": 20000}])
def test_a_failed_transfer_is_named(tmp_path: Path, faults: dict[str, float]) -> None:
    """Checks that an I/O error or a full disk stops the run. The error names the file, the offset and the length."""
    stencil, problem, plan = small_run()
    with pytest.raises(StorageError, match=r"u-\d\.\d, offset \d+, length \d+"):
        execute(tmp_path, stencil, plan, np.ones(problem.shape, problem.dtype), 2, "threads", faults=faults)


def test_short_and_repeated_transfers_are_completed(tmp_path: Path) -> None:
    """Checks that short transfers and EAGAIN do not change the result."""
    stencil, problem, plan = small_run()
    initial = np.random.default_rng(3).random(problem.shape).astype(problem.dtype)
    faults = {"short_rate": 0.5, "again_rate": 0.3, "seed": 5}
    result, _ = execute(tmp_path, stencil, plan, initial, 2, "threads", faults=faults)
    assert np.array_equal(result, advance(stencil, initial, {}, problem.steps))


def small_run() -> tuple[Stencil, Problem, Plan]:
    stencil = find_stencil("heat7")
    layout = make_layout((20, 40, 50), "float32")
    problem = as_problem(stencil, layout, 8, FIXED, in_place=False)
    return stencil, problem, build(problem, SCHEMES["wavefront"], Sizes(4, 3, 2), MACHINE, assumed_rate)


def execute(
    folder: Path, stencil: Stencil, plan: Plan, initial: NDArray[np.floating], *arguments: Any, **options: Any
) -> tuple[NDArray[np.floating], tuple[int, int]]:
    """Run `execute_fields` for a stencil of one field."""
    result, moved = execute_fields(folder, stencil, plan, {stencil.fields[0].name: initial}, *arguments, **options)
    return result[stencil.fields[0].name], moved
