"""Make manifests of runs that hold no values yet."""

from pathlib import Path

from outcrop.run.disk.entries import ArrayEntry
from outcrop.run.disk.manifest import Manifest, Settings


def make_manifest(*directories: Path, in_place: bool = False, identity: str = "1", target_step: int = 10) -> Manifest:
    return Manifest(
        identity=identity,
        stencil={"name": "heat7"},
        parameters={},
        arrays=(ArrayEntry("u", False),),
        shape=(6, 5, 4),
        dtype="float32",
        boundary="fixed",
        directories=tuple(map(str, directories)),
        shard_planes=6 if len(directories) == 1 else 2,
        in_place=in_place,
        settings=Settings(1 << 20, 1),
        target_step=target_step,
    )
