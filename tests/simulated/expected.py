"""The contents that storage may have while processes change it, are killed, or lose power."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any


class Expected:
    """The allowed contents: a process may see those of `seen`, and those of `kept` may remain after a power cut."""

    def __init__(self, nothing: Hashable) -> None:
        self.base: set[Any] = {nothing}
        self.kept: set[Any] = {nothing}
        self.begun: dict[int, list[Any]] = {}

    def begin(self, process: int, content: Hashable) -> None:
        """Allow this content from now on, because a process has begun to write it."""
        self.begun.setdefault(process, []).append(content)
        self.kept.add(content)

    def announce(self, process: int, content: Hashable) -> None:
        """Expect this content, which is now durable. Other content is allowed when a process begins to write it."""
        self.begun[process] = []
        self.base = {content}
        self.kept = {content, *(one for others in self.begun.values() for one in others)}

    def withdraw(self, process: int, *contents: Hashable) -> None:
        """Record that a process has given up. Of the contents that it began to write, only `contents` may still be
        seen.
        """
        self.begun[process] = list(contents)

    @property
    def seen(self) -> set[Any]:
        """The contents that a process may see."""
        return {*self.base, *(one for others in self.begun.values() for one in others)}

    def settle(self, content: Hashable, crashed: bool) -> None:
        """Check that the content that was found is allowed. From now on only this content is expected."""
        allowed = self.kept if crashed else self.seen
        if content not in allowed:
            listed = "\n    ".join(map(str, sorted(allowed, key=str)))
            raise AssertionError(f"there is\n    {content}\nbut not one of\n    {listed}")
        self.base = {content}
        self.begun = {}
        if crashed:
            self.kept = {content}
