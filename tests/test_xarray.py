"""Check the backend of xarray. It must give the bits of the run, read only necessary values, never mix generations, and
refuse wrong input."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outcrop as oc
from outcrop.errors import CorruptionError, InputError
from outcrop.run.places import open_state

xarray = pytest.importorskip("xarray")

SHAPE = (9, 6, 20)


@pytest.fixture
def run(tmp_path: Path) -> oc.Simulation:
    kept = [oc.Snapshots(2, time_units="s"), oc.Snapshots(3, name="side", box=[slice(1, 5), slice(0, 6), slice(3, 9)])]
    sim = oc.Simulation(
        "acoustic4", SHAPE, directory=tmp_path / "run.oc", memory="4MiB", spacing=(5.0, 10.0, 20.0), units="m",
        snapshots=kept, receivers=[oc.Receivers("line", "u", [[20.0, 30.0, 40.0], [25.0, 30.0, 60.0]])],
        params={"h": 10.0}, threads=1,
    )  # fmt: skip
    sim.assign({"u": np.random.default_rng(1).random(SHAPE, "float32"), "v": 1000.0})
    sim.run(6, progress="none")
    return sim


def opened(run: oc.Simulation, **more: Any) -> Any:
    return xarray.open_dataset(run.directory, engine="outcrop", **more)


def test_a_dataset_has_the_fields_coordinates_and_attributes(run: oc.Simulation) -> None:
    """Compares values of all kinds of indices with NumPy, and checks coordinates and attributes."""
    data, u = opened(run), run["u"][...]
    assert list(data) == ["u", "u.previous", "v"] and data["u"].dims == ("z", "y", "x")
    assert {name: float(data[name][1]) for name in ("z", "y", "x")} == {"z": 5.0, "y": 10.0, "x": 20.0}
    about = {"stencil": "acoustic4", "step": 6, "time": 0.006, "parameter_dt": 0.001, "boundary": "fixed"}
    assert about.items() <= data.attrs.items() and data["z"].attrs["units"] == "m"
    np.testing.assert_array_equal(data["u"].sel(z=20.0).values, u[4])
    for index in (np.s_[4], np.s_[-1, ::2], np.s_[::-3, 5:1:-2, 7], np.s_[2, 3, 4], np.s_[5:5]):
        np.testing.assert_array_equal(data["u"][index].values, u[index])
    np.testing.assert_array_equal(data["u"][[1, 7, 3], [0, 2]].values, u[np.ix_([1, 7, 3], [0, 2])])
    assert list(opened(run, drop_variables=["u", "x"]).variables) == ["u.previous", "v", "z", "y"]
    assert xarray.open_dataset(run.directory)["v"].shape == SHAPE, "xarray finds the backend by itself"


def test_snapshots_and_traces_are_groups(run: oc.Simulation) -> None:
    """Checks that snapshots and traces are groups with the right coordinates. The opened groups must not change when
    the run computes further steps.
    """
    groups = xarray.open_groups(run.directory, engine="outcrop")
    assert list(groups) == ["/", "/snapshots", "/snapshots/side", "/traces"]
    side, traces = opened(run, group="snapshots/side"), opened(run, group="/traces")
    assert side["u"].dims == ("time", "z", "y", "x") and side["step"].values.tolist() == [0, 3, 6]
    assert side["z"].values.tolist() == [5, 10, 15, 20] and side["time"].values[-1] == 0.006
    kept, line = run.snapshots["side/u"][...], run.traces["line"]
    run.run(3, progress="none")
    np.testing.assert_array_equal(side["u"].values, kept)
    np.testing.assert_array_equal(side["u"][-1, ::-1, 2].values, kept[-1, ::-1, 2])
    np.testing.assert_array_equal(traces["line"].values, line)
    np.testing.assert_array_equal(traces["line"][4:0:-2, 1].values, line[4:0:-2, 1])
    assert opened(run, group="traces").sizes == {"step": 9, "line_point": 2}
    for group in ("side", "snapshots/w", "../run.oc"):
        with pytest.raises(InputError, match=r"has no group .*; there are: snapshots, snapshots/side, traces"):
            opened(run, group=group)


def test_only_the_planes_that_are_needed_are_read(run: oc.Simulation) -> None:
    """Damages one plane. Checks that reads of other planes work, and that a read of one cell of the damaged plane
    raises an error.
    """
    state = open_state(run.directory)
    with open(str(state.current_files_of("u")[0]), "r+b") as file:
        file.seek(3 * state.layout.record_bytes)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 1]))
    data = opened(run)
    assert data["u"][4:].values.shape == (5, 6, 20) and data["u"][2, 1].values.shape == (20,)
    with pytest.raises(CorruptionError, match="plane 3"):
        _ = data["u"][3, 0, 0].values


def test_dask_reads_chunks_in_threads_and_other_processes(run: oc.Simulation) -> None:
    """Checks that values are right in chunks of several planes, in reads from several threads, and in a dataset that
    was pickled.
    """
    pytest.importorskip("dask")
    u = run["u"][...]
    data = opened(run, chunks={"z": 4})
    assert data["u"].chunks == ((4, 4, 1), (6,), (20,)) and opened(run, chunks={})["u"].chunks[0] == (1,) * 9
    assert float(data["u"].max()) == float(u.max())
    np.testing.assert_array_equal((data["u"] + data["v"]).values, u + run["v"][...])
    again, plain = pickle.loads(pickle.dumps(data)), opened(run)
    np.testing.assert_array_equal(again["u"].values, u)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda z: plain["u"][z].values, range(9)):
            assert found.tobytes() in {plane.tobytes() for plane in u}


def test_a_dataset_is_of_one_generation(run: oc.Simulation, tmp_path: Path) -> None:
    """Checks that a dataset never mixes values of two steps, and never shows another run in the same directory."""
    data = opened(run)
    run.run(1, progress="none")
    with pytest.raises(InputError, match="another pass was committed; open it again"):
        _ = data["u"][0].values
    data = pickle.dumps(opened(run))
    other = oc.Simulation("acoustic4", SHAPE, directory=tmp_path / "run.oc", memory="4MiB", force=True)
    other.assign({"u": "zeros", "v": 1000.0})
    with pytest.raises(InputError, match="now holds another run"):
        _ = pickle.loads(data)["u"][0].values


def test_names_of_axes_and_missing_runs_are_refused(tmp_path: Path) -> None:
    """Checks that a field with the name of an axis, a directory without a run, and a URL are refused."""
    x = oc.Field("x")
    sim = oc.Simulation(oc.Stencil("names", {x: x[0, 1]}), (4, 5), directory=tmp_path / "run.oc", memory="1MiB")
    sim["x"] = 1.0
    with pytest.raises(InputError, match="x has the name of an axis"):
        opened(sim)
    assert list(opened(sim, drop_variables="x").coords) == ["y"]
    with pytest.raises(InputError, match="x has the name of an axis"):
        oc.export(sim, tmp_path / "a.nc")
    oc.export(sim, tmp_path / "a.vti")
    for path, message in (("nothing.oc", "holds no Outcrop run"), ("s3://bucket/run.oc", "looks like a URL")):
        with pytest.raises(InputError, match=message):
            xarray.open_dataset(path, engine="outcrop")


def test_a_run_without_spacing_has_the_numbers_of_its_cells(tmp_path: Path) -> None:
    """Checks what the documents say about a run without spacing. The backend `outcrop` of xarray shows the numbers of
    the cells as coordinates. Other Zarr programs show no coordinates."""
    sim = oc.Simulation("heat2", (4, 5, 6), directory=tmp_path / "run.oc", memory="1MiB")
    sim["u"] = (u := np.random.default_rng(4).random((4, 5, 6), "float32"))
    data = opened(sim)
    assert data["z"].values.tolist() == [0, 1, 2, 3] and data["x"].values.tolist() == list(range(6))
    np.testing.assert_array_equal(data["u"].sel(z=2).values, u[2])
    pytest.importorskip("zarr", minversion="3")
    plain = xarray.open_zarr(sim.directory)
    assert not plain.coords and plain["u"].dims == ("z", "y", "x")
