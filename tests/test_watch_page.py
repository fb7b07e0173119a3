"""Check how the live page of `outcrop watch` fits into a terminal, and what the page in a browser says about slices."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import outcrop as oc
from outcrop.cli import watch as page_module
from outcrop.cli.watch_web import make_server
from outcrop.run.watch import Watcher


@pytest.mark.parametrize("columns", [80, 40])
def test_a_narrow_terminal_shows_the_whole_command(columns: int) -> None:
    """Checks that the live page wraps the status, and cuts or breaks no word of the command."""
    text = "  status    interrupted: step 8 of 20; continue it with: outcrop resume small-shot.oc --memory 16MiB"
    lines = page_module._wrapped(text, columns)
    assert len(lines) > 1 and max(map(len, lines)) <= columns
    assert " ".join(" ".join(lines).split()) == " ".join(text.split())
    bar = "  progress  " + "#" * 100
    assert page_module._wrapped(bar, columns) == [bar]


def test_the_browser_names_the_cell_of_the_grid(tmp_path: Path) -> None:
    """Checks the text about slices of a field, of snapshots of a box, and of coarse snapshots."""
    where, box = tmp_path / "run.oc", (slice(2, 10), slice(None), slice(4, 16))
    kept = [oc.Snapshots(2, box=box, name="box"), oc.Snapshots(2, box=box, coarsen=4, name="coarse")]
    sim = oc.Simulation("heat2", (14, 9, 20), directory=where, memory="1MiB", snapshots=kept)
    sim["u"] = "random:1"
    sim.run(4, progress="none")

    server = make_server(page_module.Follower(Watcher(where).look), 1.0, 0)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        address = f"http://127.0.0.1:{server.server_port}/slice.png?name="
        for name, cut, text in (
            ("u", "z=3", "u at step 4, z = 3: "),
            ("snapshots%20box/u", "z=3", "snapshot of box/u at step 4, z = 5: "),
            ("snapshots%20box/u", "x=0", "snapshot of box/u at step 4, x = 4: "),
            ("snapshots%20coarse/u", "x=1", "snapshot of coarse/u at step 4, x = 9.5: "),
        ):
            with urllib.request.urlopen(f"{address}{name}&slice={cut}", timeout=30) as answer:
                assert answer.headers["X-Outcrop-About"].startswith(text)
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(f"{address}snapshots%20box/u&slice=z=8", timeout=30)
        assert "z goes from 0 to 7, because --slice counts the cells of the box: index 0 is at z = 2" in (
            error.value.read().decode()
        )
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
