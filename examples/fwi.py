"""Recover an unknown velocity from recorded waves. The method is called full-waveform inversion.

    .venv/bin/python examples/fwi.py [--size 96] [--shots 8] [--steps 12] [--small] [--memory 4MiB] [-d DIRECTORY]

The velocity of sound is 2000 m/s, except in two round bodies, where it is different. Sources and receivers are on a
circle around the bodies. The search for the velocity begins with a velocity without the bodies. Each evaluation of the
misfit has two runs for each shot:

1. The run with the current velocity keeps every 4th state in a history. The residual is the traces of the run with the
   current velocity minus the data of the true velocity.
2. The adjoint run uses the residual and the history to compute the gradient of the misfit with respect to the velocity.

The program computes the data with the same equation on the same grid, without noise. Therefore the program can recover
the velocity almost exactly. With measured data, the recovered velocity is less exact.

L-BFGS, an optimiser of SciPy, uses misfits and gradients to improve the velocity. The program needs SciPy (`pip install
scipy`). `--steps` is the number of iterations. `fwi.png` shows the true bodies, the recovered bodies and the misfits.

Each evaluation of the misfit takes about one second for each shot on two cores. With 8 shots and 12 iterations, the
program takes about two minutes, and 14 MB on disk. With `--small`, there are 4 shots and 6 iterations, and the program
takes less than a minute.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import options
from marmousi import ricker
from scipy.optimize import minimize

import outcrop as oc

VELOCITY = 2000.0
"""The velocity outside the bodies, in m/s."""
BODIES = ((-0.12, -0.10, 0.11, 160.0), (0.14, 0.12, 0.08, -160.0))
"""Each body: its centre (y, x) and radius, as fractions of the width, and the change of the velocity in m/s."""
RING, INSIDE = 0.47, 0.40
"""The radius of the circle of sources and receivers, and the radius in which the velocity is unknown. Both radii are
fractions of the width."""
WIDTH, FREQUENCY, SPONGE = 960.0, 12.0, 16
"""The width of the region (m), the peak frequency of the wavelet (Hz), and the thickness of the sponge in cells."""
RECEIVERS = 64
BETWEEN_STATES = 4
"""The history keeps every 4th state. These states are enough, because four steps are shorter than half a period of the
highest frequency."""


@dataclass(frozen=True)
class Survey:
    """The sizes of the survey. `size` is the number of cells along the width, without the sponge."""

    size: int
    shots: int
    memory: str
    directory: Path

    @property
    def spacing(self) -> float:
        return WIDTH / self.size

    @property
    def shape(self) -> tuple[int, int]:
        return self.size + 2 * SPONGE, self.size + 2 * SPONGE

    @property
    def dt(self) -> float:
        """The time step in seconds. The time step is stable for velocities up to 2500 m/s."""
        return 0.5 * self.spacing / 2500.0

    @property
    def steps(self) -> int:
        """The number of time steps of a run. A run is long enough for a source to emit its wavelet, and for the wave to
        cross the region afterwards.
        """
        return round((WIDTH / VELOCITY + 2.4 / FREQUENCY) / self.dt)

    def circle(self, count: int) -> np.ndarray:
        """Return `count` points (y, x) on the circle of sources and receivers, in metres."""
        angles = 2 * np.pi * np.arange(count) / count
        middle = (self.shape[0] - 1) / 2 * self.spacing
        return middle + RING * WIDTH * np.stack([np.sin(angles), np.cos(angles)], axis=1)

    def radius(self, y: float, x: float) -> np.ndarray:
        """Return the distance of each cell from the point (y, x), divided by the width of the region. The point (0, 0)
        is the middle of the region."""
        cells = (np.arange(self.shape[0]) - (self.shape[0] - 1) / 2) / self.size
        return np.hypot(*np.meshgrid(cells - y, cells - x, indexing="ij"))


def true_anomaly(survey: Survey) -> np.ndarray:
    """Return the difference of velocity in the bodies, in m/s. The edges of the bodies are smooth."""
    parts = [change / (1 + np.exp((survey.radius(y, x) - size) / 0.012)) for y, x, size, change in BODIES]
    return np.sum(parts, axis=0)


def run_shot(survey: Survey, shot: int, velocity: np.ndarray, history: oc.History | None = None) -> oc.Simulation:
    """Run a shot, which is one source and all receivers, and return the simulation."""
    h, dt = survey.spacing, survey.dt
    pulse = (dt * VELOCITY) ** 2 * ricker(FREQUENCY, dt, survey.steps * dt)
    sim = oc.Simulation(
        oc.stencils.acoustic(order=8, ndim=2, sponge=True),
        survey.shape,
        directory=survey.directory / "shot.oc",
        memory=survey.memory,
        params={"h": h},
        dt=dt,
        spacing=h,
        sources=[oc.Source("u", survey.circle(survey.shots)[shot], pulse)],
        receivers=[oc.Receivers("ring", "u", survey.circle(RECEIVERS))],
        force=True,
    )
    sim.assign({"v": velocity, "damp": oc.stencils.sponge(survey.shape, SPONGE, velocity=VELOCITY, spacing=h)})
    sim.run(survey.steps, progress="none", history=history)
    return sim


def evaluate(survey: Survey, velocity: np.ndarray, data: Sequence[np.ndarray]) -> tuple[float, np.ndarray]:
    """Return the misfit and its gradient with respect to the velocity. The misfit is half the sum of the squared
    residuals of all shots."""
    misfit, gradient = 0.0, np.zeros(survey.shape)
    for shot, observed in enumerate(data):
        sim = run_shot(survey, shot, velocity, oc.History(BETWEEN_STATES))
        residual = sim.traces["ring"] - observed
        adjoint = sim.adjoint({"ring": residual}, wrt=["v"], force=True)
        adjoint.run(progress="none")
        misfit += 0.5 * float((residual**2).sum())
        gradient += adjoint.gradients["v"][:]
        sim.history.free()
    return misfit, gradient


def invert(survey: Survey, data: Sequence[np.ndarray], iterations: int) -> tuple[np.ndarray, list[float]]:
    """Return the recovered change of the velocity in m/s, and the misfits: one at the start, and one after each
    iteration. All misfits are divided by the misfit at the start."""
    inside = survey.radius(0, 0) < INSIDE
    start = np.full(survey.shape, VELOCITY)
    first, slope = evaluate(survey, start, data)
    # The first step of L-BFGS goes along the negative gradient of `goal`. `scale` limits this step to 40 m/s.
    scale = 40.0 / np.abs(slope[inside]).max()
    found, latest = [1.0], [first]

    def goal(change: np.ndarray) -> tuple[float, np.ndarray]:
        velocity = start.copy()
        velocity[inside] += change
        misfit, gradient = evaluate(survey, velocity, data) if change.any() else (first, slope)
        latest[0] = misfit
        return scale * misfit, scale * gradient[inside]

    def after_iteration(_: np.ndarray) -> None:
        found.append(latest[0] / first)
        print(f"iteration {len(found) - 1}: misfit {found[-1]:.4f} of the first misfit", flush=True)

    bounds = [(-400.0, 400.0)] * int(inside.sum())
    search = {"bounds": bounds, "options": {"maxiter": iterations, "ftol": 0.0, "gtol": 0.0}}
    result = minimize(goal, np.zeros(len(bounds)), jac=True, method="L-BFGS-B", callback=after_iteration, **search)
    recovered = np.zeros(survey.shape)
    recovered[inside] = result.x
    return recovered, found


def draw(survey: Survey, true: np.ndarray, recovered: np.ndarray, misfits: Sequence[float], path: Path) -> None:
    """Draw the true and the recovered change of the velocity, and the misfit after each iteration."""
    figure, panels = plt.subplots(1, 3, figsize=(14, 4.9), layout="constrained", width_ratios=(1, 1, 0.8))
    half, largest = survey.shape[0] / 2 * survey.spacing, float(np.abs(true).max())
    ring = {count: (survey.circle(count) - half + survey.spacing / 2).T for count in (RECEIVERS, survey.shots)}
    for panel, title, change in zip(panels, ("true velocity", "recovered velocity"), (true, recovered), strict=False):
        image = panel.imshow(change, cmap="RdBu_r", vmin=-largest, vmax=largest, extent=(-half, half, half, -half))
        panel.plot(*ring[RECEIVERS][::-1], ".", color="black", markersize=3, label="receivers")
        panel.plot(*ring[survey.shots][::-1], "*", color="gold", markeredgecolor="black", markersize=13, label="shots")
        limits = (-0.55 * WIDTH, 0.55 * WIDTH)
        panel.set(title=title, xlabel="x (m)", ylabel="y (m)", xlim=limits, ylim=limits[::-1])
    panels[0].legend(loc="lower left", fontsize=8)
    figure.colorbar(image, ax=panels[:2], label=f"difference from {VELOCITY:g} m/s (m/s)", shrink=0.85)
    panels[2].semilogy(misfits, "o-", color="tab:blue")
    panels[2].set(title="misfit, as a part of the first misfit", xlabel="iteration")
    panels[2].grid(which="both", alpha=0.3)
    options.save(figure, path, dpi=120)


def main(argv: Sequence[str] | None = None) -> None:
    parser = options.new_parser(__doc__, "fwi", "4MiB")
    parser.add_argument("--small", action="store_true", help="64 cells, 4 shots, 6 iterations")
    parser.add_argument("--size", type=options.at_least(48), metavar="N", help="cells along the width [96]")
    parser.add_argument("--shots", type=options.at_least(1), metavar="N", help="sources on the circle [8]")
    parser.add_argument("--steps", type=options.at_least(1), metavar="N", help="iterations of L-BFGS [12]")
    given = options.begin(parser, argv)
    size, shots, steps = (64, 4, 6) if given.small else (96, 8, 12)
    survey = Survey(given.size or size, given.shots or shots, given.memory, given.directory)
    true = true_anomaly(survey)
    data = [run_shot(survey, shot, VELOCITY + true).traces["ring"] for shot in range(survey.shots)]
    recovered, misfits = invert(survey, data, given.steps or steps)
    correlation = np.corrcoef(true.reshape(-1), recovered.reshape(-1))[0, 1]
    print(f"correlation of the true and the recovered bodies: {correlation:.3f}")
    draw(survey, true, recovered, misfits, given.directory / "fwi.png")


if __name__ == "__main__":
    options.call(main)
