"""Check the state of a run on disk. A state is created completely or not at all, and each commit is atomic."""

import errno
import fcntl
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import outcrop as oc
from folders import everything_below
from manifests import make_manifest
from outcrop.cli.main import call
from outcrop.durable import SYSTEM, Directory, System
from outcrop.errors import InputError, StorageError
from outcrop.run.disk.manifest import FORMAT, MANIFEST, Manifest
from outcrop.run.disk.state import State
from outcrop.run.places import created_state, open_state, storage_at


def create_state(directories: list[Path], manifest: Manifest, force: bool = False) -> State:
    """Create a run without values, as after a crash before the first commit."""
    with created_state(directories, manifest, force) as state:
        return state


def read_now(where: Path) -> Manifest:
    return storage_at(where).read()


def test_commits_alternate_between_the_arrays_and_move_the_link(tmp_path: Path) -> None:
    where = tmp_path / "run.oc"
    state = create_state([where], make_manifest(where))
    assert not (where / "u").exists() and not state.has_values
    for generation, step in enumerate((0, 4, 8)):
        target = state.files(1 - state.manifest.current)
        state.commit(step)
        assert state.files(state.manifest.current) == target
        assert read_now(where) == state.manifest
        assert (state.manifest.generation, state.manifest.step) == (generation, step)
        assert os.readlink(where / "u") == f".u.{generation % 2}"


def test_a_crash_between_manifest_and_link_is_mended_by_the_next_writer(tmp_path: Path) -> None:
    where = tmp_path / "run.oc"
    state = create_state([where], make_manifest(where))
    state.commit(0)
    (where / "u").unlink()
    (where / "u").symlink_to(".u.1")
    (where / "manifest.json.tmp").write_text("{ half a mani")
    before = everything_below(tmp_path)
    opened = open_state(where)
    assert opened.manifest == state.manifest and everything_below(tmp_path) == before, "looking changes nothing"
    with opened.locked():
        assert os.readlink(where / "u") == ".u.0"


def test_a_commit_that_cannot_be_written_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = tmp_path / "run.oc"
    state = create_state([where], make_manifest(where))
    state.commit(0)

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(SYSTEM, "fsync", full, raising=False)
    with pytest.raises(StorageError, match=r"manifest\.json.*No space left"):
        state.commit(5)
    monkeypatch.undo()
    assert not (where / "manifest.json.tmp").exists()
    assert state.manifest.step == 0 and open_state(where).manifest.step == 0


def test_a_commit_flushes_before_and_after_its_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that a commit flushes the manifest before the rename, and the directory after the rename. With another
    order, the manifest may be empty after a power cut.
    """
    where = tmp_path / "run.oc"
    state = create_state([where], make_manifest(where))
    events: list[str] = []

    def note_fsync(handle: int) -> None:
        events.append(f"fsync {os.path.basename(os.readlink(f'/proc/self/fd/{handle}'))}")
        os.fsync(handle)

    def note_rename(source: str, target: str, **folders: int) -> None:
        events.append(f"rename {target}")
        os.rename(source, target, **folders)

    monkeypatch.setattr(SYSTEM, "fsync", note_fsync, raising=False)
    monkeypatch.setattr(SYSTEM, "rename", note_rename, raising=False)
    state.commit(0)
    assert events == ["fsync manifest.json.tmp", "rename manifest.json", "fsync run.oc", "rename u"]


def test_in_place_says_that_an_interrupted_pass_lost_the_state(tmp_path: Path) -> None:
    where = tmp_path / "run.oc"
    state = create_state([where], make_manifest(where, in_place=True))
    assert not (where / ".u.1").exists()
    state.begin_writing()  # before the first commit, the run has no state that can be lost
    state.commit(0)
    state.begin_writing()
    assert open_state(where).manifest.step == 0
    with pytest.raises(StorageError, match=r"state was lost.*force=True"):
        open_state(where).current_files_of("u")
    state.commit(4)
    assert str(open_state(where).current_files_of("u")[0]) == str(state.files(0)[0][0])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "damaged"),
        (b"[1, 2]", "damaged"),
        (b'{"name": "a package"}', "damaged or not written by Outcrop"),
        (b"\xff\xfe", "damaged"),
        (b'{"format": 99}', f"format 99, this version reads format {FORMAT}"),
    ],
)
def test_damaged_and_foreign_manifests_are_refused(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / MANIFEST).write_bytes(content)
    with pytest.raises(InputError, match=words):
        open_state(tmp_path)
    with pytest.raises(InputError):
        create_state([tmp_path], make_manifest(tmp_path), force=True)
    assert (tmp_path / MANIFEST).read_bytes() == content


def test_missing_and_truncated_shards_are_named(tmp_path: Path) -> None:
    places = [tmp_path / "a", tmp_path / "b"]
    state = create_state(places, make_manifest(*places))
    state.commit(0)
    shard = Path(str(state.files_of("u", 0)[1]))
    assert shard.is_relative_to(places[1])
    os.truncate(shard, 100)
    with pytest.raises(StorageError, match=r"c/1/0/0 has 100 bytes"):
        open_state(places[0])
    shard.unlink()
    with pytest.raises(StorageError, match=r"c/1/0/0 cannot be used: No such file"):
        open_state(places[0])


def test_a_run_is_only_replaced_by_force_and_then_completely(tmp_path: Path) -> None:
    places = [tmp_path / "a", tmp_path / "b"]
    state = create_state(places, make_manifest(*places))
    (places[0] / "picture.png").write_text("the user's own")
    state.commit(3)
    before = everything_below(tmp_path)
    with pytest.raises(InputError, match=r"unfinished run of heat7 \(step 3 of 10\).*outcrop resume.*force=True"):
        create_state([places[0]], make_manifest(places[0], identity="2"))
    state.commit(10)
    with pytest.raises(InputError, match=r"a run of heat7 at step 10.*force=True"):
        create_state([places[0]], make_manifest(places[0], identity="2"))
    state.commit(3)
    create_state([places[0]], make_manifest(places[0], identity="2"), force=True)
    assert read_now(places[0]).identity == "2"
    assert (places[0] / "picture.png").exists()
    assert not any(places[1].iterdir()), "the old run's share must go"
    assert before.keys() - everything_below(tmp_path).keys()


def test_what_is_not_a_run_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    before = everything_below(tmp_path)
    for force in (False, True):
        with pytest.raises(InputError, match=r"holds something else \(thesis.tex\)"):
            create_state([tmp_path], make_manifest(tmp_path), force=force)
    fresh = tmp_path / "fresh"
    with pytest.raises(InputError, match="something else"):
        create_state([fresh, tmp_path], make_manifest(fresh, tmp_path), force=True)
    assert everything_below(tmp_path) == before


def test_a_member_of_another_run_is_not_taken(tmp_path: Path) -> None:
    """Checks that two runs cannot use the same directory."""
    first, second, shared = (tmp_path / name for name in ("first", "second", "shared"))
    create_state([first, shared], make_manifest(first, shared)).commit(0)
    before = everything_below(tmp_path)
    for force in (False, True):
        with pytest.raises(InputError, match="another run"):
            create_state([second, shared], make_manifest(second, shared, identity="2"), force=force)
        with pytest.raises(InputError, match=r"a share of the run in .*first"):
            open_state(shared)
        with pytest.raises(InputError, match="another run"):
            create_state([shared], make_manifest(shared, identity="2"), force=force)
    assert everything_below(tmp_path) == before


def test_places_that_cannot_be_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    good = tmp_path / "good"
    for places, words in [
        ([file], "is a file"),
        ([good, file / "below"], "cannot be"),
        ([good, tmp_path / "x" / ".." / "good"], "given twice"),
        ([Path("/proc/nowhere")], "no space"),
    ]:
        with pytest.raises(InputError, match=words):
            create_state(places, make_manifest(*places))
    assert list(tmp_path.iterdir()) == [file]


def test_no_space_is_found_before_the_first_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = tmp_path / "run.oc"
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=10, f_frsize=4096))
    with pytest.raises(InputError, match=r"no space: .* 40 KiB are free; .*in_place=True"):
        create_state([where], make_manifest(where))
    assert not where.exists()


def test_a_disk_that_fills_meanwhile_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = tmp_path / "run.oc"
    count = iter(range(100))

    def full(handle: int, offset: int, size: int) -> None:
        if next(count) == 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.posix_fallocate(handle, offset, size)

    monkeypatch.setattr(SYSTEM, "allocate", full, raising=False)
    with pytest.raises(StorageError, match="No space left"):
        create_state([where], make_manifest(where))
    assert not where.exists()


def test_one_process_at_a_time_changes_a_run(tmp_path: Path) -> None:
    where = tmp_path / "run.oc"
    state = create_state([where], make_manifest(where))
    state.commit(0)
    hold = "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], 0), fcntl.LOCK_EX); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(where)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout and holder.stdin
        holder.stdout.readline()
        with pytest.raises(InputError, match="in use by another process"), state.locked():
            pass
        with pytest.raises(InputError, match="in use by another process"):
            create_state([where], make_manifest(where, identity="2"), force=True)
        assert open_state(where).manifest.identity == "1", "looking at a run that is being run is allowed"
        holder.communicate(b"\n")
    with state.locked(), state.locked():  # the same process may take the lock again
        handle = os.open(where, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(handle)


def test_taking_the_lock_sees_what_another_process_committed(tmp_path: Path) -> None:
    """Checks that a process reads the manifest again when it takes the lock. With an old manifest, the process could
    overwrite a generation that another process has committed.
    """
    where = tmp_path / "run.oc"
    state = create_state([where], make_manifest(where))
    state.commit(0)
    other = open_state(where)
    with state.locked():
        state.commit(4)
    with other.locked():
        assert other.manifest == state.manifest


def test_a_run_without_values_is_replaced_without_force(tmp_path: Path) -> None:
    """Checks that a run without values is replaced without `force`."""
    where = tmp_path / "run.oc"
    beside = tmp_path / "beside"
    create_state([where, beside], make_manifest(where, beside))
    assert create_state([where, beside], make_manifest(where, beside, identity="2")).manifest.identity == "2"


def test_what_a_run_that_is_gone_left_elsewhere_is_replaced_by_force(tmp_path: Path) -> None:
    """Checks that `force` replaces the further directory of a run whose main directory was deleted."""
    where, beside = tmp_path / "run.oc", tmp_path / "beside"
    create_state([where, beside], make_manifest(where, beside)).commit(0)
    shutil.rmtree(where)
    with pytest.raises(InputError, match=r"a run that is gone.*force=True"):
        create_state([where, beside], make_manifest(where, beside, identity="2"))
    create_state([where, beside], make_manifest(where, beside, identity="2"), force=True).commit(0)
    assert open_state(where).manifest.identity == "2"


def test_a_manifest_survives_being_written_and_read(tmp_path: Path) -> None:
    where = tmp_path / "run.oc"
    manifest = replace(make_manifest(where), parameters={"c0": 0.1 + 0.2}, target_step=12)
    create_state([where], manifest)
    assert read_now(where) == manifest


def test_ctrl_c_closes_no_descriptor_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks Ctrl-C just after a descriptor was closed. The descriptor must not be closed again, because a second close
    fails or closes a file of another thread."""
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)

    def close(handle: int) -> None:
        os.close(handle)
        raise KeyboardInterrupt

    with Directory.open(tmp_path) as directory, monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(System, "close", staticmethod(close))
        directory.names("a/b/c")


def test_a_copy_without_links_is_refused_with_the_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks a run whose link to an array was replaced by a copy of the array, as `scp -r` does. The message must name
    the commands that repair the run, and these commands must work."""
    where = tmp_path / "run.oc"
    oc.Simulation("heat7", shape=(8, 8, 8), memory="1MiB", directory=where).run(2, progress="none")
    (where / "u").unlink()
    (where / "u").mkdir()
    for command in (["resume", where, "-t", "2", "--quiet"], ["verify", "--repair", where]):
        assert call([str(word) for word in command]) == 2
        said = capsys.readouterr().err
        assert "u is a directory, but must be a link" in said and f"outcrop verify --repair {where}" in said
    assert not (where / "u.tmp").exists()
    (where / "u").rmdir()
    assert call(["verify", "--repair", str(where), "--quiet"]) == 0
    oc.open(where).run(2, progress="none")
    assert (where / "u").is_symlink()
