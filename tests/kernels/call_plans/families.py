"""Compare planned launches of every variant of every suite with ordinary ones, byte for byte; print a line a variant.

    python tests/kernels/call_plans/families.py LIBCUDA [WORDS …]

Without words: all suites at the cases of ``CASES``; else suites and variants whose name has one of them. Each case is
called with four sets of tensors: new ones twice, ones in memory that was freed, and views into longer memory. Each
time the ordinary call and the planned one, twice, must give the driver the same bytes. An address counts as the same
if it lies at the same place of the same argument or workspace, or in memory of the call. Products of cuBLAS are not
computed: their operands are compared. Ends with 1 if anything differs.

``test_call_plans.py`` says how to make LIBCUDA. The cases take minutes, most of them for Triton's compiler.
"""

import sys
import time
from pathlib import Path

import torch
from torch._C._dynamo import guards

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))

from lockstep.suite.discovery import load_suites  # noqa: E402
from lockstep.suite.evaluate import buffers_of, inputs_of, skip_reason  # noqa: E402
from lockstep.suite.inputs import Draw  # noqa: E402
from lockstep.suite.variants import load_family, takes_out  # noqa: E402

#: Labels of the cases to compare, by suite; a suite that is not listed has its ``quick`` ones.
CASES = {
    "linear": [f"M={M},K=4096,N=2048" for M in (1, 2, 4, 8, 16, 32, 64, 512)]
    + ["M=8,K=4096,N=2048,bias", "M=8,K=7168,N=2112", "M=32,K=1536,N=3072"],
    "norm_linear": ["M=1,K=4096,N=2048", "M=8,K=4096,N=2048", "M=32,K=4096,N=2048", "M=64,K=4096,N=2048"],
    "w4a16": [f"M={M},K=8192,N=8192,group=128" for M in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)]
    + ["M=16,K=8192,N=8192,group=channel"],
    "kda": [f"M={M},K=2304,heads=8" for M in (1, 2, 4, 8, 16, 32, 64, 128, 512, 4096)],
    "hgemm": [
        "M=512,N=512,K=512",
        "M=1024,N=1024,K=1024",
        "M=2048,N=2048,K=2048",
        "M=2048,N=2048,K=2048,alpha=0.5,beta=2",
    ],
}
#: Variants that are torch's own, and are never planned.
TORCH_ONLY = ("torch", "compile", "max_autotune", "tgv", "tgv_pdl", "loop", "eight", "merged", "fp16", "int4pack")
GROUPED = ("B=1024,G=4,K=1024", "B=256,G=12,K=1024")


class Blank(Draw):
    """Draws tensors without content, on "meta", but for values that are given."""

    def __init__(self):
        super().__init__("meta", 0)

    def tensor(self, values, dtype):
        return torch.tensor(values, dtype=getattr(torch, dtype))


def chosen(words):
    """Yield (suite, case, variant, function, shapes of its arguments) for what is to be compared."""
    for suite in load_suites(ROOT / "benchmarks").values():
        wanted = CASES.get(suite.name, [])
        cases = [one for one in suite.cases if one.label in wanted or one.label.startswith(GROUPED)]
        assert {one.label for one in cases} >= set(wanted), f"{suite.name} has no such cases"
        family = load_family(suite)
        for case in cases or suite.quick:
            for variant, function in family.variants.items():
                name = f"{suite.name} {variant}"
                if skip_reason(suite, variant, case) or not any(word in name for word in words or [""]):
                    continue
                if variant in suite.adapters or variant in TORCH_ONLY:
                    continue
                drawn = inputs_of(suite, case, Blank())
                try:
                    given = family.arguments(variant, drawn)
                except (NotImplementedError, RuntimeError) as error:
                    print(f"{name} {case.label}: not prepared: {error}")
                    continue
                buffers = buffers_of(suite, case, Blank()) if takes_out(function) else None
                yield suite.name, case.label, variant, function, given, buffers


# Plans take these functions when they are imported, with the families.
guards._empty_strided_cuda = guards._empty_strided_cpu
torch._C._cuda_getDevice = lambda: 0
WORK = list(chosen(sys.argv[2:]))  # before tensors claim to be on a GPU

from stand_in import DRIVER, Launches, forget, ordinary  # noqa: E402

from kernels.call_plans.decorator import _PLANS  # noqa: E402
from kernels.common import workspace  # noqa: E402

PRODUCTS = []


def _noted(name):
    """Return a stand-in for a product of torch that notes its operands."""

    def product(*operands, out, **numbers):
        PRODUCTS.append((name, [*operands, out], sorted(numbers.items())))
        return out

    return product


LIBRARY = torch.library.Library("aten", "IMPL")
for name in ("mm", "bmm", "addmm"):
    LIBRARY.impl(f"{name}.out", _noted(name), "CPU")


def tensors_in(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [one for part in value.values() for one in tensors_in(part)]
    return [one for part in value for one in tensors_in(part)] if isinstance(value, list | tuple) else []


def like(value, make):
    """Return arguments with a tensor of ``make`` for each one without content."""
    if isinstance(value, torch.Tensor):
        return make(value) if value.is_meta else value
    if isinstance(value, dict):
        return {name: like(part, make) for name, part in value.items()}
    if isinstance(value, list | tuple):
        parts = [like(one, make) for one in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def new(tensor):
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)


def view(tensor):
    """Return a view that begins 128 bytes into longer memory."""
    room = 128 // tensor.element_size()
    size = 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True) if n)
    whole = torch.empty(room + size + 64, dtype=tensor.dtype)
    return whole.as_strided(tensor.shape, tensor.stride(), room)


def observed(call, given, stream, *, plain):
    """Call, and return the launches and products with addresses by the tensor that they lie in."""
    DRIVER.local.stream = stream
    named = {f"argument {i}": one for i, one in enumerate(tensors_in(given))}
    named |= {f"buffer {key[0]}": one for key, one in workspace.BUFFERS.items()}
    PRODUCTS.clear()
    with Launches(**named) as launches:
        result = ordinary(call, **given) if plain else call(**given)
    lines = launches.lines()
    assert {line[2] for line in lines} <= {stream}
    products = [
        (name, [(launches.named(one.data_ptr()), one.shape, one.stride(), one.dtype) for one in operands], numbers)
        for name, operands, numbers in PRODUCTS
    ]
    PRODUCTS.clear()
    results = [(launches.named(one.data_ptr()), one.shape, one.stride(), one.dtype, one.requires_grad)
               for one in tensors_in(result)]  # fmt: skip
    return [(line[:2], line[3:]) for line in lines], products, results


def compare(call, shapes):
    """Return launches, products, whether the call had a plan, and the sets of tensors that differ."""
    differ = []
    launches = products = 0
    sets = [("new", new), ("new again", new), ("freed", new), ("views", view)]
    for at, (what, make) in enumerate(sets):
        given = like(shapes, make)
        if not at:
            ordinary(call, **given)  # makes workspaces, and tells the stand-in the sizes of the kernels' arguments
        wanted = observed(call, given, 1000 + at, plain=True)
        for _ in range(2):
            got = observed(call, given, 2000 + at, plain=False)
            if got != wanted:
                differ.append(what)
        launches += 2 * len(wanted[0])
        products += 2 * len(wanted[1])
        del given, got
    return launches, products, differ


def main():
    totals = dict.fromkeys(("cases", "n/a", "planned", "launches", "products", "different"), 0)
    seen = {}
    for suite, case, variant, function, shapes, out in WORK:
        forget()
        with_out = [shapes] if out is None else [shapes, {**shapes, "out": out}]
        for given in with_out:
            began = time.monotonic()
            try:
                launches, products, differ = compare(function, given)
            except NotImplementedError as refused:
                totals["n/a"] += 1
                print(f"{suite} {variant} {case}: n/a {refused}", flush=True)
                continue
            except Exception as error:
                totals["different"] += 1
                print(f"{suite} {variant} {case}: failed: {type(error).__name__}: {error}", flush=True)
                continue
            count = sum(known.plan is not None for plans in _PLANS for alike in plans.values() for known in alike)
            totals["cases"] += 1
            totals["planned"] += count > 0
            totals["launches"] += launches
            totals["products"] += products
            totals["different"] += bool(differ)
            entry = seen.setdefault(f"{suite} {variant}", [0, 0, 0, 0, 0])
            for i, one in enumerate((1, count > 0, launches, products, bool(differ))):
                entry[i] += one
            state = "planned" if count else "no plan"
            label = f"{suite} {variant} {case}{' out' if 'out' in given else ''}"
            found = f"{state}, {launches} launches, {products} products, {', '.join(differ) or 'the same'}"
            print(f"{label}: {found}, {time.monotonic() - began:.1f} s", flush=True)
    print("variant: cases, planned, launches, products, different")
    for name, entry in seen.items():
        print(f"{name}: {', '.join(map(str, entry))}")
    print(totals)
    return int(totals["different"] > 0)


if __name__ == "__main__":
    sys.exit(main())
