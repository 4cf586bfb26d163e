# ruff: noqa: E501 — the sources of generated modules stand here a line each
"""Captured graphs of a real GPU show every planted change, and no change of words.

``LOCKSTEP_TEST_GPU=1 pytest tests/gpu/test_observed_work.py`` plants one change of each kind. ``python -m
tests.gpu.test_observed_work [--planted 200] [--families linear …] [--seconds 60]`` prints figures as JSON: planted
changes by kind, seconds a case, and what is observed of this repository's families against a copy of themselves.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import textwrap
import time
from collections import Counter
from pathlib import Path

import pytest

from lockstep import Cost, Suite, grid
from lockstep.gate.measuring.comparer import Comparer
from lockstep.gate.measuring.pairing import QUICK
from lockstep.gate.namespaces import Sides
from lockstep.timing.device import open_device

CASE = grid(M=256)

KERNELS = '''
    import triton
    import triton.language as tl


    @triton.jit
    def scale(x, out, count, factor, BLOCK: tl.constexpr):
        """Scale."""
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        total = tl.load(x + at, mask=at < count) * 3
        tl.store(out + at, total * factor, mask=at < count)


    @triton.jit
    def rows(descriptor, out, WIDTH: tl.constexpr):
        tile = descriptor.load([tl.program_id(0) * 16, 0])
        at = (tl.program_id(0) * 16 + tl.arange(0, 16))[:, None] * 256 + tl.arange(0, WIDTH)[None, :]
        tl.store(out + at, tile)
    '''

OTHER = """
    import triton
    import triton.language as tl


    @triton.jit
    def scale(x, out, count, factor, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(x + at, mask=at < count) * factor * 7, mask=at < count)
    """

WORK = """
    import os

    import torch
    import triton
    from triton.tools.tensor_descriptor import TensorDescriptor

    from . import kernels, other

    TILES = int(os.environ.get("PLANTED_TILES", "4"))
    ROW = torch.arange(64, device="cuda")
    SIDE = torch.cuda.Stream()
    SEEN = {}


    def plain(x, w, out):
        count = x.numel()
        kernels.scale[(triton.cdiv(count, 1024),)](x, out, count, 2.5, BLOCK=1024, num_warps=4)
        kernels.scale[(TILES,)](w, out, count, 1.5, BLOCK=512, num_warps=4, launch_pdl=True)
        return out


    def library(x, w, out):
        middle = torch.empty_like(out)
        middle.zero_()
        torch.mm(x, w, out=middle)
        out.copy_(middle)
        out[0, :64].add_(ROW)
        return out


    def descriptors(x, w, out):
        kernels.rows[(16,)](TensorDescriptor.from_tensor(w, [16, 64]), out, WIDTH=64)
        return out


    def together(x, w, out):
        values = SEEN.setdefault(x.data_ptr(), 1 if torch.cuda.is_current_stream_capturing() else int(x[0, 0].item() * 1e4) % 97)
        out.zero_()
        SIDE.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(SIDE):
            kernels.scale[(2,)](x, out, 2048, 2.0, BLOCK=1024, num_warps=4)
        torch.cuda.current_stream().wait_stream(SIDE)
        kernels.scale[(3 + 0 * values,)](x, out, 2048, 2.0, BLOCK=1024, num_warps=4)
        return out


    VARIANTS = {"plain": plain, "library": library, "descriptors": descriptors, "together": together}
    """

#: Changes of the work: file, text, replacement.
CHANGES = {
    "grid": ("work", "cdiv(count, 1024),", "cdiv(count, 1024) + 1,"),
    "constant of a kernel": ("kernels", "* 3", "* 5"),
    "operation of a kernel": ("kernels", "total * factor", "total + factor"),
    "float argument": ("work", "count, 2.5", "count, 2.25"),
    "integer argument": ("work", "out, count, 2.5", "out, count - 16, 2.5"),
    "block of a kernel": ("work", "1.5, BLOCK=512", "1.5, BLOCK=256"),
    "warps": ("work", "2.5, BLOCK=1024, num_warps=4", "2.5, BLOCK=1024, num_warps=8"),
    "registers": ("work", "2.5, BLOCK=1024, num_warps=4", "2.5, BLOCK=1024, num_warps=4, maxnreg=24"),
    "kernel of equal name": ("work", "kernels.scale[(triton", "other.scale[(triton"),
    "order": ("work", "middle.zero_()\n        torch.mm(x, w, out=middle)", "torch.mm(x, w, out=middle)\n        middle.zero_()"),
    "no side stream": ("work", "torch.cuda.stream(SIDE)", "torch.cuda.stream(torch.cuda.current_stream())"),
    "no wait": ("work", "        torch.cuda.current_stream().wait_stream(SIDE)\n        kernels.scale[(3 + 0 * values,)](x, out, 2048, 2.0, BLOCK=1024, num_warps=4)", "        kernels.scale[(3 + 0 * values,)](x, out, 2048, 2.0, BLOCK=1024, num_warps=4)\n        torch.cuda.current_stream().wait_stream(SIDE)"),
    "extra copy": ("work", "out.copy_(middle)", "out.copy_(middle)\n        out.copy_(middle)"),
    "other copy": ("work", "out.copy_(middle)", "middle.copy_(out)"),
    "shorter copy": ("work", "out.copy_(middle)", "out[:128].copy_(middle[:128])"),
    "edge": ("work", "launch_pdl=True", "launch_pdl=False"),
    "environment variable": ("work", "PLANTED_TILES", "PLANTED_OTHER_TILES"),
    "library function": ("work", "torch.mm(x, w, out=middle)", "torch.addmm(x, x, w, out=middle)"),
    "library operands": ("work", "torch.mm(x, w,", "torch.mm(w, x,"),
    "library operation": ("work", ".add_(ROW)", ".sub_(ROW)"),
    "scalar of torch": ("work", ".add_(ROW)", ".add_(ROW, alpha=2)"),
    "place of torch": ("work", "out[0, :64].add_", "out[1, :64].add_"),
    "extent of torch": ("work", "out[0, :64].add_(ROW)", "out[0, :32].add_(ROW[:32])"),
    "set": ("work", "middle.zero_()", "middle.fill_(1)"),
    "descriptor": ("work", "[16, 64]), out, WIDTH=64", "[16, 32]), out, WIDTH=32"),
    "address in a descriptor": ("work", "from_tensor(w,", "from_tensor(x,"),
    "offset": ("work", "kernels.scale[(2,)](x,", "kernels.scale[(2,)](x[16:],"),
    "swapped arguments": ("work", "(w, out, count, 1.5", "(x, out, count, 1.5"),
    "table": ("work", "torch.arange(64,", "torch.arange(1, 65,"),
    "values": ("work", "3 + 0 * values", "3 + values"),
    "values on both sides": ("work", "3 + 0 * values", "3 + values"),
    "fewer kernels": ("work", "        out[0, :64].add_(ROW)\n", ""),
    "host memory": ("work", "out[0, :64].add_(ROW)", "out[0, :64].copy_(HOST, non_blocking=True)"),
    "cooperative": ("work", "1.5, BLOCK=512, num_warps=4", "1.5, BLOCK=512, num_warps=4, launch_cooperative_grid=True"),
}  # fmt: skip

#: Changes after which base is changed as well: the work is equal, and says nothing about other values.
ON_BOTH = ("values on both sides",)

#: Changes that leave the work as it is.
WORDS = {
    "comment": ("kernels", "total = tl.load", "# Words.\n        total = tl.load"),
    "docstring": ("kernels", "Scale.", "Multiply twice.\n\n        Then store."),
    "name of a local": ("kernels", "total", "product"),
    "name of a kernel": ("both", "scale", "times"),
    "local of the host": ("work", "middle", "buffer"),
    "comment of a launch": ("work", "out.copy_", "# Words.\n        out.copy_"),
    "another expression": ("work", "cdiv(count, 1024),", "cdiv(count + 0, 2 * 512),"),
    "unused kernel": ("other", "* 7", "* 9"),
}


def planted(kind: str, folder: Path, package: str) -> Sides:
    """Write two versions of a package, and return both as the gate holds them."""
    file, text, replacement = (CHANGES | WORDS)[kind]
    roots = {}
    for side in ("base", "head"):
        changed = side == "head" or kind in ON_BOTH
        roots[side] = folder / package / side
        place = roots[side] / package
        place.mkdir(parents=True)
        (place / "__init__.py").touch()
        for name, source in (("kernels", KERNELS), ("other", OTHER), ("work", WORK)):
            if changed and (name == file or file == "both"):
                assert text in source or file == "both", (kind, text)
                source = source.replace(text, replacement)
                if "HOST" in replacement:
                    source = source.replace(
                        "SEEN = {}", "SEEN = {}\n    HOST = torch.ones(64, dtype=torch.bfloat16).pin_memory()"
                    )
            (place / f"{name}.py").write_text(textwrap.dedent(source))
    return Sides((package,), **roots)


def suite_of(package: str) -> Suite:
    """A suite of square tensors whose variants are those of a planted package."""
    members = {
        "module": f"{package}.work", "family": package, "cases": CASE, "quick": CASE, "baseline": "plain",
        "draw": lambda self, new, M: {"x": new.normal(M, M), "w": new.normal(M, M)},
        "buffers": lambda self, new, M: new.empty(M, M),
        "reference": lambda self, x, w: x, "cost": lambda self, M: Cost(1.0, 1.0),
    }  # fmt: skip
    return type("Planted", (Suite,), {**members, "__module__": __name__})()


def observed(kind: str, folder: Path, package: str) -> tuple[dict[str, str], float]:
    """What is observed of each variant, and the seconds of observing it once its kernels are compiled."""
    finders = list(sys.meta_path)
    try:
        sides = planted(kind, folder, package)
        comparer = Comparer(sides, open_device(), QUICK, 1, lambda *_: None)
        suite = suite_of(package)
        for side in ("base", "head"):
            facts = comparer.families.load(suite, side)
            assert not facts.error, facts.error
        variants = list(facts.variants)
        label = suite.cases[0].label
        found = dict(comparer.observe(suite, label, variants))
        started = time.monotonic()
        again = dict(comparer.observe(suite, label, variants))
        seconds = (time.monotonic() - started) / len(variants)
        # A side that sees the address of an input again remembers its value.
        assert {name for name, one in again.items() if one.difference} <= {
            n for n, one in found.items() if one.difference
        } or "values" in kind, (found, again)
        return {name: one.difference or one.refusal for name, one in found.items()}, seconds
    finally:
        sys.meta_path[:] = finders


def figures(count: int, folder: Path) -> dict[str, object]:
    """Plant ``count`` changes and a tenth as many changes of words."""
    missed, accused, said, seconds = [], [], {}, []
    for kinds, number in ((list(CHANGES), count), (list(WORDS), max(len(WORDS), count // 10))):
        for index in range(number):
            kind = kinds[index % len(kinds)]
            try:
                found, took = observed(kind, folder, f"toy{'c' if kinds[0] == 'grid' else 'w'}{index}")
            except Exception as error:
                missed.append(f"{kind}: {type(error).__name__}: {str(error)[:300]}")
                continue
            seconds.append(took)
            said[kind] = {name: text[:200] for name, text in found.items() if text}
            if kind in CHANGES and not any(found.values()):
                missed.append(kind)
            if kind in WORDS and any(found.values()):
                accused.append(f"{kind}: {said[kind]}")
    return {
        "planted": count, "called_same": missed, "words_called_different": accused, "said": said,
        "median_ms_a_case": 1e3 * statistics.median(seconds or [0]), "worst_ms_a_case": 1e3 * max(seconds or [0]),
    }  # fmt: skip


def of_repository(families: list[str], seconds: float, folder: Path) -> dict[str, object]:
    """Observe families of this repository against a copy of themselves with comments, for some seconds."""
    from lockstep.machine_code.compiled_tree import compile_ahead
    from lockstep.machine_code.targets import Target
    from lockstep.record.provenance import host_facts
    from lockstep.suite.commit_sources import Tree
    from lockstep.suite.discovery import load_suites

    home = Path(__file__).parents[2]
    roots = {side: folder / f"repository-{side}" for side in ("base", "head")}
    for root in roots.values():
        shutil.copytree(home / "kernels", root / "kernels")
    for path in roots["head"].rglob("*.py"):
        path.write_text("# Words.\n" + path.read_text().replace("\n\n\n", "\n\n\n\n"))
    target = Target.of_host(host_facts())
    suites = {name: suite for name, suite in load_suites(home / "benchmarks").items() if suite.family in families}
    started = time.monotonic()
    compile_ahead(Tree("head", roots["head"], ("kernels",)), suites.values(), target, 600.0)
    compiled = time.monotonic() - started
    sides = Sides(("kernels",), **roots)
    comparer = Comparer(sides, open_device(), QUICK, 1, lambda *_: None)
    reasons, took, first, refused, count = Counter(), [], [], 0, 0
    loads = {
        name: [comparer.families.load(suite, side) for side in ("base", "head")][1] for name, suite in suites.items()
    }
    deadline = time.monotonic() + seconds
    pairs = [(name, case) for name, suite in suites.items() for case in suite.cases]
    # Spread over families and shapes, whatever the deadline leaves out.
    for name, case in sorted(pairs, key=lambda pair: hash((pair[0], pair[1].label)) % 97):
        if time.monotonic() > deadline:
            break
        variants = list(loads[name].variants)
        for turn in (first, took):
            started = time.monotonic()
            found = dict(comparer.observe(suites[name], case.label, variants))
            turn.append((time.monotonic() - started) / max(1, len(variants)))
        count += len(variants)
        refused += sum(bool(one.refusal) for one in found.values())
        reasons.update(f"{name} {variant}: {one.difference}"[:300] for variant, one in found.items() if one.difference)
    return {
        "compile_s": compiled, "cases": count, "of": sum(len(loads[n].variants) for n, _ in pairs), "refused": refused,
        "different": sum(reasons.values()), "reasons": reasons.most_common(40),
        "median_ms_first": 1e3 * statistics.median(first or [0]), "median_ms": 1e3 * statistics.median(took or [0]),
        "worst_ms": 1e3 * max(took or [0]),
    }  # fmt: skip


needs_gpu = pytest.mark.skipif(not os.environ.get("LOCKSTEP_TEST_GPU"), reason="captures CUDA graphs")


@pytest.fixture(autouse=True)
def _another_number_of_tiles(monkeypatch):
    monkeypatch.setenv("PLANTED_OTHER_TILES", "9")


@needs_gpu
@pytest.mark.parametrize("kind", CHANGES)
def test_a_planted_change_is_seen(kind, tmp_path):
    found, _ = observed(kind, tmp_path, f"toyc{list(CHANGES).index(kind)}")
    assert any(found.values())


@needs_gpu
@pytest.mark.parametrize("kind", WORDS)
def test_a_change_of_words_is_the_same_work(kind, tmp_path):
    found, _ = observed(kind, tmp_path, f"toyw{list(WORDS).index(kind)}")
    assert not any(found.values()), found


def main() -> None:
    """Print figures of planted changes and of this repository as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--planted", type=int, default=200)
    parser.add_argument("--families", nargs="*", default=[])
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    os.environ["PLANTED_OTHER_TILES"] = "9"
    with tempfile.TemporaryDirectory() as folder:
        found: dict[str, object] = {"planted": figures(options.planted, Path(folder))}
        if options.families:
            try:
                found["repository"] = of_repository(options.families, options.seconds, Path(folder))
            except Exception as error:  # the other figures must not be lost
                found["repository"] = f"{type(error).__name__}: {error}"
    json.dump(found, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
