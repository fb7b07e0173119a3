"""Check simulated times of many ranks. Some cases have a known result. Other tests check properties of every
simulation."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from outcrop.plan.cost import predict, works_of
from outcrop.plan.machine import Machine, NetworkRates, StorageRates
from outcrop.plan.plan import Sizes
from outcrop.plan.problem import Problem
from outcrop.plan.rank_timeline import NO_DISTURBANCE, Disturbance, RankTimeline, simulate
from outcrop.plan.ranks import RankPlans, balanced_cut, cut_problem, plan_ranks
from outcrop.plan.schemes import EVERY_SCHEME

CELLS_PER_SECOND = 1e9
SLOW_DISK = StorageRates(1e9, 1e9, 1e9, 1e-3, "declared")
SIZES = Sizes(levels=8, slab=8, diamond=4)


def machine(network: NetworkRates, device: StorageRates = SLOW_DISK) -> Machine:
    return replace(Machine(1, 1 << 40, 1 << 20, 1 << 25, 1e11, device), network=network)


def plans_of(
    ranks: int, rows: int = 256, steps: int = 32, periodic: bool = False, nx: int = 256, scheme: str = "wavefront"
) -> RankPlans:
    pitch, ny = 4 * nx, rows * ranks
    y = ("periodic", "periodic") if periodic else ("fixed", "fixed")
    problem = Problem(
        "heat7", (1, 1, 1), (128, ny, nx), "float32", steps, pitch, pitch * ny, pitch * ny + 4096,
        sides=(("fixed", "fixed"), y, ("fixed", "fixed")),
    )  # fmt: skip
    fast = machine(NetworkRates(1e12, 0.0, "declared"))
    return plan_ranks(problem, cut_problem(problem, ranks, 8), EVERY_SCHEME[scheme], SIZES, fast, rate)


def rate(sizes: Sizes) -> float:
    return CELLS_PER_SECOND


def simulated(
    ranks: RankPlans, bytes_per_second: float = 1e12, latency: float = 0.0, disturbance: Disturbance = NO_DISTURBANCE
) -> RankTimeline:
    return simulate(ranks, machine(NetworkRates(bytes_per_second, latency, "declared")), rate, disturbance)


def test_one_rank_takes_as_long_as_the_cost_model_predicts() -> None:
    ranks = plans_of(1)
    (plan,) = ranks.plans
    here = machine(NetworkRates(1e12, 0.0, "declared"))
    predicted = predict(plan.problem, works_of(plan.problem, plan.passes), plan.sizes, plan.window, here, rate)
    assert simulated(ranks).seconds == pytest.approx(predicted.seconds, rel=1e-6)


def test_equal_ranks_on_a_fast_network_lose_only_the_updates_that_they_perform_twice() -> None:
    ranks = plans_of(4, periodic=True)
    found = simulated(ranks)
    shares = found.shares()
    assert sum(shares.values()) == pytest.approx(1)
    assert min(shares.values()) >= 0
    assert shares["finished"] == pytest.approx(0, abs=1e-9)
    # on average over the levels, each of the two sides updates r(L-1)/2 rows of the halo
    seconds = 32 * 126 * 7 * 256 / CELLS_PER_SECOND
    assert found.twice == pytest.approx([seconds] * 4)


def test_a_slow_network_determines_the_time() -> None:
    ranks = plans_of(4, periodic=True)
    sent = ranks.plans[0].predicted.bytes_sent
    slow = sent / (50 * simulated(ranks).seconds)
    found = simulated(ranks, bytes_per_second=slow)
    assert found.seconds == pytest.approx(sent / slow, rel=0.1)
    assert found.seconds >= sent / slow
    assert found.shares()["faces"] > 0.9


def test_a_pass_waits_for_the_latency_of_its_first_faces_and_of_its_commit() -> None:
    ranks = plans_of(2)
    latency, passes = 0.5, len(ranks.plans[0].passes)
    longer = simulated(ranks, latency=latency).seconds - simulated(ranks).seconds
    # an update takes only about 0.03 s, so ranks wait for the faces of each slab
    slabs = ranks.plans[0].to_json()["slabs_per_pass"]
    assert passes * latency <= longer <= passes * (slabs + 3) * latency


def test_jitter_costs_time_and_is_repeatable() -> None:
    ranks = plans_of(8)
    calm = simulated(ranks).seconds
    first, again, other = (simulated(ranks, disturbance=Disturbance(0.1, seed=seed)).seconds for seed in (1, 1, 2))
    assert first == again != other
    assert calm < first < 1.2 * calm


def test_a_stall_delays_all_ranks_through_their_neighbours() -> None:
    ranks = plans_of(4)
    calm = simulated(ranks)
    stalled = simulated(ranks, disturbance=Disturbance(stall_seconds=1.0, seed=3))
    assert stalled.seconds > calm.seconds + 1.0
    assert stalled.shares()["faces"] > calm.shares()["faces"]


def test_more_ranks_with_the_same_rows_take_as_long_as_few() -> None:
    assert simulated(plans_of(64)).seconds == pytest.approx(simulated(plans_of(3)).seconds, rel=1e-6)


def test_spans_are_kept_for_the_first_ranks_only() -> None:
    here = machine(NetworkRates(1e9, 1e-5, "declared"))
    found = simulate(plans_of(4), here, rate, drawn_ranks=2)
    assert {span.rank for span in found.spans} == {0, 1}
    for rank in (0, 1):
        own = [span for span in found.spans if span.rank == rank]
        assert all(a.end <= b.start + 1e-9 for a, b in pairwise(own))
        assert own[-1].end == pytest.approx(found.end[rank])


def test_a_balanced_cut_removes_the_wait_for_the_lowest_rank() -> None:
    """Checks split tiling with a cut that gives all ranks equal work. No rank waits for the lowest rank, so the time
    equals the time of a rank with two neighbours."""
    equal = plans_of(8, nx=8192, scheme="split")
    cut = balanced_cut(equal.problem, equal.cut, EVERY_SCHEME["split"], SIZES.levels)
    assert cut == (0, *(place - 4 for place in equal.cut[1:-1]), equal.cut[-1])
    disk = StorageRates(1e12, 1e12, 1e12, 1e-6, "declared")
    fast = machine(NetworkRates(1e12, 0.0, "declared"), disk)
    moved = plan_ranks(equal.problem, cut, EVERY_SCHEME["split"], SIZES, fast, rate)
    before, after = simulate(equal, fast, rate), simulate(moved, fast, rate)
    # on average over the levels, the lowest rank updates 4.5 rows more than it owns, minus one row of the rim
    assert before.seconds - after.seconds > 0.5 * 32 * 126 * 3.5 * 8192 / CELLS_PER_SECOND
    assert before.update.max() == before.update[0]
    assert after.update.max() == pytest.approx(after.update[1])
    assert after.seconds == pytest.approx(after.update[1], rel=0.005)


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_split_tiling_updates_nothing_twice(ranks: int) -> None:
    """Checks the updates of all ranks with split tiling. The lowest and the highest rank have only one neighbour. On
    average over the levels, the lowest rank updates rL/2 rows more than it owns. The highest rank updates rL/2 rows
    fewer than it owns."""
    found = simulated(plans_of(ranks, scheme="split"))
    shares = found.shares()
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["twice"] == pytest.approx(0, abs=1e-9)
    more = 32 * 126 * 4.5 * 256 / CELLS_PER_SECOND
    assert found.twice[0] == pytest.approx(more, rel=0.1) and found.twice[-1] == pytest.approx(-found.twice[0])
    assert found.update[0] > found.update[-1]
