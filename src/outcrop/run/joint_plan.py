"""This module makes the decisions that the ranks of a run make together. The ranks agree on the figures of the
machines, the cut, and the plan.

    a new run     choose_cuts    assumed update rates, cached figures of disks  ──► the cuts, which the run keeps
    each plan     machine_for    one rank measures each disk                    ──► the share of each rank
                  choose_plan    measured update rates of all ranks             ──► the same sizes on all ranks, proved

This module gathers the figures of all ranks, and plan/rank_planner.py makes the choices from these figures.
`machine_for` and the function that makes the plan also work for a process that runs alone. If there are several ranks,
all ranks must call a function of this module together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from outcrop.errors import InputError, by_caller
from outcrop.paths import nearest_existing
from outcrop.plan.machine import ASSUMED_NETWORK, Machine, StorageRates, UpdateRate, edge_factor
from outcrop.plan.plan import Sizes
from outcrop.plan.planner import choose, find_scheme, schemes_for
from outcrop.plan.problem import Problem
from outcrop.plan.rank_planner import Gather, JointChoice, PlannedRank, choose_together, is_moved
from outcrop.plan.ranks import Cut, balanced_cut, cut_planes, cut_problem, part_of, plan_ranks, validate_ranks
from outcrop.plan.schemes import RANK_SCHEMES
from outcrop.plan.tuner import TunedPlan, predicted_again
from outcrop.run.disk.entries import PartEntry
from outcrop.run.disk.manifest import Settings
from outcrop.run.ranks.group import RankGroup
from outcrop.run.ranks.links import measure_network
from outcrop.run.ranks.part import require_equal
from outcrop.run.ranks.shared import will_share
from outcrop.tiers import discover, measure
from outcrop.tiers.discover import lay_out
from outcrop.tiers.update_rate import ASSUMED_CELLS_PER_SECOND, UpdateRateMeter
from outcrop.units import format_bytes

MAX_MEASURED_TOGETHER = 5
"""The maximum number of choices for which all ranks measure update rates together."""


def require_machine_memory(budget_bytes: int) -> None:
    """Raise InputError if this machine has less memory than the budget of a run."""
    if text := beyond_memory(budget_bytes):
        raise InputError(f"{text}; give a smaller {by_caller('--memory', 'memory')}, such as 80%")


def beyond_memory(budget_bytes: int) -> str:
    """If this machine has less memory than the budget, return a message. If the machine has enough memory, return
    ""."""
    memory_bytes = discover.memory_bytes()
    if budget_bytes <= memory_bytes:
        return ""
    return f"memory {format_bytes(budget_bytes)} is more than the {format_bytes(memory_bytes)} of this machine"


def machine_for(
    settings: Settings, directories: Sequence[Path], problem: Problem, budget_bytes: int, may_measure: bool,
    group: RankGroup | None = None,
) -> Machine:  # fmt: skip
    """Return the figures of this machine for a run. If `may_measure` is false, the function writes no scratch file for
    a measurement.

    The ranks of a node run at the same time, so each rank has an equal share of the node's last-level caches. Ranks
    that use the same disk have equal shares of its bandwidth. `machine_for` returns at about the same time on all
    ranks. So all ranks measure their update rates at the same time, in conditions that are similar to the conditions in
    the run."""
    places = [nearest_existing(path) for path in directories]
    layout, caches = lay_out(settings.threads, settings.bind), discover.caches()
    if group is None:
        device = measure.device(places, settings.io, may_measure, problem)
    else:
        device = _shared_device(group, places, settings.io, may_measure, problem)
    # All ranks start the measurement of the checksum rate at the same time. Therefore ranks that use the same cores or
    # the same memory slow each other down, as in the run.
    checksums = measure.checksum_rate(settings.threads, budget_bytes, group is None)
    of_node = group.ranks_on_same_node if group else 1
    return Machine(
        threads=settings.threads,
        memory_bytes=discover.memory_bytes(),
        cache_bytes=caches.second_bytes,
        last_cache_bytes=min(caches.last_bytes * layout.nodes, discover.last_level_bytes() // of_node),
        checksum_bytes_per_second=checksums,
        device=device,
        network=measure_network(group, may_measure) if group else ASSUMED_NETWORK,
    )


def _shared_device(
    group: RankGroup, places: Sequence[Path], io: str, may_measure: bool, problem: Problem
) -> StorageRates:
    """Each rank gets an equal share of its disk. Return the figures of the share of this rank. If several ranks use a
    disk, only the rank with the lowest number measures the disk. If all ranks of a disk measured at the same time, each
    rank would measure a random share of the bandwidth."""
    own = [group.places[group.rank].node, *map(measure.source_of, places)]
    every = group.allgather(own)
    first = every.index(own)
    rates = measure.device(places, io, may_measure, problem) if first == group.rank else None
    measured = group.allgather(rates and asdict(rates))
    return StorageRates(**measured[first]).shared_by(every.count(own))


def choose_cuts(
    group: RankGroup, problem: Problem, settings: Settings, directories: Sequence[Path], work: float, has_steps: bool,
    parts_z: int,
) -> tuple[Cut, Cut]:  # fmt: skip
    """Return the cuts of a new run along y and along z. There are `parts_z` parts along z. `problem` is the problem of
    the whole grid. `work` is the work of an update, relative to the work of an update of a heat equation. `has_steps`
    is False if the number of steps of the run is not known yet. If the number of steps is not known, the parts along y
    are equal, unless the user has given the scheme and the steps of a pass. Parts along z are always equal.

    If all ranks use the same directory and the grid is cut only along y, all parts of an array form one Zarr array. If
    the parts form a Zarr array, the cut must fit the chunks of the Zarr array. If the cut fits the chunks and the
    scheme is split tiling, the lowest rank has more updates than the other ranks. The tuner considers the different
    numbers of updates. Raises InputError if the grid has too few rows or planes, and for schemes that do not work with
    the parts. Raises BudgetError if a budget is too small."""
    given, scheme = settings.given, settings.scheme
    named = None if scheme == "auto" else find_scheme(scheme)
    for_chunks = parts_z == 1 and will_share(group, directories[0])
    cut = cut_problem(problem, group.size // parts_z, given.bt or 1, named, for_chunks)
    if parts_z > 1:
        planes = cut_planes(problem, parts_z, given.bt or 1)
        schemes_for(part_of(problem, cut, group.rank, planes), scheme, given)
        return cut, planes
    return cut if for_chunks else _balanced(group, problem, cut, settings, directories, work, has_steps), ()


def _balanced(
    group: RankGroup, problem: Problem, cut: Cut, settings: Settings, directories: Sequence[Path], work: float,
    has_steps: bool,
) -> Cut:  # fmt: skip
    """Return a cut with which split tiling gives all ranks equal work. The parts of `cut` have the same number of rows.

    The best cut depends on the number of steps in a pass. The function computes the number of steps in a pass from
    assumed update rates, because no rates are measured yet. If the passes of the run have a different number of steps,
    the times of the ranks differ more. The cut is still better than equal parts if the passes have at least half of the
    assumed steps."""
    given, scheme = settings.given, settings.scheme
    named = None if scheme == "auto" else find_scheme(scheme)
    if not any(is_moved(problem, one) for one in ([named] if named else RANK_SCHEMES.values())):
        return cut
    if named and given.bt:
        return balanced_cut(problem, cut, named, min(given.bt, problem.steps) * problem.stages)
    if not has_steps:
        return cut

    def rate_of(part: Problem) -> UpdateRate:
        thick = ASSUMED_CELLS_PER_SECOND * settings.threads / work
        return lambda sizes: thick / edge_factor(part, sizes)

    machine = machine_for(settings, directories, problem, settings.memory_bytes, False, group)
    member = PlannedRank(group.rank, machine, settings.memory_bytes, rate_of)
    return choose_together(problem, cut, [member], _gather(group), scheme, given, may_move=True)[0].cut


def choose_plan(
    problem: Problem, machine: Machine, settings: Settings, rate: UpdateRate, group: RankGroup | None = None,
    part: PartEntry | None = None, whole: Problem | None = None,
) -> TunedPlan:  # fmt: skip
    """Return the plan of this process or of this rank for `problem`. If there are several ranks, `part` is the part of
    this rank, and `whole` is the problem of the whole grid. If there are several ranks, rank 0 proves that the plans of
    all ranks fit together before any rank uses its plan. The cache tiles can differ between ranks. Raises the errors of
    `choose`."""
    budget_bytes, scheme, given = settings.memory_bytes, settings.scheme, settings.given
    if group is None or part is None or whole is None:
        return choose(problem, machine, budget_bytes, scheme, rate, given)
    member = PlannedRank(group.rank, machine, budget_bytes, lambda _: rate, problem.acquisition, part.planes)
    found = _choose_measured(
        group, lambda: choose_together(whole, part.cut, [member], _gather(group), scheme, given), machine, rate
    )
    (choice,) = found.plans
    plan = choice.plan
    assert plan.problem == problem, "the part of this rank is the problem of the run"
    passes = [[one.levels, one.slab] for one in plan.passes[-2:]]
    require_equal(group, {"the plan": [problem.steps, plan.scheme, len(plan.passes), passes]})
    with group.together():
        if group.rank == 0:
            one_of_each = find_scheme(plan.scheme), plan.sizes, machine, rate, part.planes
            validate_ranks(plan_ranks(whole, part.cut, *one_of_each))
    return choice


def _choose_measured(
    group: RankGroup, propose: Callable[[], list[JointChoice]], machine: Machine, rate: UpdateRate
) -> JointChoice:
    """Return the choice with which the slowest rank needs the least time. `propose` returns all choices, beginning with
    the best. All ranks measure the update rate of the best choice again, at the same time. Then the ranks call
    `propose` again, until all ranks have measured the rate of the best choice at the same time. A rate that one rank
    measures alone can be too high, because the rank has the whole memory bandwidth of its node during the measurement.
    On some rank, the run can be too short or the memory too small for a measurement. If a rank cannot measure, the
    function returns the best choice that was found until then."""
    meter = rate if isinstance(rate, UpdateRateMeter) else None
    known, final = set[Sizes](), list[JointChoice]()
    while True:
        best = propose()[0]
        sizes = best.plans[0].plan.sizes
        can_measure = meter is not None and meter.is_measured and meter.can_measure(sizes)
        every = group.allgather([can_measure, sizes in known])
        if all(is_known for _, is_known in every):
            return best
        if meter is None or not all(ready for ready, _ in every) or len(final) == MAX_MEASURED_TOGETHER:
            return min(final, key=lambda one: one.seconds, default=best)
        meter.measure_again(sizes)
        known.add(sizes)
        own = predicted_again(best.plans[0], machine, meter)
        final.append(replace(best, plans=(own,), seconds=max(group.allgather(own.plan.predicted.seconds))))


def _gather(group: RankGroup) -> Gather:
    """Return a function that takes a list with the value of this rank, and returns a list with the values of all ranks.
    The first list has only one entry, because each process has one rank."""

    def gather(values: list[Any]) -> list[Any]:
        (value,) = values
        return group.allgather(value)

    return gather
