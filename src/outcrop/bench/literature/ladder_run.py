"""Measure one column of the ladder once, in a process of its own, so that its memory and its limit are its own.

    python -m outcrop.bench.literature.ladder_run JOB     prints what was measured; both as JSON (ladder_columns.py)

Initial values are made in here, so that the pages they leave in the page cache count against the limit, too.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcrop import _core
from outcrop.bench.literature import one_layer
from outcrop.bench.literature.ladder_columns import COMPONENTS, Column, ColumnJob, ColumnRun, find_column
from outcrop.bench.literature.one_layer import ArrayMemory, OneLayerRun
from outcrop.bench.rates import smooth_planes
from outcrop.plan.plan import Plan
from outcrop.plan.schemes.literature import blocked
from outcrop.run.acquisition.recorder import Recorder
from outcrop.run.disk.layout import make_layout
from outcrop.run.disk.planes import DeviceRange, Planes, ShardFile
from outcrop.run.engine import Engine, Prepared
from outcrop.run.passes import PassRunner
from outcrop.run.places import open_state
from outcrop.run.progress import make_progress
from outcrop.run.report import peak_memory_bytes
from outcrop.run.simulation import Simulation

STENCIL, DTYPE, FIELD = "heat7", "float32", "u"
CHUNK_PLANES = 16
"""Initial values are made, and results summed up, in chunks of this many planes."""


@dataclass(frozen=True)
class Moved:
    """Bytes that this process has read from devices, and has made dirty to be written to them (0 where the system does
    not count them); and bytes that the whole machine has swapped in and out."""

    device_read: int = 0
    device_written: int = 0
    swapped_in: int = 0
    swapped_out: int = 0

    def __sub__(self, before: Moved) -> Moved:
        return Moved(
            self.device_read - before.device_read,
            self.device_written - before.device_written,
            self.swapped_in - before.swapped_in,
            self.swapped_out - before.swapped_out,
        )


def moved() -> Moved:
    """All counters as they stand now."""
    own, machine = _counters("/proc/self/io"), _counters("/proc/vmstat")
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    return Moved(
        own.get("read_bytes", 0),
        own.get("write_bytes", 0),
        machine.get("pswpin", 0) * page_bytes,
        machine.get("pswpout", 0) * page_bytes,
    )


def _counters(path: str) -> dict[str, int]:
    try:
        pairs = (line.split() for line in Path(path).read_text().splitlines())
        return {name.rstrip(":"): int(value) for name, value in pairs}
    except (OSError, ValueError):
        return {}


@dataclass(frozen=True)
class _Done:
    """A finished run; its counters have the names of those of the executor."""

    plan: Plan
    seconds: float
    counters: Mapping[str, Any]
    io: str
    moved: Moved
    digest: int


def measure(job: ColumnJob) -> ColumnRun:
    """Make initial values, run, and sum up the result."""
    column = find_column(job.number)
    if column.layers == 1:
        done = _one_layer(job, column)
    else:
        done = _swapped(job, column) if column.locks_memory else _stored(job, column)
    plan, sizes, guess = done.plan, done.plan.sizes, done.plan.predicted
    nz, ny, nx = job.shape
    return ColumnRun(
        steps=job.steps,
        seconds=done.seconds,
        seconds_components={name: done.counters[f"seconds_{name}"] for name in COMPONENTS},
        cells_updated=int(done.counters["cells_updated"]),
        io=done.io,
        block=(sizes.block_x or nx, sizes.block_y or ny, _block_planes(plan, nz)),
        levels=sizes.levels,
        passes=len(plan.passes),
        window_bytes=plan.memory_bytes,
        bytes_read=int(done.counters["bytes_read"]),
        bytes_written=int(done.counters["bytes_written"]),
        predicted_seconds=guess.seconds,
        predicted_bytes_read=guess.bytes_read,
        predicted_bytes_written=guess.bytes_written,
        device_bytes_read=done.moved.device_read,
        device_bytes_written=done.moved.device_written,
        swapped_in_bytes=done.moved.swapped_in,
        swapped_out_bytes=done.moved.swapped_out,
        memory_peak_bytes=peak_memory_bytes(),
        digest=done.digest,
    )


def _block_planes(plan: Plan, planes: int) -> int:
    """bz, or the planes of a slab where planes are streamed."""
    return plan.sizes.block_z or min(planes, plan.sizes.slab)


def _stored(job: ColumnJob, column: Column) -> _Done:
    """Two layers over files: what `outcrop run` does."""
    prepared, io = _simulation(job, column).plan(job.steps), "mmap" if column.through == "mmap" else "auto"
    simulation = _simulation(job, column, io)
    simulation[FIELD] = lambda z0, z1: smooth_planes(z0, z1, job.shape)
    state = open_state(simulation.directory)
    arrays = state.files(0), state.files(1), state.static_files()
    with (
        state.locked(),
        Engine(prepared, *arrays, state.layout, io, scratch=state.scratch) as engine,
    ):
        recorder = Recorder(state, [FIELD])
        runner, before = PassRunner(engine, state, prepared.plan, recorder), moved()
        runner.run(make_progress("none", len(prepared.plan.passes), 0, job.steps, 1))
        after = moved()
        counters = asdict(engine.sample())
        counters["seconds_commit"] += runner.seconds_commit
        name = engine.io
    digest = _digest(job, state.planes_of(FIELD, io).read)
    return _Done(prepared.plan, runner.seconds, counters, name, after - before, digest)


def _swapped(job: ColumnJob, column: Column) -> _Done:
    """Two layers over plain memory that the system may swap; blocks are locked in memory."""
    prepared = _simulation(job, column).plan(job.steps)
    layout = make_layout(job.shape, DTYPE)
    array = [DeviceRange("array in memory", 0, layout.array_bytes)]
    with Engine(prepared, [array], [array], [], layout, "memory", scratch=_memory_scratch, lock=True) as engine:
        arrays = [Planes(engine.store, layout, first_file=number) for number in (0, 1)]
        arrays[0].fill(lambda z0, z1: smooth_planes(z0, z1, job.shape))
        before, start = moved(), time.perf_counter()
        for index in range(len(prepared.plan.passes)):
            engine.run_pass(index, index % 2)
        seconds, after = time.perf_counter() - start, moved()
        digest = _digest(job, arrays[len(prepared.plan.passes) % 2].read)
        return _Done(prepared.plan, seconds, asdict(engine.sample()), column.through, after - before, digest)


def _one_layer(job: ColumnJob, column: Column) -> _Done:
    """One layer: arrays in plain or mapped memory, updated where they lie."""
    prepared = _simulation(job, column).plan(job.steps)
    plan = _one_layer_plan(prepared, column)
    if column.through == "swap":
        memory = ArrayMemory.plain(plan.window.bytes)
    else:
        memory = ArrayMemory.mapped(Path(job.directory) / "arrays", plan.window.bytes)
    run = OneLayerRun(plan, prepared.kernel.calls, prepared.scalars.of_steps(0, 0), prepared.machine.threads, memory)
    run.fill(lambda z0, z1: smooth_planes(z0, z1, job.shape), CHUNK_PLANES)
    before, start = moved(), time.perf_counter()
    for index in range(len(plan.passes)):
        run.run_pass(index)
    seconds, after = time.perf_counter() - start, moved()
    counters = {**run.counters(), "seconds_commit": run.seconds_flush}
    digest = _digest(job, lambda z0, z1: run.current[z0:z1])
    return _Done(plan, seconds, counters, column.through, after - before, digest)


def _one_layer_plan(prepared: Prepared, column: Column) -> Plan:
    """Blocks as the scheme of two layers cuts them, in the same budget; or sweeps of one step each."""
    sizes = prepared.plan.sizes
    if column.scheme == "naive":
        sizes = replace(sizes, levels=1, slab=blocked.MIN_SLAB)
    problem = one_layer.in_memory(prepared.problem, column.padded)
    rate = problem.cells * problem.steps / max(prepared.plan.predicted.seconds_update, 1e-9)
    return one_layer.make_plan(problem, sizes, prepared.machine, lambda _: rate)


def _simulation(job: ColumnJob, column: Column, io: str = "auto") -> Simulation:
    """A run that is not on disk yet. Plans are made for direct I/O, whatever then moves the planes."""
    return Simulation(
        STENCIL,
        shape=job.shape,
        dtype=DTYPE,
        directory=Path(job.directory) / "run.oc",
        memory=job.window_bytes,
        scheme=column.scheme,
        io=io,
    )


@contextmanager
def _memory_scratch(count: int) -> Iterator[Sequence[ShardFile]]:
    yield [DeviceRange("scratch in memory", 0, count)] if count else []


def _digest(job: ColumnJob, planes: Callable[[int, int], NDArray[Any]]) -> int:
    """CRC32C of all cells, padding left out."""
    digest = 0
    for z0 in range(0, job.shape[0], CHUNK_PLANES):
        block = planes(z0, min(job.shape[0], z0 + CHUNK_PLANES))
        digest = _core.crc32c(np.ascontiguousarray(block).view(np.uint8).reshape(-1), digest)
    return digest


def main() -> None:
    """Run as a program; see the top of the file."""
    print(json.dumps(measure(ColumnJob.from_argument(sys.argv[1])).to_json()))


if __name__ == "__main__":
    main()
