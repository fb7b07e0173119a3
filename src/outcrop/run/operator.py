"""This module defines `SourceOperator` and the dot test. The operator treats a run as a linear function from the values
of the run's sources to the run's traces.

    matvec     sources  ──► forward run, from zeros ──► traces
    rmatvec    residuals ──► adjoint run             ──► gradient with respect to the sources

A vector has the values of all sources, or of all receivers, in the order of the options. The values of one source or
receiver are ordered by step. The values of one step are ordered by point. The forward run and the adjoint run are
created in a temporary folder in the same directory as the user's run, and are removed afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcrop.errors import InputError, shown
from outcrop.run.acquisition.definitions import AcquisitionDefinitions
from outcrop.run.adjoint import SOURCES, adjoint_run, settings_beside
from outcrop.run.definition import definition_beside
from outcrop.run.forward import Forward
from outcrop.run.objective import split_vector, temporary_folder
from outcrop.run.setup import set_up_beside
from outcrop.run.simulation import Simulation, require_simulation
from outcrop.run.user_values import as_real_array


class SourceOperator:
    """The linear operator from the values of all sources of a run to the traces of all its receivers.

    `shape` is (number of values of all traces, number of values of all sources). `matvec` and `rmatvec` take and return
    vectors in float64. For SciPy's solvers, pass this object to `scipy.sparse.linalg.aslinearoperator`. The operator
    uses the static fields and the parameters of the run. Raises InputError when the run has no step, no source or no
    receivers, and for stencils that are not linear.
    """

    dtype = np.dtype(np.float64)

    def __init__(self, simulation: Simulation) -> None:
        require_simulation(simulation)
        self._simulation, self._forward = simulation, Forward.of(simulation)
        definitions = self._forward.definitions
        if not definitions.injections or not definitions.samplings:
            raise InputError(f"{simulation.directory} needs sources and receivers for an operator between them")
        self._sources = [(self._forward.steps, len(one.cells)) for one in definitions.injections]
        points = {one.name: len(one.cells) for one in definitions.samplings}
        self._traces = {name: (self._forward.steps, count) for name, count in points.items()}
        self.shape = sum(map(math.prod, self._traces.values())), sum(map(math.prod, self._sources))

    def matvec(self, values: Any) -> NDArray[np.float64]:
        """Run forward with these values of the sources, and return the traces. All fields begin with 0."""
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
            run.assign_planes({one.name: forward.state.source_of(one.name) for one in forward.manifest.static})
            run.run(forward.steps, progress="none")
            return np.concatenate([run.traces[name].reshape(-1) for name in self._traces])

    def rmatvec(self, values: Any) -> NDArray[np.float64]:
        """Run the adjoint with these residuals of the traces. Return the gradient with respect to the values of the
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

    Return the difference of the scalar products, divided by the product of the norms of F q and d. If the adjoint is
    correct, the result is about 1e-15 in float64 and 1e-7 in float32. Raises the errors of `SourceOperator`.
    """
    operator, rng = SourceOperator(simulation), np.random.default_rng(seed)
    sources, residuals = rng.standard_normal(operator.shape[1]), rng.standard_normal(operator.shape[0])
    traces = operator.matvec(sources)
    difference = traces @ residuals - sources @ operator.rmatvec(residuals)
    scale = float(np.linalg.norm(traces) * np.linalg.norm(residuals))
    if not scale:
        raise InputError("the dot test has no result: no value of the sources reaches a receiver in these steps")
    return float(abs(difference)) / scale


def _split(values: Any, shapes: Sequence[tuple[int, int]]) -> list[NDArray[np.float64]]:
    given = as_real_array(values)
    if given is None or not np.isfinite(given).all():
        raise InputError(f"the operator takes a vector of finite real numbers, not {shown(values)}")
    vector = given.astype(np.float64).reshape(-1)
    if len(vector) != (size := sum(map(math.prod, shapes))):
        raise InputError(f"the operator takes a vector of {size} values; given: {len(vector)}")
    return list(split_vector(vector, shapes))
