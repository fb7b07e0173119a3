"""Cases of aggregation with damaged files: shared files, files of nodes with their index, and stages."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import outcrop.aggregate as agg

from .case import Case
from .mutate_files import files_of, mutate
from .mutate_text import mutate_text
from .world import World

STEP_BYTES = 4096


def make_template(case: Path) -> None:
    """Write three staged steps, some of which are not drained to the file, and two steps in files of nodes."""
    (case / "stage").mkdir()
    child = os.fork()
    if child == 0:
        file = agg.create(case / "staged", declared(), stage=case / "stage")
        for step in range(3):
            file.write([np.full(STEP_BYTES, step + 1, "u1")], base=step * STEP_BYTES)
        os._exit(0)
    os.waitpid(child, 0)
    with declared() as plan, agg.create(case / "nodes", plan, node_files=True) as file:
        for step in range(2):
            file.write([np.full(STEP_BYTES, step + 1, "u1")], base=step * STEP_BYTES)


def declared() -> agg.Plan:
    """Return a plan of aggregation for a program that consists only of this process."""
    return agg.declare(None, [agg.contiguous(0, STEP_BYTES)])


def read_nodes() -> None:
    """Read both steps from the files of nodes."""
    with declared() as plan, agg.open("../nodes", plan, node_files=True) as file:
        for step in range(2):
            file.read([np.zeros(STEP_BYTES, "u1")], base=step * STEP_BYTES)


def write_nodes() -> None:
    """Write one more step to the files of nodes."""
    with declared() as plan, agg.open("../nodes", plan, node_files=True, writable=True) as file:
        file.write([np.full(STEP_BYTES, 9, "u1")], base=2 * STEP_BYTES)


def recover(make: Callable[..., Any], **options: Any) -> None:
    """Open the file with a stage, and write one step. The open drains the staged steps."""
    with declared() as plan, make("../staged", plan, stage="../stage", **options) as file:
        file.write([np.full(STEP_BYTES, 9, "u1")])


def make(rng: random.Random, world: World) -> Case:
    """Return a case with one damaged file or folder."""
    world.reset("aggregated")
    staged = rng.random() < 0.6
    tops = ("stage",) if staged else ("nodes.index", "nodes.node-0")
    found = files_of(world.case, *tops)
    texts = [path for path in found if path.suffix in (".list", ".done", ".index") and path.is_file()]
    path = rng.choice(found)
    if texts and rng.random() < 0.5:
        path = rng.choice(texts)
        told = mutate_text(rng, path, world.root)
    else:
        told, _ = mutate(rng, path, found, world.root)
    where = f"{path.relative_to(world.case)}: {told}"
    if staged:
        name, call = rng.choice(
            [("open", lambda: recover(agg.open, writable=True)), ("create", lambda: recover(agg.create))]
        )  # fmt: skip
        return Case(f"{where}; {name} with a stage", call=call, may_change=("case/stage", "case/staged"))
    if rng.random() < 0.5:
        words = ["agg", "merge", "../nodes.index", "merged"]
        return Case(f"{where}; agg merge", words, reads=True, outputs=("case/here/merged", "case/here/merged.tmp"))
    name, function = rng.choice([("read", read_nodes), ("write", write_nodes)])
    changed = ("case/nodes.index", "case/nodes.node-0", "case/nodes.index.tmp")
    return Case(f"{where}; {name} files of nodes", call=function, reads=name == "read", may_change=changed)
