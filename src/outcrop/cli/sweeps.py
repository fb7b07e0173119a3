"""`outcrop run ... --set KEY=VALUE,VALUE`: a sweep, one run for each combination of values.

    --set params.c1=0.05,0.1 --set dtype=float32,float64

    run-c1=0.05-dtype=float32.oc   run-c1=0.05-dtype=float64.oc   run-c1=0.1-dtype=float32.oc   ...

The options give a directory. Each run has its own directory, whose name contains the values of this run. All runs of a
sweep are checked before the first run begins. The runs of a sweep are computed one after the other.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outcrop.cli import options
from outcrop.errors import InputError, InterruptedRun, OutcropError, shown
from outcrop.run.options import SIZES, RunOptions, option_table

if TYPE_CHECKING:
    from outcrop.run.simulation import Simulation

MAX_RUNS = 10_000
MAX_NAME = 120
"""The maximum number of characters that a sweep adds to the name of a directory. If the text of the values is longer,
the number of the run is added instead."""

_MAPPINGS = {"params": "NAME=VALUE", "init": "NAME=VALUE"}
_FIXED = ("stencil", "directory", "raw_device", "records", "force", "ranks", "check_finite")
"""Options with flags that a sweep cannot change."""
_FLAGS = {"true": True, "false": False}


@dataclass(frozen=True)
class Variant:
    """One run of a sweep: its values for the keys of --set, and its options on the command line."""

    values: Mapping[str, str]
    given: Mapping[str, Any]

    @property
    def text(self) -> str:
        return ", ".join(f"{key.removeprefix('params.')} = {value}" for key, value in self.values.items())


@contextmanager
def naming(one: Variant) -> Iterator[None]:
    """If the body of the `with` raises an error, add the name of the run to the message of the error."""
    try:
        yield
    except InterruptedRun as error:
        go_on = "or continue the sweep: the same command with --continue"
        raise InterruptedRun(f"{one.text}: {error}, {go_on}") from None
    except OutcropError as error:
        raise type(error)(f"{one.text}: {error}") from None


def variants(given: Mapping[str, Any], texts: Sequence[str]) -> list[Variant]:
    """Return the runs of a sweep. `given` contains the options on the command line, and `texts` the values of --set.
    Raises InputError for keys that a sweep cannot change, and for values that are not valid."""
    every: dict[str, list[str]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        key = key.strip()
        if not equals or not key or not values.strip():
            raise InputError(f"--set {shown(text)} is not understood; write KEY=VALUE,VALUE such as params.c1=0.05,0.1")
        if key in every:
            raise InputError(f"--set {key} is given twice; write all values in one list")
        # values with commas, such as x=periodic,z=mirror, are separated by semicolons
        every[key] = [one.strip() for one in values.split(";" if ";" in values else ",")]
        if "" in every[key]:
            raise InputError(f"--set {shown(text)} has an empty value; write KEY=VALUE,VALUE")
        if len(set(every[key])) < len(every[key]):
            raise InputError(f"--set {shown(text)} has the same value twice")
    count = 1
    for several in every.values():
        count *= len(several)
    if count > MAX_RUNS:
        raise InputError(f"--set: {count} runs, at most {MAX_RUNS} are possible")
    found = []
    for chosen in itertools.product(*every.values()):
        pairs, changed = dict(zip(every, chosen, strict=True)), dict(given)
        for key, value in pairs.items():
            _change(changed, key, value)
        found.append(Variant(pairs, changed))
    return found


def _change(given: dict[str, Any], key: str, value: str) -> None:
    """Replace the value of an option in `given` by the text `value`."""
    group, _, name = key.partition(".")
    if name and group in _MAPPINGS:
        others = [one for one in given.get(group) or [] if one.partition("=")[0].strip() != name]
        given[group] = [*others, f"{name}={value}"]
        return
    name = name if group in ("sizes", "problem", "resources", "output") and name else key
    known = option_table()
    if name in SIZES:
        given[name] = _whole_number(key, value)
        return
    if name not in known or not known[name].flags or name in _MAPPINGS or name in _FIXED:
        there = [one for one, option in known.items() if option.flags and one not in (*_MAPPINGS, *_FIXED)]
        keys = ", ".join(["params.NAME", "init.NAME", *there, *SIZES])
        raise InputError(f"--set {shown(key)} cannot be set in a sweep; there are {keys}")
    if next(one.default for one in fields(RunOptions) if one.name == name) is False:
        if value not in _FLAGS:
            raise InputError(f"--set {key}={value}: write true or false")
        given[name] = _FLAGS[value]
    elif name in ("steps", "threads"):
        given[name] = _whole_number(key, value)
    else:
        given[name] = value


def _whole_number(key: str, value: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", value):
        raise InputError(f"--set {key}={value}: {shown(value)} is not a whole number")
    return int(value)


def chosen_options(found: Sequence[Variant]) -> list[RunOptions]:
    """Return the options of all runs of a sweep. Each run gets a directory of its own. Raises InputError for wrong
    options."""
    every = []
    for one in found:
        with naming(one):
            every.append(options.run_options(one.given))
    names = [_suffix(one, number) for number, one in enumerate(found, start=1)]
    if len(set(names)) < len(names):  # some values differ only in characters that file names cannot contain
        names = [f"{name}-{number}" for number, name in enumerate(names, start=1)]
    return [replace(one, directory=_derived(one.directory, name)) for one, name in zip(every, names, strict=True)]


def _suffix(one: Variant, number: int) -> str:
    pairs = (f"{key.rpartition('.')[2]}={value}" for key, value in one.values.items())
    text = re.sub(r"[^A-Za-z0-9_.=+-]+", "_", "-".join(pairs))
    return text if len(text) <= MAX_NAME else f"{number:04d}"


def _derived(directory: Any, name: str) -> list[str]:
    """Return the directories of a run of a sweep: `name` is added to the name of each directory. For example, the
    directory run.oc and the name c1=0.1 give run-c1=0.1.oc."""
    places = directory if isinstance(directory, (list, tuple)) else [directory]
    paths = [Path(place) for place in places]
    return [str(path.with_name(f"{path.stem}-{name}{path.suffix}")) for path in paths]


Ranges = dict[str, tuple[float, float]]
"""A dictionary with the minimum and the maximum of initial values. The key is the text of these values."""


def require_stable(simulation: Simulation, chosen: RunOptions, known: Ranges) -> None:
    """Raise InputError if a new run of a sweep is certainly not stable. `known` keeps the minimum and the maximum of
    fields that are only read. So the values of these fields are read only once for all runs."""
    import numpy as np

    from outcrop.axes import grid_shape
    from outcrop.run.inputs.initial import checked_planes, values_by_name
    from outcrop.run.inputs.input_array import plane_groups
    from outcrop.run.stable import refuse_unstable

    description, texts = simulation.setup.description, values_by_name(chosen.init, simulation.stencil)
    ranges = {}
    for name in (entry.name for entry in description.given if entry.name in simulation.initial_values):
        array = simulation.initial_values[name]
        key = f"{texts[name]!r} {array.shape} {description.dtype}"
        if key not in known:
            low, high, planes = np.inf, -np.inf, checked_planes(array, description.dtype, check_finite=False)
            for z0, z1 in plane_groups(grid_shape(array.shape), itemsize=8):
                block = planes(z0, z1)
                # NumPy's functions return NaN if one of the values is NaN
                low, high = np.minimum(low, block.min()), np.maximum(high, block.max())
            known[key] = float(low), float(high)
        ranges[name] = known[key]
    if ranges:
        refuse_unstable(simulation.stencil, description, ranges)


def reopened(simulation: Simulation) -> Simulation | None:
    """The directory of a new run can already hold a run with values. Return the run on disk, or None if there is no run
    with values. Raises InputError if the run on disk differs from the new run."""
    from outcrop.run.places import may_hold_run
    from outcrop.run.simulation import open as open_simulation

    place = simulation.directory
    if not may_hold_run(Path(place)):
        return None
    there = open_simulation(place)
    ours, theirs = simulation.setup.description, there.setup.description
    names = ("stencil", "parameters", "shape", "dtype", "boundary", "signals", "taps", "coordinates", "in_place")
    if changed := [name for name in names if getattr(ours, name) != getattr(theirs, name)]:
        raise InputError(f"{place} holds another run: its {changed[0]} differs; move that run away")
    state = there.setup.state
    return there if state is not None and state.has_values else None
