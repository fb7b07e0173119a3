"""Check runs on block devices: the bits of results, the stored bytes, the locks, and the state after a kill.

The tests in test_device*.py use plain files in place of devices. In these tests, `is_block_device` accepts the files.
test_raw_device.py tests the sector sizes and the exclusive use of real devices.
"""

import multiprocessing
import os
import random
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import outcrop as oc
from images import SHAPE, create, make_image, put, simulation, take_images_for_devices, values
from manifests import make_manifest
from outcrop.errors import InputError, StorageError
from outcrop.run.device import use as device_use
from outcrop.run.device.device import HEADER_BYTES, Device, needed_bytes, ranges_on
from outcrop.run.disk.entries import ArrayEntry
from outcrop.run.disk.layout import PlaneLayout
from outcrop.run.disk.verify import find_damage
from outcrop.run.places import open_state

pytestmark = pytest.mark.usefixtures("images")

SPAWN = multiprocessing.get_context("forkserver")
SPAWN.set_forkserver_preload(["numpy", "outcrop.run.simulation", "outcrop.language.library", "test_device"])
STEPS = 300
KILLS = int(os.environ.get("OUTCROP_KILLS", "8"))
GIVEN = {"memory": "512KiB", "scheme": "wavefront", "sizes": {"bt": 16, "slab": 3, "diamond": 16}}
"""The sizes are given. Otherwise, most kills would happen during the search for sizes."""


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_run_on_devices_has_the_bits_and_bytes_of_one_in_directories(tmp_path: Path, count: int) -> None:
    """Checks that a run on devices stores a header, followed by the same bytes as a run in directories. So a file with
    the bytes of a shard from a device is a valid Zarr shard.
    """
    devices = [make_image(tmp_path / f"{index}.img") for index in range(count)]
    folders = [tmp_path / f"{index}.oc" for index in range(count)]
    for where, raw in ((devices, True), (folders, False)):
        sim = simulation(where, raw)
        sim["u"] = values()
        sim.run(steps=9, progress="none")
        again = oc.open(where[0])
        again.run(steps=5, progress="none")
        assert find_damage(open_state(where[0])).damage == []
    assert oc.open(devices[0]).step == 14
    np.testing.assert_array_equal(oc.open(devices[0])["u"][:], oc.open(folders[0])["u"][:])
    on_device, in_folder = open_state(devices[0]), open_state(folders[0])
    for turn in (0, 1):
        for region, file in zip(on_device.files_of("u", turn), in_folder.files_of("u", turn), strict=True):
            content = Path(region.path).read_bytes()[region.begin : region.begin + region.size]
            assert without_seals(content, on_device.layout) == without_seals(
                Path(str(file)).read_bytes(), on_device.layout
            )


def without_seals(shard: bytes, layout: PlaneLayout) -> bytes:
    """Return a shard with zeros instead of seals, because seals differ from run to run."""
    content, seal = bytearray(shard), layout.plane_bytes + 4
    for begin in range(0, len(shard) - layout.index_bytes, layout.record_bytes):
        content[begin + seal : begin + seal + 4] = bytes(4)
    return bytes(content)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("devices", [1, 2, 5])
@pytest.mark.parametrize("arrays", ["u", "u u.previous v", "u m*", "u v m* n*"])
def test_regions_are_apart_aligned_and_behind_the_header(devices: int, in_place: bool, arrays: str) -> None:
    """Checks that the regions of all arrays are aligned, do not overlap, and begin after the header.

    In `arrays`, a * after a name marks an array that is only read.
    """
    manifest = replace(
        make_manifest(*map(Path, "abcde"[:devices]), in_place=in_place),
        shape=(31, 50, 7),
        shard_planes=3,
        arrays=tuple(ArrayEntry(name.strip("*"), name.endswith("*")) for name in arrays.split()),
    )
    seen = set()
    for index in range(devices):
        end = HEADER_BYTES
        for (name, turn, shard), region in ranges_on(manifest, index, "x").items():
            assert region.begin >= end and region.begin % 4096 == 0
            assert region.size == manifest.layout.shard_bytes(shard)
            end = region.begin + region.size
            seen.add((name, turn, shard))
        assert end <= needed_bytes(manifest, index) < end + 4096
    shards = range(manifest.layout.shards)
    assert seen == {(entry.name, turn, shard) for entry, turn in manifest.copies for shard in shards}


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("in_place", [False, True])
def test_all_arrays_of_a_run_live_on_devices(tmp_path: Path, count: int, in_place: bool) -> None:
    """Checks that a device holds all arrays, including previous values and read-only fields. One commit covers all
    arrays.
    """
    u, m = oc.Field("u"), oc.Field("m")
    update = 2 * u[0, 0, 0] - u.previous[0, 0, 0] + m[0, 0, 0]
    devices = [make_image(tmp_path / f"{index}.img") for index in range(count)]
    sim = oc.Simulation(
        oc.Stencil("two", {u: update}), SHAPE, directory=devices, memory="512KiB", raw_device=True, in_place=in_place,
        spacing=2.0,
    )  # fmt: skip
    parts = {"u": values(), "u.previous": values() + 1, "m": values() + 2}
    sim.assign(parts)
    sim["u"] = values() + 3
    for name, expected in {**parts, "u": values() + 3}.items():
        np.testing.assert_array_equal(oc.open(devices[0])[name][...], expected)
    found = find_damage(open_state(devices[0]))
    assert (found.damage, found.checked) == ([], 3 * (SHAPE[0] + open_state(devices[0]).layout.shards))
    region = open_state(devices[0]).current_files_of("m")[0]
    put(Path(region.path), region.begin + 100, b"\xff\xff")
    (line,) = find_damage(open_state(devices[0])).damage
    assert line.startswith("m: plane 0 is damaged") and str(region) in line


def test_a_share_that_is_missing_or_of_another_run_is_named(tmp_path: Path) -> None:
    first, second = (make_image(tmp_path / f"{name}.img") for name in "ab")
    create(first, second).commit(0)
    put(second, 0, bytes(4096))
    with pytest.raises(StorageError, match=r"share 1 of the run is missing: it was on .*b\.img"):
        open_state(first)


def test_a_start_that_is_refused_leaves_no_run(tmp_path: Path) -> None:
    device = make_image(tmp_path / "a.img")
    sim = simulation([device])

    def planes(z0: int, z1: int) -> np.ndarray:
        if z1 > 10:
            raise InputError("no more")
        return np.zeros((z1 - z0, *SHAPE[1:]))

    with pytest.raises(InputError, match="no more"):
        sim["u"] = planes
    with pytest.raises(InputError, match="holds no Outcrop run"):
        oc.open(device)
    sim["u"] = values()
    assert oc.open(device).step == 0


def test_a_run_replaced_meanwhile_is_not_written(tmp_path: Path) -> None:
    """Checks a process whose run on a device was replaced by another run. The process can no longer write planes or a
    manifest."""
    device = make_image(tmp_path / "a.img")
    old = create(device)
    old.commit(0)
    create(device, force=True, identity="2").commit(0)
    with pytest.raises(InputError, match="now holds another run"), old.locked():
        pass
    with pytest.raises(StorageError, match="now holds another run"):
        old.commit(5)
    assert open_state(device).manifest.identity == "2"


def test_one_process_at_a_time(tmp_path: Path) -> None:
    device = make_image(tmp_path / "a.img")
    state = create(device)
    state.commit(0)
    handle = device_use.claim(device)
    assert Device(device).in_use()
    with pytest.raises(InputError, match="in use by another process"), state.locked():
        pass
    with pytest.raises(InputError, match="in use by another process"):
        create(device, force=True)
    os.close(handle)
    with state.locked(), state.locked():
        assert Device(device).in_use()
    assert not Device(device).in_use()


def run_from_start(device: Path) -> None:
    """Create a run and perform all steps. A child process calls this function."""
    take_images_for_devices()
    sim = oc.Simulation(oc.stencils.heat(ndim=3), SHAPE, directory=device, raw_device=True, force=True, **GIVEN)
    sim.prepare(STEPS)
    sim["u"] = values()
    sim.run(steps=STEPS, progress="none")


def resume(device: Path) -> None:
    """Continue the run from the last committed state. A child process calls this function."""
    take_images_for_devices()
    sim = oc.open(device, **GIVEN)
    sim.run(steps=sim.remaining_steps, progress="none")


def test_killed_runs_end_with_the_same_bits(tmp_path: Path) -> None:
    """Checks that no committed step is lost after SIGKILL at any moment, and that the final bits are correct."""
    chance, device, undisturbed = random.Random(5), make_image(tmp_path / "a.img"), make_image(tmp_path / "b.img")
    seconds = []
    for _ in range(3):  # the first run compiles the kernel
        begin = time.perf_counter()
        process = SPAWN.Process(target=run_from_start, args=(undisturbed,))
        process.start()
        process.join()
        seconds.append(time.perf_counter() - begin)
    kills, step = 0, -1
    while kills < KILLS or step < STEPS:
        process = SPAWN.Process(target=run_from_start if step in (-1, STEPS) else resume, args=(device,))
        process.start()
        process.join(chance.uniform(0, 1.05) * min(seconds) if kills < KILLS else None)
        if process.exitcode is None:
            process.kill()
            process.join()
            kills += 1
        else:
            assert process.exitcode == 0
        try:
            sim = oc.open(device)
            reached = sim.step if sim._state and sim._state.has_values else -1
        except InputError:
            reached = -1  # the child was killed before the header was written
        assert step in (-1, STEPS) or reached >= step, f"kill {kills}: step {step} was lost, now {reached}"
        step = reached
        if step >= 0:
            assert find_damage(open_state(device)).damage == []
    np.testing.assert_array_equal(oc.open(device)["u"][:], oc.open(undisturbed)["u"][:])
