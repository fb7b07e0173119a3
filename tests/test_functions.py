"""Check the functions that expressions may use. Their results must have the same bits in C and in NumPy, and the errors
must not be larger than the documentation states. Also check special values, powers, conditions, and derivatives."""

from __future__ import annotations

import ctypes
import itertools
import math
import re
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
import sympy
from numpy.typing import NDArray

import outcrop as oc
from backwards import Steps, put, reverse
from kernels import call as call_kernel
from oracle import advance, advance_fields
from outcrop.language import functions
from outcrop.language.adjoint import adjoint_of
from outcrop.language.boundary import FIXED, as_boundary
from outcrop.language.compile import FLAGS, VECTOR_BYTES, available_isas, compile_kernel
from outcrop.language.functions import FUNCTIONS, definitions
from outcrop.language.generate import generate, vector_types
from outcrop.language.linearised import tangent
from outcrop.language.program import Apply, evaluate
from outcrop.language.stability import growth
from outcrop.language.stencil import Field, Parameter, Signal, Stencil
from outcrop.shared_object import find_compiler, load_library, run_compiler, shared_object

U, V, K = Field("u"), Field("v"), Parameter("k", 0.3)
here = U[0, 0, 0]
DTYPES = ["float32", "float64"]
WORDS = {"float32": np.uint32, "float64": np.uint64}
PAGE = Path(__file__).parent.parent / "docs" / "reference" / "functions.md"
Array = NDArray[np.floating]


def special(dtype: str) -> Array:
    """Return numbers at which functions have special values, or at which the computation of a function changes to
    another formula.
    """
    found = np.finfo(dtype)
    digits = found.nmant
    positive = [
        0.0, 0.25, 0.5, 0.5625, 1 - found.epsneg, 1.0, 1 + found.eps, 1.5, 2.0, 3.0, 4.0, 10.0, 20.0, 1e10, np.inf,
        found.max, found.tiny, found.smallest_subnormal, found.tiny - found.smallest_subnormal, 2.0**9, 2.0**20,
        2.0**digits, 2.0**digits + 1, 2.0 ** (digits + 1) - 1, 2.0 ** (digits - 1) + 0.5, 88.7, 104.0, 709.7, 745.1,
        math.pi / 4, math.pi / 2, math.pi, 1e5 * math.pi,
    ]  # fmt: skip
    return np.array([*positive, *(-one for one in positive), np.nan], dtype)


def arguments(name: str, dtype: str, count: int, seed: int = 1) -> list[Array]:
    """Return arguments of a function: every pair of special numbers, and random numbers. One third of the random
    numbers have any bits, one third lie between -2 and 2, and one third are small or large."""
    rng = np.random.default_rng(seed)
    columns = list(zip(*itertools.product(special(dtype), repeat=FUNCTIONS[name]), strict=True))
    found = []
    for column in columns:
        any_bits = rng.integers(0, 2**64, count // 3, dtype=np.uint64).astype(WORDS[dtype]).view(dtype)
        near = rng.uniform(-2, 2, count // 3)
        rest = rng.standard_normal(count - 2 * (count // 3)) * 10.0 ** rng.integers(-3, 4, count - 2 * (count // 3))
        found.append(np.concatenate([np.array(column, dtype), any_bits, near.astype(dtype), rest.astype(dtype)]))
    return found


def same(a: Array, b: Array) -> bool:
    """Return whether the arrays have the same bits. The bits of NaN may differ."""
    words = WORDS[a.dtype.name]
    return bool(((a.view(words) == b.view(words)) | (np.isnan(a) & np.isnan(b))).all())


def compiled(dtype: str, isa: str) -> ctypes.CDLL:
    """Compile a loop for each function. The loop `run_exp` computes vectors, and `run_exp_1` computes single
    numbers."""
    vector_bytes = VECTOR_BYTES[isa]
    lanes = max(1, vector_bytes // np.dtype(dtype).itemsize)
    lines = ["#include <math.h>", *vector_types({"float32": "float", "float64": "double"}[dtype], lanes)]
    lines += definitions(sorted(FUNCTIONS), dtype, lanes)
    for name, count in FUNCTIONS.items():
        places = range(count)
        pointers = ", ".join(f"const cell *a{i}" for i in places)
        lines.append(f"void run_{name}_1({pointers}, cell *r, long n) {{ for (long i = 0; i < n; i++)")
        lines.append(f"  r[i] = cell_{name}({', '.join(f'a{i}[i]' for i in places)}); }}")
        if lanes > 1:
            lines.append(f"void run_{name}({pointers}, cell *r, long n) {{ for (long i = 0; i < n; i += {lanes})")
            vectors = ", ".join(f"*(const v *)(a{i} + i)" for i in places)
            lines.append(f"  *(v *)(r + i) = vector_{name}({vectors}); }}")
    text = "\n".join(lines).replace("long n)", "long count)").replace("i < n;", "i < count;")

    def build(beside: Path) -> None:
        file = beside.with_name("functions.c")
        file.write_text(text)
        run_compiler([*find_compiler("C"), *FLAGS, str(file), "-o", str(beside), "-lm"], "the functions")

    return load_library(shared_object("kernels", (text, *FLAGS), build))


def aligned(values: Array) -> Array:
    """Return a copy at the beginning of a cache line, with padding to whole lines."""
    memory = np.zeros(values.nbytes + 128, np.uint8)
    start = -memory.ctypes.data % 64
    size = -(-values.nbytes // 64) * 64
    array = memory[start : start + size].view(values.dtype)
    array[: len(values)] = values
    return array


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("isa", available_isas()[:-1] or available_isas())
def test_functions_in_c_have_the_bits_of_numpy(isa: str, dtype: str) -> None:
    """Checks that each function has the same bits in C and in NumPy, for many numbers. In C, both loops are tested: the
    loop for vectors and the loop for single numbers.
    """
    library = compiled(dtype, isa)
    for name in FUNCTIONS:
        given = [aligned(one) for one in arguments(name, dtype, 100_000)]
        with np.errstate(all="ignore"):
            expected = functions.call(name, dtype, *given)
        for loop in {f"run_{name}_1", f"run_{name}" if VECTOR_BYTES[isa] else f"run_{name}_1"}:
            result = aligned(np.zeros_like(given[0]))
            addresses = [ctypes.c_void_p(one.ctypes.data) for one in (*given, result)]
            getattr(library, loop)(*addresses, ctypes.c_long(len(result)))
            assert same(result, expected), (loop, isa)


def largest_errors() -> dict[tuple[str, str], float]:
    """Return the largest error that the page of the functions states, for each function and dtype. The unit is one unit
    in the last place."""
    rows = re.findall(r"^\| `(\w+)[^|]*\|[^|]*\| ([\d.]+) \| ([\d.]+) \|", PAGE.read_text(), re.M)
    return {(name, dtype): float(error) for name, *errors in rows for dtype, error in zip(DTYPES, errors, strict=True)}


def error_of(found: float, exact: Any, dtype: str) -> float:
    """Return the error of a result. The unit of the error is one unit in the last place of the exact result."""
    limits = np.finfo(dtype)
    if not mpmath.isfinite(exact) or abs(exact) > limits.max:
        return 0.0 if not math.isfinite(found) or abs(found) == limits.max else math.inf
    exponent = int(mpmath.floor(mpmath.log(abs(exact), 2))) if exact else limits.minexp
    return float(abs(mpmath.mpf(found) - exact) / mpmath.mpf(2) ** (max(exponent, limits.minexp) - limits.nmant))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - {"sign"}))
def test_errors_are_within_those_of_the_page(name: str, dtype: str) -> None:
    """Compares results with mpmath, which computes with more digits. Some arguments are close to multiples of pi / 2,
    and some are huge."""
    given = arguments(name, dtype, 450)
    rng = np.random.default_rng(2)
    near = (math.pi / 2 * rng.integers(-(10**5), 10**5, len(given[0]))).astype(dtype)
    given = [np.concatenate([one, near if place == 0 else rng.uniform(-9, 9, len(near)).astype(dtype)])
             for place, one in enumerate(given)]  # fmt: skip
    usable = np.all([np.isfinite(one) & (one != 0) for one in given], axis=0)
    if name in ("log", "pow"):
        given[0] = abs(given[0])
    rows = [one[usable][-450:] for one in given]
    with np.errstate(all="ignore"):
        found = functions.call(name, dtype, *rows)
    exact = {"pow": mpmath.power}.get(name) or getattr(mpmath, name)
    with mpmath.workprec(1400 if name in ("sin", "cos", "tan") else 150):
        errors = [
            error_of(float(result), exact(*map(mpmath.mpf, map(float, row))), dtype)
            for result, *row in zip(found, *rows, strict=True)
        ]
    assert max(errors) <= largest_errors()[name, dtype]


def test_the_argument_closest_to_a_multiple_of_half_pi() -> None:
    """Checks that sin and cos are right for the argument whose reduction loses the most digits (J.-M. Muller,
    Elementary Functions, 3rd ed.).
    """
    x = np.array([6381956970095103.0 * 2.0**797])
    assert functions.call("cos", "float64", x)[0] == -4.687165924254628e-19
    assert functions.call("sin", "float64", x)[0] == 1.0


@pytest.mark.parametrize("dtype", DTYPES)
def test_special_values_are_those_of_c(dtype: str) -> None:
    """Checks that functions have NumPy's values for zeros with both signs, infinite numbers and NaN. NumPy uses the
    special values of C.
    """
    for name, count in FUNCTIONS.items():
        given = [np.array(one, dtype) for one in zip(*itertools.product(special(dtype), repeat=count), strict=True)]
        with np.errstate(all="ignore"):
            found = functions.call(name, dtype, *given)
            expected = {"pow": np.power, "atan2": np.arctan2}.get(name, getattr(np, name, None))(*given)
            close = np.abs(found - expected) <= 4 * np.spacing(np.abs(expected))
        is_same = (found == expected) & (np.signbit(found) == np.signbit(expected))
        is_sign = name == "sign"  # NumPy's sign of -0 is +0
        assert ((found == expected) if is_sign else is_same | (np.isnan(found) & np.isnan(expected)) | close).all() or (
            is_sign and np.isnan(given[0][found != expected]).all()
        ), name


def operators(expression: sympy.Expr) -> list[str]:
    program = Stencil("s", {U: expression}).stages[0].program
    return [one.operator for one in program.operations if isinstance(one, Apply)]


def test_powers_are_products_where_this_is_possible() -> None:
    """Checks that powers with small whole or half exponents become products, divisions and square roots."""
    assert operators(here**0.5) == operators(sympy.sqrt(here)) == ["sqrt"]
    assert operators(here**2.0) == operators(here**2) == ["mul"]
    assert operators(here**1.5) == ["sqrt", "mul"]
    assert operators(here**-1.5) == ["sqrt", "mul", "div"]
    assert operators(here**17) == operators(here ** sympy.Rational(1, 3)) == operators(here**K) == ["pow"]
    assert operators(sympy.E**here) == ["exp"]
    assert operators(sympy.atan(here)) == ["atan2"]


def values_of(expression: sympy.Expr, u: Any, v: Any = 0.0) -> list[float]:
    stencil = Stencil("s", {U: expression}, ndim=3)
    fields = {"u": np.array(u, np.float64), "v": np.array(v, np.float64)}
    (found,) = evaluate(stencil.stages[0].program, lambda load: fields[stencil.fields[load.field].name], [0.3] * 9,
                        np.float64)  # fmt: skip
    return (found + 0 * fields["u"] if np.ndim(found) == 0 else found).tolist()  # type: ignore[no-any-return]


def test_conditions_select_one_value_for_each_cell() -> None:
    """Checks all comparisons, also with NaN, and And, Or and Not. The first branch whose condition is true counts."""
    u, nan = [-1.0, 0.0, 1.0, math.nan], math.nan
    wanted = {
        here > 0: [0, 0, 1, 0], here >= 0: [0, 1, 1, 0], here < 0: [1, 0, 0, 0], here <= 0: [1, 1, 0, 0],
        sympy.Eq(here, 0): [0, 1, 0, 0], sympy.Ne(here, 0): [1, 0, 1, 1],
        sympy.And(here > -1, here < 1): [0, 1, 0, 0], sympy.Or(here > 0, here < 0): [1, 0, 1, 0],
        sympy.Or(sympy.Eq(here, 1), sympy.And(here < 0, K > 0)): [1, 0, 1, 0],
    }  # fmt: skip
    for condition, expected in wanted.items():
        assert values_of(sympy.Piecewise((1, condition), (0, True)), u) == expected, condition
    first = sympy.Piecewise((1, here > 0), (2, here >= 0), (sympy.sqrt(here), here < -5), (3, True))
    assert values_of(first, u) == [3, 2, 1, 3]
    assert values_of(sympy.Piecewise((here, here > V[0, 0, 0]), (V[0, 0, 0], True)), [1.0, 2.0], [2.0, nan])[0] == 2


@pytest.mark.parametrize("vector_bytes", [0, 64])
def test_functions_of_parameters_are_computed_once_for_each_call(vector_bytes: int) -> None:
    """Checks that functions of a parameter are computed before the loops over rows and cells, and not inside these
    loops.
    """
    text = generate(Stencil("s", {U: sympy.exp(-K) * (here + U[0, 0, 1]) + sympy.sin(1)}), "float32", vector_bytes)
    calls = [line for line in text.splitlines() if re.search(r"(cell|vector)_(exp|sin)\(u", line)]
    assert len(calls) == 2
    start = text.index("void outcrop_update_0")
    assert all(text.index(line) > start for line in calls)
    assert text.index("long y = b->y0", start) > max(map(text.index, calls))


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("dtype", DTYPES)
def test_kernels_with_functions_equal_the_oracle(isa: str, dtype: str) -> None:
    """Checks that all loops of a kernel equal the oracle, for a stencil with functions of fields and parameters and
    with conditions.
    """
    update = sympy.exp(-(here**2)) * sympy.log(K) + sympy.Piecewise(
        (sympy.tanh(U[0, 0, 1]), here > U[0, 1, 0]), (sympy.sin(U[1, 0, 0]), sympy.Eq(here, 0)), (K**K, True)
    )
    stencil = Stencil("s", {U: update})
    array = np.random.default_rng(3).standard_normal((4, 5, 70)).astype(dtype)
    array[1:3, 2] = 0
    found = call_kernel(compile_kernel(stencil, dtype, isa), stencil, {"k": 0.7}, array, (1, 4))
    expected = advance(stencil, array, {"k": 0.7}, 1)
    assert same(np.ascontiguousarray(found[:, 1:4, :70]), np.ascontiguousarray(expected[1:3, 1:4]))


def waves() -> Stencil:
    """Return a step with functions of parameters, signals, static fields and updated fields."""
    theta, s = Field("theta"), Signal("s")
    spread = sympy.cos(theta[0, 0, 0]) * (U[0, 0, 1] + U[0, 0, -1]) + sympy.sin(theta[0, 0, 0]) * U[1, 0, 0]
    limited = sympy.Piecewise((spread / 4, sympy.Abs(spread) < 2), (sympy.sign(spread) * K**1.3, True))
    return Stencil("waves", {U: sympy.tanh(here) * sympy.exp(-K) + limited + sympy.sin(s) / 8})


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("boundary", ["fixed", "z=fixed,y=periodic,x=mirror"])
def test_a_run_has_the_bits_of_the_oracle(tmp_path: Path, dtype: str, boundary: str) -> None:
    stencil, shape, steps = waves(), (24, 9, 70), 7
    rng = np.random.default_rng(5)
    state = {name: rng.standard_normal(shape).astype(dtype) for name in ("u", "theta")}
    signals = {"s": np.linspace(0, 1, steps)}
    sim = oc.Simulation(stencil, shape, dtype=dtype, directory=tmp_path / "run.oc", memory="1MiB", boundary=boundary,
                        signals=signals)  # fmt: skip
    sim.assign(state)
    sim.run(steps, progress="none")
    lists = {name: one.tolist() for name, one in signals.items()}
    expected = advance_fields(stencil, state, {}, steps, as_boundary(boundary), lists)
    assert oc.open(tmp_path / "run.oc").stencil == Stencil.from_json(stencil.to_json()) == stencil
    assert sim["u"][:].tobytes() == expected["u"].tobytes()


SMOOTH = {
    "exp": sympy.exp(U[0] * V[0]), "log": sympy.log(U[0] + V[0]), "sin": sympy.sin(3 * U[0]) * V[0],
    "cos": sympy.cos(U[0] - V[0]), "tan": sympy.tan(U[0] / 2) + V[0], "tanh": sympy.tanh(U[0] * V[0]),
    "atan2": sympy.atan2(U[0] - 1, V[0] - 1), "atan": sympy.atan(U[0] * V[0]), "pow": U[0] ** V[0],
    "root": (U[0] + V[0]) ** sympy.Rational(1, 3), "half": U[0] ** 2.5 / V[0], "base": 2 ** (U[0] * V[0]),
    "parameter": V[0] * U[0] ** K + K**K, "sign": sympy.sign(U[0] - V[0]) * U[0] * V[0],
    "branches": sympy.Piecewise((U[0] * V[0], U[0] > V[0]), (U[0] - V[0] ** 2, True)),
}  # fmt: skip


@pytest.mark.parametrize("name", SMOOTH)
def test_tangents_are_derivatives_and_adjoints_are_their_transposes(name: str) -> None:
    """Compares the tangent with central differences, and the adjoint with the tangent."""
    stencil, rng = Stencil("s", {U: SMOOTH[name]}, ndim=1), np.random.default_rng(7)
    state = {key: rng.uniform(0.5, 1.5, (1, 1, 50)) for key in ("u", "v")}
    changes = {key: rng.standard_normal((1, 1, 50)) for key in state}
    parameters = {"k": 0.3} if stencil.parameters else {}
    slopes = {one: 0.7 for one in parameters}
    made = tangent(stencil, ["v", *parameters])
    start = {**state, **{f"{key}_tangent": one for key, one in changes.items()}}
    values = {**parameters, **{f"{key}_tangent": one for key, one in slopes.items()}}
    found = advance_fields(made, start, values, 1)
    h = 1e-6
    ends = [
        advance_fields(
            stencil,
            {key: one + step * changes[key] for key, one in state.items()},
            {key: one + step * slopes[key] for key, one in parameters.items()},
            1,
        )["u"]
        for step in (h, -h)
    ]
    np.testing.assert_allclose(found["u_tangent"], (ends[0] - ends[1]) / (2 * h), rtol=1e-7, atol=1e-7)
    seed = rng.standard_normal((1, 1, 50))
    back = reverse(adjoint_of(stencil, ["v", *parameters]), Steps(stencil, FIXED, OWN, put, np.float64), state,
                   [list(map(np.float64, parameters.values()))], {"u": seed})  # fmt: skip
    right = (back.adjoints["u"] * changes["u"]).sum() + (back.gradients["v"] * changes["v"]).sum()
    right += sum(back.gradients[key].sum() * slope for key, slope in slopes.items())
    assert right == pytest.approx((seed * found["u_tangent"]).sum(), rel=1e-12)


OWN = {
    **{name: (lambda *given, name=name: functions.call(name, "float64", *given)) for name in FUNCTIONS},
    **{name: getattr(np, name) for name in ("add", "sqrt", "abs")},
    "sub": np.subtract, "mul": np.multiply, "div": np.divide, "neg": np.negative,
    "where": lambda a, b, c, d: np.where(a > b, c, d), "where_equal": lambda a, b, c, d: np.where(a == b, c, d),
}  # fmt: skip


def adjoint_at(expression: sympy.Expr, u: list[float]) -> list[float]:
    """Return the derivatives of an expression of u at the values `u`. The adjoint computes these derivatives."""
    stencil = Stencil("s", {U: expression}, ndim=1)
    state = {"u": np.array([[u]])}
    with np.errstate(all="ignore"):
        steps, seeds = Steps(stencil, FIXED, OWN, put, np.float64), {"u": np.ones((1, 1, len(u)))}
        back = reverse(adjoint_of(stencil), steps, state, [[]], seeds)
    found: list[float] = back.adjoints["u"][0, 0].tolist()
    return found


def test_derivatives_at_ties_and_in_branches_that_are_not_selected() -> None:
    """Checks the derivatives that the documents state for points where two branches meet. A branch that is not selected
    can give NaN or infinity. This must not change the derivative, even if a term occurs twice in the branch."""
    here = U[0]
    assert adjoint_at(sympy.sign(here), [-1.0, 0.0, 2.0]) == [0, 0, 0]
    assert adjoint_at(sympy.Piecewise((2 * here, here > 0), (5 * here, True)), [-1.0, 0.0, 1.0]) == [5, 5, 2]
    assert adjoint_at(sympy.Piecewise((2 * here, here >= 0), (5 * here, True)), [-1.0, 0.0, 1.0]) == [5, 2, 2]
    assert adjoint_at(sympy.Piecewise((2 * here, sympy.Eq(here, 1)), (here, True)), [0.0, 1.0]) == [1, 2]
    root, inverse = sympy.sqrt(here), 1 / here
    guarded = sympy.Piecewise((root + inverse + root * inverse + sympy.log(here), here > 0), (3 * here, True))
    assert adjoint_at(guarded, [-1.0, 0.0, 1.0]) == [3, 3, 0.5 - 1 - 0.5 + 1]
    assert adjoint_at(here ** U[0], [1.0]) == [1.0]


def test_the_stability_of_a_reaction_is_that_of_its_derivative() -> None:
    """Checks that a nonlinear update is linearised at its state, for all functions with known derivatives."""
    for expression in (sympy.exp(U[0]), sympy.log(U[0]), sympy.sin(U[0]), sympy.cos(U[0]), sympy.tan(U[0]),
                       sympy.tanh(U[0]), sympy.atan(U[0]), U[0] ** 2.3, 3 ** U[0], sympy.atan2(1, U[0]),
                       sympy.Piecewise((U[0] ** 2, U[0] >= 0.8), (0, True))):  # fmt: skip
        x = sympy.Symbol("x", positive=True)
        expected = abs(float(expression.subs(U[0], x).diff(x).subs(x, 0.8)))
        assert growth(Stencil("s", {U: expression}, ndim=1), {}, {"u": 0.8}) == pytest.approx(expected, rel=1e-12)
