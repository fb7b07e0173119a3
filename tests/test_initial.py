"""Check initial values. The bits do not depend on the number of planes that are read at a time, and wrong values give a
clear error.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zarr

import outcrop as oc
from manifests import make_manifest
from outcrop.errors import CorruptionError, InputError
from outcrop.run.disk.entries import ArrayEntry
from outcrop.run.disk.layout import make_layout
from outcrop.run.disk.planes import Planes
from outcrop.run.disk.state import State
from outcrop.run.inputs.initial import checked_planes, make_source, parse_source, scan_finite
from outcrop.run.inputs.input_array import InputArray
from outcrop.run.places import created_state

SHAPE = (11, 6, 5)


def make_state(where: Path, shard_planes: int = 4, shape: tuple[int, int, int] = SHAPE) -> State:
    with created_state(
        [where],
        replace(
            make_manifest(where),
            arrays=(ArrayEntry("u", False),),
            shape=shape,
            shard_planes=shard_planes,
            target_step=0,
        ),
    ) as state:
        return state


def collect(source: InputArray, group: int) -> np.ndarray:
    planes = source.shape[0]
    return np.concatenate([source.planes(z, min(z + group, planes)) for z in range(0, planes, group)])


@pytest.mark.parametrize("text", ["zeros", "gaussian", "random:7", "random"])
def test_built_in_values_do_not_depend_on_the_grouping_of_planes(text: str) -> None:
    """Checks that initial values do not depend on the number of planes that are read at a time."""
    source = parse_source(text, SHAPE)
    whole = collect(source, SHAPE[0])
    assert whole.shape == SHAPE and np.isfinite(whole).all()
    for group in (1, 2, 4):
        assert np.array_equal(collect(source, group), whole)
    if text != "zeros":
        assert 0 <= whole.min() < whole.max() <= 1


def test_random_values_depend_on_seed_and_plane() -> None:
    first, second = collect(parse_source("random:1", SHAPE), 11), collect(parse_source("random:2", SHAPE), 11)
    assert not np.array_equal(first, second)
    assert not np.array_equal(first[0], first[1])


@pytest.mark.parametrize("dtype", ["?", "u1", "<i2", ">i4", "u8", "<f2", ">f4", "<f8", "g"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_of_every_real_dtype_and_order(tmp_path: Path, dtype: str, order: str) -> None:
    values = np.array(np.arange(330).reshape(SHAPE) % 100, dtype=dtype, order=order)  # type: ignore[call-overload]
    np.save(tmp_path / "a.npy", values)
    source = parse_source(str(tmp_path / "a.npy"), SHAPE)
    planes = checked_planes(source, "float32", check_finite=True)
    for z0, z1 in [(0, 11), (3, 5), (10, 11)]:
        assert planes(z0, z1).dtype == np.float32
        assert np.array_equal(planes(z0, z1), values[z0:z1].astype("float32"))


@pytest.mark.parametrize("chunks", [(1, 6, 5), (4, 3, 2), (11, 6, 5), (100, 100, 100)])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_zarr_of_any_chunks(tmp_path: Path, chunks: tuple[int, int, int], zarr_format: int) -> None:
    """Checks a file whose chunks cover several planes. Each plane must get the right values, and each chunk must be
    decoded only once."""
    values = np.arange(330, dtype="int16").reshape(SHAPE)
    path = tmp_path / "a.zarr"
    zarr.create_array(path, data=values, chunks=tuple(map(min, chunks, SHAPE)), zarr_format=zarr_format)  # type: ignore[arg-type]
    for group in (1, 3, 11):
        assert np.array_equal(collect(parse_source(str(path), None), group), values)


def test_zarr_groups_need_one_array_or_its_name(tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path / "g.zarr")
    group.create_array("p", data=np.ones(SHAPE, "f4"))
    assert parse_source(str(tmp_path / "g.zarr"), SHAPE).shape == SHAPE
    group.create_array("q", data=np.ones(SHAPE, "f4"))
    with pytest.raises(InputError, match=r"name one of its arrays .*\(there are: p, q\)"):
        parse_source(str(tmp_path / "g.zarr"), SHAPE)
    assert parse_source(str(tmp_path / "g.zarr" / "q"), SHAPE).shape == SHAPE


def test_a_run_can_start_from_the_result_of_another(tmp_path: Path) -> None:
    values = np.random.default_rng(0).random(SHAPE, dtype=np.float32)
    state = make_state(tmp_path / "run.oc")
    with state.target_planes("u", 0) as planes:
        planes.fill(make_source(values, SHAPE).planes)
        planes.flush()
    state.commit(0)
    assert np.array_equal(collect(parse_source(str(tmp_path / "run.oc"), None), 3), values)


@pytest.mark.parametrize(
    "values",
    [
        np.ones(SHAPE, "i4"),
        np.ones(SHAPE).tolist(),
        1,
        np.float64(1),
        np.array(1.0),
        lambda z0, z1: np.ones((z1 - z0, 6, 5)),
        zarr.array(np.ones(SHAPE)),
        "random:3",
    ],
    ids=["array", "lists", "number", "scalar", "array of one", "function", "zarr", "name"],
)
def test_everything_that_can_be_assigned(values: object) -> None:
    source = make_source(values, SHAPE)
    block = checked_planes(source, "float64", check_finite=True)(2, 5)
    assert block.shape == (3, 6, 5) and (isinstance(values, str) or (block == 1).all())


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.ones((11, 5, 6)), r"shape \(11, 5, 6\), the grid is \(11, 6, 5\) \(nz, ny, nx\); to interpolate use oc"),
        (np.ones((11, 5)), r"shape \(11, 5\), the grid \(11, 6, 5\) has three axes.*oc\.resample"),
        (np.ones((1, 11, 6, 5)), "three axes"),
        ([[1.0], [1.0, 2.0]], "not an array"),
        (np.ones((0, 6, 5)), "at least 1"),
        (np.ones(SHAPE, complex), "only real numbers"),
        (np.full(SHAPE, "text"), "only real numbers"),
        (1j, "only real numbers"),
        ("nonsense", "neither a file nor a known name; there are zeros, "),
        ("missing.npy", "no such file"),
        ("random:-1", "whole number"),
        ("random:x", "whole number"),
        ("zeros:3", "neither a file"),
    ],
)
def test_what_cannot_be_assigned_is_refused(values: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make_source(values, SHAPE)


@pytest.mark.parametrize("text", ["1500", "-2.5e3", "+.5", "0.", "1e-3"])
def test_a_number_fills_the_grid(text: str) -> None:
    """Checks that a number gives all cells this value. A text that only begins with a number must be refused."""
    assert (collect(parse_source(text, SHAPE), 4) == float(text)).all()
    with pytest.raises(InputError, match="neither a file"):
        parse_source(text.replace(".", "") + "x", SHAPE)


@pytest.mark.parametrize("name", ["zeros", "gaussian", "random:1", "3.5"])
def test_names_need_a_grid(name: str) -> None:
    with pytest.raises(InputError, match=r"give shape=\(nz, ny, nx\)"):
        parse_source(name, None)


def _save_text(path: Path) -> None:
    path.write_text("not an array")


def _save_short(path: Path) -> None:
    np.save(path, np.ones(SHAPE))
    path.write_bytes(path.read_bytes()[:-8])


def _save_objects(path: Path) -> None:
    np.save(path, np.full(SHAPE, None), allow_pickle=True)


def _save_folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    ("save", "words"),
    [
        (_save_text, "not a .npy file"),
        (_save_short, "cut short"),
        (_save_objects, "only real numbers"),
        (_save_folder, "cannot be opened as Zarr"),
        (lambda path: path.write_bytes(b""), "not a .npy file"),
        (lambda path: path.write_bytes(b"\x93NUMPY\x09\x00"), "not a .npy file"),
    ],
)
def test_files_that_are_no_arrays_are_refused(tmp_path: Path, save: Callable[[Path], None], words: str) -> None:
    path = tmp_path / "a.npy"
    save(path)
    with pytest.raises(InputError, match=words):
        parse_source(str(path), None)


def test_values_that_are_not_finite_are_found_and_named() -> None:
    """Checks that infinite values are detected, even if they become infinite only in the dtype of the run."""
    for bad, dtype in [(np.nan, "float64"), (-np.inf, "float64"), (1e300, "float32")]:
        values = np.ones(SHAPE)
        values[7, 2, 3] = bad
        source = make_source(values, SHAPE)
        with pytest.raises(InputError, match=r"z=7, y=2, x=3"):
            scan_finite(source, dtype)
        checked_planes(source, dtype, check_finite=False)(0, 11)


def test_a_function_of_the_wrong_shape_is_refused() -> None:
    planes = checked_planes(make_source(lambda z0, z1: np.ones((6, 5)), SHAPE), "float32", check_finite=False)
    with pytest.raises(InputError, match=r"gave shape \(6, 5\) for planes 2 to 3, not \(2, 6, 5\)"):
        planes(2, 4)


@pytest.mark.parametrize("shard_planes", [1, 4, 11])
@pytest.mark.parametrize("shape", [SHAPE, (11, 1, 1), (11, 300, 600)])
def test_planes_come_back_as_they_were_written(tmp_path: Path, shard_planes: int, shape: tuple[int, int, int]) -> None:
    """Checks that planes are read as they were written, even if writes and reads cross the borders of shards and of
    groups of planes. A plane may be smaller or larger than the maximum size of a group.
    """
    values = np.random.default_rng(1).random(shape, dtype=np.float32)
    state = make_state(tmp_path / "run.oc", shard_planes, shape)
    with Planes(state.files_of("u", 0), state.layout, writable=True) as planes:
        planes.fill(lambda z0, z1: values[z0:z1])
        planes.fill(lambda z0, z1: values[z0:z1] + 1, 3, 6)
        for z0, z1 in [(0, 11), (0, 3), (6, 11), (8, 9)]:
            expected = np.concatenate([values[:3], values[3:6] + 1, values[6:]])[z0:z1]
            assert np.array_equal(planes.read(z0, z1), expected)


@pytest.mark.parametrize("place", [0, 119, 6 * 64 - 1, 6 * 64 + 2])
def test_a_flipped_bit_anywhere_in_a_plane_is_named(tmp_path: Path, place: int) -> None:
    """Checks that a flipped bit in the cells, the padding or the checksum of a plane is detected. The other planes can
    still be read."""
    layout = make_layout(SHAPE, "float32", 4)
    assert layout.plane_bytes == 6 * 64
    state = make_state(tmp_path / "run.oc")
    with Planes(state.files_of("u", 0), layout, writable=True) as planes:
        planes.fill(make_source(1.5, SHAPE).planes)
    shard, offset = layout.locate(6)
    with open(str(state.files_of("u", 0)[shard]), "r+b") as file:
        file.seek(offset + place)
        byte = file.read(1)[0]
        file.seek(offset + place)
        file.write(bytes([byte ^ 0x10]))
    with Planes(state.files_of("u", 0), layout) as planes:
        planes.read(0, 6)
        planes.read(7, 11)
        with pytest.raises(CorruptionError, match=rf"plane 6 is damaged.*c/1/0/0.*offset {offset}"):
            planes.read(5, 8)


def test_assigned_values_are_checked_too(tmp_path: Path) -> None:
    """Checks that `check_finite` also refuses NaN in an assignment, before any file is written."""
    values = np.zeros((6, 5, 4), "float32")
    values[3, 2, 1] = np.nan
    sim = oc.Simulation("heat2", values.shape, directory=tmp_path / "run.oc", memory="1MiB", check_finite=True)
    with pytest.raises(InputError, match="holds nan at z=3, y=2, x=1"):
        sim["u"] = values
    assert list(tmp_path.iterdir()) == []
    sim["u"] = np.zeros_like(values)
    with pytest.raises(InputError, match="assign the whole field, as in sim"):
        sim["u"][0] = 1.0
