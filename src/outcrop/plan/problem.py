"""What is to be computed, in the numbers that planning needs."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from outcrop.plan.geometry import Cut

VECTOR_BYTES = 64
"""Kernels update whole vectors of this many bytes at most, so blocks are cut in x at multiples of it."""
DIRECT_BYTES = 4096
"""Offsets and lengths that direct I/O needs are multiples of this at most."""


@dataclass(frozen=True)
class Problem:
    """One field on a grid, to be advanced `steps` steps.

    `shape` is (nz, ny, nx) in cells and `radii` the stencil's reach along the same axes. Rows are `pitch_bytes`
    apart, a plane is `plane_bytes`, and a plane with its checksum and padding, as it lies on disk and in
    memory, `record_bytes`.
    """

    stencil: str
    radii: tuple[int, int, int]
    shape: tuple[int, int, int]
    dtype: str
    steps: int
    pitch_bytes: int
    plane_bytes: int
    record_bytes: int
    boundary: str = "fixed"
    in_place: bool = False

    @property
    def radius_z(self) -> int:
        """Thickness in planes of the fixed rim at both ends of the streaming axis."""
        return self.radii[0]

    @property
    def skew(self) -> int:
        """Planes and rows by which a dependency may move per level; at least 1, so that tiles have a slope."""
        return max(1, *self.radii)

    @property
    def radius_y(self) -> int:
        """Thickness in rows of the fixed rim of a plane."""
        return self.radii[1]

    @property
    def planes(self) -> int:
        """Number of planes nz."""
        return self.shape[0]

    @property
    def item_bytes(self) -> int:
        """Bytes of one cell."""
        return {"float32": 4, "float64": 8}[self.dtype]

    @property
    def first_plane(self) -> int:
        """First plane that is updated."""
        return min(self.radius_z, self.planes)

    @property
    def end_plane(self) -> int:
        """One past the last plane that is updated; not below `first_plane`."""
        return max(self.first_plane, self.planes - self.radius_z)

    @property
    def cells(self) -> int:
        """Cells of the grid, rim included."""
        nz, ny, nx = self.shape
        return nz * ny * nx

    @property
    def grid_bytes(self) -> int:
        """Bytes of all records of one array."""
        return self.planes * self.record_bytes

    @property
    def pitch_cells(self) -> int:
        """Cells from one row to the next, padding included."""
        return self.pitch_bytes // self.item_bytes

    @property
    def tail_bytes(self) -> int:
        """Bytes of a record behind its last row: the checksum and zeros."""
        return self.record_bytes - self.plane_bytes

    @property
    def whole_plane(self) -> Cut:
        """All cells of a plane, padding included."""
        return Cut(0, self.shape[1], 0, self.pitch_cells)

    @property
    def vector_cells(self) -> int:
        """Cells of the longest vector a kernel uses."""
        return VECTOR_BYTES // self.item_bytes

    @property
    def row_group(self) -> int:
        """Rows that belong together so that direct I/O can begin and end between them; 1 where there are no such
        groups of reasonable size, and transfers of some rows go through the page cache."""
        group = DIRECT_BYTES // gcd(DIRECT_BYTES, self.pitch_bytes)
        return group if 8 * group <= self.shape[1] else 1
