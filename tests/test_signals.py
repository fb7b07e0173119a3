"""Check signals. The run stores the exact bits of each signal, and a signal that is too short is refused."""

import base64
from pathlib import Path

import numpy as np
import pytest

import outcrop as oc
from folders import everything_below
from outcrop.errors import InputError
from outcrop.run.places import storage_at
from several_arrays import after, contents, make_run, make_simulation, same


def test_signals_are_kept_bit_for_bit(tmp_path: Path) -> None:
    """Checks that the manifest stores the exact bits of a signal in base64."""
    where, wavelet = tmp_path / "run.oc", np.random.default_rng(1).standard_normal(200) * 1e-30
    make_simulation(where, signals={"w": wavelet.tolist()}).assign({"u": 1})
    (text,) = storage_at(where).read().signals.values()
    assert base64.b64decode(text) == wavelet.astype("<f8").tobytes()


def test_signals_given_later_are_used_and_kept(tmp_path: Path) -> None:
    """Checks that a run uses and stores new signals that are given after its first steps. The first value of a signal
    belongs to the first step of the run. A later process without the signals must also compute the oracle's values.
    """
    where, longer = tmp_path / "run.oc", np.random.default_rng(2).standard_normal(9)
    simulation, start = make_run(where, signals={"w": np.ones(2)})
    simulation.run(2, progress="none")
    oc.open(where, signals={"w": longer}).run(3, progress="none")
    assert same(contents(where), after(start, 5, [1.0, 1.0, *longer[2:]]))
    oc.open(where).run(4, progress="none")
    assert same(contents(where), after(start, 9, [1.0, 1.0, *longer[2:]]))
    (text,) = storage_at(where).read().signals.values()
    assert base64.b64decode(text) == np.array([1.0, 1.0, *longer[2:]], "<f8").tobytes()


@pytest.mark.parametrize(
    ("signals", "words"),
    [
        (None, r"signal 'w' of waves has no values; give signals=\{'w': values\}"),
        ({"w": [1.0], "q": [1.0]}, "no signal 'q'; there are: w"),
        ({"w": [1.0, float("nan")]}, "'w' is nan in step 1"),
        ({"w": [[1.0], [2.0]]}, "one sequence"),
        ({"w": [[1.0], [2.0, 3.0]]}, "one sequence"),
        ({"w": 1.0}, "one sequence"),
        ({"w": ["a"]}, "one sequence"),
        ({"w": [1j]}, "one sequence"),
    ],
)
def test_signals_that_cannot_be_are_refused(tmp_path: Path, signals: dict[str, object] | None, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make_simulation(tmp_path / "run.oc", signals=signals)
    assert not list(tmp_path.iterdir())


def test_signals_that_are_too_short_are_refused_before_anything_changes(tmp_path: Path) -> None:
    """Checks signals if a later call of `run` computes further steps. The first value of a signal still belongs to the
    first step of the run. A signal that is too short is refused."""
    where = tmp_path / "run.oc"
    simulation, _ = make_run(where, signals={"w": np.ones(10)})
    simulation.run(4, progress="none")
    before = everything_below(where)
    for use in (simulation.run, simulation.plan):
        with pytest.raises(InputError, match=r"'w' has 10 values, 11 steps from the beginning of the run need 11"):
            use(7)
    assert everything_below(where) == before
