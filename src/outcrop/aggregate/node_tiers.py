"""Tiers of the nodes that are simulated: those that a file declares, or those of this machine.

The file is that of `outcrop tiers` (docs/how-to/tiers.md). Its tiers need not exist on this machine, so nothing is
measured: `kind` says what a tier is, and `capacity`, `read` and `write` are required.

    [hbm]
    kind = "hbm"              as `outcrop tiers` has it; "disk" when left out
    capacity = "16GiB"        of a node
    read = "180GB/s"
    write = "180GB/s"
    read_latency = 1e-7       seconds; so for write_latency; 0 when left out
    persistence = "process"   that of the kind when left out

One of kind "pfs" holds no buffers: it is what all nodes write to, and its figures are of all of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from outcrop.aggregate.machine import BufferTier, Target
from outcrop.errors import InputError
from outcrop.tiers.declarations import BANDWIDTHS, LATENCIES, Table, parse_table, read_text
from outcrop.tiers.survey import find_tiers
from outcrop.tiers.tier import KINDS, MEMORY_KINDS, Persistence, Tier

SHARED = "pfs"


@dataclass(frozen=True)
class Typical:
    """Bytes per second and seconds where nothing is known of a tier but its kind."""

    bytes_per_second: float
    latency_seconds: float


TYPICAL = {
    "hbm": Typical(180e9, 1.5e-7),
    "dram": Typical(90e9, 1e-7),
    "cxl": Typical(25e9, 3e-7),
    "nvm": Typical(8e9, 4e-7),
    "dax": Typical(8e9, 4e-7),
    "nvme": Typical(2e9, 2e-5),
    "ssd": Typical(5e8, 1e-4),
    "hdd": Typical(1.5e8, 8e-3),
    "disk": Typical(1e9, 1e-4),
    "tmpfs": Typical(5e9, 1e-6),
    "pfs": Typical(1e11, 1e-3),
}
"""Orders of magnitude; HBM and DRAM as in the table that the cost model was published with."""


@dataclass(frozen=True)
class NodeTier:
    """A tier, what buffers may take of it on each node, and where its figures are from."""

    tier: BufferTier
    room_bytes: int
    origin: str


@dataclass(frozen=True)
class NodeTiers:
    """All that can hold buffers, memory first, and what is shared by all nodes, where it is known."""

    tiers: tuple[NodeTier, ...]
    shared: Target | None


def node_tiers(file: Path | None) -> NodeTiers:
    """Those of a file, or of this machine. Raises InputError."""
    found = find_tiers() if file is None else parse_node_tiers(read_text(file, f"tiers {file}"), str(file))
    tiers = tuple(node_tier(tier) for tier in found if tier.kind != SHARED and tier.free_bytes)
    shared = next((_target(tier) for tier in found if tier.kind == SHARED), None)
    if not tiers:
        raise InputError(f"{file or 'this machine'}: no tier of a node has room for buffers; declare one with --tiers")
    return NodeTiers(tiers, shared)


def parse_node_tiers(text: str, file: str) -> list[Tier]:
    """Tiers that `text` declares; `file` is its name, for messages. Raises InputError for what cannot be."""
    top = parse_table(text, file)
    return sorted((_declared(top.table(name), name) for name in top.names()), key=lambda tier: not tier.is_memory)


def _declared(table: Table, name: str) -> Tier:
    kind = table.text("kind", f"one of {', '.join(KINDS)}") if table.has("kind") else "disk"
    if kind not in KINDS:
        raise table.wrong("kind", f"one of {', '.join(KINDS)}")
    where = table.text("directory", "a directory") if table.has("directory") else "node"
    capacity = table.size("capacity")
    needed = {BANDWIDTHS[key]: table.bandwidth(key) for key in ("read", "write")}
    figures = {field: table.bandwidth(key) for key, field in BANDWIDTHS.items() if table.has(key)}
    figures |= {field: table.seconds(key) for key, field in LATENCIES.items() if table.has(key)}
    lasts = _of_kind(kind)
    if table.has("persistence"):
        words = [one.name.lower() for one in Persistence]
        right = f"one of {', '.join(words)}"
        if table.text("persistence", right) not in words:
            raise table.wrong("persistence", right)
        lasts = Persistence[table.text("persistence", right).upper()]
    if lasts > _of_kind(kind):
        raise table.wrong("persistence", f"at most {_of_kind(kind).name.lower()} for {kind}")
    table.refuse_other_keys()
    tier = Tier(
        "declared", name=name, kind=kind, where=where, capacity_bytes=capacity, free_bytes=capacity,
        persistence=lasts, primitive="none",
    )  # fmt: skip
    return replace(tier, **(needed | figures))  # type: ignore[arg-type]


def _of_kind(kind: str) -> Persistence:
    """How long it lasts at most."""
    if kind in MEMORY_KINDS:
        return Persistence.PROCESS
    return Persistence.REBOOT if kind == "tmpfs" else Persistence.PERMANENT


def node_tier(tier: Tier) -> NodeTier:
    """For buffers, with what is typical of its kind where nothing is known."""
    typical = TYPICAL[tier.kind]
    read, write, latency = tier.read_bytes_per_second, tier.write_bytes_per_second, tier.latency_seconds_write
    latency = tier.latency_seconds_read if latency is None else latency
    is_known = read is not None and write is not None
    buffer = BufferTier(
        tier.name,
        (0.0 if tier.origin == "declared" else typical.latency_seconds) if latency is None else latency,
        write or typical.bytes_per_second,
        read or typical.bytes_per_second,
        tier.persistence,
    )
    return NodeTier(buffer, tier.free_bytes, tier.origin if is_known else f"assumed for {tier.kind}")


def _target(tier: Tier) -> Target:
    typical = TYPICAL[SHARED]
    latency = tier.latency_seconds_write
    return Target(
        typical.latency_seconds if latency is None else latency,
        tier.write_bytes_per_second or typical.bytes_per_second,
    )
