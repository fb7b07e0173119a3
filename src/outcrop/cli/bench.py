"""`outcrop bench`: measure the performance of this machine."""

from __future__ import annotations

from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from outcrop.cli import options
from outcrop.errors import InputError

BENCHMARKS = {
    "adjoint": ("adjoint", "adjoint runs beside their forward runs"),
    "core": ("core", "in memory, cache-blocked and out of core"),
    "io": ("io", "a device by access size, queue depth and interface"),
    "kernel": ("kernel", "generated loops beside loops written by hand"),
    "ladder": ("literature.ladder", "from plain sweeps over swapped memory to wavefronts over direct I/O"),
    "stencils": ("stencils", "every family of the library, beside Devito"),
    "stream": ("stream", "bandwidth of DRAM and of arrays on a tier, by all ranks of mpirun"),
    "table2": ("literature.table2", "blocks and traffic of a published table, planned only"),
    "trajectory": ("trajectory", "push and pop of states beside the bandwidth of the tier"),
    "tuner": ("tuner", "the plan of the tuner beside a sweep over plans"),
}
"""The benchmarks: for each benchmark, its module in `outcrop.bench` and its help text. Each module has a function
`bench(directory, small, ...)`, which prints the figures and returns them. The function has a parameter for each option
that the benchmark accepts."""
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
    "turns": "--turns",
}


def bench(
    name: Annotated[
        str, Argument(metavar="NAME", help="; ".join(f"{name}: {text}" for name, (_, text) in BENCHMARKS.items()))
    ],
    directory: options.BenchDirectory = Path("."),
    json: options.Json = None,
    small: Annotated[bool, Option("--small", help="try the benchmark in a few seconds; ignore the figures")] = False,
    size: Annotated[
        tuple[int, int, int] | None, Option("-n", metavar="NX NY NZ", help="cells along x (fastest), y, z")
    ] = None,
    memory: Annotated[str | None, Option(help="memory out of core: 512MiB, or 50% of both arrays")] = None,
    steps: Annotated[int | None, Option("-t", "--steps", metavar="STEPS", min=1, help="time steps")] = None,
    png: options.Png = None,
    swap_file: Annotated[
        bool, Option("--swap-file", help="root only: use a swap file in WHERE during the benchmark")
    ] = False,
    only: Annotated[str | None, Option(metavar="NAME,...", help="measure these stencils, or parts of io, only")] = None,
    raw_device: Annotated[
        Path | None, Option(metavar="DEVICE", help="measure this block device, too; it is only read")
    ] = None,
    write_device: Annotated[
        bool, Option("--write-device", help="write to --raw-device, too; it must hold nothing")
    ] = False,
    tier: Annotated[str | None, Option(metavar="NAME", help="measure this tier of outcrop tiers, not WHERE")] = None,
    threads: Annotated[int | None, Option(metavar="N", min=1, help="threads of each rank")] = None,
    turns: Annotated[int | None, Option(metavar="N", min=1, help="number of repeats")] = None,
) -> None:
    """Run a benchmark, print its figures, and write them as JSON."""
    given = locals()
    chosen = {key: given[key] for key in OPTIONS if given[key] is not None and given[key] is not False}
    if name not in BENCHMARKS:
        raise InputError(f"benchmark {name!r} is unknown; there are {', '.join(BENCHMARKS)}")
    run = import_module(f"outcrop.bench.{BENCHMARKS[name][0]}").bench
    accepted = signature(run).parameters
    for option in chosen:
        if option not in accepted:
            takes = [flag for other, flag in OPTIONS.items() if other in accepted]
            remedy = f"it takes {', '.join(takes)}" if takes else "its size is fixed"
            raise InputError(f"bench {name} does not take {OPTIONS[option]}; {remedy}")
    options.check_output(json, "--json")
    options.check_output(png, "--png")
    figures = run(directory, small, **chosen)
    if figures:  # only the first rank returns figures
        options.write_json(json, "--json", figures)
