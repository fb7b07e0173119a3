"""The table of schemes. A scheme divides space and time, and generates the actions of a pass. To add a scheme, write
one file, and add one line to `SCHEMES`. For a published scheme that serves for comparison, add the line to `LITERATURE`
instead."""

from outcrop.plan.plan import Scheme
from outcrop.plan.schemes import wavefront
from outcrop.plan.schemes.literature import LITERATURE

SCHEMES: dict[str, Scheme] = {"wavefront": wavefront.SCHEME, "naive": wavefront.NAIVE, **LITERATURE}
"""All schemes by name. `auto` chooses one of the schemes that check all data that they read."""
ALIASES = {"skewed": "skewed-5y"}
"""Alternative names of schemes that users may give."""
