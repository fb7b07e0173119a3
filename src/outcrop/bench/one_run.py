"""Advance an existing run in a process of its own, so that its peak memory and its memory limit are its own.

    python -m outcrop.bench.one_run DIRECTORY STEPS BUDGET_BYTES SIZES

prints the report as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outcrop.bench.memory_group import run_limited
from outcrop.errors import StorageError
from outcrop.plan.problem import Problem


def in_one_slab(problem: Problem) -> dict[str, int]:
    """Sizes of a plan that has the whole grid in memory when it begins to update. A plan that chooses its sizes reads
    and writes meanwhile, so its updates alone would not be those of a grid in memory."""
    return {"bt": problem.steps, "slab": problem.planes, **({"by": problem.shape[1]} if problem.ndim == 3 else {})}


def advance(
    directory: Path,
    steps: int,
    budget_bytes: int,
    limit_bytes: int | None,
    sizes: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Advance the run in `directory` by `steps` steps within `budget_bytes`; its report and `cgroup_limit_bytes`.
    The plan keeps to `sizes`.

    `limit_bytes` limits all memory of the process, page cache included, where this process may ask the kernel for that;
    `cgroup_limit_bytes` is None where it may not. Raises StorageError with the child's last line when it fails.
    """
    numbers = str(steps), str(budget_bytes), json.dumps(dict(sizes or {}))
    arguments = ["-m", "outcrop.bench.one_run", str(directory), *numbers]
    try:
        output = run_limited(arguments, limit_bytes)
    except StorageError as error:
        raise StorageError(f"a measured run of {steps} steps failed: {error}") from None
    report: dict[str, Any] = json.loads(output.text)
    report["cgroup_limit_bytes"] = limit_bytes if output.is_limited else None
    return report


def main() -> None:
    """Run as a program; see the top of the file."""
    from outcrop.run.simulation import open as open_simulation

    directory, steps, budget_bytes = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    simulation = open_simulation(directory, memory=budget_bytes, sizes=json.loads(sys.argv[4]))
    print(json.dumps(simulation.run(steps, progress="none").to_json()))


if __name__ == "__main__":
    main()
