"""JSON files of a run with a checksum of themselves: the key "crc32c", over all the others."""

from __future__ import annotations

import json
from typing import Any

from outcrop import _core

KEY = "crc32c"


def resealed(content: Any) -> Any:
    """The same with the right checksum where there is one; what has none, as older manifests, stays as it is."""
    if not isinstance(content, dict) or KEY not in content:
        return content
    others = {key: value for key, value in content.items() if key != KEY}
    try:
        return {**others, KEY: _core.crc32c(json.dumps(others, sort_keys=True).encode())}
    except (TypeError, ValueError, RecursionError):  # keys of several kinds, or nested too deeply: nobody can seal it
        return content
