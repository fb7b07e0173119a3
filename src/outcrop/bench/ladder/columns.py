"""The columns of the ladder: the eleven of Figure 4 of Midorikawa and Tan, and ours.

layers = 1    both arrays are memory, plain or mapped, and updated where they lie (plan/schemes/one_layer.py)
layers = 2    blocks, or a window, are copied between the arrays and memory of their own (the engine)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Through: TypeAlias = Literal["swap", "mmap", "aio"]

STEPS_WHERE_HOPELESS = 2
"""Without temporal blocking every step moves both arrays through swap; more of them only take longer."""
PAGED_SHARE = 0.5
"""Where the system moves pages it needs room for those that are on their way. Larger blocks were slower, in one layer
by three times: they lost pages that they still needed."""


@dataclass(frozen=True)
class Column:
    """`scheme` is that of the plan, or the one whose blocks a single layer takes; "naive" for plain sweeps.

    `through`: what carries planes between memory and flash. `padded`: rows and planes are kept from competing for the
    same sets of caches.
    """

    number: int
    name: str
    scheme: str
    through: Through
    layers: Literal[1, 2]
    padded: bool = False

    @property
    def window_share(self) -> float:
        """The part of the budget that blocks take out of core."""
        return 1.0 if self.through == "aio" else PAGED_SHARE

    @property
    def locks_memory(self) -> bool:
        """Whether blocks are kept from being swapped out while their arrays may be."""
        return self.through == "swap" and self.layers == 2

    @property
    def is_hopeless(self) -> bool:
        """Whether out of core a few steps are measured and scaled."""
        return self.scheme == "naive"

    @property
    def needs_limit(self) -> bool:
        """Whether out of core only a limit by the system keeps it to the budget; aio keeps to it by itself."""
        return self.through != "aio"


COLUMNS = (
    Column(1, "noTB swap", "naive", "swap", 1),
    Column(2, "AL-R swap", "overlapped", "swap", 2),
    Column(3, "AL-R mmap", "overlapped", "mmap", 2),
    Column(4, "AL-R aio", "overlapped", "aio", 2),
    Column(5, "mmap1", "skewed-full", "mmap", 1),
    Column(6, "mmap1+opt", "skewed-full", "mmap", 1, padded=True),
    Column(7, "mmap2", "skewed-full", "mmap", 2),
    Column(8, "mmap3y", "skewed-3y", "mmap", 2),
    Column(9, "mmap5y", "skewed-5y", "mmap", 2),
    Column(10, "aio3y", "skewed-3y", "aio", 2),
    Column(11, "aio5y", "skewed-5y", "aio", 2),
    Column(12, "wavefront", "wavefront", "aio", 2),
)


def find_column(number: int) -> Column:
    """The column of that number."""
    return next(column for column in COLUMNS if column.number == number)
