"""Check plans for other machines. Each value of a machine file is used exactly as it is written, or the file is refused
in one line. The plan does not depend on the machine that runs the tests."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from outcrop.cli.main import call
from outcrop.errors import InputError
from outcrop.language import compile as compile_module
from outcrop.plan.plan import Sizes
from outcrop.run import engine
from outcrop.run.options import RunOptions
from outcrop.run.setup import plan_elsewhere
from outcrop.tiers import discover, measure
from outcrop.tiers.declarations import load_machine, parse_machine, shipped_machines
from strategies import make_problem

GOOD = """
cores = 4
[memory]
size = "8GiB"
usable = "50%"
bandwidth = "20GB/s"
[caches]
second_level = "512KiB"
last_level = 8388608
[storage]
read = "2GB/s"
write = 1.0e9
both = "1.5 GB/s"
[updates]
float32 = 2e9
"""

PLAN = ["plan", "heat7", "-n", "256", "256", "2048", "-t", "100"]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder, in which the tests write files of machines."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


def test_every_figure_is_read_as_it_is_written() -> None:
    """Checks that figures in a machine file are read in all their forms: binary and decimal sizes, percentages of the
    memory, bandwidths as texts and as numbers.
    """
    found = parse_machine(GOOD, "folder/mine.toml")
    assert (found.name, found.cores) == ("mine", 4)
    assert (found.memory_bytes, found.usable_bytes) == (8 << 30, 4 << 30)
    assert (found.cache_bytes, found.last_cache_bytes) == (512 << 10, 8 << 20)
    device = found.device
    assert (device.read_bytes_per_second, device.write_bytes_per_second, device.mixed_bytes_per_second) == (
        2e9, 1e9, 1.5e9,
    )  # fmt: skip
    assert (device.seconds_flush, device.origin) == (0.01, "declared for mine")
    assert found.updates_per_second == {"float32": 2e9}
    assert found.memory_bytes_per_second == 20e9


def changed(old: str, new: str) -> str:
    """Return GOOD with one line replaced."""
    assert GOOD.count(old) == 1, old
    return GOOD.replace(old, new)


BAD = {
    "syntax": (changed("cores = 4", "cores = = 4"), "not TOML.*line 2"),
    "missing key": (changed('bandwidth = "20GB/s"', ""), "memory.bandwidth is missing.*2.4GB/s"),
    "missing table": (changed("[updates]\nfloat32 = 2e9", ""), "updates is missing.*table"),
    "unknown key": (changed("cores = 4", "cores = 4\ncolour = 1"), "colour is unknown.*cores"),
    "unknown key in a table": (changed("float32 = 2e9", "float16 = 2e9\nfloat32 = 1e9"), "updates.float16.*float64"),
    "misspelt key": (changed("usable", "useable"), "memory.useable is unknown.*usable"),
    "no rate": (changed("float32 = 2e9", ""), "updates is empty.*float32"),
    "not a table": ("updates = 3\n" + changed("[updates]\nfloat32 = 2e9", ""), "updates = 3.*table"),
    "zero cores": (changed("cores = 4", "cores = 0"), "cores = 0 .*at least 1"),
    "cores of a wrong type": (changed("cores = 4", 'cores = "4"'), "cores = '4'.*whole number"),
    "cores that are true": (changed("cores = 4", "cores = true"), "cores = True.*whole number"),
    "half a core": (changed("cores = 4", "cores = 4.5"), "cores = 4.5.*whole number"),
    "bad unit": (changed('"8GiB"', '"8GiBs"'), "memory.size = '8GiBs'.*128GiB"),
    "size of nothing": (changed('"8GiB"', "0"), "memory.size = 0.*128GiB"),
    "size as a fraction": (changed('"8GiB"', "8.5"), "memory.size = 8.5.*128GiB"),
    "percentage of nothing": (changed('"8GiB"', '"50%"'), "memory.size = '50%'.*128GiB"),
    "size beyond numbers": (changed('"8GiB"', f'"{"9" * 400}GiB"'), "memory.size.*128GiB"),
    "usable more than there is": (changed('"50%"', '"9GiB"'), "memory.usable = '9GiB'.*at most.*8 GiB"),
    "cache larger than memory": (changed("8388608", '"9GiB"'), "caches.last_level = '9GiB'.*at most.*8 GiB"),
    "last cache smaller": (changed("8388608", '"1KiB"'), "caches.last_level = '1KiB'.*512 KiB"),
    "negative bandwidth": (changed("1.0e9", "-1.0e9"), "storage.write = -1000000000.0.*2.4GB/s"),
    "zero bandwidth": (changed("1.0e9", "0"), "storage.write = 0.*2.4GB/s"),
    "zero bandwidth in text": (changed('"2GB/s"', '"0GB/s"'), "storage.read = '0GB/s'.*2.4GB/s"),
    "bandwidth that is no number": (changed("1.0e9", "nan"), "storage.write = nan.*2.4GB/s"),
    "infinite bandwidth": (changed("1.0e9", "inf"), "storage.write = inf.*2.4GB/s"),
    "bandwidth without time": (changed('"2GB/s"', '"2GB"'), "storage.read = '2GB'.*2.4GB/s"),
    "bandwidth per minute": (changed('"2GB/s"', '"2GB/min"'), "storage.read = '2GB/min'.*2.4GB/s"),
    "bandwidth in a list": (changed('"2GB/s"', '["2GB/s"]'), "storage.read.*2.4GB/s"),
    "bandwidth beyond numbers": (changed("1.0e9", "9" * 400), "storage.write.*2.4GB/s"),
    "both more than the sum": (changed("1.5 GB/s", "4GB/s"), "storage.both = '4GB/s'.*at most"),
    "negative flush": (changed("both", "flush_seconds = -1\nboth"), "storage.flush_seconds = -1.*at least 0"),
    "more cores than any machine": (changed("cores = 4", "cores = 10000000"), "cores = 10000000.*at most 1000000"),
    "cores beyond words": (changed("cores = 4", "cores = 0x" + "f" * 900), "cores = .*at most 1000000"),
    "cores with too many digits": (changed("cores = 4", "cores = " + "9" * 5000), "line 2 has 5008 characters"),
    "digits on lines of their own": (changed("cores = 4", "cores = " + "9" * 900), "cores = 9+[.]{3} must be at most"),
    "memory beyond words": (changed('"8GiB"', "0x" + "f" * 900), "memory.size = .*must be a size such as"),
    "a byte in years": (changed("1.0e9", "1e-300"), "storage.write = 1e-300 .*from 1 to"),
    "text that is too fast": (changed('"2GB/s"', '"99999999999TB/s"'), "storage.read.*must be a bandwidth such as"),
    "flush in years": (changed("both", "flush_seconds = 1e300\nboth"), "flush_seconds = 1e[+]300.*from 0 to 86400"),
    "flush that is no number": (changed("both", "flush_seconds = nan\nboth"), "flush_seconds = nan.*seconds"),
    "key with a line break": (changed("cores = 4", '"a\\nb\\u001b[0m" = 4'), "cores is missing"),
    "unknown key with a line break": (changed("cores = 4", 'cores = 4\n"a\\nb" = 4'), r"'a.nb' is unknown"),
    "a long key": (changed("cores = 4", "cores = 4\n" + "a" * 900 + " = 4"), "'a{59}[.]{3} is unknown"),
    "deep": ("a = " + "[" * 990, "nested too deeply"),
    "deep in lines": ("a = " + "[\n" * 50_000, "nested too deeply"),
    "a long line": ("a." * 40_000 + "a = 1", "line 1 has 80005 characters; write at most 1000"),
    "long": ("# nothing\n" * 30_000, "larger than 256 KiB"),
    "NUL": ("cores = 4\0", "not TOML"),
    "date": (changed("cores = 4", "cores = 1979-05-27"), "cores = .*whole number"),
    "tables in a list": ("[[memory]]\nsize = 1\n[caches]", "cores is missing"),
    "list of memories": (changed("[memory]", "[[memory]]"), "memory = .*a table"),
    "negative rate": (changed("2e9", "-2e9"), "updates.float32 = -2000000000.0.*5e9"),
    "rate in text": (changed("2e9", '"fast"'), "updates.float32 = 'fast'.*5e9"),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD.keys())
def test_impossible_machines_are_one_line(text: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Checks that a wrong machine file is refused. The error names the file, the key, the wrong value and the correct
    form."""
    Path("bad.toml").write_text(text)
    assert call([*PLAN, "--machine", "bad.toml"]) == 2
    output = capsys.readouterr()
    assert output.out == "" and output.err.count("\n") == 1
    assert re.search(f"bad.toml.*{message}", output.err), output.err


ARGUMENTS = {
    "unknown name": (["--machine", "crest7"], "crest7.*crest6, crest10.*TOML"),
    "no such file": (["--machine", "gone.toml"], "gone.toml.*No such file"),
    "directory": (["--machine", "folder"], "folder is a directory"),
    "device without end": (["--machine", "/dev/zero"], "/dev/zero is not a regular file"),
    "device": (["--machine", "/dev/null"], "/dev/null is not a regular file"),
    "FIFO": (["--machine", "fifo.toml"], "fifo.toml is not a regular file"),
    "link to itself": (["--machine", "loop.toml"], "loop.toml cannot be read: Too many"),
    "link to nothing": (["--machine", "lost"], "lost cannot be read: No such file"),
    "ten gigabytes": (["--machine", "large.toml"], "large.toml is larger than 256 KiB"),
    "below a file": (["--machine", "mine.toml/x"], "mine.toml/x cannot be read: Not a directory"),
    "long name": (["--machine", "a" * 5000], "'a{100}' is unknown"),
    "long path": (["--machine", "/" + "a" * 5000], "cannot be read: File name too long"),
    "NUL in the name": (["--machine", "a/\0"], "NUL"),
    "empty name": (["--machine", ""], "the argument of --machine is empty"),
    "not text": (["--machine", "picture.toml"], "picture.toml.*UTF-8"),
    "directory as well": (["--machine", "crest10", "-d", "run.oc"], "-d.*--machine crest10"),
    "io as well": (["--machine", "crest10", "--io", "libaio"], "--io.*--machine crest10"),
    "device as well": (["--machine", "crest10", "--raw-device"], "--raw-device.*--machine"),
    "neither": ([], "-d WHERE.*--machine"),
    "more memory than there is": (["--machine", "crest10", "--memory", "129GiB"], "129GiB.*crest10.*128 GiB"),
    "more threads than cores": (["--machine", "crest10", "--threads", "25"], "threads 25.*24 cores"),
    "no threads": (["--machine", "crest10", "--threads", "0"], "threads 0.*at least 1"),
    "too little memory": (["--machine", "crest10", "--memory", "64KiB"], "64 KiB.*at least \\d+ KiB"),
    "dtype without a rate": (["--machine", "mine.toml", "--dtype", "float64"], "mine.*updates.float64.*float32"),
    "dtype unknown": (["--machine", "crest10", "--dtype", "int8"], "int8.*float32"),
    "scheme": (["--machine", "crest10", "--scheme", "magic"], "magic.*wavefront"),
    "overlapped in place": (["--machine", "crest10", "--scheme", "overlapped", "--in-place"], "overlapped.*in place"),
    "boundary": (["--machine", "crest10", "--boundary", "open"], "open.*fixed, mirror, periodic"),
    "parameter": (["--machine", "crest10", "--param", "c9=1"], "c9.*c0"),
}


@pytest.mark.parametrize(("words", "message"), ARGUMENTS.values(), ids=ARGUMENTS.keys())
def test_arguments_that_cannot_be_are_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that a missing machine file, and options that apply only to this machine, are refused with one line. The
    command prints nothing else."""
    Path("folder").mkdir()
    Path("picture.toml").write_bytes(b"\xff\xfe\x00")
    Path("mine.toml").write_text(GOOD)
    os.mkfifo("fifo.toml")
    Path("loop.toml").symlink_to("loop.toml")
    Path("lost").symlink_to("nothing")
    Path("large.toml").touch()
    os.truncate("large.toml", 10 << 30)
    assert call([*PLAN, *words]) == 2
    output = capsys.readouterr()
    assert output.out == "" and output.err.count("\n") == 1
    assert re.search(message, output.err), output.err


def test_nothing_of_this_machine_is_needed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks that a plan for another machine compiles no kernel and reads no property of this machine.

    The command makes only the files that the options name.
    """

    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("this machine was looked at")

    for module, name in (
        (engine, "compile_kernel"), (compile_module, "compile_kernel"), (engine, "UpdateRateMeter"),
        (measure, "device"), (discover, "memory_bytes"), (discover, "caches"), (discover, "available_cores"),
        (measure, "mount_of"), (engine._core, "measure_checksum_rate"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, forbidden)
    words = ["--machine", "crest10", "--explain", "--json", "plan.json", "--draw", "plan.png"]
    assert call([*PLAN, "--memory", "25%", *words]) == 0
    said = capsys.readouterr().out
    assert "of 32 GiB, 24 threads" in said and "declared for crest10: reads 2.80 GB/s" in said and "chosen" in said
    data = json.loads(Path("plan.json").read_text())
    assert data["machine"]["threads"] == 24 and data["machine"]["device"]["origin"] == "declared for crest10"
    assert data["predicted"]["bytes_read"] > 0 and data["considered"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plan.json", "plan.png"]


def test_shipped_machines_load_by_name_and_by_path() -> None:
    """Checks that both machines of the paper exist, with the memory sizes of the paper."""
    assert shipped_machines() == ["crest6", "crest10"]
    for name in shipped_machines():
        assert load_machine(name).updates_per_second.keys() == {"float32", "float64"}
    crest10 = load_machine("crest10")
    assert crest10.memory_bytes == 128 << 30
    Path("crest10").write_text("a file of that name hides nothing")
    assert load_machine("crest10") == crest10
    Path("mine.toml").write_text(GOOD)
    assert load_machine("mine.toml") == load_machine(str(Path("mine.toml").absolute())) == parse_machine(GOOD, "mine")


def test_what_a_plan_may_take_unless_told() -> None:
    """Checks the budget of a plan. The option `--memory` sets the budget. Without this option, the budget is the usable
    memory that the file declares. Without both, the default budget is used."""
    declared, silent = parse_machine(GOOD, "mine"), parse_machine(changed('usable = "50%"', ""), "mine")
    options = RunOptions("heat7", (2048, 2048, 2048), steps=10)
    assert plan_elsewhere(declared, options).budget_bytes == 4 << 30
    assert plan_elsewhere(silent, options).budget_bytes == 1 << 30
    told = plan_elsewhere(declared, replace(options, memory="10%"))
    assert told.budget_bytes == (8 << 30) // 10 >= told.plan.memory_bytes


def test_rates_follow_cores_and_memory() -> None:
    """Checks the predicted speeds. Half as many threads have half the update rate. The bandwidth of memory limits plain
    sweeps. Faster storage never makes a plan slower.
    """
    declared = parse_machine(GOOD.replace("20GB/s", "12GB/s"), "mine")
    problem = make_problem((512, 512, 512), (1, 1, 1), 8)
    thick = Sizes(8, 512, 8)
    assert declared.update_rate(problem, 2)(thick) == pytest.approx(declared.update_rate(problem, 4)(thick) / 2)
    swept = declared.update_rate(problem, 4)(Sizes(8, 512, diamond=0))
    assert swept == pytest.approx(12e9 / (3 * 4)), "three words of four bytes for a cell"
    for levels, sizes in ((1, Sizes(1, 10**6, 32)), (2, Sizes(2, 10**6, 32)), (2, Sizes(2, 10**6, 32, chunk=64))):
        rate = replace(declared, updates_per_second={"float32": 1e12}).update_rate(problem, 4)(sizes)
        assert rate == pytest.approx(levels * swept, rel=1e-3), "a tile cannot have more levels than the pass"
    with pytest.raises(InputError, match="float64"):
        declared.update_rate(make_problem((8, 8, 8), (1, 1, 1), 1, "float64"), 1)
    options = RunOptions("heat7", (1024, 512, 512), memory="64MiB", steps=64)
    slow, fast = (
        plan_elsewhere(parse_machine(text, "mine"), options).plan.predicted
        for text in (GOOD, changed('"2GB/s"', '"20GB/s"').replace("1.0e9", "1.0e10").replace("1.5 GB/s", "15GB/s"))
    )
    assert fast.seconds < slow.seconds
