"""The cases of `outcrop bench io`. A case of the benchmark describes the requests of one measurement. `IoCase.measure`
performs these requests and returns their rate.

The following command measures cases in a separate process, whose memory can be limited:

    python -m outcrop.bench.io_cases CASES FILE SECONDS

In this command, CASES is the JSON form of a list of cases. The separate process prints the figures of the cases as
JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from outcrop import _core
from outcrop.bench.memory import drop_from_page_cache, run_limited


@dataclass(frozen=True)
class Interface:
    """A way to transfer bytes. `backend` is the name of the store backend that transfers the bytes. If `backend` is "",
    threads transfer the bytes: one thread for each request in flight."""

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
"""The first three interfaces bypass the page cache if the file system allows direct I/O. `buffered` uses pread and
pwrite, and `load/store` uses a mapped file. `buffered` and `load/store` use one thread for each request in flight.
`mmap` copies with a pool of threads, like runs with --io mmap."""
PAGE_BYTES = 4096
REQUESTS_UNTIL_FLUSH = 16384
"""The maximum number of random writes through the page cache before a flush. With more writes, the flush would take too
long, because a flush takes much longer than the writes before it."""


def find_interface(name: str) -> Interface:
    return next(one for one in INTERFACES if one.name == name)


def unavailable() -> dict[str, str]:
    """Return the interfaces that do not work on this machine, with the reasons."""
    reasons = _core.probe()
    return {one.name: reasons[one.backend] for one in INTERFACES if reasons.get(one.backend)}


PATTERNS = [(write, random) for write in (False, True) for random in (False, True)]
"""The four access patterns, as pairs (write, random)."""


def pattern_of(one: Mapping[str, Any]) -> str:
    """Return a text that describes the access pattern of a case or of its figures."""
    return f"{'random' if one['random'] else 'sequential'} {'write' if one['write'] else 'read'}"


@dataclass(frozen=True)
class IoCase:
    """Requests that transfer the first `span_bytes` bytes of a file, with `depth` requests in flight.

    If `warm` is true, the page cache contains as much of the span as possible before the measurement. If `warm` is
    false, the page cache contains no part of the span. If `flush` is true, the time of writes through the page cache
    includes the flush of these writes.
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
        return pattern_of(asdict(self))

    def measure(self, path: Path, max_seconds: float) -> IoRate:
        """Measure transfers of the file for at most `max_seconds`. Raises StorageError if a transfer fails."""
        interface = find_interface(self.interface)
        if not interface.is_direct:
            (_fill_cache if self.warm else drop_from_page_cache)(path, self.span_bytes)
        total = self.span_bytes
        if self.warm and not self.flush:
            # transfer the span repeatedly, because only the first transfer includes page faults
            total = sys.maxsize
        elif self.write and self.random and not interface.is_direct:
            total = min(total, REQUESTS_UNTIL_FLUSH * self.request_bytes)
        flush = self.write and self.flush and not interface.is_direct
        requests: dict[str, Any] = {
            "write": self.write, "random": self.random, "flush": flush, "request_bytes": self.request_bytes,
            "depth": self.depth, "span_bytes": self.span_bytes, "total_bytes": total, "seconds_most": max_seconds,
        }  # fmt: skip
        if not interface.backend:
            return IoRate(self, *_core.measure_threads(str(path), mapped=self.interface == "load/store", **requests))
        store = _core.Store(
            [str(path)], backend=interface.backend, direct=interface.is_direct, writable=self.write, depth=self.depth
        )
        try:
            return IoRate(self, *_core.measure_transfers(store, **requests))
        finally:
            store.close()


@dataclass(frozen=True)
class IoRate:
    """The result of a measurement: the transferred bytes, the number of requests, and the seconds."""

    case: IoCase
    bytes: int
    requests: int
    seconds: float

    @property
    def bytes_per_second(self) -> float:
        return self.bytes / self.seconds

    def to_json(self) -> dict[str, Any]:
        return {
            **asdict(self.case),
            "bytes": self.bytes,
            "requests": self.requests,
            "seconds": self.seconds,
            "bytes_per_second": self.bytes_per_second,
            "requests_per_second": self.requests / self.seconds,
        }


def pooled(rates: Sequence[IoRate]) -> IoRate:
    """Add several measurements of one case, and return the sums as one IoRate."""
    return IoRate(
        rates[0].case,
        sum(one.bytes for one in rates),
        sum(one.requests for one in rates),
        sum(one.seconds for one in rates),
    )


def _fill_cache(path: Path, span_bytes: int) -> None:
    buffer = bytearray(1 << 20)
    with path.open("rb", buffering=0) as file:
        for _ in range(0, span_bytes, len(buffer)):
            file.readinto(buffer)


def measure_limited(
    cases: Sequence[IoCase], path: Path, max_seconds: float, limit_bytes: int | None
) -> list[dict[str, Any]]:
    """Measure the cases in one child process with a memory limit. In the figures, `limit_bytes` is None if no control
    group could be made."""
    every = json.dumps([asdict(case) for case in cases])
    output = run_limited(["-m", "outcrop.bench.io_cases", every, str(path), str(max_seconds)], limit_bytes)
    limits = {"wanted_limit_bytes": limit_bytes, "limit_bytes": limit_bytes if output.is_limited else None}
    return [{**one, **limits} for one in json.loads(output.text)]


def main() -> None:
    cases = [IoCase(**one) for one in json.loads(sys.argv[1])]
    path, max_seconds = Path(sys.argv[2]), float(sys.argv[3])
    print(json.dumps([case.measure(path, max_seconds).to_json() for case in cases]))


if __name__ == "__main__":
    main()
