"""Test every checksum of a committed state."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from outcrop.errors import CorruptionError, InputError
from outcrop.run.disk.planes import Planes
from outcrop.run.disk.region import ShardFile, place_of, read_bytes
from outcrop.run.disk.state import State, open_state
from outcrop.run.disk.zarr_format import index_bytes


def find_damage(path: Path) -> tuple[list[str], int, int]:
    """Lines that name each damaged plane and index of the run at `path`, how many checksums were tested, and the step.

    Raises InputError when there is no run or no state, or while it is being run, StorageError when a file cannot be
    read.
    """
    state = open_state(path)
    if not state.has_values:
        raise InputError(f"{path} holds no values yet, so there is nothing to verify")
    with state.locked():  # or another process could overwrite what is tested here
        damage = [line for name in state.manifest.filled for line in _damage_of(state, name)]
    checked = len(state.manifest.filled) * (state.layout.shape[0] + state.layout.shards)
    return damage, checked, state.manifest.step


def _damage_of(state: State, name: str) -> list[str]:
    layout, files = state.layout, state.current_files_of(name)
    damage = _damaged_indices(state, files)
    with Planes(files, layout) as planes:
        for z0 in range(0, layout.shape[0], planes.group_planes):
            z1 = min(z0 + planes.group_planes, layout.shape[0])
            if _damage(planes, z0, z1):  # somewhere in this group; say where
                damage += [line for z in range(z0, z1) for line in _damage(planes, z, z + 1)]
    return [f"{name}: {line}" for line in damage] if len(state.manifest.arrays) > 1 else damage


def _damage(planes: Planes, z0: int, z1: int) -> list[str]:
    """What is first found wrong in planes z0 <= z < z1, in a list; an empty one if nothing."""
    try:
        for _ in planes.groups(z0, z1):
            pass
    except CorruptionError as error:
        return [str(error)]
    return []


def _damaged_indices(state: State, files: Sequence[ShardFile]) -> list[str]:
    damage = []
    for shard, file in enumerate(files):
        offset = state.layout.records(shard) * state.layout.record_bytes
        if read_bytes(file, offset, state.layout.index_bytes) != index_bytes(state.layout, shard):
            damage.append(f"{place_of(file)}: the index at offset {offset} is damaged")
    return damage
