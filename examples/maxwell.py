"""Compute how a glass cylinder focuses a pulse of light.

    .venv/bin/python examples/maxwell.py [--size 600] [--steps 700] [--memory 2MiB] [-d DIRECTORY]

A plane wave travels along x through a periodic box. In the pictures, the electric field E is perpendicular to the
picture. `maxwell.png` shows the wave at four times. The scheme conserves the energy of the wave up to rounding in
float32, also in the glass.
"""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import options

import outcrop as oc

H, DT, C = 0.01, 2e-11, 299792458.0
"""Spacing (m), time step (s), speed of light (m/s)."""
STEP = C * DT / H
"""The speed of light, in cells per step."""
GLASS = 1.5**2
"""The relative permittivity of glass with an index of refraction of 1.5."""
TIMES = 4


def pulse(x: np.ndarray, size: int) -> np.ndarray:
    """Return Ez in V/m at time 0 at the positions `x`, which are in cells. The pulse moves towards larger x."""
    centre, width, wave = 0.12 * size, 0.035 * size, 0.04 * size
    packet: np.ndarray = np.exp(-(((x - centre) / width) ** 2)) * np.cos(2 * np.pi * (x - centre) / wave)
    return packet


def energy(sim: oc.Simulation) -> float:
    """Return the energy that the leapfrog scheme conserves: the sum of eps Ez^2 + H1 H2 in float64. H1 is the value of
    H half a step before Ez, and H2 is the value of H half a step after Ez."""
    ez, hx, hy, eps = (sim[name][:].astype("float64") for name in ("ez", "hx", "hy", "eps"))
    later_hx, later_hy = hx - STEP * (np.roll(ez, -1, 0) - ez), hy + STEP * (np.roll(ez, -1, 1) - ez)
    return float((eps * ez**2 + hx * later_hx + hy * later_hy).sum())


def main(argv: Sequence[str] | None = None) -> None:
    given = options.parse(__doc__, argv, name="maxwell", size=600, steps=700, memory="2MiB")
    nx = given.size
    shape = (ny, _) = (nx // 2, nx)
    y, x = np.mgrid[:ny, :nx]
    centre, radius = (0.5 * ny, 0.42 * nx), 0.15 * nx
    sim = oc.Simulation(
        oc.stencils.maxwell(ndim=2),
        shape,
        directory=given.directory / "run.oc",
        memory=given.memory,
        boundary="periodic",
        params={"h": H, "dt": DT, "c": C},
        spacing=H,
        units="m",
        force=True,
    )
    inside = np.hypot(y - centre[0], x - centre[1]) < radius
    # A value of Hy lies half a cell ahead of the value of Ez with the same index. The first values of Hy are for a time
    # half a step before the time of Ez.
    hy = -pulse(x + 0.5 + STEP / 2, nx)
    sim.assign({"ez": pulse(x, nx), "hx": 0.0, "hy": hy, "eps": np.where(inside, GLASS, 1.0)})

    before = energy(sim)
    figure, panels = plt.subplots(TIMES // 2, 2, figsize=(11, 6), layout="constrained")
    steps = np.diff(np.linspace(0, given.steps, TIMES + 1).astype(int))
    for panel, more in zip(panels.flat, steps, strict=True):
        report = sim.run(steps=int(more))
        extent = (0, nx * H, 0, ny * H)
        image = panel.imshow(sim["ez"][:], cmap="RdBu_r", vmin=-1, vmax=1, origin="lower", extent=extent)
        panel.add_patch(plt.Circle((centre[1] * H, centre[0] * H), radius * H, fill=False, color="black"))
        panel.set(title=f"{sim.step * DT * 1e9:.1f} ns", xlabel="x (m)", ylabel="y (m)")
    figure.colorbar(image, ax=panels, label="Ez (V/m)")
    options.save(figure, given.directory / "maxwell.png")
    print(report)
    print(f"energy changed by {energy(sim) / before - 1:.0e} of itself in {sim.step} steps")


if __name__ == "__main__":
    options.call(main)
