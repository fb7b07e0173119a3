"""Check that kernels of each vector width equal the oracle bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kernels import call, expected, same_bits
from oracle import advance
from outcrop.language.compile import VECTOR_BYTES, available_isas, compile_kernel
from outcrop.language.generate import generate
from outcrop.language.library import STENCILS
from outcrop.language.stencil import Field, Parameter, Stencil
from strategies import PLAIN, examples

U = Field("u")
K = Parameter("k", 0.3)
CENTRE = U[0, 0, 0]

# Stencils for each branch of the generator: offsets along one axis only, offsets larger than one or two vectors,
# one-sided offsets, and each operator. One stencil does not read the updated cell, and another stencil reads no cell.
SPECIAL: dict[str, Any] = {
    "x_far": (U[0, 0, -4] + U[0, 0, 4]) * K - CENTRE,
    "x_beyond_vectors": U[0, 0, -17] + U[0, 0, 33] + U[0, 0, 16] - U[0, 0, -32],
    "x_one_sided": U[0, 0, 3] - K * U[0, 0, 1],
    "y_far": U[0, -4, 0] * K + U[0, 4, 0] * U[0, 3, 1],
    "y_one_sided": U[0, -2, 0] * K + U[0, -1, 0],
    "z_far": U[-4, 0, 0] - U[4, 0, 0] / K,
    "corners": U[-2, 1, 3] * U[2, -1, -3] + U[1, 2, 1] * K,
    "operators": sympy.sqrt(abs(CENTRE))
    + sympy.Min(U[0, 1, 0], U[0, -1, 0], K) / (2 + sympy.Max(CENTRE, U[1, 0, 0]) ** 3),
    "negative_powers": CENTRE**-2 + 1 / sympy.sqrt(3 + U[0, 0, 1]) - U[0, 0, -1],
    "elsewhere": U[0, 0, 1],
    "own_cell": CENTRE * CENTRE,
    "constant": sympy.Float(0.1) + 0 * CENTRE,
    "scalar": K,
}


def grid(shape: tuple[int, int, int], dtype: str, seed: int) -> NDArray[np.floating]:
    """Return values of many magnitudes and both signs, so that a sum in another order has other bits."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)).astype(dtype)


def check(stencil: Stencil, dtype: str, isa: str, planes: int, rows: int, nx: int, seed: int = 1) -> None:
    """Compare one call of a kernel with the oracle. The call updates `planes` planes and `rows` rows. The comparison
    covers whole planes with their padding.
    """
    rz, ry, _ = stencil.radii
    array = grid((planes + 2 * rz, rows + 2 * ry, nx), dtype, seed)
    kernel = compile_kernel(stencil, dtype, isa)
    updated = advance(stencil, array, {"k": 0.7} if stencil.parameters and stencil.parameters[0].name == "k" else {}, 1)
    values = {"k": 0.7} if stencil.parameters and stencil.parameters[0].name == "k" else {}
    y = (ry, ry + rows)
    assert same_bits(call(kernel, stencil, values, array, y), expected(stencil, array, updated, y))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("name", sorted(PLAIN))
def test_built_in_kernels_equal_the_oracle(name: str, isa: str, dtype: str) -> None:
    """Checks that kernels of library stencils equal the oracle, for several numbers of planes and rows per call, and
    for odd row lengths.
    """
    stencil = PLAIN[name]()
    for planes in (1, 2, 3, 4):
        for rows, nx in ((1, 50), (2, 16), (3, 1), (5, 33), (9, 129)):
            check(stencil, dtype, isa, planes, rows, nx, seed=planes * rows)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("name", sorted(SPECIAL))
def test_special_kernels_equal_the_oracle(name: str, isa: str, dtype: str) -> None:
    """Checks that the kernels of the stencils in SPECIAL equal the oracle. Together, these stencils use each branch of
    the generator.
    """
    stencil = Stencil(name, {U: SPECIAL[name]})
    for planes, rows, nx in ((1, 1, 7), (2, 3, 70), (3, 4, 65), (4, 7, 48)):
        check(stencil, dtype, isa, planes, rows, nx)


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("lines", [(0, 1), (1, 3), (2, 4), (3, 3)])
def test_a_call_writes_only_the_cells_asked_for(isa: str, lines: tuple[int, int]) -> None:
    """Checks that a call does not change rows and 64-byte lines outside its block."""
    stencil = STENCILS["heat13"]()
    array = grid((6, 9, 58), "float32", 5)
    updated = advance(stencil, array, {}, 1)
    for rows in ((2, 7), (3, 4), (4, 4)):
        got = call(compile_kernel(stencil, "float32", isa), stencil, {}, array, rows, lines)
        assert same_bits(got, expected(stencil, array, updated, rows, lines))


offsets = st.tuples(st.integers(-4, 4), st.integers(-4, 4), st.integers(-4, 4))
leaves = st.one_of(
    offsets.map(lambda offset: U[offset]),
    st.just(K),
    st.floats(-8, 8, allow_nan=False).map(sympy.Float),
    st.fractions(-3, 3, max_denominator=7).map(lambda f: sympy.Rational(f.numerator, f.denominator)),
)


def join(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Generate random expressions that combine the given expressions. No divisor is near zero, because NaNs may have
    different bits.
    """
    return st.one_of(
        st.lists(inner, min_size=2, max_size=6).map(lambda terms: sum(terms, sympy.S.Zero)),
        st.tuples(inner, inner).map(lambda pair: pair[0] * pair[1]),
        st.tuples(inner, inner).map(lambda pair: pair[0] / (2 + abs(pair[1]))),
        st.tuples(inner, inner).map(lambda pair: sympy.Max(*pair)),
        st.tuples(inner, inner).map(lambda pair: sympy.Min(*pair)),
        inner.map(lambda one: sympy.sqrt(1 + abs(one))),
        inner.map(lambda one: one**2),
        inner.map(sympy.tanh),
        inner.map(sympy.atan),
        st.tuples(inner, inner, inner).map(lambda three: sympy.Piecewise((three[0], three[1] > three[2]), (K, True))),
        inner.map(lambda one: -one),
    )


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    expression=st.recursive(leaves, join, max_leaves=12),
    dtype=st.sampled_from(["float32", "float64"]),
    isa=st.sampled_from(available_isas()),
    planes=st.integers(1, 4),
    rows=st.integers(1, 9),
    nx=st.integers(1, 90),
    seed=st.integers(0, 99),
)
def test_random_kernels_equal_the_oracle(
    expression: Any, dtype: str, isa: str, planes: int, rows: int, nx: int, seed: int
) -> None:
    """Checks random expressions. The kernel and the oracle must round after the same operations, so that the bits are
    equal."""
    check(Stencil("random", {U: expression}), dtype, isa, planes, rows, nx, seed)


@pytest.mark.parametrize("isa", available_isas())
def test_products_and_sums_are_not_fused(isa: str) -> None:
    """Checks that the compiler does not fuse a product and a sum into one operation, which does not round the product.
    """
    stencil = Stencil("fuse", {U: CENTRE * U[0, 0, 1] + U[0, 1, 0]})
    a = np.float32(1 + 2**-12)
    array = np.full((1, 3, 40), a, np.float32)
    array[0, 2] = -(a * a)
    got = call(compile_kernel(stencil, "float32", isa), stencil, {}, array, (1, 2))
    assert (got[0, 1, 1:39] == 0).all()


@pytest.mark.parametrize("name", sorted(STENCILS))
def test_generated_text_is_a_function_of_the_content_alone(name: str) -> None:
    """Checks that equal stencils give equal C code, which must not depend on sets, hashes or earlier calls."""
    made = [STENCILS[name]() for _ in range(3)]
    made.append(Stencil.from_json(made[0].to_json()))
    for vector_bytes in VECTOR_BYTES.values():
        assert len({generate(one, "float32", vector_bytes) for one in made}) == 1
