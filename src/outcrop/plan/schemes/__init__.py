"""Schemes: ways to tile space-time, each a generator of the same actions. One file and one line of this table each."""

from outcrop.plan.schemes import naive, overlapped, skewed, wavefront
from outcrop.plan.schemes.scheme import Scheme

SCHEMES: dict[str, Scheme] = {
    "wavefront": wavefront.SCHEME,
    "naive": naive.SCHEME,
    "overlapped": overlapped.SCHEME,
    "skewed-full": skewed.FULL,
    "skewed-3y": skewed.THREE_Y,
    "skewed-5y": skewed.FIVE_Y,
}
"""`auto` chooses among those that check all they read."""
ALIASES = {"skewed": "skewed-5y"}
"""Other names users may give."""
