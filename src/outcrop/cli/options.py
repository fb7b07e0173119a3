"""The options that several commands share, and what those of `run` and `plan` mean together."""

from __future__ import annotations

import json as json_format
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional, TypeAlias

import typer

from outcrop.cli import heap
from outcrop.cli.initial_options import initial_values
from outcrop.errors import InputError, shown
from outcrop.paths import make_directory, remove_made, require_output

if TYPE_CHECKING:
    from outcrop.axes import Shape
    from outcrop.language.stencil import Stencil
    from outcrop.run.inputs.source import Source
    from outcrop.run.simulation import Simulation

# Typer reads these at run time, so they are real objects, and Optional is spelled as Python 3.10 lets Typer see it.
StencilName: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="STENCIL",
        help="a built-in one, such as heat2, acoustic8_2d, maxwell or d3q19; an unknown name lists all there are",
    ),
]
Size: TypeAlias = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("-n", metavar="NX [NY [NZ]]", help="cells along x (fastest), y, z; the file's when --init names one"),
]
Steps: TypeAlias = Annotated[int, typer.Option("-t", "--steps", metavar="STEPS", help="time steps")]
Directories: TypeAlias = Annotated[
    list[Path],
    typer.Option("-d", "--directory", metavar="WHERE", help="directory or block device; repeat to use several"),
]
DirectoriesOrNone: TypeAlias = Annotated[
    Optional[list[Path]],  # noqa: UP045
    typer.Option("-d", "--directory", metavar="WHERE", help="as for run; not with --machine"),
]
Machine: TypeAlias = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--machine", metavar="FILE", help="plan for the machine a TOML file declares, or crest6 or crest10"),
]
MemoryOrNone: TypeAlias = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--memory", help="as for run [default: 1GiB; what --machine declares usable]", show_default=False),
]
Memory: TypeAlias = Annotated[str, typer.Option(help="hard cap for the window: 256MiB, 1GiB, 25% of the machine")]
DType: TypeAlias = Annotated[str, typer.Option(help="float32 or float64")]
Threads: TypeAlias = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(metavar="N", help="threads that update [default: all cores this process may use]", show_default=False),
]
Bind: TypeAlias = Annotated[str, typer.Option(help="bind threads: auto (on several NUMA nodes), cores or none")]
SchemeName: TypeAlias = Annotated[str, typer.Option(help="auto, wavefront, naive, overlapped, skewed-full, -3y or -5y")]
Io: TypeAlias = Annotated[str, typer.Option(help="auto, io_uring, libaio, threads or mmap")]
Parameters: TypeAlias = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--param", metavar="NAME=VALUE", help="a parameter of the stencil; repeat for several"),
]
Initial: TypeAlias = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--init",
        metavar="[NAME=]VALUE",
        help="zeros, gaussian, random:SEED, a number, or a file (.npy, .npz, .zarr, .nc, .sgy), FILE@resample to fit "
        "it to the grid; with several fields NAME=VALUE, repeat for each [default: zeros]",
        show_default=False,
    ),
]
Boundary: TypeAlias = Annotated[
    str,
    typer.Option(help="fixed (the rim keeps its values), mirror or periodic; or by axis: x=periodic,z=fixed:mirror"),
]
InPlace: TypeAlias = Annotated[
    bool, typer.Option("--in-place", help="one copy, not two: half the disk, but an interrupted pass loses the run")
]
CheckFinite: TypeAlias = Annotated[bool, typer.Option("--check-finite", help="refuse NaN and infinity in --init")]
Json: TypeAlias = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--json", metavar="FILE", help="write the report as JSON"),
]
Png: TypeAlias = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--png", metavar="FILE", help="draw the figures"),
]
BenchDirectory: TypeAlias = Annotated[
    Path, typer.Option("-d", "--directory", metavar="WHERE", help="for its files; made if missing")
]
Quiet: TypeAlias = Annotated[bool, typer.Option("--quiet", help="no progress and no report; only errors")]
RawDevice: TypeAlias = Annotated[
    bool, typer.Option("--raw-device", help="WHERE is a block device, all of whose content may be overwritten")
]
Bt: TypeAlias = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option("--bt", metavar="N", help="steps of a pass; sizes that are not given are chosen"),
]
Bx: TypeAlias = Annotated[Optional[int], typer.Option("--bx", metavar="N", help="cells of a block in x")]  # noqa: UP045
By: TypeAlias = Annotated[Optional[int], typer.Option("--by", metavar="N", help="rows of a block")]  # noqa: UP045
Bz: TypeAlias = Annotated[Optional[int], typer.Option("--bz", metavar="N", help="planes of a block")]  # noqa: UP045
Slab: TypeAlias = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option("--slab", metavar="N", help="planes that are updated together"),
]
Diamond: TypeAlias = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option("--diamond", metavar="N", help="half the height of the cache tiles, in levels"),
]
Unstable: TypeAlias = Annotated[
    bool, typer.Option("--unstable", help="run parameters that let waves grow, which are refused otherwise")
]
Force: TypeAlias = Annotated[bool, typer.Option("--force", help="replace the run, or what else a raw device, holds")]


@dataclass(frozen=True)
class Request:
    """What `run` and `plan` were asked for, as it was written."""

    stencil: str
    size: str | None
    steps: int
    directories: Sequence[Path]
    memory: str
    dtype: str
    threads: int | None
    scheme: str
    io: str
    parameters: Sequence[str]
    initial: Sequence[str]
    boundary: str
    in_place: bool
    check_finite: bool
    force: bool
    raw_device: bool
    bind: str
    sizes: dict[str, int]
    unstable: bool = False


def make_simulation(request: Request) -> tuple[Simulation, dict[str, Source]]:
    """The simulation that was asked for, and its initial values by field. Nothing is created; InputError for what
    cannot be."""
    from outcrop.run.arguments import as_stencil
    from outcrop.run.inputs.initial import cache_within
    from outcrop.run.simulation import Simulation
    from outcrop.tiers import discover
    from outcrop.units import parse_bytes

    heap.return_freed_memory()
    stencil = as_stencil(request.stencil)
    cache_bytes = cache_within(parse_bytes(request.memory, discover.memory_bytes()))
    shape, sources = grid_and_values(request, stencil, cache_bytes)
    simulation = Simulation(
        stencil,
        shape,
        dtype=request.dtype,
        directory=list(request.directories),
        memory=request.memory,
        threads=request.threads,
        scheme=request.scheme,
        io=request.io,
        boundary=request.boundary,
        params=parse_parameters(request.parameters),
        in_place=request.in_place,
        force=request.force,
        raw_device=request.raw_device,
        bind=request.bind,
        sizes=request.sizes,
        unstable=request.unstable,
    )
    return simulation, sources


def grid_and_values(request: Request, stencil: Stencil, cache_bytes: int) -> tuple[Shape, dict[str, Source]]:
    """The shape of the grid, and where values come from. Raises InputError for wrong steps too."""
    require_steps(request.steps)
    return initial_values(request.initial, request.size, stencil, cache_bytes)


def require_steps(steps: int) -> None:
    """Raise InputError for a number of steps that cannot be."""
    from outcrop.run.arguments import STEPS_MOST

    if steps < 1:
        raise InputError(f"-t {shown(steps)}: the number of steps must be at least 1")
    if steps > STEPS_MOST:
        raise InputError(f"-t {shown(steps)}: at most {STEPS_MOST} steps at a time; go on with outcrop resume -t")


def given_sizes(**sizes: int | None) -> dict[str, int]:
    """Those that are given, by name."""
    return {name: size for name, size in sizes.items() if size is not None}


def parse_parameters(texts: Sequence[str]) -> dict[str, float]:
    """{"c0": 0.4} of ["c0=0.4"]. Raises InputError for anything that is not NAME=VALUE, and for a name given twice."""
    values: dict[str, float] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name.isidentifier():
            raise InputError(f"--param {text!r} is not understood; write NAME=VALUE, for example c0=0.4")
        if name in values:
            raise InputError(f"--param {name} is given twice")
        try:
            values[name] = float(value)
        except ValueError:
            raise InputError(f"--param {text!r}: {value!r} is not a number") from None
        if not math.isfinite(values[name]):
            raise InputError(f"--param {text!r}: {value!r} is no finite number")
    return values


def check_output(path: Path | None, option: str) -> None:
    """Raise InputError when a file that is to be written at the end cannot be; creates and changes nothing."""
    if path is not None:
        require_output(path, option)


def write_json(path: Path | None, option: str, data: object) -> None:
    """Write `data` for an option that names a file. Raises InputError when it cannot be written."""
    if path is not None:
        write_file(path, option, (json_format.dumps(data, indent=2) + "\n").encode())


def write_file(path: Path, name: str, content: bytes) -> None:
    """Write a file that the user has named, in a directory that is made where it is missing. Raises InputError when it
    cannot be written."""
    made = make_directory(path.absolute().parent)
    try:
        path.write_bytes(content)
    except OSError as error:
        remove_made(made)
        raise InputError(f"{name} {path} cannot be written: {error.strerror}") from None
