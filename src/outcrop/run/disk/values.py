"""This module assigns the values of a run's arrays, completes them before the first step, and makes the views for
`sim["u"]`.

This table shows how new values are assigned to an array:

                            if the array has values                     if it has none
    array of the state      written as the next generation,             written in place
                            with copies of the other arrays
                            (in a run in place: overwritten)
    array only read         before the first step: written again,       written in place
                            and without values in the meantime;
                            fields that are computed from this
                            array (language/static_terms.py) have
                            no values until the next run begins

If `filled` in the manifest lists an array, the values of the array are complete. Indexing reads only the selected
planes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any, NoReturn

import numpy as np
from numpy.typing import DTypeLike, NDArray

from outcrop.axes import Shape, axes_text, inside
from outcrop.errors import CorruptionError, InputError, by_caller, shown
from outcrop.language.program import Program, evaluate
from outcrop.language.static_terms import Terms, fields_of, parameters_of
from outcrop.language.stencil import Stencil
from outcrop.run.disk.entries import ComputedFrom
from outcrop.run.disk.manifest import NEW, READY, Description, Settings
from outcrop.run.disk.planes import BUFFER_BYTES, Planes, PlaneSource, is_sparse
from outcrop.run.disk.state import State

PART_CELLS = 1 << 16
"""The number of cells of a computed field that a thread computes at once. The intermediate values stay in its cache."""
READ_ATTEMPTS = 3
"""The maximum number of attempts to read planes that another process overwrites."""


def require_fields(manifest: Description, filled: Collection[str]) -> None:
    """Raise InputError when a field that is only read has no values. `filled` contains the names of the arrays that
    have values."""
    if missing := [entry.name for entry in manifest.given if entry.name not in filled]:
        names = " and ".join(missing)
        raise InputError(
            f"{manifest.stencil.get('name', 'this run')} reads {names}, which "
            f"{'has' if len(missing) == 1 else 'have'} no values; "
            + by_caller(f"give --init {missing[0]}=NUMBER or {missing[0]}=FILE", f"assign sim[{missing[0]!r}] = ...")
        )


def require_given(manifest: Description, stencil: Stencil, terms: Terms, names: Iterable[str], is_new: bool) -> None:
    """Raise InputError if a name in `names` belongs to no array, or to an array that the run computes itself. `is_new`
    is false for a run that was opened, because its computed fields cannot change."""
    for name in names:
        manifest.entry(name, manifest.computed)
        if name in terms:
            fields = fields_of(stencil, terms[name])
            other = ", or give functions='steps'" if is_new else ""
            raise InputError(f"{name} is computed from {' and '.join(fields)}; assign sim[{fields[0]!r}]{other}")


def assign(
    state: State, values: Mapping[str, PlaneSource], io: str = "auto", others: Callable[[], object] = lambda: None,
    outdated: Sequence[str] = (),
) -> None:  # fmt: skip
    """Write `values` to arrays at the current step. `others` waits for the other ranks: before the first values of a
    run are committed, and before an array is overwritten in place. The static fields in `outdated` lose their values,
    because their values do not fit the new values. Raises InputError for a field that is only read, if steps have
    already used it. Raises StorageError if a pass in place has lost the state, and `values` do not contain all arrays
    of the state."""
    with state.locked():
        manifest = state.manifest
        static = [name for name in values if manifest.entry(name).is_static]
        for name in static:
            if name in manifest.filled and manifest.step:
                raise InputError(
                    f"{name} is only read, and {manifest.step} steps have used it; it cannot change now: start another "
                    f"run, or this one again with {by_caller('--force', 'force=True')}"
                )
        if manifest.phase == READY:
            replaced = [name for name in values if name in manifest.filled and name not in static]
            filled = {name: source for name, source in values.items() if name not in replaced}
            _note_assignment(state, filled)
            _fill(state, filled, io, others, outdated)
            if replaced:
                _replace(state, {name: values[name] for name in replaced}, io)
        else:
            _begin(state, values, static, io, others)


def complete(state: State, io: str = "auto", older_values: Mapping[str, tuple[str, int]] | None = None) -> None:
    """Write values to each array of the state that has no values yet. A field without values gets zeros. Previous
    values become equal to the values of their field. `older_values` contains the fields that keep older values of other
    fields (`Stencil.older_values`). The values of each field in `older_values` become equal to the values of the field
    whose older values it keeps. The manifest stores which arrays have become copies (`copied_from`)."""
    older = older_values or {}
    with state.locked():
        state.require_whole()
        manifest = state.manifest
        missing = [entry for entry in manifest.state if entry.name not in manifest.filled]
        copied = {entry.name: entry.field for entry in missing if entry.is_previous}
        copied |= {entry.name: older[entry.name][0] for entry in missing if entry.name in older}
        if copied:
            state.change(copied_from=manifest.copied_from | copied)
        _fill(state, {entry.name: _zeros(state) for entry in missing if entry.name not in copied}, io)
        for entry in missing:
            if entry.name in copied:
                with state.planes_of(copied[entry.name], io) as planes:
                    _fill(state, {entry.name: planes.read}, io)


def compute(
    state: State, stencil: Stencil, terms: Terms, parameters: Mapping[str, float], settings: Settings
) -> None:
    """Write the values of the computed fields that have no values yet. Also write the values again of each computed
    field whose inputs have changed: static fields or parameters. All static fields of the stencil must have values."""
    with state.locked():
        before, manifest = state.manifest.computed_from, state.manifest
        wanted = {
            name: ComputedFrom(
                {field: manifest.filled[field] for field in fields_of(stencil, term)},
                {one: float(parameters[one]) for one in parameters_of(stencil, term)},
            )
            for name, term in terms.items()
        }
        missing = [name for name, one in wanted.items() if before.get(name) != one or name not in manifest.filled]
        if not missing:
            return
        state.change(computed_from={name: one for name, one in before.items() if name not in missing})
        with ExitStack() as stack:
            inputs = dict.fromkeys(field for name in missing for field in wanted[name].stamps)
            arrays = {field: stack.enter_context(state.planes_of(field, settings.io)) for field in inputs}
            pool = stack.enter_context(ThreadPoolExecutor(settings.threads))
            scalars = [parameters[one.name] for one in stencil.parameters]
            computed = {
                name: partial(_planes_of, terms[name], stencil, arrays, scalars, manifest.dtype, pool)
                for name in missing
            }
            _fill(state, computed, settings.io)
        state.change(computed_from={name: one for name, one in wanted.items()})


def _planes_of(
    term: Program, stencil: Stencil, arrays: Mapping[str, Planes], scalars: Sequence[float], dtype: str,
    pool: ThreadPoolExecutor, z0: int, z1: int,
) -> NDArray[Any]:  # fmt: skip
    """Return planes of a computed field. The function performs the same operations as the kernel, so both compute the
    same bits."""
    values = {field: arrays[field].read(z0, z1) for field in fields_of(stencil, term)}
    shape = next(iter(values.values())).shape
    rows = {field: one.reshape(-1) for field, one in values.items()}
    found: NDArray[Any] = np.empty(math.prod(shape), dtype)

    def one_part(first: int) -> None:
        part = slice(first, first + PART_CELLS)
        found[part] = evaluate(
            term, lambda load: rows[stencil.fields[load.field].name][part], scalars, np.dtype(dtype).type
        )[0]

    list(pool.map(one_part, range(0, len(found), PART_CELLS)))
    return found.reshape(shape)


def padded(planes: PlaneSource, manifest: Description) -> PlaneSource:
    """`planes` returns planes of the user's grid, without padding. Return a function that calls `planes` and adds zeros
    as padding, as the arrays on disk need it."""
    if not any(manifest.padding):
        return planes
    pads, (nz, ny, nx) = inside(manifest.padding, 0), manifest.layout.shape

    def give(z0: int, z1: int) -> np.ndarray[Any, Any]:
        block = np.zeros((z1 - z0, ny, nx), manifest.dtype)
        first, end = max(z0, pads[0]), min(z1, nz - pads[0])
        if first < end:
            own = block[first - z0 : end - z0, pads[1] : ny - pads[1], pads[2] : nx - pads[2]]
            own[...] = planes(first - pads[0], end - pads[0])
        return block

    return give


def own_rows(planes: PlaneSource, manifest: Description) -> PlaneSource:
    """Return a function that returns the values of one part: only the planes and rows of the part. `planes` returns
    planes of the whole grid."""
    if manifest.part is None:
        return planes
    (first, end), low = manifest.rows, manifest.planes[0]
    return lambda z0, z1: planes(z0 + low, z1 + low)[:, first:end]


def _begin(
    state: State, values: Mapping[str, PlaneSource], static: Sequence[str], io: str, others: Callable[[], object]
) -> None:
    """Write the first values, or new values after the state was lost. After the call, the arrays of the state that are
    not in `values` have no values."""
    manifest = state.manifest
    needed = {entry.field for entry in manifest.state}
    if manifest.phase != NEW and not needed <= values.keys():
        state.require_whole()  # raises StorageError, because `values` replaces only a part of the lost state
    state.begin_filling([*static, *_depending(state, static)])
    state.begin_writing()
    for name, source in values.items():
        _write(state, name, 1 - manifest.current, source, io)
    others()
    lost = [entry.name for entry in manifest.state if entry.name not in values]
    _note_assignment(state, values)
    state.commit(manifest.step, values, lost)


def _fill(
    state: State, values: Mapping[str, PlaneSource], io: str, others: Callable[[], object] = lambda: None,
    outdated: Sequence[str] = (),
) -> None:  # fmt: skip
    """Write arrays in place. While values are written to an array, the manifest lists the array as an array without
    values. After the call, the arrays in `outdated` have no values."""
    if not values:
        return
    state.begin_filling([*values, *_depending(state, values), *outdated])
    others()  # from here on, the old values are valid on no rank
    for name, source in values.items():
        _write(state, name, state.manifest.current, source, io)
    state.end_filling(list(values))


def _depending(state: State, names: Collection[str]) -> list[str]:
    """Return the names of the computed fields that were computed from at least one field in `names`."""
    return [name for name, one in state.manifest.computed_from.items() if not one.stamps.keys().isdisjoint(names)]


def _replace(state: State, values: Mapping[str, PlaneSource], io: str) -> None:
    """Commit a new generation with the given values. Arrays of the state that are not in `values` keep their values."""
    manifest = state.manifest
    state.begin_writing()
    written = list(values)
    for entry in manifest.state:
        if entry.name in values:
            _write(state, entry.name, 1 - manifest.current, values[entry.name], io)
        elif entry.name in manifest.filled and not manifest.in_place:
            with state.planes_of(entry.name, io) as planes:
                _write(state, entry.name, 1 - manifest.current, planes.read, io)
            written.append(entry.name)
    _note_assignment(state, values)
    state.commit(manifest.step, written)


def _note_assignment(state: State, names: Collection[str]) -> None:
    """Store in the manifest the step at which values are assigned to the arrays `names`. Also store that these arrays,
    and arrays that started as copies of them, are no copies any more. Call this function before the commit of the
    values, so that no interruption leaves new values without these entries."""
    manifest = state.manifest
    copies = {name: field for name, field in manifest.copied_from.items() if not {name, field} & {*names}}
    if names and (manifest.step or copies != manifest.copied_from):
        state.change(copied_from=copies, assigned_step=manifest.step)


def _write(state: State, name: str, copy: int, source: PlaneSource, io: str) -> None:
    with state.target_planes(name, copy, io) as planes:
        planes.fill(source)
        planes.flush()


def _zeros(state: State) -> PlaneSource:
    _, ny, nx = state.layout.shape
    return lambda z0, z1: np.zeros((z1 - z0, ny, nx), state.layout.dtype)


class PlanesView(ABC):
    """A view of stored values that is indexed like an array. A view has one to three axes. Values are read in units
    along the first axis: planes for three axes, rows for two axes, and cells for one axis."""

    shape: Shape
    dtype: np.dtype[Any]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Any:
        """Return `array[index]` as a new NumPy array. An index can contain whole numbers, slices and at most one `...`.
        Raises IndexError outside the grid, CorruptionError for damaged planes, and InputError if the array has no
        values."""
        z_index, rest = split_index(index, self.ndim)
        as_ranges((z_index, *rest), self.shape)  # raises IndexError outside the array
        planes = range(self.shape[0])[z_index]  # `range` accepts negative indices
        one = isinstance(planes, int)
        wanted = range(planes, planes + 1) if isinstance(planes, int) else planes
        # NumPy computes the shape of the result: an array whose cells need no memory is indexed in the same way.
        selected = np.empty(self.shape[1:], dtype=[])[rest].shape
        result: NDArray[Any] = np.empty((len(wanted), *selected), dtype=self.dtype)
        done = 0
        for block in self._selected(wanted, rest):
            result[done : done + len(block)] = block
            done += len(block)
        return result[0] if one else result

    def __setitem__(self, index: Any, values: object) -> NoReturn:
        raise InputError("cells of a field cannot be assigned; assign the whole field, as in sim['u'] = values")

    def sample(self, index: Any) -> Any:
        """Return `array[index]` for a picture. If the index selects only a small part of large planes, it is possible
        that only the selected rows are read. If only the selected rows are read, the checksums of the planes are not
        verified."""
        return self[index]

    def _selected(self, wanted: range, rest: tuple[int | slice, ...]) -> Iterator[NDArray[Any]]:
        """Yield the selected cells of the planes with the numbers in `wanted`."""
        for block in self._read(wanted):
            yield block[(slice(None), *rest)]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("a field on disk cannot become an array without a copy")
        return np.asarray(self[...], dtype=dtype)

    @abstractmethod
    def _read(self, wanted: range) -> Iterator[NDArray[Any]]:
        """Yield the planes with the numbers in `wanted` as arrays of shape (planes, *shape[1:]). Each array is valid
        until the next array is read."""


class FieldView(PlanesView):
    """The committed values of the array `name` on the user's grid. Whenever values are read, their checksums are
    verified."""

    def __init__(self, state: State, name: str) -> None:
        self._state, self.name = state, name
        self.shape = state.manifest.own_shape
        self.dtype = np.dtype(state.manifest.dtype)

    def __getitem__(self, index: Any) -> Any:
        """Return the selected cells. Planes of more than BUFFER_BYTES are read in strips, so the memory for a selection
        does not depend on the size of the planes."""
        return self._of_one_generation(lambda: super(FieldView, self).__getitem__(index))

    def sample(self, index: Any) -> Any:
        state = self._state
        first, rest = split_index(index, self.ndim)
        chosen, removed = as_ranges((first, *rest), self.shape)
        if self.ndim < 3 or not all(chosen) or not is_sparse(state.layout, *chosen[1:]):
            return self[index]
        planes, rows, columns = self._on_disk(chosen)

        def read() -> NDArray[Any]:
            with state.planes_of(self.name, direct=False) as files:
                return np.stack([files.unverified(z, rows, columns) for z in planes])

        return np.squeeze(self._of_one_generation(read), removed)[()]

    def _on_disk(self, chosen: Sequence[range]) -> list[range]:
        """Convert ranges of cells of the user's grid to ranges of cells of the arrays on disk, which have padding."""
        pads = self._state.manifest.padding
        return [range(one.start + pad, one.stop + pad, one.step) for one, pad in zip(chosen, pads, strict=True)]

    def _selected(self, wanted: range, rest: tuple[int | slice, ...]) -> Iterator[NDArray[Any]]:
        state = self._state
        if self.ndim < 3 or state.layout.record_bytes <= BUFFER_BYTES:
            yield from super()._selected(wanted, rest)
            return
        chosen, removed = as_ranges(rest, self.shape[1:])
        planes, rows, columns = self._on_disk([wanted, *chosen])
        with state.planes_of(self.name) as files:
            for z in planes:
                yield np.squeeze(files.selected(z, rows, columns), removed)[None]

    def _of_one_generation(self, read: Callable[[], Any]) -> Any:
        """Return the result of `read` for one generation, even while another process executes the run. A later pass of
        the other process can overwrite planes that are being read. Therefore `read` is called again if the generation
        has changed."""
        state = self._state
        for _ in range(READ_ATTEMPTS):
            state.refresh()
            generation = state.manifest.generation
            try:
                result = read()
            except CorruptionError:
                state.refresh()
                if state.manifest.generation == generation:
                    raise
                continue
            state.refresh()
            if state.manifest.generation == generation:
                return result
        raise InputError(f"{state.path} changes faster than it can be read: another process is running it")

    @property
    def generation(self) -> int:
        """The number of the generation of the values that were read last."""
        return self._state.manifest.generation

    def __repr__(self) -> str:
        manifest = self._state.manifest
        return f"<field {self.name!r} {self.shape} {self.dtype} at step {manifest.step}>"

    def _read(self, wanted: range) -> Iterator[NDArray[np.floating[Any]]]:
        state = self._state
        state.current_files_of(self.name)  # raises InputError if the array has no values
        if not wanted:
            return
        first, *rest = state.manifest.padding
        own = tuple(slice(pad, pad + n) for pad, n in zip(rest, self.shape[1:], strict=True))
        wanted = range(wanted.start + first, wanted.stop + first, wanted.step)
        with state.planes_of(self.name) as planes:
            if self.ndim == 1:  # on one axis, a single plane holds all cells
                yield planes.read(0, 1)[0, 0, np.arange(wanted.start, wanted.stop, wanted.step)]
                return
            ranges = [(wanted.start, wanted.stop)] if wanted.step == 1 else [(z, z + 1) for z in wanted]
            for z0, z1 in ranges:
                for _, block in planes.groups(z0, z1):
                    yield (block if self.ndim == 3 else block[:, 0])[(slice(None), *own)]


def split_index(index: Any, ndim: int) -> tuple[int | slice, tuple[int | slice, ...]]:
    """Split an index of an array of `ndim` axes into the part for the first axis, and the parts for the other axes."""
    parts = list(index) if isinstance(index, tuple) else [index]
    dots = [place for place, part in enumerate(parts) if part is Ellipsis]
    if dots:
        parts[dots[0] : dots[0] + 1] = [slice(None)] * (ndim - (len(parts) - 1))
    parts += [slice(None)] * (ndim - len(parts))
    whole = [part if isinstance(part, slice) else _whole_number(part) for part in parts]
    if len(whole) != ndim:
        have = f"a field has {axes_text(ndim)}" if ndim <= 3 else "snapshots have four axes (times, nz, ny, nx)"
        raise IndexError(f"{have} here, not {len(whole)}")
    return whole[0], tuple(whole[1:])


def as_ranges(index: Sequence[int | slice], shape: Shape) -> tuple[list[range], tuple[int, ...]]:
    """Return two values: the range of cells that an index selects along each axis, and the axes that the index removes.
    Raises IndexError outside the array."""
    for axis, (one, n) in enumerate(zip(index, shape, strict=True)):
        if isinstance(one, int) and not -n <= one < n:
            raise IndexError(f"index {one} is outside the array: axis {axis} has the cells 0 to {n - 1}")
    found = [range(n)[one] for one, n in zip(index, shape, strict=True)]
    removed = tuple(axis for axis, one in enumerate(found) if isinstance(one, int))
    return [range(one, one + 1) if isinstance(one, int) else one for one in found], removed


def _whole_number(part: Any) -> int:
    try:
        return int(part.__index__())
    except (AttributeError, TypeError):
        raise IndexError(
            f"a field is indexed by whole numbers, slices and ..., not by {shown(part)}; to use a mask or a list, "
            "first read the planes as an array: sim['u'][...][mask]"
        ) from None
