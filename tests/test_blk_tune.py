"""Check the comparison with the paper of Midorikawa and Tan. Our Blk-Tune must give the sizes in Table II of the paper.

The traffic of our schemes equals the results of the published formulas."""

import json
from functools import cache
from pathlib import Path

import pytest

from outcrop.bench.literature.table2 import GIB, TABLE, Published, Traffic, blk_tune, table2_problem, traffic
from outcrop.cli.main import call
from outcrop.errors import BudgetError
from outcrop.run.options import RunOptions
from outcrop.run.setup import plan_elsewhere
from outcrop.tiers.declarations import load_machine
from strategies import make_problem

MACHINE = load_machine("crest10")
each_problem = pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)

# A second copy of the figures in the paper. A test compares this copy with TABLE, to detect an accidental change.
PRINTED = [
    (2048, 1025, 2304, 500, 2, 16, 107.3),
    (4096, 683, 1536, 334, 3, 54, 116.2),
    (4096, 683, 1440, 334, 3, 108, 110.3),
]


@cache
def moved(name: str) -> dict[str, Traffic]:
    """Return a dictionary from the name of each scheme to its traffic, for the row `name` of the table."""
    (row,) = (one for one in TABLE if one.name == name)
    problem = table2_problem(row)
    return {one.name: one for one in traffic(problem, blk_tune(problem, MACHINE.usable_bytes), row, MACHINE)}


def test_the_table_is_the_paper_s() -> None:
    """Checks that our table has the rows that the paper prints."""
    rows = [(one.bx, one.by, one.bz, one.bt, one.passes, one.blocks_in_all, one.largest_gib) for one in TABLE]
    assert rows == PRINTED


@each_problem
def test_blk_tune_gives_table_2(row: Published) -> None:
    """Checks that the number of passes, the division into blocks and the number of blocks equal the figures in the
    paper. The size of the largest block differs from the size in the paper by less than 1 %."""
    found = blk_tune(table2_problem(row), MACHINE.usable_bytes)
    assert (found.passes, found.blocks, found.blocks_in_all) == (row.passes, row.blocks, row.blocks_in_all)
    assert (found.bx, found.by, found.bz, found.bt) == (row.bx, row.by, row.bz, row.bt)
    assert found.block_bytes / GIB == pytest.approx(row.largest_gib, rel=0.01)


@each_problem
@pytest.mark.parametrize("gib", [117, 120, 124])
def test_the_table_does_not_hang_on_the_assumed_share_of_memory(row: Published, gib: int) -> None:
    """We assume that the blocks may use a certain share of the memory. Checks that the blocks do not depend on this
    share. All amounts of memory from the size of the largest block to 97 % of the machine's memory give the same
    blocks."""
    found = blk_tune(table2_problem(row), gib * GIB)
    assert (found.blocks, found.bt) == (row.blocks, row.bt)


@each_problem
@pytest.mark.parametrize("multiple", [1, 16, 192])
def test_the_division_does_not_hang_on_the_assumed_rounding(
    row: Published, multiple: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """We assume that the number of planes is rounded to a multiple of PLANES_MULTIPLE. Checks that the numbers of
    blocks and steps do not depend on this value."""
    monkeypatch.setattr("outcrop.bench.literature.table2.PLANES_MULTIPLE", multiple)
    found = blk_tune(table2_problem(row), MACHINE.usable_bytes)
    assert (found.blocks, found.bt) == (row.blocks, row.bt)


def test_less_memory_moves_more_and_is_never_exceeded() -> None:
    """Checks that the largest block fits the memory and uses more than half of it. Less memory leads to more traffic.
    """
    problem, words = make_problem((2048, 2048, 2048), (1, 1, 1), 500), 0.0
    for memory_bytes in (16 << 30, 4 << 30, 1 << 30, 256 << 20, 64 << 20):
        found = blk_tune(problem, memory_bytes)
        assert memory_bytes / 2 < found.block_bytes <= memory_bytes
        assert found.words > words
        words = found.words
    assert blk_tune(problem, 128 << 30).blocks == (1, 1, 1)
    with pytest.raises(BudgetError, match="1 KiB"):
        blk_tune(problem, 1 << 10)


@each_problem
def test_traffic_is_that_of_the_formulas(row: Published) -> None:
    """Checks the traffic against estimates. For wavefronts and for the minimum traffic (`floor`), the difference is at
    most 1 GiB. The estimate of AL-NR assumes that all blocks have the size of the largest block, so AL-NR moves up to
    12 % less. With the same assumption, our traffic differs from the estimate by at most 0.2 %."""
    found = moved(row.name)
    for name in ("wavefront k=1", "wavefront best k", "floor"):
        assert found[name].formula_gib == pytest.approx(row.estimate_gib[name], abs=1), name
        assert found[name].plan_gib == pytest.approx(row.estimate_gib[name], rel=0.01), name
    for name in ("aio", "aio3y", "aio5y"):
        assert 0.88 < found[name].formula_gib / row.estimate_gib[name] < 1, name
        assert 0.75 < found[name].plan_gib / row.estimate_gib[name] < 1, name
    # number of planes that the blocks touch, divided by the number of planes of the grid
    planes = row.blocks[2] * (row.bz + row.bt + 2) / row.shape[0]
    whole_blocks = planes / (1 + row.bt / row.bz)
    for name in ("aio", "aio3y"):
        assert found[name].formula_gib * whole_blocks == pytest.approx(row.estimate_gib[name], rel=0.002), name


@each_problem
def test_schemes_rank_as_the_paper_ranks_them(row: Published) -> None:
    """Checks the descending order of the traffic: aio, aio3y, aio5y, wavefronts, minimum (`floor`). The minimum is one
    read and one write of the grid.
    """
    found = moved(row.name)
    order = ["aio", "aio3y", "aio5y", "wavefront k=1", "wavefront best k", "floor"]
    plans = [found[name].plan_gib for name in order]
    assert plans == sorted(plans, reverse=True) and len(set(plans)) == len(plans)
    assert found["overlapped"].plan_gib > found["wavefront k=1"].plan_gib


@each_problem
def test_our_plan_of_these_blocks_is_the_paper_s(row: Published) -> None:
    """Checks that our plan for the paper's sizes has the same number of passes and blocks, in the same memory."""
    sizes = {"bt": row.bt, "by": row.by, "bz": row.bz}
    options = RunOptions("heat7", row.shape, "float64", scheme="skewed-5y", sizes=sizes, steps=1000)
    found = plan_elsewhere(MACHINE, options)
    assert len(found.plan.passes) == row.passes
    assert found.plan.blocks_per_pass * row.passes == row.blocks_in_all
    assert found.plan.memory_bytes / GIB == pytest.approx(row.largest_gib, rel=0.01)


def test_bench_prints_both_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that the benchmark prints our table above the paper's table, and writes both as JSON."""
    target = tmp_path / "table2.json"
    assert call(["bench", "table2", "--small", "--json", str(target)]) == 0
    said = capsys.readouterr().out
    ours, paper = (next(line for line in said.splitlines() if who in line) for who in ("ours", "paper"))
    assert ours.split()[3:] == paper.split()[1:]
    assert "wavefront best k" in said and "762" in said
    figures = json.loads(target.read_text())
    assert figures["problems"]["512 GiB"]["blk_tune"]["blocks"] == [1, 4, 2]
    assert {one["name"] for one in figures["problems"]["512 GiB"]["traffic"]} >= {"aio5y", "overlapped", "floor"}
