"""Protects runs on block devices, and what else is on them: all that can be shown on images in plain files.

The images stand for devices: the one question that tells them apart (`is_block_device`) is answered for them here. What
only the kernel can show, exclusive opening and sizes of sectors, is in test_raw_device.py.
"""

import multiprocessing
import os
import random
import re
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import outcrop as oc
from outcrop.errors import InputError, StorageError
from outcrop.language.symbols import Signal
from outcrop.run.device import header as device_header
from outcrop.run.device import signatures
from outcrop.run.device import use as device_use
from outcrop.run.device.device import Device, needed_bytes, regions
from outcrop.run.device.header import HEADER_BYTES, RUN, SLOT_OFFSETS, Header
from outcrop.run.disk.arrays import ArrayEntry
from outcrop.run.disk.creation import check_state, created_state
from outcrop.run.disk.state import State, open_state
from outcrop.run.disk.verify import find_damage
from test_state import make_manifest

SPAWN = multiprocessing.get_context("forkserver")
SPAWN.set_forkserver_preload(["numpy", "outcrop.run.simulation", "outcrop.language.library", "test_device"])
SHAPE = (40, 36, 50)
STEPS = 600
KILLS = int(os.environ.get("OUTCROP_KILLS", "20"))


def take_images_for_devices(set_attribute=setattr) -> None:
    """Let files called *.img pass for block devices."""
    set_attribute(device_use, "is_block_device", lambda path: path.suffix == ".img" and path.is_file())


@pytest.fixture(autouse=True)
def images(monkeypatch: pytest.MonkeyPatch) -> None:
    take_images_for_devices(monkeypatch.setattr)


def make_image(path: Path, size: int = 24 << 20, noise: bool = True) -> Path:
    """A device that was used for something unknown."""
    path.write_bytes(np.random.default_rng(7).bytes(1 << 20) * (size >> 20) if noise else bytes(size))
    return path


def put(path: Path, offset: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset, os.SEEK_SET if offset >= 0 else os.SEEK_END)
        file.write(content)


def create(*devices: Path, force: bool = False, identity: str = "1") -> State:
    with created_state(list(devices), make_manifest(*devices, identity=identity), force, raw_device=True) as state:
        return state


def simulation(where: list[Path], raw_device: bool = True, force: bool = False) -> oc.Simulation:
    return oc.Simulation(
        oc.stencils.heat(ndim=3), SHAPE, directory=where, memory="512KiB", raw_device=raw_device, force=force
    )


def values() -> np.ndarray:
    return np.random.default_rng(3).random(SHAPE, dtype="float32")


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_run_on_devices_has_the_bits_and_bytes_of_one_in_directories(tmp_path: Path, count: int) -> None:
    """The format says: the same bytes after a header. So a shard copied out of a device is a Zarr shard."""
    devices = [make_image(tmp_path / f"{index}.img") for index in range(count)]
    folders = [tmp_path / f"{index}.oc" for index in range(count)]
    for where, raw in ((devices, True), (folders, False)):
        sim = simulation(where, raw)
        sim["u"] = values()
        sim.run(steps=9, progress="none")
        again = oc.open(where[0])
        again.run(steps=5, progress="none")
        assert find_damage(where[0])[0] == []
    assert oc.open(devices[0]).step == 14
    np.testing.assert_array_equal(oc.open(devices[0])["u"][:], oc.open(folders[0])["u"][:])
    on_device, in_folder = open_state(devices[0]), open_state(folders[0])
    for turn in (0, 1):
        for region, file in zip(on_device.files_of("u", turn), in_folder.files_of("u", turn), strict=True):
            content = Path(region.path).read_bytes()[region.begin : region.begin + region.size]
            assert content == Path(file).read_bytes()


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("devices", [1, 2, 5])
@pytest.mark.parametrize("arrays", ["u", "u u.previous v", "u m*", "u v m* n*"])
def test_regions_are_apart_aligned_and_behind_the_header(devices: int, in_place: bool, arrays: str) -> None:
    """Those of all arrays, of which * are only read."""
    manifest = replace(
        make_manifest(*map(Path, "abcde"[:devices]), in_place=in_place),
        shape=(31, 50, 7),
        shard_planes=3,
        arrays=tuple(ArrayEntry(name.strip("*"), name.endswith("*")) for name in arrays.split()),
    )
    seen = set()
    for index in range(devices):
        end = HEADER_BYTES
        for (name, turn, shard), region in regions(manifest, index, "x").items():
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
    """Also what is only read, and previous values; one commit, one slot, for all of them."""
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
    assert find_damage(devices[0])[:2] == ([], 3 * (SHAPE[0] + open_state(devices[0]).layout.shards))
    region = open_state(devices[0]).current_files_of("m")[0]
    put(Path(region.path), region.begin + 100, b"\xff\xff")
    (line,) = find_damage(devices[0])[0]
    assert line.startswith("m: plane 0 is damaged") and str(region) in line


def test_a_description_longer_than_a_slot_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    """Signals are kept in the header of the device, which has a fixed size."""
    u, w = oc.Field("u"), Signal("w")
    device = make_image(tmp_path / "a.img")
    before = device.read_bytes()
    with pytest.raises(InputError, match="a device has room for 1048576"):
        oc.Simulation(
            oc.Stencil("pushed", {u: u[0, 0, 0] + w}), SHAPE, directory=device, memory="512KiB", raw_device=True,
            signals={"w": np.ones(200_000)},
        )  # fmt: skip
    assert device.read_bytes() == before


def test_a_torn_commit_leaves_the_manifest_before_it(tmp_path: Path) -> None:
    """Power may fail after any sector of a commit; then the generation before it is the committed one."""
    device = make_image(tmp_path / "a.img")
    state = create(device)
    for step in (0, 3, 5):
        state.commit(step)
    before = device.read_bytes()
    state.commit(8)
    after = device.read_bytes()
    sectors = range(0, len(after), 512)
    changed = [place for place in sectors if after[place : place + 512] != before[place : place + 512]]
    assert changed and all(any(slot <= place < slot + (1 << 20) for slot in SLOT_OFFSETS) for place in changed)
    length = len(device_header.encode_slot(Header(RUN, "1", state.manifest.to_text())))
    slot = min(SLOT_OFFSETS, key=lambda offset: abs(offset - changed[0]))
    for torn in [*range(0, length - 512, 512), 1, 35, 60, 64]:
        device.write_bytes(before)
        put(device, slot, after[slot : slot + torn])
        assert open_state(device).manifest.step == (8 if before[slot + torn :] == after[slot + torn :] else 5)
    device.write_bytes(after)
    assert open_state(device).manifest == state.manifest


def test_a_commit_that_cannot_be_written_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = make_image(tmp_path / "a.img")
    state = create(device)
    state.commit(0)
    monkeypatch.setattr(os, "pwrite", lambda *_: (_ for _ in ()).throw(OSError(5, "Input/output error")))
    with pytest.raises(StorageError, match=r"cannot commit to .*a\.img: Input/output error"):
        state.commit(4)
    monkeypatch.undo()
    take_images_for_devices(monkeypatch.setattr)
    assert state.manifest.step == open_state(device).manifest.step == 0


def test_damaged_headers_are_refused_and_replaced_by_force_only(tmp_path: Path) -> None:
    device = make_image(tmp_path / "a.img")
    create(device).commit(0)
    whole = device.read_bytes()
    for offset, content, words in [
        (16, b"\2", "first block is damaged"),
        (SLOT_OFFSETS[0] + 100, b"?", ""),  # the other copy, of a run without values, is still whole
    ]:
        device.write_bytes(whole)
        put(device, offset, content)
        if words:
            with pytest.raises(InputError, match=words):
                open_state(device)
    put(device, SLOT_OFFSETS[1] + 100, b"?")
    with pytest.raises(InputError, match="both copies of its manifest are damaged"):
        open_state(device)
    before = device.read_bytes()
    with pytest.raises(InputError, match=r"both copies.*--force"):
        create(device, identity="2")
    assert device.read_bytes() == before
    assert create(device, identity="2", force=True).manifest == Device(device).read()


def test_a_newer_header_names_both_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = make_image(tmp_path / "a.img")
    with monkeypatch.context() as patch:
        patch.setattr(device_header, "VERSION", 7)
        create(device).commit(0)
    with pytest.raises(InputError, match="header version 7, this version reads 1"):
        open_state(device)


def test_what_is_left_of_an_overwritten_run_is_no_run(tmp_path: Path) -> None:
    """Formatting a device writes its first sector; the slots behind it may survive, and must not be written to."""
    device = make_image(tmp_path / "a.img")
    create(device).commit(0)
    put(device, 0, bytes(512))
    with pytest.raises(InputError, match="holds no Outcrop run"):
        open_state(device)


def test_a_run_on_which_something_else_was_put_is_not_written(tmp_path: Path) -> None:
    """Some formats leave the first sector alone: md's metadata lie 4 KiB further."""
    device = make_image(tmp_path / "a.img")
    state = create(device)
    state.commit(0)
    put(device, 4096, b"\xfc\x4e\x2b\xa9")
    before = device.read_bytes()
    with pytest.raises(InputError, match=r"holds a member of an array.*\(md\).*nothing was changed"), state.locked():
        pass
    assert device.read_bytes() == before


@pytest.mark.parametrize("magic", sorted({*signatures._MAGICS}), ids=lambda magic: f"{magic[1]} at {magic[2]}")
def test_known_content_is_named_and_kept(
    tmp_path: Path, magic: tuple[str, str, int, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Someone else's data: found without blkid too, kept without --force, and no trace of it with --force."""
    monkeypatch.setattr(signatures, "by_blkid", lambda path: "")
    kind, name, offset, content = magic
    device = make_image(tmp_path / "a.img", noise=False)
    put(device, offset, content)
    before = device.read_bytes()
    with pytest.raises(InputError, match=re.escape(f"a.img holds {kind} ({name})") + ".*--force"):
        create(device)
    assert device.read_bytes() == before
    create(device, force=True)
    with device.open("rb") as file:
        assert signatures.by_magic(file.fileno(), len(before)) == ""


def test_metadata_at_places_of_their_own_are_found(tmp_path: Path) -> None:
    device = make_image(tmp_path / "a.img", noise=False)
    size = device.stat().st_size
    for offset, content, words in [
        (size - (64 << 10), b"\xfc\x4e\x2b\xa9", "(md)"),
        (size - (8 << 10), b"\xfc\x4e\x2b\xa9", "(md)"),
        ((128 << 10) + 5 * 1024, b"\x0c\xb1\xba\0\0\0\0\0", "(zfs)"),
    ]:
        device.write_bytes(bytes(size))
        put(device, offset, content)
        with device.open("rb") as file:
            assert words in signatures.by_magic(file.fileno(), size)
        create(device, force=True)
        with device.open("rb") as file:
            assert signatures.by_magic(file.fileno(), size) == ""


def test_what_blkid_says_is_put_in_words() -> None:
    """The user learns what would be destroyed, with its label."""
    for export, words in [
        ("LABEL=data\nTYPE=ext4\nUSAGE=filesystem\n", "a file system (ext4, labelled data; says blkid)"),
        ("DEVNAME=/dev/x\nTYPE=LVM2_member\nUSAGE=raid\n", f"{signatures.GROUP} (LVM2_member; says blkid)"),
        ("DEVNAME=/dev/x\nTYPE=crypto_LUKS\nUSAGE=crypto\n", "an encrypted volume (crypto_LUKS; says blkid)"),
        ("DEVNAME=/dev/x\nTYPE=swap\nUSAGE=other\n", "swap space (swap; says blkid)"),
        ("DEVNAME=/dev/x\nPTTYPE=gpt\n", "a partition table (gpt; says blkid)"),
        ("DEVNAME=/dev/x\n", ""),
    ]:
        assert signatures._in_words(export) == words


def test_devices_need_the_flag_and_the_flag_needs_devices(tmp_path: Path) -> None:
    """Nobody writes a device by accident, and a mistyped name of a device does not become a directory in /dev."""
    device, other = make_image(tmp_path / "a.img"), tmp_path / "other.oc"
    before = device.read_bytes()
    for places, raw, words in [
        ([device], False, "is a block device, and a run would overwrite.*--raw-device"),
        ([other], True, "other.oc is not a block device; leave out --raw-device"),
        ([device, other], True, "other.oc is not a block device"),
        ([other, device], False, "a run uses one kind of place only"),
        ([device, tmp_path / "." / "a.img"], True, "is given twice"),
        ([tmp_path / "a.img" / "below"], False, "a.img is a file"),
    ]:
        with pytest.raises(InputError, match=words):
            check_state(places, make_manifest(*places), force=True, raw_device=raw)
    assert device.read_bytes() == before and not other.exists()


def test_what_needs_files_of_its_own_is_refused(tmp_path: Path) -> None:
    """Snapshots and traces have no place on a device, so a folder must be named; nothing is written there."""
    device = make_image(tmp_path / "a.img")
    before = device.read_bytes()
    with pytest.raises(InputError, match=r"block devices hold arrays only; say with records=DIRECTORY"):
        oc.Simulation(
            oc.stencils.heat(ndim=3), SHAPE, directory=device, memory="512KiB", raw_device=True,
            snapshots=oc.Snapshots(2),
        )  # fmt: skip
    assert device.read_bytes() == before


def test_too_small_says_how_many_bytes_are_needed(tmp_path: Path) -> None:
    device = make_image(tmp_path / "a.img")
    needed = needed_bytes(make_manifest(device), 0)
    device.write_bytes(bytes(needed - 1))
    with pytest.raises(InputError, match=f"has {needed - 1} bytes .* needs {needed} bytes .*larger device"):
        create(device)
    assert device.read_bytes() == bytes(needed - 1)
    device.write_bytes(bytes(needed))
    create(device).commit(0)
    assert open_state(device).manifest.step == 0


def test_runs_are_only_replaced_by_force(tmp_path: Path) -> None:
    first, second, third = (make_image(tmp_path / f"{name}.img") for name in "abc")
    create(first, second).commit(3)
    before = first.read_bytes(), second.read_bytes()
    with pytest.raises(InputError, match=r"unfinished run of heat7 \(step 3 of 10\).*outcrop resume.*--force"):
        create(first, identity="2")
    for force in (False, True):
        with pytest.raises(InputError, match="belongs to another run"):
            create(third, second, identity="2", force=force)
    assert (first.read_bytes(), second.read_bytes()) == before
    with pytest.raises(InputError, match=r"holds a share of a run; name its first device \(.*a\.img"):
        open_state(second)
    create(first, second, identity="2", force=True)
    assert create(first, second, identity="3").manifest.identity == "3", "a run without values holds nothing to protect"
    create(second, first, identity="4", force=True).commit(0)
    assert open_state(second).manifest.identity == "4"


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
    """A session whose device was given to another run must not put its planes or its manifest there."""
    device = make_image(tmp_path / "a.img")
    old = create(device)
    old.commit(0)
    create(device, force=True, identity="2").commit(0)
    with pytest.raises(InputError, match="holds another run by now"), old.locked():
        pass
    with pytest.raises(StorageError, match="another run by now"):
        old.commit(5)
    assert open_state(device).manifest.identity == "2"


def test_one_process_at_a_time(tmp_path: Path) -> None:
    device = make_image(tmp_path / "a.img")
    state = create(device)
    state.commit(0)
    handle = device_use.claim(device)
    assert Device(device).is_held()
    with pytest.raises(InputError, match="in use by another process"), state.locked():
        pass
    with pytest.raises(InputError, match="in use by another process"):
        create(device, force=True)
    os.close(handle)
    with state.locked(), state.locked():
        assert Device(device).is_held()
    assert not Device(device).is_held()


def run_from_start(device: Path) -> None:
    """A child: create the run and go through all steps."""
    take_images_for_devices()
    sim = simulation([device], force=True)
    sim.prepare(STEPS)
    sim["u"] = values()
    sim.run(steps=STEPS, progress="none")


def resume(device: Path) -> None:
    """A child: go on from the last committed state."""
    take_images_for_devices()
    sim = oc.open(device)
    sim.run(steps=sim.remaining_steps, progress="none")


def test_killed_runs_end_with_the_same_bits(tmp_path: Path) -> None:
    """SIGKILL at any moment: creating, writing planes, writing a slot. No committed step is lost."""
    chance, device, undisturbed = random.Random(5), make_image(tmp_path / "a.img"), make_image(tmp_path / "b.img")
    seconds = []
    for _ in range(3):  # the first compiles
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
            reached = -1  # killed before the header was there
        assert step in (-1, STEPS) or reached >= step, f"kill {kills}: step {step} was lost, now {reached}"
        step = reached
        if step >= 0:
            assert find_damage(device)[0] == []
    np.testing.assert_array_equal(oc.open(device)["u"][:], oc.open(undisturbed)["u"][:])
