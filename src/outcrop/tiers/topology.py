"""NUMA nodes: what this process may use of them, and how threads are laid out on them.

hwloc finds them. Its variables HWLOC_SYNTHETIC and HWLOC_XMLFILE let a run try the layout of another machine; nothing
is bound then.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from outcrop import _core
from outcrop.tiers.system_files import SYS, listed, read

BINDS = ("auto", "cores", "none")
"""Threads are bound to cores: where there are several nodes; always; never."""


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
