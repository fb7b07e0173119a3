"""Check runs on real block devices. These tests cover behaviour that cannot be simulated with files.

The tests use only loop devices of their own sparse files, and are skipped if the system has no loop devices.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import outcrop as oc
from outcrop import _core
from outcrop.run.places import open_state

SIZES = ["-n", "50", "36", "40"]
RUN = ["run", "heat7", *SIZES, "--memory", "512KiB", "--init", "random:3", "--quiet"]
SBIN = f"{os.environ['PATH']}:/usr/sbin:/sbin"


def call(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, env={**os.environ, "PATH": SBIN})


def outcrop(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return call(sys.executable, "-m", "outcrop.cli.main", *words)


def must(*words: str | Path) -> str:
    done = call(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """Assert that a command was refused with an error of one line. Return this line."""
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1, (done.stdout, done.stderr)
    return done.stderr


class Loop:
    """The loop devices of a test. A call of this object makes a loop device from a given file, or from a new file of 64
    MiB."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.made = folder, dict[Path, Path]()

    def __call__(self, *options: str, file: Path | None = None) -> Path:
        if not Path("/sys/dev/block").is_dir():
            pytest.skip("no runs on devices: /sys is not mounted")
        if file is None:
            file = self.folder / f"{len(self.made)}.img"
            file.touch()
            os.truncate(file, 64 << 20)
        done = call("losetup", "--find", "--show", *options, file) if shutil.which("losetup", path=SBIN) else None
        if done is None or done.returncode != 0:
            pytest.skip(f"no loop device: {done.stderr.strip() if done else 'there is no losetup'}")
        device = Path(done.stdout.strip())
        self.made[device] = file
        return device

    def detach(self, device: Path) -> Path:
        """Release the device and keep its file."""
        call("blockdev", "--setrw", device)  # another test may use this device name again, for writing
        must("losetup", "--detach", device)
        return self.made.pop(device)  # after this call, the device with this name may belong to another process


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Loop]:
    loop = Loop(tmp_path)
    yield loop
    for device in reversed(list(loop.made)):
        loop.detach(device)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    """Return the final values of the same run in a directory."""
    where = tmp_path_factory.mktemp("expected") / "run.oc"
    assert outcrop(*RUN, "-t", "60", "-d", where).returncode == 0
    return oc.open(where)["u"][:]


def test_every_command_works_on_a_device(loop: Loop, tmp_path: Path, expected: np.ndarray) -> None:
    device, picture = loop(), tmp_path / "slice.png"
    assert "--raw-device" in refused(outcrop(*RUN, "-t", "20", "-d", device))
    for words in (
        ["plan", "heat7", *SIZES, "-t", "20", "-d", device, "--raw-device"],
        [*RUN, "-t", "20", "-d", device, "--raw-device"],
        ["resume", device, "-t", "40", "--quiet"],
        ["verify", device],
        ["plot", device, "-o", picture],
    ):
        done = outcrop(*words)
        assert done.returncode == 0, done.stderr
    assert "step 60, finished" in outcrop("info", device).stdout and picture.exists()
    np.testing.assert_array_equal(oc.open(device)["u"][:], expected)
    assert "holds a run of heat7 at step 60" in refused(outcrop(*RUN, "-t", "1", "-d", device, "--raw-device"))
    report = oc.open(device).run(steps=1, progress="none")
    assert report.direct_io or report.io == "mmap", "devices take direct transfers"


@pytest.mark.parametrize("backend", [name for name, reason in _core.probe().items() if name != "memory" and not reason])
@pytest.mark.parametrize("sector", [512, 4096])
def test_sectors_and_backends_make_no_difference(loop: Loop, expected: np.ndarray, sector: int, backend: str) -> None:
    devices = [loop("--sector-size", str(sector)) for _ in range(2)]
    places = ["-d", devices[0], "-d", devices[1]]
    assert outcrop(*RUN, "-t", "60", *places, "--raw-device", "--io", backend).returncode == 0
    np.testing.assert_array_equal(oc.open(devices[0])["u"][:], expected)
    assert outcrop("verify", devices[0]).returncode == 0


def test_a_killed_run_goes_on_to_the_same_bits(loop: Loop, tmp_path: Path) -> None:
    """Checks that the operating system releases the device of a killed process, and that committed steps are not
    lost."""
    device, where, chance = loop(), tmp_path / "run.oc", random.Random(4)
    steps, killed_inside = 3000, 0
    script = f"import sys, outcrop as oc; s = oc.open(sys.argv[1]); left = {steps} - s.step; s.prepare(left); "
    script += "print(flush=True); s.run(left, 'none')"
    assert outcrop(*RUN, "-t", str(steps), "-d", where).returncode == 0
    assert outcrop(*RUN, "-t", "6", "-d", device, "--raw-device").returncode == 0
    for _ in range(4):
        before = oc.open(device).step
        with subprocess.Popen([sys.executable, "-c", script, str(device)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(chance.uniform(0.05, 0.2))
            process.send_signal(signal.SIGKILL)
        killed_inside += before < oc.open(device).step < steps
    assert killed_inside >= 1, "every kill came too early or too late"
    done = outcrop("resume", device, "--quiet")
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(oc.open(device)["u"][:], oc.open(where)["u"][:])


def test_damage_is_found_where_it_is(loop: Loop) -> None:
    device = loop()
    assert outcrop(*RUN, "-t", "6", "-d", device, "--raw-device").returncode == 0
    state = open_state(device)
    region = state.current_files_of("u")[0]
    with device.open("r+b") as file:
        file.seek(region.begin + 5 * state.layout.record_bytes + 77)
        file.write(b"?")
    done = outcrop("verify", device)
    assert done.returncode == 2 and f"plane 5 is damaged: checksum mismatch in {region} at offset" in done.stdout


def test_bench_io_writes_a_device_that_holds_nothing_and_no_other(loop: Loop, tmp_path: Path) -> None:
    """Checks that other programs find no known content on a device after the benchmark has written to it. A device that
    holds a run is refused.
    """
    device, bench = loop(), ["bench", "io", "--small", "--only", "raw", "-d", tmp_path, "--raw-device"]
    done = outcrop(*bench, device, "--write-device")
    assert done.returncode == 0 and "sequential write" in done.stdout, done.stderr
    assert outcrop(*RUN, "-t", "6", "-d", device, "--raw-device").returncode == 0
    before = loop.made[device].read_bytes()
    assert "holds a run" in refused(outcrop(*bench, device, "--write-device"))
    assert outcrop(*bench, device).returncode == 0
    assert loop.made[device].read_bytes() == before


def test_a_file_system_is_kept_and_a_mounted_one_even_from_force(loop: Loop, tmp_path: Path) -> None:
    if not shutil.which("mkfs.ext4", path=SBIN):
        pytest.skip("no mkfs.ext4")
    device, point = loop(), tmp_path / "mounted"
    must("mkfs.ext4", "-q", "-L", "thesis", device)
    before = (tmp_path / "0.img").read_bytes()
    said = refused(outcrop(*RUN, "-t", "1", "-d", device, "--raw-device"))
    assert "ext4" in said and "--force" in said
    assert (tmp_path / "0.img").read_bytes() == before
    point.mkdir()
    if call("mount", device, point).returncode != 0:
        pytest.skip("mounting is not allowed here")
    try:
        (point / "chapter").write_text("one")
        said = refused(outcrop(*RUN, "-t", "1", "-d", device, "--raw-device", "--force"))
        assert f"it is mounted at {point}" in said
        assert (point / "chapter").read_text() == "one"
    finally:
        must("umount", point)
    assert outcrop(*RUN, "-t", "1", "-d", device, "--raw-device", "--force").returncode == 0
    assert call("mount", device, point).returncode != 0, "the old file system must be gone, not half there"
    assert outcrop("verify", device).returncode == 0


def test_a_device_that_someone_holds_is_refused(loop: Loop) -> None:
    """Checks that a device in use is refused. In one case, another program has opened the device exclusively, as a
    mount does. In the other cases, one or two loop devices use the device.
    """
    device = loop()
    run = [*RUN, "-t", "1", "-d", device, "--raw-device", "--force"]
    assert outcrop(*run).returncode == 0
    handle = os.open(device, os.O_RDONLY | os.O_EXCL)
    try:
        for words in (run, ["resume", device, "-t", "1"], ["verify", device]):
            assert "in use by another process or by the system" in refused(outcrop(*words))
        assert "being run now" in outcrop("info", device).stdout
    finally:
        os.close(handle)
    above = loop(file=device)
    assert f"it is behind {above.name}" in refused(outcrop(*run))
    loop.detach(above)
    twin = loop(file=loop.made[device])
    assert "have the same file behind them" in refused(outcrop(*run))
    assert twin.name in refused(outcrop("resume", device, "-t", "1"))


def test_nothing_else_gets_the_device_while_it_is_held(loop: Loop) -> None:
    """Checks that no other program can mount, format or use the device while a run holds it."""
    device = loop()
    sim = oc.Simulation("heat7", (40, 36, 50), directory=device, memory="512KiB", raw_device=True)
    refusals = []

    def planes(z0: int, z1: int) -> np.ndarray:
        with pytest.raises(OSError) as error:
            os.close(os.open(device, os.O_RDWR | os.O_EXCL))
        refusals.append(error.value.strerror)
        return np.zeros((z1 - z0, 36, 50))

    sim["u"] = planes
    assert set(refusals) == {"Device or resource busy"}
    os.close(os.open(device, os.O_RDWR | os.O_EXCL))


def test_a_read_only_device_is_read_and_not_written(loop: Loop) -> None:
    device = loop()
    assert outcrop(*RUN, "-t", "6", "-d", device, "--raw-device").returncode == 0
    must("blockdev", "--setro", device)
    assert "is read-only" in refused(outcrop(*RUN, "-t", "6", "-d", device, "--raw-device", "--force"))
    assert "is read-only" in refused(outcrop("resume", device, "-t", "6"))
    assert outcrop("verify", device).returncode == 0
    must("blockdev", "--setrw", device)


def test_a_device_that_is_too_small_says_how_large_it_must_be(loop: Loop) -> None:
    said = refused(outcrop("run", "heat7", "-n", "256", "256", "256", "-t", "1", "-d", loop(), "--raw-device"))
    assert f"has {64 << 20} bytes" in said and "the run needs " in said


def test_devices_are_found_under_other_names(loop: Loop) -> None:
    """Checks that a run finds its devices by their content, because the names of devices may change when the machine
    restarts."""
    devices = [loop(), loop()]
    assert outcrop(*RUN, "-t", "6", "-d", devices[0], "-d", devices[1], "--raw-device").returncode == 0
    assert "share of a run" in refused(outcrop("info", devices[1]))
    files = [loop.detach(device) for device in devices]
    second, first = (loop(file=file) for file in reversed(files))
    assert outcrop("resume", first, "-t", "3", "--quiet").returncode == 0
    assert outcrop("verify", first).returncode == 0
    assert "share of a run" in refused(outcrop("info", second))
