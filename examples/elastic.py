"""Compute the P waves and S waves that a short push causes in rock. At an interface, both kinds of waves produce new P
waves and new S waves.

    .venv/bin/python examples/elastic.py [--size 500] [--steps 420] [--memory 3MiB] [-d DIRECTORY]

The rock has an upper part and a lower part. Waves are faster in the lower part of the rock. A motion along y in one
spot causes a P wave and an S wave. The divergence of the velocity shows the P wave, and the curl of the velocity shows
the S wave. `elastic.png` shows both waves. In the picture, circles mark the theoretical fronts of the waves in the
upper part: dashed for P, dotted for S. The program prints the distances that the waves travelled.
"""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import options

import outcrop as oc

H, DT = 10.0, 0.001
"""Spacing (m) and time step (s)."""
VP, VS, RHO = (3000.0, 4800.0), (1700.0, 2800.0), (2200.0, 2600.0)
"""Speeds (m/s) and density (kg/m^3) of the upper and the lower half."""
SPOT = 4.0
"""Radius of the push, in cells."""


def layered(values: Sequence[float], interface: int, shape: tuple[int, int]) -> np.ndarray:
    """Return one property of the rock as an array of shape (ny, nx). `values` are the values above and below the
    interface."""
    rows = np.where(np.arange(shape[0]) < interface, *values)
    return np.broadcast_to(rows[:, None], shape)


def front(wave: np.ndarray, along: np.ndarray, expected: float) -> float:
    """Return the position, in cells, where the wave is strongest. The search covers only positions within 10 % of
    `expected`."""
    near = abs(along - expected) < 0.1 * expected
    return float(along[near][abs(wave[near]).argmax()])


def main(argv: Sequence[str] | None = None) -> None:
    given = options.parse(__doc__, argv, name="elastic", size=500, steps=420, memory="3MiB")
    n = given.size
    shape, (cy, cx), interface = (n, n), (n // 2, n // 2), 5 * n // 8
    vp, vs, rho = (layered(values, interface, shape) for values in (VP, VS, RHO))
    y, x = np.mgrid[:n, :n]
    sim = oc.Simulation(
        oc.stencils.elastic(ndim=2, order=8),
        shape,
        directory=given.directory / "run.oc",
        memory=given.memory,
        params={"h": H, "dt": DT},
        spacing=H,
        units="m",
        force=True,
    )
    sim.assign(
        {
            "vy": np.exp(-((y - cy) ** 2 + (x - cx) ** 2) / SPOT**2),
            "lam": rho * (vp**2 - 2 * vs**2),
            "mu": rho * vs**2,
            "b": 1 / rho,
        }
    )
    report = sim.run(steps=given.steps)
    vx, vy = sim["vx"][:], sim["vy"][:]
    compression = np.gradient(vy, axis=0) + np.gradient(vx, axis=1)
    rotation = np.gradient(vy, axis=1) - np.gradient(vx, axis=0)

    cells_p, cells_s = (speed[0] * DT * given.steps / H for speed in (VP, VS))
    print(report)
    # A push along y causes P waves along y, and S waves along x.
    for name, expected, wave in (("P", cells_p, compression[:cy, cx][::-1]), ("S", cells_s, rotation[cy, cx:])):
        found = front(wave, np.arange(len(wave)), expected)
        print(f"{name}: {found:.0f} cells from the source, {expected:.0f} expected ({found / expected - 1:+.1%})")

    extent = (0, n * H / 1000, n * H / 1000, 0)
    figure, panels = plt.subplots(1, 2, figsize=(11, 5.9), layout="constrained")
    for panel, title, wave in zip(panels, ("compression: P", "rotation: S"), (compression, rotation), strict=True):
        largest = np.quantile(abs(wave), 0.995)
        panel.imshow(wave, cmap="RdBu_r", vmin=-largest, vmax=largest, extent=extent)
        panel.axhline(interface * H / 1000, color="black", lw=0.8)
        for cells, style in ((cells_p, "--"), (cells_s, ":")):
            angles = np.linspace(0, 2 * np.pi, 400)
            across, down = cx + cells * np.cos(angles), cy + cells * np.sin(angles)
            down[down > interface] = np.nan
            panel.plot(across * H / 1000, down * H / 1000, style, color="black", lw=0.8)
        panel.set(title=f"{title}, {given.steps * DT:.2f} s", xlabel="x (km)", ylabel="depth y (km)")
    options.save(figure, given.directory / "elastic.png", dpi=120)


if __name__ == "__main__":
    options.call(main)
