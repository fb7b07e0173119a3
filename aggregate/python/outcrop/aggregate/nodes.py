"""Describe nodes for placement: their tiers, the target of files, and the distances between nodes.

    tiers of this node, measured or assumed ──► machine_text ──┐
    a machine file ────────────────────────────────────────────┴─► KnownMachine ──► the core's plan
    distances, from the first provider that knows them ────────────┘
    a file for `outcrop agg simulate`, or this node's tiers ──► node_tiers; the nodes need not exist

The core reads machine files. aggregate/core/outcrop/aggregate/placement/machine.hpp describes the format of machine
files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outcrop import _aggregate
from outcrop.aggregate.distances import MAX_PING_PONG_NODES, Found, find_distances
from outcrop.aggregate.placement import BufferTier, Distances, Floats, Target
from outcrop.aggregate.ranks import Ranks
from outcrop.aggregate.surroundings import facts_here, surroundings_of
from outcrop.errors import InputError
from outcrop.paths import nearest_existing
from outcrop.tiers.declarations import read_text
from outcrop.tiers.storage_tiers import mount_of, mounted_tier
from outcrop.tiers.survey import find_tiers
from outcrop.tiers.tier import Persistence, Tier

SHARED = "pfs"


@dataclass(frozen=True)
class Typical:
    """The bandwidth and latency that Outcrop assumes for a kind of tier."""

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
"""Only the order of magnitude of these figures is right. The figures of HBM and DRAM are from the paper on the cost
model (placement/cost.hpp).
"""


@dataclass(frozen=True)
class NodeTier:
    """A tier of the nodes. `room_bytes` is the number of bytes that buffers may use on each node. `origin` says whether
    the rates were measured, declared or assumed.
    """

    tier: BufferTier
    room_bytes: int
    origin: str


@dataclass(frozen=True)
class NodeTiers:
    """The tiers that can hold buffers. `shared` is the file system that all nodes share, or None if it is not known."""

    tiers: tuple[NodeTier, ...]
    shared: Target | None


CARDS = ("sys/class/infiniband", "sys/class/cxi")
RESERVED = ("target", "network", "unusable")
"""Tables of a machine file that are not tiers."""
HEAD = """\
# The description of a node, for aggregation. Sizes are in bytes, rates in bytes per second, and times in seconds.
# Correct the values that are wrong. The page "Aggregation" of the manual explains all keys.
"""


@dataclass(frozen=True)
class KnownMachine:
    """The data of one rank about the machine, in the form that the core needs. On the first rank of each node,
    `node_text` is the content of a machine file. If the first rank has no such text, `problem` is the reason.
    `Plan.explain` shows `lines`.
    """

    node_text: str
    problem: str
    host: str
    distances: Distances | None
    distances_known: str
    lines: Sequence[str]


def known_machine(ranks: Ranks, settings: _aggregate.Settings) -> KnownMachine:
    """Return the data that this rank has about the machine. All ranks must call this function with equal settings.
    Raises InputError.
    """
    values = settings.values
    text, problem = "", ""
    if ranks.rank == ranks.node:
        try:
            text = _node_text(Path(values["machine"]) if values["machine"] else None, Path(values["target"]))
        except InputError as error:
            problem = str(error)
    facts = facts_here()
    found = None if values["topology"] else _find_distances(ranks, facts)
    lines = []
    if values["transport"] == "rma":
        obstacle = ranks.use_rma()
        lines = ["between nodes: " + (f"messages, because rma does not work: {obstacle}" if obstacle else "rma")]
    return KnownMachine(text, problem, facts.host, found.distances if found else None, str(found), lines)


def _node_text(file: Path | None, target: Path) -> str:
    return machine_text(find_tiers(), target) if file is None else read_text(file, f"machine {file}")


def text_of_this_node(file: Path | None, target: Path) -> str:
    """If `file` is None, return a text that describes this node. Otherwise return the text of the machine file `file`.
    The core adds a table of the tiers that this node cannot use. The table gives the reasons. If the text has no
    target, the core also adds a target. Raises InputError for an invalid file.
    """
    name = "this machine" if file is None else str(file)
    return _aggregate.text_of_this_node(_node_text(file, target), name, str(target))


def _find_distances(ranks: Ranks, facts: Any) -> Found:
    """Return the distances that the first possible provider gives. All ranks must call this function, and all ranks get
    the same result.
    """
    everyone = ranks.gather((ranks.node, facts))
    leaders = sorted({node for node, _ in everyone})
    node_of_rank = [leaders.index(node) for node, _ in everyone]

    def find(ping_pong: Callable[[], Floats] | None = None) -> Found:
        around = surroundings_of([facts for _, facts in everyone], node_of_rank, ping_pong)
        return _of_first(ranks, lambda: find_distances(around))

    found = find()
    if found.provider == "node" and 2 < len(leaders) <= MAX_PING_PONG_NODES:
        seconds = ranks.ping_pong(leaders)
        found = find(lambda: seconds)
    return found


def _of_first(ranks: Ranks, make: Callable[[], Found]) -> Found:
    """Call `make` on rank 0. All ranks return the result of this call. If `make` raises InputError, all ranks raise
    this error."""
    made, problem = None, ""
    if ranks.rank == 0:
        try:
            made = make()
        except InputError as error:
            problem = str(error)
    made, problem = ranks.gather((made, problem))[0]
    if made is None:
        raise InputError(problem)
    return made


def node_tiers(file: Path | None) -> NodeTiers:
    """Return the tiers of the machine file `file`. If `file` is None, return the tiers of this machine. Raises
    InputError if no tier has room for buffers.
    """
    if file is None:
        found = find_tiers()
        tiers = tuple(node_tier(tier) for tier in found if tier.kind != SHARED and tier.free_bytes)
        shared = next((tier for tier in found if tier.kind == SHARED), None)
        target = _target(shared.latency_seconds_write, shared.write_bytes_per_second) if shared else None
    else:
        tiers, target = parse_node_tiers(read_text(file, f"tiers {file}"), str(file))
    if not tiers:
        raise InputError(f"{file or 'this machine'}: no tier of a node has room for buffers; declare one with --tiers")
    return NodeTiers(tiers, target)


def parse_node_tiers(text: str, file: str) -> tuple[tuple[NodeTier, ...], Target | None]:
    """Return the tiers and the target in the text of a machine file. The described machine need not exist. Raises
    InputError for invalid values.
    """
    listed, target = _aggregate.parse_node(text, file)
    tiers = tuple(
        NodeTier(BufferTier(name, latency, fill, empty, Persistence(lasts)), room, origin)
        for name, latency, fill, empty, lasts, _, room, origin in listed
        if room
    )
    return tiers, None if target is None else _target(*target)


def node_tier(tier: Tier) -> NodeTier:
    """Return `tier` in the form of a tier for buffers. If a figure of the tier is unknown, it comes from TYPICAL."""
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


def _target(latency_seconds: float | None, bytes_per_second: float | None) -> Target:
    typical = TYPICAL[SHARED]
    return Target(latency_seconds or typical.latency_seconds, bytes_per_second or typical.bytes_per_second)


def machine_text(tiers: Sequence[Tier], target: Path) -> str:
    """Return the text of a machine file for this node. The text describes the tiers that can hold buffers, and the file
    system at `target`. Raises InputError.
    """
    kept = {_name(tier): tier for tier in tiers if tier.kind != SHARED and tier.free_bytes and _is_plain(tier.where)}
    tables = [_tier_table(name, tier) for name, tier in kept.items()]
    return HEAD + "\n" + "\n".join([*tables, _target_table(tiers, target), _table("network", cards=cards())])


def cards(root: Path = Path("/")) -> int:
    """Return the number of network cards of this node. The number is at least 1."""
    folders = [root / folder for folder in CARDS if (root / folder).is_dir()]
    return max(1, sum(len(os.listdir(folder)) for folder in folders))


def _name(tier: Tier) -> str:
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", tier.name)
    return f"{name}-tier" if name in RESERVED else name


def _is_plain(text: str) -> bool:
    """Return whether `text` can be written in quotes in a machine file."""
    return not re.search(r'["\\\n]', text)


def _tier_table(name: str, tier: Tier) -> str:
    found = node_tier(tier)
    return _table(
        name,
        kind=tier.kind,
        directory=str(tier.directory.absolute()) if tier.directory is not None else None,
        # The table of DRAM names no NUMA nodes. The system allocates DRAM near the thread that first accesses it.
        nodes=None if tier.directory is not None or tier.kind == "dram" else ",".join(map(str, tier.nodes)),
        read=float(found.tier.empty_bytes_per_second),
        write=float(found.tier.fill_bytes_per_second),
        write_latency=float(found.tier.latency_seconds),
        capacity=found.room_bytes,
        persistence=tier.persistence.name.lower(),
        origin=found.origin,
    )


def _target_table(tiers: Sequence[Tier], folder: Path) -> str:
    """Return the table of a machine file that describes the file system at `folder`. If `outcrop tiers` has measured
    this file system, the table has the measured figures. Otherwise it has typical figures.
    """
    try:
        tier = mounted_tier(mount_of(nearest_existing(folder)))
    except OSError as error:
        raise InputError(f"target {folder}: {error.strerror}") from None
    tier = next((one for one in tiers if one.name == tier.name), tier)
    typical = TYPICAL[tier.kind]
    rates = tier.read_bytes_per_second, tier.write_bytes_per_second
    latencies = tier.latency_seconds_read, tier.latency_seconds_write
    read, write = (rate or typical.bytes_per_second for rate in rates)
    read_latency, write_latency = (typical.latency_seconds if one is None else one for one in latencies)
    origin = tier.origin if all(rates) else f"assumed for {tier.kind}"
    return _table(
        "target",
        kind=tier.kind,
        read=float(read),
        write=float(write),
        read_latency=float(read_latency),
        write_latency=float(write_latency),
        origin=f"{_name(tier)}, {origin}",
    )


def _table(name: str, **values: str | float | None) -> str:
    """Return the text of one table of a machine file. The table has no keys whose values are None."""
    lines = [
        f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {value!r}"
        for key, value in values.items()
        if value is not None
    ]
    return "\n".join([f"[{name}]", *lines, ""])
