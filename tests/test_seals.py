"""Check that a run detects planes that are swapped, misplaced or outdated, although their checksums are correct."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from execution import SHARD_PLANES, FileRun, get, make_files, put, random_state
from oracle import advance_fields
from outcrop import _core
from outcrop.errors import CorruptionError, InputError
from outcrop.language.boundary import Boundary
from outcrop.language.stencil import Field, Stencil
from outcrop.plan.plan import Sizes
from outcrop.plan.schemes import SCHEMES
from outcrop.plan.tuner import build
from outcrop.run.definition import as_problem
from outcrop.run.disk.layout import make_layout
from outcrop.run.disk.planes import Planes
from outcrop.run.engine import Seeds
from strategies import MACHINE, assumed_rate

LAYOUT = make_layout((20, 40, 50), "float32", SHARD_PLANES)
NAMES, STATICS = ["u", "u.previous"], ["m"]
WHOLE = "is damaged: it is whole, but is not what was last written there: .*"


def make_wave() -> Stencil:
    """Return a stencil with a field u, which needs previous values, and a static field m."""
    u, m = Field("u"), Field("m")
    return Stencil("wave", {u: m[0, 0, 0] * (u[1, 0, 0] + u[-1, 0, 0]) / 2 - u.previous[0, 0, 0] / 2})


class Run(FileRun):
    """A pass of two steps on files in `folder`. All planes initially have the seals that the pass expects."""

    def __init__(self, folder: Path, block_y: int = 0, periodic: bool = False) -> None:
        stencil = make_wave()
        self.boundary = Boundary(z=("periodic", "periodic")) if periodic else Boundary()
        problem = as_problem(stencil, LAYOUT, 2, self.boundary, in_place=False)
        plan = build(problem, SCHEMES["wavefront"], Sizes(2, 3, 2, block_y=block_y), MACHINE, assumed_rate)
        self.state = random_state(stencil, LAYOUT.shape, "float32", 1)
        super().__init__(folder, stencil, plan, self.state)

    @property
    def sources(self) -> list[list[Path]]:
        """Return the files that the pass reads."""
        return [*self.turns[0], *self.fixed]

    def run(self, seeds: Seeds | None = None, checksum: bool = True) -> None:
        """Run the pass."""
        with self.engine(2, "auto", checksum=checksum) as engine:
            engine.run_pass(0, 0, seeds=self.seeds if seeds is None else seeds)


def record(files: list[Path], z: int, content: bytes | None = None) -> bytes:
    """Return the record of plane z. If `content` is given, replace the record by `content`."""
    shard, offset = LAYOUT.locate(z)
    with files[shard].open("r+b") as file:
        file.seek(offset)
        found = file.read(LAYOUT.record_bytes)
        if content is not None:
            file.seek(offset)
            file.write(content)
    return found


def test_a_seal_is_what_the_documents_say() -> None:
    """Checks that a seal follows its definition in the documents, so that other programs can compute seals."""
    expected = _core.crc32c(struct.pack("<QI", 2**40 + 5, 0xDEADBEEF), 0xFFFFFFFE)
    assert _core.plane_seal(2**40 + 5, 0xDEADBEEF, 0xFFFFFFFE) == expected


@pytest.mark.parametrize("block_y", [0, 12])
@pytest.mark.parametrize("periodic", [False, True])
def test_planes_get_the_seals_of_their_pass(tmp_path: Path, block_y: int, periodic: bool) -> None:
    """Checks that a seal contains the number of the plane in its array. On a periodic axis, this number differs from
    the position at which a pass processes the plane."""
    run = Run(tmp_path, block_y, periodic)
    run.run()
    right = advance_fields(run.stencil, run.state, {}, 2, boundary=run.boundary)
    for name, files, seed in zip(NAMES, run.turns[1], run.seeds.targets, strict=True):
        assert np.array_equal(get(LAYOUT, files, seed), right[name])


def swap_planes(run: Run) -> list[Path]:
    """Swap two planes of u, and return the damaged files."""
    u = run.turns[0][0]
    record(u, 5, record(u, 9, record(u, 5)))
    return u


def swap_arrays(run: Run) -> list[Path]:
    """Copy a plane of u to u.previous, and return the damaged files."""
    record(run.turns[0][1], 5, record(run.turns[0][0], 5))
    return run.turns[0][1]


def lose_a_write(run: Run) -> list[Path]:
    """Replace a plane of m by the same plane of another assignment to m. Return the damaged files."""
    (files,) = run.fixed
    other = make_files(run.folder, "other", LAYOUT)
    put(LAYOUT, other, run.state["m"] + 1, run.seeds.statics[0] + 1)
    record(files, 5, record(other, 5))
    return files


@pytest.mark.parametrize("harm", [swap_planes, swap_arrays, lose_a_write])
@pytest.mark.parametrize("block_y", [0, 12])
def test_whole_planes_of_another_place_or_writing_are_found(
    tmp_path: Path, harm: Callable[[Run], list[Path]], block_y: int
) -> None:
    """Checks that passes and reads detect a plane that belongs to another place or another assignment. A pass without
    checksums does not detect such planes.
    """
    run = Run(tmp_path, block_y)
    files = harm(run)
    shard, offset = LAYOUT.locate(5)
    expected = rf"^plane 5 {WHOLE} in {files[shard]} at offset {offset}, {LAYOUT.plane_bytes} bytes"
    with pytest.raises(CorruptionError, match=expected):
        run.run()
    seed = [*run.seeds.sources, *run.seeds.statics][run.sources.index(files)]
    with Planes([str(file) for file in files], LAYOUT, seed=seed) as planes:
        planes.read(0, 5)
        with pytest.raises(CorruptionError, match=expected):
            planes.read(3, 8)
    run.run(checksum=False)


@pytest.mark.parametrize("field", ["sources", "statics"])
def test_every_array_that_is_read_is_compared(tmp_path: Path, field: str) -> None:
    """Checks that a wrong seed of any array stops the pass, and that the error names the array. Missing seeds stop the
    pass too."""
    run = Run(tmp_path)
    right: tuple[int, ...] = getattr(run.seeds, field)
    for place, name in enumerate(NAMES if field == "sources" else STATICS):
        wrong = replace(run.seeds, **{field: (*right[:place], right[place] ^ 1, *right[place + 1 :])})
        with pytest.raises(CorruptionError, match=rf"{WHOLE}/{name}[-.]"):
            run.run(wrong)
    with pytest.raises(CorruptionError, match=WHOLE):
        run.run(Seeds())
    with pytest.raises(InputError, match=r"1 seeds for 2 sources"):
        run.run(replace(run.seeds, sources=(1,)))
    run.run()


@pytest.mark.parametrize("place", [0, 4])
def test_a_flipped_bit_of_the_tail_is_named_for_what_it_is(tmp_path: Path, place: int) -> None:
    """Checks the errors for a flipped bit in the part of a record after the plane. For a bit in the checksum, the error
    reports a mismatch. For a bit in the seal, the error says that the plane may belong to another place.
    """
    run = Run(tmp_path)
    u = run.turns[0][0]
    content = bytearray(record(u, 7))
    content[LAYOUT.plane_bytes + place] ^= 4
    record(u, 7, bytes(content))
    expected = rf"plane 7 {WHOLE}" if place else "plane 7 is damaged: checksum mismatch in"
    with pytest.raises(CorruptionError, match=expected):
        run.run()
    with (
        Planes([str(file) for file in u], LAYOUT, seed=run.seeds.sources[0]) as planes,
        pytest.raises(CorruptionError, match=expected),
    ):
        planes.read(0, 20)


def test_planes_are_filled_with_the_seals_that_passes_expect(tmp_path: Path) -> None:
    """Checks that `Planes` writes the seals that passes expect. Planes are written one by one, or in groups that cross
    the borders of shards."""
    run = Run(tmp_path)
    for name, files, seed in zip(NAMES, run.turns[0], run.seeds.sources, strict=True):
        for file in files:
            file.write_bytes(bytes(file.stat().st_size))
        values = run.state[name]
        with Planes([str(file) for file in files], LAYOUT, writable=True, seed=seed) as planes:
            planes.fill(lambda z0, z1, values=values: values[z0:z1])  # type: ignore[misc]
        assert np.array_equal(get(LAYOUT, files, seed), values)
    run.run()
