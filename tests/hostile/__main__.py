"""Test all parts that read input with random wrong input, and print the results.

    python -m tests.hostile --number 5000 --seed 1       Run 5000 cases of all generators together.
    python -m tests.hostile --only options               Run cases of one generator.
    python -m tests.hostile --case options:1:42          Run one case, and print all its output.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .report import print_case, print_report
from .session import GENERATORS, Session

SHARES_TEXT = ", ".join(GENERATORS)


def main() -> int:
    """Return 0 if no fault was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__,
    formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--number", type=int, default=5200, help="of cases, shared out to the generators [5200]")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", choices=sorted(GENERATORS), help="a generator; may be repeated")
    parser.add_argument("--case", metavar="GENERATOR:SEED:NUMBER", help="this one alone")
    parser.add_argument("--real", action="store_true", help="with --case: as a process of its own")
    parser.add_argument("--workers", type=int, default=0, help="processes at once [one for each core]")
    parser.add_argument("--folder", type=Path, help="for all files [a temporary one]")
    parser.add_argument("--keep", action="store_true", help="leave the files")
    parser.add_argument("--findings", type=Path, help="add what is found to this file, as JSON lines")
    options = parser.parse_args()
    with Session(options.folder, options.keep, options.workers if not options.case else 1) as session:
        if options.case:
            generator, seed, number = options.case.split(":")
            return print_case(session.one(generator, int(seed), int(number), options.real))
        return print_report(session.many(options.only or sorted(GENERATORS), options.number, options.seed),
        options.findings)


if __name__ == "__main__":
    sys.exit(main())
