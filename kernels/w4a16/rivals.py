"""Variants of ``w4a16`` by other packages: Humming, which vLLM prefers for int4 weights, and GemLite.

``pip install kernel-lockstep[rivals]`` names their versions. Humming compiles its kernels at the first call, GemLite
times its own configurations then. Marlin is not here: nobody has built it for this torch.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kernels.w4a16.int4 import expect_quantised


def humming(
    x: Tensor,
    humming_words: Tensor,
    humming_scales: Tensor,
    humming_locks: Tensor,
    humming_layer: str,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Call Humming with the tile and the split that its heuristics choose.

    Args:
        x: float16 [M, K].
        humming_words: int32, and with the scales as ``prepare_humming`` returns them.
        humming_scales: float16.
        humming_locks: int32, counters that a call leaves at zero.
        humming_layer: the configuration of the layer.
        out: float16 [M, N] to write into.

    Raises:
        NotImplementedError: Humming is not installed or ``x`` is not on a GPU; so does ``prepare_humming``.
    """
    ops = _installed("humming-kernels", x, lambda: importlib.import_module("humming.ops"))
    y: Tensor = ops.humming_gemm(
        layer_config=humming_layer,
        inputs=x,
        weight=humming_words,
        weight_scale=humming_scales,
        locks=humming_locks,
        outputs=out,
    )
    return y


def prepare_humming(codes: Tensor, scales: Tensor) -> dict[str, Any]:
    """Return the arguments of ``humming``: the layer that Humming makes of the same codes and scales."""
    expect_quantised(codes, scales)
    layers = _installed("humming-kernels", codes, lambda: importlib.import_module("humming.layer"))
    (K, N), groups = codes.shape, len(scales)
    weight = {"dtype": "uint4", "group_size": K // groups if groups > 1 else 0}
    layer = layers.HummingLayer(shape_n=N, shape_k=K, weight_config=weight, torch_dtype=torch.float16).cuda()
    shifts = torch.arange(0, 32, 4, device=codes.device, dtype=torch.int32)
    words = (codes.t().reshape(N, K // 8, 8).int() << shifts).sum(dim=2, dtype=torch.int32)
    layer.load_from_tensors({"weight": words, "weight_scale": scales.t().contiguous()})
    layer.transform()
    return {
        "humming_words": layer.weight.data,
        "humming_scales": layer.weight_scale.data,
        "humming_locks": layer.locks,
        "humming_layer": layer.humming_config.to_str(),
    }


def gemlite(
    x: Tensor, gemlite_words: Tensor, gemlite_scales: Tensor, gemlite_zeros: Tensor, gemlite_layer: tuple[int, ...]
) -> Tensor:
    """Call GemLite with the configuration that its tuner chooses at the first call with a shape.

    Args:
        x: float16 [M, K].
        gemlite_words: the codes, and with scales and zeros as ``prepare_gemlite`` returns them.
        gemlite_scales: float16.
        gemlite_zeros: the zero point.
        gemlite_layer: the numbers that describe the layer.

    Returns:
        float16 [M, N]; GemLite has no ``out=``.

    Raises:
        NotImplementedError: GemLite is not installed or ``x`` is not on a GPU; so does ``prepare_gemlite``.
    """
    core = _installed("gemlite", x, lambda: importlib.import_module("gemlite.core"))
    meta_scale = gemlite_zeros  # read only for 4-bit floats
    product: Tensor = core.forward_functional(
        x, None, [gemlite_words, gemlite_scales, gemlite_zeros, meta_scale], list(gemlite_layer)
    )
    return product


def prepare_gemlite(codes: Tensor, scales: Tensor) -> dict[str, Any]:
    """Return the arguments of ``gemlite``: the layer that GemLite makes of the same codes and scales."""
    expect_quantised(codes, scales)
    package = _installed("gemlite", codes, lambda: importlib.import_module("gemlite"))
    (K, N), half = codes.shape, package.DType.FP16
    layer = package.GemLiteLinear(
        4, group_size=K // len(scales), in_features=K, out_features=N, input_dtype=half, output_dtype=half
    )
    layer.pack(codes.t().contiguous(), scales.t().contiguous(), 8)
    words, own_scales, zeros, _ = layer.get_tensor_args()
    return {
        "gemlite_words": words.data,
        "gemlite_scales": own_scales.data,
        "gemlite_zeros": zeros.data,
        "gemlite_layer": tuple(layer.get_meta_args()),
    }


def _installed(package: str, tensor: Tensor, load: Callable[[], Any]) -> Any:
    # Callers name the module in the call of import_module: so the sources that a family imports are known.
    if tensor.device.type != "cuda":
        raise NotImplementedError(f"{package} needs a CUDA tensor, got a {tensor.device.type} tensor")
    try:
        return load()
    except ImportError as error:
        raise NotImplementedError(f"{package} is not installed ({error}); pip install {package}") from error
