"""Check the benchmark for the table of the README. The benchmark must run, and the report must be correct.

The benchmark makes missing directories. At the end, it removes them, and only the file with the figures remains.
"""

import json
import math
from pathlib import Path

import pytest

from outcrop.bench.core import SHARES
from outcrop.cli.main import call


def test_small_bench_measures_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that all figures are positive, that bytes equal the prediction, and that memory stays within bounds."""
    target = tmp_path / "figures.json"
    assert call(["bench", "core", "--small", "-d", str(tmp_path / "new" / "below"), "--json", str(target)]) == 0
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
    """Checks that `-n`, `-t`, `--memory` and `--turns` set the grid, the steps, the memory and the repeats of the
    measurement. A wrong share of memory is refused."""
    target = tmp_path / "figures.json"
    arguments = ["bench", "core", "--small", "-d", str(tmp_path), "--json", str(target), "-n", "40", "30", "50"]
    assert call([*arguments, "-t", "4", "--memory", "10%", "--turns", "2"]) == 0
    found = json.loads(target.read_text())["float32"]
    assert (found["shape"], found["steps"], list(found["checks"])) == ([50, 30, 40], 4, ["out_of_core_10_percent"])
    assert len(found["sweeps"]) == 2
    assert call([*arguments, "-t", "0"]) == 2
    assert "--steps" in capsys.readouterr().err
    for wrong in ("512MiB", "0%", "many%"):
        assert call([*arguments, "--memory", wrong]) == 2
        assert "share of both arrays" in capsys.readouterr().err


def test_turns_set_the_number_of_repeats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that `--turns` sets the repeats of other benchmarks. The option is refused with 0 repeats, and for
    benchmarks without it."""
    target = tmp_path / "figures.json"
    arguments = ["--small", "-d", str(tmp_path), "--json", str(target), "--turns", "2"]
    assert call(["bench", "adjoint", *arguments, "--only", "heat2"]) == 0
    assert len(json.loads(target.read_text())["stencils"]["heat2"]["forward"]) == 2
    assert call(["bench", "stencils", *arguments, "--only", "stream_function"]) == 0
    assert len(json.loads(target.read_text())["stencils"][0]["seconds"]["out_of_core"]) == 2
    capsys.readouterr()
    for words, message in ((["tuner", "--turns", "2"], "does not take --turns"), (["core", "--turns", "0"], "--turns")):
        assert call(["bench", *words]) == 2
        assert message in capsys.readouterr().err


def test_small_tuner_bench_compares_plans(tmp_path: Path) -> None:
    """Checks that the benchmark compares the plan of the tuner with other plans, and that it removes its files at the
    end.
    """
    target = tmp_path / "figures.json"
    assert call(["bench", "tuner", "--small", "-d", str(tmp_path / "new" / "below"), "--json", str(target)]) == 0
    (case,) = json.loads(target.read_text())["cases"]
    assert case["plans_swept"] == len(case["swept"]) > 2
    assert case["best"]["seconds"] <= case["chosen"]["seconds"] and case["to_best"] >= 1
    assert {scheme for scheme, _, _ in case["swept"]} >= {"wavefront"}
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]


def test_unknown_bench_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that the error for an unknown benchmark lists the known benchmarks."""
    assert call(["bench", "nothing"]) == 2
    assert "core" in capsys.readouterr().err


def test_small_stencil_bench_compares_like_with_like(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that figures count whole steps, even if a step has several stages. The table has a row for each stencil,
    and the measured bytes equal the prediction.
    """
    target, names = tmp_path / "figures.json", ["heat2", "maxwell", "d2q9"]
    where = str(tmp_path / "new" / "below")
    given = ["bench", "stencils", "--small", "-d", where, "--json", str(target), "--only", ",".join(names)]
    assert call(given) == 0
    said = capsys.readouterr().out
    figures = json.loads(target.read_text())
    assert [one["stencil"] for one in figures["stencils"]] == names
    for one in figures["stencils"]:
        assert f"| `{one['stencil']}` |" in said
        rate, updates = one["cells_per_second"], math.prod(one["shape"]) * one["steps"]
        assert rate["sweeps"] > 0 and rate["out_of_core"] > 0
        for name in ("in_memory", "out_of_core"):
            (report,) = one["runs"][name]
            assert report["bytes_read"] == report["predicted"]["bytes_read"]
            key = "seconds_update" if name == "in_memory" else "seconds"
            assert rate[name] == pytest.approx(updates / report[key])
        assert one["runs"]["out_of_core"][0]["memory_budget_bytes"] == one["budget_bytes"]
        assert one["ratios"]["out_of_core_to_in_memory"] == pytest.approx(rate["out_of_core"] / rate["in_memory"])
    assert (figures["stencils"][0]["cells_per_second"]["devito"] is not None) == figures["has_devito"]
    assert figures["stencils"][2]["ratios"]["out_of_core_to_devito"] is None
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]


def test_stencil_bench_refuses_what_it_does_not_measure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that an unknown stencil and a grid that is too large are refused before any file is made."""
    given = ["bench", "stencils", "-d", str(tmp_path / "new" / "below")]
    assert call([*given, "--only", "heat3"]) == 2
    assert "heat2" in capsys.readouterr().err
    assert call([*given, "--only", "d3q19", "-n", "100000", "100000", "1000"]) == 2
    assert "-n" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["heat4", "acoustic8", "acoustic8_sponge", "maxwell"])
def test_devito_computes_what_is_compared(name: str) -> None:
    """Checks that the equations for Devito have the same number of fields, radii and stages as our stencil."""
    pytest.importorskip("devito")
    from outcrop.bench.devito import equations
    from outcrop.language.devito import from_devito
    from outcrop.language.library import find_stencil

    written, given = equations(name, (24, 20, 22))
    found, own = from_devito(written, dt=given["dt"]).stencil, find_stencil(name)
    assert (len(found.fields), found.radii, len(found.stages)) == (len(own.fields), own.radii, len(own.stages))


def test_small_kernel_bench_compares_the_same_computation(tmp_path: Path) -> None:
    """Checks that hand-written loops and generated loops compute the same values. The benchmark measures both kinds of
    loops, with data in the cache and in memory.
    """
    target = tmp_path / "figures.json"
    assert call(["bench", "kernel", "--small", "-d", str(tmp_path / "new" / "below"), "--json", str(target)]) == 0
    figures = json.loads(target.read_text())
    loops = figures["loops"]
    assert [one["stencil"] for one in loops] == ["heat7", "acoustic8"]
    for one in loops:
        assert one["same_up_to_rounding"], one["largest_difference"]
        for place in ("cache", "sweep"):
            rate = one[f"{place}_cells_per_second"]
            assert (
                one[f"{place}_ratio"] == pytest.approx(rate["generated"] / rate["handwritten"])
                and one[f"{place}_ratio"] > 0
            )
    for one in figures["rows_at_once"].values():
        assert all(rate > 0 for rows in ("1", "2", "4") for rate in one[rows].values())
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]


def test_a_gradient_without_room_is_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks that all other figures are printed if a history does not fit on the disk."""
    from outcrop.run.acquisition import history

    monkeypatch.setattr(history, "free_bytes", lambda directory, needed: 100_000)  # less than two states
    target = tmp_path / "figures.json"
    assert call(["bench", "adjoint", "--small", "-d", str(tmp_path), "--json", str(target), "--only", "heat2"]) == 0
    found = json.loads(target.read_text())["stencils"]["heat2"]
    assert found["sums"] > 0 and "gradient_all" not in found
    assert any("no room for the history" in note for note in found["notes"])
    assert "note: heat2, gradient_all: no room" in capsys.readouterr().out
