"""Schemes: ways to tile space-time, each a generator of the same actions. One file and one line of this table each."""

from outcrop.plan.schemes import naive, wavefront
from outcrop.plan.schemes.scheme import Scheme

SCHEMES: dict[str, Scheme] = {
    "wavefront": wavefront.SCHEME,
    "naive": naive.SCHEME,
}
"""The first is what `auto` tries first."""
