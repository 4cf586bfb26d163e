"""Of variants that give the GPU the same work at a case, one is measured, and its verdict is that of the others."""

from types import SimpleNamespace

from lockstep.gate.import_facts import Imports
from lockstep.gate.judge import Judge
from lockstep.gate.model import SeriesKey, SideFacts, Verdict
from lockstep.gate.unchanged import Unchanged
from lockstep.machine_code.model import CaseKey
from lockstep.record.model import Estimate
from lockstep.same_work.work import Observed
from lockstep.suite.thresholds import Thresholds


def test_one_of_the_variants_with_the_same_work_is_measured():
    variants = ("best", "planes", "ring")
    keys = [SeriesKey("w4a16", name, "M=8", l2) for l2 in ("cold", "warm") for name in variants]
    works = {"best": "d1", "planes": "d1", "ring": ""}
    unchanged = Unchanged(
        observed={
            CaseKey("w4a16", name, "M=8"): Observed("planes: warps 4 → 8", work=works.get(name, ""))
            for name in variants
        },
    )
    facts = SideFacts(dict.fromkeys(variants, ("kernels/w4a16.py", 1)))
    asked = []

    def judge(requests, deadline):
        for request in requests:
            for key in request.group.cases():
                asked.append(key)
                yield Verdict(key, "slower", change=Estimate(0.1, 0.09, 0.11), confirmed=True, epochs=8)

    judging = Judge(
        SimpleNamespace(budget_s=60.0, seed=1, costs={}, thresholds=Thresholds(), min_effect=None, about=()),
        Imports({"w4a16": {"base": facts, "head": facts}}),
        unchanged,
        SimpleNamespace(machine={"device": "cuda"}, judge=judge),
        SimpleNamespace(),
        lambda line: None,
    )
    judging.run(keys)
    measured = asked[len(judging.aa_verdicts) :]
    assert sorted(measured) == sorted(key for key in keys if key.variant != "planes")
    for key in keys:
        verdict = judging.verdicts[key]
        assert (verdict.key, verdict.outcome, verdict.change.value) == (key, "slower", 0.1)
        assert verdict.reason == ("the same work as best" if key.variant == "planes" else "")
