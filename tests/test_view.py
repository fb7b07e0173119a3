"""Check the server of `outcrop view` with an HTTP client: the cells, and that nothing else can be read."""

from __future__ import annotations

import io
import json
import runpy
import socket
import sys
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outcrop as oc
from outcrop.cli import view
from outcrop.cli.main import call
from outcrop.cli.subject import Subject, of_field
from outcrop.errors import InputError

SCREENS = runpy.run_path(str(Path(__file__).parent.parent / "scripts" / "screens.py"))
needs_neuroglancer = pytest.mark.skipif(not find_spec("neuroglancer"), reason="needs neuroglancer")
SHAPE = (12, 10, 16)


def make(where: Path, **options: Any) -> oc.Simulation:
    sim = oc.Simulation(
        "acoustic4", SHAPE, directory=where, memory="1MiB", threads=1, spacing=(5.0, 10.0, 10.0), units="km",
        params={"h": 10.0},
        **{"snapshots": [oc.Snapshots(2), oc.Snapshots(3, coarsen=4, name="coarse", initial=False)], **options},
    )  # fmt: skip
    sim.assign({"u": "random:1", "v": 1500.0})
    sim.run(6)
    return sim


class Client:
    """A client of a server."""

    def __init__(self, server: view.Server) -> None:
        self.base, self.token = server.address.rstrip("/").split("/v/")
        with server._viewer.txn() as state:
            urls = {one.name: str(one.layer.source[0].url) for one in state.layers}
        self.keys = {name: url.rpartition("/")[2] for name, url in urls.items()}

    def get(self, path: str) -> tuple[int, bytes]:
        try:
            with urllib.request.urlopen(f"{self.base}/{path}", timeout=20) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def cells(self, name: str, every: str, start: str, end: str) -> np.ndarray:
        status, data = self.get(f"neuroglancer/npz/{self.keys[name]}/{every}/{start}/{end}")
        assert status == 200
        return np.load(io.BytesIO(zlib.decompress(data)))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[oc.Simulation, Client]]:
    sim = make(tmp_path / "run.oc")
    server = view.Server(tmp_path / "run.oc")
    try:
        yield sim, Client(server)
    finally:
        server.close()


@needs_neuroglancer
def test_a_browser_gets_the_cells_that_it_shows(served: tuple[oc.Simulation, Client]) -> None:
    """Checks that a browser gets the right blocks of arrays and snapshots, with all cells or with every k-th cell along
    an axis.
    """
    sim, client = served
    assert list(client.keys) == ["u", "v", "snapshots/u", "snapshots/coarse/u"]
    u, kept, coarse = sim["u"][...], sim.snapshots["u"][:], sim.snapshots["coarse/u"][:]
    np.testing.assert_array_equal(client.cells("u", "1,1,1", "3,0,0", "4,10,16"), u[3:4])
    np.testing.assert_array_equal(client.cells("u", "1,2,3", "5,1,1", "6,4,6"), u[5:6, 2:8:2, 3:16:3])
    np.testing.assert_array_equal(client.cells("snapshots/u", "1,4,1,1", "2,0,5,0", "3,3,6,16"), kept[2:3, ::4, 5:6])
    np.testing.assert_array_equal(client.cells("snapshots/coarse/u", "1,1,1,1", "0,0,0,0", "2,3,3,4"), coarse)
    status, data = client.get(f"neuroglancer/info/{client.keys['snapshots/coarse/u']}")
    assert status == 200 and json.loads(data)["coordinateSpace"] == {
        "step": [3.0, ""], "z": [20e3, "m"], "y": [40e3, "m"], "x": [40e3, "m"],
    }  # fmt: skip
    status, page = client.get(f"v/{client.token}/")
    assert status == 200 and b"<script" in page
    assert b"http" not in page, "the program of the browser is in the package"


@needs_neuroglancer
def test_new_commits_are_followed(tmp_path: Path) -> None:
    """Checks that the server shows the arrays and snapshots of further steps, and moves the position to the newest
    snapshot. The server must not change the shader and the layers that the user has chosen, or a position at another
    snapshot than the newest.
    """
    sim = make(tmp_path / "run.oc", snapshots=[oc.Snapshots(2), oc.Snapshots(8, name="rare", initial=False)])
    server = view.Server(tmp_path / "run.oc")
    try:
        client = Client(server)
        assert list(client.keys) == ["u", "v", "snapshots/u"] and not server.follow()
        assert server._viewer.state.position.tolist() == [8, 5, 6, 3]  # x, y, z and step 6, in units of 2 steps
        old = client.cells("u", "1,1,1", "3,0,0", "4,10,16")
        sim.run(2)
        assert server.follow() and not server.follow()
        now = Client(server)
        assert server.names == list(now.keys) == ["u", "v", "snapshots/u", "snapshots/rare/u"]
        assert (now.keys["u"], now.keys["v"]) == (client.keys["u"], client.keys["v"])
        assert now.keys["snapshots/u"] != client.keys["snapshots/u"]
        found = now.cells("u", "1,1,1", "3,0,0", "4,10,16")
        np.testing.assert_array_equal(found, sim["u"][3:4])
        assert not np.array_equal(found, old)
        np.testing.assert_array_equal(
            now.cells("snapshots/u", "1,1,1,1", "4,0,0,0", "5,12,10,16"), sim.snapshots["u"][4:]
        )
        assert server._viewer.state.position.tolist() == [8, 5, 6, 4]
        with server._viewer.txn() as state:
            state.position = [1, 2, 3, 1]
            state.layers["snapshots/u"].layer.shader = "mine"
            del state.layers["v"]
        sim.run(2)
        assert server.follow()
        state = server._viewer.state
        assert state.position.tolist() == [1, 2, 3, 1] and state.layers["snapshots/u"].layer.shader == "mine"
        assert [one.name for one in state.layers] == ["u", "snapshots/u", "snapshots/rare/u"]
        last = Client(server)
        assert json.loads(last.get(f"neuroglancer/info/{last.keys['snapshots/u']}")[1])["shape"] == [6, *SHAPE]
        make(tmp_path / "run.oc", force=True)
        with pytest.raises(InputError, match="now holds another run"):
            server.follow()
    finally:
        server.close()


@needs_neuroglancer
def test_the_first_snapshots_appear(tmp_path: Path) -> None:
    """Checks a run without snapshots at the start of the server. The server must show the first snapshots later."""
    sim = make(tmp_path / "run.oc", snapshots=oc.Snapshots(8, initial=False))
    server = view.Server(tmp_path / "run.oc")
    try:
        assert server.names == ["u", "v"]
        sim.run(3)
        assert server.follow() and server.names == ["u", "v", "snapshots/u"]
        state = server._viewer.state
        assert list(state.dimensions.names) == ["x", "y", "z", "step"] and state.position.tolist() == [8, 5, 6, 1]
    finally:
        server.close()


@needs_neuroglancer
@pytest.mark.skipif(bool(SCREENS["missing"]()), reason=f"a browser is missing: {SCREENS['missing']()}")
def test_a_browser_draws_all_slices_and_follows_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks a grid with one long axis in Chromium. The browser must ask for slices through each axis, and for new
    snapshots."""
    asked: list[tuple[str, list[int], list[int]]] = []
    read = view.read_block

    def record(subject: Subject, start: Sequence[int], end: Sequence[int], every: Sequence[int]) -> Any:
        asked.append((subject.label, list(start), list(end)))
        return read(subject, start, end, every)

    monkeypatch.setattr(view, "read_block", record)
    kept = oc.Snapshots(2)
    sim = oc.Simulation("heat2", (96, 128, 192), directory=tmp_path / "run.oc", memory="4MiB", snapshots=kept)
    sim["u"] = "gaussian"
    sim.run(4)
    server = view.Server(tmp_path / "run.oc")
    try:
        with SCREENS["browser"](900, 700) as driver:
            driver.get(server.address)

            def is_drawn(axis: int) -> bool:
                return any(name == "u" and end[axis] - start[axis] == 1 for name, start, end in asked)

            SCREENS["wait_until"](lambda: all(map(is_drawn, range(3))), "requests for three slices")
            with server._viewer.txn() as state:
                for one in state.layers:
                    one.visible = one.name == "snapshots/u"
            for number in (2, 3, 4):
                SCREENS["wait_until"](
                    lambda number=number: any(
                        name == "snapshots/u" and start[0] <= number < end[0] for name, start, end in asked
                    ),
                    f"a request for snapshot {number}",
                )
                sim.run(2)
                assert server.follow()
    finally:
        server.close()


@needs_neuroglancer
def test_nothing_else_is_served(served: tuple[oc.Simulation, Client], tmp_path: Path) -> None:
    """Checks that the server refuses wrong tokens, paths to files that are not part of the page, and wrong blocks. The
    server must not follow a link that has replaced a file of the run."""
    sim, client = served
    key, secret = client.keys["u"], tmp_path / "secret"
    assert client.base.startswith("http://127.0.0.1:")
    viewer, _, volume = key.partition(".")
    for wrong in (f"{viewer}.{viewer}", f"{volume}.{volume}", f"{viewer[:-1]}.{volume}", "."):
        assert client.get(f"neuroglancer/info/{wrong}")[0] == 404
        assert client.get(f"neuroglancer/npz/{wrong}/1,1,1/0,0,0/1,1,1")[0] == 404
    assert client.get(f"v/{volume}/")[0] == 404
    secret.write_bytes(b"secret")
    for path in ("", "run.oc/manifest.json", f"v/{client.token}/../secret", f"v/{client.token}/{secret}",
                 f"v/{client.token}/%2e%2e/%2e%2e/secret", f"v/{client.token}/..%2f..%2fsecret"):  # fmt: skip
        assert client.get(path)[0] == 404
    block = f"neuroglancer/npz/{key}"
    for wrong in ("1,1,1/0,0,0/13,1,1", "1,1,1/0,0,0/0,1,1", "0,1,1/0,0,0/1,1,1", "1,1/0,0/1,1", "x,1,1/0,0,0/1,1,1",
                  "1,1,1,1/0,0,0,0/1,1,1,1", "1,1,1/0,0,0/1,1,99999999999"):  # fmt: skip
        assert client.get(f"{block}/{wrong}")[0] == 400
    assert client.get(block.replace("npz", "raw") + "/1,1,1/0,0,0/1,1,1")[0] == 400
    (shard,) = (sim.directory / f".u.{sim.reader().manifest.current}").rglob("c/0/0/0")  # type: ignore[union-attr]
    shard.rename(tmp_path / "elsewhere")
    shard.symlink_to(tmp_path / "elsewhere")
    assert client.get(f"{block}/1,1,1/0,0,0/1,10,16")[0] == 400


@needs_neuroglancer
def test_the_command_serves_until_it_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that the command prints the address, and ends without an error after Ctrl-C."""
    make(tmp_path / "run.oc", snapshots=None)
    said: list[str] = []

    def interrupt(seconds: float) -> None:
        said.extend(capsys.readouterr().out.splitlines())
        with urllib.request.urlopen(said[-1], timeout=20) as answer:
            assert answer.status == 200
        raise KeyboardInterrupt

    monkeypatch.setattr(view.time, "sleep", interrupt)
    assert call(["view", str(tmp_path / "run.oc")]) == 0
    assert said[0].endswith("run.oc: u, v")
    with pytest.raises(OSError):
        urllib.request.urlopen(said[-1], timeout=5)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        assert call(["view", str(tmp_path / "run.oc"), "--port", port]) == 2
        assert f"outcrop: --port {port}: no server can use this port: " in capsys.readouterr().err


def test_what_cannot_be_shown_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*words: str) -> str:
        assert call(["view", *words]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        return said

    assert "--port 70000: give a number from 0 to 65535" in refused("run.oc", "--port", "70000")
    monkeypatch.setitem(sys.modules, "neuroglancer", None)
    assert 'pip install "outcrop[view]"' in refused("run.oc")
    monkeypatch.undo()
    if find_spec("neuroglancer"):
        assert "holds no Outcrop run" in refused(str(tmp_path))
        line = oc.Simulation("heat2_1d", (50,), directory=tmp_path / "line.oc", memory="1MiB")
        line["u"] = 1.0
        assert "grids of two and three axes" in refused(str(tmp_path / "line.oc"))


def test_blocks_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that one request cannot need much memory, and that float64 is sent as float32."""
    sim = oc.Simulation("heat2_2d", (30, 20), dtype="float64", directory=tmp_path / "run.oc", memory="1MiB")
    sim["u"] = "random:1"
    subject = of_field(sim, "u")
    block = view.read_block(subject, [1, 0], [10, 5], [3, 4])
    assert block.dtype == np.float32
    np.testing.assert_array_equal(block, sim["u"][3:30:3, ::4].astype(np.float32))
    monkeypatch.setattr(view, "MAX_BLOCK_CELLS", 100)
    with pytest.raises(ValueError, match="more than 100 cells"):
        view.read_block(subject, [0, 0], [30, 20], [1, 1])


@pytest.mark.parametrize(
    ("units", "known"),
    [
        ("m", ("m", 1.0)),
        ("km", ("m", 1e3)),
        ("ms", ("s", 1e-3)),
        ("µm", ("m", 1e-6)),
        ("ft", ("", 1.0)),
        ("", ("", 1.0)),
    ],
)
def test_units_have_the_form_of_neuroglancer(units: str, known: tuple[str, float]) -> None:
    assert view._in_si(units) == known
