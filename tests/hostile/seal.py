"""Write checksums into the JSON files of a run: the key "crc32c" holds a checksum of all other keys."""

from __future__ import annotations

import json
from typing import Any

from outcrop import _core

KEY = "crc32c"


def resealed(content: Any) -> Any:
    """Return the content with the right checksum. If the content has no checksum, as in older manifests, it is returned
    unchanged."""
    if not isinstance(content, dict) or KEY not in content:
        return content
    others = {key: value for key, value in content.items() if key != KEY}
    try:
        return {**others, KEY: _core.crc32c(json.dumps(others, sort_keys=True).encode())}
    except (TypeError, ValueError, RecursionError):  # JSON cannot express this content, so no checksum can be computed
        return content
