"""The documentation and the Makefile name files that are there, and the drawing has the imports that are there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "results/README.md")] + sorted(
    ROOT.glob("docs/**/*.md")
)
FILE = re.compile(r"\b(?:lockstep|dashboard|kernels|benchmarks|tools|tests|docs)/[\w/.-]+\.(?:py|md|toml|css|js)\b")
#: The file that a page names without its folder, which is that of the last file named before it.
NAME = re.compile(r"`([a-z]\w*\.py)`")
#: What a docstring, a comment or a page names by its dotted name.
DOTTED = re.compile(r"`((?:lockstep|dashboard|kernels)(?:\.\w+)+)`")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


PACKAGES = [ROOT / name for name in ("lockstep", "dashboard", "kernels", "benchmarks", "tools", "tests")]


def imported(package):
    """Packages of ours that the modules below a folder import, as dotted names."""
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                yield node.module
            elif isinstance(node, ast.Import):
                yield from (name.name for name in node.names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_are_there(page):
    text = page.read_text(encoding="utf-8")
    example = {"benchmarks/rmsnorm.py"}  # docs/adopting.md makes it in another repository
    missing = {name for name in FILE.findall(text) if not (ROOT / name).is_file()} - example
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    for short in NAME.finditer(text):
        before = [name for name in FILE.findall(text, 0, short.start()) if name not in example]
        if not before or not (ROOT / before[-1]).with_name(short[1]).is_file():
            missing.add(short[1])
    missing |= {link for link in LINK.findall(prose) if not (page.parent / link).exists()}
    assert missing == set()


def test_what_code_and_pages_name_by_a_dotted_name_is_there():
    texts = [*PAGES, *(path for package in PACKAGES for path in package.rglob("*.py"))]
    named = {name: path for path in texts for name in DOTTED.findall(path.read_text(encoding="utf-8"))}
    assert len(named) > 100
    missing = {name: str(path.relative_to(ROOT)) for name, path in named.items() if not there(name)}
    assert missing == {}


def there(name):
    """Whether a module has the dotted name, or defines its last parts."""
    place, (first, *rest) = ROOT, name.split(".")
    while (place / first).is_dir():
        place /= first
        if not rest:
            return True
        first, *rest = rest
    module = place / f"{first}.py"
    names = rest if module.is_file() else [first, *rest]
    source = (module if module.is_file() else place / "__init__.py").read_text(encoding="utf-8")
    return all(re.search(rf"\b{one}\b", source) for one in names)


def test_the_drawing_of_the_packages_shows_imports():
    [drawing] = re.findall(
        r"```mermaid\n(.*?)```", (ROOT / "docs/architecture.md").read_text(encoding="utf-8"), re.DOTALL
    )
    arrows = re.findall(r"^ *(\w+) --> (.+)$", drawing, re.MULTILINE)
    drawn = {(start, end) for start, ends in arrows for end in re.findall(r"\w+", ends)}
    assert len(drawn) > 20
    for start, end in drawn:
        folder = ROOT / start if (ROOT / start).is_dir() else ROOT / "lockstep" / start
        name = f"lockstep.{end}"
        found = [one for one in imported(folder) if one == name or one.startswith(f"{name}.")]
        # Suites import what `lockstep` itself exports from lockstep.suite.
        assert found or (start, end) == ("benchmarks", "suite"), f"no import in {folder} of {name}"


def test_the_tests_of_make_check_are_there():
    [names] = re.findall(r"^CHECKED := ((?:.*\\\n)*.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    named = names.replace("\\", " ").split()
    assert len(named) > 20
    assert not [name for name in named if not (ROOT / "tests" / f"{name}.py").is_file()]
