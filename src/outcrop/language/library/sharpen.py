"""Sharpening of an image."""

from __future__ import annotations

import math

import sympy

from outcrop.language.stencil import Stencil
from outcrop.language.symbols import Field

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
