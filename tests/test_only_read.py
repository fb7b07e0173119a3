"""Check where a run keeps its static fields: in memory or on disk. The chosen place must be the better place, and users
must see the reason."""

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from outcrop.cli.main import call
from outcrop.plan import placement
from outcrop.plan.given_sizes import FREE, GivenSizes
from outcrop.plan.machine import Machine, StorageRates
from outcrop.plan.plan import Scheme, Sizes
from outcrop.plan.planner import choose, largest_useful_bytes, schemes_for, smallest_budget_bytes
from outcrop.plan.problem import Problem
from outcrop.plan.schemes import SCHEMES
from outcrop.plan.tuner import TunedPlan, tune
from outcrop.run.definition import as_grid_boundary, as_problem, as_stencil
from outcrop.run.disk.layout import make_layout
from strategies import assumed_rate

SHAPE = (90, 40, 60)
SHARES = (0.3, 0.7, 0.95, 1.0)
"""Budgets as shares of the range from the smallest budget to the largest useful budget."""


def machine(bytes_per_second: float) -> Machine:
    """Return a machine whose disk reads and writes this number of bytes per second."""
    device = StorageRates(bytes_per_second, bytes_per_second, bytes_per_second, 0.001, "declared")
    return Machine(2, 1 << 30, 1 << 20, 1 << 24, 1e10, device)


SLOW, LATE, FAST = machine(2e7), machine(5e8), machine(5e9)
"""Transfers of the machine FAST never delay a run."""


def problem_of(stencil: str, steps: int = 100) -> Problem:
    """Return a problem on a small grid."""
    made = as_stencil(stencil)
    return as_problem(made, make_layout(SHAPE, "float32"), steps, as_grid_boundary("fixed", made), in_place=False)


def planned(problem: Problem, share: float, on: Machine, scheme: str = "auto") -> TunedPlan:
    """Return the plan for a budget. For `share` = 0, this is the minimum budget. For `share` = 1, it is the largest
    useful budget."""
    low, high = smallest_budget_bytes(problem, scheme), largest_useful_bytes(problem)
    return choose(problem, on, int(low + share * (high - low)), scheme, assumed_rate)


def only(scheme: Scheme, keeps: bool) -> Scheme:
    """Return a copy of the scheme that can keep static fields only in memory. If `keeps` is false, it can keep them
    only on disk."""

    def candidates(problem: Problem, budget_bytes: int, given: GivenSizes = FREE) -> Iterable[Sizes]:
        return (one for one in scheme.candidates(problem, budget_bytes, given) if one.keeps_statics == keeps)

    return replace(scheme, candidates=candidates)


def why(problem: Problem, choice: TunedPlan, on: Machine) -> str:
    """Return the reason that users see for the place of the static fields. All static fields must have the same reason.
    """
    may_stay = any(SCHEMES[one.scheme].keeps_statics for one in choice.considered)
    rows = placement.explained(choice.plan, choice.considered, on, may_stay)
    assert len(rows) == problem.statics
    assert {one.place for one in rows} == {placement.place_of(choice.plan.sizes)}
    (text,) = {one.why for one in rows}
    return text


@pytest.mark.parametrize("on", [SLOW, LATE, FAST], ids=["slow", "late", "fast"])
@pytest.mark.parametrize("stencil", ["acoustic4_sponge", "maxwell"])
def test_no_other_place_is_better(stencil: str, on: Machine) -> None:
    """Checks the chosen place of the static fields. The run must not be faster with the other place, except within the
    tolerance. If memory has room for the fields, the tuner must predict the costs of both places."""
    problem = problem_of(stencil)
    places = set()
    for share in SHARES[:-1]:
        choice = planned(problem, share, on)
        places.add(choice.plan.sizes.keeps_statics)
        low, high = smallest_budget_bytes(problem), largest_useful_bytes(problem)
        budget = int(low + share * (high - low))
        for keeps in placement.possible(problem, budget):
            found = tune(problem, [only(one, keeps) for one in schemes_for(problem, "auto")], on, budget, assumed_rate)
            if found is not None:
                assert choice.plan.predicted.seconds <= placement.EQUALLY_FAST * found.plan.predicted.seconds * 1.0001
                assert any(one.sizes.keeps_statics == keeps for one in choice.considered)
    hides_all = on is FAST and stencil == "acoustic4_sponge"  # for every budget, the fields stay on disk
    assert places == ({False} if hides_all else {False, True}), "these budgets show both"


def test_what_costs_nothing_is_the_slowest_place() -> None:
    """Checks that static fields stay on disk if their transfers do not delay the run. If their transfers delay the run,
    they stay on disk only in two cases: memory has no room, or the run takes longer with the fields in memory.
    """
    problem = problem_of("acoustic4_sponge")
    for on in (SLOW, LATE):
        small, middle, large, whole = (why(problem, planned(problem, share, on), on) for share in SHARES)
        assert small == "the slowest: memory has no room"
        assert re.fullmatch(r"the slowest: memory makes the run \d\.\d+ s longer", middle), "there were fewer levels"
        assert re.fullmatch(r"the slowest that delays nothing: disk makes the run \d\.\d+ s longer", large)
        assert whole == "all of the grid is in memory"
    assert why(problem, planned(problem, 0.95, FAST), FAST) == "the slowest, hidden behind the computing"
    once = problem_of("acoustic4_sponge", steps=20)  # a run of one pass reads every field only once
    assert why(once, planned(once, 0.95, SLOW), SLOW) == "the slowest, hidden behind the computing"


def test_what_is_told_is_what_the_plan_does() -> None:
    """Checks the reported figures of static fields. The bytes are the memory that the fields take. The seconds are the
    time to read the fields once, or once in each pass.
    """
    problem = problem_of("acoustic4_sponge")
    for share in SHARES:
        choice = planned(problem, share, SLOW)
        rows, plan = placement.explained(choice.plan, choice.considered, SLOW, True), choice.plan
        assert [one.name for one in rows] == ["damp", "v"] and {one.nbytes for one in rows} == {problem.grid_bytes}
        once = problem.grid_bytes / SLOW.device.read_bytes_per_second
        if plan.sizes.keeps_statics:
            assert [one.takes for one in rows] == [((placement.MEMORY, problem.grid_bytes),)] * 2
            assert [one.transfer_seconds for one in rows] == [pytest.approx(once)] * 2
        else:
            taken = plan.window.ring_planes[2] * plan.window.slot_bytes
            assert [one.takes for one in rows] == [((placement.MEMORY, taken),)] * 2
            assert all(one.transfer_seconds >= len(plan.passes) * once * 0.999 for one in rows)


def test_a_scheme_that_keeps_nothing_says_so() -> None:
    """Checks the reason if the scheme cannot keep static fields in memory. The reason names the scheme and does not say
    that memory is too small."""
    problem = problem_of("acoustic4")
    for share in SHARES[:2]:
        choice = planned(problem, share, FAST, "overlapped")
        assert why(problem, choice, FAST) == "scheme overlapped keeps nothing in memory"


def test_there_is_nothing_to_place_where_all_is_updated() -> None:
    """Checks a stencil without read-only fields. Such a stencil has no fields to place, so only one choice is possible,
    and the plan gives no reasons."""
    problem = problem_of("heat7")
    assert placement.possible(problem, 1 << 40) == (False,)
    for share in SHARES[:-1]:
        choice = planned(problem, share, SLOW)
        assert not any(one.sizes.keeps_statics for one in choice.considered)
        assert placement.explained(choice.plan, choice.considered, SLOW, True) == []


def test_memory_too_small_for_them_is_not_tried() -> None:
    """Checks that the planner considers memory for static fields only if all static fields fit into memory."""
    problem = problem_of("acoustic4_sponge")
    needed = 2 * problem.grid_bytes
    assert placement.possible(problem, needed - 1) == (False,)
    assert placement.possible(problem, needed) == (False, True)


def test_users_see_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that `--explain` and the JSON show the place of static fields, in the same words as `oc.place`."""
    words = ["plan", "acoustic4_sponge", "-n", "60", "40", "90", "-t", "40", "--memory", "1MiB", "--machine", "crest10"]
    assert call([*words, "--explain", "--json", str(tmp_path / "plan.json")]) == 0
    lines = capsys.readouterr().out.splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("only read"))
    assert any("only read in" in line for line in lines[:head]), "candidates say it, too"
    assert lines[head].split() == ["only", "read", "bytes", "tier", "takes", "transfers", "why"]
    assert [line.split()[0] for line in lines[head + 1 :]] == ["damp", "v"]
    rows = json.loads((tmp_path / "plan.json").read_text())["only_read"]
    assert [(row["name"], row["place"]) for row in rows] == [("damp", "disk"), ("v", "disk")]
    assert all(line.endswith(row["why"]) for line, row in zip(lines[head + 1 :], rows, strict=True))
    assert call(["plan", "heat7", *words[2:], "--explain"]) == 0
    assert "only read" not in capsys.readouterr().out
