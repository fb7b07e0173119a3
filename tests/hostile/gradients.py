"""Kill programs that compute gradients, start them again, and compare their gradients with gradients of programs that
were not killed.

    python -m tests.hostile.gradients --number 120 --seed 1

A program runs forward, keeps states in one of four ways, runs backward, saves its gradients and frees the states. It is
killed one to three times, and then completes its work. A third of the kills happen at any time. The other kills happen
at a random moment in one part of the program, the part that has had the fewest kills. The program records its current
part in shared memory (`Marks`), so the table shows the part of each kill. The command fails if a part has no kill.
Programs that end before their first kill are not counted. `make soak` runs this command.
"""

from __future__ import annotations

import argparse
import mmap
import os
import pickle
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import outcrop as oc
import outcrop.run.adjoint  # imports the modules of all programs once, before the first fork
import outcrop.run.replay
from outcrop.errors import OutcropError
from outcrop.run.acquisition.history import HistoryView
from outcrop.run.disk.state import State
from outcrop.run.disk.verify import find_damage, repair
from outcrop.run.engine import Engine
from outcrop.run.passes import PassRunner
from outcrop.run.places import open_state
from outcrop.run.simulation import Simulation

from .kills import SECONDS_MOST, child, ended, wait_for_group

SHAPE, STEPS, EVERY, STATES_MOST = (36, 30, 28), 32, 4, 3
STATE_BYTES = 2 * (4 * int(np.prod(SHAPE)) + 16 * SHAPE[0] + 4)
"""The bytes of the files of one state: u and its previous values, each with the index of its planes."""

WAYS: dict[str, oc.History] = {
    "all states": oc.History("all"),
    "every 4th state": oc.History(EVERY),
    "recomputation": oc.History(EVERY, recompute=True),
    "schedule": oc.History(EVERY, limit=STATES_MOST * STATE_BYTES + 7, recompute=True),
}
SAMPLED = "every 4th state"
"""The way whose gradients are not exact. The gradients of all other ways are bitwise identical."""

RUNS = ("forward run", "adjoint run", "replay")
PARTS = (
    "elsewhere", *(f"{run}: {part}" for run in RUNS for part in ("first values", "plan", "pass", "commit")), "free",
)  # fmt: skip
ELSEWHERE = 0
SIGNALS = (signal.SIGKILL,) * 4 + (signal.SIGTERM, signal.SIGINT)


class Marks:
    """The progress of a program, in memory that the program shares with the process that kills it. `now` is the number
    of the current part. `entries` has the number of times that the program has begun each part, and `seconds` the time
    of each part. `steps` has the last committed step of each run."""

    def __init__(self) -> None:
        memory = mmap.mmap(-1, 4096)
        self.now = np.frombuffer(memory, "i8", 1)
        self.steps = np.frombuffer(memory, "i8", len(RUNS), 64)
        self.entries = np.frombuffer(memory, "i8", len(PARTS), 512)
        self.seconds = np.frombuffer(memory, "f8", len(PARTS), 1024)
        self._since = 0.0

    def begin(self) -> None:
        """Reset the marks before a new process of the program starts. The process that kills the program calls this
        method."""
        self.entries[:] = self.seconds[:] = self.now[:] = 0
        self._since = time.perf_counter()

    def _go(self, part: int) -> None:
        now = time.perf_counter()
        self.seconds[self.now[0]] += now - self._since
        self._since, self.now[0] = now, part

    @contextmanager
    def part(self, part: int) -> Iterator[None]:
        """Mark a part of the program while the `with` runs."""
        before = int(self.now[0])
        self._go(part)
        self.entries[part] += 1
        try:
            yield
        finally:
            self._go(before)


MARKS = Marks()


def run_of(place: Path) -> int:
    """Return the index, in RUNS, of the run at this path."""
    return 2 if "-replay-" in place.name else 1 if place.name == "adjoint.oc" else 0


def watch(owner: Any, name: str, part_of: Callable[[Any], str | None]) -> None:
    """Mark a part of the program during each call of a function. `part_of` returns the part for the call's first
    argument."""
    plain = getattr(owner, name)

    def watched(first: Any, *arguments: Any, **options: Any) -> Any:
        part = part_of(first)
        if part is None:
            return plain(first, *arguments, **options)
        with MARKS.part(PARTS.index(part)):
            return plain(first, *arguments, **options)

    setattr(owner, name, watched)


def watch_all() -> None:
    """Mark all parts in PARTS, and the steps of all commits."""
    executed = [0]
    work, commit = PassRunner._work, State.commit

    def working(self: PassRunner) -> None:
        executed[0] = run_of(self._state.path)
        work(self)

    def committing(self: State, *arguments: Any, **options: Any) -> None:
        with MARKS.part(PARTS.index(f"{RUNS[run_of(self.path)]}: commit")):
            commit(self, *arguments, **options)
        MARKS.steps[run_of(self.path)] = self.manifest.step

    PassRunner._work, State.commit = working, committing  # type: ignore[method-assign]
    watch(Engine, "run_pass", lambda engine: f"{RUNS[executed[0]]}: pass")
    watch(Simulation, "assign_planes", lambda sim: f"{RUNS[run_of(sim.directory)]}: first values")
    watch(Simulation, "_prepare", lambda sim: f"{RUNS[run_of(sim.directory)]}: plan")
    watch(outcrop.run.replay, "_go_to", lambda state: "replay: first values")
    for owner, name in (
        (outcrop.run.replay, "keep_only"), (outcrop.run.replay, "remove_replay"), (HistoryView, "free"),
    ):  # fmt: skip
        watch(owner, name, lambda first: "free")


class Gradient:
    """A program that computes gradients of a wave with sources and receivers. The program uses one of the WAYS."""

    wrt = ("v", "u", "source")

    def __init__(self, folder: Path, way: str) -> None:
        self.folder, self.way, self.history = folder, way, WAYS[way]
        self.memory = "2MiB" if self.history.recompute else "640KiB"  # small, so that there are many passes
        self.run, self.adjoint, self.saved = folder / "run.oc", folder / "adjoint.oc", folder / "gradients"
        self.told = folder.parent / "told"

    def clear(self) -> None:
        """Remove all files, so that the program starts from the beginning."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        MARKS.steps[:] = 0

    def start(self) -> int:
        """Start or continue the work. This method runs in a child process."""
        run_step, adjoint_step = self.committed_steps()
        sim = self.forward(run_step)
        if not self.saved.exists():
            run = self.backward(sim, adjoint_step)
            begun = self.saved.with_suffix(".begun")
            begun.write_bytes(pickle.dumps(results(sim, run)))
            begun.rename(self.saved)
        if sim.reader().manifest.taps.history is not None:  # type: ignore[union-attr]
            sim.history.free()
        # after a kill in the last commit or in `free`, only repair() removes the remaining files of the run
        for one in (self.run, self.adjoint):
            if open_state(one).untidy():
                repair(open_state(one))
        return 0

    def committed_steps(self) -> list[int | None]:
        """Check the data of the forward run and of the adjoint run by their checksums, and return the committed steps
        of the two runs. A kill must not lose a committed step."""
        found = [committed_step(self.run), committed_step(self.adjoint)]
        for name, step, committed in zip(RUNS, found, MARKS.steps.tolist(), strict=False):
            assert (step or 0) >= committed, f"step {committed} of the {name} was committed, now it is {step}"
        return found

    def forward(self, step: int | None) -> Simulation:
        """Complete the forward run, which is at `step`."""
        if step is None:
            rng = np.random.default_rng(2)
            points = rng.uniform(8.0, 20.0, (3, 3))
            sim = oc.Simulation(
                oc.stencils.acoustic(order=4), SHAPE, "float32", self.run, memory="700KiB", threads=2, force=True,
                scheme="wavefront", sizes={"bt": 2},
                sources=[oc.Source("u", points, rng.standard_normal((STEPS, 3)), scale=0.1)],
                receivers=[oc.Receivers("line", "u", points + 1)],
            )  # fmt: skip
            sim.assign({"v": rng.uniform(0.2, 0.3, SHAPE).astype("f4"), "u": "random:3"})
            sim.run(STEPS, progress="none", history=self.history)
        else:
            sim = oc.open(self.run)
            if sim.step < STEPS:
                sim.run(STEPS - sim.step, progress="none", history=self.history)
        return sim

    def backward(self, sim: Simulation, step: int | None) -> Any:
        """Complete the adjoint run, which is at `step`. If `step` is None, the adjoint run has no values yet and is
        replaced."""
        residuals = {"line": sim.traces["line"], "u": sim["u"][...]}
        option = {"force": True} if step is None else {"resume": True}
        run = sim.adjoint(residuals, self.wrt, self.adjoint, memory=self.memory, **option)
        if run.remaining_steps:
            run.run(progress="none")
        return run

    def compare(self, expected: Path) -> int:
        """Compare all results with the file `expected`, which the first call writes. This method runs in a child
        process."""
        sim = oc.open(self.run)
        residuals = {"line": sim.traces["line"], "u": sim["u"][...]}
        run = sim.adjoint(residuals, self.wrt, self.adjoint, memory=self.memory, resume=True)
        found = results(sim, run)
        if not expected.exists():
            expected.write_bytes(pickle.dumps(found))
        right = pickle.loads(expected.read_bytes())
        for one in (found, pickle.loads(self.saved.read_bytes())):
            assert one.keys() == right.keys()
            for name, values in one.items():
                assert np.abs(values).max() > 0 and values.tobytes() == right[name].tobytes(), f"{name} has other bits"
        there = sorted(one.name for one in self.folder.iterdir())
        assert there == ["adjoint.oc", "gradients", "run.oc"], f"there are {there}"
        assert not list(self.run.glob("snapshots.zarr/history/*/c/*")), "states are left"
        for one in (self.run, self.adjoint):
            verified = find_damage(open_state(one))
            assert not verified.damage + verified.untidy, f"{one}: {verified.damage + verified.untidy}"
        return 0


def results(sim: Simulation, run: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Return the gradients, the last values and the traces."""
    found = run.gradients
    return {
        "gradient of v": np.asarray(found["v"][...]), "gradient of u": np.asarray(found["u"][...]),
        "gradient of source": found["source"][0], "u": np.asarray(sim["u"][...]), "line": sim.traces["line"],
    }  # fmt: skip


def committed_step(where: Path) -> int | None:
    """Return the committed step of a run, or None if a field has no values yet. Raises AssertionError if committed data
    are damaged."""
    try:
        state = open_state(where)
    except OutcropError:
        return None
    manifest = state.manifest
    if {entry.name for entry in manifest.arrays if not entry.is_previous} - set(manifest.filled):
        return None
    assert not (damage := find_damage(state).damage), f"{where}: {damage}"
    return manifest.step


def require(program: Gradient, process: int) -> None:
    """Wait until a child process ends. Raise AssertionError if it fails."""
    code = ended(process, SECONDS_MOST)
    assert code == 0, f"{program.way}: ended with {code}: {program.told.read_text().strip()[-1500:]}"


def hit(process: int, number: int, part: int | None, entry: int, seconds: float) -> tuple[int, int | None]:
    """Send a signal to a child process. If `part` is None, wait for `seconds` first. Otherwise, wait until the process
    has begun this part `entry` times, and then for `seconds`. If the part has ended before the signal, try again when
    the part begins the next time.

    Return the exit code, and the part in which the signal has ended the process. The part is None if the process has
    ended by itself."""
    end = time.monotonic() + SECONDS_MOST
    while True:
        while part is not None and MARKS.entries[part] < entry and time.monotonic() < end:
            if (code := ended(process, 0)) is not None:
                return code, None
            time.sleep(0.0001)
        if (code := ended(process, seconds)) is not None:
            return code, None
        # the process is stopped, so that the part cannot end before the signal arrives
        os.kill(process, signal.SIGSTOP)
        status = os.waitpid(process, os.WUNTRACED)[1]
        if not os.WIFSTOPPED(status):
            return os.waitstatus_to_exitcode(status), None
        found = int(MARKS.now[0])
        if part in (None, found) or time.monotonic() > end:
            break
        entry = int(MARKS.entries[part]) + 1
        os.kill(process, signal.SIGCONT)
    os.kill(process, number)
    os.kill(process, signal.SIGCONT)
    code = ended(process, SECONDS_MOST)
    assert code is not None, f"hangs after signal {number}"
    return code, found if code == (130 if number == signal.SIGINT else -number) else None


class Killer:
    """Kills programs, and counts events. `kills` counts kills for each way and part. `interrupts` counts the programs
    that SIGINT has ended. `compared` counts the compared gradients of each way."""

    def __init__(self, folder: Path, ways: Sequence[str], chance: random.Random) -> None:
        self.programs = [Gradient(folder / way.replace(" ", "-"), way) for way in ways]
        self.kills: Counter[tuple[str, int]] = Counter()
        self.interrupts: Counter[str] = Counter()
        self.compared: Counter[str] = Counter()
        self._folder, self._chance = folder, chance
        self._entries: dict[str, list[int]] = {}
        self._means: dict[str, list[float]] = {}
        self._seconds: dict[str, float] = {}

    def _expected(self, program: Gradient) -> Path:
        return self._folder / ("expected-sampled" if program.way == SAMPLED else "expected")

    def learn(self) -> None:
        """Run each program twice without kills. The first run also compiles the kernels and gives the expected results.
        The second run gives the parts of the program and their times."""
        for program in self.programs:
            for _ in range(2):
                program.clear()
                begin = time.monotonic()
                MARKS.begin()
                require(program, child(program.start, program.told))
                self._seconds[program.way] = time.monotonic() - begin
                entries, seconds = MARKS.entries.tolist(), MARKS.seconds.tolist()
                require(program, child(lambda: program.compare(self._expected(program)), program.told))  # noqa: B023
            entries[ELSEWHERE] = 1
            self._entries[program.way] = entries
            self._means[program.way] = [time / max(1, count) for time, count in zip(seconds, entries, strict=True)]

    def missing(self) -> list[tuple[str, int]]:
        """Return the pairs (way, part) in which no program was killed."""
        pairs = ((way, part) for way, entries in self._entries.items() for part, count in enumerate(entries) if count)
        return [one for one in pairs if not self.kills[one]]

    def gradient(self, program: Gradient, is_aimed: bool = False, is_damaged: bool = False) -> None:
        """Kill a program repeatedly until it has completed a gradient. At least one kill must happen before the
        gradient is complete. Then compare the gradient."""
        program.clear()
        killed, signals, chance = 0, chance_of_signals(self._chance), self._chance
        while True:
            MARKS.begin()
            process = child(program.start, program.told)
            if not signals:
                require(program, process)
                break
            code, part = hit(process, signals[0], *self._moment(program.way, is_aimed or chance.random() < 2 / 3))
            fine = code == 0 if part is None else code in (130, -signals[0])
            said = program.told.read_text()
            assert fine and "Traceback" not in said, (
                f"{program.way}: ended with {code} after signal {signals[0]}: {said.strip()[-1500:]}"
            )
            wait_for_group(process)
            if part is None and killed:
                break  # the program was complete before the next signal
            if part is None:
                program.clear()  # the program was complete before the first signal, so it does not count
                continue
            if signals.pop(0) == signal.SIGINT:
                self.interrupts[program.way] += 1
            else:
                self.kills[program.way, part] += 1
                killed += 1
        if is_damaged:
            damage(program.saved)
        require(program, child(lambda: program.compare(self._expected(program)), program.told))
        self.compared[program.way] += 1

    def _moment(self, way: str, is_aimed: bool) -> tuple[int | None, int, float]:
        """Return a moment for `hit` as three values: a part, the number of times that this part has begun, and the
        seconds since the last beginning."""
        chance, entries, means = self._chance, self._entries[way], self._means[way]
        if not is_aimed:
            return None, 0, chance.uniform(0, 1.02) * self._seconds[way]
        parts = [part for part, count in enumerate(entries) if count and part != ELSEWHERE]
        chance.shuffle(parts)
        part = min(parts, key=lambda one: self.kills[way, one])
        return part, chance.randint(1, entries[part]), chance.random() * means[part]

    def table(self) -> str:
        """Return the counts for each part and each way."""
        ways = list(self._entries)
        rows = [["kills during", *ways, "sum"]]
        for part, name in enumerate(PARTS):
            counts = [self.kills[way, part] if self._entries[way][part] else None for way in ways]
            rows.append([name, *("-" if one is None else str(one) for one in counts), str(sum(filter(None, counts)))])
        stops, compared = ("stopped by SIGINT", self.interrupts), ("gradients compared", self.compared)
        for text, found in (("all kills", self._sums()), stops, compared):
            rows.append([text, *(str(found[way]) for way in ways), str(sum(found.values()))])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])] for row in rows)
        return "\n".join("  ".join(line) for line in lines)

    def _sums(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for (way, _), count in self.kills.items():
            found[way] += count
        return found


def chance_of_signals(chance: random.Random) -> list[int]:
    """Return one to three signals. The first signal is SIGKILL or SIGTERM."""
    first = chance.choice([one for one in SIGNALS if one != signal.SIGINT])
    return [first, *(chance.choice(SIGNALS) for _ in range(chance.choice((0, 0, 1, 2))))]


def damage(file: Path) -> None:
    """Change one bit of the gradient of v in a file of results."""
    found = pickle.loads(file.read_bytes())
    found["gradient of v"].view("u4").flat[7] ^= 1
    file.write_bytes(pickle.dumps(found))


def main() -> int:
    """Kill and compare gradients. Return 0 if all bits were right, otherwise 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.gradients", description=__doc__)
    parser.add_argument("--number", type=int, default=120, help="the number of gradients to kill and compare")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--way", action="append", choices=WAYS, help="the ways to keep states. Default: all")
    parser.add_argument("--any-part", action="store_true", help="do not fail if no kill hits in some of the parts")
    parser.add_argument("--damage", action="store_true", help="change a bit of one gradient. The command must fail")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="kills-"))
    os.environ |= {"XDG_CACHE_HOME": str(folder / "cache"), "OPENBLAS_NUM_THREADS": "1"}
    oc.stencils.acoustic(order=4)  # imports SymPy before the programs are forked
    watch_all()
    killer = Killer(folder, options.way or list(WAYS), random.Random(options.seed))
    begin, done, error = time.monotonic(), 0, ""
    try:
        killer.learn()
        while done < options.number or (not options.any_part and killer.missing() and done < 2 * options.number):
            program, is_aimed = killer.programs[done % len(killer.programs)], False
            if done >= options.number:  # a part of this way has no kill yet
                program, is_aimed = next(one for one in killer.programs if one.way == killer.missing()[0][0]), True
            killer.gradient(program, is_aimed, options.damage and done == options.number // 2)
            done += 1
            if done % 20 == 0:
                print(f"{done} gradients in {time.monotonic() - begin:.0f} s", flush=True)
    except AssertionError as wrong:
        error = str(wrong)
    print(killer.table())
    if not error and not options.any_part and (missing := killer.missing()):
        error = "no kill has hit during " + ", ".join(f"{PARTS[part]} ({way})" for way, part in missing)
    if error:
        print(f"{error}\nfiles are left in {folder}")
        return 1
    shutil.rmtree(folder)
    kills = sum(killer.kills.values())
    print(f"{done} gradients, killed {kills} times in {time.monotonic() - begin:.0f} s: all have the same bits")
    return 0


if __name__ == "__main__":
    sys.exit(main())
