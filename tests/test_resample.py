"""Check that resampling is accurate and reads few planes. The bits must not depend on the number of planes that are
computed at a time."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import outcrop as oc
from outcrop.errors import InputError
from outcrop.run.inputs.initial import make_source, parse_source
from outcrop.run.inputs.input_array import InputArray, from_array

sizes = st.integers(1, 6)
shapes = st.tuples(sizes, sizes, sizes)
targets = st.tuples(*[st.integers(2, 9)] * 3)


def collect(source: InputArray, group: int | None = None) -> np.ndarray:
    """Read `group` planes at a time, and return all planes."""
    count = source.shape[0]
    return np.concatenate([source.planes(z, min(z + (group or count), count)) for z in range(0, count, group or count)])


def values_of(shape: tuple[int, ...], dtype: str = "float64") -> np.ndarray:
    return np.random.default_rng(list(shape)).random(shape).astype(dtype)


@given(shape=shapes, target=targets, group=st.integers(1, 9), dtype=st.sampled_from(["float32", "float64", "uint8"]))
def test_planes_do_not_depend_on_their_grouping(
    shape: tuple[int, int, int], target: tuple[int, int, int], group: int, dtype: str
) -> None:
    """Checks that the bits do not depend on the number of planes that are computed at a time."""
    values = (values_of(shape) * 100).astype(dtype)
    whole = collect(oc.resample(values, target))
    assert whole.shape == target
    assert np.array_equal(collect(oc.resample(values, target), group), whole)
    source = oc.resample(values, target)
    assert np.array_equal(np.concatenate([source.planes(z, z + 1) for z in reversed(range(target[0]))])[::-1], whole)


@given(shape=shapes, target=targets, slopes=st.tuples(*[st.integers(-9, 9)] * 3))
def test_linear_functions_are_exact(
    shape: tuple[int, int, int], target: tuple[int, int, int], slopes: tuple[int, int, int]
) -> None:
    """Checks that linear functions are resampled exactly up to rounding. The two grids have their first and last
    samples at the same places. An axis with one sample gives a constant.
    """

    def plane(points: tuple[int, int, int]) -> np.ndarray:
        places = [np.linspace(0, 1, n) if size > 1 else np.zeros(n) for n, size in zip(points, shape, strict=True)]
        parts = [slope * place for slope, place in zip(slopes, places, strict=True)]
        return 5 + parts[0][:, None, None] + parts[1][:, None] + parts[2]

    np.testing.assert_allclose(collect(oc.resample(plane(shape), target)), plane(target), rtol=0, atol=1e-13)


@given(shape=shapes, target=targets, values=st.data())
def test_values_stay_within_their_neighbours_and_constants_stay(
    shape: tuple[int, int, int], target: tuple[int, int, int], values: st.DataObject
) -> None:
    """Checks that results stay between the smallest and the largest sample. A velocity above the maximum of the model
    could make a stable time step unstable.
    """
    floats = st.floats(np.float32(-1e30), np.float32(1e30), width=32)
    array = values.draw(arrays("float32", shape, elements=floats))
    result = collect(oc.resample(array, target))
    assert array.min() <= result.min() and result.max() <= array.max()
    constant = np.full(shape, array.flat[0])
    assert (collect(oc.resample(constant, target)) == array.flat[0]).all()


def test_rounding_does_not_lead_beyond_a_sample() -> None:
    """Checks results at places just before a sample. Rounding must not give a result beyond this sample: in
    floating-point numbers, a + (b - a) can differ from b."""
    pairs = np.random.default_rng(0).uniform(-1, 1, (1000, 2)).astype("float32") * np.float32([9, 0.1])
    result = collect(oc.resample(pairs, (1000, 2), spacing=1, new_spacing=(1, 0.99999999)))[:, 1]
    assert (result <= pairs.max(axis=1)).all() and (result >= pairs.min(axis=1)).all()


@given(shape=st.tuples(*[st.integers(2, 5)] * 3), finer=st.tuples(*[st.integers(1, 4)] * 3))
def test_samples_that_coincide_are_kept_bit_for_bit(shape: tuple[int, int, int], finer: tuple[int, int, int]) -> None:
    """Checks that a result at the place of a sample is identical to the sample, even beside NaN and infinity. A grid
    that is refined and then coarsened does not change.
    """
    values = values_of(shape)
    values[-1, -1, -1] = np.nan
    values[0, 0, 0] = np.inf
    target = tuple((size - 1) * factor + 1 for size, factor in zip(shape, finer, strict=True))
    refined = collect(oc.resample(values, target))
    np.testing.assert_array_equal(refined[:: finer[0], :: finer[1], :: finer[2]], values)
    np.testing.assert_array_equal(collect(oc.resample(refined, shape)), values)


@given(target=targets)
def test_results_equal_plain_interpolation_axis_by_axis(target: tuple[int, int, int]) -> None:
    """Checks the result against NumPy's one-dimensional interpolation along z, y and x."""
    expected = values_of((4, 3, 5))
    for axis, size in enumerate(target):
        places = np.linspace(0, expected.shape[axis] - 1, size)
        expected = np.apply_along_axis(lambda row, at=places: np.interp(at, range(len(row)), row), axis, expected)
    np.testing.assert_allclose(collect(oc.resample(values_of((4, 3, 5)), target)), expected, rtol=1e-13)


def test_large_planes_are_interpolated_in_blocks_of_rows() -> None:
    """Checks large planes, which are computed in blocks of rows. Rows next to the edges of blocks must be right, for
    finer and for coarser grids."""
    rows = np.arange(1500.0)[:, None] + np.arange(700.0) / 1024
    for shape in [(1, 2999, 1399), (1, 500, 234)]:
        result = collect(oc.resample(rows[None], shape))
        expected = np.linspace(0, 1499, shape[1])[:, None] + np.linspace(0, 699, shape[2]) / 1024
        np.testing.assert_allclose(result[0], expected, rtol=1e-14, atol=1e-12)


@pytest.mark.parametrize(("count", "expected"), [(41, list(range(5))), (3, [0, 2, 4]), (2, [0, 4])])
def test_only_planes_that_are_needed_are_read_and_each_once(count: int, expected: list[int]) -> None:
    """Checks that each necessary plane of the model is read once. Planes that a coarser grid does not need are not
    read."""
    asked: list[int] = []

    def planes(z0: int, z1: int) -> np.ndarray:
        asked.extend(range(z0, z1))
        return np.zeros((z1 - z0, 2, 2))

    collect(oc.resample(InputArray("counted", (5, 2, 2), planes), (count, 3, 3)), group=2)
    assert asked == expected


def test_distances_between_samples() -> None:
    """Checks the places of samples if spacings are given. The places are computed with decimal numbers, so a length of
    1 has exactly ten spacings of 0.1."""
    line = np.arange(11.0) ** 2
    fine = collect(oc.resample(line, (101,), spacing=1, new_spacing=0.1))
    assert fine.shape == (101,) and np.array_equal(fine[::10], line)
    section = line[:, None] + np.arange(4.0)
    part = collect(oc.resample(section, (3, 5), spacing=np.array([7.5, 2]), new_spacing=(15, 1), origin=(7.5, 1)))
    np.testing.assert_allclose(part, (np.array([1, 9, 25.0])[:, None] + np.arange(0.5, 3, 0.5)))
    held = collect(oc.resample(line, (15,), spacing=1, new_spacing=1, origin=-2, outside="nearest"))
    assert np.array_equal(held, np.pad(line, 2, mode="edge"))


@pytest.mark.parametrize("axis", "zyx")
def test_sections_are_extruded_along_every_axis(axis: str) -> None:
    """Checks sections that are repeated along each axis. The axes of the section become the other two axes of the grid,
    in the order z, y, x or in the given order."""
    section = values_of((3, 4), "float32")
    place, others = "zyx".index(axis), "zyx".replace(axis, "")
    expected = np.repeat(np.expand_dims(section, place), 7, place)
    for source in (oc.extrude(section, axis, 7), oc.extrude(section.T, axis, 7, axes=others[::-1])):
        for group in (1, 2, 7):
            assert np.array_equal(collect(source, group), expected)
    xarray = pytest.importorskip("xarray")
    named = xarray.DataArray(section.T, dims=tuple(others[::-1]))
    assert np.array_equal(collect(oc.extrude(named, axis, 7)), expected)
    single = np.expand_dims(section, place)
    for flat in (single, xarray.DataArray(single.T, dims=("x", "y", "z"))):
        assert np.array_equal(collect(oc.extrude(flat, axis, 7)), expected)
    finer = oc.extrude(oc.resample(section, (5, 7)), axis, 2)
    assert np.array_equal(np.take(collect(finer), 0, place), collect(oc.resample(section, (5, 7))))


def test_whole_numbers_stay_what_they_are_when_nothing_is_interpolated() -> None:
    """Checks that large whole numbers keep their values if they are only repeated. Outcrop must not convert them to
    floating-point numbers."""
    section = np.array([[2**62 + 1, 5]])
    result = collect(oc.extrude(section, "z", 2))
    assert result.dtype == section.dtype and (result == section).all()


@pytest.mark.parametrize("axes", ["zyx", "zxy", "yzx", "yxz", "xzy", "xyz"])
@pytest.mark.parametrize("cache_bytes", [0, 150, 1 << 20])
def test_axes_in_any_order(axes: str, cache_bytes: int) -> None:
    """Checks that values with any order of axes give the right result. For some orders, each plane of the result needs
    all stored planes, although the cache can hold only a few planes."""
    values = values_of((3, 4, 5))
    by_name = [values.shape[axes.index(letter)] for letter in "zyx"]
    for array in (values, from_array("a source", values)):
        result = collect(oc.resample(array, by_name, axes=axes, cache_bytes=cache_bytes), 2)
        assert np.array_equal(result, values.transpose([axes.index(letter) for letter in "zyx"]))


@pytest.mark.parametrize("target", [(7,), (1,), (7, 9), (5, 1), (4, 6, 8)])
def test_results_have_the_grid_s_own_axes(target: tuple[int, ...]) -> None:
    """Checks that results have the axes of the grid and the right values, for grids of one to three axes. Any number of
    planes, rows or cells may be computed at a time.
    """
    values = values_of(tuple(1 if size == 1 else 4 for size in target))
    expected = values
    for axis, size in enumerate(target):
        places = np.linspace(0, values.shape[axis] - 1, size)
        expected = np.apply_along_axis(lambda row, at=places: np.interp(at, range(len(row)), row), axis, expected)
    for group in (1, 2, None):
        result = collect(oc.resample(values, target), group)
        assert result.shape == target
        np.testing.assert_allclose(result, expected, rtol=1e-13)


@pytest.mark.parametrize(
    ("shape", "axes", "target", "expected"),
    [
        ((4, 5), "", (4, 3, 5), lambda a: a[:, None]),
        ((4, 5), "zx", (4, 3, 5), lambda a: a[:, None]),
        ((4, 5), "yx", (3, 4, 5), lambda a: a[None]),
        ((4, 5), "xy", (3, 5, 4), lambda a: a.T[None]),
        ((4, 5), "zy", (4, 5, 3), lambda a: a[:, :, None]),
        ((4, 5), "xz", (5, 4), lambda a: a.T),
        ((4, 5), "xy", (5, 4), lambda a: a.T),
        ((4, 5), "yx", (4, 5), lambda a: a),
        ((4,), "", (3, 4), lambda a: a[None]),
        ((4,), "y", (4, 3), lambda a: a[:, None]),
        ((4,), "z", (4, 3), lambda a: a[:, None]),
        ((4,), "z", (4,), lambda a: a),
        ((1, 4, 5), "", (4, 5), lambda a: a[0]),
        ((4, 1, 5), "", (4, 5), lambda a: a[:, 0]),
        ((4, 1, 5), "xyz", (5, 4), lambda a: a[:, 0].T),
        ((1, 4, 1), "", (4,), lambda a: a[0, :, 0]),
        ((1, 5), "", (5,), lambda a: a[0]),
    ],
)
def test_axes_that_only_one_side_has(
    shape: tuple[int, ...], axes: str, target: tuple[int, ...], expected: Callable[[np.ndarray], np.ndarray]
) -> None:
    """Checks the option `axes`, which names the axes of the values by letters. Values are repeated along axes that
    they do not have. An axis with only one sample is removed.
    """
    values = values_of(shape)
    for group in (1, 2, None):
        result = collect(oc.resample(values, target, axes=axes), group)
        assert np.array_equal(result, np.broadcast_to(expected(values), target))


def test_a_file_is_fitted_by_its_name_alone(tmp_path: Path) -> None:
    """Checks that texts of the option `--init` resample files correctly: a section with named axes, a profile that
    becomes layers, and a volume.
    """
    section, profile, volume = values_of((5, 3)), values_of((4,)), values_of((3, 4, 5))
    for name, array in [("s", section), ("p", profile), ("v", volume)]:
        np.save(tmp_path / f"{name}.npy", array)
    shape = (6, 2, 9)
    wide = collect(parse_source(f"{tmp_path}/s.npy@resample:xz", shape))
    assert np.array_equal(wide, collect(oc.resample(np.repeat(section.T[:, None], 2, 1), shape)))
    layers = collect(parse_source(f"{tmp_path}/p.npy@resample:z", shape))
    assert np.array_equal(layers[:, 1, 3], collect(oc.resample(profile, (6,)))) and np.ptp(layers[2]) == 0
    whole = collect(make_source(f"{tmp_path}/v.npy@resample", shape))
    assert np.array_equal(whole, collect(oc.resample(volume, shape)))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"shape": (3, 1, 5)}, "has 4 samples along y, the grid one"),
        ({"shape": (3, 4.5, 5)}, "must be a whole number"),
        ({"shape": 7}, "whole numbers"),
        ({"shape": (4, 5)}, r"shape \(3, 4, 5\), the grid two axes \(ny, nx\); take a slice"),
        ({"values": np.ones((4, 5)), "shape": (1, 5)}, "has 4 samples along y, the grid one"),
        ({"shape": (3, 0, 5)}, "at least 1"),
        ({"axes": "zz"}, "axes 'zz'.*different letters"),
        ({"axes": "abc"}, "axes 'abc'.*different letters"),
        ({"axes": 3}, "axes 3.*different letters"),
        ({"axes": "zx"}, "a letter for each axis"),
        ({"spacing": 1}, "both spacing and new_spacing"),
        ({"origin": 1}, "needs spacing"),
        ({"outside": "zero"}, "refuse, nearest"),
        ({"spacing": (1, 1), "new_spacing": 1}, r"has 2 numbers; the grid has three axes"),
        ({"spacing": -1, "new_spacing": 1}, "must be positive"),
        ({"spacing": 1, "new_spacing": float("nan")}, "finite"),
        ({"spacing": 1, "new_spacing": "1m"}, "finite"),
        ({"spacing": 1, "new_spacing": 1, "shape": (3, 4, 6)}, "0 to 4 along x, the grid goes from 0 to 5.*'nearest'"),
        ({"spacing": 1, "new_spacing": 1, "origin": (-1, 0, 0)}, "0 to 2 along z, the grid goes from -1"),
        ({"values": lambda z0, z1: None}, "has no samples"),
        ({"values": 3.5}, "has no samples"),
        ({"values": np.ones((2, 2), complex)}, "only real numbers"),
        ({"values": InputArray("odd", (3, 4, 5), lambda a, b: np.ones((b - a, 4, 5), complex))}, "only real numbers"),
    ],
)
def test_what_cannot_be_resampled_is_refused(arguments: dict[str, object], words: str) -> None:
    """Checks that wrong arguments are refused. The one-line error names the wrong value and says what to do. Most
    errors are raised before any plane is read."""
    given_values = {"values": values_of((3, 4, 5)), "shape": (3, 4, 5), **arguments}
    with pytest.raises(InputError, match=words) as caught:
        collect(oc.resample(given_values.pop("values"), **given_values))  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("section", "axis", "axes", "words"),
    [
        (np.ones((2, 3, 4)), "y", "", "only a section"),
        (np.ones((2, 1, 4)), "y", "zx", "only a section"),
        (np.ones(4), "z", "", "only a section"),
        (np.ones((2, 3)), "w", "", "along z, y or x"),
        (np.ones((2, 3)), 1, "", "along z, y or x"),
        (np.ones((2, 3)), "y", "zy", "has the axes z and x"),
    ],
)
def test_what_cannot_be_extruded_is_refused(section: np.ndarray, axis: str, axes: str, words: str) -> None:
    """Checks that a volume cannot be repeated along an axis. A section with the axis y cannot be repeated along y."""
    with pytest.raises(InputError, match=words):
        oc.extrude(section, axis, 3, axes=axes)


@pytest.mark.parametrize(
    ("text", "shape", "words"),
    [
        ("a.npy@resample", None, "give shape="),
        ("a.npy@resample:ab", (2, 2, 2), "different letters"),
        ("b.npy@resample", (2, 2, 2), "no such file"),
        ("a.npy", (2, 2, 2), "write FILE@resample"),
    ],
)
def test_texts_that_cannot_be_fitted_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, shape: tuple[int, int, int] | None, words: str
) -> None:
    """Checks that a wrong shape is an error if @resample is not given, and that the message mentions @resample."""
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", values_of((3, 4)))
    with pytest.raises(InputError, match=words):
        parse_source(text, shape)
