"""Points and values of a run's sources and receivers, in exact binary beside the manifest.

    run.oc/.taps/source-0       cells, weights, values
    run.oc/.taps/receivers-0    cells, weights

Cells are int64 of shape (points, corners, 3), weights float64 of shape (points, corners), values float64 of shape
(steps, points), all little endian in C order. They are written once, and flushed, before the manifest that names them
is committed with values; it has their checksums, and their shapes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcrop import _core
from outcrop.durable import Directory
from outcrop.errors import CorruptionError, StorageError
from outcrop.language.sparse import Injection, Sampling, SourceFactor
from outcrop.run.disk.contents import TAPS
from outcrop.run.disk.manifest import Manifest
from outcrop.run.taps.entries import NormsEntry, SamplingEntry, SnapshotsEntry, SourceEntry, TapEntries


@dataclass(frozen=True, eq=False)
class TapDefinitions:
    """What a run does besides updating, complete: cells count in the arrays that it stores."""

    injections: tuple[Injection, ...] = ()
    samplings: tuple[Sampling, ...] = ()
    snapshots: tuple[SnapshotsEntry, ...] = ()
    norms: NormsEntry | None = None

    @property
    def entries(self) -> TapEntries:
        """What the manifest says of it."""
        return TapEntries(
            tuple(
                SourceEntry(one.field, len(one.cells), one.steps, _plain(one.scale), one.cells.shape[1])
                for one in self.injections
            ),
            tuple(
                SamplingEntry(one.name, one.field, len(one.cells), one.before, one.cells.shape[1])
                for one in self.samplings
            ),
            self.snapshots,
            self.norms,
        )


NO_TAPS_DEFINED = TapDefinitions()


def definition_parts(definitions: TapDefinitions) -> dict[str, list[NDArray[Any]]]:
    """What each file holds, by its name below TAPS."""
    sources = {
        f"source-{number}": [one.cells, one.weights, one.values] for number, one in enumerate(definitions.injections)
    }
    receivers = {f"receivers-{number}": [one.cells, one.weights] for number, one in enumerate(definitions.samplings)}
    types = ("<i8", "<f8", "<f8")
    return {
        name: [np.ascontiguousarray(part, kind) for part, kind in zip(parts, types, strict=False)]
        for name, parts in {**sources, **receivers}.items()
    }


def first_sums(manifest: Manifest, definitions: TapDefinitions) -> dict[str, int]:
    """Checksums of all files below TAPS before the first step, by name."""
    sums = {name: manifest.seed(name, 0) for name in manifest.taps.files}
    for name, parts in definition_parts(definitions).items():
        for part in parts:
            sums[name] = _core.crc32c(part.reshape(-1).view(np.uint8), sums[name])
    return sums


def write_tap_files(directory: Directory, manifest: Manifest, definitions: TapDefinitions) -> None:
    """Make all files below TAPS durably: points and values, and records without rows. Raises OSError."""
    for name, parts in definition_parts(definitions).items():
        directory.put(f"{TAPS}/{name}", *parts)
    for name in manifest.taps.records(0):
        directory.put(f"{TAPS}/{name}")


def read_definitions(directory: Directory, manifest: Manifest) -> TapDefinitions:
    """What `write_tap_files` wrote; values are mapped from their files. Raises StorageError when something is missing,
    CorruptionError when a cell lies outside the grid."""
    entries = manifest.taps
    injections, samplings = [], []
    for number, source in enumerate(entries.sources):
        cells, weights = _points(directory, manifest, f"source-{number}", source)
        injections.append(
            Injection(source.field, cells, weights, mapped_values(directory, manifest, number), _scale(source.scale))
        )
    for number, one in enumerate(entries.samplings):
        cells, weights = _points(directory, manifest, f"receivers-{number}", one)
        samplings.append(Sampling(one.name, one.field, cells, weights, one.before))
    return TapDefinitions(tuple(injections), tuple(samplings), entries.snapshots, entries.norms)


def mapped_values(directory: Directory, manifest: Manifest, number: int) -> NDArray[np.float64]:
    """The values of source `number`, shape (steps, points), read from disk when indexed. Raises StorageError."""
    one, name = manifest.taps.sources[number], f"source-{number}"
    if one.steps == 0:
        return np.zeros((0, one.points))
    offset = manifest.taps.definitions[name] - 8 * one.steps * one.points
    with _opened(directory, manifest, name) as handle, os.fdopen(os.dup(handle), "rb") as file:
        return np.memmap(file, "<f8", "r", offset, (one.steps, one.points))


def _points(
    directory: Directory, manifest: Manifest, name: str, entry: SourceEntry | SamplingEntry
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Cells of shape (points, corners, 3), all in the grid, and weights of shape (points, corners)."""
    shape = (entry.points, entry.corners)
    count = entry.points * entry.corners
    with _opened(directory, manifest, name) as handle:
        data = directory.read_from(handle, 0, count * 4 * 8)
    cells = np.frombuffer(data, "<i8", count * 3).reshape(*shape, 3)
    weights = np.frombuffer(data, "<f8", count, count * 3 * 8).reshape(shape)
    if ((cells < 0) | (cells >= np.array(manifest.layout.shape))).any() or not np.isfinite(weights).all():
        raise CorruptionError(f"{directory.path / TAPS / name} is damaged: it has points outside the grid")
    return cells, weights


@contextlib.contextmanager
def _opened(directory: Directory, manifest: Manifest, name: str) -> Iterator[int]:
    path, expected = directory.path / TAPS / name, manifest.taps.definitions[name]
    try:
        with directory.opened(f"{TAPS}/{name}") as handle:
            if (size := os.fstat(handle).st_size) != expected:
                raise CorruptionError(f"{path} has {size} bytes, {expected} belong there")
            yield handle
    except OSError as error:
        raise StorageError(f"{path} cannot be used: {error.strerror}") from None


def _plain(scale: SourceFactor | None) -> dict[str, Any] | None:
    return None if scale is None else scale.to_json()


def _scale(data: dict[str, Any] | None) -> SourceFactor | None:
    return None if data is None else SourceFactor.from_json(data)
