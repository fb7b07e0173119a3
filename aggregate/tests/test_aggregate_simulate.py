"""These tests compare simulated patterns with lists that contain the rank of each byte. The tests also check the
command `outcrop agg simulate` and its table.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwloc_machines import Node, machine
from outcrop import _core
from outcrop.aggregate.nodes import NodeTiers, node_tiers, parse_node_tiers
from outcrop.aggregate.placement import Network, PlacementOptions, Target
from outcrop.aggregate.simulate import Scenario, round_robin, simulate, table
from outcrop.aggregate.topologies import make_topology
from outcrop.aggregate.workloads import HACC_BYTES, Hacc, Pattern, S3d, make_patterns, tally
from outcrop.cli.main import call
from outcrop.errors import InputError
from outcrop.tiers.memory_tiers import memory_nodes, memory_tiers

TIERS = """
[hbm]
kind = "hbm"
capacity = "16GiB"
read = "180GB/s"
write = "180GB/s"
read_latency = 1e-7

[dram]
kind = "dram"
capacity = "192GiB"
read = "90GB/s"
write = "90GB/s"
read_latency = 1e-7

[ssd]
kind = "nvme"
capacity = "128GiB"
persistence = "job"
read = "3GB/s"
write = "2GB/s"
write_latency = 2e-5

[lustre]
kind = "pfs"
capacity = "1000GiB"
read = "100GB/s"
write = "80GB/s"
write_latency = 1e-4
"""


def owners_of_s3d(pattern: S3d) -> np.ndarray:
    """Return a list with the rank of each byte of the file. The function fills a grid of cells. Each cell gets the
    number of the rank that owns the cell.
    """
    along, cells = pattern.ranks_along, pattern.cells
    grid = np.empty([a * c for a, c in zip(along, cells, strict=True)], np.int64)
    for rank, place in enumerate(np.ndindex(*along)):
        grid[tuple(slice(p * c, (p + 1) * c) for p, c in zip(place, cells, strict=True))] = rank
    return np.tile(np.repeat(grid.ravel(), pattern.item_bytes), pattern.components)


def owners_of_hacc(pattern: Hacc) -> np.ndarray:
    """Return a list with the rank of each byte in a file of particles."""
    ranks = np.arange(pattern.ranks)
    return np.concatenate([np.repeat(ranks, pattern.particles * size) for size in pattern.parts])


def check(pattern: Pattern, owners: np.ndarray, domains: int) -> None:
    """Check that the domains cover the file. Each domain must have the right number of bytes from each rank."""
    assert pattern.file_bytes == len(owners)
    tallies, count = tally(pattern, domains)
    size = -(-len(owners) // domains)
    assert count == -(-len(owners) // size)
    found = np.zeros((count, pattern.ranks), np.int64)
    found[tallies.domains, tallies.ranks] = tallies.bytes
    for domain in range(count):
        here = owners[domain * size : (domain + 1) * size]
        assert found[domain].tolist() == np.bincount(here, minlength=pattern.ranks).tolist()


@given(
    along=st.tuples(*[st.integers(1, 3)] * 3),
    cells=st.tuples(*[st.integers(1, 4)] * 3),
    components=st.integers(1, 3),
    domains=st.integers(1, 20),
)
def test_s3d_is_what_a_grid_is(
    along: tuple[int, int, int], cells: tuple[int, int, int], components: int, domains: int
) -> None:
    """Fill a grid rank by rank. Check that the tallies of S3D are equal to the tallies of this grid, for any number of
    domains.
    """
    pattern = S3d(along, cells, components)
    check(pattern, owners_of_s3d(pattern), domains)


@given(ranks=st.integers(1, 6), particles=st.integers(1, 9), is_aos=st.booleans(), domains=st.integers(1, 20))
def test_hacc_is_what_lists_of_particles_are(ranks: int, particles: int, is_aos: bool, domains: int) -> None:
    """Check the tallies of HACC for the array of structures and the structure of arrays. Each particle has 38 bytes."""
    sizes = tuple(HACC_BYTES.values())
    assert sum(sizes) == 38
    pattern = Hacc(ranks, particles, (38,) if is_aos else sizes)
    check(pattern, owners_of_hacc(pattern), domains)


def test_workloads_have_the_size_that_is_asked_for() -> None:
    """Check that a pattern has the requested number of ranks. Each rank must have about the requested number of
    bytes."""
    for name in ("s3d", "hacc"):
        for pattern in make_patterns(name, 24, 1 << 20):
            assert pattern.ranks == 24
            assert 0.8 < pattern.file_bytes / (24 << 20) < 1.2
    assert make_patterns("hacc", 8)[0].file_bytes == 8 * 38 * 100_000
    with pytest.raises(InputError, match="ior is unknown; there are s3d, hacc"):
        make_patterns("ior", 4)


def test_large_domains_begin_at_whole_mebibytes() -> None:
    """Check that large domains begin at multiples of 1 MiB. The stripes of file systems also begin at such multiples,
    so no two aggregators write to the same stripe.
    """
    (pattern,) = make_patterns("s3d", 64)
    tallies, count = tally(pattern, 8)
    sizes = np.bincount(tallies.domains, tallies.bytes.astype(float))
    assert count == 8 and all(size % (1 << 20) == 0 for size in sizes[:-1])


def test_round_robin_goes_from_node_to_node() -> None:
    """Check that round robin first takes the first rank of each node, and then the second rank of each node. In this
    test, nodes have different numbers of ranks, in an arbitrary order.
    """
    assert round_robin(np.array([0, 0, 1, 1], np.uint32), 3).tolist() == [0, 2, 1]
    assert round_robin(np.array([1, 0, 1, 0, 1], np.uint32), 5).tolist() == [1, 0, 3, 2, 4]


def scenario(topology: str, nodes: int, ranks_per_node: int, **changes: object) -> Scenario:
    tiers = declared(TIERS)
    made = make_topology(topology, nodes, ranks_per_node)
    return Scenario(made, ranks_per_node, tiers, Network(1e-6, 12.5e9), tiers.shared or Target(), **changes)  # type: ignore[arg-type]


def declared(text: str) -> NodeTiers:
    """Return the tiers that a file with the content `text` describes."""
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(text)
        file.flush()
        return node_tiers(Path(file.name))


def test_the_chosen_placement_is_never_later_than_round_robin_of_as_many() -> None:
    """Check the chosen placement for several topologies and workloads. The sum of costs of the chosen placement must
    not be higher than with round robin. The chosen placement must be faster than ROMIO's placement. Each placement must
    collect the bytes of all ranks.
    """
    for topology in ("torus", "dragonfly:2x4", "fat-tree:4x4"):
        on = scenario(topology, 32, 8)
        for name in ("s3d", "hacc"):
            for simulated in simulate(on, make_patterns(name, on.ranks)):
                chosen, robin, romio, staged = simulated.rows
                assert sum(one.cost.total for one in chosen.placement.choices) <= sum(
                    one.cost.total for one in robin.placement.choices
                )
                assert chosen.placement.seconds < romio.placement.seconds
                for row in simulated.rows:
                    assert sum(one.bytes for one in row.placement.choices) == simulated.pattern.file_bytes
                assert len(robin.placement.choices) == len(chosen.placement.choices)
                assert (len(romio.placement.choices), romio.tiers, romio.nodes) == (32, ("dram",), 32)
                assert staged.name == "staged on ssd"


def test_a_number_that_is_asked_for_is_kept() -> None:
    """Check that the simulation uses a given number of aggregators, even if another number gives a shorter time."""
    (simulated,) = simulate(scenario("torus", 8, 4, aggregators=5), make_patterns("s3d", 32))
    assert len(simulated.rows[0].placement.choices) == 5


def test_a_number_that_was_not_tried_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the result has a note if the simulation has not tried larger numbers of aggregators, which may be
    faster."""
    on, patterns = scenario("torus", 8, 4), make_patterns("hacc-aos", 32)
    assert next(simulate(on, patterns)).note == ""
    monkeypatch.setattr("outcrop.aggregate.simulate.MAX_COSTS", 16)
    monkeypatch.setattr("outcrop.aggregate.simulate.MIN_AGGREGATORS", 2)
    (simulated,) = simulate(replace(on, target=Target()), patterns)
    assert len(simulated.rows[0].placement.choices) == 2
    assert "at most 2 aggregators were tried for 8 cards" in "\n".join(table(simulated))


def test_capacity_ladder_of_a_machine_that_is_not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a machine that hwloc describes. Check that buffers go to DRAM if they do not fit into HBM."""
    if not _core.has_hwloc():
        pytest.skip("built without hwloc")
    text = machine(Node(64 << 30, "", 90_000, 90_000, 100), Node(1 << 30, "HBM", 200_000, 200_000, 130))
    found = memory_tiers(memory_nodes(text), 1 << 60, lambda node: node.size_bytes)
    monkeypatch.setattr("outcrop.aggregate.nodes.find_tiers", lambda: found)
    tiers = node_tiers(None)
    names = [one.tier.name for one in tiers.tiers]
    assert names[:2] == ["dram", "hbm"] or names[:2] == ["hbm", "dram"]

    def taken(buffer_bytes: int) -> tuple[str, ...]:
        on = Scenario(make_topology("torus", 4, 2), 2, tiers, Network(1e-6, 12.5e9), Target(),
                      PlacementOptions(buffer_bytes=buffer_bytes), aggregators=4)  # fmt: skip
        return next(simulate(on, make_patterns("hacc-aos", 8))).rows[0].tiers

    assert taken(256 << 20) == ("hbm",)
    assert taken(1 << 30) == ("dram",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[a]\nread = "1GB/s"\nwrite = "1GB/s"', "a.capacity is missing"),
        ('[a]\ncapacity = "1GiB"\nwrite = "1GB/s"', "a.read is missing"),
        ('[a]\nkind = "tape"\ncapacity = "1GiB"', "a.kind = 'tape' must be hbm"),
        ('[a]\nkind = "dram"\npersistence = "job"\ncapacity = 1\nread = 1\nwrite = 1', "at most process for dram"),
        ("[a]\ncapacity = 1\nread = 1\nwrite = 1\nspeed = 3", "a.speed is unknown"),
    ],
)
def test_wrong_tiers_are_refused(text: str, message: str) -> None:
    """Check that the error for an invalid description of tiers names the key and the mistake."""
    with pytest.raises(InputError, match=message):
        parse_node_tiers(text, "tiers.toml")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check that the command prints a table, and writes the same figures as JSON."""
    tiers, out = tmp_path / "tiers.toml", tmp_path / "out.json"
    tiers.write_text(TIERS)
    arguments = ["agg", "simulate", "--topology", "dragonfly:4x4", "--nodes", "64", "--ranks-per-node", "4"]
    arguments += ["--workload", "hacc", "--tiers", str(tiers), "--aggregators", "16", "--json", str(out)]
    assert call(arguments) == 0
    printed = capsys.readouterr().out
    assert "64 x 4 = 256 ranks" in printed and "hbm: 16 GiB free on a node" in printed
    assert "target: 80 GB/s for all nodes together" in printed
    found = json.loads(out.read_text())
    assert [one["workload"].split(",")[1] for one in found["simulated"]] == [
        " array of structures",
        " structure of arrays",
    ]
    for one in found["simulated"]:
        chosen = one["placements"][0]
        assert len(chosen["choices"]) == chosen["aggregators"] == 16
        assert len({choice["rank"] for choice in chosen["choices"]}) == 16
        assert all(line in printed for line in one["explanation"])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (["--workload", "ior"], "ior is unknown"),
        (["--topology", "/no/such/file"], "or a file that can be read"),
        (["--nodes", "0"], "there must be 1 to"),
        (["--ranks-per-node", "-1"], "there must be 1 to"),
        (["--nodes", "1000000"], "the maximum is"),
        (["--aggregators", "99"], "must be from 1 to 8"),
        (["--aggregators", "0"], "must be from 1 to 8"),
        (["--nodes", "16384", "--aggregators", "9000"], "the maximum for 16384 nodes is 8192"),
        (["--tier", "tape"], "'tape' is unknown"),
        (["--persistence", "ever"], "must be process, reboot, job or permanent"),
        (["--bandwidth", "fast"], "write a bandwidth such as"),
        (["--buffer", "1000GiB"], "give smaller buffers"),
        (["--cards", "0"], "give 1 to 1000000 cards"),
        (["--latency", "nan"], "0 to 86400 seconds"),
        (["--latency", "1e308"], "0 to 86400 seconds"),
        (["--json", "/dev/null/file"], "Not a directory"),
    ],
)
def test_bad_input_is_one_line(
    changed: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check that wrong input gives exit code 2 and an error with one line."""
    tiers = tmp_path / "tiers.toml"
    tiers.write_text(TIERS)
    options = {"--topology": "torus", "--nodes": "4", "--ranks-per-node": "2", "--workload": "s3d",
               "--tiers": str(tiers)}  # fmt: skip
    options.update(zip(changed[::2], changed[1::2], strict=True))
    assert call(["agg", "simulate", *(word for pair in options.items() for word in pair)]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1, error


def test_the_environment_holds_in_simulations_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that the command uses environment variables if no option is given. A wrong environment variable must raise
    an error before the command prints anything.
    """
    tiers = tmp_path / "tiers.toml"
    tiers.write_text(TIERS)
    command = ["agg", "simulate", "--topology", "torus", "--nodes", "4", "--ranks-per-node", "2", "--workload", "s3d"]
    command += ["--tiers", str(tiers)]
    monkeypatch.setenv("OUTCROP_AGG_COUNT", "3")
    monkeypatch.setenv("OUTCROP_AGG_TIER", "dram")
    assert call(command) == 0
    assert "3 aggregators, at most 1 on a node, buffers of 2 x 16 MiB: 3 in dram" in capsys.readouterr().out
    assert call([*command, "--aggregators", "2"]) == 0
    assert "2 aggregators, at most 1 on a node" in capsys.readouterr().out
    for name, value, message in (
        ("OUTCROP_AGG_COUNT", "500", "OUTCROP_AGG_COUNT 500 must be from 1 to 8"),
        ("OUTCROP_AGG_TEIR", "dram", "'OUTCROP_AGG_TEIR' of aggregation is unknown"),
    ):
        monkeypatch.setenv(name, value)
        assert call(command) == 2
        output = capsys.readouterr()
        assert message in output.err and output.err.count("\n") == 1 and not output.out
        monkeypatch.setenv("OUTCROP_AGG_COUNT", "3")


def test_as_many_ranks_as_a_large_machine_has() -> None:
    """Check a placement on a simulated machine with 16,384 ranks. No rank may become the aggregator of two domains."""
    on = scenario("dragonfly", 512, 32)
    (simulated,) = simulate(on, make_patterns("s3d", on.ranks))
    chosen = simulated.rows[0].placement
    assert chosen.is_least and len({one.rank for one in chosen.choices}) == len(chosen.choices)
    assert chosen.seconds < simulated.rows[2].placement.seconds
