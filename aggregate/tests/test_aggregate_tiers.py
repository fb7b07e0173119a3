"""These tests check that buffers and stages are on the chosen tier, and that recovery finds staged steps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outcrop.aggregate as agg
from outcrop import _aggregate
from outcrop.aggregate.nodes import machine_text, text_of_this_node
from outcrop.errors import InputError
from outcrop.tiers.survey import find_tiers

MIB = 1 << 20
BUFFERS = {"buffer": "64KiB", "buffers": 2}
NO_NUMA = "[unusable]" in _aggregate.text_of_this_node(
    '[hbm]\nkind = "hbm"\nnodes = "0"\ncapacity = 1\nread = 1\nwrite = 1\n', "machine", "."
)


def table(name: str, kind: str, rate: float, capacity: str, place: str = "") -> str:
    """Return the text of a table that describes one tier in a machine file."""
    return f'[{name}]\nkind = "{kind}"\ncapacity = "{capacity}"\nread = {rate}\nwrite = {rate}\n{place}\n'


def machine_file(folder: Path, *tables: str, target: float = 1e9, kind: str = "disk") -> Path:
    """Write a machine file with the given tables, and with a target whose bandwidth is `target`. Return the path of the
    file."""
    place = f'[target]\nkind = "{kind}"\nread = {target}\nwrite = {target}\n'
    path = folder / "machine"
    path.write_text("\n".join([*tables, place]))
    return path


def plan_of(folder: Path, machine: Path, nbytes: int = 300_000, **settings: Any) -> tuple[agg.Plan, np.ndarray]:
    """Return a plan with one variable, and the values of this variable."""
    values = np.random.default_rng(3).integers(0, 256, nbytes, np.uint8)
    plan = agg.declare(None, [agg.contiguous(0, nbytes)], target=folder, machine=machine, **{**BUFFERS, **settings})
    return plan, values


def written(plan: agg.Plan, values: np.ndarray, path: Path, **options: Any) -> agg.File:
    """Write one step to a file, and check the bytes of the file. Return the closed file."""
    with agg.create(path, plan, **options) as file:
        file.write([values])
    assert np.array_equal(np.fromfile(path, np.uint8), values)
    return file


@pytest.mark.skipif(NO_NUMA, reason="memory cannot be bound here")
@pytest.mark.parametrize(
    ("hbm", "dram", "tier"), [("1GiB", "1GiB", "hbm"), ("100KiB", "1GiB", "dram"), ("100KiB", "100KiB", "nvm")]
)
def test_buffers_are_where_the_ladder_of_capacities_ends(tmp_path: Path, hbm: str, dram: str, tier: str) -> None:
    """Check that buffers go to DRAM if they do not fit into HBM, and to NVM if they do not fit into DRAM. HBM is memory
    of a NUMA node, DRAM is ordinary memory, and NVM is a mapped file.
    """
    nvm = tmp_path / "nvm"
    nvm.mkdir()
    tables = [table("hbm", "hbm", 180e9, hbm, 'nodes = "0"'), table("dram", "dram", 90e9, dram),
              table("nvm", "nvm", 2e9, "1GiB", f'directory = "{nvm}"')]  # fmt: skip
    plan, values = plan_of(tmp_path, machine_file(tmp_path, *tables))
    assert plan.tiers == [tier]
    maps, numa = Path("/proc/self/maps").read_text(), Path("/proc/self/numa_maps").read_text()
    assert (f"{nvm}/" in maps) == (tier == "nvm")
    assert any("bind:0 file=/memfd:outcrop" in line for line in numa.splitlines()) == (tier == "hbm")
    written(plan, values, tmp_path / "file")
    places = {"hbm": "memory of NUMA node 0", "dram": "ordinary memory", "nvm": f"a file in {nvm}"}
    assert f"buffers of this node in {tier}: 136 KiB, {places[tier]}" in plan.explain()
    plan.close()


def test_own_runs_have_their_buffers_on_the_tier_asked_for(tmp_path: Path) -> None:
    """Check that the user can choose the tier of the buffers even if each rank performs its own I/O."""
    tables = [table("dram", "dram", 90e9, "1GiB"), table("nvm", "nvm", 2e9, "1GiB", f'directory = "{tmp_path}"')]
    machine = machine_file(tmp_path, *tables)
    plan, values = plan_of(tmp_path, machine, tier="nvm", own_run_bytes=4096)
    assert plan.tiers == ["nvm"] and plan.seconds > 0
    written(plan, values, tmp_path / "file")
    with pytest.raises(InputError, match="there is room for 0 of them"):
        plan_of(tmp_path, machine_file(tmp_path, table("dram", "dram", 1e9, "1KiB")), own_run_bytes=4096)


def test_a_tier_that_is_not_here_is_left_out(tmp_path: Path) -> None:
    """Check a machine file with a tier whose folder does not exist. explain() must say why the tier is not used. If the
    user requests this tier, declare() must raise an error.
    """
    gone = table("fast", "nvme", 9e12, "1GiB", f'directory = "{tmp_path / "gone"}"')
    machine = machine_file(tmp_path, table("dram", "dram", 9e9, "1GiB"), gone)
    plan, _ = plan_of(tmp_path, machine)
    assert plan.tiers == ["dram"]
    assert f"fast of node 0 is left out: there is no directory {tmp_path / 'gone'}" in plan.explain()
    with pytest.raises(InputError, match="'fast' is unknown"):
        plan_of(tmp_path, machine, tier="fast")


def test_machine_files_are_refused_with_their_line(tmp_path: Path) -> None:
    """Check that the error for an invalid machine file names the invalid line. No plan is made."""
    (tmp_path / "machine").write_text("[dram]\nkind dram\n")
    with pytest.raises(InputError, match=r"rank 0: .*machine:2: = is missing after kind"):
        plan_of(tmp_path, tmp_path / "machine")
    with pytest.raises(InputError, match=r"machine .*none cannot be read"):
        plan_of(tmp_path, tmp_path / "none")


def test_machine_text_says_what_the_tiers_of_this_machine_are(tmp_path: Path) -> None:
    """Check the text that describes the tiers of this machine. The parsed text must give the same names, free bytes and
    figures as the tiers themselves.
    """
    tiers = [tier for tier in find_tiers() if tier.free_bytes and tier.kind != "pfs"]
    listed, _ = _aggregate.parse_node(machine_text(tiers, tmp_path), "machine")
    assert len(listed) == len(tiers)
    found = {name: room for name, *_, room, _ in listed}
    for tier in tiers:
        assert found[tier.name] == tier.free_bytes
    for name, _, fill, _, lasts, files, _, _ in listed:
        tier = next(one for one in tiers if one.name == name)
        assert (lasts, files) == (int(tier.persistence), not tier.is_memory)
        assert tier.write_bytes_per_second in (None, fill)
    (tmp_path / "machine").write_text(text_of_this_node(None, tmp_path))
    plan, values = plan_of(tmp_path, tmp_path / "machine")
    without = agg.declare(None, [agg.contiguous(0, values.nbytes)], target=tmp_path, **BUFFERS)
    assert plan.tiers == without.tiers


def staged_machine(folder: Path, target: float = 1e9, kind: str = "disk") -> Path:
    """Write a machine file with DRAM and with a tier for stages. The tier for stages keeps files until the job ends. It
    has 8 times the bandwidth of the default target.
    """
    (folder / "fast").mkdir(exist_ok=True)
    place = f'directory = "{folder / "fast"}"\npersistence = "job"'
    tables = [table("dram", "dram", 90e9, "1GiB"), table("fast", "nvme", 8e9, "1GiB", place)]
    return machine_file(folder, *tables, target=target, kind=kind)


@pytest.mark.parametrize(
    ("habits", "is_staged"),
    [
        ({}, False),
        ({"seconds_between": 1.0}, True),
        ({"seconds_between": 1e-5}, False),
        ({"reads_back": 5.0}, True),
        ({"seconds_between": 1.0, "stage_persistence": "permanent"}, False),
        ({"seconds_between": 1.0, "durable": False}, False),
        ({"seconds_between": 1.0, "stage_bytes": "64KiB"}, False),
    ],
)
def test_steps_are_staged_where_the_model_says_so(tmp_path: Path, habits: dict[str, Any], is_staged: bool) -> None:
    """Check that steps are staged only if the predicted time with a stage is shorter. The predicted time depends on how
    the program uses the steps. The file must have all bytes, with and without a stage. explain() must describe both
    cases, and give the measured times.
    """
    plan, values = plan_of(tmp_path, staged_machine(tmp_path))
    file = written(plan, values, tmp_path / "file", **{"durable": True, "stage": "auto", **habits})
    assert file.is_staged == is_staged
    text = plan.explain()
    assert ("staging: on fast, " in text, "staging: none, " in text) == (is_staged, not is_staged)
    assert "  straight: " in text and "  on fast: " in text
    (line,) = [line for line in text.splitlines() if line.startswith("measured")]
    assert ("1 staged write: " in line) == is_staged and ", predicted " in line


def test_settings_of_the_environment_reach_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that files use the settings in environment variables. An empty argument overrides the environment variable.
    """
    monkeypatch.setenv("OUTCROP_AGG_STAGE", "auto")
    monkeypatch.setenv("OUTCROP_AGG_SECONDS_BETWEEN", "1")
    monkeypatch.setenv("OUTCROP_AGG_MACHINE", str(staged_machine(tmp_path)))
    values = np.arange(100_000, dtype=np.uint8)
    plan = agg.declare(None, [agg.contiguous(0, values.nbytes)], target=tmp_path, **BUFFERS)
    assert written(plan, values, tmp_path / "file", durable=True).is_staged
    assert not written(plan, values, tmp_path / "file", durable=True, stage="").is_staged
    assert "machine by OUTCROP_AGG_MACHINE" in plan.explain()


@pytest.mark.parametrize(
    ("option", "line"),
    [({"seconds_between": -1}, "at least 0"), ({"reads_back": "x"}, "at least 0"), ({"stage_persistence": "x"}, "job")],
)
def test_habits_that_cannot_be_are_refused(tmp_path: Path, option: dict[str, Any], line: str) -> None:
    """Check that an invalid setting for staging raises an error before a file is made."""
    plan, _ = plan_of(tmp_path, staged_machine(tmp_path))
    with pytest.raises(InputError, match=line):
        agg.create(tmp_path / "file", plan, stage="auto", **option)
    assert not (tmp_path / "file").exists()


KILLED = """
import os, sys
import numpy as np
import outcrop.aggregate as agg
folder, machine = sys.argv[1:]
values = np.full(32 << 20, 7, np.uint8)
plan = agg.declare(None, [agg.contiguous(0, values.nbytes)], target=folder, machine=machine)
file = agg.create(folder + "/file", plan, durable=True, stage="auto", seconds_between=10)
assert file.is_staged
file.write([values])
os._exit(9)
"""


def test_what_a_killed_run_has_staged_is_found_by_the_next_whatever_it_decides(tmp_path: Path) -> None:
    """In this test, a run is killed after it has staged a step. Check that the next run finds the staged step, even if
    the next run stages no steps itself.
    """
    machine = staged_machine(tmp_path)
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), str(machine)], timeout=60)
    assert done.returncode == 9
    plan, _ = plan_of(tmp_path, machine, 32 * MIB)
    with agg.open(tmp_path / "file", plan, writable=True, durable=True, stage="auto") as file:
        assert not file.is_staged
        found = np.zeros(32 * MIB, np.uint8)
        file.read([found])
    assert (found == 7).all()
    assert not list((tmp_path / "fast").glob("*/*.data")), "nothing stays behind"
