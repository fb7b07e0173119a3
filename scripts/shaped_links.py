"""Run two ranks in two network namespaces that are joined by a link of a given rate and latency.

    sudo .venv/bin/python scripts/shaped_links.py DIRECTORY [--rate 1e9] [--latency 1e-4] [--turns 3] [OPTION ...]

    namespace a                    this script                    namespace b
    rank 0 ◄─► TUN device ◄─► two processes that keep each   ◄─► TUN device ◄─► rank 1
                              packet for the time of the link

Many Linux kernels have no module that delays packets. So the script starts one process for each direction of the link.
These processes delay the packets. Each of these processes sends packets one after another at the given rate. A packet
arrives after the latency of the link. The script first measures the link. Then the script runs `outcrop run` with the
OPTIONS in DIRECTORY, alternately with the measured link and with a link without limits. The script prints the measured
and predicted figures. Each rank is bound to a core. The two processes that delay packets use the same cores.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import multiprocessing
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from outcrop.units import format_bytes, format_rate, format_seconds

RUN = "heat7 -n 256 512 2048 -t 96 --init random:1 --memory 64MiB --threads 1"
INTERFACE = "shaped0"
PROGRAMS = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
ADDRESSES = "10.254.254.1", "10.254.254.2"
MTU = 65535
QUEUED_SECONDS = 0.002
"""If the packets of a direction must wait longer than the latency plus this time, the direction takes no further
packets."""
PINGS, PROBE_SECONDS = 300, 0.5
_TUNSETIFF, _TUNSETOFFLOAD = 0x400454CA, 0x400454D0
_FLAGS, _OFFLOADS = 0x5001, 3
"""IFF_TUN, IFF_NO_PI, IFF_VNET_HDR; TUN_F_CSUM, TUN_F_TSO4. The system then uses packets without checksums."""


def refuse(text: str) -> NoReturn:
    sys.exit(f"shaped_links: {text}")


def ip(*words: str) -> None:
    """Run the program ip. If the program fails, exit with its message."""
    found = subprocess.run(["ip", *words], capture_output=True, text=True)
    if found.returncode != 0:
        refuse(f"ip {' '.join(words)}: {found.stderr.strip()}")


def require_support() -> None:
    """Exit with one line if this process cannot make namespaces and TUN devices, or cannot start two ranks."""
    if os.geteuid() != 0:
        refuse("network namespaces need root; use sudo")
    if shutil.which("ip") is None or shutil.which("taskset") is None:
        refuse("the programs ip and taskset are missing; install iproute2 and util-linux")
    if not Path("/dev/net/tun").exists():
        refuse("this kernel has no TUN devices (/dev/net/tun)")
    if len(os.sched_getaffinity(0)) < 2:
        refuse("the two ranks need two cores")
    if shutil.which("mpirun", path=PROGRAMS) is None:
        refuse("there is no mpirun; install it: pip install 'outcrop[mpi]' mpich")


def open_tun(name: str) -> int:
    """Make a TUN device and return its file descriptor. Each read and write transfers one IP packet."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    try:
        fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _FLAGS))
        fcntl.ioctl(device, _TUNSETOFFLOAD, _OFFLOADS)
    except OSError as error:
        refuse(f"no TUN device can be made: {error.strerror}")
    return device


def relay(source: int, target: int, rate: float, latency: float) -> None:
    """Move packets in one direction of the link, until the script ends. `rate` is in bytes per second, `latency` in
    seconds."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.nice(-10)  # high priority, because this process simulates hardware, which does not wait for the ranks
    Path("/proc/self/timerslack_ns").write_text("1000")
    packets: deque[tuple[float, bytes]] = deque()
    free, script = 0.0, os.getppid()
    while os.getppid() == script:
        now = time.perf_counter()
        while packets and packets[0][0] <= now:
            with suppress(OSError):  # as in a network, a packet that cannot be delivered is lost
                os.write(target, packets[0][1])
            packets.popleft()
        sources = [source] if free <= now + QUEUED_SECONDS else []
        if select.select(sources, [], [], max(0.0, packets[0][0] - now) if packets else 1)[0]:
            with suppress(BlockingIOError):
                packet = os.read(source, 2 * MTU)
                free = max(time.perf_counter(), free) + len(packet) / rate
                packets.append((free + latency, packet))


@contextmanager
def link(rate: float, latency: float) -> Iterator[tuple[list[str], list[int]]]:
    """Make two network namespaces that are joined by a link. Yield the names of the namespaces, and the numbers of the
    processes that forward packets. At the end, remove the processes, the TUN devices and the namespaces."""
    names = [f"outcrop-{os.getpid()}-{one}" for one in "ab"]
    tuns: list[int] = []
    relays: list[multiprocessing.process.BaseProcess] = []
    fork = multiprocessing.get_context("fork")  # forked processes inherit the open devices
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, lambda *_: sys.exit(1))
    try:
        for number, name in enumerate(names):
            ip("netns", "add", name)
            device = f"oc{os.getpid()}{number}"
            tuns.append(open_tun(device))
            ip("link", "set", device, "netns", name, "name", INTERFACE)
            ip("-n", name, "link", "set", INTERFACE, "mtu", str(MTU), "up")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "address", "add", ADDRESSES[number], "peer", ADDRESSES[1 - number], "dev", INTERFACE)
        relays += [fork.Process(target=relay, args=(*pair, rate, latency)) for pair in (tuns, tuns[::-1])]
        for process in relays:
            process.start()
        yield names, [one.pid for one in relays if one.pid is not None]
    finally:
        for one in (signal.SIGINT, signal.SIGTERM):  # a second signal must not stop the removal
            signal.signal(one, signal.SIG_IGN)
        for name in names:
            found = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True)
            for left in found.stdout.split():
                with suppress(ProcessLookupError):
                    os.kill(int(left), signal.SIGKILL)
        for process in relays:
            if process.pid is not None:
                process.terminate()
                process.join()
        for tun in tuns:
            os.close(tun)
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def inside(name: str, core: int, *command: str) -> list[str]:
    """Return the command that runs a Python program in a namespace, on one of the cores of this process."""
    cores = sorted(os.sched_getaffinity(0))
    return ["ip", "netns", "exec", name, "taskset", "-c", str(cores[core]), sys.executable, *command]


def answer() -> None:
    """This function answers the function `probe`, which runs in the other namespace. First send the bytes of `probe`
    back, then send other data for some time."""
    os.nice(-10)
    with socket.create_server((ADDRESSES[1], 7)) as server:
        print("ready", flush=True)
        connection = server.accept()[0]
    for _ in range(PINGS):
        connection.sendall(connection.recv(1))
    piece, end = bytes(1 << 20), time.monotonic() + PROBE_SECONDS
    while time.monotonic() < end:
        connection.sendall(piece)
    connection.close()


def probe() -> None:
    """Print two numbers as JSON: the round trip time of a byte in seconds, and the received bytes per second."""
    os.nice(-10)
    connection = socket.create_connection((ADDRESSES[1], 7))
    trips, count, first = [], 0, 0.0
    for _ in range(PINGS):
        start = time.perf_counter()
        connection.sendall(b"0")
        connection.recv(1)
        trips.append(time.perf_counter() - start)
    begin = now = time.perf_counter()
    while part := len(connection.recv(1 << 20)):
        now = time.perf_counter()
        if first:
            count += part
        elif now - begin > PROBE_SECONDS / 5:  # TCP reaches its full rate only after some time
            first = now
    print(json.dumps([sorted(trips)[PINGS // 2], count / (now - first)]))


def measure_link(names: list[str]) -> str:
    """Return a text with the measured figures of the link."""
    with subprocess.Popen(inside(names[1], 1, __file__, "answer"), stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"ready\n"
        found = subprocess.run(inside(names[0], 0, __file__, "probe"), stdout=subprocess.PIPE, check=True)
    trip, rate = json.loads(found.stdout)
    return f"link measured: {format_rate(rate)}B/s, round trip {1e6 * trip:.0f} us"


def processor_seconds(processes: list[int]) -> float:
    """Return the time that processes have used on cores since their start."""
    stats = [Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split() for one in processes]
    return sum(int(ticks) for one in stats for ticks in one[11:13]) / os.sysconf("SC_CLK_TCK")


def run(names: list[str], relays: list[int], rate: float, where: Path, options: list[str]) -> str:
    """Run `outcrop run` on two ranks in a new folder in `where`, and return a text with its figures. The folder is
    removed."""
    environment = {**os.environ, "PATH": PROGRAMS, "OUTCROP_NETWORK": INTERFACE}
    before = processor_seconds(relays)
    with tempfile.TemporaryDirectory(prefix="outcrop-links-", dir=where) as folder:
        report = Path(folder) / "report.json"
        command = ("-m", "outcrop.cli.main", "run", *options, "-d", f"{folder}/run.oc", "--json", str(report))
        ranks = [["-n", "1", *inside(name, number, *command, "--quiet")] for number, name in enumerate(names)]
        done = subprocess.run(["mpirun", *ranks[0], ":", *ranks[1]], env=environment)
        if done.returncode != 0:
            refuse(f"the run has failed with status {done.returncode}")
        one = json.loads(report.read_text())
    relayed = processor_seconds(relays) - before
    seconds, predicted, waited = one["seconds"], one["predicted"]["seconds"], one["seconds_face_wait"]
    texts = (
        f"{format_seconds(seconds)}, predicted {format_seconds(predicted)} ({100 * (predicted / seconds - 1):+.0f} %)",
        f"waited for links {format_seconds(waited)} ({100 * waited / seconds:.1f} %)",
        f"sent {format_bytes(one['bytes_sent'])}, {format_seconds(one['bytes_sent'] / 2 / rate)} of the link",
        f"relays used {format_seconds(relayed)} of the cores",
        f"{one['scheme']}, {one['plan']['steps_per_pass']} steps a pass, {one['plan']['blocks_per_pass']} blocks",
    )
    return "; ".join(texts)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("directory", type=Path, help="for the files of the runs; must exist")
    parser.add_argument("--rate", type=float, default=1e9, help="in bytes per second, in each direction")
    parser.add_argument("--latency", type=float, default=1e-4, help="in seconds, in each direction")
    parser.add_argument("--turns", type=int, default=3)
    given, options = parser.parse_known_args()
    if not given.directory.is_dir():
        parser.error(f"{given.directory} is not a directory; make it first")
    require_support()
    kinds = {"shaped": (given.rate, given.latency), "without limits": (float("inf"), 0.0)}
    for turn in range(given.turns):
        for kind, figures in kinds.items():
            with link(*figures) as (names, relays):
                if turn == 0:
                    print(f"{kind}: {measure_link(names)}", flush=True)
                print(f"{kind}: {run(names, relays, figures[0], given.directory, options or RUN.split())}", flush=True)


if __name__ == "__main__":
    {"answer": answer, "probe": probe}.get(sys.argv[1] if len(sys.argv) > 1 else "", main)()
