"""Topologies to simulate: the distances between nodes, and the distance of each node to the target. The unit is a link.

    torus            nearly cubic; or a given shape with any number of axes: torus:4x4x8
    dragonfly        4 nodes on a switch, 96 switches in a group; or other sizes: dragonfly:8x16
    fat-tree         18 nodes on a leaf, 18 leaves in a pod; or other sizes: fat-tree:8x16
    FILE             a line for each rank, `rank: group switch port`; distances as in a dragonfly

Nodes reach the target through gateways. The gateways are every 128th node of a torus, the first switch of each group in
a dragonfly, or the top of a fat tree. A file does not describe gateways. If the topology comes from a file, all nodes
therefore have the same distance to the target: the longest distance from the first node to another node.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count as naturals
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from outcrop import _aggregate
from outcrop.aggregate.distances import DRAGONFLY, PathDistances, tree_links
from outcrop.aggregate.placement import Distances, Floats
from outcrop.errors import InputError
from outcrop.paths import open_regular
from outcrop.units import format_bytes

GATEWAY_NODES = 128
"""The number of nodes of a torus that share a gateway."""
MAX_NODES = 1 << 20
MAX_FILE_BYTES = 1 << 30
_SIZES = re.compile(r"\d{1,9}(x\d{1,9}){0,7}")


@dataclass(frozen=True)
class Topology:
    """A topology of nodes. `text` is a description of the topology. If `node_of_rank` is None, the ranks fill one node
    after the other."""

    text: str
    distances: Distances
    to_target: Floats
    node_of_rank: NDArray[np.uint32] | None = None

    @property
    def nodes(self) -> int:
        return len(self.to_target)


@dataclass(frozen=True)
class TorusDistances:
    """Distances in a torus. Along each axis, the nodes form a ring. The distance along an axis is the number of links
    on the shorter way around the ring. The distance between two nodes is the sum of their distances along all axes.
    The numbers of the nodes increase fastest along the last axis.
    """

    shape: tuple[int, ...]

    def row(self, node: int) -> Floats:
        row = np.zeros(1)
        for length, here in zip(self.shape, np.unravel_index(node, self.shape), strict=True):
            away = np.abs(np.arange(length) - here)
            row = np.add.outer(row, np.minimum(away, length - away)).ravel()
        return row


def make_topology(name: str, nodes: int, ranks_per_node: int) -> Topology:
    """Return the topology with the name `name`, or read the topology from the file with this name. Raises
    InputError."""
    if not 0 < nodes <= MAX_NODES or ranks_per_node < 1:
        each = f"{nodes} nodes with {ranks_per_node} ranks each"
        raise InputError(f"{each}: there must be 1 to {MAX_NODES} nodes, and at least 1 rank on each node")
    kind, colon, sizes = name.partition(":")
    if kind in TOPOLOGIES and (not colon or _SIZES.fullmatch(sizes)):
        return TOPOLOGIES[kind](nodes, tuple(int(size) for size in sizes.split("x")) if sizes else ())
    if kind in TOPOLOGIES:
        raise InputError(f"--topology {name}: write up to eight sizes, separated by x, such as {kind}:4x8")
    return _check(topology_file(Path(name)), nodes, ranks_per_node)


def torus(nodes: int, shape: tuple[int, ...] = ()) -> Topology:
    """Return a torus with the shape `shape`. If no shape is given, return a nearly cubic torus. Raises InputError."""
    shape = shape or near_equal(nodes, 3)
    if math.prod(shape) != nodes:
        raise InputError(f"torus:{_by(shape)} has {math.prod(shape)} nodes, but --nodes is {nodes}")
    distances = TorusDistances(shape)
    to_target = np.full(nodes, np.inf)
    for gateway in range(0, nodes, GATEWAY_NODES):
        np.minimum(to_target, distances.row(gateway) + 1, out=to_target)
    return Topology(f"torus of {_by(shape)} nodes, a gateway for every {GATEWAY_NODES}", distances, to_target)


def dragonfly(nodes: int, sizes: tuple[int, ...] = ()) -> Topology:
    """Return a dragonfly network. `sizes` has the numbers of nodes on a switch and of switches in a group. Raises
    InputError."""
    on_switch, in_group = _two(sizes or (4, 96), "dragonfly", "nodes of a switch and switches of a group")
    paths, groups = _filled(nodes, on_switch, in_group)
    is_gateway = paths[:, 1] == 0
    text = f"dragonfly of {groups} groups, {in_group} switches each, {on_switch} nodes a switch"
    return Topology(text, PathDistances(paths, DRAGONFLY), np.where(is_gateway, 2.0, 3.0))


def fat_tree(nodes: int, sizes: tuple[int, ...] = ()) -> Topology:
    """Return a fat tree. `sizes` has the numbers of nodes on a leaf switch and of leaves in a pod. Raises
    InputError."""
    on_leaf, in_pod = _two(sizes or (18, 18), "fat-tree", "nodes of a leaf and leaves of a pod")
    paths, pods = _filled(nodes, on_leaf, in_pod)
    text = f"fat tree of {pods} pods, {in_pod} leaves each, {on_leaf} nodes a leaf"
    return Topology(text, PathDistances(paths, tree_links(3)), np.full(nodes, 3.0))


TOPOLOGIES: dict[str, Callable[[int, tuple[int, ...]], Topology]] = {
    "torus": torus,
    "dragonfly": dragonfly,
    "fat-tree": fat_tree,
}


def topology_file(path: Path) -> Topology:
    """Return the topology in a file with lines `rank: group switch port`. Ranks at the same port are on the same node.
    Raises InputError.
    """
    try:
        with open_regular(path) as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise InputError(f"it has more than {format_bytes(MAX_FILE_BYTES)}")
        text = data.decode("utf-8")
    except (InputError, OSError, UnicodeDecodeError) as error:
        why = "it is not text" if isinstance(error, UnicodeDecodeError) else str(error)
        known = ", ".join(TOPOLOGIES)
        raise InputError(f"topology {path} must be one of {known}, or a file that can be read: {why}") from None
    return parse_topology(text, str(path))


def parse_topology(text: str, name: str) -> Topology:
    """Return the topology that the text of a file describes. `name` is the name of the file in error messages."""
    nodes: dict[tuple[str, ...], int] = {}
    node_of_rank = [nodes.setdefault(tuple(place), len(nodes)) for place in _aggregate.rank_places(text, name)]
    distances = PathDistances.of(list(nodes), DRAGONFLY)
    to_target = np.full(len(nodes), max(distances.row(0)))
    return Topology(f"{name}, {len(nodes)} nodes", distances, to_target, np.asarray(node_of_rank, np.uint32))


def _check(topology: Topology, nodes: int, ranks_per_node: int) -> Topology:
    assert topology.node_of_rank is not None
    ranks = len(topology.node_of_rank)
    if (topology.nodes, ranks) != (nodes, nodes * ranks_per_node):
        options = f"--nodes {nodes} --ranks-per-node {ranks_per_node}"
        raise InputError(f"{topology.text} and {ranks} ranks, but the options are {options}")
    return topology


def _filled(nodes: int, on_switch: int, in_group: int) -> tuple[NDArray[np.int64], int]:
    """Return the path (group, switch, port) of each node, and the number of groups. The nodes fill one switch after the
    other.
    """
    switches, ports = np.divmod(np.arange(nodes), on_switch)
    groups, switches = np.divmod(switches, in_group)
    return np.stack([groups, switches, ports], axis=1).astype(np.int64), int(groups[-1]) + 1


def _two(sizes: tuple[int, ...], name: str, what: str) -> tuple[int, int]:
    if len(sizes) != 2 or min(sizes) < 1:
        raise InputError(f"{name}:{_by(sizes)} must have two sizes of at least 1: {what}")
    return sizes[0], sizes[1]


def _by(sizes: tuple[int, ...]) -> str:
    return "x".join(map(str, sizes))


def near_equal(count: int, axes: int) -> tuple[int, ...]:
    """Return `axes` factors of `count`, in ascending order. The factors are as equal as possible. Their product is
    `count`.

    The function finds one factor after the other. After each factor, the function divides `count` by this factor. If n
    factors are still missing, the next factor is the largest divisor of `count` that is at most the n-th root of
    `count`.
    """
    assert count > 0 and axes > 0
    factors: list[int] = []
    for left in range(axes, 1, -1):
        root = next(one for one in naturals(1) if (one + 1) ** left > count)
        factors.append(max(one for one in range(1, root + 1) if count % one == 0))
        count //= factors[-1]
    return tuple(sorted([*factors, count]))
