"""A program of MPI that measures tasks of `outcrop agg bench`.

    mpirun -n RANKS python -m outcrop.bench.aggregate.job JOB

JOB is a file with a Job as JSON. What has been measured is written, as JSON, where the job says.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from outcrop.bench.aggregate.rank import Measured, RankBench, to_json
from outcrop.bench.aggregate.schedule import MODES, Baton, Task, schedule
from outcrop.bench.ranks import MpiRanks, all_ranks
from outcrop.errors import InputError


@dataclass(frozen=True)
class Job:
    """What several ranks measure. `ways` are those of all programs that take turns, `own` those of this one; what it
    has measured goes to `output`, and `baton` is where programs take turns, "" for one alone."""

    folder: str
    workloads: tuple[str, ...]
    bytes_of_rank: int
    modes: tuple[str, ...]
    ways: tuple[str, ...]
    own: tuple[str, ...]
    turns: int
    output: str = ""
    baton: str = ""

    def tasks(self) -> Iterable[Task]:
        """In their order, those of other programs, too."""
        modes = [mode for mode in MODES if mode.name in self.modes]
        return schedule(self.workloads, modes, self.ways, self.turns)


def measure(job: Job, ranks: MpiRanks) -> dict[str, Any]:
    """All tasks of a job, on all ranks; the same plain data on each."""
    baton = Baton(Path(job.baton) if job.baton else None)
    benches: dict[str, RankBench] = {}
    found: dict[str, list[Measured]] = {workload: [] for workload in job.workloads}
    last = {task.workload: task.number for task in job.tasks()}
    for task in job.tasks():
        if task.way in job.own:
            baton.wait_for(task.number)
            if task.workload not in benches:
                benches[task.workload] = RankBench(task.workload, job.bytes_of_rank, Path(job.folder), ranks)
            bench = benches[task.workload]
            if task.mode is None:
                bench.prepare()
            else:
                found[task.workload].append(bench.measure(task))
            ranks.wait_for_all()
            if ranks.rank == 0:
                baton.pass_on()
        if task.number == last[task.workload]:
            baton.wait_for(task.number + 1)
            benches[task.workload].end()
    return {
        "library": ranks.library,
        "own": list(job.own),
        "ranks": ranks.size,
        "nodes": list(dict.fromkeys(ranks.of_all(ranks.node))),
        "workloads": [to_json(benches[workload], found[workload]) for workload in job.workloads],
    }


def main() -> None:
    """Run as a program; see the top of the file."""
    job = Job(**{key: _frozen(value) for key, value in json.loads(Path(sys.argv[1]).read_text()).items()})
    with all_ranks() as ranks:
        if not isinstance(ranks, MpiRanks):
            raise InputError("aggregate_job is a program of MPI: start it by mpirun")
        figures = measure(job, ranks)
        if ranks.rank == 0:
            Path(job.output).write_text(json.dumps(figures))


def to_text(job: Job) -> str:
    """As main reads it."""
    return json.dumps(asdict(job))


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


if __name__ == "__main__":
    main()
