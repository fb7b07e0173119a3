"""Change one thing in a JSON file: the type, range or text of a value, the keys, the nesting, or the spelling."""

from __future__ import annotations

import copy
import json
import random
import re
from pathlib import Path
from typing import Any

from . import values
from .seal import KEY, resealed

DEEP = 100_000


def mutate_json(rng: random.Random, file: Path, world: Path) -> str:
    """Change `file` in one or two places, and write a right or a wrong checksum into the file. Return a description of
    the change."""
    original = json.loads(file.read_text())
    content = copy.deepcopy(original)
    told = [_change(rng, content, world) for _ in range(1 if rng.random() < 0.8 else 2)]
    if rng.random() < 0.05:
        content = values.json_value(rng, world)
        told = [f"all of it = {_short(content)}"]
    seal = "right"
    if isinstance(original, dict) and KEY in original:
        seal = rng.choice(["right"] * 6 + ["stale", "wrong"])
    if seal == "right":
        content = resealed(content)
    elif seal == "wrong" and isinstance(content, dict):
        content[KEY] = values.json_value(rng, world)
    text = json.dumps(content, indent=rng.choice([None, 1, 2]))
    if rng.random() < 0.15:
        text, how = _spell(rng, text, content)
        told.append(how)
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    return f"{', '.join(told)} (seal {seal})"


def _places(content: Any) -> list[tuple[Any, Any]]:
    """Return all places in a dictionary or list. A place is a container and a key or index."""
    if isinstance(content, dict):
        return [(content, key) for key in content]
    return [(content, index) for index in range(len(content))]


def _change(rng: random.Random, content: Any, world: Path) -> str:
    """Change a random place, and return a description. At each level of nesting, all entries have the same probability.
    Otherwise, most changes would be in long lists."""
    if not isinstance(content, (dict, list)) or not content:
        return "nothing"
    kind = rng.randrange(10)
    if kind < 3:
        return _attack(rng, content, world)
    if kind < 5:
        return _number(rng, content)
    if kind < 7:
        return _structure(rng, content, world)
    trail: list[Any] = []
    container: Any = content
    while True:
        parent, key = rng.choice(_places(container))
        trail.append(key)
        below = parent[key]
        if not isinstance(below, (dict, list)) or not below or rng.random() < 0.15:
            break
        container = below
    name = ".".join(map(str, trail))
    kind = rng.randrange(14)
    if kind < 8:
        parent[key] = _other(rng, below, world)
        return f"{name} = {_short(parent[key])}"
    if kind == 8:
        del parent[key]
        return f"without {name}"
    if kind == 9 and isinstance(parent, dict):
        added = rng.choice(["", "x", "__class__", "format ", "crc32c", "name", "path", "identity"])
        parent[added] = values.json_value(rng, world)
        return f"more in {name}: {added!r} = {_short(parent[added])}"
    if kind == 10 and isinstance(parent, list):
        parent.insert(key, copy.deepcopy(below))
        return f"{name} twice"
    if kind == 11:
        other, other_key = rng.choice(_places(container))
        parent[key], other[other_key] = other[other_key], parent[key]
        return f"{name} swapped with {other_key}"
    if kind == 12 and isinstance(below, (dict, list)):
        below.clear()
        return f"{name} emptied"
    parent[key] = [below] if kind == 13 else {"x": below}
    return f"{name} one level deeper"


def _attack(rng: random.Random, content: Any, world: Path) -> str:
    """Replace a text by a path, or add a path to a list. An attacker who knows the format could make such changes."""
    leaves, lists = _leaves_and_lists(content)
    texts = [leaf for leaf in leaves if isinstance(leaf[1][leaf[2]], str)]
    if lists and rng.random() < 0.4:
        name, found = _one_by_kind(rng, lists)
        added = copy.deepcopy(rng.choice(found)) if found else values.path(rng, world)
        inner = [leaf for leaf in _leaves_and_lists(added)[0] if isinstance(leaf[1][leaf[2]], str)]
        if isinstance(added, str):
            added = values.path(rng, world)
        elif inner:
            _, parent, key = rng.choice(inner)
            parent[key] = values.path(rng, world)
            for _, owner, flag in _leaves_and_lists(added)[0]:
                if isinstance(owner[flag], bool):
                    owner[flag] = rng.random() < 0.5
        else:
            added = values.json_value(rng, world)
        found.insert(rng.randrange(len(found) + 1), added)
        return f"more in {name}: {_short(added)}"
    if not texts:
        return "nothing"
    name, parent, key = _one_by_kind(rng, texts)
    parent[key] = values.path(rng, world)
    return f"{name} = {_short(parent[key])}"


def _number(rng: random.Random, content: Any) -> str:
    """Replace a random number by another number, and return a description."""
    leaves, _ = _leaves_and_lists(content)
    numbers = [leaf for leaf in leaves if isinstance(leaf[1][leaf[2]], (int, float))]
    if not numbers:
        return "nothing"
    name, parent, key = _one_by_kind(rng, numbers)
    parent[key] = rng.choice([values.number(rng), values.number(rng), 10**9, 1, 2, -parent[key], parent[key] + 1])
    return f"{name} = {_short(parent[key])}"


def _structure(rng: random.Random, content: Any, world: Path) -> str:
    """Remove, empty, shorten or lengthen a value near the top, or replace it by a value of another type."""
    container, name = content, ""
    while True:
        parent, key = rng.choice(_places(container))
        name = f"{name}.{key}" if name else str(key)
        below = parent[key]
        if not isinstance(below, (dict, list)) or not below or rng.random() < 0.6:
            break
        container = below
    kind = rng.randrange(6)
    if kind == 0:
        del parent[key]
        return f"without {name}"
    if kind == 1 or not isinstance(below, (dict, list)) or not below:
        parent[key] = rng.choice([None, [], {}, "", 0, [[]], {"": {}}])
    elif kind == 2:
        below.clear()
    elif kind == 3:
        del below[rng.choice(_places(below))[1]]
    elif kind == 4 and isinstance(below, list):
        below += copy.deepcopy(below) * rng.choice([1, 3, 1000])
    else:
        parent[key] = values.json_value(rng, world)
    return f"{name} becomes {_short(parent[key])}"


def _one_by_kind(rng: random.Random, found: list[Any]) -> Any:
    """Return a random place of `found`. The function first chooses a kind of places, then a place of this kind. Two
    places are of the same kind if their names differ only in numbers.
    """
    kinds: dict[str, list[Any]] = {}
    for one in found:
        kinds.setdefault(re.sub(r"\d+", "N", one[0]), []).append(one)
    outside = [name for name in kinds if not name.startswith("stencil.")]
    names = outside if outside and rng.random() < 0.9 else list(kinds)
    return rng.choice(kinds[rng.choice(names)])


def _leaves_and_lists(content: Any) -> tuple[list[tuple[str, Any, Any]], list[tuple[str, list[Any]]]]:
    """Return two lists: every leaf with its name, container and key, and every list with its name. The function leaves
    out the values of the key "consolidated_metadata", because these values repeat other files."""
    leaves: list[tuple[str, Any, Any]] = []
    lists: list[tuple[str, list[Any]]] = []

    def look(container: Any, name: str) -> None:
        if isinstance(container, list) and name:
            lists.append((name, container))
        for parent, key in _places(container):
            below, inner = parent[key], f"{name}.{key}" if name else str(key)
            if isinstance(below, (dict, list)):
                if key != "consolidated_metadata":
                    look(below, inner)
            elif below is not None:
                leaves.append((inner, parent, key))

    if isinstance(content, (dict, list)):
        look(content, "")
    return leaves, lists


def _other(rng: random.Random, value: Any, world: Path) -> Any:
    """Return a value that replaces `value`. Usually the new value has the same type but is out of range. Sometimes it
    has any type.
    """
    if rng.random() < 0.3:
        return values.json_value(rng, world)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice([values.number(rng), value + 1, value - 1, -value, value * 2, float(value), str(value),
        value * 1000])
    if isinstance(value, float):
        return rng.choice([values.number(rng), values.number(rng), -value, value * 1e30,
        int(value) if abs(value) < 1e9 else 0])
    if isinstance(value, str):
        return rng.choice([values.path(rng, world), values.path(rng, world), values.text(rng), value + "x", value * 2,
        value[:-1]])
    return values.json_value(rng, world)


def _spell(rng: random.Random, text: str, content: Any) -> tuple[str, str]:
    """Return a changed text, which is often invalid JSON, and a description of the change."""
    if isinstance(content, dict) and content and rng.random() < 0.3:
        key = rng.choice(list(content))
        again = json.dumps({key: rng.choice([content[key], 0, None, ".."])})[1:-1]
        return "{" + again + "," + text[1:], f"{key!r} twice"
    kind = rng.randrange(7)
    if kind == 0:
        return "[" * DEEP + text + "]" * DEEP, "nested deeply"
    if kind == 1:
        return '{"x":' * DEEP + text + "}" * DEEP, "nested deeply in objects"
    if kind == 2:
        return text.replace('"', "'"), "other quotes"
    if kind == 3:
        return "\ufeff" + text, "a byte order mark"
    if kind == 4:
        return text + text, "twice"
    if kind == 5:
        return text.replace("0", "9" * 5000, 1), "a number of 5000 digits"
    return text[: rng.randrange(len(text) + 1)], "cut short"


def _short(value: Any) -> str:
    text = ascii(value) if not isinstance(value, int) or abs(value) < 10**30 else "10**400"
    return text if len(text) < 60 else text[:57] + "..."
