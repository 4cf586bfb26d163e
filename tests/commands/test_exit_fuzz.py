"""Mistakes at random, of every verb: never a traceback, and never the status of a verdict.

Each command line is right but for one mistake, so that 0, 1 or 2 would be a false answer. ``LOCKSTEP_FUZZ=5000`` makes
more of them than ``make test`` does; each is seeded by its number, which a failure names.
"""

import io
import itertools
import json
import os
import random
import shutil
import signal
import sys
from contextlib import redirect_stderr, redirect_stdout

import pytest
from project import make_project
from verb import run_verb

import tools.__main__  # noqa: F401 — makes its verbs known

COUNT = int(os.environ.get("LOCKSTEP_FUZZ", "100"))

#: Command lines that are right: verb, then what each option takes ("" for a flag).
RESULTS = {"--results": "folder", "--repo": "folder", "--thresholds": "file"}
CHOOSE = {"--case": "case", "--family": "family"}
VERBS = {
    ("measure", "product"): {"--case": "case", "--variants": "variant", "--l2": "state", "--seed": "whole"},
    ("run", "HEAD^!"): {"--bench": "bench", "--steps": "whole", "--parallel": "whole"},
    ("gate",): {
        **CHOOSE,
        **{"--base": "commit", "--head": "commit", "--budget": "time", "--min-effect": "share", "--seed": "whole"},
        **{"--l2": "state", "--lock": "clock", "--json": "output", "--markdown": "output"},
    },
    ("code", "show"): {**CHOOSE, "--variant": "variant", "--target": "target"},
    ("code", "diff", "HEAD"): {"--family": "family", "--target": "target", "--markdown": "output"},
    ("noise", "product"): {"--runs": "count", "--series": "count", "--l2": "state", "--json": "output"},
    ("tune", "product"): {"--case": "case", "--variant": "variant", "--budget": "seconds", "--l2": "state"},
    ("profile", "product", "plain", "M=2,K=1024,N=512"): {"--l2": "state", "--calls": "count", "--limit": "seconds"},
    ("clocks", "lock"): {"--gpu": "gpu"},
    ("scoreboard",): {"--machine": "machine", "--l2": "state", "--targets": "file"},
    ("evaluate", "--quick", "--alone"): {"--seeds": "natural", "--series": "count", "--processes": "count"},
    ("changes",): {**RESULTS, "--machine": "machine", "--family": "family", "--since": "since"},
    ("alerts", "list"): {**RESULTS, "--machine": "machine", "--family": "family", "--state": "state file"},
    ("alerts", "mute", "1", "--because", "x"): {"--until": "day"},
    ("alerts", "show"): {"": "alert", "--results": "folder"},
    ("alerts", "notify"): {**RESULTS, "--again": "alert"},
    ("bisect",): {"": "alert", "--results": "folder", "--state": "state file"},
    ("ingest",): {"--results": "folder", "--repo": "folder"},
    ("dashboard",): {**RESULTS, "--port": "port", "--workers": "count", "--host": "host", "--proxy": "network"},
    ("show",): {"--machine": "machine", "--config": "file"},
    ("compare", "HEAD", "HEAD"): {"--machine": "machine", "--factor": "real"},
    ("publish",): {"--config": "file"},
    ("continuous", "HEAD~1", "HEAD"): {"--factor": "real", "--sort": "state", "--config": "file"},
    ("find", "HEAD~1..HEAD", "x"): {"--config": "file", "--parallel": "whole"},
    ("preview",): {"--port": "whole", "--config": "file"},
    ("check",): {"--config": "file"},
    ("rm", "-y", "x=y"): {"--config": "file"},
    ("setup",): {"--config": "file"},
    ("update",): {"--config": "file"},
}

HUGE = ["9" * 30, "-1" + "0" * 30, "1e999", "99999999999999999999"]
NAMES = ["", "nope", "../..", "\u202e", "a b", "x" * 5000, "--", "\udcff", "M=", "=", "%s", "[red]", "0"]
WORDS = ["one", "", "1.5.2", "0x10", "NaN NaN", "ten"]

#: What an option takes to values that are wrong there.
WRONG = {
    "folder": ["nope", "asv.conf.json", "nope/nope", "/dev/null", "/proc/self/mem", "x" * 5000],
    "file": ["nope.x", "nope/nope", "benchmarks", "x" * 5000],
    "output": ["nope/x.json", "asv.conf.json/x", "/proc/nope/x"],
    "state file": [".", "postgresql://", "mysql://x", "nope://x", "/proc/nope/x", "asv.conf.json"],
    "case": NAMES[1:],
    "family": NAMES[1:],
    "variant": NAMES[1:],
    "machine": NAMES[1:],
    "bench": ["nope", "produkt", "("],
    "state": [*NAMES, "Cold"],
    "commit": [*NAMES[1:-1], "HEAD~999", "-1"],
    "target": [*NAMES, "sm_1", "sm_90:x", "sm_90:-1", "hopper"],
    "gpu": NAMES,
    "host": ["999.1.1.1", "nope.invalid", "::g"],
    "network": ["nope", "10.0.0.0/99"],
    "whole": [*WORDS, "1e3", "x1"],
    "natural": [*WORDS, "-1"],
    "count": [*WORDS, "0", "-1", *HUGE[1:3]],
    "seconds": [*WORDS, "-1", "nan", "inf", "-inf", "1e999"],
    "real": WORDS,
    "time": [*WORDS, "-1s", "0s", "nan", "1h", "inf"],
    "share": [*WORDS, "0", "-1%", "100%", "nan", "1e999%"],
    "clock": [*WORDS, "-1", "0"],
    "since": ["2026-13-45", "yesterday", "", "zzzz", "0000", "9999-99-99"],
    "day": ["2026-13-45", "", "tomorrow", "0"],
    "alert": [*HUGE, *WORDS, "0", "-1", "12345678"],
    "port": [*WORDS, *HUGE, "-1", "65536"],
}

#: asv.conf.json as it must not be.
CONFIGS = ["", "{", "[]", "7", "null", '"x"', "\0", "[" * 3000, '{"version": 99}', "\ufeff{}", '{"version": 1}']
VALUES = [None, [], {}, [1], "", 0, -1, 1.5, True, {"x": 1}, "\0", [[]], 10**30, ["nope"], "nope"]
KEYS = {
    "version": [one for one in VALUES if one is not True],
    "repo": [one for one in VALUES if not isinstance(one, str) or one == "\0"] + ["", "nope"],
    "branches": [7, {}, "main", [1], [[]]],
    "plugins": [7, {}, "x", [1], ["nope"], [".nope"]],
    "benchmark_dir": VALUES,
    "results_dir": [None, [], {}, [1], 0, 1.5, True, "\0"],
    "lockstep": [None, [], [1], "", 0, True, {"x": 1}, {"packages": 1}, {"packages": [1]}, {"packages": []}],
    "default_benchmark_timeout": [None, [], {}, "60", 0, -1, True, 10**30],
}

#: thresholds.toml as it must not be.
THRESHOLDS = [
    "[", "x = 1", "[default]\nmin_effect = 2", "[default]\nmin_effect = 'a lot'", "[default]\nconfidence = 7",
    "[[rule]]", "[[rule]]\nmatch = 1", "[[rule]]\nmatch = {nope = 'x'}\nmin_effect = '1 %'", "default = []",
    "[[accept]]\nmatch = {}\n", "rule = 'x'", "[default]\nmin_effect = nan", "[default]\nmin_effect = true", "\0",
]  # fmt: skip

#: Suites that cannot be loaded; ``{good}`` is one that can.
SUITES = [
    "1 / 0", "def", "import nothing_of_this_name", "raise SystemExit(0)", "raise SystemExit(1)", "exit()",
    "import sys; sys.exit('no')", "raise RecursionError", "{good}\nProduct().nope",
    "from lockstep import Suite\nSuite()", "{good}\nclass Again(Product):\n    pass\n",
    "{good}\nProduct().case('nope')", "assert False", "raise BaseException('x')", "raise GeneratorExit",
]  # fmt: skip

USE_CONFIG = {"measure", "run", "gate", "code", "noise", "tune", "profile", "changes", "ingest", "show", "publish"}
USE_SUITES = {"measure", "run", "gate", "code", "noise", "tune", "profile"}
USE_THRESHOLDS = {"gate", "changes", "dashboard"}

numbers = itertools.count()


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    return make_project(tmp_path_factory.mktemp("fuzz") / "project").root


@pytest.fixture
def place(template, tmp_path, monkeypatch):
    """Makes a copy of the project, whose suites have a name of their own: Python imports a name once."""
    monkeypatch.setattr(sys, "path", sys.path.copy())
    for name in ("CACHE", "DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("dashboard.server.serve.serve", lambda *_: None)  # what is served would be taken for a mistake

    def make():
        number = next(numbers)
        root = tmp_path / f"project{number}"
        shutil.copytree(template, root)
        suites = f"suites{number}"
        (root / "benchmarks").rename(root / suites)
        (root / "results").mkdir()
        config = json.loads((root / "asv.conf.json").read_text()) | {"benchmark_dir": suites}
        (root / "asv.conf.json").write_text(json.dumps(config))
        monkeypatch.chdir(root)
        return root, suites, config

    return make


def ended(words):
    """Exit status of a command line, and all that it said."""
    said = io.StringIO()
    former = sys.stdin, signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    sys.stdin = io.StringIO()
    try:
        with redirect_stdout(said), redirect_stderr(said):
            return run_verb(*words), said.getvalue()
    finally:
        sys.stdin = former[0]
        signal.signal(signal.SIGINT, former[1])
        signal.signal(signal.SIGTERM, former[2])


def mistake(chance, root, suites, config):
    """A command line with one mistake, made in the folder ``root`` if it is none of the words."""
    base = chance.choice(list(VERBS))
    options = VERBS[base]
    kinds = ["value"] * 6 + ["option", "missing", "word"]
    kinds += ["config"] * 2 if base[0] in USE_CONFIG else []
    kinds += ["suite"] * 2 if base[0] in USE_SUITES else []
    kinds += ["thresholds"] if base[0] in USE_THRESHOLDS else []
    kind = chance.choice(kinds)
    words = [*base, "1"] if "" in options and kind != "value" else [*base]
    if kind == "value":
        option = chance.choice(list(options))
        value = chance.choice(WRONG[options[option]])
        words += ([option] if option else []) + [value]
    elif kind == "option":
        words.append(chance.choice(["--nope", "--sinse=1", "-Z", "--1", "--\udcff"]))
    elif kind == "missing":
        words.append(chance.choice([one for one in options if one not in ("", "--parallel")]))
    elif kind == "word":
        words += ["nope", "nope", "nope", "nope"]
    elif kind == "config" and chance.random() < 0.4:
        (root / "asv.conf.json").write_text(chance.choice(CONFIGS))
    elif kind == "config":
        key = chance.choice(list(KEYS))
        (root / "asv.conf.json").write_text(json.dumps(config | {key: chance.choice(KEYS[key])}))
    elif kind == "suite":
        path = root / suites / "product.py"
        path.write_text(chance.choice(SUITES).format(good=path.read_text()))
    else:
        (root / "thresholds.toml").write_text(chance.choice(THRESHOLDS))
    return kind, words


@pytest.mark.timeout(0 if COUNT > 100 else 300)
def test_no_mistake_is_a_verdict_or_a_traceback(place):
    wrong = []
    for number in range(COUNT):
        chance = random.Random(number)
        root, suites, config = place()
        kind, words = mistake(chance, root, suites, config)
        try:
            status, said = ended(words)
        except BaseException as error:
            status, said = f"{type(error).__name__}: {error}", ""
        if status not in (3, 4) or "Traceback" in said or not said.strip():
            shown = (root / "asv.conf.json").read_text()[:200] if kind == "config" else ""
            wrong.append(f"{number}: {kind} {words} {shown}: {status} {said[-300:]}")
        shutil.rmtree(root)
    assert not wrong, "\n".join(wrong)
