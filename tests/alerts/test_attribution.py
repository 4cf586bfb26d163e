"""Every change gets the cause that its surroundings speak for, and the changes of one event become one alert."""

import math
from dataclasses import replace

import pytest
from alerting import COMMITS, alerts, altered, series, step, told

from lockstep.alerts.analysis.grouping import group
from lockstep.alerts.cause.attribution import explained
from lockstep.alerts.cause.change_facts import Facts, Move
from lockstep.alerts.cause.code_evidence import code_evidence
from lockstep.alerts.database.alert_row import from_json, to_json
from lockstep.alerts.story import tell
from lockstep.alerts.text import culprits, headline


def cause_of(one):
    """The cause that is found for a step."""
    return explained(one).cause


PAIRED = series(quantity="speedup")
KERNEL = {"name": "matmul", "code": "aa", "registers": 168, "spills": 0, "shared": 49152, "mix": {"HGMMA": 32}}


def code(host="h1", **kernel):
    return {"host": host, "kernels": [{**KERNEL, **kernel}]}


def sides(name, before, after, **changes):
    """A step with these values of one field of its facts."""
    base = step(**changes)
    return replace(base, before=replace(base.before, **{name: before}), after=replace(base.after, **{name: after}))


def texts(cause):
    return [one.text for one in cause.evidence]


TORCH = ({"torch": "2.11.0", "triton": "3.6.0"}, {"torch": "2.13.0", "triton": "3.6.0"})


def test_a_commit_when_nothing_else_differs():
    cause = cause_of(step())
    assert cause.kind == "own commit"
    assert cause.sentence == (
        "nothing that is recorded differs but the commits in the range (not recorded: the machine's hardware, clocks, "
        "controls, machine code)"
    )
    assert texts(cause) == [f"commit {COMMITS[10]}"]
    facts = replace(step().before, machine={"cpu": "a"}, protocol={"clock state": "locked"}, code={})
    whole = step(before=facts, after=facts, controls={"copy": Move(0.0, 0.001)})
    assert cause_of(whole).sentence == "nothing but the commits in the range differs"


@pytest.mark.parametrize(
    "recorded",
    [
        {},
        {"python": "3.12"},
        {"python": "3.12", "environment": "virtualenv-py3.12"},
        {"python": "3.12", "environment": "conda-py3.12-numpy", "numpy": ""},  # asv's name for a package of any version
    ],
)
def test_no_commit_is_the_cause_where_no_versions_are_recorded(recorded):
    """A new package version slows a benchmark as a commit does, and such results record neither."""
    foreign = sides("toolchain", recorded, recorded)
    cause = cause_of(foreign)
    assert (cause.kind, cause.sentence) == (
        "unknown cause",
        "it may be a commit in the range, or something that is not recorded; not recorded: versions of packages, the "
        "machine's hardware, clocks, controls, machine code",
    )
    assert texts(cause) == [f"commit {COMMITS[10]}"]
    [alert] = alerts(foreign)
    assert (alert.cause.kind, alert.suspects) == ("unknown cause", (COMMITS[10],))
    assert from_json(to_json(alert)) == alert
    # Machine code that changed is evidence; so is any version that both sides record.
    compiled = replace(foreign, before=replace(foreign.before, code=code()))
    compiled = replace(compiled, after=replace(foreign.after, code=code(code="bb")))
    assert cause_of(compiled).kind == "own commit"
    versions = recorded | {"numpy": "2"}
    assert cause_of(sides("toolchain", versions, versions)).kind == "own commit"


REASONS = ["no repository", "shallow", "unplaced", "missing", "branches"]


@pytest.mark.parametrize("unknown", REASONS)
def test_commits_that_are_not_known_are_not_named(unknown):
    for suspect in (step(unknown=unknown), step(unknown=unknown, touched=(COMMITS[10],))):
        cause = cause_of(suspect)
        assert cause.kind == "unknown range"
        assert not [one for one in cause.evidence if one.what == "commit"]
    cause = cause_of(altered(sides("code", code(), code(registers=255, code="bb")), unknown=unknown))
    assert cause.sentence.endswith("; the machine code changed: matmul registers 168 → 255")
    # What explains a change without its commits goes on doing so.
    assert cause_of(altered(sides("toolchain", *TORCH), unknown=unknown)).kind == "toolchain"
    assert cause_of(altered(sides("code", code(), code()), unknown=unknown)).kind == "noise"


@pytest.mark.parametrize("unknown", REASONS)
def test_an_alert_whose_range_is_not_known_has_two_ends_and_no_culprit(unknown):
    [alert] = alerts(step(10, unknown=unknown))
    assert (alert.before, alert.after, alert.suspects) == (COMMITS[9], COMMITS[10], ())
    assert alert.range == f"{COMMITS[9][:8]}..{COMMITS[10][:8]}"
    assert alert.range in headline(alert)
    placed = unknown in ("shallow", "branches")
    assert culprits(alert).startswith(
        f"{COMMITS[9][:12]}..{COMMITS[10][:12]}, {'' if placed else 'in the order of their dates, '}"
        "and the commits in between are unknown: "
    )
    assert f"commit {COMMITS[10][:12]}" not in "\n".join(tell(alert).lines())
    assert from_json(to_json(alert)) == alert


def test_an_unknown_range_does_not_narrow_a_known_one():
    """One series was measured at commits 4 and 12, all known in between; another at 8 and 12, unknown in between."""
    known = step(5, 12, between=tuple(COMMITS[5:13]), touched=(COMMITS[6], COMMITS[12]))
    other = step(9, 12, name=series(case="M=1"), between=(COMMITS[12],), unknown="shallow", by=0.5)
    [alert] = alerts(known, other)
    assert (alert.before, alert.commits, alert.unknown) == (COMMITS[4], tuple(COMMITS[5:13]), "")
    assert alert.cause.kind == "own commit"
    assert alert.suspects == (COMMITS[6], COMMITS[12])


def test_ends_of_unknown_ranges_are_narrowed_by_what_was_measured():
    wide = step(5, 12, between=(COMMITS[8], COMMITS[12]), unknown="shallow")
    narrow = step(9, 12, name=series(case="M=1"), between=(COMMITS[12],), unknown="shallow")
    [alert] = alerts(wide, narrow)
    assert (alert.before, alert.commits, alert.unknown) == (COMMITS[8], (COMMITS[12],), "shallow")


def test_only_commits_that_touch_the_packages_are_suspects():
    [alert] = alerts(step(8, 12, touched=(COMMITS[9], COMMITS[11])))
    assert alert.suspects == (COMMITS[9], COMMITS[11])
    wide = step(8, 12, touched=(COMMITS[9], COMMITS[11]), commit=COMMITS[11])
    [alert] = alerts(wide, step(10, 14, name=series(case="M=1"), by=0.01))
    assert alert.suspects == (COMMITS[11],)
    [alert] = alerts(sides("code", code(), code(code="bb")))
    assert alert.suspects == (COMMITS[10],)
    cause = cause_of(step(8, 12, touched=()))
    assert cause.kind == "unexplained"
    assert "no commit in the range touches the packages" in cause.sentence


def test_the_machine_code_is_shown_where_it_changed():
    spilling = code(registers=255, spills=512, code="bb", mix={"HGMMA": 32, "STL": 224, "all": 900})
    cause = cause_of(sides("code", code(), spilling))
    assert cause.kind == "own commit"
    assert cause.sentence == "a commit changed it: " + ", ".join(
        ["matmul registers 168 → 255", "matmul spills 0 B → 512 B", "matmul STL 0 → 224"]
    )
    cause = cause_of(sides("code", code(), code(code="bb")))
    assert cause.sentence == "a commit changed it: matmul machine code changed"
    same = [f"matmul {text}" for text in ("registers 168 → 168", "spills 0 B → 0 B", "shared 49152 B → 49152 B")]
    assert texts(cause) == [f"commit {COMMITS[10]}", "matmul machine code changed", *same]
    assert "how the kernels are launched changed" in cause_of(sides("code", code(), code(host="h2"))).sentence
    two = {"host": "h1", "kernels": [KERNEL, KERNEL]}
    assert cause_of(sides("code", code(), two)).sentence == "a commit changed it: kernel matmul (2) is new"


def test_machine_code_unknown_on_one_side_is_not_evidence():
    for less in (None, {}, code(host="")):
        assert code_evidence(code(), less) == code_evidence(less, code()) == ()
    for less in (code(code="bb", registers="many"), code(code="bb", mix={}), code(code="bb", mix=None)):
        for one, other in ((code(), less), (less, code())):
            facts = code_evidence(one, other)
            assert [fact.text for fact in facts if fact.changed] == ["matmul machine code changed"]


def test_unchanged_machine_code_is_noise():
    assert cause_of(sides("code", code(), code())).kind == "noise"


UNKNOWN = [None, {}, {"kernels": [{}], "host": "h1"}, {"kernels": 3, "host": "h1"}, code(host=""), code(code=None)]


@pytest.mark.parametrize("unknown", UNKNOWN)
def test_unknown_machine_code_is_never_unchanged(unknown):
    assert cause_of(sides("code", unknown, unknown)).kind == "own commit"


def same_work(quantity):
    return sides("work", "ab12", "ab12", series=series(quantity=quantity))


@pytest.mark.parametrize("quantity", ["latency", "speedup", "behind", "energy", "error"])
def test_the_same_work_of_the_gpu_is_noise(quantity):
    cause = cause_of(same_work(quantity))
    assert (cause.kind, cause.sentence) == ("noise", "the GPU got the same work before and after")


def clocked(quantity, clocks, **codes):
    one = step(series=series(quantity=quantity))
    before, after = (replace(side, sm_mhz=clock) for side, clock in zip((one.before, one.after), clocks, strict=True))
    return replace(one, before=replace(before, code=codes.get("before")), after=replace(after, code=codes.get("after")))


def test_a_time_that_follows_the_clock_is_the_machines():
    slower = 1650.0 * math.exp(-step().change.size)
    cause = cause_of(clocked("latency", (1650.0, slower)))
    assert (cause.kind, cause.sentence) == (
        "machine",
        f"the GPU's clock moved: SM clock 1650 MHz → {slower:.0f} MHz",
    )
    assert cause_of(clocked("latency", (slower, 1650.0))).kind == "own commit"
    half = 1650.0 * math.exp(-step().change.size / 2)
    assert cause_of(clocked("latency", (1650.0, half))).kind == "own commit"
    assert cause_of(clocked("speedup", (1650.0, slower))).kind == "own commit"
    assert cause_of(clocked("latency", (1650.0, slower), before=code(), after=code(code="bb"))).kind == "own commit"


@pytest.mark.parametrize("quantity", ["host", "compile", "deterministic", "registers"])
def test_the_same_work_of_the_gpu_says_nothing_of_the_host(quantity):
    assert cause_of(same_work(quantity)).kind == "own commit"


@pytest.mark.parametrize("work", [("", ""), ("ab12", ""), ("ab12", "cd34")])
def test_work_that_is_unknown_or_differs_acquits_no_commit(work):
    assert cause_of(sides("work", *work)).kind == "own commit"


def test_a_toolchain_that_changed_is_named_before_the_commits():
    cause = cause_of(sides("toolchain", *TORCH))
    assert (cause.kind, cause.sentence) == ("toolchain", "the toolchain changed: torch 2.11.0 → 2.13.0")
    same = {"numpy": "2"}
    one_side = sides("toolchain", same | {"torch": "2.11.0"}, same | {"triton": "3.6.0"})
    assert cause_of(one_side).kind == "own commit"
    for unknown in (("", "2.13.0"), ("2.11.0", "")):
        assert cause_of(sides("toolchain", *(same | {"torch": one} for one in unknown))).kind == "own commit"


def test_unchanged_machine_code_does_not_acquit_a_toolchain():
    base = sides("toolchain", *TORCH)
    same = replace(base, before=replace(base.before, code=code()), after=replace(base.after, code=code()))
    assert cause_of(same).kind == "toolchain"


def test_controls_that_moved_are_the_machine():
    moved = {"copy": Move(math.log(1.06), 0.002), "matmul": Move(0.001, 0.002)}
    cause = cause_of(step(controls=moved))
    assert (cause.kind, cause.sentence) == ("machine", "control copy +6.0%")
    for still in (Move(-0.06, 0.002), Move(0.06, 0.05), Move(0.01, 0.002)):
        assert cause_of(step(controls={"copy": still})).kind == "own commit"


def test_controls_that_moved_with_the_toolchain_are_the_toolchains():
    cause = cause_of(replace(sides("toolchain", *TORCH), controls={"copy": Move(0.06, 0.001)}))
    assert cause.kind == "toolchain"
    assert cause.sentence == "the toolchain changed: torch 2.11.0 → 2.13.0; control copy +6.2%"


def test_a_baseline_that_became_slower_too_is_the_machine():
    cause = cause_of(step(baseline=Move(0.04, 0.001)))
    assert (cause.kind, cause.sentence) == ("machine", "baseline's time +4.1%")
    for still in (Move(-0.04, 0.001), Move(0.04, 0.02), Move(0.01, 0.001)):
        assert cause_of(step(baseline=still)).kind == "own commit"


def test_another_gpu_is_evidence_where_the_controls_moved():
    base = sides("machine", {"gpu_uuid": "A"}, {"gpu_uuid": "B"})
    cause = cause_of(replace(base, controls={"copy": Move(0.06, 0.001)}))
    assert (cause.kind, texts(cause)) == ("machine", ["control copy +6.2%", "gpu_uuid A → B"])
    assert cause_of(replace(base, controls={"copy": Move(0.0, 0.001)})).kind == "own commit"
    assert cause_of(base).kind == "machine"


def test_a_ratio_that_fell_because_its_baseline_is_faster_is_not_the_kernel():
    cause = cause_of(step(name=PAIRED, baseline=Move(-0.05, 0.001), own=Move(0.001, 0.001)))
    assert (cause.kind, cause.sentence) == ("machine", "baseline's time -4.9%")
    assert cause_of(step(name=PAIRED, baseline=Move(0.0, 0.001), own=Move(0.05, 0.001))).kind == "own commit"
    # The machine slows both; the pair still shows what the commit did.
    assert cause_of(step(name=PAIRED, baseline=Move(0.05, 0.001), own=Move(0.1, 0.001))).kind == "own commit"


def test_controls_say_nothing_of_a_ratio():
    assert cause_of(step(name=PAIRED, controls={"copy": Move(0.06, 0.001)})).kind == "own commit"


@pytest.mark.parametrize(
    ("field", "before", "after"),
    [
        ("protocol", {"protocol": "1"}, {"protocol": "2"}),
        ("protocol", {"tf32_matmul": "False"}, {"tf32_matmul": "True"}),
    ],
)
def test_a_change_of_protocol_is_not_a_regression(field, before, after):
    base = sides(field, before, after)
    both = replace(base, before=replace(base.before, toolchain=TORCH[0]), after=replace(base.after, toolchain=TORCH[1]))
    assert cause_of(both).kind == "protocol"


def test_another_version_of_the_benchmark_is_another_way():
    assert cause_of(sides("version", "aa", "bb")).sentence == "it is measured differently: benchmark version aa → bb"


def test_measured_twice_with_nothing_different_is_unexplained():
    assert cause_of(step(between=())).kind == "unexplained"


def test_one_event_is_one_alert_worst_first_in_the_range_that_all_share():
    cases = [
        step(8, 11, by=0.03),
        step(10, 14, by=0.2, name=series(case="M=1")),
        step(9, 11, by=-0.1, name=series(case="M=2")),
    ]
    [alert] = alerts(*cases)
    assert [member.series.case for member in alert.members] == ["M=1", "M=8,K=64", "M=2"]
    assert alert.commits == (COMMITS[10], COMMITS[11])
    assert (alert.before, alert.range) == (COMMITS[9], f"{COMMITS[9][:8]}..{COMMITS[11][:8]}")
    assert alert.topic == "slower"


def test_other_families_machines_and_ranges_are_other_alerts():
    found = alerts(
        step(8),
        step(12),
        step(8, name=series(family="kda")),
        step(8, name=series(machine="b200")),
        step(8, name=series(case="M=1")),
    )
    assert sorted((one.machine, one.family, one.after, len(one.members)) for one in found) == sorted(
        [
            ("h200", "linear", COMMITS[8], 2),
            ("h200", "linear", COMMITS[12], 1),
            ("h200", "kda", COMMITS[8], 1),
            ("b200", "linear", COMMITS[8], 1),
        ]
    )


def test_a_wide_range_joins_the_narrow_ones_of_its_end():
    wide = step(8, 12, by=0.5, name=series(case="M=1"))
    earlier, later = alerts(step(8, 9), wide, step(11, 12, name=series(case="M=2")))
    assert [member.series.case for member in later.members] == ["M=1", "M=2"]
    assert len(earlier.members) == 1


def test_a_series_that_steps_elsewhere_does_not_narrow_the_range_of_the_worst():
    worst = step(8, 12, by=0.5, name=series(case="M=1"), commit=COMMITS[11])
    [alert] = alerts(worst, step(8, 9), step(9, 12, name=series(case="M=2")))
    assert len(alert.members) == 3
    assert (alert.before, alert.commits) == (COMMITS[8], tuple(COMMITS[9:13]))


def test_most_of_the_change_names_the_cause():
    toolchain = [altered(sides("toolchain", *TORCH), series=series(case=f"M={m}")) for m in range(3)]
    [alert] = alerts(step(by=0.06), *toolchain)
    assert alert.cause.kind == "toolchain"
    assert {member.cause.kind for member in alert.members} == {"toolchain", "own commit"}


def test_what_became_slower_names_the_cause_of_a_mixed_alert():
    faster = altered(sides("toolchain", *TORCH, by=-0.3), series=series(case="M=1"))
    [alert] = alerts(step(by=0.02), faster)
    assert (alert.topic, alert.cause.kind) == ("slower", "own commit")
    [alert] = alerts(faster)
    assert (alert.topic, alert.cause.kind) == ("faster", "toolchain")


def test_a_gain_of_a_later_commit_is_no_part_of_a_slowdown():
    slower = step(8, 11)
    here, later = (step(10, last, by=-0.3, name=series(case="M=1")) for last in (11, 14))
    [alert] = alerts(slower, here)
    assert (alert.topic, len(alert.members)) == ("slower", 2)
    slowdown, gain = alerts(slower, later)
    assert [(one.topic, len(one.members), one.after) for one in (slowdown, gain)] == [
        ("slower", 1, COMMITS[11]),
        ("faster", 1, COMMITS[14]),
    ]


def test_an_alert_is_gone_when_all_that_became_slower_went_back():
    back, stays = step(left=0.0), step(name=series(case="M=1"))
    faster = step(by=-0.1, left=0.0, name=series(case="M=2"))
    assert [alert.gone for alert in (*alerts(back), *alerts(back, stays), *alerts(back, faster), *alerts(faster))] == [
        True,
        False,
        True,
        False,
    ]


def test_an_alert_is_as_new_as_its_newest_part():
    old, new = told(step(), since=5, too_old=True), told(step(name=series(case="M=1")), since=7)
    assert [(one.since, one.old) for one in (*group(old), *group(new), *group([*old, *new]))] == [
        (5, True),
        (7, False),
        (7, False),
    ]


def test_an_order_that_lacks_commits_leaves_the_range_its_own_good_commit():
    ours, theirs = step(8, 11), step(10, 14, name=series(case="M=1"))
    [alert] = group(told(ours, theirs))
    assert (alert.before, alert.commits) == (COMMITS[7], (COMMITS[10], COMMITS[11]))
    [alert] = group(told(ours), COMMITS[:11])
    assert alert.before == COMMITS[7]
    there, here = group(told(ours, altered(theirs, series=series(machine="b200"))))
    assert (here.before, there.before) == (COMMITS[7], COMMITS[9])
    [unknown] = group(told(altered(ours, good="")))
    assert unknown.range == COMMITS[11][:8]


def test_alerts_of_anything_else_are_other_alerts():
    [one] = alerts(step(8, 11))
    [another] = alerts(step(8, 11, name=series(case="M=1")))
    others = {"topic": "faster", "machine": "b200", "family": "kda", "before": COMMITS[3], "commits": (COMMITS[8],)}
    prints = [replace(one, **{name: value}).fingerprint for name, value in others.items()]
    prints += [one.fingerprint, another.fingerprint, replace(one, members=()).fingerprint]
    assert len(set(prints)) == len(prints)


def test_an_alert_survives_json():
    [alert] = alerts(step(8, 11, by=0.03), replace(sides("toolchain", *TORCH), before=Facts(COMMITS[9])))
    assert from_json(to_json(alert)) == alert


@pytest.mark.parametrize(
    ("left", "told"),
    [
        (math.log(2.0), "slower by 100.0 % in"),
        (math.log(1.5), "slower by 100.0 %, of which +50.0 % is left, in"),
        (math.log(1.95), "slower by 100.0 % in"),
        (-0.01, "slower by 100.0 % in"),
    ],
)
def test_a_headline_says_what_is_left_of_a_change_that_is_partly_undone(left, told):
    [alert] = alerts(step(10))
    worst = replace(alert.members[0], size=math.log(2.0), left=left)
    assert told in headline(replace(alert, members=(worst,)))
