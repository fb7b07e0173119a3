"""Sharpen a slice of a measured brain with a filter of 289 weights.

    .venv/bin/python examples/sharpen.py [--size 233] [--memory 512KiB] [-d DIRECTORY]

While the program reads the slice, it resamples the slice to `--size` rows. `sharpen.png` shows the slice before and
after sharpening. The program prints the largest difference between its result and the result of NumPy.
"""

import lzma
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import options

import outcrop as oc

REACH = 8
VOLUME = Path(__file__).parent / "data" / "mni152_t1.npy.xz"


def load_slice() -> np.ndarray:
    """Return a slice of the brain, seen from the side, as uint8 of shape (233, 189)."""
    with lzma.open(VOLUME) as source:
        plane: np.ndarray = np.load(source)[85]
    return plane


def summed(image: np.ndarray) -> np.ndarray:
    """Compute the result with NumPy in float64: the image minus its convolution with the filter. In this computation,
    the image is mirrored beyond its sides."""
    ny, nx = image.shape
    around = np.pad(image.astype("float64"), REACH, mode="symmetric")
    steps = np.arange(-REACH, REACH + 1)
    delta = (steps[:, None] ** 2 + steps**2) / (2 * (1.4 * REACH / 4) ** 2)
    weights = -40 * (1 - delta) * np.exp(-delta)
    edges = np.zeros(image.shape)
    for (dy, dx), weight in np.ndenumerate(weights):
        edges += weight * around[dy : dy + ny, dx : dx + nx]
    return image - 2 / (2 * REACH - 1) ** 2 * edges


def main(argv: Sequence[str] | None = None) -> None:
    given = options.parse(__doc__, argv, name="sharpen", size=233, steps=1, memory="512KiB")
    measured = load_slice()
    shape = (given.size, round(given.size * measured.shape[1] / measured.shape[0]))
    sim = oc.Simulation(
        oc.stencils.sharpen(),
        shape,
        directory=given.directory / "run.oc",
        memory=given.memory,
        boundary="mirror",
        force=True,
    )
    sim["image"] = oc.resample(measured, shape)
    report = sim.run(steps=given.steps)
    image, sharp = sim["image"][:], sim["sharp"][:]
    print(report)
    print(f"largest difference to NumPy {abs(sharp - summed(image)).max():.1e} of {abs(sharp).max():.0f}")

    figure, panels = plt.subplots(1, 2, figsize=(9, 5.4), layout="constrained")
    for panel, title, values in zip(panels, ("measured", "sharpened"), (image, sharp), strict=True):
        panel.imshow(values, cmap="gray", origin="lower", vmin=0, vmax=np.quantile(values, 0.998))
        panel.set(title=title, xticks=[], yticks=[])
    options.save(figure, given.directory / "sharpen.png", dpi=130)


if __name__ == "__main__":
    options.call(main)
