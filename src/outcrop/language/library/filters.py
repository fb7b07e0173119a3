"""Stencils that smooth or sharpen a field. Each new value is a weighted mean of the cells around a cell."""

from __future__ import annotations

import math

import sympy

from outcrop.language.stencil import Field, Parameter, Stencil


def box27() -> Stencil:
    """Make a stencil whose update is the weighted mean of a cell and its 26 neighbours. The weight of a neighbour
    depends on the number of axes along which the neighbour is shifted. The update is u' = w0 u + w1 (sum of 6 faces) +
    w2 (sum of 12 edges) + w3 (sum of 8 corners). The default parameters are the binomial weights 8/64, 4/64, 2/64 and
    1/64."""
    u = Field("u")
    weights = [Parameter("w0", 8 / 64), Parameter("w1", 4 / 64), Parameter("w2", 2 / 64), Parameter("w3", 1 / 64)]
    steps = (-1, 0, 1)
    groups = [
        sum(u[dz, dy, dx] for dz in steps for dy in steps for dx in steps if abs(dz) + abs(dy) + abs(dx) == distance)
        for distance in range(4)
    ]
    update = sum(weight * group for weight, group in zip(weights, groups, strict=True))
    return Stencil("box27", {u: update}, "u' = w0*u + w1*(6 faces) + w2*(12 edges) + w3*(8 corners)")


REACH = 8
"""The reach d of the filter in pixels. The filter has (2d + 1)^2 = 289 taps."""


def sharpen() -> Stencil:
    """Make the stencil that sharpens an image with the Laplacian of a Gaussian. Each step is one convolution with 17 by
    17 weights (taps).

        sharp' = image - 2/(2d - 1)^2 sum over |i|, |j| <= d of w(i, j) image[i, j],    d = 8
        w = -40 (1 - delta) exp(-delta),  delta = (i^2 + j^2) / (2 sigma^2),  sigma = 1.4 d/4

    Fields: sharp, which is updated but not read, and the read-only image (any unit). One step gives the complete
    result. With a fixed boundary, 8 cells along each side keep the initial values of sharp. The stencil has no
    parameters, and is always stable, because sharp is not read. Pixels at the same distance are added before they are
    multiplied, so 289 taps need only 42 multiplications. Source: D. Marr and E. Hildreth, Proc. R. Soc. Lond. B 207,
    187, 1980; these weights: A. Jackson, EPCC's image sharpening exercise.
    """
    sharp, image = Field("sharp"), Field("image")
    scale, width = -2 / (2 * REACH - 1) ** 2, 1.4 * REACH / 4
    steps = range(-REACH, REACH + 1)
    rings: dict[int, list[tuple[int, int]]] = {}
    for dy in steps:
        for dx in steps:
            rings.setdefault(dy**2 + dx**2, []).append((dy, dx))
    terms = []
    for square, offsets in rings.items():
        delta = square / (2 * width**2)
        weight = scale * (-40 * (1 - delta) * math.exp(-delta)) + (square == 0)
        terms += [sympy.Float(weight) * image[offset] for offset in offsets]
    return Stencil("sharpen", {sharp: sympy.Add(*terms)}, "sharp' = image - 2/225 * (289 taps of a LoG * image)")
