"""Find three things: the MPI library of this process, headers for this library, and an mpirun of the same
implementation of MPI.

    mpi4py ──► the library that is loaded (path, name, version)
                    │   must be the same
    mpi.h  ──► headers found by $MPICC, by mpi4py's compiler, near the library, or by an mpicc

Each implementation of MPI has its own binary interface, and several implementations may be installed. The transport
calls MPI. A transport that was compiled with the headers of another implementation crashes. Therefore Outcrop checks
that the headers and the library belong to the same implementation. Outcrop looks for mpirun in the installation of the
MPI library, in Python's folder of scripts, and in the folders of PATH.
"""

from __future__ import annotations

import ctypes
import os
import re
import shlex
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outcrop.errors import InputError, without_mpi

OPEN_MPI, MPICH, ABI = "Open MPI", "MPICH", "MPI ABI"
WRAPPERS = ("mpicc", "mpicc.openmpi", "mpicc.mpich", "mpicc_abi")
PACKAGES = {OPEN_MPI: "libopenmpi-dev", MPICH: "libmpich-dev"}
"""The packages with the headers of an MPI, as Debian names them. Fedora names them openmpi-devel and mpich-devel."""
PROGRAMS = ("mpirun", "mpiexec", "mpirun.openmpi", "mpirun.mpich")
OPEN_MPI_FLAGS = ("--oversubscribe", "--bind-to", "none")
"""These options allow more ranks than cores, and do not bind ranks to cores. If ranks were bound, the ranks of all
programs on a node would use the same first cores.
"""

# Each mpi.h defines macros with the name and the version of its MPI. The program below prints these macros. Libraries
# derived from MPICH (Intel, Cray) have the binary interface of MPICH, but count their versions differently. Other
# libraries may have the standard binary interface of MPI 5 (MPI ABI). The names are in quotes, because the preprocessor
# would replace the word MPICH without quotes. This word can be a macro.
PROBE = """
#include <mpi.h>
#if defined(OPEN_MPI)
outcrop: "Open MPI" OMPI_MAJOR_VERSION OMPI_MINOR_VERSION OMPI_RELEASE_VERSION
#elif defined(MPICH_VERSION)
outcrop: "MPICH" MPICH_VERSION
#elif defined(MPI_ABI_VERSION)
outcrop: "MPI ABI"
#endif
"""


@dataclass(frozen=True)
class MpiVersion:
    """The name and version of an MPI library. If the version is unknown, the version is an empty tuple."""

    name: str
    version: tuple[int, ...] = ()

    def __str__(self) -> str:
        return " ".join([self.name, *([".".join(map(str, self.version))] if self.version else [])])

    def fits(self, other: MpiVersion) -> bool:
        """Return whether this version of MPI and `other` have the same binary interface. The interfaces are the same if
        the names and the major versions are equal. If one of the versions is unknown, only the names count.
        """
        known = self.version and other.version
        return self.name == other.name and (not known or self.version[0] == other.version[0])


@dataclass(frozen=True)
class MpiLibrary:
    """The MPI library that is loaded. `text` is the result of MPI_Get_library_version."""

    path: Path
    version: MpiVersion
    text: str


@dataclass(frozen=True)
class MpiHeaders:
    """The headers of an MPI library. `flags` are the compiler flags for these headers, and `version` is the version of
    the library. `origin` is the program or folder that gave the flags.
    """

    flags: tuple[str, ...]
    version: MpiVersion
    origin: str


def import_mpi(initialize: bool = True) -> Any:
    """Return the module `mpi4py.MPI`. Raises InputError if the module cannot be imported."""
    try:
        import mpi4py

        mpi4py.rc.initialize = mpi4py.rc.initialize and initialize
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise without_mpi(error) from None
    return MPI


def version_of(text: str) -> MpiVersion:
    """Return the name and version of an MPI library. `text` is the result of MPI_Get_library_version."""
    number = re.search(r"(?:Open MPI v|^MPICH Version:\s*)(\d+(?:\.\d+)*)", text)
    version = tuple(map(int, number.group(1).split("."))) if number else ()
    return MpiVersion(OPEN_MPI if "Open MPI" in text else MPICH, version)


def loaded_library(mpi: Any) -> MpiLibrary:
    """Return the library that `mpi4py.MPI` uses. Raises InputError if the MPI library is linked statically into
    mpi4py."""
    text = str(mpi.Get_library_version()).strip("\0 \n")
    extension, found = ctypes.CDLL(mpi.__file__), _SymbolInfo()
    if hasattr(extension, "MPI_Get_library_version"):
        function = ctypes.cast(extension.MPI_Get_library_version, ctypes.c_void_p)
        ctypes.CDLL(None).dladdr(function, ctypes.byref(found))
    path = Path(os.fsdecode(found.file or b""))
    if not path.is_file() or path.samefile(mpi.__file__):
        raise InputError(f"mpi4py at {mpi.__file__} does not use a shared MPI library: install an mpi4py that does")
    return MpiLibrary(path.resolve(), MpiVersion(ABI) if "mpi_abi" in path.name else version_of(text), text)


def find_headers(library: MpiLibrary, compiler: tuple[str, ...]) -> MpiHeaders:
    """Return headers for this library. If possible, the headers have the same version as the library. Otherwise they
    have the same binary interface. Raises InputError if no headers are found, or if all found headers belong to other
    implementations of MPI.
    """
    found = [headers for origin, flags in _candidates(library) if (headers := _probe(compiler, flags, origin))]
    fitting = [headers for headers in found if headers.version.fits(library.version)]
    if fitting:
        return next((headers for headers in fitting if headers.version == library.version), fitting[0])
    package = PACKAGES.get(library.version.name)
    remedy = f"install its headers{f' ({package} on Debian)' if package else ''}, or set MPICC to its mpicc"
    if found:
        others = ", ".join(dict.fromkeys(f"{headers.version} ({headers.origin})" for headers in found))
        raise InputError(f"this process uses {library.version} ({library.path}), but mpi.h is of {others}: {remedy}")
    raise InputError(f"no mpi.h found for {library.version} ({library.path}): {remedy}")


class _SymbolInfo(ctypes.Structure):
    """The struct Dl_info of <dlfcn.h>."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def _candidates(library: MpiLibrary) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Find headers that may be suitable. For each candidate, yield the origin and the compiler flags."""
    prefix = library.path.parent.parent
    own = shlex.split(os.environ.get("MPICC", ""))
    configured = shlex.split(_mpi4py_compiler())
    for wrapper in (own, configured):
        if wrapper and (flags := _shown_flags(wrapper)):
            yield wrapper[0], flags
    if (prefix / "include" / "mpi.h").is_file():
        yield str(prefix / "include"), (f"-I{prefix / 'include'}",)
    path = os.pathsep.join([str(prefix / "bin"), sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
    for name in WRAPPERS:
        program = shutil.which(name, path=path)
        if program and (flags := _shown_flags([program])):
            yield program, flags


def _mpi4py_compiler() -> str:
    import mpi4py

    return str(mpi4py.get_config().get("mpicc", ""))


def _shown_flags(wrapper: list[str]) -> tuple[str, ...]:
    """Return the flags for headers that a compiler wrapper prints. If the wrapper fails, return an empty tuple."""
    try:
        done = subprocess.run([*wrapper, "-show"], capture_output=True, text=True)
    except OSError:
        return ()
    words = shlex.split(done.stdout) if done.returncode == 0 else []
    return tuple(word for word in words if word.startswith(("-I", "-D")) and len(word) > 2)


def _probe(compiler: tuple[str, ...], flags: tuple[str, ...], origin: str) -> MpiHeaders | None:
    command = [*compiler, *flags, "-E", "-P", "-x", "c++", "-"]
    done = subprocess.run(command, input=PROBE, capture_output=True, text=True)
    said = re.search(r'^outcrop: "(Open MPI|MPICH|MPI ABI)"(.*)$', done.stdout, flags=re.M)
    if done.returncode != 0 or not said:
        return None
    numbers = tuple(map(int, re.findall(r"\d+", said.group(2))[:3]))
    return MpiHeaders(flags, MpiVersion(said.group(1), numbers), origin)


@dataclass(frozen=True)
class Launcher:
    """A launcher (mpirun), and the family of the launcher's MPI: Open MPI or MPICH."""

    program: Path
    family: str

    def command(self, ranks: int, *options: str) -> list[str]:
        """Return the beginning of a command that starts `ranks` ranks. The caller appends the program that the ranks
        run.
        """
        flags = [*OPEN_MPI_FLAGS, *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
        return [str(self.program), *(flags if self.family == OPEN_MPI else []), *options, "-n", str(ranks)]

    def mpi_io(self) -> list[str]:
        """Return the names of the implementations of MPI-IO in Open MPI. `mpirun --mca io NAME` accepts these names."""
        if self.family != OPEN_MPI:
            return []
        lister = self.program.with_name("ompi_info")
        if not lister.is_file():
            return []
        said = subprocess.run([lister, "--parsable"], capture_output=True, text=True).stdout
        return sorted(set(re.findall(r"^mca:io:(\w+):", said, flags=re.M)))


def find_launcher() -> Launcher:
    """Return the launcher of mpi4py's MPI. Raises InputError if mpi4py or the launcher is missing."""
    library = loaded_library(import_mpi(initialize=False))  # MPI_Init is not needed to read the version
    wanted = OPEN_MPI if "Open MPI" in library.text else MPICH
    prefix = library.path.parent.parent / "bin"
    path = os.pathsep.join([str(prefix), sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
    others = []
    for name in PROGRAMS:
        program = shutil.which(name, path=path)
        if program and (family := _family(program)) == wanted:
            return Launcher(Path(program), family)
        if program:
            others.append(program)
    there = f"; {', '.join(others)} belong to other implementations" if others else ""
    missing = f"no mpirun found for {library.version} ({library.path}){there}"
    raise InputError(f"{missing}: install it, or start the ranks yourself")


def _family(program: str) -> str:
    """Return the family of a launcher. The family follows from the output of the launcher's option --version."""
    done = subprocess.run([program, "--version"], capture_output=True, text=True)
    text = done.stdout + done.stderr
    if re.search(r"open-?mpi|open mpi|openrte|prrte", text, flags=re.I):
        return OPEN_MPI
    return MPICH if re.search(r"hydra|mpich|intel", text, flags=re.I) else ""
