"""Check that only mounts that can hold files of users become tiers. Each device is one tier, which has the right
kind."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from outcrop.tiers import storage_tiers as mounts
from outcrop.tiers.storage_tiers import storage_tiers
from outcrop.tiers.survey import tiers_holding

Machine = Callable[[str], list[mounts.Mount]]
PARTS = (
    "",
    "home",
    "scratch",
    "dev/shm",
    "run/user/1000",
    "run/lock",
    "proc",
    "sys",
    "boot",
    "etc",
    "net here",
    "pm",
    "dev/x",
    "development",
)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return a function that takes the text of a file mountinfo, and returns all mounts of a simulated machine.

    "@" in the text means the test folder. sda is a hard disk, and nvme0n1 has a partition. md0 is a RAID of flash disks
    and hard disks, and vda is a disk of a virtual machine.
    """
    for part in PARTS:
        (tmp_path / part).mkdir(parents=True, exist_ok=True)
    blocks = tmp_path / "fake" / "dev" / "block"
    blocks.mkdir(parents=True)
    for number, path, rotational in (
        ("8:0", "sda", "1"), ("8:16", "sdb", "0"), ("259:0", "nvme0n1", "0"), ("259:1", "nvme0n1/nvme0n1p1", None),
        ("9:0", "md0", "0"), ("254:0", "vda", "1"), ("259:9", "pmem0", "0"),
    ):  # fmt: skip
        folder = tmp_path / "fake" / "devices" / path
        folder.mkdir(parents=True)
        (folder / "dev").write_text(number + "\n")
        if rotational is not None:
            (folder / "queue").mkdir()
            (folder / "queue" / "rotational").write_text(rotational + "\n")
        (blocks / number).symlink_to(folder)
    slaves = tmp_path / "fake" / "devices" / "md0" / "slaves"
    slaves.mkdir()
    for part in ("nvme0n1/nvme0n1p1", "sdb"):
        (slaves / Path(part).name).symlink_to(tmp_path / "fake" / "devices" / part)
    monkeypatch.setattr(mounts, "SYS", tmp_path / "fake")
    monkeypatch.setattr(mounts, "PROC", tmp_path / "fake" / "proc")
    monkeypatch.setattr(mounts, "PSEUDO_FOLDERS", tuple(f"{tmp_path}{one}" for one in mounts.PSEUDO_FOLDERS))
    monkeypatch.setattr(mounts, "USERS_FOLDERS", tuple(f"{tmp_path}{one}" for one in mounts.USERS_FOLDERS))
    mountinfo = tmp_path / "fake" / "proc" / "self" / "mountinfo"
    mountinfo.parent.mkdir(parents=True)

    def read(text: str) -> list[mounts.Mount]:
        mountinfo.write_text(text.replace(" @", f" {tmp_path}").replace("=@", f"={tmp_path}"))
        return mounts.all_mounts()

    return read


def kinds(every: list[mounts.Mount]) -> dict[str, str]:
    """Return a dictionary from the name of each tier to the kind of its mount."""
    return {mounts.name_of(mount).replace(str(every[0].point).strip("/").replace("/", "-"), "@"): mounts.kind_of(mount)
            for mount in mounts.storage_mounts(every)}  # fmt: skip


def test_kinds_of_disks(machine: Machine) -> None:
    """Checks that each kind of storage is recognised: flash, hard disks, a RAID (as slow as its slowest part), a
    virtual disk of unknown kind, and DAX."""
    found = kinds(
        machine(
            "20 1 254:0 / @/ rw - ext4 /dev/vda rw\n"
            "21 20 259:1 / @/home rw - ext4 /dev/nvme0n1p1 rw\n"
            "22 20 9:0 / @/scratch rw - xfs /dev/md0 rw\n"
            "23 20 8:0 / @/boot rw - ext4 /dev/sda rw\n"
            "24 20 259:9 / @/pm rw,relatime - ext4 /dev/pmem0 rw,dax=always\n"
        )
    )
    assert found == {"vda": "disk", "nvme0n1p1": "nvme", "md0": "ssd", "sda": "hdd", "pmem0": "dax"}


def test_what_holds_no_files_of_anybody_is_no_tier(machine: Machine) -> None:
    """Checks that mounts without files of users do not become tiers. Examples are pseudo file systems, tmpfs of the
    system, and read-only images.

    Names may contain spaces.
    """
    found = kinds(
        machine(
            "20 1 8:0 / @/ rw - ext4 /dev/sda rw\n"
            "21 20 0:21 / @/proc rw - proc proc rw\n"
            "22 20 0:22 / @/sys rw - sysfs sysfs rw\n"
            "23 20 0:23 / @/dev/shm rw shared:3 - tmpfs tmpfs rw\n"
            "24 20 0:24 / @/run/user/1000 rw - tmpfs tmpfs rw\n"
            "25 20 0:25 / @/run/lock rw - tmpfs tmpfs rw\n"
            "26 20 8:16 / @/boot ro - ext4 /dev/sdb ro\n"
            "27 20 8:16 /x/hosts @/etc/hosts rw - ext4 /dev/sdb rw\n"
            "28 20 0:28 / @/net\\040here rw - nfs4 server:/export rw\n"
        )
    )
    in_memory = {"tmpfs-@-dev-shm": "tmpfs", "tmpfs-@-run-user-1000": "tmpfs"}
    assert found == {"sda": "hdd", **in_memory, "nfs4-@-net-here": "pfs"}


def test_one_tier_for_each_device(machine: Machine) -> None:
    """Checks that each device is one tier, even if it has bind mounts, overlays or hidden mounts."""
    every = machine(
        "20 1 8:0 / @/ rw - ext4 /dev/sda rw\n"
        "21 20 8:0 /srv @/scratch rw - ext4 /dev/sda rw\n"
        "22 20 0:40 / @/home rw - overlay overlay rw,lowerdir=/x,upperdir=@/etc,workdir=/y\n"
        "23 20 0:23 / @/dev/shm rw - tmpfs tmpfs rw\n"
        "24 20 0:27 / @/dev/shm rw - tmpfs tmpfs rw\n"
    )
    assert [(mount.device, mount.point.name) for mount in mounts.storage_mounts(every)][1:] == [("0:27", "shm")]
    assert len(mounts.storage_mounts(every)) == 2


def test_an_overlay_of_something_unseen_is_a_tier(machine: Machine) -> None:
    """Checks that an overlay is a tier if its folders are invisible. In a container, such an overlay can be the only
    tier."""
    found = kinds(machine("20 1 0:40 / @/ rw - overlay overlay rw,lowerdir=/x,upperdir=/not/here,workdir=/y\n"))
    assert found == {"overlay-@": "disk"}


def test_no_system_that_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks a machine without /proc: no mounts are found, and the device of a path is named by its number."""
    monkeypatch.setattr(mounts, "PROC", tmp_path / "none")
    assert mounts.all_mounts() == []
    device = f"device {tmp_path.stat().st_dev}"
    assert mounts.mount_of(tmp_path).device == device
    assert mounts.cache_key(tmp_path) == f"{device} / unknown"


def test_figures_keep_their_names(machine: Machine) -> None:
    """Checks the key of cached figures: the source, the place and the type of the mount. The key must not change for
    file systems without a stable identity, so that Outcrop finds figures of earlier versions. If a path has several
    mounts, the last mount counts."""
    found = machine(
        "20 1 98:0 / / rw - ext4 /dev/root rw\n21 20 98:1 / @/net\\040here rw - ext4 /dev/hidden rw\n"
        "22 20 98:2 / @/net\\040here rw - xfs /dev/sdb1 rw\n"
    )
    (folder,) = [mount.point for mount in found if mount.source == "/dev/sdb1"]
    assert folder.name == "net here"
    (folder / "inside").mkdir()
    assert mounts.cache_key(folder / "inside") == f"/dev/sdb1 {folder} xfs"


@pytest.mark.parametrize(("kind", "has_identity"), [
    ("ext4", True), ("btrfs", True), ("xfs", False), ("tmpfs", False), ("overlay", False), ("nfs4", False),
])  # fmt: skip
def test_another_disk_with_the_same_name_has_figures_of_its_own(
    kind: str, has_identity: bool, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks that the key of cached figures contains the identity of the file system, if this identity stays the same
    when the file system is mounted again."""
    machine(f"20 1 98:0 / / rw - ext4 /dev/root rw\n21 20 98:1 / @/scratch rw - {kind} /dev/sdb1 rw\n")
    folder = next(mount.point for mount in mounts.all_mounts() if mount.source == "/dev/sdb1")
    keys = []
    for identity in (0, 5, 6, 5):
        monkeypatch.setattr(mounts.os, "statvfs", lambda path, identity=identity: SimpleNamespace(f_fsid=identity))
        keys.append(mounts.cache_key(folder))
    assert keys[0] == f"/dev/sdb1 {folder} {kind}" and keys[1] == keys[3]
    assert len(set(keys)) == (3 if has_identity else 1)


def test_directories_are_found_where_one_may_write(tmp_path: Path) -> None:
    """Checks that `writable_directory` returns the first candidate that is a directory on this file system."""
    mount = mounts.mount_of(tmp_path)
    file = tmp_path / "file"
    file.write_text("")
    assert mounts.writable_directory(mount, [Path("/proc"), tmp_path / "none", file, tmp_path]) == tmp_path.resolve()


def test_tiers_are_found_without_home_and_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that tiers are found although the user has no home directory, the working directory is deleted, and there
    is no directory for temporary files."""

    def failing(error: Exception) -> Callable[[], Path]:
        def fail() -> Path:
            raise error

        return fail

    monkeypatch.setattr(Path, "home", failing(RuntimeError("no home directory")))
    monkeypatch.setattr(Path, "cwd", failing(FileNotFoundError("no working directory")))
    monkeypatch.setattr(tempfile, "gettempdir", failing(FileNotFoundError("no directory for temporary files")))
    assert str(tmp_path.resolve()) in [tier.where for tier in storage_tiers([tmp_path])]
    assert all(tier.where for tier in storage_tiers())


def test_mounts_that_nobody_may_look_at_are_left_out(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that mounts are left out if they cannot be accessed. Examples are mounts of other containers and of
    servers that do not answer."""
    every = machine(
        "20 1 8:0 / @/ rw - ext4 /dev/sda rw\n"
        "21 20 0:40 / @/home rw - overlay overlay rw,lowerdir=/x,upperdir=@/etc/secret,workdir=/y\n"
        "22 20 0:41 / @/net\\040here rw - nfs4 server:/export rw\n"
    )
    forbidden, is_dir = ("home", "secret", "net here"), Path.is_dir

    def refusing(path: Path) -> bool:
        if path.name in forbidden:
            raise PermissionError(13, "Permission denied", str(path))
        return is_dir(path)

    monkeypatch.setattr(Path, "is_dir", refusing)
    assert [mount.source for mount in mounts.storage_mounts(every)] == ["/dev/sda"]
    assert not mounts.holds_no_files(every[2])


def test_a_mount_without_a_source_is_read(machine: Machine) -> None:
    """Checks that a mount without a source is read correctly. The operating system writes an empty word as its
    source."""
    (mount,) = machine("20 1 0:50 / @/dev/shm rw - tmpfs  rw,size=10k\n")
    assert (mount.type, mount.source) == ("tmpfs", "") and "size=10k" in mount.options and mounts.kind_of(mount)


def test_names_that_begin_like_the_systems_own_are_no_reason(machine: Machine) -> None:
    """Checks that a tmpfs at /development is a tier, although this path begins like /dev. A tmpfs at /dev/x must be no
    tier."""
    every = machine("20 1 0:50 / @/development rw - tmpfs tmpfs rw\n21 1 0:51 / @/dev/x rw - tmpfs tmpfs rw\n")
    assert [mounts.kind_of(mount) for mount in every] == ["tmpfs", ""]


def test_what_comes_from_a_server_is_of_the_network(machine: Machine) -> None:
    """Checks that a mount from a server counts as network storage, even if the type of its file system is unknown."""
    every = machine("20 1 0:50 / @/scratch rw - newfs node7:/export rw\n21 1 0:51 / @/home rw - fuse.gcsfuse b rw\n")
    assert [mounts.kind_of(mount) for mount in every] == ["pfs", "pfs"]


def test_subvolumes_share_one_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that all subvolumes of btrfs belong to one tier. Their files have different device numbers, but their
    mounts have the same number.
    """
    other = Path("/dev/shm")
    if not other.is_dir() or other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("needs two file systems to stand for subvolumes")
    mountinfo = tmp_path / "self" / "mountinfo"
    mountinfo.parent.mkdir()
    mountinfo.write_text(
        f"20 1 0:30 /root / rw - btrfs /dev/vda rw\n21 20 0:30 /home {other} rw - btrfs /dev/vda rw\n"
        "22 20 0:31 / /proc rw - proc proc rw\n"
    )
    monkeypatch.setattr(mounts, "PROC", tmp_path)
    assert mounts.device_of(tmp_path) == mounts.device_of(other) == "0:30"
    tiers = storage_tiers([tmp_path])
    assert len(tiers) == 1, "one room, one tier"
    assert tiers_holding(other, tiers) == tiers == tiers_holding(tmp_path, tiers)
    assert mounts.device_of(tmp_path / "none") is None and tiers_holding(tmp_path / "none", tiers) == []


def test_names_of_tiers_are_unique(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that each tier gets a unique name, so that an array is never placed on the wrong device."""
    machine("20 1 98:0 / @/home rw - ext4 /dev/a/data rw\n21 1 98:1 / @/scratch rw - ext4 /dev/b/data rw\n")
    assert [tier.name for tier in storage_tiers()][:2] == ["data", "data-2"]
