"""This module contains two parts of the proof of plans. Both parts of the proof prove facts about the rows that
neighbouring ranks exchange.

The proof of one rank (validate.py) uses the class `ExchangeProof`. The proof of one rank assumes that each received row
has the level that the Read action gives. The proof of one rank checks that each sent row has the level that the Write
action gives.

The proof for all ranks (ranks.py) uses the messages of a pass, which this module lists. The proof for all ranks shows
that a rank receives the rows that its neighbour sends, and that no ranks wait for each other forever. The proof for all
ranks assumes that a connection stores no messages. So a plane is transferred only when one rank has begun to send the
plane and the other rank has begun to receive the plane. The proof for all ranks also assumes that only one action of
each direction is in progress at a time. So all planes of an action are transferred before the next action of the same
direction begins. If a pass always completes with one action at a time and with connections that store no messages, the
pass also completes if connections store messages.

A rank performs its actions in order. Some actions of a rank wait for messages:

    Read             waits until the planes that it overwrites in the window have been sent
    Copy, Write      wait for the rows of their planes that are sent or received
    Write to faces   along y, waits for the planes that are received along z
    Check            waits like Copy, except in a block that only sends
    Update           also waits for the rows of all planes that it reads
    Commit           waits for all messages

The executor can wait for fewer rows than the proof. For example, the executor updates a trapezoid without waiting for
rows of a neighbour, because a trapezoid needs no such rows (schemes/split_tiling.py). The proof waits for every event
for which the executor waits.

A wait of a rank depends only on the numbers of planes that its neighbours have begun to send and to receive. These
numbers never decrease. So if one order of events completes the pass, every order completes the pass. The proof
therefore tries only one order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from outcrop.plan.actions import (
    ABOVE,
    BELOW,
    FACES,
    FAR,
    HIGH,
    LOW,
    SIDES,
    Action,
    Block,
    Check,
    Commit,
    Copy,
    Read,
    Update,
    Write,
    side_of,
)
from outcrop.plan.contents import BEFORE, CellLevels, IllegalPlan, PlaneSpan, Runs, require
from outcrop.plan.plan import Pass
from outcrop.plan.problem import Problem
from outcrop.plan.stairs import Stairs

if TYPE_CHECKING:
    from outcrop.plan.validate import Proof

SEND, RECEIVE = 0, len(SIDES)
"""The two directions of messages. The number of a direction at one side of a rank is the sum of SEND or RECEIVE and the
number of the side.
"""
Message: TypeAlias = tuple[str, int, int, int, int, int, int]
"""A message with rows of planes z0 <= z < z1. The tuple has the array, z0, z1, the first row, the end of the rows, the
number of columns and the level. If the two ranks are neighbours along y, rows are counted from the cut between them. If
the two ranks are neighbours along z, planes are counted from the cut. For faces, the level is 0."""
ExchangeStep: TypeAlias = tuple[int, bool, int, int]
"""A step of the exchanges of a rank in a pass. The tuple contains the number of its action, a flag, a direction, and a
number of planes n. Planes are counted from the start of the pass. If the flag is true, the rank begins the transfers of
all planes up to number n in this direction. If the flag is false, the rank waits until n planes have been transferred.
"""


class ExchangeProof:
    """Proves that the exchanges of rows in a pass are legal. `proof` is the proof of this pass."""

    def __init__(self, proof: Proof) -> None:
        self._proof, self._stairs = proof, Stairs(proof.problem, proof.levels)
        self._received: dict[int, Runs[CellLevels]] = {}

    def receive(self, action: Read, span: PlaneSpan) -> None:
        """Put the received rows `span` into the rings. Some of the received rows can have another level than the action
        gives. The proof marks a row with another level as empty, so that later actions cannot use the row. Raises
        IllegalPlan if the action is not possible."""
        self._require_possible(action)
        nothing = self._proof.no_cells
        is_along_z = side_of(action) in (BELOW, ABOVE)
        for ring, level, valid in self._exchanged(action, span):
            runs = self._proof.stored(level) if is_along_z else self._of_neighbours(level)
            for z0, z1, cells in runs.over(action.z0, action.z1):
                if valid != span:
                    self._proof.place(ring, z0, z1, [span], nothing)
                self._proof.place(ring, z0, z1, [valid], cells)

    def send(self, action: Write, span: PlaneSpan) -> None:
        """Raise IllegalPlan if the window does not hold the rows `span` at the level that the neighbour expects."""
        self._require_possible(action)
        for ring, level, valid in self._exchanged(action, span):
            for z, _, cells in self._proof.there(ring, action.z0, action.z1):
                words = "they were read" if level <= 0 else f"level {level} wrote them"
                require(cells.holds((valid,), level), f"rows of plane {z} in ring {ring} are not as {words}")

    def _require_possible(self, action: Read | Write) -> None:
        """Raise IllegalPlan if a rank cannot exchange the cells of an action with a neighbour."""
        proof, problem, array = self._proof, self._proof.problem, action.array
        area, ny, side = action.area, problem.shape[1], side_of(action)
        require(side in SIDES and (*problem.neighbours, *problem.neighbours_z)[side], "no neighbour at this side")
        if side in (BELOW, ABOVE):
            first, end, most = 0, problem.planes, problem.max_halo_z
            if isinstance(action, Read):
                first, end = (-most, 0) if side == BELOW else (end, end + most)
            require(area == problem.whole_plane and array in ("faces", "static_faces"), "a part of a plane")
            require(first <= action.z0 < action.z1 <= end, f"planes that are not in {first} .. {end - 1}")
            return
        require((area.x0, area.x1) == (0, problem.pitch_cells), "a part of a row")
        # Finished rows are sent to the rank that owns the rows. All other rows are sent by the rank that owns the rows.
        if isinstance(action, Write) != (array == "finished"):
            first, end = 0, ny
        else:
            first, end = (-problem.max_halo, 0) if side == LOW else (ny, ny + problem.max_halo)
        require(first <= area.y0 < area.y1 <= end, f"rows that are not in {first} .. {end - 1}")
        require(array != "stairs" or 0 <= action.level < proof.levels, "stairs of a level that the pass does not have")
        require(array != "finished" or action.level == proof.levels, "finished rows that are not at the last level")
        if array == "finished" or (array == "stairs" and action.level > 0):
            is_inside = problem.first_plane <= action.z0 and action.z1 <= problem.end_plane and problem.has_updates
            require(is_inside, "updated rows of planes that no level updates")

    def _exchanged(self, action: Read | Write, span: PlaneSpan) -> Iterator[tuple[int, int, PlaneSpan]]:
        """Yield three values for each array whose rows the action exchanges. The first value is the ring of the array.
        The second value is a level, and the third value is the part of the rows that must have this level."""
        proof, uses = self._proof, self._proof.uses
        if action.array == "static_faces":
            yield from ((field, 0, span) for field in proof.statics)
        elif action.array == "finished":
            yield from ((*uses.final(*entry), span) for entry in proof.state)
        elif action.array == "faces" or action.level == 0:
            yield from ((uses.ring(field, age), BEFORE if age else 0, span) for field, age in proof.state)
        else:
            cut = 0 if isinstance(action, Write) else proof.problem.shape[1]
            targets = uses.of(action.level)[0].targets
            for field, (_, ring) in zip(self._stairs.fields(action.level), targets, strict=True):
                end = proof.parts.rows[cut + self._stairs.end(field, action.level)]
                yield ring, action.level, (span[0], max(span[0], min(span[1], end)), *span[2:])

    def _of_neighbours(self, level: int) -> Runs[CellLevels]:
        """Return the contents that an array of the neighbours has at a level. Rows of a neighbour have the level RIM
        only if their whole plane belongs to the rim. A pass does not use other rim rows of a neighbour after level
        0."""
        if level not in self._received:
            problem, parts, runs = self._proof.problem, self._proof.parts, Runs(self._proof.wide_rim)
            low, high = (problem.radii[2] if side == "fixed" else 0 for side in problem.sides[2])
            nx, columns = problem.shape[2], parts.columns
            first = min(low, nx)
            inner = *parts.all_rows[:2], columns[first], columns[max(first, nx - high)]
            runs.put(problem.first_plane, problem.end_plane, self._proof.wide_rim.filled(inner, level))
            self._received[level] = runs
        return self._received[level]


@dataclass(frozen=True)
class _Job:
    """An action that sends or receives planes z0 <= z < z1. If a pass has several blocks, the numbers of planes
    continue from block to block. Before the action, the rank has begun the transfers of `before` planes in the same
    direction."""

    z0: int
    z1: int
    before: int


def messages(problem: Problem, one: Pass, direction: int) -> list[Message]:
    """Return the messages of one direction, in the order of the actions. Two neighbours can divide the same planes into
    messages in different ways. Therefore messages that have the same rows and adjacent planes are joined before they
    are compared."""
    kind, side = (Write if direction < RECEIVE else Read), direction % len(SIDES)
    cut, cut_z = problem.shape[1] if side == HIGH else 0, problem.planes if side == ABOVE else 0
    found: list[Message] = []
    for action in one.actions:
        if isinstance(action, kind) and action.array in FACES and side_of(action) == side:
            area, level = action.area, 0 if action.array in ("faces", "static_faces") else action.level
            rows = action.array, area.y0 - cut, area.y1 - cut, area.x1 - area.x0, level
            last = found[-1] if found else None
            begin = action.z0 - cut_z
            if last is not None and (last[0], *last[3:]) == rows and last[2] == begin:
                begin = found.pop()[1]
            found.append((action.array, begin, action.z1 - cut_z, *rows[1:]))
    return found


def steps_of(problem: Problem, one: Pass) -> list[ExchangeStep]:
    """Return the steps of a rank in a pass. Here a step is not a time step: in each step, the rank begins to transfer
    planes, or waits for planes."""
    steps: list[ExchangeStep] = []
    # the key of a list of jobs: the direction, and a flag that is true for static fields
    jobs: dict[tuple[int, bool], list[_Job]] = {}
    begun, waited = [0] * 2 * len(SIDES), [0] * 2 * len(SIDES)
    blocks: dict[Block, int] = {}
    # Reads fill the rings of second copies only if these rings hold previous values. Rings with previous values have
    # the same size as the rings of first copies.
    planes = one.window.ring_planes[0], one.window.ring_planes[2]
    block = Block(problem.whole_plane)
    firsts = 0, 0  # the numbers of plane 0 in the current block: for updated fields, for static fields

    def wait(index: int, directions: Sequence[int], is_static: bool, end: int) -> None:
        """Add a step that waits for all planes below `end` whose rows the rank has begun to send or receive."""
        first = firsts[is_static]
        for direction in directions:
            for job in reversed(jobs.get((direction, is_static), ())):
                if job.z0 < first + end:
                    count = job.before + min(job.z1, first + end) - job.z0
                    if count > waited[direction]:
                        waited[direction] = count
                        steps.append((index, False, direction, count))
                    break

    both, sends, along_z = range(2 * len(SIDES)), range(RECEIVE), (RECEIVE + BELOW, RECEIVE + ABOVE)
    for index, action in enumerate(one.actions):
        if isinstance(action, Block):
            block = action
            if not problem.is_part_z:
                first = blocks.setdefault(action, len(blocks)) * problem.planes
                firsts = first, first
            else:
                # If a block only sends, each plane gets the number of the previous plane in its slot. Because of the
                # number of the previous plane, an action that uses the slot for a later plane waits until the plane has
                # been sent.
                back = planes if action.only_sends else (0, 0)
                firsts = action.shift - back[0], action.shift - back[1]
        elif isinstance(action, Read | Write) and action.array in FACES:
            direction = (SEND if isinstance(action, Write) else RECEIVE) + side_of(action)
            is_static = _is_static(action)
            first = firsts[is_static]
            if isinstance(action, Write) and problem.is_part_z and side_of(action) in (LOW, HIGH):
                wait(index, along_z, is_static, action.z1)
            # Stairs and finished rows are received into slots that already hold their planes.
            if isinstance(action, Read) and action.array in ("faces", "static_faces"):
                wait(index, sends, is_static, action.z1 - planes[is_static])
            # Finished rows are received only after the same rows have been exchanged in the other direction.
            if action.array == "finished":
                wait(index, ((direction + RECEIVE) % len(both),), False, action.z1)
            job = _Job(first + action.z0, first + action.z1, begun[direction])
            jobs.setdefault((direction, is_static), []).append(job)
            begun[direction] += action.z1 - action.z0
            steps.append((index, True, direction, begun[direction]))
        elif isinstance(action, Read):
            back = (0, 0) if block.only_sends else planes
            wait(index, sends, _is_static(action), action.z1 - back[_is_static(action)])
        elif block.only_sends and isinstance(action, Check):
            pass
        elif (ends := _planes_used(problem, action)) is not None:
            wait(index, both, False, ends[0])
            wait(index, both, True, ends[1])
    return steps


def _is_static(action: Read | Write) -> bool:
    return action.array in ("statics", "static_faces")


def _planes_used(problem: Problem, action: Action) -> tuple[int, int] | None:
    """Return two numbers of planes. The action uses planes of updated fields below the first number, and planes of
    static fields below the second number. If the action does not wait for messages, return None."""
    match action:
        case Copy() | Write() | Check():
            return action.z1, 0
        case Update():
            return action.zeta1 + problem.skew_z, action.zeta1 + problem.statics_z
        case Commit():
            return FAR, FAR
    return None


def require_progress(steps: Sequence[Sequence[ExchangeStep]], neighbours: Sequence[Sequence[int | None]]) -> None:
    """Raise IllegalPlan if some ranks would wait for each other forever. `steps[i]` lists the exchange steps of rank i
    in one pass. `neighbours[i]` lists the neighbours of rank i, one for each side in SIDES."""
    begun = [[0] * 2 * len(SIDES) for _ in steps]
    place = [0] * len(steps)
    ready = list(range(len(steps)))
    while ready:
        rank = ready.pop()
        own, each = begun[rank], steps[rank]
        while place[rank] < len(each):
            _, is_begin, direction, count = each[place[rank]]
            other = neighbours[rank][direction % len(SIDES)]
            if other is None:
                raise IllegalPlan("no neighbour at this side")
            # A message that this rank sends at one side arrives at the opposite side of the neighbour. A message that
            # this rank receives at one side leaves from the opposite side of the neighbour.
            if begun[other][(direction ^ 1) ^ RECEIVE] < (own[direction] if is_begin else count):
                break
            if is_begin:
                own[direction] = count
                ready.append(other)
            place[rank] += 1
    for rank, each in enumerate(steps):
        if place[rank] < len(each):
            index, _, direction, count = each[place[rank]]
            other = neighbours[rank][direction % len(SIDES)]
            verb = "receives" if direction < RECEIVE else "sends"
            raise IllegalPlan(
                f"rank {rank} waits in action {index} without end, until rank {other} {verb} plane {count}"
            )
