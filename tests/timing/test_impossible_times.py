"""Times that no machine can reach are refused, and honest ones of the recorded history are not."""

import re

import pytest
from made_suites import changed_suite
from test_verify_replays import SUITE, Ticking, measure, own

from lockstep import Cost
from lockstep.record.model import Estimate
from lockstep.timing.impossible_times import CPU_FLOPS_A_CORE, FLOPS_A_CYCLE, Limits
from lockstep.timing.rules.rule import Disqualified

H200 = {"flops_a_cycle": 4096.0 * 132, "l2_bytes_a_cycle": 64.0 * 132}
COPY = 4.2139e12


def refuse(seconds, flops=0.0, moved=0.0, l2="cold", mhz=1800.0, narrowest=2, limits=H200):
    latency = Estimate(seconds, seconds * 0.99, seconds * 1.01)
    Limits(Cost(flops, moved), l2, narrowest, COPY, **limits).refuse_impossible("v", latency, mhz)


#: The records of an H200 nearest to the limits: seconds, operations, bytes, cache state, MHz.
NEAREST = [
    (2 * 8192**3 / 699.8e12, 2.0 * 8192**3, 6.0 * 8192**2, "cold", 1359.2),
    (52.3e6 / 3.75e12, 52.3e6, 52.3e6, "cold", 1970.7),
    (16.8e6 / 4.66e12, 16.8e6, 16.8e6, "warm", 1968.0),
]


@pytest.mark.parametrize(("seconds", "flops", "moved", "l2", "mhz"), NEAREST)
def test_the_fastest_honest_kernels_are_accepted(seconds, flops, moved, l2, mhz):
    refuse(seconds, flops, moved, l2, mhz)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"flops": 1e12}, "operations at the peak of 973 TFLOP/s at 1800 MHz"),
        ({"moved": 6e9}, "bytes at 1.25 times this run's fastest copy (4.21 TB/s)"),
        ({"moved": 20e9, "l2": "warm"}, "bytes out of the L2"),
        ({"flops": 1e15, "mhz": None, "limits": {"flops": 1e15}}, "operations at the peak of any such processor"),
    ],
)
def test_what_no_machine_can_do_is_refused_with_both_numbers(given, reason):
    with pytest.raises(Disqualified, match=re.escape(reason)) as refused:
        refuse(9e-4, **given)
    assert refused.value.rule == "impossible-time"
    assert "v takes 0.0009 s a call" in str(refused.value)


def test_narrow_inputs_may_be_multiplied_faster_and_an_unknown_gpu_refuses_little():
    refuse(9e-4, flops=2e12, narrowest=1)
    refuse(9e-4, flops=1e13, limits={})
    refuse(9e-4, moved=6e9, l2="warm", mhz=None)


@pytest.mark.parametrize(
    ("capability", "tflops", "sms", "mhz"),
    [
        ((8, 0), 312, 108, 1410),
        ((8, 6), 125, 72, 1695),
        ((8, 9), 362, 142, 2490),
        ((9, 0), 989, 132, 1830),
        ((10, 0), 2250, 148, 1850),
    ],
)
def test_the_table_is_the_datasheets(capability, tflops, sms, mhz):
    assert FLOPS_A_CYCLE[capability] * sms * mhz * 1e6 == pytest.approx(tflops * 1e12, rel=0.02)


def test_an_impossible_time_has_no_record_and_an_impossible_baseline_no_ratio():
    work = 1e-3 * CPU_FLOPS_A_CORE * 1e6
    records = measure({"own": own}, suite=changed_suite(SUITE, cost=lambda M: Cost(work, 1.0)), device=Ticking())
    assert {(record.state, record.rule) for record in records.values()} == {("failed", "impossible-time")}
