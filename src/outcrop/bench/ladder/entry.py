"""One bar of the ladder: a column in core or out of core, with what was measured and what must be said about it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import median_low
from typing import Any

from outcrop.bench.ladder.columns import Column
from outcrop.bench.ladder.job import COMPONENTS, Limited


@dataclass(frozen=True)
class Entry:
    """`column` with `budget_bytes` of memory, asked for `steps` steps; `runs` of as many steps or, where `is_scaled`,
    of fewer. `trouble` says why there are no runs, "" where there are some."""

    column: Column
    is_in_core: bool
    budget_bytes: int
    steps: int
    runs: tuple[Limited, ...]
    trouble: str = ""

    @property
    def typical(self) -> Limited | None:
        """The run of median duration; of an even number the faster one of both in the middle."""
        if not self.runs:
            return None
        middle = median_low(run.measured.seconds for run in self.runs)
        return next(run for run in self.runs if run.measured.seconds == middle)

    @property
    def is_scaled(self) -> bool:
        """Whether fewer steps were measured."""
        return self.typical is not None and self.typical.measured.steps < self.steps

    @property
    def seconds(self) -> float | None:
        """Median of all steps, None without runs."""
        one = self.typical
        return None if one is None else one.measured.seconds * self._scale(one)

    @property
    def seconds_components(self) -> dict[str, float]:
        """Where the typical run's time went, of all steps; empty without runs."""
        one = self.typical
        return {} if one is None else {k: v * self._scale(one) for k, v in one.measured.seconds_components.items()}

    @property
    def is_comparable(self) -> bool:
        """Whether the budget was kept: by a memory group, or by a program that never takes more."""
        one = self.typical
        return one is not None and (self.is_in_core or not self.column.needs_limit or one.limit_bytes is not None)

    @property
    def notes(self) -> list[str]:
        """What a reader of the figures must know."""
        one = self.typical
        if one is None:
            return [self.trouble]
        notes = [f"{one.measured.steps} of {self.steps} steps measured, scaled"] if self.is_scaled else []
        if not self.is_comparable:
            notes.append("memory not limited here: not comparable")
        elif not self.is_in_core and self.column.through == "swap" and one.measured.swapped_out_bytes == 0:
            notes.append("nothing was swapped out")
        return notes

    def to_json(self, fastest_seconds: float) -> dict[str, Any]:
        """All of it as plain data; `fastest_seconds` is what times are relative to."""
        seconds, one = self.seconds, self.typical
        return {
            "number": self.column.number,
            "name": self.column.name,
            "scheme": self.column.scheme,
            "through": self.column.through,
            "layers": self.column.layers,
            "padded": self.column.padded,
            "is_in_core": self.is_in_core,
            "memory_budget_bytes": self.budget_bytes,
            "seconds": seconds,
            "is_scaled": self.is_scaled,
            "relative_time": None if seconds is None else seconds / fastest_seconds,
            "cell_updates_per_second": None if one is None else one.measured.cells_updated / one.measured.seconds,
            **{f"seconds_{name}": self.seconds_components.get(name) for name in COMPONENTS},
            "is_comparable": self.is_comparable,
            "notes": self.notes,
            "runs": [asdict(run) for run in self.runs],
        }

    def _scale(self, one: Limited) -> float:
        return self.steps / one.measured.steps


def same_bits(entries: list[Entry]) -> bool:
    """Whether all runs of as many steps ended with the same grid."""
    digests = {run.measured.digest for entry in entries for run in entry.runs if run.measured.steps == entry.steps}
    return len(digests) <= 1
