"""Hypothesis strategies for tests that make or execute plans."""

from __future__ import annotations

import os

from hypothesis import strategies as st

from outcrop.language.library import STENCILS
from outcrop.language.stencil import Field, Parameter, Stencil
from outcrop.plan.machine import Machine, StorageRates
from outcrop.plan.plan import Scheme, Sizes
from outcrop.plan.problem import Problem
from outcrop.plan.schemes import SCHEMES

PLAIN = {name: STENCILS[name] for name in ("heat7", "heat13", "box27")}
"""The built-in stencils that have one field and one stage and read neighbours."""

SOAK = int(os.environ.get("OUTCROP_SOAK", "1"))


def examples(count: int) -> int:
    """Return the number of examples that a random test tries: `count`, or a multiple of `count` in `make soak`."""
    return count * SOAK


def lopsided(name: str, *offsets: tuple[int, int, int]) -> Stencil:
    """Return a stencil that computes the mean of a cell and some neighbours. The radius is different along each
    axis."""
    u, weight = Field("u"), Parameter("weight", 1 / (1 + len(offsets)))
    return Stencil(name, {u: weight * (u[0, 0, 0] + sum(u[offset] for offset in offsets))})


USERS = {
    "flat": lambda: lopsided("flat", (0, 1, 0), (0, 0, -1)),
    "deep": lambda: lopsided("deep", (3, 0, 0), (-2, 1, 0), (0, 0, 2)),
    "wide": lambda: lopsided("wide", (1, 2, -4), (0, -1, 4)),
    "alone": lambda: lopsided("alone"),
}
"""Stencils as users write them, with one field and a different radius along each axis."""

MACHINE = Machine(
    threads=2,
    memory_bytes=1 << 30,
    cache_bytes=1 << 20,
    last_cache_bytes=16 << 20,
    checksum_bytes_per_second=1e10,
    device=StorageRates(1e9, 1e9, 1e9, 0.01, "assumed"),
)


def assumed_rate(sizes: Sizes) -> float:
    """Return a constant update rate, for tests in which speed does not matter."""
    return 1e9


def make_problem(
    shape: tuple[int, int, int], radii: tuple[int, int, int], steps: int, dtype: str = "float32", in_place: bool = False
) -> Problem:
    """Return a problem whose planes have the layout of PlaneLayout."""
    item = 4 if dtype == "float32" else 8
    pitch = -(-shape[2] * item // 64) * 64
    plane = shape[1] * pitch
    return Problem("test", radii, shape, dtype, steps, pitch, plane, -(-(plane + 4) // 4096) * 4096, in_place=in_place)


@st.composite
def problems(draw: st.DrawFn, max_radius: int = 3, max_extent: int = 24, max_steps: int = 14) -> Problem:
    """Generate small random problems with unusual shapes, such as a single cell, or a grid thinner than the radius of
    the stencil."""
    radii = draw(st.tuples(*[st.integers(0, max_radius)] * 3))
    shape = draw(st.tuples(*[st.integers(1, max_extent)] * 3))
    return make_problem(shape, radii, draw(st.integers(1, max_steps)), in_place=draw(st.booleans()))


@st.composite
def sizes_for(draw: st.DrawFn, problem: Problem) -> Sizes:
    """Generate random sizes that a scheme must accept for a problem."""
    return Sizes(
        levels=draw(st.integers(1, problem.steps)),
        slab=draw(st.integers(1, problem.planes + 5)),
        diamond=draw(st.integers(0, 6)),
        sweep_rows=draw(st.integers(1, 7)),
        planes_per_call=draw(st.integers(1, 4)),
        block_x=draw(st.sampled_from([0, 0, 0, 1, 16, 40])),
        block_y=draw(st.integers(0, problem.shape[1])),
        block_z=draw(st.integers(0, problem.planes)),
        chunk=draw(st.sampled_from([0, 0, 0, 0, 1, 2, 5, 12])),
        rows_at_once=draw(st.sampled_from([1, 2, 4])),
        prefetch=draw(st.booleans()),
        columns=draw(st.sampled_from([0, 0, 16, 48])),
    )


def schemes_for(problem: Problem) -> st.SearchStrategy[Scheme]:
    """Choose a random scheme that supports the problem."""
    return st.sampled_from([one for one in SCHEMES.values() if one.refusal(problem) is None])
