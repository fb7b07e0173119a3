"""Check functions of static fields that a run computes once. The results must have the bits of the oracle, also after
changes of fields and parameters. Also check gradients, and the cases in which a run computes functions in each step."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

import outcrop as oc
from execution import BACKENDS, execute_fields, random_state
from field_runs import Offset, field_runs, mean
from oracle import advance_fields
from outcrop.cli.main import call
from outcrop.durable import sealed
from outcrop.errors import BudgetError, InputError, StorageError
from outcrop.language.boundary import Boundary, as_boundary, boundary_on_grid
from outcrop.language.program import Program, evaluate
from outcrop.language.static_terms import static_terms, term_text, with_computed
from outcrop.plan.plan import Plan
from outcrop.run import passes
from outcrop.run.disk.state import State
from outcrop.run.options import RunOptions
from outcrop.run.ranks.group import RankGroup
from outcrop.run.setup import plan_elsewhere
from outcrop.tiers.declarations import load_machine
from rank_processes import ranks
from strategies import examples

U, THETA, PHI, ENERGY = oc.Field("u"), oc.Field("theta"), oc.Field("phi"), oc.Parameter("energy", 2.0)
SHAPE = (40, 30)
RNG = np.random.default_rng(1)
START = {"u": RNG.random(SHAPE), "theta": RNG.random(SHAPE) + 0.5, "phi": RNG.random(SHAPE)}


def tilted() -> oc.Stencil:
    """Make a stencil that reads cos(theta) in two cells, a function of a parameter and two fields, and theta itself."""
    near = sympy.cos(THETA[0, 1]) * U[0, 1] + sympy.cos(THETA[0, 0]) * U[1, 0]
    rate = 1 / (1 + sympy.exp(-ENERGY / (THETA[0, 0] + PHI[0, 0])))
    return oc.Stencil("tilted", {U: U[0, 0] / 2 + near / 8 + rate * U[0, -1] / 8 - THETA[0, 0] / 99})


def right(
    steps: int, values: dict[str, float], boundary: str = "fixed", dtype: str = "float64", **start: Any
) -> np.ndarray[Any, Any]:
    """Return u after `steps` steps of the oracle."""
    given = {name: one.astype(dtype)[:, None] for name, one in {**START, **start}.items()}
    sides = boundary_on_grid(as_boundary(boundary), 2)
    found: np.ndarray[Any, Any] = advance_fields(tilted(), given, values, steps, sides)["u"][:, 0]
    return found


def make(where: Path, dtype: str = "float64", **options: Any) -> oc.Simulation:
    sim = oc.Simulation(tilted(), SHAPE, dtype, where, memory="4MiB", unstable=True, **options)
    sim.assign({name: one.astype(dtype) for name, one in START.items()})
    return sim


def of_statics(near: Sequence[Offset]) -> oc.Stencil:
    """Make a stencil of two stages. Functions of static fields occur in several cells, in both stages, and inside of
    other functions. Two functions read more than one cell or an updated field, so they are computed in each step."""
    u, v, a, b, k = oc.Field("u"), oc.Field("v"), oc.Field("a"), oc.Field("b"), oc.Parameter("k", 0.7)
    spread = mean(*(sympy.cos(a[offset]) * u[offset] for offset in near))
    inner = sympy.log(1 + sympy.sqrt(sympy.exp(k * b[near[0]]) + a[near[0]])) * u[0, 0, 0]
    other = sympy.sin(a[near[0]] + b[near[1]]) * sympy.tanh(u[near[1]])
    return oc.Stencil(
        "of_statics",
        [{u: (spread + inner + other) / 4}, {v: v[0, 0, 0] / 2 + sympy.cos(a[near[0]]) * u[near[1]] * b[0, 0, 0] / 4}],
    )


KNOWN: dict[oc.Stencil, tuple[oc.Stencil, dict[str, Program]]] = {}
"""The stencil and its static terms, for each stencil of a kernel that `kernel_of_statics` has made."""


def kernel_of_statics(near: Sequence[Offset]) -> oc.Stencil:
    stencil = of_statics(near)
    terms = static_terms(stencil, every=True)
    kernel = with_computed(stencil, terms)
    KNOWN[kernel] = stencil, terms
    return kernel


@settings(max_examples=examples(40), deadline=None)
@given(field_runs({"of_statics": kernel_of_statics}), st.integers(1, 3), st.sampled_from(BACKENDS))
def test_every_plan_gives_the_oracles_bits(run: tuple[oc.Stencil, Boundary, Plan], threads: int, backend: str) -> None:
    """Checks kernels that read computed fields, with any boundary, scheme and sizes. Also checks that the plan counts
    the transferred bytes exactly."""
    kernel, boundary, plan = run
    problem, (stencil, terms) = plan.problem, KNOWN[kernel]
    assert kernel.radii == stencil.radii and kernel.parameters == stencil.parameters and len(terms) >= 2
    state = random_state(stencil, problem.shape, problem.dtype, 1)
    scalars, kind, names = stencil.scalars({}), np.dtype(problem.dtype).type, [one.name for one in stencil.fields]
    computed = {
        name: evaluate(term, lambda load: state[names[load.field]], scalars, kind)[0] for name, term in terms.items()
    }
    with tempfile.TemporaryDirectory() as folder:
        result, moved = execute_fields(Path(folder), kernel, plan, state | computed, threads, backend)
    expected = advance_fields(stencil, state, {}, problem.steps, boundary)
    for name, array in result.items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)
    assert moved == (plan.predicted.bytes_read, plan.predicted.bytes_written)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("boundary", ["fixed", "y=mirror,x=periodic"])
def test_functions_have_the_same_bits_once_and_in_each_step(tmp_path: Path, dtype: str, boundary: str) -> None:
    """Checks the results, the arrays on disk, and the texts of the plan and the report. The default is `auto`."""
    for functions in ("auto", "steps"):
        sim = make(tmp_path / f"{functions}.oc", dtype, functions=functions, boundary=boundary)
        report = sim.run(5, progress="none")
        np.testing.assert_array_equal(sim["u"][...], right(5, {}, boundary, dtype))
        is_once = functions == "auto"
        texts = ["cos_theta = cos(theta)", "exp_theta_1 = exp(-(energy / (phi + theta)))"] * is_once
        assert list(report.computed_once) == texts
        assert ("computed once, before the first step: cos_theta = cos(theta); exp_theta_1" in str(report)) == is_once
        assert ("cos_theta = cos(theta); exp_theta_1" in str(sim.plan(3))) == is_once
        guess = report.predicted
        assert (report.bytes_read, report.bytes_written) == (guess.bytes_read, guess.bytes_written)
        # phi is on disk in both cases, but passes read it only if the function is computed in each step
        arrays = (tmp_path / f"{functions}.oc").glob("*/zarr.json")
        count = 2 + (4 if is_once else 2)
        assert len([one for one in arrays if not one.parent.is_symlink()]) == count
        assert f"({count} arrays)" in str(sim.plan(3))


def test_computed_fields_follow_static_fields_and_parameters(tmp_path: Path) -> None:
    """Checks that no step uses an old value of a function. A field gets new values, another process continues the run,
    and a parameter changes."""
    where, other = tmp_path / "run.oc", RNG.random(SHAPE) + 1
    sim = make(where)
    sim["theta"] = other
    sim.run(2, progress="none")
    np.testing.assert_array_equal(sim["u"][...], right(2, {}, theta=other))
    sim = oc.open(where)
    sim.run(1, progress="none")
    np.testing.assert_array_equal(sim["u"][...], right(3, {}, theta=other))
    sim = oc.open(where, params={"energy": 3.5})
    sim.run(2, progress="none")
    before = right(3, {}, theta=other)
    np.testing.assert_array_equal(sim["u"][...], right(2, {"energy": 3.5}, theta=other, u=before))
    oc.open(where).run(1, progress="none")
    np.testing.assert_array_equal(sim["u"][...], right(3, {"energy": 3.5}, theta=other, u=before))


def test_a_run_that_did_not_begin_leaves_no_stale_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks a static field that gets new values after computed fields were written, but before the first step."""

    def stop(*_: object) -> None:
        raise StorageError("no memory for the window")

    monkeypatch.setattr(passes, "_engine", stop)
    sim = make(tmp_path / "run.oc")
    with pytest.raises(InputError, match="holds no values of cos_theta yet; the run computes cos_theta before"):
        sim["cos_theta"][...]
    with pytest.raises(StorageError, match="no memory"):
        sim.run(2, progress="none")
    assert abs(sim["cos_theta"][...] - np.cos(START["theta"])).max() < 1e-15
    sim["theta"] = 1.0
    with pytest.raises(InputError, match="holds no values of cos_theta yet"):
        sim["cos_theta"][...]
    monkeypatch.undo()
    sim.run(2, progress="none")
    np.testing.assert_array_equal(sim["u"][...], right(2, {}, theta=np.ones(SHAPE)))
    assert abs(sim["cos_theta"][...] - np.cos(1.0)).max() < 1e-15


def test_an_interrupted_computation_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks a process that ends while it writes computed fields for a new value of a parameter. The run then continues
    with the old value of the parameter, and does not use the new fields."""
    where = tmp_path / "run.oc"
    make(where).run(2, progress="none")
    commit = State.change

    def stop(self: State, **values: object) -> None:
        if values.get("computed_from"):
            raise KeyboardInterrupt
        commit(self, **values)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(State, "change", stop)
        oc.open(where, params={"energy": 3.5}).run(1, progress="none")
    sim = oc.open(where, params={"energy": 2.0})
    sim.run(1, progress="none")
    np.testing.assert_array_equal(sim["u"][...], right(3, {}))


def test_gradients_are_those_of_the_whole_equation(tmp_path: Path) -> None:
    """Checks the gradients with respect to a static field, a parameter, and a field that only computed fields read. The
    adjoint gets its states from a history, or computes them again. Also checks a Taylor test, which copies the run."""
    found = []
    for functions in ("once", "steps"):
        for number, history in enumerate([oc.History("all"), oc.History(2, recompute=True)]):
            sim = make(tmp_path / f"{functions}{number}.oc", functions=functions)
            sim.run(4, progress="none", history=history)
            adjoint = sim.adjoint({"u": np.ones(SHAPE)}, ["theta", "phi", "energy", "u"])
            adjoint.run(progress="none")
            one = adjoint.gradients
            found.append([np.array(one[name][...]) for name in ("theta", "phi", "u")] + [one["energy"]])
    for one in found[1:]:
        for a, b in zip(found[0], one, strict=True):
            np.testing.assert_array_equal(a, b)
    assert all(np.abs(one).max() > 0 for one in found[0])
    start = make(tmp_path / "start.oc", functions="once")
    rates = oc.taylor_test(start, 3, oc.Misfit("u", None), ["theta", "phi"])
    assert all(abs(one[-1] - 2) < 0.1 for one in rates.values())


def of_rank(group: RankGroup | None, where: Path, functions: str) -> tuple[Any, Any, tuple[str, ...]]:
    """Run one rank, or the whole grid without a group. Return the cells of the rank, their values, and the report."""
    stencil = of_statics([(0, 1, 0), (1, -1, 1)])
    shape = (10, 30, 16)
    sim = oc.Simulation(stencil, shape, directory=where, comm=group, memory="8MiB", threads=1, functions=functions)
    for number, name in enumerate(["u", "v", "a", "b"]):
        sim[name] = np.random.default_rng(number).random(shape, np.float32)
    sim.run(2, progress="none")
    report = sim.run(3, progress="none")
    own = slice(*sim.planes), slice(*sim.rows)
    return own, sim["v"][own], report.computed_once


def test_ranks_compute_their_own_parts(tmp_path: Path) -> None:
    """Checks that two ranks have the bits of one process that computes the functions in each step."""
    _, expected, _ = of_rank(None, tmp_path / "alone.oc", "steps")
    found = ranks(2, of_rank, tmp_path / "parts", "once")
    assert all(not isinstance(one[0], str) for one in found), found
    for own, part, texts in found:
        np.testing.assert_array_equal(part, expected[own])
        assert "cos_a = cos(a)" in texts


def test_computed_fields_cannot_be_assigned(tmp_path: Path) -> None:
    sim = make(tmp_path / "run.oc")
    with pytest.raises(InputError, match=r"cos_theta is computed from theta; assign sim\['theta'\], or give f"):
        sim["cos_theta"] = 1.0
    with pytest.raises(InputError, match=r"cos_theta is computed from theta; assign sim\['theta'\]$"):
        oc.open(tmp_path / "run.oc")["cos_theta"] = 1.0  # `functions` cannot change any more
    with pytest.raises(InputError, match=r"no field 'v'; there are: u, theta, phi$"):
        sim.assign({"v": 1.0})
    with pytest.raises(InputError, match=r"holds no values yet; the run computes cos_theta before its next step$"):
        oc.Simulation(tilted(), SHAPE, directory=tmp_path / "other.oc", unstable=True)["cos_theta"]
    with pytest.raises(InputError, match="no field 'cos_theta'"):
        oc.Simulation(tilted(), SHAPE, directory=tmp_path / "other.oc", init={"cos_theta": 1.0})
    with pytest.raises(InputError, match=r"reads theta, which has no values; assign sim\['theta'\]"):
        other = oc.Simulation(tilted(), SHAPE, directory=tmp_path / "other.oc", unstable=True)
        other.assign({"u": 1.0, "phi": 1.0})
        other.run(1, progress="none")


def test_the_rule(tmp_path: Path) -> None:
    """Checks the terms that are computed once by default. Only terms that save enough operations are computed once."""
    here = THETA[0]

    def texts(expression: sympy.Expr, every: bool = False) -> list[str]:
        stencil = oc.Stencil("one", {U: U[0] * expression})
        return [term_text(stencil, one) for one in static_terms(stencil, every).values()]

    assert texts(sympy.exp(here)) == ["exp(theta)"]
    assert texts(here**1.7) == ["pow(theta, 1.7)"]
    assert texts(sympy.sign(here)) == [] and texts(sympy.sign(here), every=True) == ["sign(theta)"]
    for never in (1 / here, sympy.sqrt(here), here**3, sympy.exp(ENERGY), sympy.exp(oc.x + here), sympy.exp(U[1])):
        assert texts(never, every=True) == []
    assert texts(sympy.exp(here + THETA[1]), every=True) == []  # two cells
    assert texts(sympy.exp(here * oc.Signal("w")), every=True) == []
    assert texts(sympy.sqrt(1 + sympy.log(here)) * sympy.cos(here) ** 2) == ["cos(theta)", "sqrt(1 + log(theta))"]
    with pytest.raises(InputError, match="functions 'never' is unknown; there are auto, once, steps"):
        make(tmp_path / "run.oc", functions="never")
    with pytest.raises(InputError, match=r"functions .* is unknown; there are auto, once, steps"):
        make(tmp_path / "run.oc", functions=np.array([1, 2]))


@pytest.mark.parametrize("more", [{}, {"receivers": oc.Receivers("rec", "u", [[5, 5]] * 20000)}], ids=["", "receivers"])
def test_a_small_budget_computes_functions_in_each_step(tmp_path: Path, more: dict[str, Any]) -> None:
    """Checks budgets without space for computed fields, also if receivers need memory. `auto` must use no computed
    fields, and `once` must give an error. The same must hold for a plan for another machine."""
    def smallest(functions: str) -> int:
        with pytest.raises(BudgetError) as error:
            oc.Simulation(tilted(), (40, 9000), directory=tmp_path / "run.oc", memory="4KiB", functions=functions,
                          **more)  # fmt: skip
        number, unit = re.search(r"(?:at least|give) ([0-9.]+) (KiB|MiB)", str(error.value)).groups()  # type: ignore[union-attr]
        return int(float(number) * {"KiB": 1 << 10, "MiB": 1 << 20}[unit]) + 4096

    assert smallest("steps") < smallest("once")
    sim = oc.Simulation(
        tilted(), (40, 9000), directory=tmp_path / "run.oc", memory=smallest("steps"), unstable=True, init={
            "theta": 0.5, "phi": 0.5
        }, **more,
    )  # fmt: skip
    assert sim.run(2, progress="none").computed_once == ()
    with pytest.raises(BudgetError, match="the budget is sufficient for a new run with functions='steps'"):
        oc.Simulation(tilted(), (40, 9000), directory=tmp_path / "other.oc", memory=smallest("steps"),
                      functions="once", **more)  # fmt: skip
    options = RunOptions(tilted(), (40, 9000), memory=smallest("steps"), steps=2, unstable=True, **more)
    assert plan_elsewhere(load_machine("crest6"), options).problem.computed_once == ()


def test_a_replay_needs_no_space_for_computed_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks the number of bytes that a run reserves for a replay on the disk."""
    found = []

    def free(_: Path, needed: int) -> int:
        found.append(needed)
        return 1 << 30

    monkeypatch.setattr("outcrop.run.acquisition.history.free_bytes", free)
    for functions in ("once", "steps"):
        sim = make(tmp_path / f"{functions}.oc", functions=functions)
        sim.run(6, progress="none", history=oc.History(2, "20KiB", recompute=True))
    layout = sim.setup.description.layout
    assert found == [4 * layout.array_bytes] * 2  # two copies of u, theta and phi


def test_a_changed_manifest_is_refused(tmp_path: Path) -> None:
    """Checks manifests of untrusted users: terms that read updated fields, neighbours or fields that do not exist, and
    terms that the stencil does not contain."""
    where = tmp_path / "run.oc"
    make(where).run(1, progress="none")
    file = where / "manifest.json"
    content = json.loads(file.read_text())

    def term(*operations: list[Any]) -> dict[str, Any]:
        return {"operations": list(operations), "results": [len(operations) - 1]}

    theta = ["load", 2, 0, 0, 0, 0]
    for wrong in (
        term(["load", 0, 0, 0, 0, 0], ["cos", 0]), term(["load", 2, 0, 0, 1, 0], ["cos", 0]), term(theta, ["sin", 0]),
        term(["load", 9, 0, 0, 0, 0], ["cos", 0]), term(["index", 0], theta, ["mul", 0, 1]), {"operations": []},
    ):  # fmt: skip
        changed = {**content, "computed": {**content["computed"], "cos_theta": wrong}}
        file.write_bytes(sealed({one: changed[one] for one in changed if one != "crc32c"}))
        with pytest.raises(InputError, match="is damaged or not written by Outcrop"):
            oc.open(where)
    file.write_bytes(sealed({one: content[one] for one in content if one != "crc32c"}))
    oc.open(where).run(1, progress="none")


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that `outcrop info` names computed fields."""
    where = tmp_path / "run.oc"
    make(where).run(1, progress="none")
    assert call(["info", str(where)]) == 0
    shown = capsys.readouterr().out
    assert "cos_theta (computed once)" in shown and "theta (only read)" in shown
