"""Check the values that a field had two or three updates ago: `u.back(2)` and `u.back(3)`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import outcrop as oc
from outcrop.errors import InputError

U, V = oc.Field("u"), oc.Field("v")


def adams() -> oc.Stencil:
    """Return advection with steps of Adams and Bashforth. The next value of a cell depends on the last four values of
    its neighbours."""
    slopes = [(one[1] - one[-1]) / 2 for one in (U, U.previous, U.back(2), U.back(3))]
    step = 55 * slopes[0] - 59 * slopes[1] + 37 * slopes[2] - 9 * slopes[3]
    return oc.Stencil("adams", {U: U[0] - 0.1 / 24 * step})


def advanced(levels: list[np.ndarray], steps: int) -> list[np.ndarray]:
    """Advance periodic values by `steps` steps of `adams`. `levels` begins with the newest values."""
    for _ in range(steps):
        slopes = [(np.roll(one, -1) - np.roll(one, 1)) / 2 for one in levels]
        step = 55 * slopes[0] - 59 * slopes[1] + 37 * slopes[2] - 9 * slopes[3]
        levels = [levels[0] - 0.1 / 24 * step, *levels[:3]]
    return levels


def test_four_levels_are_those_of_numpy(tmp_path: Path) -> None:
    """Checks that a run with older values gives NumPy's values, even if it stops and continues. All older values can be
    assigned and read.
    """
    rng, n = np.random.default_rng(1), 40
    levels, names = [rng.random(n) for _ in range(4)], ["u", "u_back1", "u_back2", "u_back3"]
    sim = oc.Simulation(adams(), n, "float64", tmp_path / "run.oc", memory="8MiB", boundary="periodic", unstable=True)
    sim.assign(dict(zip(names, levels, strict=True)))
    sim.run(2, progress="none")
    sim = oc.open(tmp_path / "run.oc")
    sim.run(5, progress="none")
    for name, right in zip(names, advanced(levels, 7), strict=True):
        np.testing.assert_allclose(sim[name][:], right, rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("given", [True, False])
def test_older_values_start_as_a_copy(tmp_path: Path, given: bool) -> None:
    """Checks which initial values older time levels get if the user assigns none. They are copies of the newest
    value of the field. The newest value comes from an assignment or from the option `init`."""
    n = 40
    start = np.exp(-(((np.arange(n) - 20) / 4) ** 2))
    more = {} if given else {"init": {"u": start}}
    sim = oc.Simulation(
        adams(), n, "float64", tmp_path / "run.oc", memory="8MiB", boundary="periodic", unstable=True, **more
    )
    if given:
        sim["u"] = start
    sim.run(3, progress="none")
    np.testing.assert_allclose(sim["u"][:], advanced([start] * 4, 3)[0], rtol=1e-12)


def test_an_older_value_counts_updates_of_all_stages(tmp_path: Path) -> None:
    """Checks a field that a step updates twice: `back` counts updates and not steps."""
    stencil = oc.Stencil("twice", [{U: U[0] + 1, V: V[0]}, {U: U[0] + 10}, {V: 100 * U.back(2)[0] + U.back(3)[0]}])
    sim = oc.Simulation(stencil, 9, "float64", tmp_path / "run.oc", memory="8MiB")
    sim["u"] = 0.0
    sim.run(2, progress="none")
    # the values of u are 0, 1, 11, 12, 22
    assert (sim["u"][:] == 22).all() and (sim["v"][:] == 100 * 11 + 1).all()


def test_only_fields_with_this_meaning_start_as_a_copy() -> None:
    """Checks which fields hold older values: the fields that `back` makes, also after a stencil was converted to JSON
    and back. A user's own field does not hold older values, even if it has the name of such a field."""
    stencil = adams()
    assert stencil.older_values == {"u_back1": ("u", 1), "u_back2": ("u", 2), "u_back3": ("u", 3)}
    assert oc.Stencil.from_json(stencil.to_json()).older_values == stencil.older_values
    leap = oc.Stencil("leap", {U: 2 * U[0] - U.previous[0] + U.back(2)[1]})
    assert leap.older_values == {"u_back2": ("u", 2)} and leap.storage[0].history == 2
    own = oc.Field("u_back2")
    assert oc.Stencil("own", {U: own[0] + U.previous[0], own: U[0]}).older_values == {}
    assert oc.Stencil("own", [{U: own[0] + U[0]}, {own: U.previous[0]}]).older_values == {}
    changes = {f"u_back{back}_tangent": ("u_tangent", back) for back in (1, 2, 3)}
    assert oc.tangent(stencil).older_values == stencil.older_values | changes


def test_the_formula_shows_the_steps() -> None:
    """Checks that the formula shows older values, and not the fields that keep them."""
    stencil = oc.Stencil("old", {U: U[0] - U.previous[0] + U.back(2)[1] / 2 - U.back(3)[0]})
    formula = r"u^{n+1}_{x} &= u^{n}_{x} - u^{n-1}_{x} + \frac{1}{2}\, u^{n-2}_{x+1} - u^{n-3}_{x}"
    assert stencil.latex == rf"\begin{{aligned}} {formula} \end{{aligned}}"


def test_older_values_that_do_not_exist_are_refused() -> None:
    for updates in (0, 4, True, 1.0):
        with pytest.raises(InputError, match=r"u.back\(.*\): there are 1 to 3 updates back"):
            U.back(updates)  # type: ignore[arg-type]
    assert U.back(1)[0] == U.previous[0]
    with pytest.raises(InputError, match=r"'v' has no older values, because nothing updates it"):
        oc.Stencil("static", {U: V.back(2)[0]})
    taken = oc.Field("u_back2")
    with pytest.raises(InputError, match=r"u_back2 is the name of older values; give the field another name"):
        oc.Stencil("taken", {U: U.back(2)[0], taken: taken[0]})
