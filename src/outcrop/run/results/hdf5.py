"""Write the results of a run to NetCDF and HDF5 files, and make HDF5 files that show a run without a copy.

A file that is a copy has contiguous datasets. So values are written in the order of the planes, and the package for
HDF5 keeps no chunks in memory.

A file that is a view does not contain the values of fields. Each plane of the run is a record with padding, checksum
and seal (run/disk/layout.py). For each shard of an array, the view has a dataset of raw bytes. The raw bytes stay in
the shard (external storage of HDF5). A virtual dataset selects the cells from the datasets of raw bytes:

    /u (nz, ny, nx)            virtual: rows at distances of the pitch, in each record
    /.records/u/0 (nz, rec)    external: run.oc/u/c/0/0/0, from byte 0 on

The view refers to the shards by paths through the link run.oc/u. Therefore the view always shows the copy of the last
commit. Checksums are not tested when a view is read. Snapshots have no padding, so a dataset could show them directly.
But a dataset can name only a limited number of external files. Therefore virtual datasets also show snapshots. Each
virtual dataset joins several datasets. Traces, norms and sources are copied.

Format: HDF5 File Format Specification 3.0, "External Data Files" and "Virtual Dataset".
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from outcrop.errors import InputError, OutcropError, StorageError
from outcrop.run.acquisition.views import own_entry
from outcrop.run.disk.acquisition_files import snapshot_name
from outcrop.run.disk.contents import shard_name
from outcrop.run.disk.planes import FileBeneath
from outcrop.run.disk.state import State
from outcrop.run.results.contents import SNAPSHOTS, OpenedRun, ResultGroup, Variable

RECORDS = ".records"
"""The HDF5 group with the datasets of raw bytes."""

MAX_EXTERNAL_FILES = 512
"""The maximum number of external files of a dataset in a view. HDF5 requires that the list of external files fits in 64
KiB."""

CLOSE_BYTES = 1 << 20
"""The bytes that are kept free for the metadata that HDF5 writes when it closes a file."""

_NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable."
"""The beginning of the name of a dimension scale without coordinates (NetCDF-4 format, "Dimensions")."""

Advance = Callable[[int], None]
"""A function that is called with the number of bytes that were written."""


def write_netcdf(path: Path, groups: Sequence[ResultGroup], advance: Advance) -> None:
    """Write groups to a new NetCDF file of version 4. Raises InputError if h5netcdf is not installed, and StorageError
    if the file cannot be written."""
    try:
        import h5netcdf
    except ImportError:
        raise InputError("NetCDF needs h5netcdf and h5py: pip install 'outcrop[netcdf]'") from None
    with _errors_of(path), h5netcdf.File(path, "w") as file, _room_to_close(path):
        for group in groups:
            group.require_names()
            node = file.create_group(group.path) if group.path else file
            node.dimensions = group.sizes
            node.attrs.update(group.attributes)
            for coordinate in group.coordinates:
                made = node.create_variable(coordinate.name, (coordinate.axis,), coordinate.values.dtype)
                made[...] = coordinate.values
                made.attrs.update(coordinate.attributes)
            for variable in group.variables:
                made = node.create_variable(variable.name, variable.axes, variable.dtype)
                made.attrs.update(variable.attributes)
                if beside := group.beside(variable):
                    made.attrs["coordinates"] = beside
                _copy(variable, made, advance)


def write_hdf5(path: Path, groups: Sequence[ResultGroup], advance: Advance) -> None:
    """Write groups to a new HDF5 file. Raises the errors of `write_netcdf`."""
    with _errors_of(path), _package().File(path, "w") as file, _room_to_close(path):
        for group in groups:
            _write_group(file, group, partial(_new_copy, advance))


def write_view(path: Path, run: OpenedRun, groups: Sequence[ResultGroup], advance: Advance) -> None:
    """Write an HDF5 file whose datasets show the files of a run. Call this function only if `why_no_view` has returned
    "". Raises the errors of `write_netcdf`."""
    with _errors_of(path), _package().File(path, "w") as file, _room_to_close(path):
        file.attrs["view_of"] = str(run.path.absolute())
        for group in groups:
            if is_copied(group):
                _write_group(file, group, partial(_new_copy, advance))
            elif group.path:
                name = group.path.removeprefix(SNAPSHOTS).removeprefix("/")
                _write_group(file, group, partial(_view_of_snapshots, file, run, name))
            else:
                # the fields change when the run continues, so the current step would soon be wrong
                about = {key: value for key, value in group.attributes.items() if key not in ("step", "time")}
                still = ResultGroup(group.path, group.variables, group.coordinates, about)
                _write_group(file, still, partial(_view_of_field, file, run))


def why_no_view(run: OpenedRun) -> str:
    """Return the reason why an HDF5 file cannot show the files of this run. Return "" if an HDF5 file can show them."""
    for state in run.states:
        for entry in state.manifest.arrays:
            if entry.name not in state.manifest.filled:
                continue
            for shard, file in enumerate(state.current_files_of(entry.name)):
                if not isinstance(file, FileBeneath):
                    return "the run is on a block device, which has no link to the current copy"
                if os.path.realpath(_shard_path(state, entry.name, shard)) != os.path.realpath(str(file)):
                    return f"the link {state.path / entry.name} is wrong; mend it with: outcrop verify --repair"
    return ""


def view_bytes(groups: Sequence[ResultGroup]) -> int:
    """Return the number of bytes of the copied values in a view."""
    return sum(group.nbytes for group in groups if is_copied(group))


def is_copied(group: ResultGroup) -> bool:
    """Return True if a view has copies of the values of `group`. Views have copies of traces, norms and sources."""
    return group.path != "" and group.path.partition("/")[0] != SNAPSHOTS


def _package() -> Any:
    try:
        import h5py
    except ImportError:
        raise InputError("HDF5 needs h5py: pip install 'outcrop[netcdf]'") from None
    return h5py


@contextlib.contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    """If a package for HDF5 raises an error, raise a StorageError in its place. The packages for HDF5 raise many types
    of errors."""
    try:
        yield
    except (OutcropError, OSError, MemoryError) as error:
        if reason := re.search(r"error message = '([^']*)'", str(error)):  # a part of HDF5's long text
            raise StorageError(f"{path.name} cannot be written: {reason[1]}") from None
        if isinstance(error, OSError) and error.strerror is None:  # h5py sets only the message
            raise StorageError(f"{path.name} cannot be written: {error}") from None
        raise
    except (RuntimeError, ValueError, TypeError, KeyError) as error:
        raise StorageError(f"{path.name} cannot be written: {error}") from None


@contextlib.contextmanager
def _room_to_close(path: Path) -> Iterator[None]:
    """Keep CLOSE_BYTES of the file system free until the `with` block ends, because HDF5 writes metadata when it closes
    a file. If there is no space for the metadata, HDF5 2.0 ends the process with a segmentation fault."""
    reserve = path.with_name(f"{path.name}.reserve")
    try:
        with reserve.open("xb") as file:
            os.posix_fallocate(file.fileno(), 0, CLOSE_BYTES)
        yield
    finally:
        reserve.unlink(missing_ok=True)


def _write_group(file: Any, group: ResultGroup, make: Callable[[Any, Variable], Any]) -> None:
    """Write a group with its coordinates. `make` makes the dataset of a variable. Each axis of the file has one
    dimension scale, as in NetCDF. Therefore programs for NetCDF can also read the file."""
    group.require_names()
    node = file.require_group(group.path) if group.path else file
    node.attrs.update(group.attributes)
    made = {}
    for coordinate in group.coordinates:
        made[coordinate.name] = node.create_dataset(coordinate.name, data=coordinate.values)
        made[coordinate.name].attrs.update(coordinate.attributes)
    scales = {}
    for axis, size in group.sizes.items():
        scales[axis] = made[axis] if axis in made else node.create_dataset(axis, (size,), "f4")
        scales[axis].make_scale(axis if axis in made else f"{_NO_VARIABLE}{size:10d}")
    for coordinate in group.coordinates:
        if coordinate.name != coordinate.axis:
            made[coordinate.name].dims[0].attach_scale(scales[coordinate.axis])
    for variable in group.variables:
        data = make(node, variable)
        data.attrs.update(variable.attributes)
        if beside := group.beside(variable):
            data.attrs["coordinates"] = beside
        for number, axis in enumerate(variable.axes):
            data.dims[number].attach_scale(scales[axis])


def _new_copy(advance: Advance, node: Any, variable: Variable) -> Any:
    made = node.create_dataset(variable.name, variable.shape, variable.dtype)
    _copy(variable, made, advance)
    return made


def _copy(variable: Variable, target: Any, advance: Advance) -> None:
    for index, values in variable.blocks():
        target[index] = values
        advance(values.nbytes)


def _shard_path(state: State, name: str, shard: int) -> str:
    return str(state.path.absolute() / name / shard_name(shard, len(state.manifest.shape)))


def _view_of_field(file: Any, run: OpenedRun, node: Any, variable: Variable) -> Any:
    """Make a virtual dataset that shows the cells of an array, without the padding."""
    h5py, whole = _package(), run.manifest
    layout = h5py.VirtualLayout(variable.shape, variable.dtype)
    for number, state in enumerate(run.states):
        manifest = state.manifest
        own, cells = manifest.layout, manifest.layout.record_bytes // variable.dtype.itemsize
        pads = whole.padding
        (first_row, end_row), (first_plane, _) = manifest.rows, manifest.planes
        for shard in range(own.shards):
            records = own.records(shard)
            source = f"/{RECORDS}/{variable.name}/{number}-{shard}"
            files = [(_shard_path(state, variable.name, shard), 0, records * own.record_bytes)]
            file.create_dataset(source, (records, cells), variable.dtype, external=files)
            raw = h5py.VirtualSource(".", source, shape=(records, cells))
            low = first_plane + shard * own.shard_planes  # the first plane of the shard, counted in the whole array
            if len(variable.shape) == 1:
                layout[:] = raw[0, pads[0] : pads[0] + variable.shape[0]]
                continue
            begin, end = max(low, pads[0]), min(low + records, pads[0] + variable.shape[0])
            if begin >= end:
                continue
            planes = slice(begin - low, end - low), slice(begin - pads[0], end - pads[0])
            nx, first_x = variable.shape[-1], pads[-1]
            if len(variable.shape) == 2:
                layout[planes[1], :] = raw[planes[0], first_x : first_x + nx]
                continue
            rows = min(end_row - first_row, variable.shape[1])
            start = pads[1] * own.pitch_cells + first_x
            selected = h5py.MultiBlockSlice(start=start, stride=own.pitch_cells, count=rows, block=nx)
            if own.pitch_cells == nx:  # without padding, the rows are one block, which HDF5 reads faster than several
                selected = h5py.MultiBlockSlice(start=start, stride=rows * nx, count=1, block=rows * nx)
            layout[planes[1], first_row : first_row + rows, :] = raw[planes[0], selected]
    return node.create_virtual_dataset(variable.name, layout)


def _view_of_snapshots(file: Any, run: OpenedRun, name: str, node: Any, variable: Variable) -> Any:
    """Make a virtual dataset that shows the files of snapshots. `name` is the name of the snapshots."""
    h5py = _package()
    (entry,) = (one for one in run.manifest.taps.snapshots if one.name == name)
    layout = h5py.VirtualLayout(variable.shape, variable.dtype)
    for number, state in enumerate(run.states):
        found = own_entry(state, entry)
        if found is None:  # a part that has no cells of the box
            continue
        own, places = found
        size = int(np.prod(own.shape)) * variable.dtype.itemsize
        for first in range(0, variable.shape[0], MAX_EXTERNAL_FILES):
            count = min(MAX_EXTERNAL_FILES, variable.shape[0] - first)
            source = f"/{RECORDS}/{entry.record(variable.name)}/{number}-{first}"
            files = [
                (str(state.path.absolute() / snapshot_name(own, variable.name, first + one)), 0, size)
                for one in range(count)
            ]
            file.create_dataset(source, (count, *own.shape), variable.dtype, external=files)
            layout[(slice(first, first + count), *places)] = h5py.VirtualSource(".", source, shape=(count, *own.shape))
    return node.create_virtual_dataset(variable.name, layout)
