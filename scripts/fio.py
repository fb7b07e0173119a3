"""Run one job of fio, for the scripts that put it beside our own measurements."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path


def bytes_per_second(path: Path, *, seconds: float | None, **options: object) -> float:
    """What fio says of a job on a file with these options; the whole `size` once where there are no `seconds`.

    Its buffers are asked to be in huge pages, as ours are: on some disks that makes a factor of three.
    """
    options = {"name": "case", "filename": path, "iomem_align": "2M", "output-format": "json", **options}
    timed = [] if seconds is None else ["--time_based", f"--runtime={int(1000 * seconds)}ms"]
    command = ["fio", *timed, *(f"--{name}={value}" for name, value in options.items())]
    huge = {**os.environ, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
    said = subprocess.run(command, capture_output=True, text=True, check=True, env=huge).stdout
    (job,) = json.loads(said[said.index("{") :])["jobs"]
    return float(job["write" if "write" in str(options["rw"]) else "read"]["bw_bytes"])
