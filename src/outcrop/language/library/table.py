"""This module has the table of built-in stencils, with their names and their limits of stability. The module also has a
cache, which keeps the stencils that earlier processes have made.

The name of a stencil consists of the family, the order in space, the number of axes (left out for 3 axes), and an
option. Examples are "heat7", "heat4", "acoustic8", "acoustic8_2d", "acoustic8_2d_sponge" and "maxwell_2d_te". If a part
of the name is missing, the family's default for this part is used.

Python needs more time to load SymPy than to load all other modules of a run. A stencil that an earlier process has made
can be loaded without SymPy. So the user's cache (`outcrop.user_cache`) keeps the description of each built-in stencil.
The cache also keeps a digest of everything that affects the description: the source text of the language, and the
versions of SymPy and Python. If the digest has not changed, the description is read from the cache and checked like any
other stencil. If the cache cannot be used, each process makes the stencil again.

`stability` judges whether a stencil with given parameters is stable, and `stable_limit` finds the largest stable step.
`limit_text` returns a text with this limit, or with the reason why there is no limit. `stability`, `stable_limit` and
`limit_text` also accept stencils that users write.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache, lru_cache
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from numbers import Integral
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from outcrop.axes import GridShape, axes_text, grid_shape
from outcrop.errors import InputError, by_caller, shown
from outcrop.language.program import Load
from outcrop.language.schema import as_number
from outcrop.language.stability import (
    MAX_UNKNOWNS,
    Extremes,
    Limit,
    Measure,
    State,
    different_cells,
    growth,
    has_slopes,
    largest_step,
    linearise,
    max_growth,
    numerical_growth,
    unknowns,
)
from outcrop.language.stencil import Field, Stencil
from outcrop.user_cache import open_folder

FOLDER = "stencils"
OWN_EQUATIONS = '"Write your own equations" (docs/how-to/equations.md)'
"""The page of the documents about equations of users, as messages name it."""
_MAX_COMPARED = 100
"""The maximum number of characters of an unknown name that are compared with the known names."""

_MAX_DISTANCE = 2
"""The maximum difference between an unknown order and the orders that a message proposes."""

MAX_BYTES = 1 << 22
"""Larger files in the cache are ignored. The file of the largest built-in stencil has about 40 kB."""


def maker(function: str, **given: Any) -> Callable[..., Stencil]:
    """Return a callable that makes a stencil. `function` is the name of a function of the library, such as
    "transport.heat7". `given` contains some arguments of this function. The callable reads the stencil from the user's
    cache. If the cache does not have the stencil, the callable calls the function and stores the result in the
    cache."""

    def make(**options: Any) -> Stencil:
        arguments = {**given, **options}
        digest = sha256(repr(sorted(arguments.items())).encode()).hexdigest()
        name = f"{function}-{digest[:16]}.json"
        stencil = _read(name)
        if stencil is None:
            file, _, attribute = function.partition(".")
            stencil = getattr(import_module(f"outcrop.language.library.{file}"), attribute)(**arguments)
            _keep(name, stencil)
        return stencil

    return make


@dataclass(frozen=True)
class Family:
    """A family consists of all stencils that the same function makes. `orders`, `ndims` and `options` are the orders,
    numbers of axes and options that their names may have. `limit` is needed if the stencil is not linear, or if a
    parameter other than dt decides whether a step is stable. A function in `measures` combines several read-only fields
    into one quantity. The combined quantity decides whether a step is stable (`stability.Extremes`)."""

    make: Callable[..., Stencil]
    orders: Sequence[int] = ()
    ndims: Sequence[int] = ()
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    limit: Limit | None = None
    measures: tuple[Measure, ...] = ()


_EVEN = range(2, 17, 2)
_MAXWELL = {"te": {"mode": "te"}, "vacuum": {"medium": "vacuum"}, "lossy": {"medium": "lossy"}}
_OPTION_NDIMS = {"te": (2,)}
"""The numbers of axes of options that not all names of their family can have."""
_AT_REACTION = Limit("dt", state={"u": 0.0, "v": 0.5})
"""Stability is judged at the state in which the reaction removes u fastest. In this state v is 1/2, and in the usual
patterns v stays below 1/2."""


def _squared_speed(planes: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """Return the square of the speed of P waves, in m^2/s^2. In an elastic stencil, the speed of P waves is the only
    quantity that limits the stable step."""
    speed: NDArray[Any] = (planes["lam"] + 2 * planes["mu"]) * planes["b"]
    return speed


def _near_rest(directions: int) -> Limit:
    """Return the limit of a lattice Boltzmann equation near rest. The limit is the smallest stable tau."""
    return Limit("tau", is_minimum=True, state={f"f{i}": 0.0 for i in range(directions)})


FAMILIES: dict[str, Family] = {
    "heat7": Family(maker("transport.heat7")),
    "heat13": Family(maker("transport.heat13")),
    "box27": Family(maker("transport.box27")),
    "heat": Family(maker("transport.heat"), _EVEN, (1, 2, 3)),
    "acoustic": Family(maker("waves.acoustic"), _EVEN, (1, 2, 3), {"sponge": {"sponge": True}}),
    "elastic": Family(maker("waves.elastic"), _EVEN, (2, 3), measures=(_squared_speed,)),
    "maxwell": Family(maker("waves.maxwell"), (), (1, 2, 3), _MAXWELL),
    "gray_scott": Family(maker("transport.gray_scott"), (), (1, 2, 3), limit=_AT_REACTION),
    "advection": Family(maker("transport.advection"), (1, 2), (1, 2, 3)),
    "stream_function": Family(maker("flow.stream_function")),
    "sharpen": Family(maker("transport.sharpen")),
    "d2q9": Family(maker("flow.lattice_boltzmann", ndim=2), limit=_near_rest(9)),
    "d3q19": Family(maker("flow.lattice_boltzmann", ndim=3), limit=_near_rest(19)),
}
ALIASES = {"lattice_boltzmann": "d3q19", "lattice_boltzmann_2d": "d2q9"}
"""Names of functions that users may also give as names of stencils. Runs never store these names."""

STENCILS: dict[str, Callable[[], Stencil]] = {name: family.make for name, family in FAMILIES.items()}
"""The functions that make the default stencil of each family."""


def find_stencil(name: str) -> Stencil:
    """Make the built-in stencil with the name `name`. Raises InputError for an unknown name. The message lists the
    known names."""
    found = split_name(name) if isinstance(name, str) else None
    if found is None:
        raise unknown(name)
    family, options = found
    return family.make(**options)


def family_names(family: str) -> list[str]:
    """Return the names of all stencils of a family. The first name is the name of the family. This name means the
    default stencil."""
    one, names = FAMILIES[family], [family]
    for order in one.orders or ("",):
        for ndim in sorted(one.ndims, reverse=True) or (3,):
            plain = f"{family}{order}" + (f"_{ndim}d" if ndim != 3 else "")
            options = [option for option in one.options if ndim in _OPTION_NDIMS.get(option, (ndim,))]
            names += [plain, *(f"{plain}_{option}" for option in options)]
    return list(dict.fromkeys(names))


def family_of_name(name: str) -> str:
    """Return the name of the family of a built-in stencil. Raises InputError for an unknown name, as `find_stencil`
    does."""
    found = split_name(name) if isinstance(name, str) else None
    if found is None:
        raise unknown(name)
    return next(key for key, family in FAMILIES.items() if family is found[0])


def unknown(name: object) -> InputError:
    """Return the InputError for a name that no stencil has."""
    every = [one for family in FAMILIES for one in family_names(family)]
    near = _near_names(name)
    hint = f"; did you mean {' or '.join(near)}?" if near else did_you_mean(name, [*every, *ALIASES])
    own = by_caller("needs a Python program", "is an oc.Stencil")
    return InputError(
        f"stencil {shown(name)} is unknown{f'{hint} There' if hint else '; there'} are: "
        f"{', '.join(map(described, FAMILIES))}; an equation of your own {own}, see the page {OWN_EQUATIONS}"
    )


def _near_names(name: object) -> list[str]:
    """If only the order in a stencil's name is wrong, return the names with the nearest orders. For the name heat3,
    return heat2 and heat4."""
    for known, family in FAMILIES.items():
        match = re.fullmatch(rf"{known}([0-9]{{1,9}})(_.*)?", name) if isinstance(name, str) else None
        if match is not None:
            order, rest = int(match[1]), match[2] or ""
            found = [one for one in family.orders if split_name(f"{known}{one}{rest}")]
            distance = min((abs(one - order) for one in found), default=_MAX_DISTANCE + 1)
            if distance <= _MAX_DISTANCE:
                return [f"{known}{one}{rest}" for one in found if abs(one - order) == distance]
    return []


def did_you_mean(name: object, names: Sequence[str]) -> str:
    """Return a text that proposes the name in `names` that is most similar to `name`, or "" if no name is similar."""
    plain = str(name)[:_MAX_COMPARED].lower().replace("-", "_").replace(" ", "_")
    similar = get_close_matches(plain, names, n=1)
    return f"; did you mean {similar[0]}?" if similar else ""


def split_name(name: str) -> tuple[Family, dict[str, Any]] | None:
    """Return the family to which the name of a stencil belongs, and the arguments for the family's function. Return
    None for an unknown name."""
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


def described(name: str) -> str:
    """Return a text that describes all possible names of a family."""
    family = FAMILIES[name]
    if not family.orders and not family.ndims:
        return name
    first, more = ",".join(map(str, family.orders[:2])), family.orders[2:]
    order = f"[{first}..{more[-1]}]" if more else f"[{first}]" if first else ""
    axes = "".join(f"[_{ndim}d]" for ndim in family.ndims if ndim != 3)
    return name + order + axes + "".join(f"[_{option}]" for option in family.options)


def _read(name: str) -> Stencil | None:
    with suppress(InputError, OSError, ValueError, KeyError, TypeError, RecursionError):
        with open_folder(FOLDER, make=False) as folder:
            kept = json.loads(folder.read(name, MAX_BYTES) or b"{}")
        if kept["language"] == _language():
            return Stencil.from_json(kept["stencil"])
    return None


def _keep(name: str, stencil: Stencil) -> None:
    with suppress(InputError, OSError), open_folder(FOLDER, make=True) as folder:
        folder.write(name, json.dumps({"language": _language(), "stencil": stencil.to_json()}).encode())


@lru_cache
def _language() -> str:
    """Return a digest of everything that affects a built-in stencil, except two things: the function that makes the
    stencil, and the arguments of this function."""
    package = Path(__file__).parent.parent
    files = [*sorted(package.glob("*.py")), *sorted(package.glob("library/*.py")), package.parent / "axes.py"]
    spec = find_spec("sympy")  # this call finds SymPy's file without loading SymPy
    if spec is not None and spec.origin is not None:
        files.append(Path(spec.origin).with_name("release.py"))
    summed = sha256(sys.version.encode())
    for file in files:
        summed.update(file.read_bytes())
    return summed.hexdigest()


# --- stability -------------------------------------------------------------------------------------------------------


def limit_of(stencil: Stencil) -> Limit | None:
    """Return the limit of the stencil's family, or a limit of the parameter dt if the family has no limit. Return None
    if the parameter of the limit is not a parameter of the stencil."""
    family = _family_of(stencil)
    limit = (family.limit if family else None) or Limit()
    return limit if limit.parameter in {one.name for one in stencil.parameters} else None


def is_built_in(stencil: Stencil) -> bool:
    """Return True if a stencil belongs to the library. The parameter h of a built-in stencil is the distance between
    cells."""
    return _family_of(stencil) is not None


def name_with_axes(stencil: Stencil, ndim: int) -> str | None:
    """Return the name of the built-in stencil that differs from `stencil` only in its number of axes. Return None if no
    built-in stencil differs only in its number of axes."""
    found = split_name(stencil.name) if is_built_in(stencil) else None
    if found is None or not found[0].ndims:
        return None
    wanted = {**found[1], "ndim": ndim}
    names = ((name, split_name(name)) for name in family_names(family_of_name(stencil.name)))
    return next((name for name, parts in names if parts and {"ndim": 3, **parts[1]} == wanted), None)


def extremes_of(stencil: Stencil) -> Extremes:
    """Return an empty `Extremes` for the read-only fields of a stencil. The caller first adds planes to the `Extremes`,
    and then passes its `states` to `stability`."""
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


def stable_limit(
    stencil: Stencil, values: Mapping[str, float], states: Sequence[State] = ({},), shape: Sequence[int] | None = None
) -> float | None:
    """Return the largest time step with which a stencil is stable. The time step is the parameter `dt` of the stencil.
    The unit of the result is the unit of dt.

        oc.stencils.stable_limit(acoustic, {}, [{"v": 1500.0}, {"v": 4500.0}])     # v is a field that is only read
        oc.stencils.stable_limit(reaction, {"D": 0.2}, [{"u": 0.0}, {"u": 1.0}])   # u' = u + dt (D lap u + u (1 - u))

    `values` contains parameters. The other parameters have their defaults. Each of `states` is a uniform state of the
    whole grid: a dictionary with a value for each field that is only read. If the equation is not linear, a state also
    needs a value for each updated field. The result is the limit for the worst state in `states`. If the equation
    depends on the position, give the shape of the grid, as for `oc.Simulation`.

    In a stable step, no wave grows. If the exact solution of your own equation grows, a stable step can multiply a wave
    by a factor of up to 1 + c dt (von Neumann's condition). The rate c is twice the growth rate that the wave has with
    the time step dt/16. The rate c is at most twice the growth rate of the fastest-growing wave among all waves that
    are at least eight cells long. For waves that do not grow in the exact solution, the rate c is 0. For example, the
    update u + dt (D lap u + g u) on two axes has the limit 2 / (8 D / h^2 - g).

    The result is 0 if no step is stable, and infinite if every step is stable. The result is None if the stencil has no
    parameter dt, or if the growth is unknown. `limit_text` then gives the reason. For a lattice Boltzmann equation, the
    result is the smallest stable value of tau. Raises InputError for unknown parameters."""
    limit = limit_of(stencil)
    if limit is None:
        return None
    return largest_step(stencil, values, _states(stencil, states), limit, _may_grow(stencil), _whole(stencil, shape))


def limit_text(
    stencil: Stencil, values: Mapping[str, float], states: Sequence[State] = ({},), shape: Sequence[int] | None = None
) -> str:
    """Return the result of `stable_limit` as a text, such as "dt <= 0.247 with these values". If there is no limit, the
    text gives the reason."""
    limit = limit_of(stencil)
    if why := why_unknown(stencil, values, states, shape):
        return f"the limit is unknown: {why}"
    if limit is None:
        return "the stencil has no parameter dt, whose limit could be found"
    step = stable_limit(stencil, values, states, shape)
    if step is None or step == (math.inf if limit.is_minimum else 0.0):
        return f"no {limit.parameter} is stable with these values"
    if step == (0.0 if limit.is_minimum else math.inf):
        return f"every {limit.parameter} is stable with these values"
    value = dict(zip((one.name for one in stencil.parameters), stencil.scalars(values), strict=True))[limit.parameter]
    is_stable = value >= step if limit.is_minimum else value <= step
    verdict = "" if is_stable else f"; {limit.parameter} = {value:g} is unstable"
    return f"{limit.parameter} {'>=' if limit.is_minimum else '<='} {step:.5g} with these values{verdict}"


def why_unknown(
    stencil: Stencil, values: Mapping[str, float], states: Sequence[State] = ({},), shape: Sequence[int] | None = None
) -> str:
    """Return the reason why the stability of a stencil is unknown for the uniform states `states`. Return "" if the
    stability is known."""
    known = _states(stencil, states)
    if unknowns(stencil) > MAX_UNKNOWNS:
        return f"a step needs more than {MAX_UNKNOWNS} values of each cell"
    if stencil.positions and shape is None:
        return "the equation depends on the position, and the shape of the grid is not given"
    if known and different_cells(stencil, values, known[0], _whole(stencil, shape)) is None:
        return "the equation is different in too many cells"
    state = next((one for one in known if not has_slopes(stencil, values, one)), None)
    if state is None:
        return "" if known else "there is no state"
    storage = list(zip(stencil.fields, stencil.storage, strict=True))
    if missing := [one.name for one, stored in storage if stored.is_static and one.name not in state]:
        return f"the state has no value for {', '.join(missing)}, which the equation reads"
    if stencil.signals and not has_slopes(stencil, values, {one.name: state.get(one.name, 0.5) for one, _ in storage}):
        return "a coefficient is a signal"
    if missing := [one.name for one, _ in storage if one.name not in state]:
        return f"the equation is not linear, so its stability depends on the values of {', '.join(missing)}"
    return "the equation has no derivative in this state"


def stability(
    stencil: Stencil, values: Mapping[str, float], states: Sequence[State] = ({},), shape: Sequence[int] | None = None
) -> str | None:
    """If a step with the parameters `values` is unstable, return a line of text that gives the largest stable step.
    Return None if the step is stable. `stable_limit` explains the arguments.

    The result is also None if the growth is unknown, for example because a coefficient is a signal. `why_unknown`
    returns "" for a step that was tested, and otherwise the reason. Raises InputError for unknown parameters, and if a
    state has no value for a field that decides the stability."""
    if missing := missing_values(stencil, values, states):
        reason = why_unknown(stencil, values, states, shape)
        example = example_state(stencil, dict.fromkeys(missing, 0.5))
        raise InputError(f"the stability of {stencil.name} is unknown: {reason}; give states, for example [{example}]")
    return instability(stencil, values, states, shape)


def missing_values(stencil: Stencil, values: Mapping[str, float], states: Sequence[State]) -> list[str]:
    """Return the names of fields whose values decide the stability, but are missing in one of `states`. Only read-only
    fields can decide the stability of a linear equation."""
    state = next((one for one in _states(stencil, states) if not has_slopes(stencil, values, one)), None)
    if state is None or unknowns(stencil) > MAX_UNKNOWNS:
        return []
    storage = list(zip(stencil.fields, stencil.storage, strict=True))
    if missing := [one.name for one, stored in storage if stored.is_static and one.name not in state]:
        return missing
    if stencil.signals and not has_slopes(stencil, values, {one.name: state.get(one.name, 0.5) for one, _ in storage}):
        return []  # a coefficient is a signal, so no state helps
    return [one.name for one, _ in storage if one.name not in state]


def example_state(stencil: Stencil, known: State) -> str:
    """Return the values in `known` as text, in the form in which a user writes a state."""
    names = [one.name for one in stencil.fields if one.name in known]
    return "{" + ", ".join(f'"{name}": {known[name]:.6g}' for name in names) + "}"


def instability(
    stencil: Stencil, values: Mapping[str, float], states: Sequence[State] = ({},), shape: Sequence[int] | None = None
) -> str | None:
    """Return the result of `stability`, or None if a state has no value for a field that decides the stability."""
    limit = limit_of(stencil)
    known = _states(stencil, states)
    time_step = limit.parameter if limit and _may_grow(stencil) else ""
    whole = _whole(stencil, shape)
    rates = [numerical_growth(stencil, values, state, time_step, whole) for state in known]
    if math.inf in rates:
        return _infinite(stencil, values, known[rates.index(math.inf)], whole)
    worst = max(range(len(rates)), key=lambda place: rates[place] or 0.0, default=0)
    if not rates or (rates[worst] or 0.0) <= max_growth(stencil):
        return None
    grows = f"the worst wave grows by a factor {growth(stencil, values, known[worst], whole):.6g} per step"
    if limit is None:
        return f"these parameters are unstable: {grows}"
    names = [parameter.name for parameter in stencil.parameters]
    given = stencil.scalars(values)[names.index(limit.parameter)]
    step = stable_limit(stencil, values, states, shape)
    if step is None or not 0 < step < float("inf"):
        return f"{limit.parameter}={given:g} is unstable, and so is every other value with these parameters: {grows}"
    extreme = "smallest" if limit.is_minimum else "largest"
    return f"{limit.parameter}={given:g} is unstable: {grows}; the {extreme} stable one is {_shortened(step, limit)}"


def _states(stencil: Stencil, states: Sequence[State]) -> list[State]:
    """Return the states, completed with values from `Limit.state` for missing fields. Raises InputError for a field
    that the stencil does not have."""
    limit, names = limit_of(stencil), {one.name for one in stencil.fields}
    if isinstance(states, Mapping):
        raise InputError(f"states {shown(states)} must be a list of states, such as [{shown(states)}]")
    for name in (name for state in states for name in state if name not in names):
        raise InputError(f"{stencil.name} has no field {shown(name)}; its fields are {', '.join(sorted(names))}")
    for name, value in ((name, value) for state in states for name, value in state.items()):
        try:
            as_number(value, name)
        except InputError:
            raise InputError(f"state: {name} must be one number for the whole grid, not {shown(value)}") from None
    return [{**(limit.state if limit else {}), **state} for state in states]


def _whole(stencil: Stencil, shape: Sequence[int] | None) -> GridShape | None:
    """Convert `shape` to the shape (nz, ny, nx) that the engine uses. Raises InputError if `shape` does not belong to a
    grid of the stencil."""
    if shape is None:
        return None
    sizes = tuple(shape) if isinstance(shape, Sequence) else (shape,)
    if len(sizes) != stencil.ndim or not all(isinstance(one, Integral) and one > 0 for one in sizes):
        raise InputError(f"shape {shown(shape)} is not the shape of a grid of {axes_text(stencil.ndim)}")
    stencil.require_boxes(sizes)
    return grid_shape(sizes)


def _may_grow(stencil: Stencil) -> bool:
    """Return True for an equation that a user has written. The exact solution of a user's equation can grow. With
    useful parameters, the exact solution of a built-in equation does not grow."""
    return _family_of(stencil) is None


def _infinite(stencil: Stencil, values: Mapping[str, float], state: State, shape: GridShape | None) -> str:
    """Return a message for an update with an infinite result. The message names the values that must not be 0."""
    names = [parameter.name for parameter in stencil.parameters]
    given = dict(zip(names, stencil.scalars(values), strict=True))
    guilty = [
        f"{name} = 0"
        for name, value in {**given, **state}.items()
        if value == 0
        and growth(stencil, {**given, name: 1.0} if name in given else given, {**state, name: 1.0}, shape) != math.inf
    ]
    if not guilty:
        return f"{stencil.name} multiplies by infinity with these parameters"
    return f"{stencil.name} divides by zero where {' or '.join(guilty)}"


def _shortened(step: float, limit: Limit) -> str:
    """Return `step` as text with five digits. The step is rounded towards stable steps."""
    text = f"{step:.5g}"
    is_stable_side = float(text) >= step if limit.is_minimum else float(text) <= step
    return text if is_stable_side else f"{step * (1 + 1e-4 if limit.is_minimum else 1 - 1e-4):.5g}"


def weights(stencil: Stencil, values: Mapping[str, float]) -> dict[tuple[int, int, int], float] | None:
    """Return the weight of each neighbour if the update is a linear combination with fixed weights and without a
    constant. For other updates, return None.
    """
    if len(stencil.fields) > 1 or len(stencil.stages) > 1 or stencil.signals or stencil.positions:
        return None
    program, scalars = stencil.stages[0].program, stencil.scalars(values)
    (linear,) = linearise(program, scalars, [float("nan")])
    (at_zero,) = linearise(program, scalars, [0.0])
    if any(slope != slope for slope in linear.slopes.values()) or at_zero.value != 0:
        return None
    if any(load.age for load in linear.slopes):
        return None
    return {load.offset: slope for load, slope in linear.slopes.items() if isinstance(load, Load)}
