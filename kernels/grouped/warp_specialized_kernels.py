"""The products of the ``grouped`` family by ``kernels.common.warp_specialized_product``, on Hopper GPUs.

Only ``product`` takes ragged groups.

The functions take the arguments of the functions in ``tma_kernels`` and ``gated_kernels``, and a tile config.
"""

from __future__ import annotations

from torch import Tensor
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from kernels.common.devices import require_wgmma
from kernels.common.pdl import order_of
from kernels.common.warp_specialized_product import (
    COLUMNS,
    GATED,
    GRAD,
    KEPT,
    NN,
    NT,
    PAIR,
    PLAIN,
    ROWS,
    TN,
    TileConfig,
    described,
    launch,
)
from kernels.grouped.group_layouts import Groups

#: Shape of the buffers that every store goes through.
PIECE = (64, 64)


def product(
    a: Tensor, weight: Tensor, groups: Groups, out: Tensor, *, config: TileConfig, follows: bool = True
) -> None:
    """Write ``out = a @ weight`` group by group.

    Args:
        a: [T, K], contiguous.
        weight: [G, K, N], contiguous or the transpose of a contiguous [G, N, K].
        groups: the groups of the rows.
        out: [T, N], contiguous, written.
        config: the tile config.
        follows: whether the preceding launch writes an operand of this launch; see ``kernels.common.pdl``.

    Raises:
        NotImplementedError: no rows, elements that do not have 16 bits, widths that are not multiples of the tile's,
            matrices that do not begin at a multiple of 16 bytes, or a GPU that is not a Hopper.
    """
    (rows, K), (G, _, N) = a.shape, weight.shape
    require(a, groups, K=(K, config.k), N=(N, COLUMNS), ragged=True)
    transposed = weight.stride(1) == 1
    b = (
        described(weight.transpose(1, 2), (G * N, K), (COLUMNS, config.k))
        if transposed
        else described(weight, (G * K, N), (config.k, COLUMNS))
    )
    bands, scheduled = groups.bands, groups.scheduled
    launch(
        _bands(a, bands, (64, config.k)), b, _bands(out, bands, PIECE), (G, rows // bands, N, K), config,
        order_of(a, follows), NT if transposed else NN, PLAIN, scheduled=scheduled,
    )  # fmt: skip


def grad_weight(
    x: Tensor, grad: Tensor, groups: Groups, out: Tensor, up: Tensor | None = None,
    *, config: TileConfig, follows: bool = True,
) -> None:  # fmt: skip
    """Write ``out[g] = x[rows of g].T @ grad[rows of g]``: [T, K] and [T, N], contiguous, into [G, K, N].

    With ``up``, grad is packed [T, 2·N], and ``out`` and ``up`` are the gradients of both weights. All other arguments
    are as in ``product``.

    Raises:
        NotImplementedError: ragged groups, and under the conditions that ``product`` states.
    """
    (G, K, N), width = out.shape, grad.shape[1]
    require(x, groups, K=(K, ROWS), N=(width, COLUMNS))
    sizes = G, K, width, len(x) // G
    launch(
        _bands(x, G, (config.k, 64)), _bands(grad, G, (config.k, COLUMNS)), described(out, (G * K, N), PIECE), sizes,
        config, order_of(x, follows), TN, PLAIN if up is None else PAIR,
        other=None if up is None else described(up, (G * K, N), PIECE),
    )  # fmt: skip


def gated(
    x: Tensor, w_gate_up: Tensor, groups: Groups, hidden: Tensor,
    gate_up: Tensor | None = None, *, config: TileConfig,
) -> None:  # fmt: skip
    """Write ``hidden = silu(x @ w_gate[g]) · (x @ w_up[g])``: one product, the activation in its epilogue.

    The error of the sigmoid is at most 2^-12: see ``kernels.common.gated_epilogues``.

    Args:
        x: [T, K], contiguous; so is every tensor.
        w_gate_up: [G, K, 2·H], packed: 128 columns of gate and of up in turn.
        groups: the groups of the rows.
        hidden: [T, H], written.
        gate_up: [T, 2·H] for the product itself, packed like the weight; written if given.
        config: the tile config.

    Raises:
        NotImplementedError: ragged groups, and under the conditions that ``product`` states.
    """
    (rows, K), (G, _, N) = x.shape, w_gate_up.shape
    require(x, groups, K=(K, config.k), H=(N // 2, COLUMNS // 2))
    sizes = G, rows // G, N, K
    launch(
        _bands(x, G, (64, config.k)), described(w_gate_up, (G * K, N), (config.k, COLUMNS)), _bands(hidden, G, PIECE),
        sizes, config, order_of(x, follows=True), NN, GATED if gate_up is None else KEPT,
        other=None if gate_up is None else _bands(gate_up, G, PIECE),
    )  # fmt: skip


def gated_grad(
    grad: Tensor, w_down: Tensor, gate_up: Tensor, groups: Groups, grad_gate_up: Tensor,
    *, config: TileConfig, follows: bool = True,
) -> None:  # fmt: skip
    """Write the gradient of the packed product from the output's gradient, without storing the hidden layer's gradient.

    Args:
        grad: [T, K], contiguous; so is every tensor.
        w_down: [G, H, K].
        gate_up: [T, 2·H], as ``gated`` kept it.
        groups: the groups of the rows.
        grad_gate_up: [T, 2·H], written.
        config: tile config with an even number of buffers.
        follows: as in ``product``.

    Raises:
        NotImplementedError: ragged groups, an odd number of buffers, and under the conditions that ``product`` states.
    """
    (rows, K), (G, H, _) = grad.shape, w_down.shape
    require(grad, groups, K=(K, config.k), H=(H, COLUMNS))
    if config.buffers % 2:
        raise NotImplementedError(f"gated_grad needs an even number of buffers, got {config.buffers}")
    sizes = G, rows // G, H, K
    launch(
        _bands(grad, G, (64, config.k)), described(w_down, (G * H, K), (COLUMNS, config.k)),
        _bands(grad_gate_up, G, PIECE), sizes, config, order_of(grad, follows), NT, GRAD,
        gate_up=_bands(gate_up, G, PIECE),
    )  # fmt: skip


def require(tensor: Tensor, groups: Groups, ragged: bool = False, **widths: tuple[int, int]) -> None:
    """Refuse what the kernels cannot compute; ragged groups too, unless ``ragged``.

    Raises:
        NotImplementedError: under the conditions that ``product`` states.
    """
    if groups.offsets is not None and not ragged:
        raise NotImplementedError(
            "warp_specialized needs groups of equal size for this launch: only plain products take ragged groups"
        )
    if groups.rows == 0:
        raise NotImplementedError("warp_specialized has no tile for groups without rows")
    if tensor.element_size() != 2:
        raise NotImplementedError(f"warp_specialized needs 16-bit elements, got {tensor.dtype}")
    require_wgmma(tensor, "warp_specialized")
    for name, (width, block) in widths.items():
        if width % block:
            raise NotImplementedError(f"warp_specialized needs {name} to be a multiple of {block}, got {width}")


def _bands(matrix: Tensor, bands: int, box: tuple[int, int]) -> TensorDescriptor:
    """Return a TMA descriptor of a matrix [T, columns] as [T / bands, bands · columns]; see ``Groups.bands``."""
    return described(matrix, (len(matrix) // bands, matrix.shape[1] * bands), box)
