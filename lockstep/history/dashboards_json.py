"""Write the numbers of a commit for the dashboards of others: github-action-benchmark and PyTorch's HUD."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lockstep.history.model import Benchmark, Point
from lockstep.history.snapshot import Results
from lockstep.record.quantity import Better


def for_github_action_benchmark(results: Results, points: Sequence[Point], better: Better) -> list[dict[str, Any]]:
    """Return the JSON that github-action-benchmark reads with the tool ``customSmallerIsBetter`` or its opposite.

    Source: "Use custom benchmark solutions" in the README of benchmark-action/github-action-benchmark.

    Args:
        better: "lower" or "higher"; only quantities with this better direction are returned, because a file has one.
    """
    return [
        {"name": _name(point, benchmark), "unit": benchmark.unit, "value": value} | _range(point)
        for point, benchmark, value in _numbers(results, points)
        if benchmark.better == better
    ]


def for_pytorch_hud(results: Results, points: Sequence[Point]) -> list[dict[str, Any]]:
    """Return the metrics that PyTorch's HUD takes, one for each number.

    Source: "Benchmark results format" on the page "PyTorch OSS benchmark infra" of pytorch's wiki.
    """
    return [
        {
            "benchmark": {"name": benchmark.suite, "extra_info": {"unit": benchmark.unit}},
            "model": {"name": point.series.text or benchmark.name, "type": "kernel"},
            "metric": {"name": benchmark.quantity, "benchmark_values": [value]},
            "runners": [{"name": point.series.machine} | _gpu(point.run.host)],
            "dependencies": {name: {"version": version} for name, version in point.run.toolchain.items()},
        }
        for point, benchmark, value in _numbers(results, points)
    ]


def _numbers(results: Results, points: Sequence[Point]) -> Iterator[tuple[Point, Benchmark, float]]:
    for point in points:
        if point.value is not None and math.isfinite(point.value):
            yield point, results.benchmarks[point.series.benchmark], point.value


def _name(point: Point, benchmark: Benchmark) -> str:
    return " ".join(filter(None, (benchmark.name, point.series.text)))


def _range(point: Point) -> dict[str, str]:
    """Return the interval as a text, if it is known."""
    known = point.low is not None and point.high is not None
    return {"range": f"{point.low:.6g} … {point.high:.6g}"} if known else {}


def _gpu(host: Mapping[str, str]) -> dict[str, str]:
    return {"type": host["gpu"]} if host.get("gpu") else {}
