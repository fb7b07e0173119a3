"""Schemes: ways to tile space-time, each a generator of the same actions. A scheme is one file and one line of a table:
of `SCHEMES` here, or of `LITERATURE` for those that are there to compare with."""

from outcrop.plan.schemes import wavefront
from outcrop.plan.schemes.literature import LITERATURE
from outcrop.plan.schemes.scheme import Scheme

SCHEMES: dict[str, Scheme] = {"wavefront": wavefront.SCHEME, **LITERATURE}
"""`auto` chooses among those that check all they read."""
ALIASES = {"skewed": "skewed-5y"}
"""Other names that users may give."""
