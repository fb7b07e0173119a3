"""Check the benchmark `ladder`. A column of the ladder is one variant of the program. Each variant must give the same
bits as the oracle and keep its memory limit. The report must be correct."""

from __future__ import annotations

import json
import os
import resource
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from oracle import advance
from outcrop import _core
from outcrop.bench import memory
from outcrop.bench.literature import ladder
from outcrop.bench.literature.ladder import Bar, line_of, same_bits
from outcrop.bench.literature.ladder_columns import (
    COLUMNS,
    COMPONENTS,
    NAIVE_STEPS,
    SMALL,
    Column,
    ColumnJob,
    ColumnRun,
    LimitedRun,
    find_column,
    measure,
)
from outcrop.bench.rates import smooth_planes
from outcrop.cli.main import call
from outcrop.errors import InputError, StorageError
from outcrop.language.library import find_stencil
from outcrop.plan.memory import Window
from outcrop.run.disk.layout import make_layout
from strategies import examples

MIB = 1 << 20
LOCKABLE_BYTES = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
MAY_LOCK = os.geteuid() == 0 or LOCKABLE_BYTES == resource.RLIM_INFINITY or LOCKABLE_BYTES >= 8 * MIB


def right_digest(shape: tuple[int, int, int], steps: int) -> int:
    """Return the checksum of the grid that the oracle computes from the initial values of the benchmark."""
    initial = smooth_planes(0, shape[0], shape)
    after = advance(find_stencil("heat7"), initial, {}, steps)
    return _core.crc32c(np.ascontiguousarray(after).view(np.uint8).reshape(-1))


@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from([column for column in COLUMNS if MAY_LOCK or not column.locks_memory]),
    st.tuples(st.integers(1, 40), st.integers(1, 30), st.integers(1, 70)),
    st.integers(1, 9),
    st.floats(0.05, 1.0),
)
def test_every_column_gives_the_oracles_bits(
    column: Column, shape: tuple[int, int, int], steps: int, share: float
) -> None:
    """Checks that all columns of the ladder compute the same bits with any amount of memory, and move the predicted
    number of bytes. Columns differ in I/O (swap, mmap or direct), layers (one or two) and padding."""
    layout = make_layout(shape, "float32")
    whole = Window((shape[0], shape[0], 0), layout.record_bytes).bytes
    with tempfile.TemporaryDirectory() as folder:
        job = ColumnJob(column.number, shape, steps, max(int(share * whole), 30 * layout.record_bytes), folder)
        measured = measure(job)
    assert measured.digest == right_digest(shape, steps)
    assert (measured.bytes_read, measured.bytes_written) == (
        measured.predicted_bytes_read,
        measured.predicted_bytes_written,
    )
    assert (measured.bytes_read > 0) == (column.layers == 2)
    assert sum(measured.seconds_components.values()) <= measured.seconds * 1.01 + 1e-3


def test_small_ladder_measures_every_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks that each bar of the ladder has a figure, or the reason why the figure is missing. The results must be
    bitwise identical to the oracle's results. No files may remain. The picture must show the figures of the table, and
    each colour must have one meaning."""
    figures_file, picture = tmp_path / "figures.json", tmp_path / "picture.png"
    where = str(tmp_path / "new" / "below")
    arguments = ["bench", "ladder", "--small", "-d", where, "--json", str(figures_file), "--png", str(picture)]
    assert call([*arguments, "-t", "5", "--memory", "40%"]) == 0
    said = capsys.readouterr().out
    assert "All columns give the same bits." in said
    figures = json.loads(figures_file.read_text())
    assert figures["steps"] == 5 and figures["memory_budget_bytes"] == int(0.4 * SMALL.both_bytes)
    digest = right_digest(SMALL.shape, 5)
    for key in ("in_core", "out_of_core"):
        assert [row["number"] for row in figures[key]] == [column.number for column in COLUMNS]
        for row in figures[key]:
            has_swap = row["is_in_core"] or memory.swap_free_bytes() >= SMALL.both_bytes
            if row["through"] == "swap" and not has_swap:
                assert row["seconds"] is None and "too little free swap" in row["notes"][0]
                continue
            if not MAY_LOCK and find_column(row["number"]).locks_memory:
                assert row["seconds"] is None and "cannot lock" in row["notes"][0]
                continue
            (run,) = row["runs"]
            measured = run["measured"]
            assert row["is_scaled"] == (measured["steps"] == NAIVE_STEPS)
            assert row["is_scaled"] == (row["number"] == 1 and not row["is_in_core"])
            assert row["is_scaled"] or measured["digest"] == digest
            assert row["relative_time"] == pytest.approx(row["seconds"] / figures["fastest_in_core_seconds"])
            assert row["seconds"] == pytest.approx(measured["seconds"] * 5 / measured["steps"])
            assert 0 < sum(row[f"seconds_{name}"] for name in COMPONENTS) <= row["seconds"] * 1.01 + 1e-3
            if run["limit_bytes"] is not None:
                assert run["group_peak_bytes"] is None or run["group_peak_bytes"] <= run["limit_bytes"]
    assert min(row["relative_time"] for row in figures["in_core"]) == 1
    assert {row["name"] for row in figures["over_shares"]} == {"aio5y", "wavefront"}
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figures.json", "picture.png"]
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    ladder.draw(figures, picture)
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in said.splitlines() if line[:1] == "|"]
    shown = [cell for row in rows if row[0].isdigit() and len(row) > 8 for cell in row[3:5] if cell != "–"]
    labels = [text.get_text() for text in drawn[0].axes[0].texts]
    assert sorted(shown) == sorted(one for one in labels if one != "not\nmeasured") and shown
    assert len({ladder.IN_CORE, ladder.OUT_OF_CORE, *ladder.PART_COLORS}) == 2 + len(COMPONENTS)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["ladder", "-n", "64", "64", "0"], "-n 64 64 0"),
        (["ladder", "-n", "60000", "60000", "60000"], "smaller grid"),
        (["ladder", "-t", "0"], "'-t' / '--steps'"),
        (["ladder", "--memory", "100%"], "--memory 100%"),
        (["ladder", "--memory", "much"], "'much'"),
        (["tuner", "-n", "64", "64", "64"], "does not take -n"),
        (["core", "--memory", "1GiB"], "share of both arrays"),
        (["tuner", "-t", "5"], "does not take -t"),
        (["core", "--png", "x.png"], "does not take --png"),
        (["core", "--swap-file"], "does not take --swap-file"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    arguments: list[str], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that options that do not apply are refused before the first measurement: all measurements together take
    about an hour."""
    assert call(["bench", *arguments, "--small", "-d", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert named in said and said.count("\n") == 1
    assert not list(tmp_path.iterdir())


def measured(steps: int, seconds: float, digest: int = 7, swapped_out: int = 0) -> ColumnRun:
    """Return a measurement with invented figures."""
    components = {name: seconds / 10 for name in COMPONENTS}
    zeros = 0, 0, 0, 0.0, 0, 0, 0, 0, 0
    return ColumnRun(steps, seconds, components, 1000, "swap", (1, 1, 1), 1, 1, *zeros, swapped_out, 0, digest)


def test_scaled_and_unlimited_bars_say_so() -> None:
    """Checks the notes of a bar in the picture of the ladder. A note says that the time is scaled, that the memory was
    not limited, or that a variant did not use swap space although it should.
    """
    column = find_column(1)
    runs = [LimitedRun(measured(2, seconds, swapped_out=1), 10 * MIB, None) for seconds in (4.0, 1.0, 2.0)]
    entry = Bar(column, False, 10, 100, runs)
    assert entry.seconds == 100.0 and entry.is_scaled and entry.comparable
    assert entry.to_json(1.0)["seconds_update"] == pytest.approx(10.0)
    assert entry.notes == ["2 of 100 steps measured, time scaled; bytes of 2 steps"]
    failed = replace(entry, problem="failed: killed by signal 9")
    assert "killed by signal 9" in line_of(failed, False) and "for 2 steps" in line_of(failed, True)
    assert "failed: killed by signal 9" in failed.notes
    unlimited = replace(entry, runs=[LimitedRun(measured(100, 4.0), None, None)])
    assert not unlimited.comparable and unlimited.notes == ["memory not limited here: not comparable"]
    assert replace(unlimited, column=find_column(12)).comparable
    assert replace(unlimited, is_in_core=True).comparable
    dry = replace(entry, runs=[LimitedRun(measured(100, 4.0), 10 * MIB, None)])
    assert dry.notes == ["nothing was swapped out"]
    none = replace(entry, runs=[], problem="no swap here")
    assert none.seconds is None and none.notes == ["no swap here"] and none.to_json(1.0)["relative_time"] is None
    other = replace(dry, runs=[LimitedRun(measured(100, 4.0, digest=8), None, None)])
    assert same_bits([entry, dry]) and same_bits([entry, other]) and not same_bits([dry, other])


def can_limit() -> bool:
    """Return True if this process may limit memory by control groups on this machine."""
    return memory.run_limited(["-c", "pass"], 100 * MIB).is_limited


def test_a_memory_group_limits_and_goes() -> None:
    """Checks that a control group limits memory and page cache, and is removed at the end. The operating system must
    kill a process that exceeds the limit.
    """
    if not can_limit():
        pytest.skip("no memory group can be made here")
    output = memory.run_limited(["-c", f"print(len(bytearray({20 * MIB})))"], 200 * MIB)
    assert output.text.strip() == str(20 * MIB)
    assert output.peak_bytes is None or 20 * MIB <= output.peak_bytes <= 200 * MIB
    with pytest.raises(StorageError, match=r"killed by signal 9.*within 60 MiB"):
        memory.run_limited(["-c", f"bytearray(b'x' * {200 * MIB})"], 60 * MIB)
    with pytest.raises(StorageError, match=r"^killed by signal 15$"):  # the system kills with signal 9 only
        memory.run_limited(["-c", "import os; os.kill(os.getpid(), 15)"], 60 * MIB)
    assert not list(Path("/sys/fs/cgroup").rglob(f"outcrop-{os.getpid()}"))


@pytest.mark.parametrize(("number", "swap_limit"), [(1, str(60 * MIB)), (2, "0")])
def test_both_versions_of_groups_forbid_swap(tmp_path: Path, number: int, swap_limit: str) -> None:
    """Checks that both versions of control groups can forbid swap. A folder that is not a control group gives an
    error."""
    group = memory.Group(tmp_path, memory.GROUP_FILES[number])
    with pytest.raises(FileNotFoundError):
        group.limit(60 * MIB, may_swap=False)
    limit, swap = tmp_path / group.files.limit, tmp_path / group.files.swap_limit
    limit.touch()
    group.limit(60 * MIB, may_swap=False)  # some Linux kernels do not count swap and lack this file
    assert limit.read_text() == str(60 * MIB) and not swap.exists()
    swap.write_text("max")
    group.limit(60 * MIB, may_swap=True)
    assert swap.read_text() == "max"
    group.limit(60 * MIB, may_swap=False)
    assert swap.read_text() == swap_limit


def test_a_failing_or_slow_child_is_told_in_one_line() -> None:
    """Checks that the ladder continues after a child process that fails or takes too long. The error message is the
    last line that the child process prints.
    """
    with pytest.raises(StorageError, match=r"^InputError: too small$"):
        memory.run_limited(["-c", "from outcrop.errors import InputError; raise InputError('too small')"], None)
    with pytest.raises(StorageError, match=r"^stopped after 1 s$"):
        memory.run_limited(["-c", "import time; time.sleep(60)"], None, max_seconds=1.0)


def test_swap_is_for_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that users who are not root get an error for a swap file. No file is made."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(InputError, match="needs root"), memory.swap_file(tmp_path, MIB):
        pass
    assert not list(tmp_path.iterdir())


def test_a_swap_file_always_goes(tmp_path: Path) -> None:
    """Checks that a swap file is active only inside the context, and is removed after success, Ctrl-C and failure."""
    if os.geteuid() != 0:
        pytest.skip("swap files need root")
    with pytest.raises(StorageError, match="swap file"), memory.swap_file(tmp_path, 4096):
        pass  # the file is too small for swap
    assert not list(tmp_path.iterdir())
    try:
        with memory.swap_file(tmp_path, 4 * MIB):
            (path,) = tmp_path.iterdir()
            assert memory.is_swap_active(path) and memory.swap_free_bytes() >= 3 * MIB
    except (InputError, StorageError) as error:
        pytest.skip(f"no swap file can be used here: {error}")
    assert not memory.is_swap_active(path) and not list(tmp_path.iterdir())
    with pytest.raises(KeyboardInterrupt), memory.swap_file(tmp_path, 4 * MIB):
        raise KeyboardInterrupt
    assert not memory.is_swap_active(path) and not list(tmp_path.iterdir())
