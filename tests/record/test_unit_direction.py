"""Texts of units from real results, and the better direction that each says; docs/evidence/detection.md has them."""

import re
from pathlib import Path

import pytest

from lockstep.record.unit_direction import better_of

LOWER = (
    "seconds, s, ms, µs, ns/iter, ns/op, ms/frame, ms/world-step, ms/step, s/it, runtime (s), milliseconds, time [ms], "
    "msec/call, bytes, MiB, GB, B/op, Megabytes, cycles/byte, mJ, relative error, loss ↓, score (lower is better)"
)
HIGHER = (
    "GFLOPS, TFLOPS, GFLOP/s, Gflops/s, gflopss, gpointss, GB/s, GB/sec, MiB/s, Mbit/s, tokens/sec, images/second, "
    "samples/s/gpu, world-steps/s, iter/sec, requests per second, steps / hour, ns/day, 1/s, s^-1, fps, Hz, IOPS, "
    "MLUPS, throughput (MB/s), bandwidth, accuracy (%), req/s (higher is better)"
)
NEITHER = (
    "unit, x, %, Percent, m, rad, iterations, simulation-steps/frame, allocs/op, GFLOP, flop/cycle, points, W, s/s"
)

TABLE = {"lower": LOWER, "higher": HIGHER, "neither": NEITHER}
CASES = [(unit, better) for better, units in TABLE.items() for unit in units.split(", ")]


@pytest.mark.parametrize(("unit", "better"), CASES)
def test_a_unit_says_its_direction(unit, better):
    assert better_of(unit) == better
    assert better_of(unit.upper()) == better


def test_the_documentation_has_the_same_table():
    text = (Path(__file__).parents[2] / "docs" / "evidence" / "detection.md").read_text()
    for better, units in TABLE.items():
        [row] = re.findall(rf"^\| {better} \| (.*) \|$", text, re.MULTILINE)
        assert row.replace("`", "").split(", ") == units.split(", ")


def test_an_empty_unit_says_nothing():
    assert better_of("") == "neither"
