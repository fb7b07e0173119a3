"""Write movies frame by frame: GIF with Pillow, MP4 with a program ffmpeg. Only one frame is in memory.

Pillow's own writer keeps all frames in memory until it writes them. `GifFile` therefore writes each frame at once:

    header with the colour table | loop | frame 0 | frame 1 | ... | ;

All frames use one colour table: the colours of the colour map, and greys for the text and its smooth edges."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from outcrop.errors import InputError
from outcrop.paths import make_directory, remove_made

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image

DPI = 100
GREYS = 32


class Movie(Protocol):
    """A movie that is being written."""

    def add(self, figure: Figure) -> None:
        """Draw the figure as the next frame. All figures must have the same size."""


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
        self._duration_ms = max(20, round(1000 / frames_per_second))  # browsers show shorter frames too slowly

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
    """A program ffmpeg that gets raw frames through a pipe. Its messages go to the file `said`."""

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
        """Wait until the program has written the movie. Raises InputError with its last message if it has failed."""
        assert self._process is not None and self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        if self._process.wait() != 0:
            self._said.seek(0)
            lines = self._said.read()[-2000:].decode(errors="replace").split("\n")
            said = next((line for line in reversed(lines) if line.strip()), "no message")
            raise InputError(f"--mp4: ffmpeg has failed: {said.strip()}")

    def stop(self) -> None:
        """Stop the program if it is still running."""
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
    """Yield the path of a temporary file beside `path`. At the end, rename the file to `path`. If the caller fails,
    remove the file. Other files than regular files, such as /dev/null, are written directly."""
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
    """Draw a figure as an image with the colours red, green and blue."""
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    canvas: Any = FigureCanvasAgg(figure)
    figure.set_dpi(DPI)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


def find_ffmpeg() -> str:
    """Return the path of a program ffmpeg: of the package imageio-ffmpeg, or on the PATH. Raises InputError if there
    is none."""
    try:
        import imageio_ffmpeg

        return str(imageio_ffmpeg.get_ffmpeg_exe())
    except (ImportError, RuntimeError):
        found = shutil.which("ffmpeg")
    if found is None:
        raise InputError('--mp4 needs the program ffmpeg; install it, or run: pip install "outcrop[movie]"')
    return found
