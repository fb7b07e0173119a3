"""Measure the same speeds alternately with Outcrop and with other programs, on a machine without other work.

    .venv/bin/python scripts/beside_others.py io DIRECTORY [REPEATS]        Compare `outcrop bench io` with fio.
    .venv/bin/python scripts/beside_others.py tiers DIRECTORY [REPEATS]     Compare storage in `outcrop tiers` with fio.
    .venv/bin/python scripts/beside_others.py triad ./stream [REPEATS]      Compare DRAM in `outcrop tiers` with STREAM.

The commands `io` and `tiers` need fio (apt install fio), and 1.1 GB in DIRECTORY. The command `io` uses one file. The
command `tiers` uses a new file for each repeat and program, because the speed of small writes can differ by 50 % from
file to file. On virtual disks, the speed of small writes can also differ by 50 % from minute to minute.

STREAM is the program of J. McCalpin. Compile it with this command:

    cc -O3 -march=native -fopenmp -DSTREAM_ARRAY_SIZE=16777216 stream.c -o stream

Outcrop and STREAM each report the fastest of a few sweeps over three arrays of 128 MiB. Other virtual machines on the
same computer can halve the bandwidth from one second to the next. Therefore the script prints the median of the ratios,
and not a ratio of medians.

fio and STREAM use huge pages, as Outcrop does. On some disks, transfers of memory with huge pages are three times
faster.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from statistics import median

from outcrop import _core
from outcrop.bench.io_cases import IoCase
from outcrop.paths import made_directory
from outcrop.tiers import measure as own
from outcrop.tiers.discover import available_cores

HUGE_PAGES = {**os.environ, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}

# The duration SECONDS of a measurement is short, so that no program reaches the end of the file. After the end of the
# file, a program would begin again with the first bytes of the file, which would be in the page cache.
SPAN_BYTES, SECONDS, KIB = 1 << 30, 0.3, 1024
RECORD = 2048 * KIB
CASES = [
    *(IoCase(name, write, False, RECORD, 16, SPAN_BYTES) for name in ("io_uring", "libaio") for write in (False, True)),
    *(IoCase(name, write, True, 4 * KIB, 32, SPAN_BYTES) for name in ("io_uring", "libaio") for write in (False, True)),
    *(IoCase("io_uring", write, True, 4 * KIB, 1, SPAN_BYTES) for write in (False, True)),
    IoCase("io_uring", False, True, 256 * KIB, 64, SPAN_BYTES),
    IoCase("buffered", False, False, 1024 * KIB, 1, SPAN_BYTES),
    IoCase("buffered", False, True, 64 * KIB, 1, SPAN_BYTES, warm=True, flush=False),
]
SEQUENTIAL = own.RECORD_BYTES, own.RECORDS_IN_FLIGHT, own.SEQUENTIAL_SECONDS
RANDOM = own.PAGE_BYTES, own.PAGES_IN_FLIGHT, own.RANDOM_SECONDS
# The settings of fio's job for each figure of a tier: pattern, bytes of a request, requests in flight, seconds.
TIER_FIGURES = {
    "sequential write": ("write", *SEQUENTIAL),
    "sequential read": ("read", *SEQUENTIAL),
    "random read": ("randread", *RANDOM),
    "random write": ("randwrite", *RANDOM),
}
ARRAY_BYTES = 8 << 24


def fio(path: Path, pattern: str, request_bytes: int, depth: int, seconds: float | None, **options: object) -> float:
    """Run one job of fio on a file, and return its bytes per second. If `seconds` is None, the job of fio reads or
    writes the whole file once."""
    options = {"name": "case", "filename": path, "rw": pattern, "bs": request_bytes, "iodepth": depth,
               "ioengine": "io_uring", "direct": 1, "iomem_align": "2M", **options}  # fmt: skip
    timed = [] if seconds is None else ["--time_based", f"--runtime={int(1000 * seconds)}ms"]
    command = ["fio", "--output-format=json", *timed, *(f"--{name}={value}" for name, value in options.items())]
    text = subprocess.run(command, capture_output=True, text=True, check=True, env=HUGE_PAGES).stdout
    (job,) = json.loads(text[text.index("{") :])["jobs"]
    return float(job["write" if "write" in pattern else "read"]["bw_bytes"])


def compare_io(directory: Path, repeats: int) -> None:
    with tempfile.TemporaryDirectory(prefix="outcrop-fio-", dir=directory) as folder:
        path = Path(folder) / "file"
        _core.create_file(str(path), SPAN_BYTES)
        IoCase("threads", True, False, RECORD, 8, SPAN_BYTES).measure(path, float("inf"))
        for case in CASES:
            engine = "psync" if case.interface == "buffered" else case.interface
            cache = {"direct": int(engine != "psync"), "invalidate": int(not case.warm), "fadvise_hint": 0}
            pattern = ("rand" if case.random else "") + ("write" if case.write else "read")
            pairs = [
                (
                    case.measure(path, SECONDS).bytes_per_second,
                    fio(path, pattern, case.request_bytes, case.depth, SECONDS, size=SPAN_BYTES, ioengine=engine,
                        **cache),
                )
                for _ in range(repeats)
            ]  # fmt: skip
            show(f"{case.interface:9} {case.pattern:16} {case.request_bytes // KIB:5} KiB x {case.depth:2}", pairs)


def compare_tiers(directory: Path, repeats: int) -> None:
    pairs = [(tiers_of_outcrop(directory), tiers_of_fio(directory)) for _ in range(repeats)]
    for name in TIER_FIGURES:
        show(f"{name:16}", [(ours[name], theirs[name]) for ours, theirs in pairs])


def tiers_of_outcrop(directory: Path) -> dict[str, float]:
    """Measure each of TIER_FIGURES with Outcrop, and return a dictionary that maps each name to the bytes per
    second."""
    figures = own.measure_storage(directory, 8 * own.SCRATCH_BYTES)
    return {
        "sequential write": figures.write_bytes_per_second or 0.0,
        "sequential read": figures.read_bytes_per_second or 0.0,
        "random read": figures.random_read_bytes_per_second or 0.0,
        "random write": figures.random_write_bytes_per_second or 0.0,
    }


def tiers_of_fio(directory: Path) -> dict[str, float]:
    """Measure each of TIER_FIGURES with fio, and return a dictionary that maps each name to the bytes per second. Each
    result is the best of several repeats. fio and Outcrop make the same number of repeats."""
    with tempfile.TemporaryDirectory(prefix="outcrop-fio-", dir=directory) as folder:
        path, found = Path(folder) / "file", {}
        _core.create_file(str(path), own.SCRATCH_BYTES)
        fio(path, "write", own.RECORD_BYTES, own.RECORDS_IN_FLIGHT, None, size=own.SCRATCH_BYTES)
        for name, job in TIER_FIGURES.items():
            repeats = own.STORAGE_REPEATS if name.startswith("sequential") else 1
            found[name] = max(fio(path, *job, size=own.SCRATCH_BYTES) for _ in range(repeats))
    return found


def compare_triad(program: Path, repeats: int) -> None:
    threads, pairs = available_cores(), []
    for _ in range(repeats):
        meter = _core.MemoryMeter(threads, ARRAY_BYTES, ())
        environment = {**HUGE_PAGES, "OMP_NUM_THREADS": str(threads)}
        text = subprocess.run([program.absolute()], capture_output=True, text=True, check=True, env=environment).stdout
        found = re.search(r"^Triad:\s+([\d.]+)", text, re.MULTILINE)
        if found is None:
            raise SystemExit(f"{program} prints no triad")
        pairs.append((meter.bandwidth("triad", own.MEMORY_REPEATS), float(found[1]) * 1e6))
    show("triad", pairs)


def show(name: str, pairs: list[tuple[float, float]]) -> None:
    """Print one line for a speed: the medians of both programs in MB/s, the median of the ratios, and all ratios."""
    ratios = [ours / theirs for ours, theirs in pairs]
    ours, theirs = (median(side) / 1e6 for side in zip(*pairs, strict=True))
    every = " ".join(f"{ratio:.2f}" for ratio in ratios)
    print(f"{name}: {ours:6.0f} other {theirs:6.0f} ratio {median(ratios):.2f} of {every}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("io", "tiers", "triad"))
    parser.add_argument("place", type=Path, help="the directory for the files, or the program stream")
    parser.add_argument("repeats", type=int, nargs="?", default=7)
    given = parser.parse_args()
    if given.what == "triad":
        if not os.access(given.place, os.X_OK) or given.place.is_dir():
            parser.error(f"{given.place} is not a program; give the path of STREAM, such as ./stream")
        compare_triad(given.place, given.repeats)
        return
    if shutil.which("fio") is None:
        parser.error("the program fio is missing; install it: apt install fio")
    with made_directory(given.place):
        {"io": compare_io, "tiers": compare_tiers}[given.what](given.place, given.repeats)


if __name__ == "__main__":
    main()
