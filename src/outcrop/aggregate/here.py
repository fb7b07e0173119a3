"""What each rank knows of where it runs, so that all together find their distances.

every rank: facts_here() ──► gathered from all ranks ──► surroundings_of(...) ──► distances.find_distances
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from outcrop.aggregate.distances import Surroundings
from outcrop.aggregate.machine import Floats
from outcrop.aggregate.pmix import NO_PMIX, PmixAnswer, ask_pmix

CRAY_NAMES = ("etc/cray/xname", "proc/cray_xt/cname")
VARIABLES = ("SLURM_JOB_ID", "SLURM_TOPOLOGY_ADDR", "SLURM_TOPOLOGY_ADDR_PATTERN")
COMMAND_SECONDS = 10


@dataclass(frozen=True)
class Facts:
    """Of one rank: its host, the variables that matter, the name of the node in the machine room, if any, and what PMIx
    says."""

    host: str
    environment: Mapping[str, str]
    cray_name: str = ""
    pmix: PmixAnswer = NO_PMIX


def facts_here(environment: Mapping[str, str] = os.environ, root: Path = Path("/")) -> Facts:
    """Those of this process."""
    known = {name: environment[name] for name in VARIABLES if name in environment}
    return Facts(socket.gethostname(), known, _cray_name(root), ask_pmix())


def surroundings_of(
    facts: Sequence[Facts],
    node_of_rank: Sequence[int],
    file: Path | None = None,
    ping_pong: Callable[[], Floats] | None = None,
) -> Surroundings:
    """Of the facts of all ranks, in their order. What is known of a node is what its first rank knows."""
    first: dict[int, Facts] = {}
    for node, one in zip(node_of_rank, facts, strict=True):
        first.setdefault(node, one)
    nodes = [first[node] for node in range(len(first))]
    names = [one.cray_name for one in nodes]
    return Surroundings(
        [one.host for one in nodes],
        list(node_of_rank),
        [one.environment for one in nodes],
        file,
        [one.pmix.coordinates for one in nodes] if all(one.pmix.coordinates for one in nodes) else None,
        next((one.pmix.refusal for one in nodes if one.pmix.refusal), ""),
        cray_names=names if all(names) else (),
        run=run_command,
        ping_pong=ping_pong,
    )


def run_command(command: Sequence[str]) -> str | None:
    """What a command prints; None where there is none, it fails, or it takes too long."""
    if not shutil.which(command[0]):
        return None
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _cray_name(root: Path) -> str:
    for name in CRAY_NAMES:
        with suppress(OSError):
            return (root / name).read_text().strip()
    return ""
