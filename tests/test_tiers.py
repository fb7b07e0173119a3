"""Check that `outcrop tiers` measures each tier of this machine once, stores the figures, and removes its files."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outcrop import _core
from outcrop.bench.memory import cached_share, drop_from_page_cache
from outcrop.cli import tiers as tiers_command
from outcrop.cli.main import call
from outcrop.errors import InputError, StorageError
from outcrop.plan.machine import StorageRates
from outcrop.tiers import discover, measure, storage_tiers, survey
from outcrop.tiers.storage_tiers import mount_of, mounted_tier
from outcrop.tiers.survey import find_tiers
from outcrop.tiers.tier import KINDS, Figures, Persistence
from outcrop.user_cache import keep_figures, load_figures
from strategies import make_problem

FIGURES = ("read_bytes_per_second", "write_bytes_per_second", "random_read_bytes_per_second",
           "random_write_bytes_per_second", "latency_seconds_read")  # fmt: skip


@pytest.fixture(autouse=True)
def in_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make all measurements very short, without meaningful figures. Measure only one directory, and use a separate
    cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("OUTCROP_TIERS", raising=False)
    monkeypatch.setattr(measure, "SCRATCH_BYTES", 64 << 20)
    for name in ("FILL", "SEQUENTIAL", "RANDOM", "LATENCY"):
        monkeypatch.setattr(measure, f"{name}_SECONDS", 0.02)
    monkeypatch.setattr(measure, "CACHES", 1)
    every = survey.storage_tiers
    monkeypatch.setattr(survey, "storage_tiers", lambda folders: [
        tier for tier in every(folders) if tier.directory in [folder.resolve() for folder in folders]
    ])  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return an empty folder for scratch files, so that the test can see files that remain."""
    (tmp_path / "here").mkdir()
    return tmp_path / "here"


def test_every_tier_is_measured_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that a second call shows the figures of the first call, and that --refresh measures again. No file
    remains.
    """
    report = folder.parent / "tiers.json"
    origins = []
    for words in ([], [], ["--refresh"]):
        assert call(["tiers", "-d", str(folder), "--json", str(report), *words]) == 0
        output = capsys.readouterr()
        found = {tier["name"]: tier for tier in json.loads(report.read_text())["tiers"]}
        (storage,) = (tier for tier in found.values() if tier["where"] == str(folder.resolve()))
        assert not output.err or "at most about" in output.err.splitlines()[0]
        origins.append((found["dram"]["origin"], storage["origin"], output.err.count("measuring")))
        for tier in (found["dram"], storage):
            assert tier["kind"] in KINDS and tier["name"] in output.out
            assert all(tier[key] > 0 for key in FIGURES), tier
            assert 0 < tier["free_bytes"] <= tier["capacity_bytes"]
        assert found["dram"]["persistence"] == "process" and found["dram"]["triad_bytes_per_second"] > 0
        assert Persistence[storage["persistence"].upper()] >= Persistence.REBOOT
        assert os.listdir(folder) == []
    assert origins == [("measured", "measured", 2), ("cached", "cached", 0), ("measured", "measured", 2)]
    assert call(["tiers", "-d", str(folder / "none" / "below"), "--refresh"]) == 0
    # a missing folder is measured in the nearest folder above it
    assert str(folder.resolve()) in capsys.readouterr().out and os.listdir(folder) == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(5, "5 seconds"), (65, "1 minute"), (7300, "2 hours"), (3 * 86400, "3 days"), (None, ""), (-900, "0 seconds")],
)
def test_old_figures_show_their_age(
    seconds: float | None, text: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks the age of figures from the cache. Figures of earlier versions have no age. A clock that was set back
    gives the age 0."""
    assert call(["tiers", "-d", str(folder)]) == 0
    assert "ago" not in capsys.readouterr().out
    known = load_figures(survey.CACHE, Figures)
    kept = {key: replace(one, measured_at_seconds=seconds and 1e9 - seconds) for key, one in known.items()}
    keep_figures(survey.CACHE, kept)
    monkeypatch.setattr(tiers_command.time, "time", lambda: 1e9)
    assert call(["tiers", "-d", str(folder)]) == 0
    wanted = f"figures cached, measured {text} ago" if text else "figures cached, measured at an unknown time"
    assert capsys.readouterr().out.count(wanted) == 2


def test_unasked_nothing_is_measured(folder: Path) -> None:
    """Checks that `find_tiers` does not measure by default. Planners call this function often, and must not write
    files."""
    found = find_tiers([folder])
    assert {tier.origin for tier in found} <= {"not measured", "firmware"}
    assert len({tier.name for tier in found}) == len(found)
    assert os.listdir(folder) == []


def test_memory_is_what_proc_says() -> None:
    """Checks that the size of the memory is not larger than the system's figure and the limit of the control group.

    On a machine with one NUMA node, the size is the smaller of the two.
    """
    memory = [tier for tier in find_tiers() if tier.is_memory]
    for tier in memory:
        assert 0 <= tier.free_bytes <= tier.capacity_bytes <= discover.memory_bytes()
    assert sum(tier.capacity_bytes for tier in memory) > 0
    if discover.memory_nodes_of_machine() <= len(memory) == len(memory[0].nodes) == 1:
        assert memory[0].capacity_bytes == discover.memory_bytes()


def test_a_declared_tier_takes_measured_figures_where_it_has_none(folder: Path) -> None:
    """Checks that declared figures are kept and that missing figures are measured. A device is measured only once for
    all its tiers.
    """
    file = folder.parent / "tiers.toml"
    file.write_text(f'[mine]\ndirectory = "{folder}"\nread = 123.0\ncapacity = "1GiB"')
    (mine,) = (tier for tier in find_tiers([], file, measure=True) if tier.name == "mine")
    assert mine.read_bytes_per_second == 123.0
    assert mine.write_bytes_per_second is not None and mine.write_bytes_per_second > 0
    assert (mine.origin, mine.where, mine.capacity_bytes) == ("declared", str(folder), 1 << 30)
    again = find_tiers([folder], file)
    assert {tier.write_bytes_per_second for tier in again if not tier.is_memory} == {mine.write_bytes_per_second}


def test_what_cannot_be_measured_says_why(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that a tier without room and a tier without write permission have a note instead of figures. All other
    tiers must have figures."""
    monkeypatch.setattr(measure, "MIN_SCRATCH_BYTES", 1 << 60)
    found = find_tiers([folder], measure=True)
    (storage,) = (tier for tier in found if not tier.is_memory)
    assert storage.read_bytes_per_second is None and "may use a quarter of the free space" in storage.note
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    tier = mounted_tier(mount_of(folder), [folder])
    assert (tier.free_bytes, tier.note) == (0, "this user may write to no directory there")
    assert os.listdir(folder) == []


def test_bad_arguments_are_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that wrong arguments give a one-line error before anything is measured."""
    for words, message in (
        (["-d", "/dev/null/below"], "/dev/null is a file"),
        (["-d", "/proc"], "/proc is on proc, which cannot store files"),
        (["--tiers", str(folder / "none.toml")], "none.toml cannot be read"),
        (["--json", "/dev/null/x.json"], "--json /dev/null/x.json cannot be written"),
    ):
        assert call(["tiers", *words]) == 2
        output = capsys.readouterr()
        assert message in output.err and output.err.count("\n") == 1 and output.out == ""


def test_a_directory_that_cannot_be_written_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks that a directory without write permission is refused. Outcrop must not measure another directory
    instead."""
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    assert call(["tiers", "-d", str(folder)]) == 2
    output = capsys.readouterr()
    assert f"directory {folder} cannot be written: no permission in" in output.err
    assert output.err.count("\n") == 1 and output.out == ""


@pytest.mark.parametrize("version", [1, 2])
def test_limits_of_control_groups_hold(version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that the lowest limit of this process's control groups limits the memory. The free memory is this limit
    minus the used memory. Cached files do not count as used memory.
    """
    inner = tmp_path / ("memory/job/step" if version == 1 else "job/step")
    inner.mkdir(parents=True)
    (tmp_path / "own").write_text("4:memory:/job/step\n" if version == 1 else "0::/job/step\n")
    limit_file = "memory.limit_in_bytes" if version == 1 else "memory.max"
    used_file = "memory.usage_in_bytes" if version == 1 else "memory.current"
    key, unlimited = ("total_", str(1 << 62)) if version == 1 else ("", "max")
    for group, limit, used, cached in ((inner, unlimited, 50, 0), (inner.parent, "1000", 500, 100)):
        (group / limit_file).write_text(limit + "\n")
        (group / used_file).write_text(f"{used}\n")
        (group / "memory.stat").write_text(f"{key}inactive_file {cached}\n{key}active_file {cached}\n")
    monkeypatch.setattr(discover, "CGROUP_FILE", tmp_path / "own")
    monkeypatch.setattr(discover, "CGROUP_ROOT", tmp_path)
    assert (discover.cgroup_limit_bytes(), discover.cgroup_free_bytes()) == (1000, 700)
    assert discover.memory_bytes() == 1000 and discover.free_memory_bytes() == 700


def test_an_impossible_directory_is_refused(tmp_path: Path) -> None:
    """Checks that a file is refused as a place for scratch files."""
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        find_tiers([tmp_path / "file"])


def test_files_have_a_tier_where_the_kernel_lists_no_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that the file system at / is a tier even if the operating system does not list it, as in a chroot."""
    monkeypatch.setattr(storage_tiers, "all_mounts", lambda: [])
    (root,) = storage_tiers.storage_tiers()
    assert root.kind == "disk" and root.persistence is Persistence.PERMANENT
    assert Path(root.where).is_dir() and root.free_bytes > 0
    assert storage_tiers.storage_tiers([tmp_path])[0].name == root.name


def test_rates_of_a_device_are_measured_with_the_executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that the rates for the plans of runs are positive and finite, and that no file remains."""
    monkeypatch.setattr(measure, "SCRATCH_RECORDS", 2 * measure.RING_RECORDS)
    found = measure.measure_device(tmp_path, "auto")
    rates = found.read_bytes_per_second, found.write_bytes_per_second, found.mixed_bytes_per_second
    assert found.first_write_bytes_per_second is not None
    assert all(0 < rate < float("inf") for rate in (*rates, found.first_write_bytes_per_second))
    assert found.origin == "measured" and not list(tmp_path.iterdir())


def kept_share() -> float:
    """Return the share of the pages of the scratch file that are in the page cache."""
    links = (path for path in Path("/proc/self/fd").iterdir() if path.is_symlink())
    (scratch, *_) = (path for path in links if storage_tiers.SCRATCH_PREFIX in os.readlink(path))
    share = cached_share(scratch)
    assert share is not None
    return share


@pytest.fixture
def dropping(folder: Path) -> Path:
    """Return the empty folder. Skip the test if the system cannot remove the pages of files there from the page cache,
    as on tmpfs."""
    file = folder / "file"
    file.write_bytes(bytes(1 << 20))
    drop_from_page_cache(file)
    if cached_share(file) != 0:
        pytest.skip("the page cache keeps the pages of files in this folder")
    file.unlink()
    return folder


def test_rates_of_a_device_are_not_those_of_the_page_cache(dropping: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that each pass of a measurement begins without pages in the page cache, if transfers use it."""
    monkeypatch.setattr(measure, "SCRATCH_RECORDS", 2 * measure.RING_RECORDS)
    shares, make = [], _core.make_executor

    def executor(*words: Any, **named: Any) -> Any:
        made = make(*words, **named)

        class Watched:
            def run(self, *words: Any, **named: Any) -> Any:
                shares.append(kept_share())
                return made.run(*words, **named)

        return Watched()

    monkeypatch.setattr(_core, "make_executor", executor)
    assert measure.measure_afresh(dropping, "mmap").origin == "measured"
    assert len(shares) > 5 and max(shares) < 0.1, shares


def test_figures_of_a_tier_are_not_those_of_the_page_cache(dropping: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that no page of the scratch file is in the page cache before a measurement, if transfers use it. The time
    of writes must include their flush."""
    found, run = [], _core.measure_transfers

    def transfer(store: _core.Store, **named: Any) -> tuple[int, int, float]:
        found.append((named["write"], named["flush"], named["random"], kept_share()))
        return run(store, **named)

    monkeypatch.setattr(_core, "measure_transfers", transfer)
    assert measure.measure_storage(dropping, 1 << 30, "mmap").origin == "measured"
    assert all(is_flushed for is_write, is_flushed, *_ in found if is_write)
    # A random access to a mapped file also maps pages around it. The system keeps mapped pages.
    assert all(share < 0.1 for *_, is_random, share in found if not is_random)


def measured_rates(folder: Path) -> str:
    problem = make_problem((64, 1024, 1024), (1, 1, 1), 2)
    assert problem.grid_bytes >= measure.MIN_GRID_BYTES
    return measure.device([folder], "mmap", True, problem).origin


def tier_note(folder: Path) -> str:
    with pytest.raises(StorageError) as error:
        measure.measure_storage(folder, 1 << 30, "mmap")
    return str(error.value)


@pytest.mark.parametrize(("figures", "expected"), [(measured_rates, "assumed"), (tier_note, "stays in the page cache")])
def test_a_disk_behind_a_page_cache_that_keeps_pages_is_not_measured(
    dropping: Path, figures: Callable[[Path], str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks that speeds of memory are neither used nor kept as speeds of a disk. Here, the system keeps all pages of
    the scratch file in the page cache."""
    monkeypatch.setattr(os, "posix_fadvise", lambda *_: None)
    assert expected in figures(dropping)
    assert not load_figures(measure.CACHE, StorageRates)
