"""Check the user's cache, which holds compiled code and measured figures. Outcrop must not use damaged files or files
of other users.
"""

import ctypes
import errno
import fcntl
import json
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

import pytest

import outcrop as oc
from outcrop import user_cache
from outcrop.errors import InputError
from outcrop.language.compile import compile_kernel
from outcrop.language.library import find_stencil
from outcrop.plan.machine import StorageRates
from outcrop.shared_object import compiler_identity, find_compiler, load_library, run_compiler, shared_object
from outcrop.tiers.tier import Figures
from outcrop.user_cache import keep_figures, load_figures

CODE = "int answer(void) { return %d; }"
ONE_BYTE = 0x5A


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set $XDG_CACHE_HOME to a new folder, and return the path of this folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def object_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """Return a function that compiles C code and returns the path of the compiled file. The C code defines a function
    `answer` whose result is the given number."""

    def make(number: int) -> Path:
        folder = tmp_path_factory.mktemp("code")
        (folder / "code.c").write_text(CODE % number)
        flags = ["-shared", "-fPIC", str(folder / "code.c"), "-o", str(folder / "code.so")]
        run_compiler([*find_compiler("C"), *flags], "a test")
        return folder / "code.so"

    made: dict[int, Path] = {}
    return lambda number: made.setdefault(number, made.get(number) or make(number))


class Builds:
    """A substitute for the compiler. The substitute copies a file into the cache and counts its calls."""

    def __init__(self, file: Path) -> None:
        self.file, self.count = file, 0

    def __call__(self, beside: Path) -> None:
        self.count += 1
        shutil.copy(self.file, beside)


def answer_of(path: Path) -> int:
    """Call the function `answer` in a compiled file, and return its result. A new process loads the file, because a
    process loads each file only once.
    """
    script = "import sys; from pathlib import Path; from outcrop.shared_object import load_library\n"
    script += "print(load_library(Path(sys.argv[1])).answer())"
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stderr)
    return int(done.stdout)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def write_anew(path: Path, content: bytes) -> None:
    """Replace the file by a new file with this content. The function does not overwrite the old file, because this file
    may be mapped."""
    path.unlink()
    path.write_bytes(content)


def changed(content: bytes, place: int) -> bytes:
    """Return a copy of the content with one changed byte."""
    return content[:place] + bytes([content[place] ^ ONE_BYTE]) + content[place:][1:]


def become_a_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def become_a_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.truncate(1 << 40)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: write_anew(path, b""),
    "half": lambda path: write_anew(path, path.read_bytes()[: path.stat().st_size // 2]),
    "no seal": lambda path: write_anew(path, path.read_bytes()[:-80]),
    "short of a byte": lambda path: write_anew(path, path.read_bytes()[:-1]),
    "a byte changed": lambda path: write_anew(path, changed(path.read_bytes(), 200)),
    "a byte of the seal changed": lambda path: write_anew(path, changed(path.read_bytes(), -10)),
    "zeros": lambda path: write_anew(path, bytes(path.stat().st_size)),
    "a terabyte": grow,
    "others may write it": lambda path: path.chmod(0o666),
    "its group may write it": lambda path: path.chmod(0o620),
    "a link": become_a_link,
    "a second name": lambda path: os.link(path, path.with_name("second")),
    "a FIFO": become_a_fifo,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_damaged_code_is_compiled_again(
    damage: Callable[[Path], object], home: Path, object_file: Callable[[int], Path]
) -> None:
    """Checks a cache with damaged code, or with code that other users can write. Outcrop must compile the code again
    and must never load the cached file."""
    build = Builds(object_file(1))
    path = shared_object("kernels", ["a"], build)
    assert path.parent == home / "outcrop" / "kernels"
    damage(path)
    with pytest.raises(InputError, match=r"damaged, or other users may write it"):
        load_library(path)
    assert shared_object("kernels", ["a"], build) == path
    assert build.count == 2 and answer_of(path) == 1
    assert path.is_file() and not path.is_symlink() and mode_of(path) == 0o600
    assert shared_object("kernels", ["a"], build) == path and build.count == 2


def test_sound_code_of_another_name_is_not_loaded(home: Path, object_file: Callable[[int], Path]) -> None:
    """Checks that a cached file is refused if it has replaced another cached file. The seal in a file depends on the
    original name and kind of the file."""
    one, two = (shared_object("kernels", [str(number)], Builds(object_file(number))) for number in (1, 2))
    other = shared_object("transports", ["1"], Builds(object_file(2)))
    assert one != two and other.name == one.name
    for source in (two, other):
        write_anew(one, source.read_bytes())
        with pytest.raises(InputError, match="damaged"):
            load_library(one)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("what", ["file", "kernels", "outcrop"])
def test_what_belongs_to_another_user_is_not_used(what: str, home: Path, object_file: Callable[[int], Path]) -> None:
    """Checks that a file of another user is replaced. A folder of another user is refused, and the message says what to
    do.
    """
    build = Builds(object_file(1))
    path = shared_object("kernels", ["a"], build)
    if what == "file":
        os.chown(path, 12345, -1)
        assert shared_object("kernels", ["a"], build) == path
        assert build.count == 2 and path.stat().st_uid == os.geteuid()
        return
    os.chown(path.parent if what == "kernels" else path.parents[1], 12345, -1)
    for use in (lambda: shared_object("kernels", ["a"], build), lambda: load_library(path)):
        with pytest.raises(InputError, match=rf"/{what} belongs to user 12345.*set XDG_CACHE_HOME"):
            use()
    assert build.count == 1


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o777])
def test_folders_are_private_whatever_the_umask(mask: int, home: Path, object_file: Callable[[int], Path]) -> None:
    """Checks that all new folders of the cache are private for any umask, and contain no other files."""
    file = object_file(1)
    before = os.umask(mask)
    try:
        path = shared_object("kernels", ["a"], Builds(file))
        keep_figures("figures.json", {"a": Figures("measured")})
    finally:
        os.umask(before)
    assert [mode_of(folder) for folder in (home, home / "outcrop", path.parent)] == [0o700] * 3
    assert [mode_of(kept) for kept in (path, home / "outcrop" / "figures.json")] == [0o600] * 2
    assert os.listdir(path.parent) == [path.name]
    assert sorted(os.listdir(home / "outcrop")) == ["figures.json", "kernels"]


def test_open_folders_are_closed_to_others(home: Path, object_file: Callable[[int], Path]) -> None:
    """Checks that Outcrop makes existing folders of the cache private. Earlier versions made folders to which other
    users could write."""
    (home / "outcrop" / "kernels").mkdir(parents=True)
    for folder in (home / "outcrop", home / "outcrop" / "kernels"):
        folder.chmod(0o777)
    path = shared_object("kernels", ["a"], Builds(object_file(1)))
    assert [mode_of(folder) for folder in path.parents[:2]] == [0o700] * 2


def test_folders_that_stay_open_are_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that a folder is refused if its mode cannot be changed, for example on a file system without modes."""
    (home / "outcrop").mkdir(parents=True)
    (home / "outcrop").chmod(0o770)
    monkeypatch.setattr(os, "fchmod", lambda *_: None)
    with pytest.raises(InputError, match=r"other users may write in the cache .*/outcrop.*set XDG_CACHE_HOME"):
        shared_object("kernels", ["a"], lambda beside: None)


def full(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


HOMES: dict[str, Callable[[Path, pytest.MonkeyPatch], object]] = {
    "a file": lambda home, patch: home.write_text(""),
    "a file above": lambda home, patch: patch.setenv("XDG_CACHE_HOME", f"{Path(sys.executable)}/a/b"),
    "a device": lambda home, patch: patch.setenv("XDG_CACHE_HOME", "/dev/null"),
    "a link to nothing": lambda home, patch: home.symlink_to("nothing"),
    "a link to itself": lambda home, patch: home.symlink_to(home.name),
    "of the system": lambda home, patch: patch.setenv("XDG_CACHE_HOME", "/proc"),
    "a long name": lambda home, patch: patch.setenv("XDG_CACHE_HOME", "/" + "a" * 5000),
    "many folders": lambda home, patch: patch.setenv("XDG_CACHE_HOME", "/dev/null" + "/a" * 2000),
    "linked within": lambda home, patch: (home.mkdir(), (home / "outcrop").symlink_to(home.parent)),
    "a file within": lambda home, patch: (home.mkdir(), (home / "outcrop").write_text("")),
    "a FIFO within": lambda home, patch: (home.mkdir(), os.mkfifo(home / "outcrop")),
    "a full disk": lambda home, patch: patch.setattr(os, "fsync", full),
    "a rename that fails": lambda home, patch: patch.setattr(os, "rename", full),
    "no home": lambda home, patch: (patch.delenv("XDG_CACHE_HOME"), patch.setenv("HOME", "somewhere")),
}


@pytest.mark.parametrize("spoil", HOMES.values(), ids=HOMES.keys())
def test_a_cache_that_cannot_be_used_is_one_line(
    spoil: Callable[[Path, pytest.MonkeyPatch], object],
    home: Path,
    object_file: Callable[[int], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Checks that a cache that cannot be used gives a one-line error that says what to do, and that no file remains.
    Figures that cannot be stored cause no error.
    """
    file = object_file(1)
    spoil(home, monkeypatch)
    with pytest.raises(InputError, match="set XDG_CACHE_HOME") as error:
        shared_object("kernels", ["a"], Builds(file))
    assert "\n" not in str(error.value)
    keep_figures("figures.json", {"a": Figures("measured")})
    assert load_figures("figures.json", Figures) == {}
    assert not [path for path in home.parent.rglob("*") if not path.is_dir() and path.suffix in (".so", ".json")]


@pytest.mark.parametrize("named", ["", "relative", "./cache", None])
def test_a_variable_that_names_no_place_counts_as_unset(
    named: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks that an invalid $XDG_CACHE_HOME is ignored, as the XDG specification requires."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if named is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", named)
    assert user_cache.cache_home() == tmp_path / ".cache"


def test_code_that_the_system_does_not_load_is_one_line(home: Path, tmp_path: Path) -> None:
    """Checks that a file that cannot be loaded gives a one-line error, and that the next run compiles again."""
    (tmp_path / "text").write_text("no code")
    build = Builds(tmp_path / "text")
    for count in (1, 2):
        path = shared_object("kernels", ["a"], build)
        with pytest.raises(InputError, match=r"cannot be loaded.*XDG_CACHE_HOME"):
            load_library(path)
        assert build.count == count


def test_many_processes_keep_one_file(home: Path, object_file: Callable[[int], Path]) -> None:
    """Checks that several processes can store the same file at the same time. Each process loads complete code, and one
    file remains.
    """
    script = (
        "import shutil, sys\nfrom pathlib import Path\n"
        "from outcrop.shared_object import load_library, shared_object\n"
        "print(load_library(shared_object('kernels', ['a'], lambda to: shutil.copy(sys.argv[1], to))).answer())"
    )
    command = [sys.executable, "-c", script, str(object_file(1))]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert [process.communicate()[0] for process in running] == ["1\n"] * 4
    assert len(os.listdir(home / "outcrop" / "kernels")) == 1


def test_a_file_that_another_process_has_just_kept_stays(home: Path, object_file: Callable[[int], Path]) -> None:
    """Checks a process that compiles the same code more slowly. It must not replace the file of the other process,
    because processes have already mapped this file."""
    kept: list[os.stat_result] = []

    def slow(to: Path) -> None:
        path = shared_object("kernels", ["a"], lambda other: shutil.copy(object_file(1), other))  # another process
        kept.append(path.stat())
        shutil.copy(object_file(1), to)

    path = shared_object("kernels", ["a"], slow)
    assert path.stat().st_ino == kept[0].st_ino
    assert load_library(path).answer() == 1


def test_a_file_that_is_replaced_while_it_is_read_is_not_damaged(
    home: Path, object_file: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks a file that another process replaces between `open` and `fstat`. The opened file then has no name."""
    path = shared_object("kernels", ["a"], lambda to: shutil.copy(object_file(1), to))
    beside, original = path.with_name("beside"), os.fstat
    shutil.copyfile(path, beside)

    def fstat(handle: int) -> os.stat_result:
        if beside.exists():
            os.rename(beside, path)
        return original(handle)

    with user_cache.open_folder("kernels", make=False) as folder:
        monkeypatch.setattr(os, "fstat", fstat)
        assert folder.read(path.name, 1 << 26) == object_file(1).read_bytes()
    assert not beside.exists()


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no GCC")
@pytest.mark.parametrize("name", ["acoustic4", "gray_scott"])
def test_kernels_for_gcc_before_12_are_the_same(
    name: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks kernels without `__builtin_shufflevector`, which GCC has since version 12. The compiler says that it is
    GCC 11."""
    found = []
    for version in ("", "-U__GNUC__ -D__GNUC__=11"):
        monkeypatch.setenv("CC", f"gcc {version}")
        find_compiler.cache_clear()
        try:
            sim = oc.Simulation(name, (9, 12, 40), directory=tmp_path / f"run{version}", memory="4MiB", threads=1)
            sim.assign({"u": "random:1", "v": "random:2" if name == "gray_scott" else 1500.0})
            sim.run(3, progress="none")
            found.append(sim["u"][:].tobytes())
        finally:
            find_compiler.cache_clear()
    assert found[0] == found[1]
    assert len(os.listdir(home / "outcrop" / "kernels")) == 2


COMPILERS = {
    "unbalanced quotes": ("cc 'a", "is not a command"),
    "writes nothing": ("true", "wrote no file"),
    "no compiler": ("false", "failed on a generated kernel"),
    "waits for input": ("cat", "failed on a generated kernel"),
    "another program": (sys.executable, "failed on a generated kernel"),
}


@pytest.mark.parametrize(("command", "message"), COMPILERS.values(), ids=COMPILERS.keys())
def test_a_wrong_compiler_is_one_line(command: str, message: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that a wrong $CC gives a one-line error."""
    monkeypatch.setenv("CC", command)
    find_compiler.cache_clear()
    try:
        with pytest.raises(InputError, match=message) as error:
            compile_kernel(find_stencil("heat7"), "float32", "plain")
        assert "\n" not in str(error.value)
    finally:
        find_compiler.cache_clear()


def test_a_wrapper_that_changes_is_another_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks a script that calls a compiler. A changed script counts as a new compiler, even if its version text stays
    the same. A changed environment variable of compilers has the same effect.
    """
    wrapper, found = tmp_path / "wrapper", []
    for text in ("#!/bin/sh\necho version 1\n", "#!/bin/sh\n# -g\necho version 1\n"):
        wrapper.write_text(text)
        wrapper.chmod(0o755)
        from outcrop import shared_object as module

        module._program.cache_clear()
        found.append(compiler_identity((str(wrapper),)))
    monkeypatch.setenv("CPATH", "/elsewhere")
    found.append(compiler_identity((str(wrapper),)))
    assert len({tuple(one) for one in found}) == 3 and all("version 1\n" in one for one in found)


DEVICE = StorageRates(1e9, 2e9, 1.5e9, 0.0, "measured")


def test_figures_are_kept(home: Path) -> None:
    """Checks that the newest figures of each name are stored without rounding."""
    for number in range(4):
        keep_figures("devices.json", {f"disk {number % 3}": replace(DEVICE, seconds_flush=float(number))})
    found = load_figures("devices.json", StorageRates)
    assert {key: one.seconds_flush for key, one in found.items()} == {"disk 1": 1.0, "disk 2": 2.0, "disk 0": 3.0}
    keep_figures("tiers.json", {"dram": Figures("measured", 1e9)})
    assert load_figures("tiers.json", Figures) == {"dram": Figures("measured", 1e9)}


@pytest.mark.parametrize("has_locks", [True, False])
def test_threads_keep_the_figures_of_each_other(home: Path, monkeypatch: pytest.MonkeyPatch, has_locks: bool) -> None:
    """Checks that all figures are kept if several writers add figures at the same time. Each writer waits after it has
    read the file. Without locks, the figures of one writer may be lost, but no error is raised."""
    read, writers = user_cache.CacheFolder.read, 3

    def slow_read(self: user_cache.CacheFolder, name: str, max_bytes: int) -> bytes | None:
        found = read(self, name, max_bytes)
        time.sleep(0.1)
        return found

    def no_lock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(user_cache.CacheFolder, "read", slow_read)
    if not has_locks:
        monkeypatch.setattr(fcntl, "flock", no_lock)
    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(lambda one: keep_figures("devices.json", {f"disk {one}": DEVICE}), range(writers)))
    found = load_figures("devices.json", StorageRates)
    assert len(found) == writers if has_locks else found


def test_writers_do_not_wait_long_for_a_lock(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that figures are written although a stopped process holds the lock."""
    monkeypatch.setattr(user_cache, "MAX_LOCK_SECONDS", 0.02)
    with user_cache.open_folder(make=True) as folder, folder.locked():
        keep_figures("devices.json", {"disk": DEVICE})
    assert load_figures("devices.json", StorageRates) == {"disk": DEVICE}


def test_the_oldest_figures_give_way(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that the oldest figures are removed, so that the file stays small."""
    monkeypatch.setattr(user_cache, "MAX_ENTRIES", 3)
    for number in (0, 1, 2, 0, 3):
        keep_figures("devices.json", {f"disk {number}": DEVICE})
    assert list(load_figures("devices.json", StorageRates)) == ["disk 2", "disk 0", "disk 3"]


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_damaged_figures_are_measured_again(damage: Callable[[Path], object], home: Path) -> None:
    """Checks that damaged figures in the cache are ignored and measured again."""
    keep_figures("devices.json", {"disk": DEVICE})
    damage(home / "outcrop" / "devices.json")
    assert load_figures("devices.json", StorageRates) == {}
    keep_figures("devices.json", {"disk": DEVICE})
    assert load_figures("devices.json", StorageRates) == {"disk": DEVICE}


GOOD = asdict(DEVICE)
WRONG = {
    "not a table": 3,
    "a list": [GOOD],
    "a key missing": {key: value for key, value in GOOD.items() if key != "seconds_flush"},
    "a key too many": {**GOOD, "colour": 1},
    "text": {**GOOD, "read_bytes_per_second": "fast"},
    "true": {**GOOD, "read_bytes_per_second": True},
    "nothing": {**GOOD, "read_bytes_per_second": None},
    "zero": {**GOOD, "read_bytes_per_second": 0},
    "negative": {**GOOD, "seconds_flush": -1.0},
    "infinite": {**GOOD, "read_bytes_per_second": float("inf")},
    "no number": {**GOOD, "read_bytes_per_second": float("nan")},
    "beyond numbers": {**GOOD, "read_bytes_per_second": 10**400},
    "origin": {**GOOD, "origin": 3},
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_figures_that_cannot_be_are_left_out(wrong: object, home: Path) -> None:
    """Checks that invalid figures, such as figures of other versions, are ignored. Valid figures in the same file are
    kept.
    """
    with user_cache.open_folder(make=True) as folder:
        folder.write("devices.json", json.dumps({"wrong": wrong, "disk": GOOD}).encode())
    assert load_figures("devices.json", StorageRates) == {"disk": DEVICE}


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "[" * 100_000, '{"a":' * 100_000, "\x00", '"\\ud800"'])
def test_text_that_is_no_table_of_figures_is_nothing(text: str, home: Path) -> None:
    """Checks that a file with a correct seal but without a table of figures counts as empty."""
    with user_cache.open_folder(make=True) as folder:
        folder.write("devices.json", text.encode())
    assert load_figures("devices.json", StorageRates) == {}


def test_reading_figures_makes_nothing(home: Path) -> None:
    """Checks that reading figures creates no file and no folder."""
    assert load_figures("devices.json", StorageRates) == {} and not home.exists()


def test_kernels_are_loaded_from_what_was_checked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that Outcrop loads exactly the file that it has checked, even if the folder is renamed between the check
    and the load."""
    names: list[str] = []
    real = ctypes.CDLL
    monkeypatch.setattr(ctypes, "CDLL", lambda name: (names.append(name), real(name))[1])
    compile_kernel(find_stencil("heat7"), "float32", "plain")
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("no /proc")
    assert [Path(name).parts[:4] for name in names] == [("/", "proc", "self", "fd")]
