"""Texts about the families of built-in stencils for `outcrop stencils`: the differential equation, the units, the limit
of stability and the publication. `docs/reference/stencils.md` explains the same families in more detail.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class About:
    """Texts about one family. `title` has a few words. `units` maps the names of fields and parameters to their units,
    in SI units if the equation is physical. "" means that any unit is possible, and "1" means a pure number. A name
    such as "f*" stands for all names that begin with f. `limit` is the condition for a stable step."""

    title: str
    equation: str
    limit: str
    source: str
    units: Mapping[str, str] = field(default_factory=dict)


_HEAT = "u_t = kappa (u_xx + u_yy + u_zz)"
_CFL = "Courant, Friedrichs, Lewy, Math. Ann. 100, 1928"

ABOUT: dict[str, About] = {
    "heat7": About(
        "heat, coefficients instead of units", _HEAT, "c1 <= 1/6, if c0 = 1 - 6 c1", _CFL,
        {"u": "", "c0": "1", "c1": "1"},
    ),
    "heat13": About(
        "heat, order 4, coefficients", _HEAT, "a <= 1/8 for c1 = 4a/3, c2 = -a/12 and c0 = 1 - 15a/2", _CFL,
        {"u": "", "c0": "1", "c1": "1", "c2": "1"},
    ),
    "box27": About(
        "weighted mean of 27 cells", "u' = a sum of all cells of the 3 x 3 x 3 box",
        "none if no weight is negative and w0 + 6 w1 + 12 w2 + 8 w3 <= 1", "a benchmark",
        {"u": "", "w0": "1", "w1": "1", "w2": "1", "w3": "1"},
    ),
    "heat": About(
        "heat", _HEAT,
        "dt kappa ndim s <= 2 h^2; s = 4, 16/3, 6.04, 6.50, 6.83, 7.07, 7.27, 7.43 for order 2, 4, ... 16",
        f"{_CFL}; weights: Fornberg, Math. Comp. 51, 1988", {"u": "", "kappa": "m^2/s", "dt": "s", "h": "m"},
    ),
    "acoustic": About(
        "sound, constant density", "u_tt + damp u_t = v^2 (u_xx + u_yy + u_zz); damp only with the option sponge",
        "dt v <= 2 h / sqrt(ndim s), where v is the largest velocity; s = 4, 16/3, 6.04, 6.50, 6.83, 7.07, 7.27, 7.43 "
        "for order 2, 4, ... 16",
        "Dablain, Geophysics 51, 1986; sponge: Cerjan et al., Geophysics 50, 1985",
        {"u": "Pa", "v": "m/s", "damp": "1/s", "dt": "s", "h": "m"},
    ),
    "elastic": About(
        "P and S waves on a staggered grid", "rho v_t = div T,  T_t = lam (div v) I + mu (grad v + grad v^T)",
        "dt vp <= h / (sqrt(ndim) sum|w|), where vp^2 is the largest (lam + 2 mu) b; sum|w| is 1 for order 2, and 7/6 "
        "for order 4",
        "Virieux, Geophysics 51, 1986; order 4: Levander, Geophysics 53, 1988",
        {"v*": "m/s", "t*": "Pa", "lam": "Pa", "mu": "Pa", "b": "m^3/kg", "dt": "s", "h": "m"},
    ),
    "maxwell": About(
        "electromagnetic waves, Yee's grid", "H_t = -c curl E,  eps E_t = c curl H - (sigma/eps0) E",
        "c dt <= h sqrt(eps/ndim), where eps is the smallest value",
        "Yee, IEEE Trans. Antennas Propag. 14, 1966; limit: Taflove and Brodwin, IEEE Trans. Microwave Theory Tech. "
        "23, 1975",
        {"e*": "V/m", "h*": "V/m", "eps": "1", "sigma": "S/m", "c": "m/s", "dt": "s", "h": "m", "eps0": "F/m"},
    ),
    "gray_scott": About(
        "two species react and diffuse",
        "u_t = du lap u - u v^2 + feed (1 - u),  v_t = dv lap v + u v^2 - (feed + kill) v",
        "dt <= 2 / (4 ndim du/h^2 + feed + 1/4), near the state u = 0, v = 1/2",
        "Gray and Scott, Chem. Eng. Sci. 39, 1984; patterns: Pearson, Science 261, 1993",
        dict.fromkeys(("u", "v", "du", "dv", "feed", "kill", "h", "dt"), "1"),
    ),
    "advection": About(
        "transport, upwind or Lax-Wendroff", "u_t + vx u_x + vy u_y + vz u_z = 0",
        "order 1: (|vx| + |vy| + |vz|) dt <= h; order 2: |v| dt <= h along each axis",
        "Courant, Isaacson, Rees, Comm. Pure Appl. Math. 5, 1952; Lax and Wendroff, Comm. Pure Appl. Math. 13, 1960",
        {"u": "", "vx": "m/s", "vy": "m/s", "vz": "m/s", "dt": "s", "h": "m"},
    ),
    "stream_function": About(
        "Laplace by Jacobi's iteration", "psi_yy + psi_xx = 0", "none: the iteration converges from any state",
        "Jacobi, Astron. Nachr. 22, 1845", {"psi": "m^2/s"},
    ),
    "sharpen": About(
        "an image convolved with 17 x 17 weights",
        "sharp = image - 2/225 sum w(i, j) image[i, j],  w = -40 (1 - d) exp(-d),  d = (i^2 + j^2)/(2 * 2.8^2)",
        "none, because a step does not read the result of another step",
        "Marr and Hildreth, Proc. R. Soc. Lond. B 207, 1980", {"sharp": "", "image": ""},
    ),
    "d2q9": About(
        "flow, lattice Boltzmann",
        "f_i'(x) = f_i(x - c_i) - (f_i(x - c_i) - f_i^eq)/tau,  f_i^eq = w_i (rho - 1 + 3 c_i.j + (9/2 (c_i.j)^2 - "
        "3/2 j.j)/rho)",
        "tau >= 1/2 near rest; faster flows need a larger tau",
        "Qian, d'Humieres, Lallemand, Europhys. Lett. 17, 1992", {"f*": "1", "tau": "steps"},
    ),
}  # fmt: skip
ABOUT["d3q19"] = ABOUT["d2q9"]


def unit_of(about: About, name: str) -> str:
    """Return the unit of a field or parameter: the entry with its name, or else the entry with its first letter. Raises
    KeyError if there is neither."""
    return about.units[name] if name in about.units else about.units[f"{name[0]}*"]
