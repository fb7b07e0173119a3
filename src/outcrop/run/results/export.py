"""`oc.export`: write the results of a run to a file of another format, or to an object store."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import url2pathname

from outcrop.errors import InputError, by_caller, shown
from outcrop.paths import as_path
from outcrop.run.results import hdf5, vtk, zarr_copy
from outcrop.run.results.contents import (
    OpenedRun,
    ResultGroup,
    field_names,
    fields_group,
    held,
    open_results,
    snapshot_groups,
)
from outcrop.run.results.records import norms_group, sources_group, traces_group
from outcrop.run.results.target import check_target, new_target, require_room

if TYPE_CHECKING:
    from outcrop.run.simulation import Simulation

FORMATS = {
    "netcdf": (".nc", ".nc4", ".netcdf"),
    "hdf5": (".h5", ".hdf5", ".hdf"),
    "vtk": (".vti", ".pvd", ".vtp"),
    "zarr": (".zarr",),
}
"""The endings of the names of files, for each format."""

COLLECTION, POINTS = ".pvd", ".vtp"
"""The endings of VTK files with snapshots, and with the positions of receivers and sources."""

Progress = Callable[[int, int], object]
"""A function that is called with the number of bytes that were written, and the number of all bytes."""


@dataclass(frozen=True)
class Exported:
    """The result of an export. `nbytes` is the number of bytes of the values that were written. For a VTK file with
    positions, `nbytes` is the size of the file, because positions are stored as text. If `is_view` is true, the file
    shows the files of the run, and has copies only of traces, norms and sources. `why_copy` is the reason why an HDF5
    file is a copy although no copy was wanted, or "". `images` is the folder with the images of a VTK collection, or
    ""."""

    target: str
    format: str
    nbytes: int
    is_view: bool = False
    why_copy: str = ""
    images: str = ""


def export(
    run: str | os.PathLike[str] | Simulation, target: str | os.PathLike[str], format: str = "",
    fields: Sequence[str] | None = None, snapshots: str | Sequence[str] = (), traces: bool = False,
    norms: bool = False, sources: bool = False, copy: bool = False, force: bool = False,
    storage_options: Mapping[str, Any] | None = None, progress: Progress = lambda done, whole: None,
) -> Exported:  # fmt: skip
    """Write results of a run to `target`. `target` is a file, a folder, or the URL of an object store.

    `run` is a directory, a device, the directory of all parts of several ranks, or a simulation. `format` is "netcdf",
    "hdf5", "vtk" or "zarr". By default, the ending of `target` determines the format. A URL such as "s3://bucket/run"
    means "zarr". `fields` are the names of arrays of the committed state, by default all fields. If the list of fields
    is empty, no fields are written. `snapshots` names snapshots: "all", "u", "side" or "side/u". If `traces` is true,
    the traces are written with the positions of the receivers. If `norms` is true, the norms are written. If `sources`
    is true, the sources are written with their positions.

    An HDF5 file is a view if possible. A view shows the files of the run, and has copies only of traces, norms and
    sources. If `copy` is true, the HDF5 file has copies of all values. A VTK image (.vti) has fields, a VTK collection
    (.pvd) has snapshots, and VTK points (.vtp) have the positions of receivers and sources. `storage_options` are
    options of fsspec for the object store. `progress(done, whole)` is called with numbers of bytes.

    Values are copied in groups of planes, so the memory does not grow with the grid. Checksums are tested. The file or
    folder gets its final name only when it is complete. An existing file is replaced only if `force` is true. Raises
    InputError for wrong arguments, for an adjoint run without `fields`, and if a package is missing. In these cases,
    nothing was written. Raises CorruptionError for damaged values, and StorageError if the target cannot be
    written."""
    if isinstance(target, str) and target.startswith("file://"):
        target = url2pathname(target.removeprefix("file://"))
    url = zarr_copy.is_url(target)
    path = Path() if url else as_path(target, "target")
    kind = _format_of(str(target), path, format, url)
    if storage_options and not (url and isinstance(storage_options, Mapping)):
        raise InputError("storage_options are a mapping with options of an object store; leave them out for a path")
    snapshots = _as_names("snapshots", (snapshots,) if isinstance(snapshots, str) else snapshots)
    opened = open_results(run)
    if fields is None and opened.manifest.begun is not None:
        name = by_caller("--field NAME", "fields=[...]")
        raise InputError(
            f"{opened.path} is an adjoint run, and its fields are not the gradients; save gradients in Python with "
            f"adjoint.gradients, or name fields with {name}"
        )
    names = field_names(opened) if fields is None else _as_names("fields", fields)
    if kind == "vtk":
        names = _vtk_fields(path, names, fields, snapshots, traces, norms, sources)
    if copy and kind != "hdf5":
        raise InputError(f"copy is for HDF5 files; a file of format {kind} is always a copy")
    if not url:
        _require_outside(path, opened)
    if kind == "zarr":
        zarr_copy.require_zarr()
    store = zarr_copy.ObjectStore(str(target), storage_options or {}) if url else None
    # All fields must belong to one generation, so no process may continue the run during the export. Snapshots do not
    # change.
    with held(opened) if names else nullcontext(opened) as run_now:
        chosen = {traces_group: traces, norms_group: norms, sources_group: sources}
        groups = _groups(run_now, names, snapshots, [made for made, is_wanted in chosen.items() if is_wanted])
        why_copy = hdf5.why_no_view(run_now) if kind == "hdf5" and not copy else ""
        is_view = kind == "hdf5" and not copy and not why_copy
        is_points = kind == "vtk" and path.suffix.lower() == POINTS
        whole = hdf5.view_bytes(groups) if is_view else 0 if is_points else sum(group.nbytes for group in groups)
        images, advance = "", _counter(whole, progress)
        if store is not None:
            zarr_copy.write_objects(store, groups, force, advance)
        elif kind == "vtk" and path.suffix.lower() == COLLECTION:
            images = str(_write_collection(path, groups, force, advance))
        else:
            check_target(path, force, kind == "zarr")
            require_room(path.parent, whole)
            with new_target(path, force, kind == "zarr") as made:
                if is_view:
                    hdf5.write_view(made, run_now, groups, advance)
                elif is_points:
                    vtk.write_points(made, groups)
                else:
                    _WRITERS[kind](made, groups, advance)
        return Exported(str(target), kind, path.stat().st_size if is_points else whole, is_view, why_copy, images)


_WRITERS: dict[str, Callable[[Path, Sequence[ResultGroup], hdf5.Advance], None]] = {
    "netcdf": hdf5.write_netcdf,
    "hdf5": hdf5.write_hdf5,
    "vtk": vtk.write_image,
    "zarr": zarr_copy.write_folder,
}


def _write_collection(path: Path, groups: Sequence[ResultGroup], force: bool, advance: hdf5.Advance) -> Path:
    """Write snapshots as a VTK collection. The function first writes the folder of images, and then writes the list of
    images. Return the folder."""
    if len(groups) != 1:
        names = ", ".join(group.path for group in groups)
        raise InputError(f"a .pvd file has one box of cells and one list of steps; name snapshots of one of: {names}")
    images = path.with_name(path.name + vtk.IMAGES)
    check_target(path, force)
    check_target(images, force, is_folder=True)
    require_room(path.parent, groups[0].nbytes)
    with new_target(images, force, is_folder=True) as made:
        text = vtk.write_images(made, groups[0], advance)
    with new_target(path, force) as made:
        made.write_text(text)
    return images


def _format_of(target: str, path: Path, given: object, is_url: bool) -> str:
    """Return the format of a target. Raises InputError if neither `given` nor the ending of `target` names a known
    format."""
    if not isinstance(given, str) or (given and given not in FORMATS):
        raise InputError(f"format {shown(given)} is unknown; there are {', '.join(FORMATS)}")
    if is_url:
        if given not in ("", "zarr"):
            raise InputError(f"{target}: an object store can hold only the format zarr; export {given} to a path")
        return "zarr"
    by_ending = next((kind for kind, endings in FORMATS.items() if path.suffix.lower() in endings), "")
    if target == "-":
        raise InputError("-: results cannot be written to standard output; name a file")
    if target.startswith("~/"):
        raise InputError(f"{target}: the shell has not replaced ~ by your directory; write the path")
    if given and by_ending and {given, by_ending} not in ({given}, {"netcdf", "hdf5"}):
        raise InputError(f"{target} has the ending of another format than {given}; give another name")
    if given == "zarr" and path.suffix.lower() == ".zip":
        raise InputError(f"{target}: Zarr is written to a folder, which cannot be a .zip file; give another name")
    if not (given or by_ending):
        endings = ", ".join(ending for one in FORMATS.values() for ending in one)
        raise InputError(f"{target}: the ending names no format; give format, or one of the endings {endings}")
    if (given or by_ending) == "vtk" and by_ending != "vtk":
        raise InputError(
            f"{target}: a VTK file needs the ending .vti for fields, .pvd for snapshots, or .vtp for positions"
        )
    return given or by_ending


def _as_names(what: str, given: object) -> list[str]:
    if isinstance(given, str) or not isinstance(given, Sequence) or not all(isinstance(one, str) for one in given):
        raise InputError(f"{what} {shown(given)} must be a list of names")
    return list(given)


def _vtk_fields(
    path: Path, names: list[str], fields: Sequence[str] | None, snapshots: Sequence[str], traces: bool, norms: bool,
    sources: bool,
) -> list[str]:  # fmt: skip
    """Return the fields of a VTK file. Raises InputError for results that a VTK file cannot hold."""
    if path.suffix.lower() == POINTS:
        if fields or snapshots or norms or not (traces or sources):
            raise InputError(f"{path}: a .vtp file holds only positions; choose traces for receivers, or sources")
        return []
    if traces or norms or sources:
        raise InputError(
            "traces, norms and sources cannot be written to a VTK image; use NetCDF, HDF5 or Zarr, or a .vtp file for "
            "the positions of receivers and sources"
        )
    if path.suffix.lower() == COLLECTION:
        if not snapshots:
            raise InputError(f"{path}: a .pvd file holds snapshots; name them, or name a .vti file for the fields")
        if fields:
            raise InputError(f"{path}: a .pvd file holds only snapshots; write the fields to a .vti file")
        return []
    if snapshots:
        raise InputError(f"{path}: a .vti file holds only one time; name a .pvd file for snapshots")
    return names


def _groups(
    run: OpenedRun, names: Sequence[str], snapshots: Sequence[str], more: Sequence[Callable[[OpenedRun], ResultGroup]]
) -> list[ResultGroup]:
    groups = [fields_group(run, names)] if names else []
    groups += snapshot_groups(run, snapshots)
    groups += [made(run) for made in more]
    if not groups:
        raise InputError("there is nothing to export; choose fields, snapshots, traces, norms or sources")
    if empty := [group.path for group in groups if 0 in group.sizes.values()]:
        raise InputError(f"{run.path} has no {empty[0]} yet at step {run.manifest.step}; leave them out")
    return groups


def _require_outside(path: Path, run: OpenedRun) -> None:
    """Raise InputError if the target is in a directory of the run."""
    parent = Path(os.path.realpath(path.absolute().parent))
    for state in run.states:
        for place in map(os.path.realpath, state.manifest.directories):
            if parent == Path(place) or Path(place) in parent.parents:
                raise InputError(f"{path} is inside the run {place}; name a file elsewhere")
            if os.path.realpath(path) == place:
                raise InputError(f"{path} is the run itself; name another target")


def _counter(whole: int, progress: Progress) -> hdf5.Advance:
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        progress(done, whole)

    return advance
