"""Cases that call public functions, classes and methods of Python with wrong arguments.

The names of parameters come from the signatures, so new parameters are tested automatically. CALLS has correct
arguments for each callable. A case replaces one to three of these arguments.
"""

from __future__ import annotations

import inspect
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import outcrop as oc
import outcrop.aggregate as agg

from . import values
from .case import Case
from .world import SHAPE, SMALL, World


class Odd:
    """An object of a type that Outcrop does not know. Its methods raise errors or return wrong values."""

    def __len__(self) -> int:
        return -1

    def __iter__(self) -> Any:
        raise RuntimeError("iterated")

    def __float__(self) -> float:
        raise RuntimeError("made a number")


def junk(rng: random.Random, world: World) -> Any:
    """Return an object of a random type."""
    kind = rng.randrange(10)
    if kind < 3:
        return values.number(rng)
    if kind < 5:
        return values.text(rng)
    if kind < 6:
        return Path(values.path(rng, world.root))
    if kind < 7:
        return values.path(rng, world.root)
    return rng.choice(JUNK)()


JUNK: list[Callable[[], Any]] = [
    *(lambda: None, lambda: True, lambda: False, list, dict, tuple, set, object, lambda: b"bytes", lambda: 1 + 2j, Odd),
    *(lambda: [[[]]], lambda: [None], lambda: [2**60] * 3, lambda: (0, 0, 0), lambda: (-1, 5, 4), lambda: (6.0, 5.0,
    4.0)),
    *(lambda: ("6", "5", "4"), lambda: (6, 5), lambda: (6, 5, 4, 3), lambda: (2**32, 2**32), lambda: (2**31, 1, 1)),
    *(lambda: np.zeros(SHAPE), lambda: np.zeros((0, 5, 4)), lambda: np.full(SHAPE, np.nan), lambda: np.zeros(SHAPE,
    "complex64")),
    *(lambda: np.array(["a", "b"]), lambda: np.array([object()], dtype=object), lambda: np.float64(np.nan),
    lambda: np.int64(-1)),
    *(lambda: np.array(3), lambda: np.datetime64("2020-01-01"), lambda: np.zeros(SHAPE, "datetime64[s]"),
    lambda: np.ma.masked),
    *(lambda: np.broadcast_to(np.float32(0), (2**20, 2**20, 2**20)), lambda: np.zeros(SHAPE)[::-1, :, ::2],
    lambda: int),
    *(lambda: {"u": 1}, lambda: {"c0": 10**400}, lambda: {"c0": float("nan")}, lambda: {1: 2},
    lambda: {"x": "periodic"}),
    *(lambda: {"": ""}, lambda: lambda *arguments: None, lambda: print, lambda: range(2**60), lambda: slice(None),
    lambda: ...),
    *(lambda: iter(()), lambda: (n for n in [1, 2]), lambda: "u" * 10**6, lambda: bytearray(8),
    lambda: memoryview(b"x")),
    *(lambda: oc.Field("u"), lambda: oc.Parameter("c0", 1.0), lambda: oc.Signal("s"), lambda: oc.stencils.heat(ndim=2)),
    *(lambda: oc.Snapshots(2), lambda: oc.Norms(1), lambda: [oc.Source("u", (1, 1, 1), [1.0])], lambda: recursive()),
]  # fmt: skip


def recursive() -> list[Any]:
    """Return a list that contains itself."""
    made: list[Any] = []
    made.append(made)
    return made


Arguments = dict[str, Any]

INDEXING = (KeyError, IndexError, ValueError)
"""Exceptions of Python and NumPy for an impossible index of a mapping, sequence or array."""

SETTING = (*INDEXING, TypeError, OverflowError, RuntimeError)
"""Exceptions of NumPy for a value that is not a number, and an exception of the class `Odd`."""


def base_simulation(world: World) -> Arguments:
    return {"stencil": "heat7", "shape": SHAPE, "directory": "../new.oc", **SMALL}


def points() -> Any:
    return [(2.0, 2.0, 1.5)]


def made_simulation(world: World, **options: Any) -> oc.Simulation:
    return oc.Simulation(**{**base_simulation(world), **options})


def with_acquisition(acquisition: str, made: Callable[..., Any], world: World, **arguments: Any) -> None:
    """Make a simulation with this acquisition, and run it for a few steps."""
    one = made(**arguments)
    sim = made_simulation(world, **{acquisition: one if acquisition in ("snapshots", "norms") else [one]})
    sim["u"] = np.zeros(SHAPE)
    sim.run(2, progress="none")


def method(owner: Callable[[World], Any], name: str) -> Callable[[World], Callable[..., Any]]:
    return lambda world: getattr(owner(world), name)


def some_array(world: World) -> Any:
    return oc.array(SHAPE, "float32", tier="dram")


def run_of(world: World) -> Any:
    return oc.open(world.case / "run.oc")


def declared() -> Any:
    return agg.declare(None, [agg.contiguous(0, 4096)])


def run_shortly(**arguments: Any) -> None:
    """Make a simulation from the arguments. If the arguments are accepted, run the simulation for a few steps."""
    sim = oc.Simulation(**arguments)
    if int(np.prod([float(n) for n in sim.shape])) < 10_000:
        for field in sim.stencil.fields:
            sim[field.name] = "zeros"
        sim.run(2, progress="none")


def sweep(**arguments: Any) -> None:
    """Compute two steps."""
    with oc.Sweep(**arguments) as one:
        one.step()
        one.step()
        one.newest("psi")


def planes(**arguments: Any) -> None:
    """Resample values, and read the whole result."""
    source = oc.resample(**arguments)
    if len(source.shape) == 3 and max(source.shape) < 1000:
        run = made_simulation(World(Path("..").absolute()), shape=tuple(source.shape))
        run["u"] = source


def written(**arguments: Any) -> None:
    """Write one step of aggregation."""
    with declared() as plan, agg.create(**{**arguments, "plan": plan}) as file:
        file.write([np.zeros(4096, "u1")])


# The callables by name. A tuple has three parts: the function to call, the function whose signature names the
# parameters, and correct arguments.
CALLS: dict[str, tuple[Callable[[World], Callable[..., Any]], Any, Callable[[World], Arguments]]] = {
    "Simulation": (lambda w: run_shortly, oc.Simulation, base_simulation),
    "Simulation.run": (method(run_of, "run"), oc.Simulation.run, lambda w: {"steps": 2, "progress": "none"}),
    "Simulation.plan": (method(run_of, "plan"), oc.Simulation.plan, lambda w: {"steps": 2}),
    "Simulation.prepare": (method(run_of, "prepare"), oc.Simulation.prepare, lambda w: {"steps": 2}),
    "Simulation.assign": (method(made_simulation, "assign"), oc.Simulation.assign, lambda w: {"values": {"u": 0.5}}),
    "Simulation[...] =": (
        method(made_simulation, "__setitem__"), oc.Simulation.__setitem__, lambda w: {"name": "u", "values": 0.5}
    ),
    "Simulation[...]": (method(run_of, "__getitem__"), oc.Simulation.__getitem__, lambda w: {"name": "u"}),
    "sim['u'][...]": (lambda w: run_of(w)["u"].__getitem__, None, lambda w: {"index": 0}),
    "sim.snapshots[...]": (lambda w: run_of(w).snapshots.__getitem__, None, lambda w: {"name": "u"}),
    "sim.traces[...]": (lambda w: run_of(w).traces.__getitem__, None, lambda w: {"name": "line"}),
    "sim.norms[...]": (lambda w: run_of(w).norms.__getitem__, None, lambda w: {"name": "u"}),
    "open": (lambda w: oc.open, oc.open, lambda w: {"path": "../run.oc"}),
    "array": (lambda w: lambda **a: oc.array(**a).close(), oc.array, lambda w: {"shape": SHAPE, "path": "../new.oc"}),
    "ArraySpec": (lambda w: oc.ArraySpec, oc.ArraySpec, lambda w: {"shape": SHAPE}),
    "open_array": (lambda w: lambda **a: oc.open_array(**a).close(), oc.open_array, lambda w: {"path": "../run.oc"}),
    "Array[...] =": (lambda w: some_array(w).__setitem__, None, lambda w: {"index": 0, "value": 1}),
    "place": (lambda w: oc.place, oc.place, lambda w: {"arrays": {"a": oc.ArraySpec(SHAPE)}}),
    "resample": (lambda w: planes, oc.resample, lambda w: {"values": np.zeros(SHAPE), "shape": (7, 6, 5)}),
    "extrude": (lambda w: oc.extrude, oc.extrude, lambda w: {"section": np.zeros((6, 4)), "axis": "y", "count": 5}),
    "Source": (lambda w: lambda **a: with_acquisition("sources", oc.Source, w, **a), oc.Source,
               lambda w: {"field": "u", "points": points(), "values": [1.0, 2.0]}),
    "Receivers": (lambda w: lambda **a: with_acquisition("receivers", oc.Receivers, w, **a), oc.Receivers,
                  lambda w: {"name": "line", "field": "u", "points": points()}),
    "Snapshots": (lambda w: lambda **a: with_acquisition("snapshots", oc.Snapshots, w, **a), oc.Snapshots,
    lambda w: {"every": 1}),
    "Norms": (lambda w: lambda **a: with_acquisition("norms", oc.Norms, w, **a), oc.Norms, lambda w: {"every": 1}),
    "Boundary": (lambda w: lambda **a: made_simulation(w, boundary=oc.Boundary(**a)), oc.Boundary, lambda w: {}),
    "Field": (lambda w: oc.Field, oc.Field, lambda w: {"name": "u"}),
    "Parameter": (lambda w: oc.Parameter, oc.Parameter, lambda w: {"name": "c0", "default": 1.0}),
    "Signal": (lambda w: oc.Signal, oc.Signal, lambda w: {"name": "s"}),
    "Field[...]": (lambda w: oc.Field("u").__getitem__, None, lambda w: {"index": (0, 0, 1)}),
    "Stencil": (lambda w: oc.Stencil, oc.Stencil, lambda w: {"name": "mean", "updates": mean()}),
    "Sweep": (lambda w: sweep, oc.Sweep, lambda w: {"stencil": oc.stencils.stream_function(),
    "arrays": stream_arrays()}),
    "stencils.heat": (lambda w: oc.stencils.heat, oc.stencils.heat, lambda w: {}),
    "stencils.acoustic": (lambda w: oc.stencils.acoustic, oc.stencils.acoustic, lambda w: {}),
    "stencils.elastic": (lambda w: oc.stencils.elastic, oc.stencils.elastic, lambda w: {}),
    "stencils.maxwell": (lambda w: oc.stencils.maxwell, oc.stencils.maxwell, lambda w: {}),
    "stencils.gray_scott": (lambda w: oc.stencils.gray_scott, oc.stencils.gray_scott, lambda w: {}),
    "stencils.advection": (lambda w: oc.stencils.advection, oc.stencils.advection, lambda w: {}),
    "aggregate.contiguous": (lambda w: agg.contiguous, agg.contiguous, lambda w: {"offset": 0, "nbytes": 8}),
    "aggregate.strided": (lambda w: agg.strided, agg.strided,
                          lambda w: {"offset": 0, "count": 4, "block_bytes": 8, "stride_bytes": 16}),
    "aggregate.subarray": (lambda w: agg.subarray, agg.subarray,
                           lambda w: {"shape": SHAPE, "subshape": (2, 2, 2), "starts": (0, 0, 0), "dtype": "f8"}),
    "aggregate.declare": (lambda w: lambda **a: agg.declare(**a).close(), agg.declare,
                          lambda w: {"communicator": None, "extents": [agg.contiguous(0, 4096)]}),
    "aggregate.create": (lambda w: written, agg.create, lambda w: {"path": "../new.oc"}),
    "aggregate.merge": (lambda w: agg.merge, agg.merge, lambda w: {"index": "../no.index", "target": "../new.oc"}),
}  # fmt: skip


def mean() -> Any:
    u = oc.Field("u")
    return {u: (u[0, 0, 1] + u[0, 0, -1]) / 2}


def stream_arrays() -> Any:
    return {"psi": (np.zeros((10, 16)), np.zeros((10, 16)))}


BOOLEANS = ("in_place", "force", "raw_device", "unstable", "before", "initial", "durable", "writable", "node_files",
    "reads_only",
            "equal_spacing", "sponge")  # fmt: skip
PATHS = ("directory", "path", "records", "stage", "machine", "topology", "target", "index")
WORDS = {
    "progress": ["auto", "lines", "None", ""], "memory": ["101%", "0%", "-1", "nan%", -1, 0, 2**70, 1.5, 10**400, True],
    "threads": [0, -1, 2**31, 2**63, 1.5, True, "2"], "steps": [0, -1, 2**31 - 1, 2**31, 2**63, 10**400, 1.5, True,
    "2"],
    "shape": [10**20, (10**20,) * 3, [6, 5, 4], "654", (6, 5, True), (10**9, 10, 16), (2**31, 4, 4)],
    "spacing": [-10.0, 0, float("nan"), 1e-320, 1e308, (1, 2), "10", 10**400], "new_spacing": [-1.0, 0, 1e-300,
    10**400],
    "origin": [float("nan"), 1e308, (1,), 10**400, "0"], "dt": [0, -1.0, float("nan"), 10**400], "units": ["m" * 10**5,
    "\0", "a\nb"],
    "every": [0, -1, 10**30, 2**31, 2**63, 1.5, True], "fields": ["u", "", ["no"], ["u", "u"], [1]],
    "box": [(slice(0, 0),) * 3, (slice(-5, 99),) * 3, (slice(0, 6, 2),) * 3, [slice(None)] * 2, [slice("a")] * 3],
    "points": [[(2**60, 0, 0)], [(-1, 0, 0)], [], [[]], [(np.nan, 1, 1)], [(1, 1)], (2, 2, 1), [(1e308, 0, 0)],
    np.zeros((10**6, 3))],
    "params": [{"c0": 10**400}, {"c0": "1"}, {"no": 1}, {"c0": float("nan")}, {"c0": True}, {"c0": [1]}],
    "arrays": [{}, {"psi": np.zeros((10, 16))}, {"psi": (np.zeros((10, 16)),) * 3}, {"no": np.zeros((10, 16))}, "same"],
    "name": ["", "a/b", "..", "x" * 300, "\0", "u\nv", "time", "x", "1", "__class__", "é", "u.previous", " "],
    "index": [(0, 0, 0, 0), 2**63, -(2**63), 10**400, slice(0, 2**70), slice(None, None, 0), slice(None, None, -1), (),
    ..., "u"],
    "cache_bytes": [0, -1, 2**80], "count": [0, -1, 10**20, 2**31], "order": [0, 1, 3, -2, 18, 10**30, 2.0],
    "ndim": [0, 4, -1, 2.0],
    "axes": ["", "zz", "abc", "zyxw", "XYZ"], "axis": ["", "w", "zy"], "dtype": ["float16", "int32", "O", "", "<f4",
    ">f8", "f4,f8", "S"],
    "persist": ["never", "end", "step", 0, -1, 2**70, True, "always"], "access": ["", "write"], "tier": ["", "no",
    "dram"],
    "stage": ["auto", ""], "stage_bytes": [-1, 0, "1PB", 10**30], "seconds_most": [-1.0, float("nan"), 10**400],
    "sizes": [{"bt": 0}, {"bt": 2**31}, {"bt": "2"}, {"no": 1}, {"bt": True}, {1: 1}, {"slab": 10**30}],
    "values": ["zeros", "random:-1", "fifo", "/dev/zero", "raw:/dev/zero:<f4:6,5,4", "socket", "u", {"u": "fifo"},
    {"no": 0}, {"u": 10**400}],
    "boundary": ["", "x=", "mirror:fixed", {"x": "no"}, {"w": "fixed"}, {"x": ("fixed",) * 3}, {"x": 1}],
    "machine": ["/dev/zero", "fifo", "loop"], "tiers": [[], [None], "dram"], "capacities": [{"dram": -1}, {"no": 1},
    {"dram": "x"}],
}  # fmt: skip
"""Values that are almost always wrong for parameters with these names."""


def make(rng: random.Random, world: World) -> Case:
    """Return a case: a call with one to three replaced arguments."""
    world.reset("waves", odd_things=True)
    name = rng.choice([*sorted(CALLS), *["Simulation"] * 8, *["array"] * 2, *["aggregate.declare"] * 2])
    target, signature_of, base = CALLS[name]
    right = base(world)
    parameters = [one for one in right]
    if signature_of is not None:
        parameters = [one for one in inspect.signature(signature_of).parameters if one != "self"]
    replaced = {}
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        parameter = rng.choice(parameters)
        replaced[parameter] = nonsense(rng, parameter, world)
    arguments = {**right, **replaced}
    must_fail = why_wrong(arguments, set(replaced))
    if isinstance(arguments.get("arrays"), str) and arguments["arrays"] == "same":
        one = np.zeros((10, 16))
        arguments["arrays"], must_fail = {"psi": (one, one)}, "one array for both turns" if name == "Sweep" else ""
    positional = signature_of is None or name.endswith(("=", "]"))
    text = ", ".join(f"{key}={shown(value)}" for key, value in replaced.items())

    def call() -> Any:
        function = target(world)
        return function(*arguments.values()) if positional else function(**arguments)

    runs = ["case/new.oc", "case/run.oc", "case/run2.oc"]
    for key in PATHS:
        if key in replaced:
            runs += writable(replaced[key], world)
    return Case(f"{name}({text})", call=call, may_change=tuple(runs), must_fail=must_fail,
    refusals=SETTING if name == "Array[...] =" else INDEXING if "[" in name else ())


def nonsense(rng: random.Random, parameter: str, world: World) -> Any:
    """Return a wrong value for this parameter."""
    if parameter in WORDS and rng.random() < 0.6:
        return rng.choice(WORDS[parameter])
    if parameter in PATHS and rng.random() < 0.8:
        place = rng.choice([values.path(rng, world.root), values.text(rng), os.fsencode(values.path(rng, world.root))])
        return Path(place) if isinstance(place, str) and rng.random() < 0.3 else place
    if parameter in BOOLEANS and rng.random() < 0.5:
        return rng.choice(["no", "False", 0, 1, 2, None, [], np.True_])
    return junk(rng, world)


def why_wrong(arguments: Arguments, replaced: set[str]) -> str:
    """Return the reason why the call must be refused, or "". The function recognises only simple reasons."""
    for key in replaced:
        value = arguments[key]
        if key in BOOLEANS and isinstance(value, str):
            return f"{key}={value!r}"
        if key == "spacing" and isinstance(value, (int, float)) and not isinstance(value, bool) and not value > 0:
            return f"{key}={shown(value)}"
        if key in PATHS and isinstance(value, (str, Path)) and "\0" in str(value):
            return "NUL in a path"
        if key == "directory" and isinstance(value, str) and not value:
            return "directory=''"
    return ""


def writable(place: Any, world: World) -> list[str]:
    """Return the paths that a call with the argument `place` may make. These paths have no content yet."""
    from .options import inside, is_free

    if isinstance(place, bytes):
        place = os.fsdecode(place)
    if not isinstance(place, (str, Path)) or "\0" in str(place):
        return []
    found = []
    path = inside(str(place), world)
    while path and path not in ("case", "case/here") and is_free(world.root / path):
        found += [path, f"{path}.index", f"{path}.tmp"]
        path = os.path.dirname(path)
    return found


def shown(value: Any) -> str:
    """Return a short text for the value."""
    try:
        text = ascii(value)
    except Exception as error:
        text = f"<{type(value).__name__}: {type(error).__name__}>"
    return " ".join(text.split()) if len(text) < 80 else f"{' '.join(text.split())[:60]}... ({type(value).__name__})"
