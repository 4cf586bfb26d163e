"""Changes are matched, grouped and told in a sentence."""

from dataclasses import replace

import pytest

from lockstep.machine_code.compiling.compiler_facts import CompilerFacts, compiler_differences
from lockstep.machine_code.differences.compare import Comparison
from lockstep.machine_code.differences.difference_sentences import differences, differing
from lockstep.machine_code.differences.report import diff_lines, in_short
from lockstep.machine_code.model import Call, CaseCode, CaseKey, KernelCode, MachineCode
from lockstep.machine_code.targets import Target

KEY, OTHER = CaseKey("linear", "tile", "M=1"), CaseKey("linear", "tile", "M=2")
MACHINE = MachineCode("f0", 168, 0, 1024, {"HGMMA": 4, "all": 100}, 2, "registers")
KERNEL = KernelCode("product", "i0", "toy/linear.py:7", {"num_warps": 8}, MACHINE)
CODE = CaseCode((KERNEL,), ("given x=t0", "launch [4] (t0)"))
SPILLED = replace(
    KERNEL,
    identity="i1",
    options={"num_warps": 4},
    machine=MachineCode("f1", 255, 512, 1024, {"HGMMA": 4, "STL": 9, "all": 140}, 1, "registers"),
)


def test_equal_codes_differ_in_nothing():
    assert differences({KEY: CODE}, {KEY: CODE}) == ()
    assert CODE.same_as(CODE)


def test_another_identity_with_the_same_machine_code_is_no_change():
    renamed = replace(CODE, kernels=(replace(KERNEL, identity="i1", source="toy/linear.py:9"),))
    assert differences({KEY: CODE}, {KEY: renamed}) == ()


def test_a_spilling_kernel_is_told_with_figures_and_its_cases():
    head = replace(CODE, kernels=(SPILLED,))
    [change] = differences({KEY: CODE, OTHER: CODE}, {KEY: head, OTHER: head})
    assert str(change) == (
        "product: registers 168 → 255, spills 0 → 512 B, blocks an SM 2 → 1 (registers), num_warps 8 → 4, "
        "STL 0 → 9, instructions 100 → 140"
    )
    assert change.cases == (KEY, OTHER)
    assert change.source == "toy/linear.py:7"
    assert (change.before, change.after) == (KERNEL, SPILLED)


def test_all_kernels_of_a_case_with_a_difference_are_compiled():
    bare = replace(KERNEL, machine=None)
    other = replace(bare, identity="i1")
    base = {KEY: replace(CODE, kernels=(bare,)), OTHER: replace(CODE, kernels=(bare,))}
    assert differing(base, {KEY: replace(CODE, kernels=(other,)), OTHER: base[OTHER]}) == ({"i0"}, {"i1"})
    assert differing(base, base) == (set(), set())
    more = {KEY: replace(CODE, kernels=(bare, replace(other, name="another")))}
    assert differing(base, more) == ({"i0"}, {"i0", "i1"})
    assert differing(more, base) == ({"i0", "i1"}, {"i0"})


def test_kernels_come_first_then_what_touches_most_cases():
    third = CaseKey("linear", "tile", "M=4")
    base = dict.fromkeys((KEY, OTHER, third), CODE)
    elsewhere, spilled = replace(CODE, host=("launch [8] (t0)",)), replace(CODE, kernels=(SPILLED,))
    bigger = replace(CODE, kernels=(replace(SPILLED, name="another"),))
    found = differences(base, {KEY: spilled, OTHER: bigger, third: bigger})
    assert [(change.kernel, len(change.cases)) for change in found] == [("product", 2), ("another", 2), ("product", 1)]
    found = differences(base, {KEY: elsewhere, OTHER: elsewhere, third: spilled})
    assert [(change.kind, len(change.cases)) for change in found] == [("kernel", 1), ("host", 2)]


def test_an_uncompiled_kernel_of_another_identity_is_never_the_same():
    bare = replace(CODE, kernels=(replace(KERNEL, identity="i1", machine=None),))
    assert not CODE.same_as(bare)
    assert bare.fingerprint == ""
    for base, head in ((CODE, bare), (bare, CODE)):
        [change] = differences({KEY: base}, {KEY: head})
        assert str(change) == "product: other code, not compiled"


def test_an_added_step_is_named_and_not_the_launch_that_reads_its_result():
    before = "launch [4] (TensorDescriptor(base=t1 bf16[8,4], shape=[8, 4]), t0 bf16[8,4], 8)"
    clone, after = "aten.clone.default(t0 bf16[8,4]) → t2 bf16[8,4]", before.replace(" t0 ", " t2 ")
    base = replace(CODE, host=("given x=t0", before))
    (change,) = differences({KEY: base}, {KEY: replace(CODE, host=("given x=t0", clone, after))})
    assert change.sentence == f"does {clone}"
    (change,) = differences({KEY: replace(CODE, host=("given x=t0", clone, clone, after))}, {KEY: base})
    assert change.sentence == f"no longer does {clone} (and 1 more)"


def test_of_a_launch_only_the_arguments_that_differ_are_told():
    base = replace(CODE, host=("launch [4] (TensorDescriptor(base=t1, shape=[8, 4]), t0, 8, 2, 1)",))
    head = replace(CODE, host=("launch [4] (TensorDescriptor(base=t1, shape=[8, 4]), t0, 16, 4, 2)",))
    (change,) = differences({KEY: base}, {KEY: head})
    assert change.sentence == "product: argument 3 8 → 16, argument 4 2 → 4, 1 more argument"
    (change,) = differences({KEY: base}, {KEY: replace(CODE, host=("launch [4] (t0, 8)",))})
    assert change.sentence == "product: 5 → 2 arguments"


def test_the_host_side_counts():
    head = replace(CODE, host=("given x=t0", "launch [8] (t0)"))
    [change] = differences({KEY: CODE}, {KEY: head})
    assert (change.kind, change.sentence) == ("host", "product: grid 4 → 8")
    two = replace(CODE, kernels=(KERNEL, replace(KERNEL, name="sum")), host=("launch [4] (t0)", "launch [4] (t0)"))
    head = replace(two, host=("launch [4] (t0)", "launch [4] (t1)"))
    [change] = differences({KEY: two}, {KEY: head})
    assert change.sentence == "sum: argument 1 t0 → t1"


def test_other_words_of_a_refusal_are_no_change():
    base, head = (CaseCode((), ("given x=t0", "refuse the case"), refusal=words) for words in ("only M", "only M = 1"))
    assert base.same_as(head)
    assert differences({KEY: base}, {KEY: head}) == ()
    *_, change = differences({KEY: CODE}, {KEY: replace(CODE, host=base.host, refusal="only M")})
    assert change.sentence == "does refuse the case (and 1 more)"


def test_a_launch_that_is_gone_is_told():
    head = CaseCode((), CODE.host[:1])
    kernel, host = differences({KEY: CODE}, {KEY: head})
    assert str(kernel) == "product: launched no more"
    assert host.sentence == "no longer does launch [4] (t0)"
    kernel, host = differences({KEY: head}, {KEY: CODE})
    assert (str(kernel), kernel.before, kernel.after) == ("product: launched now", None, KERNEL)
    assert host.sentence == "does launch [4] (t0)"


def test_an_untrusted_trace_is_never_the_same():
    unknown = replace(CODE, unknown="reads its data")
    [change] = differences({KEY: unknown}, {KEY: unknown})
    assert (change.kind, change.sentence) == ("unknown", "reads its data")
    assert not unknown.same_as(unknown)
    assert unknown.fingerprint == unknown.host_fingerprint == ""
    [change] = differences({KEY: CODE}, {KEY: unknown})
    assert change.sentence == "head: reads its data"


@pytest.mark.parametrize(("base", "head", "kind"), [({}, {KEY: CODE}, "new"), ({KEY: CODE}, {}, "removed")])
def test_a_case_of_one_side_is_told(base, head, kind):
    assert [change.kind for change in differences(base, head)] == [kind]


def test_a_kernel_that_stops_compiling_is_told():
    head = replace(CODE, kernels=(replace(KERNEL, identity="broken 1", machine=None, failure="no such layout"),))
    [change] = differences({KEY: CODE}, {KEY: head})
    assert str(change) == "product: does not compile: no such layout"


def made(**figures):
    """The kernel with other machine code."""
    return replace(KERNEL, identity="i1", machine=replace(MACHINE, fingerprint="f1", **figures))


def compared(before, after):
    """The changes of one case whose kernel differs."""
    return differences({KEY: replace(CODE, kernels=(before,))}, {KEY: replace(CODE, kernels=(after,))})


BROKEN = replace(KERNEL, identity="i1", machine=None, failure="no such intrinsic")


@pytest.mark.parametrize(
    ("before", "after", "verdict", "sentence"),
    [
        (KERNEL, made(registers=170), "worse", "registers 168 → 170"),
        (KERNEL, made(spill_bytes=8, mix={"all": 90}), "mixed", "spills 0 → 8 B, HGMMA 4 → 0, instructions 100 → 90"),
        (KERNEL, made(shared_bytes=512), "better", "shared 1024 → 512 B"),
        (KERNEL, made(mix={"HGMMA": 4, "all": 100, "BAR": 3}), "other code", "BAR 0 → 3"),
        (KERNEL, BROKEN, "does not compile", "does not compile: no such intrinsic"),
        (BROKEN, KERNEL, "better", "compiles again (no such intrinsic)"),
    ],
)
def test_more_of_a_figure_is_worse(before, after, verdict, sentence):
    [change] = compared(before, after)
    assert (change.verdict, change.sentence) == (verdict, sentence)


def test_a_kernel_of_one_tree_has_no_verdict():
    (change,) = differences({KEY: replace(CODE, kernels=())}, {KEY: replace(CODE, host=CODE.host)})
    assert (change.sentence, change.verdict) == ("launched now", "")


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


def test_a_report_begins_with_the_number_of_cases_and_the_compilers():
    facts = CompilerFacts({"triton": "3.9.0"}, {})
    head = {KEY: replace(CODE, kernels=(made(registers=170),)), OTHER: replace(CODE, kernels=(made(registers=172),))}
    comparison = Comparison(Target.parse("sm_90"), {KEY: CODE, OTHER: CODE}, head, compilers=(facts, facts))
    assert list(diff_lines(comparison, "old", "new, both at HEAD")) == [
        "sm_90: old → new, both at HEAD",
        "  cases: 2 changed",
        "  the compilers have the same versions and the same default options",
        "  machine code: 2 worse",
        "    product (toy/linear.py:7): registers 168 → 172",
        "      linear tile at M=2",
        "    product (toy/linear.py:7): registers 168 → 170",
        "      linear tile at M=1",
    ]


def test_a_line_never_calls_a_case_the_same_that_was_not_traced():
    worse = replace(CODE, kernels=(made(registers=170),))
    unknown = CaseCode((), (), unknown="cannot be imported")
    sm90 = Target.parse("sm_90")
    assert in_short(Comparison(sm90, {KEY: CODE}, {KEY: CODE})) == "sm_90: 1 same"
    assert in_short(Comparison(sm90, {KEY: unknown, OTHER: unknown}, {KEY: CODE, OTHER: CODE})) == "sm_90: 2 not traced"
    mixed = Comparison(sm90, {KEY: CODE, OTHER: unknown}, {KEY: worse, OTHER: CODE})
    assert in_short(mixed) == "sm_90: 1 changed, 1 not traced"
    assert in_short(Comparison(sm90, {}, {}, frozenset({"linear"}))) == "sm_90: same sources"


def test_equal_kernels_with_more_memory_are_not_called_no_difference():
    little, more = (replace(CODE, call=Call(0, 1, 1, 1, peak, 0)) for peak in (4096, 1 << 20))
    lines = list(diff_lines(Comparison(Target.parse("sm_90"), {KEY: little}, {KEY: more}), "old", "new"))
    assert lines[1] == "  the same kernels and steps; cases: 1 same"
    assert any("memory" in line for line in lines[2:])


@pytest.mark.parametrize(("changes", "told"), [(4, "and in 1 more way: linear"), (5, "and in 2 more ways: linear")])
def test_of_many_changes_of_a_kernel_three_are_shown(changes, told):
    keys = [CaseKey("linear", "tile", f"M={number}") for number in range(changes)]
    head = {key: replace(CODE, kernels=(made(registers=170 + number),)) for number, key in enumerate(keys)}
    comparison = Comparison(Target.parse("sm_90"), dict.fromkeys(keys, CODE), head)
    lines = list(diff_lines(comparison, "old", "new"))
    assert lines[1] == f"  cases: {changes} changed"
    assert sum("registers 168 →" in line and "toy/linear.py" in line for line in lines) == 3
    assert any(line.strip().startswith(told) for line in lines)


TUNED = [replace(KERNEL, configuration=f"BLOCK 64, num_warps {warps}", identity=f"t{warps}") for warps in (2, 4, 8, 16)]


def tuned(*kernels):
    """A case that launches a tuned kernel in these configurations."""
    return CaseCode(tuple(kernels), ("given x=t0", *(f"with {one.configuration}: launch [4] (t0)" for one in kernels)))


@pytest.mark.parametrize(
    ("base", "head", "sentence"),
    [
        (TUNED, TUNED[:3], "configuration removed: num_warps 16"),
        (TUNED[:3], TUNED[1:], "configuration removed: num_warps 2; configuration added: num_warps 16"),
        (TUNED[:1], TUNED, "configuration added: num_warps 4; num_warps 8 and 1 more"),
        (TUNED[:0], TUNED, "launched now in 4 configurations"),
        (TUNED, TUNED[:0], "launched no more in 4 configurations"),
    ],
)
def test_configurations_are_paired_by_what_they_set(base, head, sentence):
    [change] = differences({KEY: tuned(*base)}, {KEY: tuned(*head)})
    assert (change.kernel, change.sentence) == ("product", sentence)
    assert differing({KEY: tuned(*base)}, {KEY: tuned(*head)}) == (set(), set()), "nothing needs to be compiled"


def test_a_configuration_is_compared_with_itself_in_a_longer_list():
    spilled = replace(TUNED[3], identity="i1", machine=SPILLED.machine)
    base, head = {KEY: tuned(*TUNED)}, {KEY: tuned(TUNED[0], spilled)}
    removed, changed = differences(base, head)
    assert removed.sentence == "configuration removed: num_warps 4; num_warps 8"
    assert (changed.before, changed.after) == (TUNED[3], spilled)
    assert differing(base, head) == ({"t16"}, {"i1"})
