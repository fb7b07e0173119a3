"""Keep the equations of Devito's Operators.

An Operator does not keep the equations from which it was built. It keeps only the loops of the generated code, in which
the equations are rearranged. Inside `with keep_equations():`, new Operators keep their equations, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import devito

from outcrop.errors import InputError, shown

_KEPT = "_outcrop_equations"
"""The attribute of an Operator with the equations and the substitutions from which the Operator was built."""


@contextlib.contextmanager
def keep_equations() -> Iterator[None]:
    """Inside this context, Devito's Operators keep their equations:

        with keep_equations():
            operator = solver.op_fwd()
        sim = oc.Simulation(operator, dt=solver.dt, directory="shot.oc")

    Devito builds the Operators as usual. It compiles their code only if `apply` is called."""
    build = devito.Operator.__new__

    def build_and_keep(cls: type, expressions: Any, **options: Any) -> Any:
        built = build(cls, expressions, **options)
        if expressions is not None:
            setattr(built, _KEPT, (expressions, dict(options.get("subs") or {})))
        return built

    devito.Operator.__new__ = staticmethod(build_and_keep)
    try:
        yield
    finally:
        devito.Operator.__new__ = build


def equations_of(operator: Any) -> tuple[Any, dict[Any, float]]:
    """Return the equations of an Operator, and the numbers that replace symbols. Raises InputError if the Operator does
    not keep its equations, or if a symbol has no number."""
    kept = getattr(operator, _KEPT, None)
    if kept is None:
        raise InputError(
            f"the Operator {operator.name} does not keep its equations; build it inside "
            "`with outcrop.language.devito.keep_equations():`, or give the list of its equations"
        )
    equations, substitutions = kept
    numbers = {}
    for symbol, value in substitutions.items():
        try:
            numbers[symbol] = float(value)
        except (TypeError, ValueError):
            raise InputError(f"the Operator {operator.name} replaces {shown(str(symbol))} by {shown(str(value))}; "
                             "only numbers are possible") from None  # fmt: skip
    return equations, numbers
