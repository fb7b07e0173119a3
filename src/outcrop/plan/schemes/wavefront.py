"""The wavefront scheme. In each pass, the window moves once over the grid, slab by slab. Slabs are ranges of the skewed
coordinate zeta = z + r(level-1), where r is the radius. All levels of a slab are updated together.

    level
      L  |    \\  slab s-1 \\  slab s  \\              In zeta the slabs are rectangles: a slab reads only cells of
      :  |     \\           \\           \\             itself and of earlier slabs (Lamport's hyperplanes).
      1  |      \\___________\\___________\\____ z
         written ◄──┘                └──► read ahead while slab s is updated

While the slab [zeta0, zeta1) of b planes is updated, the window holds the planes in the following table. The last level
needs the lowest planes of the window, and the highest planes are read ahead for the next slab. A plane that is being
written keeps its slot until a read needs the slot:

    even ring   zeta0 - r(L-1) [- r, L odd]  ..  zeta1 + b + r - 1         2b + rL  [+ r, L odd]
    odd ring    zeta0 - rL                   ..  zeta1 - 1                  b + rL  [+ b - r, L odd, for writes]

If L is odd, the rings need the additional planes in brackets. So an even number of levels needs less memory than an odd
number. With one level, the odd ring must also hold the lower rim and the first slab. If a step has several stages, or
if the state has previous values, the even ring and the odd ring both have 2b + r(L+2) planes. The ring of a static
field holds the planes in the next table. The planes in brackets are needed only if updates read static fields at
neighbouring cells:

    static      zeta0 - r(L-1) [- r, read at neighbours]  ..  zeta1 + b [+ r] - 1       2b + r(L-1) [+ 2r]

The ring of a static field holds at least the lower rim and the first two slabs. With the sizes in these tables, each
read for the next slab waits for exactly one write of the previous slab. This write frees the slots that the read needs.
The read and the write take place during the update of the current slab. Each plane is read once and written once, so a
pass moves 2/L words per cell and step.

If memory does not hold enough planes, y is divided into k skewed blocks, which move by r rows per level
(skewed_cut.py). With k blocks, the window moves over the grid k times. A block writes some rows to the array `fringes`,
and the next block continues from these rows. With blocks of `by` rows, a pass moves 4r/by more words per cell and step,
but memory can hold approximately k times as many planes. Fringes are also read ahead into the odd ring, so the odd ring
needs as many planes as the even ring. In the rings, plane z of block i has the number z + i nz. So the first planes of
the next block can be read before the current block ends.

If a pass computes states again (history.py), each recomputed state has a separate field. Some levels of the pass write
the field of a recomputed state, and later levels read this field. Each block writes rows of the field to the array
`recomputed`: the rows that the next block needs. Let n be the number of levels from the first level that writes the
field to the last level that reads the field. The next block then needs r n rows of the field, where r is the radius. If
a pass computes k steps again, the next block needs approximately r k^2 rows of all fields together. So the pass moves 2
r k^2/by more words per cell.

If the grid is divided along y, a rank gets rows of its neighbours together with its own rows (deep_halo.py). If the
grid is divided along z, a rank gets planes of its neighbours before and after its own planes (deep_halo.py).

The naive scheme serves for comparison. The naive scheme is a wavefront with passes of one step, so it has no temporal
blocking.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, product

from outcrop.plan import placement
from outcrop.plan.actions import (
    EVERY_CELL,
    EVERYTHING,
    FAR,
    Action,
    Block,
    Commit,
    Copy,
    Read,
    Rectangle,
    Update,
    Write,
    round_up,
)
from outcrop.plan.cost import updates_below
from outcrop.plan.given_sizes import FREE, GivenSizes
from outcrop.plan.history import fields_read
from outcrop.plan.memory import (
    Window,
    largest_within,
    make_window,
    max_ring_planes,
    planes_sent_at_once,
    slot_bytes,
    undivided_slot_bytes,
    whole_window,
)
from outcrop.plan.plan import Pass, Scheme, Sizes, Volume
from outcrop.plan.problem import Problem
from outcrop.plan.schemes.deep_halo import (
    DeepHalo,
    HaloPlanes,
    bounded,
    halo_blocks,
    has_given_blocks,
    own_cells,
    own_part,
    smallest_block,
    updated,
    zetas_of_pass,
)
from outcrop.plan.schemes.skewed_cut import SkewedBlock, SkewedCut, cut_axis


def blocks_in_y(problem: Problem, levels: int, sizes: Sizes) -> SkewedCut:
    """Return the blocks into which y is divided. If `sizes` has no `block_y`, y is one block."""
    if problem.is_part:
        return halo_blocks(problem, levels, sizes.block_y)
    rows, radius, lead = problem.shape[1], problem.radius_y, _lead(problem, levels)
    joint = not problem.plain
    return cut_axis(rows, radius, radius, levels, sizes.block_y, problem.row_group, lead, joint, problem.lead + 1)


def _lead(problem: Problem, levels: int) -> int:
    """Return the maximum number of additional rows of the first block. The first block can be larger than the other
    blocks, because the first block takes over no fringe."""
    return problem.radius_y * (levels - 1)


def window(problem: Problem, levels: int, sizes: Sizes) -> Window:
    """Return the window for passes of `levels` levels. No ring has more slots than the grid has planes."""
    return windows(problem, levels, sizes)(sizes.slab)


def windows(problem: Problem, levels: int, sizes: Sizes) -> Callable[[int], Window]:
    """Return a function that takes the number of planes of a slab and returns the window. `sizes.slab` is not used."""
    cut = blocks_in_y(problem, levels, sizes)
    rounding = problem.row_group - 1 if problem.is_part else 0
    frame = Rectangle(0, cut.max_frame + rounding, 0, problem.pitch_cells)
    slot = undivided_slot_bytes(problem, levels) if cut.count == 1 else slot_bytes(problem, frame)

    def of_slab(slab: int) -> Window:
        planes = ring_planes(problem, levels, slab, cut.count)
        history = history_planes(problem, slab, cut.count)
        return make_window(problem, planes, slot, sizes.keeps_statics, history)

    return of_slab


def smallest_window(problem: Problem, given: GivenSizes = FREE) -> Window:
    """Return the smallest window for passes of one step in slabs of one plane. The function tries all numbers of
    blocks. If the user has given a size, only this size is tried."""
    (levels,), (slab,) = given.levels(problem, (problem.stages,)), given.or_any("slab", (1,))
    shares = given.or_any("by", block_sizes(problem, levels, smallest_block(problem, levels)))
    sizes = (Sizes(levels, slab, diamond=0, block_y=block_y) for block_y in shares)
    return min((window(problem, levels, one) for one in sizes), key=lambda window: window.bytes)


def ring_planes(problem: Problem, levels: int, slab: int, blocks: int = 1) -> tuple[int, int, int]:
    """Return the numbers of slots in the rings of first copies, second copies and static fields. A slab has `slab`
    planes."""
    skew, beside = problem.skew_z, problem.statics_z
    first = problem.radius_z if problem.neighbours_z[0] else problem.first_plane
    static = 2 * slab + max(skew * (levels - 1) + 2 * beside, first + beside)
    levels -= problem.lead  # the levels of the lead (the steps that the pass computes again) do not use the state
    reach = skew * levels
    if blocks > 1 or not problem.plain:
        even = odd = _max_ring_planes(problem, levels, slab)
    elif levels % 2 == 0:
        even, odd = 2 * slab + reach, slab + reach
    else:
        even, odd = 2 * slab + reach + skew, slab + max(slab + reach - skew, problem.radius_z)
    sent, most = planes_sent_at_once(problem, levels, slab), max_ring_planes(problem, levels, slab)
    return min(even + sent, most), min(odd + sent, most), min(static + sent, most)


def history_planes(problem: Problem, slab: int, blocks: int = 1) -> tuple[int, ...]:
    """Return the number of slots of each ring that holds a value of the forward run, for slabs of `slab` planes. Values
    from the history are read one slab ahead. With several blocks, rows of recomputed values are also read one slab
    ahead. Only a few levels use a state of a history, so the ring of a state is shorter than other rings."""
    if not problem.has_values:
        return ()
    first, planes = problem.first_plane + problem.skew_z, problem.planes
    values = [one for one in problem.fields if one.history]
    computed = slab if blocks == 1 else 2 * slab
    used = [(computed if one.follows >= 0 else 2 * slab) + max(one.ahead + one.behind, first) for one in values]
    return tuple([min(one, planes) for one in used])


def _max_ring_planes(problem: Problem, levels: int, slab: int) -> int:
    return 2 * slab + problem.skew_z * (levels + 2)


def slabs(problem: Problem, levels: int, slab: int) -> list[tuple[int, int]]:
    """Return the slabs of one pass as half open ranges of zeta, in ascending order. Return an empty list if no cell is
    updated."""
    begin, end = zetas_of_pass(problem, levels)
    if not problem.has_updates:
        return []
    return [(zeta, min(zeta + slab, end)) for zeta in range(begin, end, slab)]


def has_updates(problem: Problem, levels: int, zeta: int) -> bool:
    """Return True if any level updates a plane at `zeta`. The result can be false only if the number of updated planes
    is less than the skew."""
    if problem.end_plane - problem.first_plane >= problem.skew_z:
        return True
    return updates_below(problem, levels, zeta + 1) > updates_below(problem, levels, zeta)


def make_pass(problem: Problem, levels: int, sizes: Sizes) -> Pass:
    """Make the actions of one pass. For each block and each slab, the actions read one slab ahead, update the slab, and
    write the planes that are complete."""
    cut = blocks_in_y(problem, levels, sizes)
    is_linked = linked(problem, levels, sizes.slab)
    streams = [_Stream(problem, levels, sizes, block, is_linked) for block in cut.blocks]
    actions: list[Action] = []
    for stream, following in zip(streams, [*streams[1:], None], strict=True):
        actions += stream.actions(sizes.slab, following)
    actions.append(Commit())
    fringe_rows = max(end - first for block in cut.blocks for first, end in map(block.fringe, (0, 1)))
    reaches = (recomputed_reaches(problem, number) for number in problem.computed)
    recomputed_rows = (max(end - first for first, end in (block.beside_cut(*one) for block in cut.blocks))
                       for one in reaches)  # fmt: skip
    slots = window(problem, levels, sizes)
    return Pass(levels, sizes.slab, slots, tuple(actions), fringe_rows, recomputed_rows=tuple(recomputed_rows))


def recomputed_reaches(problem: Problem, number: int) -> tuple[int, int]:
    """Return the arguments with which `SkewedBlock.beside_cut` returns the rows of field `number` that a block takes
    over. Some levels of the pass write this field. If the first values of the field are read from the history, the
    returned rows include all rows that the levels of the previous block read."""
    one, skew = problem.fields[number], problem.skew_z
    return one.behind // skew, one.ahead // skew


def linked(problem: Problem, levels: int, slab: int) -> bool:
    """Return True if planes of the next block can be read before the current block ends. If the rings need more planes
    than the grid has, the result is False."""
    return problem.planes >= _max_ring_planes(problem, levels, slab)


class _Values:
    """The progress of one kind of action (read, copy or write) on some fields: the planes of each field that are done.
    For each field, `ahead` gives the number of planes by which the action is ahead of the end of a slab."""

    def __init__(self, planes: int, ahead: list[int]) -> None:
        self._planes, self._ahead = planes, ahead
        self._done = [0] * len(self._ahead)
        # Each level computes its values later than the previous level, so only a few fields are active at the same
        # time.
        self._by_time = sorted(range(len(self._ahead)), key=lambda number: -self._ahead[number])
        self._active = slice(0, 0)

    def to(self, zeta: int) -> Iterator[tuple[int, int, int]]:
        """For each field with new planes, yield three numbers: the number of the field, z0 and z1. The planes z0 <= z <
        z1 are the new planes, which were not yielded before. The end z1 is `zeta` plus the distance `ahead` of the
        field."""
        planes, done, first, last = self._planes, self._done, self._active.start, self._active.stop
        while first < last and done[self._by_time[first]] == planes:
            first += 1
        while last < len(done) and zeta + self._ahead[self._by_time[last]] > 0:
            last += 1
        self._active = slice(first, last)
        for number in self._by_time[first:last]:
            if (end := min(zeta + self._ahead[number], planes)) > done[number]:
                yield number, done[number], end
                done[number] = end


class _Stream:
    """Makes the actions of one block, for all planes. If `is_linked` is true, planes of this block and of the next
    block can be in a ring at the same time. If `sizes.keeps_statics` is true, the first block reads the static fields
    for all blocks."""

    def __init__(self, problem: Problem, levels: int, sizes: Sizes, block: SkewedBlock, is_linked: bool) -> None:
        self.problem, self.levels, self.block, self.is_linked = problem, levels, block, is_linked
        keeps_statics = sizes.keeps_statics
        self.frame = problem.frame_of(block.cut.cells(block.frame()))
        self.static_rows = own_part(problem, block.cut, block.frame())
        if keeps_statics:
            self.static_rows = problem.whole_plane if block.is_first else Rectangle(0, 0, 0, 0)
        self.halo = DeepHalo(problem, levels) if problem.is_part else None
        assert not (self.halo and keeps_statics), "a part of a grid keeps no static fields in memory"
        self.region, own = EVERYTHING, EVERY_CELL
        if self.halo is not None:
            self.region, own = bounded(block, self.halo.region), own_cells(problem, block)
        elif block.cut.count > 1:
            self.region = bounded(block, EVERYTHING)
            own = Rectangle(*block.own(), EVERY_CELL.x0, EVERY_CELL.x1)
        self.begin = Block(self.frame, own=own, shift=is_linked * block.number * problem.planes)
        # The rows are the same for all planes, so they are computed only once.
        below = block.left_below((levels - problem.lead) % 2)
        self.state_rows, self.final_rows = (own_part(problem, block.cut, one) for one in (block.body(0), below))
        self.rim_rows = self._rows(block.body(1))
        self.fringes_before, self.fringes_after = (
            [(parity, rows) for parity in (0, 1) if (rows := self._rows(fringe(parity))).cells]
            for fringe in (block.fringe, block.next_fringe)
        )
        self.read = self.statics_read = self.copied = self.written = 0
        self.end, self.halo_planes = problem.planes, None
        if problem.is_part_z:  # the shift ensures that z + shift is at least 0 for each plane z
            shift = problem.halo_z(levels)[0] + problem.skew_z
            self.begin = replace(self.begin, own_z0=0, own_z1=problem.planes, shift=shift)
            self.halo_planes = HaloPlanes(problem, levels, sizes.slab, self.begin, block)
            self.copied, self.end = self.halo_planes.planes
        read = fields_read(problem, levels)
        self.histories = [one for one in problem.fields if one.is_history]
        planes, fields, computed = problem.planes, problem.fields, problem.computed
        last_levels = {one: level for level, stage in enumerate(problem.updates, 1) for one in stage.targets}
        self.values_read = _Values(planes, [fields[one].ahead for one in computed])
        self.values_copied = _Values(planes, [fields[one].ahead for one in problem.recomputed])
        self.values_written = _Values(planes, [-problem.skew_z * (last_levels[one] - 1) for one in computed])
        reaches = {one: recomputed_reaches(problem, one) for one in computed}
        self.rows_before = [self._rows(block.beside_cut(*reaches[one])) for one in computed]
        self.rows_after = [self._rows(block.next_beside_cut(*reaches[one])) for one in computed]
        bodies = {one: self._rows((block.beside_cut(*reaches[one])[1], block.next_beside_cut(*reaches[one])[1]))
                  for one in computed}  # fmt: skip
        self.copied_rows = [bodies[one] for one in problem.recomputed]
        self.history_rows = [bodies.get(number, self.frame) for number, one in enumerate(fields) if one.is_history]
        self.history_read = [0 if number in read else planes for number, one in enumerate(fields) if one.is_history]

    def actions(self, slab: int, following: _Stream | None) -> Iterator[Action]:
        """Yield all actions of the block except the commit. Also yield the first reads of the block `following`."""
        problem, levels, skew = self.problem, self.levels, self.problem.skew_z
        if self.block.cut.count > 1 or (self.halo is not None and self.halo_planes is None):
            yield self.begin
        for zeta0, zeta1 in slabs(problem, levels, slab):
            yield from self._read_to(zeta1 + slab)
            yield from self._read_values_to(zeta1 + slab)
            if following is not None and self.is_linked:
                # Only planes for the first two slabs of the next block are read, because the rings of a history hold no
                # more planes.
                zeta, first_slabs = zeta1 + slab - problem.planes, problem.first_plane + 2 * slab
                ahead = [*following._read_to(zeta, first_slabs)]
                ahead += following._read_values_to(min(zeta, first_slabs))
                yield from (following.begin, *ahead, self.begin) if ahead else ()
            yield from self._copy_to(zeta1 - problem.lead_planes)
            for number, z0, z1 in self.values_copied.to(zeta1):
                yield Copy(z0, z1, self.copied_rows[number], recomputed=number)
            zetas = [zeta for zeta in range(zeta0, zeta1) if has_updates(problem, levels, zeta)]
            if zetas:  # a slab may have no updates if the grid has fewer planes than the skew
                yield Update(zetas[0], zetas[-1] + 1, levels, updated(problem, levels, self.region, zetas[0]))
            yield from self._write_values_to(zeta1)
            yield from self._write_to(min(problem.own_planes[1], zeta1 - skew * (levels - 1)))
        # The remaining planes belong to the rim, and no update has read them. If no cell is updated, all planes remain.
        for z in range(self.written, problem.planes, slab):
            end = min(problem.planes, z + slab)
            yield from self._read_to(end + problem.lead_planes, end)
            yield from self._read_histories_to([end] * len(self.histories))
            yield from self._copy_to(end)
            yield from self._write_to(end)
        if self.halo_planes is not None:
            yield from self.halo_planes.finish()

    def _read_to(self, zeta: int, max_zeta_history: int = FAR) -> Iterator[Action]:
        """Yield the reads of all planes that are needed for the updates below `zeta`. From a history, yield only the
        reads for updates below `max_zeta_history`."""
        if self.halo_planes is not None:
            yield from self.halo_planes.to(zeta + self.problem.skew_z, zeta + self.problem.statics_z)
            return
        read, statics_read = self.read, self.statics_read
        yield from self._read_state_to(zeta + self.problem.skew_z - self.problem.lead_planes)
        z0, z1 = self.statics_read, min(zeta + self.problem.statics_z, self.problem.planes)
        if z1 > z0:
            self.statics_read = z1
            if self.problem.statics and self.static_rows.cells:
                yield Read(z0, z1, self.static_rows, "statics")
        if self.halo is not None:
            yield from self.halo.exchanges((read, self.read), (statics_read, self.statics_read), self.block)
        yield from self._read_histories_to([min(zeta, max_zeta_history) + one.ahead for one in self.histories])

    def _read_histories_to(self, ends: Sequence[int]) -> Iterator[Action]:
        """For each field of the history, yield the read of its new planes below the field's end in `ends`."""
        done, planes = self.history_read, self.problem.planes
        for number, end in enumerate(ends):
            z0, z1 = done[number], min(end, planes)
            if z1 > z0:
                done[number] = z1
                if self.history_rows[number].cells:
                    yield Read(z0, z1, self.history_rows[number], "history", number)

    def _read_state_to(self, end: int) -> Iterator[Action]:
        z0, z1 = self.read, min(end, self.problem.planes)
        if z1 <= z0:
            return
        self.read = z1
        yield Read(z0, z1, self.state_rows)
        yield from (Read(z0, z1, rows, "fringes", parity) for parity, rows in self.fringes_before)

    def _read_values_to(self, zeta: int) -> Iterator[Action]:
        """Yield the reads of the rows that this block takes over. The rows that a block takes over belong to fields
        that levels of the pass write."""
        for number, z0, z1 in () if self.block.is_first else self.values_read.to(zeta):
            if self.rows_before[number].cells:
                yield Read(z0, z1, self.rows_before[number], "recomputed", number)

    def _write_values_to(self, zeta: int) -> Iterator[Action]:
        """Yield the writes of rows that the next block takes over. The rows do not change after the last level that
        writes the field."""
        for number, z0, z1 in () if self.block.is_last else self.values_written.to(zeta):
            if self.rows_after[number].cells:
                yield Write(z0, z1, number, self.rows_after[number], "recomputed")

    def _copy_to(self, end: int) -> Iterator[Action]:
        if (end := min(end, self.end)) > self.copied:
            own = EVERY_CELL if self.halo is None else self.halo.own
            yield Copy(self.copied, end, self.rim_rows, own)
            self.copied = end

    def _write_to(self, end: int) -> Iterator[Action]:
        z0 = self.written
        if end <= z0:
            return
        self.written = end
        yield Write(z0, end, self.levels, self.final_rows)
        yield from (Write(z0, end, parity, rows, "fringes") for parity, rows in self.fringes_after)

    def _rows(self, places: tuple[int, int]) -> Rectangle:
        return Rectangle(*self.block.cut.cells(places), 0, self.problem.pitch_cells)


SLABS = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
MIN_SLAB_OF_LEAD = 2
"""If passes compute states again, the tuner stops dividing y when slabs of this number of planes fit the memory. The
reason is that each block moves a few rows of each recomputed value. Many of these transfers are small, and take longer
than predicted."""
MAX_BLOCKS = 12
"""The largest number of blocks in y that the tuner tries. With more blocks, the transfers of fringes would cost more
than the larger window saves."""
WHOLE_GRID_PASSES = 4
"""If memory holds the whole grid, the tuner tries this number of different values for the levels of a pass."""
WHOLE_GRID_SLAB_BYTES = 16 << 20
"""If memory holds the whole grid, the tuner tries slabs of at least this size. The transfers of a slab of this size
take much longer than the fixed costs of a slab."""


def candidates(problem: Problem, budget_bytes: int, given: GivenSizes = FREE) -> Iterable[Sizes]:
    """Yield the candidates for each number of passes that is worth trying. For n passes, each pass has the minimum
    number of levels with which n passes complete the run. For each number of levels, the candidates have the thickest
    slab that fits the memory, and some thinner slabs. With thinner slabs, fewer planes are read before the first
    update, and fewer planes are written after the last update. Some candidates have whole planes, and some have blocks.

    If memory holds the whole grid, the function yields only a few candidates. All these candidates have whole planes.
    """
    if not given and not problem.histories and whole_window(problem).bytes <= budget_bytes:
        yield from _whole_grid_candidates(problem)
        return
    tried = given.levels(problem, levels_worth_trying(problem))
    for levels, keeps in product(tried, placement.possible(problem, budget_bytes)):
        for block_y in given.or_any("by", block_sizes(problem, levels, smallest_block(problem, levels))):
            sizes = Sizes(levels, 1, diamond=0, block_y=block_y, keeps_statics=keeps)
            cut = blocks_in_y(problem, levels, sizes)
            if not has_given_blocks(problem, given, cut):
                continue
            if problem.is_part and cut.count == 1:
                sizes = replace(sizes, block_y=0)
            of_slab = windows(problem, levels, sizes)
            thickest = thickest_slab(problem, levels, sizes, budget_bytes)
            slabs = given.or_any("slab", [*(slab for slab in SLABS if slab < thickest), thickest])
            fitting = (slab for slab in slabs if slab >= 1 and of_slab(slab).bytes <= budget_bytes)
            yield from (replace(sizes, slab=slab) for slab in fitting)
            if problem.lead and thickest >= MIN_SLAB_OF_LEAD:
                break


def _whole_grid_candidates(problem: Problem) -> Iterator[Sizes]:
    """Yield candidates for a grid that fits into memory. The first candidate has one pass in one slab. The first
    candidate reads all planes, then updates all planes, then writes all planes. The other candidates have one or a few
    passes in several slabs, so that transfers take place during updates. Candidates with even thinner slabs are left
    out, because even thinner slabs cost more time than they save."""
    levels, keeps = _most_levels(problem), not problem.is_part
    yield Sizes(levels, _zetas(problem, levels), diamond=0, keeps_statics=keeps)
    thicker = max(1, -(-WHOLE_GRID_SLAB_BYTES // (SLABS[0] * problem.record_bytes * problem.state_arrays)))
    for levels in islice(levels_worth_trying(problem), WHOLE_GRID_PASSES):
        slabs = (thicker * slab for slab in SLABS if thicker * slab < _zetas(problem, levels))
        yield from (Sizes(levels, slab, diamond=0, keeps_statics=keeps) for slab in slabs)


def _most_levels(problem: Problem) -> int:
    """Return the maximum number of levels of a pass. If the grid is divided among ranks, the halos limit the number of
    levels, and the passes have almost equal numbers of levels."""
    return problem.levels if problem.levels <= problem.max_levels else next(levels_worth_trying(problem))


def volume(problem: Problem, sizes: Sizes) -> Volume:
    """Estimate the work of a pass: 2/L + 4r/by words per cell and step, for L levels, the radius r and blocks of `by`
    rows. A rank with neighbours at both sides also exchanges 2rL rows of each plane. At each level of each plane, the
    rank updates on average r(L-1) rows that its neighbours also update. If the grid is divided along z, the same
    numbers hold for planes. A rank exchanges 2rL planes, and updates on average r(L-1) planes that its neighbours also
    update. The rank reads each sent plane twice."""
    rows = problem.shape[1]
    arrays, copies = problem.state_arrays, problem.rings - problem.statics - problem.histories - len(problem.recomputed)
    cut = blocks_in_y(problem, sizes.levels, sizes)
    blocks = cut.count
    reaches = [sum(recomputed_reaches(problem, one)) for one in problem.computed]
    fringe_rows = problem.radius_y * (copies * (sizes.levels - problem.lead) + sum(reaches))
    fringe_rows += (problem.row_group - 1) * (copies + len(reaches))
    fringes = (blocks - 1) * fringe_rows * problem.pitch_bytes * problem.planes
    frame = cut.max_frame
    moved = problem.grid_bytes * arrays + fringes
    passes = -(-problem.levels // sizes.levels)
    # Each block reads the static rows below its cut again, although the previous block has read them. Rows of values
    # that levels of the pass write are not read again.
    again = (blocks - 1) * (problem.radius_y * (sizes.levels + 1) + problem.row_group - 1) / rows
    statics = problem.grid_bytes * problem.statics * (1 / passes if sizes.keeps_statics else 1 + again)
    drained = 1 if linked(problem, sizes.levels, sizes.slab) else blocks
    exposed = 2 * drained * min(problem.planes, sizes.slab) * frame * problem.pitch_bytes * arrays
    slabs = blocks * -(-(problem.planes + problem.skew_z * sizes.levels) // sizes.slab)
    requests = problem.planes * arrays * (2 * blocks + 4 * (blocks - 1))
    requests += 2 * (blocks - 1) * problem.planes * len(reaches)
    histories = [one for one in map(problem.fields.__getitem__, fields_read(problem, sizes.levels)) if one.is_history]
    history = sum(1 + again * one.is_static for one in histories) * problem.history_bytes
    halo, halo_z = sum(problem.halo(sizes.levels)), sum(problem.halo_z(sizes.levels))
    exchanged, planes = arrays + problem.statics, problem.planes + halo_z
    sent = (halo * problem.pitch_bytes * planes + halo_z * problem.plane_bytes) * exchanged
    requests += 2 * sum(problem.neighbours) * planes * exchanged if halo else 0
    requests += 3 * halo_z * exchanged
    again_z = halo_z * problem.record_bytes * exchanged  # planes that are read only to be sent
    updates = planes * problem.shape[2] * halo * (sizes.levels - 1) / 2
    updates += (problem.planes * sizes.levels + halo_z * (sizes.levels - 1) / 2) * rows * problem.shape[2]
    return Volume(moved + statics + history + again_z, moved, updates, exposed, slabs, requests, sent)


def levels_worth_trying(problem: Problem, max_levels: int | None = None) -> Iterator[int]:
    """Yield numbers of levels of a pass. The n-th number is the smallest number of levels with which n passes complete
    the run. If possible, a pass has an even number of steps, because an even number of levels needs less memory than an
    odd number. If the grid is divided among ranks, more passes can be necessary, because halos limit the number of
    levels. Some schemes allow only `max_levels` levels."""
    most = (problem.max_levels if max_levels is None else max_levels) // problem.stages
    return (problem.stages * steps for steps in _steps_worth_trying(problem.steps, most))


def _steps_worth_trying(steps: int, most: int) -> Iterator[int]:
    seen: set[int] = set()
    passes = -(-steps // most)
    while passes <= steps:
        levels = -(-steps // passes)
        if levels > 1 and levels % 2:
            levels += 1 if levels < min(steps, most) else 0
        if levels not in seen:
            seen.add(levels)
            yield levels
        if levels == 1:
            break
        passes = max(passes + 1, -(-steps // (levels - 1)))


def block_sizes(problem: Problem, levels: int, smallest: int = 0) -> Iterator[int]:
    """Yield numbers of rows of a block. The first number is 0, which means that y is not divided. The next numbers are
    a half of all rows, a third, and so on. Each number is larger than the rows of the fringe, and at least `smallest`.
    A periodic y is not divided.

    With blocks smaller than `smallest`, the blocks at the two sides of a cut between ranks could differ in their
    numbers of rows. If the blocks at the two sides of a cut differ, one of the two ranks waits for the other rank."""
    yield 0
    if problem.periodic[1] or not problem.block_order:
        return
    interior = problem.shape[1] + sum(problem.halo(levels)) - 2 * problem.radius_y
    for count in range(2, MAX_BLOCKS + 1):
        rows = -(-(interior - _lead(problem, levels)) // count)
        if problem.is_part:  # all ranks have this size, so it must be a size that a user may give
            rows = round_up(rows, problem.row_group)
        if rows <= problem.radius_y * levels or rows < max(2 * problem.row_group, smallest):
            return
        yield rows


def _zetas(problem: Problem, levels: int) -> int:
    """Return the number of values of zeta at which a pass updates planes, or 1 if the pass updates no planes. No slab
    has more planes than this number. If the planes are divided among ranks, return a number that is equal for all
    ranks, because all ranks have equal slabs."""
    if problem.is_part_z:
        return max(1, problem.max_halo_z)
    first, end = zetas_of_pass(problem, levels)
    return max(1, end - first)


def thickest_slab(problem: Problem, levels: int, sizes: Sizes, budget_bytes: int) -> int:
    """Return the number of planes of the thickest slab whose window fits the budget. The result is at most `_zetas`.
    Return 0 if no slab fits."""
    of_slab = windows(problem, levels, sizes)
    return largest_within(lambda slab: of_slab(slab).bytes, _zetas(problem, levels), budget_bytes)


SIZES = ("bt", "by", "slab", "diamond")
SCHEME = Scheme(
    "wavefront", window, make_pass, candidates, smallest_window, volume, SIZES, keeps_statics=True,
    reads_histories=True, has_halos=True,
)  # fmt: skip


def _naive_candidates(problem: Problem, budget_bytes: int, given: GivenSizes = FREE) -> Iterable[Sizes]:
    """Yield one candidate. If memory holds the whole grid, the candidate has one pass in one slab. If memory does not
    hold the whole grid, each pass has one step, and the slabs have the maximum thickness. Only ranks give sizes."""
    fits = whole_window(problem).bytes <= budget_bytes
    (levels,) = given.levels(problem, [_most_levels(problem) if fits else problem.stages])
    sizes = Sizes(levels, 1, diamond=0, keeps_statics=fits and not problem.is_part)
    thickest = thickest_slab(problem, levels, sizes, budget_bytes)
    yield from (replace(sizes, slab=slab) for slab in given.or_any("slab", [thickest]) if 1 <= slab <= thickest)


def _naive_smallest_window(problem: Problem, given: GivenSizes = FREE) -> Window:
    (levels,), (slab,) = given.levels(problem, [problem.stages]), given.or_any("slab", [1])
    return window(problem, levels, Sizes(levels, slab, diamond=0))


NAIVE = Scheme(
    "naive", window, make_pass, _naive_candidates, _naive_smallest_window, volume, sizes=(), sweeps=True, has_halos=True
)
