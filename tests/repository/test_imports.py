"""Imports between packages and rooms go one way, and imports inside functions say why."""

import ast
from collections import Counter, defaultdict
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: What each package may import of the others: kernels ← benchmarks → lockstep ← dashboard, and tools on top.
ALLOWED = {
    "kernels": set(),
    "benchmarks": {"kernels", "lockstep"},
    "lockstep": set(),
    "dashboard": {"lockstep"},
    "tools": {"kernels", "benchmarks", "lockstep", "dashboard"},
}

#: The rooms that measure run on machines that have no store of results.
MEASURE = {
    "suite",
    "gpu",
    "timing",
    "record",
    "processes",
    "machine_code",
    "same_work",
    "gate",
    "asv",
    "tuning",
    "fleet",
    "referee",
    "scripts",
}
HISTORY = {"history", "detect", "alerts", "notify", "compare"}


def modules():
    for package in ALLOWED:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield package, path, path.read_text(encoding="utf-8")


def imported(tree):
    """Names of the modules that any statement of a module imports, whether they exist or not."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room(name):
    """The package and the room of a name; a module beside the rooms is a room, and so is the package's own."""
    package, *rest = name.split(".")
    path = ROOT / package / "".join(rest[:1])
    return package, rest[0] if rest and (path.is_dir() or path.with_suffix(".py").exists()) else "__init__"


@pytest.fixture(scope="module")
def arrows():
    """From a room to each room that it imports, with one importing module of each."""
    found = defaultdict(dict)
    for _, path, text in modules():
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for name in imported(ast.parse(text)):
            if name.split(".")[0] in ALLOWED:
                found[room(module)][room(name)] = module
    return found


def test_packages_import_one_way(arrows):
    wrong = [
        f"{module} imports {there[0]}"
        for here, others in arrows.items()
        for there, module in others.items()
        if there[0] != here[0] and there[0] not in ALLOWED[here[0]]
    ]
    assert wrong == []


def test_measuring_needs_no_history(arrows):
    wrong = [
        f"{module} imports {there[1]}"
        for (package, here), others in arrows.items()
        for there, module in others.items()
        if package == there[0] == "lockstep" and here in MEASURE and there[1] in HISTORY
    ]
    assert wrong == []


@pytest.mark.parametrize("package", ALLOWED)
def test_rooms_form_no_circle(arrows, package):
    graph = {
        here: {there for there in others if there != here and there[0] == package}
        for here, others in arrows.items()
        if here[0] == package
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle = error.args[1]
        steps = [f"{arrows[later][earlier]} imports {earlier[1]}" for earlier, later in pairwise(circle)]
        pytest.fail(f"a circle: {'; '.join(steps)}")


def test_folders_within_a_room_form_no_circle():
    """In each folder, its modules and its folders import each other one way."""
    folders = defaultdict(lambda: defaultdict(set))
    for _, path, text in modules():
        here = path.relative_to(ROOT).with_suffix("").parts
        for name in {} if here[-1] == "__init__" else imported(ast.parse(text)):
            there = tuple(name.split("."))
            common = next((n for n, (one, other) in enumerate(zip(here, there, strict=False)) if one != other), 0)
            folder = ROOT.joinpath(*here[:common], there[common])
            if common and (folder.is_dir() or folder.with_suffix(".py").exists()):
                folders[here[:common]][here[common]].add(there[common])
    assert {len(folder) for folder in folders} >= {1, 2, 3}
    for folder, graph in folders.items():
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            pytest.fail(f"a circle in {'/'.join(folder)}: {' imports '.join(reversed(error.args[1]))}")


def test_modules_form_no_circle():
    names = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): text
        for _, path, text in modules()
    }

    def module(name):
        return next((part for part in (name, name.rpartition(".")[0]) if part in names), None)

    graph = {here: {module(name) for name in imported(ast.parse(text))} - {here, None} for here, text in names.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a circle: {' imports '.join(reversed(error.args[1]))}")


def test_imports_inside_functions_say_why():
    """Those of a verb, of a worker and of slow packages need no comment: CONTRIBUTING.md has the reason."""
    silent = [
        f"{path.relative_to(ROOT)}:{number}"
        for _, path, text in modules()
        if path.parent != ROOT / "lockstep/commands" and path.stem not in ("worker", "contestant_process")
        for number, package in sorted(_late_imports(ast.parse(text)))
        if package not in ("torch", "triton", "scipy") and not _explained(text.splitlines(), number - 1)
    ]
    assert silent == []


def _late_imports(tree):
    """Line and top-level package of each import inside a function."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    yield node.lineno, next(imported(node)).partition(".")[0]


def _explained(lines, at):
    """Whether an import has a comment in its line, or above the imports that it stands among."""
    while "#" not in lines[at]:
        text = lines[at].strip()
        if not text.startswith(("import ", "from ")) and text not in ("", ")") and not text.endswith(","):
            return False
        at -= 1
    return True


def test_no_two_files_of_tests_have_one_name():
    """Pytest imports them by name alone, and collects nothing if two are the same."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
