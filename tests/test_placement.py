"""Check the planner of placements: its results (compared with a search of all placements), its limits of memory and its
explanations."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import outcrop as oc
from outcrop import _core
from outcrop.arrays.storage import untouched_bytes
from outcrop.errors import InputError
from outcrop.plan.placement import Choice, Demand, assign, cost, fits
from outcrop.tiers import discover
from outcrop.tiers.tier import Persistence, Tier

PLACES = ("fast", "middle", "slow")
GIB = 1 << 30


@st.composite
def demands(draw: st.DrawFn) -> list[Demand]:
    """Generate up to five random demands. Each demand can choose one of a few places. Some choices also need bytes in a
    second place."""
    found = []
    for number in range(draw(st.integers(0, 5))):
        places = draw(st.lists(st.sampled_from(PLACES), min_size=1, max_size=3, unique=True))
        choices = []
        for place in places:
            takes = {place: draw(st.integers(0, 4))}
            if draw(st.booleans()):
                takes.setdefault(draw(st.sampled_from(PLACES)), draw(st.integers(0, 4)))
            choices.append(Choice(place, tuple(takes.items()), draw(st.integers(0, 5)) * 1e-3))
        found.append(Demand(str(number), tuple(choices), draw(st.booleans())))
    return found


@given(
    wanted=demands(),
    free=st.tuples(*[st.integers(0, 8)] * 3),
    computing=st.sampled_from([0.0, 3e-3, 10e-3, 1.0]),
)
@settings(max_examples=300)
def test_no_other_placement_is_better(wanted: list[Demand], free: tuple[int, ...], computing: float) -> None:
    """Checks that the search finds the best placement if the places have room for all demands."""
    room = dict(zip(PLACES, free, strict=True))
    legal = [chosen for chosen in product(*(one.choices for one in wanted)) if fits(chosen, room)]
    found = assign(wanted, room, computing)
    if not legal:
        assert found is None
        return
    assert found is not None and found.is_best and fits(found.chosen, room)
    best = min(cost(wanted, chosen, PLACES, computing) for chosen in legal)
    assert cost(wanted, found.chosen, PLACES, computing) == best
    assert found.seconds_per_step == pytest.approx(best[0] / 1e9)


def test_many_equal_arrays_are_placed_in_time() -> None:
    """Checks that the search ends even for 40 equal arrays, which have 3^40 placements. The result says whether the
    search was complete.
    """
    choices = tuple(Choice(place, ((place, 1),), 1e-3 * (number + 1)) for number, place in enumerate(PLACES))
    wanted = [Demand(str(number), choices, number % 2 == 0) for number in range(40)]
    found = assign(wanted, {"fast": 10, "middle": 10, "slow": 20}, 0.0)
    assert found is not None and fits(found.chosen, {"fast": 10, "middle": 10, "slow": 20})


def tier(name: str, kind: str, where: str, free: int, read: float, write: float, lasts: Persistence) -> Tier:
    """Return a tier of a simulated machine."""
    return Tier(
        "declared", read, write, name=name, kind=kind, where=where, capacity_bytes=free, free_bytes=free,
        persistence=lasts, primitive="none",
    )  # fmt: skip


@pytest.fixture
def machine(tmp_path_factory: pytest.TempPathFactory) -> list[Tier]:
    """Return tiers of HBM, DRAM and a disk, with round figures."""
    where = str(tmp_path_factory.mktemp("disk"))
    return [
        tier("dram", "dram", "node 0", 8 * GIB, 10 * GIB, 10 * GIB, Persistence.PROCESS),
        tier("hbm", "hbm", "node 1", 2 * GIB, 100 * GIB, 100 * GIB, Persistence.PROCESS),
        tier("disk", "nvme", where, 100 * GIB, 2 * GIB, GIB, Persistence.PERMANENT),
    ]


def gib(count: float, **words: object) -> oc.ArraySpec:
    """Return the specification of an array of `count` GiB."""
    return oc.ArraySpec(int(count * GIB), "uint8", **words)  # type: ignore[arg-type]


def where(placement: oc.Placement) -> dict[str, str]:
    """Return the name of the tier of each array."""
    return {one.name: one.tier.name for one in placement.arrays}


def test_what_is_read_goes_where_it_costs_nothing(machine: list[Tier]) -> None:
    """Checks a read of 2 GiB from disk, which takes 1 s. The read causes no delay if the program computes for 1.5 s at
    the same time. If the program computes for only 0.5 s, the read causes a delay."""
    arrays = {"image": gib(2, access="read"), "result": gib(2)}
    hidden, exposed = oc.place(arrays, 1.5, tiers=machine), oc.place(arrays, 0.5, tiers=machine)
    assert where(hidden) == {"image": "disk", "result": "hbm"} and hidden.seconds_per_step == 1.5
    assert where(exposed) == {"image": "dram", "result": "hbm"} and exposed.seconds_per_step == 0.5
    assert hidden.dram_bytes == 0 and exposed.dram_bytes == exposed.bytes_on("dram") == 2 * GIB
    assert "disk makes a step 0.540 s longer" in exposed.explain(), "1 s of the image, 0.04 s of the result"
    assert "the slowest, hidden behind the computing" in str(hidden)


def test_what_is_updated_goes_to_the_fastest_with_room(machine: list[Tier]) -> None:
    """Checks that each updated array gets the fastest tier that has room. The array with the largest transfers comes
    first."""
    arrays = {"busy": gib(2, bytes_written_per_step=8 * GIB), "calm": gib(2), "large": gib(20)}
    found = oc.place(arrays, 1000.0, tiers=machine)
    assert where(found) == {"busy": "hbm", "calm": "dram", "large": "disk"}
    assert "the fastest with room: hbm has no room" in str(found)


def test_capacities_are_kept(machine: list[Tier]) -> None:
    """Checks that the arrays on a tier never take more than the given capacity of this tier."""
    found = oc.place({"a": gib(1), "b": gib(1)}, tiers=machine, capacities={"hbm": "1GiB", "dram": "512MiB"})
    assert sorted(where(found).values()) == ["disk", "hbm"]
    with pytest.raises(InputError, match="capacities: there is no tier 'hmb'; there are hbm, dram, disk"):
        oc.place({"a": gib(1)}, tiers=machine, capacities={"hmb": 1})


def test_what_is_committed_goes_where_it_lasts(machine: list[Tier]) -> None:
    """Checks the planned costs of arrays with commits. The bytes of such an array include two slots and the working
    copy, and its commits take time. A working copy in DRAM takes memory of DRAM.
    """
    found = oc.place({"a": gib(1, persist=4), "b": gib(1, persist=4, working="dram")}, tiers=machine)
    assert where(found) == {"a": "disk", "b": "disk"}
    assert (found.bytes_on("disk"), found.dram_bytes) == (5 * GIB, GIB)
    a, b = found.arrays
    assert a.transfer_seconds == pytest.approx(0.5 + 1 + 0.25) and b.transfer_seconds == pytest.approx(0.2 + 0.25)
    assert a.spec.path is not None and a.spec.path.name == "a"


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": gib(200)}, "a: no room: it takes 200 GiB of hbm, where 2 GiB are free; it takes 200 GiB of dram"),
        ({"a": gib(60), "b": gib(60)}, "no room for a, b together"),
        ({"a": gib(1, tier="dram", persist="end")}, "a: persist='end' on dram, which loses its data when the process"),
        ({"a": gib(1, tier="cxl")}, "a: there is no cxl here; there are hbm, dram, disk .nvme."),
        ({"a": gib(1, tier="fast")}, "a: there is no tier 'fast'"),
    ],
)
def test_what_cannot_be_is_one_line(machine: list[Tier], arrays: dict[str, oc.ArraySpec], message: str) -> None:
    """Checks that the error for an array that cannot be placed names the array and the available tiers."""
    with pytest.raises(InputError, match=message) as raised:
        oc.place(arrays, tiers=machine)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"arrays": [oc.ArraySpec(3)]}, "oc.place takes arrays by name"),
        ({"arrays": {"a": (3, 3)}}, r"a: \(3, 3\) is not an oc.ArraySpec"),
        ({"arrays": {1: oc.ArraySpec(3)}}, "the name 1 of an array must be text"),
        ({"arrays": {"../a": oc.ArraySpec(3, persist="end")}}, "'../a' is not a valid name .*give it a path"),
        ({"capacities": {"dram": 1.5}}, "capacities: 1.5 of dram must be a size"),
        ({"capacities": {"dram": "much"}}, "capacities: dram: size 'much' is not understood"),
        ({"tiers": []}, "a: there are no tiers to choose from"),
        ({"tiers": 3}, "tiers must be a list of tiers, as find_tiers gives, not 3"),
        ({"capacities": 3}, "capacities must be sizes by name of a tier"),
        ({"capacities": {"hbm": 0, "dram": 0, "disk": 0}}, "a: no room: it takes 24 B of hbm, where 0 B are free"),
    ],
)
def test_nonsense_is_one_line(machine: list[Tier], words: dict[str, Any], message: str) -> None:
    """Checks that wrong values and values of a wrong type give an error of one line."""
    with pytest.raises(InputError, match=message) as raised:
        oc.place(**{"arrays": {"a": oc.ArraySpec(3)}, "tiers": machine, **words})
    assert "\n" not in str(raised.value)


def test_planning_makes_nothing(machine: list[Tier]) -> None:
    """Checks that a plan of placements creates no file and no folder."""
    found = oc.place({"a": gib(1, persist="step")}, tiers=machine)
    path = found.arrays[0].spec.path
    assert path is not None and not path.exists() and list(path.parent.iterdir()) == []


def test_two_arrays_do_not_share_a_path(machine: list[Tier]) -> None:
    """Checks that two arrays with the same path are refused. Otherwise the second array would continue with the values
    of the first array.
    """
    path = machine[2].where + "/same"
    with pytest.raises(InputError, match="is the path of a, too"):
        oc.place({"a": gib(1, persist="end", path=path), "b": gib(1, persist="end", path=path)}, tiers=machine)


def test_memory_of_a_node_is_made_there(machine: list[Tier]) -> None:
    """Checks that arrays in HBM or CXL memory hold zeros and are bound to the nodes of this memory. If the system
    refuses to bind them, an error of one line says so.
    """
    beside = [
        machine[0],
        replace(machine[1], where="node 0"),
        replace(machine[1], name="far", kind="cxl", where="node 60"),
    ]
    with pytest.raises(InputError, match="refuses to bind memory to NUMA node 60"):
        oc.place({"near": gib(1e-3, tier="dram"), "far": gib(1e-3, tier="far")}, tiers=beside).make()
    try:
        made = oc.place({"near": gib(1e-3, tier="hbm")}, tiers=beside).make()
    except InputError:
        pytest.skip("nothing can be bound here")
    assert not made["near"].values.any()
    made["near"] += 3
    assert made["near"].sum() == 3 * made["near"].size and made["near"].primitive == "none"


def test_unmeasured_tiers_are_not_chosen(machine: list[Tier]) -> None:
    """Checks that a tier without a measured speed is not chosen, but that users can name it."""
    unknown = replace(machine[1], read_bytes_per_second=None, write_bytes_per_second=None)
    tiers = [machine[0], unknown, machine[2]]
    assert where(oc.place({"a": gib(1)}, tiers=tiers)) == {"a": "dram"}
    assert where(oc.place({"a": gib(1, tier="hbm")}, tiers=tiers)) == {"a": "hbm"}


def test_room_that_tiers_share_is_given_once(machine: list[Tier]) -> None:
    """Checks tiers that share memory or disk space: tmpfs shares memory with DRAM, and directories share a disk. The
    shared space must be counted only once.
    """
    _, _, disk = machine
    tiers = [
        *machine,
        tier("shm", "tmpfs", "/dev/shm", 8 * GIB, 10 * GIB, 10 * GIB, Persistence.REBOOT),
        replace(disk, name="scratch", free_bytes=60 * GIB, is_declared=True),
    ]
    both = oc.place({"a": gib(3, tier="dram"), "b": gib(3, tier="shm")}, tiers=tiers)
    assert both.dram_bytes == 6 * GIB and both.bytes_on("dram") == both.bytes_on("shm") == 3 * GIB
    assert "memory" not in both.explain(), "takes are of tiers"
    with pytest.raises(InputError, match=r"no room for a, b together; .* 8 GiB of memory"):
        oc.place({"a": gib(5, tier="dram"), "b": gib(5, tier="shm")}, tiers=tiers)
    apart = {"a": gib(45, tier="disk"), "b": gib(45, tier="scratch")}
    assert where(oc.place(apart, tiers=tiers)) == {"a": "disk", "b": "scratch"}
    with pytest.raises(InputError, match="no room for a, b, c together"):
        oc.place({**apart, "c": gib(15, tier="scratch")}, tiers=tiers)


def test_memory_files_are_taken_where_there_is_nothing_else(machine: list[Tier]) -> None:
    """Checks that tmpfs is used for an array only if no other tier exists or the user names tmpfs."""
    shm = tier("shm", "tmpfs", "/dev/shm", 8 * GIB, 10 * GIB, 10 * GIB, Persistence.REBOOT)
    assert where(oc.place({"a": gib(1)}, tiers=[shm])) == {"a": "shm"}


def test_memory_that_was_given_is_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that the memory of an array counts as used before its pages are written, although the system reports these
    pages as free.
    """
    if not untouched_bytes(_core.aligned_array(1 << 20)):
        pytest.skip("the system does not say which pages have been touched")
    monkeypatch.setattr(discover, "free_memory_bytes", lambda: 64 << 20)
    spec = {"a": oc.ArraySpec(40 << 20, "uint8", tier="dram")}
    first = oc.place(spec, capacities={"dram": np.int64(64 << 20)}).make()["a"]
    with pytest.raises(InputError, match=r"a: no room: it takes 40 MiB of dram, where 2[34].* MiB are free"):
        oc.place(spec)
    first[...] = 1  # now the system counts these pages as used
    assert oc.place(spec).dram_bytes == 40 << 20
    first.close()
    del first
    assert oc.place(spec).dram_bytes == 40 << 20
