"""What a stage's kernel reads and where its results go, in the order of its arguments; and which copy that is.

A field with two copies changes over to the other one with each update. Which copy holds what therefore repeats after
two steps: copy 0 holds the newest value before an even step.
"""

from __future__ import annotations

from dataclasses import dataclass

from outcrop.language.stencil import Stencil


def operands_of(stencil: Stencil, stage: int) -> tuple[tuple[int, int], ...]:
    """Pairs (field, age) that the kernel of a stage takes as sources: the newest values of its targets, then what it
    loads."""
    return stencil.stages[stage].operands


def updates_in_place(stencil: Stencil, stage: int, field: int) -> bool:
    """Whether a stage overwrites the value that it replaces."""
    assert field in stencil.stages[stage].targets
    return not stencil.storage[field].is_double


@dataclass(frozen=True)
class Copies:
    """For one stage of an even or an odd step: (field, copy) of each source and of each target."""

    sources: tuple[tuple[int, int], ...]
    targets: tuple[tuple[int, int], ...]


def copies_of(stencil: Stencil) -> tuple[Copies, ...]:
    """For the stages of an even step, then for those of an odd one."""
    newest = [0] * len(stencil.fields)
    double = [storage.is_double for storage in stencil.storage]
    found = []
    for level in range(2 * len(stencil.stages)):
        number = level % len(stencil.stages)
        stage = stencil.stages[number]
        sources = tuple((field, newest[field] ^ age) for field, age in operands_of(stencil, number))
        targets = tuple((field, newest[field] ^ double[field]) for field in stage.targets)
        for field, copy in targets:
            newest[field] = copy
        found.append(Copies(sources, targets))
    return tuple(found)


def newest_copies(stencil: Stencil, steps: int) -> tuple[int, ...]:
    """The copy of each field that holds the newest value after so many steps."""
    flips = [
        sum(field in stage.targets for stage in stencil.stages) * stencil.storage[field].is_double
        for field in range(len(stencil.fields))
    ]
    return tuple(count * steps % 2 for count in flips)
