"""The kinds of files that values come from: one file each here, and one line in the table."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from outcrop.errors import InputError
from outcrop.paths import is_there
from outcrop.run.inputs.formats import netcdf, npy, raw, segy, zarr_arrays
from outcrop.run.inputs.source import Source

Opener: TypeAlias = Callable[[Path, str, int], Source]
"""(path, name of a variable or "", cache_bytes) -> a Source of the file's own shape."""


@dataclass(frozen=True)
class Format:
    """Files that end in one of `suffixes`. `form` shows how to write them, also whether variables can be named."""

    form: str
    suffixes: tuple[str, ...]
    open: Opener

    @property
    def has_variables(self) -> bool:
        """Whether a file can hold several arrays."""
        return "NAME" in self.form


ZARR = Format("FILE.zarr[/NAME]", (".zarr",), zarr_arrays.zarr_source)
NPY = Format("FILE.npy", (".npy",), npy.npy_source)
FORMATS = (
    NPY,
    Format("FILE.npy.xz", (".npy.xz", ".npy.gz"), npy.packed_npy_source),
    Format("FILE.npz[:NAME]", (".npz",), npy.npz_source),
    ZARR,
    Format("FILE.nc[:NAME]", (".nc", ".nc4", ".cdf"), netcdf.netcdf_source),
    Format("FILE.sgy", (".sgy", ".segy"), segy.segy_source),
)
FORMS = ", ".join([*(kind.form for kind in FORMATS), "raw:FILE:DTYPE:NX,NY,NZ"])


def open_file(text: str, cache_bytes: int) -> Source:
    """The Source that a text such as vp.npy, model.nc:vp or raw:vp.bin:float32:401,1601 names, of its own shape.

    Raises InputError when there is no such file, when it is of no known kind or not what its name says.
    """
    if text.startswith(raw.PREFIX):
        return raw.raw_source(text, cache_bytes)
    path, variable = _split_variable(text)
    if not is_there(path):
        raise InputError(f"{text}: no such file; there are {FORMS}")
    kind = ZARR if path.is_dir() else next((kind for kind in FORMATS if _ends_in(path, kind)), None)
    if kind is None:
        raise InputError(f"{path}: files of this name are not known; there are {FORMS}")
    if variable and not kind.has_variables:
        raise InputError(f"{text}: {kind.form} holds one array, leave out :{variable}")
    return kind.open(path, variable, cache_bytes)


def _split_variable(text: str) -> tuple[Path, str]:
    """The path, and what follows its last colon when it is no path with the colon."""
    match = re.fullmatch(r"(.+?\.\w+):([^:]+)", text)
    if match is None or is_there(text):
        return Path(text), ""
    return Path(match[1]), match[2]


def _ends_in(path: Path, kind: Format) -> bool:
    return path.name.lower().endswith(kind.suffixes)
