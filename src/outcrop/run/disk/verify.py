"""Verify a run: planes, indices, records, snapshots, and the files that are derived from the manifest.

`find_damage` changes no file. `repair` writes wrong derived files again. `repair` does not change damaged planes and
snapshots: only a backup can restore them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outcrop.durable import Directory
from outcrop.errors import CorruptionError, InputError
from outcrop.run.disk.acquisition_files import checksum_of, damage_of, damaged_snapshots, fill_up
from outcrop.run.disk.layout import index_parts
from outcrop.run.disk.manifest import Manifest
from outcrop.run.disk.planes import ShardFile, place_of, read_bytes
from outcrop.run.disk.state import State


@dataclass(frozen=True)
class Findings:
    """The result of a verification. `damage` contains a line for each wrong checksum, and `untidy` contains a line for
    each wrong derived file. `checked` is the number of tested checksums, and `step` is the committed step."""

    damage: list[str]
    untidy: list[str]
    checked: int
    step: int


def find_damage(state: State) -> Findings:
    """Verify a run and return the damage. Raises InputError when the run has no values, or when another process
    executes the run. Raises StorageError when a file cannot be read."""
    _require_values(state)
    with state.locked(shared=True):  # no other process may overwrite planes that are being tested
        names = list(state.manifest.filled)
        damage = [line for name in names for line in _damage_of(state, name)]
        checked = len(names) * (state.layout.shape[0] + state.layout.shards)
        records, count = _damage_of_acquisition(state)
        return Findings(damage + records, state.untidy(), checked + count, state.manifest.step)


def repair(state: State) -> list[str]:
    """Write wrong derived files again. Keep damaged records as they are, and commit new checksums for them. Return a
    line for each change. Raises the errors of `find_damage`."""
    _require_values(state)
    with state.locked(check=False):
        done = [f"{line}: mended" for line in state.untidy()]
        manifest, sums = state.manifest, dict(state.manifest.sums)
        for name in manifest.own_taps.records(manifest.step):
            fill_up(state.records, manifest, name)
            if damage := damage_of(state.records, manifest, name):
                _, sums[name] = checksum_of(state.records, manifest, name)
                done.append(f"{damage}: kept as it is")
        state.repair(sums)
    return done


def _require_values(state: State) -> None:
    if not state.has_values:
        raise InputError(f"{state.path} holds no values yet, so there is nothing to verify")


def _damage_of_acquisition(state: State) -> tuple[list[str], int]:
    """Return a line for each damaged file of acquisition, and the number of tested files."""
    manifest = state.manifest
    if not manifest.taps:
        return [], 0
    directory: Directory = state.records
    found = [damage_of(directory, manifest, name) for name in manifest.own_taps.files]
    found += [damage for _, damage in damaged_snapshots(directory, manifest)]
    return [line for line in found if line], len(found)


def _damage_of(state: State, name: str) -> list[str]:
    files = state.current_files_of(name)
    damage = _damaged_indices(state.manifest, files)
    with state.planes_of(name) as planes:
        for z0 in range(0, state.layout.shape[0], planes.group_planes):
            z1 = min(z0 + planes.group_planes, state.layout.shape[0])
            try:
                for _ in planes.groups(z0, z1):
                    pass
            except CorruptionError:  # the group has a damaged plane; its planes are read one by one to find this plane
                for z in range(z0, z1):
                    try:
                        for _ in planes.groups(z, z + 1):
                            pass
                    except CorruptionError as error:
                        damage.append(str(error))
    return [f"{name}: {line}" for line in damage] if len(state.manifest.arrays) > 1 else damage


def _damaged_indices(manifest: Manifest, files: Sequence[ShardFile]) -> list[str]:
    layout, damage = manifest.layout, []
    for shard, file in enumerate(files):
        begin = offset = layout.records(shard) * layout.record_bytes
        for part in index_parts(layout, shard):
            if read_bytes(file, offset, len(part)) != part:
                damage.append(f"{place_of(file)}: the index at offset {begin} is damaged")
                break
            offset += len(part)
    return damage
