"""The figures of `outcrop tiers` for one directory beside fio, in turns: do both say the same?
Needs fio, and a machine with nothing else going on.

    .venv/bin/python scripts/tiers_beside_fio.py DIRECTORY [TURNS]

Both get a new file in every turn, filled once: what small writes take can differ by half from file to file, and on
disks of virtual machines from minute to minute. fio's buffers are asked to be in huge pages, as ours are.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from statistics import median

import fio

from outcrop import _core
from outcrop.paths import made_directory
from outcrop.tiers import measure_tiers as own
from outcrop.tiers.tier import Figures

MEASURED = {
    "sequential read": ("read", own.RECORD_BYTES, own.RECORDS_IN_FLIGHT, own.SEQUENTIAL_SECONDS),
    "sequential write": ("write", own.RECORD_BYTES, own.RECORDS_IN_FLIGHT, own.SEQUENTIAL_SECONDS),
    "random read": ("randread", own.PAGE_BYTES, own.PAGES_IN_FLIGHT, own.RANDOM_SECONDS),
    "random write": ("randwrite", own.PAGE_BYTES, own.PAGES_IN_FLIGHT, own.RANDOM_SECONDS),
}


def of_tiers(directory: Path) -> dict[str, float]:
    """Bytes per second that `outcrop tiers` would print."""
    figures: Figures = own.measure_storage(directory, 8 * own.SCRATCH_BYTES)
    every = (
        figures.read_bytes_per_second,
        figures.write_bytes_per_second,
        figures.random_read_bytes_per_second,
        figures.random_write_bytes_per_second,
    )
    return {name: value or 0.0 for name, value in zip(MEASURED, every, strict=True)}


def of_fio(directory: Path) -> dict[str, float]:
    """What fio says of the same, in the same order: writes, then reads, each the better of as many as ours are."""
    with tempfile.TemporaryDirectory(prefix="outcrop-fio-", dir=directory) as folder:
        path = Path(folder) / "file"
        _core.create_file(str(path), own.SCRATCH_BYTES)
        run_fio(path, "write", own.RECORD_BYTES, own.RECORDS_IN_FLIGHT, None)
        found = {}
        for name in ("sequential write", "sequential read", "random read", "random write"):
            repeats = own.STORAGE_REPEATS if name.startswith("sequential") else 1
            found[name] = max(run_fio(path, *MEASURED[name]) for _ in range(repeats))
    return found


def run_fio(path: Path, pattern: str, request_bytes: int, depth: int, seconds: float | None) -> float:
    """Bytes per second."""
    size = own.SCRATCH_BYTES
    return fio.bytes_per_second(
        path, seconds=seconds, size=size, ioengine="io_uring", rw=pattern, bs=request_bytes, iodepth=depth, direct=1
    )


def main() -> None:
    """A line for each figure: medians in MB/s, the median of the turns' ratios, and all of them."""
    directory, turns = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 7
    with made_directory(directory):
        pairs = [(of_tiers(directory), of_fio(directory)) for _ in range(turns)]
    for name in MEASURED:
        ratios = [ours[name] / theirs[name] for ours, theirs in pairs]
        one, other = (median(side[name] for side in sides) / 1e6 for sides in zip(*pairs, strict=True))
        every = " ".join(f"{ratio:.2f}" for ratio in ratios)
        print(f"{name:16}: {one:6.0f} fio {other:6.0f} ratio {median(ratios):.2f} of {every}", flush=True)


if __name__ == "__main__":
    main()
