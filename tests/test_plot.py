"""Check the pictures and movies of `outcrop plot`: colours, limits, slices, snapshots and large planes."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

import outcrop as oc
from outcrop.cli import picture
from outcrop.cli.main import call
from outcrop.run.disk import planes, values

SHAPE = (12, 10, 16)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Make a run with coordinates, whole snapshots, and coarse snapshots of a box."""
    where = tmp_path_factory.mktemp("plot") / "run.oc"
    sim = oc.Simulation(
        "acoustic4", SHAPE, directory=where, memory="1MiB", threads=1, spacing=(5.0, 10.0, 10.0), origin=100.0,
        units="m", params={"h": 10.0},
        snapshots=[oc.Snapshots(2, time_units="s"),
                   oc.Snapshots(3, box=(slice(2, 10), slice(None), slice(4, 16)), coarsen=4, name="coarse")],
    )  # fmt: skip
    layers = np.broadcast_to(np.linspace(1500, 2400, 10)[:, None], SHAPE)
    sim.assign({"u": np.random.default_rng(1).standard_normal(SHAPE), "v": layers})
    sim.run(6)
    yield where


def plot(run: Path, tmp_path: Path, *words: str) -> int:
    return call(["plot", str(run), "-o", str(tmp_path / "a.png"), *words])


def images(figure: Figure) -> list[Any]:
    return [image for axes in figure.axes for image in axes.get_images()]


@pytest.mark.parametrize(
    ("shape", "slices", "is_wide"),
    [
        ((30, 30, 30), ["z=3"], True),
        ((150, 20, 25), ["y=3"], False),
        ((150, 20, 25), ["y=3,5,7,9"], True),
        ((150, 20, 25), ["y=3,5", "z=10,20,100"], True),
        ((10, 12, 200), ["z=3"], True),
        ((10, 12, 200), ["z=1,3,5"], False),
        ((200, 4), [], False),
        ((5, 400), [], True),
        ((100,), [], True),
    ],
)
def test_slices_of_any_shape_fill_the_picture(
    shape: tuple[int, ...], slices: list[str], is_wide: bool, tmp_path: Path, drawn: list[Figure]
) -> None:
    """Checks that panels fill a large part of the figure, and that no empty panel is drawn. All texts must be inside
    the figure and must not overlap."""
    ndim, cells = len(shape), {3: "heat2", 2: "heat2_2d", 1: "heat2_1d"}
    sim = oc.Simulation(
        cells[ndim], shape, directory=tmp_path / "run.oc", memory="4MiB", spacing=12.5, units="m", params={"h": 12.5}
    )
    sim["u"] = np.random.default_rng(3).random(shape)
    sim.run(1)
    assert plot(tmp_path / "run.oc", tmp_path, *(word for one in slices for word in ("--slice", one))) == 0
    (figure,) = drawn
    width, height = figure.get_size_inches()
    assert (width > height) == is_wide and max(width, height) <= 15
    bars = [axes for axes in figure.axes if axes.get_label() == "<colorbar>"]
    shown = [axes for axes in figure.axes if axes not in bars and axes.axison]
    assert len(shown) == max(1, sum(one.count(",") + 1 for one in slices))
    assert all(axes.get_images() or axes.get_lines() for axes in shown)
    filled = sum(axes.get_position().width * axes.get_position().height for axes in shown)
    assert filled > (0.15 if len(shown) > 1 else 0.3), "the panels fill the figure"
    figure.draw_without_rendering()
    texts = [one for one in figure.findobj(Text) if one.get_text().startswith("heat")]
    assert texts
    texts += [one.title for one in shown]
    for axes in [*shown, *bars]:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            ticks = [one for one in axis.get_major_ticks() if low <= one.get_loc() <= high]
            labels = [one for tick in ticks for one in (tick.label1, tick.label2) if one.get_visible()]
            boxes = [one.get_window_extent() for one in labels]
            assert not any(one.overlaps(other) for one, other in pairwise(boxes)), "numbers do not overlap"
            texts += [axis.label, *labels]
    for one in texts:
        box = one.get_window_extent()
        assert not one.get_text() or (box.x0 >= 0 and box.x1 <= figure.bbox.x1), f"{one.get_text()} is cut off"


@pytest.mark.parametrize(
    ("shape", "cut"), [((40, 3, 30), "y = 1"), ((30, 40, 12), "x = 6"), ((30, 40, 16), "z = 15"), ((9, 9, 9), "z = 4")]
)
def test_a_thin_box_is_seen_from_its_large_side(
    shape: tuple[int, ...], cut: str, tmp_path: Path, drawn: list[Figure]
) -> None:
    np.save(tmp_path / "a.npy", np.random.default_rng(3).random(shape))
    assert plot(tmp_path / "a.npy", tmp_path) == 0
    assert drawn[0].axes[0].get_title() == f"a.npy, {cut}"


@pytest.mark.parametrize("shape", [(64, 30), (60, 12), (4, 4)])
def test_long_numbers_cut_off_no_label(shape: tuple[int, int], tmp_path: Path, drawn: list[Figure]) -> None:
    """Checks a narrow picture with long numbers beside the panel and beside the colour bar."""
    sim = oc.Simulation(
        "heat2_2d", shape, directory=tmp_path / "run.oc", memory="4MiB", spacing=1000.0, origin=-5e5, units="m",
        params={"h": 1000.0},
    )  # fmt: skip
    sim["u"] = -12345 * np.random.default_rng(3).random(shape)
    sim.run(1)
    assert plot(tmp_path / "run.oc", tmp_path) == 0
    drawn[0].draw_without_rendering()
    box = drawn[0].get_tightbbox()
    assert box.x0 >= 0 and box.x1 <= drawn[0].get_figwidth()


@pytest.mark.parametrize(
    ("ending", "first"), [(".png", b"\x89PNG"), ("", b"\x89PNG"), (".PDF", b"%PDF"), (".svg", b"<?xml")]
)
def test_the_ending_decides_the_format_of_a_picture(run: Path, tmp_path: Path, ending: str, first: bytes) -> None:
    assert call(["plot", str(run), "-o", str(tmp_path / f"a{ending}")]) == 0
    assert (tmp_path / f"a{ending}").read_bytes().startswith(first)


def test_colours_follow_the_signs_of_the_values(run: Path, tmp_path: Path, drawn: list[Figure]) -> None:
    """Checks that zero has the middle colour of a diverging map if the values have both signs. Values of one sign get a
    sequential map from the smallest to the largest value. The user's limits and map replace these choices."""
    values = oc.open(run)["u"][6]
    for words in ([], ["--field", "v"], ["--limits", "-0.5,1.5"], ["--limits", "0,1", "--colors", "gray"]):
        assert plot(run, tmp_path, *words) == 0
    both, one, limits, gray = (images(figure)[0] for figure in drawn)
    most = float(np.abs(values).max())
    assert (both.get_cmap().name, both.norm.vmin, both.norm.vmax) == (picture.DIVERGING, -most, most)
    assert float(both.norm(0.0)) == 0.5
    assert (one.get_cmap().name, one.norm.vmin, one.norm.vmax) == (picture.SEQUENTIAL, 1500.0, 2400.0)
    assert (limits.get_cmap().name, limits.norm.vmin, limits.norm.vmax) == (picture.DIVERGING, -0.5, 1.5)
    assert float(limits.norm(0.0)) == 0.5
    assert (gray.get_cmap().name, gray.norm.vmin, gray.norm.vmax) == ("gray", 0.0, 1.0)
    np.testing.assert_array_equal(both.get_array(), values)


def test_several_slices_share_their_colours(run: Path, tmp_path: Path, drawn: list[Figure], capsys: Any) -> None:
    """Checks that a picture with several slices has the right values, titles with coordinates, units, and the same
    range of colours for all slices."""
    assert plot(run, tmp_path, "--slice", "z=1,11", "--slice", "y=3") == 0
    u = oc.open(run)["u"][...]
    (figure,) = drawn
    found = images(figure)
    for image, cells in zip(found, (u[1], u[11], u[:, 3]), strict=True):
        np.testing.assert_array_equal(image.get_array(), cells)
    assert len({(image.norm.vmin, image.norm.vmax) for image in found}) == 1
    assert found[0].norm.vmax == max(np.abs(u[[1, 11]]).max(), np.abs(u[:, 3]).max())
    shown = [axes for axes in figure.axes if axes.get_images()]
    assert [axes.get_title() for axes in shown] == ["z = 1 (105 m)", "z = 11 (155 m)", "y = 3 (130 m)"]
    assert (shown[2].get_xlabel(), shown[2].get_ylabel()) == ("x (m)", "z (m)")
    assert found[2].get_extent() == [95.0, 255.0, 97.5, 157.5]
    assert "acoustic4, step 6, z = 1 (105 m), z = 11 (155 m), y = 3 (130 m), values -" in capsys.readouterr().out


def test_snapshots_are_drawn_with_their_own_coordinates(run: Path, tmp_path: Path, drawn: list[Figure]) -> None:
    """Checks pictures of three snapshots: the last snapshot, a snapshot at a given step, and a coarse snapshot. The
    values of a coarse snapshot are at the centres of the groups of cells."""
    assert plot(run, tmp_path, "--snapshots", "u", "--slice", "z=4") == 0
    assert plot(run, tmp_path, "--snapshots", "u", "--step", "2", "--slice", "x=15") == 0
    assert plot(run, tmp_path, "--snapshots", "coarse", "--slice", "z=1") == 0
    kept, coarse = (oc.open(run).snapshots[name][...] for name in ("u", "coarse/u"))
    for figure, cells in zip(drawn, (kept[-1, 4], kept[1, :, :, 15], coarse[-1, 1]), strict=True):
        np.testing.assert_array_equal(images(figure)[0].get_array(), cells)
    assert drawn[1].axes[0].get_title().startswith("acoustic4, step 2, 0.002 s, x = 15")
    # the box begins at cell 4 of x, which is at 140 m, so the first group is from 135 m to 175 m
    assert images(drawn[2])[0].get_extent() == [135.0, 255.0, 95.0, 215.0]
    # the second group contains the cells 6 to 9 of z
    assert drawn[2].axes[0].get_title().replace("\n", " ").endswith("z = 7.5 (137.5 m)")


@pytest.mark.parametrize(
    ("words", "title", "message"),
    [
        (["mid"], "z = 9", "z goes from 0 to 0, because --slice counts the cells of the box: index 0 is at z = 9"),
        (["coarse", "--slice", "z=1"], "z = 5.5",
         "z goes from 0 to 2, because --slice counts the values of the snapshots: index 0 is at z = 1.5, and index 2 "
         "is at z = 9.5"),
    ],
)  # fmt: skip
def test_titles_of_boxes_show_the_cells_of_the_grid(
    words: list[str], title: str, message: str, tmp_path: Path, drawn: list[Figure], capsys: Any
) -> None:
    """Checks the title of a slice through a box and through coarse snapshots of a run without coordinates. A cell
    outside the indices of the snapshots is refused, and the message says where the indices are."""
    sim = oc.Simulation(
        "heat2", SHAPE, directory=tmp_path / "run.oc", memory="4MiB",
        snapshots=[oc.Snapshots(1, box=(slice(9, 10), slice(None), slice(None)), name="mid"),
                   oc.Snapshots(1, coarsen=4, name="coarse")],
    )  # fmt: skip
    sim["u"] = "gaussian"
    sim.run(2)
    assert plot(tmp_path / "run.oc", tmp_path, "--snapshots", *words) == 0
    assert drawn[0].axes[0].get_title().replace("\n", " ") == f"heat2, step 2, {title}"
    assert plot(tmp_path / "run.oc", tmp_path, "--snapshots", words[0], "--slice", "z=64") == 2
    assert message in capsys.readouterr().err


def test_coordinates_without_units_are_in_the_title(tmp_path: Path, drawn: list[Figure]) -> None:
    sim = oc.Simulation("heat2", SHAPE, directory=tmp_path / "run.oc", memory="4MiB", spacing=4, params={"h": 4})
    sim["u"] = "gaussian"
    assert plot(tmp_path / "run.oc", tmp_path, "--slice", "z=3") == 0
    assert drawn[0].axes[0].get_title() == "heat2, step 0, z = 3 (12)"


def test_cells_that_are_not_finite_have_their_own_colour(tmp_path: Path, drawn: list[Figure], capsys: Any) -> None:
    """Checks that NaN and infinity do not change the range of colours, and that the command prints the number of such
    cells."""
    cells = np.arange(20.0).reshape(4, 5)
    cells[1, 2], cells[3, 4] = np.nan, np.inf
    np.save(tmp_path / "a.npy", cells)
    assert plot(tmp_path / "a.npy", tmp_path) == 0
    image = images(drawn[0])[0]
    assert image.get_array().mask.sum() == 2 and (image.norm.vmin, image.norm.vmax) == (0.0, 18.0)
    assert "2 of the drawn cells are NaN or infinite" in capsys.readouterr().out
    np.save(tmp_path / "a.npy", np.full((4, 5), np.nan))
    assert plot(tmp_path / "a.npy", tmp_path) == 0
    assert capsys.readouterr().out.endswith("no value is finite\n")


def test_a_gif_has_a_frame_for_each_snapshot(run: Path, tmp_path: Path, capsys: Any) -> None:
    """Checks the number and the duration of frames, and that successive frames differ. In all frames, the same colour
    means the same value."""
    assert call(["plot", str(run), "--snapshots", "u", "--gif", str(tmp_path / "new" / "a.gif"), "--fps", "5"]) == 0
    assert "a.gif: 4 frames, values -" in capsys.readouterr().out
    with Image.open(tmp_path / "new" / "a.gif") as movie:
        assert (movie.n_frames, movie.info["duration"], movie.info["loop"]) == (4, 200, 0)  # type: ignore[attr-defined]
        frames = []
        for number in range(4):
            movie.seek(number)
            frames.append(np.asarray(movie.convert("RGB")).astype(int))
    assert all((one != other).any() for one, other in pairwise(frames))
    # the colour bar at the right is the same in all frames, and has red and blue
    width = frames[0].shape[1]
    bars = [frame[:, int(0.89 * width) :] for frame in frames]
    assert all((one == bars[0]).all() for one in bars)
    assert (bars[0][..., 0] - bars[0][..., 2]).max() > 100 and (bars[0][..., 2] - bars[0][..., 0]).max() > 100
    assert os.listdir(tmp_path / "new") == ["a.gif"]


@pytest.mark.skipif(not find_spec("imageio_ffmpeg"), reason="needs imageio-ffmpeg")
def test_an_mp4_has_a_frame_for_each_snapshot(run: Path, tmp_path: Path) -> None:
    import imageio_ffmpeg

    assert call(["plot", str(run), "--snapshots", "u", "--mp4", str(tmp_path / "a.mp4")]) == 0
    assert imageio_ffmpeg.count_frames_and_secs(str(tmp_path / "a.mp4"))[0] == 4


def test_a_missing_or_failing_ffmpeg_gives_one_line(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Checks that no file is left or changed if ffmpeg is missing or fails."""
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    movie, words = tmp_path / "a.mp4", ["plot", str(run), "--snapshots", "u", "--mp4", str(tmp_path / "a.mp4")]
    movie.write_bytes(b"old")
    assert call(words) == 2
    assert capsys.readouterr().err == (
        'outcrop: --mp4 needs the program ffmpeg; install it, or run: pip install "outcrop[movie]"\n'
    )
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ffmpeg").write_text("#!/bin/sh\necho no encoder for this >&2\nexit 1\n")
    (tmp_path / "bin" / "ffmpeg").chmod(0o755)
    assert call(words) == 2
    assert capsys.readouterr().err == "outcrop: --mp4: ffmpeg has failed: no encoder for this\n"
    assert movie.read_bytes() == b"old" and sorted(os.listdir(tmp_path)) == ["a.mp4", "bin"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give the picture to write with -o FILE, or a movie"),
        (["-o", "a.xyz"], "-o a.xyz: the ending .xyz is unknown; there are: .png, .svg, .pdf"),
        (["--snapshots", "u", "--gif", "a.mp4"], "--gif a.mp4: the ending .mp4 is unknown; there are: .gif"),
        (["--gif", "a.gif"], "a movie needs snapshots of a run: give --snapshots NAME"),
        (
            ["-o", "a.png", "--snapshots", "w"],
            "--snapshots 'w': there are no snapshots with this name; there are: u, co",
        ),
        (["-o", "a.png", "--snapshots", "u", "--field", "u"], "--field u and --snapshots u: give one of them"),
        (["-o", "a.png", "--snapshots", "u", "--step", "3"], "--step 3: there is no snapshot .* there are: 0, 2, 4, 6"),
        (["-o", "a.png", "--step", "3"], "--step 3: a run has only its last state; give --snapshots"),
        (["-o", "a.png", "--limits", "1,0"], "--limits '1,0': give two numbers LOW,HIGH"),
        (["-o", "a.png", "--colors", "pinkish"], "--colors 'pinkish' is unknown to matplotlib"),
        (["-o", "a.png", "--slice", "z=0,12"], "--slice z=0,12: z goes from 0 to 11"),
        (["-o", "a.png", "--slice", "x=" + ",".join("1" * 17)], "17 slices are too many for one picture"),
        (["--gif", "a.gif", "--snapshots", "u", "--fps", "0"], "--fps 0: give more than 0"),
    ],
)
def test_wrong_options_are_refused(
    words: list[str], message: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(["plot", str(run), *words]) == 2
    said = capsys.readouterr().err
    assert said.startswith("outcrop: ") and said.count("\n") == 1
    assert re.search(message, said) and not list(tmp_path.iterdir())


def test_large_planes_are_read_in_strips(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks two kinds of reads from planes that are larger than the buffer. Reads of selected planes check the
    checksums. Reads of a few cells read only the rows of these cells."""
    sim = oc.open(run)
    u = sim["u"][...]
    for buffer in (1, 4 << 10):
        for module in (planes, values):
            monkeypatch.setattr(module, "BUFFER_BYTES", buffer)
        for index in (
            np.s_[3],
            np.s_[::5, 2:9:3, ::-4],
            np.s_[-1, ::-2, 5],
            np.s_[4, 5, 6],
            np.s_[..., 7],
            np.s_[2:4, 5:5],
        ):
            np.testing.assert_array_equal(sim["u"][index], u[index])
            np.testing.assert_array_equal(sim["u"].sample(index), u[index])


@pytest.mark.parametrize("is_sparse", [True, False])
def test_pictures_of_sparse_cells_read_only_their_rows(
    is_sparse: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks that a slice across large planes does not read whole planes. Damage in other rows does not stop such a
    slice, but it stops a slice that reads whole planes."""
    sim = oc.Simulation("heat7", (4, 300, 40), directory=tmp_path / "run.oc", memory="4MiB", threads=1)
    sim["u"] = cells = np.random.default_rng(1).random((4, 300, 40)).astype("float32")
    state = sim.reader()
    assert state is not None
    with (tmp_path / "run.oc" / f".u.{state.manifest.current}" / "c" / "0" / "0" / "0").open("r+b") as file:
        file.seek(state.layout.locate(1)[1] + 200 * state.layout.pitch_bytes)  # row 200 of plane 1
        file.write(b"\xff\xff\xff\xff")
    monkeypatch.setattr(planes, "RECORD_BYTES", 512)
    index = np.s_[:, 7, ::3] if is_sparse else np.s_[:, ::2, ::3]
    if is_sparse:
        np.testing.assert_array_equal(sim["u"].sample(index), cells[index])
    else:
        with pytest.raises(oc.errors.CorruptionError):
            sim["u"].sample(index)


def test_an_array_in_a_file_can_be_named(
    tmp_path: Path, drawn: list[Figure], capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that `plot` accepts the names of arrays that its messages suggest, and the names that `--init` accepts."""
    u, v = np.zeros((4, 6, 8), np.float32), np.arange(192.0, dtype=np.float32).reshape(4, 6, 8)
    np.savez(tmp_path / "all.npz", u=u, v=v)
    assert plot(tmp_path / "all.npz", tmp_path) == 2
    offered = f"{tmp_path / 'all.npz'}:v"
    assert "name one as" in capsys.readouterr().err and call(["plot", offered, "-o", str(tmp_path / "v.png")]) == 0
    v.tofile(tmp_path / "v.bin")
    raw = f"raw:{tmp_path / 'v.bin'}:float32:8,6,4"
    assert call(["plot", raw, "--slice", "y=2", "-o", str(tmp_path / "w.png")]) == 0
    np.testing.assert_array_equal(images(drawn[1])[0].get_array(), v[:, 2])
    assert call(["plot", offered, "--field", "u", "-o", str(tmp_path / "v.png")]) == 2
    assert "is not a run" in capsys.readouterr().err
