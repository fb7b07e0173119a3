"""Compute how heat spreads from random hot cells, with one process or with several ranks of MPI.

    mpirun -n 2 .venv/bin/python examples/ranks.py [--size 128] [--steps 200] [--memory 8MiB] [-d DIRECTORY]

The same script works for one process and for several ranks. Under mpirun, each rank computes its own rows of the grid.
`sim["u"]` has the rows of all ranks. Rank 0 draws one plane of the grid as `ranks.png`. White lines show the borders
between the rows of different ranks. Only the white lines of the picture depend on the number of ranks. The rest of the
picture and the printed checksum are the same for any number of ranks.
"""

import zlib
from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import options
from mpi4py import MPI

import outcrop as oc


def main(argv: Sequence[str] | None = None) -> None:
    given = options.parse(__doc__, argv, name="ranks", size=128, steps=200, memory="8MiB")
    comm, size = MPI.COMM_WORLD, given.size
    shape = size // 2, size, size
    sim = oc.Simulation("heat7", shape, directory=given.directory / "ranks.oc", memory=given.memory, force=True)
    hot = np.random.default_rng(1).random(shape, "float32") > 0.999
    sim["u"] = hot.astype("float32")  # values of the whole grid: each rank keeps its rows
    report = sim.run(given.steps)
    middle = shape[0] // 2
    rows = comm.gather(sim.rows)
    plane = sim["u"][middle]  # a plane of the whole grid, which all ranks read together
    if rows is None:  # only rank 0 draws
        return
    print(report)
    print(f"{comm.size} ranks: checksum of plane {middle} is {zlib.crc32(plane.tobytes()):08x}")
    figure, axes = plt.subplots(figsize=(6, 5), layout="constrained")
    image = axes.imshow(plane, cmap="inferno", origin="lower", vmax=np.percentile(plane, 99))
    for _, end in rows[:-1]:
        axes.axhline(end - 0.5, color="white")
    axes.set(title=f"heat after {given.steps} steps, {comm.size} ranks", xlabel="x", ylabel="y")
    figure.colorbar(image, label="temperature")
    options.save(figure, given.directory / "ranks.png")


if __name__ == "__main__":
    options.call(main)
