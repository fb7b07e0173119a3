"""Make a world of files: runs that cases damage, and files that no case may change. A worker runs one case after
another in its own world.

    world/home, other.oc, further, empty      Files of other users, which no case may change.
    world/fifo, socket, loop, link-to-...     Entries that are neither files nor folders.
    world/case/run.oc, run2.oc, array, ...    The data of the case, copied from a template.
    world/case/here                           The working directory of commands.
    templates/NAME/...                        A template, which can be copied to world/case.

A run stores its own absolute path. So each worker makes its templates at the path where cases use them, and then moves
them to `templates`.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np

import outcrop as oc

SHAPE = (6, 5, 4)
SMALL = {"memory": "8MiB", "threads": 1}


class World:
    """The world of one worker. `build` makes it, and `reset` prepares it for the next case."""

    def __init__(self, folder: Path, templates: Mapping[str, Callable[[Path], object]] | None = None) -> None:
        self._makers = templates or TEMPLATES
        self.root, self.templates = folder / "world", folder / "templates"
        self.case, self.here = self.root / "case", self.root / "case" / "here"

    def build(self, apart: Callable[[Callable[[], object]], object]) -> None:
        """Make the templates, and the files that no case may change. `apart` runs a function in a separate process."""
        self.templates.mkdir(parents=True)
        self.root.mkdir()
        for name, make in self._makers.items():
            self.case.mkdir()
            apart(partial(make, self.case))
            self.case.rename(self.templates / name)
        self._make_others(apart)
        self.case.mkdir()

    def _make_others(self, apart: Callable[[Callable[[], object]], object]) -> None:
        home = self.root / "home"
        (home / "photos").mkdir(parents=True)
        for name in ("keep", "notes.txt", "photos/one", "photos/two"):
            (home / name).write_text(f"a file of someone else's: {name}\n" * 20)
        (self.root / "empty").mkdir()
        apart(lambda: make_heat(self.root / "other.oc", self.root / "further"))
        make_odd_things(self.root, home)

    def rebuild_others(self, apart: Callable[[Callable[[], object]], object]) -> None:
        """Make all files outside the folder `case` again, after a case has changed some of them."""
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir(exist_ok=True)
        self._make_others(apart)
        self.case.mkdir()

    def reset(self, template: str, odd_things: bool = True) -> None:
        """Empty the folder `case`, and copy the template there."""
        for entry in os.scandir(self.case):
            remove(entry.path)
        if template:
            shutil.copytree(self.templates / template, self.case, symlinks=True, dirs_exist_ok=True)
        self.here.mkdir()
        if odd_things:
            make_odd_things(self.here, self.root / "home")


def remove(path: str | os.PathLike[str]) -> None:
    """Remove a file, a folder or a link, if it exists."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, onerror=_make_removable)
    elif os.path.lexists(path):
        os.unlink(path)


def _make_removable(function: Callable[..., object], path: str, error: object) -> None:
    if not os.path.lexists(path):  # a removed folder has no content left
        return
    os.chmod(os.path.dirname(path), 0o700)
    if os.path.isdir(path) and not os.path.islink(path):
        os.chmod(path, 0o700)
        shutil.rmtree(path)
    else:
        os.unlink(path)


def make_odd_things(folder: Path, home: Path) -> None:
    """Make unusual entries: a pipe, a socket, links, and a file without permissions. Cases use these entries in place
    of a file or a folder."""
    os.mkfifo(folder / "fifo")
    make_socket(folder / "socket")
    (folder / "loop").symlink_to("loop")
    (folder / "link-to-home").symlink_to(home)
    (folder / "link-to-file").symlink_to(home / "keep")
    (folder / "dangling").symlink_to(home / "not-there")
    (folder / "unreadable").write_text("x")
    (folder / "unreadable").chmod(0)


def make_socket(path: Path) -> None:
    """Make a socket. The function uses a short path in /proc, because `path` can be too long for a socket address."""
    made = socket.socket(socket.AF_UNIX)
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        made.bind(f"/proc/self/fd/{handle}/{path.name}")
    finally:
        made.close()
        os.close(handle)


def make_heat(*where: Path, **options: object) -> oc.Simulation:
    """Make a simple completed run."""
    chosen = {"dtype": "float32", **SMALL, **options}
    sim = oc.Simulation(oc.stencils.heat(ndim=3), SHAPE, directory=list(where), **chosen)  # type: ignore[arg-type]
    sim["u"] = np.random.default_rng(1).random(SHAPE, dtype="float32")
    sim.run(4, progress="none")
    return sim


def make_waves(case: Path, steps: int = 8) -> oc.Simulation:
    """Make a run with all features, in two directories."""
    v, dt = oc.Field("v"), oc.Parameter("dt", 0.0)
    points = [(20.0, 20.0, 15.0), (25.0, 20.0, 15.0)]
    sim = oc.Simulation(
        oc.stencils.acoustic(order=2), SHAPE, directory=[case / "run.oc", case / "run2.oc"], spacing=10.0, dt=0.001,
        sources=[oc.Source("u", points, np.sin(np.arange(120.0).reshape(60, 2)), scale=dt**2 * v[0, 0, 0] ** 2)],
        receivers=[oc.Receivers("line", "u", points), oc.Receivers("before", "u", points[0], before=True)],
        snapshots=oc.Snapshots(2, time_units="s"), norms=oc.Norms(2), sizes={"bt": 4}, units="m", **SMALL,
    )  # fmt: skip
    sim["v"] = np.random.default_rng(2).uniform(1500, 2500, SHAPE).astype("float32")
    if steps:
        sim["u"] = np.random.default_rng(3).random(SHAPE, dtype="float32")
        sim.run(steps, progress="none")
    return sim


def make_unfinished(case: Path) -> None:
    """Make a run that was interrupted after the first of three passes."""

    def interrupt(step: int, fields: object) -> None:
        raise KeyboardInterrupt

    sim = make_waves(case, steps=0)
    sim["u"] = np.random.default_rng(3).random(SHAPE, dtype="float32")
    with suppress(oc.errors.InterruptedRun, KeyboardInterrupt):
        sim.run(12, progress="none", on_snapshot=interrupt)


def make_two_axes(case: Path) -> None:
    """Make a run of two fields on a grid of two axes. The run has one copy of each field and one given parameter."""
    sim = oc.Simulation(
        oc.stencils.gray_scott(ndim=2), (7, 9), directory=case / "run.oc", in_place=True, boundary="periodic", **SMALL
    )
    sim["u"], sim["v"] = np.ones((7, 9), "float32"), np.full((7, 9), 0.25, "float32")
    sim.run(4, progress="none")


def make_adjoint(case: Path) -> None:
    """Make an adjoint run in run.oc, and run a part of its steps. The adjoint run computes states of its forward run
    again."""
    sim = oc.Simulation(
        oc.stencils.acoustic(order=2), SHAPE, directory=case / "forward.oc", unstable=True,
        sources=oc.Source("u", (2.0, 2.0, 1.5), [1.0, 2.0]), **SMALL,
    )  # fmt: skip
    sim["v"], sim["u"] = np.full(SHAPE, 0.25, "float32"), "random:3"
    sim.run(7, progress="none", history=oc.History(3, recompute=True))
    run = sim.adjoint({"u": "random:4"}, ["v", "u"], case / "run.oc")
    run.simulation.run(4, progress="none")


def make_array(case: Path) -> None:
    """Make an array with two commits, a .npy file that can be opened as an array, and a read-only array."""
    with oc.array(SHAPE, "int32", persist="step", path=case / "array") as array:
        for step in (1, 2):
            array[:] = step
            array[0] = 7
            array.step()
    np.save(case / "array.npy", np.arange(120.0).reshape(SHAPE))
    with oc.array(SHAPE, "float64", access="read", persist="end", path=case / "read-only") as array:
        array[:] = 2.5


TEMPLATES: dict[str, Callable[[Path], object]] = {
    "waves": make_waves,
    "unfinished": make_unfinished,
    "new": lambda case: make_waves(case, steps=0),
    "heat": lambda case: make_heat(case / "run.oc"),
    "two-axes": make_two_axes,
    "adjoint": make_adjoint,
    "array": make_array,
}
RUNS = ("waves", "waves", "unfinished", "new", "heat", "two-axes", "adjoint", "adjoint")
"""Templates with a run in run.oc. The templates with the most features occur twice, to be chosen more often."""
