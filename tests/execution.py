"""This module runs plans on files in the same way as a simulation. The functions of this module write and read the
state without the engine, so that tests find mistakes of the engine."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from outcrop import _core
from outcrop.durable import Directory
from outcrop.language.boundary import Boundary
from outcrop.language.compile import compile_kernel
from outcrop.language.stencil import PREVIOUS, Stencil
from outcrop.plan.given_sizes import FREE
from outcrop.plan.memory import AcquisitionMemory, Staging
from outcrop.plan.plan import Plan
from outcrop.run.acquisition.pass_acquisition import NO_ACQUISITION, Acquisition, AcquisitionResults
from outcrop.run.disk.layout import PlaneLayout, make_layout
from outcrop.run.disk.storage import scratch_in
from outcrop.run.engine import NO_LINKS, Engine, Links, Prepared, Scalars, Seeds
from outcrop.tiers.discover import lay_out
from strategies import MACHINE

Cells = NDArray[np.floating]
SHARD_PLANES = 7
BACKENDS = [name for name, reason in _core.probe().items() if not reason and name != "memory"]
"""The backends that work on this machine and store bytes in files."""


def array_names(stencil: Stencil) -> tuple[list[str], list[str]]:
    """Return two lists of names: the arrays of the state, and the arrays of static fields."""
    state, statics = [], []
    for field, storage in zip(stencil.fields, stencil.storage, strict=True):
        (statics if storage.is_static else state).append(field.name)
        if storage.history == 2:
            state.append(field.name + PREVIOUS)
    return state, statics


def random_state(stencil: Stencil, shape: tuple[int, int, int], dtype: str, seed: int) -> dict[str, Cells]:
    """Return random values for each array."""
    generator = np.random.default_rng(seed)
    return {name: generator.random(shape).astype(dtype) for names in array_names(stencil) for name in names}


class FileRun:
    """Runs a plan on files in a folder. `passes` is the number of passes that have run. The engine only runs passes.
    Everything except the passes uses NumPy and ordinary reads and writes. In each pass, the seals of an array have a
    different seed."""

    def __init__(
        self, folder: Path, stencil: Stencil, plan: Plan, state: Mapping[str, Cells],
        whole: tuple[int, int, int, int, int] | None = None,
    ) -> None:  # fmt: skip
        """`whole` has the first plane and the first row of the plan's grid, and the shape of the whole grid."""
        self.whole = whole or (0, 0, *plan.problem.shape)
        self.folder, self.stencil, self.plan = folder, stencil, plan
        self.layout = make_layout(plan.problem.shape, plan.problem.dtype, SHARD_PLANES)
        self.names, self.statics = array_names(stencil)
        self.turns = [
            [make_files(folder, f"{name}-{turn}", self.layout) for name in self.names]
            for turn in range(1 if plan.problem.in_place else 2)
        ]
        self.fixed = [make_files(folder, name, self.layout) for name in self.statics]
        self.passes = self.step = 0
        arrays = zip([*self.names, *self.statics], [*self.turns[0], *self.fixed], strict=True)
        for (name, files), seed in zip(arrays, [*self.seeds.sources, *self.seeds.statics], strict=True):
            put(self.layout, files, state[name], seed)

    def engine(
        self, threads: int, backend: str, signals: Mapping[str, Sequence[float]] | None = None, isa: str = "auto",
        checksum: bool = True, links: Links = NO_LINKS,
    ) -> Engine:  # fmt: skip
        """Return the engine that runs the passes. The engine has little memory for snapshots, so that each buffer is
        used several times.
        """
        plan = replace(self.plan, acquisition=AcquisitionMemory(Staging(slots=2, slot_bytes=8192)))
        plan = replace(plan, predicted=replace(plan.predicted, memory_bytes=plan.memory_bytes))
        problem = plan.problem
        prepared = Prepared(
            problem, replace(MACHINE, threads=threads), plan.memory_bytes, FREE, plan, (), "assumed", {},
            kernel=compile_kernel(self.stencil, problem.dtype, isa, boundary=Boundary(*problem.kernel_sides)),  # type: ignore[arg-type]
            scalars=Scalars(self.stencil, {}, dict(signals or {}), problem.dtype, self.whole),
            layout=lay_out(threads, "none"), bind="none",
        )  # fmt: skip
        second = self.turns[1] if len(self.turns) == 2 else []
        directory = Directory.open(self.folder)
        return Engine(
            prepared, self.turns[0], second, self.fixed, self.layout, io=backend, checksum=checksum,
            scratch=lambda count: scratch_in(directory, count), links=links,
        )  # fmt: skip

    def run_pass(self, engine: Engine, acquisition: Acquisition = NO_ACQUISITION) -> AcquisitionResults:
        """Run the next pass and return its results."""
        one, source = self.plan.passes[self.passes], self.passes % len(self.turns)
        results = engine.run_pass(self.passes, source, self.step, acquisition, self.seeds)
        self.passes, self.step = self.passes + 1, self.step + one.levels // self.plan.problem.stages
        return results

    def arrays(self) -> dict[str, Cells]:
        """Return the arrays of the state after the passes that have run so far."""
        files = self.turns[self.passes % len(self.turns)]
        arrays = zip(self.names, files, self.seeds.sources, strict=True)
        return {name: get(self.layout, one, seed) for name, one, seed in arrays}

    @property
    def seeds(self) -> Seeds:
        """The seeds for the seals of the next pass. All seeds that a pass uses are different. A pass reads the arrays
        that the previous pass has written, so its `sources` are the `targets` of the previous pass."""

        def of(writing: int) -> tuple[int, ...]:
            return tuple(2**32 - 1 - 1000 * writing - place for place in range(len(self.names)))

        return Seeds(of(self.passes), of(self.passes + 1), tuple(range(7, 7 + len(self.statics))))


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
    """Run `plan` on files in `folder`. Return the final arrays of the state, and the numbers of bytes read and written.

    `damage` may change the files of the first array before the run. `faults` are simulated faults of the storage.
    `topology` describes the machine to simulate, as in `machine`.
    """
    run = FileRun(folder, stencil, plan, state)
    if damage:
        damage(run.turns[0][0], run.layout)
    with storage_with(faults or {}), machine(topology), run.engine(threads, backend, signals, isa) as engine:
        for _ in plan.passes:
            run.run_pass(engine)
        sample = engine.sample()
    return run.arrays(), (sample.bytes_read, sample.bytes_written)


@contextmanager
def storage_with(faults: Mapping[str, float]) -> Iterator[None]:
    """Simulate `faults` in each store that is opened inside this context."""
    with patch.object(_core, "Store", partial(_core.Store, faults=dict(faults))):
        yield


@contextmanager
def machine(topology: str) -> Iterator[None]:
    """For each executor that is made inside this context, hwloc simulates a machine. `topology` describes the machine
    in the notation of hwloc. An empty text means the real machine.
    """
    make_executor = _core.make_executor

    def make(*arguments: Any, **options: Any) -> _core.Executor:
        executor = make_executor(*arguments, **{**options, "bind": "auto", "topology": topology})
        assert len(executor.threads_on_nodes) == min(options["threads"], len(_core.numa_nodes(topology)))
        return executor

    with patch.object(_core, "make_executor", make if topology else make_executor):
        yield


def make_files(folder: Path, name: str, layout: PlaneLayout) -> list[Path]:
    files = [folder / f"{name}.{shard}" for shard in range(layout.shards)]
    for file in files:
        _core.create_file(str(file), layout.shard_planes * layout.record_bytes)
    return files


def put(layout: PlaneLayout, files: list[Path], grid: Cells, seed: int = 0) -> None:
    """Write the planes of a grid to a file as records, without the engine. Padding is zero."""
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
    """Return the checksum and the seal, the bytes that follow a plane in its record."""
    crc = _core.crc32c(plane)
    return struct.pack("<II", crc, _core.crc32c(struct.pack("<QI", z, crc), seed))


def get(layout: PlaneLayout, files: list[Path], seed: int = 0) -> Cells:
    """Read all planes from their records without the engine, and return the grid. Assert that the checksums and seals
    are right."""
    planes = []
    for z in range(layout.shape[0]):
        shard, offset = layout.locate(z)
        record = files[shard].read_bytes()[offset : offset + layout.record_bytes]
        plane, tail = record[: layout.plane_bytes], record[layout.plane_bytes :]
        assert tail == tail_of(plane, z, seed).ljust(len(tail), b"\0"), f"plane {z}"
        planes.append(np.frombuffer(plane, layout.dtype).reshape(layout.shape[1], -1)[:, : layout.shape[2]])
    return np.stack(planes)
