"""Tiers that the user declares, in a TOML file: one table each, whose name is the tier's.

    [scratch]
    directory = "/scratch/me"
    capacity = "200GiB"       a quota: what may be in that directory in all; that of the file system when left out
    persistence = "job"       process, reboot, job or permanent; that of the file system when left out
    read = "2GB/s"            so for write, random_read and random_write; measured where left out
    read_latency = 1e-4       seconds; so for write_latency and flush_latency

The file is that of --tiers, or of $OUTCROP_TIERS, or ~/.config/outcrop/tiers.toml where there is one.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from outcrop.errors import InputError
from outcrop.tiers.mounts import is_folder, mount_of
from outcrop.tiers.storage_tiers import mounted_tier
from outcrop.tiers.tier import MEMORY_KINDS, Persistence, Tier
from outcrop.tiers.toml_table import Table, parse_table, read_text

VARIABLE = "OUTCROP_TIERS"
TAKEN = ("auto", *MEMORY_KINDS)
"""Names that mean something else: a directory is no memory."""
NAME_MOST = 64
NAME = re.compile(rf"[A-Za-z][A-Za-z0-9_.-]{{0,{NAME_MOST - 1}}}")
BANDWIDTHS = {key: f"{key}_bytes_per_second" for key in ("read", "write", "random_read", "random_write")}
LATENCIES = {f"{key}_latency": f"latency_seconds_{key}" for key in ("read", "write", "flush")}


def declared_tiers(named: Path | None = None) -> list[Tier]:
    """Those of the file that is named, or of the user's own. Raises InputError for what cannot be."""
    path = named or _own_file()
    return [] if path is None else parse_tiers(read_text(path, f"tiers {path}"), str(path))


def parse_tiers(text: str, file: str) -> list[Tier]:
    """What `text` declares; `file` is its name, for messages. Raises InputError."""
    top = parse_table(text, file)
    return [_tier(top, name, file) for name in top.names()]


def _own_file() -> Path | None:
    if os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE])
    named = os.environ.get("XDG_CONFIG_HOME", "")
    try:
        folder = Path(named) if os.path.isabs(named) else Path.home() / ".config"
    except RuntimeError:  # this user has no home directory
        return None
    path = folder / "outcrop" / "tiers.toml"
    return path if os.path.lexists(path) else None


def _tier(top: Table, name: str, file: str) -> Tier:
    table = top.table(name)
    if not NAME.fullmatch(name):
        said = repr(name[:NAME_MOST])
        raise InputError(f"{file}: the name {said} must be a letter, then up to {NAME_MOST - 1} letters, digits, _ . -")
    if name in TAKEN:
        raise InputError(f"{file}: the name {name!r} means something else; take none of {', '.join(TAKEN)}")
    folder = _directory(table)
    quota = table.size("capacity") if table.has("capacity") else None
    lasts = _persistence(table) if table.has("persistence") else None
    figures = {field: table.bandwidth(key) for key, field in BANDWIDTHS.items() if table.has(key)}
    figures |= {field: table.seconds(key) for key, field in LATENCIES.items() if table.has(key)}
    table.refuse_other_keys()
    tier = _mounted(name, folder)
    if lasts is not None and lasts > tier.persistence:
        raise table.wrong("persistence", f"at most {tier.persistence.name.lower()}: it is on {tier.source}")
    tier = replace(tier, is_declared=True, persistence=tier.persistence if lasts is None else lasts)
    if quota is not None:
        used = _bytes_in(folder)
        tier = replace(
            tier,
            capacity_bytes=min(quota, tier.capacity_bytes),
            free_bytes=max(0, min(quota - used, tier.free_bytes)),
        )
    return replace(tier, origin="declared", **figures) if figures else tier  # type: ignore[arg-type]


def _directory(table: Table) -> Path:
    named = table.text("directory", 'a directory such as "/scratch/me"')
    if not named.isprintable():
        raise table.wrong("directory", "a path without control characters")
    folder = Path(os.path.expanduser(named))  # leaves the ~ of a user who is not here
    if not folder.is_absolute():
        raise table.wrong("directory", "an absolute path")
    return folder


def _mounted(name: str, folder: Path) -> Tier:
    """As it is here. A directory may be missing: one file serves several machines."""
    if is_folder(folder):
        tier = mounted_tier(mount_of(folder), [folder], name)
        if tier.directory == folder.resolve():
            return replace(tier, where=str(folder))
        return replace(tier, where=str(folder), free_bytes=0, note="this user may not write there")
    lasts, note = Persistence.PERMANENT, "there is no such directory on this machine, or none that this user may see"
    return Tier(name, "disk", str(folder), 0, 0, lasts, "none", "not measured", note=note)


def _persistence(table: Table) -> Persistence:
    words = [one.name.lower() for one in Persistence]
    right = f"one of {', '.join(words)}"
    word = table.text("persistence", right)
    if word not in words:
        raise table.wrong("persistence", right)
    return Persistence[word.upper()]


def _bytes_in(folder: Path) -> int:
    """What the files in there take on the disk."""
    count, left = 0, [os.fspath(folder)]
    while left:
        try:
            entries = list(os.scandir(left.pop()))
        except OSError:
            continue
        for entry in entries:
            with suppress(OSError):
                count += 512 * entry.stat(follow_symlinks=False).st_blocks
                if entry.is_dir(follow_symlinks=False):
                    left.append(entry.path)
    return count
