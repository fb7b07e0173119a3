"""Check the model of storage. The model must behave like a real file system. After a power cut, the model must be able
to lose everything that a real file system can lose.
"""

import errno
import fcntl
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from outcrop.durable import System
from simulated.chance import Chance, Killed
from simulated.system import SimulatedSystem

NAMES = ["a", "b", "c", "d/a", "d/b", "d", "d/e", "d/e/a", "a/b", "../a", "d/../b", "./c", "d/e/../a"]
PLAIN = [name for name in NAMES if not name.startswith("..")]
TARGETS = ["a", "d", "d/b", "../a", "nowhere", "d/e", ".", "c"]
ACCESS = [os.O_RDONLY, os.O_WRONLY, os.O_RDWR]
OTHERS = [0, 0, os.O_CREAT, os.O_CREAT | os.O_EXCL, os.O_DIRECTORY, os.O_NOFOLLOW, os.O_NOFOLLOW | os.O_DIRECTORY,
          os.O_CREAT | os.O_NOFOLLOW, os.O_TRUNC]  # fmt: skip


def random_calls(random: Random, count: int) -> list[tuple[str, tuple[Any, ...]]]:
    """Return random system calls. An argument is a name of a file, or a number that selects one of the files that
    earlier calls have opened."""
    calls: list[tuple[str, tuple[Any, ...]]] = []
    for _ in range(count):
        name, other, number = random.choice(PLAIN), random.choice(PLAIN), random.randrange(1 << 16)
        offset = random.choice([0, 1, 100, 4000, 4096, 9000])
        content = random.randbytes(random.choice([0, 1, 10, 5000]))
        calls.append(
            random.choice(
                [
                    ("open", (random.choice(NAMES), random.choice(ACCESS) | random.choice(OTHERS))),
                    ("close", (number,)),
                    ("read", (number, len(content) + 1, offset)),
                    ("write", (number, content, offset)),
                    ("allocate", (number, offset, random.choice([1, 5000]))),
                    ("fsync", (number,)),
                    ("rename", (name, other)),
                    ("unlink", (name,)),
                    ("rmdir", (name,)),
                    ("mkdir", (name,)),
                    ("symlink", (random.choice(TARGETS), name)),
                    ("readlink", (name,)),
                    ("listdir", (number,)),
                    ("stat", (random.choice(NAMES), random.random() < 0.5)),
                    ("fstat", (number,)),
                    ("flock", (number, random.choice([fcntl.LOCK_SH, fcntl.LOCK_EX, fcntl.LOCK_UN]) | fcntl.LOCK_NB)),
                ]
            )
        )
    return calls


def outcomes(system: Any, top: int, calls: list[tuple[str, tuple[Any, ...]]]) -> list[object]:
    """Perform the calls on a system, and return the result or the error of each call."""
    opened: list[int] = []
    found: list[object] = []
    for name, arguments in calls:
        try:
            found.append(_outcome(system, top, opened, name, arguments))
        except OSError as error:
            found.append(errno.errorcode[error.errno or 0])
    for handle in opened:
        system.close(handle)
    return found


def _outcome(system: Any, top: int, opened: list[int], name: str, arguments: tuple[Any, ...]) -> object:
    call: Callable[..., Any] = getattr(system, name)
    if name == "open":
        opened.append(call(arguments[0], arguments[1] | os.O_NONBLOCK, dir_fd=top))
        return len(opened)
    if name == "stat":
        return _status(call(arguments[0], dir_fd=top, follow_symlinks=arguments[1]))
    if name == "rename":
        return call(*arguments, src_dir_fd=top, dst_dir_fd=top)
    if isinstance(arguments[0], str):
        return call(*arguments, dir_fd=top)
    if not opened:
        return None
    handle = opened[arguments[0] % len(opened)]
    if name == "close":
        opened.remove(handle)
        return call(handle)
    found = call(handle, *arguments[1:])
    return _status(found) if name == "fstat" else sorted(found) if name == "listdir" else found


def _status(status: Any) -> object:
    is_file = status.st_mode & 0o170000 == 0o100000
    return status.st_mode & 0o170000, status.st_size if is_file else None, status.st_nlink if is_file else None


@pytest.mark.parametrize("seed", range(40))
def test_calls_without_any_failure_do_what_a_real_file_system_does(tmp_path: Path, seed: int) -> None:
    calls = random_calls(Random(seed), 400)
    top = tmp_path / "above" / "above" / "top"
    top.mkdir(parents=True)
    handle = os.open(top, os.O_RDONLY)
    expected = outcomes(System(), handle, calls)
    os.close(handle)
    model = SimulatedSystem(Chance(0))
    for folder in ("/above", "/above/above", "/above/above/top"):
        model.mkdir(folder)
    found = outcomes(model, model.open("/above/above/top", os.O_RDONLY), calls)
    for number, (one, other) in enumerate(zip(expected, found, strict=True)):
        assert one == other, f"call {number}, {calls[number]}: {one} on a disk, {other} in the model"


def write_file(system: SimulatedSystem, name: str, content: bytes, flush: bool = True) -> None:
    handle = system.open(name, os.O_RDWR | os.O_CREAT)
    system.write(handle, content, 0)
    if flush:
        system.fsync(handle)
    system.close(handle)


def flush_folder(system: SimulatedSystem, name: str) -> None:
    handle = system.open(name, os.O_RDONLY)
    system.fsync(handle)
    system.close(handle)


def content(system: SimulatedSystem, name: str) -> bytes | None:
    try:
        handle = system.open(name, os.O_RDONLY)
    except FileNotFoundError:
        return None
    return system.read(handle, 1 << 20, 0)


def after_power_cuts(prepare: Callable[[SimulatedSystem], object], *names: str) -> set[tuple[bytes | None, ...]]:
    """Run `prepare` and simulate a power cut, once for each of many seeds. Return all contents that the named files had
    after the power cuts. A missing file has the content None.
    """
    found = set()
    for seed in range(300):
        system = SimulatedSystem(Chance(seed))
        prepare(system)
        system.lose_power()
        found.add(tuple(content(system, name) for name in names))
    return found


def test_what_was_flushed_survives_a_power_cut() -> None:
    def prepare(system: SimulatedSystem) -> None:
        write_file(system, "/a", b"old")
        flush_folder(system, "/")

    assert after_power_cuts(prepare, "/a") == {(b"old",)}


def test_a_file_that_was_flushed_has_no_name_until_its_folder_is_flushed() -> None:
    assert after_power_cuts(lambda system: write_file(system, "/a", b"new"), "/a") == {(b"new",), (None,)}


def test_a_name_that_was_flushed_leads_to_any_part_of_a_file_that_was_not() -> None:
    def prepare(system: SimulatedSystem) -> None:
        write_file(system, "/a", b"x" * 9000, flush=False)
        flush_folder(system, "/")

    found = {one for (one,) in after_power_cuts(prepare, "/a") if one is not None}
    assert {b"", bytes(9000), b"x" * 9000} <= found
    assert any(one[:4096] == b"x" * 4096 and one[4096:8192] == bytes(4096) for one in found), "one page, not the other"
    assert any(0 < one[:4096].count(b"x") < 4096 for one in found), "a torn page"


def test_names_of_a_folder_are_kept_or_lost_one_by_one_but_a_rename_as_a_whole() -> None:
    def prepare(system: SimulatedSystem) -> None:
        write_file(system, "/a", b"a")
        flush_folder(system, "/")
        system.rename("/a", "/b")
        write_file(system, "/c", b"c")

    expected = {(one, other, third) for one, other in [(b"a", None), (None, b"a")] for third in (b"c", None)}
    assert after_power_cuts(prepare, "/a", "/b", "/c") == expected


def test_a_file_replaced_without_a_flush_may_lose_both_contents() -> None:
    def prepare(system: SimulatedSystem) -> None:
        write_file(system, "/a", b"old")
        flush_folder(system, "/")
        write_file(system, "/b", b"new", flush=False)
        system.rename("/b", "/a")

    assert {(b"old",), (b"new",), (b"",)} <= after_power_cuts(prepare, "/a")


def test_a_flush_that_failed_may_have_lost_pages_for_good() -> None:
    def prepare(system: SimulatedSystem) -> None:
        write_file(system, "/a", b"old")
        flush_folder(system, "/")
        handle = system.open("/a", os.O_RDWR)
        system.write(handle, b"new", 0)
        system.chance.rates(faults=1e9)
        (process,) = system.run(lambda: system.fsync(handle))
        assert isinstance(process.error, OSError)
        system.fsync(handle)
        assert content(system, "/a") == b"new"

    assert {(b"old",), (b"new",)} <= after_power_cuts(prepare, "/a")


@pytest.mark.parametrize("seed", range(10))
def test_a_killed_process_makes_no_further_call_and_holds_nothing(seed: int) -> None:
    system = SimulatedSystem(Chance(seed))
    system.mkdir("/a")
    reached = set()

    def process() -> None:
        handle = system.open("/a", os.O_RDONLY)
        system.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            for number in range(100):
                system.mkdir(f"/{number}")
                reached.add(str(number))
        finally:
            with pytest.raises(Killed):
                system.mkdir("/e")

    system.chance.rates(kills=0.1)
    (one,) = system.run(process)
    assert one.is_dead and names_of(system) - {"a"} == reached
    system.flock(system.open("/a", os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)


def names_of(system: SimulatedSystem) -> set[str]:
    return set(system.listdir(system.open("/", os.O_RDONLY)))


def interleaved(seed: int) -> list[int]:
    """Run three processes. Return a list with the number of the process that made each call."""
    system = SimulatedSystem(Chance(seed))
    order: list[int] = []

    def process(number: int) -> None:
        for _ in range(5):
            system.stat("/")
            order.append(number)

    system.chance.rates(switches=0.5)
    system.run(*(partial(process, number) for number in range(3)))
    return order


def test_processes_take_turns_as_the_seed_says() -> None:
    orders = [interleaved(seed) for seed in range(20)]
    assert orders == [interleaved(seed) for seed in range(20)] and len({*map(tuple, orders)}) > 15
    assert any(order != sorted(order, key=order.index) for order in orders)
