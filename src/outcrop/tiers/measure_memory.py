"""Measure memory: plain reads, plain writes and STREAM's triad by all threads, cache lines at random, and latency.

Each of three arrays has at least four times the bytes of all last-level caches, as STREAM asks for, unless a quarter of
the free memory is less.
"""

from __future__ import annotations

from outcrop import _core
from outcrop.errors import InputError
from outcrop.tiers.discover import available_cores, last_level_bytes
from outcrop.tiers.figures import Figures
from outcrop.tiers.topology import numa_nodes

ARRAYS, CACHES = 3, 4
ARRAY_BYTES_LEAST = 16 << 20
REPEATS = 5


def measure_memory(nodes: tuple[int, ...], free_bytes: int) -> Figures:
    """Figures of the memory of those nodes, or of that near the threads when there are none.

    Raises InputError when there is no room, or the system does not let memory be taken from nodes of one's choice.
    """
    array_bytes = min(CACHES * last_level_bytes(), free_bytes // 4 // ARRAYS)
    if array_bytes < ARRAY_BYTES_LEAST:
        raise InputError(f"not measured: takes {ARRAYS * ARRAY_BYTES_LEAST >> 20} MiB, a quarter of what is free")
    meter = _core.MemoryMeter(max(1, min(available_cores(), _cores())), array_bytes, nodes)
    return Figures(
        origin="measured",
        read_bytes_per_second=meter.bandwidth("read", REPEATS),
        write_bytes_per_second=meter.bandwidth("write", REPEATS),
        triad_bytes_per_second=meter.bandwidth("triad", REPEATS),
        random_read_bytes_per_second=meter.random_bandwidth(False),
        random_write_bytes_per_second=meter.random_bandwidth(True),
        latency_seconds_read=meter.latency(),
        latency_seconds_flush=0.0,
    )


def _cores() -> int:
    """One thread a core: two share what a core can have in flight."""
    return sum(node.cores for node in numa_nodes())
