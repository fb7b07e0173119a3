"""Check that an unstable run is refused, for each way to give the values of the model."""

from pathlib import Path

import numpy as np
import pytest

import outcrop as oc
from outcrop.cli.main import call
from outcrop.errors import InputError, as_command
from shots import SHAPE, H, velocity


@pytest.mark.parametrize("together", [False, True])
def test_a_model_too_fast_for_the_step_is_refused_and_nothing_is_left(together: bool, tmp_path: Path) -> None:
    """Checks that a run is refused if the step is too large for the largest velocity of the model. With
    `unstable=True`, the run is allowed and its report has a warning.
    """
    fast = np.array(velocity())
    fast[20, 10, 10] = 9000
    sponge = oc.stencils.acoustic(order=4, sponge=True)
    stencil = sponge if together else oc.stencils.acoustic(order=4)
    damp = oc.stencils.sponge(SHAPE, 4, velocity=3000.0, spacing=H)
    values = {"v": fast, "damp": damp} if together else {"v": fast}
    sim = oc.Simulation(stencil, SHAPE, directory=tmp_path / "run.oc", memory="1MiB", dt=0.001)
    with pytest.raises(InputError, match=r"dt=0.001 is unstable.*the largest stable one is 0.00055.*unstable=True"):
        sim.assign(values)
        sim.run(2)
    assert not (tmp_path / "run.oc").exists()
    again = oc.Simulation(
        stencil, SHAPE, directory=tmp_path / "run.oc", memory="1MiB", dt=0.001, unstable=True, force=True
    )
    again.assign(values)
    assert "the largest stable one is 0.00055" in again.run(2).warning
    assert "0.00055" in oc.open(tmp_path / "run.oc").run(1).warning


def test_fields_judged_together_are_not_refused_for_cells_that_are_not_there(tmp_path: Path) -> None:
    """Checks that the limit of a cell is computed from the values of all fields in this cell. The largest values of two
    fields may be in different cells.
    """
    u, a, b = oc.Field("u"), oc.Field("a"), oc.Field("b")
    dt = oc.Parameter("dt", 1.0)
    spread = u[0, 0, 1] - 2 * u[0, 0, 0] + u[0, 0, -1]
    stencil = oc.Stencil("product", {u: u[0, 0, 0] + dt * a[0, 0, 0] * b[0, 0, 0] * spread})
    half = np.zeros((8, 8, 8)) + np.where(np.arange(8) < 4, 0.2, 2.0)
    for other, is_stable in ((half[:, :, ::-1], True), (half, False)):
        sim = oc.Simulation(stencil, (8, 8, 8), directory=tmp_path / "run.oc", memory="1MiB", force=True)
        sim["a"] = half
        sim["b"] = other
        if is_stable:
            assert sim.run(2).warning == ""
        else:
            with pytest.raises(InputError, match=r"largest stable one is 0\.12"):
                sim.run(2)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_a_model_with_a_hole_is_refused(wrong: float, tmp_path: Path) -> None:
    """Checks that a model with an infinite value or NaN is refused, unless no later step reads the field."""
    model = np.array(velocity())
    model[20, 10, 10] = wrong
    sim = oc.Simulation("acoustic4", SHAPE, directory=tmp_path / "run.oc", memory="1MiB")
    with pytest.raises(InputError, match=rf"v holds {wrong}, which would spread .*unstable=True"):
        sim["v"] = model
    assert not (tmp_path / "run.oc").exists()
    sim = oc.Simulation("acoustic4", SHAPE, directory=tmp_path / "run.oc", memory="1MiB", unstable=True)
    sim["v"] = model
    assert sim.run(1).step == 1
    image = oc.Simulation("sharpen", (40, 50), directory=tmp_path / "image.oc", memory="1MiB")
    image["image"] = np.where(np.arange(50) == 3, wrong, 1.0) * np.ones((40, 1))
    assert image.run(1).step == 1


def test_coordinates_do_not_hide_another_spacing(tmp_path: Path) -> None:
    """Checks that the spacing of the coordinates must equal the spacing h in the equation. The user gives h, or h has
    its default. In a user's own stencil, a parameter named h may have any meaning."""

    def make(stencil: oc.Stencil, **options: object) -> oc.Simulation:
        return oc.Simulation(stencil, (20, 30), directory=tmp_path / "run.oc", memory="1MiB", **options)  # type: ignore[arg-type]

    with pytest.raises(InputError, match=r"acoustic8_2d computes with h = 10; give params=\{'h': 5\}, too"):
        make(oc.stencils.acoustic(2), spacing=5.0)
    with pytest.raises(InputError, match=r"'h': \.\.\.\}, too, the distance of 0\.01 km in the units of the other"):
        make(oc.stencils.acoustic(2), spacing=0.01, units="km")
    with pytest.raises(InputError, match=r"spacing 2 along x .*dx = 10; .*'dx': 2"):
        make(oc.stencils.acoustic(2, equal_spacing=False), spacing=(10, 2))
    u, h = oc.Field("u"), oc.Parameter("h", 10.0)
    for stencil, options in (
        (oc.stencils.acoustic(2), {"spacing": 10}),
        (oc.stencils.acoustic(2), {"spacing": 0.005, "units": "km", "params": {"h": 5.0}}),
        (oc.stencils.acoustic(2), {"origin": 3.0, "units": "m"}),
        (oc.stencils.sharpen(), {"spacing": 2.0}),
        (oc.Stencil("mine", {u: u[0, 0] + h * (u[0, 1] - u[0, 0])}), {"spacing": 5.0, "unstable": True}),
    ):
        make(stencil, **options)


def test_what_divides_by_zero_is_refused(tmp_path: Path) -> None:
    """Checks that a time step, a spacing or a permittivity of 0 is refused."""
    where = {"directory": tmp_path / "run.oc", "memory": "1MiB"}
    with pytest.raises(InputError, match=r"heat2 divides by zero where h = 0; .*unstable=True"):
        oc.Simulation("heat2", (8, 8, 8), params={"h": 0}, **where)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="dt = 0 is not a time step"):
        oc.Simulation("heat2", (8, 8, 8), dt=0, **where)  # type: ignore[arg-type]
    sim = oc.Simulation("maxwell_2d", (20, 30), **where)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="maxwell_2d divides by zero where eps = 0"):
        sim["eps"] = np.where(np.arange(30) == 7, 0.0, 1.0) * np.ones((20, 1))
    assert not (tmp_path / "run.oc").exists()


U, W, DT = oc.Field("u"), oc.Field("w"), oc.Parameter("dt", 0.2)
WARMED = U[0, 0] + DT * (U[0, 1] + U[0, -1] + U[1, 0] + U[-1, 0] - 4 * U[0, 0])
HEAT = oc.Stencil("warm", {U: WARMED})


def printed(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return the output of a command."""
    assert call(words) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("shape", [(40, 30), (2, 3)])
def test_nan_and_infinity_are_found(
    wrong: float, shape: tuple[int, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that the report, `outcrop info` and `outcrop watch` name the field and the steps after which NaN or
    infinity was found. Outcrop searches all cells of a small grid, so it finds one wrong cell in the first pass."""
    sim = oc.Simulation(
        HEAT, shape, directory=tmp_path / "run.oc", memory="1MiB", boundary="mirror", sizes={"bt": 2}
    )
    start = np.ones(shape)
    sim["u"] = start
    report = sim.run(4)
    assert report.not_finite == {} and "NaN" not in str(report)
    start[1, 2] = wrong
    sim["u"] = start
    report = sim.run(4)
    assert report.not_finite == {"u": (5, 6)}
    assert "u has NaN or infinity, found after steps 5 to 6" in str(report)
    for words in (["info"], ["watch", "--once"]):
        assert "u has NaN or infinity, found after step 6" in printed([*words, str(tmp_path / "run.oc")], capsys)
    assert oc.open(tmp_path / "run.oc").run(2).not_finite == {"u": (9, 10)}, "each call of run searches again"


def test_an_overflow_in_a_large_grid_is_found_soon(tmp_path: Path) -> None:
    """Checks a grid in which only a part of the rows is searched. NaN spreads by one cell in each step, so a wrong cell
    between the searched rows is found after at most 32 steps."""
    sim = oc.Simulation(
        HEAT, (70_000, 5), directory=tmp_path / "run.oc", memory="8MiB", sizes={"bt": 4}, unstable=True
    )
    for row in (10_000, 64 * 500 + 32):
        sim["u"] = lambda z0, z1, row=row: np.where(np.arange(z0, z1)[:, None] == row, np.nan, 1.0) * np.ones(5)
        (first, last) = sim.run(40).not_finite["u"]
        assert last - first == 3 and (last - 1) % 40 < 36
    assert sim.step == 80


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_run_that_blows_up_says_so_and_what_was_not_tested(
    dtype: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks an unstable run of a nonlinear equation. Only the field that overflows is named, and a note says that the
    stability was not tested."""
    both = oc.Stencil("both", {U: WARMED + DT * U[0, 0] ** 2 / 10, W: W[0, 0] / 2})
    sim = oc.Simulation(both, (30, 20), dtype=dtype, directory=tmp_path / "run.oc", memory="1MiB", params={"dt": 0.5})
    sim.assign({"u": np.random.default_rng(2).random((30, 20)), "w": 1.0})
    report = sim.run(1500)
    assert list(report.not_finite) == ["u"]
    (note,) = [line for line in str(report).splitlines() if "the stability was not tested" in line]
    assert "the equation is not linear, so its stability depends on the values of u, w; to test it, run" in note
    # the line of Python in the note works as it is written, with the parameters and the values that it contains
    line = note.partition("expect: ")[2]
    assert line.startswith("print(oc.stencils.limit_text(sim.stencil, {'dt': 0.5}, [{\"u\": 0.5, \"w\": 0.5}]))")
    exec(line, {"oc": oc, "sim": sim})
    assert "; dt = 0.5 is unstable" in capsys.readouterr().out
    with as_command():
        said = str(sim.run(1))
    opening, line = said.partition('sim = oc.open("DIRECTORY"); ')[::2]
    assert "run this line in Python" in opening and "limit_text(sim.stencil" in line
    linear = oc.Simulation(HEAT, (30, 20), directory=tmp_path / "other.oc", memory="1MiB")
    assert linear.run(2).not_tested == ""


@pytest.mark.parametrize(
    "words",
    [["heat2", "--param", "dt=9"], ["acoustic4", "--param", "dt=0.01", "--init", "v=9000"]],
    ids=["equation", "constant model"],
)
@pytest.mark.parametrize("place", [["-d", "run.oc"], ["--machine", "crest6"]], ids=["here", "elsewhere"])
def test_a_plan_is_refused_like_its_run(
    words: list[str], place: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Checks that `plan` and `run` refuse an unstable step with the same line, and that `--unstable` permits the
    plan."""
    monkeypatch.chdir(tmp_path)
    size = ["-n", "8", "10", "12", "-t", "2"]
    assert call(["run", *words, *size, "-d", "run.oc"]) == 2
    message = capsys.readouterr().err
    assert "is unstable" in message and message.endswith("to run it anyway, give --unstable\n")
    assert call(["plan", *words, *size, *place]) == 2
    assert capsys.readouterr().err == message
    assert call(["plan", *words, *size, *place, "--ranks", "2"]) == (0 if "-d" in place and "v=9000" in words else 2)
    assert call(["plan", *words, *size, *place, "--unstable"]) == 0
    assert not list(tmp_path.iterdir())


def test_a_plan_notes_what_a_run_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks the notes of `plan` for missing values, and for a budget that is larger than the memory of the machine.
    `run` refuses such options."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("outcrop.tiers.discover.memory_bytes", lambda: 3 << 30)
    words = ["acoustic4", "-n", "20", "24", "28", "-t", "2", "-d", "run.oc"]
    assert call(["plan", *words, "--memory", "5GiB"]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "note: run refuses this plan here: memory 5 GiB is more than the 3 GiB of this machine",
        "note: run needs values of v: --init v=NUMBER or v=FILE",
    ]
    assert call(["plan", *words, "--init", "v=1500", "--memory", "100%"]) == 0
    assert capsys.readouterr().err == ""
    assert call(["run", *words, "--init", "v=1500", "--memory", "5GiB"]) == 2
    assert "memory 5 GiB is more than the 3 GiB of this machine; give a smaller --memory" in capsys.readouterr().err
    sim = oc.Simulation("heat2", (20, 24, 28), directory="run.oc", memory="5GiB")
    assert sim.plan(2).budget_bytes == 5 << 30
    for act in (lambda: sim.run(2), lambda: sim.assign({"u": 1.0})):
        with pytest.raises(InputError, match="more than the 3 GiB of this machine; give a smaller memory, such as 80%"):
            act()
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr("outcrop.tiers.discover.memory_bytes", lambda: 512 << 20)
    assert oc.Simulation("heat2", (20, 24, 28), directory="run.oc").memory_bytes == 512 << 20


def test_a_run_from_a_larger_machine_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks a run on a machine that has less memory than the stored budget. The run can be read, and can continue with
    a smaller budget."""
    oc.Simulation("heat2", (20, 24, 28), directory=tmp_path / "run.oc", memory="64MiB", init="gaussian").run(2)
    monkeypatch.setattr("outcrop.tiers.discover.memory_bytes", lambda: 32 << 20)
    sim = oc.open(tmp_path / "run.oc")
    assert sim["u"][:].max() > 0
    with pytest.raises(InputError, match="memory 64 MiB is more than the 32 MiB"):
        sim.run(2)
    assert oc.open(tmp_path / "run.oc", memory="16MiB").run(2).step == 4


@pytest.mark.parametrize("dt", [0.005, 0.003])
def test_the_message_names_the_limit_for_all_values(dt: float, tmp_path: Path) -> None:
    """Checks the largest stable step in the message. It must be stable for the fastest velocity of the model, even if
    slower velocities are also unstable with the step of the run.
    """
    shape = (20, 24)
    v = np.linspace(1500, 3500, 20)[:, None] * np.ones((1, 24))
    stencil = oc.stencils.acoustic(2, order=8, sponge=True)
    damp = oc.stencils.sponge(shape, 4, velocity=3500.0, spacing=H)
    sim = oc.Simulation(stencil, shape, directory=tmp_path / "run.oc", memory="1MiB", dt=dt)
    limit = oc.stencils.stable_limit(stencil, {}, [{"v": 3500.0, "damp": 0.0}])
    assert limit is not None
    with pytest.raises(InputError, match=rf"dt={dt} is unstable.*the largest stable one is {str(limit)[:6]}"):
        sim.assign({"v": v, "damp": damp})
        sim.run(1)
    assert not (tmp_path / "run.oc").exists()
