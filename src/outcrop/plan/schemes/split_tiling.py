"""Split tiling, for a grid that is divided among ranks along y. No cell is updated twice.

A rank has the rows 0 <= y < ny. The rows that a rank can update without its neighbours form a trapezoid. At each cut,
each level of the trapezoid has r rows fewer than the level below, where r is the radius. The rows between two
trapezoids form a triangle. The rank below the cut updates the triangle. Before this update, the rank above the cut
sends the rows of its trapezoid that the triangle reads (stairs.py):

    level L            /  trapezoid of rank j  \\ tri- /   trapezoid of rank j+1
      :              /                          \\ an /
      1            /                             \\gl/
      0   |______/________________________________\\/___________________
          0                                       ny

    trapezoid   level q updates the rows rq <= y < ny - rq
    triangle    level q updates the rows ny - rq <= y < ny + rq

The frame of a rank consists of the rank's own rows and r(L+1) rows of its upper neighbour. The window moves over the
grid as in the wavefront scheme (wavefront.py). But the triangle of a slab is updated after the trapezoid of the next
slab. So the rows for the triangle arrive while the rank updates the trapezoid of the next slab. The actions for slab s
are:

    read the planes for slab s+1; send and receive the stairs of level 0 and the static rows of these planes
    update the trapezoid of slab s; send and receive the stairs of higher levels of slab s
    update the triangle of slab s-1; send the finished rows ny <= y < ny + rL to the upper neighbour
    receive the finished rows 0 <= y < rL of the same planes from the lower neighbour
    write the planes whose finished rows were received for slab s-1

A rank computes the checksums of its own rows. Usually, the updates of the rank compute the checksums of its rows. But
the lower neighbour of a rank updates the lowest rows of the rank. So the action Check adds two ranges of rows to the
checksums: 0 <= y < r at level 0, and 0 <= y < rL at the last level.

A rank receives finished rows only in planes that its trapezoid no longer reads. Let Z be the end of slab s, and let b
be the number of planes of a slab. The triangle of slab s-1 has finished the planes below Z - b - r(L-1). The trapezoid
of slab s+1 reads planes from Z - rL on. So finished rows are exchanged for the planes below

    F(s) = min(Z - b - r(L-1), Z - rL),

and planes below F(s-1) are written. So each ring needs approximately two slabs more than in the wavefront scheme:

    even ring   F(s-2)  ..  Z + b + r - 1           3b + rL + max(b, r)    [3b + rL + r, L odd]
    odd ring    Z - 2b - rL  ..  Z - 1              2b + rL                [3b + rL + max(b - r, 0), L odd]
    static      Z - 2b - r(L-1) [- r]  ..  Z + b [+ r] - 1                 3b + r(L-1) [+ 2r]

If a step has several stages, or if the state has previous values, the even ring and the odd ring both have 3b + rL +
max(b, r) planes.

The rows of a rank can be divided into skewed blocks, as in deep_halo.py. The block at the lower cut has the stairs, and
the block at the upper cut has the triangle. With several blocks, the even ring and the odd ring both have 3b + rL +
max(b, r) + r planes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cached_property

from outcrop.plan.actions import (
    FAR,
    HIGH,
    LOW,
    Action,
    Array,
    Block,
    Bound,
    Check,
    Commit,
    Copy,
    Read,
    Rectangle,
    Update,
    UpdateRegion,
    Write,
)
from outcrop.plan.cost import TOGETHER_MESSAGES
from outcrop.plan.given_sizes import FREE, GivenSizes
from outcrop.plan.memory import Window, largest_within, make_window, slot_bytes
from outcrop.plan.plan import Pass, Scheme, Sizes, Volume
from outcrop.plan.problem import Problem
from outcrop.plan.schemes.deep_halo import (
    DeepHalo,
    blocks_of_rows,
    bounded,
    has_given_blocks,
    in_order,
    own_cells,
    own_part,
    touches,
)
from outcrop.plan.schemes.skewed_cut import SkewedBlock, SkewedCut
from outcrop.plan.schemes.wavefront import SLABS, block_sizes, has_updates, levels_worth_trying, slabs
from outcrop.plan.stairs import Stairs


class SplitRows:
    """The rows that a rank uses in a pass of `levels` levels."""

    def __init__(self, problem: Problem, levels: int) -> None:
        self.problem, self.levels, self.stairs = problem, levels, Stairs(problem, levels)
        self.low, self.high = problem.neighbours

    def blocks(self, block_y: int) -> SkewedCut:
        """Divide the rows of the rank into blocks of `block_y` rows. The block at the lower cut has all rows that are
        sent to the lower neighbour. The block at the upper cut has all rows that the triangle reads."""
        problem, levels, radius = self.problem, self.levels, self.problem.radius_y
        rim_rows = self.stairs.rim_rows[1]
        sent = max(self.stairs.rows(level)[1] + radius * level for level in range(levels))

        def least(order: int) -> tuple[int, int]:
            low, high = (4 * radius, 2 * radius * levels) if order < 0 else (max(rim_rows, sent), 4 * radius)
            return problem.row_group + radius + low, problem.row_group + radius + rim_rows + high

        return blocks_of_rows(problem, levels, block_y, (0, rim_rows), least)

    @cached_property
    def trapezoid(self) -> UpdateRegion:
        ny, radius = self.problem.shape[1], self.problem.radius_y
        return UpdateRegion(
            y_low=Bound(0, radius) if self.low else Bound(-FAR),
            y_high=Bound(ny, -radius) if self.high else Bound(FAR),
        )

    @cached_property
    def triangle(self) -> UpdateRegion:
        ny, radius = self.problem.shape[1], self.problem.radius_y
        return UpdateRegion(y_low=Bound(ny, -radius), y_high=Bound(ny, radius))

    @property
    def has_triangle(self) -> bool:
        return self.high and self.problem.radius_y > 0

    def sent(self, rows: tuple[int, int]) -> Rectangle:
        """Return the Rectangle with the rank's own rows `rows`, which are counted from the lower cut."""
        return self.cells(*rows)

    def received(self, rows: tuple[int, int]) -> Rectangle:
        """Return the Rectangle with the upper neighbour's rows `rows`, which are counted from the upper cut."""
        return self.cells(self.problem.shape[1] + rows[0], self.problem.shape[1] + rows[1])

    def cells(self, y0: int, y1: int) -> Rectangle:
        return Rectangle(y0, y1, 0, self.problem.pitch_cells)


class _SplitStream:
    """Makes the actions of one block, for all planes. If `is_linked` is true, planes of this block and of the next
    block can be in a ring at the same time."""

    def __init__(self, problem: Problem, levels: int, block: SkewedBlock, is_linked: bool) -> None:
        self.problem, self.levels, self.block, self.is_linked = problem, levels, block, is_linked
        self.rows = SplitRows(problem, levels)
        self.stairs = self.rows.stairs
        self.low, self.high = self.rows.low and touches(block, LOW), self.rows.high and touches(block, HIGH)
        self.begin = Block(
            problem.frame_of(block.cut.cells(block.frame())),
            own=own_cells(problem, block), shift=is_linked * block.number * problem.planes,
        )  # fmt: skip
        self.region, self.own = bounded(block, self.rows.trapezoid), DeepHalo(problem, levels).own
        # The rows are the same for all planes, so they are computed only once.
        self.state_rows, self.static_rows, self.final_rows = (
            own_part(problem, block.cut, one) for one in (block.body(0), block.frame(), block.left_below(levels % 2))
        )
        self.rim_rows = self._rows(block.body(1))
        self.fringes_before, self.fringes_after = (
            [(parity, rows) for parity in (0, 1) if (rows := self._rows(fringe(parity))).cells]
            for fringe in (block.fringe, block.next_fringe)
        )
        self.read = self.statics_read = self.copied = self.finished = self.written = 0

    def actions(self, slab: int, following: _SplitStream | None) -> Iterator[Action]:
        """Yield all actions of the block except the commit. Also yield the first reads of the block `following`."""
        problem, back = self.problem, self.problem.skew_z * (self.levels - 1)
        before: tuple[int, int] | None = None
        yield self.begin
        every = slabs(problem, self.levels, slab)
        for zeta0, zeta1 in every:
            yield from self._read_to(zeta1 + slab)
            if following is not None and self.is_linked:
                # The first slab of a block always reads the same planes. So two neighbours exchange these planes in the
                # same order.
                ahead = [*following._read_to(min(zeta1 + slab - problem.planes, every[0][1] + slab))]
                yield from (following.begin, *ahead, self.begin) if ahead else ()
            yield from self._copy_to(zeta1)
            if has_rows(problem, self.region, self.levels):
                yield from self._update(zeta0, zeta1, self.region)
            yield from self._exchange_stairs(zeta0, zeta1)
            arrived = self.finished
            if before is not None:
                yield from self._triangle(*before)
            yield from self._finish_to(min(zeta0 - back, zeta1 - back - problem.skew_z))
            yield from self._write_to(arrived)
            before = zeta0, zeta1
        if before is not None:
            yield from self._triangle(*before)
            yield from self._finish_to(problem.end_plane)
        # the remaining planes belong to the last slabs and to the rim; no later update reads them
        for z in range(self.written, problem.planes, slab):
            end = min(problem.planes, z + slab)
            yield from self._read_to(end, end)
            yield from self._copy_to(end)
            yield from self._write_to(end)

    def _update(self, zeta0: int, zeta1: int, region: UpdateRegion) -> Iterator[Action]:
        # If the grid has fewer planes than the skew, some values of zeta have no updates. Even a whole slab can have no
        # updates.
        zetas = [zeta for zeta in range(zeta0, zeta1) if has_updates(self.problem, self.levels, zeta)]
        if zetas:
            yield Update(zetas[0], zetas[-1] + 1, self.levels, region)

    def _triangle(self, zeta0: int, zeta1: int) -> Iterator[Action]:
        if self.high and self.rows.has_triangle:
            yield from self._update(zeta0, zeta1, self.rows.triangle)

    def _read_to(self, zeta: int, most: int = FAR) -> Iterator[Action]:
        """Yield the reads of the planes below `most` that the updates below `zeta` need. Also yield the exchanges of
        rows in the planes that are read."""
        problem = self.problem
        z0, z1 = self.read, min(zeta + problem.skew_z, problem.planes, most)
        if z1 > z0:
            self.read = z1
            yield Read(z0, z1, self.state_rows)
            yield from (Read(z0, z1, rows, "fringes", parity) for parity, rows in self.fringes_before)
        static, static_end = self.statics_read, min(zeta + problem.statics_z, problem.planes, most)
        if static_end > static and problem.statics:
            self.statics_read = static_end
            yield Read(static, static_end, self.static_rows, "statics")
        if self.low or self.high:
            for first, end, is_static in in_order(problem, (z0, self.read), (static, self.statics_read)):
                if is_static:
                    yield from self._exchange(first, end, self.stairs.rim_rows, "static_faces")
                    continue
                for begin, stop, is_inside in self._inside(first, end):
                    rows_sent = self.stairs.rows(0) if is_inside else self.stairs.rim_rows
                    yield from self._exchange(begin, stop, rows_sent, "stairs", 0)

    def _inside(self, z0: int, z1: int) -> Iterator[tuple[int, int, bool]]:
        """Divide a range of planes at the rims in z. For each part, yield its first plane, its end, and a flag that is
        true if updates change the planes of the part."""
        first, end = self.problem.first_plane, self.problem.end_plane
        for begin, stop, is_inside in ((0, first, False), (first, end, True), (end, self.problem.planes, False)):
            if max(z0, begin) < min(z1, stop):
                yield max(z0, begin), min(z1, stop), is_inside

    def _copy_to(self, end: int) -> Iterator[Action]:
        z0, z1 = self.copied, min(end, self.problem.planes)
        if z1 > z0:
            self.copied = z1
            yield Copy(z0, z1, self.rim_rows, self.own)
            yield from self._check(z0, z1, (0, self.problem.radius_y), "source")

    def _check(self, z0: int, z1: int, rows: tuple[int, int], array: Array) -> Iterator[Action]:
        """Yield the Check of the rows that the lower neighbour updates."""
        first, end = max(z0, self.problem.first_plane), min(z1, self.problem.end_plane)
        if self.low and first < end and rows[0] < rows[1]:
            yield Check(first, end, self.rows.sent(rows), array)

    def _exchange_stairs(self, zeta0: int, zeta1: int) -> Iterator[Action]:
        """Yield the exchanges of the rows that the levels 1 to L - 1 have written in a slab."""
        for level in range(1, self.levels):
            first, end = self.stairs.planes(level, zeta0, zeta1)
            yield from self._exchange(first, end, self.stairs.rows(level), "stairs", level)

    def _exchange(self, z0: int, z1: int, rows: tuple[int, int], array: Array, level: int = 0) -> Iterator[Action]:
        """Yield a send of rows above the lower cut, and a receive of rows above the upper cut. Each receive comes
        directly after the send of the corresponding rows. So ranks never block each other, even if a connection can
        store the messages of only one action."""
        if z0 >= z1 or rows[0] >= rows[1]:
            return
        is_static = array == "static_faces"  # for static rows, the action has a side instead of a level
        if self.low:
            yield Write(z0, z1, LOW if is_static else level, self.rows.sent(rows), array)
        if self.high:
            yield Read(z0, z1, self.rows.received(rows), array, HIGH if is_static else level)

    def _finish_to(self, end: int) -> Iterator[Action]:
        """Yield the exchanges of finished rows of the planes below `end`."""
        first, rows = max(self.finished, self.problem.first_plane), self.stairs.finished_rows
        self.finished = max(self.finished, end)
        if end <= first:
            return
        if self.high and rows[1]:
            yield Write(first, end, self.levels, self.rows.received(rows), "finished")
        if self.low and rows[1]:
            yield Read(first, end, self.rows.sent(rows), "finished", self.levels)

    def _write_to(self, end: int) -> Iterator[Action]:
        z0 = self.written
        if end <= z0:
            return
        self.written = end
        yield from self._check(z0, end, self.stairs.finished_rows, "target")
        yield Write(z0, end, self.levels, self.final_rows)
        yield from (Write(z0, end, parity, rows, "fringes") for parity, rows in self.fringes_after)

    def _rows(self, places: tuple[int, int]) -> Rectangle:
        return self.rows.cells(*self.block.cut.cells(places))


def has_rows(problem: Problem, region: UpdateRegion, levels: int) -> bool:
    """Return True if a region has updated rows at any of the levels 1 to `levels`."""
    low, high = region.y_low, region.y_high
    return any(
        max(problem.first_row, low.at(level)) < min(problem.end_row, high.at(level)) for level in range(1, levels + 1)
    )


def smallest_block(problem: Problem, levels: int) -> int:
    """Return the minimum number of rows of a block. With smaller blocks, the first block of one rank could have more
    rows than the first block of another rank."""
    return 2 * problem.radius_y * (levels + 1) + problem.row_group


def make_pass(problem: Problem, levels: int, sizes: Sizes) -> Pass:
    """Make the actions of one pass of a rank."""
    cut = SplitRows(problem, levels).blocks(sizes.block_y)
    # The ranks of a ring can have different numbers of blocks. If ranks then exchanged rows of their last blocks while
    # they update their first blocks, all ranks of the ring could wait for each other.
    fits = problem.planes >= max(ring_planes(problem, levels, sizes.slab, cut.count, FAR)[:2])
    is_linked = fits and not problem.is_ring
    streams = [_SplitStream(problem, levels, block, is_linked) for block in cut.blocks]
    actions: list[Action] = []
    for stream, following in zip(streams, [*streams[1:], None], strict=True):
        actions += stream.actions(sizes.slab, following)
    fringe_rows = max(end - first for block in cut.blocks for first, end in map(block.fringe, (0, 1)))
    return Pass(levels, sizes.slab, window(problem, levels, sizes), (*actions, Commit()), fringe_rows)


def max_levels(problem: Problem) -> int:
    """Return the maximum number of levels of a pass. The maximum is a multiple of the number of levels in a step. For L
    levels with the radius r, a rank needs 2rL rows."""
    if not problem.radius_y:
        return FAR
    return problem.max_halo // (2 * problem.radius_y * problem.stages) * problem.stages


def window(problem: Problem, levels: int, sizes: Sizes) -> Window:
    """Return the window for passes of `levels` levels. No ring has more slots than the grid has planes."""
    return windows(problem, levels, sizes)(sizes.slab)


def windows(problem: Problem, levels: int, sizes: Sizes) -> Callable[[int], Window]:
    """Return a function that takes the number of planes of a slab and returns the window. `sizes.slab` is not used."""
    cut = SplitRows(problem, levels).blocks(sizes.block_y)
    slot = slot_bytes(problem, Rectangle(0, cut.max_frame, 0, problem.pitch_cells))
    return lambda slab: make_window(problem, ring_planes(problem, levels, slab, cut.count), slot)


def ring_planes(problem: Problem, levels: int, slab: int, blocks: int = 1, most: int = 0) -> tuple[int, int, int]:
    """Return the numbers of slots in the rings of first copies, second copies and static fields. No ring has more than
    `most` slots. By default, `most` is the number of planes of the grid."""
    skew, beside, most = problem.skew_z, problem.statics_z, most or problem.planes
    reach = skew * levels
    static = 3 * slab + max(skew * (levels - 1) + 2 * beside, problem.first_plane + beside)
    latest = 3 * slab + reach + max(slab, skew)
    if blocks > 1:
        even = odd = latest + skew
    elif not problem.plain:
        even = odd = latest
    elif levels % 2 == 0:
        even, odd = latest, 2 * slab + reach
    else:
        even, odd = 3 * slab + reach + skew, 3 * slab + reach + max(slab - skew, 0)
    return min(even, most), min(odd, most), min(static, most)


def candidates(problem: Problem, budget_bytes: int, given: GivenSizes = FREE) -> Iterable[Sizes]:
    """Yield the candidates for each number of passes that is worth trying. Some candidates divide the rows into blocks,
    and some do not. For each number of levels, the candidates have the thickest slab that fits the memory, and some
    thinner slabs."""
    for levels in given.levels(problem, levels_worth_trying(problem, max_levels(problem))):
        most = max(1, problem.end_plane - problem.first_plane + problem.skew_z * (levels - 1))
        for block_y in given.or_any("by", block_sizes(problem, levels, smallest_block(problem, levels))):
            sizes = Sizes(levels, 1, diamond=0, block_y=block_y)
            cut = SplitRows(problem, levels).blocks(block_y)
            if not has_given_blocks(problem, given, cut):
                continue
            sizes = replace(sizes, block_y=block_y if cut.count > 1 else 0)
            of_slab = windows(problem, levels, sizes)
            thickest = largest_within(lambda slab, of_slab=of_slab: of_slab(slab).bytes, most, budget_bytes)  # type: ignore[misc]
            for slab in given.or_any("slab", [*(slab for slab in SLABS if slab < thickest), thickest]):
                if slab >= 1 and of_slab(slab).bytes <= budget_bytes:
                    yield replace(sizes, slab=slab)


def smallest_window(problem: Problem, given: GivenSizes = FREE) -> Window:
    """Return the smallest window for passes of one step in slabs of one plane. The function tries all numbers of
    blocks. If the user has given a size, only this size is tried."""
    (levels,), (slab,) = given.levels(problem, (problem.stages,)), given.or_any("slab", (1,))
    tried = given.or_any("by", block_sizes(problem, levels, smallest_block(problem, levels)))
    sizes = (Sizes(levels, slab, 0, block_y=one) for one in tried)
    return min((window(problem, levels, one) for one in sizes), key=lambda window: window.bytes)


def volume(problem: Problem, sizes: Sizes) -> Volume:
    """Estimate the work of a pass: 2/L + 4r/by words per cell and step, for L levels, the radius r and blocks of `by`
    rows. No cell is updated twice. A rank sends approximately 2rL rows of each field to its lower neighbour, and rL
    rows to its upper neighbour."""
    levels, rows, arrays = sizes.levels, SplitRows(problem, sizes.levels), problem.state_arrays
    planes, inside = problem.planes, problem.end_plane - problem.first_plane
    cut, group, radius = rows.blocks(sizes.block_y), problem.row_group, problem.radius_y
    blocks, copies = cut.count, problem.rings - problem.statics
    fringes = (blocks - 1) * copies * (radius * levels + group - 1) * problem.pitch_bytes * planes
    moved = problem.grid_bytes * arrays + fringes
    again = (blocks - 1) * (radius * (levels + 1) + group - 1) / problem.shape[1]
    statics = problem.grid_bytes * problem.statics * (1 + again)
    exposed = 2 * min(planes, sizes.slab) * min(problem.shape[1], cut.max_frame) * problem.pitch_bytes * arrays
    slabs_of_pass = blocks * -(-(planes + problem.skew_z * levels) // sizes.slab)
    stairs, finished, ways = rows.stairs, rows.stairs.finished_rows[1], sum(problem.neighbours)
    sent, requests = 0, planes * arrays * (2.0 * blocks + 4 * (blocks - 1))
    if problem.radius_y:
        each = [(end - first, len(stairs.fields(level))) for level in range(1, levels)
                for first, end in [stairs.rows(level)]]  # fmt: skip
        low = planes * (stairs.rows(0)[1] * arrays + stairs.rim_rows[1] * problem.statics)
        low += inside * sum(count * fields for count, fields in each)
        high = inside * finished * arrays
        sent = problem.pitch_bytes * max(low * rows.low + high * rows.high, low * rows.high + high * rows.low)
        messages = 2 * arrays + sum(fields for _, fields in each)
        requests += ways * planes * (messages / TOGETHER_MESSAGES + problem.statics)
    triangle = problem.planes * problem.shape[2] * problem.radius_y * (levels + 1) * levels / 2
    updates = problem.cells * levels + (rows.high - rows.low) * triangle
    updated = slabs_of_pass + slabs_of_pass // blocks * rows.has_triangle
    return Volume(moved + statics, moved, updates, exposed, updated, requests, sent)


SCHEME = Scheme(
    "split", window, make_pass, candidates, smallest_window, volume, ("bt", "by", "slab", "diamond"),
    has_halos=True, shared_levels=max_levels,
)  # fmt: skip
