"""Check that the picture of a plan shows the cells and the times of the plan."""

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from outcrop.cli import main
from outcrop.plan.actions import Update
from outcrop.plan.description import Patch, block_patches, drawn_zeta, regions_of, slab_patches, tile_patches, time_line
from outcrop.plan.plan import Plan, Sizes
from outcrop.plan.planner import find_scheme
from outcrop.plan.tuner import build
from strategies import MACHINE, assumed_rate, examples, make_problem, problems, sizes_for


def area(patch: Patch) -> float:
    """Return the area inside an outline by the shoelace formula, in cells times levels."""
    around = zip(patch.corners, patch.corners[1:] + patch.corners[:1], strict=True)
    return sum(x0 * y1 - x1 * y0 for (x0, y0), (x1, y1) in around) / 2


def holds(patch: Patch, x: float, y: float) -> bool:
    """Return True if a point is inside an outline. A ray from such a point to the right crosses the outline an odd
    number of times.
    """
    inside = False
    for (x0, y0), (x1, y1) in zip(patch.corners, patch.corners[1:] + patch.corners[:1], strict=True):
        if (y0 > y) != (y1 > y) and x < x0 + (x1 - x0) * (y - y0) / (y1 - y0):
            inside = not inside
    return inside


@st.composite
def built(draw: st.DrawFn) -> Plan:
    problem = draw(problems(max_extent=16, max_steps=8))
    sizes = replace(draw(sizes_for(problem)), block_y=0)
    return build(problem, find_scheme("wavefront"), sizes, MACHINE, assumed_rate)


@given(built())
def test_slabs_cover_every_update_once(plan: Plan) -> None:
    """Checks the space-time picture: each pair of plane and level lies in exactly one slab."""
    problem = plan.problem
    for one in plan.passes:
        patches = slab_patches(problem, one)
        planes = problem.end_plane - problem.first_plane
        if problem.shape[1] <= 2 * problem.radius_y:  # all rows belong to the rim, so nothing is updated
            assert not patches
            continue
        assert sum(map(area, patches)) == planes * one.levels
        for z in range(problem.first_plane, problem.end_plane):
            for level in range(1, one.levels + 1):
                assert sum(holds(patch, z + 0.5, level) for patch in patches) == 1


@given(built())
def test_tiles_cover_every_row_once(plan: Plan) -> None:
    """Checks the picture of the cache tiles: each pair of row and level lies in exactly one tile."""
    problem, levels = plan.problem, plan.passes[0].levels
    patches = tile_patches(problem, replace(plan.sizes, chunk=0), levels)
    for y in range(problem.shape[1]):
        updated = problem.radius_y <= y < problem.shape[1] - problem.radius_y
        for level in range(1, levels + 1):
            assert sum(holds(patch, y + 0.5, level) for patch in patches) == int(updated)


@st.composite
def divided(draw: st.DrawFn) -> Plan:
    """Generate a plan whose blocks divide the rows."""
    problem = draw(problems(max_extent=16, max_steps=8))
    sizes = replace(draw(sizes_for(problem)), block_y=draw(st.integers(1, 16)), chunk=0)
    return build(problem, find_scheme("wavefront"), sizes, MACHINE, assumed_rate)


@settings(max_examples=examples(40))
@given(divided())
def test_blocks_and_their_tiles_cover_every_row_once(plan: Plan) -> None:
    """Checks the picture of blocks: each pair of row and level lies in exactly one block. It lies in exactly one tile
    of this block, and in no tile of another block."""
    problem, one = plan.problem, plan.passes[0]
    blocks, regions = block_patches(problem, one), regions_of(one)
    rows = range(problem.first_row, problem.end_row)
    for level in range(1, one.levels + 1):
        for y in rows if problem.first_plane < problem.end_plane else ():
            assert sum(holds(patch, y + 0.5, level) for patch in blocks) == 1
    for region in regions:
        tiles = tile_patches(problem, plan.sizes, one.levels, [region])
        for level in range(1, one.levels + 1):
            for y in rows:
                is_inside = region.y_low.at(level) <= y < region.y_high.at(level)
                assert sum(holds(patch, y + 0.5, level) for patch in tiles) == int(is_inside)


@given(built(), st.integers(1, 9))
def test_chunks_cover_every_plane_of_a_slab_once(plan: Plan, chunk: int) -> None:
    """Checks the picture of tiles in chunks: each pair of plane and level of the drawn slab lies in exactly one tile.
    """
    problem, levels, sizes = plan.problem, plan.passes[0].levels, replace(plan.sizes, chunk=chunk)
    patches, zeta0 = tile_patches(problem, sizes, levels), drawn_zeta(problem, sizes, levels)
    assert patches or problem.first_plane == problem.end_plane
    for z in range(problem.planes):
        for level in range(1, levels + 1):
            zeta = z + problem.skew_z * (level - 1)
            is_drawn = problem.first_plane <= z < problem.end_plane and zeta0 <= zeta < zeta0 + sizes.slab
            assert sum(holds(patch, z + 0.5, level) for patch in patches) == int(is_drawn)


@given(built())
def test_time_line_ends_when_the_model_says(plan: Plan) -> None:
    """Checks that the drawn time line ends at the time that the cost model predicts for the plan."""
    ends = [max(span.end for span in time_line(plan, one, MACHINE)) for one in plan.passes]
    assert sum(ends) == pytest.approx(plan.predicted.seconds, rel=1e-9)


def test_updates_follow_each_other() -> None:
    """Checks that the time line has one bar for the updates of each slab. Bars must not overlap, and must not begin
    before the first planes of their slab are read.
    """
    problem = make_problem((64, 32, 32), (1, 1, 1), 8)
    sizes = Sizes(levels=4, slab=8, diamond=2)
    plan = build(problem, find_scheme("wavefront"), sizes, MACHINE, assumed_rate)
    spans = time_line(plan, plan.passes[0], MACHINE)
    updates = [span for span in spans if span.what == "update"]
    assert len(updates) == sum(isinstance(action, Update) for action in plan.passes[0].actions) > 3
    assert updates[0].start > 0
    assert all(a.end <= b.start for a, b in pairwise(updates))
    assert {span.what for span in spans} == {"read", "update", "write", "flush"}


@pytest.mark.parametrize("scheme", ["wavefront", "naive"])
def test_the_command_line_draws_and_touches_nothing_else(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks that `outcrop plan --draw` writes a PNG for each scheme and makes no run directory."""
    monkeypatch.chdir(tmp_path)
    problem = ["heat7", "-n", "32", "24", "16", "-t", "12", "-d", "run.oc", "--memory", "200KiB"]
    assert main.call(["plan", *problem, "--scheme", scheme, "--quiet", "--draw", "plan.png"]) == 0
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["plan.png"]
    assert main.call(["plan", *problem, "--quiet", "--draw", "new/plan.png"]) == 0
    assert (tmp_path / "new" / "plan.png").is_file() and not (tmp_path / "run.oc").exists()


@pytest.mark.parametrize("sizes", [["--by", "12", "--bt", "4"], []], ids=["blocks", "no blocks"])
def test_the_picture_has_the_texts_of_the_plan(
    sizes: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that the picture and the output of `outcrop plan` show the same numbers, and that the picture shows the
    blocks of a plan with blocks. Each part of the picture has its own colours."""
    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: figures.append(figure))
    words = ["heat7", "-n", "32", "40", "16", "-t", "12", "-d", str(tmp_path / "run.oc"), "--memory", "400KiB", *sizes]
    assert main.call(["plan", *words, "--draw", str(tmp_path / "plan.png")]) == 0
    rows = dict(line.strip().split(maxsplit=1) for line in capsys.readouterr().out.splitlines()[1:])
    (figure,) = figures
    assert figure.get_suptitle().splitlines()[1] == rows["scheme"]
    *parts, line = figure.axes
    assert line.get_title().endswith(re.match("about [^:]*", rows["time"])[0])  # type: ignore[index]
    assert len(parts) == 2 + bool(sizes)
    if sizes:
        blocks = re.search("[0-9]+ blocks", rows["scheme"])[0]  # type: ignore[index]
        assert parts[1].get_title().startswith(blocks)
        assert f"{len(parts[1].collections[0].get_paths())} blocks" == blocks
    colors = [{tuple(one) for one in axes.collections[0].get_facecolors()} for axes in parts]
    colors.append({tuple(one) for bars in line.collections for one in bars.get_facecolors()})
    assert len(set.union(*colors)) == sum(map(len, colors))
