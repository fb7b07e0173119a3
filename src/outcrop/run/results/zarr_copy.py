"""Write the results of a run as a Zarr group, to a folder or to an object store such as S3.

    PREFIX/.outcrop-export      written first: this prefix belongs to an export, so a later export may replace it.
                                Never removed, only written again
    PREFIX/u/zarr.json          arrays: shards of about 16 MiB, inner chunk = one plane with its CRC32C
    PREFIX/u/c/S/0/0
    PREFIX/zarr.json            written last, with the metadata of all arrays: without it, PREFIX is not a Zarr group

An object store cannot rename objects, so an export that was killed leaves objects, but no complete group. fsspec
accesses object stores. For each kind of store, fsspec needs another package, such as s3fs for s3://.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from outcrop.errors import InputError, OutcropError, StorageError, by_caller
from outcrop.run.disk.contents import GROUP
from outcrop.run.disk.layout import group_metadata, to_json
from outcrop.run.results.contents import ResultGroup, Variable
from outcrop.run.results.hdf5 import Advance
from outcrop.run.results.target import MARK

SHARD_BYTES = 16 << 20
"""The approximate size of a shard, which is one object in an object store."""
CHUNK_BYTES = 64 << 10
"""The minimum size of an inner chunk, if the array is that large."""
SHARDS_AT_ONCE = 4
"""The number of shards that are written at the same time. All shards that are being written are in memory."""

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def is_url(target: object) -> bool:
    return isinstance(target, str) and _URL.match(target) is not None


class ObjectStore:
    """A prefix in an object store. `options` are the storage options of fsspec."""

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        """Raises InputError if the package for the store of this URL is missing, or if the URL names no prefix."""
        self.url, self._options = url, dict(options)
        scheme = url.partition("://")[0]
        try:
            import fsspec
        except ImportError:
            raise InputError(f"{url} needs zarr, fsspec and s3fs: pip install 'outcrop[s3]'") from None
        try:
            self._files, self._root = fsspec.core.url_to_fs(url, **self._options)
        except (ImportError, ValueError) as error:
            hint = "pip install 'outcrop[s3]'" if scheme in ("s3", "s3a") else "install the package that it names"
            raise InputError(f"{url}: {' '.join(str(error).split())}; {hint}") from None
        if not self._root.strip("/"):
            raise InputError(f"{url} names a whole store; name a prefix in it, such as {url.rstrip('/')}/run")

    def check(self, force: bool) -> None:
        """Raise InputError if the prefix contains objects that an export must not replace. The function changes
        nothing."""
        with self._errors():
            found = self._names()
            if not found:
                return
            if MARK not in found:
                raise InputError(f"{self.url} holds other objects; give another prefix")
            if not force:
                is_complete = GROUP in found
                what = "exists" if is_complete else "holds an export that was interrupted"
                remedy = by_caller("--force", "force=True")
                raise InputError(f"{self.url} {what}; give {remedy} to replace it, or another prefix")

    def begin(self, force: bool) -> Any:
        """Remove an older export, write the mark, and return a Zarr store for the prefix. The removal of an older
        export can fail at any object. Therefore `begin` first removes the metadata of the top group, so that readers
        find no incomplete group. `begin` never removes the mark, so that after a failure the next export may remove the
        remaining objects."""
        self.check(force)
        from zarr.storage import FsspecStore

        class ArraysOnly(FsspecStore):
            # With each array, zarr also writes the metadata of the groups above it. But the metadata of the top group
            # must be written last, by `put`.
            async def set(self, key: str, *others: Any, **more: Any) -> None:
                if key != GROUP:
                    await super().set(key, *others, **more)

            async def set_if_not_exists(self, key: str, *others: Any, **more: Any) -> None:
                if key != GROUP:
                    await super().set_if_not_exists(key, *others, **more)

        with self._errors():
            older = self._names() - {MARK}
            if GROUP in older:
                self._files.rm(f"{self._root}/{GROUP}")
            if rest := sorted(older - {GROUP}):
                self._files.rm([f"{self._root}/{name}" for name in rest], recursive=True)
            self.put(MARK, b"This prefix was written by outcrop export.\n")
            return ArraysOnly.from_url(self.url, storage_options=self._options)

    def put(self, name: str, content: bytes) -> None:
        self._files.pipe_file(f"{self._root}/{name}", content)

    def get(self, name: str) -> bytes:
        content: bytes = self._files.cat_file(f"{self._root}/{name}")
        return content

    def _names(self) -> set[str]:
        self._files.invalidate_cache()
        try:
            listed = self._files.ls(self._root, detail=False)
        except FileNotFoundError:
            return set()
        return {name.rstrip("/").rpartition("/")[2] for name in listed}

    @contextmanager
    def _errors(self) -> Iterator[None]:
        with errors_of(self.url):
            yield


@contextmanager
def errors_of(place: object) -> Iterator[None]:
    """If zarr or a package for object stores raises an error, raise a StorageError in its place. Zarr and the packages
    for object stores raise many types of errors."""
    try:
        yield
    except (OutcropError, MemoryError):
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise StorageError(f"{place} cannot be written: {reason}") from None


def require_zarr() -> None:
    """Raise InputError if the package zarr is not installed."""
    try:
        import zarr  # noqa: F401
    except ImportError:
        raise InputError("Zarr needs the package zarr (Python 3.11 or later): pip install zarr") from None


def write_folder(path: Path, groups: Sequence[ResultGroup], advance: Advance) -> None:
    """Write groups as a Zarr group to a new folder. Raises StorageError."""
    from zarr.storage import LocalStore

    def put(name: str, content: bytes) -> None:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)

    put(MARK, b"This folder was written by outcrop export.\n")
    with errors_of(path.name):
        _write(LocalStore(path), groups, advance, put, lambda name: (path / name).read_bytes())


def write_objects(store: ObjectStore, groups: Sequence[ResultGroup], force: bool, advance: Advance) -> None:
    """Write groups as a Zarr group to a prefix of an object store. Raises InputError and StorageError."""
    with errors_of(store.url):
        _write(store.begin(force), groups, advance, store.put, store.get)


def _write(
    store: Any, groups: Sequence[ResultGroup], advance: Advance, put: Callable[[str, bytes], None],
    get: Callable[[str], bytes],
) -> None:  # fmt: skip
    """Write all arrays, then the metadata of the groups, and finally the metadata of the top group. `put` and `get`
    write and read an object of `store`."""
    import zarr

    below: dict[str, dict[str, Any]] = {}
    top = next((dict(group.attributes) for group in groups if not group.path), {})
    for group in groups:
        group.require_names()
        prefix = f"{group.path}/" if group.path else ""
        for coordinate in group.coordinates:
            zarr.create_array(
                store, name=prefix + coordinate.name, data=coordinate.values, dimension_names=(coordinate.axis,),
                compressors=None, attributes=dict(coordinate.attributes),
            )  # fmt: skip
        for variable in group.variables:
            beside = group.beside(variable)
            about = {**variable.attributes, **({"coordinates": beside} if beside else {})}
            _write_array(store, prefix + variable.name, variable, about, advance)
        for name in (*(one.name for one in group.coordinates), *(one.name for one in group.variables)):
            below[prefix + name] = json.loads(get(f"{prefix}{name}/{GROUP}"))
    named = {group.path: dict(group.attributes) for group in groups if group.path}
    for path in sorted(named | {path.rpartition("/")[0]: {} for path in named if "/" in path}, reverse=True):
        inside = {name.removeprefix(f"{path}/"): one for name, one in below.items() if name.startswith(f"{path}/")}
        made = group_metadata(inside, named.get(path, {}))
        put(f"{path}/{GROUP}", to_json(made))
        # groups in the list of the top group have no list of their own, because the list of the top group is complete
        below[path] = {key: value for key, value in made.items() if key != "consolidated_metadata"}
    # zarr 3 needs the members of each group next to each other in this list
    listed = dict(sorted(below.items(), key=lambda item: (item[0].count("/"), item[0])))
    put(GROUP, to_json(group_metadata(listed, top)))


def _write_array(store: Any, name: str, variable: Variable, attributes: dict[str, Any], advance: Advance) -> None:
    import zarr
    from zarr.codecs import Crc32cCodec

    chunk, shard = chunks_of(variable)
    made = zarr.create_array(
        store, name=name, shape=variable.shape, dtype=variable.dtype, chunks=chunk, shards=shard,
        compressors=[Crc32cCodec()], fill_value=0.0, dimension_names=variable.axes, attributes=attributes,
    )  # fmt: skip
    # blocks end where shards end, because zarr would read a shard again to write its other half
    for index, values in variable.blocks(SHARDS_AT_ONCE * math.prod(shard) * variable.dtype.itemsize):
        made[index] = values
        advance(values.nbytes)


def chunks_of(variable: Variable) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of inner chunks and of shards. An inner chunk has one plane. If planes are small, an inner
    chunk has several planes. On a grid of two axes, chunks consist of rows in the same way."""
    free = len(variable.shape) - variable.unit_axes
    unit = tuple(max(1, size) for size in variable.shape[free:])
    if free == 0:
        return unit, unit
    unit_bytes, count = math.prod(unit) * variable.dtype.itemsize, max(1, variable.shape[free - 1])
    inner = min(count, max(1, CHUNK_BYTES // unit_bytes))
    most = -(-count // inner)
    outer = inner * min(most, max(1, SHARD_BYTES // (unit_bytes * inner)))
    ones = (1,) * (free - 1)
    return (*ones, inner, *unit), (*ones, outer, *unit)
