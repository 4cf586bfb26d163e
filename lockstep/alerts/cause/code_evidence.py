"""Compare the machine code of two points.

The functions take ``Facts.code``, which is read from a result file and therefore not trusted
(``lockstep.record.model.Code`` describes its form). A value that is missing or has another type counts as unknown.
Unknown values never count as equal.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from lockstep.alerts.cause.found_change import Evidence

#: Numbers of a kernel with changed code that are facts for people, in this order, with their units.
_FIGURES = {"registers": "", "spills": " B", "stages": "", "warps": "", "shared": " B", "instructions": ""}


def code_of(text: str) -> dict[str, Any] | None:
    """Return the machine code that the text of a point describes; ``None`` if the text is empty or damaged."""
    try:
        code = json.loads(text)
    except ValueError:
        return None
    return code if isinstance(code, dict) else None


def same_code(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether two points launch the same machine code in the same order and in the same way.

    ``False`` if a fingerprint is unknown.
    """
    old, new = _fingerprints(before), _fingerprints(after)
    return old is not None and old == new


def same_kernels(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether two points launch the same two or more kernels in the same order.

    The code that launches the kernels may differ. ``False`` if a fingerprint is unknown.
    """
    old, new = (_fingerprints({**code, "host": "any"}) for code in (before, after))
    return old is not None and len(old) > 1 and old == new


def code_evidence(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> tuple[Evidence, ...]:
    """Return the facts of the kernels whose machine code changed, for people.

    The evidence names added and removed kernels. Of the others it has registers, spills, stages, warps, shared memory
    and length, also where they are equal, and the classes of instructions whose number changed. It is empty if the
    machine code of a point is unknown.
    """
    if not before or not after:
        return ()
    old, new = _kernels(before), _kernels(after)
    evidence = [Evidence(f"kernel {name}", "", "is new") for name in sorted(new.keys() - old.keys())]
    evidence += [Evidence(f"kernel {name}", "", "is gone") for name in sorted(old.keys() - new.keys())]
    for name in sorted(old.keys() & new.keys()):
        evidence += _kernel(name, old[name], new[name])
    if before.get("host") and after.get("host") and before["host"] != after["host"]:
        evidence.append(Evidence("how the kernels are launched", "", "changed"))
    return tuple(evidence)


def _kernel(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Evidence]:
    if old.get("code") == new.get("code"):
        return
    sides = _figures(old), _figures(new)
    facts = [
        Evidence(figure, f"{sides[0][figure]}{unit}", f"{sides[1][figure]}{unit}", name)
        for figure, unit in _FIGURES.items()
        if figure in sides[0] and figure in sides[1]
    ]
    old_mix, new_mix = old.get("mix"), new.get("mix")
    if isinstance(old_mix, Mapping) and isinstance(new_mix, Mapping) and old_mix and new_mix:
        facts += _mix(name, old_mix, new_mix)
    if not any(fact.changed for fact in facts):
        yield Evidence("machine code", "", "changed", name)
    yield from facts


def _figures(kernel: Mapping[str, Any]) -> dict[str, int]:
    mix = kernel.get("mix")
    stored = {**kernel, "instructions": mix.get("all") if isinstance(mix, Mapping) else None}
    return {figure: stored[figure] for figure in _FIGURES if isinstance(stored.get(figure), int)}


def _mix(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Evidence]:
    for instruction in sorted((old.keys() | new.keys()) - {"all"}):
        counts = old.get(instruction, 0), new.get(instruction, 0)
        if counts[0] != counts[1]:
            yield Evidence(instruction, str(counts[0]), str(counts[1]), name)


def _kernels(code: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the kernels by name. A second kernel of the same name gets the key ``name (2)``."""
    listed = code.get("kernels")
    name_counts: Counter[str] = Counter()
    kernels = {}
    for kernel in listed if isinstance(listed, list | tuple) else ():
        if isinstance(kernel, Mapping):
            name = str(kernel.get("name"))
            name_counts[name] += 1
            kernels[name if name_counts[name] == 1 else f"{name} ({name_counts[name]})"] = kernel
    return kernels


def _fingerprints(code: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the fingerprint of the launching code, then those of the kernels in order.

    ``None`` if a fingerprint is unknown.
    """
    kernels = code.get("kernels")
    if not isinstance(kernels, list | tuple):
        return None
    prints = [code.get("host"), *(kernel.get("code") if isinstance(kernel, Mapping) else None for kernel in kernels)]
    known = [fingerprint for fingerprint in prints if isinstance(fingerprint, str) and fingerprint]
    return tuple(known) if len(known) == len(prints) else None
