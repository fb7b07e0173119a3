"""Numbers as products: how ranks or nodes are laid out along axes."""

from __future__ import annotations


def near_equal(count: int, axes: int) -> tuple[int, ...]:
    """Factors of `count`, ascending, as near to each other as dividing one after the other makes them."""
    assert count > 0 and axes > 0
    factors: list[int] = []
    for left in range(axes, 1, -1):
        factor = max(one for one in range(1, _root(count, left) + 1) if count % one == 0)
        factors.append(factor)
        count //= factor
    return tuple(sorted([*factors, count]))


def _root(count: int, axes: int) -> int:
    """The largest number whose power of `axes` is at most `count`."""
    root = int(count ** (1 / axes) + 0.5)
    while root**axes > count:
        root -= 1
    while (root + 1) ** axes <= count:
        root += 1
    return root
