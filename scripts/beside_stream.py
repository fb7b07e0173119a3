"""Triad of the DRAM in `outcrop tiers` beside J. McCalpin's STREAM, in turns: do both say the same?
Needs a machine with nothing else going on, and the program:

    cc -O3 -march=native -fopenmp -DSTREAM_ARRAY_SIZE=16777216 stream.c -o stream
    .venv/bin/python scripts/beside_stream.py ./stream [TURNS]

Both take the best of a few sweeps over three arrays of 128 MiB. Neighbours of a virtual machine may halve its bandwidth
from one second to the next, so the median of the turns' ratios counts. STREAM's memory is asked to be in huge pages,
as ours is.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from statistics import median

from outcrop import _core
from outcrop.tiers import measure_tiers as own
from outcrop.tiers.discover import available_cores

ARRAY_BYTES = 8 << 24


def of_stream(program: str, threads: int) -> float:
    """Bytes per second that STREAM says of its triad."""
    settings = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "OMP_NUM_THREADS": str(threads)}
    said = subprocess.run([program], capture_output=True, text=True, check=True, env={**os.environ, **settings}).stdout
    found = re.search(r"^Triad:\s+([\d.]+)", said, re.MULTILINE)
    if found is None:
        raise SystemExit(f"{program} said nothing of a triad")
    return float(found[1]) * 1e6


def main() -> None:
    """A line: medians in GB/s, the median of the turns' ratios, and all of them."""
    program, turns = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 7
    threads = available_cores()
    pairs = []
    for _ in range(turns):
        meter = _core.MemoryMeter(threads, ARRAY_BYTES, ())
        pairs.append((meter.bandwidth("triad", own.MEMORY_REPEATS), of_stream(program, threads)))
    ratios = [ours / theirs for ours, theirs in pairs]
    one, other = (median(side) / 1e9 for side in zip(*pairs, strict=True))
    every = " ".join(f"{ratio:.2f}" for ratio in ratios)
    print(f"triad: {one:.1f} GB/s, STREAM {other:.1f}, ratio {median(ratios):.2f} of {every}")


if __name__ == "__main__":
    main()
