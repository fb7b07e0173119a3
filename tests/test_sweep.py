"""Check that sweeps over arrays in memory give the same bits as the oracle on each tier, and that wrong arrays give
clear errors.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outcrop as oc
from oracle import advance_fields
from outcrop.errors import InputError
from outcrop.language.library import find_stencil


def random_array(ny: int, nx: int, dtype: str, seed: int, tier: str = "dram") -> Any:
    """Return an array for a grid of shape (ny, nx). The array has an additional row of NaN at each end. A sweep must
    not use these rows."""
    array = oc.array((ny + 2, nx), dtype, tier=tier)
    array[...] = np.nan
    array[1:-1] = np.random.default_rng(seed).random((ny, nx))
    return array


def swept(stencil: oc.Stencil, shape: tuple[int, int], dtype: str, steps: int, tier: str) -> None:
    """Compare all fields of a stencil with the oracle after some steps."""
    arrays: dict[str, Any] = {}
    state: dict[str, Any] = {}
    for number, field in enumerate(stencil.fields):
        storage = stencil.storage[number]
        first = random_array(*shape, dtype, number, tier)
        state[field.name] = first[1:-1].copy()[:, None]
        second = random_array(*shape, dtype, number)  # both arrays of a field get the same rim
        arrays[field.name] = (first, second) if storage.is_double else first
    expected = advance_fields(stencil, state, {}, steps)
    with oc.Sweep(stencil, arrays, threads=3) as sweep:
        for _ in range(steps):
            sweep.step()
        for field in stencil.fields:
            found = sweep.newest(field.name)[1:-1]
            np.testing.assert_array_equal(found, expected[field.name][:, 0], err_msg=f"{stencil.name}: {field.name}")


@pytest.mark.parametrize("name", ["stream_function", "sharpen", "gray_scott_2d", "maxwell_2d"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sweeps_are_the_oracles(name: str, dtype: str) -> None:
    """Checks that sweeps give the same bits as the oracle, for one or several stages and fields. The grid has more rows
    than one call updates."""
    swept(find_stencil(name), (150, 144), dtype, 3, "dram")


def test_all_stages_have_the_rim_of_the_stencil() -> None:
    """Checks two stages, of which the first reads fewer rows than the second."""
    a, b = oc.Field("a"), oc.Field("b")
    first = {a: a[0, 0] / 2 + (b[1, 0] + b[-1, 0]) / 4}
    swept(oc.Stencil("two", [first, {b: b[0, 0] / 2 + (a[2, 0] + a[0, -2]) / 4}]), (150, 64), "float32", 3, "dram")


def test_sweeps_work_on_mapped_files(tmp_path: Path) -> None:
    """Checks a sweep with one array of a field in a mapped file, and the other array in DRAM. The sweep must give the
    bits of the oracle.
    """
    path = tmp_path / "psi.npy"
    psi, other = oc.array((42, 64), path=path), oc.array((42, 64), tier="dram")
    psi[...] = other[...] = np.random.default_rng(0).random((42, 64))
    expected = advance_fields(find_stencil("stream_function"), {"psi": psi[1:-1].copy()[:, None]}, {}, 2)["psi"]
    with oc.Sweep(oc.stencils.stream_function(), {"psi": (psi, other)}) as sweep:
        sweep.step()
        assert sweep.newest("psi") is not None and np.shares_memory(sweep.newest("psi"), other.values)
        sweep.step()
    psi.flush()
    psi.close()
    np.testing.assert_array_equal(np.load(path)[1:-1], expected[:, 0])


def array(*shape: int, dtype: str = "float64") -> Any:
    return oc.array(shape, dtype, tier="dram")


@pytest.mark.parametrize(
    ("stencil", "arrays", "says"),
    [
        ("heat7", {}, "two axes"),
        ("stream_function", {}, "'psi'; give it two arrays"),
        ("stream_function", {"psi": array(9, 16)}, "takes 2 arrays, not 1"),
        ("stream_function", {"psi": (array(9, 16), array(10, 16))}, r"shape \(10, 16\)"),
        ("stream_function", {"psi": (array(9, 16), array(9, 16, dtype="float32"))}, "float32"),
        ("stream_function", {"psi": (array(9, 16, dtype="int64"), array(9, 16, dtype="int64"))}, "int64"),
        ("stream_function", {"psi": (array(9, 15), array(9, 15))}, "multiple of 8 cells"),
        ("stream_function", {"psi": (array(2, 16), array(2, 16))}, "too small"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(stencil: str, arrays: Mapping[str, Any], says: str) -> None:
    """Checks that arrays of a wrong number, shape or type are refused. Kernels do not check their arrays."""
    with pytest.raises(InputError, match=says):
        oc.Sweep(find_stencil(stencil), arrays)


def test_what_is_updated_may_be_written_to() -> None:
    """Checks that a read-only array is refused if the stencil updates it. A write to a read-only array would end the
    process."""
    first, second = np.asarray(array(9, 16)), np.asarray(array(9, 16))
    second = second.view()
    second.flags.writeable = False
    with pytest.raises(InputError, match="reading only"):
        oc.Sweep(oc.stencils.stream_function(), {"psi": (first, second)})
