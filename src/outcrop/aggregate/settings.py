"""What users set: by arguments, MPI info hints, the environment. A table: aggregate/placement/settings.hpp in core."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outcrop import _core
from outcrop.aggregate.machine import Wishes
from outcrop.tiers.tier import Persistence


@dataclass(frozen=True)
class Settings:
    """Values that hold; `origins` says of each where it is from: "argument tier", "hint cb_nodes", "default"."""

    tier: str
    persistence: Persistence
    buffer_bytes: int
    buffers: int
    count: int
    """Aggregators; 0 for as many as cost least."""
    hosts: str
    """As ROMIO's cb_config_list; empty for all."""
    stage: str
    """A folder on a tier of this node that files are staged in, or "auto"; empty for none."""
    stage_bytes: int
    """That it may take; 0 for what there is."""
    stage_persistence: Persistence
    """Of a stage that is chosen, at least."""
    seconds_between: float
    """Of computing between steps."""
    reads_back: float
    """Times that a step is read again before long."""
    machine: str
    """A file that says what nodes are like; empty for none."""
    target: str
    """A folder where files will be."""
    topology: str
    """A file with the place of each rank; empty for none."""
    transport: str
    """Between nodes: "messages", or "rma" where that works."""
    reads_only: bool
    """Ranks may declare the same bytes; such a plan refuses to write."""
    own_run_bytes: int
    """Each rank writes its own where runs of all are that long in the mean; 0 for never. Where it is set."""
    seconds_most: float
    """In which a rank that waits for others gives up; 0 for never."""
    origins: Mapping[str, str]

    def wishes(self, hosts_of_nodes: Sequence[str]) -> Wishes:
        """For placement on nodes with those hosts."""
        limits = _core.aggregate_most_on_nodes(self.hosts, list(hosts_of_nodes)) if self.hosts else ()
        return Wishes(self.buffer_bytes, self.buffers, self.persistence, self.tier, most_on_node=tuple(limits))


def read_settings(
    arguments: Mapping[str, object] | None = None,
    hints: Mapping[str, str] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Settings:
    """The first that says something: arguments, hints, environment. Raises InputError for what cannot be.

    Arguments that are None or 0 say nothing.
    """
    given = {name: str(value) for name, value in (arguments or {}).items() if value}
    own = {name: value for name, value in environment.items() if name.startswith("OUTCROP_AGG_")}
    found = _core.aggregate_settings(given, dict(hints or {}), own)
    values = {name: value for name, (value, _) in found.items()}
    for name in ("persistence", "stage_persistence"):
        values[name] = Persistence(values[name])
    return Settings(**values, origins={name: origin for name, (_, origin) in found.items()})
