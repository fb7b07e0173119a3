"""The backend for xarray: `xr.open_dataset("run.oc", engine="outcrop")`.

The package Outcrop names this backend in its entry points, so xarray finds the backend by itself. Values of the dataset
are read when a program needs them. Each read opens its own files, so the threads and processes of Dask can read at the
same time.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import xarray
from xarray.backends import BackendArray, BackendEntrypoint
from xarray.core import indexing

from outcrop.errors import InputError
from outcrop.run.disk.manifest import MANIFEST
from outcrop.run.places import may_hold_run
from outcrop.run.ranks.whole import holds_parts
from outcrop.run.results.contents import ResultGroup, Variable, open_results
from outcrop.run.results.records import group_at, group_paths


class OutcropBackend(BackendEntrypoint):
    """Opens the committed results of a run. The argument `group` selects the results:

    ""                  the fields, with the axes z, y, x (the default)
    "snapshots"         the snapshots without name, with the axes time, z, y, x
    "snapshots/side"    the snapshots with the name "side"
    "traces"            the traces of all receivers, with the positions of the receivers
    "norms"             the norms of all fields, with the axis step
    "sources"           the values of all sources, with the positions of the sources

    A dataset of fields shows one generation. If the run continues, later reads of a dataset of fields raise InputError.
    The user must then open the dataset again. Raises InputError if the path holds no run or the group does not
    exist."""

    supports_groups = True
    description = "Open runs of Outcrop"
    open_dataset_parameters: ClassVar[tuple[str, ...]] = ("filename_or_obj", "drop_variables", "group")

    def open_dataset(
        self, filename_or_obj: Any, *, drop_variables: str | Iterable[str] | None = None, group: str | None = None
    ) -> xarray.Dataset:
        """Return the results of a run as a dataset. The dataset reads values only when a program needs them."""
        dropped = {drop_variables} if isinstance(drop_variables, str) else set(drop_variables or ())
        return _dataset(group_at(open_results(filename_or_obj), group or ""), dropped)

    def open_groups_as_dict(
        self, filename_or_obj: Any, *, drop_variables: str | Iterable[str] | None = None
    ) -> dict[str, xarray.Dataset]:
        """Return a dictionary with all groups, for `xr.open_groups`. The groups of a run have different boxes of cells.
        In a tree of xarray, each group must fit its parent. So the groups of a run do not form a tree of xarray."""
        run, dropped = open_results(filename_or_obj), set(drop_variables or ())
        return {f"/{path}": _dataset(group_at(run, path), dropped) for path in ("", *group_paths(run))}

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Return True if a path holds a run. If the user gives no engine, xarray calls this method to find one."""
        if not isinstance(filename_or_obj, str | os.PathLike):
            return False
        with contextlib.suppress(InputError, OSError, ValueError):
            path = Path(filename_or_obj)
            return (path / MANIFEST).is_file() or may_hold_run(path) or holds_parts(path)
        return False


class _LazyArray(BackendArray):
    """An array of a run that can be indexed by whole numbers and slices. For all other indices, xarray converts the
    index first."""

    def __init__(self, variable: Variable) -> None:
        self._variable = variable
        self.shape, self.dtype = variable.shape, variable.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.BASIC, self._read)

    def _read(self, index: tuple[Any, ...]) -> np.ndarray[Any, Any]:
        return self._variable.read(index)


def _dataset(group: ResultGroup, dropped: set[str]) -> xarray.Dataset:
    group = replace(group, variables=tuple(one for one in group.variables if one.name not in dropped))
    group.require_names()
    variables: dict[str, xarray.Variable] = {}
    for one in group.variables:
        lazy, encoding = indexing.LazilyIndexedArray(_LazyArray(one)), {"preferred_chunks": _preferred_chunks(one)}
        variables[one.name] = xarray.Variable(one.axes, lazy, dict(one.attributes), encoding)
    coordinates = {
        one.name: xarray.Variable((one.axis,), one.values, dict(one.attributes))
        for one in group.coordinates
        if one.name not in dropped
    }
    return xarray.Dataset(variables, coordinates, dict(group.attributes))


def _preferred_chunks(variable: Variable) -> dict[str, int]:
    """Return the sizes of the smallest chunks that are useful for Dask. Each read of a plane reads the whole plane, so
    chunks should consist of whole planes."""
    free = len(variable.axes) - variable.unit_axes
    sizes = (*(1,) * free, *variable.shape[free:])
    return dict(zip(variable.axes, sizes, strict=True))
