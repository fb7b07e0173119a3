"""This module defines `Forward`: the parts of a forward run on disk that the adjoint run needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from outcrop.errors import InputError
from outcrop.language.adjoint import Adjoint
from outcrop.language.boundary import Boundary, as_boundary
from outcrop.language.hoist import hoisted
from outcrop.language.linearised import without_updates
from outcrop.language.program import evaluate
from outcrop.language.sparse import Cells, Weights
from outcrop.language.stencil import Stencil
from outcrop.run.acquisition.definitions import AcquisitionDefinitions, read_definitions
from outcrop.run.disk.entries import StateField, StatesEntry, static_fields
from outcrop.run.disk.manifest import Manifest
from outcrop.run.disk.state import State
from outcrop.run.inputs.input_array import plane_groups

if TYPE_CHECKING:
    from outcrop.run.simulation import Simulation

_RECOMPUTED = "history=oc.History(8, recompute=True)"
_EXACT = f"history=oc.History('all') or {_RECOMPUTED}"
"""A text for error messages. The text names two histories with which all gradients are exact."""


@dataclass(frozen=True)
class Forward:
    """A forward run with committed steps, together with its stencil, sources and receivers."""

    stencil: Stencil
    state: State
    definitions: AcquisitionDefinitions

    @classmethod
    def of(cls, simulation: Simulation) -> Forward:
        """Return the forward run of a simulation. Raises InputError when the simulation has no committed step."""
        state = simulation.reader()
        if state is None or not state.manifest.step:
            raise InputError(f"{simulation.directory} has no step yet, so it has no adjoint; call sim.run(steps) first")
        state.refresh()  # another object may have freed states of the history in the meantime
        return cls(simulation.stencil, state, read_definitions(state.records, state.manifest))

    def require_unchanged(self) -> None:
        """Raise InputError if the steps of the run have used different parameters, or if fields were assigned between
        steps."""
        if changed := self.manifest.parameters_step:
            raise InputError(
                f"{self.state.path} has changed its parameters at step {changed}, so no adjoint run can go back "
                "through all of its steps; compute the steps with one set of parameters in a new run"
            )
        if assigned := self.manifest.assigned_step:
            raise InputError(
                f"{self.state.path}: fields were assigned at step {assigned}, so no adjoint run can go back through "
                "all of its steps; make a new run for new initial values, or use oc.Objective"
            )

    @property
    def manifest(self) -> Manifest:
        return self.state.manifest

    @property
    def steps(self) -> int:
        return self.manifest.step

    @property
    def boundary(self) -> Boundary:
        return as_boundary(self.manifest.boundary)

    @property
    def updated_cells(self) -> tuple[slice, slice, slice]:
        """The range of cells that steps update, along each of the engine's axes."""
        sizes = zip(self.boundary.rims(self.stencil.radii), self.manifest.layout.shape, strict=True)
        z, y, x = (slice(low, n - high) for (low, high), n in sizes)
        return z, y, x

    def inside(self, cells: Cells) -> NDArray[np.bool_]:
        """Return an array of flags. The flag of a cell is True if steps update this cell."""
        low, end = np.array([(one.start, one.stop) for one in self.updated_cells]).T
        found: NDArray[np.bool_] = ((cells >= low) & (cells < end)).all(axis=-1)
        return found

    def can_scale(self, adjoint: Adjoint) -> bool:
        """A scaled adjoint is the product of a factor and the adjoint of a field. Return True if every scaled adjoint
        can be divided by its factor. To divide by a factor, the factor and its inverse must be normal floating-point
        numbers in all cells that steps update. The check reads all static fields once."""
        dtype, (z, y, x) = np.dtype(self.manifest.dtype), self.updated_cells
        tiny = np.finfo(dtype).tiny

        def is_normal(name: str, z0: int, z1: int) -> bool:
            factor = self.factor(adjoint, name, lambda one: self.state.source_of(one)(z0, z1)[:, y, x], dtype.type)
            return bool(((np.abs(factor) >= tiny) & (np.abs(factor) <= 1 / tiny)).all())

        groups = list(plane_groups((z.stop - z.start, *self.manifest.layout.shape[1:]), 8))
        return all(is_normal(name, z.start + z0, z.start + z1) for name in adjoint.scales for z0, z1 in groups)

    def factor(
        self, adjoint: Adjoint, name: str, read: Callable[[str], Any], dtype: type[np.floating[Any]] = np.float64
    ) -> Any:
        """Return the factor by which the adjoint of a field is multiplied to get the scaled adjoint. The function
        `read` returns values of a static field."""
        program, made = adjoint.scales[name], adjoint.stencil
        scalars = [self.manifest.parameters[one.name] for one in made.parameters]
        return evaluate(program, lambda load: read(made.fields[load.field].name), scalars, dtype)[0]

    def factor_at(self, adjoint: Adjoint, name: str, cells: Cells) -> Weights:
        """Return the factors by which the adjoint of the field `name` is scaled at these cells. The factors are 1 if
        the adjoint is not scaled."""
        if name not in adjoint.scales:
            return np.ones(cells.shape[:-1])
        found: Weights = self.factor(adjoint, name, lambda static: self.state.cells_of(static, cells))
        return found


@dataclass(frozen=True)
class Derived:
    """The adjoint of `stencil`, with the gradients with respect to `names`. `inputs` contains the static fields,
    parameters and signals among `names`. If `is_linear` is true, states of the forward run are needed only for the
    gradients with respect to `inputs`. `scaled` contains the numbers of the sources whose scale depends on `inputs`."""

    stencil: Stencil
    names: tuple[str, ...]
    inputs: tuple[str, ...]
    adjoint: Adjoint
    is_linear: bool
    scaled: tuple[int, ...] = ()

    def hoisted(self) -> Derived:
        """Return the adjoint and the forward stencil for passes that recompute states of the forward run. To save work,
        some operations are moved from the adjoint to the forward stencil (language/hoist.py)."""
        stencil, adjoint = hoisted(self.stencil, self.adjoint)
        return replace(self, stencil=stencil, adjoint=adjoint)

    @property
    def reason(self) -> str:
        """The first part of an error message, which says why the adjoint needs states of the forward run."""
        if self.inputs:
            return f"the gradient with respect to {self.inputs[0]}"
        return f"the adjoint of {self.stencil.name}, which is not linear,"

    def needs(self, every: int) -> str:
        """Return the reason why the adjoint needs more than a history with every `every`-th state. Return "" if such a
        history is enough. For `every` = 1, return the reason why the adjoint needs a history."""
        fields = ", ".join(dict.fromkeys(one.field for one in self.states))
        if every == 1:
            return f"{self.reason} needs {fields} after each step"
        if self.is_linear:
            if found := [one for one in self.inputs if one in self.stencil.signals]:
                return f"the gradient with respect to signal {found[0]} needs {fields} after each step"
            if len({one.state for one in self.states}) > 1:
                return f"{self.reason} needs {fields} before and after the same step"
            plain = without_updates(self.adjoint.stencil, tuple(self.adjoint.gradients.values()))
            if plain is None or any(one.name in self.adjoint.history for one in plain.fields):
                return f"{self.reason} needs products of neighbours in each step"
            return ""
        return f"the adjoint of {self.stencil.name}, which is not linear, needs {fields} after each step"

    @property
    def states(self) -> tuple[StateField, ...]:
        """The values of the forward run that the adjoint reads at each step."""
        names = [[self.stencil.fields[one].name for one in stage.targets] for stage in self.stencil.stages]
        fields = []
        for own, version in self.adjoint.history.items():
            is_last = version.updates == sum(version.field in one for one in names)
            fields.append(StateField(own, version.field, *((0, 0) if is_last else (1, version.updates))))
        return tuple(fields)

    @property
    def missing(self) -> str:
        """A text that says why the adjoint needs values that no history contains, such as values in the middle of a
        step. Only passes that recompute states have values that no history contains. If a history contains all values
        that the adjoint needs, the text is ""."""
        for one in self.states:
            if one.later > 0:
                return (
                    f"{self.reason} needs {one.field} in the middle of a step, because several stages update it; a "
                    "history without recompute=True has only the values after each step"
                )
            if one.later < 0:
                return (
                    f"{self.reason} contains {one.field}(t - dt) in each step, and for the first step a history "
                    f"without recompute=True does not have {one.field}(t - dt)"
                )
        return ""


def computes_again(forward: Forward, before: StatesEntry | None = None) -> bool:
    """Return True if passes of the adjoint run recompute states of the forward run. The history of the forward run may
    have been freed. If the history was freed, `before` describes the states that an existing adjoint run on disk has
    read.
    """
    kept = forward.manifest.taps.history
    return kept.recompute if kept else before is not None and before.stencil is not None


def states_of(forward: Forward, derived: Derived, before: StatesEntry | None = None) -> StatesEntry | None:
    """Return the states of the forward run that the adjoint reads, or None if the adjoint reads no states. `before` has
    the same meaning as in `computes_again`. If passes recompute states, `derived` must be the result of
    `Derived.hoisted`."""
    if not derived.states:
        return None
    kept, sums = forward.manifest.taps.history, tuple(derived.adjoint.gradients.values())
    every = kept.every if kept else before.every if before else 1
    place, identity = str(forward.state.path.absolute()), forward.manifest.identity
    states = StatesEntry(place, identity, forward.steps, derived.states, every)
    if computes_again(forward, before):
        cells = sum(one.points * one.corners for one in forward.manifest.taps.sources)
        return replace(states, stencil=derived.stencil.to_json(), source_cells=cells)
    return replace(states, sums=sums if every > 1 else ())


def require_states(state: State, derived: Derived) -> None:
    """Raise InputError if the forward run does not keep the states that the adjoint reads."""
    kept, path = state.manifest.taps.history, state.path
    if not derived.states or (kept is not None and kept.recompute):
        return
    if kept is None:
        exact = _RECOMPUTED if derived.missing else _EXACT
        raise InputError(
            f"{derived.needs(1)}, which {path} does not keep; run it with {exact}. If sim.gradient has computed a "
            "gradient of this run before, it has freed the states: make a new simulation"
        )
    if reason := derived.missing:
        raise InputError(
            f"{reason}; give {_RECOMPUTED} or history='auto' to sim.run(steps, ...) in a new run, or call sim.gradient "
            "in a new run, which chooses"
        )
    if kept.every == 1:
        return
    if reason := derived.needs(kept.every):
        raise InputError(f"{reason}, but {path} keeps every {kept.every} steps; run it with {_EXACT}")


def inputs_of(stencil: Stencil) -> list[str]:
    """Return the names of all static fields, of all parameters, and of all signals that get their values from the
    user."""
    return [*static_fields(stencil), *(one.name for one in stencil.parameters), *stencil.given_signals]
