"""The files of acquisition. The folder ACQUISITION contains definitions and records. The definitions (points and
values) are written once. The records (traces, norms, and checksums of snapshots) grow with the run. The folder
SNAPSHOTS contains the snapshots.

    run.oc/.taps/source-0       cells, weights, values
    run.oc/.taps/receivers-0    cells, weights
    run.oc/.taps/trace-line     step k writes row k - 1: a float64 for each point
    run.oc/.taps/norms-u        step k writes row k / every: step, sum, squares, min, max
    run.oc/.taps/snapshots-u    a CRC32C of four bytes for the cells of each snapshot of u

In a part of a run of several ranks, a trace has only the points of the part, and the sums of norms are not rounded
(PART_NORMS). The files of points and values in each part describe the whole grid.

Points and values are little endian in C order. The files with points and values are written and flushed before the
first commit. The manifest has the checksums and shapes of points and values.

Row 0 of norms is for the initial values, or for step `every` if norms of the initial values are not recorded. The rows
of a pass are written and flushed before the commit of the pass. Rows for steps after the manifest's step are not valid,
and a repeated pass overwrites them. The manifest has a checksum for each file of acquisition. The checksum of a file
covers the valid rows, the identity of the run and the name of the file. So the checksum of a file reveals rows that are
damaged, lost, misplaced or from another run.
"""

from __future__ import annotations

import math
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from outcrop import _core
from outcrop.durable import Directory
from outcrop.errors import CorruptionError, StorageError, os_errors_as
from outcrop.run.disk.contents import ACQUISITION, GROUP, SNAPSHOTS, files_below, snapshot_end
from outcrop.run.disk.entries import EXACT_BYTES, HISTORY, PART_NORMS_BYTES, SUM_BYTES, SnapshotsEntry
from outcrop.run.disk.manifest import Manifest

Definitions: TypeAlias = Mapping[str, Sequence[NDArray[Any]]]
"""A mapping from the name of each file with points and values to the arrays in the file, in the order of the file."""

NORMS = np.dtype([(name, "<f8") for name in ("step", "sum", "squares", "min", "max")])
"""One row of norms."""

PART_NORMS = np.dtype([*NORMS.descr, ("exact_sum", f"V{EXACT_BYTES}"), ("exact_squares", f"V{EXACT_BYTES}")])
"""One row of norms of one part. `exact_sum` and `exact_squares` are integers in units of 2**-1074, in little-endian
order. `sum` and `squares` have only the sums of infinities and NaNs, or 0 if there are none."""
assert PART_NORMS.itemsize == PART_NORMS_BYTES

_PART_BYTES = 4 << 20


def first_sums(manifest: Manifest, definitions: Definitions) -> dict[str, int]:
    """Return a dictionary that maps the name of each file in ACQUISITION to the checksum of this file before the first
    step."""
    sums = {name: manifest.seed(name, 0) for name in manifest.own_taps.files}
    for name, parts in definitions.items():
        for part in parts:
            sums[name] = continued(sums[name], part)
    return sums


def write_acquisition_files(directory: Directory, manifest: Manifest, definitions: Definitions) -> None:
    """Write the definitions and empty records durably. Raises OSError."""
    for name, parts in definitions.items():
        directory.put(f"{ACQUISITION}/{name}", *parts)
    for name in manifest.own_taps.records(0):
        directory.put(f"{ACQUISITION}/{name}")


def write_rows(directory: Directory, name: str, first_row: int, rows: NDArray[Any]) -> None:
    """Write rows durably to the file `name` in ACQUISITION, from row `first_row` on. Raises StorageError."""
    data = np.ascontiguousarray(rows)
    row_bytes = data.nbytes // max(1, len(data))
    with os_errors_as(StorageError, f"cannot write {directory.path / ACQUISITION / name}"):
        directory.write(f"{ACQUISITION}/{name}", first_row * row_bytes, data.reshape(-1).view(np.uint8))


def continued(checksum: int, rows: NDArray[Any]) -> int:
    """Return the checksum of a file after `rows` have been appended. `checksum` is the checksum of the file without
    `rows`."""
    return int(_core.crc32c(np.ascontiguousarray(rows).reshape(-1).view(np.uint8), checksum))


def check_records(directory: Directory, manifest: Manifest) -> None:
    """Raise CorruptionError when a file in ACQUISITION has changed since the commit, and StorageError when it cannot be
    read."""
    for name in manifest.own_taps.files:
        if damage := damage_of(directory, manifest, name):
            repair = f", or accept its content with: outcrop verify --repair {directory.path}"
            raise CorruptionError(f"{damage}; restore a copy{'' if name in manifest.taps.definitions else repair}")


def check_sizes(directory: Directory, manifest: Manifest) -> None:
    """Raise StorageError when a file in ACQUISITION is missing or too short."""
    for text in lost_records(directory, manifest).values():
        raise StorageError(text)


def lost_records(directory: Directory, manifest: Manifest) -> dict[str, str]:
    """Return a message for each file in ACQUISITION that is missing or too short. The keys of the result are the names
    of the files."""
    found = {}
    for name, count in _valid_bytes(manifest).items():
        path = directory.path / ACQUISITION / name
        rows = f", or fill it up with: outcrop verify --repair {directory.path}"
        remedy = f"; restore a copy{'' if name in manifest.taps.definitions else rows}"
        try:
            with os_errors_as(StorageError, f"{path} cannot be used"):
                status = directory.status(f"{ACQUISITION}/{name}")
        except StorageError as error:
            found[name] = str(error)
            continue
        if status is None or not stat.S_ISREG(status.st_mode):
            found[name] = f"{path} is missing{remedy}"
        elif status.st_size < count:
            found[name] = f"{path} has {status.st_size} bytes, but needs {count}{remedy}"
    return found


def damage_of(directory: Directory, manifest: Manifest, name: str) -> str:
    """Return a description of the damage of a file, or "" if the file is intact. Raises StorageError when the file
    cannot be read."""
    count, path = _valid_bytes(manifest)[name], directory.path / ACQUISITION / name
    found, checksum = checksum_of(directory, manifest, name)
    if found < count:
        return f"{path} has {found} bytes, but needs {count}"
    return "" if checksum == manifest.sums[name] else f"{path} is damaged: checksum mismatch"


def fill_up(directory: Directory, manifest: Manifest, name: str) -> None:
    """Extend a file of records that is too short, or create a missing file. Missing values become NaN. Raises
    StorageError."""
    file, count = f"{ACQUISITION}/{name}", _valid_bytes(manifest)[name]
    with os_errors_as(StorageError, f"{directory.path / file} cannot be filled up"):
        if directory.status(file) is None:
            directory.put(file)
        # a record has numbers of 8 bytes, or checksums of 4 bytes
        item_bytes = 4 if manifest.own_taps.records(manifest.step)[name][0] % 8 else 8
        size = len(directory.read_file(file, count))
        begin = size - size % item_bytes
        if size < count:
            directory.write(file, begin, np.full((count - begin) // item_bytes, np.nan, f"f{item_bytes}"))


def checksum_of(directory: Directory, manifest: Manifest, name: str) -> tuple[int, int]:
    """The manifest determines how many bytes of a file in ACQUISITION are valid. Return two numbers: how many valid
    bytes are in the file, and the checksum of these bytes."""
    count, path = _valid_bytes(manifest)[name], directory.path / ACQUISITION / name
    with os_errors_as(StorageError, f"{path} cannot be read"), directory.opened(f"{ACQUISITION}/{name}") as handle:
        return _summed(directory, handle, count, manifest.seed(name, 0))


def _summed(directory: Directory, handle: int, count: int, checksum: int = 0) -> tuple[int, int]:
    """Read the first `count` bytes of an open file. Return two values: the number of bytes that were read, and their
    checksum. The number of bytes is less than `count` if the file is too short. `checksum` is the checksum of earlier
    data, which the result continues."""
    done = 0
    while part := directory.read_from(handle, done, min(_PART_BYTES, count - done)):
        checksum, done = _core.crc32c(part, checksum), done + len(part)
    return done, checksum


def read_rows(directory: Directory, manifest: Manifest, name: str) -> bytes:
    """Return the valid rows of a record. Raises StorageError and CorruptionError."""
    count, path = _valid_bytes(manifest)[name], directory.path / ACQUISITION / name
    with os_errors_as(StorageError, f"{path} cannot be read"):
        data = directory.read_file(f"{ACQUISITION}/{name}", count)
    if len(data) < count:
        raise StorageError(f"{path} has {len(data)} bytes, but needs {count}")
    if _core.crc32c(data, manifest.seed(name, 0)) != manifest.sums[name]:
        raise CorruptionError(f"{path} is damaged: checksum mismatch")
    return data


def read_some_rows(directory: Directory, manifest: Manifest, name: str, first: int, end: int) -> bytes:
    """Return the rows first <= row < end of a record. Only `damage_of` compares the checksum of a record with the
    checksum in the manifest. This function does not compare them. Raises StorageError."""
    row_bytes, count = manifest.own_taps.records(manifest.step)[name]
    assert 0 <= first <= end <= count
    path, size = directory.path / ACQUISITION / name, row_bytes * (end - first)
    with os_errors_as(StorageError, f"{path} cannot be read"), directory.opened(f"{ACQUISITION}/{name}") as handle:
        data = directory.read_from(handle, row_bytes * first, size)
    if len(data) < size:
        raise StorageError(f"{path} is too short")
    return data


def _valid_bytes(manifest: Manifest) -> dict[str, int]:
    """Return a dictionary with the number of valid bytes of each file in ACQUISITION at the manifest's step. The keys
    are names of files."""
    rows = manifest.own_taps.records(manifest.step)
    return manifest.taps.definitions | {name: row_bytes * count for name, (row_bytes, count) in rows.items()}


def snapshot_name(entry: SnapshotsEntry, field: str, number: int) -> str:
    """Return the path of snapshot `number` of a field, relative to the run's directory."""
    return "/".join([SNAPSHOTS, f"{entry.prefix}{field}", "c", str(number), *["0"] * len(entry.box)])


def has_freed_history(directory: Directory, manifest: Manifest) -> bool:
    """Return True if the manifest has no history, but files of a history exist. If True, a process was killed while it
    deleted the files of the history. Raises OSError."""
    return manifest.taps.history is None and directory.status(f"{SNAPSHOTS}/{HISTORY}") is not None


def remove_freed_history(directory: Directory, manifest: Manifest) -> None:
    """Delete the files of a freed history. The folder of the history is deleted last, because `has_freed_history`
    looks for this folder. Raises StorageError."""
    folder = f"{SNAPSHOTS}/{HISTORY}"
    with os_errors_as(StorageError, f"cannot delete the history of {directory.path}"):
        if not has_freed_history(directory, manifest):
            return
        if directory.status(ACQUISITION) is not None:
            records = [name for name in directory.names(ACQUISITION) if name.startswith(f"snapshots-{HISTORY}-")]
            directory.remove_files(f"{ACQUISITION}/{name}" for name in records)
            directory.flush(ACQUISITION)
        if not manifest.taps:
            directory.remove_empty(ACQUISITION)
        if not manifest.own_taps.snapshots:
            directory.remove(f"{SNAPSHOTS}/{GROUP}")
        directory.remove_files(name for name in files_below(directory, [SNAPSHOTS])[0] if name.startswith(f"{folder}/"))
        directory.remove_empty(folder if manifest.own_taps.snapshots else SNAPSHOTS)


def damaged_snapshots(
    directory: Directory, manifest: Manifest, lost: Collection[str] = ()
) -> Iterator[tuple[str, str]]:
    """For each valid snapshot, yield its path and a description of its damage. The description is "" if the snapshot is
    intact. `lost` contains the names of records that are missing or too short. A snapshot is left out if its checksum
    is in a record that `lost` names. Raises StorageError when a record that is not in `lost` cannot be read."""
    itemsize = np.dtype(manifest.dtype).itemsize
    for entry in manifest.own_taps.snapshots:
        size, index = math.prod(entry.shape) * itemsize, snapshot_end(manifest, entry)
        for field in (one for one in entry.fields if entry.record(one) not in lost):
            data = directory.read_file(f"{ACQUISITION}/{entry.record(field)}", SUM_BYTES * entry.count(manifest.step))
            sums = np.frombuffer(data, "<u4").tolist()
            for number in entry.numbers(manifest.step):
                name = snapshot_name(entry, field, number)
                yield name, _snapshot_damage(directory, name, size, index, sums[number])


def snapshot_damage(
    directory: Directory, manifest: Manifest, entry: SnapshotsEntry, field: str, number: int
) -> str:
    """Return a description of the damage of snapshot `number`, or "" if the snapshot is intact. Raises StorageError
    when the record with the checksum of the snapshot cannot be read."""
    (expected,) = np.frombuffer(
        read_some_rows(directory, manifest, entry.record(field), number, number + 1), "<u4"
    ).tolist()
    size, index = math.prod(entry.shape) * np.dtype(manifest.dtype).itemsize, snapshot_end(manifest, entry)
    return _snapshot_damage(directory, snapshot_name(entry, field, number), size, index, expected)


def _snapshot_damage(directory: Directory, name: str, size: int, index: bytes, expected: int) -> str:
    path = directory.path / name
    try:
        with os_errors_as(StorageError, f"{path} cannot be read"), directory.opened(name) as handle:
            done, checksum = _summed(directory, handle, size)
            tail = directory.read_from(handle, size, len(index) + 1)
    except StorageError as error:
        return str(error)
    if done < size or len(tail) != len(index):
        return f"{path} does not have {size + len(index)} bytes"
    if checksum != expected:
        return f"{path} is damaged: checksum mismatch"
    return "" if tail == index else f"{path}: the index at offset {size} is damaged"
