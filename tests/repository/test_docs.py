"""The pages name files, anchors and commands that are there, the site loads nothing, and the drawing shows imports."""

import argparse
import ast
import dataclasses
import re
from importlib.metadata import entry_points
from pathlib import Path

import asv.commands
import pytest

import tools.__main__  # noqa: F401 — makes its verbs known
from lockstep.record import model

ROOT = Path(__file__).parents[2]
BESIDE = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "results/README.md", "tests/bench/README.md")
PAGES = [ROOT / name for name in BESIDE] + sorted(ROOT.glob("docs/**/*.md"))
PACKAGES = [ROOT / name for name in ("lockstep", "dashboard", "kernels", "benchmarks", "tools", "tests")]
FILE = re.compile(
    r"(?<![\w./>-])(?:lockstep|dashboard|kernels|benchmarks|tools|tests|docs|deploy|constraints|results|\.github|\.ci)"
    r"/[\w/.-]+\.(?:py|md|toml|css|js|yml|service|conf|txt)\b"
)
#: A file without its folder, which only a file of the repository's root may be.
NAME = re.compile(r"`([A-Za-z]\w*\.(?:py|md|yml))`")
#: Files that a command or a reader makes.
EXAMPLES = {"benchmarks/rmsnorm.py", "benchmarks/bench_rope.py", "benchmarks/ops/registry.py", "FILE.py", "gate.md"}
#: What a docstring, a comment or a page names by its dotted name.
DOTTED = re.compile(r"`((?:lockstep|dashboard|kernels)(?:\.\w+)+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
PROGRAMS = r"(?:\.venv/bin/)?lockstep|(?:\.venv/bin/)?python -m tools"
COMMAND = re.compile(rf"(?:^|`)(?:{PROGRAMS}) ([^`\n#|;>]*)", re.MULTILINE)


def by_name(page):
    return str(page.relative_to(ROOT))


def anchors(page):
    """Anchors of a page's headings, as GitHub and the site write them."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    headings = [re.sub(r"\]\([^)]*\)|[`*\[]", "", one) for one in re.findall(r"^#+ (.+)$", text, re.MULTILINE)]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def links(page):
    """Relative links of a page, as (file, anchor)."""
    for link in LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8"))):
        if not re.match(r"\w+:", link):
            path, _, anchor = link.partition("#")
            yield (page.parent / path).resolve() if path else page, anchor


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_files_that_a_page_names_are_there(page):
    text = LINK.sub("]", page.read_text(encoding="utf-8"))
    missing = {name for name in FILE.findall(text) if not (ROOT / name).is_file()}
    missing |= {name for name in NAME.findall(text) if not (ROOT / name).is_file()}
    assert missing - EXAMPLES == set()


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_links_of_a_page_lead_to_files_and_headings(page):
    lost = [(path.name, anchor) for path, anchor in links(page) if not path.exists()]
    lost += [(path.name, at) for path, at in links(page) if at and path.suffix == ".md" and at not in anchors(path)]
    assert lost == []


def test_pages_that_code_and_settings_name_are_there():
    texts = [path for package in PACKAGES for path in package.rglob("*.py")]
    texts += [ROOT / "thresholds.toml", *ROOT.glob("deploy/*"), *ROOT.glob(".github/**/*.yml")]
    named = re.compile(r"\bdocs/[\w/-]+\.md(?:#[\w-]+)?")
    example = {"docs/toy.md", "docs/news.md"}  # of the tests' own projects
    lost = {
        f"{by_name(text)}: {link}"
        for text in texts
        for link in set(named.findall(text.read_text(encoding="utf-8"))) - example
        if not (ROOT / link.partition("#")[0]).is_file()
        or ("#" in link and link.partition("#")[2] not in anchors(ROOT / link.partition("#")[0]))
    }
    assert lost == set()


def options_of(parser, words):
    """The options of the verb that a command line names, or None if there is no such verb or action."""
    options = {option for action in parser._actions for option in action.option_strings}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction) and words and words[0][:1] not in "-<…":
            below = action.choices.get(words[0])
            return None if below is None else options_of(below, words[1:])
    return options


def test_commands_that_pages_show_exist():
    for verb in entry_points(group="lockstep.commands"):
        verb.load()
    parser, _ = asv.commands.make_argparser()
    wrong, seen = [], 0
    for page in PAGES:
        for line in COMMAND.findall(page.read_text(encoding="utf-8")):
            seen += 1
            options = options_of(parser, line.split())
            asked = set(re.findall(r"(?<!\S)\[?(--[a-z][\w-]*)", line))
            if options is None or asked - options:
                wrong.append((by_name(page), line))
    assert wrong == []
    assert seen > 100


def test_targets_of_make_that_pages_name_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        named = re.findall(r"^make ([a-z-]+)", "".join(FENCED.findall(text)), re.MULTILINE)
        assert {*named, *re.findall(r"`make ([a-z-]+)", text)} <= targets, page


def test_the_page_of_the_data_model_names_every_field():
    text = (ROOT / "docs/schema.md").read_text(encoding="utf-8")
    classes = [one for one in vars(model).values() if dataclasses.is_dataclass(one)]
    assert model.Record in classes
    fields = {field.name for one in classes for field in dataclasses.fields(one)}
    assert fields - set(re.findall(r"\b\w+\b", text)) == set()


def test_the_site_holds_every_page_and_loads_nothing_from_another_host(tmp_path):
    build = pytest.importorskip("mkdocs.commands.build", reason="the extra `docs` is not installed")
    config = pytest.importorskip("mkdocs.config")
    settings = config.load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path), strict=True)
    build.build(settings)
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) >= len(list(ROOT.glob("docs/**/*.md")))
    loaded = r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']([^\"']+)|<link\b[^>]*\bhref=[\"']([^\"']+)"
    for page in pages:
        for found in re.findall(loaded, page.read_text(encoding="utf-8")):
            assert not re.match(r"(?:https?:)?//", "".join(found)), (page.name, found)
    for sheet in tmp_path.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(?:https?:)?//|@import", sheet.read_text(encoding="utf-8")), sheet


def imported(package):
    """Packages of ours that the modules below a folder import, as dotted names."""
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                yield node.module
            elif isinstance(node, ast.Import):
                yield from (name.name for name in node.names)


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
