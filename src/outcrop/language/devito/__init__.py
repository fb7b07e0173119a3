"""Devito's equations as a language for stencils: `from_devito`.

    eq = Eq(u.forward, solve(m * u.dt2 - u.laplace, u.forward))
    lowered = from_devito([eq, src.inject(u.forward, src * dt**2 / m), rec.interpolate(u)], dt=1.0)

Devito evaluates derivatives and staggering (`Eq.evaluate`) and turns them into whole offsets (`lower_exprs`); what
follows is ours:

    Eq, Inc ──► equation ──► stages: what waits for what ──► Stencil
    inject, interpolate ──► points ──► Injection, Sampling

This package is imported only when equations are given; Devito itself is an extra.
"""

from __future__ import annotations

from outcrop.errors import InputError

try:
    from outcrop.language.devito.lowered import Lowered
    from outcrop.language.devito.program import from_devito
except ImportError as error:
    raise InputError(f"Devito is missing, or is another version ({error}): pip install 'outcrop[devito]'") from None

__all__ = ["Lowered", "from_devito"]
