"""Cases that delete, move or replace the directory of a run while the run computes. The run must report the change, and
must not change other files.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import outcrop as oc
from outcrop.errors import OutcropError

from .case import Case
from .mutate_files import files_of, mutate_entry
from .world import World


def delete(run: Path) -> None:
    shutil.rmtree(run, ignore_errors=True)


def delete_and_make(run: Path) -> None:
    shutil.rmtree(run, ignore_errors=True)
    run.mkdir(exist_ok=True)


def move(run: Path) -> None:
    run.rename(run.parent / "moved")


def move_and_link(run: Path) -> None:
    run.rename(run.parent / "moved")
    run.symlink_to(run.parent.parent / "home")


def replace_by_run(run: Path) -> None:
    run.rename(run.parent / "moved")
    shutil.copytree(run.parent.parent / "other.oc", run, symlinks=True)


def delete_manifest(run: Path) -> None:
    (run / "manifest.json").unlink()


def replace_manifest(run: Path) -> None:
    (run / "manifest.json").unlink()
    (run / "manifest.json").symlink_to(run.parent.parent / "home" / "keep")


def delete_records(run: Path) -> None:
    shutil.rmtree(run / ".taps", ignore_errors=True)


def delete_arrays(run: Path) -> None:
    for name in (".u.0", ".u.1", "v"):
        shutil.rmtree(run / name, ignore_errors=True)


ACTIONS: list[Callable[[Path], None]] = [
    *(delete, delete_and_make, move, move_and_link, replace_by_run, delete_manifest, replace_manifest, delete_records),
    *(delete_arrays,),
]


def make(rng: random.Random, world: World) -> Case:
    """Return a case that changes the directory of a run after a snapshot. The change is one of ACTIONS, or a random
    change of one file or folder."""
    world.reset(rng.choice(["waves", "unfinished"]))
    action, at = rng.choice([*ACTIONS, None]), rng.randrange(1, 5)
    which = rng.choice(["run.oc", "run.oc", "run2.oc"])
    if action in (delete_manifest, replace_manifest, delete_records):
        which = "run.oc"
    told = action.__name__ if action else "an entry changes"
    random_state = rng.getstate()

    def act() -> None:
        if action:
            action(world.case / which)
            return
        chance = random.Random()
        chance.setstate(random_state)
        found = [path for path in files_of(world.case, which)[1:] if os.path.lexists(path)]
        mutate_entry(chance, chance.choice(found), found, world.root)

    def call() -> None:
        seen = [0]

        def on_snapshot(step: int, fields: object) -> None:
            seen[0] += 1
            if seen[0] == at:
                act()

        sim = oc.open(world.case / "run.oc")
        try:
            sim.run(16, progress="none", on_snapshot=on_snapshot)
        except OutcropError as error:
            check_claim(world.case / "run.oc", str(error))
            raise

    changed = ("case/run.oc", "case/run2.oc", "case/moved", "case/aside")
    return Case(f"{which}: {told} after snapshot {at} of a run", call=call, may_change=changed)


def check_claim(run: Path, message: str) -> None:
    """If the error message says that data is intact, check that the run can be opened."""
    if "intact" not in message:
        return
    try:
        oc.open(run)
    except OutcropError as error:
        raise RuntimeError(f"{message!r}, but {error}") from None
