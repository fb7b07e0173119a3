"""Judge whether a stencil with given parameters is stable, and find its largest stable step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache

from outcrop.language.library.table import Family, find_stencil, split_name
from outcrop.language.program import Load
from outcrop.language.stability import Extremes, Limit, State, growth, largest_step, linearise, max_growth
from outcrop.language.stencil import Field, Stencil


def limit_of(stencil: Stencil) -> Limit | None:
    """Return the limit of the stencil's family, or a limit of the parameter dt if the family has no limit. Return None
    if the stencil does not have the parameter of the limit."""
    family = _family_of(stencil)
    limit = (family.limit if family else None) or Limit()
    return limit if limit.parameter in {one.name for one in stencil.parameters} else None


def is_built_in(stencil: Stencil) -> bool:
    """Return True if a stencil belongs to the library. The parameter h of such a stencil is the distance between
    cells."""
    return _family_of(stencil) is not None


def extremes_of(stencil: Stencil) -> Extremes:
    """Return an empty `Extremes` for the read-only fields of a stencil. Pass its `states` to `stability` after you have
    added planes."""
    family = _family_of(stencil)
    fields = {one.name for one, storage in zip(stencil.fields, stencil.storage, strict=True) if storage.is_static}
    return Extremes(fields, family.measures if family else ())


def _family_of(stencil: Stencil) -> Family | None:
    """Return the family of a built-in stencil. Return None for a user's own stencil, even if it has the name of a
    built-in stencil."""
    found = split_name(stencil.name)
    return found[0] if found and _fields_of(stencil.name) == stencil.fields else None


@cache
def _fields_of(name: str) -> tuple[Field, ...]:
    return find_stencil(name).fields


def stable_limit(stencil: Stencil, values: Mapping[str, float], states: Sequence[State] = ({},)) -> float | None:
    """Return the largest stable value of the parameter that `limit_of` names, or the smallest value if the limit is a
    minimum. Each of `states` has one value for each read-only field (`Extremes.states`, `corners`). Return None if the
    stencil has no limit, or if the growth is unknown (`stability.growth`)."""
    limit = limit_of(stencil)
    if limit is None:
        return None
    return largest_step(stencil, values, [{**limit.state, **state} for state in states], limit)


def stability(stencil: Stencil, values: Mapping[str, float], states: Sequence[State] = ({},)) -> str | None:
    """Return a line of text with the largest stable step if a wave grows with these parameters. Return None if no wave
    grows, or if the growth is unknown (`stability.growth`). `stable_limit` explains `states`."""
    limit = limit_of(stencil)
    known = [{**(limit.state if limit else {}), **state} for state in states]
    rates = [growth(stencil, values, state) for state in known]
    if math.inf in rates:
        return _infinite(stencil, values, known[rates.index(math.inf)])
    found = [one for one in rates if one is not None]
    worst = max(found, default=0.0)
    if worst <= max_growth(stencil):
        return None
    grows = f"the worst wave grows by a factor {worst:.6g} per step"
    if limit is None:
        return f"these parameters are unstable: {grows}"
    names = [parameter.name for parameter in stencil.parameters]
    given = stencil.scalars(values)[names.index(limit.parameter)]
    step = stable_limit(stencil, values, states)
    if step is None or not 0 < step < float("inf"):
        return f"{limit.parameter}={given:g} is unstable, and so is every other value with these parameters: {grows}"
    extreme = "smallest" if limit.is_minimum else "largest"
    return f"{limit.parameter}={given:g} is unstable: {grows}; the {extreme} stable one is {_shortened(step, limit)}"


def _infinite(stencil: Stencil, values: Mapping[str, float], state: State) -> str:
    """Return a line of text that names the values that must not be 0."""
    names = [parameter.name for parameter in stencil.parameters]
    given = dict(zip(names, stencil.scalars(values), strict=True))
    guilty = [
        f"{name} = 0"
        for name, value in {**given, **state}.items()
        if value == 0
        and growth(stencil, {**given, name: 1.0} if name in given else given, {**state, name: 1.0}) != math.inf
    ]
    if not guilty:
        return f"{stencil.name} multiplies by infinity with these parameters"
    return f"{stencil.name} divides by zero where {' or '.join(guilty)}"


def _shortened(step: float, limit: Limit) -> str:
    """Return `step` as text with five digits. The number is rounded towards stable values."""
    text = f"{step:.5g}"
    is_stable_side = float(text) >= step if limit.is_minimum else float(text) <= step
    return text if is_stable_side else f"{step * (1 + 1e-4 if limit.is_minimum else 1 - 1e-4):.5g}"


def weights(stencil: Stencil, values: Mapping[str, float]) -> dict[tuple[int, int, int], float] | None:
    """Return the weight of each neighbour. The update must be a linear combination with fixed weights and without a
    constant. For other updates, return None.
    """
    if len(stencil.fields) > 1 or len(stencil.stages) > 1 or stencil.signals:
        return None
    program, scalars = stencil.stages[0].program, stencil.scalars(values)
    (linear,) = linearise(program, scalars, [float("nan")])
    (at_zero,) = linearise(program, scalars, [0.0])
    if any(slope != slope for slope in linear.slopes.values()) or at_zero.value != 0:
        return None
    if any(load.age for load in linear.slopes):
        return None
    return {load.offset: slope for load, slope in linear.slopes.items() if isinstance(load, Load)}
