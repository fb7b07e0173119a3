"""Check that runs and arrays lose nothing in thousands of histories on simulated storage, in which processes are
killed, power fails, and system calls fail.
"""

import os
import secrets
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from simulated.mutations import OF_ARRAYS, OF_RUNS
from simulated.search import first_failure, search
from strategies import SOAK

COUNTS = {"runs": 300, "arrays": 600}
FIRST = secrets.randbelow(1 << 40) if "OUTCROP_SOAK" in os.environ else 0
TO_FIND_MUTATIONS = 300
"""The number of histories in which the search must find each bug. The correct code passes these histories, because
COUNTS includes them."""

Mutation = Callable[[], AbstractContextManager[None]]


@pytest.mark.parametrize("kind", list(COUNTS))
def test_there_is_what_was_committed_whatever_happens(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = search(kind, range(FIRST, FIRST + COUNTS[kind] * SOAK))
    with capsys.disabled():
        print(f"\n{found}", end="")


@pytest.mark.parametrize("mutation", OF_RUNS, ids=lambda one: one.__name__)
def test_a_bug_in_the_protocol_of_runs_is_found(mutation: Mutation) -> None:
    with mutation():
        assert first_failure("runs", range(TO_FIND_MUTATIONS)) is not None


@pytest.mark.parametrize("mutation", OF_ARRAYS, ids=lambda one: one.__name__)
def test_a_bug_in_the_protocol_of_arrays_is_found(mutation: Mutation) -> None:
    with mutation():
        assert first_failure("arrays", range(TO_FIND_MUTATIONS)) is not None


def test_a_seed_always_gives_the_same_history() -> None:
    """Check that a seed gives the same history in each process, so that a failure can be repeated. The order of a set's
    elements differs between processes, and must not affect a history.
    """
    digests = {
        subprocess.run(
            [sys.executable, "-m", "simulated", "digest"],
            cwd=Path(__file__).parent.parent,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1 and digests != {""}
