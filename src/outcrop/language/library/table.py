"""The table of built-in stencils with their names, and the cache of stencils that earlier processes have made.

A name consists of the family, the order in space, the number of axes unless it is 3, and an option: "heat7", "heat4",
"acoustic8", "acoustic8_2d", "acoustic8_2d_sponge", "maxwell_2d_te". If a part of the name is missing, its default in
the family is used.

Python needs more time to load SymPy than to load all other modules of a run. A stencil that was lowered before does not
need SymPy. So the user's cache (`outcrop.user_cache`) keeps the description of each built-in stencil. The cache also
keeps a digest of everything that affects the description: the source text of the language, and the versions of SymPy
and Python. If the digest has not changed, the description is read from the cache and checked like any other stencil. If
the cache cannot be used, each process makes the stencil again.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from outcrop.errors import InputError, shown
from outcrop.language.stability import Limit, Measure
from outcrop.language.stencil import Stencil
from outcrop.user_cache import open_folder

FOLDER = "stencils"
MAX_BYTES = 1 << 22
"""Larger files in the cache are ignored. The file of the largest built-in stencil has about 40 kB."""


def maker(function: str, **given: Any) -> Callable[..., Stencil]:
    """Return a callable that makes a stencil. `function` is the name of a function of the library, such as
    "transport.heat7". `given` has some arguments of this function. The callable reads the stencil from the cache. If
    the cache does not have the stencil, the callable calls the function and stores the result in the cache."""

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
    """All stencils that one function makes. `orders`, `ndims` and `options` are the orders, numbers of axes and options
    that their names may have. `limit` is needed if the stencil is not linear, or if a parameter other than dt decides
    whether a step is stable. A function in `measures` combines several read-only fields into a quantity that decides
    whether a step is stable (`stability.Extremes`)."""

    make: Callable[..., Stencil]
    orders: Sequence[int] = ()
    ndims: Sequence[int] = ()
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    limit: Limit | None = None
    measures: tuple[Measure, ...] = ()


_EVEN = range(2, 17, 2)
_MAXWELL = {"te": {"mode": "te"}, "vacuum": {"medium": "vacuum"}, "lossy": {"medium": "lossy"}}
_AT_REACTION = Limit("dt", state={"u": 0.0, "v": 0.5})
"""Stability is judged at the state in which the reaction removes u fastest. In the usual patterns, v stays below the
value 1/2 of this state."""


def _squared_speed(planes: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """Return the square of the speed of P waves, in m^2/s^2. No other quantity limits the stable step."""
    speed: NDArray[Any] = (planes["lam"] + 2 * planes["mu"]) * planes["b"]
    return speed


def _near_rest(directions: int) -> Limit:
    """Return the limit of a lattice Boltzmann equation near rest. The limit is the smallest stable tau."""
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
"""Names of functions that users may also give as names of stencils. Runs never store these names."""

STENCILS: dict[str, Callable[[], Stencil]] = {name: family.make for name, family in FAMILIES.items()}
"""The functions that make the default stencil of each family."""


def find_stencil(name: str) -> Stencil:
    """Make the built-in stencil with this name. Raises InputError for an unknown name. The message lists the known
    names."""
    found = split_name(name) if isinstance(name, str) else None
    if found is None:
        raise InputError(f"stencil {shown(name)} is unknown; there are: {', '.join(map(_described, FAMILIES))}")
    family, options = found
    return family.make(**options)


def split_name(name: str) -> tuple[Family, dict[str, Any]] | None:
    """Return the family of a stencil's name, and the arguments of its function. Return None for an unknown name."""
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
    """Return a digest of everything that affects a stencil, except the function that makes it and the function's
    arguments."""
    package = Path(__file__).parent.parent
    files = [*sorted(package.glob("*.py")), *sorted(package.glob("library/*.py")), package.parent / "axes.py"]
    spec = find_spec("sympy")  # finds the file without loading SymPy
    if spec is not None and spec.origin is not None:
        files.append(Path(spec.origin).with_name("release.py"))
    summed = sha256(sys.version.encode())
    for file in files:
        summed.update(file.read_bytes())
    return summed.hexdigest()
