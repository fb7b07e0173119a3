"""Random histories of runs. Processes start a run, advance the run, assign values and read values. Some processes are
killed, and sometimes the power fails. Later processes continue the run.

After each part of a history, the run on disk must have one of these states: the last state whose commit has returned,
or a state whose commit began later. After a power cut during a commit, the storage may have the new state or the state
before it.

All planes, rows and snapshots must belong to the same state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from outcrop.durable import Directory
from outcrop.errors import InputError, OutcropError, StorageError
from outcrop.language.sparse import Sampling
from outcrop.run.acquisition.definitions import NOTHING_DEFINED, AcquisitionDefinitions
from outcrop.run.acquisition.pass_acquisition import AcquisitionResults, FieldSum
from outcrop.run.acquisition.recorder import Recorder
from outcrop.run.disk.acquisition_files import NORMS, first_sums, snapshot_name
from outcrop.run.disk.creation import created_in
from outcrop.run.disk.entries import ArrayEntry, NormsEntry, SnapshotsEntry
from outcrop.run.disk.manifest import IN_FLIGHT, NEW, Manifest, Settings
from outcrop.run.disk.state import State
from outcrop.run.disk.values import FieldView, assign, complete
from outcrop.run.disk.verify import find_damage, repair
from outcrop.run.places import open_state
from simulated.chance import Chance, Process
from simulated.expected import Expected
from simulated.substitutes import simulated, write_snapshot
from simulated.system import SimulatedSystem

MOST_STARTS = 8
"""More than the number of processes that start a run at the same time."""
RUN, FURTHER = Path("/simulated/above/run"), Path("/simulated/further")


@dataclass(frozen=True)
class Content:
    """The content of a run: rows, snapshots, and arrays. One number determines all cells of an array."""

    identity: str = ""
    phase: str = "absent"
    step: int = 0
    generation: int = 0
    arrays: tuple[tuple[str, int], ...] = ()
    traces: tuple[float, ...] = ()
    norms: tuple[float, ...] = ()
    snapshots: tuple[int, ...] = ()

    def with_arrays(self, names: Iterable[str], number: int, **others: Any) -> Content:
        """Return this content with new values of the named arrays."""
        return replace(
            self, arrays=tuple(sorted({**dict(self.arrays), **dict.fromkeys(names, number)}.items())), **others
        )

    def without(self, names: Iterable[str]) -> Content:
        """Return this content without values of the named arrays."""
        return replace(self, arrays=tuple(one for one in self.arrays if one[0] not in set(names)))


ABSENT = Content()


class RunHistory:
    """One random history of a run."""

    def __init__(self, seed: int, trace: list[str] | None = None) -> None:
        self.chance = Chance(seed)
        self.random = Random(seed)
        self.system = SimulatedSystem(self.chance, trace)
        self.expected = Expected(ABSENT)
        self.numbers = self.faults = 0
        random = self.random
        self.in_place = random.random() < 0.15
        self.directories = [RUN, FURTHER] if random.random() < 0.25 else [RUN]
        self.shape = random.choice([(3, 2, 2), (2, 2, 3), (4, 1, 2)])
        self.shard_planes = self.shape[0] if len(self.directories) == 1 else 1
        self.arrays = [ArrayEntry("u", False)]
        if random.random() < 0.4:
            self.arrays.append(ArrayEntry("u.previous", False))
        if random.random() < 0.4:
            self.arrays.append(ArrayEntry("m", True))
        self.definitions = self._definitions() if random.random() < 0.6 else NOTHING_DEFINED

    def _definitions(self) -> AcquisitionDefinitions:
        random, samplings, snapshots, norms = self.random, [], [], None
        if random.random() < 0.6:
            samplings.append(Sampling("line", "u", np.zeros((1, 1, 3), np.int64), np.ones((1, 1))))
        if random.random() < 0.6:
            box = tuple((0, n) for n in self.shape)
            snapshots.append(SnapshotsEntry(random.choice([1, 2]), ("u",), box, initial=random.random() < 0.3))
        if random.random() < 0.6:
            norms = NormsEntry(random.choice([1, 2]), ("u",), random.random() < 0.3)
        return AcquisitionDefinitions((), tuple(samplings), tuple(snapshots), norms)

    def run(self) -> RunHistory:
        """Run all parts of the history, and return this object."""
        with simulated(self.system, self.random):
            self.system.mkdir("/simulated")
            handle = self.system.open("/", 0)
            self.system.fsync(handle)
            for _ in range(self.random.choice([1, 2, 3, 4])):
                self._part()
        return self

    # Parts

    def _part(self) -> None:
        random, (content,) = self.random, self.expected.base
        rate = random.choice([0.0, 0.002, 0.01, 0.05])
        self.chance.rates(
            kills=rate * random.choice([0, 1]),
            crashes=rate * random.choice([0, 1]),
            faults=random.choice([0, 0, 0, 0.004]),
        )
        starts = content.phase in ("absent", NEW, IN_FLIGHT) or random.random() < 0.1
        functions: list[Callable[[int], None]]
        if starts:
            force = content.phase not in ("absent", NEW) or random.random() < 0.3
            functions = [self._start(force) for _ in range(random.choice([1, 1, 2, 3]))]
        else:
            functions = [self._resume]
        rivals = [] if starts and len(functions) == 1 else random.choice([[], [], [self._resume], [self._start(False)]])
        functions += rivals
        if random.random() < 0.3:
            functions.append(self._read)
        if len(functions) > 1:
            self.chance.switches = random.choice([0.02, 0.1, 0.5])
        self.faults = self.chance.count["fault"]
        processes = self.system.run(*(self._numbered(number, one) for number, one in enumerate(functions)))
        is_disturbed = self._is_disturbed()
        crashed = self.system.crashed
        died = crashed or any(process.is_dead for process in processes)
        self._check_errors(functions, processes, is_disturbed, starts)
        self.chance.rates()
        self.expected.settle(self._look(), crashed)
        (found,) = self.expected.base
        if not is_disturbed and not died:
            self._check_ends(functions, processes, found, starts)

    def _is_disturbed(self) -> bool:
        """Return True if a system call has failed in this part because of a simulated fault."""
        return self.chance.count["fault"] > self.faults

    def _numbered(self, number: int, one: Callable[[int], None]) -> Callable[[], None]:
        return lambda: one(number)

    def _check_errors(
        self, functions: list[Callable[[int], None]], processes: list[Process], is_disturbed: bool, starts: bool
    ) -> None:
        for process in processes:
            error = process.error
            if error is None:
                continue
            fine = isinstance(error, InputError) and ("in use" in str(error) or "force=True" in str(error))
            # a pass in place overwrites the state, so a kill during this pass destroys the state
            fine = fine or (self.in_place and "the state was lost" in str(error))
            fine = fine or (is_disturbed and isinstance(error, OutcropError | OSError))
            if starts and len(functions) > 1:  # a new start may remove the run while other processes read it
                fine = fine or isinstance(error, InputError | StorageError)
            if not fine:
                raise AssertionError(f"{process.name} ended with {error!r}") from error

    def _check_ends(
        self, functions: list[Callable[[int], None]], processes: list[Process], found: Content, starts: bool
    ) -> None:
        starters = [one for one, f in zip(processes, functions, strict=True) if getattr(f, "starts", False)]
        done = [one for one in starters if one.error is None]
        if starts and len(starters) == len(functions):
            errors = [repr(one.error) for one in starters if one.error]
            shares_left = any("planes of a run that is gone" in error for error in errors)  # needs --force
            assert done or shares_left, f"none of {len(starters)} starts went on: {'; '.join(errors)}"
            if done and not any(getattr(f, "forces", False) for f in functions):
                assert len(done) == 1, f"{len(done)} of {len(starters)} starts went on"
        if found.phase == "absent" and starters:
            assert not self._names(RUN), f"a start that failed leaves {self._names(RUN)}"

    def _names(self, path: Path) -> list[str]:
        try:
            with Directory.open(path) as directory:
                return directory.names()
        except FileNotFoundError:
            return []

    # Processes

    def _start(self, force: bool) -> Callable[[int], None]:
        def start(number: int) -> None:
            manifest = self._manifest()
            new = Content(manifest.identity, NEW)
            # The replaced run first loses its values. It can be a run that another process has just begun.
            replaced = [Content(str(one), NEW) for one in range(1, self.numbers + MOST_STARTS)]
            for content in (ABSENT, new, *replaced):
                self.expected.begin(number, content)
            state = None
            try:
                with created_in(self.directories, manifest, force, self.definitions.files) as state:
                    self.expected.announce(number, new)
                    self.expected.begin(number, ABSENT)
                    self._assign(number, state, self._some_names())
            except OutcropError:
                if state is None or not state.has_values:  # a state with values lacks only links to them
                    self.expected.withdraw(number, ABSENT, *replaced)
                raise
            self._advance(number, state)

        start.starts, start.forces = True, force
        return start

    def _manifest(self) -> Manifest:
        self.numbers += 1
        manifest = Manifest(
            identity=str(self.numbers),
            stencil={"name": "heat7"},
            parameters={"dt": 0.5},
            arrays=tuple(self.arrays),
            shape=self.shape,
            dtype="float32",
            boundary="fixed",
            directories=tuple(map(str, self.directories)),
            shard_planes=self.shard_planes,
            in_place=self.in_place,
            settings=Settings(1 << 20, 1),
            taps=self.definitions.entries,
        )
        return replace(manifest, sums=first_sums(manifest, self.definitions.files))

    def _some_names(self) -> list[str]:
        return [one.name for one in self.arrays if one.name == "u" or self.random.random() < 0.5]

    def _resume(self, number: int) -> None:
        state = open_state(RUN)
        if not state.has_values:
            self._assign(number, state, self._some_names())
        else:
            state.require_whole()
        self._advance(number, state)

    def _advance(self, number: int, state: State) -> None:
        for _ in range(self.random.choice([1, 1, 2, 3])):
            action = self.random.random()
            if action < 0.5:
                self._passes(number, state)
            elif action < 0.75:
                self._assign(number, state, self._some_names())
            elif action < 0.85:
                findings = find_damage(open_state(RUN))
                assert not findings.damage or self._is_disturbed(), findings.damage
            elif action < 0.9:
                repair(open_state(RUN, check=False))
            else:
                state = open_state(RUN)

    def _assign(self, number: int, state: State, names: list[str]) -> None:
        value = self._number()
        with state.locked():
            now = self._find(state.manifest)
            if now.step:
                names = [name for name in names if name != "m"]
            state_names = [one.name for one in self.arrays if not one.is_static]
            for one in self._ways(now, names, state_names, value):
                self.expected.begin(number, one)
            assign(state, {name: _source(value) for name in names}, "sync")
            self.expected.announce(number, one)

    def _ways(self, now: Content, names: list[str], state_names: list[str], value: int) -> list[Content]:
        """Return the contents that the run has, one after another, while a process assigns arrays."""
        if now.phase == NEW:
            return [now.with_arrays(names, value, phase="ready")]
        if now.phase == IN_FLIGHT:  # another process was killed during a pass in place, so these are all values again
            lost = now.without([*state_names, *({"m"} & set(names))])
            last = lost.with_arrays(names, value, phase="ready", generation=now.generation + 1)
            return [now.without({"m"} & set(names)), last]
        before = dict(now.arrays)
        replaced = [name for name in names if name in before and name != "m"]
        filled = [name for name in names if name not in replaced]
        ways = []
        if filled:
            ways = [now.without(filled), now.with_arrays(filled, value)]
        if replaced:
            last = ways[-1] if ways else now
            if self.in_place:
                ways.append(replace(last, phase=IN_FLIGHT))
            ways.append(last.with_arrays(replaced, value, generation=now.generation + 1))
        return ways or [now]

    def _complete(self, number: int, state: State) -> None:
        now = self._find(state.manifest)
        missing = [one.name for one in self.arrays if not one.is_static and one.name not in dict(now.arrays)]
        own = dict(now.arrays).get("u", 0) if "u.previous" in missing and "u" not in missing else 0
        then = now.with_arrays([name for name in missing if not name.endswith("previous")], 0)
        self.expected.begin(number, then)
        last = then.with_arrays([name for name in missing if name.endswith("previous")], own)
        self.expected.begin(number, last)
        complete(state, "sync")
        if missing:
            self.expected.announce(number, last)

    def _passes(self, number: int, state: State) -> None:
        with state.locked():
            state.require_whole()
            self._complete(number, state)
            if "m" in {one.name for one in self.arrays} - set(state.manifest.filled):
                return
            state.change(target_step=state.manifest.step + 9)
            now = self._find(state.manifest)
            self.expected.announce(number, now)
            recorder = Recorder(state, ["u", "m"], "sync")
            for _ in range(self.random.choice([1, 1, 2])):
                now = self._pass(number, state, recorder, now, self.random.choice([1, 1, 2, 3]))

    def _pass(self, number: int, state: State, recorder: Recorder, now: Content, steps: int) -> Content:
        value = self._number()
        if self.in_place:
            self.expected.begin(number, replace(now, phase=IN_FLIGHT))
        then = self._after(now, steps, value)
        state.begin_writing()
        acquisition = recorder.before(now.step, steps)
        for name, old in now.arrays:
            if name != "m":
                if not self.in_place:
                    with state.planes_of(name, "sync") as planes:
                        _check(planes.read(0, self.shape[0]), old)
                with state.target_planes(name, 1 - state.manifest.current, "sync") as planes:
                    planes.fill(_source(value))
                    planes.flush()
        snapshot_sums = tuple(
            write_snapshot(file.folder, str(file.path), _snapshot(self.shape, value)) for file in acquisition.snapshots
        )
        samples = tuple(np.full((steps, 1), float(value)) for _ in acquisition.samples)
        first = 0 if now.step == 0 else now.step + 1
        sums = tuple(
            tuple(FieldSum(step, value, 0, 0, 0) for step in one.steps if first <= step <= now.step + steps)
            for one in acquisition.sums
        )
        kept = recorder.after(now.step, AcquisitionResults(samples, sums, snapshot_sums))
        state.check(spare=True)
        self.expected.begin(number, then)
        state.commit(now.step + steps, sums=kept)
        self.expected.announce(number, then)
        return then

    def _after(self, now: Content, steps: int, value: int) -> Content:
        entries, last = self.definitions.entries, now.step + steps
        then = now.with_arrays(
            [name for name, _ in now.arrays if name != "m"],
            value,
            step=last,
            generation=now.generation + 1,
            phase="ready",
        )
        new_norms = entries.norms.count(last) - entries.norms.count(now.step) if entries.norms else 0
        new_snapshots = sum(one.count(last) - one.count(now.step) for one in entries.snapshots)
        return replace(
            then,
            traces=now.traces + (float(value),) * (steps if entries.samplings else 0),
            norms=now.norms + (float(value),) * new_norms,
            snapshots=now.snapshots + (value,) * new_snapshots,
        )

    def _read(self, number: int) -> None:
        for _ in range(self.random.choice([1, 2, 4])):
            try:
                state = open_state(RUN)
                if "u" in state.manifest.filled and state.manifest.phase == "ready":
                    found = FieldView(state, "u")[...]
                    _check(found, int(found[0, 0, 0]))
            except InputError:
                if not isinstance(number, int):
                    raise
            except StorageError:
                if not self.in_place and not self.expected.begun:
                    raise

    def _find(self, manifest: Manifest) -> Content:
        """Return the content that the run must have according to its manifest."""
        names = tuple(sorted(manifest.filled))
        for one in self.expected.seen:
            if (one.identity, one.phase, one.step, one.generation, tuple(name for name, _ in one.arrays)) == (
                manifest.identity, manifest.phase, manifest.step, manifest.generation, names,
            ):  # fmt: skip
                return one
        raise AssertionError(f"a process sees {manifest.phase} {manifest.identity} of step {manifest.step}, {names}")

    def _number(self) -> int:
        self.numbers += 1
        return self.numbers * 16

    # Reading and checking

    def _look(self) -> Content:
        """Read the whole run from disk, and return its content."""
        try:
            state = open_state(RUN, check=False)
        except InputError as error:
            assert "holds no Outcrop run" in str(error), error
            return ABSENT
        manifest = state.manifest
        found = Content(manifest.identity, manifest.phase, manifest.step, manifest.generation)
        if manifest.phase == NEW:
            return found
        if manifest.phase == IN_FLIGHT:
            (one,) = [one for one in self.expected.seen | self.expected.kept if _is_alike(one, manifest)][:1] or [found]
            return one
        state.check()
        for name in manifest.filled:
            with state.planes_of(name, "sync") as planes:
                cells = planes.read(0, self.shape[0])
            _check(cells, int(cells[0, 0, 0]))
            found = found.with_arrays([name], int(cells[0, 0, 0]))
        findings = find_damage(open_state(RUN))
        assert not findings.damage, findings.damage
        return replace(found, **self._records(state))

    def _records(self, state: State) -> dict[str, Any]:
        entries, step, own = self.definitions.entries, state.manifest.step, state.records
        found: dict[str, Any] = {}
        if entries.samplings:
            found["traces"] = tuple(np.frombuffer(own.read_file(".taps/trace-line", 8 * step), "<f8").tolist())
        if entries.norms:
            rows = np.frombuffer(own.read_file(".taps/norms-u", NORMS.itemsize * entries.norms.count(step)), NORMS)
            found["norms"] = tuple(rows["sum"].tolist())
        for one in entries.snapshots:
            values = []
            for number in range(one.count(step)):
                content = own.read_file(snapshot_name(one, "u", number), 4 * int(np.prod(self.shape)))
                values.append(int(np.frombuffer(content, "<f4")[0]))
                assert content == _snapshot(self.shape, values[-1])
            found["snapshots"] = tuple(values)
        return found


def _is_alike(one: Content, manifest: Manifest) -> bool:
    return (one.identity, one.phase, one.step) == (manifest.identity, manifest.phase, manifest.step)


def _source(value: int) -> Callable[[int, int], Any]:
    """Return a function that makes planes. Each cell is `value` plus the number of its plane. If `value` is 0, all
    cells are 0.
    """
    return lambda z0, z1: np.arange(z0, z1, dtype="f4")[:, None, None] * bool(value) + np.float32(value)


def _check(cells: Any, value: int) -> None:
    expected = np.broadcast_to(_source(value)(0, len(cells)), cells.shape)
    assert np.array_equal(cells, expected), f"planes {cells[:, 0, 0].tolist()} are not of one writing"


def _snapshot(shape: tuple[int, ...], value: int) -> bytes:
    return np.full(shape, value, "<f4").tobytes()
