"""Check that sources, receivers, norms and snapshots give identical results with several ranks and with one process."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import outcrop as oc
from outcrop.cli.main import call
from outcrop.errors import CorruptionError, InputError
from outcrop.run.disk.verify import find_damage
from outcrop.run.places import open_state
from outcrop.run.ranks import gather as gather_module
from outcrop.run.ranks.group import RankGroup
from rank_processes import ranks
from strategies import examples

SHAPE = (14, 50, 18)
RANGES = {"v": (1500, 2500), "eps": (1, 4)}
Results = dict[str, np.ndarray]


class ThreadGroup:
    """A group of ranks, each of which is a thread of this process. `call` runs a function on all ranks. On each rank,
    the function gets the group of this rank."""

    def __init__(self, size: int) -> None:
        self._pool, queues = ThreadPoolExecutor(size), [SimpleQueue[str]() for _ in range(size)]

        def join(rank: int) -> RankGroup:
            def spread(text: str | None) -> str:
                if text is None:
                    return queues[rank].get(timeout=60)
                for queue in queues[1:]:
                    queue.put(text)
                return text

            return RankGroup(rank, size, spread)

        self.groups = list(self._pool.map(join, range(size)))

    def call(self, function: Callable[..., Any], *given: Any) -> list[Any]:
        return list(self._pool.map(lambda group: function(group, *given), self.groups))

    def close(self) -> None:
        list(self._pool.map(RankGroup.close, self.groups))
        self._pool.shutdown()


@pytest.fixture(scope="module")
def groups() -> Iterator[Callable[[int], ThreadGroup]]:
    made: dict[int, ThreadGroup] = {}

    def of(size: int) -> ThreadGroup:
        if size not in made:
            made[size] = ThreadGroup(size)
        return made[size]

    yield of
    for one in made.values():
        one.close()


def results_of(sim: oc.Simulation) -> Results:
    """Return the fields, traces, norms and snapshots of a run for the whole grid."""
    found = {f"array {entry.name}": sim[entry.name][:] for entry in sim.setup.description.arrays}
    found |= {f"trace {name}": sim.traces[name] for name in sim.traces}
    found |= {f"norms {name}": sim.norms[name] for name in sim.norms}
    return found | {f"snapshots {name}": np.array(view[:]) for name, view in sim.snapshots.items()}


def computes(group: RankGroup | None, where: Path, stencil: str, options: dict[str, Any], steps: list[int]) -> Results:
    """Begin a run with random values of all fields. Call `run` once for each number in `steps`."""
    sim = oc.Simulation(stencil, SHAPE, directory=where, comm=group, memory="8MiB", threads=1, **options)
    for number, entry in enumerate(sim.setup.description.arrays):
        if not entry.is_previous:
            low, high = RANGES.get(entry.name, (0, 1))
            sim[entry.name] = low + (high - low) * np.random.default_rng(number).random(SHAPE, "float32")
    for count in steps:
        sim.run(count, progress="none")
    return results_of(sim)


def require_same(ranks: list[Results], whole: Results) -> None:
    """Check that the results of all ranks are identical to `whole`, the results of one process."""
    for one in ranks:
        for name, expected in whole.items():
            assert one[name].tobytes() == expected.tobytes(), name


def acquisition(seed: int, rows: list[float], field: str, steps: int, more: dict[str, Any] | None = None) -> Any:
    """Return options for sources and receivers at points in `rows`. The sources have values for fewer steps than the
    run has."""
    random, (nz, _, nx) = np.random.default_rng(seed), SHAPE
    points = [(random.uniform(4, nz - 5), y, random.uniform(4, nx - 5)) for y in rows]
    everywhere = [(z, y, x) for z in (0, 3.25, nz - 1) for y in (*rows, 0, SHAPE[1] - 1) for x in (0, 7, 9.5)]
    inside = [one for one in points if 4 <= one[1] <= SHAPE[1] - 6] or [(6, 20, 8)]
    values = random.standard_normal((steps - 2, len(inside)))
    changed = "u" if field == "v" else field
    return {
        "sources": [oc.Source(changed, inside, values, **(more or {})), oc.Source(changed, inside[:1], values[:, 0])],
        "receivers": [oc.Receivers("line", field, points), oc.Receivers("all", field, everywhere),
                      oc.Receivers("early", field, everywhere[::3], before=True)],
        "norms": oc.Norms(every=2, initial=True),
        "snapshots": [oc.Snapshots(every=3, initial=True),
                      oc.Snapshots(every=4, name="side", box=np.s_[2:9, 11:39, 3:17]),
                      oc.Snapshots(every=4, name="small", box=np.s_[:, 20:24, 4:5])],
    }  # fmt: skip


def coarse(draw: st.DrawFn | Callable[..., Any], parts: int) -> list[oc.Snapshots]:
    """Return coarse snapshots of the whole grid and of a box that begins anywhere. Groups can be as large as a part, so
    a cut into equal parts would divide most groups."""
    rows = draw(st.integers(2, SHAPE[1] // (parts + 1)))
    first, cells = draw(st.integers(0, 9)), draw(st.integers(1, 3))
    return [oc.Snapshots(every=2, coarsen=(draw(st.integers(1, 3)), rows, draw(st.integers(1, 20))), name="coarse"),
            oc.Snapshots(3, box=np.s_[3:13, :, first : first + 8], coarsen=(1, 1, cells), name="thin")]  # fmt: skip


CASES = [
    ("heat7", "u", {"boundary": "mirror"}),
    ("heat7", "u", {"boundary": "periodic"}),
    ("acoustic4", "u", {"boundary": "y=periodic"}),
    ("acoustic4", "u", {}),
    ("maxwell", "ex", {"boundary": "y=mirror,z=periodic", "dtype": "float64"}),
    ("maxwell", "hy", {"boundary": "y=periodic"}),
    ("acoustic4", "v", {"boundary": "mirror"}),
]


@settings(max_examples=examples(3), deadline=None)
@given(st.data())
def test_ranks_record_what_one_process_records(groups: Callable[[int], ThreadGroup], data: st.DataObject) -> None:
    """Checks points in random rows and near the cuts, for deep halos and split tiling, with real executors."""
    stencil, field, options = data.draw(st.sampled_from(CASES))
    size, scheme = data.draw(st.integers(2, 4)), data.draw(st.sampled_from(["wavefront", "naive", "split"]))
    cuts = [rank * -(-SHAPE[1] // size) for rank in range(1, size)]
    near = st.builds(lambda cut, offset: cut + offset / 4, st.sampled_from(cuts), st.integers(-16, 16))
    rows = data.draw(st.lists(near | st.floats(4, SHAPE[1] - 6), min_size=1, max_size=6))
    steps = data.draw(st.sampled_from([[7], [4, 5]]))
    bt = data.draw(st.integers(1, 3))
    options = options | acquisition(data.draw(st.integers(0, 99)), rows, field, sum(steps))
    options["snapshots"] += coarse(data.draw, size)
    sizes = {} if scheme == "naive" else {"sizes": {"bt": 1 if stencil == "maxwell" else bt}}
    with tempfile.TemporaryDirectory() as folder:
        expected = computes(None, Path(folder, "alone.oc"), stencil, options, steps)
        given = {**options, "scheme": scheme, **sizes}
        require_same(groups(size).call(computes, Path(folder, "parts"), stencil, given, steps), expected)


@settings(max_examples=examples(3), deadline=None)
@given(st.data())
def test_ranks_with_parts_along_z_record_what_one_process_records(
    groups: Callable[[int], ThreadGroup], data: st.DataObject
) -> None:
    """Checks points in random rows and planes, points near the cuts, and points where a cut along y crosses a cut along
    z."""
    stencil, field, options = data.draw(st.sampled_from(CASES))
    size, parts, bt = data.draw(st.sampled_from([(2, (1, 2), 2), (3, (1, 3), 1), (4, (2, 2), 2), (4, (2, 2), 1)]))
    steps = data.draw(st.sampled_from([[7], [4, 5]]))
    near = st.builds(lambda cut, offset: cut + offset / 4, st.sampled_from([10, 25, 26]), st.integers(-16, 16))
    rows = data.draw(st.lists(near | st.floats(4, SHAPE[1] - 6), min_size=1, max_size=6))
    more = {"scale": oc.Field("v")[0, 0, 0]} if stencil == "acoustic4" else {}
    options = options | acquisition(data.draw(st.integers(0, 99)), rows, field, sum(steps), more)
    options["snapshots"] += coarse(data.draw, parts[0])
    options |= {"sizes": {"bt": 1 if stencil == "maxwell" else bt}, "ranks": parts, "boundary": "mirror"}
    with tempfile.TemporaryDirectory() as folder:
        where, whole = Path(folder, "parts"), Path(folder, "whole.oc")
        expected = computes(None, Path(folder, "alone.oc"), stencil, options | {"ranks": 1}, steps)
        require_same(groups(size).call(computes, where, stencil, options, steps), expected)
        gather_module.gather([where], whole)
        require_same([results_of(oc.open(where)), results_of(oc.open(whole))], expected)


def scaled(seed: int, steps: int) -> dict[str, Any]:
    """Return options with a source. The scale of the source depends on a static field that other ranks store."""
    v, dt = oc.Field("v"), oc.Parameter("dt", 0.0)
    near = [offset + SHAPE[1] * rank / 8 for rank in range(1, 8) for offset in (-1, -0.5, 0.25)]
    return acquisition(seed, near, "u", steps, {"scale": dt**2 * v[0, 0, 0] ** 2})


@pytest.mark.parametrize(("size", "scheme", "bt"), [(8, "wavefront", 1), (3, "split", 2)])
def test_gathered_parts_have_the_records_of_one_process(
    groups: Callable[[int], ThreadGroup], tmp_path: Path, size: int, scheme: str, bt: int
) -> None:
    """Checks all files of a gathered run. The gathered run and the parts must both be able to continue."""
    alone, parts, whole = tmp_path / "alone.oc", tmp_path / "parts", tmp_path / "whole.oc"
    options = {**scaled(3, 9), "sizes": {"bt": bt}, "boundary": "periodic"}
    expected = computes(None, alone, "acoustic8", options, [6])
    found = groups(size).call(computes, parts, "acoustic8", {**options, "scheme": scheme}, [6])
    require_same([*found, results_of(oc.open(parts))], expected)
    require_sound(parts, size)
    require_same_groups(alone, parts)
    gather_module.gather([parts], whole)
    findings = find_damage(open_state(whole))
    assert not findings.damage and not findings.untidy
    for name in sorted(one.relative_to(alone) for one in (alone / "snapshots.zarr").rglob("*") if one.is_file()):
        assert (whole / name).read_bytes() == (alone / name).read_bytes(), name
    one, other = oc.open(alone), oc.open(whole)
    for sim in (one, other):
        sim.run(3, progress="none")
    require_same([results_of(other)], results_of(one))
    require_same(groups(size).call(goes_on, parts), results_of(one))


def require_same_groups(alone: Path, parts: Path) -> None:
    """Check that xarray finds the same records and positions of points in the parts as in the run of one process."""
    if find_spec("xarray"):
        import xarray

        for group in ("traces", "norms", "sources"):
            one, other = (xarray.open_dataset(path, engine="outcrop", group=group) for path in (alone, parts))
            assert one.identical(other) and len(one), group


def goes_on(group: RankGroup, where: Path) -> Results:
    """Run three more steps."""
    sim = oc.open(where, comm=group)
    sim.run(3, progress="none")
    return results_of(sim)


def require_sound(parts: Path, size: int) -> None:
    """Check that the files of all parts are undamaged. The coordinates of the snapshots in all parts together must
    contain each row of the grid once.
    """
    found = []
    for rank in range(size):
        state = open_state(parts / f"rank-{rank}")
        findings = find_damage(state)
        assert not findings.damage and not findings.untidy
        found.append(np.frombuffer((state.path / "snapshots.zarr" / "y" / "c" / "0").read_bytes()))
    np.testing.assert_array_equal(np.concatenate(found), np.arange(SHAPE[1]))


@pytest.mark.parametrize(("size", "parts"), [(3, "auto"), (4, (2, 2))], ids=str)
def test_coarse_snapshots_of_parts_are_read_as_a_whole(
    groups: Callable[[int], ThreadGroup], tmp_path: Path, size: int, parts: Any
) -> None:
    """Checks all ways to read coarse snapshots: cell by cell, through the Zarr group of all parts, through an HDF5
    view, from a NetCDF file, with the backend of xarray, and from a gathered run. In this test, cuts into equal parts
    would divide groups of cells."""
    xarray = pytest.importorskip("xarray")
    kept = [oc.Snapshots(2, coarsen=(3, 8, 5), name="coarse"),
            oc.Snapshots(3, box=np.s_[3:13, 10:45, 2:17], coarsen=(2, 2, 1), name="box")]  # fmt: skip
    if parts != "auto":
        kept[1] = oc.Snapshots(3, box=np.s_[3:13, 10:45, 2:17], coarsen=(3, 2, 1), name="box")
    alone, where, whole = tmp_path / "alone.oc", tmp_path / "parts", tmp_path / "whole.oc"
    options = {"snapshots": kept, "sizes": {"bt": 2}}
    expected = computes(None, alone, "heat7", options, [4, 3])
    found = groups(size).call(computes, where, "heat7", {**options, "ranks": parts}, [4, 3])
    sim = oc.open(where)
    require_same([*found, results_of(sim)], expected)
    for index in (np.s_[1, 2], np.s_[-1, ::-2, 5:1:-1, 2], np.s_[:, 1:4, 3:, -1], np.s_[0, -1, -1, -1]):
        np.testing.assert_array_equal(sim.snapshots["coarse/u"][index], expected["snapshots coarse/u"][index])
    oc.export(sim, tmp_path / "a.nc", snapshots="all")
    oc.export(sim, tmp_path / "a.h5", snapshots="all")
    targets = [(tmp_path / "a.nc", "h5netcdf"), (tmp_path / "a.h5", "h5netcdf"), (where, "outcrop")]
    for target, engine in targets:
        for name in ("coarse", "box"):
            with xarray.open_dataset(target, engine=engine, group=f"snapshots/{name}") as data:
                np.testing.assert_array_equal(data["u"], expected[f"snapshots {name}/u"])
                with xarray.open_dataset(alone, engine="outcrop", group=f"snapshots/{name}") as same:
                    assert all(data[axis].equals(same[axis]) for axis in ("z", "y", "x", "step"))
    gather_module.gather([where], whole)
    require_same([results_of(oc.open(whole))], expected)
    for path in (where, whole):
        assert call(["verify", str(path)]) == 0


@pytest.mark.skipif(not find_spec("zarr"), reason="needs zarr")
def test_coarse_snapshots_of_equal_parts_are_one_zarr_array(
    groups: Callable[[int], ThreadGroup], tmp_path: Path
) -> None:
    """Checks parts whose cuts lie between groups of cells. The parts have equal numbers of values, so Zarr can read the
    values of all parts as one array."""
    import xarray

    expected = computes(None, tmp_path / "alone.oc", "heat7", {"snapshots": oc.Snapshots(2, coarsen=(2, 5, 4))}, [4])
    groups(2).call(computes, tmp_path / "parts", "heat7", {"snapshots": oc.Snapshots(2, coarsen=(2, 5, 4))}, [4])
    with xarray.open_zarr(tmp_path / "parts" / "snapshots.zarr", chunks=None) as data:
        np.testing.assert_array_equal(data["u"], expected["snapshots u"])
        assert data["y"].values[-1] == 47.0


def fills(group: RankGroup | None, where: Path, rows: int) -> Results:
    """Begin a run whose first rows have numbers. All other rows have NaN."""
    sim = oc.Simulation("heat7", SHAPE, directory=where, comm=group, memory="8MiB", threads=1, norms=oc.Norms(1))
    values = np.full(SHAPE, np.nan, "float32")
    values[:, :rows] = 2
    sim["u"] = values
    sim.run(1, progress="none")
    return results_of(sim)


def steps_on(group: RankGroup | None, where: Path) -> Results:
    sim = oc.open(where, comm=group)
    sim.run(1, progress="none")
    return results_of(sim)


@pytest.mark.parametrize("rows", [0, 5])
def test_norms_of_nan_are_nan(
    rows: int, groups: Callable[[int], ThreadGroup], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks the norms if all values are NaN, and if only the first part has other values. The rows of norms also move
    between runs of several ranks and of one process."""
    alone, parts = tmp_path / "alone.oc", tmp_path / "parts"
    whole = fills(None, alone, rows)
    first = whole["norms u"][0]
    assert np.isnan([first["sum"], first["squares"]]).all()
    np.testing.assert_array_equal([first["min"], first["max"]], [2, 2] if rows else [np.nan, np.nan])
    require_same(groups(3).call(fills, parts, rows), whole)
    assert call(["watch", str(parts), "--once"]) == 0
    text = capsys.readouterr().out
    assert "L2 nan" in text and ("min nan, max nan" in text or rows)
    whole = steps_on(None, alone)
    require_same([steps_on(None, parts)], whole)  # one process gets the rows of the parts
    require_same(groups(3).call(steps_on, parts), steps_on(None, alone))  # three ranks get the rows of one process


def refuses(group: RankGroup, where: Path, coarsen: Any) -> str:
    with pytest.raises(InputError) as raised:
        oc.Simulation("heat7", SHAPE, directory=where, comm=group, memory="8MiB", snapshots=coarsen)
    return str(raised.value)


def test_groups_of_cells_that_leave_no_cut_are_refused(groups: Callable[[int], ThreadGroup], tmp_path: Path) -> None:
    """Checks that all ranks refuse two kinds of snapshots: snapshots whose groups of cells are larger than a part, and
    boxes whose groups leave no place for a cut."""
    both = [oc.Snapshots(2, coarsen=(1, 2, 1)), oc.Snapshots(2, box=np.s_[:, 1:49, :], coarsen=(1, 2, 1), name="odd")]
    for kept, cells in ((oc.Snapshots(2, coarsen=(1, 50, 1)), 50), (both, 2)):
        for text in groups(2).call(refuses, tmp_path / "parts", kept):
            assert f"no part ends inside a group of {cells} of a coarse snapshot" in text
    assert not (tmp_path / "parts").exists()


def test_damaged_records_of_a_part_are_noticed(groups: Callable[[int], ThreadGroup], tmp_path: Path) -> None:
    """Damages a trace of one part. Checks that no rank continues the run, and that `gather` refuses this part."""
    parts = tmp_path / "parts"
    groups(2).call(computes, parts, "heat7", acquisition(1, [20, 30], "u", 4), [4])
    with open(parts / "rank-1" / ".taps" / "trace-line", "r+b") as file:
        file.write(b"damaged")
    found = ranks(2, goes_on, parts)
    assert all("trace-line is damaged" in one[1] for one in found), found
    with pytest.raises(CorruptionError, match="trace-line is damaged"):
        gather_module.gather([parts], tmp_path / "whole.oc")
    assert not (tmp_path / "whole.oc").exists()
