"""Check gradients with respect to inputs on which the scale of a source depends. The reference is the complex-step
method in NumPy, which has no cancellation. Also check scales that are texts."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy

import outcrop as oc
from backwards import PLAIN, State, Steps, inner, put
from outcrop.axes import grid_shape
from outcrop.errors import InputError
from outcrop.language.boundary import as_boundary, boundary_on_grid
from outcrop.language.library import find_stencil
from outcrop.language.program import Load, Program
from outcrop.language.sparse import Cells, Injection, SourceFactor
from outcrop.language.stencil import PREVIOUS, Stencil
from outcrop.run.forward import Forward
from outcrop.run.gradients import scaled_sources
from outcrop.run.options_file import read_options

STEPS, TINY = 6, 1e-30
V, DT, H = oc.Field("v"), oc.Parameter("dt", 0.1), oc.Parameter("h", 1.0)


def factor_of(scale: SourceFactor, cells: Cells, arrays: State, parameters: dict[str, Any]) -> Any:
    """Return the factor of a source at the given cells, for real or complex arrays and parameters."""
    found: list[Any] = []
    for operation in scale.program.operations:
        match operation:
            case Load(field, offset):
                z, y, x = np.moveaxis(cells + np.array(offset), -1, 0)
                found.append(arrays[scale.fields[field]][z, y, x])
            case _ if hasattr(operation, "index"):
                found.append(parameters[scale.names[operation.index]])
            case _ if hasattr(operation, "operands"):
                found.append(PLAIN[operation.operator](*(found[i] for i in operation.operands)))
            case _:
                found.append(operation.value)
    return found[scale.program.results[0]]


def final(stencil: Stencil, text: str, state: State, parameters: dict[str, Any], sources: list[Injection]) -> State:
    """Return the state after all steps of a run with sources. Numbers may be complex."""
    now, steps = dict(state), Steps(stencil, boundary_on_grid(as_boundary(text), stencil.ndim), PLAIN, put)
    last = {stencil.fields[one].name: number for number, stage in enumerate(stencil.stages) for one in stage.targets}
    scales = [factor_of(one.scale, one.cells, now, parameters) if one.scale else 1.0 for one in sources]
    for step in range(STEPS):

        def inject(number: int, fields: State, step: int = step) -> State:
            changed: State = {}
            for one, scale in zip(sources, scales, strict=True):
                if last[one.field] == number and step < one.steps:
                    added = scale * one.weights * one.values[step][:, None]
                    array = changed.get(one.field, fields[one.field]).astype(complex)
                    np.add.at(array, tuple(one.cells.reshape(-1, 3).T), added.reshape(-1))
                    changed[one.field] = array
            return changed

        now |= steps.advance(now, [parameters[one.name] for one in stencil.parameters], after=inject)
    return now


def scaled_run(name: str, text: str, folder: Path, dt: float | None = None) -> tuple[oc.Simulation, State]:
    """Return a run at step 0 and its arrays. Two sources share cells, and one of them ends before the last step. The
    scales of the sources depend on static fields and on parameters."""
    stencil, rng = find_stencil(name), np.random.default_rng(4)
    shape = (9, 8, 10)[-stencil.ndim :]
    whole = grid_shape(shape)
    pairs = list(zip(stencil.fields, stencil.storage, strict=True))
    updated = [field.name for field, storage in pairs if not storage.is_static]
    here, static = (0,) * stencil.ndim, [field for field, storage in pairs if storage.is_static]
    parameter = oc.Parameter(stencil.parameters[-1].name, stencil.parameters[-1].default)
    scale = parameter**2 / (static[0][here] if static else 1) + parameter
    other = (static[-1][here] ** 3 if static else 1) * parameter
    middle = np.array(shape) / 2
    sim = oc.Simulation(
        stencil, shape, "float64", folder / "run.oc", memory="64MiB", boundary=text, unstable=True, dt=dt,
        sources=[
            oc.Source(updated[0], [middle - 0.3, middle + 0.2], rng.standard_normal((STEPS, 2)), scale),
            oc.Source(updated[-1], [middle], rng.standard_normal(STEPS - 2), other),
            oc.Source(updated[-1], [middle], rng.standard_normal(STEPS), 0.5),
        ],
    )  # fmt: skip
    arrays: State = {}
    for field, storage in pairs:
        arrays[field.name] = rng.random(whole) / 2 + 0.5
        if storage.history == 2:
            arrays[field.name + PREVIOUS] = arrays[field.name].copy()
    sim.assign({one: values.reshape(shape) for one, values in arrays.items()})
    return sim, arrays


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("acoustic2", "fixed"), ("acoustic4", "mirror"), ("heat7", "periodic"), ("maxwell", "fixed"),
        ("elastic2", "periodic"), ("acoustic4_1d", "fixed"), ("elastic4_2d", "fixed"),
    ],
)  # fmt: skip
def test_gradients_include_the_scales_of_sources(name: str, text: str, tmp_path: Path) -> None:
    """Checks that gradients with respect to static fields and parameters equal the reference, in random directions and
    in the cells of a source."""
    sim, arrays = scaled_run(name, text, tmp_path)
    stencil, rng = sim.stencil, np.random.default_rng(5)
    sim.run(STEPS, progress="none", history=oc.History("all"))
    sources = list(Forward.of(sim).definitions.injections)
    shape = next(iter(arrays.values())).shape
    boundary = boundary_on_grid(as_boundary(text), stencil.ndim)
    pairs = list(zip(stencil.fields, stencil.storage, strict=True))
    static = [field.name for field, storage in pairs if storage.is_static]
    seeds: State = {}
    for one in (field.name for field, storage in pairs if not storage.is_static):
        cells = inner(stencil, boundary, shape)
        seeds[one] = np.zeros(shape)
        seeds[one][cells] = rng.standard_normal(seeds[one][cells].shape)
    parameters = {one.name: one.default for one in stencil.parameters}
    adjoint = sim.adjoint({one: values.reshape(sim.shape) for one, values in seeds.items()}, [*static, *parameters])
    adjoint.run(progress="none")

    def slope(changes: State) -> float:
        """Return a directional derivative: the derivative of sum(seeds * state) in the direction `changes`."""
        moved = {key: values + 1j * TINY * changes.get(key, 0.0) for key, values in arrays.items()}
        scalars = {key: value + 1j * TINY * changes.get(key, 0.0) for key, value in parameters.items()}
        found = final(stencil, text, moved, scalars, sources)
        return float(sum((found[one] * values).sum() for one, values in seeds.items()).imag / TINY)

    assert scaled_sources(stencil, sim.setup.description.taps.sources, [*static, *parameters]) == (0, 1)
    for key in parameters:
        assert adjoint.gradients[key] == pytest.approx(slope({key: 1.0}), rel=1e-12)
    for key in static:
        gradient = adjoint.gradients[key][...].reshape(shape)
        cell = np.zeros(shape)
        cell[tuple(sources[0].cells[1, 0])] = 1.0
        inside = np.zeros(shape)
        inside[inner(stencil, boundary, shape)] = 1.0
        for direction in (cell, inside * rng.standard_normal(shape)):
            parts = gradient * direction
            assert abs(parts.sum() - slope({key: direction})) <= 1e-12 * np.abs(parts).sum(), key


def test_the_view_of_a_gradient_is_indexed_like_an_array(tmp_path: Path) -> None:
    """Checks all kinds of indices of a gradient. The gradient must not depend on the plan and on interruptions."""
    sim, _ = scaled_run("acoustic2", "fixed", tmp_path)
    sim.run(STEPS, progress="none", history=oc.History("all"))
    adjoint = sim.adjoint({"u": np.ones(sim.shape)}, "v")
    adjoint.run(progress="none")
    whole, view = adjoint.gradients["v"][...], adjoint.gradients["v"]
    assert view.shape == sim.shape and view.dtype == np.float64
    for index in (3, slice(7, 1, -2), (slice(None), 4), (slice(2, 6), slice(1, 5), 4), (4, 4), -5):
        assert np.array_equal(view[index], whole[index])
    place = tmp_path / "parts.oc"
    sim.adjoint({"u": np.ones(sim.shape)}, "v", place)
    for steps in (1, STEPS - 1):
        oc.open(place, sizes={"bt": 1}, threads=2).run(steps, progress="none")
    parts = sim.adjoint({"u": np.ones(sim.shape)}, "v", place, resume=True)
    assert np.array_equal(parts.gradients["v"][...], whole)


def test_copies_of_a_run_have_the_scales_of_their_parameters(tmp_path: Path) -> None:
    """Checks the Taylor test of runs in which the scales of sources depend on fields and parameters. The scales must be
    computed from the changed fields and parameters."""
    sim, _ = scaled_run("acoustic2", "fixed", tmp_path, dt=0.5)
    rates = oc.taylor_test(sim, STEPS, oc.Misfit("u", None), ["v", "dt", "source"], change=0.002)
    assert all(abs(one - 2).max() < 0.05 for one in rates.values()), rates


def test_the_part_of_the_scale_does_not_depend_on_the_history(tmp_path: Path) -> None:
    """Checks the two parts of a gradient from every k-th state. The part that comes from the updates is a sum over
    every k-th step. The part that comes from the scale is a sum over all steps. The adjoint run stores only the first
    part."""
    parts, gradients = [], []
    for number, history in enumerate([oc.History("all"), oc.History(2), oc.History(2, recompute=True)]):
        sim, _ = scaled_run("acoustic2", "fixed", tmp_path / str(number))
        sim.run(STEPS, progress="none", history=history)
        adjoint = sim.adjoint({"u": np.ones(sim.shape)}, "v")
        adjoint.run(progress="none")
        gradients.append(adjoint.gradients["v"][...])
        stored = next(one.name for one in adjoint.simulation.stencil.fields if one.name.startswith("v_grad"))
        weight = 2 if history == oc.History(2) else 1
        parts.append(gradients[-1] - weight * adjoint.simulation[stored][...])
    assert parts[0].any() and np.allclose(parts[0], parts[1], rtol=1e-12, atol=1e-15)
    assert np.array_equal(gradients[0], gradients[2]) and not np.array_equal(gradients[0], gradients[1])


def test_devitos_usual_source_has_gradients(tmp_path: Path) -> None:
    """Checks gradients with respect to the model and to dt, for the source term `src * dt**2 / m`. The gradients must
    agree with differences of the misfit. The scale also depends on a Constant, which comes before dt in the order of
    parameters."""
    devito = pytest.importorskip("devito")
    grid = devito.Grid(shape=(14, 15), extent=(130.0, 140.0), dtype=np.float64)
    u = devito.TimeFunction(name="u", grid=grid, time_order=2, space_order=2)
    m = devito.Function(name="m", grid=grid)
    strength = devito.Constant(name="a", value=0.5, dtype=np.float64)
    wave = devito.Eq(u.forward, devito.solve(m * u.dt2 - strength * u.laplace, u.forward))
    src = devito.SparseTimeFunction(name="src", grid=grid, npoint=1, nt=7)
    src.coordinates.data[:] = 63.0
    src.data[:, 0] = np.random.default_rng(1).standard_normal(7)
    source = src.inject(field=u.forward, expr=src * strength * grid.time_dim.spacing**2 / m)
    start = np.pad(np.random.default_rng(0).standard_normal((10, 11)) * 1e-3, 2)

    def simulation(name: str, model: float = 0.0, dt: float = 1.5, factor: float = 0.5) -> oc.Simulation:
        strength.data = factor
        sim = oc.Simulation([wave, source], dt=dt, directory=tmp_path / name, memory="64MiB")
        slowness = np.full((14, 15), 0.25)
        slowness[6, 6] += model
        sim.assign({"u": start, "u.previous": start, "m": slowness})
        return sim

    misfit = oc.Misfit("u", None)
    _, gradient = simulation("run.oc").gradient(6, misfit, ["m", "dt", "a"], progress="none")

    def difference(**changes: tuple[float, float]) -> float:
        values = []
        for place in (0, 1):
            sim = simulation(f"{next(iter(changes))}{place}.oc", **{key: pair[place] for key, pair in changes.items()})
            sim.run(6, progress="none")
            values.append(misfit(sim)[0])
        (low, high) = next(iter(changes.values()))
        return (values[1] - values[0]) / (high - low)

    assert gradient["m"][6][6] == pytest.approx(difference(model=(-1e-5, 1e-5)), rel=1e-6)
    assert gradient["dt"] == pytest.approx(difference(dt=(1.5 - 1e-5, 1.5 + 1e-5)), rel=1e-6)
    assert gradient["a"] == pytest.approx(difference(factor=(0.5 - 1e-5, 0.5 + 1e-5)), rel=1e-6)


def test_scales_of_earlier_versions_have_no_names(tmp_path: Path) -> None:
    """Checks a manifest of an earlier version, in which a scale has no names of parameters. The run has gradients with
    respect to fields. A gradient with respect to a parameter is refused in one line."""
    sim, _ = scaled_run("acoustic2", "fixed", tmp_path)
    entry = sim.setup.description.taps.sources[0]
    assert entry.scale is not None
    data = json.loads(json.dumps(entry.scale))
    del data["names"]
    assert SourceFactor.from_json(data) == replace(SourceFactor.from_json(entry.scale), names=())
    old = [replace(entry, scale=data)]
    assert scaled_sources(sim.stencil, old, ["v"]) == (0,)
    with pytest.raises(InputError, match=r"an earlier version stored source 0, .* no gradient by dt; start"):
        scaled_sources(sim.stencil, old, ["dt"])


def test_a_factor_has_a_name_for_each_scalar_or_none() -> None:
    program = Program((), ())
    with pytest.raises(InputError, match="2 names of 1 scalars"):
        SourceFactor(program, (), (0.5,), ("a", "b"))


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("dt**2 * v**2", DT**2 * V[0, 0] ** 2),
        ("dt ** 2*v[0, 0]**2", DT**2 * V[0, 0] ** 2),
        ("-(sqrt(v) + 1/4) / h", -(sympy.sqrt(V[0, 0]) + sympy.Rational(1, 4)) / H),
        ("max(v, 2, dt) - abs(-h)", sympy.Max(V[0, 0], 2, DT) - sympy.Abs(-H)),
        ("exp(-v) * atan2(dt, h) + 1.5e-3", sympy.exp(-V[0, 0]) * sympy.atan2(DT, H) + 1.5e-3),
        ("2**3 * dt", 8.0 * DT),
        ("3", 3),
        ("v**0", 1),
    ],
)
def test_a_scale_can_be_a_text(text: str, expression: object, tmp_path: Path) -> None:
    """Checks a factor that is given as a text, in Python or in a file of options. The text must give the same factor as
    the expression."""

    def scale_of(simulation: oc.Simulation) -> object:
        return simulation.setup.description.taps.sources[0].scale

    def simulation(scale: object) -> oc.Simulation:
        source = oc.Source("u", [[4.5, 5.0]], [1.0, 2.0], scale)
        return oc.Simulation("acoustic2_2d", (9, 10), directory=tmp_path / "run.oc", memory="1MiB", sources=[source])

    file = tmp_path / "run.toml"
    file.write_text(
        "[problem]\nstencil = 'acoustic2_2d'\nshape = [9, 10]\n[[problem.sources]]\nfield = 'u'\n"
        f"points = [4.5, 5.0]\nvalues = [1.0, 2.0]\nscale = '{text}'\n[resources]\nmemory = '1MiB'\n"
    )
    expected = scale_of(simulation(expression))
    assert scale_of(simulation(text)) == expected
    assert scale_of(oc.Simulation(**read_options(str(file)), directory=tmp_path / "run.oc")) == expected


@pytest.mark.parametrize("scale", ["sqrt(k)", "1 / k", "log(k)"])
def test_a_scale_does_not_matter_where_the_weight_of_a_corner_is_0(scale: str, tmp_path: Path) -> None:
    """Checks a source in the middle of a cell. Linear interpolation gives the weight 0 to the next cell, where the
    scale or its derivative is not finite."""
    u, k = oc.Field("u"), oc.Field("k")
    stencil = oc.Stencil("steps", {u: u[0] + sympy.tanh(k[0]) * (u[1] - 2 * u[0] + u[-1]) / 4})
    found = []
    for value in (0.0, 1e-3):
        medium = np.linspace(1, 2, 20)
        medium[8] = value
        sim = oc.Simulation(
            stencil, (20,), "float64", tmp_path / f"{value}.oc", init={"k": medium},
            sources=[oc.Source("u", [[7.0]], np.ones(STEPS), scale)], receivers=[oc.Receivers("line", "u", [[6.0]])],
        )  # fmt: skip
        _, gradient = sim.gradient(STEPS, oc.Misfit("line", None), ["k", "source"], progress="none")
        found.append(np.concatenate([gradient["k"][...], gradient["source"][0][:, 0]]))
    assert np.isfinite(found[0]).all() and found[0][7] != 0
    assert np.allclose(*found, rtol=1e-2, atol=1e-6)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dt * w", "'w' is unknown; there are numbers, .* the names dt, h, v, and the functions sqrt"),
        ("dt * u", "'u' is unknown"),
        ("dt^2 * v**2", r"\^ is not a power; write 'dt\*\*2 \* v"),
        ("v[1, 0]", r"'v\[1, 0\]': only offset 0 is possible, so write v or v\[0, 0\]"),
        ("v[0, 0, 0]", r"'v\[0, 0, 0\]': only offset 0 is possible"),
        ("__import__('os')", "is unknown"),
        ("dt.real", "'dt.real' is unknown"),
        ("sqrt(v, 2)", "is unknown"),
        ("[dt, v]", "is unknown"),
        ("dt **", "this is not an expression"),
        ("9**9**9**9", "this is not an expression"),
        ("(" * 400 + "1" + ")" * 400, "this is not an expression"),
        ("dt + " * 300 + "dt", "at most 1000 characters"),
        ("1 / 0", "must be real and finite"),
        ("sqrt(-1)", "must be real and finite"),
        ("sin(exp(exp(20.5))) * v", "the value of each part must be real and finite"),
        ("sin(1e300 * 1e300) * v", "the value of each part must be real and finite"),
        (f"sqrt({'7' * 900}) * v", "the value of each part must be real and finite"),
    ],
)
def test_a_text_that_is_not_a_scale_is_refused(text: str, message: str, tmp_path: Path) -> None:
    """Checks that a text is not executed, and that the message names its wrong part."""
    source = oc.Source("u", [[4.5, 5.0]], [1.0], text)
    with pytest.raises(InputError, match=f"source 0 in 'u': scale .*{message}"):
        oc.Simulation("acoustic2_2d", (9, 10), directory=tmp_path / "run.oc", memory="1MiB", sources=[source])
    assert not (tmp_path / "run.oc").exists()


def test_a_text_with_many_arguments_is_read_quickly(tmp_path: Path) -> None:
    """Checks that a short text from a file cannot keep the processor busy for a long time."""
    source = oc.Source("u", [[4.5, 5.0]], [1.0], f"min({', '.join(f'v**{power}' for power in range(90))})")
    begin = time.process_time()
    oc.Simulation("acoustic2_2d", (9, 10), directory=tmp_path / "run.oc", memory="1MiB", sources=[source])
    assert time.process_time() - begin < 5
