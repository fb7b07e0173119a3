"""Define plans, candidates and schemes. A plan has sizes, passes of actions, and a predicted cost. A candidate is a
plan without its actions. A `Scheme` object is the interface between a file in `schemes` and the planner."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from outcrop.display import Described
from outcrop.plan.actions import Action, Block, Update
from outcrop.plan.memory import NO_ACQUISITION_MEMORY, AcquisitionMemory, Window
from outcrop.plan.problem import Problem


@dataclass(frozen=True)
class Sizes:
    """The sizes of a plan. A scheme lists possible sizes.

    `levels`               The number of levels of a pass (L): the number of steps (`bt`) times the stages of a step.
    `slab`                 The number of planes of zeta that are updated together (b).
    `diamond`              The half height D of the cache tiles, in levels. 0 means plain sweeps.
    `sweep_rows`           The number of rows of each block of a plain sweep.
    `planes_per_call`      The number of planes that one call of a kernel updates.
    `block_y`              The number of rows of a block. 0 means that y is not divided.
    `block_x`, `block_z`   The number of cells of a block along x and z. Only published schemes divide these axes.
    `keeps_statics`        True if all static fields stay in memory.
    `chunk`                The number of planes of zeta in a tile that has all rows. Grids with few rows use tiles with
                           all rows. 0 means that tiles divide y.
    `rows_at_once`         The number of rows that the inner loop of a kernel updates together: 1, 2 or 4.
    `prefetch`             True if a kernel prefetches rows that the next planes of its tile need.
    `columns`              The number of cells of a range of columns. The length of a range is a multiple of 64 bytes.
                           All tiles of a slab are updated in one range before the next range begins. 0 means whole
                           rows.
    """

    levels: int
    slab: int
    diamond: int
    sweep_rows: int = 16
    planes_per_call: int = 2
    block_x: int = 0
    block_y: int = 0
    block_z: int = 0
    keeps_statics: bool = False
    chunk: int = 0
    rows_at_once: int = 1
    prefetch: bool = False
    columns: int = 0


@dataclass(frozen=True)
class Pass:
    """One trip of the window over the grid. A pass advances the grid by `levels` levels and uses the memory of
    `window`.

    `fringe_rows` is the number of rows of each parity in a plane of the array `fringes`, or 0 if the pass has no such
    array. `uses_other` is true if the pass needs the array `other`. `recomputed_rows` contains the number of rows in a
    plane of the array `recomputed` for each field of `Problem.computed`.
    """

    levels: int
    slab: int
    window: Window
    actions: tuple[Action, ...] = field(repr=False)
    fringe_rows: int = 0
    uses_other: bool = False
    recomputed_rows: tuple[int, ...] = ()


@dataclass(frozen=True)
class Prediction:
    """The predicted cost of a plan. `seconds` is wall-clock time. Each of the other times is the time that one kind of
    work would take alone. `seconds_transfer` is the time of all reads and writes, if they take place at the same time.
    `seconds_checksum` is for the checksums of all transferred values. The cores compute the checksums, so the time of
    the cores is `seconds_update` + `seconds_checksum`, and a little more. `bytes_sent` and `bytes_received` count the
    rows that a rank sends to its neighbours and receives from them."""

    seconds: float
    bytes_read: int
    bytes_written: int
    memory_bytes: int
    seconds_update: float
    seconds_read: float
    seconds_write: float
    seconds_commit: float
    bytes_sent: int = 0
    bytes_received: int = 0
    seconds_checksum: float = 0.0
    seconds_transfer: float = 0.0


@dataclass(frozen=True)
class Candidate:
    """The sizes of a plan and its predicted cost. The actions of the plan are not kept, to save memory."""

    scheme: str
    sizes: Sizes
    passes: int
    predicted: Prediction

    @property
    def seconds(self) -> float:
        return self.predicted.seconds


@dataclass(frozen=True)
class Plan(Described):
    """All decisions about a run that are made before its first transfer."""

    problem: Problem
    scheme: str
    sizes: Sizes
    passes: tuple[Pass, ...]
    window: Window
    predicted: Prediction
    acquisition: AcquisitionMemory = NO_ACQUISITION_MEMORY

    @property
    def memory_bytes(self) -> int:
        """The bytes of the window and of acquisition. The size of all other memory of a run does not depend on the
        problem."""
        return self.window.bytes + self.acquisition_bytes

    @cached_property
    def different_passes(self) -> tuple[Pass, ...]:
        """Each `Pass` object of the plan once. Most passes of a plan are the same object."""
        return tuple({id(one): one for one in self.passes}.values())

    @property
    def acquisition_bytes(self) -> int:
        """The bytes of the memory for snapshots that wait to be written, and for the values of sources and receivers.
        """
        levels = max((one.levels for one in self.different_passes), default=0)
        return self.acquisition.bytes(self.problem.steps_of(levels))

    @property
    def fringe_rows(self) -> int:
        """The number of rows of each parity in a plane of the array `fringes`, or 0 if no pass needs this array."""
        return max((one.fringe_rows for one in self.different_passes), default=0)

    @property
    def recomputed_rows(self) -> tuple[int, ...]:
        """The number of rows in a plane of the array `recomputed`, for each field of `Problem.computed`."""
        return tuple(map(max, zip(*(one.recomputed_rows for one in self.different_passes), strict=True)))

    @property
    def scratch_bytes(self) -> int:
        """The bytes of the arrays `fringes`, `recomputed` and `other`, which are used only within passes."""
        problem, uses_other = self.problem, any(one.uses_other for one in self.different_passes)
        rings = problem.rings - problem.statics - problem.histories - len(problem.recomputed)
        rows = rings * self.fringe_rows + sum(self.recomputed_rows)
        fringes = rows * problem.pitch_bytes * problem.planes
        return fringes + (problem.grid_bytes if uses_other else 0)

    @property
    def snapshot_bytes(self) -> int:
        """The bytes of all snapshots that the steps of the plan write."""
        demand, steps = self.problem.acquisition, self.problem.steps
        return sum(one.boxes(demand.first_step, steps) * one.box_bytes for one in demand.snapshots)

    @property
    def blocks_per_pass(self) -> int:
        """The number of blocks of the first pass, without blocks that only send planes."""
        blocks = {one for one in self.passes[0].actions if isinstance(one, Block) and not one.only_sends}
        return max(1, len(blocks))

    def _title(self) -> str:
        from outcrop.plan.description import title  # `description` imports the schemes, which import this module

        return title(self.problem)

    def _rows(self) -> list[tuple[str, str]]:
        from outcrop.plan.description import plan_rows

        return plan_rows(self)

    def to_json(self) -> dict[str, Any]:
        """Describe the plan, without its actions, for the report."""
        return {
            "scheme": self.scheme,
            **asdict(self.sizes),
            "steps_per_pass": self.problem.steps_of(self.sizes.levels),
            "passes": len(self.passes),
            "slabs_per_pass": sum(isinstance(action, Update) for action in self.passes[0].actions),
            "blocks_per_pass": self.blocks_per_pass,
            "ring_planes": list(self.window.ring_planes),
            "memory_bytes": self.memory_bytes,
            "taps_bytes": self.acquisition_bytes,
            "scratch_bytes": self.scratch_bytes,
            "snapshot_bytes": self.snapshot_bytes,
        }


@dataclass(frozen=True)
class Volume:
    """The work of one pass, estimated by the formulas of the scheme. The formulas are exact enough to compare sizes.

    `exposed_bytes` are the bytes that are transferred before the first update of a block or after its last update.
    `slabs` is the number of Update actions. `requests` is the number of transfers. One transfer moves a plane or a part
    of a plane. `bytes_sent` is the number of bytes that a rank sends to its neighbours. The rank also receives
    `bytes_sent` bytes from its neighbours.
    """

    bytes_read: float
    bytes_written: float
    cell_updates: float
    exposed_bytes: float
    slabs: int
    requests: float
    bytes_sent: float = 0


@dataclass(frozen=True)
class Scheme:
    """A method that divides space and time into blocks, slabs and levels.

    `window`            A function of (problem, levels, sizes). `window` returns the memory that `make_pass` needs.
    `make_pass`         A function of (problem, levels, sizes). `make_pass` generates the actions of one pass.
    `candidates`        A function of (problem, budget_bytes, given=FREE). `candidates` lists the sizes whose cost is
                        worth predicting. The listed sizes have no cache tiling yet.
    `smallest`          A function of (problem, given=FREE). `smallest` returns the smallest window of any pass.
    `volume`            A function of (problem, sizes). `volume` estimates the work of a pass.
    `sizes`             The names of the sizes that users may give.
    `in_place`          True if the scheme also works when source and target are the same array.
    `checks_all`        True if all bytes that are read from disk have a checksum. `auto` uses only these schemes.
    `diamond`           The diamond that the user gave, or 0.
    `single`            True if the scheme supports only one updated field.
    `sweeps`            True if the scheme updates level by level, so that cache tiles are not useful.
    `repeats_updates`   True if blocks also update cells of other blocks.
    `keeps_statics`     True if the scheme can keep static fields in memory even if the memory is too small for the
                        whole grid.
    `reads_histories`   True if passes can read the states of a forward run.
    `has_halos`         True if passes can use rows of neighbours, for grids that are divided among ranks.
    `shared_levels`     A function of the problem of a rank. `shared_levels` returns the maximum number of levels of a
                        pass. Only schemes in which ranks share the updates at their cuts have the function
                        `shared_levels`. Such schemes work only for grids that are divided among ranks. For other
                        schemes, `shared_levels` is None.
    """

    name: str
    window: Callable[[Problem, int, Sizes], Window]
    make_pass: Callable[[Problem, int, Sizes], Pass]
    candidates: Callable[..., Iterable[Sizes]]
    smallest: Callable[..., Window]
    volume: Callable[[Problem, Sizes], Volume]
    sizes: tuple[str, ...]
    in_place: bool = True
    checks_all: bool = True
    diamond: int = 0
    single: bool = False
    sweeps: bool = False
    repeats_updates: bool = False
    keeps_statics: bool = False
    reads_histories: bool = False
    has_halos: bool = False
    shared_levels: Callable[[Problem], int] | None = None

    def max_levels(self, problem: Problem) -> int:
        """Return the maximum number of levels of a pass. The number of levels is limited only if the grid is divided
        among ranks."""
        return problem.max_levels if self.shared_levels is None else self.shared_levels(problem)

    def refusal(self, problem: Problem) -> str | None:
        """Return the reason why the scheme cannot run the problem, or None if the scheme can run it."""
        if problem.in_place and not self.in_place:
            return "run in place: blocks read cells that other blocks have overwritten"
        if problem.histories and not self.reads_histories:
            return "read a history: give scheme wavefront or auto"
        if self.shared_levels is not None and problem.is_part_z:
            return "divide the grid along z: ranks share updates along y only; give scheme wavefront or auto"
        if self.shared_levels is not None and not problem.is_part:
            return "run on one rank: it shares updates with other ranks; give scheme wavefront or auto"
        if self.shared_levels is not None and self.shared_levels(problem) < problem.stages:
            rows = 2 * problem.radius_y * problem.stages
            return (
                f"divide the grid among so many ranks: each rank needs {rows} rows of y, but some "
                f"ranks have only {problem.max_halo}; use fewer ranks, or give scheme wavefront or auto"
            )
        if problem.is_part and not self.has_halos:
            return "divide the grid among ranks: give scheme wavefront or auto"
        if problem.is_part and problem.has_values:
            return "read a history if the grid is divided among ranks"
        if self.single and not problem.single:
            return "run this stencil: the scheme supports only one field, updated in one stage"
        return None
