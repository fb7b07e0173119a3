"""Choose the sizes of a plan. List the candidates of each scheme for the budget, predict their costs, and take the
candidate with the lowest cost.

The tuner works in two rounds, because a measurement of the update rate takes time. The first round ranks levels and
slabs with one assumed cache tiling. The second round measures the update rates of the best candidates with several
tilings.

Cache tiles of a slab are diamonds, which core/outcrop/exec/tiles.hpp makes. Each diamond needs 2 r D neighbouring rows,
and each thread needs at least one diamond. Some grids have too few rows. For example, a plane of a two-axis grid has
one row. On such a grid, threads share the streaming axis. Tiles are then bands of 2 D levels, and the bands are divided
into chunks along the skewed coordinate zeta.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from operator import attrgetter

from outcrop.plan.actions import Read, round_down
from outcrop.plan.cost import (
    REQUEST_SECONDS,
    SLAB_SECONDS,
    PassWork,
    predict,
    predict_work,
    snapshot_seconds_aside,
    snapshot_seconds_device,
    works_of,
)
from outcrop.plan.given_sizes import MAX_STEPS_OF_PASS
from outcrop.plan.machine import Machine, UpdateRate, edge_factor
from outcrop.plan.memory import MIN_STAGING, NO_ACQUISITION_MEMORY, AcquisitionMemory, Staging, Window
from outcrop.plan.only_read import place_of, taken
from outcrop.plan.plan import Candidate, Pass, Plan, Sizes
from outcrop.plan.problem import NO_DEMAND, Problem
from outcrop.plan.schemes.scheme import Scheme, Volume
from outcrop.plan.staging import NO_WRITES, SnapshotWrites, fit_staging, snapshot_writes

ASSUMED_CELLS_PER_SECOND = 5e9
MAX_SLABS = 20_000
"""A plan with more slabs is made only if no other plan is possible, because its list of actions is larger than the
window."""
MAX_VALUE_SLABS = 80_000
"""The same limit for blocks in y of a pass that computes states again: the number of slabs times the number of values.
A slab has a read, a copy and a write for each value."""
BUILT = 10
"""The number of candidates that are the best by formula. Only the plans of these candidates are made and predicted
action by action."""
SHORTLIST = 4
DIAMONDS = (2, 4, 6, 8, 12, 16, 24, 32)
TILINGS = 4
"""The usual number of diamonds that are measured for given levels and slab. Fewer are measured if fewer are
useful."""
SWEEP_ROWS = (4, 8, 16, 32, 64)
CHUNK_LEANS = 4
"""The minimum length of a chunk, as a multiple of the total skew of all levels of its band. At each end of a chunk, the
cache must fetch additional planes. The number of these planes is the total skew."""
SWEEP_LEAN = 16
"""The skew that is assumed for a plain sweep. It makes chunks large enough for a thread."""
STAGING_SHARES = (16, 8, 4, 2)
"""If a problem has snapshots, candidates are also made for budgets from which 1/16, 1/8, 1/4 or 1/2 is kept free for
the staging."""
MAX_CHUNKS = 20_000
"""The maximum number of chunks in all bands together. The list of chunks uses memory outside the window."""


@dataclass(frozen=True)
class TunedPlan:
    """The chosen plan, and all candidates whose costs were predicted action by action. The candidate of the chosen plan
    is the first. The other candidates are sorted by time."""

    plan: Plan
    considered: tuple[Candidate, ...]


@dataclass(frozen=True)
class _Listed:
    """The sizes of a candidate, with the work of a pass."""

    scheme: Scheme
    sizes: Sizes
    volume: Volume


@dataclass(frozen=True)
class _Ranked:
    """The sizes of a candidate, with their rough cost."""

    seconds: float
    scheme: Scheme
    sizes: Sizes


def tune(
    problem: Problem,
    schemes: Sequence[Scheme],
    machine: Machine,
    budget_bytes: int,
    rate: UpdateRate,
    acquisition: AcquisitionMemory = NO_ACQUISITION_MEMORY,
) -> TunedPlan | None:
    """Return the plan with the lowest cost, and the other candidates. Return None if no window fits the budget. The
    memory of `acquisition` is not part of the budget, but it may limit the number of steps of a pass. If the problem
    has snapshots, the memory that a window leaves free is used for a larger staging."""
    max_steps = min(acquisition.max_steps, MAX_STEPS_OF_PASS) if acquisition.step_bytes else MAX_STEPS_OF_PASS
    fitting = replace(problem, steps=min(problem.steps, max_steps))
    every = _candidates(fitting, schemes, budget_bytes)
    if not every:
        return None
    named, seconds = {scheme.name: scheme for scheme in schemes}, attrgetter("seconds")

    works: dict[tuple[str, Sizes], tuple[Window, list[tuple[int, PassWork]]]] = {}

    def candidate(scheme: str, sizes: Sizes, rate: UpdateRate) -> Candidate:
        key = scheme, replace(sizes, diamond=0, chunk=0, sweep_rows=0)  # passes do not depend on the cache tiles
        if key not in works:
            window, passes = _passes(problem, named[scheme], sizes)
            works[key] = window, works_of(problem, passes)
        window, each = works[key]
        own = _with_staging(problem, sizes, machine, window, acquisition, budget_bytes)
        return Candidate(scheme, sizes, len(each), predict_work(problem, each, sizes, window, machine, rate, own))

    # Rank all candidates by formulas, first with an assumed update rate. Measure the update rate of the best candidate,
    # and rank all candidates again with this rate.
    tried = _first_tiling(problem, every, machine, budget_bytes)
    rough_rate = _rough_rate(problem, rate(tried) * edge_factor(problem, tried))

    # Make the plans of the best candidates with the measured tiling, and predict the costs of these plans.
    coarse = [
        candidate(one.scheme.name, with_tiles(problem, one.sizes, tried.diamond, machine.threads), rough_rate)
        for one in _worth_building(problem, every, machine, budget_bytes, rough_rate)
    ]
    coarse.sort(key=seconds)
    first, others = coarse[0], coarse[1:]

    # Measure several tilings of the first candidate. Then measure the best of these tilings for the other candidates.
    every_tiling = tilings(problem, named[first.scheme], first.sizes, machine)
    fine = [candidate(first.scheme, sizes, rate) for sizes in every_tiling]
    fine.sort(key=seconds)
    best_diamonds = [one.sizes.diamond for one in fine[:2]]
    for place, other in enumerate(others):
        diamonds = best_diamonds[: 2 if place < SHORTLIST else 1]
        for sizes in tilings(problem, named[other.scheme], other.sizes, machine):
            is_first_there = all(place_of(one.sizes) != place_of(sizes) for one in fine)
            if sizes.diamond in diamonds or is_first_there:
                fine.append(candidate(other.scheme, sizes, rate))

    # Take the cheapest.
    chosen = taken(fine)
    rest = sorted((one for one in fine if one is not chosen), key=seconds)
    plan = build(problem, named[chosen.scheme], chosen.sizes, machine, rate, acquisition, budget_bytes)
    return TunedPlan(plan, (chosen, *rest))


def estimate(
    problem: Problem, schemes: Sequence[Scheme], machine: Machine, budget_bytes: int, cells_per_second: float
) -> float:
    """Return the approximate seconds of a run with the best sizes, computed only by formulas. Callers use this time to
    compare problems. `cells_per_second` is the update rate in thick slabs. The result is infinite if no window fits the
    budget."""
    every = _candidates(problem, schemes, budget_bytes)
    rate = _rough_rate(problem, cells_per_second)
    return next((one.seconds for one in _ranked(problem, every, machine, budget_bytes, rate)), float("inf"))


def rate_in_thick_slabs(
    problem: Problem, schemes: Sequence[Scheme], machine: Machine, budget_bytes: int, rate: UpdateRate
) -> float:
    """Return the rate for `estimate`. It is computed from the rate of the sizes that formulas find best."""
    if not (every := _candidates(problem, schemes, budget_bytes)):
        return ASSUMED_CELLS_PER_SECOND
    tried = _first_tiling(problem, every, machine, budget_bytes)
    return rate(tried) * edge_factor(problem, tried)


def _first_tiling(
    problem: Problem, every: Sequence[_Listed], machine: Machine, budget_bytes: int
) -> Sizes:
    """Return the candidate that is the best by formulas, with its most promising tiling."""
    guess = next(_ranked(problem, every, machine, budget_bytes, _rough_rate(problem, ASSUMED_CELLS_PER_SECOND)))
    return next(iter(tilings(problem, guess.scheme, guess.sizes, machine)))


def _candidates(problem: Problem, schemes: Sequence[Scheme], budget_bytes: int) -> Sequence[_Listed]:
    """Return all candidates for a budget. If the problem has snapshots, also return the candidates for several smaller
    budgets, because these candidates leave memory for the staging."""
    shares = STAGING_SHARES if problem.acquisition.snapshots else ()
    budgets = (budget_bytes, *(budget_bytes - budget_bytes // share for share in shares))
    return _listed(replace(problem, acquisition=NO_DEMAND), tuple(schemes), budgets)


@lru_cache(maxsize=8)
def _listed(problem: Problem, schemes: tuple[Scheme, ...], budgets: tuple[int, ...]) -> Sequence[_Listed]:
    """Return the candidates for several budgets. They do not depend on the acquisition. So all histories of a run have
    the same candidates, which are kept for the next history."""
    found = ((scheme, sizes) for one in budgets for scheme in schemes for sizes in scheme.candidates(problem, one))
    every = {(scheme.name, sizes): (scheme, sizes) for scheme, sizes in found}.values()
    return [_Listed(scheme, sizes, scheme.volume(problem, sizes)) for scheme, sizes in every]


def build(
    problem: Problem,
    scheme: Scheme,
    sizes: Sizes,
    machine: Machine,
    rate: UpdateRate,
    acquisition: AcquisitionMemory = NO_ACQUISITION_MEMORY,
    budget_bytes: int = 0,
) -> Plan:
    """Return the plan for the given sizes. Its passes have `sizes.levels` levels. If the levels of the run are not a
    multiple of `sizes.levels`, the last pass is shorter. `budget_bytes` is the memory for the window and for the part
    of the staging that exceeds the smallest staging."""
    window, passes = _passes(problem, scheme, sizes)
    acquisition = _with_staging(problem, sizes, machine, window, acquisition, budget_bytes)
    predicted = predict(problem, passes, sizes, window, machine, rate, acquisition)
    return Plan(problem, scheme.name, sizes, passes, window, predicted, acquisition)


def _passes(problem: Problem, scheme: Scheme, sizes: Sizes) -> tuple[Window, tuple[Pass, ...]]:
    """Return the window and the passes of a plan. They do not depend on the cache tiles."""
    window = scheme.window(problem, min(sizes.levels, max(1, problem.levels)), sizes)
    passes: list[Pass] = []
    made: dict[tuple[int, bool], Pass] = {}
    left = problem.levels
    while left > 0:
        levels, has_statics = min(sizes.levels, left), bool(passes) and sizes.keeps_statics
        if (levels, has_statics) not in made:
            slab = _slab_within(problem, scheme, levels, sizes, window)
            one = scheme.make_pass(problem, levels, replace(sizes, levels=levels, slab=slab))
            made[levels, has_statics] = without_statics(one) if has_statics else one
        passes.append(made[levels, has_statics])
        left -= levels
    return window, tuple(passes)


def _with_staging(
    problem: Problem, sizes: Sizes, machine: Machine, window: Window, acquisition: AcquisitionMemory, budget_bytes: int
) -> AcquisitionMemory:
    if not acquisition.staging.slots:
        return acquisition
    return replace(acquisition, staging=_staging(problem, sizes, machine, budget_bytes - window.bytes))


def _staging(problem: Problem, sizes: Sizes, machine: Machine, spare_bytes: int) -> Staging:
    return fit_staging(problem, sizes, machine.threads, MIN_STAGING.bytes + max(0, spare_bytes))


def without_statics(one: Pass) -> Pass:
    """Return a copy of the pass without the reads of static fields. This copy is for a run that already has these
    fields in memory."""
    kept = (action for action in one.actions if not (isinstance(action, Read) and action.array == "statics"))
    return replace(one, actions=tuple(kept))


def _slab_within(problem: Problem, scheme: Scheme, levels: int, sizes: Sizes, window: Window) -> int:
    """Return the largest slab with which a pass of `levels` levels fits `window`, but at most the slab of `sizes`. The
    slab of `sizes` may be too thick, because a pass with fewer levels may need more planes in one of the rings."""
    slab = sizes.slab
    while slab > 1 and not window.holds(scheme.window(problem, levels, replace(sizes, slab=slab))):
        slab -= 1
    return slab


def _ranked(
    problem: Problem, every: Sequence[_Listed], machine: Machine, budget_bytes: int, rate: UpdateRate
) -> Iterator[_Ranked]:
    """Yield all sizes, sorted by the cost that the formulas give. The sizes with the lowest cost are the first.

    Snapshots only add to a cost, and their cost takes long to compute. It is computed only for sizes that may be the
    next ones: those that cost less without snapshots than the next sizes cost with snapshots."""

    def key(seconds: float, place: int) -> tuple[float, int, int]:
        return seconds, -every[place].sizes.slab, place

    def ranked(seconds: float, place: int) -> _Ranked:
        return _Ranked(seconds, every[place].scheme, every[place].sizes)

    least = sorted(key(_rough_seconds(problem, one, machine, rate), place) for place, one in enumerate(every))
    if not problem.acquisition.snapshots:
        yield from (ranked(seconds, place) for seconds, _, place in least)
        return
    waiting: list[tuple[float, int, int]] = []
    for one in least:
        while waiting and waiting[0] < one:
            seconds, _, place = waiting.pop(0)
            yield ranked(seconds, place)
        place = one[2]
        snapshots = _rough_snapshots(problem, every[place], machine, budget_bytes)
        insort(waiting, key(_rough_seconds(problem, every[place], machine, rate, snapshots), place))
    yield from (ranked(seconds, place) for seconds, _, place in waiting)


def _worth_building(
    problem: Problem, every: Sequence[_Listed], machine: Machine, budget_bytes: int, rate: UpdateRate
) -> list[_Ranked]:
    """Return the best candidates. If all of them have static fields in the same place, also return the best candidate
    with static fields in the other place. The formulas are not exact enough to exclude this candidate."""
    first = list(islice(_ranked(problem, every, machine, budget_bytes, rate), BUILT))
    if first[0].seconds == float("inf"):
        return first[:1]
    best = [one for one in first if one.seconds < float("inf")]
    places = {place_of(one.sizes) for one in best}
    others = [one for one in every if place_of(one.sizes) not in places]
    elsewhere = islice(_ranked(problem, others, machine, budget_bytes, rate), 1)
    return [*best, *(one for one in elsewhere if one.seconds < float("inf"))]


def _rough_snapshots(problem: Problem, one: _Listed, machine: Machine, budget_bytes: int) -> SnapshotWrites:
    """Return the snapshots of the first pass."""
    sizes = one.sizes
    spare_bytes = budget_bytes - one.scheme.window(problem, sizes.levels, sizes).bytes
    tiled, steps = with_tiles(problem, sizes, DIAMONDS[0], machine.threads), problem.steps_of(sizes.levels)
    staging, first_step = _staging(problem, tiled, machine, spare_bytes), problem.acquisition.first_step
    return snapshot_writes(problem, tiled, staging, machine.threads, first_step, steps)


def _rough_seconds(
    problem: Problem, one: _Listed, machine: Machine, rate: UpdateRate, snapshots: SnapshotWrites = NO_WRITES
) -> float:
    """Return the rough cost by formulas. The cost is the time of the cores or the time of the transfers, whichever is
    longer. The time of the exposed transfers is added, because no update takes place during these transfers."""
    sizes, volume, device = one.sizes, one.volume, machine.device
    values = len(problem.computed) if sizes.block_y else 0
    if volume.slabs > MAX_SLABS or volume.slabs * values > MAX_VALUE_SLABS:
        return float("inf")
    shared = min(volume.bytes_read, volume.bytes_written)
    alone = volume.bytes_read - shared, volume.bytes_written - shared
    transfers = 2 * shared / device.mixed_bytes_per_second
    transfers += alone[0] / device.read_bytes_per_second + alone[1] / device.write_bytes_per_second
    updates = volume.cell_updates / rate(sizes) + SLAB_SECONDS * volume.slabs
    updates += (volume.bytes_read + volume.bytes_written) / machine.checksum_bytes_per_second
    updates += volume.requests * REQUEST_SECONDS / machine.threads
    transfers += snapshot_seconds_device(snapshots, device)
    updates += snapshot_seconds_aside(snapshots, machine)
    exposed = volume.exposed_bytes / device.mixed_bytes_per_second + device.seconds_flush
    return (max(updates, transfers) + exposed) * problem.levels / sizes.levels


def _rough_rate(problem: Problem, cells_per_second: float) -> UpdateRate:
    """Return an assumed update rate, because the number of candidates is too large for measurements. In thick slabs, it
    is the given rate. In thin slabs, it is lower."""

    def rate(sizes: Sizes) -> float:
        return cells_per_second / edge_factor(problem, sizes, diamond=8) / (3 if sizes.levels == 1 else 1)

    return rate


def tilings(problem: Problem, scheme: Scheme, sizes: Sizes, machine: Machine) -> Iterable[Sizes]:
    """Yield the cache tilings that are worth a measurement for the given levels and slab. The most promising tiling is
    the first.

    A tile's working set is about 4 r^2 D^2 rows, or 2 r D planes of few rows. The working set should fit into the
    second-level cache, or at least into a thread's share of the last-level cache. Threads are idle in three cases: if
    diamonds are higher than the number of levels, if diamonds are wider than a thread's share of the rows, or if there
    are fewer bands than threads. With many fields, the best working set may be larger than this rule allows, so at
    least TILINGS tilings are tried.
    """
    if scheme.sweeps:
        block_rows = min(SWEEP_ROWS, key=lambda rows: abs(6 * rows * problem.pitch_bytes - machine.cache_bytes))
        rows = max(1, min(block_rows, problem.shape[1] // machine.threads))
        yield replace(with_tiles(problem, sizes, 0, machine.threads), sweep_rows=rows)
        return
    if scheme.diamond:  # the user has given this size
        yield with_tiles(problem, sizes, scheme.diamond, machine.threads)
        return
    share = max(machine.cache_bytes, machine.last_cache_bytes // (2 * machine.threads))
    useful = _useful_diamonds(problem, sizes.levels, machine.threads)
    rows = problem.shape[1]
    values = problem.histories + len(problem.recomputed)  # each level uses only a few of these values
    rings = problem.rings - values + values // problem.listed_steps
    row_bytes = 2 * rings * problem.skew_z * problem.pitch_bytes
    fitting = [one for one in useful if row_bytes * one * min(problem.skew_y * max(1, one), rows) <= share]
    larger = useful[len(fitting) :][: max(0, TILINGS - len(fitting))]
    for diamond in (*reversed(fitting[-TILINGS:]), *larger):
        yield with_tiles(problem, sizes, diamond, machine.threads)


def _useful_diamonds(problem: Problem, levels: int, threads: int) -> list[int]:
    """Return the half heights that give enough tiles for all threads. If no half height gives enough tiles, return the
    smallest one."""
    if shares_planes(problem, threads):
        each = [one for one in (1, *DIAMONDS) if 2 * one * threads <= levels]
        return [one for one in each if problem.skew_z * one * threads <= problem.planes] or [0, 1][:levels]
    extent, skew = problem.shape[1], problem.skew_y
    is_serial = _has_few_rows(problem, threads)
    return [one for one in DIAMONDS if one <= levels and (is_serial or skew * one * threads <= extent)] or [DIAMONDS[0]]


def shares_planes(problem: Problem, threads: int) -> bool:
    """Return True if threads share the streaming axis. They do this if the grid has too few rows for all threads, but
    enough planes."""
    return _has_few_rows(problem, threads) and problem.planes >= 2 * threads


def _has_few_rows(problem: Problem, threads: int) -> bool:
    return problem.skew_y * DIAMONDS[0] * threads > problem.shape[1]


def with_tiles(problem: Problem, sizes: Sizes, diamond: int, threads: int) -> Sizes:
    """Return a copy of `sizes` with tiles of 2 * `diamond` levels, or with plain sweeps if `diamond` is 0. The tiles
    divide the rows, or the planes if the grid has few rows."""
    if not shares_planes(problem, threads):
        return replace(sizes, diamond=diamond, chunk=0)
    lean = 2 * diamond * problem.skew_z or SWEEP_LEAN
    bands = -(-sizes.levels // max(1, 2 * diamond))
    wanted = max(CHUNK_LEANS * lean, sizes.slab * bands // MAX_CHUNKS)
    share = min(sizes.slab, problem.planes) // (2 * threads)
    chunk = round_down(min(wanted, share), sizes.planes_per_call)
    return replace(sizes, diamond=diamond, chunk=max(sizes.planes_per_call, chunk))
