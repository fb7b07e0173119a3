"""What is measured of a tier, apart from the tier: this is what is kept between runs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from outcrop.tiers.tier import Tier


@dataclass(frozen=True)
class Figures:
    """As in Tier; None is what has not been measured."""

    origin: str
    read_bytes_per_second: float | None = None
    write_bytes_per_second: float | None = None
    random_read_bytes_per_second: float | None = None
    random_write_bytes_per_second: float | None = None
    triad_bytes_per_second: float | None = None
    latency_seconds_read: float | None = None
    latency_seconds_write: float | None = None
    latency_seconds_flush: float | None = None


def with_figures(tier: Tier, figures: Figures) -> Tier:
    """The tier with those of the figures that are known; what the user has declared stays."""
    known = {name: value for name, value in asdict(figures).items() if value is not None}
    if tier.origin == "declared":
        known = {name: value for name, value in known.items() if getattr(tier, name) is None}
    return replace(tier, **known)
