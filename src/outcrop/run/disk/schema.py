"""Types of what files of a run say, with their ranges; `msgspec` checks them when a file is read."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta

Count: TypeAlias = Annotated[int, Meta(ge=0, le=1 << 53)]
Positive: TypeAlias = Annotated[int, Meta(ge=1, le=1 << 53)]
Checksum: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 32)]
Identity: TypeAlias = Annotated[str, Meta(pattern="^[0-9a-z]{1,32}$")]

Name: TypeAlias = Annotated[str, Meta(pattern="^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
"""Of a field, a parameter, receivers or snapshots. It becomes a part of file names."""
OptionalName: TypeAlias = Annotated[str, Meta(pattern="^([A-Za-z_][A-Za-z0-9_]{0,63})?$")]

ArrayName: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}(\.previous)?$")]

FolderName: TypeAlias = Annotated[
    str, Meta(pattern=r"^(\.?[A-Za-z_][A-Za-z0-9_]{0,63}(\.previous)?(\.[01])?|snapshots\.zarr)$")
]
"""Of a folder of a run; see `contents`."""

Shown: TypeAlias = Annotated[str, Meta(max_length=200, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
"""Text that may be printed: without control characters, which a terminal would obey."""

Text: TypeAlias = Annotated[str, Meta(min_length=1, max_length=4096, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")]
"""A path."""
