"""Write docs/reference/options.md from `RunOptions`.

    python scripts/options_page.py

tests/test_docs.py checks that the page in the repository is equal to the output of this script.
"""

from __future__ import annotations

from pathlib import Path

from outcrop.run.options import GROUPS, SIZES, Option, default_text, option_table

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "options.md"

BEGIN = """# Options of a run

This page is for users of `outcrop run`, `outcrop plan`, `oc.Simulation` and files of options. Keywords in Python and
keys in a file have the same names. `scripts/options_page.py` writes this page from `src/outcrop/run/options.py`.
The [glossary](../glossary.md) explains terms such as *pass*, *slab* and *rank*.

## Keep the options in a file

```toml
[problem]
stencil = "heat7"
shape = [2048, 512, 512]
steps = 200
init = "gaussian"

[resources]
memory = "256MiB"

[output]
directory = "run.oc"        # or several: ["/mnt/a/run.oc", "/mnt/b/run.oc"]
```

`outcrop run heat.toml` starts a run with these options. Options on the command line replace options in the file. For
example, `outcrop run heat.toml --memory 2GiB` replaces the memory. `outcrop run ... --save heat.toml` writes the
options of a run to a new file, and does not overwrite an existing file. Each section below describes one table of the
file. Paths in the file are relative to the working directory.

In a file, `sources`, `receivers`, `snapshots` and `norms` are tables. The keys of these tables are the arguments of
[`oc.Source`, `oc.Receivers`, `oc.Snapshots` and `oc.Norms`](../how-to/sources.md). `values` and `points` can also be
names of .npy files. A `box` is a list with a pair `[begin, end]` for each axis. For example:

```toml
[[problem.sources]]
field = "u"
points = [20.0, 500.0, 500.0]
values = "wavelet.npy"

[[problem.receivers]]
name = "line"
field = "u"
points = "places.npy"

[output.snapshots]
every = 50
```

A [complete file of a seismic shot](../how-to/sources.md#run-a-shot-from-a-file-of-options) also sets the velocity, and
has commands that draw the result.

In Python, `oc.Simulation("heat7", (2048, 512, 512), memory="256MiB")` takes the options as keywords.
`oc.Simulation(oc.RunOptions(...))` takes the options as one object.
"""

END = """
## Options of the commands

The commands `run` and `plan` have these options in addition to the options of a run:

| option | meaning |
|---|---|
| `--json FILE` | write the [report](report.md) as JSON ([which files are allowed](errors.md#output-files)) |
| `--quiet` | print no progress and no report |
| `--save FILE` | only `run`: write the options to a new TOML file |
| `--set KEY=VALUE,...` | only `run`: [run each value](../how-to/run.md#run-several-values-of-an-option) |
| `--continue` | with `--set`: leave out finished runs, and resume interrupted ones |
| `--check` | only `plan`: [prove that the plan is legal](../how-to/plan.md#prove-that-a-plan-is-legal), like `run` |
| `--explain` | only `plan`: list the best candidates. For each candidate that was not chosen, give the reason |
| `--draw FILE.png` | only `plan`: draw the plan |
| `--gradient` | only `plan`: compare [the ways to keep states](../how-to/adjoints.md#let-outcrop-choose) |
| `--wrt NAME` | with `--gradient`: the gradient by this input or field; repeat the option for several. Default: all |
| `--machine FILE` | only `plan`: plan for [another machine](../how-to/plan.md#plan-for-another-machine) |
"""


def page() -> str:
    parts = [BEGIN]
    for group, title in GROUPS.items():
        rows = [_row(name, option) for name, option in option_table().items() if option.group == group]
        if group == "sizes":
            rows += [f"| `{name}` | `--{name} N` | {text} | chosen |" for name, text in SIZES.items()]
        parts.append(f"## {title}: `[{group}]`\n\n| name | command line | meaning | default |\n|---|---|---|---|")
        parts[-1] += "\n" + "\n".join(rows) + "\n"
    return "\n".join(parts) + END


def _row(name: str, option: Option) -> str:
    line = " ".join([*option.flags[:1], *([option.metavar] if option.metavar else [])]) if option.flags else ""
    if name == "stencil":
        line = "STENCIL"
    text = option.help if not option.details else f"{option.help}. {option.details}"
    if not option.in_files:
        text += " A TOML file cannot set this option." if option.details else ". A TOML file cannot set this option."
    words = (line and f"`{line}`", text, default_text(name))
    return "| " + " | ".join([f"`{name}`", *(word.replace("|", "\\|") for word in words)]) + " |"


if __name__ == "__main__":
    PAGE.write_text(page())
