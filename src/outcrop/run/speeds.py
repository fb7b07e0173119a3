"""Compare the measured speeds of a run with the predicted speeds, and keep the measured speeds for later plans
(tiers/measure.py)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from outcrop.paths import nearest_existing
from outcrop.tiers import measure
from outcrop.tiers.measure import factor_of, keep_factor
from outcrop.units import format_seconds

if TYPE_CHECKING:
    from outcrop.run.engine import Prepared
    from outcrop.run.report import Report
    from outcrop.run.setup import Setup

LONG_SECONDS = 2.0
"""The speeds of shorter runs are neither compared nor kept, because they vary too much."""
DIFFERS = 1.25
"""The report names a time if it is more than DIFFERS times the predicted time, or less than 1 / DIFFERS of it."""
WAITING = 0.2
"""A run is limited by its disk if the run waits for transfers during at least this share of its time."""


def updates_ratio(report: Report) -> float | None:
    """Return the measured time of the updates, divided by the predicted time. Return None if the update rate was
    assumed, or if the run was too short."""
    guess = report.predicted
    if "updates" in guess.assumed or report.seconds_update < LONG_SECONDS or not guess.seconds_update:
        return None
    return report.seconds_update / guess.seconds_update


def storage_ratio(report: Report) -> float | None:
    """If the run was limited by its disk, return the measured time of the run, divided by the predicted time of the
    transfers. Return None for other runs, for short runs, and for runs through the page cache. Also return None if the
    speed of the disk was assumed."""
    guess = report.predicted
    waits = report.seconds_read_wait + report.seconds_write_wait
    if "storage" in guess.assumed or not report.direct_io or report.seconds < LONG_SECONDS:
        return None
    is_limited = guess.seconds > (1 + WAITING) * guess.seconds_update
    expected = guess.seconds if is_limited else max(guess.seconds_read, guess.seconds_write)
    return report.seconds / expected if waits >= WAITING * report.seconds and expected else None


def remarks(report: Report) -> Iterator[str]:
    """Yield a line for each speed that differs much from its prediction."""
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
        yield (
            f"note: the disk has limited this run to {format_seconds(report.seconds)}, predicted "
            f"{format_seconds(report.seconds / ratio)}; other programs use the disk now, or have used it when its "
            "speed was measured"
        )


def keep_speeds(report: Report, prepared: Prepared, setup: Setup) -> None:
    """Keep the speeds of a complete run of one process for later plans. The speeds are kept only if the run has no
    sources, receivers, norms, snapshots or states of other runs, because such additional work also takes time."""
    description = setup.description
    taps = description.taps
    if setup.group is not None or description.states or taps.sources or taps.traces or taps.snapshots or taps.norms:
        return
    if (ratio := updates_ratio(report)) is not None and prepared.updates_key:
        keep_factor(prepared.updates_key, prepared.updates_factor / ratio)
    key = measure.factor_key([nearest_existing(path) for path in setup.directories], description.settings.io)
    if (ratio := storage_ratio(report)) is not None and key:
        keep_factor(key, factor_of(key) / ratio)
