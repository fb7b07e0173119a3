"""Check traces, norms and sources in exports and in xarray: the values, the positions of points, and the attributes."""

import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outcrop as oc
from outcrop.cli.main import call
from outcrop.errors import CorruptionError, InputError
from outcrop.units import format_bytes

xarray = pytest.importorskip("xarray")

SHAPE = {3: (9, 12, 14), 2: (12, 14), 1: (30,)}
STEPS = 6


def make_run(where: Path, ndim: int = 3, **more: Any) -> tuple[oc.Simulation, dict[str, np.ndarray]]:
    """Return a run with receivers, sources and norms, and the positions of the points of each set."""
    random = np.random.default_rng(ndim)
    low, high = np.full(ndim, 45.0), 10.0 * np.array(SHAPE[ndim]) - 60
    points = {name: low + (high - low) * random.random((count, ndim)) for name, count in
              (("line", 5), ("early", 2), ("source_0", 3), ("source_1", 1))}  # fmt: skip
    points["line"][0] = 50.0  # a cell
    about: dict[str, Any] = {"spacing": 10.0, "origin": [5.0] * ndim, "units": "m"} | more
    if about["spacing"] is None:
        about = {}
    scale = about.get("spacing", 1.0)
    points = {name: one if about else one / 10 for name, one in points.items()}
    sim = oc.Simulation(
        {3: "acoustic4", 2: "acoustic4_2d", 1: "acoustic4_1d"}[ndim], SHAPE[ndim], directory=where, memory="4MiB",
        threads=1, **about, params={"h": scale} if scale != 1 else None, norms=oc.Norms(every=2),
        sources=[oc.Source("u", points["source_0"], random.random((STEPS, 3))),
                 oc.Source("u", points["source_1"], random.random(4), scale=2)],
        receivers=[oc.Receivers("line", "u", points["line"]), oc.Receivers("early", "v", points["early"], before=True)],
        snapshots=oc.Snapshots(3, time_units="s"), unstable=True,
    )  # fmt: skip
    sim.assign({"u": "gaussian", "v": 2000.0})
    sim.run(STEPS, progress="none")
    return sim, points


def values_in(target: Path, group: str) -> Any:
    if target.suffix == ".oc":
        return xarray.open_dataset(target, engine="outcrop", group=group).load()
    if target.suffix == ".zarr":
        return xarray.open_zarr(target, group=group, chunks=None).load()
    with xarray.open_dataset(target, engine="h5netcdf", group=group, phony_dims="sort") as data:
        return data.load()


@pytest.mark.parametrize("ndim", [3, 2, 1])
@pytest.mark.parametrize("name", ["run.oc", "a.nc", "view.h5", "a.zarr"])
def test_traces_norms_and_sources_have_positions_and_attributes(tmp_path: Path, name: str, ndim: int) -> None:
    """Checks that traces, norms and sources have the right values, coordinates and attributes, in the backend of xarray
    and in exported files.
    """
    if name == "a.zarr":
        pytest.importorskip("zarr")
    sim, points = make_run(tmp_path / "run.oc", ndim)
    if name != "run.oc":
        oc.export(sim, tmp_path / name, traces=True, norms=True, sources=True)
    traces, norms, sources = (values_in(tmp_path / name, group) for group in ("traces", "norms", "sources"))
    for group, names in ((traces, ("line", "early")), (sources, ("source_0", "source_1"))):
        for one in names:
            for axis, title in enumerate("zyx"[-ndim:]):
                found = group[one].coords[f"{one}_{title}"]
                np.testing.assert_allclose(found, points[one][:, axis], rtol=1e-12)
                assert found.attrs["units"] == "m" and one.partition("_")[0] in found.attrs["long_name"]
    np.testing.assert_array_equal(traces["line"], sim.traces["line"])
    np.testing.assert_array_equal(traces["early"], sim.traces["early"])
    assert traces.attrs["featureType"] == "timeSeries"
    assert traces["early"].attrs == {"long_name": "v at the beginning of each step", "field": "v"}
    assert traces["time"].attrs["units"] == "s" and traces["line"].coords["time"].values[-1] == STEPS * 0.001
    assert "line_x" not in traces["early"].encoding.get("coordinates", "")
    for column in ("sum", "squares", "min", "max"):
        np.testing.assert_array_equal(norms[f"u_{column}"], sim.norms["u"][column])
    assert norms["step"].values.tolist() == [0, 2, 4, 6]
    expected = np.random.default_rng(ndim)
    for count in (5, 2, 3, 1):
        expected.random((count, ndim))
    np.testing.assert_array_equal(sources["source_0"], expected.random((STEPS, 3)))
    assert sources["source_1"].shape == (4, 1) and "multiplied by the scale" in sources["source_1"].attrs["long_name"]
    assert sources["source_1"].coords["source_1_step"].values.tolist() == [1, 2, 3, 4]


def test_positions_without_spacing_are_numbers_of_cells(tmp_path: Path) -> None:
    """Checks the positions of points in a run without coordinates. Also checks that a pickled dataset can be read after
    the run has computed further steps.
    """
    sim, points = make_run(tmp_path / "run.oc", spacing=None)
    data = {group: xarray.open_dataset(tmp_path / "run.oc", engine="outcrop", group=group)
            for group in ("traces", "norms", "sources")}  # fmt: skip
    np.testing.assert_allclose(data["traces"]["line_y"], points["line"][:, 1], rtol=1e-12)
    assert "units" not in data["traces"]["line_y"].attrs
    norms = sim.norms["u"]
    sim.run(2, progress="none")
    again = pickle.loads(pickle.dumps(data))
    np.testing.assert_array_equal(again["norms"]["u_max"], norms["max"])
    assert again["sources"]["source_0"][2:4, 0].shape == (2,)


def test_damaged_points_and_sources_are_not_exported(tmp_path: Path) -> None:
    """Checks that an export tests three checksums: of points, of the values of sources, and of norms."""
    make_run(tmp_path / "run.oc")
    wanted = {"receivers-1": "traces", "source-0": "sources", "norms-u": "norms"}
    for name, option in wanted.items():
        path = tmp_path / "run.oc" / ".taps" / name
        right = path.read_bytes()
        path.write_bytes(right[:-9] + bytes([right[-9] ^ 1]) + right[-8:])
        with pytest.raises(CorruptionError, match=f"{name} is damaged"):
            oc.export(tmp_path / "run.oc", tmp_path / "a.nc", fields=[], **{option: True})
        path.write_bytes(right)
    assert not (tmp_path / "a.nc").exists()


@pytest.mark.parametrize(("name", "group"), [("source-1", "sources"), ("receivers-0", "traces")])
def test_damaged_positions_are_not_exported(tmp_path: Path, name: str, group: str) -> None:
    """Checks that the positions of sources and receivers are tested before they are written to a .vtp file, and before
    xarray shows them. The file of points begins with the cells around the points."""
    make_run(tmp_path / "run.oc")
    path = tmp_path / "run.oc" / ".taps" / name
    right = path.read_bytes()
    path.write_bytes(bytes([right[0] ^ 1]) + right[1:])
    with pytest.raises(CorruptionError, match=f"{name} is damaged"):
        oc.export(tmp_path / "run.oc", tmp_path / "a.vtp", **{group: True})
    with pytest.raises(CorruptionError, match=f"{name} is damaged"):
        xarray.open_dataset(tmp_path / "run.oc", engine="outcrop", group=group)
    path.write_bytes(right)
    oc.export(tmp_path / "run.oc", tmp_path / "a.vtp", **{group: True})


def test_vtk_points_have_the_positions_of_all_sets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks a .vtp file against the description of the format, and with the package vtk if it is installed."""
    _, points = make_run(tmp_path / "run.oc")
    target = tmp_path / "a.vtp"
    assert call(["export", str(tmp_path / "run.oc"), "--vtk", str(target), "--traces", "--sources"]) == 0
    text = target.read_text()
    found = {name: np.array(values.split(), float) for name, values in
             re.findall(r'<DataArray [^>]*Name="([^"]*)"[^>]*>([^<]*)<', text)}  # fmt: skip
    places = found["points"].reshape(-1, 3)
    for name, one in points.items():
        np.testing.assert_allclose(places[found[name] >= 0], one[:, ::-1], rtol=1e-12)
        assert found[name][found[name] >= 0].tolist() == list(range(len(one)))
    assert found["offsets"].tolist() == list(range(1, 12)) and 'NumberOfPoints="11"' in text
    with pytest.raises(InputError, match="holds only positions"):
        oc.export(tmp_path / "run.oc", tmp_path / "b.vtp", traces=True, fields=["u"])


def test_vtk_itself_reads_points(tmp_path: Path) -> None:
    """Checks that the package vtk finds all points in a .vtp file."""
    vtk = pytest.importorskip("vtk")
    make_run(tmp_path / "run.oc")
    oc.export(tmp_path / "run.oc", tmp_path / "a.vtp", traces=True)
    reader = vtk.vtkXMLPolyDataReader()
    reader.SetFileName(str(tmp_path / "a.vtp"))
    reader.Update()
    assert reader.GetOutput().GetNumberOfPoints() == 7


def test_sizes_and_folders_of_vtk_files_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that `export` prints the size of a file of positions, and the folder with the images of a collection."""
    make_run(tmp_path / "run.oc")
    points, movie = str(tmp_path / "a.vtp"), str(tmp_path / "a.pvd")
    assert call(["export", str(tmp_path / "run.oc"), "--vtk", points, "--traces"]) == 0
    assert capsys.readouterr().out == f"{points}: {format_bytes(Path(points).stat().st_size)}\n"
    assert call(["export", str(tmp_path / "run.oc"), "--vtk", movie, "--snapshots", "all"]) == 0
    assert f"{movie}, with its images in {movie}.images: " in capsys.readouterr().out
