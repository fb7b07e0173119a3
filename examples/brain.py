"""Blur a measured brain volume with fifty heat steps in 8 MiB of memory, and draw it before and after.

    .venv/bin/python examples/brain.py [DIRECTORY]

The volume (197 x 233 x 189 cells, float32: 35 MiB an array) is more than four times the budget. Two pictures,
`before.png` and `after.png`, are left in DIRECTORY (default `brain`) beside the run itself.
"""

import lzma
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import outcrop as oc

VOLUME = Path(__file__).parent / "data" / "mni152_t1.npy.xz"


def load_volume() -> np.ndarray:
    """The volume, shape (197, 233, 189), uint8, bright where the tissue is."""
    with lzma.open(VOLUME) as source:
        return np.load(source)


def draw(plane: np.ndarray, path: Path) -> None:
    """Write one plane, shape (ny, nx), as a grey picture without axes."""
    plt.imsave(path, plane, cmap="gray", origin="lower", vmin=0, vmax=255)


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    volume = load_volume()
    sim = oc.Simulation(
        oc.stencils.heat(ndim=3), volume.shape, dtype="float32", directory=directory / "run.oc", memory="8MiB"
    )
    sim["u"] = volume
    middle = volume.shape[0] // 2
    draw(sim["u"][middle], directory / "before.png")
    report = sim.run(steps=50)
    draw(sim["u"][middle], directory / "after.png")
    print(report)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "brain"))
