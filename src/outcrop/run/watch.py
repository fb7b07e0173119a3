"""Look at a run that another process computes, possibly on another computer. A `Watcher` does not disturb the run: it
takes no lock, writes nothing, and reads only the committed values of the run.

    manifest of each part ──► one generation of all parts ──► Glance: status, progress, rates, prediction
    new rows of traces and norms ─────────────────────────────┘

It is possible that the run does not exist yet, or that another run replaces the watched run. `look` returns a `Glance`
even if the run does not exist or was replaced. The status of a `Glance` is one of STATUSES.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outcrop.errors import InputError, OutcropError, by_caller
from outcrop.run.acquisition.views import (
    PORTION_BYTES,
    Envelope,
    FollowedRecord,
    NormRows,
    joined_envelope,
    joined_norms,
)
from outcrop.run.disk.entries import PaceEntry
from outcrop.run.disk.manifest import IN_FLIGHT, MANIFEST, MEMBER, NEW, Manifest, resume_command
from outcrop.run.disk.state import State
from outcrop.run.pace import has_ended, is_alive, is_locked
from outcrop.run.places import may_hold_run, storage_at
from outcrop.run.ranks.whole import as_whole, find_parts, holds_parts, to_one_generation, whole_place
from outcrop.units import format_seconds

NOT_STARTED, NO_VALUES, PREPARING, RUNNING, QUIET, INTERRUPTED, LOST, FINISHED = STATUSES = (
    "not started", "no values yet", "preparing", "running", "quiet", "interrupted", "lost", "finished",
)  # fmt: skip
"""The statuses of a run. PREPARING means that a process of this computer has the run, and has not begun the first pass
of its call: it compiles, measures speeds or makes the plan. QUIET means that a commit is overdue, and that it is
unknown whether a process still computes the run. LOST means that an interrupted pass has destroyed a run in place."""

MAX_RECORDS = 8
"""The maximum number of traces, and of fields with norms, that are read."""

PATIENCE_SECONDS, PATIENCE_PASSES = 30.0, 4
"""A commit is overdue if it has not come after PATIENCE_SECONDS and after the time of PATIENCE_PASSES passes."""

_ATTEMPTS = 5
_PAUSE_SECONDS = 0.05


@dataclass(frozen=True)
class Pace:
    """The measured and predicted figures of the latest call of `run`, for all parts together.

    `first_step` is the step at which the call began. `steps` is the number of steps of the call, and `steps_done` the
    number of its committed steps. `seconds` is the time of the committed steps. `committed` is the time of the last
    commit in seconds since 1970. Rates are for one second. A measured rate is None before the first commit.
    `not_finite` has an entry for each field in which NaN or infinity was found. In `not_finite`, the value of each
    field is the last step of the first pass in which NaN or infinity was found."""

    steps: int
    steps_done: int
    pass_steps: int
    seconds: float
    committed: float
    cells: int
    read: float | None
    written: float | None
    predicted_seconds: float
    predicted_read: float | None
    predicted_written: float | None
    not_finite: Mapping[str, int] = field(default_factory=dict)
    first_step: int = 0

    @property
    def step_seconds(self) -> float | None:
        """The measured time of a step in seconds. Before the first commit, the value is the predicted time."""
        if self.steps_done and self.seconds:
            return self.seconds / self.steps_done
        return self.predicted_seconds / self.steps if self.steps and self.predicted_seconds else None

    @property
    def updates(self) -> float | None:
        return self.cells * self.steps_done / self.seconds if self.steps_done and self.seconds else None

    @property
    def predicted_updates(self) -> float | None:
        return self.cells * self.steps / self.predicted_seconds if self.predicted_seconds else None

    @property
    def predicted_so_far(self) -> float:
        """The predicted time of the committed steps, in seconds."""
        return self.predicted_seconds * self.steps_done / self.steps if self.steps else 0.0


@dataclass(frozen=True)
class TraceGlance:
    """The first rows of a trace. `rows` is the number of rows. The steps of the rows are divided into equal ranges. For
    each range of steps, `envelope` has the largest absolute value of all points. If the trace cannot be read, `problem`
    is a text with the reason."""

    name: str
    field: str
    points: int
    rows: int
    envelope: tuple[float, ...]
    first_infinite: int | None
    problem: str = ""


@dataclass(frozen=True)
class NormGlance:
    """Some rows of the norms of a field, including the last row. If the norms cannot be read, `problem` is a text with
    the reason."""

    field: str
    rows: NDArray[np.void] | None
    problem: str = ""


@dataclass(frozen=True)
class Glance:
    """The committed progress of a run at the time `now`, in seconds since 1970. `run` describes the whole run, and
    `steps` contains the step of each part. `note` is a text for the user, for example the command that continues the
    run."""

    place: Path
    now: float
    status: str
    note: str = ""
    run: Manifest | None = None
    steps: tuple[int, ...] = ()
    pace: Pace | None = None
    traces: tuple[TraceGlance, ...] = ()
    norms: tuple[NormGlance, ...] = ()
    left_out: int = 0

    @property
    def step(self) -> int:
        return self.run.step if self.run else 0

    @property
    def fraction(self) -> float:
        """The committed share of all steps of the run."""
        return self.run.step / self.run.target_step if self.run and self.run.target_step else 0.0

    @property
    def age(self) -> float | None:
        """The time since the last commit. The clocks of two computers can differ, so the result is at least 0."""
        return max(0.0, self.now - self.pace.committed) if self.pace else None

    @property
    def seconds_left(self) -> float | None:
        """The time until the run is finished, or None if this time is not known."""
        if self.run is None or self.pace is None or self.status != RUNNING or self.pace.step_seconds is None:
            return None
        missing, age = self.run.target_step - self.run.step, self.age or 0.0
        at_least = max(0, missing - self.pace.pass_steps) * self.pace.step_seconds
        return max(at_least, missing * self.pace.step_seconds - age)

    @property
    def next_commit_seconds(self) -> float | None:
        """The time until the next commit. None if this time is not known, or if the commit is overdue."""
        if self.run is None or self.pace is None or self.status != RUNNING or self.pace.step_seconds is None:
            return None
        steps = min(self.pace.pass_steps, self.run.target_step - self.run.step)
        left = steps * self.pace.step_seconds - (self.age or 0.0)
        return left if left > 0 else None


class Watcher:
    """Looks at the run in `place`: a directory, a block device, or the directory of all parts of a run of several
    ranks. A `Watcher` keeps the values that it has read, so that the next look reads only new values."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._known: dict[Path, tuple[object, Manifest]] = {}
        self._records = _Records()

    def look(self, columns: int = 60, portion_bytes: int = PORTION_BYTES) -> Glance:
        """Return the committed progress of the run. Envelopes have at most `columns` values. At most `portion_bytes`
        bytes of each record are read. Raises InputError if `place` holds something that is not a run, or if the run is
        damaged."""
        if not has_begun(self.place):
            self._known.clear()
            return Glance(self.place, time.time(), NOT_STARTED, not_started(self.place))
        try:
            states = self._states()
        except InputError as error:
            if not _begins(self.place):
                raise
            return Glance(self.place, time.time(), NO_VALUES, f"its parts are being made ({error})")
        manifests = [one.manifest for one in states]
        steps, pace = tuple(one.step for one in manifests), _pace_of(manifests)
        to_one_generation(states)
        first = states[0].manifest
        run = as_whole(first) if len(states) > 1 else first
        now = time.time()
        status, note = _status_of(manifests, pace, now, states[0].path)
        glance = Glance(self.place, now, status, note, run, steps, pace)
        if status in (NO_VALUES, LOST):
            return glance
        traces, norms, left_out = self._records.look(states, columns, portion_bytes)
        return replace(glance, traces=traces, norms=norms, left_out=left_out)

    def _states(self) -> list[State]:
        """Return the newest committed state of each part. A commit replaces the manifest by renaming, so each manifest
        is complete. But parts commit at different times, and a new run can replace the run while manifests are read.
        Therefore the function tries again if the manifests do not fit together."""
        for attempt in range(_ATTEMPTS):
            try:
                place = whole_place(self.place)
                places = find_parts([place]) if holds_parts(place) else [place]
                states = [self._state(one) for one in places]
                to_one_generation([State(storage_at(one.path), one.manifest) for one in states])
            except InputError:
                if attempt == _ATTEMPTS - 1:
                    raise
                time.sleep(_PAUSE_SECONDS)
                continue
            break
        self._known = {one.path: self._known[one.path] for one in states}
        return states

    def _state(self, place: Path) -> State:
        storage, key = storage_at(place), _version_of(place)
        known = self._known.get(place)
        if known is None or key is None or known[0] != key:
            self._known[place] = known = (key, storage.read())
        return State(storage, known[1])


def not_started(place: Path, waits: bool = True) -> str:
    """Return a text about a run that does not exist yet. The text names a missing directory, because the name of the
    run may be wrong. `waits` is false if the caller does not look again."""
    outer = place.absolute().parent
    hint = "" if outer.is_dir() else f" (there is no directory {outer})"
    return f"waiting for a run in {place}{hint}; Ctrl-C ends this" if waits else f"there is no run in {place} yet{hint}"


def has_begun(place: Path) -> bool:
    """Return False if `place` does not exist, or if it is a directory without a run."""
    if may_hold_run(place) or holds_parts(place):
        return True
    return place.exists() and (not place.is_dir() or os.path.lexists(place / MEMBER))


def _begins(place: Path) -> bool:
    """Return True if `place` has parts of a run, and at least one part has no values yet. Other parts may then be
    missing."""
    for part in place.glob("rank-*"):
        with contextlib.suppress(OutcropError):
            if storage_at(part).read().phase == NEW:
                return True
    return False


def _version_of(place: Path) -> tuple[int, ...] | None:
    """Return numbers that differ after each commit of the run in `place`. Return None for a run on block devices."""
    try:
        found = os.stat(place / MANIFEST, follow_symlinks=False)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _pace_of(manifests: Sequence[Manifest]) -> Pace | None:
    """Return the figures of a run: the figures of all its parts together. The part with the fewest steps determines the
    times."""
    entries = [one.pace for one in manifests]
    if any(one is None for one in entries):
        return None
    paces: list[tuple[int, PaceEntry]] = [
        (one.step, one.pace) for one in manifests if one.pace is not None and one.pace.first_step <= one.step
    ]
    if len(paces) < len(manifests):  # the run has gone back to a step before its latest call
        return None
    step, slowest = min(paces, key=lambda pair: (pair[0] - pair[1].first_step, -pair[1].seconds))
    steps = slowest.last_step - slowest.first_step
    not_finite: dict[str, int] = {}
    for name, at in (item for _, one in paces for item in one.not_finite.items()):
        not_finite[name] = min(at, not_finite.get(name, at))
    return Pace(
        steps=steps,
        steps_done=min(step - slowest.first_step, steps),
        pass_steps=slowest.pass_steps,
        seconds=slowest.seconds,
        committed=slowest.begun + slowest.seconds,
        cells=sum(one.cells for _, one in paces),
        read=_sum_of_rates([(one.bytes_read, one.seconds) for _, one in paces]),
        written=_sum_of_rates([(one.bytes_written, one.seconds) for _, one in paces]),
        predicted_seconds=max(one.predicted_seconds for _, one in paces),
        predicted_read=_sum_of_rates([(one.predicted_bytes_read, one.predicted_seconds) for _, one in paces]),
        predicted_written=_sum_of_rates([(one.predicted_bytes_written, one.predicted_seconds) for _, one in paces]),
        not_finite=not_finite,
        first_step=slowest.first_step,
    )


def _sum_of_rates(pairs: Sequence[tuple[int, float]]) -> float | None:
    return sum(count / seconds for count, seconds in pairs) if all(seconds > 0 for _, seconds in pairs) else None


def _status_of(manifests: Sequence[Manifest], pace: Pace | None, now: float, path: Path) -> tuple[str, str]:
    """Return the status of a run and a note for the user. `path` is the directory of the first part."""
    if any(one.phase == NEW for one in manifests):
        return NO_VALUES, "its initial values are being written, or their writing was interrupted"
    first = manifests[0]
    if all(one.target_step == 0 for one in manifests):
        return NOT_STARTED, "it has initial values, and waits for its first steps"
    if all(one.step >= one.target_step for one in manifests) and first.phase != IN_FLIGHT:
        return FINISHED, ""
    entries = [one.pace for one in manifests if one.pace is not None]
    alive = [is_alive(one.process) for one in entries]
    resume = f"continue it with: {resume_command(first, path)}"
    is_ended = any(map(has_ended, entries))
    if (pace is None or is_ended) and first.phase != IN_FLIGHT and is_locked(path):
        return PREPARING, "its process compiles, measures speeds or makes the plan, and has not begun a pass yet"
    if is_ended and first.phase == IN_FLIGHT:
        again = by_caller("--force", "force=True")
        return LOST, f"a pass in place was interrupted after step {first.step}; start the run again with {again}"
    if is_ended:
        return INTERRUPTED, resume
    if pace is None:
        return QUIET, f"it has not taken a step since its values were written; {resume}"
    age, step_seconds = max(0.0, now - pace.committed), pace.step_seconds or 0.0
    if alive and all(alive):
        return RUNNING, ""
    if age > max(PATIENCE_SECONDS, PATIENCE_PASSES * pace.pass_steps * step_seconds):
        return QUIET, f"no commit for {format_seconds(age)}; if no process computes the run any more, {resume}"
    return RUNNING, ""


class _Records:
    """The traces and norms of a run, which grow while the run is watched."""

    def __init__(self) -> None:
        self._identities: list[str] = []
        self._followed: dict[tuple[int, str], tuple[FollowedRecord, Any]] = {}
        self._damage: dict[tuple[int, str], tuple[int, OutcropError]] = {}

    def look(
        self, states: Sequence[State], columns: int, portion_bytes: int
    ) -> tuple[tuple[TraceGlance, ...], tuple[NormGlance, ...], int]:
        """Return the traces, the norms, and the number of traces and norms that are left out."""
        identities = [one.manifest.identity for one in states]
        if identities != self._identities:
            self._identities, self._followed, self._damage = identities, {}, {}
        taps = states[0].manifest.taps
        names, fields = list(taps.traces), list(taps.norms.fields if taps.norms else ())
        left_out = max(0, len(names) - MAX_RECORDS) + max(0, len(fields) - MAX_RECORDS)
        traces = tuple(self._trace(name, states, columns, portion_bytes) for name in names[:MAX_RECORDS])
        return traces, tuple(self._norms(name, states, portion_bytes) for name in fields[:MAX_RECORDS]), left_out

    def _trace(self, name: str, states: Sequence[State], columns: int, portion_bytes: int) -> TraceGlance:
        taps = states[0].manifest.taps
        field = next(one.field for one in taps.samplings if one.name == name)
        about = TraceGlance(name, field, taps.traces[name], 0, (), None)
        envelopes, rows, problem = [], [], ""
        for rank, state in enumerate(states):
            points = state.manifest.own_taps.traces[name]
            if not points:
                continue
            try:
                record, kept = self._read(rank, f"trace-{name}", state, portion_bytes, points)
            except OutcropError as error:
                problem = problem or str(error)
                continue
            envelopes.append(kept)
            rows.append(record.rows)
        if problem or not envelopes:
            return replace(about, problem=problem)
        infinite = [one.first_infinite for one in envelopes if one.first_infinite is not None]
        found = joined_envelope(envelopes, min(rows), columns)
        return replace(about, rows=min(rows), envelope=tuple(found), first_infinite=min(infinite, default=None))

    def _norms(self, field: str, states: Sequence[State], portion_bytes: int) -> NormGlance:
        try:
            parts = [
                self._read(rank, f"norms-{field}", state, portion_bytes, None)[1].rows
                for rank, state in enumerate(states)
            ]
        except OutcropError as error:
            return NormGlance(field, None, str(error))
        return NormGlance(field, joined_norms(parts, states[0].manifest.part is not None))

    def _read(
        self, rank: int, name: str, state: State, portion_bytes: int, points: int | None
    ) -> tuple[FollowedRecord, Any]:
        """Read the new rows of a file of records. Return an object for the file, and the object that keeps its values.
        `points` is the number of points of a trace, and None for norms. Raises StorageError."""
        known, expected = self._followed.get((rank, name)), state.manifest.sums[name]
        damage = self._damage.get((rank, name))
        if damage and damage[0] == expected:  # a damaged record is read again only after the next commit
            raise damage[1]
        if known is None or known[0].is_beyond(state):
            row_bytes, _ = state.manifest.own_taps.records(0)[name]
            kept = NormRows(row_bytes) if points is None else Envelope(points)
            unit_bytes = row_bytes if points is None else 8
            known = FollowedRecord(name, row_bytes, unit_bytes, kept.take), kept
        try:
            known[0].read_on(state, portion_bytes)
        except OutcropError as error:
            self._followed.pop((rank, name), None)
            self._damage[rank, name] = expected, error
            raise
        self._followed[rank, name] = known
        return known
