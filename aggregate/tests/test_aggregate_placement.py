"""These tests call placement from Python. The tests check the published table of costs, the capacities of tiers, the
choice of tiers, and the number of aggregators.
"""

import numpy as np
import pytest

from outcrop.aggregate.distances import TableDistances
from outcrop.aggregate.placement import (
    BufferTier,
    Machine,
    Network,
    PlacementOptions,
    SharedMemory,
    Tallies,
    Target,
    place,
    place_best,
    predict,
)
from outcrop.aggregate.plan import read_settings
from outcrop.errors import InputError
from outcrop.tiers.tier import Persistence

MB, GB = 1 << 20, 1 << 30
TABLE = np.array([[0.593, 0.603, 2.350], [0.470, 0.480, 2.020], [0.742, 0.752, 2.710], [0.503, 0.513, 2.120]])
"""The published times in seconds. The table has a row for each rank, and a column for each of the tiers HBM, DRAM and
NVR.
"""
TIERS = (
    BufferTier("hbm", 0.010, 180 * GB),
    BufferTier("dram", 0.020, 90 * GB),
    BufferTier("nvr", 0.100, 0.15 * GB, persistence=Persistence.JOB),
)
BYTES = Tallies.of([0, 0, 0, 0], [0, 1, 2, 3], [10 * MB, 50 * MB, 20 * MB, 5 * MB])
OPTIONS = PlacementOptions(buffer_bytes=128 * MB, merged=False)
FAST = SharedMemory(1e-6, 10e9)


def machine(room: tuple[int, int, int] = (16 * GB, 192 * GB, 128 * GB)) -> Machine:
    """Return the machine of the published table. This machine has four ranks, each on its own node."""
    distances = np.array([[0, 4, 7, 5], [4, 0, 6, 3], [7, 6, 0, 6], [5, 3, 6, 0]], float)
    network = Network(latency_seconds=0.030, card_bytes_per_second=12.5 * GB)
    to_target = np.array([3.0, 2.0, 5.0, 2.0])
    return Machine(np.arange(4), TableDistances(distances), to_target, TIERS, np.tile(room, (4, 1)), network)


def test_published_table() -> None:
    """Check that the predictions are equal to the published table to three decimals, for every rank and tier."""
    for rank in range(4):
        for tier in range(3):
            seconds = predict(machine(), BYTES, OPTIONS, [rank], [tier]).seconds
            assert round(seconds, 3) == pytest.approx(TABLE[rank, tier], abs=1e-9), (rank, tier)


def test_the_least_of_the_table_is_chosen() -> None:
    """Check that rank 1 and the tier HBM are chosen. The terms of their cost must add up to the predicted time."""
    placement = place(machine(), BYTES, 1, OPTIONS)
    (choice,) = placement.choices
    assert (choice.rank, TIERS[choice.tier].name, choice.bytes) == (1, "hbm", 85 * MB)
    assert choice.cost.total == pytest.approx(placement.seconds, rel=1e-12)
    assert "next best: node 3, hbm: 502.9 ms" in placement.explain()


@pytest.mark.parametrize(
    ("room", "tier"),
    [((256 * MB, GB, GB), "hbm"), ((255 * MB, GB, GB), "dram"), ((0, 0, GB), "nvr")],
)
def test_ladder_of_capacities(room: tuple[int, int, int], tier: str) -> None:
    """Check that buffers go to DRAM if HBM has too little room, and to NVR if DRAM also has too little room. A note
    must name the tier that is used instead of HBM.
    """
    placement = place(machine(room), BYTES, 1, OPTIONS)
    assert TIERS[placement.choices[0].tier].name == tier
    assert any(f"in {tier} instead of hbm" in note for note in placement.notes) == (tier != "hbm")


def test_no_room_is_one_line() -> None:
    """Check the error if no tier has enough room for the buffers. The error has one line, which gives the memory that
    the buffers need, and a remedy.
    """
    with pytest.raises(InputError, match=r"buffers of 2 x 128 MiB .* room for 0 .* give smaller buffers"):
        place(machine((0, 0, 255 * MB)), BYTES, 1, OPTIONS)


def test_persistence_and_tier_are_filters() -> None:
    """Check that a requested persistence or tier limits the choice of tiers."""
    lasting = place(machine(), BYTES, 1, PlacementOptions(128 * MB, persistence=Persistence.JOB, merged=False))
    assert TIERS[lasting.choices[0].tier].name == "nvr"
    asked = place(machine(), BYTES, 1, PlacementOptions(128 * MB, tier="dram", merged=False))
    assert (asked.choices[0].rank, TIERS[asked.choices[0].tier].name) == (1, "dram")
    with pytest.raises(InputError, match="'ssd' is unknown; there are hbm"):
        place(machine(), BYTES, 1, PlacementOptions(tier="ssd"))


def test_number_of_aggregators_is_chosen_and_can_be_given() -> None:
    """Check that a node with four network cards has four aggregators. If the user gives a number of aggregators, the
    placement must have this number.
    """
    ranks, domains = 32, 16
    tallies = Tallies.of(
        np.repeat(np.arange(domains), ranks), np.tile(np.arange(ranks), domains), np.full(ranks * domains, 8 * MB)
    )
    apart = TableDistances(1.0 - np.eye(4))

    def on(cards: int) -> Machine:
        network = Network(1e-6, 12.5e9, cards)
        dram = (BufferTier("dram", 1e-7, 400e9, 400e9),)
        return Machine(np.arange(ranks) // 8, apart, np.ones(4), dram, np.full((4, 1), GB), network)

    assert len(place_best(on(4), tallies, domains, PlacementOptions()).choices) == 16
    fewer = place_best(on(1), tallies, domains, PlacementOptions())
    assert len(fewer.choices) <= 8
    assert fewer.seconds > place_best(on(4), tallies, domains, PlacementOptions()).seconds
    assert len(place(on(1), tallies, domains, PlacementOptions()).choices) == 16


def test_local_targets_and_shared_memory_change_the_prediction() -> None:
    """Check that the predicted time is shorter if each node has its own storage device than if all nodes share a
    device. One message from each node must also be faster than one message from each rank. This does not hold if the
    shared memory of the nodes is slow.
    """
    four = np.repeat(np.arange(4), 4)
    tallies = Tallies.of(np.zeros(16), np.arange(16), np.full(16, 4 * MB))
    base = machine()

    def seconds(target: Target, merged: bool, memory: SharedMemory = FAST) -> float:
        on = Machine(four, base.distances, base.distance_to_target, TIERS, np.full((4, 3), GB), base.network, target,
                     memory)  # fmt: skip
        return place(on, tallies, 1, PlacementOptions(merged=merged)).seconds

    shared = Target(0.0, 1e9)
    assert seconds(Target(0.0, 1e9, is_shared=False), True) < seconds(shared, True)
    assert seconds(shared, True) < seconds(shared, False)
    assert seconds(shared, False) < seconds(shared, True, SharedMemory(10.0, 1e6))


def test_distances_of_the_wrong_length_are_refused() -> None:
    """Check that the core refuses distances with too few values for the number of nodes. The core must not read beyond
    the end of these distances.
    """
    wrong = Machine(np.arange(4), TableDistances(np.zeros((4, 3))), np.ones(4), TIERS, np.full((4, 3), GB))
    with pytest.raises(InputError, match="node 0 has distances to 3 nodes; there are 4"):
        place(wrong, BYTES, 1, OPTIONS)


def test_errors_of_distances_come_out() -> None:
    """Check that the caller gets the exception that a provider of distances raises."""

    class Broken:
        def row(self, node: int) -> np.ndarray:
            raise ZeroDivisionError(f"node {node}")

    with pytest.raises(ZeroDivisionError, match="node 0"):
        place(Machine(np.arange(4), Broken(), np.ones(4), TIERS, np.full((4, 3), GB)), BYTES, 1, OPTIONS)


def test_settings_come_from_arguments_hints_and_environment() -> None:
    """Check that the first source with a setting determines the value of the setting. The origin of the setting must
    name this source.
    """
    settings = read_settings(
        {"tier": "hbm", "buffer": None},
        {"cb_buffer_size": "1048576", "cb_config_list": "a:2,*:1", "cb_nodes": "3"},
        {"OUTCROP_AGG_TIER": "dram", "OUTCROP_AGG_PERSISTENCE": "job", "PATH": "/bin"},
    )
    values = settings.values
    assert (values["tier"], values["buffer_bytes"], values["count"]) == ("hbm", MB, 3)
    assert settings.origins["persistence"] == "OUTCROP_AGG_PERSISTENCE"
    options = settings.placement_options(["b", "a"])
    assert (options.persistence, options.max_on_node) == (Persistence.JOB, [1, 2])
    with pytest.raises(InputError, match="OUTCROP_AGG_COUNT = 'x' must be a whole number"):
        read_settings(environment={"OUTCROP_AGG_COUNT": "x"})
    with pytest.raises(InputError, match="'typo' of aggregation is unknown"):
        read_settings({"typo": 1})
