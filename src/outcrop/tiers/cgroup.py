"""Memory limits of the control groups this process is in, of version 1 or 2, and what is left within them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from outcrop.tiers.system_files import number, numbered, read

UNLIMITED = 1 << 60
OWN, ROOT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class _Group:
    """A folder of the memory controller, and the names of its files."""

    folder: Path
    limit: str
    usage: str
    file_cache: tuple[str, str]

    def limit_bytes(self) -> int:
        return min(UNLIMITED, number(read(self.folder / self.limit)) or UNLIMITED)

    def used_bytes(self) -> int:
        """Without cached files, which give way."""
        counts = numbered(read(self.folder / "memory.stat"))
        used = number(read(self.folder / self.usage)) or 0
        return max(0, used - sum(counts.get(key, 0) for key in self.file_cache))


def limit_bytes() -> int:
    """The lowest limit of all groups around this process; UNLIMITED where there is none."""
    return min((group.limit_bytes() for group in _groups()), default=UNLIMITED)


def free_bytes() -> int:
    """What the limits leave to be taken; UNLIMITED where there is none."""
    return min(
        (max(0, group.limit_bytes() - group.used_bytes()) for group in _groups() if group.limit_bytes() < UNLIMITED),
        default=UNLIMITED,
    )


def _groups() -> Iterator[_Group]:
    for line in read(OWN).splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if not path:
            continue
        if controllers == "":
            root, names = ROOT, ("memory.max", "memory.current", ("inactive_file", "active_file"))
        elif "memory" in controllers.split(","):
            files = ("total_inactive_file", "total_active_file")
            root, names = ROOT / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", files)
        else:
            continue
        group = root / path.lstrip("/")
        for folder in (group, *group.parents):
            yield _Group(folder, *names)
            if folder == root:
                break
