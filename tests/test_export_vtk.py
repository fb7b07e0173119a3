"""Check exports to VTK: images of fields and snapshots, and the positions of values by the names of their axes."""

import re
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray

import outcrop as oc
from exported import BOX, SHAPES, make_run
from outcrop.errors import CorruptionError
from outcrop.run.places import open_state
from outcrop.run.results import vtk
from outcrop.run.results.contents import Coordinate, ResultGroup, Variable, block_indices


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


SPACING = {"x": 10.0, "y": 20.0, "z": 40.0}
ORIGIN = {"x": 5.0, "y": 6.0, "z": 7.0}


def devito_run(where: Path, names: str) -> oc.Simulation:
    """Return a run of Devito's equations on a grid whose axes have the order of `names`. It has snapshots of a box, and
    two receivers at different positions along each axis."""
    dv = pytest.importorskip("devito")
    shape = (7, 6, 5)[: len(names)]
    dimensions = [dv.SpaceDimension(name, spacing=dv.Constant(name=f"h_{name}", value=SPACING[name])) for name in names]
    grid = dv.Grid(
        shape=shape, dimensions=tuple(dimensions), origin=tuple(ORIGIN[name] for name in names), dtype=np.float32,
        extent=tuple(SPACING[name] * (n - 1) for name, n in zip(names, shape, strict=True)),
    )  # fmt: skip
    u = dv.TimeFunction(name="u", grid=grid, space_order=2)
    u.data[:] = np.random.default_rng(1).random(u.data.shape)
    places = np.array([[ORIGIN[name] + SPACING[name] * (1.25 + 0.5 * i + point) for i, name in enumerate(names)]
                       for point in range(2)])  # fmt: skip
    rec = dv.SparseTimeFunction(name="rec", grid=grid, npoint=2, nt=8, coordinates=places)
    equations = [dv.Eq(u.forward, u + 0.1 * u.laplace), rec.interpolate(expr=u)]
    kept = oc.Snapshots(2, name="side", box=[slice(1, None)] * len(names))
    sim = oc.Simulation(equations, dt=1.0, directory=where, memory="1MiB", snapshots=[kept])
    sim.run(4, progress="none")
    return sim


def by_name(values: Any, names: str) -> np.ndarray:
    """Return values as an array with the axes z, y and x. Axes that the values do not have get one cell."""
    array = xarray.DataArray(np.asarray(values), dims=list(names))
    return array.expand_dims([one for one in "zyx" if one not in names]).transpose("z", "y", "x").values


@pytest.mark.filterwarnings("ignore")
def test_vtk_itself_places_values_of_devito(tmp_path: Path) -> None:
    """Checks that the package vtk finds the values of Devito's cells at the positions of these cells."""
    vtk = pytest.importorskip("vtk")
    sim = devito_run(tmp_path / "run.oc", "xyz")
    oc.export(sim, tmp_path / "a.vti")
    reader = vtk.vtkXMLImageDataReader()
    reader.SetFileName(str(tmp_path / "a.vti"))
    reader.Update()
    found, values = reader.GetOutput(), sim["u"][...]
    for cell in ((6, 0, 0), (0, 5, 0), (0, 0, 4), (3, 2, 1)):
        place = [ORIGIN[name] + SPACING[name] * number for name, number in zip("xyz", cell, strict=True)]
        assert found.GetPointData().GetArray("u").GetValue(found.FindPoint(place)) == values[cell]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("names", ["xyz", "xy", "xz", "yxz", "x"])
def test_the_axes_of_devito_keep_their_directions(tmp_path: Path, names: str) -> None:
    """Checks that VTK files have the values and positions of a run of Devito along the axes with the right names. The
    order of Devito's axes is not the order of Outcrop's axes."""
    sim = devito_run(tmp_path / "run.oc", names)
    oc.export(sim, tmp_path / "a.vti")
    about, arrays = image(tmp_path / "a.vti")
    np.testing.assert_array_equal(arrays["u"], by_name(sim["u"][...], names))
    for key, values, missing in (("Origin", ORIGIN, 0.0), ("Spacing", SPACING, 1.0)):
        assert [float(one) for one in about[key].split()] == [values[n] if n in names else missing for n in "xyz"]
    oc.export(sim, tmp_path / "movie.pvd", snapshots="side")
    for number in range(3):
        about, arrays = image(tmp_path / f"movie.pvd.images/{number:07d}.vti")
        np.testing.assert_array_equal(arrays["u"], by_name(sim.snapshots["side/u"][number], names))
        wanted = [ORIGIN[n] + SPACING[n] if n in names else 0.0 for n in "xyz"]
        assert [float(one) for one in about["Origin"].split()] == wanted
    oc.export(sim, tmp_path / "a.vtp", traces=True)
    (text,) = re.findall(r'Name="points"[^>]*>([^<]*)<', (tmp_path / "a.vtp").read_text())
    places = np.array(text.split(), float).reshape(2, 3)
    for column, name in enumerate("xyz"):
        at = names.index(name) if name in names else None
        wanted = [0.0, 0.0] if at is None else [ORIGIN[name] + SPACING[name] * (1.25 + 0.5 * at + i) for i in range(2)]
        np.testing.assert_allclose(places[:, column], wanted, rtol=1e-5)
    shard = Path(str(open_state(tmp_path / "run.oc").current_files_of("u")[0]))
    damaged = np.fromfile(shard, np.uint8)
    damaged[::4096] ^= 1  # the first byte of each plane
    shard.write_bytes(damaged.tobytes())
    with pytest.raises(CorruptionError, match="plane"):
        oc.export(sim, tmp_path / "b.vti")


@pytest.mark.parametrize("names", [*map("".join, permutations("zyx")), "yx", "xy", "zx", "xz", "ab", "abc"])
def test_images_are_written_in_small_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: str) -> None:
    """Checks images with all orders of axes. At most 200 bytes are read together, or one plane. Values are read without
    their checksums only after all checksums were tested. Axes with unknown names become x, y and z."""
    monkeypatch.setattr(vtk, "block_indices", lambda *sizes: block_indices(*sizes, 200))
    sizes = (6, 5, 4)[: len(names)]
    values = np.random.default_rng(2).random(sizes, "float32")
    tested, largest = np.zeros(sizes, bool), 0

    def read(index: Any) -> Any:
        nonlocal largest
        tested[index] = True
        largest = max(largest, values[index].nbytes)
        return values[index]

    def sample(index: Any) -> Any:
        assert tested.all() and values[index].nbytes <= 200
        return values[index]

    unit_axes = max(1, len(names) - 1)
    variable = Variable("u", tuple(names), sizes, values.dtype, read, unit_axes, sample=sample)
    along = [Coordinate(name, name, np.arange(n) * 2.0) for name, n in zip(names, sizes, strict=True)]
    done = []
    vtk.write_image(tmp_path / "a.vti", [ResultGroup("", (variable,), tuple(along), {})], done.append)
    _, arrays = image(tmp_path / "a.vti")
    known = names.translate(str.maketrans("abc", "xyz"))
    np.testing.assert_array_equal(arrays["u"], by_name(values, known))
    assert sum(done) == values.nbytes and tested.all() and largest <= 200
