"""`outcrop agg machine`: what this node is like, in a file for aggregation."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from outcrop.cli import options
from outcrop.cli.tiers import Declared


def machine(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="to be written; one that exists is replaced")],
    target: Annotated[Path, typer.Option("--target", metavar="DIR", help="where files will be")] = Path(),
    tiers: Declared = None,
    refresh: Annotated[bool, typer.Option("--refresh", help="measure again what is known from before")] = False,
) -> None:
    """Write a machine file: tiers of this node, where files go, network cards, for OUTCROP_AGG_MACHINE.

    Programs in C, Fortran and Python that are given one place aggregators alike. What has not been measured before is
    measured, as by `outcrop tiers`. Distances are of the ranks of a run, and not in it.
    """
    from outcrop.aggregate.machine_text import machine_text
    from outcrop.tiers.survey import find_tiers

    options.check_output(file, "FILE")
    found = find_tiers([target], tiers, measure=True, refresh=refresh, progress=_say)
    options.write_file(file, "FILE", machine_text(found, target).encode())
    print(f"{file}: {', '.join(tier.name for tier in found)}")


def _say(text: str) -> None:
    print(f"{text} ...", file=sys.stderr, flush=True)
