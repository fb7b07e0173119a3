"""What a plan's window is to the core: its rings, as numbers."""

from __future__ import annotations

from outcrop.plan.plan import Plan


def ring_specs(plan: Plan) -> list[tuple[int, int, bool]]:
    """Planes, bytes of a slot, and whether it holds all planes for good, of every ring."""
    return [(ring.planes, ring.slot_bytes, ring.resident) for ring in plan.window.rings(plan.problem)]
