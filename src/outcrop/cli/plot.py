"""`outcrop plot`: draw slices as a picture, or slices of all snapshots as a movie."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from outcrop.cli.options import PICTURES, check_picture, write_picture
from outcrop.cli.picture import Picture, Range, Scale, check_colors, check_down, panels_of, parse_limits
from outcrop.cli.subject import Subject, SubjectFrame, open_subject
from outcrop.errors import InputError
from outcrop.units import counted

if TYPE_CHECKING:
    from outcrop.cli.picture import Movie, Panel

MAX_FRAMES_PER_SECOND = 50.0


def plot(
    where: Annotated[Path, Argument(metavar="WHERE", help="directory or device of a run, or a file of values")],
    output: Annotated[
        Path | None, Option("-o", "--output", metavar="FILE", help="the picture to write: .png, .svg or .pdf")
    ] = None,
    slices: Annotated[
        list[str] | None,
        Option(
            "--slice", metavar="AXIS=K",
            help="z=K, y=K or x=K on a grid of three axes; z=10,20,30 or a repeated option draws several slices; the "
            "axes of Devito's runs have Devito's names [default: the middle of the first axis, or of a much shorter "
            "axis]",
        ),
    ] = None,
    field: Annotated[
        str | None, Option(metavar="NAME", help="a field of the run [default: the first field that is updated]")
    ] = None,
    snapshots: Annotated[
        str | None, Option(metavar="NAME", help="draw snapshots, such as u or side/u, and not the last state")
    ] = None,
    step: Annotated[
        int | None, Option(metavar="STEP", help="the snapshot after this step [default: the last snapshot]")
    ] = None,
    traces: Annotated[
        str | None,
        Option(metavar="NAME", help="draw the traces of these receivers over time: an image, or lines for 8 or fewer"),
    ] = None,
    gif: Annotated[Path | None, Option(metavar="FILE", help="write a movie of all snapshots as GIF")] = None,
    mp4: Annotated[
        Path | None, Option(metavar="FILE", help="write a movie of all snapshots as MP4; needs ffmpeg")
    ] = None,
    fps: Annotated[float, Option(metavar="N", help="frames per second of a movie")] = 10.0,
    limits: Annotated[
        str | None,
        Option(metavar="LOW,HIGH", help="the values at the ends of the colour map [default: from the values drawn]"),
    ] = None,
    colors: Annotated[
        str,
        Option(
            help="a colour map of matplotlib; auto is diverging around zero if values have both signs, and sequential "
            "otherwise"
        ),
    ] = "auto",
    down: Annotated[
        str | None, Option(metavar="AXIS", help="let this vertical axis point down, such as z [default: axes point up]")
    ] = None,
) -> None:  # fmt: skip
    """Draw slices as a picture. The slices are from the committed state of a run, from its snapshots, or from a file in
    a format that a run can read. With --traces, draw traces of a run instead. With --gif or --mp4, draw all snapshots
    as a movie."""
    given = {"-o": output, "--gif": gif, "--mp4": mp4}
    chosen = [(option, path) for option, path in given.items() if path is not None]
    if not chosen:
        raise InputError("give the picture to write with -o FILE, or a movie with --gif FILE or --mp4 FILE")
    endings = {"-o": PICTURES, "--gif": (".gif",), "--mp4": (".mp4",)}
    for option, path in chosen:
        check_picture(path, option, endings[option])
    if traces is not None:
        others = {"--slice": slices, "--field": field, "--snapshots": snapshots, "--step": step, "--gif": gif,
                  "--mp4": mp4, "--down": down}  # fmt: skip
        wrong = [option for option, value in others.items() if value]
        if wrong or step is not None:
            raise InputError(f"--traces {traces} is not about {wrong[0] if wrong else '--step'}; give one of the two")
        assert output is not None
        _plot_traces(where, traces, output, limits, colors)
        return
    is_movie = gif is not None or mp4 is not None
    if is_movie and snapshots is None:
        raise InputError("a movie needs snapshots of a run: give --snapshots NAME")
    if not 0 < fps <= MAX_FRAMES_PER_SECOND:
        raise InputError(f"--fps {fps:g}: give more than 0 and at most {MAX_FRAMES_PER_SECOND:g} frames per second")
    ends = parse_limits(limits)
    check_colors(colors)
    if mp4 is not None:
        from outcrop.cli.picture import find_ffmpeg

        program = find_ffmpeg()
    subject = open_subject(where, field, snapshots)
    panels = panels_of(subject, slices or [])
    axis_down = check_down(down, panels)
    frame = _frame(subject, snapshots, step)

    found = Range()
    for one in subject.frames if is_movie else [frame]:
        for panel in panels:
            found.include(one.read(panel.index))
    scale = Scale.of(found, ends, colors)
    shown_range = _range_text(found)
    if found.not_finite:
        print(f"{found.not_finite} of the drawn cells are NaN or infinite")
    if output is not None:
        picture = Picture(subject, panels, scale, axis_down)
        title = picture.show(frame.title, (frame.read(panel.index) for panel in panels))
        write_picture(output, "-o", picture.figure, dpi=150)
        print(f"{output}: {title}, {shown_range}")
    if gif is not None:
        from outcrop.cli.picture import open_gif

        with open_gif(gif, scale.colors, fps) as movie:
            _draw_frames(movie, subject, panels, scale, axis_down)
        print(f"{gif}: {counted(len(subject.frames), 'frame')}, {shown_range}")
    if mp4 is not None:
        from outcrop.cli.picture import open_mp4

        with open_mp4(mp4, program, fps) as movie:
            _draw_frames(movie, subject, panels, scale, axis_down)
        print(f"{mp4}: {counted(len(subject.frames), 'frame')}, {shown_range}")


def _frame(subject: Subject, snapshots: str | None, step: int | None) -> SubjectFrame:
    """Return the frame of the snapshot after `step`. If `step` is None, return the last frame. Raises InputError if
    there is no snapshot after `step`."""
    if step is None:
        return subject.frames[-1]
    if snapshots is None:
        raise InputError(f"--step {step}: a run has only its last state; give --snapshots NAME to draw a snapshot")
    for frame in subject.frames:
        if frame.step == step:
            return frame
    steps = [frame.step for frame in subject.frames]
    there = ", ".join(map(str, steps if len(steps) <= 12 else [*steps[:5], "...", *steps[-5:]]))
    raise InputError(f"--step {step}: there is no snapshot after this step; there are: {there}")


def _range_text(found: Range) -> str:
    if found.low > found.high:
        return "no value is finite"
    is_flat = found.low == found.high
    return f"all values are {found.low:g}" if is_flat else f"values {found.low:g} to {found.high:g}"


def _plot_traces(where: Path, name: str, output: Path, limits: str | None, colors: str) -> None:
    from outcrop.cli.traces import draw_traces, open_traces

    ends = parse_limits(limits)
    check_colors(colors)
    figure, title, found = draw_traces(open_traces(where, name), ends, colors)
    if found.not_finite:
        print(f"{found.not_finite} of the drawn values are NaN or infinite")
    write_picture(output, "-o", figure, dpi=150)
    print(f"{output}: {title}, {_range_text(found)}")


def _draw_frames(movie: Movie, subject: Subject, panels: list[Panel], scale: Scale, down: str) -> None:
    picture = Picture(subject, panels, scale, down)
    for frame in subject.frames:
        picture.show(frame.title, (frame.read(panel.index) for panel in panels))
        movie.add(picture.figure)
        picture.keep_layout()
