"""What a node is like, in words that placement reads: a machine file (core: aggregate/placement/machine_file.hpp).

a file of the user's ──────────────────────────┐
tiers of this node, measured or assumed ──► text ──► with what cannot be used here ──► the same for C and for Python
the file system of the target ────────────────┘
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from outcrop import _core
from outcrop.aggregate.node_tiers import SHARED, TYPICAL, node_tier
from outcrop.errors import InputError
from outcrop.paths import nearest_existing
from outcrop.tiers.declarations import read_text
from outcrop.tiers.storage_tiers import mount_of, mounted_tier
from outcrop.tiers.survey import find_tiers
from outcrop.tiers.tier import Tier

CARDS = ("sys/class/infiniband", "sys/class/cxi")
RESERVED = ("target", "network", "unusable")
"""Tables of a machine file that are no tiers."""
HEAD = """\
# What a node is like, for aggregation: bytes, bytes per second, seconds. Change what is wrong; what a table may have is
# said in the manual, "Aggregation".
"""


def text_of_this_node(file: Path | None, target: Path) -> str:
    """The text of a machine file, or one of the tiers there are, with what cannot be used here. Files will be at
    `target`. Raises InputError for a file that is none."""
    text = machine_text(find_tiers(), target) if file is None else read_text(file, f"machine {file}")
    return _core.aggregate_text_of_this_node(text, name_of(file), str(target))


def name_of(file: Path | None) -> str:
    """For messages."""
    return "this machine" if file is None else str(file)


def machine_text(tiers: Sequence[Tier], target: Path) -> str:
    """Of tiers that can hold buffers, and of the file system at `target`. Raises InputError where there is none."""
    kept = {_name(tier): tier for tier in tiers if tier.kind != SHARED and tier.free_bytes and _is_plain(tier.where)}
    tables = [_tier_table(name, tier) for name, tier in kept.items()]
    return HEAD + "\n" + "\n".join([*tables, _target_table(tiers, target), _table("network", [("cards", cards())])])


def cards(root: Path = Path("/")) -> int:
    """Network cards of this node; at least one."""
    folders = [root / folder for folder in CARDS if (root / folder).is_dir()]
    return max(1, sum(len(os.listdir(folder)) for folder in folders))


def _name(tier: Tier) -> str:
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", tier.name)
    return f"{name}-tier" if name in RESERVED else name


def _is_plain(text: str) -> bool:
    """Whether a machine file can hold it in quotes."""
    return not re.search(r'["\\\n]', text)


def _tier_table(name: str, tier: Tier) -> str:
    found = node_tier(tier)
    return _table(name, [("kind", tier.kind), *_place(tier), *_figures(found.tier.empty_bytes_per_second,
                  found.tier.fill_bytes_per_second, None, found.tier.latency_seconds),
                  ("capacity", found.room_bytes), ("persistence", tier.persistence.name.lower()),
                  ("origin", found.origin)])  # fmt: skip


def _place(tier: Tier) -> Iterator[tuple[str, str]]:
    if tier.directory is not None:
        yield "directory", str(tier.directory.absolute())
    elif tier.kind != "dram":  # ordinary memory lies where the system puts it: near those who touch it first
        yield "nodes", ",".join(map(str, tier.nodes))


def _target_table(tiers: Sequence[Tier], folder: Path) -> str:
    """What is at `folder`, with figures that `outcrop tiers` has measured, or those of its kind."""
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
    figures = _figures(read, write, read_latency, write_latency)
    return _table("target", [("kind", tier.kind), *figures, ("origin", f"{_name(tier)}, {origin}")])


def _figures(
    read: float, write: float, read_latency: float | None, write_latency: float
) -> Iterator[tuple[str, float]]:
    yield from (("read", float(read)), ("write", float(write)))
    if read_latency is not None:
        yield "read_latency", float(read_latency)
    yield "write_latency", float(write_latency)


def _table(name: str, values: Sequence[tuple[str, str | float]]) -> str:
    lines = [f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {value!r}" for key, value in values]
    return "\n".join([f"[{name}]", *lines, ""])
