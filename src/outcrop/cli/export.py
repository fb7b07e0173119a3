"""`outcrop export`: write the results of a run to a file of another format, or to an object store."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from outcrop.cli import options
from outcrop.errors import InputError
from outcrop.units import format_bytes

if TYPE_CHECKING:
    from outcrop.run.results.export import Progress

INTERVAL_SECONDS = 0.2
"""The time between two updates of the progress."""


def export(
    where: Annotated[
        str, Argument(metavar="RUN", help="directory or device of a run, or the directory with all its parts")
    ],
    netcdf: Annotated[str | None, Option(metavar="FILE", help="write a NetCDF file (version 4)")] = None,
    hdf5: Annotated[
        str | None,
        Option(metavar="FILE", help="write an HDF5 file that shows the files of the run, or has a copy (--copy)"),
    ] = None,
    vtk: Annotated[
        str | None,
        Option(metavar="FILE", help="write a VTK image (.vti), snapshots as a collection (.pvd), or positions (.vtp)"),
    ] = None,
    zarr: Annotated[
        str | None, Option(metavar="DIR|URL", help="write a Zarr group to a folder, or to an object store: s3://...")
    ] = None,
    field: Annotated[
        list[str] | None, Option(metavar="NAME", help="a field; repeat the option for several [default: all fields]")
    ] = None,
    no_fields: Annotated[bool, Option("--no-fields", help="write no fields")] = False,
    snapshots: Annotated[
        list[str] | None,
        Option(metavar="NAME", help="snapshots: u, side, side/u or all; repeat the option for several"),
    ] = None,
    traces: Annotated[bool, Option("--traces", help="write all traces, and the positions of the receivers")] = False,
    norms: Annotated[bool, Option("--norms", help="write the norms of all fields")] = False,
    sources: Annotated[bool, Option("--sources", help="write the values and the positions of all sources")] = False,
    copy: Annotated[bool, Option("--copy", help="write copies of all values to the HDF5 file")] = False,
    force: Annotated[bool, Option("--force", help="replace an existing file, or an earlier export")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Write the committed fields of RUN, and optionally its snapshots, traces, norms and sources, to a file.

    Give one of --netcdf, --hdf5, --vtk and --zarr. The values are copied a few planes at a time, and their checksums
    are tested. The new file gets its name when all values are in the file.
    """
    from outcrop.run.results.export import export as export_results

    given = {"netcdf": netcdf, "hdf5": hdf5, "vtk": vtk, "zarr": zarr}
    chosen = [(kind, target) for kind, target in given.items() if target is not None]
    if len(chosen) != 1:
        raise InputError("give exactly one of --netcdf FILE, --hdf5 FILE, --vtk FILE and --zarr DIR|URL")
    if no_fields and field:
        raise InputError("--field and --no-fields contradict each other; give one of them")
    ((kind, target),) = chosen
    with _shown_progress(quiet) as progress:
        done = export_results(
            where, target, kind, [] if no_fields else field or None, snapshots or (), traces, norms, sources,
            copy, force, progress=progress,
        )  # fmt: skip
    if quiet:
        return
    if done.is_view:
        print(f"{target}: a view of {where}, which must stay where it is; --copy writes a copy")
    else:
        reason = f"; a copy, because {done.why_copy}" if done.why_copy else ""
        images = f", with its images in {done.images}" if done.images else ""
        print(f"{target}{images}: {format_bytes(done.nbytes)}{reason}")


@contextmanager
def _shown_progress(quiet: bool) -> Iterator[Progress]:
    """Yield a function that shows the progress in a terminal. Remove the text at the end."""
    is_shown = not quiet and sys.stderr.isatty()
    last = 0.0

    def show(done: int, whole: int) -> None:
        nonlocal last
        if is_shown and time.monotonic() - last >= INTERVAL_SECONDS:
            last = time.monotonic()
            print(f"\r{done / max(1, whole):4.0%} of {format_bytes(whole)}\x1b[K", end="", file=sys.stderr, flush=True)

    try:
        yield show
    finally:
        if last:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
