"""Check exports to NetCDF, HDF5, VTK and Zarr: the same bits as in the run, complete files, and refusals without
changes."""

import functools
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray
from hypothesis import given
from hypothesis import strategies as st

import outcrop as oc
from exported import SHAPES, make_run, require_same, values_in
from images import make_image, simulation
from outcrop.cli.main import call
from outcrop.errors import CorruptionError, InputError, StorageError
from outcrop.run.places import open_state
from outcrop.run.ranks.group import RankGroup
from outcrop.run.results.contents import block_indices
from rank_processes import ranks


@pytest.fixture(scope="module")
def known_runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., oc.Simulation]:
    """Return a function that returns a run with a given shape. The function makes each run only once, and several tests
    use the run. So tests must not change the run."""

    @functools.cache
    def known(*shape: int) -> oc.Simulation:
        return make_run(tmp_path_factory.mktemp("runs") / "run.oc", shape)

    return known


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", ["a.nc", "a.h5", "copy.h5", "a.zarr"])
def test_an_export_has_the_same_bits(tmp_path: Path, known_runs: Any, shape: Any, name: str) -> None:
    """Checks that an export has the bits of fields, snapshots and traces. The grids have one to three axes, and rows
    with or without padding.
    """
    if name == "a.zarr":
        pytest.importorskip("zarr")
    sim, target = known_runs(*shape), tmp_path / "new" / name
    is_view = name == "a.h5"
    done = oc.export(sim, target, snapshots="all", traces=True, copy=name == "copy.h5")
    assert (done.is_view, done.format) == (is_view, {"nc": "netcdf", "h5": "hdf5"}.get(name.partition(".")[2], "zarr"))
    require_same(target, sim)
    about = values_in(target, "").attrs
    assert about["parameter_dt"] == 0.001 and about["boundary"] == "fixed"
    assert about.get("step") == (None if is_view else 6)
    assert values_in(target, "snapshots").coords["step"].values.tolist() == [0, 2, 4, 6]
    assert [path.name for path in target.parent.iterdir()] == [name], "no other files remain"


@pytest.mark.parametrize("name", ["a.nc", "a.h5", "a.zarr"])
def test_snapshots_without_a_name_can_follow_named_ones(tmp_path: Path, name: str) -> None:
    """Checks that a group with groups in it can be exported, even if the run names the inner group first."""
    if name == "a.zarr":
        pytest.importorskip("zarr")
    kept = [oc.Snapshots(2, name="side"), oc.Snapshots(5)]
    sim = oc.Simulation("heat2_2d", (6, 7), directory=tmp_path / "run.oc", memory="1MiB", snapshots=kept)
    sim["u"] = "random:1"
    sim.run(10, progress="none")
    oc.export(sim, tmp_path / name, fields=[], snapshots="all")
    for group, key in (("snapshots", "u"), ("snapshots/side", "side/u")):
        np.testing.assert_array_equal(values_in(tmp_path / name, group)["u"], sim.snapshots[key])


def test_a_view_shows_later_steps_and_shards_in_several_directories(tmp_path: Path) -> None:
    """Checks that a view has no values of its own, and that it shows the copy of the last commit after each pass."""
    h5py = pytest.importorskip("h5py")
    shape = (25, 256, 1024)
    sim = oc.Simulation("heat7", shape, directory=[tmp_path / "a", tmp_path / "b"], memory="64MiB")
    sim["u"] = "random:1"
    done = oc.export(sim, tmp_path / "a.h5")
    assert done.is_view and (tmp_path / "a.h5").stat().st_size < 100_000
    for _ in range(2):
        with h5py.File(tmp_path / "a.h5") as file:
            np.testing.assert_array_equal(file["u"][7:19, ::50], sim["u"][7:19, ::50])
            assert "step" not in file.attrs, "the step would be wrong after the next pass"
        sim.run(1, progress="none")


def test_an_object_store_gets_a_group_that_is_complete(tmp_path: Path, known_runs: Any) -> None:
    """Checks that a prefix in an object store becomes a Zarr group only after all arrays are complete. `force` must
    replace only exports."""
    pytest.importorskip("zarr")
    fsspec = pytest.importorskip("fsspec")
    url, sim = f"memory://results{tmp_path}/run", known_runs(5, 6, 7)
    files, root = fsspec.core.url_to_fs(url)
    begun: list[bool] = []

    def stop(done: int, whole: int) -> None:
        begun.append(files.exists(f"{root}/zarr.json"))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        oc.export(sim, url, snapshots="all", traces=True, progress=stop)
    assert begun == [False] and not files.exists(f"{root}/zarr.json") and files.exists(f"{root}/u/zarr.json")
    with pytest.raises(InputError, match="holds an export that was interrupted; give force=True"):
        oc.export(sim, url)
    oc.export(sim, url, snapshots="all", traces=True, force=True)
    require_same(url, sim)
    with pytest.raises(InputError, match="exists; give force=True"):
        oc.export(sim, url)
    oc.export(sim, f"file://{tmp_path}/run.zarr")
    np.testing.assert_array_equal(values_in(tmp_path / "run.zarr", "")["u"].values, sim["u"][...])
    files.pipe_file(f"{root}-other/mine.txt", b"mine")
    with pytest.raises(InputError, match="holds other objects"):
        oc.export(sim, f"{url}-other", force=True)
    assert files.cat_file(f"{root}-other/mine.txt") == b"mine"


def test_a_removal_that_fails_halfway_can_be_repeated(
    tmp_path: Path, known_runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks that `force` removes the metadata of the older group first, and never the mark. An object store can delete
    objects in any order and fail at any object."""
    pytest.importorskip("zarr")
    fsspec = pytest.importorskip("fsspec")
    url, sim = f"memory://removal{tmp_path}/run", known_runs(5, 6, 7)
    files, root = fsspec.core.url_to_fs(url)
    oc.export(sim, url, snapshots="all", traces=True)
    before = files.find(root)
    allowed = 0

    def remove(self: Any, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        nonlocal allowed
        for name in sorted(one for one in self.expand_path(path, recursive=recursive) if self.isfile(one)):
            if not allowed:
                raise OSError("the connection was lost")
            self.rm_file(name)
            allowed -= 1

    monkeypatch.setattr(type(files), "rm", remove)
    for count in (2, len(before) // 2):
        allowed = count
        with pytest.raises(StorageError, match="the connection was lost"):
            oc.export(sim, url, snapshots="all", traces=True, force=True)
        assert files.exists(f"{root}/.outcrop-export") and not files.exists(f"{root}/zarr.json")
        with pytest.raises(InputError, match="holds an export that was interrupted; give force=True"):
            oc.export(sim, url)
    allowed = len(before)
    oc.export(sim, url, snapshots="all", traces=True, force=True)
    require_same(url, sim)
    assert files.find(root) == before


def make_parts(group: RankGroup, where: Path, along: Any) -> None:
    points = [[20.0, 20.0, 20.0], [30.0, 120.0, 40.0]]
    kept = [oc.Snapshots(2, box=(slice(1, 9), slice(3, 12), slice(0, 7))), oc.Snapshots(3, name="side")]
    sim = oc.Simulation(
        "acoustic4", (12, 17, 9), directory=where, memory="4MiB", spacing=10.0, units="m", snapshots=kept, comm=group,
        ranks=along, receivers=[oc.Receivers("line", "u", points)], threads=1,
    )  # fmt: skip
    sim.assign({"u": "random:3", "v": 2000.0})
    sim.run(6, progress="none")


@pytest.mark.parametrize("along", [2, (1, 2)], ids=["y", "z"])
def test_parts_of_several_ranks_are_one_grid(tmp_path: Path, along: Any) -> None:
    """Checks that a view, a copy and the backend of xarray show all parts of a run as one grid, even if they have
    different sizes."""
    where = tmp_path / "parts"
    ranks(2, make_parts, where, along)
    sim = oc.open(where)
    for name in ("a.h5", "a.nc"):
        done = oc.export(where, tmp_path / name, snapshots="all", traces=True)
        assert done.is_view == (name == "a.h5")
        require_same(tmp_path / name, sim)
    data = xarray.open_dataset(where, engine="outcrop")
    np.testing.assert_array_equal(data["u"][::-2, 3:, ::3].values, sim["u"][::-2, 3:, ::3])
    with pytest.raises(InputError, match="part of rank 0 of 2; name the directory of all parts"):
        oc.export(where / "rank-0", tmp_path / "b.nc")


def test_a_run_on_a_device_is_copied(tmp_path: Path, images: None) -> None:
    """Checks that an HDF5 file of a run on a device has its own values. The file cannot be a view: a view reads files
    through the link to the committed copy, and a device has no such link.
    """
    device = make_image(tmp_path / "disk.img")
    sim = simulation([device])
    sim["u"] = "random:1"
    done = oc.export(device, tmp_path / "a.h5")
    assert not done.is_view and "block device" in done.why_copy
    np.testing.assert_array_equal(values_in(tmp_path / "a.h5", "")["u"].values, sim["u"][...])
    data = xarray.open_dataset(device, engine="outcrop")
    np.testing.assert_array_equal(data["u"][20, ::5].values, sim["u"][20, ::5])


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=4).map(tuple), st.integers(0, 2), st.sampled_from([4, 8]),
    st.integers(1, 4000),
)  # fmt: skip
def test_blocks_are_all_cells_in_order(shape: tuple[int, ...], unit_axes: int, itemsize: int, max_bytes: int) -> None:
    """Checks that blocks have each cell once and in C order. A block can be larger than the limit only if it is a
    single unit."""
    unit_axes = min(unit_axes, len(shape))
    cells = np.arange(int(np.prod(shape))).reshape(shape)
    blocks = [cells[index] for index in block_indices(shape, itemsize, unit_axes, max_bytes)]
    found = np.concatenate([one.ravel() for one in blocks]) if blocks else np.empty(0)
    np.testing.assert_array_equal(found, cells.ravel())
    unit = int(np.prod(shape[len(shape) - unit_axes :]))
    assert all(one.size * itemsize <= max_bytes or one.size == unit for one in blocks)


REFUSALS = [
    (["--netcdf", "there.nc"], "there.nc exists; give --force"),
    (["--netcdf", "folder", "--force"], "folder exists and is not a regular file"),
    (["--netcdf", "run.oc/a.nc"], "inside the run"),
    (["--zarr", "run.oc", "--force"], "is the run itself"),
    (["--zarr", "folder", "--force"], "no export has made it"),
    (["--zarr", "there.nc", "--force"], "has the ending of another format"),
    (["--netcdf", "a.nc", "--field", "w"], "no field 'w'; there are: u, u.previous, v"),
    (["--netcdf", "a.nc", "--field", "u", "--no-fields"], "contradict each other"),
    (["--netcdf", "a.nc", "--no-fields"], "nothing to export"),
    (["--netcdf", "a.nc", "--snapshots", "w"], "no snapshots 'w'; there are: u, side/u"),
    (["--netcdf", "a.nc", "--copy"], "copy is for HDF5 files"),
    (["--netcdf", "s3://bucket/a.nc"], "an object store can hold only the format zarr"),
    (["--netcdf", "there.nc/a.nc"], "there.nc is a file"),
    (["--netcdf", "."], "not the name of a file"),
    (["--vtk", "a.vtk"], "needs the ending .vti for fields, .pvd for snapshots, or .vtp for positions"),
    (["--vtk", "a.vtp"], "a .vtp file holds only positions; choose traces for receivers, or sources"),
    (["--vtk", "a.vtp", "--traces", "--norms"], "a .vtp file holds only positions"),
    (["--netcdf", "a.nc", "--norms"], "has no norms; leave them out"),
    (["--netcdf", "a.nc", "--sources"], "has no sources; leave them out"),
    (["--vtk", "a.vti", "--snapshots", "u"], "holds only one time"),
    (["--vtk", "a.vti", "--traces"], "cannot be written to a VTK image; use NetCDF, HDF5 or Zarr, or a .vtp file"),
    (["--vtk", "a.pvd"], "a .pvd file holds snapshots"),
    (["--vtk", "a.pvd", "--snapshots", "all"], "one box of cells"),
    (["--vtk", "a.pvd", "--snapshots", "u", "--field", "u"], "holds only snapshots"),
    (["--netcdf", "-"], "results cannot be written to standard output"),
    (["--netcdf", "~/a.nc"], "the shell has not replaced ~"),
    (["--hdf5", "a.vti"], "a.vti has the ending of another format than hdf5"),
    (["--zarr", "a.nc"], "a.nc has the ending of another format than zarr"),
    (["--zarr", "a.zip"], "Zarr is written to a folder"),
    (["--zarr", "what://bucket/run"], "what://bucket/run: Protocol not known"),
    (["--zarr", "memory://"], "names a whole store; name a prefix"),
    (["--netcdf", "a.nc", "--hdf5", "a.h5"], "exactly one of"),
    ([], "exactly one of"),
]


def test_wrong_arguments_are_one_line_and_make_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that wrong arguments of an export are refused with the right message, and that no file is made or changed.
    """
    pytest.importorskip("zarr")
    monkeypatch.chdir(tmp_path)
    make_run(Path("run.oc"))
    Path("folder").mkdir()
    Path("there.nc").write_text("mine")
    before = sorted(os.listdir())
    for words, message in REFUSALS:
        assert call(["export", "run.oc", *words]) == 2, words
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1, (words, error)
        assert sorted(os.listdir()) == before and Path("there.nc").read_text() == "mine", words
    for run in ("nothing.oc", "there.nc", "s3://bucket/run.oc"):
        assert call(["export", run, "--netcdf", "a.nc"]) == 2
        assert capsys.readouterr().err.count("\n") == 1 and sorted(os.listdir()) == before
    for words, message in [
        ({"format": "grib"}, "format 'grib' is unknown"),
        ({"target": "a.txt"}, "the ending names no format"),
        ({"fields": "u"}, "fields 'u' must be a list of names"),
        ({"fields": [["u"]]}, "fields .* must be a list of names"),
        ({"snapshots": 3}, "snapshots 3 must be a list of names"),
        ({"storage_options": {"key": "1"}}, "options of an object store"),
        ({"target": 3}, "target 3 is not a path"),
    ]:
        with pytest.raises(InputError, match=message):
            oc.export("run.oc", **{"target": "a.nc", **words})
        assert sorted(os.listdir()) == before


def test_fields_of_an_adjoint_run_are_exported_only_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    sim = oc.Simulation("heat7", (6, 6, 6), directory="run.oc", memory="16MiB")
    sim["u"] = np.ones((6, 6, 6))
    _, gradient = sim.gradient(2, oc.Misfit("u", np.zeros((6, 6, 6))), wrt="u", progress="none")
    assert call(["export", "run-adjoint.oc", "--netcdf", "a.nc"]) == 2
    error = capsys.readouterr().err
    assert "its fields are not the gradients" in error and error.count("\n") == 1
    assert not Path("a.nc").exists()
    oc.export("run-adjoint.oc", "a.nc", fields=["u_adj"])
    assert Path("a.nc").exists()
    with pytest.raises(InputError, match="give a directory, a device or a Simulation"):
        oc.export(gradient["u"], "b.nc")  # type: ignore[arg-type]


@pytest.mark.parametrize(("package", "name", "extra"), [
    ("h5netcdf", "a.nc", "netcdf"), ("h5py", "a.h5", "netcdf"), ("fsspec", "s3://bucket/run", "s3"),
    ("s3fs", "s3://bucket/run", "s3"),
])  # fmt: skip
def test_a_missing_package_is_named_with_its_extra(
    tmp_path: Path, known_runs: Any, monkeypatch: pytest.MonkeyPatch, package: str, name: str, extra: str
) -> None:
    """Checks that the error for a missing optional package is one line, which names the pip extra."""
    if extra == "s3":
        pytest.importorskip("zarr")
    sim = known_runs(5, 6, 7)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=rf"pip install 'outcrop\[{extra}\]'"):
        oc.export(sim, name)
    assert not os.listdir()


def test_force_replaces_only_after_the_new_export_is_complete(tmp_path: Path) -> None:
    """Checks that a failed export keeps the older file and leaves no other files, and that damage is found."""
    sim, target = make_run(tmp_path / "run.oc"), tmp_path / "a.nc"
    oc.export(sim, target, fields=["v"])
    before = target.read_bytes()
    state = open_state(tmp_path / "run.oc")
    shard, snapshot = str(state.current_files_of("u")[0]), tmp_path / "run.oc/snapshots.zarr/u/c/1/0/0/0"
    for damaged, more in ((Path(shard), {}), (snapshot, {"fields": ["v"], "snapshots": "u"})):
        right = damaged.read_bytes()
        damaged.write_bytes(bytes([right[0] ^ 1]) + right[1:])
        with pytest.raises(CorruptionError, match=r"plane 0|checksum mismatch"):
            oc.export(sim, target, force=True, **more)
        damaged.write_bytes(right)
        assert target.read_bytes() == before and sorted(os.listdir(tmp_path)) == ["a.nc", "run.oc"]
    oc.export(sim, target, force=True)
    assert "u" in values_in(target, "")
    with pytest.raises(StorageError, match="cannot be written"):
        oc.export(sim, target, force=True, progress=lambda done, whole: os.stat(tmp_path / "missing"))


WAIT = """
import sys, time
import outcrop as oc
def wait(done, whole):
    print("begun", flush=True)
    time.sleep(60)
oc.export("run.oc", sys.argv[1], progress=wait)
"""


def test_a_killed_export_leaves_no_file_under_the_final_name(tmp_path: Path) -> None:
    """Kills an export, and checks that the next export removes the remaining files. A second export does not disturb an
    export that is still running."""
    make_run(tmp_path / "run.oc")
    with subprocess.Popen([sys.executable, "-c", WAIT, "a.nc"], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as one:
        assert one.stdout is not None and one.stdout.readline() == "begun\n"
        with pytest.raises(InputError, match=r"another process writes a\.nc"):
            oc.export(tmp_path / "run.oc", tmp_path / "a.nc")
        one.send_signal(signal.SIGKILL)
        one.wait()
    assert sorted(os.listdir(tmp_path)) == [".a.nc.partial", "run.oc"]
    oc.export(tmp_path / "run.oc", tmp_path / "a.nc")
    assert sorted(os.listdir(tmp_path)) == ["a.nc", "run.oc"]


KILLED = """
import os, signal
import outcrop as oc
rename = os.rename
def killed(source, target, **more):
    if os.path.basename(target) == "a.zarr":
        os.kill(os.getpid(), signal.SIGKILL)
    rename(source, target, **more)
os.rename = killed
oc.export("run.oc", "a.zarr", force=True)
"""


def test_the_older_folder_comes_back_if_it_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks an export that ends while it replaces a folder, when the older folder is already away. After an error or
    Ctrl-C, the older folder is back. After a kill, the next export puts it back."""
    pytest.importorskip("zarr")
    make_run(tmp_path / "run.oc")
    target = tmp_path / "a.zarr"
    oc.export(tmp_path / "run.oc", target, fields=["v"])
    real = os.rename

    def require_older() -> None:
        assert sorted(os.listdir(tmp_path)) == ["a.zarr", "run.oc"] and list(values_in(target, "")) == ["v"]

    for error, expected in ((OSError("no"), StorageError), (KeyboardInterrupt(), KeyboardInterrupt)):

        def fail(source: Any, place: Any, error: BaseException = error) -> None:
            real(source, place)
            if Path(source) == target:
                monkeypatch.undo()
                raise error

        monkeypatch.setattr(os, "rename", fail)
        with pytest.raises(expected):
            oc.export(tmp_path / "run.oc", target, force=True)
        require_older()
    for force in (False, True):
        done = subprocess.run([sys.executable, "-c", KILLED], cwd=tmp_path, check=False)
        assert done.returncode == -signal.SIGKILL and sorted(os.listdir(tmp_path)) == [".a.zarr.partial", "run.oc"]
        if not force:
            with pytest.raises(InputError, match=r"a\.zarr exists; give force=True"):
                oc.export(tmp_path / "run.oc", target)
            require_older()
        else:
            oc.export(tmp_path / "run.oc", target, force=True)
            assert list(values_in(target, "")) == ["u", "v"]


def test_a_run_that_is_being_run_is_not_exported(tmp_path: Path) -> None:
    """Checks that fields cannot be exported while another process computes the run, and that snapshots can be
    exported."""
    make_run(tmp_path / "run.oc")
    with open_state(tmp_path / "run.oc").locked():
        with pytest.raises(InputError, match="in use by another process"):
            oc.export(tmp_path / "run.oc", tmp_path / "a.nc")
        oc.export(tmp_path / "run.oc", tmp_path / "a.nc", fields=[], snapshots="u")
    assert list(values_in(tmp_path / "a.nc", "snapshots")) == ["u"]


def test_memory_does_not_grow_with_the_grid(tmp_path: Path) -> None:
    """Checks that an export needs memory for a few planes, not for the grid of 64 MiB."""
    for name, planes in (("thin.oc", 4), ("thick.oc", 64)):
        sim = oc.Simulation("heat7", (planes, 512, 512), directory=tmp_path / name, memory="16MiB")
        sim["u"] = "zeros"
    program = """
import resource
import outcrop as oc
for name in ("thin.oc", "thick.oc"):
    for target in ("a.nc", "a.vti", "a.h5"):
        oc.export(name, target, copy=target == "a.h5", force=True)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    thin, thick = (int(line) * 1024 for line in done.stdout.split())
    assert thick - thin < 30 << 20


@pytest.mark.parametrize("name", ["a.nc", "a.h5"])
def test_space_for_the_end_of_a_file_is_kept_free(tmp_path: Path, known_runs: Any, name: str) -> None:
    """Checks that an export reserves space for the metadata that HDF5 writes at the end, and gives the space back.
    Without this space, HDF5 would end the process."""
    found = []

    def look(done: int, whole: int) -> None:
        (partial,) = (one for one in tmp_path.iterdir() if one.suffix == ".partial")
        found.append([one.stat().st_size for one in partial.iterdir() if one.name.endswith(".reserve")])

    oc.export(known_runs(5, 6, 7), tmp_path / name, copy=name == "a.h5", progress=look)
    assert found and all(sizes == [1 << 20] for sizes in found)
    assert [one.name for one in tmp_path.iterdir()] == [name]


def test_too_little_space_is_told_before_anything_is_written(
    tmp_path: Path, known_runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks that an export to a full file system is refused before anything is written."""
    sim = known_runs(5, 6, 7)
    real = os.statvfs

    def full(path: Any) -> Any:
        found = list(real(path))
        found[4] = 0
        return os.statvfs_result(found)

    monkeypatch.setattr(os, "statvfs", full)
    with pytest.raises(InputError, match=r"the export needs .* free"):
        oc.export(sim, tmp_path / "a.nc")
    assert not os.listdir(tmp_path)


def test_the_command_says_what_it_has_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks the output of the command, for a view and for a copy. After the run is removed, only the copy can be
    read."""
    monkeypatch.chdir(tmp_path)
    make_run(Path("run.oc"))
    assert call(["export", "run.oc", "--netcdf", "a.nc", "--snapshots", "side", "--traces"]) == 0
    assert re.fullmatch(r"a\.nc: [\d.]+ KiB\n", capsys.readouterr().out)
    assert call(["export", "run.oc", "--hdf5", "a.h5"]) == 0
    assert "a view of run.oc, which must stay where it is" in capsys.readouterr().out
    assert call(["export", "run.oc", "--hdf5", "b.h5", "--copy", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    shutil.rmtree("run.oc")
    h5py = pytest.importorskip("h5py")
    with h5py.File("a.h5") as view, pytest.raises(OSError, match="external"):
        view["u"][0]
    with h5py.File("b.h5") as copy:
        assert copy["u"][0].shape == (6, 7)


def test_every_command_makes_the_missing_directories_of_its_file(known_runs: Any, tmp_path: Path) -> None:
    """Checks that `export` and other commands make the directory of their file. Refused commands make none."""
    run = str(known_runs(5, 6, 7).directory)
    commands: list[list[str]] = [
        ["export", run, "--netcdf", "a.nc"], ["export", run, "--hdf5", "a.h5"], ["export", run, "--vtk", "a.vti"],
        ["export", run, "--zarr", "a.zarr"], ["plot", run, "-o", "a.png"], ["info", run, "--json", "a.json"],
    ]  # fmt: skip
    for number, words in enumerate(commands):
        made = tmp_path / f"new{number}" / "folder" / words[-1]
        assert call([*words[:-1], str(made), "--field", "none"]) == 2
        assert not made.parents[1].exists()
        assert call([*words[:-1], str(made)]) == 0
        assert made.exists()
