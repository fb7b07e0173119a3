"""Check that a result is a standard Zarr array with checksums, which can be read without this package."""

from pathlib import Path

import numpy as np
import pytest
import xarray
import zarr

import outcrop as oc
from outcrop.run.disk.layout import make_layout, stripe_planes
from outcrop.run.places import open_state

SHAPES = [(5, 4, 3), (1, 1, 1), (7, 33, 17), (9, 16, 64)]


def make_run(places: list[Path], shape: tuple[int, int, int], dtype: str = "float32") -> np.ndarray:
    """Make a new run in `places` and return its initial values."""
    values = np.random.default_rng(1).random(shape).astype(dtype)
    simulation = oc.Simulation("heat7", shape, dtype=dtype, directory=places, memory="16MiB")
    simulation["u"] = values
    return values


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_zarr_reads_the_same_bits(tmp_path: Path, shape: tuple[int, int, int], dtype: str) -> None:
    """Checks arrays with irregular sizes and with a single cell. The values that zarr reads must not contain the
    padding of rows, planes and records.
    """
    values = make_run([tmp_path / "run.oc"], shape, dtype)
    group = zarr.open_group(str(tmp_path / "run.oc"), mode="r")
    assert list(group.array_keys()) == ["u"]
    assert np.array_equal(group["u"][...], values)
    assert np.array_equal(zarr.open_array(str(tmp_path / "run.oc" / "u"), mode="r")[-1], values[-1])


def test_xarray_reads_the_same_bits_with_named_axes(tmp_path: Path) -> None:
    """Checks that xarray opens the group of a run without warnings, although the group contains links and a manifest.
    """
    values = make_run([tmp_path / "run.oc"], (6, 5, 7))
    dataset = xarray.open_zarr(str(tmp_path / "run.oc"), chunks=None)
    assert dataset["u"].dims == ("z", "y", "x")
    assert np.array_equal(dataset["u"].values, values)


def test_shards_over_directories_are_one_array(tmp_path: Path) -> None:
    """Checks that shards in several directories look like one array, even if the last shard is shorter."""
    places = [tmp_path / name for name in ("a", "b", "c")]
    shape = (25, 256, 1024)  # a plane has 1 MiB, so each shard has a few planes, and the last shard is shorter
    layout = make_layout(shape, "float32", stripe_planes(shape, "float32", len(places)))
    assert layout.shards > 3 and layout.records(layout.shards - 1) < layout.shard_planes
    values = make_run(places, shape)
    assert np.array_equal(zarr.open_group(str(places[0]), mode="r")["u"][...], values)
    for place in places:
        assert any(not path.is_symlink() for path in place.glob(".u.0/c/*/0/0")), f"{place} holds nothing"


def test_zarr_reports_a_flipped_bit(tmp_path: Path) -> None:
    """Checks that zarr compares the checksums, so that programs without this package detect damage."""
    make_run([tmp_path / "run.oc"], (5, 6, 7))
    state = open_state(tmp_path / "run.oc")
    with open(str(state.current_files_of("u")[0]), "r+b") as file:
        file.seek(3 * state.layout.record_bytes + 50)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 1]))
    array = zarr.open_array(str(tmp_path / "run.oc" / "u"), mode="r")
    assert array[2].shape == (6, 7)
    with pytest.raises(ValueError, match="checksum"):
        array[3]


def test_the_run_after_a_pass_is_what_zarr_shows(tmp_path: Path) -> None:
    """Checks that the link always leads to the committed generation. After the first call of `run`, this generation is
    in the second copy on disk. After the second call, it is in the first copy again."""
    make_run([tmp_path / "run.oc"], (8, 8, 8))
    simulation = oc.open(tmp_path / "run.oc")
    for _ in range(2):
        simulation.run(steps=1, progress="none")
        assert np.array_equal(zarr.open_group(str(tmp_path / "run.oc"), mode="r")["u"][...], simulation["u"][...])
