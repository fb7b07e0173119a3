"""Compare gradients with gradients of other programs that solve the same discrete equation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outcrop as oc

Array = np.ndarray[Any, Any]
SPACING, STEP = 10.0, 1.2  # metres, milliseconds


def wavelet(steps: int) -> Array:
    """Return a Ricker wavelet of 25 Hz, with a value for each step."""
    argument = (np.pi * 0.025 * (np.arange(steps) * STEP - 40)) ** 2
    return (1 - 2 * argument) * np.exp(-argument)


def test_the_gradient_is_that_of_devitos_jacobian_adjoint(tmp_path: Path) -> None:
    """Compares the gradient with respect to the squared slowness m, in float32, for an acoustic equation of order 8.

    The method `jacobian_adjoint` of the class AcousticWaveSolver is in Devito's examples, which are not installed with
    Devito. The operators below have the equations of the functions ForwardOperator and GradientOperator in these
    examples, with absorbing sides. The source has the scale dt² / m. Both gradients include the derivative of this
    scale.
    """
    dv = pytest.importorskip("devito")
    dv.configuration["log-level"] = "ERROR"
    shape, steps = (22, 24, 26), 80
    extent = tuple(SPACING * (n - 1) for n in shape)
    grid = dv.Grid(shape=shape, extent=extent, dtype=np.float32)
    options = {"grid": grid, "space_order": 8, "time_order": 2}
    u = dv.TimeFunction(name="u", save=steps + 2, **options)
    v, m = dv.TimeFunction(name="v", **options), dv.Function(name="m", grid=grid)
    image = dv.Function(name="image", grid=grid)
    damp = dv.Function(name="damp", grid=grid)
    damp.data[:] = 0.03
    damp.data[(slice(5, -5),) * 3] = 0.0
    m.data[:] = 0.25 + 0.1 * np.random.default_rng(0).random(shape)
    middle = tuple(n // 2 for n in shape)
    points = [[SPACING * (place + shift) for place, shift in zip(middle, (4.3, one, 2.6), strict=True)]
              for one in (-5.2, -1.4, 5.3)]  # fmt: skip
    source = dv.SparseTimeFunction(
        name="src", grid=grid, npoint=1, nt=steps + 2, coordinates=np.array([middle]) * SPACING
    )
    record = dv.SparseTimeFunction(name="rec", grid=grid, npoint=3, nt=steps + 2, coordinates=np.array(points))
    source.data[:, 0] = wavelet(steps + 2)
    s = grid.stepping_dim.spacing

    def forward(field: Any) -> list[Any]:
        update = dv.Eq(field.forward, dv.solve(m * field.dt2 - field.laplace + damp * field.dt, field.forward))
        return [update, source.inject(field=field.forward, expr=source * s**2 / m), record.interpolate(expr=field)]

    dv.Operator(forward(u), opt="noop").apply(dt=STEP, time_m=1, time_M=steps)
    traces = np.array(record.data[1 : steps + 1])
    back = dv.Eq(v.backward, dv.solve(m * v.dt2 - v.laplace + damp * v.dt.T, v.backward))
    residuals = record.inject(field=v.backward, expr=record * s**2 / m)
    dv.Operator([back, residuals, dv.Inc(image, -u * v.dt2)], opt="noop").apply(dt=STEP, time_m=1, time_M=steps)

    equations = forward(dv.TimeFunction(name="u", **options))
    sim = oc.Simulation(equations, dt=STEP, directory=tmp_path / "run.oc", memory="64MiB")
    sim.assign({"m": np.array(m.data), "damp": np.array(damp.data)})
    _, gradient = sim.gradient(steps, oc.Misfit("rec", None), "m", progress="none")
    assert np.abs(sim.traces["rec"] - traces).max() <= 1e-5 * np.abs(traces).max()
    assert np.abs(gradient["m"][:] - image.data).max() <= 1e-5 * np.abs(image.data).max()


@pytest.mark.parametrize(("dtype", "difference"), [("float32", 1e-5), ("float64", 1e-12)])
def test_traces_and_the_gradient_are_those_of_deepwave(dtype: str, difference: float, tmp_path: Path) -> None:
    """Compares the traces and the gradient with respect to the speed v, for waves of order 8 in a periodic grid.

    A source of deepwave has the scale -(v dt)². Both gradients include the derivative of this scale. The time step is
    below deepwave's limit, so that deepwave does not use shorter steps.
    """
    deepwave, torch = pytest.importorskip("deepwave"), pytest.importorskip("torch")
    shape, steps, dt = (40, 44), 120, 0.002
    source, receivers = (12, 15), [(25, 18), (30, 33), (8, 40)]
    speed = (1500 + 500 * np.random.default_rng(0).random(shape)).astype(dtype)
    v = torch.tensor(speed, requires_grad=True)
    *_, recorded = deepwave.scalar(
        v, SPACING, dt, accuracy=8, pml_width=0, pml_freq=15.0, boundary="periodic",
        source_amplitudes=torch.tensor(wavelet(steps).astype(dtype)).reshape(1, 1, steps),
        source_locations=torch.tensor([[source]]), receiver_locations=torch.tensor([receivers]),
    )  # fmt: skip
    (recorded**2 / 2).sum().backward()
    traces, expected = recorded.detach().numpy()[0].T, v.grad.numpy()

    scale = -((oc.Field("v")[0, 0] * dt) ** 2)
    sim = oc.Simulation(
        oc.stencils.acoustic(order=8, ndim=2), shape, dtype, directory=tmp_path / "run.oc", memory="64MiB",
        boundary="periodic", params={"h": SPACING}, dt=dt,
        sources=[oc.Source("u", [source], wavelet(steps), scale)],
        receivers=[oc.Receivers("line", "u", receivers, before=True)],
    )  # fmt: skip
    sim["v"] = speed
    _, gradient = sim.gradient(steps, oc.Misfit("line", None), "v", progress="none")
    assert np.abs(sim.traces["line"] - traces).max() <= difference * np.abs(traces).max()
    assert np.abs(gradient["v"][:] - expected).max() <= difference * np.abs(expected).max()
