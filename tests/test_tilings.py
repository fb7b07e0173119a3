"""Check the tiles of slabs. All threads must be busy even on grids with few rows, and plans must show the tiles."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcrop.cli import main
from outcrop.plan.plan import Sizes
from outcrop.plan.planner import largest_useful_bytes, make_plan
from outcrop.plan.problem import Problem
from outcrop.plan.schemes import SCHEMES
from outcrop.plan.tuner import shares_planes, tilings
from strategies import MACHINE, assumed_rate, make_problem

FIXED_SIDES = (("fixed", "fixed"), ("fixed", "fixed"))


def every_tiling(problem: Problem, sizes: Sizes, threads: int, scheme: str = "wavefront") -> list[Sizes]:
    """Return all tilings that the tuner measures."""
    return list(tilings(problem, SCHEMES[scheme], sizes, replace(MACHINE, threads=threads)))


@given(
    threads=st.integers(1, 16),
    radius=st.integers(0, 8),
    planes=st.integers(1, 5000),
    levels=st.integers(1, 300),
    slab=st.integers(1, 5000),
    scheme=st.sampled_from(["wavefront", "naive"]),
)
def test_threads_share_the_planes_of_grids_of_one_row(
    threads: int, radius: int, planes: int, levels: int, slab: int, scheme: str
) -> None:
    """Checks the tiles of grids of two axes. Each thread gets chunks. A slab of a pass with enough levels is also
    divided into bands, except in plain sweeps.
    """
    problem, sizes = make_problem((planes, 1, 4000), (radius, 0, radius), levels), Sizes(levels, slab, 0)
    found = every_tiling(problem, sizes, threads, scheme)
    assert found
    for one in found:
        assert (one.chunk > 0) == (planes >= 2 * threads)
        if one.chunk and min(slab, planes) >= 4 * threads:
            assert 2 * threads * one.chunk <= min(slab, planes)
        if one.diamond > 1 and one.chunk:
            assert one.levels >= 2 * one.diamond * threads
    if scheme == "naive":
        assert [one.diamond for one in found] == [0]


@given(st.integers(1, 16), st.integers(0, 4), st.integers(1, 300))
def test_grids_of_many_rows_are_cut_into_diamonds(threads: int, radius: int, levels: int) -> None:
    """Checks that planes are not divided into chunks if the grid has enough rows for one diamond per thread."""
    problem = make_problem((500, 2 * max(1, radius) * threads, 500), (radius, radius, radius), levels)
    assert not shares_planes(problem, threads)
    assert all(one.chunk == 0 and one.diamond > 0 for one in every_tiling(problem, Sizes(levels, 30, 0), threads))


@pytest.mark.parametrize("fastest", [1, 2, 4])
def test_the_tuner_takes_the_fastest_loop_of_the_kernel(fastest: int) -> None:
    """Checks that the tuner measures each loop, and then measures tiles with the fastest loop."""
    problem, measured = make_problem((200, 100, 300), (1, 1, 1), 40), list[int]()

    def rate(sizes: Sizes) -> float:
        measured.append(sizes.rows_at_once)
        return assumed_rate(sizes) * (1.5 if sizes.rows_at_once == fastest else 1.0)

    plan = make_plan(problem, MACHINE, largest_useful_bytes(problem) // 4, "auto", rate)
    assert plan.sizes.rows_at_once == fastest
    assert set(measured[:3]) == {1, 2, 4} and set(measured[3:]) == {fastest}


@pytest.mark.parametrize(("radius", "sides", "loops"), [(2, "fixed", {1, 2}), (1, "periodic", {1})])
def test_only_loops_that_exist_are_measured(radius: int, sides: str, loops: set[int]) -> None:
    """Checks that loops over two rows of two planes are measured only for radius 1. Only one loop is measured on a
    periodic streaming axis, where each call updates one plane."""
    problem = replace(make_problem((200, 100, 300), (radius,) * 3, 40), sides=((sides, sides), *FIXED_SIDES))
    measured = set[int]()

    def rate(sizes: Sizes) -> float:
        measured.add(sizes.rows_at_once)
        return assumed_rate(sizes)

    make_plan(problem, MACHINE, largest_useful_bytes(problem) // 4, "auto", rate)
    assert measured == loops


def test_a_given_height_is_that_of_bands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that --diamond sets the height of bands on two axes, and that the plan shows the bands."""
    words = ["plan", "heat_2d", "-n", "400", "600", "-t", "60", "-d", str(tmp_path / "run.oc"), "--threads", "2"]
    assert main.call([*words, "--diamond", "4", "--draw", str(tmp_path / "plan.png")]) == 0
    assert "bands of 8 levels" in capsys.readouterr().out
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    assert main.call([*words, "--scheme", "naive"]) == 0
    assert "plain sweeps" in capsys.readouterr().out
