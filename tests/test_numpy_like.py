"""Check that arrays behave like NumPy arrays on each tier."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import outcrop as oc
from outcrop.errors import InputError

PLACES = ("dram", "tmpfs", "disk", "npy", "committed")
SHM = Path("/dev/shm")


@pytest.fixture(params=PLACES)
def array(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[oc.Array]:
    """Yield the same array of 3 x 4 x 5 values on each kind of tier. The tier "disk" is the disk that holds the files
    of the tests."""
    shape, place = (3, 4, 5), request.param
    if place == "tmpfs" and not SHM.is_mount():
        pytest.skip("no tmpfs here")
    if place in ("dram", "tmpfs"):
        made = oc.array(shape, "float32", tier=place)
    elif place == "disk":
        made = oc.array(shape, "float32", tier=disk_of(tmp_path))
    else:
        made = oc.array(shape, "float32", persist="end" if place == "committed" else "never", path=tmp_path / "a")
    with made:
        assert not made.values.any(), "new arrays are zeros"
        made[...] = np.arange(60).reshape(shape)
        yield made


def disk_of(folder: Path) -> str:
    """Return the name of the tier of a folder."""
    with oc.array(1, path=folder / "probe.npy") as probe:
        return probe.tier.name


def plain(array: oc.Array) -> np.ndarray:
    """Return an equal array of NumPy."""
    return np.arange(60, dtype="float32").reshape(3, 4, 5)


def test_behaves_as_the_plain_array(array: oc.Array) -> None:
    """Checks that attributes, functions, operators, conversions and iteration give the same results as for a NumPy
    array, on each kind of tier.
    """
    expected = plain(array)
    np.testing.assert_array_equal(array, expected)
    assert (array.shape, array.dtype, array.ndim, array.nbytes, len(array)) == ((3, 4, 5), np.float32, 3, 240, 3)
    for result, wanted in [
        (array + 1, expected + 1),
        (2 / (1 + array), 2 / (1 + expected)),
        (array @ array[0].T, expected @ expected[0].T),
        (np.sum(array, axis=1), expected.sum(axis=1)),
        (np.concatenate([array, array]), np.concatenate([expected, expected])),
        (np.where(array > 3, array, 0), np.where(expected > 3, expected, 0)),
        (array.T, expected.T),
        (np.asarray(array, "int64"), expected.astype("int64")),
        (np.from_dlpack(array), expected),
        (np.array(list(array)), expected),
        (copy.deepcopy(array), expected),
    ]:
        assert type(result) is np.ndarray
        np.testing.assert_array_equal(result, wanted)
    assert 59 in array and 60 not in array and array.max() == 59 and float(array[0, 0, 1]) == 1.0
    assert "3x4x5 float32" in repr(array) and array.tier.name in repr(array)


def test_changes_in_place(array: oc.Array) -> None:
    """Checks that in-place operators, `out` arguments and views change the array itself, and return the same object."""
    before = array
    array += 1
    array[1] *= 2
    array[array > 50] = array[0, 0, 0]
    view = array[2]
    view[0] = -1
    assert array is before and np.add(array, 1, out=array) is array
    np.copyto(array[0], np.zeros((4, 5)))
    expected = plain(array) + 1
    expected[1] *= 2
    expected[expected > 50] = 1
    expected[2, 0] = -1
    expected += 1
    expected[0] = 0
    np.testing.assert_array_equal(array, expected)
    assert np.shares_memory(array.values, np.from_dlpack(array)) and np.shares_memory(array.values, np.asarray(array))


@given(data=st.data())
@settings(max_examples=60)
def test_any_index_and_dtype(data: st.DataObject) -> None:
    """Checks that reads and writes with any index give the same result as in NumPy, for each dtype."""
    dtype = data.draw(npst.scalar_dtypes().filter(lambda one: one.kind in "biufc"))
    shape = data.draw(npst.array_shapes(max_dims=4, max_side=6))
    expected = data.draw(npst.arrays(dtype, shape))
    with oc.array(shape, dtype, tier="dram") as array:
        array[...] = expected
        index = data.draw(npst.basic_indices(shape) | npst.integer_array_indices(shape))
        np.testing.assert_array_equal(array[index], expected[index])
        array[index] = expected[index][..., ::-1] if expected[index].ndim else expected[index]
        expected[index] = expected[index][..., ::-1] if expected[index].ndim else expected[index]
        np.testing.assert_array_equal(array, expected)
        assert array.dtype == dtype and array.shape == shape


def test_views_outlive_the_array(array: oc.Array) -> None:
    """Checks that views of an array stay valid after the array is closed."""
    view = array[1]
    array.close()
    array.close()  # an array may be closed twice
    np.testing.assert_array_equal(view, plain(array)[1])
    with pytest.raises(InputError, match="the array is closed"):
        array[0]
    with pytest.raises(InputError, match="the array is closed"):
        array.flush()


def test_arrays_only_read_take_values_once(tmp_path: Path) -> None:
    """Checks that a read-only array can be filled once. After its first step, the array refuses writes."""
    for words in ({}, {"path": tmp_path / "a.npy"}, {"path": tmp_path / "a", "persist": "end"}):
        array = oc.array((4, 4), "int32", access="read", **words)
        array[...] = 7
        array.step() if not words else array.flush()
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 1
        with pytest.raises(ValueError, match="read-only"):
            array += 1
        assert array.sum() == 112
        array.close()
        if words:
            with oc.open_array(words["path"]) as again:
                assert again.access == "read" and again.sum() == 112
                with pytest.raises(ValueError, match="read-only"):
                    again[0] = 0


def test_npy_files_are_numpys_own(tmp_path: Path) -> None:
    """Checks that NumPy can open the files of arrays. Outcrop can open a file of NumPy as an array if the file has C
    order."""
    path = tmp_path / "new" / "a.npy"  # this call also makes the directory
    with oc.array((5, 7), "complex64", path=path) as array:
        array[...] = np.arange(35).reshape(5, 7) * 1j
        assert array.flush().bytes_written == 280
    np.testing.assert_array_equal(np.load(path), np.arange(35).reshape(5, 7) * np.complex64(1j))
    np.save(path, np.arange(6.0))
    with oc.open_array(path, access="update") as array:
        array[0] = 9
        array.flush()
    np.testing.assert_array_equal(np.load(path), [9, 1, 2, 3, 4, 5])
    np.save(path, np.asfortranarray(np.ones((3, 3))))
    with pytest.raises(InputError, match="Fortran order"):
        oc.open_array(path)


def test_says_what_makes_it_durable(tmp_path: Path) -> None:
    """Checks the flush primitive that an array reports: MAP_SYNC only if the operating system has granted it, and
    "none" for memory."""
    with oc.array(10, tier="dram") as memory, oc.array(10, path=tmp_path / "a.npy") as mapped:
        assert memory.primitive == "none" and memory.flush().bytes_written == 0
        if mapped.tier.kind not in ("dax", "tmpfs"):
            assert mapped.primitive == "msync"
    if SHM.is_mount():
        with oc.array(10, tier="tmpfs") as array:
            assert array.primitive == "none"


def test_attributes_are_those_of_the_values() -> None:
    """Checks that an assignment to `real`, `imag` or `flat` changes values. An assignment to `shape` or `dtype` is
    refused, and the message gives the reason.
    """
    with oc.array((2, 3), "complex128", tier="dram") as array:
        array.real = 3
        array.imag = np.arange(3)
        np.testing.assert_array_equal(array, [[3, 3 + 1j, 3 + 2j]] * 2)
        array.flat = 7
        assert (array.values == 7).all()
        for name, value in (("shape", 6), ("dtype", "float64"), ("steps", 3), ("values", 3), ("mine", 1)):
            with pytest.raises(AttributeError, match=f"{name} of an array on a tier cannot be set"):
                setattr(array, name, value)
        assert array.shape == (2, 3)


def test_files_beside_are_left_alone(tmp_path: Path) -> None:
    """Checks that the user's files next to an array are kept, even if they have unusual names. No file remains if an
    array cannot be made."""
    mine = tmp_path / "a.npy.tmp"
    mine.write_text("of mine")
    oc.array(3, path=tmp_path / "a.npy").close()
    assert mine.read_text() == "of mine"
    with pytest.raises(InputError, match="cannot be used: File name too long"):
        oc.array(3, path=tmp_path / ("x" * 300))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npy", "a.npy.tmp"]
