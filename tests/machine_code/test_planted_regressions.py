"""One table of planted regressions: what a machine without a GPU finds of each, in which quantity, and in no other.

Base and head are compiled for a GPU (``lockstep code diff --worse``), and their variants are checked on the CPU. The
detectors of these quantities get the numbers of three commits with base and three with head. The host's time, the time
behind a kernel and the energy are in ``tests/gate/test_gate_costs.py`` (the gate) and, with the compile time, in
``tests/alerts/test_cost_alerts.py`` (the detector).
"""

import importlib.util
import os
import sys
import textwrap
from collections import defaultdict

import numpy as np
import pytest
from rooms import room_of

from lockstep.detect.exact_changes import determinism_changes, error_changes, exact_changes, positive
from lockstep.machine_code.differences.compare import compare
from lockstep.machine_code.exact_quantities import exact_quantities
from lockstep.machine_code.targets import Target
from lockstep.record.quantity import EXACT
from lockstep.suite.commit_sources import Tree
from lockstep.suite.discovery import load_suites
from lockstep.suite.variants import Family
from lockstep.timing.checks.check import Checker

DEVICE = "cuda" if os.environ.get("LOCKSTEP_TEST_GPU") else "cpu"

SUITE = """
    from lockstep import Cost, Suite, grid


    class Toys(Suite):
        module = "planted.toys"
        baseline = "plain"
        tolerance = 0.05
        cases = quick = grid(M=64)

        def draw(self, new, M):
            return {"x": new.normal(M, 256, dtype="float16")}

        def buffers(self, new, M):
            return new.empty(M, dtype="float32")

        def reference(self, x):
            return (x.double() ** 2).sum(1)

        def cost(self, M):
            return Cost(M, M)
"""

KERNELS = """
    import torch
    import triton
    import triton.language as tl

    HELD, CALLS = [], []


    @triton.jit
    def squares(x, out, ROWS: tl.constexpr, TOTAL: tl.constexpr):
        rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        total = tl.zeros((ROWS,), TOTAL)
        for start in range(0, 256, 16):
            part = tl.load(x + rows[:, None] * 256 + start + tl.arange(0, 16)[None, :])
            total += tl.sum(part * part, 1).to(TOTAL)
        tl.store(out + rows, total.to(tl.float32))


    @triton.jit
    def wide(x, out, turns):
        rows, columns = tl.program_id(0) * 16 + tl.arange(0, 16), tl.arange(0, 256)
        total = tl.zeros((16, 256), tl.float32)  # held over the loop: 128 registers of each thread of one warp
        for turn in range(turns):
            part = tl.load(x + rows[:, None] * 256 + (columns + turn * 64)[None, :] % 256).to(tl.float32)
            total += part * part
        tl.store(out + rows, tl.sum(total, 1) / turns)


    def plain(x, *, out):
        return torch.sum(x.float() ** 2, 1, out=out)


    def copies(x, *, out):
        squares[(4,)](x, out, 16, tl.float32)
        return out


    def launches(x, *, out):
        squares[(4,)](x, out, 16, tl.float32)
        return out


    def halves(x, *, out):
        squares[(4,)](x, out, 16, tl.float32)
        return out


    def spills(x, *, out):
        wide[(4,)](x, out, 4, num_warps=1)
        return out


    def host(x, *, out):
        squares[(4,)](x, out, 16, tl.float32)
        return out


    def atomics(x, *, out):
        first = 0
        return torch.sum(torch.roll(x.float() ** 2, first, 1), 1, out=out)


    VARIANTS = {
        "plain": plain, "copies": copies, "launches": launches, "halves": halves, "spills": spills, "host": host,
        "atomics": atomics,
    }
"""

LAUNCH = "    squares[(4,)](x, out, 16, tl.float32)\n"

#: What becomes worse in which variant: the old text of its function, the new text, and the quantities that tell.
PLANTED = {
    "copies": (LAUNCH, "    HELD.append(torch.empty_like(x))\n" + LAUNCH, {"allocations", "memory", "kept"}),
    "launches": (LAUNCH, 2 * LAUNCH, {"launches"}),
    # A kernel that computes otherwise has machine code of another length.
    "halves": ("tl.float32)", "tl.float16)", {"error", "instructions"}),
    "spills": ("num_warps=1", "num_warps=1, maxnreg=64", {"spills", "instructions"}),
    # The same calls and kernels: nothing but the host's time.
    "host": (LAUNCH, "    sum(range(10_000))\n" + LAUNCH, set()),
    # A stand-in for atomics: the order of the sum changes with each call.
    "atomics": ("first = 0", "first = len(CALLS)\n    CALLS.append(first)", {"deterministic"}),
}


def planted():
    """The package with every regression."""
    text = textwrap.dedent(KERNELS)
    for variant, (old, new, _) in PLANTED.items():
        head, function, rest = text.partition(f"def {variant}(x, *, out):\n")
        body, end, tail = rest.partition("\n\n\n")
        assert old in body, variant
        text = head + function + body.replace(old, new) + end + tail
    return text


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    room = tmp_path_factory.mktemp("planted")
    for folder, text in (("base", textwrap.dedent(KERNELS)), ("head", planted())):
        (room / folder / "planted").mkdir(parents=True)
        (room / folder / "planted/__init__.py").touch()
        (room / folder / "planted/toys.py").write_text(text)
    (room / "planted").symlink_to(room / "base/planted")  # names of variants are read beside the suites
    with room_of(room, "planted_suites", toys=SUITE):
        yield room


@pytest.fixture(scope="module")
def numbers(room):
    """The numbers of each variant and quantity, of base and of head; and the comparison of their code."""
    suite = load_suites(room / "planted_suites")["toys"]
    base, head = (Tree(name, room / name, ("planted",)) for name in ("base", "head"))
    comparison = compare(base, head, [suite], Target.parse("sm_90"))
    found = defaultdict(list)
    for side, codes in (("base", comparison.base), ("head", comparison.head)):
        for key, code in codes.items():
            for quantity, value in exact_quantities(code).items():
                found[key.variant, quantity].append(float(value))
        spec = importlib.util.spec_from_file_location(f"toys_{side}", room / side / "planted/toys.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # Triton reads the sources of a kernel by its module
        spec.loader.exec_module(module)
        checker = Checker.draw(suite, suite.cases[0], DEVICE, seed=1)
        for variant in PLANTED | {"plain": ()}:
            checked = checker.check(Family(module.VARIANTS, {}), variant)
            found[variant, "error"].append(checked.accuracy.norm)
            found[variant, "deterministic"].append(float(checked.deterministic))
        del sys.modules[spec.name]
    return found, comparison


@pytest.mark.parametrize("variant", PLANTED)
def test_what_is_worse_is_found_in_its_own_quantity_and_in_no_other(numbers, variant):
    found, comparison = numbers
    wanted = PLANTED[variant][2]
    by_code = {one.quantity for one in comparison.quantities if one.worse and one.cases[0].variant == variant}
    assert by_code == wanted & set(EXACT), "lockstep code diff --worse"

    def history(quantity):
        before, after = found[variant, quantity]
        return np.array([before] * 3 + [after] * 3)

    detected = {
        quantity: exact_changes(positive(history(quantity))) for quantity in EXACT if (variant, quantity) in found
    }
    detected["error"] = error_changes(history("error"))
    detected["deterministic"] = determinism_changes(history("deterministic"))
    worse = {
        quantity: [one.index for one in changes if (one.size > 0) == (quantity != "deterministic")]
        for quantity, changes in detected.items()
    }
    assert {quantity: at for quantity, at in worse.items() if at} == {quantity: [3] for quantity in wanted}
