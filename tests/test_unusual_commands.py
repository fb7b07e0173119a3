"""Check unusual uses of the command line: wrong options, special files, and readers that close their pipe. A refused
command prints one line and has exit code 2. A run is completed even if the program that reads its output has ended.
"""

import contextlib
import io
import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import outcrop as oc
from outcrop.cli.main import call
from outcrop.run.progress import Standing, make_progress

RUN = ["run", "heat7", "-n", "12", "10", "8", "-t", "4", "-d", "run.oc", "--memory", "8MiB", "--threads", "1"]
COMMAND = [sys.executable, "-m", "outcrop.cli.main"]
DIGITS = "9" * 5000


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with special files whose names look like names of regular files."""
    monkeypatch.chdir(tmp_path)
    for suffix in ("npy", "npz", "nc", "sgy", "json"):
        os.mkfifo(f"fifo.{suffix}")
        Path(f"zero.{suffix}").symlink_to("/dev/zero")
        Path(f"loop.{suffix}").symlink_to(f"loop.{suffix}")
    Path("folder.npy").mkdir()
    np.save("volume.npy", np.ones((8, 10, 12), "float32"))


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that must be refused with an error of one line. Return this line. The command must not create any
    file."""
    before = sorted(os.listdir())
    capsys.readouterr()
    assert call(words) == 2
    out, line = capsys.readouterr()
    assert sorted(os.listdir()) == before
    assert not out
    assert line.startswith("outcrop: ")
    assert line.count("\n") == 1
    assert len(line) < 2500
    return line


def changed(option: str, value: str) -> list[str]:
    """Return a copy of RUN in which one option is replaced or added."""
    words = list(RUN)
    if option in words:
        place = words.index(option)
        del words[place : place + (4 if option == "-n" else 2)]
    return [*words, option, value]


NONSENSE = {
    "-t": ("", "2147483648", "10000001", "0", "-1", DIGITS, "nan", "1e3"),
    "-n": ("", DIGITS, f"{DIGITS} 2 2", "10 10 9223372036854775808", "8 8 200000000", "1.5 2 2", "nan"),
    "-d": ("", "\udcff", "x" * 300, "loop.npy", "fifo.npy", "zero.npy", "folder.npy/\udc80"),
    "--memory": ("", "0", "0%", "-1", "101%", "-5%", "nan", "1e9", DIGITS + "GiB", "9" * 30 + "TiB", "0.0000001"),
    "--threads": ("", "0", "-1", "9223372036854775808", "1000000", DIGITS, "1.5"),
    "--param": ("", "c0=", "c0=nan", "c0=inf", "c0=1e400", f"c0={DIGITS}", "=1", "c0", "\udcff=1"),
    "--init": ("", "1e400", f"random:{DIGITS}", "fifo.npy", "zero.npy", "loop.npy", "folder.npy", "fifo.npz",
               "fifo.nc", "fifo.sgy", "zero.npz@resample", "raw:fifo.npy:f4:1", f"raw:volume.npy:f4:{DIGITS}",
               "x" * 300, "\udcff"),
    "--json": ("", "fifo.json", "zero.json", "loop.json", "/dev/full", "/dev/zero", ".", "volume.npy/x", "x" * 300),
    "--bt": ("0", "-1", "100000", DIGITS, "9223372036854775808"),
    "--slab": ("0", "9223372036854775808"),
    "--diamond": ("0", "9223372036854775808"),
    **dict.fromkeys(("--scheme", "--io", "--bind", "--dtype", "--boundary"), ("", DIGITS, "\udcff", "none of these")),
}  # fmt: skip


@pytest.mark.parametrize("option", NONSENSE)
def test_words_nobody_means_are_one_line(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that `run` and `plan` immediately refuse wrong values of options, such as very large numbers, with an
    error of one line."""
    for value in NONSENSE[option]:
        refused(changed(option, value), capsys)
        if option != "-d":  # `plan` does not check all paths
            refused(["plan", *changed(option, value)[1:]], capsys)
    if option.startswith("--"):
        refused([*RUN, f"{option}="], capsys)


def test_other_commands_say_it_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that other commands refuse wrong names of stencils, places without a run, and invalid output files."""
    for name in (f"heat{DIGITS}x", "heat99999", "\udcff", "", "x" * 5000):
        refused(["run", name, *RUN[2:]], capsys)
    for where in ("", "\udcff", "x" * 300, "fifo.npy", "loop.npy", "zero.npy", "folder.npy"):
        for command in (["info"], ["verify"], ["resume"], ["plot", "-o", "a.png"]):
            refused([*command, where], capsys)
    for output in ("fifo.json", "/dev/full", "loop.json", "volume.npy/x.png", "."):
        refused(["plot", "volume.npy", "-o", output], capsys)
        refused([*("plan", *RUN[1:]), "--draw", output], capsys)
    for place in ("z=", f"z={DIGITS}", "z=99999999999999999999", "w=1", "\udcff"):
        refused(["plot", "volume.npy", "-o", "a.png", "--slice", place], capsys)


def test_messages_do_not_change_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that control characters in a name do not reach the terminal."""
    assert "\x1b" not in refused(["info", "a\x1b[2Jb"], capsys)


def piped(words: list[str], taken: Callable[[int], object], **given: int) -> tuple[int, str]:
    """Run a command whose standard output is a pipe, and return its exit code and standard error. Calls `taken` with
    the reading end of the pipe.
    """
    begin, end = os.pipe()
    with subprocess.Popen([*COMMAND, *words], stdout=end, stderr=subprocess.PIPE, text=True, **given) as process:  # type: ignore[call-overload]
        os.close(end)
        taken(begin)
        errors = process.communicate(timeout=120)[1]
    with contextlib.suppress(OSError):
        os.close(begin)
    return process.returncode, errors


def shell(text: str) -> tuple[int, str]:
    """Run a line in the shell, and return its exit code and standard error. In the line, $outcrop means the command,
    and $run means the arguments of a run."""
    text = text.replace("$outcrop", " ".join(COMMAND)).replace("$run", " ".join(RUN))
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stderr


def test_commands_end_by_sigpipe_when_their_reader_goes() -> None:
    """Checks commands whose reader closes the pipe. A command ends by SIGPIPE, without a message."""
    assert call([*RUN, "--quiet"]) == 0
    for words in (["info", "run.oc"], ["verify", "run.oc"], ["--help"], ["run", "--help"], ["plan", *RUN[1:]]):
        assert piped(words, os.close) == (-signal.SIGPIPE, ""), words


def test_a_run_goes_on_when_nobody_reads() -> None:
    """Checks that a run is completed even if its reader closes the pipe. The exit code is 0, and the remaining output
    is lost."""
    assert piped(RUN, os.close) == (0, "")
    assert oc.open("run.oc").step == 4
    assert piped(["resume", "run.oc", "-t", "3"], os.close) == (0, "")
    assert oc.open("run.oc").step == 7
    assert piped([*RUN, "--force"], lambda begin: (os.read(begin, 1), os.close(begin))) == (0, "")
    assert oc.open("run.oc").step == 4


@pytest.mark.parametrize("closing", [">&-", "2>&-", ">&- 2>&- <&-", "2>&1 | true; exit ${PIPESTATUS[0]}"])
def test_closed_descriptors_lose_no_run(closing: str) -> None:
    """Checks runs that start without open standard descriptors. The data files of such a run can get the numbers of the
    standard descriptors. Messages must not be written to the data files.
    """
    code, errors = shell(f"$outcrop $run {closing}")
    assert (code, errors) == (0, "")
    assert call(["verify", "run.oc", "--quiet"]) == 0
    assert shell(f"$outcrop info missing {closing}")[0] == 2


def test_a_run_on_a_terminal_that_goes_away_is_complete() -> None:
    """Checks that a run is completed even if writes to standard error fail."""
    outer, inner = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, *changed("-t", "400")], stdout=inner, stderr=inner, start_new_session=True
    ) as process:
        os.close(inner)
        os.close(outer)
        assert process.wait(timeout=120) == 2  # exit code 2: standard output could not be written
    assert oc.open("run.oc").step == 400


class Full(io.StringIO):
    """A stream to a full disk: each write fails."""

    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def test_lines_of_progress_are_dropped_when_they_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that a run does not end if its progress cannot be written, or if standard error does not exist."""
    monkeypatch.setattr("outcrop.run.progress.LINE_SECONDS", 0.0)
    monkeypatch.setattr(sys, "stderr", Full())
    with make_progress("lines", 1, 0, 4, 100) as display:
        for cells in (1, 50, 100):
            display.show(Standing(0, 0, cells, 0, 0))
    monkeypatch.setattr(sys, "stderr", None)
    simulation = oc.Simulation("heat7", (8, 10, 12), directory="run.oc", memory="8MiB", threads=1)
    for kind in ("lines", "auto", "none"):
        simulation.run(2, kind)
    assert simulation.step == 6


def test_a_full_disk_is_said_once_the_run_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that an error is reported if standard output or the report is on a full disk. The run must be complete
    before this error."""
    code, errors = shell("$outcrop $run > /dev/full")
    assert code == 2
    assert errors == "outcrop: standard output: No space left on device; the run itself is complete, at step 4\n"
    assert oc.open("run.oc").step == 4

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        assert call([*RUN, "--force", "--quiet", "--json", "report.json"]) == 2
    assert "report.json cannot be written: No space left on device; the run itself is complete" in said.getvalue()
    assert oc.open("run.oc").step == 4


def test_reports_go_where_shells_send_them(capfd: pytest.CaptureFixture[str]) -> None:
    """Checks that a report can go to standard output, to /dev/null, or to a process of the shell."""
    assert call([*RUN, "--quiet", "--json", "/dev/null"]) == 0
    code, out = (
        0,
        subprocess.run(
            [*COMMAND, *RUN, "--force", "--quiet", "--json", "/dev/stdout"],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        ).stdout,
    )
    assert (code, json.loads(out)["step"]) == (0, 4)
    assert shell("set -o pipefail; $outcrop $run --force --quiet --json >(cat > kept.json); sleep 0.1; wait")[0] == 0
    lines = threading.Event()
    for _ in range(100):  # the process that the shell has started may still be writing
        if Path("kept.json").exists() and Path("kept.json").read_text().endswith("}\n"):
            lines.set()
            break
        lines.wait(0.1)
    assert json.loads(Path("kept.json").read_text())["step"] == 4


@pytest.mark.parametrize("words", [[*RUN[:-6], "-d", "s3://bucket/run.oc"], [*RUN, "--json", "s3://bucket/report.json"]])
def test_urls_are_not_taken_for_directories(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that a URL is refused, so that no directory named s3: is made."""
    assert "looks like a URL" in refused(words, capsys)
