"""This module defines functions and classes for programs that invert data. `Objective` is a misfit as a function, and
`SourceOperator` is a run as a linear operator. `taylor_test` tests the gradients of a misfit, and `dot_test` tests a
`SourceOperator`.

`Original` is a run at step 0 from which copies are made. A copy is a new run with other values of some inputs:

    initial values, static fields     name of an array      planes are changed while they are copied
    sources                           "source"              one array (steps, points) for each source
    parameters and signals            name                  a number; an array (steps,)

This module makes its runs in temporary folders beside the user's run. Each temporary folder is removed when its runs
are no longer needed.

`SourceOperator` treats a run as a linear function from the values of the run's sources to the run's traces:

    matvec     sources  ──► forward run, from zeros ──► traces
    rmatvec    residuals ──► adjoint run             ──► gradient with respect to the sources

A vector of the operator has the values of all sources, or of all receivers. The order is the order in the options of
the run. In a vector of the operator, the values of one source or receiver are ordered by step. In a vector of the
operator, the values of one step are ordered by point.

The Taylor test checks whether a gradient agrees with the values of its misfit.

J(m + h d) is the misfit of a run whose inputs m were changed by a random direction d, multiplied by h. If g is the
gradient of J at m, the remainder is proportional to the square of h:

    remainder(h) = |J(m + h d) - J(m) - h <g, d>|         remainder(h) / remainder(h / 2)  ──►  2**2

If the gradient g is wrong, the remainder is proportional to h. The rate of the Taylor test is log2(remainder(h) /
remainder(h / 2)). So the rate of the Taylor test is 2 for a correct gradient, and 1 for a wrong gradient.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from outcrop.axes import GridShape, grid_shape, inside
from outcrop.errors import InputError, shown
from outcrop.language.program import Apply, Constant, Load, Scalar
from outcrop.language.sparse import Injection
from outcrop.language.stencil import PREVIOUS, Stencil
from outcrop.run.acquisition.definitions import AcquisitionDefinitions, read_definitions
from outcrop.run.adjoint import SOURCES, adjoint_run, derive, settings_beside
from outcrop.run.definition import Definition, definition_beside
from outcrop.run.device.use import is_block_device
from outcrop.run.disk.entries import updated_fields
from outcrop.run.disk.manifest import Manifest
from outcrop.run.disk.planes import PlaneSource
from outcrop.run.forward import Forward
from outcrop.run.inputs.input_array import plane_groups
from outcrop.run.misfit import MisfitFunction, check, evaluate
from outcrop.run.setup import as_steps, set_up_beside
from outcrop.run.simulation import Simulation, require_simulation
from outcrop.run.user_values import as_number, as_real_array, as_whole_number, decode_signals, encode_signals

Vector: TypeAlias = NDArray[np.float64]
Planes: TypeAlias = NDArray[np.float64]
PlaneChange: TypeAlias = Callable[[int, Planes], Planes]
"""A function that changes planes. The function gets the number z0 of the first plane and the values of the planes, and
returns the new values. The planes have the shape (planes, ny, nx) of the user's grid on the engine's axes, without
padding."""


class Original:
    """A run at step 0. The method `copy` makes copies of the run with other inputs. A copy runs `steps` steps."""

    def __init__(self, simulation: Simulation, steps: int) -> None:
        """If initial values are missing in the directory of the run, write them. Raises InputError if the run has
        already computed steps."""
        require_initial(simulation)
        simulation.fill()
        state = simulation.reader()
        assert state is not None
        self.simulation, self.steps = simulation, steps
        self._forward = Forward(simulation.stencil, state, read_definitions(state.records, state.manifest))

    @property
    def manifest(self) -> Manifest:
        return self._forward.state.manifest

    @property
    def shape(self) -> GridShape:
        """The shape of the user's grid on the engine's axes."""
        return grid_shape(self.manifest.own_shape)

    def refresh(self) -> None:
        """Read the manifest of the run again, because the user may have assigned new initial values. Raises InputError
        if the run has begun."""
        self._forward.state.refresh()
        _require_step_0(self.simulation, self.manifest.step)

    def is_array(self, name: str) -> bool:
        return name in {entry.name for entry in self.manifest.arrays}

    def groups(self) -> Iterator[tuple[int, int]]:
        """Yield ranges of planes of the user's grid, in ascending order."""
        return plane_groups(self.shape, 8)

    def planes(self, name: str, z0: int, z1: int) -> Planes:
        """Return planes of an array at step 0, on the user's grid."""
        pad = self._pads[0]
        return self._inside(self._read(name)(z0 + pad, z1 + pad)).astype(np.float64)

    def values(self, name: str) -> list[NDArray[np.float64]]:
        """Return a list with the values of an input that is not an array. If the input is "source", the list has one
        entry for each source. If the input is a parameter or a signal, the list has one entry."""
        manifest, signals = self.manifest, decode_signals(self.manifest.signals)
        if name == SOURCES:
            found = []
            for one in self._forward.definitions.injections:
                values = np.zeros((self.steps, len(one.cells)))
                count = min(self.steps, one.steps)
                values[:count] = one.values[:count]
                found.append(values)
            return found
        return [signals[name][: self.steps] if name in signals else np.array(manifest.parameters[name])]

    def updated_cells(self) -> tuple[slice, slice, slice]:
        """Return the range of cells of the user's grid that steps update, for each of the engine's axes."""
        axes = zip(self._forward.updated_cells, self._pads, self.shape, strict=True)
        z, y, x = (slice(max(0, one.start - pad), min(n, one.stop - pad)) for one, pad, n in axes)
        return z, y, x

    def copy(
        self, directory: str, arrays: Mapping[str, PlaneChange], values: Mapping[str, Sequence[NDArray[np.float64]]],
        dtype: str | None = None, is_unstable: bool | None = None,
    ) -> Simulation:  # fmt: skip
        """Make a copy of the run. The copy is at step 0. `arrays` maps the name of an array to a function that changes
        its planes. `values` contains new values of other inputs, in the form that the method `values` returns. `dtype`
        and `is_unstable` replace the options `dtype` and `unstable` of the run."""
        self.refresh()
        manifest, forward = self.manifest, self._forward
        definition = self._definition(values, dtype or manifest.dtype)
        factor = np.dtype(definition.dtype).itemsize // np.dtype(manifest.dtype).itemsize
        settings = settings_beside(forward)
        settings = replace(settings, memory_bytes=settings.memory_bytes * factor)
        unstable = manifest.unstable if is_unstable is None else is_unstable
        run = Simulation(set_up_beside(definition, directory, self.steps, settings, unstable))
        # arrays without values, and copies, become copies of the changed fields when the copy of the run begins
        given = manifest.filled.keys() - manifest.computed.keys() - manifest.copied_from.keys()
        names = [entry.name for entry in manifest.arrays if entry.name in {*given, *arrays}]
        run.assign_planes({name: self._changed(name, arrays.get(name), definition.dtype) for name in names})
        return run

    def _definition(self, values: Mapping[str, Sequence[NDArray[np.float64]]], dtype: str) -> Definition:
        """Return the definition of a copy of the run. The copy has other sources, parameters and signals, and no
        history."""
        manifest, forward, own = self.manifest, self._forward, self._forward.definitions
        parameters = {name: float(values[name][0]) if name in values else one
                      for name, one in manifest.parameters.items()}  # fmt: skip
        signals: dict[str, Any] = dict(decode_signals(manifest.signals))
        signals |= {name: values[name][0] for name in signals if name in values}
        given = values.get(SOURCES, [one.values for one in own.injections])
        scaled = [_with_parameters(one, parameters) for one in own.injections]
        injections = [self._injection(one, new) for one, new in zip(scaled, given, strict=True)]
        snapshots = tuple(one for one in own.snapshots if not one.is_history)
        acquisition = AcquisitionDefinitions(tuple(injections), own.samplings, snapshots, own.norms)
        definition = definition_beside(manifest, forward.stencil, acquisition)
        texts = encode_signals(forward.stencil, signals)
        return replace(definition, dtype=dtype, parameters=parameters, signals=texts)

    def _injection(self, one: Injection, values: NDArray[np.float64]) -> Injection:
        """Return a source with other values. Steps change no value in the rim, so the weights of a source become 0
        there."""
        return replace(one, values=values, weights=np.where(self._forward.inside(one.cells), one.weights, 0.0))

    @property
    def _pads(self) -> tuple[int, int, int]:
        return inside(self.manifest.padding, 0)

    def _read(self, name: str) -> PlaneSource:
        """Return a function that reads planes of an array at step 0, including the padding. For a field without values,
        the function returns zeros. For an array of previous or older values that has no values yet, the function
        returns the values of the array's field."""
        manifest = self.manifest
        if name not in manifest.filled:
            name, _ = self._forward.stencil.older_values.get(name, (name.removesuffix(PREVIOUS), 0))
        if name in manifest.filled:
            return self._forward.state.source_of(name)
        return lambda z0, z1: np.zeros((z1 - z0, *manifest.layout.shape[1:]), manifest.dtype)

    def _inside(self, planes: NDArray[Any]) -> NDArray[Any]:
        """Return a view of `planes` without the padding along y and x."""
        (_, ny, nx), (_, pad_y, pad_x) = self.shape, self._pads
        return planes[:, pad_y : pad_y + ny, pad_x : pad_x + nx]

    def _changed(self, name: str, change: PlaneChange | None, dtype: str) -> PlaneSource:
        """Return a function that reads planes of an array. The returned function applies `change` to the cells of the
        user's grid in the planes that it reads."""
        read, pad, nz = self._read(name), self._pads[0], self.shape[0]

        def give(z0: int, z1: int) -> NDArray[Any]:
            block = read(z0, z1).astype(dtype)
            first, end = max(z0, pad), min(z1, nz + pad)
            if change is not None and first < end:
                own = self._inside(block[first - z0 : end - z0])
                own[...] = change(first - pad, own.astype(np.float64))
            return block

        return give


def _with_parameters(source: Injection, parameters: Mapping[str, Any]) -> Injection:
    """Return a copy of `source` in whose scale the parameters have the given values."""
    if (scale := source.scale) is None or not scale.names:
        return source
    pairs = zip(scale.names, scale.scalars, strict=True)
    scalars = tuple(float(parameters.get(name, value)) for name, value in pairs)
    return replace(source, scale=replace(scale, scalars=scalars))


def require_initial(simulation: Simulation) -> None:
    """Raise InputError if `simulation` is not a simulation at step 0."""
    require_simulation(simulation)
    _require_step_0(simulation, simulation.step)


def _require_step_0(simulation: Simulation, step: int) -> None:
    if step:
        raise InputError(
            f"{simulation.directory} is at step {step} and has no initial values any more; give a run that has not "
            "begun"
        )


@contextmanager
def temporary_folder(simulation: Simulation, purpose: str) -> Iterator[str]:
    """Make a folder in the directory that contains the run. When the `with` block ends, remove the folder and its
    contents."""
    directory = simulation.directory
    place = None if is_block_device(directory) else directory.parent
    with tempfile.TemporaryDirectory(prefix=f"{directory.stem}-{purpose}-", dir=place) as folder:
        yield folder


class Objective:
    """The misfit of a run as a function of some inputs of the run. If `fun` is an `Objective`, `fun(x)` returns (value,
    gradient):

        fun = oc.Objective(sim, steps, misfit, wrt="u")
        scipy.optimize.minimize(fun, fun.start, jac=True, method="L-BFGS-B")

    The vector x contains the values of all inputs in `wrt`, one after the other, in float64. The vector x is in memory,
    and optimisers keep several such vectors. So the class `Objective` is for small grids. `fun.start` is the vector of
    the inputs of `sim`. `sim` must be at step 0 and stays at step 0. Each evaluation runs a copy of `sim` forward and
    backward. The copy of `sim` is in a temporary folder beside the directory of `sim`. After the evaluation, the
    temporary folder is removed. The gradient is 0 for cells in the rim, so optimisers do not change the values of these
    cells.

    `wrt` contains the names that `Simulation.adjoint` accepts. Raises InputError for wrong arguments, and the errors of
    `Simulation.gradient`.
    """

    def __init__(self, simulation: Simulation, steps: int, misfit: MisfitFunction, wrt: str | Sequence[str]) -> None:
        require_initial(simulation)
        self._steps = as_steps(steps)
        self._names = derive(simulation.stencil, simulation.setup.description, wrt).names
        check(misfit, simulation, self._steps)
        self._original, self._misfit = Original(simulation, self._steps), misfit
        self._shapes = {name: [one.shape for one in self._values(name)] for name in self._names}

    def __repr__(self) -> str:
        return f"<objective of {', '.join(self._names)} over {self._steps} steps>"

    @property
    def start(self) -> Vector:
        """The vector with the current values of the inputs of the run."""
        self._original.refresh()
        return _flat(one for name in self._names for one in self._values(name))

    def unpack(self, x: Any) -> dict[str, Any]:
        """Divide the vector x into the values of each input. The keys of the returned dictionary are the names of the
        inputs. The value of a key is an array. For "source", the value is a list of arrays. Raises InputError if x is
        not a vector of finite numbers of the right length."""
        found: dict[str, Any] = {}
        for name, parts in self._split(x).items():
            if self._original.is_array(name):
                found[name] = parts[0].reshape(self._original.simulation.shape)
            else:
                found[name] = parts if name == SOURCES else parts[0]
        return found

    def __call__(self, x: Any) -> tuple[float, Vector]:
        """Return the value of the misfit and its gradient at x. Raises InputError as `unpack` does."""
        inputs, original = self._split(x), self._original
        arrays = {name: _replaced(parts[0]) for name, parts in inputs.items() if original.is_array(name)}
        values = {name: parts for name, parts in inputs.items() if name not in arrays}
        with temporary_folder(original.simulation, "objective") as folder:
            run = original.copy(f"{folder}/forward.oc", arrays, values)
            value, gradients = run.gradient(
                self._steps, self._misfit, self._names, f"{folder}/adjoint.oc", progress="none"
            )
            parts = (gradients[name] for name in self._names)
            return value, _flat(each for one in parts for each in (one if isinstance(one, list) else [one]))

    def _split(self, x: Any) -> dict[str, list[NDArray[np.float64]]]:
        """Divide a vector into the values of each input. The values of an input have the form that `_values`
        returns."""
        shapes = [shape for several in self._shapes.values() for shape in several]
        size, given = sum(map(math.prod, shapes)), as_real_array(x, "x")
        if given is None or given.shape != (size,) or not np.isfinite(given).all():
            raise InputError(f"the objective takes a vector of {size} finite numbers, not {shown(x)}")
        parts = split_vector(given.astype(np.float64), shapes)
        return {name: [next(parts) for _ in several] for name, several in self._shapes.items()}

    def _values(self, name: str) -> list[NDArray[np.float64]]:
        original = self._original
        if not original.is_array(name):
            return original.values(name)
        return [np.concatenate([original.planes(name, z0, z1) for z0, z1 in original.groups()])]


def _replaced(whole: NDArray[np.float64]) -> PlaneChange:
    def change(z0: int, planes: Planes) -> Planes:
        return whole[z0 : z0 + len(planes)]

    return change


def _flat(parts: Iterator[Any]) -> Vector:
    return np.concatenate([np.asarray(one, np.float64).reshape(-1) for one in parts])


def split_vector(vector: Vector, shapes: Iterable[tuple[int, ...]]) -> Iterator[NDArray[np.float64]]:
    """Divide a vector into arrays of the given shapes, one after the other."""
    begin = 0
    for shape in shapes:
        end = begin + math.prod(shape)
        yield vector[begin:end].reshape(shape)
        begin = end


# --- the operator and the dot test -----------------------------------------------------------------------------------


class SourceOperator:
    """A linear operator that takes the values of all sources of a run, and returns the traces of all receivers of the
    run.

    `shape` is (number of values of all traces, number of values of all sources). `matvec` and `rmatvec` take and return
    vectors in float64. For SciPy's solvers, pass a `SourceOperator` to `scipy.sparse.linalg.aslinearoperator`. The
    operator uses the static fields and the parameters of the run. Raises InputError when the run has no step, no source
    or no receivers. Also raises InputError for receivers of a static field, and for stencils that are not linear in the
    updated fields.
    """

    dtype = np.dtype(np.float64)

    def __init__(self, simulation: Simulation) -> None:
        require_simulation(simulation)
        self._simulation, self._forward = simulation, Forward.of(simulation)
        definitions = self._forward.definitions
        if not definitions.injections or not definitions.samplings:
            raise InputError(f"{simulation.directory} needs sources and receivers for an operator between them")
        stencil, manifest = self._forward.stencil, self._forward.manifest
        if not derive(stencil, manifest, SOURCES).is_linear or not _is_linear(stencil, manifest.parameters):
            raise InputError(
                f"{stencil.name} is not linear in its updated fields, so traces are not a linear function of sources; "
                "to test a gradient, use oc.taylor_test"
            )
        updated = updated_fields(stencil)
        if static := [one for one in definitions.samplings if one.field not in updated]:
            raise InputError(
                f"receivers {static[0].name!r} record {static[0].field}, which no step changes, so no source changes "
                "their traces; make a run without these receivers"
            )
        self._sources = [(self._forward.steps, len(one.cells)) for one in definitions.injections]
        points = {one.name: len(one.cells) for one in definitions.samplings}
        self._traces = {name: (self._forward.steps, count) for name, count in points.items()}
        self.shape = sum(map(math.prod, self._traces.values())), sum(map(math.prod, self._sources))

    def matvec(self, values: Any) -> NDArray[np.float64]:
        """Run forward with `values` as the values of the sources, and return the traces. All fields begin with 0."""
        forward, parts = self._forward, _split(values, self._sources)
        injections = [
            replace(one, values=part, weights=np.where(forward.inside(one.cells), one.weights, 0.0))
            for one, part in zip(forward.definitions.injections, parts, strict=True)
        ]
        acquisition = AcquisitionDefinitions(tuple(injections), forward.definitions.samplings)
        definition = definition_beside(forward.manifest, forward.stencil, acquisition)
        with temporary_folder(self._simulation, "operator") as folder:
            place, settings = f"{folder}/forward.oc", settings_beside(forward)
            run = Simulation(set_up_beside(definition, place, forward.steps, settings))
            run.assign_planes({one.name: forward.state.source_of(one.name) for one in forward.manifest.given})
            run.run(forward.steps, progress="none")
            return np.concatenate([run.traces[name].reshape(-1) for name in self._traces])

    def rmatvec(self, values: Any) -> NDArray[np.float64]:
        """Run the adjoint with the given residuals of the traces. Return the gradient with respect to the values of the
        sources."""
        parts = _split(values, list(self._traces.values()))
        with temporary_folder(self._simulation, "operator") as folder:
            residuals = dict(zip(self._traces, parts, strict=True))
            run = adjoint_run(self._simulation, residuals, SOURCES, f"{folder}/adjoint.oc", forward=self._forward)
            run.run(progress="none")
            return np.concatenate([one.reshape(-1) for one in run.gradients[SOURCES]])


def dot_test(simulation: Simulation, seed: int = 0) -> float:
    """Compare the scalar products <F q, d> and <q, F* d> for random vectors q and d. F is the `SourceOperator` of the
    run, and F* is the adjoint of F.

    Return the absolute difference of the scalar products, divided by the product of the norms of F q and d. If the
    adjoint is correct, the result is about 1e-15 in float64, and about 1e-7 in float32. Raises the errors of
    `SourceOperator`.
    """
    operator, rng = SourceOperator(simulation), np.random.default_rng(as_whole_number(seed, "seed", minimum=0))
    sources, residuals = rng.standard_normal(operator.shape[1]), rng.standard_normal(operator.shape[0])
    traces = operator.matvec(sources)
    difference = traces @ residuals - sources @ operator.rmatvec(residuals)
    scale = float(np.linalg.norm(traces) * np.linalg.norm(residuals))
    if not scale:
        raise InputError("the dot test has no result: no value of the sources reaches a receiver in these steps")
    return float(abs(difference)) / scale


def _is_linear(stencil: Stencil, parameters: Mapping[str, float]) -> bool:
    """Return True if each update is a sum of updated fields, each multiplied by a factor that depends on no updated
    field. The operations decide, and not values, because an operation can have an effect only in a few cells or steps.
    """
    updated = {target for stage in stencil.stages for target in stage.targets}
    values = [parameters[one.name] for one in stencil.parameters]
    for stage in stencil.stages:
        # Each pair has two flags. The first flag is True if the value depends on no updated field. The second flag is
        # True if the value is linear in the updated fields. Both flags of the value 0 are True.
        kinds: list[tuple[bool, bool]] = []
        for operation in stage.program.operations:
            match operation:
                case Load(field):
                    kinds.append((field not in updated, field in updated))
                case Constant(value):
                    kinds.append((True, value == 0))
                case Scalar(index):
                    kinds.append((True, index < len(values) and values[index] == 0))
                case Apply(operator, operands):
                    free, linear = zip(*(kinds[one] for one in operands), strict=True)
                    match operator:
                        case "add" | "sub" | "neg":
                            is_linear = all(linear)
                        case "mul":
                            is_linear = (linear[0] and free[1]) or (free[0] and linear[1])
                        case "div":
                            is_linear = linear[0] and free[1]
                        case "where" | "where_equal":
                            is_linear = all(free[:2]) and all(linear[2:])
                        case _:
                            is_linear = False
                    kinds.append((all(free), is_linear))
                case _:
                    kinds.append((True, False))
        if not all(kinds[place][1] for place in stage.program.results):
            return False
    return True


def _split(values: Any, shapes: Sequence[tuple[int, int]]) -> list[NDArray[np.float64]]:
    given = as_real_array(values, "the vector")
    if given is None or not np.isfinite(given).all():
        raise InputError(f"the operator takes a vector of finite real numbers, not {shown(values)}")
    vector = given.astype(np.float64).reshape(-1)
    if len(vector) != (size := sum(map(math.prod, shapes))):
        raise InputError(f"the operator takes a vector of {size} values; given: {len(vector)}")
    return list(split_vector(vector, shapes))


# --- the Taylor test -------------------------------------------------------------------------------------------------


HALVINGS = 4

ROUNDING = 64 * float(np.finfo(np.float64).eps)
"""If a remainder is smaller than ROUNDING times the misfit, it is possibly only a rounding error."""


def taylor_test(
    simulation: Simulation, steps: int, misfit: MisfitFunction, wrt: str | Sequence[str], seed: int = 0,
    change: float = 0.01,
) -> dict[str, NDArray[np.float64]]:  # fmt: skip
    """Check whether the gradients of a misfit agree with the values of the misfit. The result has four rates for each
    name in `wrt`. If a gradient is correct, the rates converge to 2, and the last rates are 2.0 +- 0.05. If a gradient
    is wrong, the rates are near 1.

    The inputs are changed in a random direction. The first change is `change` times the root mean square of the values
    of the inputs. If all values of the inputs are 0, the first change is `change`. Each of the later changes is half of
    the previous change. The inputs in `wrt` are changed one at a time, and only in cells that steps update. For a
    misfit that is not quadratic in the inputs, a large `change` moves the rates away from 2.

    `simulation` must be at step 0 and stays at step 0. The test runs copies of `simulation` in temporary folders beside
    the directory of the run. The first name in `wrt` needs seven forward runs and one adjoint run. Each further name
    needs five forward runs. The gradient is computed in the dtype of the run. The values of the misfit are computed in
    float64, because differences of misfits in float32 are mostly rounding errors. Runs in float64 need up to twice the
    memory of runs in float32. Raises the errors of `Simulation.gradient`, and InputError if the remainders are rounding
    errors."""
    require_initial(simulation)
    steps, names = as_steps(steps), derive(simulation.stencil, simulation.setup.description, wrt).names
    seed, change = as_whole_number(seed, "seed", minimum=0), as_number(change, "change")
    if change <= 0:
        raise InputError(f"change {change} must be positive")
    check(misfit, simulation, steps)
    original = Original(simulation, steps)
    with temporary_folder(simulation, "taylor") as folder:
        run = original.copy(f"{folder}/forward.oc", {}, {}, is_unstable=True)
        _, gradients = run.gradient(steps, misfit, names, f"{folder}/adjoint.oc", progress="none")
        directions = {name: _Direction(original, name, [seed, number]) for number, name in enumerate(names)}
        slopes = {name: one.times(gradients[name]) for name, one in directions.items()}
    value = _value(original, misfit, None, 0.0)
    found = {}
    for name, direction in directions.items():
        sizes = [change / 2**number for number in range(HALVINGS + 1)]
        values = [_value(original, misfit, direction, size) for size in sizes]
        remainders = np.array([abs(one - value - h * slopes[name]) for one, h in zip(values, sizes, strict=True)])
        if remainders.min() <= ROUNDING * max(map(abs, [value, *values])):
            raise InputError(
                f"the Taylor test of {name} has no result: a change of {sizes[-1]:g} leaves only rounding errors; give "
                f"a change greater than {change:g}, or a misfit that depends on {name} and is not linear"
            )
        found[name] = np.log2(remainders[:-1] / remainders[1:])
    return found


class _Direction:
    """A random direction in which an input is changed. The root mean square of the direction is about the root mean
    square of the input's values. Each plane of an array has its own random numbers, so that the plane can be computed
    again."""

    def __init__(self, original: Original, name: str, seed: Sequence[int]) -> None:
        self.name, self._original, self._seed = name, original, list(seed)
        self.is_array = original.is_array(name)
        if self.is_array:
            squares = sum(float((original.planes(name, z0, z1) ** 2).sum()) for z0, z1 in original.groups())
            self._scale = float(np.sqrt(squares / np.prod(original.shape))) or 1.0
            return
        given, rng = original.values(name), np.random.default_rng(self._seed)
        squares, count = sum(float((one**2).sum()) for one in given), sum(one.size for one in given)
        self._scale = float(np.sqrt(squares / count)) or 1.0
        random = [rng.standard_normal(one.shape) if one.ndim else rng.choice([-1.0, 1.0]) for one in given]
        self._values = [np.asarray(one * self._scale) for one in random]

    def changes(self, size: float) -> tuple[dict[str, PlaneChange], dict[str, Sequence[NDArray[np.float64]]]]:
        """Return the changes that make the inputs of a copy of the run. In the copy, `size` times the random direction
        is added to the input. The changes have the form that `Original.copy` accepts."""
        if not self.is_array:
            pairs = zip(self._original.values(self.name), self._values, strict=True)
            return {}, {self.name: [one + size * direction for one, direction in pairs]}

        def change(z0: int, planes: Planes) -> Planes:
            return planes + size * self._planes(z0, z0 + len(planes))

        return {self.name: change}, {}

    def times(self, gradient: Any) -> float:
        if not self.is_array:
            several = gradient if isinstance(gradient, list) else [gradient]
            pairs = zip(several, self._values, strict=True)
            return sum(float((np.asarray(one, np.float64) * direction).sum()) for one, direction in pairs)
        found, shape = 0.0, self._original.shape
        for z0, z1 in self._original.groups():
            # a grid with one axis has only one plane
            part = gradient[z0:z1] if gradient.shape[0] == shape[0] else gradient[...]
            found += float((part.reshape(-1, *shape[1:]).astype(np.float64) * self._planes(z0, z1)).sum())
        return found

    def _planes(self, z0: int, z1: int) -> Planes:
        _, ny, nx = shape = self._original.shape
        planes = np.zeros((z1 - z0, ny, nx))
        z_cells, *inner = self._original.updated_cells()
        for z in range(max(z0, z_cells.start), min(z1, z_cells.stop)):
            plane = np.random.default_rng([*self._seed, z]).standard_normal(shape[1:])
            planes[z - z0][tuple(inner)] = self._scale * plane[tuple(inner)]
        return planes


def _value(original: Original, misfit: MisfitFunction, direction: _Direction | None, size: float) -> float:
    """Return the misfit of a copy of the run. The copy computes in float64. Its input is the input of the run plus
    `size` times `direction`."""
    arrays, values = direction.changes(size) if direction else ({}, {})
    with temporary_folder(original.simulation, "taylor") as folder:
        run = original.copy(f"{folder}/forward.oc", arrays, values, "float64", is_unstable=True)
        run.run(original.steps, progress="none")
        return evaluate(misfit, run)[0]
