"""Cases of damaged run directories and array folders. A case changes one or two files or folders, and then a command
uses the directory."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import xarray

import outcrop as oc

from .case import Case
from .mutate_files import choose, files_of, mutate
from .world import RUNS, SHAPE, World, remove


def make(rng: random.Random, world: World) -> Case:
    """Return a case in which a command uses a damaged run."""
    template = rng.choice(RUNS)
    world.reset(template)
    found = files_of(world.case, "run.oc", "run2.oc")
    damage = []
    must_show = False
    for _ in range(1 if rng.random() < 0.85 else 2):
        path = choose(rng, found)
        told, shows = mutate(rng, path, found, world.root)
        must_show |= shows and counts(path, world)
        damage.append(f"{path.relative_to(world.case)}: {told}")
        found = [one for one in found if os.path.lexists(one)]
    name, case = rng.choice(COMMANDS)(rng, world)
    if must_show and len(damage) == 1 and name == "verify" and "--repair" not in (case.words or ()):
        case.must_fail = "damage is not found"
    case.text = f"{template}; {'; '.join(damage)}; {case.text}"
    return case


def counts(path: Path, world: World) -> bool:
    """Return True if the bytes of a file belong to the committed state, and False for the copy on disk that is not
    committed."""
    inside = path.relative_to(world.case).parts[1]
    if inside.startswith(".u") or inside.startswith(".v"):
        link = world.case / "run.oc" / inside.strip(".").rpartition(".")[0]
        return link.is_symlink() and os.readlink(link) == inside
    return ".tmp" not in path.name and path.suffix != ".json"


def _command(*words: str, reads: bool = False, outputs: tuple[str, ...] = ()) -> Callable[..., tuple[str, Case]]:
    def make_command(rng: random.Random, world: World) -> tuple[str, Case]:
        return words[0], Case(" ".join(words), list(words), reads=reads, outputs=outputs)

    return make_command


def _run_on_top(rng: random.Random, world: World) -> tuple[str, Case]:
    words = ["run", "heat7", "-n", "6", "5", "4", "-t", "2", "--memory", "8MiB", "--threads", "1", "-d", "../run.oc"]
    if rng.random() < 0.4:
        words += ["-d", rng.choice(["../run2.oc", "../new.oc"])]
    if rng.random() < 0.8:
        words += ["--force"]
    return "run", Case(" ".join(words), words, may_change=("case/run.oc", "case/run2.oc", "case/new.oc"))


def _elsewhere(rng: random.Random, world: World) -> tuple[str, Case]:
    """Return a case that makes a run in the second directory of another run. The first directory of the other run can
    be missing."""
    words = ["run", "heat7", "-n", "6", "5", "4", "-t", "2", "--memory", "8MiB", "--threads", "1"]
    words += rng.choice([["-d", "../run2.oc"], ["-d", "../new.oc", "-d", "../run2.oc"]])
    if rng.random() < 0.7:  # removes the main directory of the other run
        remove(world.case / "run.oc")
    words += ["--force"] if rng.random() < 0.8 else []
    return "run", Case(" ".join(words), words, may_change=("case/run2.oc", "case/new.oc"))


def read_all(where: str) -> None:
    """Read all data of a run with the Python interface."""
    sim = oc.open(where)
    repr(sim), sim.shape, sim.coordinates, sim.step, sim.remaining_steps
    for field in sim.stencil.fields:
        _ = sim[field.name][...]
        _ = sim[field.name][0]
    for values in sim.traces.values():
        np.asarray(values).sum()
    for rows in sim.norms.values():
        np.asarray(rows)
    for name in sim.snapshots:
        _ = sim.snapshots[name][...]
    str(sim), sim._repr_html_(), sim.stencil._repr_html_(), sim.snapshots._repr_html_()
    for data in xarray.open_groups(where, engine="outcrop").values():
        data.load()


def go_on(where: str) -> None:
    """Continue the run for a few steps."""
    sim = oc.open(where, memory="8MiB")
    sim.run(2, progress="none")


def start_anew(where: str) -> None:
    """Replace the run by a new run with initial values."""
    sim = oc.Simulation("heat7", SHAPE, directory=where, memory="8MiB", threads=1, force=True)
    sim["u"] = np.zeros(SHAPE, "float32")
    sim.run(2, progress="none")


def _python(function: Callable[[str], Any], reads: bool) -> Callable[..., tuple[str, Case]]:
    def make_call(rng: random.Random, world: World) -> tuple[str, Case]:
        return "python", Case(
            f"{function.__name__}()", call=lambda: function("../run.oc"), reads=reads, may_change=("case/run.oc",
            "case/run2.oc")
        )

    return make_call


COMMANDS: list[Callable[..., tuple[str, Case]]] = [
    _command("info", "../run.oc", reads=True),
    _command("info", "../run.oc", "--json", reads=True),
    _command("watch", "../run.oc", "--once", reads=True),
    _command("verify", "../run.oc", reads=True),
    _command("verify", "../run.oc", reads=True),
    _command("verify", "--repair", "../run.oc"),
    _command("plot", "../run.oc", "-o", "p.png", reads=True, outputs=("case/here/p.png",)),
    _command("plot", "../run.oc", "-o", "p.png", "--field", "u", "--slice", "x=1", reads=True,
    outputs=("case/here/p.png",)),
    _command("plot", "../run.oc", "--snapshots", "u", "--slice", "y=1,2", "--gif", "p.gif", reads=True,
    outputs=("case/here/p.gif",)),
    _command("export", "../run.oc", "--netcdf", "p.nc", "--snapshots", "all", "--traces", reads=True,
    outputs=("case/here/p.nc",)),
    _command("export", "../run.oc", "--hdf5", "p.h5", "--snapshots", "all", reads=True, outputs=("case/here/p.h5",)),
    _command("export", "../run.oc", "--vtk", "p.vti", reads=True, outputs=("case/here/p.vti",)),
    _command("resume", "../run.oc"),
    _command("resume", "../run.oc", "-t", "2"),
    _command("resume", "../run.oc", "-t", "3", "--memory", "9MiB", "--threads", "2"),
    _run_on_top,
    _run_on_top,
    _elsewhere,
    _python(read_all, reads=True),
    _python(go_on, reads=False),
    _python(start_anew, reads=False),
]


def make_arrays(rng: random.Random, world: World) -> Case:
    """Return a case of a damaged array on a tier."""
    world.reset("array")
    top = rng.choice(["array", "array", "array.npy", "read-only"])
    found = files_of(world.case, top)
    path = rng.choice(found)
    told, _ = mutate(rng, path, found, world.root)
    where = str(world.case / top)
    actions = {
        "open to read": (lambda: read_array(where), True),
        "open as it was made": (lambda: oc.open_array(where).close(), top in ("array.npy", "read-only")),
        "open to change": (lambda: change_array(oc.open_array(where, access="update")), False),
        "oc.array with persist": (lambda: change_array(oc.array(SHAPE, "int32", persist="step", path=where)), False),
        "oc.array read": (lambda: oc.array(SHAPE, "float64", access="read", persist="end", path=where).close(), False),
        "oc.array of a file": (lambda: oc.array(SHAPE, "float64", path=where).close(), False),
    }
    name = rng.choice(sorted(actions))
    call, reads = actions[name]
    return Case(f"{path.relative_to(world.case)}: {told}; {name}", call=call, reads=reads, may_change=(f"case/{top}",))


def read_array(where: str) -> None:
    """Read all values of the array."""
    with oc.open_array(where, access="read") as array:
        np.asarray(array[...]).sum()


def change_array(array: Any) -> None:
    """Change all values and end a step, with a commit if the array has commits."""
    with array:
        array[...] = 9
        array.step()
