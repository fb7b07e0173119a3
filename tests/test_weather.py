"""Check runs with full disks, failing devices and changed bytes. Such runs end with a clear error and never with wrong
bits.

The tests simulate failing devices. The tests of full disks mount a small file system, and are skipped if the system
does not allow this.
"""

import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import zarr

import outcrop as oc
from outcrop import _core
from outcrop.cli.main import call
from outcrop.errors import CorruptionError, OutcropError, StorageError
from outcrop.run.places import open_state

SHAPE = (40, 33, 50)
MEMORY = 256 << 10
STEPS = 24

# The original class. Tests replace `_core.Store` by a class that simulates faults.
STORE = _core.Store


def make_run(where: Path, in_place: bool = False) -> oc.Simulation:
    """Make a run with random initial values and no steps."""
    simulation = oc.Simulation(
        oc.stencils.heat(ndim=3),
        shape=SHAPE,
        dtype="float64",
        directory=where,
        memory=MEMORY,
        io="threads",
        in_place=in_place,
    )
    simulation["u"] = np.random.default_rng(3).random(SHAPE)
    return simulation


@pytest.fixture
def storage_with(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that sets the faults of stores. The faults apply to all stores that are opened after the call.
    Without arguments, the function removes all faults.
    """

    def replace(**faults: float) -> None:
        monkeypatch.setattr(_core, "Store", partial(STORE, faults=faults) if faults else STORE)

    return replace


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    """Return the final values of a run without faults."""
    simulation = make_run(tmp_path_factory.mktemp("good") / "run.oc")
    simulation.run(steps=STEPS, progress="none")
    return simulation["u"][:]


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        ({"error_at": 30}, "Input/output error"),
        ({"error_at": 75}, "Input/output error"),
        ({"full_after_bytes": 700_000}, "No space left"),
        ({"flush_error_at": 1}, "Input/output error"),
    ],
    ids=["reading", "later", "full", "flush"],
)
def test_a_failing_device_stops_the_run_and_loses_nothing(
    faults: dict[str, float], words: str, storage_with: Callable[..., None], expected: np.ndarray, tmp_path: Path
) -> None:
    """Checks that a failing device stops the run. The error names a file, and the committed state stays complete. When
    the device works again, the run ends with the correct bits.
    """
    where = tmp_path / "run.oc"
    simulation = make_run(where)
    storage_with(**faults)
    with pytest.raises(StorageError, match=words) as caught:
        simulation.run(steps=STEPS, progress="none")
    assert str(where) in str(caught.value)
    storage_with()
    later = oc.open(where)
    assert later.step < STEPS
    _ = later["u"][:]
    later.run(steps=STEPS - later.step, progress="none")
    np.testing.assert_array_equal(later["u"][:], expected)


def test_a_failed_pass_in_place_says_that_the_state_is_lost(storage_with: Callable[..., None], tmp_path: Path) -> None:
    """Checks that the state counts as lost after a pass in place has failed, because such a pass leaves a mixture of
    steps."""
    where = tmp_path / "run.oc"
    simulation = make_run(where, in_place=True)
    storage_with(error_at=60)
    with pytest.raises(StorageError):
        simulation.run(steps=STEPS, progress="none")
    storage_with()
    for use in (lambda: oc.open(where).run(steps=1, progress="none"), lambda: oc.open(where)["u"][3]):
        with pytest.raises(StorageError, match="lost"):
            use()


def test_short_transfers_and_retries_change_nothing(
    storage_with: Callable[..., None], expected: np.ndarray, tmp_path: Path
) -> None:
    """Checks that short transfers and retries change no bit of the result."""
    simulation = make_run(tmp_path / "run.oc")
    storage_with(short_rate=0.2, again_rate=0.2, seed=9)
    simulation.run(steps=STEPS, progress="none")
    storage_with()
    np.testing.assert_array_equal(oc.open(tmp_path / "run.oc")["u"][:], expected)


def test_a_bit_flipped_on_the_way_is_found(storage_with: Callable[..., None], tmp_path: Path) -> None:
    """Checks that a device that returns wrong bytes stops the run. The error names plane, file and offset."""
    simulation = make_run(tmp_path / "run.oc")
    storage_with(flip_at=21)
    with pytest.raises(CorruptionError, match=r"plane \d+.*offset \d+"):
        simulation.run(steps=STEPS, progress="none")


def flip_byte(simulation: oc.Simulation, plane: int) -> None:
    """Change one byte of a plane of the committed array, as a failing disk may do."""
    state = open_state(simulation.directory)
    shard, offset = state.layout.locate(plane)
    with open(str(state.current_files_of("u")[shard]), "r+b") as file:
        file.seek(offset + state.layout.plane_bytes // 2)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 16]))


def test_a_byte_flipped_on_disk_is_found_by_everything_that_reads_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that a damaged plane is detected by a run, by a read, by `outcrop verify` and by zarr. The other planes
    can be read."""
    where = tmp_path / "run.oc"
    simulation = make_run(where)
    simulation.run(steps=3, progress="none")
    plane = 17
    flip_byte(simulation, plane)
    again = oc.open(where)
    with pytest.raises(CorruptionError, match=rf"plane {plane}\b.*offset \d+"):
        again.run(steps=3, progress="none")
    with pytest.raises(CorruptionError, match=rf"plane {plane}\b"):
        oc.open(where)["u"][plane]
    _ = oc.open(where)["u"][plane + 1]
    assert call(["verify", str(where)]) == 2
    said = capsys.readouterr()
    assert f"plane {plane}" in said.out + said.err
    with pytest.raises(Exception, match=r"(?i)checksum|crc"):
        zarr.open_array(str(where / "u"), mode="r")[plane]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 2 MiB, and yield its folder."""
    where = tmp_path / "small"
    where.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "outcrop-test", str(where)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("may not mount a small file system here")
    yield where
    # a lazy unmount, because a caught error may keep files of the run open
    subprocess.run(["umount", "--lazy", str(where)], check=True)


def test_a_disk_that_is_too_small_is_refused_before_the_first_byte(
    small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks a disk without room for two arrays. The command gives one line with both sizes, and exit code 2. No file
    is made.
    """
    where = small_disk / "run.oc"
    code = call(["run", "heat7", "-n", "64", "64", "64", "-t", "5", "-d", str(where), "--memory", "1MiB", "--quiet"])
    said = capsys.readouterr().err
    assert code == 2 and len(said.strip().splitlines()) == 1, said
    assert "MiB" in said and not list(small_disk.iterdir())


def test_a_disk_that_others_fill_meanwhile_does_not_stop_a_run(small_disk: Path) -> None:
    """Checks that a run with allocated files needs no further disk space, except for one page per commit."""
    where = small_disk / "run.oc"
    simulation = oc.Simulation(
        oc.stencils.heat(ndim=3), shape=(32, 32, 32), dtype="float32", directory=where, memory="512KiB"
    )
    simulation["u"] = np.ones((32, 32, 32), dtype="float32")
    filler = small_disk / "filler"
    try:
        filler.write_bytes(b"x" * (4 << 20))
    except OSError:
        filler.write_bytes(b"x" * (filler.stat().st_size - (64 << 10)))
    simulation.run(steps=10, progress="none")
    assert oc.open(where).step == 10


def test_a_commit_without_space_loses_nothing(small_disk: Path) -> None:
    """Checks that a failed write of the manifest gives an error and keeps the previous state."""
    where = small_disk / "run.oc"
    simulation = oc.Simulation(
        oc.stencils.heat(ndim=3), shape=(32, 32, 32), dtype="float32", directory=where, memory="512KiB"
    )
    simulation["u"] = np.ones((32, 32, 32), dtype="float32")
    with open(small_disk / "filler", "wb", buffering=0) as filler:
        try:
            while True:
                filler.write(b"x" * 4096)
        except OSError:
            pass
    with pytest.raises(OutcropError):
        simulation.run(steps=10, progress="none")
    (small_disk / "filler").unlink()
    later = oc.open(where)
    assert later.step == 0
    later.run(steps=10, progress="none")
