"""Check the errors for wrong files. Each error is one line that names the file and, if possible, the variables of the
file or the package to install.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from initial_values import initial_values
from outcrop.errors import InputError
from outcrop.language.library import find_stencil
from outcrop.run.inputs.initial import parse_source
from saves import SECTION, SHAPE, VOLUME, collect, save_netcdf, save_npy, save_npz, save_segy, save_zarr


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
    """Checks that the error for a missing variable names the variables of the file."""
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
    """Checks that a wrong text or file gives one line that says what to do."""
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
    """Checks the error for a package that is not installed. The error gives the command that installs the package."""
    text = save(tmp_path, VOLUME)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=remedy):
        parse_source(text, SHAPE)


def test_without_a_reader_of_hdf5_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks the error if no reader for NetCDF is installed."""
    text = save_netcdf(tmp_path, VOLUME)
    classic = tmp_path / "classic.nc"
    classic.write_bytes(b"CDF\x01" + bytes(28))
    monkeypatch.setattr("outcrop.run.inputs.formats.packages.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'outcrop\[netcdf\]'"):
        parse_source(text, SHAPE)
    with pytest.raises(InputError, match=r"classic NetCDF.*pip install xarray scipy"):
        parse_source(str(classic), SHAPE)


def test_h5netcdf_without_h5py_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks the error for a missing h5py, because newer versions of h5netcdf do not install h5py."""
    text = save_netcdf(tmp_path, VOLUME)

    def refuse(*arguments: object, **options: object) -> None:
        raise ImportError("No module named 'h5py', backend not available.")

    monkeypatch.setattr("xarray.open_dataset", refuse)
    with pytest.raises(InputError, match=r"a\.nc: No module named 'h5py'.*pip install 'outcrop\[netcdf\]'"):
        parse_source(text, SHAPE)


@pytest.mark.parametrize("array", [SECTION, VOLUME[0, 0]], ids=["2-D", "1-D"])
def test_a_file_of_fewer_axes_alone_is_no_grid(tmp_path: Path, array: np.ndarray) -> None:
    """Checks that values with one or two axes are refused for a stencil of three axes if `-n` and `@resample` are not
    given. Such values must not become a grid of one row.
    """
    text, stencil = save_npy(tmp_path, array), find_stencil("heat7")
    size = rf"{array.shape[-1]},?\); heat7.*three axes.*shape=\(nz, ny, nx\), and write FILE@res"
    with pytest.raises(InputError, match=size):
        initial_values([text], None, stencil)
    with pytest.raises(InputError, match=r"a\.npy@resample' needs the size of the grid: give shape=\(nz, ny, nx\)"):
        initial_values([f"{text}@resample"], None, stencil)
    shape, sources = initial_values([f"{text}@resample"], "5 4 11", stencil)
    assert shape == (11, 4, 5)
    assert np.array_equal(collect(sources["u"]), np.broadcast_to(array.reshape(-1, 1, 5), shape))


@pytest.mark.parametrize("name", ["c/0/0/0", "zarr.json"])
@pytest.mark.parametrize(("change", "words"), [("pipe", "is a pipe"), ("huge", "1099511627776 bytes; at most")])
def test_files_of_zarr_are_regular_and_no_larger_than_the_array_says(
    tmp_path: Path, name: str, change: str, words: str
) -> None:
    """Checks that a pipe and a sparse file of 1 TB in a Zarr array are refused. Without the refusal, a reader would
    wait forever or use too much memory.
    """
    text = save_zarr(tmp_path, VOLUME)
    file = Path(text, name)
    if change == "pipe":
        file.unlink()
        os.mkfifo(file)
    else:
        os.truncate(file, 1 << 40)
    with pytest.raises(InputError, match=words):
        collect(parse_source(text, SHAPE))


def test_reversed_axes_are_named(tmp_path: Path) -> None:
    """Checks that the error for an array with reversed axes says to transpose it, and not to interpolate."""
    np.save(tmp_path / "a.npy", np.zeros((4, 5, 6)))
    with pytest.raises(InputError, match=r"shape \(4, 5, 6\), the grid .*; its axes are in the reverse order"):
        parse_source(str(tmp_path / "a.npy"), (6, 5, 4))
    with pytest.raises(InputError, match="to interpolate"):
        parse_source(str(tmp_path / "a.npy"), (6, 5, 5))
