"""Check the benchmark for the table of the README. The benchmark must run, and the report must be correct.

The benchmark makes missing directories. At the end, the benchmark removes these directories, and only the file with the
figures remains.
"""

import ctypes
import importlib.util
import json
import math
import os
from pathlib import Path

import pytest

from outcrop.bench import devito, kernel, memory, peers, rates
from outcrop.bench.core import SHARES
from outcrop.cli.main import call
from outcrop.errors import StorageError
from outcrop.plan.plan import Sizes


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
    benchmarks that do not have the option."""
    target = tmp_path / "figures.json"
    arguments = ["--small", "-d", str(tmp_path), "--json", str(target), "--turns", "2"]
    assert call(["bench", "adjoint", *arguments, "--only", " heat2"]) == 0
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
    """Checks that figures count whole steps, even if a step has several stages. The figures of Outcrop do not count the
    rim, and Devito updates all cells. The table has a row for each stencil, and the measured bytes equal the
    prediction."""
    target, names = tmp_path / "figures.json", ["heat2", "maxwell", "d2q9"]
    where = str(tmp_path / "new" / "below")
    given = ["bench", "stencils", "--small", "-d", where, "--json", str(target), "--only", ",".join(names)]
    assert call(given) == 0
    said = capsys.readouterr().out
    figures = json.loads(target.read_text())
    assert [one["stencil"] for one in figures["stencils"]] == names
    for one in figures["stencils"]:
        assert f"| `{one['stencil']}` |" in said
        rate, updates = one["cells_per_second"], math.prod(n - 2 for n in one["shape"]) * one["steps"]
        assert rate["sweeps"] > 0 and rate["out_of_core"] > 0
        for name in ("in_memory", "out_of_core"):
            (report,) = one["runs"][name]
            assert report["bytes_read"] == report["predicted"]["bytes_read"]
            key = "seconds_update" if name == "in_memory" else "seconds"
            assert rate[name] == pytest.approx(updates / report[key])
        (sweeps,), nx = one["sweeps"], one["shape"][-1]
        assert rate["sweeps"] == pytest.approx(sweeps["cells_per_second"] * (nx - 2) / nx)
        if one["seconds"]["devito"]:
            every = math.prod(one["shape"]) * one["steps"]
            assert rate["devito"] == pytest.approx(every / one["seconds"]["devito"][0])
        assert one["runs"]["out_of_core"][0]["memory_budget_bytes"] == one["budget_bytes"]
        assert one["ratios"]["out_of_core_to_in_memory"] == pytest.approx(rate["out_of_core"] / rate["in_memory"])
    assert (figures["stencils"][0]["cells_per_second"]["devito"] is not None) == figures["has_devito"]
    assert figures["stencils"][2]["ratios"]["out_of_core_to_devito"] is None
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]


def test_stencil_bench_goes_on_without_devito(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: object) -> float:
        raise StorageError("Devito failed on heat2: no compiler")

    monkeypatch.setattr(devito, "has_equivalent", lambda name: True)
    monkeypatch.setattr(devito, "seconds", fail)
    given = ["bench", "stencils", "--small", "-d", str(tmp_path), "--json", str(tmp_path / "figures.json")]
    assert call([*given, "--only", "heat2", "--turns", "2"]) == 0
    assert capsys.readouterr().out.count("Devito failed on heat2: no compiler; Devito is left out") == 1
    (one,) = json.loads((tmp_path / "figures.json").read_text())["stencils"]
    assert one["cells_per_second"]["devito"] is None and len(one["seconds"]["out_of_core"]) == 2


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
    """Checks that the equations for Devito have the same radii as our stencil, and the same numbers of fields and
    stages.
    """
    pytest.importorskip("devito")
    from outcrop.bench.devito import equations
    from outcrop.language.devito import from_devito
    from outcrop.language.library import find_stencil

    written, given = equations(name, (24, 20, 22))
    found, own = from_devito(written, dt=given["dt"]).stencil, find_stencil(name)
    assert (len(found.fields), found.radii, len(found.stages)) == (len(own.fields), own.radii, len(own.stages))


def test_devito_gets_its_threads_and_the_environment_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = []

    def run(words: list[str], limit: None, **given: object) -> memory.Output:
        variables.append(given["variables"])
        return memory.Output(json.dumps({"seconds": 1.0, "blocks": {}, "version": ""}), False, None)

    monkeypatch.setattr(devito, "run_limited", run)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert devito.seconds("heat2", (8, 8, 8), 1, 3) == 1.0
    assert variables == [{"OMP_NUM_THREADS": "3"}] and "OMP_NUM_THREADS" not in os.environ


def test_small_kernel_bench_compares_the_same_computation(tmp_path: Path) -> None:
    """Checks that hand-written loops and generated loops compute the same values. The benchmark measures both kinds of
    loops, with data in a cache of the processor and with data in memory.
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
        assert all(len(one[rows]) == 3 and min(one[rows].values()) > 0 for rows in ("1", "2", "4"))
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]


def test_loops_by_hand_and_generated_loops_are_measured_equally_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks the sizes of blocks in sweeps, and that the number of threads is set in the OpenMP library with which the
    loops were compiled, and not in the library of GCC."""
    load = ctypes.CDLL

    def loaded(name: str, *more: object) -> ctypes.CDLL:
        assert "libgomp" not in name
        return load(name, *more)

    monkeypatch.setattr(kernel.ctypes, "CDLL", loaded)
    by_hand, generated = list[int](), list[int]()
    run, meter = kernel.LoopTimer.handwritten, rates._core.UpdateMeter

    class Meter:
        """Notes the block sizes of generated loops. Each measurement has `repeats` samples."""

        planes_needed = staticmethod(meter.planes_needed)

        def __init__(self, *given: object) -> None:
            self._meter = meter(*given)

        def measure(self, sizes: Sizes, frame: object, region: object, repeats: int) -> list[float]:
            generated.extend([sizes.sweep_rows] * repeats)
            return self._meter.measure(sizes, frame, region, repeats)

    def noted(timer: kernel.LoopTimer, rows: int, repeats: int) -> float:
        by_hand.append(rows)
        return run(timer, rows, repeats)

    monkeypatch.setattr(kernel.LoopTimer, "handwritten", noted)
    monkeypatch.setattr(rates._core, "UpdateMeter", Meter)
    kernel._sweeps("heat7", kernel.SMALL, tmp_path, 1)
    assert sorted(by_hand) == sorted(generated) and len(set(by_hand)) > 2


def test_a_gradient_without_room_is_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks the benchmark if a history does not fit on the disk. The benchmark must still print all other figures."""
    from outcrop.run.acquisition import history

    monkeypatch.setattr(history, "free_bytes", lambda directory, needed: 100_000)  # less than two states
    target = tmp_path / "figures.json"
    assert call(["bench", "adjoint", "--small", "-d", str(tmp_path), "--json", str(target), "--only", "heat2"]) == 0
    found = json.loads(target.read_text())["stencils"]["heat2"]
    assert found["sums"] > 0 and "gradient_all" not in found
    assert any("no room for the history" in note for note in found["notes"])
    assert "note: heat2, gradient_all: no room" in capsys.readouterr().out


GIRIH_OUTPUT = """\
[AUTO TUNE]  Tuning time:  17.1 seconds
###INFO: Modified nt from 096 to 098 for the intra-diamond method to work properly
Started on Thu Nov 26 21:10:00 2026

******************************************************
Parameters settings
******************************************************
Time stepper name: Diamond
Stencil Kernel name: star
Stencil Kernel semi-bandwidth: 1
Stencil Kernel coefficients: constant
Precision: SP
Global domain    size:134217728    nx:512    ny:256    nz:1024
Rank 0 domain    size:134217728    nx:512    ny:256    nz:1024
Number of time steps: 98
Time unroll:   7
Enable wavefronts: 1
Wavefront parallel strategy: Relaxed synchronization wavefront
Intra-diamond width:   16
Multi-wavefront updates: 4
User set thread group size: -1
Thread group size: 2
Threads along z-axis: 2
Threads along y-axis: 1
Threads along x-axis: 1
Threads per cell    : 1
OpenMP Threads: 2
******************************************************

******************************************************
Performance results
******************************************************
Rank 0 TEST#01 time: 2.630668e+00
******************************************************
Total memory allocation per MPI rank: 1554 MiB
Total time(s): 2.630668e+00
time/test(s): 2.630668e+00

Total RANK0 MStencil/s MIN: 5000.000000  
Total RANK0 MStencil/s MAX: 5000.000000  
******************************************************
COMPLETED SUCCESSFULLY on Thu Nov 26 21:10:03 2026
"""
"""Lines of an output of Girih. performance_results() and print_param() in its src/utils.c print them."""
YASK_OUTPUT = """\
Num OpenMP threads used:   2

Work-unit sizes in grid points (from largest to smallest):
 global-domain-size:     x=1024 * y=256 * z=512
 mega-block-size:        t=4 * x=1024 * y=256 * z=512
 block-size:             t=4 * x=32 * y=32 * z=32
 micro-block-size:       t=4 * x=32 * y=32 * z=32

Other settings:
 yask-version:           4.05.04
 stencil-description:    3axis radius 1
 element-size:           4 Bytes

Final settings:
 auto-tuner: mega-block-size:        t=4 * x=1024 * y=256 * z=512
 auto-tuner: block-size:             t=4 * x=64 * y=64 * z=16
 auto-tuner: micro-block-size:       t=4 * x=64 * y=64 * z=16

Running 1 step(s) for warm-up...
  Done in 0.031428 secs.

Performance stats of 50th-percentile trial:
 mid-num-steps-done:               96
 mid-elapsed-time (sec):           3.200000
 mid-throughput (num-points/sec):  4026531840.000000
YASK DONE.
"""
"""Lines of an output of YASK. They are printed by src/kernel/yask_main.cpp and src/kernel/lib/setup.cpp."""


def peers_job(name: str = "heat2", steps: int = 96) -> peers.Job:
    return peers.Job(peers.KNOWN[name], (1024, 256, 512), steps, 2)


def program(path: Path, text: str) -> Path:
    """Make a program that prints `text`."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{text}END\n")
    path.chmod(0o755)
    return path


def test_the_output_of_girih_is_read(tmp_path: Path) -> None:
    """Checks the command for Girih, and the figures from Girih's output: the time, the tuned sizes, and the number of
    steps. Girih rounds the number of steps up. If the command has the tuned sizes, Girih must not tune. An output for
    another grid or another precision must be refused."""
    girih, job = peers.Girih(program(tmp_path / "mwd_kernel", "")), peers_job()
    timing = girih.parse(GIRIH_OUTPUT, job)
    assert (timing.seconds, timing.steps) == (2.630668, 98)
    assert timing.tuned == {
        "mwd-type": 2, "thread-group-size": 2, "t-dim": 7, "num-wavefronts": 4, "thx": 1, "thy": 1, "thz": 2,
    }  # fmt: skip
    words = " ".join(girih.command(job, timing.tuned)[1:])
    assert "--target-ts 2 --target-kernel 1 --n-tests 1" in words and "--nx 512 --ny 256 --nz 1024 --nt 96" in words
    assert "--mwd-type 2 --thread-group-size 2 --t-dim 7 --num-wavefronts 4 --thx 1 --thy 1 --thz 2" in words
    for old, new, message in (
        ("nz:1024", "nz:512", "the grid"),
        ("Precision: SP", "Precision: DP", "precision DP"),
        ("OpenMP Threads: 2", "OpenMP Threads: 1", "threads 1"),
        ("COMPLETED", "FAILED", "COMPLETED"),
    ):
        with pytest.raises(StorageError, match=message):
            girih.parse(GIRIH_OUTPUT.replace(old, new), job)


def test_the_output_of_yask_is_read(tmp_path: Path) -> None:
    """Checks the command for YASK, and the figures from YASK's output: the time and the tuned sizes. The axis x of YASK
    is the axis z of Outcrop. If the command has no sizes, YASK tunes. An output for another radius or for float64 must
    be refused."""
    kernel = program(tmp_path / "yask_kernel.3axis.avx2.exe", "")
    yask, job = peers.Yask(tmp_path), peers_job()
    timing = yask.parse(YASK_OUTPUT, job)
    assert (timing.seconds, timing.steps, timing.version) == (3.2, 96, "4.05.04")
    assert timing.tuned == {"bt": 4, "bx": 64, "by": 64, "bz": 16}
    words = yask.command(job, timing.tuned)
    assert words[0] == str(kernel) and "-no-pre_auto_tune" in words
    assert "-gx 1024 -gy 256 -gz 512" in " ".join(words) and "-bt 4 -bx 64 -by 64 -bz 16" in " ".join(words)
    assert "-no-pre_auto_tune" not in yask.command(job, {"bt": 4})
    assert yask.covers(peers.KNOWN["heat2"]) and not yask.covers(peers.KNOWN["acoustic8"])
    for old, new, message in (
        ("radius 1", "radius 4", "radius 4"),
        ("4 Bytes", "8 Bytes", "element 8"),
        ("x=1024", "x=512", "the grid"),
        ("YASK DONE", "", "YASK DONE"),
    ):
        with pytest.raises(StorageError, match=message):
            yask.parse(YASK_OUTPUT.replace(old, new), job)


def test_small_peers_bench_compares_the_same_computation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that the results of Devito and Outcrop are equal up to rounding, and that rates do not count the rim. The
    output must have one line for each program whose path is not given. At the end, the files must be removed."""
    pytest.importorskip("devito")
    target, names = tmp_path / "figures.json", ["heat2", "acoustic8"]
    given = ["bench", "peers", "--small", "-d", str(tmp_path / "new"), "--json", str(target), "--only", ",".join(names)]
    affinity = os.sched_getaffinity(0)
    assert call([*given, "-n", "40", "36", "32", "-t", "5", "--turns", "2", "--threads", "1"]) == 0
    said = capsys.readouterr().out
    assert "Girih is absent; --girih PATH" in said and "YASK is absent; --yask PATH" in said
    figures = json.loads(target.read_text())
    assert [one["stencil"] for one in figures["stencils"]] == names
    for one in figures["stencils"]:
        assert (one["cells"], one["threads"]) == ([32, 36, 40], 1)
        assert 0 < one["largest_difference_from_devito"] < 1e-5
        assert set(one["seconds"]) == {"Outcrop", "Devito"}
        for name, every in one["cells_per_second"].items():
            assert every == pytest.approx([32 * 36 * 40 * 5 / seconds for seconds in one["seconds"][name]])
            assert len(every) == 2 and one["setup_seconds"][name] > 0
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]
    assert os.sched_getaffinity(0) == affinity and "OMP_PROC_BIND" not in os.environ


def test_peers_bench_measures_other_programs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs the benchmark without Devito, and with programs that print outputs of Girih and YASK. The rate of Girih must
    count the steps that Girih has computed. If a program fails, has another radius, or takes too much time with each
    choice of its options, a line gives the reason, and the other programs are measured."""
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "devito" else find_spec(name))
    given = ["bench", "peers", "--small", "-d", str(tmp_path / "new"), "--json", str(tmp_path / "figures.json")]
    given += ["--only", "heat2", "-n", "40", "36", "32", "--threads", "1"]
    printed = GIRIH_OUTPUT.replace("nx:512    ny:256    nz:1024", "nx:40 ny:36 nz:32").replace(
        "Threads: 2", "Threads: 1"
    )
    girih = program(tmp_path / "mwd_kernel", printed)
    printed = YASK_OUTPUT.replace("x=1024 * y=256 * z=512", "x=32 * y=36 * z=40").replace("used:   2", "used:   1")
    program(tmp_path / "bin" / "yask_kernel.3axis.avx2.exe", printed)
    assert call([*given, "--girih", str(girih), "--yask", str(tmp_path / "bin")]) == 0
    said = capsys.readouterr().out
    assert "Devito is absent" in said and "| `heat2` | 40 x 36 x 32 | Girih | 98 |" in said
    (one,) = json.loads((tmp_path / "figures.json").read_text())["stencils"]
    assert one["cells_per_second"]["Girih"] == pytest.approx([32 * 36 * 40 * 98 / 2.630668])
    assert one["cells_per_second"]["YASK"] == pytest.approx([32 * 36 * 40 * 96 / 3.2])
    assert one["tuned"]["YASK"] == {"bt": 4, "bx": 64, "by": 64, "bz": 16}
    assert one["largest_difference_from_devito"] is None
    girih.write_text("#!/bin/sh\necho 'ERROR: no diamond' >&2\nexit 1\n")
    assert call([*given, "--girih", str(girih), "--yask", str(tmp_path / "bin")]) == 0
    assert "Girih is left out: Girih failed on heat2: ERROR: no diamond" in capsys.readouterr().out
    (one,) = json.loads((tmp_path / "figures.json").read_text())["stencils"]
    assert set(one["cells_per_second"]) == set(one["setup_seconds"]) == {"Outcrop", "YASK"}
    assert one["left_out"] == {"Girih": "Girih failed on heat2: ERROR: no diamond"}
    program(tmp_path / "bin" / "yask_kernel.3axis.avx2.exe", printed.replace("radius 1", "radius 4"))
    assert call([*given, "--yask", str(tmp_path / "bin")]) == 0
    assert "YASK is left out: YASK has radius 4, but 1 is needed" in capsys.readouterr().out
    girih.write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(peers, "MAX_TUNING_SECONDS", 0.2)
    monkeypatch.setattr(peers, "MAX_SECONDS", 0.3)
    assert call([*given, "--girih", str(girih)]) == 0
    told = capsys.readouterr().out
    assert "Girih tunes for more than 0.2 s with mwd-type=0 thread-group-size=1" in told
    assert "Girih is left out: Girih needs more than 0.3 s for heat2" in told


def test_peers_bench_refuses_wrong_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that wrong arguments are refused before any file is made. Examples are a path at which the program does
    not exist, a folder with two kernels of one stencil, and a program that lacks the chosen stencil."""
    kernels = tmp_path / "bin"
    for arch in ("avx2", "avx512"):
        program(kernels / f"yask_kernel.3axis.{arch}.exe", "")
    girih = program(tmp_path / "mwd_kernel", "")
    before = sorted(tmp_path.rglob("*"))
    for words, message in (
        (["--only", "maxwell"], "heat2"),
        (["--girih", str(tmp_path / "nothing")], "mwd_kernel"),
        (["--yask", str(tmp_path)], "yask_kernel.3axis"),
        (["--yask", str(kernels)], "2 kernels of 3axis"),
        (["--girih", str(girih), "--only", "heat4"], "Girih has none of the stencils heat4"),
        (["--threads", "100000"], "--threads"),
        (["-n", "100000", "100000", "1000"], "-n"),
    ):
        assert call(["bench", "peers", "--small", "-d", str(tmp_path / "new"), *words]) == 2
        assert message in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("core -n 64 64 4", "heat7 in float64, with half of the planes, updates no cell of a grid of 64 x 64 x 2"),
        ("stencils --only acoustic8 -n 8 8 8", "acoustic8 updates no cell of a grid of 8 x 8 x 8 cells; give at least"),
        ("stencils --only sharpen -n 20 2 4", "give at least 17 x 17 cells"),
        ("adjoint -n 24 24 1 --only heat2", "heat2 updates no cell of a grid of 24 x 24 x 1 cells"),
    ],
)
def test_a_grid_that_is_only_a_rim_is_refused(
    words: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that the error has one line, and that nothing is measured."""
    assert call(["bench", *words.split(), "--small", "-d", str(tmp_path / "new")]) == 2
    output = capsys.readouterr()
    assert message in output.err and output.err.count("\n") == 1 and not output.out
    assert not list(tmp_path.iterdir())
