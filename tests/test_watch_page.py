"""Check how the live page of `outcrop watch` fits into a terminal."""

from __future__ import annotations

import pytest

from outcrop.cli import watch as page_module


@pytest.mark.parametrize("columns", [80, 40])
def test_a_narrow_terminal_shows_the_whole_command(columns: int) -> None:
    """Checks that the live page wraps the row of the status. No word of the command may be cut or divided."""
    text = "  status    interrupted: step 8 of 20; continue it with: outcrop resume small-shot.oc --memory 16MiB"
    lines = page_module._wrapped(text, columns)
    assert len(lines) > 1 and max(map(len, lines)) <= columns
    assert " ".join(" ".join(lines).split()) == " ".join(text.split())
    bar = "  progress  " + "#" * 100
    assert page_module._wrapped(bar, columns) == [bar]
