"""These tests check that the table of settings agrees with the arguments in Python, with the C header and with the
manual."""

import inspect
import subprocess
import sys
from pathlib import Path

import outcrop.aggregate as agg
from outcrop import _aggregate

ROOT = Path(__file__).parents[2]


def test_the_header_and_the_manual_are_written_from_the_table() -> None:
    """Check the texts that `scripts/write_settings.py` writes from the table of settings. If this test fails, run
    `scripts/write_settings.py`.
    """
    command = [sys.executable, str(ROOT / "scripts" / "write_settings.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_every_setting_is_an_argument_of_python() -> None:
    """Check that each setting is an argument of `declare`, or an argument of both `create` and `open`. Docstrings must
    describe each argument.
    """
    names = {row[0] for row in _aggregate.setting_rows()}
    own = {"communicator", "extents", "hints"}
    of_plans = set(inspect.signature(agg.declare).parameters) - own
    others = {"path", "plan", "durable", "way", "size_bytes", "node_files", "writable"}
    of_files = set(inspect.signature(agg.create).parameters) - others
    assert of_files == set(inspect.signature(agg.open).parameters) - others
    assert of_plans | of_files == names and not of_plans & of_files
    for function, arguments in ((agg.declare, of_plans), (agg.create, of_files)):
        said = str(function.__doc__)
        assert all(f"        {name}: " in said for name in arguments), function
