"""Protects values from files: each format gives the array that was written, in order, or one line that says why not."""

import gzip
import lzma
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from outcrop.cli.initial_options import initial_values
from outcrop.errors import InputError
from outcrop.language.library import find_stencil
from outcrop.run.axes import grid_shape
from outcrop.run.disk.field import SourceView
from outcrop.run.inputs.initial import checked_planes, make_source, parse_source
from outcrop.run.inputs.source import Source

SHAPE = (11, 6, 5)
VOLUME = np.random.default_rng(3).random(SHAPE).astype("float32")
SECTION = VOLUME[:, 2]


def collect(source: Source, group: int = 3) -> np.ndarray:
    """All planes as a run asks for them, a few at a time, in ascending order."""
    count = grid_shape(source.shape)[0]
    planes = checked_planes(source, "float32", check_finite=True)
    return np.concatenate([planes(z, min(z + group, count)) for z in range(0, count, group)]).reshape(source.shape)


def chunks_of(array: np.ndarray) -> tuple[int, ...]:
    """Chunks that do not divide an axis, of several planes each."""
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


@pytest.mark.parametrize("array", [VOLUME, SECTION, VOLUME[:, 0, 0]], ids=["3-D", "2-D", "1-D"])
@pytest.mark.parametrize("save", SAVES, ids=lambda save: save.__name__)
def test_every_format_gives_back_what_was_written(
    tmp_path: Path, save: Callable[[Path, np.ndarray], str], array: np.ndarray
) -> None:
    """For grids of one to three axes, in groups of any size, also when far less than the file may be kept."""
    text = save(tmp_path, array)
    for group, cache_bytes in [(1, 300), (3, 1 << 20), (11, 1)]:
        source = parse_source(text, array.shape, cache_bytes)
        assert np.array_equal(collect(source, group), array)
        parts = [source.planes(z, min(z + group, 11)) for z in range(0, 11, group)]
        assert np.array_equal(np.concatenate(parts), array), "of one axis cells, a few at a time"


@pytest.mark.parametrize("save", SAVES, ids=lambda save: save.__name__)
def test_a_file_cut_short_is_refused(tmp_path: Path, save: Callable[[Path, np.ndarray], str]) -> None:
    """A file that lost its end never gives values quietly: one line says so, when it is opened or when it is read."""
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
    """The file itself may be whole and yet hold less than its header says."""
    np.save(tmp_path / "a.npy", VOLUME)
    (tmp_path / "a.npy.xz").write_bytes(lzma.compress((tmp_path / "a.npy").read_bytes()[:-4]))
    with pytest.raises(InputError, match=r"a\.npy\.xz is cut short"):
        collect(parse_source(str(tmp_path / "a.npy.xz"), SHAPE))


@pytest.mark.parametrize("save", [save_xz, save_npz])
def test_a_flipped_bit_in_a_compressed_file_is_found(tmp_path: Path, save: Callable[[Path, np.ndarray], str]) -> None:
    """Checksums of the compressed file are compared, the last one too, which comes after the last cell."""
    text = save(tmp_path, VOLUME)
    path = next(tmp_path.iterdir())
    content = bytearray(path.read_bytes())
    place = content.index(b"vp.npy") + 200 if path.suffix == ".npz" else len(content) // 2
    content[place] ^= 0x10
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"a\.np.*(damaged|unpacked|cut short)"):
        collect(parse_source(text, SHAPE))


@pytest.mark.parametrize(
    ("save", "suffix", "words"),
    [
        (save_npz, ":vs", r"a\.npz has no array 'vs'; there are: rho, vp"),
        (save_npz, "", r"name one as .*a\.npz:NAME \(there are: rho, vp\)"),
        (save_netcdf, ":vs", r"a\.nc has no variable 'vs'; there are: rho, vp"),
        (save_netcdf, "", r"name one as .*a\.nc:NAME \(there are: rho, vp\)"),
        (save_netcdf, ":deep/vs", "'deep'"),
        (save_npy, ":vp", "holds one array, leave out :vp"),
    ],
)
def test_a_variable_that_is_not_there_is_refused(
    tmp_path: Path, save: Callable[[Path, np.ndarray], str], suffix: str, words: str
) -> None:
    """The message names the variables that the file has."""
    path = save(tmp_path, VOLUME).partition(".n")[0]
    with pytest.raises(InputError, match=words):
        parse_source(f"{path}.{save.__name__[5:].replace('netcdf', 'nc')}{suffix}", SHAPE)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("raw:a.bin", "write raw:FILE:DTYPE"),
        ("raw:a.bin:float33:4,4", "'float33' is unknown"),
        ("raw:a.bin:complex64:4,4", "only real numbers"),
        ("raw:missing.bin:float32:4,4", "No such file"),
        ("raw:a.bin:float32:4,5", "has 64 bytes, not 80"),
        ("raw:a.bin:float32:4,3", "16 more than"),
        ("raw:a.bin:float32:4,0,4", "at least 1"),
        ("missing.nc:vp", "no such file"),
        ("missing.sgy", "no such file"),
        ("a.bin", "not known; there are FILE.npy"),
        ("a.bin:vp@resample", "not known"),
        ("fake.nc", "not a NetCDF file"),
        ("fake.sgy", "cannot be read as SEG-Y"),
        ("fake.npz", "not an .npz archive"),
        ("fake.npy.xz", "cannot be unpacked"),
        ("fake.npy.gz", "cannot be unpacked"),
    ],
)
def test_texts_that_name_no_array_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    """One line with the remedy, for all that can be wrong with a text and with the file behind it."""
    if ".sgy" in text:
        pytest.importorskip("segyio")
    monkeypatch.chdir(tmp_path)
    Path("a.bin").write_bytes(np.ones((4, 4), "f4").tobytes())
    for name in ("fake.nc", "fake.sgy", "fake.npz", "fake.npy.xz", "fake.npy.gz"):
        Path(name).write_text("these bytes are no array at all")
    with pytest.raises(InputError, match=words) as caught:
        collect(parse_source(text, (4, 4)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("save", "package", "remedy"),
    [
        (save_netcdf, "xarray", r"pip install 'outcrop\[netcdf\]'"),
        (save_segy, "segyio", r"pip install 'outcrop\[segy\]'"),
        (save_zarr, "zarr", "pip install zarr"),
    ],
)
def test_a_package_that_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save: Callable[[Path, np.ndarray], str], package: str, remedy: str
) -> None:
    """With the command that installs it."""
    text = save(tmp_path, VOLUME)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=remedy):
        parse_source(text, SHAPE)


def test_without_a_reader_of_hdf5_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """xarray alone reads neither version of NetCDF."""
    text = save_netcdf(tmp_path, VOLUME)
    classic = tmp_path / "classic.nc"
    classic.write_bytes(b"CDF\x01" + bytes(28))
    monkeypatch.setattr("outcrop.run.inputs.formats.netcdf.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'outcrop\[netcdf\]'"):
        parse_source(text, SHAPE)
    with pytest.raises(InputError, match=r"classic NetCDF.*pip install xarray scipy"):
        parse_source(str(classic), SHAPE)


def test_h5netcdf_without_h5py_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Newer ones of the first do not bring the second along."""
    text = save_netcdf(tmp_path, VOLUME)

    def refuse(*arguments: object, **options: object) -> None:
        raise ImportError("No module named 'h5py', backend not available.")

    monkeypatch.setattr("xarray.open_dataset", refuse)
    with pytest.raises(InputError, match=r"a\.nc: No module named 'h5py'.*pip install 'outcrop\[netcdf\]'"):
        parse_source(text, SHAPE)


def test_netcdf_values_are_scaled_and_groups_are_found(tmp_path: Path) -> None:
    """Packed integers come out as the numbers they stand for, and GROUP/NAME reaches into a group."""
    pytest.importorskip("h5netcdf")
    xarray = pytest.importorskip("xarray")
    values = np.arange(30.0).reshape(6, 5)
    packed = {"vp": {"dtype": "int16", "scale_factor": 0.5, "add_offset": 3.0, "_FillValue": -1}}
    dataset = xarray.Dataset({"vp": (("time", "z", "x"), values[None]), "crs": 0})
    dataset.to_netcdf(tmp_path / "a.nc", engine="h5netcdf", encoding=packed, group="deep")
    source = make_source(f"{tmp_path}/a.nc:deep/vp", (1, 6, 5))
    assert np.array_equal(collect(source), values[None])


def test_classic_netcdf(tmp_path: Path) -> None:
    """Version 3 of the format has no checksum and no length: what was cut off must not become zeros."""
    pytest.importorskip("scipy")
    xarray = pytest.importorskip("xarray")
    path = tmp_path / "a.nc"
    xarray.Dataset({"vp": (("z", "y", "x"), VOLUME)}).to_netcdf(path, engine="scipy")
    assert np.array_equal(collect(parse_source(str(path), SHAPE)), VOLUME)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match=r"a\.nc.*cannot be opened"):
        collect(parse_source(str(path), SHAPE))


def test_segy_volumes_sorted_by_crosslines_are_put_in_order(tmp_path: Path) -> None:
    """The order of traces in the file must not decide which axis they end up on."""
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
    """Traces that are not stacked are no model."""
    segyio = pytest.importorskip("segyio")
    segyio.tools.from_array4D(str(tmp_path / "a.sgy"), np.ones((3, 4, 2, 8), "f4"))
    with pytest.raises(InputError, match="2 offsets at each place"):
        parse_source(str(tmp_path / "a.sgy"), None)


def test_xarray_objects_are_taken_by_the_names_of_their_axes() -> None:
    """z, y and x mean what they say in whatever order they come; other names mean their order."""
    xarray = pytest.importorskip("xarray")
    for dims, order in [(("z", "y", "x"), (0, 1, 2)), (("x", "z", "y"), (2, 0, 1)), (("a", "b", "c"), (0, 1, 2))]:
        array = xarray.DataArray(VOLUME.transpose(order), dims=dims)
        assert np.array_equal(collect(make_source(array, array.shape if dims[0] == "a" else SHAPE, 600)), VOLUME)
    section = xarray.Dataset({"vp": (("x", "z"), SECTION.T)})
    assert np.array_equal(collect(make_source(section, (11, 5))), SECTION)


def test_xarray_objects_that_are_not_one_array_are_refused() -> None:
    """Several variables, too many axes, dates and complex numbers: each named, with the remedy."""
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
    """A chunk is computed once, and no more of them at a time than are asked for."""
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
    """Their sizes are only known when they have been computed."""
    dask_array = pytest.importorskip("dask.array")
    lazy = dask_array.from_array(VOLUME, chunks=4)
    with pytest.raises(InputError, match="at least 1 are needed"):
        make_source(lazy[lazy[:, 0, 0] > 0.5], SHAPE)


def test_functions_on_grids_of_fewer_axes() -> None:
    """Of two axes a function is asked for rows, of one for all cells."""
    for array in (SECTION, VOLUME[0, 0]):
        source = make_source(lambda a, b, array=array: array[a:b], array.shape)
        assert np.array_equal(collect(source), array)


def test_files_of_one_axis_are_viewed_in_every_direction(tmp_path: Path) -> None:
    """All cells are read at once, so what is asked for has to be picked from them."""
    view = SourceView(parse_source(save_npy(tmp_path, VOLUME[:, 0, 0]), None))
    for index in (3, -1, slice(None), slice(9, 2, -3), slice(2, 2), slice(None, None, -1)):
        assert np.array_equal(view[index], VOLUME[:, 0, 0][index])


@pytest.mark.parametrize("array", [SECTION, VOLUME[0, 0]], ids=["2-D", "1-D"])
def test_a_file_of_fewer_axes_alone_is_no_grid(tmp_path: Path, array: np.ndarray) -> None:
    """With neither -n nor @resample a section must not become a grid of one row for a stencil of three axes."""
    text, stencil = save_npy(tmp_path, array), find_stencil("heat7")
    with pytest.raises(InputError, match=rf"{array.shape[-1]},?\); heat7.*three axes.*-n NX NY NZ, and write FILE@res"):
        initial_values([text], None, stencil, 1 << 20)
    with pytest.raises(InputError, match=r"a\.npy@resample needs the size of the grid: give -n NX NY NZ"):
        initial_values([f"{text}@resample"], None, stencil, 1 << 20)
    shape, sources = initial_values([f"{text}@resample"], "5 4 11", stencil, 1 << 20)
    assert shape == (11, 4, 5)
    assert np.array_equal(collect(sources["u"]), np.broadcast_to(array.reshape(-1, 1, 5), shape))


PEAK_OF = """
import importlib, sys
from outcrop.run.inputs.initial import parse_source
from outcrop.run.inputs.source import plane_groups

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
    """By the kernel's count of a process of its own: half of the file at most, whichever way its planes lie."""
    text = save(tmp_path, np.zeros((384, 256, 256), "f4"))
    done = subprocess.run([sys.executable, "-c", PEAK_OF, text + suffix, *packages], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 384 * 256 * 256 * 4 // 2
