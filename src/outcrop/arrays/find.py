"""Which tiers an array could be on: those it names, that hold its path, and that keep values as long as it wants."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from outcrop.arrays.spec import ArraySpec
from outcrop.errors import InputError
from outcrop.paths import nearest_existing
from outcrop.tiers.survey import tiers_holding
from outcrop.tiers.tier import KINDS, Persistence, Tier


def possible_tiers(name: str, spec: ArraySpec, tiers: Sequence[Tier]) -> list[Tier]:
    """At least one of `tiers`. `name` is the array's, for messages. Raises InputError that says why there is none."""
    if not tiers:
        raise InputError(f"{name}: there are no tiers to choose from")
    found = _named(name, spec, tiers)
    if spec.is_committed and spec.tier != "auto":
        found = _lasting(name, spec, found, tiers)
    if spec.path is not None:
        found = _holding(name, spec, spec.path, found, tiers)
    if spec.is_committed:
        found = _lasting(name, spec, found, tiers)
    elif spec.tier == "auto" and spec.path is None:
        # tmpfs is memory, too, which DRAM offers for less.
        found = [tier for tier in found if tier.kind != "tmpfs"] or found
    return found


def _named(name: str, spec: ArraySpec, tiers: Sequence[Tier]) -> list[Tier]:
    if spec.tier == "auto":
        return list(tiers)
    found = [tier for tier in tiers if tier.name == spec.tier] or [tier for tier in tiers if tier.kind == spec.tier]
    if not found:
        what = f"no {spec.tier} here" if spec.tier in KINDS else f"no tier {spec.tier!r}"
        raise InputError(f"{name}: there is {what}; there are {_listed(tiers)}")
    unusable = [tier for tier in found if tier.note and not tier.free_bytes]
    if spec.path is None and len(unusable) == len(found):
        raise InputError(f"{name}: tier {found[0].name} ({found[0].where}) cannot be used: {found[0].note}")
    return found


def _holding(name: str, spec: ArraySpec, path: Path, found: Sequence[Tier], tiers: Sequence[Tier]) -> list[Tier]:
    """The one on whose file system the path is; of several the one that is declared for a folder around it."""
    existing = nearest_existing(path)
    try:
        existing.stat()
    except OSError as error:
        raise InputError(f"{name}: {path} cannot be used: {error.strerror}") from None
    there = tiers_holding(existing, found)
    if not there:
        actual = next(iter(tiers_holding(existing, tiers)), None)
        on = f"on {actual.name} ({actual.kind})" if actual else "on another file system"
        wanted = f"tier {spec.tier}"
        if all(tier.is_memory for tier in found):
            raise InputError(f"{name}: {path} is {on}, not in {wanted}, which has no files; leave out one of them")
        places = ", ".join(tier.where for tier in found if not tier.is_memory)
        raise InputError(f"{name}: {path} is {on}, not on {wanted}; give a path on the file system of {places}")
    return there[:1]


def _lasting(name: str, spec: ArraySpec, found: Sequence[Tier], tiers: Sequence[Tier]) -> list[Tier]:
    """Those that keep values beyond the process; where the user has named none, also when the machine goes down."""
    needed = Persistence.JOB if spec.tier == "auto" and spec.path is None else Persistence.REBOOT
    lasting = [tier for tier in found if tier.persistence >= needed]
    if not lasting:
        able = [tier for tier in tiers if tier.persistence >= needed]
        lost = "when the process ends" if needed is Persistence.REBOOT else "when the machine goes down"
        raise InputError(
            f"{name}: persist={spec.persist!r} on {_listed(found)}, which forgets {lost}; "
            f"{'use ' + _listed(able) if able else 'no tier here keeps it longer'}"
        )
    return lasting


def _listed(tiers: Sequence[Tier]) -> str:
    return ", ".join(tier.name if tier.name == tier.kind else f"{tier.name} ({tier.kind})" for tier in tiers)
