"""`outcrop stencils`: list the built-in stencils, or describe one of them.

The table ABOUT has the differential equation, the units, the limit of stability and the publication of each family.
`docs/reference/stencils.md` explains the same families in more detail.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from outcrop.cli import options
from outcrop.errors import InputError
from outcrop.units import counted

if TYPE_CHECKING:
    from outcrop.language.stencil import Stencil


def stencils(
    name: Annotated[
        str | None,
        Argument(metavar="[NAME]", help="a stencil, such as heat4 or acoustic8_2d [default: list all]",
                 autocompletion=options.complete_stencil),
    ] = None,
    param: Annotated[
        list[str] | None,
        Option(metavar="NAME=VALUE", help="a parameter or static field, for the largest stable step; repeatable"),
    ] = None,
) -> None:  # fmt: skip
    """List the built-in stencils. With NAME, show the equation, fields, parameters and limit of stability."""
    if name is None:
        if param:
            raise InputError("--param is for one stencil; name it: outcrop stencils NAME --param NAME=VALUE")
        print("\n".join(overview()))
        return
    from outcrop.language.library import find_stencil
    from outcrop.language.library.table import family_of_name

    family, stencil = family_of_name(name), find_stencil(name)
    rows = description(stencil, family, ABOUT[family], options.parse_parameters(param or []))
    print("\n".join([f"{stencil.name}: {ABOUT[family].title}", *(f"  {key:<11}{text}" for key, text in rows)]))


def overview() -> list[str]:
    """Return a line for each family of stencils, and a line that explains the names of stencils."""
    from outcrop.language.library.table import FAMILIES, described

    names = {described(family): ABOUT[family].title for family in FAMILIES}
    width = max(map(len, names))
    return [
        *(f"{name:<{width}}  {title}" for name, title in names.items()),
        "",
        "A name is a family, an order, the number of axes (without: 3), and an option: acoustic8_2d_sponge.",
        "outcrop stencils NAME shows the equation, the fields, the parameters and the limit of stability.",
    ]


def description(stencil: Stencil, family: str, about: About, given: Mapping[str, float]) -> list[tuple[str, str]]:
    """Return rows about a stencil. `given` contains values of parameters and static fields. Raises InputError for other
    names."""
    from outcrop.axes import NAMES
    from outcrop.language.library.table import described

    fields = list(zip(stencil.fields, stencil.storage, strict=True))
    static = [one.name for one, storage in fields if storage.is_static]
    parameters = {one.name: one.default for one in stencil.parameters}
    for key in given:
        if key not in parameters and key not in static:
            there = ", ".join([*parameters, *static]) or "none"
            raise InputError(f"--param {key}: {stencil.name} has no such parameter or static field; there are: {there}")
    values = parameters | {key: value for key, value in given.items() if key in parameters}

    def with_unit(key: str) -> str:
        return f"{key} ({({'': 'any unit', '1': 'no unit'}).get(unit_of(about, key), unit_of(about, key))})"

    def with_value(key: str) -> str:
        unit = unit_of(about, key)
        return f"{key} = {values[key]:g}" + (f" {unit}" if unit not in ("", "1") else "")

    updated = [
        with_unit(one.name) + (", with its previous values" if storage.history == 2 else "")
        for one, storage in fields
        if not storage.is_static
    ]
    rows = [
        ("equation", about.equation),
        ("step", stencil.equation),
        ("axes", ", ".join(NAMES[stencil.ndim])),
        ("fields", ", ".join(updated)),
    ]
    if static:
        values_of = " ".join(f"--init {key}=VALUE" for key in static)
        rows.append(("only read", f"{', '.join(map(with_unit, static))}; give values with {values_of}"))
    rows.append(("parameters", ", ".join(map(with_value, values)) or "none"))
    loads, radius = sum(len(stage.program.loads) for stage in stencil.stages), stencil.radius
    rows.append(("reads", f"{counted(loads, 'value')} for each cell, at most {counted(radius, 'cell')} away, in "
                          f"{counted(len(stencil.stages), 'stage')}"))  # fmt: skip
    if (names := described(family)) != family:
        rows.append(("names", names))
    rows += [("source", about.source), ("limit", about.limit)]
    text = stable_text(stencil, values, static, given)
    return [*rows, *([("stable", text)] if text else [])]


def stable_text(
    stencil: Stencil, values: Mapping[str, float], static: Sequence[str], given: Mapping[str, float]
) -> str:
    """Return a text with the largest stable time step for the given values, or "" if the stencil has no limit."""
    from outcrop.language.library import limit_of, limit_text

    limit = limit_of(stencil)
    if limit is None:
        return ""
    if missing := [key for key in static if key not in given]:
        return f"give {' '.join(f'--param {key}=VALUE' for key in missing)} for the limit of {limit.parameter}"
    return limit_text(stencil, values, [{key: given[key] for key in static}])


# --- texts -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class About:
    """Texts about one family. `title` has a few words. `units` maps the names of fields and parameters to their units,
    in SI units if the equation is physical. "" means that any unit is possible, and "1" means a pure number. In
    `units`, a name such as "f*" stands for all names that begin with f. `limit` is the condition for a stable step."""

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
    """Return the unit of the field or parameter `name`. Use the entry of `units` for this name, or else the entry for
    its first letter. Raises KeyError if `units` has neither entry."""
    return about.units[name] if name in about.units else about.units[f"{name[0]}*"]
