"""`outcrop stencils`: list the built-in stencils, or describe one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from outcrop.cli import options
from outcrop.errors import InputError
from outcrop.units import counted

if TYPE_CHECKING:
    from outcrop.language.library.about import About
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
    from outcrop.language.library.about import ABOUT
    from outcrop.language.library.table import family_of_name

    family, stencil = family_of_name(name), find_stencil(name)
    rows = description(stencil, family, ABOUT[family], options.parse_parameters(param or []))
    print("\n".join([f"{stencil.name}: {ABOUT[family].title}", *(f"  {key:<11}{text}" for key, text in rows)]))


def overview() -> list[str]:
    """Return a line for each family, and a line that explains the names."""
    from outcrop.language.library.about import ABOUT
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
    from outcrop.language.library.about import unit_of
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
    """Return a text with the largest stable step for these values, or "" if the stencil has no limit."""
    from outcrop.language.library import limit_of, limit_text

    limit = limit_of(stencil)
    if limit is None:
        return ""
    if missing := [key for key in static if key not in given]:
        return f"give {' '.join(f'--param {key}=VALUE' for key in missing)} for the limit of {limit.parameter}"
    return limit_text(stencil, values, [{key: given[key] for key in static}])
