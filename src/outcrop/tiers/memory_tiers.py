"""This module finds tiers that are NUMA nodes. All memory of nodes with processors is one tier, and all HBM is one
tier. Each node with other memory is a separate tier. Memory that is neither HBM nor near processors is CXL memory, or
non-volatile memory that is used as plain memory.

The kind of a node's memory comes from hwloc or from the driver. If the kind is unknown, a node that is local to
processors is DRAM. A node of unknown kind without processors is HBM if its memory is much faster than the memory of
nodes with processors. The rates of nodes, which are compared to find HBM, come from the firmware or from measurements.
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
"""Memory of unknown kind counts as HBM if its rate is at least FASTER times the rate of local memory. Memory that is
faster than local memory cannot be CXL memory, because CXL memory is slower than DRAM."""
FAR = 1.25
"""The reported sizes of nodes are used if their sum differs from the memory of the machine by at most the factor
FAR."""
KINDS_BY_WORD = {"HBM": "hbm", "MCDRAM": "hbm", "SPM": "hbm", "DRAM": "dram", "NVM": "nvm", "CXL-DRAM": "cxl"}
"""The kind of memory for each word of hwloc and of the DAX driver. SPM is special purpose memory, which the firmware
reports as fast."""
SOURCES = {"hbm": "high-bandwidth memory", "dram": "main memory", "cxl": "memory without processors of its own",
           "nvm": "non-volatile memory as plain memory"}  # fmt: skip


@dataclass(frozen=True)
class MemoryNode:
    """The memory of a NUMA node, and the number of processors that are local to this memory. The figures come from the
    firmware. An unknown figure is 0."""

    number: int
    size_bytes: int
    kind: str
    processors: int
    read_bytes_per_second: float
    write_bytes_per_second: float
    latency_seconds: float


def memory_nodes(topology: str = "") -> list[MemoryNode]:
    """Return the nodes of this machine, or of the machine that `topology` describes in hwloc's notation or as XML.
    Raises InputError for any other text."""
    return [MemoryNode(*node) for node in _core.memory_nodes(topology)]


def memory_tiers(nodes: Sequence[MemoryNode], limit_bytes: int, free_bytes: Callable[[MemoryNode], int]) -> list[Tier]:
    """Return the tiers of the nodes, with the figures of the firmware. No tier is larger than `limit_bytes`."""
    kinds = {node.number: _kind(node, nodes) for node in nodes}
    groups: dict[str, list[MemoryNode]] = {}
    for kind in ("hbm", "dram", "cxl", "nvm"):
        for node in nodes:
            if kinds[node.number] == kind:
                groups.setdefault(_name(node, kind, groups, nodes), []).append(node)
    return [_tier(name, kinds[group[0].number], group, limit_bytes, free_bytes) for name, group in groups.items()]


def believable_nodes(nodes: Sequence[MemoryNode], machine_bytes: int, nodes_of_machine: int) -> list[MemoryNode]:
    """Return copies of `nodes` whose sizes agree with the memory of the machine.

    In virtual machines, the reported size of a node can be wrong. So if there is a single node, it gets all memory of
    the machine. Several nodes keep their sizes if the sum of the sizes is near the memory of the machine. If the sum is
    different, the memory of the machine is divided among the nodes in proportion to the sizes. If all sizes are
    unknown, the memory is divided equally. `nodes_of_machine` also counts nodes that this process cannot use.
    `nodes_of_machine` is 0 if the number is unknown.
    """
    reported = sum(max(0, node.size_bytes) for node in nodes)
    is_all = len(nodes) >= nodes_of_machine
    if len(nodes) > 1 or not is_all:
        low, high = machine_bytes / FAR if is_all else 1, FAR * machine_bytes
        if low <= reported <= high and all(node.size_bytes >= 0 for node in nodes):
            return list(nodes)
    shares = [max(0, node.size_bytes) / reported if reported else 1 / len(nodes) for node in nodes]
    return [replace(node, size_bytes=int(share * machine_bytes)) for node, share in zip(nodes, shares, strict=True)]


def bytes_on(tier: Tier, nbytes: int) -> NDArray[np.uint8]:
    """Return an array of zeros in the memory of the tier's nodes. Raises InputError if the system does not allow this
    process to choose the nodes of the tier."""
    if not _core.is_this_system():  # hwloc simulates another machine, and would neither bind memory nor fail
        raise InputError(f"{tier.name} is memory of the machine that hwloc's variables describe: use it only in plans")
    return _core.memory_on_nodes(nbytes, tier.nodes)


def with_measured_kind(tier: Tier, tiers: Iterable[Tier]) -> Tier:
    """Return the tier. A tier of unknown kind gets the kind HBM if its measured rate is much higher than the rate of
    local memory."""
    local = [one.read_bytes_per_second or 0.0 for one in tiers if one.kind == "dram"]
    is_faster = any(0 < FASTER * rate < (tier.read_bytes_per_second or 0.0) for rate in local)
    if tier.name.startswith("node") and is_faster:
        return replace(tier, kind="hbm", source=SOURCES["hbm"])
    return tier


def _kind(node: MemoryNode, nodes: Sequence[MemoryNode]) -> str:
    if node.kind in KINDS_BY_WORD:
        return KINDS_BY_WORD[node.kind]
    if node.processors > 0:
        return "dram"
    local = max((other.read_bytes_per_second for other in nodes if other.processors > 0), default=0.0)
    return "hbm" if 0 < FASTER * local < node.read_bytes_per_second else "cxl"


def _name(node: MemoryNode, kind: str, groups: dict[str, list[MemoryNode]], nodes: Sequence[MemoryNode]) -> str:
    if kind in ("hbm", "dram"):
        return kind
    if node.kind not in KINDS_BY_WORD and node.read_bytes_per_second == 0:
        # A later measurement can change the kind, but the name must not change. So the name of a tier of unknown kind
        # does not contain the kind.
        return f"node{node.number}"
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
