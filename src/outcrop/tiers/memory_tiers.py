"""NUMA nodes as tiers. Of the memory that is ordinary to any processors there is one tier, and one of all HBM; memory
beside it (CXL, non-volatile memory used as plain memory) is a tier for each node.

What a node is made of: what hwloc or the driver calls it. Where they are silent, it is DRAM if it is the ordinary
memory of any processors; of other memory, what is much faster than that is HBM, by the firmware's figures or measured
ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from outcrop import _core
from outcrop.errors import InputError
from outcrop.tiers.tier import Persistence, Tier

FASTER = 1.5
"""Memory that is faster than ordinary memory by this factor is HBM. CXL memory is slower than DRAM."""
FAR = 1.25
"""The sizes of nodes are believed if their sum is within this factor of the memory of the machine."""
KINDS_BY_WORD = {"HBM": "hbm", "MCDRAM": "hbm", "SPM": "hbm", "DRAM": "dram", "NVM": "nvm", "CXL-DRAM": "cxl"}
"""Kinds by the words of hwloc and the DAX driver. SPM, special purpose memory, is set apart by firmware as fast."""
SOURCES = {"hbm": "high-bandwidth memory", "dram": "main memory", "cxl": "memory without processors of its own",
           "nvm": "non-volatile memory as plain memory"}  # fmt: skip


@dataclass(frozen=True)
class MemoryNode:
    """Memory of one NUMA node, and to how many processors it is the ordinary one. Figures are the firmware's, 0 where
    it is silent."""

    number: int
    size_bytes: int
    kind: str
    processors: int
    read_bytes_per_second: float
    write_bytes_per_second: float
    latency_seconds: float


def memory_nodes(topology: str = "") -> list[MemoryNode]:
    """The nodes of this machine, or of a `topology` in hwloc's notation or XML. Raises InputError for other text."""
    return [MemoryNode(*node) for node in _core.memory_nodes(topology)]


def memory_tiers(nodes: Sequence[MemoryNode], limit_bytes: int, free_bytes: Callable[[MemoryNode], int]) -> list[Tier]:
    """The tiers of the nodes, none larger than the limit, with the figures of the firmware."""
    kinds = {node.number: _kind(node, nodes) for node in nodes}
    groups: dict[str, list[MemoryNode]] = {}
    for kind in ("hbm", "dram", "cxl", "nvm"):
        for node in nodes:
            if kinds[node.number] == kind:
                groups.setdefault(_name(node, kind, groups, nodes), []).append(node)
    return [_tier(name, kinds[group[0].number], group, limit_bytes, free_bytes) for name, group in groups.items()]


def believable_nodes(nodes: Sequence[MemoryNode], machine_bytes: int, nodes_of_machine: int) -> list[MemoryNode]:
    """The nodes with sizes that fit the memory of the machine.

    One node has all of it: its own figure may be far off in virtual machines. Several nodes keep theirs, unless
    together they are far from the whole, more or less; then the whole is shared in the proportion that they say, or
    equally. `nodes_of_machine` counts those that this process may not use, too, whose memory is missing here; 0 is
    unknown.
    """
    told = sum(max(0, node.size_bytes) for node in nodes)
    is_all = len(nodes) >= nodes_of_machine
    if len(nodes) > 1 or not is_all:
        most, least = FAR * machine_bytes, machine_bytes / FAR if is_all else 1
        if least <= told <= most and all(node.size_bytes >= 0 for node in nodes):
            return list(nodes)
    shares = [max(0, node.size_bytes) / told if told else 1 / len(nodes) for node in nodes]
    return [replace(node, size_bytes=int(share * machine_bytes)) for node, share in zip(nodes, shares, strict=True)]


def bytes_on(tier: Tier, nbytes: int) -> NDArray[np.uint8]:
    """Zeros in the memory of the tier's nodes. Raises InputError if the system does not allow that."""
    if not _core.is_this_system():  # hwloc would bind nothing, and say it had
        raise InputError(f"{tier.name} is memory of another machine, by hwloc's variables: it is there for plans only")
    return _core.memory_on_nodes(nbytes, tier.nodes)


def with_measured_kind(tier: Tier, tiers: Iterable[Tier]) -> Tier:
    """The tier. Memory of an unknown kind becomes HBM if it was measured to be much faster than ordinary memory."""
    ordinary = [one.read_bytes_per_second or 0.0 for one in tiers if one.kind == "dram"]
    is_faster = any(0 < FASTER * rate < (tier.read_bytes_per_second or 0.0) for rate in ordinary)
    if tier.name.startswith("node") and is_faster:
        return replace(tier, kind="hbm", source=SOURCES["hbm"])
    return tier


def _kind(node: MemoryNode, nodes: Sequence[MemoryNode]) -> str:
    if node.kind in KINDS_BY_WORD:
        return KINDS_BY_WORD[node.kind]
    if node.processors > 0:
        return "dram"
    ordinary = max((other.read_bytes_per_second for other in nodes if other.processors > 0), default=0.0)
    return "hbm" if 0 < FASTER * ordinary < node.read_bytes_per_second else "cxl"


def _name(node: MemoryNode, kind: str, groups: dict[str, list[MemoryNode]], nodes: Sequence[MemoryNode]) -> str:
    if kind in ("hbm", "dram"):
        return kind
    if node.kind not in KINDS_BY_WORD and node.read_bytes_per_second == 0:
        return f"node{node.number}"  # what it is may turn out when it is measured; its name stays
    return f"{kind}{sum(name.startswith(kind) for name in groups)}"


def _tier(
    name: str, kind: str, group: list[MemoryNode], limit_bytes: int, free_bytes: Callable[[MemoryNode], int]
) -> Tier:
    def together(values: Iterable[float]) -> float | None:
        known = list(values)
        return sum(known) if all(known) else None

    read = together(node.read_bytes_per_second for node in group)
    latencies = [node.latency_seconds for node in group]
    capacity = min(limit_bytes, sum(node.size_bytes for node in group))
    return Tier(
        name=name,
        kind=kind,
        where=("node " if len(group) == 1 else "nodes ") + ",".join(str(node.number) for node in group),
        capacity_bytes=capacity,
        free_bytes=min(capacity, sum(free_bytes(node) for node in group)),
        persistence=Persistence.PROCESS,
        primitive="none",
        origin="firmware" if read else "not measured",
        read_bytes_per_second=read,
        write_bytes_per_second=together(node.write_bytes_per_second for node in group),
        latency_seconds_read=max(latencies) if all(latencies) else None,
        latency_seconds_flush=0.0,
        source=SOURCES[kind],
    )
