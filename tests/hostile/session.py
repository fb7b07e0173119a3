"""Start workers that run cases. Each worker has its own folder of test files (world.py), and runs its cases one
after another.

    main ──fork──► worker ──fork──► case          everything is imported once, before the first fork
             ◄─────────────── results, by a pipe
"""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import os
import pkgutil
import random
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from functools import cache
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType

from . import aggregated, caches, calls, directories, inputs, meanwhile, options
from .case import Case
from .jail import confine
from .judge import faults_of
from .process import Ended, apart, run_case
from .snapshot import differences, tree_of
from .world import TEMPLATES as world_templates
from .world import World

Make = Callable[[random.Random, World], Case]

GENERATORS: dict[str, Make] = {
    "directories": directories.make,
    "arrays": directories.make_arrays,
    "options": options.make,
    "calls": calls.make,
    "inputs": inputs.make,
    "aggregated": aggregated.make,
    "caches": caches.make,
    "meanwhile": meanwhile.make,
}
SHARES = {"directories": 20, "options": 16, "calls": 16, "inputs": 8, "caches": 2, "meanwhile": 2}
"""The shares of the generators in all cases. Other generators have the share 4."""

TEMPLATES = {
    **world_templates,
    "inputs": inputs.make_template,
    "aggregated": aggregated.make_template,
    "caches": caches.make_template,
}

REAL_SHARE = 0.05
"""The share of command lines that are repeated in a new process."""


@dataclass
class Result:
    """The result of one case, with its faults."""

    generator: str
    seed: int
    number: int
    text: str
    code: int | None
    seconds: float
    faults: dict[str, str] = field(default_factory=dict)
    out: str = ""
    err: str = ""

    @property
    def name(self) -> str:
        """The name of this case. The option `--case` repeats the case with this name."""
        return f"{self.generator}:{self.seed}:{self.number}"


class Session:
    """A session of tests, with a folder for all worlds and a number of workers. The methods `one` and `many` start the
    workers."""

    def __init__(self, folder: Path | None, keep: bool, workers: int) -> None:
        self._made = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="hostile-")) if folder is None else folder.absolute()
        self._keep = keep
        self._workers = workers or len(os.sched_getaffinity(0))

    def __enter__(self) -> Session:
        self.folder.mkdir(exist_ok=True)
        self._set_environment()
        load_everything()
        warm_up(self.folder / "nobody")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
    where: TracebackType | None) -> None:
        if not self._keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _set_environment(self) -> None:
        for name in ("cache", "temporary", "nobody"):
            (self.folder / name).mkdir(exist_ok=True)
        for name in [name for name in os.environ if name.startswith("OUTCROP_")]:
            del os.environ[name]
        os.environ |= {
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "MPLCONFIGDIR": str(self.folder / "cache"),
            "TMPDIR": str(self.folder / "temporary"),
            "HOME": str(self.folder / "nobody"),
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        tempfile.tempdir = None
        os.environ.setdefault("CC", shutil.which("cc") or shutil.which("gcc") or "cc")

    def one(self, generator: str, seed: int, number: int, real: bool) -> Result:
        """Run a single case."""
        return next(iter(self._start([(generator, seed, number)], real)))

    def many(self, generators: Sequence[str], number: int, seed: int) -> Iterator[Result]:
        """Run about `number` cases, and yield their results. Cases of the given generators alternate."""
        shares = {name: SHARES.get(name, 4) for name in generators}
        total = sum(shares.values())
        counts = {name: -(-number * share // total) for name, share in shares.items()}
        cases = [(index / counts[name], name, index) for name in generators for index in range(counts[name])]
        yield from self._start([(name, seed, index) for _, name, index in sorted(cases)], False)

    def _start(self, cases: list[tuple[str, int, int]], real: bool) -> Iterator[Result]:
        started: dict[Connection, int] = {}
        for worker in range(self._workers):
            reading, writing = multiprocessing.Pipe(duplex=False)
            process = os.fork()
            if process == 0:
                reading.close()
                _be_worker(self.folder / f"worker{worker}", self.folder, cases[worker :: self._workers], real, writing)
            writing.close()
            started[reading] = process
        while started:
            for reading in wait(list(started)):
                assert isinstance(reading, Connection)
                try:
                    yield reading.recv()
                except EOFError:
                    _, status = os.waitpid(started.pop(reading), 0)
                    if status != 0:
                        raise RuntimeError(f"a worker ended with status {status}") from None


def load_everything() -> None:
    """Import the whole program and find all commands once, before the forks."""
    import outcrop

    for name in ("matplotlib.figure", "matplotlib.backends.backend_agg", "zarr", "sympy", "numpy.lib.format",
                 "xarray", "h5netcdf", "segyio", "lzma", "gzip"):
        with suppress(ImportError):
            importlib.import_module(name)
    for module in pkgutil.walk_packages(outcrop.__path__, "outcrop."):
        if "devito" not in module.name:
            importlib.import_module(module.name)
    app = importlib.import_module("outcrop.cli.app")
    app.get_command = cache(app.get_command)  # making this object takes longer than most cases, so it is kept


def warm_up(folder: Path) -> None:
    """Run some commands. The modules that these commands import then stay loaded. At the end, this process must have
    only one thread."""
    numpy = importlib.import_module("numpy")
    call = importlib.import_module("outcrop.cli.main").call
    numpy.save(folder / "values.npy", numpy.zeros((5, 6)))
    plan = "plan heat7 -n 6 5 4 -t 2 --memory 8MiB --threads 1 --machine crest6"
    commands = ["info no-such-run", f"plot {folder}/values.npy -o {folder}/picture.png", plan, "agg simulate --nodes x"]
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        for command in commands:
            call(command.split())
    gc.collect()
    gc.freeze()
    assert threading.active_count() == 1


def _be_worker(
    folder: Path, everything: Path, cases: Sequence[tuple[str, int, int]], real: bool, results: Connection
) -> None:
    """Run the cases in a worker, send the results, and end this process."""
    code = 1
    try:
        confined = confine(everything)
        if not confined and os.geteuid() == 0:
            raise RuntimeError("hostile cases run as root only where Landlock keeps them in; be another user")
        folder.mkdir()
        world = World(folder, TEMPLATES)
        world.build(apart)
        for generator, seed, number in cases:
            results.send(try_case(world, folder, generator, seed, number, real))
        code = 0
    except BrokenPipeError:
        pass  # the main process has stopped reading results
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        results.close()
        os._exit(code)


def try_case(world: World, folder: Path, generator: str, seed: int, number: int, real: bool) -> Result:
    """Run one case in a forked process. Some cases then run again in a new process, which must end with the same exit
    code."""
    rng = random.Random(f"{generator}:{seed}:{number}")
    twice = rng.random() < REAL_SHARE
    state = rng.getstate()
    result = _tried(world, folder, Result(generator, seed, number, "", None, 0.0), rng, real)
    if twice and not real and not result.faults and not result.text.startswith("python:"):
        rng.setstate(state)
        other = _tried(world, folder, Result(generator, seed, number, "", None, 0.0), rng, True)
        if other.faults:
            other.text += "; as a process"
            return other
        if other.code != result.code:
            result.faults["not as a process"] = f"{result.code} in a fork, {other.code} in a process"
    return result


def _tried(world: World, folder: Path, result: Result, rng: random.Random, real: bool) -> Result:
    case = GENERATORS[result.generator](rng, world)
    others = tree_of(world.root, without=(*case.may_change, *case.outputs))
    mine = tree_of(world.root, without=case.outputs) if case.reads else {}
    new = [name for name in case.may_change if not os.path.lexists(world.root / name)]
    ended = run_case(case.become if real and case.words else case.act, world.here, folder, case.stdout, case.seconds)
    outside = differences(others, tree_of(world.root, without=(*case.may_change, *case.outputs)))
    inside = differences(mine, tree_of(world.root, without=case.outputs)) if case.reads else []
    left = [name for name in new if os.path.lexists(world.root / name) and not holds_run(world.root / name)]
    faults = faults_of(case, ended, outside, [text for text in inside if text not in outside], left)
    if outside:
        world.rebuild_others(apart)
    return _filled(result, case, ended, faults)


def holds_run(place: Path) -> bool:
    """Return True if this path holds a run that can be resumed or replaced. A failed command may leave such a run."""
    return any((place / name).is_file() for name in ("manifest.json", "outcrop-member.json"))


def _filled(result: Result, case: Case, ended: Ended, faults: dict[str, str]) -> Result:
    result.text = case.text if case.words is not None else f"python: {case.text}"
    result.code, result.seconds, result.faults = ended.code, ended.seconds, faults
    result.out, result.err = ended.out[-4000:], ended.err[-6000:]
    return result
