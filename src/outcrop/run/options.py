"""`RunOptions`: all options of a run. Each option is declared only in this module.

    keywords of Simulation ──┐
    command line             ├──► RunOptions ──► Setup (checked, setup.py) ──► plan, manifest, run
    TOML file                │
    manifest of a run ───────┘

The annotation of an option contains all that the command line, TOML files (options_file.py) and the reference page
need. This module does not import NumPy or SymPy, so that `outcrop --help` is quick.

`Source`, `Receivers`, `Snapshots` and `Norms` are types for the values of four options:

    source = oc.Source("u", points=[20.0, 500.0, 500.0], values=wavelet)
    line = oc.Receivers("line", "u", points=[[20.0, 500.0, x] for x in places])
    oc.Simulation(..., sources=[source], receivers=[line], snapshots=oc.Snapshots(every=50), norms=oc.Norms(every=10))

A point has a coordinate for each axis in the order of the shape: (z, y, x), (y, x) or (x,). The simulation's `spacing`
and `origin` define the coordinates of cells. Without these options, the unit is one cell, and cell 0 is at 0. Values
between cells are interpolated linearly. `acquisition/definitions.py` checks these values, because the checks need the
grid.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, wraps
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec, TypeAlias, TypeVar, cast, get_type_hints

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
    """Adds values to `field` at the end of its update in each step.

    `values` has the shape (steps,) for one point, or (steps, points). After the last value, the source adds nothing.
    The value of a point is distributed over the cells around the point, with the weights of linear interpolation.

    `scale` multiplies the values. `scale` is a number or an expression, such as dt**2 * v[0, 0, 0] ** 2. An expression
    may use the stencil's parameters and, at offset 0, fields that are only read. The expression is evaluated at each
    cell to which the source adds values.
    """

    field: str
    points: Any
    values: Any
    scale: Any = None


@dataclass(frozen=True, eq=False)
class Receivers:
    """Records `field` at `points` at the end of each step. With `before`, the field is recorded at the beginning of
    each step. The result is `sim.traces[name]`."""

    name: str
    field: str
    points: Any
    before: bool = False


@dataclass(frozen=True)
class Snapshots:
    """Keeps the values of `fields` after the steps 0, `every`, 2 * `every`, ... The results are `sim.snapshots[field]`
    and the Zarr group snapshots.zarr.

    Without `fields`, all updated fields are kept. Step 0 means the initial values, which the first pass stores. With
    `initial=False`, the initial values are not kept. `box` is a slice, in cells, for each axis. Without `box`, the
    whole grid is kept. `time_units` are the units of the coordinate `time`, such as "s". This coordinate exists when
    the stencil has a parameter dt.

    A run may have a list of several `Snapshots`, each with a different `name`. The results for the name "side" are
    `sim.snapshots["side/u"]` and the group snapshots.zarr/side.
    """

    every: int
    fields: Sequence[str] = ()
    box: Sequence[slice] | None = None
    time_units: str = ""
    initial: bool = True
    name: str = ""


@dataclass(frozen=True)
class History:
    """Keeps the states of a run, for programs that go back through the steps: `sim.run(steps,
    history=oc.History("all"))`.

    A state has all fields that a step updates. With "all", the initial values and the state after each step are kept.
    With a number k, the states of the steps 0, k, 2 * k, ... are kept. `limit` is the maximum number of bytes, such as
    "500GiB". The limit is checked before the run begins. The results are `sim.history` and the Zarr group
    snapshots.zarr/history.

    With `recompute`, an adjoint run computes the states between two kept states again, with the same bits. So the
    gradients are exact. A kept state then also has the previous values of fields, if a step needs them. For a field
    `u`, these are `sim.history["u.previous"]`. "all" does not allow `recompute`. If `limit` has room for two or more,
    but not all kept states, an adjoint run repeats parts of the run to compute the others.

    With "auto", the run keeps no states, all states, or every k-th state with `recompute`. Outcrop chooses the way in
    which the run and an exact adjoint run together are fastest within the memory, the disk and the limit. Outcrop
    predicts the times from measured rates. `wrt` has the names of the gradients that the adjoint run will compute, as
    in `sim.adjoint`. By default, these are all static fields, parameters and signals. The choice is made once, when the
    run begins, and is stored with the run.
    """

    every: int | str
    limit: str | int | None = None
    recompute: bool = field(default=False, kw_only=True)
    wrt: str | Sequence[str] | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Norms:
    """Computes the norms of `fields` after the steps 0, `every`, 2 * `every`, ... The results are `sim.norms[field]`.

    Without `fields`, the norms of all updated fields are computed. Step 0 means the initial values, whose norms the
    first pass computes. With `initial=False`, these norms are not computed.
    """

    every: int
    fields: Sequence[str] = ()
    initial: bool = True


@dataclass(frozen=True)
class Option:
    """The description of an option for users.

    `help` is one line for `--help`. In docs/reference/options.md, `details` follow this line. `flags` are the names of
    the option on the command line. Without flags, the option can be given only in Python and in TOML files. `default`
    describes in words what None means. `in_files` is False for an option that no TOML file may set."""

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
            "a built-in one, such as heat2, acoustic8_2d, maxwell or d3q19; an unknown name lists all there are",
            details="A `Stencil`, the name of a built-in one, or a list of Devito's equations with `inject` and "
            "`interpolate`. Devito's equations have a grid, parameters and signals of their own, and need `dt`.",
        ),
    ]
    shape: Annotated[
        Any,
        Option(
            "problem", "cells along x (fastest), y, z; the file's when --init names one", ("-n",), "NX [NY [NZ]]",
            details="In Python and in files (nz, ny, nx), (ny, nx) or (nx,), by the stencil's axes: the reverse order.",
        ),
    ] = None
    dtype: Annotated[Any, Option("problem", "float32 or float64", ("--dtype",), "TYPE", default="float32")] = None
    directory: Annotated[
        str | Path | Sequence[str | Path],
        Option(
            "output", "directory or block device; repeat to use several", ("-d", "--directory"), "WHERE",
            details="A missing directory is made, with its parents. Planes are spread over several directories. With "
            "`--raw-device` it is a [block device](../how-to/raw-device.md). Python's default is `run.oc`.",
        ),
    ] = "run.oc"
    memory: Annotated[
        str | int | None,
        Option(
            "resources", "limit of the memory for the run's data: 256MiB, 1GiB, 25% of the machine", ("--memory",),
            "SIZE", default="1GiB",
            details="The window, and the data of sources, receivers and snapshots, stay within it. The process takes "
            "at most 150 MiB more. A percentage refers to the memory of the machine, container or job. In Python and "
            "in files it may also be a number of bytes. [What the budget covers]"
            "(../how-to/memory-and-disk.md#what-the-budget-covers).",
        ),
    ] = None
    threads: Annotated[
        int | None,
        Option("resources", "threads that update", ("--threads",), "N", default="all cores this process may use"),
    ] = None
    scheme: Annotated[
        str,
        Option(
            "sizes", "auto, wavefront, split, naive, overlapped, skewed-full, -3y or -5y", ("--scheme",), "NAME",
            details="[Schemes](../explanation/schemes.md) explains each of them.",
        ),
    ] = "auto"
    io: Annotated[
        str,
        Option(
            "resources", "storage backend: auto, io_uring, libaio, threads or mmap", ("--io",), "NAME",
            details="`auto` is the first that works. `mmap` uses the page cache, which the budget does not cover.",
        ),
    ] = "auto"
    boundary: Annotated[
        Any,
        Option(
            "problem",
            "fixed (the rim keeps its values), mirror or periodic; or by axis: x=periodic,z=fixed:mirror",
            ("--boundary",), "SIDES", default="fixed",
            details="`mirror`: no gradient across the side. Axes that are not named are fixed. In Python it may also "
            'be a mapping, {"x": "periodic", "z": ("fixed", "mirror")}.',
        ),
    ] = None
    params: Annotated[
        Mapping[str, float] | None,
        Option(
            "problem", "a parameter of the stencil, in place of its default; repeat for several", ("--param",),
            "NAME=VALUE",
        ),
    ] = None
    in_place: Annotated[
        bool,
        Option(
            "resources", "one copy, not two: half the disk, but an interrupted pass loses the run", ("--in-place",),
            details="[Runs with one copy](../explanation/durability.md#runs-with-one-copy) explains the risk.",
        ),
    ] = False
    force: Annotated[
        bool, Option("output", "replace the run, or other content of a raw device", ("--force",), in_files=False)
    ] = False
    raw_device: Annotated[
        bool,
        Option(
            "output", "WHERE is a block device, all of whose content may be overwritten", ("--raw-device",),
            details="A device that is in use is refused. Without `force`, a device that holds a file system, a "
            "partition table or a run is refused, too.",
            in_files=False,
        ),
    ] = False
    bind: Annotated[
        str,
        Option(
            "resources", "bind threads: auto (on several NUMA nodes), cores or none", ("--bind",), "HOW",
            details="[Several NUMA nodes](../how-to/numa.md) explains what is bound.",
        ),
    ] = "auto"
    sizes: Annotated[
        Mapping[str, int] | None,
        Option(
            "sizes", "sizes of the plan that the tuner must keep", default="chosen by the tuner",
            details='Values by name, such as {"bt": 48, "by": 128}. In TOML files each size is a key of its own.',
        ),
    ] = None
    signals: Annotated[
        Mapping[str, Any] | None,
        Option(
            "problem", "values of the stencil's signals",
            details="One finite number for each step from the first step of the run on. In TOML files a list, or the "
            "name of a .npy file.",
        ),
    ] = None
    spacing: Annotated[
        float | Sequence[float] | None,
        Option(
            "problem", "distance between cells, for coordinates and points",
            details="One number, or one for each axis. It gives the coordinates of cells in the Zarr group, and points "
            "of sources and receivers use these coordinates. The computation does not use it: give built-in stencils "
            "`h` in `params`, too, when it differs from their default.",
        ),
    ] = None
    origin: Annotated[
        float | Sequence[float] | None,
        Option("problem", "coordinates of the first cell", details="One number, or one for each axis."),
    ] = None
    units: Annotated[str | None, Option("problem", "units of coordinates, such as m", details="Any text.")] = None
    dt: Annotated[float | None, Option("problem", "the parameter dt", details="The same as `dt` in `params`.")] = None
    sources: Annotated[
        Sequence[Source],
        Option("problem", "sources", details="A list of `Source`; in TOML files [[problem.sources]]."),
    ] = ()
    receivers: Annotated[
        Sequence[Receivers],
        Option("problem", "receivers", details="A list of `Receivers`; in TOML files [[problem.receivers]]."),
    ] = ()
    snapshots: Annotated[
        Snapshots | Sequence[Snapshots] | None,
        Option("output", "snapshots", details="One `Snapshots`, or several; in TOML files [output.snapshots]."),
    ] = None
    norms: Annotated[
        Norms | None, Option("output", "norms of fields", details="`Norms`; in TOML files [output.norms].")
    ] = None
    unstable: Annotated[
        bool,
        Option(
            "problem", "run parameters that let waves grow, which are refused otherwise", ("--unstable",),
            details="[Stability](stencils.md#stability) explains how they are found.",
        ),
    ] = False
    records: Annotated[
        str | Path | None,
        Option(
            "output", "directory for traces, norms and snapshots of a run on block devices",
            details="A run in a directory keeps them in that directory.",
        ),
    ] = None
    steps: Annotated[
        int | None,
        Option(
            "problem", "time steps", ("-t", "--steps"), "STEPS", details="`Simulation.run` can be given another number."
        ),
    ] = None
    init: Annotated[
        Any,
        Option(
            "problem",
            "zeros, gaussian, random:SEED, a number, or a file (.npy, .npz, .zarr, .nc, .sgy), FILE@resample to fit "
            "it to the grid; with several fields NAME=VALUE, repeat for each",
            ("--init",), "[NAME=]VALUE", default="zeros",
            details="[Initial values](../how-to/initial-values.md) lists the files. In Python they may also be arrays "
            "and functions (z0, z1) -> planes, by field. They are written when the run begins, unless the field was "
            "assigned before with `sim[name] = values`.",
        ),
    ] = None
    check_finite: Annotated[bool, Option("problem", "refuse NaN and infinity in --init", ("--check-finite",))] = False
    ranks: Annotated[
        Any,
        Option(
            "resources", "ranks that compute the run together: auto (all that mpirun has started), or a number",
            ("--ranks",), "N",
            details="The grid is cut along y. With 1, each process is a run of its own, even under mpirun. In Python "
            "it may also be `(py,)`. [Several nodes](../nodes.md) explains runs of several ranks.",
        ),
    ] = "auto"
    comm: Annotated[
        Any,
        Option(
            "resources", "the ranks as a communicator of mpi4py", default="MPI.COMM_WORLD under mpirun",
            details="A communicator of several ranks makes them compute the run together.", in_files=False,
        ),
    ] = None


SIZES = {
    "bt": "steps of a pass; sizes that are not given are chosen",
    "bx": "cells of a block in x",
    "by": "rows of a block",
    "bz": "planes of a block",
    "slab": "planes that are updated together",
    "diamond": "half the height of the cache tiles, in levels",
}
"""The meaning of each entry of `sizes`. On the command line, the entry "bt" is the option `--bt N`, and so on."""


@cache
def option_table() -> dict[str, Option]:
    """Return the description of each option, by its name in Python and in TOML files."""
    hints = get_type_hints(RunOptions, include_extras=True)
    return {one.name: hints[one.name].__metadata__[0] for one in fields(RunOptions)}


def default_text(name: str) -> str:
    """Return a text that describes the default of an option, or "" without a default."""
    default = next(one.default for one in fields(RunOptions) if one.name == name)
    if words := option_table()[name].default:
        return words
    return "" if default in (None, False, ()) or not isinstance(default, (str, int)) else str(default)


P = ParamSpec("P")
T = TypeVar("T")


def takes_options(
    _: Callable[P, RunOptions], *whole: type
) -> Callable[[Callable[[T, Any], None]], Callable[Concatenate[T, P], None]]:
    """Return a decorator for a constructor that takes a `RunOptions`. The decorated constructor takes the keywords of
    `RunOptions`, which type checkers and `help` show. A single argument of a type in `whole` is passed on unchanged."""

    def decorate(init: Callable[[T, Any], None]) -> Callable[Concatenate[T, P], None]:
        @wraps(init)
        def call(self: T, *args: Any, **keywords: Any) -> None:
            if len(args) == 1 and not keywords and isinstance(args[0], whole):
                return init(self, args[0])
            try:
                options = RunOptions(*args, **keywords)
            except TypeError as error:  # an unknown keyword, or an argument that is given twice
                raise TypeError(str(error).replace("RunOptions.__init__()", f"{type(self).__name__}()")) from None
            return init(self, options)

        hints = get_type_hints(RunOptions)
        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        named = inspect.signature(RunOptions).parameters
        keywords = [one.replace(annotation=hints[name]) for name, one in named.items()]
        call.__signature__ = inspect.Signature([own, *keywords])  # type: ignore[attr-defined]
        return cast(Callable[Concatenate[T, P], None], call)

    return decorate
