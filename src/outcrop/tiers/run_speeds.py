"""Factors that correct measured speeds: the speed in a later run, divided by the speed in the cache.

Update rates and the speeds of disks are measured once, and then kept in the cache. Later, other programs may use the
machine, or the machine may be slower or faster. So at the end of a long run, Outcrop keeps two factors: one factor for
the kernel of the run, and one factor for the disk of the run:

    factor = speed in the run / speed in the cache

Later plans multiply all rates of this kernel, or of this disk, by the factor of the last long run. All sizes of a
kernel have the same factor, so the factor does not change their order."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass

from outcrop.user_cache import keep_figures, load_figures

CACHE = "runs.json"
SECONDS_KEPT = 30 * 24 * 3600.0
"""The time after which a factor is no longer used."""
MIN_FACTOR, MAX_FACTOR = 0.2, 2.0
"""The limits of a factor. A run that was stopped for a while must not make all later predictions useless."""


@dataclass(frozen=True)
class KeptFactor:
    """A factor in the cache, and the time at which its run ended, in seconds since 1970."""

    factor: float
    seconds_measured: float


def factor_of(what: str) -> float:
    """Return the factor of the kernel or disk that the text `what` identifies, or 1 if there is no recent factor."""
    kept = load_figures(CACHE, KeptFactor).get(_key(what))
    if kept is None or not 0 <= time.time() - kept.seconds_measured < SECONDS_KEPT:
        return 1.0
    return min(MAX_FACTOR, max(MIN_FACTOR, kept.factor))


def keep_factor(what: str, factor: float) -> None:
    """Keep a factor, and replace the earlier factor. A factor outside the limits becomes the limit."""
    bounded = min(MAX_FACTOR, max(MIN_FACTOR, factor))
    keep_figures(CACHE, {_key(what): KeptFactor(bounded, time.time())})


def _key(what: str) -> str:
    return hashlib.sha256(what.encode()).hexdigest()[:32]
