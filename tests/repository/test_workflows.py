"""The workflows: sound by their linters, and every command in them run for real in a scratch repository on the CPU."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from busy import skip_if_unsure
from project import KERNELS, make_project
from workflows import ROOT, WORKFLOWS, Runner, read, tool, workflow

from lockstep.machine_code.differences.report import fenced
from lockstep.record.file import read_records

#: ``twice`` multiplies six times.
SLOW = KERNELS.replace(
    "    torch.mm(x, weight, out=out)\n        return",
    "    for _ in range(5):\n            torch.mm(x, weight, out=out)\n        return",
)

#: ``twice`` waits for 10 ms, which other work on the machine does not stretch much.
WAITING = KERNELS.replace("out):\n        torch.mm", "out):\n        time.sleep(0.010)\n        torch.mm")

WRONG = KERNELS.replace("return torch.mm(x, weight, out=out)\n\n\n    VARIANTS", "return out.zero_()\n\n\n    VARIANTS")

#: One small case, short epochs, changes that are soon decided; there is neither a GPU nor clocks to lock.
QUICK = {"options": "--quick --case M=2 --l2 warm --seed 1", "require-gpu": "false", "lock": "", "budget": "60s"}
QUICK |= {"min-effect": "30%"}


@pytest.fixture
def project(tmp_path):
    assert KERNELS not in (SLOW, WAITING, WRONG)
    return make_project(tmp_path / "project", timeout=20.0)


def labeled(project, sha, **event):
    """The event of a label on a pull request of this repository's own branch."""
    pull = {"head": {"sha": sha, "repo": {"full_name": "o/r"}}, "base": {"sha": project.git("rev-parse", "main")}}
    event = {"number": 7, "label": {"name": "gate"}, "pull_request": pull, **event}
    return {"github": {"event_name": "pull_request", "repository": "o/r", "ref": "refs/pull/7/merge", "event": event}}


def change(project, kernels, file="toy/product.py"):
    """A branch with one commit, checked out as the workflow would; ``main`` went on meanwhile."""
    project.git("checkout", "-qb", "change")
    project.write(file, kernels)
    sha = project.commit("Change")
    project.git("checkout", "-q", "main")
    project.write("docs/news.md", "News.\n")
    project.commit("Go on")
    project.git("checkout", "-q", sha)
    return sha


def judged(project, sha, **inputs):
    """The job of gate.yml, and its report."""
    runner = Runner(project, labeled(project, sha), inputs={**QUICK, **inputs})
    job = runner.job(workflow("gate"), "gate")
    path = runner.temporary / "gate-report" / "gate.json"
    return job, json.loads(path.read_text()) if path.exists() else {}


# Sound


def test_zizmor_finds_nothing():
    done = subprocess.run(
        [*tool("zizmor"), "--offline", "--persona=auditor", ".github"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No findings to report" in done.stdout


def test_zizmor_finds_nothing_in_the_workflows_of_the_pages(tmp_path):
    blocks = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "docs/gate.md").read_text(), re.MULTILINE | re.DOTALL)
    shown = [block.replace("@COMMIT", f"@{'0123456789' * 4}") for block in blocks if block.startswith("on:")]
    assert len(shown) == 1
    for number, text in enumerate(shown):
        path = tmp_path / ".github/workflows" / f"{number}.yml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    done = subprocess.run([*tool("zizmor"), "--offline", tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_files_are_of_githubs_schemas():
    for schema, files in {
        "github-workflows": sorted(WORKFLOWS.glob("*.yml")),
        "github-actions": sorted(ROOT.glob(".github/actions/*/action.yml")),
        "dependabot": [ROOT / ".github/dependabot.yml"],
    }.items():
        assert files
        command = [*tool("check-jsonschema"), "--builtin-schema", f"vendor.{schema}", *files]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


def steps():
    for path in sorted(WORKFLOWS.glob("*.yml")):
        for job in read(path)["jobs"].values():
            yield from ((path.name, step) for step in job["steps"])
    for path in ROOT.glob(".github/actions/*/action.yml"):
        yield from ((path.parent.name, step) for step in read(path)["runs"]["steps"])


def test_steps_are_one_command_without_expressions_and_nothing_is_unpinned():
    for where, step in steps():
        if "run" in step:
            assert "\n" not in step["run"], (where, step)
            assert "${{" not in step["run"], (where, step)
        elif not step["uses"].startswith("./"):
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"]), (where, step)


def test_workflows_hold_no_rights_and_every_job_ends():
    for path in WORKFLOWS.glob("*.yml"):
        described = read(path)
        assert described["permissions"] == {}, path
        assert "pull_request_target" not in described["on"], path
        for name, job in described["jobs"].items():
            assert job["timeout-minutes"] <= 360, (path, name)
            assert "write" not in str(job["permissions"]) or "self-hosted" not in job["runs-on"], (path, name)


# gate.yml and the action


def test_planted_regression_is_slower_than_what_it_branched_off_from(project):
    sha = change(project, SLOW)
    job, report = judged(project, sha)
    step = job.step("/gate")
    skip_if_unsure(*(one["outcome"] for one in report["cases"] if one["key"]["variant"] == "twice"))
    assert (step.code, job.outcome, report["state"]) == (1, "failure", "slower"), step.output
    assert report["base"].startswith(project.git("rev-parse", "main~1")[:8])
    assert job.outputs["action"]["verdict"] == "slower"
    assert job.outputs["action"]["regressions"] == "1"
    assert job.outputs["action"]["report"].endswith("gate-report/gate.json")
    assert job.artifacts == {"gate-report": f"{project.root.parent}/runner/gate-report/"}
    assert "slower: product twice by" in job.summary
    assert "::error file=toy/product.py,line=" in step.output


@pytest.mark.parametrize(
    ("kernels", "file"),
    [
        ("# Reworded.\n" + KERNELS.replace("\n    ", "\n"), "toy/product.py"),
        pytest.param("More.\n", "docs/toy.md", marks=pytest.mark.thorough),
    ],
    ids=["clean", "docs"],
)
def test_clean_change_passes(project, kernels, file):
    job, report = judged(project, change(project, kernels, file))
    assert (job.outcome, report["state"]) == ("success", "pass"), job.steps[-1].output
    assert report["counts"] == {"same": 2}
    assert all(one["unchanged"] and one["epochs"] == 0 for one in report["cases"])
    assert job.outputs["action"]["verdict"] == "pass"


def test_by_hand_a_commit_is_judged_for_its_pull_request(project):
    """And a slowdown that thresholds.toml accepts of that pull request passes."""
    project.write("toy/product.py", WAITING)
    project.commit("Wait")
    project.git("checkout", "-qb", "change")
    accept = '[[accept]]\nmatch = { variant = "twice" }\nslower_by = "900 %"\nof = "#7"\nbecause = "waits longer"\n'
    project.write("thresholds.toml", accept)
    project.write("toy/product.py", WAITING.replace("0.010", "0.015"))
    sha = project.commit("Change")
    # What a checkout of one commit has: branches of the remote, and none of its own.
    project.git("update-ref", "refs/remotes/origin/main", "main")
    project.git("checkout", "-q", "--detach")
    project.git("branch", "-qD", "main", "change")
    event = {"repository": {"default_branch": "main"}}
    context = {"github": {"event_name": "workflow_dispatch", "event": event}, "inputs": {"pull": 7, "sha": sha}}
    # Not the unchanged variant, which other work on the machine may make look slower.
    runner = Runner(project, context, inputs={**QUICK, "options": f"{QUICK['options']} --variant twice"})
    job = runner.job(workflow("gate"), "gate")
    report = json.loads((runner.temporary / "gate-report" / "gate.json").read_text())
    skip_if_unsure(*(one["outcome"] for one in report["cases"]))
    assert job.outcome == "success", job.step("/gate").output
    assert job.outputs["action"]["verdict"] == "pass"
    assert "slower, accepted" in job.step("/gate").output


@pytest.mark.thorough
def test_failing_kernel_is_told_apart_from_a_slow_one(project):
    job, report = judged(project, change(project, WRONG))
    assert (job.step("/gate").code, job.outputs["action"]["verdict"]) == (2, "failed"), job.steps[-1].output
    assert [one["key"]["variant"] for one in report["cases"] if one["outcome"] == "failed"] == ["twice"]


def test_base_that_was_not_fetched_is_usage(project):
    sha = change(project, SLOW)
    job, _ = judged(project, sha, base="0" * 40)
    step = job.step("/gate")
    assert (step.code, "check out with fetch-depth: 0" in step.output) == (4, True), step.output


def test_only_the_label_on_a_branch_of_ours_or_a_hand_starts_it(project):
    sha = project.git("rev-parse", "HEAD")
    definition = workflow("gate")
    runner = Runner(project, labeled(project, sha, label={"name": "documentation"}))
    assert runner.job(definition, "gate").outcome == "skipped"
    fork = labeled(project, sha)
    fork["github"]["event"]["pull_request"]["head"]["repo"]["full_name"] = "stranger/r"
    runner.context.update(fork)
    assert runner.job(definition, "gate").outcome == "skipped"
    runner.context.update(github={"event_name": "workflow_dispatch"}, inputs={"pull": 7, "sha": "main"})
    job = runner.job(definition, "gate")
    assert (job.outcome, [step.code for step in job.steps]) == ("failure", [1])


def test_another_repository_may_hold_the_project_in_a_folder_and_installs_lockstep(tmp_path):
    """The action alone, as five lines of another workflow take it."""
    project = make_project(tmp_path / "project", timeout=20.0)
    project.git("mv", "-k", *(path.name for path in project.root.iterdir() if path.name != ".git"), _folder(project))
    project.commit("Move into a folder")
    project.write("kernels/toy/product.py", SLOW)
    project.commit("Slow down")
    given = {**QUICK, "directory": "kernels", "base": "HEAD~1", "python": "../.venv/bin/python"}
    five = {"jobs": {"gate": {"steps": [{"uses": "./.github/actions/gate", "with": given}]}}}
    runner = Runner(project, {"github": {}}, {"PIP_TARGET": str(tmp_path / "installed"), "PIP_NO_DEPS": "1"})
    runner.environment |= {"PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_INDEX": "1", "PYTHON": sys.executable}
    job = runner.job(five, "gate")
    assert job.step("/gate").code == 1, [step.output for step in job.steps]
    assert "::error file=kernels/toy/product.py,line=" in job.step("/gate").output
    assert list((tmp_path / "installed").glob("kernel_lockstep-*.dist-info"))


def test_the_action_takes_a_script_in_place_of_suites(tmp_path):
    project = make_project(tmp_path / "project")
    script = """
        import torch
        from triton.testing import do_bench
        from toy.product import plain

        x = torch.ones(8, 8)
        print(do_bench(lambda: plain(x, x)))
    """
    project.write("bench_plain.py", script)
    project.git("rm", "-q", "asv.conf.json")
    project.commit("Time by a script")
    given = {"base": "HEAD~1", "python": ".venv/bin/python", "install": "false", "script": "bench_plain.py"}
    given |= {"lock": "", "require-gpu": "false", "pull-request": "7", "min-effect": "90%"}
    only = {"jobs": {"gate": {"steps": [{"uses": "./.github/actions/gate", "with": given}]}}}
    job = Runner(project, {"github": {}}).job(only, "gate")
    gate = job.step("/gate")
    assert "by bench_plain.py, with toy from each version" in gate.output
    assert gate.code == 0 or (gate.code == 3 and "too noisy" in gate.output), gate.output


def _folder(project):
    (project.root / "kernels").mkdir()
    return "kernels"


# The clocks, on the stand-in of tests/nvml


@pytest.fixture
def machine(tmp_path, library):
    folder = tmp_path / "nvml"
    folder.mkdir()
    state = {"XDG_STATE_HOME": str(folder / "state"), "STAND_IN": str(folder), "LD_LIBRARY_PATH": str(library)}
    return folder, state


def test_clocks_are_locked_and_reset_though_the_gate_fails(project, machine):
    folder, state = machine
    sha = change(project, WRONG)
    runner = Runner(project, labeled(project, sha), state, {**QUICK, "lock": "1500"})
    job = runner.job(workflow("gate"), "gate")
    assert job.step("clocks lock").code == 0, job.step("clocks lock").output
    assert job.step("/gate").code in (2, 3), job.step("/gate").output
    assert job.step("clocks reset").code == 0, job.step("clocks reset").output
    changes = [line for line in (folder / "log").read_text().splitlines() if line.startswith("sm")]
    assert changes == ["sm 0 1500 1500", "sm-reset 0"]
    assert not (folder / "sm-0").exists()


def test_refused_lock_is_told_in_the_report(project, machine):
    _, state = machine
    sha = change(project, SLOW)
    runner = Runner(project, labeled(project, sha), {**state, "STAND_IN_SET": "4"}, {**QUICK, "lock": "1500"})
    job = runner.job(workflow("gate"), "gate")
    assert (job.step("clocks lock").code, job.step("/gate").code) == (1, 3), job.step("/gate").output
    assert job.outputs["action"]["verdict"] == "infrastructure"
    assert "Nothing can be said" in job.summary


# ci.yml


def test_ci_runs_green_in_a_scratch_repository_and_tells_what_the_compiler_makes_of_it(project):
    settings = json.loads((project.root / "asv.conf.json").read_text())
    settings["lockstep"]["targets"] = ["sm_90"]
    project.write("asv.conf.json", json.dumps(settings))
    project.commit("Care for one target")
    project.write("toy/product.py", SLOW)
    project.write("tests/test_toy.py", "def test_toy():\n    assert True\n")
    project.commit("Change")
    project.git("checkout", "-q", "--detach")
    project.git("branch", "-qD", "main")
    runner = Runner(project, {"github": {"event_name": "push"}, "matrix": {"python": "3.12"}})
    definition = workflow("ci")
    code = runner.job(definition, "code")
    assert code.outcome == "success", code.steps[-1].output
    assert "### Machine code differs on sm_90" in code.summary
    assert "product twice at M=2,K=1024,N=512" in code.summary
    for name in ("lint", "test"):
        job = runner.job(definition, name)
        assert job.outcome == "success", job.steps[-1].output


# history.yml


def test_history_is_measured_kept_on_a_branch_and_shown(project, tmp_path):
    origin = tmp_path / "origin.git"
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", origin], check=True)
    for path in (".github/results", ".github/with-token"):
        target = project.root / path
        target.parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / path, target)
    project.write(".gitignore", ".asv\n.venv\n__pycache__\nMakefile\npyproject.toml\n")
    # In one commit with all there is: a second one would be measured too.
    project.git("update-ref", "-d", "HEAD")
    project.commit("Have the scripts of the workflow")
    project.git("remote", "add", "origin", str(origin))
    project.git("push", "-q", "origin", "main")
    settings = {"GPU": "true", "GPU_MACHINE": "rack", "GPU_CLOCK": "1500"}
    context = {"github": {"ref": "refs/heads/main", "token": "t"}, "vars": settings, "needs": {}}
    runner = Runner(project, context)
    definition = workflow("history")

    # No GPU: the clocks cannot be locked, nothing is measured, and they are reset all the same.
    locked = runner.job(definition, "measure")
    assert locked.outcome == "failure"
    assert (locked.step("clocks lock").code, locked.step("clocks reset").code) == (3, 3)
    assert not locked.ran("run NEW")
    assert "no branch yet" in locked.step("results fetch").output

    measure = without(definition, "measure", "clocks")
    first = runner.job(measure, "measure")
    assert first.step("run NEW").code == 0, first.step("run NEW").output
    assert first.artifacts == {"results": "results/"}
    kept = sorted(path.name for path in project.root.glob("results/rack-*/*-lockstep.json"))
    assert kept == [project.git("rev-parse", "--short=8", "main") + "-lockstep.json"]

    runner.context["needs"] = {"measure": {"result": "success"}}
    published = runner.job(definition, "publish")
    assert published.outcome == "success", published.steps[-1].output
    assert not published.ran("alerts notify")
    branches = project.git("ls-remote", "--heads", "origin")
    assert all(f"refs/heads/{name}\n" in f"{branches}\n" for name in ("gh-pages", "lockstep-results", "main"))
    assert "index.html" in subprocess.check_output(["git", "ls-tree", "--name-only", "gh-pages"], cwd=origin, text=True)

    # The next night, on a bare runner: the results come back, and nothing is new.
    shutil.rmtree(project.root / "results")
    second = runner.job(measure, "measure")
    assert sorted(path.name for path in project.root.glob("results/rack-*/*-lockstep.json")) == kept
    assert (second.outcome, "No commit is new" in second.step("run NEW").output) == ("success", True)
    settings["ALERTS"] = "true"
    state = {"LOCKSTEP_STATE": str(tmp_path / "alerts.sqlite")}
    runner.context["secrets"] = state
    again = runner.job(without(definition, "publish", "gh-pages"), "publish")
    assert again.outcome == "success", again.steps[-1].output
    assert "results: nothing new" in again.step("results push").output
    assert "nobody is notified" in again.step("alerts notify").output
    assert (tmp_path / "alerts.sqlite").exists()


def test_results_that_another_machine_pushed_meanwhile_stay(project, tmp_path):
    origin = tmp_path / "origin.git"
    subprocess.run(["git", "init", "-q", "--bare", origin], check=True)
    project.git("remote", "add", "origin", str(origin))
    other = tmp_path / "other"
    subprocess.run(["git", "clone", "-q", project.root, other], check=True)
    subprocess.run(["git", "remote", "set-url", "origin", origin], cwd=other, check=True)
    for root, machine in ((project.root, "a"), (other, "b")):
        (root / "results" / machine).mkdir(parents=True)
        (root / "results" / machine / "machine.json").write_text("{}")
        push = [ROOT / ".github/with-token", ROOT / ".github/results", "push"]
        subprocess.run(push, cwd=root, check=True, env={**os.environ, "TOKEN": "t"})
    kept = subprocess.check_output(["git", "ls-tree", "-r", "--name-only", "lockstep-results"], cwd=origin, text=True)
    assert kept.split() == ["a/machine.json", "b/machine.json"]


def without(definition, job, part):
    """A workflow but for the steps of a job whose command holds a text: what a machine without a GPU can run of it."""
    described = definition["jobs"][job]
    kept = [step for step in described["steps"] if part not in step.get("run", "")]
    return {**definition, "jobs": {job: {**described, "steps": kept}}}


def test_code_block_cannot_be_left():
    text = "a\n````\n# Merge it\n"
    assert fenced(text).splitlines()[0] == "`````text"
    assert fenced(text).endswith("\n`````\n")
    assert len(fenced("x" * 1_000_000)) < 61_000


# fleet.yml


def test_a_fleet_is_planned_measured_by_each_runner_and_merged(project, tmp_path):
    project.write(".gitignore", ".asv\n.venv\n__pycache__\nMakefile\npyproject.toml\nfleet-*\n")
    project.commit("Ignore what the workflow writes")
    definition = workflow("fleet")
    described = definition["on"]["workflow_call"]["inputs"]
    inputs = {name: one.get("default", "") for name, one in described.items()}
    inputs |= {"range": "HEAD^!", "shards": "2", "machine": "rack", "python": "python", "options": "--costs host"}
    runner = Runner(project, {"github": {}, "inputs": inputs})
    folder = project.root / ".venv" / "bin"
    (folder / "python3").symlink_to("python")
    runner.environment["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
    planned = runner.job(definition, "plan")
    assert planned.outcome == "success", planned.steps[-1].output
    assert planned.artifacts == {"fleet-plan": "fleet-plan/"}
    outputs = planned.outputs["plan"]
    shards = json.loads(outputs["matrix"])["include"]
    assert (outputs["commits"], len(shards)) == ("1", 2)
    runner.context["needs"] = {"plan": {"outputs": outputs, "result": "success"}, "measure": {"result": "success"}}
    # Each runner starts without what the other has, and uploads its shard.
    for shard in shards:
        runner.context["matrix"] = shard
        job = runner.job(definition, "measure")
        assert job.outcome == "success", job.steps[-1].output
        [(name, path)] = job.artifacts.items()
        assert name == f"shard-{shard['name']}"
        (project.root / path).rename(tmp_path / name)
    shutil.rmtree(project.root / "results", ignore_errors=True)
    for shard in shards:
        shutil.copytree(tmp_path / f"shard-{shard['name']}", project.root / "fleet-shards" / f"shard-{shard['name']}")
    merged = runner.job(definition, "merge")
    assert merged.outcome == "success", merged.steps[-1].output
    assert merged.artifacts == {"results": "results/"}
    [records] = project.root.glob("results/rack-*/*.provenance.jsonl")
    cases = {record.case for record in read_records(records)[1] if record.state == "ok"}
    assert cases == {"M=2,K=1024,N=512", "M=3,K=1024,N=512"}

    # The next night has nothing to do: no runner starts.
    done = runner.job(definition, "plan")
    assert done.outputs["plan"]["commits"] == "0"
    runner.context["needs"]["plan"]["outputs"] = done.outputs["plan"]
    assert runner.job(definition, "measure").outcome == "skipped"
    runner.context["needs"]["measure"] = {"result": "skipped"}
    assert runner.job(definition, "merge").outcome == "skipped"
