"""Check equations of users. An equation gives the intended stencil, a manifest stores the stencil without changes, and
each mistake gives an error of one line.
"""

from __future__ import annotations

import importlib.util
import json
import math
import operator
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy

import outcrop as oc
from oracle import advance
from outcrop.errors import InputError
from outcrop.language import compile as compiling
from outcrop.language.boundary import Boundary
from outcrop.language.library import STENCILS, find_stencil, heat, sponge, stability
from outcrop.language.program import Apply
from outcrop.language.stencil import Field, Parameter, Signal, Stencil
from outcrop.shared_object import find_compiler

U = Field("u")
CENTRE = U[0, 0, 0]
K = Parameter("k", 0.3)


def test_radii_are_read_off_the_equation() -> None:
    """Checks that the radii of a stencil are the largest offsets in its equation."""
    stencil = Stencil("far", {U: U[-3, 0, 0] + U[0, 1, 4] + U[0, 0, -2]})
    assert stencil.radii == (3, 1, 4)
    assert stencil.radius == 4
    assert [STENCILS[name]().radius for name in ("heat7", "heat13", "box27")] == [1, 2, 1]


@pytest.mark.parametrize("name", sorted(STENCILS))
def test_a_stencil_survives_the_manifest(name: str) -> None:
    """Checks that a stencil does not change if it is converted to JSON and back. So `resume` does not need the user's
    script.
    """
    stencil = STENCILS[name]()
    again = Stencil.from_json(json.loads(json.dumps(stencil.to_json())))
    assert again == stencil
    assert again.digest() == stencil.digest()


@pytest.mark.parametrize("damage", ["stages", "fields", "parameters", "name"])
def test_a_damaged_manifest_is_refused(damage: str) -> None:
    """Checks that a stencil is refused if it was edited in the manifest."""
    data = find_stencil("heat7").to_json()
    del data[damage]
    with pytest.raises(InputError, match="not the description of a stencil"):
        Stencil.from_json(data)


@pytest.mark.parametrize(
    "row",
    [
        ["load", 1, 0, 0, 0, 0],
        ["load", 0, 0, 0, 0, 2],
        ["scalar", 9],
        ["add", 0, 99],
        ["mul", 0],
        ["gamma", 0],
        ["exp", 0, 0],
        ["constant", "one"],
        [],
    ],
)
def test_a_program_that_is_none_is_refused(row: list[Any]) -> None:
    """Checks that a program with an unknown operation or an undefined operand is refused."""
    data = find_stencil("heat7").to_json()
    data["stages"][0]["program"]["operations"].append(row)
    with pytest.raises(InputError, match="not the description of a stencil"):
        Stencil.from_json(data)


def doubled(times: int) -> sympy.Expr:
    """Return a small expression that becomes very long when it is expanded."""
    term = CENTRE
    for _ in range(times):
        term = (term + 1) * (term + 2)
    return term


def nested(depth: int) -> sympy.Expr:
    """Return an expression with `depth` nested levels."""
    term = CENTRE
    for _ in range(depth):
        term = sympy.Add(1, sympy.Mul(2, term, evaluate=False), evaluate=False)
    return term


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "no update": (lambda: Stencil("s", {}), "updates no fields"),
    "no updates": (lambda: Stencil("s", [{U: CENTRE}, {}]), "updates no fields"),
    "too many fields": (
        lambda: Stencil("s", {U: sum(Field(f"f{i}")[0, 0, 0] for i in range(64))}),
        "65 values of fields, at most 64",
    ),
    "no field": (lambda: Stencil("s", {CENTRE: CENTRE}), "is not a Field"),
    "previous of what never changes": (lambda: Stencil("s", {U: Field("v").previous[0, 0, 0]}), "nothing updates it"),
    "two numbers of axes": (lambda: Stencil("s", {U: U[0] + U[0, 1]}), "mixes offsets of 1 and 2"),
    "another number of axes": (lambda: Stencil("s", {U: U[0]}, ndim=3), "offsets have 1"),
    "field and parameter": (lambda: Stencil("s", {U: Parameter("u", 1) * CENTRE}), "have the name 'u'"),
    "free symbol": (
        lambda: Stencil("s", {U: sympy.Symbol("q") * CENTRE}),
        "q is neither a Parameter, a Signal nor a field",
    ),
    "half an offset": (lambda: U[0, 0.5, 0], "one to three whole numbers"),
    "four offsets": (lambda: U[0, 1, 2, 3], "one to three whole numbers"),
    "zero divisor": (lambda: Stencil("s", {U: CENTRE / sympy.S.Zero}), "'s'"),
    "zero over zero": (lambda: Stencil("s", {U: CENTRE + sympy.nan}), "'s'"),
    "infinite": (lambda: Stencil("s", {U: CENTRE * float("inf")}), "'s'"),
    "imaginary": (lambda: Stencil("s", {U: CENTRE * sympy.I}), "'s'"),
    "hyperbolic sine": (
        lambda: Stencil("s", {U: sympy.sinh(CENTRE)}),
        "sinh(u(0, 0, 0)) cannot be computed; there are + - * / powers sqrt Abs Min Max exp log sin cos tan tanh",
    ),
    "cosecant": (lambda: Stencil("s", {U: sympy.csc(CENTRE)}), "csc(u(0, 0, 0)) cannot be computed"),
    "integral": (lambda: Stencil("s", {U: sympy.Integral(K, (K, 0, 1))}), "'s'"),
    "imaginary power": (lambda: Stencil("s", {U: CENTRE**sympy.I}), "I cannot be computed"),
    "no value elsewhere": (
        lambda: Stencil("s", {U: sympy.Piecewise((CENTRE, CENTRE > 0))}),
        "end it with (value, True)",
    ),
    "an unknown condition": (
        lambda: Stencil("s", {U: sympy.Piecewise((1, sympy.Xor(CENTRE > 0, U[0, 0, 1] > 0)), (2, True))}),
        "is no condition; there are < <= > >= Eq Ne And Or Not",
    ),
    "condition": (lambda: Stencil("s", {U: CENTRE > 0}), "'s'"),
    "text": (lambda: Stencil("s", {U: "u +"}), "'s'"),
    "same name": (lambda: Stencil("s", {U: Parameter("a", 1) * CENTRE + Parameter("a", 2)}), "have the name 'a'"),
    "no mapping": (lambda: Stencil("s", None), "updates no fields"),  # type: ignore[arg-type]
    "a list of expressions": (lambda: Stencil("s", [CENTRE]), "updates are a mapping"),  # type: ignore[list-item]
    "no text": (lambda: Stencil(5, {U: CENTRE}), "name 5 of a stencil must be text"),  # type: ignore[arg-type]
    "a field called 5": (lambda: Field(5), "field name 5 is not"),  # type: ignore[arg-type]
    "default that is text": (lambda: Parameter("a", "b"), "default 'b' must be a finite number"),  # type: ignore[arg-type]
    "default that is none": (lambda: Parameter("a", float("nan")), "default nan must be"),
    "bad name": (lambda: Field("two words"), "not an identifier"),
    "unknown stencil": (lambda: find_stencil("heat9"), "There are: heat7, heat13, box27"),
    "heat in 5 dimensions": (lambda: heat(ndim=5), "not available"),
    "a word of C": (lambda: Field("int"), "is a word of C"),
    "300 letters": (lambda: Field("u" * 300), "is not an identifier"),
    "a name of two lines": (lambda: Signal("w\n"), "is not an identifier"),
    "huge default": (lambda: Parameter("a", 10**5000), "<int> must be a finite number"),
    "huge parameter": (lambda: find_stencil("heat7").scalars({"c0": 10**5000}), "must be a finite number"),
    "huge number": (lambda: Stencil("s", {U: CENTRE * 10**5000}), "is not a finite number"),
    "far away": (lambda: U[0, 0, 65], "at most 64 cells"),
    "control characters": (lambda: Stencil("\x1b[31m", {U: CENTRE}), "must be text on one line"),
    "an order of 5000 digits": (lambda: find_stencil("heat" + "9" * 5000), "are: heat7"),
    "an order of other digits": (lambda: find_stencil("heat\u0664"), "are: heat7"),
    "half an order": (lambda: heat(2, 4.0), "not available"),  # type: ignore[arg-type]
    "yes": (lambda: heat(2, equal_spacing="no"), "there are True, False"),  # type: ignore[arg-type]
    "wide sponge": (lambda: sponge((9, 9), 10**5000, velocity=1.0, spacing=1.0), "whole number of cells"),
    "endless shape": (lambda: sponge(range(10**12), 1, velocity=1.0, spacing=1.0), "one to three sizes"),
    "growing": (lambda: Stencil("s", {U: doubled(60)}), "terms, written out, at most 100000"),
    "deep": (lambda: Stencil("s", {U: nested(250)}), "nested too deeply"),
    "three axes of 5": (lambda: Stencil("s", {U: CENTRE}, ndim=np.zeros(3)), "there are 1, 2 and 3"),  # type: ignore[arg-type]
    "unknown side": (lambda: Boundary(z=("open", "open")), "'open' is not available"),  # type: ignore[arg-type]
    "unknown parameter": (lambda: find_stencil("heat7").scalars({"c9": 1.0}), "there are: c0, c1"),
}


@pytest.mark.parametrize("mistake", sorted(MISTAKES))
def test_a_mistake_ends_in_one_line_that_names_it(mistake: str) -> None:
    """Checks that a mistake in an equation gives a one-line error, without a traceback of SymPy or the C compiler."""
    make, message = MISTAKES[mistake]
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_equal_names_in_two_stencils_keep_their_own_defaults() -> None:
    """Checks two stencils whose parameters have the same name and different defaults. Each stencil keeps its own
    default, although the cache of SymPy may exchange equal objects.
    """
    first = Stencil("first", {U: Parameter("c", 0.4) * CENTRE})
    other = Stencil("other", {U: Parameter("c", 0.25) * CENTRE})
    assert [stencil.scalars({}) for stencil in (first, other)] == [(0.4,), (0.25,)]


def test_numbers_are_not_multiplied_into_sums() -> None:
    """Checks that the product of a number and a sum stays one product. SymPy may multiply each term by the number."""
    stencil = Stencil("mean", {U: Parameter("c", 0.5) * (U[0, 0, 1] + U[0, 0, -1])})
    operators = [row[0] for row in stencil.stages[0].program.to_json()["operations"]]
    assert operators.count("mul") == 1


def test_stability_is_reported_not_refused() -> None:
    """Checks that `stability` reports an unstable linear stencil, and does not report a stable stencil. For a
    nonlinear stencil, `stability` needs a state."""
    heat7 = find_stencil("heat7")
    assert stability(heat7, {}) is None
    assert "factor 2.2" in (stability(heat7, {"c0": 1 - 6 * 4 / 15, "c1": 4 / 15}) or "")
    assert stability(Stencil("square", {U: CENTRE**2}), {}, [{"u": 0.4}]) is None
    with pytest.raises(InputError, match="depends on the values of u"):
        stability(Stencil("square", {U: CENTRE**2}), {})
    skewed = Stencil("upwind", {U: CENTRE - Parameter("a", 0.5) * (CENTRE - U[0, 0, -1])})
    assert stability(skewed, {}) is None
    assert stability(skewed, {"a": 1.5}) is not None
    # The next stencil has a cross derivative. The wave that grows fastest has phases of opposite signs along y and x.
    near, cross = U[0, 1, 0] + U[0, -1, 0] + U[0, 0, 1] + U[0, 0, -1], U[0, 1, -1] + U[0, -1, 1]
    assert "factor 1.06" in (stability(Stencil("cross", {U: CENTRE / 2 + near / 8 - cross / 4}), {}) or "")


def test_a_kernel_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that equal kernels are compiled only once. Later calls load the file of the kernel."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    stencil = find_stencil("heat7")
    first = compiling.compile_kernel(stencil, "float32", "plain")
    assert tmp_path in first.path.parents
    written = first.path.stat().st_mtime_ns
    again = compiling.compile_kernel(Stencil.from_json(stencil.to_json()), "float32", "plain")
    assert (again.path, again.path.stat().st_mtime_ns) == (first.path, written)
    assert compiling.compile_kernel(stencil, "float64", "plain").path != first.path
    assert [path.suffix for path in first.path.parent.iterdir()] == [".so", ".so"], "no scratch files stay behind"


def test_processes_may_compile_the_same_kernel_at_once(tmp_path: Path) -> None:
    """Checks that several processes can compile the same kernel at the same time, and that each process gets a complete
    kernel."""
    script = (
        "from outcrop.language.library import heat7\n"
        "from outcrop.language.compile import compile_kernel\n"
        "print(compile_kernel(heat7(), 'float32', 'plain').calls[0][0] > 0)"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-c", script]
    running = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.communicate()[0].strip() for process in running] == ["True"] * 3


def test_no_compiler_is_reported_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that a machine without a compiler gives a one-line error that says what to install."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    find_compiler.cache_clear()
    try:
        with pytest.raises(InputError, match="install gcc or clang, or run: pip install ziglang"):
            find_compiler("C")
    finally:
        find_compiler.cache_clear()


@pytest.mark.parametrize("isa", ["avx1024", "neon"])
def test_vectors_this_machine_lacks_are_refused(isa: str) -> None:
    """Checks that a request for vector instructions is refused if this machine does not have them."""
    if isa in compiling.available_isas():
        pytest.skip(f"this machine has {isa}")
    with pytest.raises(InputError, match="not available here"):
        compiling.compile_kernel(find_stencil("heat7"), "float32", isa)


def test_text_in_an_equation_cannot_break_out_of_the_comment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that text from the user cannot end a comment of the generated C code."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    stencil = Stencil("odd */ name", {U: CENTRE}, "u' = u */ #error \\\n #error")
    compiling.compile_kernel(stencil, "float32", "plain")
    array = np.ones((1, 1, 1), np.float32)
    assert (advance(stencil, array, {}, 1) == array).all()


def test_terms_with_one_coefficient_are_multiplied_once() -> None:
    """Checks that the kernel of an expanded difference formula has one product for each coefficient, and not one
    product for each neighbour."""
    c = Parameter("c", 0.5)
    stencil = Stencil("mean", {U: c * U[0, 0, 1] + c * U[0, 0, -1] - c * U[0, 1, 0] + CENTRE / 3 - U[1, 0, 0] / 3})
    operators = [row[0] for row in stencil.stages[0].program.to_json()["operations"]]
    assert (operators.count("mul"), operators.count("sub"), operators.count("neg")) == (2, 2, 0)


def test_what_depends_on_no_cell_is_no_vector_operation() -> None:
    """Checks that the kernel computes values that are equal for all cells once per call, and not once per cell."""
    h, dt = Parameter("h", 2.0), Parameter("dt", 0.1)
    program = Stencil("s", {U: CENTRE + dt / h**2 * (U[0, 0, 1] - CENTRE)}).stages[0].program
    pairs = zip(program.operations, program.uniform, strict=True)
    of_cells = [one.operator for one, uniform in pairs if isinstance(one, Apply) and not uniform]
    assert sorted(of_cells) == ["add", "mul", "sub"]


@pytest.mark.parametrize(
    "write",
    [
        lambda u, dt: u + dt, lambda u, dt: dt * u, lambda u, dt: -u, lambda u, dt: 1 - u, lambda u, dt: u**2,
        lambda u, dt: sympy.sin(u), lambda u, dt: np.exp(u), lambda u, dt: np.float64(2) * u, lambda u, dt: math.sin(u),
        lambda u, dt: float(u), lambda u, dt: np.where(u > 0, 1, 0), lambda u, dt: max(u, 0),
        lambda u, dt: np.roll(u, 1), lambda u, dt: sum(u),
    ],
)  # fmt: skip
def test_a_field_without_an_offset_is_refused(write: Callable[[Field, Parameter], object]) -> None:
    """Checks the message for a field without an offset. The message says how to write the value of the cell itself."""
    with pytest.raises(InputError, match=r"u is a field and not a value: write u\[0, 0, 0\]"):
        write(Field("u"), Parameter("dt", 0.1))


def test_the_previous_value_without_an_offset_is_refused() -> None:
    with pytest.raises(InputError, match=r"u[.]previous is a field and not a value: write u[.]previous\[0, 0, 0\]"):
        Field("u").previous + 1  # type: ignore[operator]


@pytest.mark.parametrize(
    ("write", "right"),
    [
        (lambda u, dt: np.sin(u[0, 0]), "np.sin cannot compute with .*: use sympy.sin"),
        (lambda u, dt: np.exp(dt), "np.exp cannot compute with dt, .*: use sympy.exp"),
        (lambda u, dt: np.sqrt(Signal("s")), "use sympy.sqrt"),
        (lambda u, dt: np.arctan2(u[0], 1.0), "use sympy.atan2"),
        (lambda u, dt: np.log10(u.previous[0]), "use the functions of SymPy"),
        (lambda u, dt: math.sin(u[0]), r"^u\[0\] is .*not a number: use sympy.sin, not math.sin"),
        (lambda u, dt: float(dt), "dt is a part of an equation and not a number"),
        (lambda u, dt: int(u[0]), "not a number"),
        (lambda u, dt: np.exp(oc.x), "np.exp cannot compute with x, .*: use sympy.exp"),
        (lambda u, dt: math.sin(oc.nx), "nx is a part of an equation and not a number"),
    ],
)
def test_functions_of_numbers_name_the_function_of_sympy(
    write: Callable[[Field, Parameter], object], right: str
) -> None:  # fmt: skip
    """Checks that functions of NumPy and of the module math end with one line that names the right function."""
    with pytest.raises(InputError, match=right):
        write(Field("u"), Parameter("dt", 0.1))


@pytest.mark.parametrize(
    ("write", "condition"),
    [
        (lambda u, dt: u[0] if u[0] > 0 else 0, "u[0] > 0"),
        (lambda u, dt: np.where(u[1] <= dt, u[0], 0), "u[1] <= dt"),
        (lambda u, dt: max(u[0], 0), "u[0] < 0"),
        (lambda u, dt: min(1, u[0]), "u[0] < 1"),
        (lambda u, dt: np.maximum(u[0], 0), "u[0] >= 0"),
        (lambda u, dt: np.clip(u[0], 0, 1), "u[0] >= 0"),
        (lambda u, dt: 0 < u[0] < 1, "u[0] > 0"),
        (lambda u, dt: (u[0] > 0) * u[0], "u[0] > 0"),
        (lambda u, dt: u[0] * (u[0] >= 0), "u[0] >= 0"),
        (lambda u, dt: 1 if oc.x > 3 else 0, "x > 3"),
        (lambda u, dt: 1 if u[0, -1] > u.previous[0, 0] else 0, "u[0, -1] > u.previous[0, 0]"),
        (lambda u, dt: 1 if u.back(2)[0] > 1 else 0, "u.back(2)[0] > 1"),
    ],
)
def test_a_condition_of_an_equation_has_no_truth_value(
    write: Callable[[Field, Parameter], object], condition: str
) -> None:
    """Checks conditions in Python's `if`, `max`, `min` and chained comparisons, and in NumPy's selections. The error is
    one line that names the right function. It is also a TypeError, because SymPy expects this type."""
    with pytest.raises(InputError, match=rf"^{re.escape(condition)} is a condition .*sympy.Piecewise") as caught:
        write(Field("u"), Parameter("dt", 0.1))
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("of_sympy", [sympy.Gt, sympy.Ge, sympy.Lt, sympy.Le])
def test_a_comparison_is_the_same_for_sympy(of_sympy: Any) -> None:
    """Checks that `u[0] > dt` equals SymPy's own comparison, in both directions of `==`. Conditions from both
    comparisons must give the same stencil."""
    u, dt = Field("u"), Parameter("dt", 0.1)
    compare = {sympy.Gt: operator.gt, sympy.Ge: operator.ge, sympy.Lt: operator.lt, sympy.Le: operator.le}[of_sympy]
    plain = of_sympy(u[0], dt, evaluate=False)
    own = compare(u[0], dt)
    assert own == plain and plain == own and hash(own) == hash(plain) and str(own) == str(plain)
    assert own != of_sympy(dt, u[0], evaluate=False) and (own & plain) == plain and ~own == ~plain

    def stencil(condition: Any) -> Stencil:
        return Stencil("s", {u: sympy.Piecewise((u[1], condition & (u[-1] > 0)), (u[0], ~condition), (1, True))})

    assert stencil(own) == stencil(plain)


def test_numbers_of_numpy_are_factors() -> None:
    """Checks that scalars and arrays of NumPy can multiply the parts of an equation."""
    u, dt = Field("u"), Parameter("dt", 0.1)
    plain = Stencil("plain", {u: 0.5 * u[0] + 2.0 * dt * u[1]})
    pair = np.array([0.5, 2.0]) * u[0]
    assert Stencil("plain", {u: np.float64(0.5) * u[0] + u[1] * np.float32(2) * dt}) == plain
    assert list(pair) == [0.5 * u[0], 2.0 * u[0]] and np.abs(u[0]) == abs(u[0])
