"""Compare the oracle, which defines correct results, with hand-written NumPy code and with mathematical laws."""

import numpy as np
import pytest

from oracle import advance
from outcrop.errors import InputError
from outcrop.language import library
from outcrop.language.stencil import Field, Parameter, Stencil


def test_heat7_is_the_formula_written_by_hand() -> None:
    """Checks one step of heat7 against NumPy operations in the order that defines the bits."""
    rng = np.random.default_rng(1)
    u = rng.random((5, 6, 7), dtype=np.float32)
    c0, c1 = np.float32(0.4), np.float32(0.1)
    want = u.copy()
    middle = slice(1, -1)
    x = u[middle, middle, :-2] + u[middle, middle, 2:]
    y = u[middle, :-2, middle] + u[middle, 2:, middle]
    z = u[:-2, middle, middle] + u[2:, middle, middle]
    want[middle, middle, middle] = c0 * u[middle, middle, middle] + c1 * ((x + y) + z)
    got = advance(library.heat7(), u, {}, 1)
    assert got.dtype == np.float32
    assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("name", ["heat7", "heat13", "box27"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_constant_stays_and_the_rim_never_moves(name: str, dtype: str) -> None:
    """Checks that a constant field stays constant: the sum of the built-in weights is 1. The rim of a fixed boundary
    must not change."""
    stencil = library.STENCILS[name]()
    constant = np.full((7, 8, 9), 3.0, dtype)
    np.testing.assert_allclose(advance(stencil, constant, {}, 3), constant, rtol=1e-6)
    noise = np.random.default_rng(2).random((7, 8, 9)).astype(dtype)
    moved = advance(stencil, noise, {}, 3)
    inner = tuple(slice(r, n - r) for r, n in zip(stencil.radii, noise.shape, strict=True))
    rim = np.ones(noise.shape, bool)
    rim[inner] = False
    assert (moved[rim] == noise[rim]).all()
    assert (moved[inner] != noise[inner]).any()


@pytest.mark.parametrize(("order", "rate"), [(2, 2.0), (4, 4.0)])
def test_heat_decays_at_the_rate_of_its_order(order: int, rate: float) -> None:
    """Checks the order of accuracy of heat7 and heat13. The error of the decay rate of a sine must fall with this
    order.
    """
    stencil = library.heat(ndim=3, order=order)
    radius = stencil.radius

    def error(points: int) -> float:
        k = 2 * np.pi / points
        x = np.arange(-radius, radius + 1)
        wave = np.broadcast_to(np.cos(k * x), (2 * radius + 1,) * 3).copy()
        growth = float(advance(stencil, wave, {}, 1)[radius, radius, radius])
        centre = np.zeros((2 * radius + 1,) * 3)
        centre[radius, radius, :] = x**2 / 2  # the second derivative is 1, so the update equals the coefficient
        coefficient = float(advance(stencil, centre, {}, 1)[radius, radius, radius])
        return abs((growth - 1) / (coefficient * k**2) + 1)

    assert np.log2(error(16) / error(32)) == pytest.approx(rate, abs=0.2)


def test_a_grid_thinner_than_the_stencil_does_not_change() -> None:
    """Checks that a step changes nothing if the grid has no cell inside the rim."""
    thin = np.random.default_rng(3).random((2, 9, 9))
    assert (advance(library.heat7(), thin, {}, 5) == thin).all()


def test_parameters_are_rounded_to_the_dtype_before_use() -> None:
    """Checks that parameters are rounded to the dtype of the run, so that a run in float32 computes nothing in
    float64."""
    u, k = Field("u"), Parameter("k", 0.1)
    stencil = Stencil("scale", {u: k * u[0, 0, 0]})
    ones = np.full((1, 1, 3), 3.0, np.float32)
    assert (advance(stencil, ones, {"k": 0.3}, 1) == np.float32(0.3) * np.float32(3)).all()
    with pytest.raises(InputError, match="no parameter 'q'"):
        advance(stencil, ones, {"q": 1.0}, 1)


def test_the_input_is_left_alone() -> None:
    """Checks that the oracle returns a new array and does not change its input, even for zero steps."""
    u = np.random.default_rng(4).random((4, 4, 4))
    copy = u.copy()
    for steps in (0, 1, 2):
        result = advance(library.heat7(), u, {}, steps)
        assert not np.shares_memory(result, u)
        assert (u == copy).all()
