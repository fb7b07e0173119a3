"""Blur a measured brain volume with fifty heat steps in 8 MiB of memory. Draw the volume before and after the heat
steps.

    .venv/bin/python examples/brain.py [--size 233] [--steps 50] [--memory 8MiB] [-d DIRECTORY]

The volume has 197 x 233 x 189 cells. One array in float32 takes 35 MiB, more than four times the memory budget.
`--size` sets the number of cells along the longest axis. With another value than 233, the program resamples the volume
during reading. The program writes the run and two pictures, `before.png` and `after.png`, to DIRECTORY.
"""

import lzma
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import options

import outcrop as oc

VOLUME = Path(__file__).parent / "data" / "mni152_t1.npy.xz"


def load_volume() -> np.ndarray:
    """Return the volume of the brain as uint8, with the shape (197, 233, 189). Tissue is bright."""
    with lzma.open(VOLUME) as source:
        volume: np.ndarray = np.load(source)
    return volume


def draw(plane: np.ndarray, path: Path) -> None:
    """Write one plane of shape (ny, nx) as a grey picture without axes."""
    plt.imsave(path, plane, cmap="gray", origin="lower", vmin=0, vmax=255)


def main(argv: Sequence[str] | None = None) -> None:
    given = options.parse(__doc__, argv, name="brain", size=233, steps=50, memory="8MiB")
    volume = load_volume()
    shape = tuple(round(extent * given.size / max(volume.shape)) for extent in volume.shape)
    sim = oc.Simulation(
        oc.stencils.heat(ndim=3), shape, directory=given.directory / "run.oc", memory=given.memory, force=True
    )
    sim["u"] = oc.resample(volume, shape)
    middle = shape[0] // 2
    draw(sim["u"][middle], given.directory / "before.png")
    report = sim.run(steps=given.steps)
    draw(sim["u"][middle], given.directory / "after.png")
    print(report)


if __name__ == "__main__":
    options.call(main)
