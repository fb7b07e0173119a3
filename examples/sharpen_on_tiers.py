"""Sharpen an image with a filter of 289 weights. The read-only arrays are in DRAM or on another tier.

    .venv/bin/python examples/sharpen_on_tiers.py [--size 12288] [--turns 3] [--memory 64MiB] [-d DIRECTORY]

The method is from A. Jackson (EPCC). The program has four arrays of equal size: two arrays that are only read, and two
arrays that are written. The program convolves the padded image with the filter, and subtracts the convolution from the
image. The tier of the program is the tier that contains DIRECTORY. The program makes two arrays in the directory
DIRECTORY, and removes these arrays at the end. The printed table has these rows:

    all arrays in DRAM              The arrays are read from the files before the measurement.
    read-only arrays on the tier    The read-only arrays are the mapped files.
    the same, within a limit        The process is in a control group that has little more memory than the two other
                                    arrays need. Pages of files count as memory too. Therefore each page is read from
                                    the device when it is needed.
    out of core                     The engine computes, and does not store the convolution.
"""

import argparse
import os
import time
from collections.abc import Callable, Sequence
from statistics import median

import compare
import numpy as np
from compare import Outcome, Variant

import outcrop as oc
from outcrop.units import format_bytes

REACH, REPEATS, PAIRS = 8, 3, 7
WRITTEN = ("convolution", "sharp")
ROWS, THREADS_A_CORE, PAGE_BYTES = 512, 2, 4096
BESIDE_BYTES = 256 << 20
"""The memory that the control group has in addition to the arrays: for Python, its libraries, and pages of files in
transfer."""


def sharpening() -> oc.Stencil:
    """Return the stencil of Jackson's program. The first stage of this stencil convolves the padded image, and the
    second stage subtracts the convolution from the image."""
    convolution, sharp, image, padded = map(oc.Field, ("convolution", "sharp", "image", "padded"))
    steps = range(-REACH, REACH + 1)
    terms = []
    for dy in steps:
        for dx in steps:
            delta = (dy**2 + dx**2) / (2 * (1.4 * REACH / 4) ** 2)
            terms.append(float(-40 * (1 - delta) * np.exp(-delta)) * padded[dy, dx])
    subtract = image[0, 0] - 2 / (2 * REACH - 1) ** 2 * convolution[0, 0]
    return oc.Stencil("sharpening", [{convolution: sum(terms)}, {sharp: subtract}])


def make_files(given: argparse.Namespace) -> None:
    """Write random values to the files of the image and of the padded image, row after row."""
    n, random = given.size, np.random.default_rng(7)
    rows = np.cumsum(random.standard_normal((ROWS, n), "float32"), axis=1)
    for name in ("image", "padded"):
        path = given.directory / f"{name}.npy"
        oc.array((n + 2, n), "float32", path=path).close()  # in this file, the values begin at a page boundary
        with open(path, "r+b") as file:  # values are written in large pieces, as in most programs
            file.seek(-(n + 2) * n * 4, os.SEEK_END)
            for row in range(0, n + 2, ROWS):
                rows[: n + 2 - row].tofile(file)
            file.flush()
            os.fsync(file.fileno())


def read_only(given: argparse.Namespace, tier: str) -> dict[str, np.ndarray]:
    """Return both read-only arrays. `tier` says whether the arrays are mapped files, mapped files whose pages are
    already in memory, or copies in DRAM."""
    files = {name: oc.open_array(given.directory / f"{name}.npy").values for name in ("image", "padded")}
    if tier == "file":
        return files
    if tier == "file in memory":
        for file in files.values():  # read each page now, so that the calculation has no page faults
            file[:, :: PAGE_BYTES // file.itemsize].max()
        return files
    copies = {name: oc.array(file.shape, file.dtype, tier="dram", access="read") for name, file in files.items()}
    for name, copy in copies.items():
        copy[...] = files[name]
    return {name: copy.values for name, copy in copies.items()}


def sharpen(given: argparse.Namespace, tier: str, threads: int | None = None) -> Outcome:
    """Sharpen the image with four arrays: the two written arrays are in DRAM, and the two read-only arrays are on
    `tier`."""
    arrays = read_only(given, tier)
    shape = (given.size + 2, given.size)
    arrays |= {name: oc.array(shape, "float32", tier="dram").values for name in WRITTEN}
    for name in WRITTEN:
        arrays[name][...] = 0
    with oc.Sweep(sharpening(), arrays, threads=threads) as sweep:
        seconds = median(timed(sweep.step) for _ in range(REPEATS))
    in_dram = 4 if tier == "dram" else 2
    return Outcome(seconds, in_dram * arrays["sharp"].nbytes, *compare.resident_bytes(), sample(arrays["sharp"][1:-1]))


def side_by_side(given: argparse.Namespace) -> float:
    """Compare two variants: the read-only arrays are copies in DRAM, or mapped files whose pages are in memory. Return
    the relative increase of the time with mapped files. This process measures both variants alternately, so that all
    other conditions are the same."""
    written = {name: oc.array((given.size + 2, given.size), "float32", tier="dram").values for name in WRITTEN}
    with (
        oc.Sweep(sharpening(), {**written, **read_only(given, "dram")}) as in_dram,
        oc.Sweep(sharpening(), {**written, **read_only(given, "file in memory")}) as on_tier,
    ):
        turns = [(timed(in_dram.step), timed(on_tier.step)) for _ in range(PAIRS + 1)]
    return median(tier / dram for dram, tier in turns[1:]) - 1


def timed(work: Callable[[], None]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def sharpen_cold(given: argparse.Namespace) -> Outcome:
    """Compute with mapped files whose pages are not in memory yet. During the computation, this process loads the
    pages, so the pages count towards its memory limit. There are more threads than cores, so that some threads compute
    while other threads wait for pages."""
    for name in ("image", "padded"):
        with open(given.directory / f"{name}.npy", "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return sharpen(given, "file", THREADS_A_CORE * (os.cpu_count() or 1))


def out_of_core(given: argparse.Namespace) -> Outcome:
    """Compute out of core with the built-in stencil, which convolves and subtracts in one step."""
    n, path = given.size, given.directory / "padded.npy"
    first = path.stat().st_size - (n + 1) * n * 4  # offset of the first value, after the header and a spare row

    def rows(y0: int, y1: int) -> np.ndarray:
        return np.fromfile(path, "float32", (y1 - y0) * n, offset=first + y0 * n * 4).reshape(-1, n)

    sim = oc.Simulation(
        oc.stencils.sharpen(), (n, n), directory=given.directory / "run.oc", memory=given.memory, force=True
    )
    sim["image"] = rows
    report = sim.run(steps=1, progress="none")
    return Outcome(report.seconds, report.window_bytes, report.memory_peak_bytes, 0, sample(sim["sharp"]))


def sample(sharp: np.ndarray) -> list[float]:
    """Return the means of some rows of the result, without the cells of the rim."""
    rows = range(REACH, sharp.shape[0] - REACH, max(1, sharp.shape[0] // 16))
    return [float(np.mean(sharp[row][REACH:-REACH], dtype="float64")) for row in rows]


def variants(size: int) -> dict[str, Variant]:
    limit = 2 * size * size * 4 + BESIDE_BYTES
    return {
        "dram": Variant("all arrays in DRAM", lambda given: sharpen(given, "dram")),
        "tier": Variant("read-only arrays on the tier", lambda given: sharpen(given, "file in memory")),
        "limited": Variant(f"the same, within {format_bytes(limit)} in all", sharpen_cold, limit),
        "engine": Variant("out of core", out_of_core),
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = compare.parser(__doc__, __file__, size=12288, memory="64MiB")
    given = parser.parse_args(argv)
    of, longer = variants(given.size), []

    def prepare(given: argparse.Namespace) -> None:
        make_files(given)
        longer.append(side_by_side(given))

    found = compare.measure(__file__, of, given, prepare)
    if found is None:
        return
    print(f"sharpening {given.size} x {given.size} float32 with 289 taps")
    print(compare.table(of, found))
    dram, tier = found["dram"][0], found["tier"][0]
    saved = 1 - tier.own_bytes / dram.own_bytes
    print(f"read-only arrays on the tier: {100 * saved:.0f} % less memory;", end=" ")
    print(f"in one process, alternately with all in DRAM, {100 * longer[0]:+.1f} % time")
    print(f"same bits: {dram.result == tier.result == found['limited'][0].result}")
    print(f"out of core, largest difference {np.ptp([found['engine'][0].result, dram.result], axis=0).max():.1e}")


if __name__ == "__main__":
    main()
