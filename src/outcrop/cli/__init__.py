"""The command line. This package only reads options, calls other packages and prints.

`main.py` runs a command of `app.py`, which imports the files of all commands. `__init__.py` contains the parts that
several files of the package share.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO

INTERRUPTED = 130
"""The exit code of a command that the user has interrupted."""


def discard_output(stream: TextIO | None = None) -> None:
    """Discard all further output of `stream`: send the output to /dev/null. The default stream is standard output."""
    null = os.open(os.devnull, os.O_WRONLY)
    with contextlib.suppress(OSError, ValueError):  # in some tests, the stream is not a file
        os.dup2(null, (stream or sys.stdout).fileno())
    os.close(null)
