"""Check that the repeated forward steps compute the sums that the adjoint needs, so that the adjoint need not compute
them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import outcrop as oc
from adjoint_cases import STENCILS, seeds_of
from outcrop.durable import sealed
from outcrop.errors import InputError
from outcrop.language.adjoint import adjoint_of
from outcrop.language.hoist import extends, hoisted
from outcrop.language.library import find_stencil
from outcrop.language.program import Apply
from outcrop.language.stencil import Stencil
from recomputed import as_arrays, run_forward


def operations(stencil: Stencil) -> int:
    return sum(isinstance(one, Apply) for stage in stencil.stages for one in stage.program.operations)


SUMS = [("heat2", "dt"), ("acoustic2", "v"), ("acoustic8", "v"), ("elastic4", "lam")]


@pytest.mark.parametrize(("name", "wrt"), SUMS)
def test_the_adjoint_reads_a_sum_instead_of_neighbours(name: str, wrt: str) -> None:
    """Checks the number of operations if a sum is computed in the forward step, and not in the adjoint. The forward
    step then needs at most one more operation, and the adjoint needs fewer operations."""
    stencil = find_stencil(name)
    adjoint = adjoint_of(stencil, [wrt])
    forward, moved = hoisted(stencil, adjoint)
    assert [one.name for one in forward.fields if one not in stencil.fields] == ["derivative1"]
    assert [(one.field, one.updates) for one in moved.history.values()] == [("derivative1", 1)]
    assert operations(forward) <= operations(stencil) + 1
    assert operations(moved.stencil) < operations(adjoint.stencil)
    assert extends(forward, stencil)


@pytest.mark.parametrize(("name", "wrt"), [("gray_scott", "feed"), ("d2q9", "omega")])
def test_adjoints_that_need_the_values_themselves_stay_as_they_are(name: str, wrt: str) -> None:
    stencil = find_stencil(name)
    adjoint = adjoint_of(stencil, [one.name for one in stencil.parameters][:1])
    assert hoisted(stencil, adjoint) == (stencil, adjoint)


def test_a_stencil_with_other_results_does_not_extend_a_stencil() -> None:
    heat2, heat7 = find_stencil("heat2"), find_stencil("heat7")
    forward, _ = hoisted(heat2, adjoint_of(heat2, ["dt"]))
    assert extends(heat2, heat2) and not extends(heat2, forward) and not extends(forward, heat7)


@pytest.mark.parametrize("name", ["acoustic2", "elastic2", "heat2"])
def test_moved_sums_do_not_change_a_gradient(name: str, tmp_path: Path) -> None:
    """Checks that gradients in float32 have the same bits in two cases: the forward step or the adjoint computes such
    sums. The forward step computes the sums if the history does not have all states."""
    stencil = STENCILS.get(name) or find_stencil(name)
    wrt = [*(one.name for one, how in zip(stencil.fields, stencil.storage, strict=True) if how.is_static)] or ["dt"]
    found = []
    for place, history in enumerate([oc.History("all"), oc.History(3, recompute=True), oc.History(4, recompute=True)]):
        sim = run_forward(stencil, tmp_path / str(place), "fixed", history, dtype="float32")
        run = sim.adjoint({key: one.astype("f4") for key, one in seeds_of(stencil, "fixed").items()}, wrt)
        run.run(progress="none")
        found.append(as_arrays(run.gradients))
    for name in wrt:
        assert np.any(found[0][name])
        assert np.array_equal(found[0][name], found[1][name]) and np.array_equal(found[0][name], found[2][name])


def test_a_manifest_with_another_forward_step_is_refused(tmp_path: Path) -> None:
    """Checks that an adjoint run is refused if the forward stencil in its manifest gives other values than the forward
    run."""
    stencil = find_stencil("acoustic2")
    sim = run_forward(stencil, tmp_path, "fixed", oc.History(3, recompute=True))
    where = sim.adjoint(seeds_of(stencil, "fixed"), "v").simulation.directory
    content = json.loads((where / "manifest.json").read_text())
    text = json.dumps(content["states"]["stencil"])
    changed = text.replace('"sub"', '"add"')
    assert changed != text
    content["states"]["stencil"] = json.loads(changed)
    (where / "manifest.json").write_bytes(sealed({one: content[one] for one in content if one != "crc32c"}))
    with pytest.raises(InputError, match="stencil"):
        oc.open(where).run(1, progress="none")
