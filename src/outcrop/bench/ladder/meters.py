"""What the system counts while a run goes on: bytes that reached devices, and pages swapped."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Moved:
    """Bytes. Of the process: read from devices, and made dirty to be written to them (0 where nothing counts). Of the
    whole machine: swapped in and out."""

    device_read: int = 0
    device_written: int = 0
    swapped_in: int = 0
    swapped_out: int = 0

    def __sub__(self, before: Moved) -> Moved:
        return Moved(
            self.device_read - before.device_read,
            self.device_written - before.device_written,
            self.swapped_in - before.swapped_in,
            self.swapped_out - before.swapped_out,
        )


def moved() -> Moved:
    """All counters as they stand now."""
    own, machine = _counters("/proc/self/io"), _counters("/proc/vmstat")
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    return Moved(
        own.get("read_bytes", 0),
        own.get("write_bytes", 0),
        machine.get("pswpin", 0) * page_bytes,
        machine.get("pswpout", 0) * page_bytes,
    )


def _counters(path: str) -> dict[str, int]:
    try:
        pairs = (line.split() for line in Path(path).read_text().splitlines())
        return {name.rstrip(":"): int(value) for name, value in pairs}
    except (OSError, ValueError):
        return {}
