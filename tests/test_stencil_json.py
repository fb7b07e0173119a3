"""Check stencils in manifests of untrusted users. Outcrop must read a stencil correctly or refuse it in one line."""

from __future__ import annotations

import copy
import json
import math
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outcrop.errors import InputError
from outcrop.language.boundary import FIXED, as_boundary
from outcrop.language.generate import generate
from outcrop.language.library import STENCILS, acoustic, advection, elastic
from outcrop.language.schema import C_WORDS, MAX_FIELDS, MAX_OFFSET, MAX_OPERATIONS, MAX_SCALARS
from outcrop.language.sparse import SourceFactor
from outcrop.language.stencil import Field, Parameter, Signal, Stencil
from strategies import examples

U, V, W = Field("u"), Field("v"), Signal("w")
MIXED = Stencil(
    "mixed",
    [
        {U: 2 * U[0, 0, 0] - U.previous[0, 0, 0] + V[0, 1, -1] * Parameter("k", 0.25) * (U[0, 0, 1] - U[1, 0, 0])},
        {Field("a"): Field("a")[0, 0, 0] / 2 + abs(U[0, -1, 0]) * W},
    ],
)
SEEDS = [MIXED, STENCILS["heat7"](), acoustic(2, 4, sponge=True), advection(1, 2), elastic(2, 2)]

NONSENSE: list[Any] = [
    None, True, False, -1, 0, 1, 2, 3, 5, 64, 65, 1 << 31, -(1 << 60), 1 << 64, 10**400, 0.5, -0.0, 1e308,
    math.nan, math.inf,
    "", "u", "v", "k", "int", "u\n", "u v", "ü", "../u", "/tmp/u", "u.previous", "__u", "_U", "x" * 65, "u\0", "\ud800",
    "*/ int x; /*", "\\\n#include </etc/passwd>", "0]; system(\"id\"); s[0", "load", "scalar", "constant", "add",
    "sqrt", "0x1.8p+1", "0x1.8000000000000p+1", "0x1.0p+99999", "nan", "inf", "1.0", "-0x0.0p+0", "0x" + "1" * 10**5,
    [], [[]], [0], [0, 0], [1, 0], [[0]], {}, {"a": 1}, ["load", 0, 0, 0, 0, 0], ["load", 0, 0, 0, 1 << 60, 0],
    ["scalar", 0], ["constant", "0x1.0000000000000p+0"], ["neg", 0], ["add", 0, 10**6], ["add", True, 0], [0] * 5000,
]  # fmt: skip
"""Values that replace a node in the JSON of a stencil."""


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all nodes."""
    yield path
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield from places(value, (*path, key))


def mutated(data: Any, rng: random.Random, times: int = 1) -> Any:
    """Return a copy in which `times` nodes are replaced, removed, duplicated, moved or changed slightly."""
    data = copy.deepcopy(data)
    for _ in range(times):
        *way, last = rng.choice(list(places(data))[1:])
        inside = data
        for key in way:
            inside = inside[key]
        match rng.randrange(6):
            case 0:
                del inside[last]
            case 1 if isinstance(inside, list):
                inside.insert(last, copy.deepcopy(inside[last]))
            case 2 if isinstance(inside, list):
                other = rng.randrange(len(inside))
                inside[last], inside[other] = inside[other], inside[last]
            case 3 if isinstance(inside[last], int):
                inside[last] += rng.choice([-1, 1, 64])
            case 4 if isinstance(inside, dict):
                inside["more"] = inside[last]
            case _:
                inside[last] = rng.choice(NONSENSE)
    return data


def refused(data: Any) -> Stencil | None:
    """Return the stencil that the data describe, or None if the data are refused with a correct message. The test fails
    with any other exception."""
    try:
        return Stencil.from_json(data)
    except InputError as error:
        assert "\n" not in str(error) and len(str(error)) < 400, str(error)[:400]
        return None


def accepted(count: int, seed: int) -> list[Stencil]:
    """Make `count` random changes of stencils, and return the changed stencils that are accepted."""
    rng = random.Random(seed)
    found = []
    for number in range(count):
        data = mutated(SEEDS[number % len(SEEDS)].to_json(), rng, rng.choice([1, 1, 1, 2, 4]))
        if (stencil := refused(data)) is not None:
            found.append(stencil)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_whatever_a_manifest_says_is_a_stencil_or_refused(seed: int) -> None:
    """Checks that each random change is refused in one line, or gives a valid stencil. A valid stencil can be converted
    to C code, and to JSON and back without changes.
    """
    kept = accepted(examples(500), seed)
    assert len(kept) > 25, "some mutations are harmless"
    for stencil in kept:
        assert Stencil.from_json(json.loads(json.dumps(stencil.to_json()))) == stencil
        assert generate(stencil, "float32", 32).count("void row_0_1x1(") == 1


def test_every_node_replaced_by_every_nonsense() -> None:
    """Checks that a value of any type at any place of the JSON gives either a stencil or an InputError."""
    data = Stencil("small", {U: 2 * U[0, 0, 0] + Parameter("k", 0.5) * V[0, 1, 0] + W}).to_json()
    for value in NONSENSE:
        refused(value)
    for *way, last in list(places(data))[1:]:
        inside = data
        for key in way:
            inside = inside[key]
        right = inside[last]
        for value in NONSENSE:
            inside[last] = value
            refused(data)
        inside[last] = right
    assert refused(data) is not None


RUN_KEPT = """
import json, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from guarded import check
for number, line in enumerate(sys.stdin):
    check(json.loads(line), number)
    print(number, flush=True)
"""


def test_what_is_accepted_computes_what_the_oracle_does_and_stays_inside() -> None:
    """Checks that accepted stencils give the oracle's values and access only their own memory. A sample of these
    stencils is compiled and run in a separate process, with forbidden pages around all planes."""
    different = {stencil.digest(): stencil for stencil in accepted(400, 10)}
    chosen = list(different.values())[: examples(24)]
    lines = "\n".join(json.dumps(stencil.to_json()) for stencil in chosen)
    command = [sys.executable, "-c", RUN_KEPT, str(Path(__file__).parent)]
    done = subprocess.run(command, input=lines, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.split()[-1] == str(len(chosen) - 1), done.stderr[-2000:]


@pytest.mark.parametrize("boundary", ["fixed", "mirror", "periodic"])
def test_c_does_not_know_what_things_are_called(boundary: str) -> None:
    """Checks that stencils that differ only in names and texts give the same C code, so that the code contains no names
    of users.
    """
    data = MIXED.to_json()
    renamed = {**data, "name": "*/ #error", "equation": "\\", "fields": ["x", "s", "b"], "parameters": [["q0", 1.0]]}
    renamed["signals"] = ["outcrop_block"]
    texts = {generate(Stencil.from_json(one), "float32", 32, as_boundary(boundary)) for one in (data, renamed)}
    assert len(texts) == 1


def test_reading_a_stencil_needs_neither_sympy_nor_numpy() -> None:
    """Checks that reading a stencil does not import SymPy and NumPy, so that `outcrop info` is fast."""
    script = (
        "import json, sys; from outcrop.language.stencil import Stencil;"
        "Stencil.from_json(json.load(sys.stdin)).storage;"
        "assert not {'sympy', 'numpy'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], input=json.dumps(MIXED.to_json()), text=True, capture_output=True
    )
    assert done.returncode == 0, done.stderr


names = st.from_regex(r"\A[a-z][a-z0-9_]{0,20}\Z").filter(lambda name: name not in C_WORDS)


@settings(max_examples=examples(40), deadline=None)
@given(data=st.data(), given=st.lists(names, min_size=5, max_size=5, unique=True), ndim=st.integers(1, 3))
def test_what_users_make_comes_back_from_json(data: st.DataObject, given: list[str], ndim: int) -> None:
    """Checks that a stencil does not change if it is converted to JSON and back, for any names, offsets and numbers.

    The stencils have several fields, previous values, signals and stages.
    """
    u, v = Field(given[0]), Field(given[1])
    k = Parameter(given[2], data.draw(st.floats(allow_nan=False, allow_infinity=False)))
    offsets = st.tuples(*[st.integers(-MAX_OFFSET, MAX_OFFSET)] * ndim)
    number = data.draw(st.floats(allow_nan=False, allow_infinity=False, width=32))
    here = (0,) * ndim
    first = k * u[data.draw(offsets)] + number * v[data.draw(offsets)] + u.previous[here] + Signal(given[3])
    second = v[here] + Field(given[4])[data.draw(offsets)] * u[here]
    stencil = Stencil(data.draw(st.sampled_from(["a name", "λ", "x" * 200])), [{u: first}, {v: second}])
    assert Stencil.from_json(json.loads(json.dumps(stencil.to_json()))) == stencil


def many(count: int) -> dict[str, Any]:
    """Return a program with `count` operations. The first operation is a load."""
    rows: list[list[Any]] = [["load", 0, 0, 0, 0, 0], *(["add", i, i] for i in range(count - 1))]
    return {"operations": rows, "results": [count - 1]}


@pytest.mark.parametrize(
    ("member", "value", "message"),
    [
        ("fields", [f"u{i}" for i in range(MAX_FIELDS + 1)], "fields must be 1 to 256, not 257"),
        ("signals", [f"w{i}" for i in range(MAX_SCALARS)], "257 parameters and signals, at most 256"),
        ("stages", [{"targets": [0], "program": many(MAX_OPERATIONS // 2 + 1)}] * 2, "4098 operations, at most 4096"),
        ("fields", ["u", "u", "a"], "have the name 'u'"),
        ("fields", ["u", "v", "k"], "have the name 'k'"),
        ("fields", ["double", "v", "a"], "is a word of C"),
        ("ndim", 1, "offsets along z and y with ndim=1"),
        ("name", "\x1b[31m", "must be text on one line"),
        ("equation", "u" * 10**6, "must be text on one line"),
    ],
)  # fmt: skip
def test_bounds_are_named(member: str, value: Any, message: str) -> None:
    """Checks the errors for wrong members of the JSON. Each error names the limit or the reason."""
    with pytest.raises(InputError, match=message):
        Stencil.from_json({**MIXED.to_json(), member: value})


def test_the_largest_offset_stays_within_the_guards_of_the_window() -> None:
    """Checks that the guard memory around the window is large enough for the largest offset. A kernel can read beyond a
    plane: one 64-byte line for each cell of its radius.
    """
    from outcrop.plan.memory import GUARD_BYTES

    assert MAX_OFFSET * 64 <= GUARD_BYTES


def test_the_factor_of_a_source_is_one_or_refused() -> None:
    """Checks random changes of the factor of a source. Each changed factor must be valid or refused, because Outcrop
    evaluates factors when it opens a run."""
    program = Stencil("f", {U: Parameter("dt", 0.5) ** 2 / V[0, 0, 0]}).stages[0].program
    scale = SourceFactor(program, ("u", "v"), (0.5,))
    data = json.loads(json.dumps(scale.to_json()))
    assert SourceFactor.from_json(data) == scale
    rng, kept = random.Random(1), 0
    for _ in range(examples(1500)):
        try:
            kept += SourceFactor.from_json(mutated(data, rng)).to_json() != data
        except InputError as error:
            assert "\n" not in str(error) and len(str(error)) < 400
    assert kept > 10


TEXTS = [
    "",
    "=",
    "x",
    "x=",
    "x=fixed",
    "x=a:b",
    "x=periodic:fixed",
    "x=fixed,x=fixed",
    "y" * 10**6,
    "x=mirror\n",
    "\0",
    "q=1",
]


@pytest.mark.parametrize("value", [*TEXTS, *NONSENSE, {"x": range(10**12)}, {"x": [[]]}, {5: "fixed"}, {"x": None}])
def test_a_boundary_is_one_or_refused(value: Any) -> None:
    """Checks random values in place of a boundary. Each value must be refused, or must give a boundary whose text can
    be read again."""
    try:
        boundary = as_boundary(value)
    except InputError as error:
        assert "\n" not in str(error) and len(str(error)) < 400
        return
    assert as_boundary(str(boundary)) == boundary != FIXED or value == "x=fixed" or value == {}
