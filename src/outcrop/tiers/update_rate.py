"""This module measures the update rate of this machine for given kernels and tilings. All measurements together take a
few seconds."""

from __future__ import annotations

import time
from dataclasses import replace
from statistics import median

from outcrop import _core
from outcrop.language.compile import Calls
from outcrop.language.program import Apply
from outcrop.language.stencil import Stencil
from outcrop.plan.actions import EVERYTHING, Rectangle, UpdateRegion
from outcrop.plan.machine import edge_factor
from outcrop.plan.memory import slot_bytes, slots_within, whole_slot_bytes
from outcrop.plan.plan import Sizes
from outcrop.plan.problem import Problem
from outcrop.plan.schemes.deep_halo import DeepHalo, bounded
from outcrop.plan.schemes.wavefront import blocks_in_y
from outcrop.plan.tuner import with_tiles

LEVELS_MEASURED = 48
WINDOW_BYTES = 1 << 30
"""The size of the window for measurements. The window is much larger than the caches, but it can be allocated
quickly."""
UPDATES_PER_MEASUREMENT = 1_200_000_000
"""The number of cell updates in a measurement of a heat equation. Slower stencils are measured with fewer updates."""
MIN_SECONDS, MAX_SECONDS = 2.0, 6.0
SHARE_OF_RUN = 0.05
SHORTEST_SECONDS = 1e-6
"""The time limit for measurements if `only_one` is true. The limit is shorter than any measurement, so the meter
measures only once."""
MIN_REPEATS, MAX_REPEATS = 2, 40
"""The minimum and the maximum number of slabs in a measurement. One more slab is updated before the measurement, and
does not count."""
AGAIN_SECONDS = 0.4
"""The minimum duration of a measurement that `measure_again` makes."""
MAX_SETTLE_SECONDS = 3.0
SETTLED = 1.03
"""Measurements are repeated until the rate is at most this factor higher than in the previous measurement."""
ASSUMED_CELLS_PER_SECOND = 1e9
EXPECTED_CELLS_PER_SECOND = 5e9
HEAT_OPERATIONS = 8
"""The additions and multiplications of one cell update of the heat equation `heat7`."""


def work_per_update(stencil: Stencil) -> float:
    """Return the work of a cell update relative to `heat7`, but at least 1. The work is the mean number of operations
    of a stage."""
    programs = [stage.program for stage in stencil.stages]
    operations = sum(
        isinstance(operation, Apply) and not uniform
        for program in programs
        for operation, uniform in zip(program.operations, program.uniform, strict=True)
    )
    return max(1.0, operations / len(programs) / HEAT_OPERATIONS)


class UpdateRateMeter:
    """A callable object that takes sizes and returns an update rate: the number of cell updates per second of all
    threads together. The rate is measured on slabs of a block.

    The meter uses at most `budget_bytes` of memory. Its measurements take a twentieth of the expected time of the run,
    but at least 2 s and at most 6 s. Before its first measurement, the meter may wait up to 3 s until the speed of the
    machine is constant. The meter does not measure if `measure` is false, or if the time for measurements is used up.
    Then the meter returns the rate of the most similar measured sizes. If no sizes were measured, the meter returns an
    assumed rate.
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
    ) -> None:
        """Make a meter. `work` is the time of an update relative to the time of an update of a heat equation. Fewer
        updates are measured if `work` is larger. If passes compute steps of a forward run again, `lead_scalars`
        contains the scalars of these steps. If `only_one` is true, the meter measures only the first sizes that it
        gets."""
        slots = slots_within(problem, whole_slot_bytes(problem), min(budget_bytes, WINDOW_BYTES))
        self._problem, self._threads, self._ring_planes = problem, threads, slots // problem.rings
        self._given = problem, problem.fields, calls, scalars, threads, self._ring_planes, bind, lead_scalars
        self._meter: _core.UpdateMeter | None = None
        self._known: dict[Sizes, float] = {}
        self._updates_per_measurement = int(UPDATES_PER_MEASUREMENT / work)
        expected = problem.cells * problem.levels * work / EXPECTED_CELLS_PER_SECOND
        possible = self._ring_planes >= _core.UpdateMeter.planes_needed(problem, 1, 1)
        seconds = SHORTEST_SECONDS if only_one else max(MIN_SECONDS, min(MAX_SECONDS, SHARE_OF_RUN * expected))
        self._seconds_left = seconds if measure and possible else 0.0

    @property
    def is_measured(self) -> bool:
        """True if the rates that the meter returns are measured, and False if they are assumed."""
        return bool(self._known)

    def __call__(self, sizes: Sizes) -> float:
        problem, reduced = self._problem, self._reduce(sizes)
        if reduced not in self._known:
            if self._seconds_left <= 0:
                return self._guess(sizes)
            if self._meter is None:
                self._meter = _core.UpdateMeter(*self._given)
                self._settle(self._meter, reduced)
            start = time.perf_counter()
            self._known[reduced] = self._measure(self._meter, reduced)
            self._seconds_left -= time.perf_counter() - start
        factors = edge_factor(problem, reduced) / edge_factor(problem, sizes)
        return self._known[reduced] * factors

    def measure_again(self, sizes: Sizes) -> None:
        """Measure the rate of some sizes, for at least AGAIN_SECONDS. An earlier rate of these sizes is replaced. The
        meter must already have measured other sizes before this call."""
        assert self._meter is not None, "the meter has measured nothing yet"
        reduced, end, rates = self._reduce(sizes), time.perf_counter() + AGAIN_SECONDS, list[float]()
        while not rates or time.perf_counter() < end:
            rates.append(self._measure(self._meter, reduced))
        self._known[reduced] = median(rates)

    def _reduce(self, sizes: Sizes) -> Sizes:
        """Return sizes with the same rate, but with fewer levels and planes, so that a measurement is short and needs
        no more memory than is available."""
        problem = self._problem
        frame, _ = _block(problem, sizes)
        planes = self._ring_planes * whole_slot_bytes(problem) // slot_bytes(problem, frame)
        # these planes are enough for two bands for each thread
        bands = 4 * sizes.diamond * self._threads if sizes.chunk else 0
        levels = min(sizes.levels, max(LEVELS_MEASURED, bands))
        slab = min(sizes.slab, max(8, self._updates_per_measurement // (levels * frame.cells)))
        # if the slab is thin, the rate depends most on the slab, so levels and planes are reduced in the same
        # proportion
        first_levels, first_slab = levels, slab
        while levels * slab > 1 and _core.UpdateMeter.planes_needed(problem, levels, slab) > planes:
            if slab == 1 or (levels > 1 and levels * first_slab >= slab * first_levels):
                levels -= 1
            else:
                slab -= 1
        reduced = replace(sizes, slab=slab, levels=levels, block_x=0, block_z=0, keeps_statics=False)
        return with_tiles(problem, reduced, sizes.diamond, self._threads) if sizes.chunk else reduced

    def _settle(self, meter: _core.UpdateMeter, sizes: Sizes) -> None:
        """Repeat measurements until the rate no longer grows. The first rate can be too low, because newly allocated
        memory is slow at first. On virtual machines, new memory can be slow for seconds."""
        end = time.perf_counter() + MAX_SETTLE_SECONDS
        before, now = 0.0, self._measure(meter, sizes)
        while now > SETTLED * before and time.perf_counter() < end:
            before, now = now, self._measure(meter, sizes)

    def _measure(self, meter: _core.UpdateMeter, sizes: Sizes) -> float:
        """Return the median of the rates of several slabs. For two slabs, return the higher rate. One slab is not
        enough, because a thin slab of a narrow block takes only a few milliseconds."""
        frame, region = _block(self._problem, sizes)
        repeats = self._updates_per_measurement // (sizes.slab * sizes.levels * frame.cells)
        rates = meter.measure(sizes, frame, region, max(MIN_REPEATS, min(MAX_REPEATS, repeats)))
        return sorted(rates, reverse=True)[(len(rates) - 1) // 2]

    def _guess(self, sizes: Sizes) -> float:
        """Return an estimate of the rate from the rate of the most similar measured sizes."""

        def distance(known: Sizes) -> float:
            slabs = abs(known.slab - sizes.slab) / max(known.slab, sizes.slab)
            others = (known.block_y != sizes.block_y) + (known.rows_at_once != sizes.rows_at_once)
            return abs(known.diamond - sizes.diamond) + slabs + others

        if not self._known:
            return ASSUMED_CELLS_PER_SECOND
        nearest = min(self._known, key=distance)
        return self._known[nearest] * edge_factor(self._problem, nearest) / edge_factor(self._problem, sizes)


def _block(problem: Problem, sizes: Sizes) -> tuple[Rectangle, UpdateRegion]:
    """Return the frame and the update region of a block of the wavefront scheme, in the middle of the grid."""
    cut = blocks_in_y(problem, sizes.levels, sizes)
    if cut.count == 1:
        return problem.whole_plane, EVERYTHING
    block = cut.blocks[cut.count // 2]
    region = DeepHalo(problem, sizes.levels).region if problem.is_part else EVERYTHING
    return problem.frame_of(cut.cells(block.frame())), bounded(block, region)
