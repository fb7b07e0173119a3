"""Check that ranks join, exchange values and share errors, and detect a rank that has ended or does not answer."""

import contextlib
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from outcrop.errors import CommunicationError, InputError, InterruptedRun
from outcrop.run.ranks import group as group_module
from outcrop.run.ranks import launch, links, wire
from outcrop.run.ranks.group import RankGroup
from rank_processes import RankProcesses, die, ranks


def gathers(group: RankGroup) -> Any:
    """Gather values of several sizes."""
    found = [group.allgather([group.rank, round, "x" * (round * 70_000)]) for round in range(5)]
    assert all([one[0] for one in each] == list(range(group.size)) for each in found)
    return [[one[1] for one in each] for each in found], group.places[0].node, group.ranks_on_same_cores


@pytest.mark.parametrize("size", [2, 3, 7])
def test_all_ranks_get_all_values(size: int) -> None:
    """Checks that `allgather` gives all ranks the values of all ranks, both short values and values that need many
    packets.
    """
    expected = [[round] * size for round in range(5)], 0, size
    assert ranks(size, gathers) == [expected] * size


def raises_on(group: RankGroup, wrong: list[int], kind: str) -> Any:
    """Raise an error on some ranks, while the other ranks are in an exchange of the same group."""
    with group.together():
        if group.rank in wrong:
            raise InputError("a value is wrong" if kind == "same" else f"value {group.rank} is wrong")
        group.allgather("inner")
    return "no error"


def test_an_error_of_one_rank_is_raised_on_all_ranks_and_told_once() -> None:
    """Checks that the error of one rank ends the other ranks, even if they wait in another collective call."""
    text = "rank 1: value 1 is wrong"
    assert ranks(3, raises_on, [1], "") == [
        ("InputError", text, True), ("InputError", text, False), ("InputError", text, True),
    ]  # fmt: skip
    assert ranks(2, raises_on, [0, 1], "same") == [
        ("InputError", "a value is wrong", False), ("InputError", "a value is wrong", True),
    ]  # fmt: skip


def goes_on_after_an_error(group: RankGroup) -> Any:
    """Share an error, and then use the group again."""
    with pytest.raises(InputError), group.together():
        raise InputError("wrong")
    return group.allgather(group.rank)


def test_a_group_can_be_used_after_a_shared_error() -> None:
    """Checks that the group can be used after an error. All ranks then make the same collective call."""
    assert ranks(3, goes_on_after_an_error) == [[0, 1, 2]] * 3


def waits(group: RankGroup, folder: Path) -> Any:
    """Call a collective function that the last rank never calls."""
    (folder / str(group.rank)).touch()
    if (folder / "silent").exists():
        group_module.SILENT_SECONDS = 3.0
    if group.rank == group.size - 1:
        time.sleep(60)
    group.allgather(0)


def waiting(size: int, folder: Path) -> RankProcesses:
    """Start one process for each rank, and return them. All processes except the last one are in a collective call."""
    started = RankProcesses(size, waits, folder)
    deadline = time.monotonic() + 60
    while len([one for one in folder.iterdir() if one.name.isdecimal()]) < size:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return started


@pytest.mark.parametrize("killed", [0, 1, 2])
def test_a_killed_rank_ends_all_others_with_one_line(tmp_path: Path, killed: int) -> None:
    """Kills a rank with SIGKILL. Checks that the other ranks end within a second, and that one rank prints the
    error."""
    started = waiting(3, tmp_path)
    begin = time.monotonic()
    started.kill(killed)
    if killed != 2:
        started.processes[2].kill()  # this rank sleeps, so it would not notice a kill of another rank
    found = started.results
    assert time.monotonic() - begin < 3
    left = [one for rank, one in enumerate(found) if rank not in (killed, 2)]
    assert all(kind == "CommunicationError" for kind, _, _ in left)
    assert all(text in (f"rank {killed} has gone", "rank 2 has gone") for _, text, _ in left)
    assert [elsewhere for _, _, elsewhere in left].count(False) == 1


def test_a_stopped_rank_ends_all_others(tmp_path: Path) -> None:
    """Checks that a rank that runs but does not answer counts as gone."""
    (tmp_path / "silent").touch()
    started = waiting(3, tmp_path)
    number = started.processes[2].pid
    assert number is not None
    os.kill(number, signal.SIGSTOP)
    begin = time.monotonic()
    first, second = (one.exitcode for one in started.processes[:2] if one.join(30) is None)
    assert time.monotonic() - begin < 10
    started.kill(2)
    found = started.results
    assert (first, second) == (0, 0)
    assert "rank 2 on" in found[0][1] and "has not answered" in found[0][1]
    assert found[1][:2] == found[0][:2]


def receives_nothing(group: RankGroup) -> Any:
    """Exchange values that are larger than the buffers of sockets. Rank 1 stops after it has sent its value."""
    for peer in group._peers.values():
        wire.limit_sending(peer.socket, 5 if group.rank else 1)
    if group.rank == 1:
        send = group._send

        def send_and_stop(rank: int, message: dict[str, Any]) -> None:
            send(rank, message)
            os.kill(os.getpid(), signal.SIGSTOP)

        group._send = send_and_stop  # type: ignore[method-assign]
    while True:
        group.allgather("x" * 2_000_000)


@pytest.mark.parametrize("size", [2, 3])
def test_a_rank_that_receives_nothing_ends_all_others(size: int) -> None:
    """Checks that a rank counts as gone if it does not receive a long message."""
    started = RankProcesses(size, receives_nothing)
    others = [one for rank, one in enumerate(started.processes) if rank != 1]
    assert [one.exitcode for one in others if one.join(60) is None] == [0] * (size - 1)
    started.kill(1)
    found = started.results
    assert found[0][1].startswith("rank 1 on ") and found[0][1].endswith(" does not receive messages any more")
    assert {one[:2] for rank, one in enumerate(found) if rank != 1} == {found[0][:2]}


def fails(group: RankGroup, is_interrupt: bool) -> Any:
    """Let rank 1 fail while the other ranks wait for the end of the group."""
    if group.rank == 1:
        group.fail("the disk is full", is_interrupt)
    begin = time.monotonic()
    stopped: list[int] = []
    with group.watching(lambda: stopped.append(1)):
        while not stopped and time.monotonic() < begin + 20:
            time.sleep(0.01)
    raise group.error("step 4 is intact")


@pytest.mark.parametrize(("is_interrupt", "kind"), [(False, "CommunicationError"), (True, "InterruptedRun")])
def test_a_rank_that_fails_stops_the_others(is_interrupt: bool, kind: str) -> None:
    """Lets one rank report the reason of an error. Checks that all ranks get this reason, and that callbacks are
    called."""
    found = ranks(3, fails, is_interrupt)
    assert [one[:2] for one in found] == [(kind, "the disk is full; step 4 is intact")] * 3
    assert [one[2] for one in found] == ([False, True, True] if is_interrupt else [True, True, True])


def loses(group: RankGroup) -> Any:
    """Report broken links after a kill of rank 3, in an unexpected order: rank 1 reports first that it has lost rank 2,
    and rank 2 reports later that it has lost rank 3."""
    if group.rank == 1:
        group.lost(2)
    elif group.rank == 2:
        time.sleep(0.3)
        group.lost(3)
    else:
        with pytest.raises((CommunicationError, InterruptedRun)):
            group.allgather(0)
    raise group.error()


def test_broken_links_name_the_rank_that_is_gone() -> None:
    """Checks that the group finds the killed rank even if another broken link is reported first."""
    found = ranks(4, loses)
    assert [one[:2] for one in found] == [("CommunicationError", "rank 3 has gone")] * 4


def leaves(group: RankGroup) -> Any:
    """End the program of rank 1 while the other ranks wait for it."""
    return group.close() if group.rank == 1 else group.allgather(0)


def test_a_rank_that_ends_its_program_is_named() -> None:
    """Checks that no rank waits for a rank that has ended without an error."""
    found = ranks(3, leaves)
    assert found[1] is None
    assert {one[:2] for one in (found[0], found[2])} == {("CommunicationError", "rank 1 has ended its program")}


def neighbours(group: RankGroup, is_ring: bool) -> list[int | None]:
    """Return the neighbours of a rank in a row or in a ring."""
    found: list[int | None] = [(group.rank + ahead) % group.size for ahead in (-1, 1)]
    if not is_ring:
        found = [found[0] if group.rank else None, found[1] if group.rank + 1 < group.size else None]
    return found


def talks(group: RankGroup, is_ring: bool) -> Any:
    """Send this rank's number to all neighbours twice, each time over new links."""
    for _ in range(2):
        with links.linked(group, neighbours(group, is_ring)) as both:
            for link in both:
                if link:
                    link[0].sendall(bytes([group.rank]))
            heard = [link and (link[1], link[0].recv(1)[0]) for link in both]
            group.allgather(0)
    return heard


def test_links_join_neighbours() -> None:
    """Checks the links of ranks in a row and in a ring. One ring has only two ranks."""
    assert ranks(3, talks, False) == [[None, (1, 1)], [(0, 0), (2, 2)], [(1, 1), None]]
    assert ranks(3, talks, True) == [[(2, 2), (1, 1)], [(0, 0), (2, 2)], [(1, 1), (0, 0)]]
    assert ranks(2, talks, True) == [[(1, 1), (1, 1)], [(0, 0), (0, 0)]]


def talks_in_a_torus(group: RankGroup) -> Any:
    """Connect 3 x 2 ranks, as if both axes were periodic. Return the ranks from which this rank has received
    messages."""
    row, plane = group.rank % 3, group.rank // 3
    along_y = [3 * plane + (row + ahead) % 3 for ahead in (-1, 1)]
    with links.linked(group, [*along_y, (group.rank + 3) % 6, (group.rank + 3) % 6]) as every:
        for link in every:
            link[0].sendall(bytes([group.rank]))
        heard = [link[0].recv(1)[0] for link in every]
        group.allgather(0)
    return heard


def test_links_join_neighbours_along_two_axes() -> None:
    """Checks the links of each side. Along z, the same rank is both the neighbour below and the neighbour above."""
    assert ranks(6, talks_in_a_torus)[4] == [3, 5, 1, 1]


def talks_over_tcp(group: RankGroup) -> Any:
    """Connect neighbours as if each rank were on a separate node."""
    wire.place_of_process = lambda: f"a node of its own {os.getpid()}"  # type: ignore[assignment]
    with links.linked(group, neighbours(group, True)) as both:
        kinds = [link[0].family.name for link in both if link]
    return kinds


def test_links_between_nodes_use_tcp() -> None:
    """Checks that neighbours on different nodes reach each other over TCP."""
    assert ranks(3, talks_over_tcp) == [["AF_INET", "AF_INET"]] * 3


def measures(group: RankGroup, wanting: int | None, killed: int | None) -> Any:
    """Measure the network, because the rank `wanting` asks for a measurement. The rank `killed` kills itself instead of
    its first send."""
    if group.rank == killed:
        links._send = lambda _: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
    found = links.measure_network(group, group.rank == wanting)
    return found.bytes_per_second, found.seconds_latency, found.origin


@pytest.mark.parametrize("size", [2, 3])
def test_all_ranks_measure_the_same_network(size: int) -> None:
    """Checks that all ranks measure the network if one rank asks for it, and that all ranks get the same figures."""
    found = ranks(size, measures, 1, None)
    assert found == [found[0]] * size and found[0][2] == "measured"
    assert found[0][0] > 0 and 0 < found[0][1] < 5
    assert {origin for _, _, origin in ranks(size, measures, None, None)} == {"assumed"}


def test_a_rank_that_is_killed_while_the_network_is_measured_is_named() -> None:
    """Checks that the other ranks end with an error that names the killed rank."""
    found = ranks(3, measures, 0, 1)
    assert found[1] is None
    assert {one[:2] for one in (found[0], found[2])} == {("CommunicationError", "rank 1 has gone")}


def reads_from_a_killed_rank(group: RankGroup) -> Any:
    """Exchange blocks between two ranks. Rank 1 kills itself when it sends, before it connects to rank 0. The group
    tells rank 0 only later that rank 1 is gone."""
    if group.rank == 1:
        links._connected = lambda *_: time.sleep(60)  # type: ignore[assignment]
    finish = group._finish

    def later(end: group_module.End) -> None:
        time.sleep(2)
        finish(end)

    group._finish = later  # type: ignore[method-assign]

    def blocks() -> Iterator[Any]:
        yield np.zeros(1)
        if group.rank == 1:
            die()

    failure: Exception | None = None
    other, target = 1 - group.rank, np.zeros(2)
    try:
        with links.streams(group, [other], {other: blocks}, 1) as open_stream:
            open_stream(other).receive(target)
    except EOFError as error:
        failure = error
    links.end_together(group, failure)


def test_a_rank_does_not_wait_for_a_receiver_that_is_gone() -> None:
    """Checks rank 0 after a kill of rank 1. The stream from rank 1 has ended early, and rank 1 never connects as a
    receiver. The group finds the kill only later. Rank 0 must still end with an error."""
    assert ranks(2, reads_from_a_killed_rank) == [("CommunicationError", "rank 1 has gone", False), None]


def stops_watching(group: RankGroup) -> Any:
    """End the `with` block of a callback while the group calls another callback. Return the names of the callbacks that
    were called.
    """
    if group.rank == 1:
        group.allgather(None)  # rank 0 has registered its callbacks
        die()
    called: list[str] = []
    ending, left, ended = threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        called.append("first")
        ending.set()
        left.wait(20)

    with contextlib.ExitStack() as stack:
        stack.enter_context(group.watching(first))
        second = contextlib.ExitStack()
        second.enter_context(group.watching(lambda: called.append("second")))
        stack.enter_context(group.watching(ended.set))
        group.allgather(None)
        ending.wait(20)
        second.close()
        left.set()
        ended.wait(20)
    return called


def test_no_callback_is_called_after_the_end_of_its_body() -> None:
    """Checks that a callback is not called after the end of its `with` block, even if the group has already begun to
    call callbacks. Such a callback could use closed objects.
    """
    assert ranks(2, stops_watching) == [["first"], None]


def cannot_stop(group: RankGroup, said: Path) -> None:
    """Continue to sleep after the group has ended. The messages of rank 0 go to the file `said`."""
    if group.rank == 1:
        die()
    os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT), 2)
    group_module.STOP_SECONDS = 1.0
    with group.watching(lambda: None):
        time.sleep(60)


def test_a_rank_that_cannot_stop_ends_with_one_line(tmp_path: Path) -> None:
    """Checks that a rank ends after another rank is gone, even if its transfers never end."""
    started = RankProcesses(2, cannot_stop, tmp_path / "said")
    assert started.results == [None, None] and started.processes[0].exitcode == 1
    line = "outcrop: rank 1 has gone; rank 0 has not stopped its work within 1 s\n"
    assert (tmp_path / "said").read_text() == line


def test_all_ranks_end_if_one_rank_does_not_join(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that all ranks that have joined get an error if another rank does not join in time."""
    monkeypatch.setattr(group_module, "JOIN_SECONDS", 1.0)
    sent: list[queue.SimpleQueue[str]] = [queue.SimpleQueue() for _ in range(3)]

    def join(rank: int) -> tuple[str, bool]:
        def spread(text: str | None) -> str:
            for one in sent if text is not None else []:
                one.put(text)
            return sent[rank].get()

        if rank == 1:  # this rank gets the address of rank 0, but never connects
            return spread(None), True
        with pytest.raises(CommunicationError) as error:
            RankGroup(rank, 3, spread)
        return str(error.value), error.value.is_told_elsewhere

    with ThreadPoolExecutor(3) as threads:
        first, _, third = threads.map(join, range(3))
    assert first[0].startswith(third[0]) and third[0].startswith("rank 1 has not reached rank 0 on ")
    assert (first[1], third[1]) == (False, True)


def test_only_connections_that_know_the_token_are_accepted() -> None:
    """Checks that a listener ignores other programs, and that a rank ignores listeners of other programs."""
    listener = wire.Listener("right")
    host, port = "127.0.0.1", listener.address["port"]
    stranger = socket.create_connection((host, port))
    stranger.sendall(b"GET / HTTP/1.0\r\n\r\n" + b"x" * 200)
    with pytest.raises(TimeoutError):
        listener.accept(time.monotonic() + 0.5)
    stranger.close()
    far = {**listener.address, "place": "elsewhere", "hosts": [host]}
    for address in (listener.address, far):
        for token, is_right in (("right", True), ("wrong", False)):
            child = os.fork()
            if child == 0:
                try:
                    wire.connect(address, token, 5, time.monotonic())
                    os._exit(0)
                finally:
                    os._exit(1)
            try:
                connection, rank = listener.accept(time.monotonic() + 2)
                assert is_right and rank == 5
                connection.close()
            except TimeoutError:
                assert not is_right
            assert os.waitpid(child, 0)[1] == (0 if is_right else 256)
    listener.close()


@pytest.mark.parametrize(
    ("value", "count", "along_z", "text"),
    [("auto", None, 1, "None"), (3, 3, 1, "3"), ((4,), 4, 1, "4"), ("2", 2, 1, "2"), ([1], 1, 1, "1"),
     ((4, 2), 8, 2, "4x2"), ("1x3", 3, 3, "1x3"), ([2, 1], 2, 1, "2x1")],
)  # fmt: skip
def test_numbers_of_ranks_are_understood(value: object, count: int | None, along_z: int, text: str) -> None:
    """Checks that each form of the option `ranks` gives the right numbers of ranks."""
    found = launch.as_ranks(value)
    assert (found.count, found.along_z, str(found)) == (count, along_z, text)


@pytest.mark.parametrize("value", ["many", 0, -1, True, 2.0, (2, 0), (1, 2, 3), (), "0", "2x", "2x0", None, "9" * 30])
def test_wrong_numbers_of_ranks_are_refused(value: object) -> None:
    """Checks that wrong values of `ranks` are refused in one line."""
    with pytest.raises(InputError, match="ranks"):
        launch.as_ranks(value)


def test_a_process_alone_does_not_import_mpi4py(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that Outcrop does not use MPI without a launcher, and that a wrong number of ranks is refused."""
    for name in launch.COUNTS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    assert launch.join() is None
    assert launch.join(1) is None
    with pytest.raises(InputError, match="ranks 4: this process runs alone; start as many: mpirun -n 4"):
        launch.join(4)


class WithoutLibrary(ModuleType):
    """A substitute for an mpi4py that finds no MPI library. The error of this mpi4py has several lines."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError("cannot load MPI library\nlibmpi.so: cannot open shared object file")


def test_a_launcher_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks the errors if the launcher belongs to another MPI library, and if mpi4py or its MPI is missing."""
    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(InputError, match=r"need mpi4py, which is not .*: pip install 'outcrop\[mpi\]'; for runs"):
        launch.join()
    monkeypatch.setitem(sys.modules, "mpi4py", WithoutLibrary("mpi4py"))
    with pytest.raises(InputError, match=r"\(cannot load MPI library\): install the .* pip install mpich; for"):
        launch.join()
    assert launch.join(1) is None  # the launcher has started two independent runs
    kind = type("Intracomm", (), {"Get_size": lambda self: 1})
    mpi = SimpleNamespace(
        Intracomm=kind, COMM_WORLD=kind(), COMM_NULL=None, Get_library_version=lambda: "Some MPI 4\nbuilt today",
        Is_finalized=lambda: False, Is_initialized=lambda: True,
    )
    monkeypatch.setitem(sys.modules, "mpi4py", SimpleNamespace(MPI=mpi))
    with pytest.raises(InputError, match=r"has started 2 processes, but the MPI of mpi4py \(Some MPI 4\) sees only"):
        launch.join()
    with pytest.raises(InputError, match="comm 3 must be an intracommunicator"):
        launch.join(comm=3)
