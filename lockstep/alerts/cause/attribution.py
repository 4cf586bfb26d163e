"""Decide why a series changed: its own commit, the toolchain, the machine, the protocol, or an unknown cause.

The questions are asked in this order, and the first that applies gives the cause:

1. A number that was measured differently is not a change of the kernel, so the protocol comes first.
2. If the series moved to another GPU, or the untouched controls moved, the machine is the cause. A commit that both
   GPUs measured tells how much the move explains.
3. If the toolchain changed, the toolchain is the cause rather than a commit, because it affects every kernel.
4. If a time without a ratio follows the clock, the machine is the cause. If the GPU got the same work, or the machine
   code did not change, the change is noise: the same code cannot have become slower.
5. Otherwise a commit is the cause. If git does not know the commits between the two measured commits, no commit is
   named. If package versions are not recorded, a new version may also be the cause, so the cause is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from lockstep.alerts.cause.change_facts import Move, Step
from lockstep.alerts.cause.code_evidence import code_evidence, same_code
from lockstep.alerts.cause.commit_ranges import Unknown
from lockstep.alerts.cause.found_change import MEASURED_ON_BOTH, MODELS_DIFFER, Cause, Evidence, FoundChange
from lockstep.record.quantity import OF_GPU, PAIRED

#: Why no commit can be named, by ``FoundChange.unknown``.
_UNKNOWN: Mapping[Unknown, str] = {
    "no repository": "no git repository is at hand, and dates give the order",
    "shallow": "the git clone is shallow",
    "unplaced": "the shallow git clone does not connect the two measured commits, and dates give their order",
    "missing": "the git repository lacks one of the two measured commits, and dates give their order",
    "branches": "the later measured commit does not descend from the earlier one",
}

#: The move of another time explains a step if it has the same direction and at least this share of the step's size.
_PART = 0.5

#: Largest share of a step that the clock may leave unexplained: a kernel that draws more power lowers it as well.
_LEFT = 0.25

#: A move must exceed this many of its standard deviations to explain a step.
_SURE = 3.0

#: Quantities that the work of the GPU decides. An error does not change with it either: its inputs are drawn anew.
_OF_WORK = OF_GPU | {"error"}

_VERSIONS = "versions of packages"

#: Relative difference up to which a ratio differs between GPUs of one model, measured on four H200.
GPUS_DIFFER = 0.03

#: Relative difference between two runs on one GPU (docs/evidence/measuring.md).
_REPEATED = 0.003


def explained(step: Step) -> FoundChange:
    """Return the change of a step with its most likely cause, judged by the data stored with the points beside it."""
    cause = next(cause for question in _QUESTIONS if (cause := question(step)))
    return replace(step.change, cause=cause)


def _protocol(step: Step) -> Cause | None:
    before, after = step.before, step.after
    changed = list(_changed(before.protocol, after.protocol))
    if before.version != after.version:
        changed.append(Evidence("benchmark version", before.version, after.version))
    return Cause("protocol", f"it is measured differently: {_listed(changed)}", tuple(changed)) if changed else None


def _gpu_moved(step: Step) -> Cause | None:
    move = step.gpu_move
    if move is None:
        return None
    moved = Evidence("GPU", move.before, move.after)
    sentence = f"the series moved to another GPU: {moved.text}"
    if math.isnan(move.log):
        if step.change.share > GPUS_DIFFER:
            return Cause("machine", f"{sentence}; no commit was measured on both", (moved,))
        explained = Evidence(MODELS_DIFFER, "", f"up to {GPUS_DIFFER:.0%}")
    elif step.change.low - _REPEATED <= move.log <= step.change.high + _REPEATED:
        explained = Evidence(MEASURED_ON_BOTH, "", f"{math.expm1(move.log):+.1%}")
    else:
        return None
    return Cause("machine", f"{sentence}; {explained.text}", (moved, explained))


def _machine(step: Step) -> Cause | None:
    hardware = tuple(_changed(step.before.machine, step.after.machine))
    moved = tuple(_moved_alike(step))
    if moved and not list(_changed(step.before.toolchain, step.after.toolchain)):
        machine_note = f", and the machine changed: {_listed(hardware)}" if hardware else ""
        return Cause("machine", f"{_listed(moved)}{machine_note}", (*moved, *hardware))
    if hardware and not step.controls:
        return Cause("machine", f"the machine changed: {_listed(hardware)}", hardware)
    return None


def _toolchain(step: Step) -> Cause | None:
    changed = tuple(_changed(step.before.toolchain, step.after.toolchain))
    if not changed:
        return None
    moved = tuple(_moved_alike(step))
    code = code_evidence(step.before.code, step.after.code)
    control_note = f"; {_listed(moved)}" if moved else ""
    return Cause("toolchain", f"the toolchain changed: {_listed(changed)}{control_note}", (*changed, *moved, *code))


def _clock(step: Step) -> Cause | None:
    """Blame the clock for a time that has no ratio, unless the machine code changed. Ratios do not follow the clock."""
    before, after = step.before, step.after
    if step.change.series.quantity not in PAIRED or not (before.sm_mhz and after.sm_mhz):
        return None
    rest = abs(step.change.size - math.log(before.sm_mhz / after.sm_mhz))
    if code_evidence(before.code, after.code) or rest > _LEFT * abs(step.change.size):
        return None
    clock = Evidence("SM clock", f"{before.sm_mhz:.0f} MHz", f"{after.sm_mhz:.0f} MHz")
    return Cause("machine", f"the GPU's clock moved: {clock.text}", (clock,))


def _same_work(step: Step) -> Cause | None:
    if not step.before.work or step.before.work != step.after.work or step.change.series.quantity not in _OF_WORK:
        return None
    same = Evidence("work of the GPU", "unchanged", "unchanged")
    return Cause("noise", "the GPU got the same work before and after", (same,))


def _unchanged(step: Step) -> Cause | None:
    if step.before.code is None or step.after.code is None or not same_code(step.before.code, step.after.code):
        return None
    fingerprint = Evidence("machine code", "unchanged", "unchanged")
    return Cause("noise", "the machine code and how it is launched did not change", (fingerprint,))


def _not_known(step: Step) -> Cause | None:
    if not step.change.unknown:
        return None
    code = code_evidence(step.before.code, step.after.code)
    code_note = f"; the machine code changed: {_listed(code)}" if code else ""
    return Cause("unknown range", f"no commit can be named, as {_UNKNOWN[step.change.unknown]}{code_note}", code)


def _own(step: Step) -> Cause | None:
    # A commit of the range must touch the packages under test, or it is not known which do.
    if not step.change.between or (step.touched is not None and not step.touched):
        return None
    code = code_evidence(step.before.code, step.after.code)
    evidence = (*map(_commit, step.touched or step.change.between), *code)
    if code:
        return Cause("own commit", f"a commit changed it: {_listed(code)}", evidence)
    missing = list(_not_recorded(step))
    if not missing:
        return Cause("own commit", "nothing but the commits in the range differs", evidence)
    listed = f"not recorded: {', '.join(missing)}"
    if _VERSIONS in missing:
        sentence = f"it may be a commit in the range, or something that is not recorded; {listed}"
        return Cause("unknown cause", sentence, evidence)
    return Cause("own commit", f"nothing that is recorded differs but the commits in the range ({listed})", evidence)


def _not_recorded(step: Step) -> Iterator[str]:
    if step.change.counted:
        return  # neither clocks nor controls affect an exact quantity
    before, after = step.before, step.after
    # Every asv result states its Python and environment. Many state nothing else, or name packages without versions.
    stated = [{name for name, version in side.toolchain.items() if version} for side in (before, after)]
    if not set.intersection(*stated) - {"python", "environment"}:
        yield _VERSIONS
    if not before.machine.keys() & after.machine.keys():
        yield "the machine's hardware"
    if not before.protocol.keys() & after.protocol.keys():
        yield "clocks"
    if not step.controls:
        yield "controls"
    if before.code is None or after.code is None:
        yield "machine code"


def _unexplained(step: Step) -> Cause:
    if not step.change.between:
        return Cause("unexplained", "the same commit was measured twice, and nothing that is stored differs")
    return Cause(
        "unexplained",
        "no commit in the range touches the packages under test, and neither toolchain, machine nor settings are "
        "known to have changed",
        tuple(map(_commit, step.change.between)),
    )


_QUESTIONS: tuple[Callable[[Step], Cause | None], ...] = (
    _protocol,
    _gpu_moved,
    _machine,
    _toolchain,
    _clock,
    _same_work,
    _unchanged,
    _not_known,
    _own,
    _unexplained,
)


@lru_cache(maxsize=16_384)
def _commit(commit: str) -> Evidence:
    """Return the evidence that names a commit. Equal evidence is one object, because thousands of changes hold it."""
    return Evidence("commit", "", commit)


def _moved_alike(step: Step) -> Iterator[Evidence]:
    """Yield the controls and the baseline's time that moved together with the step, although no commit changes them."""
    own_move, baseline, size = step.own, step.baseline, step.change.size
    if step.change.series.quantity in PAIRED.values():
        # A speedup also falls when its baseline becomes faster. Then the kernel itself did not change.
        if baseline and own_move and explains(-baseline.log, size) and not explains(own_move.log, size):
            yield Evidence("baseline's time", "", _percent(baseline))
        return
    for name, move in step.controls.items():
        if abs(move.log) > _SURE * move.noise and explains(move.log, size):
            yield Evidence(f"control {name}", "", _percent(move))
    if baseline and abs(baseline.log) > _SURE * baseline.noise and explains(baseline.log, size):
        yield Evidence("baseline's time", "", _percent(baseline))


def explains(log: float, size: float) -> bool:
    """Return whether a move of ``log`` explains a change of ``size``: same direction, at least half as large."""
    return math.copysign(1, log) == math.copysign(1, size) and abs(log) >= _PART * abs(size)


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Evidence]:
    """Yield the facts that differ before and after a change. A fact that is unknown before or after does not count."""
    # There are thousands of steps, and most have equal facts. To compare the whole mappings first is fast.
    for name in sorted(before.keys() & after.keys()) if before != after else ():
        if before[name] != after[name] and before[name] and after[name]:
            yield Evidence(name, before[name], after[name])


def _listed(evidence: Iterable[Evidence]) -> str:
    return ", ".join(fact.text for fact in evidence if fact.changed)


def _percent(move: Move) -> str:
    return f"{math.expm1(move.log):+.1%}"
