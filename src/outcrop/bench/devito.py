"""This module measures Devito in memory with Devito's best settings: OpenMP, advanced optimisations, and the block
sizes that its aggressive tuner finds.

    python -m outcrop.bench.devito NAME STEPS N0 N1 N2

This command prints the time of STEPS steps, in seconds, as JSON. The seconds come from Devito's summary of its loops.
The first `apply` compiles and tunes the operator. The second `apply` uses the tuned blocks, and only its time is
measured. The program is a separate process, so that all its memory is free when it ends.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from outcrop.bench.memory import run_limited
from outcrop.errors import StorageError

TUNING_STEPS = 30
"""The maximum number of steps for tuning."""
_NAMES = re.compile(r"(heat|acoustic|elastic|maxwell)(\d*)(_sponge)?")


def has_equivalent(name: str) -> bool:
    """Return True if Devito is installed and this module has the equations of the stencil."""
    return _NAMES.fullmatch(name) is not None and importlib.util.find_spec("devito") is not None


def seconds(name: str, shape: Sequence[int], steps: int, threads: int) -> float:
    """Let Devito run `steps` steps of the library's stencil `name` in a separate process. Return the time in seconds.

    Raises StorageError with the last line that the process printed if the process fails.
    """
    os.environ["OMP_NUM_THREADS"] = str(threads)
    try:
        output = run_limited(["-m", "outcrop.bench.devito", name, str(steps), *map(str, shape)], None)
    except StorageError as error:
        raise StorageError(f"Devito failed on {name}: {error}") from None
    return float(json.loads(output.text)["seconds"])


def equations(name: str, shape: tuple[int, ...]) -> tuple[list[Any], dict[str, float]]:
    """Return Devito's equations for a stencil of the library on a grid of `shape`, and the arguments of `apply`. All
    functions in the equations already have values."""
    match = _NAMES.fullmatch(name)
    assert match is not None, "call has_equivalent first"
    family, order = match[1], int(match[2] or 2)
    make = {"heat": _heat, "acoustic": _acoustic, "elastic": _elastic, "maxwell": _maxwell}[family]
    return make(shape, order, bool(match[3]))


def _grid(shape: tuple[int, ...], spacing: float) -> Any:
    import devito as dv
    import numpy as np

    return dv.Grid(shape=shape, extent=tuple(spacing * (n - 1) for n in shape), dtype=np.float32)


def _filled(function: Any, value: float) -> Any:
    """Fill `function` with `value`, or with waves if `value` is 0. Return `function`."""
    import numpy as np

    if value:
        function.data[:] = value
        return function
    z, y, x = np.ogrid[tuple(slice(0, n) for n in function.grid.shape)]
    waves = np.sin(0.02 * z + 0.5), np.sin(0.04 * y + 0.5), np.sin(0.06 * x + 0.5)
    plane = (waves[1] * waves[2]).astype("float32")
    for buffer in range(function.data.shape[0]):
        for place, wave in enumerate(waves[0].astype("float32").ravel()):
            function.data[buffer, place] = np.float32(0.01) * wave * plane[0]
    return function


def _static(name: str, grid: Any, order: int, value: float) -> Any:
    import devito as dv

    return _filled(dv.Function(name=name, grid=grid, space_order=order), value)


def _heat(shape: tuple[int, ...], order: int, _: bool) -> tuple[list[Any], dict[str, float]]:
    import devito as dv

    grid = _grid(shape, 1.0)
    u = _filled(dv.TimeFunction(name="u", grid=grid, space_order=order, time_order=1), 1.0)
    kappa = dv.Constant(name="kappa", value=1.0, dtype=grid.dtype)
    return [dv.Eq(u.forward, u + grid.stepping_dim.spacing * kappa * u.laplace)], {"dt": 0.05}


def _acoustic(shape: tuple[int, ...], order: int, has_sponge: bool) -> tuple[list[Any], dict[str, float]]:
    import devito as dv

    grid = _grid(shape, 10.0)
    u = _filled(dv.TimeFunction(name="u", grid=grid, space_order=order, time_order=2), 0.0)
    v, dt = _static("v", grid, order, 2000.0), grid.stepping_dim.spacing
    force = dt**2 * v**2 * u.laplace
    if has_sponge:
        damp = _static("damp", grid, order, 10.0)
        update = u.backward + (2 * (u - u.backward) + force) / (1 + dt / 2 * damp)
    else:
        update = 2 * u - u.backward + force
    return [dv.Eq(u.forward, update)], {"dt": 0.001}


def _elastic(shape: tuple[int, ...], order: int, _: bool) -> tuple[list[Any], dict[str, float]]:
    import devito as dv

    grid = _grid(shape, 10.0)
    v = dv.VectorTimeFunction(name="v", grid=grid, space_order=order, time_order=1)
    tau = dv.TensorTimeFunction(name="tau", grid=grid, space_order=order, time_order=1)
    b, lam, mu = (_static(name, grid, order, value) for name, value in (("b", 5e-4), ("lam", 5e9), ("mu", 5e9)))
    for component in {*v, *tau}:
        _filled(component, 0.0)
    dt = grid.stepping_dim.spacing
    gradient = dv.grad(v.forward)
    strain = gradient + gradient.transpose(inner=False)
    return [
        dv.Eq(v.forward, v + dt * b * dv.div(tau)),
        dv.Eq(tau.forward, tau + dt * (lam * dv.diag(dv.div(v.forward)) + mu * strain)),
    ], {"dt": 0.001}


def _maxwell(shape: tuple[int, ...], order: int, _: bool) -> tuple[list[Any], dict[str, float]]:
    import devito as dv

    grid = _grid(shape, 0.01)
    x, y, z = grid.dimensions
    e = dv.VectorTimeFunction(name="E", grid=grid, space_order=order, time_order=1)
    sides = ((y, z), (x, z), (x, y))
    h = dv.VectorTimeFunction(name="H", grid=grid, space_order=order, time_order=1, staggered=sides)
    for component in (*e, *h):
        _filled(component, 0.0)
    eps = _static("eps", grid, order, 2.0)
    front = grid.stepping_dim.spacing * dv.Constant(name="c", value=299792458.0, dtype=grid.dtype)
    return [
        dv.Eq(h.forward, h - front * dv.curl(e)),
        dv.Eq(e.forward, e + front / eps * dv.curl(h.forward)),
    ], {"dt": 1e-11}


def tuned(state: Mapping[str, Any]) -> dict[str, int]:
    """Return the block sizes that Devito's tuner chose last. Return an empty dictionary if the tuner chose no sizes.
    `state` is the private dictionary `_state` of Devito's operator."""
    found = [one["tuned"] for one in state.get("autotuning", ()) if one.get("tuned")]
    return {str(name): int(size) for name, size in found[-1].items()} if found else {}


def main() -> None:
    import devito as dv

    name, steps, *numbers = sys.argv[1:]
    dv.configuration["log-level"] = "ERROR"
    dv.configuration["language"] = "openmp"
    written, given = equations(name, tuple(map(int, numbers)))
    operator = dv.Operator(written, opt=("advanced", {"openmp": True}))
    # the equations of acoustic stencils also read the values before step 0
    first = 1 if name.startswith("acoustic") else 0
    last = first + min(TUNING_STEPS, int(steps)) - 1
    operator.apply(time_m=first, time_M=last, autotune="aggressive", **given)
    blocks = tuned(operator._state)
    done = operator.apply(time_m=first, time_M=first + int(steps) - 1, autotune="off", **given, **blocks)
    print(json.dumps({"seconds": sum(section.time for section in done.values()), "blocks": blocks}))


if __name__ == "__main__":
    main()
