"""From seconds of turns to medians, spreads and the comparison of ways, for `outcrop agg bench`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from outcrop.bench.aggregate.schedule import MODES

OURS = "outcrop"
COLD_SHARE_MOST = 0.01
"""Of the pages of a file that is called cold."""


def of_programs(programs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The figures of each workload, of all programs that took turns on as many ranks."""
    return [_of_workload([program["workloads"][i] for program in programs], programs)
            for i in range(len(programs[0]["workloads"]))]  # fmt: skip


def _of_workload(parts: Sequence[dict[str, Any]], programs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    declared = {way: part["declared"][way] for part, one in zip(parts, programs, strict=True) for way in one["own"]}
    records = [record for part in parts for record in part["measured"]]
    ways = list(dict.fromkeys(way for one in programs for way in one["own"]))
    first = parts[0]
    return {
        "ranks": programs[0]["ranks"],
        "nodes": programs[0]["nodes"],
        "library": programs[0]["library"],
        "workload": first["workload"],
        "text": first["text"],
        "file_bytes": first["file_bytes"],
        "ways": {way: _of_way(way, declared[way], records) for way in ways},
        "cells": [
            cell(mode.name, [record for record in records if record["mode"] == mode.name], first["file_bytes"])
            for mode in MODES
            if any(record["mode"] == mode.name for record in records)
        ],
    }


def _of_way(way: str, declared: dict[str, Any], records: Iterable[dict[str, Any]]) -> dict[str, Any]:
    own = [record for record in records if record["way"] == way]
    kinds = {"create": [one for one in own if one["mode"].startswith("write")],
             "open": [one for one in own if one["mode"].startswith("read")]}  # fmt: skip
    return {
        **declared,
        "name": name_of(way, declared["implementation"]),
        **{f"seconds_{kind}": spread(one["seconds_set_up"] for one in some) for kind, some in kinds.items() if some},
        "seconds_close": spread(one["seconds_close"] for one in own),
    }


def cell(mode: str, records: Sequence[dict[str, Any]], file_bytes: int) -> dict[str, Any]:
    """One mode of a workload, by all ways. `gain` is by how much this library is faster than the fastest other way, by
    medians, and `gain_collective` than the fastest MPI-IO: None where it, or all those others, were not measured."""
    ways = list(dict.fromkeys(sorted(record["way"] for record in records)))
    by_way = {way: [record for record in records if record["way"] == way] for way in ways}
    seconds = {way: spread(record["seconds"] for record in some) for way, some in by_way.items()}
    medians = {way: one["median"] for way, one in seconds.items()}
    ours = medians.pop(OURS, None)
    collective = [seconds_way for way, seconds_way in medians.items() if way.startswith("mpi-io")]
    cached = [record["cached_before"] for record in records if record["cached_before"] is not None]
    return {
        "mode": mode,
        "file_bytes": file_bytes,
        "seconds": seconds,
        "best_other": min(medians, key=medians.__getitem__, default=None),
        "gain": min(medians.values()) / ours if ours and medians else None,
        "gain_collective": min(collective) / ours if ours and collective else None,
        "cached_most": max(cached, default=None),
        "cached_least": min(cached, default=None),
        "known": _medians([record["known"] for record in by_way.get(OURS, [])]),
    }


def spread(values: Iterable[float]) -> dict[str, Any]:
    """Least, median, most, and all in their order."""
    every = list(values)
    return {"min": min(every), "median": median(every), "max": max(every), "all": every}


def name_of(way: str, implementation: str | None) -> str:
    """As it is printed: what MPI-IO is it says itself."""
    return f"{implementation} ({way})" if implementation else way


def _medians(known: Sequence[dict[str, float]]) -> dict[str, float]:
    names = known[0] if known else {}
    return {name: median(one[name] for one in known) for name in names}
