"""From what users write to the stages of a Stencil: who is updated, who is only read, which scalars there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
from sympy.core.function import AppliedUndef

from outcrop.errors import InputError
from outcrop.language.lower import lower
from outcrop.language.stage import Stage
from outcrop.language.symbols import PREVIOUS, Field, Parameter, ParameterValue, Signal


@dataclass(frozen=True)
class Analysis:
    """The parts of a Stencil."""

    fields: tuple[Field, ...]
    parameters: tuple[ParameterValue, ...]
    signals: tuple[str, ...]
    stages: tuple[Stage, ...]
    ndim: int


def analyse(name: str, stages: Sequence[Mapping[Field, Any]], ndim: int | None) -> Analysis:
    """The parts of stencil `name`. Raises InputError naming what cannot be."""
    if not stages or not all(stages):
        raise InputError(f"stencil {name!r} updates no fields")
    expressions = [{field: _expression(name, field, value) for field, value in stage.items()} for stage in stages]
    every = [expression for stage in expressions for expression in stage.values()]
    loads = sorted({load for expression in every for load in expression.atoms(AppliedUndef)}, key=str)
    fields = _fields(expressions, loads)
    parameters, signals = _scalars(name, every)
    taken = [field.name for field in fields] + [parameter.name for parameter in parameters] + list(signals)
    for twice in {one for one in taken if taken.count(one) > 1}:
        raise InputError(f"stencil {name!r}: two fields, parameters or signals have the name {twice!r}")
    names, scalars = [field.name for field in fields], [*(one.name for one in parameters), *signals]
    where = f"stencil {name!r}"
    lowered = tuple(
        Stage(tuple(names.index(field.name) for field in stage), lower(where, list(stage.values()), names, scalars))
        for stage in expressions
    )
    return Analysis(fields, parameters, signals, lowered, _ndim(name, loads, ndim))


def _expression(name: str, field: object, value: Any) -> sympy.Expr:
    if not isinstance(field, Field):
        raise InputError(f"stencil {name!r}: {field!r} is updated but is no Field")
    try:
        return sympy.sympify(value, strict=True)  # strict: text would be evaluated as a program
    except sympy.SympifyError:
        raise InputError(f"stencil {name!r}: {value!r} is not an expression of fields and parameters") from None


def _fields(stages: Sequence[Mapping[Field, sympy.Expr]], loads: Sequence[sympy.Expr]) -> tuple[Field, ...]:
    """Those that are updated, then those that are only read, by name."""
    updated = dict.fromkeys(field for stage in stages for field in stage)
    read = sorted({load.func.__name__.removesuffix(PREVIOUS) for load in loads} - {field.name for field in updated})
    return (*updated, *map(Field, read))


def _scalars(name: str, expressions: Sequence[sympy.Expr]) -> tuple[tuple[ParameterValue, ...], tuple[str, ...]]:
    symbols = sorted({symbol for expression in expressions for symbol in expression.free_symbols}, key=str)
    for symbol in symbols:
        if not isinstance(symbol, Parameter | Signal):
            raise InputError(f"stencil {name!r}: {symbol} is neither a Parameter, a Signal nor a field at an offset")
    parameters = tuple(ParameterValue(one.name, one.default) for one in symbols if isinstance(one, Parameter))
    return parameters, tuple(one.name for one in symbols if isinstance(one, Signal))


def _ndim(name: str, loads: Sequence[sympy.Expr], ndim: int | None) -> int:
    """The number of axes that offsets speak of, which must agree with `ndim` if that is given."""
    found = {len(load.args) for load in loads}
    if len(found) > 1:
        raise InputError(f"stencil {name!r} mixes offsets of {' and '.join(map(str, sorted(found)))} numbers")
    axes = found.pop() if found else ndim or 3
    if ndim is not None and axes != ndim:
        raise InputError(f"stencil {name!r} has ndim={ndim}, but its offsets have {axes} numbers")
    if not 1 <= axes <= 3:
        raise InputError(f"stencil {name!r} has ndim={axes}; there are 1, 2 and 3")
    return axes
