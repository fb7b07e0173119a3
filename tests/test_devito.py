"""Check that a script of Devito gives the same values in Outcrop as in Devito, even in the cells at the edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from outcrop.errors import InputError
from strategies import examples

dv = pytest.importorskip("devito")
from devito_scripts import DTYPES, check, fill, make_grid, ours, receivers, wavelet  # noqa: E402
from outcrop.language.devito import from_devito  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # Devito itself causes these warnings
BOTH = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.__name__)


@BOTH
def test_heat(dtype: Any) -> None:
    """Checks that an equation of first order in time has Devito's values. It has a Constant and a coefficient that
    depends on time.
    """
    grid = make_grid((12, 14, 17), dtype, 1.0)
    u = dv.TimeFunction(name="u", grid=grid, space_order=4)
    fill(u)
    alpha = dv.Constant(name="alpha", value=0.7, dtype=dtype)
    pulse = dv.Function(name="pulse", dimensions=(grid.time_dim,), shape=(20,), dtype=dtype)
    pulse.data[:] = np.sin(np.arange(20.0))
    equation = dv.Eq(u.forward, dv.solve(dv.Eq(u.dt, alpha * u.laplace + pulse), u.forward))
    lowered = check([equation], 0.1, 15, dtype)
    assert (lowered.padding, lowered.shape) == ((2, 2, 2), (16, 18, 21))
    assert lowered.stencil.signals == ("pulse",)
    assert [(one.name, one.default) for one in lowered.stencil.parameters] == [
        ("alpha", pytest.approx(0.7)),
        ("dt", 0.1),
    ]


@BOTH
def test_acoustic_with_sources_and_receivers(dtype: Any) -> None:
    """Checks that a wave equation of order 8 has Devito's values, with damping, a jump of velocity, and receivers of u
    and u.forward.
    """
    grid, steps = make_grid((24, 20, 22), dtype), 24
    u = dv.TimeFunction(name="u", grid=grid, space_order=8, time_order=2)
    m, damp = dv.Function(name="m", grid=grid, space_order=8), dv.Function(name="damp", grid=grid, space_order=0)
    m.data[:], m.data[12:], damp.data[:] = 1 / 2.0**2, 1 / 3.0**2, 0.01
    source = wavelet("src", grid, steps, [[101.0, 97.0, 55.0], [60.0, 95.0, 93.7]])
    places = [[101.0, 97.0, 55.0], [230.0, 195.0, 220.0], [0.0, 5.0, 10.0], [33.0, 44.0, 55.0], [120.0, 105.0, 130.0]]
    before, after = receivers("before", grid, steps, places), receivers("after", grid, steps, places)
    wave = dv.Eq(u.forward, dv.solve(m * u.dt2 - u.laplace + damp * u.dt, u.forward))
    dt = grid.stepping_dim.spacing
    inject = source.inject(field=u.forward, expr=source * dt**2 / m)
    lowered = check([wave, inject, before.interpolate(expr=u), after.interpolate(expr=u.forward)], 1.0, steps, dtype)
    assert lowered.first_time == 1
    assert lowered.static_fields == ("damp", "m")
    assert [one.before for one in lowered.samplings] == [True, False]
    assert lowered.max_steps == steps + 2


@BOTH
def test_elastic(dtype: Any) -> None:
    """Checks that velocity and stress on a staggered grid have Devito's values, with sources in components of a vector
    and a tensor.
    """
    grid, steps = make_grid((15, 13, 14), dtype), 14
    v = dv.VectorTimeFunction(name="v", grid=grid, space_order=4, time_order=1)
    tau = dv.TensorTimeFunction(name="tau", grid=grid, space_order=4, time_order=1)
    b, lam, mu = (dv.Function(name=name, grid=grid, space_order=4) for name in ("b", "lam", "mu"))
    for function in (b, lam, mu):
        fill(function, 0.5, 1.0)
    dt = grid.stepping_dim.spacing
    strain = dv.grad(v.forward) + dv.grad(v.forward).transpose(inner=False)
    source, shear = (
        wavelet("src", grid, steps, [[61.0, 57.0, 55.0]]),
        wavelet("force", grid, steps, [[71.3, 60.2, 62.0]]),
    )
    places = [[61.0, 67.0, 75.0], [93.3, 44.4, 101.0]]
    pressure, motion = receivers("pressure", grid, steps, places), receivers("motion", grid, steps, places)
    equations = [
        dv.Eq(v.forward, v + dt * b * dv.div(tau)),
        shear.inject(field=v.forward[0], expr=shear * dt * b),
        dv.Eq(tau.forward, tau + dt * (lam * dv.diag(dv.div(v.forward)) + mu * strain)),
        *(source.inject(field=tau.forward[i, i], expr=source * dt) for i in range(3)),
        pressure.interpolate(expr=tau.forward[0, 0] + tau.forward[1, 1] - 2 * tau[2, 2]),
        motion.interpolate(expr=v.forward[2]),
    ]
    lowered = check(equations, 2.0, steps, dtype)
    assert len(lowered.stencil.stages) == 2
    assert len(lowered.stencil.fields) == 12


@BOTH
def test_maxwell(dtype: Any) -> None:
    """Checks that Yee's scheme has Devito's values: two vector equations with Devito's curl, and a conductivity at
    places between cells.
    """
    grid = make_grid((13, 12, 15), dtype, 1.0)
    e = dv.VectorTimeFunction(name="E", grid=grid, space_order=2, time_order=1)
    x, y, z = grid.dimensions
    sides = ((y, z), (x, z), (x, y))
    h = dv.VectorTimeFunction(name="H", grid=grid, space_order=2, time_order=1, staggered=sides)
    sigma = dv.Function(name="sigma", grid=grid, space_order=2)
    fill(sigma, 0.0, 0.1)
    for component in (*e, *h):
        fill(component, -1.0)
    dt = grid.stepping_dim.spacing
    equations = [
        dv.Eq(h.forward, h - dt * dv.curl(e)),
        dv.Eq(e.forward, e * (1 - dt * sigma) + dt * dv.curl(h.forward)),
    ]
    lowered = check(equations, 0.4, 20, dtype)
    assert len(lowered.stencil.stages) == 2
    assert lowered.stencil.radii == (1, 1, 1)


@BOTH
def test_equations_happen_in_the_order_given(dtype: Any) -> None:
    """Checks a program of several stages, in which later equations read u(t + dt), u(t) and u(t - dt). One field has an
    `Inc` and a second `Eq`."""
    grid = make_grid((14, 17), dtype, 1.0)
    u = dv.TimeFunction(name="u", grid=grid, space_order=2, time_order=2)
    a, b, c = (dv.TimeFunction(name=name, grid=grid, space_order=2) for name in "abc")
    for function in (u, a, b, c):
        fill(function, -1.0)
    equations = [
        dv.Eq(c.forward, 0.9 * c + 0.1 * u.dx + 0.05 * u.backward),
        dv.Eq(u.forward, 2 * u - u.backward + 0.1 * u.laplace + 0.01 * c),
        dv.Eq(a.forward, 0.5 * a + 0.1 * u.forward.laplace + 0.2 * u.dx),
        dv.Inc(u.forward, 0.01 * b),
        dv.Eq(b.forward, 0.7 * b + 0.1 * a.forward.dx + 0.1 * c.forward.dx + 0.05 * a.dy),
        dv.Eq(b.forward, dv.Max(dv.Min(b.forward, 0.8), -0.5) + 0.01 * dv.Abs(c)),
    ]
    lowered = check(equations, 0.1, 11, dtype)
    number = [field.name for field in lowered.stencil.fields].index("u")
    writes = [number in stage.targets for stage in lowered.stencil.stages]
    assert writes == [True, True, False]  # equation 4 writes u again after equation 3 has read it
    assert lowered.shape == (16, 1, 19)
    for function in (u, a, b, c):
        fill(function, -1.0)
    equations[2:4] = [equations[3], equations[2]]
    assert len(from_devito(equations, dt=0.1).stencil.stages) == 3


def random_program(rng: np.random.Generator, grid: Any) -> list[Any]:
    """Return random equations for up to three fields. An equation can read all fields. Some programs also have sources
    and receivers."""
    k = dv.Function(name="k", grid=grid, space_order=2)
    names = "uvw"[: rng.integers(1, 4)]
    fields = [dv.TimeFunction(name=n, grid=grid, space_order=2, time_order=int(rng.integers(1, 3))) for n in names]
    for function in (k, *fields):
        fill(function, -1.0)
    done: list[Any] = []

    def term(target: Any) -> Any:
        one = fields[rng.integers(len(fields))]
        newer, older = [one.forward] * (2 * (one in done)), [one.backward] * (one.time_order == 2)
        read = rng.choice([one, *newer, *older])
        if one is not target or read == one:
            read = rng.choice([read, read.dx, read.dy, read.laplace])
        return float(rng.uniform(-0.2, 0.2)) * rng.choice([1, k]) * read

    equations = []
    for target in [*rng.permutation(fields), *rng.choice(fields, rng.integers(0, 3))]:
        again = dv.Inc if target in done and rng.integers(2) else dv.Eq
        equations.append(again(target.forward, 0.5 * target + sum(term(target) for _ in range(rng.integers(1, 4)))))
        done.append(target)
    source, seen = wavelet("src", grid, 6, [[3.3, 7.2], [4.0, 8.5]]), receivers("rec", grid, 6, [[2.2, 6.1]])
    one, other = rng.choice(fields, 2)
    if rng.integers(2):
        last = max(place for place, equation in enumerate(equations) if equation.lhs.function is one)
        place = int(rng.choice([last + 1, len(equations)]))
        equations.insert(place, source.inject(field=one.forward, expr=0.1 * source))
    if rng.integers(2):
        equations.append(seen.interpolate(expr=rng.choice([one, one.forward, one - 0.5 * other.forward])))
    return equations


def test_random_programs() -> None:
    """Checks that each random program either is refused or gives the same numbers as Devito."""
    accepted, wanted = 0, examples(4)
    for seed in range(10 * wanted):
        if accepted == wanted:
            return
        equations = random_program(np.random.default_rng(seed), make_grid((9, 11), np.float64, 1.0))
        try:
            from_devito(equations, dt=0.1)
        except InputError as error:
            # the error names the time of a field, such as u(t, x, y) or u.forward
            assert "(t" in str(error) or ".forward" in str(error), error
            continue
        check(equations, 0.1, 6, np.float64)
        accepted += 1
    raise AssertionError(f"only {accepted} of {10 * wanted} programs were accepted")


def test_one_dimension_with_roots_and_powers() -> None:
    """Checks that a square root and powers of fields have Devito's values, on a grid of one axis."""
    grid = make_grid((40,), np.float64, 1.0)
    u = dv.TimeFunction(name="u", grid=grid, space_order=2)
    fill(u, 0.5)
    lowered = check(
        [dv.Eq(u.forward, u - 0.1 * dv.sqrt(u**2 + 1) * u.dxl + 0.01 * u**3 / (1 + u) + 0.1)], 0.1, 9, np.float64
    )
    assert (lowered.shape, lowered.dimensions) == ((1, 1, 44), ("", "", "x"))  # dxl reads two cells to the left
    assert lowered.origin == (0.0, 0.0, -2.0)


def test_a_halo_that_is_not_zero_is_kept() -> None:
    """Checks that values of the user in the halo of fields and coefficients become the rim of Outcrop's arrays."""
    grid = make_grid((12, 15), np.float64, 1.0)
    u = dv.TimeFunction(name="u", grid=grid, space_order=4)
    k = dv.Function(name="k", grid=grid, space_order=2)
    u.data_with_halo[:], k.data_with_halo[:] = 3.0, 0.5
    fill(u)
    flux = dv.Eq(u.forward, u + 0.1 * (k.dx * u.dx + k * u.laplace))
    check([flux], 0.1, 8, np.float64)
    u.data_with_halo[1, 0, :] = 1.0
    u.data_with_halo[1, 3, :] = 1.0
    with pytest.raises(InputError, match="u: its halo differs between time steps"):
        from_devito([flux], dt=0.1).initial("u")


def test_points_with_weights_of_their_own() -> None:
    """Checks that the points of a PrecomputedSparseTimeFunction use the cells and the coefficients that the user
    gives."""
    grid, steps = make_grid((12, 15), np.float64, 1.0), 9
    u = dv.TimeFunction(name="u", grid=grid, space_order=4, time_order=2)
    coefficients = np.random.default_rng(3).random((2, 2, 4))
    options = {"npoint": 2, "r": 2, "nt": steps + 3, "gridpoints": np.array([[4, 5], [7, 9]])}
    source = dv.PrecomputedSparseTimeFunction(name="src", grid=grid, interpolation_coeffs=coefficients, **options)
    seen = dv.PrecomputedSparseTimeFunction(name="rec", grid=grid, interpolation_coeffs=coefficients, **options)
    source.data[:] = np.random.default_rng(4).random(source.data.shape)
    wave = dv.Eq(u.forward, dv.solve(u.dt2 - u.laplace, u.forward))
    check([wave, source.inject(field=u.forward, expr=0.1 * source), seen.interpolate(expr=u)], 0.3, steps, np.float64)


def test_nothing_of_the_grids_size_is_allocated() -> None:
    """Checks that the translation of a script with 55 GB per field allocates no array."""
    grid = dv.Grid(shape=(2400, 2400, 2400), dtype=np.float32)
    u = dv.TimeFunction(name="u", grid=grid, space_order=8, time_order=2)
    m = dv.Function(name="m", grid=grid)
    source = dv.SparseTimeFunction(name="src", grid=grid, npoint=1, nt=5, coordinates=np.array([[0.5, 0.5, 0.5]]))
    wave = dv.Eq(u.forward, dv.solve(m * u.dt2 - u.laplace, u.forward))
    lowered = from_devito([wave, source.inject(field=u.forward, expr=source / m)], dt=1e-5)
    assert lowered.shape == (2408, 2408, 2408)
    assert u._data is None
    assert m._data is None
    assert lowered.initial("m") is None
    assert lowered.initial("u.previous") is None


def test_solutions_are_multiplied_out_where_that_cancels() -> None:
    """Checks that the result of `solve` becomes 2 u - u.previous + ... The result must not have factors dt**2, because
    such factors cancel only up to rounding."""
    grid = make_grid((9, 9), np.float32, 1.0)
    u = dv.TimeFunction(name="u", grid=grid, space_order=2, time_order=2)
    m = dv.Function(name="m", grid=grid)
    wave = dv.Eq(u.forward, dv.solve(m * u.dt2 - u.laplace, u.forward))
    m.data[:] = np.float32(0.7)
    u.data[:] = 1.0
    fields, _ = ours(from_devito([wave], dt=0.1, boundary="periodic"), 500)
    assert (fields["u"] == 1).all()


def test_boundaries_of_ours_instead_of_a_halo() -> None:
    """Checks that a grid with a given boundary has no padding, and that points keep their places in the grid."""
    grid = make_grid((8, 9), np.float64, 1.0)
    u = dv.TimeFunction(name="u", grid=grid, space_order=2)
    fill(u)
    seen = receivers("rec", grid, 6, [[0.0, 5.0], [2.5, 8.25]])
    diffuse = dv.Eq(u.forward, u + 0.1 * u.laplace)
    lowered = from_devito([diffuse, seen.interpolate(expr=u.forward)], dt=1.0, boundary="y=periodic,x=mirror")
    assert (lowered.padding, lowered.shape) == ((0, 0, 0), (8, 1, 9))
    fields, traces = ours(lowered, 6)
    assert fields["u"].sum() == pytest.approx(float(np.sum(u.data[0])), rel=1e-12)
    assert traces["rec"][-1, 0] == fields["u"][0, 0, 0]
    assert lowered.origin == (0.0, 0.0, 5.0)


def test_traces_are_put_where_devito_puts_them() -> None:
    """Checks that traces are in the same rows of rec.data as in Devito. If rec.data has too few rows, an error is
    raised."""
    grid = make_grid((8, 9), np.float32, 1.0)
    u = dv.TimeFunction(name="u", grid=grid, space_order=2, time_order=2)
    seen = receivers("rec", grid, 3, [[1.0, 6.0]])
    wave = dv.Eq(u.forward, 2 * u - u.backward + 0.1 * u.laplace)
    lowered = from_devito([wave, seen.interpolate(expr=u)], dt=1.0)
    seen.data[:] = -1.0
    lowered.put_traces({"rec": np.array([[3.0], [4.0]])})
    assert seen.data[:, 0].tolist() == [-1, 3, 4, -1, -1, -1]
    lowered.put_traces({"rec": np.array([[5.0]])}, first_step=4)
    assert seen.data[:, 0].tolist() == [-1, 3, 4, -1, -1, 5]
    with pytest.raises(InputError, match="rec has room for 5 of 6 steps"):
        lowered.put_traces({"rec": np.zeros((6, 1))})
    assert lowered.max_steps == 5


class Middle(dv.SubDomain):  # type: ignore[misc]
    """A box with different distances to the sides of the grid."""

    name = "middle_box"

    def define(self, dimensions: Any) -> dict[Any, Any]:
        x, y = dimensions
        return {x: ("middle", 2, 3), y: ("right", 4)}


class Whole(dv.SubDomain):  # type: ignore[misc]
    """A SubDomain that is the whole grid, like `physdomain` of Devito's models without a free surface."""

    name = "whole"

    def define(self, dimensions: Any) -> dict[Any, Any]:
        return {d: d for d in dimensions}


def test_boxes_of_cells() -> None:
    """Checks that three kinds of equations have Devito's values: equations on SubDomains, equations on single rows of
    cells, and boundary conditions that read neighbours."""
    grid = dv.Grid(shape=(10, 12), extent=(9.0, 11.0), dtype=np.float64, subdomains=(Middle(), Whole()))
    x, y = grid.dimensions
    t, middle = grid.stepping_dim, grid.subdomains["middle_box"]
    u = dv.TimeFunction(name="u", grid=grid, space_order=4)
    p = dv.TimeFunction(name="p", grid=grid, space_order=2, time_order=2)
    total = dv.Function(name="total", grid=grid, space_order=2)
    for function in (u, p):
        fill(function)
        function.data[:] = function.data[0]
    equations = [
        dv.Eq(u.forward, u + 0.1 * u.laplace, subdomain=middle),
        dv.Eq(u.forward, u * 0.5, subdomain=grid.interior),
        dv.Inc(u.forward, 1, subdomain=middle),
        dv.Eq(p.forward, 2 * p - p.backward + 0.1 * p.laplace + 0.01 * u, subdomain=grid.subdomains["whole"]),
        dv.Eq(p[t + 1, x, 0], p[t + 1, x, 2]),
        dv.Eq(p[t + 1, x.symbolic_max, y], 0),
        dv.Inc(total, p * p.forward + u.forward.dx),
    ]
    lowered = check(equations, 0.1, 9, np.float64)
    assert len(lowered.regions) == 4
    assert lowered.padding == (2, 0, 2)
    u.data[1, 0, 0] += 1  # a cell that no equation computes
    with pytest.raises(InputError, match="u: cells without an equation differ between time steps"):
        lowered.initial("u")


def test_sources_between_the_updates_of_boxes() -> None:
    """Checks sources that come before the last update of their field. The equations in between read the field only in
    cells without sources. Another source lies in a box that contains all computed cells of its field."""
    grid = dv.Grid(shape=(10, 12), extent=(9.0, 11.0), dtype=np.float64, subdomains=(Middle(),))
    x, y = grid.dimensions
    t, source = grid.stepping_dim, wavelet("src", grid, 9, [[3.5, 9.25]])
    u, v, w = (dv.TimeFunction(name=name, grid=grid, space_order=2) for name in "uvw")
    for function in (u, v, w):
        fill(function)
        function.data[:] = function.data[0]
    check([
        dv.Eq(u.forward, 0.5 * u + 0.1 * u.laplace),
        dv.Eq(w.forward, 0.5 * w + 0.1 * w.laplace, subdomain=grid.subdomains["middle_box"]),
        source.inject(field=u.forward, expr=source),
        dv.Eq(v.forward, 0.5 * v + u.dx),
        dv.Eq(v[t + 1, x, 2], u[t + 1, x, 3]),
        source.inject(field=w.forward, expr=source),
        dv.Eq(u[t + 1, 0, y], 0),
    ], 0.1, 9, np.float64)  # fmt: skip


def test_saved_rows_agree_in_cells_without_an_equation() -> None:
    """Checks a function with `save=` on a SubDomain. In the cells outside the SubDomain, Devito keeps the values that
    the user gives to each row. Outcrop has only one value for all rows, and refuses rows that differ."""
    grid = dv.Grid(shape=(10, 12), extent=(9.0, 11.0), dtype=np.float64, subdomains=(Middle(),))
    u = dv.TimeFunction(name="u", grid=grid, space_order=2, save=12)
    fill(u)
    u.data[:] = u.data[0]
    equation = dv.Eq(u.forward, u + 0.1 * u.laplace, subdomain=grid.subdomains["middle_box"])
    check([equation], 0.1, 11, np.float64)
    u.data[11, 3, 9] += 1  # a cell that the equation computes
    lowered = from_devito([equation], dt=0.1)
    assert lowered.initial("u") is not None
    u.data[11, 9, 5] += 1
    with pytest.raises(InputError, match="u: cells without an equation differ between time steps; give all of u"):
        lowered.initial("u")
    u.data[0, 9, 5] -= 1  # a loop that begins at time 11 does not use this row
    assert from_devito([equation], dt=0.1, first_time=11).initial("u") is not None


def test_the_interior_needs_no_region() -> None:
    """Checks that a box with the same distance to both sides becomes the fixed rim of the arrays."""
    grid = make_grid((10, 12), np.float64, 1.0)
    u = dv.TimeFunction(name="u", grid=grid, space_order=4, time_order=2)
    fill(u)
    u.data[:] = u.data[0]
    lowered = check(
        [dv.Eq(u.forward, 2 * u - u.backward + 0.1 * u.laplace, subdomain=grid.interior)], 0.1, 9, np.float64
    )
    assert not lowered.regions
    assert (lowered.padding, lowered.shape) == ((1, 0, 1), (12, 1, 14))


def test_backward_in_time() -> None:
    """Checks that equations for u.backward have Devito's values. Their sources and receivers use their rows from the
    last row to the first. One equation adds values to a Function at each step, as an imaging condition does."""
    grid, steps = make_grid((10, 12), np.float64, 1.0), 9
    v = dv.TimeFunction(name="v", grid=grid, space_order=2, time_order=2)
    image = dv.Function(name="image", grid=grid)
    pulse = dv.Function(name="pulse", dimensions=(grid.time_dim,), shape=(steps + 3,), dtype=np.float64)
    fill(v)
    pulse.data[:] = np.sin(np.arange(steps + 3.0))
    source, seen = wavelet("src", grid, steps, [[3.3, 7.2]]), receivers("rec", grid, steps, [[4.0, 8.5]])
    equations = [
        dv.Eq(v.backward, 2 * v - v.forward + 0.1 * v.laplace + 0.01 * pulse),
        source.inject(field=v.backward, expr=0.1 * source),
        dv.Inc(image, -v.dt2),
        seen.interpolate(expr=v),
    ]
    lowered = check(equations, 0.1, steps, np.float64)
    assert (lowered.first_time, lowered.direction, lowered.max_steps) == (steps + 1, -1, steps + 2)
    seen.data[:] = -1.0
    lowered.put_traces({"rec": np.array([[3.0], [4.0]])})
    assert seen.data[-4:, 0].tolist() == [-1, 4, 3, -1]


def test_values_of_earlier_steps() -> None:
    """Checks an update of u that reads u(t - 2 dt), and neighbours of u(t - dt). The update must have Devito's
    values."""
    grid = make_grid((10, 12), np.float64, 1.0)
    t = grid.stepping_dim
    u = dv.TimeFunction(name="u", grid=grid, space_order=2, time_order=3)
    fill(u)
    older = u.subs(t, t - 2 * t.spacing)
    lowered = check([dv.Eq(u.forward, 0.5 * u - 0.1 * u.backward.laplace + 0.1 * older)], 0.1, 9, np.float64)
    assert [field.name for field in lowered.stencil.fields] == ["u", "u_before_1", "u_before_2"]


def test_functions_of_static_fields() -> None:
    """Checks that a function of static fields is computed only once, also at places between cells and in the halo. The
    equation averages the inverse of one coefficient, which is 0 in some cells."""
    grid = make_grid((10, 12), np.float64, 1.0)
    u = dv.TimeFunction(name="u", grid=grid, space_order=2, staggered=grid.dimensions[0])
    theta = dv.Function(name="theta", grid=grid, space_order=2)
    mu = dv.Function(name="mu", grid=grid, space_order=2, avg_mode="safe_harmonic")
    c = dv.Constant(name="c", value=0.3, dtype=np.float64)
    for function in (u, theta, mu):
        fill(function)
    mu.data[4:6] = 0
    theta.data_with_halo[0] = 0.25
    rate = dv.cos(theta) + dv.sin(c) * theta**1.7
    lowered = check([dv.Eq(u.forward, u + 0.1 * (rate * u.dx).dx + 0.1 * mu * u.laplace)], 0.1, 9, np.float64)
    assert sorted(lowered.computed) == ["cos_theta_1", "pow_theta_1", "safeinv_mu_1"]


@pytest.mark.parametrize(("boundary", "mode"), [("periodic", "wrap"), ("mirror", "symmetric"), ("fixed", "edge")])
def test_functions_of_several_cells_with_a_boundary(boundary: str, mode: Any) -> None:
    """Checks functions of a mean of two cells if the sides have a boundary of Outcrop. Beyond a side, the boundary
    gives the values. Devito's halo is not used. A function that no kernel computes is refused."""
    grid = make_grid((8, 9), np.float64, 1.0)
    u = dv.TimeFunction(name="u", grid=grid, space_order=2, staggered=grid.dimensions[0])
    theta = dv.Function(name="theta", grid=grid, space_order=2)
    fill(u), fill(theta)
    rate = dv.cos(theta) + theta**1.7  # at the cells of u, theta is a mean of two cells
    fields, _ = ours(from_devito([dv.Eq(u.forward, u + rate)], dt=1.0, boundary=boundary), 1)
    wide = np.pad(np.asarray(theta.data), ((0, 1), (0, 0)), mode)
    mean = (wide[1:] + wide[:-1]) / 2
    before = np.array(u.data[0])
    expected = before + np.cos(mean) + mean**1.7
    if boundary == "fixed":
        expected[[0, -1]] = before[[0, -1]]
    np.testing.assert_allclose(fields["u"][:, 0], expected, rtol=1e-12)
    with pytest.raises(InputError, match=r"equation 1, for u.*: sinh\(.*\) reads several cells.* leave out boundary="):
        from_devito([dv.Eq(u.forward, u + dv.sinh(theta))], dt=1.0, boundary=boundary)


def test_sinc_interpolation() -> None:
    """Checks that sources and receivers with weights of a windowed sinc have Devito's values, on a grid with an origin.
    """
    grid, steps = dv.Grid(shape=(20, 22), extent=(19.0, 21.0), origin=(3.0, 2.0), dtype=np.float64), 9
    u = dv.TimeFunction(name="u", grid=grid, space_order=4, time_order=2)
    source = wavelet("src", grid, steps, [[10.3, 11.2]], interpolation="sinc", r=2)
    seen = dv.SparseTimeFunction(
        name="rec", grid=grid, npoint=2, nt=steps + 3, coordinates=np.array([[13.0, 11.5], [9.2, 12.0]]),
        interpolation="sinc", r=2,
    )  # fmt: skip
    wave = dv.Eq(u.forward, 2 * u - u.backward + 0.1 * u.laplace)
    check([wave, source.inject(field=u.forward, expr=source), seen.interpolate(expr=u)], 0.1, steps, np.float64)


def test_a_free_surface() -> None:
    """Checks rows of cells with mirrored indices, as in Devito's free surface. Also checks a source that comes before
    the equation of a boundary. This equation does not change the cells of the source."""

    class Surface(dv.SubDomain):  # type: ignore[misc]
        name = "surface"

        def define(self, dimensions: Any) -> dict[Any, Any]:
            x, y = dimensions
            return {x: x, y: ("left", 2)}

    grid = dv.Grid(shape=(14, 15), extent=(13.0, 14.0), dtype=np.float64, subdomains=(Surface(),))
    x = grid.dimensions[0]
    t, top = grid.stepping_dim, grid.subdomains["surface"]
    u = dv.TimeFunction(name="u", grid=grid, space_order=4)
    fill(u)
    u.data[:] = u.data[0]
    row = top.dimensions[1]
    above, sign = dv.symbolics.INT(abs(row - 2)), dv.finite_differences.elementary.sign(row - 2)
    source = wavelet("src", grid, 9, [[5.5, 7.25]])
    equations = [
        dv.Eq(u.forward, u + 0.1 * u.laplace),
        source.inject(field=u.forward, expr=source),
        dv.Eq(u.forward, u + 0.05 * (u[t, x, row + 1] - sign * u[t, x, above]),
              subdomain=top),
        dv.Eq(u[t + 1, x, 0], 0),
    ]  # fmt: skip
    lowered = check(equations, 0.1, 9, np.float64)
    assert len(lowered.stencil.stages) == 1
    source.coordinates.data[:] = [[5.5, 1.25]]
    with pytest.raises(InputError, match=r"a later equation overwrites u\.forward"):
        from_devito(equations, dt=0.1)


class Corner(dv.SubDomain):  # type: ignore[misc]
    """A box that touches one side of the grid."""

    name = "corner"

    def define(self, dimensions: Any) -> dict[Any, Any]:
        x, y = dimensions
        return {x: ("middle", 3, 4), y: ("left", 5)}


@BOTH
def test_positions(dtype: Any) -> None:
    """Checks indices and coordinates of cells in equations for staggered fields, in derivatives, in functions, and in
    boxes. A halo around the grid does not change these indices and coordinates."""
    grid = dv.Grid(shape=(14, 16), extent=(6.5, 30.0), origin=(1.5, -4.0), dtype=dtype, subdomains=(Corner(),))
    u = dv.TimeFunction(name="u", grid=grid, space_order=4)
    v = dv.TimeFunction(name="v", grid=grid, space_order=4, staggered=grid.dimensions[0])
    theta = dv.Function(name="theta", grid=grid, space_order=4)
    for function in (u, v, theta):
        fill(function)
    (x, y), (h_x, h_y), (o_x, o_y) = grid.dimensions, grid.spacing_symbols, grid.origin_symbols
    corner = grid.subdomains["corner"]
    ix, iy = corner.dimensions
    middle, height = abs(x - x.symbolic_size / 2), y * h_y + o_y - y.symbolic_max
    equations = [
        dv.Eq(v.forward, 0.5 * v + 0.01 * u.dx * (x * h_x + o_x) + 0.01 * x),
        dv.Eq(u.forward, 0.5 * u + 0.01 * (y * h_y * v.forward.dx).dy + dv.cos(theta + x) * height),
        dv.Eq(u.forward, u.forward + 0.3 * ix + 0.7 * iy / (1 + ix), subdomain=corner),
        dv.Eq(u[grid.stepping_dim + 1, x, 0], 0.1 * x + 0.01 * middle),
    ]
    lowered = check(equations, 0.1, 9, dtype)
    assert lowered.padding[0] > 0 and lowered.padding[2] > 0


@BOTH
@pytest.mark.parametrize("shape", [(18,), (7, 8, 9)])
def test_positions_on_other_grids(dtype: Any, shape: tuple[int, ...]) -> None:
    """Checks grids of one and three axes. Each of Devito's dimensions must become the right axis, and the inner cells
    must have the same indices as in Devito."""
    grid = make_grid(shape, dtype, 1.0)
    value = sum(100.0**place * one for place, one in enumerate(grid.dimensions)) / 1e4
    for domain in (None, grid.interior):
        u = dv.TimeFunction(name="u", grid=grid, space_order=2)
        fill(u)
        u.data[:] = u.data[0]
        check([dv.Eq(u.forward, 0.9 * u + 0.01 * u.laplace + value, subdomain=domain)], 0.1, 5, dtype)


@BOTH
@pytest.mark.parametrize("order", [1, 2])
def test_the_time_as_a_value(dtype: Any, order: int) -> None:
    """Checks that the number of the time equals Devito's number. For equations of second order, this number begins at
    1. In equations for u.backward, the number decreases. A running Fourier transform also reads the time."""
    grid = make_grid((11, 12), dtype, 1.0)
    u = dv.TimeFunction(name="u", grid=grid, space_order=2, time_order=order)
    back = dv.TimeFunction(name="back", grid=grid, space_order=2, time_order=order)
    image = dv.Function(name="image", grid=grid)
    ends = dv.Function(name="ends", dimensions=(grid.time_dim,), shape=(13,), dtype=dtype)
    ends.data[:] = 0.25
    for function in (u, back):
        fill(function)
    time, dt = grid.time_dim, grid.time_dim.spacing
    before = 0 if order == 1 else 0.1 * u.backward
    forward = dv.Eq(u.forward, 0.5 * u - before + dv.sin(time * dt * 3) + 0.01 * time)
    lowered = check([forward, dv.Inc(image, u.forward * dv.cos(0.3 * time))], 0.1, 9, dtype)
    assert (lowered.first_time, lowered.stencil.given_signals) == (order - 1, ())
    check([dv.Eq(back.backward, 0.5 * back + ends * time * grid.dimensions[0])], 0.1, 9, dtype)
