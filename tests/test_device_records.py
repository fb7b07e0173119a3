"""Check the records of runs on block devices. A separate folder holds the records, and each commit covers the device
and this folder.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outcrop as oc
from images import make_image, take_images_for_devices
from outcrop.cli.main import call
from outcrop.errors import InputError, StorageError
from outcrop.run.acquisition.recorder import Recorder
from outcrop.run.device.device import Device
from shots import STEPS, assert_same, everything, make

pytestmark = pytest.mark.usefixtures("images")


def on_device(tmp_path: Path, **options: Any) -> oc.Simulation:
    device = tmp_path / "a.img"
    if not device.exists():
        make_image(device)
    return make(device, **{"raw_device": True, "records": tmp_path / "records", **options})


def test_a_run_on_a_device_keeps_what_one_in_a_directory_does(tmp_path: Path) -> None:
    """Checks that a run on a device records the same traces, norms and snapshots as a run in a directory."""
    make(tmp_path / "run.oc").run(STEPS)
    on_device(tmp_path).run(20)
    oc.open(tmp_path / "a.img").run(STEPS - 20)
    assert_same(everything(tmp_path / "a.img"), everything(tmp_path / "run.oc"))
    for folder in ("records/snapshots.zarr", "run.oc/snapshots.zarr"):
        assert (tmp_path / folder / "zarr.json").exists()
    assert (tmp_path / "records/snapshots.zarr/zarr.json").read_text() == (
        tmp_path / "run.oc/snapshots.zarr/zarr.json"
    ).read_text()


def test_info_says_where_records_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    on_device(tmp_path).run(7)
    assert call(["info", str(tmp_path / "a.img")]) == 0
    assert f"records  {tmp_path / 'records'}" in capsys.readouterr().out


@pytest.mark.parametrize("owner", [Recorder, Device])
def test_a_pass_cut_off_is_done_again(owner: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks a pass that fails. A pass that fails before its commit is repeated. A pass can also fail after its commit,
    but before it writes the list of snapshots. The list is then repaired when the run is opened again.
    """
    name = "after" if owner is Recorder else "tidy"
    sim, original, calls = on_device(tmp_path), getattr(owner, name), []

    def cut_off(*arguments: Any, **more: Any) -> Any:
        calls.append(0)
        if len(calls) == 4:
            raise StorageError("cut off")
        return original(*arguments, **more)

    monkeypatch.setattr(owner, name, cut_off)
    with pytest.raises(StorageError, match="cut off"):
        sim.run(STEPS)
    monkeypatch.undo()
    take_images_for_devices(monkeypatch.setattr)
    left = oc.open(tmp_path / "a.img")
    assert 0 < left.step < STEPS and len(left.traces["line"]) == left.step
    assert call(["resume", str(tmp_path / "a.img"), "--quiet"]) == 0
    make(tmp_path / "run.oc").run(STEPS)
    assert_same(everything(tmp_path / "a.img"), everything(tmp_path / "run.oc"))


def test_the_folder_belongs_to_its_run(tmp_path: Path) -> None:
    """Checks that `force` replaces a folder of records only together with its run."""
    on_device(tmp_path).run(7)
    with pytest.raises(InputError, match=r"records of .*a\.img; replace them with force"):
        on_device(tmp_path)
    with pytest.raises(InputError, match=r"belongs to another run, .*a\.img"):
        make(make_image(tmp_path / "b.img"), raw_device=True, records=tmp_path / "records", force=True)
    with pytest.raises(InputError, match=r"belongs to another run, .*a\.img"):
        make(tmp_path / "records", force=True)
    on_device(tmp_path, force=True, receivers=[]).run(7)
    assert not [name for name in os.listdir(tmp_path / "records/.taps") if name.startswith("trace")]
    assert len(oc.open(tmp_path / "a.img").snapshots["u"]) == 2


def test_a_folder_that_cannot_be_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    """Checks that a wrong folder of records is refused: a file, a folder with other content, or a folder of another
    run. If the run has no records, any folder of records is refused.
    """
    device = make_image(tmp_path / "a.img")
    before = device.read_bytes()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("")
    nothing: dict[str, Any] = {"sources": [], "receivers": [], "snapshots": None, "norms": None}
    for options, words in [
        ({"records": tmp_path / "full"}, r"holds something else \(mine\)"),
        ({"records": device}, "is a file"),
        (nothing, "there are no sources.*leave it out"),
        ({"records": None}, "give records=DIRECTORY"),
    ]:
        with pytest.raises(InputError, match=words):
            on_device(tmp_path, **options)
    with pytest.raises(InputError, match="keeps them there; leave it out"):
        make(tmp_path / "run.oc", records=tmp_path / "records")
    assert device.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["a.img", "full"]


def test_a_start_that_fails_leaves_no_folder(tmp_path: Path) -> None:
    """Checks that a new run and its folder of records are removed if the initial values of the run cannot be read."""
    sim = oc.Simulation(
        oc.stencils.heat(), (20, 20, 20), directory=make_image(tmp_path / "a.img"), memory="1MiB", raw_device=True,
        records=tmp_path / "new" / "records", snapshots=oc.Snapshots(2),
    )  # fmt: skip

    def fail(z0: int, z1: int) -> np.ndarray:
        raise InputError("no values")

    with pytest.raises(InputError, match="no values"):
        sim["u"] = fail
    assert os.listdir(tmp_path) == ["a.img"]


def test_records_that_are_gone_are_missed(tmp_path: Path) -> None:
    on_device(tmp_path).run(7)
    (tmp_path / "records").rename(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match=r"records, records of the run on .*a\.img, cannot be used"):
        oc.open(tmp_path / "a.img")
    (tmp_path / "elsewhere").rename(tmp_path / "records")
    assert oc.open(tmp_path / "a.img").step == 7
