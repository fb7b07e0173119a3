"""Draw slices of arrays: one panel for each slice, with the same colours in all panels. Also write figures of slices as
a movie.

The colours in a picture depend on the signs of the values. If the values of the slices have both signs, zero is in the
middle of a diverging colour map. Otherwise, the colour map is sequential. Large slices are reduced before they are
read: only every second, third, ... cell along an axis is drawn.

The shape of the figure depends on the shape of the slices, so that the panels fill the figure. If one side of a slice
is much longer than the other side, the slice is stretched. Without stretching, its cells would be too small to see.

Movies are written frame by frame: GIF with Pillow, MP4 with the program ffmpeg. Only one frame is in memory.

Pillow's own writer keeps all frames in memory until it writes them. Therefore `GifFile` writes each frame immediately:

    header with the colour table | loop | frame 0 | frame 1 | ... | ;

All frames of a GIF use one colour table: the colours of the colour map, and greys for the text and its smooth edges."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import IO, TYPE_CHECKING, Any, Protocol

from outcrop.errors import InputError, shown
from outcrop.paths import make_directory, remove_made

if TYPE_CHECKING:
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure
    from matplotlib.text import Text
    from numpy.typing import NDArray
    from PIL.Image import Image

    from outcrop.cli.subject import Axis, Index, Subject


MAX_PIXELS = 1024
"""The maximum number of cells along a side of the picture. The picture has about as many pixels."""
MAX_SLICES = 16
DIVERGING, SEQUENTIAL = "RdBu_r", "viridis"
MAX_RATIO = 8.0
"""If the long side of a slice is more than MAX_RATIO times as long as the short side, the slice is stretched."""
ONE_PANEL, SEVERAL_PANELS = (20.0, 8.0), (7.5, 4.5)
"""The area of a panel in square inches, and its maximum side in inches, for one panel and for several panels."""
MIN_SIDE = 1.2
"""The minimum side of a panel in inches."""
BESIDE, BELOW = 0.9, 0.85
"""The space in inches for the labels of the axes of a panel: at its left side, and below and above it."""
COLOR_BAR = 1.0
"""The space of the colour bar in inches."""
MARGIN, MAX_WIDENINGS = 0.1, 4
"""The space in inches beside the labels of a figure that was widened, and the maximum number of times that a figure is
widened."""
MAX_UPRIGHT = 2
"""The maximum number of letters of a label beside a vertical axis that is not rotated."""
LETTERS_PER_INCH = 11.0
"""The number of letters of a title of normal size in one inch. The letters of a small title are a fifth narrower."""
NOT_FINITE = "#e040fb"
"""The colour of NaN and infinity. No common colour map has this colour."""


@dataclass(frozen=True)
class Panel:
    """One slice. `index` selects the cells that are drawn. `axes` are the axes of the panel, the vertical axis first,
    or the only axis. `place` names the slice, such as "z = 20". If the axes have different units, `ratio` is the width
    of the panel divided by its height. If the axes have the same unit, `ratio` is 0."""

    index: Index
    axes: tuple[Axis, ...]
    place: str
    ratio: float = 0.0


def panels_of(subject: Subject, slices: Sequence[str]) -> list[Panel]:
    """Return a panel for each slice. `slices` has texts such as "z=10,20". If `slices` is empty, a grid of three axes
    gets the slice of `default_cut`. Raises InputError if a slice is not in the grid."""
    shape = subject.shape
    if len(shape) < 3:
        if slices:
            raise InputError(f"--slice {slices[0]}: there is nothing to cut in a grid of fewer than three axes")
        return [Panel(tuple(_thinned(n, MAX_PIXELS) for n in shape), subject.axes, "")]
    sizes = {axis.name: axis.cells for axis in subject.axes}
    named = {axis.name: axis for axis in subject.axes}
    cuts = [cut for text in slices for cut in parse_slices(text, sizes, named)] or [default_cut(sizes)]
    if len(cuts) > MAX_SLICES:
        raise InputError(f"--slice: {len(cuts)} slices are too many for one picture; give at most {MAX_SLICES}")
    pixels = MAX_PIXELS // columns_of(len(cuts))
    panels = []
    for axis, place in cuts:
        number = list(sizes).index(axis)
        index = [place if one == number else _thinned(n, pixels) for one, n in enumerate(shape)]
        axes = tuple(one for one in subject.axes if one.name != axis)
        panels.append(Panel(tuple(index), axes, subject.axes[number].place(place)))
    return panels


def default_cut(sizes: Mapping[str, int]) -> tuple[str, int]:
    """Return the axis and the place of the slice that is drawn by default. Usually, the default slice is in the middle
    of the first axis. A grid is a thin box if its shortest axis has less than half as many cells as each other axis. In
    a thin box, the default slice is in the middle of the shortest axis, and shows the large side of the box. `sizes`
    has the number of cells of each axis."""
    shortest = min(sizes, key=lambda name: sizes[name])
    others = [size for name, size in sizes.items() if name != shortest]
    axis = shortest if 2 * sizes[shortest] < min(others) else next(iter(sizes))
    return axis, sizes[axis] // 2


def parse_slices(
    text: str, sizes: Mapping[str, int], axes: Mapping[str, Axis] | None = None
) -> list[tuple[str, int]]:
    """Convert "z=10,256" to [("z", 10), ("z", 256)]. `sizes` has the number of values along each axis. Raises
    InputError if the axis is unknown, or if a place is outside the grid. If `axes` is given, the message of the error
    explains the indices of boxes and of coarse snapshots."""
    axis, equals, numbers = text.partition("=")
    axis = axis.strip() if axis.strip() in sizes else axis.strip().lower()
    try:
        places = [int(one) for one in numbers.split(",")]
    except ValueError:
        equals = ""
    if not equals or axis not in sizes:
        first, second, third = sizes
        raise InputError(
            f"--slice {shown(text)} is not understood; write {first}=256, {second}=0 or {third}=10,20,30"
        )
    size = sizes[axis]
    for place in places:
        if not 0 <= place < size:
            hint = _meaning_of_index(axes[axis]) if axes else ""
            raise InputError(f"--slice {text}: {axis} goes from 0 to {size - 1}{hint}")
    return [(axis, place) for place in places]


def _meaning_of_index(axis: Axis) -> str:
    """Return the end of a message: a text that says how the indices of an axis of snapshots differ from the cells of
    the grid."""
    if axis.first == 0 and axis.group == 1:
        return ""
    what = "the values of the snapshots" if axis.group > 1 else "the cells of the box"
    ends = f"index 0 is at {axis.name} = {axis.cell(0)}"
    if axis.cells > 1:
        ends += f", and index {axis.cells - 1} is at {axis.name} = {axis.cell(axis.cells - 1)}"
    return f", because --slice counts {what}: {ends}"


def parse_limits(text: str | None) -> tuple[float, float] | None:
    """Convert "-1,1" to (-1.0, 1.0). Raises InputError for other texts. Also raises InputError if the second number is
    not greater than the first number."""
    if text is None:
        return None
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InputError(f"--limits {shown(text)}: give two numbers LOW,HIGH with LOW < HIGH, such as -1,1")
    return low, high


def check_colors(colors: str) -> None:
    """Raise InputError if matplotlib has no colour map with this name."""
    from matplotlib import colormaps

    if colors not in ("auto", *colormaps):
        raise InputError(f"--colors {shown(colors)} is unknown to matplotlib; gray, viridis and RdBu_r are common ones")


@dataclass
class Range:
    """The smallest and the largest finite value of the drawn arrays, and the number of cells that are not finite."""

    low: float = math.inf
    high: float = -math.inf
    not_finite: int = 0

    def include(self, values: NDArray[Any]) -> None:
        import numpy as np

        finite = values[np.isfinite(values)]
        self.not_finite += values.size - finite.size
        if finite.size:
            self.low, self.high = min(self.low, float(finite.min())), max(self.high, float(finite.max()))


@dataclass(frozen=True)
class Scale:
    """The colour scale for the values from `low` to `high`. `extend` is an argument of matplotlib's colour bars: the
    sides on which values lie outside this range."""

    colors: str
    low: float
    high: float
    extend: str

    @staticmethod
    def of(found: Range, limits: tuple[float, float] | None, colors: str) -> Scale:
        """Return the colours for values in the range `found`. `limits` and `colors` can be values of the user."""
        if found.low > found.high:  # no value is finite, so there is no range
            found = Range(0.0, 0.0)
        low, high = limits or (found.low, found.high)
        if limits is None and low < 0 < high:
            high = max(-low, high)
            low = -high
        if colors == "auto":
            colors = DIVERGING if low < 0 < high else SEQUENTIAL
        below, above = found.low < low, found.high > high
        return Scale(colors, low, high, {(0, 0): "neither", (1, 0): "min", (0, 1): "max"}.get((below, above), "both"))

    @property
    def norm(self) -> Normalize:
        """The function from values to colours. In a diverging colour map, zero has the middle colour."""
        from matplotlib.colors import Normalize, TwoSlopeNorm

        if self.colors == DIVERGING and self.low < 0 < self.high:
            return TwoSlopeNorm(0.0, self.low, self.high)
        return Normalize(self.low, self.high)


def columns_of(panels: int) -> int:
    """Return the number of columns of a square arrangement of panels."""
    return math.ceil(math.sqrt(panels))


@dataclass(frozen=True)
class PictureShape:
    """The arrangement of panels in a figure. `panel` is the width and the height of a panel without its labels.
    `figure` is the width and the height of the figure. All sizes are in inches. If `is_stretched` is true, the cells of
    the panels are not drawn as squares. The colour bar is below the panels if `has_bar_below` is true, and at the right
    side if it is false."""

    columns: int
    rows: int
    panel: tuple[float, float]
    figure: tuple[float, float]
    is_stretched: bool
    has_bar_below: bool

    @staticmethod
    def of(panels: Sequence[Panel]) -> PictureShape:
        """Return the shape of a picture. All panels of the picture get the same ratio of width and height: the mean of
        the ratios of `panels`."""
        sides = [[abs(end - begin) for begin, end in (axis.ends for axis in panel.axes)] for panel in panels]
        ratios = [across / up for up, across in sides] if len(sides[0]) == 2 else [1.5]
        if panels[0].ratio:
            ratios = [panel.ratio for panel in panels]
        mean = math.exp(sum(math.log(ratio) for ratio in ratios) / len(ratios))
        ratio = min(MAX_RATIO, max(1 / MAX_RATIO, mean))
        area, longest = ONE_PANEL if len(panels) == 1 else SEVERAL_PANELS
        width, height = (min(longest, max(MIN_SIDE, math.sqrt(area * part))) for part in (ratio, 1 / ratio))

        def size(columns: int) -> tuple[float, float]:
            return (width + BESIDE) * columns, (height + BELOW) * -(-len(panels) // columns)

        # The best number of columns of panels leaves few empty places, and gives a figure that is a little wider than
        # high.
        def badness(columns: int) -> float:
            across, up = size(columns)
            empty = -(-len(panels) // columns) * columns / len(panels)
            return abs(math.log(across / (1.3 * up))) + math.log(empty)

        columns = min(range(1, len(panels) + 1), key=badness)
        across, up = size(columns)
        has_bar_below = across > 1.6 * up
        across, up = (across, up + COLOR_BAR) if has_bar_below else (across + COLOR_BAR, up)
        figure = max(across, 3.2), up + (0.3 if len(panels) > 1 else 0.0)
        is_stretched = bool(panels[0].ratio) or any(not 1 / MAX_RATIO <= ratio <= MAX_RATIO for ratio in ratios)
        rows = -(-len(panels) // columns)
        return PictureShape(columns, rows, (width, height), figure, is_stretched, has_bar_below)


class Picture:
    """A figure with all panels. `show` changes the values, for the frames of a movie. `down` is the name of the axis
    that points down, or "" if all vertical axes point up."""

    def __init__(self, subject: Subject, panels: Sequence[Panel], scale: Scale, down: str = "") -> None:
        from matplotlib import colormaps
        from matplotlib.figure import Figure

        self._shape = shape = PictureShape.of(panels)
        self.figure: Figure = Figure(figsize=shape.figure, layout="constrained")
        self._panels, self._scale, self._is_shown = panels, scale, False
        every = list(self.figure.subplots(shape.rows, shape.columns, squeeze=False).flat)
        self._plots, spare = every[: len(panels)], every[len(panels) :]
        for plot in spare:
            plot.set_axis_off()
        colors = colormaps[scale.colors].with_extremes(bad=NOT_FINITE)
        self._drawn: list[Any] = []
        for plot, panel in zip(self._plots, panels, strict=True):
            if len(panel.axes) == 1:
                (axis,) = panel.axes
                cells = range(0, axis.cells, _step(panel.index[0]))
                places = [axis.origin + cell * axis.spacing for cell in cells]
                self._drawn += plot.plot(places, [0.0] * len(places), color=colormaps[SEQUENTIAL](0.3))
                plot.set(xlabel=axis.label, ylabel=subject.label, ylim=with_margin(scale.low, scale.high))
                set_upright(plot.yaxis.label)
                continue
            up, across = panel.axes
            self._drawn.append(
                plot.imshow([[0.0]], cmap=colors, norm=scale.norm, origin="lower", extent=(*across.ends, *up.ends),
                            interpolation="nearest", aspect="auto" if shape.is_stretched else "equal")
            )  # fmt: skip
            plot.set(xlabel=across.label, ylabel=up.label)
            set_upright(plot.yaxis.label)
            if up.name == down:
                plot.invert_yaxis()
            # each number needs some space, so a short side has few numbers
            plot.locator_params(axis="x", nbins=max(1, min(8, int(shape.panel[0] / 0.7))))
            plot.locator_params(axis="y", nbins=max(1, min(8, int(shape.panel[1] / 0.4))))
        if len(panels[0].axes) == 2:
            where = "bottom" if shape.has_bar_below else "right"
            bar = self.figure.colorbar(
                self._drawn[0], ax=self._plots, label=subject.label, extend=scale.extend, location=where
            )
            set_upright(bar.ax.yaxis.label)

    def show(self, title: str, values: Iterable[NDArray[Any]]) -> str:
        """Draw the values of all panels, and return the title of the picture."""
        import numpy as np

        for drawn, panel, one in zip(self._drawn, self._panels, values, strict=True):
            finite = np.where(np.isfinite(one), one, np.nan)
            drawn.set_ydata(finite) if len(panel.axes) == 1 else drawn.set_data(finite)
        if len(self._panels) == 1:
            place = self._panels[0].place
            title = f"{title}, {place}" if place else title
            self._plots[0].set_title(self._in_lines(title, self._shape.panel[0] + 1.4 * BESIDE))
            self._widen()
            return title
        for plot, panel in zip(self._plots, self._panels, strict=True):
            plot.set_title(self._in_lines(panel.place, 1.2 * (self._shape.panel[0] + BESIDE)), fontsize="medium")
        self.figure.suptitle(self._in_lines(title, self._shape.figure[0]))
        self._widen()
        return f"{title}, {', '.join(panel.place for panel in self._panels)}"

    def _widen(self) -> None:
        """Widen the figure until no label is cut off. Without this, matplotlib leaves too little space for long numbers
        beside panels with square cells. The frames of a movie keep the size of the first frame."""
        for _ in range(MAX_WIDENINGS if not self._is_shown else 0):
            self.figure.draw_without_rendering()
            box, width = self.figure.get_tightbbox(), self.figure.get_figwidth()
            missing = max(0.0, -box.x0) + max(0.0, box.x1 - width)
            if not missing:
                break
            self.figure.set_figwidth(width + missing + MARGIN)
        self._is_shown = True

    @staticmethod
    def _in_lines(text: str, width: float) -> str:
        """Divide the title of a figure into lines of at most `width` inches."""
        return "\n".join(wrap(text, max(12, int(LETTERS_PER_INCH * width))))

    def keep_layout(self) -> None:
        """Keep the places of all parts of the figure, so that these parts do not move in the next frames of a movie."""
        self.figure.set_layout_engine("none")


def set_upright(label: Text) -> None:
    """Turn a short label of a vertical axis upright, because a rotated letter looks like another sign: u looks like
    ⊃."""
    if len(label.get_text()) <= MAX_UPRIGHT:
        label.set(rotation="horizontal", horizontalalignment="center", verticalalignment="center")


def check_down(down: str | None, panels: Sequence[Panel]) -> str:
    """Return the axis that the option --down names, or "" without this option. Raises InputError if no panel has this
    axis as its vertical axis."""
    vertical = list(dict.fromkeys(panel.axes[0].name for panel in panels if len(panel.axes) == 2))
    if down is not None and down not in vertical:
        there = " and ".join(vertical)
        found = f"vertical is {there}" if there else "a curve has no vertical axis"
        raise InputError(f"--down {shown(down)}: this axis is not vertical in the picture; {found}")
    return down or ""


def _thinned(cells: int, pixels: int) -> slice:
    return slice(None, None, -(-cells // pixels))


def _step(index: int | slice) -> int:
    assert isinstance(index, slice)
    return index.step or 1


def with_margin(low: float, high: float) -> tuple[float, float]:
    margin = 0.05 * (high - low) or 1.0
    return low - margin, high + margin


# --- movies ----------------------------------------------------------------------------------------------------------


DPI = 100
GREYS = 32


class Movie(Protocol):
    """A movie that is being written."""

    def add(self, figure: Figure) -> None:
        """Draw the figure as the next frame of the movie. All frames of a movie must have the same size."""


class GifFile:
    """A GIF that repeats without end."""

    def __init__(self, file: IO[bytes], colors: str, frames_per_second: float) -> None:
        from matplotlib import colormaps
        from PIL import Image

        colored = colormaps[colors](range(0, 256, 1))[:, :3]
        chosen = [colored[round(place * 255 / (255 - GREYS))] for place in range(256 - GREYS)]
        table = [round(255 * part) for color in chosen for part in color]
        table += [round(255 * place / (GREYS - 1)) for place in range(GREYS) for _ in range(3)]
        self._table = Image.new("P", (1, 1))
        self._table.putpalette(table)
        self._file, self._is_first = file, True
        self._duration_ms = max(20, round(1000 / frames_per_second))  # browsers slow down frames of less than 20 ms

    def add(self, figure: Figure) -> None:
        from PIL.GifImagePlugin import getdata, getheader
        from PIL.Image import Dither

        image = drawn(figure).quantize(palette=self._table, dither=Dither.NONE)
        if self._is_first:
            self._file.write(b"".join(getheader(image, info={"loop": 0})[0]))
            self._is_first = False
        self._file.write(b"".join(getdata(image, duration=self._duration_ms)))

    def end(self) -> None:
        self._file.write(b";")


class Mp4File:
    """A running program ffmpeg, which gets raw frames through a pipe. The messages of ffmpeg go to the file `said`."""

    def __init__(self, path: Path, program: str, frames_per_second: float, said: IO[bytes]) -> None:
        self._command = [program, "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24"]
        self._rate = ["-r", f"{frames_per_second:g}"]
        self._output = ["-an", "-pix_fmt", "yuv420p", "-movflags", "+faststart", "-f", "mp4", str(path)]
        self._process: subprocess.Popen[bytes] | None = None
        self._said = said

    def add(self, figure: Figure) -> None:
        image = drawn(figure)
        # most encoders need even numbers of pixels
        image = image.crop((0, 0, image.width // 2 * 2, image.height // 2 * 2))
        if self._process is None:
            size = ["-s", f"{image.width}x{image.height}"]
            self._process = subprocess.Popen(
                [*self._command, *size, *self._rate, "-i", "-", *self._output],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=self._said,
            )  # fmt: skip
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(image.tobytes())
        except BrokenPipeError:
            self.end()

    def end(self) -> None:
        """Wait until ffmpeg has written the movie. Raises InputError if ffmpeg has failed. The message has the last
        message of ffmpeg."""
        assert self._process is not None and self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        if self._process.wait() != 0:
            self._said.seek(0)
            lines = self._said.read()[-2000:].decode(errors="replace").split("\n")
            said = next((line for line in reversed(lines) if line.strip()), "no message")
            raise InputError(f"--mp4: ffmpeg has failed: {said.strip()}")

    def stop(self) -> None:
        """Stop ffmpeg if it is still running."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def open_gif(path: Path, colors: str, frames_per_second: float) -> Iterator[Movie]:
    """Write a GIF. Raises InputError if the file cannot be written."""
    with _beside(path, "--gif") as partial_path, partial_path.open("wb") as file:
        movie = GifFile(file, colors, frames_per_second)
        yield movie
        movie.end()


@contextlib.contextmanager
def open_mp4(path: Path, program: str, frames_per_second: float) -> Iterator[Movie]:
    """Write an MP4. Raises InputError if the file cannot be written, or if ffmpeg fails."""
    with _beside(path, "--mp4") as partial_path, tempfile.TemporaryFile() as said:
        movie = Mp4File(partial_path, program, frames_per_second, said)
        try:
            yield movie
            movie.end()
        finally:
            movie.stop()


@contextlib.contextmanager
def _beside(path: Path, option: str) -> Iterator[Path]:
    """Yield the path of a temporary file beside `path`. At the end of the `with` block, rename the temporary file to
    `path`. If the body of the `with` raises an exception, remove the temporary file instead. If `path` exists and is
    not a regular file, as /dev/null, yield `path` itself."""
    if path.exists() and not path.is_file():
        yield path
        return
    target = Path(os.path.realpath(path))
    made = make_directory(target.parent)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name[:64]}-", suffix=".tmp", dir=target.parent)
        os.close(handle)
    except OSError as error:
        remove_made(made)
        raise InputError(f"{option} {path} cannot be written: {error.strerror}") from None
    try:
        yield Path(name)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(name)
        remove_made(made)
        if isinstance(error, OSError):
            raise InputError(f"{option} {path} cannot be written: {error.strerror}") from None
        raise


def drawn(figure: Figure) -> Image:
    """Draw the figure as an image with the colours red, green and blue, and return the image."""
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    canvas: Any = FigureCanvasAgg(figure)
    figure.set_dpi(DPI)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


def find_ffmpeg() -> str:
    """Return the path of the program ffmpeg, from the package imageio-ffmpeg or from a folder in PATH. Raises
    InputError if ffmpeg is not found."""
    try:
        import imageio_ffmpeg

        return str(imageio_ffmpeg.get_ffmpeg_exe())
    except (ImportError, RuntimeError):
        found = shutil.which("ffmpeg")
    if found is None:
        raise InputError('--mp4 needs the program ffmpeg; install it, or run: pip install "outcrop[movie]"')
    return found
