"""A stencil is one time step of a grid: fields, parameters, and updates in a form that C and NumPy both follow.

    u, k = Field("u"), Parameter("k", 0.1)
    smooth = Stencil("smooth", {u: u[0, 0, 0] + k * (u[0, 0, 1] - 2 * u[0, 0, 0] + u[0, 0, -1])})

Offsets are (z, y, x) in cells. A step may have several stages, each a mapping, that are computed one after the other;
a stage reads the newest values there are, `u.previous[...]` those before a field's latest update:

    waves = Stencil("waves", {u: 2 * u[0] - u.previous[0] + v[0] ** 2 * (u[1] - 2 * u[0] + u[-1])})    # v: only read
    yee = Stencil("yee", [{h: h[0] - k * (e[1] - e[0])}, {e: e[0] - k * (h[0] - h[-1])}])

A Stencil holds no SymPy: it is lowered at once to Programs, which are plain data, go into the run's manifest and come
back from it without the user's script. What comes back may be a stranger's: see `from_json`.
"""

from __future__ import annotations

import hashlib
import json
import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from outcrop.axes import PLACES
from outcrop.errors import InputError, shown
from outcrop.language.program import Stage, Storage, storage_of
from outcrop.language.schema import (
    MAX_FIELDS,
    MAX_NAME,
    MAX_OFFSET,
    MAX_OPERATIONS,
    MAX_SCALARS,
    MAX_STAGES,
    MAX_TEXT,
    as_number,
    read_list,
    read_members,
    read_number,
    read_whole,
    require_name,
    require_text,
)

if TYPE_CHECKING:
    import sympy

    from outcrop.language.symbols import Parameter, Signal

__all__ = ["PREVIOUS", "Field", "Parameter", "ParameterValue", "PreviousField", "Signal", "Stencil"]

PREVIOUS = ".previous"
"""This suffix of a field's name means its value before the latest update."""


@dataclass(frozen=True)
class Field:
    """A quantity with one value per cell.

    `u[dz, dy, dx]` is its newest value at an offset, for use in expressions: `u[dy, dx]` and `u[dx]` on grids of two
    axes and of one. `u.previous[...]` is the value before the latest update.
    """

    name: str

    def __post_init__(self) -> None:
        require_name(self.name, "field")

    def __getitem__(self, offset: tuple[int, ...] | int) -> sympy.Expr:
        return _at(self.name, offset)

    @property
    def previous(self) -> PreviousField:
        """The values before the latest update."""
        return PreviousField(self)


@dataclass(frozen=True)
class PreviousField:
    """The values that a field had before its latest update."""

    field: Field

    def __getitem__(self, offset: tuple[int, ...] | int) -> sympy.Expr:
        return _at(self.field.name + PREVIOUS, offset)


@dataclass(frozen=True)
class ParameterValue:
    """The name and default of a parameter, as they are stored in a Stencil."""

    name: str
    default: float


def _at(name: str, offset: tuple[int, ...] | int) -> sympy.Expr:
    import sympy

    try:
        steps = tuple(operator.index(step) for step in (offset if isinstance(offset, tuple) else (offset,)))
    except TypeError:
        steps = ()
    if not 1 <= len(steps) <= 3:
        raise InputError(f"{name}[{shown(offset)}]: an offset is one to three whole numbers, (z, y, x), (y, x) or x")
    if any(abs(step) > MAX_OFFSET for step in steps):
        raise InputError(f"{name}[{shown(offset)}]: an offset reaches at most {MAX_OFFSET} cells along an axis")
    return sympy.Function(name, real=True)(*steps)


Updates: TypeAlias = Mapping[Field, Any]


@dataclass(frozen=True)
class Copies:
    """The pairs (field, copy) of the sources and targets of a stage's kernel, in an even or an odd step."""

    sources: tuple[tuple[int, int], ...]
    targets: tuple[tuple[int, int], ...]


@dataclass(frozen=True, init=False)
class Stencil:
    """One explicit time step. Equal stencils compute the same bits.

    `fields` are first those that are updated, in the order of their first updates, then those that are only read.
    `parameters`, then `signals`, are in the order in which kernels expect them. `ndim` axes: offsets along the others
    are 0. Grids of two axes have z and x, those of one have x.
    """

    name: str
    fields: tuple[Field, ...]
    parameters: tuple[ParameterValue, ...]
    signals: tuple[str, ...]
    stages: tuple[Stage, ...]
    equation: str
    ndim: int

    def __init__(
        self, name: str, updates: Updates | Sequence[Updates], equation: str = "", ndim: int | None = None
    ) -> None:
        from outcrop.language.symbols import analyse  # loads SymPy, which only new stencils need

        if not isinstance(name, str) or not name:
            raise InputError(f"the name {shown(name)} of a stencil must be text")
        require_text(name, "the name of a stencil", MAX_NAME)
        stages = [updates] if isinstance(updates, Mapping) else updates if isinstance(updates, Sequence) else []
        if len(stages) > MAX_STAGES:
            raise InputError(f"stencil {name!r} has {len(stages)} stages, at most {MAX_STAGES} are possible")
        if not all(isinstance(stage, Mapping) for stage in stages):
            raise InputError(f"stencil {name!r}: updates are a mapping from fields to expressions, or a list of such")
        fields, parameters, signals, lowered, text, axes = analyse(name, stages, ndim)
        if isinstance(equation, str):
            equation = " ".join(equation.split())
        require_text(equation, f"stencil {name!r}: equation", MAX_TEXT)
        try:
            self._set(name, fields, parameters, signals, lowered, equation or text, axes)
        except ValueError as error:
            raise InputError(f"stencil {name!r}: {error}") from None

    def _set(self, *values: Any) -> None:
        """Set the members, in their order. Raises ValueError if no kernel can compute them."""
        names = ("name", "fields", "parameters", "signals", "stages", "equation", "ndim")
        for key, value in zip(names, values, strict=True):
            object.__setattr__(self, key, value)
        self._require_sound()

    def _require_sound(self) -> None:
        """Raise ValueError unless kernels of the stencil read and write only what exists."""
        if self.ndim not in PLACES:
            raise ValueError(f"ndim={self.ndim}; there are 1, 2 and 3")
        scalars = len(self.parameters) + len(self.signals)
        for what, count, maximum in (
            ("fields", len(self.fields), MAX_FIELDS),
            ("parameters and signals", scalars, MAX_SCALARS),
            ("stages", len(self.stages), MAX_STAGES),
            ("operations", sum(len(stage.program.operations) for stage in self.stages), MAX_OPERATIONS),
        ):
            if count > maximum:
                raise ValueError(f"{count} {what}, at most {maximum} are possible")
        names = Counter([one.name for one in self.fields])
        names.update([one.name for one in self.parameters])
        names.update(self.signals)
        for name, count in names.items():
            if count > 1:
                raise ValueError(f"two fields, parameters or signals have the name {name!r}")
        for stage in self.stages:
            stage.require_sound(len(self.fields), scalars, self.ndim)
        updated = list(dict.fromkeys(field for stage in self.stages for field in stage.targets))
        if updated != list(range(len(updated))):
            raise ValueError(f"fields are updated in the order {updated}; they count in that of their first updates")
        for number, field in enumerate(self.fields):
            try:
                storage_of(self.stages, number)
            except ValueError as error:
                raise ValueError(f"field {field.name!r} {error}") from None

    @cached_property
    def radii(self) -> tuple[int, int, int]:
        """The largest offset of any stage along z, y and x: the thickness of a fixed rim."""
        every = [stage.radii for stage in self.stages]
        return tuple(max(radii[axis] for radii in every) for axis in range(3))  # type: ignore[return-value]

    @property
    def radius(self) -> int:
        """The largest offset along any axis."""
        return max(self.radii)

    @cached_property
    def storage(self) -> tuple[Storage, ...]:
        """The storage of each field."""
        return tuple(storage_of(self.stages, number) for number in range(len(self.fields)))

    @cached_property
    def copies(self) -> tuple[Copies, ...]:
        """The copies that kernels read and write, for the stages of an even step, then for those of an odd step.

        A field with two copies changes to the other copy with each update, so this repeats after two steps. Copy 0
        holds the newest value before an even step.
        """
        newest = [0] * len(self.fields)
        found = []
        for stage in self.stages * 2:
            sources = tuple((field, newest[field] ^ age) for field, age in stage.operands)
            targets = tuple((field, newest[field] ^ self.storage[field].is_double) for field in stage.targets)
            for field, copy in targets:
                newest[field] = copy
            found.append(Copies(sources, targets))
        return tuple(found)

    def newest_copies(self, steps: int) -> tuple[int, ...]:
        """The copy of each field that holds the newest value after so many steps."""
        flips = [
            sum(field in stage.targets for stage in self.stages) * self.storage[field].is_double
            for field in range(len(self.fields))
        ]
        return tuple(count * steps % 2 for count in flips)

    def scalars(self, values: Mapping[str, float]) -> tuple[float, ...]:
        """The parameters in the order of kernels, from `values`, else from the defaults. Raises InputError for an
        unknown name."""
        known = {parameter.name for parameter in self.parameters}
        for name in values:
            if name not in known:
                there = ", ".join(sorted(known)) or "none"
                raise InputError(f"stencil {self.name!r} has no parameter {shown(name)}; there are: {there}")
        return tuple(
            as_number(values.get(parameter.name, parameter.default), f"parameter {parameter.name} =")
            for parameter in self.parameters
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data from which `from_json` makes an equal stencil."""
        return {
            "name": self.name,
            "fields": [field.name for field in self.fields],
            "parameters": [[parameter.name, parameter.default] for parameter in self.parameters],
            "signals": list(self.signals),
            "stages": [stage.to_json() for stage in self.stages],
            "equation": self.equation,
            "ndim": self.ndim,
        }

    @classmethod
    def from_json(cls, data: object) -> Stencil:
        """The stencil that `to_json` described. Raises InputError for any other data.

        Nothing in the data is believed: types, names, ranges and counts are those of `schema`, everything else is
        derived anew, and the whole has to be a stencil that `Stencil(...)` could have made. Needs no SymPy.
        """
        stencil = cls.__new__(cls)
        try:
            stencil._set(*_read(data))
        except (ValueError, InputError) as error:
            raise InputError(f"not the description of a stencil: {error}") from None
        return stencil

    def digest(self) -> str:
        """A digest of fields, parameters and programs, without the name."""
        content = {key: value for key, value in self.to_json().items() if key not in ("name", "equation")}
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def _read(data: object) -> tuple[Any, ...]:
    """The members of a Stencil, from plain data. Raises InputError or ValueError for a member that cannot be."""
    members = read_members(data, "a stencil", "name", "fields", "parameters", "signals", "stages", "equation", "ndim")
    if not members["name"]:
        raise ValueError("a stencil without name")
    require_text(members["name"], "the name", MAX_NAME)
    require_text(members["equation"], "the equation", MAX_TEXT)
    fields = tuple(map(Field, read_list(members["fields"], "fields", MAX_FIELDS, minimum=1)))
    pairs = read_list(members["parameters"], "parameters", MAX_SCALARS)
    parts = [read_list(pair, "the parts of a parameter", 2, 2) for pair in pairs]
    parameters = tuple(ParameterValue(name, read_number(default, "a default")) for name, default in parts)
    signals = tuple(read_list(members["signals"], "signals", MAX_SCALARS))
    for name in (*(one.name for one in parameters), *signals):
        require_name(name, "parameter or signal")
    stages = tuple(map(Stage.from_json, read_list(members["stages"], "stages", MAX_STAGES, minimum=1)))
    ndim = read_whole(members["ndim"], "ndim", 4)
    return members["name"], fields, parameters, signals, stages, members["equation"], ndim


def __getattr__(name: str) -> object:
    if name not in ("Parameter", "Signal"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from outcrop.language import symbols  # with SymPy, which a stencil that is read back does not need

    return getattr(symbols, name)
