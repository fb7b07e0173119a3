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
    "adjoint": ("adjoint", "speed of adjoint runs, compared with forward runs"),
    "core": ("core", "speed in memory, with and without temporal blocking, and out of core"),
    "io": ("io", "speed of a device for each access size, queue depth and interface"),
    "kernel": ("kernel", "speed of generated loops, compared with loops written by hand"),
    "ladder": ("literature.ladder", "speed of published methods, from plain sweeps in swapped memory to wavefronts"),
    "peers": ("peers", "speed in memory, compared with Devito, Girih and YASK"),
    "stencils": ("stencils", "speed of the built-in stencils, compared with Devito"),
    "stream": ("stream", "bandwidth of DRAM and of a tier, used by all ranks that mpirun has started"),
    "table2": ("literature.table2", "blocks and transferred bytes of a published table; only makes plans"),
    "trajectory": ("trajectory", "speed of push and pop of states, compared with the bandwidth of the tier"),
    "tuner": ("tuner", "the plan that the tuner chooses, compared with many other plans"),
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
    "girih": "--girih",
    "yask": "--yask",
}


def bench(
    name: Annotated[
        str, Argument(metavar="NAME", help="; ".join(f"{name}: {text}" for name, (_, text) in BENCHMARKS.items()))
    ],
    directory: options.BenchDirectory = Path("."),
    json: options.Json = None,
    small: Annotated[
        bool, Option("--small", help="try the benchmark in a few seconds; its figures mean nothing")
    ] = False,
    size: Annotated[
        tuple[int, int, int] | None,
        Option("-n", metavar="NX NY NZ", help="number of cells along x (contiguous), y and z"),
    ] = None,
    memory: Annotated[
        str | None, Option(help="memory of runs out of core: 50% of both arrays; ladder also takes 512MiB")
    ] = None,
    steps: Annotated[int | None, Option("-t", "--steps", metavar="STEPS", min=1, help="number of time steps")] = None,
    png: options.Png = None,
    swap_file: Annotated[
        bool, Option("--swap-file", help="use a swap file in WHERE during the benchmark (only as root)")
    ] = False,
    only: Annotated[str | None, Option(metavar="NAME,...", help="measure only these stencils, or parts of io")] = None,
    raw_device: Annotated[
        Path | None, Option(metavar="DEVICE", help="also measure this block device; it is only read")
    ] = None,
    write_device: Annotated[
        bool, Option("--write-device", help="also write to the device of --raw-device, which must hold no data")
    ] = False,
    tier: Annotated[str | None, Option(metavar="NAME", help="measure this tier (see outcrop tiers), not WHERE")] = None,
    threads: Annotated[int | None, Option(metavar="N", min=1, help="number of threads (of each rank)")] = None,
    turns: Annotated[int | None, Option(metavar="N", min=1, help="number of repeats")] = None,
    girih: Annotated[Path | None, Option(metavar="PATH", help="also measure Girih; PATH is its mwd_kernel")] = None,
    yask: Annotated[Path | None, Option(metavar="PATH", help="also measure YASK; PATH is its directory bin")] = None,
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
    options.check_picture(png, "--png", (".png",))
    figures = run(directory, small, **chosen)
    if figures:  # only the first rank returns figures
        options.write_json(json, "--json", figures)
