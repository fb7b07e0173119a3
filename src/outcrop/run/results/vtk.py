"""Write the results of a run as VTK image data, for ParaView and programs that use VTK.

    result.vti            fields: one image, with the values at its points
    movie.pvd             snapshots: a list of times and of images
    movie.pvd.images/     0000000.vti, 0000001.vti, ...
    points.vtp            positions of receivers and sources

An image begins with a description in XML. The values follow as raw bytes. In the file, the number of bytes of an array
comes before its values. The number of bytes is known before the values are read. So Outcrop writes files of any size
part by part. The step and the time of a snapshot are arrays in the section FieldData of the image.

In an image of VTK, x is the fastest axis: cells along x are contiguous. With Outcrop's axes (z, y, x), cells along x
are already contiguous. Devito's axes (x, y, z) have the reverse order. Values of Devito's equations are transposed in
parts. Each part is a plane along x and z. VTK's attribute Direction can describe the reverse order without a
transposition, but some filters of VTK ignore this attribute. For example, vtkContourFilter of VTK 9.7 ignores Direction
and draws values at wrong positions.

Format: VTK File Formats (VTK User's Guide, Kitware 2010, pages 487 to 497), appended data with encoding "raw" and
header_type UInt64.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO
from xml.sax.saxutils import quoteattr

import numpy as np
from numpy.typing import NDArray

from outcrop.errors import InputError
from outcrop.run.results.contents import Coordinate, Index, ResultGroup, Variable, block_indices
from outcrop.run.results.hdf5 import Advance
from outcrop.run.results.target import MARK

IMAGES = ".images"
"""The ending of the folder with the images of a collection."""

_XYZ = ("x", "y", "z")
_TYPES = {"float32": "Float32", "float64": "Float64"}


def write_image(path: Path, groups: Sequence[ResultGroup], advance: Advance) -> None:
    """Write the group of fields as one image. Raises OSError."""
    (group,) = groups
    numbers = {name: group.attributes[name] for name in ("step", "time") if name in group.attributes}
    with path.open("xb") as file:
        _write(file, group, (), numbers, advance)


def write_images(folder: Path, group: ResultGroup, advance: Advance) -> str:
    """Write each snapshot of a group as an image to a new folder. Return the text of the file that lists the images.
    Raises OSError."""
    folder.mkdir()
    (folder / MARK).write_text("This folder was written by outcrop export.\n")
    times = {one.name: one.values for one in group.coordinates if one.axis == "time"}
    entries = []
    for number in range(group.sizes["time"]):
        numbers = {name: values[number] for name, values in times.items()}
        name = f"{number:07d}.vti"
        with (folder / name).open("xb") as file:
            _write(file, group, (number,), numbers, advance)
        time, place = float(numbers.get("time", numbers["step"])), quoteattr(f"{folder.name}/{name}")
        entries.append(f'    <DataSet timestep="{time!r}" part="0" file={place}/>\n')
    head = '<?xml version="1.0"?>\n<VTKFile type="Collection" version="0.1">\n  <Collection>\n'
    return f"{head}{''.join(entries)}  </Collection>\n</VTKFile>\n"


def write_points(path: Path, groups: Sequence[ResultGroup]) -> None:
    """Write the positions of receivers and sources as points. For each receiver or source, the file has an array with
    the name of the receiver or source. For points of the receiver or source, the array contains their numbers. For all
    other points, the array contains -1. Raises InputError if the run has no positions, and OSError if the file cannot
    be written."""
    sets = [(one.name, _places(group, one.name)) for group in groups for one in group.variables]
    sets = [(name, places) for name, places in sets if len(places)]
    if not sets:
        raise InputError("the receivers and sources have no positions; use NetCDF, HDF5 or Zarr")
    count, first, arrays = sum(len(places) for _, places in sets), 0, []
    for name, places in sets:
        numbers = np.full(count, -1, np.int64)
        numbers[first : first + len(places)] = np.arange(len(places))
        first += len(places)
        arrays.append(_text_array("Int64", name, numbers))
    points = np.concatenate([places for _, places in sets])
    path.write_text(
        f'<?xml version="1.0"?>\n<VTKFile type="PolyData" version="1.0">\n  <PolyData>\n'
        f'    <Piece NumberOfPoints="{count}" NumberOfVerts="{count}" NumberOfLines="0" NumberOfStrips="0" '
        f'NumberOfPolys="0">\n      <PointData Scalars={quoteattr(sets[0][0])}>\n{"".join(arrays)}      </PointData>\n'
        f"      <Points>\n{_text_array('Float64', 'points', points)}      </Points>\n"
        f"      <Verts>\n{_text_array('Int64', 'connectivity', np.arange(count))}"
        f"{_text_array('Int64', 'offsets', np.arange(1, count + 1))}      </Verts>\n"
        f"    </Piece>\n  </PolyData>\n</VTKFile>\n"
    )


def _columns(axes: Sequence[str]) -> list[int]:
    """Return 0, 1 or 2 for each axis: its place among x, y and z. If the axes have other names, the first axis takes
    the place of x, the second the place of y, and the third the place of z."""
    return [_XYZ.index(axis) for axis in axes] if set(axes) <= set(_XYZ) else list(range(len(axes)))


def _places(group: ResultGroup, name: str) -> NDArray[np.float64]:
    """Return the positions of the points of a variable: columns x, y and z, with 0 for missing axes."""
    along = [one for one in group.coordinates if one.axis == f"{name}_point"]
    if not along:
        return np.empty((0, 3))
    found = np.zeros((len(along[0].values), 3))
    columns = _columns([one.name.removeprefix(f"{name}_") for one in along])
    found[:, columns] = np.stack([one.values for one in along], axis=1)
    return found


def _text_array(kind: str, name: str, values: NDArray[Any]) -> str:
    several = f' NumberOfComponents="{values.shape[1]}"' if values.ndim > 1 else ""
    text = " ".join(map(repr, values.reshape(-1).tolist()))
    return f'        <DataArray type="{kind}" Name={quoteattr(name)}{several} format="ascii">{text}</DataArray>\n'


def _write(
    file: BinaryIO, group: ResultGroup, outer: tuple[int, ...], numbers: dict[str, Any], advance: Advance
) -> None:
    """Write one image. Arrays of snapshots have an axis that an image does not have: the time. `outer` is the place of
    the image on the axes that the image does not have."""
    first = group.variables[0]
    shape = first.shape[len(outer) :]
    axes = first.axes[len(outer) :]
    columns = _columns(axes)
    sizes, origin, spacing = [1] * 3, [0.0] * 3, [1.0] * 3
    for axis, size, column in zip(axes, shape, columns, strict=True):
        sizes[column] = size
        origin[column], spacing[column] = _along(group.coordinates, axis)
    extent = " ".join(f"0 {size - 1}" for size in sizes)
    offset, arrays = 0, []
    for variable in group.variables:
        kind = _TYPES[variable.dtype.name]
        arrays.append(
            f'        <DataArray type="{kind}" Name={quoteattr(variable.name)} format="appended" offset="{offset}"/>\n'
        )
        offset += 8 + _image_bytes(variable, shape)
    order = "LittleEndian" if sys.byteorder == "little" else "BigEndian"
    head = (
        f'<?xml version="1.0"?>\n'
        f'<VTKFile type="ImageData" version="1.0" byte_order="{order}" header_type="UInt64">\n'
        f'  <ImageData WholeExtent="{extent}" Origin="{" ".join(map(repr, origin))}" '
        f'Spacing="{" ".join(map(repr, spacing))}">\n'
        f"    <FieldData>\n{''.join(_field_data(numbers))}    </FieldData>\n"
        f'    <Piece Extent="{extent}">\n      <PointData Scalars={quoteattr(first.name)}>\n'
        f"{''.join(arrays)}      </PointData>\n    </Piece>\n  </ImageData>\n"
        f'  <AppendedData encoding="raw">\n_'
    )
    file.write(head.encode())
    slowest_first = sorted(range(len(shape)), key=columns.__getitem__, reverse=True)
    for variable in group.variables:
        file.write(np.uint64(_image_bytes(variable, shape)).tobytes())
        begin = file.tell()
        for index, values in _blocks(variable, outer, slowest_first[-1]):
            sizes, first_cell = ([one[axis] for axis in slowest_first] for one in (shape, [i.start for i in index]))
            _put(file, begin, sizes, first_cell, np.ascontiguousarray(values.transpose(slowest_first)))
            advance(values.nbytes)
        file.seek(begin + _image_bytes(variable, shape))
    file.write(b"\n  </AppendedData>\n</VTKFile>\n")


def _put(file: BinaryIO, begin: int, sizes: Sequence[int], first: Sequence[int], values: NDArray[Any]) -> None:
    """Write a part of an array of shape `sizes`, which begins at byte `begin` of the file. `first` is the place of the
    first value of the part."""
    cut = max((axis for axis, size in enumerate(sizes) if values.shape[axis] < size), default=0)
    for outer in np.ndindex(values.shape[:cut]):  # the values along the other axes are contiguous in the file
        place = [start + one for start, one in zip(first, (*outer, *[0] * (len(sizes) - cut)), strict=True)]
        file.seek(begin + int(np.ravel_multi_index(place, sizes)) * values.itemsize)
        file.write(values[outer].data)


def _blocks(
    variable: Variable, outer: tuple[int, ...], fastest: int
) -> Iterator[tuple[tuple[slice, ...], NDArray[Any]]]:
    """Yield all values of an image part by part. Yield the index and the values of each part. `fastest` is the axis of
    the array along which values are contiguous in the image. If `fastest` is the first of three axes, a part has all
    values along the first and the last axis. A part with all values along two axes is read and written in long
    contiguous pieces."""
    before = tuple(slice(one, one + 1) for one in outer)
    shape, itemsize = variable.shape[len(outer) :], variable.dtype.itemsize
    read: Callable[[Index], NDArray[Any]] = variable.read_checked
    parts = block_indices(shape, itemsize, variable.unit_axes)
    if len(shape) == 3 and fastest == 0:
        if variable.sample is not None:
            for index in parts:  # tests the checksums, because `sample` does not test them
                read((*before, *index))
            read = variable.sample
        planes = block_indices((shape[1], shape[0], shape[2]), itemsize, 2)
        parts = ((along_first, along_middle, along_last) for along_middle, along_first, along_last in planes)
    for index in parts:
        yield index, read((*before, *index)).reshape([one.stop - one.start for one in index])


def _image_bytes(variable: Variable, shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64)) * variable.dtype.itemsize


def _field_data(numbers: dict[str, Any]) -> Iterator[str]:
    """Yield the arrays of field data. Programs that use VTK read the time of an image from the array TimeValue."""
    names = {"step": "step", "time": "TimeValue"}
    for key, value in numbers.items():
        kind = "Int64" if key == "step" else "Float64"
        text = str(int(value)) if key == "step" else repr(float(value))
        about = f'type="{kind}" Name="{names[key]}" NumberOfTuples="1" format="ascii"'
        yield f"      <DataArray {about}>{text}</DataArray>\n"


def _along(coordinates: Sequence[Coordinate], axis: str) -> tuple[float, float]:
    """Return two numbers: the first coordinate along an axis, and the distance between two neighbouring cells. If an
    axis has more than two coordinates, the last coordinate is not used. In a coarse snapshot, the last group of cells
    can be smaller, so that its centre is nearer to the previous centre."""
    for one in coordinates:
        if one.name == axis:
            values = one.values if len(one.values) < 3 else one.values[:-1]
            return float(values[0]), float((values[-1] - values[0]) / (len(values) - 1)) if len(values) > 1 else 1.0
    return 0.0, 1.0
