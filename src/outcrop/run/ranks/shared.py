"""One Zarr group of all parts. If the ranks share a file system, Zarr can read the whole grid from one Zarr group.

    run.oc/zarr.json             group; contains the metadata of the arrays of the whole grid
    run.oc/u -> .u.0             an array of the state: a link to the copy on which all ranks agree
    run.oc/.u.0/zarr.json        array with shards of (planes, rows of a part, nx)
    run.oc/.u.0/c/0/2/0          a link to the shard of rank 2: ../../../../rank-2/.u.0/c/0/0/0
    run.oc/snapshots.zarr/       the same for snapshots: u/c/7/0/2/0 is a link to snapshot 7 of rank 2
    run.oc/rank-2/               the part of rank 2, which is also a Zarr group

The group contains only links and metadata, and Outcrop itself does not read the group. In Zarr, all chunks have the
same number of rows, and only the last chunk can end beyond the array. So the group exists only if all parts have the
same number of rows, except that the last part can have fewer rows (plan/ranks.py). There is a similar condition for the
snapshots of a box of cells. All parts that have rows of the box must have equally many rows of the box. Only the last
part with rows of the box may have fewer rows.

Each array has two copies on disk, and generation g is in the same copy in all parts. When all ranks have committed g,
rank 0 changes the links of the group, so that they point to the copy with g. Ranks overwrite generation g - 1 only
after rank 0 has changed the links (agreement.py). Therefore each link of an array always leads to a complete
generation, even if a process is killed. If rank 0 is killed after it has changed only some links, some arrays show g
and other arrays show g - 1. The next start of the run changes the remaining links."""

from __future__ import annotations

import contextlib
import json
import re
import stat
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

from outcrop.axes import NAMES
from outcrop.durable import Directory
from outcrop.errors import InputError, StorageError, os_errors_as
from outcrop.paths import nearest_existing
from outcrop.plan.problem import chunk_rows
from outcrop.plan.ranks import rows_of
from outcrop.run.disk.acquisition_files import snapshot_name
from outcrop.run.disk.contents import (
    ACQUISITION,
    GROUP,
    SNAPSHOTS,
    array_folder,
    derived_files,
    names_below,
    outdated,
    rows_of_parts,
    show_snapshots,
    top_names,
)
from outcrop.run.disk.entries import NO_ENTRIES
from outcrop.run.disk.manifest import Manifest
from outcrop.run.disk.state import State
from outcrop.run.disk.storage import RunFolder
from outcrop.run.ranks.group import RankGroup
from outcrop.run.ranks.part import RANK
from outcrop.run.ranks.whole import as_whole
from outcrop.tiers.storage_tiers import NETWORK, mount_of

_TO_SHARD = re.compile(r"\.\./\.\./\.\./\.\./rank-\d+/[^/]+/c/\d+/0/0")

_TO_SNAPSHOT = re.compile(r"(?:\.\./){6,7}rank-\d+/snapshots\.zarr/.+/c/\d+/0/0/0")
_OF_SNAPSHOTS = re.compile(r"(?:(?:[A-Za-z_][\w.]*/){0,2}zarr\.json|(?:\w+/)?(?:step|time|[zyx])/c/\d+)(?:\.tmp)?")
"""The names of files in the group of snapshots that contain metadata or coordinates."""


class SharedGroup:
    """The Zarr group in `root`, the directory that holds the parts of all ranks. `first` is the manifest of rank 0."""

    def __init__(self, root: Path, first: Manifest) -> None:
        assert first.part is not None
        self.root, self._first, self._part = root, first, first.part
        kept = [one for one in first.taps.snapshots if chunk_rows([rows for _, rows in rows_of_parts(one, self._cut)])]
        taps = replace(NO_ENTRIES, snapshots=tuple(kept))
        self._whole = replace(as_whole(first), taps=taps, sums={}, shard_planes=first.shard_planes)
        self._names = top_names(self._whole) - {ACQUISITION}
        self._shown_step = 0
        self._links = {
            f"{folder}/c/{shard}/{rank}/0": f"../../../../rank-{rank}/{folder}/c/{shard}/0/0"
            for folder in (array_folder(entry, copy) for entry, copy in first.copies)
            for shard in range(first.layout.shards)
            for rank in range(first.part.ranks)
            if not first.part.planes
        }

    @property
    def _cut(self) -> tuple[int, ...]:
        return self._part.cut

    def _files(self, manifest: Manifest) -> dict[str, bytes]:
        return derived_files(replace(self._whole, step=manifest.step), self._part)

    def _to_snapshots(self, manifest: Manifest, first_step: int = 0) -> dict[str, str]:
        """Return the links to the snapshots that exist at the step of `manifest`, but did not exist at `first_step`."""
        found = {}
        for entry in self._whole.taps.snapshots:
            ranks = [rank for rank, _ in rows_of_parts(entry, self._cut)]
            for field in entry.fields:
                for number in entry.numbers(manifest.step, first_step):
                    name = snapshot_name(entry, field, number)
                    up = "../" * name.count("/")
                    for place, rank in enumerate(ranks):
                        found[f"{name.removesuffix('0/0')}{place}/0"] = f"{up}rank-{rank}/{name}"
        return found

    def why_parts_fit_no_group(self) -> str:
        """Return the reason why the parts cannot form a Zarr group. If the parts can form a Zarr group, return ""."""
        if self._part.planes:
            return "the planes of the grid are divided among the ranks"
        rows = rows_of(self._cut)
        if not chunk_rows(rows):
            return f"the parts have {min(rows)} to {max(rows)} rows, and Zarr needs equally many"
        return ""

    def why_not(self) -> str:
        """Return the reason why the Zarr group cannot be made, or "" if the group can be made. Raises StorageError."""
        if reason := self.why_parts_fit_no_group():
            return reason
        other = self.something_else({*self._names, GROUP})
        return f"{self.root / other} is something else" if other else ""

    def something_else(self, names: Collection[str]) -> str:
        """Return the first name in `names` of an existing file that does not belong to a Zarr group of parts. If no
        existing file has such a name, return "". Raises StorageError."""
        with self._opened() as directory:
            state = {entry.name for entry in self._first.state}
            for name in sorted(names):
                if directory.status(name) is not None and not self._is_own(directory, name, name in state):
                    return name
        return ""

    def untidy(self, manifest: Manifest) -> list[str]:
        """Return a line of text for each file or link of the group that is missing or wrong. If the parts cannot form a
        Zarr group, an existing group belongs to other parts, and its values are wrong. If the values of the group are
        wrong, the result is one line. Raises StorageError."""
        with self._opened() as directory:
            if reason := self.why_parts_fit_no_group():
                line = f"{self.root / GROUP} is not a group of these parts, because {reason}"
                return [line] if self._is_own(directory, GROUP, is_link=False) else []
            files = outdated(directory, self._files(manifest))
            found = [f"{self.root / name} is not what belongs there" for name in files]
            links = self._links | self._to_copies(manifest) | self._to_snapshots(manifest)
            wrong = [name for name, target in links.items() if _leads(directory, name) != target]
            return found + [f"{self.root / name} does not lead to {links[name]}" for name in wrong]

    def repair(self, manifest: Manifest) -> None:
        """Make or repair the group. If the parts cannot form a Zarr group, remove an existing group, which belongs to
        other parts. Raises StorageError."""
        if self.why_parts_fit_no_group():
            self.remove()
        else:
            self.make(manifest)

    def make(self, manifest: Manifest) -> None:
        """Make or repair the group, and remove arrays of an older run. `manifest` is the manifest of rank 0. Raises
        StorageError."""
        links, files = self._links | self._to_snapshots(manifest), self._files(manifest)
        with self._opened() as directory:
            for name in directory.names():
                if name != GROUP and not name.startswith("rank-"):
                    self._clear(directory, name, files.keys() | links.keys())
            for name, target in links.items():
                if _leads(directory, name) != target:
                    directory.make_folder(name.rpartition("/")[0])
                    directory.link(name, target)
            for name, content in outdated(directory, files).items():
                if folder := name.rpartition("/")[0]:
                    directory.make_folder(folder)
                directory.replace(name, content)
        self._shown_step = manifest.step
        self.show(manifest)

    def remove(self) -> None:
        """Remove the group of an older run or of other parts, because its links would lead to wrong rows. Raises
        StorageError."""
        with self._opened() as directory:
            for name in directory.names():
                if name == GROUP and self._is_own(directory, name, is_link=False):
                    directory.remove(name)
                elif name != GROUP and not name.startswith("rank-"):
                    self._clear(directory, name, ())

    def show(self, manifest: Manifest) -> None:
        """Change the links of the arrays to the current copies, and add links to new snapshots. Raises StorageError."""
        with self._opened() as directory:
            for name, target in self._to_snapshots(manifest, self._shown_step).items():
                directory.make_folder(name.rpartition("/")[0])
                directory.link(name, target)
            show_snapshots(directory, replace(self._whole, step=manifest.step), self._part)
            self._shown_step = manifest.step
            for name, target in self._to_copies(manifest).items():
                if _leads(directory, name) != target:
                    directory.link(name, target)
            directory.flush()

    def _to_copies(self, manifest: Manifest) -> dict[str, str]:
        filled = [entry for entry in manifest.state if entry.name in manifest.filled]
        return {entry.name: array_folder(entry, manifest.current) for entry in filled}

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Directory]:
        what = f"cannot use the Zarr group in {self.root}"
        with os_errors_as(StorageError, what, names_file=True), Directory.open(self.root) as directory:
            yield directory

    def _is_own(self, directory: Directory, name: str, is_link: bool) -> bool:
        """Return True if `name` is a file, a link or a folder of a Zarr group of parts. The files of a Zarr group of
        parts contain no values of cells, so they can be removed."""
        if name == GROUP:
            try:
                return "stencil" in json.loads(directory.read(GROUP))["attributes"]
            except (OSError, ValueError, KeyError, TypeError, StorageError):
                return False
        if is_link:
            target = _leads(directory, name)
            return target is not None and re.fullmatch(rf"\.{re.escape(name)}\.[01]", target) is not None
        if not stat.S_ISDIR(directory.status(name).st_mode):  # type: ignore[union-attr]
            return False
        files = {one.removeprefix(f"{name}/") for one in names_below(directory, name)}
        if name == SNAPSHOTS:
            return all(
                _TO_SNAPSHOT.fullmatch(_leads(directory, f"{name}/{one}") or "") or _OF_SNAPSHOTS.fullmatch(one)
                for one in files
            )
        shards = {one for one in files if _TO_SHARD.fullmatch(_leads(directory, f"{name}/{one}") or "")}
        others = {one.removesuffix(".tmp") for one in files - shards} - {GROUP}
        return others <= {"c/0"} if name in NAMES[3] else bool(shards or name in self._names) and not others

    def _clear(self, directory: Directory, name: str, keep: Collection[str]) -> None:
        """If `name` is a folder of a Zarr group of parts, remove all files that are not in `keep` from the folder. If
        `name` is a link of a Zarr group of parts, remove the link if the new group does not need it."""
        is_link = _leads(directory, name) is not None
        if not self._is_own(directory, name, is_link):
            return
        if is_link:
            if name not in self._names or not keep:
                directory.remove(name)
            return
        directory.remove_files([one for one in names_below(directory, name) if one not in keep])
        directory.remove_empty(name)


def will_share(group: RankGroup, place: Path) -> bool:
    """Predict whether all ranks will see the same directory above `place`, the directory of this rank. Return True if
    all ranks are on one node, or if the directories are on a network file system. The directories need not exist yet.
    After the directories have been made, `share` compares them. All ranks must call this function together."""
    place = place.absolute()
    root = str(place.parent) if place.name == f"rank-{group.rank}" else ""
    every = group.allgather([root, mount_of(nearest_existing(place)).type in NETWORK])
    is_one_node = len({one.node for one in group.places}) == 1
    return root != "" and all(one == root and (is_one_node or is_network) for one, is_network in every)


def share(group: RankGroup, state: State) -> None:
    """If all ranks see the same directory above their parts, make this directory one Zarr group. Update the group after
    each commit of all ranks. If the parts cannot form a Zarr group, remove the Zarr group of earlier parts. All ranks
    must call this function together."""
    manifest, root = state.manifest, state.path.parent
    identity = group.allgather(manifest.identity if group.rank == 0 else None)[0]
    is_named = state.path.name == f"rank-{group.rank}"
    sees_all = all(group.allgather(is_named and _identity_at(root / "rank-0") == identity))
    shared, reason = None, "" if sees_all else "not shared"
    with group.together():
        if sees_all and group.rank == 0:
            shared = SharedGroup(root, manifest)
            reason = shared.why_not()
            if reason:
                shared.remove()
            else:
                shared.make(manifest)
    if group.allgather(reason)[0]:
        state.on_agreement = None
        return
    shown = manifest.generation

    def follow() -> None:
        nonlocal shown
        if shown != state.manifest.generation:  # this condition has the same result on all ranks
            shown = state.manifest.generation
            with group.together():
                if shared is not None:
                    shared.show(state.manifest)

    state.on_agreement = follow


def group_of(root: Path, first: Manifest) -> SharedGroup | None:
    """Return the group in `root`, the directory of all parts, or None if there is no group."""
    return SharedGroup(root, first) if RANK not in str(root) and (root / GROUP).exists() else None


def _identity_at(path: Path) -> str | None:
    try:
        return RunFolder(path).read().identity
    except (InputError, StorageError):
        return None


def _leads(directory: Directory, name: str) -> str | None:
    try:
        return directory.read_link(name)
    except OSError:
        return None
