"""Suites: labels, cases, names read without importing torch."""

import inspect
import itertools
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest
from made_suites import changed_suite, make_suite

from lockstep import Case, grid, variant
from lockstep.asv.benchmark import LockstepBenchmark, series_of
from lockstep.suite.definition import PROTOCOL_VERSION, SuiteError
from lockstep.suite.discovery import load_suites, packages_folder, packages_under_test
from lockstep.suite.evaluate import bind, in_history
from lockstep.suite.selection import match_cases, match_labels, nearest, pick_suites
from lockstep.suite.variants import load_family

REPOSITORY = Path(__file__).parents[2]

SUITE = """
from lockstep import Cost, Suite, grid


class Thing(Suite):
    module = "toy.thing"
    baseline = "plain"
    cases = grid(M=[1, 2])
    quick = grid(M=[1])
    WIDTH = 3

    def draw(self, new, M):
        return {"x": new.normal(M, M)}

    def reference(self, x):
        return x

    def cost(self, M):
        return Cost(2 * M, 4 * M)
"""
KERNELS = 'import torch\n\nVARIANTS = {"plain": torch.clone, "op.fast": torch.clone, "op.slow": torch.clone}\n'

numbers = itertools.count()


def write_project(root, suite=SUITE, kernels=KERNELS):
    """Benchmark folder of a tiny project; each of another name, because Python imports a name once."""
    folder = root / f"suites{next(numbers)}_{root.name}"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "thing.py").write_text(suite)
    (root / "toy").mkdir(exist_ok=True)
    (root / "toy" / "__init__.py").touch()
    (root / "toy" / "thing.py").write_text(kernels)
    return folder


@pytest.fixture
def load(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path.copy())

    def load_one(suite=SUITE, kernels=KERNELS):
        return load_suites(write_project(tmp_path, suite, kernels))["thing"]

    yield load_one
    for name in [name for name in sys.modules if name.partition(".")[0] == "toy"]:
        del sys.modules[name]


def changed(old, new):
    assert SUITE.count(old) == 1
    return SUITE.replace(old, new)


def test_a_label_has_the_axes_in_order_and_a_flag_by_name():
    assert Case(M=8, K=4096).label == "M=8,K=4096"
    assert Case(M=8, bias=True).label == "M=8,bias"
    assert Case(M=8, bias=False).label == "M=8"
    assert Case(M=1).label == "M=1"
    assert dict(Case(M=8, bias=False)) == {"M": 8, "bias": False}


def test_cases_are_all_combinations_first_axis_slowest():
    assert [case.label for case in grid(K=[4, 5], N=6, M=(1, 2))] == [
        "K=4,N=6,M=1",
        "K=4,N=6,M=2",
        "K=5,N=6,M=1",
        "K=5,N=6,M=2",
    ]
    assert len({Case(M=1), Case(M=1), Case(M=2)}) == 2


def test_a_case_listed_twice_is_refused(load):
    with pytest.raises(SuiteError, match="suite thing: case M=1 is listed twice"):
        load(changed("cases = grid(M=[1, 2])", "cases = grid(M=[1, 2, 1])"))


def test_an_unknown_case_is_told_the_known_ones(load):
    suite = load()
    assert suite.case("M=2") == Case(M=2)
    with pytest.raises(SuiteError, match=r"no case 'M=3'; it has\n  M=1\n  M=2$"):
        suite.case("M=3")


def test_the_recorded_history_goes_on_with_its_series():
    """Its series were recorded under digests of the suites' source, which versions have replaced."""
    stored = json.loads((REPOSITORY / "results" / "benchmarks.json").read_text())
    versions = {name: row["version"] for name, row in stored.items() if name != "version"}
    for suite in load_suites(REPOSITORY / "benchmarks").values():
        benchmark = f"{suite.name}{'_' if suite.op else '.'}latency"
        # A new family has no recorded history yet.
        assert versions.get(benchmark, suite.benchmark_version) == suite.benchmark_version


def test_the_changelog_names_the_protocol():
    """Users learn there that every series starts anew."""
    told = Path(__file__).parents[2].joinpath("CHANGELOG.md").read_text()
    assert re.findall(r"^Protocol version (\d+)\.", told, re.MULTILINE)[0] == str(PROTOCOL_VERSION)


def test_a_history_follows_every_variant_on_the_ladder_and_few_elsewhere(load):
    suite = load(
        changed(
            "    WIDTH = 3\n",
            '    tracked = ("op.fast",)\n    full_history = warm_history = lambda self, M: M < 2\n',
        )
    )
    one, two = suite.cases

    def followed(case, l2):
        return [name for name in suite.variants() if in_history(suite, name, case, l2)]

    assert followed(one, "cold") == ["plain", "op.fast", "op.slow"]
    assert followed(two, "cold") == followed(one, "warm") == ["plain", "op.fast"]
    assert followed(two, "warm") == []
    cold = changed_suite(suite, warm_history=lambda M: False)
    assert not any(in_history(cold, "plain", case, "warm") for case in suite.cases)
    assert all(in_history(load(), name, two, "warm") for name in suite.variants())
    # What a machine without a GPU measures is few as it is.
    only_quick = changed_suite(suite, cases=(one,), quick=(two,))
    assert in_history(only_quick, "op.slow", two, "warm")


def test_variant_names_are_those_of_the_op(load):
    assert load().variants() == ("plain", "op.fast", "op.slow")


def test_an_op_owns_the_variants_with_its_prefix(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path.copy())
    text = changed("    WIDTH = 3\n", '    op = "op"\n').replace('"plain"', '"fast"')
    suite = load_suites(write_project(tmp_path, text))["thing.op"]
    assert suite.variants() == ("fast", "slow")


def test_the_last_variants_count_as_in_python(load):
    other = 'VARIANTS: dict = {"plain": torch.clone, "other": torch.clone}\n'
    assert load(kernels=KERNELS + other).variants() == ("plain", "other")


def test_a_family_may_lie_deeper_in_its_package(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path.copy())
    benchmarks = write_project(tmp_path, changed('module = "toy.thing"', 'module = "toy.deep.thing"'))
    (tmp_path / "toy/deep").mkdir()
    (tmp_path / "toy/__init__.py").write_text("raise RuntimeError('names are read without importing anything')\n")
    (tmp_path / "toy/thing.py").rename(tmp_path / "toy/deep/thing.py")
    assert load_suites(benchmarks)["thing"].variants() == ("plain", "op.fast", "op.slow")


def test_a_baseline_that_is_no_variant_is_refused(load):
    # Measuring would have it "not in this commit", and no speedup of anything.
    with pytest.raises(
        SuiteError, match=r"its baseline 'plane' is not in VARIANTS of toy\.thing, which has plain, op\.fast"
    ):
        load(changed('baseline = "plain"', 'baseline = "plane"'))


@pytest.mark.parametrize("kernels", ["", "VARIANTS = dict(plain=1)", "VARIANTS = {name: 1 for name in 'ab'}", "V = {}"])
def test_variants_that_cannot_be_read_are_said_to_be_unreadable(load, kernels):
    with pytest.raises(SuiteError, match=r"toy/thing\.py: needs VARIANTS = \{'name': function, …\} as a literal"):
        load(kernels=kernels)


@pytest.mark.parametrize("comment", ["", "// where packages lie\n"])
def test_variants_are_read_where_the_configuration_says_that_packages_lie(tmp_path, monkeypatch, comment):
    monkeypatch.setattr(sys, "path", sys.path.copy())
    folder = write_project(tmp_path, SUITE.replace('"toy.thing"', '"toys.thing"').replace('"plain"', '"moved"'))
    (tmp_path / "source" / "toys").mkdir(parents=True)
    (tmp_path / "source" / "toys" / "thing.py").write_text(KERNELS.replace('"plain"', '"moved"'))
    (tmp_path / "toys").mkdir()  # of another meaning
    (tmp_path / "toys" / "thing.py").write_text("VARIANTS = {}\n")
    (tmp_path / "asv.conf.json").write_text(comment + '{"version": 1, "repo_subdir": "source"}')
    [suite] = load_suites(folder).values()
    assert suite.variants() == ("moved", "op.fast", "op.slow")


@pytest.mark.parametrize(
    ("line", "meant"), [("toleranse = 3", "tolerance"), ("def warm_histroy(self): ...", "warm_history")]
)
def test_a_misspelt_attribute_is_refused(load, line, meant):
    name = re.findall(r"\w+", line.removeprefix("def "))[0]
    with pytest.raises(SuiteError, match=rf"suite Thing: Lockstep knows no {name}; did you mean {meant}\?"):
        load(changed("    WIDTH = 3\n", f"    {line}\n"))


def test_a_mistake_in_the_kernels_is_named_with_its_line(load):
    with pytest.raises(SuiteError, match=r"toy/thing\.py:2: invalid syntax"):
        load(kernels="import torch\nVARIANTS = {,}\n")


def test_a_suite_without_kernels_says_what_is_missing(load):
    with pytest.raises(SuiteError, match=r'no module toy\.missing\. .* module = "your_package\.module"'):
        load(changed('"toy.thing"', '"toy.missing"'))


def test_a_measured_package_must_come_from_the_commit(load):
    # Else it would be today's at every commit, without a word.
    suites = {"thing": load()}
    assert packages_under_test(SimpleNamespace(lockstep={"packages": ["helpers", "toy"]}), suites) == ("helpers", "toy")
    for conf, there in [(SimpleNamespace(), "kernels"), (SimpleNamespace(lockstep={"packages": ["toi"]}), "toi")]:
        with pytest.raises(SuiteError, match=rf'needs "lockstep": {{"packages": \["toy"\]}}, but has {there}'):
            packages_under_test(conf, suites)


def test_a_package_that_a_suites_own_variants_import_must_come_from_the_commit(load, tmp_path, monkeypatch):
    (tmp_path / "helping.py").touch()
    variants = """
    @variant
    def plain(self, x):
        import helping
        return x

    @variant(prepare=lambda x: {})
    def ours(self, x):
        from toy import thing
        return thing.fast(x)

    def draw("""
    own = changed('    module = "toy.thing"\n', "").replace("    def draw(", variants[1:], 1)
    suites = {"thing": load(own.replace("import Cost, Suite, grid", "import Cost, Suite, grid, variant"))}
    monkeypatch.chdir(tmp_path)
    listed = {"packages": ["toy"]}
    assert packages_under_test(SimpleNamespace(lockstep=listed), suites) == ("toy",)
    for conf, there in [(SimpleNamespace(), "kernels"), (SimpleNamespace(lockstep={"packages": ["toi"]}), "toi")]:
        with pytest.raises(SuiteError, match=rf"measures helping, .* not among the packages .* but has {there}"):
            packages_under_test(conf, suites)
    with pytest.raises(SuiteError, match="is empty, so no code comes from a commit"):
        packages_under_test(SimpleNamespace(lockstep={"packages": []}), suites)


def test_the_working_tree_must_hold_what_is_measured(load, tmp_path, monkeypatch):
    # Without it two commits were the same, whatever differed in src/.
    suites = {"thing": load()}
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "toy").rename(tmp_path / "src/toy")
    assert packages_folder(SimpleNamespace(repo_subdir="src"), suites) == tmp_path / "src"
    with pytest.raises(SuiteError, match=r'holds no package toy.*"repo_subdir": "src"'):
        packages_folder(SimpleNamespace(repo_subdir=""), suites)
    # Where the folder is named already, the name of the package is what may be wrong.
    (tmp_path / "src/toy").rename(tmp_path / "src/toys")
    with pytest.raises(SuiteError, match=r"holds no package toy, which .*; did you mean toys\?"):
        packages_folder(SimpleNamespace(repo_subdir="src"), suites)
    (tmp_path / "src/toys").rename(tmp_path / "src/other")
    with pytest.raises(SuiteError, match=r'"repo_subdir" in asv.conf.json names that folder \(src\)'):
        packages_folder(SimpleNamespace(repo_subdir="src"), suites)


def test_asv_gets_every_variant_case_and_cache_state(load):
    suite = load()
    latency, speedup = series_of(suite, "latency"), series_of(suite, "speedup")
    assert latency.params == [["plain", "op.fast", "op.slow"], ["M=1", "M=2"], ["cold", "warm"]]
    assert (latency.__name__, speedup.__name__) == ("latency", "speedup")
    assert latency.version == speedup.version == suite.benchmark_version
    assert latency.__module__ == type(suite).__module__
    assert latency.pretty_source.startswith("class Thing(Suite):")


OWN = changed("    WIDTH = 3\n", "    @variant\n    def own(self, x):\n        return 2 * x\n").replace(
    "Suite, grid", "Suite, grid, variant"
)


def test_a_suite_may_define_variants_beside_those_of_its_module(load):
    suite = load(OWN)
    assert suite.variants() == ("plain", "op.fast", "op.slow", "own")
    with pytest.raises(SuiteError, match=r"and toy\.thing both have a variant own: rename one"):
        load(OWN, KERNELS.replace('"plain"', '"own"'))


def test_a_suite_of_its_own_variants_needs_no_module(load):
    alone = OWN.replace('    module = "toy.thing"\n', "").replace('"plain"', '"own"')
    suite = load(alone)
    assert suite.variants() == ("own",)
    family = load_family(suite)
    assert (family.variants["own"](3), list(inspect.signature(family.variants["own"]).parameters)) == (6, ["x"])
    with pytest.raises(SuiteError, match=r"its baseline 'op' is not marked @variant in Thing, which has own"):
        load(alone.replace('"own"', '"op"'))
    # Nothing of it names the package, so that asv.conf.json alone does.
    assert packages_under_test(SimpleNamespace(lockstep={"packages": ["toy"]}), {"thing": suite}) == ("toy",)


def test_what_a_variant_needs_may_be_prepared(load):
    text = OWN.replace("@variant\n    def own(self, x)", "@variant(prepare=packed)\n    def own(self, twice)")
    text = text.replace("return 2 * x\n", "return twice\n").replace(
        "class Thing", "def packed(x):\n    return {'twice': 2 * x}\n\n\nclass Thing"
    )
    suite = load(text)
    assert load_family(suite).arguments("own", {"x": 3}) == {"twice": 6}


def test_an_incomplete_suite_is_named_and_a_base_is_none(load, tmp_path):
    with pytest.raises(SuiteError, match="suite Thing needs draw; a class that is only a base"):
        load(changed("def draw", "def drawn"))
    with pytest.raises(SuiteError, match="suite thing: class Thing needs quick"):
        load(changed("    quick = grid(M=[1])\n", ""))
    assert load_suites(write_project(tmp_path, changed("class Thing", "class _Thing"))) == {}


def test_a_suite_that_another_module_imports_is_the_suite_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path.copy())
    folder = write_project(tmp_path)
    (folder / "other.py").write_text(f"from {folder.name}.thing import Thing\n")
    assert list(load_suites(folder)) == ["thing"]
    # asv asks each module for its classes.
    module = sys.modules[f"{folder.name}.other"]
    assert LockstepBenchmark("", module.Thing.latency, [module.Thing().latency, module.Thing(), module]) is None
    module = sys.modules[f"{folder.name}.thing"]
    benchmark = LockstepBenchmark("", module.Thing.speedup, [module.Thing().speedup, module.Thing(), module])
    assert (benchmark.name, benchmark.quantity) == ("thing.speedup", "speedup")
    assert benchmark.version == module.Thing().benchmark_version


def test_two_suites_of_one_name_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path.copy())
    folder = write_project(tmp_path)
    (folder / "zz.py").write_text(changed("    WIDTH = 3\n", '    family = "thing"\n'))
    with pytest.raises(SuiteError, match=r"two suites are called thing; the second is in .*zz\.py"):
        load_suites(folder)


def test_a_suite_module_that_fails_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path.copy())
    folder = write_project(tmp_path, "import lockstep\nimport no_such_module")
    with pytest.raises(SuiteError, match=r"suite module suites\S*\.thing cannot be imported: ModuleNotFoundError"):
        load_suites(folder)
    with pytest.raises(SuiteError, match="is not a package of suites"):
        load_suites(tmp_path / "toy" / "missing")


def test_modules_of_other_tools_are_not_imported(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path.copy())
    folder = write_project(tmp_path)
    (folder / "plot.py").write_text("import no_such_module\n")
    (folder / "script.py").write_text("import sys\nsys.exit(1)\n")
    (folder / "throughput").mkdir()
    (folder / "throughput/__init__.py").write_text("from no_such_module import everything\n")
    assert list(load_suites(folder)) == ["thing"]
    (folder / "more.py").write_text("from .plot import what\n")
    with pytest.raises(SuiteError, match=r"more cannot be imported: ModuleNotFoundError"):
        load_suites(folder)


def test_an_unknown_family_is_told_the_nearest(load):
    suites = {"linear": 1, "grouped.mlp": 1}
    assert nearest("liner", suites) == "; did you mean linear?"
    assert nearest("xyz", suites) == "; there is linear, grouped.mlp"
    suite = load()
    assert pick_suites({"thing": suite}, "thing") == [suite]
    with pytest.raises(SuiteError, match="no family 'thin'; did you mean thing"):
        pick_suites({"thing": suite}, "thin")


def test_a_function_gets_the_arguments_that_it_names():
    assert bind(lambda a, c=3: None, {"a": 1, "b": 2}) == {"a": 1}
    assert bind(lambda **rest: None, {"a": 1, "b": 2}) == {"a": 1, "b": 2}
    assert bind(lambda a, *, out: None, {"a": 1}) == {"a": 1}
    with pytest.raises(SuiteError, match=r"needs the parameters weight, but only these exist: a, b"):
        bind(lambda a, weight: None, {"a": 1, "b": 2})


def test_this_repositorys_suites_are_discovered_without_torch():
    """Every suite loads, its variants are those of the module, and discovery starts fast."""
    program = """
        import sys
        from pathlib import Path
        from lockstep.suite.discovery import load_suites

        suites = load_suites(Path("benchmarks"))
        read = {name: suite.variants() for name, suite in suites.items()}
        assert "torch" not in sys.modules and "triton" not in sys.modules, "discovery imported torch"
        modules = {path.stem for path in Path("benchmarks").glob("*.py")} - {"__init__"}
        assert modules == {suite.family for suite in suites.values()}, modules

        from lockstep.suite.variants import load_family

        for name, suite in suites.items():
            assert read[name] == tuple(load_family(suite).variants), name
            assert suite.baseline in read[name], name
            assert suite.quick and suite.cases, name
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_the_whole_label_of_a_case_picks_no_case_with_a_flag_besides():
    plain, flagged, other = Case(M=1, K=64), Case(M=1, K=64, bias=True), Case(M=2, K=64)
    suite = make_suite(cases=(flagged, plain, other))
    assert match_cases(suite, "M=1,K=64") == [plain]
    assert match_cases(suite, "K=64, M=1") == [plain]
    assert match_cases(suite, "M=1") == [flagged, plain]
    assert match_labels([suite], ["M=2", "M=1,K=64"]) == {"thing": ["M=1,K=64", "M=2,K=64"]}


def test_stated_costs_are_benchmarks():
    plain, stated = make_suite(), make_suite(quantities=("behind",))
    found = {name for name, _ in inspect.getmembers(type(stated), inspect.isfunction)}
    assert found - {name for name, _ in inspect.getmembers(type(plain), inspect.isfunction)} == {
        "behind",
        "behind_speedup",
    }
    with pytest.raises(SuiteError, match="suite thing: there is no quantity 'latency', only host, behind, energy"):
        make_suite(quantities=("latency",))


def test_a_member_that_has_the_name_of_a_stated_cost_is_refused():
    for member in (lambda self, M: M, variant(lambda: None), 3):
        with pytest.raises(SuiteError, match="states the quantity behind, so rename its member behind"):
            make_suite(quantities=("behind",), behind=member)
    own = make_suite(behind=lambda self, M: M)
    assert type(own).behind(own, 3) == 3, "nothing else claims the name"
    stated = make_suite(quantities=("behind",))
    assert changed_suite(stated, quantities=("behind", "host")).quantities == ("behind", "host"), (
        "a base may state it too"
    )


def test_the_folder_that_was_asked_for_is_loaded_and_no_other_of_its_name(tmp_path, load, monkeypatch):
    other, asked = tmp_path / "other", tmp_path / "asked"
    for root in (other, asked):
        root.mkdir()
    folder = write_project(asked)
    (other / folder.name).mkdir()
    (other / folder.name / "__init__.py").touch()
    # As with PYTHONPATH, where another repository stands before this one.
    monkeypatch.setattr(sys, "path", [str(other), str(asked), *sys.path])
    assert list(load_suites(folder)) == ["thing"]
    # Somebody may have imported it by a link, or from the current folder.
    (tmp_path / "link").symlink_to(asked)
    link = str(tmp_path / "link" / folder.name)
    monkeypatch.setattr(sys.modules[folder.name], "__path__", [link])
    assert list(load_suites(folder)) == ["thing"]
    with pytest.raises(SuiteError, match=rf"another package {folder.name} is imported already, from {link}"):
        load_suites(other / folder.name)
