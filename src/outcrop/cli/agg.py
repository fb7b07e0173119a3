"""`outcrop agg`: commands for aggregation, in which many ranks write one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option, Typer

from outcrop.cli import options
from outcrop.cli.tiers import Declared, Refresh, shown_progress
from outcrop.errors import InputError
from outcrop.units import parse_bytes

MAX_CARDS = 10**6
MAX_LATENCY_SECONDS = 86400.0

agg = Typer(cls=options.CommandGroup, help="Aggregation: many ranks, one file.", rich_markup_mode=None)


@agg.command()
def simulate(
    topology: Annotated[
        str, Option(metavar="NAME", help="torus, dragonfly or fat-tree, also with sizes such as torus:4x4x8; "
                    "or a file of lines `rank: group switch port`")
    ],
    nodes: Annotated[int, Option(metavar="N", help="number of nodes")],
    ranks_per_node: Annotated[int, Option(metavar="R", help="number of ranks on each node")],
    workload: Annotated[str, Option(help="s3d, hacc (both layouts), hacc-aos or hacc-soa")],
    tiers: Declared = None,
    aggregators: Annotated[
        int | None, Option(metavar="N", help="number of aggregators [default: the number predicted to be fastest]")
    ] = None,
    bytes_per_rank: Annotated[
        str | None, Option(metavar="SIZE", help="bytes that each rank writes [default: set by --workload]")
    ] = None,
    tier: Annotated[
        str | None, Option(metavar="NAME", help="tier of the buffers [default: the tier with the lowest cost]")
    ] = None,
    persistence: Annotated[
        str | None, Option(metavar="HOW", help="minimum persistence of the buffers: process, reboot, job or permanent")
    ] = None,
    buffer: Annotated[
        str | None, Option(metavar="SIZE", help="size of each of the two buffers of an aggregator [default: 16MiB]")
    ] = None,
    bandwidth: Annotated[str, Option(metavar="RATE", help="bandwidth of a network card")] = "12.5GB/s",
    cards: Annotated[int, Option(metavar="N", help="number of network cards of a node")] = 1,
    latency: Annotated[float, Option(metavar="SECONDS", help="latency of a message on each link")] = 1e-6,
    target: Annotated[
        str | None, Option(metavar="RATE", help="bandwidth of the shared file system for all ranks together "
                           "[default: not limited]")
    ] = None,
    json: options.Json = None,
) -> None:  # fmt: skip
    """Place aggregators on a simulated machine, predict the time of a write, and compare with ROMIO's placement.

    With --tiers, a file describes the tiers of the nodes (docs/reference/aggregation.md). Without --tiers, the
    simulated nodes have the tiers of this machine. `outcrop agg simulate` writes a file only with --json.
    """
    from outcrop.aggregate.nodes import node_tiers
    from outcrop.aggregate.placement import Network, Target
    from outcrop.aggregate.plan import read_settings
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
    network = make_topology(topology, nodes, ranks_per_node)
    patterns = make_patterns(workload, nodes * ranks_per_node, parse_bytes(bytes_per_rank) if bytes_per_rank else None)
    on_nodes = node_tiers(tiers)
    if not 1 <= cards <= MAX_CARDS or not 0 <= latency <= MAX_LATENCY_SECONDS:
        valid = f"1 to {MAX_CARDS} cards, and 0 to {MAX_LATENCY_SECONDS:.0f} seconds"
        raise InputError(f"--cards {cards} --latency {latency}: give {valid}")
    scenario = Scenario(
        network,
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
    what = {"topology": network.text, "nodes": nodes, "ranks_per_node": ranks_per_node, "simulated": found}
    options.write_json(json, "--json", what)


@agg.command()
def bench(
    directory: options.BenchDirectory = Path("."),
    ranks: Annotated[
        str | None, Option(metavar="N,...", help="numbers of ranks that are started with mpirun [default: 4,8,16; "
                           "under mpirun, the ranks that it has started]")
    ] = None,
    workload: Annotated[str, Option(help="s3d, hacc-aos, hacc-soa, hacc (both) or all")] = "all",
    size: Annotated[str, Option(metavar="SIZE", help="number of bytes of each rank")] = "16MiB",
    turns: Annotated[int, Option(metavar="N", help="number of repeats")] = 5,
    ways: Annotated[str, Option(metavar="NAME,...", help="methods to measure")] = "outcrop,mpi-io,posix",
    durable: Annotated[str, Option(help="flush the files after writing: yes, no, or both (measure both)")] = "both",
    json: options.Json = None,
    png: options.Png = None,
) -> None:  # fmt: skip
    """Measure how fast many ranks write and read one file: with Outcrop, MPI-IO and plain system calls, alternately.

    The command prints the figures.
    """
    from outcrop.bench.aggregate.bench import BenchRequest
    from outcrop.bench.aggregate.bench import bench as run

    options.check_output(json, "--json")
    options.check_picture(png, "--png", (".png",))
    figures = run(BenchRequest(directory, workload, size, turns, ways, durable), ranks, png)
    if figures:  # only the first rank returns figures
        options.write_json(json, "--json", figures)


@agg.command()
def machine(
    file: Annotated[Path, Argument(metavar="FILE", help="the file to write; an existing file is replaced")],
    target: Annotated[Path, Option(metavar="DIR", help="the directory of the shared files")] = Path(),
    tiers: Declared = None,
    refresh: Refresh = False,
) -> None:
    """Write a machine file for OUTCROP_AGG_MACHINE: the tiers of this node, the target of the files, the network cards.

    Programs in C, Fortran and Python that use the same machine file choose the same ranks as aggregators. As in
    `outcrop tiers`, tiers that have not been measured before are measured. A machine file does not contain the
    distances between ranks.
    """
    from outcrop.aggregate.nodes import machine_text
    from outcrop.tiers.survey import find_tiers

    options.check_output(file, "FILE")
    with shown_progress() as progress:
        found = find_tiers([target], tiers, measure=True, refresh=refresh, progress=progress)
    options.write_file(file, "FILE", machine_text(found, target).encode())
    print(f"{file}: {', '.join(tier.name for tier in found)}")


@agg.command()
def merge(
    index: Annotated[Path, Argument(metavar="INDEX", help="the index of the node files: NAME.index")],
    target: Annotated[Path, Argument(metavar="FILE", help="the file to write; an existing file is replaced")],
) -> None:
    """Join the files that nodes have written separately into one file. The separate files are kept."""
    from outcrop.aggregate.file import merge as run

    print(f"{target}: {run(index, target)} bytes")


def _rate(text: str, option: str) -> float:
    amount, slash, unit = text.rpartition("/")
    if not slash or unit.strip() != "s":
        raise InputError(f"{option} {text}: write a bandwidth such as 12.5GB/s")
    return float(parse_bytes(amount))
