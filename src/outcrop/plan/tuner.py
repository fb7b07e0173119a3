"""The tuner chooses the sizes of a plan. The tuner lists the candidates of each scheme for the budget, and predicts the
costs of the candidates. The tuner chooses the candidate with the lowest cost.

The tuner works in two rounds, because a measurement of the update rate takes time. The first round compares levels and
slabs, and assumes one cache tiling. The second round measures the update rates of the best candidates with several
tilings.

The cache tiles of a slab are usually diamonds of half height D (core/outcrop/exec/tiles.hpp). With a stencil of radius
r, a diamond needs 2 r D neighbouring rows, and each thread needs at least one diamond. If the grid has too few rows,
the tiles divide the streaming axis among the threads instead. For example, each plane of a two-axis grid has only one
row. If the tiles divide the streaming axis, a slab is divided into bands of 2 D levels, and each band is divided into
chunks along zeta. Zeta is the number of a plane plus the skew of its level.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, chain, groupby, islice, repeat
from operator import attrgetter

from outcrop.errors import BudgetError
from outcrop.plan.actions import FAR, Read, round_down
from outcrop.plan.cost import (
    REQUEST_SECONDS,
    SLAB_SECONDS,
    PassWork,
    predict,
    snapshot_seconds_aside,
    snapshot_seconds_device,
    works_of,
)
from outcrop.plan.given_sizes import MAX_STEPS_OF_PASS
from outcrop.plan.machine import Machine, UpdateRate, compare, edge_factor
from outcrop.plan.memory import MIN_STAGING, NO_ACQUISITION_MEMORY, AcquisitionMemory, Staging, Window
from outcrop.plan.placement import place_of, taken
from outcrop.plan.plan import Candidate, Pass, Plan, Scheme, Sizes, Volume
from outcrop.plan.problem import NO_DEMAND, Problem
from outcrop.plan.staging import NO_WRITES, SnapshotWrites, fit_staging, snapshot_writes

ASSUMED_CELLS_PER_SECOND = 5e9
MAX_SLABS = 20_000
"""The maximum number of slabs in a pass. The list of actions of a plan with more slabs would need more memory than the
window. A plan with more slabs is made only if no other plan is possible."""
MAX_FORCED_SLABS = 40_000
"""The maximum number of slabs in a pass if the memory or the sizes that the user has given allow no plan with fewer
slabs. The planner and the run would need too much time and memory for a longer list of actions."""
MAX_VALUE_SLABS = 80_000
"""The maximum product of the number of slabs and the number of recomputed values, if a pass has blocks in y. The
product is limited, because each slab then has a read, a copy and a write for each recomputed value."""
BUILT = 10
"""The number of candidates whose plans are made, and whose costs are predicted action by action. The formulas choose
these candidates. Fewer plans are made if the passes of these candidates have more than MAX_SLABS slabs together."""
MIN_BUILT = 2
"""The minimum number of candidates whose plans are made."""
SHORTLIST = 4
DIAMONDS = (2, 4, 6, 8, 12, 16, 24, 32)
TILINGS = 4
"""The number of tilings that are usually measured for given levels and a given slab. If fewer tilings are useful, fewer
tilings are measured."""
COLUMN_BYTES = 4096
"""The size of a range of columns, if rows are divided."""
MIN_ROW_BYTES = 4 * COLUMN_BYTES
"""The minimum size of rows that can be divided. Shorter rows are never faster in ranges (docs/decisions.md)."""
COLUMN_DIAMONDS = (6, 8)
"""The half heights of diamonds that are measured with ranges of columns."""
SWEEP_ROWS = (4, 8, 16, 32, 64)
CHUNK_LEANS = 4
"""The minimum length of a chunk, as a multiple of the total skew of its band. For each chunk, the cache must fetch
additional planes. Their number is equal to the total skew."""
SWEEP_LEAN = 16
"""The total skew, in planes, that the tuner assumes for a plain sweep. A plain sweep has no bands. The tuner computes
the length of chunks from the assumed skew, which makes chunks large enough for a thread."""
STAGING_SHARES = (16, 8, 4, 2)
"""If a problem has snapshots, candidates are also made for smaller budgets. These candidates leave 1/16, 1/8, 1/4 or
1/2 of the budget for the staging."""
MAX_CHUNKS = 20_000
"""The maximum number of chunks in all bands together. The number of chunks is limited, because the list of chunks uses
memory outside the window."""


@dataclass(frozen=True)
class TunedPlan:
    """The chosen plan, and all candidates whose costs were predicted action by action. The first candidate is the
    candidate of the chosen plan. The other candidates are sorted by time."""

    plan: Plan
    considered: tuple[Candidate, ...]


@dataclass(frozen=True)
class _Listed:
    """A candidate that a scheme has listed: its sizes, and the work of a pass with these sizes."""

    scheme: Scheme
    sizes: Sizes
    volume: Volume


def tune(
    problem: Problem,
    schemes: Sequence[Scheme],
    machine: Machine,
    budget_bytes: int,
    rate: UpdateRate,
    acquisition: AcquisitionMemory = NO_ACQUISITION_MEMORY,
) -> TunedPlan | None:
    """Choose the plan with the lowest cost. Return the chosen plan and the other candidates, or None if no window fits
    the budget. The budget does not include the memory of `acquisition`. The acquisition can limit the number of steps
    of a pass. If the window does not need the whole budget, snapshots use the remaining memory for a larger staging.
    """
    max_steps = min(acquisition.max_steps, MAX_STEPS_OF_PASS) if acquisition.step_bytes else MAX_STEPS_OF_PASS
    fitting = replace(problem, steps=min(problem.steps, max_steps))
    ranking = _Ranking(fitting, schemes, machine, budget_bytes)
    if not ranking.every:
        return None
    named, seconds = {scheme.name: scheme for scheme in schemes}, attrgetter("seconds")

    works: dict[tuple[str, Sizes], tuple[Window, list[tuple[int, PassWork]], list[int]]] = {}

    # First, sort all candidates by their time, which comes from formulas with an assumed update rate. Then measure the
    # update rate of the best candidate with each loop of the kernel, with and without prefetches. Sort all candidates
    # again with the measured rate.
    tried = ranking.first_measured(rate)
    rough_rate = _rough_rate(problem, rate(tried) * edge_factor(problem, tried))

    def with_loop(sizes: Sizes) -> Sizes:
        return replace(sizes, rows_at_once=tried.rows_at_once, prefetch=tried.prefetch)

    def candidate(scheme: str, sizes: Sizes, rate: UpdateRate) -> Candidate:
        sizes = with_loop(sizes)
        # the passes of a plan do not depend on its cache tiles
        key = scheme, replace(sizes, diamond=0, chunk=0, sweep_rows=0, columns=0)
        if key not in works:
            window, passes, counts = _passes(problem, named[scheme], sizes)
            works[key] = window, works_of(problem, passes), counts
        window, each, counts = works[key]
        own = _with_staging(problem, sizes, machine, window, acquisition, budget_bytes)
        predicted = predict(problem, each, sizes, window, machine, rate, own, counts)
        return Candidate(scheme, sizes, sum(counts), predicted)

    # Make plans of the best candidates with the measured tiling. Then predict the costs of these plans.
    coarse = [
        candidate(one.scheme.name, with_tiles(problem, one.sizes, tried.diamond, machine.threads), rough_rate)
        for one in ranking.worth_building(rough_rate)
    ]
    coarse.sort(key=seconds)
    first, others = coarse[0], coarse[1:]

    # Measure several tilings of the first candidate. For the other candidates, measure only the tilings that were best
    # for the first candidate.
    every_tiling = [with_loop(sizes) for sizes in tilings(problem, named[first.scheme], first.sizes, machine)]
    compare(rate, every_tiling)
    fine = [candidate(first.scheme, sizes, rate) for sizes in every_tiling]
    fine.sort(key=seconds)
    best_tiles = [(one.sizes.diamond, one.sizes.columns) for one in fine[:2]]
    kinds = {_kind(named[one.scheme], one.sizes) for one in fine}
    more: list[tuple[str, Sizes]] = []
    for place, other in enumerate(others):
        best = best_tiles[: 2 if place < SHORTLIST else 1]
        for sizes in tilings(problem, named[other.scheme], other.sizes, machine):
            kind = _kind(named[other.scheme], sizes)
            if (sizes.diamond, sizes.columns) in best or kind not in kinds:
                kinds.add(kind)
                more.append((other.scheme, with_loop(sizes)))
    compare(rate, [sizes for _, sizes in more])
    fine += [candidate(scheme, sizes, rate) for scheme, sizes in more]

    # Choose the fastest candidate, and make its plan.
    chosen = taken(fine)
    rest = sorted((one for one in fine if one is not chosen), key=seconds)
    works.clear()  # these lists can be as long as the actions of the plan
    window, passes, counts = _passes(problem, named[chosen.scheme], chosen.sizes)
    own = _with_staging(problem, chosen.sizes, machine, window, acquisition, budget_bytes)
    every = tuple(chain.from_iterable(map(repeat, passes, counts)))
    plan = Plan(problem, chosen.scheme, chosen.sizes, every, window, chosen.predicted, own)
    return TunedPlan(plan, (chosen, *rest))


def estimate(
    problem: Problem, schemes: Sequence[Scheme], machine: Machine, budget_bytes: int, cells_per_second: float
) -> float:
    """Return the approximate seconds of a run with the best sizes. Only formulas are used. Callers use the returned
    time to compare problems with each other. `cells_per_second` is the update rate in thick slabs. The result is
    infinite if no window fits the budget."""
    ranked = _Ranking(problem, schemes, machine, budget_bytes).ranked(_rough_rate(problem, cells_per_second))
    return next((seconds for seconds, _ in ranked), float("inf"))


def rate_in_thick_slabs(
    problem: Problem, schemes: Sequence[Scheme], machine: Machine, budget_bytes: int, rate: UpdateRate
) -> float:
    """Return the update rate that `estimate` needs. The function measures the update rate of the candidate that is best
    according to the formulas. The result is computed from the measured rate."""
    ranking = _Ranking(problem, schemes, machine, budget_bytes)
    if not ranking.every:
        return ASSUMED_CELLS_PER_SECOND
    tried = ranking.first_measured(rate)
    return rate(tried) * edge_factor(problem, tried)


class _Ranking:
    """Sorts all candidates for a problem and a budget by the time that formulas predict. If the problem has snapshots,
    `every` also has candidates for smaller budgets. Candidates for a smaller budget leave memory for the staging."""

    def __init__(self, problem: Problem, schemes: Sequence[Scheme], machine: Machine, budget_bytes: int) -> None:
        self._problem, self._machine, self._budget_bytes = problem, machine, budget_bytes
        shares = STAGING_SHARES if problem.acquisition.snapshots else ()
        budgets = (budget_bytes, *(budget_bytes - budget_bytes // share for share in shares))
        self.every = _listed(replace(problem, acquisition=NO_DEMAND), tuple(schemes), budgets)

    def first_measured(self, rate: UpdateRate) -> Sizes:
        """Return the sizes of the candidate with the shortest time according to the formulas. The sizes have the most
        promising tiling of this candidate, and the fastest loop of the kernel. The rates of the loops are measured. The
        fastest loop is measured again with prefetches, and the sizes have the faster variant."""
        _, guess = next(self.ranked(_rough_rate(self._problem, ASSUMED_CELLS_PER_SECOND)))
        tiled = next(iter(tilings(self._problem, guess.scheme, guess.sizes, self._machine)))
        every = [replace(tiled, rows_at_once=rows) for rows in _rows_at_once(self._problem)]
        compare(rate, every)
        fastest = max(every, key=rate)
        ahead = replace(fastest, prefetch=True)
        compare(rate, [ahead])
        return max(fastest, ahead, key=rate)

    def ranked(self, rate: UpdateRate, every: Sequence[_Listed] | None = None) -> Iterator[tuple[float, _Listed]]:
        """Yield each candidate with the seconds that the formulas predict. The fastest candidate comes first. If
        `every` is given, yield only the candidates in `every`.

        The computation of the cost of snapshots takes a long time. So the function computes the cost of snapshots only
        for candidates that can be yielded next. A candidate can be yielded next if its cost without snapshots is less
        than the lowest known cost with snapshots."""
        listed = self.every if every is None else every

        def key(seconds: float, place: int) -> tuple[float, int, int]:
            return seconds, -listed[place].sizes.slab, place

        least = sorted(key(self._seconds(one, rate), place) for place, one in enumerate(listed))
        if not self._problem.acquisition.snapshots:
            yield from ((seconds, listed[place]) for seconds, _, place in least)
            return
        waiting: list[tuple[float, int, int]] = []
        for one in least:
            while waiting and waiting[0] < one:
                seconds, _, place = waiting.pop(0)
                yield seconds, listed[place]
            place = one[2]
            insort(waiting, key(self._seconds(listed[place], rate, self._snapshots(listed[place])), place))
        yield from ((seconds, listed[place]) for seconds, _, place in waiting)

    def worth_building(self, rate: UpdateRate) -> list[_Listed]:
        """Return the best candidates. If the best candidates do not include all kinds (`_kind`), also return the best
        candidate of the missing kinds, because the formulas are not exact enough to exclude a kind."""
        first = list(islice(self.ranked(rate), BUILT))
        slabs = list(accumulate(one.volume.slabs for _, one in first))
        first = first[: max(MIN_BUILT, bisect_right(slabs, MAX_SLABS))]
        best = [one for seconds, one in first if seconds < float("inf")]
        if not best:
            return [self._least_slabs()]
        kinds = {_kind(one.scheme, one.sizes) for one in best}
        others = [one for one in self.every if _kind(one.scheme, one.sizes) not in kinds]
        elsewhere = islice(self.ranked(rate, others), 1)
        return [*best, *(one for seconds, one in elsewhere if seconds < float("inf"))]

    def _least_slabs(self) -> _Listed:
        """Return the candidate with the fewest slabs in a pass. Raises BudgetError if even this candidate has too many
        slabs."""
        least = min(self.every, key=lambda one: one.volume.slabs)
        if least.volume.slabs > MAX_FORCED_SLABS:
            raise BudgetError(
                f"a pass of {self._problem.stencil} would have at least {least.volume.slabs} slabs with this memory "
                f"and these sizes; the limit is {MAX_FORCED_SLABS}: give more memory, or larger slabs or blocks"
            )
        return least

    def _snapshots(self, one: _Listed) -> SnapshotWrites:
        problem, machine, sizes = self._problem, self._machine, one.sizes
        spare_bytes = self._budget_bytes - one.scheme.window(problem, sizes.levels, sizes).bytes
        tiled, steps = with_tiles(problem, sizes, DIAMONDS[0], machine.threads), problem.steps_of(sizes.levels)
        staging, first_step = _staging(problem, tiled, machine, spare_bytes), problem.acquisition.first_step
        return snapshot_writes(problem, tiled, staging, machine.threads, first_step, steps)

    def _seconds(self, one: _Listed, rate: UpdateRate, snapshots: SnapshotWrites = NO_WRITES) -> float:
        """Return the approximate seconds of a candidate. The result is the sum of two parts. The first part is the
        longest of three times: the times of the cores, of the transfers, and of the exchanges with neighbours. The
        second part is the time of transfers during which no update takes place."""
        problem, sizes, volume = self._problem, one.sizes, one.volume
        machine, device = self._machine, self._machine.device
        values = len(problem.computed) if sizes.block_y else 0
        if volume.slabs > MAX_SLABS or volume.slabs * values > MAX_VALUE_SLABS:
            return float("inf")
        shared = min(volume.bytes_read, volume.bytes_written)
        alone = volume.bytes_read - shared, volume.bytes_written - shared
        transfers = 2 * shared / device.mixed_bytes_per_second
        transfers += alone[0] / device.read_bytes_per_second + alone[1] / device.write_bytes_per_second
        updates = volume.cell_updates / rate(sizes) + SLAB_SECONDS * volume.slabs
        updates += (
            volume.bytes_read + volume.bytes_written + 2 * volume.bytes_sent
        ) / machine.checksum_bytes_per_second
        updates += volume.requests * REQUEST_SECONDS / machine.threads
        transfers += snapshot_seconds_device(snapshots, device)
        updates += snapshot_seconds_aside(snapshots, machine)
        exposed = volume.exposed_bytes / device.mixed_bytes_per_second + device.seconds_flush
        network = machine.network
        exchanges = volume.bytes_sent / network.bytes_per_second + network.seconds_latency * problem.is_part
        return (max(updates, transfers, exchanges) + exposed) * problem.levels / sizes.levels


def _kind(scheme: Scheme, sizes: Sizes) -> tuple[str, bool]:
    """Return the kind of a candidate: the place of its static fields (memory or disk), and a flag that is true if ranks
    share updates."""
    return place_of(sizes), scheme.shared_levels is not None


@lru_cache(maxsize=8)
def _listed(problem: Problem, schemes: tuple[Scheme, ...], budgets: tuple[int, ...]) -> Sequence[_Listed]:
    """Return the candidates for several budgets. The candidates do not depend on the acquisition. So all histories that
    are tried for a run have the same candidates. This function caches the candidates for the next history."""
    found = ((scheme, sizes) for one in budgets for scheme in schemes for sizes in scheme.candidates(problem, one))
    every = {(scheme.name, sizes): (scheme, sizes) for scheme, sizes in found}.values()
    return [_Listed(scheme, sizes, scheme.volume(problem, sizes)) for scheme, sizes in every]


def predicted_again(choice: TunedPlan, machine: Machine, rate: UpdateRate) -> TunedPlan:
    """Return a copy of `choice` in which the time of the chosen plan is predicted with the update rates in `rate`."""
    plan = choice.plan
    groups = [(one, sum(1 for _ in same)) for one, same in groupby(plan.passes)]
    works, counts = works_of(plan.problem, (one for one, _ in groups)), [count for _, count in groups]
    predicted = predict(plan.problem, works, plan.sizes, plan.window, machine, rate, plan.acquisition, counts)
    first = replace(choice.considered[0], predicted=predicted)
    return TunedPlan(replace(plan, predicted=predicted), (first, *choice.considered[1:]))


def build(
    problem: Problem,
    scheme: Scheme,
    sizes: Sizes,
    machine: Machine,
    rate: UpdateRate,
    acquisition: AcquisitionMemory = NO_ACQUISITION_MEMORY,
    budget_bytes: int = 0,
) -> Plan:
    """Return the plan for the given sizes. The passes of the plan have `sizes.levels` levels. The last pass is shorter
    if the number of levels of the run is not a multiple of `sizes.levels`. If ranks share updates, a pass must end at
    each snapshot, so some passes can be shorter. `budget_bytes` is the memory for the window, and for the part of the
    staging that exceeds the smallest staging."""
    window, passes, counts = _passes(problem, scheme, sizes)
    acquisition = _with_staging(problem, sizes, machine, window, acquisition, budget_bytes)
    predicted = predict(problem, works_of(problem, passes), sizes, window, machine, rate, acquisition, counts)
    every = tuple(chain.from_iterable(map(repeat, passes, counts)))
    return Plan(problem, scheme.name, sizes, every, window, predicted, acquisition)


def _passes(problem: Problem, scheme: Scheme, sizes: Sizes) -> tuple[Window, list[Pass], list[int]]:
    """Return the window and the passes of a plan, and the number of times that each of these passes is repeated before
    the next pass of the result. The result is short, also for a run of millions of passes. The window and the passes do
    not depend on the cache tiles."""
    window = scheme.window(problem, min(sizes.levels, max(1, problem.levels)), sizes)
    passes, counts = list[Pass](), list[int]()
    made: dict[tuple[int, bool], Pass] = {}
    left = problem.levels
    while left > 0:
        levels, has_statics = min(sizes.levels, left), bool(passes) and sizes.keeps_statics
        is_repeated = has_statics or not sizes.keeps_statics
        if scheme.shared_levels is not None and problem.acquisition.ends:
            step = problem.acquisition.first_step + (problem.levels - left) // problem.stages
            levels, is_repeated = min(levels, problem.acquisition.steps_to_end(step) * problem.stages), False
        if (levels, has_statics) not in made:
            slab = _slab_within(problem, scheme, levels, sizes, window)
            one = scheme.make_pass(problem, levels, replace(sizes, levels=levels, slab=slab))
            made[levels, has_statics] = without_statics(one) if has_statics else one
        passes.append(made[levels, has_statics])
        counts.append(left // levels if is_repeated else 1)
        left -= levels * counts[-1]
    return window, passes, counts


def _with_staging(
    problem: Problem, sizes: Sizes, machine: Machine, window: Window, acquisition: AcquisitionMemory, budget_bytes: int
) -> AcquisitionMemory:
    if not acquisition.staging.slots:
        return acquisition
    return replace(acquisition, staging=_staging(problem, sizes, machine, budget_bytes - window.bytes))


def _staging(problem: Problem, sizes: Sizes, machine: Machine, spare_bytes: int) -> Staging:
    return fit_staging(problem, sizes, machine.threads, MIN_STAGING.bytes + max(0, spare_bytes))


def without_statics(one: Pass) -> Pass:
    """Return a copy of the pass without the reads of static fields. The copy is for a run that already has all static
    fields in memory."""
    kept = (action for action in one.actions if not (isinstance(action, Read) and action.array == "statics"))
    return replace(one, actions=tuple(kept))


def _slab_within(problem: Problem, scheme: Scheme, levels: int, sizes: Sizes, window: Window) -> int:
    """Return the number of planes of the thickest slab with which a pass of `levels` levels fits `window`. The number
    is at most `sizes.slab`. The number can be smaller than `sizes.slab`, because a pass with fewer levels can need a
    longer ring.

    All ranks need the same slab. If the planes are divided among ranks, parts can have different numbers of planes, and
    no ring is longer than its part needs. So the function uses a part of unlimited height. A slab that fits a part of
    unlimited height also fits `window`."""
    if problem.is_part_z:
        problem = replace(problem, shape=(FAR, *problem.shape[1:]))
        window = scheme.window(problem, min(sizes.levels, max(1, problem.levels)), sizes)
    slab = sizes.slab
    while slab > 1 and not window.holds(scheme.window(problem, levels, replace(sizes, slab=slab))):
        slab -= 1
    return slab


def _rough_rate(problem: Problem, cells_per_second: float) -> UpdateRate:
    """Return a function that returns assumed update rates. The tuner compares all candidates with assumed rates,
    because measurements of all candidates would take too long. In thick slabs, the assumed rate is the given rate. In
    thin slabs, the assumed rate is lower."""

    def rate(sizes: Sizes) -> float:
        return cells_per_second / edge_factor(problem, sizes, diamond=8) / (3 if sizes.levels == 1 else 1)

    return rate


def tilings(problem: Problem, scheme: Scheme, sizes: Sizes, machine: Machine) -> Iterable[Sizes]:
    """Yield copies of `sizes`: one copy for each cache tiling that is worth a measurement. The most promising tiling
    comes first.

    With the radius r, the working set of a diamond of half height D is approximately 4 r^2 D^2 rows. If planes have few
    rows, the working set of a tile is approximately 2 r D planes. The working set should fit into the second-level
    cache, or at least into a thread's share of the last-level cache. For long rows, whole rows and ranges of columns
    are tried. Threads are idle if diamonds are higher than the number of levels, or wider than a thread's share of the
    rows. Threads are also idle if there are fewer bands than threads. For stencils with many fields, the best working
    set can be larger than the rules for the working set allow. So at least TILINGS tilings are tried.
    """
    if scheme.sweeps:
        block_rows = min(SWEEP_ROWS, key=lambda rows: abs(6 * rows * problem.pitch_bytes - machine.cache_bytes))
        rows = max(1, min(block_rows, problem.shape[1] // machine.threads))
        yield replace(with_tiles(problem, sizes, 0, machine.threads), sweep_rows=rows)
        return
    if scheme.diamond:  # the user has given the size `diamond`
        yield with_tiles(problem, sizes, scheme.diamond, machine.threads)
        return
    share = max(machine.cache_bytes, machine.last_cache_bytes // (2 * machine.threads))
    useful = _useful_diamonds(problem, sizes.levels, machine.threads)
    rows = problem.shape[1]
    values = problem.histories + len(problem.recomputed)  # a level uses only some of the values of the forward run
    rings = problem.rings - values + values // problem.listed_steps
    row_bytes = 2 * rings * problem.skew_z * problem.pitch_bytes
    fitting = [one for one in useful if row_bytes * one * min(problem.skew_y * max(1, one), rows) <= share]
    larger = useful[len(fitting) :][: max(0, TILINGS - len(fitting))]
    for diamond in (*reversed(fitting[-TILINGS:]), *larger):
        yield with_tiles(problem, sizes, diamond, machine.threads)
    # Tilings with ranges of columns are also tried for long rows. In a range of columns, larger diamonds fit into the
    # cache.
    if _may_divide_rows(problem, sizes):
        divided = replace(sizes, columns=COLUMN_BYTES // problem.item_bytes)
        for diamond in COLUMN_DIAMONDS:
            if diamond in useful:
                yield with_tiles(problem, divided, diamond, machine.threads)


def _may_divide_rows(problem: Problem, sizes: Sizes) -> bool:
    """Return True if ranges of columns can be faster than whole rows.

    Rows are not divided if the run writes snapshots or a history. The rows of snapshots would arrive in parts, so many
    short writes would be necessary. In addition, parts of rows would wait in memory that no plan counts. Rows are also
    not divided if blocks have bounds in x, because the core then ignores the ranges."""
    is_allowed = problem.skew_x > 0 and not problem.acquisition.snapshots and not sizes.block_x
    return is_allowed and problem.pitch_bytes >= MIN_ROW_BYTES


def _useful_diamonds(problem: Problem, levels: int, threads: int) -> list[int]:
    """Return the half heights that give enough tiles for all threads. If no half height gives enough tiles, return only
    the smallest half heights."""
    if shares_planes(problem, threads):
        each = [one for one in (1, *DIAMONDS) if 2 * one * threads <= levels]
        return [one for one in each if problem.skew_z * one * threads <= problem.planes] or [0, 1][:levels]
    extent, skew = problem.shape[1], problem.skew_y
    is_serial = _has_few_rows(problem, threads)
    return [one for one in DIAMONDS if one <= levels and (is_serial or skew * one * threads <= extent)] or [DIAMONDS[0]]


def _rows_at_once(problem: Problem) -> Sequence[int]:
    """Return the numbers of rows that the inner loop of a kernel can update together. On a periodic streaming axis,
    each call of a kernel updates only one plane. Loops over 4 rows exist only for stencils of three axes and radius
    1."""
    if problem.periodic[0] or problem.radii[0] == 0:
        return (1,)
    return (1, 2, 4) if max(problem.radii) == 1 and problem.ndim == 3 else (1, 2)


def shares_planes(problem: Problem, threads: int) -> bool:
    """Return True if the planes are divided among the threads, and False if the rows are divided. The planes are
    divided if the grid has too few rows for all threads, but enough planes."""
    return _has_few_rows(problem, threads) and problem.planes >= 2 * threads


def _has_few_rows(problem: Problem, threads: int) -> bool:
    return problem.skew_y * DIAMONDS[0] * threads > problem.shape[1]


def with_tiles(problem: Problem, sizes: Sizes, diamond: int, threads: int) -> Sizes:
    """Return `sizes` with other tiles: diamonds whose half height is `diamond` levels. If `diamond` is 0, the returned
    sizes have no diamonds, and each level of a slab is updated in one sweep. Usually, each tile has some of the rows of
    the slab. If the grid has few rows, each tile has some of the planes instead (`shares_planes`)."""
    if not shares_planes(problem, threads):
        return replace(sizes, diamond=diamond, chunk=0)
    lean = 2 * diamond * problem.skew_z or SWEEP_LEAN
    bands = -(-sizes.levels // max(1, 2 * diamond))
    wanted = max(CHUNK_LEANS * lean, sizes.slab * bands // MAX_CHUNKS)
    share = min(sizes.slab, problem.planes) // (2 * threads)
    chunk = round_down(min(wanted, share), sizes.planes_per_call)
    return replace(sizes, diamond=diamond, chunk=max(sizes.planes_per_call, chunk))
