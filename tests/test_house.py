"""Check the rules of the source code: allowed imports, the length of files, docstrings, and names in the README."""

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

# Maps each folder to the folders of the package from which it may import. A folder may always import from itself. A
# module that is in no folder counts as a folder.
PYTHON_ARROWS = {
    "axes": set(),
    "errors": set(),
    "units": {"errors"},
    "display": set(),
    "durable": {"errors", "_core"},
    "paths": {"errors", "durable"},
    "user_cache": {"errors"},
    "shared_object": {"errors", "user_cache"},
    "language": {"axes", "display", "errors", "units", "shared_object", "user_cache"},
    "plan": {"axes", "display", "errors", "units"},
    "tiers": {"display", "errors", "units", "paths", "user_cache", "plan", "language", "_core"},
    "run": {"axes", "display", "errors", "units", "paths", "language", "plan", "tiers", "durable", "_core", ""},
    "arrays": {"display", "errors", "units", "paths", "plan", "tiers", "durable", "_core"},
    "aggregate": {"errors", "units", "paths", "tiers", "durable", "shared_object", "_aggregate"},
    "bench": {
        *("errors", "units", "paths", "shared_object", "language", "plan", "tiers", "run", "arrays", "aggregate"),
        *("_core", "_aggregate", ""),
    },
    "cli": {"axes", "errors", "units", "paths", "language", "plan", "tiers", "run", "arrays", "aggregate", "bench", ""},
    "": {"errors", "units", "language", "plan", "run", "arrays", "aggregate", "_core"},  # __init__.py of the package
    "_core": set(),
    "_aggregate": set(),
}
# Maps each folder of src/outcrop/run to the folders and modules of src/outcrop/run from which it may import.
RUN_ARROWS = {
    "disk": {"user_values"},
    "device": {"disk"},
    "acquisition": {"user_values", "options", "disk"},
    "inputs": {"user_values", "disk"},
    "ranks": {"user_values", "disk", "acquisition"},
    "results": {"disk", "acquisition", "ranks", "places", "setup", "opening", "simulation"},
}
# All parts of the core include the header with the C signature of kernels. This header includes nothing.
CPP_ARROWS = {
    "base": set(),
    "kernel": set(),
    "storage": {"base"},
    "exec": {"base", "storage", "kernel"},
    "trajectory": {"base", "storage"},
    "aggregate": {"base", "storage"},
    "bindings": {"base", "storage", "exec", "trajectory", "kernel"},
}
# The folders of aggregate/core/outcrop/aggregate. "" means the public classes, which may use all folders.
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
    """Return the Python files of the package. The folder of aggregation is a link. `glob` follows this link, and
    `rglob` does not follow it."""
    return sorted(Path(name) for name in glob(str(PACKAGE / "**" / "*.py"), recursive=True))


def cpp_files() -> list[Path]:
    folders = [ROOT / "core", ROOT / "bindings", ROOT / "aggregate", ROOT / "tests" / "core"]
    found = [path for folder in folders for path in folder.rglob("*")]
    return sorted(path for path in found if path.suffix in {".cpp", ".hpp", ".h"})


def text_files() -> list[Path]:
    """Return each file of the project that is written by hand."""
    others = [ROOT / "Makefile", ROOT / "pyproject.toml", *ROOT.glob("*.md")]
    others += [ROOT / "CMakeLists.txt", ROOT / "aggregate" / "CMakeLists.txt"]
    for folder in ("tests", "aggregate", "benchmarks", "examples", "docs", "scripts"):
        others += [path for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".md", ".c"}]
    return sorted({*python_files(), *cpp_files(), *(path for path in others if "_build" not in path.parts)})


def folder_of(module: str) -> str:
    """Return the folder of a module of the package, for example "run" for `outcrop.run.engine`. Return "" for the
    package itself."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def imported_modules(path: Path) -> Iterator[str]:
    """Yield the dotted names of the package's modules that a file imports. Relative names become absolute."""
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
    """Checks that a Python file imports only from folders that its own folder may use."""
    relative = path.relative_to(PACKAGE)
    own = relative.parts[0] if len(relative.parts) > 1 else relative.stem.replace("__init__", "")
    if own == "__main__":
        own = "cli"
    for module in imported_modules(path):
        used = folder_of(module)
        is_compiled = used in {"_core", "_aggregate"}
        if not (PACKAGE / used).is_dir() and not (PACKAGE / f"{used}.py").exists() and not is_compiled:
            used = ""  # the package itself exports this name
        assert used == own or used in PYTHON_ARROWS[own], f"{relative} must not import {module}"


@pytest.mark.parametrize(
    "path",
    [path for folder in RUN_ARROWS for path in sorted((PACKAGE / "run" / folder).rglob("*.py"))],
    ids=lambda path: str(path.relative_to(PACKAGE)),
)
def test_folders_of_run_use_only_what_they_may(path: Path) -> None:
    """Checks the imports inside the folder `run`. For example, the storage of a run must import neither devices nor
    acquisition."""
    own = path.relative_to(PACKAGE / "run").parts[0]
    for module in imported_modules(path):
        if module.startswith("outcrop.run"):
            used = "".join(module.split(".")[2:3])
            assert used == own or used in RUN_ARROWS[own], f"{path.relative_to(PACKAGE)} must not import {module}"


def module_of(path: Path) -> str:
    """Return the dotted name of a file of the package."""
    return ".".join(["outcrop", *path.relative_to(PACKAGE).with_suffix("").parts]).removesuffix(".__init__")


def statements_on_import(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the imports that run when a module is imported. Skips imports in functions and for type checkers."""
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
    """Return those names in `modules` that Python must import when it imports a module with the text `source`."""
    found: set[str] = set()
    for node in statements_on_import(ast.parse(source).body):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            inside = {f"{node.module}.{alias.name}" for alias in node.names} & modules
            found |= inside
            if len(inside) < len(node.names):  # some of these names are not modules, but are defined in node.module
                found.add(str(node.module))
    return found & modules


def test_modules_do_not_need_each_other_to_be_imported() -> None:
    """Checks that imports have no cycle, so that any module can be imported first."""
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
    """Checks that `needed_on_import` finds imports. If it found no imports, the test for cycles would always pass."""
    assert needed_on_import(source, {"outcrop", "outcrop.a", "outcrop.c"}) == needs


PURE_MODULES = {
    "__future__", "abc", "bisect", "collections", "contextlib", "dataclasses", "fractions", "functools", "hashlib",
    "importlib", "itertools", "json", "math", "operator", "re", "typing", "zlib", "devito", "numpy", "outcrop", "sympy",
}  # fmt: skip
"""Modules that pure files of the package may import. None of them needs a file, a thread or a clock."""
WORLDLY_CALLS = {"open", "print", "input", "exec", "eval", "__import__"}
"""Builtin functions that pure files must not call."""


def impure(source: str) -> set[str]:
    """Return the modules and builtin functions of a source that give access to files, threads or a clock."""
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
    """Return all files of planning, and the files of the language that neither call the compiler nor use the user's
    cache.
    """
    found = [*(PACKAGE / "plan").rglob("*.py"), *(PACKAGE / "language").rglob("*.py")]
    worldly = {PACKAGE / "language" / "compile.py", PACKAGE / "language" / "library" / "table.py"}
    return sorted(set(found) - worldly)


@pytest.mark.parametrize("path", pure_files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_planning_and_language_know_no_files_or_threads(path: Path) -> None:
    """Checks that planning and language use no files, no threads and no clock, so that their tests need no disk."""
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
    """Checks that `impure` finds imports and calls. Otherwise, the test for files, threads and clocks would always
    pass."""
    assert impure(source) == found


@pytest.mark.parametrize(
    "path",
    [path for path in cpp_files() if not set(TESTS) & set(path.parents)],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_cpp_folders_include_only_what_they_may(path: Path) -> None:
    """Checks the order of includes: bindings may include exec, exec may include storage, and storage may include base.
    """
    parts = path.relative_to(ROOT).parts
    own = parts[0] if parts[0] in {"aggregate", "bindings"} else parts[2]
    for used in re.findall(r'#include "outcrop/(\w+)/', path.read_text()):
        assert used == own or used in CPP_ARROWS[own], f"{path.relative_to(ROOT)} must not include {used}"


@pytest.mark.parametrize(
    "path", [path for path in cpp_files() if AGGREGATE in path.parents], ids=lambda path: str(path.relative_to(ROOT))
)
def test_folders_of_aggregation_include_only_what_they_may(path: Path) -> None:
    """Checks the layers of aggregation by their includes. The folder `decision` does not include `steps`, and `steps`
    does not include `placement`.
    """
    own = path.relative_to(AGGREGATE).parent.name
    for used in re.findall(r'#include "outcrop/aggregate/(?:(\w+)/)?\w+\.h', path.read_text()):
        assert used == own or used in AGGREGATE_ARROWS[own], f"{path.relative_to(ROOT)} must not include {used}"


@pytest.mark.parametrize("path", cpp_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_only_files_named_mpi_include_mpi(path: Path) -> None:
    """Checks that only files named mpi_* include mpi.h. The other files are compiled once for all MPI libraries."""
    users = AGGREGATE / "mpi" / "outcrop_aggregate.h"  # this is the header for C programs with MPI
    if not path.name.startswith("mpi_") and path != users:
        assert not re.search(r"#\s*include\s*[<\"]mpi\.h", path.read_text()), f"{path.relative_to(ROOT)} includes mpi.h"


@pytest.mark.parametrize("path", text_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_files_stay_short(path: Path) -> None:
    """Checks that no file has more lines than LINES_MOST."""
    count = len(path.read_text().splitlines())
    assert count <= LINES_MOST, f"{path.relative_to(ROOT)} has {count} lines, at most {LINES_MOST}"


def test_no_flag_may_change_the_bits() -> None:
    """Checks that no compiler flag allows floating-point optimizations that change values."""
    # The flags are split into two parts, because the test also searches this file.
    forbidden = ["-f" + "fast-math", "-O" + "fast", "-funsafe" + "-math-optimizations", "-ffp-contract" + "=fast"]
    for path in text_files():
        if path.suffix != ".md":
            found = [flag for flag in forbidden if flag in path.read_text()]
            assert not found, f"{path.relative_to(ROOT)} uses {found}"


def test_only_the_two_error_files_define_exceptions() -> None:
    """Checks that exceptions are defined only in files named errors.py."""
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
    """Checks that each file and each public class has a docstring that says its purpose."""
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree), f"{path.relative_to(ROOT)} has no module docstring"
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{path.relative_to(ROOT)}: {node.name} has no docstring"


@pytest.mark.parametrize("name", oc.__all__)
def test_public_python_has_docstrings(name: str) -> None:
    """Checks that all names that `outcrop` exports, and their methods, have docstrings."""
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
    """Return a dictionary from each class name to the files that define a class with this name."""
    found: dict[str, list[str]] = {}
    for name, source in sources.items():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(name)
    return found


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_class_name_is_defined_once(library: str) -> None:
    """Checks that each library defines a class name only once."""
    mine = [path for path in python_files() if LIBRARIES[library](path)]
    assert len(mine) > 10
    classes = classes_in({str(path.relative_to(ROOT)): path.read_text() for path in mine})
    assert not {name: files for name, files in classes.items() if len(files) > 1}


def test_a_class_that_is_defined_twice_is_found() -> None:
    """Checks that `classes_in` finds a class that is defined twice. The definitions may be inside classes and
    functions."""
    assert classes_in({"a": "class A:\n    class B: pass", "b": "def f():\n    class B: pass"})["B"] == ["a", "b"]


def files_of_tests() -> list[Path]:
    """Return the Python files of the tests and of their helpers."""
    return sorted(path for folder in TESTS for path in folder.rglob("*.py"))


@pytest.mark.parametrize("path", files_of_tests(), ids=lambda path: path.name)
def test_every_file_of_the_tests_says_what_it_protects_or_gives(path: Path) -> None:
    """Checks that each file of the tests has a docstring that says what the file checks or provides."""
    assert ast.get_docstring(ast.parse(path.read_text())), f"{path.relative_to(ROOT)} has no module docstring"


def imported_tests(source: str) -> list[str]:
    """Return the test modules that a source imports."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [name for name in found if re.search(r"(^|\.)test_", name)]


def test_no_file_imports_a_test_module() -> None:
    """Checks that no file imports a test module. Tests share code only through helper modules."""
    wrong = {path.name: imported_tests(path.read_text()) for path in files_of_tests()}
    assert not {name: tests for name, tests in wrong.items() if tests}
    assert imported_tests("from test_a import b\nfrom tests import test_c\nimport fields, test_d") == [
        "test_a", "test_a.b", "tests.test_c", "test_d",
    ]  # fmt: skip


CHECKS = ("pytest.raises", "pytest.fail", "pytest.warns", "np.testing.", "validate", "check")
"""Prefixes of the names of functions that check something and raise an error."""


def idle_tests(sources: Mapping[str, str]) -> list[str]:
    """Return the tests that compare nothing themselves and call no function that compares something.

    `sources` maps the name of each module to its source. The search does not enter functions of other modules."""
    functions: dict[tuple[str, str], ast.FunctionDef] = {}
    places: dict[tuple[str, str], tuple[str, str]] = {}  # (module, name) -> its place
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
    """Checks that each test compares something."""
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
    """Checks that `idle_tests` finds tests that compare nothing. If `idle_tests` found no test,
    `test_every_test_compares_something` would always pass."""
    modules = {
        "test_a": f"from helpers import other as run, same_for\ndef same():\n    assert 1\ndef test_it():\n    {body}",
        "helpers": "def same():\n    assert run()\ndef same_for(one):\n    same()\ndef other(): pass",
        "others": "def run():\n    assert False",
    }
    assert idle_tests(modules) == ["test_it"] * is_idle


def test_readme_names_only_targets_and_files_that_exist() -> None:
    """Checks that each `make` target and each path in the README exists."""
    text = (ROOT / "README.md").read_text()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    named = set(re.findall(r"\bmake ([a-z-]+)`?", "\n".join(re.findall(r"`[^`]+`|^    .*$", text, flags=re.M))))
    assert named <= targets, f"README names unknown targets {named - targets}"
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / link).exists(), f"README links to {link}, which does not exist"
