"""This module measures Devito in memory with Devito's best settings: OpenMP, advanced optimisations, and the block
sizes that its aggressive tuner finds.

    python -m outcrop.bench.devito REQUEST          # REQUEST is a Request as JSON

The module, run as a command, prints an Answer as JSON. The measured seconds come from the summary that Devito prints
for its loops. The first `apply` compiles the operator. The first `apply` also tunes the block sizes if the request has
no block sizes. Only the time of the second `apply` is measured. If the request has a `planes_file`, the updated field
gets its initial values again before the second `apply`. The command runs in a separate process, so that the system
releases all memory of Devito when the process ends.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from outcrop.bench import rates
from outcrop.bench.memory import run_limited
from outcrop.errors import StorageError

TUNING_STEPS = 30
"""The maximum number of steps for tuning."""
OPTIONS = ("advanced", {"openmp": True})
_NAMES = re.compile(r"(heat|acoustic|elastic|maxwell)(\d*)(_sponge)?")


@dataclass(frozen=True)
class Request:
    """A request to measure the library's stencil `name` in Devito. `shape` is the shape of the cells that are updated.
    If `blocks` is None, Devito tunes its block sizes. If `planes_file` is not None, three planes of the result are
    written to this file in the format .npy: the first plane, the middle plane and the last plane. Only requests for the
    heat equation and for acoustic waves can have a `planes_file`."""

    name: str
    shape: tuple[int, ...]
    steps: int
    blocks: dict[str, int] | None = None
    planes_file: str | None = None


@dataclass(frozen=True)
class Answer:
    """The result of a measurement: the time of all steps, the block sizes, and a text with Devito's version, options
    and compiler."""

    seconds: float
    blocks: dict[str, int]
    version: str


def has_equivalent(name: str) -> bool:
    """Return True if Devito is installed and this module has the equations of the stencil."""
    return _NAMES.fullmatch(name) is not None and importlib.util.find_spec("devito") is not None


def measure(request: Request, threads: int | None = None) -> Answer:
    """Let Devito compute the steps of the request in a separate process with `threads` threads. If `threads` is None,
    the environment variable OMP_NUM_THREADS sets the number of threads.

    Raises StorageError if the process fails. The message is the last line that the process printed.
    """
    try:
        variables = {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
        output = run_limited(["-m", "outcrop.bench.devito", json.dumps(asdict(request))], None, variables=variables)
    except StorageError as error:
        raise StorageError(f"Devito failed on {request.name}: {error}") from None
    return Answer(**json.loads(output.text))


def seconds(name: str, shape: Sequence[int], steps: int, threads: int) -> float:
    """Return the time in seconds that Devito needs for `steps` steps of the library's stencil `name`, with `threads`
    threads. Raises StorageError if the process fails."""
    return measure(Request(name, tuple(shape), steps), threads).seconds


def compared_planes(planes: int) -> list[int]:
    """Return the numbers of the planes that `planes_file` contains. `planes` is the number of planes of the grid."""
    return [0, planes // 2, planes - 1]


def equations(name: str, shape: tuple[int, ...]) -> tuple[list[Any], dict[str, float]]:
    """Return Devito's equations for a stencil of the library on a grid of `shape`, and the arguments of `apply`. All
    Devito functions in the equations already have values."""
    match = _NAMES.fullmatch(name)
    assert match is not None, "call has_equivalent first"
    family, order = match[1], int(match[2] or 2)
    make = {"heat": _heat, "acoustic": _acoustic, "elastic": _elastic, "maxwell": _maxwell}[family]
    return make(shape, order, bool(match[3]))


def _grid(shape: tuple[int, ...], spacing: float) -> Any:
    import devito as dv

    return dv.Grid(shape=shape, extent=tuple(spacing * (n - 1) for n in shape), dtype=np.float32)


def _filled(function: Any, radius: int, mean: float) -> Any:
    """Fill `function` with the waves of `rates.smooth`. Also fill `radius` cells of its halo on each side. Return
    `function`.

    The filled cells of the halo are the rim of the grid. No step changes the rim.
    """
    shape = tuple(n + 2 * radius for n in function.grid.shape)
    waves = rates.smooth(shape, mean)
    inner = tuple(slice(low - radius, low + n - radius) for (low, _), n in zip(function.halo[-3:], shape, strict=True))
    buffers = np.asarray(function.data_with_halo).reshape(-1, *function.data_with_halo.shape[-3:])
    for z in range(shape[0]):
        plane = waves(z, z + 1)[0]
        for buffer in buffers:
            buffer[inner][z] = plane
    return function


def _static(name: str, grid: Any, order: int, mean: float) -> Any:
    import devito as dv

    return _filled(dv.Function(name=name, grid=grid, space_order=order), order // 2, mean)


def _heat(shape: tuple[int, ...], order: int, _: bool) -> tuple[list[Any], dict[str, float]]:
    import devito as dv

    grid = _grid(shape, 1.0)
    u = _filled(dv.TimeFunction(name="u", grid=grid, space_order=order, time_order=1), order // 2, 1.0)
    kappa = dv.Constant(name="kappa", value=1.0, dtype=grid.dtype)
    return [dv.Eq(u.forward, u + grid.stepping_dim.spacing * kappa * u.laplace)], {"dt": 0.05}


def _acoustic(shape: tuple[int, ...], order: int, has_sponge: bool) -> tuple[list[Any], dict[str, float]]:
    import devito as dv

    grid = _grid(shape, 10.0)
    u = _filled(dv.TimeFunction(name="u", grid=grid, space_order=order, time_order=2), order // 2, 0.0)
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
        _filled(component, order // 2, 0.0)
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
        _filled(component, order // 2, 0.0)
    eps = _static("eps", grid, order, 2.0)
    front = grid.stepping_dim.spacing * dv.Constant(name="c", value=299792458.0, dtype=grid.dtype)
    return [
        dv.Eq(h.forward, h - front * dv.curl(e)),
        dv.Eq(e.forward, e + front / eps * dv.curl(h.forward)),
    ], {"dt": 1e-11}


def tuned(state: Mapping[str, Any]) -> dict[str, int]:
    """Return the block sizes that Devito's tuner chose in its last run. If the tuner chose no sizes, return an empty
    dictionary. `state` is the private dictionary `_state` of Devito's operator."""
    found = [one["tuned"] for one in state.get("autotuning", ()) if one.get("tuned")]
    return {str(name): int(size) for name, size in found[-1].items()} if found else {}


def main() -> None:
    import devito as dv

    given = json.loads(sys.argv[1])
    request = Request(**{**given, "shape": tuple(given["shape"])})
    dv.configuration["log-level"] = "ERROR"
    dv.configuration["language"] = "openmp"
    written, arguments = equations(request.name, request.shape)
    operator = dv.Operator(written, opt=OPTIONS)
    # the equations of acoustic stencils also read the values before step 0
    first = 1 if request.name.startswith("acoustic") else 0
    tuning = min(TUNING_STEPS, request.steps) if request.blocks is None else 1
    how = {"autotune": "aggressive"} if request.blocks is None else {"autotune": "off", **request.blocks}
    operator.apply(time_m=first, time_M=first + tuning - 1, **arguments, **how)
    blocks = tuned(operator._state) if request.blocks is None else request.blocks
    last = first + request.steps - 1
    if request.planes_file is not None:  # the first `apply` has changed the field, so set its initial values again
        _filled(written[0].lhs.function, written[0].lhs.function.space_order // 2, 0.0 if first else 1.0)
    done = operator.apply(time_m=first, time_M=last, autotune="off", **arguments, **blocks)
    if request.planes_file is not None:
        u = written[0].lhs.function
        np.save(request.planes_file, u.data[(last + 1) % u.data.shape[0], compared_planes(request.shape[0])])
    compiler = dv.configuration["compiler"]
    flags = " ".join(flag for flag in compiler.cflags if not flag.startswith("-W"))
    version = f"{dv.__version__}, compiler {compiler.version} {flags}, opt={OPTIONS}"
    print(json.dumps(asdict(Answer(sum(section.time for section in done.values()), blocks, version))))


if __name__ == "__main__":
    main()
