"""Verify a run: planes, indices, records, snapshots, and the files that are derived from the manifest.

`find_damage` changes no file. `repair` writes wrong derived files again. `repair` does not change damaged planes and
snapshots: only a backup can restore them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outcrop.durable import Directory
from outcrop.errors import CorruptionError, InputError, StorageError
from outcrop.run.disk.acquisition_files import checksum_of, damage_of, damaged_snapshots, fill_up, lost_records
from outcrop.run.disk.layout import index_parts
from outcrop.run.disk.manifest import Manifest
from outcrop.run.disk.planes import Planes, ShardFile, place_of, read_bytes
from outcrop.run.disk.state import State


@dataclass(frozen=True)
class Findings:
    """The result of a verification. `damage` contains a line for each file that is missing or has a wrong size, and a
    line for each wrong checksum. `lost` is the number of files that are missing or have a wrong size. `untidy` contains
    a line for each wrong derived file. `checked` is the number of tested checksums, and `step` is the committed
    step."""

    damage: list[str]
    untidy: list[str]
    checked: int
    step: int
    lost: int = 0


def find_damage(state: State) -> Findings:
    """Verify a run, and return a description of all damage that was found. If files are missing or have a wrong size,
    all other files are still tested. Raises InputError when the run has no values, or when another process executes the
    run. Raises StorageError when a file cannot be read."""
    _require_values(state)
    with state.locked(shared=True):  # no other process may overwrite planes that are being tested
        _require_values(state)  # another process may have begun to replace the run
        layout, shards = state.layout, state.lost_shards()
        records = lost_records(state.records, state.manifest) if state.manifest.taps else {}
        damage, checked = [*shards.values(), *records.values()], 0
        for name in state.manifest.filled:
            files = state.current_files_of(name)
            intact = [shard for shard, file in enumerate(files) if place_of(file) not in shards]
            checked += sum(layout.records(shard) + 1 for shard in intact)
            damage += _damage_of(state, name, files, intact)
        found, count = _damage_of_acquisition(state, records)
        lost = len(shards) + len(records)
        return Findings(damage + found, state.untidy(), checked + count, state.manifest.step, lost)


def repair(state: State) -> list[str]:
    """Write wrong derived files again. Do not change damaged records, but commit new checksums for the damaged records.
    Return a line for each change, and for each record that cannot be repaired. `find_damage` reports everything that is
    still wrong. Raises the errors of `find_damage`."""
    _require_values(state)
    with state.locked(check=False):
        _require_values(state)
        done = [f"{line}: mended" for line in state.untidy()]
        manifest, sums = state.manifest, dict(state.manifest.sums)
        for name in manifest.own_taps.records(manifest.step):
            try:
                fill_up(state.records, manifest, name)
                if damage := damage_of(state.records, manifest, name):
                    _, sums[name] = checksum_of(state.records, manifest, name)
                    done.append(f"{damage}: kept as it is")
            except StorageError as error:
                done.append(f"{error}: not repaired")
        state.repair(sums)
    return done


def _require_values(state: State) -> None:
    if not state.has_values:
        raise InputError(f"{state.path} holds no values yet, so there is nothing to verify")


def _damage_of_acquisition(state: State, lost: Mapping[str, str]) -> tuple[list[str], int]:
    """Return a line for each damaged file of acquisition, and the number of tested files. Files in `lost` are not
    tested."""
    manifest = state.manifest
    if not manifest.taps:
        return [], 0
    directory: Directory = state.records
    found = [damage_of(directory, manifest, name) for name in manifest.own_taps.files if name not in lost]
    found += [damage for _, damage in damaged_snapshots(directory, manifest, lost)]
    return [line for line in found if line], len(found)


def _damage_of(state: State, name: str, files: Sequence[ShardFile], intact: Sequence[int]) -> list[str]:
    """Return a line for each damaged plane and index of an array. Only the shards with the numbers in `intact` are
    read."""
    if not intact:
        return []
    layout = state.layout
    damage = _damaged_indices(state.manifest, files, intact)
    # `Planes` opens all its files, so another file stands for a missing file and is not read in its place
    there = [file if shard in intact else files[intact[0]] for shard, file in enumerate(files)]
    with Planes(there, layout, seed=state.manifest.seed(name)) as planes:
        for z0 in range(0, layout.shape[0], planes.group_planes):
            z1 = min(z0 + planes.group_planes, layout.shape[0])
            wanted = [z for z in range(z0, z1) if layout.locate(z)[0] in intact]
            if len(wanted) == z1 - z0 and not _damage_in(planes, z0, z1):
                continue
            # the group has a damaged plane, so its planes are read one by one to find this plane
            damage += [line for z in wanted if (line := _damage_in(planes, z, z + 1))]
    return [f"{name}: {line}" for line in damage] if len(state.manifest.arrays) > 1 else damage


def _damage_in(planes: Planes, z0: int, z1: int) -> str:
    """Read planes z0 <= z < z1. Return the message about the first damaged plane, or "" if no plane is damaged."""
    try:
        for _ in planes.groups(z0, z1):
            pass
    except CorruptionError as error:
        return str(error)
    return ""


def _damaged_indices(manifest: Manifest, files: Sequence[ShardFile], intact: Sequence[int]) -> list[str]:
    layout, damage = manifest.layout, []
    for shard in intact:
        begin = offset = layout.records(shard) * layout.record_bytes
        for part in index_parts(layout, shard):
            if read_bytes(files[shard], offset, len(part)) != part:
                damage.append(f"{place_of(files[shard])}: the index at offset {begin} is damaged")
                break
            offset += len(part)
    return damage
