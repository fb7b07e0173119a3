"""What commit.N.json says: one commit of an array, everything but its values."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from outcrop import _core
from outcrop.arrays.spec import Persist, parse_dtype, parse_persist, parse_shape
from outcrop.errors import CorruptionError, InputError

FORMAT = 1
"""Version of the folder's format; a reader refuses others."""


@dataclass(frozen=True)
class Record:
    """The values of `generation`, `steps` steps from the beginning: for each tile the slot it is in, a byte, and its
    CRC32C, four. `persist` and `access` are as the array was made."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    access: str
    persist: Persist
    tile_bytes: int
    generation: int
    steps: int
    slots: bytes
    checksums: bytes

    def to_text(self) -> str:
        """As JSON, with a checksum of itself."""
        content = {
            "format": FORMAT,
            "shape": list(self.shape),
            "dtype": self.dtype.str,
            "access": self.access,
            "persist": self.persist,
            "tile_bytes": self.tile_bytes,
            "generation": self.generation,
            "steps": self.steps,
            "slots": self.slots.hex(),
            "checksums": self.checksums.hex(),
        }
        return json.dumps({**content, "crc32c": _checksum(content)}, indent=1) + "\n"


def read_record(path: Path) -> Record | None:
    """The commit in a file; None when there is no such file. Raises CorruptionError when it is damaged, InputError when
    it is of a newer format."""
    try:
        content = json.loads(path.read_bytes())
        checksum = content.pop("crc32c")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CorruptionError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, AttributeError, TypeError):
        raise CorruptionError(f"{path} is damaged: it is not a record of a commit") from None
    if checksum != _checksum(content):
        raise CorruptionError(f"{path} is damaged: checksum mismatch")
    if content["format"] != FORMAT:
        raise InputError(f"{path} is of format {content['format']}; this version of Outcrop reads {FORMAT}")
    return Record(
        shape=parse_shape(content["shape"]),
        dtype=parse_dtype(content["dtype"]),
        access=content["access"],
        persist=parse_persist(content["persist"]),
        tile_bytes=content["tile_bytes"],
        generation=content["generation"],
        steps=content["steps"],
        slots=bytes.fromhex(content["slots"]),
        checksums=bytes.fromhex(content["checksums"]),
    )


def _checksum(content: dict[str, Any]) -> int:
    return _core.crc32c(json.dumps(content, sort_keys=True).encode())
