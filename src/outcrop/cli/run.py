"""`outcrop run`: a simulation from its initial values to a report."""

from __future__ import annotations

from outcrop.cli import options
from outcrop.cli.output import RunOutput
from outcrop.cli.plan import describe


def run(
    stencil: options.StencilName,
    steps: options.Steps,
    directory: options.Directories,
    size: options.Size = None,
    memory: options.Memory = "1GiB",
    dtype: options.DType = "float32",
    threads: options.Threads = None,
    scheme: options.SchemeName = "auto",
    io: options.Io = "auto",
    parameters: options.Parameters = None,
    initial: options.Initial = None,
    boundary: options.Boundary = "fixed",
    in_place: options.InPlace = False,
    check_finite: options.CheckFinite = False,
    json: options.Json = None,
    quiet: options.Quiet = False,
    force: options.Force = False,
    raw_device: options.RawDevice = False,
    bind: options.Bind = "auto",
    bt: options.Bt = None,
    bx: options.Bx = None,
    by: options.By = None,
    bz: options.Bz = None,
    slab: options.Slab = None,
    diamond: options.Diamond = None,
    unstable: options.Unstable = False,
) -> None:
    """Run a simulation and leave its result in WHERE, in a directory as a Zarr array."""
    from outcrop.run.inputs.initial import scan_finite
    from outcrop.run.progress import stage

    options.check_output(json, "--json")
    output = RunOutput(quiet)
    simulation, sources = options.make_simulation(
        options.Request(
            stencil, size, steps, directory, memory, dtype, threads, scheme, io, parameters or [], initial or [],
            boundary, in_place, check_finite, force, raw_device, bind,
            sizes=options.given_sizes(bt=bt, bx=bx, by=by, bz=bz, slab=slab, diamond=diamond), unstable=unstable,
        )
    )  # fmt: skip
    simulation.require_fields(sources)
    progress = "none" if quiet else "lines"
    names = ", ".join(source.name for source in sources.values())
    with stage("compiling the kernel and measuring this machine", progress):
        prepared = simulation.prepare(steps)
    if check_finite:
        with stage(f"checking {names}", progress):
            for source in sources.values():
                scan_finite(source, dtype)
    output.print(describe(prepared))
    with stage(f"writing initial values ({names})", progress):
        simulation.assign(sources)
    output.finish(simulation.run(steps, progress), json)
