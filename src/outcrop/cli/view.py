"""`outcrop view`: look at slices of a run in a browser, with Neuroglancer.

    browser ──► 127.0.0.1:PORT/v/TOKEN/        the program of Neuroglancer, from its Python package
            ──► .../TOKEN.VOLUME/SCALE/...     cells of one array, read on demand and reduced to the resolution shown

The server sends only the program of Neuroglancer and the cells of the run. The server never opens a file that a request
names. The functions behind `sim["u"]` and `sim.snapshots["u"]` read the cells. The functions that read the cells do not
follow links out of the run. Each address contains a random token, so other users of the computer cannot read the cells.

The server reads only displayed cells. If the display has fewer pixels than the slice has cells, the server reads only
every second, fourth, ... cell along each axis. A block of cells has at most 2^18 cells, so the memory of the server
does not depend on the size of the run.

To follow the run, the server opens the run again every LOOK_SECONDS seconds. After a commit of the run, the server
gives the browser new addresses for the snapshots. With the new addresses, the browser reads the changed arrays and the
snapshots.
"""

from __future__ import annotations

import io
import math
import socket
import sys
import threading
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from outcrop.axes import x_first
from outcrop.cli.picture import Range, Scale
from outcrop.cli.subject import Axis, Subject, of_field, of_snapshots
from outcrop.errors import InputError, OutcropError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from outcrop.run.simulation import Simulation

MAX_BLOCK_CELLS = 1 << 20
"""The maximum number of cells in an answer. Neuroglancer asks for at most 2^18 cells."""
SAMPLED = 128
"""The maximum number of cells along an axis from which the first colour range is computed."""
COARSEST_CELLS = 128
"""The maximum number of cells along an axis in the coarsest resolution."""
SHOWN_PIXELS = 400
"""The number of pixels that the longest axis has in a panel at the beginning."""
SI_UNITS = ("m", "s", "Hz", "rad/s")
PREFIXES = {"": 1.0, "k": 1e3, "c": 1e-2, "m": 1e-3, "u": 1e-6, "µ": 1e-6, "n": 1e-9, "p": 1e-12}
COLORS = 17
"""The number of colours of a colour map in the program for the browser, which mixes neighbouring colours."""
LOOK_SECONDS = 2.0
"""The time in seconds between two searches of the server for a new commit."""
STEP = "step"
"""The name of the axis of snapshots that is not an axis of the grid."""


def view(
    where: Annotated[Path, Argument(metavar="WHERE", help="directory or device of a run")],
    port: Annotated[int, Option(metavar="PORT", help="port of the server; 0 means any free port")] = 0,
) -> None:
    """Show slices of the arrays and snapshots of a run in a browser, along x, y, z and time. The command prints an
    address of this computer, and serves the cells until it is interrupted. During the run, new snapshots appear."""
    if not 0 <= port <= 65535:
        raise InputError(f"--port {port}: give a number from 0 to 65535")
    server = Server(where, port)
    print(f"{where}: {', '.join(server.names)}")
    print(f"open this address in a browser, and stop with Ctrl-C:\n{server.address}", flush=True)
    problem = ""
    try:
        while True:
            time.sleep(LOOK_SECONDS)
            before, problem = problem, ""
            try:
                server.follow()
            except OutcropError as error:  # the run may be moved or damaged; the browser keeps its picture
                problem = str(error)
            if problem not in ("", before):
                print(f"outcrop: {problem}", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print()
    finally:
        server.close()


class Server:
    """Serves a run on 127.0.0.1 until `close` is called. A process can have only one server at a time."""

    def __init__(self, where: Path, port: int = 0) -> None:
        neuroglancer = import_neuroglancer()
        self._where, self._turn = where, threading.Lock()
        self._layers: dict[str, _Shown] = {}
        simulation = _opened(where)
        subjects = subjects_of(simulation)
        self._commit = _commit_of(simulation)
        for one in subjects:
            self._layers[one.label] = _Shown(neuroglancer, one, self._turn)
        _require_port(port)
        neuroglancer.server.set_server_bind_address("127.0.0.1", port)
        self._viewer = neuroglancer.Viewer()
        with self._viewer.txn() as state:
            for number, (name, shown) in enumerate(self._layers.items()):
                state.layers.append(name=name, layer=shown.layer(), visible=number == 0)
            _arrange(neuroglancer, state, subjects)
            state.title = f"Outcrop: {where.name}"
        self.address = str(self._viewer.get_viewer_url())

    @property
    def names(self) -> list[str]:
        return list(self._layers)

    def follow(self) -> bool:
        """Show the values and the snapshots of the last commit. Return True if this commit is new. If the browser
        showed the newest snapshot of the previous commit, it now shows the newest snapshot of the last commit. `follow`
        does not change any other setting of the user. Raises all errors of `oc.open`. Also raises InputError if another
        run has replaced this run."""
        simulation = _opened(self._where)
        commit, before = _commit_of(simulation), self._commit
        if commit == before:
            return False
        if commit[0] != before[0]:
            raise InputError(f"{self._where} now holds another run; start the command again")
        subjects, static = subjects_of(simulation), _static_fields(simulation)
        added: dict[str, _Shown] = {}
        newest = _newest(shown.subject for shown in self._layers.values())
        for one in subjects:
            if one.label not in self._layers:
                added[one.label] = _Shown(import_neuroglancer(), one, self._turn)
            elif one.label not in static:
                self._layers[one.label].change(one)
        with self._viewer.txn() as state:
            self._update(state, subjects, added, newest)
        self._layers.update(added)
        self._commit = commit
        return True

    def _update(self, state: Any, subjects: Sequence[Subject], added: Mapping[str, _Shown], newest: int | None) -> None:
        """Let the browser show `subjects`. `newest` is the step of the newest snapshot that the browser has."""
        for layer in state.layers:
            if layer.name in self._layers:
                self._layers[layer.name].update(layer.layer)
        for name, shown in added.items():
            state.layers.append(name=name, layer=shown.layer(), visible=False)
        position, now = [] if state.position is None else state.position.tolist(), _newest(subjects)
        known = list(state.dimensions.names)
        if STEP not in known and now is not None:  # the browser has no snapshots until now
            state.dimensions = _dimensions(import_neuroglancer(), subjects)
            known = list(state.dimensions.names)
            position += [0.0] * (len(known) - len(position))
            newest = None
        if now is not None and position:
            place, distance = known.index(STEP), float(state.dimensions.scales[known.index(STEP)])
            if newest is None or position[place] * distance > newest - distance / 2:
                position[place] = now / distance
                state.position = position

    def close(self) -> None:
        import_neuroglancer().server.stop()


class _Shown:
    """A subject that the browser shows, with the source of its cells, and with the program that colours the cells."""

    def __init__(self, neuroglancer: Any, subject: Subject, turn: threading.Lock) -> None:
        self._neuroglancer, self._turn, self.subject = neuroglancer, turn, subject
        self._range = Range()
        self._source, self._cells = _source(neuroglancer, subject, turn)
        self._shader = self._earlier_shader = shader_of(subject, self._range)

    def layer(self) -> Any:
        """Return a new layer of Neuroglancer."""
        closed = {"type": "image", "codeVisible": False}  # the program for the colours would fill the panel
        return self._neuroglancer.ImageLayer(closed, source=self._source, shader=self._shader, tab="rendering")

    def change(self, subject: Subject) -> None:
        """Take values of a new commit. `update` must be called afterwards."""
        if len(subject.frames) != len(self.subject.frames):
            self._source, self._cells = _source(self._neuroglancer, subject, self._turn)
        else:
            self._cells.invalidate()
        self.subject = subject
        self._earlier_shader, self._shader = self._shader, shader_of(subject, self._range)

    def update(self, layer: Any) -> None:
        """Change a layer in the browser. If the user has written another program for the colours, keep the user's
        program."""
        layer.source = self._source
        if layer.shader == self._earlier_shader:
            layer.shader = self._shader


def _opened(where: Path) -> Simulation:
    from outcrop.run.opening import open_run
    from outcrop.run.simulation import Simulation

    return Simulation(open_run(where, {}, reads_only=True))


def _commit_of(simulation: Simulation) -> tuple[str, tuple[Any, ...]]:
    """Return a text that identifies the run, and a tuple that is different after each commit."""
    reader = simulation.reader()
    assert reader is not None  # not None, because the run is on disk
    manifest = reader.manifest
    return manifest.identity, (manifest.generation, manifest.step, tuple(sorted(manifest.filled.items())))


def _static_fields(simulation: Simulation) -> set[str]:
    return {entry.name for entry in simulation.setup.description.static}


def _newest(subjects: Iterable[Subject]) -> int | None:
    """Find the first subject with snapshots, and return the step of its newest snapshot. Return None if no subject has
    snapshots."""
    return next((one.frames[-1].step for one in subjects if one.every), None)


def _require_port(port: int) -> None:
    """Raise InputError if no server can use the port `port`. Without this check, a server that cannot use its port
    would leave a socket open."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            probe.listen()
        except OSError as error:
            raise InputError(f"--port {port}: no server can use this port: {error.strerror}") from None


def _arrange(neuroglancer: Any, state: Any, subjects: Sequence[Subject]) -> None:
    """Show the middle of the first subject, scaled to the window of the browser. Also show the controls of the colours
    of this subject. In the first panel of the browser, x is horizontal and y is vertical."""
    first, axes = subjects[0], _x_first(subjects[0])
    state.dimensions = _dimensions(neuroglancer, subjects)
    names, now = list(state.dimensions.names), _newest(subjects)
    state.display_dimensions = names[: len(axes)]
    middle = {axis.name: axis.origin / axis.spacing + axis.cells // 2 for axis in axes}
    state.position = [middle[name] if name in middle else (now or 0) / scale
                      for name, scale in zip(names, state.dimensions.scales, strict=True)]  # fmt: skip
    state.layout = "4panel" if len(axes) == 3 else "xy"
    state.cross_section_scale = max(axis.cells for axis in axes) / SHOWN_PIXELS
    state.projection_scale = 2 * max(axis.cells for axis in axes)
    state.selected_layer.layer = first.label
    state.selected_layer.visible = True


def _dimensions(neuroglancer: Any, subjects: Sequence[Subject]) -> Any:
    """Return the axes that the browser shows: x, y and z, and the step if there are snapshots. If several subjects have
    the same axis, the first of these subjects defines the unit and the scale of the axis."""
    names = [axis.name for axis in _x_first(subjects[0])]
    spaces = [_space_of(one) for one in subjects]
    found = {name: (unit, scale) for space in reversed(spaces) for name, unit, scale in zip(*space, strict=True)}
    names += [name for name in found if name not in names]
    units, scales = zip(*(found[name] for name in names), strict=True)
    return neuroglancer.CoordinateSpace(names=names, units=units, scales=scales)


def _x_first(subject: Subject) -> list[Axis]:
    return list(x_first(subject.axes, [axis.name for axis in subject.axes]))


def import_neuroglancer() -> Any:
    """Return the package neuroglancer. Raises InputError if the package is not installed."""
    try:
        import neuroglancer
        import neuroglancer.server
    except ImportError as error:
        raise InputError(
            f'outcrop view needs the package neuroglancer ({error}); run: pip install "outcrop[view]"'
        ) from None
    return neuroglancer


def subjects_of(simulation: Simulation) -> list[Subject]:
    """Return all arrays with values and all snapshots of a run. Raises InputError if the run has no values and no
    snapshots, or if its grid has one axis."""
    if len(simulation.shape) < 2:
        raise InputError("outcrop view shows grids of two and three axes; draw this run with outcrop plot")
    found: list[Subject] = []
    for name in (field.name for field in simulation.stencil.fields):
        try:
            subject = of_field(simulation, name)
            subject.frames[-1].read((0,) * len(subject.axes))
        except InputError:  # the array has no values yet
            continue
        found.append(subject)
    for name, one in simulation.snapshots.items():
        if len(one):
            kept = of_snapshots(simulation, name)
            found.append(replace(kept, label=f"snapshots/{kept.label}"))
    if not found:
        raise InputError(f"{simulation.directory} has no values yet; run it first")
    return found


def read_block(subject: Subject, start: Sequence[int], end: Sequence[int], every: Sequence[int]) -> NDArray[Any]:
    """Return the cells start * every <= cell < end * every along each axis, as float32. Only every `every`-th cell is
    returned. If the subject has snapshots, the first axis is the number of the snapshot. Raises ValueError if the block
    is too large or outside the values, or if the cells cannot be read."""
    import numpy as np

    shape = _whole_shape(subject)
    if not len(start) == len(end) == len(every) == len(shape) or min(every) < 1:
        raise ValueError("the block has a wrong number of axes")
    last = [-(-n // step) for n, step in zip(shape, every, strict=True)]
    if any(not 0 <= one < two <= n for one, two, n in zip(start, end, last, strict=True)):
        raise ValueError("the block is outside the values")
    if np.prod([two - one for one, two in zip(start, end, strict=True)], dtype=float) > MAX_BLOCK_CELLS:
        raise ValueError(f"the block has more than {MAX_BLOCK_CELLS} cells")
    ranges = [range(one * step, min(two * step, n), step)
              for one, two, step, n in zip(start, end, every, shape, strict=True)]  # fmt: skip
    cells = tuple(slice(one.start, one.stop, one.step) for one in ranges[-len(subject.axes) :])
    numbers = ranges[0] if len(shape) > len(subject.axes) else range(1)
    try:
        found = [subject.frames[number].read(cells) for number in numbers]
    except OutcropError as error:
        raise ValueError(str(error)) from None
    result: NDArray[Any] = np.stack(found).astype(np.float32, copy=False)
    return result if len(shape) > len(subject.axes) else result[0]


def _whole_shape(subject: Subject) -> tuple[int, ...]:
    """Return the number of cells along each axis of the subject. If the subject has snapshots, the number of snapshots
    comes first."""
    return (len(subject.frames), *subject.shape) if subject.every else subject.shape


def _source(neuroglancer: Any, subject: Subject, turn: threading.Lock) -> tuple[Any, Any]:
    """Return a data source of Neuroglancer that reads cells of the subject. Also return the volume of this source.
    Threads of the server take turns, because only one thread may read a run at a time."""
    import numpy as np

    class Cells(neuroglancer.LocalVolume):  # type: ignore[misc]
        def get_encoded_subvolume(self, data_format: str, start: Any, end: Any, scale_key: str) -> tuple[bytes, str]:
            with turn:
                block = read_block(subject, start.tolist(), end.tolist(), [int(one) for one in scale_key.split(",")])
            if data_format != "npz":
                raise ValueError("the format of a block is npz")
            file = io.BytesIO()
            np.save(file, np.asfortranarray(block))
            return zlib.compress(file.getvalue(), level=1), "application/octet-stream"

    names, units, scales = _space_of(subject)
    # Neuroglancer counts positions from the lower side of the first cell, and Outcrop from its centre
    begins = [axis.origin / axis.spacing - 0.5 for axis in subject.axes]
    signs = [1] * len(begins)
    if subject.every:
        # Devito's equations can run backward in time
        first, way = subject.frames[0].step, -1 if subject.frames[-1].step < subject.frames[0].step else 1
        begins, signs = [first / scales[0] - 0.5 * way, *begins], [way, *signs]
    space = neuroglancer.CoordinateSpace(names=names, units=units, scales=scales)
    empty = np.broadcast_to(np.zeros((), subject.dtype), _whole_shape(subject))  # only its shape and dtype are used
    # Blocks are one plane thick. Such blocks are best for slices, because a plane is contiguous on disk. Without a
    # limit on the number of resolutions, the browser would draw no slice through one of the axes.
    resolutions = 1 + max(0, math.ceil(math.log2(max(subject.shape) / COARSEST_CELLS)))
    cells = Cells(empty, dimensions=space, downsampling="2d", max_downsampling=float("inf"), volume_type="image",
                  max_downsampling_scales=resolutions)  # fmt: skip
    matrix = np.hstack([np.diag(signs), np.array(begins)[:, None]])
    transform = neuroglancer.CoordinateSpaceTransform(output_dimensions=space, matrix=matrix)
    return neuroglancer.LayerDataSource(url=cells, transform=transform), cells


def _space_of(subject: Subject) -> tuple[list[str], list[str], list[float]]:
    """For each axis of the subject, return the name, the unit, and the distance between two values. For snapshots, the
    first axis is the step of the run."""
    found = [_in_si(axis.units) for axis in subject.axes]
    names, units = [axis.name for axis in subject.axes], [unit for unit, _ in found]
    scales = [axis.spacing * factor for axis, (_, factor) in zip(subject.axes, found, strict=True)]
    if subject.every:
        names, units, scales = [STEP, *names], ["", *units], [float(subject.every), *scales]
    return names, units, scales


def _in_si(units: str) -> tuple[str, float]:
    """Return the SI unit without prefix, and the factor of the prefix. For example, "km" gives "m" and 1000.
    Neuroglancer knows only SI units, so the result for all other units is "" and 1."""
    for unit in SI_UNITS:
        if units.endswith(unit) and (factor := PREFIXES.get(units.removesuffix(unit))) is not None:
            return unit, factor
    return "", 1.0


def shader_of(subject: Subject, found: Range) -> str:
    """Return the program that colours the cells in the browser, with the colours of `outcrop plot`. This function first
    extends the range `found` to values of the newest frame. The colours are for the extended range."""
    import numpy as np
    from matplotlib import colormaps

    for axis in range(len(subject.axes)):
        index = [slice(None, None, -(-n // SAMPLED)) for n in subject.shape]
        found.include(subject.frames[-1].read((*index[:axis], subject.shape[axis] // 2, *index[axis + 1 :])))
    scale = Scale.of(found, None, "auto")
    high = scale.high if scale.high > scale.low else scale.low + 1.0
    colors = [f"vec3({red:.3f}, {green:.3f}, {blue:.3f})"
              for red, green, blue, _ in colormaps[scale.colors](np.linspace(0, 1, COLORS))]  # fmt: skip
    table = ",\n  ".join(colors)
    return (
        f"#uicontrol invlerp normalized(range=[{scale.low:g}, {high:g}])\n"
        f"const vec3 colors[{COLORS}] = vec3[{COLORS}](\n  {table});\n"
        f"void main() {{\n  float place = clamp(normalized(), 0.0, 1.0) * {COLORS - 1}.0;\n"
        f"  int first = min(int(place), {COLORS - 2});\n"
        "  emitRGB(mix(colors[first], colors[first + 1], place - float(first)));\n}\n"
    )
