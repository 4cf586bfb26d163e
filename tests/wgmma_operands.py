"""Reads machine code for a race that no interpreter has: operands of asynchronous products, overwritten in flight.

``wgmma`` reads its left operand from registers after the instruction was issued. Triton keeps products in flight
across the back edge of a loop, and ptxas 12.x gives their registers to the next turn
(github.com/triton-lang/triton/issues/9433; pull request 11781 names the fixed ptxas). The result is then wrong
by a little or a lot, as the timing has it.
"""

from __future__ import annotations

import re

INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]+)\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)\s*(.*?)\s*;")
LABEL = re.compile(r"^(\.L_x_\d+):")
WRITES_NO_REGISTER = ("ST", "LDGSTS", "LDGDEPBAR", "BAR", "WARPGROUP", "DEPBAR", "BRA", "EXIT", "RED")


def overwritten(assembly: str) -> list[str]:
    """Instructions in loops with ``HGMMA`` that write a register which a product in flight still reads.

    Each loop is followed for two turns, so that products left in flight by one meet the instructions of the next.
    """
    instructions: list[tuple[str, str, str]] = []
    labels: dict[str, int] = {}
    for line in assembly.splitlines():
        if label := LABEL.match(line):
            labels[label[1]] = len(instructions)
        elif instruction := INSTRUCTION.match(line):
            instructions.append((instruction[1], instruction[2], instruction[3]))
    found = []
    for end, (_, name, operands) in enumerate(instructions):
        target = re.search(r"`\((\.L_x_\d+)\)", operands)
        if name.startswith("BRA") and target and (start := labels[target[1]]) <= end:
            found += _overwritten_in_loop(instructions[start : end + 1])
    return found


def _overwritten_in_loop(loop: list[tuple[str, str, str]]) -> list[str]:
    found = []
    in_flight: list[range] = []
    for address, name, operands in loop * 2:
        if name.startswith("HGMMA"):
            left = re.match(r"R\d+, R(\d+)", operands)
            in_flight.append(range(int(left[1]), int(left[1]) + 4) if left else range(0))
        elif name.startswith("WARPGROUP.DEPBAR"):
            pending = int(operands.rsplit(",", 1)[1], 16)
            in_flight = in_flight[max(len(in_flight) - pending, 0) :]
        elif not name.startswith(WRITES_NO_REGISTER) and (target := re.match(r"(?:U?P\w+, )*R(\d+)", operands)):
            written = range(int(target[1]), int(target[1]) + _registers(name))
            if any(max(written[0], left[0]) <= min(written[-1], left[-1]) for left in in_flight if left):
                found.append(f"{address} {name} {operands}")
    return found


def _registers(name: str) -> int:
    """How many registers an instruction writes, from its suffixes."""
    if ".128" in name or name.endswith(".4"):
        return 4
    return 2 if ".64" in name or ".WIDE" in name or name.endswith(".2") or name.startswith("CS2R") else 1
