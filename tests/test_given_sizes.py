"""Check sizes that users give. A plan must have exactly these sizes, or an error of one line must give the reason."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import outcrop as oc
from oracle import advance
from outcrop.cli.main import call
from outcrop.errors import BudgetError, InputError
from outcrop.plan.given_sizes import GivenSizes
from outcrop.plan.plan import Sizes
from outcrop.plan.planner import choose, smallest_budget_bytes
from outcrop.plan.problem import Problem
from outcrop.plan.schemes import SCHEMES
from outcrop.plan.validate import validate
from strategies import MACHINE, assumed_rate, examples, make_problem, problems

SIZED = [name for name, scheme in SCHEMES.items() if scheme.sizes]


@st.composite
def requests(draw: st.DrawFn) -> tuple[Problem, str, GivenSizes]:
    """Generate a random problem, a scheme, and sizes of the scheme that are possible on the grid."""
    name = draw(st.sampled_from(SIZED))
    problem = draw(problems())
    if not SCHEMES[name].in_place:
        problem = replace(problem, in_place=False)
    (nz, ny, nx), (radius_z, radius_y, radius_x) = problem.shape, problem.radii
    group, vector = problem.row_group, problem.vector_cells

    def block(extent: int, radius: int, multiple: int) -> list[int]:
        return [extent, *(size for size in range(max(1, radius), extent) if size % multiple == 0)]

    possible = {
        "bt": range(1, problem.steps + 3),
        "bx": block(nx, radius_x, vector),
        "by": block(ny, radius_y, group),
        "bz": block(nz, radius_z, 1),
        "slab": range(1, nz + 1),
        "diamond": range(1, max(1, ny // problem.skew_y) + 1),
    }
    chosen = draw(st.sets(st.sampled_from(SCHEMES[name].sizes), min_size=1))
    return problem, name, GivenSizes(**{one: draw(st.sampled_from(possible[one])) for one in chosen})


def as_planned(sizes: Sizes) -> dict[str, int]:
    """Return the sizes of a plan as a dictionary. The keys are the names that users write."""
    return {
        "bt": sizes.levels, "bx": sizes.block_x, "by": sizes.block_y, "bz": sizes.block_z, "slab": sizes.slab,
        "diamond": sizes.diamond,
    }  # fmt: skip


@settings(max_examples=examples(60))
@given(requests(), st.integers(0, 40))
def test_plans_keep_to_the_sizes_given(request: tuple[Problem, str, GivenSizes], extra_planes: int) -> None:
    """Checks that there is a legal plan with all given sizes for the minimum budget and for each larger budget. A pass
    can have fewer steps than the given number only if the run has fewer steps."""
    problem, name, sizes = request
    budget = smallest_budget_bytes(problem, name, sizes) + extra_planes * problem.record_bytes
    choice = choose(problem, MACHINE, budget, name, assumed_rate, sizes)
    validate(choice.plan, budget_bytes=budget)
    expected = {**sizes.to_dict(), **({"bt": min(sizes.bt, problem.steps)} if sizes.bt else {})}
    for candidate in choice.considered:
        found = as_planned(candidate.sizes)
        assert expected.items() <= found.items(), "a candidate that was costed has other sizes"


@pytest.mark.parametrize("scheme", ["skewed-full", "skewed-3y", "skewed-5y"])
def test_equal_blocks_are_taken_only_where_they_fit(scheme: str) -> None:
    """Checks that equal blocks are used only if they fit the budget.

    For example, a grid of 16 planes can be divided into blocks of 9 and 7 planes. These blocks need a window of 14
    planes. Two blocks of 8 planes need a window of 15 planes.
    """
    problem, sizes = make_problem((16, 1, 1), (0, 0, 0), 7), GivenSizes(bx=1)
    smallest = smallest_budget_bytes(problem, scheme, sizes)
    for extra_planes in range(40):
        budget = smallest + extra_planes * problem.record_bytes
        validate(choose(problem, MACHINE, budget, scheme, assumed_rate, sizes).plan, budget_bytes=budget)


@given(requests())
def test_one_byte_less_is_refused_with_what_works(request: tuple[Problem, str, GivenSizes]) -> None:
    """Checks that a budget that is too small is refused. The error names the sizes and a sufficient budget."""
    problem, name, sizes = request
    smallest = smallest_budget_bytes(problem, name, sizes)
    with pytest.raises(BudgetError, match=re.escape(str(sizes))) as refusal:
        choose(problem, MACHINE, smallest - 1, name, assumed_rate, sizes)
    named = int(str(refusal.value).split(" KiB are needed")[0].split()[-1]) * 1024
    assert choose(problem, MACHINE, named, name, assumed_rate, sizes).plan.memory_bytes <= named


def test_sizes_that_are_not_given_are_still_chosen() -> None:
    """Checks that the tuner chooses the sizes that are not given. The tuner must compare candidates that differ in
    these sizes. All candidates must have the given size.
    """
    problem = make_problem((400, 128, 128), (1, 1, 1), 60)
    choice = choose(problem, MACHINE, 4 << 20, "wavefront", assumed_rate, GivenSizes(by=32))
    assert len({(one.sizes.levels, one.sizes.slab) for one in choice.considered}) > 2
    assert {one.sizes.block_y for one in choice.considered} == {32}


def test_auto_takes_a_scheme_that_has_the_sizes() -> None:
    """Checks that `auto` chooses a scheme that has the given sizes. `auto` never chooses a skewed scheme."""
    problem = make_problem((400, 128, 128), (1, 1, 1), 60)
    assert choose(problem, MACHINE, 4 << 20, "auto", assumed_rate, GivenSizes(bz=100)).plan.scheme == "overlapped"
    with pytest.raises(InputError, match=r"bz = 100.*wavefront has bt, by"):
        choose(replace(problem, in_place=True), MACHINE, 4 << 20, "auto", assumed_rate, GivenSizes(bz=100))


HERE = ["-n", "100", "48", "40", "-t", "9", "--memory", "1MiB"]
REFUSALS = {
    "not a number": (["--bt", "many"], "--bt many: write a whole number"),
    "nothing": (["--bt", "0"], "bt 0 must be at least 1"),
    "negative": (["--slab", "-4"], "slab -4 must be at least 1"),
    "no size of the scheme": (["--bz", "8", "--scheme", "wavefront"], "bz is not a size of scheme wavefront.*bt, by"),
    "naive has none": (["--bt", "2", "--scheme", "naive"], "bt is not a size of scheme naive.*none"),
    "below the radius": (["--by", "1"], "by 1 is less than.*radius 2"),
    "z below the radius": (["--bz", "1", "--scheme", "skewed"], "bz 1 is less than.*radius 2"),
    "beyond the grid": (["--by", "49"], "by 49 is more than.*48 along y"),
    "x beyond the grid": (["--bx", "101", "--scheme", "skewed"], "bx 101 is more than.*100 along x"),
    "no whole vector": (["--bx", "40", "--scheme", "skewed"], "bx 40.*multiple of 16.*give 32 or 48"),
    "slab beyond the grid": (["--slab", "41"], "slab 41 is more than the 40 planes"),
    "diamond beyond the grid": (["--diamond", "25"], "diamond 25 is wider.*at most 24"),
    "too little memory": (["--bt", "9", "--memory", "100KiB"], "100 KiB.*with bt = 9: at least \\d+ KiB"),
    "in place": (["--scheme", "overlapped", "--in-place", "--bz", "8"], "overlapped cannot run in place"),
}


@pytest.mark.parametrize("command", ["run", "plan"])
@pytest.mark.parametrize(("words", "message"), REFUSALS.values(), ids=REFUSALS.keys())
def test_sizes_that_cannot_be_are_one_line(
    command: str, words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that a wrong size is refused. The error names the size and the correct value. No run is made."""
    arguments = [one for one in HERE if "--memory" not in words or one not in ("--memory", "1MiB")]
    assert call([command, "heat13", *arguments, "-d", str(tmp_path / "run.oc"), *words]) == 2
    output = capsys.readouterr()
    assert output.out == "" and output.err.count("\n") == 1
    assert re.search(message, output.err), output.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["heat4_2d", "-n", "1000", "2000", "--by", "100"],
         "by 100: a grid of two axes has one row in each plane; leave by out, or give bz, which divides y"),
        (["heat4_1d", "-n", "1000", "--by", "3"], "by 3: a grid of one axis has one plane of one row; leave by out"),
        (["heat4_1d", "-n", "1000", "--bz", "3"], "bz 3: a grid of one axis has one plane of one row; leave bz out"),
        (["heat4_2d", "-n", "1000", "2000", "--bz", "1"],
         "bz 1 is less than the stencil's radius 2 along y; give more"),
        (["heat4_2d", "-n", "1000", "2000", "--bz", "2001"],
         "bz 2001 is more than the grid's 2000 along y; give at most 2000"),
        (["heat4_2d", "-n", "1000", "2000", "--slab", "2001"],
         "slab 2001 is more than the 2000 rows of the grid; give at most 2000"),
    ],
)  # fmt: skip
def test_refused_sizes_name_the_axes_of_the_users_grid(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    scheme = ["--scheme", "skewed", "--machine", "crest6", "--memory", "8MiB"]
    assert call(["plan", *words, "-t", "9", *scheme]) == 2
    assert capsys.readouterr().err == f"outcrop: {message}\n"


def test_rows_of_a_block_are_those_direct_transfers_can_begin_at(tmp_path: Path) -> None:
    """Checks that a block must begin at a row that is aligned for direct transfers. The error names the nearest valid
    sizes. In this test, a row has 1536 bytes, so only each eighth row begins at a multiple of 4096 bytes.
    """
    shape = (20, 128, 384)
    with pytest.raises(InputError, match=r"by 20 must be a multiple of 8 rows.*16 or 24"):
        oc.Simulation("heat7", shape, directory=tmp_path / "run.oc", sizes={"by": 20})
    oc.Simulation("heat7", shape, directory=tmp_path / "run.oc", sizes={"by": 24})


@pytest.mark.parametrize("name", ["b", "levels"])
def test_unknown_sizes_are_named(name: str, tmp_path: Path) -> None:
    """Checks that the name of an unknown size is refused with the list of known names, and that a size must be a whole
    number."""
    with pytest.raises(InputError, match=f"'{name}'.*bt, bx, by, bz, slab, diamond"):
        oc.Simulation("heat7", (9, 9, 9), directory=tmp_path / "run.oc", sizes={name: 3})
    with pytest.raises(InputError, match=r"bt 2\.5.*whole number"):
        oc.Simulation("heat7", (9, 9, 9), directory=tmp_path / "run.oc", sizes={"bt": 2.5})


GIVEN = {
    "wavefront": {"bt": 5, "by": 16, "slab": 3, "diamond": 3},
    "overlapped": {"bt": 4, "bx": 32, "by": 16, "bz": 12, "slab": 5},
    "skewed-5y": {"bt": 4, "bx": 48, "by": 16, "bz": 12, "diamond": 1},
    "skewed-full": {"bt": 7, "by": 24, "bz": 30},
}


@pytest.mark.parametrize("scheme", sorted(GIVEN))
def test_runs_with_given_sizes_have_the_same_bits(scheme: str, tmp_path: Path) -> None:
    """Checks that given sizes do not change the bits. The manifest stores the sizes, so the run uses the same sizes
    when it is opened again.
    """
    shape, where = (40, 48, 80), tmp_path / "run.oc"
    start = np.random.default_rng(3).random(shape, dtype="float32")
    sim = oc.Simulation("heat7", shape, directory=where, memory="8MiB", scheme=scheme, sizes=GIVEN[scheme])
    sim["u"] = start
    sizes = sim.prepare(9).plan.sizes
    assert GIVEN[scheme].items() <= as_planned(sizes).items()
    assert sim.run(9, progress="none").plan["levels"] == GIVEN[scheme]["bt"]
    del sim
    again = oc.open(where)
    assert as_planned(again.plan(8).plan.sizes)["bt"] == GIVEN[scheme]["bt"]
    again.run(4, progress="none")
    assert np.array_equal(again["u"][:], advance(again.stencil, start, {}, 13))


def test_an_open_run_may_be_given_other_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that `info` shows the sizes, and that new sizes replace all old sizes. An empty dictionary, or the choice
    of another scheme, removes all sizes.
    """
    where = tmp_path / "run.oc"
    oc.Simulation("heat7", (40, 48, 80), directory=where, memory="8MiB", sizes={"bt": 3})["u"] = 1.0
    assert json.loads((where / "manifest.json").read_text())["settings"]["sizes"] == {"bt": 3}
    assert oc.open(where).plan(8).given == GivenSizes(bt=3)
    assert call(["info", str(where)]) == 0
    assert "given    bt = 3" in capsys.readouterr().out
    assert oc.open(where, sizes={"slab": 4}).plan(8).given == GivenSizes(slab=4)
    assert oc.open(where, sizes={}).plan(8).plan.sizes.levels == 8
    assert not oc.open(where, scheme="naive").plan(8).given


def test_plan_says_what_was_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that the explanation and the JSON show the sizes that the user has given. They must not say that the tuner
    has chosen these sizes."""
    target = tmp_path / "plan.json"
    words = ["--by", "16", "--bt", "4", "--explain", "--json", str(target)]
    assert call(["plan", "heat13", *HERE, "-d", str(tmp_path / "run.oc"), *words]) == 0
    assert "given, not chosen: bt = 4, by = 16" in capsys.readouterr().out
    assert json.loads(target.read_text())["given"] == {"bt": 4, "by": 16}


@pytest.mark.parametrize(
    ("scheme", "sizes", "slabs"),
    [
        ("auto", GivenSizes(slab=1, by=8), 130_384),
        ("skewed", GivenSizes(bx=16, by=8, bz=8), 2_097_152),
        ("overlapped", GivenSizes(by=8, bz=4), 65_536),
    ],
)
def test_sizes_with_too_many_slabs_are_refused(scheme: str, sizes: GivenSizes, slabs: int) -> None:
    """Checks that no plan is made if the sizes that the user gives are too small for a large grid."""
    problem = make_problem((1024, 1024, 1024), (1, 1, 1), 100)
    with pytest.raises(BudgetError, match=rf"at least {slabs} slabs .*; the limit is \d+: give more memory, or larger"):
        choose(problem, MACHINE, 1 << 30, scheme, assumed_rate, sizes)


def test_the_thickest_slabs_are_planned_if_every_plan_has_many_slabs() -> None:
    """Checks that little memory for many small planes gives the plan with the fewest slabs, or an error."""
    problem = make_problem((500_000, 8, 8), (1, 1, 1), 20)
    plan = choose(problem, MACHINE, 300 << 10, "auto", assumed_rate).plan
    assert plan.scheme == "wavefront"
    assert plan.to_json()["slabs_per_pass"] < 30_000
    with pytest.raises(BudgetError, match="give more memory"):
        choose(problem, MACHINE, 100 << 10, "auto", assumed_rate)
