"""Save one array in a file of each format."""

import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest

from outcrop.axes import grid_shape
from outcrop.run.inputs.initial import checked_planes
from outcrop.run.inputs.input_array import InputArray

SHAPE = (11, 6, 5)
VOLUME = np.random.default_rng(3).random(SHAPE).astype("float32")
SECTION = VOLUME[:, 2]


def collect(source: InputArray, group: int = 3) -> np.ndarray:
    """Read a few planes at a time, in ascending order, as a run does. Return the whole array."""
    count = grid_shape(source.shape)[0]
    planes = checked_planes(source, "float32", check_finite=True)
    return np.concatenate([planes(z, min(z + group, count)) for z in range(0, count, group)]).reshape(source.shape)


def chunks_of(array: np.ndarray) -> tuple[int, ...]:
    """Return a shape of chunks. The last chunk along each axis is smaller than the others. Each chunk has several
    planes."""
    return tuple(max(3, size // 5) for size in array.shape)


def save_npy(path: Path, array: np.ndarray) -> str:
    np.save(path / "a.npy", array)
    return str(path / "a.npy")


def save_fortran(path: Path, array: np.ndarray) -> str:
    return save_npy(path, np.asfortranarray(array))


def save_xz(path: Path, array: np.ndarray) -> str:
    with lzma.open(path / "a.npy.xz", "wb") as file:
        np.save(file, array)
    return str(path / "a.npy.xz")


def save_fortran_gz(path: Path, array: np.ndarray) -> str:
    with gzip.open(path / "a.npy.gz", "wb", compresslevel=1) as file:
        np.save(file, np.asfortranarray(array))
    return str(path / "a.npy.gz")


def save_npz(path: Path, array: np.ndarray) -> str:
    np.savez_compressed(path / "a.npz", vp=array, rho=array + 1)
    return str(path / "a.npz:vp")


def save_raw(path: Path, array: np.ndarray) -> str:
    sizes = ",".join(str(size) for size in reversed(array.shape))
    (path / "a:b.bin").write_bytes(b"header" + array.astype(">f4").tobytes())
    return f"raw:{path}/a:b.bin:>f4:{sizes}:6"


def save_zarr(path: Path, array: np.ndarray) -> str:
    zarr = pytest.importorskip("zarr")
    zarr.create_group(path / "a.zarr").create_array("vp", data=array, chunks=chunks_of(array))
    return str(path / "a.zarr" / "vp")


def save_netcdf(path: Path, array: np.ndarray) -> str:
    pytest.importorskip("h5netcdf")
    xarray = pytest.importorskip("xarray")
    names = [f"d{number}" for number in range(array.ndim)]
    dataset = xarray.Dataset({"vp": (names, array), "rho": (names, array + 1)})
    chunks = {"vp": {"chunksizes": chunks_of(array), "zlib": True, "complevel": 1}}
    dataset.to_netcdf(path / "a.nc", engine="h5netcdf", encoding=chunks)
    return str(path / "a.nc:vp")


def save_segy(path: Path, array: np.ndarray) -> str:
    segyio = pytest.importorskip("segyio")
    if array.ndim == 1:
        pytest.skip("a single trace has no axes to mix up")
    traces = np.ascontiguousarray(np.moveaxis(array, 0, -1))
    if array.ndim == 2:
        segyio.tools.from_array2D(str(path / "a.sgy"), traces, format=segyio.SegySampleFormat.IEEE_FLOAT_4_BYTE)
    else:
        segyio.tools.from_array3D(str(path / "a.sgy"), traces, format=segyio.SegySampleFormat.IEEE_FLOAT_4_BYTE)
    return str(path / "a.sgy")


SAVES = [save_npy, save_fortran, save_xz, save_fortran_gz, save_npz, save_raw, save_zarr, save_netcdf, save_segy]
