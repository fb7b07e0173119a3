"""Cases of `outcrop bench io` beside fio, in turns on one file: do both say the same?
Needs fio, and a machine with nothing else going on.

    .venv/bin/python scripts/beside_fio.py DIRECTORY [TURNS]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from statistics import median

import fio

from outcrop import _core
from outcrop.bench.io_cases import IoCase
from outcrop.paths import made_directory

SPAN_BYTES, SECONDS, KIB = 1 << 30, 0.3, 1024
"""So short that nobody gets to the end and finds the beginning in the page cache."""
RECORD = 2048 * KIB
CASES = [
    *(IoCase(name, write, False, RECORD, 16, SPAN_BYTES) for name in ("io_uring", "libaio") for write in (False, True)),
    *(IoCase(name, write, True, 4 * KIB, 32, SPAN_BYTES) for name in ("io_uring", "libaio") for write in (False, True)),
    *(IoCase("io_uring", write, True, 4 * KIB, 1, SPAN_BYTES) for write in (False, True)),
    IoCase("io_uring", False, True, 256 * KIB, 64, SPAN_BYTES),
    IoCase("buffered", False, False, 1024 * KIB, 1, SPAN_BYTES),
    IoCase("buffered", False, True, 64 * KIB, 1, SPAN_BYTES, warm=True, flush=False),
]


def bytes_per_second_of_fio(case: IoCase, path: Path) -> float:
    """What fio says of the same."""
    engine = "psync" if case.interface == "buffered" else case.interface
    cache = {"direct": int(engine != "psync"), "invalidate": int(not case.warm), "fadvise_hint": 0}
    pattern = ("rand" if case.random else "") + ("write" if case.write else "read")
    size, depth = SPAN_BYTES, case.depth
    return fio.bytes_per_second(
        path, seconds=SECONDS, size=size, ioengine=engine, rw=pattern, bs=case.request_bytes, iodepth=depth, **cache
    )


def main() -> None:
    """A line for each case: medians in MB/s, and the median of the turns' ratios."""
    turns = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    directory = Path(sys.argv[1])
    with made_directory(directory), tempfile.TemporaryDirectory(prefix="outcrop-fio-", dir=directory) as folder:
        path = Path(folder) / "file"
        _core.create_file(str(path), SPAN_BYTES)
        IoCase("threads", True, False, RECORD, 8, SPAN_BYTES).measure(path, float("inf"))
        for case in CASES:
            ours, theirs = [], []
            for _ in range(turns):
                ours.append(case.measure(path, SECONDS).bytes_per_second)
                theirs.append(bytes_per_second_of_fio(case, path))
            ratio = median(one / other for one, other in zip(ours, theirs, strict=True))
            name = f"{case.interface:9} {case.pattern:16} {case.request_bytes // KIB:5} KiB x {case.depth:2}"
            print(f"{name}: {median(ours) / 1e6:6.0f} fio {median(theirs) / 1e6:6.0f} ratio {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()
