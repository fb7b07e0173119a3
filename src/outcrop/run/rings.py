"""What a plan is to the core: the rings of its window as numbers, and its passes."""

from __future__ import annotations

from outcrop import _core
from outcrop.plan.plan import Plan


def ring_specs(plan: Plan) -> list[tuple[int, int, bool]]:
    """Planes, bytes of a slot, and whether it holds all planes for good, of every ring."""
    return [(ring.planes, ring.slot_bytes, ring.resident) for ring in plan.window.rings(plan.problem)]


def translated(plan: Plan) -> list[_core.Pass]:
    """The passes of a plan as the executor runs them. A pass that is repeated is translated once."""
    different = {id(one): one for one in plan.passes}
    known = {key: _core.Pass(one.actions, one.levels) for key, one in different.items()}
    return [known[id(one)] for one in plan.passes]
