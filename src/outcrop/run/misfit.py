"""`Misfit` compares the results of a run with observed values. `gradient` computes the value and the gradient of a
misfit.

A misfit is any function that takes a simulation at its last step, and returns a value and the derivatives of this
value:

    misfit(simulation)  ──►  value, {name: residuals}          `Simulation.adjoint` takes these residuals

A `Misfit` is a function that takes a simulation and returns a value and residuals. The value of a `Misfit` is half the
weighted sum of squared differences. Fields are compared a few planes at a time, because a field can be larger than
memory. `Simulation.gradient` calls `gradient`:

    check all arguments ──► forward run ──► misfit ──► residuals ──► adjoint run ──► gradients

The forward run and the adjoint run are kept on disk. After an interruption, another call of `gradient` continues the
forward run and the adjoint run.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from outcrop.axes import Shape
from outcrop.errors import InputError, shown
from outcrop.language.boundary import as_boundary
from outcrop.plan.planner import require_budget
from outcrop.run.acquisition.pass_acquisition import demand_of
from outcrop.run.adjoint import derive, find_place, named_snapshots, require_small
from outcrop.run.definition import as_problem, require_same_fields
from outcrop.run.disk.entries import StatesEntry, updated_fields
from outcrop.run.forward import Derived, Forward, require_states
from outcrop.run.inputs.initial import cache_within, make_source
from outcrop.run.inputs.input_array import plane_groups
from outcrop.run.options import History
from outcrop.run.setup import as_steps, as_threads, parse_memory
from outcrop.run.simulation import Simulation, require_simulation
from outcrop.run.user_values import require_unmasked
from outcrop.run.ways import adjoint_acquisition, choose_here, history_of, task_of
from outcrop.tiers import discover

MisfitFunction: TypeAlias = Callable[[Simulation], tuple[float, Mapping[str, Any]]]

Block: TypeAlias = NDArray[np.float64]
Blocks: TypeAlias = Callable[[int, int], Block]
"""A function that returns a part of an array in float64. The arguments (first, end) select the entries first <= i < end
of the first axis."""


class Summable:
    """A misfit that can be added to other misfits. The sum is also a misfit."""

    def __add__(self, other: Any) -> SumOfMisfits:
        return SumOfMisfits((self, other)) if callable(other) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        """Add this misfit to another function that is a misfit. A misfit can also be added to the number 0, because
        Python's `sum` begins with 0."""
        if callable(other):
            return SumOfMisfits((other, self))
        return self if other == 0 else NotImplemented


class Misfit(Summable):
    """A misfit: half the weighted sum of squared differences between computed and observed values:

        value = 1/2 * sum of weight * (computed - observed)**2

    `name` says what is compared. If `name` is the name of receivers, the misfit compares the traces of the receivers,
    of shape (steps, points). If `name` is the name of an updated field, the misfit compares the last values of the
    field, on the whole grid. With a name such as "side/u", the misfit compares the snapshots `sim.snapshots["side/u"]`,
    of shape (times, nz, ny, nx). The snapshots must have a name and a small box. The residuals of snapshots need 8
    bytes for each cell of the box and each step. The size of the residuals of snapshots must not exceed 256 MiB.

    `observed` has the shape of the computed values. `observed` may be an array, a memory map of NumPy or a Zarr array.
    For receivers of Devito's equations, `observed` can also be the whole array of Devito, such as `rec.data`, with all
    rows of this array. From the whole array of Devito, the misfit uses the rows that the steps fill. For a field,
    `observed` may have any form that `sim[name] = ...` accepts. If `observed` is None, all observed values are 0, and
    the misfit is an energy. `weight` is a number, or an array with the shape of the computed values. If `weight` is
    None, all weights are 1. If a value is not observed, give the weight 0, and any finite number as observed value.

    Misfits can be added with `+`. A call of a misfit with a simulation returns the value and the residuals for
    `Simulation.adjoint`. Sums are computed in float64. Raises InputError for unknown names, wrong shapes, and values
    that are not finite.
    """

    def __init__(self, name: str, observed: Any, weight: Any = None) -> None:
        if not isinstance(name, str):
            raise InputError(f"misfit: {shown(name)} must be the name of receivers, a field or snapshots")
        self.name, self._observed, self._weight = name, observed, weight

    def __repr__(self) -> str:
        return f"<misfit of {self.name!r}>"

    def __call__(self, simulation: Simulation) -> tuple[float, dict[str, Any]]:
        require_simulation(simulation)
        compared = self._compared(simulation, simulation.step)
        value = compared.value()
        if not math.isfinite(value):
            raise InputError(f"the misfit of {self.name!r} is {value}: the run or the observed values are not finite")
        return value, {self.name: compared.residual if compared.is_field else compared.residual(0, compared.shape[0])}

    def check(self, simulation: Simulation, steps: int) -> None:
        """Check the misfit, the observed values and the weights before a run to step `steps` begins. Raises InputError
        if the misfit, the observed values or the weights do not fit the run."""
        compared = self._compared(simulation, steps)
        for first, end in compared.groups:
            for what, blocks in (("observed values", compared.observed), ("weights", compared.weight)):
                if not np.isfinite(found := blocks(first, end)).all():
                    place = np.argwhere(~np.isfinite(found))[0]
                    index = tuple(int(one) + first * (axis == 0) for axis, one in enumerate(place))
                    raise InputError(f"misfit of {self.name!r}: {what} have {found[tuple(place)]} at index {index}")

    def _compared(self, simulation: Simulation, steps: int) -> _Compared:
        name, entries = self.name, simulation.setup.description.taps
        remedy = "fill them, and give weight=~observed.mask"
        require_unmasked(self._observed, f"misfit of {name!r}: observed", remedy)
        require_unmasked(self._weight, f"misfit of {name!r}: weight", "fill them with 0.0")
        updated, snapshots = updated_fields(simulation.stencil), named_snapshots(entries)
        if name in entries.traces:
            if static := [one.field for one in entries.samplings if one.name == name and one.field not in updated]:
                raise InputError(
                    f"misfit of {name!r}: it records {static[0]}, which no step changes; compare receivers of "
                    f"{' or '.join(updated)}"
                )
            shape: Shape = (steps, entries.traces[name])
            rows = _DevitoRows.of(simulation, name, steps)
            return self._whole(shape, lambda first, end: np.asarray(simulation.traces[name][first:end]), rows)
        if name in snapshots:
            entry, _ = snapshots[name]
            require_small(name, entry, steps)
            shape = (entry.count(steps), *entry.shape)
            if not shape[0]:
                raise InputError(f"misfit of {name!r}: there is no snapshot up to step {steps}")
            return self._whole(shape, lambda first, end: np.asarray(simulation.snapshots[name][first:end], np.float64))
        if name not in updated:
            known = ", ".join([*entries.traces, *snapshots, *updated])
            raise InputError(
                f"misfit: there is no {shown(name)}; there are the receivers, snapshots and fields: {known}"
            )
        shape, cache_bytes = simulation.shape, cache_within(simulation.memory_bytes) // 2
        axes = simulation.setup.description.axis_names

        def blocks(given: Any, default: float) -> Blocks:
            try:
                source = make_source(default if given is None else given, shape, cache_bytes, axes)
            except InputError as error:
                raise InputError(f"misfit of {name!r}: {error}") from None

            def planes(first: int, end: int) -> Block:
                block = source.planes(first, end)
                require_unmasked(block, f"misfit of {name!r}: {source.name}", remedy)
                return np.asarray(block, np.float64)

            return planes

        def computed(first: int, end: int) -> Block:
            return np.asarray(simulation[name][first:end], np.float64)

        return _Compared(shape, computed, blocks(self._observed, 0.0), blocks(self._weight, 1.0), True)

    def _whole(self, shape: Shape, computed: Blocks, rows: _DevitoRows | None = None) -> _Compared:
        """Return the values that a misfit of traces or snapshots compares. Traces and snapshots are compared in one
        piece, so all values are in memory. `rows` is given for receivers of Devito's equations."""

        def blocks(what: str, given: Any, default: float) -> Blocks:
            value: Any = default if given is None else given
            try:
                array: Any = value if hasattr(value, "shape") and hasattr(value, "dtype") else np.asarray(value)
                is_real = np.dtype(array.dtype).kind in "buif"
            except Exception:  # for nested lists and for classes of users, NumPy raises many types of errors
                is_real = False
            if is_real and rows and array.shape == (rows.count, *shape[1:]):
                array = rows.cut(np.asarray(array))
            if not is_real or (tuple(array.shape) and tuple(array.shape) != shape):
                found = tuple(array.shape) if is_real else shown(value)
                hint = f"; these are the rows {rows}" if rows else ""
                raise InputError(
                    f"misfit of {self.name!r}: {what} must be numbers of shape {shape}; given: {found}{hint}"
                )
            if not tuple(array.shape):
                return lambda first, end: np.full((end - first, *shape[1:]), float(array))
            return lambda first, end: np.asarray(array[first:end], np.float64)

        observed, weight = blocks("observed", self._observed, 0.0), blocks("weight", self._weight, 1.0)
        return _Compared(shape, computed, observed, weight, False)


@dataclass(frozen=True)
class _DevitoRows:
    """The rows of Devito's array `name`.data that the steps of a run fill. The first step fills row `first`. Each
    further step fills the next row of the array, or the previous row of the array if `way` is -1. `count` is the number
    of rows of the array, or None if the run was opened without its equations."""

    name: str
    first: int
    way: int
    steps: int
    count: int | None

    @classmethod
    def of(cls, simulation: Simulation, name: str, steps: int) -> _DevitoRows | None:
        """Return the rows for the receivers `name`, or None if these receivers do not belong to Devito's equations."""
        lowered, description = simulation.setup.lowered, simulation.setup.description
        receiver = lowered.receivers.get(name) if lowered else None
        if description.first_time is None or (lowered and receiver is None):
            return None
        return cls(name, *description.time_line, steps, None if receiver is None else int(receiver.shape[0]))

    @property
    def _ends(self) -> tuple[int, int]:
        """Two rows, in the order of the array: the first row that steps fill, and the row after the last row that steps
        fill."""
        last = self.first + self.way * (self.steps - 1)
        return min(self.first, last), max(self.first, last) + 1

    def cut(self, array: NDArray[Any]) -> NDArray[Any]:
        low, end = self._ends
        return array[max(0, low) : end][:: self.way]

    def __str__(self) -> str:
        low, end = self._ends
        return f"{self.name}.data[{low}:{end}]" + ("[::-1]" if self.way == -1 else "")


@dataclass(frozen=True, eq=False)
class _Compared:
    """Computed values, observed values and weights, of the same shape."""

    shape: Shape
    computed: Blocks
    observed: Blocks
    weight: Blocks
    is_field: bool

    @property
    def groups(self) -> list[tuple[int, int]]:
        """Ranges of the first axis. The values of one range are compared after the values of the previous range."""
        return list(plane_groups(self.shape, 8)) if self.is_field else [(0, self.shape[0])]

    def value(self) -> float:
        value = 0.0
        for first, end in self.groups:
            difference = self.computed(first, end) - self.observed(first, end)
            value += float((self.weight(first, end) * difference**2).sum()) / 2
        return value

    def residual(self, first: int, end: int) -> Block:
        """Return the derivative of the misfit's value with respect to a part of the computed values."""
        return self.weight(first, end) * (self.computed(first, end) - self.observed(first, end))


class SumOfMisfits(Summable):
    """The sum of several misfits. A misfit is any function that returns a value and residuals."""

    def __init__(self, terms: tuple[Any, ...]) -> None:
        self.terms = terms

    def __repr__(self) -> str:
        return f"<{' + '.join(map(repr, self.terms))}>"

    def __call__(self, simulation: Simulation) -> tuple[float, dict[str, Any]]:
        value, residuals = 0.0, dict[str, Any]()
        for term in self.terms:
            own, found = evaluate(term, simulation)
            value += own
            for name, one in found.items():
                residuals[name] = one if name not in residuals else _added(simulation, name, residuals[name], one)
        return value, residuals

    def check(self, simulation: Simulation, steps: int) -> None:
        for term in self.terms:
            check(term, simulation, steps)


def _added(simulation: Simulation, name: str, one: Any, other: Any) -> Any:
    """Return the sum of two residuals. The residuals of a field are added plane by plane. Raises InputError if the two
    residuals have different shapes."""
    if name in simulation.traces or name not in {field.name for field in simulation.stencil.fields}:
        left, right = np.asarray(one, np.float64), np.asarray(other, np.float64)
        if left.shape != right.shape:
            raise InputError(
                f"residuals of {shown(name)}: two misfits return the shapes {left.shape} and {right.shape}; give both "
                "the shape (steps, points)"
            )
        return left + right
    cache_bytes = cache_within(simulation.memory_bytes) // 2
    first, second = (make_source(given, simulation.shape, cache_bytes).planes for given in (one, other))
    return lambda z0, z1: np.asarray(first(z0, z1), np.float64) + np.asarray(second(z0, z1), np.float64)


def check(misfit: object, simulation: Simulation, steps: int) -> None:
    """Raise InputError if `misfit` is not a function. Also raise InputError if a misfit of Outcrop does not fit the
    run."""
    if not callable(misfit):
        remedy = "give an oc.Misfit or a function(simulation) -> (value, residuals)"
        raise InputError(f"misfit {shown(misfit)} is not a misfit; {remedy}")
    if isinstance(misfit, (Misfit, SumOfMisfits)):
        misfit.check(simulation, steps)


def evaluate(misfit: MisfitFunction, simulation: Simulation) -> tuple[float, Mapping[str, Any]]:
    """Call `misfit` with the simulation, and return its value and its residuals. Raises InputError if the result of the
    call is not a value with residuals."""
    found: Any = misfit(simulation)
    try:
        value, residuals = found
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(f"misfit {shown(misfit)} must return (value, residuals), not {shown(found)}") from None
    if not isinstance(residuals, Mapping):
        raise InputError(f"misfit {shown(misfit)} must return residuals by name, not {shown(residuals)}")
    if not math.isfinite(number):
        raise InputError(f"misfit {shown(misfit)} returned the value {number}; it must be finite")
    return number, residuals


def gradient(
    simulation: Simulation, steps: int, misfit: MisfitFunction, wrt: str | Sequence[str],
    directory: str | os.PathLike[str] | None, memory: str | int | None, threads: int | None, progress: str, force: bool,
    resume: bool,
) -> tuple[float, dict[str, Any]]:  # fmt: skip
    """Return the value of a misfit and its gradients. `Simulation.gradient` describes the arguments."""
    steps, derived = as_steps(steps), derive(simulation.stencil, simulation.setup.description, wrt)
    if simulation.step > steps:
        raise InputError(f"{simulation.directory} is at step {simulation.step}, past step {steps}; start a new run")
    check(misfit, simulation, steps)
    require_same_fields(simulation.setup.lowered)
    if simulation.step:
        Forward.of(simulation).require_unchanged()
    find_place(simulation, directory, force, resume)
    if threads is not None:
        as_threads(threads)
    budget_bytes = None if memory is None else parse_memory(memory, discover.memory_bytes())
    reader = simulation.reader()
    if reader is not None:
        reader.refresh()  # another object may have freed states of the history in the meantime
    keeps_history = reader is not None and reader.manifest.taps.history is not None
    begins_history = bool(derived.states) and simulation.step < steps and not keeps_history
    # If the run has already computed steps without a history, `run` will later refuse the history "all".
    history = History("all") if begins_history else None
    if begins_history and simulation.step == 0:
        compared = _compared_names(misfit, simulation.setup.description.taps.traces)
        task = task_of(simulation.setup, steps, derived.names, compared)
        history = history_of(choose_here(task, simulation.setup, memory_bytes=budget_bytes))
    else:
        _require_memory(simulation, derived, steps, _compared_names(misfit), budget_bytes)
    if reader is not None and keeps_history and simulation.step < steps:
        require_states(reader, derived)
    if simulation.step < steps:
        simulation.run(steps - simulation.step, progress, history=history)
    value, residuals = evaluate(misfit, simulation)
    run = simulation.adjoint(residuals, derived.names, directory, memory, threads, force, resume)
    if run.remaining_steps:
        run.run(progress)
    if begins_history:
        simulation.history.free()
    return value, run.gradients


def _compared_names(misfit: object, of_users: Iterable[str] = ()) -> set[str]:
    """Return the names that a misfit compares. It is not known what a function of a user compares, so each such
    function adds the names `of_users`."""
    if isinstance(misfit, SumOfMisfits):
        return {name for term in misfit.terms for name in _compared_names(term, of_users)}
    return {misfit.name} if isinstance(misfit, Misfit) else set(of_users)


def _require_memory(
    simulation: Simulation, derived: Derived, steps: int, compared: Set[str], memory_bytes: int | None
) -> None:
    """Raise BudgetError if the memory is too small for the adjoint run. The adjoint run needs memory for the updates of
    a step, for the residuals of the names `compared`, and for the values that it records at sources."""
    description, made = simulation.setup.description, derived.adjoint.stencil
    budget_bytes = description.settings.memory_bytes if memory_bytes is None else memory_bytes
    states = StatesEntry(str(simulation.directory), "0", 1, derived.states) if derived.states else None
    problem = as_problem(made, description.layout, 1, as_boundary(description.boundary), in_place=False, states=states)
    taps = adjoint_acquisition(description.taps, derived, compared, steps)
    require_budget(replace(problem, acquisition=demand_of(taps, description.dtype)), budget_bytes)
