"""This module reads and writes `RunOptions` as TOML files, for `outcrop run heat.toml` and for `--save heat.toml`:

    [problem]
    stencil = "acoustic8"
    shape = [256, 512, 512]        # (nz, ny, nx)
    steps = 400
    init = { m = "model.npy" }
    [[problem.sources]]
    field = "u"
    points = [20.0, 500.0, 500.0]
    values = "wavelet.npy"
    [resources]
    memory = "2GiB"
    [sizes]
    bt = 48
    [output]
    directory = "run.oc"

The keys of the file are the names of the options in Python. Paths are relative to the working directory, as on the
command line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from outcrop.errors import InputError, shown
from outcrop.run.options import GROUPS, SIZES, Norms, Receivers, RunOptions, Snapshots, Source, option_table

SUFFIX = ".toml"

_NESTED: dict[str, type] = {"sources": Source, "receivers": Receivers, "snapshots": Snapshots, "norms": Norms}
"""Options whose values are tables in the file."""


def read_options(name: str) -> dict[str, Any]:
    """Return the options in a file as keywords of `RunOptions`. Raises InputError for unknown keys and for files that
    are not TOML. The function `set_up` later checks the values of the options."""
    from outcrop.language.library.table import did_you_mean
    from outcrop.tiers.declarations import parse_table, read_text, shown_key

    table = parse_table(read_text(Path(name), name), name)
    known, found = option_table(), dict[str, Any]()
    for group in table.values:
        if group not in GROUPS:
            there = ", ".join(f"[{one}]" for one in GROUPS)
            meant = did_you_mean(group, list(GROUPS)) or f"; there are {there}"
            raise InputError(f"{name}: [{shown_key(group)}] is unknown{meant}")
        values = table.table(group).values
        for key, value in values.items():
            if group == "sizes" and key in SIZES:
                found.setdefault("sizes", {})[key] = value
                continue
            option = known.get(key)
            if option is None or option.group != group or key == "sizes":
                keys = [one for one, other in known.items() if other.group == group and other.in_files]
                keys = [*(one for one in keys if one != "sizes"), *(SIZES if group == "sizes" else ())]
                meant = did_you_mean(key, keys) or f"; there are {', '.join(keys)}"
                raise InputError(f"{name}: {group}.{shown_key(key)} is unknown{meant}")
            if not option.in_files:
                given = option.flags[0] if option.flags else f"{key}= in Python"
                raise InputError(f"{name}: {group}.{key} cannot be set in a file; give {given} yourself")
            found[key] = _nested(f"{name}: {group}.{key}", key, value) if key in _NESTED else value
    return found


def _nested(place: str, key: str, value: Any) -> Any:
    """`value` is a table or a list of tables. Return the sources, receivers, snapshots or norms that `value`
    describes."""
    several = isinstance(value, list)
    if several and key == "norms":
        raise InputError(f"{place} must be one table")
    objects = [_object(place, _NESTED[key], one) for one in (value if several else [value])]
    return objects if several or key in ("sources", "receivers") else objects[0]


def _object(place: str, kind: type, table: Any) -> Any:
    if not isinstance(table, Mapping):
        raise InputError(f"{place} {shown(table)} must be a table")
    from outcrop.language.library.table import did_you_mean
    from outcrop.tiers.declarations import shown_key

    known = {one.name: one for one in fields(kind)}
    if unknown := [key for key in table if key not in known]:
        meant = did_you_mean(unknown[0], list(known)) or f"; there are {', '.join(known)}"
        raise InputError(f"{place}.{shown_key(unknown[0])} is unknown{meant}")
    needed = [name for name, one in known.items() if one.default is MISSING]
    if missing := [name for name in needed if name not in table]:
        raise InputError(f"{place}.{missing[0]} is missing")
    given = dict(table)
    if "box" in given:
        given["box"] = _slices(place, given["box"])
    return kind(**given)


def _slices(place: str, box: Any) -> list[slice]:
    """Return the slices of a box. In the file, a box is a list [[begin, end], ...] with a pair of cell numbers for each
    axis."""
    if not isinstance(box, list) or not all(isinstance(one, list) and len(one) == 2 for one in box):
        raise InputError(f"{place}.box {shown(box)} must be [begin, end] for each axis")
    return [slice(*one) for one in box]


def write_options(options: RunOptions, name: str | Path) -> None:
    """Write all options that are different from their defaults to a new file. Raises InputError when the file exists,
    or when a value cannot be written, such as an array."""
    import tomli_w

    from outcrop.paths import make_directory, remove_made

    groups: dict[str, dict[str, Any]] = {group: {} for group in GROUPS}
    table = option_table()
    for one in fields(options):
        option, value = table[one.name], getattr(options, one.name)
        if not option.in_files or value is None or value == one.default:
            continue
        if one.name == "sizes":
            groups["sizes"].update(value)
        else:
            groups[option.group][one.name] = _plain(one.name, value)
    text = tomli_w.dumps({group: values for group, values in groups.items() if values})
    path = Path(name)
    made = make_directory(path.absolute().parent)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(f"--save {path} is there already; give another name, or move the file away") from None
    except OSError as error:
        remove_made(made)
        raise InputError(f"--save {path} cannot be written: {error.strerror}") from None


def _plain(name: str, value: Any) -> Any:
    """Convert `value` to a value of TOML. Raises InputError if TOML has no form for `value`."""
    if isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, Path):
        return str(value)
    if name == "stencil":
        return _stencil_name(value)
    if isinstance(value, slice):
        return [value.start, value.stop]
    if type(value) in _NESTED.values():
        given = ((one, getattr(value, one.name)) for one in fields(value))
        return {one.name: _plain(name, item) for one, item in given if item is not None and item != one.default}
    if isinstance(value, Mapping):
        return {str(key): _plain(name, item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [_plain(name, item) for item in value]
    raise InputError(f"{name} cannot be written to a TOML file: it is {shown(value)}; save it as .npy, and name that")


def _stencil_name(stencil: Any) -> str:
    """Return the name of `stencil`, which must be a built-in stencil. Raises InputError for a stencil that is not
    built-in, because a TOML file cannot contain it."""
    from outcrop.language.library import find_stencil
    from outcrop.language.stencil import Stencil

    if isinstance(stencil, Stencil):
        with suppress(InputError):
            if find_stencil(stencil.name) == stencil:
                return stencil.name
    raise InputError(f"stencil {shown(stencil)} cannot be written to a TOML file: only built-in stencils have names")
