"""Find the distances between the nodes of a job. Outcrop uses the first of these providers that knows the distances:

    1  Slurm: the topology address of each node, or scontrol      4  host names that tell the position of the host
    2  PMIx: coordinates of the fabric                            5  measured: a ping-pong between nodes
    3  (Cray) the name of the node in the machine room            6  whether two ranks are on the same node

If the user gives a file with lines `rank: group switch port`, Outcrop uses this file and no provider. The C++ core
reads this file.

The nodes are the leaves of a tree of switches. A path leads from the top of the tree to a node. The distance between
two nodes depends on how many first parts their paths have in common:

    group 0 ──┬── switch 0 ──┬── node 0       0, 0, 0
              │              └── node 1       0, 0, 1      shares (0, 0) with node 0: the same switch
              └── switch 1 ───── node 2       0, 1, 0      shares (0)
    group 1 ────── switch 0 ───── node 3      1, 0, 0      shares nothing

One link is the unit of distance. In a dragonfly, each pair of switches in a group has a link, and each pair of groups
has a link. In a fat tree, a connection goes up to the common switch of both nodes and down again.

A provider does not examine the machine. It gets all data from an object of the class `Surroundings`. Therefore tests of
providers need no cluster. A provider returns the distances, or a text that says why it does not know the distances.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from outcrop.aggregate.placement import Distances, Floats

MAX_PING_PONG_NODES = 64
"""The maximum number of nodes for a ping-pong. With more nodes, measuring all pairs of nodes takes too long."""

DRAGONFLY = (5.0, 3.0, 2.0, 0.0)
"""The number of links between two nodes whose paths (group, switch, port) have the same first 0, 1, 2 or 3 parts. The
longest connection is node - switch - switch of the group - switch of the other group - switch - node.
"""


def tree_links(levels: int) -> tuple[float, ...]:
    """Return the distances in a tree. Entry s of the tuple is the distance between two nodes whose paths have exactly
    the first s parts in common. This distance is the number of links from one node up to the common switch, and down to
    the other node.
    """
    return tuple(2.0 * (levels - shared) for shared in range(levels + 1))


@dataclass(frozen=True)
class PathDistances:
    """The distances between nodes in a tree. `paths` has a row for each node. Each row of `paths` has one number for
    each level of the tree, from the top down. `links[s]` is the distance between two nodes whose rows have exactly the
    first s numbers in common.
    """

    paths: NDArray[np.int64]
    links: tuple[float, ...]

    @staticmethod
    def of(paths: Sequence[Sequence[Hashable]], links: tuple[float, ...]) -> PathDistances:
        """Make distances from the paths of all nodes. All paths must have the same length. The parts of a path can have
        any type that can be a key of a dictionary."""
        levels = len(links) - 1
        assert paths and all(len(path) == levels for path in paths)
        numbers = np.empty((len(paths), levels), np.int64)
        for level in range(levels):
            known: dict[Hashable, int] = {}
            numbers[:, level] = [known.setdefault(path[level], len(known)) for path in paths]
        return PathDistances(numbers, links)

    def row(self, node: int) -> Floats:
        same = np.logical_and.accumulate(self.paths == self.paths[node], axis=1)
        distances: Floats = np.asarray(self.links, np.float64)[same.sum(axis=1)]
        return distances


@dataclass(frozen=True)
class PmixAnswer:
    """The answer of the PMIx library: the name of the host, and its coordinates in the network (the fabric). If PMIx
    gives no coordinates, `refusal` is the reason.
    """

    host: str = ""
    coordinates: tuple[int, ...] = ()
    refusal: str = ""


NO_PMIX = PmixAnswer(refusal="MPI has loaded no PMIx library")


@dataclass(frozen=True)
class Facts:
    """The data of one rank: its host, some environment variables, the Cray name of its node, and the answer of PMIx.
    surroundings.py collects these data.
    """

    host: str
    environment: Mapping[str, str] = field(default_factory=dict)
    cray_name: str = ""
    pmix: PmixAnswer = NO_PMIX


@dataclass(frozen=True)
class Surroundings:
    """The data of each node, and two functions that find more data. `run` returns the output of a command, or None if
    the command fails. `ping_pong` returns a table with a row and a column for each node. A value in the table is the
    time, in seconds, of a small message between the node of the row and the node of the column.
    """

    nodes: Sequence[Facts]
    run: Callable[[Sequence[str]], str | None] = field(default=lambda command: None)
    ping_pong: Callable[[], Floats] | None = None

    @property
    def hosts(self) -> list[str]:
        return [node.host for node in self.nodes]


@dataclass(frozen=True)
class TableDistances:
    """Distances from a table with a row and a column for each node."""

    table: Floats

    def row(self, node: int) -> Floats:
        return np.ascontiguousarray(self.table[node], np.float64)


@dataclass(frozen=True)
class Found:
    """The result of find_distances(): the distances, and the name of their provider. `refusals` has the earlier
    providers, and the reasons why they did not know the distances.
    """

    distances: Distances
    provider: str
    refusals: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        asked = "; ".join(f"{name}: {why}" for name, why in self.refusals)
        return f"distances by {self.provider}" + (f" ({asked})" if asked else "")


def find_distances(around: Surroundings) -> Found:
    """Ask the providers for the distances, one after the other. Return the answer of the first provider that knows the
    distances."""
    refusals: list[tuple[str, str]] = []
    for name, provider in PROVIDERS.items():
        answer = provider(around)
        if not isinstance(answer, str):
            return Found(answer, name, tuple(refusals))
        refusals.append((name, answer))
    raise AssertionError("the last provider always answers")


def by_slurm(around: Surroundings) -> Distances | str:
    """Return the distances that follow from the variable `SLURM_TOPOLOGY_ADDR` in the environment of each node. The
    value of this variable is a path such as `s0.s4.node7`. If the variable is missing or names no switch, the function
    uses the list of switches and nodes that scontrol prints.
    """
    addresses = [node.environment.get("SLURM_TOPOLOGY_ADDR", "") for node in around.nodes]
    if all(addresses):
        paths = [address.split(".") for address in addresses]
        if max(map(len, paths)) > 1:
            return _tree([*path[:-1], host] for path, host in zip(paths, around.hosts, strict=True))
    if not any("SLURM_JOB_ID" in node.environment for node in around.nodes):
        return "this job runs without Slurm"
    listed = around.run(["scontrol", "show", "topology"])
    if not listed:
        return "scontrol prints no topology"
    above = _switches_above(listed)
    missing = next((host for host in around.hosts if host not in above), None)
    return f"no switch has the host {missing}" if missing else _tree([*above[host], host] for host in around.hosts)


def by_pmix(around: Surroundings) -> Distances | str:
    """Return distances in a tree. The path of a node consists of the coordinates of the node, from the top of the tree
    down, and the name of its host.
    """
    missing = next((node.pmix for node in around.nodes if not node.pmix.coordinates), None)
    if missing:
        return missing.refusal or "a node has no coordinates"
    if len({len(node.pmix.coordinates) for node in around.nodes}) != 1:
        return "nodes have different numbers of coordinates"
    return _tree([*node.pmix.coordinates, node.host] for node in around.nodes)


def by_cray(around: Surroundings) -> Distances | str:
    """Return the distances that follow from the Cray names of the nodes. A Cray name contains the place of the node in
    the machine room.
    """
    names = [node.cray_name for node in around.nodes]
    return _by_names(names) if all(names) else "the nodes have no Cray names"


def by_hosts(around: Surroundings) -> Distances | str:
    """Return the distances that follow from the names of the hosts. All names must match the same pattern in NAMES."""
    return _by_names(around.hosts)


def by_ping_pong(around: Surroundings) -> Distances | str:
    """Return measured times as distances. Each time is divided by the shortest time between two nodes. The time between
    two nodes is the mean of the times in both directions. The distances are rounded to multiples of 0.5, because the
    measurements cannot show smaller differences.
    """
    nodes = len(around.nodes)
    if nodes < 3:
        return "with fewer than three nodes, all distances are equal"
    if nodes > MAX_PING_PONG_NODES:
        return f"there are more than {MAX_PING_PONG_NODES} nodes, so measuring all pairs takes too long"
    if around.ping_pong is None:
        return "the times between nodes were not measured"
    seconds = np.asarray(around.ping_pong(), np.float64)
    both = (seconds + seconds.T) / 2
    apart = both[~np.eye(nodes, dtype=bool)]
    if not (np.isfinite(apart).all() and apart.min() > 0):
        return "the measured times are not positive"
    both = np.round(2 * both / apart.min()) / 2
    np.fill_diagonal(both, 0)
    return TableDistances(both)


def by_node(around: Surroundings) -> Distances | str:
    """Return the distance 0 within a node, and the distance 1 between different nodes."""
    return PathDistances(np.arange(len(around.nodes))[:, None], (1.0, 0.0))


PROVIDERS: dict[str, Callable[[Surroundings], Distances | str]] = {
    "Slurm": by_slurm,
    "PMIx": by_pmix,
    "Cray": by_cray,
    "host names": by_hosts,
    "ping-pong": by_ping_pong,
    "node": by_node,
}
"""All providers, in the order of their priority."""

NAMES = (
    ("x1000c3s5b1n0", r"x(\d+)c(\d+)s(\d+)b(\d+)n(\d+)"),  # HPE: cabinet, chassis, slot, board, node
    ("c1-0c2s3n1", r"c(\d+-\d+)c(\d+)s(\d+)n(\d+)"),  # Cray XC: cabinet, chassis, slot, node
    ("r1i2n3", r"r(\d+)i(\d+)n(\d+)"),  # SGI ICE: rack, enclosure, node
    ("rack4-node12", r"(?:r|rack)[-_]?(\d+)[-_]?(?:n|node)[-_]?(\d+)"),
)
"""Examples and patterns of host names. The groups of a pattern match the parts of the path, from the top of the tree
down.
"""


def _by_names(names: Sequence[str]) -> Distances | str:
    short = [name.split(".")[0] for name in names]
    for _, pattern in NAMES:
        matches = [re.fullmatch(pattern, name) for name in short]
        if all(matches):
            return _tree([*match.groups()[:-1], name] for match, name in zip(matches, short, strict=True) if match)
    return "the names match no known pattern"


def _tree(paths: Iterable[Sequence[Hashable]]) -> PathDistances:
    """Return the distances between the nodes with the paths `paths`. Each path begins at the top of the tree. To make
    all paths equally long, the function puts copies of its first part in front of a shorter path.
    """
    listed = [list(path) for path in paths]
    levels = max(map(len, listed))
    full = [[*path[:1]] * (levels - len(path)) + path for path in listed]
    return PathDistances.of(full, tree_links(levels))


def _switches_above(listed: str) -> dict[str, list[str]]:
    """Return the switches above each node, from the top of the tree down. For example, a line of `listed` is
    `SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[0-3]`.
    """
    above_node: dict[str, list[str]] = {}
    switches = [dict(re.findall(r"(\w+)=(\S+)", line)) for line in listed.splitlines()]
    switches = [switch for switch in switches if switch.get("SwitchName") and switch.get("Nodes")]
    for switch in sorted(switches, key=lambda one: -int(one.get("Level", "0"))):
        for host in expand_hosts(switch["Nodes"]):
            above_node.setdefault(host, []).append(switch["SwitchName"])
    return above_node


def expand_hosts(text: str) -> list[str]:
    """Return all hosts in a list such as "n[08-10],login", in the order of the list. Numbers keep their leading zeros.
    """
    return [host for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text) for host in _expand(part)]


def _expand(part: str) -> Iterator[str]:
    match = re.fullmatch(r"([^\[]*)\[([^\]]*)\](.*)", part)
    if not match:
        yield part
        return
    head, ranges, tail = match.groups()
    for one in ranges.split(","):
        first, _, last = one.partition("-")
        for number in range(int(first), int(last or first) + 1):
            for rest in _expand(tail):
                yield f"{head}{number:0{len(first)}d}{rest}"
