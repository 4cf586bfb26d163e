"""The roofline chart: the rate of each case, below the rates of a copy and a matmul in the same run.

Williams, Waterman and Patterson 2009, "Roofline: an insightful visual performance model for multicore architectures":
attainable FLOP/s = min(peak FLOP/s, intensity · peak B/s). The peaks are the measured rates of two controls, a copy
and a matmul, not the peaks of a datasheet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from dashboard.charts.cost_against_latency import dots, log_log
from dashboard.charts.theme import Scheme, Style, guide
from lockstep.compare.number_format import significant
from lockstep.compare.row import Row
from lockstep.history.model import Control


def roofline(
    rows: Sequence[Row], controls: Mapping[str, Control], style_of: Mapping[str, Style], scheme: Scheme
) -> dict[str, Any] | None:
    """Return a log-log chart of TFLOP/s against FLOP per byte; ``None`` if costs or the controls' rates are unknown.

    Args:
        rows: the rows of one machine at one commit.
        controls: the controls of the run at that commit, by name: "copy" and "matmul".
    """
    known = [row for row in rows if row.variant in style_of and row.flops > 0 and row.bytes > 0 and row.latency]
    copy, matmul = (controls[name].rate if name in controls else None for name in ("copy", "matmul"))
    if not known or not copy or not matmul:
        return None
    intensities = [row.flops / row.bytes for row in known]
    ridge = matmul / copy
    low, high = min(*intensities, ridge) / 1.5, max(*intensities, ridge) * 1.5
    roof = low * copy / 1e12, matmul / 1e12, matmul / 1e12
    data = [guide((low, ridge, high), roof, scheme)]
    data += dots([_point(row, row.latency.value) for row in known if row.latency], style_of, scheme)
    return log_log(data, (low, high), ("FLOP per byte", "TFLOP/s"), scheme, 1.5)


def _point(row: Row, seconds: float) -> tuple[Row, float, float, str]:
    intensity, rate = row.flops / row.bytes, row.flops / seconds / 1e12
    text = f"<b>{escape(row.variant)}</b> {escape(row.l2)}<br>{escape(row.case)}<br>"
    text += f"<b>{significant(rate, 4)} TFLOP/s</b> at {significant(intensity, 3)} FLOP/B"
    return row, intensity, rate, text + (f"<br>bound by {row.bound}" if row.bound else "")
