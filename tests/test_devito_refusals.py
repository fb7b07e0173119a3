"""Check that an unsupported script of Devito gives a one-line error. The error names the equation, the term and the
reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sympy

import outcrop as oc
from outcrop.durable import sealed
from outcrop.errors import InputError

dv = pytest.importorskip("devito")
from outcrop.language.devito import from_devito  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # Devito itself causes these warnings
dv.configuration["log-level"] = "ERROR"


def make_script(dtype: Any = np.float32) -> SimpleNamespace:
    """Return the objects of a small script."""
    grid = dv.Grid(shape=(10, 12), extent=(9.0, 11.0), dtype=dtype)
    shifted = dv.Grid(shape=(10, 12), extent=(9.0, 11.0), origin=(0.5, 0.0), dtype=dtype)
    other = dv.Grid(shape=(10, 12), dtype=dtype)
    sub = dv.ConditionalDimension("sub", parent=grid.time_dim, factor=2)
    chosen = dv.ConditionalDimension("chosen", parent=grid.time_dim, condition=sympy.Gt(grid.time_dim, 3))
    every = dv.ConditionalDimension("every", parent=grid.time_dim)
    points = {"npoint": 2, "nt": 9, "coordinates": np.array([[2.0, 3.0], [4.5, 5.5]])}
    return SimpleNamespace(
        grid=grid,
        u=dv.TimeFunction(name="u", grid=grid, space_order=2, time_order=2),
        v=dv.TimeFunction(name="v", grid=grid, space_order=2),
        vec=dv.VectorTimeFunction(name="vec", grid=grid, space_order=2),
        m=dv.Function(name="m", grid=grid, space_order=2),
        c=dv.Constant(name="c", value=2.0),
        fourth=dv.TimeFunction(name="fourth", grid=grid, time_order=4),
        deep=dv.TimeFunction(name="deep", grid=shifted, space_order=8),
        some=dv.TimeFunction(name="some", grid=grid, save=5, time_dim=chosen),
        sub=sub,
        snaps=dv.TimeFunction(name="snaps", grid=grid, save=5, time_dim=sub),
        every=dv.TimeFunction(name="every_step", grid=grid, save=5, time_dim=every),
        far=dv.Function(name="far", grid=other),
        depth=dv.Function(name="depth", grid=grid, dimensions=(grid.dimensions[0],), shape=(10,)),
        wide=dv.Function(name="wide", grid=grid, dtype=np.float64),
        src=dv.SparseTimeFunction(name="src", grid=grid, **points),
        rec=dv.SparseTimeFunction(name="rec", grid=grid, **points),
        sinc=dv.SparseTimeFunction(name="sinc", grid=shifted, interpolation="sinc", r=4, **points),
        fixed=dv.SparseFunction(name="fixed", grid=grid, npoint=2),
        free=dv.Symbol("free", dtype=np.float32),
    )


def step(s: SimpleNamespace) -> Any:
    """Return an equation that is supported."""
    return dv.Eq(s.u.forward, 2 * s.u - s.u.backward + 0.1 * s.u.laplace)


def wall(s: SimpleNamespace) -> Any:
    """Return a boundary condition of u."""
    return dv.Eq(s.u[s.grid.stepping_dim + 1, 0, s.grid.dimensions[1]], 0)


def endless() -> list[Any]:
    """Return a list that contains itself."""
    found: list[Any] = []
    found.append(found)
    return found


def over(*extent: float, **options: Any) -> Any:
    """Return an equation on a grid with the given extent."""
    u = dv.TimeFunction(name="u", grid=dv.Grid(shape=(10, 12), extent=extent, **options), space_order=2)
    return dv.Eq(u.forward, 0.1 * u)


REFUSED: list[tuple[str, Callable[[SimpleNamespace], Any]]] = [
    (r"for u\(t \+ dt, x, y\): sinh\(.*\) cannot be computed for values that change; there are",
     lambda s: dv.Eq(s.u.forward, dv.sinh(s.u))),
    (r"gamma\(m\[x, y\]\) cannot be computed",
     lambda s: dv.Eq(s.u.forward, s.u * dv.finite_differences.elementary.gamma(s.m))),
    (r"the list of equations is empty", lambda s: []),
    (r"nested in more than 20 lists", lambda s: endless()),
    (r"field name 'double' is a word of C",
     lambda s: dv.Eq(dv.TimeFunction(name="double", grid=s.grid).forward, s.m)),
    (r"Constant broken holds .*x.*, which is not a number",
     lambda s: dv.Eq(s.u.forward, s.u * dv.Constant(name="broken", value="x"))),
    (r"the grid's spacing .*nan.* must be a finite number", lambda s: over(float("nan"), 11.0)),
    (r"the grid's spacing .* must be above 0", lambda s: over(-9.0, 11.0)),
    (r"the grid's origin .*nan.* must be a finite number", lambda s: over(9.0, 11.0, origin=(float("nan"), 0.0))),
    (r"free has no value; make it a Constant", lambda s: dv.Eq(s.u.forward, s.u * s.free)),
    (r": t has no value; for the number of the time, write grid.time_dim",
     lambda s: dv.Eq(s.u.forward, s.u * s.grid.stepping_dim)),
    (r": time_M has no value", lambda s: dv.Eq(s.u.forward, s.u * s.grid.time_dim.symbolic_max)),
    (r"sinh\(0.1\*x\) cannot be computed", lambda s: dv.Eq(s.u.forward, s.u * dv.sinh(0.1 * s.grid.dimensions[0]))),
    (r"for u\[t \+ 1, x, 0\]: y is not a position of the cells that are computed here",
     lambda s: [step(s), dv.Eq(s.u[s.grid.stepping_dim + 1, s.grid.dimensions[0], 0], s.grid.dimensions[1])]),
    (r"src.inject into u.*: x is not a position of the cells that are computed here",
     lambda s: [step(s), s.src.inject(field=s.u.forward, expr=s.src * s.grid.dimensions[0])]),
    (r"equations can only assign to u.forward of a TimeFunction u", lambda s: dv.Eq(s.u, s.u + 1)),
    (r"or to a Function", lambda s: [step(s), dv.Eq(s.depth, s.u)]),
    (r"equation 2, for v\(t - dt, x, y\): it runs backward in time, and equation 1, for u\(t \+ dt, x, y\) forward",
     lambda s: [step(s), dv.Eq(s.v.backward, s.v)]),
    (r"reads m at neighbours, while it overwrites it", lambda s: [step(s), dv.Inc(s.m, s.m.dx)]),
    (r"free is not a TimeFunction", lambda s: [dv.Eq(s.free, s.u), step(s)]),
    (r"the left side is not a TimeFunction; give Eq\(u\.forward, \.\.\.\), with solve\(\.\.\., u\.forward\)",
     lambda s: dv.Eq(s.m * s.u.dt2 - s.u.laplace, 0)),
    (r"for u\[t \+ 1, -1, 3\]: cells -1 to -1 along x are not in the grid, of 10 cells",
     lambda s: [step(s), dv.Eq(s.u[s.grid.stepping_dim + 1, -1, 3], 0)]),
    (r"an equation computes the whole grid, a box of a SubDomain, or cells with fixed numbers, not 2\*x along x",
     lambda s: [step(s), dv.Eq(s.u[s.grid.stepping_dim + 1, 2 * s.grid.dimensions[0], 3], 0)]),
    (r"u\[t \+ 1, x, y\] is not at a fixed distance",
     lambda s: [step(s), dv.Eq(s.u[s.grid.stepping_dim + 1, 0, s.grid.dimensions[1]], s.u.forward)]),
    (r"reads u\(t \+ dt\) at neighbours, while it overwrites it",
     lambda s: [step(s), dv.Eq(s.u.forward, s.u.forward.dx, subdomain=s.grid.interior)]),
    (r"is not at a fixed distance", lambda s: dv.Eq(s.u.forward, s.u + s.m[4, s.grid.dimensions[1]])),
    (r"implicit_dims are not available", lambda s: dv.Eq(s.u.forward, s.u, implicit_dims=s.grid.time_dim)),
    (r"fourth has time_order=4; there are 1 to 3", lambda s: dv.Eq(s.fourth.forward, s.fourth)),
    (r"snaps can keep only u or u.forward, not 2.0\*u", lambda s: [step(s), dv.Eq(s.snaps, 2.0 * s.u)]),
    (r"snaps can keep only u or u.forward, not m", lambda s: [step(s), dv.Eq(s.snaps, s.m)]),
    (r"snaps keeps v, but no equation computes it", lambda s: [step(s), dv.Eq(s.snaps, s.v)]),
    (r"chosen has a condition", lambda s: [step(s), dv.Eq(s.some, s.u)]),
    (r"every has no factor of at least 1; give it one: ConditionalDimension\(\.\.\., factor=10\)",
     lambda s: [step(s), dv.Eq(s.every, s.u)]),
    (r"snaps can only keep all cells, at its own time: give Eq\(snaps, u\)",
     lambda s: [step(s), dv.Eq(s.snaps[s.sub, s.grid.dimensions[0] + 1, s.grid.dimensions[1]], s.u)]),
    (r"snaps can only keep all cells, at its own time: give Eq\(snaps, u\)",
     lambda s: [step(s), dv.Eq(s.snaps[s.sub, 0, s.grid.dimensions[1]], s.u)]),
    (r"snaps can only keep all cells, at its own time: give Eq\(snaps, u\)",
     lambda s: [step(s), dv.Eq(s.snaps.forward, s.u)]),
    (r"equation 2, for snaps\(.*\): a later source is added to u.forward; put it behind all sources",
     lambda s: [step(s), dv.Eq(s.snaps, s.u.forward), s.src.inject(field=s.u.forward, expr=s.src)]),
    (r"equation 2, for snaps\(.*\): a later equation overwrites u.forward; put it behind all equations",
     lambda s: [step(s), dv.Eq(s.snaps, s.u.forward), dv.Eq(s.u[s.grid.stepping_dim + 1, 5, s.grid.dimensions[1]], 7)]),
    (r"equation 1, for snaps\(.*\): u.forward has no value yet",
     lambda s: [dv.Eq(s.snaps, s.u.forward), step(s)]),
    (r"the Operator Kernel does not keep its equations; build it inside", lambda s: dv.Operator(step(s))),
    (r"far is defined on another grid", lambda s: dv.Eq(s.u.forward, s.u + s.far)),
    (r"depth spans \(x\), not the grid", lambda s: dv.Eq(s.u.forward, s.u + s.depth)),
    (r"wide is float64, the grid float32", lambda s: dv.Eq(s.u.forward, s.u * s.wide)),
    (r"src lies at points", lambda s: dv.Eq(s.u.forward, s.u + s.src)),
    (r"no equation writes v.forward; make v a Function", lambda s: dv.Eq(s.u.forward, s.u + s.v)),
    (r"reads v\(t \+ dt\), which no earlier equation writes",
     lambda s: [dv.Eq(s.u.forward, s.v.forward), dv.Eq(s.v.forward, s.v)]),
    (r"reads u\(t \+ dt\), which no earlier equation writes$", lambda s: dv.Inc(s.u.forward, s.u)),
    (r"equation 2, for v.*: reads u\(t \+ dt\) in cells that no earlier equation writes; put an equation for these",
     lambda s: [dv.Eq(s.u.forward, s.u, subdomain=s.grid.interior), dv.Eq(s.v.forward, s.u.forward), wall(s)]),
    (r"reads u\(t \+ dt\) in cells that no earlier equation writes",
     lambda s: [dv.Eq(s.u.forward, s.u, subdomain=s.grid.interior), dv.Inc(s.u.forward, 1)]),
    (r"reads u\(t \+ dt\) in cells that no earlier equation writes",
     lambda s: [dv.Eq(s.u.forward, s.u, subdomain=s.grid.interior),
                dv.Eq(s.v.forward, s.u.forward.laplace, subdomain=s.grid.interior), wall(s)]),
    (r"which no earlier equation writes; implicit equations are not supported",
     lambda s: dv.Eq(s.u.forward, s.u + 0.1 * s.u.forward.laplace)),
    (r"reads u\(t \+ dt\) at neighbours", lambda s: [step(s), dv.Eq(s.u.forward, s.u.forward.dx)]),
    (r"reads v\(t - dt\), but v has time_order=1", lambda s: dv.Eq(s.v.forward, s.v.backward)),
    (r"u_before_1 is the name of older values; give the function another name",
     lambda s: dv.Eq(s.u.forward, s.u.backward.dx + dv.Function(name="u_before_1", grid=s.grid))),
    (r"reads u\(t - 2\*dt\), but u has time_order=2", lambda s: dv.Eq(s.u.forward, s.u.backward.backward)),
    (r"reads u\(t \+ 2\*dt\); a step computes only one new value", lambda s: dv.Eq(s.u.forward, s.u.forward.forward)),
    (r"ReduceMax is not available", lambda s: [step(s), dv.ReduceMax(s.u.forward, s.u)]),
    (r"the list contains no equation", lambda s: s.rec.interpolate(expr=s.u)),
    (r"is a TimeFunction; there are Eq, Inc, inject and interpolate", lambda s: [step(s), s.u]),
    (r"operation 2, src.inject into u\(t, x, y\): sources can only be added to u.forward",
     lambda s: [step(s), s.src.inject(field=s.u, expr=s.src)]),
    (r"is not a multiple of src", lambda s: [step(s), s.src.inject(field=s.u.forward, expr=s.src + 1)]),
    (r"is not a multiple of src", lambda s: [step(s), s.src.inject(field=s.u.forward, expr=s.src**2)]),
    (r"fields that do not change, not u", lambda s: [step(s), s.src.inject(field=s.u.forward, expr=s.src * s.u)]),
    (r"sources or receivers read m, but no equation",
     lambda s: [step(s), s.src.inject(field=s.u.forward, expr=s.src * s.m)]),
    (r"fixed must be a SparseTimeFunction", lambda s: [step(s), s.fixed.inject(field=s.u.forward, expr=s.fixed)]),
    (r"with sinc interpolation, the cells of the field must be at multiples of the spacing",
     lambda s: [dv.Eq(s.deep.forward, s.deep), s.sinc.inject(field=s.deep.forward, expr=s.sinc)]),
    (r"u.forward has no value yet", lambda s: [s.src.inject(field=s.u.forward, expr=s.src), step(s)]),
    (r"an equation before it reads u.forward; put it right behind the update of u",
     lambda s: [step(s), dv.Eq(s.v.forward, s.u.forward), s.src.inject(field=s.u.forward, expr=s.src)]),
    (r"a later equation overwrites u.forward",
     lambda s: [step(s), s.src.inject(field=s.u.forward, expr=s.src), dv.Inc(s.u.forward, 1)]),
    (r"equation 3, for v\(.*\): it reads u.forward between operation 2, src.inject, and the last update of u; put it",
     lambda s: [step(s), s.src.inject(field=s.u.forward, expr=s.src), dv.Eq(s.v.forward, s.v + s.u.forward),
                wall(s)]),
    (r"operation 3, src.inject: no equation computes v.forward in its cell \(4, 5\); move the source",
     lambda s: [step(s), dv.Eq(s.v[s.grid.stepping_dim + 1, 2, 3], 1), s.src.inject(field=s.v.forward, expr=s.src)]),
    (r"operation 2, rec.interpolate: a later source is added to u.forward; put it behind all sources",
     lambda s: [step(s), s.rec.interpolate(expr=s.u.forward), s.src.inject(field=s.u.forward, expr=s.src)]),
    (r"is not a sum of fields with constant factors", lambda s: [step(s), s.rec.interpolate(expr=s.u**2)]),
    (r"is not a sum of fields with constant factors", lambda s: [step(s), s.rec.interpolate(expr=s.m * s.u)]),
    (r"cannot be received; there are u and u.forward", lambda s: [step(s), s.rec.interpolate(expr=s.u.backward)]),
    (r"increment and p_t are not available", lambda s: [step(s), s.rec.interpolate(expr=s.u, increment=True)]),
    (r"operation 3, rec.interpolate: two receivers have the name rec",
     lambda s: [step(s), s.rec.interpolate(expr=s.u), s.rec.interpolate(expr=s.u.forward)]),
]  # fmt: skip


@pytest.mark.parametrize(("message", "script"), REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_refused_in_one_line(message: str, script: Callable[[SimpleNamespace], Any]) -> None:
    """Checks that each unsupported feature of Devito is refused, and never computed with another meaning."""
    with pytest.raises(InputError, match=message) as error:
        from_devito(script(make_script()), dt=0.1)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 250


def test_the_number_of_the_time_is_exact() -> None:
    """Checks that the number of the first time is refused if float32 cannot represent this number. If equations read
    the time, a Constant or a Function with the name of the time is also refused."""
    s = make_script()
    equation = dv.Eq(s.v.forward, s.v + s.grid.time_dim)
    with pytest.raises(InputError, match="the equations read time, which is 1073741824 in the first step; float32"):
        from_devito(equation, dt=0.1, first_time=2**30)
    from_devito(equation, dt=0.1, first_time=2**24)
    double = make_script(np.float64)
    from_devito(dv.Eq(double.v.forward, double.v + double.grid.time_dim), dt=0.1, first_time=2**30)
    for one in (dv.Constant(name="t", value=2.0), dv.Function(name="t", grid=s.grid)):
        from_devito(dv.Eq(s.v.forward, s.v + one), dt=0.1)
        with pytest.raises(InputError, match=r"number of the time \(time\) has the name t .* function t another name"):
            from_devito(dv.Eq(s.v.forward, s.v + one * s.grid.time_dim), dt=0.1)


@pytest.mark.parametrize("dt", [0, -1.0, float("nan"), None, "1"])
def test_time_steps_are_positive_numbers(dt: Any) -> None:
    """Checks that a wrong time step is refused."""
    with pytest.raises(InputError, match=rf"dt={dt!r} is not a time step"):
        from_devito([step(make_script())], dt=dt)


def test_points_outside_the_grid_are_named() -> None:
    """Checks that a receiver outside the grid is refused, and that the error gives its coordinates. One receiver is on
    a staggered field."""
    s = make_script()
    s.rec.coordinates.data[1] = [4.0, 11.5]
    with pytest.raises(
        InputError, match=r"rec.interpolate: point 1 at \(4, 11.5\) lies outside .* \(0, 0\) to \(9, 11\)"
    ):
        from_devito([step(s), s.rec.interpolate(expr=s.u)], dt=0.1)
    half = dv.TimeFunction(name="half", grid=s.grid, space_order=2, staggered=s.grid.dimensions[0])
    s.src.coordinates.data[0] = [0.25, 3.0]
    equations = [dv.Eq(half.forward, half), s.src.inject(field=half.forward, expr=s.src)]
    with pytest.raises(
        InputError, match=r"point 0 at \(0.25, 3\) lies outside the grid, from \(0.5, 0\) to \(9.5, 11\)"
    ):
        from_devito(equations, dt=0.1)


def test_parameters_change_in_all_terms_or_not_at_all(tmp_path: Path) -> None:
    """Checks that a later change of a Constant or of dt changes all terms. Some terms are computed from a Constant
    already when the equations are translated. A change of such a Constant is refused, and also a gradient with respect
    to it. Also checks manifests of earlier versions and of untrusted users."""
    s = make_script(np.float64)
    x, dt = s.grid.dimensions[0], s.grid.time_dim.spacing
    s.v.data[:], s.m.data[:] = 1.0, 0.4
    s.rec.coordinates.data[:] = [2.0, 3.0]

    def make(where: Path, *operations: Any) -> oc.Simulation:
        sim = oc.Simulation([*operations], dt=1.0, directory=where, memory="1MiB", unstable=True)
        sim.run(1, progress="none")
        return sim

    for number, (term, right, name) in enumerate([
        (dv.exp(-s.c), lambda c: np.exp(-c), "c"), (dv.exp(-dt), lambda c: np.exp(-c), "dt"),
        (dv.exp(-s.c * s.m), lambda c: np.exp(-c * 0.4), "c"), (dv.tanh(dt) ** 1.3, lambda c: np.tanh(c) ** 1.3, "dt"),
    ]):  # fmt: skip
        where = tmp_path / f"{number}.oc"
        before = make(where, dv.Eq(s.v.forward, term * s.v + 0.1 * s.c * dt))["v"][4, 4]
        oc.open(where, params={name: 0.5}).run(1, progress="none")
        more = 0.1 * 0.5 * (1.0 if name == "c" else 2.0)
        assert oc.open(where)["v"][4, 4] == pytest.approx(right(0.5) * before + more, rel=1e-12)

    update = dv.Eq(s.v.forward, s.v / 2 + 0.1 * s.c)
    for number, (words, operations) in enumerate([
        ("field cos_m_1", [dv.Eq(s.v.forward, dv.cos(s.c * (s.m + s.m.shift(x, x.spacing))) * s.v + s.c)]),
        ("field sinh_m", [dv.Eq(s.v.forward, dv.sinh(s.c * s.m) * s.v + s.c)]),
        (r"sinh\(c\)", [dv.Eq(s.v.forward, dv.sinh(s.c) * s.v + s.c)]),
        ("the factor of operation 2, rec.interpolate", [update, s.rec.interpolate(expr=s.c * s.v.forward)]),
    ]):  # fmt: skip
        sim = make(where := tmp_path / f"refused-{number}.oc", *operations)
        assert oc.open(where, params={"c": 2.0}).step == 1  # no change
        with pytest.raises(InputError, match=f"params: c cannot change in a run in which {words}.* was computed with"):
            oc.open(where, params={"c": 0.5})
        with pytest.raises(InputError, match=f"no gradient with respect to c, because {words}.* was computed with it"):
            sim.adjoint({"v": np.ones((10, 12))}, "c")
    file = where / "manifest.json"
    content = json.loads(file.read_text())
    assert content.pop("crc32c") and content["fixed_parameters"].keys() == {"c"}
    for wrong in ({"d": "sinh(d)"}, {"c": "\x1b"}, {"c": 1}, ["c"]):
        file.write_bytes(sealed({**content, "fixed_parameters": wrong}))
        with pytest.raises(InputError, match="is damaged or not written by Outcrop"):
            oc.open(where)
    del content["fixed_parameters"]
    file.write_bytes(sealed(content))
    assert oc.open(where).step == 1


def test_fields_of_which_a_function_is_kept_have_no_gradient(tmp_path: Path) -> None:
    """Checks gradients with respect to theta. The equations read theta, and also a static field that was computed from
    theta. Also checks manifests of earlier versions and of untrusted users."""
    grid = dv.Grid(shape=(10, 12), extent=(9.0, 11.0), dtype=np.float64)
    u = dv.TimeFunction(name="u", grid=grid, space_order=2)
    v = dv.TimeFunction(name="v", grid=grid, space_order=2, staggered=(grid.dimensions[0],))
    theta, dt = dv.Function(name="theta", grid=grid, space_order=2), grid.stepping_dim.spacing
    theta.data[:] = 0.3
    equations = [dv.Eq(v.forward, v + dt * dv.cos(theta) * u.dx), dv.Eq(u.forward, u + dt * theta * v.forward.dx)]
    where, misfit = tmp_path / "run.oc", oc.Misfit("u", None)
    sim = oc.Simulation(equations, dt=0.2, directory=where, memory="16MiB", unstable=True)
    sim["u"] = np.random.default_rng(3).random((10, 12))
    message = "no gradient with respect to theta, because field cos_theta_1 was computed with it; in the equations, use"
    for refused in (
        lambda: sim.gradient(2, misfit, ["u", "theta"]),
        lambda: oc.taylor_test(sim, 2, misfit, "theta"),
        lambda: oc.Objective(sim, 2, misfit, "theta"),
    ):
        with pytest.raises(InputError, match=message):
            refused()
    assert sim.step == 0
    sim.run(2, progress="none", history="auto")
    with pytest.raises(InputError, match=message):
        oc.open(where).adjoint({"u": np.ones((10, 12))}, "theta")
    _, gradients = sim.gradient(2, misfit, "cos_theta_1", progress="none")
    assert gradients["cos_theta_1"][...].any()
    file = where / "manifest.json"
    content = json.loads(file.read_text())
    assert content.pop("crc32c") and content["fixed_fields"] == {"theta": "cos_theta_1"}
    for wrong in ({"theta": "u"}, {"u": "cos_theta_1"}, {"theta": "x"}, {"theta": 1}, {"theta.previous": "theta"}, []):
        file.write_bytes(sealed({**content, "fixed_fields": wrong}))
        with pytest.raises(InputError, match="is damaged or not written by Outcrop"):
            oc.open(where)
    del content["fixed_fields"]
    file.write_bytes(sealed(content))
    assert oc.open(where).step == 2
