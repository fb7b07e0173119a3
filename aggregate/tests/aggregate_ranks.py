"""The program that tests of aggregation run under mpirun. The command of each rank is `aggregate_ranks.py WHAT FOLDER
[SEED]`."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

import outcrop.aggregate as agg
from outcrop.aggregate.ranks import Ranks
from outcrop.bench.ranks import SECONDS_TO_BE_HEARD
from outcrop.errors import CommunicationError, InputError, OutcropError, StorageError
from random_extents import expected, pattern

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.Get_rank(), WORLD.Get_size()
GIB = 2**30


def say_if_alike(error: OutcropError) -> None:
    """Check that all ranks have the same error. Rank 0 prints the error."""
    texts = set(WORLD.allgather(f"{type(error).__name__}: {error}"))
    assert len(texts) == 1, texts
    if RANK == 0:
        print(texts.pop(), flush=True)


def patterns(folder: Path, seed: int) -> None:
    """Write random patterns in several steps, and read them back. One step begins at 5 GiB. Rank 0 compares the file
    with the patterns.
    """
    variables = pattern(seed, SIZE)
    mine = variables[RANK]
    settings = {"buffer": "4KiB" if seed % 2 else "64KiB", "count": None if seed % 3 else 1 + seed % SIZE}
    plan = agg.declare(WORLD, [one.extents for one in mine], target=folder, **settings)
    arrays = [one.values(seed, RANK, number) for number, one in enumerate(mine)]
    bases = [0, plan.end + 5, 5 * GIB]
    with agg.create(folder / "file", plan) as file:
        file.write(arrays, base=bases[0])
        for request in [file.begin_write(arrays, base=base) for base in bases[1:]]:
            request.wait()
    WORLD.Barrier()
    if RANK == 0:
        whole = expected(variables, seed)
        bytes_of_file = np.memmap(folder / "file", np.uint8, "r")
        for base in bases:
            assert np.array_equal(bytes_of_file[base : base + len(whole)], whole), f"base {base}"
        assert len(bytes_of_file) == bases[-1] + len(whole)
    found = [[np.zeros_like(array) for array in arrays] for _ in bases]
    with agg.open(folder / "file", plan) as file:
        file.read(found[0])
        for request in [file.begin_read(into, base=base) for into, base in zip(found[1:], bases[1:], strict=True)]:
            request.wait()
    for each in found:
        assert all(np.array_equal(one, other) for one, other in zip(each, arrays, strict=True))
    text = plan.explain()
    assert "3 writes" in text and "3 reads" in text and f"{SIZE} rank" in text
    nodes = len(set(WORLD.allgather(plan._ranks.node)))
    assert ("distances by ping-pong (Slurm: " in text) == (nodes > 2), text
    if RANK == 0 and "send them as one message" in text:
        print("one message a node,", os.environ.get("OUTCROP_AGG_TRANSPORT"), flush=True)
    if os.environ.get("OUTCROP_AGG_TRANSPORT") == "rma":
        assert "between nodes: rma\n" in text, text
    plan.close()
    assert plan.explain() == text, plan.explain()


def overlap(folder: Path) -> None:
    """Declare the same byte on two ranks. Check that all ranks get the same error."""
    begin = 100 * RANK if RANK < SIZE - 1 else 100 * RANK - 30
    try:
        agg.declare(WORLD, [agg.contiguous(begin, 100)], target=folder)
    except InputError as error:
        say_if_alike(error)


def wrong_extents(folder: Path) -> None:
    """Give wrong arguments in three calls. The arguments are wrong on one rank or on all ranks. Then check that a call
    with right arguments works.
    """
    for extents, settings in (
        ({"u": 5 if RANK == SIZE - 1 else agg.contiguous(0, 0)}, {}),
        ([], {"count": 1 if RANK == SIZE - 1 else None}),
        ([], {"tier": "tape"}),
    ):
        try:
            agg.declare(WORLD, extents, target=folder, **settings)
        except InputError as error:
            say_if_alike(error)
    with agg.declare(WORLD, [], target=folder) as plan:
        assert plan.nbytes == 0


def wrong_arrays(folder: Path) -> None:
    """Give one rank an array that is too short. Check that no rank writes, that all ranks get the same error, and that
    the next step works.
    """
    plan = agg.declare(WORLD, {"u": agg.contiguous(800 * RANK, 800)}, target=folder)
    with agg.create(folder / "file", plan) as file:
        for write in (file.write, lambda arrays: file.begin_write(arrays).wait()):
            try:
                write([np.full(99 if RANK == SIZE - 1 else 100, 7.0)])
            except InputError as error:
                say_if_alike(error)
        file.write({"u": np.full(100, float(RANK))})
    WORLD.Barrier()
    whole = np.fromfile(folder / "file").reshape(SIZE, 100)
    assert (whole == np.arange(SIZE)[:, None]).all()


def full(folder: Path) -> None:
    """Set a limit for the size of files, and write a file that is larger than this limit. Check that all ranks get the
    same error."""
    nbytes = 1 << 18
    plan = agg.declare(WORLD, [agg.contiguous(nbytes * RANK, nbytes)], target=folder, buffer=65536, count=1)
    limit = nbytes * SIZE // 2
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    with agg.create(folder / "file", plan, way="buffered") as file:
        for write in (file.write, lambda arrays: file.begin_write(arrays).wait()):
            try:
                write([np.ones(nbytes, np.uint8)])
            except StorageError as error:
                say_if_alike(error)


def own_error(folder: Path) -> None:
    """Let one rank raise an error between two steps. At this time, the other ranks begin the next step."""
    plan = agg.declare(WORLD, [agg.contiguous(RANK << 16, 1 << 16)], target=folder)
    values = np.ones(1 << 16, np.uint8)
    try:
        with agg.create(folder / "file", plan, stage=folder / "stage") as file:
            file.write([values])
            if RANK == SIZE - 1:
                raise ValueError("the program of this rank is wrong")
            file.write([values])
    except ValueError as error:
        print(f"left by {error!r}", flush=True)
        # After the exception, mpi4py ends all ranks. Then the launcher may lose output that it has not read yet.
        # Therefore wait some time before the exception is raised again.
        time.sleep(SECONDS_TO_BE_HEARD)
        raise


def missing(folder: Path) -> None:
    """Try to open a file that does not exist. Check that all ranks get the same error."""
    plan = agg.declare(WORLD, [agg.contiguous(RANK, 1)], target=folder)
    try:
        agg.open(folder / "nowhere", plan)
    except StorageError as error:
        say_if_alike(error)


def hints(folder: Path) -> None:
    """Check that MPI info hints and the environment affect the plan, and that several ranks become aggregators."""
    info = MPI.Info.Create()
    info.Set("cb_nodes", str(min(2, SIZE)))
    os.environ["OUTCROP_AGG_BUFFER"] = "128KiB"
    plan = agg.declare(WORLD, [agg.contiguous(RANK << 20, 1 << 20)], target=folder, hints=info)
    assert len(plan.aggregators) == min(2, SIZE), plan.aggregators
    text = plan.explain()
    assert "count by hint cb_nodes" in text and "buffer_bytes by OUTCROP_AGG_BUFFER" in text, text
    if RANK == 0:
        print(text)
    info.Free()
    plan.close()


def on_nodes_of(ranks: int) -> None:
    """Simulate several nodes. Each group of `ranks` ranks counts as one node."""
    make = Ranks.__init__

    def make_apart(self: Ranks, communicator: object) -> None:
        make(self, communicator)
        self.node = self.rank // ranks * ranks
        assert self._table is not None
        self._table.contents.node = self.node

    Ranks.__init__ = make_apart  # type: ignore[method-assign]


def killed(folder: Path, whom: str) -> None:
    """Write one step. Kill a rank during the next step. Each other rank gets an error, and writes the text of this
    error to a file.
    """
    # When a rank was killed, mpirun of MPICH sends SIGUSR1 to all ranks. By default, a process ends when it gets
    # SIGUSR1.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    nbytes, pieces = 4096, 256
    extents = [agg.strided(RANK * nbytes, pieces, nbytes, SIZE * nbytes)]
    plan = agg.declare(WORLD, extents, target=folder, count=2, buffer="64KiB")
    victim = max(set(range(SIZE)) - set(plan.aggregators)) if whom == "other" else plan.aggregators[-1]
    values = np.full(nbytes * pieces, RANK + 1, np.uint8)
    file = agg.create(folder / "file", plan, durable=True)
    file.write([values])
    WORLD.Barrier()
    try:
        for step in range(1, 1000):
            request = file.begin_write([values], base=step * plan.end)
            if victim == RANK:
                os.kill(os.getpid(), signal.SIGKILL)
            request.wait()
    except CommunicationError as error:
        (folder / f"told-{RANK}").write_text(f"{victim} {error}")
    os._exit(3)  # MPI_Finalize does not work after a rank has been killed


def killed_in(folder: Path, call: str) -> None:
    """Kill the last rank in one of the calls `declare`, `create` or `open`. Each other rank gets an error, and writes
    the text of this error to a file.
    """
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    victim = SIZE - 1

    def reach(name: str) -> None:
        if victim == RANK and call == name:
            os.kill(os.getpid(), signal.SIGKILL)

    gather = Ranks.gather
    Ranks.gather = lambda self, value: reach("declare") or gather(self, value)  # type: ignore[method-assign]
    try:
        plan = agg.declare(WORLD, [agg.contiguous(RANK << 12, 1 << 12)], target=folder)
        reach("create")
        with agg.create(folder / "file", plan):
            reach("open")
            agg.open(folder / "file", plan)
    except CommunicationError as error:
        (folder / f"told-{RANK}").write_text(f"{victim} {error}")
    # When one rank ends, mpirun can end the other ranks. Therefore wait until all other ranks have written their error.
    while len(list(folder.glob("told-*"))) < SIZE - 1:
        time.sleep(0.05)
    os._exit(3)  # MPI_Finalize does not work after a rank has been killed


def stuck(folder: Path, whom: str, how: str) -> None:
    """Stop one rank, or let one rank sleep. The process of this rank stays alive. Each other rank gets an error, writes
    the text of this error to a file, and then ends.
    """
    nbytes, pieces = 4096, 256
    extents = [agg.strided(RANK * nbytes, pieces, nbytes, SIZE * nbytes)]
    plan = agg.declare(WORLD, extents, target=folder, count=2, buffer="64KiB")
    victim = max(set(range(SIZE)) - set(plan.aggregators)) if whom == "other" else plan.aggregators[-1]
    values = np.full(nbytes * pieces, RANK + 1, np.uint8)
    file = agg.create(folder / "file", plan)
    file.write([values])
    WORLD.Barrier()
    if victim == RANK:
        if how == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(600)
    try:
        for step in range(1, 1000):
            file.write([values], base=step * plan.end)
    except CommunicationError as error:
        (folder / f"told-{RANK}").write_text(str(error))
    # When one rank ends, mpirun ends the other ranks. Therefore wait until all other ranks have written their error.
    while len(list(folder.glob("told-*"))) < SIZE - 1:
        time.sleep(0.05)
    os._exit(3)  # MPI_Finalize does not work while a rank is stopped


if __name__ == "__main__":
    what, folder = sys.argv[1], Path(sys.argv[2])
    if os.environ.get("RANKS_ON_NODE"):
        on_nodes_of(int(os.environ["RANKS_ON_NODE"]))
    if what == "patterns":
        for transport in sys.argv[5:] or ["auto"]:
            if transport != "auto":
                os.environ["OUTCROP_AGG_TRANSPORT"] = transport
            for number in range(int(sys.argv[3]), int(sys.argv[4])):
                patterns(folder, number)
    elif what == "killed":
        killed(folder, sys.argv[3])
    elif what == "killed_in":
        killed_in(folder, sys.argv[3])
    elif what == "stuck":
        stuck(folder, *sys.argv[3:])
    else:
        globals()[what](folder)
