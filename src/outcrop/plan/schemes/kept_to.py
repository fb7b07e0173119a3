"""Schemes kept to the sizes that the user has given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from outcrop.errors import InputError
from outcrop.plan.given_sizes import GivenSizes, require_possible
from outcrop.plan.problem import Problem
from outcrop.plan.schemes.scheme import Scheme


def kept_to(schemes: Sequence[Scheme], problem: Problem, given: GivenSizes) -> list[Scheme]:
    """Those of `schemes` that have all sizes given, kept to them.

    Raises InputError when none has, or when a size cannot be on this grid.
    """
    if not given:
        return list(schemes)
    require_possible(problem, given)
    fitting = [one for one in schemes if set(given.to_dict()) <= set(one.sizes)]
    if not fitting:
        raise _no_scheme(schemes, given)
    return [
        replace(
            one,
            candidates=partial(one.candidates, given=given),
            smallest=partial(one.smallest, given=given),
            diamond=given.diamond or 0,
        )
        for one in fitting
    ]


def _no_scheme(schemes: Sequence[Scheme], given: GivenSizes) -> InputError:
    if len(schemes) > 1:
        others = "; ".join(f"{one.name} has {', '.join(one.sizes)}" for one in schemes if one.sizes)
        return InputError(f"no scheme that auto may choose has all of {given}; {others}")
    (scheme,) = schemes
    name = next(name for name in given.to_dict() if name not in scheme.sizes)
    has = f"which has {', '.join(scheme.sizes)}" if scheme.sizes else "which has none to choose"
    return InputError(f"{name} is no size of scheme {scheme.name}, {has}")
