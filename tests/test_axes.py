"""Check grids of one and two axes, boundaries by axis, and coordinates. A run stores and shows boundaries and
coordinates in the user's form.
"""

import os
from pathlib import Path

import numpy as np
import pytest
import xarray
import zarr

import outcrop as oc
from outcrop.axes import grid_shape
from outcrop.cli.main import call
from outcrop.cli.options import join_sizes, parse_size
from outcrop.errors import BudgetError, InputError
from outcrop.language.boundary import Boundary, as_boundary, boundary_on_grid, boundary_text
from outcrop.language.library import find_stencil
from outcrop.run.disk.verify import find_damage
from outcrop.run.inputs.initial import make_source, parse_source, scan_finite
from outcrop.run.places import open_state, storage_at
from outcrop.run.user_values import Coordinates

SHAPES = [(7,), (1,), (300,), (7, 9), (1, 1), (40, 33), (5, 4, 3)]
OWN = {1: ("x",), 2: ("y", "x"), 3: ("z", "y", "x")}


def halve(ndim: int) -> oc.Stencil:
    u = oc.Field("u")
    return oc.Stencil(f"halve{ndim}", {u: u[(0,) * ndim] / 2})


def make_run(where: Path, shape: tuple[int, ...], values: object, **options: object) -> oc.Simulation:
    simulation = oc.Simulation(halve(len(shape)), shape, directory=where, memory="1MiB", threads=1, **options)  # type: ignore[arg-type]
    simulation["u"] = values
    return simulation


def random_values(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(4).random(shape, dtype="float32")


@pytest.mark.parametrize("shape", SHAPES)
def test_zarr_xarray_and_outcrop_show_the_stencil_s_own_axes(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """Checks that programs that read a result see only the axes of the stencil, and no internal axes or padding."""
    values, where = random_values(shape), tmp_path / "run.oc"
    simulation = make_run(where, shape, values)
    assert simulation.shape == shape and oc.open(where).shape == shape
    dataset = xarray.open_zarr(str(where), chunks=None)
    assert dataset["u"].dims == OWN[len(shape)]
    array = zarr.open_array(str(where / "u"), mode="r")
    for found in (dataset["u"].values, array[...], simulation["u"][...], np.asarray(oc.open(where)["u"])):
        assert found.dtype == np.float32 and np.array_equal(found, values)
    assert find_damage(open_state(where)).damage == []


@pytest.mark.parametrize("shape", [(40,), (13, 17)])
def test_indexing_is_numpy_s_on_fewer_axes(tmp_path: Path, shape: tuple[int, ...]) -> None:
    values = random_values(shape)
    view = make_run(tmp_path / "run.oc", shape, values)["u"]
    some = [0, -1, ..., slice(None), slice(3, 9), slice(None, None, -3), slice(12, 2, -4), slice(9, 3)]
    both = (
        [(4, 5), (slice(2, 4), 3), (..., 2), (2, ...), (slice(None), slice(None, None, -2))] if len(shape) == 2 else []
    )
    for index in [*some, *both]:
        assert np.array_equal(view[index], values[index]), index
        assert np.shape(view[index]) == np.shape(values[index]), index
    assert len(view) == shape[0] and view.ndim == len(shape)
    for wrong in (shape[0], (0,) * (len(shape) + 1), "x", [1]):
        with pytest.raises(IndexError):
            view[wrong]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(30,), (13, 17)])
def test_every_kind_of_values_has_the_grid_s_axes(tmp_path: Path, shape: tuple[int, ...], order: str) -> None:
    values = np.asarray(random_values(shape), order=order)  # type: ignore[call-overload]
    np.save(tmp_path / "a.npy", values)
    zarr.create_array(tmp_path / "a.zarr", data=values, chunks=(4,) * len(shape))
    for number, source in enumerate(
        [
            values,
            values.tolist(),
            lambda a, b: values[a:b],
            str(tmp_path / "a.npy"),
            str(tmp_path / "a.zarr"),
            oc.resample(values, shape),
        ]
    ):
        simulation = make_run(tmp_path / f"{number}.oc", shape, source)
        assert np.array_equal(simulation["u"][...], values), number
    again = make_run(tmp_path / "again.oc", shape, tmp_path / "0.oc")
    assert np.array_equal(again["u"][...], values), "a run can start from the result of another"


@pytest.mark.parametrize("text", ["zeros", "gaussian", "random:7"])
@pytest.mark.parametrize("shape", [(30,), (13, 17), (5, 6, 7)])
def test_built_in_values_exist_on_all_grids(text: str, shape: tuple[int, ...]) -> None:
    source = parse_source(text, shape)
    whole = source.planes(0, shape[0])
    assert whole.shape == shape and (text == "zeros") == (not whole.any())
    assert np.array_equal(source.planes(2, 4), whole[2:4])
    if text == "gaussian":
        peak = np.unravel_index(whole.argmax(), shape)
        assert all(abs(2 * at - (n - 1)) <= 1 for at, n in zip(peak, shape, strict=True)), "the bump is in the middle"


def test_values_of_other_axes_are_refused_with_both_named(tmp_path: Path) -> None:
    flat = random_values((6, 5))
    with pytest.raises(InputError, match=r"shape \(6, 5\), the grid \(6, 5, 4\) has three axes \(nz, ny, nx\)"):
        make_source(flat, (6, 5, 4))
    with pytest.raises(InputError, match=r"shape \(6, 5\), the grid is \(5, 6\) \(ny, nx\); its axes are in the rev"):
        make_source(flat, (5, 6))
    for shape, words in ((5, 4, 6), "planes 0 to 4"), ((5, 6), "rows 0 to 4"), ((6,), "cells 0 to 5"):
        with pytest.raises(InputError, match=rf"gave shape \([0-9]+, 2\) for {words}, not "):
            make_run(tmp_path / "run.oc", shape, lambda a, b: np.ones((b - a, 2)))
        axis = OWN[len(shape)][0]
        what = "all cells" if len(shape) == 1 else f"the {words.split()[0]} {axis}0 to {axis}1 - 1"
        with pytest.raises(InputError, match=rf"it must be function\({axis}0, {axis}1\), and return {what}$"):
            make_run(tmp_path / "run.oc", shape, lambda: 1)
    flat_stencil = halve(2)
    with pytest.raises(BudgetError, match="for halve2 on rows of 512 B: at least"):
        oc.Simulation(flat_stencil, (400, 128), directory=tmp_path / "run.oc", memory="1KiB").plan(5)
    for shape in ((3, 3, 3), (3,), 3, (), oc.Field("u")):
        with pytest.raises(InputError, match=r"halve2 is for grids of two axes \(ny, nx\)"):
            oc.Simulation(halve(2), shape, directory=tmp_path / "run.oc")  # type: ignore[arg-type]
    assert oc.Simulation(halve(1), 12, directory=tmp_path / "run.oc").shape == (12,)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("shape", "where"), [((8,), "x=5"), ((8, 9), "y=5, x=2"), ((8, 9, 4), "z=5, y=2, x=3")])
def test_values_that_are_not_finite_are_named_by_the_grid_s_axes(shape: tuple[int, ...], where: str) -> None:
    values = random_values(shape)
    values[(5, 2, 3)[: len(shape)]] = np.nan
    with pytest.raises(InputError, match=rf"holds nan at {where} "):
        scan_finite(make_source(values, shape), "float32")


def test_shards_of_rows_over_directories_are_one_array(tmp_path: Path) -> None:
    """Checks that shards in several directories look like one array on a grid of two axes. These shards hold rows
    instead of planes.
    """
    places, values = [tmp_path / "a", tmp_path / "b"], random_values((50, 2000))
    make_run(places, values.shape, values)  # type: ignore[arg-type]
    assert np.array_equal(zarr.open_group(str(places[0]), mode="r")["u"][...], values)
    assert len(list(places[0].glob("u/c/*/0"))) == 2
    assert any(not path.is_symlink() for path in places[1].glob(".u.0/c/*/0"))


@pytest.mark.parametrize(
    ("given", "ndim", "inside", "shown"),
    [
        ("periodic", 3, "periodic", "periodic"),
        ("x=periodic,z=fixed:mirror", 3, "z=fixed:mirror,y=fixed,x=periodic", "z=fixed:mirror,y=fixed,x=periodic"),
        ("periodic", 2, "z=periodic,y=fixed,x=periodic", "periodic"),
        ("y=mirror", 2, "z=mirror,y=fixed,x=fixed", "y=mirror,x=fixed"),
        ("z=mirror,x=periodic", 2, "z=mirror,y=fixed,x=periodic", "y=mirror,x=periodic"),
        ("fixed", 2, "fixed", "fixed"),
        ("mirror", 1, "z=fixed,y=fixed,x=mirror", "mirror"),
        ("x=fixed:mirror", 1, "z=fixed,y=fixed,x=fixed:mirror", "x=fixed:mirror"),
        ({"y": ("mirror", "fixed")}, 2, "z=mirror:fixed,y=fixed,x=fixed", "y=mirror:fixed,x=fixed"),
        (Boundary(x=("periodic", "periodic")), 1, "z=fixed,y=fixed,x=periodic", "periodic"),
    ],
)
def test_sides_by_axis_reach_the_axes_inside_and_come_back(given: object, ndim: int, inside: str, shown: str) -> None:
    """Checks that an internal axis, which the user's grid does not have, always has the boundary `fixed`. With another
    boundary, a run would need more planes, or could not use some schemes.
    """
    boundary = boundary_on_grid(as_boundary(given), ndim)
    assert str(boundary) == inside and as_boundary(inside) == boundary
    assert boundary_text(boundary, ndim) == shown
    assert boundary_on_grid(as_boundary(shown), ndim) == boundary


def test_sides_of_an_axis_there_is_not_are_refused(tmp_path: Path) -> None:
    for given, ndim, words in [
        ("y=mirror", 1, "one axis has no y"),
        ("z=periodic,x=mirror", 1, "one axis has no z"),
        ("z=mirror,y=periodic", 2, "no z beside y"),
    ]:
        with pytest.raises(InputError, match=words):
            oc.Simulation(halve(ndim), (9,) * ndim, directory=tmp_path / "run.oc", boundary=given)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("z=fixed,x=mirror,z=periodic", "axis z is there twice; write both sides as z=LOW:HIGH"),
        ({"x": 5}, "boundary 5 is not available; there are fixed"),
        ({"x": None}, "boundary None is not available"),
        ("x=fixed:mirror:fixed", "axis x has 3 sides"),
        ("x=", "boundary '' is not available"),
    ],
)
def test_sides_that_cannot_be_are_refused(given: object, words: str) -> None:
    """Checks that each wrong boundary gives a clear error. No part of the text may be ignored."""
    with pytest.raises(InputError, match=words):
        as_boundary(given)
    assert as_boundary("x = periodic, z = fixed : mirror") == as_boundary("x=periodic,z=fixed:mirror")


def test_sides_that_should_absorb_name_the_sponge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that the message for an absorbing boundary names what absorbs waves, as the user writes it."""
    where = tmp_path / "run.oc"
    for given in ("absorbing", "PML", {"x": ("fixed", "damped")}):
        with pytest.raises(InputError, match=r"use oc\.stencils\.acoustic\(sponge=True\), and assign .*sponge.* damp"):
            oc.Simulation("acoustic8", (9, 9, 9), directory=where, boundary=given)  # type: ignore[arg-type]
    words = ["run", "acoustic8_2d", "-n", "40", "40", "-t", "1", "-d", str(where), "--boundary"]
    assert call([*words, "x=absorbing"]) == 2
    error = capsys.readouterr().err
    assert "whose name ends in _sponge, such as acoustic8_2d_sponge, with --init damp=FILE" in error
    assert "damp" in str(oc.stencils.find_stencil("acoustic8_2d_sponge").fields)
    assert call([*words, "x=miror"]) == 2 and "sponge" not in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_run_keeps_its_sides(tmp_path: Path) -> None:
    make_run(tmp_path / "run.oc", (5, 4, 3), 1, boundary={"x": "periodic", "z": ("fixed", "mirror")})
    kept = as_boundary(storage_at(tmp_path / "run.oc").read().boundary)
    assert kept == Boundary(z=("fixed", "mirror"), x=("periodic", "periodic"))
    assert oc.open(tmp_path / "run.oc").plan(1).problem.sides == kept.sides


@pytest.mark.parametrize("shape", [(7,), (7, 9), (5, 4, 3)])
def test_xarray_shows_coordinates(tmp_path: Path, shape: tuple[int, ...]) -> None:
    where, ndim = tmp_path / "run.oc", len(shape)
    spacing, origin = (2.5, 10.0, 0.1)[:ndim], (-5.0, 0.0, 3.0)[:ndim]
    simulation = make_run(where, shape, 1, spacing=spacing, origin=origin, units="m")
    dataset = xarray.open_zarr(str(where), chunks=None)
    assert list(dataset) == ["u"]
    for axis, name in enumerate(OWN[ndim]):
        expected = origin[axis] + np.arange(shape[axis]) * spacing[axis]
        assert np.array_equal(dataset[name].values, expected) and dataset[name].attrs["units"] == "m"
    assert oc.open(where).coordinates == simulation.coordinates == Coordinates(spacing, origin, "m")
    make_run(where, shape, 1, force=True)
    assert not set(OWN[ndim]) & set(os.listdir(where)), "they go with the run they belong to"


def test_coordinates_that_cannot_be_are_refused(tmp_path: Path) -> None:
    x = oc.Field("x")
    clash = oc.Stencil("clash", {x: x[0, 0] * 2})
    for stencil, options, words in [
        (halve(2), {"spacing": (1, 2, 3)}, "2 numbers: y, x"),
        (halve(2), {"spacing": 0}, "must be positive"),
        (halve(2), {"origin": float("nan")}, "finite"),
        (halve(2), {"spacing": "wide"}, "number"),
        (halve(2), {"units": 3}, "text"),
        (clash, {"spacing": 1}, "name of an axis"),
    ]:
        with pytest.raises(InputError, match=words):
            oc.Simulation(stencil, (5, 4), directory=tmp_path / "run.oc", **options)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_n_takes_one_to_three_numbers() -> None:
    """Checks that `-n` takes at most three numbers. The words after these numbers stay separate arguments."""
    for line, joined in [
        ("run heat7 -n 20 12 10 -t 5", ["run", "heat7", "-n", "20 12 10", "-t", "5"]),
        ("run -n 20 heat7", ["run", "-n", "20", "heat7"]),
        ("run -n 20 12 -t 5", ["run", "-n", "20 12", "-t", "5"]),
        ("run -n 20 -3 10", ["run", "-n", "20 -3 10"]),
        ("run -n 1 2 3 4", ["run", "-n", "1 2 3", "4"]),
        ("run -n20 12", ["run", "-n", "20 12"]),
        ("run -n", ["run", "-n"]),
        ("run -n x 2", ["run", "-n", "x", "2"]),
    ]:
        assert join_sizes(line.split()) == joined
    assert parse_size("20 12 10", halve(3)) == (10, 12, 20)
    assert parse_size("20 12", halve(2)) == (12, 20) and grid_shape((12, 20)) == (12, 1, 20)
    assert parse_size("20", halve(1)) == (20,) and grid_shape((20,)) == (1, 1, 20)
    for text, ndim, words in [
        ("20 12", 3, "-n 20 12: halve3 is for grids of three axes .*-n NX NY NZ"),
        ("20 12", 1, "one axis .*-n NX$"),
        ("20 0", 2, "-n 20 0: all sizes must be at least 1"),
        ("x", 1, "whole numbers"),
    ]:
        with pytest.raises(InputError, match=words):
            parse_size(text, halve(ndim))


@pytest.mark.parametrize(
    ("name", "text", "other"),
    [
        ("heat2", "20 12", "heat2_2d"),
        ("heat4_2d", "20 12 10", "heat4"),
        ("acoustic8_sponge", "20", "acoustic8_1d_sponge"),
        ("gray_scott", "20 12", "gray_scott_2d"),
        ("maxwell_2d_te", "20 12 10", ""),
        ("elastic2", "20", ""),
        ("heat7", "20 12", ""),
        ("d2q9", "20 12 10", ""),
    ],
)
def test_a_wrong_number_of_axes_names_the_stencil_that_has_them(name: str, text: str, other: str) -> None:
    stencil = find_stencil(name)
    with pytest.raises(InputError) as error:
        parse_size(text, stencil)
    assert str(error.value).partition(", or use ")[2] == other
    with pytest.raises(InputError) as error:
        oc.Simulation(stencil, tuple(map(int, text.split())))
    assert str(error.value).partition("; ")[2].partition(" is for ")[0] == other
