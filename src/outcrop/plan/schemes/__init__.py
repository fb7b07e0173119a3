"""The table of schemes. A scheme divides space and time, and generates the actions of a pass. To add a scheme, write
one file, and add one line to `SCHEMES`. For a published scheme that is only used for comparisons, add the line to
`LITERATURE` instead. For a scheme that works only for several ranks, add the line to `RANK_SCHEMES`."""

from outcrop.plan.plan import Scheme
from outcrop.plan.schemes import split_tiling, wavefront
from outcrop.plan.schemes.literature import LITERATURE

SCHEMES: dict[str, Scheme] = {"wavefront": wavefront.SCHEME, "naive": wavefront.NAIVE, **LITERATURE}
"""Maps names to schemes. Each of these schemes works for a grid that is not divided among ranks. `auto` uses only the
schemes that check all data from disk."""
RANK_SCHEMES: dict[str, Scheme] = {"split": split_tiling.SCHEME}
"""Maps names to schemes. These schemes work only for grids that are divided among ranks. Some schemes in SCHEMES also
work for divided grids."""
EVERY_SCHEME = SCHEMES | RANK_SCHEMES
ALIASES = {"skewed": "skewed-5y"}
"""Other names that users may give to schemes."""
