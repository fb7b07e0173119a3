"""What the operating system says about this machine: memory under its cgroup, cores, caches, free space."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from outcrop.tiers import cgroup

_CPU = Path("/sys/devices/system/cpu/cpu0/cache")


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
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(physical, cgroup.limit_bytes())


@lru_cache
def caches() -> Caches:
    """Cache sizes of the first core; 1 MiB and 16 MiB where the kernel does not tell."""
    sizes: dict[int, int] = {}
    for index in sorted(_CPU.glob("index*")):
        try:
            if (index / "type").read_text().strip() == "Instruction":
                continue
            level = int((index / "level").read_text())
            size = (index / "size").read_text().strip()
        except OSError:
            continue
        sizes[level] = int(size.rstrip("KM")) * (1 << 20 if size.endswith("M") else 1 << 10)
    second = sizes.get(2, 1 << 20)
    return Caches(second, sizes[max(sizes)] if len(sizes) > 2 else max(second, 16 << 20))


def last_level_bytes() -> int:
    """Bytes of all last-level caches together."""
    shared = set()
    for cpu in _CPU.parent.parent.glob("cpu[0-9]*/cache"):
        last = max(cpu.glob("index*"), key=lambda index: index.name, default=None)
        with suppress(OSError):
            shared.add((last / "shared_cpu_list").read_text() if last else "")
    return max(1, len(shared)) * caches().last_bytes


def free_memory_bytes() -> int:
    """Memory this process may still take: what the machine has available, or its cgroup where that is less."""
    return min(_available_bytes(), cgroup.free_bytes())


def _available_bytes() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    except OSError:
        pass
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def free_node_bytes(node: int) -> int | None:
    """Memory of a NUMA node that is free or only caches files; None where the kernel does not tell."""
    try:
        lines = Path(f"/sys/devices/system/node/node{node}/meminfo").read_text().splitlines()
    except OSError:
        return None
    known = {words[2].rstrip(":"): int(words[3]) << 10 for words in map(str.split, lines)}
    return sum(known.get(key, 0) for key in ("MemFree", "Active(file)", "Inactive(file)"))


def free_disk_bytes(folder: Path) -> int:
    """What this user may still write there."""
    space = os.statvfs(folder)
    return space.f_bavail * space.f_frsize


def processor_name() -> str:
    """The processor's model name, or the architecture where the kernel does not tell."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return os.uname().machine
