"""Check the plan of the writes of snapshots: the size of the staging buffer, and the predicted time."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outcrop.plan.cost import predict, timeline, works_of
from outcrop.plan.machine import Machine, StorageRates
from outcrop.plan.memory import MIN_STAGING
from outcrop.plan.plan import Plan, Sizes
from outcrop.plan.planner import make_plan, smallest_budget_bytes
from outcrop.plan.problem import NO_DEMAND, AcquisitionDemand, Problem, SnapshotDemand
from outcrop.plan.schemes import SCHEMES
from outcrop.plan.staging import NO_WRITES, fit_staging, snapshot_writes
from outcrop.plan.tuner import build
from strategies import MACHINE, assumed_rate, examples, make_problem, problems, sizes_for

SLOW = replace(MACHINE, device=StorageRates(1e8, 1e8, 1e8, 0.01, "assumed"))


def every(steps: int, problem: Problem, initial: bool = False) -> AcquisitionDemand:
    """Return the demand for a snapshot of the whole grid after every `steps` steps."""
    nz, ny, nx = problem.shape
    return AcquisitionDemand((SnapshotDemand(steps, 1, nz, ny, nx * problem.item_bytes, initial),))


def cube(steps: int) -> Problem:
    return make_problem((128, 128, 128), (1, 1, 1), steps)


@settings(max_examples=examples(200))
@given(st.data(), problems(), st.integers(1, 20), st.integers(0, 1 << 22))
def test_staging_fits_its_room_and_is_not_larger_than_useful(
    data: st.DataObject, plain: Problem, interval: int, room_bytes: int
) -> None:
    """Checks that the staging buffer is not larger than its room, unless it is the smallest possible buffer. A slot
    consists of whole pages."""
    problem = replace(plain, acquisition=every(interval, plain))
    sizes = data.draw(sizes_for(problem))
    found = fit_staging(problem, sizes, 2, room_bytes)
    assert found.bytes <= max(MIN_STAGING.bytes, room_bytes)
    assert found.slots >= MIN_STAGING.slots and found.slot_bytes % 4096 == 0
    assert fit_staging(replace(plain, acquisition=NO_DEMAND), sizes, 2, room_bytes).bytes == 0
    more = fit_staging(problem, sizes, 2, room_bytes + (1 << 22))
    assert more.slot_bytes >= found.slot_bytes


@pytest.mark.parametrize("sizes", [Sizes(8, 4, 4), Sizes(8, 4, 4, block_y=32)], ids=["planes", "blocks"])
def test_more_memory_gives_fewer_writes(sizes: Sizes) -> None:
    """Checks that a larger staging buffer gives fewer writes of the same total size."""
    problem = replace(cube(16), acquisition=every(4, cube(16), initial=True))
    found = [
        snapshot_writes(problem, sizes, fit_staging(problem, sizes, 2, room), 2, 0, 8)
        for room in (1 << 15, 1 << 18, 1 << 21, 1 << 24)
    ]
    writes = [one.writes for one in found]
    assert writes == sorted(writes, reverse=True) and writes[0] > 2 * writes[-1]
    assert {one.bytes for one in found} == {3 * 128**3 * 4}


def test_each_pass_has_its_own_number_of_snapshots() -> None:
    """Checks the bytes of snapshots in each pass. A pass has 8 steps, and every 12th step has a snapshot."""
    problem, sizes = replace(cube(40), acquisition=every(12, cube(40), initial=True)), Sizes(8, 4, 4)
    staging = fit_staging(problem, sizes, 2, 1 << 24)
    found = [snapshot_writes(problem, sizes, staging, 2, step, 8).bytes for step in range(0, 40, 8)]
    assert found == [count * 128**3 * 4 for count in (1, 1, 1, 0, 1)]
    assert snapshot_writes(problem, sizes, staging, 2, 24, 8) == NO_WRITES


def _plans(machine: Machine, problem: Problem, sizes: Sizes, budget_bytes: int) -> tuple[Plan, Plan]:
    """Return the plans with and without snapshots for the same sizes."""
    kept = make_plan(problem, machine, budget_bytes, "wavefront", assumed_rate).acquisition
    plain = replace(problem, acquisition=NO_DEMAND)
    scheme = SCHEMES["wavefront"]
    with_snapshots = build(problem, scheme, sizes, machine, assumed_rate, kept, budget_bytes)
    return with_snapshots, build(plain, scheme, sizes, machine, assumed_rate)


def test_seconds_include_snapshots_and_bytes_do_not() -> None:
    """Checks the predicted seconds on a slow device, whose transfers take longer than all updates. With snapshots, the
    run takes longer by about the time of their bytes. The predicted bytes do not include snapshots.
    """
    problem, sizes, budget = replace(cube(16), acquisition=every(2, cube(16))), Sizes(8, 4, 4), 32 << 20
    kept, plain = _plans(SLOW, problem, sizes, budget)
    own = 8 * 128**3 * 4 / SLOW.device.write_bytes_per_second
    assert own <= kept.predicted.seconds - plain.predicted.seconds <= 1.15 * own
    assert kept.predicted.bytes_written == plain.predicted.bytes_written
    assert kept.memory_bytes <= budget


def test_snapshots_hide_behind_updates() -> None:
    """Checks that a few snapshots on a fast device make a run only slightly longer."""
    problem, sizes, budget = replace(cube(16), acquisition=every(8, cube(16))), Sizes(8, 4, 4), 64 << 20
    fast = replace(MACHINE, device=StorageRates(1e10, 1e10, 1e10, 0.001, "assumed", 5e9))
    kept, plain = _plans(fast, problem, sizes, budget)
    assert plain.predicted.seconds < kept.predicted.seconds < plain.predicted.seconds * 1.1


def test_first_writes_have_their_own_rate() -> None:
    """Checks that the predicted time of snapshots uses the rate of first writes, because snapshots go to new files."""
    problem, sizes, budget = replace(cube(16), acquisition=every(1, cube(16))), Sizes(8, 4, 4), 32 << 20
    slower = replace(SLOW, device=replace(SLOW.device, first_write_bytes_per_second=5e7))
    one, other = (_plans(machine, problem, sizes, budget) for machine in (SLOW, slower))
    assert other[1].predicted == one[1].predicted
    own = 16 * 128**3 * 4 / 1e8
    assert other[0].predicted.seconds - one[0].predicted.seconds == pytest.approx(own, rel=0.1)


def test_time_line_writes_all_snapshots_before_the_flush() -> None:
    """Checks that the time line of a pass includes all writes of snapshots, and ends with the flush."""
    problem, sizes = replace(cube(8), acquisition=every(1, cube(8))), Sizes(8, 4, 4)
    plan, _ = _plans(SLOW, problem, sizes, 32 << 20)
    snapshots = snapshot_writes(problem, sizes, plan.acquisition.staging, SLOW.threads, 0, 8)
    spans = list(timeline(problem, plan.passes[0], SLOW, 1e9, 0.0, snapshots))
    writing = sum(span.end - span.start for span in spans if span.what == "write")
    assert writing * 1e8 >= snapshots.bytes
    assert spans[-1].what == "flush" and spans[-1].start >= max(span.end for span in spans[:-1])


def test_tuner_leaves_memory_for_snapshots() -> None:
    """Checks that the plan of a run with many snapshots has a larger staging buffer than the minimum. This plan must
    take less time than the best plan with the smallest staging buffer."""
    problem = replace(cube(16), acquisition=every(1, cube(16)))
    budget = smallest_budget_bytes(problem) + 24 * problem.record_bytes
    plan = make_plan(problem, MACHINE, budget, "wavefront", assumed_rate)
    assert plan.acquisition.staging.bytes > 4 * MIN_STAGING.bytes
    plain = make_plan(
        replace(problem, acquisition=NO_DEMAND), MACHINE, budget - MIN_STAGING.bytes, "wavefront", assumed_rate
    )
    least = replace(plan.acquisition, staging=MIN_STAGING)
    rival = predict(problem, works_of(problem, plain.passes), plain.sizes, plain.window, MACHINE, assumed_rate, least)
    assert plan.predicted.seconds < rival.seconds
