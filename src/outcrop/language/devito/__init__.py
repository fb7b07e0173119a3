"""Make stencils from Devito's equations: `from_devito`.

    eq = Eq(u.forward, solve(m * u.dt2 - u.laplace, u.forward))
    lowered = from_devito([eq, src.inject(u.forward, src * dt**2 / m), rec.interpolate(u)], dt=1.0)

Devito evaluates derivatives and staggered positions (`Eq.evaluate`), and converts positions to offsets in whole cells
(`lower_exprs`). This package performs the other steps:

    Eq, Inc ──► equation ──► stages, by dependency ──► expression ──► Stencil
    inject, interpolate ──► points ──► Injection, Sampling
    save=, ConditionalDimension ──► snapshots

This package is imported only if a user passes equations of Devito to Outcrop. Devito is an optional dependency.
"""

from __future__ import annotations

from outcrop.errors import InputError

try:
    from outcrop.language.devito.lowered import Lowered
    from outcrop.language.devito.program import from_devito, keep_equations
except ImportError as error:
    raise InputError(f"Devito is missing, or is another version ({error}): pip install 'outcrop[devito]'") from None

__all__ = ["Lowered", "from_devito", "keep_equations"]
