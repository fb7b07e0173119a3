"""These tests compare the distances in topologies with the shortest paths in graphs. The tests also check each provider
of distances. They need no cluster.
"""

from collections import deque
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import outcrop.aggregate as agg
from outcrop.aggregate.distances import Facts, PmixAnswer, Surroundings, expand_hosts, find_distances
from outcrop.aggregate.surroundings import facts_here, partners, run_command, surroundings_of
from outcrop.aggregate.topologies import make_topology, near_equal, parse_topology
from outcrop.errors import InputError


def searched(links: dict[object, set[object]], start: object) -> dict[object, int]:
    """Return the number of links on the shortest path from the vertex `start` to each other vertex."""
    found, queue = {start: 0}, deque([start])
    while queue:
        here = queue.popleft()
        for there in links[here]:
            if there not in found:
                found[there] = found[here] + 1
                queue.append(there)
    return found


def connect(pairs: list[tuple[object, object]]) -> dict[object, set[object]]:
    links: dict[object, set[object]] = {}
    for one, other in pairs:
        links.setdefault(one, set()).add(other)
        links.setdefault(other, set()).add(one)
    return links


@pytest.mark.parametrize("shape", [(7,), (2, 5), (3, 4, 5), (2, 2, 2, 3)])
def test_torus(shape: tuple[int, ...]) -> None:
    """Check the distances in a torus with any number of axes. The distances must be equal to the lengths of the
    shortest paths in a graph of the links.
    """
    nodes = list(np.ndindex(*shape))
    pairs = [
        (
            node,
            tuple((at + (axis == along)) % length for axis, (at, length) in enumerate(zip(node, shape, strict=True))),
        )
        for node in nodes
        for along in range(len(shape))
    ]
    links = connect([(one, other) for one, other in pairs if one != other])
    topology = make_topology("torus:" + "x".join(map(str, shape)), len(nodes), 1)
    for number, node in enumerate(nodes):
        distances = searched(links, node)
        assert topology.distances.row(number).tolist() == [distances[other] for other in nodes]
    assert topology.to_target.tolist() == [1 + distance for distance in topology.distances.row(0)]


def test_torus_has_gateways_all_over() -> None:
    """Check that every node of a large torus is near a gateway to the target."""
    topology = make_topology("torus", 4096, 1)
    assert topology.to_target[0] == topology.to_target[128] == 1
    assert topology.to_target.max() < topology.distances.row(0).max()


def test_fat_tree() -> None:
    """Check the distances in a fat tree. They must be equal to the lengths of the shortest paths in a graph of nodes,
    leaves, pods and the top.
    """
    topology = make_topology("fat-tree:2x3", 14, 1)
    pairs: list[tuple[object, object]] = []
    for node in range(14):
        leaf, pod = node // 2, node // 6
        pairs += [(node, ("leaf", leaf)), (("leaf", leaf), ("pod", pod)), (("pod", pod), "top")]
    links = connect(pairs)
    for node in range(14):
        distances = searched(links, node)
        assert topology.distances.row(node).tolist() == [distances[other] for other in range(14)]
    assert set(topology.to_target) == {3.0}


def test_dragonfly() -> None:
    """Check the distances in a dragonfly: between nodes of the same switch, of the same group, and of different groups.
    """
    topology = make_topology("dragonfly:2x2", 8, 1)
    assert topology.distances.row(0).tolist() == [0, 2, 3, 3, 5, 5, 5, 5]
    assert topology.distances.row(5).tolist() == [5, 5, 5, 5, 2, 0, 3, 3]
    assert topology.to_target.tolist() == [2, 2, 3, 3, 2, 2, 3, 3]


@pytest.mark.parametrize(("count", "axes", "factors"), [(16384, 3, (16, 32, 32)), (64, 3, (4, 4, 4)), (7, 2, (1, 7))])
def test_near_equal_factors(count: int, axes: int, factors: tuple[int, ...]) -> None:
    """Check that the factors are nearly equal. With such factors, a torus without a given shape is nearly cubic."""
    assert near_equal(count, axes) == factors


LINES = """# rank: group switch port
0: g0 s0 p0
1: g0 s0 p0
2: g0 s0 p1

3: g0 s1 p0   # another switch
4: g1 s0 p0
"""


def test_file_of_ranks(tmp_path: Path) -> None:
    """Check that ranks at the same port are on one node."""
    topology = parse_topology(LINES, "ranks")
    assert topology.node_of_rank is not None
    assert topology.node_of_rank.tolist() == [0, 0, 1, 2, 3]
    assert topology.distances.row(0).tolist() == [0, 2, 3, 5]
    path = tmp_path / "ranks"
    path.write_text("".join(f"{rank}: a {rank // 4} {rank // 2}\n" for rank in range(8)))
    assert make_topology(str(path), 4, 2).distances.row(3).tolist() == [3, 3, 2, 0]


@pytest.mark.parametrize(
    ("name", "nodes", "message"),
    [
        ("mesh", 4, "mesh must be one of torus, dragonfly, fat-tree, or a file"),
        ("torus:2x3", 4, "has 6 nodes"),
        ("torus:2x", 4, "sizes, separated by x"),
        ("torus:" + "9" * 5000, 4, "sizes, separated by x"),
        ("torus:4" + "x1" * 70, 4, "sizes, separated by x"),
        ("/dev/zero", 4, "is a device"),
        ("dragonfly:4", 4, "two sizes"),
        ("fat-tree:0x4", 4, "two sizes"),
        ("torus", 0, "there must be 1 to"),
    ],
)
def test_wrong_topologies_are_refused(name: str, nodes: int, message: str) -> None:
    """Check that the error for an invalid topology says what is wrong."""
    with pytest.raises(InputError, match=message):
        make_topology(name, nodes, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0: a b", "ranks:1: must be `rank: group switch port`"),
        ("0: a b c\n0: a b d", "ranks:2: rank 0 occurs twice"),
        ("0: a b c\n2: a b d", "rank 1 is missing"),
        ("", "rank 0 is missing"),
        ("9" * 5000 + ": a b c", "must be `rank: group switch port`"),
    ],
)
def test_wrong_files_are_refused(text: str, message: str) -> None:
    """Check that the error for an invalid topology file names the invalid line or rank."""
    with pytest.raises(InputError, match=message):
        parse_topology(text, "ranks")


def test_file_and_numbers_must_agree(tmp_path: Path) -> None:
    """Check that an error is raised if the file and the options give different numbers of nodes or ranks."""
    path = tmp_path / "ranks"
    path.write_text("0: a b c\n1: a b d\n")
    with pytest.raises(InputError, match=r"2 nodes and 2 ranks, but the options are --nodes 1 --ranks-per-node 2"):
        make_topology(str(path), 1, 2)


def rows(around: Surroundings, provider: str) -> list[list[float]]:
    """Return the distances between all nodes. Check that the provider with the name `provider` has found them."""
    found = find_distances(around)
    assert found.provider == provider, str(found)
    return [found.distances.row(node).tolist() for node in range(len(around.nodes))]


def test_a_file_of_another_number_of_ranks_is_refused(tmp_path: Path) -> None:
    """Check that a topology file with a wrong number of ranks raises an error. The core reads the topology file before
    it asks a provider for distances (see aggregate/tests/core/aggregate_machine.cpp).
    """
    path = tmp_path / "ranks"
    path.write_text("0: g s 1\n1: g t 1\n")
    with pytest.raises(InputError, match="ranks has 2 ranks; there are 1"):
        agg.declare(None, [], target=tmp_path, topology=path)


def test_slurm_addresses() -> None:
    """Check the distances that follow from Slurm's addresses of nodes. In the first example of this test, a top switch
    connects two leaf switches. Addresses without switches give no distances.
    """
    addresses = ["s0.s1.n0", "s0.s1.n1", "s0.s2.n2"]
    around = Surroundings([Facts(f"n{i}", {"SLURM_TOPOLOGY_ADDR": one}) for i, one in enumerate(addresses)])
    assert rows(around, "Slurm") == [[0, 2, 4], [2, 0, 4], [4, 4, 0]]
    flat = Surroundings([Facts(host, {"SLURM_TOPOLOGY_ADDR": host}) for host in ("p", "q")])
    assert find_distances(flat).provider == "node"


SCONTROL = """SwitchName=leaf0 Level=0 LinkSpeed=1 Nodes=n[00-01]
SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[02-03,10]
SwitchName=top Level=1 LinkSpeed=1 Nodes=n[00-03,10] Switches=leaf[0-1]
"""


def test_slurm_by_scontrol() -> None:
    """Check the distances that follow from the output of `scontrol`. Outcrop must run `scontrol` only in jobs of
    Slurm."""
    asked = []

    def run(command: list[str]) -> str:
        asked.append(command)
        return SCONTROL

    hosts = ["n01", "n10", "n00"]
    job = {"SLURM_JOB_ID": "7"}
    assert rows(Surroundings([Facts(host, job) for host in hosts], run), "Slurm") == [[0, 4, 2], [4, 0, 4], [2, 4, 0]]
    assert asked == [["scontrol", "show", "topology"]]
    assert find_distances(Surroundings([Facts(host) for host in hosts], run)).provider == "node"
    assert len(asked) == 1
    stranger = find_distances(Surroundings([Facts("n01", job), Facts("m1", job)], run))
    assert "Slurm: no switch has the host m1" in str(stranger)


def test_pmix_coordinates() -> None:
    """Check that the coordinates from PMIx become the path of a node, from the top of the tree down."""
    around = Surroundings([Facts("abc"[i], pmix=PmixAnswer("", one)) for i, one in enumerate([(0, 1), (0, 1), (1, 1)])])
    assert rows(around, "PMIx") == [[0, 2, 6], [2, 0, 6], [6, 6, 0]]


def test_names_of_nodes() -> None:
    """Check the distances that follow from Cray names and from names of hosts. The domain of a host name is ignored."""
    around = Surroundings([Facts("nid1", cray_name="c0-0c0s1n0"), Facts("nid2", cray_name="c0-0c0s1n3")])
    assert rows(around, "Cray") == [[0, 2], [2, 0]]
    hosts = ["x1000c0s0b0n0.site", "x1000c0s1b0n0.site", "x1001c0s0b0n0.site"]
    assert rows(Surroundings([Facts(host) for host in hosts]), "host names") == [[0, 6, 10], [6, 0, 10], [10, 10, 0]]
    assert rows(Surroundings([Facts("rack1-node1"), Facts("rack1-node2")]), "host names") == [[0, 2], [2, 0]]


def test_ping_pong_is_asked_before_giving_up() -> None:
    """Check that measured distances are multiples of the shortest time, and are equal in both directions. If a
    measurement has no result, the next provider must give the distances.
    """
    seconds = np.array([[0, 2e-6, 5e-6], [2e-6, 0, 4e-6], [3e-6, 4e-6, 0]])
    around = Surroundings([Facts("a"), Facts("b"), Facts("c")], ping_pong=lambda: seconds)
    assert np.allclose(rows(around, "ping-pong"), [[0, 1, 2], [1, 0, 2], [2, 2, 0]])
    noisy = seconds * (1 + 0.1 * np.random.default_rng(1).random((3, 3)))
    assert rows(replace(around, ping_pong=lambda: noisy), "ping-pong") == [[0, 1, 2], [1, 0, 2], [2, 2, 0]]
    nothing = find_distances(replace(around, ping_pong=lambda: np.zeros((3, 3))))
    assert "ping-pong: the measured times are not positive" in str(nothing)
    few = find_distances(Surroundings([Facts("a"), Facts("b")]))
    assert "ping-pong: with fewer than three nodes" in str(few)
    many = find_distances(Surroundings([Facts(str(node)) for node in range(65)]))
    assert "ping-pong: there are more than 64 nodes" in str(many)


@pytest.mark.parametrize("nodes", [2, 3, 4, 5, 8, 13])
def test_every_node_meets_every_other_in_the_same_round(nodes: int) -> None:
    """Check that partners agree: in every round, the partner of a node's partner is the node itself. So nodes cannot
    block each other."""
    met = [list(partners(own, nodes)) for own in range(nodes)]
    for own, others in enumerate(met):
        assert sorted(one for one in others if one is not None) == [node for node in range(nodes) if node != own]
        assert all(met[one][number] == own for number, one in enumerate(others) if one is not None)


def test_who_answered_is_said() -> None:
    """Check that the text names the provider of the distances. The text must also say why earlier providers gave no
    distances."""
    found = find_distances(Surroundings([Facts("a"), Facts("b")]))
    assert str(found).startswith("distances by node (Slurm: this job runs without Slurm;")
    assert [found.distances.row(node).tolist() for node in range(2)] == [[0, 1], [1, 0]]


def test_facts_of_ranks_become_those_of_nodes(tmp_path: Path) -> None:
    """Check that the data of a node are the data of its first rank. In this test, the order of the ranks on the nodes
    is arbitrary."""
    name = tmp_path / "etc" / "cray" / "xname"
    name.parent.mkdir(parents=True)
    name.write_text("x1c0s0b0n0\n")
    here = facts_here({"SLURM_JOB_ID": "7", "HOME": "/root"}, tmp_path)
    assert (here.environment, here.cray_name) == ({"SLURM_JOB_ID": "7"}, "x1c0s0b0n0")
    assert facts_here({}, tmp_path / "etc").cray_name == ""
    there = Facts("b", {}, "x1c0s0b0n1")
    around = surroundings_of([there, here, there, here], [1, 0, 1, 0])
    assert around.hosts == [here.host, "b"]
    assert rows(replace(around, run=lambda command: None), "Cray") == [[0, 2], [2, 0]]
    unnamed = replace(surroundings_of([here, Facts("b")], [0, 1]), run=lambda command: None)
    assert ("Cray", "the nodes have no Cray names") in find_distances(unnamed).refusals


def test_commands_that_fail_print_nothing() -> None:
    """Check that run_command() returns None if the command fails or does not exist."""
    assert run_command(["echo", "s0"]) == "s0\n"
    assert run_command(["false"]) is None
    assert run_command(["no-such-command-here"]) is None


def test_lists_of_hosts() -> None:
    """Check that lists of hosts are parsed correctly. The lists have the form in which batch systems list hosts."""
    assert expand_hosts("n[001-003,7],login") == ["n001", "n002", "n003", "n7", "login"]
    assert expand_hosts("r[1-2]n[0-1]") == ["r1n0", "r1n1", "r2n0", "r2n1"]
