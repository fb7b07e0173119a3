"""Carry a cone and a square once around a periodic box. Compare a scheme of first order with a scheme of second order.

    .venv/bin/python examples/advection.py [--size 256] [--steps 512] [--memory 1MiB] [-d DIRECTORY]

The wind is diagonal. The program chooses the speed of the wind so that the shapes are back at their start positions
after exactly `--steps` steps. Therefore every difference between the final shapes and the start is an error of the
scheme. `advection.png` shows the start, both results, and the values along the diagonal.
"""

import argparse
from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import options

import outcrop as oc


def start(size: int) -> np.ndarray:
    """Return a cone at the lower left and a square at the upper right, both of height 1. The shape is (size, size)."""
    y, x = np.mgrid[:size, :size] / size
    cone = np.maximum(0, 1 - np.hypot(y - 0.3, x - 0.3) / 0.2)
    return np.where((abs(y - 0.7) < 0.15) & (abs(x - 0.7) < 0.15), 1.0, cone)


def carried(order: int, first: np.ndarray, given: argparse.Namespace) -> np.ndarray:
    """Carry the initial values `first` once around the box and return the final values. Print the mean error of the
    final values, and the change of the sum of all values."""
    dt = 0.25
    speed = first.shape[0] / (given.steps * dt)  # one trip around the box, along both axes
    sim = oc.Simulation(
        oc.stencils.advection(ndim=2, order=order),
        first.shape,
        dtype="float64",
        directory=given.directory / f"order{order}.oc",
        memory=given.memory,
        boundary="periodic",
        params={"vx": speed, "vy": speed, "dt": dt},
        force=True,
    )
    sim["u"] = first
    report = sim.run(steps=given.steps)
    last: np.ndarray = sim["u"][:]
    print(report)
    print(f"order {order}: mean error {abs(last - first).mean():.4f}, sum kept to {last.sum() / first.sum() - 1:.0e}")
    return last


def main(argv: Sequence[str] | None = None) -> None:
    given = options.parse(__doc__, argv, name="advection", size=256, steps=512, memory="1MiB")
    first = start(given.size)
    ends = {"upwind": carried(1, first, given), "Lax-Wendroff": carried(2, first, given)}
    figure, panels = plt.subplots(1, 4, figsize=(16, 4), layout="constrained", width_ratios=(1, 1, 1, 1.3))
    for panel, (title, field) in zip(panels, [("start", first), *ends.items()], strict=False):
        image = panel.imshow(field, cmap="viridis", origin="lower", vmin=-0.2, vmax=1.2)
        error = abs(field - first).mean()
        panel.set(title=title if field is first else f"{title}, mean error {error:.3f}", xlabel="x", ylabel="y")
    figure.colorbar(image, ax=panels[:3], label="u")
    diagonal = np.arange(given.size)
    for title, field in {"start": first, **ends}.items():
        panels[3].plot(diagonal, field[diagonal, diagonal], label=title)
    panels[3].set(title="along the diagonal", xlabel="x = y", ylabel="u")
    panels[3].legend(fontsize="small")
    options.save(figure, given.directory / "advection.png")


if __name__ == "__main__":
    options.call(main)
