"""What steps took, beside what was predicted: of one rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from outcrop.units import counted

STEPS_MOST = 1024
"""Of which figures are kept: the last ones."""


@dataclass(frozen=True)
class Timing:
    """Of one write or read at this rank, in seconds since it began."""

    seconds: float
    """Until its outcome was known."""
    seconds_copying: float
    """At work on this rank's parts of buffers."""
    seconds_filling: float
    """The same with waiting for buffers."""
    seconds_storage: float
    """Of this rank's I/O threads at work; 0 where it aggregates nothing."""
    seconds_messages: float
    """In which messages to or from other nodes were under way."""
    bytes_storage: int
    """Written or read by this rank for all."""

    @property
    def overlap(self) -> float | None:
        """Of the shorter of copying and storage, the part that went on beside the other; None where one is missing."""
        shorter = min(self.seconds_copying, self.seconds_storage)
        if shorter <= 0:
            return None
        return min(1.0, max(0.0, (self.seconds_copying + self.seconds_storage - self.seconds) / shorter))


@dataclass
class Measured:
    """The last steps of a plan."""

    steps: dict[str, list[Timing]] = field(default_factory=dict)

    def add(self, what: str, timing: Timing) -> None:
        """A `what`: "write" or "read"."""
        kept = self.steps.setdefault(what, [])
        kept.append(timing)
        del kept[:-STEPS_MOST]

    def lines(self, rank: int, predicted: dict[str, float]) -> list[str]:
        """A line for writes and one for reads, as far as there are any; `predicted` seconds of each."""
        return [_line(rank, what, kept, predicted.get(what)) for what, kept in sorted(self.steps.items())]


def _line(rank: int, what: str, kept: Sequence[Timing], predicted: float | None) -> str:
    middle = {
        name: median(getattr(one, name) for one in kept) for name in ("seconds", "seconds_copying", "seconds_storage")
    }
    text = f"measured at rank {rank}, {counted(len(kept), what)}: {_time(middle['seconds'])}"
    if predicted is not None:
        text += f", predicted {_time(predicted)}"
    text += f"; copying {_time(middle['seconds_copying'])}"
    overlaps = [one.overlap for one in kept if one.overlap is not None]
    if middle["seconds_storage"] > 0:
        text += f", storage {_time(middle['seconds_storage'])}"
    if overlaps:
        text += f", {median(overlaps):.0%} of the shorter beside the other"
    return text


def _time(seconds: float) -> str:
    """As the prediction is written: 1.5 s, 12.3 ms, 179.6 us."""
    if seconds >= 1:
        return f"{seconds:.4g} s"
    return f"{seconds * 1e3:.4g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.4g} us"
