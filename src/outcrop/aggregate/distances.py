"""How far the nodes at hand are from each other: the first provider that knows answers, and says so.

    1  a file of the user's, lines `rank: group switch port`      5  names of hosts that tell where they stand
    2  Slurm: the topology address of each node, or scontrol      6  measured: a ping-pong between nodes
    3  PMIx: coordinates of the fabric                            7  the same node, or another one
    4  (Cray) the name of the node in the machine room

Nothing here looks at the machine: what a provider needs comes in with `Surroundings`, so that all can be tried without
a cluster. A provider returns distances, or a text that says why it has none; what is there but wrong raises InputError.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from outcrop.aggregate.hosts import expand_hosts
from outcrop.aggregate.machine import Distances, Floats
from outcrop.aggregate.paths import DRAGONFLY, PathDistances, tree_links
from outcrop.aggregate.ping_pong import NODES_MOST
from outcrop.aggregate.topologies import topology_file
from outcrop.errors import InputError


@dataclass(frozen=True)
class Surroundings:
    """What is known of the nodes, in the order of their numbers, and how to ask for more.

    `environments` are variables of a rank on each node; `run` gives what a command prints, or None where it fails;
    `ping_pong` measures the seconds of a small message between all nodes, a row for each.
    """

    hosts: Sequence[str]
    node_of_rank: Sequence[int]
    environments: Sequence[Mapping[str, str]] = ()
    file: Path | None = None
    coordinates: Sequence[Sequence[int]] | None = None
    """Of each node in the fabric, as PMIx gives them (pmix.py)."""
    coordinates_refusal: str = ""
    """Why there are none."""
    cray_names: Sequence[str] = ()
    """Of each node: what /etc/cray/xname or /proc/cray_xt/cname holds."""
    run: Callable[[Sequence[str]], str | None] = field(default=lambda command: None)
    ping_pong: Callable[[], Floats] | None = None

    @property
    def nodes(self) -> int:
        """How many there are."""
        return len(self.hosts)


@dataclass(frozen=True)
class TableDistances:
    """A row for each node."""

    table: Floats

    def row(self, node: int) -> Floats:
        """From a node to every node."""
        return np.ascontiguousarray(self.table[node], np.float64)


@dataclass(frozen=True)
class Found:
    """Distances, who knew them, and why those who were asked before did not."""

    distances: Distances
    provider: str
    refusals: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        """One line."""
        asked = "; ".join(f"{name}: {why}" for name, why in self.refusals)
        return f"distances by {self.provider}" + (f" ({asked})" if asked else "")


def find_distances(around: Surroundings) -> Found:
    """By the first provider that knows them. Raises InputError for a file of the user's that cannot be."""
    refusals: list[tuple[str, str]] = []
    for name, provider in PROVIDERS.items():
        answer = provider(around)
        if not isinstance(answer, str):
            return Found(answer, name, tuple(refusals))
        refusals.append((name, answer))
    raise AssertionError("the last provider always answers")


def by_file(around: Surroundings) -> Distances | str:
    """Ranks of a node must be at one place."""
    if around.file is None:
        return "none is named"
    topology = topology_file(around.file)
    assert topology.node_of_rank is not None
    if len(topology.node_of_rank) != len(around.node_of_rank):
        raise InputError(
            f"{around.file} is of {len(topology.node_of_rank)} ranks; there are {len(around.node_of_rank)}"
        )
    places: dict[int, int] = {}
    for rank, (node, place) in enumerate(zip(around.node_of_rank, topology.node_of_rank, strict=True)):
        if places.setdefault(node, int(place)) != place:
            first = list(around.node_of_rank).index(node)
            raise InputError(f"{around.file}: ranks {first} and {rank} are both on {around.hosts[node]}, not apart")
    order = [places[node] for node in range(around.nodes)]
    assert isinstance(topology.distances, PathDistances)
    return PathDistances(topology.distances.paths[order], DRAGONFLY)


def by_slurm(around: Surroundings) -> Distances | str:
    """`SLURM_TOPOLOGY_ADDR` is `s0.s4.node7`; scontrol lists which switch has which nodes."""
    addresses = [one.get("SLURM_TOPOLOGY_ADDR", "") for one in around.environments]
    if len(addresses) == around.nodes and all(addresses):
        paths = [address.split(".") for address in addresses]
        if max(map(len, paths)) > 1:
            return _tree([*path[:-1], host] for path, host in zip(paths, around.hosts, strict=True))
    if not any("SLURM_JOB_ID" in one for one in around.environments):
        return "this is no job of Slurm's"
    listed = around.run(["scontrol", "show", "topology"])
    if not listed:
        return "it knows no topology"
    above = _switches_above(listed)
    missing = next((host for host in around.hosts if host not in above), None)
    return f"no switch has {missing}" if missing else _tree([*above[host], host] for host in around.hosts)


def by_pmix(around: Surroundings) -> Distances | str:
    """Coordinates are taken as a path: the first says most."""
    if around.coordinates is None:
        return around.coordinates_refusal or "it gives no coordinates"
    if len(around.coordinates) != around.nodes or len({len(one) for one in around.coordinates}) != 1:
        return "its coordinates are not of all nodes"
    return _tree([*one, host] for one, host in zip(around.coordinates, around.hosts, strict=True))


def by_cray(around: Surroundings) -> Distances | str:
    """The name of each node in the machine room."""
    if len(around.cray_names) != around.nodes:
        return "nodes have no such names"
    return _by_names(around.cray_names)


def by_hosts(around: Surroundings) -> Distances | str:
    """Names that tell where they stand, as those in NAMES."""
    return _by_names(around.hosts)


def by_ping_pong(around: Surroundings) -> Distances | str:
    """Seconds, as multiples of the shortest between two nodes. Both ways are taken as one; halves are as much as such
    a measurement tells apart."""
    if around.nodes < 3:
        return "there are no three nodes, so nothing is farther than something else"
    if around.nodes > NODES_MOST:
        return f"there are more than {NODES_MOST} nodes, of which every two would have to be asked"
    if around.ping_pong is None:
        return "nobody has measured"
    seconds = np.asarray(around.ping_pong(), np.float64)
    both = (seconds + seconds.T) / 2
    apart = both[~np.eye(around.nodes, dtype=bool)]
    if not (np.isfinite(apart).all() and apart.min() > 0):
        return "it measured nothing"
    both = np.round(2 * both / apart.min()) / 2
    np.fill_diagonal(both, 0)
    return TableDistances(both)


def by_node(around: Surroundings) -> Distances | str:
    """0 within a node, 1 between nodes."""
    return PathDistances(np.arange(around.nodes)[:, None], (1.0, 0.0))


PROVIDERS: dict[str, Callable[[Surroundings], Distances | str]] = {
    "file": by_file,
    "Slurm": by_slurm,
    "PMIx": by_pmix,
    "Cray": by_cray,
    "host names": by_hosts,
    "ping-pong": by_ping_pong,
    "node": by_node,
}
"""In the order in which they are asked."""

NAMES = (
    ("x1000c3s5b1n0", r"x(\d+)c(\d+)s(\d+)b(\d+)n(\d+)"),  # HPE: cabinet, chassis, slot, board, node
    ("c1-0c2s3n1", r"c(\d+-\d+)c(\d+)s(\d+)n(\d+)"),  # Cray XC: cabinet, chassis, slot, node
    ("r1i2n3", r"r(\d+)i(\d+)n(\d+)"),  # SGI ICE: rack, enclosure, node
    ("rack4-node12", r"(?:r|rack)[-_]?(\d+)[-_]?(?:n|node)[-_]?(\d+)"),
)
"""An example, and what all names of a machine must match: parts from the machine room down to the node."""


def _by_names(names: Sequence[str]) -> Distances | str:
    short = [name.split(".")[0] for name in names]
    for _, pattern in NAMES:
        matches = [re.fullmatch(pattern, name) for name in short]
        if all(matches):
            return _tree([*match.groups()[:-1], name] for match, name in zip(matches, short, strict=True) if match)
    return "they tell nothing"


def _tree(paths: Iterable[Sequence[Hashable]]) -> PathDistances:
    """Paths from the top; those that are shorter than others hang at the top of what they lack."""
    listed = [list(path) for path in paths]
    levels = max(map(len, listed))
    full = [[*path[:1]] * (levels - len(path)) + path for path in listed]
    return PathDistances.of(full, tree_links(levels))


def _switches_above(listed: str) -> dict[str, list[str]]:
    """The switches above each node, from the top, of lines `SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[0-3]`."""
    above_node: dict[str, list[str]] = {}
    switches = [dict(re.findall(r"(\w+)=(\S+)", line)) for line in listed.splitlines()]
    switches = [switch for switch in switches if switch.get("SwitchName") and switch.get("Nodes")]
    for switch in sorted(switches, key=lambda one: -int(one.get("Level", "0"))):
        for host in expand_hosts(switch["Nodes"]):
            above_node.setdefault(host, []).append(switch["SwitchName"])
    return above_node
