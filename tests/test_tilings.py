"""Check the tiles of slabs. All threads must be busy even on grids with few rows, and plans must show the tiles."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcrop.cli import main
from outcrop.plan.plan import Sizes
from outcrop.plan.planner import largest_useful_bytes, make_plan
from outcrop.plan.problem import NO_DEMAND, AcquisitionDemand, Problem, SnapshotDemand
from outcrop.plan.schemes import SCHEMES
from outcrop.plan.tuner import shares_planes, tilings
from outcrop.tiers import measure, update_rate
from outcrop.tiers.update_rate import UpdateRateMeter
from strategies import MACHINE, assumed_rate, make_problem

FIXED_SIDES = (("fixed", "fixed"), ("fixed", "fixed"))


def every_tiling(problem: Problem, sizes: Sizes, threads: int, scheme: str = "wavefront") -> list[Sizes]:
    """Return all tilings that the tuner measures."""
    return list(tilings(problem, SCHEMES[scheme], sizes, replace(MACHINE, threads=threads)))


@given(
    threads=st.integers(1, 16),
    radius=st.integers(0, 8),
    planes=st.integers(1, 5000),
    levels=st.integers(1, 300),
    slab=st.integers(1, 5000),
    scheme=st.sampled_from(["wavefront", "naive"]),
)
def test_threads_share_the_planes_of_grids_of_one_row(
    threads: int, radius: int, planes: int, levels: int, slab: int, scheme: str
) -> None:
    """Checks the tiles of grids of two axes. Each thread gets chunks. If a pass has enough levels, each slab is also
    divided into bands. Plain sweeps have no bands.
    """
    problem, sizes = make_problem((planes, 1, 4000), (radius, 0, radius), levels), Sizes(levels, slab, 0)
    found = every_tiling(problem, sizes, threads, scheme)
    assert found
    for one in found:
        assert (one.chunk > 0) == (planes >= 2 * threads)
        if one.chunk and min(slab, planes) >= 4 * threads:
            assert 2 * threads * one.chunk <= min(slab, planes)
        if one.diamond > 1 and one.chunk:
            assert one.levels >= 2 * one.diamond * threads
    if scheme == "naive":
        assert [one.diamond for one in found] == [0]


@given(st.integers(1, 16), st.integers(0, 4), st.integers(1, 300))
def test_grids_of_many_rows_are_cut_into_diamonds(threads: int, radius: int, levels: int) -> None:
    """Checks grids that have enough rows for one diamond per thread. Planes must not be divided into chunks."""
    problem = make_problem((500, 2 * max(1, radius) * threads, 500), (radius, radius, radius), levels)
    assert not shares_planes(problem, threads)
    assert all(one.chunk == 0 and one.diamond > 0 for one in every_tiling(problem, Sizes(levels, 30, 0), threads))


@pytest.mark.parametrize("fastest", [1, 2, 4])
def test_the_tuner_takes_the_fastest_loop_of_the_kernel(fastest: int) -> None:
    """Checks that the tuner measures each loop, and then measures tiles with the fastest loop."""
    problem, measured = make_problem((200, 100, 300), (1, 1, 1), 40), list[int]()

    def rate(sizes: Sizes) -> float:
        measured.append(sizes.rows_at_once)
        return assumed_rate(sizes) * (1.5 if sizes.rows_at_once == fastest else 1.0)

    plan = make_plan(problem, MACHINE, largest_useful_bytes(problem) // 4, "auto", rate)
    assert plan.sizes.rows_at_once == fastest
    assert set(measured[:3]) == {1, 2, 4} and set(measured[3:]) == {fastest}


@pytest.mark.parametrize("gain", [0.9, 1.1])
def test_the_tuner_prefetches_if_it_is_faster(gain: float) -> None:
    """Checks that the tuner measures prefetches once, and uses them in all tiles if they are faster."""
    problem, measured = make_problem((200, 100, 300), (1, 1, 1), 40), list[bool]()

    def rate(sizes: Sizes) -> float:
        measured.append(sizes.prefetch)
        return assumed_rate(sizes) * (gain if sizes.prefetch else 1.0)

    plan = make_plan(problem, MACHINE, largest_useful_bytes(problem) // 4, "auto", rate)
    assert plan.sizes.prefetch == (gain > 1) and True in measured


@pytest.mark.parametrize("gain", [0.9, 1.1])
@pytest.mark.parametrize(
    ("nx", "x_side", "is_tried"), [(8192, "fixed", True), (8192, "periodic", False), (512, "fixed", False)]
)
def test_the_tuner_divides_long_rows_if_it_is_faster(nx: int, x_side: str, is_tried: bool, gain: float) -> None:
    """Checks that the tuner measures ranges of columns only for long rows that are not periodic."""
    problem = make_problem((200, 100, nx), (1, 1, 1), 40)
    problem = replace(problem, sides=(*problem.sides[:2], (x_side, x_side)))
    measured = list[int]()

    def rate(sizes: Sizes) -> float:
        measured.append(sizes.columns)
        return assumed_rate(sizes) * (gain if sizes.columns else 1.0)

    plan = make_plan(problem, MACHINE, largest_useful_bytes(problem) // 4, "auto", rate)
    assert any(measured) == is_tried
    assert (plan.sizes.columns > 0) == (is_tried and gain > 1)


SNAPSHOTS = AcquisitionDemand((SnapshotDemand(2, 1, 200, 100, 4 * 8192, True),))


@pytest.mark.parametrize(
    ("demand", "block_x", "is_divided"), [(NO_DEMAND, 0, True), (SNAPSHOTS, 0, False), (NO_DEMAND, 512, False)]
)
def test_ranges_of_columns_divide_no_snapshots_and_no_blocks(
    demand: AcquisitionDemand, block_x: int, is_divided: bool
) -> None:
    """Checks that long rows are not divided into ranges of columns if snapshots need whole rows, or if blocks have
    bounds in x."""
    problem = replace(make_problem((200, 100, 8192), (1, 1, 1), 40), acquisition=demand)
    found = every_tiling(problem, Sizes(40, 30, 0, block_x=block_x), 2, "overlapped")
    assert any(one.columns for one in found) == is_divided and not all(one.columns for one in found)


@pytest.mark.parametrize(("radius", "sides", "loops"), [(2, "fixed", {1, 2}), (1, "periodic", {1})])
def test_only_loops_that_exist_are_measured(radius: int, sides: str, loops: set[int]) -> None:
    """Checks that the loop that updates two rows of two planes together is measured only for radius 1. On a periodic
    streaming axis, each call updates one plane, so only one loop is measured."""
    problem = replace(make_problem((200, 100, 300), (radius,) * 3, 40), sides=((sides, sides), *FIXED_SIDES))
    measured = set[int]()

    def rate(sizes: Sizes) -> float:
        measured.add(sizes.rows_at_once)
        return assumed_rate(sizes)

    make_plan(problem, MACHINE, largest_useful_bytes(problem) // 4, "auto", rate)
    assert measured == loops


class SlowingMeter:
    """A meter that simulates a machine. In each measurement, the machine is slower than in the previous measurement.
    Diamonds of half height 12 are the fastest. `measured` is a list of all measured half heights."""

    measured: list[int]

    def __init__(self, *_: Any) -> None: ...

    @staticmethod
    def planes_needed(problem: Problem, levels: int, slab: int) -> int:
        return levels + slab

    def measure(self, sizes: Sizes, frame: Any, region: Any, repeats: int) -> list[float]:
        SlowingMeter.measured.append(sizes.diamond)
        return [1e9 * {8: 0.8, 12: 1.0}.get(sizes.diamond, 0.5) * 0.97 ** len(SlowingMeter.measured)] * repeats


@pytest.fixture
def simulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure simulated rates, and keep them in a new cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(update_rate, "_core", SimpleNamespace(UpdateMeter=SlowingMeter))
    SlowingMeter.measured = []


def simulated_meter(kernel: str = "", planes: int = 500) -> UpdateRateMeter:
    problem = make_problem((planes, 200, 300), (1, 1, 1), 40)
    return UpdateRateMeter(problem, (), b"", 2, 1 << 30, kernel=kernel)


def test_sizes_are_compared_although_the_speed_of_the_machine_changes(simulated: None) -> None:
    """Checks that the meter finds the fastest sizes. The meter measures these sizes last, when the machine has already
    become slower. Slow sizes must be measured only in the first turn."""
    rate, every = simulated_meter(), [Sizes(40, 60, diamond) for diamond in (6, 8, 4, 2, 12)]
    rate.compare(every[:1])
    rate.compare(every)
    rates = {one.diamond: rate(one) for one in every}
    assert max(rates, key=lambda one: rates[one]) == 12 and rates[12] > 1.6 * rates[6]
    assert [SlowingMeter.measured.count(one) for one in (12, 2, 4)] == [update_rate.TURNS, 1, 1]
    before = len(SlowingMeter.measured)
    rate.compare(every)
    assert len(SlowingMeter.measured) == before and rate.origin == "measured"


class RecordingMeter(SlowingMeter):
    """A meter that stores the levels, frames and regions of all measurements."""

    parts: list[tuple[int, Any, Any]]

    def measure(self, sizes: Sizes, frame: Any, region: Any, repeats: int) -> list[float]:
        RecordingMeter.parts.append((sizes.levels, frame, region))
        return [1e9] * repeats


@pytest.mark.parametrize("sides", [("neighbour", "neighbour"), ("fixed", "neighbour"), ("fixed", "fixed")])
def test_the_rate_of_a_rank_is_measured_with_the_rows_of_its_halos(
    simulated: None, monkeypatch: pytest.MonkeyPatch, sides: tuple[str, str]
) -> None:
    """Checks that a measurement updates the same rows at each level as a pass with the same number of levels. These are
    the rows of the rank, and rows of each neighbour. Each level updates r rows of each neighbour fewer than the
    previous level."""
    monkeypatch.setattr(update_rate, "_core", SimpleNamespace(UpdateMeter=RecordingMeter))
    RecordingMeter.parts = []
    rows, radius, steps = 200, 2, 60
    problem = make_problem((500, rows, 300), (1, radius, 1), steps)
    problem = replace(problem, sides=(("fixed", "fixed"), sides, ("fixed", "fixed")), max_halo=rows)
    UpdateRateMeter(problem, (), b"", 2, 1 << 28)(Sizes(steps, 60, 8))
    assert RecordingMeter.parts
    for levels, frame, region in RecordingMeter.parts:
        low, high = (radius * levels * (side == "neighbour") for side in sides)
        assert frame.y0 <= -low < frame.y0 + problem.row_group and frame.y1 == rows + high
        for level in range(1, levels + 1):
            left = radius * (levels - level)
            if low:
                assert region.y_low.at(level) == -left
            if high:
                assert region.y_high.at(level) == rows + left
        assert low or region.y_low.at(levels) < -rows
        assert high or region.y_high.at(levels) > 2 * rows


def rank_problem(radius: int, steps: int, rows: int = 1000) -> Problem:
    """Return the problem of a rank that has neighbours on both sides."""
    sides = ("neighbour", "neighbour")
    problem = make_problem((500, rows, 400), (1, radius, 1), steps)
    return replace(problem, sides=(("fixed", "fixed"), sides, ("fixed", "fixed")), max_halo=rows)


@pytest.mark.parametrize("radius", [1, 2, 4])
def test_all_passes_of_a_rank_are_measured_with_equal_levels(
    simulated: None, monkeypatch: pytest.MonkeyPatch, radius: int
) -> None:
    """Checks that the halos of a deep pass do not reduce the levels and planes of its measurement. If halos reduced
    them, the rates of passes with different numbers of levels could not be compared."""
    monkeypatch.setattr(update_rate, "_core", SimpleNamespace(UpdateMeter=RecordingMeter))
    RecordingMeter.parts = []
    rate = UpdateRateMeter(rank_problem(radius, 240), (), b"", 2, 256 << 20)
    for levels in (60, 120, 240):
        rate(Sizes(levels, 64, 8))
    assert len({levels for levels, _, _ in RecordingMeter.parts}) == 1
    assert RecordingMeter.parts[0][0] >= 24 / radius


def test_a_memory_for_blocks_of_rows_is_enough_for_a_measurement(simulated: None) -> None:
    """Checks that the rate of a block of rows is measured if the memory is too small for a slab of whole planes."""
    problem = make_problem((500, 1000, 400), (1, 1, 1), 20)
    rate = UpdateRateMeter(problem, (), b"", 2, 5 << 20)
    assert not rate.can_measure(Sizes(20, 1, 8)) and rate.can_measure(Sizes(20, 1, 8, block_y=50))
    rate(Sizes(20, 1, 8))
    assert rate.origin == "assumed" and SlowingMeter.measured == []
    rate.compare([Sizes(20, 1, 8), Sizes(20, 1, 8, block_y=50)])
    assert rate.origin == "measured" and len(SlowingMeter.measured) > 0


def test_a_small_memory_uses_rates_of_the_cache(simulated: None) -> None:
    """Checks that rates in the user's cache are used without measurements if the memory is too small for measurements.
    Sizes without a rate in the cache then get the rate of the most similar sizes."""
    problem, one = rank_problem(1, 20), Sizes(1, 1, 8)
    first = UpdateRateMeter(problem, (), b"", 2, 256 << 20, kernel="a")
    known = first(one)
    first.keep()
    count = len(SlowingMeter.measured)
    again = UpdateRateMeter(problem, (), b"", 2, 1 << 20, kernel="a")
    assert (again(one), again.is_measured, again.can_measure(one)) == (known, True, False)
    again.compare([one, replace(one, prefetch=True)])
    assert again(replace(one, prefetch=True)) == known and len(SlowingMeter.measured) == count


def test_rates_are_kept_for_the_same_kernel_and_planes(simulated: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that measured rates in the user's cache are used for grids with the same planes. Old rates, and rates of
    another kernel, must not be used."""
    first, one = simulated_meter("a"), Sizes(40, 60, 12)
    known = first(one)
    first.keep()
    count = len(SlowingMeter.measured)
    again = simulated_meter("a", planes=900)
    again.compare([one])
    assert (again(one), again.origin, len(SlowingMeter.measured)) == (known, "cached", count)
    other = simulated_meter("b")
    assert other(one) < known and other.origin == "measured"
    later = time.time() + update_rate.SECONDS_KEPT
    monkeypatch.setattr(time, "time", lambda: later)
    old = simulated_meter("a")
    assert old(one) < known and old.origin == "measured"


def test_later_plans_use_the_speed_of_the_last_run(simulated: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that measured rates from the user's cache are multiplied by the factor of the last run of this kernel.
    This factor does not change the order of the sizes. If other sizes are measured, the factor is measured again,
    because the speed of the machine can have changed since the run."""
    first, one, other = simulated_meter("a"), Sizes(40, 60, 12), Sizes(40, 60, 8)
    first.compare([one, other])
    rates = first(one), first(other)
    first.keep()
    used = first.of_plan(one)
    assert used is not None
    measure.keep_factor(used.factor_key, 0.5)
    again = simulated_meter("a", planes=900)
    assert (again.factor, again.origin) == (0.5, "assumed")
    assert (again(one), again(other)) == (rates[0] / 2, rates[1] / 2)
    new = Sizes(40, 90, 12)
    assert again(new) == pytest.approx(1e9 * 0.97 ** len(SlowingMeter.measured)), "a new rate has no factor"
    # both known rates were measured again before the new rate, and the factor is the median
    count = len(SlowingMeter.measured)
    factor = (1e9 * 0.97 ** (count - 2) / rates[0] + 0.8e9 * 0.97 ** (count - 1) / rates[1]) / 2
    assert again(one) == pytest.approx(factor * rates[0]), "the factor is measured again"
    again.keep()
    assert simulated_meter("a")(new) == pytest.approx(again(new)), "the cache has another factor"
    assert simulated_meter("b").factor == 1
    monkeypatch.setattr(update_rate, "AGAIN_SECONDS", 0)
    again.measure_again(one)
    assert again(one) == pytest.approx(1e9 * 0.97 ** len(SlowingMeter.measured)), "neither has a rate measured again"
    again.keep()
    assert simulated_meter("a")(one) == pytest.approx(again(one)), "the cache has the newest rate"
    later = time.time() + update_rate.SECONDS_KEPT
    monkeypatch.setattr(time, "time", lambda: later)
    old = simulated_meter("a")
    assert old(one) == pytest.approx(1e9 * 0.97 ** len(SlowingMeter.measured)) and old.factor == 1


def test_a_new_rate_without_a_known_rate_has_no_old_factor(simulated: None) -> None:
    """Checks a plan that measures new sizes, but cannot measure earlier sizes again. The factor of the last run is then
    no longer used. The next plan uses the same rate for the new sizes, and measures the earlier sizes again."""
    first, one, other = simulated_meter("a"), Sizes(40, 60, 12), Sizes(40, 60, 8)
    first(one)
    first.keep()
    used = first.of_plan(one)
    assert used is not None
    used.keep_run(2)
    second = simulated_meter("a")
    rate = second(other)
    assert rate == pytest.approx(0.8e9 * 0.97 ** len(SlowingMeter.measured)) and second.factor == 1
    second.keep()
    third = simulated_meter("a")
    assert third(other) == rate and third.origin == "cached", "two plans in a row use the same rate"
    count = len(SlowingMeter.measured)
    third(one)
    assert len(SlowingMeter.measured) > count, "a rate with another factor cannot be compared"


def test_a_run_corrects_the_rate_of_its_sizes(simulated: None) -> None:
    """Checks that a run with lucky sizes lowers the kept rate of these sizes only. If a run is much slower than
    predicted, the machine has become slower, so the factor of all sizes also changes."""
    meter, one, other = simulated_meter("a"), Sizes(40, 60, 12), Sizes(40, 60, 8)
    meter.compare([one, other])
    rates = meter(one), meter(other)
    meter.keep()
    for ratio, of_other in ((1.08, 1.0), (0.95, 1.0), (2.0, update_rate.LUCK / 2), (0.5, 2 / update_rate.LUCK)):
        before = simulated_meter("a")
        rates = before(one), before(other)
        used = before.of_plan(one)
        assert used is not None
        used.keep_run(ratio)
        after = simulated_meter("a")
        assert after(one) == pytest.approx(rates[0] / ratio), "the next prediction is right"
        assert after(other) == pytest.approx(rates[1] * of_other)
    assert simulated_meter("").of_plan(one) is None, "a meter without the cache corrects nothing"


def test_a_given_height_is_that_of_bands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that --diamond sets the height of bands on two axes, and that the plan shows the bands."""
    words = ["plan", "heat_2d", "-n", "400", "600", "-t", "60", "-d", str(tmp_path / "run.oc"), "--threads", "2"]
    assert main.call([*words, "--diamond", "4", "--draw", str(tmp_path / "plan.png")]) == 0
    assert "bands of 8 levels" in capsys.readouterr().out
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    assert main.call([*words, "--scheme", "naive"]) == 0
    assert "plain sweeps" in capsys.readouterr().out
