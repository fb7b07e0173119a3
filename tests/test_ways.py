"""Check the choice between the ways in which an adjoint run can get the states of its forward run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outcrop as oc
from outcrop.cli.main import call
from outcrop.errors import BudgetError, InputError
from outcrop.language.stencil import Stencil
from outcrop.plan.gradient import WayChoice
from outcrop.plan.machine import StorageRates
from outcrop.run.options import RunOptions
from outcrop.run.setup import set_up_elsewhere
from outcrop.run.ways import choose_elsewhere, history_of, task_elsewhere
from outcrop.tiers.declarations import load_machine

CELLS, STEPS = 48, 12


def chosen(
    bytes_per_second: float, memory: str, wrt: Any = "v", limit: int | None = None, stencil: Any = "acoustic2",
    is_rough: bool = True,
) -> WayChoice:  # fmt: skip
    """Choose a way for waves of order 2 or another equation, on a declared machine. The disk of this machine has the
    given bandwidth."""
    device = StorageRates(*(bytes_per_second,) * 3, 0.001, "declared")
    machine = replace(load_machine("crest6"), device=device, updates_per_second={"float32": 4e8})
    shape = (CELLS,) * (stencil.ndim if isinstance(stencil, Stencil) else 3)
    options = RunOptions(stencil, shape, "float32", steps=STEPS, memory=memory, threads=2)
    one = set_up_elsewhere(machine, options)
    return choose_elsewhere(task_elsewhere(one, wrt), one, limit, is_rough)


def every_of(choice: WayChoice) -> int:
    assert choice.chosen is not None and choice.chosen.why == "chosen"
    return choice.chosen.way.every


def test_a_fast_disk_keeps_all_states_and_a_slow_disk_few() -> None:
    """Checks that fewer states are kept on a slower disk, and that the chosen way is the fastest way."""
    fast, medium, slow = (chosen(rate, "3MiB", is_rough=rate > 1e10) for rate in (1e11, 2e8, 1e7))
    assert every_of(fast) == 1
    assert 1 < every_of(medium) <= every_of(slow)
    for choice in (fast, medium, slow):
        assert choice.chosen is not None
        assert choice.chosen.seconds <= 1.01 * min(one.seconds for one in choice.ways)
        possible = [one for one in choice.ways if one.forward]
        assert all(one.why == "chosen" or one.why.startswith(("slower: the ", "as fast")) for one in possible)


def test_little_memory_keeps_all_states() -> None:
    """Checks that recomputation is refused if its window does not fit the memory. The message gives the memory that
    recomputation needs. This memory must be enough."""
    choice = chosen(1e7, "300KiB")
    assert every_of(choice) == 1
    refused = {one.way.every: one for one in choice.ways if one.way.every > 1}
    assert all("of memory, the budget is 300 KiB" in one.why for one in refused.values())
    assert [one.smallest_bytes for one in refused.values()] == sorted(one.smallest_bytes for one in refused.values())
    enough = chosen(1e7, str(refused[2].smallest_bytes))
    assert enough.ways[2].way.every == 2 and enough.ways[2].forward is not None and enough.ways[3].forward is None


def test_ways_with_too_many_slabs_are_not_chosen() -> None:
    """Checks that a way is left out if it has room in the memory only for very thin slabs. The reason must be given."""
    machine = replace(load_machine("crest6"), updates_per_second={"float32": 4e9})
    options = RunOptions("heat2", (1024, 1024, 1024), "float32", steps=32, memory="512MiB", threads=2)
    one = set_up_elsewhere(machine, options)
    choice = choose_elsewhere(task_elsewhere(one, "dt"), one, 51 << 30, is_rough=True)
    assert 1 < every_of(choice) < 24
    left_out = [one for one in choice.ways if one.why.startswith("little memory leaves only thin slabs")]
    assert [one.way.every for one in left_out] == [24] and left_out[0].forward is None


def test_adjoints_that_read_no_states_keep_no_history() -> None:
    choice = chosen(1e7, "3MiB", "u")
    assert every_of(choice) == 0 and len(choice.ways) == 1
    assert every_of(chosen(1e7, "3MiB", "u", stencil="gray_scott")) > 0, "an equation that is not linear"


def test_a_full_disk_keeps_fewer_states() -> None:
    """Checks the bytes of each history, and that fewer states are kept if the disk has too little room. A wave equation
    needs previous values. A state from which other states are computed also needs its previous values, so it has twice
    the bytes."""
    state = CELLS**3 * 4
    for one in chosen(1e11, "3MiB").ways[1:]:
        states = STEPS // one.way.every + 1
        each = one.way.history_bytes / states / (1 if one.way.every == 1 else 2)
        assert one.way.states == states and state <= each < 1.01 * state
    choice = chosen(1e11, "3MiB", limit=4 << 20)
    assert every_of(choice) > 1 and choice.chosen and choice.chosen.way.history_bytes <= 4 << 20
    assert choice.ways[1].why.endswith("on the disk, the limit is 4 MiB")
    choice = chosen(1e11, "300KiB", limit=4 << 20)
    assert choice.chosen is None
    assert choice.refusal.startswith('no history is possible: History("all"): needs 5.')
    assert "of memory, the budget is 300 KiB" in choice.refusal and "\n" not in choice.refusal


def test_a_very_small_disk_repeats_parts_of_the_forward_run(tmp_path: Path) -> None:
    """Checks ways on a disk that has room for too few states. These ways repeat parts of the forward run. The gradient
    must have the same bits as on a large disk.
    """
    choice = chosen(1e11, "3MiB", limit=2 << 20)
    limited = [one for one in choice.ways if one.way.repeated_steps]
    assert limited and all(one.way.every > 1 and one.way.states == 2 for one in limited)
    by_every = {one.way.every: one.way for one in limited}
    assert by_every[4].repeated_steps == 4, "3 segments and 2 states: from step 0 to the second segment"
    assert by_every[3].repeated_steps == (2 + 1) * 3
    slow, enough = chosen(1e7, "3MiB", limit=2 << 20), chosen(1e7, "3MiB")
    pairs = [(one, other) for one, other in zip(slow.ways, enough.ways, strict=True) if one.way.repeated_steps]
    possible = [pair for pair in pairs if all(one.forward and one.adjoint for one in pair)]
    assert possible
    for one, other in possible:
        assert one.forward and other.forward and one.adjoint and other.adjoint
        assert one.forward.seconds < other.forward.seconds, "the forward run writes two states only"
        assert one.adjoint.seconds > other.adjoint.seconds, "the adjoint run repeats steps"
    assert choice.chosen and choice.chosen.way.history_bytes <= 2 << 20
    right, shape = [], (24, 24, 24)
    for number, limit in enumerate((None, "300KiB")):
        folder = tmp_path / str(number)
        sim = waves(folder, "250KiB")  # the memory is enough for at most 3 steps of a pass
        sim.run(12, progress="none", history=oc.History("auto", limit, wrt="v"))
        run = sim.adjoint({"u": np.ones(shape, "float32")}, "v")
        report = run.run(progress="none")
        assert (report.steps_repeated > 0) == (limit is not None)
        right.append(run.gradients["v"][:])
    assert np.array_equal(*right) and np.abs(right[0]).max() > 0


def test_values_in_the_middle_of_a_step_are_computed_again() -> None:
    a, b = oc.Field("a"), oc.Field("b")
    c = oc.Parameter("c", 0.1)
    twice = Stencil("twice", [{a: a[0] + c * b[0] ** 2}, {b: b[0] + c * a[1] * a[0]}, {a: a[0] + c * b[0] ** 2 * a[0]}])
    choice = chosen(1e9, "1MiB", None, stencil=twice)
    assert "in the middle of a step" in choice.ways[1].why
    assert every_of(choice) in (2, 3, 4, 6, 8, 12)


def waves(folder: Path, memory: str = "64MiB") -> oc.Simulation:
    sim = oc.Simulation("acoustic2", (24, 24, 24), "float32", folder / "run.oc", memory=memory, threads=1)
    sim["u"], sim["v"] = "gaussian", np.full((24, 24, 24), 0.3, "float32")
    return sim


def test_a_run_keeps_the_chosen_history(tmp_path: Path) -> None:
    """Checks that a run stores its choice and uses it when it is continued. The gradient from the kept
    states equals the gradient from all states."""
    sim = waves(tmp_path)
    sim.run(6, progress="none", history="auto")
    kept = oc.open(sim.directory).setup.description.taps.history
    assert kept is not None
    again = oc.open(sim.directory)
    again.run(6, progress="none", history=oc.History("auto", "1MiB" if kept.every > 1 else "2MiB"))
    assert again.history.every == kept.every and again.history.steps[-1] == 12 // kept.every * kept.every
    run = again.adjoint({"u": 1.0}, "v")
    run.run(progress="none")
    other = waves(tmp_path / "other")
    other.run(12, progress="none", history=oc.History("all"))
    right = other.adjoint({"u": 1.0}, "v")
    right.run(progress="none")
    assert np.array_equal(run.gradients["v"][:], right.gradients["v"][:])


def test_auto_keeps_only_what_the_gradients_need(tmp_path: Path) -> None:
    sim = waves(tmp_path)
    sim.run(3, progress="none", history=oc.History("auto", wrt="u"))
    sim.run(3, progress="none", history=oc.History("auto", wrt="u"))
    message = "keeps no history: history='auto' chose no history, because no gradient with respect to u needs one;"
    with pytest.raises(InputError, match=message):
        _ = sim.history
    with pytest.raises(InputError, match=r"run\.oc keeps no history; start a new run with run\(steps, history='all'\)"):
        _ = oc.open(sim.directory).history
    with pytest.raises(InputError, match="a history begins with step 0, but this run is at step 6"):
        sim.run(3, progress="none", history="auto")


@pytest.mark.parametrize(
    ("history", "message"),
    [
        (oc.History("auto", wrt="speed"), "there is no gradient by 'speed'; there are"),
        (oc.History("auto", limit="10 apples"), "history: limit: size '10 apples' is not understood"),
        (oc.History("auto", recompute=True), "'auto' also chooses recompute; leave it out"),
        (oc.History("all", wrt="v"), "wrt is only for 'auto'; leave it out"),
        (oc.History("auto", "64KiB"), r"no history is possible: .*: needs .* on the disk, the limit is 64 KiB; Hist"),
    ],
)
def test_wrong_choices_are_refused_before_anything_is_created(
    history: oc.History, message: str, tmp_path: Path
) -> None:
    sim = oc.Simulation(
        "acoustic2", (24, 24, 24), "float32", tmp_path / "run.oc", memory="64MiB", threads=1, init={"v": "0.3"}
    )
    with pytest.raises(InputError, match=message):
        sim.run(6, progress="none", history=history)
    assert not (tmp_path / "run.oc").exists()


def test_the_command_prints_and_writes_the_ways(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that the table and the JSON file list the same ways. Wrong arguments give exit code 2."""
    plan = ["plan", "acoustic2", "-n", "48", "48", "48", "-t", "12", "--machine", "crest6", "--gradient"]
    file = tmp_path / "ways.json"
    assert call([*plan, "--memory", "3MiB", "--wrt", "v", "--json", str(file)]) == 0
    head, columns, *rows = capsys.readouterr().out.splitlines()
    assert head == "gradient of acoustic2 48 x 48 x 48 float32, 12 steps, with respect to v"
    assert columns.split()[:2] == ["way", "states"]
    ways = json.loads(file.read_text())["ways"]
    assert all(row.startswith(one["way"]) and row.endswith(one["why"]) for row, one in zip(rows, ways, strict=False))
    (best,) = (one for one in ways if one["chosen"])
    assert best["why"] == "chosen" and best["adjoint"]["memory_bytes"] <= 3 << 20
    assert call([*plan, "--memory", "96KiB", "--wrt", "v"]) == 2
    found = capsys.readouterr()
    assert "of memory, the budget is 96 KiB" in found.out
    assert found.err.startswith("outcrop: no history is possible: ") and found.err.count("\n") == 1
    assert call([*plan, "--wrt", "speed"]) == 2
    capsys.readouterr()
    for words in (["--explain"], ["--simulate"], ["--jitter", "5%"], ["--stall", "1"], ["--seed", "0"]):
        assert call([*plan, *words]) == 2
        assert capsys.readouterr().err == f"outcrop: --gradient plans two runs; leave out {words[0]}\n"
    assert call([*plan, "--draw", "a.png", "--check"]) == 2
    assert "leave out --draw and --check" in capsys.readouterr().err


def test_a_gradient_with_too_little_memory_names_what_it_needs(tmp_path: Path) -> None:
    sim = waves(tmp_path, "200KiB")
    with pytest.raises(BudgetError, match=r"no history is possible: .* of memory, the budget is"):
        sim.gradient(6, oc.Misfit("u", None), "v", memory="16KiB", progress="none")
    assert sim.step == 0


def test_a_gradient_that_needs_no_states_names_the_memory_that_it_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks the message for a linear equation, whose only way is the way without a history. The message gives the
    memory of the adjoint run, and this memory is enough."""
    plan = ["plan", "heat7", "-n", "32", "32", "32", "-t", "7", "--machine", "crest6", "--gradient", "--wrt", "u"]
    file = tmp_path / "ways.json"
    assert call([*plan, "--memory", "40KiB", "--json", str(file)]) == 2
    (only,) = json.loads(file.read_text())["ways"]
    assert (only["way"], only["chosen"]) == ("no history", False)
    needed = only["bytes_memory_needed"]
    assert capsys.readouterr().err == (
        f"outcrop: no gradient is possible: the adjoint run needs {needed // 1024} KiB of memory, the budget is "
        "40 KiB; give a larger --memory\n"
    )
    assert call([*plan, "--memory", str(needed)]) == 0
    with pytest.raises(BudgetError, match="no gradient is possible: the adjoint run needs"):
        history_of(chosen(1e7, "16KiB", "u", stencil="heat7"))
