"""Check histories of whole states, which also have previous values. With every plan, the histories have the same bits
as the oracle."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outcrop as oc
from adjoint_cases import STENCILS
from oracle import advance_fields
from outcrop.axes import grid_shape
from outcrop.cli.main import call
from outcrop.errors import CorruptionError, InputError
from outcrop.language.boundary import as_boundary, boundary_on_grid
from outcrop.language.library import find_stencil
from outcrop.language.stencil import PREVIOUS, Stencil
from outcrop.run.disk.manifest import parse_manifest, sealed

STEPS = 9
RUNS = [
    ("acoustic2", "fixed"), ("acoustic8", "fixed"), ("acoustic8", "z=periodic,y=mirror,x=periodic"),
    ("acoustic8", "z=mirror:fixed,y=periodic"), ("maxwell", "fixed"), ("elastic2", "periodic"), ("heat7", "fixed"),
    ("older", "fixed"), ("twice", "mirror"), ("acoustic4_2d_sponge", "fixed"), ("coupled", "fixed"),
]  # fmt: skip
PLANS: list[dict[str, Any]] = [
    {},
    {"sizes": {"bt": 3}, "threads": 2, "in_place": True},
    {"sizes": {"bt": 2, "by": 12}, "threads": 2},
    {"scheme": "overlapped", "sizes": {"bt": 2}},
    {"scheme": "naive", "io": "mmap"},
]
"""Options that lead to different plans."""

State = dict[str, Any]


def coupled() -> Stencil:
    """Return a stencil of two stages. The first stage updates the wave u, and reads w at neighbouring cells. The second
    stage updates w."""
    u, w = oc.Field("u"), oc.Field("w")
    near = [(1, 0, 0), (0, -1, 0), (0, 0, 1)]
    return Stencil(
        "coupled",
        [
            {u: u[0, 0, 0] - u.previous[0, 0, 0] / 2 + sum(w[one] for one in near) / 8},
            {w: w[0, 0, 0] / 2 + sum(u[one] for one in near) / 8},
        ],
    )


def find(name: str) -> Stencil:
    return coupled() if name == "coupled" else STENCILS.get(name) or find_stencil(name)


CASES = [
    (name, boundary, plan) for name, boundary in RUNS for plan in PLANS
    if "by" not in plan.get("sizes", {}) or (boundary == "fixed" and find(name).ndim == 3)
]  # fmt: skip
"""Stencils, boundaries and plans. Only grids of three axes have blocks of rows."""


def start(stencil: Stencil, shape: tuple[int, ...], seed: int = 1) -> State:
    """Return random values for each array of the state and each static field."""
    rng, state = np.random.default_rng(seed), State()
    for field, storage in zip(stencil.fields, stencil.storage, strict=True):
        state[field.name] = (rng.random(shape) / 4 + 0.1).astype("float32")
        if storage.history == 2:
            state[field.name + PREVIOUS] = (rng.random(shape) / 4 + 0.1).astype("float32")
    return state


def states(stencil: Stencil, first: State, text: str, steps: int) -> list[State]:
    """Return the states that the oracle computes, one for each step. At the start, the newest values replace the rim of
    the previous values in z and y, as in a run."""
    boundary = boundary_on_grid(as_boundary(text), stencil.ndim)
    shape = grid_shape(next(iter(first.values())).shape)
    found = [{name: values.reshape(shape) for name, values in first.items()}]
    for step in range(steps):
        found.append(advance_fields(stencil, found[-1], {}, 1, boundary, {}, step))
    (z_low, z_high), (y_low, y_high), _ = boundary.rims(stencil.radii)
    for name in [name for name in first if name.endswith(PREVIOUS)]:
        inner = np.s_[z_low : shape[0] - z_high, y_low : shape[1] - y_high]
        held, newest = found[0][name], found[0][name.removesuffix(PREVIOUS)].copy()
        newest[inner] = held[inner]
        found[0][name] = newest
    return found


def make(path: Path, stencil: Stencil, first: State, **options: Any) -> oc.Simulation:
    shape = next(iter(first.values())).shape
    sim = oc.Simulation(stencil, shape, "float32", path, unstable=True, **{"memory": "64MiB", **options})
    sim.assign(first)
    return sim


@pytest.mark.parametrize(("name", "boundary", "plan"), CASES)
def test_whole_states_have_the_bits_of_the_oracle(
    name: str, boundary: str, plan: dict[str, Any], tmp_path: Path
) -> None:
    """Checks stencils of one and several stages. The newest and the previous values of each state must have the bits of
    the oracle. Later calls of `run` continue the history."""
    stencil = find(name)
    first = start(stencil, {3: (23, 29, 21), 2: (33, 31), 1: (57,)}[stencil.ndim])
    sim = make(tmp_path / "run.oc", stencil, first, boundary=boundary, **plan)
    for steps in (4, STEPS - 4):
        sim.run(steps, progress="none", history=oc.History(2, recompute=True))
    state = [entry.name for entry in sim.setup.description.state]
    history, expected = sim.history, states(stencil, first, boundary, STEPS)
    assert list(history) == state and history.steps.tolist() == [0, 2, 4, 6, 8]
    assert (PREVIOUS in "".join(state)) == any(storage.history == 2 for storage in stencil.storage)
    for array in state:
        for kept, step in zip(history[array], history.steps, strict=True):
            np.testing.assert_array_equal(kept, expected[step][array].reshape(kept.shape), f"{array}, step {step}")
    for step, values in history.reversed():
        assert all(np.array_equal(values[array], history[array][step // 2]) for array in state)


def test_devitos_previous_values_are_kept(tmp_path: Path) -> None:
    """Compares a history of whole states with a history of all states. The arrays include the halo of Devito's
    fields."""
    devito = pytest.importorskip("devito")
    grid = devito.Grid(shape=(14, 15), extent=(130.0, 140.0), dtype=np.float64)
    u = devito.TimeFunction(name="u", grid=grid, time_order=2, space_order=4)
    m = devito.Function(name="m", grid=grid)
    wave = devito.Eq(u.forward, devito.solve(m * u.dt2 - u.laplace, u.forward))
    u.data[0], u.data[1] = np.random.default_rng(0).standard_normal((2, 14, 15))
    m.data[:] = 0.25
    kept = []
    for name, history in (("all.oc", oc.History("all")), ("run.oc", oc.History(3, recompute=True))):
        sim = oc.Simulation([wave], dt=1.5, directory=tmp_path / name, memory="64MiB")
        sim["u"], sim["u.previous"] = u.data[1], u.data[0]
        sim.run(STEPS, progress="none", history=history)
        kept.append(sim.history)
    every, whole = kept
    pads = [(size - n) // 2 for size, n in zip(whole["u"].shape[1:], grid.shape, strict=True)]
    assert np.array_equal(whole["u.previous"][0], np.pad(u.data[0], [(pad, pad) for pad in pads]))
    for number in range(1, 4):
        assert np.array_equal(whole["u.previous"][number], every["u"][3 * number - 1])
        assert np.array_equal(whole["u"][number], every["u"][3 * number])


def test_readers_and_commands_know_previous_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks xarray and `outcrop info`. `outcrop verify` must find a damaged file of previous values. A freed history
    leaves no file."""
    stencil = find("acoustic2")
    first = start(stencil, (12, 14, 16))
    path = tmp_path / "run.oc"
    sim = make(path, stencil, first)
    before = sorted(path.rglob("*"))
    sim.run(6, progress="none", history=oc.History(3, recompute=True))
    if all(pytest.importorskip(one) for one in ("zarr", "xarray")):
        import xarray

        shown = xarray.open_zarr(path / "snapshots.zarr", group="history")
        assert shown["u.previous"].dims == ("time", "z", "y", "x")
        assert shown["step"].values.tolist() == [0, 3, 6]
        assert np.array_equal(shown["u.previous"], sim.history["u.previous"][:])
    assert call(["info", str(path)]) == 0
    assert "the history of u, u.previous, 16 x 14 x 12 cells every 3 steps, 3 so far" in capsys.readouterr().out
    assert call(["verify", str(path)]) == 0
    assert (path / ".taps" / "snapshots-history-u.previous").stat().st_size == 12
    file = path / "snapshots.zarr" / "history" / "u.previous" / "c" / "1" / "0" / "0" / "0"
    data = file.read_bytes()
    file.write_bytes(data[:99] + bytes([data[99] ^ 1]) + data[100:])
    assert call(["verify", str(path)]) == 2
    reading = sim.history.reversed()
    next(reading)
    with pytest.raises(CorruptionError, match=r"u\.previous/c/1/0/0/0 is damaged: checksum mismatch"):
        next(reading)
    sim.history.free()
    assert [one for one in sorted(path.rglob("*")) if one not in before and ".oc/.u" not in str(one)] == []


BAD: list[tuple[Any, str]] = [
    (oc.History("all", recompute=True), "recompute=True, but with 'all' every state is kept"),
    (oc.History(1, recompute=True), "recompute=True, but with 1 every state is kept"),
    (oc.History(2, recompute="yes"), "history: recompute 'yes' must be True or False"),  # type: ignore[arg-type]
    (oc.History(2, limit="32KiB", recompute=True), r"4 states of 21\.38 KiB need .*; limit='43KiB' is enough"),
]


@pytest.mark.parametrize(("history", "text"), BAD)
def test_wrong_histories_are_refused(history: Any, text: str, tmp_path: Path) -> None:
    """Checks that a wrong history is refused in one line and changes no file. The size of a state includes its
    previous values."""
    stencil = find("acoustic2")
    sim = oc.Simulation(stencil, (12, 14, 16), "float32", tmp_path / "run.oc", memory="8MiB", init={"v": 0.2})
    with pytest.raises(InputError, match=text) as raised:
        sim.run(6, progress="none", history=history)
    assert "\n" not in str(raised.value) and not (tmp_path / "run.oc").exists()


def test_a_history_keeps_its_kind(tmp_path: Path) -> None:
    """Checks that the kind of a history cannot change. Either all states of a history have previous values, or no state
    has them."""
    stencil = find("acoustic2")
    sim = make(tmp_path / "run.oc", stencil, start(stencil, (12, 14, 16)))
    sim.run(2, progress="none", history=oc.History(2, recompute=True))
    with pytest.raises(InputError, match="keeps a history with every=2, recompute=True; go on without"):
        sim.run(2, progress="none", history=oc.History(2))


def test_manifests_that_contradict_a_whole_state_are_refused(tmp_path: Path) -> None:
    """Checks that a manifest whose history has wrong arrays is refused. Manifests of earlier versions, without
    `recompute`, can be read."""
    stencil, path = find("acoustic2"), tmp_path / "run.oc"
    sim = make(path, stencil, start(stencil, (12, 14, 16)))
    sim.run(2, progress="none", history=oc.History(2, recompute=True))
    manifest = parse_manifest((path / "manifest.json").read_bytes(), path)
    (entry,) = manifest.taps.snapshots
    for changes in (
        {"recompute": False}, {"fields": ("u",)}, {"fields": ("u.previous", "u")}, {"name": "side"},
        {"fields": ("u", "u.previous", "v.previous")},
    ):  # fmt: skip
        one = replace(entry, **changes)
        sums = {one.record(field): 0 for field in one.fields}
        wrong = replace(manifest, taps=replace(manifest.taps, snapshots=(one,)), sums=sums)
        with pytest.raises(InputError, match="contradicts the rest"):
            parse_manifest(wrong.to_bytes(), path)
    plain = replace(entry, fields=("u",), recompute=False)
    older = replace(manifest, taps=replace(manifest.taps, snapshots=(plain,)), sums={plain.record("u"): 0})
    content = json.loads(older.to_bytes())
    del content["crc32c"], content["taps"]["snapshots"][0]["recompute"]
    assert parse_manifest(sealed(content), path) == older
