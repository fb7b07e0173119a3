"""Check the output and the errors of `outcrop plan --ranks`, for this machine and for declared machines."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from outcrop.cli.main import call
from outcrop.plan.machine import ASSUMED_NETWORK, NetworkRates
from outcrop.tiers.declarations import load_machine, parse_machine
from outcrop.tiers.update_rate import ASSUMED_CELLS_PER_SECOND

NODE = """
cores = 8
[memory]
size = "8GiB"
bandwidth = "50GB/s"
[caches]
second_level = "1MiB"
last_level = "16MiB"
[storage]
read = "3GB/s"
write = "3GB/s"
both = "4GB/s"
[updates]
float32 = 6e9
[network]
bandwidth = "5GB/s"
latency = 2e-5
"""
PLAN = ["plan", "heat7", "-n", "512", "2048", "1024", "-t", "100", "--memory", "256MiB"]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder with a machine file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    Path("node.toml").write_text(NODE)


def test_a_plan_of_many_ranks_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Checks the plan of eight ranks on a declared machine: the rows of each rank, the halo, the network, and the
    predicted time. The JSON must have the same figures."""
    words = ["--machine", "node.toml", "--ranks", "8", "--check", "--explain", "--json", "plan.json", "--draw", "p.png"]
    assert call([*PLAN, *words, "--scheme", "wavefront"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("heat7 512 x 2048 x 1024 float32, 100 steps, boundary fixed\n")
    assert "ranks    8 parts of 256 rows" in said
    halo, twice = re.search(r"halo     (\d+) rows of each neighbour for \1 steps; ([0-9.]+) % more", said).groups()  # type: ignore[union-attr]
    assert "network  declared for node: 5.00 GB/s in each direction; a pass sends" in said
    assert re.search(r"speed    about .* with 8 ranks, [4-8]\.\d times as fast as one rank", said)
    assert "every pass of every rank is legal" in said and "chosen" in said
    report = json.loads(Path("plan.json").read_text())
    several = report["several_ranks"]
    assert several["cut"] == list(range(0, 2049, 256)) and several["halo_rows"] == int(halo)
    assert several["bytes_per_pass_and_link"] == int(halo) * 512 * 4 * 1024
    assert 100 * several["computed_twice"] == pytest.approx(float(twice), abs=0.05)
    assert several["seconds"] == report["predicted"]["seconds"]
    assert several["speed_up"] == pytest.approx(several["seconds_single"] / several["seconds"])
    assert report["predicted"]["bytes_sent"] == report["predicted"]["bytes_received"] == 2 * 100 * 512 * 4 * 1024
    assert Path("p.png").stat().st_size > 0


@pytest.mark.parametrize("scheme", ["split", "auto"])
def test_split_tiling_is_printed(scheme: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks the plan of eight ranks with split tiling. On this machine, split tiling is faster than deep halos. So
    `auto` chooses it, and also prints the best plan with deep halos."""
    words = ["--machine", "node.toml", "--ranks", "8", "--check", "--explain", "--json", "plan.json", "--draw", "p.png"]
    assert call([*PLAN, *words, "--scheme", scheme]) == 0
    said = capsys.readouterr().out
    found = re.search(r"halo     (\d+) rows of the upper neighbour for (\d+) steps; no cell is updated twice", said)
    assert found is not None and int(found[1]) == int(found[2]) + 1
    # the cut moves down by the mean number of rows that a rank updates above its part, so all ranks have equal work
    moved = (int(found[2]) + 1) // 2
    assert f"ranks    8 parts of {256 - moved} to {256 + moved} rows" in said
    assert "a pass sends at most" in said and "every pass of every rank is legal" in said
    assert bool(re.search(r"(?m)^wavefront ", said)) == (scheme == "auto")
    several = json.loads(Path("plan.json").read_text())["several_ranks"]
    assert several["halo_rows"] == int(found[1]) and several["computed_twice"] == 0
    assert several["cut"] == [0, *range(256 - moved, 1800, 256), 2048]
    assert Path("p.png").stat().st_size > 0


def test_a_ring_of_ranks_is_planned_for_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    """Checks a plan on this machine for a periodic grid that is larger than the memory of one rank. The command must
    create no file."""
    words = ["plan", "heat7", "-n", "64", "90", "80", "-t", "6", "--memory", "1MiB", "--boundary", "periodic"]
    assert call([*words, "-d", "run.oc", "--ranks", "3", "--check"]) == 0
    said = capsys.readouterr().out
    assert re.search("ranks +3 parts of 30 rows", said) and re.search("network +assumed: 1.25 GB/s", said)
    assert "boundary periodic" in said and "proved" in said
    assert [path.name for path in Path().iterdir()] == ["node.toml"]


@pytest.mark.parametrize("scheme", ["split", "wavefront"])
def test_a_plan_for_this_machine_divides_the_rows_of_ranks(scheme: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that a plan on this machine divides the rows of a rank into blocks if the ranks have little memory."""
    words = ["plan", "heat7", "-n", "128", "512", "256", "-t", "20", "--memory", "1MiB", "--ranks", "2", "--check"]
    assert call([*words, "-d", "run.oc", "--scheme", scheme]) == 0
    said = capsys.readouterr().out
    assert re.search(rf"scheme   {scheme}: .* blocks of \d+ rows", said) and "every pass of every rank is legal" in said


def test_the_rate_of_updates_is_that_of_a_grid_without_a_rim(capsys: pytest.CaptureFixture[str]) -> None:
    """Checks the speed of updates in a plan on this machine. The grid for the measurement has as many rows as a rank,
    and most of these rows are in the rim. The speed must not be higher because the rim is not updated."""
    words = ["-n", "64", "40", "64", "-t", "4", "--memory", "8MiB", "--threads", "1", "--ranks", "2"]
    assert call(["plan", "heat16", *words, "-d", "run.oc", "--scheme", "wavefront", "--json", "plan.json"]) == 0
    planned = json.loads(Path("plan.json").read_text())
    assert "updates" in planned["assumed"], "the run is too short for a measurement"
    updates = (20 - 8) * (64 - 16) * 64 * 4  # each of the two ranks has a rim of 8 rows at one side
    assert updates / planned["predicted"]["seconds_update"] < 1.01 * ASSUMED_CELLS_PER_SECOND
    assert re.search("updates +assumed: ", capsys.readouterr().out)


ACQUISITION = """
[problem]
stencil = "heat7"
shape = [64, 64, 64]
steps = 24
[[problem.sources]]
field = "u"
points = [32.0, 50.0, 32.0]
values = "ones.npy"
[[problem.receivers]]
name = "line"
field = "u"
points = "line.npy"
[resources]
memory = "2MiB"
[output.snapshots]
every = 4
"""


@pytest.mark.parametrize("where", [["--machine", "node.toml"], ["-d", "run.oc"]], ids=["elsewhere", "here"])
def test_the_plan_of_ranks_includes_the_acquisition(where: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Checks a plan with snapshots, a source and receivers. With split tiling, a pass ends at each snapshot. The points
    belong to the upper rank. The plan of each rank must have enough memory for these points."""
    Path("heat.toml").write_text(ACQUISITION)
    np.save("ones.npy", np.ones(24))
    np.save("line.npy", [(32.0, 50.0, x) for x in range(8, 56)])
    words = ["--scheme", "split", "--ranks", "2", "--check", "--json", "plan.json", *where]
    assert call(["plan", "heat.toml", *words]) == 0
    said, report = capsys.readouterr().out, json.loads(Path("plan.json").read_text())
    _, border, rows = report["several_ranks"]["cut"]
    assert report["passes"] == 6 and "split: 6 passes of 4 steps" in said and "of snapshots" in said
    assert report["snapshot_bytes"] in [7 * 64 * 64 * 4 * own for own in (border, rows - border)]
    assert report["several_ranks"]["seconds_single"] > 0
    capsys.readouterr()
    Path("small.toml").write_text(ACQUISITION.replace('"2MiB"', '"64KiB"'))
    assert call(["plan", "small.toml", *words]) == 2
    assert "of this for snapshots and points" in capsys.readouterr().err


def test_ranks_of_a_periodic_grid_need_as_little_memory_here_as_elsewhere() -> None:
    """Checks that a plan on this machine divides the rows of ranks into blocks if y is periodic. One process cannot
    divide a periodic y. So the run of one process that gives the update rates must have fixed sides along y."""
    words = ["plan", "heat7", "-n", "128", "256", "20", "-t", "4", "--memory", "400KiB", "--boundary", "y=periodic"]
    for where in (["--machine", "node.toml"], ["-d", "run.oc"]):
        assert call([*words, "--scheme", "wavefront", "--ranks", "2", *where]) == 0


UNEQUAL = {
    "naive": "-n 100 29 3 -t 30 --memory 72KiB --ranks 3 --scheme naive",
    "groups of rows": "-n 384 127 60 -t 20 --memory 700KiB --ranks 2 --scheme wavefront",
    "groups of rows that a moved cut divides": "-n 384 190 40 -t 12 --memory 600KiB --ranks 3 --scheme split",
    "numbers of blocks in a ring": "-n 10 129 60 -t 2 --ranks 2 --boundary y=periodic --scheme split --by 32 --slab 1",
}


@pytest.mark.parametrize("words", UNEQUAL.values(), ids=UNEQUAL.keys())
def test_plans_of_ranks_with_unequal_rows_are_legal(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks plans for ranks with different numbers of rows. All ranks must have the same passes, slabs and blocks."""
    assert call(["plan", "heat7", *words.split(), "--machine", "node.toml", "--check"]) == 0
    assert "every pass of every rank is legal" in capsys.readouterr().out


LARGE_BLOCKS = {
    "auto": ("--by 480", "(split|wavefront)"),
    "only deep halos have them": ("--by 504 --bt 1", "wavefront"),
    "split tiling has them with equal parts": ("--by 450 --scheme split", "split"),
    "split tiling has them with moved parts": ("--by 450 --scheme split --bt 2", "split"),
}


@pytest.mark.parametrize(("words", "scheme"), LARGE_BLOCKS.values(), ids=LARGE_BLOCKS.keys())
def test_large_blocks_are_planned_if_any_scheme_has_them(
    words: str, scheme: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that a size of blocks is possible if one scheme and one cut can have it. Other schemes and cuts need more
    rows for the same blocks."""
    grid = ["plan", "heat7", "-n", "512", "2048", "64", "-t", "20", "--memory", "1GiB", "--machine", "node.toml"]
    assert call([*grid, "--ranks", "4", "--check", *words.split()]) == 0
    assert re.search(rf"scheme   {scheme}: .* blocks of {words.split()[1]} rows", capsys.readouterr().out)


BLOCKS_OF_RANKS = {
    "a periodic grid": "-n 128 128 20 -t 20 --memory 1MiB --by 16 --boundary y=periodic --scheme wavefront",
    "groups of rows": "-n 384 126 20 -t 20 --memory 1MiB --by 20 --scheme wavefront",
}


@pytest.mark.parametrize("where", [["--machine", "node.toml"], ["-d", "run.oc"]], ids=["elsewhere", "here"])
@pytest.mark.parametrize("words", BLOCKS_OF_RANKS.values(), ids=BLOCKS_OF_RANKS.keys())
def test_blocks_that_only_ranks_can_have_are_planned(
    words: str, where: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that the size of blocks applies to ranks only. One rank for the whole grid cannot have these blocks, but
    the plan compares the ranks with one rank, and measures update rates in a run of one process."""
    assert call(["plan", "heat7", *words.split(), "--ranks", "2", "--check", "--json", "plan.json", *where]) == 0
    said, report = capsys.readouterr().out, json.loads(Path("plan.json").read_text())
    rows = words.split()[words.split().index("--by") + 1]
    assert f"blocks of {rows} rows" in said and report["given"] == {"by": int(rows)}
    assert report["several_ranks"]["seconds_single"] > 0


def test_one_rank_without_enough_memory_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that a plan of many ranks says if the memory of one rank is too small for the whole grid."""
    words = ["plan", "heat7", "-n", "4096", "65536", "64", "-t", "4", "--memory", "256MiB", "--machine", "node.toml"]
    assert call([*words, "--ranks", "64"]) == 0
    assert "with 64 ranks; one rank does not have enough memory for the whole grid" in capsys.readouterr().out


def test_one_rank_is_a_plan_as_usual(capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that `--ranks 1` and `--ranks auto` print the usual plan."""
    said = []
    for words in ([], ["--ranks", "1"], ["--ranks", "auto"]):
        assert call([*PLAN, "--machine", "node.toml", *words]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] == said[2] and "halo" not in said[0]


REFUSED = {
    "too many ranks": (["--ranks", "2049"], "ranks 2049: .*at least 1 rows.* use at most 2048"),
    "too few rows for bt": (["--ranks", "100", "--bt", "30"], "ranks 100: .*at least 30 rows.* use at most 68"),
    "far too many": (["--ranks", "1000000"], "ranks 1000000: plans have at most 100000"),
    "no number": (["--ranks", "two"], "ranks 'two' must be 'auto', a number"),
    "zero": (["--ranks", "0"], "ranks '0' must be 'auto', a number"),
    "negative": (["--ranks", "-1"], "ranks '-1' must be 'auto', a number"),
    "blocks": (["--ranks", "4", "--by", "510"], "by 510: the 512 rows of a rank are too few .* give at most"),
    "blocks in long passes": (["--ranks", "4", "--by", "500", "--bt", "20"],
                              "by 500: the 512 rows of a rank are too few .* passes of 20 steps; give at most 4[0-9]+"),
    "scheme": (["--ranks", "4", "--scheme", "skewed-5y"], "skewed-5y cannot divide the grid among ranks"),
    "split on one rank": (["--scheme", "split"], "split cannot run on one rank: .*give scheme wavefront or auto"),
    "too few rows to split": (["--ranks", "1025", "--scheme", "split"], "at least 2 rows.* use at most 1024"),
    "in place": (["--ranks", "4", "--in-place"], "runs of several ranks cannot have in_place yet"),
    "gradient": (["--ranks", "4", "--gradient"], "--gradient plans runs of one process; leave out --ranks"),
    "too little memory": (["--ranks", "4", "--memory", "64KiB"], r"64 KiB is too small .* at least \d+ KiB"),
}


@pytest.mark.parametrize(("words", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_impossible_ranks_are_refused(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that each impossible request gives an error message of one line that suggests a solution."""
    assert call([*PLAN, "--machine", "node.toml", *words]) == 2
    output = capsys.readouterr()
    assert output.out == "" and output.err.count("\n") == 1
    assert re.search(message, output.err), output.err


def test_the_network_of_a_machine_is_optional() -> None:
    """Checks that the table `network` of a machine file is read, and that assumed values replace a missing table or a
    missing latency.
    """
    assert load_machine("node.toml").network == NetworkRates(5e9, 2e-5, "declared for node")
    without = parse_machine(NODE[: NODE.index("[network]")], "node.toml")
    assert without.network == ASSUMED_NETWORK == without.machine(2).network
    short = parse_machine(NODE.replace("latency = 2e-5\n", ""), "node.toml")
    assert short.network == NetworkRates(5e9, ASSUMED_NETWORK.seconds_latency, "declared for node")


WRONG = {
    "no bandwidth": (NODE.replace('bandwidth = "5GB/s"\n', ""), "network.bandwidth is missing"),
    "no time": (NODE.replace("5GB/s", "5GB"), "network.bandwidth = '5GB'.*2.4GB/s"),
    "negative latency": (NODE.replace("2e-5", "-1"), "network.latency = -1.*at least 0"),
    "unknown key": (NODE + "topology = 1\n", "network.topology is unknown; there are .*bandwidth"),
    "not a table": ("network = 3\n" + NODE[: NODE.index("[network]")], "network = 3.*a table"),
}


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=WRONG.keys())
def test_wrong_networks_are_one_line(text: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that a wrong table `network` is refused with the file, the key and a valid form."""
    Path("bad.toml").write_text(text)
    assert call([*PLAN, "--machine", "bad.toml", "--ranks", "2"]) == 2
    output = capsys.readouterr()
    assert output.out == "" and output.err.count("\n") == 1
    assert re.search(f"bad.toml.*{message}", output.err), output.err


def test_the_time_line_of_many_ranks_is_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that jitter makes the simulated run longer, and that the same seed gives the same time. The shares of lost
    time must add up to all lost time."""
    found = {}
    jitter, stall = ["--jitter", "15%"], ["--stall", "0.5", "--seed", "7"]
    for name, words in {"calm": [], "jitter": jitter, "again": jitter, "stall": stall}.items():
        files = ["--json", f"{name}.json", "--draw", f"{name}.png"]
        sizes = ["--scheme", "split", "--bt", "20"]
        assert call([*PLAN, "--machine", "node.toml", "--ranks", "8", *sizes, "--simulate", *words, *files]) == 0
        found[name] = json.loads(Path(f"{name}.json").read_text())["simulated"]
        assert Path(f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert sum(found[name]["shares"].values()) == pytest.approx(1)
    assert found["again"] == found["jitter"]
    assert min(found["stall"]["seconds"], found["jitter"]["seconds"]) > found["calm"]["seconds"]
    assert 0.1 < found["stall"]["efficiency"] < found["calm"]["efficiency"] < 1
    said = capsys.readouterr().out
    assert "8 ranks with jitter 15 %, seed 0; one rank alone" in said
    assert "stalls of 0.5 s, seed 7" in said
    assert "% updates of rows of neighbours" in said


def test_split_tiling_scales_better_than_halos(capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that 16 ranks with few rows and a jitter of 5 % are more efficient with split tiling than with deep halos.
    """
    grid = ["plan", "heat7", "-n", "1024", "2048", "1024", "-t", "128", "--memory", "1GiB", "--machine", "node.toml"]
    words = ["--ranks", "16", "--simulate", "--jitter", "5%", "--json", "plan.json"]
    found = {}
    for scheme in ("split", "wavefront"):
        assert call([*grid, *words, "--scheme", scheme]) == 0
        found[scheme] = json.loads(Path("plan.json").read_text())["simulated"]["efficiency"]
    assert 0.75 < found["split"] < 1 and found["wavefront"] < found["split"] - 0.05
    assert re.search("updates +declared for node: 5.9", capsys.readouterr().out)


def test_the_time_line_of_parts_along_z_is_simulated() -> None:
    """Checks that ranks with parts along z work at the same time. The simulated time is near the predicted time of the
    slowest rank, although the lowest ranks have fewer slabs than the other ranks."""
    words = ["--scheme", "wavefront", "--bt", "20", "--simulate", "--json", "plan.json"]
    for ranks in ("8", "4x2", "2x4", "1x8"):
        assert call([*PLAN, "--machine", "node.toml", "--ranks", ranks, *words]) == 0
        report = json.loads(Path("plan.json").read_text())
        predicted, found = report["several_ranks"]["seconds"], report["simulated"]
        assert predicted <= found["seconds"] < 1.1 * predicted, ranks
        assert sum(found["shares"].values()) == pytest.approx(1)
        assert found["shares"]["faces"] < 0.1 and found["seconds_alone"] < found["seconds"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--ranks", "4", "--jitter", "5%"], "give --simulate, too"),
        (["--ranks", "4", "--seed", "0"], "--seed are for a simulation; give --simulate, too"),
        (["--simulate"], "give --ranks N, too"),
        (["--ranks", "4", "--simulate", "--jitter", "5"], "--jitter '5' must be a percentage"),
        (["--ranks", "4", "--simulate", "--jitter", "80%"], "--jitter '80%' must be a percentage"),
        (["--ranks", "4", "--simulate", "--stall", "-1"], "--stall -1 must be a number of seconds"),
        (["--ranks", "4", "--simulate", "--seed", "-1"], "--seed -1 must be at least 0"),
    ],
)
def test_wrong_options_of_a_simulation_are_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call([*PLAN, "--machine", "node.toml", *words]) == 2
    assert message in capsys.readouterr().err
