"""Check that wrong paths and invalid .npy files of other users give an error of one line."""

from __future__ import annotations

import errno
import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import outcrop as oc
from committed_arrays import SHAPE, made, refusal, ways
from folders import tree
from outcrop import durable
from outcrop.arrays import committed
from outcrop.errors import InputError
from outcrop.run.disk.verify import find_damage
from outcrop.run.places import open_state
from several_arrays import make_run

pytestmark = pytest.mark.timeout(300)  # this limit stops a test that waits for a pipe


@pytest.mark.parametrize("error", [0, errno.EPERM])
def test_a_file_that_another_process_makes_meanwhile_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """Checks that Outcrop does not overwrite a file that another process makes at the same time. The test covers file
    systems with and without hard links."""
    path = tmp_path / "x.npy"

    class Raced(durable.System):
        @staticmethod
        def hardlink(source: str, target: str, **folders: int) -> None:
            if races:
                path.write_text("of the other")
            if error:
                raise OSError(error, os.strerror(error))
            os.link(source, target, **folders)

    monkeypatch.setattr(durable, "SYSTEM", Raced())
    races = True
    assert "was just made by another process" in refusal(lambda: oc.array(3, path=path), InputError)
    assert path.read_text() == "of the other" and os.listdir(tmp_path) == ["x.npy"]
    path.unlink()
    races = False
    oc.array(3, path=path).close()
    assert np.load(path).shape == (3,) and os.listdir(tmp_path) == ["x.npy"]


def npy(header: bytes, values: int = 64, version: int = 1, length: int | None = None) -> bytes:
    """Return the bytes of a .npy file with the given header."""
    count = (len(header) if length is None else length).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + count + header + bytes(values)


def described(shape: object, descr: object = "<f4", order: object = False) -> bytes:
    return repr({"descr": descr, "fortran_order": order, "shape": shape}).encode() + b"\n"


SHAPES = ((-1,), (0,), (2**63,), (2**32, 2**32), (10**30,), (10**4000,), (1,) * 33, (1,) * 3000, (1.5,), (True,), (17,))
NO_SHAPES = ("3", None, [3], 3, {}, ("a",), ((1,),))
DTYPES = ("|O", "O", "<U3", "<M8[s]", "<f3", "V8", "<f4" * 99, [("a", "<f4")], ("<f4", (2,)), ("|O", ()), [], {"a": 1})
NO_DTYPES = (None, 5, (), b"<f4")


@pytest.mark.parametrize(
    "content",
    [
        *(npy(described(shape)) for shape in (*SHAPES, *NO_SHAPES)),
        *(npy(described((2,), descr)) for descr in (*DTYPES, *NO_DTYPES)),
        *(npy(described((2, 2), order=order)) for order in (None, 2, "no", True)),
        npy(described((2,)), version=2, length=2**32 - 1),
        npy(described((2,)), version=3),
        npy(described((2,)), length=65535),
        npy(b"(" * 60_000),
        npy(b"-" * 9_000 + b"1"),
        npy(b"9" * 9_000),
        npy(b"{}"),
        npy(b"'\\d'"),
        b"",
        b"\x93NUMPY",
        b"PK\x03\x04",
    ],
)
def test_headers_of_strangers_are_one_line(tmp_path: Path, content: bytes) -> None:
    """Checks that invalid headers are refused. Outcrop checks lengths, types and shapes before it uses them."""
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    for call in (lambda: oc.open_array(path, access="update"), lambda: oc.array((2, 2), "float32", path=path)):
        assert len(refusal(call, InputError)) < len(str(path)) + 200
    assert path.read_bytes() == content


def test_a_path_may_be_a_link_but_leads_somewhere(tmp_path: Path) -> None:
    """Checks that the path of an array may be a symbolic link. A link to a missing file or to itself is refused, and no
    file is made.
    """
    made(tmp_path / "a")
    (tmp_path / "to a").symlink_to("a")
    for way in ways(tmp_path / "to a"):
        way().abandon()
    oc.array(SHAPE, "float32", path=tmp_path / "x.npy").close()
    (tmp_path / "to x").symlink_to(tmp_path / "x.npy")
    with oc.open_array(tmp_path / "to x", access="update") as array:
        array[...] = 3
        array.flush()
    assert (np.load(tmp_path / "x.npy") == 3).all()
    (tmp_path / "away").symlink_to(tmp_path / "none")
    (tmp_path / "circle").symlink_to("circle")
    os.mkfifo(tmp_path / "pipe")
    before = tree(tmp_path)
    refused = ["away", "circle", "pipe", "away/a", "circle/a", "pipe/a", "x.npy/a", "a/inner", "a/commit.0.json"]
    refused += ["n" * 256, "n" * 300, "none/" + "n" * 300, "/".join(["n" * 200] * 30), "none/.."]
    refused += ["/dev/zero", "/proc/self/mem", "\ud800", "\ud800/a"]
    for path in (*(tmp_path / name for name in refused), "a\0b", "\0"):
        refusal(partial(oc.array, SHAPE, "float32", path=path), InputError)
        refusal(partial(oc.array, SHAPE, "float32", persist="step", path=path), InputError)
        refusal(partial(oc.open_array, path), InputError)
    assert tree(tmp_path) == before


def test_names_that_are_no_text_and_a_working_directory_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks that a name that is not UTF-8 is refused, because messages and records cannot contain it. Relative paths
    are refused if the working directory was removed."""
    strange = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe"))
    strange.mkdir()
    for name in ("a", "x.npy"):
        refusal(partial(oc.array, 3, path=strange / name), InputError)
    assert not list(strange.iterdir())
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    refusal(lambda: oc.array(3, path="x.npy"), InputError)
    refusal(lambda: oc.open_array("x"), InputError)


def test_an_array_inside_a_run_lies_beside_what_the_run_has(tmp_path: Path) -> None:
    """Checks an array that is made in the directory of a run. It gets its own folder and does not become a part of the
    run.

    Names that the run uses are refused.
    """
    run = tmp_path / "run.oc"
    make_run(run)
    before = tree(run)
    for name in ("", "u", ".u.0", "manifest.json", "m"):
        for persist in ("never", "step"):
            refusal(partial(oc.array, SHAPE, "float32", persist=persist, path=run / name), InputError)
    assert tree(run) == before
    made(run / "mine")
    oc.array(SHAPE, "float32", path=run / "mine.npy").close()
    assert find_damage(open_state(run)).damage == []


def test_an_array_is_not_made_whose_record_could_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that an array with too many tiles is refused. The record of a commit has an entry for each tile, and the
    length of a record is limited.
    """
    monkeypatch.setattr(committed, "MAX_RECORD_BYTES", 1 << 14)
    refused = refusal(partial(oc.array, SHAPE, "float32", persist="step", path=tmp_path / "a"), InputError)
    assert "a committed array has at most" in refused and not list(tmp_path.iterdir())
