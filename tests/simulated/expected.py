"""What may be on disk while processes change it, are killed, and lose power."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any


class Expected:
    """What may be there: `seen` by a process that looks, `kept` once power has failed."""

    def __init__(self, nothing: Hashable) -> None:
        self.base: set[Any] = {nothing}
        self.kept: set[Any] = {nothing}
        self.begun: dict[int, list[Any]] = {}

    def begin(self, process: int, content: Hashable) -> None:
        """This may be there from now on."""
        self.begun.setdefault(process, []).append(content)
        self.kept.add(content)

    def announce(self, process: int, content: Hashable) -> None:
        """This is there, and was flushed, until something else is begun."""
        self.begun[process] = []
        self.base = {content}
        self.kept = {content, *(one for others in self.begun.values() for one in others)}

    def withdraw(self, process: int, *contents: Hashable) -> None:
        """A process gave up: of what it began only these may still be seen."""
        self.begun[process] = list(contents)

    @property
    def seen(self) -> set[Any]:
        """What a process may see."""
        return {*self.base, *(one for others in self.begun.values() for one in others)}

    def settle(self, content: Hashable, crashed: bool) -> None:
        """This was found."""
        allowed = self.kept if crashed else self.seen
        if content not in allowed:
            listed = "\n    ".join(map(str, sorted(allowed, key=str)))
            raise AssertionError(f"there is\n    {content}\nbut not one of\n    {listed}")
        self.base = {content}
        self.begun = {}
        if crashed:
            self.kept = {content}
