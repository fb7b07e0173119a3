"""Find the faults of a case."""

from __future__ import annotations

from .case import DONE, REFUSED, Case
from .jail import PEAK_BYTES
from .process import Ended

BAD = (
    *("traceback", "hang", "crash", "memory", "changed outside", "changed by reading", "several lines", "exit code"),
    *("accepted though wrong", "left behind", "not as a process"),
)
"""All kinds of faults, in the order of the report."""


def faults_of(
    case: Case, ended: Ended, outside: list[str], inside: list[str], left: list[str]
) -> dict[str, str]:
    """Return the faults of a case as a dictionary from kinds in BAD to details. `outside` lists changes of files that
    the case must not change. `inside` lists all changes of other files, if the case must only read files. `left` lists
    files that a failed command has not removed.
    """
    faults = {}
    if ended.code is None:
        faults["hang"] = f"{ended.seconds:.0f} s{'' if ended.heeds_sigterm else ', and ignores SIGTERM'}"
    elif ended.code < 0 and not (case.stdout == "broken" and ended.code == -13):
        faults["crash"] = f"signal {-ended.code}"
    for word in ("Traceback (most recent call last)", "Exception ignored in", "terminate called"):
        if word in ended.err:
            faults["traceback"] = last_line(ended.err)
    if ended.peak_bytes > PEAK_BYTES:
        faults["memory"] = f"{ended.peak_bytes >> 20} MiB"
    if outside:
        faults["changed outside"] = "; ".join(outside[:6])
    if case.reads and inside:
        faults["changed by reading"] = "; ".join(inside[:6])
    lines = [line for line in ended.err.splitlines() if line.strip()]
    if ended.code == REFUSED and "traceback" not in faults:
        told = [line for line in lines if line.startswith("outcrop:")]
        if len(told) != 1 or lines[-1] != told[0]:
            faults["several lines"] = repr(ended.err[-300:])
    if ended.code is not None and ended.code > 0 and ended.code not in _allowed(case) and "traceback" not in faults:
        faults["exit code"] = f"{ended.code}: {last_line(ended.err)}"
    if ended.code == REFUSED and left:
        faults["left behind"] = "; ".join(left)
    if ended.code == DONE and case.must_fail:
        faults["accepted though wrong"] = case.must_fail
    return faults


def _allowed(case: Case) -> tuple[int, ...]:
    return (REFUSED, 141) if case.stdout == "broken" else (REFUSED,)


def last_line(text: str) -> str:
    """Return the last line that is not empty, or the beginning of this line if it is very long."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
