"""This module stores measured figures in JSON files in $XDG_CACHE_HOME/outcrop, so that each figure is measured only
once.

Each file has a seal (`outcrop.user_cache`), and each value is checked when the file is read. If a file is damaged, or
if other users can write to the file, the figures in the file are ignored.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, TypeVar

from outcrop.errors import InputError
from outcrop.user_cache import open_folder

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    FiguresT = TypeVar("FiguresT", bound=DataclassInstance)

MAX_BYTES = 1 << 20
MAX_ENTRIES = 500
"""The maximum number of entries in a file. An entry has about 500 bytes. If a file has more entries, the oldest entries
are removed."""


def load(name: str, figures: type[FiguresT]) -> dict[str, FiguresT]:
    """Return the figures in a file by their keys. Return an empty dictionary if the file cannot be used."""
    try:
        with open_folder(make=False) as folder:
            content = json.loads(folder.read(name, MAX_BYTES) or b"{}")
    except (InputError, ValueError, RecursionError):
        return {}
    if not isinstance(content, dict):
        return {}
    return {key: figures(**values) for key, values in content.items() if _are(figures, values)}


def keep(name: str, key: str, value: DataclassInstance) -> None:
    """Add figures to a file. If the cache cannot be used, the figures are lost, but no error is raised."""
    kept = {known: asdict(one) for known, one in load(name, type(value)).items() if known != key}
    kept[key] = asdict(value)
    text = json.dumps(dict(list(kept.items())[-MAX_ENTRIES:]), indent=1)
    with suppress(InputError, OSError), open_folder(make=True) as folder:
        folder.write(name, text.encode())


def _are(figures: type[DataclassInstance], values: object) -> bool:
    """Return True if the values are valid for an object of the type `figures`: texts, finite numbers, and None for an
    unknown figure."""
    if not isinstance(values, Mapping):
        return False
    known = {field.name: field for field in fields(figures)}
    needed = {name for name, field in known.items() if field.default is not None}
    if not needed <= values.keys() <= known.keys():
        return False
    return all(_is_figure(name, value, name not in needed) for name, value in values.items())


def _is_figure(name: str, value: object, may_be_unknown: bool) -> bool:
    if name == "origin":
        return isinstance(value, str)
    if value is None:
        return may_be_unknown
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return 0 < value <= sys.float_info.max or (value == 0 and not name.endswith("per_second"))
