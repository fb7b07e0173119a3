"""What one step does to a grid: fields, parameters, and updates in a form that C and NumPy follow alike.

    u, k = Field("u"), Parameter("k", 0.1)
    smooth = Stencil("smooth", {u: u[0, 0, 0] + k * (u[0, 0, 1] - 2 * u[0, 0, 0] + u[0, 0, -1])})

Offsets are (z, y, x) in cells. A step may have several stages, each a mapping, that are computed one after the other;
a stage reads the newest values there are, `u.previous[...]` those before a field's latest update:

    waves = Stencil("waves", {u: 2 * u[0] - u.previous[0] + v[0] ** 2 * (u[1] - 2 * u[0] + u[-1])})    # v: only read
    yee = Stencil("yee", [{h: h[0] - k * (e[1] - e[0])}, {e: e[0] - k * (h[0] - h[-1])}])

A Stencil holds no SymPy: it is lowered at once to Programs, which are plain data, go into the run's manifest and come
back from it without the user's script.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from outcrop.errors import InputError
from outcrop.language.program import Scalar
from outcrop.language.stage import OPERANDS_MOST, Stage, Storage, storage_of
from outcrop.language.symbols import Field, Parameter, ParameterValue, Signal

__all__ = ["Field", "Parameter", "ParameterValue", "Signal", "Stencil"]

Updates: TypeAlias = Mapping[Field, Any]


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
        from outcrop.language.analyse import analyse  # SymPy's walk is only needed for new stencils

        if not isinstance(name, str) or not name:
            raise InputError(f"the name {name!r} of a stencil must be text")
        stages = [updates] if isinstance(updates, Mapping) else list(updates) if isinstance(updates, Sequence) else []
        if not all(isinstance(stage, Mapping) for stage in stages):
            raise InputError(f"stencil {name!r}: updates are a mapping from fields to expressions, or a list of such")
        found = analyse(name, stages, ndim)
        text = equation or "; ".join(
            f"{target.name}' = {result}" for stage in stages for target, result in stage.items()
        )
        self._set(name, found.fields, found.parameters, found.signals, found.stages, text, found.ndim)

    def _set(self, *values: Any) -> None:
        names = ("name", "fields", "parameters", "signals", "stages", "equation", "ndim")
        for key, value in zip(names, values, strict=True):
            object.__setattr__(self, key, value)
        for stage in self.stages:
            if len(stage.operands) > OPERANDS_MOST:
                raise InputError(
                    f"stencil {self.name!r}: a stage reads and updates {len(stage.operands)} values of fields, at most "
                    f"{OPERANDS_MOST} are possible; split it into several stages"
                )
        for number, field in enumerate(self.fields):
            try:
                storage_of(self.stages, number)
            except ValueError as error:
                raise InputError(f"stencil {self.name!r}: field {field.name!r} {error}") from None

    @property
    def radii(self) -> tuple[int, int, int]:
        """The largest offset of any stage along z, y and x: the thickness of a fixed rim."""
        every = [stage.radii for stage in self.stages]
        return tuple(max(radii[axis] for radii in every) for axis in range(3))  # type: ignore[return-value]

    @property
    def radius(self) -> int:
        """The largest offset along any axis."""
        return max(self.radii)

    @property
    def storage(self) -> tuple[Storage, ...]:
        """How each field is kept."""
        return tuple(storage_of(self.stages, number) for number in range(len(self.fields)))

    def scalars(self, values: Mapping[str, float]) -> tuple[float, ...]:
        """Parameter values in kernel order: from `values`, else defaults. Raises InputError for a name there is
        not."""
        known = {parameter.name for parameter in self.parameters}
        for name in values:
            if name not in known:
                there = ", ".join(sorted(known)) or "none"
                raise InputError(f"stencil {self.name!r} has no parameter {name!r}; there are: {there}")
        return tuple(float(values.get(parameter.name, parameter.default)) for parameter in self.parameters)

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
    def from_json(cls, data: Mapping[str, Any]) -> Stencil:
        """The stencil that `to_json` described. Raises InputError when the data is not that."""
        stencil = cls.__new__(cls)
        try:
            fields = tuple(Field(str(name)) for name in data["fields"])
            parameters = tuple(ParameterValue(str(name), float(default)) for name, default in data["parameters"])
            signals = tuple(str(name) for name in data["signals"])
            stages = tuple(Stage.from_json(stage) for stage in data["stages"])
            for stage in stages:
                _check_references(stage, len(fields), len(parameters) + len(signals))
            text, ndim = str(data["equation"]), int(data["ndim"])
            stencil._set(str(data["name"]), fields, parameters, signals, stages, text, ndim)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"not the description of a stencil: {error}") from None
        return stencil

    def digest(self) -> str:
        """A short name of the content: fields, parameters and programs."""
        content = {key: value for key, value in self.to_json().items() if key not in ("name", "equation")}
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def _check_references(stage: Stage, fields: int, scalars: int) -> None:
    used = [load.field for load in stage.program.loads] + list(stage.targets)
    if not all(0 <= field < fields for field in used):
        raise ValueError(f"fields {sorted(set(used))} of {fields}")
    for operation in stage.program.operations:
        if isinstance(operation, Scalar) and not 0 <= operation.index < scalars:
            raise ValueError(f"no scalar {operation.index}")
