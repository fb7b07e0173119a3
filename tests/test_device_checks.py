"""Check that no run overwrites other data on a block device."""

import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

import outcrop as oc
from images import SHAPE, create, make_image, put
from manifests import make_manifest
from outcrop.cli.main import call
from outcrop.errors import InputError, StorageError
from outcrop.run.device import use as device_use
from outcrop.run.device.device import needed_bytes
from outcrop.run.places import check_state, open_state

pytestmark = pytest.mark.usefixtures("images")



def test_a_run_on_which_something_else_was_put_is_not_written(tmp_path: Path) -> None:
    """Checks that Outcrop does not continue a run if another program has written its metadata to the device. Some
    programs, such as md, write after the first sector."""
    device = make_image(tmp_path / "a.img")
    state = create(device)
    state.commit(0)
    put(device, 4096, b"\xfc\x4e\x2b\xa9")
    before = device.read_bytes()
    with pytest.raises(InputError, match=r"holds a member of an array.*\(md\).*nothing was changed"), state.locked():
        pass
    assert device.read_bytes() == before


@pytest.mark.parametrize("magic", sorted({*device_use._MAGICS}), ids=lambda magic: f"{magic[1]} at {magic[2]}")
def test_known_content_is_named_and_kept(
    tmp_path: Path, magic: tuple[str, str, int, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks that known content of a device is detected without blkid. The content is kept, or removed completely with
    `--force`."""
    monkeypatch.setattr(device_use, "by_blkid", lambda path: "")
    kind, name, offset, content = magic
    device = make_image(tmp_path / "a.img", noise=False)
    put(device, offset, content)
    before = device.read_bytes()
    with pytest.raises(InputError, match=re.escape(f"a.img holds {kind} ({name})") + ".*force=True"):
        create(device)
    assert device.read_bytes() == before
    create(device, force=True)
    with device.open("rb") as file:
        assert device_use.by_magic(file.fileno(), len(before)) == ""


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
            assert words in device_use.by_magic(file.fileno(), size)
        create(device, force=True)
        with device.open("rb") as file:
            assert device_use.by_magic(file.fileno(), size) == ""


def test_what_blkid_says_is_put_in_words() -> None:
    """Checks that a message names the kind and the label of the content that blkid reports."""
    for export, words in [
        ("LABEL=data\nTYPE=ext4\nUSAGE=filesystem\n", "a file system (ext4, labelled data; says blkid)"),
        ("DEVNAME=/dev/x\nTYPE=LVM2_member\nUSAGE=raid\n", f"{device_use.GROUP} (LVM2_member; says blkid)"),
        ("DEVNAME=/dev/x\nTYPE=crypto_LUKS\nUSAGE=crypto\n", "an encrypted volume (crypto_LUKS; says blkid)"),
        ("DEVNAME=/dev/x\nTYPE=swap\nUSAGE=other\n", "swap space (swap; says blkid)"),
        ("DEVNAME=/dev/x\nPTTYPE=gpt\n", "a partition table (gpt; says blkid)"),
        ("DEVNAME=/dev/x\n", ""),
    ]:
        assert device_use._in_words(export) == words


def test_devices_need_the_flag_and_the_flag_needs_devices(tmp_path: Path) -> None:
    """Checks that a device needs raw_device=True, and that this option is refused for other paths."""
    device, other = make_image(tmp_path / "a.img"), tmp_path / "other.oc"
    before = device.read_bytes()
    for places, raw, words in [
        ([device], False, "is a block device, and a run would overwrite.*raw_device=True"),
        ([other], True, "other.oc is not a block device; leave out raw_device"),
        ([device, other], True, "other.oc is not a block device"),
        ([other, device], False, "a run uses one kind of place only"),
        ([device, tmp_path / "." / "a.img"], True, "is given twice"),
        ([tmp_path / "a.img" / "below"], False, "a.img is a file"),
    ]:
        with pytest.raises(InputError, match=words):
            check_state(places, make_manifest(*places), force=True, raw_device=raw)
    assert device.read_bytes() == before and not other.exists()


def test_what_needs_files_of_its_own_is_refused(tmp_path: Path) -> None:
    """Checks that a run with snapshots on a device needs a folder for its records. Without such a folder, the run is
    refused, and nothing is written to the device.
    """
    device = make_image(tmp_path / "a.img")
    before = device.read_bytes()
    with pytest.raises(InputError, match=r"block devices hold arrays only; give records=DIRECTORY"):
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


def run_in_blocks(place: Path, steps: int = 8) -> int:
    """Run a plan with blocks on a device or in a directory, and return the exit code of the command. The command may
    replace an older run."""
    raw = ["--raw-device"] if place.suffix == ".img" else []
    sizes = ["-n", "40", "64", "20", "--memory", "256KiB", "--scheme", "wavefront", "--bt", "4", "--by", "32"]
    return call(["run", "heat7", *sizes, "-t", str(steps), "-d", str(place), "--force", "--init", "1", *raw])


def test_the_temporary_array_of_the_plan_must_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that a device with too few bytes for the temporary array of a plan is refused before anything is written.
    The message names the sum. A device with this size is accepted."""
    device = make_image(tmp_path / "a.img")
    assert run_in_blocks(device) == 0
    plan = oc.open(device, scheme="wavefront", sizes={"bt": 4, "by": 32}).plan(8).plan
    needed = needed_bytes(open_state(device).manifest, 0) + plan.scratch_bytes
    assert plan.scratch_bytes > 0
    os.truncate(device, needed - 1)
    before = device.read_bytes()
    capsys.readouterr()
    assert run_in_blocks(device, 12) == 2
    said = capsys.readouterr().err
    assert f"has {needed - 1} bytes" in said and f"the run needs {needed} bytes" in said
    assert f"{plan.scratch_bytes} of them during a pass" in said and "a smaller --bt" in said
    assert device.read_bytes() == before and oc.open(device).step == 8
    with pytest.raises(StorageError, match=f"needs {needed} bytes, {plan.scratch_bytes} of them .* a smaller bt"):
        oc.open(device).run(8, "none")
    oc.open(device, sizes={"bt": 2, "by": 32}).run(2, "none")
    assert oc.open(device).step == 10
    os.truncate(device, needed)
    assert run_in_blocks(device, 12) == 0 and oc.open(device).step == 12


def test_a_directory_needs_space_for_the_temporary_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that nothing is created if the free space is not sufficient for the temporary array of the plan."""
    place, given = tmp_path / "run.oc", {"memory": "256KiB", "scheme": "wavefront", "sizes": {"bt": 4, "by": 32}}
    sim = oc.Simulation("heat7", (20, 64, 40), directory=place, init=1, **given)
    one = sim.setup.description
    arrays = sum(len(one.copies) * one.layout.shard_bytes(shard) for shard in range(one.layout.shards))
    free = arrays + (1 << 20) + sim.plan(8).plan.scratch_bytes
    room = SimpleNamespace(f_frsize=1, f_bavail=free - 1, f_blocks=free, f_fsid=0)
    monkeypatch.setattr(os, "statvfs", lambda path: room)
    with pytest.raises(InputError, match=r"no space: the run needs .* \(30 KiB of it during a pass\), .*a smaller bt"):
        sim.run(8, "none")
    assert not place.exists()
    room.f_bavail = free
    sim.run(8, "none")
    assert oc.open(place).step == 8


def test_runs_are_only_replaced_by_force(tmp_path: Path) -> None:
    first, second, third = (make_image(tmp_path / f"{name}.img") for name in "abc")
    create(first, second).commit(3)
    before = first.read_bytes(), second.read_bytes()
    with pytest.raises(InputError, match=r"unfinished run of heat7 \(step 3 of 10\).*outcrop resume.*force=True"):
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
