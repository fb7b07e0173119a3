"""Check that the examples run and draw pictures, and compare their results with exact answers."""

import re
import runpy
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outcrop as oc
from mpi_programs import mpirun
from oracle import advance
from outcrop.errors import InputError

EXAMPLES = Path(__file__).parent.parent / "examples"


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Execute the script `name`, and return a dictionary with its definitions. The script can import the other
    examples."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


def printed(
    name: str, directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *options: object
) -> str:
    """Run an example in `directory` and return its output. The example must write its picture to this directory."""
    load(name, monkeypatch)["main"](["-d", str(directory), *map(str, options)])
    picture = directory / f"{name}.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    return capsys.readouterr().out


def numbers(pattern: str, text: str) -> list[float]:
    """Return the numbers that a pattern finds in the text. At least one number must be found."""
    found = [float(number) for number in re.findall(pattern, text)]
    assert found, f"{pattern!r} is not in: {text}"
    return found


@pytest.mark.parametrize(
    ("name", "words", "message"),
    [
        ("maxwell", ["--memory", "1KiB"], r"maxwell.py: .*at least \d+ KiB are needed"),
        ("marmousi", ["--small", "--memory", "90KiB"], r"marmousi.py: .*at least \d+ KiB are needed"),
        ("gray_scott", ["--size", "0"], "--size: '0' must be a whole number of at least 16"),
    ],
)
def test_what_cannot_be_is_one_line(name: str, words: list[str], message: str, tmp_path: Path) -> None:
    """Checks that wrong options of an example give an error of one line, without a traceback."""
    program = [sys.executable, str(EXAMPLES / f"{name}.py"), "-d", str(tmp_path / "out"), *words]
    done = subprocess.run(program, capture_output=True, text=True)
    assert done.returncode
    assert re.search(message, done.stderr.splitlines()[-1])
    assert "Traceback" not in done.stderr


def after_heat(volume: np.ndarray, steps: int) -> np.ndarray:
    """Return the result of the oracle for the heat equation with radius 1. NumPy computes 8 planes at a time. The
    temporary arrays then stay in the cache, which makes NumPy three times as fast."""
    stencil, depth = oc.stencils.heat(ndim=3), 8
    for _ in range(steps):
        starts = range(0, len(volume), depth)
        parts = [advance(stencil, volume[max(z - 1, 0) : z + depth + 1], {}, 1)[min(z, 1) :][:depth] for z in starts]
        volume = np.concatenate(parts)
    return volume


def test_brain_is_blurred_to_the_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks 16 steps within 8 MiB, on a grid of irregular shape, with uint8 input. The result must be bitwise
    identical to NumPy's result. The example must write two different pictures.
    """
    example = load("brain", monkeypatch)
    example["main"](["-d", str(tmp_path), "--steps", "16"])
    expected = after_heat(example["load_volume"]().astype("float32"), 16)
    np.testing.assert_array_equal(oc.open(tmp_path / "run.oc")["u"][:], expected)
    before, after = (tmp_path / f"{name}.png" for name in ("before", "after"))
    assert before.read_bytes() != after.read_bytes()


def test_spots_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks the Gray-Scott example: both species stay between 0 and 1, and v does not vanish."""
    text = printed("gray_scott", tmp_path, monkeypatch, capsys, "--size", 96, "--steps", 1200)
    assert "within 0 and 1: True" in text
    assert (oc.open(tmp_path / "run.oc")["v"][:] > 0.2).mean() > 0.02


def test_second_order_carries_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that both schemes conserve the sum of all values while the pulse travels once around the box. Lax-Wendroff
    must have the smaller error.
    """
    text = printed("advection", tmp_path, monkeypatch, capsys, "--size", 64, "--steps", 128)
    upwind, lax = numbers(r"mean error ([\d.]+)", text)
    assert lax < 0.7 * upwind
    assert max(map(abs, numbers(r"sum kept to (\S+)", text))) < 1e-12


def test_stream_lines_are_the_solution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that the final error of the iteration is close to the error that theory predicts for the slowest wave."""
    text = printed("stream_function", tmp_path, monkeypatch, capsys, "--size", 40, "--steps", 3000)
    error, expected = numbers(r"solution (\S+);", text) + numbers(r"left with (\S+) of", text)
    assert 0.1 * expected < error < expected


def test_sharpened_slice_is_numpys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that a convolution with 289 taps and mirrored sides equals NumPy's sum up to the rounding of float32."""
    text = printed("sharpen", tmp_path, monkeypatch, capsys, "--size", 70)
    error, largest = numbers(r"to NumPy (\S+) of", text) + numbers(r"of (\d+)\n", text)
    assert error < 1e-5 * largest


def test_light_keeps_its_energy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that the energy of the pulse is the same before the pulse enters the glass and after it has left the
    glass."""
    text = printed("maxwell", tmp_path, monkeypatch, capsys, "--size", 160, "--steps", 160)
    assert abs(numbers(r"changed by (\S+) of", text)[0]) < 1e-5


def test_elastic_fronts_are_where_theory_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Compares the distances that P and S waves have travelled with the distances that their speeds predict."""
    text = printed("elastic", tmp_path, monkeypatch, capsys, "--size", 240, "--steps", 200)
    assert max(map(abs, numbers(r"expected \((\S+)%\)", text))) < 8


def test_fluid_keeps_its_mass_and_viscosity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that vortices decay at the rate that tau predicts, and that mass is conserved."""
    text = printed("lattice_boltzmann", tmp_path, monkeypatch, capsys, "--size", 64, "--steps", 200)
    assert abs(numbers(r"theory \S+ \((\S+)%\)", text)[0]) < 0.5
    assert abs(numbers(r"mass changed by (\S+) of", text)[0]) < 1e-5


def test_sensitivity_is_the_finite_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that the sensitivity of the direct-adjoint example equals a finite difference and the adjoint of the NumPy
    solver. The bits of the sensitivity must not depend on the place of the states, and no states may remain at the end.
    """
    text = printed("direct_adjoint", tmp_path, monkeypatch, capsys, "--size", 32, "--slow", "1GB")
    adjoint, difference = numbers(r"adjoint (\S+), finite", text) + numbers(r"finite difference (\S+)", text)
    assert adjoint > 0 and adjoint == pytest.approx(difference, rel=1e-5)
    assert numbers(r"NumPy solver: (\S+) of", text)[0] < 1e-10
    assert "same bits: True" in text
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"direct_adjoint.png", "run.oc", "run-adjoint.oc", "changed.oc"}
    with pytest.raises(InputError, match="keeps no history"):
        assert oc.open(tmp_path / "run.oc").history


def test_slow_tier_limits_the_bandwidth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that the slow tier of the direct-adjoint example limits the bandwidth. The shortest possible time of a run
    is the bytes of its states divided by this bandwidth. States that still wait in buffers at the end do not count."""
    example = load("direct_adjoint", monkeypatch)
    lake = example["make_lake"](32, 20)
    timed = example["run_solver"](lake, tmp_path, None, 1_000_000)
    least = (lake.steps - example["BUFFERS"]) * lake.algae.nbytes / 1_000_000
    assert min(timed.forward, timed.adjoint) >= least


def test_a_shot_over_marmousi_arrives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks the Marmousi example with cells of 50 m. The direct wave arrives at the expected time. A second call
    computes no further steps."""
    example = load("marmousi", monkeypatch)
    options = ["-d", str(tmp_path), "--spacing", "50", "--width", "600", "--sponge", "3"]
    options += ["--seconds", "1.5", "--memory", "3MiB"]
    example["main"](options)
    assert capsys.readouterr().out.count("acoustic8_sponge") == 1
    for name in ("seismogram", "snapshots"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    survey, sim = example["parse"](options)[1], oc.open(tmp_path / "run.oc")
    distances = abs(survey.line - survey.shot[0])
    for place in (300.0, 900.0):
        trace = sim.traces["line"][:, int(np.argmin(abs(distances - place)))]
        peak = abs(trace).argmax() / len(trace) * survey.seconds
        assert abs(peak - (place / 1500 + 1.2 / survey.frequency)) < 0.7 / survey.frequency
        assert abs(trace[: int(len(trace) * (place / 4700) / survey.seconds)]).max() < 1e-3 * abs(trace).max()
    example["main"](options)
    assert "acoustic8_sponge" not in capsys.readouterr().out
    with pytest.raises(InputError, match=r"holds a run of \(241, 13, 61\) cells, not \(201, 11, 51\); choose"):
        example["main"]([*options, "--spacing", "60"])


def test_migration_shows_the_reflectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that the image of two shots has the reflectors of the true model, with their signs. A second call uses the
    stored shots. A stored shot of another survey is refused."""
    words = ("--every", 8, "--shots", 2)
    text = printed("rtm", tmp_path, monkeypatch, capsys, *words)
    assert text.count("is complete") == 2
    assert numbers(r"the reflectors: (\S+)", text)[0] > 0.3
    assert "is complete" not in printed("rtm", tmp_path, monkeypatch, capsys, *words)
    with pytest.raises(InputError, match=r"is a shot of another survey; choose another place with -d"):
        printed("rtm", tmp_path, monkeypatch, capsys, "--every", 7, "--shots", 2)


def test_inversion_recovers_the_bodies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that two iterations with two shots reduce the misfit to less than a quarter, and recover the bodies at
    their true places."""
    words = ("--size", 48, "--shots", 2, "--steps", 2)
    text = printed("fwi", tmp_path, monkeypatch, capsys, *words)
    misfits = numbers(r"misfit (\S+) of", text)
    assert len(misfits) == 2 and misfits[-1] < 0.25
    assert numbers(r"recovered bodies: (\S+)", text)[0] > 0.6


def test_sharpening_on_a_tier_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that the tier and the memory change no bit of the result, and that files are removed at the end."""
    load("sharpen_on_tiers", monkeypatch)["main"](
        ["-d", str(tmp_path), "--size", "128", "--turns", "1", "--settle", "0"]
    )
    text = capsys.readouterr().out
    assert "same bits: True" in text
    assert numbers(r"largest difference (\S+)", text)[0] < 1e-3
    rows = numbers(r"  +[\d.]+ s +[\d.]+ +([\d.]+) KiB", text)
    assert rows[:3] == [260, 130, 130], "four arrays in DRAM, or two"
    assert not list(tmp_path.iterdir())


def test_stream_function_on_a_tier_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that all kinds of persistence give the same bits, and that each array has the expected commits."""
    example = load("stream_function_on_tiers", monkeypatch)
    given = Namespace(size=64, steps=5, every=2, memory="16MiB", directory=tmp_path)
    found = {name: variant.run(given) for name, variant in example["VARIANTS"].items() if name != "partial"}
    with oc.open_array(tmp_path / "odd") as odd, oc.open_array(tmp_path / "even") as even:
        assert (odd.steps, even.steps) == (3, 2), "each step was committed, by the array it wrote"
        assert example["sample"](odd[1:-1]) == found["dram"].result
    found["partial"] = example["VARIANTS"]["partial"].run(given)
    with oc.open_array(tmp_path / "even") as even:
        assert (even.generation, even.steps) == (2, 2)
    assert all(one.result == found["dram"].result for one in found.values())
    assert [found[name].needed_bytes for name in ("dram", "none", "partial", "full")] == [2 * 66 * 512, 0, 66 * 512, 0]
    assert "at least" in example["limit"](given)


def test_stream_function_goes_until_it_changes_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that all variants need the same number of steps, and that the printed change equals the change that NumPy
    computes."""
    example = load("stream_function_on_tiers", monkeypatch)
    words = ["--size", "64", "--until", "2e-2", "--every", "2", "--turns", "1", "--settle", "0", "--memory", "16MiB"]
    example["main"](["-d", str(tmp_path), *words])
    text = capsys.readouterr().out
    (steps,) = numbers(r"float64, (\d+) steps", text)
    assert "same bits: True" in text and "full persistence: ‖Δψ‖" in text and "commits of" in text
    old, changes = example["initial"](64)[1:-1], []
    for _ in range(int(steps)):
        psi = old.copy()
        psi[1:-1, 1:-1] = (old[1:-1, :-2] + old[1:-1, 2:] + old[:-2, 1:-1] + old[2:, 1:-1]) / 4
        changes.append(float(np.linalg.norm(psi - old) / np.linalg.norm(psi)))
        old = psi
    assert changes[-1] <= 2e-2 < min(changes[:-1])
    assert numbers(r"both arrays in DRAM: .* step (\S+)", text)[0] == pytest.approx(changes[-1], rel=1e-2)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["sharpen_on_tiers", "stream_function_on_tiers"])
@pytest.mark.parametrize(
    ("option", "value", "right"),
    [
        ("--size", "100", "must be a multiple of 64"),
        ("--turns", "0", "must be a whole number of at least 1"),
        ("--settle", "-1", "must be a number of seconds"),
        ("--memory", "much", "is not understood; write for example"),
        ("-d", f"{__file__}/here", "is a file"),
    ],
)
def test_nonsense_on_tiers_is_refused(
    name: str, option: str, value: str, right: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that a wrong option is refused before any file is made. The error gives the correct form."""
    with pytest.raises(SystemExit) as ended:
        load(name, monkeypatch)["main"]([option, value])
    assert ended.value.code == 2 and right in capsys.readouterr().err


@pytest.mark.parametrize(("option", "value"), [("--every", "3"), ("--steps", "0"), ("--until", "0")])
def test_nonsense_of_the_iteration_is_refused(
    option: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        load("stream_function_on_tiers", monkeypatch)["main"]([option, value])
    assert ended.value.code == 2 and f"{value!r} must be" in capsys.readouterr().err


def test_trouble_on_tiers_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that an error in a child process also gives a message of one line. Here the memory is too small for any
    plan."""
    words = ["-d", str(tmp_path), "--size", "128", "--turns", "1", "--settle", "0", "--memory", "1KiB"]
    with pytest.raises(SystemExit, match=r"^stream_function_on_tiers.py: .*KiB[^\n]*$"):
        load("stream_function_on_tiers", monkeypatch)["main"](words)
    assert not list(tmp_path.iterdir())


@pytest.mark.mpi
def test_ranks_have_the_result_of_one_process(tmp_path: Path) -> None:
    """Checks that the example prints the same checksum with one process and with two ranks, and draws its picture."""
    found = []
    for ranks in (1, 2):
        words = ["--size", "32", "--steps", "9", "-d", str(tmp_path / str(ranks))]
        done = mpirun(ranks, sys.executable, str(EXAMPLES / "ranks.py"), *words)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / str(ranks) / "ranks.png").read_bytes().startswith(b"\x89PNG")
        found.append(re.findall(rf"{ranks} ranks: checksum of plane 8 is ([0-9a-f]{{8}})", done.stdout))
    assert found[0] == found[1] and len(found[0]) == 1
