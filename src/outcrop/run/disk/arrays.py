"""The arrays of a run on disk: which there are, and in which order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from outcrop.language.stencil import PREVIOUS
from outcrop.run.disk.schema import ArrayName

if TYPE_CHECKING:
    from outcrop.language.stencil import Stencil


@dataclass(frozen=True)
class ArrayEntry:
    """One array of cells. One that `is_static` is only read by passes; of the others, the state, each pass writes the
    next values."""

    name: ArrayName
    is_static: bool

    @property
    def field(self) -> str:
        """The field whose values, or previous values, these are."""
        return self.name.partition(".")[0]

    @property
    def is_previous(self) -> bool:
        """Whether these are the values before the newest ones."""
        return "." in self.name


def arrays_of(stencil: Stencil) -> tuple[ArrayEntry, ...]:
    """The state, field by field in the stencil's order, each followed by its previous values where a step needs both;
    then the fields that are only read."""
    state, static = [], []
    for field, storage in zip(stencil.fields, stencil.storage, strict=True):
        if storage.is_static:
            static.append(ArrayEntry(field.name, True))
            continue
        state.append(ArrayEntry(field.name, False))
        if storage.history == 2:
            state.append(ArrayEntry(field.name + PREVIOUS, False))
    return (*state, *static)
