"""Check that the executors of several ranks give the results of the oracle, with deep halos and with split tiling."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from execution import BACKENDS, Cells, array_names, random_state
from field_runs import PLACED, STENCILS, boundaries, heat, offsets, wavelet
from oracle import advance_fields
from outcrop.errors import CommunicationError, CorruptionError, InterruptedRun
from outcrop.language.boundary import FIXED, Boundary
from outcrop.language.library import find_stencil
from outcrop.language.stencil import Stencil
from outcrop.plan.plan import Sizes
from outcrop.plan.ranks import RankPlans, cut_planes, cut_problem, part_of, plan_ranks, validate_ranks
from outcrop.plan.schemes import EVERY_SCHEME
from outcrop.run.definition import as_problem
from outcrop.run.disk.layout import make_layout
from outcrop.run.engine import Sample
from rank_threads import RankThreads, StrictRelay
from strategies import MACHINE, assumed_rate, examples

NAMES = ["wavefront", "split"]
LIBRARY = ["heat7", "heat13", "acoustic4", "acoustic8", "elastic4", "maxwell", "gray_scott", "d3q19"]


def make_plans(
    stencil: Stencil, boundary: Boundary, shape: tuple[int, int, int], ranks: int, name: str, steps: int, sizes: Sizes,
    dtype: str = "float32", parts_z: int = 1,
) -> RankPlans:  # fmt: skip
    """Return proved plans with the scheme `name` for `ranks` parts along y and `parts_z` parts along z. If the ranks
    have too few rows or planes for `sizes.levels`, the plans have as many levels as possible."""
    problem = as_problem(stencil, make_layout(shape, dtype), steps, boundary, in_place=False)
    cut, planes, scheme = cut_problem(problem, ranks), cut_planes(problem, parts_z), EVERY_SCHEME[name]
    most = scheme.max_levels(part_of(problem, cut, 0, planes))
    levels = min(sizes.levels, most, problem.levels) // problem.stages * problem.stages
    sizes = Sizes(**{**sizes.__dict__, "levels": levels})
    every = plan_ranks(problem, cut, scheme, sizes, MACHINE, assumed_rate, planes)
    validate_ranks(every)
    return every


def whole_state(stencil: Stencil, every: RankPlans, seed: int) -> dict[str, Cells]:
    problem = every.problem
    return {name: (one + 1) / 2 for name, one in random_state(stencil, problem.shape, problem.dtype, seed).items()}


def check(
    stencil: Stencil, boundary: Boundary, every: RankPlans, seed: int, threads: int, backend: str = "auto"
) -> None:
    """Check that all ranks together give the results of the oracle, and transfer the bytes that the plans predict."""
    problem = every.problem
    state, signals = whole_state(stencil, every, seed), wavelet(stencil, problem.steps)
    right = advance_fields(stencil, state, {}, problem.steps, boundary, signals)
    with tempfile.TemporaryDirectory() as folder:
        world = RankThreads(Path(folder), stencil, every, state, signals)
        samples = world.run(threads, backend)
        for one in samples:
            if isinstance(one, BaseException):
                raise one
        found = world.arrays()
    for name in array_names(stencil)[0]:
        np.testing.assert_array_equal(found[name], right[name], err_msg=name)
    for one, plan in zip(samples, every.plans, strict=True):
        assert isinstance(one, Sample)
        assert (one.bytes_read, one.bytes_written) == (plan.predicted.bytes_read, plan.predicted.bytes_written)
        moved, predicted = (one.bytes_sent, one.bytes_received), plan.predicted
        assert moved == (predicted.bytes_sent, predicted.bytes_received)


@st.composite
def sizes_of_ranks(draw: st.DrawFn, stencil: Stencil, planes: int) -> Sizes:
    """Generate sizes for passes of one to six steps."""
    return Sizes(
        levels=len(stencil.stages) * draw(st.integers(1, 6)),
        slab=draw(st.integers(1, planes + 3)),
        diamond=draw(st.integers(0, 4)),
        sweep_rows=draw(st.integers(1, 7)),
        planes_per_call=draw(st.integers(1, 4)),
        chunk=draw(st.sampled_from([0, 0, 0, 2, 5])),
        rows_at_once=draw(st.sampled_from([1, 2, 4])),
        prefetch=draw(st.booleans()),
        columns=draw(st.sampled_from([0, 0, 16, 48])),
        block_y=draw(st.just(0) | st.integers(max(1, stencil.radii[1]), 3 * max(1, stencil.radii[1]) + 12)),
    )


@pytest.mark.parametrize("scheme", NAMES)
@settings(max_examples=examples(40), deadline=None)
@given(st.sampled_from(sorted({**STENCILS, "heat": heat})), offsets(), st.data(), st.integers(0, 2**32 - 1))
def test_ranks_give_the_oracles_bits(
    scheme: str, name: str, near: list[tuple[int, int, int]], data: st.DataObject, seed: int
) -> None:
    """Checks random stencils of several fields and stages, with all boundaries, on 1 to 4 ranks."""
    stencil = {**STENCILS, "heat": heat}[name](near)
    boundary, steps = data.draw(boundaries()), data.draw(st.integers(1, 6))
    ranks = data.draw(st.integers(2 if scheme == "split" else 1, 4))
    least = 2 * max(1, stencil.radii[1] * len(stencil.stages))
    rows = data.draw(st.integers(ranks * least, ranks * (least + 16)))
    shape = data.draw(st.integers(1, 14)), rows, data.draw(st.integers(1, 20))
    sizes = data.draw(sizes_of_ranks(stencil, shape[0]))
    if ranks == 1 and boundary.y[0] == "periodic":  # the planner does not divide such a grid
        sizes = replace(sizes, block_y=0)
    dtype = data.draw(st.sampled_from(["float32", "float64"]))
    every = make_plans(stencil, boundary, shape, ranks, scheme, steps, sizes, dtype)
    check(stencil, boundary, every, seed, data.draw(st.integers(1, 2)), data.draw(st.sampled_from(BACKENDS)))


@settings(max_examples=examples(40), deadline=None)
@given(st.sampled_from(sorted({**STENCILS, "heat": heat})), offsets(), st.data(), st.integers(0, 2**32 - 1))
def test_ranks_with_parts_along_z_give_the_oracles_bits(
    name: str, near: list[tuple[int, int, int]], data: st.DataObject, seed: int
) -> None:
    """Checks random stencils of several fields and stages, with all boundaries, on 2 to 4 parts along z and 1 or 2
    parts along y."""
    stencil = {**STENCILS, "heat": heat}[name](near)
    boundary, steps = data.draw(boundaries()), data.draw(st.integers(1, 6))
    (ranks, parts_z), stages = data.draw(st.sampled_from([(1, 2), (1, 3), (1, 4), (2, 2), (2, 3)])), len(stencil.stages)
    rows = data.draw(st.integers(1, 16)) + ranks * stencil.radii[1] * stages
    planes = data.draw(st.integers(0, 30)) + parts_z * (1 + stencil.radii[0] * (stages + 1))
    sizes = replace(data.draw(sizes_of_ranks(stencil, planes // parts_z)), block_y=0)
    dtype = data.draw(st.sampled_from(["float32", "float64"]))
    shape = planes, max(rows, ranks), data.draw(st.integers(1, 20))
    every = make_plans(stencil, boundary, shape, ranks, "wavefront", steps, sizes, dtype, parts_z)
    check(stencil, boundary, every, seed, data.draw(st.integers(1, 2)), data.draw(st.sampled_from(BACKENDS)))


@settings(max_examples=examples(40), deadline=None)
@given(st.sampled_from(sorted(PLACED)), offsets(), st.data(), st.sampled_from([(2, 1), (3, 1), (1, 2), (2, 3)]))
def test_ranks_use_positions_of_the_whole_grid(
    name: str, near: list[tuple[int, int, int]], data: st.DataObject, parts: tuple[int, int]
) -> None:
    """Checks ranks along y and z with all boundaries. Ranks also update rows and planes of their neighbours. On a
    periodic grid, these can be beyond an end of the grid."""
    stencil, boundary, (ranks, parts_z) = PLACED[name](near), data.draw(boundaries()), parts
    scheme = data.draw(st.sampled_from(["wavefront", "split"])) if parts_z == 1 else "wavefront"
    stages = len(stencil.stages)
    least = 2 * max(1, stencil.radii[1] * stages)
    rows = data.draw(st.integers(ranks * least, ranks * (least + 12)))
    planes = data.draw(st.integers(1, 14)) + (parts_z > 1) * parts_z * (1 + stencil.radii[0] * (stages + 1))
    sizes = data.draw(sizes_of_ranks(stencil, planes))
    sizes = replace(sizes, block_y=0) if parts_z > 1 else sizes
    shape, steps = (planes, rows, data.draw(st.integers(1, 20))), data.draw(st.integers(1, 5))
    dtype = data.draw(st.sampled_from(["float32", "float64"]))
    every = make_plans(stencil, boundary, shape, ranks, scheme, steps, sizes, dtype, parts_z)
    check(stencil, boundary, every, 3, data.draw(st.integers(1, 2)))


@pytest.mark.parametrize("scheme", NAMES)
@pytest.mark.parametrize("name", LIBRARY)
@settings(max_examples=examples(5), deadline=None)
@given(st.data(), st.integers(0, 2**32 - 1))
def test_ranks_give_the_oracles_bits_of_library_stencils(
    name: str, scheme: str, data: st.DataObject, seed: int
) -> None:
    """Checks stencils of the library, with all boundaries, on 2 to 4 ranks."""
    stencil = find_stencil(name)
    boundary, ranks, steps = data.draw(boundaries()), data.draw(st.integers(2, 4)), data.draw(st.integers(1, 6))
    least = 2 * stencil.radii[1] * len(stencil.stages)
    shape = (
        data.draw(st.integers(3, 20)),
        ranks * data.draw(st.integers(least, 3 * least)),
        data.draw(st.integers(9, 24)),
    )
    sizes = data.draw(sizes_of_ranks(stencil, shape[0]))
    check(stencil, boundary, make_plans(stencil, boundary, shape, ranks, scheme, steps, sizes), seed, 2)


@pytest.mark.parametrize("name", ["heat7", "acoustic8", "elastic4"])
@pytest.mark.parametrize("scheme", NAMES)
@pytest.mark.parametrize("rows", [0, 16])
def test_a_rank_waits_only_for_messages_for_which_its_proof_waits(
    tmp_path: Path, scheme: str, name: str, rows: int
) -> None:
    """Delivers each message as late as the proof of the plan allows. Checks that all ranks complete a pass."""
    stencil = find_stencil(name)
    sizes = Sizes(2 * len(stencil.stages), 3, diamond=2, block_y=rows)
    every = make_plans(stencil, FIXED, (40, 96, 12), 2, scheme, 2, sizes)
    world = RankThreads(tmp_path, stencil, every, whole_state(stencil, every, 1))
    for one in world.run(1, links=StrictRelay(every).links):
        assert isinstance(one, Sample), one


@pytest.mark.parametrize("name", ["heat7", "acoustic8", "elastic4"])
def test_a_rank_waits_only_for_planes_for_which_its_proof_waits(tmp_path: Path, name: str) -> None:
    """Delivers messages between two parts along z as late as the proof allows. Checks that all ranks complete a
    pass."""
    stencil = find_stencil(name)
    sizes = Sizes(2 * len(stencil.stages), 3, diamond=2)
    every = make_plans(stencil, FIXED, (80, 24, 12), 1, "wavefront", 2, sizes, parts_z=2)
    world = RankThreads(tmp_path, stencil, every, whole_state(stencil, every, 1))
    for one in world.run(1, links=StrictRelay(every).links):
        assert isinstance(one, Sample), one


@pytest.mark.parametrize("plane", [0, 1, 9, 17, 19])
@pytest.mark.parametrize("is_static", [False, True])
def test_a_flipped_bit_of_each_plane_is_noticed(tmp_path: Path, plane: int, is_static: bool) -> None:
    """Checks that a rank detects damage in the planes of its pass, and in the planes that it reads only to send them.
    The rank below needs planes that the damaged rank sends only after its last check, so the rank below never completes
    the pass. The rank above gets its planes when the pass begins, before the damaged rank has checked them. So the rank
    above can complete the pass, but no rank of a run commits such a pass (test_rank_runs.py)."""
    stencil = find_stencil("acoustic8")
    every = make_plans(stencil, FIXED, (60, 20, 20), 1, "wavefront", 3, Sizes(3, 2, diamond=2), parts_z=3)
    world = RankThreads(tmp_path, stencil, every, whole_state(stencil, every, 1))
    run = world.runs[1]
    shard, offset = run.layout.locate(plane)
    with (run.fixed[0] if is_static else run.turns[0][0])[shard].open("r+b") as file:
        file.seek(offset + 7)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))
    below, own, above = world.run(2)
    assert isinstance(own, CorruptionError) and f"plane {plane} is damaged" in str(own)
    assert isinstance(below, CommunicationError) and str(below) == "rank 1 has gone"
    assert isinstance(above, Sample) or str(above) == "rank 1 has gone"


def small_plans(scheme: str) -> tuple[Stencil, RankPlans]:
    stencil = find_stencil("acoustic8")
    return stencil, make_plans(stencil, FIXED, (30, 60, 20), 3, scheme, 9, Sizes(3, 2, diamond=2))


@pytest.mark.parametrize("scheme", NAMES)
@pytest.mark.parametrize("row", [0, 3, 11, 12, 19])
@pytest.mark.parametrize("is_static", [False, True])
def test_a_flipped_bit_of_each_row_is_noticed(tmp_path: Path, scheme: str, row: int, is_static: bool) -> None:
    """Checks that a rank detects damage in any row that it reads, and that all other ranks then end."""
    stencil, every = small_plans(scheme)
    world = RankThreads(tmp_path, stencil, every, whole_state(stencil, every, 1))
    run = world.runs[1]
    shard, offset = run.layout.locate(15)
    with (run.fixed[0] if is_static else run.turns[0][0])[shard].open("r+b") as file:
        file.seek(offset + row * run.layout.pitch_cells * 4 + 5)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))
    below, own, above = world.run(2)
    assert isinstance(own, CorruptionError) and "plane 15 is damaged" in str(own)
    assert isinstance(below, CommunicationError) and str(below) == "rank 1 has gone"
    assert isinstance(above, CommunicationError) and str(above) == "rank 1 has gone"


@pytest.mark.parametrize("scheme", NAMES)
def test_all_ranks_end_if_one_is_cancelled(tmp_path: Path, scheme: str) -> None:
    """Checks that no rank waits for a rank that has ended."""
    stencil, every = small_plans(scheme)
    world = RankThreads(tmp_path, stencil, every, whole_state(stencil, every, 1))
    results = world.run(1, during=lambda rank, engine: engine.cancel() if rank == 2 else None)
    assert isinstance(results[2], InterruptedRun)
    assert all(isinstance(one, CommunicationError) for one in results[:2])
