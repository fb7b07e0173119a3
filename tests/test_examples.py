"""Protects the examples: they run, and a measured volume gives the oracle's bits in less memory than it has."""

import runpy
from pathlib import Path

import numpy as np

import outcrop as oc
from outcrop.run.oracle import advance

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_brain_is_blurred_to_the_bit(tmp_path: Path) -> None:
    """Fifty steps in 8 MiB on odd sizes and uint8 input equal NumPy's; both pictures are written and differ."""
    example = runpy.run_path(str(EXAMPLES / "brain.py"))
    example["main"](tmp_path)
    volume = example["load_volume"]().astype("float32")
    stencil = oc.stencils.heat(ndim=3)
    expected = advance(stencil, volume, {}, 50)
    np.testing.assert_array_equal(oc.open(tmp_path / "run.oc")["u"][:], expected)
    before, after = (tmp_path / f"{name}.png" for name in ("before", "after"))
    assert before.read_bytes() != after.read_bytes()
