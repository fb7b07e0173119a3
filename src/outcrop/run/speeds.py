"""Compare the measured speeds of a run with the predicted speeds, and keep the measured speeds for later plans
(tiers/measure.py)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from outcrop.paths import nearest_existing
from outcrop.tiers import measure
from outcrop.tiers.measure import MAX_FACTOR, MIN_FACTOR, keep_factor
from outcrop.units import format_seconds

if TYPE_CHECKING:
    from outcrop.run.engine import Prepared
    from outcrop.run.report import Report
    from outcrop.run.setup import Setup

LONG_SECONDS = 2.0
"""If a run takes less than LONG_SECONDS, its speeds are neither compared nor kept, because they vary too much."""
DIFFERS = 1.25
"""The report names a time that is more than DIFFERS times the predicted time, or less than the predicted time /
DIFFERS."""
WAITING = 0.2
"""A run is limited by its disk if the run waits for transfers during at least the share WAITING of its time."""
MOST = 0.5
"""If a run waits for transfers during at least the share MOST of its time, updates do not change its time."""


def updates_ratio(report: Report) -> float | None:
    """Return the measured time of the updates, divided by the predicted time. Return None if the update rate was
    assumed, or if the run was too short."""
    guess = report.predicted
    if "updates" in guess.assumed or report.seconds_update < LONG_SECONDS or not guess.seconds_update:
        return None
    return report.seconds_update / guess.seconds_update


def storage_ratio(report: Report) -> float | None:
    """Return the measured time of the transfers, divided by their predicted time. Return None if the speed of the disk
    cannot be found from the run. Examples are short runs, runs through the page cache, and runs for which the speed of
    the disk was assumed.

    A run that waits for transfers most of its time is as fast as its disk. A run that waits less shows its disk only in
    part:

    * If the run waits for a large part of its time, there are two estimates. The first estimate comes from the whole
    time of the run, which also contains slow updates. The second estimate comes from the additional waits, which do not
    contain the transfers during updates. The estimate that is closer to 1
      is returned. If one estimate is above 1 and the other estimate is below 1, the result is None.
    * If the run hardly waits, the disk needs at most the time during which transfers were in flight. The ratio for this
    time is returned only if it is below 1, because a disk with few transfers in flight is slow."""
    guess, waits = report.predicted, _waits(report)
    if "storage" in guess.assumed or not report.direct_io or report.seconds < LONG_SECONDS:
        return None
    longer = max(guess.seconds_read, guess.seconds_write)
    if not guess.seconds_transfer or not report.seconds_transfer:
        return None
    if waits < WAITING * report.seconds:
        busy = report.seconds_transfer / guess.seconds_transfer
        return busy if busy < 1 else None
    whole = report.seconds / (guess.seconds if _is_limit_expected(report) else longer)
    if waits >= MOST * report.seconds:
        return whole
    by_waits = 1 + (waits - (guess.seconds - guess.seconds_update)) / longer
    if (whole < 1) != (by_waits < 1):
        return None
    return max(whole, by_waits) if whole < 1 else min(whole, by_waits)


def _is_another_disk(storage_factor: float | None, ratio: float) -> bool:
    """The speed of the disk and its speed in the cache can be very different. Return True if it is possible that
    another disk was measured. `storage_factor` is None if the speed does not come from the cache. `ratio` is the result
    of `storage_ratio`."""
    return storage_factor is not None and not MIN_FACTOR <= storage_factor / ratio <= MAX_FACTOR


def _is_limit_expected(report: Report) -> bool:
    return report.predicted.seconds > (1 + WAITING) * report.predicted.seconds_update


def _waits(report: Report) -> float:
    return report.seconds_read_wait + report.seconds_write_wait


def remarks(report: Report) -> Iterator[str]:
    """Yield a line of text for each speed that differs much from its prediction."""
    guess = report.predicted
    ratio = updates_ratio(report)
    if ratio and not 1 / DIFFERS <= ratio <= DIFFERS:
        yield (
            f"note: updates took {format_seconds(report.seconds_update)}, predicted "
            f"{format_seconds(guess.seconds_update)}; other programs use the processor now, or have used it when its "
            "speed was measured"
        )
    ratio = storage_ratio(report)
    if ratio and not 1 / DIFFERS <= ratio <= DIFFERS:
        expected = format_seconds(report.seconds / ratio)
        another = ", or another disk was measured" if _is_another_disk(guess.storage_factor, ratio) else ""
        if _waits(report) >= WAITING * report.seconds:
            yield (
                f"note: the disk has limited this run to {format_seconds(report.seconds)}, predicted {expected}; other "
                f"programs use the disk now, or have used it when its speed was measured{another}"
            )
        elif _is_limit_expected(report):
            yield (
                "note: this run has not waited for its disk as predicted; other programs have used the disk when its "
                f"speed was measured{another}"
            )


def keep_speeds(report: Report, prepared: Prepared, setup: Setup) -> None:
    """Keep the speeds of a complete run of one process for later plans. Sources, receivers, norms, snapshots and states
    of other runs are additional work, which also takes time. The speeds are kept only if the run has no additional
    work."""
    description = setup.description
    taps = description.taps
    if setup.group is not None or description.states or taps.sources or taps.traces or taps.snapshots or taps.norms:
        return
    if (ratio := updates_ratio(report)) is not None and prepared.rate:
        prepared.rate.keep_run(ratio)
    places, io = [nearest_existing(path) for path in setup.directories], description.settings.io
    key = measure.factor_key(places, io)
    if (ratio := storage_ratio(report)) is None or not key:
        return
    if _is_another_disk(prepared.storage_factor, ratio):
        measure.forget_device(places[0], io)  # a bounded factor would never correct these rates
    else:
        keep_factor(key, (prepared.storage_factor or 1.0) / ratio)
