"""This module makes damaged passes and damaged actions, for tests of the proof that plans are legal."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import fields, replace

from outcrop.plan.actions import Action, Carry, Check, Copy, Read, Rectangle, Update, Write
from outcrop.plan.plan import Pass
from outcrop.plan.validate import IllegalPlan


def same_verdict(one: Pass, *ways: Callable[[Pass], None]) -> None:
    found = []
    for way in ways:
        try:
            way(one)
            found.append("legal")
        except IllegalPlan as error:
            found.append(str(error))
    assert (found[0] == "legal") == (found[1] == "legal"), found


def damage(rng: random.Random, one: Pass) -> Pass:
    """Return a damaged copy of a pass: one action is removed, moved, swapped, repeated or changed."""
    actions = list(one.actions)
    index, other = rng.randrange(len(actions)), rng.randrange(len(actions))
    action = actions[index]
    match rng.choice(["drop", "move", "swap", "repeat", "change", "change"]):
        case "drop":
            del actions[index]
        case "move":
            actions.insert(other, actions.pop(index))
        case "swap":
            actions[index], actions[other] = actions[other], action
        case "repeat":
            actions.insert(other, action)
        case _:
            actions[index] = changed(rng, action)
    return replace(one, actions=tuple(actions))


def changed(rng: random.Random, action: Action) -> Action:
    """Return a changed copy of an action. One number of the action, or one edge of its area, differs by one or two."""
    step = rng.choice([-2, -1, 1, 2])
    values = [(one.name, getattr(action, one.name)) for one in fields(action)]
    values = [(name, value) for name, value in values if isinstance(value, int | Rectangle)]
    if not values:
        return action
    name, value = rng.choice(values)
    if isinstance(value, Rectangle):
        edge = rng.choice(["y0", "y1", "x0", "x1"])
        return replace(action, **{name: replace(value, **{edge: getattr(value, edge) + step})})
    return replace(action, **{name: value + step})


def shrink(action: Action, from_below: bool, in_y: bool) -> Action:
    match action:
        case Read(area=area) | Write(area=area) | Carry(area=area) | Check(area=area) if in_y:
            return replace(action, area=replace(area, y0=area.y0 + 1) if from_below else replace(area, y1=area.y1 - 1))
        case Read(z0, z1) | Copy(z0, z1) | Write(z0, z1) | Carry(z0, z1) | Check(z0, z1):
            return replace(action, z0=z0 + 1) if from_below else replace(action, z1=z1 - 1)
        case Update(zeta0, zeta1):
            return replace(action, zeta0=zeta0 + 1) if from_below else replace(action, zeta1=zeta1 - 1)
    raise AssertionError(action)
