"""Trees are traced and compiled without a GPU, in processes that tests share: starting torch takes seconds."""

import json
import re
import shutil
import signal
import sys
import textwrap
import threading
import time

import pytest
from project import make_project
from rooms import room_of
from worker_processes import wait_until, worker_processes

from lockstep.machine_code.cache import Cache
from lockstep.machine_code.compiled_tree import Reader, codes_of
from lockstep.machine_code.differences.compare import Comparison, compare
from lockstep.machine_code.differences.report import diff_lines
from lockstep.machine_code.exact_quantities import exact_quantities
from lockstep.machine_code.model import CaseKey
from lockstep.machine_code.targets import Target
from lockstep.suite.commit_sources import RefError, Tree, sources
from lockstep.suite.discovery import load_suites
from lockstep.suite.family_files import family_files

SM90 = Target.parse("sm_90")

SUITE = """
    from lockstep import Cost, Suite, grid


    class Kinds(Suite):
        module = "toy.kinds"
        baseline = "plain"
        cases = grid(M=[256, 512])
        quick = grid(M=2)

        def draw(self, new, M):
            return {"x": new.normal(M, 256, dtype="float16"), "y": new.normal(256, 256, dtype="float16")}

        def buffers(self, new, M):
            return new.empty(M, 256, dtype="float16")

        def reference(self, x, y):
            return x @ y

        def cost(self, M):
            return Cost(M, M)

        def skips(self, variant, M):
            return "slow" if variant == "limited" and M != 256 else ""
"""

KINDS = """
    import functools
    import operator
    import os
    import random
    import signal
    import time
    from pathlib import Path

    import rich
    import torch
    import triton
    import triton.language as tl

    from toy.tiles import TILE


    @triton.jit
    def scale(x, out, count, FACTOR: tl.constexpr, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(x + at, at < count) * FACTOR, at < count)


    @triton.jit
    def product(x, y, out, K, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
        m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
        n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
        k = tl.arange(0, BLOCK_K)
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for start in range(0, K, BLOCK_K):
            left = tl.load(x + m[:, None] * K + start + k[None, :])
            right = tl.load(y + (start + k)[:, None] * N + n[None, :])
            total = tl.dot(left, right, total)
        tl.store(out + m[:, None] * N + n[None, :], total.to(tl.float16))


    CONFIGURATIONS = [triton.Config({"BLOCK": 256}), triton.Config({"BLOCK": 512}, num_warps=8)]
    tuned_scale = triton.autotune(CONFIGURATIONS, [])(scale)


    def plain(x, y, *, out):
        return torch.mm(x, y, out=out)


    def tiled(x, y, *, out):
        (M, K), N = x.shape, y.shape[1]
        m, n, k, warps = TILE
        product[(M // m, N // n)](x, y, out, K, N, BLOCK_M=m, BLOCK_N=n, BLOCK_K=k, num_warps=warps, num_stages=2)
        return out


    def scaled(x, *, out):
        scale[lambda options: (triton.cdiv(x.numel(), options["BLOCK"]),)](x, out, x.numel(), 2.0, BLOCK=1024)
        return out


    def shifted(x, *, out):
        flat = x.view(-1)[1:]
        scale[(1,)](flat, out, flat.numel(), 2.0, BLOCK=1024)
        return out


    def tuned(x, *, out):
        tuned_scale[(4,)](x, out, x.numel(), 2.0)
        return out


    @functools.cache
    def counters(device):
        return torch.zeros(4, device=device)


    def cached(x, *, out):
        return torch.mul(x, counters(x.device).sum(), out=out)


    @functools.cache
    def table(device):
        numbers = torch.empty(1024, device=device)
        scale[(1,)](numbers, numbers, 1024, 2.0, BLOCK=1024)
        return numbers


    def filled(x, *, out):
        return torch.mul(x, table(x.device).sum(), out=out)


    def roomy(x, y, *, out):
        torch.empty(5 << 30, dtype=torch.int8, device=x.device)
        return torch.mm(x, y, out=out)


    HELD = []


    def keeps(x):
        HELD.append(x.clone())
        return x + HELD[-1].sum()


    def refuses(x):
        raise NotImplementedError("for another shape")


    def reads(x, *, out):
        return torch.mul(x, x.max().item(), out=out)


    def asks_is_cuda(x):
        return x + 1 if x.is_cuda else x + 2


    def asks_is_meta(x):
        return x + 1 if x.is_meta else x + 2


    def asks_device(x):
        return x + 1 if x.device == torch.device("cuda:0") else x + 2


    def asks_count(x):
        count = torch.cuda.get_device_properties(x.device).multi_processor_count
        return torch.zeros(count, device="cuda")


    def asks_capability(x):
        return x + 1 if torch.cuda.get_device_capability() >= (9, 0) else x + 2


    def asks_environment(x):
        return x + int(os.environ.get("TOY_ADD", "1"))


    def asks_memory(x):
        return x + 1 if torch.cuda.mem_get_info()[0] else x + 2


    def asks_bus(x):
        return x + 1 if getattr(torch.cuda.get_device_properties(0), "pci_bus_id", 0) else x + 2


    def asks_triton(x):
        return x + 1 if triton.knobs.runtime.interpret else x + 2


    def asks_its_file(x):
        return x + len(Path(__file__).with_name("tiles.py").read_text())


    class Asking(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * int(time.time())


    class Counting(Asking):
        @staticmethod
        def backward(ctx, grad):
            return grad * torch.cuda.get_device_properties(grad.device).multi_processor_count


    def counts_in_backward(x):
        x = x.detach().requires_grad_()
        return torch.autograd.grad(Counting.apply(x), x, torch.empty_like(x))


    def asks_on_cpu(x):
        return x + torch.rand(1).item()


    def asks_type(x):
        return x + 1 if x.device.type == "cuda" else x + 2


    def asks_torch_cuda(x):
        return x + 1 if torch.cuda.is_available() else x + 2


    @functools.cache
    def asks_once(device):
        return torch.cuda.is_available()


    def asks_in_a_cache(x):
        return x + asks_once(x.device)


    def falls_back(x):
        try:
            return torch.zeros(4, device=x.device).nonzero().cpu()
        except NotImplementedError:
            return x + 1


    # Like an operator of a C++ extension: torch knows its shapes, Python has no code for a GPU.
    library = torch.library.Library("toy", "FRAGMENT")
    library.define("own(Tensor x) -> Tensor")
    library.impl("own", torch.empty_like, "Meta")


    def nothing(x):
        return x


    def dies(x):
        if Path(__file__).with_name("deadly").exists():
            os.kill(os.getpid(), signal.SIGSEGV)
        return x + 1


    def raises(x):
        raise RuntimeError("broken\\nand more")


    ASKED = []


    class Meta(type):
        def __getattr__(cls, name):
            ASKED.append(name)
            raise ImportError("not installed")


    class Lazy(metaclass=Meta):
        def __getattr__(self, name):
            ASKED.append(name)
            raise ImportError("not installed")

        def __call__(self):
            pass


    optional = Lazy()


    def asks_no_library(x):
        return x + len(ASKED)


    VARIANTS = {
        "plain": plain,
        "tiled": tiled,
        "limited": tiled,
        "scaled": scaled,
        "shifted": shifted,
        "tuned": tuned,
        "cached": cached,
        "filled": filled,
        "roomy": roomy,
        "keeps": keeps,
        "refuses": refuses,
        "reads": reads,
        "asks_is_cuda": asks_is_cuda,
        "asks_is_meta": asks_is_meta,
        "asks_device": asks_device,
        "asks_count": asks_count,
        "asks_capability": asks_capability,
        "asks_environment": asks_environment,
        "asks_memory": asks_memory,
        "asks_bus": asks_bus,
        "asks_triton": asks_triton,
        "asks_its_file": asks_its_file,
        "counts_in_backward": counts_in_backward,
        "asks_on_cpu": asks_on_cpu,
        "asks_type": asks_type,
        "asks_torch_cuda": asks_torch_cuda,
        "asks_in_a_cache": asks_in_a_cache,
        "falls_back": falls_back,
        "own": lambda x: torch.ops.toy.own(x),
        "nothing": nothing,
        "dies": dies,
        "raises": raises,
        "asks_no_library": asks_no_library,
    }
"""

TILES = "TILE = (64, 64, 32, 4)\n"
UNTRUSTED = {
    "reads": r"cannot be followed without a GPU",
    "asks_is_meta": r"asks whether a tensor is on meta",
    "asks_memory": r"asks torch.cuda.mem_get_info, which the target's table cannot answer",
    "asks_bus": r"asks for the device property pci_bus_id",
    "asks_on_cpu": r"draws random numbers on the CPU",
    "falls_back": r"cannot be followed without a GPU",
    "own": r"calls the operator toy::own",
    "nothing": r"launches nothing and calls nothing of torch",
    "dies": r"cannot be followed without a GPU \(killed by SIGSEGV",
    "raises": r"cannot be followed without a GPU \(RuntimeError: broken\)",
}


def lay_out(root, kinds=KINDS, tiles=TILES, **more):
    """A tree with the package under test."""
    files = {"__init__.py": "", "kinds.py": textwrap.dedent(kinds), "tiles.py": tiles, **more}
    for name, text in files.items():
        (root / "toy" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "toy" / name).write_text(text)
    return Tree(root.name, root, ("toy",))


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    """A folder with suites; nothing outside it is read or written but the code under test."""
    with room_of(tmp_path_factory.mktemp("room"), "kinds_suites", kinds=SUITE) as room:
        lay_out(room, deadly="")  # names of variants are read from the tree beside the suites
        yield room


@pytest.fixture(scope="module")
def suite(room):
    return load_suites(room / "kinds_suites")["kinds"]


@pytest.fixture(scope="module")
def base(room):
    return lay_out(room / "base", deadly="")


@pytest.fixture(scope="module")
def codes(base, suite):
    return codes_of(base, [suite], SM90)


def of(codes, variant, case="M=256"):
    return codes[CaseKey("kinds", variant, case)]


def test_every_case_that_is_measured_is_there(codes):
    assert {key.case for key in codes} == {"M=256", "M=512"}
    assert {key.case for key in codes if key.variant == "limited"} == {"M=256"}


def test_a_kernel_is_described(codes):
    [kernel] = of(codes, "tiled").kernels
    machine = kernel.machine
    assert (kernel.name, kernel.options["num_warps"]) == ("product", 4)
    assert re.fullmatch(r"toy/kinds.py:\d+", kernel.source)
    assert 32 <= machine.registers <= 255
    assert machine.spill_bytes == 0
    assert machine.shared_bytes >= 64 * 32 * 2 * 2
    assert machine.mix["HGMMA"] >= 1
    assert machine.mix["LDGSTS"] >= 1
    assert machine.mix["all"] > sum(machine.mix[name] for name in ("HGMMA", "LDGSTS", "BAR"))
    assert 1 <= machine.blocks <= 16


def test_the_host_side_is_traced(codes):
    assert of(codes, "plain").host == (
        "given out=t0 f16[256,256], x=t1 f16[256,256], y=t2 f16[256,256]",
        "aten.mm.out(t1 f16[256,256], t2 f16[256,256], out=t0 f16[256,256]) → t0 f16[256,256]",
    )
    assert of(codes, "tiled", "M=512").host[1] == (
        "launch [8×4] (t1 f16[512,256], t2 f16[256,256], t0 f16[512,256], 256, 256)"
    )
    assert of(codes, "scaled").host[1].startswith("launch [64] ")


def test_what_is_exact_of_a_call_is_counted(codes):
    def exact(variant):
        return exact_quantities(of(codes, variant))

    operator = {"launches": 1, "allocations": 0, "memory": 0, "kept": 0}
    kernel = of(codes, "scaled").kernels[0].machine
    machine = {"registers": kernel.registers, "spills": 0, "shared": 0, "instructions": kernel.mix["all"]}
    assert exact("plain") == operator
    assert exact("scaled") == operator | machine
    assert exact("roomy") == operator | {"allocations": 1, "memory": 5 << 30}
    assert exact("cached") == operator | {"launches": 2, "allocations": 1, "memory": 4, "kept": 16}, "the counters"
    x = 256 * 256 * 2
    # The sum is gone when the result is: both stand beside the copy that stays.
    assert exact("keeps") == {"launches": 3, "allocations": 3, "memory": x + 2 + x, "kept": x}
    assert exact("tuned").items() >= operator.items(), "one of the configurations is launched"
    assert [exact(name) for name in ("refuses", "reads", "falls_back")] == 3 * [{}]
    assert exact("asks_triton") == operator | {"allocations": 1, "memory": x}


def test_an_offset_that_breaks_alignment_makes_another_kernel(codes):
    [aligned], [shifted] = of(codes, "scaled").kernels, of(codes, "shifted").kernels
    assert aligned.fingerprint != shifted.fingerprint


def test_every_configuration_of_a_tuned_kernel_is_compiled(codes):
    assert [kernel.options["num_warps"] for kernel in of(codes, "tuned").kernels] == [4, 8]


def test_the_trace_is_that_of_a_later_call(codes):
    assert of(codes, "cached").host == (
        "given out=t0 f16[256,256], x=t1 f16[256,256]",
        "aten.sum.default(t2 f32[4]) → t3 f32[]",
        "aten.mul.out(t1 f16[256,256], t3 f32[], out=t0 f16[256,256]) → t0 f16[256,256]",
    )


def test_a_library_that_loads_when_it_is_asked_is_not_asked(codes):
    """kornia's ``LazyLoader`` asks on standard input whether to install what is missing."""
    assert of(codes, "asks_no_library").unknown == ""
    assert of(codes, "asks_no_library").host[1] == "aten.add.Tensor(t0 f16[256,256], 0) → t1 f16[256,256]"


def test_a_kernel_that_only_the_first_call_launches_is_a_step(codes):
    host = of(codes, "filled").host
    assert host[1:] == (
        "aten.sum.default(t2 f32[1024]) → t3 f32[]",
        "aten.mul.out(t1 f16[256,256], t3 f32[], out=t0 f16[256,256]) → t0 f16[256,256]",
        "first call: launch [1] (t2 f32[1024], t2 f32[1024], 1024)",
    )
    assert exact_quantities(of(codes, "filled"))["launches"] == 2


def test_a_refusal_is_known(codes):
    code = of(codes, "refuses")
    assert (code.unknown, code.refusal) == ("", "for another shape")


@pytest.mark.parametrize(
    ("variant", "step"),
    [
        *(
            (name, ", 1)")
            for name in ("asks_is_cuda", "asks_type", "asks_device", "asks_torch_cuda", "asks_capability")
        ),
        ("asks_count", "aten.zeros.default([132]"),
        ("counts_in_backward", ", 132)"),
        ("asks_environment", ", 1)"),
        ("asks_in_a_cache", "True)"),
        ("asks_its_file", f", {len(TILES)})"),
    ],
)
def test_what_the_target_answers_is_answered_as_on_the_target(codes, variant, step):
    code = of(codes, variant)
    assert not code.unknown
    assert any(step in one for one in code.host), code.host


def test_a_variable_that_the_sources_name_is_asked_again(base, suite, codes, monkeypatch):
    monkeypatch.setenv("TOY_ADD", "7")
    again = codes_of(base, [suite], SM90)
    assert any(", 7)" in step for step in of(again, "asks_environment").host)
    assert not of(again, "asks_environment").same_as(of(codes, "asks_environment"))


@pytest.mark.parametrize("variant", UNTRUSTED)
def test_what_cannot_be_trusted_says_why(codes, variant):
    code = of(codes, variant)
    assert re.match(UNTRUSTED[variant], code.unknown), code.unknown
    assert code.host_fingerprint == code.fingerprint == ""


def test_the_cache_knows_it_all_without_a_process(base, suite, codes, monkeypatch):
    monkeypatch.setattr("lockstep.machine_code.worker_session.Session._start", None)
    assert Reader(base, [suite], SM90).cached() == codes_of(base, [suite], SM90) == codes


def test_the_same_sources_are_the_same_without_a_process(base, suite, room, monkeypatch):
    monkeypatch.setattr("lockstep.machine_code.worker_session.Session._start", None)
    comparison = compare(base, lay_out(room / "copy", deadly=""), [suite], SM90, cache=Cache(room / "none.sqlite"))
    assert comparison.changes == ()
    assert comparison.status(CaseKey("kinds", "tiled", "M=256")) == "same"


def test_comments_another_folder_and_fresh_caches_change_nothing(suite, codes, room, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(room / "fresh"))
    spoken = KINDS.replace("    @triton.jit\n", "\n    # A kernel.\n    @triton.jit\n").replace(
        "        k = tl.arange", "        # columns of x\n        k = tl.arange"
    )
    talkative = lay_out(room / "a longer folder" / "talkative", spoken)
    again = codes_of(talkative, [suite], SM90, cache=Cache(room / "fresh.sqlite"))
    trusted = [key for key, code in codes.items() if not code.unknown]
    assert [again[key].fingerprint for key in trusted] == [codes[key].fingerprint for key in trusted]
    assert all(codes[key].fingerprint for key in trusted)
    comparison = Comparison(SM90, codes, again)
    assert {change.kind for change in comparison.changes} == {"unknown"}
    assert comparison.status(CaseKey("kinds", "tiled", "M=256")) == "same"
    assert comparison.status(CaseKey("kinds", "reads", "M=256")) == "unknown"


def test_a_tile_that_spills_is_named_with_its_registers_and_spills(base, suite, codes, room, monkeypatch):
    readers = set()

    def read(*arguments):
        readers.add(threading.get_ident())
        return family_files(*arguments)

    monkeypatch.setattr(sys.modules[codes_of.__module__], "family_files", read)
    head = lay_out(room / "head", tiles="TILE = (256, 128, 32, 4)\n")
    comparison = compare(base, head, [suite], SM90)
    # Two threads that parse at once fail now and then, by a fault of CPython 3.11 (gh-106905).
    assert readers == {threading.get_ident()}
    key = CaseKey("kinds", "tiled", "M=256")
    kernel = next(change for change in comparison.changes if change.kernel)
    assert re.match(r"registers \d+ → 255, spills 0 → \d+ B, shared", kernel.sentence), kernel.sentence
    assert "STL 0 → " in kernel.sentence
    assert kernel.source.startswith("toy/kinds.py:")
    assert {one.variant for one in kernel.cases} == {"tiled", "limited"}
    assert comparison.status(key) == "changed"
    assert {"registers", "spills"} <= {one.quantity for one in comparison.quantities if one.worse}
    assert any(str(one).startswith("product: registers") for one in comparison.changes if key in one.cases)
    assert comparison.status(CaseKey("kinds", "scaled", "M=256")) == "same"
    assert "product: grid 4×4 → 1×2" in [change.sentence for change in comparison.changes if change.kind == "host"]


def test_what_a_call_costs_more_is_told_in_its_own_quantity(base, suite, codes, room):
    kinds = KINDS.replace(
        "    def plain(x, y, *, out):\n", "    def plain(x, y, *, out):\n        torch.mm(x, y, out=out)\n"
    )
    kinds = kinds.replace(
        "    def scaled(x, *, out):\n", "    def scaled(x, *, out):\n        HELD.append(torch.empty_like(x))\n"
    ).replace("    def roomy(x, y, *, out):\n", "    def roomy(x, y, *, out):\n        torch.cuda.memory_allocated()\n")
    comparison = compare(base, lay_out(room / "costs", kinds, deadly=""), [suite], SM90)
    x = 256 * 256 * 2
    found = [one for one in comparison.quantities if one.cases[0].case == "M=256"]
    assert [(one.cases[0].variant, one.quantity, one.before, one.after, one.worse) for one in found] == [
        ("plain", "launches", 1, 2, True),
        ("scaled", "allocations", 0, 1, True),
        ("scaled", "memory", 0, x, True),
        ("scaled", "kept", 0, x, True),
    ]
    assert {key.variant for key in comparison.lost} == {"roomy"}
    lines = list(diff_lines(comparison, "base", "head"))
    assert "    worse: launches 1 → 2" in lines
    assert f"    worse: kept (bytes) 0 → {2 * x:,}" in lines, "the largest of the cases"


def test_a_tree_without_the_family_has_no_cases(base, suite, codes, room):
    bare = lay_out(room / "bare")
    shutil.rmtree(bare.root / "toy")
    comparison = compare(bare, base, [suite], SM90)
    assert {comparison.status(key) for key in comparison.head} == {"new"}
    assert {change.kind for change in comparison.changes} == {"new"}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return make_project(tmp_path_factory.mktemp("verb") / "project")


def test_the_verb_compares_commits(project):
    project.write("README.md", "More words\n")
    project.commit("Write more")
    done = project.lockstep("code", "diff", "HEAD~1", "HEAD", "--target", "sm_90", "--exit-code")
    same = "no difference found in what was traced; 1 suite has the same sources"
    assert done.stdout == f"sm_90: HEAD~1 → HEAD\n  {same}\n"
    assert done.returncode == 0


def test_the_verb_tells_a_change_and_its_exit_code_if_asked(project):
    head = "def plain(x, weight, *, out=None):\n"
    kernels = project.root / "toy/product.py"
    kernels.write_text(kernels.read_text().replace(head, f"{head}    torch.mm(x, weight, out=out)\n"))
    quiet = project.lockstep("code", "diff", "HEAD", "--target", "sm_90", "--json")
    assert quiet.returncode == 0
    [target] = json.loads(quiet.stdout[quiet.stdout.index("{") :])["targets"]
    assert target["changes"][0]["kind"] == "host"
    assert target["cases"]["changed"] >= 1
    loud = project.lockstep("code", "diff", "HEAD", ".", "--target", "sm_90", "--exit-code")
    assert loud.returncode == 1
    assert "  host side\n" in loud.stdout
    worse = project.lockstep("code", "diff", "HEAD", ".", "--target", "sm_90", "--worse")
    assert worse.returncode == 1
    assert "    worse: launches 1 → 2\n" in worse.stdout
    project.git("checkout", "-q", "toy")


MISSPELT = """
    from lockstep import Cost, Suite, grid, variant


    class Misspelt(Suite):
        baseline = "ours"
        cases = quick = grid(M=[4])

        def draw(self, new, M):
            return {"x": new.normal(M, M)}

        def reference(self, x):
            return x.double() @ x.double()

        def cost(self, M):
            return Cost(M * M, 8 * M * M)

        @variant
        def ours(self, x):
            from toy.prodcut import plain

            return plain(x, x)
"""


def test_an_import_that_no_version_can_serve_is_named_with_its_reason(project):
    project.write("benchmarks/misspelt.py", MISSPELT)
    reason = "no such module or name: No module named 'toy.prodcut'"
    try:
        for words in (("diff", "HEAD"), ("diff", "HEAD", "--exit-code"), ("show",)):
            done = project.lockstep("code", *words, "--family", "misspelt", "--target", "sm_90")
            assert (done.returncode, reason in done.stdout) == (3, True), done.stdout
            assert "misspelt ours at M=4" in done.stdout
        beside = project.lockstep("code", "diff", "HEAD", "--target", "sm_90")
        assert (beside.returncode, f"in neither version: {reason}" in beside.stdout) == (0, True), beside.stdout
        assert "cases: 1 not traced; 1 suite has the same sources" in beside.stdout
    finally:
        (project.root / "benchmarks/misspelt.py").unlink()


def test_the_doctor_ends_with_1_if_something_stops_a_trace(project):
    kernels = project.root / "toy/product.py"
    doctor = ("code", "doctor", "--target", "sm_90")
    assert project.lockstep(*doctor).stdout.endswith(". for sm_90: 6 of 6 cases are traced\n")
    before = kernels.read_text()
    kernels.write_text(before.replace("    return torch.mm(x, weight, out=out)\n", "    return x.sum().item()\n", 1))
    done = project.lockstep(*doctor)
    kernels.write_text(before)
    assert done.returncode == 1
    assert ". for sm_90: 3 of 6 cases are traced; 1 question stops the others" in done.stdout
    assert re.search(
        r"toy/product.py:\d+: cannot be followed without a GPU .*\n    stops 3: product plain at", done.stdout
    )


@pytest.mark.thorough
def test_the_verb_prints_each_target_as_it_ends(project):
    head = "def plain(x, weight, *, out=None):\n"
    kernels = project.root / "toy/product.py"
    kernels.write_text(kernels.read_text().replace(head, f"{head}    torch.add(x, 1)\n"))
    done = project.lockstep("code", "diff", "HEAD", ".", "--target", "sm_90", "--target", "sm_80")
    told = done.stdout.splitlines()
    assert told.index("sm_90: HEAD → .") < min(at for at, one in enumerate(told) if one.endswith(" for sm_80"))
    assert "sm_80: HEAD → ." in told
    project.git("checkout", "-q", "toy")


def test_a_target_is_refused_before_the_suites_are_imported(project):
    suite = project.root / "benchmarks/product.py"
    suite.write_text("raise RuntimeError('imported')\n")
    done = project.lockstep("code", "diff", "HEAD", "--target", "sm_999")
    project.git("checkout", "-q", "benchmarks")
    assert (done.returncode, "is not a target" in done.stdout, "imported" in done.stdout) == (4, True, False)


def test_a_target_of_the_configuration_is_refused_with_its_key(project):
    path = project.root / "asv.conf.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "lockstep": {**content["lockstep"], "targets": ["sm_91"]}}))
    done = project.lockstep("code", "diff", "HEAD")
    project.git("checkout", "-q", "asv.conf.json")
    assert done.returncode == 4
    assert done.stdout.startswith("· asv.conf.json: \"lockstep.targets\": 'sm_91' is not a target")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("diff", "nosuch"), "has no commit 'nosuch'"),
        (("diff", "HEAD", "--target", "hopper"), "'hopper' is not a target"),
        (("diff", "HEAD", "--target", "sm_91"), "'sm_91' is not a target"),
        (("show", "--target", "sm90"), "'sm90' is not a target; give one of sm_80"),
        (("doctor", "--family", "prodct"), "did you mean product?"),
        (("show", "--family", "prodct"), "did you mean product?"),
        (("show", "--family", "product", "--variant", "plian"), "did you mean plain?"),
        (("show", "--family", "product", "--case", "M=5"), "M=5"),
    ],
)
def test_wrong_usage_is_named(project, arguments, complaint):
    done = project.lockstep("code", *arguments)
    assert done.returncode == 4
    assert complaint in done.stdout
    assert "Traceback" not in done.stdout


def test_an_unknown_commit_names_the_repository_and_not_the_folder_of_the_packages(project):
    folder = project.root / "toy"
    with (
        pytest.raises(RefError, match=f"^{project.root.resolve()} has no commit 'mian'"),
        sources("mian", folder, ["x"]),
    ):
        pass


def test_a_link_out_of_a_commit_is_refused(project):
    (project.root / "toy/link").symlink_to("../../out")
    project.commit("Link to a file outside")
    with pytest.raises(RefError, match="toy/link"), sources("HEAD", project.root, ["toy"]):
        pass
    project.git("reset", "-q", "--hard", "HEAD~1")


@pytest.mark.parametrize(
    ("number", "status"),
    [pytest.param(signal.SIGINT, 130, marks=pytest.mark.thorough), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_interrupted_or_killed_it_ends_at_once_with_all_that_it_started(project, number, status, tmp_path):
    # Both trees are in a call that never returns; a runner that cancels a job waits for ten seconds.
    kernels = project.root / "toy/product.py"
    called = f"open({str(tmp_path)!r} + f'/{{os.getpid()}}', 'w').close()"
    never = f"plain.__globals__['torch'].mm = lambda *_, **__: ({called}, time.sleep(1000))"
    kernels.write_text(f"{kernels.read_text()}\n\n{never}\n")
    project.commit("Never return")
    kernels.write_text(kernels.read_text() + "\n\nNEW = 1\n")
    process = project.popen("code", "diff", "HEAD", "--target", "sm_90")
    try:
        wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
        assert len(worker_processes(project.root)) == 8  # a process and its fork for each tree, and the guard of each
        asked = time.monotonic()
        process.send_signal(number)
        shown, _ = process.communicate(timeout=60)
        assert time.monotonic() - asked < 30
        assert process.returncode == status, shown
        assert "Traceback" not in shown
        wait_until(lambda: not worker_processes(project.root))
    finally:
        process.kill()
        project.git("reset", "-q", "--hard", "HEAD~1")
