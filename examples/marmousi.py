"""Compute one shot over the Marmousi model on a grid that is larger than the memory of the run.

    .venv/bin/python examples/marmousi.py [-d DIRECTORY] [--small]

The Marmousi model is extruded to three dimensions. A Ricker wavelet just below the surface sends out acoustic waves.
The stencil has order 8 in space. All sides except the surface absorb the waves. A line of receivers records the
pressure, and snapshots keep the vertical section through the shot. The program writes the run and two pictures,
`seismogram.png` and `snapshots.png`, to DIRECTORY (default `marmousi`).

The grid has 2401 x 1489 x 601 cells (length, width, depth). The values of one field take 8 GiB, and the run takes 48
GiB on disk. The run needs 512 MiB of memory and takes hours. The length is the streaming axis, because planes
perpendicular to the longest axis are the smallest. With `--small`, the grid has two million cells and the run takes
half a minute. To continue an interrupted run, repeat the same command.
"""

import lzma
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import options

import outcrop as oc
from outcrop.errors import InputError

MODEL = Path(__file__).parent / "data" / "marmousi_vp.npy.xz"
LENGTH, DEPTH = 12000.0, 3000.0  # length and depth of the model, in metres
PANELS = 6


@dataclass(frozen=True)
class Survey:
    """The sizes of a survey, in metres and seconds."""

    spacing: float
    width: float
    seconds: float
    sponge: int
    memory: str

    @property
    def shape(self) -> tuple[int, int, int]:
        """The numbers of cells of the grid along length, width and depth. The longest axis comes first and is the
        streaming axis, so that planes are small."""
        nz, ny, nx = (round(size / self.spacing) + 1 for size in (LENGTH, self.width, DEPTH))
        return nz, ny, nx

    @property
    def frequency(self) -> float:
        """The peak frequency of the Ricker wavelet, at most 25 Hz. The wavelet contains frequencies up to 2.5 times its
        peak frequency. At 1500 m/s, a wave of the highest frequency in the wavelet is at least four cells long."""
        return min(25.0, 1500.0 / (4 * 2.5 * self.spacing))

    @property
    def shot(self) -> tuple[float, float, float]:
        """The position of the shot along length, width and depth."""
        return 5000.0, round(self.width / self.spacing / 2) * self.spacing, 6 * self.spacing

    @property
    def line(self) -> np.ndarray:
        return np.linspace(500.0, LENGTH - 500.0, 221)


def load_model() -> np.ndarray:
    """Return the velocities of the model in m/s. The returned array has the shape (1601, 401): length and depth."""
    with lzma.open(MODEL) as source:
        return np.load(source) * np.float32(1000)


def ricker(frequency: float, dt: float, seconds: float) -> np.ndarray:
    """Return the Ricker wavelet with one value for each time step. The peak of the wavelet comes 1.2 periods after the
    start."""
    phase = (np.pi * frequency * (np.arange(round(seconds / dt)) * dt - 1.2 / frequency)) ** 2
    return (1 - 2 * phase) * np.exp(-phase)


def simulate(survey: Survey, directory: Path) -> oc.Simulation:
    """Make the run of the shot and compute all its steps. If the run already exists, compute only the missing steps."""
    model, shape, h = load_model(), survey.shape, survey.spacing
    stencil = oc.stencils.acoustic(order=8, ndim=3, sponge=True)
    v, step = oc.Field("v"), oc.Parameter("dt", 0.001)
    fastest = float(model.max())
    dt = 0.9 * oc.stencils.stable_limit(stencil, {"h": h}, [{"v": fastest, "damp": 0.0}])
    steps = round(survey.seconds / dt)
    if (directory / "manifest.json").exists():
        sim = oc.open(directory, memory=survey.memory)
        if sim.shape != shape:
            raise InputError(f"{directory} holds a run of {sim.shape} cells, not {shape}; choose another place with -d")
    else:
        _, middle, depth = survey.shot
        section = (slice(None), slice(round(middle / h), round(middle / h) + 1), slice(None))
        points = [(place, middle, depth) for place in survey.line]
        wavelet = ricker(survey.frequency, dt, survey.seconds)
        sim = oc.Simulation(
            stencil,
            shape,
            directory=directory,
            memory=survey.memory,
            params={"h": h},
            dt=dt,
            spacing=h,
            units="m",
            sources=[oc.Source("u", survey.shot, wavelet, scale=step**2 * v[0, 0, 0] ** 2)],
            receivers=[oc.Receivers("line", "u", points)],
            # the pressure is 0 at the start
            snapshots=oc.Snapshots(steps // PANELS, box=section, time_units="s", initial=False),
        )
        sides = ("z0", "z1", "y0", "y1", "x1")  # all sides except the surface
        damp = oc.stencils.sponge(shape, survey.sponge, velocity=fastest, spacing=h, sides=sides)
        sim.assign({"v": oc.resample(model, shape, axes="zx"), "damp": damp})
    if steps > sim.step:
        print(sim.run(steps - sim.step, progress="lines"))
    return sim


def draw_seismogram(sim: oc.Simulation, survey: Survey, path: Path) -> None:
    """Draw the pressure that the receivers recorded, over time and position. The drawn values are multiplied by the
    square root of time, so that late waves are visible."""
    traces, dt = sim.traces["line"], survey.seconds / len(sim.traces["line"])
    loud = traces * np.sqrt(np.arange(1, len(traces) + 1) * dt)[:, None]
    largest = np.percentile(np.abs(loud), 98)
    figure, axes = plt.subplots(figsize=(7, 6), layout="constrained")
    extent = (survey.line[0] / 1000, survey.line[-1] / 1000, survey.seconds, 0)
    axes.imshow(loud, cmap="gray", vmin=-largest, vmax=largest, aspect="auto", extent=extent)
    axes.plot(survey.shot[0] / 1000, 0, "*", color="tab:red", markersize=12, clip_on=False)
    axes.set(xlabel="distance (km)", ylabel="time (s)", title=f"Receivers {survey.shot[2]:g} m deep; shot at the star")
    options.save(figure, path, dpi=150)


def draw_snapshots(sim: oc.Simulation, survey: Survey, path: Path) -> None:
    """Draw the vertical section through the shot at several times. Each picture shows the wave drawn over the
    velocities of the model."""
    views, h = sim.snapshots["u"], survey.spacing
    velocity = sim["v"][:, round(survey.shot[1] / h)].T / 1000
    figure, panels = plt.subplots(PANELS // 2, 2, figsize=(13, 6.2), layout="constrained", sharex=True, sharey=True)
    extent = (-h / 2000, (LENGTH + h / 2) / 1000, (DEPTH + h / 2) / 1000, -h / 2000)
    for axes, step, wave in zip(panels.flat, views.steps, views, strict=False):
        plane = np.asarray(wave[:, 0]).T
        largest = np.percentile(np.abs(plane), 99.5) or 1.0
        loud = np.clip(plane / largest, -1, 1)
        back = axes.imshow(velocity, cmap="gray", extent=extent, aspect="equal")
        axes.imshow(loud, cmap="seismic", vmin=-1, vmax=1, alpha=np.sqrt(np.abs(loud)), extent=extent, aspect="equal")
        across, _, down = survey.shot
        axes.plot(across / 1000, down / 1000, "*", color="gold", markeredgecolor="black", markersize=11)
        axes.set_title(f"{step * survey.seconds / sim.step:.2f} s", fontsize=10)
    for axes in panels[-1]:
        axes.set_xlabel("distance (km)")
    for axes in panels[:, 0]:
        axes.set_ylabel("depth (km)")
    figure.colorbar(back, ax=panels, label="velocity (km/s)", shrink=0.8)
    options.save(figure, path, dpi=150)


def parse(argv: Sequence[str] | None) -> tuple[Path, Survey]:
    parser = options.new_parser(__doc__, "marmousi", "512MiB")
    parser.set_defaults(memory=None)  # the default depends on --small
    parser.add_argument("--small", action="store_true", help="25 m, a width of 1 km, 12 cells of sponge, 16 MiB")
    parser.add_argument("--spacing", type=float, help="metres between cells [5]")
    parser.add_argument("--width", type=float, help="metres along the axis on which the model does not depend [7440]")
    parser.add_argument("--seconds", type=float, default=2.4, help="simulated time [2.4]")
    parser.add_argument("--sponge", type=int, help="cells of the absorbing layers [40]")
    given = options.begin(parser, argv)
    spacing, width, sponge, memory = (25.0, 1000.0, 12, "16MiB") if given.small else (5.0, 7440.0, 40, "512MiB")
    survey = Survey(
        given.spacing or spacing, given.width or width, given.seconds, given.sponge or sponge, given.memory or memory
    )
    return given.directory, survey


def main(argv: Sequence[str] | None = None) -> None:
    directory, survey = parse(argv)
    sim = simulate(survey, directory / "run.oc")
    draw_seismogram(sim, survey, directory / "seismogram.png")
    draw_snapshots(sim, survey, directory / "snapshots.png")


if __name__ == "__main__":
    options.call(main)
