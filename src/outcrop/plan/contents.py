"""What planes hold while a plan is proved: ranges of planes with one content, made of ranges of rows and columns.

Rows and columns are cut wherever anything in the pass begins or ends; between two such places all cells are alike, and
one number, the level that wrote them, stands for all of them. Planes that hold the same share one object, so what has
been asked of one is known for all planes like it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from outcrop.plan.geometry import FAR
from outcrop.plan.window import Ring

Levels: TypeAlias = NDArray[np.int32]
Span: TypeAlias = tuple[int, int, int, int]
"""A part of a plane: first and last place, of rows and then of columns, among those where anything begins or ends."""
NOTHING = -9
RIM = 1 << 30
"""A cell of the rim, which is right at every level."""


class IllegalPlan(AssertionError):
    """A plan that would compute something else than it should: a bug in a scheme, never the user's fault."""


def require(condition: bool, message: str) -> None:
    """Raise IllegalPlan unless it holds."""
    if not condition:
        raise IllegalPlan(message)


class Cells:
    """The levels of the cells of a part of a plane; never changed, so that many planes can share them."""

    __slots__ = ("_after", "_holds", "levels", "shape")

    def __init__(self, shape: Shape, levels: Levels) -> None:
        self.shape, self.levels = shape, levels
        self._holds: dict[tuple[object, int], bool] = {}
        self._after: dict[tuple[object, ...], Cells] = {}

    def part(self, span: Span) -> Levels:
        """The cells of a part, which must be among these."""
        y0, y1, x0, x1 = self.shape.span
        require(y0 <= span[0] <= span[1] <= y1 and x0 <= span[2] <= span[3] <= x1, "cells that are not in the frame")
        return self.levels[span[0] - y0 : span[1] - y0, span[2] - x0 : span[3] - x0]

    def holds(self, spans: tuple[Span, ...], level: int) -> bool:
        """Whether all cells of some parts are at a level, or rim."""
        key = spans, level
        if (found := self._holds.get(key)) is None:
            parts = [self.part(span) for span in spans]
            found = self._holds[key] = all(bool(((one == level) | (one == RIM)).all()) for one in parts)
        return found

    def updated(self, span: Span, centre: Cells, level: int) -> Cells:
        """These after an update of a part; what is rim in `centre` is rim here, too."""
        key = span, centre, level
        if (found := self._after.get(key)) is None:
            found = self._after[key] = self._with(span, np.where(centre.part(span) == RIM, RIM, level))
        return found

    def pasted(self, span: Span, other: Cells) -> Cells:
        """These with a part of others."""
        key = span, other
        if (found := self._after.get(key)) is None:
            found = self._after[key] = self._with(span, other.part(span))
        return found

    def filled(self, span: Span, level: int) -> Cells:
        """These with one level in a part."""
        key = span, level
        if (found := self._after.get(key)) is None:
            found = self._after[key] = self._with(span, level)
        return found

    def raised(self, count: int) -> Cells:
        """The same cells, with `count` added to every level that an update has written."""
        levels = self.levels
        return self.shape.cells(np.where((levels > 0) & (levels != RIM), levels + count, levels).astype(np.int32))

    def _with(self, span: Span, cells: Levels | int) -> Cells:
        self.part(span)
        y0, _, x0, _ = self.shape.span
        levels = self.levels.copy()
        levels[span[0] - y0 : span[1] - y0, span[2] - x0 : span[3] - x0] = cells
        return self.shape.cells(levels)


class Shape:
    """A part of a plane, and all that it has ever held; equal cells of it are one object."""

    def __init__(self, span: Span) -> None:
        self.span = span
        self._known: dict[bytes, Cells] = {}
        self.empty = self.cells(np.full((span[1] - span[0], span[3] - span[2]), NOTHING, np.int32))

    def cells(self, levels: Levels) -> Cells:
        """Those with these levels."""
        key = levels.tobytes()
        if (found := self._known.get(key)) is None:
            found = self._known[key] = Cells(self, levels)
        return found


class Frame:
    """What a block has of a plane: cells of a shape; contents of different blocks are different things."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._known: dict[Cells, Content] = {}
        self.empty = self.content(shape.empty)

    def content(self, cells: Cells) -> Content:
        """The one content with these cells."""
        if (found := self._known.get(cells)) is None:
            found = self._known[cells] = Content(self, cells)
        return found


class Content:
    """Cells of a block, as a slot holds them."""

    __slots__ = ("cells", "frame")

    def __init__(self, frame: Frame, cells: Cells) -> None:
        self.frame, self.cells = frame, cells


Value = TypeVar("Value")


class Runs(Generic[Value]):
    """One value for each plane, kept as ranges of planes with the same one; all have `value` at first."""

    def __init__(self, value: Value) -> None:
        self._starts, self._values = [-FAR], [value]

    def over(self, z0: int, z1: int) -> list[tuple[int, int, Value]]:
        """The ranges of z0 <= z < z1, in order."""
        starts, values = self._starts, self._values
        first, end = bisect_right(starts, z0) - 1, bisect_left(starts, z1)
        if end == first + 1:
            return [(z0, z1, values[first])]
        edges = [z0, *starts[first + 1 : end], z1]
        return list(zip(edges, edges[1:], values[first:end], strict=False))

    def put(self, z0: int, z1: int, value: Value) -> None:
        """From now on planes z0 <= z < z1 have that value."""
        starts, values = self._starts, self._values
        first, end = bisect_left(starts, z0), bisect_right(starts, z1)
        after = values[end - 1]
        new = [] if first and values[first - 1] is value else [(z0, value)]
        new += [] if after is value else [(z1, after)]
        starts[first:end] = [z for z, _ in new]
        values[first:end] = [one for _, one in new]

    @property
    def ends(self) -> tuple[int, int]:
        """Where the first range ends and the last one begins."""
        return self._starts[min(1, len(self._starts) - 1)], self._starts[-1]

    def advance(self, z0: int, z1: int, distance: int, times: int) -> None:
        """Move what planes z0 <= z < z1 have `times` distances up; what the last distance below them has is left behind
        at every step."""
        window, left = self.over(z0, z1), self.over(z0 - distance, z0)
        for turn in range(1, times + 1) if len(left) > 1 else ():
            for first, end, value in left:
                self.put(first + turn * distance, end + turn * distance, value)
        if len(left) == 1:
            self.put(z0, z0 + times * distance, left[0][2])
        for first, end, value in window:
            self.put(first + times * distance, end + times * distance, value)


def together(
    one: Iterable[tuple[int, int, Value]], other: Iterable[tuple[int, int, Value]]
) -> Iterator[tuple[int, int, Value, Value]]:
    """Two lists of ranges of the same planes, cut where either is."""
    second = iter(other)
    _, end_of_other, beside = next(second)
    for z0, end, value in one:
        while z0 < end:
            z1 = min(end, end_of_other)
            yield z0, z1, value, beside
            z0 = z1
            if z1 == end_of_other:
                _, end_of_other, beside = next(second, (z1, FAR, beside))


def common(one: Span, other: Span) -> Span | None:
    """What two parts of a plane share, or None."""
    y0, y1 = max(one[0], other[0]), min(one[1], other[1])
    x0, x1 = max(one[2], other[2]), min(one[3], other[3])
    return (y0, y1, x0, x1) if y0 < y1 and x0 < x1 else None


class Slots:
    """The slots of one ring, by place: plane z of a block has place z + its shift, and slots are places modulo the
    ring. Rings that hold all planes for good know neither blocks nor shifts; their contents are those of `disk`."""

    def __init__(self, ring: Ring, number: int, disk: Frame) -> None:
        self.ring, self._number, self._disk = ring, number, disk
        self.runs: Runs[Content | None] = Runs(None)

    def place(self, frame: Frame, shift: int, z0: int, z1: int, spans: Sequence[Span], cells: Cells) -> None:
        """Let slots have parts of planes z0 <= z < z1 of a block; those that held other planes are emptied first."""
        if self.ring.is_resident:
            frame, shift = self._disk, 0
        runs, first, end = self.runs, z0 + shift, z1 + shift
        for a, b, held in runs.over(first, end):
            new = held.cells if held is not None and held.frame is frame else frame.shape.empty
            for span in spans:
                new = new.pasted(span, cells)
            runs.put(a, b, frame.content(new))
        if self.ring.is_resident:
            return
        planes = self.ring.planes
        first = max(first, end - planes)
        low, high = runs.ends
        for times in range(1, (end - low) // planes + 1):
            runs.put(first - times * planes, end - times * planes, None)
        for times in range(1, (high - first) // planes + 1):
            runs.put(first + times * planes, end + times * planes, None)

    def there(self, frame: Frame, shift: int, z0: int, z1: int) -> list[tuple[int, int, Cells]]:
        """The cells of planes z0 <= z < z1 of a block in the slots. Raises IllegalPlan where a plane is not there."""
        if self.ring.is_resident:
            frame, shift = self._disk, 0
        found = []
        for first, end, content in self.runs.over(z0 + shift, z1 + shift):
            if content is None or content.frame is not frame:
                raise IllegalPlan(f"plane {first - shift} is not in ring {self._number}")
            found.append((first - shift, end - shift, content.cells))
        return found

    def change(self, frame: Frame, shift: int, z0: int, z1: int, cells: Cells) -> None:
        """From now on planes z0 <= z < z1, which are there, hold these cells."""
        if self.ring.is_resident:
            frame, shift = self._disk, 0
        self.runs.put(z0 + shift, z1 + shift, frame.content(cells))
