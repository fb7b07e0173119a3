"""Check values from files. The reader of each format must return the array that was written, with the axes in the right
order, and must need little memory."""

import lzma
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from outcrop.errors import InputError
from outcrop.run.inputs.initial import make_source, parse_source
from saves import (
    SAVES,
    SECTION,
    SHAPE,
    VOLUME,
    collect,
    save_fortran_gz,
    save_netcdf,
    save_npy,
    save_npz,
    save_segy,
    save_xz,
)


@pytest.mark.parametrize("array", [VOLUME, SECTION, VOLUME[:, 0, 0]], ids=["3-D", "2-D", "1-D"])
@pytest.mark.parametrize("save", SAVES, ids=lambda save: save.__name__)
def test_every_format_gives_back_what_was_written(
    tmp_path: Path, save: Callable[[Path, np.ndarray], str], array: np.ndarray
) -> None:
    """Checks files with one to three axes, which are read in groups of any number of planes. The cache may be much
    smaller than the file."""
    text = save(tmp_path, array)
    for group, cache_bytes in [(1, 300), (3, 1 << 20), (11, 1)]:
        source = parse_source(text, array.shape, cache_bytes)
        assert np.array_equal(collect(source, group), array)
        parts = [source.planes(z, min(z + group, 11)) for z in range(0, 11, group)]
        assert np.array_equal(np.concatenate(parts), array), "of one axis cells, a few at a time"


@pytest.mark.parametrize("save", SAVES, ids=lambda save: save.__name__)
def test_a_file_cut_short_is_refused(tmp_path: Path, save: Callable[[Path, np.ndarray], str]) -> None:
    """Checks that a truncated file gives a one-line error when the file is opened or read. The reader must never return
    wrong values."""
    text = save(tmp_path, np.random.default_rng(1).random((64, 32, 32)).astype("float32"))
    path = next(path for path in tmp_path.iterdir())
    if path.is_dir():
        path = max((chunk for chunk in path.rglob("*") if chunk.is_file()), key=lambda chunk: chunk.stat().st_size)
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    with pytest.raises(InputError) as caught:
        collect(parse_source(text, None))
    assert path.name.split(".")[0] in str(caught.value) or ".zarr" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_compressed_file_with_too_few_cells_is_refused(tmp_path: Path) -> None:
    """Checks the error for a complete compressed file whose content is shorter than its header says."""
    np.save(tmp_path / "a.npy", VOLUME)
    (tmp_path / "a.npy.xz").write_bytes(lzma.compress((tmp_path / "a.npy").read_bytes()[:-4]))
    with pytest.raises(InputError, match=r"a\.npy\.xz is cut short"):
        collect(parse_source(str(tmp_path / "a.npy.xz"), SHAPE))


@pytest.mark.parametrize("save", [save_xz, save_npz])
def test_a_flipped_bit_in_a_compressed_file_is_found(tmp_path: Path, save: Callable[[Path, np.ndarray], str]) -> None:
    """Checks that all checksums of a compressed file are compared, including the checksum after the last cell."""
    text = save(tmp_path, VOLUME)
    path = next(tmp_path.iterdir())
    content = bytearray(path.read_bytes())
    place = content.index(b"vp.npy") + 200 if path.suffix == ".npz" else len(content) // 2
    content[place] ^= 0x10
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"a\.np.*(damaged|unpacked|cut short)"):
        collect(parse_source(text, SHAPE))


def test_netcdf_values_are_scaled_and_groups_are_found(tmp_path: Path) -> None:
    """Checks that packed integers are scaled to their real values, and that the text GROUP/NAME selects a variable in a
    group."""
    pytest.importorskip("h5netcdf")
    xarray = pytest.importorskip("xarray")
    values = np.arange(30.0).reshape(6, 5)
    packed = {"vp": {"dtype": "int16", "scale_factor": 0.5, "add_offset": 3.0, "_FillValue": -1}}
    dataset = xarray.Dataset({"vp": (("time", "z", "x"), values[None]), "crs": 0})
    dataset.to_netcdf(tmp_path / "a.nc", engine="h5netcdf", encoding=packed, group="deep")
    source = make_source(f"{tmp_path}/a.nc:deep/vp", (1, 6, 5))
    assert np.array_equal(collect(source), values[None])


def test_classic_netcdf(tmp_path: Path) -> None:
    """Checks the classic format of NetCDF, which stores neither a checksum nor the length of the file. A truncated file
    must give an error, not zeros."""
    pytest.importorskip("scipy")
    xarray = pytest.importorskip("xarray")
    path = tmp_path / "a.nc"
    xarray.Dataset({"vp": (("z", "y", "x"), VOLUME)}).to_netcdf(path, engine="scipy")
    assert np.array_equal(collect(parse_source(str(path), SHAPE)), VOLUME)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match=r"a\.nc.*cannot be opened"):
        collect(parse_source(str(path), SHAPE))


def test_segy_volumes_sorted_by_crosslines_are_put_in_order(tmp_path: Path) -> None:
    """Checks that the axes of a SEG-Y volume do not depend on the order of the traces in the file."""
    segyio = pytest.importorskip("segyio")
    spec = segyio.spec()
    spec.sorting, spec.format = segyio.TraceSortingFormat.CROSSLINE_SORTING, 5
    spec.samples, spec.ilines, spec.xlines = range(11), range(1, 7), range(1, 6)
    with segyio.create(str(tmp_path / "a.sgy"), spec) as file:
        places = [(iline, xline) for xline in spec.xlines for iline in spec.ilines]
        for number, (iline, xline) in enumerate(places):
            file.header[number] = {189: iline, 193: xline, segyio.TraceField.offset: 1}
            file.trace[number] = VOLUME[:, iline - 1, xline - 1].copy()
    assert np.array_equal(collect(parse_source(str(tmp_path / "a.sgy"), SHAPE)), VOLUME)


def test_segy_with_several_offsets_is_refused(tmp_path: Path) -> None:
    """Checks that a SEG-Y file with several offsets is refused. The traces of such a file are not stacked, so the file
    is not a model."""
    segyio = pytest.importorskip("segyio")
    segyio.tools.from_array4D(str(tmp_path / "a.sgy"), np.ones((3, 4, 2, 8), "f4"))
    with pytest.raises(InputError, match="2 offsets at each place"):
        parse_source(str(tmp_path / "a.sgy"), None)


PEAK_OF = """
import importlib, sys
from outcrop.run.inputs.initial import parse_source
from outcrop.run.inputs.input_array import plane_groups

def peak_kib():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])

for package in sys.argv[2:]:
    importlib.import_module(package)
before = peak_kib()
source = parse_source(sys.argv[1], (384, 256, 256))
for z0, z1 in plane_groups(source.shape, 4, 1 << 20):
    source.planes(z0, z1)
print((peak_kib() - before) << 10)
"""


@pytest.mark.parametrize(
    ("save", "suffix", "packages"),
    [
        (save_npy, "@resample:xyz", []),
        (save_fortran_gz, "", []),
        (save_netcdf, "", ["xarray", "h5netcdf", "h5py"]),
        (save_segy, "", ["segyio"]),
    ],
)
def test_files_are_never_whole_in_memory(
    tmp_path: Path, save: Callable[[Path, np.ndarray], str], suffix: str, packages: list[str]
) -> None:
    """Checks that a reader needs less memory than half the size of its file, for each layout of planes in the file.

    The reader runs in a separate process, and the operating system measures its memory.
    """
    text = save(tmp_path, np.zeros((384, 256, 256), "f4"))
    done = subprocess.run([sys.executable, "-c", PEAK_OF, text + suffix, *packages], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 384 * 256 * 256 * 4 // 2
