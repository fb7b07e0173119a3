"""Check tiers that users declare: valid values, values that contradict the file system, and error messages."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import outcrop as oc
from outcrop.bench.stream import check_room, find_tier
from outcrop.errors import InputError
from outcrop.tiers.declarations import declared_tiers, parse_tiers
from outcrop.tiers.tier import Persistence

GOOD = """
[scratch]
directory = "FOLDER"
capacity = "3MiB"
persistence = "job"
read = "2GB/s"
random_write = 1e8
read_latency = 1e-4
flush_latency = 0
"""


def test_what_is_declared_is_what_the_tier_has(tmp_path: Path) -> None:
    """Checks that a tier has its declared values. Files that already exist count against a quota.

    Values that are not declared come from the file system or from a measurement.
    """
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "old").write_bytes(b"x" * (1 << 20))
    (tier,) = parse_tiers(GOOD.replace("FOLDER", str(tmp_path)), "tiers.toml")
    assert (tier.name, tier.where, tier.directory) == ("scratch", str(tmp_path), tmp_path)
    assert tier.is_declared and tier.capacity_bytes == 3 << 20
    assert 0 < tier.free_bytes <= 2 << 20
    assert (tier.origin, tier.note) == ("declared", "")
    assert tier.persistence <= Persistence.JOB
    assert (tier.read_bytes_per_second, tier.random_write_bytes_per_second) == (2e9, 1e8)
    assert (tier.write_bytes_per_second, tier.random_read_bytes_per_second) == (None, None)
    assert (tier.latency_seconds_read, tier.latency_seconds_write, tier.latency_seconds_flush) == (1e-4, None, 0.0)


def test_a_directory_that_is_elsewhere_is_no_error(tmp_path: Path) -> None:
    """Checks that a declared directory that does not exist is no error. All machines of a cluster can use the same file
    of tiers."""
    (tier,) = parse_tiers(f'[scratch]\ndirectory = "{tmp_path}/none"\ncapacity = "1GiB"', "tiers.toml")
    assert (tier.capacity_bytes, tier.free_bytes) == (0, 0)
    assert "does not exist" in tier.note


def changed(old: str, new: str) -> str:
    """Return GOOD with one line replaced."""
    assert GOOD.count(old) == 1, old
    return GOOD.replace(old, new)


BAD = {
    "syntax": ("[scratch", "not TOML"),
    "no table": ("scratch = 3", "scratch = 3 must be a table"),
    "name": (changed("[scratch]", '["my scratch"]'), "my scratch.*letter"),
    "name of memory": (changed("[scratch]", "[dram]"), "'dram' has another meaning; do not use auto, hbm, dram"),
    "no directory": (changed('directory = "FOLDER"\n', ""), "scratch.directory is missing"),
    "relative": (changed("FOLDER", "somewhere"), "scratch.directory = 'somewhere'.*absolute"),
    "persistence": (changed("job", "weekly"), "scratch.persistence = 'weekly'.*process, reboot, job, permanent"),
    "quota": (changed("3MiB", "3MiBs"), "scratch.capacity = '3MiBs'.*128GiB"),
    "bandwidth": (changed("2GB/s", "2GB"), "scratch.read = '2GB'.*GB/s"),
    "latency": (changed("1e-4", "-1"), "scratch.read_latency = -1.*seconds"),
    "long name": (f"[{'a' * 65}]", "the name 'a{64}' must be a letter"),
    "control characters": (changed("FOLDER", "/a\\u0000b"), "scratch.directory = '/a.x00b'.*control"),
    "line break": (changed("FOLDER", "/a\\nb"), "scratch.directory = '/a.nb'.*control"),
    "a user who is not here": (changed("FOLDER", "~nobody-of-that-name/x"), "scratch.directory.*absolute"),
    "directory as a number": (changed('"FOLDER"', "3"), "scratch.directory = 3 must be a directory"),
    "quota beyond words": (changed('"3MiB"', "0x" + "f" * 900), "scratch.capacity = .*must be a size"),
    "infinite bandwidth": (changed('"2GB/s"', "inf"), "scratch.read = inf.*from 1 to"),
    "latency of years": (changed("1e-4", "1e300"), "scratch.read_latency = 1e[+]300.*from 0 to 86400"),
    "latency that is no number": (changed("1e-4", "nan"), "scratch.read_latency = nan.*seconds"),
    "deep": ("a = " + "[" * 990, "nested too deeply"),
    "unknown key": (changed("persistence", "persist"), "scratch.persist is unknown.*persistence"),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD.keys())
def test_what_cannot_be_is_one_line(text: str, message: str, tmp_path: Path) -> None:
    """Checks that a wrong file of tiers is refused. The error names the file, the key, the wrong value and the correct
    form."""
    with pytest.raises(InputError) as error:
        parse_tiers(text.replace("FOLDER", str(tmp_path)), "bad.toml")
    assert re.search(f"bad.toml.*{message}", str(error.value)), error.value
    assert "\n" not in str(error.value)


def test_nothing_lasts_longer_than_its_file_system() -> None:
    """Checks that a tier in memory cannot be declared permanent."""
    if not Path("/dev/shm").is_dir():
        pytest.skip("no /dev/shm")
    with pytest.raises(InputError, match=r"persistence = 'permanent' must be at most reboot: it is on"):
        parse_tiers('[fast]\ndirectory = "/dev/shm"\npersistence = "permanent"', "tiers.toml")


def test_where_the_file_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks the order in which Outcrop looks for a file of tiers: the option, the environment variable, the user's own
    file.

    A file must exist if the option or the environment variable names this file.
    """
    monkeypatch.delenv("OUTCROP_TIERS", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert declared_tiers() == []
    (tmp_path / "outcrop").mkdir()
    for name, path in (("own", "outcrop/tiers.toml"), ("variable", "v"), ("named", "n")):
        (tmp_path / path).write_text(f'[{name}]\ndirectory = "{tmp_path}"')
    assert [tier.name for tier in declared_tiers()] == ["own"]
    monkeypatch.setenv("OUTCROP_TIERS", str(tmp_path / "v"))
    assert [tier.name for tier in declared_tiers()] == ["variable"]
    assert [tier.name for tier in declared_tiers(tmp_path / "n")] == ["named"]
    with pytest.raises(InputError, match=r"tiers .*/gone cannot be read"):
        declared_tiers(tmp_path / "gone")
    monkeypatch.setenv("OUTCROP_TIERS", str(tmp_path / "gone"))
    with pytest.raises(InputError, match=r"gone cannot be read"):
        declared_tiers()


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_large(path: Path) -> None:
    path.touch()
    os.truncate(path, 10 << 30)


NO_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a device without end": (lambda path: path.symlink_to("/dev/zero"), "is not a regular file"),
    "a FIFO": (make_fifo, "is not a regular file"),
    "a directory": (lambda path: path.mkdir(), "is not a regular file"),
    "ten gigabytes": (make_large, "is larger than 256 KiB"),
    "a link to itself": (lambda path: path.symlink_to(path.name), "cannot be read: Too many"),
    "no text": (lambda path: path.write_bytes(b"\xff\xfe"), "is not text in UTF-8"),
}


@pytest.mark.parametrize(("make", "message"), NO_FILES.values(), ids=NO_FILES.keys())
def test_what_is_no_file_of_tiers_is_one_line(
    make: Callable[[Path], object], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks that a path is refused if it does not name a small text file. The path comes from an option, the
    environment variable or the user's folder. Outcrop does not read files without an end, such as /dev/zero.
    """
    path = tmp_path / "outcrop" / "tiers.toml"
    path.parent.mkdir()
    make(path)
    monkeypatch.delenv("OUTCROP_TIERS", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(InputError, match=f"tiers.toml {message}"):
        declared_tiers()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    with pytest.raises(InputError, match=f"tiers.toml {message}"):
        declared_tiers(path)
    monkeypatch.setenv("OUTCROP_TIERS", str(path))
    with pytest.raises(InputError, match=f"tiers.toml {message}"):
        oc.array(3, tier="x")


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Declare a directory with a quota of 3 MiB, and a directory that does not exist on this machine."""
    (tmp_path / "scratch" / "inner").mkdir(parents=True)
    file = tmp_path / "tiers.toml"
    file.write_text(
        f'[scratch]\ndirectory = "{tmp_path / "scratch"}"\ncapacity = "3MiB"\n[gone]\ndirectory = "/not/here"\n'
    )
    monkeypatch.setenv("OUTCROP_TIERS", str(file))
    return tmp_path / "scratch"


def test_a_quota_holds_for_paths(scratch: Path) -> None:
    """Checks that a path at any depth below the directory belongs to the tier and is limited by its quota."""
    for folder in (scratch, scratch / "inner"):
        with oc.array(1 << 20, "uint8", path=folder / "fits.npy") as array:
            assert array.tier.name == "scratch"
        for words in ({"path": folder / "a.npy"}, {"path": folder / "a", "persist": "end"}):
            with pytest.raises(InputError, match=r"no room: it takes .* of scratch, where .* are free"):
                oc.array(4 << 20, "uint8", **words)
    assert not list(scratch.rglob("a*"))
    with oc.array(4 << 20, "uint8", path=scratch.parent / "beside.npy") as array:
        assert array.tier.name != "scratch"


def test_stream_is_measured_where_it_was_asked_for(scratch: Path) -> None:
    """Checks that a benchmark runs in the directory that the user names, and keeps its quota. Declared tiers that are
    missing on this machine have no effect.
    """
    tier = find_tier(scratch / "inner", None)
    assert (tier.name, tier.directory) == ("scratch", scratch / "inner")
    with pytest.raises(InputError, match=r"tier gone \(/not/here\) cannot be used: the directory does not exist"):
        check_room(find_tier(scratch, "gone"), 1)


def test_a_tier_that_is_not_here_says_so(scratch: Path) -> None:
    """Checks the error for a declared tier that this machine lacks: the error must not say that the tier is full."""
    with pytest.raises(InputError, match=r"tier gone \(/not/here\) cannot be used: the directory does not exist"):
        oc.array(3, tier="gone")
