"""Check that `outcrop bench io` measures all cases, does not write to devices by default, and removes its files."""

import fcntl
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from images import create, make_image, put, take_images_for_devices
from outcrop.bench import io
from outcrop.bench.io import draw
from outcrop.bench.io_cases import INTERFACES, PAGE_BYTES, IoCase, IoRate, find_interface, measure_limited, unavailable
from outcrop.cli.main import call
from outcrop.errors import StorageError

MIB = 1 << 20


def bench(folder: Path, *words: str) -> tuple[int, Path]:
    """Run the benchmark, and return its exit code and the path of the file with the figures."""
    figures = folder / "figures.json"
    return call(["bench", "io", "--small", "-d", str(folder / "new" / "here"), "--json", str(figures), *words]), figures


def test_small_bench_measures_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that each available interface is measured at each size, depth and pattern. The benchmark prints tables and
    writes JSON and a picture.
    """
    code, file = bench(tmp_path, "--png", str(tmp_path / "picture.png"))
    assert code == 0
    figures = json.loads(file.read_text())
    works = {one.name for one in INTERFACES} - set(figures["unavailable"])
    patterns = {(write, random) for write in (False, True) for random in (False, True)}
    sizes = {(one["interface"], one["request_bytes"], one["write"], one["random"]) for one in figures["sizes"]}
    assert sizes == {
        (name, size, *pattern)
        for name in works
        for size in io.SMALL.sizes
        for pattern in patterns
        if size >= PAGE_BYTES or not find_interface(name).is_direct
    }
    depths = {(one["interface"], one["depth"], one["write"], one["random"]) for one in figures["depths"]}
    assert depths == {(name, depth, *pattern) for name in works if find_interface(name).is_direct
                      for depth in io.SMALL.depths for pattern in patterns}  # fmt: skip
    assert {one["interface"] for one in figures["cached"]} == {"buffered", "load/store"}
    assert {one["wanted_limit_bytes"] for one in figures["beyond"]} == {None, io.SMALL.limit_bytes}
    said = capsys.readouterr().out
    for part in ("sizes", "depths", "cached", "beyond"):
        assert f"\n{part}: " in said
        for one in figures[part]:
            assert one["bytes"] == one["requests"] * one["request_bytes"] > 0
            assert one["seconds"] > 0 and one["bytes_per_second"] > 0
    assert "raw" not in figures
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in tmp_path.iterdir()} == {"figures.json", "picture.png"}


def test_more_cores_than_large_requests_fit_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that large requests use fewer threads than small requests on a machine with many cores, because each
    thread needs a separate part of the file.
    """
    monkeypatch.setattr(io.discover, "available_cores", lambda: 300)
    code, file = bench(tmp_path, "--only", "sizes")
    assert code == 0
    depths = {one["request_bytes"]: one["depth"] for one in json.loads(file.read_text())["sizes"]
              if one["interface"] == "buffered"}  # fmt: skip
    assert depths == {256: 300, 4096: 300, 65536: 256}


def test_the_picture_says_where_memory_was_not_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that the picture says which measurements had no memory limit, and why. Each x axis must have a label."""
    case = {"write": False, "random": False, "request_bytes": MIB, "bytes_per_second": 1e9, "interface": "buffered"}
    figures: dict[str, object] = {
        "machine": {"storage": "disk", "processor": "any", "threads": 2},
        "beyond": [{**case, "wanted_limit_bytes": limit, "limit_bytes": None} for limit in (None, MIB)],
        "depths": [{**case, "random": True, "depth": depth} for depth in (1, 8)],
    }
    said: list[str] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *arguments, **options: said.extend(words_of(figure)))
    draw(figures, tmp_path / "io.png")
    assert {"memory for all", "not limited: no control group can be made here", "in flight"} <= set(said)


def words_of(figure: Figure) -> Iterator[str]:
    """Yield the words in the legends, and the words in the labels of the x axes."""
    for axes in figure.axes:
        yield axes.get_xlabel()
        legend = axes.get_legend()
        yield from (text.get_text() for text in legend.get_texts()) if legend else ()


def test_a_device_is_read_and_never_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that a device (here an image file) is only read. The benchmark measures the same reads on a file and on
    the device."""
    image, content = tmp_path / "disk.img", bytes(range(256)) * 4096
    image.write_bytes(content)
    take_images_for_devices(monkeypatch.setattr)
    code, file = bench(tmp_path, "--only", "raw", "--raw-device", str(image))
    assert code == 0
    rows = json.loads(file.read_text())["raw"]
    assert {one["of"] for one in rows} == {"file", "device"}
    assert not any(one["write"] for one in rows)
    assert {one["span_bytes"] for one in rows} == {len(content)}
    assert image.read_bytes() == content


def test_the_file_and_the_device_are_measured_alternately(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks the order of the measurements. Names of parts may have spaces around them."""
    image = make_image(tmp_path / "disk.img", 24 * MIB)
    take_images_for_devices(monkeypatch.setattr)
    measure, order = IoCase.measure, list[tuple[IoCase, str]]()

    def noted(case: IoCase, path: Path, seconds: float) -> IoRate:
        order.append((case, path.name))
        return measure(case, path, seconds)

    monkeypatch.setattr(IoCase, "measure", noted)
    assert bench(tmp_path, "--only", "raw, raw", "--raw-device", str(image))[0] == 0
    pairs = list(zip(order[1::2], order[2::2], strict=True))  # the first measurement fills the file
    assert len(pairs) > 2 and all(one[0] == other[0] for one, other in pairs)
    assert {(one[1], other[1]) for one, other in pairs} == {("file", "disk.img")}


def test_a_device_is_written_where_that_is_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that `--write-device` measures all four patterns on a file and on the device. At the end, both ends of the
    device hold zeros.
    """
    image = make_image(tmp_path / "disk.img", 24 * MIB)
    before = image.read_bytes()
    take_images_for_devices(monkeypatch.setattr)
    for _ in range(2):
        code, file = bench(tmp_path, "--only", "raw", "--raw-device", str(image), "--write-device")
        assert code == 0
    rows = json.loads(file.read_text())["raw"]
    patterns = {(write, random) for write in (False, True) for random in (False, True)}
    assert {(one["of"], one["write"], one["random"]) for one in rows} == {
        (of, *pattern) for of in ("file", "device") for pattern in patterns
    }
    after, span, ends = image.read_bytes(), io.SMALL.span_bytes, io.DEVICE_END_BYTES
    assert after[:ends] == bytes(ends) and after[-ends:] == bytes(ends)
    written = after[ends:span]
    assert not any(written[i : i + 64] == before[ends + i : ends + i + 64] for i in range(0, len(written), 64))
    assert after[span:-ends] == before[span:-ends]


def test_a_device_that_holds_something_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that a device is refused if it is in use or holds a file system or a run. The error has one line, and no
    file is made."""
    take_images_for_devices(monkeypatch.setattr)
    swap, run, taken, small = (make_image(tmp_path / f"{name}.img") for name in ("swap", "run", "taken", "small"))
    put(swap, 4096 - 10, b"SWAPSPACE2")
    create(run)
    os.truncate(small, MIB // 2)
    before = [image.read_bytes() for image in (swap, run, taken, small)]
    with taken.open("rb") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        for image, words in ((swap, "swap"), (run, "holds a run"), (taken, "in use"), (small, "512 KiB; 1 MiB")):
            assert bench(tmp_path, "--raw-device", str(image), "--write-device")[0] == 2
            output = capsys.readouterr()
            assert words in output.err and output.err.count("\n") == 1 and output.out == ""
    assert [image.read_bytes() for image in (swap, run, taken, small)] == before
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--only", "sizes,shapes"], "'shapes' is unknown; there are sizes, depths"),
        (["--only", "raw"], "--raw-device"),
        (["--only", "sizes", "--raw-device", "DEVICE"], "--raw-device needs the part raw"),
        (["--write-device"], "--write-device needs --raw-device DEVICE"),
        (["--raw-device", "DEVICE"], "is not a block device"),
        (["-t", "3"], "does not take -t"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that wrong options are refused with an error of one line, and that no file is made."""
    assert bench(tmp_path, *(word.replace("DEVICE", str(tmp_path)) for word in words))[0] == 2
    output = capsys.readouterr()
    assert message in output.err and output.err.count("\n") == 1 and output.out == ""
    assert not (tmp_path / "new").exists()


def test_too_little_room_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that a disk with too little space is refused. The error shows the free and the needed bytes."""
    monkeypatch.setattr(io.discover, "free_disk_bytes", lambda folder: MIB)
    assert bench(tmp_path)[0] == 2
    assert "1 MiB free; 17.6 MiB are needed" in capsys.readouterr().err


@pytest.mark.parametrize("name", [one.name for one in INTERFACES])
def test_every_interface_writes_what_it_says(name: str, tmp_path: Path) -> None:
    """Checks that each interface writes the whole span and no byte after the span."""
    if name in unavailable():
        pytest.skip(unavailable()[name])
    path = tmp_path / "file"
    path.write_bytes(bytes(2 * MIB))
    rate = IoCase(name, True, False, 65536, 2, MIB).measure(path, sys.float_info.max)
    assert (rate.bytes, rate.requests) == (MIB, 16)
    content = path.read_bytes()
    assert all(any(content[i : i + 64]) for i in range(0, MIB, 64))
    assert content[MIB:] == bytes(MIB)


def test_a_file_that_is_gone_is_one_line(tmp_path: Path) -> None:
    """Checks that a missing file gives a one-line error, even if the measurement runs in a separate process."""
    case = IoCase("threads", False, False, 4096, 1, MIB)
    with pytest.raises(StorageError, match="No such file"):
        measure_limited([case], tmp_path / "none", 1.0, None)
