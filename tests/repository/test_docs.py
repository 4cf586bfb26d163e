"""The documentation names files that are there, and draws imports that are there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "results/README.md")] + sorted(
    ROOT.glob("docs/**/*.md")
)
FILE = re.compile(r"\b(?:lockstep|dashboard|kernels|benchmarks|tools|tests|docs)/[\w/.-]+\.(?:py|md|toml|css|js)\b")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


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
    missing |= {link for link in LINK.findall(prose) if not (page.parent / link).exists()}
    assert missing == set()


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
