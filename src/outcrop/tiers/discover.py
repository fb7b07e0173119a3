"""This module gets facts about this machine from the operating system. The facts are about memory and its limits,
cores, caches, NUMA nodes and free space.

Most facts come from short files in /proc and /sys. In containers and virtual machines, a file can be missing or can
have impossible contents. If a file is missing or has impossible contents, the facts from this file are unknown.

Control groups of version 1 or 2 can limit the memory of this process. The library hwloc finds the NUMA nodes. If
HWLOC_SYNTHETIC or HWLOC_XMLFILE is set, hwloc simulates the layout of another machine, and threads are not bound.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from outcrop import _core
from outcrop.paths import nearest_existing
from outcrop.units import counted

PROC, SYS = Path("/proc"), Path("/sys")
MAX_BYTES = 1 << 62
"""The largest number of bytes that Outcrop accepts from a file. A larger number means "no limit", or is wrong."""
_CPUS = SYS / "devices" / "system" / "cpu"
_NODES = SYS / "devices" / "system" / "node"
UNLIMITED = 1 << 60
CGROUP_FILE, CGROUP_ROOT = PROC / "self" / "cgroup", SYS / "fs" / "cgroup"

BINDS = ("auto", "cores", "none")
"""The ways to bind threads to cores. "auto" binds threads only on machines with several NUMA nodes. "cores" always
binds threads, and "none" never binds threads."""


def read(path: Path) -> str:
    """Return the text of a file, decoded in the same way as names of files. Return "" if the file cannot be read."""
    try:
        return os.fsdecode(path.read_bytes()).strip()
    except OSError:
        return ""


def number(text: str) -> int | None:
    """Convert text to a whole number from 0 to MAX_BYTES. Return None for any other text."""
    is_plain = text.isascii() and text.isdigit() and len(text) < 20
    return int(text) if is_plain and int(text) <= MAX_BYTES else None


def numbered(text: str) -> dict[str, int]:
    """Parse lines such as "MemTotal: 24684092 kB" or "inactive_file 4096". Return a dictionary that maps the name in
    each line to a number of bytes. Other lines are skipped."""
    found = {}
    for line in text.splitlines():
        name, *rest = line.replace(":", " ").split() or [""]
        if rest and (count := number(rest[0])) is not None:
            found[name] = count << 10 if rest[1:2] == ["kB"] else count
    return found


def listed(text: str) -> int:
    """Return how many numbers a list of the kernel contains. Example: the list "0-1,4" has 3 numbers. Return 0 if the
    text is not a list of numbers."""
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
    """Two sizes in bytes: the size of the second-level cache of one core, and the size of the last-level cache."""

    second_bytes: int
    last_bytes: int


def available_cores() -> int:
    """Return the number of processors that this process can use."""
    return len(os.sched_getaffinity(0))


def memory_bytes() -> int:
    """Return the number of bytes of memory that this process can use. The result is the lower of two numbers: the
    memory of the machine, and the limit of the control group."""
    return min(machine_bytes(), cgroup_limit_bytes())


def machine_bytes() -> int:
    return _meminfo().get("MemTotal", 0) or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def memory_nodes_of_machine() -> int:
    """Return the number of NUMA nodes with memory, or 0 if this number is unknown. The number of NUMA nodes includes
    nodes that this process cannot use."""
    return listed(read(_NODES / "has_memory"))


@lru_cache
def caches() -> Caches:
    """Return the cache sizes of the first core, or 1 MiB and 16 MiB if the sizes are unknown."""
    sizes: dict[int, int] = {}
    for index in sorted((_CPUS / "cpu0" / "cache").glob("index*")):
        level, size = number(read(index / "level")), read(index / "size")
        count = number(size.rstrip("KM"))
        if level and count and read(index / "type") != "Instruction":
            sizes[level] = count * (1 << 20 if size.endswith("M") else 1 << 10)
    second = sizes.get(2, 1 << 20)
    return Caches(second, sizes[max(sizes)] if len(sizes) > 2 else max(second, 16 << 20))


def last_level_bytes() -> int:
    """Return the size of all last-level caches together, in bytes."""
    shared = set()
    for cpu in _CPUS.glob("cpu[0-9]*/cache"):
        last = max(cpu.glob("index*"), key=lambda index: index.name, default=None)
        if last is not None and (processors := read(last / "shared_cpu_list")):
            shared.add(processors)
    return max(1, len(shared)) * caches().last_bytes


def free_memory_bytes() -> int:
    """Return the number of bytes of memory that are free for this process. The result counts only bytes that are free
    on the machine and within the limits of the control groups of this process."""
    available = _meminfo().get("MemAvailable")
    if available is None:
        available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(available, cgroup_free_bytes())


def _meminfo() -> dict[str, int]:
    return numbered(read(PROC / "meminfo"))


def free_node_bytes(node: int) -> int | None:
    """Return how many bytes of a NUMA node are free or contain cached files. Return None if the number of these bytes
    is unknown."""
    known = numbered(read(_NODES / f"node{node}" / "meminfo").replace(f"Node {node} ", ""))
    if "MemFree" not in known:
        return None
    return sum(known.get(key, 0) for key in ("MemFree", "Active(file)", "Inactive(file)"))


def free_disk_bytes(folder: Path) -> int:
    """Return the number of bytes that this user can still write in a folder. If the folder does not exist, the function
    uses the nearest parent folder that exists."""
    space = os.statvfs(nearest_existing(folder))
    return space.f_bavail * space.f_frsize


def processor_name() -> str:
    """Return the name of the processor model, followed by the family and model numbers. The numbers are needed, because
    virtual machines use one name for processors of several generations. Return the architecture of the machine if the
    name is unknown."""
    lines = (line.partition(":") for line in read(PROC / "cpuinfo").partition("\n\n")[0].splitlines())
    found = {name.strip(): value.strip() for name, _, value in lines}
    if "model name" not in found:
        return os.uname().machine
    numbers = (f"{name} {found[key]}" for name, key in (("family", "cpu family"), ("model", "model")) if key in found)
    return ", ".join((found["model name"], *numbers))


@dataclass(frozen=True)
class _ControlGroup:
    """`folder` is the folder of a control group that limits memory. The other members are names of files in `folder`,
    and names of values in these files."""

    folder: Path
    limit: str
    usage: str
    file_cache: tuple[str, str]

    def limit_bytes(self) -> int:
        return min(UNLIMITED, number(read(self.folder / self.limit)) or UNLIMITED)

    def used_bytes(self) -> int:
        """Return the number of bytes of memory that the control group uses. Cached files do not count, because the
        kernel frees the memory of cached files when programs need memory."""
        counts = numbered(read(self.folder / "memory.stat"))
        used = number(read(self.folder / self.usage)) or 0
        return max(0, used - sum(counts.get(key, 0) for key in self.file_cache))


def cgroup_limit_bytes() -> int:
    """Return the lowest limit of all control groups that contain this process, or UNLIMITED if there is no limit."""
    return min((group.limit_bytes() for group in _control_groups()), default=UNLIMITED)


def cgroup_free_bytes() -> int:
    """Return the number of bytes that are free within the limits of all control groups, or UNLIMITED if there is no
    limit."""
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
    """The numbers of cores and of processors (hardware threads) of a NUMA node."""

    cores: int
    processors: int


@dataclass(frozen=True)
class ThreadLayout:
    """The distribution of threads over NUMA nodes. `threads_on_nodes` has the number of threads for each node that has
    threads. If the machine has several nodes, but only one node has threads, `note` gives the reason."""

    threads_on_nodes: tuple[int, ...]
    note: str = ""

    @property
    def nodes(self) -> int:
        """The number of nodes that have threads. Each node with threads has a part of the window."""
        return len(self.threads_on_nodes)

    def __str__(self) -> str:
        text = counted(sum(self.threads_on_nodes), "thread")
        if self.nodes > 1:
            text += f" on {self.nodes} NUMA nodes"
        return f"{text}, {self.note}" if self.note else text


def numa_nodes() -> tuple[NumaNode, ...]:
    """Return the NUMA nodes with processors that this process can use. Without hwloc, all processors are in one
    node."""
    return tuple(NumaNode(cores, processors) for cores, processors in _core.numa_nodes())


def lay_out(threads: int, bind: str) -> ThreadLayout:
    """Return the layout of `threads` threads. Raises InputError if `bind` requires bound threads, but the system
    refuses to bind threads."""
    on_nodes = tuple(_core.threads_on_nodes(threads, bind))
    if _core.has_hwloc():
        return layout_of(on_nodes, bind, len(numa_nodes()), "the system refuses to bind them")
    return layout_of(on_nodes, bind, nodes_with_processors(), "built without hwloc")


def layout_of(threads_on_nodes: tuple[int, ...], bind: str, nodes: int, obstacle: str) -> ThreadLayout:
    """Return the layout on a machine with `nodes` nodes. If there are several nodes, but only one node has threads,
    `obstacle` gives the reason."""
    if bind == "none" or sum(threads_on_nodes) == 1 or nodes == 1 or len(threads_on_nodes) > 1:
        return ThreadLayout(threads_on_nodes)
    return ThreadLayout(threads_on_nodes, f"not placed on the {nodes} NUMA nodes: {obstacle}")


def nodes_with_processors(path: Path = _NODES / "has_cpu") -> int:
    """Return the number of nodes in the kernel's list of nodes with processors, or 1 if the list is missing."""
    return listed(read(path)) or 1
