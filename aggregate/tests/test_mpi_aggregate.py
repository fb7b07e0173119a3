"""These tests run Python programs with several MPI ranks. The files must have the bytes that NumPy computes. If an
error occurs on one rank, all ranks must get this error.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mpi_programs import mpirun
from strategies import examples

PROGRAM = Path(__file__).parent / "aggregate_ranks.py"
TRANSPORTS = ("messages", "rma")


def ranks_do(ranks: int, what: str, folder: Path, *arguments: object, **environment: str) -> list[str]:
    """Run the ranks, and return the lines that the ranks print."""
    command = [sys.executable, str(PROGRAM), what, str(folder), *map(str, arguments)]
    done = mpirun(ranks, *command, environment=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if line.strip()]


@pytest.mark.parametrize(("ranks", "seeds"), [(1, (0, 4)), (3, (10, 18)), (4, (20, 28)), (16, (30, 33))])
def test_files_are_what_numpy_would_write(tmp_path: Path, ranks: int, seeds: tuple[int, int]) -> None:
    """Write random patterns in three steps, and read the files, with several numbers of aggregators. The first step is
    complete before the other two steps begin. The bytes of the second and the third step are transferred at the same
    time. One of these two steps begins at 5 GiB.
    """
    ranks_do(ranks, "patterns", tmp_path, *seeds)


@pytest.mark.parametrize(("ranks", "on_node"), [(2, 1), (5, 2), (8, 3)])
def test_files_are_the_same_whatever_carries_bytes_between_nodes(tmp_path: Path, ranks: int, on_node: int) -> None:
    """Check that random patterns are written and read correctly on several simulated nodes. The bytes between nodes are
    sent as messages, or are fetched from MPI windows.
    """
    ranks_do(ranks, "patterns", tmp_path, 40, 44, *TRANSPORTS, RANKS_ON_NODE=str(on_node))


SLOW_NETWORK = """
[dram]
kind = "dram"
capacity = "1GiB"
read = "90GB/s"
write = "90GB/s"
[target]
read = "1GB/s"
write = "1GB/s"
[network]
latency = 0.01
cards = 3
"""


@pytest.mark.parametrize(("ranks", "on_node"), [(4, 2), (8, 3), (9, 4)])
def test_files_are_the_same_where_ranks_of_a_node_send_as_one(tmp_path: Path, ranks: int, on_node: int) -> None:
    """Check that the ranks of a node send one common message if messages have a high latency."""
    (tmp_path / "machine").write_text(SLOW_NETWORK)
    settings = {"OUTCROP_AGG_MACHINE": str(tmp_path / "machine"), "RANKS_ON_NODE": str(on_node)}
    lines = ranks_do(ranks, "patterns", tmp_path, 50, 50 + examples(3), *TRANSPORTS, **settings)
    for transport in TRANSPORTS:
        assert lines.count(f"one message a node, {transport}") > 1, lines


def test_overlaps_name_both_ranks(tmp_path: Path) -> None:
    """Check that all ranks get an error if two ranks declare the same byte. The error must name the byte and both
    ranks."""
    (line,) = ranks_do(4, "overlap", tmp_path)
    assert "overlap at byte 270" in line and "ranks 2 and 3" in line


def test_what_one_rank_declares_wrong_is_raised_on_all(tmp_path: Path) -> None:
    """If one rank declares invalid extents or settings, all ranks must get an error, and no rank must wait forever."""
    lines = ranks_do(3, "wrong_extents", tmp_path)
    assert len(lines) == 3
    assert "rank 2: variable u" in lines[0] and "different settings" in lines[1] and "tape" in lines[2]


def test_wrong_arrays_of_one_rank_are_told_to_all(tmp_path: Path) -> None:
    """Check that the error for an unsuitable array names the rank, the variable and both sizes."""
    lines = ranks_do(3, "wrong_arrays", tmp_path)
    assert len(lines) == 2 and all("rank 2: variable u has 792 bytes, 800 were declared" in line for line in lines)


def test_a_full_disk_is_told_to_all(tmp_path: Path) -> None:
    """Check that the error for a full disk names the aggregator, the file and the offset. No rank hangs."""
    lines = ranks_do(4, "full", tmp_path)
    assert len(lines) == 2 and all("by rank" in line and "524288" in line and "file" in line for line in lines), lines


def test_the_error_of_a_program_is_seen(tmp_path: Path) -> None:
    """In this test, the program of one rank raises an exception while a file is open. Check that the rank with the
    exception does not wait for the other ranks.
    """
    program = [sys.executable, "-m", "mpi4py", str(PROGRAM), "own_error", str(tmp_path)]
    done = mpirun(3, *program, seconds=60)
    assert done.returncode != 0
    assert "left by ValueError('the program of this rank is wrong')" in done.stdout + done.stderr


def test_a_missing_file_is_told_to_all(tmp_path: Path) -> None:
    """Check that all ranks that open a missing file get an error. The error must name the file."""
    (line,) = ranks_do(3, "missing", tmp_path)
    assert "nowhere" in line


@pytest.mark.parametrize("ranks", [1, 4])
def test_hints_and_the_environment_reach_the_plan(tmp_path: Path, ranks: int) -> None:
    """Check that hints with ROMIO's names have an effect, and that explain() names these hints."""
    text = "\n".join(ranks_do(ranks, "hints", tmp_path))
    assert f"{min(2, ranks)} aggregator" in text and "128 KiB" in text and "predicted" in text
