"""Protects what NUMA nodes are taken for: HBM, DRAM, CXL and non-volatile memory of machines that nobody here has."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hwloc_machines import Node, machine
from outcrop import _core
from outcrop.errors import InputError
from outcrop.tiers import discover
from outcrop.tiers.memory_tiers import memory_nodes, memory_tiers, with_measured_kind
from outcrop.tiers.tier import Persistence, Tier

GIB = 1 << 30
needs_hwloc = pytest.mark.skipif(not _core.has_hwloc(), reason="built without hwloc")


def tiers_of(topology: str, limit_bytes: int = 1 << 60) -> list[Tier]:
    return memory_tiers(memory_nodes(topology), limit_bytes, lambda node: node.size_bytes // 2)


@needs_hwloc
def test_drivers_words_decide() -> None:
    """HBM beside DRAM, and non-volatile memory that serves as plain memory, are tiers of their own."""
    found = tiers_of(machine(Node(64 * GIB, "DRAM"), Node(16 * GIB, "HBM"), Node(512 * GIB, "NVM")))
    assert [(tier.name, tier.kind, tier.where, tier.nodes) for tier in found] == [
        ("hbm", "hbm", "node 1", (1,)),
        ("dram", "dram", "node 0", (0,)),
        ("nvm0", "nvm", "node 2", (2,)),
    ]
    assert [(tier.capacity_bytes, tier.free_bytes) for tier in found] == [
        (16 * GIB, 8 * GIB), (64 * GIB, 32 * GIB), (512 * GIB, 256 * GIB),
    ]  # fmt: skip
    for tier in found:  # plain memory forgets, whatever it is made of
        assert tier.is_memory and tier.directory is None
        assert (tier.persistence, tier.primitive, tier.origin) == (Persistence.PROCESS, "none", "not measured")


@needs_hwloc
def test_firmware_decides_where_drivers_are_silent() -> None:
    """Memory beside the ordinary one that is faster is HBM, and CXL where it is slower; figures are the firmware's."""
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
    """Such memory has a name that stays, whatever it turns out to be."""
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
    """Two sockets have one DRAM; memory that comes second to any processors, or has none of its own, stands alone."""
    assert {tier.name: tier.nodes for tier in tiers_of(topology)} == expected


@needs_hwloc
def test_limits_hold_for_memory_tiers() -> None:
    """Within a control group of 8 GiB there is no tier of 64."""
    (dram,) = tiers_of(machine(Node(64 * GIB)), limit_bytes=8 * GIB)
    assert (dram.capacity_bytes, dram.free_bytes) == (8 * GIB, 8 * GIB)


@needs_hwloc
def test_what_hwloc_does_not_understand_is_refused() -> None:
    """One line that says what would be right."""
    with pytest.raises(InputError, match=r"'numa:x' is not understood; write for example"):
        memory_nodes("numa:x")


@needs_hwloc
def test_memory_of_another_machine_is_only_planned_for(tmp_path: Path) -> None:
    """It has no figures of this one, even if both are called alike; and no array is said to be there."""
    description = tmp_path / "machine.xml"
    description.write_text(machine(Node(64 * GIB, "DRAM"), Node(16 * GIB, "HBM")))
    cached = {f"{discover.processor_name()} {discover.available_cores()} node {number}": {"origin": "measured"}
              for number in (0, 1)}  # fmt: skip
    (tmp_path / "outcrop").mkdir()
    (tmp_path / "outcrop" / "tiers.json").write_text(json.dumps(cached))
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
    assert refused == "hbm is memory of another machine, by hwloc's variables: it is there for plans only"
