"""Represent sources and receivers at points between cells. Sources add values to a field, and receivers read a field.

A point has one or more corners. A corner is a cell with a weight. `linear` computes corners from coordinates.
Injections and samplings consist of plain arrays, so they can be made from Devito's objects or from options.

    step t:   samplings with `before`  ►  stages, each followed by its injections  ►  all other samplings
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from outcrop.axes import PLACES
from outcrop.errors import InputError
from outcrop.language.derivative import Tape, adjoint
from outcrop.language.program import Load, Program, Scalar, evaluate
from outcrop.language.schema import (
    MAX_FIELDS,
    MAX_SCALARS,
    read_hexadecimal,
    read_list,
    read_members,
    require_name,
)

Cells: TypeAlias = NDArray[np.int64]
"""An array of shape (points, corners, 3): z, y and x of each corner, in cells of the run's arrays."""
Weights: TypeAlias = NDArray[np.float64]
"""An array of shape (points, corners) with the weight of each corner."""
ReadCells: TypeAlias = Callable[[str, Cells], Weights]
"""A function that returns the values of the named field at cells of shape (..., 3)."""

_NEAR = 1e-6
"""A point may lie outside the grid by this fraction of the grid's length along an axis, because its coordinates may be
rounded to float32."""


@dataclass(frozen=True)
class SourceFactor:
    """A factor, such as dt**2/m, that multiplies sources. The factor is computed from read-only fields at the corners
    of the sources. `program` has one result. Field number i of the program is `fields[i]`. `scalars` contains the
    values of the program's scalars, and `names` contains the names of their parameters. `names` is empty if an earlier
    version of Outcrop has stored the factor."""

    program: Program
    fields: tuple[str, ...]
    scalars: tuple[float, ...]
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.fields:
            require_name(name, "field")
        for name in self.names:
            require_name(name, "parameter")
        try:
            if len(self.names) not in (0, len(self.scalars)):
                raise ValueError(f"{len(self.names)} names of {len(self.scalars)} scalars")
            self.program.require_sound(len(self.fields), len(self.scalars))
            if len(self.program.results) != 1 or any(load.age for load in self.program.loads):
                raise ValueError("it must have one result and read only newest values")
        except ValueError as error:
            raise InputError(f"the factor of a source: {error}") from None

    def at(self, cells: Cells, read: ReadCells) -> Weights:
        """Compute the factor at `cells`, in float64."""

        def load(one: Load) -> Weights:
            return read(self.fields[one.field], cells + np.array(one.offset, np.int64)).astype(np.float64)

        (result,) = evaluate(self.program, load, self.scalars, np.float64)
        return np.broadcast_to(np.asarray(result, np.float64), cells.shape[:-1])

    @property
    def inputs(self) -> set[str]:
        """The names of the fields and parameters on which the factor depends."""
        scalars = {one.index for one in self.program.operations if isinstance(one, Scalar)}
        return {self.fields[load.field] for load in self.program.loads} | {
            name for index, name in enumerate(self.names) if index in scalars
        }

    def derivatives(self, name: str) -> dict[tuple[int, int, int], SourceFactor]:
        """Return the derivatives of the factor with respect to a field or a parameter. If the factor reads a field at
        several offsets, there is one derivative for each offset. The derivative with respect to a parameter has the
        offset 0."""
        tape = Tape()
        at = tape.copy(self.program, tape.append)
        terms: dict[tuple[int, int, int], list[int]] = {}
        for place, products in adjoint(tape, self.program, at, [tape.constant(1.0)]).items():
            match self.program.operations[place]:
                case Load(field, offset) if self.fields[field] == name:
                    own = terms.setdefault(offset, [])
                case Scalar(index) if self.names and self.names[index] == name:
                    own = terms.setdefault((0, 0, 0), [])
                case _:
                    continue
            own += [tape.multiply(one.coefficient, one.core) for one in products]
        return {offset: replace(self, program=tape.program([tape.sum(places)])) for offset, places in terms.items()}

    def to_json(self) -> dict[str, Any]:
        scalars = [value.hex() for value in self.scalars]
        return {
            "program": self.program.to_json(), "fields": list(self.fields), "scalars": scalars,
            "names": list(self.names),
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: object) -> SourceFactor:
        """Make the factor that `to_json` described. Raises InputError for any other data. The caller must check that
        the factor reads only fields and cells that exist in the run."""
        if isinstance(data, dict):  # earlier versions of Outcrop stored no names
            data = {"names": [], **data}
        try:
            members = read_members(data, "it", "program", "fields", "scalars", "names")
            fields = tuple(read_list(members["fields"], "fields", MAX_FIELDS))
            texts = read_list(members["scalars"], "scalars", MAX_SCALARS)
            scalars = tuple(read_hexadecimal(text, "a scalar") for text in texts)
            names = tuple(read_list(members["names"], "names", MAX_SCALARS))
            return cls(Program.from_json(members["program"]), fields, scalars, names)
        except ValueError as error:
            raise InputError(f"the factor of a source: {error}") from None


@dataclass(frozen=True, eq=False)
class Injection:
    """Sources. In each step t, the sources add values to the field, directly after the last stage that updates the
    field. The outer loop is over the points p, and the inner loop is over the corners k:

        field[cells[p, k]] += dtype(weights[p, k] * values[t, p])

    The product of weight and value is computed in float64 and rounded once to the field's dtype. Steps are counted from
    0. If `scale` is given, `resolved` multiplies the weights by this factor.
    """

    field: str
    cells: Cells
    weights: Weights
    values: NDArray[np.float64]
    scale: SourceFactor | None = None

    def __post_init__(self) -> None:
        _check_corners(f"sources in {self.field!r}", self.cells, self.weights)
        if self.values.ndim != 2 or self.values.shape[1] != len(self.cells):
            raise InputError(
                f"sources in {self.field!r}: values have shape {self.values.shape}; they need (steps, points), "
                f"and there are {len(self.cells)} points"
            )

    @property
    def steps(self) -> int:
        return len(self.values)

    def resolved(self, read: ReadCells) -> Injection:
        """Return a copy of these sources, in which the weights are multiplied by the values of `scale`. `read` returns
        the values of the fields that `scale` reads. A corner with the weight 0 keeps this weight, even if the scale is
        not finite there."""
        if self.scale is None:
            return self
        weights: Weights = np.zeros(self.weights.shape)
        np.multiply(self.weights, self.scale.at(self.cells, read), out=weights, where=self.weights != 0)
        return replace(self, weights=weights, scale=None)


@dataclass(frozen=True, eq=False)
class Sampling:
    """Receivers. The recorded value at point p is the sum of `weights[p, k] * field[cells[p, k]]` over the corners k.
    The sum over the corners is computed in float64, in the order of the corners. If `before` is true, the field is read
    before the first stage of each step. If `before` is false, the field is read at the end of each step. If several
    samplings have the same name, their values are added, and the sums are one trace."""

    name: str
    field: str
    cells: Cells
    weights: Weights
    before: bool = False

    def __post_init__(self) -> None:
        _check_corners(f"receivers {self.name!r}", self.cells, self.weights)


def _check_corners(what: str, cells: Cells, weights: Weights) -> None:
    if cells.ndim != 3 or cells.shape[2] != 3 or weights.shape != cells.shape[:2]:
        raise InputError(
            f"{what}: cells of shape {cells.shape} and weights of shape {weights.shape}; "
            "they need (points, corners, 3) and (points, corners)"
        )


def linear(
    name: str,
    points: NDArray[np.floating],
    shape: Sequence[int],
    spacing: Sequence[float],
    origin: Sequence[float],
) -> tuple[Cells, Weights]:
    """Return the corners and weights for linear interpolation at `points`. `points` contains coordinates, and has the
    shape (points, axes). `shape`, `spacing` and `origin` (the position of cell 0) have the same axes: (z, y, x), (z, x)
    or (x). Raises InputError if a point lies outside the grid. The message contains `name` and the first point outside
    the grid."""
    places: NDArray[np.float64] = np.asarray(points, np.float64)
    axes = len(shape)
    if places.ndim != 2 or places.shape[1] != axes:
        raise InputError(f"{name}: coordinates have shape {places.shape}; they need (points, {axes})")
    last = np.asarray(shape) - 1
    position = (places - np.asarray(origin, np.float64)) / np.asarray(spacing, np.float64)
    inside = ((position >= -_NEAR * (last + 1)) & (position <= last + _NEAR * (last + 1))).all(axis=1)  # false for NaN
    if not inside.all():
        index = int(np.argmin(inside))
        ends = places[index], origin, np.asarray(origin) + last * np.asarray(spacing)
        place, begin, end = (", ".join(f"{value:g}" for value in one) for one in ends)
        raise InputError(f"{name}: point {index} at ({place}) lies outside the grid, from ({begin}) to ({end})")
    position = np.clip(position, 0, last)
    low = np.clip(np.floor(position), 0, np.maximum(last - 1, 0)).astype(np.int64)
    part = position - low
    corners = np.array(list(product((0, 1), repeat=axes)), np.int64)
    weights = np.where(corners, part[:, None, :], 1 - part[:, None, :]).prod(axis=2)
    return spread(np.minimum(low[:, None, :] + corners, last)), weights


def spread(cells: NDArray[np.int64]) -> Cells:
    """Return cells of shape (..., axes) as an array of shape (..., 3) for z, y and x. Positions along missing axes are
    0."""
    full = np.zeros((*cells.shape[:-1], 3), np.int64)
    full[..., PLACES[cells.shape[-1]]] = cells
    return full
