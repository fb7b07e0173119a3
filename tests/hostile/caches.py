"""Cases of a cache that other users can write to, or that a power cut has damaged. Outcrop must not load kernels from
such a cache.

A harmful kernel simulates an attack: it writes to a file of another user when a process loads it.
"""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

from .case import Case
from .mutate_files import mutate_bytes, mutate_entry
from .world import World, remove

EVIL = """
#include <fcntl.h>
#include <unistd.h>
__attribute__((constructor)) static void attack(void) {
  int file = open("%s", O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (file >= 0 && write(file, "x", 1) == 1) close(file);
}
"""
STRANGER = 65534


def make_template(case: Path) -> None:
    """Make a cache that holds measurements and the kernel of heat7. Put a harmful kernel next to the cache."""
    os.environ["XDG_CACHE_HOME"] = str(case / "cache")
    from outcrop.cli.main import call

    if call([*RUN, "-d", str(case / "warm.oc"), "--quiet"]) != 0:
        raise RuntimeError("cannot fill a cache")
    remove(case / "warm.oc")
    source = case / "evil.c"
    source.write_text(EVIL % (case.parent / "home" / "attacked"))
    subprocess.run([os.environ["CC"], "-shared", "-fPIC", "-o", case / "evil.so", source], check=True)


RUN = ["run", "heat7", "-n", "6", "5", "4", "-t", "2", "--memory", "8MiB", "--threads", "1"]


def make(rng: random.Random, world: World) -> Case:
    """Return a case with one change in the cache."""
    world.reset("caches")
    cache = world.case / "cache"
    kernels = sorted(cache.rglob("*.so"))
    found = sorted(cache.rglob("*"))
    path = rng.choice(kernels if rng.random() < 0.6 else found)
    kind = rng.randrange(8)
    mask = 0o022
    if kind < 2:
        told = evil(rng, world, kernels)
    elif kind == 2:
        mask = 0
        told = "umask 000"
        remove(cache)
    elif kind < 6 and path.is_file():
        told, _ = mutate_bytes(rng, path, [*kernels, world.case / "evil.c"])
    else:
        told = mutate_entry(rng, path, found, world.root)
    case = Case(
        f"cache: {path.relative_to(cache)}: {told}", [*RUN, "-d", "../new.oc"], may_change=("case/new.oc",
        "case/cache"),
        environment={"XDG_CACHE_HOME": str(cache)}, seconds=60.0,
    )  # fmt: skip
    if mask == 0:
        return umasked(case, cache)
    if path.is_file() and rng.random() < 0.3:
        case.words = ["tiers"]
    return case


def evil(rng: random.Random, world: World, kernels: list[Path]) -> str:
    """Replace all kernels by the harmful kernel, as an attacker could do."""
    how = rng.choice(["owner", "mode of the file", "mode of the folder", "link"])
    if how == "owner" and os.geteuid() != 0:
        how = "mode of the file"
    for kernel in kernels:
        remove(kernel)
        content = (world.case / "evil.so").read_bytes()
        if how == "link":
            (world.case / "theirs.so").write_bytes(content)
            kernel.symlink_to(world.case / "theirs.so")
            continue
        kernel.write_bytes(content)
        if how == "owner":
            os.chown(kernel, STRANGER, STRANGER)
        elif how == "mode of the file":
            kernel.chmod(0o666)
        else:
            kernel.parent.chmod(0o777)
    return f"a kernel that does harm, {how}"


def umasked(case: Case, cache: Path) -> Case:
    """Return a case that fails if other users can write to any part of the cache after the command."""
    words = case.words
    assert words is not None

    def call() -> None:
        from outcrop.cli.main import call as command

        os.umask(0)
        if command(words) != 0:
            raise RuntimeError("the run failed")
        found = [path for path in [cache / "outcrop", *(cache / "outcrop").rglob("*")] if path.stat().st_mode & 0o022]
        if found:
            raise RuntimeError(f"others can write {found[0].relative_to(cache)}")

    return Case(case.text, call=call, may_change=case.may_change, environment=case.environment, seconds=60.0)
