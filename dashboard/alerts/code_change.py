"""What changed in the machine code between two points, where both records hold it.

A record's ``code`` comes from a file, so nothing of its form is taken for granted: what is missing or of
another type is unknown, and unknown is never "the same".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dashboard.alerts.evidence import Evidence

#: A kernel's figures that are told, in this order, and the unit behind them.
_FIGURES = {"registers": "", "spills": " B", "shared": " B"}


def same_code(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether both launch the same kernels, of the same machine code, in the same way; unknown is no."""
    ours, theirs = _fingerprints(before), _fingerprints(after)
    return ours is not None and ours == theirs


def code_evidence(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> tuple[Evidence, ...]:
    """Registers, spills, shared memory and instruction mix of each kernel that changed; kernels that came and went."""
    if not before or not after:
        return ()
    old, new = _kernels(before), _kernels(after)
    found = [Evidence(f"kernel {name}", "", "is new") for name in new.keys() - old.keys()]
    found += [Evidence(f"kernel {name}", "", "is gone") for name in old.keys() - new.keys()]
    for name in sorted(old.keys() & new.keys()):
        found += _kernel(name, old[name], new[name])
    if before.get("host") and after.get("host") and before["host"] != after["host"]:
        found.append(Evidence("how the kernels are launched", "", "changed"))
    return tuple(sorted(found, key=lambda one: one.what))


def _kernel(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Evidence]:
    figures = []
    for figure, unit in _FIGURES.items():
        if figure in old and figure in new and old[figure] != new[figure]:
            figures.append(Evidence(f"{name} {figure}", f"{old[figure]}{unit}", f"{new[figure]}{unit}"))
    mixes = [one.get("mix") for one in (old, new)]
    if all(isinstance(mix, Mapping) for mix in mixes):
        figures += _mix(name, *mixes)  # type: ignore[arg-type]
    if not figures and old.get("fingerprint") != new.get("fingerprint"):
        figures.append(Evidence(f"{name} instructions", str(old.get("fingerprint")), str(new.get("fingerprint"))))
    yield from figures


def _mix(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Evidence]:
    for instruction in sorted(old.keys() | new.keys()):
        counts = old.get(instruction, 0), new.get(instruction, 0)
        if counts[0] != counts[1]:
            yield Evidence(f"{name} {instruction}", str(counts[0]), str(counts[1]))


def _kernels(code: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    kernels = code.get("kernels")
    if not isinstance(kernels, Mapping):
        return {}
    return {str(name): facts for name, facts in kernels.items() if isinstance(facts, Mapping)}


def _fingerprints(code: Mapping[str, Any]) -> tuple[str, dict[str, str]] | None:
    """Of the host side and of each kernel; ``None`` if one is not known."""
    kernels, host = code.get("kernels"), code.get("host")
    if not isinstance(kernels, Mapping) or not all(isinstance(facts, Mapping) for facts in kernels.values()):
        return None
    prints = {str(name): facts.get("fingerprint") for name, facts in kernels.items()}
    if not isinstance(host, str) or not host or not all(isinstance(one, str) and one for one in prints.values()):
        return None
    return host, {name: str(one) for name, one in prints.items()}
