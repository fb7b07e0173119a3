"""Compare steps that are staged on a fast tier with steps that are written directly to the target.

    python scripts/staged_beside_direct.py --target DIR --stage DIR [--limit 500MB/s]

For each case, the script prints the prediction and the decision of the cost model. Then the script alternately measures
steps with staging and steps without staging, in one process without MPI. Writes to the target are durable and bypass
the page cache, as for files larger than memory. The cost of a step is the whole time, including the drain at the end,
minus the time of the computation alone. With `--limit`, a control group limits the bandwidth of this process, so that
the target is as slow as a busy shared file system. Only root can give `--limit`.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

import outcrop.aggregate as agg
from outcrop.aggregate.nodes import machine_text
from outcrop.paths import made_directory
from outcrop.tiers.survey import find_tiers
from outcrop.units import parse_bytes

GROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Case:
    """A pattern of steps: the seconds of computation between two steps, and whether the program reads back each step
    that it has written."""

    name: str
    seconds_between: float
    reads_back: int


CASES = (
    Case("computes, then reads back", 0.6, 1),
    Case("computes, never reads", 0.6, 0),
    Case("writes step after step", 0.0, 0),
)


@dataclass(frozen=True)
class Measured:
    """The results of one repeat: how many seconds the program waits in each step during writes, during reads, and in
    total."""

    write: float
    read: float
    total: float


def main() -> None:
    """For each case, print three results: the decision of the model, a line for staged writes, and a line for direct
    writes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", type=Path, required=True, help="a folder on the device that files belong to")
    parser.add_argument("--stage", type=Path, default=Path("/dev/shm"), help="a folder on a faster tier")
    parser.add_argument("--limit", help="bandwidth of the target, for reading and for writing: 500MB/s")
    parser.add_argument("--step", default="128MiB", help="bytes of a step")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--turns", type=int, default=5)
    given = parser.parse_args()
    limit = None if given.limit is None else parse_bytes(given.limit.removesuffix("/s"))
    values = np.random.default_rng(0).integers(0, 256, parse_bytes(given.step), np.uint8)
    with (
        made_directory(given.target),
        limited(given.target, limit),
        tempfile.TemporaryDirectory(dir=given.target) as folder,
    ):
        machine = Path(folder) / "machine"
        machine.write_text(limited_machine_text(Path(folder), given.stage, limit))
        with agg.declare(None, [agg.contiguous(0, values.nbytes)], target=folder, machine=machine) as plan:
            for case in CASES:
                compare(case, plan, Path(folder), given.stage, values, given.steps, given.turns)


def limited_machine_text(target: Path, stage: Path, limit: int | None) -> str:
    """Return the text of a machine file with the tiers of memory, the tier of the stage, and the target with the limit
    of its bandwidth."""
    found = find_tiers([target, stage], measure=True)
    tiers = [tier for tier in found if tier.is_memory or os.stat(tier.where).st_dev == os.stat(stage).st_dev]
    head = machine_text(tiers, target).partition("[target]")[0]
    tail = machine_text(found, target).partition("[target]")[2]
    if limit is None:
        return head + "[target]" + tail
    lines = [
        f"{line.split(' = ')[0]} = {min(float(line.split(' = ')[1]), limit)!r}"
        if line.startswith(("read =", "write ="))
        else line
        for line in tail.splitlines()
    ]
    return head + "[target]" + "\n".join(lines) + "\n"


def compare(case: Case, plan: agg.Plan, folder: Path, stage: Path, values: np.ndarray, steps: int, turns: int) -> None:
    """Measure staged writes and direct writes alternately. Print a line for staged writes and a line for direct
    writes."""
    decided = dict(stage="auto", stage_persistence="reboot", seconds_between=case.seconds_between,
                   reads_back=case.reads_back)  # fmt: skip
    with agg.create(folder / "file", plan, durable=True, way="direct", **decided) as file:
        is_staged = file.is_staged
    lines = plan.explain().splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("staging:"))
    print(f"{case.name}: {steps} steps of {values.nbytes >> 20} MiB\n  model  {lines[begin]}")
    for line in lines[begin + 1 : begin + 3]:
        print(f"       {line}")
    taken: dict[str, list[Measured]] = {"straight": [], "staged": []}
    for _ in range(turns):
        alone = compute(case.seconds_between)
        for way, measured in taken.items():
            measured.append(run(case, plan, folder / way, str(stage) if way == "staged" else "", values, steps, alone))
    for way, measured in taken.items():
        totals = sorted(one.total for one in measured)
        write, read = median(one.write for one in measured), median(one.read for one in measured)
        spread = f"{totals[0] * 1e3:.0f} to {totals[-1] * 1e3:.0f}"
        parts = f"write {write * 1e3:.0f}, read {read * 1e3:.0f}"
        print(f"  measured {way:8}  {median(totals) * 1e3:6.0f} ms a step ({spread}): {parts}")
    faster = min(taken, key=lambda way: median(one.total for one in taken[way]))
    chosen = "staged" if is_staged else "straight"
    print(f"  the model says {chosen}, {faster} was faster\n", flush=True)


def run(case: Case, plan: agg.Plan, path: Path, stage: str, values: np.ndarray, steps: int, alone: float) -> Measured:
    """Write a file with a few steps and wait until all steps are durable on the target. Then check the bytes of the
    file."""
    found = np.empty_like(values)
    writes, reads = [], []
    begin = time.perf_counter()
    with agg.create(path, plan, durable=True, way="direct", stage=stage) as file:
        for step in range(steps):
            writes.append(file.write([values], base=step * plan.end).seconds)
            if case.seconds_between:
                compute(case.seconds_between)
            if case.reads_back:
                reads.append(file.read([found], base=step * plan.end).seconds)
    seconds = time.perf_counter() - begin
    if reads and not np.array_equal(found, values):
        raise SystemExit("other bytes were read than were written")
    path.unlink()
    return Measured(median(writes), median(reads) if reads else 0.0, seconds / steps - alone)


def compute(seconds: float) -> float:
    """Compute on one core for about `seconds` seconds, and return the exact time in seconds."""
    begin = time.perf_counter()
    values = np.linspace(0, 1, 4096)
    for _ in range(round(seconds * REPEATS_A_SECOND)):
        values = np.sqrt(values * values + 1e-9)
    return time.perf_counter() - begin


def repeats_a_second() -> float:
    """Return the number of iterations per second of the loop in `compute`."""
    begin, count = time.perf_counter(), 0
    values = np.linspace(0, 1, 4096)
    while time.perf_counter() - begin < 0.2:
        values = np.sqrt(values * values + 1e-9)
        count += 1
    return count / (time.perf_counter() - begin)


@contextmanager
def limited(folder: Path, bytes_per_second: int | None) -> Iterator[None]:
    """Use a control group to limit the bandwidth of this process on the device of the folder."""
    if bytes_per_second is None:
        yield
        return
    number = os.stat(folder).st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    is_first_version = (GROUPS / "blkio").is_dir()
    top = GROUPS / "blkio" if is_first_version else GROUPS
    group = top / f"outcrop-limit-{os.getpid()}"
    before = top / next(
        line.rpartition(":")[2].lstrip("/")
        for line in Path("/proc/self/cgroup").read_text().splitlines()
        if not is_first_version or "blkio" in line
    )
    group.mkdir()
    try:
        if is_first_version:
            for what in ("read", "write"):
                (group / f"blkio.throttle.{what}_bps_device").write_text(f"{device} {bytes_per_second}")
        else:
            (group / "io.max").write_text(f"{device} rbps={bytes_per_second} wbps={bytes_per_second}")
        (group / "cgroup.procs").write_text(str(os.getpid()))
        yield
    finally:
        (before / "cgroup.procs").write_text(str(os.getpid()))
        group.rmdir()


REPEATS_A_SECOND = repeats_a_second()

if __name__ == "__main__":
    main()
