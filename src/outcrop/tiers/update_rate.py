"""This module measures the update rate of this machine for given kernels and tilings. All measurements together take a
few seconds. The measured rates are kept in the cache of the user. So later runs of the same kernel need no measurement
if their planes have the same shape."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import median

from outcrop import _core
from outcrop.language.compile import Calls
from outcrop.language.program import Apply
from outcrop.language.stencil import Stencil
from outcrop.plan.actions import Rectangle, UpdateRegion
from outcrop.plan.machine import edge_factor
from outcrop.plan.memory import slot_bytes, slots_within, whole_slot_bytes
from outcrop.plan.plan import Sizes
from outcrop.plan.problem import NO_DEMAND, Problem
from outcrop.plan.schemes.deep_halo import DeepHalo, bounded
from outcrop.plan.schemes.wavefront import blocks_in_y
from outcrop.plan.tuner import with_tiles
from outcrop.tiers.measure import keep_factor, kept_factor
from outcrop.user_cache import keep_figures, key_of, load_figures

CACHE = "updates.json"
SECONDS_KEPT = 30 * 24 * 3600.0
"""The time after which a rate in the cache is measured again."""
LEVELS_MEASURED = 48
WINDOW_BYTES = 1 << 30
"""The size of the window for measurements. The window for measurements is much larger than the caches, but small enough
to be allocated quickly."""
UPDATES_PER_MEASUREMENT = 600_000_000
"""The number of cell updates in a measurement of a heat equation in float32. For slower stencils, and for values of
more bytes, a measurement has fewer updates."""
FLOAT32_BYTES = 4
TURNS = 3
"""The maximum number of times that the same sizes are measured in a comparison."""
REFERENCES = 3
"""The maximum number of known rates that are measured again to find the present speed of the machine. A single known
rate can be too high by chance, because the highest rates are chosen."""
PROMISING = 0.88
"""In a comparison, sizes are measured again if their rate is at least PROMISING times the highest rate."""
MIN_SECONDS, MAX_SECONDS = 2.0, 6.0
SHARE_OF_RUN = 0.05
SHORTEST_SECONDS = 1e-6
"""The time limit for measurements if `only_one` is true. The limit is shorter than any measurement, so the meter makes
only one measurement."""
MIN_REPEATS, MAX_REPEATS = 1, 40
"""The minimum and the maximum number of slabs in a measurement. Before the measurement, the meter updates one more
slab, which does not count."""
AGAIN_SECONDS = 0.4
"""The minimum duration of a measurement that `measure_again` makes."""
MAX_SETTLE_SECONDS = 3.0
SETTLED = 1.03
"""Measurements are repeated as long as each new rate is more than SETTLED times the previous rate."""
LUCK = 1.1
"""A short measurement can be wrong by the factor LUCK. A run corrects the rate of its sizes by at most the factor
LUCK."""
ASSUMED_CELLS_PER_SECOND = 1e9
EXPECTED_CELLS_PER_SECOND = 5e9
HEAT_OPERATIONS = 8
"""The additions and multiplications of one cell update of the heat equation `heat7`."""


@dataclass(frozen=True)
class KeptRate:
    """A measured update rate in the user's cache, and the time of the measurement in seconds since 1970."""

    updates_per_second: float
    seconds_measured: float


@dataclass(frozen=True)
class RateOfPlan:
    """The rate that a plan uses, and the keys in the user's cache for the two factors of the rate. The rate that a plan
    uses is the product of the rate of the plan's sizes and the factor of the kernel."""

    key: str
    updates_per_second: float
    factor_key: str
    factor: float
    epoch: int

    def keep_run(self, ratio: float) -> None:
        """Correct the cache after a run whose updates have taken `ratio` times as long as predicted. The tuner chooses
        the sizes with the highest rate, so this rate is often too high by chance. Therefore a ratio between 1 / LUCK
        and LUCK corrects only the rate of the chosen sizes. With any other ratio, the speed of the machine has changed,
        and the rest of the ratio corrects the factor of all sizes."""
        own = max(1 / LUCK, min(LUCK, ratio))
        keep_figures(CACHE, {self.key: KeptRate(self.updates_per_second / own, time.time())})
        keep_factor(self.factor_key, self.factor * own / ratio, self.epoch)


def work_per_update(stencil: Stencil) -> float:
    """Return the work of a cell update relative to `heat7`, but at least 1. The work of a stencil is the mean number of
    operations in a stage."""
    programs = [stage.program for stage in stencil.stages]
    operations = sum(
        isinstance(operation, Apply) and not uniform
        for program in programs
        for operation, uniform in zip(program.operations, program.uniform, strict=True)
    )
    return max(1.0, operations / len(programs) / HEAT_OPERATIONS)


class UpdateRateMeter:
    """An object that is called with sizes and returns an update rate. The update rate is the number of cell updates per
    second of all threads together. The meter measures the rate with updates of slabs of one block.

    The meter uses at most `budget_bytes` of memory. All measurements of a meter together take a twentieth of the
    expected time of the run, but at least 2 s and at most 6 s. Before its first measurement, the meter can wait up to 3
    s until the speed of the machine is constant. If `measure` is false, or if the time for measurements is used up, the
    meter does not measure. A meter that does not measure returns the rate of the most similar measured sizes. If no
    sizes were measured, the meter returns an assumed rate.

    If `kernel` is given, the meter first looks in the cache of the user for rates that earlier runs have measured. The
    text `kernel` must identify the code of the kernel and the processor. `keep` writes new rates to the cache. If the
    first rate comes from the cache, the meter multiplies all rates by `factor`. The last long run of the kernel has
    measured `factor` (measure.py). If the meter measures sizes that are not in the cache, it also measures the factor
    again.
    """

    def __init__(
        self,
        problem: Problem,
        calls: Calls,
        scalars: bytes,
        threads: int,
        budget_bytes: int,
        measure: bool = True,
        bind: str = "none",
        work: float = 1.0,
        lead_scalars: bytes = b"",
        only_one: bool = False,
        kernel: str = "",
        has_factor: bool = True,
    ) -> None:
        """Make a meter. `work` is the time of an update relative to the time of an update of a heat equation. If `work`
        is larger, a measurement has fewer updates. If passes recompute steps of a forward run, `lead_scalars` contains
        the scalars of these steps. If `only_one` is true, the meter measures only the first sizes that it gets. If
        `has_factor` is false, the factor is always 1."""
        slots = slots_within(problem, whole_slot_bytes(problem), min(budget_bytes, WINDOW_BYTES))
        self._problem, self._threads, self._ring_planes = problem, threads, slots // problem.rings
        self._given = problem, problem.fields, calls, scalars, threads, self._ring_planes, bind, lead_scalars
        self._meter: _core.UpdateMeter | None = None
        self._known: dict[Sizes, float] = {}
        self._new: set[Sizes] = set()
        # The key is made for a problem of one plane and one step, because the rate does not depend on the number of
        # planes and steps.
        alike = replace(problem, shape=(1, *problem.shape[1:]), steps=1, acquisition=NO_DEMAND)
        self._kernel = f"{kernel} {threads} {bind} {alike}" if kernel else ""
        self._kept = load_figures(CACHE, KeptRate) if kernel and measure else {}
        self._factor_key = f"updates {self._kernel}"
        last = kept_factor(self._factor_key) if self._kept and has_factor else None
        self.factor, self._epoch = (last.factor, last.epoch) if last else (1.0, 0)
        self._only_one, self._has_factor = only_one, has_factor
        self._updates_per_measurement = int(UPDATES_PER_MEASUREMENT / work * FLOAT32_BYTES / problem.item_bytes)
        expected = problem.cells * problem.levels * work / EXPECTED_CELLS_PER_SECOND
        seconds = SHORTEST_SECONDS if only_one else max(MIN_SECONDS, min(MAX_SECONDS, SHARE_OF_RUN * expected))
        self._may_measure, self._seconds_left = measure, seconds if measure else 0.0

    @property
    def is_measured(self) -> bool:
        """True if the meter returns measured rates. False if the meter returns assumed rates."""
        return bool(self._known)

    @property
    def origin(self) -> str:
        """ "measured" if rates were measured now, "cached" if all rates come from the user's cache, or "assumed"."""
        return "measured" if self._new else "cached" if self._known else "assumed"

    def __call__(self, sizes: Sizes) -> float:
        problem, reduced = self._problem, self._reduce(sizes)
        if not self._recall(reduced):
            if self._seconds_left <= 0 or not self._fits(reduced):
                return self._guess(sizes)
            if self._known and not self._new and self._has_factor:
                self._measure_factor()
            rate = self._timed(reduced)
            self._known[reduced] = rate / self.factor
            self._new.add(reduced)
        factors = edge_factor(problem, reduced) / edge_factor(problem, sizes)
        return self._known[reduced] * factors * self.factor

    def compare(self, several: Iterable[Sizes]) -> None:
        """Measure the rates of several sizes alternately, so that a change of the machine's speed affects all sizes
        equally. The result for each choice of sizes is its highest rate. Slow sizes are measured only once."""
        every = dict.fromkeys(map(self._reduce, several))
        unknown = [one for one in every if not self._recall(one) and self._fits(one)]
        if not unknown:
            return
        known = self._fastest_known() if self._has_factor else []
        left = [*known[:1], *unknown, *known[1:]]  # other known sizes come last, because the time can be used up
        rates: dict[Sizes, list[float]] = {}
        for _ in range(TURNS):
            for one in left:
                if self._seconds_left > 0:
                    rates.setdefault(one, []).append(self._timed(one))
            fastest = max((max(each) for each in rates.values()), default=0.0)
            left = [one for one, each in rates.items() if max(each) >= PROMISING * fastest]
        if not rates:
            return
        # The highest rate of each choice of sizes is good for comparisons, but a run usually has a lower rate. So all
        # new rates are multiplied by the same number. The number is chosen so that the reference sizes get their usual
        # rates. If rates were known before, the reference sizes are the sizes with the highest known rates, and their
        # usual rates are the known rates. If no rates were known, the reference sizes are the fastest sizes, and their
        # usual rate is the median of their rates.
        if references := [one for one in known if one in rates]:
            self.factor = median(median(rates[one]) / self._known[one] for one in references)
            usual = median(self._known[one] / max(rates[one]) for one in references)
        else:
            fastest_rates = max(rates.values(), key=max)
            usual = median(fastest_rates) / self.factor / max(fastest_rates)
        for one in unknown:
            if one in rates:
                self._known[one] = usual * max(rates[one])
                self._new.add(one)

    def keep(self) -> None:
        """Write the new rates to the user's cache. Also write the factor by which the new rates were divided."""
        if self._kernel and self._new:
            now = time.time()
            keep_figures(CACHE, {self._key(one): KeptRate(self._known[one], now) for one in self._new})
            if self._has_factor:
                keep_factor(self._factor_key, self.factor, self._epoch)

    def of_plan(self, sizes: Sizes) -> RateOfPlan | None:
        """Return the known rate for the sizes of a plan. Return None if the rate is not known, or if the meter does not
        use the user's cache. Also return None if the plan has blocks along x or z, because the cache has no rates for
        such blocks."""
        rate = self._known.get(reduced := self._reduce(sizes))
        if rate is None or not self._kernel or sizes.block_x or sizes.block_z:
            return None
        return RateOfPlan(self._key(reduced), rate, self._factor_key, self.factor, self._epoch)

    def _recall(self, reduced: Sizes) -> bool:
        """Return True if the rate of the given sizes is known. If the user's cache has the rate, use the cached
        rate."""
        if reduced in self._known:
            return True
        kept = self._kept.get(self._key(reduced)) if self._kept else None
        if kept is None or not 0 <= time.time() - kept.seconds_measured < SECONDS_KEPT:
            return False
        self._known[reduced] = kept.updates_per_second
        if self._only_one:
            self._seconds_left = 0.0
        return True

    def _key(self, reduced: Sizes) -> str:
        return key_of(f"{self._kernel} {self._epoch} {reduced}")

    def _fastest_known(self) -> list[Sizes]:
        """Return the known sizes with the highest rates, at most REFERENCES sizes. If a measurement of cached sizes
        does not fit the memory of this meter, the sizes are left out."""
        fitting = filter(self._fits, self._known)
        return sorted(fitting, key=lambda one: self._known[one], reverse=True)[:REFERENCES]

    def _measure_factor(self) -> None:
        """Measure the fastest sizes in the cache again, and set the factor to the ratio of the new and the known rates.
        New rates are divided by the factor before they are kept. The factor of the last run is not exact enough for new
        rates. It is possible that the last run had other sizes, or that the speed of the machine has changed since the
        last run."""
        if known := self._fastest_known():
            self.factor = median([self._timed(one) / self._known[one] for one in known])

    def _timed(self, reduced: Sizes) -> float:
        """Measure and return the rate of sizes. Subtract the time of the measurement from the remaining time for
        measurements."""
        if not self._known and not 1 / LUCK <= self.factor <= LUCK:
            # If no known rate can be measured again, the meter cannot find out whether the factor is still right.
            self.factor, self._epoch = 1.0, self._epoch + 1
        if self._meter is None:
            self._meter = _core.UpdateMeter(*self._given)
            self._settle(self._meter, reduced)
        start = time.perf_counter()
        rate = self._measure(self._meter, reduced)
        self._seconds_left -= time.perf_counter() - start
        if self._only_one:
            self._meter = None  # releases its memory, because there are other meters
        return rate

    def can_measure(self, sizes: Sizes) -> bool:
        """Return True if the meter is allowed to measure, and if its memory is large enough for a slab of one plane."""
        return self._may_measure and self._fits(self._reduce(sizes))

    def measure_again(self, sizes: Sizes) -> None:
        """Measure the rate of the given sizes again, for at least AGAIN_SECONDS. The new rate replaces the earlier rate
        of the same sizes. `can_measure(sizes)` must be true."""
        reduced, rates = self._reduce(sizes), list[float]()
        rates.append(self._timed(reduced))
        end = time.perf_counter() + AGAIN_SECONDS
        while time.perf_counter() < end:
            rates.append(self._timed(reduced))
        self._known[reduced] = median(rates) / self.factor
        self._new.add(reduced)

    def _reduce(self, sizes: Sizes) -> Sizes:
        """Return sizes whose rate is similar to the rate of `sizes`, but with fewer levels and planes. So a measurement
        of the returned sizes is short, and the available memory is large enough. If several sizes differ only in a
        large number of levels, the result is the same for all. So a measurement does not show how the rate depends on a
        large number of levels. `edge_factor` corrects for the number of planes. In a pass of more levels, there are
        also a few more ranges of columns, because the ranges move with each level. The additional ranges have only a
        small effect, so no factor corrects for them. The total number of cells in all ranges is the same, and the rows
        in a range are long.
        """
        problem = self._problem
        # with this number of levels, each thread has two bands
        bands = 4 * sizes.diamond * self._threads if sizes.chunk else 0
        levels = min(sizes.levels, max(LEVELS_MEASURED, bands))
        # The memory must be large enough for the halos of the measured levels. The halos of all levels of a pass are
        # larger, but a measurement does not need them.
        planes, cells = self._planes(sizes, levels)
        slab = min(sizes.slab, max(8, self._updates_per_measurement // (levels * cells)))
        # For a thin slab, the rate depends strongly on the number of planes. So the number of levels and the number of
        # planes are reduced in the same proportion.
        first_levels, first_slab = levels, slab
        while levels * slab > 1 and _core.UpdateMeter.planes_needed(problem, levels, slab) > planes:
            if slab == 1 or (levels > 1 and levels * first_slab >= slab * first_levels):
                levels -= 1
                planes, _ = self._planes(sizes, levels)
            else:
                slab -= 1
        reduced = replace(sizes, slab=slab, levels=levels, block_x=0, block_z=0, keeps_statics=False)
        return with_tiles(problem, reduced, sizes.diamond, self._threads) if sizes.chunk else reduced

    def _planes(self, sizes: Sizes, levels: int) -> tuple[int, int]:
        """Return two numbers for measurements of `sizes` with `levels` levels: the number of planes that a ring can
        have, and the number of cells of a plane."""
        frame, _ = _block(self._problem, replace(sizes, levels=levels))
        bytes_of_ring = self._ring_planes * whole_slot_bytes(self._problem)
        return bytes_of_ring // slot_bytes(self._problem, frame), frame.cells

    def _fits(self, reduced: Sizes) -> bool:
        """Return True if the memory is large enough for a measurement of the sizes `reduced`."""
        planes, _ = self._planes(reduced, reduced.levels)
        return _core.UpdateMeter.planes_needed(self._problem, reduced.levels, reduced.slab) <= planes

    def _settle(self, meter: _core.UpdateMeter, sizes: Sizes) -> None:
        """Repeat measurements until the rate no longer grows. The first measured rate can be too low, because newly
        allocated memory is slow at first. On virtual machines, newly allocated memory can be slow for seconds."""
        end = time.perf_counter() + MAX_SETTLE_SECONDS
        before, now = 0.0, self._measure(meter, sizes)
        while now > SETTLED * before and time.perf_counter() < end:
            before, now = now, self._measure(meter, sizes)

    def _measure(self, meter: _core.UpdateMeter, sizes: Sizes) -> float:
        """Return the median of the rates of several slabs. If only two slabs are measured, return the higher rate. A
        measurement of one slab is too short, because a thin slab of a narrow block takes only a few milliseconds."""
        frame, region = _block(self._problem, sizes)
        repeats = self._updates_per_measurement // (sizes.slab * sizes.levels * frame.cells)
        rates = meter.measure(sizes, frame, region, max(MIN_REPEATS, min(MAX_REPEATS, repeats)))
        return sorted(rates, reverse=True)[(len(rates) - 1) // 2]

    def _guess(self, sizes: Sizes) -> float:
        """Estimate the rate of `sizes` from the rate of the most similar measured sizes."""

        def distance(known: Sizes) -> float:
            slabs = abs(known.slab - sizes.slab) / max(known.slab, sizes.slab)
            names = "block_y", "rows_at_once", "prefetch", "columns"
            others: int = sum(getattr(known, name) != getattr(sizes, name) for name in names)
            return abs(known.diamond - sizes.diamond) + slabs + others

        if not self._known:
            return ASSUMED_CELLS_PER_SECOND
        nearest = min(self._known, key=distance)
        factors = self.factor * edge_factor(self._problem, nearest) / edge_factor(self._problem, sizes)
        return self._known[nearest] * factors


def _block(problem: Problem, sizes: Sizes) -> tuple[Rectangle, UpdateRegion]:
    """Return the frame and the update region of a block of the wavefront scheme, in the middle of the grid. If the rows
    of a rank are one block, the frame includes the halos of deep halos. With deep halos, the region has fewer rows at
    each level. The ends of a region with fewer rows at each level cut tiles into smaller pieces. The cut tiles make
    updates slower. Schemes other than the wavefront scheme have blocks with other regions. For example, ranks with
    split tiling have no deep halos."""
    cut, region = blocks_in_y(problem, sizes.levels, sizes), DeepHalo(problem, sizes.levels).region
    if cut.count == 1:
        return problem.frame(sizes.levels), region
    block = cut.blocks[cut.count // 2]
    return problem.frame_of(cut.cells(block.frame())), bounded(block, region)
