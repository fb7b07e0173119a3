"""Sizes of a scheme with what their plan costs."""

from __future__ import annotations

from dataclasses import dataclass

from outcrop.plan.plan import Prediction, Sizes


@dataclass(frozen=True)
class Candidate:
    """Sizes of a scheme with what their plan costs; without its actions, of which there may be many."""

    scheme: str
    sizes: Sizes
    passes: int
    predicted: Prediction

    @property
    def seconds(self) -> float:
        """Predicted."""
        return self.predicted.seconds
