"""`outcrop bench`: measure what this machine reaches."""

from __future__ import annotations

from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from outcrop.cli import options
from outcrop.errors import InputError

BENCHMARKS = {
    "core": ("core", "in memory, cache-blocked and out of core"),
    "io": ("io", "a device by access size, queue depth and interface"),
    "kernel": ("kernel", "generated loops beside loops written by hand"),
    "ladder": ("literature.ladder", "from plain sweeps over swapped memory to wavefronts over direct I/O"),
    "stencils": ("stencils", "every family of the library, beside Devito"),
    "stream": ("stream", "bandwidth of DRAM and of arrays on a tier, by all ranks of mpirun"),
    "table2": ("literature.table2", "blocks and traffic of a published table, planned only"),
    "tuner": ("tuner", "what it chooses against a sweep"),
}
"""Where in `outcrop.bench` each has its `bench(directory, small, ...) -> dict`, which prints as it goes; what that is.
Of OPTIONS it takes those that it has parameters for."""
OPTIONS = {
    "size": "-n",
    "memory": "--memory",
    "steps": "-t",
    "png": "--png",
    "swap_file": "--swap-file",
    "only": "--only",
    "raw_device": "--raw-device",
    "write_device": "--write-device",
    "tier": "--tier",
    "threads": "--threads",
}

Size = Annotated[
    Optional[tuple[int, int, int]],  # noqa: UP045
    typer.Option("-n", metavar="NX NY NZ", help="cells along x (fastest), y, z"),
]
Memory = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--memory", help="memory out of core: 512MiB, or 50% of both arrays"),
]
Steps = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option("-t", "--steps", metavar="STEPS", help="time steps"),
]

Tier = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--tier", metavar="NAME", help="measure this one of outcrop tiers instead of WHERE"),
]
Threads = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option("--threads", metavar="N", min=1, help="threads of each rank"),
]

Only = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--only", metavar="NAME,...", help="these stencils, or parts of io, alone"),
]

RawDevice = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--raw-device", metavar="DEVICE", help="this block device, too, beside files; it is only read"),
]


def bench(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="; ".join(f"{name}: {text}" for name, (_, text) in BENCHMARKS.items())),
    ],
    directory: options.BenchDirectory = Path("."),
    json: options.Json = None,
    small: Annotated[bool, typer.Option("--small", help="a rehearsal of seconds; its figures mean nothing")] = False,
    size: Size = None,
    memory: Memory = None,
    steps: Steps = None,
    png: options.Png = None,
    swap_file: Annotated[
        bool, typer.Option("--swap-file", help="root only: have swap space in WHERE meanwhile")
    ] = False,
    only: Only = None,
    raw_device: RawDevice = None,
    write_device: Annotated[
        bool, typer.Option("--write-device", help="write to --raw-device, too; it must hold nothing")
    ] = False,
    tier: Tier = None,
    threads: Threads = None,
) -> None:
    """Run a benchmark, print its figures, and write them as JSON."""
    if name not in BENCHMARKS:
        raise InputError(f"benchmark {name!r} is unknown; there are {', '.join(BENCHMARKS)}")
    run = import_module(f"outcrop.bench.{BENCHMARKS[name][0]}").bench
    given = {"size": size, "memory": memory, "steps": steps, "png": png, "swap_file": swap_file or None, "only": only,
             "raw_device": raw_device, "write_device": write_device or None, "tier": tier,
             "threads": threads}  # fmt: skip
    chosen = _chosen(name, set(signature(run).parameters), given)
    options.check_output(json, "--json")
    options.check_output(png, "--png")
    figures = run(directory, small, **chosen)
    if figures:  # of several ranks one has them
        options.write_json(json, "--json", figures)


def _chosen(name: str, accepted: set[str], given: dict[str, Any]) -> dict[str, Any]:
    """The options that were given. Raises InputError for one that the benchmark does not take."""
    chosen = {option: value for option, value in given.items() if value is not None}
    for option in chosen:
        if option not in accepted:
            takes = [OPTIONS[other] for other in OPTIONS if other in accepted]
            remedy = f"it takes {', '.join(takes)}" if takes else "its size is fixed"
            raise InputError(f"bench {name} does not take {OPTIONS[option]}; {remedy}")
    return chosen
