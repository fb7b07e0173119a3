"""What commit.N.json says: one commit of an array, everything but its values.

A record comes from a file that anybody may have written. `parse_record` checks the type and the range of each field,
and that the tables have one entry for each tile, so that code behind it may count and allocate by what a record says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from outcrop.arrays.spec import AXES_MOST, Persist, parse_dtype
from outcrop.durable import sealed, unsealed
from outcrop.errors import CorruptionError, InputError

FORMAT = 1
"""Version of the folder's format; a reader refuses others."""
TILE_BYTES = 1 << 20
MAX_NUMBER = 1 << 62
"""Bytes of an array, its steps and its generations: sums of them stay far from the end of 64-bit numbers."""
BYTES_PER_TILE, BYTES_BESIDE = 10, 1 << 14
"""Of a record's text: for each tile its slot and checksum in hexadecimal; and for all other fields, at most."""

_Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)]
_Cells = Annotated[int, msgspec.Meta(ge=1, le=MAX_NUMBER)]


@dataclass(frozen=True)
class Record:
    """The values of `generation`, `steps` steps from the beginning: for each tile the slot it is in, a byte, and its
    CRC32C, four. `persist` and `access` are as the array was made.

    `array` is a random name that all records of one array have, by which a record of another array is found; None in
    records of versions before it. Generation 0 is an array that was begun and has no values: its tables are empty.
    """

    array: str | None
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    access: str
    persist: Persist
    generation: int
    steps: int
    slots: bytes
    checksums: bytes

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return math.prod(self.shape) * self.dtype.itemsize

    def is_of_other_array(self, other: Record) -> bool:
        """Whether two records cannot be of the same array."""
        if self.array and other.array and self.array != other.array:
            return True
        return (self.shape, self.dtype) != (other.shape, other.dtype)

    def to_bytes(self) -> bytes:
        """As JSON, with a checksum of itself."""
        content = {
            "format": FORMAT,
            "shape": list(self.shape),
            "dtype": self.dtype.str,
            "access": self.access,
            "persist": self.persist,
            "tile_bytes": TILE_BYTES,
            "generation": self.generation,
            "steps": self.steps,
            "slots": self.slots.hex(),
            "checksums": self.checksums.hex(),
        }
        return sealed(content if self.array is None else {**content, "array": self.array})


class _Content(msgspec.Struct):
    """Types and ranges of the fields in the file."""

    format: Literal[1]
    shape: Annotated[tuple[_Cells, ...], msgspec.Meta(max_length=AXES_MOST)]
    dtype: Annotated[str, msgspec.Meta(pattern="^[<>=|][biufc][0-9]{1,2}\\Z")]
    access: Literal["read", "update"]
    persist: Literal["end", "step"] | _Cells
    tile_bytes: Literal[1048576]
    generation: _Count
    steps: _Count
    slots: Annotated[str, msgspec.Meta(pattern="^(0[01])*\\Z")]
    checksums: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{8})*\\Z")]
    array: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}\\Z")] | None = None


def parse_record(data: bytes, path: Path) -> Record:
    """The record in a file's content. Raises CorruptionError when it is damaged, InputError when it is of another
    format."""
    content = unsealed(data, path)
    if content.get("format") != FORMAT and type(content.get("format")) is int:
        raise InputError(f"{path} is of format {content['format']}; this version of Outcrop reads {FORMAT}")
    try:
        found = msgspec.convert(content, _Content)
        dtype = parse_dtype(found.dtype)
    except (msgspec.ValidationError, InputError) as error:
        raise CorruptionError(f"{path} is damaged: {error}") from None
    record = Record(
        array=found.array,
        shape=found.shape,
        dtype=dtype,
        access=found.access,
        persist=found.persist,
        generation=found.generation,
        steps=found.steps,
        slots=bytes.fromhex(found.slots),
        checksums=bytes.fromhex(found.checksums),
    )
    if record.nbytes > MAX_NUMBER:
        raise CorruptionError(f"{path} is damaged: the shape is of more than {MAX_NUMBER} bytes")
    tiles = tiles_of(record.nbytes) if record.generation else 0
    if (len(record.slots), len(record.checksums)) != (tiles, 4 * tiles):
        raise CorruptionError(
            f"{path} is damaged: {len(record.slots)} slots and {len(record.checksums) // 4} checksums for {tiles} tiles"
        )
    return record


def tiles_of(nbytes: int) -> int:
    """Tiles that so many bytes take; the last one may be shorter."""
    return -(-nbytes // TILE_BYTES)
