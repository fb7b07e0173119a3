"""Arrays made, or opened where there is one: everything has been checked, and there is room."""

from __future__ import annotations

from outcrop.arrays.array import Array
from outcrop.arrays.committed import Committed
from outcrop.arrays.keeper import Keeper, Volatile, take_memory
from outcrop.arrays.npy_file import NpyFile, create_npy
from outcrop.arrays.paths import check_path
from outcrop.arrays.spec import ArraySpec
from outcrop.tiers.tier import Tier


def make_array(spec: ArraySpec, tier: Tier, working: Tier) -> Array:
    """The array `spec` on `tier`, worked on in `working` if it is committed. Raises InputError, StorageError,
    CorruptionError."""
    return Array(spec, tier, _keeper(spec, tier, working))


def _keeper(spec: ArraySpec, tier: Tier, working: Tier) -> Keeper:
    if spec.path is None:
        return Volatile(take_memory(tier, spec.nbytes))
    is_there = check_path(spec.path, spec)
    if spec.is_committed:
        return Committed(spec.path, spec, tier, lambda nbytes: take_memory(working, nbytes))
    if not is_there:
        create_npy(spec.path, spec.shape, spec.dtype)
    return NpyFile(spec.path, spec, tier, writable=not is_there or spec.access == "update")
