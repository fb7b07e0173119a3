"""Check that each mistake on the command line gives a one-line message and exit code 2, and changes no file."""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import outcrop as oc
from oracle import advance
from outcrop.cli.main import call
from outcrop.cli.options import parse_parameters
from outcrop.cli.picture import parse_limits, parse_slices
from outcrop.errors import InputError

GOOD = ["run", "heat7", "-n", "20", "12", "10", "-t", "6", "-d", "run.oc", "--memory", "128KiB"]

REPORT_KEYS = {
    "stencil", "shape", "dtype", "steps", "scheme", "io", "threads", "memory_budget_bytes", "memory_peak_bytes",
    "seconds", "cell_updates_per_second", "bytes_read", "bytes_written", "seconds_read_wait", "seconds_write_wait",
    "seconds_update", "seconds_commit", "plan", "predicted",
}  # fmt: skip


@pytest.fixture(autouse=True)
def in_a_folder_of_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a current directory that has files with various errors."""
    monkeypatch.chdir(tmp_path)
    volume = np.ones((10, 12, 20), dtype="float32")
    np.save("volume.npy", volume)
    volume[3, 4, 5] = np.nan
    np.save("nan.npy", volume)
    np.save("small.npy", volume[:-1])
    np.save("flat.npy", volume[0])
    np.save("complex.npy", volume.astype("complex64"))
    Path("cut.npy").write_bytes(Path("volume.npy").read_bytes()[:-1])
    Path("text.txt").write_text("not an array")
    Path("foreign").mkdir()
    Path("foreign/notes.txt").write_text("precious")


def tree(folder: Path) -> dict[str, bytes | str]:
    """Return a dictionary from each path below a folder to its content."""
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        found[str(path)] = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else "folder"
    return found


def changed(**options: str | None) -> list[str]:
    """Return GOOD with some options replaced (`n="1 2 3"`), added, or removed (None)."""
    words = list(GOOD)
    for name, value in options.items():
        option = f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"
        if option in words:
            place = words.index(option)
            del words[place : place + (4 if name == "n" else 2)]
        if value is not None:
            words += [option, *value.split()]
    return words


REFUSALS = {
    "unknown stencil": (["run", "heat9", *GOOD[2:]], "heat9.*heat7"),
    "unknown command": (["rn"], "rn.*run"),
    "unknown option": ([*GOOD, "--fast"], "--fast"),
    "two sizes": (changed(n="20 12"), "-n 20 12: heat7.*three axes.*-n NX NY NZ"),
    "four sizes": (changed(n="20 12 10 5"), "5"),
    "sizes that are none": (changed(n="a 12 10"), "a"),
    "no size": (changed(n=None), "-n"),
    "zero size": (changed(n="20 0 10"), "20 0 10.*at least 1"),
    "negative size": (changed(n="20 -3 10"), "20 -3 10.*at least 1"),
    "no steps": (changed(t=None), "steps"),
    "zero steps": (changed(t="0"), "steps 0.*at least 1"),
    "negative steps": (changed(t="-5"), "steps -5.*at least 1"),
    "no directory": (changed(d=None), "directory"),
    "budget too small": (changed(memory="1KiB"), "1 KiB.*at least \\d+ KiB"),
    "budget not a size": (changed(memory="much"), "much.*512MiB"),
    "budget zero": (changed(memory="0"), "0.*positive"),
    "dtype": (changed(dtype="int8"), "int8.*float32"),
    "threads": (changed(threads="0"), "threads 0.*at least 1"),
    "scheme": (changed(scheme="magic"), "magic.*wavefront"),
    "io": (changed(io="magic"), "magic.*threads"),
    "boundary": (changed(boundary="open"), "open.*mirror"),
    "boundary of an axis there is not": (changed(boundary="w=mirror"), "'w'.*z, y, x"),
    "boundary that wraps on one side": (changed(boundary="z=periodic:fixed"), "axis z.*both sides"),
    "parameter unknown": (changed(param="c9=1"), "c9.*c0"),
    "parameter without value": (changed(param="c0"), "c0.*NAME=VALUE"),
    "parameter not a number": (changed(param="c0=x"), "x.*not a number"),
    "parameter infinite": (changed(param="c0=inf"), "inf.*finite"),
    "init unknown": (changed(init="noise"), "noise.*gaussian"),
    "init missing": (changed(init="gone.npy"), "gone.npy"),
    "init of another shape": (changed(init="small.npy"), r"small.npy.*\(9, 12, 20\).*-n 20 12 10"),
    "init with two axes": (changed(init="flat.npy", n=None), "flat.npy.*three axes"),
    "init complex": (changed(init="complex.npy"), "complex64.*real"),
    "init of a field there is not": (changed(init="m=zeros"), r'init m=.zeros.: heat7 has no field \'m\'.*u'),
    "steps that are not whole": (changed(t="1.5"), '-t 1.5: write a whole number; see outcrop run --help'),
    "frames that are no number": (["plot", "x.npy", "--fps=fast"], '--fps fast: write a number; see outcrop plot'),
    "init given twice": ([*changed(init="zeros"), "--init", "u=zeros"], "u is given twice"),
    "init cut short": (changed(init="cut.npy"), "cut.npy.*short"),
    "init not an array": (changed(init="text.txt"), "text.txt"),
    "init not zarr": (changed(init="foreign"), "foreign"),
    "init not finite": ([*changed(init="nan.npy"), "--check-finite"], "z=3, y=4, x=5"),
    "seed": (changed(init="random:x"), "seed"),
    "directory holds something else": (changed(d="foreign"), "foreign.*notes.txt"),
    "force never deletes what is foreign": ([*changed(d="foreign"), "--force"], "foreign.*notes.txt"),
    "directory is a file": (changed(d="text.txt"), "text.txt"),
    "directory below a file": (changed(d="text.txt/run.oc"), "text.txt"),
    "directory given twice": ([*GOOD, "-d", "run.oc"], "twice"),
    "no space": (changed(n="1024 1024 100000000", memory="64MiB"), "no space.*needs.*free"),
    "report below a file": (changed(json="text.txt/report.json"), "text.txt/report.json.*Not a directory"),
    "plan budget too small": (["plan", *changed(memory="1KiB")[1:]], "at least \\d+ KiB"),
    "resume of nothing": (["resume", "gone"], "gone"),
    "info of what is not there": (["info", "gone"], "gone holds no Outcrop run: there is no such directory"),
    "info of a file": (["info", "text.txt"], "text.txt holds no Outcrop run: it is not a directory"),
    "info of something else": (["info", "foreign"], "foreign.*manifest"),
    "verify of nothing": (["verify", "gone"], "gone"),
    "plot of nothing": (["plot", "gone", "-o", "x.png"], "gone"),
    "plot of something else": (["plot", "text.txt", "-o", "x.png"], "text.txt"),
    "benchmark": (["bench", "speed"], "speed.*core"),
}


@pytest.mark.parametrize(("words", "message"), REFUSALS.values(), ids=REFUSALS.keys())
def test_bad_input_is_one_line_and_changes_nothing(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that wrong input is refused. Each message gives the wrong value and the correct form. No file is created
    or changed."""
    before = tree(tmp_path)
    assert call(words) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert output.err.startswith("outcrop: ")
    assert re.search(message, output.err), output.err
    assert tree(tmp_path) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_no_permission_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that a folder without write permission is refused, and that the error names this folder."""
    Path("closed").mkdir(mode=0o500)
    assert call(changed(d="closed/run.oc")) == 2
    assert "closed" in capsys.readouterr().err


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["--version"]) == 0
    assert capsys.readouterr().out == f"outcrop {oc.__version__}\n"


def test_a_run_from_first_to_last_command(capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that the commands plan, run, info, verify, plot and resume agree with each other and with the oracle."""
    assert call(["plan", *changed(init="volume.npy", n=None)[1:]]) == 0
    plan = capsys.readouterr().out
    assert not Path("run.oc").exists()
    words = changed(init="volume.npy", n=None, param="c0=0.5")
    assert call(words) == 2
    assert "unstable" in capsys.readouterr().err  # the stencil with c0 = 0.5 and c1 = 0.1 is unstable
    assert not Path("run.oc").exists()
    assert call([*words, "--unstable", "--json", "report.json"]) == 0
    table = capsys.readouterr().out
    report = json.loads(Path("report.json").read_text())
    assert report.keys() >= REPORT_KEYS
    sums = {"seconds", "bytes_read", "bytes_written", "bytes_snapshots", "memory_bytes"}
    parts = {"seconds_update", "seconds_read", "seconds_write", "seconds_transfer"}
    assert report["predicted"].keys() == {*sums, *parts, "seconds_repeated", "storage_factor", "assumed", "bytes_sent"}
    assert (report["bytes_read"], report["bytes_written"]) == (
        report["predicted"]["bytes_read"],
        report["predicted"]["bytes_written"],
    )
    assert "unstable" in table
    assert "read" in plan and "measured" in table

    stencil = oc.stencils.heat7()
    expected = advance(stencil, np.load("volume.npy"), {"c0": 0.5}, 6)
    np.testing.assert_array_equal(oc.open("run.oc")["u"][...], expected)

    assert call(["resume", "run.oc"]) == 0
    assert "finished at step 6" in capsys.readouterr().out
    assert call(["resume", "run.oc", "-t", "3", "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    np.testing.assert_array_equal(oc.open("run.oc")["u"][...], advance(stencil, expected, {"c0": 0.5}, 3))

    assert call(["info", "run.oc"]) == 0
    assert "step 9, finished" in capsys.readouterr().out
    assert call(["verify", "run.oc"]) == 0
    assert "all 11 checksums" in capsys.readouterr().out
    for where in ("run.oc", "volume.npy"):
        for place in ("z=0", "y=11", "x=19"):
            assert call(["plot", where, "--slice", place, "-o", "slice.png"]) == 0
            assert Path("slice.png").read_bytes().startswith(b"\x89PNG")
            Path("slice.png").unlink()


def test_resume_tells_which_steps_it_computes(capsys: pytest.CaptureFixture[str]) -> None:
    """Checks the text of `resume -t` for an interrupted run, and for the same run after its new steps."""

    def stop(step: int, fields: object) -> None:
        raise RuntimeError("stop")

    sim = oc.Simulation(
        "heat7", (12, 10, 20), directory="run.oc", memory="1MiB", sizes={"bt": 2}, snapshots=oc.Snapshots(2)
    )
    with pytest.raises(RuntimeError, match="stop"):
        sim.run(400, "none", stop)
    first = oc.open("run.oc").step
    assert 0 < first < 400
    asked = "; an earlier command asked for step 400"
    for steps, text in (
        (2, f"from step {first} to step {first + 2}{asked}, and steps after {first + 2} are no longer requested"),
        (1, ""),
    ):
        assert call(["resume", "run.oc", "-t", str(steps)]) == 0
        out = capsys.readouterr().out
        assert f"continuing {text}\n" in out if text else "continuing" not in out
    assert oc.open("run.oc").remaining_steps == 0 and oc.open("run.oc").step == first + 3


def test_a_run_is_only_replaced_by_force(capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that only --force replaces a run. Without --force, the message names this option."""
    assert call([*GOOD, "--quiet"]) == 0
    before = tree(Path("run.oc"))
    assert call(GOOD) == 2
    assert "--force" in capsys.readouterr().err
    assert call([*changed(memory="1KiB"), "--force"]) == 2
    assert tree(Path("run.oc")) == before
    assert call([*changed(t="2"), "--quiet", "--force"]) == 0
    assert oc.open("run.oc").step == 2


def test_a_run_that_is_in_use_is_not_offered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that a new run in the directory of a run in progress is refused because the directory is in use. The
    message must not offer to continue or to replace the run, because both are impossible now.
    """
    words = ["run", "heat7", "-n", "8", "8", "8", "-t", "2", "-d", str(tmp_path / "run.oc"), "--quiet"]
    assert call(words) == 0
    handle = os.open(tmp_path / "run.oc", os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    assert call(words) == 2
    os.close(handle)
    said = capsys.readouterr().err
    assert "run.oc is in use by another process" in said and "--force" not in said
    assert call(words) == 2 and "replace it with --force" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_stop_and_say_how_to_go_on(tmp_path: Path, number: int) -> None:
    """Checks that Ctrl-C and SIGTERM end a run with exit code 130 and a message of one line. Batch systems send
    SIGTERM, and may start programs from a shell that ignores Ctrl-C. The test of SIGTERM uses such a shell.
    """
    words = changed(n="96 96 96", t="4000", memory="600KiB", init="random:2")
    ignoring = f"trap '' INT; exec {sys.executable} -m outcrop.cli.main" if number == signal.SIGTERM else ""
    command = ["sh", "-c", f'{ignoring} "$@"', "sh"] if ignoring else [sys.executable, "-m", "outcrop.cli.main"]
    process = subprocess.Popen([*command, *words], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if json.loads(Path("run.oc/manifest.json").read_text())["step"] > 0:
                break
        except (OSError, ValueError):
            pass
        time.sleep(0.01)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "go on with: outcrop resume run.oc" in errors
    assert errors.count("\n") == 1
    sim = oc.open("run.oc")
    assert 0 < sim.step < 4000
    assert sim.remaining_steps == 4000 - sim.step


def test_looking_at_a_run_loads_no_more_than_it_needs() -> None:
    """Checks that `run` imports neither zarr nor packages for plotting, so that a run needs little memory beyond its
    budget."""
    program = (
        "import sys; from outcrop.cli.main import call; code = call(sys.argv[1:]);"
        "print(code, sorted({'zarr', 'xarray', 'matplotlib', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program, *GOOD, "--quiet"], capture_output=True, text=True, timeout=60)
    assert done.stdout == "0 []\n", done.stdout + done.stderr


def test_parameters_and_slices_are_read_exactly() -> None:
    """Checks that --param, --slice and --limits read correct texts exactly, and refuse all other texts."""
    assert parse_parameters(["c0=0.4", "c1 = 1e-1"]) == {"c0": 0.4, "c1": 0.1}
    sizes = {"z": 8, "y": 9, "x": 10}
    assert parse_slices("x=9", sizes) == [("x", 9)]
    assert parse_slices("Z=0, 7", sizes) == [("z", 0), ("z", 7)]
    for text in ("x=10", "x=-1", "w=1", "x", "x=", "=1", "x=1.5", "x=1,", "x=1,10"):
        with pytest.raises(InputError):
            parse_slices(text, sizes)
    assert parse_limits(None) is None and parse_limits("-1e-3,2") == (-1e-3, 2.0)
    for text in ("1", "1,1", "2,1", "a,b", "1,2,3", "nan,1", "0,inf", ""):
        with pytest.raises(InputError):
            parse_limits(text)
    with pytest.raises(InputError, match="twice"):
        parse_parameters(["c0=1", "c0=2"])


def test_plan_explains_its_choice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that `plan --explain` lists the chosen candidate first, and gives a reason for each rejected candidate. No
    run is made.
    """
    target = tmp_path / "run.oc"
    size = ["-n", "64", "64", "300", "-t", "40", "--memory", "1MiB"]
    assert call(["plan", "heat7", *size, "-d", str(target), "--explain"]) == 0
    said = capsys.readouterr().out
    rows = said[said.index("scheme  ", said.index("storage")) :].splitlines()[1:]
    assert "chosen" in rows[0] and 4 <= len(rows) <= 10
    assert all("more" in row or "as fast" in row for row in rows[1:]), rows
    assert not target.exists()
