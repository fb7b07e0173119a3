"""Built-in stencils. A new one is one function and one line of STENCILS."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from outcrop.errors import InputError
from outcrop.language.program import Apply, Constant, Load, Scalar
from outcrop.language.stencil import Stencil
from outcrop.language.symbols import Field, Parameter

_SIX = ((0, 0, -1), (0, 0, 1), (0, -1, 0), (0, 1, 0), (-1, 0, 0), (1, 0, 0))


def heat7() -> Stencil:
    """Heat equation, second order in space, explicit Euler: u' = c0 u + c1 (sum of the six neighbours).

    With c1 = alpha dt / h^2 and c0 = 1 - 6 c1; stable for 0 <= c1 <= 1/6.
    """
    u, c0, c1 = Field("u"), Parameter("c0", 0.4), Parameter("c1", 0.1)
    near = sum(u[offset] for offset in _SIX)
    return Stencil("heat7", {u: c0 * u[0, 0, 0] + c1 * near}, "u' = c0*u + c1*(sum of the 6 neighbours)")


def heat13() -> Stencil:
    """Heat equation, fourth order in space, explicit Euler: weights -1/12, 4/3, -5/2 along each axis.

    u' = c0 u + c1 (sum of the six at distance 1) + c2 (sum of the six at distance 2), c1 = 4/3 a, c2 = -a/12,
    c0 = 1 - 15/2 a, a = alpha dt / h^2; stable for 0 <= a <= 1/8. The defaults are those of a = 0.1.
    """
    u = Field("u")
    c0, c1, c2 = Parameter("c0", 0.25), Parameter("c1", 0.4 / 3), Parameter("c2", -0.1 / 12)
    near = sum(u[offset] for offset in _SIX)
    far = sum(u[2 * dz, 2 * dy, 2 * dx] for dz, dy, dx in _SIX)
    return Stencil(
        "heat13",
        {u: c0 * u[0, 0, 0] + c1 * near + c2 * far},
        "u' = c0*u + c1*(sum of 6 at distance 1) + c2*(sum of 6 at distance 2)",
    )


def box27() -> Stencil:
    """Weighted mean of the 27 cells around and including a cell, by how many axes a neighbour differs in.

    u' = w0 u + w1 (6 faces) + w2 (12 edges) + w3 (8 corners); the defaults are the binomial weights 8, 4, 2, 1
    over 64.
    """
    u = Field("u")
    weights = [Parameter("w0", 8 / 64), Parameter("w1", 4 / 64), Parameter("w2", 2 / 64), Parameter("w3", 1 / 64)]
    steps = (-1, 0, 1)
    groups = [
        sum(u[dz, dy, dx] for dz in steps for dy in steps for dx in steps if abs(dz) + abs(dy) + abs(dx) == distance)
        for distance in range(4)
    ]
    update = sum(weight * group for weight, group in zip(weights, groups, strict=True))
    return Stencil("box27", {u: update}, "u' = w0*u + w1*(6 faces) + w2*(12 edges) + w3*(8 corners)")


def heat(ndim: int = 3, order: int = 2) -> Stencil:
    """The heat equation in `ndim` = 3 dimensions, of `order` 2 (heat7) or 4 (heat13) in space."""
    makers = {(3, 2): heat7, (3, 4): heat13}
    if (ndim, order) not in makers:
        raise InputError(f"heat(ndim={ndim}, order={order}) is not available; there are ndim=3 with order 2 or 4")
    return makers[ndim, order]()


STENCILS: dict[str, Callable[[], Stencil]] = {"heat7": heat7, "heat13": heat13, "box27": box27}


def find_stencil(name: str) -> Stencil:
    """The built-in stencil of that name; InputError lists those there are."""
    if name not in STENCILS:
        raise InputError(f"stencil {name!r} is unknown; there are: {', '.join(STENCILS)}")
    return STENCILS[name]()


def weights(stencil: Stencil, values: Mapping[str, float]) -> dict[tuple[int, int, int], float] | None:
    """The weight of each neighbour when the update is a fixed linear combination without constant term, else None."""
    if len(stencil.fields) > 1 or len(stencil.stages) > 1 or stencil.signals:
        return None
    scalars = stencil.scalars(values)
    parts: list[tuple[float, dict[tuple[int, int, int], float]]] = []  # constant, and weights by offset
    for operation in stencil.stages[0].program.operations:
        match operation:
            case Load(_, offset, 0):
                parts.append((0.0, {offset: 1.0}))
            case Scalar(index):
                parts.append((scalars[index], {}))
            case Constant(value):
                parts.append((value, {}))
            case Apply("add", (i, j)):
                (a, u), (b, v) = parts[i], parts[j]
                parts.append((a + b, {k: u.get(k, 0.0) + v.get(k, 0.0) for k in {**u, **v}}))
            case Apply("sub", (i, j)):
                (a, u), (b, v) = parts[i], parts[j]
                parts.append((a - b, {k: u.get(k, 0.0) - v.get(k, 0.0) for k in {**u, **v}}))
            case Apply("neg", (i,)):
                a, u = parts[i]
                parts.append((-a, {k: -w for k, w in u.items()}))
            case Apply("mul", (i, j)) if not (parts[i][1] and parts[j][1]):
                (a, u), (b, v) = sorted((parts[i], parts[j]), key=lambda part: bool(part[1]))
                parts.append((a * b, {k: a * w for k, w in v.items()}))
            case Apply("div", (i, j)) if not parts[j][1] and parts[j][0] != 0:
                (a, u), (b, _) = parts[i], parts[j]
                parts.append((a / b, {k: w / b for k, w in u.items()}))
            case _:
                return None
    constant, result = parts[stencil.stages[0].program.results[0]]
    return result if constant == 0 else None


def stability(stencil: Stencil, values: Mapping[str, float]) -> str | None:
    """One line of warning when no bound on growth holds for a linear update, None when it is bounded or not linear.

    The amplification of a plane wave (von Neumann) is sampled on a lattice of wave numbers; the extremes of
    symmetric stencils lie there.
    """
    import numpy as np

    linear = weights(stencil, values)
    if linear is None:
        return None
    phases = np.linspace(-np.pi, np.pi, 33)
    kz, ky, kx = np.meshgrid(phases[16:], phases, phases, indexing="ij")  # a wave and its mirror image grow alike
    growth = np.abs(sum(w * np.exp(1j * (dz * kz + dy * ky + dx * kx)) for (dz, dy, dx), w in linear.items())).max()
    if growth <= 1 + 1e-6:
        return None
    return f"these parameters are unstable: the worst wave grows by a factor {growth:.6g} per step"
