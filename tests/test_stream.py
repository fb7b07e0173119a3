"""Check `outcrop bench stream`. Each rank must report its measurements, and the computed values must be STREAM's
values."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from mpi_programs import mpirun
from outcrop.bench.ranks import LAUNCHERS
from outcrop.bench.stream import (
    LOOPS,
    MODES,
    LoopTime,
    ModeTimes,
    RankFigures,
    find_tier,
    mode_figures,
    why_not_flushed,
)
from outcrop.cli.main import call
from outcrop.errors import InputError
from outcrop.tiers.survey import find_tiers
from outcrop.tiers.tier import Persistence

DRAM = MODES[0]


def test_small_stream_bench_measures_every_mode(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that the report has a bandwidth for each mode and loop, that all results are correct, and that only the
    figures and the picture remain.
    """
    target, picture = tmp_path / "figures.json", tmp_path / "pictures" / "stream.png"
    arguments = ["-d", str(tmp_path / "new" / "below"), "--json", str(target), "--png", str(picture), "--threads", "2"]
    assert call(["bench", "stream", "--small", *arguments]) == 0
    figures, said = json.loads(target.read_text()), capsys.readouterr().out
    measured = {mode["mode"] for mode in figures["modes"]}
    left_out = {one["mode"] for one in figures["not_measured"]}
    assert measured | left_out == {mode.name for mode in MODES} and not measured & left_out
    assert figures["results_are_right"] and "All results are right." in said
    assert (figures["ranks"], figures["threads"], len(figures["nodes"])) == (1, 2, 1)
    for mode in figures["modes"]:
        assert mode["text"] in said
        for loop in mode["loops"].values():
            assert 0 < loop["node"]["min"] <= loop["node"]["median"] <= loop["node"]["max"]
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in tmp_path.iterdir()} == {"figures.json", "pictures"}


def test_bandwidths_are_bytes_over_seconds() -> None:
    """Checks the bandwidth of a node with two ranks. The bandwidth is the number of bytes of both ranks, divided by the
    time from the first start to the last end."""
    times = {loop.name: [LoopTime(10.0, 1.0, 1.0), LoopTime(20.0, 2.0, 2.0)] for loop in LOOPS}
    later = {name: [replace(one, begin=one.begin + 2) for one in of] for name, of in times.items()}
    ranks = [
        RankFigures(0, "n0", {DRAM.name: ModeTimes(1000, times, True)}),
        RankFigures(1, "n0", {DRAM.name: ModeTimes(1000, later, True)}),
        RankFigures(2, "n1", {DRAM.name: ModeTimes(1000, times, False)}),
    ]
    found = mode_figures(DRAM, ranks)
    assert not found["is_right"] and found["array_bytes"] == 8000
    copy, add = found["loops"]["copy"], found["loops"]["add"]
    assert copy["by_rank"][0] == {"rank": 0, "node": "n0", "min": 4000, "median": 6000, "max": 8000}
    assert copy["by_node"][0] == {"node": "n0", "min": 32000 / 6, "median": (8000 + 32000 / 6) / 2, "max": 8000}
    assert copy["slowest_node"] == "n1" and copy["node"]["min"] == 4000
    assert add["by_rank"][1]["max"] == 12000


def test_values_follow_the_loops() -> None:
    """Checks the values that the benchmark expects after one repeat of all loops. For example, `a` is multiplied by
    15."""
    values = {"a": 2.0, "b": 2.0, "c": 0.0, "": 0.0}
    for loop in LOOPS:
        values[loop.result] = loop.value(values[loop.first], values[loop.second])
    assert (values["a"], values["b"], values["c"]) == (30.0, 6.0, 8.0)


def test_flushes_are_measured_only_where_they_mean_something(tmp_path: Path) -> None:
    """Checks that flushes are not measured on a tier that loses its data at a reboot."""
    tier = find_tier(tmp_path, None)
    assert "loses its content" in why_not_flushed(replace(tier, kind="tmpfs", persistence=Persistence.REBOOT))
    assert "memory" in why_not_flushed(replace(tier, kind="cxl", persistence=Persistence.PROCESS))
    assert not why_not_flushed(replace(tier, kind="nvme", persistence=Persistence.PERMANENT))


@pytest.mark.parametrize("name", ["dram", "optane"])
def test_tiers_that_cannot_be_measured_are_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that a tier that cannot be measured is refused, before a file is made. The one-line error names this tier
    and the known tiers."""
    assert call(["bench", "stream", "--small", "-d", str(tmp_path), "--tier", name]) == 2
    said = capsys.readouterr().err
    assert name in said and "there are" in said and said.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_arrays_without_room_are_refused_before_they_are_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks that a tier without enough room is refused, and that the error gives the free bytes."""
    full = replace(find_tier(tmp_path, None), free_bytes=1 << 20)
    monkeypatch.setattr("outcrop.bench.stream.find_tier", lambda directory, name: full)
    assert call(["bench", "stream", "--small", "-d", str(tmp_path)]) == 2
    assert "3 MiB" in capsys.readouterr().err


def test_a_tier_goes_by_its_kind_too(tmp_path: Path) -> None:
    """Checks that a tier can be selected by its kind, unless several tiers have this kind."""
    tier = find_tier(tmp_path, None)
    others = [one for one in find_tiers((tmp_path,)) if one.kind == tier.kind and one.name != tier.name]
    if others:
        with pytest.raises(InputError, match="there are several; name one of"):
            find_tier(tmp_path, tier.kind)
    else:
        assert find_tier(tmp_path, tier.kind).name == tier.name


def test_threads_that_the_system_does_not_give_are_one_line(tmp_path: Path) -> None:
    """Checks that too many threads give an error of one line. Threads that have started must end. Some threads cannot
    start, because the test limits the address space.
    """
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)); "
        "from outcrop.cli.main import call; sys.exit(call(sys.argv[1:]))"
    )
    words = ["bench", "stream", "--small", "-d", str(tmp_path), "--threads", "5000"]
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert "5000 threads are more than the system gives" in done.stderr and "ask for fewer" in done.stderr


def stream(ranks: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `outcrop bench stream --small` on several ranks."""
    return mpirun(ranks, sys.executable, "-m", "outcrop.cli.main", "bench", "stream", "--small", *arguments)


def test_all_ranks_measure_together(tmp_path: Path) -> None:
    """Checks that two ranks of mpirun give one table and one file, with a line for each rank and for their node."""
    target = tmp_path / "figures.json"
    done = stream(2, "-d", str(tmp_path), "--json", str(target))
    assert done.returncode == 0, done.stderr
    figures = json.loads(target.read_text())
    assert figures["ranks"] == 2 and figures["results_are_right"]
    copy = figures["modes"][0]["loops"]["copy"]
    assert [one["rank"] for one in copy["by_rank"]] == [0, 1]
    assert [one["node"] for one in copy["by_node"]] == figures["nodes"] == [copy["slowest_node"]]
    assert done.stdout.count("All results are right.") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]


def test_trouble_of_a_rank_ends_all(tmp_path: Path) -> None:
    """Checks that an error on one rank ends all ranks, and that the message names the rank."""
    done = stream(2, "-d", str(tmp_path), "--tier", "optane")
    assert done.returncode != 0
    assert "rank" in done.stderr and "optane" in done.stderr


def test_ranks_of_another_mpi_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks that mpirun is refused if it belongs to another MPI library than mpi4py. With such an mpirun, each rank
    would act as the only rank."""
    world = SimpleNamespace(Get_rank=lambda: 0, Get_size=lambda: 1)
    world.Split_type = lambda kind: world
    mpi = SimpleNamespace(
        COMM_WORLD=world,
        COMM_TYPE_SHARED=0,
        Get_processor_name=lambda: "n",
        Get_library_version=lambda: "Some MPI 4\n2",
    )
    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.setitem(sys.modules, "mpi4py", SimpleNamespace(MPI=mpi))
    assert call(["bench", "stream", "--small", "-d", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "2 ranks were started by an mpirun that does not belong to the MPI of mpi4py, Some MPI 4" in said
    assert said.count("\n") == 1 and not list(tmp_path.iterdir())


def test_ranks_without_mpi4py_are_told_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks that mpirun is refused if mpi4py is missing. Without mpi4py, each process would act as the only
    process."""
    monkeypatch.setenv(LAUNCHERS[0], "2")
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    assert call(["bench", "stream", "--small", "-d", str(tmp_path)]) == 2
    assert "outcrop[mpi]" in capsys.readouterr().err
