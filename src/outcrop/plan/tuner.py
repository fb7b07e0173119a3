"""Choose sizes: list what a scheme could do in the budget, cost each by the model, take the cheapest.

Two rounds, because the update rate is measured and measuring takes time: the first ranks levels and slabs with
one assumed diamond per cache level, the second measures the best few with several diamonds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from outcrop.plan.machine import Machine, UpdateRate
from outcrop.plan.model import predict, slots_within, thin_slab_factor, window_bytes
from outcrop.plan.plan import Pass, Plan, Sizes
from outcrop.plan.problem import Problem
from outcrop.plan.schemes.scheme import Scheme

DIAMONDS = (2, 4, 6, 8, 12, 16, 24, 32)
SWEEP_ROWS = (4, 8, 16, 32, 64)
SHORTLIST = 4
EQUALLY_FAST = 1.01
"""Plans within this factor of the fastest count as equal; the one with the least memory is taken."""


@dataclass(frozen=True)
class Candidate:
    """Sizes with the plan they give."""

    sizes: Sizes
    plan: Plan


def tune(problem: Problem, scheme: Scheme, machine: Machine, budget_bytes: int, rate: UpdateRate) -> list[Candidate]:
    """Candidates measured in the last round, the chosen one first; empty when nothing fits the budget."""
    slots = slots_within(problem, budget_bytes)
    rough = _rough_rate(problem)
    coarse = [_candidate(problem, scheme, sizes, machine, rough) for sizes in scheme.candidates(problem, slots)]
    if not coarse:
        return []
    coarse.sort(key=_seconds)
    first, others = coarse[0], coarse[1:SHORTLIST]
    fine = [
        _candidate(problem, scheme, sizes, machine, rate) for sizes in tilings(problem, scheme, first.sizes, machine)
    ]
    fine.sort(key=_seconds)
    best_diamonds = {candidate.sizes.diamond for candidate in fine[:2]}
    for other in others:
        for sizes in tilings(problem, scheme, other.sizes, machine):
            if sizes.diamond in best_diamonds:
                fine.append(_candidate(problem, scheme, sizes, machine, rate))
    fastest = min(map(_seconds, fine))

    def order(candidate: Candidate) -> tuple[bool, float, float]:
        slower = _seconds(candidate) > EQUALLY_FAST * fastest
        return slower, _seconds(candidate) if slower else candidate.plan.memory_bytes, _seconds(candidate)

    return sorted(fine, key=order)


def _seconds(candidate: Candidate) -> float:
    return candidate.plan.predicted.seconds


def _candidate(problem: Problem, scheme: Scheme, sizes: Sizes, machine: Machine, rate: UpdateRate) -> Candidate:
    return Candidate(sizes, build(problem, scheme, sizes, machine, rate))


def tilings(problem: Problem, scheme: Scheme, sizes: Sizes, machine: Machine) -> Iterable[Sizes]:
    """The cache tilings worth measuring for given levels and slab.

    A tile's working set is about 4 r^2 D^2 rows; it should fit the second-level cache or, less well, a thread's
    share of the last one. Diamonds higher than the levels or wider than a thread's share of the rows leave
    threads idle.
    """
    if scheme.name == "naive":
        block_rows = min(SWEEP_ROWS, key=lambda rows: abs(6 * rows * problem.pitch_bytes - machine.cache_bytes))
        rows = max(1, min(block_rows, problem.shape[1] // machine.threads))
        yield replace(sizes, diamond=0, sweep_rows=rows)
        return
    share = max(machine.cache_bytes, machine.last_cache_bytes // (2 * machine.threads))
    fitting = [
        diamond
        for diamond in DIAMONDS
        if diamond == DIAMONDS[0]
        or (
            4 * (problem.skew * diamond) ** 2 * problem.pitch_bytes <= share
            and diamond <= sizes.levels
            and 2 * problem.skew * diamond * machine.threads <= 2 * problem.shape[1]
        )
    ]
    for diamond in reversed(fitting[-4:]):
        yield replace(sizes, diamond=diamond)


def build(problem: Problem, scheme: Scheme, sizes: Sizes, machine: Machine, rate: UpdateRate) -> Plan:
    """The plan for given sizes: passes of `sizes.levels`, the last one shorter where the steps do not divide."""
    rings = scheme.ring_planes(problem, min(sizes.levels, max(1, problem.steps)), sizes.slab)
    passes: list[Pass] = []
    made: dict[int, Pass] = {}
    left = problem.steps
    while left > 0:
        levels = min(sizes.levels, left)
        if levels not in made:
            slab = _slab_within(problem, scheme, levels, sizes.slab, rings)
            made[levels] = scheme.make_pass(problem, levels, replace(sizes, levels=levels, slab=slab))
        passes.append(made[levels])
        left -= levels
    predicted = predict(problem, tuple(passes), sizes, rings, machine, rate)
    return Plan(problem, scheme.name, sizes, tuple(passes), rings, window_bytes(problem, rings), predicted)


def _slab_within(problem: Problem, scheme: Scheme, levels: int, slab: int, rings: tuple[int, int]) -> int:
    """The thickest slab, at most `slab`, whose rings fit those there are: fewer levels may shift need from ring
    to ring."""
    while slab > 1:
        needed = scheme.ring_planes(problem, levels, slab)
        if all(have >= need for have, need in zip(rings, needed, strict=True)):
            break
        slab -= 1
    return slab


def _rough_rate(problem: Problem) -> UpdateRate:
    """A stand-in for the first round."""

    def rate(sizes: Sizes) -> float:
        return 5e9 / thin_slab_factor(problem, replace(sizes, diamond=8)) / (3 if sizes.levels == 1 else 1)

    return rate
