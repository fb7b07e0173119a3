"""Make an image of the reflectors of the Marmousi model by reverse-time migration.

    .venv/bin/python examples/rtm.py [-d DIRECTORY] [--small]

Each shot has three runs:

1. A run in the true model records the data of the shot. In a real survey, the data are measured.
2. A run in a smoothed model keeps every 8th state in a history. The smoothed model has no sharp reflectors. The
   residual is the traces of the smoothed model minus the data of the true model. Therefore the residual contains the
   reflections.
3. The adjoint run sends the residual back from the receivers, and reads the states of the run in the smoothed model in
   reverse order. The adjoint run computes the gradient of the misfit with respect to the velocity. The gradient of a
   shot is the image of this shot.

`rtm.png` shows both models, the sum of the images, and the reflectors of the true model for comparison. The program
keeps the result of each shot in a file in DIRECTORY (default `rtm`). To continue after an interruption, repeat the
command of the interrupted program.

The grid has 1761 x 561 cells of 7.5 m, and each run has 3766 steps. A shot takes one to two minutes on two cores, and
2.1 GB on disk. The history of a shot takes 1.9 GB of the space on disk. Each shot uses the space of the previous shot
again. With 40 shots, the program takes about an hour. With `--small`, the cells are three times as wide, and 8 shots
take 45 seconds and 130 MB.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import options
from marmousi import load_model, ricker

import outcrop as oc
from outcrop.errors import InputError

SAMPLE = 7.5
"""The distance between the samples of the model, in metres."""
SECONDS = 3.0
"""The recorded time. Waves return from the deepest reflectors within this time."""
SPONGE_METRES = 600.0
"""The thickness of the absorbing layers around the model."""
MUTED_METRES = 200.0
"""The image is 0 down to this depth, because it has artefacts near sources and receivers. Below this depth, the image
grows to its full strength over the same distance."""
BETWEEN_STATES = 8
"""The history keeps every 8th state. These states are enough, because eight steps are shorter than half a period of the
highest frequency."""


@dataclass(frozen=True)
class Survey:
    """The sizes of a survey. In the grid, the width of a cell is `every` samples of the model."""

    every: int
    shots: int

    @property
    def spacing(self) -> float:
        return SAMPLE * self.every

    @property
    def frequency(self) -> float:
        """The peak frequency of the Ricker wavelet. The wavelet contains frequencies up to 2.5 times its peak
        frequency. At 1500 m/s, a wave of the highest frequency in the wavelet is four cells long."""
        return 1500.0 / (4 * 2.5 * self.spacing)

    @property
    def smooth_metres(self) -> float:
        """The standard deviation of the Gaussian that smooths the model, at most 150 m. The standard deviation is 0.4
        wavelengths at 2500 m/s. This standard deviation is large enough to remove all reflections, and small enough to
        keep the right depths in the image."""
        return min(150.0, 0.4 * 2500.0 / self.frequency)

    @property
    def sponge(self) -> int:
        return round(SPONGE_METRES / self.spacing)

    def inside(self) -> tuple[slice, slice]:
        """The index of the cells of the model in the grid. The grid is the model with a sponge on each side."""
        return slice(self.sponge, -self.sponge), slice(self.sponge, -self.sponge)

    def points(self, cells: np.ndarray) -> np.ndarray:
        """Return the coordinates, in metres, of points that are two cells below the surface. `cells` contains their
        positions along the length, in cells."""
        return (np.stack([cells, np.full(len(cells), 2)], axis=1) + self.sponge) * self.spacing


@dataclass(frozen=True)
class Models:
    """The true model and the smoothed model in m/s. Both have the shape (length, depth)."""

    true: np.ndarray
    smooth: np.ndarray

    @classmethod
    def of(cls, survey: Survey) -> "Models":
        true = load_model()[:: survey.every, :: survey.every]
        slowness = smoothed(1 / true, survey.smooth_metres / survey.spacing)
        # Near the surface, the smoothed model is equal to the true model, so that the direct waves in both models are
        # equal.
        slowness[:, :4] = 1 / true[:, :4]
        return cls(true, (1 / slowness).astype(true.dtype))


def smoothed(values: np.ndarray, width: float) -> np.ndarray:
    """Return the convolution with a Gaussian. `width` is its standard deviation in cells. In the convolution, values
    outside the array are equal to the nearest value of the array."""
    reach = math.ceil(3 * width)
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / width) ** 2)
    for axis in range(values.ndim):
        pad = [(reach, reach) if one == axis else (0, 0) for one in range(values.ndim)]
        outer = np.pad(values, pad, mode="edge")
        values = np.apply_along_axis(np.convolve, axis, outer, weights / weights.sum(), mode="valid")
    return values


def run_shot(
    survey: Survey, models: Models, model: np.ndarray, cell: int, directory: Path, memory: str,
    history: oc.History | None = None,
) -> oc.Simulation:  # fmt: skip
    """Run the shot at `cell` in `model`, and return the simulation. In the shot, a line of receivers records the
    pressure."""
    h, stencil = survey.spacing, oc.stencils.acoustic(order=8, ndim=2, sponge=True)
    fastest = float(models.true.max())
    dt = 0.9 * oc.stencils.stable_limit(stencil, {"h": h}, [{"v": fastest, "damp": 0.0}])
    velocity = np.pad(model, survey.sponge, mode="edge")
    # The wave equation multiplies a source by dt^2 v^2. `values` contains the factor dt^2 v^2. If `scale` contained v,
    # the source would depend on v, and the gradient with respect to v would change.
    values = (dt * model[cell, 2]) ** 2 * ricker(survey.frequency, dt, SECONDS)
    sim = oc.Simulation(
        stencil,
        velocity.shape,
        directory=directory,
        memory=memory,
        params={"h": h},
        dt=dt,
        spacing=h,
        units="m",
        sources=[oc.Source("u", survey.points(np.array([cell])), values)],
        receivers=[oc.Receivers("line", "u", survey.points(np.arange(0, len(model), 2)))],
        force=True,
    )
    sim.assign({"v": velocity, "damp": oc.stencils.sponge(velocity.shape, survey.sponge, velocity=fastest, spacing=h)})
    sim.run(len(values), progress="none", history=history)
    return sim


def migrate(survey: Survey, models: Models, cell: int, directory: Path, memory: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the gradient and the illumination of a shot. The illumination is the sum of the squared pressure of the
    shot's wave in each cell."""
    inside = survey.inside()
    true = run_shot(survey, models, models.true, cell, directory / "true.oc", memory)
    sim = run_shot(survey, models, models.smooth, cell, directory / "smooth.oc", memory, oc.History(BETWEEN_STATES))
    residual = sim.traces["line"] - true.traces["line"]
    adjoint = sim.adjoint({"line": residual}, wrt=["v"], force=True)
    adjoint.run(progress="none")
    gradient: np.ndarray = adjoint.gradients["v"][:][inside]
    states, illumination = sim.history["u"], np.zeros(gradient.shape)
    for number in range(len(states)):
        illumination += states[number][inside].astype(float) ** 2
    sim.history.free()
    return gradient, illumination


def kept(survey: Survey, models: Models, directory: Path, memory: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the sum of all gradients, and the sum of all illuminations. Shots whose results are already in files are
    not computed again."""
    cells = np.linspace(0, len(models.true) - 1, survey.shots + 2).round().astype(int)[1:-1]
    sums = np.zeros((2, *models.true.shape))
    for number, cell in enumerate(cells):
        path, same = directory / f"shot-{number:03d}.npz", np.array([*asdict(survey).values(), cell])
        if path.exists():
            with np.load(path) as found:
                if not np.array_equal(found["survey"], same):
                    raise InputError(f"{path} is a shot of another survey; choose another place with -d")
                both = found["both"]
        else:
            both = np.array(migrate(survey, models, int(cell), directory, memory))
            np.savez(directory / "new.npz", both=both, survey=same)
            (directory / "new.npz").rename(path)
            print(f"shot {number + 1} of {len(cells)} is complete", flush=True)
        sums += both
    return sums[0], sums[1]


def curvature(values: np.ndarray) -> np.ndarray:
    """Return the negative Laplacian. The Laplacian removes slow changes of an image, and keeps reflectors."""
    outer = np.pad(values, 1, mode="edge")
    found: np.ndarray = 4 * values - outer[2:, 1:-1] - outer[:-2, 1:-1] - outer[1:-1, 2:] - outer[1:-1, :-2]
    return found


def image_of(survey: Survey, gradient: np.ndarray, illumination: np.ndarray) -> np.ndarray:
    """Return the image. The image has the opposite sign of the gradient: it is positive where the true velocity is
    higher than the smoothed velocity. The division by the illumination makes deep reflectors as strong as shallow
    reflectors."""
    found = curvature(-gradient) / (illumination + 1e-3 * illumination.max())
    depth = np.arange(found.shape[1]) * survey.spacing
    return found * np.clip(depth / MUTED_METRES - 1, 0, 1)


def reflectors_of(survey: Survey, models: Models) -> np.ndarray:
    """Return the reflectors of the true model, smoothed to about the resolution of the image. The Gaussian for this
    smoothing has a standard deviation of an eighth of the wavelength at 2500 m/s."""
    width = 2500.0 / survey.frequency / 8 / survey.spacing
    return curvature(smoothed(np.log(models.true / models.smooth), width))


def correlation(survey: Survey, image: np.ndarray, reflectors: np.ndarray) -> float:
    """Return the correlation of the image and the reflectors. The image and the reflectors are first divided by their
    mean amplitude at each depth. Small depths, at which image_of() weakens the image, are left out."""
    below = (slice(None), slice(round(2 * MUTED_METRES / survey.spacing), None))
    found = np.corrcoef(balanced(image)[below].reshape(-1), balanced(reflectors)[below].reshape(-1))
    return float(found[0, 1])


def balanced(values: np.ndarray) -> np.ndarray:
    """Divide each value by the mean amplitude at its depth, and return the result. The mean amplitude is smoothed along
    the depth."""
    amplitude = smoothed(np.sqrt((values**2).mean(axis=0)), 6)
    return values / (amplitude + 1e-3 * amplitude.max())


def draw(survey: Survey, models: Models, image: np.ndarray, reflectors: np.ndarray, path: Path) -> None:
    """Draw the true model and the smoothed model above the image and the reflectors."""
    figure, panels = plt.subplots(2, 2, figsize=(16, 6.6), layout="constrained", sharex=True, sharey=True)
    length, depth = (n * survey.spacing / 1000 for n in image.shape)
    extent = (0, length, depth, 0)
    titles = ("true model", "smoothed model: all that the migration knows")
    for panel, title, model in zip(panels[0], titles, (models.true, models.smooth), strict=True):
        back = panel.imshow(model.T / 1000, cmap="viridis", vmin=1.5, vmax=4.7, extent=extent, aspect="auto")
        panel.set_title(title)
    titles = (f"image from {survey.shots} shots", "reflectors of the true model, for comparison")
    for panel, title, values in zip(panels[1], titles, (image, reflectors), strict=True):
        even = balanced(values)
        largest = np.percentile(np.abs(even), 97)
        panel.imshow(even.T, cmap="gray", vmin=-largest, vmax=largest, extent=extent, aspect="auto")
        panel.set(title=title, xlabel="distance (km)")
    for panel in panels[:, 0]:
        panel.set_ylabel("depth (km)")
    figure.colorbar(back, ax=panels[0], label="velocity (km/s)")
    options.save(figure, path, dpi=120)


def main(argv: Sequence[str] | None = None) -> None:
    parser = options.new_parser(__doc__, "rtm", "64MiB")
    parser.add_argument("--small", action="store_true", help="every 3rd sample of the model, 8 shots")
    parser.add_argument("--every", type=options.at_least(1), metavar="N", help="use each Nth sample of the model [1]")
    parser.add_argument("--shots", type=options.at_least(1), metavar="N", help="shots along the surface [40]")
    given = options.begin(parser, argv)
    every, shots = (3, 8) if given.small else (1, 40)
    survey = Survey(given.every or every, given.shots or shots)
    models = Models.of(survey)
    image = image_of(survey, *kept(survey, models, given.directory, given.memory))
    reflectors = reflectors_of(survey, models)
    print(f"correlation of the image and the reflectors: {correlation(survey, image, reflectors):.3f}")
    draw(survey, models, image, reflectors, given.directory / "rtm.png")


if __name__ == "__main__":
    options.call(main)
