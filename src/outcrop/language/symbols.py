"""This module makes the parts of a Stencil from the parameters, signals and SymPy expressions that users write.

Only new stencils need this module and SymPy. A stencil can be read from a file without this module and without SymPy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import sympy
from sympy.core.function import AppliedUndef

from outcrop.axes import NAMES
from outcrop.errors import InputError, shown
from outcrop.language.field import BACK, PREVIOUS, Field, FieldBox, older_name
from outcrop.language.lower import NotANumber, Position, as_written, lower
from outcrop.language.program import Stage
from outcrop.language.schema import as_finite, require_name
from outcrop.language.stencil import ParameterValue, Updates

MAX_TERMS = 100_000
"""The maximum number of terms in all expressions. A term counts each time it occurs. SymPy visits each term several
times. The largest built-in stencil has 23,166 terms."""

_MAX_SHOWN_TERMS = 5_000
"""Expressions with more terms than this are not converted to text."""
_MAX_TEXT = 1_000
"""The text of expressions is cut to this number of characters."""


class FieldValue(NotANumber, AppliedUndef):  # type: ignore[misc]
    """The value of a field at an offset, such as u[0, 1]."""


class Parameter(NotANumber, sympy.Symbol):  # type: ignore[misc]
    """A scalar of a stencil. Each run can set its value. You can use a parameter in an expression in the same way as
    any symbol of SymPy."""

    default: float

    def __new__(cls, name: str, default: float | None = None) -> Parameter:
        """Make a parameter. If a run does not set the parameter, its value is `default`. Raises InputError if there is
        no default."""
        require_name(name, "parameter")
        if default is None:
            raise InputError(f"parameter {name!r} needs a default: write Parameter({name!r}, 0.1)")
        number = as_finite(default, f"parameter {name}: default")
        parameter: Parameter = sympy.Symbol.__xnew__(cls, name, real=True)
        parameter.default = number
        return parameter

    def _hashable_content(self) -> tuple[Any, ...]:
        # SymPy's cache returns an existing symbol that is equal to the new symbol. Therefore the comparison of two
        # parameters includes their defaults. Without this comparison, the cache could return the parameter of another
        # stencil, with a different default.
        return (*super()._hashable_content(), self.default)


class Signal(NotANumber, sympy.Symbol):  # type: ignore[misc]
    """A scalar with one value for each step, such as a wavelet or a coefficient that depends on time."""

    def __new__(cls, name: str) -> Signal:
        """Make a signal. Each run supplies the values."""
        require_name(name, "signal")
        signal: Signal = sympy.Symbol.__xnew__(cls, name, real=True)
        return signal


class StepNumber(Signal):
    """The signal with the number of the step. Outcrop supplies the values. The first step of a run has the number 0."""


t = StepNumber("t")
x, y, z = (Position(axis) for axis in "xyz")
nx, ny, nz = (Position(f"n{axis}") for axis in "xyz")


Target: TypeAlias = Field | FieldBox
Parts: TypeAlias = tuple[
    tuple[Field, ...], tuple[ParameterValue, ...], tuple[str, ...], tuple[Stage, ...], str, int, str
]
"""The fields, parameters, signals and stages of a Stencil, the text of its equations, its number of axes, and the name
of the signal with the number of the step."""


def analyse(name: str, stages: Sequence[Updates], ndim: int | None) -> Parts:
    """Return the parts of stencil `name`. Raises InputError if a part of the stencil cannot be computed. The message
    names this part."""
    try:
        return _analyse(name, stages, ndim)
    except RecursionError:
        raise InputError(f"stencil {name!r}: an expression is nested too deeply; split it into stages") from None


def _analyse(name: str, stages: Sequence[Updates], ndim: int | None) -> Parts:
    if not stages or not all(stages):
        raise InputError(f"stencil {name!r} updates no fields")
    if ndim is not None and (type(ndim) is not int or not 1 <= ndim <= 3):
        raise InputError(f"stencil {name!r} has ndim={shown(ndim)}; there are 1, 2 and 3")
    given = [{target: _expression(name, target, value) for target, value in stage.items()} for stage in stages]
    terms = _terms([expression for stage in given for expression in stage.values()])
    if terms > MAX_TERMS:
        raise InputError(
            f"stencil {name!r} has {terms} terms, written out, at most {MAX_TERMS} are possible; split it into stages"
        )
    axes = _axes(name, _loads(given), ndim)
    expressions = with_older_values(name, [_whole_updates(name, stage, axes) for stage in given], axes)
    loads, every = _loads(expressions), [expression for stage in expressions for expression in stage.values()]
    fields = _fields(expressions, loads)
    parameters, signals, step_signal = _scalars(name, every)
    names, scalars = [field.name for field in fields], [*(one.name for one in parameters), *signals]
    where = f"stencil {name!r}"
    lowered = tuple(
        Stage(
            tuple(names.index(field.name) for field in stage), lower(where, list(stage.values()), names, scalars, axes)
        )
        for stage in expressions
    )
    text = _text(given) if terms <= _MAX_SHOWN_TERMS else ""
    return fields, parameters, signals, lowered, text, axes, step_signal


def _loads(stages: Sequence[Mapping[Any, sympy.Expr]]) -> list[AppliedUndef]:
    every = {load for stage in stages for expression in stage.values() for load in expression.atoms(AppliedUndef)}
    return sorted(every, key=str)


def _whole_updates(name: str, stage: Mapping[Target, sympy.Expr], ndim: int) -> dict[Field, sympy.Expr]:
    """Return one expression for each field of a stage. In the cells of a box, the value is the expression of the box.
    If several boxes contain a cell, the last box decides. In cells outside all boxes, the value is the expression of
    the field without a box. If all expressions of the field have boxes, the cells outside all boxes keep the value that
    they had before the stage.
    """
    found = {target: expression for target, expression in stage.items() if isinstance(target, Field)}
    for target, expression in stage.items():
        if isinstance(target, FieldBox):
            outside = found.get(target.field, target.field[(0,) * ndim])
            cases = (expression, _is_inside(name, target, ndim)), (outside, True)
            found[target.field] = sympy.Piecewise(*cases, evaluate=False)
    return found


def _is_inside(name: str, box: FieldBox, ndim: int) -> sympy.Basic:
    """Return a condition that is true in the cells of a box, and false in all other cells."""
    if len(box.ranges) > ndim:
        raise InputError(f"stencil {name!r}: {box} has {len(box.ranges)} ranges, but the grid has {ndim} axes")
    conditions = []
    for axis, (first, end) in zip(NAMES[ndim], box.ranges, strict=False):
        index, extent = Position(axis), Position(f"n{axis}")
        if first is not None:  # indices are whole numbers, and > needs fewer operations than >=
            conditions.append(index > (first if first >= 0 else extent + first) - 1)
        if end is not None:
            conditions.append(index < (end if end >= 0 else extent + end))
    if len(conditions) > 1:
        return sympy.And(*conditions, evaluate=False)
    return conditions[0] if conditions else sympy.true


def with_older_values(
    name: str, stages: Sequence[Mapping[Field, sympy.Expr]], ndim: int
) -> list[dict[Field, sympy.Expr]]:
    """Return the stages with an additional field for each older value that they read, such as `u_back2` for
    `u.back(2)`. Each stage that updates u copies the value of `u.previous` to `u_back2`, and the value of `u_back2` to
    `u_back3`. If an update of u reads `u.previous` at neighbours, `u_back1` replaces `u.previous`. Each stage that
    updates u then copies u to `u_back1`."""
    oldest: dict[str, int] = {}
    first: dict[str, int] = {}
    for stage in stages:
        for load in _loads([stage]):
            field, back = _older(load)
            if back == 1 and any(load.args) and Field(field) in stage:
                first[field] = 1
            if back > 1 or field in first:
                oldest[field] = max(oldest.get(field, 0), back)
    kept = {field: range(first.get(field, 2), last + 1) for field, last in oldest.items()}
    taken = {load.func.__name__ for load in _loads(stages)} | {field.name for stage in stages for field in stage}
    for field, every in kept.items():
        if not any(Field(field) in stage for stage in stages):
            raise InputError(f"stencil {name!r}: field {field!r} has no older values, because nothing updates it")
        for made in (older_name(field, back) for back in every):
            if made in taken:
                raise InputError(f"stencil {name!r}: {made} is the name of older values; give the field another name")

    def stored(load: AppliedUndef) -> sympy.Expr:
        field, back = _older(load)
        is_kept = back in kept.get(field, ())
        return Field(older_name(field, back))[tuple(map(int, load.args))] if is_kept else load

    found, here = [], (0,) * ndim
    for stage in stages:
        moved: dict[Field, sympy.Expr] = {}
        for target, one in stage.items():
            # an unneeded xreplace would also change the order of the operations
            replaced = {load: new for load in one.atoms(AppliedUndef) if (new := stored(load)) != load}
            moved[target] = one.xreplace(replaced) if replaced else one
        for field, every in kept.items():
            if Field(field) in stage:
                newest = Field(field) if every[0] == 1 else Field(field).previous
                newer = [newest, *(Field(older_name(field, back)) for back in every)]
                moved |= {Field(older_name(field, back)): one[here] for back, one in zip(every, newer, strict=False)}
        found.append(moved)
    return found


def _older(load: AppliedUndef) -> tuple[str, int]:
    """Return the name of the field that a load reads, and the age of the value as a number of updates."""
    name = load.func.__name__
    field, mark, back = name.rpartition(BACK)
    return (field, int(back)) if mark else (name.removesuffix(PREVIOUS), int(name.endswith(PREVIOUS)))


def _terms(expressions: Sequence[sympy.Expr]) -> int:
    """Return the number of terms in the expressions. A term counts each time it occurs, so the number can be huge. This
    function visits each distinct term only once, so that it is fast even for huge numbers."""
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


def _text(stages: Sequence[Mapping[Target, sympy.Expr]]) -> str:
    """Return the equations, shortened to _MAX_TEXT characters."""
    text = "; ".join(f"{target}' = {as_written(result)}" for stage in stages for target, result in stage.items())
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 3] + "..."


def _expression(name: str, target: object, value: Any) -> sympy.Expr:
    if not isinstance(target, Field | FieldBox):
        advice = ""
        if isinstance(target, str):
            advice = f"; write the field as the key, and not its name: {{{target}: ...}} with {target} = oc.Field(...)"
        elif isinstance(target, FieldValue):
            field = _older(target)[0]
            advice = f"; write {field} as the key, without an offset: {{{field}: ...}}"
        raise InputError(f"stencil {name!r}: {shown(target)} is updated but is not a Field{advice}")
    try:
        # strict=True refuses text, because SymPy would execute text as Python code
        expression = sympy.sympify(value, strict=True)
    except (sympy.SympifyError, TypeError, ValueError, OverflowError):
        expression = None
    if not isinstance(expression, sympy.Expr):
        raise InputError(f"stencil {name!r}: {shown(value)} is not an expression of fields and parameters")
    return expression


def _fields(stages: Sequence[Mapping[Field, sympy.Expr]], loads: Sequence[sympy.Expr]) -> tuple[Field, ...]:
    """Return the updated fields in the order of their first updates. The fields that are only read follow, sorted by
    name."""
    updated = dict.fromkeys(field for stage in stages for field in stage)
    read = sorted({load.func.__name__.removesuffix(PREVIOUS) for load in loads} - {field.name for field in updated})
    return (*updated, *map(Field, read))


def _scalars(
    name: str, expressions: Sequence[sympy.Expr]
) -> tuple[tuple[ParameterValue, ...], tuple[str, ...], str]:
    symbols = sorted({symbol for expression in expressions for symbol in expression.free_symbols}, key=str)
    for symbol in symbols:
        if not isinstance(symbol, Parameter | Signal | Position):
            raise InputError(f"stencil {name!r}: {symbol} is neither a Parameter, a Signal nor a field at an offset")
    parameters = tuple(ParameterValue(one.name, one.default) for one in symbols if isinstance(one, Parameter))
    signals = tuple(one.name for one in symbols if isinstance(one, Signal))
    return parameters, signals, next((one.name for one in symbols if isinstance(one, StepNumber)), "")


def _axes(name: str, loads: Sequence[sympy.Expr], ndim: int | None) -> int:
    """Return the number of axes that the offsets in `loads` have. If `loads` is empty, return `ndim`, or 3 if `ndim` is
    None. Raises InputError if the loads have different numbers of axes, or if `ndim` differs from the number of axes of
    the loads."""
    found = {len(load.args) for load in loads}
    if len(found) > 1:
        raise InputError(f"stencil {name!r} mixes offsets of {' and '.join(map(str, sorted(found)))} numbers")
    axes = found.pop() if found else ndim or 3
    if ndim is not None and axes != ndim:
        raise InputError(f"stencil {name!r} has ndim={ndim}, but its offsets have {axes} numbers")
    if not 1 <= axes <= 3:
        raise InputError(f"stencil {name!r} has ndim={axes}; there are 1, 2 and 3")
    return axes
