"""`outcrop agg`: aggregation, many ranks writing one file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Optional

import typer

from outcrop.cli import options
from outcrop.cli.tiers import Declared
from outcrop.errors import InputError
from outcrop.units import parse_bytes

MAX_CARDS = 10**6
MAX_LATENCY_SECONDS = 86400.0

agg = typer.Typer(help="Aggregation: many ranks, one file.", rich_markup_mode=None)
Size = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--bytes-per-rank", metavar="SIZE", help="what each rank writes [default: the workload's]"),
]
Aggregators = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option("--aggregators", metavar="N", help="how many [default: as many as are done first]"),
]
TierName = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--tier", metavar="NAME", help="where their buffers are [default: where they cost least]"),
]
Lasting = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--persistence", metavar="HOW", help="of the buffers, at least: process, reboot, job or permanent"),
]
Buffer = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--buffer", metavar="SIZE", help="of each of the two buffers of an aggregator [default: 16MiB]"),
]
TargetRate = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--target", metavar="RATE", help="of the shared file system, all together [default: not limited]"),
]


@agg.callback()
def _several() -> None:
    """Aggregation: many ranks, one file."""


@agg.command()
def simulate(
    topology: Annotated[
        str,
        typer.Option("--topology", metavar="NAME", help="torus, dragonfly, fat-tree, also torus:4x4x8, or a file of "
                     "lines `rank: group switch port`"),
    ],
    nodes: Annotated[int, typer.Option("--nodes", metavar="N", help="how many there are")],
    ranks_per_node: Annotated[int, typer.Option("--ranks-per-node", metavar="R", help="on each of them")],
    workload: Annotated[str, typer.Option("--workload", help="s3d, hacc (both layouts), hacc-aos or hacc-soa")],
    tiers: Declared = None,
    aggregators: Aggregators = None,
    bytes_per_rank: Size = None,
    tier: TierName = None,
    persistence: Lasting = None,
    buffer: Buffer = None,
    bandwidth: Annotated[str, typer.Option(metavar="RATE", help="of a network card")] = "12.5GB/s",
    cards: Annotated[int, typer.Option(metavar="N", help="network cards of a node")] = 1,
    latency: Annotated[float, typer.Option(metavar="SECONDS", help="of a message, for each link")] = 1e-6,
    target: TargetRate = None,
    json: options.Json = None,
) -> None:  # fmt: skip
    """Place aggregators on a machine that is not here, and predict how long they take, beside ROMIO's placement.

    Tiers of its nodes are those of a file (docs/reference/aggregation.md), or this machine's.
    Touches nothing but --json.
    """
    from outcrop.aggregate.nodes import node_tiers
    from outcrop.aggregate.placement import Network, Target
    from outcrop.aggregate.settings import read_settings
    from outcrop.aggregate.simulate import Scenario, check_ranks, head, table
    from outcrop.aggregate.simulate import simulate as run
    from outcrop.aggregate.topologies import make_topology
    from outcrop.aggregate.workloads import make_patterns

    options.check_output(json, "--json")
    settings = read_settings({"tier": tier, "persistence": persistence, "buffer": buffer})
    if aggregators is None and settings.values["count"]:
        aggregators = settings.values["count"]
        check_ranks(nodes, ranks_per_node, aggregators, settings.origins["count"])
    check_ranks(nodes, ranks_per_node, aggregators)
    made = make_topology(topology, nodes, ranks_per_node)
    patterns = make_patterns(workload, nodes * ranks_per_node, parse_bytes(bytes_per_rank) if bytes_per_rank else None)
    on_nodes = node_tiers(tiers)
    if not 1 <= cards <= MAX_CARDS or not 0 <= latency <= MAX_LATENCY_SECONDS:
        most = f"1 to {MAX_CARDS} cards, and 0 to {MAX_LATENCY_SECONDS:.0f} seconds"
        raise InputError(f"--cards {cards} --latency {latency}: give {most}")
    scenario = Scenario(
        made,
        ranks_per_node,
        on_nodes,
        Network(latency, _rate(bandwidth, "--bandwidth"), cards),
        Target(bytes_per_second=_rate(target, "--target")) if target else on_nodes.shared or Target(),
        settings.placement_options([str(node) for node in range(nodes)]),
        aggregators,
    )
    print("\n".join(head(scenario)))
    found = []
    for simulated in run(scenario, patterns):
        print("\n".join(table(simulated)))
        found.append(simulated.to_json())
    what = {"topology": made.text, "nodes": nodes, "ranks_per_node": ranks_per_node, "simulated": found}
    options.write_json(json, "--json", what)


@agg.command()
def bench(
    directory: options.BenchDirectory = Path("."),
    ranks: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--ranks", metavar="N,...", help="start so many, by mpirun [default: 4,8,16; under mpirun those]"),
    ] = None,
    workload: Annotated[str, typer.Option("--workload", help="s3d, hacc-aos, hacc-soa, hacc (both) or all")] = "all",
    size: Annotated[str, typer.Option("--size", metavar="SIZE", help="of a rank's data")] = "16MiB",
    turns: Annotated[int, typer.Option("--turns", metavar="N", help="how often each is measured")] = 5,
    ways: Annotated[str, typer.Option("--ways", metavar="NAME,...", help="which to measure")] = "outcrop,mpi-io,posix",
    durable: Annotated[str, typer.Option("--durable", help="write so that files survive: yes, no, or both")] = "both",
    json: options.Json = None,
    png: options.Png = None,
) -> None:  # fmt: skip
    """Write and read one file by many ranks, beside MPI-IO and plain system calls, turn about; print the figures."""
    from outcrop.bench.aggregate.bench import BenchRequest
    from outcrop.bench.aggregate.bench import bench as run

    options.check_output(json, "--json")
    options.check_output(png, "--png")
    figures = run(BenchRequest(directory, workload, size, turns, ways, durable), ranks, png)
    if figures:  # of several ranks one has them
        options.write_json(json, "--json", figures)


@agg.command()
def machine(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="to be written; one that exists is replaced")],
    target: Annotated[Path, typer.Option("--target", metavar="DIR", help="where files will be")] = Path(),
    tiers: Declared = None,
    refresh: Annotated[bool, typer.Option("--refresh", help="measure again what is known from before")] = False,
) -> None:
    """Write a machine file: tiers of this node, where files go, network cards, for OUTCROP_AGG_MACHINE.

    Programs in C, Fortran and Python that are given one place aggregators alike. What has not been measured before is
    measured, as by `outcrop tiers`. Distances are of the ranks of a run, and not in it.
    """
    from outcrop.aggregate.nodes import machine_text
    from outcrop.tiers.survey import find_tiers

    options.check_output(file, "FILE")
    found = find_tiers([target], tiers, measure=True, refresh=refresh, progress=_say)
    options.write_file(file, "FILE", machine_text(found, target).encode())
    print(f"{file}: {', '.join(tier.name for tier in found)}")


@agg.command()
def merge(
    index: Annotated[Path, typer.Argument(metavar="INDEX", help="of the files of all nodes: NAME.index")],
    target: Annotated[Path, typer.Argument(metavar="FILE", help="to be made; one that exists is replaced")],
) -> None:
    """Make one file of the files that nodes have written by themselves; those stay."""
    from outcrop.aggregate.file import merge as run

    print(f"{target}: {run(index, target)} bytes")


def _rate(text: str, option: str) -> float:
    amount, slash, unit = text.rpartition("/")
    if not slash or unit.strip() != "s":
        raise InputError(f"{option} {text}: write a bandwidth such as 12.5GB/s")
    return float(parse_bytes(amount))


def _say(text: str) -> None:
    print(f"{text} ...", file=sys.stderr, flush=True)
