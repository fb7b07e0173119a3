"""This module finds tiers that are file systems. For each tier, the module finds the kind, a writable directory, and
how long files last.

/proc/self/mountinfo (man 5 proc):   36 35 98:0 /part /point rw,noatime shared:1 - ext4 /dev/root rw,errors=continue
                                           device root point options              type source    file system's options
"""

from __future__ import annotations

import getpass
import itertools
import mmap
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from outcrop.tiers import discover
from outcrop.tiers.discover import PROC, SYS, read
from outcrop.tiers.tier import Persistence, Tier

NETWORK = frozenset(
    ("9p", "afs", "beegfs", "ceph", "cifs", "davfs", "dvs", "fuse.ceph", "fuse.ceph-fuse", "fuse.daos", "fuse.gcsfuse",
     "fuse.glusterfs", "fuse.juicefs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs", "gfs2", "gpfs", "lustre", "nfs",
     "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb3", "virtiofs", "wekafs")
)  # fmt: skip
IN_MEMORY = frozenset({"tmpfs", "ramfs"})
WITHOUT_BLOCK_DEVICE = frozenset({"zfs", "btrfs", "bcachefs", "overlay"})
"""The types of file systems on disks for which neither the source nor the device number names a disk."""
WITH_IDENTITY = frozenset({"ext2", "ext3", "ext4", "btrfs", "zfs"})
"""The types of file systems whose f_fsid (man 3 statvfs) comes from an identity on the disk. Such an f_fsid is the same
after each mount. On xfs, f_fsid is the number of the device, which is the same for another disk. On tmpfs and overlay,
f_fsid can be different after each mount. On NFS, f_fsid is 0."""
PSEUDO_FOLDERS = ("/dev", "/proc", "/run", "/snap", "/sys")
"""Folders of the operating system, in which users keep no files."""
USERS_FOLDERS = ("/dev/shm", "/run/user")
"""Folders inside PSEUDO_FOLDERS in which users keep files."""
VIRTUAL = re.compile(r"(vd|xvd|loop|nbd|rbd|zram)")
"""Names of virtual disks. The kind of a virtual disk is unknown, because its data are in a file or on a disk of another
machine."""
MAP_SHARED_VALIDATE, MAP_SYNC = 0x03, 0x80000
"""Flags of mmap. If both flags are given, mmap fails for a file that does not support MAP_SYNC. Without
MAP_SHARED_VALIDATE, Linux ignores MAP_SYNC (man 2 mmap)."""
SCRATCH_PREFIX = ".outcrop-measure-"
"""The beginning of the names of temporary files."""
BY_WRITE_BACK, BY_FLUSH, BY_NOTHING = "MAP_SYNC + cache-line write-back", "msync or fdatasync", "none"


def storage_tiers(directories: Sequence[Path] = ()) -> list[Tier]:
    """Return one tier for each file system on which this user can write. If a file system contains one of
    `directories`, its tier uses this directory."""
    every = all_mounts()
    mounts = storage_mounts(every)
    known = {mount.device for mount in mounts}
    # In a chroot, it is possible that the kernel's list has no mount at /.
    unlisted = [] if any(mount.point == Path("/") for mount in every) else [Path("/")]
    asked = [mount for mount in map(mount_of, [*unlisted, *directories]) if mount.device not in known]
    distinct = {mount.device: mount for mount in asked}.values()
    return _named_apart(mounted_tier(mount, directories) for mount in [*mounts, *distinct])


def mounted_tier(mount: Mount, directories: Sequence[Path] = (), name: str = "") -> Tier:
    """Return the tier of a mount. The directory of the tier is the first of `directories` that is on the mount. If none
    of `directories` is on the mount, the directory of the tier is a usual place such as the home directory."""
    folder = writable_directory(mount, directories)
    kind = kind_of(mount) or ("tmpfs" if mount.type in {*IN_MEMORY, "devtmpfs"} else "disk")
    where = folder or mount.point
    space = os.statvfs(where)
    capacity, free = space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize
    if kind == "tmpfs":  # files on a tmpfs use memory, so the limits of memory apply
        capacity, free = min(capacity, discover.memory_bytes()), min(free, discover.free_memory_bytes())
    return Tier(
        name=name or name_of(mount),
        kind=kind,
        where=str(where),
        capacity_bytes=capacity,
        free_bytes=free if folder else 0,
        persistence=Persistence.REBOOT if kind == "tmpfs" else Persistence.PERMANENT,
        primitive=_primitive(kind, folder),
        origin="not measured",
        source=f"{mount.source} ({mount.type})",
        note="" if folder else "this user may write to no directory there",
    )


def _primitive(kind: str, folder: Path | None) -> str:
    if kind == "tmpfs":
        return BY_NOTHING
    return BY_WRITE_BACK if kind == "dax" and folder and can_map_sync(folder) else BY_FLUSH


def can_map_sync(folder: Path) -> bool:
    """Return True if files in `folder` can be mapped in the mode MAP_SYNC. In a file that is mapped with MAP_SYNC, a
    value is durable as soon as its cache line is written back."""
    try:
        with tempfile.TemporaryFile(prefix=SCRATCH_PREFIX, dir=folder) as file:
            file.truncate(mmap.PAGESIZE)
            mmap.mmap(file.fileno(), mmap.PAGESIZE, flags=MAP_SHARED_VALIDATE | MAP_SYNC).close()
    except OSError:
        return False
    return True


def _named_apart(tiers: Iterable[Tier]) -> list[Tier]:
    """Return the tiers with unique names. If two tiers have the same name, a number is added to the name of the second
    tier."""
    found: dict[str, Tier] = {}
    for tier in tiers:
        name = tier.name
        for number in itertools.count(2):
            if name not in found:
                break
            name = f"{tier.name}-{number}"
        found[name] = replace(tier, name=name)
    return list(found.values())


@dataclass(frozen=True)
class Mount:
    """A mount, as one line of the file mountinfo describes it."""

    device: str
    root: str
    point: Path
    type: str
    source: str
    options: frozenset[str]

    @property
    def read_only(self) -> bool:
        return "ro" in self.options


def all_mounts() -> list[Mount]:
    """Return all visible mounts, in the order in which the kernel lists them. If several mounts are at the same place,
    only the last of these mounts is visible."""
    return list(_parse_all(read(PROC / "self" / "mountinfo")))


@lru_cache(maxsize=1)
def _parse_all(text: str) -> tuple[Mount, ...]:
    """Parse the text of the file mountinfo. The result is kept in memory, because callers often ask for the mounts, but
    the mounts seldom change."""
    found = filter(None, map(_parse, text.split("\n")))
    return tuple({mount.point: mount for mount in found}.values())


def _parse(line: str) -> Mount | None:
    words = line.split(" ")  # split at single spaces, because the source may be empty
    end = words.index("-") if "-" in words[6:] else len(words)
    if len(words) < end + 4:
        return None
    kind, source, inner = words[end + 1 : end + 4]
    point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), words[4])
    return Mount(words[2], words[3], Path(point), kind, source, frozenset({*words[5].split(","), *inner.split(",")}))


def storage_mounts(mounts: Iterable[Mount]) -> list[Mount]:
    """Return the mounts whose files can be written. For each device, the result has only the mount that is nearest to
    the root of the device."""
    found: dict[str, Mount] = {}
    for mount in sorted(mounts, key=lambda mount: (len(mount.root), len(str(mount.point)))):
        if kind_of(mount) and not mount.read_only and is_folder(mount.point) and not _is_seen_through(mount):
            found.setdefault(mount.device, mount)
    return sorted(found.values(), key=lambda mount: str(mount.point))


def _is_seen_through(mount: Mount) -> bool:
    """Return True if the mount is an overlay whose upper folder is visible. For such an overlay, the list of mounts
    also has the mount of the upper folder, so the overlay is left out."""
    uppers = [option.removeprefix("upperdir=") for option in mount.options if option.startswith("upperdir=")]
    return mount.type == "overlay" and any(is_folder(Path(upper)) for upper in uppers)


def is_folder(path: Path) -> bool:
    """Return True if the path is a folder that this user can access. Return False for a folder of a server that does
    not answer, and for a path that is not a folder."""
    try:
        return path.is_dir()
    except OSError:
        return False


def mount_of(path: Path) -> Mount:
    """Return the mount of an existing path. If the kernel lists no mount for the path, return a mount of the type
    "unknown"."""
    resolved = path.resolve()
    holding = [mount for mount in all_mounts() if resolved.is_relative_to(mount.point)]
    device = f"device {resolved.stat().st_dev}"
    unknown = Mount(device, "/", Path("/"), "unknown", device, frozenset())
    return max(holding, key=lambda mount: len(mount.point.parts), default=unknown)


def device_of(path: Path) -> str | None:
    """Return the device of the mount that holds a path, or None if the path does not exist.

    The function does not use `st_dev`. Each subvolume of btrfs has its own `st_dev`, although all subvolumes share
    their free space.
    """
    try:
        return mount_of(path).device
    except OSError:
        return None


def cache_key(path: Path) -> str:
    """Return the key under which the user's cache keeps the figures of a file system. `path` is an existing path on the
    file system. If possible, the key contains the identity of the file system, because another disk can get the same
    name. A disk with the same name can also belong to another machine that uses the same cache."""
    mount = mount_of(path)
    identity = os.statvfs(mount.point).f_fsid if mount.type in WITH_IDENTITY else 0
    return f"{mount.source} {mount.point} {mount.type}" + (f" {identity:x}" if identity else "")


def holds_no_files(mount: Mount) -> bool:
    """Return True if the mount is a file system of the operating system that cannot store files, such as /proc."""
    return is_folder(mount.point) and not kind_of(mount) and os.statvfs(mount.point).f_blocks == 0


def kind_of(mount: Mount) -> str:
    """Return the kind of a file system: one of KINDS in tier.py, or "" for a file system in which users keep no
    files."""
    if mount.type in IN_MEMORY:
        return "" if _is_below(mount.point, PSEUDO_FOLDERS) and not _is_below(mount.point, USERS_FOLDERS) else "tmpfs"
    # a source that contains ":/" is an export of a server, with any protocol
    if mount.type in NETWORK or ":/" in mount.source:
        return "pfs"
    if mount.type not in WITHOUT_BLOCK_DEVICE and not mount.source.startswith("/dev/"):
        return ""
    if {"dax", "dax=always"} & mount.options:
        return "dax"
    return _kind_of_disk(_block_device(mount))


def _is_below(place: Path, folders: Sequence[str]) -> bool:
    return any(place.is_relative_to(folder) for folder in folders)


def _block_device(mount: Mount) -> str:
    """Return the number ("major:minor") of the mount's block device. If the device of the mount is not a block device,
    return the number of the mount's source. If the source does not exist, return ""."""
    if (SYS / "dev" / "block" / mount.device).exists():
        return mount.device
    try:
        number = os.stat(mount.source).st_rdev
    except OSError:
        return ""
    return f"{os.major(number)}:{os.minor(number)}"


def _kind_of_disk(number: str) -> str:
    folder = SYS / "dev" / "block" / number
    if not number or not folder.exists():
        return "disk"
    folder = folder.resolve()
    below = sorted((folder / "slaves").glob("*"))
    if below:  # a volume or RAID has the kind of its slowest part
        kinds = {_kind_of_disk(read(one / "dev")) for one in below}
        return next(kind for kind in ("disk", "hdd", "ssd", "nvme") if kind in kinds)
    disk = folder if (folder / "queue").is_dir() else folder.parent
    if VIRTUAL.match(disk.name):
        return "disk"
    if disk.name.startswith("nvme"):
        return "nvme"
    return {"1": "hdd", "0": "ssd"}.get(read(disk / "queue" / "rotational"), "disk")


def name_of(mount: Mount) -> str:
    """Return the name of a tier. The name does not change: it is the device, as in "nvme0n1p2", or the type and the
    place, as in "tmpfs-dev-shm"."""
    if mount.source.startswith("/dev/") and mount.type != "overlay":
        return Path(mount.source).name
    place = str(mount.point).strip("/").replace("/", "-").replace(" ", "-") or "root"
    return f"{mount.type.removeprefix('fuse.')}-{place}"


def writable_directory(mount: Mount, wanted: Sequence[Path] = ()) -> Path | None:
    """Return a folder on the mount in which this user can create files. Folders in `wanted` have priority over usual
    places. Return None if this user cannot create files in any folder in `wanted` or in any usual place."""
    for folder in itertools.chain(wanted, _usual_places(mount)):
        if device_of(folder) == mount.device and is_folder(folder) and os.access(folder, os.W_OK | os.X_OK):
            return folder.resolve()
    return None


def _usual_places(mount: Mount) -> Iterator[Path]:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "nobody"
    if mount.point != Path("/"):
        yield from (mount.point / user, mount.point)
    for find in (Path.home, tempfile.gettempdir, lambda: "/var/tmp", Path.cwd, lambda: mount.point):
        try:
            place = Path(find())
        except (OSError, RuntimeError):  # for example, a user without a home directory, or a deleted working directory
            continue
        yield place
