"""This module executes the schedule (plan/history.py) of an adjoint run. An adjoint run needs a schedule if the disk is
too small for all states that the adjoint run reads.

    1   The adjoint run goes back in passes, as long as the states that it reads exist. Each pass is committed.
    2   After a commit, the states that no later pass needs are removed.
    3   If the next state is missing, the replay repeats a part of the forward run, and stores the missing states. This
        repeated part is called a sweep.

The replay is a copy of the forward run with its own directory (acquisition/history.py). The replay has the same inputs
as the forward run, so it computes the same bits. The replay keeps states, but no other results. A sweep begins with the
newest state before the missing state. Before a sweep, the values of the newest state before the missing state are
written to the replay. The schedule itself is not stored. After an interruption, the states on the disk and the step of
the adjoint run determine the next action."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path

import numpy as np

from outcrop.errors import InputError, InterruptedRun, StorageError, by_caller
from outcrop.plan.history import sweep, usable
from outcrop.run.acquisition.definitions import AcquisitionDefinitions, read_definitions
from outcrop.run.acquisition.history import KeptStates, StateFiles, keep_only, open_replay, remove_replay, replay_place
from outcrop.run.definition import definition_beside, stencil_of
from outcrop.run.disk.acquisition_files import continued, damage_of, damaged_snapshots, read_rows, write_rows
from outcrop.run.disk.entries import AcquisitionEntries, SnapshotsEntry, StatesEntry
from outcrop.run.disk.manifest import Settings
from outcrop.run.disk.state import State
from outcrop.run.places import open_state
from outcrop.run.progress import Whole, stage
from outcrop.run.report import Report
from outcrop.run.setup import set_up_beside
from outcrop.units import counted


def forward_state(states: StatesEntry, place: Path) -> State:
    """Return the state of the forward run that belongs to the adjoint run in `place`. Raises InputError if the forward
    run does not exist."""
    if not Path(states.run).is_absolute():
        raise InputError(f"{place} names the run with its states by {states.run!r}, which is not absolute")
    return open_state(Path(states.run))


def damaged_states(adjoint: State) -> tuple[list[str], int]:
    """Verify the states of the forward run that the remaining steps of an adjoint run read. Return a line for each
    damaged file, and the number of tested files. Raises InputError when another process executes the forward run, and
    StorageError when a record cannot be read."""
    own, states = adjoint.manifest, adjoint.manifest.states
    if states is None or own.step >= states.steps:
        return [], 0
    try:
        forward = forward_state(states, adjoint.path)
        StateFiles(forward, states, own.shape, own.dtype)
    except (InputError, StorageError) as error:
        return [str(error)], 1
    found = list[str]()
    for run in (forward, open_replay(forward)):
        entry = run.manifest.taps.history if run else None
        if run is None or entry is None:
            continue
        with run.locked(shared=True):  # the lock keeps other processes from freeing states during the test
            found += [damage_of(run.records, run.manifest, entry.record(field)) for field in entry.fields]
            step = min(run.manifest.step, states.steps - own.step)
            needed = replace(run.manifest, step=step, taps=AcquisitionEntries(snapshots=(entry,)))
            found += [damage for _, damage in damaged_snapshots(run.records, needed)]
    return [line for line in found if line], len(found)


def parts_of(states: StatesEntry, first_step: int, steps: int) -> list[int]:
    """Divide `steps` steps of an adjoint run into parts. The first step is `first_step`. Each pass must end at a state
    of the history. So the first part ends at the first state of the history that the adjoint run reaches. The second
    part has all steps after this state. Raises InputError if the last step is not at a state of the history."""
    first, every = (states.steps - first_step) % states.every, states.every
    if steps < first or (steps - first) % every:
        nearest = first + max(0, steps - first) // every * every or every
        raise InputError(
            f"steps {steps}: the states between two states of the history are computed again together, so the adjoint "
            f"run can stop at a state only; give {counted(nearest, 'step')}"
        )
    return [one for one in (first, steps - first) if one]


def run_segments(
    place: Path, states: StatesEntry, settings: Settings, first_step: int, parts: Sequence[int], progress: str,
    run: Callable[[int, Whole], Report],
) -> Report:
    """Execute the adjoint run in `place`, part by part, from step `first_step` on. `parts` contains the number of steps
    of each part. A call of the function `run` executes the steps of one part, for which all states exist, and shows the
    progress of all parts. Before each call of `run`, missing states are computed. After each call of `run`, the states
    that are no longer needed are freed."""
    forward, end = forward_state(states, place), first_step + sum(parts)
    history = forward.manifest.taps.history

    def whole(step: int) -> Whole:
        # the numbers of passes back to step 0 of the forward run: from `first_step`, from `step`, and from `end`
        passes = [-(-(states.steps - one) // states.every) for one in (first_step, step, end)]
        return Whole(first_step, end, passes[0] - passes[2], passes[0] - passes[1])

    if history is None or not history.slots or forward.manifest.identity != states.identity:
        every = (run(part, whole(first_step + sum(parts[:place]))) for place, part in enumerate(parts))
        return reduce(Report.followed_by, every)
    reports, step = list[Report](), first_step
    try:
        with forward.locked():
            replay = _Replay(forward, settings, place, progress)
            while step < end:
                # a pass that ends at a state of the history also needs the state before this state
                number, rest = divmod(states.steps - step - 1, states.every)
                begin = time.perf_counter()
                first, repeated, predicted = replay.bring(number)
                seconds = time.perf_counter() - begin
                part = rest + 1 if rest + 1 < states.every else (number + 1 - first) * states.every
                report = run(min(part, end - step), whole(step))
                step += report.steps
                if repeated:
                    guess = replace(report.predicted, seconds_repeated=predicted)
                    report = replace(report, steps_repeated=repeated, seconds_repeated=seconds, predicted=guess)
                reports.append(report)
            replay.free(-(-(states.steps - step) // states.every) - 1)
    except KeyboardInterrupt:  # the user has interrupted the run between two passes
        raise InterruptedRun(f"stopped; go on with: outcrop resume {place}") from None
    return reduce(Report.followed_by, reports)


class _Replay:
    """The states of a forward run and of its replay. The process that uses this object holds the lock of the forward
    run. The replay is computed with `settings`."""

    def __init__(self, forward: State, settings: Settings, place: Path, progress: str) -> None:
        self._forward, self._place, self._progress = forward, place, progress
        self._settings = replace(settings, scheme="auto", sizes={})
        self._stencil = stencil_of(forward.manifest, forward.path)

    def bring(self, number: int) -> tuple[int, int, float]:
        """Free all states that are later than state `number`. If state `number` is missing, compute state `number`.
        Return three values. The first value is the smallest number n for which all states from n to `number` exist. The
        second value is the number of repeated steps. The third value is the predicted time of the repeated steps, in
        seconds."""
        self.free(number)
        found, repeated, predicted = self._find(), 0, 0.0
        if number not in found:
            repeated, predicted = self._sweep(number, found)
            found = self._find()
        first = number
        while first - 1 in found:
            first -= 1
        return first, repeated, predicted

    def free(self, number: int) -> None:
        """Free all states with numbers above `number`, but never state 0 of the forward run. If `number` is -1, the
        adjoint run is complete, and the function deletes the replay."""
        keep_only(self._forward, range(max(1, number + 1)))
        if number < 0:
            remove_replay(self._forward)
        elif replay := open_replay(self._forward):
            with replay.locked():
                keep_only(replay, range(number + 1))

    def _find(self) -> dict[int, KeptStates]:
        """Return all states that exist, in ascending order."""
        runs = [one for one in (self._forward, open_replay(self._forward)) if one]
        every = {number: kept for kept in map(KeptStates, runs) for number in kept.numbers}
        return dict(sorted(every.items()))

    def _sweep(self, number: int, found: Mapping[int, KeptStates]) -> tuple[int, float]:
        """Run forward from the newest state before `number` to state `number`, and keep states that later passes need.
        Return the number of steps that were computed, and their predicted time in seconds."""
        entry = self._forward.manifest.taps.history
        assert entry is not None
        numbers = [one for one in found if one < number]
        if numbers[:1] != [0]:
            raise InputError(f"the history of {self._forward.path} has no state 0; run it again with "
                             f"{by_caller('--force', 'force=True')}")
        if (count := usable(numbers, entry.slots)) < len(numbers):
            self.free(numbers[count - 1])
        numbers = numbers[:count]
        replay, first = open_replay(self._forward) or self._made(found[0]), numbers[-1]
        if not first * entry.every <= replay.manifest.step < number * entry.every:
            _go_to(replay, found[first], first)
        step, last = replay.manifest.step, number * entry.every
        kept = [one for one in sweep(numbers, number, entry.slots) if one * entry.every > step]
        with replay.locked():
            _plan_states(replay, [*replay.manifest.taps.history.numbers(step), *kept])  # type: ignore[union-attr]
        return last - step, self._run(replay.path, step, last).predicted.seconds

    def _run(self, place: Path, step: int, last: int) -> Report:
        from outcrop.run.simulation import open as open_run

        given = self._settings
        text = f"computing steps {step + 1} to {last} of {self._forward.path} again"
        try:
            with stage(text, self._progress):
                return open_run(place, given.memory_bytes, given.threads, io=given.io).run(last - step, "none")
        except InterruptedRun:
            raise InterruptedRun(f"stopped; go on with: outcrop resume {self._place}") from None

    def _made(self, start: KeptStates) -> State:
        """Create the replay at step 0. `start` contains the values of state 0 of the forward run."""
        from outcrop.run.simulation import Simulation

        manifest, entry = self._forward.manifest, start.entry
        own = read_definitions(self._forward.records, manifest)
        acquisition = AcquisitionDefinitions(own.injections, snapshots=(replace(entry, kept=()),))
        definition = replace(definition_beside(manifest, self._stencil, acquisition), coordinates=None)
        place, settings = replay_place(self._forward), self._settings
        try:
            run = Simulation(set_up_beside(definition, place, manifest.step, settings, manifest.unstable, force=True))
        except InputError as error:
            if place.exists():
                raise InputError(f"{error}; delete {place}") from None
            raise
        planes = {one.name: self._forward.source_of(one.name) for one in manifest.given}
        run.assign_planes(planes | {field: start.planes(field, 0) for field in entry.fields})
        replay = open_replay(self._forward)
        assert replay is not None
        return replay


def _plan_states(replay: State, numbers: list[int]) -> None:
    """Commit `numbers` to the manifest of the replay. `numbers` contains the numbers of the states that exist, and of
    the states that the next steps will keep."""
    taps = replay.manifest.taps
    entry = taps.history
    assert entry is not None
    replay.change(taps=replace(taps, snapshots=(replace(entry, kept=tuple(numbers)),)))


def _go_to(replay: State, kept: KeptStates, number: int) -> None:
    """Commit state `number` as the current state of the replay. `kept` contains the values of state `number`. Later
    states of the replay must have been freed."""
    with replay.locked():
        manifest = replay.manifest
        entry = manifest.taps.history
        assert entry is not None
        step, io = number * entry.every, manifest.settings.io
        _plan_states(replay, list(entry.numbers(manifest.step)))
        replay.begin_writing()
        for field in entry.fields:
            with replay.target_planes(field, 1 - manifest.current, io) as planes:
                planes.fill(kept.planes(field, number))
                planes.flush()
        replay.commit(step, sums=_sums_at(replay, entry, step))


def _sums_at(replay: State, entry: SnapshotsEntry, step: int) -> dict[str, int]:
    """Return the checksums of the replay's records of snapshots at `step`. If the records have fewer rows than the
    replay has states at `step`, rows with the value 0 are added. The added rows belong to states that do not exist."""
    manifest, count = replay.manifest, entry.count(step)
    sums = dict(manifest.sums)
    for field in entry.fields:
        name = entry.record(field)
        rows = np.frombuffer(read_rows(replay.records, manifest, name), "<u4")[:count]
        added = np.zeros(count - len(rows), "<u4")
        if len(added):
            write_rows(replay.records, name, len(rows), added)
        sums[name] = continued(manifest.seed(name, 0), np.concatenate([rows, added]))
    return sums
