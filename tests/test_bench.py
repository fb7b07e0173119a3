"""Protects the benchmark that fills the README's table: it runs, and what it reports about a run is true."""

import json
from pathlib import Path

import pytest

from outcrop.bench.core import SHARES
from outcrop.cli.main import call


def test_small_bench_measures_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All figures are there and positive, bytes are as predicted, memory stays in bounds, nothing is left behind."""
    target = tmp_path / "figures.json"
    assert call(["bench", "core", "--small", "-d", str(tmp_path), "--json", str(target)]) == 0
    said = capsys.readouterr().out
    assert "(b) in memory" in said and said.count("(c) out of core, memory") == len(SHARES)
    figures = json.loads(target.read_text())
    assert figures["small"] and figures["machine"]["threads"] >= 1
    for dtype in ("float32", "float64"):
        found = figures[dtype]
        for key in ("kernel_cells_per_second", "sweep_cells_per_second", "in_memory_cells_per_second"):
            assert found[key] > 0, (dtype, key)
        assert len(found["checks"]) == len(SHARES)
        for name, checks in found["checks"].items():
            assert checks["bytes_as_predicted"], (dtype, name)
            assert checks["memory_within_budget_and_150_mib"], (dtype, name, checks)
            (report,) = found["runs"][name]
            parts = sum(report[f"seconds_{part}"] for part in ("read_wait", "write_wait", "update", "checksum", "copy"))
            assert 0 < parts <= report["seconds"]
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]


def test_bench_of_a_grid_and_share_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`-n`, `-t` and `--memory` say what is measured; a share that is none is refused."""
    target = tmp_path / "figures.json"
    arguments = ["bench", "core", "--small", "-d", str(tmp_path), "--json", str(target), "-n", "40", "30", "50"]
    assert call([*arguments, "-t", "4", "--memory", "10%"]) == 0
    found = json.loads(target.read_text())["float32"]
    assert (found["shape"], found["steps"], list(found["checks"])) == ([50, 30, 40], 4, ["out_of_core_10_percent"])
    for wrong in ("512MiB", "0%", "many%"):
        assert call([*arguments, "--memory", wrong]) == 2
        assert "share of both arrays" in capsys.readouterr().err


def test_small_tuner_bench_compares_plans(tmp_path: Path) -> None:
    """The tuner's plan and the sweep's are run on the same files, and nothing is left behind."""
    target = tmp_path / "figures.json"
    assert call(["bench", "tuner", "--small", "-d", str(tmp_path), "--json", str(target)]) == 0
    (case,) = json.loads(target.read_text())["cases"]
    assert case["plans_swept"] == len(case["swept"]) > 2
    assert case["best"]["seconds"] <= case["chosen"]["seconds"] and case["to_best"] >= 1
    assert {scheme for scheme, _, _ in case["swept"]} >= {"wavefront"}
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]


def test_unknown_bench_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A benchmark that is not there is named in one line with those that are."""
    assert call(["bench", "nothing"]) == 2
    assert "core" in capsys.readouterr().err
