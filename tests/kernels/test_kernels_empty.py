"""No row at all, as a rank without tokens has it: an answer of no row, and no launch of an empty grid."""

from compiling import compile_in_subprocess

HEADS, RANK = 2, 128
N = (3 * HEADS + 2) * RANK + HEADS

#: Family, shapes of its arguments, shape of its (first) result.
EMPTY = [
    ("linear", [(0, 4096), (2048, 4096)], (0, 2048)),
    ("linear", [(0, 4096), (2048, 4096), (2048,)], (0, 2048)),
    ("norm_linear", [(0, 4096), (4096,), (2048, 4096)], (0, 2048)),
    ("hgemm", [(0, 4096), (4096, 4096)], (0, 4096)),
    ("kda", [(0, 512), (N, 512), (2, HEADS * RANK, RANK)], (0, HEADS * RANK)),
]


def test_no_row_is_no_launch():
    kernels = compile_in_subprocess(
        "import importlib\n"
        f"for family, shapes, result in {EMPTY}:\n"
        "    entry = getattr(importlib.import_module(f'kernels.{family}'), family)\n"
        "    made = entry(*[torch.empty(shape, dtype=torch.half, device='meta') for shape in shapes])\n"
        "    made = made[0] if isinstance(made, tuple) else made\n"
        "    assert tuple(made.shape) == result, (family, shapes, made)"
    )
    assert kernels == []
