"""Potential flow through a box by Jacobi's iteration, with nothing, something or everything kept in case of a crash.

    .venv/bin/python examples/stream_function_on_tiers.py [--size 6144] [--steps 60] [--every 30] [-d DIRECTORY]

The stream function of A. Jackson (EPCC): two arrays that take turns. The tier is that of DIRECTORY, where arrays are
made and removed. Rows of the table:

    both arrays in DRAM
    no persistence        both mapped on the tier, never flushed
    partial persistence   one on the tier, committed every so many steps; the other in DRAM
    full persistence      both on the tier; each step commits the array it has written
    out of core, by the engine, which commits after each pass

Full persistence cannot be faster than its bytes over the bandwidth at which the tier makes them durable: the last line.
"""

import argparse
import shutil
import time
from collections.abc import Sequence

import by_turns
import numpy as np
from by_turns import Outcome, Variant

import outcrop as oc
from outcrop.arrays.array import Array, Flush
from outcrop.tiers.survey import find_tiers


def initial(n: int) -> np.ndarray:
    """A box, open at the bottom and at the right, with a spare row at each end."""
    psi = np.zeros((n + 2, n))
    planes = oc.stencils.inlet_outlet((n, n), inlet=(n // 8, n // 3), outlet=(n // 2, n - n // 8))
    psi[1:-1] = planes(0, n)
    return psi


def iterate(given: argparse.Namespace, even: Array, odd: Array, needed_bytes: int) -> Outcome:
    """All steps on two arrays; after each the one it has written is told, and commits where it is due."""
    even[...] = odd[...] = initial(given.size)
    arrays, flushes = (odd, even), list[Flush]()
    with oc.Sweep(oc.stencils.stream_function(), {"psi": (even.values, odd.values)}) as sweep:
        begin = time.perf_counter()
        for step in range(given.steps):
            sweep.step()
            flush = arrays[step % 2].step()
            flushes += [flush] if flush else []
        seconds = time.perf_counter() - begin
    resident = by_turns.resident_bytes()
    result = sample(arrays[(given.steps - 1) % 2].values[1:-1])
    note = ""
    if flushes:
        written, busy = sum(one.bytes_written for one in flushes), sum(one.seconds for one in flushes)
        note = f"{len(flushes)} commits of {written / 1e9:.3g} GB in {busy:.2f} s ({written / busy / 1e9:.3g} GB/s)"
    for array in (even, odd):
        array.close()
    return Outcome(seconds, needed_bytes, *resident, result, note)


def array(given: argparse.Namespace, name: str, persist: str | int) -> Array:
    """One of the arrays on the tier, without what an earlier turn has left."""
    shape, path = (given.size + 2, given.size), given.directory / name
    if persist == "never":
        return oc.array(shape, tier=tier_name(given))
    shutil.rmtree(path, ignore_errors=True)
    return oc.array(shape, persist=persist, path=path)


def tier_name(given: argparse.Namespace) -> str:
    """The tier that holds the directory."""
    device = given.directory.stat().st_dev
    tiers = [tier for tier in find_tiers([given.directory]) if tier.directory is not None]
    return next(tier.name for tier in tiers if tier.directory.stat().st_dev == device)


def in_dram(given: argparse.Namespace) -> Outcome:
    even, odd = (oc.array((given.size + 2, given.size), tier="dram") for _ in range(2))
    return iterate(given, even, odd, even.nbytes + odd.nbytes)


def without(given: argparse.Namespace) -> Outcome:
    return iterate(given, array(given, "even", "never"), array(given, "odd", "never"), 0)


def partial(given: argparse.Namespace) -> Outcome:
    """The array that has the newest values after even steps is committed every `--every` steps of the calculation."""
    even, odd = array(given, "even", given.every // 2), oc.array((given.size + 2, given.size), tier="dram")
    return iterate(given, even, odd, odd.nbytes)


def full(given: argparse.Namespace) -> Outcome:
    """After a crash the array with the later step has the newest values."""
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
    """Sums of some rows, more of them near the inlet, which is where the flow has come to."""
    return [float(np.sum(psi[row], dtype="float64")) for row in (1, 2, 3, 5, 9, 17, 33, -2)]


VARIANTS = {
    "dram": Variant("both arrays in DRAM", in_dram),
    "none": Variant("no persistence", without),
    "partial": Variant("partial persistence", partial),
    "full": Variant("full persistence", full),
    "engine": Variant("out of core", out_of_core),
}


def main(argv: Sequence[str] | None = None) -> None:
    parser = by_turns.parser(__doc__, __file__, size=6144, memory="64MiB")
    parser.add_argument("--steps", type=int, default=60, metavar="N", help="of the iteration [60]")
    parser.add_argument("--every", type=int, default=30, metavar="K", help="steps from commit to commit, even [30]")
    given = parser.parse_args(argv)
    found = by_turns.measure(__file__, VARIANTS, given, lambda given: None)
    if found is None:
        return
    print(f"stream function, {given.size} x {given.size} float64, {given.steps} steps, partial: every {given.every}")
    print(by_turns.table(VARIANTS, found))
    print(f"same bits: {all(of[0].result == found['dram'][0].result for of in found.values())}")
    print(limit(given))


def limit(given: argparse.Namespace) -> str:
    """What full persistence takes at least for its bytes."""
    name = tier_name(given)
    tier = next(one for one in find_tiers([given.directory], measure=True) if one.name == name)
    written = given.steps * (given.size + 2) * given.size * 8
    return (
        f"tier {name} writes {tier.write_bytes_per_second / 1e9:.3g} GB/s: full persistence of {written / 1e9:.3g} GB "
        f"takes {written / tier.write_bytes_per_second:.2f} s at least"
    )


if __name__ == "__main__":
    main()
