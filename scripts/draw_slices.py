"""Draw docs/slices.png: slices of a wave in two layers, with `outcrop plot`.

.venv/bin/python scripts/draw_slices.py
"""

import tempfile
from pathlib import Path

import numpy as np

import outcrop as oc
from outcrop.cli.main import call

SHAPE, SPACING_M, STEPS = (72, 96, 128), 10.0, 200
FREQUENCY_HZ = 20.0
PICTURE = Path(__file__).parent.parent / "docs" / "slices.png"


def main() -> None:
    seconds = np.arange(STEPS) * 0.001 - 0.06
    phase = (np.pi * FREQUENCY_HZ * seconds) ** 2
    wavelet = (1 - 2 * phase) * np.exp(-phase)
    v, dt = oc.Field("v"), oc.Parameter("dt", 0.0)
    source = oc.Source("u", [250.0, 480.0, 640.0], wavelet, scale=dt**2 * v[0, 0, 0] ** 2)
    with tempfile.TemporaryDirectory() as folder:
        sim = oc.Simulation(
            "acoustic4", SHAPE, directory=f"{folder}/run.oc", memory="64MiB", spacing=SPACING_M, units="m", dt=0.001,
            sources=[source],
        )  # fmt: skip
        layers = np.where(np.arange(SHAPE[0]) < 45, 2000.0, 3500.0).astype("float32")
        sim["v"] = np.broadcast_to(layers[:, None, None], SHAPE)
        sim.run(STEPS, progress="none")
        peak = float(np.abs(sim["u"][25]).max())
        words = ["plot", f"{folder}/run.oc", "--slice", "z=10,25,60", "--slice", "y=48", "-o", str(PICTURE)]
        assert call([*words, "--limits", f"{-peak / 2:.1g},{peak / 2:.1g}"]) == 0


main()
