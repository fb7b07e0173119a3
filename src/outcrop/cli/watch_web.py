"""`outcrop watch --web`: the page about a run in a browser, on 127.0.0.1 only.

    /             the page, which asks for the two other addresses again and again
    /watch.js     the program of the page
    /status.json  the last glance at the run
    /slice.png    a slice of a snapshot, or of the committed values of a field

The page of a run is for one user of this computer. The server answers only requests that name 127.0.0.1 or localhost.
Therefore a page of another server cannot read the run through the user's browser. The directory of the run is not
trusted, so the page never treats names and texts of the run as HTML.
"""

from __future__ import annotations

import json
import math
import threading
import time
from dataclasses import asdict
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
from numpy.typing import NDArray

from outcrop.cli.picture import NOT_FINITE, Range, Scale, default_cut, parse_slices
from outcrop.cli.subject import Subject, of_field, of_snapshots
from outcrop.cli.watch import MAX_CURVE_COLUMNS, Follower, page
from outcrop.errors import InputError, OutcropError

if TYPE_CHECKING:
    from outcrop.run.simulation import Simulation
    from outcrop.run.watch import Glance, Watcher

ADDRESS = "127.0.0.1"
MAX_PIXELS = 1024
"""The maximum number of cells along a side of a picture. On a longer side, only every second, third, ... cell is
drawn."""
LINE_PIXELS = 64
"""The height of the picture of a grid with one axis."""
BAR_COLORS = 17
"""The number of colours that the page gets for its colour bar."""

MAX_PORT = (1 << 16) - 1
REQUEST_SECONDS = 30.0

_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; connect-src 'self'; img-src blob:; script-src 'self'; "
    "style-src 'unsafe-inline'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def serve(watcher: Watcher, interval: float, port: int) -> None:
    """Serve the page until Ctrl-C. If `port` is 0, the system chooses a free port. Raises InputError if the port cannot
    be used."""
    if not 0 <= port <= MAX_PORT:
        raise InputError(f"--port {port}: give 1 to {MAX_PORT}, or leave it out")
    follower = Follower(partial(watcher.look, MAX_CURVE_COLUMNS))
    with make_server(follower, interval, port) as server:
        thread = threading.Thread(target=server.serve_forever, name="outcrop-web", daemon=True)
        thread.start()
        print(f"{watcher.place}: http://{ADDRESS}:{server.server_port}/ (Ctrl-C ends this page, and not the run)",
              flush=True)  # fmt: skip
        try:
            while True:
                time.sleep(interval)
                follower.look()
        except KeyboardInterrupt:
            print()
        finally:
            server.shutdown()


def make_server(follower: Follower, interval: float, port: int) -> ThreadingHTTPServer:
    """Return a server of the page. The returned server listens, but does not answer yet. Raises InputError if the port
    cannot be used."""
    handler = type("Handler", (_Handler,), {"follower": follower, "interval": interval, "turn": threading.Lock()})
    try:
        return ThreadingHTTPServer((ADDRESS, port), handler)
    except OSError as error:
        raise InputError(f"--port {port} cannot be used: {error.strerror}; give another, or leave it out") from None


def status(follower: Follower, interval: float) -> dict[str, Any]:
    """Return the last glance at the run as plain data."""
    now = follower.now
    return {
        "where": str(now.place),
        "status": now.status,
        "note": now.note,
        "problem": follower.problem,
        "step": now.step,
        "target_step": now.run.target_step if now.run else 0,
        "steps_of_parts": list(now.steps),
        "fraction": now.fraction,
        "seconds_left": now.seconds_left,
        "seconds_since_commit": now.age,
        "pace": asdict(now.pace) if now.pace else None,
        "traces": [asdict(one) | {"envelope": _numbers(one.envelope)} for one in now.traces],
        "norms": [{"field": one.field, "problem": one.problem, **_columns(one.rows)} for one in now.norms],
        "slices": _slices(now),
        "page": page(now, follower.earlier),
        "interval_seconds": interval,
    }


def _columns(rows: NDArray[np.void] | None) -> dict[str, list[float | None]]:
    if rows is None:
        return {}
    lengths = np.sqrt(np.maximum(rows["squares"], 0.0))
    return {"l2": _numbers(lengths), **{name: _numbers(rows[name]) for name in ("step", "sum", "min", "max")}}


def _numbers(values: Any) -> list[float | None]:
    """Return the values as numbers for JSON. JSON has no NaN and no infinity, so NaN and infinity become None."""
    return [float(one) if math.isfinite(one) else None for one in values]


def _slices(now: Glance) -> list[dict[str, Any]]:
    """Return the arrays that the page can show in slices: first the snapshots, then the fields. The committed values of
    a run in place are left out, because a pass overwrites them."""
    run = now.run
    if run is None or not run.filled:
        return []

    def slices_of(name: str, shape: tuple[int, ...], count: int) -> dict[str, Any]:
        sizes = dict(zip(run.axis_names, shape, strict=True))
        cut = default_cut(sizes)[0] if len(sizes) == 3 else ""
        return {"name": name, "shape": list(shape), "count": count, "axes": list(sizes), "cut": cut}

    found = [
        slices_of(f"snapshots {entry.prefix}{field}", entry.shape, entry.count(run.step))
        for entry in run.taps.snapshots
        if not entry.is_history and entry.count(run.step)
        for field in entry.fields
    ]
    names = [one.name for one in run.arrays if one.name in run.filled and (one.is_static or not run.in_place)]
    return found + [slices_of(name, run.own_shape, 1) for name in names]


def draw_slice(place: Path, name: str, cut: str | None) -> tuple[bytes, str, str]:
    """Return a slice as PNG, a text that describes the slice, and the colours of its colour bar, from the lowest to the
    highest value. The slice has the same colours as in `outcrop plot`. `name` is a name of `_slices`. `cut` has the
    form "z=256", and counts the cells of a box. In the returned text, the position of the slice is a cell of the grid.
    Without `cut`, return the default slice of `outcrop plot`. If possible, only the rows of the slice are read, without
    a test of checksums. Raises InputError if `name` or `cut` is not valid."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    from outcrop.run.opening import open_run
    from outcrop.run.simulation import Simulation

    simulation = Simulation(open_run(place, {}, reads_only=True))
    subject, about = _subject(simulation, name)
    shape = subject.shape
    thinned: list[int | slice] = [slice(None, None, -(-size // MAX_PIXELS)) for size in shape]
    if len(shape) == 3:
        named = {one.name: one for one in subject.axes}
        sizes = dict(zip(named, shape, strict=True))
        axis, at = parse_slices(cut, sizes, named)[0] if cut else default_cut(sizes)
        thinned[list(sizes).index(axis)] = at
        about += f", {axis} = {named[axis].cell(at)}"
    elif cut:
        raise InputError(f"--slice {cut}: there is nothing to cut in a grid of fewer than three axes")
    values = np.asarray(subject.frames[-1].read(tuple(thinned)), np.float64)
    if values.ndim == 1:
        values = np.repeat(values[np.newaxis], LINE_PIXELS, 0)
    found = Range()
    found.include(values)
    scale = Scale.of(found, None, "auto")
    bar = " ".join(map(to_hex, colormaps[scale.colors](np.linspace(0, 1, BAR_COLORS))))
    return _as_png(values, scale), f"{about}: {scale.low:.4g} to {scale.high:.4g}", bar


def _subject(simulation: Simulation, name: str) -> tuple[Subject, str]:
    """Return the field or the snapshots with the name `name`, and a text that describes their newest values."""
    kind, _, field = name.rpartition(" ")
    if kind == "snapshots" and field in simulation.snapshots:
        if not len(simulation.snapshots[field]):
            raise InputError(f"there is no snapshot of {field} yet")
        subject = of_snapshots(simulation, field)
        when = "step" if simulation.setup.description.first_time is None else "time index"
        return subject, f"snapshot of {field} at {when} {subject.frames[-1].step}"
    if field and not kind and not simulation.setup.description.in_place:
        return of_field(simulation, field), f"{field} at step {simulation.step}"
    raise InputError(f"there is no array {name!r} in {simulation.directory}")


def _as_png(values: NDArray[np.float64], scale: Scale) -> bytes:
    """Return a picture that has a pixel for each cell. The first row of `values` is at the bottom of the picture."""
    from matplotlib import colormaps
    from matplotlib.image import imsave

    drawn = BytesIO()
    colors = colormaps[scale.colors].with_extremes(bad=NOT_FINITE)
    finite = np.ma.masked_invalid(values)
    imsave(drawn, colors(scale.norm(finite)), origin="lower", format="png")
    return drawn.getvalue()


class _Handler(BaseHTTPRequestHandler):
    """Answers the requests of one browser. Threads of the server take turns to draw slices. Therefore several requests
    need no more memory than one request, and do not read the disk at the same time."""

    follower: Follower
    interval: float
    turn: threading.Lock
    timeout = REQUEST_SECONDS
    server_version, sys_version = "outcrop", ""

    def do_GET(self) -> None:
        host = self.headers.get("Host", "")
        name, _, port = host.rpartition(":")
        if name not in (ADDRESS, "localhost") or port != str(self.server.server_port):  # type: ignore[attr-defined]
            self._answer(403, "text/plain", b"this page answers only on 127.0.0.1\n")
            return
        address = urlsplit(self.path)
        if address.path == "/":
            self._answer(200, "text/html", PAGE.encode())
        elif address.path == "/watch.js":
            self._answer(200, "text/javascript", SCRIPT.encode())
        elif address.path == "/status.json":
            self._answer(200, "application/json", json.dumps(status(self.follower, self.interval)).encode())
        elif address.path == "/slice.png":
            self._slice(address.query)
        else:
            self._answer(404, "text/plain", b"there is no such page\n")

    do_HEAD = do_GET

    def _slice(self, query: str) -> None:
        try:
            given = parse_qs(query, max_num_fields=8)
            name, cut = given.get("name", [""])[0], given.get("slice", [None])[0]
            with self.turn:
                picture, about, bar = draw_slice(self.follower.now.place, name, cut)
        except (OutcropError, ValueError, IndexError, KeyError) as error:
            self._answer(404, "text/plain", f"{error}\n".encode())
            return
        named = {"X-Outcrop-About": about.encode("ascii", "replace").decode(), "X-Outcrop-Colors": bar}
        self._answer(200, "image/png", picture, named)

    def _answer(self, code: int, kind: str, content: bytes, more: dict[str, str] | None = None) -> None:
        self.send_response(code)
        self.send_header("Content-Type", f"{kind}; charset=utf-8" if kind != "image/png" else kind)
        self.send_header("Content-Length", str(len(content)))
        for name, value in {**_HEADERS, **(more or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *words: object) -> None:
        """Print nothing, because the terminal of the server shows only the address of the page."""


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>outcrop watch</title>
<style>
body { font: 15px system-ui, sans-serif; margin: 1.5em; max-width: 70em; }
pre { background: #f4f4f4; padding: 1em; overflow-x: auto; }
progress { width: 100%; height: 1.2em; }
svg { width: 100%; height: 80px; background: #f4f4f4; }
polyline { fill: none; stroke: #26648c; stroke-width: 1; vector-effect: non-scaling-stroke; }
img { image-rendering: pixelated; min-width: 32em; max-width: 100%; border: 1px solid #ccc; }
#scale { width: 32em; display: flex; justify-content: space-between; padding-top: 1.3em; margin-bottom: 1em; }
</style></head><body>
<h1 id="where">outcrop watch</h1>
<progress id="bar" max="1" value="0"></progress>
<pre id="text"></pre>
<div id="curves"></div>
<h2>Slice</h2>
<p><select id="name"></select> <select id="axis"></select>
<input id="at" type="range" min="0" value="0"> <span id="about"></span></p>
<div id="scale"><span id="low"></span><span id="high"></span></div>
<p><img id="slice" alt=""></p>
<script src="/watch.js"></script>
</body></html>
"""

SCRIPT = """"use strict";
const get = id => document.getElementById(id);
let slices = [], shown = "";

const short = number => Number(number.toPrecision(4)).toString();

function curve(title, values) {
  const box = document.createElement("div"), head = document.createElement("h3");
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const finite = values.filter(one => one !== null), low = Math.min(...finite), high = Math.max(...finite);
  head.textContent = finite.length ? `${title}, from ${short(low)} to ${short(high)}` : title;
  box.append(head);
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  const points = values.map((one, at) => [at, one]).filter(pair => pair[1] !== null);
  line.setAttribute("points", points.map(([at, one]) =>
    `${1000 * at / Math.max(1, values.length - 1)},${95 - 90 * (one - low) / (high - low || 1)}`).join(" "));
  svg.setAttribute("viewBox", "0 0 1000 100");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.append(line);
  box.append(svg);
  return box;
}

function choose() {
  const one = slices.find(each => each.name === get("name").value);
  const isVolume = one !== undefined && one.shape.length === 3;
  get("axis").hidden = get("at").hidden = !isVolume;
  if (isVolume) {
    get("at").max = one.shape[one.axes.indexOf(get("axis").value)] - 1;
  }
  return one;
}

async function draw(isForced) {
  const one = choose();
  if (one === undefined) return;
  const cut = one.shape.length === 3 ? `&slice=${get("axis").value}=${get("at").value}` : "";
  const address = `/slice.png?name=${encodeURIComponent(one.name)}${cut}`;
  const key = `${address} ${get("bar").title}`;
  if (key === shown && !isForced) return;
  shown = key;
  const answer = await fetch(address);
  get("about").textContent = answer.ok ? answer.headers.get("X-Outcrop-About") : await answer.text();
  if (answer.ok) {
    const before = get("slice").src;
    get("slice").src = URL.createObjectURL(await answer.blob());
    if (before) URL.revokeObjectURL(before);
    const ends = get("about").textContent.split(": ").pop().split(" to ");
    [get("low").textContent, get("high").textContent] = ends;
    const colors = answer.headers.get("X-Outcrop-Colors").split(" ").join(", ");
    get("scale").style.background = `linear-gradient(to right, ${colors}) no-repeat top / 100% 1.2em`;
  }
}

function flat() {
  const one = slices.find(each => each.name === get("name").value);
  if (one !== undefined && one.shape.length === 3) {
    get("axis").replaceChildren(...one.axes.map(axis => new Option(axis)));
    get("axis").value = one.cut;
  }
  middle();
}

function middle() {
  const one = choose();
  if (one !== undefined && one.shape.length === 3) {
    get("at").value = Math.floor(one.shape[one.axes.indexOf(get("axis").value)] / 2);
  }
  draw(true);
}

async function look() {
  let wait = 1;
  try {
    const now = await (await fetch("/status.json")).json();
    wait = now.interval_seconds;
    document.title = `${(100 * now.fraction).toFixed(1)} % ${now.where}`;
    get("where").textContent = now.where;
    get("bar").value = now.fraction;
    get("bar").title = `step ${now.step}`;
    get("text").textContent = now.page.join("\\n") + (now.problem ? `\\n\\n${now.problem}` : "");
    const curves = now.traces.filter(one => one.envelope.length).map(one =>
      curve(`trace ${one.name} of ${one.field}: largest absolute value`, one.envelope));
    const norms = now.norms.filter(one => one.l2 && one.l2.length);
    curves.push(...norms.map(one => curve(`L2 norm of ${one.field}`, one.l2)));
    get("curves").replaceChildren(...curves);
    const names = now.slices.map(one => one.name).join("\\n");
    const isNew = names !== slices.map(one => one.name).join("\\n");
    slices = now.slices;
    if (isNew) {
      get("name").replaceChildren(...slices.map(one => new Option(one.name)));
      flat();
    } else {
      draw(false);
    }
  } catch (error) {
    get("text").textContent = `outcrop watch does not answer any more: ${error.message}`;
  }
  setTimeout(look, 1000 * wait);
}

get("name").onchange = flat;
get("axis").onchange = middle;
get("at").oninput = () => draw(true);
look();
"""
