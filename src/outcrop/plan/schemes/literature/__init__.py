"""Schemes of the literature, to compare with. One file and one line of this table each."""

from outcrop.plan.schemes.literature import naive, overlapped, skewed
from outcrop.plan.schemes.scheme import Scheme

LITERATURE: dict[str, Scheme] = {
    "naive": naive.SCHEME,
    "overlapped": overlapped.SCHEME,
    "skewed-full": skewed.FULL,
    "skewed-3y": skewed.THREE_Y,
    "skewed-5y": skewed.FIVE_Y,
}
