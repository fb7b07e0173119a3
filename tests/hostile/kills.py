"""Kill programs at random instants, start them again, and compare their results with results without kills.

    python -m tests.hostile.kills --kills 1000 --seed 1

Most kills use SIGKILL, some use SIGTERM or SIGINT. gradients.py kills programs that compute gradients. The tests
test_kill.py, test_array_kill.py, test_mpi_killed.py and core/test_stage_killed.cpp kill processes in other ways. `make
soak` also runs these tests.
"""

from __future__ import annotations

import argparse
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

import outcrop as oc
import outcrop.aggregate as agg
from outcrop.errors import OutcropError

sys.path.insert(0, str(Path(__file__).parent.parent))
import shots

SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
SECONDS_MOST = 300.0


class Program(ABC):
    """A program that the test kills and starts again. `start` works until all work is done. `check` compares the files
    with the expected files.
    """

    name: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def start(self) -> int:
        """Start or continue the work, and return the exit code. The test calls this method in a child process."""

    @abstractmethod
    def check(self) -> str:
        """Return a text that describes wrong data after a kill, or "" if all data is right."""

    @abstractmethod
    def is_over(self) -> bool:
        """Return True if all work is done. Raises AssertionError for a wrong result."""

    def compare(self, found: dict[str, Any]) -> None:
        """Raise AssertionError if `found` differs from the first results of this program. A file keeps the first
        results, because each comparison runs in its own process."""
        file = self.folder.parent / f"expected-{type(self).__name__}"
        if not file.exists():
            file.write_bytes(pickle.dumps(found))
        shots.assert_same(found, pickle.loads(file.read_bytes()))

    def clear(self) -> None:
        """Remove all files, so that the program starts from the beginning."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()


class Run(Program):
    """A program that continues a run. A kill must not reduce the committed step of the run."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.where = folder / "run.oc"
        self.reached = 0

    def check(self) -> str:
        step = step_of(self.where)
        lost = f"step {self.reached} was committed, now it is {step}" if (step or 0) < self.reached else ""
        self.reached = step or 0
        return lost

    def clear(self) -> None:
        super().clear()
        self.reached = 0


class Waves(Run):
    """A run with sources, receivers, snapshots and norms. Python starts and continues it."""

    name = "runs with everything"

    def start(self) -> int:
        if step_of(self.where) is None:
            sim = shots.make(self.where, force=True)
            sim.prepare(shots.STEPS)
            sim["u"] = np.linspace(0, 1, int(np.prod(shots.SHAPE)), dtype="float32").reshape(shots.SHAPE)
            sim.run(shots.STEPS, progress="none")
        else:
            sim = oc.open(self.where)
            if sim.step < shots.STEPS:
                # until its first pass, a run does not store its number of steps
                sim.run(shots.STEPS - sim.step, progress="none")
        return 0

    def is_over(self) -> bool:
        if step_of(self.where) != shots.STEPS:
            return False
        self.compare(shots.everything(self.where))
        return True


class Command(Run):
    """A run in two directories. `outcrop run` starts the run, and `outcrop resume` continues it."""

    name = "commands"
    words = ("run", "heat13", "-n", "50", "61", "72", "-t", "64", "--memory", "1MiB", "--init", "random:7", "--quiet",
    "--force")

    def start(self) -> int:
        from outcrop.cli.main import main

        if step_of(self.where) is None:
            main([*self.words, "-d", str(self.where), "-d", str(self.folder / "more.oc")])
        main(["resume", str(self.where), "--quiet"])

    def is_over(self) -> bool:
        if step_of(self.where) != 64:
            return False
        self.compare({"u": oc.open(self.where)["u"][...]})
        return True


class Steps(Program):
    """An array that is committed at every step. One row holds the number of the step."""

    name = "arrays"
    last = 60
    reached = 0

    def start(self) -> int:
        with oc.array((6, 1 << 16), "int32", persist="step", path=self.folder / "array") as array:
            while array.steps < self.last:
                step = array.steps + 1
                for row in range(6):
                    if row == 0 or step % (row + 1) == 0:
                        array[row] = step
                array.step()
        return 0

    def check(self) -> str:
        if not (self.folder / "array" / "commit.1.json").exists():
            return f"step {self.reached} was committed, and is gone" if self.reached else ""
        with oc.open_array(self.folder / "array", access="read") as array:
            step, values = array.steps, np.asarray(array[...])
        right = [step if row == 0 else step // (row + 1) * (row + 1) for row in range(6)]
        wrong = "" if (values == np.array(right)[:, None]).all() else f"a mixture of steps at {step}"
        lost = f"step {self.reached} was committed, now it is {step}" if step < self.reached else ""
        self.reached = step
        return wrong or lost

    def is_over(self) -> bool:
        return self.reached == self.last

    def clear(self) -> None:
        super().clear()
        self.reached = 0


class Staging(Program):
    """A file that one process writes in staged steps. The process adds a byte to the file `told` after each durable
    step."""

    name = "staging"
    last, nbytes = 40, 200_000

    def start(self) -> int:
        begin = self.told()
        with agg.declare(None, [agg.contiguous(0, self.nbytes)]) as plan:
            path, stage = self.folder / "file", self.folder / "stage"
            stage.mkdir(exist_ok=True)
            options: dict[str, Any] = {"stage": stage, "durable": True}
            made = agg.open(path, plan, writable=True, **options) if begin else agg.create(path, plan, **options)
            with made as file, open(self.folder / "told", "ab", buffering=0) as told:
                for step in range(begin, self.last):
                    file.write([self.values(step)], base=step * self.nbytes)
                    told.write(b".")
        return 0

    def values(self, step: int) -> np.ndarray:
        return np.random.default_rng(step).integers(0, 256, self.nbytes, "u1")

    def told(self) -> int:
        path = self.folder / "told"
        return path.stat().st_size if path.exists() else 0

    def check(self) -> str:
        count = self.told()
        if not count:
            return ""
        with agg.declare(None, [agg.contiguous(0, self.nbytes)]) as plan:
            return self._compare(count, plan)

    def _compare(self, count: int, plan: agg.Plan) -> str:
        found = np.zeros(self.nbytes, "u1")
        with agg.open(self.folder / "file", plan, writable=True, stage=self.folder / "stage") as file:
            for step in range(count):
                file.read([found], base=step * self.nbytes)
                if not (found == self.values(step)).all():
                    return f"step {step} of {count} is not what was written"
        return ""

    def is_over(self) -> bool:
        return self.told() == self.last


class Ranks(Program):
    """A program of several ranks, which write one file. The test kills any of the ranks. After the kill, each step that
    was reported as durable must be complete.
    """

    name = "aggregation with ranks"
    ranks = 3

    def start(self) -> int:
        from mpi_programs import launcher

        # mpi4py ends the other ranks if an exception ends one rank. Otherwise the other ranks may wait forever.
        program = [sys.executable, "-m", "mpi4py", str(Path(__file__).parent / "kills_ranks.py"), str(self.folder)]
        os.execvp(launcher()[0], [*launcher(), str(self.ranks), *program])

    def check(self) -> str:
        from .kills_ranks import NBYTES, value

        told = self.folder / "told"
        count = told.stat().st_size if told.exists() else 0
        if not count:
            return ""
        found = np.fromfile(self.folder / "file", np.uint8, count * self.ranks * NBYTES).reshape(count, self.ranks,
        NBYTES)
        for step in range(count):
            for rank in range(self.ranks):
                if not (found[step, rank] == value(step, rank)).all():
                    return f"step {step} of {count} is not what rank {rank} wrote"
        return ""

    def is_over(self) -> bool:
        return True

    def victims(self) -> list[int]:
        """Return the process numbers of the ranks. The names of the files `rank-*` contain these numbers."""
        return [int(path.name.partition("-")[2]) for path in self.folder.glob("rank-*")]


def step_of(where: Path) -> int | None:
    """Return the committed step of a run, or None if a field has no values yet. Raises an exception if committed data
    is not complete.
    """
    from outcrop.run.places import open_state

    try:
        manifest = open_state(where).manifest
    except OutcropError:
        return None
    if {entry.name for entry in manifest.arrays if not entry.is_previous} - set(manifest.filled):
        return None
    sim = oc.open(where)
    for entry in manifest.arrays:
        _ = None if entry.is_previous else sim[entry.name][...]
    return sim.step


def child(act: Callable[[], int], told: Path) -> int:
    """Start a child process that runs `act`, and return its process number."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        os.setsid()
        handle = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code = act()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except KeyboardInterrupt:
        code = 130
    except oc.errors.InterruptedRun:
        code = 130
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(code)


def ended(process: int, seconds: float) -> int | None:
    """Return the exit code of the process, which is negative if a signal ended the process. Return None if the process
    still runs after `seconds`."""
    end = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            return None
        time.sleep(0.0005)


def checked(program: Program, act: Callable[[], int]) -> None:
    """Run `act` in a child process, so that this process gets no threads and can fork safely. If `act` fails, raise
    AssertionError with the output of the child.
    """
    told = program.folder.parent / "checked"
    code = ended(child(act, told), SECONDS_MOST)
    if code != 0:
        raise AssertionError(f"{program.name}: {told.read_text().strip()[-1500:] or code}")


def kill_all(program: Program, kills: int, chance: random.Random, counts: Counter[str]) -> None:
    """Kill the program `kills` times at random instants. If 12 attempts have not completed the work of the program, let
    the program end without a kill. Raise AssertionError if data is lost or wrong, or if the program never ends.
    """
    told, answer = program.folder.parent / "told", program.folder.parent / "answer"
    lives = []
    for _ in range(2):  # the first start also compiles the kernel; the second start takes the usual time
        program.clear()
        begin = time.monotonic()
        assert ended(child(program.start, told), SECONDS_MOST) == 0, f"{program.name}: {told.read_text()[-1500:]}"
        lives.append(time.monotonic() - begin)
    with_ranks = isinstance(program, Ranks)
    done = attempts = 0

    def look() -> int:
        wrong = program.check()
        assert not wrong, wrong
        answer.write_text(f"{int(program.is_over())} {getattr(program, 'reached', 0)}")
        return 0

    checked(program, look)  # the results without kills are the expected results
    program.clear()
    while done < kills:
        if attempts >= 12:  # after 12 attempts, the program ends without a kill
            assert ended(child(program.start, told), SECONDS_MOST) == 0, f"{program.name}: {told.read_text()[-1500:]}"
        else:
            number = chance.choice(SIGNALS)
            process = child(program.start, told)
            code = ended(process, chance.uniform(0, 1.02) * min(lives))
            if code is None:
                victims = program.victims() if with_ranks else []
                os.kill(chance.choice(victims) if victims and chance.random() < 0.7 else process, number)
                code = ended(process, SECONDS_MOST)
                assert code is not None, f"{program.name}: hangs after signal {number}"
                if victims:
                    with suppress(OSError):
                        os.killpg(process, signal.SIGKILL)
                if code != 0:  # true unless the program ended before the signal
                    counts[f"{program.name}, {signal.Signals(number).name}"] += 1
                    done += 1
            if done % 50 == 0:
                print(f"{program.name}: {done} of {kills} kills", flush=True)
            fine = code in (0, 130, -number) or with_ranks
            assert fine, f"{program.name}: ended with {code} after signal {number}: {told.read_text()[-1500:]}"
            assert "Traceback" not in told.read_text() or with_ranks, f"{program.name}: {told.read_text()[-1500:]}"
            wait_for_group(process)
        attempts += 1
        checked(program, look)
        over, reached = answer.read_text().split()
        if hasattr(program, "reached"):
            program.reached = int(reached)
        if over == "1":
            counts[f"{program.name}, ended and compared"] += 1
            program.clear()
            attempts = 0
        assert attempts <= 12, f"{program.name}: it ended without a kill, and its work is not done"
    program.clear()


def wait_for_group(process: int) -> None:
    """Wait until all processes of the group have ended."""
    end = time.monotonic() + 30
    while process and time.monotonic() < end:
        try:
            os.killpg(process, 0)
        except OSError:
            return
        time.sleep(0.01)


SHARES: dict[type[Program], float] = {
    Waves: 0.4, Command: 0.25, Steps: 0.1, Staging: 0.2, Ranks: 0.05,
}  # fmt: skip


def main() -> int:
    """Kill all programs and return 0 if all results were right, otherwise 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", choices=[one.__name__.lower() for one in SHARES])
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="kills-"))
    os.environ |= {"XDG_CACHE_HOME": str(folder / "cache"), "OPENBLAS_NUM_THREADS": "1"}
    counts: Counter[str] = Counter()
    failures = []
    for kind, share in SHARES.items():
        if options.only and kind.__name__.lower() not in options.only:
            continue
        if kind is Ranks and not has_ranks():
            print("no mpiexec: no ranks are killed")
            continue
        try:
            chance = random.Random(f"{options.seed}:{kind.__name__}")
            kill_all(kind(folder / kind.__name__), max(1, round(options.kills * share)), chance, counts)
        except AssertionError as error:
            failures.append(f"{kind.name}: {error}")
        print(*(f"{what}: {count}" for what, count in counts.items() if what.startswith(kind.name)), sep="\n",
        flush=True)
    kills = sum(count for what, count in counts.items() if "SIG" in what)
    print(f"{kills} kills; the same bits, traces and snapshots each time" if not failures else "\n".join(failures))
    if not failures:
        shutil.rmtree(folder)
    else:
        print(f"files are left in {folder}")
    return 1 if failures else 0


def has_ranks() -> bool:
    """Return True if MPI programs can be started on this machine."""
    import pytest

    from mpi_programs import launcher

    try:
        return subprocess.run([launcher()[0], "--version"], capture_output=True).returncode == 0
    except pytest.skip.Exception:
        return False


if __name__ == "__main__":
    sys.exit(main())
