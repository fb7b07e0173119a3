"""Make runs on files named *.img. In the tests, such files act as block devices."""

import os
from pathlib import Path

import numpy as np

import outcrop as oc
from manifests import make_manifest
from outcrop.run.device import use as device_use
from outcrop.run.disk.state import State
from outcrop.run.places import created_state

SHAPE = (40, 36, 50)


def take_images_for_devices(set_attribute=setattr) -> None:
    """Let files named *.img act as block devices."""
    set_attribute(device_use, "is_block_device", lambda path: path.suffix == ".img" and path.is_file())


def make_image(path: Path, size: int = 24 << 20, noise: bool = True) -> Path:
    """Make an image with random content, as on a used device. If `noise` is false, the image holds zeros."""
    path.write_bytes(np.random.default_rng(7).bytes(1 << 20) * (size >> 20) if noise else bytes(size))
    return path


def put(path: Path, offset: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset, os.SEEK_SET if offset >= 0 else os.SEEK_END)
        file.write(content)


def create(*devices: Path, force: bool = False, identity: str = "1") -> State:
    with created_state(list(devices), make_manifest(*devices, identity=identity), force, raw_device=True) as state:
        return state


def simulation(where: list[Path], raw_device: bool = True, force: bool = False) -> oc.Simulation:
    return oc.Simulation(
        oc.stencils.heat(ndim=3), SHAPE, directory=where, memory="512KiB", raw_device=raw_device, force=force
    )


def values() -> np.ndarray:
    return np.random.default_rng(3).random(SHAPE, dtype="float32")
