"""Compute how two shear layers become vortices (Kelvin-Helmholtz instability), with the lattice Boltzmann method.

    .venv/bin/python examples/lattice_boltzmann.py [--size 192] [--steps 2400] [--memory 10MiB] [-d DIRECTORY]

The box is periodic. `lattice_boltzmann.png` shows the vorticity at four times. The program first checks the viscosity
with Taylor-Green vortices, a regular pattern of vortices with a known decay. At the end, the program checks that mass
is conserved. The initial shear layers are from M. L. Minion and D. L. Brown, J. Comput. Phys. 138, 734, 1997.
"""

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import options

import outcrop as oc

SPEED = 0.1
"""The speed of the fluid in the layers, in cells per step. The speed of sound is 0.58."""
DIRECTIONS, WEIGHTS = oc.stencils.lattice_directions(2), oc.stencils.lattice_weights(2)
TIMES = 4


def at_rest_but_moving(uy: np.ndarray, ux: np.ndarray) -> dict[str, np.ndarray]:
    """Return the fields f0 ... f8 of the equilibrium at density 1 and velocity (uy, ux). Each field is the difference
    between the distribution and its value in a fluid at rest."""
    fields = {}
    for number, ((cy, cx), weight) in enumerate(zip(DIRECTIONS, WEIGHTS, strict=True)):
        along = cy * uy + cx * ux
        fields[f"f{number}"] = weight * (3 * along + 4.5 * along**2 - 1.5 * (uy**2 + ux**2))
    return fields


def velocity(sim: oc.Simulation) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the density and the two components of the velocity."""
    fields = [sim[f"f{number}"][:].astype("float64") for number in range(len(DIRECTIONS))]
    density = 1 + sum(fields)
    uy, ux = (sum(c[axis] * f for c, f in zip(DIRECTIONS, fields, strict=True)) / density for axis in range(2))
    return density, uy, ux


def simulation(n: int, tau: float, memory: str, directory: Path) -> oc.Simulation:
    return oc.Simulation(
        oc.stencils.lattice_boltzmann(ndim=2),
        (n, n),
        dtype="float64",
        directory=directory,
        memory=memory,
        boundary="periodic",
        params={"tau": tau},
        force=True,
    )


def check_decay(directory: Path) -> None:
    """Compute the decay of vortices, and print the difference between this decay and theory. Vortices of wave number k
    decay as exp(-2 nu k^2 t)."""
    n, tau, steps, slow = 64, 0.8, 400, 0.01
    wave = 2 * np.pi / n
    y, x = np.mgrid[:n, :n] * wave
    sim = simulation(n, tau, "2MiB", directory)
    sim.assign(at_rest_but_moving(slow * np.cos(x) * np.sin(y), -slow * np.sin(x) * np.cos(y)))
    sim.run(steps=steps)
    _, uy, ux = velocity(sim)
    found = np.hypot(uy, ux).max() / slow
    expected = np.exp(-2 * (tau - 0.5) / 3 * wave**2 * steps)
    print(f"vortices decay to {found:.4f} of their speed, by theory {expected:.4f} ({found / expected - 1:+.1%})")


def main(argv: Sequence[str] | None = None) -> None:
    given = options.parse(__doc__, argv, name="lattice_boltzmann", size=192, steps=2400, memory="10MiB")
    check_decay(given.directory / "decay.oc")
    n = given.size
    y, x = np.mgrid[:n, :n] / n
    ux = SPEED * np.where(y < 0.5, np.tanh(50 * (y - 0.25)), np.tanh(50 * (0.75 - y)))
    uy = 0.05 * SPEED * np.sin(2 * np.pi * (x + 0.25))
    sim = simulation(n, 0.505, given.memory, given.directory / "run.oc")
    sim.assign(at_rest_but_moving(uy, ux))
    mass = velocity(sim)[0].sum()

    figure, panels = plt.subplots(1, TIMES, figsize=(3.6 * TIMES, 4), layout="constrained")
    steps = np.diff(np.linspace(given.steps / 4, given.steps, TIMES).astype(int), prepend=0)
    for panel, more in zip(panels, steps, strict=True):
        report = sim.run(steps=int(more))
        density, uy, ux = velocity(sim)
        curl = (np.gradient(uy, axis=1) - np.gradient(ux, axis=0)) * n / SPEED
        image = panel.imshow(curl, cmap="RdBu_r", vmin=-40, vmax=40, origin="lower")
        panel.set(title=f"step {sim.step}", xticks=[], yticks=[])
    figure.colorbar(image, ax=panels, label="vorticity (speed / width)")
    options.save(figure, given.directory / "lattice_boltzmann.png")
    print(report)
    print(f"mass changed by {density.sum() / mass - 1:.0e} of itself")


if __name__ == "__main__":
    options.call(main)
