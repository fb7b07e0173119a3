"""Check values from Python objects: arrays of xarray and dask, functions, and views of such objects."""

import threading
from pathlib import Path

import numpy as np
import pytest

from outcrop.errors import InputError
from outcrop.run.inputs.initial import InputView, make_source, parse_source
from saves import SECTION, SHAPE, VOLUME, collect, save_npy


def test_xarray_objects_are_taken_by_the_names_of_their_axes() -> None:
    """Checks that axes named z, y and x are put into the order z, y, x. Axes with other names keep their order."""
    xarray = pytest.importorskip("xarray")
    for dims, order in [(("z", "y", "x"), (0, 1, 2)), (("x", "z", "y"), (2, 0, 1)), (("a", "b", "c"), (0, 1, 2))]:
        array = xarray.DataArray(VOLUME.transpose(order), dims=dims)
        assert np.array_equal(collect(make_source(array, array.shape if dims[0] == "a" else SHAPE, 600)), VOLUME)
    section = xarray.Dataset({"vp": (("x", "z"), SECTION.T)})
    assert np.array_equal(collect(make_source(section, (11, 5))), SECTION)


def test_xarray_objects_that_are_not_one_array_are_refused() -> None:
    """Checks that several variables, too many axes, dates and complex numbers are refused. The error says what to do.
    """
    xarray = pytest.importorskip("xarray")
    several = xarray.Dataset({"vp": ("x", [1.0]), "rho": ("x", [1.0])})
    many = xarray.DataArray(np.ones((2, *SHAPE)), dims=("time", "z", "y", "x"))
    dates = xarray.DataArray(np.zeros(5, "M8[ns]"), dims="x")
    for values, words in [
        (several, r"dataset\[NAME\] \(there are: rho, vp\)"),
        (many, r"time: 2.*isel\(time=0\)"),
        (dates, "only real numbers"),
        (many[0] * 1j, "only real numbers"),
    ]:
        with pytest.raises(InputError, match=words):
            make_source(values, SHAPE)


def test_dask_arrays_are_computed_piece_by_piece() -> None:
    """Checks that each chunk of a dask array is computed only once, and only when its values are requested."""
    dask_array = pytest.importorskip("dask.array")
    xarray = pytest.importorskip("xarray")
    computed: list[int] = []
    threads: set[int] = set()

    def make(block_info: dict) -> np.ndarray:  # type: ignore[type-arg]
        (z0, z1), *_ = block_info[None]["array-location"]
        computed.append(z0)
        threads.add(threading.get_ident())
        return VOLUME[z0:z1]

    lazy = dask_array.map_blocks(make, chunks=((4, 4, 3), (6,), (5,)), dtype="f4", meta=VOLUME[:0])
    for values in (lazy, xarray.DataArray(lazy, dims=("z", "y", "x"))):
        computed.clear()
        source = make_source(values, SHAPE)
        source.planes(0, 2)
        assert computed == [0]
        source.planes(0, 9)
        computed.clear()
        assert np.array_equal(np.concatenate([source.planes(z, z + 1) for z in range(11)]), VOLUME)
        assert computed == [0, 4, 8] and threads == {threading.get_ident()}


def test_dask_arrays_of_unknown_size_are_refused() -> None:
    """Checks that an array is refused if its size is unknown before it is computed."""
    dask_array = pytest.importorskip("dask.array")
    lazy = dask_array.from_array(VOLUME, chunks=4)
    with pytest.raises(InputError, match="at least 1 are needed"):
        make_source(lazy[lazy[:, 0, 0] > 0.5], SHAPE)


def test_functions_on_grids_of_fewer_axes() -> None:
    """Checks that a function can give the values of a grid of one or two axes. The function gets ranges of rows on a
    grid of two axes, and ranges of cells on a grid of one axis."""
    for array in (SECTION, VOLUME[0, 0]):
        source = make_source(lambda a, b, array=array: array[a:b], array.shape)
        assert np.array_equal(collect(source), array)


def test_files_of_one_axis_are_viewed_in_every_direction(tmp_path: Path) -> None:
    """Checks that a view of a file of one axis has the right cells for any index. Outcrop reads all cells, and then
    selects the cells of the view.
    """
    view = InputView(parse_source(save_npy(tmp_path, VOLUME[:, 0, 0]), None))
    for index in (3, -1, slice(None), slice(9, 2, -3), slice(2, 2), slice(None, None, -1)):
        assert np.array_equal(view[index], VOLUME[:, 0, 0][index])
