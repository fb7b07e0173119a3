"""These tests check `outcrop agg bench`: the order of the measurements, the comparison of bytes, and the figures."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpi_programs import launcher, mpirun
from outcrop import _aggregate
from outcrop.aggregate.workloads import KERNELS, Contents, make_kernel
from outcrop.bench.aggregate.bench import BenchRequest, programs_for, ranks_of
from outcrop.bench.aggregate.figures import cell, not_faster, of_programs, remarks, summary, table
from outcrop.bench.aggregate.job import MODES, Baton, schedule
from outcrop.bench.aggregate.way import extent_of, implementation_of_open_mpi
from outcrop.bench.memory import cached_share, drop_from_page_cache
from outcrop.bench.ranks import LAUNCHERS
from outcrop.cli.main import call
from outcrop.errors import StorageError

WAYS = ("outcrop", "mpi-io", "posix")


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the environment variables that mpirun sets. The process then acts as if mpirun had not started it."""
    for name in LAUNCHERS:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("ranks", [1, 3, 8])
def test_the_ranks_of_a_kernel_fill_its_file(name: str, ranks: int, tmp_path: Path) -> None:
    """Check that every byte of the file belongs to exactly one rank. The expected file consists of whole arrays. The
    test fills these arrays with the boxes of the ranks.
    """
    path = tmp_path / "file"
    path.write_bytes(b"")
    whole: list[np.ndarray] = []
    for rank in range(ranks):
        kernel = make_kernel(name, ranks, rank, 4096)
        extents = [extent_of(one) for one in kernel.variables]
        assert sum(one.nbytes for one in extents) == kernel.nbytes
        memory = np.full(kernel.nbytes, 1 + rank, np.uint8)
        whole = whole or [np.zeros((*one.shape, one.item_bytes), np.uint8) for one in kernel.variables]
        for one, array in zip(kernel.variables, whole, strict=True):
            box = tuple(slice(start, start + size) for start, size in zip(one.starts, one.box, strict=True))
            assert not array[box].any()
            array[box] = 1 + rank
        plain = _aggregate.PlainRuns(str(path), [[one] for one in extents], True)
        plain.write(kernel.arrays(memory))
        plain.flush()
        found = np.zeros_like(memory)
        plain.read(kernel.arrays(found))
        assert (found == memory).all()
    expected = np.concatenate([array.reshape(-1) for array in whole])
    assert expected.all() and path.read_bytes() == expected.tobytes()


def test_no_byte_of_another_turn_is_taken_for_right() -> None:
    """Check that the comparison after a read finds every wrong byte. At each place, the expected byte must differ from
    the expected byte of the previous turn. The expected byte must also differ from the byte in memory before the read.
    """
    contents = Contents(make_kernel("hacc-aos", 2, 1, 1000), 1)
    before = contents.stamped(7).copy()
    after = contents.stamped(8)
    assert (before != after).all()
    found = contents.emptied()
    assert (found != after).all() and not contents.is_right
    found[:] = after
    assert contents.is_right
    found[-1] ^= 1
    assert not contents.is_right


def test_names_of_ways_may_have_spaces_around_them(tmp_path: Path) -> None:
    assert BenchRequest(tmp_path, ways="outcrop, posix ").job().ways == ("outcrop", "posix")


def test_ways_take_turns() -> None:
    """Check that each way performs each mode exactly once in each turn. If the number of turns is the number of ways,
    each way is first in exactly one turn.
    """
    tasks = list(schedule(["s3d", "hacc-soa"], MODES, WAYS, 3))
    assert [task.number for task in tasks] == list(range(len(tasks)))
    assert [task.mode for task in tasks].count(None) == 2 and tasks[0].mode is None
    measured = [task for task in tasks if task.mode]
    assert len({(one.workload, one.mode, one.way, one.turn) for one in measured}) == len(measured) == 2 * 4 * 3 * 3
    for mode in MODES:
        firsts = [one.way for one in measured if one.mode == mode and one.workload == "s3d"][:: len(WAYS)]
        assert sorted(firsts) == sorted(WAYS)


def test_programs_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a task begins only after all earlier tasks are complete. A program without other programs does not
    wait."""
    path = tmp_path / "baton"
    path.touch()
    mine, other = Baton(path), Baton(path)
    done_by_other = 0

    def does_a_task(seconds: float) -> None:
        nonlocal done_by_other
        done_by_other += 1
        other.pass_on()

    monkeypatch.setattr(time, "sleep", does_a_task)  # while one program sleeps, the other program does a task
    mine.wait_for(0)
    assert done_by_other == 0
    mine.wait_for(3)
    assert done_by_other == 3
    mine.pass_on()
    mine.wait_for(4)
    assert done_by_other == 3
    Baton(None).wait_for(5)
    assert done_by_other == 3


def test_a_program_whose_other_never_comes_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a program does not wait forever if the other program was killed."""
    path = tmp_path / "baton"
    path.touch()
    monkeypatch.setattr("outcrop.bench.aggregate.job.MAX_SECONDS", 0.0)
    with pytest.raises(StorageError, match=r"baton: the other MPI program has not finished its task"):
        Baton(path).wait_for(1)


def test_open_mpi_has_a_program_for_each_of_its_mpi_io() -> None:
    """Check that each implementation of MPI-IO has its own program. The first program must also measure all ways
    without MPI-IO. If MPI has only one implementation of MPI-IO, one program measures all ways.
    """
    first, second = programs_for(WAYS, ["ompio", "romio321"])
    assert first.ways == ("outcrop", "mpi-io:ompio", "posix") and first.options == ("--mca", "io", "ompio")
    assert second.ways == ("mpi-io:romio321",) and second.options == ("--mca", "io", "romio321")
    assert [one.ways for one in programs_for(WAYS, [])] == [WAYS]
    assert [one.ways for one in programs_for(("outcrop", "posix"), ["ompio"])] == [("outcrop", "posix")]


def record(way: str, mode: str, slowest: float, cached: float | None = None, **known: float) -> dict[str, Any]:
    return {"way": way, "mode": mode, "turn": 0, "seconds": slowest, "seconds_set_up": 0.001, "seconds_close": 0.002,
            "cached_before": cached, "known": known}  # fmt: skip


def program(ways: tuple[str, ...], measured: list[dict[str, Any]]) -> dict[str, Any]:
    declared = {
        way: {
            "seconds_declare": 0.1,
            "memory_mean_bytes": 1 << 20,
            "memory_max_bytes": 2 << 20,
            "implementation": "OMPIO" if "mpi" in way else None,
            "explained": None,
        }
        for way in ways
    }
    part = {"workload": "s3d", "text": "S3D", "file_bytes": 10**9, "declared": declared, "measured": measured}
    return {"library": "An MPI", "own": list(ways), "ranks": 4, "nodes": ["n"], "workloads": [part]}


def test_medians_are_compared_with_the_fastest_other_way() -> None:
    """Check that the gain is the median time of the fastest other way divided by the median time of Outcrop."""
    records = [record("outcrop", "write", seconds) for seconds in (1.0, 9.0, 2.0)]
    records += [record("posix", "write", seconds) for seconds in (5.0, 3.0, 4.0)]
    records += [record("mpi-io", "write", seconds) for seconds in (7.0, 7.0, 7.0)]
    found = cell("write", records, 10**9)
    assert found["seconds"]["outcrop"] == {"min": 1.0, "median": 2.0, "max": 9.0, "all": [1.0, 9.0, 2.0]}
    assert found["best_other"] == "posix" and found["gain"] == 2.0 and found["gain_collective"] == 3.5
    assert cell("write", records[:6], 10**9)["gain_collective"] is None
    alone = cell("write", records[3:], 10**9)
    assert alone["gain"] is None and alone["gain_collective"] is None


def test_programs_that_took_turns_make_one_table() -> None:
    """Check that one table has the figures of all ways, even if several programs have measured the ways. If another way
    is faster than Outcrop, a remark must name this way. The remark must also say how much of Outcrop's time storage and
    copying take.
    """
    slow = record("outcrop", "read-cold", 2.0, cached=0.5, seconds=2.0, seconds_storage=1.8, seconds_copying=0.4)
    first = program(("outcrop",), [slow, record("outcrop", "write", 1.0)])
    theirs = [record("mpi-io:ompio", "read-cold", 1.0), record("mpi-io:ompio", "write", 2.0)]
    second = program(("mpi-io:ompio",), theirs)
    (figures,) = of_programs([first, second])
    lines = list(table(figures))
    assert "outcrop | OMPIO (mpi-io:ompio)" in lines[0]
    assert lines[2] == "| write | 1 (1 to 1) | 0.5 (0.5 to 0.5) | 2.00 | 2.00 |"
    assert lines[3] == "| read, cold | 0.5 (0.5 to 0.5) | 1 (1 to 1) | 0.50 | 0.50 |"
    assert any("declare, ms | 100 | 100" in line for line in lines) and "1 MiB (2 MiB)" in lines[-2]
    said = "\n".join(remarks(figures))
    assert "s3d, 4 ranks, read, cold: 0.50 of the speed of OMPIO" in said
    assert "storage takes up to 90% of the time of a rank, and copying up to 20%" in said
    assert "up to 50% of the file were still in the page cache" in said and "within the spread" not in said
    assert summary([figures]).count("in 1 of 2 cells, the minimum is 0.50") == 2
    figures["cells"][1]["seconds"]["outcrop"]["min"] = 0.9
    assert "within the spread" in not_faster(figures, figures["cells"][1])


def test_pages_of_a_file_are_dropped_and_seen(tmp_path: Path) -> None:
    """Check that the pages of a new file are in the page cache. After the pages are dropped, no page of the file may be
    in the cache. A cold read therefore gets its bytes from the device.
    """
    path = tmp_path / "file"
    path.write_bytes(np.random.default_rng(1).bytes(1 << 20))
    assert cached_share(path) == 1.0
    drop_from_page_cache(path)
    share = cached_share(path)
    if share == 1.0:
        pytest.skip("this file system keeps pages")  # a tmpfs keeps all its data in memory, so pages cannot be dropped
    assert share == 0.0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (["--workload", "ior"], "ior is unknown; there are s3d"),
        (["--turns", "0"], "at least 1"),
        (["--ways", "outcrop,mpiio"], "'mpiio' is unknown; there are outcrop, mpi-io, posix"),
        (["--durable", "perhaps"], "must be one of both, yes, no"),
        (["--size", "2GiB"], "the maximum is 1GiB for each rank"),
        (["--size", "much"], "'much' is not understood"),
        (["--ranks", "4,0"], "write numbers from 1"),
        (["--ranks", "some"], "write numbers from 1"),
        (["--ranks", "4000", "--size", "1GiB"], "give a smaller --size"),
        (["-d", "/dev/null/folder"], "/dev/null is a file"),
        (["--png", "/dev/null/picture.png"], "Not a directory"),
    ],
)
def test_bad_input_is_one_line(
    changed: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], alone: None
) -> None:
    """Check that wrong input gives exit code 2 and an error with one line. No file is made."""
    options = [*changed] if "-d" in changed else ["-d", str(tmp_path), *changed]
    assert call(["agg", "bench", *options]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1, error
    assert not list(tmp_path.iterdir())


def test_workloads_have_the_names_of_simulations() -> None:
    """Check which kernels the name of a workload selects. The name `s3d` selects one kernel, `hacc` selects both
    layouts of HACC-IO, and `all` selects every kernel.
    """
    for name, kernels in (("s3d", ("s3d",)), ("hacc", ("hacc-aos", "hacc-soa")), ("all", tuple(KERNELS))):
        assert BenchRequest(Path(), workload=name).job().workloads == kernels


def test_numbers_of_ranks() -> None:
    """Check that a text with several numbers of ranks is parsed. Commas separate the numbers. The default has three
    numbers."""
    assert ranks_of("2,16") == (2, 16) and ranks_of(None) == (4, 8, 16)


def check(figures: dict[str, Any], ranks: int, turns: int) -> None:
    assert {one["workload"] for one in figures["runs"]} == set(KERNELS)
    for one in figures["runs"]:
        assert one["ranks"] == ranks and one["library"]
        assert [each["mode"] for each in one["cells"]] == [mode.name for mode in MODES]
        for each in one["cells"]:
            assert {way.partition(":")[0] for way in each["seconds"]} == set(WAYS) and each["gain"] > 0
            assert all(len(seconds["all"]) == turns and seconds["min"] > 0 for seconds in each["seconds"].values())
            assert each["known"]["seconds"] > 0
        known = {"ROMIO", "OMPIO", implementation_of_open_mpi("")}
        assert {way["implementation"] for way in one["ways"].values()} - {None} <= known


def test_ranks_of_mpirun_measure_together(tmp_path: Path) -> None:
    """Check that the benchmark measures all ways, kernels and modes with the installed MPI, at a small size. The
    benchmark must leave only the files with the figures and the picture.
    """
    target, picture = tmp_path / "figures.json", tmp_path / "bench.png"
    command = ["agg", "bench", "-d", str(tmp_path / "new" / "below"), "--size", "8KiB", "--turns", "2"]
    command += ["--json", str(target), "--png", str(picture)]
    done = mpirun(3, sys.executable, "-m", "outcrop.cli.main", *command)
    assert done.returncode == 0, done.stdout + done.stderr
    check(json.loads(target.read_text()), ranks=3, turns=2)
    assert done.stdout.count("| GB/s: median (min to max) |") == 3 and "of 12 cells" in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in tmp_path.iterdir()} == {"figures.json", "bench.png"}


def test_it_starts_mpirun_itself(tmp_path: Path, alone: None, capfd: pytest.CaptureFixture[str]) -> None:
    """Check that the command starts the mpirun of mpi4py's MPI. It must measure all implementations of MPI-IO in this
    MPI."""
    launcher()
    target = tmp_path / "figures.json"
    command = ["agg", "bench", "-d", str(tmp_path / "new"), "--ranks", "2", "--size", "8KiB", "--turns", "1"]
    assert call([*command, "--json", str(target)]) == 0, capfd.readouterr()
    check(json.loads(target.read_text()), ranks=2, turns=1)
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]
