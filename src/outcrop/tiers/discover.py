"""What the operating system says about this machine: memory under its cgroup, cores, caches, free space."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from outcrop.paths import nearest_existing
from outcrop.tiers import cgroup
from outcrop.tiers.system_files import PROC, SYS, listed, number, numbered, read

_CPUS = SYS / "devices" / "system" / "cpu"
_NODES = SYS / "devices" / "system" / "node"


@dataclass(frozen=True)
class Caches:
    """Bytes of the second-level cache of a core and of the last-level cache."""

    second_bytes: int
    last_bytes: int


def available_cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0))


def memory_bytes() -> int:
    """Memory this process may use: the machine's, or the limit of its cgroup where that is lower."""
    return min(machine_bytes(), cgroup.limit_bytes())


def machine_bytes() -> int:
    """Memory of the whole machine."""
    return _meminfo().get("MemTotal", 0) or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def memory_nodes_of_machine() -> int:
    """NUMA nodes with memory, also those that this process may not use; 0 where the kernel does not tell."""
    return listed(read(_NODES / "has_memory"))


@lru_cache
def caches() -> Caches:
    """Cache sizes of the first core; 1 MiB and 16 MiB where the kernel does not tell."""
    sizes: dict[int, int] = {}
    for index in sorted((_CPUS / "cpu0" / "cache").glob("index*")):
        level, size = number(read(index / "level")), read(index / "size")
        count = number(size.rstrip("KM"))
        if level and count and read(index / "type") != "Instruction":
            sizes[level] = count * (1 << 20 if size.endswith("M") else 1 << 10)
    second = sizes.get(2, 1 << 20)
    return Caches(second, sizes[max(sizes)] if len(sizes) > 2 else max(second, 16 << 20))


def last_level_bytes() -> int:
    """Bytes of all last-level caches together."""
    shared = set()
    for cpu in _CPUS.glob("cpu[0-9]*/cache"):
        last = max(cpu.glob("index*"), key=lambda index: index.name, default=None)
        if last is not None and (processors := read(last / "shared_cpu_list")):
            shared.add(processors)
    return max(1, len(shared)) * caches().last_bytes


def free_memory_bytes() -> int:
    """Memory this process may still take: what the machine has available, or its cgroup where that is less."""
    return min(_available_bytes(), cgroup.free_bytes())


def _available_bytes() -> int:
    known = _meminfo().get("MemAvailable")
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if known is None else known


def _meminfo() -> dict[str, int]:
    return numbered(read(PROC / "meminfo"))


def free_node_bytes(node: int) -> int | None:
    """Memory of a NUMA node that is free or only caches files; None where the kernel does not tell."""
    known = numbered(read(_NODES / f"node{node}" / "meminfo").replace(f"Node {node} ", ""))
    if "MemFree" not in known:
        return None
    return sum(known.get(key, 0) for key in ("MemFree", "Active(file)", "Inactive(file)"))


def free_disk_bytes(folder: Path) -> int:
    """What this user may still write there, or where it would be made."""
    space = os.statvfs(nearest_existing(folder))
    return space.f_bavail * space.f_frsize


def processor_name() -> str:
    """The processor's model name, or the architecture where the kernel does not tell."""
    for line in read(PROC / "cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return os.uname().machine
