"""Check that each stencil of the library computes the equation in its docstring, with the stated order of accuracy.
"""

from __future__ import annotations

import numpy as np
import pytest

from fields import State, along, grid_of, noise, order_between, run, zeros
from outcrop.language import library
from outcrop.language.library.differences import second_derivative
from outcrop.language.stencil import PREVIOUS


def symbol(order: int, phase: float) -> float:
    """Return the factor by which the negative second difference multiplies a wave. `phase` is the change of the wave's
    phase per cell, and the spacing is 1."""
    centre, *around = (float(w) for w in second_derivative(order))
    return -(centre + 2 * sum(w * np.cos(k * phase) for k, w in enumerate(around, 1)))


@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize("order", [2, 4, 8])
def test_a_heat_mode_decays_at_its_discrete_rate(ndim: int, order: int) -> None:
    """Checks each weight and axis of the heat equation. A diagonal wave keeps its form, and decays by the factor from
    `symbol`."""
    stencil, cells, steps = library.heat(ndim, order), 12, 5
    values = {"kappa": 0.7, "dt": 0.04, "h": 0.9}
    shape, phase = grid_of(stencil, cells), 2 * np.pi / cells
    wave = np.cos(phase * sum(along(shape, axis) for axis in "zyx"))
    factor = 1 - ndim * values["kappa"] * values["dt"] / values["h"] ** 2 * symbol(order, phase)
    np.testing.assert_allclose(run(stencil, {"u": wave}, steps, values)["u"], factor**steps * wave, atol=1e-13)


@pytest.mark.parametrize("order", [2, 4, 6, 8])
def test_heat_converges_with_its_order_in_space(order: int) -> None:
    """Checks that the rate of decay converges to kappa k^2 with the order of the stencil."""
    stencil, dt = library.heat(1, order), 1e-3

    def error(cells: int) -> float:
        wave = np.cos(2 * np.pi / cells * along((1, 1, cells)))
        after = run(stencil, {"u": wave}, 1, {"h": 1 / cells, "dt": dt / cells**2})["u"]
        rate = (1 - after[0, 0, 0] / wave[0, 0, 0]) / (dt / cells**2)
        return abs(float(rate) - (2 * np.pi) ** 2)

    assert order_between(error(8), error(16)) == pytest.approx(order, abs=0.35)


@pytest.mark.parametrize("order", [2, 4, 8])
def test_a_standing_sound_wave_converges_with_its_order(order: int) -> None:
    """Checks the order of accuracy of the wave equation. The phase error must fall as h^order if dt is proportional to
    h^(order/2)."""
    stencil, speed, length = library.acoustic(1, order), 1500.0, 1000.0

    def error(cells: int, steps_per_period: int) -> float:
        wave, turn = np.cos(2 * np.pi / cells * along((1, 1, cells))), 2 * np.pi / steps_per_period
        state = {"u": wave, "v": np.full(wave.shape, speed), "u" + PREVIOUS: wave * np.cos(turn)}
        values = {"dt": length / speed / steps_per_period, "h": length / cells}
        after = run(stencil, state, steps_per_period * 5 // 4, values)["u"]
        return float(np.abs(after).max())  # after 1 1/4 periods the wave is 0 everywhere

    assert order_between(error(8, 40), error(16, 40 * 2 ** (order // 2))) == pytest.approx(order, abs=0.3)


@pytest.mark.parametrize("ndim", [2, 3])
def test_sound_oscillates_at_its_discrete_frequency(ndim: int) -> None:
    """Checks that a diagonal sound wave oscillates with the frequency of the discrete dispersion relation, up to
    rounding."""
    order, cells, values = 8, 10, {"dt": 1e-3, "h": 5.0}
    stencil = library.acoustic(ndim, order)
    shape, phase, speed = grid_of(stencil, cells), 2 * np.pi / cells, 2000.0
    wave = np.cos(phase * sum(along(shape, axis) for axis in "zyx"))
    courant = speed * values["dt"] / values["h"]
    turn = 2 * np.arcsin(courant / 2 * np.sqrt(ndim * symbol(order, phase)))
    state = {"u": wave, "v": np.full(shape, speed), "u" + PREVIOUS: wave * np.cos(turn)}
    np.testing.assert_allclose(run(stencil, state, 9, values)["u"], np.cos(9 * turn) * wave, atol=1e-11)


def test_a_sponge_absorbs() -> None:
    """Checks absorbing sides with a wavelet whose length is half the width of the layer. The layer reflects about 1 %
    of the wavelet. Without a sponge, the whole wavelet is reflected.
    """
    stencil, shape, speed, width, wavelength = library.acoustic(1, 8, sponge=True), (1, 1, 200), 2000.0, 40, 20
    x = along(shape)

    def ricker(middle: float) -> np.ndarray:
        square = ((x - middle) * np.pi / wavelength) ** 2
        return (1 - 2 * square) * np.exp(-square)

    damp = library.sponge(shape, width, velocity=speed, spacing=10.0, sides=("x1",), dtype="float64")(0, 1)
    # the wavelet moves to the right by 0.4 cells per step, into the layer, and then back
    state = {"u": ricker(130), "u" + PREVIOUS: ricker(129.6), "v": np.full(shape, speed), "damp": damp}
    values, steps = {"dt": 2e-3, "h": 10.0}, 320
    quiet = run(stencil, state, steps, values, "fixed")["u"]
    loud = run(stencil, state | {"damp": 0 * damp}, steps, values, "fixed")["u"]
    assert np.abs(loud).max() > 0.9
    assert np.abs(quiet).max() < 0.02


def speed_of(stencil_ndim: int, velocity: str, axis: str) -> float:
    """Return the speed of a standing wave along one axis, in which one velocity component oscillates. A second
    difference in time gives the speed.
    """
    stencil, vp, vs, rho = library.elastic(stencil_ndim, 4), 3000.0, 1700.0, 2200.0
    cells = 40
    shape = tuple(cells if one == axis else 1 if stencil_ndim == 2 and one == "y" else 4 for one in "zyx")
    rock = {"lam": rho * (vp**2 - 2 * vs**2), "mu": rho * vs**2, "b": 1 / rho}
    state = zeros(stencil, shape) | {name: np.full(shape, value) for name, value in rock.items()}  # type: ignore[arg-type]
    state[velocity] = np.sin(2 * np.pi / cells * along(shape, axis))  # type: ignore[arg-type]
    values = {"dt": 1e-4, "h": 10.0}
    path = [run(stencil, state, steps, values)[velocity] for steps in (1, 2, 3)]
    place = np.unravel_index(np.abs(path[1]).argmax(), shape)
    square = -(path[2][place] - 2 * path[1][place] + path[0][place]) / path[1][place] / values["dt"] ** 2
    return float(np.sqrt(square) * cells * values["h"] / (2 * np.pi))


@pytest.mark.parametrize(
    ("ndim", "velocity", "axis", "speed"),
    [(3, "vx", "x", 3000), (3, "vy", "y", 3000), (3, "vz", "z", 3000), (3, "vx", "z", 1700), (3, "vy", "x", 1700),
     (3, "vz", "y", 1700), (2, "vx", "x", 3000), (2, "vy", "z", 3000), (2, "vy", "x", 1700)],
)  # fmt: skip
def test_elastic_waves_have_the_speeds_of_p_and_s(ndim: int, velocity: str, axis: str, speed: float) -> None:
    """Checks the speeds of P and S waves along each axis. Together, the cases test all nine equations. In a stencil
    with two axes, the test uses the letter z for the axis y.
    """
    assert speed_of(ndim, velocity, axis) == pytest.approx(speed, rel=1e-4)


@pytest.mark.parametrize("ndim", [2, 3])
def test_elastic_energy_is_conserved_in_any_medium(ndim: int) -> None:
    """Checks that the sum of kinetic and strain energy is constant. Wrong differences, or wrong means of b and mu,
    would change the sum.
    """
    stencil = library.elastic(ndim, 4)
    shape, rng = (8, 8, 9) if ndim == 3 else (8, 1, 9), np.random.default_rng(2)
    state = noise(stencil, shape, {})
    for name, value in (("lam", 9e9), ("mu", 5e9), ("b", 5e-4)):
        state[name] = value * (0.7 + 0.6 * rng.random(shape))
    for name in [one for one in state if one.startswith("t")]:
        state[name] *= 6e6
    axes = "zyx" if ndim == 3 else "yx"
    place = {"z": 0, "y": 1, "x": 2} if ndim == 3 else {"y": 0, "x": 2}

    def ahead(values: np.ndarray, *names: str) -> np.ndarray:
        for name in names:
            values = (values + np.roll(values, -1, place[name])) / 2
        return values

    def energy(before: State, after: State) -> float:
        """Return the total energy at the time of the stresses. The kinetic energy is computed from the velocities half
        a step before and half a step after this time."""
        lam, mu, b = before["lam"], before["mu"], before["b"]
        total = sum((before[f"v{a}"] * after[f"v{a}"] / ahead(b, a)).sum() for a in axes)
        trace = sum(before[f"t{a}{a}"] for a in axes)
        total += sum((before[f"t{a}{a}"] ** 2 / (2 * mu)).sum() for a in axes)
        total -= (lam * trace**2 / (2 * mu * (ndim * lam + 2 * mu))).sum()
        shears = [(a, c) for a in axes for c in axes if a < c]
        return float(total + sum((before[f"t{a}{c}"] ** 2 / ahead(mu, a, c)).sum() for a, c in shears))

    values = {"dt": 8e-4}
    later = run(stencil, state, 40, values)
    first = energy(state, run(stencil, state, 1, values))
    assert energy(later, run(stencil, later, 1, values)) == pytest.approx(first, rel=1e-11)
    assert not np.allclose(later["vx"], state["vx"], rtol=0.1)


@pytest.mark.parametrize("name", ["maxwell", "maxwell_2d", "maxwell_2d_te", "maxwell_1d"])
def test_electromagnetic_energy_is_conserved_in_any_medium(name: str) -> None:
    """Checks that Yee's scheme conserves the sum of eps E^2 + H1 H2 up to rounding. H1 is the value of H half a step
    before E, and H2 is the value of H half a step after E.
    """
    stencil = library.find_stencil(name)
    shape = {3: (6, 7, 8), 2: (9, 1, 8), 1: (1, 1, 20)}[stencil.ndim]
    state = noise(stencil, shape, {})
    state["eps"] = 1 + 3 * np.random.default_rng(4).random(shape)
    place = {3: {"z": 0, "y": 1, "x": 2}, 2: {"y": 0, "x": 2}, 1: {"x": 2}}[stencil.ndim]

    def eps_at(axis: str) -> np.ndarray:
        eps = state["eps"]
        return (eps + np.roll(eps, -1, place[axis])) / 2 if axis in place else eps

    def energy(before: State, after: State) -> float:
        electric = sum((eps_at(e[1]) * before[e] ** 2).sum() for e in before if e in ("ex", "ey", "ez"))
        return float(electric + sum((before[h] * after[h]).sum() for h in before if h in ("hx", "hy", "hz")))

    later = run(stencil, state, 100)
    first = energy(state, run(stencil, state, 1))
    assert energy(later, run(stencil, later, 1)) == pytest.approx(first, rel=1e-12)
    assert not np.allclose(later["ey" if "ey" in later else "ez"], state["ey" if "ey" in state else "ez"], rtol=0.1)


WAVES = [("maxwell_1d_vacuum", "ez", "hy", -1, "x"), ("maxwell_2d", "ez", "hy", -1, "x"),
         ("maxwell_2d", "ez", "hx", 1, "z"), ("maxwell_2d_te", "ey", "hz", 1, "x"),
         ("maxwell_2d_te", "ex", "hz", -1, "z"), ("maxwell", "ez", "hy", -1, "x"),
         ("maxwell", "ey", "hx", -1, "z"), ("maxwell", "ez", "hx", 1, "y")]  # fmt: skip


@pytest.mark.parametrize(("name", "e", "h", "sign", "axis"), WAVES)
def test_light_moves_one_cell_per_step_at_the_limit(name: str, e: str, h: str, sign: int, axis: str) -> None:
    """Checks signs and components of Maxwell's equations. The scheme is exact along an axis for c dt = h, so each pulse
    keeps its form."""
    stencil, cells = library.find_stencil(name), 12
    place = "zyx".index(axis)
    shape: tuple[int, ...] = tuple(cells if one == place else 1 for one in range(3))
    state = zeros(stencil, shape)  # type: ignore[arg-type]
    if "eps" in state:
        state["eps"] += 1
    state[e] = np.random.default_rng(6).random(shape)
    state[h] = sign * state[e]  # H is half a cell ahead and half a step earlier, so the pulse moves ahead
    values = {"c": 1.0, "dt": 0.5, "h": 0.5}
    state[h] = np.roll(state[h], -1, place)
    after = run(stencil, state, 5, values)
    np.testing.assert_allclose(after[e], np.roll(state[e], 5, place), atol=1e-12)


def test_a_conductor_loses_its_field_at_the_right_rate() -> None:
    """Checks the conductivity sigma and its unit. A uniform field decays as exp(-sigma t / (eps eps0)), and the error
    has second order in dt."""
    stencil, sigma, eps = library.maxwell(2, medium="lossy"), 0.02, 2.5

    def error(steps: int) -> float:
        time = 1e-9
        state = noise(stencil, (3, 1, 3), {"ez": 1, "hx": 0, "hy": 0, "eps": eps, "sigma": sigma})
        after = run(stencil, state, steps, {"dt": time / steps})["ez"]
        return abs(float(after[1, 0, 1]) - np.exp(-sigma * time / (eps * 8.8541878128e-12)))

    assert error(40) < 1e-4
    assert order_between(error(20), error(40)) == pytest.approx(2, abs=0.05)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_advection_conserves_the_sum(ndim: int, order: int) -> None:
    """Checks that advection conserves the sum of the field, with velocities of both signs."""
    stencil = library.advection(ndim, order)
    speeds = list({"vx": 0.9, "vy": -0.6, "vz": 0.3}.items())
    values = {**dict(speeds[:ndim]), "dt": 0.5}
    u = np.random.default_rng(7).random(grid_of(stencil, 6, 9))
    after = run(stencil, {"u": u}, 100, values)["u"]
    assert after.sum() == pytest.approx(u.sum(), rel=1e-13)
    if order == 1:
        assert u.min() <= after.min() <= after.max() <= u.max()


@pytest.mark.parametrize("order", [1, 2])
def test_advection_converges_with_its_order(order: int) -> None:
    """Checks the direction and the speed of advection. A wave travels along the diagonal of a periodic grid and returns
    to its start. The error of its values falls as h^order."""
    stencil = library.advection(2, order)

    def error(cells: int) -> float:
        phase = 2 * np.pi / cells
        shape = grid_of(stencil, cells)
        wave = np.sin(phase * along(shape)) * np.cos(phase * along(shape, "z"))
        values = {"vx": 1.0, "vy": -1.0, "dt": 0.4}
        return float(np.abs(run(stencil, {"u": wave}, cells * 5 // 2, values)["u"] - wave).mean())

    assert order_between(error(64), error(128)) == pytest.approx(order, abs=0.25)


def test_gray_scott_makes_a_pattern() -> None:
    """Checks the Gray-Scott stencil: a pattern spreads from a patch in the middle, and both species stay between 0 and
    1."""
    stencil, shape = library.gray_scott(2), (40, 1, 40)
    state = {"u": np.ones(shape), "v": np.zeros(shape)}
    middle = (slice(16, 24), slice(None), slice(16, 24))
    state["u"][middle], state["v"][middle] = 0.5, 0.25
    after = run(stencil, state, 1000)
    assert 0 < after["u"].min() < 0.5 < after["u"].max() <= 1
    assert after["v"].min() >= 0
    assert 0.2 < after["v"].max() < 0.5
    assert after["v"].std() > 0.08
    assert (after["v"][:12] > 0.1).any(), "it spreads"
    np.testing.assert_allclose(after["v"], after["v"][::-1, :, ::-1], atol=1e-6)


def test_gray_scott_without_diffusion_is_the_reaction() -> None:
    """Checks the rates and the signs of the reaction in one cell. The test has its own copy of the two equations."""
    u, v, feed, kill, dt = 0.6, 0.3, 0.03, 0.06, 0.5
    state = {"u": np.full((4, 1, 4), u), "v": np.full((4, 1, 4), v)}
    after = run(library.gray_scott(2), state, 1, {"feed": feed, "kill": kill, "dt": dt})
    assert after["u"][2, 0, 2] == pytest.approx(u + dt * (-u * v**2 + feed * (1 - u)), rel=1e-14)
    assert after["v"][2, 0, 2] == pytest.approx(v + dt * (u * v**2 - (feed + kill) * v), rel=1e-14)


def fluid(ndim: int, flow: dict[str, np.ndarray], shape: tuple[int, int, int]) -> State:
    """Return the fields of a fluid in equilibrium at density 1. The formula has second order in the velocity. Each
    field is the difference from its value in a fluid at rest. `flow` has the velocity along each axis."""
    axes = "zyx" if ndim == 3 else "yx"
    u = np.stack([np.broadcast_to(flow.get(axis, 0.0), shape) for axis in axes])
    state = {}
    for i, (c, w) in enumerate(zip(library.lattice_directions(ndim), library.lattice_weights(ndim), strict=True)):
        along_c = np.tensordot(np.array(c, float), u, axes=1)
        state[f"f{i}"] = w * (3 * along_c + 4.5 * along_c**2 - 1.5 * (u**2).sum(axis=0))
    return state


def moments(ndim: int, state: State) -> tuple[np.ndarray, np.ndarray]:
    """Return the density and the momentum. The first axis of the array of momenta is the direction."""
    f = np.stack([state[f"f{i}"] for i in range(len(state))])
    return 1 + f.sum(axis=0), np.tensordot(np.array(library.lattice_directions(ndim), float).T, f, axes=1)


@pytest.mark.parametrize("ndim", [2, 3])
def test_fluids_conserve_mass_and_momentum(ndim: int) -> None:
    """Checks that collisions and streaming conserve mass and momentum up to rounding, on a periodic grid."""
    stencil = library.lattice_boltzmann(ndim)
    shape, rng = grid_of(stencil, 5, 6), np.random.default_rng(8)
    weights = library.lattice_weights(ndim)
    state = {f"f{i}": w * 0.2 * rng.random(shape) for i, w in enumerate(weights)}
    after = run(stencil, state, 30, {"tau": 0.9})
    (mass, momentum), (mass_after, momentum_after) = moments(ndim, state), moments(ndim, after)
    assert mass_after.sum() == pytest.approx(mass.sum(), rel=1e-13)
    axes = (1, 2, 3)
    np.testing.assert_allclose(momentum_after.sum(axes), momentum.sum(axes), atol=1e-12)
    assert mass_after.std() < mass.std()


@pytest.mark.parametrize("ndim", [2, 3])
def test_a_uniform_flow_is_an_equilibrium(ndim: int) -> None:
    """Checks the equilibrium of each direction. A uniform flow must stay constant up to rounding, even if it is not
    parallel to an axis."""
    stencil = library.lattice_boltzmann(ndim)
    flow = {"x": np.array(0.05), "y": np.array(-0.03), "z": np.array(0.02)}
    state = fluid(ndim, flow, grid_of(stencil, 4))
    after = run(stencil, state, 10, {"tau": 0.7})
    for name, f in state.items():
        np.testing.assert_allclose(after[name], f, rtol=1e-12)


def test_fluids_keep_their_mass_in_float32() -> None:
    """Checks that the mass is conserved in float32. The fields hold only the difference from a fluid at rest, so
    rounding errors stay small.
    """
    stencil, shape = library.lattice_boltzmann(2), (12, 1, 16)
    sound = 1e-3 * np.cos(2 * np.pi * np.arange(16) / 16)
    state = {f"f{i}": np.broadcast_to(w * sound, shape) for i, w in enumerate(library.lattice_weights(2))}
    before = {name: f.astype("float32") for name, f in state.items()}
    after = run(stencil, before, 400, {"tau": 0.7})
    masses = [sum(float(f.sum(dtype="float64")) for f in one.values()) for one in (before, after)]
    assert abs(masses[1] - masses[0]) < 1e-9 * sound.size * shape[0]


@pytest.mark.parametrize(
    ("ndim", "flow", "axis"), [(2, "y", "x"), (2, "x", "z"), (3, "y", "x"), (3, "x", "z"), (3, "z", "y")]
)
@pytest.mark.parametrize("tau", [0.6, 1.1])
def test_a_shear_wave_decays_by_the_viscosity(ndim: int, flow: str, axis: str, tau: float) -> None:
    """Checks the viscosity with a weak shear flow. Its velocity is a sine across the flow, and decays by the factor
    exp(-k^2 t (tau - 1/2)/3)."""
    stencil, cells, steps = library.lattice_boltzmann(ndim), 32, 30
    shape = tuple(cells if one == axis else 1 if ndim == 2 and one == "y" else 3 for one in "zyx")
    k = 2 * np.pi / cells
    wave = 1e-3 * np.sin(k * along(shape, axis))  # type: ignore[arg-type]
    state = run(stencil, fluid(ndim, {flow: wave}, shape), 15, {"tau": tau})  # type: ignore[arg-type]
    later = run(stencil, state, steps, {"tau": tau})
    speeds = [moments(ndim, one)[1]["zyx"[3 - ndim :].index(flow)] for one in (state, later)]
    before, after = (float((speed * wave).sum()) for speed in speeds)
    assert np.log(after / before) == pytest.approx(-(k**2) * steps * (tau - 0.5) / 3, rel=0.02)


def test_the_stream_function_solves_laplace() -> None:
    """Checks the flow through a box. The iteration converges to the solution of the linear system, and the inflow
    equals the outflow.
    """
    shape = (14, 18)
    initial = library.inlet_outlet(shape, inlet=(4, 8), outlet=(5, 10), flux=2.0)(0, 14)
    state = {"psi": initial.reshape(14, 1, 18)}
    psi = run(library.stream_function(), state, 1500, boundary="fixed")["psi"][:, 0]
    inner = [(z, x) for z in range(1, 13) for x in range(1, 17)]
    number = {cell: i for i, cell in enumerate(inner)}
    matrix, right = np.eye(len(inner)) * 4, np.zeros(len(inner))
    for (z, x), i in number.items():
        for cell in ((z - 1, x), (z + 1, x), (z, x - 1), (z, x + 1)):
            if cell in number:
                matrix[i, number[cell]] = -1
            else:
                right[i] += initial[cell]
    np.testing.assert_allclose(psi[1:-1, 1:-1].ravel(), np.linalg.solve(matrix, right), atol=1e-10)
    assert (psi[0, :5] == 0).all()
    assert (psi[0, 8:] == 2).all()
    assert (psi[:6, -1] == 2).all()
    assert (psi[10:, -1] == 0).all()
    assert (psi[-1] == 0).all()
