"""`Report`: the measured figures of a run, and the predicted figures."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outcrop.axes import NAMES, x_first
from outcrop.display import Shown, as_html
from outcrop.errors import InputError, by_caller
from outcrop.paths import as_path, make_directory, remove_made
from outcrop.run import speeds
from outcrop.units import counted, format_bytes, format_rate, format_seconds

if TYPE_CHECKING:
    from outcrop.run.disk.manifest import Manifest
    from outcrop.run.engine import Engine, Prepared
    from outcrop.run.passes import PassRunner
    from outcrop.run.ranks.group import RankGroup


SMALL_SHARE = 0.01
"""The text of a report leaves out the time of other work if it is less than SMALL_SHARE of the whole time."""


@dataclass(frozen=True)
class Predicted:
    """The prediction of the plan. `assumed` gives the reason for each assumed speed. `assumed` can have the keys
    "updates" and "storage". `seconds_update`, `seconds_read` and `seconds_write` are the times that updates, reads and
    writes would each take alone. `seconds_transfer` is the time of reads and writes together. If several ranks compute
    the run, the predicted times are the times of the slowest rank. `storage_factor` is the factor with which an earlier
    run has corrected the measured speed of the disk. `storage_factor` is None if the speed of the disk does not come
    from the cache."""

    seconds: float
    bytes_read: int
    bytes_written: int
    memory_bytes: int
    assumed: dict[str, str]
    seconds_repeated: float = 0.0
    bytes_sent: int = 0
    seconds_update: float = 0.0
    seconds_read: float = 0.0
    seconds_write: float = 0.0
    bytes_snapshots: int = 0
    seconds_transfer: float = 0.0
    storage_factor: float | None = None


@dataclass(frozen=True)
class Report(Shown):
    """The measured figures of one `run`. In the JSON report, the keys are the names of the members of this class.

    `seconds` is the wall-clock time of all passes, from the first read to the last commit. `seconds_setup` is the time
    before the first read: compiling, measuring, planning and allocating memory. The other members with times are
    measured in the thread that interprets the plan: waiting for reads or writes, updating, copying rims, checksums, and
    commits. `seconds_snapshots` is the time in which the files of snapshots are made before each pass. `seconds_other`
    is the rest of `seconds`. `cells_updated` is the number of updates that the run has computed. If blocks or ranks
    overlap, the same update is computed several times, and `cells_updated` counts it each time.
    `cell_updates_per_second` counts each cell once for each step. Cells in rows of the rim do not count.
    `bytes_written` counts the arrays, and `bytes_snapshots` counts the snapshots and the history.

    `memory_peak_bytes` is the maximum resident memory of the whole process. `window_bytes` is the memory for planes.
    `taps_bytes` is the maximum memory for values of points and for snapshots that wait for the disk. `numa_nodes` is
    the number of NUMA nodes on which the window is distributed. `thread_layout` describes the threads and the NUMA
    nodes. `step` is the number of steps from the initial values to the committed `generation`. `warning` is a text for
    users if the parameters let values grow without bound, and "" otherwise. `not_tested` is the reason why the
    stability was not tested, and "" otherwise. `not_finite` has an entry for each field in which NaN or infinity was
    found. An entry of `not_finite` has two numbers: the first and the last step of the first pass in which NaN or
    infinity was found. Only a sample of the updated rows is searched for NaN and infinity. `steps_repeated` is the
    number of steps of the forward run that an adjoint run has repeated. An adjoint run repeats steps if the history is
    too small for all states. `seconds_repeated` is the time of the repeated steps. `seconds` does not include
    `seconds_repeated`. `seconds_transfer` is the time during which at least one read or write was in flight.

    If several ranks have computed the run, bytes and `cells_updated` are sums over all `ranks`. `bytes_sent` is the
    number of bytes that ranks have sent to neighbours. If several ranks have computed the run, times are the times of
    `slowest_rank`. `slowest_rank` is the rank that has waited least for other ranks. `seconds_face_wait` is the time in
    which this rank waited for rows of neighbours. `seconds_commit` includes the time in which this rank waited until
    all ranks had committed. `computed_once` contains a text for each function of static fields that was computed before
    the first step, such as "cos_theta = cos(theta)"."""

    stencil: str
    shape: tuple[int, ...]
    dtype: str
    steps: int
    step: int
    generation: int
    scheme: str
    io: str
    direct_io: bool
    threads: int
    numa_nodes: int
    thread_layout: str
    memory_budget_bytes: int
    memory_peak_bytes: int
    window_bytes: int
    taps_bytes: int
    seconds: float
    seconds_setup: float
    cells_updated: int
    cell_updates_per_second: float
    bytes_read: int
    bytes_written: int
    seconds_read_wait: float
    seconds_write_wait: float
    seconds_update: float
    seconds_copy: float
    seconds_checksum: float
    seconds_commit: float
    plan: dict[str, Any]
    predicted: Predicted
    warning: str = ""
    not_tested: str = ""
    not_finite: dict[str, tuple[int, int]] = field(default_factory=dict)
    steps_repeated: int = 0
    seconds_repeated: float = 0.0
    ranks: int = 1
    slowest_rank: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    seconds_face_wait: float = 0.0
    seconds_transfer: float = 0.0
    computed_once: tuple[str, ...] = ()
    axes: tuple[str, ...] = ()
    bytes_snapshots: int = 0
    seconds_snapshots: float = 0.0
    seconds_other: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return asdict(self)

    def followed_by(self, other: Report) -> Report:
        """Return one report for two parts of a run. This report is for the earlier part, and `other` is the report of
        the later part. Times, bytes and steps are added. The later plan is kept."""
        added = {
            one.name: getattr(self, one.name) + getattr(other, one.name)
            for one in fields(self)
            if one.name.startswith(("seconds", "bytes_", "cells_", "steps"))
        }
        both = self.predicted, other.predicted
        predicted = Predicted(
            sum(one.seconds for one in both), sum(one.bytes_read for one in both),
            sum(one.bytes_written for one in both), max(one.memory_bytes for one in both),
            {**self.predicted.assumed, **other.predicted.assumed}, sum(one.seconds_repeated for one in both),
            *(sum(getattr(one, name) for one in both)
              for name in ("bytes_sent", "seconds_update", "seconds_read", "seconds_write", "bytes_snapshots",
                           "seconds_transfer")),
        )  # fmt: skip
        updates = sum(one.cell_updates_per_second * one.seconds for one in (self, other))
        rate = updates / added["seconds"] if added["seconds"] else 0.0
        not_finite = {**other.not_finite, **self.not_finite}
        return replace(other, **added, predicted=predicted, cell_updates_per_second=rate, not_finite=not_finite)

    @property
    def standing(self) -> str:
        """A text with the step at which the run is complete. If the report cannot be written, the error message
        contains this text."""
        return f"the run itself is complete, at step {self.step}"

    @property
    def not_finite_text(self) -> str:
        """A text with the fields in which NaN or infinity was found, or ""."""
        return not_finite_text({name: f"steps {first} to {last}" for name, (first, last) in self.not_finite.items()})

    def save(self, path: str | Path) -> None:
        """Write the report as JSON, and create the directory of the file if it is missing. Raises InputError when the
        file cannot be written."""
        target = as_path(path, "report")
        try:
            made = make_directory(target.absolute().parent)
        except InputError as error:
            raise InputError(f"report {path} cannot be written: {error}; {self.standing}") from None
        try:
            target.write_text(json.dumps(self.to_json(), indent=2) + "\n")
        except OSError as error:
            remove_made(made)
            raise InputError(f"report {path} cannot be written: {error.strerror}; {self.standing}") from None

    def __str__(self) -> str:
        lines = [self.headline, f"  {'':<22}{'measured':>14}{'predicted':>14}"]
        lines += [f"  {name:<22}{measured:>14}{expected:>14}".rstrip() for name, measured, expected in self._figures()]
        return "\n".join([*lines, *(f"  {line}" for line in self._remarks())])

    def _repr_html_(self) -> str:
        return as_html(self.headline, self._figures(), ("", "measured", "predicted"), "; ".join(self._remarks()))

    @property
    def headline(self) -> str:
        """The problem, the time and the update rate, in one line of text."""
        size = " x ".join(map(str, x_first(self.shape, self.axes or NAMES[len(self.shape)])))
        head = f"{self.stencil} {size} {self.dtype}: {counted(self.steps, 'step')} in {format_seconds(self.seconds)}, "
        return head + f"{format_rate(self.cell_updates_per_second)}cell/s"

    def _figures(self) -> list[tuple[str, str, str]]:
        """Return rows with the name of a figure, its measured value and its predicted value."""
        guess = self.predicted
        rows = [
            ("time", format_seconds(self.seconds), format_seconds(guess.seconds)),
            ("  updates", format_seconds(self.seconds_update), ""),
            ("  waiting for reads", format_seconds(self.seconds_read_wait), ""),
            ("  waiting for writes", format_seconds(self.seconds_write_wait), ""),
            ("  checksums and rims", format_seconds(self.seconds_checksum + self.seconds_copy), ""),
            ("  waiting for links", format_seconds(self.seconds_face_wait), ""),
            ("  snapshot files", format_seconds(self.seconds_snapshots), ""),
            ("  commits", format_seconds(self.seconds_commit), ""),
            ("  other", format_seconds(self.seconds_other), ""),
            ("read", format_bytes(self.bytes_read), format_bytes(guess.bytes_read)),
            ("written", format_bytes(self.bytes_written), format_bytes(guess.bytes_written)),
            ("snapshots", format_bytes(self.bytes_snapshots), format_bytes(guess.bytes_snapshots)),
            ("sent over links", format_bytes(self.bytes_sent), format_bytes(guess.bytes_sent)),
            ("memory", format_bytes(self.window_bytes + self.taps_bytes), format_bytes(guess.memory_bytes)),
            ("process peak", format_bytes(self.memory_peak_bytes), ""),
        ]
        hidden = {"waiting for links", "sent over links"} if self.ranks == 1 else set[str]()
        if not (self.bytes_snapshots or guess.bytes_snapshots):
            hidden |= {"snapshot files", "snapshots"}
        if self.seconds_other < SMALL_SHARE * self.seconds:
            hidden.add("other")
        return [row for row in rows if row[0].strip() not in hidden]

    def _remarks(self) -> Iterator[str]:
        """Yield lines of text about the plan and about the figures."""
        guess, cache = self.predicted, "" if self.direct_io else ", through the page cache"
        yield (
            f"scheme {self.scheme}, {counted(self.plan['steps_per_pass'], 'step')} a pass, {self.thread_layout}, "
            f"{self.io}{cache}, budget {format_bytes(self.memory_budget_bytes)}"
        )
        if self.ranks > 1:
            yield (
                f"{self.ranks} ranks; bytes of all ranks, times of rank {self.slowest_rank}, which waited least; "
                "memory and threads of each rank"
            )
        if self.computed_once:
            yield f"computed once, before the first step: {'; '.join(self.computed_once)}"
        for why in dict.fromkeys(guess.assumed.values()):
            what = " and ".join(name for name, reason in guess.assumed.items() if reason == why)
            yield f"note: the prediction assumes the speed of {what}: {why}"
        yield from speeds.remarks(self)
        if self.steps_repeated:
            yield (
                f"note: {counted(self.steps_repeated, 'step')} of the forward run were repeated in "
                f"{format_seconds(self.seconds_repeated)}, predicted {format_seconds(guess.seconds_repeated)}"
            )
        if self.warning:
            yield f"note: {self.warning}"
        for name, (first, last) in self.not_finite.items():
            check = by_caller("--check-finite", "check_finite=True")
            limit = by_caller("outcrop stencils NAME for a built-in equation", "oc.stencils.stable_limit")
            yield (
                f"note: {name} has NaN or infinity, found after steps {first} to {last}; the time step may be too "
                f"large ({limit}), the equation may grow, or the input has such values ({check} tests the initial "
                "values)"
            )
        if self.not_tested:
            yield f"note: the stability was not tested: {self.not_tested}"


def not_finite_text(found: Mapping[str, str]) -> str:
    """Return a text with the fields in which NaN or infinity was found, or "". `found` maps the name of each such field
    to the steps of the pass in which NaN or infinity was found, such as "steps 5 to 6"."""
    names: dict[str, list[str]] = {}
    for name, steps in found.items():
        names.setdefault(steps, []).append(name)
    texts = (f"{', '.join(some)}, found after {steps}" for steps, some in names.items())
    return "; ".join(f"NaN or infinity in {text}" for text in texts)


def make_report(
    manifest: Manifest, prepared: Prepared, engine: Engine, runner: PassRunner, cells: int, seconds_setup: float,
    warning: str, not_tested: str,
) -> Report:  # fmt: skip
    """Return the report of a run. `cells` is the number of updates of the run, if each cell counts once for each step.
    If the process is a rank, only the cells of its part count."""
    guess, counters = prepared.plan.predicted, asdict(engine.sample())
    counters["seconds_commit"] += runner.seconds_commit + runner.seconds_agree
    counters["seconds_snapshots"] = runner.seconds_snapshots
    return Report(
        stencil=prepared.problem.stencil,
        shape=manifest.own_shape,
        axes=manifest.axis_names,
        dtype=manifest.dtype,
        steps=prepared.problem.steps,
        step=manifest.step,
        generation=manifest.generation,
        scheme=prepared.plan.scheme,
        io=engine.io,
        direct_io=engine.direct,
        threads=manifest.settings.threads,
        numa_nodes=prepared.numa_nodes,
        thread_layout=prepared.thread_layout,
        memory_budget_bytes=manifest.settings.memory_bytes,
        memory_peak_bytes=peak_memory_bytes(),
        window_bytes=engine.memory_bytes,
        taps_bytes=prepared.plan.acquisition_bytes,
        seconds=runner.seconds,
        seconds_setup=seconds_setup,
        cell_updates_per_second=cells / runner.seconds,
        plan=prepared.plan.to_json(),
        predicted=Predicted(
            guess.seconds, guess.bytes_read, guess.bytes_written, guess.memory_bytes, dict(prepared.assumed),
            bytes_sent=guess.bytes_sent, seconds_update=guess.seconds_update, seconds_read=guess.seconds_read,
            seconds_write=guess.seconds_write, seconds_transfer=guess.seconds_transfer,
            bytes_snapshots=prepared.plan.snapshot_bytes, storage_factor=prepared.storage_factor,
        ),
        seconds_other=_rest(runner.seconds, counters),
        warning=warning,
        not_tested=not_tested,
        not_finite=dict(runner.not_finite),
        computed_once=prepared.problem.computed_once,
        **counters,
    )


def _rest(seconds: float, parts: Mapping[str, Any]) -> float:
    """Return the part of `seconds` that remains after all measured times in `parts` have been subtracted."""
    names = ("update", "read_wait", "write_wait", "face_wait", "copy", "checksum", "commit", "snapshots")
    measured: float = sum(parts[f"seconds_{name}"] for name in names)
    return max(0.0, seconds - measured)


def of_all_ranks(group: RankGroup, mine: Report, shape: tuple[int, ...], cells: int) -> Report:
    """Return one report of all ranks. `mine` is the report of this rank. `shape` is the shape of the whole grid.
    `cells` is the number of updates of the cells of this rank, if each cell counts once for each step."""
    every = group.allgather([mine.to_json(), cells])
    reports = [one for one, _ in every]
    waited = [one["seconds_face_wait"] + one["seconds_commit"] for one in reports]
    slowest = waited.index(min(waited))
    summed = ("cells_updated", "bytes_read", "bytes_written", "bytes_snapshots", "bytes_sent", "bytes_received")
    largest = ("seconds", "seconds_setup", "memory_peak_bytes")
    fullest = max(reports, key=lambda one: one["window_bytes"] + one["taps_bytes"])
    found = {name: value for name, value in reports[slowest].items() if name not in ("predicted", "shape")}
    found |= {name: sum(one[name] for one in reports) for name in summed}
    found |= {name: max(one[name] for one in reports) for name in largest}
    found |= {name: fullest[name] for name in ("window_bytes", "taps_bytes")}
    found["seconds_other"] = _rest(found["seconds"], found)
    guesses = [one["predicted"] for one in reports]
    predicted = Predicted(
        max(one["seconds"] for one in guesses), sum(one["bytes_read"] for one in guesses),
        sum(one["bytes_written"] for one in guesses), max(one["memory_bytes"] for one in guesses),
        {what: why for one in guesses for what, why in one["assumed"].items()},
        bytes_sent=sum(one["bytes_sent"] for one in guesses),
        bytes_snapshots=sum(one["bytes_snapshots"] for one in guesses),
        storage_factor=guesses[slowest]["storage_factor"],
        **{f"seconds_{name}": guesses[slowest][f"seconds_{name}"] for name in ("update", "read", "write", "transfer")},
    )  # fmt: skip
    bad: dict[str, tuple[int, int]] = {}
    for one in reports:
        for name, (first, last) in one["not_finite"].items():
            bad[name] = min(bad.get(name, (first, last)), (first, last))
    found |= {
        "not_finite": bad, "computed_once": mine.computed_once, "shape": shape,
        "predicted": predicted, "ranks": group.size, "slowest_rank": slowest,
        "cell_updates_per_second": sum(one for _, one in every) / found["seconds"],
    }  # fmt: skip
    return Report(**found)


def peak_memory_bytes() -> int:
    """Return the maximum resident memory of this process, or 0 if Linux does not report the maximum."""
    # `getrusage` is not used, because its maximum includes the time before `exec`. Before `exec`, a new process has the
    # memory of the process by which it was started. Therefore the maximum of `getrusage` would be too large for a small
    # process that a large process has started.
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0
