"""Cases of damaged input files: initial values and models of every format, machine files, tiers, and topologies."""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
from pathlib import Path

import numpy as np

import outcrop as oc
import outcrop.aggregate as agg

from .case import Case
from .mutate_files import files_of, mutate
from .mutate_text import mutate_text
from .world import SHAPE, World

TIERS = """\
[scratch]
directory = "{folder}"
capacity = "200MiB"
persistence = "process"
read = "2GB/s"
write = "1GB/s"
random_read = "1GB/s"
random_write = "1GB/s"
read_latency = 1e-4
write_latency = 1e-4
flush_latency = 1e-3
"""
NODES = """\
[hbm]
kind = "hbm"
capacity = "16GiB"
read = "180GB/s"
write = "180GB/s"
read_latency = 1e-7
persistence = "process"

[pfs]
kind = "pfs"
capacity = "100TiB"
read = "20GB/s"
write = "20GB/s"
"""
NODE = """\
[dram]
kind = "dram"
capacity = "4GiB"
read = "10GB/s"
write = "10GB/s"

[target]
write = "1GB/s"

[network]
cards = 1
"""

OPTIONS = """
[problem]
stencil = "acoustic2"
shape = [6, 5, 4]
steps = 3
dtype = "float32"
boundary = "x=periodic"
params = { dt = 0.1, h = 1.0 }
spacing = [1.0, 1.0, 1.0]
units = "m"
init = { v = 1.0, u = "random:3" }

[[problem.sources]]
field = "u"
points = [2.0, 2.0, 2.0]
values = "../wavelet.npy"
scale = 0.5

[[problem.receivers]]
name = "line"
field = "u"
points = [[2.0, 2.0, 3.0], [2.0, 3.0, 2.0]]
before = true

[resources]
memory = "8MiB"
threads = 1
io = "threads"

[sizes]
scheme = "wavefront"
bt = 2
slab = 2

[output]
snapshots = { every = 2, box = [[0, 4], [0, 5], [0, 4]] }
norms = { every = 1, fields = ["u"] }
"""


def make_template(case: Path) -> None:
    """Write input files of each format. `texts.json` has the text that names the file of each format in a command
    line."""
    sys.path.insert(0, str(Path(__file__).parent.parent))
    import pytest

    from saves import SAVES

    values = np.random.default_rng(4).random(SHAPE).astype("float32")
    texts = {}
    for save in SAVES:
        folder = case / "inputs" / save.__name__
        folder.mkdir(parents=True)
        try:
            texts[save.__name__] = save(folder, values)
        except pytest.skip.Exception:
            shutil.rmtree(folder)
    (case / "texts.json").write_text(json.dumps(texts))
    crest = Path(oc.__file__).parent / "machines" / "crest6.toml"
    shutil.copy(crest, case / "machine.toml")
    (case / "tiers.toml").write_text(TIERS.format(folder=case))
    (case / "nodes.toml").write_text(NODES)
    (case / "node.toml").write_text(NODE)
    (case / "run.toml").write_text(OPTIONS)
    np.save(case / "wavelet.npy", np.arange(3.0))
    (case / "topology").write_text("".join(f"{rank}: {rank // 4} {rank // 2} {rank % 2}\n" for rank in range(8)))


def make(rng: random.Random, world: World) -> Case:
    """Return a case with one changed file. The change may affect the whole file or one part of the file."""
    world.reset("inputs")
    if rng.random() < 0.35:
        return _of_tables(rng, world)
    texts = json.loads((world.case / "texts.json").read_text())
    name = rng.choice(sorted(texts))
    found = [path for path in files_of(world.case, f"inputs/{name}")[1:]]
    path = rng.choice(found)
    told, _ = mutate(rng, path, found, world.root)
    text = texts[name]
    if rng.random() < 0.1:
        text += rng.choice([":vp", ":", ":no", "@resample", "@resample@resample", "/vp", "/", "@"])
    case = rng.choice([_run, _run, _plot, _resample])(rng, text)
    case.text = f"{path.relative_to(world.case)}: {told}; {case.text}"
    return case


RUN = ["run", "heat7", "-t", "2", "-d", "../new.oc", "--memory", "8MiB", "--threads", "1"]


def _run(rng: random.Random, text: str) -> Case:
    words = [*RUN, "--init", f"u={text}" if rng.random() < 0.7 else f"u={text}@resample"]
    words += rng.choice([[], ["-n", "6", "5", "4"], ["-n", "4", "5", "6"], ["-n", "8", "8", "8"], ["--check-finite"]])
    return Case(" ".join(words[-4:]), words, may_change=("case/new.oc",))


def _plot(rng: random.Random, text: str) -> Case:
    words = ["plot", text, "-o", "p.png"]
    return Case(f"plot {os.path.basename(text)}", words, reads=True, outputs=("case/here/p.png",))


def _resample(rng: random.Random, text: str) -> Case:
    def call() -> None:
        sim = oc.Simulation("heat7", (7, 6, 5), directory="../new.oc", memory="8MiB", threads=1)
        sim["u"] = oc.resample(text, (7, 6, 5))

    return Case(f"oc.resample({os.path.basename(text)})", call=call, may_change=("case/new.oc",))


SIMULATE = ["agg", "simulate", "--nodes", "4", "--ranks-per-node", "2", "--workload", "s3d", "--bytes-per-rank", "1MiB"]


def _declare() -> None:
    with agg.declare(None, [agg.contiguous(0, 4096)], machine="../node.toml") as plan:
        plan.explain()


def _of_tables(rng: random.Random, world: World) -> Case:
    cases = {
        "machine.toml": ["plan", "heat7", "-n", "64", "64", "64", "-t", "4", "--machine", "../machine.toml"],
        "tiers.toml": rng.choice([["tiers", "--tiers", "../tiers.toml"], ["agg", "machine", "made.toml", "--tiers",
        "../tiers.toml"]]),
        "nodes.toml": [*SIMULATE, "--topology", "torus", "--tiers", "../nodes.toml"],
        "topology": [*SIMULATE, "--topology", "../topology", "--tiers", "../nodes.toml"],
        "node.toml": None,
        "run.toml": ["run", "../run.toml", "-d", "../new.oc"],
        "wavelet.npy": ["run", "../run.toml", "-d", "../new.oc"],
    }
    name = rng.choice(sorted(cases))
    path = world.case / name
    if rng.random() < 0.8 and path.suffix != ".npy":
        told = mutate_text(rng, path, world.root)
    else:
        told, _ = mutate(rng, path, [path, world.case / "texts.json"], world.root)
    words = cases[name]
    if words is None:
        return Case(f"{name}: {told}; declare", call=_declare, reads=True)
    if words[0] == "run":
        return Case(f"{name}: {told}; {' '.join(words[:2])}", words, may_change=("case/new.oc",), seconds=60.0)
    outputs = ("case/here/made.toml",) if "made.toml" in words else ()
    return Case(f"{name}: {told}; {' '.join(words[:2])}", words, reads=True, outputs=outputs, seconds=60.0)
