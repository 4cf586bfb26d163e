"""No row at all, as a rank without tokens has it: an answer of no row, and no launch of an empty grid."""

import pytest

from lockstep.compiling import compile_in_subprocess

HEADS, RANK = 2, 128
N = (3 * HEADS + 2) * RANK + HEADS


@pytest.mark.parametrize(
    ("family", "shapes", "result"),
    [
        ("linear", [(0, 4096), (2048, 4096)], (0, 2048)),
        ("linear", [(0, 4096), (2048, 4096), (2048,)], (0, 2048)),
        ("norm_linear", [(0, 4096), (4096,), (2048, 4096)], (0, 2048)),
        ("hgemm", [(0, 4096), (4096, 4096)], (0, 4096)),
        ("kda", [(0, 512), (N, 512), (2, HEADS * RANK, RANK)], (0, HEADS * RANK)),
    ],
)
def test_no_row_is_no_launch(family, shapes, result):
    kernels = compile_in_subprocess(
        f"from kernels.{family} import {family}\n"
        f"made = {family}(*[torch.empty(shape, dtype=torch.half, device='meta') for shape in {shapes}])\n"
        f"assert tuple((made[0] if isinstance(made, tuple) else made).shape) == {result}, made"
    )
    assert kernels == []
