"""Write the equation of a stencil as LaTeX.

The formula is made from the lowered operations of the stencil. Therefore the formula shows exactly what a step
computes, and SymPy is not needed. In the formula, the superscript of a field gives the step, and the subscripts give
the cell. Outside of subscripts, x is the index of the cell, n_x the number of cells along x, and n the number of the
step:

    u^{n+1}_{z,y,x} = 2\\, u^{n}_{z,y,x} - u^{n-1}_{z,y,x} + ...

If a step updates a field several times, the superscripts between n and n + 1 are fractions, such as n + 1/2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from outcrop.axes import NAMES, PLACES
from outcrop.language.functions import FUNCTIONS
from outcrop.language.program import Apply, CellCount, CellIndex, Constant, Load, Operation, Scalar

if TYPE_CHECKING:
    from outcrop.language.stencil import Stencil

MAX_TERMS = 400
"""The maximum number of operands in the formulas of a stencil. Longer formulas cannot be read by people."""

_GREEK = {
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu", "xi",
    "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega", "Gamma", "Delta", "Theta", "Lambda", "Xi",
    "Pi", "Sigma", "Upsilon", "Phi", "Psi", "Omega",
}  # fmt: skip
_SUM, _PRODUCT, _ATOM = 1, 2, 3


class _Formula(NamedTuple):
    """A formula as LaTeX. `strength` says how strongly the outermost operator of the formula binds."""

    text: str
    strength: int
    terms: int

    def at_least(self, strength: int) -> str:
        return self.text if self.strength >= strength else rf"\left({self.text}\right)"


def equations(stencil: Stencil) -> list[str]:
    """Return one LaTeX formula for each update of a step, or an empty list if the formulas have more than MAX_TERMS
    operands."""
    if sum(len(stage.program.operations) for stage in stencil.stages) > 4 * MAX_TERMS:
        return []
    scalars = [*(one.name for one in stencil.parameters), *stencil.signals]
    scalars = ["n" if name and name == stencil.step_signal else name for name in scalars]
    axes = dict(zip(PLACES[stencil.ndim], NAMES[stencil.ndim], strict=True))
    in_step = [sum(field in stage.targets for stage in stencil.stages) for field in range(len(stencil.fields))]
    done = [0] * len(stencil.fields)
    found, left = [], MAX_TERMS

    numbers = {field.name: number for number, field in enumerate(stencil.fields)}
    older = {numbers[name]: (numbers[of], back) for name, (of, back) in stencil.older_values.items()}

    def version(field: int, updates: int) -> str:
        step = Fraction(updates, max(1, in_step[field]))
        return "n" if not step else f"n{'+' if step > 0 else '-'}{abs(step)}"

    def load(one: Load) -> str:
        cell = ",".join(
            f"{name}{one.offset[place]:+d}" if one.offset[place] else name
            for name, place in zip(NAMES[stencil.ndim], PLACES[stencil.ndim], strict=True)
        )
        field, back = older.get(one.field, (one.field, 0))
        name = _name(stencil.fields[field].name)
        if not in_step[field]:
            return f"{name}_{{{cell}}}"
        return f"{name}^{{{version(field, done[field] - back - one.age)}}}_{{{cell}}}"

    for stage in stencil.stages:
        texts: list[_Formula] = []
        for operation in stage.program.operations:
            one = _written(operation, texts, load, scalars, axes)
            if one.terms > MAX_TERMS:
                return []
            texts.append(one)
        results = [texts[place] for place in stage.program.results]
        left -= sum(one.terms for one in results)
        if left < 0:
            return []
        for field, result in zip(stage.targets, results, strict=True):
            if field in older:
                continue
            cell = ",".join(NAMES[stencil.ndim])
            target = f"{_name(stencil.fields[field].name)}^{{{version(field, done[field] + 1)}}}_{{{cell}}}"
            found.append(f"{target} = {result.text}")
        for field in stage.targets:
            done[field] += 1
    return found


def _written(
    operation: Operation, earlier: Sequence[_Formula], load: Callable[[Load], str], scalars: Sequence[str],
    axes: Mapping[int, str],
) -> _Formula:  # fmt: skip
    match operation:
        case Load():
            return _Formula(load(operation), _ATOM, 1)
        case Scalar(index):
            return _Formula(_name(scalars[index]), _ATOM, 1)
        case Constant(value):
            return _Formula(_number(value), _ATOM if value >= 0 else _SUM, 1)
        case CellIndex(axis):
            return _Formula(axes[axis], _ATOM, 1)
        case CellCount(axis):
            return _Formula(_name(f"n_{axes[axis]}"), _ATOM, 1)
        case Apply(operator, operands):
            return _applied(operator, [earlier[place] for place in operands])


def _applied(operator: str, parts: Sequence[_Formula]) -> _Formula:
    terms = sum(one.terms for one in parts)
    texts = [one.text for one in parts]
    match operator:
        case "add":
            return _Formula(f"{texts[0]} + {_later(parts[1], _SUM)}", _SUM, terms)
        case "sub":
            return _Formula(f"{texts[0]} - {parts[1].at_least(_PRODUCT)}", _SUM, terms)
        case "mul" if texts[0] == texts[1]:
            return _Formula(f"{{{parts[0].at_least(_ATOM + ('^' in texts[0]))}}}^{{2}}", _PRODUCT, terms)
        case "mul":
            sign = r" \cdot " if texts[1][:1].isdigit() else r"\, "
            return _Formula(f"{parts[0].at_least(_PRODUCT)}{sign}{_later(parts[1], _PRODUCT)}", _PRODUCT, terms)
        case "div":
            return _Formula(rf"\frac{{{texts[0]}}}{{{texts[1]}}}", _PRODUCT, terms)
        case "neg":
            return _Formula(f"-{parts[0].at_least(_PRODUCT)}", _SUM, terms)
        case "sqrt":
            return _Formula(rf"\sqrt{{{texts[0]}}}", _ATOM, terms)
        case "abs":
            return _Formula(rf"\left|{texts[0]}\right|", _ATOM, terms)
        case "min" | "max":
            return _Formula(rf"\{operator}\left({texts[0]},\, {texts[1]}\right)", _ATOM, terms)
        case "where" | "where_equal":
            a, b, c, d = texts
            cases = rf"{c} & \text{{if }} {a} {'>' if operator == 'where' else '='} {b} \\ {d} & \text{{otherwise}}"
            return _Formula(rf"\begin{{cases}} {cases} \end{{cases}}", _ATOM, terms)
        case "pow":
            return _Formula(f"{{{parts[0].at_least(_ATOM + ('^' in texts[0]))}}}^{{{texts[1]}}}", _PRODUCT, terms)
    assert operator in FUNCTIONS, f"there is no operator {operator}"
    name = rf"\operatorname{{{operator}}}" if operator in ("atan2", "sign") else rf"\{operator}"
    return _Formula(rf"{name}\left({', '.join(texts)}\right)", _ATOM, terms)


def _later(part: _Formula, strength: int) -> str:
    """Return an operand after an operator. An operand that begins with a minus sign gets brackets."""
    return rf"\left({part.text}\right)" if part.text.startswith("-") else part.at_least(strength)


def _number(value: float) -> str:
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    near = Fraction(value).limit_denominator(10000)
    if float(near) == value:
        sign, near = "-" if near < 0 else "", abs(near)
        return rf"{sign}\frac{{{near.numerator}}}{{{near.denominator}}}"
    digits, _, power = f"{value:.6g}".partition("e")
    return rf"{digits} \times 10^{{{int(power)}}}" if power else digits


def _name(name: str) -> str:
    """Return the LaTeX of a name. A Greek name becomes a letter, and the part after the first "_" becomes a
    subscript."""
    first, _, rest = name.partition("_")
    plain, below = name.replace("_", r"\_"), rest.replace("_", r"\_")
    if first in _GREEK or len(first) == 1:
        letter = rf"\{first}" if first in _GREEK else first
        return rf"{{{letter}_{{\mathrm{{{below}}}}}}}" if rest else letter
    return rf"\mathrm{{{plain}}}"
