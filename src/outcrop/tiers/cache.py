"""Figures that are kept between runs, so that each is measured once: JSON files in $XDG_CACHE_HOME/outcrop."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def load(name: str) -> dict[str, dict[str, Any]]:
    """What the file of that name holds; nothing where it cannot be read."""
    try:
        content = json.loads((_folder() / name).read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def keep(name: str, key: str, value: dict[str, Any]) -> None:
    """Put a value into the file of that name. A folder that cannot be written is no error: nothing is kept then."""
    path = _folder() / name
    beside = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(json.dumps({**load(name), key: value}, indent=1))
        beside.replace(path)
    except OSError:
        pass


def _folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "outcrop"
