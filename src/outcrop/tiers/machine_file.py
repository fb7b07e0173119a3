"""Files that declare a machine which is not here, for `outcrop plan --machine`: TOML, read into a DeclaredMachine.

    cores = 24
    [memory]                 size = "128GiB"  usable = "120GiB" (may be left out)  bandwidth = "100GB/s"
    [caches]                 second_level = "256KiB" (of one core)  last_level = "60MiB" (of all)
    [storage]                read = "3GB/s"  write = "2GB/s"  both = "3GB/s" (half and half, the sum)
                             flush_seconds = 0.01 (may be left out)
    [updates]                float32 = 6.0e9  float64 = 3.0e9 (cells per second of all cores; one may be left out)

Sizes are text as in --memory, or whole numbers of bytes; bandwidths text with "/s", or bytes per second.
"""

from __future__ import annotations

import os
from pathlib import Path

from outcrop.errors import InputError
from outcrop.plan.declared import DeclaredMachine
from outcrop.plan.machine import Device
from outcrop.tiers.toml_table import Table, parse_table, read_text
from outcrop.units import format_bytes

SHIPPED = Path(__file__).parent.parent / "machines"
FLUSH_SECONDS = 0.01
DTYPES = ("float32", "float64")


def shipped_machines() -> list[str]:
    """Names of the machines that come with Outcrop."""
    return sorted((path.stem for path in SHIPPED.glob("*.toml")), key=lambda name: (len(name), name))


def load_machine(name: str) -> DeclaredMachine:
    """The machine that the file `name` declares, or the shipped one of that bare name.

    Raises InputError for a file that is not there, that is no TOML, or that declares what cannot be.
    """
    path = Path(name)
    if name in shipped_machines():
        path = SHIPPED / f"{name}.toml"
    elif path.name == name and path.suffix != ".toml" and not os.path.lexists(path):
        known = ", ".join(shipped_machines())
        raise InputError(f"machine {name[:100]!r} is unknown; there are {known}, or give the path of a TOML file")
    if os.path.isdir(path):
        raise InputError(f"machine {name} is a directory; name a TOML file in it")
    return parse_machine(read_text(path, f"machine {name}"), name)


def parse_machine(text: str, name: str) -> DeclaredMachine:
    """The machine that `text` declares; `name` is that of its file, for messages. Raises InputError."""
    top = parse_table(text, name)
    cores = top.count("cores")
    memory, caches, storage, updates = (top.table(key) for key in ("memory", "caches", "storage", "updates"))
    memory_bytes = memory.size("size")
    declared = DeclaredMachine(
        name=Path(name).stem,
        cores=cores,
        memory_bytes=memory_bytes,
        usable_bytes=memory.size("usable", at_most=memory_bytes) if memory.has("usable") else 0,
        memory_bytes_per_second=memory.bandwidth("bandwidth"),
        cache_bytes=caches.size("second_level", at_most=memory_bytes),
        last_cache_bytes=caches.size("last_level", at_most=memory_bytes),
        device=_device(storage, Path(name).stem),
        updates_per_second={dtype: updates.rate(dtype) for dtype in DTYPES if updates.has(dtype)},
    )
    if not declared.updates_per_second:
        raise InputError(f"{name}: updates is empty; write float32 = 5e9, float64 = 2.5e9, or both")
    if declared.last_cache_bytes < declared.cache_bytes:
        raise caches.wrong("last_level", f"at least the second_level of one core, {format_bytes(declared.cache_bytes)}")
    for table in (top, memory, caches, storage, updates):
        table.refuse_other_keys()
    return declared


def _device(storage: Table, name: str) -> Device:
    read, write, both = (storage.bandwidth(key) for key in ("read", "write", "both"))
    if both > read + write:
        raise storage.wrong("both", "at most read and write together: it is the sum of both at once")
    flush = storage.seconds("flush_seconds") if storage.has("flush_seconds") else FLUSH_SECONDS
    return Device(read, write, both, flush, f"declared for {name}")
