"""Record the contents that the storage is allowed to have: while processes change it, after kills, and after power
cuts."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any


class Expected:
    """The contents that storage may have. A process may see any content of `seen`. After a power cut, any content of
    `kept` may remain."""

    def __init__(self, nothing: Hashable) -> None:
        self.base: set[Any] = {nothing}
        self.kept: set[Any] = {nothing}
        self.begun: dict[int, list[Any]] = {}

    def begin(self, process: int, content: Hashable) -> None:
        """Allow this content, which a process has begun to write."""
        self.begun.setdefault(process, []).append(content)
        self.kept.add(content)

    def announce(self, process: int, content: Hashable) -> None:
        """Record that this content is now durable. Older content is then not allowed. Content that other processes have
        begun to write stays allowed."""
        self.begun[process] = []
        self.base = {content}
        self.kept = {content, *(one for others in self.begun.values() for one in others)}

    def withdraw(self, process: int, *contents: Hashable) -> None:
        """Record that a process has given up its changes. All contents that this process began to write are then
        forbidden, except `contents`.
        """
        self.begun[process] = list(contents)

    @property
    def seen(self) -> set[Any]:
        """The contents that a process may see."""
        return {*self.base, *(one for others in self.begun.values() for one in others)}

    def settle(self, content: Hashable, crashed: bool) -> None:
        """Check that the found content is allowed. Then allow only this content."""
        allowed = self.kept if crashed else self.seen
        if content not in allowed:
            listed = "\n    ".join(map(str, sorted(allowed, key=str)))
            raise AssertionError(f"there is\n    {content}\nbut not one of\n    {listed}")
        self.base = {content}
        self.begun = {}
        if crashed:
            self.kept = {content}
