"""Check the kinds of NUMA nodes: HBM, DRAM, CXL and non-volatile memory, on simulated machines."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hwloc_machines import Node, machine
from outcrop import _core
from outcrop.errors import InputError
from outcrop.tiers import discover, survey
from outcrop.tiers.memory_tiers import MemoryNode, memory_nodes, memory_tiers, with_measured_kind
from outcrop.tiers.tier import Figures, Persistence, Tier
from outcrop.user_cache import keep_figures, load_figures

GIB = 1 << 30
needs_hwloc = pytest.mark.skipif(not _core.has_hwloc(), reason="built without hwloc")


def tiers_of(topology: str, limit_bytes: int = 1 << 60) -> list[Tier]:
    return memory_tiers(memory_nodes(topology), limit_bytes, lambda node: node.size_bytes // 2)


@needs_hwloc
def test_drivers_words_decide() -> None:
    """Checks that HBM and non-volatile memory become separate tiers if the driver names these kinds of memory."""
    found = tiers_of(machine(Node(64 * GIB, "DRAM"), Node(16 * GIB, "HBM"), Node(512 * GIB, "NVM")))
    assert [(tier.name, tier.kind, tier.where, tier.nodes) for tier in found] == [
        ("hbm", "hbm", "node 1", (1,)),
        ("dram", "dram", "node 0", (0,)),
        ("nvm0", "nvm", "node 2", (2,)),
    ]
    assert [(tier.capacity_bytes, tier.free_bytes) for tier in found] == [
        (16 * GIB, 8 * GIB), (64 * GIB, 32 * GIB), (512 * GIB, 256 * GIB),
    ]  # fmt: skip
    for tier in found:  # all nodes lose their data at a reboot, even non-volatile memory
        assert tier.is_memory and tier.directory is None
        assert (tier.persistence, tier.primitive, tier.origin) == (Persistence.PROCESS, "none", "not measured")


@needs_hwloc
def test_firmware_decides_where_drivers_are_silent() -> None:
    """Checks nodes without a name from a driver. The firmware gives the speeds. Memory that is faster than ordinary
    memory is HBM, and slower memory is CXL.
    """
    found = tiers_of(
        machine(
            Node(64 * GIB, read=100_000, write=50_000, latency=100),
            Node(16 * GIB, read=400_000, write=200_000, latency=120),
            Node(128 * GIB, read=20_000, write=10_000, latency=300),
            Node(128 * GIB, read=20_000, write=10_000, latency=300),
        )
    )
    assert [(tier.name, tier.kind, tier.nodes) for tier in found] == [
        ("hbm", "hbm", (1,)), ("dram", "dram", (0,)), ("cxl0", "cxl", (2,)), ("cxl1", "cxl", (3,)),
    ]  # fmt: skip
    hbm = found[0]
    assert hbm.origin == "firmware"
    assert (hbm.read_bytes_per_second, hbm.write_bytes_per_second) == (400_000 * 2**20, 200_000 * 2**20)
    assert hbm.latency_seconds_read == pytest.approx(120e-9)


@needs_hwloc
def test_measuring_decides_where_all_are_silent() -> None:
    """Checks memory that neither the driver nor the firmware describes. A measurement determines the kind of this
    memory. The name of its tier does not change.
    """
    dram, other = tiers_of(machine(Node(64 * GIB), Node(16 * GIB)))
    assert (dram.name, other.name, other.kind) == ("dram", "node1", "cxl")
    dram = replace(dram, read_bytes_per_second=1e11)
    for rate, kind in ((4e11, "hbm"), (1.2e11, "cxl"), (3e10, "cxl"), (None, "cxl")):
        measured = replace(other, read_bytes_per_second=rate)
        found = with_measured_kind(measured, [dram, measured])
        assert (found.name, found.kind) == ("node1", kind)


@needs_hwloc
@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        ("numa:1 core:4 pu:1", {"dram": (0,)}),
        ("numa:2 core:4 pu:2", {"dram": (0, 1)}),
        ("pack:2 [numa(memory=64GB)] [numa(memory=16GB)] core:2 pu:1", {"dram": (0, 2), "node1": (1,), "node3": (3,)}),
        ("[numa(memory=512GB)] pack:2 [numa(memory=64GB)] core:2 pu:1", {"dram": (0, 1), "node2": (2,)}),
    ],
)
def test_ordinary_memory_of_all_processors_is_one_tier(topology: str, expected: dict[str, tuple[int, ...]]) -> None:
    """Checks that the first memories of all sockets together are the tier DRAM. The second memory of a socket, and
    memory that several sockets share, are separate tiers.
    """
    assert {tier.name: tier.nodes for tier in tiers_of(topology)} == expected


@needs_hwloc
def test_limits_hold_for_memory_tiers() -> None:
    """Checks that a tier of 64 GiB has only 8 GiB if a control group limits the memory to 8 GiB."""
    (dram,) = tiers_of(machine(Node(64 * GIB)), limit_bytes=8 * GIB)
    assert (dram.capacity_bytes, dram.free_bytes) == (8 * GIB, 8 * GIB)


@needs_hwloc
def test_what_hwloc_does_not_understand_is_refused() -> None:
    """Checks that an invalid description of a machine gives a one-line error with a correct example."""
    with pytest.raises(InputError, match=r"'numa:x' is not understood; write for example"):
        memory_nodes("numa:x")


@needs_hwloc
def test_memory_of_another_machine_is_only_planned_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that a tier of a simulated machine gets no figures of this machine. Both machines may have a tier with the
    same name.

    No array can be placed on the simulated machine.
    """
    description = tmp_path / "machine.xml"
    description.write_text(machine(Node(64 * GIB, "DRAM"), Node(16 * GIB, "HBM")))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for number in (0, 1):
        key = f"{discover.processor_name()} {discover.available_cores()} node {number}"
        keep_figures(survey.CACHE, {key: Figures("measured", 1e9)})
    assert len(load_figures(survey.CACHE, Figures)) == 2
    program = (
        "import outcrop as oc\nfrom outcrop.tiers.survey import find_tiers\n"
        "print([tier.origin for tier in find_tiers() if tier.is_memory])\n"
        "plan = oc.place({'a': oc.ArraySpec(3, tier='hbm')})\nprint(plan.bytes_on('hbm'))\n"
        "try:\n    plan.make()\nexcept oc.errors.InputError as error:\n    print(error)"
    )
    environment = {**os.environ, "HWLOC_XMLFILE": str(description), "HWLOC_THISSYSTEM": "0",
                   "XDG_CACHE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}  # fmt: skip
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    origins, planned, refused = done.stdout.splitlines()
    assert origins == "['not measured', 'not measured']" and planned == "24"
    assert refused == "hbm is memory of the machine that hwloc's variables describe: use it only in plans"


KIB = 1 << 10
MEMINFO = "MemTotal: 25165824 kB\nMemFree: 20971520 kB\nMemAvailable: 16777216 kB\n"
"""/proc/meminfo of a machine with 24 GiB of memory, of which 16 GiB are available."""


def node_file(total_gib: object, free_gib: int) -> str:
    """Return the text by which sysfs describes the memory of a node."""
    total = total_gib * GIB // KIB if isinstance(total_gib, int) else total_gib
    return f"Node 0 MemTotal: {total} kB\nNode 0 MemFree: {free_gib * GIB // KIB} kB\nNode 0 Active(file): 0 kB\n"


def told(*sizes_gib: float) -> list[MemoryNode]:
    """Return nodes with these sizes, in the form in which hwloc reports nodes."""
    return [MemoryNode(number, int(size * GIB), "", 1, 0.0, 0.0, 0.0) for number, size in enumerate(sizes_gib)]


MACHINES: dict[str, tuple[list[MemoryNode], str, dict[int, str], str, tuple[float, float]]] = {
    # The first four values are the input: the nodes that hwloc reports, the text of /proc/meminfo, the text of meminfo
    # for each node, and the text of has_memory. The last value is the expected result: the capacity of DRAM and its
    # free part, in GiB.
    "one node that says half": (told(13), MEMINFO, {0: node_file(13, 2)}, "0", (24, 16)),
    "one node that says more": (told(100), MEMINFO, {0: node_file(100, 90)}, "0", (24, 16)),
    "one node that says nothing": (told(0), MEMINFO, {}, "", (24, 16)),
    "one node below zero": (told(-5), MEMINFO, {0: node_file(-5, -3)}, "nonsense", (24, 16)),
    "one of two that may be used": (told(12), MEMINFO, {0: node_file(12, 5)}, "0-1", (12, 5)),
    "one of two that says too much": (told(50), MEMINFO, {0: node_file(50, 5)}, "0-1", (24, 16)),
    "one of two that says nothing": (told(0), MEMINFO, {}, "0-1", (24, 16)),
    "two nodes": (told(12, 12), MEMINFO, {0: node_file(12, 5), 1: node_file(12, 6)}, "0-1", (24, 11)),
    "two nodes, the second hidden": (told(12, 11), MEMINFO, {0: node_file(12, 5)}, "0-1", (23, 16)),
    "two nodes that say half": (told(6, 6), MEMINFO, {0: node_file(6, 1), 1: node_file(6, 1)}, "0-1", (24, 16)),
    "two nodes that say too much": (told(60, 20), MEMINFO, {0: node_file(60, 50)}, "0-1", (24, 16)),
    "two nodes that say nothing": (told(0, 0), MEMINFO, {}, "", (24, 16)),
    "two nodes below zero": (told(-1, 25), MEMINFO, {}, "0-1", (24, 16)),
    "a node without memory": (told(24, 0), MEMINFO, {0: node_file(24, 9), 1: node_file(0, 0)}, "0", (24, 9)),
    "words for numbers": (told(12, 12), MEMINFO, {0: node_file("many", 5), 1: "Node 1 MemFree:\n"}, "0-1", (24, 16)),
}


@pytest.mark.parametrize("name", MACHINES)
def test_memory_is_what_can_be_true(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that the size of the memory is the sum of the sizes of the nodes. On a machine with one node, or with
    impossible sizes of nodes, the size comes from /proc/meminfo.
    """
    nodes, meminfo, files, has_memory, expected = MACHINES[name]
    for path, text in {
        "proc/meminfo": meminfo, "nodes/has_memory": has_memory,
        **{f"nodes/node{number}/meminfo": text.replace("Node 0", f"Node {number}") for number, text in files.items()},
    }.items():  # fmt: skip
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.setattr(discover, "PROC", tmp_path / "proc")
    monkeypatch.setattr(discover, "_NODES", tmp_path / "nodes")
    monkeypatch.setattr(discover, "CGROUP_FILE", tmp_path / "none")
    monkeypatch.setattr(survey, "memory_nodes", lambda: nodes)
    monkeypatch.setattr(survey._core, "is_this_system", lambda: True)
    (dram,) = survey.memory_of_this_machine()
    assert dram.capacity_bytes / GIB == pytest.approx(expected[0])
    assert dram.free_bytes / GIB == pytest.approx(expected[1])


ODD = ("", "\n\n", "nonsense", "MemTotal:", "MemTotal: kB\nMemAvailable: x kB", "MemTotal: -3 kB\nMemAvailable: -3 kB",
       "MemTotal: 0 kB", "MemTotal: " + "9" * 6000 + " kB", "MemTotal: nan kB", "\xff\xfe: \x00")  # fmt: skip


@pytest.mark.parametrize("text", [*ODD, None], ids=lambda text: repr(text)[:20])
def test_odd_files_of_the_system_are_not_told(
    text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks that malformed files in /proc and /sys cause no traceback: Outcrop uses other figures of the system."""
    names = ("meminfo", "cpuinfo", "own", "group/memory.max", "group/memory.stat", "group/memory.current",
             "cpu0/cache/index0/level", "cpu0/cache/index0/size", "node0/meminfo", "has_memory")  # fmt: skip
    for name in names if text is not None else ():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(text.encode("latin-1"))  # type: ignore[union-attr]
    for name in ("PROC", "_CPUS", "_NODES", "CGROUP_ROOT"):
        monkeypatch.setattr(discover, name, tmp_path)
    monkeypatch.setattr(discover, "CGROUP_FILE", tmp_path / "own")
    discover.caches.cache_clear()
    try:
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        assert discover.memory_bytes() == discover.machine_bytes() == pages
        assert 0 <= discover.free_memory_bytes() <= pages
        assert discover.free_node_bytes(0) is None and discover.memory_nodes_of_machine() == 0
        assert discover.caches() == discover.Caches(1 << 20, 16 << 20) and discover.last_level_bytes() == 16 << 20
        assert discover.processor_name() == os.uname().machine
        lines = "processor\t: 0\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n\n"
        (tmp_path / "cpuinfo").write_text(lines + lines.replace("26", "25"))
        assert discover.processor_name() == "AMD EPYC, family 26, model 2", "machines share the name"
        (tmp_path / "own").write_text("0::/group\n")
        assert discover.cgroup_limit_bytes() == discover.cgroup_free_bytes() == discover.UNLIMITED
    finally:
        discover.caches.cache_clear()
