"""Cases of command lines. Every option and argument of every command gets wrong values, alone or together with other
options.

The lists of commands and options come from the program, so new options are tested automatically.
"""

from __future__ import annotations

import os
import random
from functools import cache
from pathlib import Path
from typing import Any

from . import values
from .case import Case
from .world import World

BASES = {
    ("run",): "heat7 -n 6 5 4 -t 2 -d ../new.oc --memory 8MiB --threads 1",
    ("plan",): "heat7 -n 6 5 4 -t 2 -d ../new.oc --memory 8MiB --threads 1",
    ("resume",): "../run.oc -t 2",
    ("info",): "../run.oc",
    ("watch",): "../run.oc",
    ("verify",): "../run.oc",
    ("plot",): "../run.oc -o p.png",
    ("stencils",): "heat2 --param h=2",
    ("completion",): "bash",
    ("export",): "../run.oc --netcdf p.nc",
    ("tiers",): "",
    ("bench",): "table2 --small",
    ("agg", "simulate"): "--topology torus --nodes 4 --ranks-per-node 2 --workload s3d",
    ("agg", "machine"): "machine.toml",
    ("agg", "merge"): "no.index merged",
    ("agg", "bench"): "--ranks 1 --size 4KiB --turns 1 --ways posix --workload s3d --durable no",
}
"""Valid arguments for each command."""

SLOW = {("bench",): 0.1, ("agg", "bench"): 0.05, ("tiers",): 0.3, ("agg", "machine"): 0.3}
"""Commands that are tried less often, because valid arguments start a measurement."""

EXPORTS = ("--netcdf", "--hdf5", "--vtk", "--zarr")
READING = {("info",), ("watch",), ("verify",), ("plot",), ("plan",), ("tiers",), ("stencils",), ("completion",),
           ("agg", "simulate")}
OUTPUTS = ("--json", "--png", "-o", "--output", "--draw", "--save", "--gif", "--mp4")

WORDS = {
    "--memory": ["101%", "0%", "-5%", "1e400%", "nan%", "0", "-1", "1", "8MiBs", "8 MiB", "1e9GiB", "9" * 400, "8EiB",
    "1ZiB"],
    "--threads": ["0", "-1", "65", "100000", str(2**31), str(2**63), str(2**64), "1.5"],
    "-t": ["0", "-1", str(2**31 - 1), str(2**31), str(2**31 + 1), str(2**63), str(2**64), "9" * 5000, "1e3", "1.0"],
    "-n": ["0", "-1", "1", "2", "3", "65536", str(2**31), str(2**32), str(2**62), "9" * 5000, "6x5x4", "6,5,4",
    "6 5 4 4", "4.0"],
    "--init": ["zeros", "random:-1", "random:" + "9" * 5000, "random:x", "random:1.5", "gaussian", "nan", "inf",
    "1e400", "u=",
               "=1", "u=u=1", "raw:fifo:<f4:6,5,4", "raw:/dev/zero:<f4:6,5,4", "fifo", "u=fifo", "loop", "/dev/zero",
               "/dev/full",
               "socket", "@resample", "fifo@resample", "no.npy@resample", "x" * 5000, "u.previous=1", "../run.oc",
               "../run.oc/u",
               "../run.oc/.u.0/c/0/0/0", "unreadable", "link-to-home", "link-to-file"],
    "--param": ["c0=nan", "c0=inf", "c0=1e400", "c0=" + "9" * 400, "c0=" + "9" * 5000, "c0=", "=1", "c0", "c0=0x1",
    "dt=-1",
                "kappa=1e300", "é=1", "c0=1", "c0=-1e308"],
    "--set": ["params.c0=nan", "params.c0", "=1", "steps=0,1", "bt=0", "bt=1,x", "directory=a,b", "steps=1,1",
    "params.c0=1,,2", "x=1", "init=no.npy,zeros", "params.c0=" + "9" * 5000, "in_place=2", ",", "shape=1 2", "é=1"],
    "--interval": ["0", "-1", "nan", "inf", "1e9", "x"],
    "--port": ["0", "-1", "65536", "x", "9" * 400],
    "--boundary": ["", ",", "x", "x=", "=x", "x=periodic,x=fixed", "periodic", "w=periodic", "x=periodic:",
    "x=fixed:mirror:fixed",
                   "mirror", "x=" + "fixed:" * 5000],
    "--slice": ["z=-1", "z=6", "w=0", "z", "=1", "z=" + "9" * 5000, "z=1e3", "z=\u0661", "z=" + str(2**63)],
    "STENCIL": ["heat", "heat0", "heat1", "heat3", "heat18", "heat99", "heat" + "9" * 5000, "heat2_9d", "heat-2",
    "HEAT7", "acoustic2",
                "maxwell", "gray_scott_2d", "heat٢", "heat2_sponge", "d3q19", "stream_function", "heat7\n", "../heat7",
                "heat2 "],
    "--topology": ["torus:0x0x0", "torus:-1x4x1", "torus:4x4x8", "torus:" + "9" * 5000,
    "torus:" + "x".join(["2"] * 70), "dragonfly:0",
                   "fat-tree:x", "fifo", "/dev/zero", "loop", "unreadable", "link-to-home", "torus:2x2",
                   "torus:" + str(2**40)],
    "--nodes": ["0", "-1", str(2**31), str(2**63), "9" * 5000, "100000", "1"],
    "--ranks-per-node": ["0", "-1", str(2**31), str(2**63), "9" * 5000, "100000", "1"],
    "--aggregators": ["0", "-1", str(2**31), "9" * 5000, "3"],
    "--bandwidth": ["0B/s", "-1GB/s", "1GB", "GB/s", "nanGB/s", "1e400GB/s", "infGB/s", "/s", "1/s/s"],
    "--latency": ["nan", "inf", "-1", "1e400", "0", "1e-320", "1e308"],
    "--cards": ["0", "-1", "9" * 400, str(2**64)],
    "--only": ["", ",", "nothing", "heat2,,"],
    "NAME": ["", "x", "core", "CORE", "../core", "table2", "stream", "io\n"],
    "--ranks": ["0", "-1", "1,0", ",", "x", "9" * 400, str(2**31), "1," * 3000],
    "--turns": ["0", "-1", str(2**63), "9" * 400],
    "--colors": ["", "no", "gray", "viridis", "__class__", "x" * 5000],
    "--field": ["", "v", "u.previous", "no", "../u", "x" * 5000],
    "--snapshots": ["", "all", "u", "side", "u/", "/u", "../u", "x" * 5000],
    "--netcdf": ["p.h5", "p", "../run.oc", "../run.oc/p.nc", "a/b/p.nc", ".", "x" * 255, "s3://b/p.nc", "fifo"],
    "--hdf5": ["p.h5", "../run.oc/u", "link-to-home/p.h5", "unreadable"],
    "--vtk": ["p.vti", "p.pvd", "p.vtk", "link-to-file", "dangling"],
    "--zarr": ["p.zarr", "memory://a/b", "memory://", "what://a/b", "file://p.zarr", "../run.oc", "../../home", "file://"],
    "--bt": ["0", "-1", "1", "3", str(2**31), str(2**63), "9" * 5000], "--slab": ["0", "-1", "1", "6", "7", str(2**31),
    str(2**63)],
    "--machine": ["crest6", "crest7", "../crest6", "fifo", "/dev/zero", "loop", "unreadable", "link-to-home",
    "x" * 300],
}  # fmt: skip
"""Values for each option that are almost always wrong."""

PLACES = ["", ".", "..", "/", "../new.oc", "../run.oc", "../run2.oc", "fifo", "socket", "loop", "link-to-home",
    "link-to-file",
          "dangling", "unreadable", "x" * 255, "x" * 300, "a/b/c/d", "x/" * 3000, "../../home", "../../home/keep",
          "../../other.oc",
          "../../further", "../../empty", "/dev/zero", "/dev/full", "/dev/null", "/dev/stdin", "/dev/fd/99",
          "/proc/self/mem", "/proc/x",
          "fifo/x", "link-to-file/x", "../run.oc/manifest.json", "../run.oc/u", "../run.oc/.taps", "new\nline", "-",
          "--", "*", "~", "~/x",
          "with space", "\x1b[31mred", "é", "\udcff\udcfe", "a\udc80b", "file://x", "s3://x/y", ".hidden", "x.img",
          "x.oc\t"]  # fmt: skip


NAMES_OF_PLACES = ("RUN", "WHERE", "FILE", "DIR|URL", "DIR", "PNG", "INDEX")
"""Names of arguments that are paths."""


@cache
def commands() -> dict[tuple[str, ...], Any]:
    """Return a dictionary with every command of the program, except `view`, which does not end by itself. The keys are
    the words of the commands, such as ("agg", "bench")."""
    from typer.main import get_command

    from outcrop.cli.app import app

    found: dict[tuple[str, ...], Any] = {}

    def collect(command: Any, words: tuple[str, ...]) -> None:
        if hasattr(command, "commands"):
            for name, inner in command.commands.items():
                collect(inner, (*words, name))
        else:
            found[words] = command

    collect(get_command(app), ())
    del found["view",]
    return found


def make(rng: random.Random, world: World) -> Case:
    """Return a case: one command with one to three changed options. A changed option has a wrong value or contradicts
    another option."""
    names = sorted(commands())
    words = rng.choices(names, [SLOW.get(name, 1.0) * (2.5 if name == ("run",) else 1.0) for name in names])[0]
    command = commands()[words]
    world.reset(rng.choice(["waves", "heat"]), odd_things=rng.random() < 0.8)
    line = BASES.get(words, "").split()
    text = []
    environment: dict[str, str] = {}
    for _ in range(rng.choice([1, 1, 2, 2, 3])):
        kind = rng.randrange(20)
        if kind == 0:
            line.insert(rng.randrange(len(line) + 1), any_text(rng))
        elif kind == 1 and line:
            text.append(f"without {line.pop(rng.randrange(len(line)))!a}")
        elif kind == 2:
            name = rng.choice(ENVIRONMENT)
            environment[name] = any_text(rng) if rng.random() < 0.5 else any_place(rng)
            environment[name] = clean(environment[name])
            text.append(f"{name}={environment[name][:60]!a}")
        else:
            line = with_nonsense(rng, line, rng.choice(command.params))
    line = [clean(word) for word in line] + (["--once"] if words == ("watch",) else [])  # else `watch` may wait forever
    allowed, outputs = changes(words, line, world)
    stdout = rng.choices(["file", "full", "closed", "broken"], [20, 1, 1, 1])[0]
    shown = " ".join(ascii(word) if not word.isprintable() or " " in word or not word else word for word in [*words,
    *line])
    text.append(shown if len(shown) < 400 else shown[:397] + "...")
    return Case(
        f"{', '.join(text)}; stdout {stdout}", [*words, *line], reads=words in READING, may_change=allowed,
        outputs=outputs,
        must_fail=why_wrong(words, line), stdout=stdout, environment=environment,
        seconds=60.0 if words in SLOW else 30.0 if words[0] == "agg" else 20.0,
    )  # fmt: skip


ENVIRONMENT = ("OUTCROP_TIERS", "OUTCROP_AGG_MACHINE", "OUTCROP_AGG_BUFFER", "OUTCROP_AGG_TIER", "OUTCROP_AGG_STAGE",
    "CC",
               "OUTCROP_AGG_SECONDS_MOST", "OUTCROP_AGG_COUNT", "OUTCROP_AGG_NONE", "HOME", "XDG_CONFIG_HOME",
               "OUTCROP_MPIRUN",
               "TERM", "COLUMNS", "OMP_NUM_THREADS", "LANG")  # fmt: skip


def clean(word: str) -> str:
    """Return a word that the operating system accepts as an argument. It has no NUL and can be converted to bytes."""
    return word.replace("\0", "0").encode("utf-8", "surrogateescape").decode("utf-8",
    "surrogateescape") if is_bytes(word) else "?"


def is_bytes(word: str) -> bool:
    """Return whether the word can be converted to bytes."""
    try:
        os.fsencode(word)
    except UnicodeEncodeError:
        return False
    return True


def any_text(rng: random.Random) -> str:
    """Return a random text, which is rarely a valid value."""
    return values.text(rng) if rng.random() < 0.7 else any_place(rng)


def any_place(rng: random.Random) -> str:
    """Return a random path. Usually, no command can use this path."""
    return rng.choice(PLACES) if rng.random() < 0.9 else os.fsdecode(values.bytes_name(rng))


def with_nonsense(rng: random.Random, line: list[str], option: Any) -> list[str]:
    """Return the line with a wrong value for this option. Usually the new value replaces the values in the line.
    Sometimes the option occurs twice."""
    is_argument = option.param_type_name == "argument"
    names = [str(option.metavar or option.name)] if is_argument else [*option.opts, *option.secondary_opts]
    name = rng.choice(names)
    special = next((WORDS[one] for one in names if one in WORDS), None)
    if getattr(option, "is_flag", False):
        return [*line, name] if rng.random() < 0.8 else [*line, f"{name}={any_text(rng)}"]
    if special and rng.random() < 0.7:
        value = rng.choice(special)
    elif option.metavar in NAMES_OF_PLACES:
        value = any_place(rng)
    elif rng.random() < 0.6:
        value = str(values.number(rng))
    else:
        value = any_text(rng)
    if is_argument:
        return [value, *(line[1:] if line and not line[0].startswith("-") else line)]
    values_given = [value]
    if "-n" in names:
        values_given = [rng.choice([value, "4", "5", *WORDS["-n"]]) for _ in range(rng.choice([1, 2, 3, 3, 3, 4]))]
    if rng.random() < 0.75:
        line = without(line, names)
    if rng.random() < 0.15 and name.startswith("--"):
        return [*line, f"{name}={values_given[0]}"]
    return [*line, name, *values_given]


def without(line: list[str], names: list[str]) -> list[str]:
    """Return the line without one option and without the values of this option. `names` are all names of the option."""
    kept, skipping = [], False
    for word in line:
        if word in names:
            skipping = True
        elif skipping and word.startswith("-"):
            skipping = False
        if not skipping:
            kept.append(word)
    return kept


def given(line: list[str], *names: str) -> list[str]:
    """Return the values of the options with these names."""
    found = [line[at + 1] for at, word in enumerate(line[:-1]) if word in names]
    return found + [word.partition("=")[2] for word in line if word.partition("=")[0] in names and "=" in word]


def changes(words: tuple[str, ...], line: list[str], world: World) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the paths that the command may write: a tuple with paths of runs, and a tuple with paths of other files.
    All paths are relative to the world's folder."""
    runs: list[str] = []
    if words == ("resume",):
        runs = ["case/run.oc", "case/run2.oc"]
        if any("other.oc" in word or "further" in word for word in line):
            runs += ["other.oc", "further"]
    if words == ("run",):
        force = "--force" in line
        for place in given(line, "-d", "--directory"):
            path = inside(place, world)
            if path is not None and place and (force or is_free(world.root / path)):
                runs.append(path)
        if force:  # the run that is replaced is removed from all its directories
            for first, second in (("case/run.oc", "case/run2.oc"), ("other.oc", "further")):
                runs += [second] if first in runs else []
    for place in given(line, *EXPORTS) if words == ("export",) else ():
        path = inside(place.removeprefix("file://"), world)
        if path is not None and place:
            folder, name = os.path.split(path)
            for one in (name, f"{name}.images"):
                runs += [os.path.join(folder, one), os.path.join(folder, f".{one}.partial")]
    if words in ((("bench",)), ("agg", "bench")):
        runs += [path for place in given(line, "-d", "--directory") or ["."] if (path := inside(place, world))]
    outputs = [path for place in given(line, *OUTPUTS) if (path := inside(place, world)) and place]
    if words in (("tiers",), ("agg", "machine")):  # a measurement makes a file and removes this file
        places = [".", *given(line, "-d", "--directory")]
        places += [os.path.dirname(place) or "." for place in given(line, "--target")]
        outputs += [f"{path}/.outcrop-measure" for place in places if (path := inside(place, world))]
    if words in (("agg", "machine"), ("agg", "merge")):
        outputs += [path for word in line if not word.startswith("-") and (path := inside(word, world))]
    # a command also makes the missing parent folders of a new folder
    for path in list(runs):
        parent = os.path.dirname(path)
        while parent and not os.path.exists(world.root / parent):
            runs.append(parent)
            parent = os.path.dirname(parent)
    return tuple(runs), tuple(outputs)


def inside(place: str, world: World) -> str | None:
    """Convert a path relative to the command's folder to a path relative to the world's folder. Return None if the path
    is outside the world.
    """
    try:
        real = os.path.realpath(os.path.join(world.here, place))
    except (OSError, ValueError):
        return None
    relative = os.path.relpath(real, os.path.realpath(world.root))
    return None if relative.startswith("..") or relative == "." else relative


def is_free(path: Path) -> bool:
    """Return True if a run may be made at this path without `--force`."""
    try:
        return not os.path.lexists(path) or (path.is_dir() and not os.listdir(path))
    except OSError:
        return False


def why_wrong(words: tuple[str, ...], line: list[str]) -> str:
    """Return the reason why the command must be refused, or "". The function recognises only simple reasons."""
    if "--help" in line or "-h" in line:
        return ""
    for option, names in (("--memory", ["--memory"]), ("-t", ["-t", "--steps"]), ("--threads", ["--threads"])):
        for value in given(line, *names)[-1:]:
            if words[0] in ("run", "plan", "resume") and is_wrong(option, value):
                return f"{option} {value[:40]}"
    if words == ("run",) and "" in given(line, "-d", "--directory"):
        return "-d ''"
    return ""


def is_wrong(option: str, value: str) -> bool:
    """Return whether a value is out of the range of its option."""
    number = value.rstrip("%")
    try:
        amount = float(number)
    except ValueError:
        return False
    if option == "--memory":
        return value.endswith("%") and not 0 < amount <= 100
    return not amount >= 1 or (option == "--threads" and amount > 1e6)
