"""Choose the backend of an operation of ``kernels.grouped``: the table's backend, or one that supports every shape."""

from __future__ import annotations

from torch import Tensor

from kernels.common.tables import SearchSpace
from kernels.common.warp_specialized_product import TILE_CONFIGS
from kernels.grouped.backends import BMM, LOOP, TMA, TRITON, Products, Specialized
from kernels.grouped.group_layouts import Groups
from kernels.grouped.launch_plan import MLP, MLP_TMA, MLP_TRAIN, MLP_TRAIN_TMA, TILE_CONFIG_OF, MlpPlan, MlpTrainPlan
from kernels.grouped.table import TABLE, Tile

#: Backends by the names that variants and tables use. Also valid are "warp_specialized" and the names of its tile
#: configs.
BACKENDS = {"loop": LOOP, "bmm": BMM, "triton": TRITON, "tma": TMA}

#: Fastest backend for R rows a group on average.
BEST = {op: TABLE.choice(f"{op}.best", str, "ragged R G K N", upto="R") for op in ("linear", "linear_train")} | {
    op: TABLE.choice(f"{op}.best", str, "ragged R G K H", upto="R") for op in ("mlp", "mlp_train")
}


def _best(op: str, x: Tensor, weight: Tensor, groups: Groups) -> str:
    """Return the name of the table's backend for these shapes; on a CPU return the name of torch's backend."""
    ragged = groups.offsets is not None
    if x.device.type == "cpu":
        return "loop" if ragged else "bmm"
    return BEST[op](x.device, ragged, groups.rows // groups.count, *weight.shape)


def backends_for(op: str, config: str | None, x: Tensor, weight: Tensor, groups: Groups) -> tuple[Products, ...]:
    """Return the backend that ``config`` names; else the fastest, and one that takes every shape."""
    best = _backend(op, config or _best(op, x, weight, groups), x, weight, groups)
    if config:
        return (best,)
    if groups.offsets is None:
        return best, BMM
    return (best, LOOP) if x.device.type == "cpu" else (best, TMA, TRITON)


def _backend(op: str, name: str, x: Tensor, weight: Tensor, groups: Groups) -> Products:
    if name in BACKENDS:
        return BACKENDS[name]
    if name == "warp_specialized":
        if op not in TILE_CONFIG_OF:
            # Without packed gate and up this operation is plain products, and cuBLAS is faster at those.
            return BMM
        name = TILE_CONFIG_OF[op](x.device, groups.rows // groups.count, *weight.shape)
    return Specialized(TILE_CONFIGS[name])


def mlp_plan(config: str | None, x: Tensor, w_gate: Tensor, groups: Groups) -> MlpPlan | None:
    """Return the launch plan of ``mlp`` with packed weights; None if the backend does not use packed weights."""
    name = config or _best("mlp", x, w_gate, groups)
    if name == "warp_specialized":
        return MLP(x.device, groups.rows // groups.count, *w_gate.shape)
    return MLP_TMA if name == "tma" else None


def mlp_train_plan(config: str | None, x: Tensor, w_gate: Tensor, groups: Groups) -> MlpTrainPlan | None:
    """Return the launch plan of ``mlp_train`` with packed weights; None if the backend does not use packed weights."""
    name = config or _best("mlp_train", x, w_gate, groups)
    if name == "warp_specialized":
        return MLP_TRAIN(x.device, groups.rows // groups.count, *w_gate.shape)
    return MLP_TRAIN_TMA if name == "tma" else None


def best_of(op: str, B: int, G: int, K: int, ragged: bool, **width: int) -> SearchSpace:
    """Return the backends that ``lockstep tune`` tries for an operation with even or ragged groups."""
    backends = ["loop" if ragged else "bmm", "triton", "tma"]
    if not ragged or op.startswith("linear"):
        backends.append("warp_specialized")
    return SearchSpace(f"{op}.best", {"ragged": ragged, "R": B, "G": G, "K": K, **width}, tuple(backends))


def gated_grad_tiles(B: int, G: int, K: int, H: int) -> SearchSpace:
    """Return the tiles that ``lockstep tune`` tries for the gradients of gate and up."""
    tiles = (Tile(128, 128, 64, 8, 3, 2), Tile(128, 256, 64, 8, 3), Tile(128, 256, 64, 8, 4), Tile(128, 128, 64, 8, 4))
    return SearchSpace("tma.gated_grad", {"R": B, "G": G, "K": K, "H": H}, tiles)
