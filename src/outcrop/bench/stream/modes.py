"""What STREAM measures: its loops, and where their arrays are.

    mode          reads from   writes to   and then
    dram          DRAM         DRAM
    none          tier         tier
    individual    tier         tier        flushes every element, or every page where that takes msync
    collective    tier         tier        flushes the whole result
    read-only     tier         DRAM
    write-only    DRAM         tier

A. Jackson's names; the loops are McCalpin's.
"""

from __future__ import annotations

from dataclasses import dataclass

SCALAR = 3.0
ITEM_BYTES = 8
PLACES = ("dram", "tier")
STARTS = {"a": 2.0, "b": 2.0, "c": 0.0}
"""a is 1 and has been doubled."""


@dataclass(frozen=True)
class Loop:
    """A loop by its arrays; `second` is "" where only one is read."""

    name: str
    first: str
    second: str
    result: str

    @property
    def arrays(self) -> int:
        """How many arrays it moves: a byte that it names counts once."""
        return 3 if self.second else 2

    def value(self, first: float, second: float) -> float:
        """What every element of the result is when every element of those read is that, to the bit."""
        if not self.second:
            return SCALAR * first if self.name == "scale" else first
        return first + (SCALAR * second if self.name == "triad" else second)


LOOPS = (
    Loop("copy", "a", "", "c"),
    Loop("scale", "c", "", "b"),
    Loop("add", "a", "b", "c"),
    Loop("triad", "b", "c", "a"),
)


@dataclass(frozen=True)
class Mode:
    """Where arrays are, one of PLACES for what is read and one for what is written, and how results are flushed."""

    name: str
    source: str
    target: str
    flush: str
    text: str

    @property
    def places(self) -> tuple[str, ...]:
        """Those it uses."""
        return tuple(place for place in PLACES if place in (self.source, self.target))


MODES = (
    Mode("dram", "dram", "dram", "none", "arrays in DRAM"),
    Mode("none", "tier", "tier", "none", "arrays on the tier, no flush"),
    Mode("individual", "tier", "tier", "individual", "arrays on the tier, individual flush"),
    Mode("collective", "tier", "tier", "collective", "arrays on the tier, collective flush"),
    Mode("read-only", "tier", "dram", "none", "read from the tier, written to DRAM"),
    Mode("write-only", "dram", "tier", "none", "read from DRAM, written to the tier"),
)
