"""Describe a tree of files by kinds, modes, sizes, links, contents and times. A comparison of two descriptions shows
the changes that a case has made."""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

Tree: TypeAlias = dict[bytes, tuple[object, ...]]

CONTENT_BYTES_MOST = 1 << 20


def tree_of(root: Path, without: Iterable[str] = ()) -> Tree:
    """Return a dictionary from the relative path of each entry under `root` to its description. The function leaves out
    the entries in `without`, and the modification times of the folders that contain these entries.
    """
    left_out = {os.fsencode(name) for name in without}
    parents = {os.path.dirname(name) for name in left_out}
    found: Tree = {}
    waiting = [b""]
    top = os.fsencode(root)
    while waiting:
        inside = waiting.pop()
        try:
            entries = list(os.scandir(os.path.join(top, inside) if inside else top))
        except OSError as error:
            found[inside + b"/"] = ("cannot be listed", error.errno)
            continue
        for entry in entries:
            name = os.path.join(inside, entry.name)
            if name in left_out:
                continue
            status = entry.stat(follow_symlinks=False)
            found[name] = _described(entry.path, status, timed=name not in parents)
            if stat.S_ISDIR(status.st_mode):
                waiting.append(name)
    return found


def _described(path: bytes, status: os.stat_result, timed: bool) -> tuple[object, ...]:
    always = (status.st_mode, status.st_uid, status.st_gid, status.st_ino)
    if stat.S_ISDIR(status.st_mode):
        return (*always, status.st_mtime_ns if timed else 0)
    if stat.S_ISLNK(status.st_mode):
        return (*always, os.readlink(path))
    if stat.S_ISREG(status.st_mode):
        return (*always, status.st_size, status.st_mtime_ns, _sum(path))
    return always


def _sum(path: bytes) -> int:
    """Return a checksum of the first MiB of a file. Only cases make longer files."""
    try:
        with open(path, "rb") as file:
            return zlib.crc32(file.read(CONTENT_BYTES_MOST))
    except OSError:
        return -1


def differences(before: Mapping[bytes, tuple[object, ...]], after: Mapping[bytes, tuple[object, ...]]) -> list[str]:
    """Return a text for each new, missing or changed entry. Folders are omitted if only their entries have changed."""
    names = sorted(before.keys() | after.keys())
    changed = [name for name in names if before.get(name) != after.get(name)]
    parents = {os.path.dirname(name) for name in changed}
    told = []
    for name in changed:
        if name in before and name in after:
            if name in parents and before[name][:4] == after[name][:4]:
                continue
            word = "changed"
        else:
            word = "made" if name in after else "removed"
        told.append(f"{word} {os.fsdecode(name)!a}")
    return told
