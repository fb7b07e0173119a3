"""These tests use aggregation from Python, with one process as the only rank. The tests check the bytes of files, the
errors for unsuitable arrays, the settings, and the texts of explain().
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outcrop as oc
import outcrop.aggregate as agg
from outcrop.errors import InputError, StorageError
from random_extents import expected, pattern

GIB = 2**30


@pytest.mark.parametrize("seed", range(12))
def test_files_are_what_numpy_would_write(tmp_path: Path, seed: int) -> None:
    """Check that contiguous ranges, records and subarrays are written correctly. The buffers are small, and there are
    several bases. A read into new arrays must return the written values.
    """
    mine = pattern(seed, 1)[0]
    plan = agg.declare(None, [one.extents for one in mine], target=tmp_path, buffer=4096, buffers=2 + seed % 3)
    arrays = [one.values(seed, 0, number) for number, one in enumerate(mine)]
    whole, base = expected([mine], seed), 4096 * (seed % 3) + seed % 2
    with agg.create(tmp_path / "file", plan, durable=seed % 4 == 0) as file:
        file.write(arrays, base=base)
    assert np.array_equal(np.fromfile(tmp_path / "file", np.uint8)[base:], whole)
    found = [np.zeros_like(array) for array in arrays]
    with agg.open(tmp_path / "file", plan) as file:
        file.read(found, base=base)
    assert all(np.array_equal(one, other) for one, other in zip(found, arrays, strict=True))


def one_array(tmp_path: Path, **settings: Any) -> tuple[agg.Plan, np.ndarray]:
    """Return a plan with one variable, which has the name u. Also return values for this variable."""
    values = np.random.default_rng(1).random((6, 50))
    plan = agg.declare(None, {"u": agg.subarray((6, 50), (6, 50), (0, 0), "float64")}, target=tmp_path, **settings)
    return plan, values


def test_steps_may_be_under_way_together(tmp_path: Path) -> None:
    """Check that a program may begin more requests than can be active at one time. Each request must keep its array,
    because the test keeps no reference to the array.
    """
    plan, values = one_array(tmp_path)
    with agg.create(tmp_path / "file", plan) as file:
        requests = [file.begin_write({"u": values + step}, base=step * plan.end) for step in range(7)]
        while not requests[0].test():
            pass
        assert all(request.wait().seconds > 0 for request in requests)
    steps = np.fromfile(tmp_path / "file").reshape(7, 6, 50)
    assert np.array_equal(steps, values + np.arange(7)[:, None, None])
    found = np.zeros((2, 6, 50))
    with agg.open(tmp_path / "file", plan) as file:
        for request in [file.begin_read([found[step]], base=(5 + step) * plan.end) for step in range(2)]:
            request.wait()
    assert np.array_equal(found, steps[5:])


def test_a_request_that_is_dropped_is_finished(tmp_path: Path) -> None:
    """Check that a request is completed even if the program deletes its last reference to the request. The program also
    deletes the last reference to the array. The library must keep the array until the bytes of the array are written.
    """
    plan, values = one_array(tmp_path)
    with agg.create(tmp_path / "file", plan) as file:
        file.begin_write([values.copy()])
    assert np.array_equal(np.fromfile(tmp_path / "file").reshape(6, 50), values)


def test_offsets_beyond_4_gib(tmp_path: Path) -> None:
    """Check that offsets beyond 4 GiB are right. Such offsets occur in an extent and in the base. The test writes a
    file with holes.
    """
    values = np.arange(1000, dtype=np.uint16)
    plan = agg.declare(None, [agg.strided(5 * GIB + 3, 1000, 2, 5)], target=tmp_path)
    with agg.create(tmp_path / "file", plan) as file:
        file.write([values], base=4 * GIB)
    found = np.memmap(tmp_path / "file", np.uint8, "r", 9 * GIB + 3)
    assert found[: 5 * 999 + 2].tobytes() == expected_records(values)
    again = np.zeros_like(values)
    with agg.open(tmp_path / "file", plan) as file:
        file.read([again], base=4 * GIB)
    assert np.array_equal(again, values)


def expected_records(values: np.ndarray) -> bytes:
    """Return the bytes of a file in which each group of 5 bytes has 2 bytes of data and a hole of 3 bytes."""
    records = np.zeros((len(values), 5), np.uint8)
    records[:, :2] = values.view(np.uint8).reshape(-1, 2)
    return records.tobytes()[: 5 * (len(values) - 1) + 2]


READ_ONLY = np.zeros((6, 50))
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    ("arrays", "line"),
    [
        ([], "1 variables were declared, 0 are given"),
        ([np.zeros(299)], "variable u has 2392 bytes, 2400 were declared"),
        ([np.zeros((50, 6)).T], "variable u is not contiguous"),
        ([[0.0] * 300], "variable u is of the type list"),
        ({"v": np.zeros(300)}, "variable u is missing"),
        ({"u": np.zeros(300), "v": np.zeros(300)}, "variable v is not declared"),
        ([np.full(300, None)], "variable u contains Python objects"),
        ([READ_ONLY], "variable u is read-only"),
    ],
)
def test_wrong_arrays_are_named(tmp_path: Path, arrays: Any, line: str) -> None:
    """Check that unsuitable arrays are refused. The error has one line, which names the variable. The refused call
    reads nothing, and the file can still be used.
    """
    plan, values = one_array(tmp_path)
    with agg.create(tmp_path / "file", plan) as file:
        file.write([values])
    with agg.open(tmp_path / "file", plan) as file:
        with pytest.raises(InputError, match=line) as error:
            file.read(arrays)
        assert "\n" not in str(error.value)
        with pytest.raises(InputError, match=line):
            file.begin_read(arrays).wait()
        found = np.zeros((6, 50))
        file.read([found])
        assert np.array_equal(found, values)


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: agg.contiguous(-1, 5), "offset = -1"),
        (lambda: agg.contiguous(0, 2**64), "nbytes = 18446744073709551616"),
        (lambda: agg.contiguous(0, 1.5), r"nbytes = 1\.5"),
        (lambda: agg.contiguous(2**64 - 2, 5), "64 bits|2\\^6"),
        (lambda: agg.strided(0, 3, 8, 7), "stride"),
        (lambda: agg.subarray((4, 4), (2, 3), (0, 2), "float64"), "outside|beyond"),
        (lambda: agg.subarray((4, 4), (2,), (0, 0), "float64"), "axes|sizes"),
        (lambda: agg.subarray((4,), (2,), (0,), "float65"), "float65"),
    ],
)
def test_extents_that_cannot_be_are_refused(make: Any, line: str) -> None:
    """Check that the error for an invalid extent names the invalid argument."""
    with pytest.raises(InputError, match=line):
        make()


def test_extents_say_what_they_are() -> None:
    """Check that an extent reports its position in the file and its size in memory."""
    part = agg.subarray((4, 6), (2, 3), (1, 2), "int16", offset=100)
    assert (part.nbytes, part.memory_nbytes, part.blocks) == (12, 12, 2)
    assert (part.begin, part.end) == (100 + 2 * 8, 100 + 2 * 17)
    assert part == agg.strided(116, 2, 6, 12) != agg.strided(116, 2, 6, 13)
    assert "12 bytes in 2 pieces" in repr(part)


def test_overlaps_are_refused_but_for_reading(tmp_path: Path) -> None:
    """Check that the error for overlapping extents names a byte that both extents contain. A plan for reading can have
    overlapping extents, but cannot write.
    """
    twice = [agg.contiguous(0, 100), agg.contiguous(99, 10)]
    with pytest.raises(InputError, match=r"overlap at byte 99 .* rank 0"):
        agg.declare(None, twice, target=tmp_path)
    np.arange(109, dtype=np.uint8).tofile(tmp_path / "file")
    plan = agg.declare(None, twice, target=tmp_path, reads_only=True)
    first, second = np.zeros(100, np.uint8), np.zeros(10, np.uint8)
    with agg.open(tmp_path / "file", plan, writable=True) as file:
        file.read([first, second])
        assert first[99] == second[0] == 99 and second[9] == 108
        with pytest.raises(InputError, match="reading only"):
            file.write([first, second])


def test_settings_reach_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that arguments override hints, and that hints override the environment. explain() must name the source of a
    setting.
    """
    monkeypatch.setenv("OUTCROP_AGG_BUFFER", "64KiB")
    assert "x 64 KiB" in one_array(tmp_path)[0].explain()
    plan, _ = one_array(tmp_path, hints={"cb_buffer_size": "131072", "striping_unit": "1"})
    assert "x 128 KiB" in plan.explain() and "buffer_bytes by hint cb_buffer_size" in plan.explain()
    plan, _ = one_array(tmp_path, hints={"cb_buffer_size": "131072"}, buffer="256KiB", buffers=3)
    assert "buffers of 3 x 256 KiB" in plan.explain() and "buffer_bytes by argument buffer" in plan.explain()
    plan, _ = one_array(tmp_path, transport="rma")
    assert "between nodes: messages, because rma does not work: there is only one process" in plan.explain()
    assert "transport by argument transport" in plan.explain()


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"tier": "tape"}, "tier 'tape' is unknown; there are "),
        ({"persistence": "ever"}, "persistence"),
        ({"buffer": 5000}, "multiple of 4096"),
        ({"buffers": 9}, "choose 2 to 8"),
        ({"count": 2}, "2 aggregators|at most 1"),
        ({"hosts": "nobody:1"}, "room|aggregators"),
        ({"transport": "tcp"}, "argument transport = 'tcp' must be messages or rma"),
        ({"topology": "missing"}, "missing"),
        ({"own_run_bytes": "much"}, "own_run_bytes = 'much' must be a size such as 64MiB"),
        ({"seconds_most": -1}, "seconds_most = '-1' must be a number of at least 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path: Path, settings: dict[str, Any], line: str) -> None:
    """Check that each invalid setting raises an error with one line."""
    with pytest.raises(InputError, match=line):
        agg.declare(None, one(), target=tmp_path, **settings)


def one() -> list[agg.Extent]:
    """Return one extent of 4 MiB."""
    return [agg.contiguous(0, 2**22)]


def test_plans_are_explained_before_and_after(tmp_path: Path) -> None:
    """Check the text of explain(). The text must give the rank, the tier and the predicted time. After a step, the text
    must also give the measured time.
    """
    nbytes = 2**22
    plan = agg.declare(None, one(), target=tmp_path, buffer="512KiB", own_run_bytes=0)
    before = plan.explain()
    assert "1 rank on 1 node" in before and "predicted" in before and "domain 0" in before and "target" in before
    assert "measured" not in before and plan.seconds > 0
    array = np.ones(nbytes, np.uint8)
    with agg.create(tmp_path / "file", plan) as file:
        timings = [file.write([array]) for _ in range(3)]
        file.begin_read([array]).wait()
    after = plan.explain()
    assert after.startswith(before)
    assert "3 writes" in after and "1 read:" in after and "of the shorter beside the other" in after
    for timing in timings:
        assert timing.bytes_storage == nbytes and 0 < timing.seconds_copying <= timing.seconds
        assert timing.overlap is not None and 0 <= timing.overlap <= 1
    for settings in ({}, {"own_run_bytes": "64KiB"}):
        own = agg.declare(None, one(), target=tmp_path, **settings)
        assert own.seconds > 0 and "its own bytes" in own.explain()
    # aggregators are used, because the user gives their number
    aggregated = agg.declare(None, one(), target=tmp_path, count=1)
    assert "its own bytes" not in aggregated.explain()


def test_missing_files_and_closed_ones(tmp_path: Path) -> None:
    """Check that missing files and closed files raise errors of this package. The error for a missing file must name
    the path of the file.
    """
    plan, values = one_array(tmp_path)
    with pytest.raises(StorageError, match="nowhere"):
        agg.open(tmp_path / "nowhere", plan)
    with pytest.raises(StorageError, match="nowhere"):
        agg.create(tmp_path / "nowhere" / "file", plan)
    with pytest.raises(InputError, match="way 'fast'"):
        agg.create(tmp_path / "file", plan, way="fast")
    with agg.create(tmp_path / "file", plan, way="direct", size_bytes=2400) as file:
        file.write([values])
        file.flush()
        with pytest.raises(InputError, match="-1 must be"):
            file.write([values], base=-1)
    with pytest.raises(InputError, match="closed"):
        file.write([values])


FULL = """
import resource, sys
import numpy as np
import outcrop.aggregate as agg
from outcrop.errors import StorageError
plan = agg.declare(None, [agg.contiguous(0, 1 << 20)], target=".", buffer=65536)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, 1 << 19))
with agg.create("full", plan, way="buffered") as file:
    for _ in range(2):
        try:
            file.write([np.ones(1 << 20, np.uint8)])
        except StorageError as error:
            print(error)
"""


def test_what_needs_a_plan_that_has_been_closed_is_refused(tmp_path: Path) -> None:
    """Check calls for a file whose plan is closed. Ranks need the plan to transfer bytes. Therefore calls that need the
    plan must raise an error. A second close() of a file is no error.
    """
    plan, values = one_array(tmp_path)
    with agg.create(tmp_path / "closed", plan) as closed:
        closed.write([values])
    file = agg.create(tmp_path / "file", plan)
    request = file.begin_write([values])
    request.wait()
    plan.close()
    for act in (
        lambda: file.write([values]),
        lambda: file.read([values]),
        lambda: file.begin_read([values]),
        lambda: agg.open(tmp_path / "file", plan),
        lambda: agg.create(tmp_path / "other", plan),
        file.flush,
        file.close,
    ):
        with pytest.raises(InputError, match="the plan has been closed"):
            act()
    closed.close()
    assert request.test() and request.wait().seconds > 0, "what is over stays so"
    assert not (tmp_path / "other").exists()


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    """Check the error for a write beyond the limit that the system sets for the size of files. The error has one line,
    which names the rank, the file and the offset. After the error, the file can still be used and closed.
    """
    done = subprocess.run([sys.executable, "-c", FULL], capture_output=True, text=True, cwd=tmp_path, timeout=100)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert all("rank 0" in line and "full" in line and "524288" in line for line in lines), lines


def test_the_package_exports_it() -> None:
    """Check that `outcrop.aggregate` can be used after `import outcrop`."""
    assert oc.aggregate is agg and set(agg.__all__) <= set(dir(agg))
    with pytest.raises(AttributeError, match="staple"):
        agg.staple  # noqa: B018


def test_staged_steps_are_read_back_and_get_to_the_file(tmp_path: Path) -> None:
    """Check that a read returns steps that are only in the stage. After a flush, the steps must be in the file."""
    plan, values = one_array(tmp_path)
    stage = tmp_path / "stage"
    stage.mkdir()
    with agg.create(tmp_path / "file", plan, stage=stage) as file:
        for step in range(3):
            file.write([values + step], base=step * plan.end)
        found = np.zeros_like(values)
        file.read([found], base=plan.end)
        assert np.array_equal(found, values + 1) and file.notes == []
        file.flush()
        steps = np.fromfile(tmp_path / "file").reshape(3, 6, 50)
        assert np.array_equal(steps, values + np.arange(3)[:, None, None])
    with pytest.raises(InputError, match="give either node_files or stage_folder"):
        agg.create(tmp_path / "file", plan, stage=stage, node_files=True)


def test_a_file_that_is_left_by_an_exception_is_closed(tmp_path: Path) -> None:
    """Check what happens when an exception ends the `with` block of a file. The staged step must be copied to the file,
    and the file must be closed.
    """
    plan, values = one_array(tmp_path)
    (tmp_path / "stage").mkdir()
    with pytest.raises(ValueError, match="mine"), agg.create(tmp_path / "file", plan, stage=tmp_path / "stage") as file:
        file.write([values])
        raise ValueError("mine")
    assert np.array_equal(np.fromfile(tmp_path / "file").reshape(6, 50), values)
    with pytest.raises(InputError, match="closed"):
        file.write([values])


def test_plans_for_reading_are_made_by_settings_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a hint or an environment variable can make a plan that only reads. A misspelt variable raises an
    error."""
    twice = [agg.contiguous(0, 100), agg.contiguous(99, 10)]
    assert agg.declare(None, twice, target=tmp_path, hints={"outcrop_agg_reads_only": "true"}).reads_only
    monkeypatch.setenv("OUTCROP_AGG_READS_ONLY", "true")
    plan = agg.declare(None, twice, target=tmp_path)
    assert plan.reads_only and "reads_only by OUTCROP_AGG_READS_ONLY" in plan.explain()
    monkeypatch.setenv("OUTCROP_AGG_READ_ONLY", "true")
    with pytest.raises(InputError, match="'OUTCROP_AGG_READ_ONLY' of aggregation is unknown; there are"):
        agg.declare(None, twice, target=tmp_path)


def test_files_of_nodes_are_merged(tmp_path: Path) -> None:
    """Check two ways to merge node files: the function merge() and the command `outcrop agg merge`. The merged file
    must have every byte, and the command must print the number of merged bytes.
    """
    plan, values = one_array(tmp_path)
    with agg.create(tmp_path / "file", plan, node_files=True) as file:
        file.write([values])
        file.write([values + 1], base=plan.end)
    found = np.zeros_like(values)
    with agg.open(tmp_path / "file", plan, node_files=True) as file:
        file.read([found], base=plan.end)
    assert np.array_equal(found, values + 1)
    assert agg.merge(tmp_path / "file.index", tmp_path / "one") == 2 * values.nbytes
    assert np.array_equal(np.fromfile(tmp_path / "one"), np.concatenate([values.ravel(), values.ravel() + 1]))
    command = [sys.executable, "-m", "outcrop.cli.main", "agg", "merge", "file.index", "new/two"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=100)
    assert done.returncode == 0 and f"new/two: {2 * values.nbytes} bytes" in done.stdout, done.stderr
    assert (tmp_path / "new" / "two").read_bytes() == (tmp_path / "one").read_bytes()
    done = subprocess.run([*command[:-2], "nothing.index", "other/two"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode != 0 and "nothing.index" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "other").exists()
