"""The table of a suite's rivals: what a user would install instead, measured beside the shown variant in one run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lockstep.record.model import Estimate, Provenance, Record
from tools.scoreboard.cells import SHOWN, line, micro, over, ratio_text


def rivals_table(
    measured: Sequence[tuple[str, Provenance, Mapping[str, Record]]],
    baseline: str,
    texts: Mapping[str, str],
) -> Iterator[str]:
    """Yield the lines of a Markdown table of rivals, and an empty line; nothing if no case has a rival.

    Args:
        measured: for each case its name, its provenance, and its records by variant, all from one measurement.
        baseline: the variant that ratios refer to.
        texts: what each rival is, by variant, with the names of versions in braces.
    """
    known = [name for name in texts if any(_ran(records.get(name)) for _, _, records in measured)]
    if not known:
        return
    newest = max((provenance for _, provenance, _ in measured), key=lambda one: one.recorded_at)
    what = "; ".join(f"`{name}`: {texts[name].format_map(newest.host)}" for name in known)
    yield f"Rivals ({newest.commit[:8]}, {newest.recorded_at[:10]}, {newest.host.get('gpu')}): {what}. The last columns"
    yield f"are the time of the fastest rival over that of `{SHOWN}`; bold where the rival wins beyond the interval."
    yield ""
    columns = " | ".join(f"{name} µs" for name in (baseline, *known, SHOWN))
    yield f"| case | {columns} | in a chain | behind a kernel |"
    yield f"|---|{'---:|' * (len(known) + 2)}---|---|"
    for case, _, records in measured:
        rivals = {name: records[name] for name in known if _ran(records.get(name))}
        if not rivals:
            continue
        cells = [case, *(micro(records.get(name)) for name in (baseline, *known, SHOWN))]
        ours = records[SHOWN]
        chain = {name: over(ours.speedup, record.speedup) for name, record in rivals.items()}
        # Without the baseline, which a case may refuse, there is only the quotient of the times.
        cells.append(_least(chain) if ours.speedup else _quotient(ours, rivals))
        behind = {name: record.costs.get("behind_speedup") for name, record in rivals.items()}
        cells.append(_least({name: over(ours.costs.get("behind_speedup"), one) for name, one in behind.items()}))
        yield line(*cells)
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
    text = f"{ratio_text(ratio)}, {name}"
    return f"**{text}**" if ratio.high < 1 else text
