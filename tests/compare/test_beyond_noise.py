"""The overview on noisy results: nothing is coloured, counted or averaged that the noise explains."""

import math
import random
import re

import pytest
from compared import each
from served import cells, table_of, words
from trees import analysed, open_store, record, write_measurement

from dashboard.pages import overview
from dashboard.pages.overview_families import families
from dashboard.pages.overview_table import in_order
from lockstep.record.model import Estimate

DAY_MS = 86_400_000
CASES = [f"M={2**n},K=4096,N=2048" for n in range(8)]
TOO_LARGE = [f"M={2**n},K=4096,N=2048" for n in range(12, 42)]
LAPTOP, GPU = "laptop-cpu", "h200-locked"


def around(value, half):
    """An estimate whose interval reaches this far, as a factor."""
    return Estimate(value, value / half, value * half)


def write(root, machine, commits, noise, slower=lambda commit, case: 1.0, half=1.001, year=2026):
    """A machine whose times scatter from run to run by ``noise`` (log units), more than one run knows of."""
    draw = random.Random(7)
    at = {"started_at": f"{year}-09-21T14:00:00+00:00", "baseline": "torch"}
    for n in range(commits):
        records = []
        for case in CASES:
            time = 5e-6 * slower(n, case) * math.exp(draw.gauss(0, noise))
            records.append(
                record(case=case, latency=around(time, half), speedup=around(1e-5 / time, half), epochs=6, **at)
            )
            base = around(1e-5 * math.exp(draw.gauss(0, noise)), half)
            records.append(record("torch", case, latency=base, speedup=Estimate(1.0, 1.0, 1.0), epochs=6, **at))
        records += [record(case=case, state="na", latency=None, speedup=None, reason="too large") for case in TOO_LARGE]
        commit = f"{n + 1:08x}" * 5
        write_measurement(root, records, machine=machine, commit=commit, date=1_790_000_000_000 + n * DAY_MS)


def opened(root):
    store = open_store(root)
    return store, analysed(store, root.parent)


def stand(opened, machine):
    store, findings = opened
    return overview.statuses_of(store.current(), machine, "all", 0, findings)


@pytest.fixture(scope="module")
def laptop(tmp_path_factory):
    """Two commits that differ by nothing, on a machine whose runs differ by factors."""
    root = tmp_path_factory.mktemp("laptop") / "results"
    write(root, LAPTOP, 2, noise=0.8)
    return opened(root)


@pytest.fixture(scope="module")
def gpu(tmp_path_factory):
    """Twenty quiet commits. A case is 5 % slower from the seventh on; 30 % slower is one at two commits, one at one."""
    root = tmp_path_factory.mktemp("gpu") / "results"

    def slower(n, case):
        from_commit = {CASES[0]: (6, 1.05), CASES[3]: (18, 1.3), CASES[5]: (19, 1.3)}
        begin, factor = from_commit.get(case, (20, 1.0))
        return factor if n >= begin else 1.0

    write(root, GPU, 20, noise=0.001, slower=slower)
    return opened(root)


def drawn(opened, machine):
    """The cells of the machine's only family, by case."""
    [row] = cells(families(opened[0].current(), in_order(stand(opened, machine)))).values()
    return dict(zip(CASES, row, strict=False))


def said(opened, machine):
    return words(overview.said(opened[0].current(), machine, "all", 0, opened[1]))


def test_noise_of_unknown_size_is_not_coloured(laptop):
    stood = stand(laptop, LAPTOP)
    assert max(abs(one.worse or 0.0) for one in each(stood)) > math.log(2)
    assert {(sign, kind) for sign, kind, _ in drawn(laptop, LAPTOP).values()} == {("", "cell")}
    text = said(laptop, LAPTOP)
    assert f"No slowdown is confirmed on {LAPTOP} since 21 September, the first commit: too few commits to" in text


def test_what_the_detector_found_is_coloured_confirmed_or_not_and_counted_once_confirmed(gpu):
    shown = drawn(gpu, GPU)
    assert {case for case, (_, kind, _) in shown.items() if kind != "cell"} == {CASES[0], CASES[3]}
    assert [shown[case][:2] for case in (CASES[0], CASES[3])] == [("▼", "cell slower"), ("○", "cell slower")]
    assert "+5." in shown[CASES[0]][2]
    assert re.search(r"\+(29|30)\.\d %", shown[CASES[3]][2])
    assert "in the newest two points alone, not confirmed" in shown[CASES[3]][2]
    text = said(gpu, GPU)
    assert "1 slowdown of time" in text
    assert "+5." in text
    assert CASES[0] in text


def test_unmeasurable_cases_do_not_fill_the_table(laptop):
    results = laptop[0].current()
    rows = table_of(results, LAPTOP, stand(laptop, LAPTOP))
    assert {row["state"] for row in rows} == {"ok"}
    assert len(rows) == 2 * len(CASES)


def test_an_odd_point_at_the_earlier_commit_is_no_change_of_the_newest(tmp_path):
    root = tmp_path / "results"
    # At the first commit, which is compared with, everything was twice as slow.
    write(root, LAPTOP, 11, noise=0.05, slower=lambda n, case: 2.0 if n == 0 else 1.0, half=1.05)
    laptop = opened(root)
    stood = stand(laptop, LAPTOP)
    assert min(one.worse for one in each(stood) if one.worse is not None) < -0.5
    assert not any(one.beyond_noise for one in each(stood))
    assert {kind for _, kind, _ in drawn(laptop, LAPTOP).values()} == {"cell"}
