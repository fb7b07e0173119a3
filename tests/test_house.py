"""The rules of the house, held by tests: who may use whom, how long a file may be, what the README may claim."""

import ast
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from glob import glob
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import outcrop as oc

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "outcrop"
AGGREGATE = ROOT / "aggregate" / "core" / "outcrop" / "aggregate"
TESTS = [ROOT / "tests", ROOT / "aggregate" / "tests"]
LINES_MOST = 600

# Folder -> the folders of the package it may import from (its own always). Single modules count as folders.
PYTHON_ARROWS = {
    "axes": set(),
    "errors": set(),
    "units": {"errors"},
    "durable": {"errors", "_core"},
    "paths": {"errors", "durable"},
    "user_cache": {"errors"},
    "shared_object": {"errors", "user_cache"},
    "language": {"axes", "errors", "units", "shared_object", "user_cache"},
    "plan": {"axes", "errors", "units"},
    "tiers": {"errors", "units", "paths", "user_cache", "plan", "language", "_core"},
    "run": {"axes", "errors", "units", "paths", "language", "plan", "tiers", "durable", "_core"},
    "arrays": {"errors", "units", "paths", "plan", "tiers", "durable", "_core"},
    "aggregate": {"errors", "units", "paths", "tiers", "durable", "shared_object", "_aggregate"},
    "bench": {
        *("errors", "units", "paths", "shared_object", "language", "plan", "tiers", "run", "arrays", "aggregate"),
        *("_core", "_aggregate", ""),
    },
    "cli": {"axes", "errors", "units", "paths", "language", "plan", "tiers", "run", "arrays", "aggregate", "bench", ""},
    "": {"errors", "units", "language", "plan", "run", "arrays", "aggregate", "_core"},  # the package's own __init__
    "_core": set(),
    "_aggregate": set(),
}
# Each folder of src/outcrop/run, with the folders and modules of run that it may import from.
RUN_ARROWS = {
    "disk": {"user_values"},
    "device": {"disk"},
    "acquisition": {"user_values", "options", "disk"},
    "inputs": {"user_values", "disk"},
}
# The kernel's C signature is shared by all of the core; it includes nothing.
CPP_ARROWS = {
    "base": set(),
    "kernel": set(),
    "storage": {"base"},
    "exec": {"base", "storage", "kernel"},
    "aggregate": {"base", "storage"},
    "bindings": {"base", "storage", "exec", "kernel"},
}
# Folders of aggregate/core/outcrop/aggregate; "" are the classes that others use, on top of them all.
AGGREGATE_ARROWS = {
    "transport": set(),
    "text": set(),
    "node": {"transport", "text"},
    "decision": {"transport", "node"},
    "sinks": {"transport", "text", "node", "decision"},
    "steps": {"transport", "text", "node", "decision", "sinks"},
    "placement": {"transport", "text", "node", "decision", "sinks", "steps"},
    "": {"transport", "text", "node", "decision", "sinks", "steps", "placement"},
    "mpi": {"transport", "sinks", ""},
}


def python_files() -> list[Path]:
    """Those of the package. Its part for aggregation is a link to a folder of `aggregate`, which rglob passes over."""
    return sorted(Path(name) for name in glob(str(PACKAGE / "**" / "*.py"), recursive=True))


def cpp_files() -> list[Path]:
    folders = [ROOT / "core", ROOT / "bindings", ROOT / "aggregate", ROOT / "tests" / "core"]
    found = [path for folder in folders for path in folder.rglob("*")]
    return sorted(path for path in found if path.suffix in {".cpp", ".hpp", ".h"})


def text_files() -> list[Path]:
    """Every file of the project that people write by hand."""
    others = [ROOT / "Makefile", ROOT / "pyproject.toml", *ROOT.glob("*.md")]
    others += [ROOT / "CMakeLists.txt", ROOT / "aggregate" / "CMakeLists.txt"]
    for folder in ("tests", "aggregate", "benchmarks", "examples", "docs", "scripts"):
        others += [path for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".md", ".c"}]
    return sorted({*python_files(), *cpp_files(), *(path for path in others if "_build" not in path.parts)})


def folder_of(module: str) -> str:
    """The folder of `outcrop.folder.module`, or "" for the package itself."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def imported_modules(path: Path) -> Iterator[str]:
    """Dotted names of the package's own modules that a file imports, relative ones made absolute."""
    inside = ["outcrop", *path.relative_to(PACKAGE).with_suffix("").parts]
    package = inside[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "outcrop")
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*package[: len(package) - node.level + 1], *(base.split(".") if base else [])])
            if base == "outcrop":
                yield from (f"outcrop.{alias.name}" for alias in node.names)
            elif base.startswith("outcrop."):
                yield base


@pytest.mark.parametrize("path", python_files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_python_folders_use_only_what_they_may(path: Path) -> None:
    """Protects the arrows of the architecture: planning stays pure, the command line stays on top."""
    relative = path.relative_to(PACKAGE)
    own = relative.parts[0] if len(relative.parts) > 1 else relative.stem.replace("__init__", "")
    if own == "__main__":
        own = "cli"
    for module in imported_modules(path):
        used = folder_of(module)
        is_compiled = used in {"_core", "_aggregate"}
        if not (PACKAGE / used).is_dir() and not (PACKAGE / f"{used}.py").exists() and not is_compiled:
            used = ""  # a name that the package itself exports
        assert used == own or used in PYTHON_ARROWS[own], f"{relative} must not import {module}"


@pytest.mark.parametrize(
    "path",
    [path for folder in RUN_ARROWS for path in sorted((PACKAGE / "run" / folder).rglob("*.py"))],
    ids=lambda path: str(path.relative_to(PACKAGE)),
)
def test_folders_of_run_use_only_what_they_may(path: Path) -> None:
    """Protects the storage of a run: it knows neither devices nor what passes do besides updating."""
    own = path.relative_to(PACKAGE / "run").parts[0]
    for module in imported_modules(path):
        if module.startswith("outcrop.run"):
            used = "".join(module.split(".")[2:3])
            assert used == own or used in RUN_ARROWS[own], f"{path.relative_to(PACKAGE)} must not import {module}"


def module_of(path: Path) -> str:
    """The dotted name of a file of the package."""
    return ".".join(["outcrop", *path.relative_to(PACKAGE).with_suffix("").parts]).removesuffix(".__init__")


def statements_on_import(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The imports among statements that run when a module is imported: not those in functions or for type checkers."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from statements_on_import(node.orelse)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for part in ("body", "orelse", "finalbody"):
                yield from statements_on_import(getattr(node, part, ()))
            for handler in getattr(node, "handlers", ()):
                yield from statements_on_import(handler.body)


def needed_on_import(source: str, modules: set[str]) -> set[str]:
    """Those of `modules` that a module imports by absolute names before it is there itself."""
    found: set[str] = set()
    for node in statements_on_import(ast.parse(source).body):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            inside = {f"{node.module}.{alias.name}" for alias in node.names} & modules
            found |= inside
            if len(inside) < len(node.names):  # a name of the module itself
                found.add(str(node.module))
    return found & modules


def test_modules_do_not_need_each_other_to_be_imported() -> None:
    """Protects every entrance: whatever is imported first, there is no circle in which a module is half there."""
    files = {module_of(path): path for path in python_files()}
    graph = {name: needed_on_import(path.read_text(), set(files)) for name, path in files.items()}
    assert "outcrop.errors" in graph["outcrop.run.simulation"], "imports are found"
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail("imports go round in a circle: " + " <- ".join(error.args[1]))


@pytest.mark.parametrize(
    ("source", "needs"),
    [
        ("from outcrop import a", {"outcrop.a"}),
        ("from outcrop.a import b", {"outcrop.a"}),
        ("if TYPE_CHECKING:\n    import outcrop.a\nelse:\n    import outcrop.c", {"outcrop.c"}),
        ("def f():\n    import outcrop.a", set()),
        ("class A:\n    import outcrop.a", {"outcrop.a"}),
        ("try:\n    pass\nexcept ImportError:\n    from outcrop import a, version", {"outcrop", "outcrop.a"}),
    ],
)
def test_imports_that_count_are_told_from_those_that_do_not(source: str, needs: set[str]) -> None:
    """Protects the test above, which would pass if it saw no imports."""
    assert needed_on_import(source, {"outcrop", "outcrop.a", "outcrop.c"}) == needs


PURE_MODULES = {
    "__future__", "bisect", "collections", "contextlib", "dataclasses", "functools", "hashlib", "importlib",
    "itertools", "json", "math", "operator", "re", "typing", "zlib", "devito", "numpy", "outcrop", "sympy",
}  # fmt: skip
"""What the pure files of the package may import: none of these needs a file, a thread or a clock."""
WORLDLY_CALLS = {"open", "print", "input", "exec", "eval", "__import__"}
"""Builtin functions that do."""


def impure(source: str) -> set[str]:
    """The modules and builtin functions in a source by which it could reach files, threads or a clock."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names} - PURE_MODULES
        elif isinstance(node, ast.ImportFrom):
            found |= {(node.module or "").split(".")[0]} - PURE_MODULES
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found |= {node.func.id} & WORLDLY_CALLS
    return found


def pure_files() -> list[Path]:
    """All of planning, and of the language all but what calls the compiler or keeps stencils in the user's cache."""
    found = [*(PACKAGE / "plan").rglob("*.py"), *(PACKAGE / "language").rglob("*.py")]
    worldly = {PACKAGE / "language" / "compile.py", PACKAGE / "language" / "library" / "table.py"}
    return sorted(set(found) - worldly)


@pytest.mark.parametrize("path", pure_files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_planning_and_language_know_no_files_or_threads(path: Path) -> None:
    """Protects the purity of both: they can be tested, drawn and compared without touching a disk."""
    assert not impure(path.read_text()), f"{path.relative_to(ROOT)} uses {impure(path.read_text())}"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import os.path, math", {"os"}),
        ("from time import perf_counter", {"time"}),
        ("from outcrop.plan import plan\nfrom numpy.typing import NDArray", set()),
        ("def f():\n    import threading", {"threading"}),
        ("with open('a') as file:\n    file.read()", {"open"}),
        ("sheet.open()", set()),
    ],
)
def test_what_is_not_pure_is_found(source: str, found: set[str]) -> None:
    """Protects the test above, which would pass if it saw no imports."""
    assert impure(source) == found


@pytest.mark.parametrize(
    "path",
    [path for path in cpp_files() if not set(TESTS) & set(path.parents)],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_cpp_folders_include_only_what_they_may(path: Path) -> None:
    """Protects the arrows base <- storage <- exec <- bindings."""
    parts = path.relative_to(ROOT).parts
    own = parts[0] if parts[0] in {"aggregate", "bindings"} else parts[2]
    for used in re.findall(r'#include "outcrop/(\w+)/', path.read_text()):
        assert used == own or used in CPP_ARROWS[own], f"{path.relative_to(ROOT)} must not include {used}"


@pytest.mark.parametrize(
    "path", [path for path in cpp_files() if AGGREGATE in path.parents], ids=lambda path: str(path.relative_to(ROOT))
)
def test_folders_of_aggregation_include_only_what_they_may(path: Path) -> None:
    """Protects its layers: what is decided once knows nothing of steps, and what moves bytes nothing of placement."""
    own = path.relative_to(AGGREGATE).parent.name
    for used in re.findall(r'#include "outcrop/aggregate/(?:(\w+)/)?\w+\.h', path.read_text()):
        assert used == own or used in AGGREGATE_ARROWS[own], f"{path.relative_to(ROOT)} must not include {used}"


@pytest.mark.parametrize("path", cpp_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_only_files_named_mpi_include_mpi(path: Path) -> None:
    """Protects the one build that serves every MPI: nothing else depends on the binary interface of one of them."""
    users = AGGREGATE / "mpi" / "outcrop_aggregate.h"  # what C programs with MPI include
    if not path.name.startswith("mpi_") and path != users:
        assert not re.search(r"#\s*include\s*[<\"]mpi\.h", path.read_text()), f"{path.relative_to(ROOT)} includes mpi.h"


@pytest.mark.parametrize("path", text_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_files_stay_short(path: Path) -> None:
    """Protects the reader: no file grows beyond what can be read in one sitting."""
    count = len(path.read_text().splitlines())
    assert count <= LINES_MOST, f"{path.relative_to(ROOT)} has {count} lines, at most {LINES_MOST}"


def test_no_flag_may_change_the_bits() -> None:
    """Protects the promise of same bits: nothing is compiled with value-changing floating point flags."""
    # Spelled in pieces, so that this file does not contain what it looks for.
    forbidden = ["-f" + "fast-math", "-O" + "fast", "-funsafe" + "-math-optimizations", "-ffp-contract" + "=fast"]
    for path in text_files():
        if path.suffix != ".md":
            found = [flag for flag in forbidden if flag in path.read_text()]
            assert not found, f"{path.relative_to(ROOT)} uses {found}"


def test_only_the_two_error_files_define_exceptions() -> None:
    """Protects the promise of clear errors: all but bugs (assertions) is one of the few documented types."""
    for path in python_files():
        if path.name == "errors.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                bases = {ast.unparse(base) for base in node.bases}
                world = {base for base in bases if base.endswith(("Error", "Exception"))} - {"AssertionError"}
                assert not world, f"{path.relative_to(ROOT)}: {node.name} is an exception of its own"


@pytest.mark.parametrize("path", python_files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_and_classes_say_what_they_are(path: Path) -> None:
    """Protects the reader of the code: what a file or a class is for cannot be seen from its lines."""
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree), f"{path.relative_to(ROOT)} has no module docstring"
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{path.relative_to(ROOT)}: {node.name} has no docstring"


@pytest.mark.parametrize("name", oc.__all__)
def test_public_python_has_docstrings(name: str) -> None:
    """Protects the reader of the API: all that `outcrop` exports, and each method of it, says what it does."""
    found = getattr(oc, name)
    assert inspect.getdoc(found), f"{name} has no docstring"
    for key, member in vars(found).items() if isinstance(found, type) else ():
        if not key.startswith("_") and (callable(member) or isinstance(member, property | classmethod | staticmethod)):
            assert inspect.getdoc(getattr(found, key)), f"{name}.{key} has no docstring"


LIBRARIES = {
    "the engine's Python": lambda path: path.suffix == ".py" and not is_of_aggregation(path),
    "aggregation's Python": lambda path: path.suffix == ".py" and is_of_aggregation(path),
}


def is_of_aggregation(path: Path) -> bool:
    return "aggregate" in path.parts or path.name.startswith("agg")


def classes_in(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """The files, by name, that define each class."""
    found: dict[str, list[str]] = {}
    for name, source in sources.items():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(name)
    return found


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_class_name_is_defined_once(library: str) -> None:
    """Protects the reader: a noun has one meaning in a library."""
    mine = [path for path in python_files() if LIBRARIES[library](path)]
    assert len(mine) > 10
    classes = classes_in({str(path.relative_to(ROOT)): path.read_text() for path in mine})
    assert not {name: files for name, files in classes.items() if len(files) > 1}


def test_a_class_that_is_defined_twice_is_found() -> None:
    """Protects the test above; classes inside classes and functions count, too."""
    assert classes_in({"a": "class A:\n    class B: pass", "b": "def f():\n    class B: pass"})["B"] == ["a", "b"]


def files_of_tests() -> list[Path]:
    """The Python files of the tests, helpers included."""
    return sorted(path for folder in TESTS for path in folder.rglob("*.py"))


@pytest.mark.parametrize("path", files_of_tests(), ids=lambda path: path.name)
def test_every_file_of_the_tests_says_what_it_protects_or_gives(path: Path) -> None:
    """Protects the tests themselves: one that cannot say what it guards guards nothing."""
    assert ast.get_docstring(ast.parse(path.read_text())), f"{path.relative_to(ROOT)} has no module docstring"


def imported_tests(source: str) -> list[str]:
    """The test modules that a source imports."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [name for name in found if re.search(r"(^|\.)test_", name)]


def test_no_file_imports_a_test_module() -> None:
    """Protects tests from each other: what they share is in modules of its own, and each can change alone."""
    wrong = {path.name: imported_tests(path.read_text()) for path in files_of_tests()}
    assert not {name: tests for name, tests in wrong.items() if tests}
    assert imported_tests("from test_a import b\nfrom tests import test_c\nimport fields, test_d") == [
        "test_a", "test_a.b", "tests.test_c", "test_d",
    ]  # fmt: skip


CHECKS = ("pytest.raises", "pytest.fail", "pytest.warns", "np.testing.", "validate", "check")
"""How functions begin that raise where something is wrong and do nothing else."""


def idle_tests(sources: Mapping[str, str]) -> list[str]:
    """The tests in modules, given by name and source, that compare nothing: neither by themselves nor by a function of
    these modules that they call."""
    functions: dict[tuple[str, str], ast.FunctionDef] = {}
    places: dict[tuple[str, str], tuple[str, str]] = {}  # a module and a name in it -> where that is defined
    for module, source in sources.items():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef):
                functions[module, node.name] = node
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    places[module, alias.asname or alias.name] = str(node.module), alias.name

    def compares(module: str, node: ast.AST) -> bool:
        if isinstance(node, ast.Assert | ast.Raise):
            return True
        if not isinstance(node, ast.Call):
            return False
        name = ast.unparse(node.func)
        return places.get((module, name), (module, name)) in known or name.startswith(CHECKS)

    known: set[tuple[str, str]] = set()
    while True:
        more = {place for place, one in functions.items() if any(compares(place[0], node) for node in ast.walk(one))}
        if more == known:
            return [name for module, name in functions if name.startswith("test_") and (module, name) not in known]
        known = more


def test_every_test_compares_something() -> None:
    """Protects the tests themselves: one that only calls can fail by accident alone."""
    files = {}
    for path in files_of_tests():
        (folder,) = set(TESTS) & set(path.parents)
        files[".".join(path.relative_to(folder).with_suffix("").parts)] = path.read_text()
    assert not idle_tests(files)


@pytest.mark.parametrize(
    ("body", "is_idle"),
    [
        ("run()", True),
        ("assert run()", False),
        ("with pytest.raises(OSError): run()", False),
        ("np.testing.assert_array_equal(run(), 1)", False),
        ("validate(plan)", False),
        ("same()", False),
        ("for one in plans: same_for(one)", False),
        ("plan.same()", True),
    ],
)
def test_tests_that_compare_nothing_are_found(body: str, is_idle: bool) -> None:
    """Protects the test above, which would pass if it took everything for a comparison."""
    modules = {
        "test_a": f"from helpers import other as run, same_for\ndef same():\n    assert 1\ndef test_it():\n    {body}",
        "helpers": "def same():\n    assert run()\ndef same_for(one):\n    same()\ndef other(): pass",
        "others": "def run():\n    assert False",
    }
    assert idle_tests(modules) == ["test_it"] * is_idle


def test_readme_names_only_targets_and_files_that_exist() -> None:
    """Protects the newcomer: every `make` target and every path named in the README exists."""
    text = (ROOT / "README.md").read_text()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    named = set(re.findall(r"\bmake ([a-z-]+)`?", "\n".join(re.findall(r"`[^`]+`|^    .*$", text, flags=re.M))))
    assert named <= targets, f"README names unknown targets {named - targets}"
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / link).exists(), f"README links to {link}, which does not exist"
