"""``lockstep gate`` as a user runs it: a scratch repository on the CPU, everything real."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from busy import skip_if_unsure
from nvml import PREAMBLE, build
from project import BROKEN, KERNELS, SUITE, make_project
from worker_processes import wait_until, worker_processes

M2 = "M=2,K=1024,N=512"

#: ``twice`` multiplies six times.
SLOW = KERNELS.replace(
    "    torch.mm(x, weight, out=out)\n        return",
    "    for _ in range(5):\n            torch.mm(x, weight, out=out)\n        return",
)

#: ``twice`` multiplies three times.
MORE = """        torch.mm(x, weight, out=out)
        return torch.mm(x, weight, out=out)


    VARIANTS"""

#: In the same file, but for comments, layout and words.
REWORDED = '"""What it does."""\n# A comment.\n' + textwrap.dedent(KERNELS).replace("import time", "import time  # so")


@pytest.fixture
def project(tmp_path):
    assert SLOW != KERNELS
    return make_project(tmp_path / "project", timeout=10.0)


def gate(project, *arguments):
    """Exit status, output, and the JSON report."""
    path = project.root / "gate.json"
    done = project.lockstep("gate", "--json", str(path), "--seed", "1", *arguments)
    return done.returncode, done.stdout, json.loads(path.read_text()) if path.exists() else {}


def outcomes(report):
    """(variant, case) to its verdict."""
    return {(one["key"]["variant"], one["key"]["case"]): one for one in report["cases"]}


def test_one_run_tells_slower_same_new_removed_and_every_way_to_fail(project, monkeypatch, tmp_path):
    project.write("toy/product.py", KERNELS.replace('"twice": twice', '"twice": twice, "gone": plain'))
    base = project.commit("Have another")
    # The CUDA-less variants that never return are left out but for one: each costs its silence.
    broken = BROKEN.replace('"dies_while_timed": dies_while_timed,', '"fresh": plain,').replace(
        '"elsewhere": elsewhere,', ""
    )
    project.write("toy/product.py", SLOW + broken)
    # Epochs that differ threefold still decide: other work on the machine cannot leave the unchanged variant unsure.
    project.write("thresholds.toml", "[[rule]]\nmatch = { variant = 'plain' }\nmin_effect = '95 %'\n")
    summary, output = tmp_path / "summary.md", tmp_path / "output"
    for name, value in {"ACTIONS": "true", "STEP_SUMMARY": summary, "OUTPUT": output}.items():
        monkeypatch.setenv(f"GITHUB_{name}", str(value))
    code, shown, report = gate(project, "--case", "M=2", "--budget", "100s")

    assert code == 2, shown
    found = {variant: one for (variant, _), one in outcomes(report).items()}
    assert not found["plain"]["unchanged"]
    skip_if_unsure(found["plain"]["outcome"], found["twice"]["outcome"])
    assert {name: one["outcome"] for name, one in found.items()} == {
        "plain": "same",
        "twice": "slower",
        "gone": "removed",
        "fresh": "new",
        "limited": "new",
        **dict.fromkeys(("wrong", "unwritten", "raises", "hangs", "killed", "hungry"), "failed"),
    }
    for name, reason in {
        "wrong": r"WrongResult: wrong output 0 is off by 0\.01 of its norm.*",
        "unwritten": r"WrongResult: unwritten output 0 is NaN or infinite in .*",
        "raises": r"RuntimeError: no such thing \(at toy/product\.py:\d+\)",
        "hangs": r"hung for 10 s in its check",
        "killed": r"killed by SIGKILL in its check",
        "hungry": r"RuntimeError: .*can't allocate memory.*",
        "gone": r"head has no such variant",
        "fresh": r"base has no such variant",
    }.items():
        assert re.fullmatch(reason, found[name]["reason"])
    slower = found["twice"]
    assert slower["confirmed"]
    assert slower["shared"]
    # Six multiplications for two: +200 %, and on a busy machine more, since the longer one is interrupted more often
    # (+532 % was seen). The interval, which holds for every look at once, may reach lower than what two rounds have
    # decided.
    assert slower["change"]["low"] < slower["change"]["value"] < slower["change"]["high"]
    assert 0.5 < slower["change"]["value"] < 50
    assert slower["min_effect"] >= 0.01
    assert (slower["file"], slower["line"]) == (
        "toy/product.py",
        1 + (project.root / "toy/product.py").read_text().split("def twice")[0].count("\n"),
    )
    assert report["state"] == "failed"
    assert report["regressions"] == 1
    assert report["base"] == f"HEAD ({base[:8]})"
    assert report["meter"]
    assert all(one["change"] for one in report["meter"])
    assert "Traceback" not in shown

    assert re.search(rf"^::error file=toy/product\.py,line={slower['line']}::slower +\+\d", shown, re.MULTILINE)
    assert re.search(r"^::error file=toy/product\.py,line=\d+::failed +product \w+ M=2", shown, re.MULTILINE)
    assert re.search(r"^verdict<<(\S+)\nfailed\n\1\nregressions<<(\S+)\n1\n\2$", output.read_text(), re.MULTILINE)
    assert summary.read_text().startswith("### ❌ 6 cases failed: product ")
    assert re.search(r"\| slower \| product \| twice \| M=2,K=1024,N=512 \| warm \|", summary.read_text())


def test_costs_are_judged_beside_the_latency_and_only_if_asked_for(project):
    project.write("toy/product.py", SLOW)
    code, shown, report = gate(
        project, "--case", "M=2", "--budget", "60s", "--costs", "behind", "host", "--min-effect", "50%"
    )
    found = {(one["key"]["variant"], one["key"]["quantity"]): one for one in report["cases"]}
    skip_if_unsure(found["twice", "latency"]["outcome"])
    assert code == 1, shown
    assert found["twice", "latency"]["outcome"] == "slower"
    # Other work on this machine may leave a difference of two times unsure.
    assert found["twice", "behind"]["outcome"] in ("slower", "unsure")
    assert found["twice", "host"]["outcome"] == "na"
    assert "the latency already is the host's time" in found["twice", "host"]["reason"]
    # No text proves one variant of a changed family.
    assert not any(one["unchanged"] for one in found.values())
    assert found["plain", "behind"]["outcome"] in ("same", "unsure")
    project.write("toy/product.py", REWORDED)
    code, shown, report = gate(project, "--case", "M=2", "--costs", "behind")
    assert (code, report["counts"]) == (0, {"same": 4}), shown
    assert "same  product behind: 2 cases, 2 of them unchanged" in shown
    code, shown, report = gate(project, "--case", "M=2")
    assert {one["key"]["quantity"] for one in report["cases"]} == {"latency"}


def test_a_change_of_words_is_proved_to_change_nothing(project):
    project.write("toy/product.py", REWORDED)
    project.write("docs/toy.md", "New.\n")
    code, shown, report = gate(project)
    assert code == 0, shown
    assert report["counts"] == {"same": 4}
    assert all(one["unchanged"] for one in report["cases"])
    assert report["headline"] == "Nothing slower by more than 1 % (4 same, 4 of them unchanged)."
    assert "4 cases, 4 of them unchanged" in shown


def test_a_head_that_does_not_import_fails_and_names_the_reason(project):
    project.write("toy/product.py", "import nothing_of_this_name\n" + textwrap.dedent(KERNELS))
    project.write("thresholds.toml", "[default]\nmin_effect = '50 %'\n")
    code, shown, report = gate(project, "--plain")
    assert code == 2, shown
    assert {one["reason"] for one in report["cases"]} == {"ModuleNotFoundError: No module named 'nothing_of_this_name'"}
    assert report["min_effect"] == 0.5
    assert "Traceback" not in shown


def test_wrong_words_are_usage_and_name_what_there_is(project):
    for arguments, answer in [
        (["--base", "nowhere"], "has no commit 'nowhere'; give a name that git knows"),
        (["--costs", "memory"], "invalid choice: 'memory' (choose from"),
        (["--family", "produkt", "--budget", "2min"], "no family 'produkt'; did you mean product?"),
        (["--min-effect", "a lot", "--case", "M=7"], "'a lot' is not a share; write 1% or 0.01"),
        (["--case", "M=2", "--case", "M=7"], "suite product has no case 'M=7'"),
        (["--variant", "plain", "--variant", "twcie"], "has no variant 'twcie'; did you mean twi"),
    ]:
        code, shown, _ = gate(project, *arguments)
        assert (code, answer in shown) == (4, True), shown
        assert "Traceback" not in shown
    (project.root / "asv.conf.json").rename(project.root / "kept.json")
    code, shown, _ = gate(project)
    assert (code, "No `asv.conf` file found" in shown) == (4, True), shown
    (project.root / "kept.json").rename(project.root / "asv.conf.json")
    project.write("thresholds.toml", "[default]\nmin_efect = 1\n")
    code, shown, _ = gate(project)
    assert (code, "min_efect is not a key of this table" in shown) == (4, True), shown


def test_a_family_that_neither_version_has_is_no_pass(project):
    base = project.git("rev-parse", "HEAD~1")
    code, shown, report = gate(project, "--base", base, "--head", base)
    assert (code, report["state"], report["absent"]) == (3, "infrastructure", ["product"]), shown
    assert "Not judged: product: neither version has this family (no case)." in shown
    done = project.lockstep("code", "diff", base, base, "--exit-code")
    assert done.returncode == 3, done.stdout
    assert "has the family product" in done.stdout


def test_a_report_on_standard_output_stands_alone(project):
    words = [sys.executable, "-m", "lockstep", "gate", "--json", "--case", "M=2", "--variant", "plain"]
    environment = os.environ | {"GITHUB_ACTIONS": "true"}
    done = subprocess.run(words, cwd=project.root, env=environment, capture_output=True, text=True)
    assert json.loads(done.stdout)["state"] == "pass", done.stderr
    assert "Nothing slower" in done.stderr
    assert not (project.root / "-").exists()


@pytest.mark.thorough
def test_nothing_judged_is_no_pass_and_says_why(project):
    for arguments, why in [
        (["--case", "M=4096"], "measures none of the selected cases; a CPU measures product M=2,K=1024,N=512, "),
        (["--l2", "cold"], "a CPU measures no cases with a cold L2: leave --l2 cold out"),
        (["--budget", "0.001s", "--ignore-fingerprints"], "Nothing was judged: the budget did not reach it"),
    ]:
        code, shown, report = gate(project, *arguments)
        assert (code, report["state"]) == (3, "infrastructure"), shown
        assert why in shown
    project.write("toy/product.py", "import nothing_of_this_name\n" + textwrap.dedent(KERNELS))
    project.commit("Break it")
    project.write("toy/product.py", "import nothing_of_this_name\n\n" + textwrap.dedent(KERNELS) + "NEW = 1\n")
    code, shown, report = gate(project, "--ignore-fingerprints")
    assert code == 3, shown
    assert "Nothing was judged: fails in base as well (ModuleNotFoundError" in shown


LAUNCH = """

    def launch(x, weight):
        raise RuntimeError("0 active drivers ([]). There should only be one.")


    VARIANTS = {"plain": plain, "launch": launch}
"""


def test_a_changed_kernel_that_no_side_can_run_here_is_no_pass(project):
    """What Triton says of a launch without a GPU."""
    project.write("toy/product.py", KERNELS + LAUNCH)
    project.commit("Launch")
    project.write("toy/product.py", REWORDED + textwrap.dedent(LAUNCH))
    code, shown, report = gate(project)
    assert (code, report["counts"]) == (0, {"same": 4}), shown
    project.write("toy/product.py", KERNELS + LAUNCH.replace("def launch(x", "def launch(x, *, _width=4").replace(
        "raise", "del _width\n        raise"))  # fmt: skip
    code, shown, report = gate(project, "--min-effect", "95%")
    assert (code, report["state"], report["counts"]["na"]) == (3, "infrastructure", 2), shown
    assert "2 cases that the change can touch cannot run here: product launch (Triton finds no GPU here)" in shown
    code, shown, report = gate(project, "--head", "HEAD", "--ignore-fingerprints", "--variant", "launch")
    assert [one["unchanged"] for one in report["cases"]] == [True, True], shown


def test_an_unchanged_case_says_so_although_it_is_to_be_measured(project):
    options = ["--head", "HEAD", "--ignore-fingerprints", "--variant", "plain", "--budget", "2s", "--min-effect", "95%"]
    _code, shown, report = gate(project, *options)
    assert [one["unchanged"] for one in report["cases"]] == [True, True], shown
    assert "the same sources" not in [one["reason"] for one in report["cases"]], shown


def suite_with_variant(name, module):
    """Return the suite with a variant of its own, which calls a module's function plain."""
    own = f"""
        @variant
        def {name}(self, x, weight):
            from {module} import plain

            return plain(x, weight)
    """
    suite = SUITE.replace("import Cost, Suite, grid", "import Cost, Suite, grid, variant")
    return suite.replace("    def track_answer", f"{own}\n\n    def track_answer")


def test_an_import_that_neither_version_can_serve_is_named_and_no_pass(project):
    project.write("benchmarks/product.py", suite_with_variant("misspelt", "toy.prodcut"))
    code, shown, report = gate(project, "--variant", "misspelt")
    assert code == 3, shown
    assert "base and head have no such module or name: No module named 'toy.prodcut'" in shown
    assert {(one["outcome"], one["in_base"]) for one in report["cases"]} == {("failed", True)}


def test_a_base_that_cannot_be_imported_is_no_pass(project):
    project.write("toy/product.py", "import nothing_of_this_name\n" + textwrap.dedent(KERNELS))
    project.commit("Break it")
    project.write("toy/product.py", KERNELS)
    code, shown, report = gate(project, "--variant", "plain")
    assert code == 3, shown
    assert {(one["outcome"], one["in_base"]) for one in report["cases"]} == {("new", True)}
    assert "base failed: ModuleNotFoundError: No module named 'nothing_of_this_name'" in report["headline"]


def test_a_base_of_which_a_variant_cannot_be_imported_is_no_pass(project):
    suite = suite_with_variant("own", "toy.product")
    suite = suite.replace('        module = "toy.product"\n', "").replace('baseline = "plain"', 'baseline = "own"')
    project.write("benchmarks/product.py", suite)
    project.write("toy/product.py", "from toy import nothing\n" + textwrap.dedent(KERNELS))
    project.commit("Break it")
    project.write("toy/product.py", KERNELS)
    code, shown, report = gate(project)
    assert code == 3, shown
    assert {(one["outcome"], one["in_base"]) for one in report["cases"]} == {("new", True)}


def test_a_file_beside_the_packages_is_missing_in_a_commit_and_the_report_says_why(project):
    read = "from pathlib import Path\nN = (Path(__file__).parents[1] / 'n.txt').read_text()\n"
    project.write("n.txt", "1")
    project.write("toy/product.py", read + textwrap.dedent(KERNELS))
    project.commit("Read a file beside the package")
    code, shown, report = gate(project, "--head", "HEAD", "--case", "M=2")
    assert code == 3, shown
    assert {one["outcome"] for one in report["cases"]} == {"failed"}
    assert all("only the tracked files of a commit's packages are unpacked" in one["reason"] for one in report["cases"])
    assert "only the tracked files of a commit's packages are unpacked" in shown


def test_where_a_gpu_is_asked_for_a_cpu_cannot_judge(project):
    code, shown, report = gate(project, "--require-gpu")
    assert (code, report["state"]) == (3, "infrastructure"), shown
    assert "Nothing can be said: there is no GPU, and --require-gpu asks for one." in shown


def test_a_head_that_kills_its_process_at_import_fails_and_names_how(project):
    project.write("toy/product.py", "import os\nos.kill(os.getpid(), 9)\n" + textwrap.dedent(KERNELS))
    code, shown, report = gate(project, "--case", "M=2")
    assert code == 2, shown
    assert {one["reason"] for one in report["cases"]} == {"import of product: killed by SIGKILL in its import"}
    assert "Traceback" not in shown
    wait_until(lambda: not worker_processes(project.root))


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.thorough)])
def test_interrupted_it_reports_what_it_has_resets_the_clocks_and_leaves_no_process(project, number, tmp_path):
    # The worker is in a check that never ends when somebody presses Ctrl-C, or the runner cancels the job.
    hanging = tmp_path / "hanging"
    hang = f"open({str(hanging)!r}, 'w').close(); time.sleep(1000)"
    project.write("toy/product.py", KERNELS + BROKEN.replace("time.sleep(1000)", hang))
    # There is a GPU whose clocks can be locked, and nothing that could run on it.
    load = "\nclocks.torch_load = lambda gpu: lambda: load(gpu.index)\n"
    process = project.popen(
        *("gate", "--json", "gate.json", "--lock", "1500", "--variant", "hangs", "--variant", "plain"),
        before=PREAMBLE + load, STAND_IN=str(tmp_path), XDG_STATE_HOME=str(tmp_path / "state"),
        LD_LIBRARY_PATH=str(build(tmp_path)),
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not hanging.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    workers = worker_processes(project.root)
    locked = (tmp_path / "sm-0").exists()
    process.send_signal(number)
    shown, _ = process.communicate(timeout=60)
    assert process.returncode == 130, shown
    assert "Traceback" not in shown
    report = json.loads((project.root / "gate.json").read_text())
    assert report["state"] == "interrupted"
    assert {one["reason"] for one in report["cases"] if not one["unchanged"]} == {"interrupted before it"}
    assert workers
    wait_until(lambda: not worker_processes(project.root))
    assert locked
    assert not (tmp_path / "sm-0").exists()
    assert not [path for path in (tmp_path / "state").rglob("*") if path.is_file()]


def test_each_side_calls_the_operators_that_it_registered(project):
    """torch has one registry of operators, in which head's registration would replace base's, or be refused."""
    operators = textwrap.dedent(KERNELS) + textwrap.dedent("""
        library = torch.library.Library("toygate", "FRAGMENT")
        library.define("defined(Tensor x, Tensor weight) -> Tensor")
        library.impl("defined", lambda x, weight: 1.0 * (x @ weight), "CPU")


        @torch.library.custom_op("toygate::custom", mutates_args=())
        def custom(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            return 1.0 * (x @ weight)


        VARIANTS = {"plain": lambda x, weight: torch.ops.toygate.defined(x, weight), "twice": custom}
    """)
    project.write("toy/product.py", operators)
    project.commit("Register operators")
    project.write("toy/product.py", operators.replace("1.0 * ", "1.01 * "))
    code, shown, report = gate(project, "--case", "M=2")
    found = {variant: (one["outcome"], one["in_base"]) for (variant, _), one in outcomes(report).items()}
    assert found == {"plain": ("failed", False), "twice": ("failed", False)}, shown
    assert code == 2


def test_versions_that_one_process_cannot_hold_are_unsure_and_say_why(project):
    """What a compiled extension does: it registers its operators once a process."""
    once = """
        import sys

        if hasattr(sys, "toy_operators"):
            raise ImportError("toy::mm is registered already")
        sys.toy_operators = True
    """
    project.write("toy/product.py", textwrap.dedent(once) + textwrap.dedent(KERNELS))
    project.commit("Register operators")
    slower = KERNELS.replace("        return torch.mm(x, weight, out=out)\n\n\n    VARIANTS", MORE)
    assert slower != KERNELS
    project.write("toy/product.py", textwrap.dedent(once) + textwrap.dedent(slower))
    code, shown, report = gate(project, "--case", "M=2")
    assert (code, report["state"]) == (3, "infrastructure"), shown
    reason = "one process cannot hold both versions (ImportError: toy::mm is registered already)"
    found = {variant: (one["outcome"], one["reason"]) for (variant, _), one in outcomes(report).items()}
    assert found["twice"] == ("unsure", reason)
    assert found["plain"] == ("unsure", reason)
    assert f"product: {reason}, so its cases were not compared" in report["notes"]
    assert reason in shown
