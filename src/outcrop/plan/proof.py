"""The proof of one pass: what every ring of the window and every array on disk holds, action by action.

Kept is, for each plane of each ring and array, the level that wrote every cell, as contents of ranges of planes
(contents.py). Actions take effect at once and in order, which is stricter than the executor (a transfer that is still
under way counts as done): what passes here cannot race there, because transfers of one slot wait for each other, and
nothing else touches it.

An update goes level by level, all planes of a level at once. That is the same as by zeta, as the executor does it: what
level l reads at planes up to a skew away was written at no later zeta, and is overwritten at no earlier one.

Fields to which the same happens hold the same levels, so one of each kind stands for all. What repeats is looked at
once (repeats.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from outcrop.plan.actions import Action, Block, Carry, Commit, Copy, Read, Update, Write
from outcrop.plan.contents import NOTHING, RIM, Axes, Content, Frame, IllegalPlan, Runs, Span, common, require, together
from outcrop.plan.fields import Operand, Version, one_of_each, versions
from outcrop.plan.geometry import Bound, Cut, Region
from outcrop.plan.plan import Pass
from outcrop.plan.problem import Problem
from outcrop.plan.seen import columns_seen, planes_seen, rows_seen
from outcrop.plan.window import Ring, Window, slot_bytes

_Held: TypeAlias = dict[int, list[tuple[int, int, "Content | None"]]]
"""What rings hold of some places."""
BEFORE = -1
"""The level of the value before the newest one when a pass begins."""


@dataclass
class RingState:
    """What the slots of a ring hold, by place: of the planes of all blocks that number which takes turns in the slots."""

    ring: Ring
    runs: Runs[Content | None]


@dataclass(frozen=True)
class _Use:
    """What a level reads of a ring: cells that level `wanted` wrote, or, where it `moves`, so many levels later as the
    level at hand is later; `beside`: at neighbours, too."""

    field: int
    ring: int
    wanted: int
    moves: bool
    beside: bool


@dataclass(frozen=True)
class _Level:
    """What a level reads, and of each of its targets the rings of the newest values and of the ones it writes."""

    reads: tuple[_Use, ...]
    targets: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class _Place:
    """What a level updates of a plane, and the parts of it and its neighbours that it looks at."""

    cut: Span
    seen: tuple[Span, ...]


class Proof:
    """The window and the arrays of one pass, by content; `has_statics`: fields that nothing updates are in it."""

    def __init__(self, problem: Problem, one: Pass, window: Window, has_statics: bool) -> None:
        self.is_single = problem.is_single
        fields, updates = one_of_each(problem.fields, problem.updates)
        self.problem = problem = replace(problem, fields=fields, updates=updates)
        self.levels, self.window, self.actions = one.levels, window, one.actions
        self.faces_rows, self.uses_other = one.faces_rows, one.uses_other
        self.turn = 2 * problem.stages
        self._versions = versions(fields, problem.updates, min(one.levels, 2 * self.turn))
        self._regions: dict[Region, list[_Place | None]] = {}
        self._uses: dict[int, _Level] = {}
        self.axes = _axes(problem, one)
        self.whole = self.axes.span(problem.whole_plane)
        self.state = [(f, age) for f, one in enumerate(fields) if not one.is_static for age in range(1 + one.has_previous)]
        self.statics = [f for f, one in enumerate(fields) if one.is_static]
        doubles = [f for f, one in enumerate(fields) if one.is_double]
        self.second = {f: len(fields) + place for place, f in enumerate(doubles)}
        self.rings = [RingState(ring, Runs(None)) for ring in window.rings(problem)]
        self.disk = Frame(self.whole)
        self._rim = self.disk.empty.filled(self.whole, RIM)
        self._frames: dict[Block, Frame] = {}
        self.block = self.former_block = Block(problem.whole_plane)
        self.frame = self.former_frame = self._frames.setdefault(self.block, Frame(self.whole))
        self.sources = [self._stored(BEFORE if age else 0) for _, age in self.state]
        self._static = self._stored(0)
        nothing = self.disk.empty
        self.targets = self.sources if problem.in_place else [self._nothing() for _ in self.state]
        self.other = self._nothing()
        self.faces: dict[int, Runs[Content | None]] = {ring: Runs(None) for ring in range(len(self.rings))}
        self._face_frames: dict[Span, Frame] = {}
        self.reads_statics = any(isinstance(action, Read) and action.array == "statics" for action in one.actions)
        self.source_sums = Runs(nothing)  # cells whose checksums are taken before the first level
        self.target_sums = Runs(nothing)  # and after the last one
        self.written = Runs(nothing)  # cells of the target
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
        for z0, z1, content in self._stored(level, only_rim).over(0, self.problem.planes):
            self._place(ring, z0, z1, [self.whole], content)

    def require_final(self) -> None:
        """All planes are in the window at the last level."""
        for entry in self.state:
            ring, level = self._final(*entry)
            for z0, _, content in self.there(ring, 0, self.problem.planes):
                require(content.holds((self.whole,), level), f"plane {z0} is not at the last level")

    def _nothing(self) -> Runs[Content]:
        return Runs(self.disk.empty)

    def _stored(self, level: int, only_rim: bool = False) -> Runs[Content]:
        """A whole array with its cells at a level, or NOTHING where that is asked for, and its rim."""
        problem, nx = self.problem, self.problem.shape[2]
        low, high = (problem.radii[2] if side == "fixed" else 0 for side in problem.sides[2])
        first = min(low, nx)
        inner = Cut(problem.first_row, problem.end_row, first, max(first, nx - high))
        rim = self._rim
        runs = Runs(rim)
        if problem.has_updates:
            cells = rim.filled(self.axes.span(inner), NOTHING if only_rim else level)
            runs.put(problem.first_plane, problem.end_plane, cells)
        return runs

    def _block(self, action: Block) -> None:
        frame, whole = action.frame, self.problem.whole_plane
        inside = 0 <= frame.y0 < frame.y1 <= whole.y1 and 0 <= frame.x0 < frame.x1 <= whole.x1
        require(inside, "a frame beyond the plane")
        require(slot_bytes(self.problem, frame) <= self.window.slot_bytes, "a frame larger than a slot")
        if action != self.block:
            self.former_block, self.former_frame, self.block = self.block, self.frame, action
            if action not in self._frames:
                self._frames[action] = Frame(self.axes.span(frame))
            self.frame = self._frames[action]

    def _carry(self, action: Carry) -> None:
        self._require_planes(action.z0, action.z1)
        old, new, shift = self.former_block, self.block, self.block.shift
        require(old.shift == shift, "a slot that planes have left")
        can_move = (old.frame.x0, old.frame.x1) == (new.frame.x0, new.frame.x1) and old.frame.y0 <= new.frame.y0
        require(can_move, f"rows of the frame {old.frame} cannot be moved to {new.frame}")
        span = self.axes.span(action.cut)
        for ring in self._copies(action.level):
            runs = self.rings[ring].runs
            for z0, z1, content in runs.over(action.z0 + shift, action.z1 + shift):
                require(content is not None and content.frame is self.former_frame,
                        f"plane {z0 - shift} is not there to be carried")  # fmt: skip
                assert content is not None
                runs.put(z0, z1, self.frame.empty.pasted(span, content))

    def _read(self, action: Read) -> None:
        self._require_planes(action.z0, action.z1)
        span = self.axes.span(action.cut)
        for ring, array in self._arrays_read(action):
            for z0, z1, content in array.over(action.z0, action.z1):
                if action.array == "faces":
                    require(content is not None and content.frame.span == span, f"faces of plane {z0} are other rows")
                assert content is not None
                self._place(ring, z0, z1, [span], content)

    def _arrays_read(self, action: Read) -> Iterator[tuple[int, Runs[Content] | Runs[Content | None]]]:
        """The rings that a Read fills, and from what."""
        if action.array == "source":
            for (field, age), array in zip(self.state, self.sources, strict=True):
                yield self._ring(field, age), array
        elif action.array == "statics":
            for field in self.statics:
                yield field, self._static
        elif action.array == "faces":
            for ring in self._copies(action.level):
                yield ring, self.faces[ring]
        else:
            yield self._ring(self.state[0][0], action.level & 1), self._single(action.array)

    def _copy(self, action: Copy) -> None:
        self._require_planes(action.z0, action.z1)
        cut, own = self.axes.span(action.cut), self._own(action.own)
        firsts = {self._ring(field, 0) for field, _ in self.state}
        for z0, z1, is_inside in self._inside(action.z0, action.z1):
            rims = [rim for rim in (self._rims(cut) if is_inside else [cut]) if rim[0] < rim[1]]
            for ring in firsts:
                for z, _, content in self.there(ring, z0, z1):
                    require(content.holds(tuple(rims), RIM), f"the rim of plane {z} is not in the first copy")
            for ring in self.second.values():
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
        for first, end in zip(edges, edges[1:], strict=False):
            yield first, end, problem.has_updates and problem.first_plane <= first < problem.end_plane

    def _rims(self, cut: Span) -> list[Span]:
        """The rows of a part that no update touches."""
        rows = self.axes.rows.of
        first, end = rows[self.problem.first_row], rows[self.problem.end_row]
        return [(cut[0], min(cut[1], first), *cut[2:]), (max(cut[0], end), cut[1], *cut[2:])]

    def _update(self, action: Update) -> None:
        require(1 <= action.levels <= self.levels, f"a pass of {self.levels} levels")
        require(action.zeta0 < action.zeta1, "an empty range")
        places, level, before = self._places(action.region), 1, None
        region, last = action.region, action.levels
        is_same = places[1] is places[last] and self._planes_of(action, 1) == self._planes_of(action, last)
        is_same = is_same and region.z_low.slope == 0 == region.z_high.slope
        while level <= last:
            z0, z1 = self._planes_of(action, level)
            place = places[level]
            if z0 < z1 and place is not None:
                self._update_level(level, z0, z1, place)
                if is_same and level % self.turn == 0 and last > 4 * self.turn:
                    found = self._held(z0, z1)
                    if before is not None and _raised(before, self.turn) == found:
                        times = (last - 1 - level) // self.turn
                        self._hold(_raised(found, times * self.turn))
                        level, is_same = level + times * self.turn, False
                    before = found
            level += 1

    def _held(self, z0: int, z1: int) -> _Held:
        """What rings of fields that are updated hold of planes from a skew below to a skew above z0 <= z < z1."""
        skew, shift = self.problem.skew_z, self.block.shift
        rings = self._copies(0) + self._copies(1)
        return {ring: self.rings[ring].runs.over(z0 - skew + shift, z1 + skew + shift) for ring in rings}

    def _hold(self, held: _Held) -> None:
        for ring, runs in held.items():
            for z0, z1, content in runs:
                self.rings[ring].runs.put(z0, z1, content)

    def _planes_of(self, action: Update, level: int) -> tuple[int, int]:
        """The planes that an update updates at a level."""
        problem, region = self.problem, action.region
        back = problem.skew_z * (level - 1)
        return (
            max(problem.first_plane, action.zeta0 - back, region.z_low.at(level)),
            min(problem.end_plane, action.zeta1 - back, region.z_high.at(level)),
        )

    def _update_level(self, level: int, z0: int, z1: int, place: _Place) -> None:
        problem, shift = self.problem, self.block.shift
        uses, later = self._use(level)
        for use in uses.reads:
            wanted = use.wanted + later if use.moves else use.wanted
            if use.beside:
                for first, end in planes_seen(problem, z0, z1):
                    self._require_level(use, first, end, place.seen, level, wanted)
            self._require_level(use, z0, z1, (place.cut,), level, wanted)
        for centre, target in uses.targets:
            runs = self.rings[target].runs
            newest, older = self.there(centre, z0, z1), self.there(target, z0, z1)
            for first, end, one, old in together(newest, older):
                offset = 0 if self.rings[target].ring.is_resident else shift
                runs.put(first + offset, end + offset, old.updated(place.cut, one, level))
        own_z = max(z0, self.block.own_z0), min(z1, self.block.own_z1)
        if level == 1 and own_z[0] < own_z[1]:
            own = self._own(self.block.own)
            self._require_statics(*own_z, place.cut, own)
            self._sum(self.source_sums, *own_z, place.cut, own)
        if level == self.levels:
            self._sum(self.target_sums, z0, z1, place.cut, self.whole)

    def _require_level(
        self, use: _Use, z0: int, z1: int, spans: tuple[Span, ...], level: int, wanted: int
    ) -> None:
        for z, _, content in self.there(use.ring, z0, z1):
            if not content.holds(spans, wanted):
                raise IllegalPlan(f"level {level} needs of plane {z} what level {wanted} wrote of field {use.field}")

    def _write(self, action: Write) -> None:
        self._require_planes(action.z0, action.z1)
        cut, span = action.cut, self.axes.span(action.cut)
        if action.array == "faces":
            require(cut.y1 - cut.y0 <= self.faces_rows, "more rows than faces keep")
            if span not in self._face_frames:
                self._face_frames[span] = Frame(span)
            frame = self._face_frames[span]
            for ring in self._copies(action.level):
                for z0, z1, content in self.there(ring, action.z0, action.z1):
                    self.faces[ring].put(z0, z1, frame.content(content.part(span).copy()))
        elif action.array == "target":
            for entry, array in zip(self.state, self.targets, strict=True):
                self._keep(array, self._final(*entry)[0], action, span)
            for z0, z1, done in self.written.over(action.z0, action.z1):
                self.written.put(z0, z1, done.filled(span, RIM))
            if cut.y1 == self.problem.shape[1] and cut.x1 == self.problem.pitch_cells:
                for z0, z1, sums in self.target_sums.over(action.z0, action.z1):
                    self.sealed.put(z0, z1, sums.holds((self.whole,), RIM))
        else:
            self._keep(self._single(action.array), self._ring(self.state[0][0], action.level & 1), action, span)

    def _keep(self, array: Runs[Content], ring: int, action: Write, span: Span) -> None:
        """Write cells of a ring to an array."""
        there = self.there(ring, action.z0, action.z1)
        for z0, z1, content, old in together(there, array.over(action.z0, action.z1)):
            array.put(z0, z1, old.pasted(span, content))

    def _commit(self, action: Commit) -> None:
        require(not self.committed, "a second commit")
        whole, planes = (self.whole,), self.problem.planes
        for entry, target in zip(self.state, self.targets, strict=True):
            for z, _, content in target.over(0, planes):
                require(content.holds(whole, self._final(*entry)[1]), f"plane {z} is not written at the last level")
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
            for z, _, content in self.there(field, z0, z1):
                assert part is not None
                is_there = content.holds((part,), 0)
                require(is_there, f"of plane {z} field {field} is not there when its checksum is taken")

    def _sum(self, summed: Runs[Content], z0: int, z1: int, cut: Span, own: Span) -> None:
        """Take the checksum of those of the cells that are the block's own, for the first and only time."""
        if part := common(cut, own):
            for first, end, done in summed.over(z0, z1):
                require(not bool((done.part(part) == RIM).any()), f"a checksum of plane {first} is taken twice")
                summed.put(first, end, done.filled(part, RIM))

    def _own(self, own: Cut) -> Span:
        """The cells of a plane that a block accounts for."""
        whole = self.problem.whole_plane
        y0, x0 = max(0, min(own.y0, whole.y1)), max(0, min(own.x0, whole.x1))
        return self.axes.span(Cut(y0, max(y0, min(own.y1, whole.y1)), x0, max(x0, min(own.x1, whole.x1))))

    def _require_planes(self, z0: int, z1: int) -> None:
        require(0 <= z0 < z1 <= self.problem.planes, f"planes outside 0 .. {self.problem.planes - 1}")

    def _ring(self, field: int, copy: int) -> int:
        return self.second[field] if copy else field

    def _copies(self, level: int) -> list[int]:
        """The rings of first (even `level`) or second copies of what is updated."""
        if level % 2:
            return list(self.second.values())
        return [field for field, one in enumerate(self.problem.fields) if not one.is_static]

    def _final(self, field: int, age: int) -> tuple[int, int]:
        """The ring that holds an array's values after the last level, and the level that wrote them."""
        alike = self._alike(self.levels)
        version = self._versions[alike].of(Operand(field, age))
        return self._ring(field, version.copy), version.level + self.levels - alike

    def _single(self, name: str) -> Runs[Content]:
        """The array for unfinished levels, which only a single field has."""
        require(self.is_single, "unfinished levels of several fields")
        require(name != "other" or self.uses_other, "an array that the pass does not name")
        return self.other if name == "other" else self.targets[0]

    def _alike(self, level: int) -> int:
        """A level that does the same a number of turns earlier: after the first turn all are alike."""
        return level if level <= 2 * self.turn else self.turn + 1 + (level - 1) % self.turn

    def _use(self, level: int) -> tuple[_Level, int]:
        """What a level reads and writes, and how many levels later it is than the one it is said of."""
        alike = self._alike(level)
        if alike not in self._uses:
            stage = self.problem.updates[(alike - 1) % self.problem.stages]
            before, after = self._versions[alike - 1], self._versions[alike]

            def ring(field: int, version: Version) -> int:
                return self._ring(field, version.copy)

            reads = [(operand, before.of(operand)) for operand in stage.reads]
            self._uses[alike] = _Level(
                tuple(
                    _Use(one.field, ring(one.field, found), found.level,
                         not self.problem.fields[one.field].is_static, one.beside)
                    for one, found in reads
                ),
                tuple((ring(f, before.newest[f]), ring(f, after.newest[f])) for f in stage.targets),
            )  # fmt: skip
        return self._uses[alike], level - alike

    def _places(self, region: Region) -> list[_Place | None]:
        """What each level updates of a plane, beginning with level 1 at 1."""
        if region not in self._regions:
            cuts = cuts_of(self.problem, region, self.levels)
            found = [self._place_of(cut) for cut in dict.fromkeys(cuts)]
            known = dict(zip(dict.fromkeys(cuts), found, strict=True))
            self._regions[region] = [None, *(known[cut] for cut in cuts)]
        return self._regions[region]

    def _place_of(self, cut: Cut | None) -> _Place | None:
        if cut is None:
            return None
        rows, columns = rows_seen(self.problem, cut), columns_seen(self.problem, cut)
        seen = tuple(self.axes.span(Cut(*ys, *xs)) for ys in rows for xs in columns)
        return _Place(self.axes.span(cut), seen)

    def _place(self, ring: int, z0: int, z1: int, spans: list[Span], content: Content) -> None:
        """Let slots have parts of planes z0 <= z < z1 from `content`; those that held other planes are emptied first."""
        state = self.rings[ring]
        frame, shift = (self.disk, 0) if state.ring.is_resident else (self.frame, self.block.shift)
        runs, first, end = state.runs, z0 + shift, z1 + shift
        for a, b, held in runs.over(first, end):
            new = held if held is not None and held.frame is frame else frame.empty
            for span in spans:
                new = new.pasted(span, content)
            runs.put(a, b, new)
        if state.ring.is_resident:
            return
        planes = state.ring.planes
        first = max(first, end - planes)
        low, high = runs.ends
        for times in range(1, (end - low) // planes + 1):
            runs.put(first - times * planes, end - times * planes, None)
        for times in range(1, (high - first) // planes + 1):
            runs.put(first + times * planes, end + times * planes, None)

    def there(self, ring: int, z0: int, z1: int) -> list[tuple[int, int, Content]]:
        """What slots hold of planes z0 <= z < z1, all of which must be there."""
        state = self.rings[ring]
        frame, shift = (self.disk, 0) if state.ring.is_resident else (self.frame, self.block.shift)
        found = []
        for first, end, content in state.runs.over(z0 + shift, z1 + shift):
            if content is None or content.frame is not frame:
                raise IllegalPlan(f"plane {first - shift} is not in ring {ring}")
            found.append((first - shift, end - shift, content))
        return found


def _raised(held: _Held, count: int) -> _Held:
    """The same some levels later."""
    return {
        ring: [(z0, z1, content.raised(count) if content else None) for z0, z1, content in runs]
        for ring, runs in held.items()
    }


def cuts_of(problem: Problem, region: Region, levels: int) -> list[Cut | None]:
    """What each level updates of a plane, None where that is nothing."""
    bounds = region.y_low, region.y_high, region.x_low, region.x_high
    flat = all(bound.slope == 0 for bound in bounds)
    found = [_cut_at(problem, bounds, level) for level in range(1, 2 if flat else levels + 1)]
    return found * levels if flat else found


def _cut_at(problem: Problem, bounds: tuple[Bound, ...], level: int) -> Cut | None:
    y0, y1, x0, x1 = (bound.at(level) for bound in bounds)
    cut = Cut(max(problem.first_row, y0), min(problem.end_row, y1), max(0, x0), min(problem.pitch_cells, x1))
    return cut if cut.cells else None


def _axes(problem: Problem, one: Pass) -> Axes:
    """The places of a pass along rows and columns."""
    _, ny, nx = problem.shape
    low, high = (problem.radii[2] if side == "fixed" else 0 for side in problem.sides[2])
    first = min(low, nx)
    rows = {0, ny, problem.first_row, problem.end_row}
    columns = {0, nx, problem.pitch_cells, first, max(first, nx - high)}
    whole, cuts, regions = problem.whole_plane, set(), {}
    for action in one.actions:
        kind = type(action)
        if kind is Update:
            regions[id(action.region)] = action.region  # type: ignore[union-attr]
        elif kind is Block:
            cuts |= {action.frame, action.own}  # type: ignore[union-attr]
        elif kind is not Commit:
            cuts.add(action.cut)  # type: ignore[union-attr]
            if kind is Copy:
                cuts.add(action.own)  # type: ignore[union-attr]
    for cut in cuts:
        rows |= {cut.y0, cut.y1, max(0, min(cut.y0, whole.y1)), max(0, min(cut.y1, whole.y1))}
        columns |= {cut.x0, cut.x1, max(0, min(cut.x0, whole.x1)), max(0, min(cut.x1, whole.x1))}
    for region in dict.fromkeys(regions.values()):
        for updated in dict.fromkeys(cuts_of(problem, region, one.levels)):
            if updated is not None:
                rows.update(y for ys in [(updated.y0, updated.y1), *rows_seen(problem, updated)] for y in ys)
                columns.update(x for xs in [(updated.x0, updated.x1), *columns_seen(problem, updated)] for x in xs)
    return Axes(rows, columns)

