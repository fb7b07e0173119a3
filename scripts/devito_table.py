"""Try the operators of Devito's examples, and write docs/reference/devito.md with the results.

    python scripts/devito_table.py [TREE] [--only TEXT]

TREE is a source tree of Devito, with a folder `examples`. Without TREE, the script uses the examples that are installed
with Devito. Each case of the script runs in its own process. A case is a solver of examples/seismic, or the code of a
tutorial. The script runs the first application of each Operator twice: by Devito in memory, and by Outcrop in a
temporary directory. For each Operator, the table has the largest difference between the two results, divided by the
largest value. If Outcrop refuses the Operator, the table has Outcrop's message instead. With `--only`, the script tries
only the cases whose names contain TEXT, prints their rows, and writes no page.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "devito.md"
LARGE = 1e-5
MAX_SECONDS = 120
"""The maximum time of a case."""

_SMALL = "shape=(31, 32), spacing=(15., 15.), tn=90., nbl=8"
_CUBE = "shape=(16, 15, 14), spacing=(20., 20., 20.), tn=60., nbl=6"
_SEISMIC = "from examples.seismic.{0} import {1} as setup; s = setup({2})\n"


def _solver(folder: str, setup: str, options: str, *calls: str) -> str:
    return "import numpy as np\n" + _SEISMIC.format(folder, setup, options) + "\n".join(calls)


_BORN = "s.jacobian(np.pad(np.full(s.model.shape, 0.1, 'float32'), s.model.nbl))"
SOLVERS = {
    "seismic/acoustic, OT2": _solver(
        "acoustic.acoustic_example", "acoustic_setup", _CUBE, "rec, u, _ = s.forward()", "s.adjoint(rec)", _BORN,
    ),
    "seismic/acoustic, OT2, gradient": _solver(
        "acoustic.acoustic_example", "acoustic_setup", _SMALL, "rec, u, _ = s.forward(save=True)",
        "s.jacobian_adjoint(rec, u)",
    ),
    "seismic/acoustic, OT4": _solver(
        "acoustic.acoustic_example", "acoustic_setup", _SMALL + ", kernel='OT4'", "rec, u, _ = s.forward()",
        "s.adjoint(rec)",
    ),
    "seismic/acoustic, free surface": _solver(
        "acoustic.acoustic_example", "acoustic_setup", _SMALL + ", fs=True", "s.forward()"
    ),
    "seismic/tti, centered": _solver(
        "tti.tti_example", "tti_setup", _CUBE, "rec, u, v, _ = s.forward()", "s.adjoint(rec)", _BORN
    ),
    "seismic/tti, centered, gradient": _solver(
        "tti.tti_example", "tti_setup", _SMALL, "rec, u, v, _ = s.forward(save=True)", "s.jacobian_adjoint(rec, u, v)"
    ),
    "seismic/tti, staggered": _solver(
        "tti.tti_example", "tti_setup", _CUBE + ", kernel='staggered'", "rec, u, v, _ = s.forward()", "s.adjoint(rec)"
    ),
    "seismic/elastic": _solver("elastic.elastic_example", "elastic_setup", _CUBE, "s.forward()"),
    "seismic/viscoelastic": _solver(
        "viscoelastic.viscoelastic_example", "viscoelastic_setup", _CUBE + ", constant=False", "s.forward()"
    ),
    "seismic/self_adjoint": _solver(
        "self_adjoint.example_iso", "acoustic_sa_setup", _SMALL, "rec, u, _ = s.forward(save=True)",
        "s.adjoint(rec)", "import devito; dm = devito.Function(name='dm', grid=s.model.grid, space_order=8)",
        "dm.data[:] = 0.1; s.jacobian(dm)", "s.jacobian_adjoint(rec, u)",
    ),
} | {
    f"seismic/viscoacoustic, {kernel}, order {order} in time": _solver(
        "viscoacoustic.viscoacoustic_example", "viscoacoustic_setup",
        f"{_SMALL}, kernel='{kernel}', time_order={order}", *calls,
    )
    for kernel in ("sls", "kv", "maxwell")
    for order in (1, 2)
    for calls in (["rec, p, v, _ = s.forward()", "s.adjoint(rec)", *([_BORN] if kernel == "sls" else [])],)
}  # fmt: skip
TUTORIALS = (
    "cfd/01_convection", "cfd/02_convection_nonlinear", "cfd/03_diffusion", "cfd/03_diffusion_nonuniform",
    "cfd/04_burgers", "cfd/05_laplace", "cfd/06_poisson", "cfd/07_cavity_flow", "cfd/08_shallow_water_equation",
    "cfd/09_Darcy_flow_equation", "seismic/abc_methods/02_damping", "seismic/abc_methods/03_pml",
    "seismic/abc_methods/04_habc", "seismic/tutorials/01_modelling", "seismic/tutorials/02_rtm",
    "seismic/tutorials/05_staggered_acoustic", "seismic/tutorials/06_elastic",
    "seismic/tutorials/06_elastic_varying_parameters", "seismic/tutorials/07_DRP_schemes",
    "seismic/tutorials/08_snapshotting", "seismic/tutorials/09_viscoelastic", "seismic/tutorials/11_viscoacoustic",
    "seismic/tutorials/15_tti_qp_pure", "seismic/tutorials/16_ader_fd", "seismic/tutorials/17_fourier_mode",
    "seismic/self_adjoint/sa_01_iso_implementation1", "userapi/03_subdomains", "userapi/04_boundary_conditions",
    "userapi/05_conditional_dimension",
)  # fmt: skip


def code_of(tree: Path, name: str) -> str:
    """Return the program of a case. The program of a tutorial is the code of all cells of its notebook, without special
    commands of notebooks."""
    if name in SOLVERS:
        return SOLVERS[name]
    cells = json.loads((tree / "examples" / f"{name}.ipynb").read_text())["cells"]
    lines = [line for cell in cells if cell["cell_type"] == "code" for line in ("".join(cell["source"])).split("\n")]
    return "\n".join(line if not line.lstrip().startswith(("%", "!")) else "" for line in lines)


def run_case(tree: Path, name: str, is_double: bool) -> None:
    """Run a case, and print a JSON object for each Operator of the case. If `is_double` is true, all grids of the case
    use float64."""
    import warnings

    warnings.simplefilter("ignore")
    os.environ["MPLBACKEND"] = "Agg"
    sys.path.insert(0, str(tree))
    import devito

    from outcrop.language.devito import keep_equations

    devito.configuration["log-level"] = "ERROR"
    make = devito.Grid.__init__
    if is_double:
        devito.Grid.__init__ = lambda *given, **options: make(*given, **options | {"dtype": np.float64})
    output, sys.stdout = sys.stdout, sys.stderr
    with (
        keep_equations(),
        _tried(devito, lambda row: print(json.dumps(row), file=output, flush=True)),
        tempfile.TemporaryDirectory(prefix="outcrop-devito-") as folder,
    ):
        os.chdir(folder)
        exec(compile(code_of(tree, name), name, "exec"), {"__name__": name})


@contextlib.contextmanager
def _tried(devito: Any, report: Any) -> Iterator[None]:
    """Inside this context, Outcrop also computes the first application of each Operator."""
    apply, seen = devito.Operator.apply, []

    def spy(operator: Any, **options: Any) -> Any:
        steps_in_time = any(getattr(one, "is_TimeFunction", False) for one in operator._writes)
        if any(operator is one for one in seen) or not steps_in_time:  # other Operators only prepare values
            return apply(operator, **options)
        seen.append(operator)
        try:
            trial = Trial(operator, options)
        except Exception as error:
            report({"operator": operator.name, "result": f"refused: {str(error) or repr(error)}"})
            return apply(operator, **options)
        summary = apply(operator, **options)
        report({"operator": operator.name, "result": trial.compare()})
        return summary

    devito.Operator.apply = spy
    devito.Operator.__call__ = spy
    yield
    devito.Operator.apply = devito.Operator.__call__ = apply


SAVED: list[Trial] = []
"""The runs that keep all their states. Later Operators can read these states."""


class Trial:
    """A run in which Outcrop computes an Operator of Devito. The objects in `options` replace the Operator's own
    objects of the same name, as in Devito."""

    def __init__(self, operator: Any, options: dict[str, Any]) -> None:
        import outcrop as oc

        own = {one.name: one for one in (*operator._reads, *operator._writes) if hasattr(one, "data")}
        own |= {one.name: one for one in operator.parameters if getattr(one, "is_Constant", False)}
        known = operator.arguments(**options)
        self.times = int(known.get("time_m", 0)), int(known.get("time_M", 0))
        self.results = dict(own)
        for name, one in own.items():
            given = options.get(name)
            if given is not None and given is not one:
                self.results[name] = given if hasattr(given, "data") else one
                _copy(given, one)
            elif getattr(one, "is_DiscreteFunction", False):
                _ = one.data  # Devito's values are 0 if a script gives none
        steps = self.times[1] - self.times[0] + 1
        dt = float(known.get("dt", 1.0))
        self.folder = tempfile.TemporaryDirectory()
        run: dict[str, Any] = {"dt": dt, "directory": f"{self.folder.name}/run.oc", "memory": "1GiB", "unstable": True}
        try:
            self.sim = oc.Simulation(operator, **run)
        except oc.errors.InputError as error:
            if "of another run" not in str(error) or not SAVED:
                raise
            given = {name: one.name for name, one in options.items() if type(getattr(one, "save", None)) is int}
            names = {name: there for name, there in given.items() if name != there}
            self.sim = oc.Simulation(operator, **run, saved=(SAVED[-1].sim, names))
        lowered = self.lowered = self.sim.setup.lowered
        assert lowered is not None
        first = self.times[0] if lowered.direction == 1 else self.times[1]
        if lowered.first_time != first and (lowered.injections or lowered.samplings or lowered.signals):
            raise ValueError(f"the script starts at time {first}, and Outcrop at time {lowered.first_time}")
        self.steps = steps
        saves = any(not one.name for one in lowered.saved)
        self.sim.run(steps, progress="none", history="all" if saves else None)
        if saves:
            SAVED.append(self)

    def compare(self) -> str:
        """Return the largest difference of all fields and receivers, relative to the largest value."""
        lowered, worst = self.lowered, 0.0
        first = self.times[0] if lowered.direction == 1 else self.times[1]
        for name, function in lowered.functions.items():
            if name in lowered.static_fields:
                continue
            there, last = self.results[name], first + lowered.direction * self.steps
            want = there.data[last % there.shape_allocated[0]] if function.is_TimeFunction else there.data
            worst = max(worst, _difference(self.sim[name][...], np.asarray(want)))
        rows = first + lowered.direction * np.arange(self.steps)
        for name in lowered.receivers:
            worst = max(worst, _difference(self.sim.traces[name], np.asarray(self.results[name].data)[rows]))
        return f"{worst:.1e}"


def _copy(given: Any, own: Any) -> None:
    """Copy the values of the object `given` to `own`, the Operator's own object. A script passes `given` to `apply`."""
    if getattr(own, "is_Constant", False):
        own.data = getattr(given, "data", given)
    elif hasattr(given, "data_with_halo"):
        if own.shape == given.shape:
            own.data_with_halo[:] = given.data_with_halo
        else:
            own.data[:] = given.data
        if hasattr(given, "coordinates"):
            own.coordinates.data[:] = given.coordinates.data
    else:
        own.data[:] = given


def _difference(got: Any, want: Any) -> float:
    largest = float(np.abs(want).max())
    return float(np.abs(np.asarray(got, np.float64) - want).max()) / (largest or 1.0)


def results(tree: Path, name: str) -> list[dict[str, str]]:
    """Return the rows of a case. If a difference of a case is above LARGE, the case is run again in float64. In
    float64, rounding errors are so small that an error in the translation of an equation becomes visible."""
    rows = rows_of(tree, name)
    large = [row["result"] for row in rows if row["result"][:1].isdigit() and float(row["result"]) > LARGE]
    if large:
        for row, double in zip(rows, rows_of(tree, name, "--double"), strict=False):
            if row["result"] in large and double["result"][:1].isdigit():
                row["result"] += f" (in float64: {double['result']})"
    return rows


def rows_of(tree: Path, name: str, *options: str) -> list[dict[str, str]]:
    """Run a case in a process of its own, and return its rows for the table."""
    command = [sys.executable, __file__, str(tree), "--case", name, *options]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=MAX_SECONDS)
        output, ended = done.stdout, "" if done.returncode == 0 else done.stderr.strip().split("\n")[-1]
    except subprocess.TimeoutExpired as error:
        output = error.stdout.decode() if isinstance(error.stdout, bytes) else error.stdout or ""
        ended = f"stopped after {MAX_SECONDS} s"
    rows = [{"case": name, **json.loads(line)} for line in output.splitlines() if line.startswith("{")]
    if ended or not rows:
        ended = f"the script ends: {ended}" if ended else "no Operator steps in time"
        rows.append({"case": name, "operator": "", "result": ended})
    return rows


BEGIN = """# Devito's examples

This page is for users of [Devito](../how-to/devito.md) who want to know what runs. `scripts/devito_table.py` runs the
solvers in Devito's folder `examples/seismic` on small grids. It also runs the code of Devito's tutorials. The table has
a row for each Operator of an example. If Outcrop runs the Operator, the row contains a number. To compute this number,
the script compares each field and each receiver of Outcrop with Devito after the run. It divides the largest difference
by the largest value. If Outcrop refuses the Operator, the row contains the message of Outcrop.

The table was made with Devito {version} in float32. Differences above 1e-5 are rounding errors. Devito multiplies the
factors of an equation in another order. It also rounds 1/h to six digits when it computes the positions of sources. For
most of these rows, the table also has the difference in float64.

In one test, Devito in float32 differed by 2.1e-5 from Devito in float64. Outcrop in float32 differed by 3.9e-6 from
Devito in float64. This test used the acoustic solver with layers, two axes, order 4, h = 15 m and 37 steps.

| example | Operator | difference, or message |
|---|---|---|
"""


def page(rows: list[dict[str, str]], version: str) -> str:
    lines = []
    for row in rows:
        text = row["result"].replace("|", "\\|").replace("<", "&lt;")
        lines.append(f"| {row['case']} | {row['operator']} | {text} |")
    return BEGIN.format(version=version) + "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", nargs="?", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--double", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    tree = options.tree
    if tree is None:
        found = importlib.util.find_spec("examples.seismic")
        if found is None or found.origin is None:
            sys.exit("Devito's examples are not installed; give the path of a source tree of Devito")
        tree = Path(found.origin).parents[2]
    if options.case:
        run_case(tree, options.case, options.double)
        return
    rows = []
    for name in (*SOLVERS, *TUTORIALS):
        if options.only in name:
            rows += results(tree, name)
            for row in rows[-6:]:
                if row["case"] == name:
                    print(f"{name}: {row['operator']}: {row['result']}", flush=True)
    if not options.only:
        import devito

        PAGE.write_text(page(rows, devito.__version__))


if __name__ == "__main__":
    main()
