"""Check that the texts of plans, reports and progress count steps and arrays correctly for several fields and
stages."""

from __future__ import annotations

import json
import re
import resource
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import outcrop as oc
from outcrop.cli.main import call
from outcrop.plan.description import plan_rows
from outcrop.plan.planner import make_plan
from outcrop.run import engine
from outcrop.run.progress import Progress, Standing
from outcrop.tiers import measure
from outcrop.tiers.declarations import load_machine
from outcrop.units import format_bytes, format_rate, format_seconds
from strategies import MACHINE, assumed_rate, make_problem


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (format_bytes(1023), "1023 B"),
        (format_bytes(1023.6), "1 KiB"),
        (format_bytes(1536), "1.5 KiB"),
        (format_bytes((1 << 20) - 1), "1 MiB"),
        (format_bytes(1023.4 * 2**20), "1023 MiB"),
        (format_bytes(24080 << 40), "23.52 PiB"),
        (format_bytes(1 << 63), "8 EiB"),
        (format_bytes(-(1 << 20) + 1), "-1 MiB"),
        (format_rate(999.4e6), "999 M"),
        (format_rate(999.6e6), "1.00 G"),
        (format_rate(5.4e9), "5.40 G"),
        (format_rate(999.999e9), "1.00 T"),
        (format_rate(24e15), "24000.00 T"),
        (format_seconds(9.9996), "10.0 s"),
        (format_seconds(59.96), "1 min 00 s"),
        (format_seconds(3599.7), "1 h 00 min"),
    ],
)
def test_a_rounded_number_has_the_unit_of_the_number_that_is_shown(text: str, expected: str) -> None:
    assert text == expected


def plan_text(*words: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the output of `outcrop plan`."""
    assert call(["plan", *words]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("stencil", "size", "fields", "arrays"),
    [
        ("acoustic4_sponge", ["20", "20", "30"], "1 updated, 1 with previous values, 2 only read", 6),
        ("maxwell_2d", ["40", "60"], "3 updated, 1 only read, 2 stages", 7),
        ("gray_scott_2d", ["40", "60"], "2 updated", 4),
        ("advection2_1d", ["60"], "", 2),
        ("advection2_2d", ["40", "60"], "1 updated, 2 stages", 2),
        ("heat4", ["20", "20", "30"], "", 2),
    ],
)
def test_a_plan_says_what_a_run_will_have(
    stencil: str, size: list[str], fields: str, arrays: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that the plan counts fields, stages and arrays correctly, and that the run directory contains the same
    number of arrays.
    """
    words = [stencil, "-n", *size, "-t", "6", "-d", str(tmp_path / "run.oc"), "--memory", "4MiB"]
    text = plan_text(*words, capsys=capsys)
    assert (f"fields   {fields}\n" in text) if fields else ("fields" not in text)
    assert f"({arrays} arrays)" in text
    assert f"{stencil} {' x '.join(size)} float32, 6 steps, boundary fixed" in text
    assert "of 6 steps" in text, "a stage is no step"
    sim = oc.Simulation(stencil, tuple(map(int, reversed(size))), directory=tmp_path / "run.oc", memory="4MiB")
    sim.assign({name.name: 1.0 for name in sim.stencil.fields})
    assert call(["info", str(tmp_path / "run.oc")]) == 0
    assert f"{arrays} arrays" in capsys.readouterr().out


def test_a_plan_in_python_has_the_text_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that `print(sim.plan(6))` shows the same rows as `outcrop plan`, with the speeds of updates and storage. A
    plan without a machine has the same rows, but no speeds."""
    words = ["maxwell_2d", "-n", "40", "60", "-t", "6", "-d", str(tmp_path / "run.oc"), "--memory", "4MiB"]
    sim = oc.Simulation("maxwell_2d", (60, 40), directory=tmp_path / "run.oc", memory="4MiB")
    planned = sim.plan(6)
    text = plan_text(*words, capsys=capsys)
    times = re.compile(r"[\d.]+ m?s\b")  # the two plans can use different measurements of the disk
    assert times.sub("TIME", f"{planned}\n") == times.sub("TIME", text)
    assert re.search(r"updates +\w+: \S+ \Scell/s", text) and re.search(r"storage .*reads \S+ \SB/s, writes", text)
    lines = str(planned.plan).splitlines()
    assert len(lines) == len(text.splitlines()) - 2
    assert all(line in text or line.split()[0] in ("memory", "time") for line in lines)


@pytest.mark.parametrize(("stencil", "size", "stages"), [("heat16", "20", 1), ("maxwell", "20", 2)])
def test_a_plan_does_not_show_more_updates_than_the_declared_rate(
    stencil: str, size: str, stages: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that a plan counts updates in the same way as the report of a run: without the rows and planes of the rim,
    which are most rows of this grid. The declared rate is the rate of one stage."""
    words = [stencil, "-n", "512", size, "64", "-t", "20", "--machine", "crest6", "--memory", "16MiB"]
    text = plan_text(*words, capsys=capsys)
    rate = float(re.search(r"updates +declared for crest6: ([\d.]+) Gcell/s", text)[1])  # type: ignore[index]
    declared = load_machine("crest6").updates_per_second["float32"] / 1e9
    assert 0.1 * declared / stages < rate <= declared / stages


@pytest.mark.parametrize("history", [oc.History("all"), oc.History(3, recompute=True)], ids=["all", "recompute"])
def test_the_plan_of_an_adjoint_counts_only_the_fields_on_the_disk(history: oc.History, tmp_path: Path) -> None:
    """Checks that the values of the forward run are not counted as updated fields. The disk has two copies of the
    updated fields and their previous values, and one copy of the field that is only read."""
    sim = oc.Simulation("acoustic2_1d", (24,), directory=tmp_path / "run.oc", memory="4MiB", threads=1, unstable=True)
    sim.assign({"u": 1.0, "v": 0.2})
    sim.run(6, progress="none", history=history)
    text = str(sim.adjoint({"u": np.ones(24)}, ["u", "v"], tmp_path / "adjoint.oc").simulation.plan())
    fields = re.search(r"fields +(\d+) updated, (\d+) with previous values, 1 only read\n", text)
    assert fields, text
    assert f"({2 * (int(fields[1]) + int(fields[2])) + 1} arrays)" in text


@pytest.mark.parametrize(
    ("words", "blocks"),
    [
        (["heat7", "-n", "128", "128", "128", "--bx", "32"], "64 planes x 64 rows x 32 columns"),
        (["heat7", "-n", "128", "128", "128", "--bz", "32"], "32 planes"),
        (["heat4_1d", "-n", "100000", "--bx", "512"], "512 cells"),
        (["heat4_2d", "-n", "1024", "1000", "--bz", "500", "--bx", "512"], "500 rows x 512 columns"),
    ],
)
def test_a_plan_names_the_sizes_of_its_blocks_along_all_axes(
    words: list[str], blocks: str, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["-t", "10", "--scheme", "skewed", "--machine", "crest6", "--memory", "8MiB"]
    assert f" blocks of {blocks}, slabs of" in plan_text(*words, *more, capsys=capsys)


def test_a_quiet_plan_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["heat7", "-n", "40", "40", "40", "-t", "6", "--machine", "crest6", "--memory", "4MiB", "--explain"]
    assert "not chosen" in plan_text(*words, "--bt", "2", capsys=capsys)
    assert plan_text(*words, "--bt", "2", "--quiet", capsys=capsys) == ""


def test_a_plan_in_place_has_one_copy_of_the_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that a static field has one copy on disk, both in a run in place and in any other run."""
    words = ["maxwell_2d", "-n", "40", "60", "-t", "2", "-d", str(tmp_path / "run.oc"), "--memory", "4MiB"]
    assert "(4 arrays)" in plan_text(*words, "--in-place", capsys=capsys)


def test_figures_that_are_assumed_are_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that the plan, the report and the JSON give a reason for each assumed speed, and no reason for a measured
    speed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    where, file = str(tmp_path / "run.oc"), tmp_path / "figures.json"
    words = ["heat7", "-n", "32", "32", "32", "-t", "4", "-d", where, "--memory", "4MiB", "--json", str(file)]
    short = "the run is too short to be worth measuring"
    text = plan_text(*words, capsys=capsys)
    assert re.search(rf"updates  assumed: .* \({short}\)\n  storage  assumed: .* \({short}\)", text), text
    both = {"updates": short, "storage": short}
    assert json.loads(file.read_text())["assumed"] == both
    assert call(["run", *words]) == 0
    assert f"note: the prediction assumes the speed of updates and storage: {short}" in capsys.readouterr().out
    assert json.loads(file.read_text())["predicted"]["assumed"] == both

    monkeypatch.setattr(engine, "WORTH_MEASURING_UPDATES", 1)
    text = plan_text(*words, capsys=capsys)
    assert "updates  measured: " in text and "(a measurement takes too long for arrays of less than 256 MiB)" in text
    assert list(json.loads(file.read_text())["assumed"]) == ["storage"]
    monkeypatch.setattr(measure, "MIN_GRID_BYTES", 1)
    assert "(plan writes nothing; run measures it)" in plan_text(*words, capsys=capsys)
    monkeypatch.setattr(measure, "SCRATCH_RECORDS", 32)
    assert call(["run", *words, "--force"]) == 0
    said = capsys.readouterr().out
    assert "storage  measured: " in said and "the prediction assumes" not in said


def test_a_disk_that_cannot_be_measured_is_assumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks a run whose limit for files is enough for its own files, but not for the scratch file of a measurement.
    The run must take place, and say why the speed of the disk is assumed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(engine, "WORTH_MEASURING_UPDATES", 1)
    monkeypatch.setattr(measure, "MIN_GRID_BYTES", 1)
    words = ["run", "heat7", "-n", "32", "32", "32", "-t", "4", "-d", str(tmp_path / "run.oc"), "--memory", "4MiB"]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (32 << 20, hard))
    try:
        assert call(words) == 0, capsys.readouterr().err
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    said = capsys.readouterr().out
    assert "storage  assumed: " in said and "the scratch file of a measurement cannot be written" in said
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".")] == []


@pytest.mark.parametrize("rate", [2e4, 1e18])
def test_a_plan_names_the_time_of_checksums_if_it_is_long(
    rate: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks the row about the time. The row names checksums if the cores need much time for them. This time equals the
    time in the JSON: all bytes of the plan divided by the measured rate."""
    monkeypatch.setattr(measure, "checksum_rate", lambda *_: rate)
    file = tmp_path / "plan.json"
    words = ["heat7", "-n", "32", "32", "32", "-t", "4", "-d", str(tmp_path / "run.oc"), "--memory", "4MiB"]
    text, guess = plan_text(*words, "--json", str(file), capsys=capsys), json.loads(file.read_text())["predicted"]
    assert guess["seconds_checksum"] == pytest.approx((guess["bytes_read"] + guess["bytes_written"]) / rate)
    row = next(line for line in text.splitlines() if line.startswith("  time "))
    named = f" and checksums {format_seconds(guess['seconds_checksum'])}, meanwhile reading"
    assert (named in row) == (rate < 1e18) and ("checksums" in row) == (rate < 1e18), row
    assert guess["seconds"] >= guess["seconds_update"] + guess["seconds_checksum"]


@pytest.mark.parametrize("seconds", [1e-9, 2.0])
def test_a_plan_names_the_time_of_commits_if_it_is_long(seconds: float) -> None:
    """Checks that the row about the time names the commits of a run with few updates, whose flushes take longest."""
    problem = make_problem((40, 30, 20), (1, 1, 1), 8)
    plan = make_plan(problem, replace(MACHINE, device=replace(MACHINE.device, seconds_flush=seconds)), 4 << 20, "auto",
                     assumed_rate)  # fmt: skip
    row = dict(plan_rows(plan))["time"]
    named = f", and commits {format_seconds(plan.predicted.seconds_commit)}"
    assert row.endswith(named) == (seconds == 2.0) and ("commits" in row) == (seconds == 2.0), row


def test_candidates_are_listed_by_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that the table of candidates counts whole steps of a pass, and not stages."""
    words = ["maxwell_2d", "-n", "40", "60", "-t", "9", "-d", str(tmp_path / "run.oc"), "--memory", "4MiB", "--explain"]
    lines = plan_text(*words, capsys=capsys).splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("scheme "))
    head, chosen = lines[first : first + 2]
    assert dict(zip(head.split(), chosen.split(), strict=False))["steps"] == "9"


SLOW_DISK = """
cores = 2
[memory]
size = "8GiB"
bandwidth = "20GB/s"
[caches]
second_level = "1MiB"
last_level = "16MiB"
[storage]
read = "200MB/s"
write = "200MB/s"
both = "200MB/s"
[updates]
float32 = 1e9
"""


@pytest.mark.parametrize(
    ("stencil", "size", "memory", "is_advised"),
    [
        ("acoustic8", [300, 60, 50], "3MiB", True),
        ("acoustic8", [60, 50, 300], "3MiB", False),  # the longest axis is already the streaming axis
        ("acoustic8", [300, 60, 50], "1GiB", False),  # the grid fits into the memory
        ("heat2_2d", [8000, 1000], "500KiB", True),
    ],
)
def test_a_plan_advises_to_stream_the_longest_axis(
    stencil: str, size: list[int], memory: str, is_advised: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that the text of a plan advises the user to stream along the longest axis if this saves much time. The
    plan for the advised sizes must predict the promised time.
    """
    (tmp_path / "slow.toml").write_text(SLOW_DISK)
    words = ["-t", "20", "--machine", str(tmp_path / "slow.toml"), "--memory", memory]
    text = plan_text(stencil, "-n", *map(str, size), *words, capsys=capsys)
    assert ("  note     " in text) == is_advised
    if is_advised:
        (advised, promised), *_ = re.findall(r"order of the axes .*: as ([\d x]+), .* would take about (\S+) ", text)
        other = advised.split(" x ")
        assert sorted(map(int, other)) == sorted(size) and int(other[-1]) == max(size)
        (seconds,) = re.findall(r"  time     about (\S+) ", plan_text(stencil, "-n", *other, *words, capsys=capsys))
        assert float(promised) == pytest.approx(float(seconds), rel=0.2)


def test_sides_are_named_as_on_the_users_own_axes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that a grid of two axes has the axes y and x, and that "periodic" alone is accepted."""
    words = ["heat_2d", "-n", "40", "60", "-t", "2", "-d", str(tmp_path / "run.oc"), "--memory", "4MiB", "--boundary"]
    assert "boundary periodic\n" in plan_text(*words, "periodic", capsys=capsys)
    mixed = plan_text(*words, "y=fixed:mirror,x=periodic", capsys=capsys)
    assert "boundary y=fixed:mirror,x=periodic\n" in mixed


@pytest.mark.parametrize(
    ("stencil", "size", "memory", "words"),
    [
        ("heat2", ["40", "30", "200"], "400KiB", r"z, read from both ends .*: (\d+) planes more in the window"),
        ("heat4_2d", ["1000", "400"], "600KiB", r"y, read from both ends .*: (\d+) rows more in the window"),
        ("heat2", ["20", "20", "30"], "4MiB", r"z, read from both ends .*: the window holds the whole grid()"),
    ],
)
def test_a_plan_shows_what_a_periodic_streaming_axis_costs(
    stencil: str, size: list[str], memory: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that the plan shows the additional planes of the window that a periodic streaming axis needs."""
    where = ["-d", str(tmp_path / "run.oc"), "--memory", memory]
    plan = [stencil, "-n", *size, "-t", "6", *where] + (["--bt", "6"] if "more" in words else [])
    found = re.findall(f"  periodic +{words}", plan_text(*plan, "--boundary", "periodic", capsys=capsys))
    assert len(found) == 1
    if found[0]:
        radius = 2 if stencil == "heat4_2d" else 1
        assert int(found[0]) == 2 * 6 * radius, "both copies, a radius for each level"
    for sides in ("x=periodic", "mirror"):
        assert "  periodic" not in plan_text(*plan, "--boundary", sides, capsys=capsys)


class Watched(Progress):
    """A progress display that stores its last fraction."""

    fraction = 0.0

    def show(self, standing: Standing) -> None:
        """Store the fraction."""
        Watched.fraction = self._fraction(standing)


def test_stages_are_no_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that a step of two stages counts as one step and updates each cell once. The bar ends at 100 %."""
    monkeypatch.setattr("outcrop.run.passes.make_progress", lambda kind, *run: Watched(*run))
    monkeypatch.setattr("outcrop.run.passes.INTERVAL_SECONDS", 1e-4)
    shape, steps = (90, 70), 40
    sim = oc.Simulation("maxwell_2d", shape, directory=tmp_path / "run.oc", memory="600KiB", boundary="periodic")
    sim.assign({"ez": "gaussian", "eps": 1.0})
    report = sim.run(steps=steps)
    assert sim.step == report.step == report.steps == steps
    assert report.cells_updated == shape[0] * shape[1] * steps
    assert report.plan["passes"] > 1 and report.plan["steps_per_pass"] * 2 == report.plan["levels"]
    assert f"{report.plan['steps_per_pass']} steps a pass" in str(report)
    assert 0 < Watched.fraction <= 1
    sim.run(steps=3)
    assert sim.step == steps + 3 and oc.open(tmp_path / "run.oc").step == steps + 3
