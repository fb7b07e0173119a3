"""Seal the JSON files of a run: the key "crc32c" holds a checksum of all other keys."""

from __future__ import annotations

import json
from typing import Any

from outcrop import _core

KEY = "crc32c"


def resealed(content: Any) -> Any:
    """Return the content with the right checksum if it has a checksum. Older manifests have none and stay unchanged."""
    if not isinstance(content, dict) or KEY not in content:
        return content
    others = {key: value for key, value in content.items() if key != KEY}
    try:
        return {**others, KEY: _core.crc32c(json.dumps(others, sort_keys=True).encode())}
    except (TypeError, ValueError, RecursionError):  # keys of several types, or too many levels: a seal is impossible
        return content
