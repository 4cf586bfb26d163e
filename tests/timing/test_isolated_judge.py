"""A judge in another process: what runs under it can touch neither clock nor verdict."""

import contextlib
import sys
import textwrap

import pytest
import torch

from lockstep.processes.watched_worker import WorkerDied
from lockstep.record.model import CostEstimate, Estimate, Record
from lockstep.suite.discovery import load_suites
from lockstep.timing.checks.outputs import span
from lockstep.timing.device import CpuDevice
from lockstep.timing.isolation import trial
from lockstep.timing.isolation.arena import Arena, Layout, SharedBuffer, attach, decode, encode
from lockstep.timing.isolation.confirm_isolated import confirm
from lockstep.timing.isolation.contestant_process import template_for
from lockstep.timing.isolation.isolated_judge import Checkout, Judge
from lockstep.timing.isolation.isolated_time import SLACK_S, WAITED_S, Isolated, time_of_call, waiting
from lockstep.timing.isolation.trial import Refused
from lockstep.timing.rules.rule import Disqualified, Rule

SUITE = """
    from lockstep import Cost, Suite, grid


    class Judged(Suite):
        module = "judged_kernels"
        baseline = "honest"
        tolerance = 1e-5
        quick = cases = grid(M=[4], K=64)

        def draw(self, new, M, K):
            return {"x": new.normal(M, K, dtype="float32"), "weight": new.normal(K, K, dtype="float32"), "scale": 2.0}

        def buffers(self, new, M, K):
            return new.empty(M, K, dtype="float32")

        def reference(self, x, weight, scale):
            return scale * (x.double() @ weight.double())

        def cost(self, M, K):
            return Cost(2 * M * K * K, 4 * (2 * M * K + K * K))
"""

KERNELS = """
    import os
    import socket
    import sys
    import tempfile
    import threading
    import time
    from pathlib import Path

    import torch

    _seen = {}


    def honest(x, weight, scale, *, out):
        return torch.mm(scale * x, weight, out=out)


    def allocates(x, weight, scale):
        return scale * (x @ weight)


    def prepared(x, doubled, *, out):
        return torch.mm(x, doubled, out=out)


    def double(weight, scale):
        return {"doubled": weight * scale}


    def remembers(x, weight, scale, *, out):
        if x.data_ptr() not in _seen:
            _seen[x.data_ptr()] = honest(x, weight, scale, out=out).clone()
        return out.copy_(_seen[x.data_ptr()])


    def zeroes_its_input(x, weight, scale, *, out):
        honest(x, weight, scale, out=out)
        x.zero_()
        return out


    def writes_beside(x, weight, scale, *, out):
        honest(x, weight, scale, out=out)
        torch.as_strided(out, (1,), (1,), out.storage_offset() + out.numel()).fill_(1.0)
        return out


    def answers_early(x, weight, scale, *, out):
        threading.Timer(1.0, lambda: honest(x, weight, scale, out=out)).start()
        return out


    def forges(x, weight, scale, *, out):
        for fd in range(3, 20):
            try:
                os.write(fd, b'{"event": "done", "error": ""}\\n' * 100)
            except OSError:
                pass
        return out


    def builds(x, weight, scale, *, out):
        built = Path(tempfile.gettempdir(), "built")
        if not built.exists():
            built.touch()
            raise RuntimeError("not built yet")
        return honest(x, weight, scale, out=out)


    def waits(x, weight, scale, *, out):
        frame = sys._getframe()
        run = ("run", "lockstep.timing.isolation.contestant_process")
        while frame and (frame.f_code.co_name, frame.f_globals["__name__"]) != run:
            frame = frame.f_back
        if frame and frame.f_locals["count"] < max(frame.f_locals["self"]._replays):
            time.sleep(0.03)
        return honest(x, weight, scale, out=out)


    def raises(x):
        raise RuntimeError("no such thing")


    def exits(x):
        os._exit(0)


    def hangs(x):
        time.sleep(1000)


    def reaches_out(x, weight, scale, *, out):
        for function, *arguments in ((open, "/tmp/reached", "w"), (socket.socket,), (os.kill, os.getppid(), 0)):
            try:
                function(*arguments)
            except PermissionError:
                continue
            raise RuntimeError("it can reach out")
        return honest(x, weight, scale, out=out)


    def moves_files(x, weight, scale, *, out):
        # As Triton's cache does: write into a folder of its own, then rename into another.
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
            Path(one, "binary").write_text("code")
            os.replace(Path(one, "binary"), Path(other, "binary"))
        return honest(x, weight, scale, out=out)


    VARIANTS = {
        "moves_files": moves_files, "honest": honest, "allocates": allocates, "prepared": prepared,
        "remembers": remembers, "zeroes_its_input": zeroes_its_input, "writes_beside": writes_beside,
        "answers_early": answers_early,
        "forges": forges, "raises": raises, "exits": exits, "hangs": hangs, "reaches_out": reaches_out,
        "waits": waits, "builds": builds,
    }
    PREPARE = {"prepared": double}
"""


@pytest.fixture(scope="module")
def template():
    with contextlib.closing(template_for("lockstep.timing.isolation.contestant_process")) as running:
        yield running


@pytest.fixture
def judged(tmp_path, monkeypatch, template):
    monkeypatch.setattr(trial, "RUNS", 2)
    monkeypatch.setattr(trial, "SHORT_RUNS", 2)
    monkeypatch.setattr(trial, "MOST_SETS", {"cpu": 8, "cuda": 8})
    (tmp_path / "judged_suites").mkdir()
    (tmp_path / "judged_suites" / "__init__.py").touch()
    (tmp_path / "judged_suites" / "judged.py").write_text(textwrap.dedent(SUITE))
    (tmp_path / "judged_kernels.py").write_text(textwrap.dedent(KERNELS))
    suites = load_suites(tmp_path / "judged_suites")
    suite = suites["judged"]

    def run(variant, silence_s=60.0, device=None, ahead=()):
        under = Checkout(tmp_path, ("judged_kernels",), tmp_path / "judged_suites", silence_s)
        with contextlib.closing(Judge(device or CpuDevice(), template)) as judge:
            judge.compile(under, suite, suite.quick[0], ahead)
            return judge.judge(under, suite, suite.quick[0], variant)

    yield run
    assert "judged_kernels" not in sys.modules
    sys.path.remove(str(tmp_path))
    for name in [name for name in sys.modules if name.startswith("judged_suites")]:
        del sys.modules[name]


@pytest.mark.parametrize("variant", ["honest", "allocates", "prepared", "moves_files"])
def test_an_honest_variant_is_judged(judged, variant):
    seen = judged(variant)
    assert 0 <= seen.low <= seen.seconds <= seen.high


class Compiling(CpuDevice):
    """A CPU on which kernels are compiled ahead, as on a GPU."""

    kind = "cuda"


def test_what_a_variant_compiled_ahead_is_found_by_its_next_contestant_alone(judged):
    with pytest.raises(Refused, match="not built yet"):
        judged("builds", device=Compiling(), ahead=["honest"])
    # The judge raises Refused unless the second contestant finds it. The time may be 0: on a busy CPU an idle run may
    # take longer.
    seen = judged("builds", device=Compiling(), ahead=["builds", "raises", "exits", "honest"])
    assert 0 <= seen.low <= seen.seconds <= seen.high


IDLE = (2e-3, 1e-3, 3e-3)


def test_the_fastest_long_run_bounds_the_time_of_a_call():
    runs = {4: (5e-3, 6e-3), 16: (9e-3, 17e-3, 1.0)}
    seen = time_of_call(IDLE, runs, 1e-4)
    assert seen.low == pytest.approx((8e-3 - 1e-4) / 16)
    assert (seen.seconds, seen.high) == (pytest.approx(8e-3 / 16), pytest.approx(16e-3 / 16))


def test_waiting_in_short_runs_changes_nothing_of_the_bound():
    honest, waits = {4: (3e-3,), 16: (9e-3,)}, {4: (1.0,), 16: (9e-3,)}
    assert time_of_call(IDLE, honest, 1e-4) == time_of_call(IDLE, waits, 1e-4)


@pytest.mark.parametrize("longest", [1e-3 + 1.9e-4, 1e-3, 0.5e-3])
def test_runs_that_are_too_short_resolve_nothing(longest):
    assert time_of_call(IDLE, {4: (longest,), 16: (longest,)}, 1e-4).low == 0.0


def test_what_a_run_costs_beyond_its_calls_accuses_no_honest_variant():
    def judge(variant):
        # The largest cost that was seen on a CPU; see SLACK_S.
        beyond_s, call_s = 7.7e-4, {"base": 1e-5, "like": 1e-6}[variant]
        runs = {calls: (min(IDLE) + beyond_s + calls * call_s,) for calls in (32, 128)}
        return time_of_call(IDLE, runs, SLACK_S["cpu"])

    [done, _] = confirm([record("like", 10.0), record("base", 1.0)], judge)
    assert (done.state, done.rule) == ("ok", Rule.UNCONFIRMED_TIME)
    assert "too short to resolve" in done.note


@pytest.mark.parametrize(
    ("short", "whole", "refused"),
    [
        (2e-3, 5e-3, False),  # a quarter of the calls, a quarter of the time
        (4.7e-3, 5e-3, True),
        (9e-3, 5e-3, True),
        (4e-3, 5e-3, False),
        (1e-3 + 0.9 * WAITED_S, 1e-3 + 0.9 * WAITED_S, False),  # too little to tell
    ],
)
def test_time_that_does_not_grow_with_the_calls_is_seen(short, whole, refused):
    assert bool(waiting(IDLE, {4: (short, 1.0), 16: (whole, whole)})) == refused


@pytest.mark.parametrize(
    ("idle", "whole"),
    [
        ((5.96e-3, 0.45e-3, 0.57e-3, 2.07e-3), (0.74e-3, 0.8e-3)),  # an honest contestant on two busy CPUs
        ((0.4e-3, 0.5e-3), (0.74e-3, 5.1e-3, 16.7e-3)),  # the other work began after the idle runs
    ],
)
def test_delays_that_other_work_explains_accuse_no_one(idle, whole):
    assert not waiting(idle, {2: (4.08e-3, 8.75e-3), 8: whole})


@pytest.mark.parametrize(
    ("variant", "rule", "said"),
    [
        ("remembers", Rule.TIMED_RESULT, "seen from another process"),
        ("answers_early", Rule.TIMED_RESULT, "seen from another process"),
        ("forges", Rule.TIMED_RESULT, "seen from another process"),
        ("zeroes_its_input", Rule.WRITTEN_INPUT, "wrote into its input x"),
        ("writes_beside", Rule.WRITTEN_INPUT, "wrote outside of its buffers"),
        ("waits", Rule.CONSTANT_TIME, "waits: [234] calls take .* ms, 8 calls"),
    ],
)
def test_a_dishonest_one_is_refused_by_its_rule(judged, variant, rule, said):
    with pytest.raises(Disqualified, match=said) as refused:
        judged(variant)
    assert refused.value.rule == rule


def test_one_that_raises_or_ends_says_so(judged):
    with pytest.raises(Refused, match="RuntimeError: no such thing"):
        judged("raises")
    with pytest.raises(WorkerDied, match="exit status 0"):
        judged("exits")


def test_one_that_hangs_is_ended(judged):
    with pytest.raises(WorkerDied, match="hung for 10 s") as died:
        judged("hangs", 10.0)
    assert died.value.rule == Rule.HUNG


def test_it_can_neither_write_nor_connect_nor_kill(judged):
    pytest.importorskip("landlock")
    pytest.importorskip("pyseccomp")
    assert judged("reaches_out").notes == ()


def test_both_sides_of_an_arena_see_the_same_tensors():
    strided = torch.arange(12.0).view(3, 4).t()
    value = {"a": strided, "b": (torch.zeros(0), torch.ones(3, dtype=torch.int8)), "n": 3, "none": None}
    layout = Layout()
    text = encode(value, layout.place)
    shared = SharedBuffer(layout.end, torch.device("cpu"))
    arena = Arena(layout, shared)
    mine, theirs = decode(text, shared.bytes), decode(text, attach(shared.address))
    span(mine["a"]).copy_(span(strided))
    assert torch.equal(theirs["a"], strided)
    assert (theirs["a"].stride(), theirs["n"], theirs["none"], len(theirs["b"])) == (strided.stride(), 3, None, 2)
    assert arena.intact()
    theirs["b"][1].as_strided((4,), (1,)).add_(1)
    assert not arena.intact()
    shared.close()


def test_what_cannot_be_handed_over_is_refused():
    with pytest.raises(NotImplementedError, match="a set among the inputs"):
        encode({"a": {1}}, Layout().place)


def record(variant, speedup, **known):
    ratio = Estimate(speedup, 0.99 * speedup, 1.01 * speedup)
    return Record(
        "s", variant, "M=1", "cold", "ok", "v", baseline="base", latency=Estimate(1.0, 1.0, 1.0), speedup=ratio, **known
    )


def test_a_speedup_that_only_the_slow_runs_of_the_baseline_allow_gives_way_to_that_of_the_runs():
    seen = {"base": Isolated(4e-6, 2e-6, 9e-6), "like": Isolated(2e-6, 1.9e-6, 2.1e-6)}
    [done, _] = confirm([record("like", 4.0), record("base", 1.0)], seen.__getitem__)
    assert (done.state, done.rule, done.speedup_samples) == ("ok", Rule.UNCONFIRMED_TIME, ())
    assert done.speedup == Estimate(pytest.approx(2.0), pytest.approx(2 / 2.1), pytest.approx(9 / 1.9))
    assert done.note.endswith("speedup is that of the judge's runs, too imprecise to confirm 4")


def test_a_baseline_that_the_runs_do_not_resolve_confirms_nothing():
    seen = {"base": Isolated(9e-6, 0.0, 20e-6), "like": Isolated(2e-6, 1.9e-6, 2.1e-6)}
    [done, _] = confirm([record("like", 4.0), record("base", 1.0)], seen.__getitem__)
    assert (done.state, done.rule, done.speedup) == ("ok", Rule.UNCONFIRMED_TIME, None)
    assert done.note.endswith("too short to resolve 9 µs a call")


def test_costs_go_as_the_speedup_goes():
    some = {name: CostEstimate(1.0, 0.9, 1.1, 5) for name in ("behind", "behind_speedup")}
    seen = {"base": Isolated(4e-6, 2e-6, 9e-6), "like": Isolated(2e-6, 1.9e-6, 2.1e-6)}
    seen |= {"unlike": Isolated(9e-6, 8.9e-6, 9.1e-6)}
    records = [record(name, ratio, costs=some) for name, ratio in (("like", 4.0), ("unlike", 4.0), ("base", 1.0))]
    done = confirm(records, seen.__getitem__)
    assert [list(one.costs) for one in done] == [["behind"], [], ["behind", "behind_speedup"]]


def test_a_speedup_that_the_judge_does_not_see_is_refused():
    seen = {"base": Isolated(4e-6, 3.9e-6, 4.1e-6), "like": Isolated(2e-6, 1.9e-6, 2.1e-6, ("so",))}
    seen |= {"unlike": Isolated(4e-6, 3.9e-6, 4.1e-6), "vague": Isolated(4e-6, 0.0, 9e-6)}
    records = [record("like", 2.0), record("unlike", 2.0), record("vague", 2.0), record("base", 1.0)]
    done = confirm(records, seen.__getitem__)
    assert [(one.variant, one.state, one.rule) for one in done] == [
        ("like", "ok", ""),
        ("unlike", "failed", Rule.UNCONFIRMED_TIME),
        ("vague", "ok", Rule.UNCONFIRMED_TIME),
        ("base", "ok", ""),
    ]
    assert done[0].note == (
        "in isolation 2 µs a call (1.9 … 2.1); so; 2 times the baseline's speed in isolation (1.857 … 2.158)"
    )
    assert done[2].note.endswith("the judge's runs are too short to resolve 4 µs a call")
    assert [one.speedup is None for one in done] == [False, True, True, False]
    assert "not confirmed" not in done[0].note + done[3].note
    assert "at most 1.05" in done[1].reason


@pytest.mark.parametrize(
    ("error", "state", "told"),
    [
        (NotImplementedError("why"), "ok", "not judged in isolation: why"),
        (Refused("why"), "failed", "Refused: why"),
        (Disqualified(Rule.TIMED_RESULT, "why"), "failed", "timed-result: why"),
        (WorkerDied("", "hung for 9 s", rule="hung"), "failed", "in isolation: hung for 9 s"),
    ],
)
def test_what_the_judge_says_stands_in_the_record(error, state, told):
    def refuse(variant):
        raise error

    [done] = confirm([record("base", 1.0)], refuse)
    assert (done.state, done.note or done.reason) == (state, told)
