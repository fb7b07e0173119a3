"""This module compiles code only once, and keeps the shared object in the user's cache. The name of the file in the
cache is a hash of everything that affects the compiled code.

    source, compiler, flags, machine ──► key ──► $XDG_CACHE_HOME/outcrop/<kind>/<key>.so ──► checked, loaded

The file has a seal (`outcrop.user_cache`). If the file in the cache is damaged, or if other users may write it, the
code is compiled again.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import json
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
from outcrop.user_cache import CacheFolder, open_folder

MAX_BYTES = 64 << 20
"""Files in the cache with more than MAX_BYTES bytes are treated as damaged. A kernel has about 50 KB, and a transport
has about 1 MB."""

MAX_COMPILE_SECONDS = 1200.0
"""A compilation that takes more than MAX_COMPILE_SECONDS is stopped. Usually, the compilation of a kernel takes
seconds, and the compilation of the aggregation library takes a minute. A kernel from an untrusted file could take
days."""


def shared_object(kind: str, content: Sequence[str], build: Callable[[Path], None]) -> Path:
    """Return the path of the shared object in the cache. `load_library` loads the object. If the shared object is not
    in the cache, `build(path)` makes it. Raises InputError if the cache cannot be used. If `build` raises an exception,
    the caller gets this exception."""
    key = hashlib.sha256(json.dumps([*content, *_machine()]).encode()).hexdigest()[:32]
    name = f"{key}.so"
    with open_folder(kind, make=True) as folder:
        if folder.read(name, MAX_BYTES) is None:
            _keep(folder, name, build)
        return folder.path / name


def load_library(path: Path) -> ctypes.CDLL:
    """Load a shared object. `path` is a path that `shared_object` has returned, in this process or in another process
    of this user. The function checks the file first, and loads exactly the file that it has checked. Raises InputError
    if the file is damaged or missing, if other users may write it, or if it cannot be loaded."""
    with open_folder(path.parent.name, path.parents[2], make=False) as folder:
        if folder.read(path.name, MAX_BYTES) is None:
            raise InputError(f"{path} is damaged, or other users may write it: remove it, and try again")
        checked = Path(f"/proc/self/fd/{folder.descriptor}")  # the checked folder, even after a rename
        try:
            return ctypes.CDLL(str((checked if checked.is_dir() else folder.path) / path.name))
        except OSError as error:
            folder.remove(path.name)
            raise InputError(
                f"{path} cannot be loaded: {error}; if its file system forbids the execution of files, "
                "set XDG_CACHE_HOME to a folder on another file system"
            ) from None


def _keep(folder: CacheFolder, name: str, build: Callable[[Path], None]) -> None:
    """Build a shared object in a temporary folder, and write it into the cache with its seal."""
    try:
        with tempfile.TemporaryDirectory(prefix="outcrop-build-") as scratch:
            os.chmod(scratch, 0o700)
            beside = Path(scratch, "built.so")
            build(beside)
            if not beside.is_file():
                raise InputError("the compiler reported success, but wrote no file: check CC and CXX")
            with folder.locked():
                # If another process has written the file to the cache during the compilation, that file stays, because
                # processes have mapped it. On network file systems, these processes would lose the content of a
                # replaced file.
                if folder.read(name, MAX_BYTES) is None:
                    folder.write(name, beside.read_bytes())
    except OSError as error:
        raise InputError(
            f"compiled code cannot be kept in {folder.path}: {error.strerror}; make room, or set XDG_CACHE_HOME"
        ) from None


def _machine() -> list[str]:
    """Return the names of the processor and of the C library. The names are a part of the key in the cache, because
    several machines can share the folder of the cache."""
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        libc = ""
    return [os.uname().machine, libc]


def run_compiler(command: Sequence[str], what: str) -> None:
    """Run a compiler. If the compiler fails, raise InputError. The message has the first line of the output that
    contains the word "error". `what` names the compiled code in the message."""
    done = _run(command)
    if done.returncode != 0:
        first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr)
        raise InputError(f"the compiler {shlex.join(command[:1])} failed on {what}: {' '.join(first.split())[:200]}")


COMPILERS = {"C": ("CC", ("cc", "gcc", "clang"), "cc"), "C++": ("CXX", ("c++", "g++", "clang++"), "c++")}
"""For each language: the variable that names its compiler, usual commands, and the command in the `ziglang` package."""

VARIABLES = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX",
             "CCC_OVERRIDE_OPTIONS", "LD_RUN_PATH", "NIX_CFLAGS_COMPILE", "NIX_LDFLAGS")  # fmt: skip
"""Environment variables that GCC, Clang and their linkers read. CFLAGS is not in the list, because only make uses
it."""


@lru_cache
def find_compiler(language: str) -> tuple[str, ...]:
    """Return the command of a compiler for "C" or "C++". The function tries, in this order, $CC or $CXX, usual commands
    such as `cc`, and the `ziglang` package. Raises InputError if no compiler is found."""
    variable, names, in_zig = COMPILERS[language]
    try:
        named = shlex.split(os.environ.get(variable, ""))
    except ValueError as error:
        raise InputError(f"{variable}={os.environ[variable]!r} is not a command: {error}") from None
    for command in (named, *([name] for name in names)):
        if command and shutil.which(command[0]):
            return tuple(command)
    if importlib.util.find_spec("ziglang"):
        return (sys.executable, "-m", "ziglang", in_zig)
    raise InputError(f"no {language} compiler found: install {names[1]} or clang, or run: pip install ziglang")


def compiler_identity(compiler: tuple[str, ...]) -> list[str]:
    """Return the properties of a compiler: its command, file, version, and the environment variables that it reads."""
    variables = [f"{name}={os.environ[name]}" for name in VARIABLES if name in os.environ]
    return [*compiler, *_program(compiler), *variables]


@lru_cache
def _program(compiler: tuple[str, ...]) -> tuple[str, ...]:
    """Return two texts about a compiler. The first returned text contains the path, the size and the time of the
    compiler's file. The second returned text is the version of the compiler. The version of the compiler is not enough,
    because the command can be a wrapper script that changes without a new version."""
    found = Path(shutil.which(compiler[0]) or compiler[0]).resolve()
    try:
        file = f"{found} {found.stat().st_size} {found.stat().st_mtime_ns}"
    except OSError:
        file = str(found)
    return file, _run([*compiler, "--version"]).stdout


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a command without input. Other users cannot change the files that the command makes. Raises InputError if the
    command cannot be run, or takes too long."""
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", umask=0o077,
            timeout=MAX_COMPILE_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise InputError(
            f"the compiler {shlex.join(command[:1])} was stopped after {MAX_COMPILE_SECONDS:.0f} s: "
            "the stencil may be too large; write it with fewer terms"
        ) from None
    except OSError as error:
        raise InputError(f"the compiler {shlex.join(command[:1])} cannot be run: {error.strerror}") from None
