"""`RunOptions`: everything that a user can say about a run. Each option is declared here, and only here.

    keywords of Simulation ──┐
    command line             ├──► RunOptions ──► Setup (checked, setup.py) ──► plan, manifest, run
    TOML file                │
    manifest of a run ───────┘

An option's annotation says what the command line, TOML files (options_file.py) and the reference page need to know.
This module imports neither NumPy nor SymPy, so that `outcrop --help` is quick.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, wraps
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar, cast, get_type_hints

from outcrop.run.acquisition.options import Norms, Receivers, Snapshots, Source

GROUPS = {
    "problem": "What is computed",
    "resources": "What the run may use",
    "sizes": "How the run is planned",
    "output": "Where the result goes",
}
"""The groups of options: tables of a TOML file, sections of the reference page."""


@dataclass(frozen=True)
class Option:
    """How an option is told to users.

    `help` is one line for `--help`; `details` follow it in docs/reference/options.md. `flags` are the option's names on
    the command line; an option without flags can be given in Python and in TOML files only. `default` says in words
    what happens without the option, where its default is None. `in_files` is False for options that a file must not
    decide.
    """

    group: str
    help: str
    flags: tuple[str, ...] = ()
    metavar: str | None = None
    default: str = ""
    details: str = ""
    in_files: bool = True


@dataclass(frozen=True, eq=False)
class RunOptions:
    """All options of a run, as the user gave them. `set_up` checks them.

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
            "problem",
            "cells along x (fastest), y, z; the file's when --init names one",
            ("-n",),
            "NX [NY [NZ]]",
            details="In Python and in files (nz, ny, nx), (ny, nx) or (nx,), by the stencil's axes: the reverse order.",
        ),
    ] = None
    dtype: Annotated[Any, Option("problem", "float32 or float64", ("--dtype",), "TYPE", default="float32")] = None
    directory: Annotated[
        str | Path | Sequence[str | Path],
        Option(
            "output",
            "directory or block device; repeat to use several",
            ("-d", "--directory"),
            "WHERE",
            details="A directory is made, with its parents, if it is missing. Planes are spread over several. With "
            "`--raw-device` it is a [block device](../how-to/raw-device.md). Python's default is `run.oc`.",
        ),
    ] = "run.oc"
    memory: Annotated[
        str | int | None,
        Option(
            "resources",
            "limit of the memory for the run's data: 256MiB, 1GiB, 25% of the machine",
            ("--memory",),
            "SIZE",
            default="1GiB",
            details="The window, and the data of sources, receivers and snapshots, stay within it. The process takes "
            "at most 150 MiB more. A share is of the memory of the machine, container or job. In Python and in files "
            "also a number of bytes. [What the budget covers](../how-to/memory-and-disk.md#what-the-budget-covers).",
        ),
    ] = None
    threads: Annotated[
        int | None,
        Option(
            "resources",
            "threads that update",
            ("--threads",),
            "N",
            default="all cores this process may use",
        ),
    ] = None
    scheme: Annotated[
        str,
        Option(
            "sizes",
            "auto, wavefront, naive, overlapped, skewed-full, -3y or -5y",
            ("--scheme",),
            "NAME",
            details="[Schemes](../explanation/schemes.md) explains each.",
        ),
    ] = "auto"
    io: Annotated[
        str,
        Option(
            "resources",
            "storage backend: auto, io_uring, libaio, threads or mmap",
            ("--io",),
            "NAME",
            details="`auto` is the first that works. `mmap` uses the page cache, which the budget does not cover.",
        ),
    ] = "auto"
    boundary: Annotated[
        Any,
        Option(
            "problem",
            "fixed (the rim keeps its values), mirror or periodic; or by axis: x=periodic,z=fixed:mirror",
            ("--boundary",),
            "SIDES",
            default="fixed",
            details="`mirror`: no gradient across the side. Axes that are not named are fixed. In Python also a "
            'mapping, {"x": "periodic", "z": ("fixed", "mirror")}.',
        ),
    ] = None
    params: Annotated[
        Mapping[str, float] | None,
        Option(
            "problem",
            "a parameter of the stencil, in place of its default; repeat for several",
            ("--param",),
            "NAME=VALUE",
        ),
    ] = None
    in_place: Annotated[
        bool,
        Option(
            "resources",
            "one copy, not two: half the disk, but an interrupted pass loses the run",
            ("--in-place",),
            details="[Runs with one copy](../explanation/durability.md#runs-with-one-copy) explains the risk.",
        ),
    ] = False
    force: Annotated[
        bool,
        Option("output", "replace the run, or what else a raw device, holds", ("--force",), in_files=False),
    ] = False
    raw_device: Annotated[
        bool,
        Option(
            "output",
            "WHERE is a block device, all of whose content may be overwritten",
            ("--raw-device",),
            details="A device that is in use is refused. Without `force`, one that holds a file system, a partition "
            "table or a run is refused, too.",
            in_files=False,
        ),
    ] = False
    bind: Annotated[
        str,
        Option(
            "resources",
            "bind threads: auto (on several NUMA nodes), cores or none",
            ("--bind",),
            "HOW",
            details="[Several NUMA nodes](../how-to/numa.md) explains what is bound.",
        ),
    ] = "auto"
    sizes: Annotated[
        Mapping[str, int] | None,
        Option(
            "sizes",
            "sizes of the plan that are not to be chosen",
            default="chosen by the tuner",
            details='Values by name, such as {"bt": 48, "by": 128}. In TOML files each size is a key of its own.',
        ),
    ] = None
    signals: Annotated[
        Mapping[str, Any] | None,
        Option(
            "problem",
            "values of the stencil's signals",
            details="One finite number for each step from the first step of the run on. In TOML files a list, or the "
            "name of a .npy file.",
        ),
    ] = None
    spacing: Annotated[
        float | Sequence[float] | None,
        Option(
            "problem",
            "distance between cells, for coordinates and points",
            details="One number, or one for each axis. It becomes the coordinates of cells in the Zarr group, and "
            "points of sources and receivers are in these. The computation does not know it: built-in stencils need "
            "`h` in `params`, too, where it differs from their default.",
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
            "problem",
            "run parameters that let waves grow, which are refused otherwise",
            ("--unstable",),
            details="[Stability](stencils.md#stability).",
        ),
    ] = False
    records: Annotated[
        str | Path | None,
        Option(
            "output",
            "directory for traces, norms and snapshots of a run on block devices",
            details="A run in a directory keeps them there.",
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
            ("--init",),
            "[NAME=]VALUE",
            default="zeros",
            details="[Initial values](../how-to/initial-values.md) lists the files. In Python also arrays and "
            "functions (z0, z1) -> planes, by field. They are written when the run begins, unless `sim[name] = values` "
            "was said before.",
        ),
    ] = None
    check_finite: Annotated[bool, Option("problem", "refuse NaN and infinity in --init", ("--check-finite",))] = False


SIZES = {
    "bt": "steps of a pass; sizes that are not given are chosen",
    "bx": "cells of a block in x",
    "by": "rows of a block",
    "bz": "planes of a block",
    "slab": "planes that are updated together",
    "diamond": "half the height of the cache tiles, in levels",
}
"""What each of `sizes` is. On the command line `--bt N` and so on."""


@cache
def option_table() -> dict[str, Option]:
    """Every option of a run, by its name in Python and in TOML files."""
    hints = get_type_hints(RunOptions, include_extras=True)
    return {one.name: hints[one.name].__metadata__[0] for one in fields(RunOptions)}


def default_text(name: str) -> str:
    """What an option is when it is not given, in words; empty for "nothing"."""
    default = next(one.default for one in fields(RunOptions) if one.name == name)
    if words := option_table()[name].default:
        return words
    return "" if default in (None, False, ()) or not isinstance(default, (str, int)) else str(default)


P = ParamSpec("P")
T = TypeVar("T")


def takes_options(
    _: Callable[P, RunOptions], *whole: type
) -> Callable[[Callable[[T, Any], None]], Callable[Concatenate[T, P], None]]:
    """Makes a constructor of options one that takes their keywords; type checkers and `help` see these.

    An object of a type in `whole` is passed on as it is.
    """

    def decorate(init: Callable[[T, Any], None]) -> Callable[Concatenate[T, P], None]:
        @wraps(init)
        def call(self: T, *args: Any, **keywords: Any) -> None:
            if len(args) == 1 and not keywords and isinstance(args[0], whole):
                return init(self, args[0])
            try:
                options = RunOptions(*args, **keywords)
            except TypeError as error:  # an unknown keyword, or the same twice
                raise TypeError(str(error).replace("RunOptions.__init__()", f"{type(self).__name__}()")) from None
            return init(self, options)

        hints = get_type_hints(RunOptions)
        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        named = inspect.signature(RunOptions).parameters
        keywords = [one.replace(annotation=hints[name]) for name, one in named.items()]
        call.__signature__ = inspect.Signature([own, *keywords])  # type: ignore[attr-defined]
        return cast(Callable[Concatenate[T, P], None], call)

    return decorate
