"""`Lead`: the steps of a forward run that the passes of its adjoint run compute again (plan/recompute.py).

The adjoint run keeps the stencil of the forward run in its manifest, so its plan does not need the forward run. The
parameters, the signals and the sources are read from the forward run when the passes run.
"""

from __future__ import annotations

from collections.abc import Sequence

from outcrop.errors import InputError
from outcrop.language.boundary import Boundary
from outcrop.language.compile import compile_kernel
from outcrop.language.stencil import Stencil
from outcrop.plan.problem import Problem
from outcrop.plan.recompute import ForwardCall
from outcrop.run.acquisition.pass_acquisition import LeadInjected, lead_injected
from outcrop.run.acquisition.recorder import Recorder
from outcrop.run.disk.entries import StatesEntry
from outcrop.run.disk.state import State
from outcrop.run.scalars import Scalars
from outcrop.run.user_values import decode_signals
from outcrop.units import counted


class Lead:
    """The inputs of the forward run for the passes of an adjoint run. `state` is the committed state of the forward
    run. Raises the errors of reading its sources."""

    def __init__(self, state: State, states: StatesEntry, stencil: Stencil, io: str) -> None:
        manifest = state.manifest
        self._stencil, self._last_step = stencil, states.steps
        self._scalars = Scalars(stencil, manifest.parameters, decode_signals(manifest.signals), manifest.dtype)
        self._recorder = Recorder(state, [one.name for one in stencil.fields], io)

    @property
    def scalars_bytes(self) -> int:
        """The number of bytes of scalars for each step, or 0 if all steps have the same scalars."""
        return self._scalars.bytes_per_step

    def of_pass(self, problem: Problem, first_step: int) -> tuple[bytes, tuple[LeadInjected, ...]]:
        """Return the scalars and the sources of the steps that a pass computes again. The pass begins with step
        `first_step` of the adjoint run."""
        steps = -(-problem.lead // problem.lead_stages)
        first = self._last_step - first_step - problem.listed_steps
        found = []
        for one in self._recorder.injections(first, steps):
            name = self._stencil.fields[one.field].name
            stages = [place for place, stage in enumerate(self._stencil.stages) if one.field in stage.targets]
            fields = [_written(problem, name, step * problem.lead_stages + stages[-1]) for step in range(steps)]
            found.append(lead_injected(one, problem, steps, stages[-1], fields))
        return self._scalars.of_steps(first, steps), tuple(found)


def _written(problem: Problem, name: str, level: int) -> int:
    """Return the number of the field in which a level of the lead writes the field `name` of the forward run. The last
    step of the lead may end before this level. In this case no level needs the number, and it is 0."""
    targets = problem.updates[level].targets if level < problem.lead else ()
    return next((number for number in targets if problem.fields[number].history == name), 0)


def parts_of(states: StatesEntry, first_step: int, steps: int) -> list[int]:
    """Divide `steps` steps of an adjoint run, beginning with step `first_step`, into parts. Each pass must end at a
    state of the history. So the first part ends at the newest state that is still ahead, and the second part has all
    other steps. Raises InputError if the last step is not at a state of the history."""
    first, every = (states.steps - first_step) % states.every, states.every
    if steps < first or (steps - first) % every:
        nearest = first + max(0, steps - first) // every * every or every
        raise InputError(
            f"steps {steps}: the states between two states of the history are computed again together, so the adjoint "
            f"run can stop at a state only; give {counted(nearest, 'step')}"
        )
    return [one for one in (first, steps - first) if one]


def forward_calls(stencil: Stencil, problem: Problem) -> Sequence[ForwardCall]:
    """Compile a forward stencil. Return the kernel calls of one of its steps."""
    kernel = compile_kernel(stencil, problem.dtype, boundary=Boundary(*problem.sides))  # type: ignore[arg-type]
    pairs = zip(kernel.calls, stencil.stages, strict=False)
    return [ForwardCall(address, stage.operands, stage.targets) for (address, _, _), stage in pairs]
