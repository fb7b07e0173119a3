"""Compare real runs of several ranks with their predicted times, and with one process, on a machine without other work.

    .venv/bin/python scripts/ranks_beside_plan.py predicted DIRECTORY [REPEATS]    Compare 2 and 4 ranks with plans.
    .venv/bin/python scripts/ranks_beside_plan.py pairs DIRECTORY [REPEATS]        Compare 2 ranks with one process.

A run takes at most 2.7 GB in a new folder in DIRECTORY. The folder is removed after the run.

In runs of several ranks, each rank has one thread, and is bound to an equal share of the cores. If there are more ranks
than cores, several ranks share a core. A run of one process has two threads, and can use all cores. The commands
`predicted` and `pairs` need mpi4py and mpiexec (`pip install 'outcrop[mpi]'`), or the launcher in $OUTCROP_MPIRUN.

`predicted` prints the predicted and the measured seconds of the passes of each run, and their ratio. Then `predicted`
prints the seconds of each phase of the first repeat, so that you see which phase differs from the plan. `pairs`
alternates two runs: one process with two threads, and two ranks with one thread and half of the memory each. `pairs`
prints the cell updates per second of the two runs, and the median of their ratios. The memory of a run is 6.25 % of all
its arrays on the disk.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from outcrop.tiers.discover import available_cores

CLI = (sys.executable, "-m", "outcrop.cli.main")
CASES = {
    "heat7": ((256, 512, 2048), 96, 2, ("random:1",)),
    "acoustic8": ((256, 512, 1024), 48, 5, ("u=random:1", "v=0.1")),
}
"""The shape, the steps, the number of arrays on the disk, and the initial values of each stencil."""
SHARE = 1 / 16
SCHEMES = ("wavefront", "split", "auto")
BOUND = 'cores=($1); shift; exec taskset -c "${cores[${OMPI_COMM_WORLD_RANK:-$PMI_RANK}]}" "$@"'
"""A command for bash that binds a rank to its cores. The first argument has a list of cores for each rank."""


def run(stencil: str, ranks: int, scheme: str, where: Path) -> dict[str, Any]:
    """Run a case on some ranks, or on one process with two threads, and return its report."""
    shape, steps, arrays, initial = CASES[stencil]
    memory = int(SHARE * arrays * 4 * math.prod(shape) / ranks)
    threads = 2 if ranks == 1 else 1
    with tempfile.TemporaryDirectory(prefix="outcrop-ranks-", dir=where) as folder:
        report = Path(folder) / "report.json"
        words = [*CLI, "run", stencil, "-n", *map(str, shape), "-t", str(steps), "--quiet",
                 *(word for values in initial for word in ("--init", values)), "--memory", str(memory),
                 "--threads", str(threads), "--scheme", scheme, "--json", str(report),
                 "-d", f"{folder}/run.oc"]  # fmt: skip
        if ranks > 1:
            words = [*launcher(), "-n", str(ranks), "bash", "-c", BOUND, "bash", " ".join(_shares(ranks)), *words]
        subprocess.run(words, check=True)
        found: dict[str, Any] = json.loads(report.read_text())
    return found


def _shares(ranks: int) -> list[str]:
    """Return the cores of each rank, as lists for taskset."""
    cores = sorted(os.sched_getaffinity(0))
    each = max(1, len(cores) // ranks)
    return [",".join(str(cores[core % len(cores)]) for core in range(r * each, (r + 1) * each)) for r in range(ranks)]


def launcher() -> list[str]:
    """Return the command that starts ranks, without the number of ranks."""
    given = os.environ.get("OUTCROP_MPIRUN")
    beside = Path(sys.executable).with_name("mpiexec")
    return shlex.split(given) if given else [str(beside) if beside.exists() else "mpiexec"]


def compare_with_plans(where: Path, repeats: int) -> None:
    for stencil in CASES:
        for ranks in (2, 4):
            for scheme in SCHEMES:
                found = [run(stencil, ranks, scheme, where) for _ in range(repeats)]
                ratios = [one["seconds"] / one["predicted"]["seconds"] for one in found]
                print(
                    f"{stencil:10} {ranks} ranks, {scheme:9} ({_passes(found[0])}): predicted "
                    f"{found[0]['predicted']['seconds']:.2f} s, measured {found[0]['seconds']:.2f} s, measured / "
                    f"predicted {median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})\n"
                    f"{'':10} {_phases(found[0])}",
                    flush=True,
                )


def _phases(report: dict[str, Any]) -> str:
    """Return the measured seconds of each phase on the slowest rank, and the predicted seconds of the updates."""
    names = ("update", "checksum", "copy", "read_wait", "write_wait", "face_wait", "commit")
    found = {name: report[f"seconds_{name}"] for name in names}
    found["other"] = report["seconds"] - sum(found.values())
    each = ", ".join(f"{name} {seconds:.2f}" for name, seconds in found.items())
    return f"rank {report['slowest_rank']}: predicted update {report['predicted']['seconds_update']:.2f} s; {each}"


def compare_with_one_process(where: Path, repeats: int) -> None:
    for stencil, (shape, steps, *_) in CASES.items():
        ratios: dict[str, list[float]] = {scheme: [] for scheme in SCHEMES}
        for _ in range(repeats):
            alone = run(stencil, 1, "auto", where)
            for scheme, of_scheme in ratios.items():
                ranks = run(stencil, 2, scheme, where)
                of_scheme.append(alone["seconds"] / ranks["seconds"])
                rates = [steps * math.prod(shape) / one["seconds"] / 1e9 for one in (alone, ranks)]
                print(
                    f"{stencil:10} one process ({_passes(alone)}) {rates[0]:.3f} Gcell/s, 2 ranks ({scheme}, "
                    f"{_passes(ranks)}) {rates[1]:.3f} Gcell/s, ratio {of_scheme[-1]:.3f}",
                    flush=True,
                )
        for scheme, of_scheme in ratios.items():
            print(f"{stencil:10} {scheme:9} median ratio {median(of_scheme):.3f}", flush=True)


def _passes(report: dict[str, Any]) -> str:
    plan = report["plan"]
    return f"{plan['scheme']}, {plan['steps_per_pass']} steps of a pass, slabs of {plan['slab']}"


def main() -> None:
    compare = {"predicted": compare_with_plans, "pairs": compare_with_one_process}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=tuple(compare))
    parser.add_argument("directory", type=Path, help="for the files of the runs; must exist")
    parser.add_argument("repeats", type=int, nargs="?", default=5)
    given = parser.parse_args()
    if not given.directory.is_dir():
        parser.error(f"{given.directory} is not a directory; make it first")
    if available_cores() < 2:
        parser.error("this process may use only one core; two cores are needed")
    if shutil.which(launcher()[0]) is None:
        parser.error(f"there is no {launcher()[0]}; install it: pip install 'outcrop[mpi]' mpich")
    compare[given.what](given.directory, given.repeats)


if __name__ == "__main__":
    main()
