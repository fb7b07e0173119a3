"""Check the library of stencils: names, unchanged bits, costs of kernels, and initial values."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from fields import run, zeros
from outcrop.cli.main import call
from outcrop.errors import InputError
from outcrop.language import library
from outcrop.language.library import table
from outcrop.language.library.differences import second_derivative, staggered_derivative
from outcrop.language.library.transport import REACH
from outcrop.language.program import Apply
from outcrop.language.stencil import Stencil
from outcrop.run.options import option_table

NAMES = [
    "heat7", "heat13", "box27", "heat2", "heat8", "heat16", "heat4_2d", "heat6_1d", "acoustic2", "acoustic8",
    "acoustic16", "acoustic8_sponge", "acoustic4_2d_sponge", "acoustic4_1d", "elastic2", "elastic4", "elastic4_2d",
    "maxwell", "maxwell_2d", "maxwell_2d_te", "maxwell_1d", "maxwell_vacuum", "maxwell_lossy", "gray_scott",
    "gray_scott_2d", "advection1", "advection2", "advection2_2d", "stream_function", "sharpen", "d2q9", "d3q19",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_name_finds_the_stencil_of_that_name(name: str) -> None:
    """Checks that `find_stencil` finds each stencil by its name, and that the stencil has the axes that its name
    states.
    """
    stencil = library.find_stencil(name)
    assert stencil.name == name
    axes = [axis for axis, radius in zip("zyx", stencil.radii, strict=True) if radius]
    assert axes == {1: ["x"], 2: ["z", "x"], 3: ["z", "y", "x"]}[stencil.ndim]
    assert "_1d" not in name or stencil.ndim == 1
    assert "_2d" not in name or stencil.ndim == 2
    assert Stencil.from_json(stencil.to_json()) == stencil


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_rim_is_kept_and_all_inside_moves(name: str, dtype: str) -> None:
    """Checks the boundary `fixed` of each stencil. Read-only fields and rims keep their bits, and all other cells
    change."""
    stencil = library.find_stencil(name)
    shape = tuple(2 * radius + 3 if radius else 1 for radius in stencil.radii)
    rng = np.random.default_rng(2)
    state = {key: (rng.random(shape) + 0.5).astype(dtype) for key in zeros(stencil, shape)}  # type: ignore[arg-type]
    after = run(stencil, state, 1, boundary="fixed")
    rim = np.ones(shape, bool)
    rim[tuple(slice(radius, extent - radius) for radius, extent in zip(stencil.radii, shape, strict=True))] = False
    for field, storage in zip(stencil.fields, stencil.storage, strict=True):
        before, now = state[field.name], after[field.name]
        assert now.dtype == dtype
        assert np.isfinite(now).all()
        assert (now[rim] == before[rim]).all()
        assert (now == before).all() if storage.is_static else (now[~rim] != before[~rim]).all()


def test_the_help_of_the_command_line_names_stencils_that_there_are() -> None:
    """Checks that each name in the help of STENCIL exists. Names of Python functions are valid too."""
    text = option_table()["stencil"].help
    names = re.findall(r"\w*\d\w*|maxwell", text)
    assert len(names) == 4
    for name in [*names, "heat", "acoustic", "elastic", "gray_scott", "advection", "stream_function", "sharpen"]:
        assert library.find_stencil(name)
    assert library.find_stencil("lattice_boltzmann") == library.lattice_boltzmann(3)
    assert library.find_stencil("lattice_boltzmann_2d") == library.lattice_boltzmann(2)


def test_a_family_alone_has_its_defaults() -> None:
    """Checks that a name without an order and without axes gives the default stencil of the Python function."""
    assert {name: make().name for name, make in library.STENCILS.items() if make().name != name} == {
        "heat": "heat2",
        "acoustic": "acoustic8",
        "elastic": "elastic4",
        "advection": "advection1",
    }


@pytest.mark.parametrize(
    "name",
    ["heat3", "heat18", "heat2_4d", "acoustic8_lossy", "elastic4_1d", "d2q9_2d", "heat2_", "acoustic_8", "", "("],
)
def test_an_unknown_name_lists_what_there_is(name: str) -> None:
    """Checks that a misspelt name is refused with a list of names. Such a name must not select another stencil."""
    with pytest.raises(InputError, match=r"are: heat7, heat13, box27, heat\[2,4..16\]\[_1d\]\[_2d\], acoustic"):
        library.find_stencil(name)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: library.heat(ndim=5), r"heat\(ndim=5\) is not available; there are 1, 2, 3"),
        (lambda: library.acoustic(order=7), r"acoustic\(order=7\) is not available; there are 2, 4, 6"),
        (lambda: library.maxwell(mode="te"), r"maxwell\(mode='te'\) is not available; there are tm"),
        (lambda: library.maxwell(medium="glass"), "there are eps, vacuum, lossy"),
        (lambda: library.elastic(ndim=1), "there are 2, 3"),
        (lambda: library.advection(order=3), "there are 1, 2"),
    ],
)
def test_what_a_stencil_cannot_be_is_named(make: object, message: str) -> None:
    """Checks that a wrong option of a stencil gives a one-line error with the possible values."""
    with pytest.raises(InputError, match=message):
        make()  # type: ignore[operator]


def test_bits_of_the_first_stencils_never_move() -> None:
    """Checks that the programs of heat7, heat13 and box27 never change, because runs on disk and published figures use
    these programs.
    """
    assert {name: library.find_stencil(name).digest() for name in ("heat7", "heat13", "box27")} == {
        "heat7": "3a54acb7130c4726",
        "heat13": "4cad9e4fab8d5d85",
        "box27": "d607e3e60822a988",
    }


def cell_operations(name: str) -> dict[str, int]:
    """Return the number of operations of each kind per cell, summed over all stages."""
    counts = {"mul": 0, "add": 0, "div": 0}
    for stage in library.find_stencil(name).stages:
        for operation, uniform in zip(stage.program.operations, stage.program.uniform, strict=True):
            if isinstance(operation, Apply) and not uniform:
                kind = {"sub": "add", "neg": "add"}.get(operation.operator, operation.operator)
                counts[kind] += 1
    return counts


@pytest.mark.parametrize(
    ("name", "mul", "add", "div"),
    [
        ("heat8", 5, 28, 0),  # one product for each of the 4 distances, and one for 6 u
        ("acoustic8", 9, 26, 0),  # products for the centre, 4 distances, 2 u, v v, and two scale factors
        ("elastic4", 58, 88, 0),
        ("maxwell", 9, 27, 3),
        ("gray_scott", 7, 15, 0),
        ("sharpen", 44, 288, 0),  # one product for each distance; 289 taps
        ("d2q9", 27, 44, 1),
        ("d3q19", 54, 101, 1),  # all equilibria share the momentum, the energy and one reciprocal
    ],
)
def test_kernels_cost_no_more_operations_than_they_should(name: str, mul: int, add: int, div: int) -> None:
    """Checks that kernels do not need more operations than the given numbers. The numbers are possible only if the
    generator computes a common term of several directions or species once.
    """
    counts = cell_operations(name)
    assert counts["mul"] <= mul
    assert counts["add"] <= add
    assert counts["div"] <= div


def test_weights_of_differences_are_those_of_the_literature() -> None:
    """Checks the weights of differences of several orders against Fornberg 1988 (second derivative) and Levander 1988
    (staggered derivative)."""
    assert [str(w) for w in second_derivative(2)] == ["-2", "1"]
    assert [str(w) for w in second_derivative(8)] == ["-205/72", "8/5", "-1/5", "8/315", "-1/560"]
    assert [str(w) for w in staggered_derivative(4)] == ["9/8", "-1/24"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("order", [2, 4, 8, 16])
def test_a_constant_stays_constant_to_the_last_bit(dtype: str, order: int) -> None:
    """Checks that a constant field stays constant in the heat equation, although the weights are rounded."""
    stencil = library.heat(ndim=2, order=order)
    state = {"u": np.full((20, 1, 20), 0.3, dtype)}
    assert (run(stencil, state, 50)["u"] == state["u"]).all()


@pytest.mark.parametrize("name", ["heat4", "acoustic4_2d_sponge", "elastic4_2d", "maxwell_lossy", "gray_scott_2d"])
def test_equal_spacings_are_the_same_as_given_one_by_one(name: str) -> None:
    """Checks that equal spacings dz, dy and dx give the same update as h."""
    one = library.find_stencil(name)
    family, options = library.table.split_name(name) or (None, {})
    assert family is not None
    each = family.make(**options, equal_spacing=False)
    rng = np.random.default_rng(3)
    shape = (9, 9 if one.ndim == 3 else 1, 10)
    state = {key: rng.random(shape) + 1 for key in zeros(one, shape)}
    h = dict(zip((p.name for p in one.parameters), one.scalars({}), strict=True))["h"] * 1.1
    spacings = {p.name: h for p in each.parameters if p.name in ("dx", "dy", "dz")}
    assert len(spacings) == one.ndim
    want, got = run(one, state, 2, {"h": h}), run(each, state, 2, spacings)
    for key in state:
        np.testing.assert_allclose(got[key], want[key], rtol=1e-12)
    other = run(each, state, 2, {**spacings, "dx": 2 * h})
    assert any(not np.allclose(other[key], want[key], rtol=1e-9) for key in state)


def test_sharpen_is_the_convolution_that_it_says() -> None:
    """Checks the sharpening filter with 289 taps against a sum by NumPy. The test has its own copy of the formula of
    the weights."""
    rng = np.random.default_rng(5)
    image = rng.random((30, 1, 40))
    i, j = np.meshgrid(np.arange(-8, 9), np.arange(-8, 9), indexing="ij")
    delta = (i**2 + j**2) / (2 * (1.4 * 8 / 4) ** 2)
    taps = -40 * (1 - delta) * np.exp(-delta)
    windows = np.lib.stride_tricks.sliding_window_view(image[:, 0], (17, 17))
    want = image[8:-8, 0, 8:-8] - 2 / 225 * np.einsum("zxij,ij->zx", windows, taps)
    state = {"sharp": np.zeros_like(image), "image": image}
    sharp = run(library.sharpen(), state, 1, boundary="fixed")["sharp"][:, 0]
    np.testing.assert_allclose(sharp[8:-8, 8:-8], want, rtol=1e-12)
    assert (sharp[:REACH] == 0).all()


def test_lattice_directions_come_in_opposite_pairs() -> None:
    """Checks the lattice directions: i and i + 1 are opposite for odd i. The weights must be Qian's weights."""
    for ndim, count in ((2, 9), (3, 19)):
        directions, weights = np.array(library.lattice_directions(ndim)), np.array(library.lattice_weights(ndim))
        assert len({tuple(c) for c in directions}) == count
        assert (directions[1::2] == -directions[2::2]).all()
        assert weights.sum() == pytest.approx(1)
        np.testing.assert_allclose(np.einsum("i,ia,ib->ab", weights, directions, directions), np.eye(ndim) / 3)


def test_a_sponge_is_made_plane_by_plane() -> None:
    """Checks that the values of a sponge do not depend on the number of planes that are computed at a time. The values
    are 0 inside the grid and have their maximum at absorbing sides."""
    shape = (30, 24, 26)
    planes = library.sponge(shape, 8, velocity=2000, spacing=10, sides=("z1", "y0", "y1", "x0", "x1"))
    whole = planes(0, 30)
    assert whole.shape == shape
    assert whole.dtype == np.float32
    assert (planes(13, 17) == whole[13:17]).all()
    assert (whole[:22, 8:-8, 8:-8] == 0).all(), "nothing at z0"
    largest = 3 * 2000 * np.log(1000) / (8 * 10)
    assert whole[-1].min() == pytest.approx(largest * (7.5 / 8) ** 2, rel=1e-6)
    assert (np.diff(whole[12, 12, :9]) <= 0).all()
    assert (whole[:, :, ::-1] == whole).all()
    flat = library.sponge((30, 26), 8, velocity=2000, spacing=10)(3, 9)
    assert flat.shape == (6, 26)
    assert (flat == library.sponge((30, 1, 26), 8, velocity=2000, spacing=10)(3, 9)[:, 0]).all()


def test_a_sponge_has_the_axes_of_the_grid() -> None:
    """Checks that a sponge absorbs at the requested sides on grids of one and two axes. On a grid of two axes, the
    letters y and z both mean the first axis."""
    make = partial(library.sponge, width=8, velocity=2000, spacing=10)
    by_y, by_z = (make((30, 26), sides=(f"{name}0", "x1"))(0, 30) for name in "yz")
    assert (by_y == by_z).all()
    assert by_y[0, 0] > 0 and by_y[-1, -1] > 0 and by_y[-1, 0] == 0
    line = make((30,), sides=("x1",))(0, 30)
    assert line.shape == (30,)
    assert (line[:22] == 0).all()
    np.testing.assert_array_equal(line[22:], make((26, 30), sides=("x1",))(0, 26)[0, 22:])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"width": 13}, "2 layers of width 13 do not fit the 24 cells along y"),
        ({"width": 0}, "width 0 must be a whole number of cells, at least 1"),
        ({"reflection": 1.0}, "between 0 and 1"),
        ({"sides": ("top",)}, r"side 'top' is unknown for shape \(30, 24, 26\); there are z0, z1"),
        ({"shape": (30,), "sides": ("x0", "z1")}, r"side 'z1' is unknown for shape \(30,\); there are x0, x1"),
        ({"shape": (8, 8, 8, 8)}, "one to three sizes"),
    ],
)
def test_a_sponge_that_cannot_be_is_refused(changes: dict[str, object], message: str) -> None:
    """Checks that a sponge is refused if its layers overlap or have no effect, or if a side is unknown."""
    arguments = {"shape": (30, 24, 26), "width": 8, "velocity": 2000.0, "spacing": 10.0, **changes}
    with pytest.raises(InputError, match=message):
        library.sponge(**arguments)  # type: ignore[arg-type]


FIND = "import json, sys; from outcrop.language.library import find_stencil\n" \
       "found = find_stencil('acoustic2_1d_sponge').to_json(); print(json.dumps([found, 'sympy' in sys.modules]))"
"""A program that prints a stencil, and whether the program imported SymPy."""


def test_a_stencil_that_is_known_needs_no_sympy(tmp_path: Path) -> None:
    """Checks that Outcrop finds a stencil in the user's cache without SymPy, because the import of SymPy is slow.

    A damaged description in the cache is replaced.
    """
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}

    def find() -> tuple[object, bool]:
        done = subprocess.run([sys.executable, "-c", FIND], env=environment, capture_output=True, check=True)
        stencil, with_sympy = json.loads(done.stdout)
        return stencil, with_sympy

    wanted = library.acoustic(1, 2, sponge=True).to_json()
    assert [find(), find()] == [(wanted, True), (wanted, False)]
    (file,) = tmp_path.glob("outcrop/stencils/*")
    file.write_bytes(file.read_bytes().replace(b"acoustic2", b"acoustic4"))
    assert [find(), find()] == [(wanted, True), (wanted, False)]


def test_a_stencil_of_another_language_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that a cached stencil is not used after an update of Outcrop, SymPy or Python, which may give other bits.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    wanted = library.find_stencil("heat2_1d")
    monkeypatch.setattr(table, "_language", lambda: "another one")
    monkeypatch.setattr(table.Stencil, "from_json", pytest.fail)
    assert library.find_stencil("heat2_1d") == wanted


def test_openings_outside_the_box_are_refused() -> None:
    """Checks that an inlet or outlet outside the box is refused."""
    with pytest.raises(InputError, match=r"outlet \(3, 20\) must ascend and lie within 0 and 15"):
        library.inlet_outlet((16, 24), inlet=(4, 8), outlet=(3, 20))


NO_STEP_IS_TOO_LARGE = {"heat7", "heat13", "box27", "stream_function", "sharpen"}
"""Families of weighted means, which stay bounded for all values of their parameters."""


@pytest.mark.parametrize("name", library.FAMILIES)
def test_no_part_of_a_family_is_forgotten(name: str) -> None:
    """Checks that each family of stencils has a formula for its stability limit, and a stencil in the tests. If
    something is missing in a new family, the message of this test tells it to the author."""
    assert any(re.fullmatch(rf"{name}\d*(_\w+)?", one) for one in NAMES), f"{name}: add a stencil to NAMES above"
    stencil = library.FAMILIES[name].make()
    if name not in NO_STEP_IS_TOO_LARGE:
        pairs = zip(stencil.fields, stencil.storage, strict=True)
        known = {field.name: 1.0 for field, storage in pairs if storage.is_static}
        limit = library.stable_limit(stencil, {}, [known])
        assert limit is not None, f"{name}: no step is refused; give its family a limit (a state, if it is not linear)"


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("grayscott", "gray_scott"), ("Acoustic-4", "acoustic4"), ("heat2_2D", "heat2_2d"),
     ("lattice boltzman", "lattice_boltzmann"), ("heat3", "heat2 or heat4"),
     ("acoustic5_2d", "acoustic4_2d or acoustic6_2d"), ("elastic18", "elastic16"), ("heat71", "heat7")],
)  # fmt: skip
def test_a_misspelt_name_gets_the_right_one(wrong: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that the message for an unknown name gives the most similar name, the names of all families, and the page
    about equations of users. If no name is similar, the message proposes no name."""
    with pytest.raises(InputError, match=f"did you mean {meant}[?] There are: heat7, .*an oc.Stencil.*equations.md"):
        library.find_stencil(wrong)
    for words in (["stencils", wrong], ["run", wrong, "-n", "8", "8", "-t", "1", "-d", "never.oc"]):
        assert call(words) == 2
        assert f"did you mean {meant}? There are: heat7" in (text := capsys.readouterr().err)
        assert "needs a Python program" in text
    with pytest.raises(InputError, match=r"stencil 'qqqq' is unknown; there are: heat7"):
        library.find_stencil("qqqq")


def test_a_misspelt_function_gets_the_right_one() -> None:
    """Checks the messages for attributes that `oc.stencils` does not have: a misspelt function, and the name of a
    stencil that is not a function."""
    with pytest.raises(AttributeError, match=r"no attribute 'grayscott'; did you mean gray_scott[?]"):
        _ = library.grayscott  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"give the name as a text: 'acoustic8_2d'"):
        _ = library.acoustic8_2d  # type: ignore[attr-defined]
    assert not hasattr(library, "__path_of_nothing__")


def test_every_function_that_makes_a_stencil_is_public() -> None:
    """Checks that `oc.stencils` has all functions that make stencils. A new function must be added to three lists of
    the library's `__init__.py`.
    """
    for file in Path(library.__file__).parent.glob("*.py"):
        module = import_module(f"outcrop.language.library.{file.stem}")
        for name, function in vars(module).items():
            own = inspect.isfunction(function) and function.__module__ == module.__name__ and file.stem != "table"
            if own and not name.startswith("_") and inspect.get_annotations(function).get("return") == "Stencil":
                assert name in library.__all__ and getattr(library, name) is function, f"{name} is not public"


def test_the_manual_has_every_family_and_tells_the_truth() -> None:
    """Checks that the table in docs/reference/stencils.md has each family, and that the message on this page is the
    message that Outcrop prints."""
    page = (Path(__file__).parent.parent / "docs" / "reference" / "stencils.md").read_text()
    table = page[: page.index("## Names and options")]
    for name in library.FAMILIES:
        assert f"`{name}" in table, f"{name} is missing"
    families = page[page.index("## Heat") : page.index("## Stability")].split("\n## ")
    # The page has one table for the stencils in `weighted`, and describes d3q19 in the section of d2q9.
    weighted, beside = {"heat7", "heat13", "box27"}, {"d3q19"}
    assert len(families) == len(library.FAMILIES.keys() - weighted - beside), "a family has no section, or two"
    for text in families:
        for row in ("update", "limit", "source"):
            assert f"\n| {row} | " in text, f"{text[:20]!r} has no {row}"
        (example,) = re.findall(r"\| example \| `(\S+)` \|", text)
        assert (Path(__file__).parent.parent / example).exists()
    message = library.stability(library.acoustic(), {"dt": 0.002}, [{"v": 1500}, {"v": 4500}])
    assert f"    {message}\n" in page
