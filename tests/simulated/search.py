"""Run many histories, one after another. If a history fails, show how to repeat it."""

from __future__ import annotations

import contextlib
import hashlib
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from simulated.array_histories import ArrayHistory
from simulated.run_histories import RunHistory

HISTORIES: dict[str, Callable[..., Any]] = {"runs": RunHistory, "arrays": ArrayHistory}


def search(kind: str, seeds: Iterable[int]) -> str:
    """Run histories, and return a text with the numbers of histories and system calls. Raise AssertionError at the
    first fault.
    """
    count: Counter[str] = Counter()
    for seed in seeds:
        history = HISTORIES[kind](seed)
        try:
            history.run()
        except Exception as error:
            raise AssertionError(
                f"history {seed} of {kind}: {error!s:.2000}\n"
                f"repeat it with its calls, in the folder tests: python -m simulated {kind} {seed}"
            ) from error
        count.update({"histories": 1, "operations": history.system.calls, **history.chance.count})
    return f"{kind}: " + ", ".join(f"{number} {what}" for what, number in count.items())


def first_failure(kind: str, seeds: Iterable[int]) -> int | None:
    """Return the first seed whose history has a fault."""
    for seed in seeds:
        try:
            HISTORIES[kind](seed).run()
        except Exception:
            return seed
    return None


def repeat(kind: str, seed: int) -> None:
    """Print the calls of one history, and its fault."""
    trace: list[str] = []
    history = HISTORIES[kind](seed, trace)
    try:
        history.run()
    except Exception:
        print(*trace, traceback.format_exc(), sep="\n")
    else:
        print(*trace, "nothing is wrong with it", sep="\n")


def digest(kind: str, seeds: Iterable[int]) -> str:
    """Return a checksum of all system calls of these histories."""
    found = hashlib.sha256()
    for seed in seeds:
        trace: list[str] = []
        with contextlib.suppress(Exception):
            HISTORIES[kind](seed, trace).run()
        found.update("\n".join(trace).encode())
    return found.hexdigest()
