"""Change one file or folder of a run: its bytes, its length, its kind or its link target. Sometimes change another file
in the same folder instead."""

from __future__ import annotations

import os
import random
import shutil
import stat
import struct
import zipfile
from pathlib import Path

import numpy as np

from . import values
from .mutate_json import mutate_json
from .world import make_socket, remove

READ_BYTES_MOST = 1 << 24
"""The maximum size of a file that is read. Only files that a case has extended are larger."""


def files_of(folder: Path, *tops: str) -> list[Path]:
    """Return the files and folders named `tops`, and all entries below these folders, in a fixed order."""
    found = [folder / top for top in tops if (folder / top).exists()]
    for top in list(found):
        if top.is_dir():
            found += sorted(top.rglob("*"))
    return found


def choose(rng: random.Random, found: list[Path]) -> Path:
    """Return a random path of `found`. Small special files, such as manifests, are more likely than data files."""
    kind = rng.randrange(10)
    if kind < 5:
        chosen = [path for path in found if path.name in ("manifest.json",
        "outcrop-member.json") or "commit." in path.name]
    elif kind < 6:
        chosen = [path for path in found if ".taps" in path.parts[-2:]]
    elif kind < 7:
        chosen = [path for path in found if path.name == "zarr.json"]
    elif kind < 8:
        chosen = [path for path in found if path.is_symlink() or path.is_dir()]
    else:
        chosen = found
    return rng.choice(chosen or found)


def mutate(rng: random.Random, path: Path, found: list[Path], world: Path) -> tuple[str, bool]:
    """Change the file or folder `path`, which is one of `found`. Return a description of the change, and True if
    checksums must detect the change."""
    plain = path.is_file() and not path.is_symlink()
    if plain and rng.random() < (0.85 if path.name in ("manifest.json", "outcrop-member.json") else 0.7):
        meaning = MEANINGS.get(path.suffix)
        if meaning and rng.random() < 0.85:
            try:
                return meaning(rng, path, world), False
            except (ValueError, KeyError, TypeError, RecursionError, OSError, EOFError, zipfile.BadZipFile):
                pass  # the file cannot be read, because an earlier change has damaged it
        return mutate_bytes(rng, path, found)
    return mutate_entry(rng, path, found, world), False


def mutate_bytes(rng: random.Random, path: Path, found: list[Path]) -> tuple[str, bool]:
    """Change bytes or the length of a file. Return a description of the change, and True if checksums must detect the
    change. Checksums must detect changes of bytes that are not zero, because such bytes belong to data."""
    if path.stat().st_size > READ_BYTES_MOST:
        os.truncate(path, 0)
        return "cut to nothing", False
    data = bytearray(path.read_bytes())
    kind = rng.randrange(9)
    size = len(data)
    if kind < 3 and any(data):
        at = rng.choice([index for index, byte in enumerate(data) if byte])
        data[at] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        return f"bit flipped at {at}", True
    if kind == 3:
        length = rng.choice([0, 1, size // 2, max(0, size - 1), rng.randrange(size + 1)])
        os.truncate(path, length)
        return f"cut from {size} to {length} bytes", False
    if kind == 4:
        length = rng.choice([size + 1, size * 2 + 7, size + 4096, 1 << 25, 1 << 40])
        os.truncate(path, length)
        return f"extended from {size} to {length} bytes", False
    if kind == 5:
        path.write_bytes(bytes(size))
        return "all zeros", bool(any(data))
    if kind == 6:
        path.write_bytes(rng.randbytes(rng.choice([1, 16, size])))
        return "random bytes", False
    if kind == 7:
        half = size // 2
        path.write_bytes(data[half:] + data[:half])
        return "halves swapped", data[half:] + data[:half] != data
    others = [other for other in found if other.is_file() and not other.is_symlink() and other != path]
    others = [other for other in others if other.stat().st_size <= READ_BYTES_MOST]
    if not others:
        os.truncate(path, size // 2)
        return f"cut from {size} to {size // 2} bytes", False
    alike = [other for other in others if other.stat().st_size == size] or others
    other = rng.choice(alike)
    content, mine = other.read_bytes(), bytes(data)
    path.write_bytes(content)
    if rng.random() < 0.5:
        other.write_bytes(mine)
        return f"swapped with {other.relative_to(world_of(other))}", content != mine
    return f"replaced by {other.relative_to(world_of(other))}", content != mine


def world_of(path: Path) -> Path:
    """Return the folder `case` that contains the path."""
    return next(parent for parent in path.parents if parent.name == "case")


def beside(world: Path) -> Path:
    """Return a new path next to the run, at which nothing exists. The path differs from all earlier paths, because a
    link may lead to an earlier path."""
    names = (world / "case" / f"aside{number or ''}" for number in range(99))
    return next(path for path in names if not os.path.lexists(path))


def mutate_entry(rng: random.Random, path: Path, found: list[Path], world: Path) -> str:
    """Replace a file or a folder by an entry of another kind, such as a link or a pipe. Sometimes make such an entry at
    a path where the program makes a file."""
    if rng.random() < 0.3:
        suffix = rng.choice([".tmp", ".tmp", ".new", "~", ".0", ".lock"])
        path = path.with_name(path.name + suffix)
    elif rng.random() < 0.15 and path.parent.name.isdigit():
        path = path.with_name("1")
    elif rng.random() < 0.1:
        path = path.parent / rng.choice(
            [".taps", "snapshots.zarr", "manifest.json", "zarr.json", "u", ".u.0", ".u.1", "manifest.json.tmp", "lock",
            "x"]
        )
    what = rng.randrange(16)
    if path.parent.name == "case":  # Outcrop may follow links at these paths, because the user names them
        what = rng.choice([7, 8, 9, 10, 12, 15])
    home = world / "home"
    old = path if os.path.lexists(path) else None
    if what == 12 and old is not None and not path.is_symlink():
        path.chmod(rng.choice([0, 0o444, 0o777, 0o4755, 0o200]))
        return f"mode {stat.filemode(path.stat().st_mode)} of {path.name}"
    if what == 13 and old is not None and not path.is_symlink() and path.is_file():
        moved = beside(world)
        shutil.copy2(path, moved)
        remove(path)
        path.symlink_to(moved)
        return f"{path.name} a link to an equal file beside the run"
    if what == 14 and old is not None and path.is_dir() and not path.is_symlink():
        moved = beside(world)
        path.rename(moved)
        path.symlink_to(moved)
        return f"{path.name} a link to the folder, which is beside the run"
    if old is not None:
        remove(path)
    if what == 15:
        return f"{path.name} removed"
    places = [home / "keep", home / "notes.txt", home, home / "photos", world / "other.oc",
    world / "other.oc/manifest.json",
              world / "further", world / "empty", home / "not-there", Path("/dev/zero"), Path("/dev/full")]  # fmt: skip
    if what < 6:
        place = rng.choice(places)
        target = os.path.relpath(place, path.parent) if rng.random() < 0.3 and place.parts[1] != "dev" else str(place)
        path.symlink_to(target)
        return f"{path.name} a link to {place.name}"
    if what == 6:
        path.symlink_to(path.name)
        return f"{path.name} a link to itself"
    if what == 7:
        os.mkfifo(path)
        return f"{path.name} a FIFO"
    if what == 8:
        path.mkdir()
        (path / "within").write_text("x")
        return f"{path.name} a folder"
    if what == 9:
        make_socket(path)
        return f"{path.name} a socket"
    if what == 10:
        path.write_bytes(b"")
        return f"{path.name} an empty file"
    path.symlink_to(rng.choice(found))
    return f"{path.name} a link to something else of the run"


def mutate_npy(rng: random.Random, path: Path, world: Path) -> str:
    """Change the header or the values of a .npy file, and return a description."""
    array = np.load(path)
    other, told = other_array(rng, array, world)
    if other is not None:
        with open(path, "wb") as file:
            np.save(file, other, allow_pickle=True)
        return told
    shape = rng.choice(["(2**60,)", "(-1, 2)", "(9999999999, 9999999999)", "()", "('x',)", "(60, 2, 1)", "(" * 300,
    "(60,)"])
    descr = rng.choice(["'<f8'", "'<f8'", "'|O'", "'<U9999999'", "[('a', '<f8')]", "'xx'", "None", "'|V2147483647'"])
    text = f"{{'descr': {descr}, 'fortran_order': {rng.choice(['False', 'True', '3'])}, 'shape': {shape}, }}"
    length = rng.choice([len(text), len(text), 65535, 3])
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", length) + text.encode() + path.read_bytes()[128:])
    return f"header {text[:80]}"


def other_array(rng: random.Random, array: np.ndarray, world: Path) -> tuple[np.ndarray | None, str]:
    """Return an array that differs from `array`, or None, and a description of the difference."""
    kind = rng.randrange(8)
    if kind == 0:
        return None, ""
    if kind == 1:
        return array.astype(rng.choice(["<f4", ">f8", "<i8", "u1", "U8", "c16", "?"])), "another type"
    if kind == 2:
        return array[: len(array) // 2] if array.ndim else np.zeros(3), "half of it"
    if kind == 3:
        return array[None], "one axis more"
    if kind == 4:
        return np.array(Bomb(str(world / "home" / "keep")), dtype=object), "a pickle that writes"
    if kind == 5:
        return np.zeros((0, *array.shape[1:]), array.dtype), "empty"
    changed = np.array(array)
    if changed.size and changed.dtype.kind in "iuf":
        value = values.number(rng)
        with np.errstate(all="ignore"):
            try:
                changed.flat[rng.randrange(changed.size)] = value
            except (OverflowError, ValueError):
                changed.flat[0] = -1
    return changed, f"one value {str(changed.flat[0])[:20] if changed.size else ''}"


class Bomb:
    """An object that overwrites a file when Python reads this object with pickle."""

    def __init__(self, victim: str) -> None:
        self.victim = victim

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (self.victim, "w")


def mutate_npz(rng: random.Random, path: Path, world: Path) -> str:
    """Change a .npz file: write other arrays, use other names, or damage the archive. Return a description."""
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in sorted(archive.files)}
    name = rng.choice(list(arrays))
    kind = rng.randrange(10)
    told = f"{name}: "
    if kind < 6:
        other, how = other_array(rng, arrays[name], world)
        arrays[name] = np.array(values.number(rng) if rng.random() < 0.5 else [2**60, -1]) if other is None else other
        told += how
    elif kind == 6:
        del arrays[name]
        told += "missing"
    elif kind == 7:
        arrays[rng.choice(["x", "../x", "", "y" * 300])] = arrays[name]
        told += "twice"
    np.savez(path, **arrays)  # type: ignore[arg-type]
    if kind == 8:
        data = bytearray(path.read_bytes())
        for _ in range(rng.randrange(1, 5)):
            data[rng.randrange(len(data))] ^= 0xFF
        path.write_bytes(data)
        return "bytes of the archive inverted"
    if kind == 9:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive_file:
            header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (250000000,), }"
            with archive_file.open(f"{name}.npy", "w", force_zip64=True) as entry:
                entry.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
                for _ in range(128):  # 128 MiB of zeros are compressed to a few kilobytes
                    entry.write(bytes(1 << 20))
        return f"{name} a compressed bomb"
    return told


MEANINGS = {".json": mutate_json, ".npy": mutate_npy, ".npz": mutate_npz}
"""Functions that change files of a known format, by the suffix of the file."""
