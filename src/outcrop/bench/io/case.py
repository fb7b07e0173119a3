"""One measurement of `outcrop bench io`: how bytes are asked for, how many at a time, and what came of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from outcrop import _core
from outcrop.bench import page_cache


@dataclass(frozen=True)
class Interface:
    """A way to files. `backend` is that of the store; nothing where threads move one request each, without a store."""

    name: str
    backend: str
    is_direct: bool


INTERFACES = (
    Interface("io_uring", "io_uring", True),
    Interface("libaio", "libaio", True),
    Interface("threads", "threads", True),
    Interface("buffered", "", False),
    Interface("mmap", "mmap", False),
    Interface("load/store", "", False),
)
"""The first three go past the page cache where the file system allows it. `buffered` is pread and pwrite, `load/store`
a mapped file, both by one thread for each request in flight; `mmap` copies by a pool of threads, as runs with --io mmap
do."""
PAGE_BYTES = 4096
REQUESTS_UNTIL_FLUSH = 16384
"""Of writes through the page cache at random: what is then flushed takes time far beyond that of the writes."""


def find_interface(name: str) -> Interface:
    """The one of that name."""
    return next(one for one in INTERFACES if one.name == name)


def unavailable() -> dict[str, str]:
    """Interfaces that do not work here, and why."""
    reasons = _core.probe()
    return {one.name: reasons[one.backend] for one in INTERFACES if reasons.get(one.backend)}


@dataclass(frozen=True)
class Case:
    """Requests over the first `span_bytes` of a file, `depth` in flight.

    `warm`: the page cache holds what it can of the span before; otherwise nothing. `flush`: writes through the page
    cache are made durable within the time.
    """

    interface: str
    write: bool
    random: bool
    request_bytes: int
    depth: int
    span_bytes: int
    warm: bool = False
    flush: bool = True

    @property
    def pattern(self) -> str:
        """In words."""
        return f"{'random' if self.random else 'sequential'} {'write' if self.write else 'read'}"

    def measure(self, path: Path, seconds_most: float) -> Rate:
        """What the file does. Raises StorageError."""
        interface = find_interface(self.interface)
        if not interface.is_direct:
            (_fill_cache if self.warm else page_cache.drop)(path, self.span_bytes)
        total = self.span_bytes
        if self.warm and not self.flush:
            total = sys.maxsize  # again and again: the first time costs page faults, too
        elif self.write and self.random and not interface.is_direct:
            total = min(total, REQUESTS_UNTIL_FLUSH * self.request_bytes)
        flush = self.write and self.flush and not interface.is_direct
        asked: dict[str, Any] = {
            "write": self.write, "random": self.random, "flush": flush, "request_bytes": self.request_bytes,
            "depth": self.depth, "span_bytes": self.span_bytes, "total_bytes": total, "seconds_most": seconds_most,
        }  # fmt: skip
        if not interface.backend:
            return Rate(self, *_core.measure_threads(str(path), mapped=self.interface == "load/store", **asked))
        store = _core.Store(
            [str(path)], backend=interface.backend, direct=interface.is_direct, writable=self.write, depth=self.depth
        )
        try:
            return Rate(self, *_core.measure_transfers(store, **asked))
        finally:
            store.close()


@dataclass(frozen=True)
class Rate:
    """What was moved in a case, and in what time."""

    case: Case
    bytes: int
    requests: int
    seconds: float

    @property
    def bytes_per_second(self) -> float:
        """All requests together."""
        return self.bytes / self.seconds

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            **asdict(self.case),
            "bytes": self.bytes,
            "requests": self.requests,
            "seconds": self.seconds,
            "bytes_per_second": self.bytes_per_second,
            "requests_per_second": self.requests / self.seconds,
        }


def pooled(rates: Sequence[Rate]) -> Rate:
    """Several turns of one case as one."""
    return Rate(
        rates[0].case,
        sum(one.bytes for one in rates),
        sum(one.requests for one in rates),
        sum(one.seconds for one in rates),
    )


def patterns() -> Iterator[tuple[bool, bool]]:
    """(write, random) of the four patterns."""
    yield from ((write, random) for write in (False, True) for random in (False, True))


def _fill_cache(path: Path, span_bytes: int) -> None:
    piece = bytearray(1 << 20)
    with path.open("rb", buffering=0) as file:
        for _ in range(0, span_bytes, len(piece)):
            file.readinto(piece)
