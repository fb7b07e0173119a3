"""From what users write to the stages of a Stencil: who is updated, who is only read, which scalars there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
from sympy.core.function import AppliedUndef

from outcrop.errors import InputError, shown
from outcrop.language.lower import lower
from outcrop.language.stage import Stage
from outcrop.language.symbols import PREVIOUS, Field, Parameter, ParameterValue, Signal

TREE_MOST = 100_000
"""Terms of all expressions, written out. SymPy visits each of them several times; the largest built-in stencil has
23,166."""

_SHOWN_MOST, _TEXT_MOST = 5_000, 1_000  # terms of expressions that are made text, and characters that are kept of it


@dataclass(frozen=True)
class Analysis:
    """The parts of a Stencil; `text` is how its equations look."""

    fields: tuple[Field, ...]
    parameters: tuple[ParameterValue, ...]
    signals: tuple[str, ...]
    stages: tuple[Stage, ...]
    ndim: int
    text: str


def analyse(name: str, stages: Sequence[Mapping[Field, Any]], ndim: int | None) -> Analysis:
    """The parts of stencil `name`. Raises InputError naming what cannot be."""
    try:
        return _analyse(name, stages, ndim)
    except RecursionError:
        raise InputError(f"stencil {name!r}: an expression is nested too deeply; split it into stages") from None


def _analyse(name: str, stages: Sequence[Mapping[Field, Any]], ndim: int | None) -> Analysis:
    if not stages or not all(stages):
        raise InputError(f"stencil {name!r} updates no fields")
    if ndim is not None and (type(ndim) is not int or not 1 <= ndim <= 3):
        raise InputError(f"stencil {name!r} has ndim={shown(ndim)}; there are 1, 2 and 3")
    expressions = [{field: _expression(name, field, value) for field, value in stage.items()} for stage in stages]
    every = [expression for stage in expressions for expression in stage.values()]
    terms = _terms(every)
    if terms > TREE_MOST:
        raise InputError(
            f"stencil {name!r} has {terms} terms, written out, at most {TREE_MOST} are possible; split it into stages"
        )
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
    text = _text(expressions) if terms <= _SHOWN_MOST else ""
    return Analysis(fields, parameters, signals, lowered, _ndim(name, loads, ndim), text)


def _terms(expressions: Sequence[sympy.Expr]) -> int:
    """The number of terms of expressions when they are written out. Shared ones are visited once: written out, they may
    be more than can ever be visited."""
    known: dict[sympy.Basic, int] = {}
    waiting: list[sympy.Basic] = list(expressions)
    while waiting:
        node = waiting[-1]
        if missing := [one for one in node.args if one not in known]:
            waiting += missing
        else:
            known[node] = 1 + sum(known[one] for one in node.args)
            waiting.pop()
    return sum(known[one] for one in expressions)


def _text(stages: Sequence[Mapping[Field, sympy.Expr]]) -> str:
    """Equations as SymPy writes them, for people to read, and no longer than that makes sense."""
    text = "; ".join(f"{target.name}' = {result}" for stage in stages for target, result in stage.items())
    return text if len(text) <= _TEXT_MOST else text[: _TEXT_MOST - 3] + "..."


def _expression(name: str, field: object, value: Any) -> sympy.Expr:
    if not isinstance(field, Field):
        raise InputError(f"stencil {name!r}: {shown(field)} is updated but is no Field")
    try:
        expression = sympy.sympify(value, strict=True)  # strict: text would be evaluated as a program
    except (sympy.SympifyError, TypeError, ValueError, OverflowError):
        expression = None
    if not isinstance(expression, sympy.Expr):
        raise InputError(f"stencil {name!r}: {shown(value)} is not an expression of fields and parameters")
    return expression


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
