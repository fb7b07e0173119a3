"""This module proves that a plan is legal. The proof takes place before the first transfer and does not need the values
of the cells.

The proof performs the actions of a pass one by one. For each ring of the window and each array on disk, the proof
records which level wrote each cell. The proof stores levels for whole ranges of planes, rows and columns (contents.py).
In the proof, each action is complete before the next action begins. In the executor, a transfer can still be in
progress when the next action begins. The proof is still valid, because the executor never performs two operations on
the same slot at the same time. Each transfer or update of a slot waits for the earlier operations on this slot.

The proof performs an update level by level, and updates all planes of a level together. The executor updates planes in
the order of zeta. The two orders have the same effect, because a level reads planes at a distance of at most one skew.
Assume that the executor updates a level at some zeta. The planes that the level reads were written at the same zeta or
earlier. The planes that the level reads are overwritten at the same zeta or later. Two fields are of one kind if their
properties are equal and the same stages update both fields (`one_of_each`). All fields of one kind always have the same
levels, so the proof considers only one field of each kind.

If the grid is divided among ranks, the proof is for one rank. The proof assumes that each received row has the level
that the Read names. The proof checks that each sent row has the level that the Write names. The module ranks.py proves
that neighbours exchange the same rows.

The proof skips repetitions of actions (repeats.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import TypeAlias

from outcrop.plan.actions import (
    EVERYTHING,
    FACES,
    FAR,
    Action,
    Block,
    Carry,
    Check,
    Commit,
    Copy,
    Read,
    Rectangle,
    Update,
    UpdateRegion,
    Write,
)
from outcrop.plan.contents import (
    BEFORE,
    NOTHING,
    RIM,
    CellLevels,
    Frame,
    IllegalPlan,
    Part,
    Parts,
    PlaneSpan,
    Runs,
    Shape,
    SlotContent,
    Slots,
    Use,
    Uses,
    common,
    planes_seen,
    require,
    together,
)
from outcrop.plan.cost import has_tail
from outcrop.plan.exchanges import ExchangeProof
from outcrop.plan.memory import Window, slot_bytes
from outcrop.plan.plan import Pass, Plan
from outcrop.plan.problem import Problem, one_of_each
from outcrop.plan.repeats import Repeats

__all__ = ["IllegalPlan", "validate", "validate_one_layer", "validate_pass"]

_RingContents: TypeAlias = dict[int, list[tuple[int, int, "SlotContent | None"]]]
"""The contents of rings: for each ring, a list of ranges of planes with their contents (`Runs.over`)."""


def validate(plan: Plan, budget_bytes: int | None = None) -> None:
    """Raise IllegalPlan if a pass is not legal, if the passes together do not perform all steps, or if the plan exceeds
    the budget."""
    problem = plan.problem
    if sum(one.levels for one in plan.passes) != problem.levels:
        raise IllegalPlan(f"the passes have {sum(p.levels for p in plan.passes)} levels, not {problem.levels}")
    if any((one.levels - problem.lead) % problem.stages for one in plan.passes):
        raise IllegalPlan(f"a pass ends in the middle of a step of {problem.stages} stages")
    if problem.lead and any(one.levels != len(problem.updates) for one in plan.passes):
        raise IllegalPlan(f"a pass does not have the {len(problem.updates)} levels between two states")
    if problem.histories and any(one.levels > len(problem.updates) for one in plan.passes):
        raise IllegalPlan(f"a pass has more levels than the {len(problem.updates)} for which states are known")
    if budget_bytes is not None and plan.memory_bytes > budget_bytes:
        raise IllegalPlan(f"window of {plan.memory_bytes} bytes exceeds the budget of {budget_bytes} bytes")
    if plan.predicted.memory_bytes != plan.memory_bytes:
        raise IllegalPlan(f"plan claims {plan.predicted.memory_bytes} bytes, its rings take {plan.memory_bytes}")
    proved: set[tuple[int, bool]] = set()
    without_reads: list[Pass] = []
    for number, one in enumerate(plan.passes):
        keeps = plan.sizes.keeps_statics and number > 0
        # each Pass object is proved only once, because most passes of a plan are the same object
        if (id(one), keeps) in proved:
            continue
        proved.add((id(one), keeps))
        if keeps and any(_reads_statics(action) for action in one.actions):
            raise IllegalPlan(f"pass {number} reads static fields again, although they are in memory")
        if keeps and one in without_reads:
            continue
        try:
            validate_pass(problem, one, plan.window, has_statics=keeps)
        except IllegalPlan as error:
            raise IllegalPlan(f"pass {number}, {error}") from None
        if plan.sizes.keeps_statics and not keeps and _keeps_statics(problem, plan.window):
            without_reads.append(replace(one, actions=tuple(each for each in one.actions if not _reads_statics(each))))


def _keeps_statics(problem: Problem, window: Window) -> bool:
    """Return True if each plane of each static field has its own slot and stays in this slot.

    Assume that each plane of each static field has its own slot, and that all static fields are in memory when a pass
    begins. Then a legal pass is also legal without its reads of static fields, because only these reads write to the
    slots of static fields. Without the reads of static fields, each action finds the same contents in memory, and
    possibly more planes of static fields. More planes of static fields never make an action illegal."""
    rings = zip(problem.fields, window.rings(problem), strict=False)
    statics = [ring.resident for field, ring in rings if field.is_static and not field.is_history]
    return bool(statics) and all(statics)


def validate_pass(problem: Problem, one: Pass, window: Window, has_statics: bool = False) -> None:
    """Raise IllegalPlan if the pass `one` is not legal. A legal pass advances every cell to the last level, and writes
    all cells to disk before its commit. If `has_statics` is true, the window already holds the static fields when the
    pass begins. In the first pass of a run, `has_statics` is always false."""
    proof = Proof(problem, one, window, has_statics)
    _perform_all(proof)
    require(proof.committed, "no commit")


def validate_one_layer(problem: Problem, one: Pass, window: Window) -> None:
    """Raise IllegalPlan if the pass `one` does not advance every cell in the window to the last level. When the pass
    begins, the window holds all planes at level 0, and the rim at every level."""
    proof = Proof(problem, one, window, has_statics=False)
    proof.fill(0, 0)
    proof.fill(1, 0, only_rim=True)
    _perform_all(proof)
    proof.require_final()


def _reads_statics(action: Action) -> bool:
    return isinstance(action, Read) and action.array == "statics"


def _perform_all(proof: Proof) -> None:
    """Perform the actions of a pass in the proof, but skip most repetitions. Raises IllegalPlan for an action that is
    not legal. The message names the action."""
    repeats, index, actions = Repeats(proof), 0, proof.actions
    while index < len(actions):
        if type(actions[index]) is Update:
            index += repeats.skip(index)
        try:
            proof.perform(actions[index])
        except IllegalPlan as error:
            raise IllegalPlan(f"action {index}, {actions[index]}: {error}") from None
        index += 1


class Proof:
    """The state of the proof: the contents of the window and of the arrays on disk during one pass. If `has_statics` is
    true, the window already holds the static fields when the pass begins."""

    def __init__(self, problem: Problem, one: Pass, window: Window, has_statics: bool) -> None:
        self.single = problem.single
        fields, updates = one_of_each(problem.fields, problem.updates)
        self.problem = problem = replace(problem, fields=fields, updates=updates)
        self.levels, self.window, self.actions = one.levels, window, one.actions
        self._first, self._end, self._skew = problem.first_plane, problem.end_plane, problem.skew_z
        self.fringe_rows, self.uses_other = one.fringe_rows, one.uses_other
        self.recomputed_rows = one.recomputed_rows
        self.uses, self.parts = Uses(problem, one.levels), Parts(problem, one)
        self.whole = self.parts.span(problem.whole_plane)
        self.state = [(f, age) for f, one in enumerate(fields) if one.is_state for age in range(1 + one.has_previous)]
        self.statics = [f for f, one in enumerate(fields) if one.is_static and not one.is_history]
        self.histories = [f for f, one in enumerate(fields) if one.is_history]
        self._shapes: dict[PlaneSpan, Shape] = {}
        self._frames: dict[Block, Frame] = {}
        self.block = self.former_block = Block(problem.whole_plane)
        self.frame = self.former_frame = self._frame(self.block)
        nothing = self._shape(self.whole).empty
        self._rim = nothing.filled(self.whole, RIM)
        every = self.parts.all_rows
        self.no_cells = self._shape(every).empty
        self.wide_rim = self.no_cells.filled(every, RIM)
        self._disk = Frame(self._shape(self.whole))
        self.rings = [Slots(ring, number, self._disk) for number, ring in enumerate(window.rings(problem))]
        self.sources = [self.stored(BEFORE if age else 0) for _, age in self.state]
        self.targets = self.sources if problem.in_place else [Runs(nothing) for _ in self.state]
        self._static, self.other = self.stored(0), Runs(nothing)
        self._exchanges = ExchangeProof(self)
        self.fringes: dict[int, Runs[CellLevels | None]] = {ring: Runs(None) for ring in range(len(self.rings))}
        self.reads_statics = any(isinstance(action, Read) and action.array == "statics" for action in one.actions)
        # In `source_sums`, RIM marks the cells whose values before the first level are already in the checksums. In
        # `target_sums`, RIM marks the cells whose values after the last level are already in the checksums.
        self.source_sums = Runs(nothing)
        self.target_sums = Runs(nothing)
        # In `written`, RIM marks the cells of the target that have been written. In `sealed`, True marks the planes of
        # the target whose checksum has been written.
        self.written = Runs(nothing)
        self.sealed = Runs(False)
        # the planes that a block has read only to send them, and whose checksums are not compared yet
        self.unchecked = {"source": Runs(False), "statics": Runs(False)}
        self.committed = False
        self._perform = {
            Block: self._block, Carry: self._carry, Read: self._read, Copy: self._copy, Update: self._update,
            Write: self._write, Check: self._check, Commit: self._commit,
        }  # fmt: skip
        for field in self.statics if has_statics else ():
            self.fill(field, 0)

    def perform(self, action: Action) -> None:
        """Apply the effect of an action to the state of the proof. Raises IllegalPlan if the action is not legal at
        this point."""
        self._perform[type(action)](action)  # type: ignore[operator]

    def fill(self, ring: int, level: int, only_rim: bool = False) -> None:
        """Fill a ring with all planes at the given level. If `only_rim` is true, fill only the rim of each plane."""
        for z0, z1, cells in self.stored(level, only_rim).over(0, self.problem.planes):
            self.place(ring, z0, z1, [self.whole], cells)

    def require_final(self) -> None:
        """Raise IllegalPlan if a plane is not in the window at the last level."""
        for entry in self.state:
            ring, level = self.uses.final(*entry)
            for z0, _, cells in self.there(ring, 0, self.problem.planes):
                require(cells.holds((self.whole,), level), f"plane {z0} is not at the last level")

    def is_of_others(self, value: object) -> bool:
        """Return True if the content of a slot belongs to another block. The current block cannot use the content of
        another block."""
        return isinstance(value, SlotContent) and value.frame not in (self.frame, self._disk)

    def _shape(self, span: PlaneSpan) -> Shape:
        if span not in self._shapes:
            self._shapes[span] = Shape(span)
        return self._shapes[span]

    def _frame(self, block: Block) -> Frame:
        if block not in self._frames:
            self._frames[block] = Frame(self._shape(self.parts.span(block.frame)))
        return self._frames[block]

    def place(self, ring: int, z0: int, z1: int, spans: list[PlaneSpan], cells: CellLevels) -> None:
        self.rings[ring].place(self.frame, self.block.shift, z0, z1, spans, cells)

    def there(self, ring: int, z0: int, z1: int) -> list[tuple[int, int, CellLevels]]:
        return self.rings[ring].there(self.frame, self.block.shift, z0, z1)

    def stored(self, level: int, only_rim: bool = False) -> Runs[CellLevels]:
        """Return the contents of a whole array. The rim has the level RIM. Cells outside the rim have `level`, or
        NOTHING if `only_rim` is true. The result includes the planes of neighbours along z."""
        problem, nx = self.problem, self.problem.shape[2]
        low, high = (problem.radii[2] if side == "fixed" else 0 for side in problem.sides[2])
        first = min(low, nx)
        inner = Rectangle(*problem.own_rows, first, max(first, nx - high))
        runs = Runs(self._rim)
        if problem.has_updates:
            cells = self._rim.filled(self.parts.span(inner), NOTHING if only_rim else level)
            runs.put(problem.first_plane, problem.end_plane, cells)
        return runs

    def _block(self, action: Block) -> None:
        frame, whole = action.frame, self.problem.whole_plane
        first, end = (FAR if is_neighbour else 0 for is_neighbour in self.problem.neighbours)
        inside = -first <= frame.y0 < frame.y1 <= whole.y1 + end and 0 <= frame.x0 < frame.x1 <= whole.x1
        require(inside, "a frame beyond the plane")
        require(slot_bytes(self.problem, frame) <= self.window.slot_bytes, "a frame larger than a slot")
        if action != self.block:
            self.former_block, self.former_frame = self.block, self.frame
            self.block, self.frame = action, self._frame(action)

    def _carry(self, action: Carry) -> None:
        self._require_planes(action.z0, action.z1)
        old, new, shift = self.former_block, self.block, self.block.shift
        require(old.shift == shift, "the previous block has other slots")
        can_move = (old.frame.x0, old.frame.x1) == (new.frame.x0, new.frame.x1) and old.frame.y0 <= new.frame.y0
        require(can_move, f"rows of the frame {old.frame} cannot be moved to {new.frame}")
        span = self.parts.span(action.area)
        for ring in self.uses.copies(action.level):
            runs = self.rings[ring].runs
            for z0, z1, content in runs.over(action.z0 + shift, action.z1 + shift):
                require(content is not None and content.frame is self.former_frame,
                        f"plane {z0 - shift} of the previous block is not in its slot")  # fmt: skip
                assert content is not None
                runs.put(z0, z1, self.frame.content(self.frame.shape.empty.pasted(span, content.cells)))

    def _read(self, action: Read) -> None:
        span = self.parts.span(action.area)
        if action.array in FACES:
            self._require_planes(action.z0, action.z1)
            self._exchanges.receive(action, span)
            return
        self._require_stored(action)
        if self.block.only_sends:
            require(action.array in self.unchecked and span == self.whole, "a block that only sends reads whole planes")
            self.unchecked[action.array].put(action.z0, action.z1, True)
        for ring, array in self._arrays_read(action):
            for z0, z1, cells in array.over(action.z0, action.z1):
                if action.array in ("fringes", "recomputed"):
                    require(cells is not None and cells.shape.span == span, f"fringes of plane {z0} have other rows")
                assert cells is not None
                self.place(ring, z0, z1, [span], cells)

    def _arrays_read(self, action: Read) -> Iterator[tuple[int, Runs[CellLevels] | Runs[CellLevels | None]]]:
        """Yield each ring that a Read fills, together with the array from which the cells are read."""
        if action.array == "source":
            for (field, age), array in zip(self.state, self.sources, strict=True):
                yield self.uses.ring(field, age), array
        elif action.array == "statics":
            for field in self.statics:
                yield field, self._static
        elif action.array == "history":
            yield self.histories[action.level], self._static
        elif action.array == "fringes":
            for ring in self.uses.copies(action.level):
                yield ring, self.fringes[ring]
        elif action.array == "recomputed":
            yield self._computed(action.level), self.fringes[self._computed(action.level)]
        else:
            yield self.uses.ring(self.state[0][0], action.level & 1), self._single(action.array)

    def _copy(self, action: Copy) -> None:
        self._require_planes(action.z0, action.z1)
        area = self.parts.span(action.area)
        if action.recomputed >= 0:
            self._copy_recomputed(action, area)
            return
        own = self._own(action.own)
        firsts = {self.uses.ring(field, 0) for field, _ in self.state}
        for z0, z1, is_inside in self._inside(action.z0, action.z1):
            rims = [rim for rim in (self._rims(area) if is_inside else [area]) if rim[0] < rim[1]]
            for ring in firsts:
                for z, _, cells in self.there(ring, z0, z1):
                    require(cells.holds(tuple(rims), RIM), f"the rim of plane {z} is not in the first copy")
            for ring in self.uses.copies(1):
                self.place(ring, z0, z1, rims, self.wide_rim)
            own_z = max(z0, self.block.own_z0), min(z1, self.block.own_z1)
            for rim in rims if own_z[0] < own_z[1] else ():
                self._require_statics(*own_z, rim, own)
                self._sum(self.source_sums, *own_z, rim, own)
                self._sum(self.target_sums, *own_z, rim, own)

    def _copy_recomputed(self, action: Copy, area: PlaneSpan) -> None:
        require(action.recomputed < len(self.problem.recomputed), "a field that the pass does not compute again")
        field = self.problem.recomputed[action.recomputed]
        for z0, z1, is_inside in self._inside(action.z0, action.z1):
            rims = [rim for rim in (self._rims(area) if is_inside else [area]) if rim[0] < rim[1]]
            for z, _, cells in self.there(self.problem.fields[field].follows, z0, z1) if rims else ():
                require(cells.holds(tuple(rims), RIM), f"the rim of plane {z} is not in the window")
            self.place(field, z0, z1, rims, self._rim)

    def _computed(self, number: int) -> int:
        """Return the number that a field has in the problem, which is also the number of its ring. `number` counts only
        the fields of the forward run that the pass computes again."""
        require(0 <= number < len(self.problem.computed), "a field that the pass does not compute again")
        return self.problem.computed[number]

    def _inside(self, z0: int, z1: int) -> Iterator[tuple[int, int, bool]]:
        """Divide a range of planes at the places where the rim in z begins or ends. For each part of the range, yield
        its first plane, its end, and a flag that is true if updates change rows of these planes."""
        problem = self.problem
        edges = [z for z in (problem.first_plane, problem.end_plane) if z0 < z < z1]
        edges = [z0, *dict.fromkeys(edges), z1]
        for first, end in pairwise(edges):
            yield first, end, problem.has_updates and problem.first_plane <= first < problem.end_plane

    def _rims(self, area: PlaneSpan) -> list[PlaneSpan]:
        """Return the rows of `area` that no update changes."""
        rows = self.parts.rows
        first, end = rows[self.problem.first_row], rows[self.problem.end_row]
        return [(area[0], min(area[1], first), *area[2:]), (max(area[0], end), area[1], *area[2:])]

    def _update(self, action: Update) -> None:
        require(1 <= action.levels <= self.levels, f"a pass of {self.levels} levels")
        require(action.zeta0 < action.zeta1, "an empty range")
        parts, level, last, cycle = self.parts.of_levels(action.region), 1, action.levels, self.uses.cycle
        is_same = last > 4 * cycle and self._is_same_at_all_levels(action)
        before: _RingContents | None = None
        # At the upper end of the grid, the first levels of a slab update no plane. At the lower end of the grid, the
        # last levels of a slab update no plane.
        if self._is_free(action.region):
            level = max(level, (action.zeta0 - self._end) // self._skew + 2)
            last = min(last, -(-(action.zeta1 - self._first) // self._skew))
        while level <= last:
            z0, z1 = self._planes_of(action, level)
            if z0 < z1 and (part := parts[level]) is not None:
                self._update_level(level, z0, z1, part)
                if is_same and level % cycle == 0:
                    now = self._contents_around(z0, z1)
                    # If two successive cycles have the same effect, all later cycles also have this effect.
                    if before is not None and _raised(before, cycle) == now:
                        times = (last - 1 - level) // cycle
                        for ring, runs in _raised(now, times * cycle).items():
                            for first, end, content in runs:
                                self.rings[ring].runs.put(first, end, content)
                        level, is_same = level + times * cycle, False
                    before = now
            level += 1

    def _is_free(self, region: UpdateRegion) -> bool:
        """Return True if the region has no bounds along z."""
        return region.z_low == EVERYTHING.z_low and region.z_high == EVERYTHING.z_high

    def _is_same_at_all_levels(self, action: Update) -> bool:
        """Return True if an action updates the same cells at every level. All bounds depend linearly on the level, so
        the comparison of two levels is sufficient."""
        parts, region = self.parts.of_levels(action.region), action.region
        is_level = region.z_low.slope == 0 == region.z_high.slope and parts[1] is parts[action.levels]
        return is_level and self._planes_of(action, 1) == self._planes_of(action, action.levels)

    def _contents_around(self, z0: int, z1: int) -> _RingContents:
        """Return the contents of the rings of updated fields, from one skew below plane z0 to one skew above plane z1 -
        1."""
        skew, shift = self.problem.skew_z, self.block.shift
        rings = self.uses.copies(0) + self.uses.copies(1)
        return {ring: self.rings[ring].runs.over(z0 - skew + shift, z1 + skew + shift) for ring in rings}

    def _planes_of(self, action: Update, level: int) -> tuple[int, int]:
        """Return the range of planes that an Update updates at a level."""
        region = action.region
        back = self._skew * (level - 1)
        return (
            max(self._first, action.zeta0 - back, region.z_low.at(level)),
            min(self._end, action.zeta1 - back, region.z_high.at(level)),
        )

    def _update_level(self, level: int, z0: int, z1: int, part: Part) -> None:
        uses, later = self.uses.of(level)
        rings, frame, shift, seen = self.rings, self.frame, self.block.shift, planes_seen(self.problem, z0, z1)
        for use in uses.reads:
            wanted = use.wanted + later if use.moves else use.wanted
            if use.beside:
                for first, end in seen:
                    self._require_level(use, first, end, part.seen, level, wanted)
                if part.sees_itself:  # the cells that were just checked include the updated cells
                    continue
            self._require_level(use, z0, z1, part.areas, level, wanted)
        for centre, target in uses.targets:
            newest, older = rings[centre].there(frame, shift, z0, z1), rings[target].there(frame, shift, z0, z1)
            for first, end, one, old in together(newest, older):
                rings[target].change(frame, shift, first, end, old.updated(part.area, one, level))
        own_z = max(z0, self.block.own_z0), min(z1, self.block.own_z1)
        if level == self.problem.lead + 1 and own_z[0] < own_z[1]:
            own = self._own(self.block.own)
            self._require_statics(*own_z, part.area, own)
            self._sum(self.source_sums, *own_z, part.area, own)
        if level == self.levels:
            self._sum(self.target_sums, z0, z1, part.area, self.whole)

    def _require_level(self, use: Use, z0: int, z1: int, spans: tuple[PlaneSpan, ...], level: int, wanted: int) -> None:
        for z, _, cells in self.rings[use.ring].there(self.frame, self.block.shift, z0, z1):
            if not cells.holds(spans, wanted):
                raise IllegalPlan(f"level {level} needs field {use.field} of plane {z} as level {wanted} wrote it")

    def _write(self, action: Write) -> None:
        self._require_stored(action)
        area, span = action.area, self.parts.span(action.area)
        require(action.array in FACES or not self.block.only_sends, "a block that only sends writes to disk")
        if action.array in FACES:
            self._exchanges.send(action, span)
        elif action.array in ("fringes", "recomputed"):
            is_state = action.array == "fringes"
            rings = self.uses.copies(action.level) if is_state else [self._computed(action.level)]
            most = self.fringe_rows if is_state else self.recomputed_rows[action.level]
            require(area.y1 - area.y0 <= most, "more rows than the array has")
            shape = self._shape(span)
            for ring in rings:
                for z0, z1, cells in self.there(ring, action.z0, action.z1):
                    self.fringes[ring].put(z0, z1, shape.cells(cells.part(span).copy()))
        elif action.array == "target":
            for entry, array in zip(self.state, self.targets, strict=True):
                self._keep(array, self.uses.final(*entry)[0], action, span)
            for z0, z1, done in self.written.over(action.z0, action.z1):
                self.written.put(z0, z1, done.filled(span, RIM))
            if has_tail(self.problem, action):
                for z0, z1, sums in self.target_sums.over(action.z0, action.z1):
                    self.sealed.put(z0, z1, sums.holds((self.whole,), RIM))
        else:
            self._keep(self._single(action.array), self.uses.ring(self.state[0][0], action.level & 1), action, span)

    def _check(self, action: Check) -> None:
        self._require_stored(action)
        if self.block.only_sends:
            self._check_sent(action)
            return
        require(action.array in ("source", "target"), "no checksums of this array")
        is_source, span, (z0, z1) = action.array == "source", self.parts.span(action.area), (action.z0, action.z1)
        require(span == self._own(action.area), "rows that are not the rank's own")
        for field, age in self.state:
            level = BEFORE if age else 0
            ring, level = (self.uses.ring(field, age), level) if is_source else self.uses.final(field, age)
            for z, _, cells in self.there(ring, z0, z1):
                require(cells.holds((span,), level), f"rows of plane {z} of field {field} are not at level {level}")
        if is_source:
            self._require_statics(z0, z1, span, self.whole)
        self._sum(self.source_sums if is_source else self.target_sums, z0, z1, span, self.whole)

    def _check_sent(self, action: Check) -> None:
        """Perform a Check of planes that a block has read only to send them."""
        require(action.array in self.unchecked and self.parts.span(action.area) == self.whole, "a part of a plane")
        arrays = [(field, 0, 0) for field in self.statics]
        if action.array == "source":
            arrays = [(field, age, BEFORE if age else 0) for field, age in self.state]
        for field, age, level in arrays:
            for z, _, cells in self.there(self.uses.ring(field, age), action.z0, action.z1):
                require(cells.holds((self.whole,), level), f"plane {z} of field {field} is not as it was read")
        self.unchecked[action.array].put(action.z0, action.z1, False)

    def _keep(self, array: Runs[CellLevels], ring: int, action: Write, span: PlaneSpan) -> None:
        there = self.there(ring, action.z0, action.z1)
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
        for array, runs in self.unchecked.items():
            for z, _, is_unchecked in runs.over(0, planes):
                require(not is_unchecked, f"the checksum of plane {z} of {array} is not compared after it was sent")
        self.committed = True

    def _require_statics(self, z0: int, z1: int, area: PlaneSpan, own: PlaneSpan) -> None:
        """Raise IllegalPlan if the static fields are not in the window. When the checksum of the source is computed,
        the checksums of static fields are also computed. So the static fields must be in the window when the checksum
        of the source is computed."""
        part = common(area, own) if self.reads_statics else None
        for field in self.statics if part else ():
            for z, _, cells in self.there(field, z0, z1):
                assert part is not None
                is_there = cells.holds((part,), 0)
                require(is_there, f"field {field} of plane {z} is not in the window when its checksum is computed")

    def _sum(self, summed: Runs[CellLevels], z0: int, z1: int, area: PlaneSpan, own: PlaneSpan) -> None:
        """Record that an action computes the checksum of the block's own cells. Raises IllegalPlan if an earlier action
        has already computed this checksum."""
        if part := common(area, own):
            for first, end, done in summed.over(z0, z1):
                require(not bool((done.part(part) == RIM).any()), f"a checksum of plane {first} is computed twice")
                summed.put(first, end, done.filled(part, RIM))

    def _own(self, own: Rectangle) -> PlaneSpan:
        """Return the cells of a plane whose checksums the block computes."""
        whole = self.problem.whole_plane
        y0, x0 = max(0, min(own.y0, whole.y1)), max(0, min(own.x0, whole.x1))
        return self.parts.span(Rectangle(y0, max(y0, min(own.y1, whole.y1)), x0, max(x0, min(own.x1, whole.x1))))

    def _require_planes(self, z0: int, z1: int) -> None:
        """Raise IllegalPlan if a plane belongs neither to the grid nor to a neighbour along z."""
        low, high = (self.problem.max_halo_z * is_neighbour for is_neighbour in self.problem.neighbours_z)
        first, end = -low, self.problem.planes + high
        require(first <= z0 < z1 <= end, f"planes outside {first} .. {end - 1}")
        require(z0 + self.block.shift >= 0, "a slot before the first slot of a ring")

    def _require_stored(self, action: Read | Write | Check) -> None:
        """Raise IllegalPlan if the arrays on disk do not have all planes of an action. An action that exchanges rows
        with neighbours can also have planes that the arrays do not have."""
        self._require_planes(action.z0, action.z1)
        is_stored = action.z0 >= 0 and action.z1 <= self.problem.planes
        require(is_stored or action.array in FACES, f"planes outside 0 .. {self.problem.planes - 1}")

    def _single(self, name: str) -> Runs[CellLevels]:
        """Return the array `name`, which holds unfinished levels. Only problems with one field have arrays of
        unfinished levels."""
        require(self.single, "unfinished levels of several fields")
        require(name != "other" or self.uses_other, "the pass does not use the array `other`")
        return self.other if name == "other" else self.targets[0]


def _raised(contents: _RingContents, count: int) -> _RingContents:
    """Return a copy of the contents in which all levels are increased by `count`."""
    return {
        ring: [(z0, z1, one.frame.content(one.cells.raised(count)) if one else None) for z0, z1, one in runs]
        for ring, runs in contents.items()
    }
