"""Launch plans: the backend of each launch of an operation of ``kernels.grouped``.

A backend is "bmm" (cuBLAS, for plain products), "tma", or the name of a tile config of
``kernels.common.warp_specialized_product``. The variants "warp_specialized" take their plan for the shape from the
GPU's table.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from kernels.common.tables import SearchSpace
from kernels.common.warp_specialized_product import TILE_CONFIGS, TileConfig
from kernels.grouped import gated_kernels as grouped_gated
from kernels.grouped import tma_kernels as grouped_tma
from kernels.grouped import warp_specialized_kernels as grouped_specialized
from kernels.grouped.backends import BMM
from kernels.grouped.group_layouts import Groups
from kernels.grouped.table import TABLE, Tile


class MlpPlan(NamedTuple):
    """The backend of each of the two launches of ``mlp`` with packed gate and up."""

    gated: str
    down: str


class MlpTrainPlan(NamedTuple):
    """The backend of each of the six launches of ``mlp_train``; ``grad_gate_up`` is the gradient of both weights."""

    gated: str
    down: str
    grad_down: str
    gated_grad: str
    grad_gate_up: str
    grad_x: str


#: Plans with "tma" for every launch.
MLP_TMA, MLP_TRAIN_TMA = MlpPlan(*("tma",) * 2), MlpTrainPlan(*("tma",) * 6)

#: Tile config of every product of an operation.
TILE_CONFIG_OF = {
    op: TABLE.choice(f"{op}.warp_specialized", str, "R G K N", upto="R") for op in ("linear", "linear_train")
}
#: Launch plan of an operation.
MLP = TABLE.choice("mlp.warp_specialized", MlpPlan, "R G K H", upto="R")
MLP_TRAIN = TABLE.choice("mlp_train.warp_specialized", MlpTrainPlan, "R G K H", upto="R")


def product(backend: str, a: Tensor, weight: Tensor, groups: Groups, out: Tensor, *, follows: bool = True) -> None:
    """Compute ``kernels.grouped.tma_kernels.product`` with a backend; raise the errors that the backend raises."""
    if backend == "bmm":
        BMM.product(a, weight, groups, out)
    elif backend == "tma":
        grouped_tma.product(a, weight, groups, out, follows=follows)
    else:
        grouped_specialized.product(a, weight, groups, out, config=_tile_config(backend), follows=follows)


def grad_weight(
    backend: str, x: Tensor, grad: Tensor, groups: Groups, out: Tensor,
    up: Tensor | None = None, *, follows: bool = True,
) -> None:  # fmt: skip
    """Compute ``kernels.grouped.tma_kernels.grad_weight`` with a backend."""
    if backend == "bmm" and up is None:
        BMM.grad_weight(x, grad, groups, out)
    elif backend == "tma":
        grouped_tma.grad_weight(x, grad, groups, out, up, follows=follows)
    else:
        grouped_specialized.grad_weight(x, grad, groups, out, up, config=_tile_config(backend), follows=follows)


def gated(
    backend: str, x: Tensor, w_gate_up: Tensor, groups: Groups, hidden: Tensor,
    gate_up: Tensor | None = None,
) -> None:  # fmt: skip
    """Compute ``kernels.grouped.gated_kernels.gated`` with a backend."""
    if backend == "tma":
        grouped_gated.gated(x, w_gate_up, groups, hidden, gate_up)
    else:
        grouped_specialized.gated(x, w_gate_up, groups, hidden, gate_up, config=_tile_config(backend))


def gated_grad(
    backend: str, grad: Tensor, w_down: Tensor, gate_up: Tensor, groups: Groups,
    grad_gate_up: Tensor, tile: Tile | None = None, *, follows: bool = True,
) -> None:  # fmt: skip
    """Compute ``kernels.grouped.gated_kernels.gated_grad`` with a backend; only "tma" uses ``tile``."""
    if backend == "tma":
        grouped_gated.gated_grad(grad, w_down, gate_up, groups, grad_gate_up, tile, follows=follows)
    else:
        grouped_specialized.gated_grad(
            grad, w_down, gate_up, groups, grad_gate_up, config=_tile_config(backend), follows=follows
        )  # fmt: skip


def _tile_config(backend: str) -> TileConfig:
    if backend not in TILE_CONFIGS:
        raise ValueError(f"the backend {backend!r} cannot compute this launch: choose tma, {', '.join(TILE_CONFIGS)}")
    return TILE_CONFIGS[backend]


def tile_configs_at(op: str, B: int, G: int, K: int, N: int) -> SearchSpace:
    """Return the tile configs that ``lockstep tune`` tries for ``linear`` or ``linear_train``, with even groups.

    Ragged groups take the config of even groups of the same size.
    """
    return SearchSpace(f"{op}.warp_specialized", _sizes(B, G, K, N=N), tuple(TILE_CONFIGS))


def mlp_plans_at(B: int, G: int, K: int, H: int, ragged: bool = False) -> SearchSpace:
    """Return the plans that ``lockstep tune`` tries: every tile config, then for ``down`` that config or cuBLAS."""
    plans = [MlpPlan(config, down) for config in TILE_CONFIGS for down in (config, "bmm")]
    return SearchSpace("mlp.warp_specialized", _sizes(B, G, K, H=H), () if ragged else plans)


def mlp_train_plans_at(B: int, G: int, K: int, H: int, ragged: bool = False) -> SearchSpace:
    """Return the plans that ``lockstep tune`` tries: some without cuBLAS, some with cuBLAS for ``down`` and ``grad_x``.

    The launch ``gated_grad`` needs a config with an even number of buffers.
    """
    plans = []
    for config, through_gate in (("k64s3b4", "k64s3b4"), ("k32s7b3", "k32s6b4"), ("k32s7b3", "k64s3b4")):
        plans.append(MlpTrainPlan(config, config, config, through_gate, config, config))
    for gate in ("k64s3b4", "k32s8b2"):
        for weights in (("k32s8b2", "k64s4b2"), ("k32s8b2", "k32s7b3")):
            grad_down, grad_gate_up = weights
            plans.append(MlpTrainPlan(gate, "bmm", grad_down, "k64s3b4", grad_gate_up, "bmm"))
    return SearchSpace("mlp_train.warp_specialized", _sizes(B, G, K, H=H), () if ragged else plans)


def _sizes(B: int, G: int, K: int, **width: int) -> dict[str, int]:
    return {"R": B, "G": G, "K": K, **width}
