"""Check exports to VTK: images of fields and snapshots."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray

import outcrop as oc
from exported import BOX, SHAPES, make_run


def image(path: Path) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Return the attributes and the arrays of a VTK image, read as the format describes it."""
    content = path.read_bytes()
    start = content.index(b"_", content.index(b"<AppendedData")) + 1
    head = content[:start].decode()
    (about,) = re.findall(r"<ImageData ([^>]*)>", head)
    found = dict(re.findall(r'(\w+)="([^"]*)"', about))
    extent = [int(one) for one in found["WholeExtent"].split()]
    shape = [extent[2 * axis + 1] - extent[2 * axis] + 1 for axis in (2, 1, 0)]
    arrays = {}
    array = re.compile(r'<DataArray type="(\w+)" Name="([^"]*)" format="appended" offset="(\d+)"')
    for kind, name, offset in array.findall(head):
        begin = start + int(offset)
        size = int(np.frombuffer(content, "<u8", 1, begin)[0])
        dtype = np.dtype({"Float32": "<f4", "Float64": "<f8"}[kind])
        arrays[name] = np.frombuffer(content, dtype, size // dtype.itemsize, begin + 8).reshape(shape)
    return found, arrays


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_vtk_images_have_the_same_bits(tmp_path: Path, shape: Any) -> None:
    """Checks the images of fields and of snapshots against the description of the format."""
    sim = make_run(tmp_path / "run.oc", shape)
    oc.export(sim, tmp_path / "a.vti")
    about, arrays = image(tmp_path / "a.vti")
    assert about["Spacing"].split()[: len(shape)] == ["10.0"] * len(shape)
    assert list(arrays) == ["u", "v"]
    for name, values in arrays.items():
        np.testing.assert_array_equal(values.reshape(shape), sim[name][...])
    oc.export(sim, tmp_path / "movie.pvd", snapshots="side")
    named = re.findall(r'timestep="([^"]*)" part="0" file="([^"]*)"', (tmp_path / "movie.pvd").read_text())
    assert [time for time, _ in named] == ["0.003", "0.006"]
    for number, (_, file) in enumerate(named):
        about, arrays = image(tmp_path / file)
        kept = sim.snapshots["side/u"][number]
        np.testing.assert_array_equal(arrays["u"].reshape(kept.shape), kept)
        assert float(about["Origin"].split()[0]) == 10.0 * BOX[len(shape)][-1].start


def test_coarse_snapshots_keep_their_coordinates(tmp_path: Path) -> None:
    """Checks the backend of xarray, a NetCDF file and VTK images of coarse snapshots. The last group of cells along an
    axis is smaller than the others, but a VTK image has equal distances between values."""
    kept = oc.Snapshots(2, ["u"], coarsen=4, name="small")
    where = tmp_path / "run.oc"
    sim = oc.Simulation("heat7", (10, 9, 11), directory=where, memory="1MiB", spacing=10.0, snapshots=[kept])
    sim.assign({"u": "random:1"})
    sim.run(4, progress="none")
    values = np.asarray(sim.snapshots["small/u"])
    oc.export(sim, tmp_path / "a.nc", snapshots="all")
    for found in (
        xarray.open_dataset(where, engine="outcrop", group="snapshots/small"),
        xarray.open_dataset(tmp_path / "a.nc", group="snapshots/small"),
    ):
        np.testing.assert_array_equal(found["u"], values)
        np.testing.assert_array_equal(found["z"], [15.0, 55.0, 85.0])
        found.close()
    oc.export(sim, tmp_path / "movie.pvd", snapshots="small")
    first, *_ = re.findall(r'file="([^"]*)"', (tmp_path / "movie.pvd").read_text())
    about, arrays = image(tmp_path / first)
    np.testing.assert_array_equal(arrays["u"].reshape(values[0].shape), values[0])
    assert (about["Origin"], about["Spacing"]) == ("15.0 15.0 15.0", "40.0 40.0 40.0")


def test_vtk_itself_reads_an_image(tmp_path: Path) -> None:
    """Checks that the package vtk, which ParaView uses, reads the values of an image correctly."""
    vtk = pytest.importorskip("vtk")
    from vtk.util.numpy_support import vtk_to_numpy

    sim = make_run(tmp_path / "run.oc")
    oc.export(sim, tmp_path / "a.vti")
    reader = vtk.vtkXMLImageDataReader()
    reader.SetFileName(str(tmp_path / "a.vti"))
    reader.Update()
    found = reader.GetOutput()
    assert found.GetDimensions() == (7, 6, 5)
    np.testing.assert_array_equal(vtk_to_numpy(found.GetPointData().GetArray("u")).reshape(5, 6, 7), sim["u"][...])
