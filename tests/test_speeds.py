"""Check that reports name speeds that differ from the predicted speeds. Later plans must use the speeds that earlier
runs have measured."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import outcrop as oc
from outcrop import _core
from outcrop.plan.machine import StorageRates
from outcrop.run import speeds
from outcrop.run.options import RunOptions
from outcrop.run.report import Report
from outcrop.run.setup import Setup, set_up
from outcrop.tiers import measure, update_rate
from outcrop.tiers.update_rate import RateOfPlan
from outcrop.user_cache import keep_figures, load_figures
from strategies import make_problem

RATE = 4e9
DISK = StorageRates(2e9, 1e9, 1.5e9, 0.01, "measured", 1e9)


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setup:
    """Return the setup of a run, with a new cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return set_up(RunOptions("heat2", (30, 30, 30), directory=tmp_path / "run.oc", memory="1MiB"))


@pytest.fixture
def report(tmp_path: Path) -> Report:
    """Return the report of a run with measured speeds. The updates of the run have taken as long as predicted."""
    sim = oc.Simulation("heat2", (20, 20, 20), directory=tmp_path / "other.oc", memory="1MiB")
    short = sim.run(2)
    guess = replace(short.predicted, assumed={}, seconds=10.0, seconds_update=9.0, seconds_read=6.0, seconds_write=6.0)
    guess = replace(guess, seconds_transfer=12.0)
    times: dict[str, Any] = dict(seconds=10.0, seconds_update=9.0, seconds_read_wait=0.5, seconds_write_wait=0.2)
    times |= dict(seconds_transfer=12.0, direct_io=True)
    return replace(short, predicted=guess, **times)


def prepared(factor: float = 1.0, storage: float | None = 1.0) -> Any:
    return SimpleNamespace(rate=RateOfPlan("sizes", RATE, "updates heat2", factor, 0), storage_factor=storage)


def kept_rate() -> float:
    """Return the rate in the cache that the next plan with the same sizes uses, or 0."""
    kept = load_figures(update_rate.CACHE, update_rate.KeptRate).get("sizes")
    return kept.updates_per_second * measure.factor_of("updates heat2") if kept else 0.0


def test_a_report_names_a_speed_that_differs(report: Report) -> None:
    """Checks the notes of a report about updates and about the disk. There is no note if the difference is small, if
    the run is short, or if the predicted speed was assumed."""
    assert "predicted" not in str(report).partition("scheme")[2]
    busy = replace(report, seconds=19.0, seconds_update=18.0)
    assert "note: updates took 18.0 s, predicted 9.000 s; other programs use the processor" in str(busy)
    assert "note: the disk" not in str(busy), "this run did not wait for its disk"
    assert "note: updates took 4.500 s" in str(replace(report, seconds_update=4.5))
    slow = replace(report, seconds=30.0, seconds_read_wait=20.0)
    assert "note: the disk has limited this run to 30.0 s, predicted 6.000 s" in str(slow)
    assert "note: updates" not in str(slow)
    guess = replace(report.predicted, seconds=40.0, seconds_transfer=38.0)
    assert "note: this run has not waited for its disk as predicted" in str(replace(report, predicted=guess))
    for quiet in (
        replace(report, seconds_update=10.0),
        replace(report, seconds_update=1.9, seconds=1.9),
        replace(busy, predicted=replace(report.predicted, assumed={"updates": "too short"})),
        replace(slow, predicted=replace(report.predicted, assumed={"storage": "too short"})),
        replace(slow, direct_io=False),
    ):
        assert not any(speeds.remarks(quiet))


def test_two_runs_of_the_same_speed_keep_the_same_rate(report: Report, setup: Setup) -> None:
    """Checks two runs on a machine whose updates are slower than measured. The prediction of the second run is right,
    and the stored rate does not change."""
    slow = replace(report, seconds_update=18.0)
    speeds.keep_speeds(slow, prepared(), setup)
    assert kept_rate() == pytest.approx(RATE / 2)
    factor = measure.factor_of("updates heat2")
    assert factor == pytest.approx(update_rate.LUCK / 2)
    rate = RateOfPlan("sizes", kept_rate() / factor, "updates heat2", factor, 0)
    second = SimpleNamespace(rate=rate, storage_factor=1)
    guess = replace(report.predicted, seconds_update=18.0)
    speeds.keep_speeds(replace(slow, predicted=guess), second, setup)
    assert kept_rate() == pytest.approx(RATE / 2) and measure.factor_of("updates heat2") == factor
    assert measure.factor_of("updates of another kernel") == 1


def test_the_speed_of_a_disk_is_kept_for_its_directory(report: Report, setup: Setup, tmp_path: Path) -> None:
    """Checks a run that has waited for its disk. Later plans for this disk must use lower rates than the measured rates
    in the cache."""
    places, problem = [tmp_path], make_problem((30, 30, 30), (1, 1, 1), 2)
    keep_figures(measure.CACHE, {measure.factor_key(places, "auto").removeprefix("storage "): DISK})
    before = measure.device(places, "auto", False, problem)
    assert (before.origin, before.read_bytes_per_second) == ("cached", 2e9)
    speeds.keep_speeds(report, prepared(), setup)
    assert measure.device(places, "auto", False, problem) == before, "the disk did not limit this run"
    speeds.keep_speeds(replace(report, seconds=24.0, seconds_read_wait=15.0), prepared(), setup)
    after = measure.device(places, "auto", False, problem)
    assert after.read_bytes_per_second == pytest.approx(0.5e9) and after.mixed_bytes_per_second == pytest.approx(3.75e8)
    assert after.seconds_flush == before.seconds_flush


def test_a_wrong_speed_of_a_disk_is_forgotten(report: Report, setup: Setup, tmp_path: Path) -> None:
    """Checks that the factor of a disk grows again after a run in which transfers took less time than predicted. Slow
    updates do not change the factor of the disk."""
    key = measure.factor_key([tmp_path], "auto")
    measure.keep_factor(key, 0.2)
    guess = replace(report.predicted, seconds_transfer=40.0)
    for _ in range(2):  # the second run uses the plan of the first run again
        speeds.keep_speeds(replace(report, predicted=guess, seconds_transfer=16.0), prepared(storage=0.2), setup)
        assert measure.factor_of(key) == pytest.approx(0.5)
    # The run hardly waits. Its few transfers were in flight for a long time, but this does not make the disk slow.
    speeds.keep_speeds(replace(report, seconds_transfer=15.0), prepared(storage=0.5), setup)
    assert measure.factor_of(key) == pytest.approx(0.5)
    # The run waits as predicted. Only its updates take longer.
    guess = replace(report.predicted, seconds=14.0)
    slow = replace(report, predicted=guess, seconds=23.0, seconds_update=18.0, seconds_read_wait=4.8)
    speeds.keep_speeds(slow, prepared(storage=0.5), setup)
    assert measure.factor_of(key) == pytest.approx(0.5)
    # The run waits 3 s longer than predicted. Its transfers would take 6 s.
    waits = replace(report, seconds=14.0, seconds_read_wait=3.8)
    speeds.keep_speeds(waits, prepared(storage=0.5), setup)
    assert measure.factor_of(key) == pytest.approx(1 / 3)


@pytest.mark.parametrize("seconds", [400.0, 2.1])
def test_another_disk_is_measured_again(seconds: float, report: Report, setup: Setup, tmp_path: Path) -> None:
    """Checks a run whose disk is much slower or faster than the figures in the cache. Another disk may have the same
    name now. A bounded factor could not correct its figures, so they are removed. If the run itself has measured the
    disk, the figures stay, with a bounded factor."""
    places, problem = [tmp_path], make_problem((30, 30, 30), (1, 1, 1), 2)
    key = measure.factor_key(places, "auto")
    disk = {key.removeprefix("storage "): DISK, "another disk": DISK}
    report = replace(report, seconds=seconds, seconds_read_wait=0.9 * seconds)
    cached = replace(report, predicted=replace(report.predicted, storage_factor=1.0))
    measured = replace(report, predicted=replace(report.predicted, storage_factor=None))
    bound = measure.MIN_FACTOR if seconds > 10 else measure.MAX_FACTOR
    keep_figures(measure.CACHE, disk)
    speeds.keep_speeds(measured, prepared(storage=None), setup)
    assert measure.device(places, "auto", False, problem).read_bytes_per_second == pytest.approx(2e9 * bound)
    assert not any("another disk" in line for line in speeds.remarks(measured))
    speeds.keep_speeds(cached, prepared(), setup)
    assert measure.device(places, "auto", False, problem).origin == "assumed"
    assert list(load_figures(measure.CACHE, StorageRates)) == ["another disk"]
    assert "when its speed was measured, or another disk was measured" in "".join(speeds.remarks(cached))


def test_a_factor_is_bounded_and_expires(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that a stored factor is limited to a range, and that it is no longer used after 30 days."""
    for given, kept in ((1e-9, measure.MIN_FACTOR), (1e9, measure.MAX_FACTOR), (0.7, 0.7)):
        measure.keep_factor("one", given)
        assert measure.factor_of("one") == kept
    later = time.time() + measure.SECONDS_KEPT
    monkeypatch.setattr(time, "time", lambda: later)
    assert measure.factor_of("one") == 1


def test_runs_with_other_work_and_short_runs_keep_nothing(report: Report, tmp_path: Path, setup: Setup) -> None:
    """Checks that a run with norms or snapshots stores no speeds, because this additional work also takes time. A short
    run stores no speeds either."""
    options = RunOptions("heat2", (30, 30, 30), directory=tmp_path / "kept.oc", memory="1MiB")
    with_norms = set_up(replace(options, norms=oc.Norms(1)))
    speeds.keep_speeds(replace(report, seconds_update=18.0), prepared(), with_norms)
    speeds.keep_speeds(replace(report, seconds_update=1.0), prepared(), setup)
    assert measure.factor_of("updates heat2") == 1 and kept_rate() == 0


def test_two_plans_use_the_same_rate_of_checksums(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that the rate of checksums is the best of several measurements, and that later plans use this rate until
    it is too old. Ranks that measure at the same time neither use nor keep this rate."""
    rates = iter([4e8, 9e8, 5e8, 2e8, 6e8, 7e8, 3e8])
    monkeypatch.setattr(_core, "measure_checksum_rate", lambda *_: next(rates))
    assert [measure.checksum_rate(2, 1 << 24) for _ in range(3)] == [9e8] * 3
    assert measure.checksum_rate(2, 1 << 24, is_alone=False) == 2e8
    now = time.time() + measure.SECONDS_KEPT + 1
    monkeypatch.setattr(time, "time", lambda: now)
    assert measure.checksum_rate(2, 1 << 24) == 7e8
