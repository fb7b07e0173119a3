"""Stream the grid once per pass; update all levels of a slab of the skewed coordinate zeta = z + r(level-1).

    level
      L  |    \\  slab s-1 \\  slab s  \\              In zeta the slabs are rectangles: all that a slab reads lies
      :  |     \\           \\           \\             in it or in earlier slabs (Lamport's hyperplanes).
      1  |      \\___________\\___________\\____ z
         written ◄──┘                └──► read ahead while slab s is updated

The window while slab [zeta0, zeta1) of b is updated. The lowest plane still needed is read by the highest
level; the highest is read ahead for the next slab; a plane that is being written keeps its slot until a read
waits for it:

    even ring   zeta0 - r(L-1) [- r, L odd]  ..  zeta1 + b + r - 1         2b + rL  [+ r, L odd]
    odd ring    zeta0 - rL                   ..  zeta1 - 1                  b + rL  [+ b - r, L odd: written from here]

(for one level the odd ring must also hold the lower rim beside the first slab), so an even number of levels
needs less. With these sizes each read of the next slab waits for exactly one write of the last one, and both
run while this slab is updated. Each plane is read once and written once: 2/L words per cell and step.
"""

from __future__ import annotations

from collections.abc import Iterable

from outcrop.plan.actions import Action, Commit, Copy, Read, Update, Write
from outcrop.plan.model import updates_below
from outcrop.plan.plan import Pass, Sizes
from outcrop.plan.problem import Problem
from outcrop.plan.schemes.scheme import Scheme


def ring_planes(problem: Problem, levels: int, slab: int) -> tuple[int, int]:
    """Slots of the even and odd ring for a pass of `levels` levels in slabs of `slab`; never more than the grid
    has planes."""
    reach = problem.skew * levels
    if levels % 2 == 0:
        even, odd = 2 * slab + reach, slab + reach
    else:
        even, odd = 2 * slab + reach + problem.skew, slab + max(slab + reach - problem.skew, problem.radius_z)
    return min(even, problem.planes), min(odd, problem.planes)


def slabs(problem: Problem, levels: int, slab: int) -> list[tuple[int, int]]:
    """The slabs of one pass as half open ranges of zeta, in ascending order; none when the rim is all there is."""
    begin, end = problem.first_plane, problem.end_plane + problem.skew * (levels - 1)
    if problem.first_plane == problem.end_plane:
        return []
    return [(zeta, min(zeta + slab, end)) for zeta in range(begin, end, slab)]


def has_updates(problem: Problem, levels: int, zeta: int) -> bool:
    """Whether any level updates a plane at `zeta`."""
    return updates_below(problem, levels, zeta + 1) > updates_below(problem, levels, zeta)


def make_pass(problem: Problem, levels: int, sizes: Sizes) -> Pass:
    """One pass: read ahead by a slab, update, write behind."""
    planes, skew = problem.planes, problem.skew
    actions: list[Action] = []
    read = copied = written = 0

    def read_to(end: int) -> None:
        nonlocal read
        if (end := min(end, planes)) > read:
            actions.append(Read(read, end))
            read = end

    ranges = slabs(problem, levels, sizes.slab)
    for index, (zeta0, zeta1) in enumerate(ranges):
        last = index == len(ranges) - 1
        read_to(zeta1 + skew)
        if not last:
            read_to(ranges[index + 1][1] + skew)
        if (copy_end := min(zeta1, planes)) > copied:
            actions.append(Copy(copied, copy_end))
            copied = copy_end
        zetas = [zeta for zeta in range(zeta0, zeta1) if has_updates(problem, levels, zeta)]
        if zetas:  # on grids with fewer planes than the skew some zetas, or whole slabs, hold nothing
            actions.append(Update(zetas[0], zetas[-1] + 1, levels))
        even = levels % 2 == 0
        write_end = planes if last and even else min(problem.end_plane, zeta1 - skew * (levels - 1))
        if write_end > written:
            actions.append(Write(written, write_end, levels))
            written = write_end
    # What is left is rim that no update has needed; without any update that is every plane.
    for z in range(written, planes, sizes.slab):
        end = min(planes, z + sizes.slab)
        read_to(end)
        if end > copied and levels % 2:
            actions.append(Copy(max(copied, z), end))
        actions.append(Write(z, end, levels))
    actions.append(Commit())
    return Pass(levels, sizes.slab, ring_planes(problem, levels, sizes.slab), tuple(actions))


SLABS = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)


def candidates(problem: Problem, slots: int) -> Iterable[Sizes]:
    """For each number of passes worth trying: the fewest levels that do it, with the thickest slab the memory
    then allows and some thinner ones, which leave less to read before the first update and to write after the
    last.

    Memory for the whole grid gives one slab and one pass.
    """
    if 2 * problem.planes <= slots:
        yield Sizes(problem.steps, thickest_slab(problem, problem.steps, slots), diamond=0)
        return
    seen: set[int] = set()
    passes = 1
    while passes <= problem.steps:
        levels = -(-problem.steps // passes)
        if levels > 1 and levels % 2:
            levels += 1 if levels < problem.steps else 0
        if levels not in seen:
            seen.add(levels)
            thickest = thickest_slab(problem, levels, slots)
            slabs = [slab for slab in SLABS if slab < thickest] + [thickest]
            yield from (Sizes(levels, slab, diamond=0) for slab in slabs if slab >= 1)
        if levels == 1:
            break
        passes = max(passes + 1, -(-problem.steps // (levels - 1)))


def thickest_slab(problem: Problem, levels: int, slots: int) -> int:
    """The largest b whose rings fit `slots` planes, 0 if none does. A slab never exceeds the whole range of zeta."""
    whole = max(1, problem.end_plane - problem.first_plane + problem.skew * (levels - 1))
    if sum(ring_planes(problem, levels, whole)) <= slots:
        return whole
    low, high = 0, whole
    while high - low > 1:
        middle = (low + high) // 2
        if sum(ring_planes(problem, levels, middle)) <= slots:
            low = middle
        else:
            high = middle
    return low


SCHEME = Scheme("wavefront", ring_planes, make_pass, candidates)
