"""Choose sizes: list what a scheme could do in the budget, cost each by the model, take the cheapest.

Two rounds, because the update rate is measured and measuring takes time: the first ranks levels and slabs with
one assumed diamond per cache level, the second measures the best few with several diamonds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

from outcrop.plan.actions import Read
from outcrop.plan.candidate import Candidate
from outcrop.plan.given_sizes import STEPS_OF_PASS_MOST
from outcrop.plan.machine import Machine, UpdateRate
from outcrop.plan.model import REQUEST_SECONDS, SLAB_SECONDS, edge_factor, predict
from outcrop.plan.only_read import place_of, taken
from outcrop.plan.plan import Pass, Plan, Sizes
from outcrop.plan.problem import Problem
from outcrop.plan.schemes.scheme import Scheme
from outcrop.plan.tap_memory import NO_TAP_MEMORY, TapMemory
from outcrop.plan.tilings import tilings, with_tiles
from outcrop.plan.window import Window

ASSUMED_CELLS_PER_SECOND = 5e9
SLABS_MOST = 20_000
"""Plans of more slabs than that are made only where there is no other: the list of actions would outgrow the window."""
BUILT = 10
"""Candidates, best by formula, whose plans are made and costed action by action."""
SHORTLIST = 4


@dataclass(frozen=True)
class Choice:
    """The plan taken, and all that were costed action by action: the plan's own entry first, then the fastest."""

    plan: Plan
    considered: tuple[Candidate, ...]


@dataclass(frozen=True)
class _Ranked:
    """Sizes with what they roughly cost."""

    seconds: float
    scheme: Scheme
    sizes: Sizes


def tune(
    problem: Problem,
    schemes: Sequence[Scheme],
    machine: Machine,
    budget_bytes: int,
    rate: UpdateRate,
    taps: TapMemory = NO_TAP_MEMORY,
) -> Choice | None:
    """The cheapest plan, and what else was costed; None when nothing fits the budget, which is the window's. `taps` are
    beside it, and may limit the steps of a pass."""
    steps_most = min(taps.steps_most, STEPS_OF_PASS_MOST) if taps.step_bytes else STEPS_OF_PASS_MOST
    fitting = replace(problem, steps=min(problem.steps, steps_most))
    every = [(scheme, sizes) for scheme in schemes for sizes in scheme.candidates(fitting, budget_bytes)]
    if not every:
        return None
    guess = _ranked(problem, every, machine, _rough_rate(problem, ASSUMED_CELLS_PER_SECOND))[0]
    tried = next(iter(tilings(problem, guess.scheme, guess.sizes, machine)))
    rough_rate = _rough_rate(problem, rate(tried) * edge_factor(problem, tried))
    ranked = _ranked(problem, every, machine, rough_rate)

    def candidate(scheme: Scheme, sizes: Sizes, rate: UpdateRate) -> Candidate:
        plan = build(problem, scheme, sizes, machine, rate, taps)
        return Candidate(scheme.name, sizes, len(plan.passes), plan.predicted)

    coarse = [
        candidate(one.scheme, with_tiles(problem, one.sizes, tried.diamond, machine.threads), rough_rate)
        for one in _worth_building(ranked)
    ]
    coarse.sort(key=_seconds)
    first, others = coarse[0], coarse[1:]
    named = {scheme.name: scheme for scheme in schemes}
    fine = [
        candidate(named[first.scheme], sizes, rate)
        for sizes in tilings(problem, named[first.scheme], first.sizes, machine)
    ]
    fine.sort(key=_seconds)
    best_diamonds = [candidate.sizes.diamond for candidate in fine[:2]]
    for place, other in enumerate(others):
        diamonds = best_diamonds[: 2 if place < SHORTLIST else 1]
        for sizes in tilings(problem, named[other.scheme], other.sizes, machine):
            is_first_there = all(place_of(one.sizes) != place_of(sizes) for one in fine)
            if sizes.diamond in diamonds or is_first_there:
                fine.append(candidate(named[other.scheme], sizes, rate))
    chosen = taken(fine)
    rest = sorted((one for one in fine if one is not chosen), key=_seconds)
    plan = build(problem, named[chosen.scheme], chosen.sizes, machine, rate, taps)
    return Choice(plan, (chosen, *rest))


def estimate(
    problem: Problem, schemes: Sequence[Scheme], machine: Machine, budget_bytes: int, cells_per_second: float
) -> float:
    """About the seconds that the best sizes take, by formulas alone: good enough to compare problems. Updates go at
    that rate in thick slabs. Infinite when nothing fits the budget."""
    every = [(scheme, sizes) for scheme in schemes for sizes in scheme.candidates(problem, budget_bytes)]
    rate = _rough_rate(problem, cells_per_second)
    return min((_rough_seconds(problem, *one, machine, rate) for one in every), default=float("inf"))


def _seconds(candidate: Candidate) -> float:
    return candidate.seconds


def build(
    problem: Problem,
    scheme: Scheme,
    sizes: Sizes,
    machine: Machine,
    rate: UpdateRate,
    taps: TapMemory = NO_TAP_MEMORY,
) -> Plan:
    """The plan for given sizes: passes of `sizes.levels`, the last one shorter where the steps do not divide."""
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
    steps = max((one.levels for one in passes), default=0) // problem.stages
    predicted = predict(problem, tuple(passes), sizes, window, machine, rate, taps.bytes(steps))
    return Plan(problem, scheme.name, sizes, tuple(passes), window, predicted, taps)


def without_statics(one: Pass) -> Pass:
    """A pass for which fields that are only read are in memory already."""
    kept = (action for action in one.actions if not (isinstance(action, Read) and action.array == "statics"))
    return replace(one, actions=tuple(kept))


def _slab_within(problem: Problem, scheme: Scheme, levels: int, sizes: Sizes, window: Window) -> int:
    """The thickest slab, at most that of `sizes`, whose window fits the one there is: fewer levels may shift need
    from ring to ring."""
    slab = sizes.slab
    while slab > 1:
        needed = scheme.window(problem, levels, replace(sizes, slab=slab))
        if window.holds(needed):
            break
        slab -= 1
    return slab


def _ranked(
    problem: Problem, every: Sequence[tuple[Scheme, Sizes]], machine: Machine, rate: UpdateRate
) -> list[_Ranked]:
    """The cheapest by formula first."""
    ranked = [_Ranked(_rough_seconds(problem, *one, machine, rate), *one) for one in every]
    return sorted(ranked, key=lambda one: (one.seconds, -one.sizes.slab))


def _worth_building(ranked: Sequence[_Ranked]) -> list[_Ranked]:
    """The best, and the best of those that have what is only read elsewhere: formulas alone do not rule them out."""
    if ranked[0].seconds == float("inf"):
        return list(ranked[:1])
    best = [one for one in ranked[:BUILT] if one.seconds < float("inf")]
    there = {place_of(one.sizes) for one in best}
    elsewhere = (one for one in ranked[BUILT:] if place_of(one.sizes) not in there and one.seconds < float("inf"))
    return [*best, *islice(elsewhere, 1)]


def _rough_seconds(problem: Problem, scheme: Scheme, sizes: Sizes, machine: Machine, rate: UpdateRate) -> float:
    """What `sizes` roughly cost, by formulas: what processors do or transfers, whichever take longer,
    and what nothing hides."""
    volume, device = scheme.volume(problem, sizes), machine.device
    if volume.slabs > SLABS_MOST:
        return float("inf")
    shared = min(volume.bytes_read, volume.bytes_written)
    alone = volume.bytes_read - shared, volume.bytes_written - shared
    transfers = 2 * shared / device.mixed_bytes_per_second
    transfers += alone[0] / device.read_bytes_per_second + alone[1] / device.write_bytes_per_second
    updates = volume.cell_updates / rate(sizes) + SLAB_SECONDS * volume.slabs
    updates += (volume.bytes_read + volume.bytes_written) / machine.checksum_bytes_per_second
    updates += volume.requests * REQUEST_SECONDS / machine.threads
    exposed = volume.exposed_bytes / device.mixed_bytes_per_second + device.seconds_flush
    return (max(updates, transfers) + exposed) * problem.levels / sizes.levels


def _rough_rate(problem: Problem, cells_per_second: float) -> UpdateRate:
    """A stand-in while there are too many candidates to measure: that rate in thick slabs, less in thin ones."""

    def rate(sizes: Sizes) -> float:
        return cells_per_second / edge_factor(problem, replace(sizes, diamond=8)) / (3 if sizes.levels == 1 else 1)

    return rate
