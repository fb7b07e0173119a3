"""How much memory a process has had at most since it began to look: pages that several share count in parts."""

from __future__ import annotations

import re
from pathlib import Path

PROC = Path("/proc/self")


class PeakMemory:
    """Looks from when it is made. `bytes_more` is None where the system does not say."""

    def __init__(self) -> None:
        try:
            (PROC / "clear_refs").write_text("5")  # the peak is the present, from now on
            self._before: int | None = _peak_bytes()
        except OSError:
            self._before = None

    @property
    def bytes_more(self) -> int | None:
        """The most there was above what there was at first."""
        return None if self._before is None else max(0, _peak_bytes() - self._before)


def _peak_bytes() -> int:
    status, rollup = (PROC / "status").read_text(), (PROC / "smaps_rollup").read_text()
    return _value(status, "VmHWM") - _value(status, "RssShmem") + _value(rollup, "Pss_Shmem")


def _value(text: str, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", text, flags=re.M)
    return int(found.group(1)) * 1024 if found else 0
