"""Check that messages about wrong Python arguments name the field or the argument, and show what to write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outcrop as oc
from outcrop.errors import InputError

SHAPE = (6, 5, 4)
U, D = oc.Field("u"), oc.Field("D")
HERE = U[0, 0, 0]
MASKED: Any = np.ma.masked_array(np.ones(SHAPE), np.arange(120).reshape(SHAPE) < 3)
SPREAD = oc.Stencil("spread", {U: HERE + 0.1 * D[0, 0, 0] * (U[0, 0, 1] - 2 * HERE + U[0, 0, -1])})


def test_masked_values_of_sources_are_refused(tmp_path: Path) -> None:
    """Checks that the numbers behind a mask are not used as values, coordinates or signals."""
    masked = np.ma.masked_array([1.0, 2.0, -9999.0], [False, False, True])
    with pytest.raises(InputError, match=r"^source 0 in 'u': values: masked values are not numbers; fill them, as in"):
        simulation(tmp_path, sources=[oc.Source("u", [2, 2, 2], masked)]).run(1)
    with pytest.raises(InputError, match=r"^source 0 in 'u': points: masked values are not numbers; fill them, as in"):
        simulation(tmp_path, sources=[oc.Source("u", masked[None], [1.0])]).run(1)
    driven = oc.Stencil("driven", {U: U[0] + oc.Signal("s")})
    with pytest.raises(InputError, match=r"^signal 's': masked values are not numbers; fill them, as in"):
        oc.Simulation(driven, (8,), directory=tmp_path / "run.oc", signals={"s": masked})
    assert not list(tmp_path.iterdir())


def wrong(value: object) -> Any:
    """Return a value of a wrong type."""
    return value


def simulation(tmp_path: Path, check_finite: bool = False, **options: object) -> oc.Simulation:
    return oc.Simulation(
        SPREAD, SHAPE, directory=tmp_path / "run.oc", memory="1MiB", check_finite=check_finite, **options  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.ones((6, 5, 3)), r"^D: the array has shape \(6, 5, 3\), the grid is"),
        (np.ones(SHAPE, complex), "^D: the array has dtype complex128"),
        (lambda z0, z1: np.ones((2, 2)), r"^D: a function gave shape \(2, 2\) for planes"),
        (lambda z0: np.ones((2, 2)), r"^D: the function has the arguments \(z0\); it must be function\(z0, z1\)"),
        (MASKED, r"^D: the array: masked values are not numbers; fill them, as in values\.filled\(0\.0\)"),
        (np.ma.masked, r"^D: the value: masked values are not numbers"),
        (lambda z0, z1: MASKED[z0:z1], r"^D: a function: masked values are not numbers"),
        (np.full(SHAPE, np.nan), r"^D: the array holds nan at z=0, y=0, x=0 \(check_finite=True\)"),
    ],
)
def test_messages_about_values_name_the_field(values: object, message: str, tmp_path: Path) -> None:
    """Checks the messages of `assign` and of the option `init` for the second of two fields."""
    sim = simulation(tmp_path, check_finite=True)
    with pytest.raises(InputError, match=message):
        sim.assign({"u": 1.0, "D": values})
    assert not list(tmp_path.iterdir())
    if not isinstance(values, np.ndarray) or np.isfinite(values).all():
        with pytest.raises(InputError, match=message):
            simulation(tmp_path, init={"u": 1.0, "D": values}).run(1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: oc.Simulation(SPREAD, SHAPE, directory="no.oc", boundary=("mirror", "mirror", "periodic")),
         r"is neither a word nor sides by axis, such as \{'x': 'periodic'\}; there are"),
        (lambda: oc.Stencil("s", wrong({HERE: HERE})),
         r"u\(0, 0, 0\) is updated but is not a Field; write u as the key, without an offset"),
        (lambda: oc.Stencil("s", wrong({U.previous[0]: U[0]})), "write u as the key, without an offset"),
        (lambda: oc.Stencil("s", wrong({"u": HERE})),
         "'u' is updated but is not a Field; write the field as the key, and not its name"),
        (lambda: oc.Parameter("k"), r"parameter 'k' needs a default: write Parameter\('k', 0.1\)"),
        (lambda: oc.stencils.stable_limit(oc.stencils.acoustic(), {}, wrong([{"v": "v.npy"}])),
         "state: v must be one number for the whole grid, not 'v.npy'"),
        (lambda: oc.stencils.limit_text(SPREAD, {}, wrong([{"D": np.ones(3)}])),
         "state: D must be one number for the whole grid, not array"),
    ],
)  # fmt: skip
def test_messages_about_equations_show_what_to_write(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_messages_about_cells_name_the_axis(tmp_path: Path) -> None:
    """Checks indices outside the array, and a mask. Negative indices inside the array are possible."""
    sim = simulation(tmp_path)
    sim.assign({"u": 1.0, "D": 1.0})
    assert sim["u"][-6, -5, 3] == 1
    with pytest.raises(IndexError, match="index 6 is outside the array: axis 0 has the cells 0 to 5"):
        sim["u"][6]
    with pytest.raises(IndexError, match="index -6 is outside the array: axis 1 has the cells 0 to 4"):
        sim["u"][2, -6]
    with pytest.raises(IndexError, match=r"indexed by whole numbers, slices .* not by array.*first read"):
        sim["u"][np.ones(SHAPE, bool)]


def test_the_name_of_a_group_is_explained(tmp_path: Path) -> None:
    """Checks that the KeyError for the name of a group of snapshots lists the keys of this group."""
    sim = simulation(tmp_path, snapshots=[oc.Snapshots(1), oc.Snapshots(1, name="mid")])
    sim.assign({"u": 1.0, "D": 1.0})
    with pytest.raises(KeyError, match="the snapshots 'mid' have the keys 'mid/u'"):
        sim.snapshots["mid"]
