"""A lake with eddies and algae: the problem of `direct_adjoint.py`, and a solver in NumPy with its adjoint.

The equation is u_t + div(flow u) = mixing lap u + growth u (1 - u). Here u is the amount of algae: 0 is clear water,
and 1 is the maximum. Lengths are in cells, and times are in steps. u is 0 in the outermost cells, the shore.

The derivative of growth u (1 - u) depends on u. Each step of the adjoint therefore needs the state of the same step of
the forward run.
"""

from dataclasses import dataclass

import numpy as np

SPEED = 0.4
"""The largest speed of the water, in cells for each step."""
MIXING = 0.02
"""In cells² for each step. The upwind differences mix more strongly than this coefficient."""
GROWTH = 4.0
"""A few algae in clear water grow by the factor exp(GROWTH) from the start to the end."""
BLOOMS = ((0.22, 0.30), (0.50, 0.80), (0.62, 0.22))
"""The centres (y, x) of the algae at the start, as parts of the lake's length."""
BAY = (0.62, 0.55)
"""The lower left corner (y, x) of the bay. The bay is a square."""
BAY_LENGTH = 0.1
PATCH_RADIUS, PATCH_HEIGHT = 0.03, 0.03
"""The radius is a part of the lake's length."""
EDDIES = 5
"""The seed of the random numbers that make the eddies."""


@dataclass(frozen=True)
class Lake:
    """A lake of size x size cells that is observed for `steps` steps.

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
        """The derivative of the mean of the bay with respect to the algae in each cell. The shape is (size, size)."""
        weights = np.zeros((self.size, self.size))
        weights[self.bay] = 1 / weights[self.bay].size
        return weights

    def patch(self, y: int, x: int) -> np.ndarray:
        """Return a few algae around the cell (y, x). The shape is (size, size)."""
        rows, columns = np.mgrid[: self.size, : self.size]
        distance = np.hypot(rows - y, columns - x) / self.size / PATCH_RADIUS
        return on_water(np.where(distance < 3, PATCH_HEIGHT * np.exp(-(distance**2)), 0.0))


def make_lake(size: int, steps: int) -> Lake:
    """Return a lake with eddies. The flow is the curl of a stream function that is 0 on the shore. As much water leaves
    a cell as enters it."""
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


class Solver:
    """A solver in NumPy: `forward` computes a step, and `backward` computes the adjoint of a step."""

    def __init__(self, lake: Lake) -> None:
        up, right = lake.flow_y[:-1], lake.flow_x[:, :-1]
        self.growth = lake.growth
        # The flux through a face is near * (algae in the lower or left cell) + far * (algae in the other cell).
        self.near_y, self.far_y = np.maximum(up, 0) + MIXING, np.minimum(up, 0) - MIXING
        self.near_x, self.far_x = np.maximum(right, 0) + MIXING, np.minimum(right, 0) - MIXING

    def forward(self, u: np.ndarray) -> np.ndarray:
        """Return the state after the state `u`."""
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
