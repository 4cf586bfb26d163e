"""The table of a suite's rivals: what a user would install instead, measured beside the shown variant in one run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from lockstep.record.model import Estimate, Provenance, Record


def rivals_table(
    measured: Sequence[tuple[str, Provenance, Mapping[str, Record]]],
    baseline: str,
    variant: str,
    texts: Mapping[str, str],
) -> Iterator[str]:
    """Yield the lines of a Markdown table of rivals, and an empty line; nothing if no case has a rival.

    Args:
        measured: for each case its name, its provenance, and its records by variant, all from one measurement.
        baseline: the variant that ratios refer to.
        variant: the variant to compare with each rival.
        texts: what each rival is, by variant, with the names of versions in braces.
    """
    known = [name for name in texts if any(_ran(records.get(name)) for _, _, records in measured)]
    if not known:
        return
    newest = max((provenance for _, provenance, _ in measured), key=lambda one: one.recorded_at)
    what = "; ".join(f"`{name}`: {texts[name].format_map(newest.host)}" for name in known)
    yield f"Rivals ({newest.commit[:8]}, {newest.recorded_at[:10]}, {newest.host.get('gpu')}): {what}. The last columns"
    yield f"are the time of the fastest rival over that of `{variant}`; bold where the rival wins beyond the interval."
    yield ""
    columns = " | ".join(f"{name} µs" for name in (baseline, *known, variant))
    yield f"| case | {columns} | in a chain | behind a kernel |"
    yield f"|---|{'---:|' * (len(known) + 2)}---|---|"
    for case, _, records in measured:
        rivals = {name: records[name] for name in known if _ran(records.get(name))}
        if not rivals:
            continue
        cells = [case, *(micro(records.get(name)) for name in (baseline, *known, variant))]
        ours = records[variant]
        chain = {name: over(ours.speedup, record.speedup) for name, record in rivals.items()}
        # Without the baseline, which a case may refuse, there is only the quotient of the times.
        cells.append(_least(chain) if ours.speedup else _quotient(ours, rivals))
        behind = {name: record.costs.get("behind_speedup") for name, record in rivals.items()}
        cells.append(_least({name: over(ours.costs.get("behind_speedup"), one) for name, one in behind.items()}))
        yield f"| {' | '.join(cells)} |"
    yield ""


def _ran(record: Record | None) -> bool:
    return record is not None and record.state == "ok"


def _quotient(ours: Record, rivals: Mapping[str, Record]) -> str:
    times = {name: record.latency.value for name, record in rivals.items() if record.latency}
    if not times or ours.latency is None:
        return "—"
    name = min(times, key=times.__getitem__)
    return f"{times[name] / ours.latency.value:.3f}×, {name}"


def _least(ratios: Mapping[str, Estimate | None]) -> str:
    """Return the least ratio with its interval and its rival, in bold if the whole interval is below 1."""
    known = {name: ratio for name, ratio in ratios.items() if ratio is not None}
    if not known:
        return "—"
    name = min(known, key=lambda one: known[one].value)
    ratio = known[name]
    text = f"{ratio.value:.3f}× ({ratio.low:.3f}–{ratio.high:.3f})"
    return f"**{text}, {name}**" if ratio.high < 1 else f"{text}, {name}"


def over(numerator: Estimate | None, denominator: Estimate | None) -> Estimate | None:
    """Return the ratio of two ratios to the same baseline, with its interval; ``None`` if either is ``None``."""
    if numerator is None or denominator is None:
        return None
    value = numerator.value / denominator.value
    half = math.hypot(*(math.log(ratio.high / ratio.low) / 2 for ratio in (numerator, denominator)))
    return Estimate(value, value * math.exp(-half), value * math.exp(half))


def micro(record: Record | None) -> str:
    """Return a record's time in microseconds."""
    return number(record.latency.value) if record is not None and record.latency is not None else "n/a"


def number(seconds: float | None) -> str:
    """Return seconds as microseconds; "" for ``None``."""
    if seconds is None:
        return ""
    micros = seconds * 1e6
    return f"{micros:.2f}" if micros < 100 else f"{micros:.0f}"
