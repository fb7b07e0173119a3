"""Measure variants of a program alternately. Each measurement runs in its own process, so that the memory of each
variant can be measured separately.

    parent   variant 1, variant 2, ..., variant 1, variant 2, ...    Computes ratios for each repeat, and their medians.
    child    SCRIPT --variant NAME ...                               Prints its Outcome as JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

from options import at_least, checked, folder

from outcrop.bench.memory import run_limited
from outcrop.errors import InputError, OutcropError
from outcrop.paths import made_directory
from outcrop.units import format_bytes, parse_bytes

SETTLE_SECONDS = 8.0
SIZE_STEP = 64
"""Sizes are multiples of this number, so that each row fills whole cache lines."""


@dataclass(frozen=True)
class Outcome:
    """The measurements of one process: the seconds of the calculation, and the bytes of DRAM for arrays. `own_bytes`
    counts the resident bytes of the process's own memory. `file_bytes` counts the resident bytes of mapped files.
    `result` has a few numbers that depend on the computed values, such as the means of some rows."""

    seconds: float
    needed_bytes: int
    own_bytes: int
    file_bytes: int
    result: list[float]
    note: str = ""


@dataclass(frozen=True)
class Variant:
    """A way to run the program. `run` runs the program with the given options. `limit_bytes` limits the memory of the
    process, including the page cache. If the process has no permission to make a control group, its memory is not
    limited."""

    text: str
    run: Callable[[argparse.Namespace], Outcome]
    limit_bytes: int | None = None


Found = dict[str, list[Outcome]]
"""For each name of a variant, the list of its outcomes. The list has one outcome for each repeat."""


def resident_bytes() -> tuple[int, int]:
    """Return two numbers about the bytes of this process in DRAM. The first returned number is the bytes of private and
    shared memory. The second returned number is the bytes of mapped files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    known = {line.split()[0]: int(line.split()[1]) << 10 for line in lines if line.startswith("Rss")}
    return known["RssAnon:"] + known["RssShmem:"], known["RssFile:"]


def parser(about: str | None, script: str, size: int, memory: str) -> argparse.ArgumentParser:
    """Return a parser with the options of every program that measures variants."""
    name = Path(script).stem
    sides = checked(
        int, lambda value: value > 0 and value % SIZE_STEP == 0, f"a multiple of {SIZE_STEP}, such as {100 * SIZE_STEP}"
    )
    parser = argparse.ArgumentParser(
        prog=f"{name}.py", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=sides, default=size, metavar="N", help=f"cells along each side, 64 n [{size}]")
    parser.add_argument("--memory", type=memory_size, default=memory, help=f"memory of the run out of core [{memory}]")
    parser.add_argument("--turns", type=at_least(1), default=3, metavar="N", help="repeats of each variant [3]")
    seconds = checked(float, lambda value: 0 <= value < math.inf, "a number of seconds of at least 0")
    settle_help = "pause before each measurement: virtual machines return memory slowly [8]"
    parser.add_argument("--settle", type=seconds, default=SETTLE_SECONDS, metavar="SECONDS", help=settle_help)
    parser.add_argument("-d", "--directory", type=folder, default=Path("."), help="a folder on the tier to measure [.]")
    parser.add_argument("--variant", help=argparse.SUPPRESS)
    return parser


def memory_size(text: str) -> str:
    """Check that the text is a memory budget that `outcrop run` accepts, and return the text, for `argparse`."""
    try:
        parse_bytes(text, 1 << 40)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def measure(
    script: str,
    variants: Mapping[str, Variant],
    given: argparse.Namespace,
    prepare: Callable[[argparse.Namespace], None],
) -> Found | None:
    """Return all outcomes of each variant. In a child process, print the outcome of the child's variant and return
    None.

    `prepare` makes the files that all variants use. `prepare` makes the files in a new folder inside the given
    directory. `measure` removes this folder at the end. `prepare` can change options: all variants get the changed
    options.
    """
    if given.variant is not None:
        try:
            print(json.dumps(asdict(variants[given.variant].run(given))))
        except OutcropError as error:
            sys.exit(str(error))  # the parent process prints this message
        return None
    prefix = "outcrop-example-"
    with made_directory(given.directory), tempfile.TemporaryDirectory(prefix=prefix, dir=given.directory) as own:
        given = argparse.Namespace(**{**vars(given), "directory": Path(own)})
        found: Found = {name: [] for name in variants}
        try:
            prepare(given)
            for turn in range(given.turns):
                print(f"turn {turn + 1} of {given.turns}", file=sys.stderr, flush=True)
                for name, variant in variants.items():
                    found[name].append(_in_a_process(script, name, variant, given))
        except OutcropError as error:
            sys.exit(f"{Path(script).name}: {error}")
    return found


def _in_a_process(script: str, name: str, variant: Variant, given: argparse.Namespace) -> Outcome:
    options = [f"--{key}={value}" for key, value in vars(given).items() if key != "variant"]
    time.sleep(given.settle)
    output = run_limited([script, "--variant", name, *options], variant.limit_bytes)
    outcome = Outcome(**json.loads(output.text.splitlines()[-1]))
    if variant.limit_bytes is None or output.is_limited:
        return outcome
    return replace(outcome, note="its memory could not be limited: only root may")


def ratio(found: Found, name: str, base: str = "dram") -> float:
    """Return the time of the variant `name` divided by the time of the variant `base`. The returned ratio is the median
    over all repeats."""
    return median(one.seconds / other.seconds for one, other in zip(found[name], found[base], strict=True))


def table(variants: Mapping[str, Variant], found: Found) -> str:
    heads = ("", "calculation", "of DRAM's", "DRAM for arrays", "resident: own", "of files")
    rows = [heads]
    for name, variant in variants.items():
        of = found[name]
        seconds = f"{median(one.seconds for one in of):.2f} s"
        counts = (of[0].needed_bytes, max(one.own_bytes for one in of), max(one.file_bytes for one in of))
        rows.append((variant.text, seconds, f"{ratio(found, name):.2f}", *map(format_bytes, counts)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    lines = []
    for row in rows:
        first, *others = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join([first, *(cell.strip().rjust(len(cell)) for cell in others)]))
    notes = [f"{variants[name].text}: {of[-1].note}" for name, of in found.items() if of[-1].note]
    return "\n".join([*lines, "", *notes])
