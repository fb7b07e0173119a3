"""Describe machines with two cores and several kinds of memory, in the XML of hwloc."""

from __future__ import annotations

from dataclasses import dataclass

CPUS = 'cpuset="0x3" complete_cpuset="0x3"'


@dataclass(frozen=True)
class Node:
    """One memory of a machine. `subtype` is the name that the driver gives. The last three figures come from the
    firmware, in MiB/s and ns. 0 means that the firmware does not give the figure.
    """

    size_bytes: int
    subtype: str = ""
    read: int = 0
    write: int = 0
    latency: int = 0


def machine(*nodes: Node) -> str:
    """Return the XML of a machine with these NUMA nodes, numbered from 0."""
    everywhere = hex((1 << len(nodes)) - 1)
    all_nodes = f'nodeset="{everywhere}" complete_nodeset="{everywhere}"'
    memory = "".join(_numa_node(number, node) for number, node in enumerate(nodes))
    cores = "".join(_core(number, all_nodes) for number in range(2))
    attributes = (("ReadBandwidth", 5, "read"), ("WriteBandwidth", 5, "write"), ("ReadLatency", 6, "latency"))
    figures = "".join(
        f'<memattr name="{name}" flags="{flags}">{"".join(_value(nodes, key))}</memattr>'
        for name, flags, key in attributes
    )
    text = (
        '<?xml version="1.0" encoding="UTF-8"?><!DOCTYPE topology SYSTEM "hwloc2.dtd"><topology version="2.0">'
        f'<object type="Machine" os_index="0" {CPUS} allowed_cpuset="0x3" {all_nodes} allowed_nodeset="{everywhere}" '
        f'gp_index="1"><object type="Package" os_index="0" {CPUS} {all_nodes} gp_index="2">'
        f"{memory}{cores}</object></object>{figures}</topology>"
    )
    return text.replace("><", ">\n<") + "\n"  # hwloc reads this XML only if it has separate lines


def _numa_node(number: int, node: Node) -> str:
    subtype = f'subtype="{node.subtype}" ' if node.subtype else ""
    own = f'nodeset="{hex(1 << number)}" complete_nodeset="{hex(1 << number)}"'
    return (
        f'<object type="NUMANode" os_index="{number}" {subtype}{CPUS} {own} gp_index="{100 + number}" '
        f'local_memory="{node.size_bytes}"/>'
    )


def _core(number: int, all_nodes: str) -> str:
    own = f'os_index="{number}" cpuset="{hex(1 << number)}" complete_cpuset="{hex(1 << number)}" {all_nodes}'
    inner = f'<object type="PU" {own} gp_index="{20 + number}"/>'
    return f'<object type="Core" {own} gp_index="{10 + number}">{inner}</object>'


def _value(nodes: tuple[Node, ...], key: str) -> list[str]:
    return [
        f'<memattr_value target_obj_type="NUMANode" target_obj_gp_index="{100 + number}" value="{value}" '
        'initiator_cpuset="0x3"/>'
        for number, node in enumerate(nodes)
        if (value := getattr(node, key))
    ]
