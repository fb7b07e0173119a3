"""The table of built-in stencils, and the names by which they are found.

A name is that of a family, then the order in space, the number of axes unless it is 3, and an option: "heat7", "heat4",
"acoustic8", "acoustic8_2d", "acoustic8_2d_sponge", "maxwell_2d_te". What is left out has the family's default.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from outcrop.errors import InputError, shown
from outcrop.language.library.makers import maker
from outcrop.language.stability import Limit, Measure
from outcrop.language.stencil import Stencil


@dataclass(frozen=True)
class Family:
    """Stencils with one name: the function that makes them, and the orders, numbers of axes and options of their names.

    `limit` says what decides on stability, where that is not a parameter dt of a linear update. `measures` are what
    decides on it besides each field that is only read by itself (`stability.Extremes`).
    """

    make: Callable[..., Stencil]
    orders: Sequence[int] = ()
    ndims: Sequence[int] = ()
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    limit: Limit | None = None
    measures: tuple[Measure, ...] = ()


_EVEN = range(2, 17, 2)
_MAXWELL = {"te": {"mode": "te"}, "vacuum": {"medium": "vacuum"}, "lossy": {"medium": "lossy"}}
_AT_REACTION = Limit("dt", state={"u": 0.0, "v": 0.5})
"""Stability is judged where the reaction removes u fastest: patterns hold v below 1/2."""


def _squared_speed(planes: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """The square of the speed of P waves, m^2/s^2, of lam, mu and b: it alone decides on the largest step."""
    speed: NDArray[Any] = (planes["lam"] + 2 * planes["mu"]) * planes["b"]
    return speed


def _near_rest(directions: int) -> Limit:
    """The smallest tau of a lattice Boltzmann equation near rest."""
    return Limit("tau", is_minimum=True, state={f"f{i}": 0.0 for i in range(directions)})


FAMILIES: dict[str, Family] = {
    "heat7": Family(maker("transport.heat7")),
    "heat13": Family(maker("transport.heat13")),
    "box27": Family(maker("filters.box27")),
    "heat": Family(maker("transport.heat"), _EVEN, (1, 2, 3)),
    "acoustic": Family(maker("waves.acoustic"), _EVEN, (1, 2, 3), {"sponge": {"sponge": True}}),
    "elastic": Family(maker("waves.elastic"), _EVEN, (2, 3), measures=(_squared_speed,)),
    "maxwell": Family(maker("waves.maxwell"), (), (1, 2, 3), _MAXWELL),
    "gray_scott": Family(maker("transport.gray_scott"), (), (1, 2, 3), limit=_AT_REACTION),
    "advection": Family(maker("transport.advection"), (1, 2), (1, 2, 3)),
    "stream_function": Family(maker("flow.stream_function")),
    "sharpen": Family(maker("filters.sharpen")),
    "d2q9": Family(maker("flow.lattice_boltzmann", ndim=2), limit=_near_rest(9)),
    "d3q19": Family(maker("flow.lattice_boltzmann", ndim=3), limit=_near_rest(19)),
}
ALIASES = {"lattice_boltzmann": "d3q19", "lattice_boltzmann_2d": "d2q9"}
"""Other names: those of the functions. Runs are never stored under these names."""

STENCILS: dict[str, Callable[[], Stencil]] = {name: family.make for name, family in FAMILIES.items()}
"""One of each family."""


def find_stencil(name: str) -> Stencil:
    """The built-in stencil of that name. Raises InputError that lists the names."""
    found = split_name(name) if isinstance(name, str) else None
    if found is None:
        raise InputError(f"stencil {shown(name)} is unknown; there are: {', '.join(map(_described, FAMILIES))}")
    family, options = found
    return family.make(**options)


def split_name(name: str) -> tuple[Family, dict[str, Any]] | None:
    """The family of a name, and the arguments of its function; None for an unknown name."""
    name = ALIASES.get(name, name)
    if name in FAMILIES:
        return FAMILIES[name], {}
    for known, family in FAMILIES.items():
        match = re.fullmatch(rf"{known}([1-9][0-9]?)?(?:_([1-9])d)?(?:_([a-z]+))?", name)
        if match is None:
            continue
        order, ndim, option = match.groups()
        given: dict[str, Any] = {"order": int(order)} if order else {}
        given |= {"ndim": int(ndim)} if ndim else {}
        is_known = given.get("order", None) in (None, *family.orders) and given.get("ndim") in (None, *family.ndims)
        if is_known and (option is None or option in family.options):
            return family, {**given, **family.options.get(option or "", {})}
    return None


def _described(name: str) -> str:
    """A family and the forms that its name takes."""
    family = FAMILIES[name]
    if not family.orders and not family.ndims:
        return name
    first, more = ",".join(map(str, family.orders[:2])), family.orders[2:]
    order = f"[{first}..{more[-1]}]" if more else f"[{first}]" if first else ""
    axes = "".join(f"[_{ndim}d]" for ndim in family.ndims if ndim != 3)
    return name + order + axes + "".join(f"[_{option}]" for option in family.options)
