"""`RunOptions`: all options of a run. Each option is declared only in this module.

    keywords of Simulation ──┐
    command line             ├──► RunOptions ──► Setup (checked, setup.py) ──► plan, manifest, run
    TOML file                │
    manifest of a run ───────┘

The annotation of an option contains everything that other modules need for the command line, for TOML files
(options_file.py) and for the reference page. This module does not import NumPy or SymPy, so that `outcrop --help`
starts quickly.

`Source`, `Receivers`, `Snapshots` and `Norms` are types for the values of four options:

    source = oc.Source("u", points=[20.0, 500.0, 500.0], values=wavelet)
    line = oc.Receivers("line", "u", points=[[20.0, 500.0, x] for x in places])
    oc.Simulation(..., sources=[source], receivers=[line], snapshots=oc.Snapshots(every=50), norms=oc.Norms(every=10))

A point has a coordinate for each axis in the order of the shape: (z, y, x), (y, x) or (x,). The simulation's `spacing`
and `origin` define the coordinates of cells. Without `spacing` and `origin`, the unit is one cell, and cell 0 is at 0.
Values between cells are interpolated linearly. `acquisition/definitions.py` checks the values of these four options,
because the checks need the grid.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, wraps
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec, TypeAlias, TypeVar, cast, get_type_hints

from outcrop.errors import WrongTypeError

OnSnapshot: TypeAlias = Callable[[int, Mapping[str, Any]], object]
"""A function (step, fields). `fields` maps names to snapshots, which are read from their files when they are
indexed."""

GROUPS = {
    "problem": "What is computed",
    "resources": "What the run may use",
    "sizes": "How the run is planned",
    "output": "Where the result goes",
}
"""The groups of options. Each group is a table in a TOML file and a section of the reference page."""


@dataclass(frozen=True, eq=False)
class Source:
    """In each step, adds values to `field` directly after the last update of this field.

    `values` has the shape (steps,) for one point, or (steps, points). In steps after its last value, the source adds
    nothing. The value of a point is distributed over the cells around the point, with the weights of linear
    interpolation.

    `scale` multiplies the values. `scale` is a number, an expression such as dt**2 * v[0, 0, 0] ** 2, or a text such as
    "dt**2 * v**2". An expression can use the stencil's parameters and, at offset 0, fields that are only read. The
    expression is evaluated at each cell to which the source adds values.
    """

    field: str
    points: Any
    values: Any
    scale: Any = None


@dataclass(frozen=True, eq=False)
class Receivers:
    """Records `field` at `points` at the end of each step. If `before` is true, the field is recorded at the beginning
    of each step, and not at its end. The result is `sim.traces[name]`."""

    name: str
    field: str
    points: Any
    before: bool = False


@dataclass(frozen=True)
class Snapshots:
    """Keeps the values of `fields` after the steps 0, `every`, 2 * `every`, ... The results are `sim.snapshots[field]`
    and the Zarr group snapshots.zarr.

    Without `fields`, all updated fields are kept. Step 0 means the initial values, which the first pass stores. If
    `initial` is False, the initial values are not kept. `box` is a slice, in cells, for each axis. Without `box`, the
    whole grid is kept. `time_units` are the units of the coordinate `time`, such as "s". Snapshots have the coordinate
    `time` only if the stencil has a parameter dt.

    With `coarsen`, snapshots contain the means of groups of cells, and not the values of single cells. The value 4 of
    `coarsen` means groups of 4 cells along each axis. The value (1, 4, 4) means groups of 4 x 4 cells of one plane. The
    last group along an axis has fewer cells if the box does not consist of whole groups.

    A run may have a list of several `Snapshots`, each with a different `name`. For example, the results of `Snapshots`
    with the name "side" are `sim.snapshots["side/u"]` and the group snapshots.zarr/side.
    """

    every: int
    fields: Sequence[str] = ()
    box: Sequence[slice] | None = None
    time_units: str = ""
    initial: bool = True
    name: str = ""
    coarsen: int | Sequence[int] = 1


@dataclass(frozen=True)
class History:
    """Keeps the states of a run, for programs that go back through the steps: `sim.run(steps,
    history=oc.History("all"))`.

    A state has all fields that a step updates. If `every` is "all", the initial values and the state after each step
    are kept. If `every` is a number k, the states of the steps 0, k, 2 * k, ... are kept. `limit` is the maximum size
    of the history, such as "500GiB". The run checks the limit before its first step. The results are `sim.history` and
    the Zarr group snapshots.zarr/history.

    With `recompute`, an adjoint run recomputes the states between two kept states, with the same bits. Gradients are
    therefore exact. If a step needs the previous values of fields, a kept state also has these values. The previous
    values of a field `u` are `sim.history["u.previous"]`. If `every` is "all", `recompute` is not allowed. With
    `recompute`, `limit` can be too small for the states of the steps 0, k, 2 * k, ... If at least two states fit, only
    some states are kept. An adjoint run repeats parts of the run to compute the missing states.

    If `every` is "auto", the run keeps no states, all states, or every k-th state with `recompute`. With "auto",
    Outcrop chooses the history with the shortest total time of the run and of an exact adjoint run. The chosen history
    fits the memory, the disk and the limit. To choose the history, Outcrop predicts the times from measured rates.
    `wrt` contains the names of the gradients that the adjoint run will compute, as in `sim.adjoint`. By default, `wrt`
    contains the names of all static fields, parameters and signals. Outcrop chooses the history when the run begins,
    and stores the choice with the run.
    """

    every: int | str
    limit: str | int | None = None
    recompute: bool = field(default=False, kw_only=True)
    wrt: str | Sequence[str] | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Norms:
    """Computes the norms of `fields` after the steps 0, `every`, 2 * `every`, ... The results are `sim.norms[field]`.

    Without `fields`, the norms of all updated fields are computed. Step 0 means the initial values, whose norms the
    first pass computes. If `initial` is False, the norms of the initial values are not computed.
    """

    every: int
    fields: Sequence[str] = ()
    initial: bool = True


@dataclass(frozen=True)
class Option:
    """The description of an option for users.

    `help` is the text of the option in `--help`. In docs/reference/options.md, `details` follow the text of `help`.
    `flags` are the names of the option on the command line. If `flags` is empty, the option can be given only in Python
    and in TOML files. `default` describes the effect of the value None. `in_files` is False for an option that a TOML
    file cannot set."""

    group: str
    help: str
    flags: tuple[str, ...] = ()
    metavar: str | None = None
    default: str = ""
    details: str = ""
    in_files: bool = True


@dataclass(frozen=True, eq=False)
class RunOptions:
    """All options of a run, with the values that the user has given. The values are not checked yet.

    Shapes, coordinates and points have the order of the stencil's axes: (z, y, x), (y, x) or (x,).
    """

    stencil: Annotated[
        Any,
        Option(
            "problem",
            "the name of a built-in stencil, such as heat2, acoustic8_2d, maxwell or d3q19; an unknown name prints the "
            "list of all names",
            details="In Python, the value can also be a `Stencil`, or a list of Devito's equations with `inject` and "
            "`interpolate`. Devito's equations define the grid, the parameters and the signals, and need the option "
            "`dt`.",
        ),
    ]
    shape: Annotated[
        Any,
        Option(
            "problem",
            "number of cells along x (contiguous in memory), y and z; if --init names a file, the default is the shape "
            "of the file",
            ("-n",), "NX [NY [NZ]]",
            details="In Python and in TOML files, the order is reversed: (nz, ny, nx), (ny, nx) or (nx,), depending on "
            "the number of axes of the stencil.",
        ),
    ] = None
    dtype: Annotated[
        Any, Option("problem", "number type: float32 or float64", ("--dtype",), "TYPE", default="float32")
    ] = None
    directory: Annotated[
        str | Path | Sequence[str | Path],
        Option(
            "output", "directory or block device of the run; repeat the option to use several", ("-d", "--directory"),
            "WHERE",
            details="A missing directory is created, with its parents. If you give several directories, the planes are "
            "distributed over them. With `--raw-device`, WHERE is a [block device](../how-to/raw-device.md).",
            default="none on the command line; `run.oc` in Python",
        ),
    ] = "run.oc"
    memory: Annotated[
        str | int | None,
        Option(
            "resources", "maximum memory for the data of the run, such as 256MiB, 1GiB, or 25% of the machine",
            ("--memory",), "SIZE", default="1GiB",
            details="This limit covers the window, and the data of sources, receivers and snapshots. The process uses "
            "at most 150 MiB more. A percentage is a share of the memory of the machine, container or job. In Python "
            "and in TOML files, the value can also be a number of bytes. See [What the budget covers]"
            "(../how-to/memory-and-disk.md#what-the-budget-covers).",
        ),
    ] = None
    threads: Annotated[
        int | None,
        Option(
            "resources", "number of threads that update the grid", ("--threads",), "N",
            default="one for each core that the process may use",
        ),
    ] = None
    scheme: Annotated[
        str,
        Option(
            "sizes",
            "name of the scheme: auto, wavefront, split, naive, overlapped, skewed-full, skewed-3y or skewed-5y",
            ("--scheme",), "NAME", details="[Schemes](../explanation/schemes.md) explains each scheme.",
        ),
    ] = "auto"
    io: Annotated[
        str,
        Option(
            "resources", "storage interface: auto, io_uring, libaio, threads or mmap", ("--io",), "NAME",
            details="`auto` uses the first of `io_uring`, `libaio` and `threads` that works. `mmap` uses the page "
            "cache, which the budget does not cover.",
        ),
    ] = "auto"
    boundary: Annotated[
        Any,
        Option(
            "problem",
            "fixed (the rim keeps its values), mirror or periodic; or one word for each axis, such as "
            "x=periodic,z=fixed:mirror",
            ("--boundary",), "SIDES", default="fixed",
            details="With `mirror`, the gradient across the side is zero. Axes that you do not name are fixed. In "
            'Python the value can also be a mapping, such as {"x": "periodic", "z": ("fixed", "mirror")}.',
        ),
    ] = None
    params: Annotated[
        Mapping[str, float] | None,
        Option(
            "problem", "value of a parameter of the stencil; repeat the option for several parameters", ("--param",),
            "NAME=VALUE", default="the defaults of the stencil",
        ),
    ] = None
    in_place: Annotated[
        bool,
        Option(
            "resources",
            "keep one copy of the state instead of two; this halves the disk space, but an interrupted pass destroys "
            "the run",
            ("--in-place",),
            details="[Runs with one copy](../explanation/durability.md#runs-with-one-copy) explains the risk.",
        ),
    ] = False
    force: Annotated[
        bool,
        Option("output", "replace an existing run, or other content of a raw device", ("--force",), in_files=False),
    ] = False
    raw_device: Annotated[
        bool,
        Option(
            "output", "WHERE is a block device, and all of its content may be overwritten", ("--raw-device",),
            details="Outcrop refuses a device that is in use. Without `force`, it also refuses a device that holds a "
            "file system, a partition table or a run.",
            in_files=False,
        ),
    ] = False
    bind: Annotated[
        str,
        Option(
            "resources",
            "how to bind threads: auto (bind if there are several NUMA nodes), cores (always bind) or none",
            ("--bind",), "HOW",
            details="[Several NUMA nodes](../how-to/numa.md) explains what is bound.",
        ),
    ] = "auto"
    sizes: Annotated[
        Mapping[str, int] | None,
        Option(
            "sizes", "sizes of the plan that the tuner must not change", default="chosen by the tuner",
            details='Give a mapping of names to values, such as {"bt": 48, "by": 128}. In TOML files, each size has '
            "its own key.",
        ),
    ] = None
    signals: Annotated[
        Mapping[str, Any] | None,
        Option(
            "problem", "values of the signals of the stencil",
            details="Give a mapping of names to values. Each signal needs one finite number for each step, beginning "
            "with the first step of the run. In TOML files, the values are a list, or the name of a .npy file.",
        ),
    ] = None
    spacing: Annotated[
        float | Sequence[float] | None,
        Option(
            "problem", "distance between neighbouring cells",
            details="Give one number, or one number for each axis. The spacing determines the coordinates of cells in "
            "the Zarr group. Points of sources and receivers use these coordinates. The equation does not use the "
            "spacing: if it differs from the default of `h` in a built-in stencil, also give `h` in `params`.",
        ),
    ] = None
    origin: Annotated[
        float | Sequence[float] | None,
        Option("problem", "coordinates of the first cell", details="Give one number, or one number for each axis."),
    ] = None
    units: Annotated[str | None, Option("problem", "unit of the coordinates, such as m", details="Any text.")] = None
    dt: Annotated[
        float | None, Option("problem", "value of the parameter dt", details="Same as `dt` in `params`.")
    ] = None
    sources: Annotated[
        Sequence[Source],
        Option(
            "problem", "sources, which add values to fields",
            details="In Python, give a list of `Source`. In TOML files, use the tables [[problem.sources]].",
        ),
    ] = ()
    receivers: Annotated[
        Sequence[Receivers],
        Option(
            "problem", "receivers, which record fields at points",
            details="In Python, give a list of `Receivers`. In TOML files, use the tables [[problem.receivers]].",
        ),
    ] = ()
    snapshots: Annotated[
        Snapshots | Sequence[Snapshots] | None,
        Option(
            "output", "snapshots, which keep fields during the run",
            details="In Python, give one `Snapshots`, or a list of them. In TOML files, use the table "
            "[output.snapshots].",
        ),
    ] = None
    norms: Annotated[
        Norms | None,
        Option(
            "output", "norms of fields during the run",
            details="In Python, give an object of the class `Norms`. In TOML files, use the table [output.norms].",
        ),
    ] = None
    unstable: Annotated[
        bool,
        Option(
            "problem", "allow parameters with which waves grow without limit; by default, they are refused",
            ("--unstable",), details="[Stability](stencils.md#stability) explains how Outcrop finds such parameters.",
        ),
    ] = False
    records: Annotated[
        str | Path | None,
        Option(
            "output", "directory for traces, norms and snapshots of a run on block devices",
            details="A run in a directory keeps these data in its own directory.",
        ),
    ] = None
    steps: Annotated[
        int | None,
        Option(
            "problem", "number of time steps", ("-t", "--steps"), "STEPS",
            details="In Python, you can give another number to `Simulation.run`.",
        ),
    ] = None
    init: Annotated[
        Any,
        Option(
            "problem",
            "initial values: zeros, gaussian, random:SEED, a number, the directory of another run, or a file (.npy, "
            ".npz, .zarr, .nc, .sgy); FILE@resample fits the file to the grid; for several fields, repeat the option "
            "with NAME=VALUE",
            ("--init",), "[NAME=]VALUE", default="zeros",
            details="[Initial values](../how-to/initial-values.md) lists the kinds of files. In Python, a value can "
            "also be an array, or a function that takes (z0, z1) and returns planes. For several fields, give a "
            "mapping of names to values. The values are written when the run begins, except to fields that you have "
            "already assigned with `sim[name] = values`.",
        ),
    ] = None
    check_finite: Annotated[
        bool, Option("problem", "refuse NaN and infinity in initial values", ("--check-finite",))
    ] = False
    ranks: Annotated[
        Any,
        Option(
            "resources",
            "number of ranks that compute the run together, or auto (all ranks that mpirun has started)",
            ("--ranks",), "N",
            details="The grid is divided among the ranks along y. With `PYxPZ`, such as `4x2`, the grid is divided "
            "into PY parts along y and PZ parts along z. In Python, this value can also be `(py, pz)`. With 1, each "
            "process computes its own run, even under mpirun. [Several nodes](../nodes.md) explains such runs.",
        ),
    ] = "auto"
    comm: Annotated[
        Any,
        Option(
            "resources", "communicator of mpi4py with the ranks that compute the run",
            default="MPI.COMM_WORLD under mpirun",
            details="If the communicator has several ranks, these ranks compute the run together.", in_files=False,
        ),
    ] = None
    saved: Annotated[
        Any,
        Option(
            "problem", "the simulation that has computed the saved functions of Devito's equations",
            details="This simulation must keep the history \"all\". If a function has another name in this simulation, "
            "give a pair with the simulation and the names: `saved=(forward, {\"u0\": \"u\"})`.", in_files=False,
        ),
    ] = None
    functions: Annotated[
        str,
        Option(
            "sizes",
            "when functions of fields that are only read are computed: once (before the first step), steps (in each "
            "step) or auto (once, if this saves time)",
            ("--functions",), "WHEN",
            details="[Functions of static fields](../how-to/equations.md#compute-functions-of-static-fields-once) "
            "explains the rule. The results have the same bits.",
        ),
    ] = "auto"


SIZES = {
    "bt": "number of steps of a pass; the tuner chooses all sizes that you do not give",
    "bx": "number of cells of a block along x",
    "by": "number of rows of a block",
    "bz": "number of planes of a block",
    "slab": "number of planes that are updated together",
    "diamond": "half the height of the cache tiles, in levels",
}
"""The meaning of each entry of `sizes`. On the command line, the entry "bt" is the option `--bt N`, and so on."""


@cache
def option_table() -> dict[str, Option]:
    """Return a dictionary with the descriptions of all options. The keys are the names of the options in Python and in
    TOML files."""
    hints = get_type_hints(RunOptions, include_extras=True)
    return {one.name: hints[one.name].__metadata__[0] for one in fields(RunOptions)}


def default_text(name: str) -> str:
    """Return a text that describes the default of an option. Return "" if the option has no default."""
    default = next(one.default for one in fields(RunOptions) if one.name == name)
    if words := option_table()[name].default:
        return words
    return "" if default in (None, False, ()) or not isinstance(default, (str, int)) else str(default)


P = ParamSpec("P")
T = TypeVar("T")

_OF_DEVITO = "write run(steps=...), the number of steps, which is time_M - time_m + 1 in Devito"
_OTHER_WORDS = {
    **dict.fromkeys(("time_M", "time_m", "time", "nt", "n_steps", "nsteps"), _OF_DEVITO),
    "dt": "give dt to oc.Simulation, as dt=... or in params=",
}
"""Keywords of other programs, and what users write instead in `run`."""


def refuse_keywords(function: str, keywords: Collection[str], known: Sequence[str]) -> None:
    """Raise WrongTypeError if a user has called a public function with a keyword that is not in `known`. The message
    proposes a similar keyword."""
    from outcrop.language.library.table import did_you_mean

    for name in keywords:
        if name not in known:
            remedy = did_you_mean(name, known) or f"; there are {', '.join(known)}"
            if function == "run" and name in _OTHER_WORDS:
                remedy = f": {_OTHER_WORDS[name]}"
            raise WrongTypeError(f"{function}() got an unexpected keyword argument {name!r}{remedy}")


def checks_keywords(function: Callable[P, T]) -> Callable[P, T]:
    """Return a public function that refuses unknown keywords with a message of one line (`refuse_keywords`)."""
    known = [name for name in inspect.signature(function).parameters if name != "self"]

    @wraps(function)
    def call(*args: P.args, **keywords: P.kwargs) -> T:
        refuse_keywords(function.__name__, keywords, known)
        return function(*args, **keywords)

    return call


def takes_options(
    _: Callable[P, RunOptions], *whole: type
) -> Callable[[Callable[[T, Any], None]], Callable[Concatenate[T, P], None]]:
    """Return a decorator for a constructor that takes a `RunOptions`. The decorated constructor takes the keywords of
    `RunOptions`, and no `RunOptions`. Type checkers and `help` show the keywords of `RunOptions`. If a call has only
    one argument and its type is in `whole`, the original constructor gets the argument unchanged."""

    def decorate(init: Callable[[T, Any], None]) -> Callable[Concatenate[T, P], None]:
        @wraps(init)
        def call(self: T, *args: Any, **keywords: Any) -> None:
            if len(args) == 1 and not keywords and isinstance(args[0], whole):
                return init(self, args[0])
            try:
                options = RunOptions(*args, **keywords)
            except TypeError as error:  # an unknown keyword, or an argument that is given twice
                refuse_keywords(type(self).__name__, keywords, [one.name for one in fields(RunOptions)])
                raise WrongTypeError(str(error).replace("RunOptions.__init__()", f"{type(self).__name__}()")) from None
            return init(self, options)

        hints = get_type_hints(RunOptions)
        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        named = inspect.signature(RunOptions).parameters
        keywords = [one.replace(annotation=hints[name]) for name, one in named.items()]
        call.__signature__ = inspect.Signature([own, *keywords])  # type: ignore[attr-defined]
        return cast(Callable[Concatenate[T, P], None], call)

    return decorate
