"""Check the values that the plans of several ranks give. A rehearsal of all ranks in NumPy must give the values of the
oracle."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from execution import array_names, random_state
from field_runs import STENCILS, boundaries, heat, offsets, wavelet
from oracle import advance_fields
from outcrop.language.boundary import Boundary
from outcrop.language.library import STENCILS as LIBRARY
from outcrop.language.library import find_stencil
from outcrop.language.stencil import Stencil
from outcrop.plan.plan import Sizes
from outcrop.plan.planner import choose, smallest_budget_bytes
from outcrop.plan.ranks import (
    RankPlans,
    cut_planes,
    cut_problem,
    part_of,
    plan_ranks,
    rows_needed,
    rows_of,
    validate_ranks,
)
from outcrop.plan.schemes import EVERY_SCHEME, SCHEMES
from outcrop.run.definition import as_problem
from outcrop.run.disk.entries import PartEntry
from outcrop.run.disk.layout import make_layout
from rank_cases import block_rows
from rehearsal import rehearse_ranks
from strategies import MACHINE, assumed_rate, examples

VOLUMES = [name for name in LIBRARY if find_stencil(name).ndim == 3]


@st.composite
def split_runs(draw: st.DrawFn, stencil: Stencil, max_rows: int = 24) -> tuple[Boundary, RankPlans]:
    """Generate a random run of a stencil on 2 to 8 ranks with split tiling, on a small grid, with any boundary and any
    legal sizes."""
    boundary, ranks, steps = draw(boundaries()), draw(st.integers(2, 8)), draw(st.integers(1, 6))
    least = max(1, 2 * stencil.radii[1] * len(stencil.stages) * draw(st.integers(1, min(3, steps))))
    rows = draw(st.integers(ranks * least, ranks * max(least, max_rows)))
    shape = draw(st.integers(1, 16)), rows, draw(st.integers(1, 8))
    problem = as_problem(stencil, make_layout(shape, "float32"), steps, boundary, in_place=False)
    cut = cut_problem(problem, ranks)
    most = min(problem.levels, EVERY_SCHEME["split"].max_levels(part_of(problem, cut, 0))) // problem.stages
    sizes = Sizes(problem.stages * draw(st.integers(1, most)), draw(st.integers(1, shape[0] + 3)), diamond=2)
    sizes = replace(sizes, block_y=draw(block_rows(stencil.radii[1], rows // ranks)))
    return boundary, plan_ranks(problem, cut, EVERY_SCHEME["split"], sizes, MACHINE, assumed_rate)


@st.composite
def rank_runs(draw: st.DrawFn, stencil: Stencil, max_rows: int = 16) -> tuple[Boundary, RankPlans]:
    """Generate a random run of a stencil on 1 to 8 parts along y and 1 to 4 parts along z, with any boundary, a small
    grid and any legal sizes."""
    boundary, ranks, parts_z = draw(boundaries()), draw(st.integers(1, 8)), draw(st.sampled_from([1, 1, 2, 3, 4]))
    dtype, steps = draw(st.sampled_from(["float32", "float64"])), draw(st.integers(1, 5))
    least, least_z = (max(1, radius * len(stencil.stages)) for radius in (stencil.radii[1], stencil.radii[0]))
    rows = draw(st.integers(ranks * least, ranks * max(least, max_rows)))
    planes = draw(st.integers(1, 12)) + (parts_z > 1) * parts_z * (least_z + stencil.radii[0])
    shape = planes, rows, draw(st.integers(1, 14))
    problem = as_problem(stencil, make_layout(shape, dtype), steps, boundary, in_place=False)
    cut, cut_z = cut_problem(problem, ranks), cut_planes(problem, parts_z)
    most = min(problem.levels, part_of(problem, cut, 0, cut_z).max_levels) // problem.stages
    sizes = Sizes(problem.stages * draw(st.integers(1, most)), draw(st.integers(1, shape[0] + 3)), diamond=2)
    scheme = SCHEMES[draw(st.sampled_from(["wavefront", "naive"]))]
    # the planner does not divide the rows of a grid that is periodic along y if one rank has all rows
    if scheme.name == "wavefront" and not (ranks == 1 and boundary.y[0] == "periodic"):
        sizes = replace(sizes, block_y=draw(block_rows(stencil.radii[1], rows // ranks)))
    return boundary, plan_ranks(problem, cut, scheme, sizes, MACHINE, assumed_rate, cut_z)


def check(stencil: Stencil, boundary: Boundary, every: RankPlans, seed: int) -> None:
    """Check that the plans are legal, and that the rehearsal of all ranks gives the results of the oracle."""
    validate_ranks(every)
    problem = every.problem
    state = {name: (one + 1) / 2 for name, one in random_state(stencil, problem.shape, problem.dtype, seed).items()}
    signals = wavelet(stencil, problem.steps)
    right = advance_fields(stencil, state, {}, problem.steps, boundary, signals)
    found = rehearse_ranks(every, stencil, {}, state, signals, seed)
    for name in array_names(stencil)[0]:
        np.testing.assert_array_equal(found[name], right[name], err_msg=name)


@settings(max_examples=examples(100), deadline=None)
@given(st.sampled_from(sorted({**STENCILS, "heat": heat})), offsets(), st.data(), st.integers(0, 2**32 - 1))
def test_ranks_give_the_oracles_bits(
    name: str, near: list[tuple[int, int, int]], data: st.DataObject, seed: int
) -> None:
    """Checks stencils of several fields and stages, with all boundaries."""
    stencil = {**STENCILS, "heat": heat}[name](near)
    check(stencil, *data.draw(rank_runs(stencil)), seed)


@pytest.mark.parametrize("name", VOLUMES)
@settings(max_examples=examples(4), deadline=None)
@given(data=st.data())
def test_ranks_give_the_oracles_bits_of_library_stencils(name: str, data: st.DataObject) -> None:
    """Checks each stencil of the library that has three axes."""
    stencil = find_stencil(name)
    check(stencil, *data.draw(rank_runs(stencil)), data.draw(st.integers(0, 2**32 - 1)))


@settings(max_examples=examples(150), deadline=None)
@given(st.sampled_from(sorted({**STENCILS, "heat": heat})), offsets(), st.data(), st.integers(0, 2**32 - 1))
def test_split_tiling_gives_the_oracles_bits(
    name: str, near: list[tuple[int, int, int]], data: st.DataObject, seed: int
) -> None:
    """Checks split tiling of stencils of several fields and stages, with all boundaries."""
    stencil = {**STENCILS, "heat": heat}[name](near)
    check(stencil, *data.draw(split_runs(stencil)), seed)


@pytest.mark.parametrize("name", VOLUMES)
@settings(max_examples=examples(5), deadline=None)
@given(data=st.data())
def test_split_tiling_gives_the_oracles_bits_of_library_stencils(name: str, data: st.DataObject) -> None:
    """Checks split tiling of each stencil of the library that has three axes."""
    stencil = find_stencil(name)
    check(stencil, *data.draw(split_runs(stencil)), data.draw(st.integers(0, 2**32 - 1)))


@settings(max_examples=examples(20), deadline=None)
@given(st.sampled_from(["heat7", "acoustic8", "elastic4"]), st.integers(2, 4), st.floats(1, 3), st.data())
def test_the_plan_that_the_tuner_chooses_for_a_rank_is_legal(
    name: str, ranks: int, more: float, data: st.DataObject
) -> None:
    """Checks plans whose sizes the tuner chooses for one rank, with any memory. All ranks use these sizes."""
    stencil = find_stencil(name)
    boundary = data.draw(boundaries())
    shape = 12, ranks * (4 + stencil.radii[1] * len(stencil.stages)) + 1, 20
    problem = as_problem(stencil, make_layout(shape, "float32"), 6, boundary, in_place=False)
    cut = cut_problem(problem, ranks)
    part = part_of(problem, cut, data.draw(st.integers(0, ranks - 1)))
    budget = int(more * smallest_budget_bytes(part))
    chosen = choose(part, MACHINE, budget, "auto", assumed_rate).plan
    assert chosen.memory_bytes <= budget and not chosen.sizes.keeps_statics
    every = plan_ranks(problem, cut, EVERY_SCHEME[chosen.scheme], chosen.sizes, MACHINE, assumed_rate)
    check(stencil, boundary, every, 1)


@given(st.integers(1, 40), st.integers(1, 3), st.sampled_from([("fixed", "mirror"), ("periodic", "periodic")]),
       st.integers(0, 20))  # fmt: skip
def test_parts_have_the_layout_of_their_arrays_on_disk(
    rows: int, ranks: int, sides: tuple[str, str], missing: int
) -> None:
    """Checks that the problem of a rank has the right sides, and the layout of an array with the rows of the rank. If
    the last part has fewer rows than the others, its planes on disk must still have the same length."""
    stencil = find_stencil("heat7")
    boundary, ny = Boundary(y=sides), ranks * rows - min(missing, rows // 2)  # type: ignore[arg-type]
    problem = as_problem(stencil, make_layout((9, ny, 50), "float32"), 3, boundary, in_place=False)
    cut = cut_problem(problem, ranks, for_chunks=True)
    for rank in range(ranks):
        part = part_of(problem, cut, rank)
        chunk = PartEntry("", rank, cut).chunk_rows
        assert chunk == (cut[1] if cut[-1] - cut[-2] <= cut[1] else cut[rank + 1] - cut[rank])
        layout = make_layout((9, cut[rank + 1] - cut[rank], 50), "float32", chunk_rows=chunk)
        own = as_problem(stencil, layout, 3, boundary, in_place=False)
        low = sides[0] if ranks == 1 or (rank == 0 and sides[0] != "periodic") else "neighbour"
        high = sides[1] if ranks == 1 or (rank == ranks - 1 and sides[0] != "periodic") else "neighbour"
        assert part == replace(own, sides=(own.sides[0], (low, high), own.sides[2]), max_halo=part.max_halo,
                               mean_rows=part.mean_rows, is_ring=part.is_ring,
                               block_order=part.block_order)  # fmt: skip
        assert part.max_halo == (min(rows_of(cut)) if ranks > 1 else 0)
        assert min(rows_of(cut)) >= rows_needed(part)
