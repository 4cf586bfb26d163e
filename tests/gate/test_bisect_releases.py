"""The search for the first bad release, with verdicts that are given."""

from lockstep.gate.bisect_releases import ReleaseSearch
from lockstep.gate.model import SeriesKey, Verdict
from lockstep.gate.report.report import Report
from lockstep.record.model import Estimate

NAMES = [f"pace==1.{number}" for number in range(8)]


def search(levels, unknown=()):
    """Search with the level of each case by release: 1.1 is 10 % slower than 1.0, NaN fails."""
    asked = []

    def compare(low, high, keys):
        asked.append((low, high))
        cases = []
        for name in [key.variant for key in keys] or levels:
            key, of = SeriesKey("pace", name, "M=1", "warm"), dict(zip(NAMES, levels[name], strict=True))
            change = of[high] / of[low] - 1
            if (name, high) in unknown and low == NAMES[0]:
                verdict = Verdict(key, "unsure", "out of time")
            elif change != change:
                verdict = Verdict(key, "failed", "wrong")
            else:
                estimate = Estimate(change, change - 0.01, change + 0.01)
                verdict = Verdict(key, "slower" if change > 0.02 else "same", change=estimate)
            cases.append(verdict)
        return Report(low, high, 0.01, 0.99, 1.0, 1, cases=tuple(cases))

    found = ReleaseSearch(NAMES, compare, lambda line: None)
    found.run()
    return {case.key.variant: (one.before, one.release) for one in found.found for case in one.verdicts}, asked


def test_each_case_has_its_own_first_bad_release():
    nan = float("nan")
    found, asked = search(
        {"same": [1] * 8, "rope": [1, 1, 1, 1.2, 1.2, 1.2, 1.2, 1.2], "norm": [1] * 6 + [nan] * 2, "old": [1] + [2] * 7}
    )
    assert found == {
        "rope": ("pace==1.2", "pace==1.3"), "norm": ("pace==1.5", "pace==1.6"), "old": ("pace==1.0", "pace==1.1")
    }  # fmt: skip
    assert asked[0] == ("pace==1.0", "pace==1.7")
    assert len(asked) <= 11


def test_a_small_step_on_the_way_is_not_the_first_bad_release():
    assert search({"rope": [1, 1.03, 1.03, 1.03, 1.03, 1.2, 1.2, 1.2]})[0] == {"rope": ("pace==1.4", "pace==1.5")}


def test_releases_that_cannot_be_judged_stay_between():
    assert search({"rope": [1] * 3 + [2] * 5}, unknown={("rope", "pace==1.3")})[0] == {
        "rope": ("pace==1.0", "pace==1.7")
    }


def test_equal_ends_need_one_comparison():
    assert search({"rope": [1] * 8}) == ({}, [("pace==1.0", "pace==1.7")])
