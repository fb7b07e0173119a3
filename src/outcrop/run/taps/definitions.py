"""Points and values of a run's sources and receivers, in exact binary beside the manifest.

    run.oc/.taps/source-0.npz           cells, weights
    run.oc/.taps/source-0-values.npy    values, of which passes read those of their steps
    run.oc/.taps/receivers-0.npz        cells, weights

They are written once, and flushed, before the manifest that names them is committed with values.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcrop.errors import StorageError
from outcrop.language.sparse import Injection, Sampling, Scale
from outcrop.run.disk.directory import TAPS
from outcrop.run.taps.entries import NO_ENTRIES, NormsEntry, SamplingEntry, SnapshotsEntry, SourceEntry, TapEntries


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


def write_definitions(directory: Path, definitions: TapDefinitions) -> None:
    """Write points and values into the run's directory, durably. Raises OSError."""
    if definitions.entries == NO_ENTRIES:
        return
    folder = directory / TAPS
    folder.mkdir()
    for number, source in enumerate(definitions.injections):
        _save(_source_file(folder, number), {"cells": source.cells, "weights": source.weights})
        _save_values(_values_file(folder, number), source.values)
    for number, receivers in enumerate(definitions.samplings):
        _save(_receivers_file(folder, number), {"cells": receivers.cells, "weights": receivers.weights})


def read_definitions(directory: Path, entries: TapEntries) -> TapDefinitions:
    """What `write_definitions` wrote; values are mapped from their files. Raises StorageError when something is missing
    or damaged."""
    folder = directory / TAPS
    injections, samplings = [], []
    for number, source in enumerate(entries.sources):
        cells, weights = _load(_source_file(folder, number), ("cells", "weights"))
        values = mapped_values(directory, number)
        injections.append(Injection(source.field, cells, weights, values, _scale(source.scale)))
    for number, one in enumerate(entries.samplings):
        cells, weights = _load(_receivers_file(folder, number), ("cells", "weights"))
        samplings.append(Sampling(one.name, one.field, cells, weights, one.before))
    return TapDefinitions(tuple(injections), tuple(samplings), entries.snapshots, entries.norms)


def mapped_values(directory: Path, number: int) -> NDArray[np.float64]:
    """The values of source `number`, shape (steps, points), read from disk when indexed. Raises StorageError."""
    folder = directory / TAPS
    path = _values_file(folder, number)
    if not path.exists():  # runs made earlier have them beside the points
        (values,) = _load(_source_file(folder, number), ("values",))
        return np.asarray(values, np.float64)
    try:
        values = np.load(path, mmap_mode="r")
        return np.asarray(values, np.float64)
    except (OSError, ValueError, EOFError) as error:
        raise StorageError(f"{path} cannot be used: {' '.join(str(error).split())}") from None


def _source_file(folder: Path, number: int) -> Path:
    return folder / f"source-{number}.npz"


def _values_file(folder: Path, number: int) -> Path:
    return folder / f"source-{number}-values.npy"


def _receivers_file(folder: Path, number: int) -> Path:
    return folder / f"receivers-{number}.npz"


def _save(path: Path, arrays: dict[str, Any]) -> None:
    with open(path, "wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
        file.flush()
        os.fsync(file.fileno())


def _save_values(path: Path, values: NDArray[np.float64]) -> None:
    with open(path, "wb") as file:
        np.save(file, values, allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())


def _load(path: Path, names: Iterable[str]) -> list[Any]:
    try:
        with np.load(path) as file:
            return [file[name] for name in names]
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise StorageError(f"{path} cannot be used: {' '.join(str(error).split())}") from None


def _plain(scale: Scale | None) -> dict[str, Any] | None:
    return None if scale is None else scale.to_json()


def _scale(data: dict[str, Any] | None) -> Scale | None:
    return None if data is None else Scale.from_json(data)
