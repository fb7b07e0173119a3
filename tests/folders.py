"""What is below a folder, to compare it before and after."""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path


def everything_below(folder: Path) -> dict[str, object]:
    """Names, kinds and contents: equal before and after means that nothing was changed."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(folder))] = content
    return found


def tree(folder: Path) -> dict[str, object]:
    """All that is below a folder: kinds, contents and when they changed."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = blake2b(path.read_bytes()).hexdigest() if path.is_file() and not path.is_symlink() else ""
        found[str(path.relative_to(folder))] = status.st_mode, status.st_size, status.st_mtime_ns, content
    return found
