"""The table of schemes. A scheme divides space and time, and generates the actions of a pass. To add a scheme, write
one file, and add one line to `SCHEMES`. For a published scheme that serves for comparison, add the line to `LITERATURE`
instead. For a scheme that works only for several ranks, add the line to `RANK_SCHEMES`."""

from outcrop.plan.plan import Scheme
from outcrop.plan.schemes import split_tiling, wavefront
from outcrop.plan.schemes.literature import LITERATURE

SCHEMES: dict[str, Scheme] = {"wavefront": wavefront.SCHEME, "naive": wavefront.NAIVE, **LITERATURE}
"""A dictionary from the name of each scheme for any grid to the scheme. `auto` chooses one of the schemes that check
all data that they read."""
RANK_SCHEMES: dict[str, Scheme] = {"split": split_tiling.SCHEME}
"""A dictionary of the schemes that work only for grids that are divided among ranks. Some schemes in SCHEMES also work
for such grids."""
EVERY_SCHEME = SCHEMES | RANK_SCHEMES
ALIASES = {"skewed": "skewed-5y"}
"""Other names of schemes that users may give."""
