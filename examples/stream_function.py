"""Compute potential flow through a box by Jacobi's iteration. The fluid enters the box at the bottom and leaves the box
at the right.

    .venv/bin/python examples/stream_function.py [--size 128] [--steps 20000] [--memory 768KiB] [-d DIRECTORY]

Contours of the stream function are streamlines. The flux between neighbouring streamlines is the same everywhere.
`stream_function.png` shows the speed as colours, and the streamlines as lines. The program also solves the discrete
equations directly. The program prints the remaining difference between the result of the iteration and the direct
solution.
"""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import options

import outcrop as oc


def solved(psi: np.ndarray) -> np.ndarray:
    """Return the exact solution for the given values of `psi` in the rim. In the exact solution, every inner cell is
    the mean of its four neighbours."""
    ny, nx = (size - 2 for size in psi.shape)
    known = psi.copy()
    known[1:-1, 1:-1] = 0
    right = known[:-2, 1:-1] + known[2:, 1:-1] + known[1:-1, :-2] + known[1:-1, 2:]
    (values_y, along_y), (values_x, along_x) = (
        np.linalg.eigh(2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)) for n in (ny, nx)
    )
    waves = along_y.T @ right @ along_x / (values_y[:, None] + values_x)
    known[1:-1, 1:-1] = along_y @ waves @ along_x.T
    return known


def main(argv: Sequence[str] | None = None) -> None:
    given = options.parse(__doc__, argv, name="stream_function", size=128, steps=20_000, memory="768KiB")
    n = given.size
    sim = oc.Simulation(
        oc.stencils.stream_function(),
        (n, n),
        dtype="float64",
        directory=given.directory / "run.oc",
        memory=given.memory,
        force=True,
    )
    sim["psi"] = oc.stencils.inlet_outlet((n, n), inlet=(n // 8, n // 3), outlet=(n // 2, n - n // 8))
    report = sim.run(steps=given.steps)
    psi = sim["psi"][:]
    error, expected = abs(psi - solved(psi)).max(), np.cos(np.pi / (n - 1)) ** given.steps
    print(report)
    print(f"largest difference to the solution {error:.2e}; the slowest wave is left with {expected:.2e} of its start")

    flow_y, flow_x = np.gradient(psi)
    figure, panel = plt.subplots(figsize=(6.5, 5.4), layout="constrained")
    speed = np.hypot(flow_y, flow_x)
    image = panel.imshow(speed, cmap="Blues", origin="lower", vmax=np.quantile(speed, 0.995))
    panel.contour(psi, levels=np.linspace(0, 1, 21)[1:-1], colors="black", linewidths=0.8)
    panel.set(title=f"{n} x {n} cells after {given.steps} steps", xlabel="x", ylabel="y")
    figure.colorbar(image, label="speed (flux of 1 in all)")
    options.save(figure, given.directory / "stream_function.png", dpi=130)


if __name__ == "__main__":
    options.call(main)
