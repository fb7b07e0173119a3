"""This module runs the passes of a plan, commits each pass, and reacts to Ctrl-C.

    calling thread:  show progress; on Ctrl-C ──► engine.cancel()
    worker thread:   run_pass ─► commit ─► run_pass ─► commit ...      after a cancel, stops within two planes

If the user presses Ctrl-C during a commit, the commit is still completed, because it takes only milliseconds. If a pass
of a run in place is stopped, the state of the run is lost. Therefore a run in place completes the current pass after
the first Ctrl-C. In a run in place, the second Ctrl-C stops the pass immediately."""

from __future__ import annotations

import logging
import math
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from types import FrameType

from outcrop import _core
from outcrop.errors import CommunicationError, CorruptionError, InterruptedRun, OutcropError, StorageError
from outcrop.plan.actions import SIDES
from outcrop.plan.cost import works_of
from outcrop.plan.plan import Plan
from outcrop.plan.ranks import neighbour_of
from outcrop.run.acquisition.history import StateFiles
from outcrop.run.acquisition.parts import PartRows
from outcrop.run.acquisition.recorder import Recorder, require_space
from outcrop.run.acquisition.views import Traces, new_snapshots
from outcrop.run.disk.acquisition_files import check_records
from outcrop.run.disk.manifest import Manifest, resume_command
from outcrop.run.disk.state import State
from outcrop.run.disk.values import complete, compute, require_fields
from outcrop.run.engine import NO_LINKS, Engine, Lead, Links, Prepared, Seeds
from outcrop.run.options import OnSnapshot
from outcrop.run.pace import new_pace, tell_stopped, with_measured
from outcrop.run.progress import INTERVAL_SECONDS, Progress, Standing, Whole, make_progress
from outcrop.run.ranks.agreement import Agreement
from outcrop.run.ranks.group import RankGroup, together
from outcrop.run.ranks.links import Link, RankPeers, linked
from outcrop.run.replay import forward_state
from outcrop.run.report import Report, make_report, of_all_ranks
from outcrop.run.setup import Setup
from outcrop.run.speeds import keep_speeds
from outcrop.run.stable import growing, refuse_unstable_change, refuse_unstable_run, untested
from outcrop.run.user_values import decode_signals, require_steps
from outcrop.units import counted, format_bytes

LOG = logging.getLogger("outcrop")


def execute(
    setup: Setup, state: State, prepared: Prepared, start: float, progress: str, on_snapshot: OnSnapshot | None,
    whole: Whole | None,
) -> Report:  # fmt: skip
    """Run all passes of a plan from the committed state. The calling process must hold the lock of the run. `start` is
    the time at which the setup of the run began."""
    description, stencil, lowered, group = setup.description, setup.stencil, setup.lowered, setup.group
    first_step, problem = state.manifest.step, prepared.problem
    last_step = first_step + problem.steps
    with ExitStack() as stack:
        with together(group):  # if one rank cannot begin a pass, no rank begins it
            state.require_whole()
            require_fields(state.manifest, state.manifest.filled)
            signals = decode_signals(description.signals)
            require_steps(stencil, description.dtype, signals, last_step, description.time_line)
            complete(state, description.settings.io, stencil.older_values)
            if has_changed := description.parameters != state.manifest.parameters:
                refuse_unstable_change(stencil, state, description.parameters, may_read=True)
            refuse_unstable_run(stencil, state)
            if state.manifest.own_taps:
                require_space(state.records, state.manifest, last_step)
            if has_changed:
                if state.manifest.taps:
                    check_records(state.records, state.manifest)
                # computed fields and the scales of sources are evaluated with the new parameters
                state.change(parameters=description.parameters, parameters_step=first_step)
            compute(state, stencil, setup.terms, description.parameters, description.settings)
            if has_changed:
                state.repair(state.manifest.sums)  # readers of Zarr find the parameters in the metadata
            links = stack.enter_context(_links(setup)) if group else NO_LINKS
            updated = PartRows.of(description, prepared.plan) if group else None
            peers = RankPeers(group, links) if group else None
            names = [one.name for one in setup.kernel_stencil.fields]
            recorder = Recorder(state, names, description.settings.io, peers, updated)
            engine = stack.enter_context(_engine(setup, state, prepared, links))
            # an adjoint run is finished only when it has gone back to the first step of its forward run
            target_step = max(last_step, description.max_step)
            (first_row, end_row), (first_plane, end_plane) = problem.own_rows, problem.own_planes
            # planes and rows of a fixed rim are not counted, because they are not updated
            step_cells = (end_plane - first_plane) * (end_row - first_row) * problem.shape[2]
        with together(group):
            # The number of requested steps is stored after the last check of all ranks. A command that is refused must
            # not change the number of requested steps.
            state.change(
                target_step=target_step, settings=description.settings, signals=description.signals,
                pace=new_pace(prepared.plan, first_step, step_cells),
            )  # fmt: skip
        _log_start(state, prepared, engine)
        runner = PassRunner(engine, state, prepared.plan, recorder, on_snapshot, group)
        cells = step_cells * problem.steps
        computed = sum(work.cells for _, work in works_of(problem, prepared.plan.passes)) * problem.steps
        redundancy = computed / max(1, problem.levels * cells) or 1.0
        seconds_setup = time.perf_counter() - start
        if group and group.rank:
            progress = "none"
        # Rank 0 shows the progress of all ranks, and assumes that all ranks are equally fast.
        share = problem.cells / math.prod(description.whole_layout.shape)
        in_all = round(cells / share)
        try:
            shown = make_progress(progress, len(prepared.plan.passes), first_step, last_step, in_all, whole)
            runner.run(shown, share, redundancy)
        finally:
            if lowered is not None:
                traces = Traces(state.reader(), description)
                lowered.put_traces({name: traces[name][first_step:] for name in lowered.receivers}, first_step)
        is_judged = not state.manifest.unstable
        warning = "" if is_judged else growing(stencil, state) or ""
        not_tested = untested(stencil, state.manifest) if is_judged else ""
        report = make_report(state.manifest, prepared, engine, runner, cells, seconds_setup, warning, not_tested)
        keep_speeds(report, prepared, setup)
        return of_all_ranks(group, report, description.whole_shape, cells) if group else report


def _log_start(state: State, prepared: Prepared, engine: Engine) -> None:
    """Log the beginning of a run. For each setting that was preferred but not possible, log a warning."""
    plan, manifest = prepared.plan, state.manifest
    LOG.info(
        "%s: %s from step %d: %s in %s, scheme %s, %s, %s, %s of memory", state.path, prepared.problem.stencil,
        manifest.step, counted(prepared.problem.steps, "step"), counted(len(plan.passes), "pass", "es"), plan.scheme,
        engine.io, prepared.thread_layout, format_bytes(plan.memory_bytes),
    )  # fmt: skip
    if engine.store.note:
        LOG.warning("%s: %s", state.path, engine.store.note)
    for what, why in prepared.assumed.items():
        LOG.info("%s: the plan assumes the speed of %s: %s", state.path, what, why)


def _engine(setup: Setup, state: State, prepared: Prepared, links: Links) -> Engine:
    io = setup.description.settings.io
    first, second = state.files(0), [] if state.manifest.in_place else state.files(1)
    states = lead = None
    if read := state.manifest.states:
        other = forward_state(read, state.path)
        states = StateFiles(other, read, state.manifest.shape, state.manifest.dtype)
        lead = Lead(other, read, read.forward, io) if read.forward else None
    statics = state.static_files()[: prepared.problem.statics]
    return Engine(
        prepared, first, second, statics, state.layout, io, scratch=state.scratch, states=states,
        lead=lead, links=links,
    )  # fmt: skip


@contextmanager
def _links(setup: Setup) -> Iterator[Links]:
    """Connect this rank with its neighbours, and yield the links in the form that the core needs."""

    def as_link(link: Link | None) -> _core.Link | None:
        return None if link is None else _core.Link(link[0].fileno(), f"rank {link[1]}")

    group, part = setup.group, setup.description.part
    assert group is not None and part is not None
    whole = setup.whole_problem(1)
    neighbours = [neighbour_of(whole, part.cut, group.rank, side, part.planes) for side in SIDES]
    with linked(group, neighbours) as links:
        yield tuple(map(as_link, links))


class PassRunner:
    """Runs all passes of `plan`, starting from the committed state. `seconds` is the measured time of all passes,
    including `seconds_commit` for commits.

    `recorder` handles the acquisition of each pass. After the commit of a pass, the thread that called `run` calls
    `on_snapshot` for the snapshots of the pass. While `on_snapshot` runs, a worker thread computes the next passes. The
    ranks in `group` agree on each generation while they compute the next pass (ranks/agreement.py). `seconds_agree` is
    the time that this rank waited until the ranks had agreed. `seconds_snapshots` is the time in which `recorder` has
    prepared passes: usually, it is the time to make the files of snapshots. `not_finite` has the fields in which NaN or
    infinity was found. The value of each field in `not_finite` is a pair: the first and the last step of the first pass
    in which NaN or infinity was found."""

    def __init__(
        self, engine: Engine, state: State, plan: Plan, recorder: Recorder, on_snapshot: OnSnapshot | None = None,
        group: RankGroup | None = None,
    ) -> None:  # fmt: skip
        self._engine, self._state, self._plan, self._recorder = engine, state, plan, recorder
        self._on_snapshot, self._shown_step = on_snapshot, state.manifest.step
        self._group, self._agreement = group, Agreement(group, state) if group else None
        self._first_step = state.manifest.step
        self._passes_done = 0
        self._stop_after_pass = False
        self._error: BaseException | None = None
        self._ended = threading.Event()
        self.seconds = self.seconds_commit = self.seconds_agree = self.seconds_snapshots = 0.0
        self.not_finite: dict[str, tuple[int, int]] = {}

    def run(self, progress: Progress, share: float = 1.0, redundancy: float = 1.0) -> None:
        """Run all passes and show progress. `share` is the share of the grid that this rank has. `redundancy` is the
        number of updates that the plan computes for each cell and step. It is above 1 if blocks or ranks overlap.
        Raises InterruptedRun after Ctrl-C. Raises StorageError or CorruptionError when storage fails. Raises
        CommunicationError when another rank fails or is gone. The message of the error names the last step whose values
        are intact."""
        with closing(self._agreement) if self._agreement else nullcontext():
            self._run(progress, share, redundancy)

    def _run(self, progress: Progress, share: float, redundancy: float) -> None:
        worker = threading.Thread(target=self._work, name="outcrop-passes")
        watching = self._group.watching(self._engine.cancel) if self._group else nullcontext()
        with watching, _interrupts_call(self._interrupt), progress:
            worker.start()
            try:
                while not self._ended.wait(INTERVAL_SECONDS):
                    progress.show(self._standing(share, redundancy))
                    self._show_snapshots()
                progress.finish(self._standing(share, redundancy))
                self._show_snapshots()
            except BaseException as error:  # if the display fails, the worker must end before the error is raised
                if self._group is not None:
                    self._group.fail(str(error) or type(error).__name__)
                self._engine.cancel()
                raise
            finally:
                worker.join()
                if isinstance(self._error, CommunicationError | InterruptedRun):
                    tell_stopped(self._state)
        if self._group is not None and self._error is not None:
            self._tell(self._group, self._error)
        if isinstance(self._error, InterruptedRun):
            raise InterruptedRun(f"stopped; {self._intact_text()}") from None
        if isinstance(self._error, StorageError):
            # If the run was deleted, the error and `_intact_text` contain the same text. `dict.fromkeys` removes the
            # second copy of the text from the message.
            parts = dict.fromkeys([str(self._error), self._intact_text()])
            told = type(self._error)("; ".join(parts))
            told.is_told_elsewhere = self._error.is_told_elsewhere
            raise told from None
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        start = time.perf_counter()
        try:
            if self._agreement is not None:
                self._agreement.start()
                self.seconds_agree += time.perf_counter() - start
            for index, one in enumerate(self._plan.passes):
                if self._stop_after_pass:
                    raise InterruptedRun
                self._state.begin_writing()
                manifest, steps = self._state.manifest, self._plan.problem.steps_of(one.levels)
                before = time.perf_counter()
                acquisition = self._recorder.before(manifest.step, steps)
                self.seconds_snapshots += time.perf_counter() - before
                sources, targets, statics = self._state.seeds()
                seeds = Seeds(sources, targets, statics[: self._plan.problem.statics])
                LOG.debug("%s: pass %d of %d begins", self._state.path, index + 1, len(self._plan.passes))
                results = self._engine.run_pass(
                    index, manifest.current, manifest.step, acquisition, seeds, self._wait_for_ranks
                )
                self._wait_for_ranks()
                before = time.perf_counter()
                sums = self._recorder.after(manifest.step, results)
                self._state.check(spare=True)  # files that were deleted during the pass must not be committed
                sample = self._engine.sample()
                self._look_for_nan(manifest, manifest.step + steps)
                last_steps = {name: last for name, (_, last) in self.not_finite.items()}
                pace = with_measured(
                    manifest.pace, before - start, sample.bytes_read, sample.bytes_written, last_steps
                )
                self._state.commit(manifest.step + steps, sums=sums, pace=pace)
                seconds = time.perf_counter() - before
                self.seconds_commit += seconds
                self._passes_done += 1
                now = self._state.manifest
                LOG.info(
                    "%s: pass %d of %d, committed step %d as generation %d in %.3f s", self._state.path, index + 1,
                    len(self._plan.passes), now.step, now.generation, seconds,
                )  # fmt: skip
                if self._agreement is not None:
                    self._agreement.begin()
            self._wait_for_ranks()
        except BaseException as error:  # `run` raises this error in the calling thread
            LOG.warning("%s: stopped after step %d: %s", self._state.path, self._state.manifest.step,
                        str(error) or type(error).__name__)  # fmt: skip
            self._error = error
        self.seconds = time.perf_counter() - start
        self._ended.set()

    def _look_for_nan(self, manifest: Manifest, last_step: int) -> None:
        """Store the names of the fields to which the last pass wrote NaN or infinity. `last_step` is the last step of
        this pass."""
        for number in self._engine.not_finite():
            field, steps = manifest.state[number].field, (manifest.step + 1, last_step)
            if field not in self.not_finite:
                LOG.warning("%s: %s has NaN or infinity after steps %d to %d", self._state.path, field, *steps)
                self.not_finite[field] = steps

    def _wait_for_ranks(self) -> None:
        """Wait until all ranks have committed the previous pass. Until all ranks have committed the previous pass, this
        rank must not overwrite its older copy on disk. The rank may have to go back to the older copy."""
        if self._agreement is not None:
            before = time.perf_counter()
            self._agreement.wait()
            self.seconds_agree += time.perf_counter() - before

    def _tell(self, group: RankGroup, error: BaseException) -> None:
        """Tell the other ranks that this rank has failed. If another rank has stopped this rank, raise the error of the
        group. But if the ranks could not agree on a generation, the rank raises the error of the agreement."""
        if isinstance(error, CommunicationError) and group.end is None:
            number = re.search(r"rank (\d+)", str(error))  # the name that `_links` has given to the link
            group.lost(int(number[1]) if number else group.rank)
        elif isinstance(error, InterruptedRun):
            group.fail("stopped", is_interrupt=True)
        elif not isinstance(error, CommunicationError):
            group.fail(str(error) or type(error).__name__)
        if isinstance(error, CommunicationError | InterruptedRun):
            assert self._agreement is not None
            self._agreement.close()
            failure = self._agreement.failure
            if not isinstance(failure, CommunicationError | InterruptedRun | None):
                self._error = failure  # all ranks report this error, even if another rank has stopped this pass first
                return
            raise group.error(self._intact_text()) from None

    def _show_snapshots(self) -> None:
        """Call `on_snapshot` for each snapshot that was committed since the last call."""
        step = self._state.manifest.step
        if self._on_snapshot and step > self._shown_step:
            for number, kept in new_snapshots(self._state, self._shown_step, step):
                self._on_snapshot(number, kept)
        self._shown_step = step

    def _interrupt(self) -> None:
        if self._state.manifest.in_place and not self._stop_after_pass:
            self._stop_after_pass = True
            with suppress(OSError):  # the pass continues even if standard error is closed
                print("finishing this pass, or an in-place run is lost; Ctrl-C again stops at once", file=sys.stderr)
        else:
            if self._group is not None:
                self._group.fail("stopped", is_interrupt=True)
            self._engine.cancel()

    def _standing(self, share: float, redundancy: float) -> Standing:
        sample = self._engine.sample()
        steps = self._state.manifest.step - self._first_step
        counts = sample.cells_updated / redundancy, sample.bytes_read, sample.bytes_written
        cells, read, written = (round(count / share) for count in counts)
        note = f"{', '.join(self.not_finite)}: NaN or infinity" if self.not_finite else ""
        return Standing(self._passes_done, steps, cells, read, written, note)

    def _intact_text(self) -> str:
        manifest, path = self._state.manifest, self._state.path
        try:
            self._state.check()
            self._state.require_whole()
            is_damaged = isinstance(self._error, CorruptionError) or bool(self._state.lost_shards())
        except OutcropError as error:
            return str(error)
        step = manifest.step
        if self._agreement is not None:
            self._agreement.close()  # `_tell` has ended the group, so that no agreement is pending any more
            step = self._agreement.step
        committed = f"step {step} of {manifest.target_step}"
        if is_damaged:  # the damage is probably in the committed state
            return f"{committed} is the last committed step; test it with: outcrop verify {path}"
        return f"{committed} is intact; go on with: {resume_command(manifest, path)}"


@contextmanager
def _interrupts_call(action: Callable[[], None]) -> Iterator[None]:
    """While the body of the `with` runs, Ctrl-C calls `action`. Without this function, Python would raise
    KeyboardInterrupt anywhere, for example while the progress bar is drawn."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can set handlers
        return

    def handle(number: int, frame: FrameType | None) -> None:
        action()

    # Only signal handlers that are Python functions are replaced. If the program ignores a signal, the signal is still
    # ignored. If a signal ends the process, it still ends the process.
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    replaced = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number in replaced:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler)
