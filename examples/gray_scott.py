"""Compute how two chemical species react and diffuse until spots fill the plane.

    .venv/bin/python examples/gray_scott.py [--size 320] [--steps 8000] [--memory 4MiB] [-d DIRECTORY]

The plane is periodic. At the start, u is 1 and v is 0, except for some squares that contain v. Spots grow and divide
until the plane is full. `gray_scott.png` shows v at four times.
"""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import options

import outcrop as oc

PARAMETERS = {"feed": 0.03, "kill": 0.062}
SQUARES = 12
TIMES = 4


def main(argv: Sequence[str] | None = None) -> None:
    given = options.parse(__doc__, argv, name="gray_scott", size=320, steps=8000, memory="4MiB")
    shape = (given.size, given.size)
    generator = np.random.default_rng(4)
    u, v = np.ones(shape, "float32"), np.zeros(shape, "float32")
    for y, x in generator.integers(0, given.size - 8, (SQUARES, 2)):
        u[y : y + 8, x : x + 8], v[y : y + 8, x : x + 8] = 0.5, 0.25
    sim = oc.Simulation(
        oc.stencils.gray_scott(ndim=2),
        shape,
        directory=given.directory / "run.oc",
        memory=given.memory,
        boundary="periodic",
        params=PARAMETERS,
        force=True,
    )
    sim.assign({"u": u, "v": v})
    figure, panels = plt.subplots(1, TIMES, figsize=(3.6 * TIMES, 4), layout="constrained")
    steps = np.diff(np.geomspace(given.steps / 8, given.steps, TIMES).astype(int), prepend=0)
    for panel, more in zip(panels, steps, strict=True):
        report = sim.run(steps=int(more))
        image = panel.imshow(sim["v"][:], cmap="magma", vmin=0, vmax=0.35, origin="lower")
        panel.set(title=f"step {sim.step}", xticks=[], yticks=[])
    figure.colorbar(image, ax=panels, label="v")
    options.save(figure, given.directory / "gray_scott.png")
    values = sim["u"][:]
    print(report)
    low, high = values.min(), values.max()
    print(f"u between {low:.3f} and {high:.3f}; within 0 and 1: {0 <= low <= high <= 1}")


if __name__ == "__main__":
    options.call(main)
