"""Compile once, and keep the shared object by content.

    whatever decides what comes out (source, compiler, flags, ...) ──► key ──► $XDG_CACHE_HOME/outcrop/<kind>/<key>.so

It is written beside and renamed, so that any number of processes may do this at once.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

from outcrop.errors import InputError


def shared_object(kind: str, content: Sequence[str], build: Callable[[Path], None]) -> Path:
    """The shared object of this content, kept from before or made by `build`, which gets the file to write.

    Raises InputError when the cache cannot be written, and what `build` raises.
    """
    folder = cache_folder(kind)
    key = hashlib.sha256("\0".join(content).encode()).hexdigest()[:32]
    path = folder / f"{key}.so"
    if path.exists():
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        scratch = tempfile.TemporaryDirectory(dir=folder, prefix="build-")
    except OSError as error:
        raise InputError(f"{kind} cannot be kept in {folder}: {error.strerror}; set XDG_CACHE_HOME") from None
    with scratch as name:
        beside = Path(name, "built.so")
        build(beside)
        beside.replace(path)
    return path


def cache_folder(kind: str) -> Path:
    """Where compiled code of one kind is kept: $XDG_CACHE_HOME/outcrop/<kind>."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "outcrop" / kind


def run_compiler(command: Sequence[str], what: str) -> None:
    """Run a compiler. Raises InputError with the first line that tells what is wrong with `what`."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip()[:200])
        raise InputError(f"the compiler {shlex.join(command[:1])} failed on {what}: {first}")


COMPILERS = {"C": ("CC", ("cc", "gcc", "clang"), "cc"), "C++": ("CXX", ("c++", "g++", "clang++"), "c++")}
"""For each language the variable that names its compiler, usual names, and what the `ziglang` package calls it."""


@lru_cache
def find_compiler(language: str) -> tuple[str, ...]:
    """The command of a compiler of "C" or "C++": that of $CC or $CXX, a usual one, or that of the `ziglang` package.

    Raises InputError where there is none.
    """
    variable, names, in_zig = COMPILERS[language]
    for command in (shlex.split(os.environ.get(variable, "")), *([name] for name in names)):
        if command and shutil.which(command[0]):
            return tuple(command)
    if importlib.util.find_spec("ziglang"):
        return (sys.executable, "-m", "ziglang", in_zig)
    raise InputError(f"no {language} compiler found: install {names[1]} or clang, or run: pip install ziglang")


@lru_cache
def compiler_version(compiler: tuple[str, ...]) -> str:
    """The first line of what a compiler says of itself."""
    done = subprocess.run([*compiler, "--version"], capture_output=True, text=True)
    return done.stdout.splitlines()[0] if done.stdout else "unknown"
