"""Write durable steps of one file on several ranks, and report each completed step. `kills.py` starts this program and
kills some of its ranks.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

NBYTES, STEPS = 40_000, 200


def value(step: int, rank: int) -> int:
    """Return the values that this rank writes in this step."""
    return (step * 7 + rank * 3 + 1) % 256


def main(folder: Path) -> None:
    """Write all steps."""
    from mpi4py import MPI

    import outcrop.aggregate as agg

    world = MPI.COMM_WORLD
    (folder / f"rank-{os.getpid()}").touch()
    extents = [agg.contiguous(world.rank * NBYTES, NBYTES)]
    with (
        agg.declare(world, extents, target=folder, count=2, seconds_most=20.0) as plan,
        agg.create(folder / "file", plan, durable=True) as file,
        open(folder / "told", "ab", buffering=0) as told,
    ):
        for step in range(STEPS):
            file.write([np.full(NBYTES, value(step, world.rank), np.uint8)], base=step * world.size * NBYTES)
            if world.rank == 0:
                told.write(b".")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
