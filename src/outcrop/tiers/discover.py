"""What the operating system says about this machine: memory and its limits, cores, caches, NUMA nodes, free space.

Files of /proc and /sys are short, sometimes missing, and in containers and virtual machines sometimes nonsense. Every
reader takes a missing or odd file as "not told".

The memory of this process is limited by its control groups, of version 1 or 2. hwloc finds the NUMA nodes. Its
variables HWLOC_SYNTHETIC and HWLOC_XMLFILE let a run try the layout of another machine; nothing is bound then.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from outcrop import _core
from outcrop.paths import nearest_existing

PROC, SYS = Path("/proc"), Path("/sys")
MAX_BYTES = 1 << 62
"""No machine has more; what is larger is a file that means "no limit", or nonsense."""
_CPUS = SYS / "devices" / "system" / "cpu"
_NODES = SYS / "devices" / "system" / "node"
UNLIMITED = 1 << 60
CGROUP_FILE, CGROUP_ROOT = PROC / "self" / "cgroup", SYS / "fs" / "cgroup"

BINDS = ("auto", "cores", "none")
"""Threads are bound to cores: where there are several nodes; always; never."""


def read(path: Path) -> str:
    """The text of a file, in names of files as the system has them; nothing where it cannot be read."""
    try:
        return os.fsdecode(path.read_bytes()).strip()
    except OSError:
        return ""


def number(text: str) -> int | None:
    """A whole number from 0 on that a machine can have; None for anything else."""
    is_plain = text.isascii() and text.isdigit() and len(text) < 20
    return int(text) if is_plain and int(text) <= MAX_BYTES else None


def numbered(text: str) -> dict[str, int]:
    """Lines like "MemTotal:  24684092 kB" or "inactive_file 4096", as bytes by name; other lines are left out."""
    found = {}
    for line in text.splitlines():
        name, *rest = line.replace(":", " ").split() or [""]
        if rest and (count := number(rest[0])) is not None:
            found[name] = count << 10 if rest[1:2] == ["kB"] else count
    return found


def listed(text: str) -> int:
    """How many numbers a list such as "0-1,4" has; 0 where it is none."""
    count = 0
    for part in text.split(","):
        first, _, last = part.partition("-")
        low, high = number(first), number(last or first)
        if low is None or high is None or high < low:
            return 0
        count += high - low + 1
    return count


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
    return min(machine_bytes(), cgroup_limit_bytes())


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
    return min(_available_bytes(), cgroup_free_bytes())


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


@dataclass(frozen=True)
class _ControlGroup:
    """A folder of the memory controller, and the names of its files."""

    folder: Path
    limit: str
    usage: str
    file_cache: tuple[str, str]

    def limit_bytes(self) -> int:
        return min(UNLIMITED, number(read(self.folder / self.limit)) or UNLIMITED)

    def used_bytes(self) -> int:
        """Without cached files, which give way."""
        counts = numbered(read(self.folder / "memory.stat"))
        used = number(read(self.folder / self.usage)) or 0
        return max(0, used - sum(counts.get(key, 0) for key in self.file_cache))


def cgroup_limit_bytes() -> int:
    """The lowest limit of all groups around this process; UNLIMITED where there is none."""
    return min((group.limit_bytes() for group in _control_groups()), default=UNLIMITED)


def cgroup_free_bytes() -> int:
    """What the limits leave to be taken; UNLIMITED where there is none."""
    limited = [group for group in _control_groups() if group.limit_bytes() < UNLIMITED]
    return min((max(0, group.limit_bytes() - group.used_bytes()) for group in limited), default=UNLIMITED)


def _control_groups() -> Iterator[_ControlGroup]:
    for line in read(CGROUP_FILE).splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if not path:
            continue
        if controllers == "":
            root, names = CGROUP_ROOT, ("memory.max", "memory.current", ("inactive_file", "active_file"))
        elif "memory" in controllers.split(","):
            files = ("total_inactive_file", "total_active_file")
            root, names = CGROUP_ROOT / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", files)
        else:
            continue
        group = root / path.lstrip("/")
        for folder in (group, *group.parents):
            yield _ControlGroup(folder, *names)
            if folder == root:
                break


@dataclass(frozen=True)
class NumaNode:
    """Cores and processors (hardware threads) that share a memory of their own."""

    cores: int
    processors: int


@dataclass(frozen=True)
class ThreadLayout:
    """How many threads run on each node that has any; `note` says why they are not placed where they should be."""

    threads_on_nodes: tuple[int, ...]
    note: str = ""

    @property
    def nodes(self) -> int:
        """Nodes that own a part of the window."""
        return len(self.threads_on_nodes)

    def __str__(self) -> str:
        text = f"{sum(self.threads_on_nodes)} threads"
        if self.nodes > 1:
            text += f" on {self.nodes} NUMA nodes"
        return f"{text}, {self.note}" if self.note else text


def numa_nodes() -> tuple[NumaNode, ...]:
    """The nodes with processors that this process may use; one that stands for all when built without hwloc."""
    return tuple(NumaNode(cores, processors) for cores, processors in _core.numa_nodes())


def lay_out(threads: int, bind: str) -> ThreadLayout:
    """Where that many threads go. Raises InputError when they are to be bound and cannot be."""
    on_nodes = tuple(_core.threads_on_nodes(threads, bind))
    if _core.has_hwloc():
        return layout_of(on_nodes, bind, len(numa_nodes()), "the system refuses to bind them")
    return layout_of(on_nodes, bind, nodes_with_processors(), "built without hwloc")


def layout_of(threads_on_nodes: tuple[int, ...], bind: str, nodes: int, obstacle: str) -> ThreadLayout:
    """The layout on a machine of `nodes` nodes; a note names the obstacle if threads should be on several of them."""
    if bind == "none" or sum(threads_on_nodes) == 1 or nodes == 1 or len(threads_on_nodes) > 1:
        return ThreadLayout(threads_on_nodes)
    return ThreadLayout(threads_on_nodes, f"not placed on the {nodes} NUMA nodes: {obstacle}")


def nodes_with_processors(told: Path = SYS / "devices" / "system" / "node" / "has_cpu") -> int:
    """What the kernel says, as in "0-1,4"; 1 where it does not tell."""
    return listed(read(told)) or 1
