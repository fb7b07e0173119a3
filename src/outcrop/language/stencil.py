"""A stencil describes one time step on a grid: fields, parameters and updates. The kernel in C and the oracle in NumPy
compute the same bits.

    u, k = Field("u"), Parameter("k", 0.1)
    smooth = Stencil("smooth", {u: u[0, 0, 0] + k * (u[0, 0, 1] - 2 * u[0, 0, 0] + u[0, 0, -1])})

Offsets are (z, y, x) in cells. A step can have several stages, which are computed one after another. Each stage is a
mapping from fields to expressions. `u[...]` is the newest value when the stage starts. `u.previous[...]` is the value
before the field's latest update. Expressions can contain the position of the cell, such as `x`, and the number of the
step, `t` (symbols.py). An update can be limited to the cells of a box (`u.box[2:-2]`, field.py):

    waves = Stencil("waves", {u: 2 * u[0] - u.previous[0] + v[0] ** 2 * (u[1] - 2 * u[0] + u[-1])})    # v: only read
    yee = Stencil("yee", [{h: h[0] - k * (e[1] - e[0])}, {e: e[0] - k * (h[0] - h[-1])}])

A Stencil contains no SymPy expressions. When a Stencil is made, expressions are lowered to Programs, which are plain
data. The manifest of a run stores the Programs, so Outcrop can read the stencil without the user's script. A manifest
can come from an untrusted source (see `from_json`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from outcrop.axes import NAMES, PLACES
from outcrop.display import Described, escaped, joined
from outcrop.errors import InputError, shown
from outcrop.language import schema
from outcrop.language.field import MAX_BACK, PREVIOUS, Field, FieldBox, OlderField, older_name
from outcrop.language.program import Load, Stage, Storage, storage_of

if TYPE_CHECKING:
    from outcrop.language.boundary import Boundary
    from outcrop.language.symbols import Parameter, Signal

__all__ = ["PREVIOUS", "Field", "FieldBox", "OlderField", "Parameter", "ParameterValue", "Signal", "Stencil"]

@dataclass(frozen=True)
class ParameterValue:
    """The name and default of a parameter, as they are stored in a Stencil."""

    name: str
    default: float


Updates: TypeAlias = Mapping[Field, Any] | Mapping[FieldBox, Any] | Mapping[Field | FieldBox, Any]
_MEMBERS = ("name", "fields", "parameters", "signals", "stages", "equation", "ndim", "min_radii", "step_signal")
_OPTIONAL = {"min_radii": [0, 0, 0], "step_signal": ""}
"""The members that a description leaves out if they have these values."""


@dataclass(frozen=True)
class Copies:
    """The copies that the kernel of one stage reads and writes, in an even step or in an odd step. Each entry is a pair
    (number of the field, number of the copy)."""

    sources: tuple[tuple[int, int], ...]
    targets: tuple[tuple[int, int], ...]


@dataclass(frozen=True, init=False)
class Stencil(Described):
    """One explicit time step. Equal stencils compute the same bits.

    `fields` starts with the fields that are updated, in the order of their first updates. Then `fields` has the fields
    that are only read. The scalars of a kernel are the `parameters`, then the `signals`. A grid with `ndim` = 2 has the
    engine's axes z and x. A grid with `ndim` = 1 has only the axis x. Offsets along axes that the grid does not have
    are 0. The fixed rim is at least `min_radii` cells thick. Because of `min_radii`, an adjoint can have the same rim
    as its stencil. `step_signal` is the name of the signal with the number of the step, or "". Outcrop supplies the
    values of the signal `step_signal`. `boxes` contains the boxes that the user has written. A stencil that was read
    from a file has no `boxes`, because its stages contain the conditions of the boxes.
    """

    name: str
    fields: tuple[Field, ...]
    parameters: tuple[ParameterValue, ...]
    signals: tuple[str, ...]
    stages: tuple[Stage, ...]
    equation: str
    ndim: int
    min_radii: tuple[int, int, int]
    step_signal: str
    boxes: tuple[FieldBox, ...] = dataclasses.field(default=(), compare=False, repr=False)

    def __init__(
        self, name: str, updates: Updates | Sequence[Updates], equation: str = "", ndim: int | None = None
    ) -> None:
        from outcrop.language.symbols import analyse  # this import loads SymPy; only new stencils need SymPy

        if not isinstance(name, str) or not name:
            raise InputError(f"the name {shown(name)} of a stencil must be text")
        schema.require_text(name, "the name of a stencil", schema.MAX_NAME)
        stages = [updates] if isinstance(updates, Mapping) else updates if isinstance(updates, Sequence) else []
        if len(stages) > schema.MAX_STAGES:
            raise InputError(f"stencil {name!r} has {len(stages)} stages, at most {schema.MAX_STAGES} are possible")
        if not all(isinstance(stage, Mapping) for stage in stages):
            raise InputError(f"stencil {name!r}: updates are a mapping from fields to expressions, or a list of such")
        fields, parameters, signals, lowered, text, axes, step_signal = analyse(name, stages, ndim)
        if isinstance(equation, str):
            equation = " ".join(equation.split())
        schema.require_text(equation, f"stencil {name!r}: equation", schema.MAX_TEXT)
        try:
            self._set(name, fields, parameters, signals, lowered, equation or text, axes, (0, 0, 0), step_signal)
        except ValueError as error:
            raise InputError(f"stencil {name!r}: {error}") from None
        boxes = tuple(target for stage in stages for target in stage if isinstance(target, FieldBox))
        object.__setattr__(self, "boxes", boxes)

    def _set(self, *values: Any) -> None:
        """Set the members to `values`, in the order of their declaration. Raises ValueError if no kernel can compute
        the stencil."""
        for key, value in zip(_MEMBERS, values, strict=True):
            object.__setattr__(self, key, value)
        self._require_sound()

    def _require_sound(self) -> None:
        """Raise ValueError if a kernel of the stencil reads or writes a field, scalar or cell that does not exist."""
        if self.ndim not in PLACES:
            raise ValueError(f"ndim={self.ndim}; there are 1, 2 and 3")
        if any(self.min_radii[axis] for axis in range(3) if axis not in PLACES[self.ndim]):
            raise ValueError(f"min_radii {self.min_radii} with ndim={self.ndim}")
        scalars = len(self.parameters) + len(self.signals)
        for what, count, maximum in (
            ("fields", len(self.fields), schema.MAX_FIELDS),
            ("parameters and signals", scalars, schema.MAX_SCALARS),
            ("stages", len(self.stages), schema.MAX_STAGES),
            ("operations", sum(len(stage.program.operations) for stage in self.stages), schema.MAX_OPERATIONS),
        ):
            if count > maximum:
                raise ValueError(f"{count} {what}, at most {maximum} are possible")
        names = Counter([one.name for one in self.fields])
        names.update([one.name for one in self.parameters])
        names.update(self.signals)
        for name, count in names.items():
            if count > 1:
                raise ValueError(f"two fields, parameters or signals have the name {name!r}")
        if self.step_signal and self.step_signal not in self.signals:
            raise ValueError(f"the number of the step is signal {shown(self.step_signal)}, which does not exist")
        for stage in self.stages:
            stage.require_sound(len(self.fields), scalars, self.ndim)
        updated = list(dict.fromkeys(field for stage in self.stages for field in stage.targets))
        if updated != list(range(len(updated))):
            raise ValueError(f"fields are first updated in the order {updated}; their numbers must be 0, 1, 2, ...")
        _ = self.storage  # raises ValueError if a field cannot be stored

    @cached_property
    def radii(self) -> tuple[int, int, int]:
        """The largest offset of all stages along z, y and x, but at least `min_radii`. The radii are also the thickness
        of a fixed rim."""
        every = [self.min_radii, *(stage.radii for stage in self.stages)]
        return tuple(max(radii[axis] for radii in every) for axis in range(3))  # type: ignore[return-value]

    @property
    def radius(self) -> int:
        """The largest offset along any axis."""
        return max(self.radii)

    @cached_property
    def positions(self) -> frozenset[int]:
        """The axes of the engine along which the stages read the index of the cell or the number of cells."""
        return frozenset[int]().union(*(stage.program.positions for stage in self.stages))

    def require_boxes(self, shape: Sequence[int], boundary: Boundary | None = None) -> None:
        """Raise InputError if a box contains no cell of a grid, or only cells of the rim that `boundary` keeps. `shape`
        has one size for each axis of the stencil."""
        for box in self.boxes:
            if (axis := box.empty_axis(shape, [(0, 0)] * self.ndim)) is not None:
                raise InputError(
                    f"{self.name}: the box {box} contains no cell of the grid, which has {shape[axis]} cells along "
                    f"{NAMES[self.ndim][axis]}; change the box, or leave it out"
                )
            rims = boundary.rims(self.radii) if boundary is not None else ((0, 0),) * 3
            if (axis := box.empty_axis(shape, [rims[place] for place in PLACES[self.ndim]])) is not None:
                raise InputError(
                    f"{self.name}: all cells of the box {box} lie in the fixed rim, which keeps its values; change the "
                    f"box, give these cells initial values, or use boundary mirror along {NAMES[self.ndim][axis]}"
                )

    @property
    def given_signals(self) -> tuple[str, ...]:
        """The signals whose values a run must have. Outcrop itself supplies the number of the step."""
        return tuple(name for name in self.signals if name != self.step_signal)

    @cached_property
    def older_values(self) -> dict[str, tuple[str, int]]:
        """A mapping. Each key is the name of a field, such as `u_back2`, that keeps older values of another field. Each
        value is the name of the other field, and the number of updates back. A field of older values that has no
        initial values starts as a copy of the other field."""
        numbers, found = {field.name: number for number, field in enumerate(self.fields)}, dict[str, tuple[str, int]]()
        for name in numbers:
            for back in range(1, MAX_BACK + 1):
                mark = older_name("", back)
                of, newer = name.replace(mark, "", 1), name.replace(mark, older_name("", back - 1), 1)
                if mark in name and of in numbers:
                    is_previous = back == 2 and newer not in numbers
                    source = of if back == 1 or is_previous else newer
                    load = Load(numbers.get(source, -1), (0, 0, 0), int(is_previous))
                    if self._is_copy(numbers[name], numbers[of], load):
                        found[name] = of, back
        return found

    def _is_copy(self, number: int, field: int, source: Load) -> bool:
        """Return True if each stage that updates `field` copies `source` to field `number`, and no other stage updates
        this field."""
        for stage in self.stages:
            results = dict(zip(stage.targets, stage.program.results, strict=True))
            if (number in results) != (field in results):
                return False
            if number in results and stage.program.operations[results[number]] != source:
                return False
        return any(number in stage.targets for stage in self.stages)

    @cached_property
    def storage(self) -> tuple[Storage, ...]:
        """The storage that the stages require, with one entry for each field (`storage_of`)."""
        return tuple(storage_of(self.stages, number, field.name) for number, field in enumerate(self.fields))

    @cached_property
    def copies(self) -> tuple[Copies, ...]:
        """The copies that kernels read and write. The first entries are for the stages of an even step, and the next
        entries are for the stages of an odd step.

        Each update of a field with two copies writes the older copy, so the pattern repeats after two steps. Before an
        even step, copy 0 holds the newest value.
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
        """For each field, return the number of the copy that holds the newest value after `steps` steps."""
        flips = [
            sum(field in stage.targets for stage in self.stages) * self.storage[field].is_double
            for field in range(len(self.fields))
        ]
        return tuple(count * steps % 2 for count in flips)

    def scalars(self, values: Mapping[str, float]) -> tuple[float, ...]:
        """Return the values of the parameters, in the order that kernels expect. Parameters that are not in `values`
        have their defaults. Raises InputError for an unknown name."""
        known = {parameter.name for parameter in self.parameters}
        for name in values:
            if name not in known:
                there = ", ".join(sorted(known)) or "none"
                raise InputError(f"stencil {self.name!r} has no parameter {shown(name)}; there are: {there}")
        return tuple(
            schema.as_number(values.get(parameter.name, parameter.default), f"parameter {parameter.name} =")
            for parameter in self.parameters
        )

    def to_json(self) -> dict[str, Any]:
        """Describe the stencil as plain data. `from_json` makes an equal stencil from these data."""
        described = {
            "name": self.name,
            "fields": [field.name for field in self.fields],
            "parameters": [[parameter.name, parameter.default] for parameter in self.parameters],
            "signals": list(self.signals),
            "stages": [stage.to_json() for stage in self.stages],
            "equation": self.equation,
            "ndim": self.ndim,
        }
        more = {"min_radii": list(self.min_radii), "step_signal": self.step_signal}
        return described | {name: value for name, value in more.items() if value != _OPTIONAL[name]}

    @classmethod
    def from_stages(
        cls,
        name: str,
        fields: Sequence[Field],
        stages: Sequence[Stage],
        parameters: Sequence[ParameterValue],
        signals: Sequence[str],
        ndim: int,
        min_radii: tuple[int, int, int] = (0, 0, 0),
        step_signal: str = "",
    ) -> Stencil:
        """Make a stencil from lowered stages. Raises InputError if no kernel can compute the stages."""
        stencil = cls.__new__(cls)
        try:
            stencil._set(
                name, tuple(fields), tuple(parameters), tuple(signals), tuple(stages), "", ndim, min_radii, step_signal
            )
        except ValueError as error:
            raise InputError(f"stencil {name!r}: {error}") from None
        return stencil

    @classmethod
    def from_json(cls, data: object) -> Stencil:
        """Make the stencil that `to_json` described. Raises InputError for any other data. Does not need SymPy.

        No part of the data is trusted. Types, names, ranges and counts are checked (`schema`). All other properties are
        computed again. Data are accepted only if `Stencil(...)` can also make the stencil that they describe.
        """
        stencil = cls.__new__(cls)
        try:
            stencil._set(*_read(data))
        except (ValueError, InputError) as error:
            raise InputError(f"not the description of a stencil: {error}") from None
        return stencil

    @property
    def latex(self) -> str:
        """The equation as LaTeX, in an environment `aligned`. The text is "" if the formulas are too long to be read.
        """
        from outcrop.language.mathematics import equations

        lines = [one.replace(" = ", " &= ", 1) for one in equations(self)]
        return r"\begin{aligned} " + r" \\ ".join(lines) + r" \end{aligned}" if lines else ""

    def _title(self) -> str:
        return self.name

    def _repr_html_(self) -> str:
        formula = self.latex
        below = f"<p>$\\displaystyle {escaped(formula, len(formula))}$</p>" if formula else ""
        return f"{super()._repr_html_()}{below}"

    def _rows(self) -> Iterator[tuple[str, str]]:
        yield "equation", self.equation
        static = [field.name for field, one in zip(self.fields, self.storage, strict=True) if one.is_static]
        yield "updates", joined([field.name for field in self.fields if field.name not in static])
        if static:
            yield "only reads", joined(static)
        if self.parameters:
            yield "parameters", joined([f"{one.name} = {one.default:g}" for one in self.parameters])
        if self.given_signals:
            yield "signals", joined(self.given_signals)
        positions = [NAMES[self.ndim][PLACES[self.ndim].index(axis)] for axis in sorted(self.positions)]
        if positions or self.step_signal:
            yield "positions", joined([*positions, *([self.step_signal] if self.step_signal else [])])
        yield "axes", ", ".join(NAMES[self.ndim])
        yield "radius", ", ".join(str(self.radii[place]) for place in PLACES[self.ndim])

    def digest(self) -> str:
        """Return a hash of everything in the stencil except its name and the text of its equation."""
        content = {key: value for key, value in self.to_json().items() if key not in ("name", "equation")}
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def _read(data: object) -> tuple[Any, ...]:
    """Read the members of a Stencil from plain data. Raises InputError or ValueError for a member that is not
    allowed."""
    if isinstance(data, dict):
        data = {**_OPTIONAL, **data}
    members = schema.read_members(data, "a stencil", *_MEMBERS)
    if not members["name"]:
        raise ValueError("a stencil without name")
    schema.require_text(members["name"], "the name", schema.MAX_NAME)
    schema.require_text(members["equation"], "the equation", schema.MAX_TEXT)
    fields = tuple(map(Field, schema.read_list(members["fields"], "fields", schema.MAX_FIELDS, minimum=1)))
    pairs = schema.read_list(members["parameters"], "parameters", schema.MAX_SCALARS)
    parts = [schema.read_list(pair, "the parts of a parameter", 2, 2) for pair in pairs]
    parameters = tuple(ParameterValue(name, schema.read_number(default, "a default")) for name, default in parts)
    signals = tuple(schema.read_list(members["signals"], "signals", schema.MAX_SCALARS))
    for name in (*(one.name for one in parameters), *signals):
        schema.require_name(name, "parameter or signal")
    stages = tuple(map(Stage.from_json, schema.read_list(members["stages"], "stages", schema.MAX_STAGES, minimum=1)))
    ndim = schema.read_whole(members["ndim"], "ndim", 4)
    thick = schema.read_list(members["min_radii"], "min_radii", 3, 3)
    min_radii = tuple(schema.read_whole(one, "min_radii", schema.MAX_OFFSET + 1) for one in thick)
    step_signal = members["step_signal"]
    if step_signal != "":
        schema.require_name(step_signal, "signal")
    return members["name"], fields, parameters, signals, stages, members["equation"], ndim, min_radii, step_signal


def __getattr__(name: str) -> object:
    if name not in ("Parameter", "Signal"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from outcrop.language import symbols  # this import loads SymPy; stencils from a manifest do not need it

    return getattr(symbols, name)
