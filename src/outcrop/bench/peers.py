"""`outcrop bench peers`: compare runs in memory with other programs that compute the same kind of stencil in memory.

    `Devito`   A Python package. The benchmark measures Devito if the package is installed.
    `Girih`    Diamond tiling with wavefronts of several threads. `--girih` has the path of its program mwd_kernel.
    `YASK`     Vector folding and temporal blocking. `--yask` has the path of the directory with its kernels.

All programs update the same number of cells in float32. The cells of the rim keep their values and do not count. All
programs run on the same processors with the same number of threads, and their threads are bound to cores. For programs
other than Outcrop, the environment variables OMP_NUM_THREADS and OMP_PROC_BIND set the number and the binding of
threads.

In a first run, each program is compiled and tuned. The set-up time is the wall-clock time of the first run minus the
time of its steps. After the first run, the programs are measured in several turns. In each turn, a new process of each
program updates the cells with the tuned sizes. Each process reports only the time of its steps. A rate is the number of
cells times the number of steps, divided by the reported time. The benchmark compares the medians of the rates.

Outcrop and Devito start from the same values, and the benchmark compares three planes of their results. Girih and YASK
start from their own values, so their results are not compared. Each measured stencil of Girih or YASK has the same
number of arrays as the stencil of Outcrop, and reads the same neighbours of a cell. But the coefficients are different.
Girih can compute more steps than requested, because it rounds the number of steps up.
"""

from __future__ import annotations

import importlib.util
import math
import os
import re
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from outcrop.bench import devito, rates
from outcrop.bench.figures import first_figures, new_folder, table_head, table_row
from outcrop.bench.stencils import CASES, StencilCase, StencilScale, make_run, require_room, shape_of
from outcrop.errors import InputError, StorageError
from outcrop.plan.planner import largest_useful_bytes
from outcrop.run.simulation import open as open_simulation
from outcrop.tiers import discover
from outcrop.units import format_rate

FULL = StencilScale(grid_bytes=1 << 30, repeats=5, settle_seconds=1)
SMALL = StencilScale(grid_bytes=1 << 20, repeats=1, settle_seconds=0, plane_divisor=8, max_steps=4)
DEFAULT = "heat2,acoustic8"
KNOWN = {case.name: case for case in CASES if case.name.startswith(("heat", "acoustic"))}
TUNED_PLANES = 64
"""The maximum number of planes of the grids on which Girih and YASK are tuned. A small number is enough, because the
tuned sizes depend mainly on the other axes."""
MAX_TUNING_SECONDS, MAX_SECONDS = 20, 1800
"""Two time limits for Girih and YASK. MAX_TUNING_SECONDS limits a run that tunes. A tuning run that exceeds
MAX_TUNING_SECONDS is ignored. If all tuning runs exceed this limit, the first tuning run is repeated without the limit.
MAX_SECONDS limits every run."""


@dataclass(frozen=True)
class Job:
    """The work of one run. `cells` is (nz, ny, nx), the shape of the cells that are updated."""

    case: StencilCase
    cells: tuple[int, int, int]
    steps: int
    threads: int

    @property
    def radius(self) -> int:
        return max(self.case.stencil.radii)


@dataclass(frozen=True)
class Timing:
    """The result of one run: the time of `steps` steps without set-up, and the tuned sizes. `version` contains the
    version of the program and its compiler options, if the program reports them."""

    seconds: float
    steps: int
    tuned: dict[str, int] = field(default_factory=dict)
    version: str = ""


class Peer(ABC):
    """Another program. `name` is the name of the program in tables."""

    name: str

    @abstractmethod
    def covers(self, case: StencilCase) -> bool:
        """Return True if the program has a stencil with the same arrays and neighbours as the stencil of the case."""

    @abstractmethod
    def tune(self, job: Job) -> Timing:
        """Let the program choose its sizes. The result has these sizes. Raises StorageError if the program fails."""

    @abstractmethod
    def measure(self, job: Job, tuned: Mapping[str, int]) -> Timing:
        """Measure a run with tuned sizes. Raises StorageError if the program fails."""


class Devito(Peer):
    """In `outcrop bench peers`, Devito computes the equations of the module `devito`. Devito writes some planes of the
    result to `planes_file`."""

    name = "Devito"

    def __init__(self, planes_file: Path) -> None:
        self.planes_file = planes_file

    def covers(self, case: StencilCase) -> bool:
        return devito.has_equivalent(case.name)

    def tune(self, job: Job) -> Timing:
        return self._run(job, None)

    def measure(self, job: Job, tuned: Mapping[str, int]) -> Timing:
        return self._run(job, dict(tuned))

    def _run(self, job: Job, blocks: dict[str, int] | None) -> Timing:
        asked = devito.Request(job.case.name, job.cells, job.steps, blocks, str(self.planes_file))
        answer = devito.measure(asked)
        return Timing(answer.seconds, job.steps, answer.blocks, answer.version)


class OtherProgram(Peer):
    """Another program that is controlled by options on its command line. The program prints its tuned sizes and its
    time."""

    @abstractmethod
    def trials(self, job: Job) -> Sequence[dict[str, int]]:
        """Return a list of options, with one entry for each tuning run: a run in which the program tunes its sizes. The
        measured runs use the sizes of the fastest tuning run."""

    @abstractmethod
    def command(self, job: Job, given: Mapping[str, int]) -> list[str]:
        """Return the command line of a run. If `given` has all sizes, the program does not tune its sizes."""

    @abstractmethod
    def parse(self, text: str, job: Job) -> Timing:
        """Return the figures in `text`, the output of the program. Raises StorageError if the output belongs to a run
        other than `job`."""

    def tune(self, job: Job) -> Timing:
        smaller = replace(job, cells=(min(job.cells[0], TUNED_PLANES), *job.cells[1:]))
        trials, found, failure = self.trials(job), list[Timing](), None
        for trial in trials:
            try:
                found.append(self._run(smaller, trial, MAX_TUNING_SECONDS))
            except subprocess.TimeoutExpired:
                print(f"  {self.name} tunes for more than {MAX_TUNING_SECONDS} s with {sizes_text(trial)}", flush=True)
            except StorageError as error:  # the program may still work with the other options
                failure = error
                print(f"  {error} (with {sizes_text(trial)})", flush=True)
        if failure is not None and not found:
            raise failure
        found = found or [self.measure(smaller, trials[0])]
        return min(found, key=lambda one: one.seconds / one.steps)

    def measure(self, job: Job, tuned: Mapping[str, int]) -> Timing:
        try:
            return self._run(job, tuned, MAX_SECONDS)
        except subprocess.TimeoutExpired:
            raise StorageError(f"{self.name} needs more than {MAX_SECONDS} s for {job.case.name}") from None

    def _run(self, job: Job, given: Mapping[str, int], max_seconds: int) -> Timing:
        command = self.command(job, given)
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=max_seconds)
        except OSError as error:
            raise StorageError(f"{self.name}: {command[0]} does not start: {error.strerror}") from None
        if done.returncode != 0:
            lines = (done.stderr.strip() or done.stdout.strip()).splitlines() or [f"exit code {done.returncode}"]
            raise StorageError(f"{self.name} failed on {job.case.name}: {lines[-1]}")
        return self.parse(done.stdout, job)

    def found(self, pattern: str, text: str) -> re.Match[str]:
        """Return the last match of `pattern` in the output of the program. Raises StorageError if no line matches."""
        matches = list(re.finditer(f"^{pattern}", text, flags=re.M))
        if not matches:
            raise StorageError(f"the output of {self.name} has no line {pattern!r}")
        return matches[-1]

    def require(self, what: str, found: object, expected: object) -> None:
        if found != expected:
            raise StorageError(f"{self.name} has {what} {found}, but {expected} is needed")


GIRIH_KERNELS = {"heat2": 1, "acoustic8": 0}
"""The numbers of Girih's stencils. The first stencil has 7 points and constant coefficients. The second stencil has 25
points and one coefficient for each cell, and is of second order in time."""
GIRIH_TYPES = (
    "Wavefront",
    "Fixed execution wavefronts",
    "Relaxed synchronization wavefront",
    "Relaxed synchronization wavefront with fixed execution",
)
"""The names of the types of wavefronts in the output. The number of a type is its place in this list."""
GIRIH_SIZES = {
    "thread-group-size": "Thread group size",
    "t-dim": "Time unroll",
    "num-wavefronts": "Multi-wavefront updates",
    "thx": "Threads along x-axis",
    "thy": "Threads along y-axis",
    "thz": "Threads along z-axis",
}
"""The options of the sizes that Girih tunes, and their names in the output."""


class Girih(OtherProgram):
    """The program mwd_kernel of Girih (KAUST), built with single precision. Time stepper 2 has diamond tiling.

    Girih tunes the diamond (`t-dim`), the wavefronts and the shape of groups of threads. The benchmark tries each size
    of a group separately, because Girih can tune large groups for minutes. Girih does not tune the type of wavefronts,
    so the benchmark also tries two types. Type 2 of wavefronts works only for stencils of radius 1. In groups of one
    thread, the two types of wavefronts do not differ.
    """

    name = "Girih"

    def __init__(self, path: Path) -> None:
        if not path.is_file() or not os.access(path, os.X_OK):
            raise InputError(f"--girih {path} is not a program; give the path of Girih's mwd_kernel")
        self.path = path.absolute()

    def covers(self, case: StencilCase) -> bool:
        return case.name in GIRIH_KERNELS

    def trials(self, job: Job) -> Sequence[dict[str, int]]:
        sizes = [size for size in range(2, job.threads + 1) if job.threads % size == 0]
        types = (0, 2) if job.radius == 1 else (0,)
        groups = [{"mwd-type": one, "thread-group-size": size} for size in sizes for one in types]
        return [{"mwd-type": 0, "thread-group-size": 1}, *groups]

    def command(self, job: Job, given: Mapping[str, int]) -> list[str]:
        nz, ny, nx = job.cells
        words = {
            "target-ts": 2, "target-kernel": GIRIH_KERNELS[job.case.name], "n-tests": 1, "verbose": 1,
            "nx": nx, "ny": ny, "nz": nz, "nt": job.steps, **given,
        }  # fmt: skip
        return [str(self.path), *(word for name, value in words.items() for word in (f"--{name}", str(value)))]

    def parse(self, text: str, job: Job) -> Timing:
        self.found("COMPLETED SUCCESSFULLY", text)
        domain = self.found(r"Global domain +size:\d+ +nx:(\d+) +ny:(\d+) +nz:(\d+)", text)
        self.require("the grid", tuple(map(int, domain.groups()))[::-1], job.cells)
        self.require("precision", self.found("Precision: (..)", text)[1], "SP")
        self.require("threads", int(self.found(r"OpenMP Threads: (\d+)", text)[1]), job.threads)
        strategy = self.found("Wavefront parallel strategy: (.*)", text)[1].strip()
        tuned = {"mwd-type": GIRIH_TYPES.index(strategy)}
        tuned |= {option: int(self.found(rf"{name} *: *(\d+)", text)[1]) for option, name in GIRIH_SIZES.items()}
        steps = int(self.found(r"Number of time steps: (\d+)", text)[1])
        return Timing(float(self.found(r"time/test\(s\): (\S+)", text)[1]), steps, tuned)


YASK_STENCILS = ("3axis", "iso3dfd")
"""YASK's stencils for the heat equation and for acoustic waves."""


class Yask(OtherProgram):
    """The kernels of YASK (Intel) for its stencils 3axis and iso3dfd, with single precision. The names of the kernels
    are yask_kernel.3axis.ARCH.exe and yask_kernel.iso3dfd.ARCH.exe. Each kernel has one radius. The name of a kernel
    does not show its radius.

    YASK tunes the sizes of blocks. YASK does not tune the number of steps of a block (`bt`), so the benchmark tries
    several numbers. In YASK, neighbours along the first axis are farthest apart in memory.
    """

    name = "YASK"

    def __init__(self, path: Path) -> None:
        self.kernels = {
            stencil: sorted(path.absolute().glob(f"yask_kernel.{stencil}.*.exe")) for stencil in YASK_STENCILS
        }
        for stencil, found in self.kernels.items():
            if len(found) > 1:
                raise InputError(f"--yask {path} has {len(found)} kernels of {stencil}; leave only one of them there")
        if not any(self.kernels.values()):
            names = " or ".join(f"yask_kernel.{stencil}.ARCH.exe" for stencil in YASK_STENCILS)
            raise InputError(f"--yask {path} has no file {names}; give the path of YASK's directory bin")

    def covers(self, case: StencilCase) -> bool:
        return "sponge" not in case.name and bool(self.kernels[self._stencil(case)])

    def _stencil(self, case: StencilCase) -> str:
        return YASK_STENCILS[0 if case.name.startswith("heat") else 1]

    def trials(self, job: Job) -> Sequence[dict[str, int]]:
        return [{"bt": 0}, {"bt": 4}, {"bt": 8}]

    def command(self, job: Job, given: Mapping[str, int]) -> list[str]:
        nz, ny, nx = job.cells
        words = {
            "gx": nz, "gy": ny, "gz": nx, "num_trials": 1, "trial_steps": job.steps, "sleep": 0,
            "max_threads": job.threads, **given,
        }  # fmt: skip
        flags = ["-no-print_suffixes", *(["-no-pre_auto_tune"] if "bx" in given else [])]
        pairs = (word for name, value in words.items() for word in (f"-{name}", str(value)))
        return [str(self.kernels[self._stencil(job.case)][0]), *flags, *pairs]

    def parse(self, text: str, job: Job) -> Timing:
        self.found("YASK DONE", text)
        self.require("radius", int(self.found(r" stencil-description: +\w+ radius (\d+)", text)[1]), job.radius)
        self.require("bytes of an element", int(self.found(r" element-size: +(\d+)", text)[1]), 4)
        domain = self.found(r" global-domain-size: +x=(\d+) \* y=(\d+) \* z=(\d+)", text)
        self.require("the grid", tuple(map(int, domain.groups())), job.cells)
        self.require("threads", int(self.found(r"Num OpenMP threads used: +(\d+)", text)[1]), job.threads)
        blocks = self.found(r" (?:auto-tuner: )?block-size: +t=(\d+) \* x=(\d+) \* y=(\d+) \* z=(\d+)", text)
        tuned = dict(zip(("bt", "bx", "by", "bz"), map(int, blocks.groups()), strict=True))
        steps = int(self.found(r" mid-num-steps-done: +(\d+)", text)[1])
        seconds = float(self.found(r" mid-elapsed-time \(sec\): +(\S+)", text)[1])
        return Timing(seconds, steps, tuned, self.found(r" yask-version: +(\S+)", text)[1])


def bench(
    directory: Path,
    small: bool = False,
    size: tuple[int, int, int] | None = None,
    steps: int | None = None,
    only: str | None = None,
    turns: int | None = None,
    threads: int | None = None,
    girih: Path | None = None,
    yask: Path | None = None,
) -> dict[str, Any]:
    """Run the benchmark, print the figures, and return the figures as plain data. `size` is (nx, ny, nz) of the cells
    that are updated. `only` contains names of stencils, separated by commas. `turns` is the number of turns. `girih`
    and `yask` are the paths of these programs, or None.

    The files of the benchmark are made in a new folder inside `directory`, and are removed at the end. Raises
    InputError for an unknown stencil, for a path without the program, and for a grid that does not fit into memory or
    on the disk. Raises StorageError if Outcrop fails. If another program fails, the benchmark prints a line and goes on
    without this program.
    """
    scale = SMALL if small else FULL
    scale = replace(scale, repeats=turns or scale.repeats)
    programs: list[OtherProgram] = [*([Girih(girih)] if girih else []), *([Yask(yask)] if yask else [])]
    most = discover.available_cores()
    if threads is not None and threads > most:
        raise InputError(f"--threads {threads}: this process may use only {most} processors")
    jobs = []
    for case in chosen_cases(only or DEFAULT):
        nz, ny, nx = shape_of(case, scale, size)
        jobs.append(Job(case, (nz, ny, nx), steps or min(case.steps, scale.max_steps), threads or most))
        require_room(case, rimmed(jobs[-1]), directory)
    for program in programs:
        if not any(program.covers(job.case) for job in jobs):
            raise InputError(f"{program.name} has none of the stencils {only or DEFAULT}; leave its option out")
    for absent in absent_peers(girih, yask):
        print(absent)
    with bound_to(threads or most), first_figures("peers", small, directory, has_plans=False) as figures:
        figures["stencils"] = [measure(directory, scale, job, programs) for job in jobs]
    print(table(figures))
    return figures


def chosen_cases(only: str) -> list[StencilCase]:
    """Return the cases with these names. Raises InputError for an unknown name."""
    names = [name.strip() for name in only.split(",")]
    for name in names:
        if name not in KNOWN:
            raise InputError(f"--only {name!r} is not compared; there are {', '.join(KNOWN)}")
    return [KNOWN[name] for name in names]


def absent_peers(girih: Path | None, yask: Path | None) -> Iterator[str]:
    """Yield a line of text for each program that is not measured. Each line says how to install the program, or which
    option names its path."""
    if importlib.util.find_spec("devito") is None:
        yield "Devito is absent; pip install 'outcrop[devito]' installs it"
    for name, path in (("Girih", girih), ("YASK", yask)):
        if path is None:
            yield f"{name} is absent; --{name.lower()} PATH measures it"


def rimmed(job: Job) -> tuple[int, int, int]:
    """Return the shape of the grid of a job, including the rim."""
    nz, ny, nx = (n + 2 * job.radius for n in job.cells)
    return nz, ny, nx


@contextmanager
def bound_to(threads: int) -> Iterator[None]:
    """Limit this process and its children to the first `threads` of the processors that this process may use. Also tell
    OpenMP to bind one thread to each of the chosen processors."""
    former, variables = os.sched_getaffinity(0), ("OMP_NUM_THREADS", "OMP_PROC_BIND")
    before = {name: os.environ.get(name) for name in variables}
    os.environ |= {"OMP_NUM_THREADS": str(threads), "OMP_PROC_BIND": "true"}
    os.sched_setaffinity(0, sorted(former)[:threads])
    try:
        yield
    finally:
        os.sched_setaffinity(0, former)
        for name, value in before.items():
            os.environ.pop(name)
            os.environ |= {} if value is None else {name: value}


def measure(directory: Path, scale: StencilScale, job: Job, programs: Sequence[OtherProgram]) -> dict[str, Any]:
    """Tune Devito and the programs of `programs`, if they have the stencil of the job. Then measure Outcrop and the
    tuned programs alternately, and return the figures. A program that fails is left out."""
    with new_folder(directory) as folder:
        where, planes_file = folder / "run.oc", folder / "planes.npy"
        every: list[Peer] = [Devito(planes_file), *programs]
        peers = {peer.name: peer for peer in every if peer.covers(job.case)}
        nz, ny, nx = job.cells
        print(f"{job.case.name}: {nx} x {ny} x {nz} cells, {job.steps} steps, {job.threads} threads", flush=True)
        for program in programs:
            if program.name not in peers:
                print(f"  {program.name} has no equivalent of {job.case.name}")
        start = time.perf_counter()
        problem = make_run(where, job.case, rimmed(job), job.steps)
        setup = {"Outcrop": time.perf_counter() - start}
        tuned: dict[str, Timing] = {}
        left_out: dict[str, str] = {}
        for name, peer in list(peers.items()):
            start = time.perf_counter()
            try:
                tuned[name] = peer.tune(job)
            except StorageError as error:
                leave_out(name, error, left_out, peers)
                continue
            setup[name] = time.perf_counter() - start - tuned[name].seconds
            print(f"  {name}: set-up {setup[name]:.1f} s, {sizes_text(tuned[name].tuned)}", flush=True)
        whole, sizes = largest_useful_bytes(problem), rates.in_one_slab(problem)
        seconds: dict[str, list[float]] = {name: [] for name in setup}
        reports: list[dict[str, Any]] = []
        steps, difference = {"Outcrop": job.steps}, None
        for turn in range(scale.repeats):
            reports.append(rates.advance(where, job.steps, whole, None, sizes, bind="cores"))
            seconds["Outcrop"].append(reports[-1]["seconds_update"] + reports[-1]["seconds_copy"])
            if turn == 0:
                setup["Outcrop"] += reports[0]["seconds_setup"]
            for name, peer in list(peers.items()):
                try:
                    timing = peer.measure(job, tuned[name].tuned)
                except StorageError as error:
                    leave_out(name, error, left_out, peers, seconds, setup, tuned)
                    continue
                seconds[name].append(timing.seconds)
                steps[name] = timing.steps
            if turn == 0 and "Devito" in peers:
                difference = largest_difference(where, planes_file, job)
                print(f"  largest difference between Outcrop and Devito: {difference:.1e} of the largest value")
            line = (f"{name} {format_rate(math.prod(job.cells) * steps[name] / every[-1])}cell/s"
                    for name, every in seconds.items())  # fmt: skip
            print(f"  turn {turn + 1}: " + ", ".join(line), flush=True)
            time.sleep(scale.settle_seconds)
    counted = {name: math.prod(job.cells) * steps[name] for name in seconds}
    return {
        "stencil": job.case.name,
        "cells": list(job.cells),
        "steps": steps,
        "threads": job.threads,
        "array_bytes": problem.grid_bytes,
        "cells_per_second": {name: [counted[name] / one for one in every] for name, every in seconds.items()},
        "seconds": seconds,
        "setup_seconds": setup,
        "tuned": {name: timing.tuned for name, timing in tuned.items()},
        "versions": {name: timing.version for name, timing in tuned.items()},
        "largest_difference_from_devito": difference,
        "left_out": left_out,
        "runs": reports,
    }


def leave_out(name: str, error: StorageError, left_out: dict[str, str], *figures: dict[str, Any]) -> None:
    """Print why a program is left out, and remove the program from `figures`. `left_out` gets the reason."""
    print(f"  {name} is left out: {error}", flush=True)
    left_out[name] = str(error)
    for one in figures:
        one.pop(name, None)


def largest_difference(where: Path, planes_file: Path, job: Job) -> float:
    """Compare the planes in `planes_file` with the same planes of the run in `where`. Return the largest difference
    between the planes, divided by the largest value."""
    simulation, r = open_simulation(where), job.radius
    own = [simulation["u"][z + r][r:-r, r:-r] for z in devito.compared_planes(job.cells[0])]
    theirs = np.load(planes_file)
    return float(np.abs(np.array(own) - theirs).max() / np.abs(theirs).max())


def sizes_text(tuned: Mapping[str, int]) -> str:
    return " ".join(f"{name}={value}" for name, value in tuned.items()) or "no sizes"


def table(figures: dict[str, Any]) -> str:
    """Return a Markdown table of the figures: the medians of the rates in Gcell/s."""
    heads = ("stencil", "cells", "program", "steps", "Gcell/s", "range", "Outcrop / program", "set-up", "tuned sizes")
    lines = table_head(heads, numbers=False)
    for one in figures["stencils"]:
        own = median(one["cells_per_second"]["Outcrop"])
        for name, every in one["cells_per_second"].items():
            span = f"{min(every) / 1e9:.3g} to {max(every) / 1e9:.3g}"
            ratio = "" if name == "Outcrop" else f"{own / median(every):.2f}"
            cells, setup = " x ".join(map(str, reversed(one["cells"]))), f"{one['setup_seconds'][name]:.0f} s"
            first = [f"`{one['stencil']}`", cells, name, str(one["steps"][name]), f"{median(every) / 1e9:.3g}", span]
            lines.append(table_row([*first, ratio, setup, sizes_text(one["tuned"].get(name, {})) if ratio else ""]))
    versions = {name: version for one in figures["stencils"] for name, version in one["versions"].items() if version}
    lines += ["", *(f"{name} {version}" for name, version in versions.items())]
    return "\n".join(lines)
