"""Check that a commit stores either all arrays of a run or none, even if it is interrupted at any moment."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import zarr

import outcrop as oc
from outcrop.durable import SYSTEM
from outcrop.run.disk.state import State
from outcrop.run.places import open_state, storage_at
from several_arrays import SHAPE, STATE, contents, make_run, same, state_of

COMMIT_EVENTS = 3 + 2 * len(STATE)
"""The number of system calls in a commit: flush, rename, flush of the folder, then a link and a rename per array."""


def write_target(state: State, number: float) -> None:
    """Write new arrays of the state next to the committed arrays, as a pass does before its commit."""
    for entry in state.manifest.state:
        with state.target_planes(entry.name, 1 - state.manifest.current) as planes:
            planes.fill(lambda z0, z1: np.full((z1 - z0, *state.layout.shape[1:]), number))
            planes.flush()


@pytest.mark.parametrize("event", range(COMMIT_EVENTS + 1))
def test_a_commit_that_is_cut_off_anywhere_is_of_all_arrays_or_of_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, event: int
) -> None:
    """Checks a commit that is interrupted after any flush, rename or link. Either all arrays must have the new values,
    or all arrays must have the old values."""
    where = tmp_path / "run.oc"
    simulation, start = make_run(where)
    state, left = state_of(simulation), iter(range(100))
    write_target(state, 8.0)
    after = {name: np.full(SHAPE, 8.0) for name in STATE} | {"m": start["m"]}

    class CutOff(BaseException):
        pass

    def cutting(action):  # type: ignore[no-untyped-def]
        def call(*arguments: object, **folders: object) -> object:
            if next(left) == event:
                raise CutOff
            return action(*arguments, **folders)

        return call

    with monkeypatch.context() as patch:
        for name in ("fsync", "rename", "symlink"):
            patch.setattr(SYSTEM, name, cutting(getattr(SYSTEM, name)), raising=False)
        with pytest.raises(CutOff) if event < COMMIT_EVENTS else nullcontext():
            state.commit(8)
    committed = open_state(where).manifest.step == 8
    assert committed == (event >= 2), "the rename of the manifest is the moment of truth"
    assert same(contents(where), after if committed else start)
    with open_state(where).locked():  # repairs the links
        pass
    links = {os.readlink(where / name)[-1] for name in STATE}
    assert links == {"1" if committed else "0"}
    group = zarr.open_group(str(where), mode="r")
    assert same({name: group[name][...] for name in start}, after if committed else start)


WORK = """
import sys
from pathlib import Path
import numpy as np
from outcrop.run.disk.state import State
from outcrop.run.places import open_state
state = open_state(Path(sys.argv[1]))
print(flush=True)
with state.locked():
    while True:
        step = state.manifest.step + 1
        for entry in state.manifest.state:
            with state.target_planes(entry.name, 1 - state.manifest.current) as planes:
                planes.fill(lambda z0, z1: np.full((z1 - z0, 5, 4), step))
                planes.flush()
        state.commit(step)
"""
"""Commit new generations in an endless loop, as passes do, but without computing."""


def test_killed_at_any_moment_all_arrays_are_at_the_same_step(tmp_path: Path) -> None:
    """Checks that all arrays are at the same step after a SIGKILL at any moment."""
    where, chance = tmp_path / "run.oc", random.Random(3)
    _, start = make_run(where)
    step = 0
    for _ in range(6):
        with subprocess.Popen([sys.executable, "-c", WORK, str(where)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            while storage_at(where).read().step == step and process.poll() is None:
                time.sleep(0.001)
            time.sleep(chance.uniform(0, 0.1))
            process.send_signal(signal.SIGKILL)
        reached = oc.open(where).step
        assert reached > step
        step = reached
        assert same(contents(where), {name: np.full(SHAPE, step) for name in STATE} | {"m": start["m"]})
