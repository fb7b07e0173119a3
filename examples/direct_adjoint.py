"""Compute a sensitivity: the effect of the algae in a lake at the start on the algae in a bay at the end.

    .venv/bin/python examples/direct_adjoint.py [--small] [--size 384] [--slow 50MB] [--memory 4MiB] [-d DIRECTORY]

Eddies carry algae through a lake. The algae grow until the water is full of algae, so the equation is not linear. The
measured quantity is the mean amount of algae in the bay at the end. The *sensitivity* is the derivative of the measured
quantity with respect to the algae in each cell at the start. One forward run and one adjoint run give the sensitivity
for all cells.

The equation is u_t + div(flow u) = mixing lap u + growth u (1 - u). In this equation, u is the amount of algae: 0 is
clear water, and 1 is the maximum. Lengths are in cells, and times are in steps. The outermost cells are the shore,
where u is 0. The derivative of the term growth u (1 - u) depends on u. Therefore each step of the adjoint run needs the
state of the same step of the forward run.

`direct_adjoint.png` shows the state at the end, the measured quantity, and the sensitivity at the start. To check the
sensitivity, the program computes two more forward runs, each time with a few additional algae at another place. For one
place of additional algae, the program also prints a finite difference. The program also compares the sensitivity with
the adjoint of a solver in NumPy.

The NumPy solver shows how you can use a trajectory in your own program. The NumPy solver keeps its states in
`oc.Trajectory`. The printed table has the times of the forward run and of the adjoint run of the NumPy solver. Each row
is for one place where the states are kept:

    none                  No state is kept, so there is no adjoint run.
    slow shared tier      Files. The program adds pauses, so that it transfers at most `--slow` bytes per second.
    files on the node     Files in DIRECTORY, as fast as the disk.
    memory of the node    The memory of the program.

The states of the NumPy solver take 1.9 GiB, or 72 MiB with `--small`. The program deletes the states.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import options
import sympy
from matplotlib.axes import Axes

import outcrop as oc
from outcrop.units import format_bytes, parse_bytes

STEPS_PER_CELL = 4.5
"""The number of steps for each cell of the lake's length. Because of this ratio, lakes of all sizes have similar
pictures."""
FRAMES = 60
BUFFERS = 3
"""The number of states that a trajectory may write or read in advance."""

SPEED = 0.4
"""The largest speed of the water, in cells for each step."""
MIXING = 0.02
"""The mixing coefficient, in cells² for each step. The upwind differences mix more strongly than this coefficient."""
GROWTH = 4.0
"""From the start to the end, a few algae in clear water grow by the factor exp(GROWTH)."""
BLOOMS = ((0.22, 0.30), (0.50, 0.80), (0.62, 0.22))
"""The centres (y, x) of the algae at the start, as fractions of the lake's length."""
BAY = (0.62, 0.55)
"""The lower left corner (y, x) of the bay. The bay is a square."""
BAY_LENGTH = 0.1
PATCH_RADIUS, PATCH_HEIGHT = 0.03, 0.03
"""The additional algae of `Lake.patch`: their radius, as a fraction of the lake's length, and the amount at their
centre."""
EDDIES = 5
"""The seed of the random numbers that make the eddies."""


# The problem: a lake with eddies and algae.


@dataclass(frozen=True)
class Lake:
    """A lake of size x size cells. The simulation has `steps` steps.

    `flow_y[y, x]` is the speed of the water at the face between the cells (y, x) and (y + 1, x). `flow_x[y, x]` is the
    speed at the face between (y, x) and (y, x + 1). `algae` has the algae at the start. All shapes are (size, size).
    """

    size: int
    steps: int
    flow_y: np.ndarray
    flow_x: np.ndarray
    algae: np.ndarray

    @property
    def growth(self) -> float:
        """The growth rate for each step."""
        return GROWTH / self.steps

    @property
    def bay(self) -> tuple[slice, slice]:
        """The cells (y, x) of the bay."""
        y, x = (slice(round(low * self.size), round((low + BAY_LENGTH) * self.size)) for low in BAY)
        return y, x

    @property
    def weights(self) -> np.ndarray:
        """The weight of each cell in the measured quantity. The measured quantity is a weighted sum, so its derivatives
        are the weights. The shape is (size, size)."""
        weights = np.zeros((self.size, self.size))
        weights[self.bay] = 1 / weights[self.bay].size
        return weights

    def patch(self, y: int, x: int) -> np.ndarray:
        """Return an array with a few algae around the cell (y, x). The shape is (size, size)."""
        rows, columns = np.mgrid[: self.size, : self.size]
        distance = np.hypot(rows - y, columns - x) / self.size / PATCH_RADIUS
        return on_water(np.where(distance < 3, PATCH_HEIGHT * np.exp(-(distance**2)), 0.0))


def make_lake(size: int, steps: int) -> Lake:
    """Return a lake with eddies. The flow is the curl of a stream function that is 0 on the shore. Therefore the amount
    of water that enters a cell is equal to the amount that leaves the cell."""
    corners = np.arange(size + 1) / size
    generator, stream = np.random.default_rng(EDDIES), np.zeros((size + 1, size + 1))
    for ky in range(1, 5):
        for kx in range(1, 5):
            weight = generator.standard_normal() / (ky**2 + kx**2)
            stream += weight * np.outer(np.sin(np.pi * ky * corners), np.sin(np.pi * kx * corners))
    flow_y, flow_x = -np.diff(stream, axis=1)[1:], np.diff(stream, axis=0)[:, 1:]
    scale = SPEED / max(abs(flow_y).max(), abs(flow_x).max())
    y, x = np.mgrid[:size, :size] / size
    algae = sum(0.5 * np.exp(-((y - low) ** 2 + (x - left) ** 2) / 0.06**2) for low, left in BLOOMS)
    return Lake(size, steps, scale * flow_y, scale * flow_x, on_water(np.asarray(algae)))


def on_water(values: np.ndarray) -> np.ndarray:
    """Set the values on the shore to 0, and return the array."""
    values[[0, -1]] = values[:, [0, -1]] = 0.0
    return values


# Outcrop: write the equation, run forward, run backward.


def equation() -> oc.Stencil:
    """Return the equation with upwind differences."""
    u, flow_y, flow_x = oc.Field("u"), oc.Field("flow_y"), oc.Field("flow_x")
    mixing, growth = oc.Parameter("mixing", MIXING), oc.Parameter("growth", 0.001)

    def flux(speed: sympy.Expr, near: sympy.Expr, far: sympy.Expr) -> sympy.Expr:
        """Return the flux from the cell `near` to the next cell `far`."""
        return sympy.Max(speed, 0) * near + sympy.Min(speed, 0) * far - mixing * (far - near)

    along_y = flux(flow_y[0, 0], u[0, 0], u[1, 0]) - flux(flow_y[-1, 0], u[-1, 0], u[0, 0])
    along_x = flux(flow_x[0, 0], u[0, 0], u[0, 1]) - flux(flow_x[0, -1], u[0, -1], u[0, 0])
    return oc.Stencil("algae", {u: u[0, 0] - along_y - along_x + growth * u[0, 0] * (1 - u[0, 0])})


def run_forward(
    lake: Lake, algae: np.ndarray, given: argparse.Namespace, history: oc.History | None = None
) -> oc.Simulation:
    """Compute all steps. `algae` contains the values at the start. If `history` is given, the run keeps its states."""
    sim = oc.Simulation(
        equation(),
        (lake.size, lake.size),
        dtype="float64",
        directory=given.directory / ("changed.oc" if history is None else "run.oc"),
        memory=given.memory,
        params={"growth": lake.growth},
        snapshots=[oc.Snapshots(max(1, lake.steps // FRAMES), "u", box=list(lake.bay))],
        force=True,
    )
    sim.assign({"u": algae, "flow_y": lake.flow_y, "flow_x": lake.flow_x})
    report = sim.run(lake.steps, progress="none", history=history)
    if history:
        print(report)
    return sim


def sensitivity_of(lake: Lake, sim: oc.Simulation) -> np.ndarray:
    """Return the sensitivity: how the mean amount of algae in the bay at the end changes with the algae in each cell at
    the start."""
    adjoint = sim.adjoint({"u": lake.weights}, wrt="u", force=True)
    print(adjoint.run(progress="none"))
    gradient: np.ndarray = adjoint.gradients["u"][:]
    return gradient


@dataclass(frozen=True)
class Bay:
    """The mean amount of algae in the bay. `last` is the mean at the end. `means` has the mean after each step in
    `steps`."""

    last: float
    steps: np.ndarray
    means: np.ndarray


def measure(lake: Lake, sim: oc.Simulation) -> Bay:
    """Return the measured quantity of a run that is complete."""
    views, last = sim.snapshots["u"], float(sim["u"][:][lake.bay].mean())
    means = [float(np.mean(view)) for view in views]
    return Bay(last, np.array([*views.steps, lake.steps]), np.array([*means, last]))


def places(lake: Lake, sensitivity: np.ndarray) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return two cells (y, x) at the same distance from the bay: the most sensitive cell, and the least sensitive
    cell."""
    y, x = np.mgrid[: lake.size, : lake.size]
    bay_y, bay_x = (side.start + (side.stop - side.start) / 2 for side in lake.bay)
    distance = np.hypot(y - bay_y, x - bay_x)
    most = np.unravel_index(np.argmax(sensitivity), sensitivity.shape)
    shore = lake.size // 10
    water = np.zeros(sensitivity.shape, bool)
    water[shore:-shore, shore:-shore] = True
    others = np.where(water & (abs(distance - distance[most]) < 1), sensitivity, np.inf)
    least = np.unravel_index(np.argmin(others), others.shape)
    return (int(most[0]), int(most[1])), (int(least[0]), int(least[1]))


# Your own program: a solver in NumPy that keeps its states in a trajectory.


class Solver:
    """A solver in NumPy: `forward` computes a step, and `backward` computes the adjoint of a step."""

    def __init__(self, lake: Lake) -> None:
        up, right = lake.flow_y[:-1], lake.flow_x[:, :-1]
        self.growth = lake.growth
        # The flux through the face between two cells is near * (algae in the lower or left cell) + far * (algae in the
        # other cell).
        self.near_y, self.far_y = np.maximum(up, 0) + MIXING, np.minimum(up, 0) - MIXING
        self.near_x, self.far_x = np.maximum(right, 0) + MIXING, np.minimum(right, 0) - MIXING

    def forward(self, u: np.ndarray) -> np.ndarray:
        """Return the state one step after the state `u`."""
        new = u + self.growth * u * (1 - u)
        flux = self.near_y * u[:-1] + self.far_y * u[1:]
        new[:-1] -= flux
        new[1:] += flux
        flux = self.near_x * u[:, :-1] + self.far_x * u[:, 1:]
        new[:, :-1] -= flux
        new[:, 1:] += flux
        return on_water(new)

    def backward(self, after: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Return the derivative of the measured quantity with respect to the state `u`. `after` is the derivative with
        respect to the next state, and must be 0 on the shore."""
        before = after * (1 + self.growth * (1 - 2 * u))
        of_flux = after[1:] - after[:-1]
        before[:-1] += self.near_y * of_flux
        before[1:] += self.far_y * of_flux
        of_flux = after[:, 1:] - after[:, :-1]
        before[:, :-1] += self.near_x * of_flux
        before[:, 1:] += self.far_x * of_flux
        return on_water(before)


class SlowTier:
    """A simulated connection that transfers `bytes_per_second`. Each call of `transfer` represents the transfer of one
    state in the background. `transfer` waits if BUFFERS transfers are not complete yet. If `bytes_per_second` is None,
    no call of `transfer` waits."""

    def __init__(self, bytes_per_second: float | None) -> None:
        self.bytes_per_second, self.busy_until = bytes_per_second, time.perf_counter()

    def transfer(self, bytes_: int) -> None:
        if self.bytes_per_second:
            seconds, now = bytes_ / self.bytes_per_second, time.perf_counter()
            self.busy_until = max(self.busy_until, now) + seconds
            time.sleep(max(0.0, self.busy_until - BUFFERS * seconds - now))


@dataclass(frozen=True)
class Timed:
    """The result of a measurement: the seconds of the forward run and of the adjoint run of the NumPy solver, and the
    sensitivity. The sensitivity has the shape (size, size)."""

    forward: float
    adjoint: float
    sensitivity: np.ndarray


def run_solver(lake: Lake, directory: Path, memory: int | None, bytes_per_second: float | None) -> Timed:
    """Run the NumPy solver forward and push each state. Then pop the states and run the solver backward. `memory` is
    the number of bytes of memory for states. States that do not fit into this memory are in files in `directory`, which
    are deleted at the end."""
    solver, u, sensitivity = Solver(lake), lake.algae, lake.weights
    with (
        tempfile.TemporaryDirectory(dir=directory) as folder,
        oc.Trajectory(f"{folder}/states", {"u": u.shape}, states=lake.steps, memory=memory, buffers=BUFFERS) as states,
    ):
        begin, tier = time.perf_counter(), SlowTier(bytes_per_second)
        for _ in range(lake.steps):
            states.push({"u": u})
            tier.transfer(u.nbytes)
            u = solver.forward(u)
        middle, tier = time.perf_counter(), SlowTier(bytes_per_second)
        while len(states):
            _, state = states.pop()
            tier.transfer(u.nbytes)
            sensitivity = solver.backward(sensitivity, state["u"])
        end = time.perf_counter()
    return Timed(middle - begin, end - middle, sensitivity)


def compare_tiers(lake: Lake, given: argparse.Namespace) -> np.ndarray:
    """Print the times of the NumPy solver for each place where the states are kept. Return the sensitivity."""
    solver, u, begin = Solver(lake), lake.algae, time.perf_counter()
    for _ in range(lake.steps):
        u = solver.forward(u)
    bare = time.perf_counter() - begin
    bytes_, directory = u.nbytes * lake.steps, given.directory
    found = {
        f"slow shared tier, {given.slow / 1e6:g} MB/s": run_solver(lake, directory, None, given.slow),
        "files on the node": run_solver(lake, directory, None, None),
        "memory of the node": run_solver(lake, directory, bytes_, None),
    }
    print(f"NumPy solver, {lake.steps} states, {format_bytes(bytes_)}")
    print(f"{'place of the states':<34}{'forward':>10}{'adjoint':>10}")
    print(f"{'none':<34}{bare:>8.2f} s")
    for name, timed in found.items():
        print(f"{name:<34}{timed.forward:>8.2f} s{timed.adjoint:>8.2f} s")
    first, *others = (timed.sensitivity for timed in found.values())
    print(f"same bits: {all(np.array_equal(first, other) for other in others)}")
    return first


# The picture.


def draw_lake(panel: Axes, lake: Lake, field: np.ndarray, color_map: str, label: str) -> None:
    """Draw a field over the lake, with the bay as a white square."""
    image = panel.imshow(field, cmap=color_map, origin="lower", vmin=0, vmax=max(float(field.max()), 1e-300))
    rows, columns = lake.bay
    corner, width, height = (columns.start, rows.start), columns.stop - columns.start, rows.stop - rows.start
    panel.add_patch(plt.Rectangle(corner, width, height, fill=False, edgecolor="white", linewidth=1.8))
    panel.annotate("bay", corner, (0, -4), textcoords="offset points", color="white", va="top", fontsize=11)
    panel.set(xticks=[], yticks=[])
    panel.figure.colorbar(image, ax=panel, label=label, shrink=0.8)


def draw(
    lake: Lake, last: np.ndarray, sensitivity: np.ndarray, bays: Sequence[Bay], expected: Sequence[float], path: Path
) -> None:
    """Draw the three panels. `bays` has the run without additional algae, and one run for each of the two places.
    `expected` has the final values that the sensitivity predicts for the last two of these runs."""
    figure, panels = plt.subplots(1, 3, figsize=(17, 5.6), layout="constrained")
    draw_lake(panels[0], lake, last, "viridis", "algae (1: full)")
    points = np.arange(lake.size)
    panels[0].streamplot(points, points, lake.flow_x, lake.flow_y, color="white", linewidth=0.5, density=1.2)
    panels[0].set(xlim=(-0.5, lake.size - 0.5), ylim=(-0.5, lake.size - 0.5))
    panels[0].set_title("1. The state at the end")
    panels[0].set_xlabel("Eddies (lines) have carried the algae.\nWe measure the mean of the algae in the bay.")

    marks, colors = ("*", "P"), ("tab:red", "tab:blue")
    panels[1].plot(bays[0].steps, bays[0].means, color="black", linewidth=5, alpha=0.35, label="the run of panel 1")
    for bay, value, mark, color, name in zip(bays[1:], expected, marks, colors, ("star", "cross"), strict=True):
        panels[1].plot(bay.steps, bay.means, color=color, label=f"a few more algae at the {name}")
        panels[1].plot(
            lake.steps, value, mark, color=color, markersize=13, markeredgecolor="black", clip_on=False, zorder=3
        )
    panels[1].plot([], [], "*", color="white", markeredgecolor="black", markersize=11, label="predicted by panel 3")
    panels[1].set(xlim=(0, lake.steps), ylabel="mean of the algae in the bay", title="2. The measured quantity")
    panels[1].set_ylim(0, 1.4 * max(float(bay.means.max()) for bay in bays))
    panels[1].legend(loc="upper left")
    panels[1].set_xlabel("step\nThe same few algae matter at the star, and not at the cross.")

    draw_lake(panels[2], lake, sensitivity * np.count_nonzero(lake.weights), "inferno", "gain")
    for (y, x), mark, color in zip(places(lake, sensitivity), marks, colors, strict=True):
        panels[2].plot(x, y, mark, color=color, markersize=15, markeredgecolor="white")
    panels[2].contour(lake.algae, levels=[0.2], colors="white", linewidths=1, linestyles="dashed")
    panels[2].set_title("3. The sensitivity at the start")
    panels[2].set_xlabel(
        "Algae here at the start become gain times as\nmany algae in the bay. Dashed: algae at the start."
    )
    options.save(figure, path)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = options.new_parser(__doc__, "direct_adjoint", "4MiB")
    parser.add_argument("--small", action="store_true", help="128 cells along each axis")
    parser.add_argument("--size", type=options.at_least(32), metavar="N", help="cells along each axis [384]")
    parser.add_argument("--slow", default="50MB", metavar="BYTES", help="bytes per second of the slow tier [50MB]")
    given = options.begin(parser, argv)
    given.size = given.size or (128 if given.small else 384)
    given.slow = parse_bytes(given.slow)
    return given


def main(argv: Sequence[str] | None = None) -> None:
    given = parse(argv)
    lake = make_lake(given.size, round(STEPS_PER_CELL * given.size))

    sim = run_forward(lake, lake.algae, given, oc.History("all"))
    sensitivity = sensitivity_of(lake, sim)
    sim.history.free()

    def changed(addition: np.ndarray) -> Bay:
        return measure(lake, run_forward(lake, lake.algae + addition, given))

    patches = [lake.patch(*place) for place in places(lake, sensitivity)]
    bays = [measure(lake, sim), *(changed(patch) for patch in patches)]
    expected = [bays[0].last + float((sensitivity * patch).sum()) for patch in patches]
    draw(lake, sim["u"][:], sensitivity, bays, expected, given.directory / "direct_adjoint.png")

    derivative = float((sensitivity * patches[0]).sum())
    difference = (changed(0.001 * patches[0]).last - changed(-0.001 * patches[0]).last) / 0.002
    print(f"derivative for algae at the star: adjoint {derivative:.9g}, finite difference {difference:.9g}")
    error = abs(compare_tiers(lake, given) - sensitivity).max() / sensitivity.max()
    print(f"largest difference from the adjoint of the NumPy solver: {error:.1e} of the largest sensitivity")


if __name__ == "__main__":
    options.call(main)
