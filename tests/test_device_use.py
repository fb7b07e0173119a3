"""Check the messages about uses of a device. The operating system lists these uses in files in /sys and /proc. The
tests write such files.
"""

from pathlib import Path

import pytest

from outcrop.errors import InputError
from outcrop.run.device import use as device_use


def fake_kernel(root: Path, monkeypatch: pytest.MonkeyPatch, mounts: str = "", holder: str = "") -> None:
    """Make the files of a simulated Linux kernel. They describe a disk 8:0 with a partition 8:1, the mounts, and the
    holder of the partition."""
    disk = root / "sys" / "dev" / "block" / "8:0"
    for folder, number in ((disk, "8:0"), (disk / "sda1", "8:1")):
        (folder / "holders").mkdir(parents=True)
        (folder / "dev").write_text(f"{number}\n")
    (disk / "sda1" / "partition").write_text("1\n")
    if holder:
        (disk / "sda1" / "holders" / holder).mkdir()
    (root / "proc" / "self").mkdir(parents=True)
    (root / "proc" / "self" / "mountinfo").write_text(mounts)
    monkeypatch.setattr(device_use, "SYS", root / "sys")
    monkeypatch.setattr(device_use, "PROC", root / "proc")


@pytest.mark.parametrize(
    ("mounts", "holder", "words"),
    [
        ("", "", ""),
        ("36 35 8:0 / /data rw - ext4 /dev/sda rw\n", "", "it is mounted at /data"),
        ("36 35 8:1 / /my\\040data rw shared:1 - ext4 /dev/sda1 rw\n", "", "its partition sda1 is mounted at /my data"),
        ("36 35 8:17 / /data rw - ext4 /dev/sdb1 rw\n", "", ""),
        ("", "dm-0", "its partition sda1 is part of dm-0"),
    ],
)
def test_who_uses_a_disk_or_its_partitions_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mounts: str, holder: str, words: str
) -> None:
    fake_kernel(tmp_path, monkeypatch, mounts, holder)
    assert device_use.find_use("8:0") == words


def test_a_device_of_which_nothing_says_who_uses_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that a device is refused if /sys does not exist. Without /sys, Outcrop cannot find out whether a loop
    device is in use."""
    monkeypatch.setattr(device_use, "SYS", tmp_path / "sys")
    monkeypatch.setattr(device_use, "_number", lambda path: "7:0")
    with pytest.raises(InputError, match=r"may be in use.*is not mounted"):
        device_use.claim(tmp_path / "loop0")
