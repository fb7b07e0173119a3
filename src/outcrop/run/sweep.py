"""This module defines the class `Sweep`. `Sweep` computes steps of a stencil on arrays in memory. `Sweep` uses the same
kernels as runs.

`Sweep` is for programs that allocate their arrays themselves, as NumPy arrays or as arrays on tiers. `Sweep` updates
all cells once in each step and performs no I/O. So the speed of `Sweep` is the speed of a plain loop over memory. The
results of `Sweep` are bitwise identical to the results of a run with the same stencil and values.

    array (ny + 2, nx)    | spare row |  row 0 of the grid  | ... |  row ny - 1  | spare row |

A kernel updates whole vectors, and reads some cells before and after its rows. Therefore each array has two spare rows.
The values of the spare rows have no effect. Each row occupies a whole number of cache lines.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from outcrop.errors import InputError, shown
from outcrop.language.compile import Copy, compile_kernel
from outcrop.language.generate import ITEM_BYTES
from outcrop.language.stencil import Stencil
from outcrop.run.definition import as_parameters, as_stencil
from outcrop.run.engine import pack_scalars
from outcrop.run.setup import as_threads
from outcrop.run.user_values import require_mapping
from outcrop.tiers.discover import available_cores
from outcrop.units import counted

LINE_BYTES = 64
SPARE_ROWS = 2
ROWS_PER_CALL = 64
"""The maximum number of rows that a call of a kernel updates. With blocks of ROWS_PER_CALL rows, the cost of a call is
small, and all threads get nearly equal work."""

Arrays: TypeAlias = "Mapping[str, Any]"


class _Block(ctypes.Structure):
    """The members of this class are the members of the struct `outcrop_block` in core/outcrop/kernel/kernel.h."""

    _fields_ = (
        ("target", ctypes.c_void_p),
        ("source", ctypes.c_void_p),
        *((name, ctypes.c_long) for name in ("planes", "y0", "y1", "x0", "x1", "nx", "ny", "pitch")),
        ("scalars", ctypes.c_void_p),
        ("rows_at_once", ctypes.c_long),
        ("prefetch", ctypes.c_void_p),
        *((name, ctypes.c_long) for name in ("prefetch_rows", "z", "y")),
    )


@dataclass(frozen=True)
class _Call:
    """A kernel and the block of rows that it updates. `block` has pointers to the memory of the objects in `kept`."""

    kernel: Any
    block: _Block
    kept: tuple[Any, ...]

    def __call__(self) -> None:
        self.kernel(ctypes.byref(self.block))


class Sweep:
    """Computes steps of a stencil of two axes on arrays of shape (ny + 2, nx). The first and the last row of each array
    are spare.

    `arrays` maps the name of each field to its arrays. A field needs two arrays if its update reads values of the field
    in neighbouring cells, or previous values of the field. For a field with two arrays, a step reads one array and
    writes the other array. The first array of the field must have the initial values, and both arrays must have the
    values of the rim. A field that does not need two arrays needs one array. If a field has one array and the stencil
    updates the field, the array is updated in place. The boundary is fixed: cells closer to a side than the radius of
    the stencil keep their values.

        with Sweep(oc.stencils.stream_function(), {"psi": (a, b)}) as sweep:
            sweep.step()
            psi = sweep.newest("psi")                       # b

    Raises InputError for stencils that have signals or positions, or that do not have two axes. Also raises InputError
    for arrays that do not fit the stencil or each other.
    """

    def __init__(
        self, stencil: Stencil | str, arrays: Arrays, *, parameters: Mapping[str, float] | None = None,
        threads: int | None = None,
    ) -> None:  # fmt: skip
        stencil = as_stencil(stencil)
        if stencil.ndim != 2 or stencil.signals or stencil.positions:
            raise InputError(f"{stencil.name}: sweeps are for stencils of two axes without signals and positions")
        require_mapping(arrays, "arrays", stencil.fields[0].name)
        for name in arrays:
            if name not in [field.name for field in stencil.fields]:
                raise InputError(f"arrays: {stencil.name} has no field {shown(name)}")
        count = available_cores() if threads is None else as_threads(threads)
        values = as_parameters(stencil, {} if parameters is None else parameters)
        self._copies = {copy: array for number, field in enumerate(stencil.fields)
                        for copy, array in _copies(stencil, number, field.name, arrays)}  # fmt: skip
        _check(stencil, self._copies)
        self._stencil, self._done = stencil, 0
        dtype = str(next(iter(self._copies.values())).dtype)
        self._scalars = pack_scalars(stencil, values, dtype)
        # A kernel expects addresses of planes. On a two-axis grid, a plane is a row, so the kernel gets addresses of
        # rows.
        self._rows = {copy: _rows(array) for copy, array in self._copies.items()}
        calls = compile_kernel(stencil, dtype).calls
        self._stages = [self._calls(*call) for call in calls]
        self._pool = ThreadPoolExecutor(count)

    def step(self) -> None:
        """Compute one step with all threads."""
        count = len(self._stencil.stages)
        for calls in self._stages[self._done % 2 * count :][:count]:
            list(self._pool.map(_Call.__call__, calls))
        self._done += 1

    def newest(self, field: str) -> NDArray[Any]:
        """Return the array with the newest values of a field, including its spare rows."""
        names = [one.name for one in self._stencil.fields]
        if not isinstance(field, str) or field not in names:
            raise InputError(f"{self._stencil.name} has no field {shown(field)}; there are: {', '.join(names)}")
        number = names.index(field)
        return self._copies[number, self._stencil.newest_copies(self._done)[number]]

    def close(self) -> None:
        """End the threads of this `Sweep`."""
        self._pool.shutdown()

    def __enter__(self) -> Sweep:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _calls(self, address: int, sources: Sequence[Copy], targets: Sequence[Copy]) -> list[_Call]:
        kernel, radius = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address), self._stencil.radii[0]
        ny, nx = next(iter(self._copies.values())).shape
        ny -= SPARE_ROWS
        calls = []
        for row in range(radius, ny - radius, ROWS_PER_CALL):
            rows = min(ROWS_PER_CALL, ny - radius - row)
            lists = tuple((ctypes.c_void_p * len(of))(*(self._rows[copy].ctypes.data + row * 8 for copy in of))
                          for of in (targets, sources))  # fmt: skip
            target, source = map(ctypes.addressof, lists)
            scalars = ctypes.cast(ctypes.c_char_p(self._scalars), ctypes.c_void_p)
            block = _Block(target, source, rows, 0, 1, 0, nx, nx, 1, nx, scalars)
            calls.append(_Call(kernel, block, (lists, self._scalars)))
        return calls


def _copies(stencil: Stencil, number: int, name: str, arrays: Arrays) -> list[tuple[Copy, NDArray[Any]]]:
    """Return the arrays of a field as pairs ((number of the field, number of the array), array)."""
    count = 2 if stencil.storage[number].is_double else 1
    if name not in arrays:
        raise InputError(f"{stencil.name} has a field {name!r}; give it {'two arrays' if count == 2 else 'an array'}")
    given = tuple(arrays[name]) if isinstance(arrays[name], (tuple, list)) else (arrays[name],)
    if len(given) != count:
        raise InputError(f"{name} of {stencil.name} takes {counted(count, 'array')}, not {len(given)}")
    return [((number, copy), _as_array(name, array)) for copy, array in enumerate(given)]


def _as_array(name: str, given: Any) -> NDArray[Any]:
    """Return the NumPy array, or the array inside an `oc.Array`. The array is not copied, because updates of a copy
    would not change the array of the user."""
    array = getattr(given, "values", given)
    if not isinstance(array, np.ndarray):
        raise InputError(f"{name}: {shown(given)} is not an array; give an array of NumPy or of oc.array")
    return np.asarray(array)


def _check(stencil: Stencil, copies: Mapping[Copy, NDArray[Any]]) -> None:
    first = next(iter(copies.values()))
    for (number, _), array in copies.items():
        name = stencil.fields[number].name
        if array.shape != first.shape or array.dtype != first.dtype or array.ndim != 2 or not array.flags.c_contiguous:
            raise InputError(
                f"{name} is {array.dtype} of shape {array.shape}; all arrays must be contiguous, of two axes, and like "
                f"the first one, {first.dtype} of shape {first.shape}"
            )
        if str(array.dtype) not in ITEM_BYTES:
            raise InputError(f"{name} is {array.dtype}; arrays are {' or '.join(ITEM_BYTES)}")
        if array.strides[0] % LINE_BYTES or array.ctypes.data % LINE_BYTES:
            raise InputError(f"rows of {name} must begin every {LINE_BYTES} bytes, as those of oc.array do with a "
                             f"multiple of {LINE_BYTES // array.itemsize} cells")  # fmt: skip
        if not array.flags.writeable and any(number in stage.targets for stage in stencil.stages):
            raise InputError(f"{name} is updated, but its array is for reading only")
        if array.shape[0] < SPARE_ROWS + 1 or array.strides[0] < LINE_BYTES * stencil.radii[2]:
            raise InputError(f"{name} of shape {array.shape} is too small for {stencil.name} and two spare rows")
    _check_apart(stencil, copies)


def _check_apart(stencil: Stencil, copies: Mapping[Copy, NDArray[Any]]) -> None:
    """Raise InputError when an updated array shares memory with another array. If arrays shared memory, a step would
    read values that the same step has just written."""
    updated = {number for stage in stencil.stages for number in stage.targets}
    for (one, first), (other, second) in combinations(copies.items(), 2):
        if updated.isdisjoint((one[0], other[0])) or not np.may_share_memory(first, second):
            continue
        names = dict.fromkeys(stencil.fields[number].name for number, _ in (one, other))
        raise InputError(f"two arrays of {' and '.join(names)} share memory; each needs its own")


def _rows(array: NDArray[Any]) -> NDArray[np.uint64]:
    """Return the addresses of the rows of the grid, without the spare rows."""
    count, pitch = array.shape[0] - SPARE_ROWS, array.strides[0]
    return np.uint64(array.ctypes.data + pitch) + np.arange(count, dtype=np.uint64) * np.uint64(pitch)
