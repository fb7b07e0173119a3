"""Fields as users write them in expressions: values at offsets, older values, and boxes of cells.

    u[dz, dy, dx]                the newest value
    u.previous[dz, dy, dx]       the value before the latest update, also u.back(1)
    u.back(3)[dz, dy, dx]        the value before the latest three updates
    u.box[10:20, :, 3:-3]        cells of u, as the target of an update
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from outcrop.errors import InputError, shown
from outcrop.language import schema

if TYPE_CHECKING:
    import sympy

PREVIOUS = ".previous"
"""The suffix of a field's name that means the value before the latest update."""
BACK = ".back"
"""The suffix of an older value. A number follows: "u.back2" is the value of u before the latest two updates."""
MAX_BACK = 3
"""The maximum number of updates that an expression can look back."""


MAX_END = 1 << 53
"""The maximum number in a slice of a box, in cells."""


def older_name(field: str, updates: int) -> str:
    """Return the name of the field that keeps the values before the latest `updates` updates of a field."""
    return f"{field}_back{updates}"


class _NotAValue(ABC):
    """The base of objects that have a value only at an offset. Outcrop refuses an expression that uses such an object
    without an offset. The error message shows how to write the offset."""

    @property
    @abstractmethod
    def _shown_name(self) -> str: ...

    def _refuse(self, *others: object, **options: object) -> NoReturn:
        name = self._shown_name
        raise InputError(
            f"{name} is a field and not a value: write {name}[0, 0, 0] for the value of the cell itself "
            f"({name}[0, 0] on two axes, {name}[0] on one axis)"
        )

    # SymPy calls `_sympy_` to convert an operand. NumPy calls `__array_ufunc__` and `__array_function__`. The module
    # math calls `__float__`.
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __pow__ = _refuse
    __rpow__ = __neg__ = __abs__ = __gt__ = __ge__ = __lt__ = __le__ = _refuse
    __iter__ = _sympy_ = __array_ufunc__ = __array_function__ = __float__ = _refuse


@dataclass(frozen=True)
class Field(_NotAValue):
    """A quantity with one value per cell.

    In expressions, `u[dz, dy, dx]` is the newest value at an offset. On grids with two axes, write `u[dy, dx]`. On
    grids with one axis, write `u[dx]`. `u.previous[...]` is the value before the latest update.
    """

    name: str

    def __post_init__(self) -> None:
        schema.require_name(self.name, "field")

    def __getitem__(self, offset: tuple[int, ...] | int) -> sympy.Expr:
        return _at(self.name, offset)

    @property
    def previous(self) -> OlderField:
        """The values before the latest update."""
        return OlderField(self, 1)

    def back(self, updates: int) -> OlderField:
        """Return the values that the field had before its latest `updates` updates. `updates` is 1, 2 or 3. `u.back(1)`
        is `u.previous`."""
        if type(updates) is not int or not 1 <= updates <= MAX_BACK:
            raise InputError(f"{self.name}.back({shown(updates)}): there are 1 to {MAX_BACK} updates back")
        return OlderField(self, updates)

    @property
    def box(self) -> BoxMaker:
        """An object that makes a box of this field from slices, one slice for each axis. The update of a box changes
        only the cells of the box."""
        return BoxMaker(self)

    def __str__(self) -> str:
        return self.name

    @property
    def _shown_name(self) -> str:
        return self.name


@dataclass(frozen=True)
class OlderField(_NotAValue):
    """The values that a field had before its latest `updates` updates."""

    field: Field
    updates: int

    @property
    def _shown_name(self) -> str:
        return f"{self.field.name}{PREVIOUS}" if self.updates == 1 else f"{self.field.name}.back({self.updates})"

    def __getitem__(self, offset: tuple[int, ...] | int) -> sympy.Expr:
        return _at(self.field.name + (PREVIOUS if self.updates == 1 else f"{BACK}{self.updates}"), offset)


@dataclass(frozen=True)
class FieldBox:
    """The cells of a field in a box. `ranges` has the first cell and the cell after the last cell along each axis. In
    `ranges`, None means the corresponding end of the grid. Negative numbers are counted from the end of the grid, as in
    slices."""

    field: Field
    ranges: tuple[tuple[int | None, int | None], ...]

    def empty_axis(self, shape: Sequence[int], rims: Sequence[tuple[int, int]]) -> int | None:
        """Return the first axis along which the box has no cell between the rims of the grid. Return None if the box
        has such cells along each axis. `rims` contains the thickness of the rim at both ends of each axis."""
        for axis, (ends, cells, (low, high)) in enumerate(zip(self.ranges, shape, rims, strict=False)):
            found = range(cells)[slice(*ends)]
            if max(found.start, low) >= min(found.stop, cells - high):
                return axis
        return None

    def __str__(self) -> str:
        sides = (":".join("" if one is None else str(one) for one in ends) for ends in self.ranges)
        return f"{self.field.name}[{', '.join(sides)}]"


@dataclass(frozen=True)
class BoxMaker:
    """Makes boxes of a field from slices."""

    field: Field

    def __getitem__(self, slices: slice | tuple[slice, ...]) -> FieldBox:
        every = slices if isinstance(slices, tuple) else (slices,)
        if not 1 <= len(every) <= 3 or not all(isinstance(one, slice) and one.step in (None, 1) for one in every):
            raise InputError(
                f"{self.field.name}.box[{shown(slices)}]: a box is one to three slices without a step, such as "
                f"{self.field.name}.box[10:20, :, 3:-3]"
            )
        return FieldBox(self.field, tuple((self._end(one.start), self._end(one.stop)) for one in every))

    def _end(self, given: Any) -> int | None:
        try:
            end = None if given is None else operator.index(given)
        except TypeError:
            end = MAX_END + 1
        if end is not None and abs(end) > MAX_END:
            raise InputError(f"{self.field.name}.box: the end {shown(given)} of a slice is not a number of cells")
        return end


def _at(name: str, offset: tuple[int, ...] | int) -> sympy.Expr:
    import sympy

    from outcrop.language.symbols import FieldValue

    try:
        steps = tuple(operator.index(step) for step in (offset if isinstance(offset, tuple) else (offset,)))
    except TypeError:
        steps = ()
    if not 1 <= len(steps) <= 3:
        raise InputError(f"{name}[{shown(offset)}]: an offset is one to three whole numbers, (z, y, x), (y, x) or x")
    if any(abs(step) > schema.MAX_OFFSET for step in steps):
        raise InputError(f"{name}[{shown(offset)}]: an offset reaches at most {schema.MAX_OFFSET} cells along an axis")
    return sympy.Function(name, real=True, bases=(FieldValue,))(*steps)
