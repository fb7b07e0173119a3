"""NUMA nodes: what this process may use of them, and how threads are laid out on them.

hwloc finds them. Its variables HWLOC_SYNTHETIC and HWLOC_XMLFILE let a run try the layout of another machine; nothing
is bound then.
"""

from __future__ import annotations

from dataclasses import dataclass

from outcrop import _core
from outcrop.tiers.system_files import SYS, listed, read

BINDS = ("auto", "cores", "none")
"""Threads are bound to cores: where there are several nodes; always; never."""

_WITH_PROCESSORS = SYS / "devices" / "system" / "node" / "has_cpu"


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
    nodes = len(numa_nodes()) if _core.has_hwloc() else _nodes_with_processors()
    if bind == "none" or threads == 1 or nodes == 1 or len(on_nodes) > 1:
        return ThreadLayout(on_nodes)
    reason = "the system refuses to bind them" if _core.has_hwloc() else "built without hwloc"
    return ThreadLayout(on_nodes, f"not placed on the {nodes} NUMA nodes: {reason}")


def _nodes_with_processors() -> int:
    """What the kernel says, as in "0-1,4"; 1 where it does not tell."""
    return listed(read(_WITH_PROCESSORS)) or 1
