"""Checks the messages of commands and calls about the remaining steps of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import outcrop as oc
from outcrop.cli import INTERRUPTED
from outcrop.cli.main import call
from outcrop.errors import InputError
from outcrop.run.places import open_state
from outcrop.run.simulation import Simulation

SHAPE = (12, 8, 8)


def make_run(place: Path, steps: int = 3, last: int = 0) -> Simulation:
    """Make a run at step `steps`. If `last` is given, an earlier command has asked for the steps up to `last`."""
    sim = oc.Simulation("heat2", SHAPE, directory=place, init="gaussian", memory="1MiB", threads=1)
    sim.run(steps, "none")
    if last:
        open_state(place).change(target_step=last)
    return oc.open(place)


def test_a_finished_run_asks_for_more_steps(tmp_path: Path) -> None:
    sim = make_run(tmp_path / "run.oc")
    with pytest.raises(InputError, match=r"the run is finished at step 3; say how many more steps, as in sim\.run"):
        sim.run()
    new = oc.Simulation("heat2", SHAPE, directory=tmp_path / "new.oc", memory="1MiB")
    with pytest.raises(InputError, match="steps are missing"):
        new.run()


def test_resume_says_nothing_about_steps_if_another_process_has_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "run.oc"
    make_run(place, last=600)
    with open_state(place).locked():
        assert call(["resume", str(place), "-t", "5"]) == 2
    said = capsys.readouterr()
    assert "is in use by another process" in said.err and "continuing" not in said.out
    assert call(["resume", str(place), "-t", "5"]) == 0
    assert "continuing from step 3 to step 8; an earlier command asked for step 600" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("last", "words", "command"),
    [(0, ["-t", "2000"], "outcrop resume {} -t 2000"), (10, [], "outcrop resume {}"),
     (10, ["-t", "7"], "outcrop resume {}"), (10, ["-t", "9"], "outcrop resume {} -t 9")],
)  # fmt: skip
def test_ctrl_c_before_the_first_pass_names_the_command_that_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    last: int, words: list[str], command: str,
) -> None:  # fmt: skip
    place = tmp_path / "run.oc"
    make_run(place, last=last)

    def interrupt(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Simulation, "prepare", interrupt)
    assert call(["resume", str(place), *words]) == INTERRUPTED
    said = capsys.readouterr().err
    assert said.rstrip("\n").endswith(f"step 3 is intact; go on with: {command.format(place)}")


def test_parameters_that_cannot_change_name_the_way_to_another_run(tmp_path: Path) -> None:
    place = tmp_path / "run.oc"
    given: dict[str, Any] = dict(init={"u": "gaussian", "v": 1}, memory="1MiB", force=True)
    given["snapshots"] = [oc.Snapshots(every=1)]
    sim = oc.Simulation("acoustic2", SHAPE, directory=place, params={"dt": 0.1}, **given)
    sim.run(2, "none")
    with pytest.raises(InputError, match=r"start another run from its state: .*init='.*run.oc'.*another directory"):
        oc.open(place, params={"dt": 0.05})
    sim = oc.Simulation("acoustic2", SHAPE, directory=place, params={"dt": 0.05}, **{**given, "init": str(place)})
    sim.run(2, "none")
    assert oc.open(place).step == 2
