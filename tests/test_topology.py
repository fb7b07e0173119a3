"""Check what users see of NUMA nodes: the number of nodes, the layout of threads, and error messages."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import outcrop as oc
from outcrop import _core
from outcrop.errors import InputError
from outcrop.tiers import discover
from outcrop.tiers.discover import available_cores

needs_hwloc = pytest.mark.skipif(not _core.has_hwloc(), reason="built without hwloc")


@needs_hwloc
def test_nodes_hold_the_processors_of_this_process() -> None:
    """Checks that the nodes contain exactly the processors that this process may use."""
    nodes = discover.numa_nodes()
    assert sum(node.processors for node in nodes) == available_cores()
    assert all(1 <= node.cores <= node.processors for node in nodes)


@needs_hwloc
@pytest.mark.parametrize(
    ("machine", "threads", "expected"),
    [
        ("numa:1 core:8 pu:1", 4, [4]),
        ("numa:2 core:4 pu:2", 8, [4, 4]),
        ("numa:2 core:4 pu:2", 1, [1]),
        ("numa:8 core:2 pu:1", 16, [2] * 8),
    ],
)
def test_threads_are_spread_over_nodes(machine: str, threads: int, expected: list[int]) -> None:
    """Checks that each node gets threads in proportion to its cores. The second processor of a core gets a thread only
    if every core has a thread.
    """
    assert _core.threads_on_nodes(threads, "auto", machine) == expected
    assert _core.threads_on_nodes(threads, "none", machine) == [threads]


def test_words_for_a_layout() -> None:
    """Checks the text that describes a layout of threads. The text mentions nodes only if threads are on several nodes.
    The text also says if threads are not placed.
    """
    assert str(discover.ThreadLayout((16,))) == "16 threads"
    assert str(discover.ThreadLayout((8, 8))) == "16 threads on 2 NUMA nodes"
    assert str(discover.ThreadLayout((4,), "not placed")) == "4 threads, not placed"


@pytest.mark.parametrize(
    ("threads_on_nodes", "bind", "nodes", "is_told"),
    [
        ((4,), "auto", 3, True),
        ((4,), "cores", 3, True),
        ((4,), "none", 3, False),
        ((4,), "auto", 1, False),
        ((1,), "auto", 3, False),
        ((2, 2), "auto", 3, False),
    ],
)
def test_threads_on_one_node_of_several_are_told(
    threads_on_nodes: tuple[int, ...], bind: str, nodes: int, is_told: bool
) -> None:
    """Checks the text for a machine whose nodes are treated as one node. The text must name the reason, except for
    `bind="none"` or a single thread.
    """
    layout = discover.layout_of(threads_on_nodes, bind, nodes, "the obstacle")
    assert layout.threads_on_nodes == threads_on_nodes
    assert ("the obstacle" in str(layout), f"{nodes} NUMA nodes" in str(layout)) == (is_told, is_told)


@pytest.mark.parametrize(
    ("text", "nodes"), [("0-1,4\n", 3), ("0\n", 1), ("1,3\n", 2), ("", 1), ("2-1", 1), ("many", 1), (None, 1)]
)
def test_nodes_are_counted_without_hwloc(tmp_path: Path, text: str | None, nodes: int) -> None:
    """Checks that the number of nodes comes from a file of Linux with a list of nodes. If this file cannot be read, the
    number is 1."""
    if text is not None:
        (tmp_path / "has_cpu").write_text(text)
    assert discover.nodes_with_processors(tmp_path / "has_cpu") == nodes


REFUSE_TO_BIND = """
import ctypes, os, struct, sys
from outcrop.cli.main import call
set_affinity = {"x86_64": 203, "aarch64": 122}[os.uname().machine]
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, set_affinity), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
class Program(ctypes.Structure):
    _fields_ = [("count", ctypes.c_ushort), ("rules", ctypes.c_char_p)]
libc = ctypes.CDLL(None)
libc.prctl(38, 1, 0, 0, 0)
program = Program(len(rules), b"".join(struct.pack("HBBI", *rule) for rule in rules))
if libc.prctl(22, 2, ctypes.byref(program), 0, 0) != 0:
    sys.exit(77)
sys.exit(call(sys.argv[1:]))
"""
"""Runs the command line with a filter of system calls (seccomp) that refuses sched_setaffinity, as in containers."""


@needs_hwloc
@pytest.mark.skipif(os.uname().machine not in ("x86_64", "aarch64"), reason="system calls have other numbers here")
@pytest.mark.skipif(available_cores() < 2, reason="one processor cannot be on two nodes")
def test_a_refusal_to_bind_is_said(tmp_path: Path) -> None:
    """Checks a container that forbids the binding of threads. On a machine with several nodes, the text of the plan
    says that threads are not bound. If the user has requested bound threads, an error is raised.
    """
    first, second, *_ = sorted(os.sched_getaffinity(0))
    two_nodes = {"HWLOC_SYNTHETIC": f"numa:2 core:1 pu:1(indexes={first},{second})", "HWLOC_THISSYSTEM": "1"}
    plan = ["plan", "heat7", "-n", "40", "24", "20", "-t", "6", "--threads", "2", "-d", str(tmp_path / "run.oc")]

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **two_nodes}
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=environment, timeout=120)
        if done.returncode == 77:
            pytest.skip("this system has no filters of system calls")
        return done

    refused = run("-c", REFUSE_TO_BIND, *plan)
    assert refused.returncode == 0, refused.stderr
    assert "2 threads, not placed on the 2 NUMA nodes: the system refuses" in refused.stdout
    assert "2 threads on 2 NUMA nodes" in run("-m", "outcrop.cli.main", *plan).stdout, "without the filter"
    refused = run("-c", REFUSE_TO_BIND, *plan, "--bind", "cores")
    assert refused.returncode == 2 and "the system refuses" in refused.stderr and refused.stderr.count("\n") == 1


def test_unknown_ways_to_bind_are_refused(tmp_path: Path) -> None:
    """Checks that an unknown value of `bind` is refused. The error names this value and the known values."""
    with pytest.raises(InputError, match=r"bind 'sockets' is unknown; there are auto, cores, none"):
        oc.Simulation("heat7", (8, 8, 8), directory=tmp_path / "run.oc", bind="sockets")


@needs_hwloc
def test_a_run_bound_to_cores_gives_the_same_bits_and_gives_them_back(tmp_path: Path) -> None:
    """Checks that `bind="cores"` gives the same bits on one node. After the run, the caller's threads can use the same
    cores as before.
    """
    before = os.sched_getaffinity(0)
    results: list[Any] = []
    for bind in ("none", "cores"):
        try:
            simulation = oc.Simulation("heat7", (20, 24, 40), directory=tmp_path / bind, threads=2, bind=bind)
        except InputError as error:
            pytest.skip(str(error))
        simulation["u"] = "random:3"
        assert simulation.run(6, progress="none").threads == 2
        results.append(simulation["u"][:])
    assert (results[0] == results[1]).all()
    assert os.sched_getaffinity(0) == before


@needs_hwloc
def test_the_layout_of_another_machine_can_be_tried(tmp_path: Path) -> None:
    """Checks that plan and report show the number of simulated nodes, and that the bits stay the same."""
    common = [sys.executable, "-m", "outcrop.cli.main"]
    size = ["heat7", "-n", "40", "24", "20", "-t", "6", "--init", "random:3", "--threads", "4"]
    said = {}
    for name, environment in (("one", {}), ("four", {"HWLOC_SYNTHETIC": "numa:4 core:1 pu:1"})):
        where = tmp_path / f"{name}.oc"
        done = subprocess.run(
            [*common, "run", *size, "-d", str(where), "--json", str(tmp_path / f"{name}.json")],
            capture_output=True, text=True, env={**os.environ, **environment}, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        said[name] = done.stdout
    assert said["four"].count("4 threads on 4 NUMA nodes") == 2  # the plan and the report both have this text
    assert "NUMA" not in said["one"] or len(discover.numa_nodes()) > 1
    assert '"numa_nodes": 4' in (tmp_path / "four.json").read_text()
    assert (oc.open(tmp_path / "one.oc")["u"][:] == oc.open(tmp_path / "four.oc")["u"][:]).all()
    refused = subprocess.run(
        [*common, "plan", *size, "-d", str(tmp_path / "new.oc"), "--bind", "cores"],
        capture_output=True, text=True, env={**os.environ, "HWLOC_SYNTHETIC": "numa:4 core:1 pu:1"}, timeout=120,
    )  # fmt: skip
    assert refused.returncode == 2 and "not this system's" in refused.stderr
