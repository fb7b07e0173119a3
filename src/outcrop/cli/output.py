"""Standard output of commands that must not be lost with it: a run goes on when nobody reads what it prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outcrop.cli.main import discard_output
from outcrop.errors import StorageError

if TYPE_CHECKING:
    from pathlib import Path

    from outcrop.run.report import Report


class RunOutput:
    """Prints what a run has to say. What cannot be printed is dropped, and everything after it.

    A closed pipe, as of `outcrop run ... | head -1`, is no failure. Any other one, such as a full disk, is raised by
    `finish`, once the run is complete.
    """

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._problem: OSError | None = None

    def print(self, text: str) -> None:
        """Print `text` unless output has ended, or the user wants none."""
        if self._quiet or self._problem is not None:
            return
        try:
            print(text, flush=True)
        except OSError as error:
            self._problem = error
            discard_output()

    def finish(self, report: Report, json: Path | None) -> None:
        """Print the report, and write it to `json`. Raises StorageError when one of both cannot be, InputError when it
        is `json`; the message says that the run is complete."""
        self.print(str(report))
        if json is not None:
            report.save(json)
        if self._problem is not None and not isinstance(self._problem, BrokenPipeError):
            raise StorageError(f"standard output: {self._problem.strerror}; {report.standing}")
