"""This module refuses runs in which waves grow without bound. The error message gives the largest stable time step.

Stability depends on the minimum and the maximum of each static field. The minimum and the maximum are called the
extremes of the field. The extremes of a field are found while the values of the field are written. The minimum of one
field can be unstable together with the maximum of another field, although no cell has both values. If a combination of
extremes is unstable, but growth is not certain, all fields are read once more, and stability is tested cell by cell."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from outcrop.axes import inside
from outcrop.errors import InputError, by_caller
from outcrop.language.library import extremes_of, limit_of, stable_limit, why_unknown
from outcrop.language.library.table import example_state, instability, missing_values
from outcrop.language.stability import State as Uniform
from outcrop.language.stability import corners
from outcrop.language.stencil import Stencil
from outcrop.run.disk.entries import static_fields
from outcrop.run.disk.manifest import Description, Manifest
from outcrop.run.disk.planes import PlaneSource
from outcrop.run.disk.state import State
from outcrop.run.disk.values import FieldView
from outcrop.run.inputs.input_array import plane_groups

Ranges = dict[str, tuple[float, float]]
"""A dictionary with the minimum and the maximum of each field. The key is the name of the field."""

_MAX_COMBINED = 6
"""The maximum number of fields whose extremes are combined. Each field doubles the number of combinations, and the
analysis of a combination can take milliseconds."""


def refuse_unstable(stencil: Stencil, manifest: Description, ranges: Mapping[str, tuple[float, float]]) -> None:
    """Raise InputError before the first step when waves certainly grow, or when a field that is only read has a value
    that is not finite. `ranges` contains the known minimum and maximum of fields that are only read.

    If a stencil has several static fields, growth is certain under two conditions. First, the minimum or the maximum of
    one field is unstable in combination with all extremes of the other fields. Second, all unstable combinations have
    the same largest stable step. The message names the largest step that is stable for all values."""
    if manifest.unstable:
        return
    names = _judged_fields(stencil, manifest)
    for name, seen in ranges.items():
        if limit_of(stencil) and not all(map(math.isfinite, seen)):
            wrong = next(value for value in seen if not math.isfinite(value))
            raise _refusal(f"{name} holds {wrong}, which would spread through the whole grid")
    if len(names) > _MAX_COMBINED or not all(name in ranges for name in names):
        return
    ends = corners({name: ranges[name] for name in names})
    if (text := _judged(stencil, manifest, ends)) is None:
        return
    if len(names) < 2:
        raise _refusal(text)
    certain: list[Uniform] = []
    for name in names:
        for value in ranges[name]:
            with_it = [state for state in ends if state[name] == value]
            texts = [_judged(stencil, manifest, [state]) for state in with_it]
            if all(texts) and _agree([_limit(stencil, manifest, [one]) for one in with_it]):
                certain += with_it
    # The error message names the largest stable step of the certain states. So raise the error only if all combinations
    # of extremes have the same largest stable step. In other cases, `refuse_unstable_run` later tests all cells, and
    # finds the limit for all values.
    if certain and _agree([_limit(stencil, manifest, certain), _limit(stencil, manifest, ends)]):
        raise _refusal(str(_judged(stencil, manifest, certain)))


def _limit(stencil: Stencil, manifest: Description, states: Sequence[Uniform]) -> float | None:
    return stable_limit(stencil, manifest.parameters, states, manifest.whole_shape)


def refuse_unstable_plan(
    stencil: Stencil, parameters: Mapping[str, float], shape: Sequence[int], ranges: Mapping[str, tuple[float, float]]
) -> None:
    """Raise InputError when waves grow in a run that is planned, but not executed. `ranges` contains the known minimum
    and maximum of fields. If the values of a static field are not known, the stability is not judged."""
    names = static_fields(stencil)
    if len(names) <= _MAX_COMBINED and all(name in ranges for name in names):
        states = corners({name: ranges[name] for name in names})
        if text := _text_of(stencil, parameters, states, shape):
            raise _refusal(text)


def _agree(limits: Sequence[float | None]) -> bool:
    """Return True if all limits are so nearly equal that messages show them with the same digits."""
    known = [one for one in limits if one is not None]
    return len(known) == len(limits) and max(known) <= min(known) * (1 + 1e-4)


def refuse_unstable_run(stencil: Stencil, state: State) -> None:
    """Raise InputError when waves grow in a run at step 0. All fields of the run must have values."""
    if not state.manifest.unstable and not state.manifest.step and (text := growing(stencil, state)):
        raise _refusal(text)


def refuse_unstable_change(stencil: Stencil, state: State, parameters: Mapping[str, float], may_read: bool) -> None:
    """Raise InputError when waves grow with the new parameters of a run that exists. If `may_read` is False, the
    function does not read fields. If `may_read` is False and the values of fields are not known, stability is not
    judged."""
    changed, names = state.reader(), _judged_fields(stencil, state.manifest)
    changed.manifest = replace(state.manifest, parameters=dict(parameters))
    is_known = all(name in state.manifest.ranges for name in names) and len(names) < 2
    if not state.manifest.unstable and (may_read or is_known) and (text := growing(stencil, changed)):
        raise InputError(f"params: {text}")


def growing(stencil: Stencil, state: State) -> str | None:
    """Return an error message if waves grow in a run, and None if no wave grows. All fields of the run must have
    values."""
    manifest = state.manifest
    names = _judged_fields(stencil, manifest)
    if len(names) <= _MAX_COMBINED and all(name in manifest.ranges for name in names):
        ends = corners({name: manifest.ranges[name] for name in names})
        text = _judged(stencil, manifest, ends)
        if text is None or len(names) < 2:
            return text
    extremes, views = extremes_of(stencil), {name: FieldView(state, name) for name in names}
    for z0, z1 in plane_groups(manifest.own_shape, np.dtype(manifest.dtype).itemsize):
        extremes.add({name: view[z0:z1] for name, view in views.items()})
    return _judged(stencil, manifest, extremes.states)


def untested(stencil: Stencil, manifest: Manifest) -> str:
    """Return the reason why the stability of a run was not tested, or "" if it was tested. If a user can test the
    stability with values of the fields, the text contains a line of Python for this test."""
    # The values of static fields are known when a run begins. So this test can use any value for static fields.
    state = dict.fromkeys(static_fields(stencil), 1.0)
    why = why_unknown(stencil, manifest.parameters, [state], manifest.whole_shape)
    missing = missing_values(stencil, manifest.parameters, [state]) if why else []
    if not missing:
        return why
    defaults = {one.name: one.default for one in stencil.parameters}
    changed = {name: value for name, value in manifest.parameters.items() if value != defaults.get(name)}
    ends = {name: manifest.ranges[name][0] if name in manifest.ranges else 0.5 for name in state}
    known = {**ends, **dict.fromkeys(missing, 0.5)}
    shape = f", {manifest.whole_shape}" if stencil.positions else ""
    test = "limit_text" if limit_of(stencil) else "stability"
    call = f"print(oc.stencils.{test}(sim.stencil, {changed}, [{example_state(stencil, known)}]{shape}))"
    opened = by_caller('import outcrop as oc; sim = oc.open("DIRECTORY"); ', "")
    where = by_caller("run this line in Python with the directory of the run and with", "run this line with")
    return f"{why}; to test it, {where} values that you expect: {opened}{call}"


def watched(
    name: str, planes: PlaneSource, manifest: Description, ranges: Ranges, done: Callable[[], None]
) -> PlaneSource:
    """Return a function that returns the same planes as `planes`. The returned function also updates `ranges` with the
    minimum and maximum of these planes, without the padding. The returned function calls `done` just before it returns
    the last plane."""
    pads = zip(inside(manifest.padding, 0), manifest.whole_layout.shape, strict=True)
    (z_first, z_end), rows, cells = ((pad, n - pad) for pad, n in pads)

    def see(z0: int, z1: int) -> np.ndarray[Any, Any]:
        block = planes(z0, z1)
        own = block[max(z_first - z0, 0) : max(z_end - z0, 0), slice(*rows), slice(*cells)]
        if z0 == 0:
            ranges.pop(name, None)
        if own.size:
            low, high = ranges.get(name, (np.inf, -np.inf))
            # NumPy's minimum and maximum return NaN if one of the values is NaN, so they are used here. Python's min
            # and max can ignore NaN.
            ranges[name] = (float(np.minimum(low, own.min())), float(np.maximum(high, own.max())))
        if z1 == manifest.layout.shape[0]:
            done()
        return block

    return see


def _judged_fields(stencil: Stencil, manifest: Description) -> list[str]:
    """Return the names of the fields whose values decide whether waves grow. `stencil` only reads these fields, and
    their values come from the user. An adjoint run that repeats steps of its forward run also stores fields that only
    the repeated steps read. The additional fields are not returned."""
    read = set(static_fields(stencil))
    return [entry.name for entry in manifest.given if entry.name in read]


def _refusal(text: str) -> InputError:
    return InputError(f"{text}; to run it anyway, give {by_caller('--unstable', 'unstable=True')}")


def _judged(stencil: Stencil, manifest: Description, states: Sequence[Uniform]) -> str | None:
    return _text_of(stencil, manifest.parameters, states, manifest.whole_shape)


def _text_of(
    stencil: Stencil, parameters: Mapping[str, float], states: Sequence[Uniform], shape: Sequence[int]
) -> str | None:
    whole = tuple(tuple(sorted(state.items())) for state in states)
    return _cached(stencil, tuple(sorted(parameters.items())), whole, tuple(shape))


@lru_cache(maxsize=64)
def _cached(
    stencil: Stencil, parameters: tuple[tuple[str, float], ...], states: tuple[tuple[tuple[str, float], ...], ...],
    shape: tuple[int, ...],
) -> str | None:  # fmt: skip
    with np.errstate(all="ignore"):  # NumPy should not warn about divisions by 0, which occur in a field of zeros
        return instability(stencil, dict(parameters), [dict(state) for state in states], shape)
