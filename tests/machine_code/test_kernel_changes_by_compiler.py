"""What two compilers make of one kernel: a verdict, a sentence, and hosts that differ by a compiler's own fields."""

from dataclasses import replace

import pytest

from lockstep.machine_code import CaseCode, CaseKey, Comparison, KernelCode, MachineCode, Target
from lockstep.machine_code.compiling.compiler_facts import CompilerFacts, compiler_differences
from lockstep.machine_code.differences.kernel_changes_by_compiler import counted, kernel_changes, with_shared_fields
from lockstep.machine_code.differences.toolchain_report import kernel_counts, toolchain_lines, toolchain_markdown

SM90 = Target.parse("sm_90")
KEY, OTHER = CaseKey("linear", "tile", "M=1"), CaseKey("linear", "tile", "M=2")
MACHINE = MachineCode("f0", 168, 0, 1024, {"all": 100}, 2, "registers")
KERNEL = KernelCode("product", "i0", "toy/linear.py:7", {"num_warps": 8}, MACHINE)


def case(*kernels, host=("given x=t0",), unknown=""):
    return CaseCode(kernels, (*host, *("launch [4] (t0)" for _ in kernels)), unknown)


def made(**figures):
    """The kernel as another compiler compiles it."""
    return replace(KERNEL, identity="i1", machine=replace(MACHINE, fingerprint="f1", **figures))


def changed(after, before=KERNEL):
    [change] = kernel_changes({KEY: case(before)}, {KEY: case(after)})
    return change


@pytest.mark.parametrize(
    ("after", "verdict", "sentence"),
    [
        (made(registers=170), "worse", "registers 168 → 170"),
        (made(registers=255, blocks=1), "worse", "registers 168 → 255, blocks an SM 2 → 1"),
        (made(spill_bytes=8, mix={"all": 90}), "mixed", "spills 0 → 8, instructions 100 → 90"),
        (made(shared_bytes=512), "better", "shared 1,024 → 512"),
        (made(mix={"all": 100, "BAR": 3}), "other code", "the same figures"),
        (replace(KERNEL, identity="i1"), "same", "the same figures"),
        (replace(KERNEL, identity="i1", machine=None, failure="no such intrinsic"), "fails", "no such intrinsic"),
    ],
)
def test_more_of_a_figure_is_worse(after, verdict, sentence):
    change = changed(after)
    assert (change.verdict, change.sentence) == (verdict, sentence)


def test_a_kernel_that_compiles_again_is_better():
    change = changed(KERNEL, replace(KERNEL, identity="i1", machine=None, failure="no such intrinsic"))
    assert (change.verdict, change.sentence) == ("better", "compiles; before: no such intrinsic")


def test_cases_that_share_a_kernel_share_its_row_and_failures_come_first():
    broken = replace(KERNEL, name="sum", identity="i2", machine=None, failure="no such intrinsic")
    base = {KEY: case(KERNEL, replace(KERNEL, name="sum")), OTHER: case(KERNEL)}
    head = {KEY: case(made(registers=170), broken), OTHER: case(made(registers=170))}
    rows = kernel_changes(base, head)
    assert [(row.after.name, row.verdict, row.cases) for row in rows] == [
        ("sum", "fails", (KEY,)),
        ("product", "worse", (KEY, OTHER)),
    ]
    assert counted(rows) == {"fails": 1, "worse": 1}
    assert kernel_counts(rows) == "2 kernels, 2 changed: 1 fails, 1 worse; worse in registers 1"


def test_an_untrusted_trace_gives_no_row():
    assert kernel_changes({KEY: case(KERNEL)}, {KEY: case(made(registers=1), unknown="reads its data")}) == ()


def test_fields_that_one_compiler_lacks_are_left_out_on_both_sides():
    old = "launch [4] (TensorDescriptor(base=t0, shape=[8, 4], padding='zero'), t1)"
    new = "launch [4] (TensorDescriptor(base=t0, shape=[8, 4], padding='zero', round=False, boxes=[1, 2]), t1)"
    base, head = ({KEY: CaseCode((KERNEL,), (step,))} for step in (old, new))
    before, after, fields = with_shared_fields(base, head)
    assert (before[KEY].host, after[KEY].host, fields) == ((old,), (old,), ("boxes", "round"))
    wider = {KEY: CaseCode((KERNEL,), (new.replace("[8, 4]", "[8, 8]"),))}
    before, after, _ = with_shared_fields(base, wider)
    assert before[KEY].host != after[KEY].host, "a shared field differs"
    assert with_shared_fields(base, base)[2] == ()


def test_each_version_and_default_that_differs_is_a_sentence():
    base = CompilerFacts({"triton": "3.9.0", "ptxas": "12.9"}, {"enable_fp_fusion": "True", "old": "1", "num": "4"})
    head = CompilerFacts(
        {"triton": "3.10.0", "ptxas": "12.9"}, {"enable_fp_fusion": "False", "clc": "None", "num": "4"}
    )
    assert list(compiler_differences(base, head)) == [
        "triton 3.9.0 → 3.10.0",
        "default of enable_fp_fusion True → False",
        "no option old any more, by default 1",
        "new option clc, by default None",
    ]
    assert list(compiler_differences(base, base)) == []


def test_a_report_ends_with_the_cases_and_has_a_line_a_kernel():
    facts = CompilerFacts({"triton": "3.9.0"}, {})
    sides = {KEY: case(KERNEL)}, {KEY: case(made(registers=170))}
    comparison = Comparison(SM90, *sides, compilers=(facts, facts))
    lines = list(toolchain_lines(comparison, "old", "new", "HEAD"))
    assert lines == [
        "sm_90: old → new, both at HEAD",
        "  the compilers have the same versions and the same default options",
        "  1 kernel, 1 changed: 1 worse; worse in registers 1",
        "  worse",
        "    product (toy/linear.py:7): registers 168 → 170; linear tile at M=1",
        "  cases: 1 changed",
    ]
    assert toolchain_markdown([comparison], "old", "new", "HEAD").startswith(
        "### old → new changes kernels: 1 of 1 on sm_90\n\n```text\n"
    )
