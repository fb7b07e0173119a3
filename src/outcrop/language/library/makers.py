"""Functions of the library that are loaded when they are first needed, and the stencils that they have made before.

SymPy takes longer to load than all else that a run needs, and a stencil that has been lowered does not need it. So the
description of each built-in stencil is kept in the user's cache (`outcrop.user_cache`, sealed), together with a digest
of all that decides on it: the source text of the language, and the versions of SymPy and Python. It is read back if the
digest is still the same, and checked like the description of any stencil. If the cache cannot be used, the stencil is
made anew each time.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from outcrop.errors import InputError
from outcrop.language.stencil import Stencil
from outcrop.user_cache import open_folder

FOLDER = "stencils"
MAX_BYTES = 1 << 22
"""Of a file; that of the largest built-in stencil has about 40 kB."""


def maker(function: str, **given: Any) -> Callable[..., Stencil]:
    """A function in a file of the library, such as "transport.heat7", with some of its arguments `given`."""

    def make(**options: Any) -> Stencil:
        arguments = {**given, **options}
        digest = sha256(repr(sorted(arguments.items())).encode()).hexdigest()
        name = f"{function}-{digest[:16]}.json"
        stencil = _read(name)
        if stencil is None:
            file, _, attribute = function.partition(".")
            stencil = getattr(import_module(f"outcrop.language.library.{file}"), attribute)(**arguments)
            _keep(name, stencil)
        return stencil

    return make


def _read(name: str) -> Stencil | None:
    with suppress(InputError, OSError, ValueError, KeyError, TypeError, RecursionError):
        with open_folder(FOLDER, make=False) as folder:
            kept = json.loads(folder.read(name, MAX_BYTES) or b"{}")
        if kept["language"] == _language():
            return Stencil.from_json(kept["stencil"])
    return None


def _keep(name: str, stencil: Stencil) -> None:
    with suppress(InputError, OSError), open_folder(FOLDER, make=True) as folder:
        folder.write(name, json.dumps({"language": _language(), "stencil": stencil.to_json()}).encode())


@lru_cache
def _language() -> str:
    """A digest of what decides on a stencil besides its function and arguments."""
    package = Path(__file__).parent.parent
    files = [*sorted(package.glob("*.py")), *sorted(package.glob("library/*.py")), package.parent / "axes.py"]
    spec = find_spec("sympy")  # SymPy is not loaded for this
    if spec is not None and spec.origin is not None:
        files.append(Path(spec.origin).with_name("release.py"))
    summed = sha256(sys.version.encode())
    for file in files:
        summed.update(file.read_bytes())
    return summed.hexdigest()
