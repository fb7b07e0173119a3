"""Run plans on files as a simulation does, with all state written and read by an independent way."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcrop import _core
from outcrop.language.boundary import Boundary
from outcrop.language.compile import compile_kernel
from outcrop.language.stencil import Stencil
from outcrop.language.symbols import PREVIOUS
from outcrop.plan.given_sizes import FREE
from outcrop.plan.plan import Plan
from outcrop.plan.tap_memory import Staging, TapMemory
from outcrop.run.disk.layout import PlaneLayout, make_layout
from outcrop.run.engine import Prepared, Seeds
from outcrop.run.rings import ring_specs
from outcrop.run.scalars import Scalars
from outcrop.tiers.topology import lay_out
from strategies import MACHINE

Cells = NDArray[np.floating]
SHARD_PLANES = 7


def array_names(stencil: Stencil) -> tuple[list[str], list[str]]:
    """The arrays of the state, and those that are only read."""
    state, statics = [], []
    for field, storage in zip(stencil.fields, stencil.storage, strict=True):
        (statics if storage.is_static else state).append(field.name)
        if storage.history == 2:
            state.append(field.name + PREVIOUS)
    return state, statics


def random_state(stencil: Stencil, shape: tuple[int, int, int], dtype: str, seed: int) -> dict[str, Cells]:
    """Values for every array."""
    generator = np.random.default_rng(seed)
    return {name: generator.random(shape).astype(dtype) for names in array_names(stencil) for name in names}


def execute_fields(
    folder: Path,
    stencil: Stencil,
    plan: Plan,
    state: Mapping[str, Cells],
    threads: int,
    backend: str,
    damage: Callable[[list[Path], PlaneLayout], None] | None = None,
    faults: Mapping[str, float] | None = None,
    topology: str = "",
    signals: Mapping[str, Sequence[float]] | None = None,
    isa: str = "auto",
) -> tuple[dict[str, Cells], tuple[int, int]]:
    """Run `plan` on files in `folder`; returns the final arrays of the state and the bytes read and written.

    `damage` may change the files of the first array before the run. Every array and pass has seals of its own.
    """
    problem = plan.problem
    layout = make_layout(problem.shape, problem.dtype, SHARD_PLANES)
    names, statics = array_names(stencil)
    turns = [[make_files(folder, f"{name}-{turn}", layout) for name in names] for turn in range(2)]
    fixed = [make_files(folder, name, layout) for name in statics]
    seeds = seeds_of(names, statics, 0)
    for name, files, seed in zip(
        [*names, *statics], [*turns[0], *fixed], [*seeds.sources, *seeds.statics], strict=True
    ):
        put(layout, files, state[name], seed)
    if damage:
        damage(turns[0][0], layout)
    kernel = compile_kernel(stencil, problem.dtype, isa, boundary=Boundary(*problem.sides))  # type: ignore[arg-type]
    scalars = Scalars(stencil, {}, signals or {}, problem.dtype)
    scratch = folder / "scratch"
    _core.create_file(str(scratch), max(1, plan.scratch_bytes))
    every = [str(file) for files in (*turns[0], *turns[1], *fixed, [scratch]) for file in files]
    store = _core.Store(every, backend=backend, writable=True, faults=dict(faults or {}))
    executor = _core.make_executor(
        problem, plan.sizes, ring_specs(plan), problem.fields, kernel.calls, scalars.bytes_per_step,
        levels_max=max(one.levels for one in plan.passes), threads=threads, checksum=True, store=store, bind="auto",
        topology=topology,
    )  # fmt: skip
    if topology:
        assert len(executor.threads_on_nodes) == min(threads, len(_core.numa_nodes(topology)))
    first = list(range(0, len(every) - 1, layout.shards))
    places = first[: len(names)], first[len(names) : 2 * len(names)]
    source = step = 0
    for number, one in enumerate(plan.passes):
        target, steps = source if problem.in_place else 1 - source, one.levels // problem.stages
        executor.run(
            one.actions, one.levels, places[source], places[target], first[2 * len(names) :], len(every) - 1,
            layout.shard_planes, plan.faces_rows, scalars.of_steps(step, steps), seeds=seeds_of(names, statics, number),
        )  # fmt: skip
        source, step = target, step + steps
    counters: dict[str, Any] = executor.counters()
    del executor
    store.close()
    last = seeds_of(names, statics, len(plan.passes)).sources
    arrays = zip(names, turns[source], last, strict=True)
    result = {name: get(layout, files, seed) for name, files, seed in arrays}
    return result, (counters["bytes_read"], counters["bytes_written"])


def seeds_of(names: Sequence[str], statics: Sequence[str], number: int) -> Seeds:
    """Those of pass `number`, all different; it reads what the pass before has written."""

    def of(writing: int) -> tuple[int, ...]:
        return tuple(2**32 - 1 - 1000 * writing - place for place in range(len(names)))

    return Seeds(of(number), of(number + 1), tuple(range(7, 7 + len(statics))))


def prepared_for(plan: Plan, stencil: Stencil, signals: Mapping[str, Sequence[float]], threads: int) -> Prepared:
    """What `prepare` would return, with this plan and little memory for snapshots, so that it has to be used again."""
    problem, plan = plan.problem, replace(plan, taps=TapMemory(Staging(slots=2, slot_bytes=8192)))
    plan = replace(plan, predicted=replace(plan.predicted, memory_bytes=plan.memory_bytes))
    return Prepared(
        problem, replace(MACHINE, threads=threads), plan.memory_bytes, FREE, plan, (),
        kernel=compile_kernel(stencil, problem.dtype, boundary=Boundary(*problem.sides)),  # type: ignore[arg-type]
        scalars=Scalars(stencil, {}, dict(signals), problem.dtype), layout=lay_out(threads, "none"), bind="none",
    )  # fmt: skip


def make_files(folder: Path, name: str, layout: PlaneLayout) -> list[Path]:
    files = [folder / f"{name}.{shard}" for shard in range(layout.shards)]
    for file in files:
        _core.create_file(str(file), layout.shard_planes * layout.record_bytes)
    return files


def put(layout: PlaneLayout, files: list[Path], grid: Cells, seed: int = 0) -> None:
    """Write records by an independent way: NumPy, ordinary file writes, zero padding."""
    for z, plane in enumerate(grid):
        padded = np.zeros((layout.shape[1], layout.pitch_cells), layout.dtype)
        padded[:, : layout.shape[2]] = plane
        record = padded.tobytes()
        record += tail_of(record, z, seed)
        shard, offset = layout.locate(z)
        with files[shard].open("r+b") as file:
            file.seek(offset)
            file.write(record.ljust(layout.record_bytes, b"\0"))


def tail_of(plane: bytes, z: int, seed: int) -> bytes:
    """Checksum and seal."""
    crc = _core.crc32c(plane)
    return struct.pack("<II", crc, _core.crc32c(struct.pack("<QI", z, crc), seed))


def get(layout: PlaneLayout, files: list[Path], seed: int = 0) -> Cells:
    """Read records the same way and check their checksums and seals."""
    planes = []
    for z in range(layout.shape[0]):
        shard, offset = layout.locate(z)
        record = files[shard].read_bytes()[offset : offset + layout.record_bytes]
        plane, tail = record[: layout.plane_bytes], record[layout.plane_bytes :]
        assert tail == tail_of(plane, z, seed).ljust(len(tail), b"\0"), f"plane {z}"
        planes.append(np.frombuffer(plane, layout.dtype).reshape(layout.shape[1], -1)[:, : layout.shape[2]])
    return np.stack(planes)
