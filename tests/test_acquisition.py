"""Check sources, receivers, sums and snapshots of a pass. The values must equal the oracle's values for every plan and
every number of threads.
"""

from __future__ import annotations

import math
import os
import resource
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from execution import BACKENDS, FileRun, random_state
from field_runs import STENCILS, field_runs, heat, wavelet
from oracle import group_means, record_fields
from outcrop import _core
from outcrop.errors import InputError, StorageError
from outcrop.language.boundary import Boundary
from outcrop.language.sparse import Injection, Sampling
from outcrop.language.stencil import PREVIOUS, Stencil
from outcrop.plan.plan import Plan, Sizes
from outcrop.plan.problem import Problem
from outcrop.plan.schemes import SCHEMES
from outcrop.plan.tuner import build
from outcrop.run.acquisition.pass_acquisition import (
    NO_ACQUISITION,
    Acquisition,
    AcquisitionResults,
    Box,
    FieldSum,
    PointInjection,
    PointSamples,
    SnapshotFile,
    SumRequest,
)
from outcrop.run.definition import as_problem
from outcrop.run.disk.layout import make_layout
from strategies import MACHINE, assumed_rate, examples

Cells = NDArray[np.floating]
HEADER = b"header"


@dataclass(frozen=True)
class Seen:
    """The results that a run records during its passes, and its final state."""

    samples: list[Cells]
    sums: list[list[FieldSum]]
    snapshots: list[Cells]
    state: dict[str, Cells]


def inner(problem: Problem) -> list[tuple[int, int]]:
    """Return the range of cells inside the rim for each axis: the first cell, and the cell after the last cell."""
    rims = (
        [radius if side == "fixed" else 0 for side in sides]
        for radius, sides in zip(problem.radii, problem.sides, strict=True)
    )
    return [(low, n - high) for (low, high), n in zip(rims, problem.shape, strict=True)]


def random_acquisition(plan: Plan, stencil: Stencil, folder: Path, seed: int) -> Acquisition:
    """Return random sources, samples, sums and snapshots. Some sources and some samples have the same cell twice."""
    random, problem = np.random.default_rng(seed), plan.problem
    updated = sorted({field for stage in stencil.stages for field in stage.targets})
    ranges, everywhere = inner(problem), [(0, n) for n in problem.shape]
    can_inject = all(low < high for low, high in ranges)

    def cells(within: list[tuple[int, int]], count: int) -> NDArray[np.int64]:
        found = np.stack([random.integers(low, high, count) for low, high in within], axis=1)
        return np.concatenate([found, found[: count // 3]])

    def injection() -> PointInjection:
        places = cells(ranges, int(random.integers(1, 20)))
        values = random.standard_normal((problem.steps, len(places))) / 3
        return PointInjection(int(random.choice(updated)), places, values.astype(problem.dtype))

    def sampling() -> PointSamples:
        field, before = int(random.integers(len(stencil.fields))), bool(random.integers(2))
        return PointSamples(field, cells(everywhere, int(random.integers(1, 60))), before)

    def box() -> Box:
        ends = [sorted(random.integers(0, n + 1, 2).tolist()) for n in problem.shape]
        z, y, x = ((low, high) if low < high else (0, n) for (low, high), n in zip(ends, problem.shape, strict=True))
        return z, y, x

    def group() -> tuple[int, int, int]:
        if random.integers(2):
            return (1, 1, 1)
        z, y, x = random.choice([1, 2, 3, 4, 7, 8], 3).tolist()
        return z, y, x

    every = int(random.integers(1, 4))
    samples = tuple(sampling() for _ in range(random.integers(3)))
    files = [
        SnapshotFile(
            field, step, box(), folder / f"box-{field}-{age}-{step}", len(HEADER), bool(random.integers(4)), age=age,
            group=group(),
        )
        for field, storage in enumerate(stencil.storage)
        for age in range(storage.history)
        for step in range(0, problem.steps + 1, every)
        if random.integers(3)
    ]
    begin = int(random.choice([0, every]))
    sums = [SumRequest(field, range(begin, problem.steps + 1, every)) for field in range(len(stencil.fields))]
    injections = tuple(injection() for _ in range(random.integers(4))) if can_inject else ()
    return Acquisition(injections, samples, tuple(files), tuple(sums[: random.integers(len(sums) + 1)]))


def sum_up(field: Cells, step: int) -> FieldSum:
    """Return the sum, the sum of squares, the minimum and the maximum of a field by their definition. The values of
    each group of 64 bytes are added in float64. The sums of the groups are added exactly and rounded once. The function
    also asserts that the result is close to the exact sum.
    """
    count = 64 // field.itemsize
    padded = np.zeros((*field.shape[:2], -(-field.shape[2] // count) * count))
    padded[:, :, : field.shape[2]] = field
    groups = padded.reshape(-1, count)

    def total(parts: Cells) -> float:
        while parts.shape[1] > 1:
            half = parts.shape[1] // 2
            parts = parts[:, :half] + parts[:, half:]
        return math.fsum(parts[:, 0].tolist())

    values = field.astype(np.float64)
    assert math.isclose(total(groups), math.fsum(values.flat), rel_tol=0, abs_tol=1e-15 * np.abs(values).sum())
    assert math.isclose(total(groups * groups), math.fsum((values * values).flat), rel_tol=1e-15)
    return FieldSum(step, total(groups), total(groups * groups), float(field.min()), float(field.max()))


def expect(
    stencil: Stencil, boundary: Boundary, state: Mapping[str, Cells], steps: int, signals: dict[str, list[float]],
    acquisition: Acquisition,
) -> Seen:  # fmt: skip
    """Compute the expected results with the oracle, and record them after each step."""
    names = [field.name for field in stencil.fields]
    sources = [
        Injection(names[one.field], one.cells[:, None], np.ones((len(one.cells), 1)), one.values.astype(np.float64))
        for one in acquisition.injections
    ]
    receivers = [
        Sampling(str(number), names[one.field], one.cells[:, None], np.ones((len(one.cells), 1)), one.before)
        for number, one in enumerate(acquisition.samples)
    ]
    states, traces = [dict(state)], []
    for step in range(steps):
        seen = record_fields(stencil, states[-1], {}, 1, boundary, signals, step, sources, receivers)
        states.append(seen.state)
        traces.append(seen.traces)
    (z_low, z_high), (y_low, y_high), _ = boundary.rims(stencil.radii)

    def values(one: SnapshotFile) -> Cells:
        name = names[one.field]
        if not one.age:
            return states[one.step][name]
        previous, newest = states[one.step][name + PREVIOUS], states[one.step][name].copy()
        inside = np.s_[z_low : len(newest) - z_high, y_low : newest.shape[1] - y_high]
        newest[inside] = previous[inside]  # a pass sets the rim in z and y to the newest values
        return newest

    return Seen(
        [np.stack([rows[one.name][0] for rows in traces]) for one in receivers],
        [[sum_up(states[step][names[one.field]], step) for step in one.steps] for one in acquisition.sums],
        [group_means(values(one)[tuple(slice(*ends) for ends in one.box)], one.group) for one in acquisition.snapshots],
        states[-1],
    )


def see(
    folder: Path, stencil: Stencil, plan: Plan, state: Mapping[str, Cells], signals: dict[str, list[float]],
    acquisition: Acquisition, threads: int = 1, backend: str = "threads",
) -> Seen:  # fmt: skip
    """Run all passes with the engine. Return the recorded results and the final state."""
    problem = plan.problem
    run = FileRun(folder, stencil, plan, state)
    for one in acquisition.snapshots:
        if not Path(one.path).exists():
            Path(one.path).write_bytes(HEADER + bytes(box_bytes(one, problem)))
    results: list[AcquisitionResults] = []
    with run.engine(threads, backend, signals) as engine:
        for _ in plan.passes:
            first = run.step
            results.append(run.run_pass(engine, acquisition))
            due = range(first + 1 if first else 0, run.step + 1)
            boxes = [read_snapshot(one, problem).tobytes() for one in acquisition.snapshots if one.step in due]
            assert results[-1].snapshot_sums == tuple(_core.crc32c(box) for box in boxes)
        written = engine.sample().bytes_snapshots
    assert written == sum(box_bytes(one, problem) for one in acquisition.snapshots), "every cell once"
    return Seen(
        [np.concatenate([result.samples[i] for result in results]) for i in range(len(acquisition.samples))],
        [[one for result in results for one in result.sums[i]] for i in range(len(acquisition.sums))],
        [read_snapshot(one, problem) for one in acquisition.snapshots],
        run.arrays(),
    )


def kept_shape(one: SnapshotFile) -> list[int]:
    return [-(-(high - low) // cells) for (low, high), cells in zip(one.box, one.group, strict=True)]


def box_bytes(one: SnapshotFile, problem: Problem) -> int:
    return math.prod(kept_shape(one)) * problem.item_bytes


def read_snapshot(one: SnapshotFile, problem: Problem) -> Cells:
    content = Path(one.path).read_bytes()
    assert content[: len(HEADER)] == HEADER
    return np.frombuffer(content[len(HEADER) :], problem.dtype).reshape(kept_shape(one))


def assert_same(found: Seen, right: Seen) -> None:
    for kind in ("samples", "snapshots"):
        for number, (one, other) in enumerate(zip(getattr(found, kind), getattr(right, kind), strict=True)):
            np.testing.assert_array_equal(one, other, err_msg=f"{kind} {number}")
    assert found.sums == right.sums
    for name, array in found.state.items():
        np.testing.assert_array_equal(array, right.state[name], err_msg=name)


@settings(max_examples=examples(60), deadline=None)
@given(field_runs({**STENCILS, "heat": heat}), st.integers(1, 4), st.sampled_from(BACKENDS), st.integers(0, 2**32 - 1))
def test_acquisition_see_the_oracles_numbers(
    run: tuple[Stencil, Boundary, Plan], threads: int, backend: str, seed: int
) -> None:
    """Checks sources, receivers, sums and snapshots. Every plan and every number of threads must give the same bits as
    the oracle.
    """
    stencil, boundary, plan = run
    problem = plan.problem
    state = random_state(stencil, problem.shape, problem.dtype, seed)
    signals = wavelet(stencil, problem.steps)
    with tempfile.TemporaryDirectory() as name:
        acquisition = random_acquisition(plan, stencil, Path(name), seed)
        found = see(Path(name), stencil, plan, state, signals, acquisition, threads, backend)
    assert_same(found, expect(stencil, boundary, state, problem.steps, signals, acquisition))


def small_plan(
    scheme: str, levels: int = 3, steps: int = 6, blocks: tuple[int, int, int] = (0, 0, 0), columns: int = 70
) -> tuple[Stencil, Plan]:
    """Return a heat stencil, and a plan that cuts a grid of irregular shape into blocks of `blocks` cells along z, y
    and x.
    """
    stencil = heat([(1, 0, 0), (-1, 0, 0), (0, 1, -1), (0, -1, 1)])
    problem = as_problem(stencil, make_layout((21, 40, columns), "float32"), steps, Boundary(), in_place=False)
    z, y, x = blocks
    sizes = Sizes(levels, 4, 2, block_z=z, block_y=y, block_x=x)
    return stencil, build(problem, SCHEMES[scheme], sizes, MACHINE, assumed_rate)


@pytest.mark.parametrize("scheme", [name for name in SCHEMES if name != "one-layer"])
def test_every_scheme_shows_the_same(scheme: str, tmp_path: Path) -> None:
    """Checks that plans with blocks along all axes also give the bits of the oracle. Random plans rarely have such
    blocks. Each block adds the sources and takes the samples of its own cells.
    """
    stencil, plan = small_plan(scheme, blocks=(7, 12, 16))
    state = random_state(stencil, plan.problem.shape, "float32", 1)
    whole = ((0, 21), (0, 40), (0, 70))
    points = np.array([(z, y, x) for z in range(1, 20, 3) for y in range(1, 39, 4) for x in range(1, 69, 5)])
    acquisition = Acquisition(
        (PointInjection(0, points, np.linspace(0.25, 1.5, 6 * len(points), dtype=np.float32).reshape(6, -1)),),
        (PointSamples(0, points), PointSamples(0, points - 1, before=True)),
        tuple(
            SnapshotFile(0, step, whole, tmp_path / f"after-{step}-{group}", len(HEADER), group=group)
            for step in range(7)
            for group in ((1, 1, 1), (4, 4, 4))
        ),
        (SumRequest(0, range(7)),),
    )
    found = see(tmp_path, stencil, plan, state, {}, acquisition, threads=3)
    assert_same(found, expect(stencil, Boundary(), state, 6, {}, acquisition))


def test_a_source_in_the_rim_is_refused_unless_it_adds_nothing(tmp_path: Path) -> None:
    """Checks that a source in the fixed rim is refused, because the rim keeps its values. A source of zeros is allowed.
    """
    stencil, plan = small_plan("wavefront")
    state = random_state(stencil, plan.problem.shape, "float32", 1)
    cells = np.array([(5, 5, 5), (5, 0, 5)])
    values = np.zeros((6, 2), np.float32)
    values[:, 0] = 1
    silent = Acquisition((PointInjection(0, cells, values),))
    found = see(tmp_path, stencil, plan, state, {}, silent)
    assert_same(found, expect(stencil, Boundary(), state, 6, {}, silent))
    values[4, 1] = 1
    with pytest.raises(InputError, match=r"z=5, y=0, x=5.*rim"):
        see(tmp_path, stencil, plan, state, {}, silent)


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize(("columns", "offset"), [(70, 6), (64, 0), (1024, 4096), (1025, 4100)])
def test_snapshots_keep_to_their_bytes(columns: int, offset: int, direct: bool, tmp_path: Path) -> None:
    """Checks that a snapshot of a box changes no byte outside the box, even if the box and other data share a page. The
    whole box must be written, even if tiles, blocks and planes begin in the middle of a page."""
    stencil, plan = small_plan("wavefront", columns=columns, blocks=(0, 20, 0))
    state = random_state(stencil, plan.problem.shape, "float32", 1)
    around, boxes = bytes(range(256)) * 20, (((0, 21), (0, 40), (0, columns)), ((2, 20), (3, 38), (1, columns - 2)))
    files = tuple(SnapshotFile(0, 3, box, tmp_path / f"{box}", offset, direct) for box in boxes)
    acquisition = Acquisition(snapshots=files)
    for one in acquisition.snapshots:
        Path(one.path).write_bytes(around[:offset] + bytes(box_bytes(one, plan.problem)) + around)
    results = run_only(tmp_path, stencil, plan, state, acquisition)
    cut = replace(acquisition, snapshots=tuple(replace(one, offset_bytes=0) for one in acquisition.snapshots))
    right = expect(stencil, Boundary(), state, 3, {}, cut).snapshots
    for one, values in zip(acquisition.snapshots, right, strict=True):
        assert Path(one.path).read_bytes() == around[:offset] + values.tobytes() + around
    assert results.snapshot_sums == tuple(_core.crc32c(values.tobytes()) for values in right)


def test_snapshots_beneath_a_folder_follow_no_link(tmp_path: Path) -> None:
    """Checks that snapshots are written only to regular files in the directory of the run. Error messages show the
    label of the file.
    """
    stencil, plan = small_plan("wavefront")
    state = random_state(stencil, plan.problem.shape, "float32", 1)
    (tmp_path / "run" / "u").mkdir(parents=True)
    folder = os.open(tmp_path / "run", os.O_RDONLY | os.O_DIRECTORY)
    box = ((2, 9), (3, 38), (5, 63))
    one = SnapshotFile(0, 2, box, "u/0", 6, folder=folder, label="run.oc/u/0")
    (tmp_path / "run" / one.path).write_bytes(bytes(6 + box_bytes(one, plan.problem)))
    results = run_only(tmp_path, stencil, plan, state, Acquisition(snapshots=(one,)))
    content = (tmp_path / "run" / one.path).read_bytes()
    assert content[:6] == bytes(6) and results.snapshot_sums == (_core.crc32c(content[6:]),)
    (tmp_path / "run" / one.path).rename(tmp_path / "outside")
    (tmp_path / "run" / one.path).symlink_to(tmp_path / "outside")
    with pytest.raises(StorageError, match=r"open failed: run\.oc/u/0: links"):
        run_only(tmp_path, stencil, plan, state, Acquisition(snapshots=(one,)))
    os.close(folder)
    assert (tmp_path / "outside").read_bytes() == content


@pytest.mark.parametrize("name", ["missing", "full"])
def test_snapshots_that_cannot_be_written_stop_the_pass(name: str, tmp_path: Path) -> None:
    """Checks that a pass stops if a snapshot cannot be written. The error names the file and, if the file is open, the
    offset and the length of the write.
    """
    stencil, plan = small_plan("wavefront")
    state = random_state(stencil, plan.problem.shape, "float32", 1)
    path = Path("/dev/full") if name == "full" else tmp_path / "nowhere" / "snapshot"
    acquisition = Acquisition(snapshots=(SnapshotFile(0, 2, ((3, 9), (0, 40), (0, 70)), path),))
    pattern = r"write failed: /dev/full, offset \d+, length \d+: No space" if name == "full" else "nowhere/snapshot"
    if name == "missing":
        (tmp_path / "nowhere").write_text("")  # no folder can be made here, because a file has this name
    with pytest.raises(StorageError, match=pattern):
        run_only(tmp_path, stencil, plan, state, acquisition)


def test_snapshots_that_the_device_refuses_stop_the_pass(tmp_path: Path) -> None:
    """Checks that the pass stops if a write of a snapshot fails in the background. The error names the file."""
    stencil, plan = small_plan("wavefront")
    state, limit = random_state(stencil, plan.problem.shape, "float32", 1), 1 << 20
    one = SnapshotFile(0, 2, ((0, 21), (0, 40), (0, 70)), tmp_path / "snapshot", limit)
    _core.create_file(str(one.path), limit + box_bytes(one, plan.problem))
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, former[1]))
    try:
        with pytest.raises(StorageError, match=rf"write failed: {one.path}, offset \d+, length \d+: File too large"):
            run_only(tmp_path, stencil, plan, state, Acquisition(snapshots=(one,)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)


def run_only(
    folder: Path, stencil: Stencil, plan: Plan, state: Mapping[str, Cells], acquisition: Acquisition
) -> AcquisitionResults:
    """Run the first pass and return its results."""
    run = FileRun(folder, stencil, plan, state)
    with run.engine(2, "auto") as engine:
        return run.run_pass(engine, acquisition)


def test_sums_say_what_is_not_finite(tmp_path: Path) -> None:
    """Checks that sums are infinity or NaN if a field has such values. The minimum and the maximum ignore NaN, and are
    NaN if there are no other values."""
    stencil, plan = small_plan("wavefront", levels=1, steps=1)
    state = random_state(stencil, plan.problem.shape, "float32", 1)
    state["u"][0, 0, 0] = np.inf
    (sums,) = run_only(tmp_path, stencil, plan, state, Acquisition(sums=(SumRequest(0, [1]),))).sums
    assert sums[0].sum == np.inf and sums[0].squares == np.inf and sums[0].maximum == np.inf
    state["u"][0, 0, 1] = np.nan
    (sums,) = run_only(tmp_path, stencil, plan, state, Acquisition(sums=(SumRequest(0, [1]),))).sums
    assert np.isnan(sums[0].sum) and sums[0].maximum == np.inf and 0 <= sums[0].minimum < 1
    state["u"][:] = np.nan
    (sums,) = run_only(tmp_path, stencil, plan, state, Acquisition(sums=(SumRequest(0, [1]),))).sums
    assert np.isnan([sums[0].sum, sums[0].squares, sums[0].minimum, sums[0].maximum]).all()


def test_nothing_asked_for_is_nothing_seen(tmp_path: Path) -> None:
    """Checks that a run without acquisition returns no samples and no sums."""
    stencil, plan = small_plan("wavefront")
    results = run_only(tmp_path, stencil, plan, random_state(stencil, plan.problem.shape, "float32", 1), NO_ACQUISITION)
    assert results.samples == () and results.sums == ()
