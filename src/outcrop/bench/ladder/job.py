"""One measurement of the ladder: what is asked of a process of its own, and what it answers."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from outcrop.bench.memory_group import run_limited

COMPONENTS = ("update", "read_wait", "write_wait", "copy", "checksum", "commit")
"""What the thread that interprets a plan does; in one layer updates include the waits for the system's paging."""


@dataclass(frozen=True)
class Job:
    """Advance a grid of `shape` (nz, ny, nx) by `steps` steps as column `number` does, with blocks of at most
    `window_bytes`; files go to `directory`, which is empty."""

    number: int
    shape: tuple[int, int, int]
    steps: int
    window_bytes: int
    directory: str = ""

    def to_argument(self) -> str:
        """The job on a command line."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_argument(text: str) -> Job:
        """The inverse."""
        values = json.loads(text)
        return Job(**{**values, "shape": tuple(values["shape"])})


@dataclass(frozen=True)
class Measured:
    """`seconds` of wall-clock time for `steps` steps, and those of each of COMPONENTS.

    `block` is (bx, by, bz) in cells, `levels` bt, `passes` how often all blocks are gone through. Bytes: `bytes_read`
    and `bytes_written` moved by the plan (0 in one layer) and as it predicted; by the system's count, read from and
    written to devices by this process, and swapped by the machine meanwhile. `memory_peak_bytes` of this process,
    mapped pages included. `digest`: checksum of the final grid.
    """

    steps: int
    seconds: float
    seconds_components: dict[str, float]
    cells_updated: int
    io: str
    block: tuple[int, int, int]
    levels: int
    passes: int
    window_bytes: int
    bytes_read: int
    bytes_written: int
    predicted_seconds: float
    predicted_bytes_read: int
    predicted_bytes_written: int
    device_bytes_read: int
    device_bytes_written: int
    swapped_in_bytes: int
    swapped_out_bytes: int
    memory_peak_bytes: int
    digest: int

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Limited:
    """A measurement, and how its memory was limited: `limit_bytes` by a control group, None where there was none;
    `group_peak_bytes` the most all of it took, page cache included, None where nothing counts that."""

    measured: Measured
    limit_bytes: int | None
    group_peak_bytes: int | None


def run_job(job: Job, directory: Path, limit_bytes: int, may_swap: bool, seconds_most: float) -> Limited:
    """Do `job` in a process of its own, with a folder of its own in `directory`. Raises StorageError when it fails, is
    killed or takes longer than `seconds_most`."""
    with tempfile.TemporaryDirectory(prefix="outcrop-ladder-", dir=directory) as folder:
        own = Job(job.number, job.shape, job.steps, job.window_bytes, folder)
        arguments = ["-m", "outcrop.bench.ladder.run", own.to_argument()]
        output = run_limited(arguments, limit_bytes, may_swap, seconds_most)
    measured = Measured(**json.loads(output.text))
    return Limited(measured, limit_bytes if output.is_limited else None, output.peak_bytes)
