"""Choose the plans of all ranks of a grid that is divided among ranks. Neighbours must exchange the same planes in the
same order. So all ranks have the same scheme, the same number of steps in a pass, and the same slabs. The machines,
memories and update rates of the ranks can differ.

The ranks choose together in three steps. Each arrow is a call of `Gather`. After this call, every rank has the values
of all ranks.

    each rank proposes the sizes that are best for itself      ──► the proposals of all ranks, the slowest rank first
    each rank finds the thickest slab that fits its memory     ──► for each proposal, the thinnest of these slabs
    each rank predicts its time for each proposal              ──► for each proposal, the time of the slowest rank

The ranks choose the proposal for which the slowest rank needs the least time. If the cut can still be moved, each
proposal has its own cut. The cut of a proposal gives all ranks equal work (`balanced_cut`).

In a run of several ranks, each rank uses its own measured figures (run/joint_plan.py). `outcrop plan --ranks` makes the
same choice in one process (`choose_ranks`). `choose_ranks` assumes that the machines of all ranks have equal figures.
So `choose_ranks` plans only one rank of each kind: the first rank, the last rank, and one rank between the first and
the last.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from outcrop.errors import BudgetError, InputError
from outcrop.plan.actions import FACES, SIDES, Update, Write, side_of
from outcrop.plan.cost import cell_updates, transfer_bytes
from outcrop.plan.given_sizes import FREE, GivenSizes
from outcrop.plan.machine import Machine, UpdateRate
from outcrop.plan.memory import min_acquisition_memory
from outcrop.plan.plan import Candidate, Plan, Scheme
from outcrop.plan.planner import choose, find_scheme, require_budget, schemes_for, smallest_budget_bytes
from outcrop.plan.problem import NO_DEMAND, AcquisitionDemand, Problem
from outcrop.plan.ranks import Cut, RankPlans, balanced_cut, cut_planes, cut_problem, part_of, parts_of
from outcrop.plan.stairs import Stairs
from outcrop.plan.tuner import TunedPlan, estimate, rate_in_thick_slabs

MAX_RANKS_COMPARED = 64
"""With at most this number of ranks, the time of one rank for the whole grid is predicted action by action."""
PROPOSALS_OF_RANK = 3
"""The maximum number of proposals of a rank for each scheme. The proposals differ in the number of steps of a pass."""
WORTH_PROPOSING = 1.1
"""For each scheme, a rank proposes only sizes whose time is at most this factor times the time of its best sizes."""
PROPOSALS_TRIED = 12
"""The number of proposals that all ranks predict. If none of these proposals fits the memory, the ranks predict more
proposals."""

Gather: TypeAlias = Callable[[list[Any]], list[Any]]
"""A function that collects values of all processes. The members of a process are the ranks for which the process makes
plans. The argument has one value for each member of the calling process. The result has the values of the members of
all processes, in the same order on all processes. All processes must call the function together. Values are plain data.
"""


@dataclass(frozen=True)
class PlannedRank:
    """A rank that chooses its plan together with the other ranks: its number, its machine and its memory. `update_rate`
    returns the update rates for the problem of the rank's part. The problem of the part includes `acquisition`.
    `planes` is the cut along z."""

    rank: int
    machine: Machine
    budget_bytes: int
    update_rate: Callable[[Problem], UpdateRate]
    acquisition: AcquisitionDemand = NO_DEMAND
    planes: Cut = ()

    def part(self, problem: Problem, cut: Cut) -> Problem:
        """Return the problem of this rank. `problem` is the problem of the whole grid."""
        return replace(part_of(problem, cut, self.rank, self.planes), acquisition=self.acquisition)

    def plan(self, part: Problem, shared: Shared, given: GivenSizes) -> TunedPlan:
        """Return the best plan with the sizes that all ranks share."""
        rate, sizes = self.update_rate(part), shared.with_given(given, part)
        return choose(part, self.machine, self.budget_bytes, shared.with_shared_sizes, rate, sizes)

    def thickest_slab(self, part: Problem, shared: Shared, given: GivenSizes) -> int:
        """Return the number of planes of the thickest slab that fits the memory of this rank. The maximum is
        `shared.slab`. Return 0 if no slab fits."""

        def fits(slab: int) -> bool:
            sizes = replace(shared, slab=slab).with_given(given, part)
            try:
                require_budget(part, self.budget_bytes, shared.with_shared_sizes, sizes)
            except (BudgetError, InputError):  # the rank has too little memory, or too few rows for the blocks
                return False
            return True

        fitting, beyond = (shared.slab, 0) if fits(shared.slab) else (0, shared.slab)
        while beyond - fitting > 1:
            middle = (fitting + beyond) // 2
            fitting, beyond = (middle, beyond) if fits(middle) else (fitting, middle)
        return fitting


@dataclass(frozen=True)
class Shared:
    """The choices that are equal on all ranks: the name of the scheme, the number of steps of a pass, the number of
    planes of a slab, and the number of rows of a block. The number of rows of a block is 0 if the rows of a rank are
    not divided into blocks. `is_moved` is true if the places of the cut are moved."""

    scheme: str
    steps: int
    slab: int
    block_y: int
    is_moved: bool

    @property
    def with_shared_sizes(self) -> Scheme:
        """The scheme. Users may not give `bt` and `slab` to the naive scheme, but ranks must share these sizes."""
        scheme = find_scheme(self.scheme)
        return replace(scheme, sizes=tuple(dict.fromkeys(("bt", "slab", *scheme.sizes))))

    def with_given(self, given: GivenSizes, part: Problem) -> GivenSizes:
        """Return the sizes `given`, together with the sizes of this object that the scheme uses. `part` is the problem
        of a rank."""
        undivided = part.shape[1] if part.is_part and part.block_order else None
        sizes = {"bt": self.steps, "slab": self.slab, "by": self.block_y or given.by or undivided}
        known = self.with_shared_sizes.sizes
        return replace(given, **{name: size for name, size in sizes.items() if name in known})


@dataclass(frozen=True)
class JointChoice:
    """A proposal that all ranks have predicted. `plans` has the plans of the members of this process, and `seconds` is
    the predicted time of the slowest rank."""

    shared: Shared
    cut: Cut
    plans: tuple[TunedPlan, ...]
    seconds: float


def choose_together(
    problem: Problem, cut: Cut, members: Sequence[PlannedRank], gather: Gather, scheme: str, given: GivenSizes = FREE,
    may_move: bool = False,
) -> list[JointChoice]:  # fmt: skip
    """Return the proposal that all ranks choose, then the other proposals in ascending order of their time. `problem`
    is the problem of the whole grid. If `may_move` is true, the function moves the places of `cut` for schemes in which
    ranks share updates. If no plan is possible with moved places, such a scheme keeps the cut.

    Raises InputError for an unknown scheme and impossible sizes. Raises BudgetError if the memory of a member is too
    small, or if no proposal fits the memory of all ranks."""
    known: dict[Hashable, list[list[Any]]] = {}  # several members may have equal problems and equal figures
    mine = [_proposals(problem, cut, one, scheme, given, may_move, known) for one in members]
    every = sorted(gather(mine), key=lambda one: one[0][0], reverse=True)
    # The order is: first the best proposals of all ranks, then the second-best proposals of all ranks, and so on. In
    # each group of best, second-best, ... proposals, the proposal of the slowest rank comes first.
    ordered = [Shared(*one[place][1:]) for place in range(max(map(len, every))) for one in every if place < len(one)]
    proposals = list(dict.fromkeys(ordered))
    kept = [replace(one, is_moved=False) for one in proposals if one.is_moved]
    for some in (proposals[:PROPOSALS_TRIED], proposals[PROPOSALS_TRIED:], kept):
        if found := _tried(problem, cut, members, gather, some, given):
            return sorted(found, key=lambda one: one.seconds)
    raise BudgetError("no plan fits the memory of all ranks; give all ranks the same memory, or more")


def _proposals(
    problem: Problem, cut: Cut, one: PlannedRank, scheme: str, given: GivenSizes, may_move: bool,
    known: dict[Hashable, list[list[Any]]],
) -> list[list[Any]]:  # fmt: skip
    """Return the proposals of a rank as plain data [seconds, scheme, steps, slab, block, whether the cut is moved], in
    ascending order of their seconds. Raises BudgetError if no scheme fits the memory of the rank, and InputError if the
    rank has too few rows for the blocks in `given`."""
    part, found = one.part(problem, cut), list[list[Any]]()
    refused: BudgetError | InputError = BudgetError("")
    require_budget(part, one.budget_bytes, scheme, given)
    for each in schemes_for(part, scheme, given):
        ways = [(part, False)]
        if may_move and is_moved(problem, each):
            ways.insert(0, (_as_balanced(part) if given.bt is None else part, True))
        for alike, moves in ways:
            key = alike, moves, each.name, one.machine, one.budget_bytes, one.update_rate
            try:
                if key not in known:
                    known[key] = _proposals_of_scheme(alike, moves, one, each.name, given)
                found += known[key]
                break
            except (BudgetError, InputError) as error:  # another cut may have more rows, another scheme may need fewer
                refused = error
    if not found:
        raise refused
    return sorted(found)


def _proposals_of_scheme(
    part: Problem, moves: bool, rank: PlannedRank, scheme: str, given: GivenSizes
) -> list[list[Any]]:
    choice = choose(part, rank.machine, rank.budget_bytes, scheme, rank.update_rate(part), given)
    best: dict[int, Candidate] = {}
    for candidate in choice.considered:
        best.setdefault(candidate.sizes.levels // part.stages, candidate)
    most = WORTH_PROPOSING * choice.plan.predicted.seconds
    worth = [(steps, one) for steps, one in best.items() if one.seconds <= most][:PROPOSALS_OF_RANK]
    # A slab of a plan can have more planes than the grid, but a user cannot give such a slab.
    thickest = part.max_halo_z if part.is_part_z else part.planes
    return [[one.seconds, scheme, steps, min(one.sizes.slab, thickest), one.sizes.block_y, moves]
            for steps, one in worth]  # fmt: skip


def is_moved(problem: Problem, scheme: Scheme) -> bool:
    """Return True if `balanced_cut` moves the places of a cut for a scheme."""
    return scheme.shared_levels is not None and not problem.periodic[1] and problem.radius_y > 0


def _as_balanced(part: Problem) -> Problem:
    """Return the problem of a rank with neighbours at both sides and the same number of rows as `part`. After the cut
    is moved, the first and the last rank have approximately as many updates as the rank with the returned problem. The
    number of levels L is limited, because the lowest rank gives away r(L+1)/2 rows, where r is the radius. The lowest
    rank must keep at least 2rL rows."""
    least = 2 * part.radius_y * part.stages
    rows = max(least, (8 * part.max_halo - 4 * part.radius_y) // 10)
    return replace(part, sides=(part.sides[0], ("neighbour", "neighbour"), part.sides[2]), max_halo=rows)


def _tried(
    problem: Problem, cut: Cut, members: Sequence[PlannedRank], gather: Gather, proposals: Sequence[Shared],
    given: GivenSizes,
) -> list[JointChoice]:  # fmt: skip
    """Return one JointChoice for each proposal that fits the memory of all ranks."""

    def cut_for(one: Shared) -> Cut:
        return balanced_cut(problem, cut, find_scheme(one.scheme), one.steps * problem.stages) if one.is_moved else cut

    slabs = gather([[one.thickest_slab(one.part(problem, cut_for(shared)), shared, given) for shared in proposals]
                    for one in members])  # fmt: skip
    thinnest = [min(of_ranks) for of_ranks in zip(*slabs, strict=True)]
    fitting = list(dict.fromkeys(
        replace(shared, slab=slab) for shared, slab in zip(proposals, thinnest, strict=True) if slab
    ))  # fmt: skip
    cuts = [cut_for(shared) for shared in fitting]
    pairs = list(zip(fitting, cuts, strict=True))
    plans = [[one.plan(one.part(problem, where), shared, given) for shared, where in pairs] for one in members]
    seconds = gather([[choice.plan.predicted.seconds for choice in of_rank] for of_rank in plans])
    columns = zip(pairs, zip(*plans, strict=True), zip(*seconds, strict=True), strict=True)
    return [JointChoice(shared, where, own, max(every)) for (shared, where), own, every in columns]


@dataclass(frozen=True)
class ChosenRanks:
    """The plans of all ranks, and the number of the slowest rank. `considered` has candidates in this order: the plan
    of the slowest rank, then the slowest plan of each other proposal, then other plans of the slowest rank.
    `seconds_single` is the time of one rank for the whole grid, or None if the window of this rank does not fit the
    memory."""

    every: RankPlans
    slowest: int
    considered: tuple[Candidate, ...]
    seconds_single: float | None

    @property
    def plan(self) -> Plan:
        """The plan of the slowest rank."""
        return self.every.plans[self.slowest]

    @property
    def seconds(self) -> float:
        return self.plan.predicted.seconds

    @property
    def speed_up(self) -> float | None:
        """The time of one rank for the whole grid, divided by the time of all ranks together."""
        return None if self.seconds_single is None else self.seconds_single / self.seconds

    @property
    def halo(self) -> int:
        """The number of rows that a pass needs from each neighbour. If ranks share updates, the pass needs rows only
        from the upper neighbour."""
        problem, levels = self.plan.problem, self.plan.passes[0].levels
        if self.shares_updates:
            return Stairs(problem, levels).rim_rows[1]
        return max(problem.halo(levels))

    @property
    def halo_planes(self) -> int:
        """The number of planes that a pass needs from each neighbour along z."""
        return max(self.plan.problem.halo_z(self.plan.passes[0].levels))

    @property
    def shares_updates(self) -> bool:
        """True if ranks share the updates at their cuts, so that no cell is updated twice."""
        return find_scheme(self.plan.scheme).shared_levels is not None

    @property
    def link_bytes(self) -> int:
        """The maximum number of bytes that any rank sends to one of its neighbours in the first pass.
        """
        sent = [0]
        for plan in {id(plan): plan for plan in self.every.plans}.values():
            sides = dict.fromkeys(SIDES, 0)
            for action in plan.passes[0].actions:
                if isinstance(action, Write) and action.array in FACES:
                    sides[side_of(action)] += transfer_bytes(plan.problem, action)
            sent += sides.values()
        return max(sent)

    @property
    def twice(self) -> float:
        """The number of updates in rows and planes of neighbours, divided by the number of updates of the rank's own
        cells. The updates in rows and planes of neighbours are made twice, because the neighbours also update these
        rows and planes. If ranks share updates, no update is made twice, and the number is 0."""
        if self.shares_updates:
            return 0.0
        own, every = 0, 0
        problem = self.plan.problem
        rows, planes = (end - first for first, end in (problem.own_rows, problem.own_planes))
        for one in {id(one): one for one in self.plan.passes}.values():
            times = sum(other is one for other in self.plan.passes)
            every += times * sum(cell_updates(problem, action) for action in one.actions if isinstance(action, Update))
            own += times * planes * rows * problem.shape[2] * one.levels
        return every / own - 1 if own else 0.0


def choose_ranks(
    problem: Problem,
    ranks: int,
    machine: Machine,
    budget_bytes: int,
    scheme: str,
    update_rate: Callable[[Problem], UpdateRate],
    given: GivenSizes = FREE,
    parts_z: int = 1,
    demands: Callable[[Cut, Cut], Sequence[AcquisitionDemand]] | None = None,
) -> ChosenRanks:
    """Choose the cut of a grid and the plans of `ranks` ranks with equal machines. The chosen plans have the shortest
    predicted time. The planes are divided into `parts_z` parts. Each rank has `budget_bytes` of memory. `update_rate`
    returns the update rates for the problem of a rank. `demands` returns the acquisition of each rank for the cuts
    along y and z. As in a run, the cut is chosen without the acquisition, and then the plans are chosen with it. Ranks
    with equal parts share a plan, which has the acquisition of the rank that needs the most memory for it.

    Raises InputError if a rank would have too few rows, for an unknown scheme and for impossible sizes. Raises
    BudgetError if the budget of a rank is too small. Both messages name possible values.
    """
    named = None if scheme == "auto" else find_scheme(scheme)
    cut = cut_problem(problem, ranks // parts_z, given.bt or 1, named)
    planes = cut_planes(problem, parts_z, given.bt or 1)
    whole = replace(problem, acquisition=demands((0, problem.shape[1]), ())[0]) if demands else problem
    if ranks == 1:
        choice = choose(whole, machine, budget_bytes, scheme, update_rate(whole), given)
        every = RankPlans(whole, cut, (choice.plan,))
        return ChosenRanks(every, 0, choice.considered, choice.plan.predicted.seconds)

    def members_of(cut: Cut, of_ranks: Sequence[AcquisitionDemand]) -> tuple[list[PlannedRank], list[int]]:
        """Return one rank of each kind, and for each of all ranks the place of its kind in the first list."""
        needs = [min_acquisition_memory(one, problem.steps).bytes(problem.steps) for one in of_ranks]
        parts, kinds = parts_of(problem, cut, planes), dict[Problem, int]()
        for rank in sorted(range(ranks), key=lambda rank: -needs[rank]):
            kinds.setdefault(parts[rank], rank)
        members = [PlannedRank(rank, machine, budget_bytes, update_rate, of_ranks[rank], planes)
                   for rank in kinds.values()]  # fmt: skip
        places = {part: place for place, part in enumerate(kinds)}
        return members, [places[part] for part in parts]

    if demands:
        for one in members_of(cut, demands(cut, planes))[0]:  # an error then names a memory for the acquisition, too
            require_budget(one.part(problem, cut), budget_bytes, scheme, given)
    members, places = members_of(cut, (NO_DEMAND,) * ranks)
    best, *others = choose_together(problem, cut, members, list, scheme, given, may_move=True)
    if demands:
        members, places = members_of(best.cut, demands(best.cut, planes))
        best, *others = choose_together(problem, best.cut, members, list, scheme, given)
    # moving the cut changes only the rows of the first and the last rank, so the kinds of ranks stay the same
    chosen = [best.plans[place] for place in places]
    slowest = max(range(ranks), key=lambda rank: (chosen[rank].plan.predicted.seconds, -rank))
    first, *rest = chosen[slowest].considered
    considered = first, *(_slowest_of(one) for one in others), *rest
    alone = "auto" if named is not None and named.refusal(problem) is not None else scheme
    sizes = replace(given, by=None)  # blocks of the rows of a rank are not always possible in the whole grid
    seconds_single = _seconds_single(whole, ranks, machine, budget_bytes, alone, update_rate(whole), sizes)
    every = RankPlans(problem, best.cut, tuple(choice.plan for choice in chosen), planes)
    return ChosenRanks(every, slowest, considered, seconds_single)


def _slowest_of(one: JointChoice) -> Candidate:
    plan = max((choice.plan for choice in one.plans), key=lambda plan: plan.predicted.seconds)
    return Candidate(plan.scheme, plan.sizes, len(plan.passes), plan.predicted)


def _seconds_single(
    problem: Problem, ranks: int, machine: Machine, budget_bytes: int, scheme: str, rate: UpdateRate, given: GivenSizes
) -> float | None:
    """Return the time of one rank for the whole grid, or None if the memory is too small. If there are many ranks, the
    time comes from formulas. With many ranks, a plan of one rank for the whole grid would have a very long list of
    actions."""
    if budget_bytes < smallest_budget_bytes(problem, scheme, given):
        return None
    if ranks <= MAX_RANKS_COMPARED:
        return choose(problem, machine, budget_bytes, scheme, rate, given).plan.predicted.seconds
    schemes = schemes_for(problem, scheme, given)
    thick = rate_in_thick_slabs(problem, schemes, machine, budget_bytes, rate)
    seconds = estimate(problem, schemes, machine, budget_bytes, thick)
    return seconds if seconds < float("inf") else None
