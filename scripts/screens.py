"""Make the pictures of the documents, from runs of the commands that the documents describe.

    python scripts/screens.py                       make all pictures in docs/
    python scripts/screens.py watch.png view.png    make only these pictures

`PICTURES` has a function for each picture. tests/test_screens.py compares this table with the pictures in the
documents. Pictures of terminals, browsers and notebooks need Chromium with its driver, and the extra `screens`. All
pictures are reduced to 256 colours, so that the pictures together take less than 1 MB.
"""

from __future__ import annotations

import argparse
import copy
import html
import json
import os
import pty
import runpy
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

from outcrop.cli.main import call

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PACKAGES = ("nbclient", "nbconvert", "ipykernel", "pyte", "selenium")
MATHJAX = Path("/usr/share/javascript/mathjax/MathJax.js")
"""The program that draws formulas in a notebook. By default, a notebook loads this program from the network. This
script does not use the network."""
MAX_SECONDS = 120.0
"""The maximum time in seconds for which the script waits until a terminal or a page is ready for a picture."""
COLORS = 256
SCALE = 1.5
"""The number of pixels of a picture for each pixel of the page in the browser."""

SHOT = """
import sys
import numpy as np
import outcrop as oc

shape, steps, dt, h = (96, 128, 192), int(sys.argv[1]), 0.001, 10.0
seconds = np.arange(steps) * dt - 0.08
phase = (np.pi * 15.0 * seconds) ** 2
v, time_step = oc.Field("v"), oc.Parameter("dt", 0.0)
sim = oc.Simulation(
    "acoustic4", shape, directory="shot.oc", memory="16MiB", spacing=h, units="m", dt=dt, threads=1, sizes={"bt": 20},
    sources=[oc.Source("u", [200.0, 640.0, 960.0], (1 - 2 * phase) * np.exp(-phase),
                       scale=time_step**2 * v[0, 0, 0] ** 2)],
    receivers=[oc.Receivers("line", "u", [[50.0, 640.0, x] for x in np.arange(100.0, 1800.0, 25.0)])],
    snapshots=[
        oc.Snapshots(40, ["u"], box=(slice(None), slice(64, 65), slice(None)), time_units="s", name="section"),
        oc.Snapshots(20, ["u"], coarsen=2, time_units="s", name="overview"),
    ],
    norms=oc.Norms(every=10), force=True,
)
layers = np.where(np.arange(shape[0]) < 55, 2000.0, 3000.0).astype("float32")
sim.assign({"v": np.broadcast_to(layers[:, None, None], shape)})
sim.run(steps, progress="none")
"""
"""A program that computes a shot over two layers in `shot.oc`. Its argument is the number of steps."""
SHOT_STEPS, SHOWN_SHARE = 800, 0.4
"""The number of steps of the shot, and the share of these steps that are complete in each picture."""


def missing() -> str:
    """Return one line that says what to install for pictures of terminals, browsers and notebooks. The returned line is
    empty if everything is installed."""
    commands = []
    if not (shutil.which("chromium") and shutil.which("chromedriver") and MATHJAX.exists()):
        commands.append("apt-get install chromium chromium-driver libjs-mathjax")
    if not all(map(find_spec, PACKAGES)):
        commands.append("pip install -e '.[screens]'")
    return " && ".join(commands)


@contextmanager
def browser(width: int, height: int, scale: float = SCALE) -> Iterator[Any]:
    """Yield a driver of Chromium that shows no window. A page has `width` x `height` pixels, and its picture has
    `scale` times as many pixels along each side."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    flags = ("--headless=new", "--no-sandbox", "--hide-scrollbars", f"--force-device-scale-factor={scale}",
             "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader")  # fmt: skip
    for flag in flags:
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False},
        )
        yield driver
    finally:
        driver.quit()


def wait_until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + MAX_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} did not happen in {MAX_SECONDS:g} s")
        time.sleep(0.05)


def save(picture: bytes, output: Path) -> None:
    """Write a picture as PNG with few colours."""
    from PIL import Image

    with Image.open(BytesIO(picture)) as image:
        few = image.convert("RGB").quantize(COLORS, kmeans=1, dither=Image.Dither.NONE)
        few.save(output, optimize=True)


def command(*words: str) -> None:
    assert call(list(words)) == 0, words


@contextmanager
def running_shot(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Compute the shot in `folder` as long as the body of the `with` runs."""
    process = subprocess.Popen([sys.executable, "-c", SHOT, str(SHOT_STEPS)], cwd=folder)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def finished_shot() -> Iterator[Path]:
    """Yield a folder that contains the finished shot."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", SHOT, str(round(SHOT_STEPS * SHOWN_SHARE))], cwd=folder, check=True)
        yield Path(folder)


# --- terminals -------------------------------------------------------------------------------------------------------

COLUMNS, LINES = 124, 40
TERMINAL = """<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; display: inline-block; background: #1d1f21; color: #d8dad6; }}
pre {{ font: 14px/1.25 "DejaVu Sans Mono", monospace; margin: 14px; }} b {{ color: #8abeb7; font-weight: normal; }}
</style><pre><b>$ {command}</b>
{text}</pre>"""


def watch(output: Path) -> None:
    import pyte

    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    with tempfile.TemporaryDirectory() as folder, running_shot(Path(folder)):
        main, end = pty.openpty()
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(LINES),
                       "PYTHONUTF8": "1"}  # fmt: skip
        words = [sys.executable, "-m", "outcrop.cli.main", "watch", "shot.oc", "--interval", "0.2"]
        watcher = subprocess.Popen(words, cwd=folder, stdout=end, env=environment)
        os.close(end)

        def is_far_enough() -> bool:
            if select.select([main], [], [], 0.1)[0]:
                stream.feed(os.read(main, 1 << 16))
            return share_in(screen.display) >= SHOWN_SHARE

        try:
            wait_until(is_far_enough, "40 % of the run")
        finally:
            watcher.kill()
            watcher.wait()
            os.close(main)
    text = "\n".join(line.rstrip() for line in screen.display).strip("\n")
    photograph_terminal("outcrop watch shot.oc", text, output)


def share_in(lines: list[str]) -> float:
    """Return the share of finished work that the line `progress` of the page shows, or 0 if the page has no such line.
    """
    for line in lines:
        if line.startswith("  progress") and "%" in line:
            return float(line.split("%")[0].split()[-1]) / 100
    return 0.0


def photograph_terminal(command: str, text: str, output: Path) -> None:
    with tempfile.TemporaryDirectory() as folder, browser(1200, 600) as driver:
        page = Path(folder) / "terminal.html"
        page.write_text(TERMINAL.format(command=html.escape(command), text=html.escape(text)))
        driver.get(page.as_uri())
        save(driver.find_element("tag name", "body").screenshot_as_png, output)


# --- pages in a browser ----------------------------------------------------------------------------------------------


@contextmanager
def served(folder: Path, *words: str) -> Iterator[str]:
    """Start a command that serves a page, and yield the address of this page."""
    process = subprocess.Popen([sys.executable, "-m", "outcrop.cli.main", *words], cwd=folder, stdout=subprocess.PIPE,
                               text=True, env={**os.environ, "PYTHONUTF8": "1"})  # fmt: skip
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if "http://" in line:
                yield "http://" + line.split("http://")[1].split()[0]
                break
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def watch_web(output: Path) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        browser(1080, 1120) as driver,
        running_shot(Path(folder)) as run,
        served(Path(folder), "watch", "shot.oc", "--web", "--interval", "0.5") as address,
    ):
        driver.get(address)
        bar = driver.find_element("id", "bar")
        wait_until(lambda: float(bar.get_property("value")) >= SHOWN_SHARE, "40 % of the run")
        run.send_signal(signal.SIGSTOP)  # so that the slice of this step is drawn before the next step
        time.sleep(3)
        run.send_signal(signal.SIGCONT)
        save(driver.get_screenshot_as_png(), output)


def view(output: Path) -> None:
    with finished_shot() as folder, browser(1280, 760, 1.0) as driver, served(folder, "view", "shot.oc") as address:
        driver.get(address)
        wait_until(lambda: driver.execute_script("return window.viewer?.isReady()"), "the slices")
        time.sleep(2)
        save(driver.get_screenshot_as_png(), output)


# --- notebook --------------------------------------------------------------------------------------------------------

CELLS = (
    "import outcrop as oc\n\nheat = oc.stencils.heat(ndim=3)\nheat",
    'sim = oc.Simulation(heat, shape=(256, 192, 192), directory="run.oc", memory="16MiB")\nsim["u"] = "gaussian"\nsim',
    "sim.run(steps=100)",
    "sim.run(steps=1000)",
)


def notebook(output: Path) -> None:
    """Draw a notebook while it computes its last cell."""
    import nbformat
    from nbclient import NotebookClient
    from nbconvert import HTMLExporter

    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(one) for one in CELLS])
    with tempfile.TemporaryDirectory() as folder, browser(900, 1200) as driver:
        client = NotebookClient(book, resources={"metadata": {"path": folder}}, timeout=None)
        worker = threading.Thread(target=client.execute)
        worker.start()
        try:
            wait_until(lambda: bar_of(book.cells[-1]) >= SHOWN_SHARE or not worker.is_alive(), "40 % of the last cell")
            shown = copy.deepcopy(book)
        finally:
            worker.join()
        page = Path(folder) / "notebook.html"
        page.write_text(HTMLExporter(mathjax_url=f"{MATHJAX.as_uri()}?config=TeX-AMS_HTML").from_notebook_node(shown)[0])
        driver.get(page.as_uri())
        wait_until(lambda: driver.find_elements("class name", "MathJax"), "the formula")
        time.sleep(1)
        save(driver.find_element("tag name", "main").screenshot_as_png, output)


def bar_of(cell: Any) -> float:
    """Return the value of the progress bar in the output of a cell, or 0 if there is no bar."""
    for one in cell.outputs:
        content = one.get("data", {}).get("text/html", "")
        if "<progress" in content:
            return float(content.split("value='")[1].split("'")[0])
    return 0.0


# --- files of commands and scripts -----------------------------------------------------------------------------------


def plan(output: Path) -> None:
    words = "heat7 -n 1024 1024 4096 -t 500 --memory 512MiB --machine crest6 --draw"
    command("plan", *words.split(), str(output))
    save(output.read_bytes(), output)


def slices(output: Path) -> None:
    with finished_shot() as folder:
        command("plot", str(folder / "shot.oc"), "--slice", "z=5,20,70", "--slice", "y=64", "--limits=-0.15,0.15", "-o",
                str(output))  # fmt: skip
    save(output.read_bytes(), output)


def wave(output: Path) -> None:
    with finished_shot() as folder:
        command("plot", str(folder / "shot.oc"), "--snapshots", "section", "--slice", "y=0", "--limits=-0.15,0.15",
                "--fps", "5", "--gif", str(output))  # fmt: skip


def ladder(output: Path) -> None:
    """Draw the stored figures of the ladder. A measurement takes 12 minutes, and needs a machine without other work."""
    from outcrop.bench.literature.ladder import draw

    draw(json.loads((DOCS / "benchmarks" / "ladder.json").read_text()), output)
    save(output.read_bytes(), output)


def wavefront(output: Path) -> None:
    subprocess.run([sys.executable, str(ROOT / "scripts" / "draw_wavefront.py"), str(output)], check=True)


def of_page(page: str, name: str, output: Path) -> None:
    """Run the Python blocks of a page, and save the picture `name`, which these blocks write, in `output`."""
    blocks = runpy.run_path(str(ROOT / "scripts" / "outputs.py"))["blocks"](DOCS / page)
    program = "\n".join("\n".join(lines) for language, _, lines in blocks if language == "python")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", program], cwd=folder, check=True)
        save((Path(folder) / name).read_bytes(), output)


PICTURES: dict[str, Callable[[Path], None]] = {
    "first-shot.png": partial(of_page, "tutorials/first-run.md", "shot.png"),
    "ladder.png": ladder,
    "notebook.png": notebook,
    "plan.png": plan,
    "sections.png": partial(of_page, "tutorials/terabyte.md", "sections.png"),
    "slices.png": slices,
    "view.png": view,
    "watch-web.png": watch_web,
    "watch.png": watch,
    "wave.gif": wave,
    "wavefront.svg": wavefront,
}
"""The pictures in docs/, and the functions that make them."""
NEED_BROWSER = ("notebook.png", "view.png", "watch-web.png", "watch.png")


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the pictures of the documents.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(PICTURES)} [default: all]")
    names = parser.parse_args().names or list(PICTURES)
    if unknown := [name for name in names if name not in PICTURES]:
        parser.error(f"there is no picture {', '.join(unknown)}; there are: {', '.join(PICTURES)}")
    if (lacks := missing()) and (in_browser := [name for name in names if name in NEED_BROWSER]):
        print(f"{', '.join(in_browser)}: left out; to make them: {lacks}", file=sys.stderr)
        names = [name for name in names if name not in in_browser]
    for name in names:
        PICTURES[name](DOCS / name)
        print(f"{name}: {(DOCS / name).stat().st_size} bytes", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
