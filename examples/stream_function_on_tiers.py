"""Compute potential flow through a box by Jacobi's iteration, without persistence, with partial persistence, and with
full persistence.

    .venv/bin/python examples/stream_function_on_tiers.py [--size 6144] [--steps 60] [--every 30] [-d DIRECTORY]
    .venv/bin/python examples/stream_function_on_tiers.py --size 512 --until 1e-4      until the change is 1e-4

The method is from A. Jackson (EPCC). The program uses two arrays alternately: each step reads one array and writes the
other array. An array is in DRAM or on the tier that contains DIRECTORY. The program makes its arrays on the tier in
DIRECTORY, and removes these arrays at the end. The printed table has these rows:

    both arrays in DRAM    No array is on the tier.
    no persistence         Both arrays are mapped files on the tier. They are never flushed.
    partial persistence    One array is on the tier and is committed every `--every` steps. The other array is in DRAM.
    full persistence       Both arrays are on the tier. Each step commits the array that the step has written.
    out of core            The engine computes, and commits after each pass.

The progress of the iteration is ‖Δψ‖/‖ψ‖, the change of the last step. With `--until`, the program first finds the
number of steps after which the change of a step is small enough. The iteration that finds this number is not measured.
The last line of the output is the minimum time that full persistence needs. The minimum time of full persistence is the
number of written bytes divided by the bandwidth of durable writes on the tier.
"""

import argparse
import shutil
import time
from collections.abc import Sequence

import compare
import numpy as np
from compare import Outcome, Variant
from options import at_least, checked

import outcrop as oc
from outcrop.arrays.array import Array, Flush
from outcrop.tiers.survey import find_tiers, tiers_holding

ROWS = 512
MIN_CHANGE = 1e-12
"""The minimum of `--until`. Because of rounding, a smaller change may never be reached."""


def initial(n: int) -> np.ndarray:
    """Return the initial values of a box that is open at the bottom and at the right. The returned array has one spare
    row at each end."""
    psi = np.zeros((n + 2, n))
    planes = oc.stencils.inlet_outlet((n, n), inlet=(n // 8, n // 3), outlet=(n // 2, n - n // 8))
    psi[1:-1] = planes(0, n)
    return psi


def iterate(given: argparse.Namespace, even: Array, odd: Array, needed_bytes: int) -> Outcome:
    """Compute all steps on two arrays, and return the measurements. After each step, call `Array.step` of the array
    that the step has written. `Array.step` also commits the array if a commit is due."""
    even[...] = odd[...] = initial(given.size)
    arrays, flushes = (odd, even), list[Flush]()
    with oc.Sweep(oc.stencils.stream_function(), {"psi": (even.values, odd.values)}) as sweep:
        begin = time.perf_counter()
        for step in range(given.steps):
            sweep.step()
            flush = arrays[step % 2].step()
            flushes += [flush] if flush else []
        seconds = time.perf_counter() - begin
    resident = compare.resident_bytes()
    result = sample(arrays[(given.steps - 1) % 2].values[1:-1])
    newest, before = arrays[(given.steps - 1) % 2], arrays[given.steps % 2]
    note = f"‖Δψ‖/‖ψ‖ of the last step {change(newest, before):.2e}"
    if flushes:
        written, busy = sum(one.bytes_written for one in flushes), sum(one.seconds for one in flushes)
        note += f"; {len(flushes)} commits of {written / 1e9:.3g} GB in {busy:.2f} s ({written / busy / 1e9:.3g} GB/s)"
    for array in (even, odd):
        array.close()
    return Outcome(seconds, needed_bytes, *resident, result, note)


def change(newest: Array, before: Array) -> float:
    """Return ‖Δψ‖/‖ψ‖ of two consecutive steps. The norms ‖Δψ‖ and ‖ψ‖ are computed from a few rows at a time."""
    psi, old, differences, squares = newest[1:-1], before[1:-1], 0.0, 0.0
    for row in range(0, len(psi), ROWS):
        some = psi[row : row + ROWS]
        differences += float(np.square(some - old[row : row + ROWS]).sum())
        squares += float(np.square(some).sum())
    return float(np.sqrt(differences / squares))


def steps_until(given: argparse.Namespace) -> int:
    """Return the number of steps of an iteration that ends when the change of a step is at most the value of
    `--until`."""
    even, odd = (oc.array((given.size + 2, given.size), tier="dram") for _ in range(2))
    even[...] = odd[...] = initial(given.size)
    newest, before, steps = even, odd, 0
    with oc.Sweep(oc.stencils.stream_function(), {"psi": (even.values, odd.values)}) as sweep:
        while steps == 0 or change(newest, before) > given.until:
            sweep.step()
            newest, before, steps = before, newest, steps + 1
    return steps


def array(given: argparse.Namespace, name: str, persist: str | int) -> Array:
    """Make one of the two arrays on the tier. Files of an earlier repeat are deleted first."""
    shape, path = (given.size + 2, given.size), given.directory / name
    if persist == "never":
        return oc.array(shape, tier=tier_name(given))
    shutil.rmtree(path, ignore_errors=True)
    return oc.array(shape, persist=persist, path=path)


def tier_name(given: argparse.Namespace) -> str:
    return tiers_holding(given.directory, find_tiers([given.directory]))[0].name


def in_dram(given: argparse.Namespace) -> Outcome:
    even, odd = (oc.array((given.size + 2, given.size), tier="dram") for _ in range(2))
    return iterate(given, even, odd, even.nbytes + odd.nbytes)


def without(given: argparse.Namespace) -> Outcome:
    return iterate(given, array(given, "even", "never"), array(given, "odd", "never"), 0)


def partial(given: argparse.Namespace) -> Outcome:
    """Compute with partial persistence: one of the two arrays is on the tier. The array on the tier has the newest
    values after even steps, and is committed every `--every` steps."""
    even, odd = array(given, "even", given.every // 2), oc.array((given.size + 2, given.size), tier="dram")
    return iterate(given, even, odd, odd.nbytes)


def full(given: argparse.Namespace) -> Outcome:
    """Compute with full persistence: both arrays are on the tier. After a crash, the array with the later step has the
    newest values."""
    return iterate(given, array(given, "even", "step"), array(given, "odd", "step"), 0)


def out_of_core(given: argparse.Namespace) -> Outcome:
    n = given.size
    sim = oc.Simulation(
        oc.stencils.stream_function(),
        (n, n),
        dtype="float64",
        directory=given.directory / "run.oc",
        memory=given.memory,
        force=True,
    )
    sim["psi"] = oc.stencils.inlet_outlet((n, n), inlet=(n // 8, n // 3), outlet=(n // 2, n - n // 8))
    report = sim.run(steps=given.steps, progress="none")
    return Outcome(report.seconds, report.window_bytes, report.memory_peak_bytes, 0, sample(sim["psi"]))


def sample(psi: np.ndarray) -> list[float]:
    """Return the sums of some rows. Most of the chosen rows are near the inlet, where values change first."""
    return [float(np.sum(psi[row], dtype="float64")) for row in (1, 2, 3, 5, 9, 17, 33, -2)]


VARIANTS = {
    "dram": Variant("both arrays in DRAM", in_dram),
    "none": Variant("no persistence", without),
    "partial": Variant("partial persistence", partial),
    "full": Variant("full persistence", full),
    "engine": Variant("out of core", out_of_core),
}


def main(argv: Sequence[str] | None = None) -> None:
    parser = compare.parser(__doc__, __file__, size=6144, memory="64MiB")
    parser.add_argument("--steps", type=at_least(1), default=60, metavar="N", help="steps of the iteration [60]")
    # The number of steps between commits must be even, because the committed array has the newest values only after
    # even steps.
    even = checked(int, lambda value: value >= 2 and value % 2 == 0, "an even number of at least 2")
    tolerance = checked(float, lambda value: MIN_CHANGE <= value < 1, f"a number from {MIN_CHANGE} to 1")
    parser.add_argument("--every", type=even, default=30, metavar="K", help="steps between commits, even [30]")
    parser.add_argument("--until", type=tolerance, metavar="CHANGE", help="iterate until ‖Δψ‖/‖ψ‖ is this, not --steps")
    given = parser.parse_args(argv)

    def prepare(of_all: argparse.Namespace) -> None:
        if given.until is not None:
            given.steps = of_all.steps = steps_until(given)
        del of_all.until  # child processes get the number of steps instead of this option

    found = compare.measure(__file__, VARIANTS, given, prepare)
    if found is None:
        return
    print(f"stream function, {given.size} x {given.size} float64, {given.steps} steps, partial: every {given.every}")
    print(compare.table(VARIANTS, found))
    print(f"same bits: {all(of[0].result == found['dram'][0].result for of in found.values())}")
    print(limit(given))


def limit(given: argparse.Namespace) -> str:
    """Return a text with the minimum time that the variant "full persistence" needs to write its bytes."""
    name = tier_name(given)
    tier = next(one for one in find_tiers([given.directory], measure=True) if one.name == name)
    written = given.steps * (given.size + 2) * given.size * 8
    if not tier.write_bytes_per_second:
        return f"tier {name} is not measured: {tier.note}"
    return (
        f"tier {name} writes {tier.write_bytes_per_second / 1e9:.3g} GB/s: full persistence of {written / 1e9:.3g} GB "
        f"takes {written / tier.write_bytes_per_second:.2f} s at least"
    )


if __name__ == "__main__":
    main()
