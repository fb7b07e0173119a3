"""Weighted means of the cells around a cell: smoothing and sharpening."""

from __future__ import annotations

import math

import sympy

from outcrop.language.stencil import Field, Parameter, Stencil


def box27() -> Stencil:
    """Weighted mean of the 27 cells around and including a cell. Weights depend on the number of axes of the offset.

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


REACH = 8
"""Pixels to each side, d: (2d + 1)^2 = 289 taps."""


def tap(dy: int, dx: int) -> float:
    """The weight of the pixel at an offset in the filter, a Gaussian and a Laplacian in one."""
    width = 1.4 * REACH / 4
    delta = (dy**2 + dx**2) / (2 * width**2)
    return -40 * (1 - delta) * math.exp(-delta)


def sharpen() -> Stencil:
    """Sharpens an image by what a Laplacian of a Gaussian finds, one convolution with 17 x 17 taps.

        sharp' = image - 2/(2d - 1)^2 sum over |i|, |j| <= d of w(i, j) image[i, j],    d = 8
        w = -40 (1 - delta) exp(-delta),  delta = (i^2 + j^2) / (2 sigma^2),  sigma = 1.4 d/4

    Fields: sharp, which is updated and not read, and the read-only image (any unit). One step does all; cells within
    8 of a fixed rim keep the initial values of sharp. No parameters, and no limit: nothing is fed back. Pixels at one
    distance share a product, so 289 taps need 42. Source: D. Marr and E. Hildreth, Proc. R. Soc. Lond. B 207, 187,
    1980; these weights: A. Jackson, EPCC's image sharpening exercise.
    """
    sharp, image = Field("sharp"), Field("image")
    scale = -2 / (2 * REACH - 1) ** 2
    steps = range(-REACH, REACH + 1)
    rings: dict[int, list[tuple[int, int]]] = {}
    for dy in steps:
        for dx in steps:
            rings.setdefault(dy**2 + dx**2, []).append((dy, dx))
    terms = []
    for square, offsets in rings.items():
        weight = scale * tap(*offsets[0]) + (square == 0)
        terms += [sympy.Float(weight) * image[offset] for offset in offsets]
    return Stencil("sharpen", {sharp: sympy.Add(*terms)}, "sharp' = image - 2/225 * (289 taps of a LoG * image)")
