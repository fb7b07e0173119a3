"""The proof of one pass: what every ring of the window and every array on disk holds, action by action.

Kept is, for each plane of each ring and array, the level that wrote every cell, for ranges of planes, rows and columns
(contents.py). Actions take effect at once and in order, which is stricter than the executor (a transfer that is still
under way counts as done): what passes here cannot race there, because transfers of one slot wait for each other, and
nothing else touches it.

An update goes level by level, all planes of a level at once. That is the same as by zeta, as the executor does it: what
level l reads at planes up to a skew away was written at no later zeta, and is overwritten at no earlier one.

Fields to which the same happens hold the same levels, so one of each kind stands for all. What repeats is looked at
once (validate.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import TypeAlias

from outcrop.plan.actions import Action, Block, Carry, Commit, Copy, Read, Update, Write
from outcrop.plan.contents import (
    NOTHING,
    RIM,
    Cells,
    Content,
    Frame,
    IllegalPlan,
    Runs,
    Shape,
    Slots,
    Span,
    common,
    require,
    together,
)  # fmt: skip
from outcrop.plan.fields import one_of_each
from outcrop.plan.geometry import Cut
from outcrop.plan.levels import Part, Parts, Use, Uses, planes_seen
from outcrop.plan.plan import Pass
from outcrop.plan.problem import Problem
from outcrop.plan.window import Window, slot_bytes

_Held: TypeAlias = dict[int, list[tuple[int, int, "Content | None"]]]
"""What rings hold of some places."""
BEFORE = -1
"""The level of the value before the newest one when a pass begins."""


class Proof:
    """The window and the arrays of one pass, by content; `has_statics`: fields that nothing updates are in it."""

    def __init__(self, problem: Problem, one: Pass, window: Window, has_statics: bool) -> None:
        self.is_single = problem.is_single
        fields, updates = one_of_each(problem.fields, problem.updates)
        self.problem = problem = replace(problem, fields=fields, updates=updates)
        self.levels, self.window, self.actions = one.levels, window, one.actions
        self._first, self._end, self._skew = problem.first_plane, problem.end_plane, problem.skew_z
        self.faces_rows, self.uses_other = one.faces_rows, one.uses_other
        self.uses, self.parts = Uses(problem, one.levels), Parts(problem, one)
        self.whole = self.parts.span(problem.whole_plane)
        self.state = [
            (f, age) for f, one in enumerate(fields) if not one.is_static for age in range(1 + one.has_previous)
        ]
        self.statics = [f for f, one in enumerate(fields) if one.is_static]
        self._shapes: dict[Span, Shape] = {}
        self._frames: dict[Block, Frame] = {}
        self.block = self.former_block = Block(problem.whole_plane)
        self.frame = self.former_frame = self._frame(self.block)
        nothing = self._shape(self.whole).empty
        self._rim = nothing.filled(self.whole, RIM)
        self._disk = Frame(self._shape(self.whole))
        self.rings = [Slots(ring, number, self._disk) for number, ring in enumerate(window.rings(problem))]
        self.sources = [self._stored(BEFORE if age else 0) for _, age in self.state]
        self.targets = self.sources if problem.in_place else [Runs(nothing) for _ in self.state]
        self._static, self.other = self._stored(0), Runs(nothing)
        self.faces: dict[int, Runs[Cells | None]] = {ring: Runs(None) for ring in range(len(self.rings))}
        self.reads_statics = any(isinstance(action, Read) and action.array == "statics" for action in one.actions)
        self.source_sums = Runs(nothing)  # RIM where checksums of cells are taken before the first level
        self.target_sums = Runs(nothing)  # and after the last one
        self.written = Runs(nothing)  # RIM where cells of the target are written
        self.sealed = Runs(False)  # planes of the target whose checksum is written
        self.committed = False
        self._perform = {
            Block: self._block, Carry: self._carry, Read: self._read, Copy: self._copy, Update: self._update,
            Write: self._write, Commit: self._commit,
        }  # fmt: skip
        for field in self.statics if has_statics else ():
            self.fill(field, 0)

    def perform(self, action: Action) -> None:
        """Do what an action says, or raise IllegalPlan."""
        self._perform[type(action)](action)  # type: ignore[operator]

    def fill(self, ring: int, level: int, only_rim: bool = False) -> None:
        """Let a ring have all planes at a level, or of all planes what is rim."""
        for z0, z1, cells in self._stored(level, only_rim).over(0, self.problem.planes):
            self._place(ring, z0, z1, [self.whole], cells)

    def require_final(self) -> None:
        """All planes are in the window at the last level."""
        for entry in self.state:
            ring, level = self.uses.final(*entry)
            for z0, _, cells in self._there(ring, 0, self.problem.planes):
                require(cells.holds((self.whole,), level), f"plane {z0} is not at the last level")

    def is_of_others(self, value: object) -> bool:
        """Whether a slot holds this for another block, so that this block cannot use it."""
        return isinstance(value, Content) and value.frame not in (self.frame, self._disk)

    def _shape(self, span: Span) -> Shape:
        if span not in self._shapes:
            self._shapes[span] = Shape(span)
        return self._shapes[span]

    def _frame(self, block: Block) -> Frame:
        if block not in self._frames:
            self._frames[block] = Frame(self._shape(self.parts.span(block.frame)))
        return self._frames[block]

    def _place(self, ring: int, z0: int, z1: int, spans: list[Span], cells: Cells) -> None:
        self.rings[ring].place(self.frame, self.block.shift, z0, z1, spans, cells)

    def _there(self, ring: int, z0: int, z1: int) -> list[tuple[int, int, Cells]]:
        return self.rings[ring].there(self.frame, self.block.shift, z0, z1)

    def _stored(self, level: int, only_rim: bool = False) -> Runs[Cells]:
        """A whole array with its cells at a level, or NOTHING where that is asked for, and its rim."""
        problem, nx = self.problem, self.problem.shape[2]
        low, high = (problem.radii[2] if side == "fixed" else 0 for side in problem.sides[2])
        first = min(low, nx)
        inner = Cut(problem.first_row, problem.end_row, first, max(first, nx - high))
        runs = Runs(self._rim)
        if problem.has_updates:
            cells = self._rim.filled(self.parts.span(inner), NOTHING if only_rim else level)
            runs.put(problem.first_plane, problem.end_plane, cells)
        return runs

    def _block(self, action: Block) -> None:
        frame, whole = action.frame, self.problem.whole_plane
        inside = 0 <= frame.y0 < frame.y1 <= whole.y1 and 0 <= frame.x0 < frame.x1 <= whole.x1
        require(inside, "a frame beyond the plane")
        require(slot_bytes(self.problem, frame) <= self.window.slot_bytes, "a frame larger than a slot")
        if action != self.block:
            self.former_block, self.former_frame = self.block, self.frame
            self.block, self.frame = action, self._frame(action)

    def _carry(self, action: Carry) -> None:
        self._require_planes(action.z0, action.z1)
        old, new, shift = self.former_block, self.block, self.block.shift
        require(old.shift == shift, "a slot that planes have left")
        can_move = (old.frame.x0, old.frame.x1) == (new.frame.x0, new.frame.x1) and old.frame.y0 <= new.frame.y0
        require(can_move, f"rows of the frame {old.frame} cannot be moved to {new.frame}")
        span = self.parts.span(action.cut)
        for ring in self.uses.copies(action.level):
            runs = self.rings[ring].runs
            for z0, z1, content in runs.over(action.z0 + shift, action.z1 + shift):
                require(content is not None and content.frame is self.former_frame,
                        f"plane {z0 - shift} is not there to be carried")  # fmt: skip
                assert content is not None
                runs.put(z0, z1, self.frame.content(self.frame.shape.empty.pasted(span, content.cells)))

    def _read(self, action: Read) -> None:
        self._require_planes(action.z0, action.z1)
        span = self.parts.span(action.cut)
        for ring, array in self._arrays_read(action):
            for z0, z1, cells in array.over(action.z0, action.z1):
                if action.array == "faces":
                    require(cells is not None and cells.shape.span == span, f"faces of plane {z0} are other rows")
                assert cells is not None
                self._place(ring, z0, z1, [span], cells)

    def _arrays_read(self, action: Read) -> Iterator[tuple[int, Runs[Cells] | Runs[Cells | None]]]:
        """The rings that a Read fills, and from what."""
        if action.array == "source":
            for (field, age), array in zip(self.state, self.sources, strict=True):
                yield self.uses.ring(field, age), array
        elif action.array == "statics":
            for field in self.statics:
                yield field, self._static
        elif action.array == "faces":
            for ring in self.uses.copies(action.level):
                yield ring, self.faces[ring]
        else:
            yield self.uses.ring(self.state[0][0], action.level & 1), self._single(action.array)

    def _copy(self, action: Copy) -> None:
        self._require_planes(action.z0, action.z1)
        cut, own = self.parts.span(action.cut), self._own(action.own)
        firsts = {self.uses.ring(field, 0) for field, _ in self.state}
        for z0, z1, is_inside in self._inside(action.z0, action.z1):
            rims = [rim for rim in (self._rims(cut) if is_inside else [cut]) if rim[0] < rim[1]]
            for ring in firsts:
                for z, _, cells in self._there(ring, z0, z1):
                    require(cells.holds(tuple(rims), RIM), f"the rim of plane {z} is not in the first copy")
            for ring in self.uses.copies(1):
                self._place(ring, z0, z1, rims, self._rim)
            own_z = max(z0, self.block.own_z0), min(z1, self.block.own_z1)
            for rim in rims if own_z[0] < own_z[1] else ():
                self._require_statics(*own_z, rim, own)
                self._sum(self.source_sums, *own_z, rim, own)
                self._sum(self.target_sums, *own_z, rim, own)

    def _inside(self, z0: int, z1: int) -> Iterator[tuple[int, int, bool]]:
        """A range of planes, cut where the rim in z begins and ends; whether its rows are updated."""
        problem = self.problem
        edges = [z for z in (problem.first_plane, problem.end_plane) if z0 < z < z1]
        edges = [z0, *dict.fromkeys(edges), z1]
        for first, end in pairwise(edges):
            yield first, end, problem.has_updates and problem.first_plane <= first < problem.end_plane

    def _rims(self, cut: Span) -> list[Span]:
        """The rows of a part that no update touches."""
        rows = self.parts.rows.of
        first, end = rows[self.problem.first_row], rows[self.problem.end_row]
        return [(cut[0], min(cut[1], first), *cut[2:]), (max(cut[0], end), cut[1], *cut[2:])]

    def _update(self, action: Update) -> None:
        require(1 <= action.levels <= self.levels, f"a pass of {self.levels} levels")
        require(action.zeta0 < action.zeta1, "an empty range")
        parts, level, last, turn = self.parts.of_levels(action.region), 1, action.levels, self.uses.turn
        is_same = last > 4 * turn and self._is_same_at_all_levels(action)
        before: _Held | None = None
        while level <= last:
            z0, z1 = self._planes_of(action, level)
            if z0 < z1 and (part := parts[level]) is not None:
                self._update_level(level, z0, z1, part)
                if is_same and level % turn == 0:
                    held = self._held(z0, z1)
                    if before is not None and _raised(before, turn) == held:  # so will every further turn be
                        times = (last - 1 - level) // turn
                        self._hold(_raised(held, times * turn))
                        level, is_same = level + times * turn, False
                    before = held
            level += 1

    def _is_same_at_all_levels(self, action: Update) -> bool:
        """Whether an update is about the same cells at every level. Bounds are linear, so two levels tell."""
        parts, region = self.parts.of_levels(action.region), action.region
        is_level = region.z_low.slope == 0 == region.z_high.slope and parts[1] is parts[action.levels]
        return is_level and self._planes_of(action, 1) == self._planes_of(action, action.levels)

    def _held(self, z0: int, z1: int) -> _Held:
        """What rings of fields that are updated hold of planes from a skew below to a skew above z0 <= z < z1."""
        skew, shift = self.problem.skew_z, self.block.shift
        rings = self.uses.copies(0) + self.uses.copies(1)
        return {ring: self.rings[ring].runs.over(z0 - skew + shift, z1 + skew + shift) for ring in rings}

    def _hold(self, held: _Held) -> None:
        for ring, runs in held.items():
            for z0, z1, content in runs:
                self.rings[ring].runs.put(z0, z1, content)

    def _planes_of(self, action: Update, level: int) -> tuple[int, int]:
        """The planes that an update updates at a level."""
        region = action.region
        back = self._skew * (level - 1)
        return (
            max(self._first, action.zeta0 - back, region.z_low.at(level)),
            min(self._end, action.zeta1 - back, region.z_high.at(level)),
        )

    def _update_level(self, level: int, z0: int, z1: int, part: Part) -> None:
        uses, later = self.uses.of(level)
        for use in uses.reads:
            wanted = use.wanted + later if use.moves else use.wanted
            if use.beside:
                for first, end in planes_seen(self.problem, z0, z1):
                    self._require_level(use, first, end, part.seen, level, wanted)
            self._require_level(use, z0, z1, part.cuts, level, wanted)
        for centre, target in uses.targets:
            newest, older = self._there(centre, z0, z1), self._there(target, z0, z1)
            for first, end, one, old in together(newest, older):
                new = old.updated(part.cut, one, level)
                self.rings[target].change(self.frame, self.block.shift, first, end, new)
        own_z = max(z0, self.block.own_z0), min(z1, self.block.own_z1)
        if level == 1 and own_z[0] < own_z[1]:
            own = self._own(self.block.own)
            self._require_statics(*own_z, part.cut, own)
            self._sum(self.source_sums, *own_z, part.cut, own)
        if level == self.levels:
            self._sum(self.target_sums, z0, z1, part.cut, self.whole)

    def _require_level(self, use: Use, z0: int, z1: int, spans: tuple[Span, ...], level: int, wanted: int) -> None:
        for z, _, cells in self._there(use.ring, z0, z1):
            if not cells.holds(spans, wanted):
                raise IllegalPlan(f"level {level} needs of plane {z} what level {wanted} wrote of field {use.field}")

    def _write(self, action: Write) -> None:
        self._require_planes(action.z0, action.z1)
        cut, span = action.cut, self.parts.span(action.cut)
        if action.array == "faces":
            require(cut.y1 - cut.y0 <= self.faces_rows, "more rows than faces keep")
            shape = self._shape(span)
            for ring in self.uses.copies(action.level):
                for z0, z1, cells in self._there(ring, action.z0, action.z1):
                    self.faces[ring].put(z0, z1, shape.cells(cells.part(span).copy()))
        elif action.array == "target":
            for entry, array in zip(self.state, self.targets, strict=True):
                self._keep(array, self.uses.final(*entry)[0], action, span)
            for z0, z1, done in self.written.over(action.z0, action.z1):
                self.written.put(z0, z1, done.filled(span, RIM))
            if cut.y1 == self.problem.shape[1] and cut.x1 == self.problem.pitch_cells:
                for z0, z1, sums in self.target_sums.over(action.z0, action.z1):
                    self.sealed.put(z0, z1, sums.holds((self.whole,), RIM))
        else:
            self._keep(self._single(action.array), self.uses.ring(self.state[0][0], action.level & 1), action, span)

    def _keep(self, array: Runs[Cells], ring: int, action: Write, span: Span) -> None:
        """Write cells of a ring to an array."""
        there = self._there(ring, action.z0, action.z1)
        for z0, z1, cells, old in together(there, array.over(action.z0, action.z1)):
            array.put(z0, z1, old.pasted(span, cells))

    def _commit(self, action: Commit) -> None:
        require(not self.committed, "a second commit")
        whole, planes = (self.whole,), self.problem.planes
        for entry, target in zip(self.state, self.targets, strict=True):
            for z, _, cells in target.over(0, planes):
                require(cells.holds(whole, self.uses.final(*entry)[1]), f"plane {z} is not written at the last level")
        for z, _, done in self.written.over(0, planes):
            require(done.holds(whole, RIM), f"plane {z} is not written at the last level")
        for z, _, done in self.source_sums.over(0, planes):
            require(done.holds(whole, RIM), f"the checksum of plane {z} is not compared")
        for z, _, is_sealed in self.sealed.over(0, planes):
            require(is_sealed, f"the checksum of plane {z} is not written")
        self.committed = True

    def _require_statics(self, z0: int, z1: int, cut: Span, own: Span) -> None:
        """What is only read is there, where its checksum is taken together with that of the sources."""
        part = common(cut, own) if self.reads_statics else None
        for field in self.statics if part else ():
            for z, _, cells in self._there(field, z0, z1):
                assert part is not None
                is_there = cells.holds((part,), 0)
                require(is_there, f"of plane {z} field {field} is not there when its checksum is taken")

    def _sum(self, summed: Runs[Cells], z0: int, z1: int, cut: Span, own: Span) -> None:
        """Take the checksum of those of the cells that are the block's own, for the first and only time."""
        if part := common(cut, own):
            for first, end, done in summed.over(z0, z1):
                require(not bool((done.part(part) == RIM).any()), f"a checksum of plane {first} is taken twice")
                summed.put(first, end, done.filled(part, RIM))

    def _own(self, own: Cut) -> Span:
        """The cells of a plane that a block accounts for."""
        whole = self.problem.whole_plane
        y0, x0 = max(0, min(own.y0, whole.y1)), max(0, min(own.x0, whole.x1))
        return self.parts.span(Cut(y0, max(y0, min(own.y1, whole.y1)), x0, max(x0, min(own.x1, whole.x1))))

    def _require_planes(self, z0: int, z1: int) -> None:
        require(0 <= z0 < z1 <= self.problem.planes, f"planes outside 0 .. {self.problem.planes - 1}")

    def _single(self, name: str) -> Runs[Cells]:
        """The array for unfinished levels, which only a single field has."""
        require(self.is_single, "unfinished levels of several fields")
        require(name != "other" or self.uses_other, "an array that the pass does not name")
        return self.other if name == "other" else self.targets[0]


def _raised(held: _Held, count: int) -> _Held:
    """The same some levels later."""
    return {
        ring: [(z0, z1, one.frame.content(one.cells.raised(count)) if one else None) for z0, z1, one in runs]
        for ring, runs in held.items()
    }
