"""List the contents of a folder, so that a test can compare the contents before and after an operation."""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path


def everything_below(folder: Path) -> dict[str, object]:
    """Return the paths, kinds and contents below a folder."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(folder))] = content
    return found


def tree(folder: Path) -> dict[str, object]:
    """Return the path, kind, content and time of change of each file below a folder."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = blake2b(path.read_bytes()).hexdigest() if path.is_file() and not path.is_symlink() else ""
        found[str(path.relative_to(folder))] = status.st_mode, status.st_size, status.st_mtime_ns, content
    return found
