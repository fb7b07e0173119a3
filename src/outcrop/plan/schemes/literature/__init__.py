"""The table of the published schemes, which are used for comparisons. Each scheme has one file, and one line in this
table."""

from outcrop.plan.plan import Scheme
from outcrop.plan.schemes.literature import overlapped, skewed

LITERATURE: dict[str, Scheme] = {
    "overlapped": overlapped.SCHEME,
    "skewed-full": skewed.FULL,
    "skewed-3y": skewed.THREE_Y,
    "skewed-5y": skewed.FIVE_Y,
}
