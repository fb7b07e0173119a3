"""Check that the header of a device is always complete or absent, even after a power failure."""

import os
from pathlib import Path

import numpy as np
import pytest

import outcrop as oc
from images import SHAPE, create, make_image, put, take_images_for_devices
from outcrop.errors import InputError, StorageError
from outcrop.language.symbols import Signal
from outcrop.run.device import device as device_module
from outcrop.run.device.device import RUN, SLOT_OFFSETS, Device, Header
from outcrop.run.places import open_state

pytestmark = pytest.mark.usefixtures("images")



def test_a_description_longer_than_a_slot_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    """Checks that a manifest that is too long for the header is refused before anything is written."""
    u, w = oc.Field("u"), Signal("w")
    device = make_image(tmp_path / "a.img")
    before = device.read_bytes()
    with pytest.raises(InputError, match="a device has room for 1048576"):
        oc.Simulation(
            oc.Stencil("pushed", {u: u[0, 0, 0] + w}), SHAPE, directory=device, memory="512KiB", raw_device=True,
            signals={"w": np.ones(200_000)},
        )  # fmt: skip
    assert device.read_bytes() == before


def test_a_torn_commit_leaves_the_manifest_before_it(tmp_path: Path) -> None:
    """Checks a power failure after each sector of a commit. The previous generation must then be valid."""
    device = make_image(tmp_path / "a.img")
    state = create(device)
    for step in (0, 3, 5):
        state.commit(step)
    before = device.read_bytes()
    state.commit(8)
    after = device.read_bytes()
    sectors = range(0, len(after), 512)
    changed = [place for place in sectors if after[place : place + 512] != before[place : place + 512]]
    assert changed and all(any(slot <= place < slot + (1 << 20) for slot in SLOT_OFFSETS) for place in changed)
    length = len(device_module.encode_slot(Header(RUN, "1", state.manifest.to_bytes().decode())))
    slot = min(SLOT_OFFSETS, key=lambda offset: abs(offset - changed[0]))
    for torn in [*range(0, length - 512, 512), 1, 35, 60, 64]:
        device.write_bytes(before)
        put(device, slot, after[slot : slot + torn])
        assert open_state(device).manifest.step == (8 if before[slot + torn :] == after[slot + torn :] else 5)
    device.write_bytes(after)
    assert open_state(device).manifest == state.manifest


def test_a_commit_that_cannot_be_written_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = make_image(tmp_path / "a.img")
    state = create(device)
    state.commit(0)
    monkeypatch.setattr(os, "pwrite", lambda *_: (_ for _ in ()).throw(OSError(5, "Input/output error")))
    with pytest.raises(StorageError, match=r"cannot commit to .*a\.img: Input/output error"):
        state.commit(4)
    monkeypatch.undo()
    take_images_for_devices(monkeypatch.setattr)
    assert state.manifest.step == open_state(device).manifest.step == 0


def test_damaged_headers_are_refused_and_replaced_by_force_only(tmp_path: Path) -> None:
    device = make_image(tmp_path / "a.img")
    create(device).commit(0)
    whole = device.read_bytes()
    for offset, content, words in [
        (16, b"\2", "first block is damaged"),
        (SLOT_OFFSETS[0] + 100, b"?", ""),  # the second copy of the manifest is undamaged
    ]:
        device.write_bytes(whole)
        put(device, offset, content)
        if words:
            with pytest.raises(InputError, match=words):
                open_state(device)
    put(device, SLOT_OFFSETS[1] + 100, b"?")
    with pytest.raises(InputError, match="both copies of its manifest are damaged"):
        open_state(device)
    before = device.read_bytes()
    with pytest.raises(InputError, match=r"both copies.*force=True"):
        create(device, identity="2")
    assert device.read_bytes() == before
    assert create(device, identity="2", force=True).manifest == Device(device).read()


def test_a_newer_header_names_both_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = make_image(tmp_path / "a.img")
    with monkeypatch.context() as patch:
        patch.setattr(device_module, "VERSION", 7)
        create(device).commit(0)
    with pytest.raises(InputError, match="header version 7, this version reads 1"):
        open_state(device)


def test_what_is_left_of_an_overwritten_run_is_no_run(tmp_path: Path) -> None:
    """Checks that Outcrop finds no run on a device whose first sector was overwritten, even if the slots of the
    manifest are intact.
    """
    device = make_image(tmp_path / "a.img")
    create(device).commit(0)
    put(device, 0, bytes(512))
    with pytest.raises(InputError, match="holds no Outcrop run"):
        open_state(device)
