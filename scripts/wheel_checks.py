"""Install the wheels of `dist`, and run the first program of the README, for `make wheels`.

    dist/*.whl ──► a new environment for each Python of this machine ─────────┐
               ──► a bare Debian or Ubuntu: Python only ──────────────────────┼──► compile, run, verify ──► times
               ──► the same with gcc ─────────────────────────────────────────┘

In the environments and in the bare system, the first program finds no compiler in PATH, and uses the compiler of the
package `ziglang`. A bare system is a folder that debootstrap fills. To make a bare system, the script needs root and a
network. In each environment and in each bare system, the script starts two processes: the first process has an empty
cache, and the second process uses the filled cache. Each process prints the seconds for the import of Outcrop, for
making a `Simulation`, and for a run of 4 steps.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from wheels import OUTPUT, PYTHONS, ROOT, WORK, Failure, run, version_with_headers

PROGRAM = '''\
"""Run the program of the README, and print the times. The argument says whether the cache is empty."""
import pathlib, sys, time

before = time.perf_counter()
import outcrop as oc
oc.Simulation
imported = time.perf_counter()
simulation = oc.Simulation(
    oc.stencils.heat(ndim=3), shape=(96, 96, 96), dtype="float32", directory="time.oc", memory="2MiB", force=True
)
made = time.perf_counter()
simulation["u"] = 1.0
simulation.run(steps=4)
ran = time.perf_counter()
print(f"{sys.argv[1]}: import {imported - before:.2f} s, Simulation {made - imported:.2f} s, run {ran - made:.2f} s")
if sys.argv[1] == "first":
    sys.exit()

from outcrop import _core
assert _core.has_hwloc(), "the wheel has no hwloc"
for name, reason in _core.probe().items():
    assert "built without" not in reason, reason
    print(f"{name}: {reason or 'works'}")
exec(compile(pathlib.Path("readme.py").read_text(), "readme.py", "exec"))
middle = sim["u"][48]
assert middle.shape == (96, 96) and 0.49 < middle.mean() < 0.51, middle
print(f"{report.stencil} {report.steps} steps with {report.io}")
'''

COMMANDS = """\
set -eu
cd {folder}
rm -rf cache heat.oc time.oc
export XDG_CACHE_HOME=$PWD/cache ZIG_GLOBAL_CACHE_DIR=$PWD/cache/zig HOME=$PWD PATH={path}
python check.py first
python check.py later
outcrop verify heat.oc
python -m outcrop info heat.oc > info.txt
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Install the wheels of dist, and run the first program of the README.")
    parser.add_argument(
        "--pythons", nargs="+", metavar="COMMAND", help="interpreters in which the wheels are installed"
    )
    parser.add_argument("--trees", nargs="*", metavar="SUITE", help="releases of Debian or Ubuntu; default: this one")
    parser.add_argument("--packages", nargs="*", default=["", "gcc libc6-dev"], help="packages in the bare systems")
    given = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    try:
        for command in given.pythons or [f"python{version}" for version in PYTHONS]:
            check_interpreter(command, required=bool(given.pythons))
        for suite in own_suite() if given.trees is None else given.trees:
            for packages in given.packages:
                check_tree(suite, packages.split())
    except Failure as failure:
        sys.exit(f"make wheels: {failure}")


def check_interpreter(command: str, required: bool) -> None:
    version = version_with_headers(command)
    if version is None:
        if required:
            raise Failure(f"{command} is not a CPython 3.10 or later with headers")
        return
    folder = WORK / "environments" / f"cp{version[0]}{version[1]}"
    shutil.rmtree(folder, ignore_errors=True)
    run([command, "-m", "venv", folder], f"making an environment with {command}")
    wheel = wheel_for(version)
    run([folder / "bin" / "python", "-m", "pip", "install", "-q", f"{wheel}[zig]"], f"the installation of {wheel.name}")
    place = folder / "check"
    write_check(place)
    script = COMMANDS.format(folder=shlex.quote(str(place)), path=f"{shlex.quote(str(folder / 'bin'))}:{basics(place)}")
    show(f"{command} with ziglang", run(["sh", "-c", script], f"the program in {command}"))


def basics(place: Path) -> str:
    """Make a folder with the usual programs of a shell, but without compilers. Return its path."""
    folder = place / "programs"
    folder.mkdir()
    for name in ("sh", "rm", "uname", "env"):
        found = shutil.which(name)
        if found:
            (folder / name).symlink_to(found)
    return shlex.quote(str(folder))


def check_tree(suite: str, packages: Sequence[str]) -> None:
    """Check a wheel in a bare system that has only Python and `packages`."""
    if os.geteuid() != 0 or not shutil.which("debootstrap") or not shutil.which("unshare"):
        print(f"no bare {suite} is checked, because this needs root and the package debootstrap")
        return
    tree = WORK / "trees" / "-".join([suite, *packages[:1]])
    if not (tree / "complete").is_file():
        print(f"making a bare {suite}", flush=True)
        shutil.rmtree(tree, ignore_errors=True)
        tree.mkdir(parents=True)
        include = ",".join(["python3", "python3-venv", "ca-certificates", *packages])
        source = mirror()
        is_ubuntu = "ubuntu" in "".join(source)
        parts = ["--components=main,universe"] if is_ubuntu else []  # universe has python3-venv
        scripts = Path("/usr/share/debootstrap/scripts")
        if source and not (scripts / suite).exists():  # the release is newer than this debootstrap
            source.append(str(scripts / ("gutsy" if is_ubuntu else "sid")))
        make = ["debootstrap", "--variant=minbase", *parts, f"--include={include}", suite, tree, *source]
        run(make, f"debootstrap for {suite}, which needs the network,")
        (tree / "complete").touch()
    for name in ("/etc/resolv.conf", "/etc/ssl/certs/ca-certificates.crt"):
        if Path(name).is_file():
            shutil.copy(name, tree / name[1:])
    said = inside(tree, "python3 -c 'import sys; print(*sys.version_info[:2])'", f"python3 of {suite}")
    major, minor = map(int, said.split())
    wheel = wheel_for((major, minor))
    write_check(tree / "check")
    shutil.copy(wheel, tree / "check")
    install = "rm -rf /venv && python3 -m venv /venv && /venv/bin/pip install -q "
    extra = "" if packages else "[zig]"
    inside(tree, install + shlex.quote(f"/check/{wheel.name}{extra}"), f"the installation in a bare {suite}")
    said = inside(tree, "ldconfig -p | grep -E 'hwloc|uring|libaio' || true", f"ldconfig of {suite}")
    if said:
        raise Failure(f"{suite} is not bare: {said.split()[0]}")
    done = inside(tree, COMMANDS.format(folder="/check", path="/venv/bin:/usr/bin:/bin"), f"the program in {suite}")
    show(f"{suite}, CPython {major}.{minor}, {' '.join(packages) or 'ziglang'}", done)


def inside(tree: Path, script: str, what: str) -> str:
    """Run a shell script in the bare system `tree`. When the shell script ends, the mounts that it needs are removed.
    Raises Failure."""
    folder = shlex.quote(str(tree))
    mounts = f"mount -t proc proc {folder}/proc && mount --rbind /dev {folder}/dev && mount --rbind /sys {folder}/sys"
    enter = f"{mounts} && exec chroot {folder} /bin/sh -c {shlex.quote(script)}"
    return run(["unshare", "--mount", "sh", "-c", enter], what, PATH="/usr/sbin:/usr/bin:/sbin:/bin")


def mirror() -> list[str]:
    """Return the address from which apt gets packages on this machine. If no such address is found, return an empty
    list, and debootstrap chooses the address."""
    for file in [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*.sources"))]:
        text = file.read_text() if file.is_file() else ""
        found = re.search(r"^(?:deb\s+(?:\[.*?\]\s+)?|URIs:\s*)(https?://\S+/(?:debian|ubuntu)/?)(?:\s|$)", text, re.M)
        if found:
            return [found.group(1)]
    return []


def own_suite() -> list[str]:
    """Return the code name of this release of Debian or Ubuntu, or an empty list on another system."""
    try:
        return [platform.freedesktop_os_release()["VERSION_CODENAME"]]
    except (OSError, KeyError):
        return []


def wheel_for(version: tuple[int, int]) -> Path:
    """Return the wheel of `dist` for this Python and for the processor of this machine."""
    name = f"cp{version[0]}{version[1]}-cp{version[0]}{version[1]}" if version < (3, 12) else "cp312-abi3"
    found = sorted(OUTPUT.glob(f"*-{name}-*_{platform.machine()}.whl"))
    if not found:
        raise Failure(f"dist has no wheel for CPython {version[0]}.{version[1]} on {platform.machine()}")
    return found[-1]


def write_check(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    program = re.search(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), flags=re.M | re.S)
    assert program is not None, "the README has a program"
    (folder / "readme.py").write_text(program.group(1))
    (folder / "check.py").write_text(PROGRAM)


def show(where: str, said: str) -> None:
    print(f"{where}:", *said.strip().splitlines(), sep="\n    ", flush=True)


if __name__ == "__main__":
    main()
