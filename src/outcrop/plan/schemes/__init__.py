"""The table of schemes. A scheme divides space and time and generates the actions of a pass. A new scheme is one file
and one line of `SCHEMES`, or of `LITERATURE` for published schemes, which are there for comparison."""

from outcrop.plan.schemes import wavefront
from outcrop.plan.schemes.literature import LITERATURE
from outcrop.plan.schemes.scheme import Scheme

SCHEMES: dict[str, Scheme] = {"wavefront": wavefront.SCHEME, "naive": wavefront.NAIVE, **LITERATURE}
"""`auto` chooses among the schemes that check all data that they read."""
ALIASES = {"skewed": "skewed-5y"}
"""Other names that users may give."""
