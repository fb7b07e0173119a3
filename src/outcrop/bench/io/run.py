"""A program that makes measurements of `outcrop bench io` within limited memory:
python -m outcrop.bench.io.run CASES FILE SECONDS, the cases as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from outcrop.bench.io.case import Case
from outcrop.bench.memory_group import run_limited


def measure_limited(
    cases: Sequence[Case], path: Path, seconds_most: float, limit_bytes: int | None
) -> list[dict[str, Any]]:
    """The figures of cases in a process of its own; `limit_bytes` in them is None where no group could be made."""
    every = json.dumps([asdict(case) for case in cases])
    output = run_limited(["-m", "outcrop.bench.io.run", every, str(path), str(seconds_most)], limit_bytes)
    limits = {"wanted_limit_bytes": limit_bytes, "limit_bytes": limit_bytes if output.is_limited else None}
    return [{**one, **limits} for one in json.loads(output.text)]


def main() -> None:
    """Run as a program; see the top of the file."""
    cases = [Case(**one) for one in json.loads(sys.argv[1])]
    path, seconds_most = Path(sys.argv[2]), float(sys.argv[3])
    print(json.dumps([case.measure(path, seconds_most).to_json() for case in cases]))


if __name__ == "__main__":
    main()
